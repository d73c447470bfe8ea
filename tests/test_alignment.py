"Distributional alignment: what is dealt, what is lost, what is pulled back through the sampler, and that it can be undone."
from itertools import permutations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
import tiny_sd3  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from scipy.stats import binom  # noqa: E402

from fairical_nb import alignment  # noqa: E402
from fairical_nb.adapters import NAME, add_adapter, remove_adapter  # noqa: E402
from fairical_nb.families import family  # noqa: E402
from fairical_nb.labelling import Labeller  # noqa: E402
from fairical_nb.methods import DoesNotApply  # noqa: E402
from fairical_nb.optimisers import make_optimiser  # noqa: E402
from fairical_nb.rollout import rollout  # noqa: E402

torch.set_num_threads(1)


class Tones(torch.nn.Module):
    "Reads how bright and how red a picture is, off its pixels, in a way that can be differentiated."
    attributes, config = {"tone": ("dark", "light"), "hue": ("red", "green", "blue")}, {}

    def __init__(self, middle=.5, steep=40.):
        super().__init__()
        self.middle, self.steep = middle, steep

    def forward(self, x):
        mean = x.mean((2, 3))
        tone = self.steep * (mean.mean(1) - self.middle)
        return {"tone": torch.stack([-tone, tone], 1), "hue": self.steep * (mean - mean.mean(1, keepdim=True))}


@pytest.fixture(scope="module")
def sd3():
    return tiny_sd3.sd3()


@pytest.fixture(scope="module")
def sd15():
    return tiny_sd3.sd15()


@pytest.fixture(params=["sd3", "sd15"])
def pipe(request):
    return request.getfixturevalue(request.param)


def call(pipe, steps=2):
    return {"num_inference_steps": steps, "guidance_scale": 1.0, "height": 32, "width": 32} | ({"max_sequence_length": 0} if hasattr(pipe, "transformer") else {})


def draw(pipe, like, n=3):
    generators = [torch.Generator().manual_seed(s) for s in range(n)]
    return pipe(["a person"] * n, generator=generators, output_type="pt", **call(like)).images


def reader(pipe):
    "A labeller whose middle is the middle of what this pipeline draws."
    return Labeller(Tones(middle=draw(pipe, pipe, 8).mean().item()), flip=False)


def weights(pipe):
    return {n: p.detach().clone() for part in ("transformer", "unet", "vae", "text_encoder") if hasattr(pipe, part) for n, p in getattr(pipe, part).state_dict(prefix=part + ".").items()}


SOME = st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, 4), st.integers(0, 10**6)))


# What is dealt

