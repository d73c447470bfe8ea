"The kept tables of the debiasing methods in nbs/weights/debias: searched as they say, three seeds each, absent with a reason."
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

from fairical_nb.comparison import METHODS, read_methods  # noqa: E402
from fairical_nb.files import root  # noqa: E402

FOLDER = root() / "nbs" / "weights" / "debias"
TABLES = {(p.parent.name, p.stem): pd.read_csv(p) for p in sorted(FOLDER.glob("*/*.csv"))}
SEARCHED = {k: t for k, t in TABLES.items() if k[1] in METHODS and k[1] != "baseline"}


@pytest.mark.parametrize("backbone", ["tiny_sd3", "tiny_sd15"])
def test_every_method_has_its_table(backbone):
    assert {m for b, m in TABLES if b == backbone} >= {*METHODS, "baseline", "fair_grpo"}


@pytest.mark.parametrize("backbone,method", SEARCHED)
def test_absent_with_a_reason_or_three_seeds_and_the_same_four_strengths(backbone, method):
    table = SEARCHED[backbone, method]
    if (table["role"] == "absent").all():
        assert table["note"].str.len().min() > 40
        return
    points = table[table["role"] == "point"]
    assert sorted(points["seed"].unique()) == [0, 1, 2] and points["n"].nunique() == 1
    for _, rows in points.groupby("seed"):
        assert tuple(rows["strength"]) == METHODS[method][2]


@pytest.mark.parametrize("backbone,method", [k for k, t in SEARCHED.items() if (t["role"] != "absent").any()])
def test_the_labeller_chose(backbone, method):
    for _, rows in SEARCHED[backbone, method].groupby("seed"):
        points, chosen = rows[rows["role"] == "point"], rows[rows["role"] == "chosen"]
        best = points.loc[points["labeller MGBI"] >= points["labeller MGBI"].max() - 1e-9, "strength"]
        assert len(chosen) == 1 and chosen["strength"].item() in set(best)


@pytest.mark.parametrize("backbone", ["tiny_sd3", "tiny_sd15"])
def test_injection_costs_nothing_and_moves_towards_its_target(backbone):
    every = read_methods(FOLDER / backbone).groupby("method")
    injected, baseline = every.get_group("injection"), every.get_group("baseline")
    baseline = baseline[baseline["sampler"] == "deployment"]
    assert (injected["parameters"] == 0).all() and (injected["images"] == 0).all()
    assert injected["judge MGBI"].min() > baseline["judge MGBI"].max()


def test_numbers_are_shares():
    for table in TABLES.values():
        for c in ("judge MGBI", "labeller MGBI", "agreement", "clear"):
            seen = table[c].dropna() if c in table else pd.Series(dtype=float)
            assert ((seen >= 0) & (seen <= 1)).all() and np.isfinite(seen).all()
