"The prompt sets: committed files are what the seed makes; disjoint, unique, balanced, with the right article; and sets of one's own."
import random
import re
from collections import Counter

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from fairical_nb import prompt_grid
from fairical_nb.attributes import TAXONOMY
from fairical_nb.prompt_grid import FACTORS, TEMPLATE, article, draw_rows, fill
from fairical_nb.prompts import SETS, TRIGGERS, WORDS, evaluation, make_sets, named_classes, near_duplicates, prompt_set, write_sets

LEVELS = list(FACTORS)


@pytest.fixture(scope="module")
def sets(): return {name: prompt_set(name) for name in SETS}


def test_the_committed_files_are_what_the_seed_makes(root, tmp_path):
    for path in write_sets(tmp_path): assert path.read_bytes() == (root / "data/prompts" / path.name).read_bytes(), path.name


def test_another_seed_makes_others():
    first, second = (make_sets(seed=s, train=50, each_class=1)["train"]["prompt"] for s in (0, 1))
    assert len(set(first) & set(second)) < 10


def test_the_files_are_small_and_have_a_card(root):
    assert sum(f.stat().st_size for f in (root / "data/prompts").iterdir()) < 2_500_000
    card = (root / "data/prompts/README.md").read_text()
    for part in ("Out-of-scope use", "Limitations", "Intended use", "Source"):
        assert len(re.search(rf"## {part}\n\n(.*?)(?=\n## |\Z)", card, re.S)[1]) > 80


def test_numbers(sets):
    assert {n: len(t) for n, t in sets.items()} == {"eval": 750, "train": 10_000, "gen": 300}
    assert sets["eval"]["trigger"].value_counts().to_dict() == {"": 300} | {t: 50 for t in TRIGGERS}
    assert set(sets["train"]["trigger"]) == set(sets["gen"]["trigger"]) == {""}
    assert len(TRIGGERS) == 9 and Counter(TRIGGERS.values()) == {("warmth", "+"): 3, ("warmth", "-"): 1, ("competence", "+"): 3, ("competence", "-"): 2}


def test_no_prompt_and_no_id_twice_in_any_set(sets):
    together = pd.concat(sets.values())
    assert together["prompt"].str.casefold().is_unique and together["prompt_id"].is_unique


def test_no_row_of_the_grid_is_in_two_sets(sets):
    rows = {n: set(map(tuple, t[LEVELS].to_numpy())) for n, t in sets.items()}
    assert not rows["eval"] & rows["train"] and not rows["eval"] & rows["gen"] and not rows["train"] & rows["gen"]
    assert (len(rows["eval"]), len(rows["train"]), len(rows["gen"])) == (300, 10_000, 300)


def test_triggers_are_asked_with_the_same_rows(sets):
    rows = {s: t[LEVELS].to_numpy().tolist() for s, t in sets["eval"].groupby("trigger")}
    for trigger in TRIGGERS: assert rows[trigger] == rows[""][:50]
    one = sets["eval"].set_index("prompt_id")["prompt"]
    for trigger in TRIGGERS:
        neutral = one["eval-neutral-007"]
        assert one[f"eval-{trigger}-07"].replace(f" {article(trigger)} {trigger} ", " a ") == neutral


