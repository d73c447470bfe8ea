"Fair-GRPO: acceptance cases 2, 6-9, 11-15, 17, 18 of the parent projects' issues, rows D01, D03 (logging), D06, and the method's laws."
import dataclasses
import json
import math
import warnings
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings as bounded
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tiny_sd3 import sd3, sd15

from fairical_nb import grpo_trainer, grpo_verdict
from fairical_nb.adapters import FILE, add_adapter, load_adapter, save_adapter, without_adapter
from fairical_nb.balance import DeadSignalWarning, class_rewards, dead, soft_rewards
from fairical_nb.fairgrpo import advantages, codes, divergence, gdpo, group_rewards, history_advantages, judged, policy_loss, rewards, step_loss
from fairical_nb.families import family
from fairical_nb.grpo_settings import PRESETS, Settings, checked, settings
from fairical_nb.grpo_trainer import drawn_prompts, drawn_steps, past_limit, start, train, update
from fairical_nb.grpo_verdict import LIMITS, Examination, examine, hacking, measures, same, sure
from fairical_nb.rollout import image_seeds, rollout, transition

torch.set_num_threads(1)
SIGMAS = (1., .75, .5, .25)
PROMPTS = pd.DataFrame({"prompt_id": ["a", "b", "c"], "prompt": ["ab", "cd", "ef"], "trigger": ["", "x", "y"]})
SMALL = settings("tiny", groups=2, pictures=4, batch=8, rank=2, steps=4, sigmas=SIGMAS, updates=3, time_steps=2, lr=5e-4) # pinned: what is tested must not move with the preset
ATTRIBUTES = {"gender": ("female", "male"), "age": ("young", "middle", "elderly")}


class Pixels:
    "Reads brightness and contrast; remembers what it was given."
    attributes = ATTRIBUTES

    def __init__(self):
        self.seen = []

    def label(self, images, *, probabilities=False):
        self.seen.append(images)
        bright, contrast = images.mean((1, 2, 3)).numpy(), images.std((1, 2, 3)).numpy()
        p = 1 / (1 + np.exp(-50 * (bright - np.median(bright))))
        table = pd.DataFrame({"gender": np.where(p > .5, "female", "male"), "age": [ATTRIBUTES["age"][int(1e4 * c) % 3] for c in contrast]})
        if not probabilities:
            return table
        return table.assign(**{"gender=female": p, "gender=male": 1 - p}, **{f"age={c}": (table["age"] == c).astype(float) for c in ATTRIBUTES["age"]})


@pytest.fixture
def pipe():
    return sd3()


# the reward

def test_reward_is_the_slope_of_the_summed_binary_entropies():
    p, step = np.array([.45, .3, .15, .1]), 1e-6
    entropies = lambda p: -(p * np.log(p) + (1 - p) * np.log1p(-p)).sum()
    slope = [(entropies(p + step * e) - entropies(p - step * e)) / (2 * step) for e in np.eye(4)]
    assert np.allclose(slope, class_rewards(1e7 * p, center=False, clip=None), atol=1e-5)


counts = st.lists(st.integers(0, 12), min_size=2, max_size=5).filter(lambda c: sum(c) >= 2)


@bounded(max_examples=50)
@given(counts)
def test_centring_changes_advantages_only_through_the_clip(n):
    labels = np.repeat(np.arange(len(n)), n)[:, None]
    plain, centred = (rewards(labels, [len(n)], center=c, clip=None) for c in (False, True))
    assert np.allclose(advantages([plain], clip=99), advantages([centred], clip=99), atol=1e-6)


@bounded(max_examples=50)
@given(counts, st.sampled_from([1e-6, .5, 1.]))
def test_the_rarer_class_never_earns_less(n, eps):
    r = class_rewards(n, eps=eps)
    order = np.argsort(n)
    assert (np.diff(r[order]) <= 1e-12).all()


@bounded(max_examples=50)
@given(st.integers(2, 12), st.sampled_from([[2], [2, 3], [2, 3, 5]]), st.integers(0, 999), st.booleans())
def test_rewards_against_a_loop_that_counts(N, classes, seed, alone):
    y = np.stack([np.random.default_rng(seed).integers(0, k, N) for k in classes], 1)
    found = np.zeros(N)
    for i in range(N):
        for a, K in enumerate(classes):
            others = [v for j, v in enumerate(y[:, a]) if j != i or not alone]
            r = [np.log((len(others) - others.count(k) + .5) / (others.count(k) + .5)) for k in range(K)]
            found[i] += np.clip(r[y[i, a]] - np.mean(r), -5, 5)
    assert np.allclose(rewards(y, classes, leave_one_out=alone), found, atol=1e-12)


