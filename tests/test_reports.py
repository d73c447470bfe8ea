"Faults that users of neighbouring tools reported, one test per report, named by its number. Each runs the reported input on our own interface and asserts what is right."
import ast
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import papermill
import pytest
from click.testing import CliRunner
from sklearn.metrics import precision_recall_curve, roc_curve

from fairical_nb.cli import main
from fairical_nb.figures import described, style
from fairical_nb.indicators import compare, indicators, nondominated
from fairical_nb.objectives import by_group, group_sizes, sweep
from fairical_nb.paper import RunFailed, checked_parameters, execute
from fairical_nb.radar import radar
from fairical_nb.scores import Scores
from fairical_nb.solutions import Solutions, a_posteriori

Y, S = [0, 1, 0, 1], [.1, .4, .35, .8]


def strict(text): return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
def command(*args): return CliRunner().invoke(main, [str(a) for a in args])


# Fairness metrics

@pytest.mark.parametrize("form", [list, pd.Series, lambda c: np.array(c, dtype=object), pd.Categorical, lambda c: pd.Series(c, dtype="string"), tuple], ids=["list", "series", "array", "categorical", "string series", "tuple"])
@pytest.mark.parametrize("nothing", [math.nan, None, pd.NA], ids=["nan", "None", "NA"])
def test_F01_missing_group_label_has_one_policy_in_every_form(form, nothing, tmp_path):
    sex = form(["a", "a", "b", None if nothing is pd.NA and form is pd.Categorical else nothing])
    for f in (lambda: sweep(Y, S, {"sex": sex}, ["dpd+sex"]), lambda: Scores({"m": S}, Y, {"sex": sex}), lambda: by_group(Y, S, {"sex": sex}), lambda: sweep(Y, S, {"sex": sex, "race": list("xyxy")}, ["dpd+sex&race"])):
        with pytest.raises(ValueError) as e: f()
        for w in ("'sex'", "1 missing", "row 3", "drop", "group"): assert w in str(e.value)
    scores = Scores({"m": S}, Y, {"sex": sex}, missing="drop")
    assert scores.n == 3 and scores.dropped == 1 and scores.attributes["sex"].tolist() == ["a", "a", "b"]
    want = sweep(Y[:3], S[:3], {"sex": list("aab")}, ["acc", "dpd+sex"], thresholds=[.2, .38])
    assert sweep(Y, S, {"sex": sex}, ["acc", "dpd+sex"], thresholds=[.2, .38], missing="drop").equals(want)
    assert by_group(Y, S, {"sex": sex}, missing="drop")["n"].tolist()[:2] == group_sizes(scores)["n"].tolist() == [2, 1]
    assert by_group(Y, S, {"sex": sex}, missing="group")["n"].tolist()[:4] == [2, 1, 1, 4]
    want = sweep(Y, S, {"sex": list("aabz")}, ["dpd+sex"], thresholds=[.2, .38])
    assert sweep(Y, S, {"sex": sex}, ["dpd+sex"], thresholds=[.2, .38], missing="group").equals(want)


def test_F01_the_same_policy_and_the_same_n_in_the_command(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"scores": [S], "ground-truth": Y, "attributes": {"gender": ["a", "b", None, "a"]}}))
    done = command("solve", tmp_path / "s.json", "-o", tmp_path / "out")
    assert done.exit_code == 2
    for w in ("gender", "1 missing", "row 2"): assert w in done.stderr
    done = command("solve", tmp_path / "s.json", "-o", tmp_path / "out", "--missing", "drop", "-m", "acc", "-m", "dpd+gender", "-vv")
    assert done.exit_code == 0 and "3 samples" in done.stderr and "1 dropped" in done.stderr
    assert Solutions.load(tmp_path / "out/s.json").frame["threshold"].max() <= math.inf and .35 not in Solutions.load(tmp_path / "out/s.json").frame["threshold"].tolist()


