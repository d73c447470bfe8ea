"The twin with a UNet: its parts, its loss, and that the committed weights come from this code."
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from fairical_nb import tiny_pipeline, tiny_sd15  # noqa: E402
from fairical_nb.families import family  # noqa: E402
from fairical_nb.files import read_json  # noqa: E402
from fairical_nb.glyph_labellers import SEEDS  # noqa: E402
from fairical_nb.glyph_world import examples, pictured  # noqa: E402
from fairical_nb.rollout import rollout, transition  # noqa: E402
from fairical_nb.tiny_parts_training import encoded  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def pipe():
    return tiny_sd15.load()


@pytest.fixture(scope="module")
def made():
    return read_json(tiny_pipeline.weights("tiny_sd15") / "training.json")


def test_network_is_small_and_weights_are_half(pipe):
    from safetensors.torch import load_file
    assert sum(p.numel() for p in pipe.unet.parameters()) <= 400_000
    folder = tiny_pipeline.weights("tiny_sd15")
    assert sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) < 2e6
    for f in folder.rglob("*.safetensors"):
        assert {t.dtype for t in load_file(f).values() if t.is_floating_point()} == {torch.float16}, f


def test_noise_loss_of_who_knows_the_noise_is_zero(pipe):
    class Knows(torch.nn.Module):
        def forward(self, x, t, text, return_dict):
            a = pipe.scheduler.alphas_cumprod[t].view(-1, 1, 1, 1)
            return (x / (1 - a).sqrt(),)  # the latent is 0, so all that is there is noise
    model = tiny_sd15.Noise(pipe)
    model.unet = Knows()
    batch = {"latent": torch.zeros(6, 8, 8, 8), "ids": model.tokens(["a photo of a person"] * 6)}
    torch.manual_seed(0)
    with torch.no_grad():
        assert tiny_sd15.noise_loss(model, batch).item() < 1e-8


def test_first_losses_are_those_recorded(monkeypatch, made):
    "From the same start, on the rows of the first steps; the latents come from the committed autoencoder in half precision."
    from fairical_nb.recipes import Recipe
    from fairical_nb.training import epoch_rows

    class Enough(Exception):
        pass
    n, at, seen = made["examples"], SEEDS["examples"], []
    table = examples(n, seed=at)
    rows = epoch_rows(n, Recipe(steps=made["stages"]["noise"]["steps"], batch_size=64, seed=made["seed"]), 0)[:3 * 64]
    latent = torch.zeros(n, 8, 8, 8)
    latent[rows] = encoded(tiny_sd15.new_sd15().vae, pictured(table, seed=at)[rows])
    loss = tiny_sd15.noise_loss

    def counted(model, batch):
        if len(seen) == 3:
            raise Enough
        value = loss(model, batch)
        seen.append(float(value.detach()))
        return value
    monkeypatch.setattr(tiny_sd15, "noise_loss", counted)
    monkeypatch.setattr(tiny_sd15, "encoded", lambda vae, images: latent)
    monkeypatch.setattr(tiny_sd15, "pictured", lambda table, seed: None)
    with pytest.raises(Enough):
        tiny_sd15.train(made["seed"], "never_written", steps=made["stages"]["noise"]["steps"])
    assert seen == pytest.approx(made["stages"]["noise"]["first"][:3], rel=1e-2)


def test_committed_weights_have_the_loss_that_training_ended_with(made, pipe):
    table = examples(made["examples"], seed=SEEDS["examples"])
    pictures, table, model = pictured(table, seed=SEEDS["examples"])[:512], table.iloc[:512], tiny_sd15.Noise(pipe)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        batch = {"latent": encoded(pipe.vae, pictures), "ids": model.tokens(table["prompt"])}
        seen = np.mean([tiny_sd15.noise_loss(model, batch).item() for _ in range(4)])
    assert seen == pytest.approx(made["stages"]["noise"]["means"][-1], rel=.1)


def test_rollout_by_ddim_with_noise_has_standard_residuals_and_repeats_its_log_probabilities(pipe):
    adapter = family(pipe)
    walk = rollout(adapter, ["a photo of a person"] * 24, range(24), steps=6)
    with torch.no_grad():
        for t in walk.noisy[:3]:
            again, *_ = transition(adapter, walk, t)
            assert torch.allclose(again, walk.logp[t], atol=1e-4)
    assert len(walk.noisy) >= 4 and all(torch.isfinite(walk.logp[t]).all() for t in walk.noisy)


def test_fair_grpo_takes_a_step_on_the_twin(pipe):
    from fairical_nb.glyph_world import captions
    from fairical_nb.grpo_settings import settings
    from fairical_nb.grpo_trainer import train
    s = settings("tiny", sigmas=None, max_sequence_length=None, level=None, groups=2, pictures=4, batch=8, rank=2, steps=4, updates=2, time_steps=2)
    trained = train(tiny_sd15.load(), tiny_pipeline.labeller(), captions(split="train"), preset=s)
    assert np.isfinite(trained.table["loss"]).all() and (trained.table["on_far"] < 1e-4).all() and (trained.table["off_far"] > 0).all()
