"""The code of a page, run in this process, so that a test can look at what it has computed."""

from collections.abc import Iterable
from pathlib import Path

import jupytext

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def run(name: str, **parameters) -> dict:
    """Run the code of a page at the preset smoke, unless the parameters name another one, and return its names."""
    names = {}
    for cell in jupytext.read(NOTEBOOKS / f"{name}.md").cells:
        if cell.cell_type == "code":
            run_cells([cell.source], names)
        if "parameters" in cell.metadata.get("tags", []):
            names |= {"preset": "smoke"} | parameters
    return names


def code_of(name: str) -> list[str]:
    """Return the code cells of a page."""
    return [cell.source for cell in jupytext.read(NOTEBOOKS / f"{name}.md").cells if cell.cell_type == "code"]


def run_cells(cells: Iterable[str], names: dict) -> None:
    """Run code cells with these names, which they change."""
    for cell in cells:
        exec(cell, names)
