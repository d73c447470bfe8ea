"The commands solve, evaluate and pareto: every option, and what is said of bad input."
import copy
import json
import math
import os
import re
import subprocess
import sys

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fairical_nb.cli import main
from fairical_nb.indicators import compare
from fairical_nb.scores import Scores
from fairical_nb.solutions import Solutions, a_posteriori, a_priori

FIRST = {"scores": [[.1, .4, .45, .8, .3, .2], [.2, .3, .6, .9, .5, .5]], "identifiers": ["one", "two"], "ground-truth": [0, 1, 0, 1, 1, 0],
         "attributes": {"gender": ["f", "m", "m", "f", "m", "f"], "race": ["x", "y", "y", "y", "x", "x"]}}
SECOND = FIRST | {"scores": [[.3, .1, .55, .7, .65, .25], [.9, .3, .2, .8, .4, .6]]}


def strict(text): return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, obj in (("first", FIRST), ("second", SECOND)): (tmp_path / f"{name}.json").write_text(json.dumps(obj))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args): return CliRunner().invoke(main, [str(a) for a in args])


def good(*args):
    "Run a command that must succeed; a traceback is shown."
    done = run(*args)
    if done.exception and not isinstance(done.exception, SystemExit): raise done.exception
    assert done.exit_code == 0, done.output
    return done


def files(folder): return {str(f.relative_to(folder)): f.read_bytes() if f.is_file() else None for f in folder.rglob("*")}


def bad(folder, *args, status=2):
    "Run a command that must fail: one line on standard error, nothing on standard output, nothing changed on disk."
    before = files(folder)
    done = run(*args)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == status
    assert done.stdout == "" and re.fullmatch(r"Error: .+\n", done.stderr), done.stderr
    assert files(folder) == before
    return done.stderr.strip()


def points(path): return Solutions.load(path).frame


def same(path, solutions): pd.testing.assert_frame_equal(points(path), solutions.frame, check_dtype=False)


# solve

def test_solve_by_default(folder):
    done = good("solve", "first.json", "-o", "out")
    assert done.stdout == "" and done.stderr.count("\n") == 1 and "first.json: Solutions: " in done.stderr
    assert list(files(folder / "out")) == ["first.json"]
    same("out/first.json", a_posteriori(Scores.from_dict(FIRST), ["acc", "eod+gender"]).deduplicate())
    assert strict((folder / "out/first.json").read_text())["metadata"]["identifier-names"] == ["one", "two"]


def test_metrics_are_axes_in_the_order_given(folder):
    good("solve", "first.json", "-m", "eod+gender&race", "--metric", "f1", "-m", "minmaxr+acc+race", "-o", "out", "--nan", "drop")
    assert list(strict((folder / "out/first.json").read_text())["points"]) == ["eod+gender&race", "f1", "minmaxr+acc+race"]


@pytest.mark.parametrize("n", [2, 11])
def test_equally_spaced_thresholds(folder, n):
    good("solve", "first.json", "-T", n, "-D", "-o", "out")
    assert points("out/first.json")["threshold"].tolist() == [*np.linspace(0, 1, n)] * 2


@pytest.mark.parametrize("options,change", [(["-D"], None), (["--no-deduplicate"], None), (["-d"], {}), (["--eps", ".3"], dict(eps=.3)), (["--eps", ".3", "--dedup-method", "greedy"], dict(eps=.3, method="greedy"))])
def test_deduplication(folder, options, change):
    good("solve", "first.json", *options, "-o", "out")
    want = a_posteriori(Scores.from_dict(FIRST), ["acc", "eod+gender"])
    same("out/first.json", want if change is None else want.deduplicate(**change))


def test_several_systems_and_a_folder_that_is_made(folder):
    good("solve", "first.json", "second.json", "-o", "deep/er/out")
    assert set(files(folder / "deep/er/out")) == {"first.json", "second.json"}
    same("deep/er/out/second.json", a_posteriori(Scores.from_dict(SECOND), ["acc", "eod+gender"]).deduplicate())


def test_without_o_the_current_folder(folder):
    (folder / "here").mkdir(); os.chdir("here")
    good("solve", "../first.json")
    assert list(files(folder / "here")) == ["first.json"]


@pytest.mark.parametrize("options,which,word", [([], "all", "all"), (["--nds"], "nondominated", "non-dominated"), (["--ds"], "dominated", "dominated")])
def test_a_priori(folder, options, which, word):
    good("solve", "first.json", "-m", "acc", "-m", "dpd+race", "-o", "prior")
    good("solve", "second.json@prior/first.json", *options, "-o", "out")
    obj = strict((folder / "out/second@first.json").read_text())
    assert obj["metadata"]["prior-solution-set"] == word and obj["metadata"]["prior-solution-from"] == "prior/first.json"
    assert list(obj["points"]) == ["acc", "dpd+race"]
    same("out/second@first.json", a_priori(Scores.from_dict(SECOND), Solutions.load("prior/first.json"), which=which).deduplicate())


