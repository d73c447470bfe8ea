"The debiasing baselines on pipelines of random weights: they run, they can be undone, and switched off they change nothing."
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from scipy.stats import binomtest  # noqa: E402
from transformers import CLIPTextModel  # noqa: E402

from fairical_nb import attention, comparison, guidance, prompt_pipelines, uce_pipelines  # noqa: E402
from fairical_nb.families import family  # noqa: E402
from fairical_nb.generators import image_seed  # noqa: E402
from fairical_nb.methods import Debiased, DoesNotApply, sampled, shares, targets  # noqa: E402
from fairical_nb.prompt_debias import projection  # noqa: E402
from fairical_nb.tiny_parts import new_pipeline  # noqa: E402

torch.set_num_threads(1)
ATTRIBUTES = {"tone": ("dark", "light"), "hue": ("red", "green", "blue")}
SIZE = dict(num_inference_steps=2, guidance_scale=1., height=32, width=32)


class Labeller:
    "Reads tone and hue off pixels."
    attributes = ATTRIBUTES

    def label(self, images):
        means = np.array([np.asarray(i, dtype=float).reshape(-1, 3).mean(0) for i in images])
        middle = np.median(means.mean(1))
        return pd.DataFrame({"tone": np.where(means.mean(1) > middle, "light", "dark"), "hue": [ATTRIBUTES["hue"][k] for k in means.argmax(1)]})


def quiet(pipe):
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="module")
def sd3():
    return quiet(new_pipeline(seed=0))


@pytest.fixture(scope="module")
def sd15(sd3):
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(sample_size=8, in_channels=8, out_channels=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, attention_head_dim=8,
                                          cross_attention_dim=sd3.text_encoder.config.hidden_size, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
    scheduler = diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1)
    return quiet(diffusers.StableDiffusionPipeline(vae=sd3.vae, text_encoder=CLIPTextModel(sd3.text_encoder.config), tokenizer=sd3.tokenizer, unet=unet, scheduler=scheduler,
                                                   safety_checker=None, feature_extractor=None, requires_safety_checker=False))


@pytest.fixture(params=["sd3", "sd15"])
def pipe(request):
    return request.getfixturevalue(request.param)


def call(pipe):
    return SIZE | ({"max_sequence_length": 0} if hasattr(pipe, "transformer") else {})


def encode(pipe):
    return {"max_sequence_length": 0} if hasattr(pipe, "transformer") else {}


def draw(pipe, like=None, prompts=("a person", "a gentle person"), **more):
    generators = [torch.Generator().manual_seed(s) for s in range(len(prompts))]
    return pipe(list(prompts), generator=generators, output_type="pt", **call(like or pipe), **more).images


def weights(pipe):
    network = pipe.transformer if hasattr(pipe, "transformer") else pipe.unet
    return {n: p.detach().clone() for n, p in network.named_parameters()}


def same(before, pipe):
    return all(torch.equal(before[n], p) for n, p in weights(pipe).items())


# What every method gives back

def test_a_debiased_pipeline_passes_on_what_it_does_not_know(sd3):
    made = Debiased(sd3, "nothing")
    assert made.tokenizer is sd3.tokenizer and torch.equal(draw(made, sd3), draw(sd3))
    with pytest.raises(AttributeError):
        made.no_such_part


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["dark", "light", None]), min_size=1, max_size=30))
def test_shares_leave_out_what_could_not_be_told(labels):
    table, told = pd.DataFrame({"tone": pd.Series(labels, dtype=object)}), [c for c in labels if c]
    if not told:
        with pytest.raises(ValueError, match="undetermined in all"):
            shares(table, {"tone": ATTRIBUTES["tone"]})
    else:
        found = shares(table, {"tone": ATTRIBUTES["tone"]})["tone"]
        assert np.allclose(found, [told.count(c) / len(told) for c in ATTRIBUTES["tone"]])


@pytest.mark.parametrize("bad", [{"tone": [1., 0.]}, {"tone": [.5, .4]}, {"tone": [.5]}, {"taste": [.5, .5]}])
def test_targets_that_are_none(bad):
    with pytest.raises(ValueError):
        targets(bad, ATTRIBUTES)


# UCE

def test_uce_changes_text_layers_only_and_undo_restores_them_bit_for_bit(pipe):
    before = weights(pipe)
    prompts = pd.DataFrame({"prompt": ["a person", "a gentle person"], "trigger": ["", "gentle"]})
    made = uce_pipelines.debias(pipe, Labeller(), prompts, seed=1, call=call(pipe), rounds=2, images=6, step=1., encode=encode(pipe))
    changed = {n for n, p in weights(pipe).items() if not torch.equal(before[n], p)}
    ends = ("attn2.to_k.weight", "attn2.to_v.weight", "context_embedder.weight", "text_embedder.linear_1.weight")
    assert changed and all(n.endswith(ends) for n in changed) and len(made.record) == 2 and made.cost.images == 24
    made.undo()
    assert same(before, pipe)


