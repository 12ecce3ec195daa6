"""From text notebooks to committed twins, and from twins to executed copies.

python book/notebooks.py twins              write notebooks/NAME.ipynb from every notebooks/NAME.md
python book/notebooks.py twins --check      exit 1 where a twin has drifted from its source
python book/notebooks.py execute [PRESET]   run every twin whose content, or what it depends on, has changed
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import yaml
from portable import plain

ROOT = Path(__file__).resolve().parent.parent
EXECUTED = ROOT / "build" / "executed" / "notebooks"
BOOTSTRAP = """\
# Where hmmlib is missing, as in Colab, install it; anywhere else this cell does nothing.
import importlib.util

if importlib.util.find_spec("hmmlib") is None:
    %pip install -q "hmmlib @ git+{address}"
"""


def sources() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*.md"))


def repository() -> dict[str, str]:
    """The repository's address and branch, from the one place where they stand."""
    return yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]


def address() -> str:
    return repository()["url"]


def twin(source: Path) -> str:
    """The notebook that a text notebook stands for, as JSON: the same text for the same source, always.

    Its text is plain Markdown, for Colab and Jupyter; the book's pages have the source's own.
    """
    notebook, home = jupytext.read(source), repository()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, home["url"], home["branch"])
    first_code = next(k for k, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    bootstrap = nbformat.v4.new_code_cell(BOOTSTRAP.format(address=home["url"]), metadata={"tags": ["remove-cell"]})
    notebook.cells.insert(first_code, bootstrap)
    for k, cell in enumerate(notebook.cells):
        cell.id = hashlib.sha256(f"{k} {cell.cell_type} {cell.source}".encode()).hexdigest()[:12]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def write_twins(check: bool) -> int:
    """Write every twin, or with `check` only say which have drifted. Returns the number that have."""
    drifted = 0
    for source in sources():
        path, text = source.with_suffix(".ipynb"), twin(source)
        if path.is_file() and path.read_text() == text:
            continue
        drifted += 1
        if check:
            print(f"{path.relative_to(ROOT)} is not what {source.name} gives: run `make notebooks`", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return drifted


def library() -> list[Path]:
    """Every file of hmmlib that a notebook may read, scripts and tables included."""
    return sorted(p for p in (ROOT / "hmmlib").rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def key(path: Path, parameters: Path) -> str:
    """What an executed copy depends on, as one hash: notebook, parameters, library, lock, and stored results if read."""
    used = [
        path,
        path.with_suffix(".md"),
        parameters,
        ROOT / "requirements.lock",
        *library(),
    ]
    if "hmmlib.store" in path.read_text():
        used += sorted((ROOT / "results").rglob("*.json"))
    digest = hashlib.sha256()
    for file in used:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def quiet_kernels() -> None:
    """Give the kernels an IPython folder of their own: no reader's settings, and no warnings about local sockets."""
    profile = ROOT / "build" / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")
    os.environ["IPYTHONDIR"] = str(profile.parent)


def execute(path: Path, parameters: Path) -> None:
    """Run one twin through papermill. Its copy lands in EXECUTED only when every cell has passed."""
    import papermill

    wanted, copy = key(path, parameters), EXECUTED / path.name
    if copy.is_file() and nbformat.read(copy, 4).metadata.get("companion_key") == wanted:
        print(f"  {path.stem}: unchanged", flush=True)
        return
    print(f"  {path.stem}: ", end="", flush=True)
    start = time.perf_counter()
    values = yaml.safe_load(parameters.read_text())
    EXECUTED.mkdir(parents=True, exist_ok=True)
    running = copy.with_suffix(".running.ipynb")
    try:
        notebook = papermill.execute_notebook(
            path, running, values, kernel_name="python3", progress_bar=False, cwd=ROOT / "notebooks"
        )
    except papermill.PapermillExecutionError as error:
        running.replace(copy.with_suffix(".failed.ipynb"))
        copy.unlink(missing_ok=True)
        raise SystemExit(f"failed\n{error}") from None
    texts = [cell.source for cell in jupytext.read(path.with_suffix(".md")).cells if cell.cell_type == "markdown"]
    for cell, text in zip([c for c in notebook.cells if c.cell_type == "markdown"], texts, strict=True):
        cell.source = text  # the page is written in MyST, boxes and references included
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata.tags.append("remove-cell")  # the page shows the notebook's own parameters
    notebook.metadata["companion_key"] = wanted
    nbformat.write(notebook, running)
    running.replace(copy)
    print(f"{time.perf_counter() - start:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("twins").add_argument("--check", action="store_true")
    commands.add_parser("execute").add_argument("preset", nargs="?", default="quick")
    arguments = parser.parse_args()
    if arguments.command == "twins":
        sys.exit(write_twins(arguments.check) if arguments.check else write_twins(False) and 0)
    parameters = ROOT / "parameters" / f"{arguments.preset}.yaml"
    if not parameters.is_file():
        known = ", ".join(sorted(path.stem for path in parameters.parent.glob("*.yaml")))
        parser.error(f"unknown preset {arguments.preset!r}: choose from {known}")
    print(f"executing notebooks ({arguments.preset})")
    quiet_kernels()
    for source in sources():
        execute(source.with_suffix(".ipynb"), parameters)


if __name__ == "__main__":
    main()
