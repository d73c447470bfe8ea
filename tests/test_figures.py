"Figures: one look, straight radar edges, true legends, alternative text, the same bytes each time."
import base64
import io
import re
import warnings
from html.parser import HTMLParser

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from PIL import Image

from fairical_nb.figures import PAPER, described, save_figure, style
from fairical_nb.fronts import describe_scatter, scatter, stairs
from fairical_nb.indicators import compare, indicators
from fairical_nb.radar import area, describe_radar, radar
from fairical_nb.scores import Scores
from fairical_nb.solutions import a_posteriori

AXES = ["ONVG_rel", "ONVGR", "UD", "AS", "HV"]
WAYS = ["max", "min"]
SYSTEMS = {"first": np.array([[.9, .5], [.6, .1], [.5, .5], [.7, .3]]), "second": np.array([[.8, .2], [.85, .45]]), "third": np.array([[.3, .9]])}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def table(): return compare(SYSTEMS, WAYS)


def drawn(ax): return [line for line in ax.get_lines() if line.get_marker() not in ("None", "", None)] # the systems' own lines and marks, not the grid
def legend(ax): return [t.get_text() for t in ax.get_legend().get_texts()]


# The look

def test_the_style_file_is_the_papers_settings(root):
    file = mpl.rc_params_from_file(root / "figures/paper.mplstyle", use_default_template=False)
    with mpl.rc_context(PAPER): assert dict(file) == {k: mpl.rcParams[k] for k in PAPER}


def test_no_text_below_ten_points_and_no_type_three_fonts():
    for k, v in PAPER.items():
        if k.endswith("size") and k != "lines.markersize": assert v >= 10, k
    assert PAPER["pdf.fonttype"] == 42


def test_systems_look_different_in_colour_and_without():
    looks = [style(i) for i in range(40)]
    assert len({str(v) for v in looks}) == 40 and style(3) == style(3)
    for a, b in zip(looks, looks[1:]): assert all(a[k] != b[k] for k in a)
    assert len({v["color"] for v in looks[:8]}) == len({v["marker"] for v in looks[:8]}) == 8


# Radar

def test_drawn_polygons_have_straight_edges_and_the_reported_area(table):
    ax = radar(table)
    full = 5 / 2 * np.sin(2 * np.pi / 5)
    patches = [p for p in ax.patches if p.get_alpha() == .15]
    assert len(patches) == len(table)
    for patch, (name, row) in zip(patches, table.iterrows()):
        path = patch.get_path()
        assert set(path.codes) <= {path.MOVETO, path.LINETO, path.CLOSEPOLY}
        x, y = path.vertices[:5].T
        drawn = abs((x * np.roll(y, -1) - y * np.roll(x, -1)).sum()) / 2
        assert drawn == pytest.approx(row["area"] * full, abs=1e-6) and drawn == pytest.approx(area(row[AXES]) * full, abs=1e-6)
        assert patch.get_facecolor()[:3] == to_rgba(style(list(table.index).index(name))["color"])[:3]
    assert ax.name == "rectilinear"


def test_radii_stand_on_their_axes(table):
    ax = radar(table, axes=AXES[::-1])
    x, y = drawn(ax)[0].get_xydata()[:5].T
    assert np.hypot(x, y) == pytest.approx(table.loc["first", AXES[::-1]].to_numpy(dtype=float))
    assert x[0] == pytest.approx(0, abs=1e-12) and y[0] >= 0 and x[1] > 0 # the first points up, the next to the right
    texts = [t.get_text() for t in ax.texts]
    assert texts[:5] == ["HV", "AS", "UD", "ONVGR", "ONVG"]


@pytest.mark.parametrize("n", [1, 2, 8, 12])
def test_one_legend_entry_per_system_in_the_colour_of_its_line(n):
    rows = pd.DataFrame(np.random.default_rng(0).random((n, 5)), columns=AXES, index=[f"system {i}" for i in range(n)])
    ax = radar(rows)
    assert legend(ax) == list(rows.index)
    assert len(drawn(ax)) == len(ax.get_legend().legend_handles) == n
    for i, (line, handle) in enumerate(zip(drawn(ax), ax.get_legend().legend_handles)):
        assert np.hypot(*line.get_xydata()[:5].T) == pytest.approx(rows.iloc[i].to_numpy())
        assert handle.get_color() == line.get_color() == style(i)["color"]
        assert handle.get_marker() == line.get_marker() == style(i)["marker"]


