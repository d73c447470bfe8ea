"What every deduplication must keep to."
import re
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from fairical_nb.dedup import representatives

METHODS = pytest.mark.parametrize("method", ["dbscan", "greedy"])
GRIDS = st.integers(1, 4).flatmap(lambda N: st.lists(st.lists(st.integers(0, 16), min_size=N, max_size=N), min_size=1, max_size=40)).map(lambda rows: np.array(rows) / 16)
STEPS = st.integers(0, 6).map(lambda k: k / 16)


def kept(points, **options):
    with warnings.catch_warnings(action="ignore"): return representatives(points, **options)


@METHODS
@given(points=GRIDS, eps=STEPS)
@settings(max_examples=40)
def test_doing_it_again_changes_nothing(method, points, eps):
    once = points[kept(points, eps=eps, method=method)]
    assert kept(once, eps=eps, method=method).all()


@METHODS
@given(points=GRIDS, eps=STEPS)
@settings(max_examples=40)
def test_the_first_row_is_always_kept_and_later_copies_never(method, points, eps):
    mask = kept(points, eps=eps, method=method)
    assert mask.dtype == bool and mask.shape == (len(points),) and mask[0]
    twice = kept(np.vstack([points, points]), eps=eps, method=method)
    assert twice.tolist() == [*mask, *[False] * len(points)]


@given(points=GRIDS, eps=STEPS)
@settings(max_examples=40)
def test_greedy_keeps_at_least_as_many_as_dbscan_and_more_eps_never_keeps_more_clusters(points, eps):
    assert kept(points, eps=eps, method="greedy").sum() >= kept(points, eps=eps).sum()
    assert kept(points, eps=eps + 1 / 16).sum() <= kept(points, eps=eps).sum()


@given(points=GRIDS, eps=STEPS, random=st.randoms())
@settings(max_examples=40)
def test_order_of_rows_does_not_change_the_number_of_clusters(points, eps, random):
    order = list(range(len(points))); random.shuffle(order)
    assert kept(points[order], eps=eps).sum() == kept(points, eps=eps).sum()


@METHODS
@given(points=GRIDS, eps=STEPS)
@settings(max_examples=30)
def test_losses_and_metric_values_give_the_same_rows(method, points, eps):
    assert (kept(1 - points, eps=eps, method=method) == kept(points, eps=eps, method=method)).all()
    assert (kept(points[:, ::-1], eps=eps, method=method) == kept(points, eps=eps, method=method)).all()


@METHODS
@given(points=GRIDS)
@settings(max_examples=30)
def test_eps_zero_merges_exact_copies_only(method, points):
    seen, want = set(), []
    for row in map(tuple, points):
        want.append(row not in seen); seen.add(row)
    assert kept(points, eps=0, method=method).tolist() == want


@METHODS
def test_a_distance_of_exactly_eps_merges(method):
    assert kept([[.25, .5], [.5, .5]], eps=.25, method=method).tolist() == [True, False]
    assert kept([[.25, .5], [.5, .5]], eps=np.nextafter(.25, 0), method=method).tolist() == [True, True]
    assert kept([[0, 0], [3 / 16, 4 / 16]], eps=5 / 16, method=method).tolist() == [True, False]


def test_chains_are_followed_by_dbscan_only():
    line = np.column_stack([np.arange(6) / 8, np.zeros(6)])
    assert kept(line, eps=1 / 8).tolist() == [True] + [False] * 5
    assert kept(line, eps=1 / 8, method="greedy").tolist() == [True, False] * 3


def test_the_chaining_warning_names_the_widest_cluster_and_how_wide():
    near, far = np.arange(15) * 9e-7, .5 + np.arange(101) * 9e-7
    points = np.column_stack([np.append(near, far), np.full(116, .25)])
    with pytest.warns(UserWarning) as said: mask = representatives(np.vstack([[[.1, .9], [.2, .8]], points])) # two rows that stand alone
    assert mask.sum() == 4 and len(said) == 1
    text = str(said[0].message)
    assert re.search(r"\brow 17\b", text) and "101 points" in text and "9e-05" in text and "greedy" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        representatives(points, method="greedy")
        representatives(points[:11]) # 9 eps wide: ten and less is no news
    middle = np.column_stack([np.array([8, *range(8), *range(9, 17)]) * 9e-7, np.zeros(17)]) # the kept row in the middle, 14.4 eps from end to end
    with pytest.warns(UserWarning, match="17 points into row 0.*1.44e-05"): representatives(middle)


@given(angle=st.floats(0, 6.28), wide=st.floats(9.3, 11.5), N=st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_a_cluster_wider_than_ten_eps_is_always_named(angle, wide, N):
    "A star around the kept row: its farthest end is not an end of the widest pair, so two steps from it do not find that pair."
    assume(abs(wide - 10) > 1e-6)
    ends = np.array([[-wide / 2, 0], [wide / 2, 0], [0, 8.2]]) # the sides to the third end stay below 10 up to wide = 11.4
    flat = np.vstack([[[0, 0]], *[np.linspace(0, 1, 20)[1:, None] * e for e in ends]]) @ [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    points = np.column_stack([flat, np.zeros((len(flat), N - 2))]) * 1e-3 + .5
    far = np.linalg.norm(points[:, None] - points, axis=-1).max() / 1e-3
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert representatives(points, eps=1e-3).sum() == 1
    assert [w.category.__name__ for w in said] == ["ChainingWarning"] * int(far > 10)
    if said: assert 10 <= float(re.search(r"= ([\d.]+) eps", str(said[0].message))[1]) <= far + .05


def test_no_warning_for_copies_and_near_copies():
    points = np.random.default_rng(0).random((50, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert representatives(np.vstack([points, points, points + 4e-7])).tolist() == [True] * 50 + [False] * 100


@METHODS
@pytest.mark.parametrize("points", [[], np.empty((0, 2)), np.zeros((1, 1)), np.full((50_000, 2), .5), np.zeros((3, 10))])
def test_small_and_large(method, points):
    assert kept(points, method=method).sum() == min(len(points), 1)


@METHODS
def test_forms_of_input(method):
    points = np.array([[0, 1], [0, 1], [1, 0]])
    frozen = points.astype(float); frozen.flags.writeable = False
    for form in (points, points.tolist(), points.astype(np.float32), points.astype(np.uint8), points.astype(bool), frozen, np.asfortranarray(points)):
        assert kept(form, method=method).tolist() == [True, False, True]
    assert points.tolist() == [[0, 1], [0, 1], [1, 0]]


@pytest.mark.parametrize("points,options,words", [
    ([1, 2], {}, ["(2,)"]), ([[1, np.nan]], {}, ["row 0"]), ([[0, 0], [np.inf, 1]], {}, ["row 1"]), ([[1, 2]], {"eps": -1}, ["eps", "-1"]),
    ([[1, 2]], {"eps": "1"}, ["eps", "'1'"]), ([[1, 2]], {"eps": [1]}, ["eps", "[1]"]), ([["a", 2]], {}, ["points", "numbers", "'a'"]), ([[1, 2], [3]], {}, ["points", "numbers"]),
    ([[1, 2]], {"eps": np.nan}, ["eps", "nan"]), ([[1, 2]], {"method": "kmeans"}, ["kmeans", "dbscan", "greedy"])])
def test_refusals_name_what_came(points, options, words):
    with pytest.raises(ValueError) as e: representatives(points, **options)
    for w in words: assert w in str(e.value)