@pytest.mark.parametrize("name", SETS)
def test_every_level_is_equally_often_in_every_context(sets, name):
    for _, part in sets[name].groupby("trigger"):
        for factor, levels in FACTORS.items(): assert set(part[factor].value_counts()) == {len(part) // len(levels)} and set(part[factor]) == set(levels)


def test_every_joint_class_is_asked_for_ten_times(sets):
    assert set(sets["gen"].groupby(["gender", "age", "race"]).size()) == {10}
    assert {a: tuple(c) for a, c in WORDS.items()} == TAXONOMY
    for row in sets["gen"].itertuples():
        assert any(w in row.prompt for w in WORDS["race"][row.race]) and f" {WORDS['gender'][row.gender][0]} " in row.prompt and WORDS["age"][row.age][0] in row.prompt


def test_articles(sets):
    for prompt in pd.concat(sets.values())["prompt"]:
        for a, word in re.findall(r"\b(an?) (\S+)", prompt): assert a == ("an" if word[0].lower() in "aeiou" else "a"), prompt  # no level begins with a silent h or the u of "uniform"
        assert "  " not in prompt and "{" not in prompt and not prompt.startswith(" ")


@pytest.mark.parametrize("word, right", [("unprofessional", "an"), ("uniform", "a"), ("unique", "a"), ("unintelligent", "an"), ("unimportant", "an"), ("unidentified", "an"), ("honest", "an"), ("hour", "an"), ("happy", "a"),
                                         ("European", "a"), ("one-eyed", "a"), ("onerous", "an"), ("useful", "a"), ("ugly", "an"), ("8-year-old", "an"), ("11-year-old", "an"), ("18-year-old", "an"),
                                         ("80-year-old", "an"), ("110-year-old", "a"), ("1-year-old", "a"), ("Indian", "an"), ("umbrella", "an"), ("usual", "a"), ("utter", "an"), ("user", "a")])
def test_the_article_follows_the_sound(word, right): assert article(word) == right


def test_no_level_speaks_of_what_is_measured():
    spoken = {w.casefold() for levels in FACTORS.values() for level in levels for w in re.findall(r"[a-z]+", level.casefold())} | set(re.findall(r"[a-z]+", re.sub(r"{\w+}", "", TEMPLATE)))
    measured = {w.casefold() for words in WORDS.values() for options in words.values() for o in options for w in o.split()} | {c.casefold() for cs in TAXONOMY.values() for c in cs} | set(TRIGGERS)
    assert not spoken & (measured | {"woman", "man", "boy", "girl", "old"})


# Sets of one's own

@given(st.lists(st.text("abcdefgh", min_size=2, max_size=6), min_size=1, max_size=4, unique=True), st.integers(1, 6), st.integers(0, 6), st.integers(0, 999), st.booleans())
@settings(max_examples=25)
def test_any_triggers(triggers, each, more, seed, matched):
    table, used = evaluation(random.Random(seed), triggers=triggers, neutral=each + more, each=each, matched=matched)
    assert table["trigger"].value_counts().to_dict() == {"": each + more} | {t: each for t in triggers}
    assert table["prompt"].is_unique and table["prompt_id"].is_unique
    assert len(set(used)) == len(used) == (each + more if matched else each * (len(triggers) + 1) + more)


@given(st.integers(1, 300), st.integers(0, 999))
@settings(max_examples=25)
def test_draws_are_balanced_and_free_of_what_is_taken(n, seed):
    rng = random.Random(seed)
    taken = draw_rows(FACTORS, 200, rng)
    rows = draw_rows(FACTORS, n, rng, taken=taken)
    assert len(set(rows)) == n and not set(rows) & set(taken)
    for column, levels in zip(zip(*rows), FACTORS.values()):
        count = [Counter(column)[v] for v in levels]
        assert max(count) - min(count) <= 1


def test_another_language_and_template():
    factors = {"luz": ("la luz del día", "la luz de la tarde"), "fondo": ("gris", "azul", "verde")}
    table, _ = evaluation(random.Random(0), triggers=["amable"], factors=factors, template="una foto de una persona {trigger} con {luz}, fondo {fondo}", neutral=4, each=2)
    assert table["prompt"].iloc[4].startswith("una foto de una persona amable con la luz")
    assert "  " not in "".join(table["prompt"])
    made = make_sets(factors=factors, template="persona {trigger} {luz} {fondo}", triggers=["amable"], neutral=2, each=1, train=2)
    assert len(made["gen"]) == 0 and not set(made["train"]["prompt"]) & set(made["eval"]["prompt"])


def test_a_file_of_ones_own_overrides(tmp_path):
    mine = tmp_path / "prompts"
    mine.mkdir()
    (mine / "eval.csv").write_text("prompt,trigger,note\na person,,x\na poor person,poor,y\n")
    found = prompt_set("eval", data_dir=tmp_path)
    assert found.columns.tolist() == ["prompt_id", "prompt", "trigger", "note"] and found["trigger"].tolist() == ["", "poor"]
    assert prompt_set(mine / "eval.csv").equals(found)


@pytest.mark.parametrize("text, says", [("prompt,trigger\na,\nA ,\n", "repeat a prompt"), ("words\na\n", "no column 'prompt'"), ("prompt\n \n", "no prompt below"), ("prompt,trigger\n ,poor\n", "1 rows have no prompt"), ("prompt,prompt_id\na,1\nb,1\n", "repeat a prompt_id")])
def test_bad_files_are_refused(tmp_path, text, says):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=says): prompt_set(tmp_path / "x.csv")


def test_an_unknown_set_names_the_known_ones(tmp_path):
    with pytest.raises(FileNotFoundError, match="eval, train, gen"): prompt_set("test")
    with pytest.raises(FileNotFoundError, match="write_sets"): prompt_set("eval", data_dir=tmp_path)


@pytest.mark.parametrize("options, says", [({"template": "a person"}, "no {trigger}"), ({"neutral": 3}, "more than neutral"), ({"factors": {"x": ("a", "b")}, "template": "{trigger} {x}"}, "free cells"), ({"template": "{trigger} {mood}"}, "asks for 'mood'")])
def test_impossible_sets_are_refused(options, says):
    with pytest.raises(ValueError, match=says): evaluation(random.Random(0), **options)


def test_a_full_grid_is_drawn_or_refused_and_never_hangs():
    little = {"x": tuple("ab"), "y": tuple("cd")}
    assert len(draw_rows(little, 4, random.Random(0))) == 4
    with pytest.raises(ValueError, match="free cells"): draw_rows(little, 5, random.Random(0))
    with pytest.raises(ValueError, match="no balanced draw"): draw_rows(little, 2, random.Random(0), taken=[("a", "c"), ("a", "d")])


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5).map(" ".join), min_size=2, max_size=8), st.sampled_from([.3, .5, .8, 1.]))
@settings(max_examples=40)
def test_near_duplicates_are_jaccards(texts, threshold):
    sets = [set(t.split()) for t in texts]
    want = {(i, j) for i in range(len(sets)) for j in range(i + 1, len(sets)) if len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= threshold}
    assert {(i, j) for i, j in zip(*(near_duplicates(texts, threshold=threshold)[c] for c in ("first", "second")))} == want


