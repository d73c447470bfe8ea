"Sampling with log-probabilities: acceptance cases 1, 3, 4, 5, 10, 16 of the parent projects' issues, rows D03 and D04, and the sampler's laws."
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_sd3 import sd3, sd15
from torch.distributions import Independent, Normal, kl_divergence

from fairical_nb.families import FAMILIES, Conditions, Family, Schedule, family
from fairical_nb.rollout import ddim_step, flow_sde_step, gaussian_kl, image_seeds, rollout, transition, velocity_kl

torch.set_num_threads(1)
SIGMAS = [1., .75, .5, .25]
PROMPTS = ["ab", "ab", "cd", "cd"]


@pytest.fixture(scope="module")
def flow():
    return family(sd3(), max_sequence_length=0)


@pytest.fixture(scope="module")
def ddim():
    return family(sd15())


@pytest.fixture(scope="module")
def walk(flow):
    return rollout(flow, PROMPTS, image_seeds(0, 0, [0, 0, 1, 1], [0, 1, 0, 1]), sigmas=SIGMAS)


def generators(seeds):
    return [torch.Generator().manual_seed(s) for s in seeds]


def tensors(seed, n=3, shape=(2, 3, 4)):
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).unbind(0)


# the kernels

@settings(max_examples=50)
@given(st.floats(.05, .99), st.floats(.01, .95), st.floats(.05, 2), st.integers(0, 99))
def test_flow_log_probability_is_that_of_torchs_gaussian(s, share, a, seed):
    x, v, z = tensors(seed)
    x_next, mean, std, logp = flow_sde_step(x, v, s, s * share, z, a=a, reduce="sum")
    dt = s * share - s
    g2 = a ** 2 * s / (1 - s)
    assert torch.allclose(mean, x * (1 + g2 * dt / (2 * s)) + v * (1 + g2 * (1 - s) / (2 * s)) * dt, rtol=1e-12, atol=1e-12)
    assert torch.allclose(logp, Independent(Normal(mean, std), 2).log_prob(x_next), rtol=1e-9)
    assert math.isclose(std.item(), math.sqrt(g2 * -dt), rel_tol=1e-12)


@settings(max_examples=50)
@given(st.floats(.01, .9), st.floats(.05, .9), st.floats(.05, 1), st.integers(0, 99))
def test_ddim_log_probability_is_that_of_torchs_gaussian(alpha, share, eta, seed):
    x, e, z = tensors(seed)
    x_next, mean, std, logp = ddim_step(x, e, alpha, alpha + share * (1 - alpha), z, eta=eta)
    assert torch.allclose(logp, Normal(mean, std).log_prob(x_next).mean((1, 2)), rtol=1e-9)
    assert torch.equal(ddim_step(x, e, alpha, alpha + share * (1 - alpha), None, eta=eta, x_next=x_next)[3], logp)


@settings(max_examples=30)
@given(st.floats(.01, 3), st.floats(-.5, -.001), st.integers(0, 99))
def test_case06_three_kl_forms_against_torch_distributions(std, dt, seed):
    a, b, _ = tensors(seed)
    judged = lambda s: kl_divergence(Independent(Normal(a, s), 2), Independent(Normal(b, s), 2))
    assert torch.allclose(gaussian_kl(a, b, std, reduce="sum"), judged(std), rtol=1e-6)
    assert torch.allclose(gaussian_kl(a, b, std, form="flow_grpo", dt=dt, reduce="sum"), judged(std / abs(dt) ** .5), rtol=1e-6)
    assert torch.allclose(velocity_kl(a, b, reduce="sum"), judged(1.), rtol=1e-9)


def test_the_sample_is_a_constant_in_its_log_probability():
    x, v, z = tensors(0)
    v.requires_grad_()
    x_next, mean, std, logp = flow_sde_step(x, v, .6, .5, z)
    assert not x_next.requires_grad
    logp.sum().backward()
    slope = 1 + (.49 * .6 / .4) * .4 / 1.2
    assert torch.allclose(v.grad, (z / std) * slope * -.1 / 12, rtol=1e-9)


