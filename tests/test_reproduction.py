"The book of runs: what is done is not done twice, what was killed is done again, what cannot run says why."
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from click.testing import CliRunner

from fairical_nb import files, reproduction
from fairical_nb.cli import main
from fairical_nb.paper import RunFailed

CELLS = ["""from pathlib import Path
import pandas as pd
from fairical_nb.artefacts import save""",
         """with open(trace, "a") as f: f.write(f"{name}\\n")
import time; time.sleep(wait)
if fail: raise RuntimeError("asked to fail")
if die: import os, signal; os.kill(os.getpid(), signal.SIGKILL)""",
         """save(name, pd.DataFrame({"HV": [0.5 + seed]}), data="constructed", seed=seed, out=out)"""]
PARAMETERS = """name: str = "a"  # of the artefact
seed: int = 0  # of nothing
wait: float = 0.0  # seconds
fail: bool = False  # raise
die: bool = False  # kill the kernel
trace: str = ""  # file with a line per start
out: str = "../../figures"  # folder for results"""


@pytest.fixture
def checkout(tmp_path, root, monkeypatch):
    "A checkout of four artefacts, two of them from one run, that writes down each start of a notebook."
    (tmp_path / "nbs/paper").mkdir(parents=True)
    (tmp_path / "data/published").mkdir(parents=True)
    for f in (root / "data/published").glob("*.csv"): (tmp_path / "data/published" / f.name).write_bytes(f.read_bytes())
    (tmp_path / "settings.ini").write_text("")
    cells = [nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}), *map(nbformat.v4.new_code_cell, CELLS)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}), tmp_path / "nbs/paper/n.ipynb")
    rows = [dict(artefact=a, notebook="n.ipynb", parameters=json.dumps({"name": n, "trace": str(tmp_path / "trace")}), preset="any", needs="", seconds="2", memory_mb="") for a, n in (("a", "a"), ("a2", "a"), ("b", "b"), ("c", "c"))]
    rows += [dict(rows[0], artefact="later", notebook="later.ipynb"), dict(rows[0], artefact="scans", needs="folder:HGF"), dict(rows[0], artefact="gadget", needs="module:no_such_gadget")]
    pd.DataFrame(rows).to_csv(tmp_path / "nbs/paper/runs.csv", index=False)
    monkeypatch.setenv("FAIRICAL_NB_ROOT", str(tmp_path))
    return tmp_path


def starts(checkout): return (checkout / "trace").read_text().split() if (checkout / "trace").exists() else []
def states(**k): return reproduction.listing(**k)["state"].to_dict()


def test_what_is_done_is_not_done_twice(checkout):
    said = []
    reproduction.reproduce(report=said.append)
    assert starts(checkout) == ["a", "b", "c"] and "3 of 3 runs to do" in said[0]
    assert states() == {"a": "done", "a2": "done", "b": "done", "c": "done", "later": "missing", "scans": "needs", "gadget": "needs"}
    said.clear()
    reproduction.reproduce(report=said.append)
    assert starts(checkout) == ["a", "b", "c"] and all("up to date" in s for s in said)


def test_force_runs_all(checkout):
    reproduction.reproduce(["b"])
    reproduction.reproduce(["b"], force=True)
    assert starts(checkout) == ["b", "b"]


def test_only_what_changed_runs_again(checkout):
    reproduction.reproduce()
    (checkout / "figures/b.csv").write_text("edited")
    (checkout / "figures/c.json").unlink()
    assert [states()[a] for a in "abc"] == ["done", "stale", "stale"]
    reproduction.reproduce()
    assert starts(checkout) == ["a", "b", "c", "b", "c"]
    path = checkout / "nbs/paper/n.ipynb"
    nb = nbformat.read(path, 4)
    nb.cells.insert(0, nbformat.v4.new_markdown_cell("# Prose does not count"))
    nbformat.write(nb, path)
    assert states()["a"] == "done"
    nb.cells[-1].source += "\n# code does"
    nbformat.write(nb, path)
    assert states()["a"] == "stale"


def test_shipped_data_count(checkout):
    reproduction.reproduce(["a"])
    (checkout / "data/more.csv").write_text("x\n1\n")
    assert states()["a"] == "stale"


def test_other_parameters_are_another_run(checkout):
    reproduction.reproduce(["b"])
    reproduction.reproduce(["b"], {"seed": "1"}, out=checkout / "other")
    assert starts(checkout) == ["b", "b"] and states()["b"] == "done"
    assert json.loads((checkout / "other/b.json").read_text())["tables"]["b"][0]["HV"] == 1.5
    assert json.loads((checkout / "figures/b.json").read_text())["tables"]["b"][0]["HV"] == .5


