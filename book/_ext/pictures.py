"""Vector pictures become part of the page: one text font, and inks that follow the page from light to dark."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

from companion.figures import figures
from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)

INKS = {
    "#ffffff": "--ground",
    "#000000": "--ink",
    **{colour: f"--{role}" for role, colour in figures.ROLES.items()},
}
"""The colours of `companion.figures.figures`, and the variables of companion.css that take their place."""
SMALLEST = 0.68
"""How far a picture may shrink before it scrolls instead: text of 11 points is then still 7.5, some 10 pixels."""


def inlined(svg: str, alternative: str) -> str:
    """An SVG file as an element of a page, with ids that no other picture has."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<title>.*?</title>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (xmlns(:xlink)?|version|role|aria-label)="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    own = hashlib.sha256(svg.encode()).hexdigest()[:6]
    svg = re.sub(r'(url\(#|href="#| id=")', rf"\g<1>p{own}-", svg)
    for colour, name in INKS.items():
        svg = re.sub(rf"(fill|stroke)(=\"|: ?){colour}", rf"\1\2var({name})", svg, flags=re.IGNORECASE)
    svg = re.sub(r"font: ([^;\"]*?)(\d+(?:\.\d+)?px)[^;\"]*", r"font-size: \2", svg)
    if points := re.match(r'<svg[^>]* width="([\d.]+)pt"', svg):
        svg = svg.replace("<svg", f'<svg style="min-width: {SMALLEST * float(points[1]):.0f}pt"', 1)
    return svg.replace("<svg", f'<svg class="picture" role="img" aria-label="{html.escape(alternative)}"', 1)


def in_a_box(content: str) -> nodes.raw:
    """A picture in a box like that of a notebook's output, which scrolls where the page is narrow."""
    return nodes.raw("", f'<div class="cell_output">{content}</div>', format="html")


class PictureFrom(SphinxDirective):
    """A picture that an executed notebook made, on another page: `{picture-from} build/executed/NOTEBOOK.ipynb`.

    The text is how the picture's alternative text begins. A warning where there is no such picture, or several.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        path, begins = Path(self.env.srcdir, self.arguments[0]), " ".join(self.content)
        self.env.note_dependency(str(path))
        self.assert_has_content()
        try:
            pictures = list(self.pictures(path, begins))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s is no executed notebook (run `make book`): %r", path, error, location=self.get_location())
            return []
        if len(pictures) != 1:
            found = f"{len(pictures)} pictures"
            log.warning("%s that begin %r in %s, not one", found, begins, path, location=self.get_location())
        return pictures[:1]

    def pictures(self, path: Path, begins: str) -> Iterator[nodes.raw]:
        for cell in json.loads(path.read_text(encoding="utf8"))["cells"]:
            alternative = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
            made = [out.get("data", {}) for out in cell.get("outputs", [])]
            drawn = ["".join(data["image/svg+xml"]) for data in made if "image/svg+xml" in data]
            if alternative.startswith(begins) and drawn:
                yield in_a_box(inlined(drawn[0], alternative))


def visit_image(self, node) -> None:
    path = Path(self.builder.srcdir, node["uri"])
    if path.suffix != ".svg" or not path.is_file():
        HTML5Translator.visit_image(self, node)
        return
    self.builder.images.pop(node["uri"], None)
    self.body.append(inlined(path.read_text(encoding="utf8"), node.get("alt", "")))


def setup(app) -> None:
    app.add_directive("picture-from", PictureFrom)
    app.add_node(nodes.image, override=True, html=(visit_image, HTML5Translator.depart_image))