def test_dead_groups_by_eps_and_the_warning():
    group = np.repeat([0, 1], [15, 5])[:, None]
    assert dead(rewards(group, [5], eps=1e-6)) and not dead(rewards(group, [5]))
    draws = np.random.default_rng(0).multinomial(20, [.7, .2, .05, .03, .02], 500)
    share = {eps: np.mean([np.ptp(class_rewards(c, eps=eps)[c > 0]) == 0 for c in draws if (c > 0).sum() > 1]) for eps in (1e-6, .5)}
    assert share[1e-6] > .1 and share[.5] == 0
    with pytest.warns(DeadSignalWarning, match="eps = 1e-06"):
        checked(settings("literal"), pd.concat([PROMPTS] * 3), ATTRIBUTES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(settings("paper"), pd.concat([PROMPTS] * 3), ATTRIBUTES)


def test_thirty_pictures_can_be_balanced_twenty_cannot():
    even = lambda N: [np.arange(N) % k for k in (2, 3, 5)]
    assert np.allclose(rewards(np.stack(even(30), 1), [2, 3, 5]), 0, atol=1e-12)
    assert np.ptp(rewards(np.stack(even(20), 1), [2, 3, 5])) > .1
    assert "multiples of 30" in checked(SMALL, PROMPTS, ATTRIBUTES) and "multiples" not in checked(settings("paper", groups=3, batch=30, accumulate=1), PROMPTS, ATTRIBUTES)


def test_target_is_where_nothing_is_earned():
    q = [.2, .5, .3]
    assert np.allclose(class_rewards([20, 50, 30], target=q, eps=1e-9), 0, atol=1e-6)
    r = class_rewards([40, 30, 30], target=q)
    assert r[0] < 0 < r[1]


def test_soft_counts_of_certain_labels_are_counts():
    y = np.random.default_rng(0).integers(0, 3, (9, 1))
    assert np.allclose(soft_rewards([np.eye(3)[y[:, 0]]]), rewards(y, [3]))


def test_undetermined_pictures_are_counted_by_name_only():
    y = np.array([[0], [0], [1], [-1]])
    with pytest.raises(ValueError, match="undetermined= decides about -1"):
        rewards(y, [2])
    known = rewards(y[:3], [2])
    assert np.allclose(rewards(y, [2], undetermined="zero"), [*known, 0])
    assert np.allclose(rewards(y, [2], undetermined="lowest"), [*known, known.min()])


@pytest.mark.parametrize("wrong, words", [
    (dict(labels=[[0]]), "at least two pictures"), (dict(labels=[[0], [2]]), "has label 2 in attribute 0"), (dict(eps=0), "eps must be positive"), (dict(weights=[1, 1]), "one per attribute"),
    (dict(weights=[-1]), "weights must be finite and >= 0"), (dict(target={1: [.5, .5]}), "target names attribute 1"), (dict(target={0: [.5, .6]}), "sum to 1"), (dict(labels=[[.5], [1.]]), "whole numbers"), (dict(undetermined="no"), "undetermined must be")])
def test_wrong_rewards_raise(wrong, words):
    with pytest.raises(ValueError, match=words):
        rewards(wrong.pop("labels", [[0], [1]]), [2], **wrong)


# advantages

@bounded(max_examples=50)
@given(arrays(float, st.tuples(st.integers(1, 4), st.integers(2, 8)), elements=st.floats(-20, 20)))
def test_equal_rewards_give_exactly_zero_and_rows_sum_to_zero(R):
    R[0] = R[0, 0]
    before = R.copy()
    for A in (advantages(R), advantages(R, norm="global"), advantages(R, norm="none"), gdpo(R[..., None]), history_advantages(R, {}, range(len(R)))[0]):
        assert (A[0] == 0).all() and np.isfinite(A).all() and np.abs(A).max() <= 5
    assert np.allclose(advantages(R, norm="none", clip=1e9).sum(1), 0, atol=1e-9) and np.array_equal(R, before)


def test_equal_float32_rewards_have_a_spread_that_must_not_be_divided_by():
    R = np.full((1, 7), .1, dtype=np.float32)
    assert (advantages(R) == 0).all() and (advantages(R, eps=0.) == 0).all()


def test_D06_statistics_per_prompt_not_over_the_batch():
    "Two prompts whose rewards differ a hundredfold in scale: each is measured by its own spread; over the batch the small one vanishes."
    R = np.array([[1., 2, 3, 4], [.01, .02, .03, .04]])
    own, batch = advantages(R), advantages(R, norm="global")
    assert np.allclose(own[0], own[1], atol=1e-3) and np.abs(batch[1]).max() < .02 < np.abs(batch[0]).max()
    A, history = history_advantages(R, {}, [0, 1], steps=[2, 5])
    assert A.shape == (2, 2, 4) and set(history) == {(0, 2), (0, 5), (1, 2), (1, 5)}
    assert np.allclose(A[0], own, atol=1e-6)  # a first visit is its own past


def test_D06_fallback_below_min_count_is_the_groups_own_statistics():
    past = {(0, -1): (4, 100., 1.)}
    R = np.array([[1., 2, 3, 4]])
    assert np.allclose(history_advantages(R, past, [0], min_count=9)[0], advantages(R))
    assert (history_advantages(R, past, [0], min_count=8)[0] < -.9).all()


def test_history_is_pooled_moments_and_pure():
    rng, history, seen = np.random.default_rng(0), {}, []
    for _ in range(5):
        R = rng.normal(size=(1, 6))
        kept = dict(history)
        A, later = history_advantages(R, history, [3])
        assert history == kept
        history, seen = later, [*seen, R]
    everything = np.concatenate(seen, 1)
    assert np.allclose(history[3, -1], (30, everything.mean(), everything.var()))
    assert np.allclose(A, (R - everything.mean()) / (everything.std() + 1e-6))


def test_statistics_by_time_step_differ_only_when_time_steps_are_drawn():
    rng = np.random.default_rng(1)
    visits = [rng.normal(k, 1, (1, 5)) for k in range(4)]
    for steps, differ in (([[0, 1, 2]] * 4, False), ([[0], [1], [0], [2]], True)):
        one, each, gaps = {}, {}, []
        for R, s in zip(visits, steps):
            a, one = history_advantages(R, one, [0])
            b, each = history_advantages(R, each, [0], steps=s)
            gaps.append(np.abs(b - a).max())
        assert (max(gaps) > .1) == differ


def test_case18_gdpo_normalises_each_attribute_first():
    R = np.random.default_rng(0).normal(size=(3, 8, 2)) * [100, .01]
    assert np.allclose(gdpo(R), advantages(R[..., 0], clip=99) + advantages(R[..., 1], clip=99))
    assert np.allclose(gdpo(R[..., :1], clip=99), advantages(R[..., 0], clip=99))
    labels = np.random.default_rng(1).integers(0, 2, (2, 6, 2))
    A, R2, each, _ = judged(labels, [2, 3], {}, [0, 1], statistics="gdpo")
    assert np.allclose(A, gdpo(each)) and np.allclose(R2, each.sum(2))
    row = update(start(sd3(), Pixels(), PROMPTS, settings(SMALL, statistics="gdpo", by_step=False)))
    assert np.isfinite(row["loss"])


# the loss

@bounded(max_examples=50)
@given(arrays(float, 6, elements=st.floats(-1, 1)), arrays(float, 6, elements=st.floats(-1, 1)), arrays(float, 6, elements=st.sampled_from([-2., -.5, 0., 1., 3.])), st.floats(.01, .5))
def test_policy_loss_against_a_loop(new, old, A, clip):
    loss = policy_loss(torch.tensor(new), torch.tensor(old), torch.tensor(A), clip=clip)
    rho = np.exp(new - old)
    assert np.isclose(loss, np.mean([max(-a * r, -a * min(max(r, 1 - clip), 1 + clip)) for a, r in zip(A, rho)]))


def test_case15_zero_advantages_are_masked_not_dropped():
    logp = torch.tensor([200., 0., 0.], requires_grad=True)
    loss = policy_loss(logp, torch.zeros(3), torch.tensor([0., 1., 1.]), clip=.2)
    loss.backward()
    assert loss.item() == pytest.approx(-2 / 3) and logp.grad.tolist() == pytest.approx([0, -1 / 3, -1 / 3])  # exp(200) is infinite; the mean is over three
    with pytest.raises(ValueError, match="must have one shape"):
        policy_loss(torch.zeros(3), torch.zeros(3), torch.zeros(3, 1), clip=.2)


@pytest.mark.parametrize("form", ["flow_grpo", "exact", "velocity"])
def test_case07_kl_and_its_gradient_are_zero_at_the_reference_and_not_elsewhere(pipe, form):
    adapter = family(pipe, max_sequence_length=0)
    walk = rollout(adapter, ["ab", "cd"], [1, 2], sigmas=list(SIGMAS))
    named = add_adapter(pipe, rank=2)
    for moved in (False, True):
        if moved:
            with torch.no_grad():
                for p in named.values():
                    p.add_(.05)
        _, mean, out = transition(adapter, walk, 1)
        kl = divergence(adapter, walk, 1, torch.arange(2), mean, out, form=form).mean()
        kl.backward()
        size = max(p.grad.abs().max().item() for p in named.values())
        assert (kl.item() > 1e-8 and size > 1e-6) if moved else (kl.item() == 0 and size == 0)
        for p in named.values():
            p.grad = None


def test_an_update_makes_good_pictures_more_probable(pipe):
    adapter = family(pipe, max_sequence_length=0)
    walk = rollout(adapter, ["ab"] * 6, list(range(6)), sigmas=list(SIGMAS), reduce="sum")
    named = add_adapter(pipe, rank=2)
    optimiser, A = torch.optim.AdamW(named.values(), lr=1e-3), np.array([2., 1, 0, 0, -1, -2])
    loss, facts = step_loss(adapter, walk, 1, A)
    loss.backward()
    optimiser.step()
    gain = transition(adapter, walk, 1)[0] - walk.logp[1]
    assert facts["far"] < 1e-5 and np.corrcoef(A, gain.detach())[0, 1] > .5


def test_a_loss_that_is_not_finite_names_its_time_step(pipe):
    adapter = family(pipe, max_sequence_length=0)
    walk = rollout(adapter, ["ab", "cd"], [1, 2], sigmas=list(SIGMAS), reduce="sum")
    walk.logp[2] -= 1000.
    add_adapter(pipe, rank=2)
    with pytest.raises(ValueError, match="the loss at time-step 2 is not finite"):
        step_loss(adapter, walk, 2, [-1., -1.])


# the adapter

def test_D01_case13_alpha_survives_saving(pipe, tmp_path):
    named = add_adapter(pipe, rank=4, alpha=8)
    with torch.no_grad():
        for i, p in enumerate(named.values()):
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)) * .1)
    save_adapter(pipe, tmp_path)
    call = lambda p: p("ab", generator=torch.Generator().manual_seed(0), sigmas=list(SIGMAS), num_inference_steps=4, guidance_scale=1., max_sequence_length=0, output_type="latent").images
    ours, other, plain = call(pipe), sd3(), sd3()
    load_adapter(other, tmp_path)
    assert torch.equal(call(other), ours) and not torch.equal(call(plain), ours)
    plain.load_lora_weights(str(tmp_path))  # diffusers' own way
    assert torch.equal(call(plain), ours)
    assert other.transformer.peft_config["fair"].lora_alpha == 8