def test_a_prior_does_not_change_the_metrics_of_the_next_system(folder):
    good("solve", "first.json", "-m", "acc", "-m", "dpd+race", "-o", "prior")
    good("solve", "second.json@prior/first.json", "first.json", "-o", "out")
    assert Solutions.load("out/first.json").metrics == ["acc", "eod+gender"] and Solutions.load("out/second@first.json").metrics == ["acc", "dpd+race"]


def test_models_are_matched_by_name_not_by_position(folder):
    good("solve", "first.json", "-o", "prior")
    (folder / "turned.json").write_text(json.dumps(SECOND | {"scores": SECOND["scores"][::-1], "identifiers": ["two", "one"]}))
    good("solve", "second.json@prior/first.json", "turned.json@prior/first.json", "-o", "out")
    assert points("out/second@first.json").equals(points("out/turned@first.json"))


def test_undefined_and_nan(folder):
    odd = FIRST | {"ground-truth": [0, 1, 0, 0, 1, 0]}
    (folder / "odd.json").write_text(json.dumps(odd))
    said = bad(folder, "solve", "odd.json", "-o", "out")
    for word in ("odd.json", "eod+gender", "one", "0.1", "nan"): assert word in said
    for policy in ("zero", "fairical"):
        good("solve", "odd.json", "--undefined", policy, "-o", "out")
        same("out/odd.json", a_posteriori(Scores.from_dict(odd), ["acc", "eod+gender"], undefined=policy).deduplicate())
    done = good("solve", "odd.json", "--nan", "drop", "-m", "acc", "-m", "minmaxd+prec+gender", "-o", "out")
    with pytest.warns(UserWarning): want = a_posteriori(Scores.from_dict(odd), ["acc", "minmaxd+prec+gender"], nan="drop")
    same("out/odd.json", want.deduplicate())
    assert str(want.dropped["undefined"]) in done.stderr and "minmaxd+prec+gender" in done.stderr and done.stdout == ""


def test_missing_labels(folder):
    (folder / "gaps.json").write_text(json.dumps(FIRST | {"attributes": {"gender": ["f", None, "m", "f", "m", "m"]}}))
    said = bad(folder, "solve", "gaps.json", "-o", "out")
    for word in ("gaps.json", "gender", "row 1", "1 missing"): assert word in said
    good("solve", "gaps.json", "--missing", "drop", "-m", "acc", "-m", "dpd+gender", "-o", "out")
    keep = [0, 2, 3, 4, 5]
    kept = {"scores": [[s[i] for i in keep] for s in FIRST["scores"]], "identifiers": FIRST["identifiers"], "ground-truth": [FIRST["ground-truth"][i] for i in keep], "attributes": {"gender": ["f", "m", "f", "m", "m"]}}
    same("out/gaps.json", a_posteriori(Scores.from_dict(kept), ["acc", "dpd+gender"]).deduplicate())
    done = good("solve", "gaps.json", "--missing", "group", "-m", "acc", "-m", "dpd+gender", "-o", "out", "-v")
    assert re.search(r"gender\s+missing\s+1", done.stderr)


def test_positive_label_as_text_and_as_number(folder):
    for labels, label in ((["no", "yes"], "yes"), ([2, 1], "1")):
        (folder / "words.json").write_text(json.dumps(FIRST | {"ground-truth": [labels[v] for v in FIRST["ground-truth"]]}))
        said = bad(folder, "solve", "words.json", "-o", "out")
        for word in ("words.json", "ground-truth", str(labels[0]), str(labels[1])): assert word in said
        good("solve", "words.json", "--positive-label", label, "-o", "out")
        same("out/words.json", a_posteriori(Scores.from_dict(FIRST), ["acc", "eod+gender"]).deduplicate())
        (folder / "out/words.json").unlink(); (folder / "out").rmdir()


def test_black_box_and_white_box(folder):
    (folder / "box.json").write_text(json.dumps(FIRST | {"scores": [[0, 1, 0, 1, 1, 0], FIRST["scores"][1]]}))
    for options, count in (([], [1, 6]), (["--black-box"], [1, 1]), (["--white-box"], [3, 6])):
        good("solve", "box.json", "-D", *options, "-o", "out")
        assert points("out/box.json")["model"].value_counts(sort=False).tolist() == count
    good("solve", "box.json", "-D", "-o", "out")
    assert points("out/box.json")["threshold"].tolist()[0] == .5


def test_one_sided_metrics_only_on_request(folder):
    said = bad(folder, "solve", "first.json", "-m", "fpr", "-m", "eod+gender", "-o", "out")
    assert "fpr" in said and "negatives" in said
    bad(folder, "solve", "first.json", "-m", "tpr", "-m", "rec", "-m", "dpd+gender", "-o", "out")
    good("solve", "first.json", "-m", "fpr", "-m", "tpr", "-m", "dpd+gender", "-o", "out")
    good("solve", "first.json", "-m", "fpr", "-m", "eod+gender", "--allow-one-sided", "-o", "out")
    assert Solutions.load("out/first.json").metrics == ["fpr", "eod+gender"]


