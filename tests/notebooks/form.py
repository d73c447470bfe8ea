"The rules of form. Each rule takes a page (or a module's source) and returns its complaints; an empty list means well formed."
import ast
import io
import json
import re
import tokenize
from dataclasses import dataclass
from html.parser import HTMLParser
from os.path import normpath
from pathlib import PurePosixPath

LONGEST_CELL = LONGEST_FUNCTION = 30  # lines
PROSE_PER_CODE = 0.7  # cells
LARGEST_OUTPUTS = 200_000  # bytes a notebook


@dataclass
class Page:
    "One notebook: its path below nbs/, its cells, and which notebook makes each module."
    name: str
    cells: list
    made_by: dict  # module name -> notebook's name
    known: tuple = ()  # names of all notebooks

    @property
    def code(self):
        return [c for c in self.cells if c["cell_type"] == "code"]

    @property
    def prose(self):
        return [c for c in self.cells if c["cell_type"] == "markdown"]

    @property
    def is_library(self):
        return re.fullmatch(r"\d\d_\w+\.ipynb", self.name) is not None

    @property
    def is_paper(self):
        return PurePosixPath(self.name).parent.name == "paper"


def pages(nbs):
    "All notebooks below folder `nbs`, by name."
    paths = sorted(p for p in nbs.rglob("*.ipynb") if not any(part[0] in "._" for part in p.relative_to(nbs).parts))
    cells = {p.relative_to(nbs).as_posix(): json.loads(p.read_text(encoding="utf-8"))["cells"] for p in paths}
    made_by = {m: name for name, found in cells.items() for c in found for m in re.findall(r"^#\|\s*default_exp\s+([\w.]+)", source(c), re.M)}
    return {name: Page(name, found, made_by, tuple(cells)) for name, found in cells.items()}


def source(cell):
    "The text of a cell."
    return "".join(cell["source"])


def tree(cell):
    "The statements of a code cell, magics and shell lines left out; SyntaxError when it is not Python."
    text = source(cell)
    return ast.parse("" if text.startswith("%%") else re.sub(r"^(\s*)[%!].*$", r"\1pass", text, flags=re.M)).body


def label(cell):
    "A cell's id and first line, for a complaint."
    return f"cell {cell.get('id')} ({next(iter(source(cell).splitlines()), '')[:50]!r})"


# Rules for every notebook

def ids(page):
    "Each cell has an id of its own."
    seen = [c.get("id") for c in page.cells]
    return [f"{label(c)}: an id is 1 to 64 letters, digits, - or _" for c in page.cells if not re.fullmatch(r"[\w-]{1,64}", c.get("id") or "")] \
        + [f"id {i} stands {seen.count(i)} times" for i in sorted({i for i in seen if i and seen.count(i) > 1})]


def no_errors(page):
    "No stored output is an error, and every code cell is Python."
    found = [f"{label(c)}: a stored error" for c in page.code if any(o["output_type"] == "error" for o in c["outputs"])]
    for cell in page.code:
        try:
            tree(cell)
        except SyntaxError as e:
            found.append(f"{label(cell)}: not Python: {e}")
    return found


def short_cells(page):
    "No code cell is too long to be read at once."
    return [f"{label(c)}: {n} lines, at most {LONGEST_CELL}" for c in page.code if (n := len(source(c).splitlines())) > LONGEST_CELL]


def small_outputs(page):
    "The stored outputs stay small."
    size = sum(len(json.dumps(c["outputs"])) for c in page.code)
    return [f"stored outputs of {size:,} bytes, at most {LARGEST_OUTPUTS:,}"] if size > LARGEST_OUTPUTS else []


def no_screen(page):
    "No cell shows a window or chooses a matplotlib backend; none exports the library."
    banned = r"\bplt\.show\(|\bmatplotlib\.use\(|^%matplotlib|\bnbdev_export\("
    return [f"{label(c)}: {m[0]}" for c in page.code for m in re.finditer(banned, source(c), re.M)]


class Pictures(HTMLParser):
    "Collects the alternative texts of all <img> of an HTML text."

    def __init__(self, text):
        super().__init__()
        self.alts = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.alts.append((dict(attrs).get("alt") or "").strip())


