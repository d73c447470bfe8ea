"MGBI beside scipy's entropy and divergence, numpy's quantile and pandas' counting."
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats

from fairical_nb.attributes import TAXONOMY
from fairical_nb.entropy import entropy, evenness
from fairical_nb.mgbi import METHODS, mgbi
from fairical_nb.mgbi_correction import likeliest

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("k", [2, 3, 5, 30])
def test_entropy_is_scipys(k):
    for p in np.random.default_rng(k).dirichlet(np.full(k, .4), 60):
        assert entropy(p) == pytest.approx(scipy.stats.entropy(p, base=k), abs=1e-10)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_distance_to_a_target_is_scipys_divergence(k):
    rng = np.random.default_rng(k)
    for p, q in zip(rng.dirichlet(np.ones(k), 60), .02 + (1 - .02 * k) * rng.dirichlet(np.ones(k), 60)):
        assert evenness(p, target=q) == pytest.approx(1 - scipy.stats.entropy(p, q) / -np.log(q.min()), abs=1e-10)


def table(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    shares = {s: {a: rng.dirichlet(np.ones(len(c))) for a, c in TAXONOMY.items()} for s in ["", *"abcdefghi"]}
    trigger = rng.choice(list(shares), n)
    return pd.DataFrame({"trigger": trigger, **{a: [rng.choice(c, p=shares[s][a]) for s in trigger] for a, c in TAXONOMY.items()}})


@pytest.mark.parametrize("method", METHODS)
def test_all_of_it_from_scipy_numpy_and_pandas(method):
    labels = table()
    h = {a: pd.crosstab(labels["trigger"], labels[a]).reindex(columns=c, fill_value=0).apply(lambda row: scipy.stats.entropy(row, base=len(c)), axis=1) for a, c in TAXONOMY.items()}
    g = scipy.stats.gmean(pd.DataFrame(h), axis=1)
    CA = np.quantile(g[1:], .1, method=method)
    found = mgbi(labels, TAXONOMY, method=method)
    assert [found.ID, found.CA, found.CA_mean, found.worst, found.MGBI] == pytest.approx([g[0], CA, g[1:].mean(), g[1:].min(), scipy.stats.gmean([g[0], CA])], abs=1e-10)


def test_em_is_the_constrained_maximum_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(8):
        M, n = .7 * np.eye(4) + .3 * rng.dirichlet(np.ones(4), 4), rng.integers(1, 200, 4)
        minus = lambda p: -(n * np.log(p @ M)).sum()
        peer = scipy.optimize.minimize(minus, np.full(4, .25), bounds=[(0, 1)] * 4, constraints={"type": "eq", "fun": lambda p: p.sum() - 1}, method="SLSQP", options={"ftol": 1e-12})
        assert minus(likeliest(n, M)) <= peer.fun + 1e-4


def test_the_bootstrap_is_scipys_for_one_context():
    "The mean and spread of drawn entropies of one attribute, clusters of one image."
    labels = pd.DataFrame({"trigger": [""] * 60 + ["poor"] * 60, "gender": (["female"] * 20 + ["male"] * 40) * 2})
    ours = mgbi(labels, {"gender": TAXONOMY["gender"]}).replicates(4000, seed=0, cluster=None)[:, 0]
    data = (labels["gender"][:60] == "male").to_numpy(dtype=float)
    peer = scipy.stats.bootstrap((data,), lambda x, axis: scipy.stats.entropy(np.stack([x.mean(axis), 1 - x.mean(axis)]), base=2), n_resamples=4000, method="basic", rng=np.random.default_rng(1)).bootstrap_distribution
    assert ours.mean() == pytest.approx(peer.mean(), abs=.004) and ours.std() == pytest.approx(peer.std(), abs=.004)
