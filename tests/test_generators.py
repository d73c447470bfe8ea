"Albums and generators: nothing is lost by a kill, nothing is made twice, and a real pipeline goes the same way as a stand-in."
import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
transformers = pytest.importorskip("transformers")

from fairical_nb import albums, generators, pipelines, unified  # noqa: E402

torch.set_num_threads(1)
PROMPTS = pd.DataFrame({"prompt_id": ["n1", "t1", "t/2"], "prompt": ["a person", 'a "poor", tired\nperson', "an old judge"], "trigger": ["", "poor", "poor"]})


def paint(prompts, seeds):
    "A generator whose image is a function of prompt and seed."
    return [Image.fromarray(np.random.default_rng([s, len(p)]).integers(0, 256, (6, 6, 3), dtype=np.uint8)) for p, s in zip(prompts, seeds)]


def run(folder, generator=paint, **options):
    return generators.generate(generator, PROMPTS, folder, **({"model": "toy", "images_per_prompt": 2} | options))


def pixels(folder, table):
    return [Image.open(Path(folder) / n).tobytes() for n in table["image"]]


# Tiny pipelines with random weights, built from configurations

def tokenizer():
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    words = {w: i for i, w in enumerate([*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"])}
    return transformers.CLIPTokenizer(vocab=words, merges=[], model_max_length=16)


def text_config(width=16):
    return transformers.CLIPTextConfig(vocab_size=54, hidden_size=width, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16,
                                       bos_token_id=52, eos_token_id=53, pad_token_id=53, projection_dim=width)


def vae(channels):
    return diffusers.AutoencoderKL(block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                                   latent_channels=channels, norm_num_groups=4, sample_size=16, use_quant_conv=channels == 4, use_post_quant_conv=channels == 4)


def stable_diffusion():
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 16), norm_num_groups=4, cross_attention_dim=16,
                                          attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
    scheduler = diffusers.DDIMScheduler(clip_sample=False, steps_offset=1)
    return diffusers.StableDiffusionPipeline(vae(4), transformers.CLIPTextModel(text_config()), tokenizer(), unet, scheduler, None, None, requires_safety_checker=False)


def stable_diffusion_3():
    torch.manual_seed(0)
    net = diffusers.SD3Transformer2DModel(sample_size=8, patch_size=2, in_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=32,
                                          caption_projection_dim=16, pooled_projection_dim=32, out_channels=4, pos_embed_max_size=16)
    texts = [transformers.CLIPTextModelWithProjection(text_config()) for _ in range(2)]
    auto = vae(4)
    auto.register_to_config(shift_factor=.1, scaling_factor=1.5)
    return diffusers.StableDiffusion3Pipeline(net, diffusers.FlowMatchEulerDiscreteScheduler(), auto, texts[0], tokenizer(), texts[1], tokenizer(), None, None)


@pytest.fixture(scope="module", params=[stable_diffusion, stable_diffusion_3], ids=["sd", "sd3"])
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request.param().save_pretrained(folder)
    return folder


CALL = dict(num_inference_steps=2, height=16, width=16)


def test_a_pipeline_folder_fills_an_album_and_an_image_does_not_depend_on_its_batch(saved, tmp_path):
    generator = generators.from_pipeline(pipelines.load_pipeline(saved, device="cpu"), **CALL)
    together, apart = run(tmp_path / "a", generator, batch_size=6), run(tmp_path / "b", generator, batch_size=1)
    assert (together["state"] == "ok").all() and together["image"].tolist() == apart["image"].tolist()
    a, b = (np.array([np.frombuffer(p, np.uint8) for p in pixels(f, t)]).astype(int) for f, t in ((tmp_path / "a", together), (tmp_path / "b", apart)))
    assert abs(a - b).max() <= 1
    assert len({p.tobytes() for p in a}) == 6  # every image has noise of its own
    assert generator.settings["pipeline"].startswith("StableDiffusion")


def test_the_pipelines_progress_bar_comes_back(saved):
    pipe = pipelines.load_pipeline(saved, device="cpu")
    pipe.set_progress_bar_config(desc="mine")
    generators.from_pipeline(pipe, **CALL)(["a"], [1])
    assert pipe._progress_bar_config == {"desc": "mine"}


def test_a_preset_takes_its_own_class_only(saved):
    kind = {"StableDiffusionPipeline": "SD1.5", "StableDiffusion3Pipeline": "SD3.5-Medium"}[type(pipelines.load_pipeline(saved, device="cpu")).__name__]
    image, = pipelines.from_preset(kind, saved, device="cpu", **CALL)(["a person"], [1])
    assert image.size == (16, 16)
    with pytest.raises(ValueError, match="SDXL is a StableDiffusionXLPipeline"): pipelines.from_preset("SDXL", saved, device="cpu")


def test_half_precision_is_loaded_as_asked(saved):
    assert next(pipelines.load_pipeline(saved, dtype="bfloat16", device="cpu").vae.parameters()).dtype == torch.bfloat16


def test_a_missing_part_or_folder_is_named_with_the_licence(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="no model_index.json at .*nowhere; SDXL is published at .*RAIL"): pipelines.load_pipeline(tmp_path / "nowhere", preset="SDXL")
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", saved, broken], check=True)
    subprocess.run(["rm", "-r", broken / "vae"], check=True)
    with pytest.raises(FileNotFoundError, match="its part 'vae' is missing"): pipelines.load_pipeline(broken)


@pytest.mark.parametrize("preset", pipelines.PRESETS.values(), ids=pipelines.PRESETS)
def test_presets_name_a_class_and_arguments_that_diffusers_has(preset):
    import inspect
    known = inspect.signature(getattr(diffusers, preset["pipeline"]).__call__).parameters
    assert set(preset["call"]) <= set(known) and preset["licence"] and "/" in preset["weights"]


# Resume

CHILD = """
import os, signal, sys
import numpy as np
import pandas as pd
from fairical_nb.generators import generate
calls = []
def dying(prompts, seeds):
    calls.append(1)
    if len(calls) == 3: os.kill(os.getpid(), signal.SIGKILL)
    return [np.random.default_rng([s, len(p)]).integers(0, 256, (6, 6, 3), dtype=np.uint8) for p, s in zip(prompts, seeds)]
generate(dying, pd.read_json(sys.argv[2], dtype=str), sys.argv[1], model="toy", images_per_prompt=2, batch_size=1)
"""


def test_after_a_kill_only_what_is_missing_is_made(tmp_path):
    PROMPTS.to_json(tmp_path / "prompts.json")
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "a"), str(tmp_path / "prompts.json")], capture_output=True)
    assert done.returncode == -9, done.stderr
    assert len(albums.read_album(tmp_path / "a")) == 2
    made = []
    table = run(tmp_path / "a", lambda p, s: made.extend(s) or paint(p, s), settings={})
    whole = run(tmp_path / "b", settings={})
    assert len(made) == 4 and table["sha256"].tolist() == whole["sha256"].tolist()


