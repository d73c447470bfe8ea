"Fronts in the plane, in pairs and in space: what is drawn is what is there, and it can be read."
import base64
import importlib.util
import itertools
import json
import warnings
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from matplotlib.cbook import STEP_LOOKUP_MAP
from matplotlib.colors import to_rgba
from matplotlib.text import Text
from mpl_toolkits.mplot3d import proj3d

from fairical_nb import fronts_faces, fronts_space
from fairical_nb.annotations import beside, overlaps, place
from fairical_nb.cli import main
from fairical_nb.dominance import hypervolume, minimised, nondominated
from fairical_nb.drawing import describe, read
from fairical_nb.figures import PAPER, save_figure, style
from fairical_nb.fronts import describe_scatter, scatter, stairs
from fairical_nb.fronts_faces import faces, shared_faces
from fairical_nb.fronts_pairs import describe_pairs, pairs, shares
from fairical_nb.fronts_space import describe_scatter3d, scatter3d
from fairical_nb.fronts_turned import as_page, rotating, triangles
from fairical_nb.operating_points import Solutions

METRICS = ["acc", "eod+gender", "dpd+race", "f1", "minmaxd+tpr+race", "fpr"]
WAYS = ["max", "min", "min", "max", "min", "min"]
plotly = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="needs the package plotly (extra plot)")


@pytest.fixture(autouse=True)
def paper():
    "The paper's settings; every warning is an error; all figures are closed."
    with plt.rc_context(PAPER), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    plt.close("all")


def cloud(n=2, k=3, rows=10, seed=0): return {f"system {i + 1}": np.random.default_rng([seed, i]).random((rows, k)) for i in range(n)}
def surveyor(x, y): return abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
def names_in(legend): return [t.get_text() for t in legend.get_texts()]
def marked(ax): return [line for line in ax.get_lines() if line.get_marker() not in ("None", "", None)]
def rows_of(lines): return sorted({tuple(map(float, p)) for line in lines for p in line.get_xydata()})
def filled(ax): return [line for line in marked(ax) if line.get_markerfacecolor() != "white"]
def in_space(lines): return sorted({tuple(map(float, p)) for line in lines for p in zip(*line.get_data_3d())})


def solutions(points, models="net", boxes=(), metrics=None):
    frame = pd.DataFrame({"model": models, "threshold": np.linspace(0, 1, len(points))} | {m: np.asarray(points)[:, i] for i, m in enumerate(metrics or METRICS[:np.shape(points)[1]])})
    return Solutions(frame, black_boxes=tuple(boxes))


DRAW = {"plane": (lambda s, m, **o: scatter(s, m, **o).figure, describe_scatter, 2), "pairs": (lambda s, m, **o: pairs(s, m, **o)[0, 0].figure, describe_pairs, 2), "space": (lambda s, m, **o: scatter3d(s, m, **o).figure, describe_scatter3d, 3)}
each = pytest.mark.parametrize("kind", DRAW)


# What is drawn where

@pytest.mark.parametrize("k", [2, 3, 4, 6])
def test_P11_panel_i_j_holds_columns_i_and_j(k):
    "Every panel of the pair plot once showed the same pair."
    systems = cloud(k=k)
    panels = pairs(systems, METRICS[:k])
    assert panels.shape == (k, k)
    every = np.concatenate(list(systems.values()))
    for i, j in itertools.permutations(range(k), 2):
        assert rows_of(marked(panels[i, j])) == sorted(map(tuple, every[:, [j, i]]))
    for i, j in np.ndindex(k, k):
        assert panels[i, j].get_xlim() == panels[-1, j].get_xlim() and panels[i, j].get_ylim() == panels[i, 0].get_ylim()


def test_pairs_say_the_axis_of_each_row_and_column():
    panels = pairs(cloud(k=3), METRICS[:3], axes=["dpd+race", "acc"])
    labels = [[" ".join(f(panels[at]).split()) for at in ats] for f, ats in ((lambda a: a.get_xlabel(), [(1, 0), (1, 1)]), (lambda a: a.get_ylabel(), [(0, 0), (1, 0)]))]
    assert labels == [["demographic parity difference (race) (less is better)", "accuracy (more is better)"]] * 2
    assert rows_of(marked(panels[0, 1])) == sorted(map(tuple, np.concatenate(list(cloud(k=3).values()))[:, [0, 2]]))


def test_filled_marks_of_pairs_are_on_the_front_of_all_objectives():
    systems = cloud(k=4, rows=30)
    panels = pairs(systems, METRICS[:4])
    front = np.concatenate([p[nondominated(p, WAYS[:4])] for p in systems.values()])
    for i, j in itertools.permutations(range(4), 2): assert rows_of(filled(panels[i, j])) == sorted({tuple(map(float, p)) for p in front[:, [j, i]]})


@given(st.lists(st.floats(0, 1), max_size=20))
def test_the_diagonal_shows_shares(values):
    x, y = shares(values)
    assert len(x) == len(y) == (len(values) + 1 if values else 0)
    for v in values: assert y[np.flatnonzero(x == v)[-1]] == pytest.approx(np.mean(np.array(values) <= v))


