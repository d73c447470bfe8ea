"Bootstrap replicates are what recomputing on the resampled rows gives; intervals are what they say; degenerate cases."
import json
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import metric, metrics_of

from fairical_nb import comparisons
from fairical_nb.batches import batch, system_batch
from fairical_nb.bootstrap import bca, draw, leave_out, percentile
from fairical_nb.comparisons import Replicates, SmallStrataWarning, UndefinedReplicatesWarning, shared_plan, strata_of
from fairical_nb.confidence import bootstrap_a_posteriori, bootstrap_a_priori, bootstrap_selection
from fairical_nb.indicators import INDICATORS, compare, register_indicator
from fairical_nb.intervals import OneSidedWarning, as_dict, differences, intervals, report, with_intervals
from fairical_nb.metrics import OF_GROUPS, UTILITY, register_metric
from fairical_nb.objectives import evaluate, plan
from fairical_nb.operating_points import Solutions
from fairical_nb.points import point_intervals, point_replicates
from fairical_nb.scores import Scores
from fairical_nb.solutions import a_posteriori, a_priori

ELEVEN = np.linspace(0, 1, 11)


def people(n, seed, systems="AB", models=2, decimals=None, weights=False):
    rng = np.random.default_rng(seed)
    y, sex, age, hard = rng.integers(0, 2, n), rng.choice(list("ab"), n), rng.choice([20, 40], n), rng.normal(size=n)
    y[:8], sex[:8], age[:8] = [0, 1] * 4, list("aabb" * 2), [20] * 4 + [40] * 4  # every cell occurs
    made = lambda k, i: 1 / (1 + np.exp(-(2 * y - 1) - (1 + .4 * (sex == "b")) * (hard + (.4 + .3 * k + .1 * i) * rng.normal(size=n))))
    round_ = (lambda s: s) if decimals is None else (lambda s: s.round(decimals))
    w = rng.random(n) if weights else None
    return {s: Scores({f"m{i}": round_(made(k, i)) for i in range(models)}, y, {"sex": sex, "age": age}, w) for k, s in enumerate(systems)}


def rows(s, count):
    i = np.repeat(np.arange(s.n), count.astype(int))
    return Scores({k: v[i] for k, v in s.models.items()}, s.y_true[i], {k: v[i] for k, v in s.attributes.items()}, None if s.sample_weight is None else s.sample_weight[i])


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Batches

@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("thresholds", [None, [.2, .5, .5, .8]], ids=["scores", "given"])
@pytest.mark.parametrize("undefined", ["nan", "zero", "fairical"])
def test_batch_is_the_sweep_of_the_drawn_rows(weights, thresholds, undefined, quiet):
    s = people(40, 1, "A", 1, 1, weights)["A"]
    every, counts = metrics_of("sex", "age", "sex&age"), draw(np.zeros(40, int), 12, np.random.default_rng(0))
    values, exists, t = batch(s.models["m0"], s, plan(s, every), counts, thresholds=thresholds, undefined=undefined)
    for b in range(12):
        one = rows(s, counts[:, b])
        kept = [m for m in every if m.split("+")[-1] != "sex&age" or len(plan(one, [m]).groups["sex&age"].classes) == 4]
        slow = evaluate(one.models["m0"], one, plan(one, kept), thresholds=thresholds, undefined=undefined)[0]
        fast = pd.DataFrame(values[b], columns=every)[kept].to_numpy()[exists[b]]
        assert t[exists[b]].tolist() == slow.index.tolist()
        np.testing.assert_allclose(fast, slow.to_numpy(), rtol=0, atol=1e-11)


def test_batch_as_by_the_definition_in_fractions():
    s = people(14, 3, "A", 1, 1)["A"]
    counts = draw(np.zeros(14, int), 3, np.random.default_rng(1))
    every = metrics_of("sex", "sex&age")
    values, _, _ = batch(s.models["m0"], s, plan(s, every), counts, thresholds=[.3, .6])
    attributes = {k: v.tolist() for k, v in s.attributes.items()}
    for b in range(3):
        for i, t in enumerate((.3, .6)):
            for j, m in enumerate(every):
                exact = metric(m, s.y_true.tolist(), s.models["m0"].tolist(), attributes, t, weight=counts[:, b].astype(int).tolist())
                assert (np.isnan(values[b, i, j]) and exact is None) or values[b, i, j] == pytest.approx(float(exact), abs=1e-12), (m, t)


