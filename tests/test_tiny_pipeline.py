"The glyph world, the tiny pipelines' parts, losses and weights: laws, hand-made twins, and that the committed weights come from this code."
import hashlib
import re
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from hypothesis import given, settings, strategies as st  # noqa: E402

from fairical_nb import tiny_parts_training, tiny_pipeline, tiny_sd15  # noqa: E402
from fairical_nb.attributes import TAXONOMY  # noqa: E402
from fairical_nb.entropy import entropy  # noqa: E402
from fairical_nb.files import read_json, root  # noqa: E402
from fairical_nb.glyph_labellers import LOOK, SEEDS, Judge, accuracy, agreement, clear, lessons, load_judge, save_judge  # noqa: E402
from fairical_nb.glyph_world import WORLD, captions, examples, pictured, truth  # noqa: E402
from fairical_nb.labelling import Labeller  # noqa: E402
from fairical_nb.standins_glyphs import draw_labels, portraits  # noqa: E402
from fairical_nb.tiny_audit import audit_plan, shown_colours, write_card  # noqa: E402
from fairical_nb.tiny_parts import merges, new_pipeline, text_encoder, tokenizer  # noqa: E402
from fairical_nb.tiny_parts_training import KL, Flow, between, decoded, encoded, fit_flow, fit_vae, flow_loss, reconstructed, texture_loss  # noqa: E402

PARTS = ("tiny_sd3", "tiny_labeller", "tiny_judge")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def pipe():
    return tiny_pipeline.load()


@pytest.fixture(scope="module")
def made():
    return read_json(tiny_pipeline.weights("tiny_sd3") / "training.json")


# The world

def test_shares_are_distributions():
    for shares in WORLD.values():
        assert list(shares) == list(TAXONOMY)
        for a, p in shares.items():
            assert len(p) == len(TAXONOMY[a]) and min(p) > 0 and sum(p) == pytest.approx(1)


def test_truth_is_the_geometric_mean_of_entropies():
    found = truth()
    g = {c: np.prod([entropy(p) for p in shares.values()]) ** (1 / 3) for c, shares in WORLD.items()}
    assert found.ID == pytest.approx(g.pop(""))
    two = sorted(g.values())[:2]
    assert found.CA == pytest.approx(two[0] + .8 * (two[1] - two[0]))
    assert found.MGBI == pytest.approx((found.ID * found.CA) ** .5)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 60))
def test_examples_are_repeatable_and_obey_their_captions(seed, n):
    table = captions()
    one, two = examples(n, seed=seed, table=table), examples(n, seed=seed, table=table)
    assert one.equals(two) and len(one) == n
    said = table.set_index("prompt").loc[one["prompt"], "colour"].to_numpy()
    assert ((said == "") | (said == one["colour"].to_numpy())).all()


def test_examples_have_the_shares_of_their_context():
    many = examples(30_000, seed=1, table=captions(contexts=["successful", "poor"]))
    for context, rows in many.groupby("trigger"):
        for a, classes in TAXONOMY.items():
            seen = np.array([(rows[a] == c).mean() for c in classes])
            wide = 4.5 * np.sqrt(np.array(WORLD[context][a]) * (1 - np.array(WORLD[context][a])) / len(rows))
            assert (abs(seen - WORLD[context][a]) <= wide).all(), (context, a)


def test_evaluation_captions_are_not_trained_on():
    assert not set(captions(split="eval")["prompt"]) & set(captions(split="train")["prompt"])
    assert not set(captions(split="eval")["prompt"]) & set(examples(5000, seed=SEEDS["examples"])["prompt"])


# Labellers

def test_no_two_pupils_share_a_picture():
    prints = {k: {hashlib.sha256(x.tobytes()).hexdigest() for x in portraits(draw_labels(150, seed=s), seed=s, **LOOK)} for k, s in SEEDS.items()}
    names = list(prints)
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            assert not prints[a] & prints[b], (a, b)


def test_labellers_read_unseen_portraits_and_reconstructions(pipe):
    data = lessons(300, seed=SEEDS["test"])
    back = {**data, "image": reconstructed(pipe.vae, data["image"])}
    for labeller in (tiny_pipeline.labeller(), tiny_pipeline.judge()):
        assert accuracy(labeller, data)["all"] >= .97 and accuracy(labeller, back)["all"] >= .95