@pytest.mark.parametrize("a", [.3, .7, 1.])
def test_marginal_variance_is_kept_as_steps_grow(a):
    "A Gaussian target with variance .25 and its exact velocity: the variance that arrives goes to .25."
    one, off = torch.ones(1, 1, dtype=torch.float64), []
    for steps in (16, 64, 256, 1024):
        levels, w = np.linspace(1, 0, steps + 1), 1.
        for s, t in zip(levels, levels[1:]):
            v = (s - (1 - s) * .25) / ((1 - s) ** 2 * .25 + s ** 2) * one
            _, m, std, _ = flow_sde_step(one, v, s, t, 0 * one, a=a)
            w = m.item() ** 2 * w + std.item() ** 2
        off.append(abs(w - .25))
    assert off[-1] < .002 and off[-1] < off[0]


def test_half_precision_is_raised_and_float64_stays():
    x, v, z = tensors(1)
    for dtype, raised in ((torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)):
        x_next, mean, std, logp = flow_sde_step(x.to(dtype), v.to(dtype), .6, .5, z.to(dtype))
        assert x_next.dtype == dtype and mean.dtype == logp.dtype == raised
        again = flow_sde_step(x.to(dtype), v.to(dtype), .6, .5, None, x_next=x_next)[3]
        assert torch.equal(again, logp)  # the rounded sample is what the density was taken of
        assert gaussian_kl(x.to(dtype), v.to(dtype), .5).dtype == raised


def test_a_level_per_image_is_the_level_of_that_image():
    x, v, z = tensors(2, shape=(3, 2, 2))
    s, t = torch.tensor([.9, .6, .3], dtype=torch.float64), torch.tensor([.8, .4, .1], dtype=torch.float64)
    both = flow_sde_step(x, v, s, t, z)
    for i in range(3):
        single = flow_sde_step(x[i:i + 1], v[i:i + 1], s[i].item(), t[i].item(), z[i:i + 1])
        assert torch.allclose(both[0][i:i + 1], single[0], rtol=1e-12) and torch.allclose(both[3][i:i + 1], single[3], rtol=1e-12)


@pytest.mark.parametrize("wrong", [
    dict(sigma=.4, sigma_next=.4), dict(sigma=1.2), dict(sigma_next=-.1), dict(a=-1), dict(a=math.nan), dict(reduce="max"), dict(sigma=1., sigma_cap=1.), dict(x_next=torch.zeros(1)), dict(sigma=torch.tensor([.5, .6, .7]))])
def test_wrong_steps_raise(wrong):
    x, v, z = tensors(0)
    given = dict(sigma=.6, sigma_next=.5) | wrong
    with pytest.raises(ValueError):
        flow_sde_step(x, v, given.pop("sigma"), given.pop("sigma_next"), z, **given)


# rollouts

def test_case01_first_pass_has_ratio_one_in_the_same_batch(flow, walk):
    logp = torch.stack([transition(flow, walk, t)[0] for t in walk.noisy])
    assert torch.equal(logp, walk.logp[:len(walk.noisy)])  # with the graph of the gradient, too


def test_D03_ratio_is_one_before_any_update_in_every_family(flow, ddim, walk):
    path = rollout(ddim, PROMPTS, [1, 2, 3, 4], steps=4)
    for adapter, trajectory in ((flow, walk), (ddim, path)):
        for t in trajectory.noisy:
            ratio = torch.exp(transition(adapter, trajectory, t)[0] - trajectory.logp[t])
            assert (ratio - 1).abs().max() < 1e-6


def test_D04_ratio_does_not_depend_on_the_batch_split(flow, walk):
    for t in walk.noisy:
        split = torch.cat([transition(flow, walk, t, index)[0] for index in ([0, 1], [2], [3])])
        assert (torch.exp(split - walk.logp[t]) - 1).abs().max() < 1e-6
    parts = rollout(flow, PROMPTS, walk.seeds, sigmas=SIGMAS, batch=2)
    same = torch.cat([transition(flow, parts, 1, index)[0] for index in ([0, 1], [2, 3])])
    assert torch.equal(same, parts.logp[1])  # the split of sampling, kept in training, is exact
    assert torch.allclose(parts.latents, walk.latents, atol=1e-5)