def test_registered_metrics_in_batches():
    register_metric("jaccard", lambda c: np.where(c.tp + c.fp + c.fn > 0, c.tp / np.maximum(c.tp + c.fp + c.fn, 1), np.nan), "max")
    register_metric("spread", lambda c: np.nanstd(c.selection_rate, axis=0), "min", of_groups=True)
    try:
        s, names = people(60, 2, "A", 1)["A"], ["jaccard", "minmaxd+jaccard+sex", "spread+sex"]
        counts = draw(s.y_true, 5, np.random.default_rng(0))
        values, _, _ = batch(s.models["m0"], s, plan(s, names), counts, thresholds=ELEVEN)
        for b in range(5):
            one = rows(s, counts[:, b])
            np.testing.assert_allclose(values[b], evaluate(one.models["m0"], one, plan(one, names), thresholds=ELEVEN)[0].to_numpy())
    finally:
        for table in (UTILITY, OF_GROUPS):
            table.pop("jaccard", None), table.pop("spread", None)


def test_batch_refuses():
    s = people(20, 0, "A")["A"]
    with pytest.raises(ValueError, match=r"shape \(n, B\) with n = 20, but it has \(19, 2\)"): batch(s.models["m0"], s, plan(s, ["acc"]), np.ones((19, 2)))
    with pytest.raises(ValueError, match="model 'x' is not among"): system_batch(s, plan(s, ["acc"]), [("x", None)], np.ones((20, 2)))


# Draws

@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 2**32), st.integers(1, 9))
def test_draws_keep_strata_and_do_not_depend_on_portions(strata, seed, R):
    strata = np.unique(strata, return_inverse=True)[1]
    counts = draw(strata, R, np.random.default_rng(seed))
    for s in range(strata.max() + 1): assert (counts[strata == s].sum(0) == (strata == s).sum()).all()
    rng = np.random.default_rng(seed)
    assert (np.hstack([draw(strata, 1, rng) for _ in range(R)]) == counts).all()


def test_draws_are_uniform():
    counts = draw(np.zeros(5, int), 20_000, np.random.default_rng(0))
    assert counts.mean(1) == pytest.approx(np.ones(5), abs=.03) and counts.var(1) == pytest.approx(np.full(5, .8), abs=.04)
    assert np.cov(counts[:2])[0, 1] == pytest.approx(-.2, abs=.03)


@pytest.mark.parametrize("n, blocks", [(103, 50), (7, 50), (50, 50), (2, 2)])
def test_blocks_leave_each_sample_out_once(n, blocks):
    left = leave_out(np.arange(n) % 3, blocks, np.random.default_rng(0))
    out = 1 - left
    assert left.shape == (n, min(n, blocks)) and (out.sum(1) == 1).all() and np.ptp(out.sum(0)) <= 1
    for s in range(3): assert np.ptp(out[np.arange(n) % 3 == s].sum(0)) <= 1


# Replicates against recomputing

CASES = {"all scores": {}, "grid": dict(thresholds=ELEVEN), "no dedup": dict(dedup_eps=None), "greedy": dict(dedup_method="greedy", dedup_eps=.02),
         "bounds": dict(nadir=1.2, ideal=0, sigma=.1), "axes": dict(axes=("HV", "AS", "ONVGR")), "weights": dict(weights={"HV": 3}), "zero": dict(undefined="zero"), "drop": dict(nan="drop")}


@pytest.mark.parametrize("case", CASES)
def test_a_posteriori_as_recomputed(case, quiet):
    options, metrics = dict(CASES[case]), ["f1", "eod+sex", "dpd+sex&age"]
    solve = {k: options.pop(k) for k in ("thresholds", "undefined", "nan") if k in options}
    systems = people(64, 5, decimals=2)
    r = bootstrap_a_posteriori(systems, metrics, replicates=8, seed=3, blocks=4, **solve, **options)
    where = strata_of(systems["A"], shared_plan(systems, metrics))
    counts = draw(where, 8, generator := np.random.default_rng([0, 3]))
    left = leave_out(where, 4, generator)
    for columns, values in ((counts, r.values), (left, r.jackknife[0])):
        for b in range(columns.shape[1]):
            slow = {k: a_posteriori(rows(s, columns[:, b]), metrics, **solve) for k, s in systems.items()}
            np.testing.assert_array_equal(values[b], compare(slow, ["max", "min", "min"], **options).to_numpy(dtype=float))
            if columns is counts:
                for k, s in slow.items(): np.testing.assert_array_equal(np.unique(r.fronts[k][b], axis=0), np.unique(s.nondominated().points, axis=0))


