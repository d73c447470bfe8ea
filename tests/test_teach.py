"Checks and panels of the lessons: tolerant, silent about the answers, and live without a browser."
import itertools
import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import pywt
from hypothesis import given, settings, strategies as st
from scipy.stats import entropy as scipy_entropy

from fairical_nb import teach_panels, teach_panels_images
from fairical_nb.files import root
from fairical_nb.indicators import AXES, compare
from fairical_nb.radar import orders
from fairical_nb.teach import _agrees, _hash, answer, check, exercises, write_answers
from fairical_nb.teach_panels import Choice, Panel, Slider, choices_panel, radii_panel, reference_panel, threshold_panel
from fairical_nb.teach_panels_images import BEFORE, beta_panel, share_panel, tilted, wavelet_panel

PANELS = [radii_panel, threshold_panel, reference_panel, choices_panel, share_panel, wavelet_panel, beta_panel]


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "lessons.json"
    entries = {"L1.1": answer("L1.1", .27, question="The area?", grid=.005, hint="Neighbours.", mistakes=[(.2, "The wrong order.")]),
               "L1.2": answer("L1.2", [.218, .376], question="Smallest and largest?", grid=.003), "L1.3": answer("L1.3", "cH", question="Which band?"),
               "L2.1": answer("L2.1", ["UD", "AS"], question="Which two?", any_order=True), "L2.2": answer("L2.2", float("nan"), question="What is 0/0?", grid=.1),
               "L2.3": answer("L2.3", [3, 1, 2], question="Which three?", grid=.3, any_order=True)}
    write_answers(entries, path)
    return path


@given(value=st.floats(-50, 50), grid=st.sampled_from([.001, .005, .1, 1.]), off=st.floats(-4, 4))
@settings(max_examples=50)
def test_within_one_step_is_right_and_beyond_two_is_not(value, grid, off):
    entry = answer("X.1", value, question="?", grid=grid)
    right = _agrees([value + off * grid], entry["hashes"], entry)
    if abs(off) < .999:
        assert right
    if abs(off) > 2.001:
        assert not right


@pytest.mark.parametrize("exercise, value, right", [("L1.1", .27, True), ("L1.1", np.float32(.2749), True), ("L1.1", ".27", True), ("L1.1", .29, False), ("L1.1", np.nan, False), ("L1.1", np.inf, False), ("L1.1", "a", False), ("L1.1", [.27, .27], False), ("L1.1", [.27], True),
                                                    ("L1.2", (.2181, .3759), True), ("L1.2", pd.Series([.218, .376]), True), ("L1.2", (.376, .218), False), ("L1.2", [1, [2, 3]], False), ("L1.3", " 'CH' ", True), ("L1.3", "cV", False), ("L2.1", ["as", "UD"], True), ("L2.1", ["as", "as"], False),
                                                    ("L2.2", float("nan"), True), ("L2.2", 0, False), ("L2.3", np.array([1, 2, 3]), True), ("L2.3", [1, 2, 2], False)])
def test_verdicts(book, exercise, value, right):
    said = check(exercise, value, answers=book)
    assert said.right is right and bool(said) is right and exercise in repr(said) and ("right" in repr(said)) == right


def test_not_tried_shows_the_question(book):
    for value in (..., None):
        said = check("L1.1", value, answers=book)
        assert said.right is None and not said and repr(said) == "L1.1: your turn. The area?" and said._repr_markdown_().startswith("**? L1.1: your turn.**")


def test_help_for_mistakes_hints_and_kinds(book):
    assert check("L1.1", .2, answers=book).say == "The wrong order." and check("L1.1", .5, answers=book).say == "Neighbours."
    assert check("L1.1", "half", answers=book).say == "Needed is a number, but there is 'half'." and check("L1.2", .2, answers=book).say == "Needed are 2 values, there is 1."


def test_no_answer_stands_in_the_file(book):
    text = book.read_text()
    assert not re.search(r"0?\.27|0?\.218|0?\.376|cH|NaN", text) and json.loads(text)["L1.1"]["salt"] != json.loads(text)["L1.2"]["salt"]
    same = [answer(e, .5, question="?", grid=.1)["hashes"] for e in ("A.1", "A.2")]
    assert same[0] != same[1] and answer("A.3", [.5, .5], question="?", grid=.1)["hashes"][0] != answer("A.3", [.5, .5], question="?", grid=.1)["hashes"][1]


