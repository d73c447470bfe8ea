"Orders of the axes and the other choices: printed rankings, examples, each row against `compare`; pictures of limits end where the limits are."
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fairical_nb import radar
from fairical_nb.comparisons import Replicates
from fairical_nb.confidence import bootstrap_a_posteriori
from fairical_nb.fronts import scatter
from fairical_nb.indicators import AXES, compare
from fairical_nb.orders import axis_orders, describe_orders, draw_orders, order_range
from fairical_nb.points import point_intervals
from fairical_nb.scores import Scores
from fairical_nb.sensitivity import by_eps, by_nadir, by_sigma, by_thresholds, describe_along, draw_along
from fairical_nb.solutions import a_posteriori
from fairical_nb.truth import coverage, held, world
from fairical_nb.whiskers import describe_limits, front_bands, point_whiskers, radar_bands, radar_whiskers, radius_limits

PRINTED = sorted(p for p in (Path(__file__).parents[1] / "data" / "published").glob("fairical_table*.csv") if "models" not in p.name)
CLOUD = {k: np.random.default_rng(s).random((60, 2)) for k, s in (("A", 0), ("B", 3))}
WAYS = ["max", "min"]


@pytest.mark.parametrize("path", PRINTED, ids=lambda p: p.stem[9:])
def test_printed_rankings(path):
    found = axis_orders(pd.read_csv(path, index_col=0).drop(columns="area"), half=.005)
    assert len(found) == 12 and (found["flips"] != "").sum() == (2 if "shenzhen" in path.name else 0) and not found["certain"].any()


def test_the_two_flips_of_shenzhen():
    found = axis_orders(pd.read_csv(next(p for p in PRINTED if "shenzhen" in p.name), index_col=0))
    assert found[found["flips"] != ""].index.tolist() == ["ONVG-ONVGR-UD-HV-AS", "ONVG-ONVGR-HV-UD-AS"] and set(found["flips"]) == {"", "System2 > System1"}


def test_example_from_218_to_376():
    table = pd.DataFrame([[1, .1, .9, .1, .8]], columns=list(AXES), index=["S"])
    found = order_range(table).loc["S"]
    assert found["lowest"] == pytest.approx(.218) and found["highest"] == pytest.approx(.376) and found["any_order"] == pytest.approx(radar.area_any_order([1, .1, .9, .1, .8]))


@pytest.mark.parametrize("options", [{}, dict(axes=("HV", "AS", "UD", "ONVGR")), dict(weights=[1, 2, 3, 4, 5]), dict(nadir=1.5, ideal=0), dict(axes=("HV", "AS"))], ids=str)
def test_each_order_as_by_compare(options):
    table = compare(CLOUD, WAYS, **options)
    axes, weights = table.attrs["axes"], table.attrs["weights"]
    found = axis_orders(table)
    for k, o in enumerate(radar.orders(len(axes))):
        again = compare(CLOUD, WAYS, **options | dict(axes=tuple(axes[i] for i in o)) | ({} if weights is None else dict(weights=[weights[i] for i in o])))
        assert found.iloc[k, :2].tolist() == pytest.approx(again["area"].tolist())
    assert found.iloc[0, :2].tolist() == pytest.approx(table["area"].tolist())


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_weights_of_the_orders_may_be_of_any_kind(kind):
    table, weights = compare(CLOUD, WAYS), kind([1, 2, 3, 4, 5])
    weighed = compare(CLOUD, WAYS, weights=weights)
    assert axis_orders(table, weights=weights).equals(axis_orders(weighed)) and order_range(table, weights=weights).equals(order_range(weighed))


def test_ties_are_no_flips_and_certain_flips_are():
    even = pd.DataFrame([[.5] * 5, [.5] * 5], index=["A", "B"], columns=list(AXES))
    assert (axis_orders(even)["flips"] == "").all() and "never flips" in describe_orders(axis_orders(even))
    wide = pd.DataFrame([[1, 1, 1, 0, 0], [.55] * 5], index=["A", "B"], columns=list(AXES))
    assert axis_orders(wide, half=.005)["certain"].sum() == 6 and axis_orders(wide, half=.2)["certain"].sum() == 0


def test_undefined_areas_do_not_flip():
    table = pd.DataFrame([[1, 1, 1, 0, np.nan], [.55] * 5], index=["A", "B"], columns=list(AXES))
    found = axis_orders(table)
    assert found["A"].isna().all() and (found["flips"] == "").all()


@pytest.mark.parametrize("function, option, value", [(by_eps, "dedup_eps", .05), (by_sigma, "sigma", .2), (by_nadir, "nadir", 1.4)])
def test_along_as_by_compare(function, option, value):
    before = {k: v.copy() for k, v in CLOUD.items()}
    table = function(CLOUD, WAYS, [value], axes=("HV", "UD", "AS"))
    pd.testing.assert_frame_equal(table.loc[value], compare(CLOUD, WAYS, axes=("HV", "UD", "AS"), **{option: value}))
    assert all((CLOUD[k] == before[k]).all() for k in CLOUD)


