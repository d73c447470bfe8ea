"Pattern cards: the recipes, the best rule, and the pictures that hold what the rule needs."
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from fairical_nb import standins_cards as sc
from fairical_nb.standins_cards import RECIPES, Recipe, bayes, cards, cohort, draw

NAMES = list(RECIPES)


# Who is in them

def test_numbers_of_the_real_sets():
    tables = {name: draw(name, seed=1) for name in NAMES}
    assert {n: (len(t), t.patient.nunique()) for n, t in tables.items()} == {"hgf": (3300, 3300), "shenzhen": (662, 662), "mbrset": (5164, 1291)}
    assert tables["shenzhen"].label.value_counts().to_dict() == {0: 326, 1: 336}
    assert (tables["mbrset"].groupby("patient").size() == 4).all()


@pytest.mark.parametrize("name", NAMES)
def test_shares_and_prevalences_are_those_of_the_recipe(name):
    recipe, tables = RECIPES[name], pd.concat([draw(name, seed=s) for s in range(20)])
    assert recipe.cells.share.sum() == pytest.approx(1)
    for _, cell in recipe.cells.iterrows():
        inside = np.logical_and.reduce([tables[a] == cell[a] for a in recipe.attributes])
        n = len(tables) / recipe.cards  # patients; cards of one are not independent
        assert abs(inside.mean() - cell.share) < 4 * np.sqrt(cell.share * (1 - cell.share) / n)
        assert abs(tables.label[inside].mean() - cell.prevalence) < 4 * np.sqrt(.25 / (n * cell.share))


def test_systems_md_base_rates():
    hgf, shenzhen, mbrset = (RECIPES[n].cells for n in ("hgf", "shenzhen", "mbrset"))
    assert (hgf.share * hgf.prevalence).sum() == pytest.approx(.53, abs=.005)
    male = shenzhen.set_index("gender").loc["male"]
    assert male.share * male.prevalence / (336 / 662) == pytest.approx(.76) and male.share * (1 - male.prevalence) / (326 / 662) == pytest.approx(.60)
    assert mbrset.groupby("obesity").prevalence.first().to_dict() == {"not obese": .22, "obese": .56}
    assert mbrset[mbrset.obesity == "obese"].share.sum() == pytest.approx(.30)


@pytest.mark.parametrize("name", NAMES)
def test_evidence_is_normal_around_the_label(name):
    t = pd.concat([draw(name, seed=s) for s in range(5)]).merge(RECIPES[name].cells, on=list(RECIPES[name].attributes), how="left")
    noise = (t.z - (2 * t.label - 1)) / t.sd
    assert abs(noise.mean()) < .06 and abs(noise.std() - 1) < .04
    rest = t.q - (2 * t.label - 1) * t.patch
    assert abs(rest.mean()) < .06 and abs(rest.std() - 1) < .04


@pytest.mark.parametrize("name", NAMES)
def test_strips_are_right_97_times_of_100(name):
    t = pd.concat([draw(name, seed=s) for s in range(10)])
    for a in RECIPES[name].attributes:
        assert (t[a] == t[f"seen {a}"]).mean() == pytest.approx(.97, abs=.006)


def test_sides_of_a_patient_are_correlated():
    t = draw("mbrset", seed=0)
    label, z = t.label.to_numpy().reshape(-1, 4), t.z.to_numpy().reshape(-1, 4)
    assert (label[:, 0] == label[:, 1]).all() and (label[:, 2] == label[:, 3]).all()
    assert .6 < np.corrcoef(label[:, 0], label[:, 2])[0, 1] < .95
    assert np.corrcoef(z[:, 0], z[:, 1])[0, 1] > np.corrcoef(z[:, 0], z[:, 2])[0, 1] > .4
    assert t.side.tolist()[:4] == ["right", "right", "left", "left"]


# The best rule

def naive_bayes(row, recipe):
    "The rule for one card, term by term."
    weight = [0., 0.]
    for _, c in recipe.cells.iterrows():
        strips = np.prod([.97 if row[f"seen {a}"] == c[a] else .03 / (len(k) - 1) for a, k in recipe.attributes.items()])
        for y, p in ((0, 1 - c.prevalence), (1, c.prevalence)):
            weight[y] += c.share * p * strips * norm.pdf(row.z, 2 * y - 1, c.sd) * norm.pdf(row.q, (2 * y - 1) * c.patch, 1)
    return weight[1] / sum(weight)


@pytest.mark.parametrize("name", NAMES)
def test_rule_is_its_naive_twin(name):
    t = draw(name, seed=2).iloc[:20]
    assert t.bayes.tolist() == pytest.approx([naive_bayes(row, RECIPES[name]) for _, row in t.iterrows()])