def test_case13_wrong_files_are_refused(pipe, tmp_path):
    from safetensors.torch import load_file, save_file
    add_adapter(pipe, rank=2)
    save_adapter(pipe, tmp_path)
    tensors = load_file(tmp_path / FILE)
    for keys, metadata, words in (({"unet." + k: v for k, v in tensors.items()}, {}, "must begin with 'transformer.'"), (tensors, {}, "does not say its alpha")):
        save_file(keys, tmp_path / FILE, metadata=metadata)
        with pytest.raises(ValueError, match=words):
            load_adapter(sd3(), tmp_path)
    with pytest.raises(FileNotFoundError):
        load_adapter(sd3(), tmp_path / "none")
    with pytest.raises(ValueError, match="is called 'attn.to_z'"):
        add_adapter(sd3(), targets=["attn.to_q", "attn.to_z"])


def test_adapter_of_a_unet(tmp_path):
    pipe, other = sd15(), sd15()
    with torch.no_grad():
        for p in add_adapter(pipe, rank=2, alpha=3).values():
            p.add_(.1)
    save_adapter(pipe, tmp_path, half=False)
    load_adapter(other, tmp_path)
    call = lambda p: p("ab", generator=torch.Generator().manual_seed(0), num_inference_steps=3, output_type="latent").images
    assert torch.equal(call(other), call(pipe)) and not torch.equal(call(other), call(sd15()))


def test_without_adapter_is_the_network_itself(pipe):
    adapter = family(pipe, max_sequence_length=0)
    walk = rollout(adapter, ["ab"], [1], sigmas=list(SIGMAS))
    with torch.no_grad():
        for p in add_adapter(pipe, rank=2).values():
            p.add_(.1)
        with without_adapter(pipe.transformer):
            assert torch.equal(transition(adapter, walk, 1)[0], walk.logp[1])
        assert not torch.equal(transition(adapter, walk, 1)[0], walk.logp[1])


# the trainer

def test_case02_D03_ratio_is_logged_in_two_halves_every_update(pipe, tmp_path):
    trained = train(pipe, Pixels(), PROMPTS, preset=SMALL, folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [r["update"] for r in rows] == [0, 1, 2] == trained.table["update"].tolist()
    assert all(r["on_far"] < 1e-6 and abs(r["on_ratio"] - 1) < 1e-6 for r in rows)
    assert all(r["off_far"] > 1e-6 for r in rows)
    assert any(repr(r["off_ratio"])[-3:] != "000" and len(repr(r["off_ratio"])) > 8 for r in rows)  # not rounded


def test_case11_step_size_and_gradient_norm_are_logged(pipe):
    table = train(pipe, Pixels(), PROMPTS, preset=SMALL, schedule="linear").table
    assert np.allclose(table["lr"], [5e-4, 2.75e-4, 5e-5]) and (table["grad_norm"] > 0).all()


def test_case12_resume_is_the_same_run_bit_for_bit(tmp_path):
    whole = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=4, ema=.5, ema_every=3)
    train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=2, ema=.5, ema_every=3, folder=tmp_path)
    again = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=4, ema=.5, ema_every=3, folder=tmp_path, resume=True)
    for name in whole.run.named:
        assert torch.equal(whole.run.named[name], again.run.named[name])
    assert whole.run.history == again.run.history
    a, b = whole.run.optimiser.state_dict()["state"], again.run.optimiser.state_dict()["state"]
    assert all(torch.equal(a[k]["exp_avg_sq"], b[k]["exp_avg_sq"]) and a[k]["step"] == b[k]["step"] for k in a)
    pd.testing.assert_frame_equal(whole.table.drop(columns="seconds"), again.table.drop(columns="seconds"))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4


def test_runs_are_repeatable_and_seeds_matter():
    runs = [train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=1, seed=s).run.named for s in (0, 0, 1)]
    assert all(torch.equal(runs[0][n], runs[1][n]) for n in runs[0]) and any(not torch.equal(runs[0][n], runs[2][n]) for n in runs[0])


def test_checkpoints_of_another_configuration_are_refused_and_left_alone(tmp_path):
    train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=1, folder=tmp_path)
    kept = (tmp_path / "checkpoint.pt").read_bytes()
    for changes, words in ((dict(resume=True, lr=1e-3), "run with lr = 0.0005, but now lr = 0.001"), (dict(resume=True, seed=1), "seed = 0, but now seed = 1"), (dict(), "holds a run already")):
        pipe = sd3()
        with pytest.raises(ValueError, match=words):
            train(pipe, Pixels(), PROMPTS, preset=SMALL, updates=2, folder=tmp_path, **changes)
        assert not getattr(pipe.transformer, "peft_config", {})
    with pytest.raises(ValueError, match="run with prompts"):
        train(sd3(), Pixels(), PROMPTS[::-1], preset=SMALL, updates=2, folder=tmp_path, resume=True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept
    (tmp_path / "checkpoint.pt").write_bytes(kept[:1000])
    with pytest.raises(ValueError, match="checkpoint"):
        train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=2, folder=tmp_path, resume=True)


