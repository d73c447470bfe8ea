"Files in and out: both JSON layouts, wide tables, external files, and what is said of broken ones."
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from fairical_nb.files import json_text, read_json, replacing, write_json
from fairical_nb.scores import Scores
from fairical_nb.solutions import Solutions, a_posteriori

LAYOUT = {"scores": [[.1, .4, .35, .8], [.2, .3, .6, .9]], "identifiers": ["one", "two"], "ground-truth": [0, 1, 0, 1], "attributes": {"gender": ["f", "m", "m", "f"], "race": [0, 1, 1, 0]}}


def strict(text): return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))


def equal(a, b):
    assert list(a.models) == list(b.models) and list(a.attributes) == list(b.attributes)
    for k in a.models: assert a.models[k].tolist() == b.models[k].tolist()
    for k in a.attributes: assert a.attributes[k].tolist() == b.attributes[k].tolist()
    assert a.y_true.tolist() == b.y_true.tolist()


# Solutions

THRESHOLDS = st.floats(0, 1) | st.sampled_from([math.inf, -math.inf])
ROWS = st.lists(st.tuples(st.sampled_from(["ray-0", "ü \"quoted\"", "m,2", "inf"]), THRESHOLDS, st.floats(0, 1), st.floats(0, 1)), max_size=12)