def test_F03_series_are_never_paired_by_position_against_their_index():
    y, p = pd.Series([0, 0, 1, 1], index=range(4)), pd.Series([0., 0., 1., 1.], index=[3, 2, 1, 0])
    g = pd.Series(list("aabb"), index=range(10, 14))
    for columns in ((y, p, {"g": g}), (y, p, {"g": list("aabb")}), (y, p.sort_index(), {"g": g}), (y, p.sort_index(), g.to_frame("g"))):
        with pytest.raises(ValueError, match="index") as e: sweep(*columns, ["dpd+g"], thresholds=[.5])
        assert "align=True" in str(e.value)
    by_index = sweep(y, p, {"g": g.set_axis(range(4))}, ["acc", "dpd+g"], thresholds=[.5], align=True)
    assert by_index.iloc[0].tolist() == [0, 1]
    by_position = sweep(y.to_numpy(), p.to_numpy(), {"g": g.to_numpy()}, ["acc", "dpd+g"], thresholds=[.5])
    assert by_position.iloc[0].tolist() == [1, 1]
    with pytest.raises(ValueError, match="align=True"): sweep(y, p, {"g": g}, ["dpd+g"], thresholds=[.5], align=True) # nothing to align by
    with pytest.raises(ValueError): sweep(y, p, {}, ["acc"], thresholds=[.5], sample_weight=pd.Series([1] * 4, index=list("wxyz")), align=True)
    assert sweep(y, p.sort_index(), {}, ["acc"], thresholds=[.5], sample_weight=pd.Series([1, 0, 0, 0])).iloc[0, 0] == 0


@pytest.mark.parametrize("y,found", [([0, 1, 2, 1], ["0", "1", "2"]), (["yes", "no", "no", "yes"], ["'yes'", "'no'"]), (["a", "b", "c", "a"], ["'a'", "'b'", "'c'"]), ([1, 2, 1, 2], ["1", "2"]), ([-1, 1, 1, -1], ["-1"]), ([.2, .8, .2, .8], ["0.2"])])
def test_F05_labels_that_are_not_binary_are_named_with_the_way_out(y, found):
    for f in (lambda: sweep(y, S, {}, ["acc"]), lambda: Scores({"m": S}, y, {}), lambda: by_group(y, S, {"g": list("abab")})):
        with pytest.raises(ValueError) as e: f()
        for w in ("y_true", "binary", "positive_label", *found): assert w in str(e.value)


def test_F05_positive_label_makes_them_binary():
    assert sweep(["no", "yes", "no", "yes"], S, {}, ["acc"], thresholds=[.38], positive_label="yes").iloc[0, 0] == 1
    assert sweep(["no", "yes", "no", "yes"], S, {}, ["acc"], thresholds=[.38], positive_label="no").iloc[0, 0] == 0
    with pytest.raises(ValueError, match="'maybe'"): sweep(["no", "yes", "no", "yes"], S, {}, ["acc"], positive_label="maybe")


def test_F06_weights_are_one_per_sample_and_scalars_are_never_indexed():
    y, s, g = [0, 1] * 8, np.linspace(0, 1, 16), {"g": list("aabb") * 4}
    weighted = sweep(y, s, g, ["acc", "dpd+g"], sample_weight=[.1] * 16, positive_label=1)
    assert np.allclose(weighted, sweep(y, s, g, ["acc", "dpd+g"]))
    for weight in (.1, np.float64(1), [.1] * 15, [[.1]] * 16, "1"):
        with pytest.raises(ValueError, match="sample_weight"): sweep(y, s, g, ["acc"], sample_weight=weight)
    with pytest.raises(TypeError, match="pos_label"): sweep(y, s, g, ["acc"], pos_label=1)


