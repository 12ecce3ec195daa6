"""A map of the works that came after the paper: `{works-map} KEY KEY …`, made of the page's own sections and citations.

The paper stands in the middle, around it the questions, which are the page's sections, and in each the works that the
section cites. The works that are named are marked: with these a reader may start.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from docutils import nodes
from portable import BIBLIOGRAPHY, citations
from pybtex.database import parse_file
from sphinx.util.docutils import SphinxDirective

CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
PLACES = "abcdefgh"
"""Names of the places around the middle, in the order in which they are filled; companion.css says where they are."""

ENDS = [(17, 15), (50, 15), (83, 15), (17, 50), (83, 50), (17, 85), (83, 85)]
"""Where rays from the middle end, in percent of the map: behind the boxes, where it is wide."""
LINES = "".join(f'<line x1="50" y1="50" x2="{x}" y2="{y}" vector-effect="non-scaling-stroke"/>' for x, y in ENDS)
RAYS = f'<svg class="rays" viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{LINES}</svg>'


def questions(text: str) -> list[tuple[str, list[str]]]:
    """The questions that a page's sections have as titles, and the works that each cites, in the order of the page."""
    _, *parts = re.split(r"^## (.+\?)$", text.partition("\n## References")[0], flags=re.MULTILINE)
    return [(title, CITED.findall(body)) for title, body in zip(parts[::2], parts[1::2], strict=True)]


def told_apart(keys: list[str]) -> dict[str, tuple[str, str]]:
    """Authors and year of each work, with the first author's initial where two of these works would read alike."""
    works, entries = {key: citations()[key] for key in keys}, parse_file(str(BIBLIOGRAPHY)).entries
    alike = [work for work in works.values() if [*works.values()].count(work) > 1]
    for key, (who, year) in works.items():
        if (who, year) in alike:
            works[key] = f"{entries[key].persons['author'][0].first_names[0][0]}. {who}", year
    return works


def drawn(found: list[tuple[str, list[str]]], works: dict[str, tuple[str, str]], start: list[str]) -> str:
    """The map as HTML: a box for each question, with a line from the middle, and one for what the mark means."""
    boxes = []
    for place, (title, keys) in zip(PLACES, found, strict=False):
        marks = {key: ' class="start"' if key in start else "" for key in keys}
        lines = "".join(f"<li{mark}>{html.escape(' '.join(works[key]))}</li>" for key, mark in marks.items())
        link = f'<a href="#{nodes.make_id(title)}">{html.escape(title)}</a>'
        boxes.append(f'<div class="question" style="grid-area: {place}"><p>{link}</p><ul>{lines}</ul></div>')
    middle = '<div class="paper" style="grid-area: m"><p>Wei, Xie and Ma 2021</p></div>'
    key = f'<p class="key" style="grid-area: {PLACES[len(found)]}">Start with the marked ones.</p>'
    return f'<nav class="works-map" aria-label="Map of later works">{RAYS}{middle}{"".join(boxes)}{key}</nav>'


class WorksMap(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        self.env.note_dependency(str(BIBLIOGRAPHY))
        found = questions(Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf8"))
        works = told_apart([key for _, keys in found for key in keys])
        return [nodes.raw("", drawn(found, works, self.arguments[0].split()), format="html")]


def setup(app) -> None:
    app.add_directive("works-map", WorksMap)