def test_case14_wrapped_for_several_processes_gives_the_same_weights(tmp_path):
    from accelerate import Accelerator
    plain = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=2)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        class Wrapping(Accelerator):
            def prepare(self, network, optimiser):
                return torch.nn.parallel.DistributedDataParallel(network), super().prepare(optimiser)
        wrapped = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=2, accelerator=Wrapping(cpu=True), folder=tmp_path / "run")
        assert type(wrapped.run.network).__name__ == "DistributedDataParallel"
    finally:
        torch.distributed.destroy_process_group()
    for a, b in zip(plain.run.named.values(), wrapped.run.named.values()):
        assert torch.allclose(a, b, atol=1e-6)
    load_adapter(sd3(), tmp_path / "run" / "adapter")


def test_gradients_of_several_passes_are_one_step():
    whole = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=1, time_steps=1)
    parts = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=1, time_steps=1, batch=4, accumulate=2)
    assert parts.run.taken == whole.run.taken == 1
    assert parts.table["grad_norm"][0] == pytest.approx(whole.table["grad_norm"][0], rel=1e-3)  # AdamW forgives a sum in place of a mean; the norm does not
    for a, b in zip(whole.run.named.values(), parts.run.named.values()):
        assert torch.allclose(a, b, atol=2e-5)


def test_mixed_precision_has_ratio_one_on_policy():
    from accelerate.state import AcceleratorState
    AcceleratorState._reset_state(True)
    try:
        row = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=1, precision="bf16").table.iloc[0]
    finally:
        AcceleratorState._reset_state(True)
    assert row["on_far"] < 1e-6 and np.isfinite(row["loss"])


def test_the_average_of_the_weights_is_what_is_saved(tmp_path):
    trained = train(sd3(), Pixels(), PROMPTS, preset=SMALL, ema=.9, folder=tmp_path)
    other = sd3()
    loaded = load_adapter(other, tmp_path / "adapter")
    for (n, p), q in zip(trained.run.named.items(), loaded.values()):
        assert torch.equal(trained.run.average[n], p) and torch.equal(p, q)
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert all(len(card.split(f"## {h}")[1].split("##")[0].strip()) > 40 for h in ("Out-of-scope use", "Limitations"))


def test_the_reference_is_left_as_it_was(pipe):
    before = {n: p.clone() for n, p in pipe.transformer.state_dict().items()}
    train(pipe, Pixels(), PROMPTS, preset=SMALL, updates=1)
    after = pipe.transformer.state_dict()
    assert all(torch.equal(v, after[n.replace(".weight", ".base_layer.weight").replace(".bias", ".base_layer.bias")] if n not in after else after[n]) for n, v in before.items())


def test_a_labeller_sees_pixels_only(pipe):
    labeller = Pixels()
    train(pipe, labeller, PROMPTS, preset=SMALL, updates=1)
    [images] = labeller.seen
    assert torch.is_tensor(images) and images.shape == (8, 3, 32, 32) and images.dtype == torch.float32 and 0 <= images.min() <= images.max() <= 1
    assert not images.requires_grad and vars(images) == {}


def test_a_random_labeller_teaches_nothing_on_average():
    "Its advantages do not depend on the pictures: their mean over many draws is 0 for every picture."
    rng = np.random.default_rng(0)
    A = np.stack([judged(np.stack([rng.integers(0, k, (2, 8)) for k in (2, 3, 5)], 2), [2, 3, 5], {}, [0, 1], statistics="group")[0] for _ in range(2000)])
    assert np.abs(A.mean(0)).max() < 4.5 / 2000 ** .5 and A.std() > .5


def test_a_labeller_with_an_unknown_class_is_refused(pipe):
    class Odd(Pixels):
        def label(self, images, *, probabilities=False):
            return super().label(images).assign(gender="robot")
    with pytest.raises(ValueError, match="gave gender = 'robot', but it announced the classes female, male"):
        train(pipe, Odd(), PROMPTS, preset=SMALL)
    assert codes(pd.DataFrame({"gender": ["male", None, np.nan]}), {"gender": ("female", "male")}).ravel().tolist() == [1, -1, -1]


NUMBERS = [f.name for f in dataclasses.fields(Settings) if {int, float} & {f.type, *get_args(f.type)}]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, -1, 1, 2.5, "a", True, math.nan, math.inf, None, [1]])
def test_case09_a_setting_that_cannot_work_is_refused_in_words(name, value):
    "Whatever is given: an answer or a ValueError, and no arithmetic gone wrong. What is counted is whole."
    given = {"time_steps": 0, "sigmas": None, "eval_steps": None, "batch": 1} | {name: value}
    try: said = checked(settings("tiny", **given), PROMPTS.loc[PROMPTS.index.repeat(12)], {"gender": ("female", "male")})
    except ValueError as e: assert name in str(e) or "divide" in str(e) or "still must lie" in str(e)
    else:
        kinds = {f.name: {f.type, *get_args(f.type)} for f in dataclasses.fields(Settings)}[name]
        assert "updates of" in said and (value is None and type(None) in kinds or type(value) in kinds or type(value) is int and float in kinds) and value not in (math.inf, -math.inf)


@pytest.mark.parametrize("name, wrong", [("momentum", (-.1, 1, 2)), ("reward_clip", (0, -1)), ("alpha", (0, -1)), ("guidance", (-1,)), ("size", (0, -1)), ("max_sequence_length", (-1,)), ("accumulate", (0, -1)), ("batch", (0, -1)), ("pictures", (0, 1)), ("ema", (-.1, 1)), ("eval_steps", (0,))])
def test_case09_ranges(name, wrong):
    for value in wrong:
        with pytest.raises(ValueError, match=name): checked(settings("tiny", **({"sigmas": None} | {name: value})), PROMPTS.loc[PROMPTS.index.repeat(12)], {"gender": ("female", "male")})


@pytest.mark.parametrize("changes, words", [
    (dict(pictures=1), "at least 2"), (dict(batch=3), "batch .3. must divide pictures"), (dict(batch=16), "must divide the 8 pictures"), (dict(accumulate=3), "accumulate .3. must divide the 2 passes"), (dict(groups=4), "groups must lie between 1 and the number of prompts, 3"),
    (dict(targets=("attn.to_z",)), "is called 'attn.to_z'"), (dict(form="kl"), "form must be one of"), (dict(weights={"height": 1}), "weights names the attribute 'height'"), (dict(stat="group"), "no setting 'stat'"), (dict(key="context"), "no column 'context'"), (dict(time_steps=9), "time_steps must lie in"), (dict(level=0.), "level must be positive")])
def test_case09_bad_settings_are_refused_before_anything_is_sampled(pipe, tmp_path, changes, words):
    labeller = Pixels()
    with pytest.raises(ValueError, match=words):
        train(pipe, labeller, PROMPTS, preset=SMALL, folder=tmp_path / "run", **changes)
    assert not labeller.seen and not (tmp_path / "run").exists()


