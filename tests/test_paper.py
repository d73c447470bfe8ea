"The runner of paper notebooks: what is checked before a kernel starts, what a failure says and leaves, what a result holds."
import json
import os
import re
import shutil
import socket
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import papermill
import pytest
from click.testing import CliRunner

from fairical_nb import artefacts, reproduction
from fairical_nb.cli import main
from fairical_nb.paper import RunFailed, checked_parameters, execute, parameters_of

PARAMETERS = """seed: int = 0  # of the draw
name: str = "a"  # of the system
rate: float = 0.5  # share
plot: bool = True  # draw
sizes: list = [1, 2]  # of the groups
limits: dict = {"eod": 0.1}  # by metric
out: str = "../../figures"  # folder for results"""

GOOD = """import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fairical_nb.artefacts import published, save
from fairical_nb.figures import PAPER""", """plt.rcParams.update(PAPER)
table = pd.DataFrame({"HV": [0.35, 0.04], "area": [0.27, 0.208], "more": [np.nan, seed]}, index=pd.Index(["System1", "System2"], name="system"))
fig, ax = plt.subplots(); ax.plot(np.random.default_rng(seed).random(5))""", """save("made", table, data="stand-in", published=published("table10b")[["HV", "area"]], figures={"made_line": (fig, "A line.")}, seed=seed, parameters=dict(seed=seed, name=name, out=out), out=out)"""


def notebook(path, *cells, parameters=PARAMETERS, tag="parameters"):
    cells = [nbformat.v4.new_markdown_cell("# Made")] + [nbformat.v4.new_code_cell(parameters, metadata={"tags": [tag]} if tag else {})] + [nbformat.v4.new_code_cell(c) for c in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}), path)
    return path


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, root):
    "A folder like the project's, with notebooks made here."
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "nbs/paper").mkdir(parents=True)
    (folder / "settings.ini").write_text("")
    shutil.copytree(root / "data/published", folder / "data/published")
    (folder / "nbs/paper/runs.csv").write_text('artefact,notebook,parameters,preset,needs,seconds\nmade,good.ipynb,"{""seed"": 3}",demo,,\nmade_fig,good.ipynb,"{""seed"": 3}",demo,,\nbroken,fails.ipynb,,demo,,\nuntagged,untagged.ipynb,,demo,,\nlost,absent.ipynb,,demo,,\n')
    notebook(folder / "nbs/paper/good.ipynb", *GOOD)
    notebook(folder / "nbs/paper/fails.ipynb", *GOOD[:2], "print('so far'); 1 / 0", GOOD[2])
    notebook(folder / "nbs/paper/untagged.ipynb", *GOOD, tag=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRICAL_NB_ROOT", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
        yield folder


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(papermill, "execute_notebook", lambda *a, **k: pytest.fail("a kernel was started"))
    monkeypatch.setattr(reproduction, "_run", lambda *a, **k: pytest.fail("a run was started"))


def command(*args): return CliRunner().invoke(main, ["reproduce", *map(str, args)])


def files(folder): return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(Path(folder).rglob("*")) if f.is_file()}


# Before a kernel starts

def test_parameters_are_read_with_type_default_and_words(checkout):
    found = parameters_of(checkout / "nbs/paper/good.ipynb")
    assert {n: (p["type"], p["default"]) for n, p in found.items()} == {"seed": ("int", 0), "name": ("str", "a"), "rate": ("float", .5), "plot": ("bool", True), "sizes": ("list", [1, 2]), "limits": ("dict", {"eod": .1}), "out": ("str", "../../figures")}
    assert found["seed"]["help"] == "of the draw"


@pytest.mark.parametrize("given,want", [
    ({"seed": "12"}, 12), ({"seed": 12}, 12), ({"seed": np.int64(12)}, 12), ({"seed": "-3"}, -3), ({"name": "0012"}, "0012"), ({"name": "None"}, "None"), ({"name": Path("a/b")}, "a/b"), ({"name": np.str_("x")}, "x"),
    ({"rate": "1"}, 1.), ({"rate": 2}, 2.), ({"rate": np.float32(.5)}, .5), ({"rate": "1e-3"}, .001), ({"plot": "False"}, False), ({"plot": "true"}, True), ({"plot": np.bool_(False)}, False),
    ({"sizes": "[1, 2, 3]"}, [1, 2, 3]), ({"sizes": (4, np.int8(5))}, [4, 5]), ({"sizes": [Path("p")]}, ["p"]), ({"limits": "{'a': 1}"}, {"a": 1}), ({"limits": {"a": np.float64(.5)}}, {"a": .5})])