def test_case01_bf16_rollout_with_fp32_recompute_is_refused(flow, walk):
    half = family(flow.pipe, max_sequence_length=0, autocast=torch.bfloat16)
    with pytest.raises(ValueError, match="sampled in float32.*now computes in float32, autocast bfloat16"):
        transition(half, walk, 0)
    rounded = rollout(half, PROMPTS, walk.seeds, sigmas=SIGMAS)
    assert torch.equal(transition(half, rounded, 0)[0], rounded.logp[0])
    with pytest.raises(ValueError, match="autocast bfloat16, but the network now computes in float32"):
        transition(flow, rounded, 0)


def test_case03_trajectory_holds_exactly_the_tensors_the_network_saw(flow):
    seen = []
    hook = flow.network.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs["hidden_states"]), with_kwargs=True)
    walk = rollout(flow, PROMPTS, [1, 2, 3, 4], sigmas=SIGMAS)
    hook.remove()
    assert len(seen) == 4
    assert all(torch.equal(x, y) and x.dtype == y.dtype for x, y in zip(seen, walk.latents))


@pytest.mark.parametrize("step", [875., torch.tensor(1.), True, "1", None, 4, -1])
def test_case03_steps_are_integer_indices(flow, walk, step):
    with pytest.raises(ValueError, match="step must"):
        transition(flow, walk, step)
    assert torch.equal(transition(flow, walk, np.int64(1))[0], walk.logp[1])


def test_case04_non_finite_stops_with_the_step_named(flow):
    class Broken(type(flow)):
        def ask(self, network, latents, time, told):
            out = super().ask(network, latents, time, told)
            return out * torch.nan if abs(time - 500) < 1 else out
    with pytest.raises(ValueError, match="the prediction of step 2 is not finite in 4 of 4"):
        rollout(Broken(flow.pipe, max_sequence_length=0), PROMPTS, [1, 2, 3, 4], sigmas=SIGMAS)


def test_case05_steps_without_noise_are_refused(flow, walk, ddim):
    with pytest.raises(ValueError, match=r"step 3 had no noise .* train on \[0, 1, 2\]"):
        transition(flow, walk, 3)
    still = rollout(flow, PROMPTS, [1, 2, 3, 4], sigmas=SIGMAS, level=0.)
    assert still.noisy == [] and torch.isnan(still.logp).all()
    closed = family(sd15(set_alpha_to_one=True))
    assert rollout(closed, PROMPTS, [1, 2, 3, 4], steps=4, still=0).noisy == [0, 1, 2]  # alpha-bar 1 at the end: no spread there
    assert rollout(ddim, PROMPTS, [1, 2, 3, 4], steps=4, still=0).noisy == [0, 1, 2, 3]


def test_case10_one_seed_per_image(flow, walk):
    assert len(set(image_seeds(0, 0, np.repeat(range(20), 50), list(range(50)) * 20))) == 1000
    assert len({image_seeds(*w[:2], [w[2]], [w[3]])[0] for w in np.ndindex(4, 4, 4, 4)}) == 256
    start = walk.latents[0].flatten(1)
    assert all(not torch.equal(start[i], start[j]) for i in range(4) for j in range(i))
    for i in range(4):
        alone = rollout(flow, PROMPTS[i:i + 1], walk.seeds[i:i + 1], sigmas=SIGMAS)
        assert torch.equal(alone.latents[0, 0], walk.latents[0, i])
        assert torch.allclose(alone.latents[:, 0], walk.latents[:, i], atol=1e-5)
        assert torch.allclose(alone.images[0], walk.images[i], atol=1e-5)
    again = rollout(flow, PROMPTS, walk.seeds, sigmas=SIGMAS)
    assert torch.equal(again.latents, walk.latents) and torch.equal(again.images, walk.images)
    with pytest.raises(ValueError, match="two pictures have one seed"):
        rollout(flow, PROMPTS, [1, 2, 3, 1], sigmas=SIGMAS)