def test_labellers_are_of_different_kinds():
    kinds = [{type(m) for m in labeller.net.modules()} for labeller in (tiny_pipeline.labeller(), tiny_pipeline.judge())]
    assert torch.nn.Conv2d in kinds[1] and type(tiny_pipeline.labeller().net) is not type(tiny_pipeline.judge().net)


def test_judge_comes_back(tmp_path):
    judge = Labeller(Judge(seed=3), flip=False)
    save_judge(judge, tmp_path)
    again, x = load_judge(tmp_path), lessons(8, seed=1)["image"]
    a, b = (j.label(x, probabilities=True).filter(like="=").to_numpy(float) for j in (judge, again))
    assert np.abs(a - b).max() < .01
    (tmp_path / "config.json").write_text('{"kind": "other"}')
    with pytest.raises(ValueError, match="not a judge's"):
        load_judge(tmp_path)


def test_clear_needs_all_attributes():
    class Half:
        attributes = {"gender": ("female", "male"), "age": ("young", "old")}

        def label(self, images, *, probabilities=False):
            import pandas as pd
            return pd.DataFrame({"gender=female": [.95, .95, .5], "gender=male": [.05, .05, .5], "age=young": [.9, .6, 1.], "age=old": [.1, .4, 0.]})
    assert clear(Half(), None).tolist() == [True, False, False]


def test_undetermined_agrees_with_nothing():
    import pandas as pd
    table = pd.DataFrame({"gender": ["female", None]}, dtype=object)
    assert agreement(table, table, attributes=["gender"]) == .5


# Parts

@settings(max_examples=20)
@given(st.lists(st.text("abc ", min_size=1, max_size=8), min_size=1, max_size=5))
def test_merges_make_each_word_one_token(texts):
    words = [w for t in texts for w in t.lower().split()]
    pairs = merges(texts)
    assert pairs == merges(list(texts))
    for w in words:
        letters = [*w[:-1], w[-1] + "</w>"]
        for left, right in pairs:
            i = 0
            while i < len(letters) - 1:
                if letters[i] == left and letters[i + 1] == right:
                    letters[i:i + 2] = [left + right]
                i += 1
        assert letters == [w + "</w>"]


def test_tokenizer_covers_captions_in_sixteen_tokens():
    tok = tokenizer()
    for prompt in captions()["prompt"]:
        ids = tok(prompt).input_ids
        assert len(ids) == len(prompt.split()) + 2 <= 16


def test_tokenizer_comes_back_equal(tmp_path):
    from transformers import CLIPTokenizer
    tok = tokenizer()
    tok.save_pretrained(tmp_path)
    again = CLIPTokenizer.from_pretrained(tmp_path)
    for prompt in captions()["prompt"].iloc[::25]:
        assert again(prompt).input_ids == tok(prompt).input_ids


def test_text_encoder_reads_up_to_its_end():
    "What stands after the end of the text does not change what stands before it."
    tok = tokenizer()
    encoder = text_encoder(tok, seed=0)
    one, two = (torch.tensor([tok("a photo of a person", padding="max_length").input_ids]) for _ in range(2))
    two[0, -1] = 5
    with torch.no_grad():
        a, b = (encoder(x, output_hidden_states=True) for x in (one, two))
    assert torch.equal(a.hidden_states[-2][:, :-1], b.hidden_states[-2][:, :-1]) and torch.equal(a[0], b[0])


def test_random_weights_leave_torchs_numbers_alone():
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    new_pipeline(seed=1)
    assert torch.equal(torch.rand(3), first)


def test_pipelines_of_two_seeds_share_no_weights():
    a, b = new_pipeline(seed=0), new_pipeline(seed=1)
    assert not torch.equal(a.text_encoder.text_projection.weight, a.text_encoder_2.text_projection.weight)
    for part in ("transformer", "vae", "text_encoder", "text_encoder_2"):
        pairs = zip(getattr(a, part).parameters(), getattr(b, part).parameters())
        assert any(not torch.equal(p, q) for p, q in pairs), part