def test_uce_stops_when_nothing_is_missing(pipe):
    class Fair(Labeller):
        attributes = {"tone": ATTRIBUTES["tone"]}
        def label(self, images): return pd.DataFrame({"tone": ["dark", "light"] * (len(images) // 2)})
    before = weights(pipe)
    made = uce_pipelines.debias(pipe, Fair(), ["a person"], call=call(pipe), images=4, encode=encode(pipe))
    assert len(made.record) == 1 and made.record[0]["largest gap"] == 0 and same(before, pipe)


# Guidance

@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(.01, 2))
def test_guidance_never_raises_the_batch_kl(seed, strength):
    rng = np.random.default_rng(seed)
    attributes = {"hue": ATTRIBUTES["hue"]}
    heads = guidance.Heads(attributes, "mean", rng.normal(size=(1, 4)), np.ones((1, 4)), {"hue": rng.normal(size=(1, 3, 4))}, {"hue": rng.normal(size=(1, 3))}, {})
    h = torch.as_tensor(rng.normal(size=(6, 5, 4)), dtype=torch.float32)
    kept, wanted = h.clone(), targets(None, attributes)
    new = guidance.nudged(h, 0, heads, wanted, strength=strength)
    assert guidance.batch_kl(new, 0, heads, wanted) <= guidance.batch_kl(h, 0, heads, wanted) and torch.equal(h, kept)


def test_guidance_of_strength_zero_changes_nothing_and_no_weight_ever_changes(pipe):
    before, plain = weights(pipe), draw(pipe)
    off = guidance.debias(pipe, Labeller(), ["a person"], {"tone": [.5, .5]}, call=call(pipe), images=12, strength=0.)
    on = guidance.debias(pipe, Labeller(), ["a person"], {"tone": [.1, .9]}, call=call(pipe), images=12, strength=1.)
    assert torch.equal(draw(off, pipe), plain) and not torch.equal(draw(on, pipe), plain) and same(before, pipe)
    assert off.cost.images == 12 and off.cost.parameters == off.heads.parameters > 0


def test_guidance_under_classifier_free_guidance_nudges_the_guided_half(sd3):
    made = guidance.debias(sd3, Labeller(), ["a person"], {"tone": [.1, .9]}, call=call(sd3), images=12, strength=1.)
    seen = []
    with guidance.tapped(guidance.place(sd3), lambda step, h: seen.append(h.clone())):
        generators = [torch.Generator().manual_seed(s) for s in range(2)]
        made(["a person"] * 2, generators, output_type="pt", **(call(sd3) | {"guidance_scale": 3.}))
    assert all(len(h) == 4 for h in seen)


# Prompt side

def test_injection_hits_its_target_within_binomial_error():
    class Listener:
        def __call__(self, prompt, generator=None): return SimpleNamespace(images=list(prompt))
    made = prompt_pipelines.inject(Listener(), Labeller(), target={"tone": [.3, .7]})
    asked = made(["a person"] * 500, [torch.Generator().manual_seed(s) for s in range(500)]).images
    assert binomtest(sum("dark" in a for a in asked), 500, .3).pvalue > 1e-3
    alone = made(["a person"], [torch.Generator().manual_seed(77)]).images
    assert alone[0] == asked[77]


def test_projection_of_nothing_is_the_pipeline(pipe):
    off = prompt_pipelines.project(pipe, Labeller(), lam=0., encode=encode(pipe))
    assert torch.allclose(draw(off, pipe), draw(pipe), atol=1e-4)
    on = prompt_pipelines.project(pipe, Labeller(), encode=encode(pipe))
    assert not torch.equal(draw(on, pipe), draw(pipe)) and on.cost.parameters > 0


def test_fair_diffusion_without_guidance_is_the_pipeline(sd15):
    off = prompt_pipelines.fair_diffusion(sd15, Labeller(), scale=0., warmup=0)
    on = prompt_pipelines.fair_diffusion(sd15, Labeller(), warmup=0, threshold=.2)
    assert torch.allclose(draw(off, sd15), draw(sd15), atol=1e-4) and (draw(on, sd15) - draw(sd15)).abs().max() > 1e-3


# EFA

def test_efa_switched_off_is_bit_equal_and_leaves_weights_alone(sd15):
    before, plain = weights(sd15), draw(sd15)
    made = attention.debias(sd15, Labeller(), ["a person"], call=call(sd15), images=8, recipe=dict(steps=4, batch_size=4))
    assert not torch.equal(draw(made, sd15), plain)
    assert torch.equal(draw(sd15), plain)  # still installed, nothing drawn
    made.undo()
    assert torch.equal(draw(sd15), plain) and same(before, sd15)


def test_efa_draws_by_the_image_alone(sd15):
    made = attention.debias(sd15, Labeller(), ["a person"], call=call(sd15), images=8, recipe=dict(steps=2, batch_size=4), boost=4.)
    two = draw(made, sd15, prompts=("a person", "a person"))
    one = made(["a person"], [torch.Generator().manual_seed(1)], output_type="pt", **call(sd15)).images
    made.undo()
    assert torch.allclose(one[0], two[1], atol=1e-5)


# A method that does not fit says so

@pytest.mark.parametrize("method, fixture", [(prompt_pipelines.fair_diffusion, "sd3"), (attention.debias, "sd3")])
def test_what_does_not_apply_says_why(method, fixture, request):
    with pytest.raises(DoesNotApply, match="StableDiffusion3Pipeline"):
        method(request.getfixturevalue(fixture), Labeller(), ["a person"])


@pytest.mark.parametrize("method", [uce_pipelines.debias, guidance.debias, prompt_pipelines.project])
def test_a_thing_that_is_no_pipeline_is_refused(method):
    with pytest.raises(DoesNotApply):
        method(object(), Labeller(), ["a person"])


# What each method asks for, solves and reads, by hand

def test_uce_moves_each_concept_by_its_own_gap_from_the_weights_as_they_were(sd3, monkeypatch):
    "Two concepts with opposite labels, two rounds: what is sampled, what is encoded, what every layer is solved for."
    asked, texts, solved = [], [], []
    one, other = [["dark"] * 4, ["light"] * 3 + ["dark"]]
    labels = pd.DataFrame({"tone": one + other, "hue": (["red"] * 2 + ["blue"] * 2) + ["green"] * 4})
    encoded, closed = uce_pipelines._encoded, uce_pipelines.closed_form
    monkeypatch.setattr(uce_pipelines, "sampled", lambda pipe, labeller, prompts, seeds, call: asked.append((prompts, seeds)) or (None, labels))
    monkeypatch.setattr(uce_pipelines, "_encoded", lambda adapter, said: texts.append(said) or encoded(adapter, said))
    monkeypatch.setattr(uce_pipelines, "closed_form", lambda W, C, V, **k: solved.append((W, C, V, k)) or closed(W, C, V, **k))
    table, target = pd.DataFrame({"prompt": ["a person", "a gentle person", "a gentle face"], "trigger": ["", "gentle", "gentle"]}), {"tone": [.25, .75], "hue": [.2, .3, .5]}
    layers = [(m, kind, m.weight.detach().double().numpy()) for m, kind in uce_pipelines.text_layers(sd3)]
    layers = [(m, kind, W.copy()) for m, kind, W in layers]
    run = lambda seed: uce_pipelines.debias(sd3, Labeller(), table, target, seed, call=call(sd3), rounds=2, images=4, step=.5, lam=.2, keep=("a photo",), words={"dark": "poor"}, encode=encode(sd3))
    made = run(1)
    record = made.record
    made.undo()
    gaps = np.array([[-.75, .75, -.3, .3, 0.], [0., 0., .2, -.7, .5]])
    assert texts == [["person", "gentle person", "poor person", "light person", "red person", "green person", "blue person", "a photo"]]
    assert [r["largest gap"] for r in record] == pytest.approx([.75] * 2) and [r["mean gap"] for r in record] == pytest.approx([abs(gaps).mean()] * 2)
    held = encoded(family(sd3, max_sequence_length=0), texts[0])
    length = held[0].shape[1] - held[2].max()
    for k, (W, C, V, options) in enumerate(solved):
        _, kind, W0 = layers[k % 2]
        rows = [uce_pipelines._rows(held, i, kind, length) for i in range(8)]
        state = .5 * gaps * (k // 2 + 1)
        wanted = [rows[i] + sum(w * rows[2 + j] for j, w in enumerate(state[i])) for i in range(2)]
        assert np.array_equal(W, W0) and np.allclose(C, np.concatenate(rows[:2])) and np.allclose(V, np.concatenate(wanted) @ W0.T)
        assert options["lam"] == .2 and np.allclose(options["keep"], rows[7])
    assert len(solved) == 4 and asked[0][0] == ["a person"] * 4 + ["a gentle person", "a gentle face"] * 2
    run(2).undo()
    every = [s for _, seeds in asked for s in seeds]
    assert len(set(every)) == len(every) == 4 * 8  # each round, concept, picture and seed has noise of its own


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([.003, .02, .15]))
def test_a_nudge_is_as_long_as_asked_or_halved(seed, strength):
    rng = np.random.default_rng(seed)
    attributes = {"hue": ATTRIBUTES["hue"]}
    heads = guidance.Heads(attributes, "mean", rng.normal(size=(2, 4)), np.ones((2, 4)), {"hue": rng.normal(size=(2, 3, 4))}, {"hue": rng.normal(size=(2, 3))}, {})
    h = torch.as_tensor(rng.normal(size=(6, 5, 4)), dtype=torch.float32)
    share = ((guidance.nudged(h, 1, heads, targets(None, attributes), strength=strength) - h).norm() / h.norm()).item()
    assert share == 0 or min(abs(share / (strength / 2 ** k) - 1) for k in range(7)) < 1e-3


def test_guidance_begins_at_its_first_step(pipe):
    plain = draw(pipe)
    late, on = (guidance.debias(pipe, Labeller(), ["a person"], {"tone": [.1, .9]}, call=call(pipe), images=12, strength=1., first=first) for first in (2, 1))
    assert torch.equal(draw(late, pipe), plain) and not torch.equal(draw(on, pipe), plain)


def test_under_classifier_free_guidance_the_prompts_half_is_nudged(sd3, monkeypatch):
    "Pipelines put the negative half first; heads are trained on the prompt's half as well."
    guided, seen, taken = call(sd3) | {"guidance_scale": 3.}, [], []
    made = guidance.debias(sd3, Labeller(), ["a person"], {"tone": [.1, .9]}, call=guided, images=4, strength=1.)
    monkeypatch.setattr(guidance, "nudged", lambda h, step, *a, **k: taken.append((step, h.clone())) or h)
    with guidance.tapped(guidance.place(sd3), lambda step, h: seen.append(h.clone())):
        made(["a gentle person"] * 2, [torch.Generator().manual_seed(s) for s in range(2)], output_type="pt", **guided)
    assert [s for s, _ in taken] == [0, 1] and all(torch.equal(t, h[2:]) and not torch.equal(t, h[:2]) for (_, t), h in zip(taken, seen))
    features = guidance._trajectories(sd3, Labeller(), ["a person"], 2, 5, guidance.place(sd3), "mean", guided)[0]
    seen.clear()
    with guidance.tapped(guidance.place(sd3), lambda step, h: seen.append(h.clone())):
        sampled(sd3, Labeller(), ["a person"] * 2, [image_seed(5, "heads", i) for i in range(2)], call=guided)
    assert np.array_equal(features, np.stack([h[2:].mean(1).numpy() for h in seen]))


@pytest.mark.parametrize("ridge", [.1, 10.])
def test_heads_are_sklearns_on_what_was_told_in_the_order_of_the_classes(ridge):
    from sklearn.linear_model import LogisticRegression
    rng = np.random.default_rng(0)
    hue = rng.integers(0, 3, 90)
    features = rng.normal(size=(2, 90, 4)) * [1, 5, .2, 1] + np.eye(4)[hue]
    named = pd.Series([ATTRIBUTES["hue"][k] for k in hue], dtype=object)
    named[::9] = None
    tone = pd.Series(np.where(rng.random(90) + hue / 4 > .7, "light", "dark"))
    heads, told = guidance.train_heads(features, pd.DataFrame({"hue": named, "tone": tone}), ATTRIBUTES, ridge=ridge), named.notna().to_numpy()
    for t in range(2):
        z = (features[t] - features[t].mean(0)) / (features[t].std(0) + 1e-6)
        for a, rows, y in (("hue", told, hue), ("tone", np.ones(90, bool), (tone == "light").to_numpy(int))):
            peer = LogisticRegression(C=1 / ridge, max_iter=2000).fit(z[rows], y[rows])
            logits = z @ heads.weights[a][t].T + heads.biases[a][t]
            p = np.exp(logits - logits.max(1, keepdims=True))
            assert np.allclose(p / p.sum(1, keepdims=True), peer.predict_proba(z), atol=2e-3)
            at = np.flatnonzero(rows)
            apart = LogisticRegression(C=1 / ridge, max_iter=2000).fit(z[np.setdiff1d(at, at[::5])], y[np.setdiff1d(at, at[::5])])
            assert heads.accuracy[a][t] == pytest.approx(apart.score(z[at[::5]], y[at[::5]]), abs=.06)


def test_accuracy_of_heads_is_of_pictures_they_were_not_fitted_to():
    "More features than pictures: what was fitted is known by heart, what was held out is guessed."
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"tone": rng.permutation(["dark", "light"] * 50)})
    heads = guidance.train_heads(rng.normal(size=(3, 100, 400)), table, {"tone": ATTRIBUTES["tone"]}, ridge=1e-3)
    assert (heads.accuracy["tone"] < .85).all()


