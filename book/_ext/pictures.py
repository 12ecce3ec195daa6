"""Vector pictures become part of the page: one text font, and inks that follow the page from light to dark."""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from hmmbook.figures import figures

log = logging.getLogger(__name__)

SMALLEST = 0.68
"""How far a picture may shrink before it scrolls instead: text of 11 points is then still 7.5, some 10 pixels."""


def inks() -> dict[str, str]:
    """Give, for each colour of `hmmbook.figures.figures`, the variable of companion.css that takes its place."""
    variables = {"#ffffff": "--ground", "#000000": "--ink"}
    for role, colour in figures.ROLES.items():
        variables[colour] = f"--{role}"
    return variables


def with_own_ids(svg: str) -> str:
    """Give the ids of a picture a prefix that no other picture has, and drop ids that it does not use."""
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))

    def if_used(attribute: re.Match) -> str:
        return attribute[0] if attribute[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', if_used, svg)
    prefix = hashlib.sha256(svg.encode()).hexdigest()[:6]
    return re.sub(r'(url\(#|href="#| id=")', rf"\g<1>p{prefix}-", svg)


def inlined(svg: str, alternative: str) -> str:
    """Turn an SVG file into an element of a page, with an alternative text for those who do not see it."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<title>.*?</title>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (xmlns(:xlink)?|version|role|aria-label)="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = with_own_ids(svg)
    for colour, name in inks().items():
        svg = re.sub(rf"(fill|stroke)(=\"|: ?){colour}", rf"\1\2var({name})", svg, flags=re.IGNORECASE)
    svg = re.sub(r"font: ([^;\"]*?)(\d+(?:\.\d+)?px)[^;\"]*", r"font-size: \2", svg)
    width = re.match(r'<svg[^>]* width="([\d.]+)pt"', svg)
    if width:
        svg = svg.replace("<svg", f'<svg style="min-width: {SMALLEST * float(width[1]):.0f}pt"', 1)
    return svg.replace("<svg", f'<svg class="picture" role="img" aria-label="{html.escape(alternative)}"', 1)


def in_a_box(content: str) -> nodes.raw:
    """Put a picture in a box like that of a notebook's output, which scrolls where the page is narrow."""
    return nodes.raw("", f'<div class="cell_output">{content}</div>', format="html")


def find_pictures(notebook: Path, begins: str) -> list[nodes.raw]:
    """Find the pictures of an executed notebook whose alternative text begins with these words."""
    pictures = []
    for cell in json.loads(notebook.read_text(encoding="utf8"))["cells"]:
        alternative = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
        if not alternative.startswith(begins):
            continue
        for output in cell.get("outputs", []):
            lines = output.get("data", {}).get("image/svg+xml")
            if lines:
                pictures.append(in_a_box(inlined("".join(lines), alternative)))
                break  # A cell's alternative text is that of its first picture.
    return pictures


class PictureFrom(SphinxDirective):
    """A picture that an executed notebook made, on another page: `{picture-from} build/executed/NOTEBOOK.ipynb`.

    The content is how the picture's alternative text begins. A warning where there is no such picture, or several.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir, self.arguments[0])
        self.env.note_dependency(str(path))
        self.assert_has_content()
        begins = " ".join(self.content)
        try:
            pictures = find_pictures(path, begins)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s is no executed notebook (run `make book`): %r", path, error, location=self.get_location())
            return []
        if len(pictures) != 1:
            count = len(pictures)
            log.warning("%d pictures that begin %r in %s, not one", count, begins, path, location=self.get_location())
        return pictures[:1]


def visit_image(self, node) -> None:
    """Write an SVG file into the page; leave any other picture to Sphinx."""
    path = Path(self.builder.srcdir, node["uri"])
    if path.suffix != ".svg" or not path.is_file():
        HTML5Translator.visit_image(self, node)
        return
    self.builder.images.pop(node["uri"], None)
    self.body.append(inlined(path.read_text(encoding="utf8"), node.get("alt", "")))


def setup(app) -> None:
    app.add_directive("picture-from", PictureFrom)
    app.add_node(nodes.image, override=True, html=(visit_image, HTML5Translator.depart_image))
