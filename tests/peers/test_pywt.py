"PyWavelets, picture by picture, judges the wavelet operators: every border mode, odd and even sizes, several wavelets."
import numpy as np
import pytest
import pywt
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.bands import FLAT, GREY, dwt2, operators, wavelet_view

torch.set_num_threads(1)
INSIDE = sorted(set(pywt.Modes.modes) - {"smooth", "antireflect"})  # those whose continuation stays within the picture's range
TOLERANCE = {torch.float64: 2e-15, torch.float32: 6e-7}


def off(x, wavelet, mode):
    "Largest difference to PyWavelets on the same numbers in double precision."
    a, (h, v, d) = pywt.dwt2(x.double().numpy(), wavelet, mode=mode)
    ours = dwt2(x, wavelet=wavelet, mode=mode)
    assert all(o.dtype == x.dtype for o in ours)
    return max(float((torch.as_tensor(p) - o.double()).abs().max()) for p, o in zip((a, h, v, d), ours))


def picture(h, w, dtype, seed=0):
    return torch.rand(h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("mode", INSIDE)
@pytest.mark.parametrize("size", [(224, 224), (223, 223), (32, 32), (13, 10), (9, 2)], ids=str)
def test_every_mode_and_size(mode, size, dtype):
    assert off(picture(*size, dtype), "db4", mode) <= TOLERANCE[dtype]


@pytest.mark.parametrize("mode", ["smooth", "antireflect"])
def test_modes_that_continue_a_slope_have_larger_numbers(mode):
    assert off(picture(33, 40, torch.float64), "db4", mode) <= 2e-14


@pytest.mark.parametrize("wavelet", ["haar", "db2", "db8", "sym5", "coif2", "bior3.5"])
def test_other_wavelets(wavelet):
    assert off(picture(21, 34, torch.float64), wavelet, "symmetric") <= 5e-15


@settings(max_examples=40)
@given(h=st.integers(1, 40), w=st.integers(1, 40), mode=st.sampled_from(["symmetric", "periodization", "zero", "periodic"]), seed=st.integers(0, 99))
def test_any_size(h, w, mode, seed):
    assert off(picture(h, w, torch.float64, seed), "db4", mode) <= 2e-15


def test_I01_odd_sizes_and_the_two_periodic_modes():
    "Odd sizes work, the band's size is PyWavelets', and periodic is not periodization."
    for mode in pywt.Modes.modes:
        for n in (223, 224, 5):
            assert len(operators(n, mode=mode)[0]) == pywt.dwt_coeff_len(n, 8, mode)
    assert [len(operators(223, mode=m)[0]) for m in ("periodization", "periodic")] == [112, 115]
    assert wavelet_view(torch.rand(1, 3, 223, 223)).shape == (1, 3, 115, 115)


def naive_view(images, wavelet, mode):
    "The contract, one picture and one band at a time."
    found = []
    for x in images.numpy():
        grey = sum(w * c for w, c in zip(GREY, x))
        a, (h, v, _) = pywt.dwt2(grey, wavelet, mode=mode)
        found.append([np.zeros_like(b) if b.max() - b.min() < FLAT else (b - b.min()) / (b.max() - b.min() + 1e-6) for b in (a, h, v)])
    return torch.as_tensor(np.array(found))


@settings(max_examples=25)
@given(n=st.integers(1, 3), h=st.integers(6, 24), w=st.integers(6, 24), mode=st.sampled_from(["symmetric", "zero", "periodization"]), wavelet=st.sampled_from(["db4", "haar"]), seed=st.integers(0, 99))
def test_the_view_is_its_naive_twin(n, h, w, mode, wavelet, seed):
    images = torch.rand(n, 3, h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(wavelet_view(images, wavelet=wavelet, mode=mode), naive_view(images, wavelet, mode), atol=1e-11, rtol=0)
