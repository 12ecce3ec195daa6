"""What holds of the code of every page, so that somebody who sees all of its cells can read it as a lesson."""

import jupytext
import pytest
from lessons import NOTEBOOKS, code_of, run
from record import slow

PAGES = sorted(path.stem for path in NOTEBOOKS.glob("*.md"))
MOST_LINES = 150
MOST_LINES_OF_A_CELL = 25
MOST_LINES_OF_SET_UP = 35
WIDEST = 100
TITLE = "# @title Imports, and a check of the parameters"


def lines_of(cell) -> list[str]:
    return [line for line in cell.source.splitlines() if line.strip()]


@pytest.fixture(params=PAGES)
def cells(request) -> list:
    notebook = jupytext.read(NOTEBOOKS / f"{request.param}.md")
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_a_page_begins_with_its_parameters_and_one_cell_of_imports(cells):
    parameters, set_up, *lesson = cells

    assert "parameters" in parameters.metadata["tags"]
    assert set_up.source.startswith(TITLE)
    assert len(lines_of(set_up)) <= MOST_LINES_OF_SET_UP
    for cell in lesson:
        if "solution" not in cell.metadata.get("tags", []):
            assert not [line for line in lines_of(cell) if line.startswith(("import ", "from "))]


def test_a_page_is_short_and_so_is_each_of_its_cells(cells):
    _, _, *lesson = cells

    assert sum(len(lines_of(cell)) for cell in cells) <= MOST_LINES
    for cell in lesson:
        assert len(lines_of(cell)) <= MOST_LINES_OF_A_CELL
        assert max(map(len, cell.source.splitlines())) <= WIDEST


def test_no_page_checks_its_sentences_itself(cells):
    _, _, *lesson = cells

    for cell in lesson:
        assert not [line for line in lines_of(cell) if line.strip().startswith("assert ")]
        assert "remove-cell" not in cell.metadata.get("tags", [])


def test_a_reader_is_shown_a_line_to_change(cells):
    marked = [line for cell in cells for line in lines_of(cell) if "# change me" in line]

    assert marked


@slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_with_another_seed(name):
    parameters, *_ = code_of(name)
    changes = {"seed": 4} if "\nseed: " in parameters else {}

    assert run(name, **changes)