def test_the_diagonal_has_one_line_per_system_with_its_front():
    systems = cloud(3, 3, 20)
    panels = pairs(systems, METRICS[:3])
    for k in range(3):
        (twin,) = [a for a in panels[k, k].figure.axes if a is not panels[k, k] and a.bbox.bounds == panels[k, k].bbox.bounds]
        for i, (line, p) in enumerate(zip(twin.get_lines(), systems.values(), strict=True)):
            assert sorted(set(line.get_xdata())) == sorted(set(p[nondominated(p, WAYS[:3]), k])) and line.get_color() == style(i)["color"]


@pytest.mark.parametrize("ways", [["max", "min"], ["min", "min"], ["max", "max"], ["min", "max"]])
def test_the_line_of_the_front_is_its_staircase(ways):
    "The drawn steps pass through the corners of `stairs` and no others."
    points = np.random.default_rng(3).random((40, 2))
    line = next(li for li in marked(scatter({"s": points}, directions=ways)) if li.get_label() == "s")
    stepped = np.stack(STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_xydata().T), 1)
    corners = stairs(points, ways)[1:-1]
    assert sorted({tuple(p) for p in stepped.round(12)}) == sorted({tuple(p) for p in corners.round(12)})


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12), st.sampled_from([1, .5, (.8, .6), 1.2]))
def test_the_area_within_stairs_is_the_hypervolume_for_every_nadir(points, nadir):
    points, worst = np.array(points) / 6, np.broadcast_to(nadir, (2,))
    ring = np.vstack([stairs(points, ["min", "min"], nadir=nadir), worst])
    inside = points[(points < worst).all(1)]
    assert surveyor(*ring.T) == pytest.approx(hypervolume(inside, worst), abs=1e-12)


@each
def test_dominated_points_are_open_or_left_out(kind):
    draw, _, k = DRAW[kind]
    systems = cloud(2, k, 30)
    for dominated in (True, False):
        axes = draw(systems, METRICS[:k], dominated=dominated).axes
        open_marks = [li for a in axes for li in marked(a) if li.get_markerfacecolor() == "white" and len(li.get_xdata())]
        assert bool(open_marks) == dominated


# The surface

@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=12), st.sampled_from([1, .7, (1, .8, .6)]))
def test_the_volume_under_the_faces_is_the_hypervolume(points, nadir):
    "Also with equal coordinates, copies and points beyond the nadir; in each of the three directions."
    points, worst = np.array(points) / 5, np.broadcast_to(nadir, (3,))
    found = faces(points, ["min"] * 3, nadir=nadir)
    inside = points[(points < worst).all(1)]
    for a in range(3):
        u, v = (c for c in range(3) if c != a)
        volume = sum(surveyor(ring[:, u], ring[:, v]) * (worst[a] - ring[0, a]) for _, axis, ring in found if axis == a)
        assert volume == pytest.approx(hypervolume(inside, worst), abs=1e-12)


@given(st.integers(0, 1000), st.sampled_from(list(itertools.product(["max", "min"], repeat=3))))
@settings(max_examples=30)
def test_each_face_is_flat_right_angled_and_belongs_to_its_point(seed, ways):
    points = np.random.default_rng(seed).integers(0, 8, (15, 3)) / 8
    front = nondominated(points, ways)
    for row, axis, ring in faces(points, ways):
        assert front[row] and (ring[:, axis] == points[row, axis]).all() and (ring == points[row]).all(1).sum() == 1
        steps = np.abs(np.diff(np.vstack([ring, ring[:1]]), axis=0))
        assert ((steps > 1e-12).sum(1) == 1).all() # one coordinate changes at a time, and none is repeated


@pytest.mark.parametrize("ways", [["max", "min", "min"], ["min", "min", "min"], ["max", "max", "max"]])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_volume_under_the_drawn_surface_is_the_hypervolume(monkeypatch, ways, n):
    "What reaches the axes, not what is computed before."
    drawn, original = [], fronts_space.Poly3DCollection
    monkeypatch.setattr(fronts_space, "Poly3DCollection", lambda rings, **o: drawn.append(([r[~r.mask.any(1)].data for r in rings], o)) or original(rings, **o))
    systems = cloud(n, 3, 12)
    ax = scatter3d(systems, directions=ways, whole=True)
    every = np.concatenate(list(systems.values()))
    losses = [minimised(ring, ways) for rings, _ in drawn for ring in rings]
    for a in range(3):
        u, v = (c for c in range(3) if c != a)
        assert sum(surveyor(r[:, u], r[:, v]) * (1 - r[0, a]) for r in losses if np.ptp(r[:, a]) == 0) == pytest.approx(hypervolume(minimised(every, ways), np.ones(3)), abs=1e-12)
    for (ring, o), c in zip(drawn, ax.collections): # and each system's faces are in its look
        i = next(i for i in range(n) if to_rgba(style(i)["color"]) == to_rgba(o["edgecolors"]))
        assert o["hatch"] == style(i)["hatch"]
        owned = {tuple(p) for p in systems[f"system {i + 1}"]}
        assert all(any(tuple(p) in owned for p in r) for r in ring)
    assert (ax.get_xlim(), ax.get_zlim()) == ((0, 1) if ways[0] == "max" else (1, 0), (0, 1) if ways[2] == "max" else (1, 0))