@given(ROWS)
@settings(max_examples=60)
def test_solutions_come_back_bit_by_bit(rows):
    import tempfile
    from pathlib import Path
    frame = pd.DataFrame(rows, columns=["model", "threshold", "acc", "eod+a&b"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        Solutions(frame, tuple(frame["model"][:1])).save(path)
        obj = strict(path.read_text(encoding="utf-8"))
        back = Solutions.load(path)
    assert list(obj) == ["points", "metadata"] and list(obj["points"]) == ["acc", "eod+a&b"]
    assert all(type(i) is int for i in obj["metadata"]["identifiers"])
    assert [t for t in obj["metadata"]["thresholds"]] == [str(t) if math.isinf(t) else t for t in frame["threshold"]]
    assert back.frame["model"].tolist() == frame["model"].tolist()
    for c in ("threshold", "acc", "eod+a&b"): assert back.frame[c].tolist() == frame[c].tolist()
    assert back.metrics == ["acc", "eod+a&b"] and back.directions == ["max", "min"] and back.black_boxes == tuple(frame["model"][:1])


def test_the_layout_of_solutions(tmp_path):
    s = a_posteriori(Scores.from_dict(LAYOUT), ["eod+gender", "acc"])
    s.save(tmp_path / "s.json")
    obj = strict((tmp_path / "s.json").read_text())
    assert list(obj["points"]) == ["eod+gender", "acc"]
    assert obj["metadata"]["identifier-names"] == ["one", "two"] and obj["metadata"]["identifiers"] == [0] * 5 + [1] * 5
    assert obj["metadata"]["thresholds"] == [.1, .35, .4, .8, "inf", .2, .3, .6, .9, "inf"]
    assert "prior-solution-set" not in obj["metadata"]


@pytest.mark.parametrize("written", ['"inf"', "null", "Infinity", "1e999"])
def test_every_spelling_of_infinity_is_read(tmp_path, written):
    (tmp_path / "s.json").write_text('{"points": {"acc": [0.5, 0E-18], "dpd+g": [0, 1]}, "metadata": {"identifiers": [0.0, 0], "identifier-names": ["a"], "threholds": [%s, 0.5]}}' % written)
    s = Solutions.load(tmp_path / "s.json")
    assert s.frame["threshold"].tolist() == [math.inf, .5] and s.frame["acc"].tolist() == [.5, 0] and s.frame["model"].tolist() == ["a", "a"]


def test_names_default_to_numbers_and_numbers_are_names(tmp_path):
    obj = {"points": {"acc": [.5, .6], "dpd+g": [0, 1]}, "metadata": {"identifiers": [0, 1], "thresholds": [.1, .2]}}
    (tmp_path / "s.json").write_text(json.dumps(obj))
    assert Solutions.load(tmp_path / "s.json").models == ["model-0", "model-1"]
    obj["metadata"]["identifier-names"] = [7, 8]
    (tmp_path / "s.json").write_text(json.dumps(obj))
    assert Solutions.load(tmp_path / "s.json").models == ["7", "8"] # as Scores call them


def test_the_same_solutions_are_the_same_bytes(tmp_path):
    s = a_posteriori(Scores.from_dict(LAYOUT), ["acc", "eod+gender"])
    s.save(tmp_path / "a.json"); Solutions.load(tmp_path / "a.json").save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


GOOD = {"points": {"acc": [.5, .6], "dpd+g": [0, 1]}, "metadata": {"identifiers": [0, 1], "identifier-names": ["a", "b"], "thresholds": [.1, .2]}}


def changed(*path, to):
    obj = json.loads(json.dumps(GOOD)); place = obj
    for k in path[:-1]: place = place[k]
    if to is None: del place[path[-1]]
    else: place[path[-1]] = to
    return json.dumps(obj)


@pytest.mark.parametrize("text,words", [
    ("", ["empty"]), ('{"points": {"acc": [0.5', ["line 1", "column"]), ("[1, 2]", ["points"]), ('{"points": {}}', ["metadata"]), ("{}", ["points"]),
    (changed("points", "acc", to=[.5]), ["acc", "1", "2"]), (changed("points", "acc", to=[.5, "x"]), ["acc", "row 1", "x"]), (changed("points", "acc", to=[.5, float("nan")]), ["acc", "row 1", "nan"]),
    (changed("points", "acc", to=[.5, -.1]), ["acc", "row 1", "-0.1"]), (changed("points", "acc", to=[.5, 1 + 1e-9]), ["acc", "row 1", "1.000000001"]), (changed("points", "acc", to=[True, .5]), ["acc", "row 0"]),
    (changed("points", "accc", to=[.5, .5]), ["accc", "acc"]), (changed("points", to={}), ["metric"]),
    (changed("metadata", "identifiers", to=None), ["identifiers"]), (changed("metadata", "thresholds", to=None), ["thresholds"]),
    (changed("metadata", "identifiers", to=[0, .5]), ["identifiers", "row 1", "0.5"]), (changed("metadata", "identifiers", to=[0, 2]), ["identifier", "2"]), (changed("metadata", "identifiers", to=[0, -1]), ["identifier", "-1"]),
    (changed("metadata", "identifiers", to=[0, float("inf")]), ["identifiers", "row 1", "inf"]), (changed("metadata", "thresholds", to=[.1, "x"]), ["thresholds", "row 1", "x"]),
    (changed("metadata", "thresholds", to=[.1, float("nan")]), ["thresholds", "row 1", "nan"]), (changed("metadata", "thresholds", to=[.1]), ["thresholds", "1", "2"]), (changed("metadata", "identifier-names", to="ab"), ["identifier-names"])])
def test_broken_solutions_are_refused_in_one_line(tmp_path, text, words):
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(ValueError) as e: Solutions.load(tmp_path / "broken.json")
    for w in ["broken.json", *words]: assert w in str(e.value)
    assert "\n" not in str(e.value)


# Scores

TEXT = st.characters(codec="utf-8", exclude_characters="\0") # numpy's text columns do not tell a final NUL from none


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(
    st.dictionaries(st.text(TEXT, min_size=1, max_size=5), st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=1, max_size=3), st.lists(st.integers(0, 1), min_size=n, max_size=n),
    st.dictionaries(st.text(TEXT, max_size=5), st.lists(st.text(TEXT, max_size=4), min_size=n, max_size=n) | st.lists(st.integers(-5, 2**40), min_size=n, max_size=n) | st.lists(st.sampled_from([1, "1", "a", 0]), min_size=n, max_size=n), max_size=3))))
@settings(max_examples=60)
def test_scores_come_back_bit_by_bit(columns):
    import tempfile
    from pathlib import Path
    scores = Scores(*columns)
    with tempfile.TemporaryDirectory() as folder:
        scores.save(Path(folder) / "s.json")
        obj = strict((Path(folder) / "s.json").read_text(encoding="utf-8"))
        equal(Scores.load(Path(folder) / "s.json"), scores)
    assert obj["scores"] == list(columns[0].values()) and obj["identifiers"] == list(columns[0]) and obj["ground-truth"] == columns[1] and obj["attributes"] == columns[2]


