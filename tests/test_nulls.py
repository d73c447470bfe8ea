"Permutation nulls: against enumeration and the hypergeometric distribution, uniform p-values, what is kept and what is permuted."
import itertools

import numpy as np
import pytest
from scipy.stats import hypergeom, kstest

from fairical_nb.attributes import attribute
from fairical_nb.nulls import beside, null_draws, permutation_null, permuted_within
from fairical_nb.objectives import sweep
from fairical_nb.scores import Scores
from fairical_nb.solutions import a_posteriori


def data(n, seed, groups="ab", tie=0.):
    rng = np.random.default_rng(seed)
    y, g = rng.integers(0, 2, n), rng.choice(list(groups), n)
    return Scores({"m": 1 / (1 + np.exp(-(2 * y - 1 + tie * (g == "b") + rng.normal(size=n))))}, y, {"g": g, "h": rng.choice(list("xy"), n)})


@pytest.mark.parametrize("metric", ["dpd+g", "eod+g", "minmaxd+acc+g", "dpr+g", "eor+g"])
def test_null_as_by_enumeration(metric):
    s = Scores({"m": [.9, .2, .8, .7, .1, .6]}, [0, 0, 1, 1, 1, 0], {"g": list("aabbab")})
    exact, within = [], permuted_within(metric)
    for order in itertools.permutations(range(6)):
        if within and any(s.y_true[i] != s.y_true[j] for i, j in enumerate(order)): continue
        exact.append(sweep(s.y_true, s.models["m"], {"g": s.attributes["g"][list(order)]}, [metric], thresholds=[.5])[metric].item())
    draws = null_draws(s, [metric], permutations=4000)[:, 0, 0]
    for v in set(np.round(exact, 9)): assert np.mean(np.isclose(draws, v)) == pytest.approx(np.mean(np.isclose(exact, v)), abs=.035)
    assert np.isnan(draws).mean() == pytest.approx(np.isnan(exact).mean(), abs=.03)


def test_p_as_by_the_hypergeometric_distribution():
    s = data(80, 1, tie=.8)
    found = permutation_null(s, ["dpd+g"], permutations=9999).iloc[0]
    a, k = int((s.attributes["g"] == "a").sum()), int((s.models["m"] >= .5).sum())
    x = np.arange(0, min(a, k) + 1)
    gap, chance = np.abs(x / a - (k - x) / (80 - a)), hypergeom(80, k, a).pmf(x)
    assert found["p"] == pytest.approx(chance[gap >= found["value"] - 1e-9].sum(), abs=.02) and found["null_mean"] == pytest.approx(gap @ chance, abs=.005)


@pytest.mark.parametrize("metric", ["eod+g", "dpd+g", "minmaxd+roc_auc+g"])
def test_p_is_uniform_under_the_null(metric):
    p = np.array([permutation_null(data(150, k, "abc"), [metric], permutations=59, seed=k)["p"].item() for k in range(100)])
    for a in (.1, .25, .5): assert np.mean(p <= a) <= a + 2.5 * np.sqrt(a * (1 - a) / 100)
    if metric == "minmaxd+roc_auc+g": assert kstest(p, "uniform").pvalue > .01  # hardly any ties


def test_a_true_gap_is_found():
    assert permutation_null(data(600, 3, tie=1.5), ["eod+g"], permutations=199)["p"].item() == 1 / 200
    assert permutation_null(data(600, 3, tie=1.5), ["eor+g"], permutations=199)["p"].item() == 1 / 200


def test_within_a_class_groups_keep_their_base_rates():
    s = data(60, 4)
    base = [s.y_true[s.attributes["g"] == g].mean() for g in "ab"]
    from fairical_nb.nulls import _shuffled
    from fairical_nb.objectives import plan
    rng, prepared = np.random.default_rng(0), plan(s, ["eod+g", "acc", "dpd+g&h"])
    for _ in range(5):
        inside, free = (_shuffled(prepared, s.y_true, w, rng) for w in (True, False))
        assert [s.y_true[inside.groups["g"].codes == k].mean() for k in (0, 1)] == base
        for p in (inside, free): assert (p.groups["g"].counts == attribute(s.attributes["g"]).counts).all() and (p.groups["g&h"].counts == prepared.groups["g&h"].counts).all()
        joint = inside.groups["g&h"].codes // 2  # classes a&x, a&y, b&x, b&y: the parts move as one
        assert (joint == inside.groups["g"].codes).all()


def test_same_seed_same_numbers_and_metrics_do_not_disturb_each_other():
    s = data(60, 5)
    both, alone = permutation_null(s, ["dpd+g", "eod+g"], permutations=50, seed=2), permutation_null(s, ["eod+g"], permutations=50, seed=2)
    assert both.xs("eod+g", level="metric").equals(alone.xs("eod+g", level="metric")) and both["permuted"].tolist() == ["among all", "within class"]
    assert not permutation_null(s, ["eod+g"], permutations=50, seed=3).equals(alone)


def test_override_of_the_rule():
    s = data(60, 6)
    assert permutation_null(s, ["minmaxd+acc+g"], within=True, permutations=20)["permuted"].tolist() == ["within class"]


def test_beside_many_models_and_thresholds():
    s = data(80, 7)
    two = Scores({"m": s.models["m"], "n": 1 - s.models["m"]}, s.y_true, s.attributes)
    points = a_posteriori(two, ["acc", "eod+g", "dpd+h"], thresholds=[.3, .6])
    table = beside(two, points, permutations=40, seed=1)
    assert list(table) == ["model", "threshold", "acc", "eod+g", "eod+g null", "eod+g p", "dpd+h", "dpd+h null", "dpd+h p"] and len(table) == 4
    row = permutation_null(two, ["eod+g"], model="n", thresholds=[.6], permutations=40, seed=1).iloc[0]
    assert table.loc[3, ["eod+g", "eod+g null", "eod+g p"]].tolist() == row[["value", "null_limit", "p"]].tolist()


@pytest.mark.parametrize("call, text", [(lambda s: permutation_null(s, ["acc"]), "no comparison of groups"), (lambda s: permutation_null(s, ["eod+x"]), "needs the attribute 'x'"), (lambda s: permutation_null(s, "eod+g", model="n"), "model 'n' is not among")])
def test_refusals(call, text):
    with pytest.raises(ValueError, match=text): call(data(20, 8))
