"Readers of the image cohorts: small folders with every irregularity of the real sets, and stand-ins through their files."
import os
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from fairical_nb import visual_cohorts
from fairical_nb.image_files import ImageCohort, open_picture, skipped_table, unreadable
from fairical_nb.image_harvard import read_harvard
from fairical_nb.image_mbrset import COLUMNS, genders, read_mbrset, write_mbrset
from fairical_nb.image_shenzhen import read_shenzhen, reading, write_shenzhen
from fairical_nb.image_tables import demographics, group_counts, missing_report, rate_bars, reasons
from fairical_nb.standins_cards import cohort
from fairical_nb.visual_cohorts import PARTS, read, standin, with_split, write_standin

NAMES = list(PARTS)


def test_a_png_damaged_in_its_head_is_unreadable_and_named(tmp_path):
    path = tmp_path / "head.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(path)
    data = bytearray(path.read_bytes())
    data[8:12] = (5).to_bytes(4, "big") # the head says that it is 5 bytes long: PIL's own error is a bare ValueError
    path.write_bytes(data[:16] + data[16:21] + b"\0\0\0\0" + data[33:])
    assert unreadable(tmp_path, "head.png").startswith("not a readable picture")
    with pytest.raises(ValueError, match="head.png: not a readable picture"):
        open_picture(tmp_path, "head.png")


# Harvard-GF

def patient(folder, number, drop=(), **values):
    "One file of Harvard-GF's form, values as arrays without axes."
    arrays = {"rnflt": np.full((200, 200), 70.), "glaucoma": 1, "race": 2, "male": 1, "age": 61.5, "md": -3.2, "tds": np.zeros(52), "oct_bscans": np.zeros((2, 5, 5))} | values
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"data_{number:04d}.npz", **{k: np.array(v) for k, v in arrays.items() if k not in drop})


@pytest.mark.parametrize("names", [("train", "validation", "test"), ("Training", "Validation", "Test"), ("Dataset/TRAIN", "Dataset/VALIDATION", "Dataset/TEST"), ("dataset/training", "dataset/Val", "dataset/test")])
def test_harvard_folders_in_any_case_and_with_or_without_dataset(tmp_path, names):
    for k, name in enumerate(names):
        patient(tmp_path / name, k + 1)
    c = read_harvard(tmp_path)
    assert c.table[["patient", "split"]].to_numpy().tolist() == [[1, "train"], [2, "validation"], [3, "test"]]
    assert c.pixels().shape == (3, 200, 200, 1) and np.allclose(c.pixels(), .2)


@pytest.mark.parametrize("race, said", [(0, "Asian"), (1, "Black"), (2, "White"), (2., "White"), ("Asian", "Asian"), ("Black or African American", "Black"), ("White or Caucasian", "White"), (b"White or Caucasian", "White"), ([2], "White")])
def test_harvard_race_in_both_spellings_never_falls_through(tmp_path, race, said):
    for k, part in enumerate(("train", "validation", "test")):
        patient(tmp_path / part, k + 1, race=race)
    assert read_harvard(tmp_path).table.race.tolist() == [said] * 3


@pytest.mark.parametrize("values, reason", [({"race": 3}, "race is 3"), ({"race": "Other"}, "race is 'Other'"), ({"race": -1}, "race is -1"), ({"male": 2}, "male is 2"), ({"glaucoma": np.nan}, "glaucoma is nan"),
                                            ({"race": [0, 1]}, "race: needs one value"), ({"race": np.array({}, dtype=object)}, "allow_pickle"), ({"age": "old"}, "could not convert")])
def test_harvard_unknown_values_are_listed(tmp_path, values, reason):
    for k, part in enumerate(("train", "validation", "test")):
        patient(tmp_path / part, k + 1)
    patient(tmp_path / "train", 9, **values)
    c = read_harvard(tmp_path)
    assert len(c) == 3 and c.skipped.item.tolist() == ["train/data_0009.npz"] and reason in c.skipped.reason[0]


def test_harvard_optional_arrays_come_along(tmp_path):
    for k, (part, more) in enumerate(zip(("train", "validation", "test"), ({"ethnicity": 1, "marital status": "married"}, {"hispanic": 0, "maritalstatus": 2, "language": "English"}, {}))):
        patient(tmp_path / part, k + 1, **more)
    t = read_harvard(tmp_path).table
    assert t.ethnicity.tolist()[:2] == [1, 0] and t["marital status"].tolist()[:2] == ["married", 2] and t.language[1] == "English" and t.ethnicity.isna()[2]


