"Quality: laws of the distances, CLIP's end token, resizing, Inception from a file, drift and monitors."
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.quality import compare_features, frechet_distance, kernel_distance

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from fairical_nb import recognition, shifts  # noqa: E402
from fairical_nb.attributes import TAXONOMY  # noqa: E402

torch.set_num_threads(1)
SETS = st.tuples(st.integers(2, 12), st.integers(2, 12), st.integers(1, 6), st.integers(0, 10**6))


def drawn(n, m, d, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.uniform(.1, 3, d), rng.normal(size=(m, d)) + rng.normal(size=d)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=50)
@given(SETS)
def test_frechet_is_symmetric_not_negative_and_0_against_itself(shape):
    a, b = drawn(*shape)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), abs=1e-9) and frechet_distance(a, b) >= 0
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=30)
@given(SETS)
def test_frechet_keeps_under_rotation_shift_and_order_and_scales_by_the_square(shape):
    a, b = drawn(*shape)
    q = np.linalg.qr(np.random.default_rng(0).normal(size=(a.shape[1],) * 2))[0]
    d = frechet_distance(a, b)
    assert frechet_distance(a @ q + 3, b[::-1] @ q + 3) == pytest.approx(d, abs=1e-7 * (1 + d))
    assert frechet_distance(2 * a, 2 * b) == pytest.approx(4 * d, abs=1e-7 * (1 + d))


@settings(max_examples=30)
@given(SETS)
def test_kernel_distance_is_its_naive_double_loop(shape):
    a, b = drawn(*shape)
    k = lambda x, y: (x @ y / len(x) + 1)**3
    within = lambda x: np.mean([k(p, q) for i, p in enumerate(x) for j, q in enumerate(x) if i != j])
    naive = within(a) + within(b) - 2 * np.mean([k(p, q) for p in a for q in b])
    assert kernel_distance(a, b)[0] == pytest.approx(naive, rel=1e-6, abs=1e-7)
    assert kernel_distance(b, a)[0] == pytest.approx(naive, rel=1e-6, abs=1e-7)


def test_kernel_distance_by_subsets_has_the_mean_of_all_and_the_same_seed_the_same_number():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(600, 4)), rng.normal(size=(500, 4)) + .3
    mean, sd = kernel_distance(a, b, subset=100, subsets=300)
    assert mean == pytest.approx(kernel_distance(a, b, subset=1000)[0], abs=4 * sd / 300**.5)
    assert kernel_distance(a, b, subset=100, subsets=5, seed=3) == kernel_distance(a, b, subset=100, subsets=5, seed=3)


@pytest.mark.parametrize("a, words", [(np.zeros(5), r"shape \(n, d\)"), (np.full((4, 3), np.inf), "must be finite, but row 0"), (np.zeros((4, 2)), "one dimension, but a has 2 and b has 3")])
def test_what_is_no_set_of_features_is_refused(a, words):
    for f in (frechet_distance, kernel_distance):
        with pytest.raises(ValueError, match=words): f(a, np.zeros((4, 3)))


def test_inputs_stay_as_they_were():
    a, b = drawn(9, 8, 3, 0)
    before = a.copy(), b.copy()
    frechet_distance(a, b), kernel_distance(a, b), shifts.drift(a[:8], b)
    assert (a == before[0]).all() and (b == before[1]).all()


# CLIP

def clip(length=77):
    torch.manual_seed(0)
    letters = [*"abcdefghijklmnopqrstuvwxyz", *(c + "</w>" for c in "abcdefghijklmnopqrstuvwxyz")]
    words = {w: i for i, w in enumerate([*letters, "<|startoftext|>", "<|endoftext|>"])}
    text = transformers.CLIPTextConfig(vocab_size=54, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=length, bos_token_id=52, eos_token_id=53, pad_token_id=53)
    vision = transformers.CLIPVisionConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8))
    return recognition.Clip(model, transformers.CLIPTokenizer(vocab=words, merges=[], model_max_length=length), "random")


