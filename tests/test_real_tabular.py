"The paper notebook on real tables, run with small settings."
import json

import pytest

paper = pytest.importorskip("fairical_nb.paper")
SMALL = {"seeds": 1, "thresholds": 11, "systems": "logistic decisions, logistic scores, linear family"}


def run(tmp_path, name, **parameters):
    notebook = paper.root() / "nbs" / "paper" / "real_tabular.ipynb"
    given = paper.checked_parameters(notebook, {**SMALL, **parameters, "out": str(tmp_path / name)})
    paper.execute(notebook, given, tmp_path / f"{name}.ipynb")
    return {f.name: f.read_bytes() for f in sorted((tmp_path / name).iterdir())}


def test_results_are_complete_say_real_and_are_the_same_twice(tmp_path):
    first, second = (run(tmp_path, n) for n in "ab")
    assert first == second
    stem = "real_tabular_nhefs"
    assert set(first) == {f"{stem}.csv", f"{stem}.json", *(f"{stem}_{t}.csv" for t in ("seeds", "optimism", "chosen", "groups")),
                          *(f"{stem}_{f}.{e}" for f in ("radar", "front") for e in ("png", "svg"))}
    said = json.loads(first[f"{stem}.json"])
    assert said["data"] == "real" and said["parameters"]["attribute"] == "sex" and "No winner" in said["remarks"]
    rows = {(r["protocol"], r["system"]): r for r in said["tables"]["summary"]}
    assert len(rows) == 6 and rows[("a priori", "logistic decisions")]["one point"]
    for system in ("logistic decisions", "logistic scores", "linear family"):
        before, after = (rows[(p, system)]["HV"] for p in ("a priori", "a posteriori"))
        assert 0 < before <= after + 1e-5 < 1
    assert [g["n"] for g in said["tables"]["groups"] if g["part"] == "test"] == [166, 160, 326]


@pytest.mark.parametrize("parameters", [
    {"attribute": "age", "utility": "f1", "at_most": 1e-6, "aware": False},
    {"attribute": "sex&race", "systems": "logistic decisions", "thresholds": 0}])
def test_other_attributes_and_a_limit_that_nobody_keeps(tmp_path, parameters):
    said = json.loads(run(tmp_path, "x", **parameters)["real_tabular_nhefs.json"])
    gap = f"eod+{parameters['attribute']} validation"
    limit = parameters.get("at_most", .1)
    assert all(r[gap] is None or r[gap] <= limit for r in said["tables"]["chosen"])
    assert any(r["model"] is None for r in said["tables"]["chosen"])
