"""One thread: the tests work on small arrays, where more threads only wait for each other, and on busy machines for
long."""

import ast
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from budget import Budget
from commands import call, compiled  # noqa: F401, fixtures
from faults import disk, survived  # noqa: F401, fixtures
from record import Record

torch.set_num_threads(1)
sys.modules["rfc3987_syntax"] = None  # jsonschema, for nbformat, would build parsers of web addresses for seconds
MINE = tempfile.TemporaryDirectory(prefix="hmmlib-tests-")
os.environ["HMMLIB_MINE"] = MINE.name  # the tests see none of the results that a user has made, and leave none

EARLY = ["experiments", "faults", "book", "figures", "benchmarks", "evidence", "training", "project"]
"""Folders whose files take longer than others; what is short fills the gaps at the end."""


def pytest_addoption(parser):
    parser.addoption(
        "--library", action="store_true", help="only test modules that import nothing that is not installed"
    )
    parser.addoption(
        "--budget", choices=("print", "hold"), help="what each folder costs; hold: not more than its budget"
    )
    parser.addoption("--record", type=Path, metavar="FILE", help="write there what was tried, if everything passes")


def pytest_configure(config):
    config.addinivalue_line("markers", "tried(kind): each test of this table is a bad input of that kind")
    config.addinivalue_line("markers", "outside: starts processes, takes long or looks at the code: not for mutants")
    if how := config.getoption("--budget"):
        config.pluginmanager.register(Budget(how == "hold"))
    path = config.getoption("--record")
    if path and not hasattr(config, "workerinput"):  # xdist's processes report to the one that records
        config.pluginmanager.register(Record(path))


def pytest_collection_modifyitems(items):
    """What starts processes first, as it takes long, and the folders of EARLY in their order."""
    ranks = dict.fromkeys((item.path.parent.name for item in items), len(EARLY)) | {n: k for k, n in enumerate(EARLY)}
    items.sort(key=lambda item: (item.get_closest_marker("outside") is None, ranks[item.path.parent.name]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test of a table of bad inputs says that it is one; a property, for how many examples it has held."""
    yield
    item.user_properties += [(f"bad inputs: {marker.args[0]}", 1) for marker in item.iter_markers("tried")]
    if examples := getattr(item.function, "held", 0):
        item.user_properties.append((f"properties: {item.function.__name__}", examples))


def pytest_ignore_collect(collection_path, config):
    """With --library, leave out what tests the book, the benchmarks, or the library beside its peers."""
    if config.getoption("--library") and collection_path.name in ("book", "benchmarks"):
        return True
    if config.getoption("--library") and collection_path.suffix == ".py":
        nodes = list(ast.walk(ast.parse(collection_path.read_text())))
        names = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        return True if any(find_spec(name) is None for name in names) else None
    return None
