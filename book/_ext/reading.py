"""Reading mode: a page shows its text, its figures and the lines of code that are its idea, in cells tagged `idea`.

A button above the page shows all other code. Solutions, and the closing section with the checks and exercises, are
folded, and open by themselves where a link leads into them.
"""

from __future__ import annotations

from docutils import nodes

CLOSING = "Checks and exercises"
"""The title of the closing section."""


def folded(title: str, kind: str, content: list[nodes.Node]) -> list[nodes.Node]:
    """Fold a part of a page below a title. `kind` is its class in HTML."""
    opening = nodes.raw("", f'<details class="{kind}"><summary>{title}</summary>', format="html")
    closing = nodes.raw("", "</details>", format="html")
    return [opening, *content, closing]


def fold(app, doctree, docname) -> None:
    """Fold the solutions and the closing section of a page."""
    if app.builder.format != "html":
        return
    for cell in list(doctree.findall(nodes.container)):
        if "tag_solution" in cell["classes"]:
            cell.parent.replace(cell, folded("Code of the solution", "solution", [cell]))
    for section in list(doctree.findall(nodes.section)):
        if section[0].astext() == CLOSING:
            section[1:] = folded("Checks, predictions and their outcomes, exercises", "closing", section[1:])


def setup(app) -> None:
    app.add_js_file("companion/reading.js")
    app.connect("doctree-resolved", fold, priority=950)