def test_case16_another_family_needs_six_methods_only():
    "A pixel-space world of two numbers: no diffusers, no autoencoder."
    class Toy:
        level, precision = .7, "float64"
        def encode(self, prompts, *, guidance=False, negative=""): return Conditions({"at": torch.tensor([[len(p)] for p in prompts], dtype=torch.float64)})
        def start(self, generators): return torch.cat([torch.randn(1, 2, 1, 1, generator=g, dtype=torch.float64) for g in generators])
        def schedule(self, steps=None, sigmas=None):
            levels = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
            return Schedule(levels[:-1], levels[:-1], levels[1:])
        def predict(self, latents, time, conditions, *, guidance=1., network=None): return latents - conditions.positive["at"][..., None, None]
        def step(self, x, out, now, then, noise, *, level, **options): return flow_sde_step(x, out, now, then, noise, a=level, **options)
        def decode(self, latents, *, batch=64): return latents
    toy = Toy()
    walk = rollout(toy, ["a", "bb"], [1, 2], steps=5)
    assert torch.equal(transition(toy, walk, 2)[0], walk.logp[2]) and family(toy) is toy


def test_case16_pipelines_find_their_family(flow, ddim):
    assert type(flow) is FAMILIES["StableDiffusion3Pipeline"] and type(ddim) is FAMILIES["StableDiffusionPipeline"]
    Child = type("Child", (type(flow.pipe),), {})
    child = Child(**flow.pipe.components)
    assert isinstance(family(child), Family)
    with pytest.raises(ValueError, match="no adapter for a dict"):
        family({})


@pytest.mark.parametrize("guidance", [1., 4.5])
def test_without_noise_sd3_equals_its_own_pipeline_bit_for_bit(flow, guidance):
    told = flow.encode(PROMPTS, guidance=guidance > 1)
    ours = rollout(flow, told, [1, 2, 3, 4], sigmas=SIGMAS, level=0., guidance=guidance)
    keys = {"encoder_hidden_states": "prompt_embeds", "pooled_projections": "pooled_prompt_embeds"}
    embeds = {keys[k]: v for k, v in told.positive.items()} | ({"negative_" + keys[k]: v for k, v in told.negative.items()} if guidance > 1 else {})
    call = dict(generator=generators([1, 2, 3, 4]), sigmas=SIGMAS, num_inference_steps=4, guidance_scale=guidance, **embeds)
    assert torch.equal(ours.latents[-1], flow.pipe(output_type="latent", **call).images)
    one = flow.pipe("ab", generator=generators([1]), sigmas=SIGMAS, num_inference_steps=4, guidance_scale=guidance, max_sequence_length=0, output_type="pt").images
    alone = rollout(flow, ["ab"], [1], sigmas=SIGMAS, level=0., guidance=guidance)
    assert torch.equal(alone.images, one)


@pytest.mark.parametrize("guidance", [1., 4.5])
def test_without_noise_sd15_equals_its_own_pipeline_bit_for_bit(ddim, guidance):
    ours = rollout(ddim, ["ab"], [7], steps=4, level=0., guidance=guidance)
    assert torch.equal(ours.images, ddim.pipe("ab", generator=generators([7]), num_inference_steps=4, guidance_scale=guidance, output_type="pt").images)


def test_shift_of_the_scheduler_is_respected(flow):
    from diffusers import FlowMatchEulerDiscreteScheduler
    plain = flow.pipe.scheduler
    try:
        flow.pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.)
        ours = rollout(flow, ["ab"], [1], sigmas=SIGMAS, level=0.)
        theirs = flow.pipe("ab", generator=generators([1]), sigmas=SIGMAS, num_inference_steps=4, guidance_scale=1., max_sequence_length=0, output_type="latent").images
    finally:
        flow.pipe.scheduler = plain
    assert torch.equal(ours.latents[-1], theirs) and ours.schedule.now[1] > .85