def test_the_layout_of_scores_and_its_defaults():
    scores = Scores.from_dict({k: v for k, v in LAYOUT.items() if k != "identifiers"})
    assert list(scores.models) == ["model-0", "model-1"] and scores.models["model-1"].tolist() == LAYOUT["scores"][1]
    assert scores.n == 4 and scores.y_true.tolist() == [0, 1, 0, 1] and list(scores.attributes) == ["gender", "race"]
    assert list(Scores.from_dict(LAYOUT | {"identifiers": [1, 2]}).models) == ["1", "2"]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_wide_tables_come_back(tmp_path, ending):
    rng = np.random.default_rng(0)
    scores = Scores({"a": rng.random(50), "b": rng.random(50).round(2)}, rng.integers(0, 2, 50), {"gender": rng.choice(["f", "m"], 50), "race": rng.integers(0, 3, 50)})
    scores.save(tmp_path / f"s{ending}")
    equal(Scores.load(tmp_path / f"s{ending}"), scores)
    frame = scores.frame()
    assert list(frame) == ["y", "a", "b", "gender", "race"]
    equal(Scores.from_frame(frame), scores)
    equal(Scores.from_frame(frame.rename(columns={"y": "truth"}), y="truth", models=["a", "b"], attributes=["gender", "race"]), scores)


def test_weights_go_into_tables_and_not_into_json(tmp_path):
    scores = Scores({"m": [.1, .9]}, [0, 1], {"g": ["a", "b"]}, [.5, 2])
    with pytest.raises(ValueError, match="sample_weight"): scores.save(tmp_path / "s.json")
    assert not list(tmp_path.iterdir())
    scores.save(tmp_path / "s.csv")
    back = Scores.from_frame(pd.read_csv(tmp_path / "s.csv"), weight="weight")
    equal(back, scores)
    assert back.sample_weight.tolist() == [.5, 2]


@pytest.mark.parametrize("label", ["NA", "None", "null", "nan", "N/A"])
def test_labels_that_look_like_nothing_survive_a_csv_file(tmp_path, label):
    scores = Scores({"m": [.1, .9, .5]}, [0, 1, 1], {"country": [label, "US", label]})
    scores.save(tmp_path / "s.csv")
    equal(Scores.load(tmp_path / "s.csv"), scores)


def test_a_column_of_scores_with_a_word_in_it_is_no_attribute(tmp_path):
    "Silently leaving the model out would be worse than any message."
    (tmp_path / "s.csv").write_text("y,one,two,gender\n0,.1,.2,f\n1,.9,x,m\n1,.4,.5,f\n")
    with pytest.raises(ValueError) as e: Scores.load(tmp_path / "s.csv")
    for w in ("s.csv", "two", "row 1", "x"): assert w in str(e.value)


def test_external_files(tmp_path):
    (tmp_path / "parts").mkdir()
    for name, value in (("one", LAYOUT["scores"][0]), ("truth", LAYOUT["ground-truth"]), ("race", LAYOUT["attributes"]["race"]), ("all", LAYOUT["attributes"]), ("scores", LAYOUT["scores"])):
        (tmp_path / "parts" / f"{name}.json").write_text(json.dumps(value))
    mixed = LAYOUT | {"scores": ["parts/one.json", LAYOUT["scores"][1]], "ground-truth": "parts/truth.json", "attributes": {"gender": LAYOUT["attributes"]["gender"], "race": "parts/race.json"}}
    for name, obj in (("mixed", mixed), ("all", LAYOUT | {"attributes": "parts/all.json", "scores": "parts/scores.json"})):
        (tmp_path / f"{name}.json").write_text(json.dumps(obj))
        equal(Scores.load(tmp_path / f"{name}.json"), Scores.from_dict(LAYOUT))
    equal(Scores.from_dict(mixed, base=tmp_path), Scores.from_dict(LAYOUT))


@pytest.mark.parametrize("content,words", [("[0.1, 0.2, 0.3, 7]", ["row 3", "7"]), ("[0.1, 0.2]", ["4", "2"]), ("[0.1, 0.2", ["part.json", "line 1"]), ("", ["part.json", "empty"]), ("{}", ["part.json", "list"]), (None, ["part.json", "no such file"]), ('["x", 0, 0, 0]', ["row 0", "'x'"])])
def test_external_files_are_checked_like_inline_lists(tmp_path, content, words):
    (tmp_path / "main.json").write_text(json.dumps(LAYOUT | {"scores": [LAYOUT["scores"][0], "part.json"]}))
    if content is not None: (tmp_path / "part.json").write_text(content)
    with pytest.raises((ValueError, FileNotFoundError)) as e: Scores.load(tmp_path / "main.json")
    for w in ["main.json", *words]: assert w in str(e.value)


