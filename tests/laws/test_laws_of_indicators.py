"What must hold for every set of operating points, whatever the numbers."
import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from fairical_nb import indicators as module
from fairical_nb.dominance import minimised
from fairical_nb.indicators import compare, indicators, nondominated
from fairical_nb.tables import formatted

NAMES = ["HV", "ONVG", "ONVGR", "UD", "OS", "AS"]
UNIT = st.integers(0, 8).map(lambda k: k / 8) # with grids of powers of two, 1 - x and these steps are exact


@st.composite
def clouds(draw, most=30, least=1):
    N = draw(st.integers(2, 6))
    grid = draw(st.sampled_from([4, 32, 1024]))
    rows = draw(st.lists(st.lists(st.integers(0, grid), min_size=N, max_size=N), min_size=least, max_size=most))
    return np.array(rows, dtype=float) / grid, draw(st.lists(st.sampled_from(["max", "min"]), min_size=N, max_size=N))


def same(a, b): assert a == pytest.approx(b, abs=1e-12, nan_ok=True)
def from_losses(losses, directions): return np.where(np.array(directions) == "max", 1 - losses, losses)


@given(clouds(), st.randoms())
@settings(max_examples=60)
def test_order_of_points_does_not_matter(cloud, random):
    points, directions = cloud
    order = list(range(len(points))); random.shuffle(order)
    same(indicators(points[order], directions), indicators(points, directions))
    assert (nondominated(points[order], directions) == nondominated(points, directions)[order]).all()


@given(clouds(), st.randoms())
@settings(max_examples=40)
def test_order_of_objectives_does_not_matter(cloud, random):
    points, directions = cloud
    order = list(range(len(directions))); random.shuffle(order)
    same(indicators(points[:, order], [directions[i] for i in order]), indicators(points, directions))


@given(clouds())
@settings(max_examples=40)
def test_maximising_x_is_minimising_its_complement(cloud):
    points, directions = cloud
    other = ["min" if d == "max" else "max" for d in directions]
    same(indicators(1 - points, other), indicators(points, directions))
    assert minimised(points, directions) == pytest.approx(minimised(1 - points, other))


@given(clouds(), st.lists(UNIT, min_size=6, max_size=6), st.integers(0, 29))
@settings(max_examples=80)
def test_a_dominated_point_leaves_hv_ud_os_as_and_lowers_onvgr(cloud, step, row):
    points, directions = cloud
    losses = minimised(points, directions)
    worse = losses[row % len(losses)] + np.array(step[:losses.shape[1]]) * (1 - losses[row % len(losses)])
    assume((worse > losses[row % len(losses)] + 1e-9).any())
    more = np.vstack([points, from_losses(worse, directions)])
    before, after = indicators(points, directions), indicators(more, directions)
    same({k: after[k] for k in ("HV", "UD", "OS", "AS", "ONVG")}, {k: before[k] for k in ("HV", "UD", "OS", "AS", "ONVG")})
    assert after["ONVGR"] < before["ONVGR"]


@given(clouds(), st.lists(UNIT, min_size=6, max_size=6), st.integers(0, 29))
@settings(max_examples=80)
def test_a_dominating_point_never_lowers_hv(cloud, step, row):
    points, directions = cloud
    losses = minimised(points, directions)
    better = losses[row % len(losses)] * np.array(step[:losses.shape[1]])
    more = np.vstack([points, from_losses(better, directions)])
    assert indicators(more, directions)["HV"] >= indicators(points, directions)["HV"] - 1e-12
    table = compare({"before": points, "after": more}, directions)
    assert table.loc["after", "HV"] >= table.loc["before", "HV"] - 1e-12


@given(clouds(), clouds())
@settings(max_examples=40)
def test_hv_of_a_union_is_at_least_each_and_at_most_the_sum(one, two):
    N = min(one[0].shape[1], two[0].shape[1])
    a, b, directions = one[0][:, :N], two[0][:, :N], one[1][:N]
    ha, hb, both = (indicators(p, directions)["HV"] for p in (a, b, np.vstack([a, b])))
    assert max(ha, hb) - 1e-12 <= both <= ha + hb + 1e-12


