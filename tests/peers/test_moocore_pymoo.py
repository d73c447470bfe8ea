"Fronts, hypervolume and clusters beside moocore, pymoo and scikit-learn."
import warnings

import moocore
import numpy as np
import pytest
from pymoo.indicators.hv import HV
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
from sklearn.cluster import DBSCAN

from fairical_nb.dedup import representatives
from fairical_nb.dominance import minimised
from fairical_nb.indicators import indicators, nondominated

SETS = [(kind, n, N, seed) for seed, (kind, n, N) in enumerate([("cloud", 200, 2), ("cloud", 150, 3), ("cloud", 80, 4), ("cloud", 60, 5), ("cloud", 40, 6), ("cloud", 15, 8), ("cloud", 12, 10),
        ("grid", 200, 2), ("grid", 200, 3), ("grid", 100, 5), ("copies", 120, 3), ("front", 100, 3), ("front", 60, 4), ("edges", 80, 3), ("one", 1, 4), ("equal", 30, 3)])]


def points_of(kind, n, N, seed):
    rng = np.random.default_rng(seed)
    x = rng.random((n, N))
    if kind == "grid": return x.round(1)
    if kind == "copies": return np.repeat(x[:n // 4], 4, axis=0)
    if kind == "front": return np.abs(x) / np.linalg.norm(x, axis=1, keepdims=True)
    if kind == "edges": return np.where(rng.random((n, N)) < .3, rng.integers(0, 2, (n, N)), x)
    if kind == "equal": return np.full((n, N), .4)
    return x


@pytest.fixture(params=SETS, ids=lambda s: "-".join(map(str, s[:3])))
def cloud(request):
    points = points_of(*request.param)
    return points, np.random.default_rng(request.param[3]).choice(["max", "min"], points.shape[1]).tolist()


def test_front_as_by_pymoo(cloud):
    points, directions = cloud
    losses = np.where(np.array(directions) == "max", -points, points)
    rows = NonDominatedSorting().do(losses, only_non_dominated_front=True)
    assert np.flatnonzero(nondominated(points, directions)).tolist() == sorted(rows.tolist())


def test_front_as_by_moocores_own_sorting(cloud):
    points, directions = cloud
    rank = moocore.pareto_rank(np.where(np.array(directions) == "max", -points, points))
    assert (nondominated(points, directions) == (rank == 0)).all()


def test_hypervolume_as_by_pymoo_and_moocore(cloud):
    points, directions = cloud
    losses, found = minimised(points, directions), indicators(points, directions)["HV"]
    assert found == pytest.approx(HV(ref_point=np.ones(points.shape[1]))(losses), abs=1e-12)
    assert found == pytest.approx(moocore.hypervolume(losses, ref=1), abs=1e-12)


@pytest.mark.parametrize("nadir", [1.1, 2])
def test_hypervolume_with_another_nadir(cloud, nadir):
    points, directions = cloud
    found = indicators(points, directions, nadir=nadir, ideal=0)["HV"]
    assert found == pytest.approx(HV(ref_point=np.full(points.shape[1], nadir))(minimised(points, directions)), rel=1e-12)


def test_maximising_as_by_moocores_own_switch(cloud):
    points, directions = cloud
    want = moocore.hypervolume(points, ref=[0 if d == "max" else 1 for d in directions], maximise=[d == "max" for d in directions])
    assert indicators(points, directions)["HV"] == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("eps", [1e-6, .02, .1, .5])
def test_clusters_as_by_dbscan(cloud, eps):
    points, _ = cloud
    labels = DBSCAN(eps=eps, min_samples=1).fit(points).labels_
    first = np.sort(np.unique(labels, return_index=True)[1])
    with warnings.catch_warnings(action="ignore"): assert np.flatnonzero(representatives(points, eps=eps)).tolist() == first.tolist()


def test_hypervolume_by_monte_carlo_in_many_objectives():
    "A judge that shares no code: the share of random losses that some point dominates."
    rng = np.random.default_rng(0)
    points = rng.random((10, 7)) / 2
    below = rng.random((200_000, 7))
    share = (below[:, None] >= points).all(-1).any(1).mean()
    assert indicators(points, ["min"] * 7)["HV"] == pytest.approx(share, abs=.005)