@settings(max_examples=15)
@given(cut=st.integers(0, 2000), damaged=st.integers(0, 5))
def test_cut_anywhere_and_damaged_the_album_becomes_whole(tmp_path_factory, cut, damaged):
    folder = tmp_path_factory.mktemp("album")
    first = run(folder)
    path = folder / "manifest.csv"
    kept = path.read_bytes()[:cut]
    path.write_bytes(kept)
    (folder / first["image"][damaged]).write_bytes(b"x")
    made = []
    again = run(folder, lambda p, s: made.extend(s) or paint(p, s))
    pd.testing.assert_frame_equal(first, again)
    listed = sum(name.encode() in kept and sha.encode() + b"," in kept for name, sha in zip(first["image"], first["sha256"]))
    assert len(made) >= 6 - listed and len(made) <= 7 - max(0, listed - 1)
    assert run(folder, None)["state"].eq("ok").all()  # nothing is left to be made


def test_a_failed_image_is_on_record_and_made_on_the_next_run_from_another_shard(tmp_path):
    def refuses(prompts, seeds): raise ValueError("no\nwords")
    failed = run(tmp_path, refuses, settings={})
    assert failed["state"].eq("failed").all() and failed["error"].eq("ValueError: no words").all()
    mended = pd.concat([run(tmp_path, shard=(i, 2), settings={}) for i in range(2)])
    assert mended["state"].eq("ok").all()
    assert albums.read_album(tmp_path)["state"].eq("ok").all()
    albums.merge(tmp_path)
    assert sorted(albums.read_album(tmp_path)["image"]) == sorted(failed["image"])