def test_F08_all_negative_predictions_have_no_gap_and_full_ratio_everywhere(tmp_path):
    names = ["dpd+g", "dpr+g", "eod+g", "eor+g", "minmaxd+tpr+g", "minmaxr+tpr+g", "minmaxd+f1+g", "minmaxr+f1+g"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = sweep([0, 1, 0, 1], S, {"g": list("aabb")}, names, thresholds=[math.inf])
    assert table.iloc[0].tolist() == [0, 1] * 4
    scores = Scores({"m": S}, Y, {"g": list("aabb")})
    s = a_posteriori(scores, ["acc", "dpr+g", "dpd+g"])
    last = s.frame.iloc[-1]
    assert last["threshold"] == math.inf and last[["dpr+g", "dpd+g"]].tolist() == [1, 0]
    s.save(tmp_path / "s.json")
    obj = strict((tmp_path / "s.json").read_text())
    assert obj["points"]["dpr+g"][-1] == 1 and obj["metadata"]["thresholds"][-1] == "inf"
    front = s.nondominated().frame
    assert (front[front["threshold"] == math.inf][["dpr+g", "dpd+g"]] == [1, 0]).all(axis=None)
    with warnings.catch_warnings(action="ignore"): # undefined here is undefined there
        both = sweep([0, 0, 1, 1], S, {"g": list("aabb")}, ["eod+g", "eor+g"])
    assert both.isna().all(axis=None)


@pytest.mark.parametrize("form", [lambda g: {"gender": g}, lambda g: {"gender": pd.Series(g)}, lambda g: {"gender": pd.Categorical(g)}, lambda g: pd.DataFrame({"gender": g}), lambda g: pd.Series(g, name="gender")], ids=["dict of arrays", "dict of series", "dict of categories", "frame", "series"])
def test_F09_every_form_of_attributes_is_taken_and_names_are_kept(form):
    gender = np.array(list("abab"))
    assert sweep(Y, S, form(gender), ["dpd+gender"], thresholds=[.38])["dpd+gender"].tolist() == [1]
    assert list(Scores({"m": S}, Y, form(gender)).attributes) == ["gender"]
    assert by_group(Y, S, form(gender)).index.name == "gender"


def test_F09_an_array_alone_is_an_attribute_too():
    assert sweep(Y, S, np.array(list("abab")), ["dpd+attribute"], thresholds=[.38]).iloc[0, 0] == 1


def test_F11_every_named_attribute_is_used(tmp_path):
    columns = {"gender": list("abab"), "race": list("xxyy")}
    table = sweep(Y, S, columns, ["dpd+gender", "dpd+race", "dpd+gender&race"], thresholds=[.38])
    assert table.iloc[0].tolist() == [1, 0, 1]
    assert set(group_sizes(Scores({"m": S}, Y, columns))["attribute"]) == {"gender", "race"}
    with pytest.raises(ValueError, match="gender.*race|'race'"): by_group(Y, S, columns)
    with pytest.raises(ValueError, match="age"): sweep(Y, S, columns, ["dpd+gender", "dpd+age"])
    with pytest.raises(ValueError, match="age"): sweep(Y, S, columns, ["dpd+gender&age"])
    Scores({"m": S}, Y, columns).save(tmp_path / "s.json")
    assert command("solve", tmp_path / "s.json", "-m", "dpd+race", "-m", "dpd+gender", "-m", "acc", "-o", tmp_path / "out").exit_code == 0
    assert list(strict((tmp_path / "out/s.json").read_text())["points"]) == ["dpd+race", "dpd+gender", "acc"]


# Pareto fronts, hypervolume

def test_P01_points_on_the_nadir_add_nothing_and_the_nadir_can_be_moved(tmp_path):
    points = [[1, .2], [.5, .5]]
    assert indicators(points, ["min", "min"])["HV"] == .25
    assert indicators(points, ["min", "min"], nadir=1.1)["HV"] == pytest.approx(.39)
    assert indicators(points, ["min", "min"], nadir=[1.1, 1])["HV"] == pytest.approx(.6 * .5 + .1 * .3)
    (tmp_path / "s.json").write_text(json.dumps({"points": {"fpr": [1, .5], "fnr": [.2, .5]}, "metadata": {"identifiers": [0, 0], "identifier-names": ["m"], "thresholds": [.1, .2]}}))
    done = command("evaluate", tmp_path / "s.json", "--nadir", "1.1", "-t", "json")
    assert strict(done.stdout)["settings"]["nadir"] == 1.1 and strict(done.stdout)["systems"]["s"]["HV"] == pytest.approx(.39)
    assert "1.1" in command("evaluate", tmp_path / "s.json", "--nadir", "1.1", "-v").stderr


def test_P02_directions_come_from_the_metric():
    frame = pd.DataFrame({"model": ["m"], "threshold": [.5], "acc": [.9], "eod+g": [.1]})
    s = Solutions(frame)
    assert s.directions == ["max", "min"] and indicators(s, s.directions)["HV"] == pytest.approx(.81)
    assert indicators([[.9, .1]], ["min", "min"])["HV"] == pytest.approx(.09) # what the wrong sign gives
    for d in (["Max", "min"], [1, -1], ["maximise", "min"], "max"):
        with pytest.raises((ValueError, TypeError)): indicators([[.9, .1]], d)


@pytest.mark.parametrize("kind", [int, np.int8, np.uint8, np.int64, np.float32, bool])
def test_P04_integers_give_the_same_as_floats(kind):
    points = np.array([[1, 2], [2, 1]]).astype(kind) if kind is not bool else np.array([[False, True], [True, False]])
    want = indicators(points.astype(float), ["min", "min"], nadir=[3, 3], ideal=[0, 0])
    found = indicators(points, ["min", "min"], nadir=np.array([3, 3]), ideal=[0, 0])
    assert found == want and found["HV"] == (8 if kind is bool else 3)
    assert points.dtype == (np.dtype(kind))
    assert indicators(points.tolist(), ["min", "min"], nadir=3, ideal=0) == want


def test_P05_one_objective_is_refused_with_a_clear_error():
    points = [[.5], [.6], [.3], [.1], [0.], [.9]]
    scores = Scores({"m": S}, Y, {"g": list("aabb")})
    for f in (lambda: nondominated(points, ["min"]), lambda: indicators(points, ["min"]), lambda: compare({"s": points}, ["min"]), lambda: a_posteriori(scores, ["acc"])):
        with pytest.raises(ValueError, match="two"): f()
    for module in (Path(__file__).parents[1] / "fairical_nb").glob("*.py"): # nor anything else by an assert, which python -O leaves out
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(module.read_text()))), module.name


