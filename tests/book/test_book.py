"""The built book, as files: every page there, numbers as in the paper, nothing unresolved, no other host asked.

Needs `make book` first; in CI it is never skipped.
"""

import json
import os
import re
from functools import cache
from html.parser import HTMLParser

import built_book
import pytest
import yaml
from built_book import HTML, ROOT, chapters
from companion.evidence.statements import STATEMENTS
from companion.pages import EQUATIONS

pytestmark = built_book.needed()


class Page(HTMLParser):
    """Links, loaded files, ids and text of a page."""

    def __init__(self, name: str):
        super().__init__()
        self.links, self.loaded, self.ids, self.words = [], [], set(), []
        self.html = (HTML / f"{name}.html").read_text()
        self.feed(self.html)
        self.text = "".join(self.words)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in {"script", "img", "source", "iframe"} and found.get("src"):
            self.loaded.append(found["src"])
        if tag == "link" and {"stylesheet", "preload", "icon"} & set(found.get("rel", "").split()):
            self.loaded.append(found["href"])

    def handle_data(self, data):
        self.words.append(data)


page_of = cache(Page)
each_page = pytest.mark.parametrize("name", chapters())


@each_page
def test_nothing_is_loaded_from_another_host_and_every_reference_is_resolved(name):
    for address in page_of(name).loaded:
        assert not re.match(r"(https?:)?//", address), address
        path = (HTML / name).parent / address.split("?")[0].split("#")[0]
        assert address.startswith("data:") or path.resolve().is_file(), address
    for script in re.findall(r"<script(?![^>]*src=)[^>]*>(.*?)</script>", page_of(name).html, re.DOTALL):
        assert not re.search(r"import\(|\.src\s*=|fetch\(", script), script[:200]
    unresolved = r"\{(?:prf:ref|eq|cite|doc|ref|numref|glue)[^}]*\}|Traceback \(most recent call last\)|\?\?"
    assert not re.search(unresolved, page_of(name).text)


@each_page
def test_every_link_lands_in_the_book_or_in_its_own_repository(name):
    for link in page_of(name).links:
        if re.match(r"[a-z]+:|//", link):
            continue
        path, _, anchor = link.partition("#")
        target = (HTML / name).parent / path if path else HTML / f"{name}.html"
        assert target.resolve().exists(), link
        if anchor and target.suffix == ".html":
            page = str(target.resolve().relative_to(HTML.resolve()).with_suffix(""))
            assert anchor in page_of(page).ids, link
    address = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    if repository := os.environ.get("GITHUB_REPOSITORY"):
        address = f"https://github.com/{repository}"
    outside = [link for link in page_of(name).links if "github" in link]
    assert outside
    assert all(link.startswith(address) or link.startswith("https://colab.research.google.com") for link in outside)
    if name.startswith("notebooks/"):
        path = f"/blob/main/{name}.ipynb"
        assert (
            f"https://colab.research.google.com/github/{address.removeprefix('https://github.com/')}{path}" in outside
        )
        assert (ROOT / f"{name}.ipynb").is_file()


def test_statements_have_the_papers_numbers_and_where_they_are_mentioned_they_are_links():
    section, index = page_of("notebooks/3-hmm").html, page_of("book/index").html
    assert re.search(r'href="[^"]*#equation-paper-eq-3-1"[^>]*>\(3\.1\)', section)
    assert re.search(r'href="#paper-asm-3-1"[^>]*>.*?Assumption 3\.1', section)
    assert re.search(r'href="[^"]*3-hmm.html#paper-thm-3-3"[^>]*>Theorem 3.3<', index)
    assert re.search(r'#paper-thm-4-3"[^>]*>Theorems 4.3<.*?#paper-thm-4-6"[^>]*>4.6<', index)


def test_the_ledger_and_the_cards_have_every_statement_every_equation_and_its_code():
    ledger, folder = page_of("book/ledger"), HTML / "_static" / "companion"
    cards = json.loads(re.fullmatch(r"companion.statements\((.*)\);\n", (folder / "statements.js").read_text())[1])
    for name, shown_on, label in ((s.name, s.page, s.label) for s in STATEMENTS):
        assert f"{shown_on.split('/')[-1]}.html#{label}" in ledger.html
        assert label in page_of(shown_on).ids
        assert name in ledger.text
        assert cards["data"][label]["page"] == shown_on
        assert name in re.sub(r"<[^>]+>", "", cards["data"][label]["html"])
    for equation in EQUATIONS:
        anchor = f"equation-{equation.label}".lower()
        assert f"{equation.page.split('/')[-1]}.html#{anchor}" in ledger.html
        assert anchor in page_of(equation.page).ids
        assert cards["data"][anchor]["title"] == f"Equation ({equation.number})"
    links = set(re.findall(r"/blob/main/((?:hmmlib|book/companion)/[a-z0-9_/]+\.py)#L(\d+)", ledger.html))
    assert len(links) >= 29 + 10
    for path, line in links:
        assert (ROOT / path).read_text().splitlines()[int(line) - 1].strip()
    notation = json.loads(re.fullmatch(r"companion.notation\((.*)\);\n", (folder / "notation.js").read_text())[1])
    assert notation["data"].count("<tr") == page_of("book/notation").html.count("<tr") >= 40
    for data in (cards, notation):
        used = set(re.findall(r'<use href=\\?"#([A-Z0-9]+-[0-9A-F]+)', json.dumps(data)))
        assert used <= set(re.findall(r'<path id=\\?"([^"\\]+)', json.dumps(data)))


@pytest.mark.parametrize("name", [name for name in chapters() if name.startswith("notebooks/")])
def test_each_notebooks_page_says_how_long_and_where_to_rerun_it(name):
    text = re.sub(r"\s+", " ", page_of(name).text)
    assert re.search(
        r"(\d+) min to read · the paper(, (Section|Appendix) [\w.]+)? · \d+ (s|minutes) to run, "
        r"when this page was built · open in Colab · source",
        text,
    )
    assert f"papermill {name}.ipynb mine/out.ipynb -p " in text
