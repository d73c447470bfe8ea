"The numeric cases in data/cases, run by the checker that came with them, and that checker itself."
import json
import os
import re
import shutil
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def check(root):
    def run(folder):
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
        return subprocess.run([sys.executable, str(root / "tests/data/cases/check_cases.py"), str(folder)], capture_output=True, text=True, env=env)
    return run


def test_every_case_passes(check, root):
    done = check(root / "tests/data/cases")
    passed, failed = map(int, re.fullmatch(r"(\d+) passed, (\d+) failed", done.stdout.strip().splitlines()[-1]).groups())
    assert failed == 0, done.stdout
    assert passed > 2000
    assert done.returncode == 0


def test_the_checker_can_fail(check, root, tmp_path):
    "One value of one case is moved by 1e-8."
    shutil.copy(root / "tests/data/cases/front_2d_n6_dom3.json", tmp_path)
    case = json.loads((tmp_path / "front_2d_n6_dom3.json").read_text())
    case["expected"]["hv"] += 1e-8
    (tmp_path / "front_2d_n6_dom3.json").write_text(json.dumps(case))
    done = check(tmp_path)
    assert done.returncode == 1
    assert "hv" in done.stdout and done.stdout.strip().endswith("1 failed")


def test_all_kinds_are_there(root):
    kinds = {json.loads(f.read_text())["kind"] for f in (root / "tests/data/cases").glob("*.json")}
    assert kinds == {"indicators", "systems", "sweep", "aposteriori", "apriori"}
