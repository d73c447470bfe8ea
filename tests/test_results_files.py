"The committed results: tables are plain text, and a file names every seed that its numbers rest on."
import re

import pandas as pd
import pytest

from fairical_nb.files import read_json, root

FOLDER = root() / "figures"
REPR = re.compile(r"\b(np|numpy|torch)\.|\b(array|tensor|dtype|Timestamp)\(|<[\w.]+ object|^\(.*,.*\)$")  # what Python prints of an object


@pytest.mark.parametrize("path", sorted([*FOLDER.glob("*.csv"), *(root() / "benchmarks" / "results").glob("*.csv"), *(root() / "data").rglob("*.csv")]), ids=lambda p: p.stem)
def test_no_cell_of_a_table_is_what_python_prints_of_an_object(path):
    cells = pd.read_csv(path, dtype=str, keep_default_na=False).select_dtypes(exclude="number").to_numpy().ravel()
    assert not [c for c in cells if REPR.search(c)]


@pytest.mark.parametrize("text,is_one", [("(np.float64(0.2), np.float64(0.5))", True), ("array([1, 2])", True), ("(0.2, 0.5)", True), ("<fairical_nb.points.Points object at 0x7f>", True),
                                         ("0.25", False), ("cannot agree: stand-in data, not real", False), ("+0.073 ALARM", False), ("a trial (of three, at most)", False)])
def test_what_counts_as_printed_by_python(text, is_one):
    assert bool(REPR.search(text)) == is_one


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda p: p.stem)
def test_every_seed_behind_the_numbers_is_named(path):
    result = read_json(path)
    asked = result["parameters"].get("seeds")
    if asked is not None:
        assert result["seed"] == (asked if isinstance(asked, list) else list(range(asked)))
