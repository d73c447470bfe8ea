"What a newcomer's first table, list or command gets wrong is said, with what to do."
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fairical_nb import counts, mgbi
from fairical_nb.attributes import TAXONOMY
from fairical_nb.cli import main
from fairical_nb.indicators import compare
from fairical_nb.scores import LeftOutWarning, Scores
from fairical_nb.solutions import a_posteriori, a_priori

TABLE = pd.DataFrame({"y": [0, 1, 0, 1, 1, 0], "m": [.1, .4, .45, .8, .3, .2], "sex": list("fmmfmf")})
LABELS = pd.DataFrame({"prompt_id": list("aabbccdd"), "trigger": [""] * 4 + ["poor"] * 4, "gender": ["female", "male"] * 4, "age": ["young", "elderly"] * 4, "race": ["Asian", "White"] * 4})


@pytest.mark.parametrize("change, words", [
    (lambda d: d.rename(columns={"y": "label"}), "it has ['label', 'm', 'sex']: say which one holds the ground truth, y=... (--y)"),
    (lambda d: d.rename(columns={"y": "Y"}), "did you mean 'Y'? Name it as the ground truth"),
    (lambda d: d.assign(y=["no", "yes"] * 3), "positive_label='no' or positive_label='yes' (--positive-label)"),
    (lambda d: d.assign(y=["yes", "no"] * 3), "positive_label='yes' or positive_label='no' (--positive-label)"),
    (lambda d: d.assign(age=20.5), "if 'age' is no model, name those that are (models=[...], --model)"),
    (lambda d: d.assign(m=d["m"] * 100), "must lie in [0, 1], but rows 0, 1, 2, 3, 4, ... are 10, 40, 45, 80, 30"),
    (lambda d: d[["y", "sex"]], "no column holds decimal numbers; beside the truth there are ['sex']")])
def test_a_table_that_is_nearly_right(tmp_path, change, words):
    change(TABLE).to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(ValueError, match=re.escape(words)) as e: Scores.load(tmp_path / "s.csv")
    assert str(e.value).startswith(str(tmp_path / "s.csv"))


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_cells_that_are_not_separated_by_commas(tmp_path, sign):
    TABLE.to_csv(tmp_path / "s.csv", index=False, sep=sign)
    with pytest.raises(ValueError, match=re.escape(f"separated by {sign!r}, but commas are needed")): Scores.load(tmp_path / "s.csv")


@pytest.mark.parametrize("named, near", [(dict(models=["M"]), "'m'"), (dict(attributes=["sexe"]), "'sex'")])
def test_a_column_under_nearly_its_name(named, near):
    with pytest.raises(ValueError, match=f"did you mean {near}"): Scores.from_frame(TABLE, **named)


def test_the_index_that_pandas_writes_is_no_attribute(tmp_path):
    TABLE.to_csv(tmp_path / "s.csv")
    with pytest.warns(LeftOutWarning, match="index=False"): s = Scores.load(tmp_path / "s.csv")
    assert list(s.models) == ["m"] and list(s.attributes) == ["sex"]
    TABLE.rename(columns={"sex": "NA"}).to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(Scores.load(tmp_path / "t.csv").attributes) == ["NA"]


def test_both_columns_of_predict_proba():
    with pytest.raises(ValueError, match=re.escape("predict_proba(X)[:, 1]")): Scores({"m": np.full((6, 2), .5)}, TABLE["y"], {"sex": TABLE["sex"]})


@pytest.mark.parametrize("given", ["scores.csv", TABLE, [.1, .2]])
def test_what_is_no_scores_is_said_so(given):
    with pytest.raises(ValueError, match="read a file with scores.Scores.load"): a_posteriori(given, ["acc", "eod+sex"])
    prior = a_posteriori(Scores.from_frame(TABLE), ["acc", "eod+sex"])
    with pytest.raises(ValueError, match="read a file with scores.Scores.load"): a_priori(given, prior)


def test_why_a_metric_is_undefined_is_said_with_the_group():
    one_sided = TABLE.assign(y=[0, 1, 0, 0, 1, 0]) # no woman is positive
    with pytest.raises(ValueError, match=r"eod\+sex is undefined for model 'm' .*; group 'f' has no positives\)"): a_posteriori(Scores.from_frame(one_sided), ["acc", "eod+sex"])
    with pytest.raises(ValueError, match=r"; group 'f' has no positives\)"): a_posteriori(Scores.from_frame(one_sided), ["acc", "eod+sex"], front_only=True)
    prior = a_posteriori(Scores.from_frame(TABLE), ["acc", "eod+sex"])
    with pytest.raises(ValueError, match=r"; group 'f' has no positives\)"): a_priori(Scores.from_frame(one_sided), prior)


