"""Tables of the class `stacked` on a phone: each row is a block, and each of its cells has its column's name.

A cell carries the name as an attribute, which companion.css shows where the page is narrow.
"""

from __future__ import annotations

import html

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator


def label_cells(app, doctree) -> None:
    for table in doctree.findall(nodes.table):
        head = next(table.findall(nodes.thead), None)
        if "stacked" in table["classes"] and head is not None:
            names = [entry.astext() for entry in head[0]]
            for row in next(table.findall(nodes.tbody)):
                for name, entry in zip(names, row, strict=True):
                    entry["label"] = name


def visit_entry(self, node) -> None:
    HTML5Translator.visit_entry(self, node)
    if node.get("label"):
        self.body[-1] = self.body[-1].replace("<td", f'<td data-label="{html.escape(node["label"])}"', 1)


def depart_entry(self, node) -> None:
    HTML5Translator.depart_entry(self, node)


def setup(app) -> None:
    app.connect("doctree-read", label_cells)
    app.add_node(nodes.entry, override=True, html=(visit_entry, depart_entry))