def test_a_broken_model_is_given_up_and_said_so(tmp_path):
    with pytest.raises(generators.GenerationFailed, match="3 images in a row .* ZeroDivisionError"): run(tmp_path, lambda p, s: 1 / 0, patience=3, batch_size=3)
    assert len(albums.read_album(tmp_path, warn=False)) == 3


@settings(max_examples=25)
@given(n=st.integers(1, 9), per=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_shards_part_the_plan(n, per, seed):
    plan = generators.planned(PROMPTS, model="toy", images_per_prompt=per, seed=seed)
    parts = pd.concat([plan.iloc[i::n] for i in range(n)])
    assert sorted(parts["image"]) == sorted(plan["image"]) and plan["image"].is_unique


def test_more_shards_than_images(tmp_path):
    tables = [run(tmp_path, shard=(i, 8)) for i in range(8)]
    assert [len(t) for t in tables] == [1] * 6 + [0] * 2
    assert len(albums.read_album(tmp_path)) == 6


def test_two_processes_cannot_fill_one_shard(tmp_path):
    with albums.writing(tmp_path / "manifest.csv"):
        with pytest.raises(ValueError, match="another process is writing"): run(tmp_path)
        run(tmp_path, shard=(1, 2))  # another shard may


def test_what_decides_an_image_decides_its_name():
    one = generators.planned(PROMPTS, model="toy", settings={"guidance_scale": 4.5})["image"]
    for change in (dict(model="other"), dict(seed=1), dict(settings={"guidance_scale": 5})):
        other = generators.planned(PROMPTS, **({"model": "toy", "settings": {"guidance_scale": 4.5}} | change))["image"]
        assert not set(one) & set(other)
    said = PROMPTS.assign(prompt=PROMPTS["prompt"] + "!")
    assert not set(one) & set(generators.planned(said, model="toy", settings={"guidance_scale": 4.5})["image"])
    arrays = [generators.planned(PROMPTS, model="toy", settings={"sigmas": s})["image"][0] for s in (np.array([1, .5]), [1., .5], np.array([1, .25]))]
    assert arrays[0] == arrays[1] != arrays[2]


def test_seeds_do_not_depend_on_the_model_and_fit_every_library():
    plans = [generators.planned(PROMPTS, model=m, images_per_prompt=50)["seed"] for m in ("a", "b")]
    assert plans[0].tolist() == plans[1].tolist() and plans[0].between(0, 2**32 - 1).all() and plans[0].is_unique


def test_inputs_stay_as_they_were(tmp_path):
    before = PROMPTS.copy()
    run(tmp_path)
    pd.testing.assert_frame_equal(PROMPTS, before)


def test_an_album_of_somebody_else_is_read_and_its_gaps_are_named(tmp_path):
    Image.new("RGB", (3, 3)).save(tmp_path / "x.png")
    (tmp_path / "manifest.csv").write_text("image,prompt_id,trigger,model,gender\nx.png,1,,theirs,female\ny.png,2,poor,theirs,\n")
    with pytest.warns(albums.AlbumWarning, match=r"1 image\(s\) missing \(y.png\); of 2"): table = albums.read_album(tmp_path)
    assert table["state"].tolist() == ["unchecked", "missing"] and table["gender"].tolist() == ["female", ""]
    with pytest.raises(ValueError, match="was not written by us"): run(tmp_path)


def test_withheld_images_are_failures_and_not_black_pictures(tmp_path):
    class Checked:
        def __call__(self, prompt, generator, output_type):
            return type("O", (), {"images": [Image.new("RGB", (4, 4))] * len(prompt), "nsfw_content_detected": [True] + [False] * (len(prompt) - 1)})()
    table = run(tmp_path, generators.from_pipeline(Checked()), images_per_prompt=1)
    assert table["state"].tolist() == ["failed", "ok", "ok"] and "safety checker" in table["error"][0]


@pytest.mark.parametrize("image", [np.zeros((4, 4)), np.full((4, 4, 3), np.nan), np.full((4, 4, 3), 255.), "picture", None])
def test_what_is_no_picture_is_a_failure(tmp_path, image):
    table = run(tmp_path, lambda p, s: [image] * len(p), patience=0)
    assert table["state"].eq("failed").all() and not list(tmp_path.rglob("*.png"))


SHARE = """
import sys
from fairical_nb.generators import generate
table = generate(lambda p, s: [[[[.5, .5, .5]]]] * len(p), ["a", "b", "c", "d", "e"], sys.argv[1], model="toy", shard="process")
print(len(table), table["state"].eq("ok").all())
"""


def test_accelerate_gives_each_process_its_shard(tmp_path):
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + os.getpid() % 2000), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    children = [subprocess.Popen([sys.executable, "-c", SHARE, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=environment | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(2)]
    said = [c.communicate(timeout=180) for c in children]
    assert sorted(line for out, _ in said for line in out.strip().splitlines()[-1:]) == ["2 True", "3 True"], said
    assert sorted(p.name for p in tmp_path.glob("manifest*")) == ["manifest-0-of-2.csv", "manifest-1-of-2.csv"]


def test_a_model_without_seeds_leaves_the_random_states_alone():
    np.random.seed(4); torch.manual_seed(4)
    expected = np.random.rand(), torch.rand(1).item()
    np.random.seed(4); torch.manual_seed(4)
    generator = unified.one_by_one(lambda p: np.random.rand(2, 2, 3) * torch.rand(1).item())
    a, b = generator(["x", "x"], [1, 2])
    assert (np.random.rand(), torch.rand(1).item()) == expected
    assert not np.allclose(a, b) and np.allclose(generator(["x"], [1])[0], a)


@pytest.mark.parametrize("preset", ["SDXL", "SD1.5", "SANA-1.5"])
def test_presets_without_a_card_have_diffusers_own_settings(preset):
    "What the page says of these three, against the installed diffusers."
    import inspect

    import diffusers
    found = pipelines.PRESETS[preset]
    known = inspect.signature(getattr(diffusers, found["pipeline"]).__call__).parameters
    assert all(found["call"][k] == known[k].default for k in ("num_inference_steps", "guidance_scale"))


# What wrong code would have passed

@pytest.mark.parametrize("seed, prompt_id, replica", [(0, "p1", 0), (3, "p1", 2), (3, "t/2", 10), (-1, 7, 0)])
def test_the_seed_of_an_image_and_its_name_are_the_documented_digits_of_a_hash(seed, prompt_id, replica):
    s = int(hashlib.sha256(f"{seed}|{prompt_id}|{replica}".encode()).hexdigest()[:8], 16)
    assert generators.image_seed(seed, prompt_id, replica) == s
    plan = generators.planned(pd.DataFrame({"prompt_id": [prompt_id], "prompt": ["a"], "trigger": [""]}), model="m", images_per_prompt=replica + 1, seed=seed, settings={"b": 1, "a": 2})
    key = hashlib.sha256(json.dumps(["m", str(prompt_id), "a", s, '{"a": 2, "b": 1}']).encode()).hexdigest()[:16]
    assert plan["seed"].iloc[-1] == s and plan["image"].iloc[-1] == f"images/{str(prompt_id).replace('/', '_')}-{s}-{key}.png"


def test_a_list_of_texts_is_a_neutral_table_with_ids_from_0():
    assert generators.planned(["a", "b"], model="m")[["prompt_id", "prompt", "trigger"]].values.tolist() == [["p00000", "a", ""], ["p00001", "b", ""]]


def test_only_failures_in_a_row_exhaust_the_patience(tmp_path):
    every = lambda k: (lambda prompts, seeds, n=[0]: [n.__setitem__(0, n[0] + 1) or (RuntimeError("no") if n[0] % k else image) for image in paint(prompts, seeds)])
    table = run(tmp_path / "a", every(2), images_per_prompt=4, patience=2, batch_size=1)
    assert table["state"].tolist() == ["failed", "ok"] * 6
    with pytest.raises(generators.GenerationFailed, match="2 images in a row"): run(tmp_path / "b", every(3), images_per_prompt=4, patience=2, batch_size=1)


def test_usual_batches_are_of_8_and_20_failures_end_a_run_and_an_error_is_kept_to_300_signs(tmp_path):
    asked = []
    def fails(prompts, seeds): asked.append(len(prompts)); return [RuntimeError("x" * 1000)] * len(prompts)
    with pytest.raises(generators.GenerationFailed, match="24 images in a row"): run(tmp_path, fails, images_per_prompt=20)
    assert asked == [8, 8, 8] and albums.read_album(tmp_path, warn=False)["error"].str.len().eq(300).all()


def test_settings_that_are_given_even_none_of_them_stand_for_the_generators_own(tmp_path):
    def own(prompts, seeds): return paint(prompts, seeds)
    own.settings = {"steps": 3}
    names = [set(run(tmp_path / str(k), own, **s)["image"]) for k, s in enumerate(({}, {"settings": None}, {"settings": {"steps": 3}}, {"settings": {}}))]
    assert names[0] == names[1] == names[2] and not names[0] & names[3]


def test_a_half_written_file_of_another_shard_is_left_alone(tmp_path):
    plan = generators.planned(PROMPTS, model="toy", images_per_prompt=2)
    (tmp_path / "images").mkdir()
    half = [tmp_path / "images" / f".{Path(n).stem}.abc.png" for n in plan["image"]]
    for p in half: p.write_bytes(b"x")
    run(tmp_path, shard=(0, 2))
    assert [p.exists() for p in half] == [False, True] * 3


def test_every_argument_of_the_call_reaches_the_pipeline_with_a_seed_for_each_prompt():
    asked = {}
    class Pipe:
        def __call__(self, **call): asked.update(call); return type("O", (), {"images": ["image"] * len(call["prompt"])})()
    generator = generators.from_pipeline(Pipe(), negative_prompt="b", guidance_scale=2., height=8)
    assert generator(("x", "y"), [5, 6]) == ["image"] * 2 and [g.initial_seed() for g in asked.pop("generator")] == [5, 6]
    assert asked == dict(prompt=["x", "y"], output_type="pil", negative_prompt="b", guidance_scale=2., height=8)
    assert generator.settings == dict(pipeline="Pipe", scheduler="NoneType", negative_prompt="b", guidance_scale=2., height=8)


def test_an_album_without_hashes_is_a_generator_too(tmp_path):
    Image.new("RGB", (3, 3), (1, 2, 3)).save(tmp_path / "x.png")
    (tmp_path / "manifest.csv").write_text("image,prompt_id,prompt,trigger,seed,model\nx.png,1,a,,7,theirs\n")
    found = generators.from_album(tmp_path)(["a", "a"], [7, 8])
    assert found[0].getpixel((0, 0)) == (1, 2, 3) and isinstance(found[1], LookupError)


# Albums

def listed(folder, *rows, head="image,prompt_id,prompt,trigger,seed,model,sha256,error", name="manifest.csv"):
    (folder / name).write_text("\n".join([head, *rows]) + "\n")


def test_of_several_lines_of_an_image_the_last_good_one_counts_and_hashes_are_checked_unless_not_asked(tmp_path):
    Image.new("RGB", (3, 3)).save(tmp_path / "x.png")
    good, other = albums.digest(tmp_path / "x.png"), "0" * 64
    for lines, state in (((other, good), "ok"), ((good, other), "changed"), ((good.upper(),), "ok")):
        listed(tmp_path, *(f"x.png,1,a,,7,m,{s}," for s in lines), "x.png,1,a,,7,m,,late failure")
        assert albums.read_album(tmp_path, warn=False)["state"].tolist() == [state] and albums.read_album(tmp_path, check=False)["state"].tolist() == ["unchecked"]


@pytest.mark.parametrize("k, column", [(1, "prompt_id"), (2, "prompt"), (3, "trigger"), (4, "seed"), (5, "model")])
def test_an_image_of_two_origins_is_refused_whatever_differs(tmp_path, k, column):
    row = ["x.png", "1", "a", "poor", "7", "m", "", ""]
    listed(tmp_path, ",".join(row), ",".join([*row[:k], "8", *row[k + 1:]]))
    with pytest.raises(ValueError, match="two origins, first 'x.png'"): albums.read_album(tmp_path, warn=False)


def test_a_gap_of_many_names_the_first_three(tmp_path):
    listed(tmp_path, *(f"{k}.png,1,a,,{k},m,," for k in range(4)))
    with pytest.warns(albums.AlbumWarning, match=r"4 image\(s\) missing \(0.png, 1.png, 2.png, ...\); of 4"): albums.read_album(tmp_path)


def test_merged_parts_are_one_manifest_and_gone(tmp_path):
    for i in range(3): run(tmp_path, shard=(i, 3))
    before = albums.read_album(tmp_path)
    assert albums.merge(tmp_path) == tmp_path / "manifest.csv" and [p.name for p in tmp_path.glob("manifest*")] == ["manifest.csv"]
    pd.testing.assert_frame_equal(albums.read_album(tmp_path).sort_values("image", ignore_index=True), before.sort_values("image", ignore_index=True))


def test_a_line_is_on_the_disk_before_the_next_image_is_made(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(albums.os, "fsync", lambda f: synced.append(os.fstat(f).st_size))
    for k in range(3): albums.append(tmp_path / "manifest.csv", {"image": f"{k}.png"})
    assert len(synced) == 3 and synced[0] < synced[1] < synced[2] == (tmp_path / "manifest.csv").stat().st_size


@pytest.mark.parametrize("value, byte", [(0., 0), (.6 / 255, 1), (.999, 255), (254.4 / 255, 254), (1 + 1e-7, 255), (1.01, None), (-.01, None)])
def test_floats_become_the_nearest_byte_or_are_refused(value, byte):
    x = np.full((2, 2, 3), value)
    if byte is not None: assert albums.as_picture(x).getpixel((0, 0)) == (byte,) * 3
    else:
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"): albums.as_picture(x)


@pytest.mark.parametrize("options, sizes", [({}, [64, 6]), ({"size": 30}, [30, 30, 10])])
def test_pictures_come_in_batches_in_their_order(tmp_path, options, sizes):
    Image.new("RGB", (2, 2)).save(tmp_path / "x.png")
    table = pd.DataFrame({"image": ["x.png"] * 69 + ["y.png"], "k": range(70)})
    batches = list(albums.pictures(tmp_path, table, **options))
    assert [len(found) for _, found in batches] == sizes and [k for rows, _ in batches for k in rows["k"]] == list(range(70)) and isinstance(batches[-1][1][-1], FileNotFoundError)


@pytest.mark.parametrize("turn", [1, 3, 6, 8])
def test_a_picture_of_an_album_stands_upright(tmp_path, turn):
    image, exif = Image.fromarray(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)), Image.Exif()
    exif[0x0112] = turn
    image.save(tmp_path / "x.png", exif=exif)
    [(_, [found])] = albums.pictures(tmp_path, pd.DataFrame({"image": ["x.png"]}))
    assert np.array_equal(np.asarray(found), np.rot90(np.asarray(image), {1: 0, 3: 2, 6: -1, 8: 1}[turn]))


# Presets

MODEL_CARDS = {"Flux1-dev": (1024, 50, 3.5, "bfloat16"), "SANA-1.5": (1024, 20, 4.5, "bfloat16"), "SD3.5-Large": (1024, 28, 3.5, "bfloat16"), "SD3.5-Medium": (1024, 40, 4.5, "bfloat16"), "SDXL": (1024, 50, 5., "float16"), "SD1.5": (512, 50, 7.5, "float16")}
@pytest.mark.parametrize("preset", pipelines.PRESETS)
def test_settings_of_the_model_cards(preset):
    size, steps, guidance, dtype = MODEL_CARDS[preset]
    more = {"max_sequence_length": 512} if preset == "Flux1-dev" else {}
    assert pipelines.PRESETS[preset]["call"] == {"height": size, "width": size, "num_inference_steps": steps, "guidance_scale": guidance} | more and pipelines.PRESETS[preset]["dtype"] == dtype
    for device, want in (("cpu", "float32"), ("cuda", dtype), ("cuda:1", dtype), ("mps", dtype)): assert pipelines._dtype("auto", preset, device) == getattr(torch, want)
    assert pipelines._dtype("auto", None, "cuda") == torch.float32 and pipelines._dtype("float16", preset, "cpu") == torch.float16


def test_what_a_user_asks_for_replaces_the_presets_settings(monkeypatch):
    loaded = []
    monkeypatch.setattr(pipelines, "load_pipeline", lambda folder, **k: loaded.append((folder, k)) or "the pipeline")
    monkeypatch.setattr(pipelines, "from_pipeline", lambda pipe, **call: (pipe, call))
    assert pipelines.from_preset("SDXL", "here", dtype="float32", device="mps", offload=None, guidance_scale=1., width=64) == ("the pipeline", {"height": 1024, "width": 64, "num_inference_steps": 50, "guidance_scale": 1.})
    assert loaded == [("here", dict(preset="SDXL", dtype="float32", device="mps", offload=None))]


def test_parts_are_left_out_as_the_folder_says_and_put_in_as_asked(tmp_path, monkeypatch):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text("{}")
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "U"], "safety_checker": [None, None], "image_encoder": [None, None]}))
    asked = []
    monkeypatch.setattr(diffusers.AutoPipelineForText2Image, "from_pretrained", lambda folder, **k: asked.append((folder, k)) or torch.nn.Identity())
    pipelines.load_pipeline(tmp_path, device="cpu", safety_checker="mine", vae="other")
    assert asked == [(str(tmp_path), dict(local_files_only=True, dtype=torch.float32, safety_checker="mine", image_encoder=None, vae="other"))]


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("broken", [False, True])
def test_bars_are_afterwards_as_they_were(monkeypatch, shown, broken):
    from diffusers.utils import logging
    before = logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
    try:
        with pytest.raises(KeyError) if broken else contextlib.nullcontext(), pipelines.quietly():
            assert not logging.is_progress_bar_enabled() or sys.stderr.isatty()
            if broken: raise KeyError
        assert logging.is_progress_bar_enabled() == shown
    finally: (logging.enable_progress_bar if before else logging.disable_progress_bar)()


