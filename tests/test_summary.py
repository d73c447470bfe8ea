"The page and the table with every printed number beside ours."
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
