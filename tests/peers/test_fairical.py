"Beside the published package fairical 2.0.3: its values in our compatibility mode, its files in our reader."
import json
import math
import re
import warnings

import numpy as np
import pytest

from fairical_nb.indicators import compare
from fairical_nb.objectives import sweep
from fairical_nb.scores import Scores
from fairical_nb.solutions import Solutions, a_posteriori, a_priori


@pytest.fixture(scope="module")
def data(root): return root / "tests/data/fairical"


@pytest.fixture(scope="module")
def oracle(data): return json.loads((data / "oracle.json").read_text())["cases"]


def quiet(f, *args, **options):
    with warnings.catch_warnings(action="ignore"): return f(*args, **options)


# Values

def test_every_value_of_the_oracle(oracle):
    compared = 0
    for c in oracle:
        thresholds = [float(t) for t in c["thresholds"]]
        table = quiet(sweep, c["y"], c["scores"], c["attributes"], list(c["values"]), thresholds=thresholds, undefined="fairical")
        for metric, want in c["values"].items():
            want = np.array([math.nan if v is None else v for v in want * (len(thresholds) if len(want) == 1 else 1)])
            assert np.allclose(table[metric], want, rtol=0, atol=1e-12, equal_nan=True), (c["name"], metric, table[metric].tolist(), want)
            compared += len(want)
    assert compared > 14_000


def test_the_other_policies_do_differ_from_it(oracle):
    "So that the test above is not won by the default."
    differing = {"nan": 0, "zero": 0}
    for c in oracle:
        thresholds = [float(t) for t in c["thresholds"]]
        tables = {p: quiet(sweep, c["y"], c["scores"], c["attributes"], list(c["values"]), thresholds=thresholds, undefined=p) for p in ("nan", "zero", "fairical")}
        for p in differing: differing[p] += not np.allclose(tables[p], tables["fairical"], equal_nan=True)
    assert differing["nan"] > 20 and differing["zero"] > 10


# Files: all 14 are read, none is written over

def test_all_files_are_read_and_come_back(data, tmp_path):
    files = [f for f in data.rglob("*.json") if f.parent != data or f.name == "edited_quirks.json"]
    assert len(files) >= 13
    for f in files:
        raw = json.loads(f.read_text())
        s = Solutions.load(f)
        assert s.metrics == list(raw["points"])
        for m in s.metrics: assert s.frame[m].tolist() == raw["points"][m]
        names, ids = raw["metadata"]["identifier-names"], raw["metadata"]["identifiers"]
        assert s.frame["model"].tolist() == [names[int(i)] for i in ids]
        thresholds = raw["metadata"].get("thresholds", raw["metadata"].get("threholds"))
        assert s.frame["threshold"].tolist() == [math.inf if t is None else float(t) for t in thresholds]
        assert (s.prior_set, s.prior_from) == (raw["metadata"].get("prior-solution-set"), raw["metadata"].get("prior-solution-from"))
        s.save(tmp_path / f.name)
        text = (tmp_path / f.name).read_text()
        again = Solutions.load(tmp_path / f.name)
        assert again.frame.equals(s.frame) and (again.prior_set, again.prior_from) == (s.prior_set, s.prior_from)
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
        assert "threholds" not in text and all(type(i) is int for i in json.loads(text)["metadata"]["identifiers"])


def test_the_quirks_are_in_the_files(data):
    edited = (data / "edited_quirks.json").read_text()
    assert '"threholds"' in edited and "null" in edited and re.search(r'"identifiers": \[0\.0', edited)
    written = (data / "a_posteriori/first_test.json").read_text()
    assert "Infinity" in written and "0E-1" in written
    quirky, plain = Solutions.load(data / "edited_quirks.json").frame, Solutions.load(data / "thresholds_11/first_test.json").frame
    assert quirky.iloc[1:].equals(plain.iloc[1:]) and quirky["threshold"].iloc[0] == math.inf


@pytest.mark.parametrize("system", ["first", "second"])
def test_scores_files_are_read(data, system):
    raw, scores = json.loads((data / f"{system}_test.json").read_text()), Scores.load(data / f"{system}_test.json")
    assert [v.tolist() for v in scores.models.values()] == raw["scores"]
    assert list(scores.models) == raw.get("identifiers", ["model-0", "model-1", "model-2"])
    assert scores.y_true.tolist() == raw["ground-truth"] and {k: v.tolist() for k, v in scores.attributes.items()} == raw["attributes"]


# The same work

METRICS, GRID = ["acc", "eod+gender", "eod+race"], np.linspace(0, 1, 11)


@pytest.mark.parametrize("name", ["first_test", "first_validation", "second_test", "second_validation"])
def test_a_posteriori_on_a_grid_is_the_same_rows(data, name):
    ours = quiet(a_posteriori, Scores.load(data / f"{name}.json"), METRICS, thresholds=GRID, undefined="fairical").deduplicate()
    theirs = Solutions.load(data / f"thresholds_11/{name}.json")
    assert ours.frame["model"].tolist() == theirs.frame["model"].tolist()
    assert ours.frame["threshold"].tolist() == theirs.frame["threshold"].tolist()
    assert ours.points == pytest.approx(theirs.points, abs=1e-12)


