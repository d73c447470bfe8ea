"What must hold for every sweep over thresholds, whatever the scores."
import math
import warnings

import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings, strategies as st

from fairical_nb import metrics
from fairical_nb.metrics import register_metric
from fairical_nb.objectives import direction, sweep

METRICS = naive.metrics_of("g")
BOTH = ["acc", "tpr", "eod+g", "eor+g", "dpd+r", "minmaxr+fnr+r", "dpd+g&r", "minmaxd+prec+g&r"]


def quiet(*args, **options):
    with warnings.catch_warnings(action="ignore"): return sweep(*args, **options)


def same(a, b): pd.testing.assert_frame_equal(a, b, check_exact=False, rtol=0, atol=1e-12)


@st.composite
def samples(draw, least=1, most=25):
    n = draw(st.integers(least, most))
    parts = draw(st.sampled_from([1, 3, 10, 1000]))
    column = lambda values: draw(st.lists(values, min_size=n, max_size=n))
    return dict(y_true=np.array(column(st.integers(0, 1))), y_score=np.array(column(st.integers(0, parts))) / parts,
                attributes={"g": np.array(column(st.sampled_from("abc"))), "r": np.array(column(st.integers(0, 1)))})


def rows(sample, order):
    return dict(y_true=sample["y_true"][order], y_score=sample["y_score"][order], attributes={k: v[order] for k, v in sample["attributes"].items()})


@given(samples(), st.randoms())
@settings(max_examples=30)
def test_order_of_samples_does_not_matter(sample, random):
    order = list(range(len(sample["y_true"]))); random.shuffle(order)
    same(quiet(**rows(sample, order), metrics=METRICS), quiet(**sample, metrics=METRICS))


@given(samples(), st.permutations(["x", "y", "z"]))
@settings(max_examples=30)
def test_names_of_groups_and_their_order_do_not_matter(sample, names):
    other = dict(zip("abc", names))
    renamed = {**sample, "attributes": {"g": [other[v] for v in sample["attributes"]["g"]], "r": [["one", 2][v] for v in sample["attributes"]["r"]]}}
    same(quiet(**renamed, metrics=BOTH), quiet(**sample, metrics=BOTH))


@given(samples(), st.sampled_from(["nan", "zero"]))
@settings(max_examples=40)
def test_bounds(sample, policy):
    values = quiet(**sample, metrics=METRICS, undefined=policy).to_numpy()
    if policy != "nan": assert not np.isnan(values).any()
    defined = values[~np.isnan(values)]
    assert ((defined >= 0) & (defined <= 1)).all()


@given(samples(), st.integers(0, 10**6))
@settings(max_examples=40)
def test_bounds_with_weights_of_all_sizes(sample, seed):
    weight = 10. ** np.random.default_rng(seed).uniform(-8, 8, len(sample["y_true"]))
    values = quiet(**sample, metrics=METRICS, sample_weight=weight).to_numpy()
    defined = values[~np.isnan(values)]
    assert ((defined >= 0) & (defined <= 1)).all()


@given(samples(), st.lists(st.floats(-1, 2) | st.sampled_from([math.inf, -math.inf, 0., 1., .5]), min_size=1, max_size=8))
@settings(max_examples=40)
def test_thresholds_come_back_in_the_order_given_copies_included(sample, thresholds):
    table = quiet(**sample, metrics=BOTH, thresholds=thresholds)
    assert table.index.tolist() == thresholds and table.index.name == "threshold" and table.columns.tolist() == BOTH
    one = pd.concat([quiet(**sample, metrics=BOTH, thresholds=[t]) for t in thresholds])
    same(table, one)


@given(samples())
@settings(max_examples=30)
def test_metrics_come_back_in_the_order_given_and_do_not_depend_on_each_other(sample):
    together = quiet(**sample, metrics=METRICS)
    same(quiet(**sample, metrics=METRICS[::-1])[METRICS], together)
    for m in METRICS[::7]: same(quiet(**sample, metrics=[m]), together[[m]])


@given(samples())
@settings(max_examples=30)
def test_rates_fall_as_the_threshold_rises(sample):
    table = quiet(**sample, metrics=["tpr", "fpr", "tnr", "fnr"])
    step = np.diff(table.to_numpy(), axis=0)
    step = step[~np.isnan(step).any(1)]
    assert (step[:, :2] <= 0).all() and (step[:, 2:] >= 0).all()
    assert (table["tpr"].isna() | np.isclose(table["tpr"] + table["fnr"], 1)).all() and (table["fpr"].isna() | np.isclose(table["fpr"] + table["tnr"], 1)).all()