# Models with code of their own

def test_all_three_random_states_start_from_the_seed_and_come_back():
    drawn = lambda: (random.random(), np.random.rand(), torch.rand(1).item())
    def at(seed):
        with unified.seeded(seed): return drawn()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    first = drawn()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    a, b, c = at(3), at(3), at(4)
    assert a == b and all(x != y for x, y in zip(a, c)) and drawn() == first


@pytest.mark.parametrize("options, cfg, steps, side", [({}, 3., 64, 32), (dict(cfg=1, num_iter=5, image_size=64), 1, 5, 4), (dict(cfg=.5, image_size=16), .5, 64, 1)])
def test_harmon_is_asked_as_its_authors_do(options, cfg, steps, side):
    asked = {}
    class Tokens(dict):
        def to(self, device): return Tokens(self, device=device)
    class Model:
        prompt_template, device = {"INSTRUCTION": "<{input}>"}, "there"
        def tokenizer(self, texts, **k): return Tokens(texts=texts)
        def sample(self, **k): asked.update(k); return torch.arange(-3, 3.).reshape(1, 3, 1, 2) / 2
    image = unified.harmon(Model(), **options)([" a person "], [0])[0]
    said = ["<Generate an image: a person.>"] + ["<Generate an image.>"] * (cfg != 1)
    assert asked == dict(texts=said, device="there", num_iter=steps, cfg=cfg, progress=False, image_shape=(side, side), temperature=1., cfg_schedule="constant")
    np.testing.assert_allclose(image, [[[0, .25, .75], [0, .5, 1]]])  # height 1, width 2, colours; clipped


