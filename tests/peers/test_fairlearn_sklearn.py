"Metrics beside fairlearn and scikit-learn; where they count 0/0 as 0, `undefined='zero'` does too."
import warnings

import numpy as np
import pytest
import sklearn.metrics as sm

from fairical_nb.objectives import sweep

fm = pytest.importorskip("fairlearn.metrics")
THRESHOLDS = [0, .2, .35, .5, .8, 1]
RATES = {"fpr": fm.false_positive_rate, "tpr": fm.true_positive_rate, "tnr": fm.true_negative_rate, "fnr": fm.false_negative_rate, "rec": sm.recall_score, "prec": sm.precision_score, "f1": sm.f1_score,
         "acc": sm.accuracy_score, "bal_acc": sm.balanced_accuracy_score}
CLASSES = {"tpr": (1,), "fnr": (1,), "rec": (1,), "fpr": (0,), "tnr": (0,), "bal_acc": (0, 1)}


def sample(n, seed, digits=1, full=True):
    "Scores with ties; with `full`, both classes in each of the groups, so that rates by class are defined."
    rng = np.random.default_rng(seed)
    y, g = rng.integers(0, 2, n), rng.choice(["a", "b", "c"], n)
    if full: y[:6], g[:6] = [0, 1] * 3, list("aabbcc")
    return y, rng.random(n).round(digits), g


def quiet(f, *args, **options):
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"): return f(*args, **options)


CASES = [(n, seed, digits) for seed, (n, digits) in enumerate([(12, 1), (30, 1), (60, 2), (120, 3), (600, 1)])]


@pytest.mark.parametrize("n,seed,digits", CASES)
def test_utility_metrics_at_every_threshold(n, seed, digits):
    y, s, _ = sample(n, seed, digits)
    table = quiet(sweep, y, s, {}, [*RATES, "roc_auc", "avg_prec"])
    for t, row in table.iterrows():
        p = (s >= t).astype(int)
        for name, f in RATES.items():
            if name == "prec" and not p.any(): assert np.isnan(row[name])
            else: assert row[name] == pytest.approx(f(y, p), abs=1e-12), (name, t)
    assert table["roc_auc"].to_numpy() == pytest.approx(sm.roc_auc_score(y, s), abs=1e-12)
    assert table["avg_prec"].to_numpy() == pytest.approx(sm.average_precision_score(y, s), abs=1e-12)


@pytest.mark.parametrize("n,seed,digits", CASES)
def test_weighted_utility_metrics(n, seed, digits):
    y, s, _ = sample(n, seed, digits)
    w = np.random.default_rng(seed).choice([.5, 1, 2, 3.25], n)
    table = quiet(sweep, y, s, {}, [*RATES, "roc_auc", "avg_prec"], thresholds=[.2, .5], sample_weight=w)
    for t, row in table.iterrows():
        for name, f in RATES.items(): assert row[name] == pytest.approx(f(y, (s >= t).astype(int), sample_weight=w), abs=1e-12), (name, t)
    assert table["roc_auc"].iloc[0] == pytest.approx(sm.roc_auc_score(y, s, sample_weight=w), abs=1e-12)
    assert table["avg_prec"].iloc[0] == pytest.approx(sm.average_precision_score(y, s, sample_weight=w), abs=1e-12)


@pytest.mark.parametrize("n,seed,digits", CASES)
def test_fairness_metrics(n, seed, digits):
    y, s, g = sample(n, seed, digits)
    table = quiet(sweep, y, s, {"g": g}, ["dpd+g", "dpr+g", "eod+g", "eor+g"], thresholds=THRESHOLDS)
    for t, row in table.iterrows():
        p = (s >= t).astype(int)
        assert row["dpd+g"] == pytest.approx(fm.demographic_parity_difference(y, p, sensitive_features=g), abs=1e-12)
        assert row["eod+g"] == pytest.approx(fm.equalized_odds_difference(y, p, sensitive_features=g), abs=1e-12)
        rates = quiet(lambda: fm.MetricFrame(metrics={k: RATES[k] for k in ("tpr", "fpr")} | {"sel": fm.selection_rate}, y_true=y, y_pred=p, sensitive_features=g).by_group)
        parity = lambda *names: min(1. if (rates[c] == 0).all() else rates[c].min() / rates[c].max() for c in names)
        assert row["dpr+g"] == pytest.approx(parity("sel"), abs=1e-12)
        assert row["eor+g"] == pytest.approx(parity("tpr", "fpr"), abs=1e-12)
        if (rates["sel"] > 0).any(): assert row["dpr+g"] == pytest.approx(fm.demographic_parity_ratio(y, p, sensitive_features=g), abs=1e-12)
        if (rates[["tpr", "fpr"]] > 0).any().all(): assert row["eor+g"] == pytest.approx(fm.equalized_odds_ratio(y, p, sensitive_features=g), abs=1e-12)


