"""Runs rows of work as child processes, ours and a reference by turns, and writes time, memory and differences.

A row's child imports, does a small job to warm up, then the job itself under a clock; its peak memory is its own
ru_maxrss. This file runs in two environments, so it imports the standard library only. See README.md beside it.
"""
import argparse
import csv
import importlib.util
import json
import math
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from typing import Callable, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
PEER = "fairical==2.0.3"
WIDE = 1.3  # a side whose children's middle half is wider than that is measured again, up to three times as many turns


class Row(NamedTuple):
    what: str                         # the job in words
    make: Callable                    # (small) -> input, JSON-able or a dict of arrays; small=True is the warm-up
    ours: Callable                    # input -> value
    reference: Callable | None = None # input -> value, in the peer's Python when peer=True
    peer: bool = False
    reference_name: str = ""
    ratio: float | None = None        # at least so many times faster
    seconds: float | None = None      # at most so many seconds of processor time
    megabytes: float | None = None    # at most so much peak memory
    repeats: tuple = (5, 1)           # timed calls in one child: ours, reference
    scale: float = 1                  # the reference's time counts so many times (it did a part of the job)
    same: Callable | None = None      # (ours, reference) -> largest difference
    needs: tuple = ()                 # packages beyond the core that ours or the reference needs in this Python


def widest(a, b):
    "The largest difference between two nested results; infinite where the keys or one of two NaN differ."
    if isinstance(a, dict):
        return max((widest(a[k], b[k]) for k in a), default=0.) if a.keys() == b.keys() else math.inf
    if isinstance(a, list):
        return max(map(widest, a, b), default=0.) if len(a) == len(b) else math.inf
    if math.isnan(a) or math.isnan(b):
        return 0. if math.isnan(a) and math.isnan(b) else math.inf
    return abs(a - b)


# ---- the child: one side of one row --------------------------------------------------------------------------
def peak_mb():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak/(2**20 if sys.platform == "darwin" else 2**10)


def child(rows, name, side, folder):
    "Prints one line of JSON: seconds per call, value, peak memory before and after the job, versions."
    import importlib
    import importlib.metadata
    import warnings
    warnings.simplefilter("ignore")
    row = rows[name]
    job, repeats = (row.ours, row.repeats[0]) if side == "ours" else (row.reference, row.repeats[1])
    job(load(folder, name, True))
    data, seconds, cpu = load(folder, name, False), [], []
    before = peak_mb()
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        value = job(data)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    versions = {"fairical_nb": importlib.import_module("fairical_nb").__version__} if side == "ours" else {}
    for package in ("fairical", "fairlearn", "numpy", "pandas", "scipy", "scikit-learn", "moocore", "pymoo", "pygmo"):
        try: versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError: pass
    print(json.dumps({"seconds": seconds, "cpu": cpu, "value": value, "before_mb": before, "peak_mb": peak_mb(), "versions": versions}))


def input_file(folder, name, small, ending):
    return pathlib.Path(folder)/f"{name}{'_small' if small else ''}.{ending}"


def make_inputs(rows, name, folder):
    "Writes the row's warm-up and its input: arrays as .npz, the rest as JSON."
    import numpy as np
    for small in (True, False):
        data = rows[name].make(small)
        if any(isinstance(v, np.ndarray) for v in data.values()): np.savez(input_file(folder, name, small, "npz"), **data)
        else: input_file(folder, name, small, "json").write_text(json.dumps(data))


def load(folder, name, small):
    text = input_file(folder, name, small, "json")
    if text.exists(): return json.loads(text.read_text())
    import numpy as np
    with np.load(input_file(folder, name, small, "npz")) as arrays: return dict(arrays)


# ---- the parent: standard library only, so that its own size is in no child's peak ---------------------------
def one_thread():
    names = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
    paths = [str(HERE.parent)] + [p for p in [os.environ.get("PYTHONPATH")] if p]
    return {**os.environ, **{f"{n}_NUM_THREADS": "1" for n in names}, "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONHASHSEED": "0"}