def test_a_failure_keeps_the_old_results_and_is_run_again(checkout):
    reproduction.reproduce(["b"])
    before = {f.name: f.read_bytes() for f in (checkout / "figures").iterdir()}
    with pytest.raises(RunFailed, match="n.ipynb: cell 2 failed: RuntimeError: asked to fail"): reproduction.reproduce(["b"], {"fail": "true"})
    assert {f.name: f.read_bytes() for f in (checkout / "figures").iterdir()} == before
    assert states(artefacts=["b"], parameters={"fail": "true"})["b"] == "failed"


def test_a_failure_ends_the_row_unless_asked_to_go_on(checkout):
    with pytest.raises(RunFailed): reproduction.reproduce(parameters={"fail": "true"})
    assert starts(checkout) == ["a"]
    with pytest.raises(RunFailed, match="2 more failed"): reproduction.reproduce(parameters={"fail": "true"}, keep_going=True)
    assert sorted(starts(checkout)) == ["a", "a", "b", "c"]


def test_a_killed_kernel_is_run_again_and_nothing_else(checkout):
    reproduction.reproduce(["a"])
    with pytest.raises(RunFailed, match="the kernel died in it"): reproduction.reproduce(["b"], {"die": "true"})
    reproduction.reproduce()
    assert starts(checkout) == ["a", "b", "b", "c"]


def test_a_killed_runner_leaves_nothing_half_and_the_rest_is_resumed(checkout):
    code = "from fairical_nb.reproduction import reproduce; reproduce(['a']); reproduce(['b'], {'wait': 60})"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(reproduction.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    runner = subprocess.Popen([sys.executable, "-c", code], env=env)
    for _ in range(600):
        if starts(checkout) == ["a", "b"]: break
        time.sleep(.1)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert sorted(f.name for f in (checkout / "figures").iterdir()) == ["a.csv", "a.json"]
    assert [states()[a] for a in ("a", "a2", "b")] == ["done", "done", "to do"]
    reproduction.reproduce(["a", "b"])
    assert starts(checkout) == ["a", "b", "b"]


def test_the_killed_runners_children_end(checkout):
    code = "from fairical_nb.reproduction import reproduce; reproduce(['b'], {'wait': 60})"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(reproduction.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]), "MARK_OF_THIS_TEST": str(checkout)}
    runner = subprocess.Popen([sys.executable, "-c", code], env=env)
    for _ in range(600):
        if starts(checkout): break
        time.sleep(.1)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    def left():
        found = []
        for p in Path("/proc").glob("[0-9]*"):
            try: found += [p.name] if str(checkout).encode() in (p / "environ").read_bytes() and b"MARK_OF_THIS_TEST" in (p / "environ").read_bytes() else []
            except OSError: pass
        return found
    for _ in range(150):
        if not left(): break
        time.sleep(.1)
    assert left() == []


def test_an_unreadable_book_is_an_empty_one(checkout):
    reproduction.reproduce(["a"])
    (checkout / "runs/status.json").write_text('{"cut')
    assert states()["a"] == "to do"
    reproduction.reproduce(["a"])
    assert states()["a"] == "done"


def test_several_at_a_time_give_the_same(checkout, tmp_path):
    one = reproduction.reproduce(out=tmp_path / "one")
    two = reproduction.reproduce(out=tmp_path / "two", jobs=3)
    assert [o[2]["files"] for o in one] == [t[2]["files"] for t in two]
    assert all(o[2]["memory_mb"] > 20 and o[2]["seconds"] > 0 for o in one)


RETRAINED = """name: str = "r1"  # of the artefact
retrain: bool = False  # make the kept result anew
die: bool = False  # kill the kernel
trace: str = ""  # file with a line per start
preset: str = "demo"  # or paper
out: str = "../../figures"  # folder for results"""
KEEPING = ["""import json, os, signal
from pathlib import Path
import pandas as pd
from fairical_nb.artefacts import save
from fairical_nb.files import root
with open(trace, "a") as f: f.write(f"{name}{'+' * retrain}\\n")
kept = root() / f"nbs/weights/kept/{name}.json"
if retrain: kept.write_text(json.dumps(json.loads(kept.read_text()) + 1))
if (root() / "die").exists() and name == "r2": os.kill(os.getpid(), signal.SIGKILL)
threads = [int(os.environ.get(f"{n}_NUM_THREADS", 0)) for n in ("OMP", "MKL", "OPENBLAS")]
save(name, pd.DataFrame({"HV": threads}), data="constructed", seed=0, out=out)"""]


@pytest.fixture
def keeping(checkout):
    "The same, with two artefacts that can make a kept result anew."
    (checkout / "nbs/weights/kept").mkdir(parents=True)
    for n in ("r1", "r2"): (checkout / f"nbs/weights/kept/{n}.json").write_text("0")
    cells = [nbformat.v4.new_code_cell(RETRAINED, metadata={"tags": ["parameters"]}), *map(nbformat.v4.new_code_cell, KEEPING)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}), checkout / "nbs/paper/r.ipynb")
    row = dict(notebook="r.ipynb", preset="any", needs="results:nbs/weights/kept/r1.json", seconds="2", memory_mb="")
    pd.DataFrame([dict(row, artefact=n, parameters=json.dumps({"name": n, "trace": str(checkout / "trace")})) for n in ("r1", "r2")]).to_csv(checkout / "nbs/paper/runs.csv", index=False)
    return checkout