@pytest.mark.parametrize("name", ["_hidden", "cost $", "$a$ and $b$", "a_b^c\\d", "<b>&", "ä 日本"])
def test_any_name_of_a_system_is_written_as_it_is(name, tmp_path):
    points = {name: SYSTEMS["first"], "other": SYSTEMS["second"]}
    found = compare(points, WAYS)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        for ax, alt in ((radar(found), describe_radar(found)), (scatter(points, ["acc", "dpd+g"]), describe_scatter(points, ["acc", "dpd+g"]))):
            assert len(ax.get_legend().legend_handles) == 2 and [t.partition(" (0.")[0] for t in legend(ax)] == [name, "other"]
            assert not any(t.get_parse_math() for t in ax.get_legend().get_texts())
            assert name in alt
            for f in save_figure(ax.figure, tmp_path / "f", alt, formats=("svg",)): assert f.stat().st_size > 1000


@pytest.mark.parametrize("k", [3, 4, 6, 7])
def test_other_numbers_of_axes(k):
    rows = pd.DataFrame([[.5] * k], columns=[f"axis {i}" for i in range(k)], index=["s"])
    ax = radar(rows, axes=list(rows))
    assert len(drawn(ax)[0].get_xdata()) == k + 1


def test_axes_go_in_and_come_out(table):
    fig, (left, right) = plt.subplots(1, 2)
    assert radar(table, ax=left) is left and scatter(SYSTEMS, ["acc", "dpd+g"], ax=right) is right
    assert plt.get_fignums() == [fig.number]
    assert table.equals(compare(SYSTEMS, WAYS)) # the table stays


def test_radar_refuses_in_words(table):
    for change, words in ((dict(axes=["HV", "UD"]), "three"), (dict(axes=["HV", "UD", "XX"]), "XX")):
        with pytest.raises(ValueError, match=words): radar(table, **change)
    with pytest.raises(ValueError, match="1.5"): radar(table.assign(HV=1.5))


# Fronts

@pytest.mark.parametrize("ways", [["max", "min"], ["min", "min"], ["max", "max"], ["min", "max"]])
def test_the_area_under_the_stairs_is_the_hypervolume(ways):
    for seed in range(5):
        points = np.random.default_rng(seed).integers(0, 9, (12, 2)) / 8
        u, v = np.vstack([stairs(points, ways), [0 if w == "max" else 1 for w in ways]]).T
        assert abs(u @ np.roll(v, -1) - v @ np.roll(u, -1)) / 2 == pytest.approx(indicators(points, ways)["HV"], abs=1e-12)


def test_marks_hold_the_points_they_stand_for():
    ax = scatter(SYSTEMS, ["acc", "eod+sex"], black_boxes=["third"])
    filled, open_marks = ([(line.get_color(), tuple(p)) for line in drawn(ax) if (line.get_markerfacecolor() == "white") == hollow for p in line.get_xydata()] for hollow in (False, True))
    first, second, third = (style(i)["color"] for i in range(3))
    assert sorted(filled) == sorted([(first, (.9, .5)), (first, (.6, .1)), (first, (.7, .3)), (second, (.8, .2)), (second, (.85, .45)), (third, (.3, .9))])
    assert open_marks == [(first, (.5, .5))]
    assert legend(ax) == ["first", "second", "third (black box)"]
    for i, handle in enumerate(ax.get_legend().legend_handles): assert (handle.get_color(), handle.get_marker()) == (style(i)["color"], style(i)["marker"])
    assert "accuracy" in ax.get_xlabel() and "more" in ax.get_xlabel() and "equalized odds difference" in ax.get_ylabel() and "less" in ax.get_ylabel()


def test_any_two_of_three_objectives():
    points = np.random.default_rng(0).random((8, 3))
    for x, y in ((0, 2), ("dpd+g", "acc"), (2, 1)):
        ax = scatter({"s": points}, ["acc", "dpd+g", "f1"], x=x, y=y)
        i, j = (["acc", "dpd+g", "f1"].index(a) if isinstance(a, str) else a for a in (x, y))
        got = {tuple(p) for line in drawn(ax) for p in line.get_xydata()}
        assert {tuple(p) for p in points[:, [i, j]]} <= got


def test_black_boxes_know_by_themselves():
    scores = Scores({"m": [0, 1, 0, 1]}, [0, 1, 1, 0], {"g": list("abab")})
    assert legend(scatter({"rule": a_posteriori(scores, ["acc", "dpd+g"])})) == ["rule (black box)"]


@pytest.mark.parametrize("points", [np.array([[.5, .5]]), np.full((4, 2), .5), np.array([[0., 1.], [1., 0.]]), np.empty((0, 2))])
def test_thin_fronts_are_drawn(points, tmp_path):
    ax = scatter({"s": points}, ["acc", "dpd+g"], shade=True)
    save_figure(ax.figure, tmp_path / "f.png", describe_scatter({"s": points}, ["acc", "dpd+g"]))