def test_blip3o_and_bagel_hand_on_what_they_are_given():
    asked = []
    pipe = lambda prompts, **k: asked.append((prompts, k)) or type("O", (), {"image": "image"})()
    for options in ({}, {"guidance_scale": 1.5, "steps": 4}):
        generator = unified.blip3o(pipe, lambda text: f"<{text}>", **options)
        assert generator(["x"], [0]) == ["image"] and generator.settings == {"model": "Blip3-o", "guidance_scale": 3.} | options
    assert asked == [(["<Please generate image based on the following caption: x>"], k) for k in ({"guidance_scale": 3.}, {"guidance_scale": 1.5, "steps": 4})]
    found = unified.bagel(lambda text, **k: {"image": (text, k)} if text else {"image": None}, think=True)(["x", ""], [0, 1])
    assert found[0] == ("x", {"think": True}) and "without an image" in str(found[1])


@pytest.mark.parametrize("options, guided", [({}, True), ({"guidance_scale": .5}, True), ({"guidance_scale": 0}, False)])
def test_showo_is_asked_as_its_authors_do(options, guided):
    from types import SimpleNamespace as Of
    asked, masks, codes = {}, [], []
    prompting = lambda given, task: (torch.tensor([[len(given[0][0]), *given[1][0].tolist()]]), task)
    prompt = type("P", (), {"sptids_dict": {"<|pad|>": 1, "<|soi|>": 2, "<|eoi|>": 3}, "__call__": lambda self, *a: prompting(*a)})()
    model = Of(config=Of(mask_token_id=9), t2i_generate=lambda **k: asked.update(k) or torch.tensor([[-1, 5, 12]]))
    vq = Of(decode_code=lambda ids: codes.append(ids.tolist()) or torch.zeros(1, 3, 2, 2))
    config = Of(model=Of(showo=Of(num_vq_tokens=2, codebook_size=8)))
    attention = lambda ids, **k: masks.append((ids.tolist(), k)) or "mask"
    generator = unified.showo(model, vq, prompt, attention, "cosine", config, device="cpu", **options)
    assert np.allclose(generator(["abc"], [0])[0], .5) and codes == [[[0, 5, 7]]]
    ids, empty = [[3, 9, 9]], [[0, 9, 9]]
    assert masks == [(ids + (empty if guided else []), dict(rm_pad_in_image=True, pad_id=1, soi_id=2, eoi_id=3))]
    assert asked["input_ids"].tolist() == ids and (asked["uncond_input_ids"].tolist() == empty if guided else asked["uncond_input_ids"] is None) and asked["attention_mask"] == "mask"
    want = dict(guidance_scale=5., timesteps=50, temperature=1.) | options
    assert {k: asked[k] for k in (*want, "noise_schedule", "noise_type", "seq_len")} == want | dict(noise_schedule="cosine", noise_type="mask", seq_len=2) and generator.settings == {"model": "Show-o"} | want