class Listener:
    "Gives back what it was asked."
    def __call__(self, prompt, generator=None, **k): return SimpleNamespace(images=list(prompt))


def test_injected_words_are_those_that_were_given():
    made = prompt_pipelines.inject(Listener(), Labeller(), target={"tone": [.5, .5]}, words={"dark": "deep"})
    asked = made(["a photo of a person"] * 40, [torch.Generator().manual_seed(s) for s in range(40)]).images
    assert set(asked) == {"a photo of a deep person", "a photo of a light person"}


def test_what_is_projected_out_are_the_last_words_of_the_attributes_in_the_target(pipe, monkeypatch):
    seen, maps = [], prompt_pipelines._maps
    monkeypatch.setattr(prompt_pipelines, "_maps", lambda adapter, pairs, lam: seen.append((pairs, lam)) or maps(adapter, pairs, lam))
    prompt_pipelines.project(pipe, Labeller(), target={"tone": [.5, .5]}, lam=7., words={"dark": "poor"}, encode=encode(pipe))
    assert seen == [([("poor person", "light person")], 7.)]
    adapter, texts = family(pipe, **encode(pipe)), ["poor person", "light person", "gentle person", "a gentle person"]
    told, tok = adapter.encode(texts).positive, pipe.tokenizer
    found = maps(adapter, [texts[:2], texts[2:]], 7.)
    at = [tok(t).input_ids.index(tok.eos_token_id) - 1 for t in texts]
    rows = np.stack([told["encoder_hidden_states"][i, k].double().numpy() for i, k in enumerate(at)])
    assert len(set(at)) > 1 and np.allclose(found["encoder_hidden_states"], projection(rows.reshape(2, 2, -1), lam=7.), atol=1e-5)
    assert set(found) == set(told)


