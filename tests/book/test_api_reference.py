"""The reference: every public name is on a page once, docstrings are shown as they read, and links go where they say."""

import re

import api_reference as reference
import good_calls
import pytest
from bs4 import BeautifulSoup
from built_book import HTML, ROOT, chapters
from companion.evidence.statements import find

import hmmlib

PAGES = sorted((ROOT / "book").glob("api*.md"))
LISTED = re.compile(
    r"^\.\. auto(?:function|class|exception|method):: hmmlib\.(\S+)$|^\.\. py:data:: hmmlib\.(\S+)$", re.M
)


def listed() -> list[str]:
    """What has an entry of its own, by the name under which it is imported."""
    return [one or other for page in PAGES for one, other in LISTED.findall(page.read_text())]


def in_tables() -> set[str]:
    """What a table has a line of, by module and name."""
    text = (ROOT / "book" / "api-notebook.md").read_text()
    blocks = re.findall(r"currentmodule:: hmmlib\.(\S+)\n.*?\n\n((?: {3}\w+\n)+)", text, re.S)
    return {f"{module}.{name}" for module, names in blocks for name in names.split()}


def test_every_name_at_the_root_has_one_entry():
    names = listed()
    assert len(names) == len(set(names))
    assert set(hmmlib.__all__) - set(names) == set()


def test_every_function_that_takes_a_readers_data_has_an_entry_or_a_line():
    known = {*listed(), *in_tables()}
    for of in good_calls.GOOD:
        name = of.__qualname__.split(".")[0]
        full = f"{good_calls.home(of)}.{name}"
        if not name.startswith("_"):  # what both models share stands with each of them
            assert {full, name} & known if name in hmmlib.__all__ else full in known, full


def test_a_missing_entry_is_noticed():
    assert "training.bert.no_such" not in {*listed(), *in_tables()}
    assert {"training.bert.build", "notebook.figures.simplex", "theorem_3_3", "MASK"} <= {*listed(), *in_tables()}


def test_all_pages_are_in_the_table_of_contents():
    assert {f"book/{page.stem}" for page in PAGES} <= set(chapters())


@pytest.mark.parametrize("name", [n for n in hmmlib.__all__ if reference.statement_of(n)])
def test_a_statement_and_its_function_lead_to_each_other(name):
    statement = reference.statement_of(name)
    assert statement in reference.LABELS
    if name not in reference.CONSTRUCTS:
        assert reference.function_of(statement) == name


def test_what_has_no_statement_gets_none():
    assert reference.statement_of("theorem_9_9") is None
    assert reference.statement_of("posterior") is None
    assert reference.function_of("Lemma D.13") is None
    assert len([name for name in hmmlib.__all__ if reference.statement_of(name)]) >= 18


def test_plain_text_is_marked_up_and_nothing_else():
    assert reference.marked_up("P[X_i | X_-i], H* and `n_tokens`; `posterior`, (|S*|, M)") == (
        r"P[X_i \| X\_-i], H\* and ``n_tokens``; :py:obj:`~hmmlib.posterior`, (\|S\*\|, M)"
    )


def test_the_entry_of_a_theorem_leads_to_its_page_and_the_ledger_leads_back():
    if not (HTML / "book" / "api-theory.html").is_file():
        pytest.skip("no book here: run `make book`")
    theory = BeautifulSoup((HTML / "book" / "api-theory.html").read_text(), "html.parser")
    ledger = (HTML / "book" / "ledger.html").read_text()
    for name in ("theorem_3_3", "theorem_4_6", "lemma_d_9", "assumption_3_5"):
        entry = str(theory.find(id=f"hmmlib.{name}").parent)
        page, label = (stated := find(reference.statement_of(name))).page, stated.label
        assert f"{page.split('/')[-1]}.html#{label}" in entry
        assert f'href="api-theory.html#hmmlib.{name}"' in ledger
    assert "hmmlib.lemma_d_13" not in ledger


def test_every_entry_is_on_a_built_page():
    if not (HTML / "book" / "api.html").is_file():
        pytest.skip("no book here: run `make book`")
    built = "".join((HTML / "book" / f"{page.stem}.html").read_text() for page in PAGES)
    for name in listed():
        assert f'id="hmmlib.{name}"' in built, name
    for name in in_tables():
        assert name.split(".")[-1] in built, name