def test_making_all_anew_goes_on_where_it_was_killed(keeping):
    (keeping / "die").touch()
    with pytest.raises(RunFailed): reproduction.reproduce(full=True)
    (keeping / "die").unlink()
    reproduction.reproduce(full=True)
    assert starts(keeping) == ["r1+", "r2+", "r2+"]
    reproduction.reproduce(full=True)
    assert starts(keeping) == ["r1+", "r2+", "r2+"]
    reproduction.reproduce(full=True, force=True)
    assert starts(keeping)[3:] == ["r1+", "r2+"]
    (keeping / "data/more.csv").write_text("x\n1\n")
    reproduction.reproduce(["r2"], full=True)
    assert starts(keeping)[5:] == ["r2+"]


def test_who_reads_kept_results_is_stale_when_they_are_made_anew(keeping):
    reproduction.reproduce()
    assert states() == {"r1": "done", "r2": "done"}
    reproduction.reproduce(["r1"], full=True)
    assert states() == {"r1": "stale", "r2": "stale"}


@pytest.mark.parametrize("preset, said, threads", [("demo", None, 1), ("demo", "3", 3), ("paper", None, 0), ("paper", "3", 3)])
def test_a_run_computes_in_one_thread_unless_told_otherwise(keeping, monkeypatch, preset, said, threads):
    "The number of cores must not change a number; at the paper's scale it may."
    for n in ("OMP", "MKL", "OPENBLAS"):
        if said: monkeypatch.setenv(f"{n}_NUM_THREADS", said)
        else: monkeypatch.delenv(f"{n}_NUM_THREADS", raising=False)
    reproduction.reproduce(["r1"], {"preset": preset}, out=keeping / "figures")
    assert [r["HV"] for r in json.loads((keeping / "figures/r1.json").read_text())["tables"]["r1"]] == [threads] * 3


@pytest.mark.parametrize("artefact", ["holofair_reward_ablation", "fig14", "holofair_debias_tradeoffs_tiny_sd15", "holofair_debias"])
def test_a_run_that_makes_results_anew_does_not_depend_on_them(root, monkeypatch, artefact):
    monkeypatch.setenv("FAIRICAL_NB_ROOT", str(root))
    shared = {retrain: {f.relative_to(root).as_posix() for f, *_ in reproduction._shared_files(retrain)} for retrain in (False, True)}
    left = shared[False] - shared[True]
    needs = [n.removeprefix("results:") for n in reproduction.runs("demo").at[artefact, "needs"].split(";") if n.startswith("results:")]
    assert needs and all(any(f == n or f.startswith(n + "/") for f in left) for n in needs)
    assert {"data/hmda.csv", "fairical_nb/study.py", "nbs/weights/tiny_sd3/model_index.json"} <= shared[True]


@pytest.mark.parametrize("name,words", [("later", ["missing", "later.ipynb"]), ("scans", ["Harvard-GF", "CC BY-NC-ND", "FAIRICAL_NB_DATA"]), ("gadget", ["no_such_gadget", "pip install"])])
def test_what_cannot_run_says_why_before_anything_runs(checkout, name, words):
    done = CliRunner().invoke(main, ["reproduce", "a", name])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and starts(checkout) == []
    for w in [name, *words]: assert w in done.stderr


def test_the_list_runs_nothing_and_names_everything(checkout):
    done = CliRunner().invoke(main, ["reproduce", "--list"])
    assert done.exit_code == 0 and starts(checkout) == [] and not (checkout / "runs").exists()
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["a", "a2", "b", "c", "later", "scans", "gadget"]


def test_the_real_list_names_every_artefact_of_both_papers(root, monkeypatch):
    monkeypatch.delenv("FAIRICAL_NB_ROOT", raising=False)
    want = {f"table{t}" for t in ("10b", "11b", "12b", "14c", "15c", "16c")} | {f"fig{i}" for i in range(10, 17)}
    want |= {f"holofair_{n}" for n in ("benchmark", "debias", "spafreq_ablation", "reward_ablation", "overview", "dataset", "fairgrpo")}
    for preset in reproduction.PRESETS:
        table = reproduction.runs(preset)
        assert want <= set(table.index) and not table.index.duplicated().any()
    with pytest.raises(ValueError, match="tiny"): reproduction.runs("tiny")


def test_an_outcome_says_once_what_its_numbers_were_made_from():
    told = 0
    for path in sorted((reproduction.root() / "figures").glob("*.json")):
        text, words = reproduction.outcome(path.stem), files.read_json(path)["data in words"]
        assert not text or text.count(words) == 1, text
        told += bool(text)
    assert told >= 10
