"The training loop: resumed to the last bit, accumulated like one batch, stopped by NaN, the best kept."
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.checkpoints import load_checkpoint, restore_rng, rng_state, save_checkpoint
from fairical_nb.images import as_images
from fairical_nb.optimisers import chosen, exchanged, follow, make_optimiser, make_schedule
from fairical_nb.recipes import Recipe, epoch_rows, tensors
from fairical_nb.training import fit

torch.set_num_threads(1)
DRAW = np.random.default_rng(0)
DATA = {"x": DRAW.normal(size=(40, 3)).astype("float32"), "y": DRAW.integers(0, 2, 40)}


class Killed(BaseException):
    "Not an Exception: nothing may catch it."


def network(seed=0):
    "The same small network with dropout and batch norm each time."
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(.3), torch.nn.Linear(8, 2))


def loss(model, batch):
    return torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def killed_at(k):
    "The loss, whose k-th call is the end."
    calls = []

    def wrapped(model, batch):
        calls.append(1)
        if len(calls) == k:
            raise Killed
        return loss(model, batch)
    return wrapped


def score(model):
    torch.rand(3)  # must not disturb the training
    return -loss(model, {"x": torch.tensor(DATA["x"]), "y": torch.tensor(DATA["y"])}).item()


def noisy(batch):
    return {**batch, "x": batch["x"] + .1 * torch.randn_like(batch["x"])}


def state(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


FOUR = dict(steps=4, batch_size=8, augment=noisy, every=2, lr=.05, seed=3, progress=False)
KINDS = {"plain": {}, "cosine": dict(schedule="cosine", warmup=1), "one cycle": dict(schedule="one_cycle"), "plateau": dict(schedule="plateau", validate=score),
         "sgd": dict(optimiser="sgd"), "average": dict(ema=.5), "average and best": dict(ema=.5, validate=score),
         "accumulated": dict(accumulate=2), "weights": dict(sampler=np.arange(40)), "bfloat16": dict(precision="bfloat16")}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_resume_bit_for_bit(options, tmp_path):
    "Acceptance case 12: 4 steps = 2 + save + load + 2."
    options = {**FOUR, **options}
    whole = network()
    one = fit(whole, loss, DATA, **options)
    with pytest.raises(Killed):
        fit(network(), killed_at(2 * options.get("accumulate", 1) + 1), DATA, folder=tmp_path, **options)
    torch.rand(5)  # another process would have other random numbers
    again = network(seed=9)
    two = fit(again, loss, DATA, folder=tmp_path, **options)
    assert equal(state(whole), state(again))
    assert one.table.equals(two.table) and one.steps.equals(two.steps) and one.best == two.best


def test_without_its_parts_a_resumed_run_differs(tmp_path):
    "The test above can fail: leave the optimiser, the average or the random numbers out of the file."
    options = {**FOUR, "ema": .5}
    whole = network()
    fit(whole, loss, DATA, **options)
    for part in ("optimiser", "rng", "average"):
        with pytest.raises(Killed):
            fit(network(), killed_at(3), DATA, folder=tmp_path / part, **options)
        kept = load_checkpoint(tmp_path / part / "checkpoint.pt")
        kept[part] = {"optimiser": {**kept["optimiser"], "state": {}}, "rng": rng_state(), "average": kept["tensors"]}[part]
        save_checkpoint(tmp_path / part / "checkpoint.pt", kept)
        again = network()
        fit(again, loss, DATA, folder=tmp_path / part, **options)
        assert not equal(state(whole), state(again)), part


def test_two_then_four_steps_are_four(tmp_path):
    "Where the schedule allows it, a finished run goes on."
    whole, parts = network(), network()
    fit(whole, loss, DATA, **FOUR)
    fit(parts, loss, DATA, **{**FOUR, "steps": 2}, folder=tmp_path)
    fit(parts, loss, DATA, **FOUR, folder=tmp_path)
    assert equal(state(whole), state(parts))


def test_a_finished_run_does_nothing_and_comes_back(tmp_path):
    model, again = network(), network(seed=5)
    one = fit(model, loss, DATA, validate=score, folder=tmp_path, **FOUR)
    two = fit(again, killed_at(1), DATA, validate=score, folder=tmp_path, **FOUR)
    assert equal(state(model), state(again)) and one.table.equals(two.table)


def test_checkpoint_of_another_run_is_refused(tmp_path):
    fit(network(), loss, DATA, folder=tmp_path, **FOUR)
    for change in (dict(lr=.1), dict(seed=4), dict(ema=.9), dict(batch_size=4)):
        with pytest.raises(ValueError, match=f"another run: {next(iter(change))} was"):
            fit(network(), loss, DATA, folder=tmp_path, **{**FOUR, **change})
    fit(network(), loss, DATA, folder=tmp_path, resume=False, **{**FOUR, "lr": .1})


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 3))
def test_accumulation_equals_the_big_batch(size, accumulate, steps):
    "For SGD, also where the last batch is shorter."
    x = torch.tensor(DATA["x"][:11], dtype=torch.float64)
    data = {"x": x, "y": x.sum(1)}

    def train(**options):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1).double()
        fit(model, lambda m, b: (m(b["x"])[:, 0] - b["y"]).pow(2).mean(), data, steps=steps, optimiser="sgd", lr=.05, clip=1., progress=False, **options)
        return model.weight.detach()
    assert torch.allclose(train(batch_size=size, accumulate=accumulate), train(batch_size=size * accumulate), atol=1e-12)


