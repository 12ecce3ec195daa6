"""Tables on a phone: there each row of a table of the class `stacked` is a block, and each cell has its column's name.

The name is an attribute of the cell, which companion.css shows where the page is narrow.
"""

from __future__ import annotations

import html
import re

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator

INTERVAL = re.compile(r"([-+]?[\d.]+%? \[[-+]?[\d.]+%?, [-+]?[\d.]+%?\])")
"""A mean with its interval, as in "94.0% [88.4, 99.6]"."""


def keep_intervals(table: nodes.table) -> None:
    """Let a mean and its interval stand on one line."""
    for text in list(table.findall(nodes.Text)):
        pieces = []
        for k, piece in enumerate(INTERVAL.split(text)):
            if k % 2:
                pieces.append(nodes.inline("", piece, classes=["unbroken"]))
            else:
                pieces.append(nodes.Text(piece))
        if len(pieces) > 1:
            text.parent.replace(text, pieces)


def label_cells(app, doctree) -> None:
    """Note in each cell of a stacked table the name of its column."""
    for table in doctree.findall(nodes.table):
        head = next(table.findall(nodes.thead), None)
        if "stacked" not in table["classes"] or head is None:
            continue
        names = [entry.astext() for entry in head[0]]
        keep_intervals(table)
        for row in next(table.findall(nodes.tbody)):
            for name, entry in zip(names, row, strict=True):
                entry["label"] = name


def visit_entry(self, node) -> None:
    """Write a cell, with its label if it has one."""
    HTML5Translator.visit_entry(self, node)
    if node.get("label"):
        label = html.escape(node["label"])
        self.body[-1] = self.body[-1].replace("<td", f'<td data-label="{label}"', 1)


def setup(app) -> None:
    app.connect("doctree-read", label_cells)
    app.add_node(nodes.entry, override=True, html=(visit_entry, HTML5Translator.depart_entry))
