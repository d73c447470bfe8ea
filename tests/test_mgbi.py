"MGBI: hand-computed values, a naive twin, bad input named and counted, the printed table, intervals, the ceiling, the correction, several models, reports."
import importlib.util
import itertools
import json
import math
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.attributes import TAXONOMY
from fairical_nb.bootstrap import bca
from fairical_nb.counts import per_cluster, read_labels, tally
from fairical_nb.entropy import checked_target, entropy, evenness, geometric
from fairical_nb.mgbi import METHODS, SCORES, CollapsedWarning, FewImagesWarning, NoClustersWarning, NoLimitsWarning, OneClusterWarning, clusters_in, from_counts, left_out, limitless, mgbi
from fairical_nb.mgbi_ceiling import ceiling, ceiling_curve, coverage, null_scores
from fairical_nb.mgbi_correction import CorrectionWarning, corrected, read_confusion
from fairical_nb.mgbi_models import benchmark, by_model, check_printed, shared_replicates, versus
from fairical_nb.mgbi_parts import by_dimension, with_joint, within_prompts
from fairical_nb.mgbi_report import attributes_from, audit, beside, report, targets_from
from fairical_nb.prompts import TRIGGERS

FILTER = pytest.mark.filterwarnings("ignore::UserWarning")
SMALL = {"": {"gender": [5, 5]}, "gentle": {"gender": [6, 4]}, "poor": {"gender": [3, 7]}, "successful": {"gender": [1, 9]}}


def labels(seed=0, prompts=6, images=15, models=("first",), triggers=tuple(TRIGGERS), varies=4):
    "Drawn labels; models share prompts, and each prompt has shares of its own."
    rng, rows = np.random.default_rng(seed), []
    for s in ["", *triggers]:
        for p in range(prompts):
            shares = {a: rng.dirichlet(varies * np.ones(len(c))) for a, c in TAXONOMY.items()}
            for model in models:
                for k in range(images): rows.append((model, f"{s}-{p}", s, f"{model}-{s}-{p}-{k}", *(rng.choice(c, p=shares[a]) for a, c in TAXONOMY.items())))
    return pd.DataFrame(rows, columns=["model", "prompt_id", "trigger", "image", *TAXONOMY])


@pytest.fixture(scope="module")
def table(): return labels()


# By hand, and as a loop

@FILTER
def test_the_example_by_hand():
    r = from_counts(SMALL)
    assert [r.ID, r.worst] == pytest.approx([1, -.1 * math.log2(.1) - .9 * math.log2(.9)])
    assert r.CA == pytest.approx(.8 * entropy([1, 9]) + .2 * entropy([3, 7]))
    assert r.MGBI == pytest.approx(math.sqrt(r.CA)) and r.worst_context == "successful"
    assert r.per_context.index.tolist() == ["gentle", "poor", "successful"]


def naive(table, attributes, q=.1, eps=1e-6):
    "The definitions with Python's own dictionaries and logarithm; the quantile by its formula."
    counts = {}
    for row in table.to_dict("records"):
        for a in attributes:
            if row[a] is not None: counts.setdefault(row["trigger"], {}).setdefault(a, {}).setdefault(row[a], 0); counts[row["trigger"]][a][row[a]] += 1
    h = {s: {a: -sum(n / sum(found.values()) * math.log(n / sum(found.values())) for n in found.values()) / math.log(len(attributes[a])) for a, found in c.items()} for s, c in counts.items()}
    product = lambda values: math.exp(sum(map(math.log, values)) / len(values)) if min(values) > 0 else 0.
    g = sorted(product(list(v.values())) for s, v in h.items() if s)
    at = q * (len(g) - 1)
    low = min(int(at), len(g) - 2) if len(g) > 1 else 0
    CA = g[low] + (at - low) * (g[low + 1] - g[low]) if len(g) > 1 else g[0]
    ID = product([max(eps, v) for v in h[""].values()])
    return {"ID": ID, "CA": CA, "CA_mean": sum(g) / len(g), "worst": g[0], "MGBI": math.sqrt(ID * CA)}


@FILTER
@pytest.mark.parametrize("seed", range(6))
def test_the_naive_twin(seed):
    data = labels(seed, prompts=2, images=5, triggers=list(TRIGGERS)[:1 + seed], varies=.6).drop(columns="model")
    data["age"] = data["age"].astype(object).where(np.random.default_rng(seed).random(len(data)) > .15, None)
    found = mgbi(data, TAXONOMY)
    assert found.summary.to_dict() == pytest.approx(naive(data, TAXONOMY), abs=1e-12)


def test_Q01_the_quantile_is_a_named_parameter_and_is_printed():
    "Reported fault: ten definitions of a quantile. Nine triggers with g = .1 ... .9."
    from fairical_nb.mgbi import scores
    h = np.r_[1., np.arange(1, 10) / 10][:, None]
    found = {m: scores(h, method=m)[1] for m in METHODS}
    assert (found["linear"], found["lower"], found["higher"], found["midpoint"], found["inverted_cdf"]) == pytest.approx((.18, .1, .2, .15, .1))
    assert len({round(v, 6) for v in found.values()}) == 7
    with warnings.catch_warnings(action="ignore"): r = from_counts(SMALL, method="lower")
    assert "quantile 0.1 lower" in repr(r) and "lower" in r._repr_html_() and r.CA == r.worst
    with pytest.raises(ValueError, match="'linear'"): from_counts(SMALL, method="type 7")


# Bad input is named and counted

