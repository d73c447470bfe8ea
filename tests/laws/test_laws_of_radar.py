"Areas of radar polygons."
import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fairical_nb.radar import area, area_any_order, orders, polygon

UNIT = st.floats(0, 1)
VALUES = st.lists(UNIT, min_size=1, max_size=8)
POSITIVE = st.floats(.01, 100)


@given(VALUES)
def test_bounds(values):
    for f in (area, area_any_order): assert 0 <= f(values) <= 1 + 1e-12
    assert min(values) ** 2 - 1e-12 <= area(values) <= max(values) + 1e-12


@given(st.lists(UNIT, min_size=3, max_size=8), st.integers(0, 7))
def test_rotating_and_reflecting_the_axes_changes_nothing(values, k):
    k %= len(values)
    assert area(values[k:] + values[:k]) == pytest.approx(area(values), abs=1e-12)
    assert area(values[::-1]) == pytest.approx(area(values), abs=1e-12)


@given(st.lists(UNIT, min_size=2, max_size=6), st.randoms())
def test_any_order_is_any_order(values, random):
    other = values[:]; random.shuffle(other)
    assert area_any_order(other) == pytest.approx(area_any_order(values), abs=1e-12)
    assert area_any_order(values) == pytest.approx(np.mean([area([values[i] for i in o]) for o in orders(len(values))]), abs=1e-12)


@given(VALUES, st.integers(0, 7), UNIT)
def test_more_on_an_axis_is_never_less_area(values, k, more):
    k %= len(values)
    better = values[:]; better[k] = max(values[k], more)
    assert area(better) >= area(values) - 1e-12 and area_any_order(better) >= area_any_order(values) - 1e-12


@given(VALUES, POSITIVE)
def test_equal_weights_are_no_weights(values, w):
    for f in (area, area_any_order): assert f(values, weights=[w] * len(values)) == pytest.approx(f(values), abs=1e-12)


@given(st.lists(st.tuples(UNIT, POSITIVE), min_size=3, max_size=6))
def test_weighted_areas_are_their_formulas(pairs):
    r, w = np.array(pairs).T
    i, j = np.arange(len(r)), np.roll(np.arange(len(r)), -1)
    assert area(r, weights=w) == pytest.approx((w[i] * w[j] * r[i] * r[j]).sum() / (w[i] * w[j]).sum(), abs=1e-12)
    both = [(a, b) for a in i for b in i if a < b]
    assert area_any_order(r, weights=w) == pytest.approx(sum(w[a] * w[b] * r[a] * r[b] for a, b in both) / sum(w[a] * w[b] for a, b in both), abs=1e-12)


@given(st.lists(UNIT, min_size=3, max_size=6))
def test_the_polygons_own_area(values):
    x, y = polygon(values).T
    surveyed = abs((x * np.roll(y, -1) - y * np.roll(x, -1)).sum()) / 2
    full = len(values) / 2 * math.sin(2 * math.pi / len(values))
    assert surveyed / full == pytest.approx(area(values), abs=1e-12)
    assert np.hypot(x, y) == pytest.approx(values, abs=1e-12)


def test_full_and_empty():
    for k in range(1, 10):
        assert area([1] * k) == area_any_order([1] * k) == 1
        assert area([0] * k) == area_any_order([0] * k) == 0
    assert area([.5, .5, .5]) == .25 and area([.3]) == .3 and area([.5, .3]) == pytest.approx(.15)
    assert area([1, 0, 1, 0]) == 0 and area_any_order([1, 0, 1, 0]) == pytest.approx(1 / 6)


def test_undefined_in_undefined_out():
    assert math.isnan(area([1, math.nan, .5, 1, 1])) and math.isnan(area_any_order([1, math.nan, .5]))


@pytest.mark.parametrize("k,n", [(3, 1), (4, 3), (5, 12), (6, 60)])
def test_orders_are_all_distinct_orders_of_a_circle(k, n):
    found = orders(k)
    ring = lambda o: min(min(tuple(x[i:] + x[:i]) for i in range(k)) for x in (list(o), list(o)[::-1]))
    assert len(found) == n == len({ring(o) for o in permutations(range(k))}) == len({ring(o) for o in found})


def test_inputs_stay():
    values = np.array([.2, .4, .6]); values.flags.writeable = False
    assert area(values) == area([.2, .4, .6]) and area(np.array([1, 0, 1])) == pytest.approx(1 / 3)


@pytest.mark.parametrize("values,weights,words", [([], None, ["k >= 1"]), ([[.1, .2]], None, ["(1, 2)"]), ([.5, 1.5, .2], None, ["axis 1", "1.5"]), ([-.1, .5, .2], None, ["axis 0"]),
                                                  ([.1, .2, .3], [1, 2], ["3", "(2,)"]), ([.1, .2, .3], [1, -1, 1], ["-1"]), ([.1, .2, .3], [1, 0, 0], ["positive"])])
def test_refusals_name_what_came(values, weights, words):
    for f in (area, area_any_order):
        with pytest.raises(ValueError) as e: f(values, weights=weights)
        for w in words: assert w in str(e.value)
