"""Everything: the table of part1.py, the curves of growth.py.

python benchmarks/all.py [--peer PYTHON] [--repeats N]
"""
import argparse
import subprocess
import sys

from harness import HERE, PEER


def main():
    p = argparse.ArgumentParser(description="Measures the table and the curves; results in benchmarks/results and figures")
    p.add_argument("--peer", help=f"a Python that has {PEER}; without it one is made in benchmarks/.cache")
    p.add_argument("--repeats", type=int, default=3, help="children per side and row (default 3)")
    args = p.parse_args()
    repeats = ["--repeats", str(args.repeats)]
    table = [str(HERE/"part1.py"), *repeats, *(["--peer", args.peer] if args.peer else [])]
    sys.exit(max(subprocess.run([sys.executable, *script]).returncode for script in (table, [str(HERE/"growth.py"), *repeats])))


if __name__ == "__main__":
    main()
