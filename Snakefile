# All runs of nbs/paper/runs.csv as rules, for grids and clusters. `fairical-nb reproduce` does the same on one machine.
#   snakemake -c 2                              two at a time, here
#   snakemake -c 1 --config preset=paper        the papers' settings
#   snakemake --profile docs/slurm             as jobs of a cluster (see docs/cluster.md)
# A rule runs again when its notebook, the library, the shipped data or its parameters have changed.
import json
from fairical_nb import reproduction

PRESET = config.get("preset", "demo")
JOBS = {job.names[0]: job for job in reproduction.planned(preset=PRESET)}
LIBRARY = sorted(str(f) for f in Path("fairical_nb").glob("*.py") if f.name != "_modidx.py") + sorted(str(f) for f in Path("data").rglob("*.csv"))
TABLE = reproduction.runs(PRESET)


rule all:
    input: expand("runs/snakemake/{name}.done", name=JOBS)


for name, job in JOBS.items():
    rule:
        name: name
        input: notebook=os.path.relpath(job.notebook), library=LIBRARY
        output: touch(f"runs/snakemake/{name}.done")
        log: f"runs/{name}.ipynb" # the executed copy; it stays when the run fails
        params: names=" ".join(job.names), given=json.dumps(job.parameters, sort_keys=True), preset=PRESET
        resources: mem_mb=int(float(TABLE.at[name, "memory_mb"] or 1000) * 2), runtime=max(5, int(float(TABLE.at[name, "seconds"] or 60) / 15))
        retries: 1
        shell: "fairical-nb reproduce {params.names} --preset {params.preset} --force"