def test_black_boxes_and_mixed_systems_as_recomputed(quiet):
    systems = people(50, 6)
    systems["box"] = Scores({"rule": (systems["A"].models["m0"] > .5).astype(float), **systems["A"].models}, systems["A"].y_true, systems["A"].attributes)
    r = bootstrap_a_posteriori(systems, ["acc", "dpd+sex"], replicates=6, seed=1, blocks=0)
    counts = draw(strata_of(systems["A"], shared_plan(systems, ["acc", "dpd+sex"])), 6, np.random.default_rng([0, 1]))
    for b in range(6): np.testing.assert_array_equal(r.values[b], compare({k: a_posteriori(rows(s, counts[:, b]), ["acc", "dpd+sex"]) for k, s in systems.items()}, ["max", "min"]).to_numpy(dtype=float))


@pytest.mark.parametrize("which", ["nondominated", "dominated", "all"])
def test_a_priori_as_recomputed(which, quiet):
    systems, others, metrics = people(60, 7), people(55, 8), ["acc", "eod+sex"]
    priors = {k: a_posteriori(s, metrics, thresholds=ELEVEN) for k, s in others.items()}
    mixed = {k: Solutions(p.frame.sample(frac=1, random_state=1)) for k, p in priors.items()}  # rows of the models mixed
    r = bootstrap_a_priori(systems, mixed, which=which, replicates=6, seed=2, blocks=3, dedup_method="greedy", dedup_eps=.05)
    counts = draw(strata_of(systems["A"], shared_plan(systems, metrics)), 6, np.random.default_rng([0, 2]))
    for b in range(6):
        slow = {k: a_priori(rows(s, counts[:, b]), mixed[k], which=which) for k, s in systems.items()}
        np.testing.assert_array_equal(r.values[b], compare(slow, ["max", "min"], dedup_method="greedy", dedup_eps=.05).to_numpy(dtype=float))


@pytest.mark.parametrize("which", ["nondominated", "dominated", "all"])
@pytest.mark.parametrize("thresholds", [None, ELEVEN], ids=["scores", "grid"])
@pytest.mark.parametrize("eps", [None, 1e-6])
def test_selection_as_recomputed(which, thresholds, eps, quiet):
    systems, others, metrics = people(48, 9), people(44, 10), ["acc", "eod+sex"]
    r = bootstrap_selection(systems, others, metrics, which=which, thresholds=thresholds, prior_eps=eps, replicates=5, seed=4, blocks=3)
    counts = [draw(strata_of(d["A"], shared_plan(d, metrics)), 5, np.random.default_rng([k, 4])) for k, d in enumerate((systems, others))]
    for b in range(5):
        before = {k: a_posteriori(rows(s, counts[1][:, b]), metrics, thresholds=thresholds) for k, s in others.items()}
        if eps is not None: before = {k: p.deduplicate(eps=eps) for k, p in before.items()}
        slow = {k: a_priori(rows(s, counts[0][:, b]), before[k], which=which) for k, s in systems.items()}
        np.testing.assert_array_equal(r.values[b], compare(slow, ["max", "min"]).to_numpy(dtype=float))
    assert [j.shape for j in r.jackknife] == [(3, 2, 8)] * 2


def test_weighted_samples_as_recomputed(quiet):
    systems = people(50, 11, weights=True)
    weight = systems["A"].sample_weight
    systems["B"] = Scores(systems["B"].models, systems["A"].y_true, systems["A"].attributes, weight)
    systems["A"] = Scores(systems["A"].models, systems["A"].y_true, systems["A"].attributes, weight)
    r = bootstrap_a_posteriori(systems, ["acc", "dpd+sex"], thresholds=ELEVEN, replicates=5, blocks=0)
    counts = draw(strata_of(systems["A"], shared_plan(systems, ["acc", "dpd+sex"])), 5, np.random.default_rng([0, 0]))
    for b in range(5):
        slow = compare({k: a_posteriori(rows(s, counts[:, b]), ["acc", "dpd+sex"], thresholds=ELEVEN) for k, s in systems.items()}, ["max", "min"])
        np.testing.assert_allclose(r.values[b], slow.to_numpy(dtype=float), atol=1e-11)


