"""The wavelet view of a batch beside PyWavelets image by image, and how many pictures a labeller labels, measured in one run.

python benchmarks/spafreq.py [--rows NAME ...] [--repeats N]

Results go to benchmarks/results/spafreq.json and spafreq.csv. On one CPU thread the
operator is slower than PyWavelets for large pictures and faster for many small ones; it pays on a GPU and where gradients are needed, so no
ratio is promised. How it measures: README.md beside this file.
"""
from harness import Row, main, widest


def make_images(n, size):
    "Random pictures; the bands' content does not change the work."
    def make(small=False):
        import numpy as np
        return {"images": np.random.default_rng(0).random((4 if small else n, 3, size, size), dtype=np.float32)}
    return make


def view(d):
    "All three bands of the batch at their own size, as numbers that can be compared."
    import torch
    from fairical_nb.bands import wavelet_view
    torch.set_num_threads(1)
    return wavelet_view(torch.from_numpy(d["images"])).double().mean((2, 3)).flatten().tolist()


def view_by_loop(d):
    "Grey, pywt.dwt2, each band to [0, 1]; one picture after the other."
    import numpy as np
    import pywt
    out = []
    for x in d["images"]:
        grey = np.tensordot(np.float32([.2989, .587, .114]), x, 1)
        cA, (cH, cV, _) = pywt.dwt2(grey, "db4", mode="symmetric")
        for b in (cA, cH, cV):
            out.append(float(((b - b.min())/(b.max() - b.min() + 1e-6)).mean(dtype=np.float64)))
    return out


def close(a, b):
    "The difference beyond what float32 leaves (1e-6 in a mean of values in [0, 1])."
    return max(0., widest(a, b) - 1e-6)


def label(d):
    "Both views, mirror image too: a small labeller of three attributes."
    import torch
    from fairical_nb.attributes import TAXONOMY
    from fairical_nb.fusion import SpaFreq
    from fairical_nb.labelling import Labeller
    torch.set_num_threads(1)
    return {"pictures": len(Labeller(SpaFreq(TAXONOMY, seed=0)).label(torch.from_numpy(d["images"])))}


ROWS = {
    "wavelet_view": Row("wavelet view (db4, three bands) of 64 pictures of 224 x 224", make_images(64, 224), view, view_by_loop, reference_name="pywt.dwt2, picture by picture",
                        repeats=(5, 5), same=close, needs=("torch",)),
    "wavelet_view_small": Row("the same of 1,024 pictures of 32 x 32", make_images(1024, 32), view, view_by_loop, reference_name="pywt.dwt2, picture by picture",
                              repeats=(5, 5), same=close, needs=("torch",)),
    "label": Row("labels of 1,024 pictures of 32 x 32, three attributes, two views, mirror image too", make_images(1024, 32), label, repeats=(3, 1), megabytes=2000, needs=("torch", "timm")),
}


if __name__ == "__main__":
    main(ROWS, "spafreq", "The wavelet view and labelling; results in benchmarks/results")
