"The public contract of the second paper's half: wrong values are refused with ValueError, never answered by NaN, by a wrong sign, or by another kind of error; results have the rows that are promised."
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from fairical_nb.advantages import gdpo, history_advantages
from fairical_nb.fairgrpo import advantages, policy_loss, rewards
from fairical_nb.mgbi import entropy, from_counts, mgbi
from fairical_nb.prompt_debias import projection
from fairical_nb.quality import frechet_distance
from fairical_nb.rollout import ddim_step, flow_sde_step, gaussian_kl
from fairical_nb.spafreq import wavelet_view
from fairical_nb.uce import closed_form

torch.set_num_threads(1)
NAN, INF = float("nan"), float("inf")
X, ROW, ZERO = torch.ones(2, 3, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64), torch.zeros(3)
W, C, V, PAIRS = np.eye(3), np.ones((2, 3)), np.ones((2, 3)), np.arange(1., 25).reshape(4, 2, 3)
FINE, R, IMAGES = {"": {"a": [1, 2]}, "x": {"a": [1, 1]}}, [[1., 2.]], torch.rand(1, 3, 8, 8)
TABLE = pd.DataFrame({"trigger": ["", "", "x", "x"], "a": ["u", "v", "u", "v"]})

WRONG = {
    "entropy": [lambda p=p: entropy(p) for p in ([], [1], [0, 0], [-1, 2], [NAN, 1], [INF, 1], [[1, 2], [3, 4]])],
    "from_counts": [lambda c=c: from_counts(c) for c in (None, {}, [1, 2], {"": [1, 2], "x": [1, 2]}, {"": {}, "x": {}}, FINE | {3: {"a": [1, 1]}}, FINE | {None: {"a": [1, 1]}}, {"": {"a": 3}, "x": {"a": 3}},
                                                         {"": {"a": [3]}, "x": {"a": [3]}}, {"": {"a": [1, -2]}, "x": {"a": [1, 1]}}, FINE | {"y": {"a": [0, 0]}}, FINE | {"y": {"a": [1, 1, 1]}}, FINE | {"y": {"b": [1, 1]}}, {"x": {"a": [1, 1]}}, {"": {"a": [1, 1]}})],
    "mgbi's options": [lambda k=k: from_counts(FINE, **k) for k in (dict(q=-.1), dict(q=NAN), dict(method="no"), dict(eps=-1), dict(eps=NAN), dict(ca_eps=2), dict(target={"b": [.5, .5]}), dict(target={"a": [.5, .6]}), dict(target={"a": [1, 0]}), dict(target={"a": [.2, .3, .5]}), dict(target={"a": [NAN, .5]}))],
    "mgbi": [lambda: mgbi(TABLE.assign(a=list("uvwv")), {"a": ["u", "v"]}), lambda: mgbi(TABLE[2:], {"a": ["u", "v"]}), lambda: mgbi(TABLE[:2], {"a": ["u", "v"]}), lambda: mgbi(TABLE[:0], {"a": ["u", "v"]}), lambda: mgbi(TABLE, ["a"]), lambda: mgbi(TABLE, {"a": ["u", "v", "u"]}),
             lambda: mgbi(TABLE, {"a": ["u", "v"]}).interval(), lambda: mgbi(TABLE, {"a": ["u", "v"]}).interval(kind="no"), lambda: mgbi(TABLE, {"a": ["u", "v"]}).interval(0, cluster=None)],
    "rewards": [lambda: rewards([[2], [0]], [2]), lambda: rewards([[-1], [0]], [2]), lambda: rewards([[.5], [0]], [2]), lambda: rewards([[0]], [2]), lambda: rewards([0, 1], [2]), lambda: rewards([[0], [0]], [1])]
               + [lambda k=k: rewards([[0], [1]], [2], **k) for k in (dict(eps=0), dict(eps=NAN), dict(clip=0), dict(clip=NAN), dict(weights=[1, 2]), dict(weights=[NAN]), dict(target={0: [.5, .6]}), dict(target={1: [.5, .5]}), dict(undetermined="no"))],
    "advantages": [lambda: advantages([[1.]]), lambda: advantages([1., 2.]), lambda: advantages([[1, NAN]]), lambda: advantages(np.zeros((3, 0)))] + [lambda k=k: advantages(R, **k) for k in (dict(norm="no"), dict(clip=0), dict(clip=-5), dict(clip=NAN), dict(eps=-1), dict(eps=NAN), dict(eps=INF))],
    "history and gdpo": [lambda k=k: history_advantages(R, {}, [0], **k) for k in (dict(norm="no"), dict(clip=-5), dict(clip=NAN), dict(eps=-1), dict(momentum=1))] + [lambda k=k: gdpo([[[1., 2.], [2., 1.]]], **k) for k in (dict(clip=-5), dict(eps=-1), dict(eps=NAN), dict(weights=[1]), dict(weights=[NAN, 1]), dict(weights=[-1, 1]))],
    "policy_loss": [lambda: policy_loss(ZERO, ZERO, ZERO, clip=0), lambda: policy_loss(ZERO, ZERO, ZERO, clip=NAN), lambda: policy_loss(ZERO, ZERO, torch.zeros(1), clip=.2), lambda: policy_loss(ZERO, ZERO, ZERO * NAN, clip=.2), lambda: policy_loss(ZERO[:0], ZERO[:0], ZERO[:0], clip=.2)],
    "flow_sde_step": [lambda a=a: flow_sde_step(*a) for a in ((X, X, .3, .4, X), (X, X, .3, .3, X), (X, X, 1.2, .4, X), (X, X, NAN, .4, X), (X, ROW, .5, .4, X), (X, X, .5, .4, ROW), (X, X, .5, .4, None), (X, X, torch.ones(3), .4, X))]
                     + [lambda k=k: flow_sde_step(X, X, 1., .4, X, **k) for k in (dict(a=-1), dict(a=NAN), dict(reduce="no"), dict(reduce="no", a=0), dict(x_next=ROW), dict(sigma_cap=1.))],
    "ddim_step": [lambda a=a: ddim_step(*a) for a in ((X, X, 0., .5, X), (X, X, .5, .4, X), (X, X, .3, NAN, X), (X, ROW, .3, .4, X), (X, X, .3, .4, ROW), (X, X, .3, .4, None))] + [lambda k=k: ddim_step(X, X, .3, .4, X, **k) for k in (dict(eta=-1), dict(eta=1.5), dict(eta=NAN), dict(reduce="no", eta=0), dict(x_next=ROW))],
    "gaussian_kl": [lambda s=s: gaussian_kl(X, X, s) for s in (0., -1., NAN, INF, torch.ones(5))] + [lambda k=k: gaussian_kl(X, X, 1., **k) for k in (dict(form="velocity"), dict(form="flow_grpo"), dict(form="flow_grpo", dt=0.), dict(form="flow_grpo", dt=NAN), dict(reduce="no"))] + [lambda: gaussian_kl(X, ROW, 1.)],
    "wavelet_view": [lambda i=i: wavelet_view(i) for i in (IMAGES * 255, IMAGES * NAN, IMAGES[0], IMAGES[:, :1], IMAGES.numpy(), (IMAGES * 255).to(torch.uint8), IMAGES[:, :, :0])] + [lambda k=k: wavelet_view(IMAGES, **k) for k in (dict(size=0), dict(size=-3), dict(size=4.5), dict(mode="no"), dict(wavelet="morl"))],
    "closed_form": [lambda: closed_form(W * NAN, C, V), lambda: closed_form(W[0], C, V), lambda: closed_form(W, C[:, :2], V), lambda: closed_form(W, C, V[:1]), lambda: closed_form(W, C * INF, V)] + [lambda k=k: closed_form(W, C, V, **k) for k in (dict(lam=0), dict(lam=INF), dict(lam=NAN), dict(scale=-1), dict(scale=INF), dict(keep=C * NAN), dict(keep=C, keep_scale=INF))],
    "projection": [lambda p=p: projection(p) for p in (PAIRS[0], PAIRS[:0], PAIRS * 0, PAIRS * INF, np.ones((2, 3, 4)))] + [lambda lam=lam: projection(PAIRS, lam=lam) for lam in (-1, NAN)],
    "frechet_distance": [lambda a=a, b=b: frechet_distance(a, b) for a, b in ((C[:1], C), (C[:0], C), (C, C[:, :2]), (C * NAN, C), (C[0], C), (C[:, :0], C[:, :0]))],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, k", [(name, k) for name, calls in WRONG.items() for k in range(len(calls))])
def test_wrong_values_are_refused_in_words(name, k):
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+") as said: WRONG[name][k]()
    assert type(said.value) is ValueError, "a ValueError of ours, not one of a library underneath"


def test_an_interval_has_the_four_promised_rows_and_the_least_trigger_on_demand():
    with warnings.catch_warnings(action="ignore"):
        r = from_counts({"": {"a": [30, 20]}, "x": {"a": [30, 5]}, "y": {"a": [9, 9]}})
        four, five = r.interval(30, cluster=None), r.interval(30, cluster=None, worst=True)
    assert four.index.tolist() == ["ID", "CA", "CA_mean", "MGBI"] and four.columns.tolist() == ["low", "high", "bias"]
    assert five.index.tolist() == [*four.index, "worst"] and five.loc[four.index].equals(four)


def test_projection_without_bound_removes_the_directions():
    P, d = projection(PAIRS[:1], lam=INF), np.subtract(*(PAIRS[0] / np.linalg.norm(PAIRS[0], axis=1, keepdims=True)))
    assert np.allclose(P @ P, P) and np.allclose(P @ d, 0) and np.allclose(P, projection(PAIRS[:1], lam=1e12), atol=1e-6) and np.trace(P) == pytest.approx(2)


def test_number_formats_of_divergence_and_distance():
    "Single precision of the spread does not lower that of double means; features in brain floats are read."
    mean, ref = torch.full((2, 3), .1, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    one, many = gaussian_kl(mean, ref, torch.tensor([.3, .3])), gaussian_kl(mean, ref, torch.full((2, 1), .3))
    assert torch.equal(one, many) and one.dtype == torch.float64
    a = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert frechet_distance(a, a.double() + 1) == pytest.approx(2)