def test_harvard_broken_files(tmp_path):
    for k, part in enumerate(("train", "validation", "test")):
        patient(tmp_path / part, k + 1)
    (tmp_path / "train" / "data_0008.npz").write_bytes((tmp_path / "train" / "data_0001.npz").read_bytes()[:500])
    (tmp_path / "train" / "data_0009.npz").write_text("")
    (tmp_path / "train" / "notes.npz").write_text("")
    patient(tmp_path / "test", 7, rnflt=np.full((200, 200), np.nan))
    c = read_harvard(tmp_path)
    assert len(c) == 4 and len(c.skipped) == 3
    with pytest.raises(ValueError, match="data_0007.npz: 'rnflt' must be a map of finite numbers"):
        c.pixels()
    whole = read_harvard(tmp_path, decode=True)
    assert len(whole) == 3 and len(whole.skipped) == 4


def test_harvard_damage_inside_a_compressed_file_and_a_file_of_another_kind_are_listed(tmp_path):
    for k, part in enumerate(("train", "validation", "test")):
        patient(tmp_path / part, k + 1)
    patient(tmp_path / "train", 8)
    damaged = tmp_path / "train" / "data_0008.npz"
    np.savez_compressed(damaged, **dict(np.load(damaged)))
    data, at = bytearray(damaged.read_bytes()), damaged.read_bytes().index(b"race.npy")
    data[at + 28:at + 60] = b"\xff" * 32 # behind the name and its 20 bytes of zip64 sizes: the compressed numbers
    damaged.write_bytes(data)
    with open(tmp_path / "train" / "data_0009.npz", "wb") as file:
        np.save(file, np.zeros(3))
    c = read_harvard(tmp_path)
    assert len(c) == 3 and c.skipped.item.tolist() == ["train/data_0008.npz", "train/data_0009.npz"]
    assert "decompressing" in c.skipped.reason[0] and "one array without a name" in c.skipped.reason[1]


def test_harvard_maps_are_clipped_and_scaled(tmp_path):
    for k, part in enumerate(("train", "validation", "test")):
        patient(tmp_path / part, k + 1, rnflt=np.array([[-5., 175.], [350., 900.]]))
    assert read_harvard(tmp_path).pixels()[0, ..., 0].tolist() == [[0, .5], [1, 1]]
    assert read_harvard(tmp_path, thickest=1000).pixels()[0, 1, 1, 0] == pytest.approx(.9)


@pytest.mark.parametrize("missing, says", [("root", "no such folder"), ("part", "no folder for the part 'test'"), ("array", "no array 'race'")])
def test_harvard_errors_name_path_source_and_licence(tmp_path, missing, says):
    for k, part in enumerate(("train", "validation", "test")):
        if not (missing == "part" and part == "test"):
            patient(tmp_path / part, k + 1, drop=["race"] if missing == "array" else [])
    with pytest.raises(FileNotFoundError, match=says) as e:
        read_harvard(tmp_path / "gone" if missing == "root" else tmp_path)
    assert str(tmp_path) in str(e.value) and "harvard-gf3300" in str(e.value) and "CC BY-NC-ND" in str(e.value)


def test_harvard_two_folders_for_one_part_and_a_patient_twice(tmp_path):
    for k, part in enumerate(("train", "validation", "test")):
        patient(tmp_path / part, k + 1)
    patient(tmp_path / "test", 1)
    with pytest.raises(ValueError, match=r"1 patient of cohort 'hgf' is in two splits, first 1 \(test, train\)"):
        read_harvard(tmp_path)
    patient(tmp_path / "Training", 4)
    with pytest.raises(ValueError, match="would be the part 'train'"):
        read_harvard(tmp_path)


def test_empty_harvard(tmp_path):
    for part in ("train", "validation", "test"):
        (tmp_path / part).mkdir()
    with pytest.raises(FileNotFoundError, match="no file data_NUMBER.npz could be read"):
        read_harvard(tmp_path)


# Shenzhen

@pytest.mark.parametrize("line, gender, age", [("male 45yrs", "male", 45), ("male , 29yrs", "male", 29), ("female24yrs", "female", 24), ("femal 32yrs", "female", 32), ("male 16month", "male", 16 / 12), ("female 64days", "female", 64 / 365.25),
                                               ("male 42", "male", 42), ("FEMALE , 9 Years", "female", 9), ("Male1.5yrs", "male", 1.5), ("32yrs", None, 32), ("female", "female", None), ("", None, None), ("male 3 weeks", "male", None)])