def test_fair_diffusion_goes_towards_the_class_that_injection_would_have_said(monkeypatch):
    "Away from all others; with the settings that were given; the pictures come back in their order."
    class StableDiffusionPipeline: ...
    edits = []

    def edit(prompt, generator, editing_prompt, reverse_editing_direction, **k):
        edits.append(k)
        towards = " ".join(e.removesuffix(" person") for e, away in zip(editing_prompt, reverse_editing_direction) if not away)
        return SimpleNamespace(images=[(p, g.initial_seed(), towards, tuple(editing_prompt)) for p, g in zip(prompt, generator)])
    monkeypatch.setattr(prompt_pipelines, "_semantic", lambda pipe: edit)
    options = dict(scale=3., warmup=2, threshold=.8, momentum=.4, beta=.7)
    made = prompt_pipelines.fair_diffusion(StableDiffusionPipeline(), Labeller(), target={"tone": [.5, .5], "hue": [.2, .3, .5]}, words={"dark": "deep"}, **options)
    noise = lambda: [torch.Generator().manual_seed(s) for s in range(30)]
    images = made([f"{k} person" for k in range(30)], noise(), guidance_scale=1.).images
    said = prompt_pipelines.inject(Listener(), Labeller(), target={"tone": [.5, .5], "hue": [.2, .3, .5]}, words={"dark": "deep"})(["person"] * 30, noise()).images
    assert [i[:2] for i in images] == [(f"{k} person", k) for k in range(30)]
    assert [i[2] + " person" for i in images] == said and len(set(said)) == 6
    assert {i[3] for i in images} == {("deep person", "light person", "red person", "green person", "blue person")}
    assert all(k == dict(edit_guidance_scale=3., edit_warmup_steps=2, edit_threshold=.8, edit_momentum_scale=.4, edit_mom_beta=.7, guidance_scale=1 + 1e-6) for k in edits)


