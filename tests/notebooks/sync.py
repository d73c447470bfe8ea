"Are notebooks and modules in sync, and are the notebooks clean? Run as a script: says what differs and exits with 1."
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PARTS = ("settings.ini", "pyproject.toml", "nbs", "fairical_nb")
SCRATCH = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", ".last_checked", "*~", "*~part", ".*.ipynb", "runs")
EXPORT_AND_CLEAN = "from nbdev.clean import nbdev_clean; from nbdev.doclinks import nbdev_export; nbdev_export(); nbdev_clean()"


def copy(root, to):
    "Copies the notebooks, the modules and what nbdev reads from project `root` into folder `to`."
    for part in PARTS:
        if (root / part).is_dir():
            shutil.copytree(root / part, to / part, ignore=SCRATCH)
        else:
            shutil.copy2(root / part, to / part)


def files(root):
    "The bytes of each notebook and module below `root`, by relative path."
    paths = [p for part in ("nbs", "fairical_nb") for p in (root / part).rglob("*") if p.suffix in (".ipynb", ".py")]
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in [*paths, root / "pyproject.toml"]}


def complaints(root):
    "What a fresh export and cleaning of project `root`, done twice in a copy, changes: one line a file."
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        copy(Path(root), fresh)
        before = files(fresh)
        for module in fresh.glob("fairical_nb/**/*.py"):
            module.unlink()
        found = {}
        env = {k: v for k, v in os.environ.items() if k != "IN_TEST"}
        for _ in range(2):
            subprocess.run([sys.executable, "-c", EXPORT_AND_CLEAN], cwd=fresh, env=env, check=True)
            after = files(fresh)
            found |= {name: advice(name, before, after) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return [f"{name}: {found[name]}" for name in sorted(found)]


def advice(name, before, after):
    "What to do about file `name`, which differs."
    if name not in after:
        return "no notebook exports this module: delete it"
    if name.endswith(".ipynb"):
        return "not clean: run nbdev_clean, then nbdev_export"
    return "not exported: run nbdev_export" if name not in before else "not what the notebooks export: run nbdev_export"


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    found = complaints(root)
    names = list(files(root))
    print("\n".join(found) or f"{sum(n.endswith('.ipynb') for n in names)} notebooks and {sum(n.endswith('.py') for n in names)} modules: in sync and clean.")
    sys.exit(bool(found))