@given(samples())
@settings(max_examples=30)
def test_at_the_ends_everybody_and_nobody(sample):
    table = quiet(**sample, metrics=["tpr", "fpr", "dpd+g", "dpr+g", "prec"])
    for row, rate, ratio in ((table.iloc[0], 1, 1), (table.iloc[-1], 0, 1)):
        assert all(math.isnan(v) or v == rate for v in row[["tpr", "fpr"]])
        assert row["dpd+g"] == 0 and row["dpr+g"] == ratio
    assert math.isnan(table["prec"].iloc[-1]) and not table["prec"].iloc[:-1].isna().any()


@given(samples())
@settings(max_examples=30)
def test_a_difference_of_zero_and_a_ratio_of_one_go_together(sample):
    names = [n for n in METRICS if n.endswith("+g")]
    table = quiet(**sample, metrics=names)
    for d, r in [("dpd+g", "dpr+g"), ("eod+g", "eor+g")] + [(f"minmaxd+{u}+g", f"minmaxr+{u}+g") for u in naive.UTILITIES]:
        assert (table[d].isna() == table[r].isna()).all(), (d, r)
        known = table[[d, r]].dropna()
        assert (np.isclose(known[d], 0, atol=1e-12) == np.isclose(known[r], 1, atol=1e-12)).all(), (d, r)


@given(samples())
@settings(max_examples=30)
def test_merging_groups_never_widens_a_gap_in_selection(sample):
    fine = quiet(**sample, metrics=["dpd+g", "dpr+g"])
    merged = {**sample, "attributes": {"g": np.where(sample["attributes"]["g"] == "c", "b", sample["attributes"]["g"])}}
    coarse = quiet(**merged, metrics=["dpd+g", "dpr+g"])
    assert (coarse["dpd+g"] <= fine["dpd+g"] + 1e-12).all() and (coarse["dpr+g"] >= fine["dpr+g"] - 1e-12).all()


@given(samples())
@settings(max_examples=30)
def test_a_joint_attribute_is_the_attribute_of_pairs(sample):
    pairs = [f"{a}/{b}" for a, b in zip(sample["attributes"]["g"], sample["attributes"]["r"])]
    names = ["dpd", "eod", "eor", "dpr", "minmaxd+f1", "minmaxr+acc"]
    joint = quiet(**sample, metrics=[f"{n}+g&r" for n in names])
    by_hand = quiet(sample["y_true"], sample["y_score"], {"pair": pairs}, [f"{n}+pair" for n in names])
    assert np.allclose(joint, by_hand, equal_nan=True, atol=1e-12)
    assert np.allclose(joint, quiet(**sample, metrics=[f"{n}+r&g" for n in names]), equal_nan=True, atol=1e-12)


# Weights

@given(samples())
@settings(max_examples=20)
def test_weights_of_one_are_no_weights(sample):
    same(quiet(**sample, metrics=METRICS, sample_weight=np.ones(len(sample["y_true"]))), quiet(**sample, metrics=METRICS))
    same(quiet(**sample, metrics=METRICS, sample_weight=[3] * len(sample["y_true"])), quiet(**sample, metrics=METRICS))


@given(samples(most=12), st.integers(0, 10**6))
@settings(max_examples=30)
def test_integer_weights_are_repeated_rows_and_zero_leaves_out(sample, seed):
    weight = np.random.default_rng(seed).integers(0, 4, len(sample["y_true"]))
    assume(weight.sum())
    t = [0, .25, .5, .75, 1]
    weighted = quiet(**sample, metrics=METRICS, sample_weight=weight, thresholds=t)
    repeated = quiet(**rows(sample, np.repeat(np.arange(len(weight)), weight)), metrics=METRICS, thresholds=t)
    gone = set(sample["attributes"]["g"]) - set(sample["attributes"]["g"][weight > 0])
    if gone: assert weighted[[m for m in METRICS if m.endswith("+g")]].isna().all(axis=None)
    else: same(weighted, repeated)
    same(weighted[list(naive.UTILITIES)], repeated[list(naive.UTILITIES)])


# Forms of input