@pytest.mark.parametrize("name", NAMES)
def test_rule_is_calibrated_and_of_the_expected_size(name):
    t = pd.concat([draw(name, seed=s) for s in range(10)])
    fifth = t.groupby((t.bayes * 5).astype(int).clip(0, 4)).agg(said=("bayes", "mean"), true=("label", "mean"), patients=("patient", "nunique"))
    assert (np.abs(fifth.said - fifth.true) < 4 * np.sqrt(.25 / fifth.patients)).all()
    accuracy = ((t.bayes > .5) == t.label).mean()
    low, high = {"hgf": (.80, .86), "shenzhen": (.86, .92), "mbrset": (.84, .90)}[name]
    assert low < accuracy < high
    assert ((bayes(t, name, known=True) > .5) == t.label).mean() >= accuracy - .003


@pytest.mark.parametrize("name, attribute, low, high", [("hgf", "gender", .08, .21), ("shenzhen", "gender", .05, .34), ("mbrset", "obesity", .07, .32)])
def test_rule_is_unequal_between_groups(name, attribute, low, high):
    t = pd.concat([draw(name, seed=s) for s in range(5)])
    rates = pd.crosstab([t.label, t[attribute]], t.bayes > .5, normalize="index")[True].unstack()
    assert low < (rates.max(axis=1) - rates.min(axis=1)).max() < high


@given(z=st.floats(-6, 6), prevalence=st.floats(.05, .95), sd=st.floats(.5, 3))
@settings(max_examples=50)
def test_rule_of_one_group_is_the_log_odds(z, prevalence, sd):
    one = Recipe("one", 1, {"g": ("a", "b")}, pd.DataFrame({"g": ["a"], "share": 1., "prevalence": prevalence, "sd": sd, "patch": 0.}), (40, 9))
    said = bayes(pd.DataFrame({"z": [z], "q": [.3], "g": ["a"], "seen g": ["a"]}), one)[0]
    assert np.log(said / (1 - said)) == pytest.approx(np.log(prevalence / (1 - prevalence)) + 2 * z / sd ** 2, abs=1e-6)


# The pictures

@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bytes_and_seeds_are_apart(name):
    images, t = cohort(name, seed=5)
    table, again = draw(name, seed=5), cards(t.iloc[:300], name, seed=5)
    assert np.array_equal(cards(t.iloc[:300], name, seed=5), again) and t.equals(table)
    assert images.dtype == np.uint8 and images.shape == (len(t), 32, 32, RECIPES[name].channels)
    assert not np.array_equal(cards(t.iloc[:300], name, seed=6), again)
    assert not draw(name, seed=6).label.equals(t.label)


def test_table_does_not_depend_on_size_nor_change():
    small, t = cohort("shenzhen", seed=0)
    frozen = t.copy()
    large = cards(t, "shenzhen", size=48, seed=0)
    assert large.shape == (662, 48, 48, 1) and t.equals(frozen)


@pytest.mark.parametrize("size", [32, 64])
def test_pixels_hold_the_evidence(size):
    t = draw("shenzhen", seed=0)
    flat = cards(t, "shenzhen", size=size, seed=0)[..., 0] / 255 - .5
    grating, checker, _ = sc._marks()
    at = np.arange(size) * 32 // size
    for mark, value in ((grating, t.z), (checker, t.q)):
        assert np.corrcoef((flat * mark[at][:, at]).sum((1, 2)), np.tanh(value / 2))[0, 1] > .97


def test_strips_can_be_read():
    t = draw("hgf", seed=0)
    edge = cards(t, "hgf", seed=0)[:, :4, :, 0].astype(float)
    means = np.stack([edge[(t["seen race"] == c).to_numpy()].mean(axis=0) for c in RECIPES["hgf"].attributes["race"]])
    nearest = ((edge[:, None] - means) ** 2).sum((2, 3)).argmin(axis=1)
    assert (np.array(RECIPES["hgf"].attributes["race"])[nearest] == t["seen race"]).mean() > .97


def test_bad_input():
    with pytest.raises(ValueError, match="no stand-in cohort is called 'hfg'; there are hgf, shenzhen, mbrset"):
        cohort("hfg", seed=0)
    with pytest.raises(ValueError, match="at least 32 pixels, or the marks are lost, but it is 31"):
        cohort("hgf", seed=0, size=31)


# Found by mutants: who shares what, and what stands where

@pytest.mark.parametrize("name", NAMES)
def test_a_patient_has_one_age_of_the_recipes_spread(name):
    t, recipe = pd.concat([draw(name, seed=s).assign(seed=s) for s in range(4)]), RECIPES[name]
    people = t.groupby(["seed", "patient"]).age
    assert people.nunique().max() == 1
    clipped = np.clip(np.random.default_rng(0).normal(*recipe.age, 200_000), 18, 95)
    assert people.first().mean() == pytest.approx(clipped.mean(), abs=1.2) and people.first().std() == pytest.approx(clipped.std(), rel=.05)
    assert t.age.min() >= 18 and t.age.max() <= 95
    assert {n: r.age for n, r in RECIPES.items()} == {"hgf": (60.9, 15.6), "shenzhen": (35.2, 15.), "mbrset": (61.4, 11.6)}


