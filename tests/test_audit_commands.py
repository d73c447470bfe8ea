"The commands generate, label, mgbi and train-spafreq, alone and in a chain, in this process and as a subprocess."
import importlib
import json
import re
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

from fairical_nb import audit_commands
from fairical_nb.attributes import TAXONOMY
from fairical_nb.cli import main
from fairical_nb.mgbi import mgbi

OWN = """
import numpy as np
def draw(prompts, seeds):
    return [np.random.default_rng(s).integers(0, 256, (32, 32, 3), dtype=np.uint8) for s in seeds]
def half(prompts, seeds):
    if any("poor" in p for p in prompts): raise RuntimeError("no")
    return draw(prompts, seeds)
def never(prompts, seeds): raise RuntimeError("broken")
"""


def run(*args): return CliRunner().invoke(main, [str(a) for a in args])


def good(*args):
    done = run(*args)
    if done.exception and not isinstance(done.exception, SystemExit): raise done.exception
    assert done.exit_code == 0, done.output
    return done


def bad(*args, status=2):
    done = run(*args)
    assert isinstance(done.exception, SystemExit) and done.exit_code == status, (done.exception, done.output)
    assert done.stdout == "" and re.search(r"^Error: .+\n\Z", done.stderr, re.M), done.stderr
    return done.stderr.strip()