@pytest.mark.parametrize("whole", [True, False])
def test_no_plot_in_space_reads_memory_that_nobody_wrote(monkeypatch, whole):
    "matplotlib fills polygons of different lengths up with `np.empty`: what stood there must not reach the projection."
    def soiled(*args, clean=np.empty, **options):
        block = clean(*args, **options)
        if block.dtype.kind == "f": block.fill(-.9 * np.finfo(block.dtype).max)
        return block
    systems, plain = cloud(3, 3, 12), []
    for k in range(2):
        if k: monkeypatch.setattr(np, "empty", soiled)
        ax = scatter3d(systems, METRICS[:3], whole=whole, ax=plt.figure().add_subplot(projection="3d"))
        ax.get_figure().canvas.draw()
        plain.append(np.asarray(ax.get_figure().canvas.buffer_rgba()).copy())
    assert (plain[0] == plain[1]).all()


@given(st.lists(st.integers(1, 7), max_size=5), st.integers(0, 99))
def test_evened_polygons_keep_their_corners(lengths, seed):
    rings = [np.random.default_rng([seed, n]).random((n, 3)) for n in lengths]
    block = fronts_faces.even(rings)
    assert block.shape == (len(rings), max(lengths, default=0), 3)
    for ring, row in zip(rings, block):
        assert (row[~row.mask.any(1)].data == ring).all() and (row.data[len(ring):] == ring[-1]).all()


