"Every lesson has its form, keeps its answers to itself, runs as it is stored, and runs with the worked solutions in the place of the dots."
import ast
import json
import math
import re
import socket
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from fairical_nb import teach, teach_panels
from fairical_nb.teach import exercises

TUTORIALS = Path(__file__).parents[1] / "nbs" / "tutorials"
LESSONS = sorted(TUTORIALS.glob("lesson_*.ipynb"))
each = pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def text(cell):
    return "".join(cell["source"])


def shown(cell):
    "What the stored outputs of a cell say, pictures left out."
    data = [o.get("data", {}) | {"stream": o.get("text", "")} for o in cell.get("outputs", [])]
    said = ["".join(d.get(kind, "")) for d in data for kind in ("text/plain", "text/html", "text/markdown", "stream")]
    return re.sub(r"base64,[^\"']+", "", "\n".join(said))


def code(page):
    return [c for c in page if c["cell_type"] == "code"]


def prose(page):
    return "\n\n".join(text(c) for c in page if c["cell_type"] == "markdown")


def number(path):
    return re.fullmatch(r"lesson_(\d)_\w+", path.stem)[1]


def places(page):
    "{exercise: its cell} of a lesson: the cells with dots, or with solutions in their place."
    found = {name: c for c in code(page) for name in re.findall(r'^check\("(L\d\.\d+)", answer\)$', text(c), re.M)}
    assert len(found) == sum("check(" in text(c) for c in code(page)), "each check stands alone at the end of its cell"
    return found


def section(page, title):
    "The text under a heading of level two."
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", prose(page), re.M | re.S)
    assert found, f"no heading '## {title}'"
    return found[1].strip()


# Form

def test_there_are_lessons_and_each_has_its_solutions():
    assert len(LESSONS) >= 4 and [number(p) for p in LESSONS] == [str(k) for k in range(1, len(LESSONS) + 1)]
    assert {p.name for p in (TUTORIALS / "solutions").glob("lesson_*.ipynb")} == {p.name for p in LESSONS}


@each
def test_opens_with_goals_limits_and_a_result(path):
    page = cells(path)
    assert re.match(rf"# Lesson {number(path)}: \S.*\n\n> \d\d minutes\. \S", text(page[0])) and len(text(page[0]).splitlines()) == 3
    assert len(re.findall(r"^- ", section(page, "Goals"), re.M)) >= 3
    box = next(text(c) for c in page if text(c).startswith("> **Limits.**"))
    assert len(box) > 400 and all(word in box for word in ("perceived", "group", "one person", '"fair"', "People and harm")) and ("medical" in box or "stand-in" in box)
    first = code(page)[0]
    assert re.search(r'<img alt="[^"]+"', shown(first)), "the first code cell shows a result"
    assert page.index(first) < next(k for k, c in enumerate(page) if "## Why bother" in text(c)), "the result comes before the reasons"
    assert 8 <= sum(map(bool, section(page, "Why bother").splitlines())) <= 14


@each
def test_ends_with_five_questions_and_an_open_one(path):
    page = cells(path)
    assert re.findall(r"^(\d)\. .+\?|^(\d)\. .+\)$", section(page, "Five questions"), re.M) and re.findall(r"^(\d)\. ", section(page, "Five questions"), re.M) == list("12345")
    assert "?" in section(page, "An open question")
    titles = re.findall(r"^## (.+)$", prose(page), re.M)
    assert titles[-3:] == ["What to take home", "Five questions", "An open question"]


@each
def test_a_still_picture_stands_under_every_panel(path):
    page = code(cells(path))
    panels = [c for c in page if re.search(r"^\w+_panel\(", text(c), re.M)]
    assert panels, "a lesson has something to move"
    for cell in panels:
        html = shown(cell)
        assert re.search(r'<img alt="[^"]{30,}"', html) and "role='status'" in html
        assert not any("widget-view" in kind for o in cell["outputs"] for kind in o.get("data", {})), "stored lessons are still: FAIRICAL_NB_STILL=1"