def test_portions_change_nothing(monkeypatch, quiet):
    systems = people(60, 12)
    run = lambda: bootstrap_a_posteriori(systems, ["acc", "eod+sex"], replicates=9, seed=1, blocks=7)
    whole = run()
    monkeypatch.setattr(comparisons, "PORTION", 1)
    single = run()
    assert (whole.values == single.values).all() and (whole.jackknife[0] == single.jackknife[0]).all()


def test_same_seed_same_bytes_other_seed_other_numbers(quiet):
    systems = people(60, 13)
    run = lambda seed: bootstrap_a_posteriori(systems, ["acc", "eod+sex"], thresholds=ELEVEN, replicates=20, seed=seed)
    assert report(run(1), "json") == report(run(1), "json") and run(1).values.tobytes() == run(1).values.tobytes()
    assert run(1).values.tobytes() != run(2).values.tobytes()


def test_other_systems_do_not_change_the_draws(quiet):
    systems = people(80, 14, "ABC")
    run = lambda names: bootstrap_a_posteriori({k: systems[k] for k in names}, ["acc", "eod+sex"], thresholds=ELEVEN, replicates=10, blocks=5)
    own = [c for c, name in enumerate(run("A").estimate) if name not in ("ONVG_rel", "area")]
    assert (run("A").values[:, 0, own] == run("CBA").values[:, 2, own]).all()


def test_inputs_stay_as_they_were(quiet):
    systems, grid = people(60, 15), ELEVEN.copy()
    before = {k: s.frame() for k, s in systems.items()}
    r = bootstrap_a_posteriori(systems, ["acc", "eod+sex"], thresholds=grid, replicates=5)
    values = r.values.copy()
    intervals(r), differences(r, method="bca"), with_intervals(r), report(r)
    assert (grid == ELEVEN).all() and all(s.frame().equals(before[k]) for k, s in systems.items()) and np.array_equal(r.values, values, equal_nan=True)


def test_within_ten_cpu_seconds(quiet):
    rng, n = np.random.default_rng(0), 3000
    y, sex, race = rng.integers(0, 2, n), rng.choice(list("ab"), n), rng.choice(list("xyz"), n)
    large = {k: Scores({f"m{i}": 1 / (1 + np.exp(-(2 * y - 1 + s * rng.normal(size=n)))) for i in range(25)}, y, {"sex": sex, "race": race}) for k, s in (("A", 1), ("B", 1.2))}
    start = time.process_time()
    bootstrap_a_posteriori(large, ["acc", "eod+sex", "eod+race"], thresholds=ELEVEN, replicates=100, blocks=0)
    assert time.process_time() - start < 10


# Degenerate cases

def test_one_model_one_threshold_one_system():
    s = {"only": people(60, 16, "A", 1)["A"]}
    r = bootstrap_a_posteriori(s, ["acc", "dpd+sex"], thresholds=[.5], replicates=30)
    found = intervals(r).droplevel("system")
    assert found.loc["ONVG", ["low", "high"]].tolist() == [1, 1] and found.loc["UD", ["low", "high"]].tolist() == [1, 1] and found.loc["AS", ["low", "high"]].tolist() == [0, 0]
    assert found.at["HV", "low"] < found.at["HV", "high"]
    assert as_dict(r)["differences"] == []
    with pytest.raises(ValueError, match="at least two systems"): differences(r)


def test_identical_systems_differ_by_nothing():
    a = people(80, 17)["A"]
    r = bootstrap_a_posteriori({"A": a, "B": a}, ["acc", "eod+sex"], thresholds=ELEVEN, replicates=20)
    found = differences(r, method="bca")
    assert (found[["difference", "low", "high"]] == 0).all(axis=None) and (found["beats"] == .5).all()


def test_group_of_two_is_warned_of():
    sex = np.array(["a"] * 58 + ["b"] * 2)
    s = Scores({"m": np.random.default_rng(0).random(60)}, np.arange(60) % 2, {"sex": sex})
    with pytest.warns(SmallStrataWarning, match=r"2 of 4 strata have fewer than 5 samples \(the smallest 1; 2 of 60 samples in all\)"): r = bootstrap_a_posteriori({"s": s}, ["acc", "eod+sex"], thresholds=[.5], replicates=10)
    assert np.isfinite(r.values).all()  # the group stays in every draw