def test_values_become_the_declared_type(checkout, no_kernel, given, want):
    found = checked_parameters(checkout / "nbs/paper/good.ipynb", given)[next(iter(given))]
    assert found == want and type(found) is type(want)
    json.dumps(found)


@pytest.mark.parametrize("given,words", [
    ({"sede": 1}, ["sede", "'seed'", "name"]), ({"zzz": 1}, ["zzz", "seed", "name", "rate"]), ({"seed": "1.5"}, ["seed", "int", "1.5"]), ({"seed": 1.5}, ["seed", "1.5"]), ({"seed": "one"}, ["seed", "'one'"]), ({"seed": None}, ["seed", "None"]), ({"seed": True}, ["seed", "True"]), ({"seed": "[1]"}, ["seed"]),
    ({"name": 12}, ["name", "str", "12"]), ({"plot": 1}, ["plot", "bool"]), ({"plot": "yes"}, ["plot", "yes"]), ({"sizes": "3"}, ["sizes", "list"]), ({"rate": "half"}, ["rate", "half"]), ({"limits": "[1]"}, ["limits", "dict"]),
    ({"sizes": np.ones(3)}, ["sizes", "ndarray"]), ({"sizes": {1, 2}}, ["sizes", "set"]), ({"seed": object()}, ["seed", "object"]), ({"seed": pd.Series([1])}, ["seed", "Series"]), ({"seed": "__import__('os')"}, ["seed"])])
def test_what_is_wrong_is_named_before_a_kernel_starts(checkout, no_kernel, given, words):
    with pytest.raises(ValueError) as e: checked_parameters(checkout / "nbs/paper/good.ipynb", given)
    for w in words: assert w in str(e.value)
    with pytest.raises(ValueError): reproduction.reproduce(["made"], given)


def test_nothing_runs_if_anything_is_wrong(checkout, no_kernel, tmp_path):
    for args, words in ((["made", "mad"], ["'mad'", "made"]), (["made", "zzz"], ["zzz", "made", "broken"]), (["made", "-p", "sede=1"], ["sede", "seed"]), (["made", "-p", "seed"], ["seed", "NAME=VALUE"]), (["made", "-p", "=1"], ["NAME=VALUE"]),
                        (["made", "-p", "seed=x"], ["seed", "int", "x"]), (["made", "untagged"], ["untagged.ipynb", "parameters"]), (["made", "lost"], ["lost", "absent.ipynb"])):
        done = command(*args, "-o", tmp_path / "out")
        assert done.exit_code == 2 and re.fullmatch(r"Error: .+\n", done.stderr) and done.stdout == "", done.output
        for w in words: assert w in done.stderr
    assert not (tmp_path / "out").exists() and not (checkout / "runs").exists()


def test_outside_a_checkout_the_message_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRICAL_NB_ROOT", str(tmp_path))
    done = command("made")
    assert done.exit_code == 2 and "FAIRICAL_NB_ROOT" in done.stderr and done.stderr.count("\n") == 1


def test_listing_runs_nothing(checkout, no_kernel):
    done = command("-l", "made", "broken")
    assert done.exit_code == 0 and "seed=3" in done.stdout and "fails.ipynb" in done.stdout and "rate=0.5" in done.stdout


# A run that succeeds

@pytest.fixture(scope="module")
def twice(checkout, tmp_path_factory):
    "The same artefacts, made twice, in folders of different names."
    outs = [tmp_path_factory.mktemp(name) / "deep" for name in ("one", "another_one")]
    done = [command("made", "made_fig", "-p", "name=0012", "-o", out) for out in outs]
    return outs, done


def test_one_run_makes_all_artefacts_of_a_notebook(checkout, twice):
    outs, done = twice
    assert [d.exit_code for d in done] == [0, 0], done[0].output
    assert done[0].stdout.count("[") == 1 and "[1/1] made made_fig" in done[0].stdout
    assert set(files(outs[0])) == {"made.csv", "made_published.csv", "made.json", "made_line.png", "made_line.svg", "summary.csv", "index.html"}


def test_two_runs_give_the_same_bytes(twice):
    assert files(twice[0][0]) == files(twice[0][1])