@pytest.mark.parametrize("n,seed,digits", CASES)
@pytest.mark.parametrize("name", RATES)
def test_gaps_and_ratios_of_utilities_as_by_metric_frame(n, seed, digits, name):
    y, s, g = sample(n, seed, digits)
    table = quiet(sweep, y, s, {"g": g}, [f"minmaxd+{name}+g", f"minmaxr+{name}+g"], thresholds=THRESHOLDS)
    for t, (d, r) in zip(THRESHOLDS, table.to_numpy()):
        p = (s >= t).astype(int)
        frame = quiet(fm.MetricFrame, metrics=RATES[name], y_true=y, y_pred=p, sensitive_features=g)
        if name == "prec" and any(not p[g == one].any() for one in np.unique(g)): assert np.isnan([d, r]).all(); continue
        assert d == pytest.approx(frame.difference(), abs=1e-12), t
        assert r == pytest.approx(1 if (frame.by_group == 0).all() else frame.ratio(), abs=1e-12), t


@pytest.mark.parametrize("n,seed,digits", CASES[1:])
def test_curves_by_group(n, seed, digits):
    y, s, g = sample(n, seed, digits)
    table = quiet(sweep, y, s, {"g": g}, [f"minmax{x}+{c}+g" for c in ("roc_auc", "avg_prec") for x in "dr"], thresholds=[.5])
    want = []
    for f in (sm.roc_auc_score, sm.average_precision_score):
        v = [f(y[g == one], s[g == one]) for one in np.unique(g)]
        want += [max(v) - min(v), min(v) / max(v)]
    assert table.iloc[0].tolist() == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_undefined_is_nan_where_fairlearn_says_zero_and_zero_on_request(seed):
    "Small samples, in which groups without positives or negatives and unselected groups are common."
    y, s, g = sample(7, seed, full=False)
    names = [f"minmaxd+{k}+g" for k in RATES if k != "bal_acc"] + ["eod+g", "dpd+g"]
    ours, zero = (quiet(sweep, y, s, {"g": g}, names, thresholds=THRESHOLDS, undefined=u) for u in ("nan", "zero"))
    assert not zero.isna().any(axis=None)
    assert np.allclose(ours.fillna(zero), zero)
    groups = np.unique(g)
    for t, row in zero.iterrows():
        p = (s >= t).astype(int)
        assert row["eod+g"] == pytest.approx(quiet(fm.equalized_odds_difference, y, p, sensitive_features=g), abs=1e-12)
        for k in RATES:
            if k == "bal_acc": continue
            by = [quiet(RATES[k], y[g == one], p[g == one], **({"zero_division": 0} if k in ("rec", "prec", "f1") else {"pos_label": 1} if k in ("tpr", "fpr", "tnr", "fnr") else {})) for one in groups]
            assert row[f"minmaxd+{k}+g"] == pytest.approx(max(by) - min(by), abs=1e-12), (k, t)
            empty = any(not set(CLASSES.get(k, ())) <= set(y[g == one]) for one in groups) or (k == "prec" and any(not p[g == one].any() for one in groups)) \
                or (k == "f1" and any(not (p[g == one].any() or y[g == one].any()) for one in groups))
            assert np.isnan(ours.loc[t, f"minmaxd+{k}+g"]) == empty, (k, t)


def test_one_class_alone():
    "scikit-learn warns or raises; here it is NaN."
    table = quiet(sweep, [1, 1, 1], [.2, .5, .9], {}, [*RATES, "roc_auc", "avg_prec"], thresholds=[.5])
    row = table.iloc[0]
    assert np.isnan(row[["fpr", "tnr", "bal_acc", "roc_auc"]].astype(float)).all()
    assert row[["tpr", "fnr", "rec", "prec", "f1", "acc", "avg_prec"]].tolist() == pytest.approx([2/3, 1/3, 2/3, 1, .8, 2/3, 1])
    row = quiet(sweep, [0, 0], [.2, .9], {}, ["avg_prec", "tpr", "f1", "prec", "acc"], thresholds=[.5]).iloc[0]
    assert np.isnan(row["avg_prec"]) and np.isnan(row["tpr"]) and row[["f1", "prec", "acc"]].tolist() == [0, 0, .5]


def test_every_point_of_the_roc_and_precision_recall_curves_is_there():
    y, s, _ = sample(80, 3, digits=2)
    table = quiet(sweep, y, s, {}, ["fpr", "tpr", "prec"])
    fpr, tpr, at = sm.roc_curve(y, s, drop_intermediate=False)
    mine = table.iloc[::-1]
    assert mine.index.tolist() == at.tolist()
    assert mine["fpr"].to_numpy() == pytest.approx(fpr) and mine["tpr"].to_numpy() == pytest.approx(tpr)
    prec, rec, at = sm.precision_recall_curve(y, s)
    assert table.index[:-1].tolist() == at.tolist() and table["prec"].iloc[:-1].to_numpy() == pytest.approx(prec[:-1])