# The comparison

def test_the_strength_is_chosen_by_the_labeller_alone(monkeypatch):
    asked, said = [], {1.: (.2, .9), 2.: (.9, .1), 3.: (.5, .5)}
    monkeypatch.setattr(comparison, "_line", lambda name, world, seed, strength, call, per_prompt, more, draws: asked.append((seed, strength, per_prompt, draws)) or dict(zip(("labeller MGBI", "judge MGBI"), said[strength])) | {"strength": strength})
    lines = comparison.run_method("uce", {}, 4, call={}, strengths=tuple(said), per_prompt=5, final=8)
    assert asked == [(4, 1., 5, 0), (4, 2., 5, 0), (4, 3., 5, 0), (4, 2., 8, 500)]
    assert [(line["role"], line["strength"]) for line in lines] == [("point", 1.), ("point", 2.), ("point", 3.), ("chosen", 2.)]


@pytest.mark.parametrize("broken", [False, True])
def test_a_method_is_set_up_with_its_strength_and_the_reward_and_undone_whatever_happens(monkeypatch, broken):
    seen, undone, judge = [], [], object()

    def method(pipe, labeller, prompts, target, seed, **k):
        seen.append((pipe, labeller, prompts, target, seed, k))
        return Debiased(pipe, "m", restore=lambda: undone.append(pipe))

    def judged(made, world, per_prompt, *, call, seed, draws):
        assert len(undone) == len(seen) - 1  # not before it was looked at
        if broken: raise RuntimeError("no picture")
        return {"labeller MGBI": .5, "seed of pictures": seed, "n": per_prompt}
    monkeypatch.setitem(comparison.METHODS, "m", (method, "knob", (1., 2.), {"a": 1, "b": 2}))
    monkeypatch.setattr(comparison, "judged", judged)
    world = {"labellers": {"labeller": "reward", "judge": judge}, "prompts": "eval", "train": "train", "make": lambda: "pipe"}
    fresh = lambda: comparison.run_method("m", world, 6, call={}, final=9, more={"b": 3})
    if broken:
        with pytest.raises(RuntimeError): fresh()
        assert undone == ["pipe"]
        return
    lines = fresh()
    assert undone == ["pipe"] * 3 and [s[5] for s in seen] == [{"a": 1, "b": 3, "knob": k} for k in (1., 2., 1.)]
    assert all(s[:5] == ("pipe", "reward", "train", None, 6) for s in seen) and lines[-1]["seed of pictures"] == 6 and [line["n"] for line in lines] == [8, 8, 9]


