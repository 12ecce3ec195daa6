"""The built book, as files: every page there, numbers as in the paper, nothing unresolved, no other host asked.

Needs `make book` first; in CI it is never skipped.
"""

import json
import os
import re
from functools import cache

import book_setup
import built_book
import pytest
import works_map
from bs4 import BeautifulSoup
from built_book import HTML, ROOT, chapters
from companion.evidence.statements import STATEMENTS
from companion.pages import EQUATIONS

import notebooks as pipeline

pytestmark = built_book.needed()
REPOSITORY = os.environ.get("GITHUB_REPOSITORY")
ADDRESS = f"https://github.com/{REPOSITORY}" if REPOSITORY else pipeline.address()


@cache
class Page:
    """Links, loaded files, ids and text of a page."""

    def __init__(self, name: str):
        self.html = (HTML / f"{name}.html").read_text()
        page = BeautifulSoup(self.html, "html.parser")
        self.links = [link["href"] for link in page.select("a[href]") if link["href"]]
        self.loaded = [one["src"] for one in page.select(":is(script, img, source, iframe)[src]")]
        self.loaded += [one["href"] for one in page.select("link:is([rel~=stylesheet], [rel~=preload], [rel~=icon])")]
        self.ids = [one["id"] for one in page.select("[id]")]
        self.text = re.sub(r"\s+", " ", page.get_text())


@pytest.mark.parametrize("name", chapters())
def test_a_page_loads_nothing_from_another_host_and_every_reference_and_link_of_it_leads_somewhere(name):
    page, folder = Page(name), (HTML / name).parent
    for file in page.loaded:
        assert not re.match(r"(https?:)?//", file), file
        assert file.startswith("data:") or (folder / re.split("[?#]", file)[0]).resolve().is_file(), file
    for script in re.findall(r"<script(?![^>]*src=)[^>]*>(.*?)</script>", page.html, re.DOTALL):
        assert not re.search(r"import\(|\.src\s*=|fetch\(", script), script[:200]
    unresolved = r"\{(?:prf:ref|eq|cite|doc|ref|numref|glue)[^}]*\}|Traceback \(most recent call last\)|\?\?"
    assert not re.search(unresolved, page.text)
    ids = [one for one in page.ids if one not in ("proof", "proof-content")]  # which sphinx-proof gives to each proof
    assert len(ids) == len(set(ids))
    for link in page.links:
        path, _, anchor = link.partition("#")
        if not re.match(r"[a-z]+:|//", link):
            target = (folder / path if path else HTML / f"{name}.html").resolve()
            assert target.exists(), link
            if anchor and target.suffix == ".html":
                assert anchor in Page(str(target.relative_to(HTML.resolve()).with_suffix(""))).ids, link
    outside = [link for link in page.links if "github" in link]
    colab = f"https://colab.research.google.com/github/{ADDRESS.removeprefix('https://github.com/')}/blob/main/"
    assert outside
    assert all(link.startswith((ADDRESS, colab)) for link in outside)
    if name.startswith("notebooks/"):
        assert f"{colab}{name}.ipynb" in outside
        assert (ROOT / f"{name}.ipynb").is_file()
        example = re.search(rf"papermill {name}\.ipynb mine/out\.ipynb -p (\w+) \d", page.text)[1]
        assert re.search(rf"^{example}: ", (ROOT / f"{name}.md").read_text(), re.MULTILINE)
        assert 'class="cell_output' in page.html


def test_an_old_address_leads_to_the_page_or_file_that_has_its_content_now():
    for name in book_setup.MOVED:
        link, target = Page(name).links[0], re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', Page(name).html)
        assert link == target[1]
        file = ROOT / link.removeprefix(f"{ADDRESS}/blob/main/") if ":" in link else (HTML / name).parent / link
        assert file.is_file(), name
        assert ":" in link or str(file.resolve().relative_to(HTML.resolve()).with_suffix("")) in chapters()


def test_statements_have_the_papers_numbers_and_where_they_are_mentioned_they_are_links():
    section, index = Page("notebooks/3-hmm").html, Page("book/index").html
    assert re.search(r'href="[^"]*#equation-paper-eq-3-1"[^>]*>\(3\.1\)', section)
    assert re.search(r'href="#paper-asm-3-1"[^>]*>.*?Assumption 3\.1', section)
    assert re.search(r'href="[^"]*3-hmm.html#paper-thm-3-3"[^>]*>Theorem 3.3<', index)
    assert re.search(r'#paper-thm-3-6"[^>]*>Theorems 3.6<.*?#paper-thm-4-6"[^>]*>4.6<', index), "of several, each"
    page = (ROOT / "book" / "later-work.md").read_text()
    assert Page("book/later-work").html.count('class="question"') == len(works_map.questions(page)) > 0


def data(name: str) -> dict:
    """What the pages load when a reader first asks for a card."""
    script = (HTML / "_static" / "companion" / f"{name}.js").read_text()
    found = json.loads(re.fullmatch(rf"companion.{name}\((.*)\);\n", script)[1])
    used = set(re.findall(r'<use href=\\?"#([A-Z0-9]+-[0-9A-F]+)', json.dumps(found)))
    assert used <= set(re.findall(r'<path id=\\?"([^"\\]+)', json.dumps(found)))
    return found["data"]


def test_the_ledger_and_the_cards_have_every_statement_every_equation_and_its_code():
    ledger, cards = Page("book/ledger"), data("statements")
    for one in STATEMENTS:
        assert f"{one.page.split('/')[-1]}.html#{one.label}" in ledger.html
        assert one.label in Page(one.page).ids
        assert one.name in ledger.text
        assert cards[one.label]["page"] == one.page
        assert one.name in re.sub(r"<[^>]+>", "", cards[one.label]["html"])
    for equation in EQUATIONS:
        anchor = f"equation-{equation.label}".lower()
        assert f"{equation.page.split('/')[-1]}.html#{anchor}" in ledger.html
        assert anchor in Page(equation.page).ids
        assert cards[anchor]["title"] == f"Equation ({equation.number})"
    for card in cards.values():  # stands on any page
        assert not re.search(r"<a |<(div|p|span|section) [^>]*\bid=", card["html"])
    links = set(re.findall(r"/blob/main/((?:hmmlib|book/companion)/[a-z0-9_/]+\.py)#L(\d+)", ledger.html))
    assert len(links) >= 29 + 10
    for path, line in links:
        assert (ROOT / path).read_text().splitlines()[int(line) - 1].strip()
    assert data("notation").count("<tr") == Page("book/notation").html.count("<tr") >= 40


def test_the_ledgers_rows_say_what_was_found():
    entries = json.loads((ROOT / "build" / "ledger.json").read_text())["entries"]
    rows = re.findall(r'<tr class="ruling-([\w-]+) kind-[^>]*>(.*?)</tr>', Page("book/ledger").html, re.DOTALL)
    for entry, (ruling, row) in zip(entries, rows, strict=True):
        text, condition = re.sub(r"<[^>]+>|\s+", " ", row), entry["name"].startswith("Assumption")
        assert f"{entry['instances']:,} random models" in text
        assert f"in {entry['control_fails']} of {entry['control_instances']}" in text
        assert ruling.replace("-", " ") == ("condition" if condition else entry["grade"])
        for words, so in {
            "Exact arithmetic: no difference": entry["identity"],
            "All patterns of zeros": entry["patterns"],
            "it agrees with": condition,
            "it is off in": not condition and entry["printed"] != entry["verdict"],
            "in this form": entry["corrected"],
            "Not needed": entry["unneeded"],
        }.items():
            assert (words in text) == bool(so), (entry["name"], words)