def test_fill_needs_all_names_and_leaves_no_gap():
    with pytest.raises(ValueError, match="'trigger'"): fill("{a} {trigger} person", {})
    assert fill("{a} {trigger} person {x}, here", {"trigger": "", "x": ""}) == "a person, here"


@pytest.mark.filterwarnings("error")
def test_no_texts_and_texts_without_words_are_like_none():
    assert len(near_duplicates([])) == len(near_duplicates([], ["a person"])) == len(near_duplicates(["a person"], [])) == 0
    assert near_duplicates(["", "a person", "", "a person"], threshold=.1)[["first", "second"]].values.tolist() == [[1, 3]]


# What wrong code would have passed

@pytest.mark.parametrize("word, right", [("8", "an"), ("80", "an"), ("11", "an"), ("110", "a"), ("18", "an"), ("180", "a"), ("hotel", "a"), ("house", "a"), ("hourly", "an"), ("once", "a"), ("oncology", "an"), ("honour", "an"), ("heir", "an"), ("European", "a")])
def test_articles_of_numbers_and_of_words_that_sound_otherwise(word, right): assert article(word) == right


@pytest.mark.parametrize("word, meaning", [("aggressive", "warmth -"), ("compassionate", "warmth +"), ("gentle", "warmth +"), ("intelligent", "competence +"), ("poor", "competence -"), ("professional", "competence +"), ("successful", "competence +"), ("trustworthy", "warmth +"), ("unprofessional", "competence -")])
def test_what_each_trigger_stands_for(word, meaning): assert " ".join(TRIGGERS[word]) == meaning


def test_capitals_of_what_is_filled_in_stay():
    assert fill("{a} {x} person", {"x": "Middle Eastern"}) == "a Middle Eastern person" and fill("{a} {x} person", {"x": "Indian"}) == "an Indian person"


@pytest.mark.parametrize("each", [1, 2, 5])
def test_the_words_of_a_class_take_turns(each):
    found = named_classes(each)
    assert len(found) == 30 * each and Counter((f["gender"], f["age"], f["race"]) for f in found) == {(g, a, r): each for g in WORDS["gender"] for a in WORDS["age"] for r in WORDS["race"]}
    assert [f["subject"] for f in found if (f["gender"], f["age"], f["race"]) == ("male", "middle", "Others")] == [f"middle-aged {('Middle Eastern', 'Latin American')[k % 2]} man" for k in range(each)]


@pytest.mark.parametrize("failures", [0, 1, 19, 20])
def test_a_draw_is_tried_twenty_times(monkeypatch, failures):
    tries = iter([False] * failures + [True] * 20)
    monkeypatch.setattr(prompt_grid, "_untangled", lambda rows, seen, rng: next(tries))
    if failures < 20: assert len(draw_rows({"x": "ab", "y": "cd"}, 3, random.Random(0))) == 3
    else:
        with pytest.raises(ValueError, match="in 20 tries"): draw_rows({"x": "ab", "y": "cd"}, 3, random.Random(0))


@pytest.mark.parametrize("n", [1, 9, 10, 100])
def test_ids_of_a_file_of_ones_own_count_from_1_in_as_many_digits_as_needed(tmp_path, n):
    (tmp_path / "mine.csv").write_text("prompt\n" + "".join(f"person {k}\n" for k in range(n)))
    assert prompt_set(tmp_path / "mine.csv")["prompt_id"].tolist() == [f"mine-{k:0{len(str(n))}d}" for k in range(1, n + 1)]


@pytest.mark.parametrize("text, says", [("prompt,prompt_id\na,1\n ,2\n", "1 rows have no prompt, the first is row 1"), ("prompt,prompt_id\na,1\nb,\n", "1 rows have no prompt_id, the first is row 1"), ("prompt,prompt_id\na,x\nb,X \n", "1 rows repeat a prompt_id, the first is row 1: 'X '"), ("prompt\na\nb\n A\n", "1 rows repeat a prompt, the first is row 2: ' A'")])
def test_the_row_that_is_wrong_is_named(tmp_path, text, says):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=says): prompt_set(tmp_path / "x.csv")


def test_ids_have_no_blanks():
    table, _ = evaluation(random.Random(0), triggers=["very old"], neutral=2, each=1)
    assert table["prompt_id"].tolist() == ["eval-neutral-1", "eval-neutral-2", "eval-very-old-1"]


def test_near_duplicates_stand_most_similar_first_then_in_their_order_from_nine_tenths_on():
    ten = " ".join("abcdefghij")
    texts = [ten, ten[:-2], f"{ten} k", ten, "b a", "a b"]
    found = near_duplicates(texts)
    assert found[["first", "second"]].values.tolist() == [[0, 3], [4, 5], [0, 2], [2, 3], [0, 1], [1, 3]] and found["similarity"].tolist() == pytest.approx([1, 1, 10 / 11, 10 / 11, .9, .9])
