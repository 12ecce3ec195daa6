"""What is run again gives the same, times aside: the book with its notebooks, and a trial."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bs4 import BeautifulSoup
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


def content(file: Path) -> str | bytes:
    """What must be the same: a page without its times, and without what cells tagged `times` show; or the file."""
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


def test_books_that_differ_are_noticed_and_times_are_not(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, seconds, more in ((one, "12 s", ""), (two, "1.5 s", ", 5")):
        folder.mkdir()
        (folder / "a.html").write_text(f"<p>98.1% in {seconds}</p><div class=tag_times>{seconds[:2]}</div>")
        (folder / "searchindex.js").write_text(f'"100": [1, 2{more}], "a": [1], "z": 0')
    (one / "searchindex.js").write_text('"100": [1, 2], "112": 3, "a": [1], "s": 2, "z": 0')
    assert differing(one, two) == []
    (two / "searchindex.js").write_text('"100": [1, 2], "a": [1, 2], "z": 0')
    (two / "b.png").write_bytes(b"1")
    (two / "a.html").write_text("<p>98.2% in 12 s</p>")
    assert differing(one, two) == ["a.html", "b.png", "searchindex.js"]


@slow
def test_the_book_built_twice_is_the_same_but_for_times(tmp_path):
    """With all its notebooks, by the commands of `make book` in copies of the project. The quick ones: two small books,
    above, and a trial, in tests/experiments/test_trials.py."""
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