def test_pictures_to_be_judged_have_the_seeds_of_their_prompt():
    from PIL import Image
    asked = []

    def pipe(prompt, generator=None, **k):
        asked.extend(zip(prompt, (g.initial_seed() for g in generator)))
        return SimpleNamespace(images=[Image.new("RGB", (4, 4), (g.initial_seed() % 251, 0, 0)) for g in generator])
    table = pd.DataFrame({"prompt_id": ["p", "q"], "prompt": ["a person", "a face"], "trigger": ["", "x"]})
    for seed in (0, 3):
        asked.clear()
        images, about = comparison.pictures(pipe, table, 3, call={}, seed=seed)
        wanted = [(t, image_seed(seed, p, r)) for p, t in (("p", "a person"), ("q", "a face")) for r in range(3)]
        assert asked == wanted and about["prompt_id"].tolist() == list("pppqqq")
        assert [round(float(x) * 255) for x in images[:, 0, 0, 0]] == [s % 251 for _, s in wanted]


@pytest.mark.parametrize("role, wanted", [("chosen", {"chosen", "absent", ""}), ("point", {"point", "absent", ""}), (None, {"chosen", "point", "absent", ""})])
def test_tables_are_read_by_role(tmp_path, role, wanted):
    comparison.write_lines([{"method": "m", "role": r, "judge MGBI": 1 / 3} for r in ("point", "chosen")], tmp_path / "m.csv")
    comparison.write_lines([{"method": "n", "role": "absent"}], tmp_path / "n.csv")
    comparison.write_lines([{"method": "fair_grpo", "judge MGBI": .5}], tmp_path / "o.csv")
    table = comparison.read_methods(tmp_path, role)
    assert set(table["role"].fillna("")) == wanted and len(table) == len(wanted)
    assert (tmp_path / "m.csv").read_text().splitlines()[1].split(",")[2] == "0.33333"


@pytest.mark.parametrize("withheld", [0, 2, 5])
def test_a_picture_that_a_safety_checker_withheld_stops_what_needs_it(withheld):
    "Also in a later batch; the labeller is not asked."
    from PIL import Image
    made = []

    def pipe(prompt, generator=None, **k):
        flags = [len(made) + i == withheld for i in range(len(prompt))]
        made.extend(prompt)
        return SimpleNamespace(images=[Image.new("RGB", (4, 4))] * len(prompt), nsfw_content_detected=flags)
    with pytest.raises(RuntimeError, match="safety checker withheld"):
        sampled(pipe, SimpleNamespace(label=lambda images: pytest.fail("was asked")), ["a"] * 6, range(6), batch_size=4)
    assert made == ["a"] * 6
    made.clear()
    with pytest.raises(RuntimeError, match="safety checker withheld"):
        comparison.pictures(pipe, pd.DataFrame({"prompt_id": ["p", "q"], "prompt": ["a", "b"], "trigger": ["", ""]}), 3, call={})


# EFA, part by part

@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([None, .3, 2.]))
def test_attention_with_extra_columns_is_its_loop(seed, scale):
    g = torch.Generator().manual_seed(seed)
    q, k, v, extra = (torch.randn(2, 3, n, 4, generator=g) for n in (5, 6, 6, 2))
    scores = torch.randn(2, 5, 2, generator=g)
    scores[0, :, 1] = -torch.inf
    out, taken = attention.extended(q, k, v, scores, extra, scale=scale)
    for b, h, i in np.ndindex(2, 3, 5):
        logits = [float(q[b, h, i] @ k[b, h, j]) * (scale or .5) for j in range(6)] + scores[b, i].tolist()
        w = np.exp(logits) / np.exp(logits).sum()
        assert np.allclose(taken[b, h, i], w[6:], atol=1e-5) and np.allclose(out[b, h, i], w[:6] @ v[b, h].numpy() + w[6:] @ extra[b, h].numpy(), atol=1e-5)