def test_changes_reach_their_part_and_the_tokenizer_its_length():
    pipe = new_pipeline(scheduler=dict(shift=3.), transformer=dict(num_layers=2), vae=dict(scaling_factor=.5), text=dict(num_hidden_layers=1))
    assert (pipe.scheduler.config.shift, pipe.transformer.config.num_layers, pipe.vae.config.scaling_factor) == (3., 2, .5)
    assert [e.config.num_hidden_layers for e in (pipe.text_encoder, pipe.text_encoder_2)] == [1, 1]
    short = tokenizer(["a photo of a person"], length=5)
    assert len(short("a photo of a person", truncation=True).input_ids) == 5 == text_encoder(short, seed=0).config.max_position_embeddings


# Losses

@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_texture_loss_against_loops(seed):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.rand(2, 3, 4, 5, generator=g).double(), torch.rand(2, 3, 4, 5, generator=g).double()
    d = (a - b).numpy()
    across = np.mean([abs(d[..., j + 1] - d[..., j]).mean() for j in range(4)])
    down = np.mean([abs(d[..., i + 1, :] - d[..., i, :]).mean() for i in range(3)])
    assert texture_loss(a, b, coarse=0).item() == pytest.approx((d ** 2).mean() + abs(d).mean() + across + down)


def test_between_ends_at_latent_and_noise():
    x, e = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    assert torch.equal(between(x, e, torch.tensor([0., 1.])), torch.stack([x[0], e[1]]))


def test_flow_loss_of_the_exact_velocity_is_zero():
    "On a single latent at 0 the velocity is x / sigma: a network that knows it has no loss left."
    class Exact(torch.nn.Module):
        dropout, empty = .1, torch.zeros(1, 16, dtype=torch.long)

        def forward(self, x, sigma, ids):
            return x / sigma.view(-1, 1, 1, 1)
    batch = {"latent": torch.zeros(8, 2, 4, 4), "ids": torch.ones(8, 16, dtype=torch.long)}
    assert flow_loss(Exact(), batch).item() < 1e-10


def test_flow_shares_the_pipelines_parts():
    pipe = new_pipeline()
    flow = Flow(pipe)
    assert flow.transformer is pipe.transformer and flow.encoders[1] is pipe.text_encoder_2
    assert not any(p.data_ptr() == q.data_ptr() for p in flow.parameters() for q in pipe.vae.parameters())


def test_scaled_latents_come_back(pipe):
    x = torch.from_numpy(pictured(examples(6, seed=9), seed=9)).permute(0, 3, 1, 2)
    z = encoded(pipe.vae, x)
    assert (decoded(pipe.vae, z) - x).abs().mean() < .05
    assert torch.allclose(encoded(pipe.vae, x, batch_size=2), z, atol=1e-4)


# Audit

def test_plan_is_stable_when_it_grows():
    small, large = audit_plan(neutral=10, per_trigger=7), audit_plan(neutral=30, per_trigger=21)
    kept = large.merge(small)
    assert len(kept) == len(small) and large["seed"].nunique() == len(large)


def test_colours_are_read_through_the_autoencoder(pipe):
    labels = draw_labels(120, seed=4)
    x = reconstructed(pipe.vae, portraits(labels, seed=4, **LOOK))
    assert (shown_colours(x) == labels["colour"]).mean() > .97


def test_cards_need_limits(tmp_path):
    with pytest.raises(ValueError, match="Limitations"):
        write_card(tmp_path, "x", {"Out-of-scope use": "All."})


# The committed weights

def test_committed_weights_are_small_and_half():
    from safetensors.torch import load_file
    files = [f for name in PARTS for f in tiny_pipeline.weights(name).rglob("*.safetensors")]
    assert len(files) == 6 and sum(f.stat().st_size for name in PARTS for f in tiny_pipeline.weights(name).rglob("*") if f.is_file()) < 4e6
    for f in files:
        assert {t.dtype for t in load_file(f).values() if t.is_floating_point()} == {torch.float16}, f


@pytest.mark.parametrize("name", PARTS)
def test_cards_say_what_not_to_do(name):
    text = (tiny_pipeline.weights(name) / "README.md").read_text(encoding="utf-8")
    for heading in ("## Out-of-scope use", "## Limitations"):
        assert len(text.partition(heading)[2].partition("\n## ")[0].strip()) > 40, heading