@pytest.mark.parametrize("where", [1, 3])
def test_nan_stops_with_the_step_named(where):
    "Acceptance case 4."
    model, good = network(), network()
    fit(good, loss, DATA, steps=where - 1, batch_size=8, progress=False) if where > 1 else None
    calls = []

    def turns(model, batch):
        calls.append(1)
        return loss(model, batch) * (math.nan if len(calls) == where else 1)
    with pytest.raises(FloatingPointError, match=f"the loss is nan at step {where} .*after step {where - 1}"):
        fit(model, turns, DATA, steps=5, batch_size=8, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), good.parameters()))


def test_infinite_gradient_stops_before_the_weights_move():
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(FloatingPointError, match="gradient is not finite .* at step 1"):
        fit(model, lambda m, b: m(b["x"]).mul(0).abs().sum().sqrt(), DATA, steps=1, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_best_by_validation_is_restored():
    "Also the buffers of the batch norm belong to the best step."
    values, states = iter([1., 3, 2, 0]), []
    model = network()

    def validate(m):
        states.append(state(m))
        assert not m.training and not torch.is_grad_enabled()
        return next(values)
    history = fit(model, loss, DATA, validate=validate, **{**FOUR, "every": 1})
    assert history.best == 3 and history.best_step == 2 and not model.training
    wanted = {k: v for k, v in states[1].items()}
    assert equal(state(model), wanted) and not equal(state(model), states[3])


def test_smaller_may_be_better_and_patience_ends():
    values = iter([5., 1, 2, 3, 0])
    history = fit(network(), loss, DATA, validate=lambda m: next(values), best="min", patience=2, **{**FOUR, "every": 1, "steps": 5})
    assert (history.best, history.best_step, history.stopped, len(history.table)) == (1, 2, "patience", 4)


def test_masked_parameters_stay():
    "Only the chosen parameters move, no gradient is made for the others, and all are switched as before."
    model = network()
    model[0].bias.requires_grad_(False)
    before = state(model)
    fit(model, loss, DATA, parameters=lambda name: name.startswith("4."), **FOUR)
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {"4.weight", "4.bias"} and model[0].weight.grad is None
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["0.bias"]


def test_parameters_beside_the_model(tmp_path):
    "A tensor that no module owns is trained, kept and resumed as well."
    def run(**options):
        beside = torch.zeros(3, requires_grad=True)
        fit(network(), lambda m, b: loss(m, {**b, "x": b["x"] + beside}), DATA, parameters=[beside], **FOUR, **options)
        return beside.detach()
    first = run(folder=tmp_path)
    assert first.abs().sum() > 0 and torch.equal(first, run()) and torch.equal(first, run(folder=tmp_path))


def test_same_seed_same_bytes(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        torch.manual_seed(len(name) + seed * 7)  # whatever was drawn before
        fit(network(), loss, DATA, validate=score, folder=tmp_path / name, **{**FOUR, "seed": seed})
    a, b, c = ((tmp_path / n / "checkpoint.pt").read_bytes() for n in "abc")
    assert a == b != c


def test_the_callers_random_numbers_and_threads_are_untouched():
    model, kept, threads = network(), rng_state(), torch.get_num_threads()
    fit(model, loss, DATA, threads=2, **FOUR)
    assert torch.equal(rng_state()["cpu"], kept["cpu"]) and torch.get_num_threads() == threads


def test_datasets_and_dicts_train_alike():
    pairs = torch.utils.data.TensorDataset(torch.tensor(DATA["x"]), torch.tensor(DATA["y"]))
    a, b = network(), network()
    fit(a, loss, DATA, **{**FOUR, "augment": None})
    fit(b, lambda m, batch: loss(m, {"x": batch[0], "y": batch[1]}), pairs, **{**FOUR, "augment": None})
    assert equal(state(a), state(b))


def test_float16_on_the_cpu_learns():
    model = network()
    history = fit(model, loss, DATA, steps=30, lr=.02, precision="float16", progress=False)
    assert history.steps.loss.tail(5).mean() < history.steps.loss.head(5).mean()


@pytest.mark.parametrize("options, message", [
    (dict(), "either epochs or steps"), (dict(epochs=1, steps=1), "either epochs or steps"), (dict(steps=0), "steps must be a whole number"),
    (dict(steps=1, optimiser="lion"), "optimiser must be one of"), (dict(steps=1, schedule="linear"), "schedule must be one of"),
    (dict(steps=1, lr=-1), "lr must be positive"), (dict(steps=1, precision="fp8"), "precision must be one of"), (dict(steps=1, patience=1), "need validate"),
    (dict(steps=1, warmup=2), "warmup must be 0 to 1"), (dict(steps=1, sampler=[1, 2]), "shape \\(40,\\)"), (dict(steps=1, best="most"), "best must be one of")])
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(network(), loss, DATA, **options)


def test_the_bar_is_quiet_where_nobody_watches(capsys):
    fit(network(), loss, DATA, steps=2)
    assert capsys.readouterr() == ("", "")
    fit(network(), loss, DATA, steps=2, progress=True)
    assert "2/2" in capsys.readouterr().err


@settings(max_examples=30)
@given(st.integers(1, 50), st.integers(0, 5), st.integers(0, 99))
def test_every_epoch_holds_every_row_once(n, epoch, seed):
    rows = epoch_rows(n, Recipe(steps=1, seed=seed), epoch)
    assert sorted(rows) == list(range(n)) and rows == epoch_rows(n, Recipe(steps=1, seed=seed), epoch)


@pytest.mark.parametrize("kind, wanted", [("constant", [.5, 1, 1, 1]), ("cosine", [.5, 1, 1, .5])])
def test_schedules_by_hand(kind, wanted):
    optimiser = make_optimiser(chosen(network())[1], "sgd", lr=1.)
    schedule, seen = make_schedule(optimiser, kind, total=4, warmup=2), []
    for _ in range(4):
        seen.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert np.allclose(seen, wanted)


def test_random_numbers_come_back():
    kept = rng_state()
    first = torch.rand(4)
    restore_rng(kept)
    assert torch.equal(torch.rand(4), first)


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
def test_images_from_everywhere_are_the_same(n, high, wide):
    from PIL import Image
    raw = np.random.default_rng(n).integers(0, 256, (n, high, wide, 3), dtype=np.uint8)
    one = as_images(raw)
    for form in (raw / 255, [Image.fromarray(i) for i in raw], list(raw), torch.tensor(raw).permute(0, 3, 1, 2), torch.tensor(raw).permute(0, 3, 1, 2) / 255):
        assert one.dtype == as_images(form).dtype == torch.float32 and torch.allclose(one, as_images(form), atol=1e-6)


# the validation, the schedule and the history

def test_a_validation_neither_draws_from_the_training_nor_changes_its_mode():
    "With dropout and batch norm at work: the same weights whether somebody looks after each step or not."
    plain, looked, rising = network(), network(), iter(range(9))
    fit(plain, loss, DATA, **{**FOUR, "every": 1})

    def validate(model):
        torch.rand(7)
        return float(next(rising))
    fit(looked, loss, DATA, validate=validate, **{**FOUR, "every": 1})
    assert equal(state(plain), state(looked))


def test_of_two_equally_good_validations_the_first_is_kept_and_waiting_goes_on():
    values = iter([1., 3, 3, 3, 9])
    history = fit(network(), loss, DATA, validate=lambda m: next(values), patience=2, **{**FOUR, "every": 1, "steps": 5})
    assert (history.best, history.best_step, history.stopped, len(history.table)) == (3, 2, "patience", 4)


@pytest.mark.parametrize("best", ["max", "min"])
@pytest.mark.parametrize("better", [True, False])
def test_a_plateau_lowers_the_step_size_only_where_nothing_gets_better(best, better):
    values = (k * (1 if best == "max" else -1) * (1 if better else -1) for k in range(20))
    history = fit(network(), loss, DATA, validate=lambda m: next(values), schedule="plateau", best=best, **{**FOUR, "every": 1, "steps": 9})
    lower = .05 if better else .005
    assert history.steps["lr"].tolist() == pytest.approx([.05] * 7 + [lower] * 2)  # one best, then six that are none better


def test_a_row_of_the_history_is_the_mean_of_the_steps_since_the_row_before():
    history = fit(network(), loss, DATA, **{**FOUR, "steps": 7, "every": 3, "schedule": "cosine", "warmup": 2})
    steps, last = history.steps, 0
    assert steps["step"].tolist() == [1, 2, 3, 4, 5, 6, 7] and history.table["step"].tolist() == [3, 6, 7]
    wanted = [.025, .05, *(.05 * .5 * (1 + math.cos(math.pi * k / 5)) for k in range(5))]
    assert steps["lr"].tolist() == pytest.approx(wanted)
    for row in history.table.itertuples():
        some = steps[(steps["step"] > last) & (steps["step"] <= row.step)]
        assert [row.loss, row.norm, row.lr, row.epoch] == pytest.approx([some["loss"].mean(), some["norm"].mean(), wanted[row.step - 1], row.step / 5])
        last = row.step


def test_a_checkpoint_keeps_the_one_before_where_that_is_asked_for(tmp_path):
    path = tmp_path / "run.pt"
    for k in range(3):
        save_checkpoint(path, {"step": k}, backup=k == 2)
        assert (tmp_path / "run.pt~").exists() == (k == 2)
    assert (load_checkpoint(path)["step"], load_checkpoint(tmp_path / "run.pt~")["step"]) == (2, 1)


# found by mutants: the loop against a plain one, every part of it

PLAIN = {"sgd": dict(optimiser="sgd", clip=None), "clipped": dict(optimiser="sgd", clip=.05), "average": dict(optimiser="sgd", ema=.9), "adam": dict(optimiser="adam", weight_decay=.3),
         "adamw": dict(optimiser="adamw", weight_decay=.3), "accumulated": dict(optimiser="sgd", accumulate=2, ema=.8), "warm": dict(optimiser="sgd", schedule="cosine", warmup=.25)}


@pytest.mark.parametrize("options", PLAIN.values(), ids=PLAIN)
def test_fit_is_a_plain_loop_of_torch(options):
    "Two epochs of 22 rows in batches of 6: weights, losses, norms, named values and step sizes, by a loop that uses nothing of ours but the order of the rows."
    options = {"accumulate": 1, "weight_decay": .1, "clip": 1., "ema": None, "schedule": "constant", "warmup": 0, **options}
    x, y = (torch.tensor(DATA[k][:22]) for k in "xy")

    def make():
        torch.manual_seed(1)
        return torch.nn.Linear(3, 2)
    mine, twin, seen = make(), make(), []
    history = fit(mine, lambda m, b: (loss(m, b), {"first": b["x"][:, 0].mean()}), {"x": x, "y": y}, epochs=2, batch_size=6, lr=.2, seed=5, progress=False, **options)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options["optimiser"]]
    optimiser, average = kind(twin.parameters(), lr=.2, weight_decay=options["weight_decay"]), state(twin)
    for epoch in range(2):
        rows = torch.tensor(epoch_rows(22, Recipe(epochs=2, seed=5), epoch))
        for group in rows.split(6 * options["accumulate"]):
            k, total = len(seen), 2 * math.ceil(22 / (6 * options["accumulate"]))
            warm = round(options["warmup"] * total)
            lr = .2 * ((k + 1) / warm if k < warm else 1 if options["schedule"] == "constant" else (1 + math.cos(math.pi * (k - warm) / (total - warm))) / 2)
            for g in optimiser.param_groups: g["lr"] = lr
            optimiser.zero_grad()
            value = torch.nn.functional.cross_entropy(twin(x[group]), y[group])
            value.backward()
            norm = torch.sqrt(sum((p.grad ** 2).sum() for p in twin.parameters())).item()
            for p in twin.parameters():
                if options["clip"] and norm > options["clip"]: p.grad *= options["clip"] / norm
            optimiser.step()
            for n, v in twin.state_dict().items(): average[n] = options["ema"] * average[n] + (1 - options["ema"]) * v if options["ema"] else v.clone()
            seen.append([value.item(), x[group, 0].mean().item(), lr, norm])
    assert np.allclose(history.steps[["loss", "first", "lr", "norm"]].to_numpy(), seen, atol=1e-5)
    assert all(torch.allclose(v, average[n], atol=1e-5) for n, v in mine.state_dict().items())


def test_the_average_is_validated_and_the_training_goes_on_with_its_own_weights():
    "A look at the average changes nothing of what follows; the best one is kept as it was seen."
    plain, looked, seen = network(), network(), []
    fit(plain, loss, DATA, ema=.9, **{**FOUR, "every": 1})

    def validate(model):
        seen.append(state(model))
        return float(len(seen))
    fit(looked, loss, DATA, ema=.9, validate=validate, **{**FOUR, "every": 1})
    trained = [n for n, _ in plain.named_parameters()]
    assert all(torch.equal(seen[-1][n], state(plain)[n]) and torch.equal(state(looked)[n], seen[-1][n]) for n in trained)


def test_follow_and_exchanged_by_hand():
    average, named = {"w": torch.tensor([1., 0])}, {"w": torch.tensor([2., 10], requires_grad=True)}
    follow(average, named, .9)
    assert average["w"].tolist() == pytest.approx([1.1, 1])
    for values, within in ((average, [1.1, 1]), (None, [2, 10])):
        with pytest.raises(Killed), exchanged(named, values):
            assert named["w"].tolist() == pytest.approx(within)
            raise Killed
        assert named["w"].tolist() == [2, 10]


@pytest.mark.parametrize("kind", ["adamw", "adam", "sgd", lambda groups, lr, weight_decay: torch.optim.RMSprop(groups, lr=lr, weight_decay=weight_decay)])
def test_groups_keep_their_own_step_size_under_every_rule(kind):
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    groups = chosen(torch.nn.Linear(1, 1), [{"params": [a], "lr": .3}, {"params": [b]}])[1]
    made = make_optimiser(groups, kind, lr=.1, weight_decay=.25)
    assert [(g["lr"], g["weight_decay"]) for g in made.param_groups] == [(.3, .25), (.1, .25)]
    schedule, lrs = make_schedule(made, "one_cycle", total=10, warmup=4), []
    for _ in range(10):
        lrs.append([g["lr"] for g in made.param_groups])
        made.step()
        schedule.step() if len(lrs) < 10 else None
    lrs = np.array(lrs)
    assert lrs.argmax(0).tolist() == [3, 3] and np.allclose(lrs[:, 0], 3 * lrs[:, 1])
    assert np.allclose(lrs[[0, 3, 9], 1], [.1 / 25, .1, .1 / 25 / 1e4])


def test_one_cycle_without_warmup_rises_for_three_tenths():
    made = make_optimiser(chosen(network())[1], "sgd", lr=1.)
    schedule, lrs = make_schedule(made, "one_cycle", total=20), []
    for _ in range(20):
        lrs.append(made.param_groups[0]["lr"])
        made.step()
        schedule.step() if len(lrs) < 20 else None
    assert int(np.argmax(lrs)) == 5 and lrs[-1] == pytest.approx(1 / 25 / 1e4)


def test_a_parameter_that_is_given_twice_is_refused():
    model = network()
    for twice in ([model[0].weight] * 2, [{"params": [model[0].weight]}, {"params": [model[4].weight, model[0].weight]}]):
        with pytest.raises(ValueError, match="given twice"): chosen(model, twice)


# the rows of an epoch

def test_no_two_epochs_or_seeds_have_the_same_order():
    rows = {(seed, epoch): tuple(epoch_rows(50, Recipe(steps=1, seed=seed), epoch)) for seed in range(4) for epoch in range(4)}
    assert len(set(rows.values())) == 16


def test_weights_draw_in_proportion_and_again():
    rows = np.concatenate([epoch_rows(40, Recipe(steps=1, sampler=np.arange(40), seed=2), e) for e in range(100)])
    found = np.bincount(rows, minlength=40) / len(rows)
    wanted = np.arange(40) / np.arange(40).sum()
    assert found[0] == 0 and (np.abs(found - wanted) <= 5 * np.sqrt(wanted / 4000)).all()
    assert set(epoch_rows(4, Recipe(steps=1, sampler=[0, 0, 1, 0]), 0)) == {2}  # with replacement


def test_functions_and_samplers_of_torch_say_the_order():
    assert epoch_rows(5, Recipe(steps=1, sampler=lambda g: np.array([4, 0, 3])), 0) == [4, 0, 3]
    assert epoch_rows(9, Recipe(steps=1, seed=3, sampler=lambda g: torch.randperm(9, generator=g)), 2) == epoch_rows(9, Recipe(steps=1, seed=3), 2)
    recipe, found = Recipe(steps=1, sampler=torch.utils.data.RandomSampler(range(30))), []
    for epoch in (0, 0, 1):
        torch.rand(3)  # whatever was drawn before
        before = torch.get_rng_state()
        found.append(epoch_rows(30, recipe, epoch))
        assert torch.equal(before, torch.get_rng_state())
    assert found[0] == found[1] != found[2] and sorted(found[0]) == list(range(30))


@pytest.mark.parametrize("data, message", [(dict(x=[1., 2], y=[1]), "equally long"), (dict(x=[], y=[]), "at least one row"), (dict(x=[1., 2], name=["a", "b"]), "column 'name' must hold numbers"), (dict(x=np.array([1, None])), "column 'x' must hold numbers")])
def test_data_that_is_no_table_of_numbers_is_refused(data, message):
    with pytest.raises(ValueError, match=message): tensors(data)


# precision, what a loss may return, and what stops a run

@pytest.mark.parametrize("precision, kind", [("float32", None), ("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_precision_reaches_the_network_and_the_norm_is_that_of_the_gradient(precision, kind):
    kinds, norms = [], []

    def seen(model, batch):
        out = model(batch["x"])
        kinds.append(out.dtype)
        return torch.nn.functional.cross_entropy(out.float(), batch["y"])
    for p in ("float32", precision):
        norms.append(fit(network(), seen, DATA, precision=p, clip=1e-3, steps=1, batch_size=40, lr=1e-3, optimiser="sgd", progress=False).steps.norm[0])
    assert kinds == [torch.float32, kind or torch.float32] and norms[0] == pytest.approx(norms[1], rel=.05)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")
def test_a_step_of_float16_that_overflows_is_left_out():
    "The gradients, scaled by 65536, are too large: the weights wait until the scale has come down."
    model = network()
    before, scale = model[4].weight.detach().clone(), 1e34
    history = fit(model, lambda m, b: loss(m, b) * scale, DATA, precision="float16", steps=1, batch_size=40, progress=False)
    assert not math.isfinite(history.steps.norm[0]) and torch.equal(model[4].weight, before)


@pytest.mark.parametrize("out", [lambda m, b: m(b["x"])[:, 0], lambda m, b: 1., lambda m, b: (m(b["x"]), {})], ids=["a vector", "a number", "a matrix and names"])
def test_a_loss_that_is_no_scalar_is_refused(out):
    with pytest.raises(ValueError, match="loss must return a scalar tensor"): fit(network(), out, DATA, **FOUR)


def test_a_validation_that_is_nan_stops_and_the_modes_come_back():
    model, values = network(), iter([1., math.nan])
    model[1].eval()
    with pytest.raises(FloatingPointError, match="validation is NaN after step 2"):
        fit(model, loss, DATA, validate=lambda m: next(values), **{**FOUR, "every": 1})
    assert [m.training for m in model] == [True, False, True, True, True] and model.training


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_that_were_asked_for(threads):
    seen = []
    fit(network(), lambda m, b: seen.append(torch.get_num_threads()) or loss(m, b), DATA, threads=threads, **FOUR)
    assert set(seen) == {threads}


# what a checkpoint must share with the run

@pytest.mark.parametrize("schedule", ["cosine", "one_cycle"])
def test_where_the_schedule_hangs_on_the_length_another_length_is_refused(schedule, tmp_path):
    fit(network(), loss, DATA, schedule=schedule, folder=tmp_path, **FOUR)
    with pytest.raises(ValueError, match="another run: steps was 4, now it is 6"):
        fit(network(), loss, DATA, schedule=schedule, folder=tmp_path, **{**FOUR, "steps": 6})


def test_a_checkpoint_of_another_shape_or_length_of_data_is_refused(tmp_path):
    fit(network(), loss, DATA, folder=tmp_path, **FOUR)
    other = torch.nn.Sequential(torch.nn.Linear(3, 7), torch.nn.BatchNorm1d(7), torch.nn.ReLU(), torch.nn.Dropout(.3), torch.nn.Linear(7, 2))
    with pytest.raises(ValueError, match="another run: shapes was"): fit(other, loss, DATA, folder=tmp_path, **FOUR)
    with pytest.raises(ValueError, match="another run: steps per epoch was 5, now it is 2"): fit(network(), loss, {k: v[:16] for k, v in DATA.items()}, folder=tmp_path, **FOUR)


def test_waiting_goes_on_where_it_was(tmp_path):
    "Killed after one validation that was no better: two more, not three, end the run."
    def train(values, end, folder):
        values = iter(values)
        return fit(network(), killed_at(end), DATA, validate=lambda m: next(values), patience=3, folder=folder, **{**FOUR, "every": 1, "steps": 9})
    with pytest.raises(Killed): train([5., 4], 3, tmp_path)
    history = train([3., 2, 1, 0], 99, tmp_path)
    assert (history.stopped, len(history.table), history.best, history.best_step) == ("patience", 4, 5, 1)


class Stranger:
    "What no checkpoint may hold."


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
@pytest.mark.parametrize("damage", ["half", "empty", "text", "zeros", "a class", "a pickle"])
def test_a_damaged_or_foreign_checkpoint_is_refused_by_name(damage, tmp_path):
    import pickle
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"x": Stranger() if damage == "a class" else torch.zeros(9)})
    whole = path.read_bytes()
    path.write_bytes({"half": whole[:len(whole) // 2], "empty": b"", "text": b"hello world", "zeros": bytes(500), "a class": whole, "a pickle": pickle.dumps(Stranger())}[damage])
    with pytest.raises(ValueError, match="checkpoint.pt: not a checkpoint"): load_checkpoint(path)


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(st.integers(0, 2**32), st.sampled_from(["cut", "flip"]))
@settings(max_examples=50)
def test_a_checkpoint_with_any_damage_is_read_or_refused_by_name(seed, kind):
    rng, held = np.random.default_rng(seed), tempfile.TemporaryDirectory()
    with held as folder:
        path = Path(folder) / "checkpoint.pt"
        save_checkpoint(path, {"x": torch.arange(9.), "step": 3, "names": ["a", "b"]})
        whole = bytearray(path.read_bytes())
        if kind == "cut": whole = whole[:rng.integers(len(whole))]
        else:
            for at in rng.integers(len(whole), size=4): whole[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(whole))
        try: load_checkpoint(path)
        except ValueError as e: assert str(e).startswith(f"{path}: not a checkpoint")


# pictures

@pytest.mark.parametrize("size, shape", [(5, (5, 5)), ((3, 11), (3, 11)), ((20, 4), (20, 4)), ([12, 9], (12, 9)), (None, (12, 9))])
def test_sizes_are_height_and_width_and_as_pil_makes_them(size, shape):
    from PIL import Image
    raw = np.random.default_rng(0).random((2, 12, 9, 3), dtype=np.float32)
    found = as_images(raw, size)
    assert found.shape == (2, 3, *shape)
    for k in range(2):
        for c in range(3):
            wanted = np.asarray(Image.fromarray(raw[k, :, :, c]).resize(shape[::-1], Image.Resampling.BILINEAR))
            assert np.allclose(found[k, c], wanted, atol=1e-5)


def test_pil_pictures_of_every_mode_are_colours():
    from PIL import Image
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    grey_picture, colours = Image.fromarray(grey), Image.fromarray(np.stack([grey, grey[::-1], grey.T], 2))
    wanted = as_images(np.asarray(colours)[None])
    assert torch.equal(as_images([grey_picture]), as_images(grey[None, ..., None])) and as_images([grey_picture]).shape == (1, 3, 8, 8)
    assert torch.equal(as_images([colours.convert("RGBA")]), wanted) and torch.equal(as_images([colours.quantize(64)]), as_images([colours.quantize(64).convert("RGB")]))
    assert torch.equal(as_images([grey_picture, colours.convert("RGBA")]), torch.cat([as_images(grey[None, ..., None]), wanted]))


def test_a_hair_outside_is_cut_and_more_is_refused():
    x = torch.tensor([-5e-5, .5, 1 + 5e-5]).reshape(1, 1, 1, 3)
    assert as_images(x)[0, 0, 0].tolist() == [0, .5, 1]
    for bad in (-.01, 1.01, math.nan):
        with pytest.raises(ValueError, match="must lie in"): as_images(torch.full((1, 3, 2, 2), bad))
