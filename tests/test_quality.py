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


# What wrong code would have passed

class Letters:
    "A tokenizer of single letters."
    model_max_length, eos_token_id, pad_token_id = 5, 99, None
    def __call__(self, texts, verbose): return {"input_ids": [[1, *map(ord, t), 99] for t in texts]}


@pytest.mark.parametrize("n", range(6))
def test_a_text_is_cut_from_one_token_too_many_on_and_keeps_as_many_as_fit(n):
    tokens, cut = recognition.cut_tokens(["abcdef"[:n]], Letters())
    kept = [1, *map(ord, "abcdef"[:min(n, 3)]), 99]
    assert cut.tolist() == [n > 3] and tokens["input_ids"].tolist() == [kept + [99] * (5 - len(kept))] and tokens["attention_mask"].tolist() == [[1] * len(kept) + [0] * (5 - len(kept))]


def test_clip_reads_as_many_tokens_as_its_model_does_and_not_as_its_tokenizer_says():
    c = clip(12)
    c.tokenizer.model_max_length = 77
    assert c.texts([" ".join("a" * 30)])[1].tolist() == [True]


@pytest.mark.parametrize("h, w", [(8, 20), (20, 8), (30, 49), (49, 30), (8, 8)])
def test_clip_sees_the_middle_of_a_picture(h, w):
    x = torch.rand(1, 3, h, w, generator=torch.Generator().manual_seed(0))
    scale = 8 / min(h, w)
    wide = torch.nn.functional.interpolate(x, [round(h * scale), round(w * scale)], mode="bicubic", antialias=True).clamp(0, 1).numpy()
    top, left = (wide.shape[2] - 8) // 2, (wide.shape[3] - 8) // 2
    want = (wide[:, :, top:top + 8, left:left + 8] - np.reshape([.48145466, .4578275, .40821073], (3, 1, 1))) / np.reshape([.26862954, .26130258, .27577711], (3, 1, 1))
    np.testing.assert_allclose(recognition._cropped(x, 8, recognition.CLIP_COLOURS).numpy(), want, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_agreement_is_the_cosine_of_each_image_with_its_own_prompt_in_any_batch(batch_size):
    rng = np.random.default_rng(0)
    seen, told = rng.normal(size=(2, 5, 3))
    class Table:
        name = "table"
        def images(self, images): return np.stack([seen[i] for i in images])
        def texts(self, texts): return np.stack([told[int(t)] for t in texts]), np.array([t == "3" for t in texts])
    found = recognition.agreement(list(range(5)), list("01234"), Table(), batch_size=batch_size)
    cosines = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(seen, told)]
    np.testing.assert_allclose(found["cosine"], cosines)
    said = recognition.agreement_summary(found)
    assert said["mean"] == pytest.approx(np.mean(cosines)) and said["se"] == pytest.approx(np.std(cosines, ddof=1) / np.sqrt(5)) and found["cut"].tolist() == [False] * 3 + [True, False]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fids_network_gets_rounded_bytes_and_is_asked_for_its_features(tmp_path):
    class Inception(torch.nn.Module):
        def forward(self, x: torch.Tensor, return_features: bool = False) -> torch.Tensor: return x.float().flatten(1) if return_features else torch.zeros(1)
    torch.jit.script(Inception()).save(str(tmp_path / "fid.pt"))
    network, name = recognition.load_inception(tmp_path / "fid.pt")
    x = torch.tensor([0., .5 / 255, .6 / 255, 127.6 / 255, 254.4 / 255, 1.2]).reshape(1, 1, 1, 6).expand(1, 3, 1, 6)
    assert name == "FID Inception" and network(x)[0, :6].tolist() == [0, 0, 1, 128, 254, 255]


