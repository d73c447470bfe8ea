"The paper notebook on real tables, run with small settings."
import json
import re

import pytest

from fairical_nb import cohorts, reproduction
from fairical_nb.files import root

paper = pytest.importorskip("fairical_nb.paper")
NOTEBOOK = root() / "nbs" / "paper" / "real_tabular.ipynb"
SMALL = {"seeds": 1, "thresholds": 11, "systems": "logistic decisions, logistic scores, linear family"}


def run(tmp_path, name, **parameters):
    given = paper.checked_parameters(NOTEBOOK, {**SMALL, **parameters, "out": str(tmp_path / name)})
    paper.execute(NOTEBOOK, given, tmp_path / f"{name}.ipynb")
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


ROWS = {n: json.loads(r["parameters"]) for n, r in reproduction.runs().iterrows() if n.startswith("real_tabular_")}


def test_every_data_set_has_its_row_and_the_row_says_what_it_needs():
    assert {n.removeprefix("real_tabular_"): p["dataset"] for n, p in ROWS.items()} == {n: n for n in cohorts.READERS}
    needs = reproduction.runs().needs
    for name in cohorts.READERS:
        wanted = {"module:fairlearn"} | ({f"module:{cohorts.NEEDS[name]}"} if name in cohorts.NEEDS else set())
        assert set(needs[f"real_tabular_{name}"].split(";")) == wanted


@pytest.mark.parametrize("name", [n for n in cohorts.READERS if n != "nhefs"])
def test_runs_on_every_data_set_that_is_here(tmp_path, name):
    if not cohorts.catalogue().here[name]:
        pytest.skip(f"{name} needs {cohorts.NEEDS[name]}: {cohorts.GET[cohorts.NEEDS[name]]}")
    said = json.loads(run(tmp_path, name, **{**ROWS[f"real_tabular_{name}"], "systems": "logistic scores"})[f"real_tabular_{name}.json"])
    assert said["data"] == "real" and said["parameters"]["dataset"] == name
    groups = {g["group"] for g in said["tables"]["groups"]}
    wanted = ROWS[f"real_tabular_{name}"].get("groups")
    assert wanted is None or groups == {"all", *(g.strip() for g in wanted.split(","))}
    rows = {r["protocol"]: r for r in said["tables"]["summary"]}
    assert 0 < rows["a priori"]["HV"] <= rows["a posteriori"]["HV"] + 1e-5 < 1


def test_groups_that_are_left_out_are_counted(tmp_path):
    said = json.loads(run(tmp_path, "x", attribute="age", groups="25-39, 55-74", systems="logistic scores")["real_tabular_nhefs.json"])
    assert said["remarks"].startswith("635 people of other groups are left out.")
    assert {g["group"] for g in said["tables"]["groups"]} == {"25-39", "55-74", "all"}
    test = {g["group"]: g for g in said["tables"]["groups"] if g["part"] == "test"}
    assert test["25-39"]["limit"] == pytest.approx(.1 * test["25-39"]["positives"]) and sum(g["n"] for g in said["tables"]["groups"] if g["group"] == "all") == 1629 - 635


def test_the_text_speaks_of_no_particular_data_set():
    prose = " ".join("".join(c["source"]) for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "markdown")
    assert not re.findall(r"NHEFS|HMDA|COMPAS|wom[ae]n|\bmen\b|smokers?|died|\b\d+ people", prose)