def test_free_draws_lose_a_small_group_and_count_it():
    sex = np.array(["a"] * 58 + ["b"] * 2)
    s = Scores({"m": np.random.default_rng(0).random(60)}, np.arange(60) % 2, {"sex": sex})
    with pytest.warns(UndefinedReplicatesWarning, match=r"of 200 replicates are undefined, so NaN: eod\+sex of 's'"): r = bootstrap_a_posteriori({"s": s}, ["acc", "eod+sex"], thresholds=[.5], replicates=200, strata=False)
    lost = np.isnan(r.values[:, 0, 0]).mean()
    assert lost == pytest.approx(1 - (1 - (59 / 60)**60)**2, abs=.1) and r.settings["undefined"] == round(200 * lost)
    assert (intervals(r)["undefined"] == r.settings["undefined"]).all() and intervals(r).loc[("s", "HV"), "low"] > 0


def test_all_replicates_undefined(quiet):
    s = Scores({"m": [.1, .9, .2, .8]}, [0, 1, 0, 1], {"sex": list("aabb")})
    seed = next(k for k in range(99) if np.isnan(bootstrap_a_posteriori({"s": s}, ["acc", "eod+sex"], thresholds=[.5], replicates=1, seed=k, strata=False, blocks=0).values).all())
    r = bootstrap_a_posteriori({"s": s}, ["acc", "eod+sex"], thresholds=[.5], replicates=1, seed=seed, strata=False, blocks=2)
    assert intervals(r)[["low", "high"]].isna().all(axis=None) and (intervals(r)["undefined"] == 1).all()
    assert intervals(r, method="bca")[["low", "high"]].isna().all(axis=None)
    assert json.loads(report(r, "json"))["intervals"]["s"]["HV"] == {"estimate": 1.0, "low": None, "high": None, "undefined": 1}
    assert "[undefined]" in report(r)


def test_dropped_points_are_not_undefined_replicates(quiet):
    s = {"s": Scores({"m": np.r_[np.linspace(.1, .6, 38), .9, .9]}, np.arange(40) % 2, {"sex": list("abba" * 10)})}
    run = lambda nan: bootstrap_a_posteriori(s, ["prec", "dpd+sex"], thresholds=[.3, .8], replicates=100, nan=nan).settings["undefined"]
    assert run("raise") > 0 and run("drop") == 0


def test_prior_without_points(quiet):
    s, prior = people(40, 18, "A"), a_posteriori(people(40, 19, "A")["A"], ["acc", "dpd+sex"], thresholds=[.5])
    one = Solutions(prior.frame.iloc[:1])
    r = bootstrap_a_priori(s, {"A": one}, which="dominated", replicates=3, blocks=2)
    assert (r.values[:, 0, list(r.estimate).index("HV")] == 0).all() and intervals(r).loc[("A", "UD")].isna()["low"]


def test_systems_on_other_samples_are_refused():
    a, b = people(40, 20)["A"], people(40, 21)["B"]
    metrics = ["acc", "dpd+sex"]
    def fails(other, text):
        with pytest.raises(ValueError, match=text): bootstrap_a_posteriori({"A": a, "B": other}, metrics, replicates=2)
    fails(b, "the ground truth of 'B' differs from that of 'A' in rows")
    fails(Scores(a.models, a.y_true, {"sex": np.roll(a.attributes["sex"], 1)}), "attribute 'sex' of 'B' differs")
    fails(Scores({"m": a.models["m0"][:30]}, a.y_true[:30], {"sex": a.attributes["sex"][:30]}), "40 and 30 samples")
    fails(Scores(a.models, a.y_true, a.attributes, np.ones(40)), "sample_weight of 'B' differs from that of 'A': one has none")
    bootstrap_a_posteriori({"A": a, "B": Scores(b.models, a.y_true, {"sex": a.attributes["sex"]})}, metrics, replicates=2, blocks=0)  # an unused attribute may be absent


