"""The built book, as files: every page there, numbers as in the paper, nothing unresolved, no other host asked.

Needs `make book` first; in CI it is never skipped.
"""

import json
import os
import re
from functools import cache
from pathlib import Path

import book_setup
import built_book
import pytest
import works_map
from bs4 import BeautifulSoup, SoupStrainer
from built_book import HTML, ROOT, chapters

import notebooks as pipeline
from hmmbook.evidence.statements import STATEMENTS
from hmmbook.pages import EQUATIONS

pytestmark = built_book.needed()
REPOSITORY = os.environ.get("GITHUB_REPOSITORY")
ADDRESS = f"https://github.com/{REPOSITORY}" if REPOSITORY else pipeline.address()


@cache
class Page:
    """Links, loaded files, ids and text of a page."""

    def __init__(self, name: str):
        self.html = (HTML / f"{name}.html").read_text()
        page = BeautifulSoup(self.html, "html.parser")
        self.links = [link["href"] for link in page.select("a[href]:not([href=''])")]
        self.loaded = []
        for element in page.select(":is(script, img, source, iframe)[src]"):
            self.loaded.append(element["src"])
        for element in page.select("link:is([rel~=stylesheet], [rel~=preload], [rel~=icon])"):
            self.loaded.append(element["href"])
        self.ids = {element["id"] for element in page.select("[id]")}
        # sphinx-proof gives these two ids to each proof.
        ids = [element["id"] for element in page.select("[id]:not(#proof, #proof-content)")]
        self.ids_are_unique = len(ids) == len(set(ids))
        self.text = re.sub(r"\s+", " ", page.get_text())


def name_of(file: Path) -> str:
    """Give the name of a page, given its file."""
    return str(file.resolve().relative_to(HTML.resolve()).with_suffix(""))


@pytest.mark.parametrize("name", chapters())
def test_a_page_loads_nothing_from_another_host(name):
    page = Page(name)
    for file in page.loaded:
        assert not re.match(r"(https?:)?//", file)
        path = (HTML / name).parent / re.split("[?#]", file)[0]
        assert file.startswith("data:") or path.is_file(), file
    for script in re.findall(r"<script(?![^>]*src=)[^>]*>(.*?)</script>", page.html, re.DOTALL):
        assert not re.search(r"import\(|\.src\s*=|fetch\(", script)


@pytest.mark.parametrize("name", chapters())
def test_every_reference_and_link_of_a_page_leads_somewhere(name):
    page = Page(name)
    unresolved = r"\{(?:prf:ref|eq|cite|doc|ref|numref|glue)[^}]*\}|Traceback \(most recent call last\)|\?\?"
    assert not re.search(unresolved, page.text)
    assert page.ids_are_unique
    for link in page.links:
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:|//", link):
            continue
        target = HTML / f"{name}.html"
        if path:
            target = (HTML / name).parent / path
        assert target.exists(), link
        if anchor and target.suffix == ".html":
            assert anchor in Page(name_of(target)).ids, link


@pytest.mark.parametrize("name", chapters())
def test_links_to_github_and_colab_lead_to_this_repository(name):
    page = Page(name)
    colab = f"https://colab.research.google.com/github/{ADDRESS.removeprefix('https://github.com/')}/blob/main/"
    outside = [link for link in page.links if "github" in link]
    assert outside
    for link in outside:
        assert link.startswith((ADDRESS, colab))
    if name.startswith("notebooks/"):
        assert f"{colab}{name}.ipynb" in outside
        assert (ROOT / f"{name}.ipynb").is_file()
        example = re.search(rf"papermill {name}\.ipynb mine/out\.ipynb -p (\w+) \d", page.text)[1]
        assert re.search(rf"^{example}: ", (ROOT / f"{name}.md").read_text(), re.MULTILINE)
        assert 'class="cell_output' in page.html


@pytest.mark.parametrize("name", book_setup.MOVED)
def test_an_old_address_leads_to_the_page_or_file_that_has_its_content_now(name):
    link = Page(name).links[0]
    assert f'http-equiv="refresh" content="0; url={link}"' in Page(name).html
    if link.startswith("https:"):
        assert (ROOT / link.removeprefix(f"{ADDRESS}/blob/main/")).is_file()
    else:
        assert name_of((HTML / name).parent / link) in chapters()


def test_statements_have_the_papers_numbers_and_where_they_are_mentioned_they_are_links():
    section = Page("notebooks/3-hmm").html
    assert re.search(r'href="[^"]*#equation-paper-eq-3-1"[^>]*>\(3\.1\)', section)
    assert re.search(r'href="#paper-asm-3-1"[^>]*>.*?Assumption 3\.1', section)
    ledger = Page("book/ledger").html
    assert re.search(r'href="[^"]*3-hmm.html#paper-thm-3-3"[^>]*>Theorem 3.3<', ledger)
    assert re.search(r'#paper-thm-4-6"[^>]*>Theorems 4.6<.*?#paper-thm-D-6"[^>]*>D.6<', ledger), "of several, each"


