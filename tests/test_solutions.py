"Operating points: what is left out and said, what is refused, how one is chosen."
import math
import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from fairical_nb.scores import Scores
from fairical_nb.solutions import Solutions, a_posteriori, a_priori

SCORES = Scores({"one": [.1, .4, .35, .8, .6, .2], "two": [.2, .3, .6, .9, .5, .5]}, [0, 1, 0, 1, 1, 0], {"sex": list("fmmfmf"), "race": list("xyyyxx")})
UNDEFINED = Scores({"one": [.1, .4, .35, .8, .6, .2]}, [0, 0, 1, 1, 1, 0], {"sex": list("ffmmmm")}) # no positives among f


# Undefined points

def test_nobody_has_no_precision_and_is_left_out_and_counted_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s = a_posteriori(SCORES, ["prec", "dpd+sex"])
    assert len(s) == 11 and s.dropped == {"nobody": 2} and not np.isinf(s.frame["threshold"]).any() and "2 left out (nobody)" in repr(s)
    assert len(a_posteriori(SCORES, ["acc", "dpd+sex"])) == 13


def test_elsewhere_an_undefined_point_is_an_error_that_names_metric_model_and_threshold():
    for metrics, options, words in ((["acc", "eod+sex"], {}, ["eod+sex", "'one'", "0.1", "6"]), (["acc", "dpd+sex", "minmaxd+prec+sex"], {}, ["minmaxd+prec+sex", "'one'"]), (["prec", "dpd+sex"], dict(thresholds=[.2, math.inf]), ["prec", "'one'", "inf"])):
        with pytest.raises(ValueError) as e: a_posteriori(UNDEFINED, metrics, **options)
        for w in [*words, "nan='drop'"]: assert w in str(e.value)


def test_drop_leaves_them_out_with_the_count_and_the_group():
    with pytest.warns(UserWarning) as said: s = a_posteriori(UNDEFINED, ["acc", "minmaxd+prec+sex"], nan="drop")
    assert not np.isnan(s.points).any()
    texts = " ".join(str(w.message) for w in said)
    assert s.dropped["nobody"] == 1 and f"{s.dropped['undefined']} of 7" in texts and "'f'" in texts and "nobody selected" in texts
    with pytest.warns(UserWarning): none = a_posteriori(UNDEFINED, ["acc", "eod+sex"], nan="drop")
    assert len(none) == 0 and none.metrics == ["acc", "eod+sex"] and none.directions == ["max", "min"] and none.points.shape == (0, 2)


def test_the_policy_zero_gives_every_point():
    s = a_posteriori(UNDEFINED, ["acc", "eod+sex"], undefined="zero")
    assert len(s) == 7 and s.dropped == {}


def test_points_with_nan_never_enter_a_front():
    for values in ([math.nan, .5], [1.5, .5], [-.1, .5]):
        with pytest.raises(ValueError, match="acc"): Solutions(pd.DataFrame({"model": ["a", "a"], "threshold": [.1, .2], "acc": values, "dpd+g": [.1, .2]}))


def test_a_priori_without_points():
    with pytest.warns(UserWarning): none = a_posteriori(UNDEFINED, ["acc", "eod+sex"], nan="drop")
    for which in ("nondominated", "dominated", "all"): assert len(a_priori(UNDEFINED, none, which=which)) == 0
    one = a_posteriori(SCORES, ["acc", "dpd+sex"]).choose(best="acc")
    assert len(a_priori(SCORES, one, which="dominated")) == 0 and len(a_priori(SCORES, one)) == 1


def test_a_priori_where_the_new_samples_leave_a_rate_undefined():
    prior = a_posteriori(Scores({"one": [.1, .9, .4, .6]}, [0, 1, 1, 0], {"sex": list("fmfm")}), ["acc", "eod+sex"], undefined="zero")
    with pytest.raises(ValueError, match="eod.sex"): a_priori(UNDEFINED, prior)
    with pytest.warns(UserWarning): assert len(a_priori(UNDEFINED, prior, nan="drop")) == 0
    assert len(a_priori(UNDEFINED, prior, which="all", undefined="zero")) == len(prior)


def test_an_empty_prior_or_choice_is_said():
    with pytest.warns(UserWarning): none = a_posteriori(UNDEFINED, ["acc", "eod+sex"], nan="drop")
    with pytest.raises(ValueError, match="no operating point"): none.choose(best="acc")


# One-sided metrics

SIDES = {"tpr": "positives", "fnr": "positives", "rec": "positives", "fpr": "negatives", "tnr": "negatives"}


@pytest.mark.parametrize("few", [c for k in (1, 2) for c in combinations([*SIDES, "acc", "prec", "roc_auc"], k)], ids="+".join)
def test_utility_metrics_of_one_class_only_are_refused_unless_allowed(few):
    sides = {SIDES.get(m) for m in few}
    metrics = [*few, "minmaxd+tpr+sex", "dpd+race"] # the metric inside a gap does not count
    if len(sides) == 1 and sides != {None}:
        with pytest.raises(ValueError) as e: a_posteriori(SCORES, metrics)
        for w in (*few, sides.pop(), "allow_one_sided"): assert w in str(e.value)
    else: a_posteriori(SCORES, metrics)
    assert a_posteriori(SCORES, metrics, allow_one_sided=True).metrics == metrics


def test_fairness_alone_is_allowed():
    assert len(a_posteriori(SCORES, ["dpd+sex", "eod+race"])) == 13


# Black boxes