def test_priors_must_fit(quiet):
    systems, others = people(40, 31), people(40, 32)
    made = lambda names: {k: a_posteriori(s, m, thresholds=[.5]) for (k, s), m in zip(others.items(), names)}
    with pytest.raises(ValueError, match="the same metrics in the same order"): bootstrap_a_priori(systems, made([["acc", "dpd+sex"], ["dpd+sex", "acc"]]), replicates=2)
    with pytest.raises(ValueError, match="each system needs its prior"): bootstrap_a_priori(systems, {"A": made([["acc", "dpd+sex"]] * 2)["A"]}, replicates=2)
    with pytest.raises(ValueError, match="at least two metrics"): bootstrap_a_posteriori(systems, "acc", replicates=2)
    with pytest.raises(ValueError, match="at least one system"): bootstrap_a_posteriori({}, ["acc", "dpd+sex"], replicates=2)


@pytest.mark.parametrize("wrong, text", [(dict(replicates=0), "replicates must be a whole number >= 1, but it is 0"), (dict(replicates=2.5), "replicates must be a whole"), (dict(seed=-1), "seed must be"),
                                         (dict(seed=None), "seed must be"), (dict(blocks=1), "at least 2"), (dict(strata=["age2"]), "strata names the attribute 'age2'"), (dict(sigma=0), "sigma must be > 0")])
def test_wrong_numbers_are_refused(wrong, text):
    with pytest.raises(ValueError, match=text): bootstrap_a_posteriori(people(40, 22), ["acc", "dpd+sex"], thresholds=[.5], **{"replicates": 2, **wrong})


# Intervals

@pytest.mark.parametrize("statistic", [np.mean, np.std, np.median])
def test_bca_as_by_scipy(statistic):
    data = np.random.default_rng(4).exponential(size=35)
    peer = scipy.stats.bootstrap((data,), statistic, n_resamples=999, method="BCa", rng=np.random.default_rng(0), confidence_level=.9)
    left = [[statistic(np.delete(data, i)) for i in range(35)]]
    assert bca(peer.bootstrap_distribution, statistic(data), left, level=.9) == pytest.approx(tuple(peer.confidence_interval), abs=1e-12)
    plain = scipy.stats.bootstrap((data,), statistic, n_resamples=0, method="percentile", bootstrap_result=peer, confidence_level=.9)
    assert percentile(peer.bootstrap_distribution, level=.9) == pytest.approx(tuple(plain.confidence_interval), abs=1e-12)


def test_bca_of_two_samples_as_by_scipy():
    rng = np.random.default_rng(5)
    x, y = rng.exponential(size=30), rng.exponential(size=20) * 2
    statistic = lambda a, b, axis=-1: np.mean(a, axis=axis) / np.mean(b, axis=axis)
    peer = scipy.stats.bootstrap((x, y), statistic, n_resamples=999, method="BCa", rng=np.random.default_rng(0))
    left = [[statistic(np.delete(x, i), y) for i in range(30)], [statistic(x, np.delete(y, i)) for i in range(20)]]
    assert bca(peer.bootstrap_distribution, statistic(x, y), left) == pytest.approx(tuple(peer.confidence_interval), abs=1e-12)


def test_undefined_replicates_and_blocks_are_left_out():
    values, left = np.random.default_rng(0).normal(size=(99, 2)), np.random.default_rng(1).normal(size=(20, 2))
    holes, gaps = np.vstack([values, np.full((5, 2), np.nan)]), np.vstack([left, np.full((3, 2), np.nan)])
    assert np.array_equal(percentile(holes), percentile(values)) and np.array_equal(bca(holes, [0, .1], [gaps]), bca(values, [0, .1], [left]))
    assert np.isnan(bca(values * np.nan, [0, 0], [left])).all() and np.isnan(percentile(values * np.nan)).all()
    assert np.isnan(bca(values, [np.nan, 9], [left])).all()  # no estimate; one outside of all replicates


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=60), st.floats(-1, 1), st.sampled_from([.5, .9, .95]))
@settings(max_examples=200)
def test_bca_lies_within_the_replicates_and_holds_the_estimate_or_is_undefined(values, estimate, level):
    low, high = bca(values, estimate, [[.1, .2, .4]], level=level)
    assert np.isnan(low) == np.isnan(high)
    assert np.isnan(low) or min(values) <= low <= high <= max(values)


def replicates(values, estimate, columns, names="AB", jackknife=()):
    table = pd.DataFrame(np.atleast_2d(estimate), index=list(names)[:len(np.atleast_2d(estimate))], columns=columns)
    return Replicates(table, np.asarray(values, dtype=float), list(jackknife), {}, dict(seed=0, replicates=len(values), blocks=0, undefined=0))