def test_P07_copies_on_the_front_count_once_after_deduplication():
    points = [[.5, .5], [.5, .5], [.6, .6]]
    assert nondominated(points, ["min", "min"]).tolist() == [True, True, False]
    assert compare({"s": points}, ["min", "min"]).loc["s", ["ONVG", "ONVGR"]].tolist() == [1, .5]
    assert compare({"s": points}, ["min", "min"], dedup_eps=None).loc["s", ["ONVG", "ONVGR"]].tolist() == pytest.approx([2, 2 / 3])
    assert "dedup_eps" in compare.__code__.co_varnames


def test_P09_all_systems_share_one_reference():
    dominated, dominating = [[.5, .9], [.9, .5]], [[.2, .5], [.4, .3]]
    table = compare({"A": dominated, "B": dominating}, ["min", "min"])
    assert table.loc["B", "HV"] > table.loc["A", "HV"]
    for name, points in (("A", dominated), ("B", dominating)): assert table.loc[name, "HV"] == compare({name: points}, ["min", "min"]).loc[name, "HV"]
    assert compare({"A": dominated + [[.4, .4]]}, ["min", "min"]).loc["A", "HV"] >= table.loc["A", "HV"]
    box = compare({"A": dominated, "B": dominating}, ["min", "min"], nadir=2, ideal=-1, axes=["HV"])
    assert box["area"].tolist() == pytest.approx((box["HV"] / 9).tolist())


# scikit-learn