def test_committed_configuration_is_that_of_the_code(pipe):
    fresh = new_pipeline(seed=0)
    for part in ("transformer", "text_encoder", "text_encoder_2"):
        mine, theirs = ({k: v.shape for k, v in getattr(p, part).state_dict().items()} for p in (fresh, pipe))
        assert mine == theirs, part
    assert fresh.tokenizer.get_vocab() == pipe.tokenizer.get_vocab()


class Enough(Exception):
    "The first steps have been taken."


def first_losses(monkeypatch, name, n, run, module=tiny_parts_training):
    "The first `n` losses of a training stage that would go on much longer."
    seen, loss = [], getattr(module, name)

    def counted(model, batch):
        if len(seen) == n:
            raise Enough
        value = loss(model, batch)
        seen.append(float(value.detach()))
        return value
    monkeypatch.setattr(module, name, counted)
    with pytest.raises(Enough):
        run()
    return seen


def test_first_losses_of_the_autoencoder_are_those_recorded(monkeypatch, made):
    seed, steps = SEEDS["autoencoder"], made["stages"]["autoencoder"]["steps"]
    x = pictured(draw_labels(8000, seed=seed), seed=seed)
    found = first_losses(monkeypatch, "vae_loss", 5, lambda: fit_vae(new_pipeline(made["seed"]).vae, x, steps=steps, seed=made["seed"]))
    assert found == pytest.approx(made["stages"]["autoencoder"]["first"][:5], rel=1e-3)


def test_first_losses_of_the_flow_are_those_recorded(monkeypatch, made, pipe):
    "The latents come from the committed autoencoder in half precision, so within a hundredth. Only the rows of the first steps are drawn and encoded."
    from fairical_nb.recipes import Recipe
    from fairical_nb.training import epoch_rows
    seed, n, steps = SEEDS["examples"], made["examples"], made["stages"]["flow"]["steps"]
    table, fresh = examples(n, seed=seed), new_pipeline(made["seed"])
    rows = epoch_rows(n, Recipe(steps=steps, batch_size=64, seed=made["seed"]), 0)[:4 * 64]
    latent = torch.zeros(n, 8, 8, 8)
    latent[rows] = encoded(pipe.vae, pictured(table, seed=seed)[rows])
    monkeypatch.setattr(tiny_parts_training, "encoded", lambda vae, images: latent)
    found = first_losses(monkeypatch, "flow_loss", 4, lambda: fit_flow(fresh, table["prompt"], None, steps=steps, seed=made["seed"]))
    assert found == pytest.approx(made["stages"]["flow"]["first"][:4], rel=1e-2)


def test_committed_weights_have_the_losses_that_training_ended_with(made, pipe):
    "On pictures of the training's own kind: examples that it saw; on new ones the flow's loss is higher."
    table = examples(made["examples"], seed=SEEDS["examples"])
    pictures, table = pictured(table, seed=SEEDS["examples"])[:512], table.iloc[:512]
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        flow = Flow(pipe)
        batch = {"latent": encoded(pipe.vae, pictures), "ids": flow.tokens(table["prompt"])}
        seen = np.mean([flow_loss(flow, batch).item() for _ in range(3)])
        x = 2 * torch.from_numpy(pictures[:256]).permute(0, 3, 1, 2) - 1
        found = pipe.vae.encode(x).latent_dist
        back = texture_loss(pipe.vae.decode(found.sample()).sample, x).item() + KL * found.kl().mean().item()
    assert seen == pytest.approx(made["stages"]["flow"]["means"][-1], rel=.06)
    assert back == pytest.approx(made["stages"]["autoencoder"]["means"][-1], rel=.1)


def test_pictures_are_repeatable_and_half_precision_hardly_moves_them(pipe):
    prompts, seeds = ["a photo of a gentle person"] * 3, [1, 2, 3]
    one = tiny_pipeline.sample(pipe, prompts, seeds)
    assert torch.equal(one, tiny_pipeline.sample(pipe, prompts, seeds))
    alone = torch.cat([tiny_pipeline.sample(pipe, [p], [s]) for p, s in zip(prompts, seeds)])
    assert (alone - one).abs().max() < 2e-3
    with pytest.raises(ValueError, match="3 prompts and 2 seeds"):
        tiny_pipeline.sample(pipe, prompts, seeds[:2])


