"Entropy, ID, CA and MGBI: what must hold whatever the counts are."
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from fairical_nb.attributes import TAXONOMY
from fairical_nb.clusters import redraw, without_one
from fairical_nb.entropy import entropy, evenness
from fairical_nb.mgbi import METHODS, SCORES, from_counts, mgbi, scores
from fairical_nb.mgbi_correction import likeliest

pytestmark = pytest.mark.filterwarnings("ignore")
COUNTS = st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(any)
HALF = settings(max_examples=50)


@st.composite
def contexts(draw, most=5):
    "Counts of two attributes in a neutral context and some triggers; every attribute has an image."
    row = lambda k: st.lists(st.integers(0, 30), min_size=k, max_size=k).filter(any)
    names = ["", *(f"t{i}" for i in range(draw(st.integers(1, most))))]
    return {s: {"gender": draw(row(2)), "race": draw(row(4))} for s in names}


@st.composite
def label_tables(draw):
    "Labels of up to 40 images of three contexts with undetermined ones."
    n = draw(st.integers(6, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    table = pd.DataFrame({"trigger": rng.choice(["", "poor", "gentle"], n), "prompt_id": rng.integers(0, 5, n),
                          "gender": rng.choice(["female", "male"], n), "age": rng.choice(["young", "middle", "elderly"], n)})
    table.loc[:5, "trigger"] = ["", "", "poor", "poor", "gentle", "gentle"]
    lost = rng.random(n) < .2
    table["age"] = table["age"].astype(object).where(~lost | (table.index < 6), None)
    return table


TWO = {a: TAXONOMY[a] for a in ("gender", "age")}


@given(COUNTS)
def test_entropy_is_between_0_and_1_and_0_only_for_one_class(counts):
    h = entropy(counts)
    assert 0 <= h <= 1
    assert (h == 0) == (sum(c > 0 for c in counts) == 1)
    assert np.isclose(h, 1) or len(set(counts)) > 1


@given(COUNTS, st.randoms(), st.integers(1, 9))
def test_entropy_knows_no_order_and_no_scale(counts, random, times):
    other = counts[:]; random.shuffle(other)
    assert entropy(other) == pytest.approx(entropy(counts), abs=1e-12)
    assert entropy([times * c for c in counts]) == pytest.approx(entropy(counts), abs=1e-12)
    assert entropy(np.array(counts) / sum(counts)) == pytest.approx(entropy(counts), abs=1e-12)


@given(COUNTS)
def test_a_move_from_the_largest_to_the_smallest_class_is_never_less_even(counts):
    i, j = int(np.argmax(counts)), int(np.argmin(counts))
    if counts[i] - counts[j] < 2: return
    moved = counts[:]; moved[i] -= 1; moved[j] += 1
    assert entropy(moved) >= entropy(counts) - 1e-12


@given(COUNTS)
def test_an_empty_class_more_lowers_it(counts):
    if entropy(counts) > 0: assert entropy([*counts, 0]) < entropy(counts)


@given(COUNTS, st.integers(0, 10**6))
def test_a_target_is_reached_by_itself_and_equal_shares_are_the_entropy(counts, seed):
    k = len(counts)
    q = .05 / k + .95 * np.random.default_rng(seed).dirichlet(np.ones(k))
    assert evenness(q, target=q) == pytest.approx(1)
    assert evenness(np.eye(k)[np.argmin(q)], target=q) == 0
    assert 0 <= evenness(counts, target=q) <= 1
    assert evenness(counts, target=np.full(k, 1 / k)) == pytest.approx(evenness(counts), abs=1e-12)


@given(COUNTS)
def test_miller_madow_never_lowers_and_leaves_one_class_at_0(counts):
    plain, corrected = evenness(counts), evenness(counts, correction="miller-madow")
    assert plain <= corrected <= 1
    assert (corrected == 0) == (plain == 0)


@given(contexts())
@HALF
def test_scores_are_ordered_and_in_range(counts):
    r = from_counts(counts)
    assert all(0 <= getattr(r, k) <= 1 for k in SCORES)
    assert r.worst <= r.CA + 1e-12 and r.worst <= r.CA_mean + 1e-12
    assert r.CA <= r.per_context.max() + 1e-12
    assert r.MGBI == pytest.approx(np.sqrt(r.ID * r.CA), abs=1e-12)
    assert min(r.ID, r.CA) - 1e-12 <= r.MGBI <= max(r.ID, r.CA) + 1e-12


@given(contexts(), st.randoms(), st.integers(2, 5))
@HALF
def test_order_and_scale_change_nothing(counts, random, times):
    order = list(counts); random.shuffle(order)
    other = from_counts({s: {a: [times * n for n in counts[s][a]] for a in ("race", "gender")} for s in order})
    first = from_counts({s: {a: counts[s][a] for a in ("race", "gender")} for s in counts})
    assert other.summary.to_numpy() == pytest.approx(first.summary.to_numpy(), abs=1e-12)
    assert from_counts(counts).summary.to_numpy() == pytest.approx(first.summary.to_numpy(), abs=1e-12)


@given(contexts(), st.floats(0, 1))
@HALF
def test_a_larger_quantile_is_no_smaller_and_0_is_the_worst(counts, q):
    assert from_counts(counts, q=q).CA <= from_counts(counts, q=min(1, q + .1)).CA + 1e-12
    assert from_counts(counts, q=0).CA == from_counts(counts).worst
    assert from_counts(counts, method="lower").CA <= from_counts(counts).CA + 1e-12 <= from_counts(counts, method="higher").CA + 2e-12


@given(contexts())
@HALF
def test_floors_only_raise(counts):
    assert from_counts(counts, eps=1e-3).ID >= from_counts(counts, eps=1e-6).ID >= from_counts(counts, eps=0).ID
    assert from_counts(counts, ca_eps=1e-6).CA >= from_counts(counts).CA


@given(label_tables())
@HALF
def test_labels_and_their_counts_are_one(table):
    before = table.copy()
    r = mgbi(table, TWO)
    assert table.equals(before)
    counts = {s: {a: [int(((table["trigger"] == s) & (table[a] == c)).sum()) for c in TWO[a]] for a in TWO} for s in ("", "poor", "gentle")}
    assert r.summary.to_numpy() == pytest.approx(from_counts(counts).summary.to_numpy(), abs=1e-12)
    assert r.undetermined["age"].sum() == table["age"].isna().sum() and r.undetermined["gender"].sum() == 0
    assert r.counts["n"].sum() + r.undetermined.to_numpy().sum() == 2 * len(table)


@given(label_tables(), st.integers(0, 10**6))
@settings(max_examples=25)
def test_rows_in_another_order_give_the_same_bytes_of_scores_and_draws(table, seed):
    other = table.sample(frac=1, random_state=seed % 2**31).reset_index(drop=True)
    first, second = mgbi(table, TWO), mgbi(other, TWO)
    assert (first.summary == second.summary).all()
    assert np.array_equal(first.replicates(20, seed=seed), second.replicates(20, seed=seed), equal_nan=True)
    assert np.array_equal(first.replicates(20, seed=seed, cluster=None), second.replicates(20, seed=seed, cluster=None), equal_nan=True)


@given(label_tables(), st.integers(0, 10**6))
@settings(max_examples=25)
def test_classes_renamed_consistently_change_nothing(table, seed):
    names = {"female": "a", "male": "b", "young": "x", "middle": "y", "elderly": "z"}
    renamed = table.replace(names)
    assert (mgbi(renamed, {a: [names[c] for c in TWO[a]] for a in TWO}).summary == mgbi(table, TWO).summary).all()


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=30)
def test_draws_keep_the_number_of_clusters_of_each_context(P, C, seed):
    rng = np.random.default_rng(seed)
    place = np.r_[np.arange(C), rng.integers(0, C, P)]
    vectors = np.hstack([np.ones((len(place), 1), int), rng.integers(0, 3, (len(place), 2))])
    pooled = redraw(vectors, place, 11, rng)
    assert (pooled[:, :, 0] == np.bincount(place)).all()
    for c, (rows, often) in enumerate(without_one(vectors, place)):
        assert often.sum() == (place == c).sum()
        assert (rows[:, 0] == (place == c).sum() - 1).all()


@given(st.integers(2, 5), st.integers(0, 10**6))
@settings(max_examples=30)
def test_the_correction_undoes_a_known_confusion(k, seed):
    rng = np.random.default_rng(seed)
    M = .8 * np.eye(k) + .2 * rng.dirichlet(np.ones(k), k)
    p = .1 / k + .9 * rng.dirichlet(np.ones(k))
    assert likeliest(1000 * p @ M, M) == pytest.approx(p, abs=1e-4)
    found = likeliest(rng.integers(0, 50, k) + np.eye(k)[0], M)
    assert found.min() >= 0 and found.sum() == pytest.approx(1)
    assert likeliest(1000 * p, np.eye(k)) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("kind", ["basic", "bca", "percentile"])
@pytest.mark.parametrize("cluster", ["prompt_id", None])
def test_same_seed_same_bytes_and_another_seed_others(kind, cluster):
    rng = np.random.default_rng(0)
    n = 3000
    table = pd.DataFrame({"prompt_id": np.arange(n) // 10, "trigger": np.array(["", "poor", "gentle"])[np.arange(n) // 10 % 3], **{a: rng.choice(c, n, p=(w := np.arange(1., len(c) + 1)) / w.sum()) for a, c in TAXONOMY.items()}})
    r = mgbi(table, TAXONOMY)
    first, again, other = (r.interval(200, seed, kind, cluster) for seed in (0, 0, 1))
    assert first.equals(again) and not first.equals(other)
    assert first.index.tolist() == ["ID", "CA", "CA_mean", "MGBI"] and first.columns.tolist() == ["low", "high", "bias"]
    defined = first[["low", "high"]].dropna()
    assert (defined["low"] <= defined["high"]).all() and defined.to_numpy().min() >= 0 and defined.to_numpy().max() <= 1


def test_the_quantile_is_numpys_for_every_method():
    g = np.random.default_rng(0).random((9, 1))
    for method in METHODS:
        for q in (0, .1, .33, .5, 1):
            assert scores(np.vstack([[[1.]], g]), q=q, method=method)[1] == np.quantile(g[:, 0], q, method=method)


def test_a_thousand_data_sets_at_once_are_each_alone():
    h = np.random.default_rng(0).random((40, 6, 3))
    assert scores(h) == pytest.approx(np.stack([scores(x) for x in h]), abs=1e-14)