def test_beats_counts_ties_half_and_follows_the_direction():
    register_indicator("distance", lambda *_: 0., "min", (0, 1))
    try:
        r = replicates([[[.5, .5], [.4, .4]], [[.5, .5], [.5, .5]], [[np.nan] * 2, [.1, .1]]], [[.5, .5], [.4, .4]], ["HV", "distance"])
        found = differences(r)
        assert found["beats"].tolist() == [.75, .25] and found["undefined"].tolist() == [1, 1]
    finally: INDICATORS.pop("distance")


def test_three_systems_have_three_differences():
    r = bootstrap_a_posteriori(people(60, 23, "ABC"), ["acc", "dpd+sex"], thresholds=ELEVEN, replicates=10, blocks=0)
    found = differences(r)
    assert [k[:2] for k in found.index.droplevel("indicator").unique()] == [("A", "B"), ("A", "C"), ("B", "C")]
    values = r.values[:, 0, 0] - r.values[:, 2, 0]
    assert found.loc[("A", "C", "HV"), "low"] == pytest.approx(np.quantile(values, .025), abs=1e-14) and found.loc[("A", "C", "HV"), "difference"] == r.estimate["HV"]["A"] - r.estimate["HV"]["C"]


def test_one_sided_replicates_are_undefined_with_one_warning():
    r = replicates(np.linspace(.5, .6, 50)[:, None, None] + np.zeros((1, 2, 1)), [[.4], [.55]], ["HV"], jackknife=[np.ones((3, 2, 1))])
    with pytest.warns(OneSidedWarning, match="HV of A;") as said: found = intervals(r, method="bca")
    assert len(said) == 1 and found["low"].isna().tolist() == [True, False]


@pytest.mark.parametrize("fmt", ["text", "markdown", "latex", "html", "json", "grid"])
def test_reports_in_every_format(fmt):
    r = bootstrap_a_posteriori(people(60, 24), ["acc", "dpd+sex"], thresholds=ELEVEN, replicates=20, seed=7)
    text = report(r, fmt)
    if fmt != "json":
        assert "seed 7" in text and "20 replicates of test samples" in text and "P(first beats second)" in text
        return
    found = json.loads(text, parse_constant=lambda c: pytest.fail(c))
    assert list(found)[-3:] == ["intervals", "differences", "bootstrap"] and found["bootstrap"]["seed"] == 7 and found["bootstrap"]["strata"] is True
    assert len(found["differences"]) == 8 and found["systems"]["A"]["HV"] == found["intervals"]["A"]["HV"]["estimate"]


@pytest.mark.parametrize("level", [.5, .9])
@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_every_form_of_the_limits_has_the_level_the_method_and_the_digits_that_were_asked_for(level, method):
    "Three systems, two indicators, some replicates undefined: tables, differences, text and JSON from one quantile at a time."
    rng, at = np.random.default_rng(0), np.array([[.5, 7], [.4, 9], [.45, 8]])
    values, left = at + rng.normal(size=(60, 3, 2)) * [.05, 2], [at + rng.exponential(size=(12, 3, 2)) * [.01, .3] for _ in range(2)]
    values[::7, 1] = np.nan
    r, options, columns = replicates(values, at, ["HV", "ONVG"], "ABC", left), dict(level=level, method=method), ["HV", "ONVG"]
    ends = lambda v, e, j: tuple(np.nanquantile(v, [(1 - level) / 2, (1 + level) / 2])) if method == "percentile" else bca(v, e, j, level=level)
    found, pairs, plain = intervals(r, **options), differences(r, **options), as_dict(r, **options)
    shown, text = with_intervals(r, digits=3, **options), report(r, digits=3, **options)
    for (s, c), row in found.iterrows():
        i, k = "ABC".index(s), columns.index(c)
        low, high = ends(values[:, i, k], at[i, k], [x[:, i, k] for x in left])
        assert row.tolist() == pytest.approx([at[i, k], low, high, np.isnan(values[:, i, k]).sum()])
        assert plain["intervals"][s][c] == row.to_dict()
        assert shown.at[s, c] == (f"{at[i, k]:.3f} [{low:.3f}, {high:.3f}]" if c == "HV" else f"{at[i, k]:.0f} [{low:.0f}, {high:.0f}]") and shown.at[s, c] in text
    for ((a, b, c), row), said in zip(pairs.iterrows(), plain["differences"], strict=True):
        i, j, k = "ABC".index(a), "ABC".index(b), columns.index(c)
        v = values[:, i, k] - values[:, j, k]
        low, high = ends(v, at[i, k] - at[j, k], [x[:, i, k] - x[:, j, k] for x in left])
        assert row.tolist() == pytest.approx([at[i, k] - at[j, k], low, high, (v[~np.isnan(v)] > 0).mean(), np.isnan(v).sum()])
        assert said == {"first": a, "second": b, "indicator": c} | row.to_dict()
        assert (f"{row.difference:.3f} [{low:.3f}, {high:.3f}]" in text) == (c == "HV")
    assert plain["bootstrap"]["level"] == level and plain["bootstrap"]["method"] == method
    assert f"{level:.0%} intervals ({'BCa' if method == 'bca' else 'percentile'})" in text and json.loads(report(r, "json", **options))["intervals"] == plain["intervals"]


