"The kept Fair-GRPO runs in nbs/weights: their numbers follow from their own counts, and they say what the pages and the README say of them."
import numpy as np
import pytest

pytest.importorskip("torch")

from fairical_nb.files import root  # noqa: E402
from fairical_nb.mgbi import from_counts  # noqa: E402
from fairical_nb.study import ROWS, read_rows, table_of  # noqa: E402

FOLDER = root() / "nbs" / "weights" / "fairgrpo"
RUNS = {(r["row"], r["seed"]): r for r in read_rows(FOLDER)}


def judge(row, sampler="deployment", what="judge MGBI"):
    return np.array([r["measures"][sampler][what] for (name, _), r in sorted(RUNS.items()) if name == row])


@pytest.mark.parametrize("row,seed", RUNS)
def test_measures_follow_from_the_counts(row, seed):
    run = RUNS[row, seed]
    for sampler, readers in run["counts"].items():
        for who, counts in readers.items():
            found, measures = from_counts(counts), run["measures"][sampler]
            assert [found.MGBI, found.ID, found.CA] == pytest.approx([measures[f"{who} {k}"] for k in ("MGBI", "ID", "CA")], abs=2e-4)
            sizes = {c: {sum(n) for n in each.values()} for c, each in counts.items()}
            assert all(len(s) == 1 for s in sizes.values()) and sum(min(s) for s in sizes.values()) <= measures["n"]


@pytest.mark.parametrize("row,seed", RUNS)
def test_runs_are_of_known_rows_and_took_their_steps(row, seed):
    run = RUNS[row, seed]
    assert row in ROWS and run["data"] == "stand-in" and len(run["curve"]) == run["updates"] and bool(run["updates"]) == (row != "baseline")
    assert all(c["on_far"] < 1e-4 for c in run["curve"])  # D03: the ratio before the first step of an update is 1


def test_three_seeds_reach_three_quarters_within_a_minute_by_who_never_rewarded():
    assert len(judge("all")) == 3 and (judge("all") >= .75).all()
    assert all(r["seconds"] <= 60 for (row, _), r in RUNS.items() if row == "all")
    assert judge("all", what="clear").mean() >= judge("baseline", what="clear").mean() - .05
    assert judge("all", what="agreement").mean() >= judge("baseline", what="agreement").mean() - .05


def test_all_three_rewards_beat_each_alone_beyond_twice_their_error():
    for row in ("gender", "age", "race"):
        a, b = judge("all"), judge(row)
        assert len(b) == 3 and a.mean() - b.mean() > 2 * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 3)


def test_a_labeller_that_guesses_leaves_the_judges_balance_within_noise():
    "Training moves the pictures; without information in the reward it does not move them towards balance."
    moved, gained = judge("random") - judge("baseline").item(), judge("all") - judge("baseline").item()
    assert len(moved) == 3 and abs(moved.mean()) < 2.5 * max(moved.std(ddof=1) / 3 ** .5, .02)
    assert gained.min() > 2 * abs(moved).max()


def test_table_holds_every_run():
    table = table_of(list(RUNS.values()))
    assert len(table) == len(RUNS) and table[["judge MGBI", "labeller MGBI", "clear"]].notna().all(axis=None)
