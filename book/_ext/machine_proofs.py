"""Where the machine proofs are, by the names of the statements."""

from __future__ import annotations

import re
from pathlib import Path

HEADING = re.compile(r"^(?:Theorem|Corollary|Proposition|Lemma) (theorem|proposition|lemma|claim)_([A-D]|\d)_(\d+)\b")
"""The line that begins a result of the paper: Theorem 3.3 is `theorem_3_3`. A longer name is a variant of it."""


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
