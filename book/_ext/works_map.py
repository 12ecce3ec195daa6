"""A map of the works that came after the paper: `{works-map} KEY KEY …`, made of the page's own sections and citations.

The paper stands in the middle, around it the questions, which are the page's sections, and in each the works that the
section cites. The works that are named are marked: with these a reader may start.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

from docutils import nodes
from pybtex.database import parse_file
from sphinx.util.docutils import SphinxDirective

from portable import BIBLIOGRAPHY, citations

CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
PLACES = "abcdefgh"
"""Names of the places around the middle, in the order in which they are filled; companion.css says where they are."""
RAY_ENDS = [(17, 15), (50, 15), (83, 15), (17, 50), (83, 50), (17, 85), (83, 85)]
"""Where rays from the middle end, in percent of the map: behind the boxes, where it is wide."""


@dataclass
class Question:
    """A section of the page that asks a question."""

    title: str
    keys: list[str]
    """The works that it cites, in the order of the page."""


def questions(text: str) -> list[Question]:
    """Find the questions that the sections of a page, given in Markdown, have as titles."""
    text, _, _ = text.partition("\n## References")
    sections = list(SECTION.finditer(text))
    found_questions = []
    for section, next_section in zip(sections, [*sections[1:], None], strict=True):
        end = next_section.start() if next_section else len(text)
        if section[1].endswith("?"):
            keys = CITED.findall(text[section.end() : end])
            found_questions.append(Question(section[1], keys))
    return found_questions


def names_of_works(keys: list[str]) -> dict[str, str]:
    """Name each work by its authors and year, with the first author's initial where two would read alike."""
    names = {}
    for key in keys:
        authors, year = citations()[key]
        names[key] = f"{authors} {year}"
    entries = parse_file(str(BIBLIOGRAPHY)).entries
    plain_names = list(names.values())
    for key, plain_name in names.items():
        if plain_names.count(plain_name) > 1:
            initial = entries[key].persons["author"][0].first_names[0][0]
            names[key] = f"{initial}. {plain_name}"
    return names


def rays() -> str:
    """Draw the lines from the middle to the boxes."""
    lines = ""
    for x, y in RAY_ENDS:
        lines += f'<line x1="50" y1="50" x2="{x}" y2="{y}" vector-effect="non-scaling-stroke"/>'
    return f'<svg class="rays" viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{lines}</svg>'


def box_of(question: Question, place: str, names: dict[str, str], marked: list[str]) -> str:
    """Draw the box of a question, with a line for each work."""
    lines = ""
    for key in dict.fromkeys(question.keys):
        mark = ' class="start"' if key in marked else ""
        lines += f"<li{mark}>{html.escape(names[key])}</li>"
    link = f'<a href="#{nodes.make_id(question.title)}">{html.escape(question.title)}</a>'
    return f'<div class="question" style="grid-area: {place}"><p>{link}</p><ul>{lines}</ul></div>'


def drawn(page_questions: list[Question], marked: list[str]) -> str:
    """Draw the map as HTML: a box for each of at most seven questions, and one that says what the mark means."""
    all_keys = []
    for question in page_questions:
        all_keys += question.keys
    names = names_of_works(all_keys)
    boxes = ""
    for place, question in zip(PLACES, page_questions, strict=False):
        boxes += box_of(question, place, names, marked)
    middle = '<div class="paper" style="grid-area: m"><p>Wei, Xie and Ma 2021</p></div>'
    free_place = PLACES[len(page_questions)]
    legend = f'<p class="key" style="grid-area: {free_place}">Start with the marked ones.</p>'
    return f'<nav class="works-map" aria-label="Map of later works">{rays()}{middle}{boxes}{legend}</nav>'


class WorksMap(SphinxDirective):
    """The directive `{works-map}`. Its argument names the works to begin with, by their keys."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        self.env.note_dependency(str(BIBLIOGRAPHY))
        text = Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf8")
        marked = self.arguments[0].split()
        return [nodes.raw("", drawn(questions(text), marked), format="html")]


def setup(app) -> None:
    app.add_directive("works-map", WorksMap)
