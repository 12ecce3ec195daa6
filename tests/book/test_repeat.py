"""What is run again gives the same, times aside: notebooks, a trial, the book. What compares them is tested always."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
import torch
from bs4 import BeautifulSoup
from built_book import ROOT
from colab import copy_tree
from record import slow
from runs import MEASURED, numbers

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import run_trial

TIMES = re.compile(r"\b\d+([.,]\d+)? ?(ms|s|min|seconds?|minutes?|hours?)\b")
WORDS_OF_TIMES = re.compile(r'"(\d[^"]*|ms|s|min)": (\d+|\[[\d, ]*\]),? ?')
"""Entries of the search index, and the pages where they stand: numbers, and what times are counted in."""
EXACT = [name for name in MEASURED if "exact" in name or "ladder" in name or "built" in name] + ["best_loss"]
"""What does not pass through a network."""
CLOSE = 0.05
"""How far an accuracy, or a loss in nats, may move with the number of threads: sums are rounded in another order."""


def outputs(notebook: nbformat.NotebookNode) -> list[str]:
    """What each code cell wrote or drew, as text: pictures included, but no times, and no cells tagged `times`."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and "times" not in cell.metadata.get("tags", []):
            wrote = "".join(output.text for output in cell.outputs if output.output_type == "stream")
            rest = [output for output in cell.outputs if output.output_type != "stream"]
            found.append(TIMES.sub("", wrote + json.dumps(rest, sort_keys=True)))
    return found


def content(file: Path) -> str | bytes | list[str]:
    """What must be the same: a page or a notebook without its times, and any other file as it is."""
    if file.suffix == ".ipynb":
        return outputs(nbformat.read(file, 4))
    if file.suffix == ".html":
        page = BeautifulSoup(file.read_text(), "html.parser")
        for cell in page.select(".tag_times"):
            cell.decompose()
        return TIMES.sub("", str(page))
    return WORDS_OF_TIMES.sub("", file.read_text()) if file.name == "searchindex.js" else file.read_bytes()


def differing(one: Path, two: Path) -> list[str]:
    """Files of a built book that are not the same in another, times in their text aside."""
    names = {str(path.relative_to(root)) for root in (one, two) for path in root.rglob("*") if path.is_file()}
    both = {name for name in names if (one / name).is_file() and (two / name).is_file()}
    return sorted(name for name in names if name not in both or content(one / name) != content(two / name))


def test_outputs_and_books_that_differ_are_noticed_and_times_are_not(tmp_path):
    def wrote(text: str, *tags: str) -> list[str]:
        output = nbformat.v4.new_output("stream", text=text)
        cell = nbformat.v4.new_code_cell("f()", outputs=[output], metadata={"tags": list(tags)})
        return outputs(nbformat.v4.new_notebook(cells=[cell]))

    assert wrote("98.1% in 12 s") == wrote("98.1% in 1.5 s") != wrote("98.2% in 12 s")
    assert wrote("12", "times") == wrote("13", "times") == []
    one, two = (tmp_path / name for name in ("one", "two"))
    for folder, text in {one: "<p>98.1% in 12 s</p>", two: "<p>98.1% in 1.5 s</p>"}.items():
        folder.mkdir()
        (folder / "a.html").write_text(text)
    (one / "searchindex.js").write_text('"100": [1, 2], "112": 3, "a": [1], "s": 2, "z": 0')
    (two / "searchindex.js").write_text('"100": [1, 2, 5], "a": [1], "z": 0')
    assert differing(one, two) == []
    (two / "searchindex.js").write_text('"100": [1, 2], "a": [1, 2], "z": 0')
    (two / "b.png").write_bytes(b"1")
    (two / "a.html").write_text("<p>98.2% in 12 s</p>")
    assert differing(one, two) == ["a.html", "b.png", "searchindex.js"]


@slow
def test_the_book_built_twice_is_the_same_but_for_times(tmp_path):
    """From copies of the project, by the commands of `make book`. The quick one: two small books, above."""
    for name in ("one", "two"):
        project = tmp_path / name
        copy_tree(repository := project.with_suffix(".git"))
        subprocess.run(["git", "clone", "--quiet", repository, project], check=True)
        home = {**os.environ, "PYTHONPATH": f"{project}{os.pathsep}{project / 'book'}"}
        for command in (
            [sys.executable, "book/notebooks.py", "execute", "quick"],
            [Path(sys.executable).parent / "jupyter-book", "build", ".", "-W", "--keep-going", "--quiet"],
        ):
            done = subprocess.run(command, cwd=project, env=home, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    assert differing(tmp_path / "one" / "_build" / "html", tmp_path / "two" / "_build" / "html") == []


@slow
@pytest.mark.parametrize("name", ["2-setting", "4-memory-hmm", "5-1-pretraining"])
def test_a_notebook_gives_the_same_twice_and_not_with_another_seed(name, tmp_path):
    """The quick one repeats a trial, in tests/experiments/test_trials.py."""

    def run(seed: int) -> list[str]:
        paths, values = (ROOT / "notebooks" / f"{name}.ipynb", tmp_path / "run.ipynb"), dict(preset="smoke", seed=seed)
        how = dict(kernel_name="python3", progress_bar=False, cwd=ROOT / "notebooks")
        return outputs(papermill.execute_notebook(*paths, values, **how))

    assert (first := run(0)) == run(0) != []
    assert run(1) != first


@slow
@pytest.mark.parametrize("preset", ["smoke", "quick"])
def test_a_trial_with_another_number_of_threads_is_close(preset):
    """The quick one, with the same number, is in tests/experiments/test_trials.py."""
    found = []
    for threads in (2, 1):  # one, as other tests have it, at the end
        torch.set_num_threads(threads)
        found.append(numbers(run_trial(TrialSpec(preset, 10, 3), device="cpu")))
    for name in MEASURED:
        if isinstance(found[0][name], float) or name in EXACT:
            assert found[0][name] == pytest.approx(found[1][name], abs=1e-6 if name in EXACT else CLOSE), name