def test_case09_empty_prompts_and_the_effective_batch(pipe):
    with pytest.raises(ValueError, match="no prompt to train on"):
        train(pipe, Pixels(), PROMPTS[:0], preset=SMALL)
    assert "effective batch 8), 2 steps an update" in checked(SMALL, PROMPTS, ATTRIBUTES)
    assert "effective batch 1080), 2 steps an update" in checked(settings("paper"), pd.concat([PROMPTS] * 3), ATTRIBUTES)
    assert PRESETS["paper"].pictures == 30 and PRESETS["literal"].eps == 1e-6


def test_case08_monitors_stop_a_run_and_name_hacking(pipe, tmp_path):
    stopped = train(pipe, Pixels(), PROMPTS, preset=SMALL, updates=9, stop={"grad_norm": 0.}, folder=tmp_path)
    assert stopped.table["update"].tolist() == [0, 1, 2, 3, 4] and "grad_norm was" in stopped.stopped and "grad_norm was" in (tmp_path / "adapter" / "README.md").read_text()
    own = train(sd3(), Pixels(), PROMPTS, preset=SMALL, updates=9, monitor=lambda run, row: "enough" if row["update"] == 1 else "")
    assert own.stopped == "enough" and len(own.table) == 2
    assert past_limit([{"kl": 1.}] * 5, {"kl": 1.}) == "" and past_limit([{"kl": 1.}] * 5, {"kl": .9}) != ""
    was = {"labeller MGBI": .45, "judge MGBI": .46, "agreement": .85, "clear": .8, "undetermined": 0.}
    assert hacking(was, was)["alarm"].tolist() == [False] * 4
    assert hacking(was, was | {"labeller MGBI": .9, "agreement": .5})["alarm"].tolist() == [True, True, False, False]


def test_case17_the_deployment_sampler_has_steps_of_its_own(pipe, monkeypatch):
    "As published: few steps to train, more to deploy; the two samplers' numbers of steps are two settings."
    asked, walk = {}, grpo_verdict.rollout
    monkeypatch.setattr(grpo_verdict, "rollout", lambda *a, steps, level, **k: asked.setdefault(level, steps) and walk(*a, steps=steps, level=level, **k))
    s = settings(SMALL, sigmas=None, steps=3, eval_steps=5, level=.5)
    for sampler in ("deployment", "training"): examine(pipe, PROMPTS, {"judge": Pixels()}, s, per_prompt=1, sampler=sampler)
    assert asked == {0.: 5, .5: 3}
    assert (PRESETS["paper"].steps, PRESETS["paper"].eval_steps, PRESETS["literal"].eval_steps) == (10, 40, 40)
    for wrong in (dict(eval_steps=5), dict(sigmas=None, eval_steps=0)):
        with pytest.raises(ValueError, match="eval_steps must be None or at least 1"): checked(settings(SMALL, **wrong), PROMPTS, ATTRIBUTES)


def test_the_paper_preset_takes_the_noise_of_the_pipelines_family():
    "Flow matching with a = .7, the UNet's DDIM with eta = 1: one preset, both published generators."
    for preset in ("paper", "literal"):
        assert PRESETS[preset].level is None
    assert (family(sd3()).level, family(sd15()).level) == (.7, 1.)


def test_case17_both_samplers_are_reported(pipe):
    labellers = {"labeller": Pixels(), "judge": Pixels()}
    found = {s: examine(pipe, PROMPTS, labellers, SMALL, per_prompt=4, sampler=s) for s in ("deployment", "training")}
    rows = {s: measures(e, draws=50) for s, e in found.items()}
    assert not torch.equal(found["deployment"].images, found["training"].images)
    assert all({"labeller MGBI", "judge MGBI", "judge low", "judge high", "agreement", "clear", "n"} <= set(r) for r in rows.values())
    assert rows["deployment"]["agreement"] == 1. and rows["deployment"]["n"] == 12
    own = pipe("ab", generator=[torch.Generator().manual_seed(s) for s in [__import__("fairical_nb.generators", fromlist=["image_seed"]).image_seed(0, "a", 0)]], sigmas=list(SIGMAS), num_inference_steps=4, guidance_scale=1., max_sequence_length=0, output_type="pt").images
    assert torch.allclose(own[0], found["deployment"].images[0], atol=1e-5)


def test_prompts_of_an_update_come_from_as_many_contexts_as_there_are():
    keys = np.repeat(range(5), [9, 1, 4, 2, 1])
    for update_ in range(20):
        assert len(set(keys[drawn_prompts(keys, 5, 0, update_)])) == 5
    chosen = drawn_prompts(keys, 7, 0, 0)
    assert len(set(chosen)) == 7 and len(set(keys[chosen])) == 5
    assert len({tuple(drawn_prompts(keys, 5, 0, u)) for u in range(20)}) > 10


def test_an_adapter_taken_off_leaves_the_network_as_it_was(pipe):
    from fairical_nb.adapters import remove_adapter
    before = dict(pipe.transformer.state_dict())
    add_adapter(pipe, rank=2)
    remove_adapter(pipe)
    after = pipe.transformer.state_dict()
    assert list(after) == list(before) and all(torch.equal(v, after[n]) for n, v in before.items())
    assert len(add_adapter(pipe, rank=3)) == len(add_adapter(sd3(), rank=3))


# every number by hand or by a twin

@bounded(max_examples=30)
@given(st.sampled_from([None, 0., .25, .9]), st.integers(0, 999), st.integers(1, 4))
def test_history_is_the_weighted_sample_of_all_that_was_seen(momentum, seed, visits):
    "A twin that keeps every reward with its weight: each visit takes a share 1 - momentum of the whole, or every reward counts the same."
    rng, history, seen, weights = np.random.default_rng(seed), {}, np.zeros(0), np.zeros(0)
    for v in range(visits):
        R = rng.normal(rng.normal() * 3, 1, (1, 5))
        keep, share = (1, 1) if momentum is None or not v else (momentum, 1 - momentum)
        seen, weights = np.r_[seen, R[0]], np.r_[keep * weights, np.full(5, share)]
        A, history = history_advantages(R, history, [3], momentum=momentum, clip=99)
        mean = np.average(seen, weights=weights)
        var = np.average((seen - mean) ** 2, weights=weights)
        assert np.allclose(history[3, -1], (5 * (v + 1), mean, var), rtol=1e-9)
        assert np.allclose(A, (R - mean) / (var ** .5 + 1e-6), rtol=1e-9)


@pytest.mark.parametrize("norm", ["group", "global", "none"])
def test_a_first_visit_is_judged_as_without_memory_whatever_the_norm(norm):
    R = np.random.default_rng(0).normal(size=(3, 6)) * [[1], [3], [9]] + [[0], [5], [-2]]
    assert np.allclose(history_advantages(R, {}, [4, 2, 7], norm=norm)[0], advantages(R, norm=norm))
    labels = np.array([[0, 0, 0, 1, 1, 0], [1, 1, 1, 1, 1, 0], [0, 1, 0, 0, 0, 0]])[..., None]  # none is balanced, or every advantage would be 0
    for statistics in ("group", "history"):
        A, rewarded, _, _ = judged(labels, [2], {}, [0, 1, 2], statistics=statistics, norm=norm)
        assert np.allclose(A, advantages(rewarded, norm=norm)) and (np.ptp(A, axis=1) > .5).all()