def test_same_seed_same_file_and_others_stay(book):
    before = book.read_text()
    write_answers({"L1.3": answer("L1.3", "cH", question="Which band?")}, book)
    assert book.read_text() == before
    write_answers({"L9.1": answer("L9.1", 1, question="One?", grid=.1)}, book)
    assert exercises(answers=book).index.tolist() == ["L1.1", "L1.2", "L1.3", "L2.1", "L2.2", "L2.3", "L9.1"]
    assert exercises(lesson="L9", answers=book)["values"].tolist() == [1]
    assert answer("A.1", 1, question="?", grid=1, seed=1)["hashes"] != answer("A.1", 1, question="?", grid=1)["hashes"] and len(_hash("a", "b")) == 32


def test_bad_input_of_the_instructor(book):
    with pytest.raises(ValueError, match="no exercise is called 'L1.9': did you mean 'L1.[123]'"):
        check("L1.9", 1, answers=book)
    with pytest.raises(ValueError, match="grid of A.1 must be > 0, but it is -1"):
        answer("A.1", 1, question="?", grid=-1)
    with pytest.raises(ValueError, match="the mistake .28 would be accepted as right|the mistake 0.28 would be accepted as right"):
        answer("A.1", .27, question="?", grid=.01, mistakes=[(.28, "no")])


# The published exercises: answers are computed here or taken from design, never from the file

ANSWERS = {"L1.1": [.27, .208], "L1.2": "HGF System1", "L1.3": .205, "L1.4": .2875, "L1.5": "AS", "L2.1": .5, "L2.2": [0, 1], "L2.3": np.nan, "L2.4": .07, "L3.1": .81, "L3.2": .25, "L3.3": .56, "L3.4": ["f", "A", "B", "E"], "L3.5": 1.425,
           "L4.1": 1, "L4.2": [.218, .376], "L4.3": 2, "L4.4": [.634, .5], "L4.5": .228, "L5.1": .4843, "L5.2": [.18, .10], "L5.3": .947, "L5.4": .946, "L5.5": .894,
           "L6.1": 115, "L6.2": "cH", "L6.3": .5, "L6.4": [2.83, 0], "L6.5": .469, "L7.1": 0, "L7.2": [-5, 5], "L7.3": [-3.78, 1.89], "L7.4": 1, "L7.5": 0}
WRONG = {"L1.1": [1.35, 1.04], "L1.4": .27, "L2.1": .167, "L2.2": [0, 0], "L2.3": 0, "L2.4": .03, "L3.1": .09, "L3.2": .65, "L3.3": 1.01, "L4.1": 20, "L4.4": [.667, .536], "L4.5": .41, "L5.1": .55255, "L5.4": 1.5, "L5.5": .943, "L6.1": 112, "L6.4": [4, 0], "L6.5": .1, "L7.5": -4.06}


@pytest.mark.parametrize("exercise", ANSWERS)
def test_published_answers(exercise):
    assert check(exercise, ANSWERS[exercise])
    assert check(exercise, ...).right is None and len(check(exercise, ...).say) > 20


@pytest.mark.parametrize("exercise", WRONG)
def test_common_mistakes_are_told(exercise):
    said, hint = check(exercise, WRONG[exercise]), check(exercise, [12.5] * len(np.atleast_1d(WRONG[exercise]))).say
    assert said.right is False and said.say and said.say != hint


def test_published_file_covers_seven_lessons_and_holds_no_value():
    table, text = exercises(), (root() / "data" / "lessons.json").read_text()
    assert set(table.index) == set(ANSWERS) and table.index.str.split(".").str[0].nunique() == 7
    assert all(set(e) == {"question", "kind", "grid", "any_order", "salt", "hint", "hashes", "mistakes"} for e in json.loads(text).values())


# Panels

@pytest.mark.parametrize("make", PANELS)
def test_still_picture_has_words_and_is_the_same_each_time(make):
    panel = make()
    page = panel.still()
    say = re.search(r"<p role='status' aria-live='polite'>(.+?)</p>", page)[1]
    alt = re.search(r'<img alt="(.+?)"', page)[1]
    assert say in alt and re.search(r"\d", say) and panel._repr_html_() == page


