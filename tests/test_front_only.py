"The front of a large system, model by model: the same rows as from the full table, and an honest count of the rest."
import warnings

import numpy as np
import pytest

from fairical_nb.indicators import FrontOnlyWarning, compare, indicators
from fairical_nb.scores import Scores
from fairical_nb.solutions import DroppedWarning, a_posteriori, a_priori

METRICS = (["acc", "eod+g"], ["acc", "dpd+g", "eod+g"], ["bal_acc", "dpr+g", "minmaxd+acc+g", "dpd+h"])


def system(models=4, n=150, seed=0, digits=2):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    y[:12] = [0, 1] * 6
    g, h = np.resize(list("aabbcc"), n), np.resize(list("xxxy"), n)
    return Scores({f"m{k}": np.clip(.2 * y + .8 * rng.random(n) * (k + 2) / (models + 1), 0, 1).round(digits) for k in range(models)} | {"box": y ^ (rng.random(n) < .2)}, y, {"g": g, "h": h})


@pytest.mark.parametrize("metrics", METRICS, ids=len)
@pytest.mark.parametrize("digits", (1, 2, 8))
@pytest.mark.parametrize("seed", range(3))
def test_the_same_front_as_from_all_points(metrics, digits, seed):
    s = system(seed=seed, digits=digits)
    whole, cut = a_posteriori(s, metrics), a_posteriori(s, metrics, front_only=True)
    assert cut.frame.equals(whole.nondominated().frame)
    assert (cut.metrics, cut.black_boxes) == (whole.metrics, whole.black_boxes)
    assert len(cut) + cut.dropped["dominated"] == len(whole)


def test_copies_of_front_points_across_models_stay():
    s = Scores({"a": [.1, .6, .4, .9], "b": [.2, .7, .5, .8], "c": [.9, .1, .2, .3]}, [0, 1, 0, 1], {"g": list("aabb")})
    whole, cut = a_posteriori(s, ["acc", "dpd+g"]), a_posteriori(s, ["acc", "dpd+g"], front_only=True)
    assert cut.frame.equals(whole.nondominated().frame) and set(cut.frame["model"]) >= {"a", "b"}


@pytest.mark.filterwarnings("ignore::fairical_nb.objectives.UndefinedWarning")
def test_options_are_the_same():
    s, metrics = system(), ["prec", "dpd+g"]
    whole, cut = a_posteriori(s, metrics), a_posteriori(s, metrics, front_only=True)
    assert cut.dropped == {**whole.dropped, "dominated": len(whole) - len(cut)}
    given = dict(thresholds=[.2, .5, .5, 2.], nan="drop", black_box=False)
    with pytest.warns(DroppedWarning) as first: whole = a_posteriori(s, metrics, **given)
    with pytest.warns(DroppedWarning) as second: cut = a_posteriori(s, metrics, front_only=True, **given)
    assert [str(w.message) for w in first] == [str(w.message) for w in second]
    assert cut.frame.equals(whole.nondominated().frame)
    for front_only in (False, True):
        with pytest.raises(ValueError, match="prec is undefined for model 'm0' at threshold 2 "):
            a_posteriori(s, metrics, thresholds=[.2, 2.], black_box=False, front_only=front_only)


def test_indicators_of_a_front_only():
    s = system(digits=8)
    whole, cut = a_posteriori(s, METRICS[1]), a_posteriori(s, METRICS[1], front_only=True)
    with pytest.warns(FrontOnlyWarning, match=rf"front only \({cut.dropped['dominated']:,} left out\)"):
        table = compare({"whole": whole, "front only": cut}, whole.directions, dedup_eps=None)
    kept = ["HV", "ONVG", "ONVG_rel", "UD", "OS", "AS"]
    assert table.loc["whole", kept].tolist() == table.loc["front only", kept].tolist()
    assert table.loc["whole", "ONVGR"] == len(cut) / (len(cut) + cut.dropped["dominated"])
    assert np.isnan(table.loc["front only", ["ONVGR", "area"]].astype(float)).all()
    with pytest.warns(FrontOnlyWarning): assert np.isnan(indicators(cut, cut.directions)["ONVGR"])
    with pytest.warns(FrontOnlyWarning): both = compare({"whole": whole, "front only": cut}, whole.directions, dedup_eps=None, leave_out="ONVGR")
    assert both.loc["whole", "area"] == both.loc["front only", "area"]


def test_as_a_prior_it_is_as_good_as_the_whole():
    valid, test = system(seed=1), system(seed=2)
    whole, cut = a_posteriori(valid, METRICS[0]), a_posteriori(valid, METRICS[0], front_only=True)
    assert a_priori(test, whole).frame.equals(a_priori(test, cut).frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        indicators(a_priori(test, cut), whole.directions)