def test_shenzhen_lines(line, gender, age):
    said = reading(line)
    assert said[0] == gender and (np.isnan(said[1]) if age is None else said[1] == pytest.approx(age))


def test_shenzhen_number_without_unit_by_option():
    assert np.isnan(reading("male 42", bare="missing")[1]) and reading("male 42yrs", bare="missing")[1] == 42
    with pytest.raises(ValueError, match="bare must be 'years' or 'missing', but it is 'months'"):
        reading("male 42", bare="months")


@given(years=st.integers(0, 110), unit=st.sampled_from(["yrs", " years", "y", "Yrs"]), sex=st.sampled_from(["male", "female", "femal"]), gap=st.sampled_from(["", " ", " , ", ","]))
@settings(max_examples=50)
def test_shenzhen_any_spelling(years, unit, sex, gap):
    assert reading(f"{sex}{gap}{years}{unit}") == ("male" if sex == "male" else "female", years)


@pytest.fixture
def shenzhen(tmp_path):
    images, t = cohort("shenzhen", seed=1)
    return write_shenzhen(t.iloc[:30], images, tmp_path / "s")


def test_shenzhen_pictures_forms_and_names(shenzhen):
    (shenzhen / "CXR_png" / "CHNCXR_0001_0.png").write_bytes(b"")
    (shenzhen / "CXR_png" / "CHNCXR_0500_2.png").write_bytes((shenzhen / "CXR_png" / "CHNCXR_0002_0.png").read_bytes())
    (shenzhen / "ClinicalReadings" / "CHNCXR_0002_0.txt").unlink()
    (shenzhen / "ClinicalReadings" / "CHNCXR_0003_0.txt").write_bytes("\ufeff\r\n female 64days \r\nnormal".encode())
    (shenzhen / "ClinicalReadings" / "CHNCXR_0004_0.txt").write_bytes(b"male 30yrs \xff\xfe")
    (shenzhen / "ClinicalReadings" / "CHNCXR_0777_1.txt").write_text("male 30yrs")
    c = read_shenzhen(shenzhen)
    assert len(c) == 29 and c.skipped.item.tolist() == ["CXR_png/CHNCXR_0001_0.png", "CXR_png/CHNCXR_0500_2.png", "ClinicalReadings/CHNCXR_0777_1.txt"]
    assert c.labels("gender")[:3].tolist() == [None, "female", "male"] and c.table.age[1] == pytest.approx(64 / 365.25) and c.table.age[2] == 30
    assert missing_report(c).pictures.to_dict() == {"gender": 1, "age": 1}


