"""Definitions within reach: cards for statements and letters, the notation panel, and statements in the search index.

Every mention of a numbered statement becomes a link to it. When the book is built, two scripts with data are written,
which pages load when a reader first asks for a card: the statements' boxes, and the table of the notation page.
"""

from __future__ import annotations

import json
import re
from copy import copy
from pathlib import Path

from bs4 import BeautifulSoup, SoupStrainer
from docutils import nodes
from page_facts import within
from portable import KINDS, number

NUMBER = r"[0-9A-E]\.[0-9]+"
KIND = "|".join(KINDS.values())
MENTION = re.compile(rf"\b(?P<kind>{KIND})s?[ \u00a0](?P<numbers>{NUMBER}(?:(?:, and |, | and | or ){NUMBER})*)")
NO_LINKS_IN = (
    nodes.reference | nodes.literal | nodes.literal_block | nodes.title | nodes.raw | nodes.math | nodes.math_block
)
STATEMENT = re.compile("^(equation-)?(paper|ours)-")


def statements(env) -> dict[str, tuple[str, str]]:
    """Where each numbered box is: its name, as in "Theorem 3.3", to page and anchor."""
    anchors = {}
    for label, box in env.proof_list.items():
        if STATEMENT.match(label) and not box["nonumber"]:
            anchors[f"{box['realtype'].title()} {number(label)}"] = (box["docname"], label)
    return anchors


def linked(text: str, known: dict[str, tuple[str, str]], link) -> list[nodes.Node]:
    """The text as nodes, with a link at each mention of a known statement."""
    pieces, end = [], 0
    for mention in MENTION.finditer(text):
        for found in re.finditer(NUMBER, mention["numbers"]):
            if place := known.get(f"{mention['kind']} {found[0]}"):
                numbers = mention.start("numbers")
                start, stop = numbers + found.start() if found.start() else mention.start(), numbers + found.end()
                pieces += [nodes.Text(text[end:start]), link(text[start:stop], *place)]
                end = stop
    return [*pieces, nodes.Text(text[end:])] if pieces else []


def link_mentions(app, doctree, docname) -> None:
    known = statements(app.env)

    def link(text, page, anchor):
        uri = f"{app.builder.get_relative_uri(docname, page)}#{anchor}"
        return nodes.reference("", text, refuri=uri, internal=True, classes=["mention"])

    for text in list(doctree.findall(nodes.Text)):
        if not within(text, NO_LINKS_IN) and (pieces := linked(text, known, link)):
            text.parent.replace(text, pieces)


def index_statements(app):
    """The search finds boxes by number and by title, and equations by number."""
    entries = [(page, name, anchor) for name, (page, anchor) in statements(app.env).items()]
    for label, (page, _) in app.env.domaindata["math"]["objects"].items():
        if label.startswith(("paper-eq-", "ours-eq-")):
            anchor, n = nodes.make_id(f"equation-{label}"), number(label)
            entries += [(page, name, anchor) for name in (f"({n})", f"Equation ({n})", f"Equation {n}", f"Eq. ({n})")]
    titles = app.builder.indexer._all_titles  # kept from build to build
    for page, *entry in entries:
        if tuple(entry) not in titles.get(page, [tuple(entry)]):
            titles[page].append(tuple(entry))
    return ()


def fragment(element) -> str:
    """An element of a page as HTML that can stand on any page: no ids, and no links, which would be relative."""
    for extra in element.select(".headerlink, .eqno"):
        extra.decompose()
    for link in element.select("a"):
        link.unwrap()
    for part in [element, *element.select("span[id], div[id], p[id], section[id]")]:
        part.attrs.pop("id", None)
    return element.decode()


def write_data(app, exception) -> None:
    """Read the finished pages, so that those of an earlier build count too."""
    if exception is not None or app.builder.format != "html":
        return
    cards = {}
    for page in sorted(app.env.all_docs):
        text = Path(app.builder.get_outfilename(page)).read_text(encoding="utf8")
        for outer in BeautifulSoup(text, "html.parser", parse_only=SoupStrainer(id=STATEMENT)).contents:
            for element in (*outer.find_all(id=STATEMENT), outer):  # an equation may stand in a box
                anchor, shown = element["id"], element.select_one(".eqno")
                title = f"Equation {shown.get_text().split(')')[0]})" if anchor.startswith("equation-") else ""
                cards[anchor] = {"page": page, "title": title, "html": fragment(copy(element))}
    text = Path(app.builder.get_outfilename("book/notation")).read_text(encoding="utf8")
    tables = BeautifulSoup(text, "html.parser", parse_only=SoupStrainer("table"))
    write(app, "statements", cards, "".join(card["html"] for card in cards.values()))
    write(app, "notation", fragment(tables.find("table")), str(tables))


def write(app, name: str, data, drawings: str) -> None:
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
