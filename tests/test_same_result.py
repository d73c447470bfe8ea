"What counts as the same result, and what as a change."
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.artefacts import says_the_same
from fairical_nb.reproduction import planned, reproduce, state


def drawn(path, values, words="A line.", hatch=""):
    from matplotlib.figure import Figure

    from fairical_nb.figures import save_figure
    fig = Figure(figsize=(2, 2))
    fig.subplots().bar(range(len(values)), values, hatch=hatch)
    save_figure(fig, path, words, backup=False)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures_say_the_same_when_nobody_can_see_a_difference(tmp_path, suffix):
    drawn(tmp_path / "old", [1, .5], hatch="//")
    for name, values, words in (("digit", [1, .5 + 1e-12], "A line."), ("higher", [1, .6], "A line."), ("words", [1, .5], "A rising line.")):
        drawn(tmp_path / name, values, words, hatch="//")
    old = (tmp_path / "old").with_suffix(suffix)
    assert [says_the_same((tmp_path / n).with_suffix(suffix), old) for n in ("digit", "higher", "words")] == [True, False, False]


def test_a_compression_is_no_change(tmp_path):
    from PIL import Image
    for name, level in (("a", 1), ("b", 9)):
        Image.fromarray(np.arange(3 * 32 * 32, dtype=np.uint8).reshape(32, 32, 3)).save(tmp_path / f"{name}.png", compress_level=level)
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes() and says_the_same(tmp_path / "a.png", tmp_path / "b.png")


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e100, 1e100), st.floats(-1, 1), st.sampled_from([".csv", ".json"]))
def test_numbers_to_nine_digits(tmp_path_factory, value, step, suffix):
    folder, other = tmp_path_factory.mktemp("digits"), value * (1 + 1e-11 * step)
    text = {".csv": "a,b\n{}\n", ".json": '{{"a": {}, "versions": {{"python": "3.1"}}}}'}[suffix]
    for name, x in (("a", value), ("b", other), ("c", value * 1.0001 + 1)):
        (folder / f"{name}{suffix}").write_text(text.format(repr(x)))
    assert says_the_same(folder / f"a{suffix}", folder / f"b{suffix}")
    assert not says_the_same(folder / f"a{suffix}", folder / f"c{suffix}")


@pytest.mark.parametrize("suffix, old, new", [(".csv", "a\n7\n", "a\n8\n"), (".csv", "a\n1000000000001\n", "a\n1000000000002\n"), (".csv", "a\n0.5\n", "a\n\n"), (".csv", "a\n0.5\n", "a\n0.5\n0.5\n"), (".csv", "a\n0.5\n", "b\n0.5\n"),
                                              (".json", '{"a": null}', '{"a": 0}'), (".json", '{"a": 1, "versions": 1}', '{"versions": 1, "b": 1}'), (".txt", "0.5", "0.50"), (".csv", None, "a\n")])
def test_a_change_is_a_change(tmp_path, suffix, old, new):
    (tmp_path / f"new{suffix}").write_text(new)
    if old is not None:
        (tmp_path / f"old{suffix}").write_text(old)
    assert not says_the_same(tmp_path / f"new{suffix}", tmp_path / f"old{suffix}")


def test_a_run_that_says_the_same_leaves_the_older_file(tmp_path):
    job = planned(["table10b"], out=tmp_path)[0]
    reproduce(["table10b"], out=tmp_path)
    older = (tmp_path / "table10b.json").read_text().replace('"python": "3', '"python": "2')
    (tmp_path / "table10b.json").write_text(older)
    (tmp_path / "table10b.csv").write_text((tmp_path / "table10b.csv").read_text().replace("System2", "System9"))
    reproduce(["table10b"], out=tmp_path)
    assert (tmp_path / "table10b.json").read_text() == older and state(job) == "done"
    assert "System2" in (tmp_path / "table10b.csv").read_text()
