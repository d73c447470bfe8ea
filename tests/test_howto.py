"Every how-to page is short, says what it needs, runs in seconds, and leaves nothing behind."
import json
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "nbs" / "howto").glob("[a-z]*.ipynb"))
each = pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def text(cell):
    return "".join(cell["source"])


def outputs(cell):
    return [o for o in cell.get("outputs", [])]


def test_there_are_how_to_pages():
    assert {"scores_from_scikit_learn", "scores_from_csv", "new_metric_or_indicator", "cluster_run"} <= {p.stem for p in PAGES}


@each
def test_short_and_in_the_order_title_need_imports_steps_adapt(path):
    page = cells(path)
    prose = [text(c) for c in page if c["cell_type"] == "markdown"]
    code = [text(c) for c in page if c["cell_type"] == "code"]
    assert len(page) <= 15 and max(len(c.splitlines()) for c in code) <= 20
    assert re.fullmatch(r"# How to \S[^\n]*\n\n> \S[^\n]*", prose[0])
    assert prose[1].startswith("**You need**") and "People and harm" in prose[1]
    assert prose[-1].startswith("**Adapt**") and prose[-1].count("\n- ") >= 3
    steps = re.findall(r"^\*\*(\d)\. ", "\n\n".join(prose), re.M)
    assert steps == [str(k + 1) for k in range(len(steps))] and len(steps) >= 3
    assert all(re.match(r"(import|from) ", line) for line in code[0].splitlines()), "imports first, alone"


@each
def test_stored_outputs_are_shown_described_and_clean(path):
    page = [c for c in cells(path) if c["cell_type"] == "code"]
    stored = json.dumps([c["outputs"] for c in page])
    assert any(c["outputs"] for c in page) and len(stored) < 200_000
    assert not re.search(r'"output_type": "error"|Warning|/tmp/|/work/|/home/', stored), "no error, no warning, no path of a machine"
    for c in page:
        for o in outputs(c):
            data = o.get("data", {})
            assert not any(kind.startswith("image/") for kind in data), "pictures are shown with a description"
            assert all(alt.strip() for alt in re.findall(r'<img alt="([^"]*)"', "".join(data.get("text/html", ""))))


@each
def test_names_in_prose_exist(path):
    "What a page says in passing (`module.function`, a command's option) is there."
    import importlib
    from fairical_nb.cli import main
    prose = "\n".join(text(c) for c in cells(path) if c["cell_type"] == "markdown")
    for module, name in re.findall(r"`(?:fairical_nb\.)?([a-z_]+)\.([a-z_]+)\(", prose):
        try:
            found = importlib.import_module(f"fairical_nb.{module}")
        except ModuleNotFoundError:
            continue
        assert hasattr(found, name), f"{module}.{name}"
    for command, rest in re.findall(r"fairical-nb (\w[\w-]*)([^`\n,]*)", prose):
        known = {o for p in main.get_command(None, command).params for o in p.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", rest)) <= known, (command, rest)