def test_prompts_are_embedded_once(flow):
    calls, encode = [], flow.pipe.encode_prompt
    try:
        flow.pipe.encode_prompt = lambda p, *a, **k: (calls.append(p), encode(p, *a, **k))[1]
        rollout(flow, PROMPTS * 2, list(range(8)), sigmas=SIGMAS, decode=False)
    finally:
        flow.pipe.encode_prompt = encode
    assert calls == ["ab", "cd"]


def test_guidance_flows_through_training(flow):
    walk = rollout(flow, PROMPTS, [1, 2, 3, 4], sigmas=SIGMAS, guidance=4.5, decode=False)
    assert torch.equal(transition(flow, walk, 1)[0], walk.logp[1])
    with pytest.raises(ValueError, match="needs the negative prompt"):
        flow.predict(walk.latents[0], walk.schedule.times[0], flow.encode(PROMPTS), guidance=4.5)


@pytest.mark.parametrize("scheduler", [dict(thresholding=True), dict(prediction_type="v_prediction")])
def test_schedulers_that_are_not_the_gaussian_are_refused(scheduler):
    with pytest.raises(ValueError, match="clip_sample and thresholding off and prediction_type 'epsilon'"):
        rollout(family(sd15(**scheduler)), ["ab"], [1], steps=2)


def test_bad_input_is_refused_before_sampling(flow):
    for prompts, seeds, words in (([], [], "no prompt"), (["a"], [1, 2], "one seed per picture")):
        with pytest.raises(ValueError, match=words):
            rollout(flow, prompts, seeds, sigmas=SIGMAS)
    with pytest.raises(ValueError, match="still must lie between"):
        rollout(flow, ["a"], [1], sigmas=SIGMAS, still=5)


# what a walk is made of

UNEVEN = [1., .9, .6, .2]


@pytest.mark.parametrize("level, cap", [(None, None), (.3, None), (.3, .96)])
def test_the_spread_of_each_step_is_that_of_its_two_levels_and_of_the_asked_strength(flow, ddim, level, cap):
    "By hand from the schedule, with steps of unequal length: Flow-GRPO's a, DDIM's eta, the usual one of the family where none is asked."
    walk = rollout(flow, PROMPTS[:2], [1, 2], sigmas=UNEVEN, level=level, sigma_cap=cap, decode=False)
    levels = [*UNEVEN, 0.]
    for k, (s, then) in enumerate(zip(levels[:3], levels[1:])):
        below = (then if cap is None else cap) if s == 1 else s
        assert walk.std[k].item() == pytest.approx((.7 if level is None else level) * math.sqrt(s / (1 - below) * (s - then)), rel=1e-5)
    path, eta = rollout(ddim, PROMPTS[:2], [1, 2], steps=4, level=level, decode=False), 1. if level is None else level
    now, then = path.schedule.now[:3].double(), path.schedule.then[:3].double()
    assert torch.allclose(path.std[:3].double(), eta * ((1 - then) / (1 - now) * (1 - now / then)).sqrt(), rtol=1e-4)
    assert walk.std[3] == path.std[3] == 0


def test_residuals_of_a_walk_are_standard_and_independent(flow, ddim):
    "Of each other, of the start, and from picture to picture: what is left of a step beyond its mean is fresh noise."
    for adapter, steps in ((flow, dict(sigmas=UNEVEN)), (ddim, dict(steps=4))):
        walk = rollout(adapter, ["ab"] * 8, list(range(8)), decode=False, **steps)
        with torch.no_grad():
            z = torch.stack([walk.latents[0], *((walk.latents[t + 1] - transition(adapter, walk, t)[1]) / walk.std[t] for t in walk.noisy)]).flatten(2).double()
        n = z.shape[-1]
        every = z.flatten(0, 1)
        assert (every.mean(1).abs() < 4.5 / n ** .5).all() and (every.var(1) - 1).abs().max() < 4.5 * (2 / n) ** .5
        assert (torch.corrcoef(every) - torch.eye(len(every))).abs().max() < 5 / n ** .5


