"The ablation: rows that differ in what they say, runs that repeat, gains by hand, a difficulty chosen by one row alone, and the stored artefact."

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import ttest_1samp

from fairical_nb import spafreq_ablation
from fairical_nb.attributes import TAXONOMY
from fairical_nb.pretraining import standin
from fairical_nb.spafreq import PUBLISHED
from fairical_nb.spafreq_ablation import ROWS, SETTINGS, ablation, drawn, gains, listed, network_of, rehearse, run_row, summary
from fairical_nb.standins_glyphs import draw_labels

torch.set_num_threads(1)
FIRST, DINO, FIXED, LEARNED = ROWS
QUICK = dict(steps=2, batch_size=16, lr=1e-3)


@pytest.fixture(scope="module")
def material():
    return drawn(48, 24, texture=.2)


def made(values, long=()):
    "A table of runs: values (row, seed) at equal steps, long {row number: list} at equal compute."
    rows = [dict(row=r, compute="equal steps", seed=s, overall=v) for r, line in zip(ROWS, values) for s, v in enumerate(line)]
    return pd.DataFrame(rows + [dict(row=list(ROWS)[k], compute="equal compute", seed=s, overall=v) for k, line in dict(long).items() for s, v in enumerate(line)])


def test_rows_start_where_they_say():
    nets = {row: network_of(row, TAXONOMY, weights=standin(), seed=4) for row in ROWS}
    given_, random = network_of(DINO, TAXONOMY, weights=standin(), seed=9), network_of(FIRST, TAXONOMY, weights=standin(), seed=9)
    first_layer = lambda net: net.streams[0].net.blocks[0].mlp.fc1.weight
    assert all(torch.equal(first_layer(given_), first_layer(nets[r])) for r in (DINO, FIXED, LEARNED))
    assert not torch.equal(first_layer(given_), first_layer(nets[FIRST])) and not torch.equal(first_layer(random), first_layer(nets[FIRST]))
    assert [len(n.config["views"]) for n in nets.values()] == [1, 1, 2, 2]
    assert [n.config["fusion"] for n in (nets[FIXED], nets[LEARNED])] == ["fixed", "learned"]


def test_the_first_row_may_have_a_backbone_of_its_own():
    options = dict(weights=None, backbone="small_vit", first=dict(size=64))
    assert network_of(FIRST, TAXONOMY, **options).streams[0].net.size == 64 and network_of(DINO, TAXONOMY, **options).streams[0].net.size == 32


def test_the_papers_settings_reach_the_networks():
    network = SETTINGS["paper"]["network"]
    with torch.device("meta"):
        net = network_of(LEARNED, TAXONOMY, weights=None, **network)
        one = network_of(FIRST, TAXONOMY, weights=None, **{**network, "first": {**network["first"], "weights": None}})
    assert net.config["backbone"] == "dinov2_base" and len(net.streams) == 3 and one.config["backbone"] == "vit_base_patch16_224"
    with pytest.raises(FileNotFoundError, match="vit_base_patch16_224"):
        network_of(FIRST, TAXONOMY, weights=None, **network)


def test_a_run_repeats_and_counts_its_steps(material):
    train, test = material(0)
    runs = [run_row(LEARNED, train, test, TAXONOMY, weights=standin(), seed=s, **QUICK) for s in (0, 0, 1)]
    plain = [{k: v for k, v in r.items() if k != "seconds"} for r in runs]
    assert plain[0] == plain[1] != plain[2] and plain[0]["steps"] == 2
    assert 0 <= plain[0]["overall"] <= min(plain[0][a] for a in TAXONOMY) <= 100


def test_files_and_arrays_give_the_same_run(material, tmp_path):
    "PNG keeps bytes, so pictures are rounded to bytes on both sides."
    (images, labels), (others, answers) = material(0)
    images, others = ((x * 255).round().astype(np.uint8) for x in (images, others))
    def stored(arrays, name):
        paths = [tmp_path / f"{name}{i}.png" for i in range(len(arrays))]
        for p, a in zip(paths, arrays): Image.fromarray(a).save(p)
        return [str(p) for p in paths]
    one = run_row(DINO, (images, labels), (others, answers), TAXONOMY, weights=standin(), **QUICK)
    two = run_row(DINO, (stored(images, "a"), labels), (stored(others, "b"), answers), TAXONOMY, weights=standin(), **QUICK)
    assert all(one[k] == two[k] for k in (*TAXONOMY, "overall"))


