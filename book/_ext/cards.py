"""Definitions within reach: cards for statements and letters, the notation panel, and statements in the search index.

Every mention of a numbered statement becomes a link to it. When the book is built, two scripts with data are written,
which pages load when a reader first asks for a card: the statements' boxes, and the table of the notation page.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path

from bs4 import BeautifulSoup, SoupStrainer, Tag
from docutils import nodes
from page_facts import within

from portable import KINDS, number

NUMBER = r"[0-9A-EO]\.[0-9]+"
"""The number of a statement. Our own statements have the letter O."""
KIND = "|".join(KINDS.values())
MENTION = re.compile(rf"\b(?P<kind>{KIND})s?[ \u00a0](?P<numbers>{NUMBER}(?:(?:, and |, | and | or ){NUMBER})*)")
"""Statements in a text, such as "Theorem 3.3" and "Theorems 3.3 and 3.6"."""
NO_LINKS_IN = (
    nodes.reference,
    nodes.literal,
    nodes.literal_block,
    nodes.title,
    nodes.raw,
    nodes.math,
    nodes.math_block,
)
STATEMENT = re.compile("^(equation-)?(paper|ours)-")
"""How the ids of statements and of equations begin in HTML."""

Places = dict[str, tuple[str, str]]
"""Page and anchor of each numbered statement, by its name, such as "Theorem 3.3"."""


def statements(env) -> Places:
    """Find where each numbered statement is."""
    places = {}
    boxes = getattr(env, "proof_list", {})  # It is missing until the first box is read.
    for label, box in boxes.items():
        if STATEMENT.match(label) and not box["nonumber"]:
            name = f"{box['realtype'].title()} {number(label)}"
            places[name] = (box["docname"], label)
    return places


# Links


def linked(text: str, known: Places, link: Callable[[str, str, str], nodes.Node]) -> list[nodes.Node]:
    """Put a link, made of its text, a page and an anchor, at each mention of a known statement.

    The list is empty where no statement is mentioned.
    """
    pieces = []
    end = 0
    for mention in MENTION.finditer(text):
        for match in re.finditer(NUMBER, mention["numbers"]):
            name = f"{mention['kind']} {match[0]}"
            if name not in known:
                continue
            start = mention.start("numbers") + match.start()
            if match.start() == 0:
                start = mention.start()  # With the first number the kind is part of the link.
            stop = mention.start("numbers") + match.end()
            pieces.append(nodes.Text(text[end:start]))
            pieces.append(link(text[start:stop], *known[name]))
            end = stop
    if pieces:
        pieces.append(nodes.Text(text[end:]))
    return pieces


def link_mentions(app, doctree, docname) -> None:
    """Put the links on a page."""
    known = statements(app.env)

    def link(text: str, page: str, anchor: str) -> nodes.reference:
        uri = f"{app.builder.get_relative_uri(docname, page)}#{anchor}"
        return nodes.reference("", text, refuri=uri, internal=True, classes=["mention"])

    for text in list(doctree.findall(nodes.Text)):
        if within(text, NO_LINKS_IN):
            continue
        pieces = linked(text, known, link)
        if pieces:
            text.parent.replace(text, pieces)


# The search


def index_statements(app):
    """Let the search find statements by their names, and equations by their numbers."""
    entries = []
    for name, (page, anchor) in statements(app.env).items():
        entries.append((page, name, anchor))
    for label, (page, _) in app.env.domaindata["math"]["objects"].items():
        if label.startswith(("paper-eq-", "ours-eq-")):
            anchor = nodes.make_id(f"equation-{label}")
            n = number(label)
            for name in (f"({n})", f"Equation ({n})", f"Equation {n}", f"Eq. ({n})"):
                entries.append((page, name, anchor))
    titles = app.builder.indexer._all_titles  # They are kept from build to build.
    for page, name, anchor in entries:
        if page in titles and (name, anchor) not in titles[page]:
            titles[page].append((name, anchor))
    return ()


# Data for the cards


def fragment(element: Tag) -> str:
    """Write an element as HTML that can stand on any page: without ids, and without links, which would be relative."""
    for extra in element.select(".headerlink, .eqno"):
        extra.decompose()
    for link in element.select("a"):
        link.unwrap()
    for part in [element, *element.select("span[id], div[id], p[id], section[id]")]:
        part.attrs.pop("id", None)
    return element.decode()


def parts_of_page(app, page: str, strainer: SoupStrainer) -> BeautifulSoup:
    """Read parts of a finished page. It may be one of an earlier build."""
    text = Path(app.builder.get_outfilename(page)).read_text(encoding="utf8")
    return BeautifulSoup(text, "html.parser", parse_only=strainer)


def card_of(page: str, element: Tag) -> dict[str, str]:
    """Make the card of a statement or an equation."""
    title = ""
    if element["id"].startswith("equation-"):
        shown_number = element.select_one(".eqno").get_text().split(")")[0]
        title = f"Equation {shown_number})"
    return {"page": page, "title": title, "html": fragment(copy.copy(element))}


def write_data(app, exception) -> None:
    """Write what the pages load for cards and for the notation panel."""
    if exception is not None or app.builder.format != "html":
        return
    cards = {}
    for page in sorted(app.env.all_docs):
        for element in parts_of_page(app, page, SoupStrainer(id=STATEMENT)).contents:
            for inner in element.find_all(id=STATEMENT):  # An equation may stand in a box.
                cards[inner["id"]] = card_of(page, inner)
            cards[element["id"]] = card_of(page, element)
    drawings = "".join(card["html"] for card in cards.values())
    write_script(app, "statements", cards, drawings)
    table = parts_of_page(app, "book/notation", SoupStrainer("table"))
    drawings = str(table)
    write_script(app, "notation", fragment(table.find("table")), drawings)


def write_script(app, name: str, data, drawings: str) -> None:
    """Write a script that hands data to the pages' own, with the glyphs of the formulas in these drawings."""
    path = Path(app.outdir, "_static", "companion", f"{name}.js")
    path.parent.mkdir(parents=True, exist_ok=True)
    value = json.dumps({"data": data, "glyphs": app.typesetter.glyphs(drawings)}, ensure_ascii=False)
    path.write_text(f"companion.{name}({value});\n", encoding="utf8")


def setup(app) -> None:
    app.add_js_file("companion/cards.js", loading_method="defer")
    app.add_js_file("companion/tables.js", loading_method="defer")
    app.connect("doctree-resolved", link_mentions, priority=900)
    app.connect("html-collect-pages", index_statements)
    app.connect("build-finished", write_data, priority=100)