def test_shenzhen_every_kind_of_png_is_grey(shenzhen):
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    forms = {"L": Image.fromarray(grey), "RGB": Image.fromarray(np.stack([grey] * 3, 2)), "RGBA": Image.fromarray(np.stack([grey] * 3 + [np.full_like(grey, 255)], 2)), "I;16": Image.fromarray(grey.astype(np.uint16) * 257)}
    palette = Image.frombytes("P", (16, 16), (255 - grey).tobytes())
    palette.putpalette([255 - i // 3 for i in range(768)])
    for k, picture in enumerate([*forms.values(), palette]):
        picture.save(shenzhen / "CXR_png" / f"CHNCXR_{k + 1:04d}_0.png")
        got = open_picture(shenzhen, f"CXR_png/CHNCXR_{k + 1:04d}_0.png", grey=True)
        assert got.dtype == np.uint8 and np.array_equal(got, grey), k


def test_shenzhen_truncated_picture(shenzhen):
    path = shenzhen / "CXR_png" / "CHNCXR_0005_0.png"
    path.write_bytes(path.read_bytes()[:500])
    c = read_shenzhen(shenzhen)
    assert len(c) == 30
    with pytest.raises(ValueError, match="CHNCXR_0005_0.png: not a readable picture"):
        c.pixels()
    assert read_shenzhen(shenzhen, decode=True).skipped.item.tolist() == ["CXR_png/CHNCXR_0005_0.png"]


@pytest.mark.parametrize("part", ["CXR_png", "ClinicalReadings", ""])
def test_shenzhen_missing_folders(shenzhen, part):
    (shenzhen / part).rename(shenzhen.parent / "elsewhere")
    with pytest.raises(FileNotFoundError, match="no such folder") as e:
        read_shenzhen(shenzhen)
    assert str(shenzhen / part) in str(e.value) and "National Library of Medicine" in str(e.value) and "Terms: " in str(e.value)


def test_shenzhen_without_pictures(tmp_path):
    for part in ("CXR_png", "ClinicalReadings"):
        (tmp_path / part).mkdir()
    with pytest.raises(FileNotFoundError, match="no picture CHNCXR_NUMBER_LABEL.png could be read"):
        read_shenzhen(tmp_path)


# mBRSET

def mbrset(folder, rows, columns=COLUMNS):
    "A small folder of mBRSET's form; rows are dicts, pictures are made for all but 985.1.jpg."
    (folder / "images").mkdir(parents=True, exist_ok=True)
    usual = dict.fromkeys(COLUMNS, "") | {"age": 60, "sex": 0, "obesity": 0, "laterality": "right", "final_quality": "yes", "final_icdr": 0}
    t = pd.DataFrame([usual | r for r in rows])
    for f in t.file:
        if f != "985.1.jpg":
            Image.fromarray(np.full((20, 30, 3), 99, np.uint8)).save(folder / "images" / f)
    t[list(columns)].to_csv(folder / "labels_mbrset.csv", index=False)
    return folder


SEX = {0: "female", 1: "male"}
ROWS = [{"patient": p, "file": f"{p}.{k}.jpg", "sex": int(p == 3)} for p in (1, 2, 3) for k in (1, 2, 3, 4)]


def test_mbrset_labels_blanks_and_missing_file(tmp_path):
    rows = [r.copy() for r in ROWS] + [{"patient": 985, "file": "985.1.jpg"}]
    rows[0] |= {"final_icdr": "", "final_quality": "no"}
    rows[1] |= {"final_icdr": 3}
    rows[2] |= {"final_icdr": 9}
    for r in rows[4:8]:
        r["obesity"] = ""
    for r in rows[8:12]:
        r["obesity"] = 1
    c = read_mbrset(mbrset(tmp_path, rows), sex=SEX)
    assert dict(zip(c.skipped.item, c.skipped.reason)) == {"1.1.jpg": "final_icdr is blank (final_quality no)", "1.3.jpg": "final_icdr is '9', known are 0 to 4", "985.1.jpg": "no such file"}
    assert c.table.label.tolist() == [1] + [0] * 9 and c.labels("obesity").tolist() == ["not obese"] * 2 + [None] * 4 + ["obese"] * 4
    assert c.labels("gender").tolist() == ["female"] * 6 + ["male"] * 4
    assert c.pixels().shape == (10, 20, 30, 3) and c.pixels([0], size=16, channels=1).shape == (1, 16, 16, 1)
    known = c.known("obesity")
    assert len(known) == 6 and set(known.skipped.reason) >= {"obesity not known"} and len(known) + len(known.skipped) == 13
    assert len(reasons(c)) == 3


@pytest.mark.parametrize("n0, n1, ok", [(651, 349, True), (349, 651, True), (50, 50, False), (90, 10, False), (100, 0, False)])
def test_mbrset_sex_is_derived_and_asserted(n0, n1, ok):
    codes = np.array(["0"] * n0 + ["1"] * n1, dtype=object)
    if not ok:
        with pytest.raises(ValueError, match="sex is not documented in this set"):
            genders(codes, np.arange(len(codes)))
    else:
        assert (genders(codes, np.arange(1000)) == "female").mean() == pytest.approx(.651)


def test_mbrset_sex_counts_patients_not_pictures():
    codes, patients = np.array(["0"] * 65 + ["1"] * 35 * 4, dtype=object), np.concatenate([np.arange(65), np.repeat(np.arange(65, 100), 4)])
    assert (genders(codes, patients) == "female").sum() == 65


def test_mbrset_contradictions_are_refused(tmp_path):
    rows = [r.copy() for r in ROWS]
    rows[1]["sex"] = 1
    with pytest.raises(ValueError, match="sex of patient 1 is given as '0' and '1'"):
        read_mbrset(mbrset(tmp_path, rows), sex=SEX)
    with pytest.raises(ValueError, match="sex holds the code '1', but its codes are"):
        read_mbrset(mbrset(tmp_path, ROWS), sex={0: "female"})
    with pytest.raises(ValueError, match="obesity holds the code '2'"):
        read_mbrset(mbrset(tmp_path, [r | {"obesity": 2} for r in ROWS]), sex=SEX)


@pytest.mark.parametrize("column", ["patient", "age", "sex", "obesity", "file", "laterality", "final_quality", "final_icdr"])
def test_mbrset_missing_columns(tmp_path, column):
    with pytest.raises(ValueError, match=f"no column '{column}'") as e:
        read_mbrset(mbrset(tmp_path, ROWS, [c for c in COLUMNS if c != column]), sex=SEX)
    assert "physionet.org" in str(e.value) and "Terms: " in str(e.value)


@pytest.mark.parametrize("part", ["labels_mbrset.csv", "images", ""])
def test_mbrset_missing_files(tmp_path, part):
    folder = mbrset(tmp_path / "m", ROWS)
    (folder / part).rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError) as e:
        read_mbrset(folder, sex=SEX)
    assert str(folder / part) in str(e.value) and "physionet.org" in str(e.value)


def test_mbrset_has_24_columns_in_the_writers_file(tmp_path):
    images, t = cohort("mbrset", seed=0)
    folder = write_mbrset(t.iloc[:20], images, tmp_path)
    assert pd.read_csv(folder / "labels_mbrset.csv").columns.tolist() == list(COLUMNS) and len(COLUMNS) == 24


# Stand-ins through their files

@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("standins")
    return {name: write_standin(name, place / name, seed=3) for name in NAMES}


@pytest.fixture(scope="module")
def returned(written):
    return {name: read(name, written[name], seed=1) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_standin_through_its_files_is_the_one_in_memory(name, returned):
    back, drawn = returned[name], standin(name, seed=3)
    assert back.kind == drawn.kind == "stand-in" and back.attributes == drawn.attributes and "stand-in" in back.source
    if name == "mbrset":
        assert len(back) + len(back.skipped) == 5164 and "985.1.jpg" in set(back.skipped.item) and back.table.obesity.isna().any()
        twin = drawn.table.assign(image=[f"{p + 1}.{k}.jpg" for p, k in zip(drawn.table.patient, drawn.table.card)], row=drawn.table.image).set_index("image").loc[back.table.image]
        assert np.abs(back.pixels([0, 9]) - drawn.pixels(twin.row.to_numpy()[[0, 9]])).mean() < .03
    else:
        order = np.argsort(drawn.table.label, kind="stable") if name == "shenzhen" else np.argsort(drawn.table.split.map({"train": 0, "validation": 1, "test": 2}), kind="stable")
        twin = drawn.table.iloc[order]
        assert np.allclose(back.pixels(np.arange(40)), drawn.pixels(order[:40]), atol=1e-6)
        assert back.table.age.tolist() == twin.age.tolist()
    assert back.table.label.tolist() == twin.label.tolist() and back.table.gender.tolist() == twin.gender.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_parts_are_disjoint_by_patient_and_in_proportion(name, returned):
    for c in (returned[name], standin(name, seed=1)):
        assert c.table.groupby("patient").split.nunique().max() == 1
        shares = c.table.drop_duplicates("patient").split.value_counts(normalize=True)
        for part, share in PARTS[name][0].items():
            assert shares[part] == pytest.approx(share, abs=.012)
            assert c.part(part).table.label.mean() == pytest.approx(c.table.label.mean(), abs=.05)
    again = with_split(c, parts=PARTS[name][0], by=PARTS[name][1], seed=1)
    assert again.table.split.equals(c.table.split) and not with_split(c, parts=PARTS[name][0], by=PARTS[name][1], seed=2).table.split.equals(c.table.split)


def test_marks_tell_drawn_from_real(written, tmp_path):
    assert read_shenzhen(written["shenzhen"]).kind == "real"  # a reader alone knows nothing of stand-ins
    assert read("shenzhen", written["shenzhen"]).kind == "stand-in"
    (tmp_path / "photo.jpg").write_text("mine")
    with pytest.raises(FileExistsError, match="holds files that are not a stand-in"):
        write_standin("shenzhen", tmp_path)


def test_data_folder_is_looked_up(written, monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRICAL_NB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="the environment variable FAIRICAL_NB_DATA"):
        read("hgf")
    os.symlink(written["shenzhen"], tmp_path / "Shenzhen")
    assert len(read("shenzhen")) == 662


def test_one_group_is_warned_of(shenzhen):
    for form in (shenzhen / "ClinicalReadings").iterdir():
        form.write_text("male 40yrs")
    with pytest.warns(UserWarning, match=r"attribute 'gender' of cohort 'shenzhen' has 1 group \(male 30\)"):
        read("shenzhen", shenzhen)
    with pytest.raises(ValueError, match="no image cohort is called 'hfg'; there are hgf, shenzhen, mbrset"):
        read("hfg")


# The cohort itself

@pytest.fixture
def small():
    t = pd.DataFrame({"image": range(6), "label": [0, 1, 0, 1, 1, 0], "patient": [0, 0, 1, 1, 2, 2], "gender": ["f", "f", "m", "m", None, None], "age": [30., 30, 40, 40, 50, 50]})
    return ImageCohort("small", t, ("gender",), images_of, "stand-in", "by hand", skipped_table([("x", "gone")]))


def images_of(row):
    return np.full((4, 6), row * 10, np.uint8)


@pytest.mark.parametrize("change, says", [({"label": 2}, "must be 0 or 1, but row 0 holds 2"), ({"label": [0, 1, None, 1, 1, 0]}, "row 2 holds nan"), ({"image": 1}, "is listed 6 times"), ({"patient": [0, 0, 1, 1, 2, None]}, "missing in row 5"),
                                          ({"split": ["a", "b", "a", "a", "a", "a"]}, r"is in two splits, first 0 \(a, b\)"), ({"split": ["a", "b"] * 3}, "3 patients of cohort 'small' are in two splits")])
def test_cohort_refuses(small, change, says):
    with pytest.raises(ValueError, match=says):
        replace(small, table=small.table.assign(**change))


@pytest.mark.parametrize("column", ["image", "label", "patient", "gender"])
def test_cohort_needs_its_columns(small, column):
    with pytest.raises(ValueError, match=f"has no column '{column}'"):
        replace(small, table=small.table.drop(columns=column))


def test_pixels_of_masks_sizes_and_channels(small):
    assert small.pixels().shape == (6, 4, 6, 1) and small.pixels(np.arange(6) == 2)[0, 0, 0, 0] == pytest.approx(20 / 255)
    assert small.pixels([1], size=8, channels=3).shape == (1, 8, 8, 3)
    assert small.pixels([1], fit="pad").shape == (1, 6, 6, 1) and small.pixels([1], fit="pad")[0, 0, 0, 0] == 0
    assert small.pixels([]).shape[0] == 0
    with pytest.raises(ValueError, match="a mask of rows must have 6 entries, but it has 2"):
        small.pixels([True, False])
    with pytest.raises(ValueError, match="these|name a size"):
        replace(small, opener=lambda r: np.zeros((4 + r, 4), np.uint8)).pixels()
    with pytest.raises(ValueError, match=r"must have shape \(H, W\)"):
        replace(small, opener=lambda r: np.zeros((4, 4, 2), np.uint8)).pixels()


def test_cohorts_travel_to_other_processes(written):
    c = read("shenzhen", written["shenzhen"])
    again = pickle.loads(pickle.dumps(c))
    assert np.array_equal(again.pixels([3]), c.pixels([3]))


def test_split_keeps_blanks_and_does_not_change_the_cohort(small):
    before = small.table.copy()
    big = replace(small, table=pd.concat([before.assign(image=before.image + 6 * k, patient=before.patient + 3 * k) for k in range(20)], ignore_index=True))
    s = with_split(big, parts={"train": .5, "test": .5}, by=("gender",), seed=0)
    assert small.table.equals(before) and "split" not in big.table
    assert s.part("train").table.gender.isna().sum() == s.part("test").table.gender.isna().sum()
    with pytest.raises(ValueError, match="is not split yet"):
        big.part("train")
    with pytest.raises(ValueError, match="has no part 'validation'; it has"):
        s.part("validation")


def test_tables_count_patients_for_groups_and_pictures_for_labels(small):
    counts = group_counts(small).set_index("group")
    assert counts.loc["not known", ["patients", "pictures", "positives"]].tolist() == [1, 2, 1]
    table = demographics(small)
    assert table.loc[("gender, of patients", "f"), "all"] == "1 (33.3)" and table.loc[("age in years", ""), "all"] == "40.0 ± 10.0"
    assert missing_report(small).loc["gender"].tolist() == pytest.approx([2, 1 / 3, 1, 1 / 3])


def test_no_picture_is_opened_to_read_a_set(written, monkeypatch):
    from PIL import ImageFile
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded"))
    assert len(read("shenzhen", written["shenzhen"])) == 662
    assert visual_cohorts.MARK


# Found by mutants: pictures by PIL and by hand, parts in proportion, options that must arrive, tables counted by hand

def varied(row):
    return np.random.default_rng(row).integers(0, 256, (5, 9, 3), dtype=np.uint8)


@pytest.mark.parametrize("fit", ["squash", "pad"])
@pytest.mark.parametrize("size", [None, 4, 16])
def test_sizes_and_margins_are_those_of_pil(small, fit, size):
    raw = varied(2)
    if fit == "pad": raw = np.concatenate([np.zeros((2, 9, 3), np.uint8), raw, np.zeros((2, 9, 3), np.uint8)])
    channels = [Image.fromarray(raw[..., k].astype(np.float32) / 255) for k in range(3)]
    wanted = np.stack([np.asarray(c.resize((size, size), Image.Resampling.BILINEAR) if size else c) for c in channels], axis=2)
    assert np.allclose(replace(small, opener=varied).pixels([2], size=size, fit=fit)[0], wanted, atol=1e-6)


def test_an_odd_margin_is_larger_below_and_on_the_right(small):
    high = replace(small, opener=lambda r: np.ones((4, 1))).pixels([0], fit="pad")[0, ..., 0]
    wide = replace(small, opener=lambda r: np.ones((1, 4))).pixels([0], fit="pad")[0, ..., 0]
    assert high.tolist() == [[0, 1, 0, 0]] * 4 and wide.tolist() == high.T.tolist()


def test_colours_become_grey_as_the_eye_weighs_them_and_floats_are_as_they_are(small):
    bright = replace(small, opener=lambda r: np.eye(3)[r % 3][None, None] * np.ones((2, 2, 1)))
    assert np.allclose(bright.pixels([0, 1, 2], channels=1)[:, 0, 0, 0], [.299, .587, .114]) and bright.pixels([0]).dtype == np.float32
    grey = replace(small, opener=lambda r: np.full((2, 2), .25))
    assert (grey.pixels([0]) == .25).all() and (grey.pixels([0], channels=3) == .25).all()
    with pytest.raises(ValueError, match="fit must be 'squash' or 'pad'"): small.pixels(fit="crop")


def test_rows_are_counted_anew_and_who_is_not_known_joins_the_skipped(small):
    t = small.table.assign(age=[30., None, 40, 40, 50, None])
    c = replace(small, table=t, attributes=("gender", "age"))
    part = c.take([4, 1])
    assert part.table.index.tolist() == [0, 1] and part.table.image.tolist() == [4, 1] and part.labels("age").tolist() == [50, None]
    known = c.known()
    assert known.table.image.tolist() == [0, 2, 3] and known.table.index.tolist() == [0, 1, 2]
    assert known.skipped.to_numpy().tolist() == [["x", "gone"], [1, "age not known"], [4, "gender not known"], [5, "gender, age not known"]]
    assert c.known("age").table.image.tolist() == [0, 2, 3, 4] and len(c.skipped) == 1
    assert reasons(replace(c, skipped=skipped_table([("a", "one"), ("b", "two"), ("c", "two")]))).to_numpy().tolist() == [[2, "b"], [1, "a"]]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("grey", [True, False])
def test_every_mode_is_opened_as_colours_or_as_grey(tmp_path, mode, grey):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)).convert(mode)
    picture.save(tmp_path / "p.tiff")
    found = open_picture(tmp_path, "p.tiff", grey=grey)
    plain = grey or mode in ("1", "L", "LA")
    assert np.array_equal(found, np.asarray(picture.convert("L" if plain else "RGB"))) and found.ndim == (2 if plain else 3)