def alt_text(page):
    "Every picture, stored or linked, has alternative text."
    found = []
    for cell in page.code:
        for data in (o.get("data", {}) for o in cell["outputs"]):
            alts = Pictures("".join(data.get("text/html", ""))).alts
            if not all(alts) or (not alts and any(kind.startswith("image/") for kind in data)):
                found.append(f"{label(cell)}: a stored picture without alternative text")
    for cell in page.prose:
        alts = re.findall(r"!\[([^\]]*)\]", source(cell)) + Pictures(source(cell)).alts
        if not all(a.strip() for a in alts):
            found.append(f"{label(cell)}: a linked picture without alternative text")
    return found


def links(page):
    "A link to a notebook leads to one that exists."
    found = []
    for cell in page.prose:
        for target in re.findall(r"\]\(([^)#\s:]+\.ipynb)\b[^)]*\)", source(cell)):
            if normpath(PurePosixPath(page.name).parent / target) not in page.known:
                found.append(f"{label(cell)}: links to {target}, which is not there")
    return found


def no_bars(page):
    "No progress bar is stored: it says how a run went, not what came out."
    texts = ((c, "".join(o.get("text", o.get("data", {}).get("text/plain", "")))) for c in page.code for o in c["outputs"])
    return [f"{label(c)}: a progress bar is stored: {bar[0].strip()[:40]!r}" for c, text in texts if (bar := re.search(r"[^\n]*\d+%\|.*?\| *\d+/\d+", text))]


# Rules for library notebooks (nbs/NN_name.ipynb)

def opening(page):
    "First the module's name, then one heading and, as a quotation, one sentence: its responsibility."
    head = [source(c) for c in page.cells[:2]]
    good = len(head) == 2 and re.match(r"#\|\s*default_exp \w+", head[0]) and re.match(r"# \S.*\n+> \S", head[1])
    return [] if good else ["must open with a default_exp cell and a cell '# Title', '> one sentence'"]


NEIGHBOURS = r"Before:|Next[:,]|Before it,|It imports|It uses|Related:"


def placed(page):
    "'Where we are' leads to the pages before and after, by links."
    here = [source(c) for c in page.prose if "**Where we are.**" in source(c)]
    if len(here) != 1:
        return [f"{len(here)} cells say 'Where we are', but one is needed"]
    around = re.split(NEIGHBOURS, here[0].partition("\n\n")[0], maxsplit=1)[-1]
    names = [PurePosixPath(k).stem for k in page.known if re.match(r"\d\d_", k)]
    bare = [n for n in re.findall(r"(?<!\[)`(\w+)`(?!\])", re.split(r"\b(?:Second p|P)apers?\b|\bSources?\b", around)[0])
            if sum(n in (k, k[3:]) for k in names) == 1 and f"{n}.ipynb" != page.name[3:] and f"{n}.ipynb" != page.name]
    return [f"'Where we are' names the page {n} without a link" for n in bare] + ([] if ".ipynb)" in here[0] or not bare and len(names) < 2 else ["'Where we are' links to no other page"])


def order(page):
    "Modules are imported only from notebooks whose names sort before this one's."
    found = []
    for cell in page.code:
        for module in imported(cell):
            maker = page.made_by.get(module)
            if maker is None or maker >= page.name:
                found.append(f"{label(cell)}: imports {module}, which {maker or 'no notebook'} makes: only earlier ones may be imported")
    return found


def imported(cell):
    "The modules of this library that a code cell imports, at any depth."
    for node in (n for statement in tree(cell) for n in ast.walk(statement)):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "fairical_nb":
            names = [f"fairical_nb.{a.name}" for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        yield from (name.split(".", 1)[1] for name in names if name.startswith("fairical_nb."))


def imports_alone(page):
    "Imports share their cell with nothing else."
    found = []
    for cell in page.code:
        kinds = {isinstance(s, (ast.Import, ast.ImportFrom)) for s in tree(cell) if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))}
        if kinds == {True, False}:
            found.append(f"{label(cell)}: imports and other code")
    return found


def enough_prose(page):
    "The page is told, not only coded."
    ratio = len(page.prose) / max(len(page.code), 1)
    return [] if ratio >= PROSE_PER_CODE else [f"{ratio:.2f} prose cells per code cell, at least {PROSE_PER_CODE}"]


def outputs_stored(page):
    "A cell that ends in a value, a figure or a print shows it: the notebook was run before it was stored."
    found = [f"{label(c)}: ends in a value, but no output is stored" for c in page.code if shows(c) and not c["outputs"]]
    return found if any(c["outputs"] for c in page.code) else [*found, "no output at all is stored"]


