"README.md is what nbs/index.ipynb makes, and what the generator makes of a notebook."
import importlib.util
import json
import re
from pathlib import Path

import form
import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("readme_generator", ROOT / "docs" / "readme.py")
generator = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generator)
PAGES = form.pages(ROOT / "nbs")


def test_readme_is_what_the_index_makes():
    assert (ROOT / "README.md").read_text(encoding="utf-8") == generator.readme(ROOT / "nbs" / "index.ipynb"), "run make readme"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= generator.LONGEST


def listed():
    "The notebooks that the index lists, in its order."
    return list(dict.fromkeys(re.findall(r"\]\(([\w/]+\.ipynb)\)", "".join(form.source(c) for c in PAGES["index.ipynb"].prose).partition("| notebook |")[2])))


def test_the_index_lists_every_notebook():
    assert set(PAGES) - set(listed()) == {"index.ipynb", *(n for n in PAGES if "/solutions/" in n)}


def test_in_the_order_of_the_index_each_page_imports_only_earlier_ones():
    order, late = [n for n in listed() if PAGES[n].is_library], []
    for place, name in enumerate(order):
        exported = [c for c in PAGES[name].code if form.source(c).startswith("#| export")]
        late += [(name, m) for c in exported for m in form.imported(c) if PAGES[name].made_by[m] not in order[:place]]
    assert len(order) > 100 and not late


def output(**data):
    return {"output_type": "execute_result", "metadata": {}, "execution_count": None, "data": {k.replace("_", "/"): v for k, v in data.items()}}


@pytest.fixture
def make(tmp_path):
    "The README of a notebook with these cells: strings are text cells, tuples are code and its outputs."
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "radar.png").touch()

    def make(*cells):
        path = tmp_path / "nbs" / "index.ipynb"
        path.parent.mkdir(exist_ok=True)
        nb = [{"id": f"c{i}", "metadata": {}, "cell_type": "markdown", "source": c} if isinstance(c, str) else
              {"id": f"c{i}", "metadata": {}, "cell_type": "code", "source": c[0], "execution_count": None, "outputs": list(c[1:])} for i, c in enumerate(cells)]
        path.write_text(json.dumps({"cells": nb, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        return generator.readme(path)
    return make


def test_text_code_and_output(make):
    text = make("# Title\n\n> One sentence.", ("1 + 1", output(text_plain="2")))
    assert text == generator.HEAD + "# Title\n\n> One sentence.\n\n```python\n1 + 1\n```\n\n    2\n"


def test_tables_are_plain_or_markdown_and_never_html(make):
    text = make(("df", output(text_html="<table></table>", text_plain="   HV\na  0.5")), ("md", output(text_markdown="| a |\n|---|", text_plain="<MD>")))
    assert "    a  0.5" in text and "| a |\n|---|" in text and "<table" not in text and "<MD>" not in text


def test_hidden_cells_and_hidden_code(make):
    text = make(("#| hide\nsecret = 1",), ("#| echo: false\nlong_code()", output(text_plain="0.81")), ("#| export\nx = 1",))
    assert "secret" not in text and "long_code" not in text and "0.81" in text and "#|" not in text


def test_links_move_up_one_folder(make):
    text = make('![radar](../figures/radar.png) <img alt="r" src="../figures/radar.png"> [page](index.ipynb#title) [web](https://example.org/a) [here](#title)')
    for link in ("](figures/radar.png)", 'src="figures/radar.png"', "](nbs/index.ipynb#title)", "](https://example.org/a)", "](#title)"):
        assert link in text


@pytest.mark.parametrize("link", ["../figures/lost.png", "../../outside.png"])
def test_dead_links_are_refused(make, link):
    with pytest.raises(ValueError, match="no file of this project"):
        make(f"![x]({link})")


@pytest.mark.parametrize("data", [{"image_png": "iVBO"}, {"text_html": '<img alt="a" src="data:">', "text_plain": "Figure"}])
def test_stored_pictures_are_refused(make, data):
    with pytest.raises(ValueError, match="save it under figures/"):
        make(("fig", output(**data)))