@given(clouds(), st.floats(1e-4, 2))
@settings(max_examples=60)
def test_bounds(cloud, sigma):
    points, directions = cloud
    found = indicators(points, directions, sigma=sigma)
    assert list(found) == NAMES
    for name in ("HV", "ONVGR", "UD", "OS", "AS"): assert 0 <= found[name] <= 1, name
    assert 1 <= found["ONVG"] <= len(points) and found["ONVGR"] > 0 and found["UD"] > 0
    assert found["OS"] <= found["AS"] + 1e-12


@given(clouds())
@settings(max_examples=40)
def test_copies_count_in_indicators_and_not_in_compare(cloud):
    points, directions = cloud
    twice = np.vstack([points, points])
    once, both = indicators(points, directions), indicators(twice, directions)
    assert both["ONVG"] == 2 * once["ONVG"]
    same({k: both[k] for k in ("HV", "OS", "AS", "ONVGR")}, {k: once[k] for k in ("HV", "OS", "AS", "ONVGR")})
    same(compare({"s": twice}, directions).loc["s"].to_dict(), compare({"s": points}, directions).loc["s"].to_dict())


@given(st.lists(clouds(most=12), min_size=2, max_size=4), st.randoms())
@settings(max_examples=30)
def test_compare_does_not_depend_on_names_or_their_order(several, random):
    N = min(p.shape[1] for p, _ in several)
    systems = {f"s{k}": p[:, :N] for k, (p, _) in enumerate(several)}
    directions = several[0][1][:N]
    table = compare(systems, directions)
    names = list(systems); random.shuffle(names)
    other = compare({f"new {n}": systems[n] for n in names}, directions)
    for n in names: same(other.loc[f"new {n}"].to_dict(), table.loc[n].to_dict())
    assert list(other.index) == [f"new {n}" for n in names]
    assert table["ONVG_rel"].max() == 1
    assert ((table["area"] >= 0) & (table["area"] <= 1 + 1e-12)).all()


@given(clouds(most=12), clouds(most=12))
@settings(max_examples=30)
def test_another_system_moves_only_the_relative_onvg_and_the_area(one, two):
    N = min(one[0].shape[1], two[0].shape[1])
    a, b, directions = one[0][:, :N], two[0][:, :N], one[1][:N]
    alone, beside = compare({"a": a}, directions), compare({"a": a, "b": b}, directions)
    columns = ["HV", "ONVG", "ONVGR", "UD", "OS", "AS"]
    same(beside.loc["a", columns].to_dict(), alone.loc["a", columns].to_dict())
    assert beside.loc["a", "area"] <= alone.loc["a", "area"] + 1e-12


# Forms of input

@given(clouds())
@settings(max_examples=20)
def test_input_stays_as_it_was_and_may_be_read_only(cloud):
    points, directions = cloud
    before, frozen = points.copy(), points.copy()
    frozen.flags.writeable = False
    same(indicators(frozen, tuple(directions)), indicators(points, directions))
    compare({"s": frozen}, directions); nondominated(frozen, directions); minimised(frozen, directions)
    assert (points == before).all() and (frozen == before).all()
    same(indicators(points.tolist(), directions), indicators(points, directions))
    same(indicators(np.asfortranarray(points), directions), indicators(points, directions))
    same(indicators(np.repeat(points, 2, axis=0)[::2], directions), indicators(points, directions))


def test_minimised_gives_a_new_array():
    points = np.array([[.2, .3]])
    minimised(points, ["min", "min"])[:] = 9
    assert points.tolist() == [[.2, .3]]


def test_integers_and_single_precision():
    corners = [[0, 1], [1, 0], [1, 1]]
    same(indicators(np.array(corners, dtype=np.int32), ["min", "min"]), indicators(np.array(corners, dtype=float), ["min", "min"]))
    same(indicators(np.array(corners, dtype=bool), ["min", "min"]), indicators(np.array(corners, dtype=float), ["min", "min"]))
    halves = np.array([[.25, .5], [.5, .125], [.75, .75]], dtype=np.float32)
    same(indicators(halves, ["max", "min"]), indicators(halves.astype(float), ["max", "min"]))


