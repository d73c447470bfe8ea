"The start without labels: the loss against a naive twin, what looks may change, same seed same bytes, and the committed stand-in for DINO."
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.backbones import backbone
from fairical_nb.images import as_images
from fairical_nb.pretraining import STANDIN, TwoLooks, look, pretrain, save_backbone, standin, vicreg
from fairical_nb.standins_glyphs import draw_labels, portraits

torch.set_num_threads(1)


def pictures(n=32, seed=0):
    return as_images(portraits(draw_labels(n, seed=seed), seed=seed))


def naive(a, b, weights=(25., 25., 1.)):
    a, b = a.numpy(), b.numpy()
    loss = weights[0] * ((a - b) ** 2).sum() / a.size
    for z in (a, b):
        c = np.cov(z, rowvar=False)
        loss += weights[1] / 2 * np.mean([max(0, 1 - np.sqrt(c[j, j] + 1e-4)) for j in range(len(c))])
        loss += weights[2] * sum(c[i, j] ** 2 for i in range(len(c)) for j in range(len(c)) if i != j) / len(c)
    return loss


@settings(max_examples=40)
@given(n=st.integers(2, 9), d=st.integers(2, 6), seed=st.integers(0, 999), weights=st.tuples(*[st.floats(0, 30)] * 3))
def test_the_loss_is_its_naive_twin(n, d, seed, weights):
    a, b = 2 * torch.randn(2, n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert vicreg(a, b, weights=weights).item() == pytest.approx(naive(a, b, weights), rel=1e-9, abs=1e-9)
    assert vicreg(b, a, weights=weights).item() == pytest.approx(vicreg(a, b, weights=weights).item())


def test_the_loss_does_not_move_with_the_mean_nor_with_the_order():
    a, b = torch.randn(2, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([2, 0, 1])
    assert vicreg(a + 5, b + 5).item() == pytest.approx(vicreg(a, b).item())
    assert vicreg(a[:, order], b[:, order]).item() == pytest.approx(vicreg(a, b).item())
    assert vicreg(a.flip(0), b.flip(0)).item() == pytest.approx(vicreg(a, b).item())


def test_constant_features_pay_and_have_a_finite_slope():
    z = torch.ones(6, 4, requires_grad=True)
    loss = vicreg(z, z)
    loss.backward()
    assert loss.item() == pytest.approx(25 * .99, rel=1e-4) and torch.isfinite(z.grad).all()


@pytest.mark.parametrize("shapes", [((1, 4), (1, 4)), ((4, 4), (4, 3)), ((4,), (4,))])
def test_other_shapes_are_refused(shapes):
    with pytest.raises(ValueError, match="B >= 2"):
        vicreg(*map(torch.zeros, shapes))


@settings(max_examples=20)
@given(seed=st.integers(0, 999), shift=st.integers(0, 4), colours=st.floats(0, .9), noise=st.floats(0, .2))
def test_a_look_is_a_picture_and_the_original_stays(seed, shift, colours, noise):
    x = pictures(3)
    kept = x.clone()
    torch.manual_seed(seed)
    y = look(x, shift=shift, colours=colours, noise=noise)
    assert y.shape == x.shape and y.min() >= 0 and y.max() <= 1 and torch.equal(x, kept)


def test_a_look_without_changes_is_the_picture_or_its_mirror_image():
    x = pictures(16)
    torch.manual_seed(0)
    y = look(x, shift=0, colours=0, noise=0)
    same, mirrored = ((y - z).abs().amax((1, 2, 3)) == 0 for z in (x, x.flip(-1)))
    assert (same | mirrored).all() and not same.all() and not mirrored.all()


def test_same_seed_same_bytes_and_the_callers_random_numbers_stay():
    before = torch.random.get_rng_state()
    nets = [pretrain(pictures(), steps=3, batch_size=16, seed=s)[0].state_dict() for s in (1, 1, 2)]
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(nets[0].values(), nets[1].values()))
    assert any(not torch.equal(a, b) for a, b in zip(nets[0].values(), nets[2].values()))


def test_pretraining_lowers_the_loss():
    _, history = pretrain(pictures(128), steps=16, batch_size=32)
    assert history.steps.loss.iloc[-4:].mean() < history.steps.loss.iloc[:4].mean()


def test_the_projection_is_thrown_away():
    model = TwoLooks(backbone(), width=16)
    torch.manual_seed(0)
    model(pictures(8)).backward()
    assert model.net.patch_embed.proj.weight.grad.abs().sum() > 0
    net, _ = pretrain(pictures(), steps=1, batch_size=16)
    assert set(net.state_dict()) == set(backbone().state_dict())


def test_saved_weights_are_a_backbone_again(tmp_path):
    net, _ = pretrain(pictures(), steps=1, batch_size=16)
    save_backbone(net, tmp_path / "net.safetensors")
    again = backbone(weights=tmp_path / "net.safetensors")
    assert all(torch.allclose(a, b, atol=2e-3, rtol=1e-3) for a, b in zip(net.state_dict().values(), again.state_dict().values()))
    assert (tmp_path / "net.safetensors").stat().st_size < 400_000


def test_the_committed_stand_in_knows_more_than_a_random_network():
    "Without labels: two looks at a picture lie nearer to each other than to other pictures, more than in a random network."
    x = as_images(portraits(draw_labels(64, seed=77), seed=77, **STANDIN["portraits"]))
    def found(net):
        torch.manual_seed(1)
        mean, std = (torch.tensor(c)[:, None, None] for c in (net.mean, net.std))
        with torch.no_grad(): a, b = ((lambda z: (z - z.mean(0)) / z.std(0))(net.eval()((look(x) - mean) / std)) for _ in "ab")
        return (torch.cdist(a, b).argmin(1) == torch.arange(64)).float().mean().item()
    torch.manual_seed(0)
    assert found(backbone(weights=standin())) > found(backbone()) + .1


def test_the_stand_in_is_refused_when_it_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr("fairical_nb.pretraining.root", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match="save_backbone"):
        standin()


@pytest.mark.parametrize("colours", [.3, .6])
def test_a_look_moves_contrast_and_brightness_of_each_colour_as_far_as_it_says(colours):
    torch.manual_seed(0)
    x = torch.full((3000, 3, 4, 4), .45)
    x[:, :, 2:] = .55
    y = look(x, shift=0, colours=colours, noise=0)[..., 0]
    gain, middle = (y[..., 3] - y[..., 0]) / .1, (y[..., 3] + y[..., 0]) / 2
    for seen, low, high in ((gain, 1 - 2 / 3 * colours, 1 + 2 / 3 * colours), (middle, .5 - colours / 2, .5 + colours / 2)):
        assert low - 1e-4 <= seen.min() < low + .01 and high - .01 < seen.max() <= high + 1e-4 and abs(seen.mean() - (low + high) / 2) < .01
    assert abs(np.corrcoef(gain.T.numpy()) - np.eye(3)).max() < .1 and abs(np.corrcoef(gain.flatten(), middle.flatten())[0, 1]) < .1  # drawn one by one


def test_a_look_permutes_colours_in_all_six_orders():
    torch.manual_seed(0)
    x = torch.tensor([.3, .5, .7])[None, :, None, None].expand(3000, 3, 4, 4)
    y = look(x, shift=0, colours=1e-4, noise=0)[:, :, 0, 0]
    orders, n = np.unique(y.argsort(1).numpy(), axis=0, return_counts=True)
    assert len(orders) == 6 and n.min() > 400 and torch.allclose(y.sort(1).values, x[:, :, 0, 0], atol=1e-3)


def test_a_look_shifts_by_at_most_three_pixels_and_its_noise_has_the_width_it_says():
    torch.manual_seed(0)
    x = torch.zeros(2000, 3, 16, 16)
    x[:, :, 8, 8] = 1
    rows = look(x, colours=0, noise=0)[:, 0].amax(2).argmax(1)
    assert sorted(set((rows - 8).tolist())) == [-3, -2, -1, 0, 1, 2, 3]
    assert (look(torch.full((200, 3, 16, 16), .5), colours=0) - .5).std().item() == pytest.approx(.03, rel=.02)
    assert (look(torch.full((200, 3, 16, 16), .5), colours=0, noise=.1) - .5).std().item() == pytest.approx(.1, rel=.02)


def test_the_network_sees_both_looks_normalised_as_it_says(monkeypatch):
    model, seen, looks = TwoLooks(backbone(), width=8), [], iter([pictures(4), pictures(4, seed=1)])
    both = torch.cat([pictures(4), pictures(4, seed=1)])
    monkeypatch.setattr("fairical_nb.pretraining.look", lambda images: next(looks))
    monkeypatch.setattr(model.net, "forward", lambda x: seen.append(x) or torch.randn(len(x), model.net.num_features))
    model(pictures(4))
    mean, std = (torch.tensor(c)[:, None, None] for c in (model.net.mean, model.net.std))
    assert torch.allclose(seen[0], (both - mean) / std)


@pytest.mark.parametrize("given, want", [({}, dict(steps=200, batch_size=64, lr=2e-3, seed=0, schedule="one_cycle", weight_decay=2e-2)), (dict(steps=3, batch_size=5, lr=1., seed=7, schedule="cosine", weight_decay=.5, clip=2.),) * 2])
def test_the_recipe_reaches_the_loop(monkeypatch, given, want):
    asked = []
    monkeypatch.setattr("fairical_nb.pretraining.fit", lambda model, loss, data, **options: asked.append(options) or "history")
    assert pretrain(pictures(2), **given)[1] == "history" and asked == [want]