def test_missing_weights_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="tiny_pipeline.train"):
        tiny_pipeline.load(tmp_path / "none")


def test_training_resumes_with_the_same_losses(tmp_path):
    few, some = (dict.fromkeys(tiny_pipeline.STEPS, k) for k in (2, 64))
    whole = tiny_pipeline.train(3, tmp_path / "a", steps=few, n=some)
    again = tiny_pipeline.train(3, tmp_path / "a", steps=few, n=some)
    for stage in few:
        assert whole[stage].steps["loss"].tolist() == again[stage].steps["loss"].tolist()
    for name in PARTS:
        assert (tmp_path / "a" / name / "README.md").is_file() or name != "tiny_labeller"


def test_kept_cards_are_what_the_code_writes_of_their_numbers_and_the_weights_stay(tmp_path):
    kept = root() / "nbs" / "weights"
    for name in ("tiny_sd3", "tiny_labeller", "tiny_judge", "tiny_sd15"):
        shutil.copytree(kept / name, tmp_path / name)
    numbers = {name: {k: float(v) if "." in v else int(v) for k, v in re.findall(r"^- ([\w ]+): ([\d.]+)$", (kept / name / "README.md").read_text(), re.M)} for name in ("tiny_sd3", "tiny_labeller", "tiny_judge", "tiny_sd15")}
    tiny_pipeline.write_cards(tmp_path, numbers["tiny_sd3"], {"labeller": numbers["tiny_labeller"], "judge": numbers["tiny_judge"]})
    tiny_sd15.write_cards(tmp_path / "tiny_sd15", numbers["tiny_sd15"])
    for path in (p for p in tmp_path.rglob("*") if p.is_file()):
        assert path.read_bytes() == (kept / path.relative_to(tmp_path)).read_bytes(), path.name
    assert "Not measured" not in (kept / "tiny_labeller" / "README.md").read_text()


# What wrong code would have passed: the world and its lessons

WORLD_BY_HAND = {"": "74 26|13 70 17|68 13 8 6 5", "aggressive": "3 97|7 86 7|5 85 4 3 3", "compassionate": "84 16|14 56 30|20 10 12 8 50", "gentle": "88 12|30 50 20|36 10 12 8 34", "intelligent": "22 78|10 60 30|42 6 22 6 24", "poor": "40 60|20 50 30|8 42 34 10 6",
                 "professional": "10 90|7 84 9|10 5 7 5 73", "successful": "5 95|5 86 9|5 4 3 4 84", "trustworthy": "34 66|8 64 28|12 12 8 8 60", "unprofessional": "36 64|62 32 6|8 52 18 12 10"}


@pytest.mark.parametrize("context", WORLD)
def test_the_worlds_shares_are_those_on_record(context):
    np.testing.assert_allclose(np.concatenate(list(WORLD[context].values())), [int(p) / 100 for p in WORLD_BY_HAND[context].replace("|", " ").split()])


@pytest.mark.parametrize("split, n", [("train", 4), ("eval", 1), (None, 5)])
def test_captions_of_a_split_are_its_templates_times_contexts_times_colours(split, n):
    table = captions(split=split)
    assert len(table) == n * len(WORLD) * 7 and table["prompt"].is_unique and set(table["split"]) == ({split} if split else {"train", "eval"})


@pytest.mark.parametrize("given, share", [({}, .5), ({"named": .2}, .2), ({"named": 0}, 0), ({"table": captions(split="eval")}, 0), ({"table": captions(split="eval"), "named": 1.}, 1)])
def test_as_many_captions_name_classes_as_asked_and_one_class_most_often(given, share):
    rows = examples(4000, seed=3, **given)
    plain = set(captions()["prompt"])
    named = rows[~rows["prompt"].isin(plain)]
    assert abs(len(named) / len(rows) - share) < (.035 if 0 < share < 1 else 1e-9)
    if not len(named): return
    words = {c.lower(): (a, c) for a, classes in TAXONOMY.items() for c in classes}
    said = [[words[w] for w in p.split() if w in words and w not in WORLD] for p in named["prompt"].str.partition(" on ")[0]]
    assert all(row[a] == c for found, (_, row) in zip(said, named.iterrows()) for a, c in found)
    counts = np.bincount([len(s) for s in said], minlength=4)[1:] / len(said)
    np.testing.assert_allclose(counts, [.6, .2, .2], atol=.06)