def attributes_of(width=4, side=3, seed=0):
    "Random predictors of two and three classes in one layer, and features of three images."
    torch.manual_seed(seed)
    state = attention.Attributes(torch.randn(5, 6), [2, 3], {"mid.attn2": width})
    for p in state.parameters(): torch.nn.init.normal_(p)
    return state, torch.randn(3, side * side, width)


def test_scores_are_those_of_the_drawn_classes_pixel_by_pixel():
    "Every pixel has its place, every class its network, every image its classes; the boost is added, and what was not drawn is -inf."
    state, z = attributes_of()
    state.drawn, state.boost = torch.tensor([[0, 4], [-1, 2], [1, -1]]), .5
    found = state.scores("mid.attn2", z)
    for i, a in np.ndindex(3, 2):
        c = int(state.drawn[i, a])
        image = z[i].reshape(1, 3, 3, 4).permute(0, 3, 1, 2)
        want = state.predictors["mid|attn2"][c](image).flatten() + .5 if c >= 0 else torch.full((9,), -torch.inf)
        assert torch.allclose(found[i, :, a], want, atol=1e-5)


def test_a_layer_with_drawn_classes_is_attention_over_words_and_class_words():
    from diffusers.models.attention_processor import Attention
    state, z = attributes_of()
    layer, words = Attention(query_dim=4, cross_attention_dim=6, heads=2, dim_head=8).eval(), torch.randn(3, 7, 6)
    processor = attention._Processor("mid.attn2", state, layer.processor)
    plain = layer(z, encoder_hidden_states=words)
    assert torch.equal(processor(layer, z, words), plain)
    state.drawn = torch.tensor([[0, 4], [-1, 2], [-1, -1]])
    found, scores = processor(layer, z, words), state.scores("mid.attn2", z)
    for i in range(3):
        told = torch.cat([words[i], *(state.rows[max(c, 0)][None] for c in state.drawn[i].tolist())])
        q, k, v = (x.unflatten(-1, (2, 8)).transpose(0, 1) for x in (layer.to_q(z[i]), layer.to_k(words[i]), layer.to_v(told)))
        w = torch.cat([q @ k.transpose(1, 2) / 8**.5, scores[i].expand(2, -1, -1)], -1).softmax(-1)
        assert torch.allclose(found[i], layer.to_out[0]((w @ v).transpose(0, 1).flatten(1)), atol=1e-5)
        assert torch.allclose(state.taken[0][i], w[..., 7:].mean(0), atol=1e-6)
    assert torch.allclose(found[2], plain[2], atol=1e-5) and len(state.taken) == 1


@pytest.mark.parametrize("seg, reg", [(0., 0.), (.3, 0.), (0., 2.), (.3, 2.)])
def test_the_loss_of_the_predictors_by_hand(seg, reg):
    "Noise at the drawn step, its error inside the mask, attention outside of it at each layer's size, attention at all."
    torch.manual_seed(1)
    levels, x, m = torch.tensor([.9, .5, .2]), torch.randn(2, 3, 4, 4), torch.zeros(2, 1, 4, 4)
    m[0, :, :2], m[1, :, 1:3, :3] = 1, 1
    step, drawn_ = torch.tensor([2, 0]), torch.tensor([[0], [1]])
    taken, said, state, seen = [torch.rand(2, 16, 1), torch.rand(2, 4, 1)], torch.randn(2, 3, 4, 4), SimpleNamespace(drawn=None, taken=[]), []
    def unet(noisy, t, encoder_hidden_states, return_dict):
        seen.append((noisy, t, encoder_hidden_states, state.drawn))
        state.taken += taken
        return (said,)
    torch.manual_seed(5)
    value, parts = attention._loss(SimpleNamespace(unet=unet), state, levels, seg, reg)(None, {"latents": x, "mask": m, "step": step, "drawn": drawn_, "told": "words"})
    torch.manual_seed(5)
    e, level = torch.randn_like(x), levels[step][:, None, None, None]
    assert torch.allclose(seen[0][0], level**.5 * x + (1 - level)**.5 * e) and seen[0][1] is step and seen[0][2] == "words" and torch.equal(seen[0][3], drawn_) and state.drawn is None
    errors = [(said - e)[i, c, y, z].item()**2 for i, c, y, z in np.ndindex(2, 3, 4, 4) if m[i, 0, y, z]]
    small = m.reshape(2, 2, 2, 2, 2).mean((2, 4)).reshape(2, 4, 1)
    outside = np.mean([((1 - s) * a).mean().item() for s, a in ((m.reshape(2, 16, 1), taken[0]), (small, taken[1]))])
    assert parts == pytest.approx({"inside": np.mean(errors), "outside": outside, "taken": np.mean([a.mean().item() for a in taken])}, abs=1e-5)
    assert value.item() == pytest.approx(parts["inside"] + seg * parts["outside"] + reg * parts["taken"], abs=1e-5)


