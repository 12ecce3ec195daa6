"""From a text notebook to its twin, and from a run to the page that shows it.

python book/notebooks.py    write notebooks/NAME.ipynb, where it is not what notebooks/NAME.md gives

A twin is what Colab and papermill open. It has no outputs, and its text is plain Markdown. The code alone is written to
build/code/NAME.ipynb, which `make book` executes. So a page whose text has changed is not executed again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path

import jupytext
import nbformat
import yaml
from nbformat import NotebookNode

import hmmlib
from hmmbook.files import write_whole
from portable import plain

ROOT = Path(__file__).resolve().parent.parent
BOOTSTRAP = """\
# @title Install hmmlib where it is missing
# Threads of torch, which is imported later, shall not spin beside other work.
import importlib.util
import os

os.environ.setdefault("GOMP_SPINCOUNT", "1000")
if importlib.util.find_spec("hmmlib") is None:
    %pip install -q "hmmlib @ git+{address}@{tag}"
    importlib.invalidate_caches()
    if importlib.util.find_spec("hmmlib") is None:
        raise SystemExit("hmmlib was not installed: is there a repository {address} with the tag {tag}?")
"""
TITLE = "# @title "
"""How a cell begins that Colab folds under a title: the one that installs, and that of the imports."""


def sources() -> list[Path]:
    """List the text notebooks."""
    return sorted((ROOT / "notebooks").glob("*.md"))


def executed_copy(name: str) -> Path:
    """Give the path at which `make book` leaves the run of a page's code."""
    return ROOT / "build" / "executed" / "notebooks" / f"{name}.ipynb"


def repository() -> dict[str, str]:
    """Read the repository's address ("url") and branch ("branch") from the one place where they stand."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))
    return config["repository"]


def address() -> str:
    """Give the repository's address."""
    return repository()["url"]


def tag() -> str:
    """Give the tag of this version. A notebook installs it, because a later version may have other names."""
    return f"v{hmmlib.__version__}"


def bootstrap() -> str:
    """Write the first code cell of every twin, which installs the library where it is missing."""
    return BOOTSTRAP.format(address=address(), tag=tag())


def is_code(cell: NotebookNode) -> bool:
    """Tell whether a cell has code."""
    return cell.cell_type == "code"


# Twins


def twin(source: Path) -> NotebookNode:
    """Make the notebook that a text notebook stands for.

    The same source always gives the same notebook.

    Args:
        source: a file notebooks/NAME.md.

    Returns:
        The notebook, with the cell that installs the library in front of its code.
    """
    notebook = jupytext.read(source)
    home = repository()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, home["url"], home["branch"])
    place = 0
    while not is_code(notebook.cells[place]):
        place += 1
    install = nbformat.v4.new_code_cell(bootstrap(), metadata={"tags": ["remove-cell"]})
    notebook.cells.insert(place, install)
    for cell in filter(is_code, notebook.cells):
        if cell.source.startswith(TITLE):
            cell.metadata["cellView"] = "form"  # Colab shows its title only, until a reader opens it.
    for k, cell in enumerate(notebook.cells):
        cell.id = cell_id(notebook.cells, k)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat = 4
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    return notebook


def cell_id(cells: list[dict], k: int) -> str:
    """Hash the place, the kind and the text of a twin's k-th cell, and whether it is the last one."""
    text = "".join(cells[k]["source"])  # A file keeps the source as a list of lines.
    content = f"{k} {cells[k]['cell_type']} {text}"
    if k == len(cells) - 1:
        content += " the last"
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def code_alone(notebook: NotebookNode) -> NotebookNode:
    """Copy a notebook without its text."""
    code = copy.copy(notebook)
    code.cells = list(filter(is_code, notebook.cells))
    return code


def as_text(notebook: NotebookNode) -> str:
    """Write a notebook as the text of its file."""
    return nbformat.writes(notebook) + "\n"


def is_edited(path: Path) -> bool:
    """Tell whether somebody has changed or run a twin since it was written.

    No editor changes the id of a cell, so an id that does not fit its cell shows an edit. A run shows by its outputs.
    A file that is no notebook any more counts as edited.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
        for k, cell in enumerate(cells):
            if cell["id"] != cell_id(cells, k) or cell.get("outputs"):
                return True
    except (ValueError, LookupError, TypeError, AttributeError):
        return True
    return not cells


def save_edits(path: Path) -> Path:
    """Copy an edited twin into mine/edited, under a name with the time in it, and return the copy's path."""
    now = datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")
    saved = ROOT / "mine" / "edited" / f"{path.stem}-{now}.ipynb"
    saved.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy2(path, saved)
    except OSError:
        saved.unlink(missing_ok=True)  # The disk is full, for example. Half a copy would pass for a whole one.
        raise
    return saved


def write_twins() -> int:
    """Write each twin, and the code of each page, where the file is not what its source gives.

    A twin that a reader has edited is first copied to mine/edited.

    Returns:
        How many twins were written.
    """
    count = 0
    for source in sources():
        notebook = twin(source)
        write_if_changed(ROOT / "build" / "code" / f"{source.stem}.ipynb", as_text(code_alone(notebook)))
        path = source.with_suffix(".ipynb")
        report = f"wrote {path.relative_to(ROOT)}"
        if path.is_file() and is_edited(path):
            saved = save_edits(path)
            report += f" anew. Your edits are kept in {saved.relative_to(ROOT)}"
        if write_if_changed(path, as_text(notebook)):
            count += 1
            print(report)
    return count


def write_if_changed(path: Path, text: str) -> bool:
    """Write a file, but leave it as it is, its time included, where it has that text; tell whether it was written."""
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    write_whole(path, text)
    return True


# Pages


def with_outputs(notebook: NotebookNode, run: NotebookNode) -> NotebookNode:
    """Give the code cells of a notebook the outputs that they have in a run.

    The run may have further cells, such as the one in which papermill sets the parameters. These are left out.

    Args:
        notebook: the text and the code that a reader sees. It is changed in place.
        run: an executed notebook.

    Returns:
        The notebook.

    Raises:
        ValueError: a code cell of the notebook is not in the run.
    """
    executed_cells = iter(run.cells)
    for cell in filter(is_code, notebook.cells):
        for executed in executed_cells:
            if executed.source == cell.source:
                cell.outputs = executed.outputs
                cell.execution_count = executed.execution_count
                break
        else:
            raise ValueError("it was executed with other code")
    return notebook


def page(source: Path) -> NotebookNode:
    """Make the notebook that a page of the book shows: the text notebook with the outputs of its executed copy.

    Args:
        source: a file notebooks/NAME.md.

    Returns:
        The notebook. Its text is in MyST, with boxes and references.

    Raises:
        OSError: there is no executed copy.
        ValueError: the executed copy is of other code, or is no notebook.
    """
    run = nbformat.read(executed_copy(source.stem), 4)
    notebook = with_outputs(jupytext.read(source), run)
    notebook.metadata = run.metadata
    return notebook


if __name__ == "__main__":
    write_twins()
