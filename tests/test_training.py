"The training loop: resumed to the last bit, accumulated like one batch, stopped by NaN, the best kept."
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.checkpoints import load_checkpoint, restore_rng, rng_state, save_checkpoint
from fairical_nb.images import as_images
from fairical_nb.optimisers import chosen, make_optimiser, make_schedule
from fairical_nb.recipes import Recipe, epoch_rows
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
