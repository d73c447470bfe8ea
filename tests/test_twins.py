"The fast forms against the definitions as loops and exact fractions (naive.py)."
import math
import warnings

import naive
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fairical_nb import radar
from fairical_nb.dedup import representatives
from fairical_nb.indicators import compare, indicators, nondominated
from fairical_nb.objectives import sweep
from fairical_nb.scores import Scores
from fairical_nb.solutions import a_posteriori, a_priori

TOL = 1e-12
METRICS = naive.metrics_of("g", "r", "g&r")


def quiet(f, *args, **options):
    with warnings.catch_warnings(action="ignore"): return f(*args, **options)


def equal(found, exact): return math.isnan(found) if exact is None else abs(found - float(exact)) < TOL


@st.composite
def samples(draw, most=14):
    "Truth, scores with ties, two attributes of different kinds; one class and one group occur."
    n = draw(st.integers(1, most))
    column = lambda *values: draw(st.lists(st.sampled_from(values), min_size=n, max_size=n))
    tenth = draw(st.sampled_from([1, 2, 4, 10]))
    score = draw(st.lists(st.integers(0, tenth).map(lambda k: k / tenth), min_size=n, max_size=n))
    return column(0, 1), score, {"g": column("a", "b", "c"), "r": column(0, 1)}


THRESHOLDS = st.lists(st.sampled_from([-1., 0., .1, .25, .3, .5, .5000001, .75, .9, 1., 1.5, math.inf, -math.inf]), min_size=1, max_size=4)


# Sweep

@given(samples(), THRESHOLDS, st.sampled_from(["nan", "zero"]))
@settings(max_examples=40)
def test_sweep_is_its_definition(sample, thresholds, policy):
    y, score, attributes = sample
    table = quiet(sweep, y, score, attributes, METRICS, thresholds=thresholds, undefined=policy)
    assert table.index.tolist() == thresholds
    assert table.columns.tolist() == METRICS
    for row, t in enumerate(thresholds):
        for m in METRICS:
            exact = naive.metric(m, y, score, attributes, t, undefined=0 if policy == "zero" else None)
            assert equal(table[m].iloc[row], exact), (m, t, table[m].iloc[row], exact)


@given(samples(most=8), st.integers(0, 10**6))
@settings(max_examples=25)
def test_weighted_sweep_is_its_definition(sample, seed):
    y, score, attributes = sample
    weight = np.random.default_rng(seed).choice([0, .5, 1, 2.25, 7], len(y))
    if not weight.sum(): weight = weight + 1
    metrics = naive.metrics_of("g")
    table = quiet(sweep, y, score, attributes, metrics, thresholds=[.3, .5], sample_weight=weight)
    for row, t in enumerate([.3, .5]):
        for m in metrics:
            exact = naive.metric(m, y, score, attributes, t, weight=weight.tolist())
            assert equal(table[m].iloc[row], exact), (m, t, table[m].iloc[row], exact)


@given(samples())
@settings(max_examples=25)
def test_by_default_each_unique_score_is_a_threshold_and_nobody(sample):
    y, score, attributes = sample
    table = quiet(sweep, y, score, attributes, ["acc", "dpd+g"])
    assert table.index.tolist() == [*sorted(set(score)), math.inf]
    for t, row in zip(table.index, table.to_numpy()):
        assert equal(row[0], naive.metric("acc", y, score, attributes, t))
        assert equal(row[1], naive.metric("dpd+g", y, score, attributes, t))


def test_a_score_equal_to_the_threshold_is_positive():
    assert sweep([1, 0], [.5, .4], {}, ["tpr", "fpr"], thresholds=[.5]).iloc[0].tolist() == [1, 0]
    assert sweep([1, 0], [.5, .4], {}, ["tpr"], thresholds=[np.nextafter(.5, 1)]).iloc[0].tolist() == [0]