def test_cards_of_a_side_and_of_a_patient_share_what_the_recipe_says():
    "Covariance of the evidence's noise: .4 between the sides of a patient, .7 within a side, 1 of a card with itself."
    t = pd.concat([draw("mbrset", seed=s) for s in range(8)]).merge(RECIPES["mbrset"].cells, on=["obesity", "gender"], how="left")
    found = np.cov(((t.z - (2 * t.label - 1)) / t.sd).to_numpy().reshape(-1, 4).T)
    side = [0, 0, 1, 1]
    wanted = np.array([[1 if i == j else .7 if side[i] == side[j] else .4 for j in range(4)] for i in range(4)])
    assert np.abs(found - wanted).max() < .05


def test_each_side_has_the_patients_label_or_one_of_its_own():
    t = pd.concat([draw("mbrset", seed=s) for s in range(10)])
    first, last = (t[t.card == k].reset_index(drop=True) for k in (1, 4))
    for obesity, p in (("not obese", .22), ("obese", .56)):
        some = first.obesity == obesity
        yes, no = .85 + .15 * p, .15 * p
        wanted = 2 * (p * yes * (1 - yes) + (1 - p) * no * (1 - no))
        assert (first.label != last.label)[some].mean() == pytest.approx(wanted, abs=4 * np.sqrt(wanted / some.sum()))


@pytest.mark.parametrize("name", NAMES)
def test_the_rule_that_knows_the_groups_is_its_naive_twin(name):
    recipe, t = RECIPES[name], draw(name, seed=4).iloc[:200]
    t = t[np.logical_or.reduce([t[a] != t[f"seen {a}"] for a in recipe.attributes]) | (np.arange(len(t)) < 10)]
    for (_, row), found in zip(t.iterrows(), bayes(t, name, known=True)):
        c = recipe.cells[np.logical_and.reduce([recipe.cells[a] == row[a] for a in recipe.attributes])].iloc[0]
        weight = [p * norm.pdf(row.z, 2 * y - 1, c.sd) * norm.pdf(row.q, (2 * y - 1) * c.patch, 1) for y, p in ((0, 1 - c.prevalence), (1, c.prevalence))]
        assert found == pytest.approx(weight[1] / sum(weight))


def test_every_purpose_set_and_seed_has_random_numbers_of_its_own():
    first = {(n, what, seed): sc._rng(RECIPES[n], seed, what).random() for n in NAMES for what in ("table", "pixels") for seed in range(3)}
    assert len(set(first.values())) == len(first)


def naive_mark(recipe, row, i, j):
    "The brightness of one pixel on the grid of 32, without ground."
    if not (4 <= i < 28 and 4 <= j < 28):
        names = list(recipe.attributes)
        if 4 <= i < 28 and len(names) < 2: return .5
        a = names[4 <= i < 28]
        k = recipe.attributes[a].index(row[f"seen {a}"])
        return .5 + .2 * ((-1) ** (i // 2) if k == 0 else (-1) ** (j // 2) if k == 1 else (-1) ** (i // 2 + j // 2))
    if 18 <= i < 26 and 18 <= j < 26: return .5 + .2 * np.tanh(row.q / 2) * (1 if (i // 2 + j // 2) % 2 else -1)
    return .5 + .3 * np.tanh(row.z / 2) * np.sin(2 * np.pi * (j + .5) / 8)


@pytest.mark.parametrize("name", NAMES)
def test_marks_stand_where_they_should_pixel_by_pixel(name):
    t, recipe = draw(name, seed=7), RECIPES[name]
    wrong = np.logical_or.reduce([t[a] != t[f"seen {a}"] for a in recipe.attributes])
    t = pd.concat([t[wrong].iloc[:3], t[~wrong].iloc[:4]])
    wanted = [[[naive_mark(recipe, row, i, j) for j in range(32)] for i in range(32)] for _, row in t.iterrows()]
    assert np.abs(sc._flat(t, recipe) - wanted).max() < 1e-6


@pytest.mark.parametrize("name, size", [("shenzhen", 32), ("shenzhen", 64), ("mbrset", 48)])
def test_ground_and_noise_have_their_sizes_and_lie_upon_the_marks(name, size):
    "At the corners field and noise add to a deviation of .1; between neighbours only the noise is left."
    t = draw(name, seed=0).iloc[:600].assign(z=0., q=0.)
    at = np.arange(size) * 32 // size
    rest = cards(t, name, size=size, seed=0) / 255 - sc._flat(t, RECIPES[name])[:, at][:, :, at][..., None]
    corners, steps = rest[:, ::size - 1, ::size - 1], np.diff(rest[:, 4 * size // 32:, 4 * size // 32:], axis=1)
    assert corners.std() == pytest.approx(.1, rel=.04) and steps.std() == pytest.approx(.08 * 2 ** .5, rel=.03) and abs(rest.mean()) < .01


def test_a_cohort_is_its_table_and_its_cards():
    images, t = cohort("shenzhen", seed=3, size=33)
    assert t.equals(draw("shenzhen", seed=3)) and np.array_equal(images, cards(t, "shenzhen", size=33, seed=3))