@settings(max_examples=40, deadline=None)
@given(SOME)
def test_the_dealing_has_the_targets_counts_and_is_the_cheapest_of_all_permutations(case):
    n, k, seed = case
    rng = np.random.default_rng(seed)
    p, u = rng.dirichlet(np.ones(k), n), rng.integers(k, size=n)
    got = alignment.assigned(p, u)
    cost = lambda order: sum(np.linalg.norm(row - np.eye(k)[c]) for row, c in zip(p, order))
    assert sorted(got) == sorted(u)
    assert cost(got) == pytest.approx(min(map(cost, permutations(u))), abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(SOME)
def test_expected_assignment_does_not_depend_on_the_order_of_the_pictures(case):
    n, k, seed = case
    rng = np.random.default_rng(seed)
    p, order, q = rng.dirichlet(np.ones(k), n), rng.permutation(n), np.full(k, 1 / k)
    plain, turned = (alignment.expected(x, q, draws=20, rng=np.random.default_rng(seed)) for x in (p, p[order]))
    assert np.allclose(plain.sum(1), 1)
    assert np.allclose(plain[order], turned)


def test_expected_assignment_of_two_classes_is_binomial():
    p = np.array([.9, .8, .6, .1])
    got = alignment.expected(np.c_[p, 1 - p], [.5, .5], draws=6000, rng=np.random.default_rng(0))
    assert np.allclose(got[:, 1], np.array([1, 5, 11, 15]) / 16, atol=.025)
    assert np.allclose(got.sum(0), [2, 2], atol=.05)  # N q
    skewed = alignment.expected(np.c_[p, 1 - p], [.2, .8], draws=6000, rng=np.random.default_rng(0))
    assert np.allclose(skewed[::-1, 1], binom.sf(np.arange(4), 4, .8), atol=.025)


def test_only_confident_pictures_are_asked():
    shares = np.array([[.9, .1], [.7, .3], [.2, .8]])
    assert alignment.asked(shares, .8).tolist() == [0, -1, 1]
    assert alignment.asked(shares, 0).tolist() == [0, 0, 1]
    for wrong in (-.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="confidence must lie"):
            alignment.asked(shares, wrong)


@pytest.mark.parametrize("p, u", [([[.5, .5]], [0, 1]), ([.5, .5], [0, 1]), ([[.5, .5]], [[0]])])
def test_dealing_wants_one_class_per_picture(p, u):
    with pytest.raises(ValueError, match="one class per picture"):
        alignment.assigned(p, u)


# What is lost

def test_the_two_losses_by_hand():
    logits = torch.log(torch.tensor([[.25, .75], [.4, .6], [.5, .5]]))
    assert alignment.alignment(logits, [0, -1, 1]).item() == pytest.approx((np.log(4) + np.log(2)) / 3)
    assert alignment.alignment(logits, [-1, -1, -1]).item() == 0
    before = torch.full((2, 3, 2, 2), .5)
    images = before + torch.tensor([.1, .2]).reshape(2, 1, 1, 1)
    assert alignment.kept(images, before, [True, False]).item() == pytest.approx((10 * .01 + 1 * .04) / 2)
    assert alignment.kept(images, before, [True, False], (0, 0)).item() == 0


def test_logits_are_the_labellers_own(sd3):
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labeller = Labeller(Tones(), temperature={"tone": 2.}, flip=True)
    table = labeller.label(images, probabilities=True)
    for a, z in alignment.logits_of(labeller, images).items():
        assert np.allclose(z.softmax(1), table[[f"{a}={c}" for c in labeller.attributes[a]]], atol=1e-6)


# Back through the sampler

def test_pictures_with_gradients_are_the_pictures(pipe):
    adapter = family(pipe)
    x = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(alignment.decoded(adapter, x), adapter.decode(x))
    assert torch.autograd.grad(alignment.decoded(adapter, x.requires_grad_()).sum(), x)[0].abs().sum() > 0


def test_coefficients_are_what_a_nudge_of_one_step_does(pipe):
    adapter = family(pipe)
    schedule = adapter.schedule(4)
    c = alignment.coefficients(adapter, schedule)
    x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))

    def end(nudged):
        z = x
        for t in range(4):
            z = adapter.step(z, .3 * x + (t == nudged), schedule.now[t], schedule.then[t], None, level=0.)[0]
        return z
    for t in range(4):
        assert (end(t) - end(None)).mean().item() == pytest.approx(c[t], rel=1e-3, abs=1e-4)


def test_one_coefficient_for_all_steps_changes_the_direction_only_where_they_differ(sd3, sd15):
    cosine = {}
    for name, pipe in (("sd3", sd3), ("sd15", sd15)):
        adapter, found = family(pipe), []
        path = rollout(adapter, ["a person"] * 2, [1, 2], level=0., **({"sigmas": [1., .75, .5, .25]} if name == "sd3" else {"steps": 4}))
        assert (np.ptp(alignment.coefficients(adapter, path.schedule)) < 1e-5) == (name == "sd3")
        for adjust in (True, False):
            named = add_adapter(adapter, rank=2)
            alignment.pull_back(adapter, path, torch.ones_like(path.latents[-1]), adjust=adjust)
            found.append(torch.cat([p.grad.flatten() for p in named.values() if p.grad is not None]))
            remove_adapter(adapter)
        cosine[name] = torch.cosine_similarity(*found, dim=0).item()
    assert cosine["sd15"] < 1 - 1e-4
    assert cosine["sd3"] == pytest.approx(1, abs=1e-4)


def test_the_loss_falls_on_a_fixed_batch(pipe):
    adapter = family(pipe)
    seeds, wanted = list(range(12)), {"tone": np.array([.05, .95])}
    labeller = reader(pipe)
    named = add_adapter(adapter, rank=4)
    optimiser = make_optimiser([{"params": list(named.values())}], lr=4e-2, weight_decay=0.)
    try:
        losses = [alignment.update(adapter, labeller, ["a person"] * 12, seeds, wanted, optimiser, sampling={"steps": 2}, pictures=12, rng=np.random.default_rng(0), keep=(.1, .1))["loss"] for _ in range(8)]
    finally:
        remove_adapter(adapter)
    assert losses[0] > 0
    assert np.mean(losses[-3:]) < .9 * losses[0]