@pytest.mark.parametrize("grey", [True, False])
def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path, grey):
    Image.fromarray(np.array([[0x0000, 0x00ff, 0x1234], [0x80ff, 0xff00, 0xffff]], np.uint16)).save(tmp_path / "p.png")
    assert open_picture(tmp_path, "p.png", grey=grey).tolist() == [[0, 0, 0x12], [0x80, 0xff, 0xff]]


@pytest.mark.parametrize("name", NAMES)
def test_the_named_attributes_are_kept_in_proportion_patient_by_patient(name):
    c = standin(name, seed=6)
    parts, by = PARTS[name]
    if name == "mbrset": c = replace(c, table=c.table.assign(label=c.table.patient % 2))  # one label a patient, so that proportion is exact
    c = with_split(c, parts=parts, by=by, seed=6)
    people = c.table.drop_duplicates("patient")
    for cell, some in people.groupby([*by, "label"]):
        for part, share in parts.items():
            assert abs((some.split == part).sum() - share * len(some)) <= 1, (cell, part)


def test_the_size_reaches_pictures_in_memory_and_in_files(tmp_path):
    assert standin("shenzhen", seed=0, size=40).pixels([0]).shape == (1, 40, 40, 1)
    folder = write_standin("shenzhen", tmp_path / "s", seed=0, size=40)
    assert read("shenzhen", folder).pixels([0]).shape == (1, 40, 40, 1)
    assert write_standin("shenzhen", folder, seed=1) == folder  # what is marked as drawn may be drawn again
    assert read("shenzhen", folder).pixels([0]).shape == (1, 32, 32, 1)


