"Laws of the debiasing baselines' mathematics: UCE's closed form, the projection, draws, guidance, extended attention."
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.injection import drawn, injected
from fairical_nb.prompt_debias import projection
from fairical_nb.uce import closed_form

SEEDS = st.integers(0, 10_000)


def problem(seed, out=3, width=5, n=2, m=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(out, width)), rng.normal(size=(n, width)), rng.normal(size=(n, out)), rng.normal(size=(m, width))


# UCE: the solution of its own cost

@settings(max_examples=40)
@given(SEEDS, st.floats(.01, 10), st.floats(0, 5), st.floats(0, 5))
def test_uce_has_zero_gradient_at_its_solution(seed, lam, scale, keep_scale):
    W, C, V, K = problem(seed)
    X = closed_form(W, C, V, lam=lam, keep=K, scale=scale, keep_scale=keep_scale)
    slope = lam * (X - W) + scale * (X @ C.T - V.T) @ C + keep_scale * (X - W) @ K.T @ K
    assert abs(slope).max() < 1e-9 * (1 + abs(X).max())


@settings(max_examples=40)
@given(SEEDS)
def test_uce_costs_no_more_than_any_other_weights(seed):
    W, C, V, K = problem(seed)
    cost = lambda X: .5 * ((X - W) ** 2).sum() + ((C @ X.T - V) ** 2).sum() + ((K @ (X - W).T) ** 2).sum()
    best = closed_form(W, C, V, keep=K)
    others = best + np.random.default_rng(seed + 1).normal(size=(20, *W.shape)) * 10. ** -np.arange(20)[:, None, None]
    assert cost(best) <= min(map(cost, others)) + 1e-12


@settings(max_examples=40)
@given(SEEDS)
def test_uce_moves_further_with_a_smaller_price_and_nearer_to_what_is_wanted(seed):
    W, C, V, _ = problem(seed)
    made = [closed_form(W, C, V, lam=lam) for lam in (.01, .1, 1, 10)]
    moved, missed = [np.linalg.norm(X - W) for X in made], [np.linalg.norm(C @ X.T - V) for X in made]
    assert moved == sorted(moved, reverse=True) and missed == sorted(missed)


@settings(max_examples=20)
@given(SEEDS)
def test_uce_leaves_its_inputs_and_what_is_orthogonal_to_them(seed):
    W, C, V, K = problem(seed, width=9)
    given_ = [x.copy() for x in (W, C, V, K)]
    X = closed_form(W, C, V, keep=K)
    assert all(np.array_equal(a, b) for a, b in zip(given_, (W, C, V, K)))
    rest = np.linalg.svd(np.vstack([C, K]))[2][5:]
    assert abs((X - W) @ rest.T).max() < 1e-9


@pytest.mark.parametrize("change, said", [({"lam": 0}, "lam must be > 0"), ({"lam": -1}, "lam must be > 0"), ({"scale": -1}, "scale"), ({"keep": np.ones((1, 4))}, "keep must have shape")])
def test_uce_refuses(change, said):
    W, C, V, _ = problem(0)
    with pytest.raises(ValueError, match=said):
        closed_form(W, C, V, **change)


# The projection

@settings(max_examples=40)
@given(SEEDS, st.floats(0, 1e4))
def test_projection_is_symmetric_and_never_enlarges(seed, lam):
    P = projection(np.random.default_rng(seed).normal(size=(3, 2, 6)), lam=lam)
    values = np.linalg.eigvalsh(P)
    assert np.allclose(P, P.T, atol=1e-9) and values.min() > 0 and values.max() <= 1 + 1e-9


@settings(max_examples=40)
@given(SEEDS, st.floats(.1, 1e3))
def test_projection_shrinks_pair_differences_and_nothing_orthogonal(seed, lam):
    pairs = np.random.default_rng(seed).normal(size=(2, 2, 6))
    P = projection(pairs, lam=lam)
    unit = pairs / np.linalg.norm(pairs, axis=2, keepdims=True)
    d = unit[:, 0] - unit[:, 1]
    assert (np.linalg.norm(d @ P, axis=1) < np.linalg.norm(d, axis=1)).all()
    rest = np.linalg.svd(d)[2][2:]
    assert abs(rest @ P - rest).max() < 1e-9


# Draws and words

@settings(max_examples=40)
@given(st.lists(st.floats(.01, 1), min_size=2, max_size=6), st.integers(0, 200), SEEDS)
def test_balanced_draws_are_within_one_of_the_target(weights, n, seed):
    q = np.array(weights) / sum(weights)
    counts = np.bincount(drawn(q, n, rng=np.random.default_rng(seed), balanced=True), minlength=len(q))
    assert counts.sum() == n and abs(counts - q * n).max() < 1


@pytest.mark.parametrize("prompt, word, wanted", [
    ("a photo of a person", "female", "a photo of a female person"),
    ("a photo of an aggressive person", "female", "a photo of a female aggressive person"),
    ("a person, smiling", "elderly", "an elderly person, smiling"),
    ("two people in a park", "Asian", "two Asian people in a park"),
    ("a photo of one old person", "female", "a photo of one female old person"), ("in the rain, an old person", "female", "in the rain, a female old person"),
    ("outside, old people", "Asian", "outside, Asian old people"), ("a dog; old people.", "Asian", "a dog; Asian old people."),
    ("a landscape", "male", "a landscape, male")])
def test_words_stand_where_people_would_put_them(prompt, word, wanted):
    assert injected(prompt, word) == wanted