@pytest.mark.parametrize("positives,negatives", [*((p, 3) for p in range(1, 60)), (1, 20), (3, 52), (1, 76), (2, 92), (1, 108)])
def test_perfect_ranking_gives_exactly_one_and_an_operating_point(positives, negatives):
    "Sums of steps such as 9 x 1/9 must not end above 1, or no operating point can hold them."
    n = positives + negatives
    y, score = [0] * negatives + [1] * positives, np.linspace(.01, .99, n)
    table = sweep(y, score, {}, ["roc_auc", "avg_prec"])
    assert (table <= 1).all(axis=None) and table.to_numpy() == pytest.approx(1, abs=TOL)
    scores = Scores({"m": score}, y, {"g": np.resize(["a", "b"], n)})
    assert len(a_posteriori(scores, ["avg_prec", "roc_auc", "dpd+g"])) == n + 1


# Operating points

@st.composite
def systems(draw, models=("a", "b", "c")):
    "Two sets of samples of the same models, with both classes in each group, so that every rate has samples."
    def half():
        y, g = [0, 1, 0, 1] * 2, ["f", "f", "m", "m"] * 2
        extra = draw(st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from("fm")), max_size=5))
        y, g = y + [e[0] for e in extra], g + [e[1] for e in extra]
        one = st.lists(st.integers(0, 8).map(lambda k: k / 8), min_size=len(y), max_size=len(y))
        return Scores({m: draw(one) for m in models}, y, {"g": g})
    return half(), half()


def rows_of(solutions): return list(solutions.frame.itertuples(index=False, name=None))


def decisions(score): return set(score) <= {0., 1.}


@given(systems())
@settings(max_examples=25)
def test_a_posteriori_is_every_model_at_each_of_its_own_thresholds(pair):
    scores, metrics = pair[0], ["acc", "eod+g", "minmaxr+f1+g"]
    found = quiet(a_posteriori, scores, metrics, nan="drop")
    want = []
    for model, score in scores.models.items():
        for t in [.5] if decisions(score) else [*sorted(set(score.tolist())), math.inf]:
            values = [naive.metric(m, scores.y_true.tolist(), score.tolist(), scores.attributes, t) for m in metrics]
            if None not in values: want.append((model, t, *map(float, values)))
    assert found.frame.columns.tolist() == ["model", "threshold", *metrics]
    assert [r[:2] for r in rows_of(found)] == [w[:2] for w in want]
    assert found.points == pytest.approx(np.array([w[2:] for w in want]).reshape(-1, 3), abs=TOL)


@given(systems(), st.sampled_from(["nondominated", "dominated", "all"]), st.permutations(["a", "b", "c"]))
@settings(max_examples=25)
def test_a_priori_is_the_chosen_models_by_name_at_their_thresholds(pair, which, order):
    validation, test = pair
    metrics = ["acc", "dpd+g", "fnr"]
    prior = a_posteriori(validation, metrics)
    shuffled = Scores({m: test.models[m] for m in order}, test.y_true, test.attributes)
    found = a_priori(shuffled, prior, which=which)
    on_front = naive.front([[1 - float(a), float(d), float(f)] for a, d, f in prior.points])
    rows = range(len(prior)) if which == "all" else [i for i in range(len(prior)) if (i in on_front) == (which == "nondominated")]
    want = prior.frame.iloc[list(rows)]
    assert found.frame[["model", "threshold"]].to_numpy().tolist() == want[["model", "threshold"]].to_numpy().tolist()
    for model, t, *values in rows_of(found):
        for m, v in zip(metrics, values):
            assert equal(v, naive.metric(m, test.y_true.tolist(), test.models[model].tolist(), test.attributes, t))


# Fronts and indicators