def test_verbose_goes_to_standard_error_with_group_sizes(folder):
    quiet, said, more = (good("solve", "first.json", *v, "-o", f"out{len(v)}") for v in ([], ["-v"], ["-vv"]))
    assert quiet.stderr.count("\n") == 1 and "gender" in quiet.stderr and "base_rate" not in quiet.stderr and said.stdout == more.stdout == ""
    assert "first.json" in said.stderr and re.search(r"gender\s+f\s+3\s+0\.333", said.stderr) and "race" not in said.stderr
    assert len(more.stderr) > len(said.stderr) and "6 samples" in more.stderr


@pytest.mark.parametrize("kind", ["minmaxd", "minmaxr"])
@pytest.mark.parametrize("util,mixed", [("prec", True), ("f1", True), ("acc", True), ("avg_prec", True), ("tpr", False), ("fpr", False), ("tnr", False), ("bal_acc", False), ("roc_auc", False)])
def test_a_gap_that_base_rates_alone_can_make_has_them_beside_it(folder, kind, util, mixed):
    said = good("solve", "first.json", "-m", "acc", "-m", f"{kind}+{util}+gender", "-m", "dpd+race", "-o", "out", "--undefined", "zero").stderr
    assert (f"{kind}+{util}+gender: these rates depend on the groups' base rates" in said) == mixed
    assert bool(re.search(r"gender\s+f\s+3\s+0\.333", said)) == mixed and not re.search(r"race\s+\S+\s+\d", said) # n and base rate, of that attribute


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_wide_tables(folder, ending):
    scores = Scores.from_dict(FIRST)
    scores.save(folder / f"wide{ending}")
    good("solve", f"wide{ending}", "-m", "acc", "-m", "dpd+gender", "-o", "out")
    same("out/wide.json", a_posteriori(scores, ["acc", "dpd+gender"]).deduplicate())


def test_names_with_dots_and_at_signs(folder):
    for name in ("a.b.json", "me@home.json"): (folder / name).write_text(json.dumps(FIRST))
    good("solve", "a.b.json", "me@home.json", "-o", "out")
    assert set(files(folder / "out")) == {"a.b.json", "me@home.json"}
    good("solve", "a.b.json@out/a.b.json", "-o", "out")
    assert "a.b@a.b.json" in files(folder / "out")


def test_an_overwritten_file_keeps_a_backup(folder):
    good("solve", "first.json", "-o", "out")
    old = (folder / "out/first.json").read_bytes()
    good("solve", "first.json", "-o", "out")
    assert set(files(folder / "out")) == {"first.json"} # the same again is no news
    good("solve", "first.json", "-T", "3", "-o", "out")
    assert set(files(folder / "out")) == {"first.json", "first.json~"}
    assert (folder / "out/first.json~").read_bytes() == old and (folder / "out/first.json").read_bytes() != old


def test_two_runs_give_the_same_bytes(folder):
    for out in ("a", "b"): good("solve", "first.json", "-o", out)
    assert (folder / "a/first.json").read_bytes() == (folder / "b/first.json").read_bytes()


# Bad input to solve: file, field and row in one line