def test_a_table_is_a_set_of_points():
    import pandas as pd
    points = np.random.default_rng(0).random((20, 3))
    same(indicators(pd.DataFrame(points, index=range(5, 25)), ["max", "min", "max"]), indicators(points, ["max", "min", "max"]))


# Sizes

@pytest.mark.parametrize("N", range(2, 11))
def test_two_to_ten_objectives(N):
    rng = np.random.default_rng(N)
    points = rng.random((12, N))
    found = indicators(points, ["max", "min"] * (N // 2) + ["max"] * (N % 2))
    losses = minimised(points, ["max", "min"] * (N // 2) + ["max"] * (N % 2))
    below = rng.random((40_000, N))
    share = (below[:, None, :] >= losses).all(-1).any(1).mean()
    assert found["HV"] == pytest.approx(share, abs=.02)
    assert indicators(np.full((3, N), .5), ["min"] * N)["HV"] == pytest.approx(.5 ** N)


@pytest.mark.parametrize("n", [1, 2, 10, 100, 2_000, 100_000])
def test_one_to_a_hundred_thousand_points(n):
    t = np.linspace(0, 1, n) if n > 1 else np.array([.5])
    line = np.column_stack([t, 1 - t])
    found = indicators(line, ["min", "min"], sigma=1e-7)
    assert found["ONVG"] == n and found["ONVGR"] == 1 and found["UD"] == 1
    assert found["HV"] == pytest.approx(.25 if n == 1 else .5 - .5 / (n - 1))
    assert found["OS"] == (0 if n == 1 else 1)
    assert indicators(line, ["max", "min"])["ONVG"] == 1


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_all_points_equal(n):
    points = np.full((n, 3), .25)
    found = indicators(points, ["min"] * 3)
    same(found, dict(HV=.75 ** 3, ONVG=n, ONVGR=1, UD=1, OS=0, AS=0))
    table = compare({"s": points}, ["min"] * 3)
    same(table.loc["s"].to_dict(), dict(HV=.75 ** 3, ONVG=1, ONVG_rel=1, ONVGR=1, UD=1, OS=0, AS=0, area=(1 + 1 + 0 + 0 + .75 ** 3) / 5))


def test_the_corners_of_the_square():
    assert indicators([[1, 1]], ["min", "min"])["HV"] == 0
    assert indicators([[1, 1]], ["max", "max"])["HV"] == 1
    assert indicators([[0, 1], [1, 0]], ["min", "min"])["HV"] == 0


@pytest.mark.parametrize("nothing", [[], np.empty((0, 2)), np.empty((0, 2), dtype=int)])
def test_no_points(nothing):
    same(indicators(nothing, ["max", "min"]), dict(HV=0, ONVG=0, ONVGR=math.nan, UD=math.nan, OS=math.nan, AS=math.nan))
    assert nondominated(nothing, ["max", "min"]).tolist() == []
    with pytest.warns(UserWarning, match="nothing"): table = compare({"nothing": nothing, "one": [[.9, .1]]}, ["max", "min"])
    assert table.loc["nothing", ["HV", "ONVG", "ONVG_rel"]].tolist() == [0, 0, 0] and math.isnan(table.loc["nothing", "area"])
    assert table.loc["one", "area"] == pytest.approx((1 + 1 + 0 + 0 + .81) / 5)
    with pytest.warns(UserWarning): assert compare({"nothing": nothing}, ["max", "min"])["ONVG_rel"].tolist() == [0]


def test_paper_example_of_unequal_fronts():
    "A front point with a copy less than eps away counts once, and relative to the largest front."
    table = compare({"a": [[.9, .5], [.9, .5 + 1e-7], [.5, .1]], "b": [[.8, .3]]}, ["max", "min"])
    assert table["ONVG"].tolist() == [2, 1] and table["ONVG_rel"].tolist() == [1, .5]


# Options of compare

POINTS = {"a": [[.9, .5], [.6, .1], [.5, .5]], "b": [[.8, .2]]}
WAYS = ["max", "min"]


def test_weights_of_one_are_no_weights():
    plain = compare(POINTS, WAYS)["area"].tolist()
    assert compare(POINTS, WAYS, weights=[1] * 5)["area"].tolist() == pytest.approx(plain)
    assert compare(POINTS, WAYS, weights={"HV": 1})["area"].tolist() == pytest.approx(plain)
    assert compare(POINTS, WAYS, weights=[7] * 5)["area"].tolist() == pytest.approx(plain)


def test_a_left_out_axis_leaves_the_polygon_and_is_not_weight_zero():
    left = compare(POINTS, WAYS, leave_out=["UD"])["area"]
    assert left.tolist() == compare(POINTS, WAYS, axes=("ONVG_rel", "ONVGR", "AS", "HV"))["area"].tolist()
    assert left["a"] != pytest.approx(compare(POINTS, WAYS, weights={"UD": 0})["area"]["a"], abs=1e-3)


def test_the_order_of_axes_matters_to_the_area_only():
    one, other = compare(POINTS, WAYS), compare(POINTS, WAYS, axes=("HV", "UD", "ONVG_rel", "AS", "ONVGR"))
    columns = ["HV", "ONVG", "ONVG_rel", "ONVGR", "UD", "OS", "AS"]
    for s in POINTS: same(other.loc[s, columns].to_dict(), one.loc[s, columns].to_dict())
    assert other.loc["a", "area"] != pytest.approx(one.loc["a", "area"], abs=1e-6)


def test_uninformative_axes_can_be_left_out():
    table = compare(POINTS, WAYS, leave_out="uninformative")
    assert table.loc["b", "area"] == pytest.approx((.5 * 1 + 1 * .64 + .64 * .5) / 3)
    assert compare({"a": POINTS["a"]}, WAYS, leave_out="uninformative")["area"].tolist() == compare({"a": POINTS["a"]}, WAYS)["area"].tolist()


def test_two_axes_give_their_product_and_one_its_value():
    table = compare(POINTS, WAYS, axes=["HV", "ONVGR"])
    assert table["area"].tolist() == pytest.approx((table["HV"] * table["ONVGR"]).tolist())
    assert compare(POINTS, WAYS, axes=["HV"])["area"].tolist() == pytest.approx(table["HV"].tolist())


@pytest.mark.parametrize("eps,kept", [(1e-6, 2), (0, 2), (None, 3), (.5, 1)])
def test_dedup_eps(eps, kept):
    points = [[.9, .5], [.9, .5], [.5, .1 + .1]]
    assert compare({"a": points}, WAYS, dedup_eps=eps)["ONVG"].tolist() == [kept]


def test_a_registered_indicator_is_an_axis():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("INDICATORS",): patch.setattr(module, name, dict(getattr(module, name)))
        module.register_indicator("nearest", lambda front, points, nadir, ideal: np.linalg.norm(front - ideal, axis=1).min(), "min", (0, math.sqrt(2)))
        table = compare(POINTS, WAYS, axes=["HV", "nearest"])
        want = math.hypot(.2, .2)
        assert table.loc["b", "nearest"] == pytest.approx(want)
        assert table.loc["b", "area"] == pytest.approx(.64 * (1 - want / math.sqrt(2)))


@pytest.mark.parametrize("fmt", ["text", "markdown", "latex", "html", "tsv", "pipe"])
def test_every_format_holds_every_number(fmt):
    text = formatted(compare(POINTS, WAYS), fmt, digits=3)
    assert text.count("0.640") == 1 and "ONVG" in text


# What is refused

@pytest.mark.parametrize("points,directions,options,words", [
    ([[.5, math.nan]], WAYS, {}, ["row 0", "nan"]),
    ([[.5, .5], [.5, math.inf]], WAYS, {}, ["row 1", "inf"]),
    ([[.5, 1.5]], WAYS, {}, ["row 0", "1.5", "nadir"]),
    ([[.5], [.6]], ["min"], {}, ["two"]),
    ([[.5, .6, .7]], WAYS, {}, ["(n, 2)"]),
    ([.5, .6], WAYS, {}, ["(2,)"]),
    ([[.5, .6]], ["max", "up"], {}, ["up"]),
    ([[.5, .6]], "max", {}, ["directions", "a list", "'max'"]),
    ([[.5, .6]], None, {}, ["directions", "a list", "None"]),
    ([[.5, .6]], 2, {}, ["directions", "a list", "2"]),
    ([[.5, .6]], WAYS, {"sigma": 0}, ["sigma", "0"]),
    ([[.5, .6]], WAYS, {"sigma": math.nan}, ["sigma", "nan"]),
    ([[.5, .6]], WAYS, {"sigma": "a"}, ["sigma", "'a'"]),
    ([[.5, .6]], WAYS, {"sigma": [.1, .1]}, ["sigma", "[0.1, 0.1]"]),
    ([[.5, .6]], WAYS, {"nadir": "one"}, ["nadir", "'one'"]),
    (np.empty((0, 3)), WAYS, {}, ["(n, 2)", "(0, 3)"]), # no rows, and yet not of these objectives
    (np.empty((5, 0)), WAYS, {}, ["(n, 2)", "(5, 0)"]), # five rows of nothing are not "no rows"
    ([[]], WAYS, {}, ["(n, 2)", "(1, 0)"]),
    ([["a", .5]], WAYS, {}, ["points", "numbers", "'a'"]),
    ([[.5, .6], [.7]], WAYS, {}, ["points", "numbers"]),
    ([[.5, .6]], WAYS, {"nadir": [1, 1, 1]}, ["nadir", "2"]),
    ([[.5, .6]], WAYS, {"nadir": 0}, ["nadir"]),
    ([[.5, .6]], WAYS, {"nadir": math.inf, "ideal": 0}, ["nadir"]),
])
def test_refusals_name_what_came(points, directions, options, words):
    with pytest.raises(ValueError) as e: indicators(points, directions, **options)
    for w in words: assert w in str(e.value)


@pytest.mark.parametrize("systems,options,words", [
    ({}, {}, ["system"]),
    ({"first": [[.5, .5]], "broken": [[.5, math.nan]]}, {}, ["broken", "row 0"]),
    (POINTS, {"axes": ["HV", "XX"]}, ["XX"]),
    (POINTS, {"axes": "HV"}, ["axes", "a list", "'HV'"]),
    (POINTS, {"axes": None}, ["axes", "a list", "None"]),
    (POINTS, {"leave_out": ["XX"]}, ["XX"]),
    (POINTS, {"weights": {"XX": 1}}, ["XX"]),
    (POINTS, {"weights": [1, 2]}, ["weight", "5"]),
    (POINTS, {"weights": [-1] * 5}, ["weight"]),
    (POINTS, {"leave_out": list(module.AXES)}, ["leave"]),
    (POINTS, {"dedup_eps": -1}, ["eps", "-1"]),
    (POINTS, {"dedup_method": "kmeans"}, ["kmeans"]),
])
def test_refusals_of_compare(systems, options, words):
    with pytest.raises(ValueError) as e: compare(systems, WAYS, **options)
    for w in words: assert w in str(e.value)


def test_a_front_wider_than_the_bounds_is_explained():
    "AS is 2 there: the message names the system and the axis, or the radius is cut to 1."
    try: area = compare({"wide": [[0, 1], [1, 0]]}, ["min", "min"], nadir=.5, ideal=0)["area"]["wide"]
    except ValueError as e: assert "wide" in str(e) and "AS" in str(e)
    else: assert 0 <= area <= 1


def test_nothing_is_warned_of_on_plain_input():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(POINTS, WAYS); indicators(POINTS["a"], WAYS); indicators([[.5, .5]], WAYS)