def test_options_reach_readers_and_writers(monkeypatch, tmp_path, shenzhen):
    (shenzhen / "ClinicalReadings" / "CHNCXR_0001_0.txt").write_text("male 42")
    assert read("shenzhen", shenzhen).table.age[0] == 42 and np.isnan(read("shenzhen", shenzhen, bare="missing").table.age[0])
    given = []
    monkeypatch.setitem(visual_cohorts.WRITERS, "hgf", lambda table, images, folder, **options: given.append((len(table), len(images), options)) or folder)
    write_standin("hgf", tmp_path / "h", wanted=3)
    assert given == [(3300, 3300, {"wanted": 3})]


def test_the_seed_decides_the_split_unless_the_set_has_its_own(shenzhen, tmp_path):
    a, b, c = (read("shenzhen", shenzhen, seed=s).table.split for s in (0, 0, 5))
    assert a.equals(b) and not a.equals(c)
    for k in range(12):
        patient(tmp_path / "own" / ("test", "validation", "train")[k % 3], k + 1, race=k // 3 % 3, male=k % 2)
    own, other = (read("hgf", tmp_path / "own", seed=s).table for s in (0, 5))
    assert own.split.equals(other.split) and own.set_index("patient").split.sort_index().tolist() == ["test", "validation", "train"] * 4


@pytest.fixture
def parted():
    t = pd.DataFrame({"image": range(9), "patient": [0, 0, 0, 1, 1, 2, 3, 4, 4], "label": [1, 1, 0, 0, 0, 1, 1, 0, 1], "gender": ["f", "f", "f", "m", "m", None, "m", "f", "f"],
                      "split": ["test"] * 5 + ["extra"] + ["train"] * 3, "age": [20., 20, 20, 40, 40, 60, 30, 70, 70]})
    return ImageCohort("parted", t, ("gender",), images_of, "stand-in", "by hand")


def test_counts_of_every_part_by_hand(parted):
    "Patients and pictures differ, and a part that is called by no usual name comes after the others."
    wanted = [["train", "f", 1, 2, 1, .5], ["train", "m", 1, 1, 1, 1], ["test", "f", 1, 3, 2, 2 / 3], ["test", "m", 1, 2, 0, 0], ["extra", "not known", 1, 1, 1, 1],
              ["all", "f", 2, 5, 3, .6], ["all", "m", 2, 3, 1, 1 / 3], ["all", "not known", 1, 1, 1, 1]]
    assert group_counts(parted).drop(columns="attribute").to_numpy().tolist() == wanted


def test_demographics_of_every_part_by_hand(parted):
    table = demographics(parted)
    assert list(table) == ["train", "test", "extra", "all"]
    said = {("pictures", ""): ["3", "5", "1", "9"], ("patients", ""): ["2", "2", "1", "5"], ("positive, of pictures", ""): ["2 (66.7)", "2 (40.0)", "1 (100.0)", "5 (55.6)"],
            ("gender, of patients", "f"): ["1 (50.0)", "1 (50.0)", "0", "2 (40.0)"], ("gender, of patients", "not known"): ["0", "0", "1 (100.0)", "1 (20.0)"],
            ("positive by gender", "f"): ["1 (50.0)", "2 (66.7)", "0", "3 (60.0)"], ("positive by gender", "m"): ["1 (100.0)", "0 (0.0)", "0", "1 (33.3)"],
            ("age in years", ""): ["50.0 ± 28.3", "30.0 ± 14.1", "60.0 ± nan", "44.0 ± 20.7"]}
    for row, wanted in said.items(): assert table.loc[row].tolist() == wanted, row
    assert missing_report(parted, columns=["gender", "label"]).to_numpy().tolist() == [[1, 1 / 9, 1, 1 / 5], [0, 0, 0, 0]]


def test_bars_are_the_shares_of_positives_from_the_top(parted):
    from matplotlib.figure import Figure
    ax = rate_bars(parted, ax=Figure().subplots(), look=lambda k: {"color": f"C{k}", "hatch": ""})
    assert [b.get_width() for b in ax.patches] == pytest.approx([1, 1 / 3, .6]) and [t.get_text() for t in ax.get_yticklabels()] == ["not known", "m", "f"]
    assert [t.get_text() for t in ax.texts] == ["1.00 of 1", "0.33 of 3", "0.60 of 5"]