def test_better_is_toward_the_reader_and_up():
    "The view is from the good corner, in parallel projection, and no artist is sorted by another rule than ours."
    ax = scatter3d(cloud(1), METRICS[:3])
    bad, good = ([getattr(ax, f"get_{c}lim")()[k] for c in "xyz"] for k in (0, 1))
    assert [g > b for b, g in zip(bad, good)] == [True, False, False] # accuracy; two differences
    fig = plt.figure()
    plain = fig.add_subplot(projection="3d", proj_type="ortho") # with axes that run upward
    plain.view_init(elev=ax.elev, azim=ax.azim)
    toward = [proj3d.proj_transform(*p, plain.get_proj())[2] for p in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert all(t < toward[0] for t in toward[1:]) or all(t > toward[0] for t in toward[1:])
    assert 0 < ax.elev < 90 and 0 < ax.azim < 90 and ax._focal_length == np.inf and not ax.computed_zorder
    low, high = ax.transData.transform(fronts_space._on_paper(ax, [bad, [*bad[:2], good[2]]]))
    assert high[1] > low[1]


def test_of_equal_points_the_first_system_has_the_face():
    same = {"a": [[.5, .5, .5]], "b": [[.5, .5, .5]], "c": [[.4, .4, .4]]}
    drawn = read(same, directions=["max"] * 3)[0]
    assert [len(m) for m in shared_faces(drawn, ["max"] * 3, 1)] == [3, 0, 0]


def test_marks_in_space_hold_the_points_they_stand_for():
    systems = cloud(2, 3, 30)
    ax = scatter3d(systems, METRICS[:3])
    assert in_space(marked(ax)) == sorted({tuple(map(float, p)) for p in np.concatenate(list(systems.values()))})
    front = np.concatenate([p[nondominated(p, WAYS[:3])] for p in systems.values()])
    assert in_space(filled(ax)) == sorted({tuple(map(float, p)) for p in front})


def test_drop_lines_reach_the_floor():
    systems = cloud(1, 3, 30)
    ax = scatter3d(systems, METRICS[:3], surface=False)
    p = systems["system 1"]
    lines = [np.array(li.get_data_3d()) for li in ax.get_lines() if li.get_marker() in ("None", "", None)]
    assert not ax.collections and sorted(tuple(li[:, 0]) for li in lines) == sorted(map(tuple, p[nondominated(p, WAYS[:3])]))
    for li in lines: assert li[2, 1] == ax.get_zlim()[0] and (li[:2, 0] == li[:2, 1]).all()


# Black boxes

@each
def test_a_black_box_is_a_single_large_mark(kind):
    draw, words, k = DRAW[kind]
    systems = {"rule": solutions([[.7, .2, .2][:k]], boxes=["net"]), "scores": solutions(cloud(1, k)["system 1"])}
    fig = draw(systems, None)
    (name,) = {n for n in names_in((fig.legends or [fig.axes[0].get_legend()])[0]) if "rule" in n}
    assert name == "rule (black box)" and "rule (black box): 1 of 1" in words(systems)
    for ax in fig.axes:
        large = [li for li in marked(ax) if li.get_color() == style(0)["color"] and len(li.get_xdata())]
        if not large: continue # a distribution
        assert len(large) == 1 and len(large[0].get_xdata()) == 1 and large[0].get_linestyle() == "None"
        assert large[0].get_markersize() > max(li.get_markersize() for li in marked(ax) if li.get_color() == style(1)["color"])


def test_black_boxes_among_scores_are_large_marks_of_their_system():
    mixed = solutions([[.9, .3], [.8, .4], [.7, .2], [.5, .5]], ["net", "net", "rule", "rule"], boxes=["rule"])
    ax = scatter({"mixed": mixed})
    assert names_in(ax.get_legend()) == ["mixed"]
    large = [li for li in marked(ax) if li.get_markersize() >= 9 and len(li.get_xdata())]
    assert rows_of(large) == [(.5, .5), (.7, .2)] and [li.get_markerfacecolor() == "white" for li in large] == [True, False]


# Legends

@pytest.mark.parametrize("n", [1, 2, 6, 7, 12])
@each
def test_R02_one_legend_entry_per_system_in_the_look_of_what_is_drawn(kind, n):
    "A legend once took the fill instead of the line."
    draw, _, k = DRAW[kind]
    systems = cloud(n, k)
    fig = draw(systems, METRICS[:k])
    legend = (fig.legends or [fig.axes[0].get_legend()])[0]
    assert names_in(legend) == list(systems)
    fig.draw_without_rendering()
    for i, handle in enumerate(legend.legend_handles):
        mine = [li for a in fig.axes for li in a.get_lines() if li.get_color() == style(i)["color"] and li.get_marker() == style(i)["marker"] and li.get_color() == style(i)["color"]]
        marks = [a for a in legend.findobj(lambda a: hasattr(a, "get_marker")) if a.get_marker() == style(i)["marker"] and a.get_color() == style(i)["color"]]
        assert mine and marks and marks[0].get_markersize() == pytest.approx(max(li.get_markersize() for li in mine if li.get_markerfacecolor() != "white"), rel=.4)
        if hasattr(handle, "get_linestyle") and kind == "plane":
            (line,) = [li for li in fig.axes[0].get_lines() if li.get_label() == f"system {i + 1}"]
            assert (handle.get_color(), handle.get_marker(), handle.get_linestyle(), handle.get_linewidth()) == (line.get_color(), line.get_marker(), line.get_linestyle(), line.get_linewidth())
    if kind == "space":
        patches = {to_rgba(p.get_edgecolor()): p.get_hatch() for p in legend.get_patches()}
        for c in fig.axes[0].collections: assert patches[to_rgba(c.get_edgecolor()[0])] == c.get_hatch()


@pytest.mark.parametrize("tail", ["", " with a rather long name of the kind that folders have"])
@pytest.mark.parametrize("n", [2, 6, 7, 12])
@each
def test_legends_cover_nothing_and_stay_on_the_figure(kind, n, tail):
    draw, _, k = DRAW[kind]
    fig = draw({name + tail: p for name, p in cloud(n, k).items()}, METRICS[:k])
    fig.draw_without_rendering()
    box = (fig.legends or [fig.axes[0].get_legend()])[0].get_window_extent().extents
    shown = [a.get_window_extent() for a in fig.axes] if kind != "space" else [a.get_tightbbox() for ax in fig.axes for a in (ax.xaxis, ax.yaxis, ax.zaxis)]
    assert not overlaps(box, [s.extents for s in shown]).any()
    assert box[0] >= -1 and box[1] >= -1 and box[2] <= fig.bbox.width + 1 and box[3] <= fig.bbox.height + 1


@pytest.mark.parametrize("name", ["_hidden", "cost $", "$a$ and $b$", "<b>&", ""])
@each
def test_any_name_has_its_entry(kind, name):
    draw, words, k = DRAW[kind]
    systems = {name: cloud(1, k)["system 1"], "other": cloud(1, k)["system 1"]}
    fig = draw(systems, METRICS[:k])
    assert names_in((fig.legends or [fig.axes[0].get_legend()])[0]) == [name, "other"] and name in words(systems, METRICS[:k])
    fig.draw_without_rendering()


# Readable

def texts_of(fig):
    "The texts that are drawn; ticks outside the limits have texts, too, which are not."
    drawn, draw = {}, Text.draw
    with patch.object(Text, "draw", lambda self, renderer: (drawn.setdefault(id(self), self), draw(self, renderer))): fig.draw_without_rendering()
    return [t for t in drawn.values() if t.get_text().strip() and t.get_visible()]


@pytest.mark.parametrize("n", [1, 3, 12])
@pytest.mark.parametrize("kind,k", [("plane", 2), ("pairs", 2), ("pairs", 3), ("pairs", 6), ("space", 3)])
def test_no_text_is_below_ten_points_and_none_overlap(kind, k, n):
    fig = DRAW[kind][0](cloud(n, k), METRICS[:k])
    texts = texts_of(fig)
    assert texts and min(t.get_fontsize() for t in texts) >= 10
    boxes = {t.get_text() + str(i): t.get_window_extent() for i, t in enumerate(texts) if any(t.get_window_extent().bounds)}
    flat = [(a, b) for (a, x), (b, y) in itertools.combinations(boxes.items(), 2) if overlaps(x.extents + [1, 1, -1, -1], y.extents).any()]
    if kind == "space": flat = [(a, b) for a, b in flat if "better" not in a + b] # slanted words: their boxes are larger than they are
    assert not flat


@each
def test_all_words_are_on_the_figure(kind):
    fig = DRAW[kind][0](cloud(3, 3), METRICS[:3])
    for t in texts_of(fig):
        x0, y0, x1, y1 = t.get_window_extent().extents
        if x1 > x0: assert x0 >= -2 and y0 >= -2 and x1 <= fig.bbox.width + 2 and y1 <= fig.bbox.height + 2, t


def test_beaten_points_get_paler_the_more_there_are():
    look = [next(li for li in marked(scatter({"s": np.random.default_rng(0).random((n, 2))}, METRICS[:2])) if li.get_markerfacecolor() == "white") for n in (50, 500, 5000)]
    for a, b in zip(look, look[1:]): assert a.get_alpha() > b.get_alpha() and a.get_markersize() > b.get_markersize()
    assert [li.get_rasterized() for li in look] == [False, False, True]


# Labels

def test_labels_are_model_and_threshold_of_front_points_and_do_not_overlap():
    points = np.random.default_rng(1).random((60, 2))
    s = solutions(points, [f"model-{i % 3}" for i in range(60)])
    front = s.nondominated().frame
    ax = scatter({"s": s}, labels=True)
    notes = [t for t in ax.texts if t.get_text()]
    assert 3 <= len(notes) and {t.get_text() for t in notes} <= {f"{m}, {t:.3g}" for m, t in zip(front["model"], front["threshold"])}
    for t in notes:
        at = front[(front["acc"] == t.xy[0]) & (front["eod+gender"] == t.xy[1])]
        assert t.get_text() in [f"{m}, {v:.3g}" for m, v in zip(at["model"], at["threshold"])]
    apart(ax, notes)


def apart(ax, notes):
    ax.figure.draw_without_rendering()
    boxes = [t.get_window_extent().extents for t in notes]
    frame = ax.get_window_extent().extents
    for i, b in enumerate(boxes):
        assert not overlaps(b, np.delete(boxes, i, 0)).any() and (b[:2] >= frame[:2] - 1).all() and (b[2:] <= frame[2:] + 1).all()


def test_labels_of_infinity_boxes_and_long_names():
    s = Solutions(pd.DataFrame({"model": ["m" * 40, "rule"], "threshold": [np.inf, .5], "acc": [.9, .3], "eod+gender": [.4, .1]}), black_boxes=("rule",))
    texts = [t.get_text() for t in scatter({"s": s}, labels=True).texts if t.get_text()]
    assert "rule" in texts and any(t.endswith(", nobody") and len(t) < 40 for t in texts)


def test_labels_in_space_name_what_nothing_beats():
    s = solutions([[.9, .3, .3], [.5, .1, .1], [.4, .5, .5], [.6, .2, .2]])
    ax = scatter3d({"s": s, "rule": solutions([[.95, .3, .3]], "rule", ["rule"])}, labels=True)
    notes = [t for t in ax.texts if t.get_text()]
    assert {t.get_text() for t in notes} <= {"rule", "net, 0.333", "net, 1"} and "rule" in {t.get_text() for t in notes}
    apart(ax, notes)


def test_own_labels_and_wrong_ones():
    points = np.array([[.9, .3], [.5, .1]])
    ax = scatter({"a": points, "b": points - .05}, METRICS[:2], labels={"a": ["one", "two"]})
    assert {t.get_text() for t in ax.texts if t.get_text()} == {"one", "two"}
    with pytest.raises(ValueError, match="'a' is an array"): scatter({"a": points}, METRICS[:2], labels=True)
    with pytest.raises(ValueError, match="one per point: 2, but there are 1"): scatter({"a": points}, METRICS[:2], labels={"a": ["one"]})


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 200)), max_size=25), st.integers(5, 120))
@settings(max_examples=40)
def test_placed_texts_never_overlap(points, width):
    marks = np.array([[x - 3, y - 3, x + 3, y + 3] for x, y in points]).reshape(-1, 4)
    boxes = [b for b in place(points, [(width, 12)] * len(points), (0, 0, 300, 200), marks=marks) if b is not None]
    for i, b in enumerate(boxes):
        assert not overlaps(b, np.delete(np.array(boxes), i, 0)).any() and not overlaps(b, marks).any()
        assert b[0] >= 0 and b[1] >= 0 and b[2] <= 300 and b[3] <= 200 and b[2] - b[0] == pytest.approx(width)


