"""References, glossary and change log: nothing missing, nothing twice, nothing unused."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pybtex.database import Entry, parse_file
from pybtex.plugin import find_plugin

import hmmlib

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
BUILT = ROOT / "_build" / "html" / "book" / "references.html"

PAPER = [
    "Arora", "Chen", "Chiu", "Devlin", "Ethayarajh", "Gao", "Giulianelli", "Gruber", "Hambardzumyan", "HaoChen",
    "Hewitt", "Jawahar", "Jiang", "Joshi", "Kim", "Koller", "Kupiec", "Lee", "Lester", "Levine",
    "Li", "Peters", "Qin", "Rabiner", "Radford", "Raffel", "Rogers", "Saunshi", "Schick", "Schick",
    "Shin", "Sinha", "Sukhbaatar", "Tenney", "Tenney", "Tosh", "Tosh", "Wei", "Weston", "Zhang",
    "Zhong",
]  # fmt: skip
"""First authors of the paper's references, 1 to 41."""

SAME_AUTHOR = {29: "cloze", 30: "size", 34: "pipeline", 35: "context", 36: "topic", 37: "multi-view"}
"""A word of the title, where the first author alone does not tell two references apart."""


def entries() -> dict[str, Entry]:
    return dict(parse_file(BOOK / "references.bib", "bibtex").entries)


def number(entry: Entry) -> int | None:
    """The paper's number of an entry, None for one that the paper does not cite."""
    found = re.fullmatch(r"paper-(\d\d)", entry.fields.get("keywords", ""))
    return int(found[1]) if found else None


def cited(text: str) -> list[str]:
    """Keys of all citations in MyST text."""
    keys = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
    return [key.strip() for part in keys for key in part.split(",")]


def pages() -> dict[str, str]:
    return {path.name: path.read_text() for folder in ("book", "notebooks") for path in (ROOT / folder).glob("*.md")}


def test_each_number_of_the_paper_is_there_once():
    numbers = [number(entry) for entry in entries().values()]
    assert Counter(n for n in numbers if n) == Counter(range(1, 42))
    assert all(n or "keywords" not in entry.fields for n, entry in zip(numbers, entries().values(), strict=True))
    for entry in entries().values():
        if n := number(entry):
            assert entry.persons["author"][0].last_names == [PAPER[n - 1]], n
            assert SAME_AUTHOR.get(n, "") in entry.fields["title"].lower(), n


def test_the_page_counts_as_the_paper_does():
    """The list is sorted by the style `plain`, and numbered in that order."""
    assert ':filter: keywords % "paper-"\n:style: plain\n' in (BOOK / "references.md").read_text()
    style = find_plugin("pybtex.style.formatting", "plain")()
    listed = style.sort([entry for entry in entries().values() if number(entry)])
    assert [number(entry) for entry in listed] == list(range(1, 42))


@pytest.mark.skipif(not BUILT.is_file(), reason="no book here: run `make book`")
def test_the_built_page_shows_the_papers_numbers():
    shown = re.findall(r'<span class="label">.*?\[</span>(.*?)<.*?<p>(.*?)</p>', BUILT.read_text(), re.DOTALL)
    assert [label for label, _ in shown[:41]] == [str(n) for n in range(1, 42)]
    for name, (_, text) in zip(PAPER, shown, strict=False):
        assert name in text, (name, text)
    assert len(shown) == len(entries()), "an entry that no page of the book cites"


def test_every_citation_has_an_entry():
    known = set(entries())
    for name, text in pages().items():
        assert set(cited(text)) <= known, (name, set(cited(text)) - known)
    assert cited("{cite}`a2020b, c` and {cite:t}`d`") == ["a2020b", "c", "d"]


def test_no_entry_is_unused():
    used = {key for text in pages().values() for key in cited(text)}
    assert {key for key, entry in entries().items() if not number(entry)} <= used


def test_entries_say_where_a_work_is_to_be_found():
    for key, entry in entries().items():
        places = {"booktitle", "journal", "publisher", "howpublished", "eprint"} & set(entry.fields)
        assert places or key == "jordan2024muon", key
        assert re.fullmatch(r"(19|20)\d\d", entry.fields["year"]), key
        assert re.fullmatch(r"\d{4}\.\d{4,5}", entry.fields.get("eprint", "0000.0000")), key
        assert entry.fields["year"] in key or number(entry), key


def test_what_came_after_is_cited_group_by_group():
    _, *groups = re.split(r"^## ", (BOOK / "what-came-after.md").read_text(), flags=re.MULTILINE)
    groups = [group.split("\n---")[0] for group in groups]
    works = [key for group in groups for key in cited(group)]
    assert len(groups) >= 5
    assert 18 <= len(works) <= 28
    assert len(set(works)) == len(works)
    for group in groups:
        points = re.findall(r"^- (.+)$", group, re.MULTILINE)
        assert len(points) >= 2
        assert all(len(cited(point)) == 1 for point in points)
        assert group.count("**Try:**") == 1
    for key in works:
        assert number(entries()[key]) is None, f"{key} came before the paper"
        assert int(entries()[key].fields["year"]) >= 2021, key


def terms(text: str) -> list[tuple[str, str]]:
    """Terms of a MyST glossary and their definitions."""
    body = re.search(r"^```\{glossary\}\n:sorted:\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^(\S.*)\n  (\S.*)$", body, re.MULTILINE)


def test_glossary_has_each_term_once_and_says_where_it_comes_from():
    found = terms((BOOK / "glossary.md").read_text())
    names = [name for name, _ in found]
    assert 25 <= len(names) <= 60
    assert names == sorted(set(names))
    for name, meaning in found:
        targets = re.findall(r"\]\(([^)]+)\)", meaning)
        assert targets, name
        assert all((BOOK / target).is_file() for target in targets), (name, targets)


def test_companion_is_cited_as_its_metadata_say():
    page = (BOOK / "cite.md").read_text()
    metadata = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    fields = dict(re.findall(r"^  (\w+) += \{(.+)\},?$", page, re.MULTILINE))
    assert re.sub(r"[{}]", "", fields["title"]) == metadata["title"]
    assert fields["version"] == metadata["version"]
    assert fields["url"] == metadata["repository-code"]
    assert fields["year"] == str(metadata["date-released"])[:4]
    assert fields["author"].strip("{}") == metadata["authors"][0]["name"]
    start = re.search(r':start-at: "(.+)"', page)[1]
    assert (BOOK / "references.bib").read_text().count(start) == 1


def test_change_log_knows_this_version_and_the_names_that_stay_put():
    text = (ROOT / "CHANGELOG.md").read_text()
    version = hmmlib.__version__
    assert re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE)
    assert text.index("## [Unreleased]") < text.index(f"## [{version}]")
    promised = re.search(r"\*\*Names that stay put\.\*\*(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    names = set(re.findall(r"`([A-Za-z]\w+)`", promised)) - {"sample", "embed", "H_1"}
    assert len(names) >= 18
    assert names <= set(hmmlib.__all__)
    assert all(hasattr(model, method) for model in (hmmlib.HMM, hmmlib.MemoryHMM) for method in ("sample", "embed"))
    start = re.search(r":start-after: (.+)", (BOOK / "changes.md").read_text())[1]
    assert text.count(start) == 1