def test_S01_the_infinite_threshold_survives_a_strict_file(tmp_path):
    y, s = [0, 0, 1, 1], [.1, .4, .35, .8]
    assert roc_curve(y, s)[2][0] == math.inf
    found = a_posteriori(Scores({"m": s}, y, {"g": list("abab")}), ["tpr", "tnr", "dpd+g"])
    found.save(tmp_path / "s.json")
    text = (tmp_path / "s.json").read_text()
    strict(text)
    assert "null" not in text and "Infinity" not in text and "NaN" not in text
    back = Solutions.load(tmp_path / "s.json")
    assert back.frame.equals(found.frame) and back.frame["threshold"].tolist() == [.1, .35, .4, .8, math.inf]


def test_S03_every_unique_score_is_a_threshold_and_lengths_agree():
    y, s = [0, 0, 1, 1], [.1, .4, .35, .8]
    precision, recall, thresholds = precision_recall_curve(y, s)
    assert len(precision) == len(thresholds) + 1
    table = sweep(y, s, {}, ["f1", "prec", "rec"], thresholds=None, undefined="zero")
    assert table.index.tolist() == [*thresholds, math.inf]
    assert table["prec"].tolist()[:-1] == pytest.approx(precision[:-1]) and table["rec"].tolist() == pytest.approx(recall)
    assert table["f1"].tolist() == pytest.approx([2 / 3, .8, .5, 2 / 3, 0])
    rng = np.random.default_rng(0)
    s = rng.random(300).round(2)
    assert sweep(rng.integers(0, 2, 300), s, {}, ["f1"]).index.tolist() == [*np.unique(s), math.inf]


