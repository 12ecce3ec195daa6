"""The book that is built again, with its notebooks, is the same, times aside."""

import os
import re
import subprocess
import sys
from pathlib import Path

from bs4 import BeautifulSoup
from colab import copy_tree
from record import slow

TIMES = re.compile(r"\b\d+([.,]\d+)? ?(ms|s|min|seconds?|minutes?|hours?)\b")
WORDS_OF_TIMES = re.compile(r'"(\d[^"]*|ms|s|min)": (\d+|\[[\d, ]*\]),? ?')
"""Entries of the search index, and the pages where they stand: numbers, and what times are counted in."""


def content(file: Path) -> str | bytes:
    """What must be the same: a page without its times, and without what cells tagged `times` show; or the file."""
    if file.suffix == ".html":
        page = BeautifulSoup(file.read_text(), "html.parser")
        for cell in page.select(".tag_times"):
            cell.decompose()
        return TIMES.sub("", str(page))
    return WORDS_OF_TIMES.sub("", file.read_text()) if file.name == "searchindex.js" else file.read_bytes()


@slow
def test_the_book_built_twice_is_the_same_but_for_times(tmp_path):
    """With all its notebooks, in copies of the project. The quick one: a trial, in tests/experiments/test_trials.py."""
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
    one, two = (tmp_path / name / "_build" / "html" for name in ("one", "two"))
    names, others = ({path.relative_to(root) for path in root.rglob("*") if path.is_file()} for root in (one, two))
    assert names == others
    assert [name for name in names if content(one / name) != content(two / name)] == []