def test_two_groups_of_one_memory_enter_before_either_is_judged():
    R = np.array([[0., 1, 2, 3], [10., 11, 12, 15]])
    A, history = history_advantages(R, {}, [7, 7])
    assert np.allclose(A, (R - R.mean()) / (R.std() + 1e-6)) and np.allclose(history[7, -1], (8, R.mean(), R.var()))


@pytest.mark.parametrize("weights", [None, [2., .5], [0., 1.]])
@pytest.mark.parametrize("batch", [False, True])
def test_case18_gdpo_against_a_loop(weights, batch):
    R, w = np.random.default_rng(3).normal(size=(3, 5, 2)) * [10, .1], weights or [1., 1.]
    A = np.array([[sum(w[a] * (R[g, i, a] - np.mean(R[g, :, a])) / (np.std(R[g, :, a]) + 1e-6) for a in range(2)) for i in range(5)] for g in range(3)])
    assert np.allclose(gdpo(R, weights=weights, batch=batch, clip=99), A / (A.std() + 1e-6) if batch else A, rtol=1e-9)


@pytest.mark.parametrize("changes", [{}, dict(weights=[2., .5]), dict(target={1: [.2, .5, .3]}), dict(weights=[0., 3.], target={0: [.9, .1]}, eps=.3, clip=1.5, center=False)])
def test_rewards_from_probabilities_and_of_groups_against_a_loop(changes):
    rng, options = np.random.default_rng(0), {k: v for k, v in changes.items() if k not in ("weights", "target")}
    w, target = changes.get("weights", [1., 1.]), changes.get("target", {})
    P = [rng.dirichlet(np.ones(k), 7) for k in (2, 3)]
    per_class = [class_rewards(p.sum(0), target=target.get(a), **options) for a, p in enumerate(P)]
    assert np.allclose(soft_rewards(P, **changes), [sum(w[a] * sum(p[i, k] * per_class[a][k] for k in range(p.shape[1])) for a, p in enumerate(P)) for i in range(7)])
    labels = np.stack([rng.integers(0, k, (4, 6)) for k in (2, 3)], 2)
    R, each = group_rewards(labels, [2, 3], **changes)
    assert np.allclose(R, [rewards(y, [2, 3], **changes) for y in labels]) and np.allclose(R, each @ w)
    for statistics in ("group", "history", "gdpo"):
        assert np.allclose(judged(labels, [2, 3], {}, range(4), statistics=statistics, **changes)[1], R)


def moved(pipe, reduce="sum"):
    "A walk of unequal steps, and the adapter somewhere else than where it began."
    adapter = family(pipe, max_sequence_length=0)
    walk = rollout(adapter, ["ab", "cd", "ef"], [1, 2, 3], sigmas=[1., .9, .6, .2], reduce=reduce, decode=False)
    named = add_adapter(pipe, rank=2)
    with torch.no_grad():
        for i, p in enumerate(named.values()):
            p.add_(.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i)))
    return adapter, walk, named


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_case06_divergence_of_a_step_is_that_of_torchs_gaussians_with_that_steps_spread(pipe, reduce):
    from torch.distributions import Normal, kl_divergence
    adapter, walk, _ = moved(pipe, reduce)
    for t in walk.noisy:
        with torch.no_grad():
            _, mean, out = transition(adapter, walk, t, [0, 2])
            with without_adapter(pipe.transformer):
                _, mean_ref, out_ref = transition(adapter, walk, t, [0, 2])
            total = lambda x: getattr(x.flatten(1), reduce)(1)
            gaussian = lambda m: Normal(m.double(), walk.std[t].double())
            exact = total(kl_divergence(gaussian(mean), gaussian(mean_ref))).float()
            wanted = {"exact": exact, "flow_grpo": exact * (walk.schedule.now[t] - walk.schedule.then[t]), "velocity": total((out - out_ref) ** 2 / 2)}
            for form, value in wanted.items():
                found = divergence(adapter, walk, t, torch.tensor([0, 2]), mean, out, form=form)
                assert (value > 0).all() and torch.allclose(found, value, rtol=1e-4), (t, form)


def test_the_loss_of_a_step_is_the_policys_plus_beta_times_the_divergence_and_so_is_its_gradient(pipe):
    adapter, walk, named = moved(pipe)
    A, t, beta, clip = np.array([2., -1.]), 1, .3, .05
    index = torch.tensor([2, 0])
    loss, facts = step_loss(adapter, walk, t, A, index=index, clip=clip, beta=beta, form="exact")
    loss.backward()
    ours = torch.cat([p.grad.flatten() for p in named.values()])
    for p in named.values(): p.grad = None
    logp, mean, out = transition(adapter, walk, t, index)
    ratio = torch.exp(logp - walk.logp[t][index])
    policy = torch.stack([torch.maximum(-a * r, -a * r.clamp(1 - clip, 1 + clip)) for a, r in zip(A, ratio)]).mean()
    kl = divergence(adapter, walk, t, index, mean, out, form="exact").mean()
    (policy + beta * kl).backward()
    theirs = torch.cat([p.grad.flatten() for p in named.values()])
    assert kl > 1e-4 and (ratio - 1).abs().max() > clip  # both parts are at work
    assert [facts[k] for k in ("loss", "policy", "kl")] == pytest.approx([(policy + beta * kl).item(), policy.item(), kl.item()], rel=1e-5)
    assert loss.item() == facts["loss"] and torch.allclose(ours, theirs, rtol=1e-4, atol=1e-7)
    assert facts["clipped"] == ((ratio - 1).abs() > clip).float().mean().item()
    free, _ = step_loss(adapter, walk, t, A, index=index, clip=clip, beta=0.)
    assert free.item() == pytest.approx(policy.item(), rel=1e-5)


# the adapter: its scale, its start, its place

@pytest.mark.parametrize("make", [sd3, sd15])
def test_the_adapter_is_on_every_projection_of_attention_and_nowhere_else(make):
    from diffusers.models.attention_processor import Attention
    pipe = make()
    network = family(pipe).network
    wanted = {f"{n}.{k}" for n, m in network.named_modules() if isinstance(m, Attention) for k, layer in m.named_modules() if isinstance(layer, torch.nn.Linear)}
    named = add_adapter(pipe, rank=2)
    assert {n.split(".lora_")[0] for n in named} == wanted and len(named) == 2 * len(wanted)
    assert {n for n, p in network.named_parameters() if p.requires_grad} == set(named)


def test_alpha_is_twice_the_rank_where_none_is_said(pipe):
    add_adapter(pipe, rank=3)
    assert (pipe.transformer.peft_config["fair"].r, pipe.transformer.peft_config["fair"].lora_alpha) == (3, 6)


def test_the_adapters_start_follows_from_its_seed_alone_and_draws_nothing_from_the_caller():
    torch.manual_seed(5)
    first = torch.rand(3)
    starts = []
    for seed in (0, 0, 1):
        torch.manual_seed(5)
        starts.append(torch.cat([p.detach().flatten() for p in add_adapter(sd3(), rank=2, seed=seed).values()]))
    torch.manual_seed(5)
    other = sd3()  # sets torch's seed itself
    torch.manual_seed(5)
    add_adapter(other, rank=2, seed=3)
    assert torch.equal(torch.rand(3), first)
    assert torch.equal(starts[0], starts[1]) and not torch.equal(starts[0], starts[2])