def call(python, *args):
    done = subprocess.run([str(python), sys.argv[0], *args], env=one_thread(), text=True, stdout=subprocess.PIPE)
    if done.returncode: sys.exit(f"{' '.join(args[:3])} failed, see the message above")
    return done.stdout


def peer_python(given):
    "The Python that has the published package: the given one, or an environment of its own in benchmarks/.cache."
    home = HERE/".cache"/"peer"
    python = pathlib.Path(given) if given else home/("Scripts/python.exe" if os.name == "nt" else "bin/python")
    test = [str(python), "-c", "import fairical.scores"]
    if not given and not (python.exists() and not subprocess.run(test, capture_output=True).returncode):
        print(f"making an environment with {PEER} in benchmarks/.cache (once)", file=sys.stderr)
        try:
            venv.create(home, with_pip=True, clear=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", PEER], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"no environment with {PEER} could be made ({type(error).__name__}, message above). Install it into an "
                     "environment by hand and name that environment's Python: --peer PATH/bin/python")
    if not python.exists() or subprocess.run(test, capture_output=True).returncode:
        sys.exit(f"{python} does not import fairical. Install it there (pip install {PEER}), or leave --peer out")
    return python


def measure(name, row, python, repeats):
    "Ours and the reference by turns, again where the times scatter -> the row's results."
    sides = {"ours": sys.executable} | ({"reference": python if row.peer else sys.executable} if row.reference else {})
    runs = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        call(sys.executable, "--make", name, folder)
        for k in range(3*repeats):
            if k >= repeats and not any(middle_half(runs[side]) > WIDE for side in sides): break
            for side in sides:
                runs[side].append(json.loads(call(sides[side], "--child", name, side, folder)))
                print(f"  {name} {side} {k + 1}: {statistics.median(runs[side][-1]['seconds']):.4g} s", file=sys.stderr)
    return summary(name, row, runs)


def seconds(runs, clock="seconds"):
    "Median over all timed calls of these children."
    return statistics.median(s for r in runs for s in r[clock])


def spread(runs):
    "Slowest over fastest child, each by its median."
    each = [seconds([r]) for r in runs]
    return max(each)/min(each)


def middle_half(runs):
    "Upper over lower quartile of the children's medians: what one slow child does not change for ever."
    low, _, high = statistics.quantiles([seconds([r]) for r in runs], method="inclusive") if len(runs) > 1 else (1, 1, 1)
    return high/low


def side(prefix, runs, scale=1):
    "The columns of one side."
    return {f"{prefix}_s": scale*seconds(runs), f"{prefix}_cpu_s": scale*seconds(runs, "cpu"), f"{prefix}_spread": spread(runs),
            f"{prefix}_peak_mb": max(r["peak_mb"] for r in runs), f"{prefix}_before_mb": max(r["before_mb"] for r in runs)}


def summary(name, row, runs):
    ours, other = runs["ours"], runs.get("reference", [])
    out = {"row": name, "what": row.what} | side("ours", ours)
    if other:
        pairs = [row.scale*seconds([b])/seconds([a]) for a, b in zip(ours, other)]
        out |= {"reference": row.reference_name} | side("reference", other, row.scale)
        out |= {"extrapolated": row.scale, "ratio": out["reference_s"]/out["ours_s"], "ratio_low": min(pairs), "ratio_high": max(pairs),
                "ratio_cpu": out["reference_cpu_s"]/out["ours_cpu_s"]}
        if row.same: out["largest_difference"] = row.same(ours[0]["value"], other[0]["value"])
    out |= {"bound": bound(row), "reached": reached(row, out), "children": len(ours), "calls": row.repeats[0]}
    out["versions"] = {"ours": ours[0]["versions"]} | ({"reference": other[0]["versions"]} if other else {})
    value = ours[0]["value"]
    out["value"] = {"rows": len(value)} if isinstance(value, list) else value
    return out