@given(samples())
@settings(max_examples=20)
def test_inputs_stay_as_they_were_and_may_be_read_only(sample):
    columns = [sample["y_true"], sample["y_score"], *sample["attributes"].values()]
    before = [c.copy() for c in columns]
    for c in columns: c.flags.writeable = False
    quiet(**sample, metrics=BOTH, thresholds=np.array([.5, .1]))
    assert all((a == b).all() for a, b in zip(columns, before))


@given(samples(least=2))
@settings(max_examples=20)
def test_every_form_of_the_same_columns(sample):
    want = quiet(**sample, metrics=BOTH, thresholds=[.2, .6])
    index = np.arange(len(sample["y_true"])) + 7
    y, s = pd.Series(sample["y_true"], index=index), pd.Series(sample["y_score"], index=index)
    frame = pd.DataFrame(sample["attributes"], index=index)
    for form in [(sample["y_true"].tolist(), sample["y_score"].tolist(), {k: v.tolist() for k, v in sample["attributes"].items()}),
                 (y, s, frame), (y, s, dict(frame.items())), (y, s, frame.astype("category")), (tuple(y), tuple(s), frame), (y.astype(bool), s, frame), (y.astype(float), s, frame), (y.astype("int8"), s, frame)]:
        same(quiet(*form, BOTH, thresholds=[.2, .6]), want)
    assert quiet(y, s, frame["g"], ["dpd+g"])["dpd+g"].tolist() == quiet(**sample, metrics=["dpd+g"])["dpd+g"].tolist()


def test_single_precision_and_integers():
    y, s, g = [0, 1, 1, 0], [.25, .5, .75, .5], {"g": list("abab")}
    want = quiet(y, s, g, METRICS)
    same(quiet(y, np.array(s, dtype=np.float32), g, METRICS), want)
    same(quiet(y, np.array([0, 1, 1, 1], dtype=np.int8), g, METRICS), quiet(y, [0., 1., 1., 1.], g, METRICS))
    odd = np.array([.1, .2, .3, .4], dtype=np.float32)
    assert sweep(y, odd, {}, ["tpr"], thresholds=odd).iloc[1, 0] == 1 # compared in their own values


@pytest.mark.parametrize("labels", [[0, "0", 0, "0"], [1, "a", 1, "a"], [True, "True", True, "True"], [1.5, "x", 1.5, "x"], ["ä", "日", "ä", "日"], ["", " ", "", " "]])
def test_labels_of_mixed_kinds_are_groups_of_their_own(labels):
    assert sweep([0, 1, 0, 1], [.1, .4, .35, .8], {"g": labels}, ["dpd+g"], thresholds=[.38])["dpd+g"].tolist() == [1]


def test_a_name_with_an_ampersand_is_that_attribute_if_it_exists():
    columns = {"a": list("aabb"), "b": list("abab"), "a&b": list("xxyy")}
    y, s = [0, 1, 0, 1], [.1, .4, .35, .8]
    assert sweep(y, s, columns, ["dpd+a&b", "dpd+b&a"], thresholds=[.38]).iloc[0].tolist() == [0, 1] # its own groups; the four pairs


# Sizes and degenerate samples

@pytest.mark.parametrize("y,g", [([1], "a"), ([0], "a"), ([0, 1], "ab"), ([1, 1, 1], "aab"), ([0, 0, 0], "abb"), ([0, 1, 1], "aaa")])
@pytest.mark.parametrize("score", [.5, 0, 1])
def test_one_sample_one_class_one_group_equal_scores(y, g, score):
    s = [score] * len(y)
    table = quiet(y, s, {"g": list(g)}, METRICS)
    assert table.index.tolist() == [score, math.inf]
    for t, row in table.iterrows():
        for m in METRICS:
            exact = naive.metric(m, y, s, {"g": list(g)}, t)
            assert row[m] == pytest.approx(math.nan if exact is None else float(exact), nan_ok=True), (m, t)


@pytest.mark.parametrize("n", [1, 10, 1000, 100_000])
def test_up_to_a_hundred_thousand_samples_and_thresholds(n):
    rng = np.random.default_rng(n)
    y, s, g = rng.integers(0, 2, n), rng.permutation(n) / n, rng.integers(0, 5, n)
    table = quiet(y, s, {"g": g}, ["acc", "dpd+g", "roc_auc"])
    assert len(table) == n + 1 and (np.diff(table.index) > 0).all()
    k = n // 2
    assert table["acc"].iloc[k] == pytest.approx(((s >= table.index[k]) == y).mean())
    rates = [(s[g == v] >= table.index[k]).mean() for v in np.unique(g)]
    assert table["dpd+g"].iloc[k] == pytest.approx(max(rates) - min(rates))
    assert table["roc_auc"].nunique(dropna=False) == 1