@pytest.mark.parametrize("make", PANELS)
def test_every_control_moves_something_and_every_end_can_be_drawn(make):
    panel = make()
    for name, c in panel.controls.items():
        values = (c.low, c.high) if isinstance(c, Slider) else (c.options[0], c.options[-1])
        assert len({panel.still(**{name: v}) for v in values}) == 2
        assert c.label and (isinstance(c, Choice) or c.low <= c.value <= c.high)


@pytest.mark.parametrize("make", PANELS)
def test_live_panel_follows_its_controls_as_the_still_one_does(make):
    pytest.importorskip("ipywidgets")
    panel = make()
    live = panel.widget()
    *controls, shown = live.children
    assert shown.value == panel.still() and [c.description for c in controls] == [c.label for c in panel.controls.values()]
    assert all("arrow keys" in c.tooltip for c in controls)
    (name, c), slider = list(panel.controls.items())[-1], controls[-1]
    slider.value = c.high if isinstance(c, Slider) else c.options[-1]
    assert shown.value == panel.still(**{name: slider.value}) != panel.still()


def test_a_draw_that_fails_says_so_and_goes_on():
    pytest.importorskip("ipywidgets")
    def draw(x):
        if x > .5:
            raise ValueError("x is <too> large")
        return radii_panel().draw(**dict(zip(AXES, [x] * 5)))
    live = Panel("fragile", {"x": Slider("x", .2, 0., 1., .1)}, draw).widget()
    slider, shown = live.children
    slider.value = .9
    assert shown.value == "<p role='status'>x is &lt;too&gt; large</p>"
    slider.value = .3
    assert "Area 0.090" in shown.value


def test_display_is_live_and_still_or_still_alone(monkeypatch):
    pytest.importorskip("ipywidgets")
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: shown.append(a[0]))
    monkeypatch.delenv(teach_panels.STILL, raising=False)
    radii_panel()._ipython_display_()
    assert "application/vnd.jupyter.widget-view+json" in shown[0] and "base64" not in shown[0]["text/plain"] and "<img" in shown[1].data
    monkeypatch.setenv(teach_panels.STILL, "1")
    radii_panel()._ipython_display_()
    assert len(shown) == 3 and shown[2].data == shown[1].data


def test_without_ipywidgets(monkeypatch):
    monkeypatch.setattr(teach_panels, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairical_nb\[teach\]'"):
        radii_panel().widget()
    assert "Area 0.270" in radii_panel().still()


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="has no control 'IGD'"):
        radii_panel().still(IGD=1)
    with pytest.raises(ValueError, match="HV must lie between 0.0 and 1.0, but it is 1.5"):
        radii_panel().still(HV=1.5)
    with pytest.raises(ValueError, match="picture must be one of"):
        wavelet_panel().still(picture="a face")


def test_numbers_of_the_panels():
    assert "Area 0.208" in radii_panel().still(HV=.04)
    assert "hypervolume 0.000, from 0 of 3" in reference_panel().still(x=.2, y=.5)
    assert "hypervolume 0.810" in reference_panel([(.1, .1)]).still()
    assert "MGBI 0.945" in share_panel().still() and "MGBI 1.000" in share_panel().still(share=.5)
    y, s, g = [1, 0, 1, 0], [.9, .2, .4, .3], list("aabb")
    assert "accuracy 0.750, equalized-odds difference 1.000" in threshold_panel(y, s, g).still(threshold=.5)


@given(log_beta=st.floats(-3, 3))
@settings(max_examples=30)
def test_beta_is_a_front(log_beta):
    (p, even, quality), (_, more, less) = tilted(10 ** log_beta), tilted(10 ** log_beta / 2)
    assert p.sum() == pytest.approx(1) and 0 <= quality <= 1 + 1e-12
    assert more >= even - 1e-12 and less <= quality + 1e-12
    assert np.argsort(-p).tolist() == np.argsort(-np.array(BEFORE)).tolist()


def test_ends_of_beta():
    assert tilted(0)[1] == pytest.approx(1) and tilted(1e9)[2] == pytest.approx(1)
    with pytest.raises(ValueError, match="beta must be >= 0"):
        tilted(-.1)


