"Studies of Fair-GRPO: rows, seeds, small files; the command in front of the trainer."
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from test_fairgrpo import PROMPTS, SMALL, Pixels
from tiny_sd3 import sd3

from fairical_nb import change_commands, grpo_settings, grpo_trainer, study
from fairical_nb.glyph_world import captions
from fairical_nb.grpo_settings import PRESETS
from fairical_nb.grpo_verdict import by_class, read
from fairical_nb.mgbi import from_counts
from fairical_nb.prompts import prompt_set
from fairical_nb.study import ROWS, Guessing, counted, distances, features, over_seeds, read_rows, run_row, strip, table_of, write_method, write_row

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:fewer than 200 images")


class Reader(Pixels):
    class net:
        eval = staticmethod(lambda: None)
        body = staticmethod(lambda x: torch.stack([x.mean((1, 2, 3)), x.std((1, 2, 3))], 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "A baseline and a trained row, as files."
    torch.manual_seed(0)
    world = {"labellers": {"labeller": Pixels(), "judge": Reader()}, "prompts": PROMPTS, "train": PROMPTS, "worlds": {"balanced": torch.rand(30, 3, 32, 32)}}
    out = tmp_path_factory.mktemp("rows")
    for row, seed, changes in (("baseline", 0, None), ("all", 0, {"updates": 2}), ("all", 1, {"updates": 2})):
        write_row(run_row(row, seed, sd3(), world, preset=SMALL, changes=changes, per_prompt=6, every=1, adapter=out / "adapter" if seed else None), out, picture=True)
    return out


def test_a_run_is_a_small_file_from_which_its_measures_follow(folder):
    base, *trained = sorted(read_rows(folder), key=lambda r: r["row"] != "baseline")
    assert [r["seed"] for r in trained] == [0, 1] and base["updates"] == 0 and all(r["updates"] == 2 and r["data"] == "stand-in" for r in trained)
    for r in (base, *trained):
        for sampler in ("deployment", "training"):
            again = from_counts(r["counts"][sampler]["judge"])
            assert again.MGBI == pytest.approx(r["measures"][sampler]["judge MGBI"], abs=1e-4)
        assert [r["measures"][k]["n"] for k in ("deployment", "training")] == [3 * 6, 3 * 2]  # a third of the pictures for the second sampler
    assert [p["update"] for p in trained[0]["looks"]] == [0, 1, 2] and {"kl", "on_far", "dead", "grad_norm", "lr"} <= set(trained[0]["curve"][0])
    assert all(p.stat().st_size < 30_000 for p in folder.glob("*.json"))
    assert (folder / "adapter" / "README.md").is_file()


def test_rows_lie_side_by_side_with_their_spread(folder):
    table = table_of(read_rows(folder))
    summary = over_seeds(table, ["judge MGBI"])
    two = table.loc[table["row"] == "all", "judge MGBI"]
    assert summary.loc["all"].tolist() == pytest.approx([2, two.mean(), two.std()]) and np.isnan(summary.loc["baseline", "judge MGBI sd"])
    write_method(read_rows(folder, ["all"]), folder / "sd3" / "fair_grpo.csv", "fair_grpo")
    lines = pd.read_csv(folder / "sd3" / "fair_grpo.csv")
    assert lines[["method", "seed", "sampler"]].values.tolist() == [["fair_grpo", s, k] for s in (0, 1) for k in ("deployment", "training")]


def test_an_absent_row_is_named(folder):
    with pytest.raises(FileNotFoundError, match="no result of row 'gender'.*retrain"):
        read_rows(folder, ["baseline", "gender"])


def test_counts_are_those_of_the_labels():
    e = read(torch.rand(6, 3, 8, 8), pd.concat([PROMPTS] * 2), {"judge": Reader()})
    counts = counted(e)["judge"]
    assert sum(sum(c["gender"]) for c in counts.values()) == 6
    assert counts["x"]["age"] == [int((e.tables["judge"].query("trigger == 'x'")["age"] == k).sum()) for k in e.attributes["age"]]
    with pytest.raises(ValueError, match="6 pictures and 3 rows"):
        read(torch.rand(6, 3, 8, 8), PROMPTS, {"judge": Reader()})


def test_a_share_by_class_does_not_move_with_the_composition():
    clear = {"disc": .9, "square": .3}
    for n in ((50, 50), (90, 10), (10, 90)):
        table = pd.DataFrame({"shape": np.repeat(["disc", "square"], n)})
        flags = np.concatenate([np.arange(k) < round(clear[c] * k) for c, k in zip(clear, n)])
        assert by_class(flags, table, ["shape"]) == pytest.approx(.6)


def test_strips_and_distances():
    from io import BytesIO
    from PIL import Image
    x = torch.rand(7, 3, 8, 8)
    assert Image.open(BytesIO(strip(x, columns=3))).size == (24, 16)
    assert distances(Reader(), x, {"itself": x})["frechet itself"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("row", [*ROWS, "neutral4", "random4"])
def test_a_row_trains_with_what_its_name_says_and_nothing_else(row, monkeypatch):
    "Which prompts, which reader, which settings and which seed a row takes; nothing is trained."
    asked, reader = [], Pixels()
    monkeypatch.setattr(study, "train", lambda pipe, labeller, prompts, *, preset, seed, **k: asked.append((labeller, prompts, preset, seed)) or sys.exit(7))
    monkeypatch.setattr(study, "look", lambda pipe, world, s, **k: ({}, {}, None))
    monkeypatch.setattr(study, "_grid", lambda e: None)
    prompts = pd.concat([PROMPTS] * 2, ignore_index=True)
    world = {"labellers": {"labeller": reader, "judge": Reader()}, "prompts": PROMPTS, "train": prompts, "worlds": {}}
    if row == "baseline":
        assert run_row(row, 3, object(), world, preset=SMALL, every=0)["updates"] == 0 and not asked
        return
    with pytest.raises(SystemExit):
        run_row(row, 3, object(), world, preset=SMALL, changes={"lr": 7e-4}, every=0)
    (labeller, table, s, seed), = asked
    assert seed == 3 and s == grpo_settings.settings(SMALL, **ROWS.get(row, {}) | {"lr": 7e-4})
    neutral, guessed = row.startswith("neutral"), row.startswith("random")
    assert set(table["trigger"]) == ({""} if neutral else {"", "x", "y"}) and len(table) == (2 if neutral else 6)
    assert isinstance(labeller, Guessing) == guessed and (guessed or labeller is reader)
    if guessed:
        assert labeller.attributes == reader.attributes and labeller.label(range(20)).equals(Guessing(reader.attributes, 3).label(range(20)))


def test_features_are_what_the_judges_heads_read():
    from fairical_nb.glyph_labellers import Judge
    from fairical_nb.labelling import Labeller
    judge, x = Labeller(Judge(seed=3, width=8), flip=False), torch.rand(300, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    seen = torch.as_tensor(features(judge, x)).float()
    judge.net.eval()
    with torch.no_grad():
        for head, logits in zip(judge.net.heads, judge.net(x).values()):
            assert torch.allclose(head(seen), logits, atol=1e-4)


# the command

@pytest.fixture
def typed(monkeypatch):
    monkeypatch.setattr(change_commands, "_pipeline", lambda name: sd3())
    monkeypatch.setattr(change_commands, "_labeller", lambda name: Pixels())
    few = [w for s in ("groups=2", "pictures=4", "batch=8", "rank=2", "steps=4", "sigmas=(1.,.75,.5,.25)", "time_steps=1") for w in ("--set", s)]

    def run(*words):
        said = CliRunner().invoke(change_commands.train_fairgrpo, [*few, *map(str, words)])
        return said.exit_code, f"{said.output} {said.exception or ''}"
    return run


def test_train_resume_and_refuse(typed, tmp_path):
    prompts, folder = tmp_path / "prompts.csv", tmp_path / "run"
    PROMPTS.to_csv(prompts, index=False)
    status, text = typed("--prompts", prompts, "-o", folder, "--set", "updates=1")
    assert status == 0 and "effective batch 8" in text, text
    told = lambda text: [line.split()[0] for line in text.splitlines() if len(line.split()) == 7 and line.split()[0].isdigit()] # rows of the table at the end
    assert told(text) == ["0"], "one update is told once"
    status, text = typed("--prompts", prompts, "-o", folder, "--set", "updates=2", "--resume")
    assert status == 0 and told(text)[0] == "0" and len(set(told(text))) == len(told(text)), text
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [r["update"] for r in rows] == [0, 1]
    for words, said in ((("-o", folder), "holds a run already"), (("-o", tmp_path / "x", "--set", "betta=1"), "did you mean 'beta'"), (("-o", tmp_path / "x", "--preset", "huge"), "preset must be one of tiny, paper, literal"),
                        (("-o", tmp_path / "x", "--resume"), "no run to resume"), (("-o", tmp_path / "x", "--set", "beta"), "NAME=VALUE"), (("-o", tmp_path / "x", "--neutral-only"), "groups must lie between 1 and the number of prompts, 1")):
        status, text = typed("--prompts", prompts, *words)
        assert status != 0 and said in text, text
    assert not (tmp_path / "x").exists()


def test_dry_run_samples_nothing(typed, tmp_path):
    status, text = typed("--dry-run", "-o", tmp_path / "run")
    assert status == 0 and f"{PRESETS['tiny'].updates} updates of 2 prompts x 4 pictures" in text and not (tmp_path / "run").exists()


def test_a_missing_column_of_prompts_is_named(typed, tmp_path):
    PROMPTS.drop(columns="trigger").to_csv(tmp_path / "p.csv", index=False)
    status, text = typed("--prompts", tmp_path / "p.csv", "-o", tmp_path / "run")
    assert status != 0 and "has no column 'trigger'" in text


@pytest.mark.parametrize("words, pipeline, first", [((), "tiny", captions(split="train")["prompt"][0]), (("--preset", "tiny_sd15"), "tiny_sd15", captions(split="train")["prompt"][0]), (("--preset", "tiny_sd15", "--pipeline", "tiny"), "tiny", captions(split="train")["prompt"][0]),
                                                    (("--pipeline", "models/own", "--labeller", "own"), "models/own", prompt_set("train")["prompt"][0]), (("--prompts", "eval"), "tiny", prompt_set("eval")["prompt"][0])])
def test_pipeline_follows_the_preset_and_prompts_follow_the_pipeline(monkeypatch, tmp_path, words, pipeline, first):
    "Captions of the glyph world are for the pipelines that know it; a folder's pipeline must not be trained on them unasked."
    seen = {}
    monkeypatch.setattr(change_commands, "_pipeline", lambda name: seen.setdefault("pipeline", name))
    monkeypatch.setattr(change_commands, "_labeller", lambda name: Pixels())
    monkeypatch.setattr(grpo_trainer, "train", lambda pipe, judge, table, **k: seen.setdefault("prompts", table) is None or sys.exit(7))
    monkeypatch.setattr(grpo_settings, "checked", lambda *a: "")
    assert CliRunner().invoke(change_commands.train_fairgrpo, [*words, "-o", str(tmp_path / "run")]).exit_code == 7
    assert seen["pipeline"] == pipeline and seen["prompts"]["prompt"].iloc[0] == first


def test_what_does_not_fit_a_pipeline_is_refused(typed, tmp_path):
    "The glyphs' labeller would answer for photographs, too; and the embedded pipelines have one size."
    for words, said in ((("--pipeline", "models/own"), "--labeller is needed for models/own"), (("--preset", "paper"), "draws 32 x 32 pixels, but these settings ask for 512")):
        status, text = typed(*words, "-o", tmp_path / "run")
        assert status != 0 and said in text, text
    assert not (tmp_path / "run").exists()


def test_the_embedded_pipelines_load_by_their_names():
    assert {n: type(change_commands._pipeline(n)).__name__ for n in change_commands.EMBEDDED} == {"tiny": "StableDiffusion3Pipeline", "tiny_sd15": "StableDiffusionPipeline"}


def test_prompts_that_are_not_there_are_named(typed, tmp_path):
    status, text = typed("--prompts", tmp_path / "none.csv", "-o", tmp_path / "run")
    assert status != 0 and "none.csv: no such file" in text


def test_accelerate_launches_the_command(tmp_path):
    "One update of the embedded pipeline in a process of accelerate's own."
    folder = tmp_path / "run"
    few = [w for s in ("updates=1", "groups=1", "pictures=2", "batch=2", "rank=2", "time_steps=1") for w in ("--set", s)]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    done = subprocess.run([*launch, "-m", "fairical_nb.cli", "train-fairgrpo", "--preset", "tiny", "-o", folder, *few], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])})
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line)["update"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [0]
    assert (folder / "adapter" / "pytorch_lora_weights.safetensors").is_file()


@pytest.mark.parametrize("words, want", [((), dict(seed=0, resume=False)), (("--seed", 4), dict(seed=4, resume=False)), (("--resume",), dict(seed=0, resume=True))])
def test_seed_folder_and_resume_reach_the_trainer(monkeypatch, tmp_path, words, want):
    asked = []
    monkeypatch.setattr(change_commands, "_pipeline", lambda name: "the pipeline")
    monkeypatch.setattr(change_commands, "_labeller", lambda name: Pixels())
    monkeypatch.setattr(grpo_settings, "checked", lambda *a: "")
    monkeypatch.setattr(grpo_trainer, "train", lambda *a, **k: asked.append((a, k)) or sys.exit(7))
    CliRunner().invoke(change_commands.train_fairgrpo, [*map(str, words), "--set", "updates=3", "-o", str(tmp_path / "run")])
    [((pipe, judge, table), options)] = asked
    assert pipe == "the pipeline" and isinstance(judge, Pixels) and options.pop("preset").updates == 3 and options == dict(folder=tmp_path / "run", **want)


@pytest.mark.parametrize("neutral_only, kept", [(False, ["a", "b", "c"]), (True, ["a", "c"])])
def test_neutral_prompts_alone_are_kept_when_asked_for(tmp_path, neutral_only, kept):
    pd.DataFrame({"prompt_id": list("abc"), "prompt": list("xyz"), "trigger": ["", "poor", ""]}).to_csv(tmp_path / "p.csv", index=False)
    assert change_commands._prompts(str(tmp_path / "p.csv"), "tiny", neutral_only)["prompt_id"].tolist() == kept


@pytest.mark.parametrize("pipeline, labeller, size, want", [("tiny", None, None, "tiny"), ("tiny_sd15", None, 32, "tiny"), ("tiny", "own", 32, "own"), ("models/own", "own", 512, "own"), ("models/own", "tiny", 64, "tiny"), ("models/own", None, 32, "--labeller is needed"), ("tiny", None, 64, "32 x 32 pixels"), ("tiny_sd15", "own", 31, "32 x 32 pixels")])
def test_labeller_and_size_must_fit_the_pipeline(pipeline, labeller, size, want):
    if " " not in want: assert change_commands._fitting(pipeline, labeller, size) == want
    else:
        with pytest.raises(ValueError, match=want): change_commands._fitting(pipeline, labeller, size)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_end_of_a_run_tells_its_first_and_last_update_and_why_it_ended(capsys, n):
    rows = pd.DataFrame({"update": range(n), **{c: .25 for c in ("reward", "dead", "kl", "on_far", "off_clipped", "grad_norm")}, "seconds": 1.2})
    change_commands._tell(type("T", (), {"table": rows, "stopped": "kl rose"})(), Path("run"))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "ended early: kl rose" and [int(line.split()[0]) for line in said[2:-1]] == sorted({0, n - 1}) and said[-1] == f"run: {n} updates in {1.2 * n:.0f} s; adapter in {Path('run') / 'adapter'}"