def test_many_groups():
    n = 5000
    y, s = np.tile([0, 1, 0, 1, 1], n // 5), np.arange(n) / n
    table = sweep(y, s, {"g": np.arange(n) // 5}, ["eod+g", "dpd+g", "minmaxr+acc+g"], thresholds=[.5])
    assert table.iloc[0].tolist() == pytest.approx([1, 1, .4 / .6]) # below .5 all are negative (accuracy .4), from .5 on positive (.6)


def test_one_group_is_zero_and_one_with_a_warning_and_undefined_stays_undefined():
    with pytest.warns(UserWarning, match="one group") as said:
        table = sweep([0, 1, 0], [.2, .7, .6], {"sex": ["f"] * 3}, ["eod+sex", "dpd+sex", "minmaxd+acc+sex", "eor+sex", "dpr+sex", "minmaxr+acc+sex"], thresholds=[.5])
    assert table.iloc[0].tolist() == [0, 0, 0, 1, 1, 1]
    assert len([w for w in said if "one group" in str(w.message)]) == 1 and "sex" in str(said[0].message)
    assert quiet([1, 1], [.2, .7], {"sex": ["f"] * 2}, ["eod+sex"], thresholds=[.5]).isna().all(axis=None)


def test_undefined_is_one_warning_that_names_metric_attribute_and_group():
    with pytest.warns(UserWarning) as said:
        table = sweep([0, 0, 1, 1, 0], [.1, .6, .3, .8, .9], {"sex": list("ffmmm"), "race": list("xyxyx")}, ["acc", "eod+sex", "minmaxd+prec+race", "dpd+sex"], thresholds=[.5, .85])
    assert len(said) == 1
    text = str(said[0].message)
    for word in ("eod+sex", "'f'", "no positives", "minmaxd+prec+race", "'y'", "nobody selected"): assert word in text
    assert "acc" not in text.replace("race", "") and "dpd+sex" not in text
    assert table["eod+sex"].isna().all() and table["minmaxd+prec+race"].isna().tolist() == [False, True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep([0, 0, 1, 1], [.1, .6, .3, .8], {"sex": list("ffmm")}, ["eod+sex"], thresholds=[.5], undefined="zero")
        sweep([0, 1, 1, 0], [.1, .6, .3, .8], {"sex": list("ffmm")}, ["acc", "eod+sex"])


REASONS = {"tpr": "no positives", "fnr": "no positives", "rec": "no positives", "avg_prec": "no positives", "f1": "no positives", "roc_auc": "no positives", "bal_acc": "no positives", "prec": "nobody selected"}
@pytest.mark.parametrize("util", metrics.UTILITY)
def test_the_reason_of_an_undefined_rate_is_that_rates_own(util):
    "Group b has no positives and group c no weight; whoever is selected makes a precision."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sweep([0, 1, 0, 0, 1], [.1, .4, .35, .8, .5], {"g": list("aabbc")}, [f"minmaxd+{util}+g"], thresholds=[.3, .9], sample_weight=[1, 1, 1, 1, 0])
    text = str(said[0].message)
    assert len(said) == 1 and "group 'c' has no weight" in text
    assert (f"group 'b' has {REASONS[util]}" in text) if util in REASONS else "'b'" not in text
    assert ("group 'a' has nobody selected" in text) == (util == "prec")


def test_directions():
    least = {"fpr", "fnr", "dpd+g", "eod+g", *(m for m in METRICS if m.startswith("minmaxd"))}
    for m in METRICS: assert direction(m) == ("min" if m in least else "max"), m


def test_registered_metrics_are_as_good_as_built_in_ones():
    register_metric("youden", lambda c: (1 + c.tp / (c.tp + c.fn) - c.fp / (c.fp + c.tn)) / 2, "max")
    register_metric("selection_sd", lambda c: ((c.tp + c.fp) / (c.tp + c.fp + c.fn + c.tn)).std(0), "min", of_groups=True)
    sample = dict(y_true=[0, 1, 0, 1, 1], y_score=[.1, .4, .35, .8, .2], attributes={"g": list("abbaa")})
    table = sweep(**sample, metrics=["youden", "minmaxd+youden+g", "minmaxr+youden+g", "selection_sd+g", "bal_acc", "minmaxd+bal_acc+g", "dpd+g"], thresholds=[.3, .5])
    assert np.allclose(table["youden"], table["bal_acc"]) and np.allclose(table["minmaxd+youden+g"], table["minmaxd+bal_acc+g"])
    assert np.allclose(table["selection_sd+g"], table["dpd+g"] / 2)
    assert direction("minmaxr+youden+g") == "max" and direction("selection_sd+g") == "min"
    metrics.UTILITY.pop("youden"), metrics.OF_GROUPS.pop("selection_sd")


# What is refused

GOOD = dict(y_true=[0, 1, 0, 1], y_score=[.1, .4, .35, .8], attributes={"gender": list("abab")}, metrics=["acc"])


@pytest.mark.parametrize("change,words", [
    (dict(y_true=[0, 1, 0]), ["3", "4"]), (dict(y_score=[.1, .2]), ["y_score", "4", "2"]), (dict(attributes={"gender": list("ab")}), ["gender", "4", "2"]),
    (dict(y_score=[.1, 1.2, .3, .4]), ["y_score", "row 1", "1.2"]), (dict(y_score=[.1, .2, math.nan, .4]), ["y_score", "row 2", "nan"]), (dict(y_score=[.1, .2, -.3, -1]), ["y_score", "rows 2, 3", "-0.3"]),
    (dict(y_score=[.1, "x", .3, .4]), ["y_score", "row 1", "'x'"]), (dict(y_score=[math.inf, .2, .3, .4]), ["row 0", "inf"]),
    (dict(y_true=[0, 1, 2, 1]), ["y_true", "2", "binary"]), (dict(y_true=["no", "yes"] * 2), ["y_true", "yes", "no", "positive_label"]), (dict(y_true=[-1, 1, -1, 1]), ["y_true", "-1", "positive_label"]),
    (dict(y_true=[]), ["y_true", "empty"]), (dict(attributes={"gender": ["a", None, "b", math.nan]}), ["gender", "2", "rows 1, 3", "missing"]),
    (dict(metrics=["eod+race"]), ["race", "gender"]), (dict(metrics=["eod+gender&race"]), ["race"]), (dict(metrics=["eod"]), ["eod+"]), (dict(metrics=["acc+gender"]), ["minmaxd+acc+gender"]),
    (dict(metrics=["eodd+gender"]), ["eodd", "'eod'"]), (dict(metrics=["accc"]), ["'acc'"]), (dict(metrics=["ACC"]), ["'acc'"]), (dict(metrics=["minmaxd+gender"]), ["minmaxd+"]), (dict(metrics=["minmaxd+ac+gender"]), ["ac"]),
    (dict(metrics=["eod+"]), ["'eod+'", "attribute"]), (dict(metrics=["dpd+gender&"]), ["'dpd+gender&'", "attribute ''"]), (dict(metrics=["minmaxd+acc+"]), ["'minmaxd+acc+'", "attribute"]),
    (dict(metrics=["acc", "acc"]), ["acc", "twice"]), (dict(metrics=[]), ["metric"]), (dict(metrics=["zzz"]), ["zzz", "acc", "eod"]),
    (dict(thresholds=[]), ["thresholds"]), (dict(thresholds=[.5, math.nan]), ["thresholds"]), (dict(thresholds=[[.5]]), ["thresholds"]), (dict(thresholds=["half"]), ["thresholds", "half"]), (dict(undefined="skip"), ["undefined", "skip", "zero"]), (dict(missing="ignore"), ["missing", "ignore"]),
    (dict(sample_weight=[1, 1]), ["sample_weight", "4"]), (dict(sample_weight=[1, 1, -1, 1]), ["sample_weight", "row 2", "-1"]), (dict(sample_weight=[0] * 4), ["sample_weight", "0"]), (dict(sample_weight=1), ["sample_weight"]),
])
def test_refusals_name_what_came(change, words):
    with pytest.raises(ValueError) as e: sweep(**{**GOOD, **change})
    for w in words: assert w in str(e.value)
    assert "\n" not in str(e.value)