def test_report_refuses_an_unknown_format():
    r = bootstrap_a_posteriori(people(40, 25), ["acc", "dpd+sex"], thresholds=[.5], replicates=2, blocks=0)
    with pytest.raises(ValueError, match="format must be"): report(r, "word")


# Operating points

def test_points_as_recomputed(quiet):
    s = people(60, 26)["A"]
    points = a_posteriori(s, ["acc", "eod+sex"], thresholds=[.3, .6])
    at, values, left = point_replicates(s, points, replicates=130, seed=3, blocks=5)
    assert np.array_equal(at, points.points) and values.shape == (130, 4, 2) and left.shape == (5, 4, 2)
    counts = draw(strata_of(s, plan(s, ["acc", "eod+sex"])), 130, np.random.default_rng([0, 3]))
    for b in (0, 99, 100, 129): assert np.array_equal(values[b], a_priori(rows(s, counts[:, b]), points, which="all").points)
    found = point_intervals(s, points, replicates=130, seed=3, blocks=0)
    assert found["low"].to_numpy().reshape(4, 2) == pytest.approx(np.quantile(values, .025, axis=0))


def test_points_and_systems_share_their_draws(quiet):
    s = people(60, 27, "A", 1)
    points = a_posteriori(s["A"], ["acc", "eod+sex"], thresholds=[.5])
    r = bootstrap_a_priori(s, {"A": points}, which="all", replicates=20, seed=5, blocks=0)
    values = point_replicates(s["A"], points, replicates=20, seed=5, blocks=0)[1][:, 0]
    assert r.values[:, 0, list(r.estimate).index("HV")] == pytest.approx(values[:, 0] * (1 - values[:, 1]))


# Solutions files beside their scores

def test_solutions_from_files(tmp_path, quiet):
    systems, metrics = people(60, 28), ["acc", "eod+sex"]
    for k, s in systems.items(): a_posteriori(s, metrics, thresholds=ELEVEN).save(tmp_path / f"{k}.json")
    loaded = {k: Solutions.load(tmp_path / f"{k}.json") for k in systems}
    from fairical_nb.confidence import bootstrap_solutions
    searched = bootstrap_a_posteriori(systems, metrics, thresholds=ELEVEN, replicates=10, seed=1)
    filed = bootstrap_solutions(loaded, systems, replicates=10, seed=1)
    assert (filed.values == searched.values).all() and (filed.jackknife[0] == searched.jackknife[0]).all()
    with pytest.raises(ValueError, match="do not give its operating points: acc of model 'm0'"): bootstrap_solutions(loaded, people(60, 29), replicates=2)
    with pytest.raises(ValueError, match="need the scores they were measured on"): bootstrap_solutions(loaded, {"A": systems["A"]}, replicates=2)


def test_all_scores_from_files_differ_from_the_search_by_nothing_after_deduplication(quiet):
    from fairical_nb.confidence import bootstrap_solutions
    systems, metrics = people(60, 30), ["acc", "eod+sex"]
    searched = bootstrap_a_posteriori(systems, metrics, replicates=10, seed=1, blocks=0)
    filed = bootstrap_solutions({k: a_posteriori(s, metrics) for k, s in systems.items()}, systems, replicates=10, seed=1, blocks=0)
    np.testing.assert_array_equal(filed.values, searched.values)