def test_texts_and_points_go_together():
    fig, ax = plt.subplots()
    with pytest.raises(ValueError, match="one per point: 2, but there are 1"): beside(ax, [[0, 0], [1, 1]], ["a"])
    assert beside(ax, np.empty((0, 2)), []) == []
    notes = beside(ax, [[.5, .5], [.2, .2]], ["", "b"])
    assert notes[0] is None and notes[1].get_text() == "b"


# Any input

@pytest.mark.parametrize("points", [[[.5] * 6], [[.5] * 6] * 4, np.eye(6), np.empty((0, 6)), [[0] * 6, [1] * 6], np.ones((3, 6), dtype=np.float32)], ids=["one point", "copies", "no dominated", "empty", "integers", "float32"])
@pytest.mark.parametrize("k", range(2, 7))
@each
def test_small_inputs_are_drawn(kind, k, points, tmp_path):
    draw, words, least = DRAW[kind]
    if k < least: return
    given = np.asarray(points)[:, :k] if len(points) else np.empty((0, k))
    given.setflags(write=False)
    systems = {"a": given, "none": np.empty((0, k))}
    options = {} if kind == "pairs" else dict(axes=(0, 1, k - 1) if k > 2 else (0, 1, 2)) if kind == "space" else dict(x=0, y=k - 1, shade=True)
    fig = draw(systems, METRICS[:k], **options)
    save_figure(fig, tmp_path / "f", words(systems, METRICS[:k]))
    assert (tmp_path / "f.svg").stat().st_size > 5000


