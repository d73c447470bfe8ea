"Makes README.md from nbs/index.ipynb as it is stored; runs nothing and needs no quarto."
import re
import sys
from functools import partial
from pathlib import Path

import nbformat
from execnb.nbio import nb2str, read_nb
from nbconvert import MarkdownExporter
from nbdev.process import NBProcessor
from nbdev.processors import clean_magics, filter_stream_, hide_, hide_line, rm_export, strip_ansi
from traitlets.config import Config

ROOT = Path(__file__).parents[1]
HEAD = "<!-- Made from nbs/index.ipynb by `make readme`: change that notebook, not this file. -->\n\n"
# The part of nbdev.serve.proc_nbs that changes cells; front matter and links to a documentation site are left out.
PROCESSORS = [strip_ansi, hide_line, filter_stream_, rm_export, clean_magics, hide_]
SHOWN = Config({"NbConvertBase": {"display_data_priority": ["text/markdown", "text/plain"]},
                "TagRemovePreprocessor": {"enabled": True, "remove_input_tags": ["no-input"]}})
LINK = re.compile(r'(\]\(|\b(?:src|href)=")(?!https?:|mailto:|#|/)([^)"\s]+)')
LONGEST = 120  # lines


def mark_echo(cell):
    "Tags a cell that says `echo: false`, so that its code is left out, and takes the directives out of the others."
    if cell.cell_type == "code" and cell.source:
        if "false" in cell.directives_.get("echo:", []):
            cell.metadata["tags"] = ["no-input"]
        cell.source = re.sub(r"^#\|.*\n?", "", cell.source, flags=re.M).strip()


def moved(folder, match):
    "A link of a notebook in `folder`, as it is written one folder higher; ValueError when it leads nowhere."
    path, *anchor = match[2].split("#", 1)
    target, root = (folder / path).resolve(), folder.parent.resolve()
    if not target.exists() or not target.is_relative_to(root):
        raise ValueError(f"the notebook links to {path}, which is no file of this project")
    return match[1] + "#".join([target.relative_to(root).as_posix(), *anchor])


def refuse_pictures(cell):
    "ValueError when a stored output holds a picture, which a README cannot show."
    for data in (output.get("data", {}) for output in cell.get("outputs", [])):
        if any(kind.startswith("image/") for kind in data) or "<img" in "".join(data.get("text/html", "")):
            raise ValueError(f"cell {cell['id']}: a README cannot show a stored picture: save it under figures/ and link it from a text cell")


def readme(notebook):
    "The README's text, made from the notebook's cells and stored outputs; links become relative to the folder above."
    folder = Path(notebook).parent
    nb = NBProcessor(nb=read_nb(notebook), procs=[*PROCESSORS, mark_echo, refuse_pictures], process=True).nb
    nb.metadata["language_info"] = {"name": "python"}
    nb = nbformat.reads(nb2str(nb), as_version=4)
    for cell in (c for c in nb.cells if c.cell_type == "markdown"):
        cell.source = LINK.sub(partial(moved, folder), cell.source)
    for data in (o.data for c in nb.cells for o in c.get("outputs", []) if "text/markdown" in o.get("data", {})):
        data["text/markdown"] = LINK.sub(partial(moved, folder), data["text/markdown"])
    text, _ = MarkdownExporter(config=SHOWN).from_notebook_node(nb)
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return HEAD + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


if __name__ == "__main__":
    text = readme(ROOT / "nbs" / "index.ipynb")
    if (n := len(text.splitlines())) > LONGEST:
        sys.exit(f"README.md would have {n} lines, at most {LONGEST}: shorten nbs/index.ipynb")
    (ROOT / "README.md").write_text(text, encoding="utf-8")