def test_wavelet_panel_names_the_bands_as_pywavelets_does():
    for picture, band, least in (("horizontal stripes", "cH", .99), ("upright stripes", "cV", .99), ("diagonal stripes", "cD", .7)):
        shares = dict(re.findall(r"(c[HVD]) (\d\.\d+)", wavelet_panel().still(picture=picture).split("aria-live")[1]))
        assert float(shares[band]) >= least and max(shares, key=lambda k: float(shares[k])) == band
    assert teach_panels_images._picture("portrait glyph").shape == (64, 64)


# What wrong code would have passed

@given(value=st.integers(-40, 40), cells=st.integers(-5, 5), grid=st.sampled_from([.25, 1., 4.]))
@settings(max_examples=50)
def test_a_number_is_right_in_its_own_cell_and_in_the_two_beside_it(value, cells, grid):
    entry = answer("X.1", value * grid, question="?", grid=grid)
    assert _agrees([(value + cells) * grid], entry["hashes"], entry) == (abs(cells) <= 1)


def test_a_verdict_is_printed_as_it_is(book):
    assert check("L1.1", .27, answers=book)._repr_markdown_() == "**✓ L1.1: right.** " and repr(check("L1.1", .27, answers=book)) == "L1.1: right."
    assert check("L1.1", .5, answers=book)._repr_markdown_() == "**✗ L1.1: not yet.** Neighbours." and repr(check("L1.1", .5, answers=book)) == "L1.1: not yet. Neighbours."


def test_an_answer_of_the_same_name_is_replaced_and_a_lesson_is_not_that_of_a_longer_number(book):
    write_answers({"L1.3": answer("L1.3", "cV", question="Which band?"), "L10.1": answer("L10.1", 1, question="One?", grid=.1)}, book)
    assert check("L1.3", "cV", answers=book) and not check("L1.3", "cH", answers=book)
    assert exercises(lesson="L1", answers=book).index.tolist() == ["L1.1", "L1.2", "L1.3"] and exercises(lesson="L10", answers=book).index.tolist() == ["L10.1"]


@pytest.mark.parametrize("any_order", [False, True])
def test_a_mistake_is_told_in_any_order_where_the_order_does_not_matter(tmp_path, any_order):
    write_answers({"A.1": answer("A.1", [1, 2], question="?", grid=.1, any_order=any_order, hint="hint", mistakes=[([5, 3], "told")])}, tmp_path / "a.json")
    assert [check("A.1", v, answers=tmp_path / "a.json").say for v in ([5, 3], [3, 5], [3, 6])] == ["told", "told" if any_order else "hint", "hint"]


def said(panel, **values):
    figure, say = panel.draw(**{n: values.get(n, c.value if isinstance(c, Slider) else c.options[0]) for n, c in panel.controls.items()})
    plt.close(figure)
    return figure, say


def test_the_radii_panel_says_the_area_in_this_order_and_the_mean_over_all_orders():
    r = [.9, .2, .7, .1, .5]
    ring = lambda v: sum(a * b for a, b in zip(v, [*v[1:], v[0]])) / 5
    mean = np.mean([ring(v) for v in itertools.permutations(r)])
    assert abs(mean - ring(r)) > .01
    assert said(radii_panel(r))[1] == f"Area {ring(r):.3f} in this order of the axes, {mean:.3f} on average over all orders."


@pytest.mark.parametrize("x, y, inside", [(.5, .9, []), (.6, .9, [(.5, .5)]), (.6, .5, []), (.9, .9, [(.5, .5), (.8, .2)])])
def test_points_on_the_reference_do_not_count_and_each_cuts_out_its_rectangle(x, y, inside):
    figure, say = said(reference_panel([(.5, .5), (.8, .2)]), x=x, y=y)
    drawn = [(p.get_x(), p.get_y(), p.get_x() + p.get_width(), p.get_y() + p.get_height()) for p in figure.axes[0].patches]
    np.testing.assert_allclose(np.array(drawn).reshape(-1, 4), [(a, b, x, y) for a, b in inside] if inside else np.zeros((0, 4)))
    union = sum((x - a) * (y - b) for a, b in inside) - (0 if len(inside) < 2 else (x - .8) * (y - .5))
    assert f"hypervolume {union:.3f}, from {len(inside)} of 2 points" in say