@each
def test_nothing_given_is_changed(kind):
    draw, words, k = DRAW[kind]
    s = solutions(cloud(1, k)["system 1"], boxes=["net"])
    frame, points, metrics = s.frame.copy(), cloud(2, k)["system 2"], METRICS[:k]
    before, settings_before = points.copy(), dict(plt.rcParams)
    points.setflags(write=False)
    systems = {"s": s, "p": points}
    draw(systems, metrics), words(systems, metrics)
    assert s.frame.equals(frame) and (points == before).all() and list(systems) == ["s", "p"] and metrics == METRICS[:k] and dict(plt.rcParams) == settings_before


@each
def test_the_same_picture_is_the_same_bytes(kind, tmp_path):
    draw, words, k = DRAW[kind]
    for name in "ab": save_figure(draw(cloud(2, k), METRICS[:k]), tmp_path / name, words(cloud(2, k), METRICS[:k]), formats=("png", "svg", "pdf"))
    for f in ("png", "svg", "pdf"): assert (tmp_path / f"a.{f}").read_bytes() == (tmp_path / f"b.{f}").read_bytes()


def test_axes_and_figures_go_in_and_come_out():
    fig = plt.figure(figsize=(14, 5), layout="constrained")
    left, middle, right = fig.subfigures(1, 3)
    ax, space = left.subplots(), middle.add_subplot(projection="3d")
    assert scatter(cloud(), METRICS[:3], ax=ax) is ax and scatter3d(cloud(), METRICS[:3], ax=space) is space
    panels = pairs(cloud(), METRICS[:3], fig=right)
    assert plt.get_fignums() == [fig.number] and all(p.get_figure() is right for p in panels.flat) and len(right.legends) == 1
    fig.draw_without_rendering()
    plain = plt.figure(figsize=(5, 5))
    assert pairs(cloud(), METRICS[:3], fig=plain)[0, 0].figure is plain


@each
def test_wrong_input_is_named(kind):
    draw, words, k = DRAW[kind]
    good = cloud(1, k)["system 1"]
    bad = good.copy(); bad[3, 1] = np.nan
    for systems, metrics, said in [({}, METRICS[:k], "at least one system"), (good, METRICS[:k], "but it is a ndarray"), ({"a": good, "b": bad}, METRICS[:k], "'b'.*finite"), ({"a": good}, METRICS[:k + 1], "'a'.*shape"),
                                   ({"a": good}, None, "metrics="), ({"a": good}, ["acc", "up", "f1"][:k], "up"), ({"a": solutions(good), "b": solutions(good, metrics=METRICS[::-1][:k])}, None, "'b'")]:
        for f in (draw, words):
            with pytest.raises(ValueError, match=said): f(systems, metrics)
    with pytest.raises(ValueError, match="'c' is among"): draw({"a": good}, METRICS[:k], black_boxes=["c"])
    for axes in ((0, 0), ("acc", 0), (0, 9), (True, 0)):
        options = dict(x=axes[0], y=axes[1]) if kind == "plane" else dict(axes=axes)
        with pytest.raises(ValueError, match="by name or number"): draw({"a": good}, METRICS[:k], **options)


# In words

@each
def test_words_are_made_from_the_points(kind):
    _, words, k = DRAW[kind]
    systems = {"a": np.array([[.9, .3, .2], [.8, .4, .3], [.6, .1, .1]])[:, :k], "b": np.array([[.7, .2, .15]])[:, :k], "none": np.empty((0, k))}
    text = words(systems, METRICS[:k], black_boxes=["b"])
    for part in ("a: 2 of 3 points on the front, acc 0.60 to 0.90", "b (black box): 1 of 1", "none: no points", "not dominated: a 2, b 1, none 0", "accuracy (more is better)", "equalized odds difference (gender) (less is better)"): assert part in text
    if kind == "space": assert f"{hypervolume(minimised(np.concatenate([systems['a'], systems['b']]), WAYS[:3]), np.ones(3)):.2f} of the unit cube" in text