def labels(n=400, seed=0, models=("one", "two")):
    rng = np.random.default_rng(seed)
    rows = [pd.DataFrame({"model": m, "prompt_id": [f"{t}{i % 20}" for i in range(n)], "trigger": t} | {a: rng.choice(c, n, p=np.r_[.5, np.full(len(c) - 1, .5 / (len(c) - 1))]) for a, c in TAXONOMY.items()})
            for m in models for t in ("", "poor", "successful")]
    return pd.concat(rows, ignore_index=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_images.py").write_text(OWN)
    pd.DataFrame({"prompt_id": ["n1", "t1"], "prompt": ["a person", "a poor person"], "trigger": ["", "poor"]}).to_csv("prompts.csv", index=False)
    yield tmp_path
    sys.modules.pop("own_images", None)


# mgbi: no torch needed

def test_mgbi_prints_what_the_function_returns_in_every_format(folder):
    table = labels()
    table.to_csv("labels.csv", index=False)
    table.to_parquet("labels.parquet")
    found = json.loads(good("mgbi", "labels.csv", "-t", "json", "-n", 50).stdout, parse_constant=lambda c: pytest.fail(c))
    assert json.loads(good("mgbi", "labels.parquet", "-t", "json", "-n", 50).stdout) == found
    for m, t in table.groupby("model"):
        result = mgbi(t, TAXONOMY)
        for k, v in result.summary.items(): assert found["models"][m]["scores"][k] == pytest.approx(v, abs=1e-12)
        limits = result.interval(50, 0)
        assert found["models"][m]["intervals"]["MGBI"]["low"] == pytest.approx(limits.loc["MGBI", "low"])
    assert 0 <= found["pairs"]["one | two"]["beats"] <= 1 and found["settings"]["method"] == "linear"
    for fmt, sign in {"text": "---", "markdown": "|--", "latex": r"\toprule", "html": "<table>"}.items():
        assert sign in good("mgbi", "labels.csv", "-t", fmt, "--interval", "none").stdout


def test_Q01_the_quantiles_definition_is_an_option_and_is_printed(folder):
    labels().to_csv("labels.csv", index=False)
    first, second = (good("mgbi", "labels.csv", "--interval", "none", "--method", m, "--digits", 6).stdout for m in ("linear", "lower"))
    assert "(numpy: linear)" in first and "(numpy: lower)" in second and first != second
    assert "method must be one of" in bad("mgbi", "labels.csv", "--method", "middling")


def test_mgbi_takes_targets_attributes_corrections_and_several_files(folder):
    for m in ("one", "two"): labels(models=[m]).drop(columns="model").to_csv(f"{m}.csv", index=False)
    both = json.loads(good("mgbi", "one.csv", "two.csv", "-a", "gender", "--target", "gender=.5,.5", "-t", "json", "--interval", "none").stdout)
    assert list(both["models"]) == ["one", "two"] and both["settings"]["target"] == {"gender": [.5, .5]}
    pd.DataFrame([("gender", t, p, 90 if t == p else 10) for t in TAXONOMY["gender"] for p in TAXONOMY["gender"]], columns=["attribute", "true", "predicted", "n"]).to_csv("confusion.csv", index=False)
    mended = json.loads(good("mgbi", "one.csv", "-a", "gender", "--correct", "confusion.csv", "-t", "json", "--interval", "none").stdout)
    assert mended["settings"]["corrected"] and mended["models"]["one"]["scores"]["MGBI"] < both["models"]["one"]["scores"]["MGBI"] + 1e-9


def test_undetermined_labels_are_counted_and_few_images_warned_of(folder):
    table = labels(30)
    table.loc[:2, "gender"] = None
    table.to_csv("labels.csv", index=False)
    done = good("mgbi", "labels.csv", "-n", 20)
    assert "Warning: fewer than 200 images" in done.stderr and "one: 90 images" in done.stdout and "undetermined gender 3" in done.stdout


@pytest.mark.parametrize("change, words", [
    (lambda t: t[t["trigger"] != ""], "neutral"), (lambda t: t[t["trigger"] == ""], "trigger"), (lambda t: t.drop(columns="trigger"), "no column 'trigger'"),
    (lambda t: t.drop(columns=list(TAXONOMY)), "no column is an attribute of the taxonomy"), (lambda t: t.assign(gender="robot"), "'robot'"), (lambda t: t.assign(image="a.png"), "listed twice")])
def test_bad_tables_are_named_in_one_line(folder, change, words):
    change(labels(20)).to_csv("labels.csv", index=False)
    assert words in bad("mgbi", "labels.csv")


def test_bad_options_are_named_in_one_line(folder):
    labels(20).to_csv("labels.csv", index=False)
    assert "no such file" in bad("mgbi", "absent.csv")
    assert "labels are read from .csv or .parquet" in bad("mgbi", "prompts.txt", "-a", "gender") if (folder / "prompts.txt").write_text("x") else True
    assert "a target is written" in bad("mgbi", "labels.csv", "--target", "gender=even")
    assert "'hair'" in bad("mgbi", "labels.csv", "-a", "hair")
    assert "prompt" in bad("mgbi", "labels.csv", "--cluster", "sentence")


def test_mgbi_as_a_subprocess_needs_no_torch(folder):
    labels().to_csv("labels.csv", index=False)
    code = "import sys; sys.argv = ['fairical-nb', 'mgbi', 'labels.csv', '-n', '50', '-t', 'json']\nfrom fairical_nb.cli import main\ntry: main()\nexcept SystemExit as e: status = e.code\nprint('torch' in sys.modules, status, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "False 0" and set(json.loads(done.stdout)["models"]) == {"one", "two"}


@pytest.mark.parametrize("command", ["generate", "label", "mgbi", "train-spafreq", "train-fairgrpo"])
def test_help_names_every_option_and_gives_an_example(command):
    text = good(command, "--help").output
    assert "Usage: " in text and f"Example: fairical-nb {command}" in text.replace("\n  ", " ")


# generate and label

def test_a_chain_as_subprocesses_and_its_second_run_makes_nothing(folder):
    pytest.importorskip("torch")
    code = "import sys; from fairical_nb.cli import main; main(sys.argv[1:])"
    call = [sys.executable, "-c", code, "generate", "own_images:draw", "-p", "prompts.csv", "-n", "3", "-o", "album"]
    first = subprocess.run(call, capture_output=True, text=True)
    assert (first.returncode, first.stdout) == (0, "") and first.stderr == "album: 6 images of draw\n", first.stderr
    before = {p: p.stat().st_mtime_ns for p in (folder / "album").rglob("*.png")}
    again = good("generate", "own_images:never", "--model", "draw", "-p", "prompts.csv", "-n", 3, "-o", "album")
    assert "6 images of draw" in again.stderr and {p: p.stat().st_mtime_ns for p in (folder / "album").rglob("*.png")} == before


def test_failures_have_status_1_and_are_tried_again(folder):
    pytest.importorskip("torch")
    call = ("-p", "prompts.csv", "-n", 2, "-o", "album", "--model", "m")
    assert "2 images could not be made; the first says: RuntimeError: no" in bad("generate", "own_images:half", *call, status=1)
    assert "2 images in a row" in bad("generate", "own_images:never", *call, "--patience", 2, status=1)
    good("generate", "own_images:draw", *call)
    assert pd.read_csv("album/manifest.csv")["sha256"].notna().sum() == 4


def test_shards_and_first(folder):
    pytest.importorskip("torch")
    for i in range(2): good("generate", "own_images:draw", "-p", "prompts.csv", "-n", 2, "-o", "album", "--shard", f"{i}/2", "--first", 1)
    assert sorted(p.name for p in (folder / "album").glob("manifest*")) == ["manifest-0-of-2.csv", "manifest-1-of-2.csv"]
    for text in ("2/2", "x", "1"): assert "shard must" in bad("generate", "own_images:draw", "-p", "prompts.csv", "-o", "a", "--shard", text)


@pytest.mark.parametrize("source, words", [("models/none", "no model_index.json at models/none"), ("nowhere:draw", "no module 'nowhere'"), ("own_images:paint", "has no function 'paint'")])
def test_a_source_that_is_not_there(folder, source, words):
    pytest.importorskip("torch")
    assert words in bad("generate", source, "-p", "prompts.csv", "-o", "album")
    assert not (folder / "album").exists()


@pytest.fixture
def labeller(folder):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    from fairical_nb.spafreq import Labeller, SpaFreq
    Labeller(SpaFreq(TAXONOMY, seed=0)).save(folder / "labeller")
    return folder / "labeller"


def test_label_leaves_out_and_counts_what_is_no_good_image(folder, labeller):
    good("generate", "own_images:draw", "-p", "prompts.csv", "-n", 4, "-o", "album")
    table = pd.read_csv("album/manifest.csv")
    (folder / "album" / table["image"][0]).write_bytes(b"x")
    (folder / "album" / table["image"][5]).unlink()
    done = good("label", labeller, "album", "-o", "labels.csv", "--probabilities")
    found = pd.read_csv("labels.csv", keep_default_na=False)
    assert "6 images labelled, 2 left out" in done.stderr and "1 image(s) missing" in done.stderr and "1 image(s) changed" in done.stderr
    assert found["image"].tolist() == table["image"].drop([0, 5]).tolist() and set(found["trigger"]) == {"", "poor"}
    np.testing.assert_allclose(found[["gender=female", "gender=male"]].astype(float).sum(axis=1), 1)
    sure = good("label", labeller, "album", "-o", "unsure.parquet", "--abstain", 1)
    assert "18 labels undetermined" in sure.stderr and pd.read_parquet("unsure.parquet")["race"].isna().all()


def test_label_refuses_what_it_cannot_write_or_read(folder, labeller):
    good("generate", "own_images:draw", "-p", "prompts.csv", "-o", "album")
    assert "written to .csv or .parquet" in bad("label", labeller, "album", "-o", "labels.txt")
    assert "no manifest.csv there; an album is a folder of images with a manifest.csv, a line per image with at least image, prompt_id, trigger, model" in bad("label", labeller, labeller, "-o", "labels.csv")
    assert "absent: no such folder" in bad("label", "tiny", "absent", "-o", "labels.csv")
    assert "album: is no labeller; name tiny, tiny-judge" in bad("label", "album", "album", "-o", "labels.csv")
    assert not (folder / "labels.csv").exists()


def test_labels_that_were_asked_for_are_not_mixed_with_those_that_are_seen(folder, labeller):
    (folder / "album").mkdir()
    Image.new("RGB", (32, 32)).save("album/a.png")
    (folder / "album" / "manifest.csv").write_text("image,prompt_id,trigger,model,gender\na.png,1,,theirs,robot\n")
    good("label", labeller, "album", "-o", "labels.csv")
    assert pd.read_csv("labels.csv")["gender"][0] in TAXONOMY["gender"]


def test_train_spafreq_from_an_album_whose_prompts_name_the_classes_to_a_corrected_index(folder):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    from fairical_nb.albums import append, digest
    from fairical_nb.standins_glyphs import draw_labels, portraits
    known = draw_labels(240, seed=3)
    for i, (x, row) in enumerate(zip((portraits(known, seed=3) * 255).astype(np.uint8), known.itertuples())):
        Image.fromarray(x).save(folder / f"{i}.png")
        words = {"female": "woman", "male": "man"}[row.gender]
        append(folder / "manifest.csv", {"image": f"{i}.png", "prompt_id": f"g{i}", "prompt": f"a portrait of a {words}", "trigger": "poor" if i % 2 else "", "seed": i, "model": "glyphs", "sha256": digest(folder / f"{i}.png")})
    (folder / "7.png").write_bytes(b"no picture")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = good("train-spafreq", "--album", folder, "-o", "labeller", "--epochs", 2, "--set", "attributes={'gender': ('female', 'male')}")
    assert "239 portraits, 1 in quarantine" in done.stderr
    confusion = pd.read_csv("labeller/confusion.csv")
    assert confusion["n"].sum() == round(.1 * 239) or 20 <= confusion["n"].sum() <= 28
    good("label", "labeller", folder, "-o", "labels.csv")
    assert "no portraits to learn from" in bad("train-spafreq", "-o", "x")


# Every option reaches what it names: what stands behind a command is replaced by a witness

def witness(monkeypatch, module, name, answer=None):
    "Replace a function by one that keeps what it was called with."
    seen = []
    monkeypatch.setattr(importlib.import_module(f"fairical_nb.{module}"), name, lambda *a, **k: seen.append((a, k)) or (answer(*a, **k) if callable(answer) else answer))
    return seen


@pytest.mark.parametrize("words, name, want", [
    ((), "images_per_prompt", 1), (("-n", 4), "images_per_prompt", 4), ((), "seed", 0), (("--seed", 5), "seed", 5), ((), "shard", None), (("--shard", "1/3"), "shard", (1, 3)), (("--shard", "process"), "shard", "process"),
    ((), "batch_size", 8), (("--batch-size", 3), "batch_size", 3), ((), "patience", 20), (("--patience", 0), "patience", 0), ((), "model", "draw"), (("--model", "mine"), "model", "mine")])
def test_every_option_of_generate_reaches_the_run(folder, monkeypatch, words, name, want):
    pytest.importorskip("torch")
    seen = witness(monkeypatch, "generators", "generate", pd.DataFrame({"state": ["ok"], "model": ["m"], "error": [""]}))
    good("generate", "own_images:draw", "-p", "prompts.csv", "-o", "album", *words)
    [((_, table, place), options)] = seen
    assert options[name] == want and table["prompt_id"].tolist() == ["n1", "t1"] and str(place) == "album"


def test_first_takes_the_first_prompts_of_each_trigger(folder, monkeypatch):
    pytest.importorskip("torch")
    pd.DataFrame({"prompt_id": list("abcdef"), "prompt": [f"a person {i}" for i in range(6)], "trigger": ["", "poor", "", "poor", "", "poor"]}).to_csv("six.csv", index=False)
    seen = witness(monkeypatch, "generators", "generate", pd.DataFrame({"state": ["ok"], "model": ["m"], "error": [""]}))
    good("generate", "own_images:draw", "-p", "six.csv", "-o", "album", "--first", 2)
    assert seen[0][0][1]["prompt_id"].tolist() == list("abcd")


@pytest.mark.parametrize("words, place", [((), {"dtype": "auto", "device": "auto", "offload": None}), (("--dtype", "float16", "--device", "cuda:1", "--offload", "model"), {"dtype": "float16", "device": "cuda:1", "offload": "model"})])
@pytest.mark.parametrize("preset", [None, "SDXL"])
def test_a_folder_is_loaded_where_and_as_asked_and_named_after_itself_or_its_preset(folder, monkeypatch, words, place, preset):
    pytest.importorskip("torch")
    (folder / "models" / "mine").mkdir(parents=True)
    made = witness(monkeypatch, "generators", "generate", pd.DataFrame({"state": ["ok"], "model": ["m"], "error": [""]}))
    loaded, called = witness(monkeypatch, "pipelines", "load_pipeline", "the pipeline"), witness(monkeypatch, "generators", "from_pipeline", "the generator")
    by_preset = witness(monkeypatch, "pipelines", "from_preset", "the generator")
    good("generate", "models/mine/", "-p", "prompts.csv", "-o", "album", "--set", "guidance_scale=4.5", *words, *(("--preset", preset) if preset else ()))
    assert made[0][0][0] == "the generator" and made[0][1]["model"] == (preset or "mine")
    if preset: assert by_preset == [((preset, "models/mine/"), place | {"guidance_scale": 4.5})] and not loaded
    else: assert loaded == [(("models/mine/",), place)] and called == [(("the pipeline",), {"guidance_scale": 4.5})]


def test_settings_of_an_embedded_pipeline_give_way_to_those_that_are_asked_for(folder, monkeypatch):
    pytest.importorskip("torch")
    made = witness(monkeypatch, "generators", "generate", pd.DataFrame({"state": ["ok"], "model": ["m"], "error": [""]}))
    called = witness(monkeypatch, "generators", "from_pipeline", "the generator")
    witness(monkeypatch, "audit_commands", "_embedded", SimpleNamespace(load=lambda: "the pipeline", SETTINGS={"guidance_scale": 3., "height": 32}))
    good("generate", "tiny", "-o", "album", "--set", "guidance_scale=1.5")
    assert called == [(("the pipeline",), {"guidance_scale": 1.5, "height": 32})] and made[0][1]["model"] == "tiny"
    assert set(made[0][0][1]["split"]) == {"eval"}  # its own captions, those to measure with


@pytest.mark.parametrize("words, want", [((), (.5, 256, False, "auto")), (("--abstain", 0, "--batch-size", 7, "--probabilities", "--device", "cpu"), (0, 7, True, "cpu")), (("--abstain", .8), (.8, 256, False, "auto"))])
def test_every_option_of_label_reaches_the_labeller(folder, monkeypatch, words, want):
    pytest.importorskip("torch")
    for n in ("a", "b"): good("generate", "own_images:draw", "-p", "prompts.csv", "-n", 3, "-o", n)
    for n, lost in (("a", 1), ("b", 2)):
        for p in sorted((folder / n / "images").glob("*.png"))[:lost]: p.unlink()
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text("{}")
    who = SimpleNamespace(attributes={"gender": ("female", "male")}, abstain=.5)
    loaded = witness(monkeypatch, "labelling", "load", who)
    asked = witness(monkeypatch, "labelling", "label_files", lambda who, paths, **k: (pd.DataFrame({"image": paths, "gender": "male"}), pd.DataFrame(columns=["image", "reason"])))
    done = good("label", "mine", "a", "b", "-o", "labels.csv", *words)
    abstain, size, probabilities, device = want
    assert who.abstain == abstain and loaded == [(("mine",), {"device": device})]
    assert [k for _, k in asked] == [{"batch_size": size, "probabilities": probabilities}] * 2 and "9 images labelled, 3 left out" in done.stderr


@pytest.mark.parametrize("name, kind", [("tiny", "labeller"), ("tiny-judge", "judge")])
def test_the_embedded_labellers_have_their_own_names(monkeypatch, name, kind):
    witness(monkeypatch, "audit_commands", "_embedded", SimpleNamespace(labeller=lambda: "labeller", judge=lambda: "judge"))
    assert audit_commands._labeller(name, "cpu") == kind


@pytest.mark.parametrize("words, name, want", [
    ((), "q", .1), (("--q", .25), "q", .25), ((), "method", "linear"), (("--method", "lower"), "method", "lower"), ((), "eps", 1e-6), (("--eps", .01), "eps", .01), ((), "ca_eps", 0), (("--ca-eps", .02), "ca_eps", .02),
    ((), "target", {}), (("--target", "gender=.3,.7"), "target", {"gender": [.3, .7]}), ((), "correction", None), (("--miller-madow",), "correction", "miller-madow"), ((), "confusion", None), (("--correct", "c.csv"), "confusion", "c.csv"),
    ((), "kind", "basic"), (("--interval", "bca"), "kind", "bca"), ((), "n", 2000), (("-n", 70), "n", 70), (("--interval", "none", "-n", 70), "n", 0), ((), "seed", 0), (("--seed", 4), "seed", 4), ((), "context", "trigger"), (("--context", "model"), "context", "model"),
    ((), "cluster", "prompt_id"), (("--cluster", ""), "cluster", None), (("--cluster", "x"), "cluster", "x"), ((), "level", .95), (("--level", .8), "level", .8), ((), "per_prompt", False), (("--per-prompt",), "per_prompt", True)])
def test_every_option_of_mgbi_reaches_the_audit(folder, monkeypatch, words, name, want):
    labels(5).to_csv("labels.csv", index=False)
    seen = witness(monkeypatch, "mgbi_report", "audit", "the audit")
    witness(monkeypatch, "mgbi_report", "report", "")
    good("mgbi", "labels.csv", *words)
    found = seen[0][1][name]
    assert (found or {}) == want if name == "target" else found == want


@pytest.mark.parametrize("words, want", [((), ("text", 4, False)), (("-t", "html", "--digits", 2, "--triggers"), ("html", 2, True))])
def test_an_audit_is_printed_as_asked(folder, monkeypatch, words, want):
    labels(5).to_csv("labels.csv", index=False)
    witness(monkeypatch, "mgbi_report", "audit", "the audit")
    seen = witness(monkeypatch, "mgbi_report", "report", "printed")
    assert good("mgbi", "labels.csv", *words).stdout == "printed\n"
    assert seen == [(("the audit", want[0]), {"digits": want[1], "triggers": want[2]})]


def test_one_image_may_be_listed_once_for_each_model_and_files_without_one_are_models_of_their_own(folder, monkeypatch):
    seen = witness(monkeypatch, "mgbi_report", "audit", "the audit")
    witness(monkeypatch, "mgbi_report", "report", "")
    table = labels(3, models=["m"]).drop(columns="model").assign(image=[f"{i}.png" for i in range(9)])
    for name in ("one", "two"): table.to_csv(f"{name}.csv", index=False)
    good("mgbi", "one.csv", "two.csv")
    assert seen[0][0][0].groupby("model")["image"].nunique().to_dict() == {"one": 9, "two": 9}
    pd.concat([table, table[:1]]).to_csv("one.csv", index=False)
    assert "1 images are listed twice for one model, first '0.png'" in bad("mgbi", "one.csv", "two.csv")


PORTRAITS = pd.DataFrame({"path": ["a.jpg", "b.jpg"], "unit": ["u", "v"], "source": ["UTKFace", "FairFace"], "gender": ["male", "female"]})
@pytest.mark.parametrize("words, name, want", [
    ((), "epochs", 20), (("--epochs", 3), "epochs", 3), ((), "batch_size", 64), (("--batch-size", 9), "batch_size", 9), ((), "lr", 1e-3), (("--lr", .5), "lr", .5), ((), "seed", 0), (("--seed", 6), "seed", 6), ((), "device", "auto"), (("--device", "cpu"), "device", "cpu"),
    ((), "network", {"backbone": "small_vit", "weights": None}), (("--backbone", "lite0", "--weights", "package"), "network", {"backbone": "lite0", "weights": "package"}),
    (("--set", "network={'fusion': 'fixed', 'backbone': 'x'}"), "network", {"backbone": "x", "weights": None, "fusion": "fixed"}), (("--set", "gamma=2"), "gamma", 2), (("--epochs", 3, "--set", "epochs=4"), "epochs", 4)])
def test_every_option_of_train_spafreq_reaches_the_training(folder, monkeypatch, words, name, want):
    pytest.importorskip("torch")
    witness(monkeypatch, "audit_commands", "_faces", type("Few", (), {"table": PORTRAITS, "quarantine": PORTRAITS[:1], "__len__": lambda self: 2})())
    saved = []
    confusion = {"gender": pd.DataFrame([[5, 1, 2], [0, 4, 3], [1, 1, 1]], index=["female", "male", "undetermined"], columns=["female", "male", "undetermined"])}
    trained = SimpleNamespace(labeller=SimpleNamespace(attributes={"gender": ("female", "male")}, save=saved.append), confusion=confusion, accuracy=pd.DataFrame({"accuracy": [.9]}, index=pd.Index(["gender"], name="attribute")), overall=.8764)
    seen = witness(monkeypatch, "spafreq", "train_labeller", trained)
    done = good("train-spafreq", "-o", "out", *words)
    [((paths, table), options)] = seen
    assert options[name] == want and paths == ["a.jpg", "b.jpg"] and table is PORTRAITS and options["unit"].tolist() == ["u", "v"]
    assert options["about"] == {"Training data": "UTKFace (1), FairFace (1); 1 items in quarantine."} and [str(s) for s in saved] == ["out"]
    assert "2 portraits, 1 in quarantine (quarantine.csv); all attributes right on 0.876" in done.stderr
    assert pd.read_csv("out/confusion.csv").values.tolist() == [["gender", "female", "female", 5], ["gender", "female", "male", 1], ["gender", "male", "female", 0], ["gender", "male", "male", 4]]  # undetermined ones are no column of it


def test_portraits_of_every_folder_are_read_each_under_a_name_of_its_own(monkeypatch):
    pytest.importorskip("torch")
    read = {kind: witness(monkeypatch, "face_sources", f"read_{kind}", lambda folder, name, kind=kind: (kind, folder, name)) for kind in ("fairface", "utkface", "manifest")}
    witness(monkeypatch, "faces", "assemble", lambda *sources: sources)
    assert audit_commands._faces(["f", "g"], ["u", "v"], ["a", "b"]) == (("fairface", "f", "FairFace"), ("fairface", "g", "FairFace 1"), ("utkface", "u", "UTKFace"), ("utkface", "v", "UTKFace 1"), ("manifest", "a", "generated"), ("manifest", "b", "generated 1"))
    assert [len(r) for r in read.values()] == [2, 2, 2]