# Words

def test_descriptions_are_made_from_the_numbers(table):
    text = describe_radar(table)
    for name, row in table.iterrows():
        assert name in text
        for c in (*AXES, "area"): assert f"{row[c]:.2f}" in text
    text = describe_scatter(SYSTEMS, ["acc", "eod+sex"])
    for words in ("first: 3 of 4", "second: 2 of 2", "third: 1 of 1", "0.60 to 0.90", "accuracy", "equalized odds difference"): assert words in text


class Images(HTMLParser):
    "Images of a page with their alternative texts, and the order of headings."
    def __init__(self, text):
        super().__init__()
        self.images = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "img": self.images.append(dict(attrs))


def test_described_figures_are_html_with_escaped_words():
    fig, ax = plt.subplots(figsize=(3, 2))
    shown = described(fig, 'Points with "a" < "b" & more.')
    assert not plt.fignum_exists(fig.number)
    (img,) = Images(shown._repr_html_()).images
    assert img["alt"] == 'Points with "a" < "b" & more.' and img["width"] == "300" and "<figure>" in shown._repr_html_()
    assert Image.open(io.BytesIO(base64.b64decode(img["src"].partition(",")[2]))).size == (300, 200)
    with pytest.raises(ValueError, match="alt"): described(plt.figure(), "  ")


@pytest.mark.parametrize("page", ["05_radar", "08_fronts"])
def test_every_figure_of_an_exported_page_has_its_words(root, page):
    from nbconvert import HTMLExporter
    from traitlets.config import Config
    notebook = nbformat.read(root / f"nbs/{page}.ipynb", 4)
    body, _ = HTMLExporter(config=Config({"HTMLExporter": {"template_name": "basic"}})).from_notebook_node(notebook)
    images = Images(body).images
    stored = sum("<figure>" in "".join(o["data"].get("text/html", "")) for c in notebook.cells if c.cell_type == "code" for o in c.outputs if "data" in o)
    assert len(images) == stored >= 1
    for img in images: assert len(img.get("alt", "").split()) >= 8, img.get("alt")


def test_no_page_shows_a_picture_without_words(root):
    for path in sorted((root / "nbs").rglob("*.ipynb")):
        for c in nbformat.read(path, 4).cells:
            for o in c.get("outputs", []):
                data = o.get("data", {})
                assert not any(k.startswith("image/") for k in data), (path.name, c.id)
                for img in Images("".join(data.get("text/html", ""))).images: assert len(img.get("alt", "").split()) >= 8, (path.name, c.id)


# Files

@pytest.mark.parametrize("ending,marks", [("png", [b"Description", "Gr\u00f6\u00dfe".encode("latin-1")]), ("svg", [b"<dc:description>", "Gr\u00f6\u00dfe".encode()]), ("pdf", [b"/Subject"])])
def test_the_same_figure_is_the_same_bytes_and_carries_its_words(tmp_path, table, ending, marks):
    def draw(name):
        with plt.rc_context(PAPER):
            ax = radar(table)
            (f,) = save_figure(ax.figure, tmp_path / f"{name}.{ending}", "Radar chart; Größe & <order>.")
        plt.close("all")
        return f.read_bytes()
    a = draw("a"); b = draw("b")
    assert a == b
    for m in marks: assert m in a
    assert not re.search(rb"20\d\d-\d\d-\d\dT|CreationDate \(D:", a)
    if ending == "pdf": assert b"/Type3" not in a and b"/FontFile2" in a


def test_pictures_and_drawings_by_default_with_backup_of_other_ones(tmp_path):
    fig, ax = plt.subplots(figsize=(2, 2))
    assert [f.name for f in save_figure(fig, tmp_path / "new/a.b", "Nothing yet.")] == ["a.b.png", "a.b.svg"]
    first = (tmp_path / "new/a.b.png").read_bytes()
    save_figure(fig, tmp_path / "new/a.b", "Nothing yet.")
    assert not list(tmp_path.rglob("*~"))
    ax.plot([0, 1])
    save_figure(fig, tmp_path / "new/a.b", "A line.")
    assert (tmp_path / "new/a.b.png~").read_bytes() == first
    with pytest.raises(ValueError, match="alt"): save_figure(fig, tmp_path / "c", "")
    assert not (tmp_path / "c.png").exists()


def test_drawing_leaves_the_settings_of_others_alone(table, tmp_path):
    before = dict(mpl.rcParams)
    save_figure(radar(table).figure, tmp_path / "f", "Radar chart.")
    scatter(SYSTEMS, ["acc", "dpd+g"])
    assert dict(mpl.rcParams) == before
