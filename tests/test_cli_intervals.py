"evaluate with draws of the samples and with orders of the axes."
import json

import numpy as np
import pytest
from click.testing import CliRunner

from fairical_nb.cli import main
from fairical_nb.confidence import bootstrap_solutions
from fairical_nb.intervals import intervals
from fairical_nb.radar import orders
from fairical_nb.scores import Scores
from fairical_nb.solutions import Solutions, a_posteriori


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y, sex = rng.integers(0, 2, 120), rng.choice(["f", "m"], 120)
    for name, noise in (("a", .5), ("b", 1)):
        s = Scores({f"m{i}": np.clip(.5 + .3 * (y - .5) + noise * (rng.random(120) - .5), 0, 1).round(2) for i in range(2)}, y, {"sex": sex})
        s.save(tmp_path / f"{name}_scores.json")
        s.save(tmp_path / f"{name}_scores.csv")
        a_posteriori(s, ["acc", "eod+sex"], thresholds=np.linspace(0, 1, 11)).save(tmp_path / f"{name}.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args): return CliRunner().invoke(main, ["evaluate", *map(str, args)])


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_intervals_are_those_of_the_library(folder, ending):
    done = run("a.json", "b.json", "--bootstrap", 50, "--seed", 3, "--scores", f"a_scores.{ending}", "--scores", f"b_scores.{ending}", "-t", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    r = bootstrap_solutions({n: Solutions.load(f"{n}.json") for n in "ab"}, {n: Scores.load(f"{n}_scores.json") for n in "ab"}, replicates=50, seed=3)
    want = intervals(r)
    assert want.loc[("a", "HV"), "low"] < found["systems"]["a"]["HV"] < want.loc[("a", "HV"), "high"]
    assert json.dumps(found["intervals"]).count(repr(float(want.loc[("a", "HV"), "low"]))) >= 1
    assert {"intervals", "differences", "bootstrap", "settings"} <= set(found)


def test_same_seed_same_text(folder):
    texts = [run("a.json", "b.json", "--bootstrap", 30, "--seed", s, "--scores", "a_scores.json", "--scores", "b_scores.json").stdout for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2] and "30 replicates" in texts[0] and "seed 1" in texts[0] and "P(first beats second)" in texts[0]


def test_whiskers_are_drawn_and_described(folder):
    assert run("a.json", "--bootstrap", 30, "--scores", "a_scores.json", "-r", "with.svg").exit_code == 0
    assert run("a.json", "-r", "without.svg").exit_code == 0
    assert (folder / "with.svg").read_text().count("<path") > (folder / "without.svg").read_text().count("<path")


@pytest.mark.parametrize("args,words", [(["--bootstrap", 20], ["--scores", "1 systems", "there are 0"]), (["--bootstrap", 20, "--scores", "b_scores.json"], ["do not give its operating points"]),
    (["--bootstrap", 20, "--scores", "absent.json"], ["absent.json", "no such file"]), (["--bootstrap", 1], ["--bootstrap"]), (["--bootstrap", 20, "--level", 1], ["--level"])])
def test_what_is_refused(folder, args, words):
    done = run("a.json", *args)
    assert done.exit_code == 2 and done.stdout == ""
    for w in words: assert w in done.stderr


def test_orders_are_all_shown(folder):
    done = run("a.json", "b.json", "--orders", "-t", "json")
    found = json.loads(done.stdout)
    assert len(found["orders"]) == len(orders(5)) == 12 and set(found["order_range"]) == {"a", "b"}
    text = run("a.json", "b.json", "--orders").stdout
    assert text.count("-ONVGR") + text.count("ONVGR-") >= 12


def test_solve_prints_the_null_beside_each_gap(folder):
    texts = [CliRunner().invoke(main, ["solve", "a_scores.json", "-m", "acc", "-m", "eod+sex", "-o", "out", "--nulls", "50", "--seed", str(s)]) for s in (0, 0, 1)]
    assert all(t.exit_code == 0 and t.stdout == "" for t in texts)
    head = texts[0].stderr.splitlines()[1].split()
    assert "eod+sex" in head and head.count("null") == 1 and head.count("p") == 1
    assert texts[0].stderr == texts[1].stderr and len(texts[0].stderr.splitlines()) == 2 + len(Solutions.load("out/a_scores.json").nondominated())