def test_I05_76_one_token_words_are_cut_with_the_end_token_kept_and_counted():
    c = clip()
    long, fits = " ".join("a" * 76), " ".join("a" * 75)
    tokens, cut = recognition.cut_tokens([long, fits], c.tokenizer)
    assert cut.tolist() == [True, False] and tokens["input_ids"].shape == (2, 77)
    assert (tokens["input_ids"][:, -1] == c.tokenizer.eos_token_id).all() and (tokens["input_ids"][0] == tokens["input_ids"][1]).all()
    found = recognition.agreement(np.random.default_rng(0).random((2, 16, 16, 3)), [long, fits], c)
    summary = recognition.agreement_summary(found)
    assert (summary["cut"], summary["n"], summary["scale"]) == (1, 2, "raw cosine, -1 to 1")


def test_short_texts_have_the_tokens_of_the_tokenizer_itself():
    c = clip(12)
    texts = ["a b", "judge", "abcdefgh"]
    ours, cut = recognition.cut_tokens(texts, c.tokenizer)
    theirs = c.tokenizer(texts, padding="max_length", max_length=12, truncation=True, return_tensors="pt")
    assert not cut.any() and all((ours[k] == theirs[k]).all() for k in ours)


def test_clip_from_a_folder_gives_the_same_cosines(tmp_path):
    c = clip(12)
    c.model.save_pretrained(tmp_path)
    c.tokenizer.save_pretrained(tmp_path)
    images, texts = np.random.default_rng(0).random((3, 20, 24, 3)), ["a", "b c", "judge"]
    again = recognition.load_clip(tmp_path)
    np.testing.assert_allclose(recognition.agreement(images, texts, again)["cosine"], recognition.agreement(images, texts, c)["cosine"], atol=1e-6)
    with pytest.raises(FileNotFoundError, match="no CLIP model there"): recognition.load_clip(tmp_path / "absent")


def test_clips_own_image_processor_agrees():
    pytest.importorskip("torchvision")
    from PIL import Image
    smooth = (np.outer(np.linspace(0, 1, 40), np.linspace(1, 0, 32))[..., None] * [255, 200, 90]).astype(np.uint8)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    theirs = torch.as_tensor(np.asarray(processor([Image.fromarray(smooth)], return_tensors="np")["pixel_values"]))
    assert (recognition._cropped([Image.fromarray(smooth)], 16, recognition.CLIP_COLOURS) - theirs).abs().max() < .05


# Features

def test_I04_noise_is_resized_with_antialiasing():
    noise = np.random.default_rng(0).random((1, 512, 512, 3))
    spread = recognition.image_features(noise, lambda x: x.std((2, 3)), size=299)[0]
    sharp = torch.nn.functional.interpolate(torch.tensor(noise).permute(0, 3, 1, 2), (299, 299), mode="bilinear", antialias=False).std((2, 3))[0].numpy()
    assert (spread < .85 * sharp).all()  # averaging neighbours lowers the spread of noise; picking pixels does not


def test_features_do_not_depend_on_batches_and_take_pictures_of_several_sizes():
    from PIL import Image
    images = [Image.fromarray(np.random.default_rng(i).integers(0, 256, (8 + i, 9, 3), dtype=np.uint8)) for i in range(5)]
    a, b = (recognition.image_features(images, lambda x: x, size=4, batch_size=k) for k in (1, 5))
    assert a.shape == (5, 48) and np.allclose(a, b)