CASES = {
    "short truth": (FIRST | {"ground-truth": [0, 1, 0]}, ["ground-truth", "3", "6"]), "short scores": (FIRST | {"scores": [[.1, .2], FIRST["scores"][1]]}, ["one", "2", "6"]),
    "short attribute": (FIRST | {"attributes": {"gender": ["f", "m"]}}, ["gender", "2", "6"]), "long attribute": (FIRST | {"attributes": {"gender": ["f", "m"] * 4}}, ["gender", "8", "6"]),
    "above one": (FIRST | {"scores": [[.1, 1.4, .3, .4, .5, .6], FIRST["scores"][1]]}, ["one", "row 1", "1.4"]), "below zero": (FIRST | {"scores": [FIRST["scores"][0], [-.1, .4, .3, .4, .5, -6]]}, ["two", "rows 0, 5", "-0.1"]),
    "NaN": (FIRST | {"scores": [[.1, math.nan, .3, .4, .5, .6], FIRST["scores"][1]]}, ["one", "row 1", "nan"]), "null": (FIRST | {"scores": [[.1, None, .3, .4, .5, .6], FIRST["scores"][1]]}, ["one", "row 1"]),
    "word": (FIRST | {"scores": [[.1, "high", .3, .4, .5, .6], FIRST["scores"][1]]}, ["one", "row 1", "high"]), "infinite": (FIRST | {"scores": [[.1, math.inf, .3, .4, .5, .6], FIRST["scores"][1]]}, ["one", "row 1", "inf"]),
    "label two": (FIRST | {"ground-truth": [0, 1, 2, 1, 1, 0]}, ["ground-truth", "row 2", "2"]), "label half": (FIRST | {"ground-truth": [0, 1, .5, 1, 1, 0]}, ["ground-truth", "row 2", "0.5"]), "label minus": (FIRST | {"ground-truth": [-1, 1, -1, 1, 1, -1]}, ["ground-truth", "-1"]),
    "label words": (FIRST | {"ground-truth": ["no", "yes", "no", "yes", "yes", "no"]}, ["ground-truth", "yes", "positive"]), "label null": (FIRST | {"ground-truth": [0, 1, None, 1, 1, 0]}, ["ground-truth", "row 2"]),
    "absent attribute": (FIRST | {"attributes": {"race": FIRST["attributes"]["race"]}}, ["eod+gender", "gender", "race"]), "absent field": ({k: v for k, v in FIRST.items() if k != "attributes"}, ["attributes"]), "other spelling": ({("ground_truth" if k == "ground-truth" else k): v for k, v in FIRST.items()}, ["ground-truth", "ground_truth"]),
    "one group": (FIRST | {"attributes": {"gender": ["f"] * 6}}, ["gender", "'f'", "one group"]), "list": ([1, 2], ["object", "list"]), "no models": (FIRST | {"scores": []}, ["model"]), "no samples": (FIRST | {"scores": [[], []], "ground-truth": [], "attributes": {"gender": []}}, ["empty"]),
    "same names": (FIRST | {"identifiers": ["a", "a"]}, ["identifiers", "'a'"]), "too few names": (FIRST | {"identifiers": ["a"]}, ["identifiers", "1", "2"]), "absent part": (FIRST | {"scores": ["part.json", FIRST["scores"][1]]}, ["part.json"]),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_scores_are_one_line_with_file_field_and_row(folder, case):
    obj, words = CASES[case]
    (folder / "broken.json").write_text(json.dumps(obj))
    said = bad(folder, "solve", "broken.json", "-o", "out")
    for word in ["broken.json", *words]: assert word in said, said


@pytest.mark.parametrize("case", CASES)
def test_a_good_system_beside_a_bad_one_is_not_written_either(folder, case):
    good("solve", "first.json", "-T", "3", "-o", "out")
    (folder / "broken.json").write_text(json.dumps(CASES[case][0]))
    for order in (["first.json", "broken.json"], ["broken.json", "first.json"]): bad(folder, "solve", *order, "-o", "out")


@pytest.mark.parametrize("text,words", [("", ["empty"]), ("   \n ", ["empty"]), (json.dumps(FIRST)[:60], ["line 1", "column"]), ('{"scores": [[0.1, 0.2]], "ground-truth"', ["line 1"]), ("scores: 1", ["line 1"]), ("\x00\x01", ["line 1"])])
def test_empty_and_cut_files(folder, text, words):
    (folder / "broken.json").write_text(text)
    for command in (["solve", "broken.json", "-o", "out"], ["solve", "first.json@broken.json", "-o", "out"], ["evaluate", "broken.json"], ["pareto", "broken.json"]):
        said = bad(folder, *command)
        for word in ["broken.json", *words]: assert word in said


def test_absent_files_and_folders_in_their_place(folder):
    (folder / "dir.json").mkdir()
    for command in (["solve", "{}", "-o", "out"], ["solve", "first.json@{}", "-o", "out"], ["evaluate", "{}"], ["pareto", "{}"]):
        assert "none.json: no such file" in bad(folder, *[c.format("none.json") for c in command])
        assert "dir.json" in bad(folder, *[c.format("dir.json") for c in command])
    assert "none.csv" in bad(folder, "solve", "none.csv", "-o", "out") and "first.txt" in bad(folder, "solve", "first.txt", "-o", "out")


def test_not_text(folder):
    (folder / "broken.json").write_bytes(b'{"scores": "\xff\xfe"}')
    assert "broken.json" in bad(folder, "solve", "broken.json", "-o", "out")
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    assert "broken.parquet" in bad(folder, "solve", "broken.parquet", "-o", "out")


@pytest.mark.parametrize("text,words", [("y,m,gender\n0,.1,f\n1,1.9,m\n", ["'m'", "row 1", "1.9"]), ("y,m,gender\n0,.1,f\n1,,m\n", ["'m'", "row 1"]), ("y,m,gender\n0,.1,f\n1,x,m\n", ["m", "row 1", "x"]), ("y,m,gender\n0,.1,f\n1,.9,\n", ["gender", "row 1"]),
                                        ("y,m,gender\n0,.1,f\n2,.9,m\n1,.5,m\n", ["row 1", "2"]), ("t,m,gender\n0,.1,f\n1,.9,m\n", ["'y'", "t"]), ("y,m,race\n0,.1,f\n1,.9,m\n", ["gender", "race"]), ("y,m,gender\n0,.1\n1,.9,m,4,5\n", ["line 3"]), ("", ["empty"]), ("y,m,gender\n", ["empty"])])
def test_bad_tables(folder, text, words):
    (folder / "broken.csv").write_text(text)
    said = bad(folder, "solve", "broken.csv", "-m", "acc", "-m", "dpd+gender", "-o", "out")
    for word in ["broken.csv", *words]: assert word in said, said


def test_two_inputs_of_one_name(folder):
    (folder / "other").mkdir(); (folder / "other/first.json").write_text(json.dumps(SECOND))
    assert "first" in bad(folder, "solve", "first.json", "other/first.json", "-o", "out")
    assert "first" in bad(folder, "solve", "first.json", "first.json", "-o", "out")
    good("solve", "first.json", "-o", "out"); good("solve", "other/first.json", "-o", "out2")
    for command in ("evaluate", "pareto"):
        assert "first" in bad(folder, command, "out/first.json", "out2/first.json")
        bad(folder, command, "out/first.json", "out/first.json")
    Scores.from_dict(FIRST).save(folder / "first.csv")
    assert "first.json" in bad(folder, "solve", "first.json", "first.csv", "-o", "out3")


def test_places_that_cannot_be_written(folder):
    good("solve", "first.json", "second.json", "-o", "out")
    (folder / "file").write_text("a file")
    assert "file" in bad(folder, "solve", "first.json", "-o", "file")
    assert "file" in bad(folder, "solve", "first.json", "-o", "file/deeper")
    (folder / "taken/second.json").mkdir(parents=True)
    said = bad(folder, "solve", "first.json", "second.json", "-o", "taken")
    assert "taken/second.json" in said
    assert "file" in bad(folder, "evaluate", "out/first.json", "-r", "file/radar.png")
    assert "file" in bad(folder, "pareto", "out/first.json", "-p", "-o", "file")


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root writes everywhere")
def test_a_folder_without_permission(folder):
    (folder / "closed").mkdir(mode=0o555)
    assert "closed" in bad(folder, "solve", "first.json", "-o", "closed")
    assert "closed" in bad(folder, "solve", "first.json", "-o", "closed/deeper")


def test_a_disk_that_fills_up_leaves_what_was_there(folder, monkeypatch):
    "The second of two files cannot be written to its end."
    from pathlib import Path
    good("solve", "first.json", "second.json", "-T", "3", "-o", "out")
    write = Path.write_text
    def full(self, text, *args, **options):
        if "second" not in self.name: return write(self, text, *args, **options)
        write(self, text[:20], *args, **options)
        raise OSError(28, "No space left on device", str(self))
    monkeypatch.setattr(Path, "write_text", full)
    assert "No space left" in bad(folder, "solve", "first.json", "second.json", "-o", "out")


def test_a_result_never_replaces_an_input(folder):
    assert "first.json" in bad(folder, "solve", "first.json", "-o", ".")
    for absent in ("none.json", "first.json@none.json", "none.json@first.json"): assert "none.json: no such file" in bad(folder, "solve", absent, "-o", ".")
    good("solve", "first.json", "-o", "out")
    assert "out" in bad(folder, "solve", "second.json@out/first.json", "first.json", "-o", "out") # the prior would be lost


@pytest.mark.parametrize("metrics,words", [(["accc", "eod+gender"], ["accc", "'acc'"]), (["acc", "eodd+gender"], ["eodd", "'eod'"]), (["acc", "epd+gender"], ["epd", "'dpd'"]), (["ACC", "eod+gender"], ["ACC", "'acc'"]), (["acc", "minmaxd+precc+gender"], ["precc", "'prec'"]), (["acc", "eod"], ["eod", "attribute"]),
                                           (["acc+gender", "acc"], ["minmaxd+acc+gender"]), (["acc"], ["two"]), (["acc", "acc"], ["acc", "twice"]), (["acc", "eod+age"], ["age", "gender", "race"]), (["acc", "eod+gender&age"], ["age"]), (["acc", ""], ["metric"])])
def test_unknown_metrics_and_attributes(folder, metrics, words):
    said = bad(folder, "solve", "first.json", *[x for m in metrics for x in ("-m", m)], "-o", "out")
    for word in words: assert word in said


def test_a_prior_that_does_not_fit(folder):
    good("solve", "first.json", "-o", "prior")
    (folder / "other.json").write_text(json.dumps(SECOND | {"identifiers": ["one", "three"]}))
    said = bad(folder, "solve", "other.json@prior/first.json", "-o", "out")
    for word in ("other.json", "prior/first.json", "'two'", "three", "by name"): assert word in said
    (folder / "other.json").write_text(json.dumps(SECOND | {"attributes": {"race": SECOND["attributes"]["race"]}}))
    assert "gender" in bad(folder, "solve", "other.json@prior/first.json", "-o", "out")
    assert "second.json" in bad(folder, "solve", "first.json@second.json", "-o", "out")
    bad(folder, "solve", "first.json@", "-o", "out"); bad(folder, "solve", "@prior/first.json", "-o", "out")


# evaluate

@pytest.fixture
def solved(folder):
    "Both systems with all their operating points, copies included."
    good("solve", "first.json", "second.json", "-D", "-o", "s")
    return {n: Solutions.load(f"s/{n}.json") for n in ("first", "second")}


def evaluated(*options): return strict(good("evaluate", "s/first.json", "s/second.json", "-t", "json", *options).stdout)


def agree(found, table):
    assert list(found["systems"]) == list(table.index)
    for s, row in found["systems"].items():
        assert list(row) == list(table.columns)
        for k, v in row.items(): assert v is None if math.isnan(table.at[s, k]) else v == pytest.approx(table.at[s, k], abs=1e-15)


WAYS = ["max", "min"]
OPTIONS = [([], {}), (["-D"], dict(dedup_eps=None)), (["--eps", ".2"], dict(dedup_eps=.2)), (["--eps", ".2", "--dedup-method", "greedy"], dict(dedup_eps=.2, dedup_method="greedy")), (["--nadir", "1.1"], dict(nadir=1.1)), (["--nadir", "1.1,1.2", "--ideal", "-1"], dict(nadir=[1.1, 1.2], ideal=-1)),
           (["--sigma", ".7"], dict(sigma=.7)), (["--axis", "HV", "--axis", "AS", "--axis", "OS"], dict(axes=["HV", "AS", "OS"])), (["--weight", "HV=2", "--weight", "UD=0.5"], dict(weights={"HV": 2, "UD": .5})),
           (["--leave-out", "UD", "--leave-out", "AS"], dict(leave_out=["UD", "AS"])), (["--leave-out", "uninformative"], dict(leave_out=["uninformative"]))]


@pytest.mark.parametrize("options,same_in_python", OPTIONS, ids=[" ".join(o) or "none" for o, _ in OPTIONS])
def test_evaluate_is_compare(solved, options, same_in_python):
    found, table = evaluated(*options), compare(solved, WAYS, **same_in_python)
    agree(found, table)
    assert (found["systems"] != evaluated()["systems"]) == bool(options and "uninformative" not in options) # the option does something
    assert found["axes"] == table.attrs["axes"]


def test_the_settings_are_in_the_json(solved):
    settings = evaluated("--nadir", "0", "--ideal", "-1", "--sigma", ".5")["settings"]
    assert (settings["nadir"], settings["ideal"], settings["sigma"], settings["eps"], settings["metrics"], settings["directions"]) == (0, -1, .5, 1e-6, ["acc", "eod+gender"], WAYS)
    assert evaluated()["settings"]["nadir"] == 1 and evaluated("-D")["settings"]["eps"] is None


@pytest.mark.parametrize("fmt", ["text", "markdown", "latex", "html", "simple", "github", "pipe", "tsv", "latex_booktabs", "grid"])
def test_tables(solved, fmt):
    table = compare(solved, WAYS)
    for digits in (2, 4):
        text = good("evaluate", "s/first.json", "s/second.json", "-t", fmt, "--digits", digits).stdout
        for name in ("first", "second"):
            for column in ("HV", "ONVG_rel", "ONVGR", "area"): assert f"{table.at[name, column]:.{digits}f}" in text
    assert text.index("first") < text.index("second")


def test_the_default_table(solved):
    text = good("evaluate", "s/first.json", "s/second.json").stdout
    assert text.splitlines()[0].split() == ["system", "HV", "ONVG", "ONVG_rel", "ONVGR", "UD", "OS", "AS", "area"] and [line.split()[0] for line in text.splitlines()[2:4]] == ["first", "second"]


@pytest.mark.parametrize("ending,magic", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_radar(folder, solved, ending, magic):
    plain = good("evaluate", "s/first.json", "s/second.json").stdout
    done = good("evaluate", "s/first.json", "s/second.json", "-r", f"pic/radar.{ending}")
    content = (folder / f"pic/radar.{ending}").read_bytes()
    assert content.startswith(magic) and done.stdout == plain and list(files(folder / "pic")) == [f"radar.{ending}"]
    good("evaluate", "s/first.json", "s/second.json", "--radar", f"again.{ending}")
    assert (folder / f"again.{ending}").read_bytes() == content


def test_a_system_without_points_is_undefined_not_a_crash(folder, solved):
    obj = json.loads((folder / "s/first.json").read_text())
    obj["points"] = {k: [] for k in obj["points"]}; obj["metadata"] |= {"identifiers": [], "thresholds": [], "identifier-names": []}
    (folder / "s/nothing.json").write_text(json.dumps(obj))
    done = good("evaluate", "s/first.json", "s/nothing.json", "-t", "json", "-r", "radar.svg")
    row = strict(done.stdout)["systems"]["nothing"]
    assert row["HV"] == row["ONVG"] == 0 and row["UD"] is None and row["area"] is None and "nothing" in done.stderr
    assert "undefined" in good("evaluate", "s/first.json", "s/nothing.json").stdout
    assert "0 of 0" in good("pareto", "s/nothing.json", "-p").stdout


def test_one_front_point_is_marked(folder):
    obj = {"points": {"acc": [.9, .5], "dpd+g": [.1, .2]}, "metadata": {"identifiers": [0, 0], "identifier-names": ["m"], "thresholds": [.5, "inf"]}}
    (folder / "one.json").write_text(json.dumps(obj))
    text = good("evaluate", "one.json").stdout
    assert "1.00*" in text and "no information" in text
    assert strict(good("evaluate", "one.json", "-t", "json").stdout)["uninformative"] == {"one": ["UD", "OS", "AS"]}


def test_verbose_evaluate(solved):
    done = good("evaluate", "s/first.json", "-v")
    assert "sigma" in done.stderr and "sigma" not in done.stdout


@pytest.mark.parametrize("options,words", [(["-t", "word"], ["word", "json"]), (["--axis", "XX"], ["XX", "HV"]), (["--leave-out", "XX"], ["XX"]), (["--weight", "HV"], ["HV", "NUMBER"]), (["--weight", "XX=1"], ["XX"]), (["--weight", "HV=-1"], ["HV=-1"]), (["--sigma", "-1"], ["sigma", "-1"]), (["--sigma", "nan"], ["sigma"]),
                                           (["--eps", "-1"], ["eps", "-1"]), (["--nadir", "x"], ["nadir", "x"]), (["--nadir", "1,1,1"], ["nadir", "2"]), (["--nadir", "0"], ["nadir"]), (["--nadir", "nan"], ["nadir"]), (["--axis", "HV", "-r", "r.png"], ["three"]), ([f"--leave-out={a}" for a in ("HV", "UD", "AS", "ONVGR", "ONVG_rel")], ["axis"])])
def test_bad_options_of_evaluate(folder, solved, options, words):
    said = bad(folder, "evaluate", "s/first.json", *options)
    for word in words: assert word in said


@pytest.mark.parametrize("command", ["evaluate", "pareto"])
def test_systems_with_other_metrics_and_files_that_are_no_solutions(folder, solved, command):
    good("solve", "second.json", "-m", "acc", "-m", "dpd+gender", "-o", "other")
    (folder / "other/third.json").write_text((folder / "other/second.json").read_text())
    said = bad(folder, command, "s/first.json", "other/third.json")
    for word in ("third.json", "dpd+gender", "eod+gender"): assert word in said
    assert "first.json" in bad(folder, command, "first.json")
    obj = {"points": {"acc": [.9]}, "metadata": {"identifiers": [0], "identifier-names": ["m"], "thresholds": [.5]}}
    (folder / "one.json").write_text(json.dumps(obj))
    assert "two metrics" in bad(folder, command, "one.json")


# pareto

def test_pareto_names_an_output_folder_that_has_no_use(folder, solved):
    before = files(folder)
    done = good("pareto", "s/first.json", "-o", "pictures") # as the published package, which takes it
    assert "-o ignored" in done.stderr and "--plot" in done.stderr and "Pareto front of first" in done.stdout and files(folder) == before


def test_pareto_prints_the_front(folder, solved):
    text = good("pareto", "s/first.json", "s/second.json").stdout
    blocks = text.strip().split("\n\n")
    assert len(blocks) == 2
    for name, block in zip(solved, blocks):
        lines, front = block.splitlines(), solved[name].deduplicate().nondominated().frame
        assert name in lines[0] and lines[1].split() == ["acc", "eod+gender", "threshold", "model"] and len(lines) == 3 + len(front)
        for line, (_, row) in zip(lines[3:], front.iterrows()):
            *numbers, model = line.split()
            assert [float(v) for v in numbers] == pytest.approx([row["acc"], row["eod+gender"], row["threshold"]], abs=1e-3) and model == row["model"]
    assert not list(folder.rglob("*.png")) and not list(folder.rglob("*.svg"))


def test_pareto_draws_on_request(folder, solved):
    done = good("pareto", "s/first.json", "s/second.json", "-p", "-o", "new/pic")
    assert set(files(folder / "new/pic")) == {"pareto.png", "pareto.svg"}
    old = (folder / "new/pic/pareto.svg").read_bytes()
    assert b"points on the front" in old # the description
    good("pareto", "s/first.json", "s/second.json", "-p", "--hide-ds", "-o", "new/pic")
    assert (folder / "new/pic/pareto.svg~").read_bytes() == old != (folder / "new/pic/pareto.svg").read_bytes()
    assert done.stdout == good("pareto", "s/first.json", "s/second.json", "--hide-ds").stdout
    good("pareto", "s/first.json", "-p")
    assert (folder / "pareto.png").is_file()


def test_pareto_formats_and_deduplication(folder, solved):
    assert good("pareto", "s/first.json", "-t", "github").stdout.count("|") > 8
    obj = json.loads((folder / "s/first.json").read_text())
    twice = {"points": {k: v + v for k, v in obj["points"].items()}, "metadata": obj["metadata"] | {k: obj["metadata"][k] * 2 for k in ("identifiers", "thresholds")}}
    (folder / "s/twice.json").write_text(json.dumps(twice))
    once, both = good("pareto", "s/twice.json").stdout, good("pareto", "s/twice.json", "-D").stdout
    assert once.splitlines()[2:] == good("pareto", "s/first.json").stdout.splitlines()[2:] and len(both.splitlines()) > len(once.splitlines())
    assert "word" in bad(folder, "pareto", "s/first.json", "-t", "word")


# Whatever a file may hold: an answer or one line, never a traceback

SOLUTIONS = {"points": {"acc": [.5, .6], "eod+gender": [.1, .2]}, "metadata": {"identifiers": [0, 1], "identifier-names": ["one", "two"], "thresholds": [.5, "inf"], "black-boxes": ["one"], "prior-solution-set": "all", "prior-solution-from": "x"}}
ODD = [None, True, -1, .5, float("nan"), float("inf"), 10**400, "", "x\ny", [], [[]], [None], {}, {"a": [1]}, "gone"]


def places(obj, path=()):
    yield path
    for k, v in obj.items() if isinstance(obj, dict) else enumerate(obj[:2]) if isinstance(obj, list) else (): yield from places(v, (*path, k))


def put(obj, path, value):
    if not path: return value
    obj = copy.deepcopy(obj); place = obj
    for k in path[:-1]: place = place[k]
    if value == "gone": del place[path[-1]]
    else: place[path[-1]] = value
    return obj


def survive(folder, command):
    before = set(files(folder))
    done = run(*command)
    assert done.exit_code in (0, 2) and (done.exception is None or isinstance(done.exception, SystemExit)), repr(done.exception)
    if done.exit_code == 2: assert re.fullmatch(r"Error: .*odd\.json.*\n", done.stderr), done.stderr; assert set(files(folder)) == before
    return done.exit_code


@pytest.mark.parametrize("path", list(places(FIRST)), ids=lambda p: "/".join(map(str, p)) or "all")
def test_odd_values_anywhere_in_scores(folder, path):
    codes = []
    for value in ODD:
        (folder / "odd.json").write_text(json.dumps(put(FIRST, path, value)))
        codes.append(survive(folder, ["solve", "odd.json", "-o", f"out{len(codes)}", "--undefined", "zero"]))
    assert 2 in codes


@pytest.mark.parametrize("path", list(places(SOLUTIONS)), ids=lambda p: "/".join(map(str, p)) or "all")
def test_odd_values_anywhere_in_solutions(folder, path):
    for k, value in enumerate(ODD):
        (folder / "odd.json").write_text(json.dumps(put(SOLUTIONS, path, value)))
        for command in (["evaluate", "odd.json", "-t", "json"], ["pareto", "odd.json"], ["solve", "first.json@odd.json", "-o", f"out{k}"]): survive(folder, command)


# As a program

def program(*args, **options):
    return subprocess.run([sys.executable, "-c", "from fairical_nb.cli import main; main(prog_name='fairical-nb')", *map(str, args)], capture_output=True, text=True, **options)


@pytest.fixture
def outside(folder, root, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
    return folder


def test_status_and_streams_of_the_program(outside):
    done = program("solve", "first.json", "-m", "acc", "-m", "eodd+gender", "-o", "out")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1 and "eodd" in done.stderr
    assert program("solve", "first.json", "-o", "out").returncode == 0
    done = program("evaluate", "out/first.json", "-t", "json")
    assert done.returncode == 0 and done.stderr == "" and strict(done.stdout)["systems"]["first"]["ONVG"] >= 1


def test_the_module_is_the_command_too(outside):
    "As launchers start it: `python -m fairical_nb.cli`, `accelerate launch -m fairical_nb.cli`."
    module = lambda *args: subprocess.run([sys.executable, "-m", "fairical_nb.cli", *args], capture_output=True, text=True)
    done = module("--version")
    assert done.returncode == 0 and "version" in done.stdout and done.stdout.split()[-1] == program("--version").stdout.split()[-1]
    done = module("train-fairgrpo")
    assert done.returncode == 2 and "output-path" in done.stderr
    assert module("solve", "first.json", "-o", "out").returncode == 0 and (outside / "out" / "first.json").is_file()


def test_starting_is_light(outside):
    "Help and errors need no plotting and no peers."
    done = subprocess.run([sys.executable, "-c", "import sys, fairical_nb.cli; print([m for m in ('matplotlib', 'torch', 'sklearn', 'pymoo', 'papermill', 'fastcore', 'nbdev', 'IPython') if m in sys.modules])"], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done


@pytest.mark.parametrize("command", [[], ["solve"], ["evaluate"], ["pareto"], ["reproduce"]])
def test_help_names_every_option_with_words(command):
    for flag in ("-h", "-?", "--help"): text = good(*command, flag).output
    if not command: assert all(c in text for c in ("solve", "evaluate", "pareto", "reproduce"))
    for option in main.commands[command[0]].params if command else []:
        if isinstance(option, click.Option): assert option.help and option.opts[-1] in text


def test_usage_errors_have_status_two(folder):
    for args in (["nosuch"], ["solve"], ["solve", "first.json", "--nosuch"], ["solve", "first.json", "-T", "1"], ["solve", "first.json", "--undefined", "x"], ["evaluate"], ["evaluate", "x", "--digits", "-3"], ["pareto"]):
        before, done = files(folder), run(*args)
        assert done.exit_code == 2 and "Error" in done.stderr and done.stdout == "" and files(folder) == before


def test_the_entry_point_is_ours_alone(root):
    import configparser
    settings = configparser.ConfigParser(interpolation=None); settings.read(root / "settings.ini")
    assert settings["DEFAULT"]["console_scripts"] == "fairical-nb=fairical_nb.cli:main"