@each
def test_prose_alt_texts_and_short_cells(path):
    page = cells(path)
    assert len(page) - len(code(page)) >= .7 * len(code(page)) and max(len(text(c).splitlines()) for c in code(page)) <= 30
    assert all(alt.strip() for c in code(page) for alt in re.findall(r'<img alt="([^"]*)"', shown(c)))
    assert all(c["outputs"] for c in code(page)), "the lesson was run before it was stored"
    assert not any(o["output_type"] in ("error", "stream") for c in code(page) for o in c["outputs"])


@each
def test_links_lead_somewhere_and_never_to_the_solutions(path):
    page = cells(path)
    everything = prose(page) + "".join(text(c) for c in code(page))
    assert "solutions/" not in everything and "instructor" not in everything and "answers.ipynb" not in everything
    for target in re.findall(r"\]\(([^)#]+)\)", prose(page)):
        following = re.fullmatch(r"lesson_(\d)_\w+\.ipynb", target)
        assert (path.parent / target).is_file() or (following and int(following[1]) == len(LESSONS) + 1), target


# Exercises

@each
def test_every_exercise_of_the_book_stands_in_its_lesson_once(path):
    page, book = cells(path), exercises(lesson=f"L{number(path)}")
    found = places(page)
    assert sorted(found) == sorted(book.index) and len(found) >= 2
    for name, cell in found.items():
        assert text(cell) == f'answer = ...\ncheck("{name}", answer)', "an exercise waits for its answer and holds nothing else"
        assert prose(page).count(f"### Exercise {name}\n") == 1 and f"### Exercise {name}\n" in text(page[page.index(cell) - 1])
        assert "your turn" in shown(cell), "unanswered, as stored"


