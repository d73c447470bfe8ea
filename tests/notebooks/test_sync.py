"The notebooks export what stands in fairical_nb/, and nbdev_clean has nothing to clean; papermill's tag survives it."
import configparser
import json
import shutil
import subprocess
import sys
from pathlib import Path

import papermill
import pytest
import sync

ROOT = Path(__file__).parents[2]


def test_N02_notebooks_in_sync_and_clean():
    found = sync.complaints(ROOT)
    assert not found, "\n".join(found)


def test_N01_nbdev_and_its_companions_are_pinned_to_what_reads_settings_ini():
    settings = configparser.ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini")
    wanted = settings["DEFAULT"]["dev_requirements"]
    for pin in ("nbdev>=2.4.14,<3", "execnb>=0.1.18,<0.2", "fastcore>=1.14,<2", "ghapi>=1.1,<2"):
        assert pin in wanted.replace(", ", ","), pin


def cell(kind, text, **more):
    return {"cell_type": kind, "id": text[-8:].replace(" ", "-"), "metadata": {}, "source": text.splitlines(keepends=True)} | \
        ({"outputs": [], "execution_count": None} if kind == "code" else {}) | more


def write(path, *cells):
    nb = {"cells": list(cells), "metadata": {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def project(tmp_path):
    "A small project in sync: one library notebook, one paper notebook."
    for name in ("settings.ini", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "nbs" / "paper").mkdir(parents=True)
    (tmp_path / "fairical_nb").mkdir()
    write(tmp_path / "nbs" / "00_one.ipynb", cell("code", "#| default_exp one"), cell("markdown", "# One\n\n> First."), cell("code", "#| export\none = 1"))
    write(tmp_path / "nbs" / "paper" / "fig.ipynb", cell("code", "seed = 0  # random seed", metadata={"tags": ["parameters"]}), cell("code", "seed + 1"))
    subprocess.run([sys.executable, "-c", sync.EXPORT_AND_CLEAN], cwd=tmp_path, check=True)
    return tmp_path


def test_small_project_is_in_sync(project):
    assert sync.complaints(project) == []
    assert sorted(p.name for p in (project / "fairical_nb").iterdir()) == ["__init__.py", "_modidx.py", "one.py"], "the paper notebook exports nothing"


def test_edited_module_is_noticed(project):
    (project / "fairical_nb" / "one.py").write_text("one = 2\n")
    assert sync.complaints(project) == ["fairical_nb/one.py: not what the notebooks export: run nbdev_export"]


def test_missing_and_stale_modules_are_noticed(project):
    (project / "fairical_nb" / "one.py").rename(project / "fairical_nb" / "old.py")
    assert sync.complaints(project) == ["fairical_nb/old.py: no notebook exports this module: delete it", "fairical_nb/one.py: not exported: run nbdev_export"]


@pytest.mark.parametrize("change", [{"execution_count": 3}, {"metadata": {"collapsed": True}}, {"id": None}])
def test_unclean_notebook_is_noticed(project, change):
    path = project / "nbs" / "00_one.ipynb"
    nb = read(path)
    nb["cells"][2].update(change)
    if change.get("id", "") is None:
        del nb["cells"][2]["id"]
    write(path, *nb["cells"])
    assert "nbs/00_one.ipynb: not clean: run nbdev_clean, then nbdev_export" in sync.complaints(project)


def injected(path, tmp_path):
    "Where papermill puts a new value into the notebook: the index after the tagged cell, or the top when there is none."
    done = papermill.execute_notebook(path, tmp_path / "prepared.ipynb", {"seed": 7}, prepare_only=True, kernel_name="python3")
    return [i for i, c in enumerate(done.cells) if "injected-parameters" in c.metadata.get("tags", [])]


def test_parameters_tag_survives_cleaning(project, tmp_path):
    path = project / "nbs" / "paper" / "fig.ipynb"
    assert read(path)["cells"][0]["metadata"] == {"tags": ["parameters"]}
    assert injected(path, tmp_path) == [1], "papermill overrides the default after the tagged cell"


def test_without_the_setting_the_tag_is_lost_and_the_default_wins(project, tmp_path):
    settings = (project / "settings.ini").read_text()
    (project / "settings.ini").write_text(settings.replace("allowed_cell_metadata_keys = tags", "allowed_cell_metadata_keys ="))
    subprocess.run([sys.executable, "-c", sync.EXPORT_AND_CLEAN], cwd=project, check=True)
    path = project / "nbs" / "paper" / "fig.ipynb"
    assert read(path)["cells"][0]["metadata"] == {}
    assert injected(path, tmp_path) == [0], "before the cell that then sets the default again"


@pytest.mark.parametrize("path", sorted((ROOT / "nbs" / "paper").glob("*.ipynb")), ids=lambda p: p.stem)
def test_papermill_reads_every_parameter_of_the_paper_notebooks(path):
    known = papermill.inspect_notebook(str(path))
    assert known and all(p["help"] for p in known.values()), known