# The method

def small(pipe, **more):
    return alignment.debias(pipe, reader(pipe), ["a person", "a face"], {"tone": [.1, .9]}, **{"call": call(pipe), "updates": 2, "groups": 1, "pictures": 6, "rank": 2, "lr": 3e-2, "confidence": .6, **more})


def test_undo_restores_weights_and_pictures_bit_for_bit(pipe):
    before, images = weights(pipe), draw(pipe, pipe)
    made = small(pipe)
    changed = draw(made, pipe)
    assert made.undo() is pipe
    after = weights(pipe)
    assert not torch.equal(changed, images)
    assert before.keys() == after.keys() and all(torch.equal(before[n], after[n]) for n in before)
    assert torch.equal(draw(pipe, pipe), images)


def test_same_seed_same_bytes_and_another_seed_other_ones(pipe):
    found = []
    for seed in (0, 0, 1):
        made = small(pipe, seed=seed)
        found.append((draw(made, pipe), made.record))
        made.undo()
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]
    assert not torch.equal(found[0][0], found[2][0])


def test_cost_and_record_say_what_was_done(sd3):
    made = small(sd3, groups=2)
    stored = sum(p.numel() for n, p in sd3.transformer.named_parameters() if f".{NAME}." in n)
    made.undo()
    assert (made.cost.images, made.cost.passes, made.cost.parameters) == (2 * 2 * 2 * 6, 0., stored)
    assert [r["update"] for r in made.record] == [0, 1]
    assert made.record[0]["kept"] == pytest.approx(0, abs=1e-9)
    assert all(r["loss"] == pytest.approx(r["alignment"] + r["kept"], abs=1e-5) for r in made.record)


def test_it_moves_pictures_of_new_noise_towards_the_target(sd3):
    labeller = reader(sd3)
    light = lambda p: (labeller.label(draw(p, sd3, 24))["tone"] == "light").mean()
    plain = light(sd3)
    made = small(sd3, updates=8, pictures=12)
    moved = light(made)
    made.undo()
    assert moved > plain + .1


def test_with_guidance_the_network_is_asked_twice(sd3):
    made = small(sd3, call=call(sd3) | {"guidance_scale": 3.0}, updates=1)
    made.undo()
    assert np.isfinite(made.record[0]["loss"])


class Answers:
    "Tells classes, but not how it came to them."
    attributes = Tones.attributes

    def label(self, images): raise AssertionError("must not be asked")


def test_a_labeller_without_probabilities_is_refused(sd3):
    with pytest.raises(ValueError, match="needs probabilities with gradients.*a Answers has none"):
        alignment.debias(sd3, Answers(), ["a person"], call=call(sd3))
    assert NAME not in getattr(sd3.transformer, "peft_config", {})


def test_bad_input_is_refused_and_leaves_no_adapter(sd3):
    labeller = reader(sd3)
    with pytest.raises(DoesNotApply, match="known family"):
        alignment.debias(object(), labeller, ["a person"])
    with pytest.raises(ValueError, match="pictures must be at least 2"):
        alignment.debias(sd3, labeller, ["a person"], pictures=1)
    with pytest.raises(ValueError, match="target names 'gender'"):
        alignment.debias(sd3, labeller, ["a person"], {"gender": [.5, .5]})
    with pytest.raises(ValueError, match="confidence must lie"):
        small(sd3, confidence=2)
    assert not getattr(sd3.transformer, "peft_config", {})


# What is counted, and what is drawn for an update