class Run:
    "A notebook run in this process, cell by cell, what a cell ends in shown as Jupyter would."

    def __init__(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        self.space = {"__name__": "__main__"}

    def cell(self, source):
        *body, last = ast.parse(source).body
        ends = isinstance(last, ast.Expr)
        exec(compile(ast.Module(body if ends else [*body, last], []), "cell", "exec"), self.space)
        if ends:
            show(eval(compile(ast.Expression(last.value), "cell", "eval"), self.space))


def show(value):
    for way in ("_ipython_display_", "_repr_html_", "_repr_markdown_", "__repr__"):
        if hasattr(value, way):
            return getattr(value, way)()


@pytest.fixture
def alone(monkeypatch):
    "No network, no widgets; matplotlib's settings as they were."
    def refuse(*a, **k):
        raise OSError("a lesson needs no network")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(teach_panels, "find_spec", lambda name: None)
    monkeypatch.delenv(teach_panels.STILL, raising=False)
    with plt.rc_context():
        yield monkeypatch
    plt.close("all")


def verdicts(monkeypatch):
    "A list that fills with what `check` says."
    said, ask = [], teach.check
    monkeypatch.setattr(teach, "check", lambda *a, **k: said.append(ask(*a, **k)) or said[-1])
    return said


@each
def test_runs_without_answers_network_and_widgets(path, alone):
    said, run, began = verdicts(alone), Run(path.parent, alone), time.process_time()
    for cell in code(cells(path)):
        run.cell(text(cell))
    assert [v.right for v in said] == [None] * len(places(cells(path))), "nothing is judged before it is answered"
    assert time.process_time() - began < 120, "a lesson is for a classroom's machine (60 s; twice that is certainly wrong)"


@each
def test_runs_with_the_solutions_in_place_and_every_check_passes(path, alone):
    solved = cells(path.parent / "solutions" / path.name)
    put = {c["id"]: text(c) for c in code(solved)}
    assert set(put) == {"imports"} | {c["id"] for c in places(cells(path)).values()}, "a solution has the id of the cell it replaces"
    said, run = verdicts(alone), Run(path.parent, alone)
    run.cell(put.pop("imports"))
    for cell in code(cells(path)):
        run.cell(put.get(cell["id"], text(cell)))
    assert {v.exercise: v.right for v in said} == dict.fromkeys(places(cells(path)), True)


# No answer stands in a lesson

def digits(spelled):
    "How many digits say something: 2 in 0.270."
    return len(spelled.strip("0.").replace(".", "")) if "." in spelled else len(spelled.rstrip("0"))


def spellings(value):
    "How a number may be written, exactly or with three digits or more: .27 as 0.27, 0.270. Numbers of one digit are everywhere."
    rounded = {f"{value:.{d}f}" for d in range(5)}
    return {r for r in rounded if digits(r) >= (2 if abs(float(r) - value) < 1e-9 else 3)}


def stands(value, where):
    "Is this answer written there?"
    if isinstance(value, str):
        return bool(re.search(rf"answer = [\"']{re.escape(value)}[\"']", where))
    if not math.isfinite(value):
        return False
    return any(re.search(rf"(?<![\d.]){'0?' if s.startswith('0.') else ''}{re.escape(s.removeprefix('0'))}(?!\d)", where) for s in spellings(abs(value)))


@pytest.mark.parametrize("value, where, found", [(.27, "about .27 of it", True), (.27, "0.270", True), (.27, ".275 and 1.27", False), (.208, "0.208", True), (.2875, "area 0.29", False), (.2875, "0.2875", True), (.6339745962155614, ".634", True), (1.425, "r = 1.425", True),
                                                 (.5, "the half, .5", False), (115., "115 x 115", True), (20., "20", False), (3.7776, "-3.78", True), (float("nan"), "nan", False), ("HGF System1", "HGF System1", False), ("AS", "answer = 'AS'", True)])
def test_the_search_for_answers_finds_them(value, where, found):
    assert stands(value, where) is found


def answers_of(path):
    "{exercise: list of values} of the worked solutions, computed."
    space, found = {}, {}
    for cell in code(cells(path.parent / "solutions" / path.name)):
        tree = ast.parse(text(cell))
        exec(compile(tree, "solution", "exec"), space)
        for name in re.findall(r'check\("(L\d\.\d+)"', text(cell)):
            found[name] = list(np.asarray(space["answer"], dtype=object).ravel())
    return found


@each
def test_no_answer_stands_in_its_lesson_before_it_is_asked_nor_in_words_or_code_after(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    page, where = cells(path), places(cells(path))
    written = prose(page) + "\n" + "\n".join(text(c) for c in code(page))
    for name, values in answers_of(path).items():
        before = "\n".join(shown(c) for c in page[:page.index(where[name]) + 1])
        for v in values:
            v = v if isinstance(v, str) else float(v)
            assert not stands(v, written), f"{name}: {v} is written in the lesson"
            assert not stands(v, before), f"{name}: {v} is shown before it is asked"


def test_the_instructors_page_tells_timing_mistakes_and_checks():
    page = cells(TUTORIALS / "instructor.ipynb")
    assert not code(page) and all(word in prose(page) for word in ("minutes", "mistakes", "check(", "solutions"))
    for path in LESSONS:
        assert f"]({path.name})" in prose(page) and f"## Lesson {number(path)}" in prose(page)


def test_the_sweep_of_lesson_7_is_the_kept_one():
    "No number of the front is made up: each mark is a run in nbs/weights/fairgrpo."
    cell = next(c for c in code(cells(TUTORIALS / "lesson_7_fairgrpo.ipynb")) if c["id"] == "l7-sweep")
    marks = re.findall(r"(β [\d.]+|before) seed (\d+): (\d\.\d\d), (\d\.\d\d)", re.search(r'alt="([^"]*)"', shown(cell))[1])
    assert len({m[0] for m in marks}) >= 4 and len(marks) >= 6
    for name, seed, clear, balance in marks:
        kept = json.loads((TUTORIALS.parent / "weights" / "fairgrpo" / f"{name.replace('β ', 'beta').replace('before', 'baseline')}-seed{seed}.json").read_text())["measures"]["deployment"]
        assert (f"{kept['clear']:.2f}", f"{kept['judge MGBI']:.2f}") == (clear, balance), (name, seed)