def test_the_sum_is_the_mean_times_the_number_of_dimensions_in_rollout_and_transition(flow):
    mean, whole = (rollout(flow, PROMPTS, [1, 2, 3, 4], sigmas=UNEVEN, reduce=r, decode=False) for r in ("mean", "sum"))
    assert torch.allclose(whole.logp[:3], 256 * mean.logp[:3], rtol=1e-5)
    assert torch.allclose(transition(flow, whole, 1)[0], 256 * transition(flow, mean, 1)[0], rtol=1e-5)


@pytest.mark.parametrize("at, size, level, words", [(1, torch.nan, .7, "the prediction of step 1"), (1, 3e38, 30., "the result of step 1")])
def test_case04_whatever_is_not_finite_in_sampling_is_named(flow, at, size, level, words):
    class Broken(type(flow)):
        def ask(self, network, latents, time, told):
            out = super().ask(network, latents, time, told)
            return out.sign() * size if abs(time - 1000 * SIGMAS[at]) < 1 else out
    with pytest.raises(ValueError, match=f"{words} is not finite"):
        rollout(Broken(flow.pipe, max_sequence_length=0), PROMPTS, [1, 2, 3, 4], sigmas=SIGMAS, level=level, decode=False)


def test_case04_a_log_probability_that_is_not_finite_is_named(flow, walk):
    "One picture of four is spoilt, and counted."
    def network(**told):
        out = flow.network(**told)[0]
        return (torch.cat([out[:3], out[3:] * torch.nan]),)
    with pytest.raises(ValueError, match="the log-probability of step 2 is not finite in 1 of 4"):
        transition(flow, walk, 2, network=network)


def test_seeds_are_numbers_that_every_generator_takes():
    seeds = image_seeds(3, 1, [0] * 500, range(500))
    assert all(0 <= s < 2 ** 63 for s in seeds) and max(seeds) > 2 ** 62


@pytest.mark.parametrize("negative", ["", "cd"])
def test_the_negative_half_is_the_embedding_of_the_negative_prompt(flow, ddim, negative):
    for adapter in (flow, ddim):
        told, alone = adapter.encode(["ab", "ef"], guidance=True, negative=negative), adapter.encode([negative])
        for name, found in told.negative.items():
            assert torch.equal(found, alone.positive[name].expand_as(found))
        assert torch.equal(told.positive["encoder_hidden_states"], adapter.encode(["ab", "ef"]).positive["encoder_hidden_states"])


def test_pictures_have_the_size_that_is_asked_for(flow, ddim):
    for pipe, steps in ((flow.pipe, dict(sigmas=SIGMAS)), (ddim.pipe, dict(steps=2))):
        walk = rollout(family(pipe, size=16, **({"max_sequence_length": 0} if "sigmas" in steps else {})), ["ab"], [1], **steps)
        assert walk.latents.shape[1:] == (1, 4, 4, 4) and walk.images.shape == (1, 3, 16, 16)


def test_dynamic_shifting_takes_mu():
    "By hand: sigma' = e^mu / (e^mu + 1 / sigma - 1)."
    from diffusers import FlowMatchEulerDiscreteScheduler
    pipe = sd3()
    pipe.scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    adapter = family(pipe, max_sequence_length=0, mu=.8)
    found = adapter.schedule(sigmas=UNEVEN)
    assert found.now.tolist() == pytest.approx([math.exp(.8) / (math.exp(.8) + 1 / s - 1) for s in UNEVEN], rel=1e-6)
    assert len(adapter.encode(["ab"])) == 1  # mu is not for the text encoders


@pytest.mark.parametrize("make", [sd3, sd15])
def test_pictures_are_the_pipelines_own_whatever_the_autoencoders_scale_and_shift(make):
    pipe = make()
    pipe.vae.register_to_config(scaling_factor=.4, shift_factor=.3)
    flows = make is sd3
    ours = rollout(family(pipe, **({"max_sequence_length": 0} if flows else {})), ["ab"], [7], level=0., **({"sigmas": SIGMAS} if flows else {"steps": 4}))
    theirs = pipe("ab", generator=generators([7]), num_inference_steps=4, guidance_scale=1., output_type="pt", **({"sigmas": SIGMAS, "max_sequence_length": 0} if flows else {})).images
    assert torch.equal(ours.images, theirs)
