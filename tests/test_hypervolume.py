"Hypervolume in many objectives: the exact ways agree, the estimate tells its error, and whoever gets an estimate is told."
import sys
import warnings

import numpy as np
import pytest

from fairical_nb.dominance import hypervolume
from fairical_nb.hypervolume import METHODS, MOST, ApproximateWarning, by_pygmo, hypervolume_approx, volume
from fairical_nb.indicators import compare, indicators

SHAPES = {"flat": lambda rng, k, N: rng.dirichlet(np.ones(N), k),
          "round": lambda rng, k, N: 1 - np.abs(z := rng.normal(size=(k, N))) / np.linalg.norm(z, axis=1, keepdims=True),
          "any": lambda rng, k, N: rng.random((k, N)),
          "grid": lambda rng, k, N: rng.integers(0, 3, (k, N)) / 2,
          "copies": lambda rng, k, N: np.repeat(rng.random((1, N)), k, axis=0)}


def front(shape, k, N, seed=0):
    return SHAPES[shape](np.random.default_rng(seed), k, N)


@pytest.mark.parametrize("N", range(2, 9))
@pytest.mark.parametrize("shape", SHAPES)
def test_pygmo_equals_moocore(shape, N):
    pytest.importorskip("pygmo", reason="the optional extra hv")
    x = front(shape, 40, N)
    before = x.copy()
    assert by_pygmo(x, np.ones(N)) == pytest.approx(hypervolume(x, np.ones(N)), rel=1e-12, abs=1e-15)
    assert by_pygmo(x, 1.1 * np.ones(N)) == pytest.approx(hypervolume(x, 1.1 * np.ones(N)), rel=1e-12)
    assert (x == before).all()


@pytest.mark.parametrize("N", (2, 3, 6, 8))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_estimate_holds_its_error(shape, N):
    x = front(shape, 40, N)
    exact = hypervolume(x, np.ones(N))
    found = np.array([hypervolume_approx(x, np.ones(N), samples=2 ** 12, seed=s) for s in range(60)])
    off = np.abs(found[:, 0] - exact)
    assert (off <= 2 * found[:, 1] + 1e-6).mean() >= .85
    assert (off <= 5 * found[:, 1] + 1e-6).all()


def test_the_estimate_repeats_with_its_seed_and_knows_its_bounds():
    x = front("flat", 30, 6)
    assert hypervolume_approx(x, np.ones(6), samples=2 ** 11, seed=4) == hypervolume_approx(x, np.ones(6), samples=2 ** 11, seed=4)
    assert hypervolume_approx(x, np.ones(6), samples=2 ** 11, seed=4) != hypervolume_approx(x, np.ones(6), samples=2 ** 11, seed=5)
    assert hypervolume_approx(x[:1], np.ones(6)) == (pytest.approx(np.prod(1 - x[0]), abs=1e-15), 0)
    assert hypervolume_approx(np.empty((0, 6)), np.ones(6)) == (0, 0)
    assert hypervolume_approx(np.zeros((2, 6)), np.ones(6), samples=2 ** 10)[0] == 1
    with pytest.raises(ValueError, match="samples must be at least 1024"): hypervolume_approx(x, np.ones(6), samples=10)


def test_auto_is_exact_where_that_takes_seconds_and_an_estimate_beyond():
    assert volume(front("flat", 20, 6), np.ones(6)).error == 0
    assert volume(front("flat", 3000, 5), np.ones(5)).method == "moocore"
    assert volume(front("flat", MOST["pygmo"][8] + 1, 8), np.ones(8), samples=2 ** 10).method == "approx"
    assert volume(front("flat", 400, 30), np.ones(30), samples=2 ** 10).method == "approx"


@pytest.mark.parametrize("method", METHODS)
def test_methods_agree_and_unknown_ones_are_named(method):
    if method == "pygmo": pytest.importorskip("pygmo", reason="the optional extra hv")
    x = front("round", 30, 6)
    found = volume(x, np.ones(6), method=method, samples=2 ** 16)
    assert abs(found.value - hypervolume(x, np.ones(6))) <= 4 * found.error + 1e-12
    with pytest.raises(ValueError, match=r"'auto', 'moocore', 'pygmo', 'approx'\), but it is 'wfg'"): volume(x, np.ones(6), method="wfg")


def test_without_pygmo_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygmo", None)
    with pytest.raises(ImportError, match=r"pip install 'fairical_nb\[hv\]'"): volume(front("flat", 20, 6), np.ones(6), method="pygmo")


def test_an_estimate_in_a_table_comes_with_a_warning_and_its_error():
    x = front("flat", 40, 6)
    with pytest.warns(ApproximateWarning, match="HV is an estimate.*hv_samples") as said:
        table = compare({"A": x, "B": x[:20]}, ["min"] * 6, hv_method="approx", hv_samples=2 ** 14, hv_seed=3)
    assert len(said) == 1 and "HV_error" not in table
    assert set(table.attrs["HV_error"]) == {"A", "B"}
    with pytest.warns(ApproximateWarning): one = indicators(x, ["min"] * 6, hv_method="approx", hv_samples=2 ** 14, hv_seed=3)
    assert (one["HV"], one["HV_error"]) == (table.loc["A", "HV"], table.attrs["HV_error"]["A"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = compare({"A": x}, ["min"] * 6, hv_method="moocore")
    assert exact.attrs["HV_error"] == {} and exact.loc["A", "HV"] == pytest.approx(hypervolume(x, np.ones(6)), abs=1e-12)


def test_an_estimate_never_leaves_the_radar():
    table = {}
    for seed in range(5):
        with pytest.warns(ApproximateWarning):
            table[seed] = compare({"A": np.vstack([np.eye(6) * 1e-4, np.zeros((1, 6))])}, ["min"] * 6, hv_method="approx", hv_samples=2 ** 10, hv_seed=seed)
    assert all(t.attrs["radii"]["A"]["HV"] <= 1 for t in table.values())