def test_torchvisions_inception_from_a_file_is_not_called_FID(tmp_path):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    net = torchvision.models.inception_v3(weights=None, init_weights=False, transform_input=True)
    torch.save(net.state_dict(), tmp_path / "inception.pth")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        features, name = recognition.load_inception(tmp_path / "inception.pth")
    assert "not FID" in name
    x = torch.rand(1, 3, 299, 299)
    net.fc = torch.nn.Identity()
    with torch.no_grad(): assert torch.allclose(recognition.torch.as_tensor(features(x)), net.eval()(x * 2 - 1), atol=1e-5)
    torch.save({"fc.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="does not fit torchvision's inception_v3"): recognition.load_inception(tmp_path / "other.pth")


# Drift and monitors

def tables(n=400, seed=0, flip=0.):
    rng = np.random.default_rng(seed)
    labels = pd.DataFrame({"trigger": np.where(np.arange(n) % 2, "poor", ""), **{a: rng.choice(c, n) for a, c in TAXONOMY.items()}})
    judged = labels.copy()
    for a, c in TAXONOMY.items(): judged.loc[rng.random(n) < flip, a] = c[0]
    return labels, judged


def test_two_labellers_that_agree_have_no_gap_and_one_that_sees_less_variety_has():
    labels, same = tables()
    assert (shifts.labeller_gap(labels, same, TAXONOMY)[["agree", "gap"]] == [1, 0]).all(axis=None)
    found = shifts.monitor(*tables(flip=.5), TAXONOMY)
    assert found["gap"] > .05 and found["agree"] < .5 and found["gap"] == pytest.approx(found["MGBI labeller"] - found["MGBI judge"])


def test_undetermined_images_are_left_out_of_the_gap_and_counted():
    labels, judged = tables(20)
    labels.loc[0, "gender"] = judged.loc[1, "gender"] = None
    assert shifts.labeller_gap(labels, judged, TAXONOMY)["n"].tolist() == [18, 20, 20]


def test_drift_sees_the_pairs_that_a_distance_of_sets_does_not():
    x = np.random.default_rng(0).normal(size=(200, 5))
    moved, same = shifts.drift(x, x[::-1]), shifts.drift(x, x)
    assert same["kept"] == pytest.approx(1) and abs(moved["kept"]) < .2
    assert moved["frechet"] == pytest.approx(0, abs=1e-9) == same["frechet"]


@settings(max_examples=30)
@given(n=st.integers(2, 9), d=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_class_diversity_is_its_naive_double_loop(n, d, seed):
    x = np.random.default_rng(seed).normal(size=(n, d))
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    naive = np.mean([1 - u[i] @ u[j] for i in range(n) for j in range(n) if i != j])
    assert shifts.class_diversity(x, ["a"] * n, ["a"]).loc["a", "diversity"] == pytest.approx(naive, abs=1e-9)


# Options of the kernel distance

@settings(max_examples=30)
@given(SETS, st.integers(1, 4))
def test_kernel_distance_of_any_degree_is_its_naive_double_loop(shape, degree):
    a, b = drawn(*shape)
    k = lambda x, y: (x @ y / len(x) + 1)**degree
    within = lambda x: np.mean([k(p, q) for i, p in enumerate(x) for j, q in enumerate(x) if i != j])
    assert kernel_distance(a, b, degree=degree)[0] == pytest.approx(within(a) + within(b) - 2 * np.mean([k(p, q) for p in a for q in b]), rel=1e-6, abs=1e-7)


def test_subsets_are_drawn_without_replacement_and_from_the_seed():
    "A subset as large as one set is that set; images of the other are all alike, so any draw of them is the same."
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 3)), np.repeat(rng.normal(size=(1, 3)), 30, axis=0)
    for x, y in ((a, b), (b, a)): assert kernel_distance(x, y, subset=8, subsets=7) == pytest.approx((kernel_distance(a, b[:8])[0], 0), abs=1e-9)
    for x, y in ((a, b), (b, a)): assert kernel_distance(x, y, subset=20, subsets=7) == pytest.approx((kernel_distance(a, b[:8])[0], 0), abs=1e-9)
    c = rng.normal(size=(30, 3))
    assert kernel_distance(a, c, subset=5, subsets=3, seed=1) != kernel_distance(a, c, subset=5, subsets=3, seed=2)


def test_one_subset_has_no_spread():
    a, b = (np.random.default_rng(k).normal(size=(30 + 10 * k, 3)) for k in (0, 1))
    value, sd = kernel_distance(a, b, subset=6, subsets=1)
    assert np.isfinite(value) and np.isnan(sd)


@pytest.mark.parametrize("seed", range(3))
def test_mean_and_standard_deviation_of_two_subsets_by_hand(seed):
    "The first of two draws is the draw of one."
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(30, 3)), rng.normal(size=(40, 3))
    first, (mean, sd) = kernel_distance(a, b, subset=6, subsets=1, seed=seed)[0], kernel_distance(a, b, subset=6, subsets=2, seed=seed)
    assert sd == pytest.approx(abs(mean - first)) and sd > 0


def test_the_table_of_sets_hands_every_option_on():
    rng = np.random.default_rng(0)
    sets, reference = {"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(25, 3)) + 1}, rng.normal(size=(40, 3))
    found = compare_features(sets, reference, features="drawn", subset=7, subsets=4, seed=5)
    for name, x in sets.items():
        assert found.loc[name].tolist() == [frechet_distance(x, reference), *kernel_distance(x, reference, subset=7, subsets=4, seed=5), len(x), 40, 3, "drawn"]