def test_results_hold_no_times_and_no_machine(twice, root):
    names = {str(root), str(twice[0][0]), str(Path.home()) + "/", "/tmp/", "/work/"}
    for name, content in files(twice[0][0]).items():
        text = content.decode("latin-1")
        for word in names: assert word not in text, (name, word)
        assert not re.search(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d", text), name
        if name.endswith((".json", ".csv")): assert not re.search(rf"seconds|duration|elapsed|hostname|\b{re.escape(socket.gethostname())}\b", text), name


def test_the_results_file_is_strict_and_complete(twice):
    obj = json.loads((twice[0][0] / "made.json").read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
    assert obj["artefact"] == "made" and obj["data"] == "stand-in" and obj["seed"] == 3 and obj["parameters"] == {"seed": 3, "name": "0012"}
    assert {"python", "numpy", "fairical_nb"} <= set(obj["versions"])
    assert obj["tables"]["made"] == [{"system": "System1", "HV": .35, "area": .27, "more": None}, {"system": "System2", "HV": .04, "area": .208, "more": 3}]
    rows = obj["tables"]["published"]
    assert len(rows) == 4 and {r["verdict"] for r in rows} == {"cannot agree: stand-in data, not real"}  # also where the digits are equal
    assert all(isinstance(r["published"], str) for r in rows) and float(rows[0]["published"]) == .35
    assert pd.read_csv(twice[0][0] / "made.csv")["HV"].tolist() == [.35, .04]
    assert "stand-in data, not real" in (twice[0][0] / "made_line.svg").read_text()


def test_the_executed_copy_holds_the_parameters(checkout, twice):
    copy = nbformat.read(checkout / "runs/made.ipynb", 4)
    injected = [c.source for c in copy.cells if "injected-parameters" in c.metadata.get("tags", [])]
    assert len(injected) == 1 and "seed = 3" in injected[0] and '"0012"' in injected[0]


# A run that fails

def failure(folder, *cells):
    notebook(folder / "bad.ipynb", *cells)
    with pytest.raises(RunFailed) as e: execute(folder / "bad.ipynb", {"seed": 1}, folder / "runs/bad.ipynb")
    text = str(e.value)
    assert "bad.ipynb" in text and "\n" not in text and (folder / "runs/bad.ipynb").is_file()
    return text


def test_a_failing_cell_by_command(checkout, tmp_path):
    done = command("broken", "-o", tmp_path / "out")
    assert done.exit_code == 1 and re.fullmatch(r"Error: .+\n", done.stderr) and done.stdout == ""
    for word in ("fails.ipynb", "cell 4", "ZeroDivisionError", "division by zero"): assert word in done.stderr
    assert not (tmp_path / "out").exists()
    copy = nbformat.read(checkout / "runs/broken.ipynb", 4)
    outputs = [o for c in copy.cells if c.cell_type == "code" for o in c.outputs]
    assert any("so far" in o.get("text", "") for o in outputs) and any(o.output_type == "error" for o in outputs)


def test_an_interrupted_cell_is_a_failure_too(tmp_path):
    "More ways to stop stand in test_reports.py, J05."
    text = failure(tmp_path, "print('before')", "raise KeyboardInterrupt", "print('after')")
    for word in ("cell 3", "KeyboardInterrupt"): assert word in text


def test_a_killed_kernel_is_a_failure_with_its_cell(tmp_path):
    text = failure(tmp_path, "print('before')", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "print('after')")
    assert "cell 3" in text and re.search("died|dead", text, re.I)
    copy = nbformat.read(tmp_path / "runs/bad.ipynb", 4)
    assert any("before" in o.get("text", "") for c in copy.cells if c.cell_type == "code" for o in c.outputs)


def test_a_broken_notebook_file_is_a_failure(tmp_path):
    "And the copy of an earlier run is not taken for its own."
    (tmp_path / "bad.ipynb").write_text('{"cells": ['); (tmp_path / "runs").mkdir()
    notebook(tmp_path / "runs/bad.ipynb", "1 / 0")
    with pytest.raises((RunFailed, ValueError), match="bad.ipynb") as e: execute(tmp_path / "bad.ipynb", {}, tmp_path / "runs/bad.ipynb")
    assert not (tmp_path / "runs/bad.ipynb").exists() and "cell 2" not in str(e.value)


# Saving

def figure():
    fig, ax = plt.subplots(figsize=(2, 1)); ax.plot([0, 1])
    return fig


def test_no_half_of_a_file_is_left(tmp_path, monkeypatch):
    table = pd.DataFrame({"HV": [.5]})
    artefacts.save("a", table, data="real", figures={"f": (figure(), "A line.")}, out=tmp_path)
    before = files(tmp_path)
    def stops(self, path, *args, **options):
        path.write(b"hal") if hasattr(path, "write") else Path(path).write_text("hal")
        raise OSError("disk full")
    monkeypatch.setattr(pd.DataFrame, "to_csv", stops)
    with pytest.raises(OSError): artefacts.save("a", table + 1, data="real", out=tmp_path)
    with pytest.raises(OSError): artefacts.save("b", table, data="real", out=tmp_path)
    monkeypatch.setattr(plt.Figure, "savefig", stops)
    monkeypatch.setattr(pd.DataFrame, "to_csv", lambda self, path, **options: Path(path).write_text("HV\n0.5\n"))
    with pytest.raises(OSError): artefacts.save("a", table, data="real", figures={"f": (figure(), "A line.")}, out=tmp_path)
    assert {k: v for k, v in files(tmp_path).items()} == before


def test_what_save_refuses(tmp_path):
    table = pd.DataFrame({"HV": [.5]})
    with pytest.raises(ValueError, match="stand-in"): artefacts.save("a", table, data="fake", out=tmp_path)
    with pytest.raises(ValueError, match="System9"): artefacts.save("a", table, data="real", published=pd.DataFrame({"HV": [".5"]}, index=["System9"]), out=tmp_path)
    assert not files(tmp_path)


def test_infinities_and_numpy_numbers_become_strict_json(tmp_path):
    artefacts.save("a", pd.DataFrame({"x": [np.inf, np.float32(.5)], "n": np.array([1, 2]), "flag": [True, np.bool_(False)], "word": ["a", None]}), data="constructed", seed=np.int64(3).item(), out=tmp_path)
    rows = json.loads((tmp_path / "a.json").read_text(), parse_constant=lambda word: pytest.fail(word))["tables"]["a"]
    assert rows == [{"x": None, "n": 1, "flag": True, "word": "a"}, {"x": .5, "n": 2, "flag": False, "word": None}]


# Against the printed numbers

@pytest.mark.parametrize("ours,text,verdict", [(.345, ".35", True), (.3549999, ".35", True), (.355, ".35", True), (.3551, ".35", False), (.3449, ".35", False), (1., "1.00", True), (.994, "1.00", False), (.995, "1.00", True), (2, "2", True), (2.4, "2", True), (2.6, "2", False)])
def test_equal_to_the_printed_digits(ours, text, verdict):
    found = artefacts.against(pd.DataFrame({"HV": [ours]}, index=["s"]), pd.DataFrame({"HV": [text]}, index=["s"])).iloc[0]
    assert (found["verdict"] == "equal to the printed digits") == verdict and found["published"] == text and found["difference"] == pytest.approx(ours - float(text))


def test_every_row_of_the_list_of_runs_has_its_notebook_and_parameters(root, monkeypatch):
    monkeypatch.delenv("FAIRICAL_NB_ROOT", raising=False)
    table = reproduction.runs()
    assert not table.index.duplicated().any()
    for artefact, row in table.iterrows():
        there = (root / "nbs/paper" / row["notebook"]).is_file()
        why = reproduction.obstacles(row)
        assert there == (not why or not why[0].startswith("missing")), artefact
        if not why: assert len(reproduction.planned([artefact])) == 1
        else:
            with pytest.raises(FileNotFoundError, match=artefact): reproduction.planned([artefact])
    assert sum(not reproduction.obstacles(row) for _, row in table.iterrows()) >= 7


@pytest.mark.skipif(os.name != "posix", reason="files as channels")
def test_a_kernel_wants_no_network_port_that_another_could_take(tmp_path):
    where = tmp_path / "channels.txt"
    made = notebook(tmp_path / "n.ipynb", f"""import json
from ipykernel.connect import get_connection_info
open({str(where)!r}, "a").write(json.dumps(get_connection_info(unpack=True), default=str) + chr(10))""")
    for _ in range(2): execute(made, {}, tmp_path / "done.ipynb")
    first, second = (json.loads(line) for line in where.read_text().splitlines())
    assert first["transport"] == second["transport"] == "ipc" and first["ip"] != second["ip"]
    assert not Path(first["ip"]).parent.exists() and not Path(second["ip"]).parent.exists()


# What wrong code would have passed

@pytest.mark.parametrize("value, kind, want", [("none", "list", ValueError), ("None", "int", ValueError), ("none", "object", None), ("True", "float", ValueError), (True, "float", ValueError), (True, "int", ValueError), (2, "float", 2.), ([1], "tuple", [1]), ((1,), "tuple", (1,)), ("(1, 2)", "list[int]", (1, 2)), ("TRUE", "bool", True)])
def test_a_value_is_of_its_type_or_refused(value, kind, want):
    from fairical_nb.paper import _typed
    if want is ValueError:
        with pytest.raises(ValueError, match=re.escape(f"'x' must be of type {kind}")): _typed("x", value, kind)
    else:
        found = _typed("x", value, kind)
        assert found == want and type(found) is type(want)


def test_keys_of_a_dict_become_text_however_deep():
    from fairical_nb.paper import _plain
    assert _plain("x", {1: {np.int64(2): [Path("a")]}, None: True}) == {"1": {"2": ["a"]}, "None": True}