def test_words_know_who_is_left():
    drawn, names, ways = read(cloud(3, 3, 20), METRICS[:3])
    every, owner = np.concatenate([s.points for s in drawn]), np.repeat([0, 1, 2], 20)
    left = np.bincount(owner[nondominated(every, ways)], minlength=3)
    assert ", ".join(f"system {i + 1} {n}" for i, n in enumerate(left)) in describe(drawn, names, ways)


# To be turned

def test_triangles_cover_the_faces():
    found = faces(np.random.default_rng(0).random((20, 3)), ["min"] * 3)
    corners, fans, owner = triangles([ring for *_, ring in found])
    assert len(fans) == sum(len(ring) - 2 for *_, ring in found) == len(owner)
    for n, (_, axis, ring) in enumerate(found):
        a, b, c = (corners[fans[owner == n, k]] for k in range(3))
        u, v = (k for k in range(3) if k != axis)
        assert np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2 == pytest.approx(surveyor(ring[:, u], ring[:, v]))
    assert [len(x) for x in triangles([])] == [0, 0, 0]


@pytest.mark.skipif(importlib.util.find_spec("plotly") is not None, reason="plotly is installed")
def test_without_plotly_the_extra_is_named(tmp_path):
    with pytest.raises(ImportError, match=r"fairical_nb\[plot\]"): rotating(cloud(), METRICS[:3])


def numbers(v): # plotly keeps arrays as they are, or as base64
    return np.frombuffer(base64.b64decode(v["bdata"]), v["dtype"]) if isinstance(v, dict) else np.asarray(v, dtype=float)


@plotly
@pytest.mark.parametrize("ways", [["max", "min", "min"], ["max", "max", "max"]])
def test_the_turned_surface_has_the_volume_of_the_drawn_one(ways):
    systems = cloud(2)
    fig = rotating(systems, directions=ways, whole=True)
    volume = 0
    for mesh in (t for t in fig.data if t.type == "mesh3d"):
        corners = minimised(np.stack([numbers(mesh[c]) for c in "xyz"], 1), ways)
        a, b, c = (corners[numbers(mesh[k]).astype(int)] for k in "ijk")
        up = (a[:, 2] == b[:, 2]) & (b[:, 2] == c[:, 2])
        volume += (np.abs(np.cross(b - a, c - a)[:, 2]) / 2 * (1 - a[:, 2]))[up].sum()
        assert len(mesh.facecolor) == len(a)
    assert volume == pytest.approx(hypervolume(minimised(np.concatenate(list(systems.values())), ways), np.ones(3)), abs=1e-12)


@plotly
def test_a_turned_figure_holds_points_names_words_and_no_time():
    systems = {"a": solutions(cloud(1)["system 1"]), "rule": solutions([[.7, .2, .2]], "rule", ["rule"]), "none": Solutions(solutions(cloud(1)["system 1"]).frame.iloc[:0])}
    fig = rotating(systems)
    assert [t.name for t in fig.data if t.showlegend] == ["a", "rule (black box)", "none (no points)"]
    shown = [t for t in fig.data if t.type == "scatter3d" and t.mode == "markers"]
    points = {tuple(p) for t in shown for p in zip(*(numbers(t[c]) for c in "xyz"))}
    assert points == {tuple(p) for s in systems.values() for p in s.points}
    assert any("net, 0.111" in h for t in shown for h in t.hovertext or ()) and any(h.startswith("rule<br>rule<br>acc 0.7") for t in shown for h in t.hovertext or ())
    good, bad = fig.layout.scene.xaxis.range[1], fig.layout.scene.xaxis.range[0]
    assert good > bad and fig.layout.scene.zaxis.range[0] > fig.layout.scene.zaxis.range[1]
    page = as_page(fig, "a & b")
    assert page == as_page(rotating(systems), "a & b") and "<title>a &amp; b</title>" in page and "a: " in page and "src=" not in page.split("<script")[0]
    assert not [t for t in rotating(systems, surface=False, dominated=False).data if t.type == "mesh3d"]
    with pytest.raises(ValueError, match="three"): rotating(cloud(), METRICS[:3], axes=(0, 1))


# The command

def run(*args):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        return CliRunner().invoke(main, ["pareto", *map(str, args)])


@pytest.fixture
def files(tmp_path, monkeypatch):
    "Solutions of two systems and a rule in 2, 3 and 5 metrics, in folders of that name."
    monkeypatch.chdir(tmp_path)
    for k in (2, 3, 5):
        (tmp_path / str(k)).mkdir()
        for i, (name, p) in enumerate(zip(("first", "second"), cloud(2, k, 30).values())): solutions(p, [f"model-{j % 2}" for j in range(30)]).save(tmp_path / f"{k}/{name}.json")
        solutions([[.9, .05, .05, .9, .05][:k]], "rule", ["rule"]).save(tmp_path / f"{k}/rule.json")
    return tmp_path