@st.composite
def clouds(draw, most=9, objectives=(2, 6), parts=(2, 4, 10, 64)):
    "Points on a grid, so that ties, copies and shared coordinates are common; directions."
    N = draw(st.integers(*objectives)); k = draw(st.sampled_from(parts))
    rows = draw(st.lists(st.lists(st.integers(0, k), min_size=N, max_size=N), min_size=1, max_size=most))
    return np.array(rows) / k, draw(st.lists(st.sampled_from(["max", "min"]), min_size=N, max_size=N))


def losses_of(points, directions):
    return [[1 - naive.Fraction(x) if d == "max" else naive.Fraction(x) for x, d in zip(row, directions)] for row in points.tolist()]


@given(clouds())
@settings(max_examples=80)
def test_indicators_are_their_definitions(cloud):
    points, directions = cloud
    losses = losses_of(points, directions)
    rows = naive.front(losses)
    assert np.flatnonzero(nondominated(points, directions)).tolist() == rows
    front = [losses[i] for i in rows]
    found, (OS, AS) = indicators(points, directions), naive.spreads(front)
    assert found["ONVG"] == len(front) and found["ONVGR"] == pytest.approx(len(front) / len(points), abs=TOL)
    assert found["HV"] == pytest.approx(float(naive.hypervolume(front)), abs=TOL)
    assert (found["OS"], found["AS"]) == pytest.approx((float(OS), float(AS)), abs=TOL)
    for sigma in (.01, .25, .5, 1.):
        got = indicators(points.round(12), directions, sigma=sigma)["UD"]
        binary = [[1 - x if d == "max" else x for x, d in zip(row, directions)] for row in points.tolist()]
        assert got == pytest.approx(naive.uniformity([binary[i] for i in rows], sigma), abs=1e-9)


@given(clouds(most=60, objectives=(2, 3), parts=(8, 16, 64)), st.sampled_from([1, 2, 3]))
@settings(max_examples=40)
def test_a_distance_of_exactly_sigma_is_outside_the_niche_also_in_a_deep_tree(cloud, steps):
    "Grid points of 1/64: squared distances are exact, so a strict comparison has no excuse."
    points, directions = np.round(cloud[0] * 64) / 64, ["min"] * len(cloud[1])
    front = [points[i].tolist() for i in naive.front(points.tolist())]
    assert indicators(points, directions, sigma=steps / 64)["UD"] == pytest.approx(naive.uniformity(front, steps / 64), abs=1e-12)


def test_ud_counts_strictly_nearer_points():
    "Three points in a row, exactly sigma apart: no niche has a neighbour; a little wider, the middle has two."
    line = np.array([[0, .5], [.25, .25], [.5, 0]])
    step = math.sqrt(.125)
    assert math.isclose(step, .3535533905932738)
    assert indicators(line, ["min", "min"], sigma=.25)["UD"] == 1
    assert indicators(line, ["min", "min"], sigma=.36)["UD"] == pytest.approx(1 / (1 + math.sqrt(((1 - 4/3)**2 * 2 + (2 - 4/3)**2) / 2)))
    square = np.array([[0, .75], [.25, .5], [.5, .25]])[:, ::-1] * [1, 1]
    assert indicators(np.column_stack([square, [.5] * 3]), ["min"] * 3, sigma=.25)["UD"] == 1


@given(clouds(objectives=(2, 4)), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=30)
def test_other_bounds(cloud, up, down):
    points, directions = cloud
    N = len(directions)
    losses = [[float(x) for x in row] for row in losses_of(points, directions)]
    nadir, ideal = [1 + up / 4 + i / 8 for i in range(N)], [-down / 4 - i / 8 for i in range(N)]
    found = indicators(points, directions, nadir=nadir, ideal=ideal)
    front = [losses[i] for i in naive.front(losses)]
    OS, AS = naive.spreads(front, nadir, ideal)
    assert found["HV"] == pytest.approx(float(naive.hypervolume(front, nadir)), abs=1e-10)
    assert (found["OS"], found["AS"]) == pytest.approx((float(OS), float(AS)), abs=TOL)
    table = quiet(compare, {"s": points}, directions, dedup_eps=None, nadir=nadir, ideal=ideal, axes=["HV", "AS"])
    box = math.prod(r - z for r, z in zip(nadir, ideal))
    assert table.loc["s", "area"] == pytest.approx(found["HV"] / box * found["AS"], abs=TOL)