@pytest.mark.parametrize("method", ["dbscan", "greedy"])
@pytest.mark.parametrize("spread", [0., 1e-8], ids=["identical", "within eps"])
def test_S04_memory_of_deduplication_does_not_grow_with_neighbours(method, spread):
    pytest.importorskip("resource")
    program = f"""import resource, numpy as np
from fairical_nb.dedup import representatives
points = np.full((50_000, 3), .5) + {spread} * np.random.default_rng(0).random((50_000, 3))
representatives(points[:10], method={method!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = representatives(points, method={method!r})
print(kept.sum(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    kept, grown = map(int, done.stdout.split())
    assert kept == 1 and grown * (1 if sys.platform == "darwin" else 1024) < 200e6, done.stderr


# Radar and figures

FIVE = pd.DataFrame([[.9, .4, .7, .2, .6], [.3, .8, .5, 1., .1]], columns=["ONVG_rel", "ONVGR", "UD", "AS", "HV"], index=["one", "two"])


def test_R01_radar_edges_are_straight_and_the_area_is_the_reported_one():
    ax = radar(FIVE)
    for patch, (_, row) in zip([p for p in ax.patches if p.get_fill()], FIVE.iterrows()):
        path = patch.get_path()
        assert set(path.codes) <= {path.MOVETO, path.LINETO, path.CLOSEPOLY} and ax.name != "polar"
        x, y = path.vertices[:5].T
        r = row.to_numpy()
        reported = (r * np.roll(r, -1)).mean()
        assert abs((x * np.roll(y, -1) - y * np.roll(x, -1)).sum()) / 2 == pytest.approx(reported * 5 / 2 * math.sin(math.radians(72)), abs=1e-6)
    plt.close(ax.figure)


def test_R02_one_legend_entry_per_system_in_the_colour_of_its_line():
    ax = radar(FIVE)
    handles = ax.get_legend().legend_handles
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["one", "two"] and len(handles) == 2
    lines = [line for line in ax.get_lines() if line.get_marker() not in ("None", "", None)]
    assert len(lines) == 2
    for i, (line, handle) in enumerate(zip(lines, handles)):
        assert np.hypot(*line.get_xydata()[:5].T) == pytest.approx(FIVE.iloc[i].to_numpy())
        assert handle.get_color() == line.get_color() == style(i)["color"]
    plt.close(ax.figure)


def test_R04_figures_in_an_exported_notebook_have_their_words():
    from nbconvert import HTMLExporter
    shown = described(radar(FIVE).figure, "Radar of two systems, <one> & two.")
    cell = nbformat.v4.new_code_cell("fig", outputs=[nbformat.v4.new_output("execute_result", data={"text/html": shown._repr_html_(), "text/plain": repr(shown)}, execution_count=1)], execution_count=1)
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    assert body.count("<img") == 1 and 'alt="Radar of two systems, &lt;one&gt; &amp; two."' in body


# papermill

def made(folder, *cells, tag="parameters"):
    first = nbformat.v4.new_code_cell("seed: int = 0  # of the draw\nb: str = 'x'  # text\nc: str = 'y'  # text\nd: list = []  # numbers\nrate: float = 0.5  # share", metadata={"tags": [tag]} if tag else {})
    notebook = nbformat.v4.new_notebook(cells=[first, *map(nbformat.v4.new_code_cell, cells)], metadata={"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}})
    nbformat.write(notebook, folder / "made.ipynb")
    return folder / "made.ipynb"


def test_J01_a_misspelt_parameter_is_refused_before_a_kernel_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(papermill, "execute_notebook", lambda *a, **k: pytest.fail("a kernel was started"))
    with pytest.raises(ValueError) as e: checked_parameters(made(tmp_path), {"typo_eps": 3})
    for w in ("typo_eps", "seed", "b", "c", "d", "rate"): assert w in str(e.value)
    with pytest.raises(ValueError, match="parameters"): checked_parameters(made(tmp_path, tag=None), {"seed": 3})
    done = command("reproduce", "table10b", "-p", "sede=1")
    assert done.exit_code == 2 and "sede" in done.stderr and "'seed'" in done.stderr


def test_J02_numpy_and_path_parameters_are_turned_or_named(tmp_path):
    notebook = made(tmp_path)
    found = checked_parameters(notebook, {"seed": np.int64(3), "b": Path("a"), "rate": np.float32(.25), "d": (np.int8(1), 2)})
    assert found == {"seed": 3, "b": "a", "rate": .25, "d": [1, 2]} and [type(v) for v in found.values()] == [int, str, float, list]
    for name, value in (("d", np.ones(3)), ("d", {1, 2}), ("seed", 3 + 0j), ("d", [np.ones(2)]), ("b", pd.Timestamp("2026-01-01"))):
        with pytest.raises(ValueError, match=repr(name)): checked_parameters(notebook, {name: value})


def test_J03_text_from_the_command_line_becomes_the_declared_type(tmp_path):
    found = checked_parameters(made(tmp_path), {"b": "0012", "d": "[1, 2]", "c": "None", "seed": "0", "rate": "1"})
    assert found == {"b": "0012", "d": [1, 2], "c": "None", "seed": 0, "rate": 1.} and type(found["rate"]) is float
    for name, text in (("seed", "0.5"), ("seed", "None"), ("d", "1"), ("rate", "x"), ("d", "[1")):
        with pytest.raises(ValueError, match=repr(name)): checked_parameters(made(tmp_path), {name: text})


@pytest.mark.parametrize("source,words", [("1 / 0", "ZeroDivisionError"), ("import sys; sys.exit(1)", "SystemExit"), ("import sys; sys.exit(0)", "SystemExit"), ("%nosuchmagic", "nosuchmagic")])
def test_J05_a_cell_that_stops_is_a_failure_with_notebook_and_cell(tmp_path, source, words):
    notebook = made(tmp_path, "print('so far')", source, "print('after')")
    with pytest.raises(RunFailed) as e: execute(notebook, {"seed": 1}, tmp_path / "runs/made.ipynb")
    for w in ("made.ipynb", "cell 2", words): assert w in str(e.value)
    copy = nbformat.read(tmp_path / "runs/made.ipynb", 4)
    said = [o for c in copy.cells for o in c.get("outputs", [])]
    assert any("so far" in o.get("text", "") for o in said) and not any(o.get("text", "").startswith("after") for o in said)