def test_features_keep_every_digit():
    x = torch.rand(4, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert np.array_equal(recognition.image_features(x.float(), lambda x: x.double().flatten(1) / 3), x.float().double().flatten(1).numpy() / 3)


def two_labels(n=60, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"trigger": np.repeat(["", "poor", "rich"], n // 3)} | {a: rng.choice(c, n) for a, c in TAXONOMY.items()}).astype(object)
    other = table.copy()
    for a, c in TAXONOMY.items(): other.loc[rng.random(n) < .5, a] = c[0]
    return table, other


def test_a_gap_is_the_labeller_less_the_judge():
    a, b = (pd.DataFrame({"gender": g}) for g in (["female", "male", "female", "male", None], ["female"] * 5))
    assert shifts.labeller_gap(a, b, {"gender": TAXONOMY["gender"]}).loc["gender"].to_dict() == {"agree": .5, "labeller": 1, "judge": 0, "gap": 1, "n": 4}


@pytest.mark.filterwarnings("ignore:fewer than 200 images")
@pytest.mark.parametrize("options", [{}, {"q": .5}, {"eps": .3, "target": {"gender": [.2, .8]}}], ids=str)
def test_a_monitor_measures_both_alike_and_agrees_where_both_know(options):
    from fairical_nb.mgbi import mgbi
    a, b = two_labels()
    a.loc[[0, 5], "age"], b.loc[[7], "race"] = None, None
    found, (left, right) = shifts.monitor(a, b, TAXONOMY, **options), (mgbi(t, TAXONOMY, **options) for t in (a, b))
    for k in ("MGBI", "ID", "CA"): assert (found[f"{k} labeller"], found[f"{k} judge"]) == pytest.approx((left.summary[k], right.summary[k]))
    rows = [(x, y) for x, y in zip(a[list(TAXONOMY)].values.tolist(), b[list(TAXONOMY)].values.tolist()) if None not in x and None not in y]
    assert found["gap"] == pytest.approx(left.MGBI - right.MGBI) and found["gap"] != 0 and found["agree"] == pytest.approx(np.mean([x == y for x, y in rows])) and (len(rows), found["n"]) == (57, 60)


@pytest.mark.parametrize("column", ["image", "prompt_id", "trigger", "seed"])
def test_tables_of_other_images_are_refused_whatever_differs(column):
    a = pd.DataFrame({"image": ["a", "b"], "prompt_id": ["1", "2"], "trigger": ["", "poor"], "seed": [1, 2], "gender": ["male", "female"]})
    with pytest.raises(ValueError, match=f"column '{column}' differs"): shifts.labeller_gap(a, a.assign(**{column: a[column].to_numpy()[::-1]}), {"gender": TAXONOMY["gender"]})


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=20)
@given(st.integers(3, 8), st.integers(2, 4), st.integers(0, 999), st.sampled_from([1., 1e-5]))
def test_drift_is_its_naive_double_loop(n, d, seed, scale):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, d)) * scale
    b = a + rng.normal(size=(n, d)) * scale + scale
    cos = lambda x, y: (x - a.mean(0)) @ (y - a.mean(0)) / np.linalg.norm(x - a.mean(0)) / np.linalg.norm(y - a.mean(0))
    paired, shuffled = np.mean([cos(x, y) for x, y in zip(a, b)]), np.mean([cos(x, y) for i, x in enumerate(a) for j, y in enumerate(b) if i != j])
    found = shifts.drift(a, b)
    assert tuple(found[["paired", "shuffled", "kept"]]) == pytest.approx((paired, shuffled, (paired - shuffled) / (1 - shuffled)), abs=1e-7) and (found["n"], found["d"]) == (n, d)


def test_the_seed_of_a_drift_is_that_of_its_subsets(monkeypatch):
    asked = []
    monkeypatch.setattr(shifts, "kernel_distance", lambda a, b, seed: asked.append(seed) or (0., 0.))
    for seed in (0, 5): shifts.drift(*drawn(5, 5, 2, 0), seed=seed)
    assert asked == [0, 5]


def test_a_class_of_one_image_has_no_diversity_and_is_named():
    with pytest.warns(shifts.OneImageWarning, match="fewer than two images of b, c:"): found = shifts.class_diversity(np.eye(3), ["a", "a", "b"], "abc")
    assert found["diversity"]["a"] == pytest.approx(1) and found["diversity"][["b", "c"]].isna().all() and found["n"].tolist() == [2, 1, 0]
