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

from fairical_nb import attention, guidance, prompt_pipelines, uce_pipelines  # noqa: E402
from fairical_nb.methods import Debiased, DoesNotApply, shares, targets  # noqa: E402
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
