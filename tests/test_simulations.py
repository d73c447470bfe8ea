"Constructed systems: targets that were never printed, every target that was, what cannot be had, and the use cases' notebook."
import copy
import itertools
import json

import numpy as np
import pytest
from fairical_nb.bows import bow, crowd, sides, slide
from fairical_nb.dedup import representatives
from fairical_nb.files import root
from fairical_nb.indicators import compare, indicators
from fairical_nb.niches import chains, layout, niche_counts, reachable_ud, room
from fairical_nb.requests import request, sizes_for, span
from fairical_nb.simulations import construct
from hypothesis import given, settings
from hypothesis import strategies as st

import naive

TWO = ["max", "min"]
ASKED = ("ONVG", "HV", "AS", "OS", "UD")


def random_system(seed):
    "Points of one of six kinds: anywhere, on a grid, clumped along a bow, in a tiny box, from edge to edge, many."
    rng = np.random.default_rng(seed)
    kind, n = rng.integers(6), int(rng.integers(1, 40))
    box = rng.uniform(.001, .03, 2) if kind == 3 else np.ones(2) if kind == 4 else rng.uniform(.1, .9, 2)
    if kind < 2: return rng.random((n, 2)) if kind else np.unique(rng.random((n, 2)).round(1), axis=0)
    at = rng.random(8 * n if kind == 5 else n)
    if kind == 2: at = np.clip(rng.choice(rng.random(5), n) + rng.normal(0, .004, n), 0, 1)
    if kind == 4: at = np.append(at, [0, 1])
    points = bow(rng.uniform(-.95, .95), box)[(4000 * at).astype(int)] + rng.random(2) * (1 - box)
    return np.unique(np.where([True, False], 1 - points, points), axis=0)


def check(points, wanted, directions=TWO, **settings):
    "The points have what was wanted, and are what they are said to be."
    found = indicators(points, directions, **settings)
    for key, target in wanted.items():
        if key == "points": assert len(points) == target
        elif isinstance(target, str): assert f"{found[key]:.{len(target.partition('.')[2])}f}" == target, (key, found[key])
        else: assert found[key] == pytest.approx(target, abs=2e-9), key
    assert points.min() >= 0 and points.max() <= 1
    assert representatives(points, eps=1e-6).all()
    losses = np.where([d == "max" for d in directions], 1 - points, points).tolist()
    assert sum(any(naive.dominates(a, b) for a in losses) for b in losses) == len(points) - found["ONVG"]
    table = compare({"it": points}, directions, **settings).loc["it"]
    assert {k: table[k] for k in found} == found


# Never printed

@pytest.mark.parametrize("seed", range(10))
def test_ten_random_systems_are_met_exactly_by_three_seeds(seed):
    system = random_system(100 + seed)
    found = indicators(system, TWO)
    wanted = {k: found[k] for k in ASKED} | {"points": len(system)}
    made = [construct(wanted, seed=s) for s in (0, 1, 2)]
    for points in made: check(points, wanted)
    assert not np.allclose(made[0], made[1])


@settings(max_examples=60)
@given(st.integers(1000, 10**9), st.sets(st.sampled_from(["HV", "AS", "OS", "UD"])), st.booleans(), st.sampled_from([.01, .05, .002]))
def test_any_part_of_what_a_random_system_has(seed, keys, exact, sigma):
    system = random_system(seed)
    found = indicators(system, TWO, sigma=sigma)
    wanted = {k: found[k] if exact else f"{found[k]:.2f}" for k in sorted(keys)} | {"ONVG": found["ONVG"], "points": len(system)}
    check(construct(wanted, seed=seed, sigma=sigma), wanted, sigma=sigma)


@settings(max_examples=25)
@given(st.integers(0, 10**9), st.integers(3, 5))
def test_more_than_two_objectives(seed, N):
    rng = np.random.default_rng(seed)
    system = rng.random((int(rng.integers(1, 50)), N)) if rng.random() < .5 else .3 + .5 * rng.dirichlet(np.ones(N), 25)
    ways = list(rng.choice(["max", "min"], N))
    losses = np.where([w == "max" for w in ways], 1 - system, system)
    found = indicators(losses, ["min"] * N)
    wanted = {k: f"{found[k]:.2f}" for k in ("HV", "AS", "UD")} | {"ONVG": found["ONVG"], "points": len(system)}
    check(construct(wanted, directions=ways, seed=seed), wanted, ways)


