"The page and the table with every printed number beside ours."
import json
from html.parser import HTMLParser

import pandas as pd
import pytest

from fairical_nb import summary
from fairical_nb.files import root

VERDICTS = {"equal to the printed digits", "within its interval", "explained by a remark", "cannot agree", "missing", "not run", "not compared", "disagrees"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.headings, self.alts, self.outside, self.texts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if tag in ("h1", "h2", "h3"): self.headings.append(tag)
        if tag == "img": self.alts.append(a.get("alt") or "")
        self.outside += [v for k, v in a.items() if k in ("src", "href") and v and v.startswith(("http", "//", "file:"))]
        if tag in ("script", "link"): self.outside.append(tag)

    def handle_data(self, data): self.texts.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    "The page made from the committed results."
    folder = tmp_path_factory.mktemp("figures")
    for f in (root() / "figures").iterdir():
        if f.suffix in (".csv", ".json", ".png"): (folder / f.name).write_bytes(f.read_bytes())
    files = summary.report(folder)
    return folder, pd.read_csv(files[0]), Page(files[1].read_text(encoding="utf-8")), files[1].read_text(encoding="utf-8")


def test_every_printed_number_has_one_verdict_of_the_list(page):
    _, table, _, _ = page
    assert len(table) == len(summary.printed_numbers()) and not table.duplicated(["artefact", "system", "indicator"]).any()
    assert set(table["verdict"].str.partition(":")[0]) <= VERDICTS
    done = table.dropna(subset="ours")
    assert len(done) >= 58 and not (done["verdict"] == "disagrees").any()


def test_the_committed_table_is_that_of_the_committed_results(page):
    folder, table, _, _ = page
    committed = pd.read_csv(root() / "figures/summary.csv")
    same = ["artefact", "system", "indicator", "published", "ours", "difference", "verdict", "data"]
    pd.testing.assert_frame_equal(table[same], committed[same])


def test_the_page_needs_no_network_and_every_picture_has_words(page):
    _, _, html, text = page
    assert html.outside == [] and html.headings[0] == "h1" and set(html.headings[1:]) == {"h2"}
    assert len(html.alts) >= 15 and all(len(a) > 20 for a in html.alts)
    assert 'lang="en"' in text and str(root()) not in text


def test_a_number_that_disagrees_is_red_and_says_so(page, tmp_path):
    folder = page[0]
    for f in folder.iterdir(): (tmp_path / f.name).write_bytes(f.read_bytes())
    text = (tmp_path / "table10b.json").read_text()
    (tmp_path / "table10b.json").write_text(text.replace("equal to the printed digits", "disagrees", 1))
    files = summary.report(tmp_path)
    assert '<span class="wrong">disagrees</span>' in files[1].read_text() and (pd.read_csv(files[0])["verdict"] == "disagrees").sum() == 1


def test_what_is_here_has_a_verdict_that_no_missing_package_changes(page, monkeypatch):
    folder, table, _, _ = page
    monkeypatch.setattr(summary, "obstacles", lambda row: ["the package torch"])
    there = [a for a in table["artefact"].unique() if (folder / f"{a}.json").is_file()]
    elsewhere = summary.summarised(folder)
    assert len(there) >= 10 and (elsewhere[elsewhere["artefact"].isin(there)]["verdict"].tolist() == table[table["artefact"].isin(there)]["verdict"].tolist())
    assert not (table[table["artefact"].isin(there)]["verdict"] == "not run").any()


# What wrong code would have passed: a page of results made here

RESULT = {"artefact": "table10b", "data": "stand-in", "data in words": "", "remarks": "a <remark> of ours", "tables": {"table10b": [{"system": "first table"}], "published": [
    {"system": "System1", "indicator": "HV", "ours": .123456, "published": ".35", "difference": -.226544, "tolerance": .005, "verdict": v} for v in ("disagrees", "cannot agree: stand-in data, not real")]}}


def shown(folder, **changes):
    files = {"table10b.json": RESULT | changes}
    for name, found in files.items(): (folder / name).write_text(json.dumps(found))
    row = summary.runs("demo").loc["table10b"]
    return summary._section("table10b", row, folder, None)


def test_a_section_has_kind_remark_and_numbers_of_four_digits_and_only_what_disagrees_is_red(tmp_path):
    text = shown(tmp_path)
    assert "Made from stand-in data, not real." in text and "<p>a &lt;remark&gt; of ours</p>" in text and "<td>0.1235</td>" in text and "<td>-0.2265</td>" in text
    assert text.count('class="wrong"') == 1 and '<span class="wrong">disagrees</span>' in text and "first table" not in text
    assert "remark" not in shown(tmp_path, remarks="") and "first table" in shown(tmp_path, tables={"table10b": [{"system": "first table"}]})


@pytest.mark.parametrize("verdict", ["disagrees", "cannot agree: stand-in data, not real", "equal to the printed digits", "<b>"])
def test_a_verdict_is_red_when_it_is_disagrees_and_is_never_markup(verdict):
    text = summary._html_table(pd.DataFrame({"verdict": [verdict]}))
    assert ("wrong" in text) == (verdict == "disagrees") and "<b>" not in text


def test_the_preset_reaches_the_table_and_the_page(monkeypatch, tmp_path):
    asked, runs = [], summary.runs
    monkeypatch.setattr(summary, "runs", lambda preset: asked.append(preset) or runs("demo"))
    summary.report(tmp_path, preset="paper")
    assert asked == ["paper", "paper"]


def test_verdicts_are_counted_in_words_on_the_page(page):
    _, table, _, text = page
    for verdict, n in table["verdict"].str.partition(":")[0].value_counts().items(): assert f"{n} {verdict}" in text.partition("<nav>")[0]


def test_an_artefact_of_two_backbones_has_the_rows_of_all_its_files_and_no_others(tmp_path):
    row = lambda system: {"tables": {"published": [{"system": system, "indicator": "x", "ours": 1}, {"other": "shape"}]}}
    for name, kind in (("a", "real"), ("a_tiny_sd3", "stand-in"), ("a_tinytable", "printed"), ("ab", "real")): (tmp_path / f"{name}.json").write_text(json.dumps(row(name) | {"data": kind}))
    rows, kind = summary._ours("a", tmp_path)
    assert set(rows) == {("a", "x"), ("a_tiny_sd3", "x")} and kind == "real" and summary._ours("none", tmp_path) == ({}, "")