def test_along_thresholds_as_by_compare():
    scores = world(80, seed=0, models=2)
    table = by_thresholds(scores, ["acc", "eod+sex"], {"five": np.linspace(0, 1, 5), "all": None}, sigma=.1)
    for label, t in (("five", np.linspace(0, 1, 5)), ("all", None)):
        pd.testing.assert_frame_equal(table.loc[label], compare({k: a_posteriori(s, ["acc", "eod+sex"], thresholds=t) for k, s in scores.items()}, WAYS, sigma=.1))
    assert "five" in describe_along(table)


def test_pictures_take_axes_and_close():
    table = by_sigma(CLOUD, WAYS)
    fig, axes = plt.subplots(1, 2)
    assert draw_along(table, "UD", ax=axes[0]) is axes[0] and draw_orders(axis_orders(compare(CLOUD, WAYS)), ax=axes[1]) is axes[1]
    assert [t.get_text() for t in axes[0].get_legend().get_texts()] == ["A", "B"]
    plt.close(fig)


# Limits in pictures

@pytest.fixture(scope="module")
def r():
    return bootstrap_a_posteriori(world(200, seed=3, models=3), ["acc", "eod+sex"], thresholds=np.linspace(0, 1, 11), replicates=60, nadir=1.25, ideal=0)


def test_radii_of_limits(r):
    inner, outer = radius_limits(r)
    HV = np.quantile(r.values[:, :, list(r.estimate).index("HV")], [.025, .975], axis=0) / 1.25**2
    assert inner[:, 4] == pytest.approx(HV[0]) and outer[:, 4] == pytest.approx(HV[1])
    assert ((inner <= outer) & (0 <= inner) & (outer <= 1)).all()


def test_whiskers_and_bands_add_what_they_should(r):
    radii = pd.DataFrame.from_dict(r.estimate.attrs["radii"], orient="index")
    ax = radar.radar(radii)
    lines, patches = len(ax.lines), len(ax.patches)
    assert radar_whiskers(r, ax) is ax and len(ax.lines) == lines + 10 and radar_bands(r, ax) is ax and len(ax.patches) == patches + 2
    plt.close(ax.figure)
    gone = Replicates(r.estimate, r.values * np.nan, [], {}, r.settings)
    ax = radar.radar(radii)
    radar_whiskers(gone, ax), radar_bands(gone, ax)
    assert len(ax.lines) == lines and len(ax.patches) == patches and "undefined" in describe_limits(gone)
    plt.close(ax.figure)


def test_bands_and_crosses_on_a_scatter(r):
    systems = world(200, seed=3, models=3)
    found = {k: a_posteriori(s, ["acc", "eod+sex"], thresholds=np.linspace(0, 1, 11)) for k, s in systems.items()}
    ax = scatter(found)
    limits = ax.get_xlim()
    assert front_bands(r, ax) is ax
    table = point_intervals(systems["A"], found["A"].nondominated(), replicates=30)
    assert point_whiskers(table, ax, number=0) is ax and len(ax.collections) >= 2 and np.isfinite(limits).all()
    ends = np.concatenate([s for c in ax.collections[-2:] for s in c.get_segments()])
    low = table.xs("acc", level="metric")["low"]
    assert np.isin(low.round(9), ends[:, 0].round(9)).all()
    plt.close(ax.figure)
    with pytest.raises(ValueError, match="is not among"): point_whiskers(table, ax, x="f1")


# The world with a known truth

def test_world_is_repeatable_and_shared():
    a, b, c = world(50, seed=1), world(50, seed=1), world(50, seed=2)
    assert a["A"].frame().equals(b["A"].frame()) and not a["A"].frame().equals(c["A"].frame()) and (a["A"].y_true == a["B"].y_true).all()
    assert isinstance(a["A"], Scores)


def test_coverage_counts(r):
    inside = held(r, r.estimate, methods=["percentile"])
    assert inside.loc[("A", "HV"), "percentile"] == 1 and (held(r, r.estimate + 9, methods=["percentile"])["percentile"].loc[["A", "B"]] == 0).all()
    found = coverage(lambda d: r, r.estimate, datasets=3)
    assert set(found["percentile"]) <= {0., 1.} and found.loc[("A - B", "HV"), "truth"] == pytest.approx(r.estimate["HV"]["A"] - r.estimate["HV"]["B"]) and (found["percentile undefined"] == 0).all()


def test_coverage_of_a_known_case():
    def make(d):
        rng = np.random.default_rng(d)
        y, sex = np.arange(400) % 2, np.where(np.arange(400) % 4 < 2, "a", "b")
        return bootstrap_a_posteriori({"s": Scores({"m": np.where(rng.random(400) < np.where(sex == "a", .9, .7), y, 1 - y)}, y, {"sex": sex})}, ["acc", "eod+sex"], replicates=80, seed=d, blocks=0)
    found = coverage(make, compare({"s": [[.8, .2]]}, WAYS), datasets=25, methods=["percentile"])
    assert found.loc[("s", "HV"), "percentile"] >= .75
