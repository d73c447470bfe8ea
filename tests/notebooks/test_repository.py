"What is in the repository: its size, no trace of one machine, and metadata that agree with settings.ini."
import ast
import importlib.util
import re
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
CONFIG = ConfigParser(delimiters=["="])
CONFIG.read(ROOT / "settings.ini", encoding="utf-8")
CFG = CONFIG["DEFAULT"]
EXTRAS = {"t2i", "lab", "docs", "data", "compare", "judge", "hv", "plot", "weights", "browser", "teach", "engine", "dev", "all"}
MACHINE = re.compile(r"(?<![\w./~-])/(?:home|root|Users|work|farm|tmp|var/folders|mnt|scratch)/[\w.]|(?<!\w)[A-Z]:\\\\?Users")
LARGEST = 30_000_000  # bytes


def tracked():
    "The files of the repository, those not yet committed included; all files when this is no git checkout."
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.split("\0") if done.returncode == 0 else [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*") if ".venv" not in p.parts]
    return [ROOT / n for n in names if n and (ROOT / n).is_file()]


def test_repository_is_small():
    sizes = {p: p.stat().st_size for p in tracked()}
    assert sum(sizes.values()) < LARGEST, sorted(sizes, key=sizes.get)[-5:]


def machine_paths(text):
    "The paths of one machine that a text holds."
    return [text[max(m.start() - 20, 0):m.end() + 30] for m in MACHINE.finditer(text)]


def test_no_machine_paths():
    texts = (p for p in tracked() if p.suffix not in (".png", ".pdf", ".parquet", ".npz"))
    found = {p.relative_to(ROOT).as_posix(): hits for p in texts if (hits := machine_paths(p.read_text(encoding="utf-8", errors="replace")))}
    assert not found


@pytest.mark.parametrize("path", ["|home|ann|x.csv", '"|root|.cache', "(|tmp|abc", "C:^Users^ann", "|Users|ann"])
def test_machine_paths_are_noticed(path):
    assert machine_paths("see " + path.replace("|", "/").replace("^", "\\"))


@pytest.mark.parametrize("path", ["https://example.org/home/x", "data/work/x", "~/work/x", "../tmp/x", "and/or"])
def test_other_paths_pass(path):
    assert not machine_paths(f"see {path}")


# Metadata

def items(key):
    return [line.strip() for line in CFG.get(key, "").splitlines() if line.strip()]


def names(key):
    return {Requirement(i).name for i in items(key)}


def test_core_is_light_and_needs_no_notebook_tool():
    assert not names("requirements") & {"torch", "nbdev", "fastcore", "execnb", "ipython", "torchvision"}


def test_nbdev_and_its_three_companions_are_pinned():
    pins = {Requirement(i).name: str(Requirement(i).specifier) for i in items("dev_requirements")}
    assert {k: pins[k] for k in ("nbdev", "execnb", "fastcore", "ghapi")} == {"nbdev": "<3,>=2.4.14", "execnb": "<0.2,>=0.1.18", "fastcore": "<2,>=1.14", "ghapi": "<2,>=1.1"}


def test_settings_that_nbdev_must_have():
    assert CFG["tst_flags"].split() == ["slow", "gpu", "hub"] and CFG["allowed_cell_metadata_keys"].split() == ["tags"]
    assert (CFG["lib_name"], CFG["lib_path"], CFG["nbs_path"]) == ("fairical_nb", "fairical_nb", "nbs")
    assert (ROOT / "nbs" / "paper" / ".notest").exists()


def test_setup_hands_over_what_settings_say(tmp_path):
    done = subprocess.run([sys.executable, "setup.py", "-q", "egg_info", "-e", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    info = tmp_path / "fairical_nb.egg-info"
    sections = dict(re.findall(r"\[([\w-]+)\]\n(.*?)(?=\n\[|\Z)", "[core]\n" + (info / "requires.txt").read_text(), re.S))
    assert set(sections) - {"core"} == EXTRAS
    offered = {name: {Requirement(line) for line in text.split()} for name, text in sections.items()}
    for name in EXTRAS - {"all", "dev"}:
        assert offered[name] == set(map(Requirement, items(f"{name}_requirements")))
        assert offered[name] <= offered["all"] <= offered["dev"]
    assert offered["core"] == set(map(Requirement, items("requirements")))
    assert set(map(Requirement, items("dev_requirements"))) <= offered["dev"]
    about = (info / "PKG-INFO").read_text()
    for line in (f"Version: {CFG['version']}", f"Requires-Python: >={CFG['min_python']}", f"Summary: {CFG['description']}", "License-Expression: Apache-2.0"):
        assert line in about.splitlines()
    assert "fairical-nb = fairical_nb.cli:main" in (info / "entry_points.txt").read_text().replace("=", " = ").replace("  ", " ")


def test_one_version_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == CFG["version"]
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[1] == CFG["version"]
    assert f'requires-python=">={CFG["min_python"]}"' in (ROOT / "pyproject.toml").read_text()


def test_citation_names_both_papers():
    papers = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert [p["title"].split(":")[0] for p in papers] == ["A Multi-Objective Evaluation Framework for Analyzing Utility-Fairness Trade-Offs in Machine Learning Systems", "HoloFair"]
    assert (papers[0]["start"], papers[0]["end"], papers[0]["year"]) == ("938", "957", 2025)


def test_pre_commit_hooks_call_what_exists():
    hooks = {h["id"]: h["entry"] for r in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for h in r["hooks"]}
    assert set(hooks) == {"nbdev-clean", "nbdev-export", "large-files"}
    for id in ("nbdev-clean", "nbdev-export"):
        assert (Path(sys.executable).parent / Path(hooks[id]).name).exists()


@pytest.mark.parametrize("size, ok", [(1_000_000, True), (1_000_001, False)])
def test_large_files_hook(tmp_path, size, ok):
    hooks = {h["id"]: h["entry"] for r in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for h in r["hooks"]}
    (tmp_path / "small one").write_bytes(b"x")
    (tmp_path / "big one").write_bytes(b"x" * size)
    done = subprocess.run(f"{hooks['large-files']} 'small one' 'big one'", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == ok and ("big one is larger" in done.stdout) != ok


# The lock

def pinned(lock):
    return {n.lower(): v for n, v in re.findall(r"^([\w.-]+)==(\S+)", lock, re.M)}


LOCK, LIGHT = ((ROOT / "requirements" / name).read_text(encoding="utf-8") for name in ("lock.txt", "lock-light.txt"))
PINNED = pinned(LOCK)


def lock_maker():
    spec = importlib.util.spec_from_file_location("lock_maker", ROOT / "requirements" / "lock.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lock, light", [(LOCK, False), (LIGHT, True)], ids=["full", "light"])
def test_lock_covers_what_settings_ask_for(lock, light):
    wanted, _ = lock_maker().wanted(light=light)
    extras = ["requirements", "compare_requirements", "data_requirements", *([] if light else ["t2i_requirements"])]
    assert {Requirement(w).name for w in wanted} >= set().union(*map(names, extras)) | {"nbdev", "pytest", "setuptools"}
    for need in map(Requirement, wanted):
        assert need.specifier.contains(pinned(lock)[need.name.lower()]), f"{need}: run make lock"


@pytest.mark.parametrize("lock", [LOCK, LIGHT], ids=["full", "light"])
def test_lock_is_hashed_and_names_no_place(lock):
    entries = re.split(r"^(?=[\w.-]+==)", lock, flags=re.M)[1:]
    assert len(entries) == len(pinned(lock)) and all("--hash=sha256:" in e for e in entries)
    assert "://" not in lock and "--index" not in lock and "--find-links" not in lock and "snakemake" not in pinned(lock)


def test_light_lock_is_the_part_without_torch():
    assert pinned(LIGHT).items() < PINNED.items()
    assert not any(n.startswith(("torch", "nvidia", "triton")) for n in pinned(LIGHT))


def test_what_runs_is_what_the_lock_says():
    "Only in the environment that the Makefile made; elsewhere versions are the developer's own."
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("not run in the project's .venv")
    wanted, _ = lock_maker().wanted()
    assert {n: version(n) for n in (Requirement(w).name for w in wanted)} == {n: PINNED[n.lower()] for n in (Requirement(w).name for w in wanted)}


def test_setup_py_is_short_and_standard():
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    modules = {(n.module if isinstance(n, ast.ImportFrom) else n.names[0].name).split(".")[0] for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.Import, ast.ImportFrom))}
    assert len(text.splitlines()) <= 45 and modules <= {*sys.stdlib_module_names, "setuptools"}
