"""Where the machine proofs are, by the names of the statements, and a link to its proof in each statement's box."""

from __future__ import annotations

import re
from pathlib import Path

from cards import statements
from docutils import nodes

PROOFS = "proofs"
"""The folder of the proofs, from the project's root."""
HEADING = re.compile(
    r"^(?:Theorem|Corollary|Proposition|Lemma) (theorem|corollary|proposition|lemma|claim)_([A-DO]|\d)_(\d+)\b"
)
"""The line that begins a numbered result: Theorem 3.3 is `theorem_3_3`. A longer name is a variant of it."""


def machine_proofs(folder: Path) -> dict[str, dict]:
    """Find the results that are proved by machine.

    Args:
        folder: The folder of the proofs, whose files end in `.v`.

    Returns:
        By the result's name, such as "Theorem 3.3", its `path` from the folder's parent and its `line`.
    """
    found = {}
    for path in sorted(folder.glob("*.v")):
        for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), 1):
            heading = HEADING.match(line)
            if heading:
                kind, section, counted = heading.groups()
                name = f"{kind.capitalize()} {section}.{counted}"
                found[name] = {"path": f"{folder.name}/{path.name}", "line": number}
    return found


def proofs_of_book(env) -> dict[str, dict]:
    """Find the machine proofs for the page that is being read, which then depends on them."""
    folder = Path(env.srcdir, PROOFS)
    for path in folder.glob("*.v"):
        env.note_dependency(str(path))
    return machine_proofs(folder)


def link_to_line(config, place: dict, text: str) -> nodes.reference:
    """Link to a line of a file, on the repository's main branch."""
    options = config.html_theme_options
    uri = f"{options['repository_url']}/blob/{options['repository_branch']}/{place['path']}#L{place['line']}"
    return nodes.reference("", text, refuri=uri, internal=False)


def mark_boxes(app, doctree) -> None:
    """Say in the box of each statement that is proved by machine that it is, and link to the proof."""
    names = {label: name for name, (page, label) in statements(app.env).items() if page == app.env.docname}
    if not names:
        return
    proofs = proofs_of_book(app.env)
    for box in list(doctree.findall(nodes.Element)):
        name = names.get(box.get("label"))
        if name in proofs:
            link = link_to_line(app.config, proofs[name], "Proved by machine")
            box += nodes.paragraph("", "", link, classes=["proved"])


def setup(app) -> None:
    app.connect("doctree-read", mark_boxes)
