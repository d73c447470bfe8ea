"""How long `fairical-nb reproduce` takes: every artefact that can run here, then again with nothing to do.

usage: python benchmarks/reproduce.py      writes results/reproduce.csv; exit status 1 when a bound is missed
"""
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BOUNDS = {"all runs, two at a time": 900, "nothing to do": 5}  # seconds on two cores


def main():
    here, command = Path(__file__).parent, Path(sys.executable).parent / "fairical-nb"
    rows = []
    with tempfile.TemporaryDirectory() as out:
        for what, bound in BOUNDS.items():
            start = time.perf_counter()
            done = subprocess.run([command, "reproduce", "--jobs", "2", "-o", out], capture_output=True, text=True, check=True)
            seconds = time.perf_counter() - start
            runs = sum(line.startswith("[") for line in done.stdout.splitlines())
            rows.append({"row": what, "runs": runs, "seconds": round(seconds, 1), "bound": bound, "reached": seconds <= bound, "cores": os.cpu_count()})
            print(rows[-1])
    with open(here / "results" / "reproduce.csv", "w", newline="") as f:
        table = csv.DictWriter(f, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    sys.exit(not all(r["reached"] for r in rows))


if __name__ == "__main__":
    main()
