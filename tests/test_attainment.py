"Fronts over seeds: attainment surfaces against counting, distances against moocore, pymoo and loops, areas under frontiers against hypervolume and mixing."
import itertools

import moocore
import numpy as np
import pymoo.indicators.igd
import pymoo.indicators.igd_plus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.attainment import attained, attainment, distances, frontier_area, reference_front
from fairical_nb.indicators import indicators

WAYS = {2: [["min", "min"], ["max", "min"], ["max", "max"]], 3: [["min"] * 3, ["max", "min", "max"]]}


def by_counting(sets, need):
    "The definition: goals from all coordinates, those that enough sets attain, the best of them."
    N = next(s.shape[1] for s in sets)
    goals = itertools.product(*(sorted({v for s in sets for v in s[:, j]}) for j in range(N)))
    good = [g for g in goals if sum(any((p <= np.array(g)).all() for p in s) for s in sets) >= need]
    return sorted(g for g in good if not any(h != g and all(a <= b for a, b in zip(h, g)) for h in good))


@st.composite
def seeds(draw):
    N = draw(st.sampled_from([2, 3]))
    points = st.lists(st.tuples(*[st.integers(0, 4)] * N), min_size=0, max_size=4)
    return N, [np.array(p, dtype=float).reshape(-1, N) / 4 for p in draw(st.lists(points, min_size=1, max_size=5))]


@given(seeds(), st.data())
@settings(max_examples=150)
def test_surfaces_as_by_counting(case, data):
    N, sets = case
    ways = data.draw(st.sampled_from(WAYS[N]))
    values = [np.where(np.array(ways) == "max", 1 - s, s) for s in sets]
    levels = [k / len(sets) for k in range(1, len(sets) + 1)]
    found = attainment(dict(enumerate(values)), ways, levels=levels)
    for k, level in enumerate(levels, 1):
        losses = np.where(np.array(ways) == "max", 1 - found[level], found[level])
        assert sorted(map(tuple, losses.round(12))) == by_counting(sets, k)


def test_levels_between_are_rounded_up():
    sets = [np.array([[k / 10, 1 - k / 10]]) for k in range(3)]
    found = attainment(sets, ["min", "min"], levels=[.01, 1/3, .34, .5, 2/3, .67, 1])
    sizes = {k: v.tolist() for k, v in found.items()}
    assert sizes[.01] == sizes[1/3] and sizes[.34] == sizes[.5] == sizes[2/3] and sizes[.67] == sizes[1]


def test_failed_seeds_count_and_inputs_stay():
    sets = {0: np.array([[.1, .2]]), 1: np.empty((0, 2)), 2: np.array([[.3, .1]])}
    before = {k: v.copy() for k, v in sets.items()}
    assert attainment(sets, ["min", "min"], levels=[1])[1].shape == (0, 2)
    assert attainment(sets, ["min", "min"], levels=[2/3])[2/3].tolist() == [[.3, .2]]
    assert all(np.array_equal(sets[k], before[k]) for k in sets)


@pytest.mark.parametrize("call, text", [(lambda: attainment([np.ones((1, 2))], ["min"] * 2, levels=[0]), "above 0 and at most 1, but one is 0"), (lambda: attainment([np.ones((1, 4))], ["min"] * 4), "two or three objectives"),
                                        (lambda: attainment({}, ["min"] * 2), "at least one set"), (lambda: attainment([[[np.nan, 1]]], ["min"] * 2), "finite"), (lambda: attained([np.ones((1, 3))], ["min"] * 3), "stairs need two objectives")])
def test_refusals(call, text):
    with pytest.raises(ValueError, match=text): call()


@pytest.mark.parametrize("N", [2, 3, 4])
def test_distances_as_by_moocore_pymoo_and_loops(N):
    rng = np.random.default_rng(N)
    ways = ["max"] + ["min"] * (N - 1)
    systems = {k: {s: rng.random((15, N)) for s in range(3)} for k in "AB"}
    reference = reference_front(systems, ways)
    table = distances(systems, ways)
    flip = lambda x: np.where(np.array(ways) == "max", 1 - x, x)
    R = flip(reference)
    for (k, s), row in table.iterrows():
        x = flip(systems[k][s])
        assert row["IGD"] == pytest.approx(pymoo.indicators.igd.IGD(R)(x), abs=1e-12) == pytest.approx(moocore.igd(x, ref=R), abs=1e-12)
        assert row["IGD+"] == pytest.approx(pymoo.indicators.igd_plus.IGDPlus(R)(x), abs=1e-12)
        assert row["epsilon"] == pytest.approx(max(min(max(a - b for a, b in zip(p, r)) for p in x) for r in R), abs=1e-12)
        assert 0 <= row["IGD+"] <= row["IGD"] + 1e-12


def test_reference_itself_has_distance_zero_and_no_points_have_none():
    points = np.array([[.2, .6], [.6, .2]])
    table = distances({"S": {"all": points, "none": np.empty((0, 2))}}, ["min", "min"])
    assert table.loc[("S", "all")].tolist() == [0, 0, 0] and table.loc[("S", "none")].isna().all()
    assert distances({"S": [points + .1]}, ["min", "min"], reference=points).loc[("S", 0), "epsilon"] == pytest.approx(.1)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=25), st.sampled_from(WAYS[2]))
@settings(max_examples=150)
def test_frontier_area_is_hypervolume_with_stairs_and_at_least_that_by_lot(points, ways):
    HV = indicators(points, ways)["HV"]
    assert frontier_area(points, ways) == pytest.approx(HV, abs=1e-9)
    assert frontier_area(points, ways, between="lots") >= HV - 1e-9


def test_lots_as_by_mixing_every_pair():
    rng, f = np.random.default_rng(0), np.linspace(0, 1, 4001)
    for _ in range(10):
        x = rng.random((7, 2))
        best = np.zeros_like(f)
        for a, b in itertools.product(x, x):
            for t in np.linspace(0, 1, 201):
                p = t * a + (1 - t) * b
                best = np.where(f >= p[1], np.maximum(best, p[0]), best)
        assert frontier_area(x, ["max", "min"], between="lots") == pytest.approx(np.trapezoid(best, f), abs=4e-3)


def test_weights_move_the_area():
    two = [[.6, .2], [.8, .6]]
    assert frontier_area(two, ["max", "min"], weight=lambda f: 2 * (1 - f)) == pytest.approx(.6 * (.8**2 - .4**2) + .8 * .4**2)
    assert frontier_area(np.empty((0, 2)), ["max", "min"]) == 0
    with pytest.raises(ValueError, match="weight must be"): frontier_area(two, ["max", "min"], weight=lambda f: f - .5)
    with pytest.raises(ValueError, match="must lie in"): frontier_area([[1.5, .2]], ["max", "min"])
