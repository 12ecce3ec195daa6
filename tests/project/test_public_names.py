"""What `hmmlib` offers: each name at its root, loaded when asked for, and arrays of the shapes that annotations say."""

import importlib
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

import hmmlib
from hmmlib.models.hmm import MemoryHMM

ROOMS = ("hmmlib.models", "hmmlib.inference", "hmmlib.theory")
SHAPE = re.compile(r"(Float|Int|Bool)\[(?:Tensor|ArrayLike), '([^']+)'\]")
BARE = re.compile(r"(?<!\w)(Tensor|ArrayLike)(?!, '|\w)")
DTYPES = {"Float": torch.float64, "Int": torch.int64, "Bool": torch.bool}
PEERS = ("HMM.from_hmmlearn", "HMM.from_dynamax")
FUNCTIONS = [name for name in GOOD if good_calls.function(name).__module__.startswith(ROOMS) and name not in PEERS]
LEFT_OUT = {
    "hmmlib": "torch numpy matplotlib",
    "hmmlib.theory.theorems": "transformers scipy numba pydantic",
    "hmmlib.experiments.sweeps, hmmlib.training.bert": "transformers matplotlib ray numba",
}
"""What takes up to seconds to import: who does not use it does not wait for it."""


def test_every_name_and_what_help_says_to_call_is_there_and_an_unknown_name_is_an_attribute_error():
    """By task: the lines of the docstring that begin with a capital, and end in names."""
    for name in hmmlib.__all__:
        assert getattr(hmmlib, name) is getattr(importlib.import_module(f"hmmlib.{hmmlib._MODULE[name]}"), name)
    lines = re.findall(r"^ {4}([A-Z].+?) {2,}(\S.*)$", hmmlib.__doc__, re.MULTILINE)
    assert len(lines) >= 12
    for name in ", ".join(names for _, names in lines).split(", "):
        assert name.split(".")[0] in hmmlib.__all__
        assert callable(attrgetter(name)(hmmlib))
    with pytest.raises(AttributeError, match="theorem_9_9"):
        _ = hmmlib.theorem_9_9


def test_imports_bring_no_more_than_they_need():
    steps = [f"import {name}\nprint(*{set(left.split())} & sys.modules.keys())\n" for name, left in LEFT_OUT.items()]
    check = [sys.executable, "-c", "import sys\n" + "".join(steps)]
    assert subprocess.run(check, capture_output=True, text=True, check=True).stdout == "\n\n\n"


def sizes(name: str, model) -> dict[str, int]:
    """The letters that a model fixes, or the arguments of a head, which stand there in sums and products."""
    if isinstance(good_calls.function(name), type):
        return {"H": 1, "M": 2, "X": 3} if name == "AttentionHead" else {}
    if isinstance(model, MemoryHMM):
        return {"H": model.n_states, "M": model.n_memory, "N": model.n_cells}
    return {"S": model.n_states, "X": model.n_tokens}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_annotations_say_shapes_and_the_call_has_them(name):
    """A class stands for its call. A prompt, which makes sequences longer, is left out."""
    of, arguments = good_calls.function(name), dict(GOOD[name])
    signature = inspect.signature(of)
    named = {key: str(p.annotation) for key, p in signature.parameters.items() if key not in ("device", "dtype")}
    assert not [key for key, text in named.items() if text == str(inspect.Parameter.empty) or BARE.search(text)]
    if "None" in named.get("prompt", ""):
        arguments["prompt"] = None
    if not isinstance(of, type):
        named["returned"], arguments["returned"] = str(signature.return_annotation), of(**arguments)
    with jaxtyping.jaxtyped("context"):
        for letter, size in sizes(name, arguments.get("model", good_calls.MEMORY)).items():
            assert isinstance(torch.zeros(size), jaxtyping.Float[torch.Tensor, letter])
        for key, text in named.items():
            match, value = SHAPE.search(text), arguments.get(key)
            if match and value is not None and not isinstance(value, tuple | float):
                value = value if key == "returned" else torch.as_tensor(value).to(DTYPES[match[1]])
                assert isinstance(value, getattr(jaxtyping, match[1])[torch.Tensor, match[2]]), (key, text, value.shape)