# Printed

PRINTED = {
    "fig5 System1": {"ONVG": 10, "UD": "0.54", "OS": "0.45"}, "fig5 System2": {"ONVG": 13, "UD": "0.64", "OS": "0.05"},
    "fig5 System1 with five points": {"ONVG": 5, "UD": "0.54", "OS": "0.45"},
    "fig7 System1": {"ONVG": 8, "HV": "0.55"}, "fig7 System2": {"ONVG": 8, "HV": "0.21"},
    "fig8 System1": {"ONVG": 8, "ONVGR": "0.80"}, "fig8 System2": {"ONVG": 2, "ONVGR": "0.67"},
    "table9b System1": {"ONVG": 116, "points": 129, "HV": .9345, "AS": .8945, "UD": "0.8451", "ONVGR": "0.90"},
    "table9b System2": {"ONVG": 58, "points": 387, "HV": "0.18", "AS": "0.14", "UD": "0.07", "ONVGR": "0.15"},
    "table10b System1": {"ONVG": 1, "ONVGR": "0.50", "HV": "0.35", "AS": "0.00", "UD": "1.00"},
    "table10b System2": {"ONVG": 1, "ONVGR": "0.50", "HV": "0.04", "AS": "0.00", "UD": "1.00"},
    "table11b System1": {"ONVG": 1, "ONVGR": "0.50", "HV": "0.24", "AS": "0.00", "UD": "1.00"},
    "table11b System2": {"ONVG": 8, "ONVGR": "0.89", "HV": "0.09", "AS": "0.26", "UD": "1.00"},
    "table12b System1": {"ONVG": 10, "ONVGR": "0.91", "HV": "0.54", "AS": "0.46", "UD": "1.00"},
    "table12b System2": {"ONVG": 6, "ONVGR": "0.86", "HV": "0.02", "AS": "0.18", "UD": "1.00"},
}


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("seed", range(3))
def test_printed(name, seed):
    check(construct(PRINTED[name], seed=seed), PRINTED[name])


def test_table9b_areas():
    systems = {s: construct(PRINTED[f"table9b {s}"], seed=5) for s in ("System1", "System2")}
    assert [f"{a:.2f}" for a in compare(systems, TWO).area] == ["0.84", "0.04"]


def test_what_the_fitted_point_sets_have(root):
    files = sorted((root / "tests" / "data" / "fits").glob("*.json"))
    assert len(files) == 7
    for file in files:
        for system in json.loads(file.read_text())["systems"].values():
            points = np.array([system["points"][m] for m in ("acc", "eod+gender")]).T
            found = indicators(points, TWO)
            wanted = {k: found[k] for k in ASKED} | {"points": len(points)}
            check(construct(wanted, seed=1), wanted)


# What it promises

def test_same_seed_same_points_and_the_wish_is_left_alone():
    wanted = {"ONVG": 7, "points": 12, "HV": (.4, .5), "UD": "1.00"}
    before = copy.deepcopy(wanted)
    a, b = construct(wanted, seed=3), construct(wanted, seed=3)
    assert wanted == before and np.array_equal(a, b)
    assert .4 <= indicators(a, TWO)["HV"] <= .5