@pytest.mark.parametrize("half", [False, True])
def test_a_saved_adapter_has_the_number_format_that_was_asked_for(pipe, tmp_path, half):
    from safetensors.torch import load_file
    add_adapter(pipe, rank=2)
    save_adapter(pipe, tmp_path, half=half)
    assert {t.dtype for t in load_file(tmp_path / FILE).values()} == {torch.float16 if half else torch.float32}


def test_the_adapter_is_back_after_an_error_without_it(pipe):
    named = add_adapter(pipe, rank=2)
    with torch.no_grad():
        for p in named.values(): p.add_(.1)
    adapter = family(pipe, max_sequence_length=0)
    walk = rollout(adapter, ["ab"], [1], sigmas=list(SIGMAS), decode=False)
    with pytest.raises(KeyError), without_adapter(pipe.transformer):
        raise KeyError
    assert torch.equal(transition(adapter, walk, 1)[0], walk.logp[1])


# the trainer: what is drawn, what reaches the parts, what is averaged, what is kept

def test_time_steps_are_drawn_without_repeats_and_anew_for_every_update_and_seed():
    noisy = [0, 1, 3, 4, 6]
    for count in (0, 2, 5):
        draws = [drawn_steps(noisy, count, seed, u) for seed in range(3) for u in range(5)]
        assert all(len(set(d)) == len(d) == (count or 5) and set(d) <= set(noisy) for d in draws) and len(set(map(tuple, draws))) > 8
    assert {t for u in range(30) for t in drawn_steps(noisy, 1, 0, u)} == set(noisy)
    assert drawn_steps(noisy, 3, 1, 2) == drawn_steps(noisy, 3, 1, 2)
    keys = np.repeat(range(5), 4)
    assert len({tuple(drawn_prompts(keys, 5, seed, 0)) for seed in range(20)}) > 10


def test_every_setting_reaches_the_place_where_it_acts(pipe, monkeypatch):
    "One run in which nothing is as by default; what the parts are given is written down."
    s = settings(SMALL, level=.4, still=2, guidance=3., sigmas=(1., .9, .6, .2), reduce="mean", beta=.3, form="exact", clip=.15, eps=.7, reward_clip=4., center=False, weights={"age": 2.}, target={"age": (.2, .3, .5)},
                 undetermined="zero", leave_one_out=True, norm="none", momentum=.8, by_step=False, rank=3, alpha=5, targets=("attn.to_q",), lr=2e-4, weight_decay=.01, batch=4, time_steps=1, grad_clip=.5)
    given_ = {}
    for name in ("rollout", "judged", "step_loss", "add_adapter", "make_optimiser"):
        def spy(*a, _name=name, _real=getattr(grpo_trainer, name), **k):
            given_.setdefault(_name, (a, k))
            return _real(*a, **k)
        monkeypatch.setattr(grpo_trainer, name, spy)
    run = start(pipe, Pixels(), PROMPTS, s, seed=5)
    clipped, real = [], run.accelerator.clip_grad_norm_
    monkeypatch.setattr(run.accelerator, "clip_grad_norm_", lambda p, most: clipped.append(most) or real(p, most))
    row = update(run)
    told = {name: k for name, (_, k) in given_.items()}
    holds = lambda name, **wanted: {k: told[name].get(k) for k in wanted} == wanted
    assert holds("rollout", steps=None, sigmas=[1., .9, .6, .2], level=.4, still=2, guidance=3., reduce="mean", batch=4)
    assert holds("judged", steps=None, statistics="history", norm="none", momentum=.8, weights=[0., 2.], target={1: (.2, .3, .5)}, eps=.7, clip=4., center=False, undetermined="zero", leave_one_out=True)
    assert holds("step_loss", clip=.15, beta=.3, form="exact") and holds("add_adapter", rank=3, alpha=5, targets=("attn.to_q",), seed=5) and holds("make_optimiser", lr=2e-4, weight_decay=.01)
    assert clipped == [.5] * 2 and run.taken == 2 and given_["judged"][0][1] == [2, 3]
    chosen = drawn_prompts(run.keys, 2, 5, 0)
    assert given_["rollout"][0][2] == image_seeds(5, 0, np.repeat(chosen, 4), [0, 1, 2, 3] * 2) and row["steps"] == drawn_steps([0, 1], 1, 5, 0)
    assert run.conditions.negative is not None and row["prompts"] == PROMPTS["prompt_id"].iloc[chosen].tolist()


def test_statistics_by_step_are_asked_for_the_steps_that_are_trained(pipe, monkeypatch):
    seen, real = [], grpo_trainer.judged
    monkeypatch.setattr(grpo_trainer, "judged", lambda *a, **k: seen.append(k["steps"]) or real(*a, **k))
    run = start(pipe, Pixels(), PROMPTS, settings(SMALL, by_step=True))
    row = update(run)
    assert seen == [row["steps"]] and {t for _, t in run.history} == set(row["steps"])


def test_the_step_size_of_the_schedule_is_the_optimisers(pipe):
    used = []
    train(pipe, Pixels(), PROMPTS, preset=SMALL, schedule="linear", time_steps=1, monitor=lambda run, row: used.append(run.optimiser.param_groups[0]["lr"]) or "")
    assert used == pytest.approx([5e-4, 2.75e-4, 5e-5])


@pytest.mark.parametrize("ema, every", [(.9, 2), (.2, 1)])
def test_the_average_follows_the_weights_by_its_own_recursion(pipe, ema, every):
    run = start(pipe, Pixels(), PROMPTS, settings(SMALL, ema=ema, ema_every=every, lr=5e-2))
    step, names = run.optimiser.step, list(run.named)
    state = {"taken": 0, "average": [run.named[n].detach().clone() for n in names]}

    def stepped(*a, **k):
        out = step(*a, **k)
        state["taken"] += 1
        if state["taken"] % every == 0:
            state["average"] = [ema * e + (1 - ema) * run.named[n].detach() for e, n in zip(state["average"], names)]
        return out
    run.optimiser.step = stepped
    update(run)
    update(run)
    assert state["taken"] == run.taken == 4
    assert all(torch.allclose(run.average[n], e, atol=1e-6) for n, e in zip(names, state["average"]))
    assert any((run.average[n] - run.named[n]).abs().max() > 1e-3 for n in names)