def test_without_deduplication(data):
    ours = quiet(a_posteriori, Scores.load(data / "first_test.json"), METRICS, thresholds=GRID, undefined="fairical")
    theirs = Solutions.load(data / "thresholds_11_all/first_test.json")
    assert len(ours) == len(theirs) == 33 and ours.points == pytest.approx(theirs.points, abs=1e-12)


def test_default_thresholds_are_each_models_own_and_agree_where_both_have_them(data):
    ours = quiet(a_posteriori, Scores.load(data / "first_test.json"), METRICS, undefined="fairical")
    theirs = Solutions.load(data / "a_posteriori/first_test.json")
    at = {(m, t): values for m, t, *values in ours.frame.itertuples(index=False)}
    both = [(row[2:], at[row[:2]]) for row in theirs.frame.itertuples(index=False, name=None) if row[:2] in at]
    assert len(both) > 20
    for t, o in both: assert o == pytest.approx(list(t), abs=1e-12)
    assert len(ours) == sum(len(np.unique(s)) + 1 for s in Scores.load(data / "first_test.json").models.values())


@pytest.mark.parametrize("system", ["first", "second"])
@pytest.mark.parametrize("folder,which", [("a_priori_nds", "nondominated"), ("a_priori_ds", "dominated"), ("a_priori_all", "all")])
def test_a_priori_is_the_same_rows_while_all_models_survive(data, system, folder, which):
    prior = Solutions.load(data / f"thresholds_11/{system}_validation.json")
    ours = quiet(a_priori, Scores.load(data / f"{system}_test.json"), prior, which=which, undefined="fairical").deduplicate()
    theirs = Solutions.load(data / f"{folder}/{system}_test@{system}_validation.json")
    assert ours.frame[["model", "threshold"]].to_numpy().tolist() == theirs.frame[["model", "threshold"]].to_numpy().tolist()
    assert ours.points == pytest.approx(theirs.points, abs=1e-12)
    assert ours.prior_set == theirs.prior_set


def test_a_priori_by_name_where_the_package_takes_another_model(data):
    "Its last point is called ray-2 and holds the accuracy of ray-1."
    prior = Solutions.load(data / "two_metrics/first_validation.json")
    scores = Scores.load(data / "first_test.json")
    ours = quiet(a_priori, scores, prior, undefined="fairical").deduplicate()
    theirs = Solutions.load(data / "two_metrics/first_test@first_validation.json")
    assert ours.frame["model"].tolist() == theirs.frame["model"].tolist() == ["ray-0", "ray-0", "ray-0", "ray-2"]
    assert ours.points[:3] == pytest.approx(theirs.points[:3], abs=1e-12)
    right = {m: sweep(scores.y_true, scores.models[m], {}, ["acc"], thresholds=[.74]).iloc[0, 0] for m in scores.models}
    assert theirs.points[3, 0] == pytest.approx(right["ray-1"]) and ours.points[3, 0] == pytest.approx(right["ray-2"]) == pytest.approx(47 / 60)


def test_the_printed_table_of_indicators(data):
    lines = (data / "evaluate.txt").read_text().splitlines()
    systems = {n: Solutions.load(data / f"thresholds_11/{n}.json") for n in ("first_test", "second_test")}
    table = compare(systems, systems["first_test"].directions)
    for line in lines[2:]:
        name, *printed = line.split()
        assert [f"{table.loc[name, c]:.2f}" for c in ("ONVG_rel", "ONVGR", "UD", "AS", "HV", "area")] == printed


def test_the_printed_fronts(data):
    for block in (data / "pareto.txt").read_text().split("\nPareto front for ")[1:]:
        name, *lines = block.strip().splitlines()
        want = [(re.findall(r"[\d.]+", line[:62]), *line[62:].split()) for line in lines[2:]]
        front = Solutions.load(data / f"thresholds_11/{name}.json").nondominated().frame
        assert [(*map(float, v), float(t), m) for v, t, m in want] == [(*row[2:], round(row[1], 9), row[0]) for row in front.itertuples(index=False, name=None)]


# What we refuse and it accepts

@pytest.mark.parametrize("change,words", [({"metadata": {"identifiers": [0.5], "identifier-names": ["a"], "thresholds": [.5]}}, ["identifiers", "row 0", "0.5"]),
                                          ({"metadata": {"identifiers": [3], "identifier-names": ["a"], "thresholds": [.5]}}, ["identifier", "3"]),
                                          ({"points": {"acc": [1.5], "dpd+g": [0]}}, ["acc", "row 0", "1.5"]), ({"points": {"acc": [.5, .6], "dpd+g": [0]}}, ["acc", "2", "1"])])
def test_broken_files_are_refused_in_words(tmp_path, change, words):
    good = {"points": {"acc": [.5], "dpd+g": [0]}, "metadata": {"identifiers": [0.0], "identifier-names": ["a"], "thresholds": [.5]}}
    (tmp_path / "s.json").write_text(json.dumps(good))
    assert len(Solutions.load(tmp_path / "s.json")) == 1
    (tmp_path / "s.json").write_text(json.dumps(good | change))
    with pytest.raises(ValueError) as e: Solutions.load(tmp_path / "s.json")
    for w in ["s.json", *words]: assert w in str(e.value)
