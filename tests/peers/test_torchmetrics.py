"torchmetrics as the judge of the distances between sets of features: the same numbers on the same features."
import warnings

import numpy as np
import pytest
from scipy.linalg import sqrtm

from fairical_nb.quality import FewImagesWarning, compare_features, frechet_distance, kernel_distance

torch = pytest.importorskip("torch")
pytest.importorskip("torchmetrics")
torch.set_num_threads(1)


class Flat(torch.nn.Module):
    "A feature network that returns what it is given."
    num_features = 6

    def forward(self, x):
        return x.flatten(1).double()


def sets(n=400, m=300):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 6)) @ rng.normal(size=(6, 6)), rng.normal(size=(m, 6)) + .5


def fed(metric, a, b):
    metric.set_dtype(torch.float64)
    for x, real in ((a, True), (b, False)): metric.update(torch.tensor(x).view(len(x), 6, 1, 1), real=real)
    return metric.compute()


def test_frechet_distance_is_that_of_torchmetrics():
    from torchmetrics.image.fid import FrechetInceptionDistance
    a, b = sets()
    try: metric = FrechetInceptionDistance(feature=Flat(), normalize=True, input_img_size=(6, 1, 1))
    except (ModuleNotFoundError, RuntimeError) as e: pytest.skip(f"torchmetrics cannot take a network of ours: {e}")
    assert frechet_distance(a, b) == pytest.approx(float(fed(metric, a, b)), rel=1e-6)


def test_kernel_distance_is_that_of_torchmetrics():
    from torchmetrics.image.kid import KernelInceptionDistance
    a, b = sets(300, 300)
    try: metric = KernelInceptionDistance(feature=Flat(), subsets=1, subset_size=300, normalize=True)
    except (ModuleNotFoundError, RuntimeError) as e: pytest.skip(f"torchmetrics cannot take a network of ours: {e}")
    assert kernel_distance(a, b)[0] == pytest.approx(float(fed(metric, a, b)[0]), rel=1e-6)


def test_frechet_distance_is_the_textbook_formula():
    a, b = sets()
    root = sqrtm(np.cov(a.T) @ np.cov(b.T)).real
    assert frechet_distance(a, b) == pytest.approx(((a.mean(0) - b.mean(0))**2).sum() + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * root), rel=1e-9)


def test_I03_the_number_of_images_stands_beside_the_distance_and_few_are_warned_of():
    rng = np.random.default_rng(0)
    draw = lambda n: rng.normal(size=(n, 64))
    with pytest.warns(FewImagesWarning, match="64 images for features of 64"): few = compare_features({"few": draw(64)}, draw(4096), subset=200, subsets=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many = compare_features({"many": draw(4096)}, draw(4096), subset=1000, subsets=5)
    assert (few.loc["few", ["n", "n_reference", "d"]] == [64, 4096, 64]).all() and many.loc["many", "n"] == 4096
    assert few.loc["few", "frechet"] > 10 * many.loc["many", "frechet"]
    assert abs(few.loc["few", "kernel"]) < .1 and abs(many.loc["many", "kernel"]) < .01


def test_I04_one_image_is_refused_in_words():
    with pytest.raises(ValueError, match="at least 2 images, but there is 1"): frechet_distance(np.zeros((1, 3)), np.zeros((5, 3)))
    with pytest.raises(ValueError, match="at least 2 images"): kernel_distance(np.zeros((5, 3)), np.zeros((1, 3)))