@pytest.mark.parametrize("change,words", [
    ({"scores": []}, ["model"]), ({"scores": 5}, ["scores", "list"]), ({"scores": [[.1, .2, .3, None], LAYOUT["scores"][1]]}, ["one", "row 3"]), ({"scores": [[.1, .2, .3, 10**400], LAYOUT["scores"][1]]}, ["one", "row 3"]), ({"scores": [[[.1]] * 4, LAYOUT["scores"][1]]}, ["one"]),
    ({"ground-truth": [0, 1, 0]}, ["ground-truth", "3", "4"]), ({"ground-truth": [0, 1, 2, 1]}, ["ground-truth", "row 2", "2"]), ({"ground-truth": [0, 1, None, 1]}, ["ground-truth", "row 2"]), ({"ground-truth": [[0], [1], [0], [1]]}, ["ground-truth", "row 0"]),
    ({"ground-truth": [0, 1, .5, 1]}, ["ground-truth", "row 2", "0.5"]), ({"ground-truth": "absent.json"}, ["ground-truth", "absent.json"]),
    ({"attributes": {"gender": ["f", "m"]}}, ["gender", "4", "2"]), ({"attributes": {"gender": [["f"]] * 4}}, ["gender", "row 0"]), ({"attributes": {"gender": [{}, "f", "f", "m"]}}, ["gender", "row 0"]), ({"attributes": [1]}, ["attributes"]), ({"attributes": {"gender": 5}}, ["gender", "list"]),
    ({"identifiers": ["a"]}, ["identifiers", "2", "1"]), ({"identifiers": ["a", "a"]}, ["identifiers", "'a'"]), ({"identifiers": 5}, ["identifiers"]), ({"identifiers": ["a", ["b"]]}, ["identifiers", "b"])])
def test_broken_scores_are_refused_in_one_line(tmp_path, change, words):
    (tmp_path / "broken.json").write_text(json.dumps(LAYOUT | change))
    with pytest.raises((ValueError, FileNotFoundError)) as e: Scores.load(tmp_path / "broken.json")
    for w in ["broken.json", *words]: assert w in str(e.value), str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("field", ["scores", "ground-truth", "attributes"])
def test_an_absent_field_is_named(tmp_path, field):
    (tmp_path / "broken.json").write_text(json.dumps({k: v for k, v in LAYOUT.items() if k != field}))
    with pytest.raises(ValueError, match=f"broken.json.*{field}"): Scores.load(tmp_path / "broken.json")


# Columns in memory

def test_no_attribute_or_model_is_lost_to_a_name():
    for models, attributes in (({"m": [.1, .2]}, {1: ["a", "b"], "1": ["c", "d"]}), ({1: [.1, .2], "1": [.3, .4]}, {})):
        with pytest.raises(ValueError, match="1"): Scores(models, [0, 1], attributes)


def test_missing_labels_by_each_policy_keep_kinds_apart():
    column, y, s = ["a", 1, "1", 1, None], [0, 1, 0, 1, 1], [.1, .4, .3, .8, .5]
    dropped = Scores({"m": s}, y, {"g": column}, missing="drop")
    assert dropped.attributes["g"].tolist() == ["a", 1, "1", 1] and dropped.n == 4 and dropped.dropped == 1 and dropped.y_true.tolist() == y[:4]
    assert Scores({"m": s}, y, {"g": column}, missing="group").attributes["g"].tolist()[:4] == column[:4]
    assert Scores({"m": s}, y, {"g": [1, "1", "a", 1, None]}, missing="drop").attributes["g"].tolist() == [1, "1", "a", 1]
    two = Scores({"m": s}, y, {"g": column, "r": [None, 2, 3, 2, 3]}, missing="drop", sample_weight=[1, 2, 3, 4, 5])
    assert two.n == 3 and two.sample_weight.tolist() == [2, 3, 4] and two.attributes["r"].tolist() == [2, 3, 2]


def test_a_group_of_the_missing_is_no_other_group():
    try: groups = Scores({"m": [.1, .2, .3]}, [0, 1, 1], {"g": ["missing", "a", None]}, missing="group").attributes["g"].tolist()
    except ValueError as e: assert "missing" in str(e)
    else: assert len(set(groups)) == 3