def all_of(k): return [f"{k}/{n}.json" for n in ("first", "second", "rule")]


@pytest.mark.parametrize("k,kind", [(2, "Scatter plot of accuracy"), (3, "Plot in space of accuracy"), (5, "5 by 5 panels")])
def test_the_picture_fits_the_number_of_metrics(files, k, kind):
    done = run(*all_of(k), "-p", "-o", "new/out")
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in (files / "new/out").iterdir()) == ["pareto.png", "pareto.svg"]
    text = (files / "new/out/pareto.svg").read_text()
    assert kind in text and "rule (black box): 1 of 1" in text
    assert done.stdout == run(*all_of(k)).stdout
    hidden = run(*all_of(k), "-p", "--hide-ds", "-o", "new/out")
    assert hidden.exit_code == 0 and (files / "new/out/pareto.svg~").read_text() == text != (files / "new/out/pareto.svg").read_text()


def test_pairs_on_request_and_labels(files):
    assert run(*all_of(3), "-p", "--pairs", "-o", "out").exit_code == 0 and "3 by 3 panels" in (files / "out/pareto.svg").read_text()
    assert run(*all_of(2), "-p", "-o", "a").exit_code == run(*all_of(2), "-p", "--labels", "-o", "b").exit_code == 0
    assert (files / "a/pareto.svg").stat().st_size < (files / "b/pareto.svg").stat().st_size
    assert run(*all_of(3), "-p", "--labels", "-o", "c").exit_code == 0


@pytest.mark.parametrize("args,said", [((5, "-p", "--labels"), "--labels"), ((3, "-p", "--pairs", "--labels"), "--labels"), ((2, "--turn"), "three metrics, but the systems have 2"), ((2, "-t", "word"), "'word'"), ((2, "-p", "-t", "word"), "'word'"), ((2, "-p", "-o", "2/rule.json"), "rule.json")])
def test_one_line_and_no_file(files, args, said):
    before = sorted(files.rglob("*"))
    done = run(*all_of(args[0]), *args[1:])
    assert done.exit_code == 2 and done.output.count("\n") == 1 and said in done.output and done.stdout == "" and sorted(files.rglob("*")) == before


def test_json_is_strict_and_holds_the_fronts(files):
    s = Solutions.load("2/first.json")
    s.frame.loc[0, "threshold"] = np.inf
    s.frame.loc[0, ["acc", "eod+gender"]] = 1, 0
    Solutions(s.frame, prior_set="non-dominated", prior_from="x.json").save("2/prior.json")
    done = run("2/prior.json", *all_of(2), "-t", "json")
    found = json.loads(done.stdout, parse_constant=lambda c: pytest.fail(f"{c} is not strict JSON"))
    assert (found["metrics"], found["directions"], list(found["systems"])) == (METRICS[:2], ["max", "min"], ["prior", "first", "second", "rule"])
    assert found["systems"]["prior"]["prior-solution-set"] == "non-dominated" and found["systems"]["prior"]["front"][0]["threshold"] == "inf" and found["systems"]["rule"]["black-boxes"] == ["rule"]
    for name in ("first", "second"):
        s = Solutions.load(f"2/{name}.json")
        assert found["systems"][name]["points"] == len(s) and found["systems"][name]["front"] == s.nondominated().frame.to_dict("records")
    assert found["deduplicated"] == {"eps": 1e-6, "method": "dbscan"} and json.loads(run(*all_of(2), "-t", "json", "-D").stdout)["deduplicated"] is None


@pytest.mark.parametrize("fmt,mark", [("text", "----"), ("markdown", "|"), ("latex", "\\toprule"), ("html", "<table>"), ("github", "|"), ("tsv", "\t")])
def test_formats_of_tables(files, fmt, mark): assert mark in run("2/first.json", "-t", fmt).stdout


def test_empty_systems_are_drawn(files):
    for k in (2, 3, 5):
        Solutions(Solutions.load(f"{k}/first.json").frame.iloc[:0]).save(f"{k}/none.json")
        done = run(f"{k}/none.json", f"{k}/first.json", "-p", "-o", "out")
        assert done.exit_code == 0 and "none: 0 of 0" in done.stdout and "none: no points" in (files / "out/pareto.svg").read_text()
        assert run(f"{k}/none.json", "-p", "-o", "out").exit_code == 0


@pytest.mark.skipif(importlib.util.find_spec("plotly") is not None, reason="plotly is installed")
def test_turning_without_plotly_names_the_extra(files):
    done = run(*all_of(3), "--turn", "-o", "out")
    assert done.exit_code == 2 and "fairical_nb[plot]" in done.output and done.output.count("\n") == 1 and not (files / "out").exists()


@plotly
def test_turning_writes_a_page(files):
    done = run(*all_of(3), "--turn", "-o", "out")
    assert done.exit_code == 0, done.output
    assert [p.name for p in (files / "out").iterdir()] == ["pareto.html"] and "rule (black box): 1 of 1" in (files / "out/pareto.html").read_text()