@pytest.mark.parametrize("score,box", [([0, 1, 0, 1, 1, 0], True), ([0.] * 6, True), ([1] * 6, True), ([0, 1, 0, 1, 1, .5], False), ([True, False] * 3, True)])
def test_black_boxes_are_found_and_forced(score, box):
    scores = Scores({"rule": score, "scores": SCORES.models["one"]}, SCORES.y_true, SCORES.attributes)
    found = a_posteriori(scores, ["acc", "dpd+sex"])
    mine = found.frame[found.frame["model"] == "rule"]
    assert (found.black_boxes == ("rule",)) == box and (mine["threshold"].tolist() == [.5]) == box
    assert len(a_posteriori(scores, ["acc", "dpd+sex"], black_box=True)) == 2
    assert len(a_posteriori(scores, ["acc", "dpd+sex"], black_box=False)) == len(set(score)) + 1 + 7
    assert (a_posteriori(scores, ["acc", "dpd+sex"], thresholds=[.1, .9]).frame["model"].tolist() == ["rule", "scores", "scores"]) == box


# Choosing

GRID = st.integers(0, 4).map(lambda k: k / 4)


@given(st.lists(st.tuples(GRID, GRID, GRID), min_size=1, max_size=15), st.sampled_from(["acc", "eod+g", "f1"]), GRID, GRID)
@settings(max_examples=80)
def test_the_choice_is_best_within_the_limits(values, best, most, least):
    s = Solutions(pd.DataFrame(values, columns=["acc", "eod+g", "f1"]).assign(model="m", threshold=np.linspace(0, 1, len(values)))[["model", "threshold", "acc", "eod+g", "f1"]])
    good = [k for k, (acc, eod, f1) in enumerate(values) if eod <= most and f1 >= least]
    if not good:
        with pytest.raises(ValueError) as e: s.choose(best=best, at_most={"eod+g": most}, at_least={"f1": least})
        for w in ("eod+g", "f1", "nearest"): assert w in str(e.value)
        return
    chosen = s.choose(best=best, at_most={"eod+g": most}, at_least={"f1": least})
    loss = lambda k: [values[k][i] * (1 if m == "eod+g" else -1) for i, m in sorted(enumerate(["acc", "eod+g", "f1"]), key=lambda im: im[1] != best)]
    want = min(good, key=lambda k: (loss(k), k)) # ties: the other metrics in their order, then the first row
    assert len(chosen) == 1 and chosen.frame["threshold"].item() == np.linspace(0, 1, len(values))[want]


def test_choosing_without_limits_and_with_unknown_metrics():
    s = a_posteriori(SCORES, ["acc", "eod+sex"])
    assert s.choose(best="acc").frame["acc"].item() == s.frame["acc"].max() and s.choose(best="eod+sex").frame["eod+sex"].item() == 0
    for options in (dict(best="f1"), dict(best="acc", at_most={"f1": .5}), dict(best="acc", at_least={"eod+race": .5})):
        with pytest.raises(ValueError, match="f1|race"): s.choose(**options)


def test_the_choice_is_measured_on_other_samples():
    s = a_posteriori(SCORES, ["acc", "eod+sex"])
    choice = s.choose(best="acc", at_most={"eod+sex": .4})
    outcome = a_priori(SCORES, choice, which="all")
    assert outcome.frame.equals(choice.frame) and outcome.prior_set == "all"


# Rows and cuts

def test_cuts_keep_columns_and_leave_the_whole_as_it_was():
    s = a_posteriori(SCORES, ["acc", "eod+sex"])
    before = s.frame.copy()
    front, rest = s.nondominated(), s.dominated()
    assert len(front) + len(rest) == len(s) and list(front.frame) == list(s.frame) and front.frame.index.tolist() == list(range(len(front)))
    assert len(s.deduplicate(eps=2)) == 1 and len(s.deduplicate(eps=0)) <= len(s)
    assert s.frame.equals(before)
    assert (np.asarray(s) == s.points).all() and s.models == ["one", "two"]


@pytest.mark.parametrize("metrics,options,words", [(["acc"], {}, ["two", "acc"]), ([], {}, ["two"]), (["acc", "eodd+sex"], {}, ["eodd", "'eod'"]), (["acc", "eod+age"], {}, ["age", "sex"]), (["acc", "acc"], {}, ["acc", "twice"]), (["acc", "dpd+sex"], dict(undefined="x"), ["undefined", "x"]), (["acc", "dpd+sex"], dict(nan="x"), ["nan", "x"]), (["acc", "dpd+sex"], dict(thresholds=[]), ["thresholds"])])
def test_what_a_posteriori_refuses(metrics, options, words):
    with pytest.raises(ValueError) as e: a_posteriori(SCORES, metrics, **options)
    for w in words: assert w in str(e.value)


def test_what_a_priori_refuses():
    prior = a_posteriori(SCORES, ["acc", "dpd+sex"])
    with pytest.raises(ValueError, match="which"): a_priori(SCORES, prior, which="front")
    with pytest.raises(ValueError, match="'one'.*by name|by name"): a_priori(Scores({"uno": SCORES.models["one"], "two": SCORES.models["two"]}, SCORES.y_true, SCORES.attributes), prior, which="all")
    with pytest.raises(ValueError, match="sex"): a_priori(Scores(SCORES.models, SCORES.y_true, {"race": SCORES.attributes["race"]}), prior)
    more = Scores({**SCORES.models, "three": [.5] * 6}, SCORES.y_true, SCORES.attributes)
    assert a_priori(more, prior, which="all").frame.equals(prior.frame)
