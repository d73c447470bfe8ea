"The benchmarks' rows run on their small inputs, and the committed results are of these rows and reached."
import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

HERE = Path(__file__).parents[1] / "benchmarks"


def load(name):
    sys.path.insert(0, str(HERE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(HERE))


harness, part1, growth, spafreq, mgbi, systems = map(load, ("harness", "part1", "growth", "spafreq", "mgbi", "systems"))
ROWS = {**part1.ROWS, **spafreq.ROWS, **mgbi.ROWS, **{k: v for k, v in growth.ROWS.items() if k.endswith("_1000")}}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
def test_a_row_runs_and_agrees_with_its_reference(name):
    row = ROWS[name]
    if harness.lacking(row): pytest.skip(f"needs {row.needs}")
    data = row.make(True)
    value = row.ours(data)
    assert value is not None
    if row.reference and row.same and not row.peer: assert row.same(value, row.reference(data)) <= 1e-9


@pytest.mark.parametrize("title,rows", [("part1", part1.ROWS), ("growth", growth.ROWS), ("spafreq", spafreq.ROWS), ("mgbi", mgbi.ROWS)])
def test_the_results_are_of_these_rows(title, rows):
    found = pd.read_csv(HERE / "results" / f"{title}.csv")
    assert found["row"].tolist() == list(rows)
    assert not (found["reached"].astype(str) == "False").any(), found.loc[found["reached"].astype(str) == "False", "row"].tolist()


def test_costs_of_the_systems_are_of_these_runs_and_settings():
    "Seconds per image times images are the hours, for each system of each preset; the images are what the settings say now."
    found = pd.read_csv(HERE / "results" / "systems.csv")
    assert list(found[["preset", "cohort", "system"]].itertuples(index=False, name=None)) == systems.RUNS
    assert np.allclose(found["seconds_per_image"] * found["images"] / 3600, found["hours"], rtol=.01)
    pytest.importorskip("torch")
    from fairical_nb.image_settings import settings
    for r in found.itertuples(): assert r.images == systems.images_of(settings(r.cohort, r.system, preset=r.preset), systems.TRAINING[r.cohort])


def test_every_script_has_its_row_in_the_readme():
    text, everything = (HERE / "README.md").read_text(), (HERE / "all.py").read_text()
    scripts = {p.name for p in HERE.glob("*.py")} - {"all.py", "harness.py"}
    assert all(f"| `{s}` |" in text for s in scripts) and all(f'"{s}"' in everything for s in scripts - {"reproduce.py"})


def test_times_are_summed_up():
    runs = [{"seconds": [1., 2., 3.], "cpu": [1., 1., 1.], "peak_mb": 5, "before_mb": 4}, {"seconds": [4., 4., 4.], "cpu": [1., 1., 1.], "peak_mb": 6, "before_mb": 4}]
    assert (harness.seconds(runs), harness.seconds(runs, "cpu"), harness.spread(runs)) == (3.5, 1, 2)
    assert (harness.middle_half(runs), harness.middle_half(runs[:1]), harness.middle_half(runs[:1] * 8 + runs[1:])) == (3.5 / 2.5, 1, 1)
    assert harness.side("ours", runs, 10) == {"ours_s": 35, "ours_cpu_s": 10, "ours_spread": 2, "ours_peak_mb": 6, "ours_before_mb": 4}


def test_the_growth_exponent():
    rows = [{"row": f"{job}_{n}", "ours_cpu_s": n * 1e-6, "ours_peak_mb": 100.} for job in growth.JOBS for n in growth.SIZES]
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "draw", drawn.append)
        found = pd.DataFrame(growth.with_growth(rows))
    assert len(drawn) == 1 and np.allclose(found["exponent"].dropna(), 1) and found["exponent"].isna().sum() == len(growth.JOBS)
    assert "n from 1,000 to 1,000,000" in growth.in_words(rows)