def test_the_map_of_later_works_has_every_question():
    page_questions = works_map.questions((ROOT / "book" / "later-work.md").read_text())
    assert Page("book/later-work").html.count('class="question"') == len(page_questions) > 0


def data(name: str):
    """Read what the pages load when a reader first asks for a card."""
    script = (HTML / "_static" / "companion" / f"{name}.js").read_text()
    content = re.fullmatch(rf"companion.{name}\((.*)\);\n", script)[1]
    used_glyphs = set(re.findall(r'<use href=\\?"#([A-Z0-9]+-[0-9A-F]+)', content))
    assert used_glyphs <= set(re.findall(r'<path id=\\?"([^"\\]+)', content))
    return json.loads(content)["data"]


def test_the_ledger_and_the_cards_have_every_statement():
    ledger = Page("book/ledger")
    cards = data("statements")
    for statement in STATEMENTS:
        assert f"{statement.page.split('/')[-1]}.html#{statement.label}" in ledger.html
        assert statement.label in Page(statement.page).ids
        assert statement.name in ledger.text
        card = cards[statement.label]
        assert card["page"] == statement.page
        assert statement.name in re.sub(r"<[^>]+>", "", card["html"])
    for card in cards.values():
        assert not re.search(r"<a |<(div|p|span|section) [^>]*\bid=", card["html"]), "a card stands on any page"


def test_the_ledger_and_the_cards_have_every_equation_and_its_code():
    ledger = Page("book/ledger")
    cards = data("statements")
    for equation in EQUATIONS:
        anchor = f"equation-{equation.label}".lower()
        assert f"{equation.page.split('/')[-1]}.html#{anchor}" in ledger.html
        assert anchor in Page(equation.page).ids
        assert cards[anchor]["title"] == f"Equation ({equation.number})"
    links = set(re.findall(r"/blob/main/((?:hmmlib|book/hmmbook)/[a-z0-9_/]+\.py)#L(\d+)", ledger.html))
    assert len(links) >= 29 + 10
    for path, line in links:
        assert (ROOT / path).read_text().splitlines()[int(line) - 1].strip()


def test_the_notation_panel_has_every_letter():
    rows = Page("book/notation").html.count("<tr")
    assert data("notation").count("<tr") == rows >= 40


def test_the_ledgers_rows_say_what_was_found():
    entries = json.loads((ROOT / "build" / "ledger.json").read_text())["entries"]
    rows = re.findall(r'<tr class="ruling-([\w-]+) kind-[^>]*>(.*?)</tr>', Page("book/ledger").html, re.DOTALL)
    for entry, (ruling, row) in zip(entries, rows, strict=True):
        text = re.sub(r"<[^>]+>|\s+", " ", row)
        is_condition = entry["name"].startswith("Assumption")
        assert f"{entry['instances']:,} random models" in text
        assert f"in {entry['control_fails']} of {entry['control_instances']}" in text
        assert ruling.replace("-", " ") == ("condition" if is_condition else entry["grade"])
        for phrase, is_true in [
            ("it agrees with", is_condition),
            ("it is off in", not is_condition and entry["printed"] != entry["verdict"]),
            ("in this form", entry["corrected"]),
            ("Not needed", entry["unneeded"]),
        ]:
            assert (phrase in text) == bool(is_true), (entry["name"], phrase)


def test_the_box_of_each_numbered_result_links_to_the_line_of_its_machine_proof():
    linked = {}
    for name in {statement.page for statement in STATEMENTS}:
        boxes = BeautifulSoup(Page(name).html, "html.parser", parse_only=SoupStrainer(id=re.compile("^(paper|ours)-")))
        for box in boxes.select("div.proof"):
            link = box.select_one("p.proved a")
            if link:
                linked[box["id"]] = link["href"]
    results = {statement.label for statement in STATEMENTS if "-asm-" not in statement.label}
    assert set(linked) == results
    assert len(results) == 22 + 5
    for label, href in linked.items():
        path, line = re.search(r"/blob/main/(proofs/\w+\.v)#L(\d+)$", href).groups()
        number = label.split("-", 2)[2].replace("-", "_")
        heading = (ROOT / path).read_text().splitlines()[int(line) - 1]
        assert re.match(rf"\w+ (theorem|corollary|proposition|lemma|claim)_{number}\b", heading), label