def test_who_stays_is_who_is_asked_nothing_or_what_is_seen_already_in_every_attribute(sd3, monkeypatch):
    "Six pictures, two attributes; what is asked is put in by hand, and `before` is another set of pictures than the one that is changed."
    adapter = family(sd3)
    latents = torch.randn(6, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    before = torch.zeros(6, 3, 32, 32)  # dark and red, says Tones (the first of equals)
    dealt = {"tone": np.array([0, 0, -1, -1, 1, -1]), "hue": np.array([0, 2, 0, 1, 0, -1])}
    monkeypatch.setattr(alignment, "_asked", lambda logits, wanted, **k: dealt)
    gradient, numbers = alignment._latent_gradient(adapter, Labeller(Tones(), flip=False), latents, before, {}, (10., 1.))
    stays = np.array([True, False, True, False, False, True])
    assert [numbers["stays"], numbers["asked"]] == pytest.approx([stays.mean(), (3 + 5) / 12])
    with torch.no_grad():
        images = alignment.decoded(adapter, latents)
        logits = alignment.logits_of(Labeller(Tones(), flip=False), images)
        far = (images - before).square().flatten(1).mean(1)
        cross = sum(-logits[a].log_softmax(1)[i, c] for a, classes in dealt.items() for i, c in enumerate(classes) if c >= 0) / 6
    assert numbers["kept"] == pytest.approx((far * torch.where(torch.as_tensor(stays), 10., 1.)).mean().item(), rel=1e-5)
    assert numbers["alignment"] == pytest.approx(cross.item(), rel=1e-4)
    assert numbers["loss"] == pytest.approx(numbers["alignment"] + numbers["kept"], rel=1e-5) and gradient.shape == latents.shape


def test_pictures_are_kept_near_those_without_the_adapter_not_near_themselves(sd3):
    adapter, labeller = family(sd3), reader(sd3)
    named = add_adapter(adapter, rank=2)
    with torch.no_grad():
        plain = rollout(adapter, ["a person"] * 4, range(4), steps=2, level=0.).images
        for p in named.values(): p.add_(.2)
    try:
        changed = rollout(adapter, ["a person"] * 4, range(4), steps=2, level=0.).images
        optimiser = make_optimiser([{"params": list(named.values())}], lr=1e-6, weight_decay=0.)
        found = alignment.update(adapter, labeller, ["a person"] * 4, range(4), {"tone": np.array([.5, .5])}, optimiser, sampling={"steps": 2}, pictures=4, rng=np.random.default_rng(0), keep=(3., 3.))
    finally:
        remove_adapter(adapter)
    assert found["kept"] == pytest.approx(3 * (changed - plain).square().mean().item(), rel=1e-4) and found["kept"] > 1e-6


def test_batches_of_the_network_and_leftovers_in_grad_change_nothing(sd3):
    adapter, found = family(sd3), []
    for batch in (3, 2):
        named = add_adapter(adapter, rank=2, seed=4)
        path = rollout(adapter, ["a person", "a face", "ab"], [1, 2, 3], steps=2, level=0., batch=batch, guidance=2.)
        g = torch.randn(path.latents[-1].shape, generator=torch.Generator().manual_seed(0))
        alignment.pull_back(adapter, path, g)
        found.append(torch.cat([p.grad.flatten() for p in named.values()]))
        remove_adapter(adapter)
    assert found[0].abs().max() > 0 and torch.allclose(*found, rtol=1e-3, atol=1e-3 * found[0].abs().max().item())


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_updates_see_every_prompt_in_turn_and_never_the_same_noise_twice(sd3, monkeypatch, groups):
    def updates(seed):
        seen = []
        monkeypatch.setattr(alignment, "update", lambda adapter, labeller, texts, seeds, wanted, optimiser, **k: seen.append((texts, list(seeds), k)) or {"loss": 0.})
        alignment.debias(sd3, reader(sd3), ["a", "b", "c", "d"], seed=seed, call=call(sd3), updates=4, groups=groups, pictures=3, rank=2, confidence=.7, keep=(1., 1.)).undo()
        return seen
    seen, again, other = updates(0), updates(0), updates(1)
    size = min(groups, 4)
    assert [s[:2] for s in seen] == [s[:2] for s in again]
    for texts, seeds, told in seen:
        assert len(texts) == len(seeds) == 3 * size and len(set(texts)) == size and texts == [t for t in texts[::3] for _ in range(3)]
        assert told["pictures"] == 3 and told["confidence"] == .7 and told["keep"] == (1., 1.) and told["sampling"]["steps"] == 2
    every = [x for _, seeds, _ in seen for x in seeds]
    assert len(set(every)) == len(every) and not set(every) & {x for _, seeds, _ in other for x in seeds}
    assert {t for texts, _, _ in seen[:4 // size] for t in texts} == set("abcd")