@given(st.lists(clouds(objectives=(3, 3)), min_size=1, max_size=4))
@settings(max_examples=30)
def test_compare_is_its_definition(several):
    several = [points for points, _ in several]
    directions, most, want = ["max", "min", "max"], 0, {}
    for k, points in enumerate(several):
        kept = points[naive.chained(points.tolist(), 1e-6)]
        want[f"s{k}"] = indicators(kept, directions)
        most = max(most, want[f"s{k}"]["ONVG"])
    table = compare({f"s{k}": p for k, p in enumerate(several)}, directions)
    assert table.columns.tolist() == ["HV", "ONVG", "ONVG_rel", "ONVGR", "UD", "OS", "AS", "area"]
    assert table.index.name == "system"
    for name, w in want.items():
        w["ONVG_rel"] = w["ONVG"] / most
        w["area"] = naive.area([w[a] for a in ("ONVG_rel", "ONVGR", "UD", "AS", "HV")])
        assert table.loc[name].to_dict() == pytest.approx(w, abs=TOL)


# Deduplication

@given(clouds(most=25, objectives=(1, 4), parts=(4, 8, 16, 64)), st.sampled_from([0, 1, 2, 3, 5, 8]))
@settings(max_examples=120)
def test_both_deduplications_are_their_definitions_ties_included(cloud, steps):
    points, eps = np.round(cloud[0] * 64) / 64, steps / 64
    assert np.flatnonzero(quiet(representatives, points, eps=eps)).tolist() == naive.chained(points.tolist(), eps)
    assert np.flatnonzero(representatives(points, eps=eps, method="greedy")).tolist() == naive.greedy(points.tolist(), eps)


@given(clouds(most=25, objectives=(2, 3), parts=(16,)), st.integers(0, 10**6), st.sampled_from(["dbscan", "greedy"]))
@settings(max_examples=40)
def test_kept_points_are_more_than_eps_apart_and_the_rest_are_near(cloud, seed, method):
    points = cloud[0] + np.random.default_rng(seed).uniform(0, 2e-6, cloud[0].shape)
    kept = quiet(representatives, points, method=method)
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    among = apart[np.ix_(kept, kept)]
    assert (among[~np.eye(kept.sum(), dtype=bool)] > 1e-6).all()
    if method == "greedy": assert (apart[:, kept].min(1) <= 1e-6).all()


def test_the_dense_way_finds_the_same_chains(monkeypatch):
    "Where neighbours are too many to be listed, another way is taken; here it is taken always."
    import fairical_nb.dedup as module
    rng = np.random.default_rng(5)
    monkeypatch.setattr(module, "MOST_PAIRS", -10**9)
    for n, N, k in [(60, 2, 16), (60, 3, 8), (90, 2, 32), (40, 1, 64)]:
        points = rng.integers(0, k, (n, N)) / 64
        for eps in (1 / 64, 2 / 64, 3 / 64):
            assert np.flatnonzero(quiet(representatives, points, eps=eps)).tolist() == naive.chained(points.tolist(), eps)


# Radar

@given(st.lists(st.floats(0, 1), min_size=3, max_size=8))
def test_area_is_the_surveyors(values):
    assert radar.area(values) == pytest.approx(naive.area(values), abs=TOL)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=6))
@settings(max_examples=40)
def test_area_in_any_order_is_the_mean_over_all_orders(values):
    from itertools import permutations
    mean = np.mean([naive.area(p) for p in permutations(values)])
    assert radar.area_any_order(values) == pytest.approx(mean, abs=TOL)