@pytest.mark.parametrize("wanted, says", [
    ({}, "targets need ONVG"), ({"ONVG": 2.5}, "whole number"), ({"ONVG": 0}, ">= 1"), ({"ONVG": 3, "Hv": 1}, "'Hv'"),
    ({"ONVG": 3, "points": 2}, "at least ONVG = 3"), ({"ONVG": 3, "points": 4, "ONVGR": "0.50"}, "3 / 4 = 0.75"),
    ({"ONVG": 3, "HV": "nan"}, "finite"), ({"ONVG": 3, "HV": (.5, .4)}, "lowest first"), ({"ONVG": 3, "HV": None}, "a target is"),
    ({"ONVG": 1, "UD": "0.80"}, "1 front point has UD = 1"), ({"ONVG": 1, "OS": .1}, "OS = 0"), ({"ONVG": 2, "AS": 0}, "between 0 and 1"),
    ({"ONVG": 3, "HV": 1}, "between 0 and 1"), ({"ONVG": 3, "HV": -.2}, "between 0 and 1"), ({"ONVG": 5, "AS": 1.3}, "between 0 and 1"),
    ({"ONVG": 3, "AS": .9, "OS": .7}, "between 0.8 and 0.81"), ({"ONVG": 3, "AS": .4, "OS": .2}, "between 0 and 0.16"),
    ({"ONVG": 2, "HV": .5, "AS": .9}, "at most 0.2"), ({"ONVG": 2, "UD": "0.90"}, "1.0000"), ({"ONVG": 3, "UD": "0.80"}, "0.6340 and 1.0000"),
    ({"ONVG": 101, "UD": 1, "AS": .1}, "no chain of 101 points"), ({"ONVG": 3, "HV": .9, "OS": .25, "UD": "0.63"}, "HV 0.9 was not reached"),
])
def test_what_cannot_be_had_is_refused_with_the_bound(wanted, says):
    with pytest.raises(ValueError) as error: construct(wanted)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("wanted", [
    {"ONVG": 1, "HV": 0, "points": 4}, {"ONVG": 1, "HV": 1}, {"ONVG": 1, "HV": 1, "points": 3}, {"ONVG": 2, "HV": 0, "points": 4}, {"ONVG": 2, "HV": .2, "AS": .9},
    {"ONVG": 2, "HV": .9999}, {"ONVG": 5, "AS": 1, "HV": .37}, {"ONVG": 5, "OS": 1}, {"ONVG": 40, "AS": .001}, {"ONVG": 3, "HV": "1.00", "AS": "0.00"},
    {"ONVG": 300, "UD": "0.50"}, {"ONVG": 30, "HV": .999, "AS": .99}, {"ONVG": 9, "HV": .001, "AS": .9}])
def test_the_edges_of_what_can_be_had(wanted):
    check(construct(wanted), wanted)


# The parts

@pytest.mark.parametrize("n", range(1, 7))
def test_reachable_ud_is_what_points_on_a_line_have(n):
    rng, seen = np.random.default_rng(n), set()
    for _ in range(4000):
        x = np.sort(rng.uniform(0, rng.uniform(.3, 1.2 * n), n))
        counts = (abs(x[:, None] - x) < 1).sum(axis=1) - 1
        seen.add(round(1 / (1 + np.std(counts, ddof=1)) if n > 1 else 1, 9))
    listed = set(reachable_ud(n).round(9))
    assert seen <= listed and len(seen) >= .9 * len(listed)


@settings(max_examples=50)
@given(st.integers(2, 60), st.floats(.05, 1), st.floats(1.5, 200), st.integers(0, 10**6))
def test_layouts_have_the_wanted_ud_and_fit(n, ud, length, seed):
    reach = layout(n, (ud - .01, ud + .01), length, np.random.default_rng(seed), steps=500)
    if reach is None: return
    assert ud - .01 <= 1 / (1 + np.std(niche_counts(reach), ddof=1)) <= ud + .01
    assert all(i <= r for i, r in enumerate(reach)) and np.all(np.diff(reach) >= 0) and reach[-1] == n - 1
    least, most = room(reach)
    assert least <= length <= most


def test_chains_are_all_of_them():
    every = [list(r) for r in itertools.product(range(4), repeat=4) if all(i <= x for i, x in enumerate(r)) and list(r) == sorted(r)]
    assert sorted(chains(4)) == sorted(every)


@settings(max_examples=100)
@given(st.floats(.01, 1), st.integers(2, 5), st.floats(0, 1))
def test_sides_have_their_mean_and_product(AS, n, share):
    least = np.prod(np.clip(AS * n - np.arange(n), 0, 1))
    OS = least + share * (AS**n - least)
    box = sides(AS, n, OS=OS)
    if box is None: assert OS == 0
    else: assert np.mean(box) == pytest.approx(AS) and np.prod(box) == pytest.approx(OS, rel=1e-6, abs=1e-12) and box.max() <= 1 + 1e-12