@pytest.mark.parametrize("scale, doubled", [({}, True), ({"guidance_scale": 3.}, True), ({"guidance_scale": 1.}, False)])
def test_classes_are_drawn_from_the_target_by_the_image_and_for_the_guided_half_only(scale, doubled):
    state, seen = SimpleNamespace(drawn=None, taken=None), []
    call_ = attention._drawing(state, {"tone": np.array([.25, .75]), "hue": np.array([.5, 0, .5])})
    def pipeline(prompt, generator, **arguments): seen.append((state.drawn, arguments))
    call_(pipeline, ["a person"] * 400, [torch.Generator().manual_seed(s) for s in range(400)], **scale)
    codes, arguments = seen[0]
    assert arguments == scale and len(codes) == (800 if doubled else 400) and (state.drawn, state.taken) == (None, [])
    if doubled: assert (codes[:400] == -1).all()
    tone, hue = codes[-400:].T.numpy()
    assert set(tone) == {0, 1} and set(hue) == {2, 4}
    assert binomtest(int((tone == 1).sum()), 400, .75).pvalue > 1e-3 and binomtest(int((hue == 4).sum()), 400, .5).pvalue > 1e-3
    call_(pipeline, "a person", [torch.Generator().manual_seed(77)], **scale)
    assert torch.equal(seen[1][0][-1], codes[-400 + 77])


def test_the_words_of_classes_are_embedded_at_their_last_letter(sd15):
    "One class has a word of its own; words have several tokens."
    state, remove = attention.install(sd15, ATTRIBUTES, words={"red": "rosy"})
    for row, text in zip(state.rows, ("dark", "light", "rosy", "green", "blue"), strict=True):
        tokens = sd15.tokenizer(text, padding="max_length", max_length=sd15.tokenizer.model_max_length, return_tensors="pt")
        with torch.no_grad(): told = sd15.text_encoder(tokens["input_ids"], attention_mask=None)[0][0]
        assert torch.allclose(row, told[int(tokens["attention_mask"].sum()) - 2], atol=1e-5)
    assert state.sizes == [2, 3] and all(len(p) == 5 for p in state.predictors.values())
    remove()


def test_training_images_carry_the_classes_that_their_prompts_name(sd15, monkeypatch):
    "The prompt that is asked names the drawn classes; the one that is told afterwards does not."
    asked = []
    pictures = np.random.default_rng(0).random((10, 32, 32, 3)).astype(np.float32)
    def sampled(pipeline, labeller, prompts, seeds, *, call): return asked.extend(prompts) or (pictures, None)
    monkeypatch.setattr(attention, "sampled", sampled)
    prompts, wanted = ["a person", "a gentle person"], targets(None, ATTRIBUTES)
    half = lambda x: np.repeat((np.arange(32) < 16)[None, :, None] * np.ones((1, 1, 32)), len(x), 0)
    scale = sd15.vae.config.scaling_factor
    sd15.vae.register_to_config(scaling_factor=.7)
    try: data = attention._examples(sd15, Labeller(), prompts, wanted, 10, 3, {"red": "rosy"}, half, {}, ("person",))
    finally: sd15.vae.register_to_config(scaling_factor=scale)
    words = ["dark", "light", "rosy", "green", "blue"]
    for i, (text, (tone, hue)) in enumerate(zip(asked, data["drawn"].tolist(), strict=True)):
        assert tone in (0, 1) and hue in (2, 3, 4)
        assert text.replace(" an ", " a ") == prompts[i % 2].replace("a ", f"a {words[tone]} {words[hue]} ", 1)
    assert len(set(map(tuple, data["drawn"].tolist()))) > 1
    x = torch.as_tensor(pictures).permute(0, 3, 1, 2) * 2 - 1
    with torch.no_grad(): latents = sd15.vae.encode(x).latent_dist.mean * .7
    assert torch.allclose(data["latents"], latents, atol=1e-4) and torch.equal(data["told"][0], data["told"][2]) and not torch.equal(data["told"][0], data["told"][1])
    side = latents.shape[-1]
    assert torch.equal(data["mask"][:, 0], (torch.arange(side) < side / 2).float()[None, :, None].expand(10, side, side))
