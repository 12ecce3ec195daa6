"""What one looks up: references, glossary, how to cite, and an entry for each public name."""

import re

import api_reference as reference
import pytest
import yaml
from built_book import ROOT, chapters
from companion.evidence.statements import STATEMENTS
from pybtex.database import Entry, parse_file
from pybtex.plugin import find_plugin

import hmmlib

BOOK = ROOT / "book"
ENTRIES = dict(parse_file(BOOK / "references.bib", "bibtex").entries)
PAGES = [path.read_text() for folder in ("book", "notebooks") for path in (ROOT / folder).glob("*.md")]


def number(entry: Entry) -> int | None:
    """The paper's number of an entry, None for one that the paper does not cite."""
    found = re.fullmatch(r"paper-(\d\d)", entry.fields.get("keywords", ""))
    return int(found[1]) if found else None


def cited(text: str) -> set[str]:
    """Keys of all citations in MyST text."""
    keys = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
    return {key.strip() for part in keys for key in part.split(",")}


def test_the_list_of_references_is_numbered_as_the_papers():
    """It is sorted by the style `plain`, and numbered in that order."""
    assert ':filter: keywords % "paper-"\n:style: plain\n' in (BOOK / "later-work.md").read_text()
    style = find_plugin("pybtex.style.formatting", "plain")()
    listed = style.sort([entry for entry in ENTRIES.values() if number(entry)])
    assert [number(entry) for entry in listed] == list(range(1, 42))


def test_every_citation_has_an_entry_and_every_entry_a_citation_a_year_and_a_place():
    used = set().union(*map(cited, PAGES))
    assert used <= set(ENTRIES)
    assert {key for key, entry in ENTRIES.items() if not number(entry)} <= used
    for key, entry in ENTRIES.items():
        places = {"booktitle", "journal", "publisher", "howpublished", "eprint"} & set(entry.fields)
        assert places or key == "jordan2024muon", key
        assert re.fullmatch(r"\d{4}\.\d{4,5}", entry.fields.get("eprint", "0000.0000")), key
        assert entry.fields["year"] in key or number(entry), key


def test_the_glossary_has_each_term_once_and_names_where_it_comes_from():
    text = (BOOK / "notation.md").read_text()
    body = re.search(r"^```\{glossary\}\n:sorted:\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    terms = re.findall(r"^(\S.*)\n  (\S.*)$", body, re.MULTILINE)
    names = [name for name, _ in terms]
    assert names == sorted(set(names)) != []
    for name, meaning in terms:
        targets = re.findall(r"\]\(([^)]+)\)", meaning)
        assert targets, name
        assert all((BOOK / target).is_file() for target in targets), (name, targets)


def test_the_companion_is_cited_as_its_metadata_are():
    metadata = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    fields = dict(re.findall(r"^  (\w+) += \{(.+)\},?$", (BOOK / "later-work.md").read_text(), re.MULTILINE))
    assert re.sub(r"[{}]", "", fields["title"]) == metadata["title"]
    assert fields["version"] == metadata["version"] == hmmlib.__version__
    assert fields["url"] == metadata["repository-code"]
    assert fields["year"] == str(metadata["date-released"])[:4]


# The reference of hmmlib

LISTED = re.compile(r"^\.\. (?:auto(?:function|class|exception|method)|py:data):: hmmlib\.(\S+)$", re.MULTILINE)


def test_every_name_at_the_root_has_one_entry_on_a_page_of_the_book():
    pages = sorted(BOOK.glob("api*.md"))
    names = [name for page in pages for name in LISTED.findall(page.read_text())]
    assert len(names) == len(set(names))
    assert set(hmmlib.__all__) <= set(names)
    assert {f"book/{page.stem}" for page in pages} <= set(chapters())


@pytest.mark.parametrize("name", [n for n in hmmlib.__all__ if reference.statement_of(n)])
def test_a_statement_and_its_function_lead_to_each_other(name):
    statement = reference.statement_of(name)
    assert statement in {known.name for known in STATEMENTS}
    assert name in reference.CONSTRUCTS or reference.function_of(statement) == name


def test_what_has_no_statement_gets_none_and_plain_text_is_marked_up():
    assert reference.statement_of("theorem_9_9") is reference.statement_of("posterior") is None
    assert reference.function_of("Lemma D.13") is None
    assert reference.marked_up("P[X_i | X_-i], H* and `n_tokens`; `posterior`, (|S*|, M)") == (
        r"P[X_i \| X\_-i], H\* and ``n_tokens``; :py:obj:`~hmmlib.posterior`, (\|S\*\|, M)"
    )