BAD = [
    (lambda t: t.drop(columns="race"), "no column 'race'"),
    (lambda t: t.drop(columns="trigger"), "no column 'trigger'"),
    (lambda t: t.assign(gender=t["gender"].where(t.index != 3, "femal")), "'femal'.*did you mean 'female'"),
    (lambda t: t.assign(trigger=t["trigger"].where(t.index > 1, None)), r"2 images have no trigger \(rows 0, 1\).*keep_default_na"),
    (lambda t: t[t["trigger"] != ""], "no neutral images"),
    (lambda t: t[t["trigger"] == ""], "at least one trigger"),
    (lambda t: t.assign(image="a.png"), "899 images are listed a second time"),
    (lambda t: t.assign(model=["a", "b"] * (len(t) // 2)), "2 models.*benchmark"),
    (lambda t: t.assign(age=t["age"].astype(object).where(t["trigger"] != "poor", None)), "trigger 'poor' has a class of 'age'"),
]


@FILTER
@pytest.mark.parametrize("spoil, says", BAD)
def test_bad_labels(table, spoil, says):
    with pytest.raises(ValueError, match=says): mgbi(spoil(table), TAXONOMY)


@FILTER
def test_a_trigger_that_should_be_there_is_named(table):
    with pytest.raises(ValueError, match=r"no image has the trigger 'kind' \(2 triggers are absent: kind, rich\)"): mgbi(table, TAXONOMY, triggers=["kind", "rich", "poor"])
    assert mgbi(table, TAXONOMY, triggers=TRIGGERS).MGBI == mgbi(table, TAXONOMY).MGBI


@pytest.mark.parametrize("counts, says", [
    ({}, "empty"), ({"poor": {"a": [1, 2]}}, "no neutral"), ({"": {"a": [1, 2]}}, "at least one trigger"), ({"": {"a": [1, 2]}, "x": {"a": [1, 2, 3]}}, "list all classes"),
    ({"": {"a": [1, 2]}, "x": {"b": [1, 2]}}, r"attributes \['b'\]"), ({"": {"a": [1, 2]}, "x": {"a": [1, 2], "b": [1, 2]}}, "but the first context has"),
    ({"": {"a": [1, -1]}, "x": {"a": [1, 2]}}, ">= 0"), ({"": {"a": [1, np.nan]}, "x": {"a": [1, 2]}}, "finite"), ({"": {"a": [1]}, "x": {"a": [1]}}, "at least two classes"),
    ({"": {"a": [1, 2]}, "x": {"a": [0, 0]}}, "no image of trigger 'x'"), ({"": {"a": [0, 0]}, "x": {"a": [1, 1]}}, "no image of the neutral context"), ({"": {}, "x": {}}, "at least one")])
def test_bad_counts(counts, says):
    with pytest.raises(ValueError, match=says): from_counts(counts)


@FILTER
@pytest.mark.parametrize("options, says", [({"q": "a"}, "q must be a number"), ({"eps": None}, "eps must be a number"), ({"q": -.1}, "q must"), ({"q": 1.1}, "q must"), ({"eps": -1}, "eps must"), ({"ca_eps": 2}, "ca_eps must"), ({"target": {"height": [1]}}, "'height'"),
                                           ({"target": {"gender": [.5, .6]}}, "add up to 1"), ({"target": {"gender": [1, 0]}}, "> 0"), ({"target": {"gender": [1 / 3] * 3}}, "2 shares"), ({"correction": "chao"}, "miller-madow")])
def test_bad_settings(options, says):
    with pytest.raises(ValueError, match=says): from_counts(SMALL, **options)


@pytest.mark.parametrize("p", [[], [1], [[1, 2]], [1, -1], [0, 0], [np.nan, 1], [np.inf, 1]])
def test_entropy_refuses(p):
    with pytest.raises(ValueError): entropy(p)


def test_undetermined_is_counted_and_left_out_of_that_attribute_only(table):
    spoiled = table.assign(age=table["age"].astype(object).where(table.index % 10 != 0, None))
    with warnings.catch_warnings(action="ignore"): r, whole = mgbi(spoiled, TAXONOMY), mgbi(table, TAXONOMY)
    assert r.undetermined["age"].sum() == 90 and r.undetermined[["gender", "race"]].to_numpy().sum() == 0
    assert (r.table()["gender"] == whole.table()["gender"]).all() and (r.table()["age"] != whole.table()["age"]).any()


def test_warnings_say_what_they_must():
    with pytest.warns(FewImagesWarning, match="fewest: 10 in 'neutral'"): r = from_counts(SMALL)
    with pytest.warns(CollapsedWarning, match="factor 0.001"): from_counts({"": {"gender": [0, 400], "age": [90, 90, 90]}, "poor": {"gender": [300, 5], "age": [90, 90, 90]}})
    with pytest.warns(NoClustersWarning): r.interval(20)
    with warnings.catch_warnings(): warnings.simplefilter("error"); from_counts({s: {"gender": [150, 160]} for s in ("", "poor")}).interval(20, cluster=None)


# Files

def test_files_keep_neutral_and_undetermined_apart(table, tmp_path):
    spoiled = table.assign(age=table["age"].astype(object).where(table.index % 10 != 0, None))
    spoiled.to_csv(tmp_path / "a.csv", index=False); spoiled.to_parquet(tmp_path / "a.parquet")
    want = tally(spoiled, TAXONOMY).totals
    for ending in ("csv", "parquet"): assert (tally(read_labels(tmp_path / f"a.{ending}", TAXONOMY), TAXONOMY).totals == want).all()
    with pytest.raises(FileNotFoundError): read_labels(tmp_path / "b.csv", TAXONOMY)
    with pytest.raises(ValueError, match="no column 'height'"): read_labels(tmp_path / "a.csv", ["height"])
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=".csv or .parquet"): read_labels(tmp_path / "a.txt", TAXONOMY)


# Intervals

def test_clusters_are_prompts_within_contexts(table):
    vectors, place, names = per_cluster(tally(table, TAXONOMY))
    assert len(vectors) == 60 and (vectors.sum(1) == 45).all() and set(np.bincount(place)) == {6}
    both, where, _ = per_cluster(tally(table.assign(prompt_id=1), TAXONOMY))
    assert len(both) == 10, "a prompt of two contexts is two clusters"


@FILTER
def test_prompts_that_hang_together_widen_the_interval():
    r = mgbi(labels(1, prompts=8, images=25, varies=1), TAXONOMY)
    width = lambda t: (t["high"] - t["low"])["CA_mean"]
    assert width(r.interval(400, kind="percentile")) > 1.5 * width(r.interval(400, kind="percentile", cluster=None))


@FILTER
@pytest.mark.parametrize("kind", ["basic", "percentile", "bca"])
@pytest.mark.parametrize("single, lost", [([""], ["ID", "MGBI"]), (["poor"], ["CA", "CA_mean", "MGBI", "worst"]),
                                          (["", *TRIGGERS], ["ID", "CA", "CA_mean", "MGBI", "worst"]), ([], [])])
def test_contexts_of_one_prompt_give_no_limits_and_one_warning(table, kind, single, lost):
    "Drawing one prompt gives itself: an interval of no width would look like certainty."
    r = mgbi(table.assign(prompt_id=table["prompt_id"].where(~table["trigger"].isin(single), "only")), TAXONOMY)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = r.interval(200, kind=kind, worst=True)
    said = [t.category for t in told]
    assert said.count(OneClusterWarning) == bool(single) and RuntimeWarning not in said
    if single: assert any(f"{len(single)} of 10 contexts" in str(t.message) and all(k in str(t.message) for k in lost) for t in told)
    assert found.loc[lost].isna().all().all()
    kept = found.drop(index=lost)
    open_ = kept["low"].isna() # BCa may find no limits for reasons of its own, and says so for those
    assert (NoLimitsWarning in said) == open_.any() and not (kind != "bca" and open_.any())
    assert (kept["high"] > kept["low"])[~open_].all() and kept["bias"].notna().all()
    assert limitless(r)[0].tolist() == [k in lost for k in SCORES]


@FILTER
def test_single_images_and_counts_of_one_image_have_no_limits_either(table):
    first = table[(table["trigger"] != "poor") | (table["image"] == "first-poor-0-0")]
    for kind in ("basic", "percentile", "bca"):
        with pytest.warns(OneClusterWarning, match="rest on one image .first: 'poor'"): found = mgbi(first, TAXONOMY).interval(50, kind=kind, cluster=None)
        assert found.loc["ID"].notna().all() or kind == "bca"
        assert found.drop(index="ID").isna().all().all()
        with pytest.warns(OneClusterWarning, match="one image"): counted = from_counts(SMALL | {"poor": {"gender": [0, 1]}}).interval(50, kind=kind)
        assert counted.loc[["CA", "MGBI"]].isna().all().all()


@FILTER
def test_a_prompt_without_a_determined_image_does_not_count(table):
    lost = table["trigger"].eq("poor") & ~table["prompt_id"].eq("poor-0")
    r = mgbi(table.assign(age=table["age"].astype(object).where(~lost, None)), TAXONOMY)
    assert clusters_in(r)["poor"] == 1 and clusters_in(r).drop("poor").eq(6).all() and clusters_in(r, None)["poor"] == 15
    with pytest.warns(OneClusterWarning): assert r.interval(50).loc["CA", ["low", "high"]].isna().all()


@FILTER
def test_one_prompt_is_said_in_tables_of_models_comparisons_and_reports():
    both = labels(3, prompts=3, images=8, models=("first", "second"))
    both = both.assign(prompt_id=both["prompt_id"].where((both["model"] == "first") | (both["trigger"] != "poor"), "only"))
    results = by_model(both, TAXONOMY)
    with pytest.warns(OneClusterWarning, match="^second: 1 of 10"): shown = benchmark(results, n=50)
    assert shown[["low", "high"]].isna().all(axis=1).tolist() == [False, True]
    with pytest.warns(OneClusterWarning): pairs = versus(results, n=50)
    assert pairs[["low", "high", "beats"]].isna().all().all() and pairs["difference"].notna().all()
    assert versus(results, n=50, score="ID")["beats"].notna().all()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = audit(both, n=50)
    assert [t.category for t in told].count(OneClusterWarning) == 1
    for fmt in ("text", "markdown", "latex", "html", "json"): assert ("rest on one prompt_id" in report(found, fmt)) or fmt == "json"
    assert json.loads(report(found, "json"))["models"]["second"]["intervals"]["MGBI"]["low"] is None


def test_an_unknown_cluster_is_refused_and_named(table):
    with warnings.catch_warnings(action="ignore"): r = mgbi(table.drop(columns="prompt_id"), TAXONOMY)
    with pytest.raises(ValueError, match="no column 'prompt_id'.*cluster=None"): r.interval(10)
    assert r.interval(10, cluster=None).notna().all().all()


def test_bca_without_limits_is_nan_and_warned():
    with warnings.catch_warnings(action="ignore"): r = from_counts({s: {a: [3] * len(c) for a, c in TAXONOMY.items()} for s in ["", *"abcdefghi"]})
    with pytest.warns(NoLimitsWarning, match="MGBI"): found = r.interval(100, kind="bca", cluster=None)
    assert found.loc["MGBI", ["low", "high"]].isna().all()


def test_a_draw_without_images_of_an_attribute_is_nan_and_left_out():
    rows = pd.DataFrame({"prompt_id": [1, 2, 5, 3, 4], "trigger": ["", "", "", "poor", "poor"], "gender": ["male", None, "female", "male", "female"]})
    with warnings.catch_warnings(action="ignore"): r = mgbi(rows, {"gender": TAXONOMY["gender"]})
    values = r.replicates(200)
    assert 0 < np.isnan(values[:, 0]).sum() < 200
    with warnings.catch_warnings(action="ignore"): assert r.interval(200)["low"].notna().all()


def test_basic_covers_what_percentile_misses():
    "Few images: the percentile interval repeats the bias of entropy, the basic one mends it."
    rng = np.random.default_rng(6)
    shares = {s: {a: .5 / len(c) + .5 * rng.dirichlet(np.ones(len(c))) for a, c in TAXONOMY.items()} for s in ["", *"abcdefghi"]}
    found = coverage(shares, audits=40, replicates=120)
    assert found.loc["basic", "covered"] > .75 and found.loc["percentile", "covered"] < .6
    assert (found["mean"] < found["truth"]).all()


# The ceiling

@pytest.mark.parametrize("images, mean", [(10, .850), (25, .947), (75, .983), (300, .996)])
def test_the_ceiling_of_an_even_model(images, mean):
    assert ceiling_curve([images], n=3000).at[images, "MGBI"] == pytest.approx(mean, abs=2e-3)


def test_a_misspelt_setting_of_a_ceiling_does_not_pass_for_the_default():
    assert (ceiling_curve([10], n=50, method="lower")["CA"] < ceiling_curve([10], n=50)["CA"]).all()
    with pytest.raises(ValueError, match="'methd' was given"): ceiling_curve([10], n=50, methd="lower")
    shares = {s: {"gender": (.5, .5)} for s in ("", "poor")}
    with pytest.raises(ValueError, match="'Q' was given"): coverage(shares, audits=2, Q=.2)
    with pytest.raises(ValueError, match=r"score must be one of \['ID'"): coverage(shares, audits=2, score="g")


@FILTER
def test_the_ceiling_of_a_result_keeps_its_numbers_of_images_and_its_target():
    counts = {s: {"gender": [20, 5], "age": [10, 10, 5]} for s in ("", "poor", "gentle")}
    even, aimed = ceiling(from_counts(counts)), ceiling(from_counts(counts, target={"gender": [.8, .2]}))
    assert even.loc["MGBI", "p"] < .01 and aimed.loc["MGBI", "p"] > even.loc["MGBI", "p"]
    assert (even["low"] <= even["ceiling"]).all() and (even["ceiling"] <= even["high"] + 1e-12).all()
    assert ceiling(from_counts(counts)).equals(even)


# The classifier

def matrices(size=1000):
    right = {"gender": .9788, "age": .9536, "race": .9228}
    return {a: np.round(size * np.where(np.eye(len(c)), right[a], (1 - right[a]) / (len(c) - 1))) for a, c in TAXONOMY.items()}


def test_a_collapsed_model_reads_19_and_is_corrected_to_0():
    M = matrices()
    assert geometric([entropy(m[0]) for m in M.values()]) == pytest.approx(.19, abs=.005)
    seen = from_counts({s: {a: M[a][0] if s == "poor" else np.ones(len(c)) / len(c) @ M[a] for a, c in TAXONOMY.items()} for s in ("", "gentle", "poor")})
    fixed = corrected(seen, M)
    assert seen.worst == pytest.approx(.19, abs=.005) and fixed.worst < .005 and fixed.ID == pytest.approx(1, abs=1e-6)


def test_the_correction_finds_the_truth_and_its_interval_holds_the_matrix():
    rng, M = np.random.default_rng(0), matrices(200)
    truth = {s: {a: rng.dirichlet(2 * np.ones(len(c))) for a, c in TAXONOMY.items()} for s in ("", "gentle", "poor")}
    seen = from_counts({s: {a: 2000 * truth[s][a] @ (M[a] / M[a].sum(1, keepdims=True)) for a in TAXONOMY} for s in truth})
    fixed = corrected(seen, M)
    want = {s: geometric([entropy(p) for p in t.values()]) for s, t in truth.items()}
    assert fixed.per_context.to_dict() == pytest.approx({s: v for s, v in want.items() if s}, abs=1e-3)
    width = lambda r: (t := r.interval(150, cluster=None, kind="percentile").loc["MGBI"])["high"] - t["low"]
    assert width(fixed) > 1.2 * width(seen)
    assert fixed.interval(50, cluster=None).equals(fixed.interval(50, cluster=None))


@FILTER
@pytest.mark.parametrize("confusion, says", [({"height": [[1, 0], [0, 1]]}, "'height'"), ({"gender": [[1]]}, r"shape \(2, 2\)"), ({"gender": [[1, 1], [0, 0]]}, "no held-out picture"), ({"gender": [[1, -1], [0, 1]]}, ">= 0")])
def test_bad_confusion(confusion, says):
    with pytest.raises(ValueError, match=says): corrected(from_counts(SMALL), confusion)


def test_corrections_that_rest_on_little_are_warned():
    with warnings.catch_warnings(action="ignore"): r = from_counts(SMALL)
    with pytest.warns(CorrectionWarning, match="needs about 500"): corrected(r, {"gender": [[9, 1], [1, 9]]})
    big = from_counts({s: {"gender": [500, 500]} for s in ("", "poor")})
    with pytest.warns(CorrectionWarning, match="hardly tells"): corrected(big, {"gender": [[6, 4], [4, 6]]})


def test_confusion_files(tmp_path):
    path = tmp_path / "held_out.csv"
    path.write_text("attribute,true,predicted,n\ngender,female,female,9\ngender,female,male,1\ngender,male,male,8\n")
    assert read_confusion(path, TAXONOMY)["gender"].tolist() == [[9, 1], [0, 8]]
    path.write_text("attribute,true,predicted,n\ngender,female,woman,9\n")
    with pytest.raises(ValueError, match="'woman' is no class"): read_confusion(path, TAXONOMY)
    path.write_text("true,predicted,n\n")
    with pytest.raises(ValueError, match="no column 'attribute'"): read_confusion(path, TAXONOMY)


# Several models

@pytest.fixture(scope="module")
def three():
    a = labels(3, prompts=10, images=10, models=("A", "B"), triggers=("poor", "gentle", "successful"), varies=1)
    c = labels(4, prompts=10, images=10, models=("C",), triggers=("poor", "gentle", "successful")).assign(prompt_id=lambda d: "c" + d["prompt_id"])
    with warnings.catch_warnings(action="ignore"): return by_model(pd.concat([a, c]), TAXONOMY)


def test_models_with_the_same_prompts_share_their_draws(three):
    values, groups = shared_replicates(three, 300)
    assert sorted(map(sorted, groups)) == [["A", "B"], ["C"]]
    r = np.corrcoef([v[:, 2] for v in values.values()])
    assert r[0, 1] > .5 and abs(r[0, 2]) < .25
    pairs = versus(three, n=300)
    assert pairs["paired"].tolist() == [True, False, False] and pairs["beats"].between(0, 1).all() and (pairs["low"] <= pairs["high"]).all()
    assert pairs.loc[("A", "B"), "difference"] == pytest.approx(three["A"].MGBI - three["B"].MGBI)


def test_a_model_beats_itself_half_of_the_time(three):
    found = versus({"A": three["A"], "again": three["A"]}, n=50)
    assert found["beats"].tolist() == [.5] and found[["difference", "low", "high"]].to_numpy() == pytest.approx(0)


def test_order_of_rows_does_not_matter_to_pairs():
    data = labels(3, prompts=5, images=6, models=("A", "B"), triggers=("poor", "gentle"))
    with warnings.catch_warnings(action="ignore"):
        first, second = by_model(data, TAXONOMY), by_model(data.sort_values(["model", "image"], ascending=[True, False]), TAXONOMY)
    assert versus(first, n=40).equals(versus(second, n=40))


def test_the_benchmark_table(three):
    found = benchmark(three, n=100)
    assert found.index.tolist() == ["A", "B", "C"] and found.loc["A", "MGBI"] == three["A"].MGBI
    assert found[["ID", "CA", "CA_mean", "worst", "MGBI", "low", "high", "worst_trigger", "images"]].notna().all().all()


def test_what_cannot_be_compared_is_refused(three):
    with warnings.catch_warnings(action="ignore"): other, lower = from_counts(SMALL), from_counts({s: {a: [1] * len(c) for a, c in TAXONOMY.items()} for s in three["A"].data.contexts}, method="lower", attributes=TAXONOMY)
    with pytest.raises(ValueError, match="different attributes"): versus({"A": three["A"], "x": other})
    with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError, match=r"same triggers \(successful\)"): by_model(labels(3, prompts=2, images=3, models=("A", "B")).query("not (model == 'B' and trigger == 'successful')"), TAXONOMY)
    with pytest.raises(ValueError, match="different settings"): benchmark({"A": three["A"], "x": lower})
    with pytest.raises(ValueError, match="at least two"): versus({"A": three["A"]})


@pytest.mark.parametrize("compare", [benchmark, versus])
@pytest.mark.parametrize("kind", ["bca", "normal"])
def test_kinds_of_limits_that_a_comparison_does_not_have_are_refused(three, compare, kind):
    with pytest.raises(ValueError, match="'basic' or 'percentile'"): compare(three, n=10, kind=kind)


def test_the_printed_table_is_the_root_of_its_columns(root):
    printed = pd.read_csv(root / "data/published/holofair_benchmark.csv", dtype=str).set_index("model")
    found = check_printed(printed)
    assert len(found) == 8 and (found["difference"].abs() < 1e-4).all() and found["explained"].all()
    assert sorted(found.index[found["root"].round(4) != found["MGBI"]]) == ["Bagel", "Harmon", "SD3.5-Large"]
    spoiled = check_printed(printed.assign(MGBI=(printed["MGBI"].astype(float) + 2e-4).map("{:.4f}".format)))
    assert not spoiled["explained"].all()


# Parts

@FILTER
def test_joint_attributes_have_every_combination(table):
    r = mgbi(*with_joint(table, TAXONOMY, "gender", "race"))
    assert r.counts.loc[("", "gender&race")].index.tolist() == [f"{g}&{c}" for g in TAXONOMY["gender"] for c in TAXONOMY["race"]]
    want = pd.crosstab(table["trigger"], table["gender"] + "&" + table["race"])
    assert r.counts["n"].xs("poor").droplevel(0).to_dict() == {c: want.loc["poor"].get(c, 0) for c in r.data.attributes["gender&race"]}
    spoiled = table.assign(race=table["race"].astype(object).where(table.index % 7 != 0, None))
    assert mgbi(*with_joint(spoiled, TAXONOMY, "gender", "race")).undetermined.to_numpy().sum() == spoiled["race"].isna().sum()


@FILTER
def test_means_by_dimension(table):
    r = mgbi(table, TAXONOMY)
    found = by_dimension(r)
    assert found["triggers"].sum() == 9
    assert found.loc[("warmth", "+"), "g"] == pytest.approx(r.per_context[["compassionate", "gentle", "trustworthy"]].mean())


@FILTER
def test_within_and_between_add_up(table):
    found = within_prompts(mgbi(table, TAXONOMY), n=20)
    assert (found["within"] + found["between"]).to_numpy() == pytest.approx(found["pooled"].to_numpy()) and found["between"].min() > -1e-12
    by_hand = table[(table["trigger"] == "poor")].groupby("prompt_id")["race"].apply(lambda x: entropy([(x == c).sum() for c in TAXONOMY["race"]])).mean()
    assert found.loc[("poor", "race"), "within"] == pytest.approx(by_hand)


# Reports

@pytest.mark.parametrize("fmt", ["text", "markdown", "latex", "html", "json"])
def test_reports(table, tmp_path, fmt):
    with warnings.catch_warnings(action="ignore"): found = audit(table, n=40, per_prompt=True)
    text = report(found, fmt)
    assert "linear" in text and ("0.1" in text)
    if fmt == "json":
        read = json.loads(text)["models"]["first"]
        assert read["scores"]["MGBI"] == found.results["first"].MGBI and read["intervals"]["MGBI"]["low"] == found.table.at["first", "low"]
        assert sum(c["n"] for c in read["counts"]) == 3 * len(table) and set(read["dimensions"]) == {"competence | +", "competence | -", "warmth | +", "warmth | -"}
    else: assert f"{found.results['first'].MGBI:.4f}" in text and "undetermined gender 0" in text


def test_the_audit_of_a_file_is_that_of_its_table(table, tmp_path):
    table.to_csv(tmp_path / "labels.csv", index=False)
    with warnings.catch_warnings(action="ignore"): assert report(audit(tmp_path / "labels.csv", n=30), "json") == report(audit(table, n=30), "json")


def test_words_of_the_command_line():
    assert attributes_from(["gender", "hair=short,long"]) == {"gender": ("female", "male"), "hair": ("short", "long")} and attributes_from([]) == TAXONOMY
    assert targets_from(["age=.2,.6,.2"]) == {"age": [.2, .6, .2]} and targets_from([]) is None
    for bad in (["hair"], ["gender", "gender"]):
        with pytest.raises(ValueError): attributes_from(bad)
    with pytest.raises(ValueError, match="share,share"): targets_from(["age=x"])


def test_the_result_shows_itself():
    with warnings.catch_warnings(action="ignore"): r = from_counts(SMALL)
    html = r._repr_html_()
    assert "0.7426" in html and "fewer than 200 images" in html and "(neutral)" in html and "worst trigger 'successful'" in html


# The benchmark

@FILTER
def test_the_benchmark_runs_and_agrees_with_its_loop_and_its_results_are_reached(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    spec = importlib.util.spec_from_file_location("benchmark_of_mgbi", root / "benchmarks/mgbi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PART", 1), monkeypatch.setattr(module, "REPLICATES", 50)
    row = module.ROWS["mgbi"]
    assert row.same(row.ours(row.make(True)), row.reference(row.make(True))) < 1e-12
    found = pd.read_csv(root / "benchmarks/results/mgbi.csv")
    assert found["row"].tolist() == list(module.ROWS) and found["reached"].all()


def test_none_of_it_needs_torch():
    code = "import sys, fairical_nb.mgbi_report, fairical_nb.mgbi_plots, fairical_nb.prompts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# Each number again from its definition: every option must reach what it names

TWO = {a: TAXONOMY[a] for a in ("age", "gender")}


def uneven(seed=0, models=("first",), most=7):
    "Labels whose prompts have one to `most` images, with undetermined ones; each prompt has a determined image of each attribute."
    rng, rows = np.random.default_rng(seed), []
    for model in models:
        for s in ("", "gentle", "poor", "successful"):
            for p in range(5):
                for k in range(rng.integers(1, most + 1)): rows.append((model, f"{s}-{p}", s, *(None if k and rng.random() < .2 else c[min(rng.geometric(.5), len(c)) - 1] for c in TAXONOMY.values())))
    return pd.DataFrame(rows, columns=["model", "prompt_id", "trigger", *TAXONOMY])


@pytest.mark.parametrize("target", [None, [.2, .3, .5]])
@pytest.mark.parametrize("counts", [[7, 3, 0], [1, 1, 1], [40, 30, 30], [0, 9, 0]])
def test_miller_madow_by_hand(counts, target):
    "The entropy in nats grows by (classes seen - 1) / (2 n); what it is divided by stays that of the target."
    n, seen = sum(counts), sum(c > 0 for c in counts)
    gap = sum(c / n * math.log(c / n / q) for c, q in zip(counts, target or [1 / 3] * 3) if c)
    want = 1 - (gap - (seen - 1) / (2 * n)) / -math.log(min(target or [1 / 3]))
    assert evenness(counts, target=target, correction="miller-madow") == pytest.approx(min(1, want), abs=1e-12)


@pytest.mark.parametrize("off", [1e-3, -1e-3, 1e-5, 2.])
def test_targets_add_up_to_1_or_are_refused(off):
    with pytest.raises(ValueError, match="add up to 1"): checked_target([.2, .3, .5 + off], "xyz", "a")
    assert checked_target([.2, .3, .5 + 4e-7], "xyz", "a").sum() == pytest.approx(1, abs=1e-12)


@FILTER
@pytest.mark.parametrize("seed", range(3))
def test_counts_and_labels_are_one_in_any_order_of_attributes_and_contexts(seed):
    data = uneven(seed)
    counts = {s: {a: [int(((data["trigger"] == s) & (data[a] == c)).sum()) for c in TAXONOMY[a]] for a in np.random.default_rng(seed).permutation(list(TAXONOMY))} for s in ("poor", "", "successful", "gentle")}
    found, want = from_counts(counts, attributes=TAXONOMY), mgbi(data, TAXONOMY)
    pd.testing.assert_frame_equal(found.table(), want.table(), check_dtype=False)
    pd.testing.assert_frame_equal(found.counts, want.counts, check_dtype=False)
    share = data.groupby("trigger")["age"].value_counts(normalize=True)
    assert want.counts["share"].xs("age", level="attribute").to_dict() == pytest.approx({i: share.get(i, 0) for s in counts for c in TAXONOMY["age"] for i in [(s, c)]})
    assert want.table()["n"].to_dict() == {s: min(sum(n) for n in c.values()) for s, c in counts.items()}


@FILTER
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_words_and_digits_in_a_file_are_read_as_they_are_written(tmp_path, ending):
    "Classes and triggers may look like numbers or like missing values; only an empty cell is undetermined."
    kinds = {"code": ("1", "01", "1.0"), "word": ("NA", "None", "nan")}
    data = pd.DataFrame({"trigger": ["", "", "null", "null", "7", "7"], "code": ["1", "01", "1.0", "01", "1", "1"], "word": ["NA", "nan", "None", "", "NA", "nan"]})
    getattr(data, f"to_{ending}")(tmp_path / f"a.{ending}", index=False)
    r = mgbi(read_labels(tmp_path / f"a.{ending}", kinds), kinds)
    assert r.data.contexts == ("", "7", "null") and r.undetermined.to_numpy().tolist() == [[0, 0], [0, 0], [0, 1]]
    assert r.data.totals.tolist() == [[1, 1, 0, 0, 1, 0, 1, 0], [2, 0, 0, 0, 1, 0, 1, 0], [0, 1, 1, 0, 0, 1, 0, 1]]


@FILTER
@pytest.mark.parametrize("level", [.5, .95])
@pytest.mark.parametrize("cluster", ["prompt_id", None])
def test_limits_are_quantiles_of_the_draws_and_bias_is_their_mean_less_the_estimate(level, cluster):
    r = mgbi(uneven(1), TWO)
    names = ["ID", "CA", "CA_mean", "MGBI", "worst"]
    draws, at = pd.DataFrame(r.replicates(200, seed=4, cluster=cluster), columns=SCORES)[names], r.summary[names]
    low, high = (draws.quantile(p) for p in ((1 - level) / 2, (1 + level) / 2))
    plain, basic = (r.interval(200, 4, kind, cluster, level=level, worst=True) for kind in ("percentile", "basic"))
    assert plain["low"].to_numpy() == pytest.approx(low.to_numpy()) and plain["high"].to_numpy() == pytest.approx(high.to_numpy())
    assert basic["low"].to_numpy() == pytest.approx((2 * at - high).clip(0, 1).to_numpy()) and basic["high"].to_numpy() == pytest.approx((2 * at - low).clip(0, 1).to_numpy())
    for found in (plain, basic): assert found["bias"].to_numpy() == pytest.approx((draws.mean() - at).to_numpy())


@FILTER
@pytest.mark.parametrize("level", [.5, .9])
def test_bca_leaves_each_prompt_out_once(level):
    data = uneven(2)
    r = mgbi(data, TWO)
    without = [np.array([mgbi(data[data["prompt_id"] != p], TWO).summary for p in data.loc[data["trigger"] == s, "prompt_id"].unique()]) for s in r.data.contexts]
    for found, want in zip(left_out(r, "prompt_id"), without, strict=True): assert np.sort(found, axis=0) == pytest.approx(np.sort(want, axis=0), abs=1e-12)
    low, high = bca(r.replicates(200, seed=1), r.summary.to_numpy(), without, level=level)
    found = r.interval(200, 1, "bca", level=level, worst=True).loc[list(SCORES)]
    assert found["low"].to_numpy() == pytest.approx(low, nan_ok=True) and found["high"].to_numpy() == pytest.approx(high, nan_ok=True) and found["low"].notna().any()


@FILTER
def test_from_counts_the_jackknife_leaves_each_image_out_once():
    counts = {"": {"gender": [4, 1], "age": [2, 0, 3]}, "poor": {"gender": [3, 3], "age": [1, 4, 2]}}
    smaller = lambda s, a, k: {t: {b: [n - ((t, b, i) == (s, a, k)) for i, n in enumerate(v)] for b, v in c.items()} for t, c in counts.items()}
    want = [np.array([from_counts(smaller(s, a, k)).summary for k, n in enumerate(counts[s][a]) for _ in range(n)]) for a in ("gender", "age") for s in counts]
    for found, one in zip(left_out(from_counts(counts), None), want, strict=True): assert np.sort(found, axis=0) == pytest.approx(np.sort(one, axis=0), abs=1e-12)


def expected(n, p, **options):
    "Mean evenness of n images of two classes."
    k = np.arange(n + 1)
    return float(scipy.stats.binom.pmf(k, n, p) @ evenness(np.stack([k, n - k], 1), **options))


@FILTER
@pytest.mark.parametrize("source", ["counts", "labels"])
def test_draws_of_single_images_have_the_mean_of_the_binomial(source):
    counts = {"": {"gender": [3, 17]}, "poor": {"gender": [5, 7]}}
    table = pd.DataFrame([(s, c) for s, n in counts.items() for c, k in zip(TAXONOMY["gender"], n["gender"]) for _ in range(k)], columns=["trigger", "gender"])
    r = from_counts(counts) if source == "counts" else mgbi(table, {"gender": TAXONOMY["gender"]})
    assert r.replicates(4000, cluster=None)[:, :2].mean(0) == pytest.approx([expected(20, 3 / 20), expected(12, 5 / 12)], abs=.012)


@FILTER
@pytest.mark.parametrize("options", [dict(ca_eps=0.), dict(ca_eps=.01, eps=0.), dict(ca_eps=.2, eps=.3, q=.4, method="lower")], ids=str)
def test_the_table_by_context_gives_the_scores(options):
    "Some attributes collapse, among the neutral images and elsewhere, so that both floors are felt."
    r = from_counts({"": {"gender": [9, 0], "age": [3, 3, 1]}, "poor": {"gender": [0, 5], "age": [1, 1, 1]}, "kind": {"gender": [4, 2], "age": [0, 7, 0]}, "rich": {"gender": [2, 2], "age": [1, 2, 9]}}, **options)
    g = r.table()["g"]
    CA = np.quantile(g[1:], options.get("q", .1), method=options.get("method", "linear"))
    assert r.summary.to_numpy() == pytest.approx([g.iloc[0], CA, g[1:].mean(), g[1:].min(), math.sqrt(g.iloc[0] * CA)], abs=1e-12)
    assert (g[1:] == r.per_context).all()


@pytest.mark.parametrize("images, few", [(199, True), (200, False)])
def test_from_200_images_on_nothing_is_said(images, few):
    rows = {s: {"gender": [100, images - 100], "age": [90, 90, 90]} for s in ("", "poor")}
    with warnings.catch_warnings(record=True) as told: warnings.simplefilter("always"); from_counts(rows)
    assert [t.category for t in told] == [FewImagesWarning] * few


def test_without_a_floor_nothing_says_that_it_is_active():
    collapsed = {"": {"gender": [0, 400]}, "poor": {"gender": [200, 200]}}
    with warnings.catch_warnings(): warnings.simplefilter("error"); assert from_counts(collapsed, eps=0).ID == 0
    for bad in (dict(eps=1), dict(ca_eps=1), dict(q=1 + 1e-9)):
        with pytest.raises(ValueError, match="must lie in"): from_counts(SMALL, **bad)


@FILTER
@pytest.mark.parametrize("target", [None, [.8, .2]])
@pytest.mark.parametrize("level", [.5, .9])
def test_the_ceiling_by_the_binomial(target, level):
    counts = {"": {"gender": [15, 5]}, "poor": {"gender": [4, 8]}}
    r = from_counts(counts, target=target and {"gender": target})
    found, p = ceiling(r, 4000, level=level), target[0] if target else .5
    k = np.arange(21)
    h, mass = evenness(np.stack([k, 20 - k], 1), target=target), scipy.stats.binom.pmf(k, 20, p)
    assert found.loc[["ID", "CA"], "ceiling"].to_numpy() == pytest.approx([mass @ h, expected(12, p, target=target)], abs=.01)
    assert found.loc["ID", "p"] == pytest.approx(mass[h <= h[15] + 1e-12].sum(), abs=.03)
    draws = null_scores(r, 4000)
    assert found[["low", "high"]].to_numpy().T == pytest.approx(np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0))
    assert not ceiling(r, 50, seed=1).equals(ceiling(r, 50)) and ceiling(r, 50, seed=1).equals(ceiling(r, 50, seed=1))


@pytest.mark.parametrize("correction", [None, "miller-madow"])
@pytest.mark.parametrize("score, n, p", [("ID", 40, .2), ("CA", 10, .4)])
def test_coverage_draws_the_neutral_context_and_the_triggers_at_their_own_sizes(score, n, p, correction):
    shares = {"": {"gender": (.2, .8)}, "poor": {"gender": (.4, .6)}}
    run = lambda seed, audits: coverage(shares, neutral=40, each=10, audits=audits, replicates=2, score=score, correction=correction, seed=seed)
    found = run(0, 80)
    assert found["truth"].to_numpy() == pytest.approx(entropy([p, 1 - p])) and found["mean"].nunique() == 1
    assert found["mean"].iloc[0] == pytest.approx(expected(n, p, correction=correction), abs=4 * found["sd"].iloc[0] / 80**.5)
    assert run(3, 5).equals(run(3, 5)) and (run(3, 5)["mean"] != run(4, 5)["mean"]).all()


def test_confusion_files_add_up_repeated_rows_and_keep_the_order_of_the_classes(tmp_path):
    rng, path, age = np.random.default_rng(0), tmp_path / "held_out.csv", TAXONOMY["age"]
    rows = pd.DataFrame({"attribute": "age", "true": rng.choice(age, 30), "predicted": rng.choice(age, 30), "n": rng.integers(1, 9, 30)})
    rows.to_csv(path, index=False)
    assert read_confusion(path, TAXONOMY)["age"].tolist() == [[rows["n"][(rows["true"] == t) & (rows["predicted"] == p)].sum() for p in age] for t in age]


@FILTER
@pytest.mark.parametrize("options", [{}, dict(correction="miller-madow"), dict(target={"gender": [.3, .7]})], ids=str)
def test_a_classifier_without_errors_is_corrected_to_itself(options):
    r = mgbi(uneven(3), TWO, **options)
    fixed = corrected(r, {a: 100 * np.eye(len(c)) for a, c in TWO.items()})
    assert fixed.summary.to_numpy() == pytest.approx(r.summary.to_numpy(), abs=1e-6)
    assert fixed.table().to_numpy(dtype=float) == pytest.approx(r.table().to_numpy(dtype=float), abs=1e-6)
    assert fixed.replicates(30) == pytest.approx(r.replicates(30), abs=1e-6)


@FILTER
def test_every_draw_has_a_confusion_matrix_of_its_own():
    r = from_counts(SMALL)
    adjust = corrected(r, {"gender": [[20, 5], [4, 20]]}).adjust
    same = np.repeat(r.data.totals[None], 40, axis=0)
    drawn, plain = adjust(same, np.random.default_rng(0)), adjust(same)
    assert (drawn[:, 0].std(0)[:2] > .01).all() and np.ptp(plain, axis=0).max() < 1e-9
    assert drawn.sum(-1) == pytest.approx(same.sum(-1)) and plain.sum(-1) == pytest.approx(same.sum(-1))


@pytest.mark.parametrize("images, told", [(499, 1), (500, 0)])
def test_a_correction_asks_for_500_images_of_the_attributes_that_it_corrects(images, told):
    with warnings.catch_warnings(action="ignore"): r = from_counts({s: {"gender": [250, images - 250], "age": [50, 50, 50]} for s in ("", "poor")})
    with warnings.catch_warnings(record=True) as said: warnings.simplefilter("always"); corrected(r, {"gender": [[90, 10], [10, 90]]})
    assert len(said) == told


@FILTER
@pytest.mark.parametrize("kind", ["basic", "percentile"])
@pytest.mark.parametrize("score, level", [("ID", .5), ("MGBI", .9), ("worst", .9)])
def test_tables_of_models_and_comparisons_are_those_of_the_shared_draws(kind, score, level):
    "Models in the order of their first appearance; prompts are shared, so all are paired."
    results = by_model(uneven(4, models=("zebra", "ant", "moth")), TWO)
    options, k = dict(n=150, seed=3, kind=kind, level=level), SCORES.index(score)
    values, at = shared_replicates(results, 150, seed=3)[0], {m: r.summary[score] for m, r in results.items()}
    limits = lambda x, estimate: np.quantile(2 * estimate - x if kind == "basic" else x, [(1 - level) / 2, (1 + level) / 2])
    pairs = versus(results, score=score, **options)
    assert pairs.index.tolist() == [("zebra", "ant"), ("zebra", "moth"), ("ant", "moth")] and pairs["difference"].tolist() == [at[a] - at[b] for a, b in pairs.index]
    for (a, b), row in pairs.iterrows():
        x = values[a][:, k] - values[b][:, k]
        ahead = 2 * row["difference"] - x if kind == "basic" else x
        assert [row["low"], row["high"]] == pytest.approx(limits(x, row["difference"])) and row["beats"] == pytest.approx((np.sign(ahead) / 2 + .5).mean())
    table = benchmark(results, **options)
    assert table.index.tolist() == list(results) and table["worst_trigger"].tolist() == [r.worst_context for r in results.values()]
    assert table["images"].tolist() == [r.table()["n"].min() for r in results.values()]
    for m, row in table.iterrows(): assert [row["low"], row["high"]] == pytest.approx(np.clip(limits(values[m][:, 4], results[m].MGBI), 0, 1))


@FILTER
def test_single_images_of_two_models_are_never_paired():
    data = uneven(5).drop(columns="model")
    results = by_model(pd.concat([data.assign(model=m) for m in "AB"]), TWO)
    assert versus(results, n=20)["paired"].tolist() == [True] and versus(results, n=20, cluster=None)["paired"].tolist() == [False]
    values, groups = shared_replicates(results, 200, cluster=None)
    assert len(groups) == 2 and abs(np.corrcoef(values["A"][:, 2], values["B"][:, 2])[0, 1]) < .3


@settings(max_examples=50)
@given(digits=st.integers(2, 5), rows=st.lists(st.tuples(st.floats(.05, 1), st.floats(.05, 1)), min_size=1, max_size=8))
def test_numbers_rounded_for_print_are_explained_and_those_two_units_off_are_not(digits, rows):
    "Wide enough an error in ID and CA moves the root by one unit at most where both are alike."
    ID, CA = np.array(rows).T
    printed = pd.DataFrame({"ID": ID.round(digits), "CA_0.10": CA.round(digits), "MGBI": np.sqrt(ID * CA).round(digits)})
    assert check_printed(printed, digits=digits)["explained"].all()
    alike = printed.assign(**{"CA_0.10": printed["ID"], "MGBI": printed["ID"] + 2 * 10. ** -digits})
    assert not check_printed(alike, digits=digits)["explained"].any()


@FILTER
def test_joint_attributes_are_their_naive_loop_for_three_with_gaps_in_each():
    data, names = uneven(6), ("race", "gender", "age")
    made, kinds = with_joint(data, TAXONOMY, *names)
    assert kinds == {"race&gender&age": ["&".join(c) for c in itertools.product(*(TAXONOMY[n] for n in names))]}
    want = [None if any(c is None for c in row) else "&".join(row) for row in data[list(names)].astype(object).where(data[list(names)].notna(), None).itertuples(index=False)]
    assert [None if pd.isna(c) else c for c in made["race&gender&age"]] == want and data[list(names)].isna().any().all()


@FILTER
def test_means_by_dimension_are_those_of_a_loop():
    r = from_counts({s: {"gender": [3 + k, 9 - k]} for k, s in enumerate(["", "a", "b", "c", "d", "e"])})
    where = {"d": ("x", "-"), "a": ("x", "+"), "b": ("x", "+"), "c": ("x", "+"), "z": ("y", "+")}
    found = by_dimension(r, dimensions=where)
    assert found.loc[("x", "+")].tolist() == [pytest.approx(r.per_context[["a", "b", "c"]].mean()), 3, "a, b, c"]
    assert found.loc[("x", "-")].tolist() == [pytest.approx(r.per_context["d"]), 1, "d"] and len(found) == 2 and found.attrs["left_out"] == ["e"]


@FILTER
def test_within_prompts_weighs_by_images_and_its_ceiling_is_that_of_as_many():
    "Prompts of one to seven images; some have none of an attribute."
    data = uneven(7)
    data.loc[data["prompt_id"].isin(["-0", "poor-2"]), "gender"] = None
    found = within_prompts(mgbi(data, TWO), n=3000)
    for s in ("", "poor", "gentle"):
        prompts = [[(g["gender"] == c).sum() for c in TWO["gender"]] for _, g in data[data["trigger"] == s].groupby("prompt_id") if g["gender"].notna().any()]
        sizes = np.sum(prompts, 1)
        want = [entropy(np.sum(prompts, 0)), np.average([entropy(p) for p in prompts], weights=sizes), np.average([expected(n, .5) for n in sizes], weights=sizes), len(sizes), np.mean(sizes)]
        assert found.loc[(s, "gender"), ["pooled", "within", "prompts", "images"]].tolist() == pytest.approx([want[i] for i in (0, 1, 3, 4)])
        assert found.loc[(s, "gender"), "ceiling"] == pytest.approx(want[2], abs=.015)
    one, same, other = (within_prompts(mgbi(data, TWO), n=5, seed=seed) for seed in (1, 1, 2))
    assert one.equals(same) and not one.equals(other)


@FILTER
@pytest.mark.parametrize("kind", ["basic", "percentile", "bca"])
@pytest.mark.parametrize("cluster", ["prompt_id", "group"])
def test_an_audit_hands_every_option_on(kind, cluster):
    data = uneven(8, models=("zebra", "ant")).assign(group=lambda d: d["prompt_id"].str[-1].replace({"4": "3", "1": "0"}))
    found = audit(data, TWO, n=60, seed=5, kind=kind, cluster=cluster, level=.6, per_prompt=True, q=.3)
    pairs = versus(found.results, n=60, seed=5, kind=kind if kind != "bca" else "basic", cluster=cluster, level=.6)
    pd.testing.assert_frame_equal(found.pairs, pairs)
    for m, part in data.groupby("model"):
        r = mgbi(part.reset_index(drop=True), TWO, q=.3)
        assert (found.results[m].summary == r.summary).all()
        pd.testing.assert_frame_equal(found.intervals[m], r.interval(60, 5, kind, cluster, level=.6, worst=True))
        pd.testing.assert_frame_equal(found.ceilings[m], ceiling(r, seed=5))
        pd.testing.assert_frame_equal(found.within[m], within_prompts(r, cluster=cluster, seed=5))
        assert found.table.at[m, "ceiling"] == found.ceilings[m].at["MGBI", "ceiling"]
        line = next(text for text in beside(found) if text.startswith(f"{m}: {len(part)} images"))
        assert all(f"{a} {part[a].isna().sum()}" in line for a in TWO) and f"fewest in a context {r.table()['n'].min()}" in line
    text, g = report(found, digits=6, triggers=True), {m: r.per_context for m, r in found.results.items()}
    assert all(f"{v:.6f}" in text for x in g.values() for v in x) and all(f"{r.ID:.6f}" in text for r in found.results.values())