@pytest.mark.parametrize("values, options", [({}, {}), ({"eps": -1.}, {"dedup_eps": .1}), ({"sigma": .2}, {"sigma": .2}), ({"weight": 1}, {"weights": {AXES[0]: 3.}}), ({"weight": 5}, {"weights": {AXES[4]: 3.}}), ({"order": 7}, {"order": 7})])
def test_the_choices_panel_says_what_compare_says_of_these_settings(values, options):
    panel, systems = choices_panel(), teach_panels._two()
    values = {n: panel.controls[n].options[v] if isinstance(panel.controls[n], Choice) else v for n, v in values.items()}
    axes = [AXES[k] for k in orders(5)[options.pop("order", 0)]]
    table = compare(systems, ("max", "min"), **({"dedup_eps": 1e-6, "sigma": .01, "axes": axes, "weights": None} | options))
    assert said(panel, **values)[1] == "; ".join(f"{n}: area {table.area[n]:.3f}, {table.ONVG[n]:.0f} points on the front, UD {table.UD[n]:.2f}" for n in systems) + f". First: {max(systems, key=lambda n: table.area[n])}."


def test_the_two_systems_of_the_choices_panel_at_their_ends_and_middle():
    one, two = teach_panels._two().values()
    np.testing.assert_allclose(one[[0, 12, 24]], [[.62, .05], [.745, .175], [.87, .55]])
    np.testing.assert_allclose(np.unique(two, axis=0), [[.6 + .058 * k, .04 + .12 * k] for k in range(6)])


@pytest.mark.filterwarnings("ignore:fewer than 200 images")
@pytest.mark.parametrize("images", [10, 11])
@pytest.mark.parametrize("share", [0., .3, .9])
def test_the_share_panel_counts_every_image_and_tilts_trigger_1_alone(share, images):
    r, a = teach_panels_images._result(share, images), round(images * share)
    h = lambda *n: -sum(k / images * np.log2(k / images) for k in n if k)
    even, odd = h(images // 2, images - images // 2), h(a, images - a)
    np.testing.assert_allclose(r.evenness_of(r.data.totals)[:, 0], [even, odd, *[even] * 8], atol=1e-9)
    assert np.asarray(r.data.totals).sum() == 10 * images
    bars = said(share_panel(), share=share, images=10)[0].axes[0].patches[:10]
    assert len({b.get_facecolor() for b in bars[1:]}) == 1 and bars[0].get_facecolor() != bars[1].get_facecolor()


@pytest.mark.parametrize("picture", ["portrait glyph", "diagonal stripes"])
@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_wavelet_panel_says_each_bands_share_and_that_of_the_contrast(picture, level):
    x = teach_panels_images._picture(picture)
    found = dict(zip(("cH", "cV", "cD"), (np.square(b).sum() for b in pywt.wavedec2(x, "db4", level=level)[1])))
    lowest, *details = pywt.wavedec2(x - x.mean(), "db4", level=4)
    whole = np.square(lowest).sum() + sum(np.square(b).sum() for d in details for b in d)
    say = said(wavelet_panel(), picture=picture, level=level)[1]
    assert ", ".join(f"{n} {e / sum(found.values()):.2f}" for n, e in found.items()) in say and f"This level's detail is {sum(found.values()) / whole:.2f} of" in say


@given(beta=st.floats(0, 50), seed=st.integers(0, 999))
@settings(max_examples=30)
def test_where_the_toy_ends_no_other_shares_have_more_entropy_minus_beta_times_divergence(beta, seed):
    before = np.random.default_rng(seed).dirichlet([2] * 4) + .01
    q = before / before.sum()
    p, even, quality = tilted(beta, before)
    worth = lambda p: -(p * np.log(p)).sum() - beta * (p * np.log(p / q)).sum()
    others = p * np.exp(.1 * np.random.default_rng(seed).standard_normal((20, 4)))
    assert all(worth(p) >= worth(o / o.sum()) - 1e-9 for o in others)
    assert even == pytest.approx(scipy_entropy(p, base=4)) and quality == pytest.approx(np.exp(-scipy_entropy(p, q)))
    assert BEFORE == (.6, .2, .1, .07, .03)
