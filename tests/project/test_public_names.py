"""What `hmmlib` offers: each name at its root, loaded when it is asked for, with an example that runs, and arrays of
the shapes that annotations say."""

import doctest
import inspect
import re
import subprocess
import sys
from operator import attrgetter

import good_calls
import jaxtyping
import pytest
import torch
from good_calls import GOOD

import hmmbook
import hmmlib
from hmmlib.models.hmm import MemoryHMM

ROOMS = ("hmmlib.models", "hmmlib.inference", "hmmlib.theory")
PEERS = ("HMM.from_hmmlearn", "HMM.from_dynamax")
FUNCTIONS = [name for name in GOOD if good_calls.function(name).__module__.startswith(ROOMS) and name not in PEERS]
SHAPE = re.compile(r"(Float|Int|Bool)\[(?:Tensor|ArrayLike), '([^']+)'\]")
WITHOUT_SHAPE = re.compile(r"(?<!\w)(Tensor|ArrayLike)(?!, '|\w)")
DTYPES = {"Float": torch.float64, "Int": torch.int64, "Bool": torch.bool}
NOT_CALLED = ("MASK", "AssumptionError", "UnclearOrientation")
"""A number, errors and warnings need no example."""


def test_every_name_at_the_roots_is_there_and_an_unknown_one_is_an_attribute_error():
    for package in (hmmlib, hmmbook):
        for name in package.__all__:
            assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="theorem_9_9"):
        _ = hmmlib.theorem_9_9


def test_a_name_that_has_moved_says_where_it_is():
    assert set(hmmbook.__all__) >= hmmlib.MOVED_TO_HMMBOOK
    with pytest.raises(ImportError, match="write `from hmmbook import run_trial`"):
        from hmmlib import run_trial  # noqa: F401


def test_what_help_says_to_call_is_there():
    """These are the lines of the docstring that begin with a capital, which is a task, and end in names."""
    tasks = re.findall(r"^ {4}[A-Z].+? {2,}(\S.*)$", hmmlib.__doc__, re.MULTILINE)
    assert len(tasks) >= 12
    for names in tasks:
        for name in names.split(", "):
            assert name.split(".")[0] in hmmlib.__all__
            assert callable(attrgetter(name)(hmmlib))


@pytest.mark.parametrize("name", sorted({*hmmlib.__all__} - {*NOT_CALLED}))
def test_a_name_has_an_example_that_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    public = getattr(hmmlib, name)
    # The example need not import what it is about.
    (docstring,) = doctest.DocTestFinder(recurse=False).find(public, name, globs={name: public})
    assert docstring.examples, "there is no example"
    failures = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(docstring, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize(
    ("imports", "avoided"),
    [
        ("hmmlib", {"torch", "numpy", "matplotlib"}),
        ("hmmbook", {"torch", "numpy", "matplotlib"}),
        ("hmmbook.__main__", {"torch", "numpy", "matplotlib"}),
        ("hmmlib.theory.theorems", {"transformers", "scipy", "numba", "pydantic"}),
        ("hmmbook.experiments.sweeps, hmmlib.training.bert", {"transformers", "matplotlib", "ray", "numba"}),
    ],
)
def test_an_import_does_not_wait_for_what_it_does_not_need(imports, avoided):
    check = f"import sys, {imports}; print(*sorted({avoided} & sys.modules.keys()))"
    process = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert process.stdout == "\n"


def sizes(name: str, model) -> dict[str, int]:
    """The letters in annotations that a model fixes, or those of a head, which also stand in sums and products."""
    if name == "AttentionHead":
        return {"H": 1, "M": 2, "X": 3}
    if isinstance(good_calls.function(name), type):
        return {}
    if isinstance(model, MemoryHMM):
        return {"H": model.n_states, "M": model.n_memory, "N": model.n_cells}
    return {"S": model.n_states, "X": model.n_tokens}


def annotations(function) -> dict[str, str]:
    """What a signature says of each argument, and of the result as "returned". A class stands for its call."""
    signature = inspect.signature(function)
    texts = {}
    for key, parameter in signature.parameters.items():
        if key not in ("device", "dtype"):
            assert parameter.annotation is not parameter.empty, f"{key} has no annotation"
            texts[key] = str(parameter.annotation)
    if not isinstance(function, type):
        texts["returned"] = str(signature.return_annotation)
    return texts


@pytest.mark.parametrize("name", FUNCTIONS)
def test_annotations_say_shapes_and_the_call_has_them(name):
    function = good_calls.function(name)
    texts = annotations(function)
    values = dict(GOOD[name])
    if "None" in texts.get("prompt", ""):
        values["prompt"] = None  # a prompt makes sequences longer, so they would have another length than the texts
    if "returned" in texts:
        values["returned"] = function(**values)
    with jaxtyping.jaxtyped("context"):
        for letter, size in sizes(name, values.get("model", good_calls.MEMORY)).items():
            assert isinstance(torch.zeros(size), jaxtyping.Float[torch.Tensor, letter])  # this binds the letter
        for key, text in texts.items():
            assert key == "returned" or not WITHOUT_SHAPE.search(text), f"{key} is annotated without a shape"
            shape = SHAPE.search(text)
            value = values.get(key)
            if shape is None or value is None or isinstance(value, tuple | float):
                continue
            kind, letters = shape.groups()
            if key != "returned":
                value = torch.as_tensor(value).to(DTYPES[kind])
            array_type = getattr(jaxtyping, kind)[torch.Tensor, letters]
            assert isinstance(value, array_type), f"{key} has shape {tuple(value.shape)}, not {text}"
