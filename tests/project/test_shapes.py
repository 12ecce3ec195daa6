"""Arrays that public functions of models, inference and theory take and give: annotations say their shapes, and
truly."""

import inspect
import re

import good_calls
import jaxtyping
import pytest
import torch
from good_calls import GOOD

from hmmlib.models.hmm import MemoryHMM

ROOMS = ("hmmlib.models", "hmmlib.inference", "hmmlib.theory")
SHAPE = re.compile(r"(Float|Int|Bool)\[(?:Tensor|ArrayLike), '([^']+)'\]")
DTYPES = {"Float": torch.float64, "Int": torch.int64, "Bool": torch.bool}
OTHER_SIZES = {"AttentionHead": {"H": 1, "M": 2, "X": 3}, "MemoryHMM": {"H": 2, "M": 2, "X": 2}}
FUNCTIONS = [
    name
    for name in GOOD
    if good_calls.function(name).__module__.startswith(ROOMS) and name not in ("HMM.from_hmmlearn", "HMM.from_dynamax")
]


def annotations(name: str) -> dict[str, str]:
    """Of each argument, and of what is returned; a class stands for its call."""
    of = good_calls.function(name)
    found = inspect.signature(of)
    named = {key: p.annotation for key, p in found.parameters.items() if key not in ("device", "dtype")}
    return named if isinstance(of, type) else named | {"returned": found.return_annotation}


def without_shape(named: dict[str, str]) -> list[str]:
    """Arguments that say nothing, or that take an array and not of what shape."""
    bare = re.compile(r"(?<!\w)(Tensor|ArrayLike)(?!, '|\w)")
    given = {key: text for key, text in named.items() if key != "returned"}
    return [key for key, text in given.items() if text is inspect.Parameter.empty or bare.search(str(text))]


def sizes(name: str, arguments: dict) -> dict[str, int]:
    """The letters that a model fixes; those of the good calls' memory model where there is none."""
    model = arguments.get("model", good_calls.MEMORY)
    if name in OTHER_SIZES:
        return OTHER_SIZES[name]
    if isinstance(model, MemoryHMM):
        return {"H": model.n_states, "M": model.n_memory, "N": model.n_cells}
    return {"S": model.n_states, "X": model.n_tokens}


def misfits(name: str, named: dict[str, str]) -> list[str]:
    """What in a good call has another shape than its annotation. Without a prompt, which makes sequences longer by
    one."""
    of = good_calls.function(name)
    arguments = GOOD[name] | {key: None for key, text in named.items() if key == "prompt" and "None" in str(text)}
    values = arguments | {"returned": None if isinstance(of, type) else of(**arguments)}
    wrong = []
    with jaxtyping.jaxtyped("context"):
        for letter, size in sizes(name, arguments).items():
            assert isinstance(torch.zeros(size), jaxtyping.Float[torch.Tensor, letter])
        for key, text in named.items():
            match, value = SHAPE.search(str(text)), values.get(key)
            if match and value is not None and not isinstance(value, tuple | float):
                value = value if key == "returned" else torch.as_tensor(value).to(DTYPES[match[1]])
                if not isinstance(value, getattr(jaxtyping, match[1])[torch.Tensor, match[2]]):
                    wrong.append(f"{key}: {tuple(value.shape)} is no {text}")
    return wrong


@pytest.mark.parametrize("name", FUNCTIONS)
def test_annotations_say_shapes_and_the_call_has_them(name):
    named = annotations(name)
    assert without_shape(named) == []
    assert misfits(name, named) == []


def test_a_wrong_or_a_missing_shape_is_noticed():
    named = annotations("posteriors")
    assert named["returned"] == "Float[Tensor, 'n T+1 S']"
    assert misfits("posteriors", named | {"returned": "Float[Tensor, 'n T S']"})
    assert misfits("posteriors", named | {"returned": "Int[Tensor, 'n T+1 S']"})
    assert without_shape(named | {"tokens": "Tensor"}) == ["tokens"]