@settings(max_examples=40)
@given(st.floats(-.9999, .9999), st.integers(2, 4), st.floats(.01, .99), st.integers(0, 10**6))
def test_slide_and_crowd_keep_the_front(bend, N, HV, seed):
    start = bow(bend, np.full(N, .4), steps=9)
    front, least, most = slide([start, start + .6], HV)
    assert (front is None) == (not least <= HV <= most)
    if front is None: return
    points = crowd(front, 5, np.random.default_rng(seed))
    found = indicators(points, ["min"] * N)
    assert found["ONVG"] == 9 and found["HV"] == pytest.approx(HV) and found["AS"] == pytest.approx(.4)
    assert np.array_equal(points[:9], front)


def test_requests_read_printed_numbers():
    assert span("0.35") == pytest.approx((.345, .355, .35)) and span("1") == pytest.approx((.5, 1.5, 1)) and span(np.float64(.2)).aim == .2
    assert sizes_for("0.12", most=8) == [(1, 8)]  # 0.125 goes to the even digit
    assert all(f"{n / m:.2f}" == "0.89" for n, m in sizes_for("0.89", most=60)) and (8, 9) in sizes_for("0.89")
    assert request({"ONVG": 58, "ONVGR": "0.15"}).total == 375


# The notebook of the use cases

paper = pytest.importorskip("fairical_nb.paper")


def run(tmp_path, name, **parameters):
    notebook = root() / "nbs" / "paper" / "use_case.ipynb"
    paper.execute(notebook, paper.checked_parameters(notebook, parameters | {"out": str(tmp_path / name)}), tmp_path / f"{name}.ipynb")
    return {f.name: f.read_bytes() for f in sorted((tmp_path / name).iterdir())}


@pytest.mark.parametrize("use_case, sizes", [(1, [2, 2]), (2, [2, 9]), (3, [11, 7])])
def test_use_cases_agree_to_every_printed_digit(tmp_path, use_case, sizes):
    files = run(tmp_path, "a", use_case=use_case)
    figure, table = f"fig{9 + use_case}", f"table{9 + use_case}b"
    assert set(files) == {f"{figure}.{e}" for e in ("csv", "json", "png", "svg")} | {f"{table}.csv", f"{table}.json", f"{table}_published.csv"}
    said = {name: json.loads(files[f"{name}.json"]) for name in (figure, table)}
    assert all(s["data"] == "constructed" and "not published" in s["remarks"] for s in said.values())
    rows = said[table]["tables"]["published"]
    assert len(rows) == 12 and {(r["system"], r["indicator"]) for r in rows} == {(s, i) for s in ("System1", "System2") for i in ("HV", "ONVG_rel", "ONVGR", "UD", "AS", "area")}
    assert all(f"{r['ours']:.2f}" == r["published"] and r["verdict"] == "equal to the printed digits" for r in rows)
    points = said[figure]["tables"][figure]
    assert [sum(p["system"] == s for p in points) for s in ("System1", "System2")] == sizes
    assert b"constructed" in files[f"{figure}.svg"]


def test_use_case_is_the_same_twice_and_other_points_for_another_seed(tmp_path):
    first, again, other = (run(tmp_path, name, use_case=2, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert first == again and first["fig11.csv"] != other["fig11.csv"]
    printed = [line.split(",")[:2] + line.split(",")[3:4] + line.split(",")[-1:] for line in first["table11b_published.csv"].decode().splitlines()]
    assert printed == [line.split(",")[:2] + line.split(",")[3:4] + line.split(",")[-1:] for line in other["table11b_published.csv"].decode().splitlines()]


def test_no_fourth_use_case(tmp_path):
    with pytest.raises(paper.RunFailed, match="use_case must be 1, 2 or 3, but it is 4"): run(tmp_path, "a", use_case=4)