def shows(cell):
    "Must running this cell give an output?"
    body = tree(cell)
    if not body or re.search(r"^#\|\s*eval:\s*false", source(cell), re.M) or source(cell).rstrip().endswith(";"):
        return False
    if any(isinstance(s, ast.Expr) and calls(s.value) == "print" for s in body):
        return True
    last = body[-1]
    return isinstance(last, ast.Expr) and (not isinstance(last.value, ast.Call) or calls(last.value) == "described") \
        and not (isinstance(last.value, ast.Constant) and last.value.value is None)


def calls(node):
    "The name of the function that an expression calls, or None."
    return getattr(node.func, "id", None) if isinstance(node, ast.Call) else None


# Rules for paper notebooks (nbs/paper/*.ipynb)

def parameters(page):
    "One cell tagged `parameters`: a literal per line, each with a comment that explains it, for papermill to read."
    tagged = [c for c in page.code if "parameters" in c["metadata"].get("tags", [])]
    if len(tagged) != 1:
        return [f"{len(tagged)} cells are tagged parameters, but one is needed"]
    lines = [line for line in source(tagged[0]).splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [f"{label(tagged[0])}: {line!r} is not 'name = literal  # help'" for line in lines if not explained(line)] or \
        ([] if lines else [f"{label(tagged[0])}: no parameter"])


def explained(line):
    "Is this line one assignment of a literal to one name, with a comment?"
    try:
        body = ast.parse(line).body
        [statement] = body
        [target] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        ast.literal_eval(statement.value)
    except (SyntaxError, ValueError, AttributeError):
        return False
    return isinstance(target, ast.Name) and any(len(text) > 3 for text in comments(line).values())


def no_definitions(page):
    "A paper notebook calls the library; it defines nothing."
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [f"{label(c)}: defines {n.name}" for c in page.code for s in tree(c) for n in ast.walk(s) if isinstance(n, kinds)]


EVERY = (ids, no_errors, short_cells, small_outputs, no_screen, alt_text, links, no_bars)
LIBRARY = (opening, placed, order, imports_alone, enough_prose, outputs_stored)
PAPER = (parameters, no_definitions)


def rules(page):
    "The rules that a page must obey."
    return EVERY + (LIBRARY if page.is_library else PAPER if page.is_paper else ())


# Rules for modules: each takes the module's source

def comments(text):
    "The comments of a source text by line number."
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.start[0]: t.string for t in tokens if t.type == tokenize.COMMENT}


def short_functions(text):
    "No function's body, docstring aside, is longer than a screen."
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lengths = {f.name: f.end_lineno - body[0].lineno + 1 for f in functions if (body := f.body[ast.get_docstring(f) is not None:])}
    return [f"{name}: {n} lines, at most {LONGEST_FUNCTION}" for name, n in lengths.items() if n > LONGEST_FUNCTION]


def exports(top):
    "The names in a parsed module's `__all__`; None when it has none."
    found = [s.value for s in top.body if isinstance(s, ast.Assign) and getattr(s.targets[0], "id", None) == "__all__"]
    return ast.literal_eval(found[0]) if found else None


def documented(text):
    "What a module offers has a docstring, and each argument and field a comment."
    top = ast.parse(text)
    said = comments(text)
    offered = exports(top)
    found = []
    for node in (n for n in top.body if getattr(n, "name", None) in (offered or [])):
        found += undocumented(node, said, node.name)
        if isinstance(node, ast.ClassDef):
            found += [c for n in node.body if not getattr(n, "name", "_").startswith("_") for c in undocumented(n, said, f"{node.name}.{n.name}")]
            found += [f"{node.name}.{n.target.id}: no comment" for n in node.body if isinstance(n, ast.AnnAssign) and n.end_lineno not in said]
    return found


def undocumented(node, said, name):
    "The complaints about one function or class."
    found = [] if ast.get_docstring(node) else [f"{name}: no docstring"]
    if isinstance(node, ast.ClassDef) or any("click" in ast.unparse(d) or "command" in ast.unparse(d) for d in node.decorator_list):
        return found
    a = node.args
    own = [x for x in (*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg) if x and x.arg not in ("self", "cls")]
    ends = {x.arg: x.end_lineno for x in own}
    defaults = zip((a.posonlyargs + a.args)[::-1], a.defaults[::-1])
    ends |= {x.arg: d.end_lineno for x, d in (*defaults, *zip(a.kwonlyargs, a.kw_defaults)) if d and x.arg in ends}
    lines = list(ends.values())
    return found + [f"{name}({arg}): no comment of its own" for arg, line in ends.items() if line not in said or lines.count(line) > 1]