def test_truth_labels():
    assert Scores({"m": [.1, .2]}, ["no", "yes"], {}, positive_label="yes").y_true.tolist() == [0, 1]
    assert Scores({"m": [.1, .2]}, [0, 1], {}, positive_label=0).y_true.tolist() == [1, 0]
    assert Scores({"m": [.1, .2]}, [1, 2], {}, positive_label=2).y_true.tolist() == [0, 1]
    for y in ([0., 1.], [False, True], np.array([0, 1], dtype=np.int8), pd.Series([0, 1], dtype="boolean"), pd.Categorical([0, 1])): assert Scores({"m": [.1, .2]}, y, {}).y_true.tolist() == [0, 1]
    for y, words in ((["no", "yes"], ["positive_label"]), ([0, 1, 2], ["2"]), ([0, np.nan], ["row 1"])):
        with pytest.raises(ValueError) as e: Scores({"m": [.1] * len(y)}, y, {})
        for w in ["y_true", *words]: assert w in str(e.value)


@pytest.mark.parametrize("columns,words", [
    (dict(y_true=[[0], [1]]), ["y_true"]), (dict(attributes={"g": np.array([["a"], ["b"]])}), ["'g'", "(2, 1)"]), (dict(models={"m": [[.1], [.2]]}), ["'m'", "(2, 1)"]), (dict(models={}), ["model"]), (dict(y_true=[], models={"m": []}), ["y_true"])])
def test_other_shapes_are_refused_by_name(columns, words):
    with pytest.raises(ValueError) as e: Scores(**{**dict(models={"m": [.1, .2]}, y_true=[0, 1], attributes={}), **columns})
    for w in words: assert w in str(e.value)


def test_columns_are_copies_and_closed():
    s = np.array([.1, .2]); scores = Scores({"m": s}, [0, 1], {})
    s[0] = .9
    assert scores.models["m"].tolist() == [.1, .2]
    with pytest.raises(ValueError): scores.models["m"][0] = .5
    with pytest.raises(ValueError): scores.y_true[0] = 1


# JSON and the replacing of files

@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(), x, max_size=4), max_leaves=12))
@settings(max_examples=60)
def test_json_text_is_json(obj):
    assert strict(json_text(obj)) == obj


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_word_for_is_refused_before_anything_is_written(tmp_path, value):
    (tmp_path / "a.json").write_text("old")
    with pytest.raises(ValueError): write_json(tmp_path / "a.json", {"x": [1, {"y": value}]})
    assert [f.name for f in tmp_path.iterdir()] == ["a.json"] and (tmp_path / "a.json").read_text() == "old"


def test_read_json_says_what_is_wrong(tmp_path):
    for text, words in (("", ["empty"]), ("  \n", ["empty"]), ('{"a": 1', ["line 1"]), ('{\n"a": x}', ["line 2"]), (None, ["folder"])):
        path = tmp_path / "x.json"
        if text is None: path.unlink(); path.mkdir()
        else: path.write_text(text)
        with pytest.raises(ValueError) as e: read_json(path)
        for w in ["x.json", *words]: assert w in str(e.value)
    (tmp_path / "l.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError, match="l.json.*UTF-8"): read_json(tmp_path / "l.json")
    with pytest.raises(FileNotFoundError, match="none.json"): read_json(tmp_path / "none.json")


def test_replacing_keeps_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "new" / "t.txt"
    def write(text, fail=False, **options):
        with replacing(path, **options) as part:
            part.write_text(text)
            assert part.parent == path.parent and part.suffix == path.suffix
            assert not path.exists() or path.read_text() != text
            if fail: raise KeyboardInterrupt
    write("one"); write("two")
    assert (path.read_text(), path.with_name("t.txt~").read_text()) == ("two", "one")
    with pytest.raises(KeyboardInterrupt): write("three", fail=True)
    assert (path.read_text(), path.with_name("t.txt~").read_text()) == ("two", "one") and len(list(path.parent.iterdir())) == 2
    with replacing(path) as part: part.write_text("two")
    assert path.with_name("t.txt~").read_text() == "one" # the same again is no news
    write("four", backup=False)
    assert (path.read_text(), path.with_name("t.txt~").read_text()) == ("four", "one")