def test_case12_a_run_that_was_killed_goes_on_from_its_last_checkpoint(tmp_path):
    "Also with a labeller that draws torch's random numbers, which the checkpoint holds."
    class Dice(Pixels):
        def label(self, images, *, probabilities=False):
            return super().label(images).assign(gender=[ATTRIBUTES["gender"][int(k)] for k in torch.randint(0, 2, (len(images),))])

    def run(**more):
        pipe = sd3()
        torch.manual_seed(11)
        return train(pipe, Dice(), PROMPTS, preset=SMALL, updates=5, time_steps=1, save_every=2, **more)

    def killed(run, row):
        if row["update"] == 3: raise KeyboardInterrupt
        return ""
    whole = run()
    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path, monitor=killed)
    assert [json.loads(line)["update"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [0, 1]
    again = run(folder=tmp_path, resume=True)
    pd.testing.assert_frame_equal(whole.table.drop(columns="seconds"), again.table.drop(columns="seconds"))
    assert all(torch.equal(whole.run.named[n], again.run.named[n]) for n in whole.run.named)


def test_case08_only_the_last_five_updates_count_for_a_limit():
    rows = lambda *kl: [{"kl": float(k)} for k in kl]
    assert past_limit(rows(9, 9, 9, 9, 9, 0, 0, 0, 0, 0), {"kl": 1.}) == "" and past_limit(rows(9, 9, 9, 9), {"kl": 1.}) == ""
    assert past_limit(rows(0, 0, 0, 0, 0, 2, 2, 2, 2, 2), {"kl": 1.}) == "kl was 2 on average over five updates, above 1"
    assert past_limit(rows(0, 0, 0, 0, 6), {"kl": 1.}) != "" and past_limit(rows(0, 0, 0, 0, 5), {"kl": 1.}) == ""


@pytest.mark.parametrize("changes, words", [
    (dict(sigmas=(1., .5)), "sigmas must have one level per step"), (dict(updates=0), "updates, save_every and ema_every"), (dict(save_every=0), "updates, save_every and ema_every"), (dict(ema_every=0), "updates, save_every and ema_every"),
    (dict(still=4), "no step would be trained"), (dict(still=-1), "still must lie in"), (dict(groups=0, batch=4), "groups must lie between"), *((dict([(n, "odd")]), f"{n} must be one of") for n in ("statistics", "norm", "reduce", "undetermined", "precision", "schedule")),
    *((dict([(n, 0)]), f"{n} must be positive") for n in ("lr", "clip", "grad_clip", "eps", "rank")), (dict(beta=-.1), "must be >= 0"), (dict(weight_decay=-.1), "must be >= 0"),
    (dict(ema=1.), "ema must lie in"), (dict(ema=-.1), "ema must lie in"), (dict(target={"height": (.5, .5)}), "target names the attribute 'height'"), (dict(weights={"age": 0.}), "some attribute must have a positive weight")])
def test_case09_each_rule_of_the_settings_refuses(changes, words):
    checked(SMALL, PROMPTS, ATTRIBUTES)
    with pytest.raises(ValueError, match=words):
        checked(settings(SMALL, **changes), PROMPTS, ATTRIBUTES)


def test_case09_an_update_is_shared_by_processes_prompt_by_prompt():
    assert "effective batch 4), 4 steps an update" in checked(settings(SMALL, batch=4), PROMPTS, ATTRIBUTES)
    assert "effective batch 8), 2 steps an update" in checked(settings(SMALL, batch=4), PROMPTS, ATTRIBUTES, processes=2)
    for changes, words in ((dict(groups=3, batch=4), "groups .3. must be divisible by the 2 processes"), (dict(), "batch .8. must divide the 4 pictures of an update in each process"), (dict(batch=4, accumulate=4), "accumulate .4. must divide the 2 passes")):
        with pytest.raises(ValueError, match=words):
            checked(settings(SMALL, **changes), PROMPTS, ATTRIBUTES, processes=2)
    assert settings(sigmas=[1., .5], targets=["attn.to_q"]).sigmas == (1., .5)


# the verdict

def readings(*rows):
    "Labels of pictures, with probabilities: (gender, its probability, age, its probability), None where undetermined."
    column = lambda k: pd.Series([r[k] for r in rows], dtype=object)  # None stays None
    table = pd.DataFrame({"prompt_id": "p", "prompt": "p", "trigger": ["", "", "", "x"][:len(rows)], "gender": column(0), "age": column(2)})
    for a, k in (("gender", 1), ("age", 3)):
        others = len(ATTRIBUTES[a]) - 1
        for c in ATTRIBUTES[a]:
            table[f"{a}={c}"] = [r[k] if (r[k - 1] or ATTRIBUTES[a][0]) == c else (1 - r[k]) / others for r in rows]
    return table


@pytest.mark.filterwarnings("ignore")  # classes are absent
def test_what_is_clear_what_agrees_and_what_is_counted_by_hand():
    judge = readings(("female", .95, "young", .9), ("male", .99, "middle", .6), (None, .5, "young", .95), ("male", .9, "elderly", 1.))
    first = judge.assign(gender=["male", "male", "female", "male"])
    other = judge.assign(age=["young", "young", "young", "elderly"])
    assert sure(judge, ATTRIBUTES).tolist() == [True, False, False, True] and sure(judge, ATTRIBUTES, least=.96).tolist() == [False] * 4
    assert judge["gender"][2] is None and same(first, judge, ATTRIBUTES).tolist() == [False, True, False, True] and same(judge, judge, ATTRIBUTES).tolist() == [True, True, False, True]
    row = measures(Examination(torch.zeros(4, 3, 8, 8), {"labeller": first, "other": other, "judge": judge}, ATTRIBUTES, "deployment"), draws=0)
    assert {k: row[k] for k in ("agreement labeller", "agreement other", "clear", "undetermined", "n", "n per context")} == {"agreement labeller": .5, "agreement other": .5, "clear": .5, "undetermined": 1 / 8, "n": 4, "n per context": 1}
    assert "agreement judge" not in row and "judge low" not in row
    assert row["clear by class"] == pytest.approx(((1 + .5) / 2 + (.5 + 0 + 1) / 3) / 2)


@pytest.mark.parametrize("name, worse", [("labeller ahead of judge", {"labeller MGBI": .2}), ("loss of agreement", {"agreement": -.2}), ("loss of clear pictures", {"clear": -.2}), ("gain of undetermined", {"undetermined": .2})])
def test_each_monitor_watches_one_thing_in_one_direction(name, worse):
    was = {"labeller MGBI": .45, "judge MGBI": .46, "agreement": .7, "clear": .6, "undetermined": .3}
    for sign in (1, -1):
        found = hacking(was, {k: v + sign * worse.get(k, 0) for k, v in was.items()})
        assert found.loc[name, "value"] == pytest.approx(sign * .2) and found["alarm"].tolist() == [n == name and sign > 0 for n in LIMITS]
        assert found.drop(index=name)["value"].abs().max() < 1e-9
    assert not hacking(was, {k: v + worse.get(k, 0) for k, v in was.items()}, limits={name: .25})["alarm"].any()


def test_the_pictures_of_a_prompt_depend_on_it_and_the_seed_not_on_its_place(pipe):
    look = lambda prompts, seed: examine(pipe, prompts, {"judge": Pixels()}, SMALL, per_prompt=2, seed=seed).images
    plain, turned, other = look(PROMPTS, 0), look(PROMPTS[::-1], 0), look(PROMPTS, 1)
    assert torch.allclose(plain.reshape(3, 2, 3, 32, 32).flip(0).flatten(0, 1), turned, atol=1e-5)
    assert (plain - other).flatten(1).abs().amax(1).min() > 1e-3