def bound(row):
    parts = [(row.ratio, f">= {row.ratio:g}x" if row.ratio else ""), (row.seconds, f"<= {row.seconds} s"),
             (row.megabytes, f"<= {row.megabytes} MB")]
    return ", ".join(text for wanted, text in parts if wanted)


def reached(row, out):
    "True, False, or None where nothing was promised."
    if not bound(row): return None
    return bool((not row.ratio or out["ratio"] >= row.ratio) and (not row.seconds or out["ours_cpu_s"] <= row.seconds)
                and (not row.megabytes or out["ours_peak_mb"] <= row.megabytes)
                and not out.get("largest_difference", 0) > 1e-9)


def table(rows):
    head = f"{'row':<20} {'ours':>10} {'reference':>10} {'ratio':>9} {'peak MB ours/ref':>17} {'spread':>9} {'difference':>10}  bound"
    lines, ends = [head], {True: "{}: reached", False: "{}: MISSED", None: "measured only"}
    for r in rows:
        ratio, peak, wide = ((f"{r['ratio']:.{r['ratio'] < 10:d}f}x", f"{r['ours_peak_mb']:.0f}/{r['reference_peak_mb']:.0f}", f"{r['ours_spread']:.1f}/{r['reference_spread']:.1f}")
                             if "ratio" in r else ("-", f"{r['ours_peak_mb']:.0f}/-", f"{r['ours_spread']:.1f}/-"))
        ref, diff = (form.format(r[k]) if k in r else "-" for k, form in (("reference_s", "{:.3g}s"), ("largest_difference", "{:.1g}")))
        lines.append(f"{r['row']:<20} {r['ours_s']:>9.4f}s {ref:>10} {ratio:>9} {peak:>17} {wide:>9} {diff:>10}  {ends[r['reached']].format(r['bound'])}")
    return "\n".join(lines)


def write(rows, title):
    folder = HERE/"results"
    folder.mkdir(exist_ok=True)
    about = {"threads": 1, "cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine(),
             "system": platform.system()}
    flat = [{k: v for k, v in r.items() if k not in ("versions", "value")} for r in rows]
    keys = list(dict.fromkeys(k for r in flat for k in r))
    for name, text in ((f"{title}.json", json.dumps({"about": about, "rows": rows}, indent=1) + "\n"), (f"{title}.csv", None)):
        new = folder/f"{name}.tmp"
        with open(new, "w", newline="") as f:
            if text: f.write(text)
            else:
                out = csv.DictWriter(f, keys, lineterminator="\n")
                out.writeheader()
                out.writerows(flat)
        new.replace(folder/name)


def lacking(row):
    "The packages that this Python lacks for the row."
    return [p for p in row.needs if not importlib.util.find_spec(p)]


def main(all_rows, title, about, finish=None):
    "The command line of a script that lists `all_rows`; results go to results/TITLE.json and TITLE.csv. `finish` changes the rows first."
    if sys.argv[1:2] == ["--child"]: return child(all_rows, *sys.argv[2:5])
    if sys.argv[1:2] == ["--make"]: return make_inputs(all_rows, *sys.argv[2:4])
    p = argparse.ArgumentParser(description=about)
    p.add_argument("--peer", help=f"a Python that has {PEER}; without it one is made in benchmarks/.cache")
    p.add_argument("--rows", nargs="+", choices=list(all_rows), help="only these rows; the result files stay as they are")
    p.add_argument("--repeats", type=int, default=3, help="children per side and row (default 3)")
    args = p.parse_args()
    rows = {k: all_rows[k] for k in args.rows or all_rows}
    python = peer_python(args.peer) if any(r.peer for r in rows.values()) else None
    for k, r in rows.items():
        if lacking(r): print(f"left out: {k} needs {', '.join(lacking(r))} in this Python (README.md)", file=sys.stderr)
    done = [measure(k, r, python, args.repeats) for k, r in rows.items() if not lacking(r)]
    print(table(done))
    if not args.rows: write(finish(done) if finish else done, title)
    sys.exit(1 if any(r["reached"] is False for r in done) else 0)