def test_what_compare_takes():
    s = Scores.from_frame(TABLE)
    found = a_posteriori(s, ["acc", "eod+sex"])
    for given in ([found], found, "solutions.json"):
        with pytest.raises(ValueError, match="systems must be a dict"): compare(given)
    with pytest.raises(ValueError, match="system 'mine' is Scores: find its operating points first"): compare({"mine": s})


@pytest.mark.parametrize("given", ["labels.csv", LABELS.to_dict("records")])
def test_labels_are_a_table(given):
    with pytest.raises(ValueError, match="read a file with counts.read_labels"): mgbi.mgbi(given, TAXONOMY)


@pytest.mark.parametrize("word", ["undetermined", "Unknown", "n/a", "?"])
def test_a_word_for_no_label_is_an_empty_cell(word):
    with pytest.raises(ValueError, match="leave the cell empty"): counts.tally(LABELS.assign(gender=["female", word] * 4), TAXONOMY)


@pytest.mark.parametrize("word", ["neutral", "Neutral", "neutrals"])
def test_neutral_prompts_have_an_empty_trigger(word):
    with pytest.raises(ValueError, match=f"if '{word}' are the neutral ones, leave their context empty"): counts.tally(LABELS.replace({"trigger": {"": word}}), TAXONOMY)


@pytest.fixture
def run(tmp_path, monkeypatch):
    TABLE.to_csv(tmp_path / "scores.csv", index=False)
    LABELS.to_csv(tmp_path / "labels.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(main, list(args))


@pytest.mark.parametrize("args, words", [
    (("solve", "scores.csv"), "column 'gender' is not in the table; it has ['y', 'm', 'sex'] (asked for by the metric eod+gender, -m)"),
    (("solve", "scores.csv", "-m", "acc,eod+sex"), "on a terminal, its own -m"),
    (("evaluate", "scores.csv"), "solve it first (fairical-nb solve)"),
    (("evaluate", "raw.json"), "this one holds scores, so solve it first"),
    (("pareto", "out/scores.json", "-p", "-o", "front.png"), "front.png: is the folder"),
    (("mgbi", "bare.csv"), "--cluster ''")])
def test_commands_that_are_nearly_right(run, args, words):
    Scores.from_frame(TABLE).save(Path("raw.json"))
    LABELS.drop(columns="prompt_id").to_csv("bare.csv", index=False)
    assert run("solve", "scores.csv", "-m", "acc", "-m", "eod+sex", "-o", "out").exit_code == 0
    done = run(*args)
    assert done.exit_code == 2 and words in done.stderr.splitlines()[-1], done.output


def test_an_attribute_that_the_table_lacks_is_missed_aloud(run):
    LABELS.rename(columns={"gender": "Gender"}).to_csv("other.csv", index=False)
    said = "has no column gender, so the index is over age, race"
    assert said in run("mgbi", "other.csv").stderr
    assert said not in run("mgbi", "other.csv", "-a", "age", "-a", "race").stderr and said not in run("mgbi", "labels.csv").stderr


def test_the_list_of_commands_is_not_cut_short(run):
    text = run("--help").output.partition("Commands:")[2]
    assert set(main.commands) <= set(re.findall(r"^  ([a-z-]+)  ", text, re.M)) and "..." not in text, text


@pytest.mark.parametrize("name, ours", [("accuracy", "acc"), ("balanced_accuracy", "bal_acc"), ("Precision", "prec"), ("recall", "rec"), ("f1_score", "f1"), ("roc_auc_score", "roc_auc"),
                                        ("average_precision", "avg_prec"), ("true positive rate", "tpr"), ("specificity", "tnr"), ("equalized_odds_difference+sex", "eod"),
                                        ("equalized_odds_ratio+sex", "eor"), ("demographic-parity+sex", "dpd"), ("demographic_parity_ratio+sex", "dpr"), ("minmaxd+accuracy+sex", "acc")])
def test_names_of_other_libraries_lead_to_ours(name, ours):
    with pytest.raises(ValueError, match=f"did you mean '{ours}'"): a_posteriori(Scores.from_frame(TABLE), ["acc" if "+" in name else "eod+sex", name])


@pytest.mark.parametrize("sign", "-_:/. ")
def test_an_attribute_follows_after_a_plus(sign):
    with pytest.raises(ValueError, match=re.escape("follows after a plus, as in 'dpd+sex'")): a_posteriori(Scores.from_frame(TABLE), ["acc", f"dpd{sign}sex"])
