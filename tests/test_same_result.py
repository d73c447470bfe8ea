"What counts as the same result, and what as a change."
import json

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


@pytest.mark.parametrize("step, same", [(5e-10, True), (2e-9, False), (1e-7, False)])
@pytest.mark.parametrize("value", [.5, 3e8, -2e-4])
def test_the_ninth_digit_is_the_last_that_counts(tmp_path, value, step, same):
    for name, x in (("a", value), ("b", value * (1 + step))): (tmp_path / f"{name}.csv").write_text(f"x\n{x!r}\n")
    assert says_the_same(tmp_path / "a.csv", tmp_path / "b.csv") == same


@pytest.mark.parametrize("name", ["artefact", "data", "seed", "parameters", "remarks", "tables", "versions"])
def test_every_word_of_a_results_file_counts_but_the_versions(tmp_path, name):
    for k in "ab": (tmp_path / f"{k}.json").write_text(json.dumps({n: f"{n} {k if n == name else ''}" for n in ("artefact", "data", "seed", "parameters", "remarks", "tables", "versions")}))
    assert says_the_same(tmp_path / "a.json", tmp_path / "b.json") == (name == "versions")


@pytest.mark.parametrize("suffix", [".md", ".txt", ".tex"])
def test_files_of_other_kinds_say_the_same_with_the_same_bytes_only(tmp_path, suffix):
    for name, text in (("a", "0.50"), ("b", "0.500"), ("c", "0.50")): (tmp_path / f"{name}{suffix}").write_text(text)
    assert [says_the_same(tmp_path / f"a{suffix}", tmp_path / f"{n}{suffix}") for n in "bc"] == [False, True]


def test_a_results_file_keeps_what_it_was_given(tmp_path):
    import pandas as pd

    from fairical_nb.artefacts import beside_printed, save
    from fairical_nb.files import read_json
    save("a", {"a": pd.DataFrame({"HV": [.5]}, index=pd.Index(["s"], name="system")), "more": pd.DataFrame({"x": [1]})}, data="printed", seed=[0, 1], parameters={"out": "x", "seed": 3, "n": 4}, remarks="as is", published=pd.DataFrame({"HV": [".5"]}, index=["s"]), out=tmp_path)
    found = read_json(tmp_path / "a.json")
    assert {k: found[k] for k in ("artefact", "data", "data in words", "seed", "parameters", "remarks")} == {"artefact": "a", "data": "printed", "data in words": "computed from printed numbers", "seed": [0, 1], "parameters": {"seed": 3, "n": 4}, "remarks": "as is"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.json", "a_more.csv", "a_published.csv"] and [r["verdict"] for r in beside_printed(found)] == ["equal to the printed digits"]
    assert beside_printed({"tables": {"published": [{"method": "x"}, {"system": "s"}]}}) == [{"system": "s"}] and beside_printed({"tables": {}}) == []


@pytest.mark.parametrize("place, same", [("10.598678", True), ("10.598687", True), ("10.5987", False), ("10.6", False)])
def test_places_in_a_drawing_may_differ_by_what_nobody_sees(tmp_path, place, same):
    "A layout's last decimal is not the same twice; the ids that are made of it neither. In a table the same digits count."
    for name, x, key in (("a", "10.598677", "04b0a2babf"), ("b", place, "ef60e6cea7")):
        (tmp_path / f"{name}.svg").write_text(f'<g clip-path="url(#p{key})"><path d="M {x} 20.5"/></g>')
        (tmp_path / f"{name}.csv").write_text(f"x\n{x}\n")
    assert says_the_same(tmp_path / "a.svg", tmp_path / "b.svg") == same
    assert not says_the_same(tmp_path / "a.csv", tmp_path / "b.csv")
