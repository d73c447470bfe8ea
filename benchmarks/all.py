"""Everything but the whole reproduction: the tables of part1.py, mgbi.py, spafreq.py and rollout.py, the curves of growth.py, the costs of systems.py.

python benchmarks/all.py [--peer PYTHON] [--repeats N]
"""
import argparse
import importlib.util
import subprocess
import sys

from harness import HERE, PEER


def main():
    p = argparse.ArgumentParser(description="Measures the table and the curves; results in benchmarks/results and figures")
    p.add_argument("--peer", help=f"a Python that has {PEER}; without it one is made in benchmarks/.cache")
    p.add_argument("--repeats", type=int, default=3, help="children per side and row (default 3)")
    args = p.parse_args()
    repeats = ["--repeats", str(args.repeats)]
    peer = ["--peer", args.peer] if args.peer else []
    scripts = [["part1.py", *repeats, *peer], ["growth.py", *repeats], ["mgbi.py", *repeats]]
    if importlib.util.find_spec("torch"): scripts += [["spafreq.py", *repeats], ["rollout.py", *repeats], ["systems.py"]]
    else: print("spafreq.py, rollout.py and systems.py are left out: they need torch, pip install -e '.[t2i]'")
    sys.exit(max([subprocess.run([sys.executable, str(HERE/name), *rest]).returncode for name, *rest in scripts]))


if __name__ == "__main__":
    main()