def test_pictures_without_a_label_teach_but_are_not_tested(material):
    train, (images, labels) = material(0)
    gaps = labels.astype(object)
    gaps.loc[:11, "age"] = None
    some = run_row(DINO, train, (images, gaps), TAXONOMY, weights=standin(), **QUICK)
    rest = run_row(DINO, train, (images[12:], labels.iloc[12:].reset_index(drop=True)), TAXONOMY, weights=standin(), **QUICK)
    assert some["overall"] == rest["overall"] and some["gender"] == rest["gender"]


def test_all_rows_all_seeds_and_twice_the_steps(material):
    kept = []
    runs = ablation(material, TAXONOMY, steps=1, seeds=(0, 3), weights=standin(), batch_size=16, lr=1e-3, done=kept.append)
    assert len(runs) == len(kept) == 12 and set(runs["seed"]) == {0, 3}
    long = runs[runs["compute"] == "equal compute"]
    assert sorted(set(long["row"])) == sorted([FIRST, DINO]) and (long["steps"] == 2).all() and (runs.drop(long.index)["steps"] == 1).all()
    assert runs.loc[runs["row"] == FIXED, "alpha"].eq(.5).all() and runs.loc[runs["row"] == DINO, "alpha"].isna().all()


@settings(max_examples=40)
@given(values=st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=4, max_size=4))
def test_gains_are_students(values):
    table = gains(made(values))
    for (low, high, mean, positive), before, after in zip(table[["low", "high", "mean", "positive"]].to_numpy(), values, values[1:]):
        steps = np.subtract(after, before)
        assert mean == pytest.approx(steps.mean()) and positive == (steps > 0).sum()
        if steps.std():
            wanted = ttest_1samp(steps, 0).confidence_interval(.95)
            assert (low, high) == pytest.approx((wanted.low, wanted.high))


def test_equal_compute_takes_the_long_runs_of_rows_with_one_view():
    runs = made([[10, 20], [30, 40], [50, 60], [55, 65]], long={0: [70, 80], 1: [90, 90]})
    assert gains(runs)["mean"].tolist() == [20, 20, 5]
    assert gains(runs, compute="equal compute")["mean"].tolist() == [15, -35, 5]
    assert summary(runs, ["overall"], compute="equal compute")["overall"]["mean"].tolist() == [75, 90, 55, 60]
    rehearsed = pd.concat([runs, runs.assign(compute="rehearsal", overall=0)])
    pd.testing.assert_frame_equal(gains(rehearsed), gains(runs))


def test_a_single_seed_has_no_spread():
    table = gains(made([[1], [2], [3], [5]]))
    assert table["mean"].tolist() == [1, 1, 2] and table[["se", "low", "high"]].isna().all(axis=None)


def test_the_difficulty_is_chosen_by_the_first_row_alone(monkeypatch):
    asked = []
    def pretended(row, train, test, attributes, *, seed, steps, **options):
        asked.append((row, seed))
        return {"row": row, "seed": seed, "steps": steps, "overall": train, "alpha": float("nan")}
    monkeypatch.setattr("fairical_nb.spafreq_ablation.run_row", pretended)
    trials = {name: (lambda seed, value=value: (value, None)) for name, value in (("hard", 20), ("right", 45), ("also right", 50))}
    found = rehearse(trials, TAXONOMY, steps=1)
    assert found["trial"].tolist() == ["hard", "right"] and asked == [(FIRST, 999)] * 2
    with pytest.raises(ValueError, match="20.0, 45.0, 50.0"):
        rehearse(trials, TAXONOMY, steps=1, between=(60, 80))


def test_drawn_material_is_new_for_each_seed_and_the_test_is_one():
    (a, la), (ta, _) = drawn(20, 10)(0)
    (b, lb), (tb, _) = drawn(20, 10)(1)
    assert not np.array_equal(a, b) and np.array_equal(ta, tb) and not la.equals(lb)