def test_labels_of_two_contexts_are_drawn_apart_and_colours_differ_from_seed_to_seed():
    one = examples(400, seed=5, table=captions(contexts=["professional", "professional"], colours=[""]))
    two, other = (examples(400, seed=s, table=captions(contexts=["professional"], colours=[""])) for s in (5, 6))
    assert len(one) == 400 and (two["colour"] != other["colour"]).mean() > .6
    from fairical_nb import glyph_world
    table = captions(contexts=["aggressive", "successful"], colours=[""], split="eval")
    labels = glyph_world._drawn(table.iloc[[0] * 300 + [1] * 300].reset_index(drop=True), 0)
    assert (labels["gender"][:300].to_numpy() != labels["gender"][300:].to_numpy()).sum() > 5  # shares nearly equal, draws of their own: about 23 of 300 differ


def test_pictures_follow_their_seed():
    table = examples(3, seed=0)
    a, b, c = (pictured(table, seed=s) for s in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c) and np.array_equal(a, portraits(table, seed=1, **LOOK))


def test_the_second_half_of_a_lesson_goes_through_and_the_first_does_not():
    plain, changed = lessons(7, seed=2), lessons(7, seed=2, through=lambda x: 1 - x)
    assert torch.equal(changed["image"], torch.cat([plain["image"][:3], 1 - plain["image"][3:]])) and torch.equal(changed["code"], plain["code"])


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("kind, n, lr, start", [("judge", 4000, 3e-3, 1000), ("labeller", 6000, 2e-3, 0)])
def test_each_pupil_has_lessons_weights_and_order_of_its_own(monkeypatch, seed, kind, n, lr, start):
    from fairical_nb import glyph_labellers
    asked = []
    monkeypatch.setattr(glyph_labellers, "lessons", lambda n, **k: ("lessons", n, k))
    monkeypatch.setattr(glyph_labellers, "fit", lambda model, loss, data, **k: asked.append((model, data, k)) or "history")
    labeller, history = getattr(glyph_labellers, f"train_{kind}")(seed, folder="here")
    [(model, data, options)] = asked
    assert data == ("lessons", n, dict(seed=SEEDS[kind] + 1000 * seed, through=None)) and history == "history" and labeller.flip is False
    assert options == dict(batch_size=64, lr=lr, schedule="one_cycle", seed=start + seed, steps=200, folder="here")
    twin = Judge(seed=1000 + seed) if kind == "judge" else glyph_labellers.SpaFreq(TAXONOMY, seed=seed)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values()))


def test_a_lesson_is_noisy_and_asks_for_every_attribute():
    from fairical_nb import glyph_labellers
    seen, code = [], torch.tensor([[0, 1], [1, 2], [1, 0]])
    logits = {"gender": torch.randn(3, 2), "age": torch.randn(3, 3)}
    loss = glyph_labellers._loss(lambda x: seen.append(x) or logits, {"image": torch.full((3, 3, 64, 64), .5), "code": code})
    assert (seen[0] - .5).std().item() == pytest.approx(.03, rel=.03) and glyph_labellers.NOISE == .03
    assert loss.item() == pytest.approx(-sum(torch.log_softmax(z, 1)[torch.arange(3), code[:, k]].mean().item() for k, z in enumerate(logits.values())), rel=1e-5)


def test_accuracy_counts_each_attribute_and_all_at_once_and_clear_begins_at_nine_tenths():
    import pandas as pd
    class Says:
        attributes = {"gender": ("female", "male"), "age": ("young", "old")}
        def label(self, images, probabilities=False): return pd.DataFrame({"gender": ["female", "male", "male", None], "age": ["old", "old", "young", "old"], "gender=female": [.9, .89, 1., .9], "gender=male": [.1, .11, 0., .1], "age=young": [.1, .05, .9, .85], "age=old": [.9, .95, .1, .15]})
    found = accuracy(Says(), {"image": None, "code": torch.tensor([[0, 1], [1, 0], [0, 0], [1, 1]])})
    assert found.to_dict() == {"gender": .5, "age": .75, "all": .25} and clear(Says(), None).tolist() == [True, False, True, False]
