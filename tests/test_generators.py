"Albums and generators: nothing is lost by a kill, nothing is made twice, and a real pipeline goes the same way as a stand-in."
import os
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
