"""Set-up of all tests. They use one thread, because with small arrays more threads mostly wait for each other."""

import ast
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from commands import call, compiled  # noqa: F401, fixtures
from faults import disk, survived  # noqa: F401, fixtures
from record import Record

torch.set_num_threads(1)
# Torch reads this at the first product of matrices on a GPU, which may be a test's own.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# For nbformat, jsonschema would build parsers of web addresses, which takes seconds.
sys.modules["rfc3987_syntax"] = None
# The tests see none of the results that a user has made, and leave none.
MINE = tempfile.TemporaryDirectory(prefix="hmmlib-tests-")
os.environ["HMMBOOK_MINE"] = MINE.name

EARLY = ["experiments", "faults", "book", "pages", "figures", "benchmarks", "evidence", "training", "project"]
"""Folders whose files take longer than others. Short files fill the gaps at the end."""
NOT_THE_LIBRARY = ("book", "benchmarks", "pages")
"""Folders that --library leaves out."""


def pytest_addoption(parser):
    parser.addoption(
        "--library", action="store_true", help="only test modules that import nothing that is not installed"
    )
    parser.addoption("--record", type=Path, metavar="FILE", help="write there what was tried, if everything passes")


def pytest_configure(config):
    config.addinivalue_line("markers", "tried(kind): each test of this table is a bad input of that kind")
    config.addinivalue_line("markers", "outside: starts processes, takes long or looks at the code: not for mutants")
    path = config.getoption("--record")
    is_worker = hasattr(config, "workerinput")  # xdist's processes report to the one that records
    if path and not is_worker:
        config.pluginmanager.register(Record(path))


def pytest_collection_modifyitems(items):
    """Put tests that start processes first, because they take long, and then the folders of EARLY in their order."""

    def rank(item) -> tuple[bool, int]:
        starts_no_process = item.get_closest_marker("outside") is None
        folder = item.path.parent.name
        return starts_no_process, EARLY.index(folder) if folder in EARLY else len(EARLY)

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test of a table of bad inputs says that it is one. A property says for how many examples it has held."""
    yield
    for marker in item.iter_markers("tried"):
        item.user_properties.append((f"bad inputs: {marker.args[0]}", 1))
    examples = getattr(item.function, "held", 0)
    if examples:
        item.user_properties.append((f"properties: {item.function.__name__}", examples))


def imported_packages(path: Path) -> set[str]:
    """The packages that a file of tests imports."""
    packages = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            packages.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            packages.add(node.module.split(".")[0])
    return packages


def pytest_ignore_collect(collection_path, config):
    """With --library, leave out tests of the book and the benchmarks, and those that need a package that is missing."""
    if not config.getoption("--library"):
        return None
    if collection_path.name in NOT_THE_LIBRARY:
        return True
    if collection_path.suffix == ".py" and not all(map(find_spec, imported_packages(collection_path))):
        return True
    return None
