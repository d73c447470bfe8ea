"Every notebook and module obeys the rules of form, and every rule refuses a page that breaks it."
import ast
import copy
import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import form
import pytest

ROOT = Path(__file__).parents[2]
PAGES = form.pages(ROOT / "nbs")
MODULES = sorted(p for p in (ROOT / "fairical_nb").rglob("*.py") if not p.name.startswith("_"))


# Pages and modules that do not obey a rule yet. Each is expected to fail, so an entry that has been mended must leave the list: it may only become shorter.
UNFINISHED = set()  # (page or module, name of the rule)


def unfinished(request, name, rule):
    if (name, rule.__name__) in UNFINISHED:
        request.applymarker(pytest.mark.xfail(strict=True, reason="unfinished, see UNFINISHED"))


@pytest.mark.parametrize("name, rule", [(name, rule) for name, page in PAGES.items() for rule in form.rules(page)],
                         ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_notebook(name, rule, request):
    unfinished(request, name, rule)
    found = rule(PAGES[name])
    assert not found, "\n".join([name, *found])


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
@pytest.mark.parametrize("rule", [form.short_functions, form.documented], ids=lambda r: r.__name__)
def test_module(path, rule, request):
    unfinished(request, path.stem, rule)
    found = rule(path.read_text(encoding="utf-8"))
    assert not found, "\n".join([path.name, *found])


def test_there_are_notebooks_of_each_kind_of_rule():
    assert any(p.is_library for p in PAGES.values()) and MODULES


# Each rule refuses what breaks it: a good page, then one change a case

def md(text):
    return {"cell_type": "markdown", "id": f"m{crc32(text.encode())}", "metadata": {}, "source": text}


def code(text, *outputs, tags=()):
    data = [{"output_type": "execute_result", "data": d, "metadata": {}, "execution_count": None} for d in outputs]
    return {"cell_type": "code", "id": f"c{crc32(text.encode())}", "metadata": {"tags": list(tags)} if tags else {},
            "source": text, "outputs": data, "execution_count": None}


def good():
    cells = [code("#| default_exp sums"), md("# Sums\n\n> One number from many."), md("![three bars](../figures/x.png)"),
             md("**Where we are.** In: numbers. Out: `one`. Before: [`files`](00_files.ipynb). Next: [late](03_late.ipynb) asks more."),
             code("#| export\nimport numpy as np\nfrom fairical_nb.files import replacing"), md("One idea."),
             code("#| export\ndef total(x):\n    return np.sum(x)"), md("Shown."), code("total([1, 2])", {"text/plain": "3"}),
             code("described(fig, 'three bars')", {"text/html": "<figure><img alt='three bars' src=''></figure>"})]
    return form.Page("02_sums.ipynb", cells, {"files": "00_files.ipynb", "sums": "02_sums.ipynb", "late": "03_late.ipynb"},
                     ("00_files.ipynb", "02_sums.ipynb", "03_late.ipynb", "paper/x.ipynb"))


def add(*cells):
    return lambda page: page.cells.extend(cells)


def drop(key):
    return lambda page: page.cells[4].pop(key)


BROKEN = [
    ("no id", form.ids, drop("id")),
    ("an id twice", form.ids, lambda page: page.cells.append(copy.deepcopy(page.cells[1]))),
    ("an id with a blank", form.ids, lambda page: page.cells[3].update(id="a b")),
    ("a stored error", form.no_errors, lambda page: page.cells[6]["outputs"].append({"output_type": "error", "ename": "E", "evalue": "", "traceback": []})),
    ("not Python", form.no_errors, add(code("x = = 1"))),
    ("31 lines", form.short_cells, add(code("x = 1\n" * 31))),
    ("large outputs", form.small_outputs, add(code("x", {"text/plain": "x" * 200_001}))),
    ("a window", form.no_screen, add(code("plt" + ".show()"))),
    ("a backend", form.no_screen, add(code("import matplotlib\nmatplotlib" + ".use('Agg')"))),
    ("an export cell", form.no_screen, add(code("import nbdev; nbdev.nbdev_export()"))),
    ("a bare picture", form.alt_text, add(code("fig", {"image/png": "iVBO", "text/plain": "<Figure>"}))),
    ("an img without alt", form.alt_text, add(code("fig", {"text/html": "<img src='data:image/png;base64,iVBO'>"}))),
    ("an img with empty alt", form.alt_text, add(code("fig", {"text/html": "<img alt=' ' src=''>"}))),
    ("a link without alt", form.alt_text, add(md("![](x.png)"))),
    ("a page that is not there", form.links, add(md("See [late](04_late.ipynb)."))),
    ("a page that is in another folder", form.links, add(md("See [x](x.ipynb#part)."))),
    ("a bar", form.no_bars, add(code("load()", {"text/plain": "Loading weights:   0%|          | 0/37 [00:00<?, ?it/s]"}))),
    ("a bar, printed", form.no_bars, lambda page: page.code[-1]["outputs"].append({"output_type": "stream", "name": "stderr", "text": ["Epoch:  50%|####  | 5/10 [00:01"]})),
    ("nowhere", form.placed, lambda page: page.cells.pop(3)),
    ("a neighbour without a link", form.placed, lambda page: page.cells[3].update(source="**Where we are.** Before: [`files`](00_files.ipynb). Next: `late`.")),
    ("no neighbour", form.placed, lambda page: page.cells[3].update(source="**Where we are.** In: numbers.")),
    ("no default_exp", form.opening, lambda page: page.cells.pop(0)),
    ("no sentence", form.opening, lambda page: page.cells[1].update(source="# Sums\n\nMore.")),
    ("a later module", form.order, add(code("from fairical_nb.late import x"))),
    ("a later module, the other way", form.order, add(code("from fairical_nb import late"))),
    ("a later module, inside a function", form.order, add(code("def f():\n    import fairical_nb.late as l"))),
    ("its own module", form.order, add(code("from fairical_nb.sums import total"))),
    ("a module that no notebook makes", form.order, add(code("from fairical_nb.lost import x"))),
    ("imports among code", form.imports_alone, add(code("import os\nos.getcwd()", {"text/plain": "."}))),
    ("little prose", form.enough_prose, add(*(code(f"x{i} = 1") for i in range(9)))),
    ("a value without output", form.outputs_stored, add(code("x = 2\nx + 1"))),
    ("a figure without output", form.outputs_stored, add(code("described(fig, 'a')"))),
    ("a print without output", form.outputs_stored, add(code("print(1)\nx = 1"))),
    ("never run", form.outputs_stored, lambda page: [c.update(outputs=[]) for c in page.code]),
]


def test_the_good_page_is_good():
    page = good()
    assert {rule.__name__: found for rule in form.rules(page) if (found := rule(page))} == {}


@pytest.mark.parametrize("rule, change", [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_notebook_rule_refuses(rule, change):
    page = good()
    change(page)
    assert len(rule(page)) >= 1


def test_every_rule_has_a_broken_example():
    assert {rule for _, rule, _ in BROKEN} == {*form.EVERY, *form.LIBRARY}


@pytest.mark.parametrize("quiet", ["x = 1", "total(1)", "x;", "#| eval: false\nx", "def f(): return 1", "None"])
def test_cells_without_output_that_need_none(quiet):
    page = good()
    add(code(quiet))(page)
    assert form.outputs_stored(page) == []


GOOD_PARAMETERS = "# The preset demo.\nseed: int = 0  # random seed\nnames = ['a', 'b']  # which systems\nlow = -1.5  # lower end"


def paper(text, *more, tags=("parameters",)):
    return form.Page("paper/x.ipynb", [md("# fig01"), code(text, tags=tags), *more], {})


def test_good_parameters():
    page = paper(GOOD_PARAMETERS, code("from fairical_nb import late"))
    assert {rule.__name__: found for rule in form.rules(page) if (found := rule(page))} == {}


@pytest.mark.parametrize("line", ["a = 1", "a = 1  #", "a = b = 1  # two", "a = 1; c = 2  # two", "a, b = 1, 2  # two", "a = 2 * seed  # derived",
                                  "a = Path('x')  # a call", "import os  # an import", "a[0] = 1  # an item", "a = (1,  # cut\n     2)"])
def test_parameters_refused(line):
    assert len(form.parameters(paper(f"{GOOD_PARAMETERS}\n{line}"))) >= 1


def test_parameters_must_be_one_tagged_cell():
    assert "0 cells" in form.parameters(paper(GOOD_PARAMETERS, tags=()))[0]
    assert "2 cells" in form.parameters(paper(GOOD_PARAMETERS, code("b = 1  # other", tags=["parameters"])))[0]
    assert "no parameter" in form.parameters(paper("# nothing here"))[0]


def test_definitions_refused():
    assert len(form.no_definitions(paper(GOOD_PARAMETERS, code("if 1:\n    def f(): return 1"), code("class A: pass")))) == 2


FUNCTION = '''__all__ = ["f"]
def f(
    x, # (n,) numbers
    *,
    low=(0,
         1), # two ends
    **more, # passed on
): # the sum
    "One line."
    return x
'''


def test_good_module():
    assert form.documented(FUNCTION) == [] and form.short_functions(FUNCTION) == []


@pytest.mark.parametrize("old, new", [('    "One line."\n', ""), (" # (n,) numbers", ""), (" # two ends", ""), (" # passed on", ""),
                                      ("    x, # (n,) numbers\n", "    x, y, # (n,) numbers\n")])
def test_undocumented_refused(old, new):
    assert old in FUNCTION and len(form.documented(FUNCTION.replace(old, new))) >= 1


def test_undocumented_classes_refused():
    text = '__all__ = ["A"]\nclass A:\n    "A thing."\n    x: int # a number\n    def m(self):\n        "One."\n'
    assert form.documented(text) == []
    for old in ('    "A thing."\n', " # a number", '        "One."\n'):
        assert len(form.documented(text.replace(old, "        pass\n" if "One" in old else ""))) >= 1, old


def test_long_function_refused():
    assert form.short_functions("def f():\n    'Doc.'\n" + "    x = 1\n" * 30) == []
    assert len(form.short_functions("def f():\n    'Doc.'\n" + "    x = 1\n" * 31)) == 1


# What importing costs

HEAVY = ("torch", "fastcore", "nbdev", "execnb", "IPython")
WITHOUT_TORCH = {*range(13), 22, 24, *range(40, 43)}
PROBE = """
import importlib, sys
for name in sys.argv[2:]:
    before = set(sys.modules)
    importlib.import_module(name)
    for heavy in sys.argv[1].split(","):
        if heavy in set(sys.modules) - before:
            print(name, "imports", heavy)
"""


def heavy_imports(names, path):
    "Which of the modules `names` pull in what the library must not need, in a fresh process."
    done = subprocess.run([sys.executable, "-c", PROBE, ",".join(HEAVY), *names], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(path)})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_modules_import_without_torch_and_notebook_tools():
    made_by = next(iter(PAGES.values())).made_by
    names = [f"fairical_nb.{m}" for m, nb in sorted(made_by.items()) if int(nb[:2]) in WITHOUT_TORCH]
    assert names and heavy_imports(names, ROOT) == []


def test_heavy_import_is_noticed(tmp_path):
    (tmp_path / "heavy_one.py").write_text("import fastcore.basics")
    assert heavy_imports(["heavy_one"], tmp_path) == ["heavy_one imports fastcore"]


def test_version_and_exports():
    import fairical_nb
    settings = (ROOT / "settings.ini").read_text(encoding="utf-8")
    assert f"\nversion = {fairical_nb.__version__}\n" in settings
    for path in MODULES:
        assert form.exports(ast.parse(path.read_text(encoding="utf-8"))) is not None, path.name