def test_listed_material_tears_no_unit():
    table = draw_labels(120, seed=0).assign(path=[f"{i}.png" for i in range(120)], unit=np.arange(120) // 3)
    for seed in (0, 1):
        (train, _), (test, labels) = listed(table, tests=.25)(seed)
        units = [{int(p[:-4]) // 3 for p in part} for part in (train, test)]
        assert not units[0] & units[1] and sorted(train + test) == sorted(table.path) and len(labels) == len(test)


@pytest.mark.parametrize("call, said", [(lambda: network_of("DINO + magic", TAXONOMY, weights=None), "DINO . magic"), (lambda: drawn(4, 4, texture=-1)(0), "texture")])
def test_bad_input(call, said):
    with pytest.raises(ValueError, match=said):
        call()


# What wrong code would have passed

def test_the_papers_settings_are_those_of_the_published_recipe_but_for_the_schedule():
    paper, shared = SETTINGS["paper"], ("batch_size", "lr", "weight_decay", "gamma", "balance", "precision")
    assert {k: paper[k] for k in shared} == {k: PUBLISHED[k] for k in shared} and set(paper) == {*shared, "network", "schedule"}
    assert SETTINGS["demo"] == dict(batch_size=48, lr=2e-3, schedule="one_cycle")


def test_what_the_first_row_alone_is_given_wins_over_what_all_rows_are_given():
    options = dict(weights=standin(), size=32, first=dict(size=64))
    assert [network_of(r, TAXONOMY, **options).streams[0].net.size for r in (FIRST, DINO)] == [64, 32]


@pytest.mark.parametrize("flip", [False, True])
def test_flip_and_the_recipe_reach_training_and_test_and_the_shares_are_counted(monkeypatch, material, flip):
    trained, asked = [], []
    monkeypatch.setattr(spafreq_ablation, "train_network", lambda net, data, **options: trained.append(options))
    right = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 1, 0]], bool)
    monkeypatch.setattr(spafreq_ablation, "_right", lambda labeller, test, attributes, size: asked.append((labeller.flip, size)) or right)
    monkeypatch.setattr(spafreq_ablation, "varied", lambda *a, **k: ("varied", a, k))
    run = run_row(LEARNED, *material(0), TAXONOMY, weights=standin(), steps=5, seed=3, flip=flip, lr=.1)
    assert trained == [dict(steps=5, seed=3, augment=("varied", (), {}) if flip else None, lr=.1)] and asked == [(flip, 32)]
    assert [run[k] for k in (*TAXONOMY, "overall", "row", "seed", "steps")] == [75., 100., 50., 25., LEARNED, 3, 5]


def test_options_of_the_drawing_are_for_both_sides(monkeypatch):
    asked = []
    monkeypatch.setattr(spafreq_ablation, "portraits", lambda labels, **options: asked.append((len(labels), options)))
    drawn(6, 4, texture=.5, noise=.1)(3)
    assert asked == [(6, dict(seed=1003, texture=.5, noise=.1)), (4, dict(seed=2000, texture=.5, noise=.1))]


@pytest.mark.parametrize("given, fractions", [({}, (.8, .2)), ({"tests": .4}, (.6, .4))])
def test_files_are_dealt_with_the_share_and_the_seed_and_gender_in_proportion(monkeypatch, given, fractions):
    table, asked = draw_labels(10, seed=0).assign(path="a.png", unit="u"), []
    monkeypatch.setattr(spafreq_ablation, "split_faces", lambda table, **options: asked.append(options) or {"train": table[:7], "test": table[7:]})
    listed(table, **given)(5)
    assert asked == [dict(fractions=pytest.approx(fractions), parts=("train", "test"), by=("gender",), seed=5)]


@pytest.mark.parametrize("overall, chosen", [(29.9, False), (30, True), (80, True), (80.1, False)])
def test_the_bounds_of_a_difficulty_belong_to_it(monkeypatch, overall, chosen):
    monkeypatch.setattr(spafreq_ablation, "run_row", lambda *a, **k: {"overall": overall})
    trial = {"one": lambda seed: (None, None)}
    if chosen: assert rehearse(trial, TAXONOMY, steps=1)["trial"].tolist() == ["one"]
    else:
        with pytest.raises(ValueError, match="between 30 and 80"): rehearse(trial, TAXONOMY, steps=1)
