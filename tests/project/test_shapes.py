"""Arrays that public functions of models, inference and theory take and give: annotations say their shapes, and truly."""

import inspect
import re
import subprocess
import sys

import good_calls
import jaxtyping
import pytest
import torch
from good_calls import GOOD
from peer_models import NEEDS

from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import AttentionHead

ROOMS = ("models.", "inference.", "theory.")
SHAPE = re.compile(r"(Float|Int|Bool)\[(?:Tensor|ArrayLike), '([^']+)'\]")
NO_ARRAYS = {"device", "dtype"}
"""Arguments without an annotation that take no array."""
OWN = {AttentionHead: {"H": 1, "M": 2, "X": 3}, MemoryHMM: {"H": 2, "M": 2, "X": 2}}
"""The letters of good calls that make something of sizes of their own."""
FUNCTIONS = [of for of in GOOD if good_calls.home(of).startswith(ROOMS) and of not in NEEDS]
"""Those that read a model of another package take no array."""


def annotations(of) -> dict[str, str]:
    """Of each argument, and of what is returned; a class stands for its call."""
    found = inspect.signature(of)
    told = {name: parameter.annotation for name, parameter in found.parameters.items() if name not in NO_ARRAYS}
    return told | ({} if isinstance(of, type) else {"returned": found.return_annotation})


def without_shape(told: dict[str, str]) -> list[str]:
    """Arguments that say nothing, or that take an array and not of what shape."""
    bare = re.compile(r"(?<!\w)(Tensor|ArrayLike)(?!, '|\w)")
    given = {name: text for name, text in told.items() if name != "returned"}
    return [name for name, text in given.items() if text is inspect.Parameter.empty or bare.search(str(text))]


def as_given(value, kind: str) -> torch.Tensor:
    """What a caller may give as a list, as the tensor that it stands for."""
    return torch.as_tensor(value).to({"Float": torch.float64, "Int": torch.int64, "Bool": torch.bool}[kind])


def fits(value: torch.Tensor, kind: str, shape: str) -> bool:
    """As jaxtyping reads it, with the sizes that letters have so far."""
    return isinstance(value, getattr(jaxtyping, kind)[torch.Tensor, shape])


def sizes(of, arguments: dict) -> dict[str, int]:
    """The letters that a model fixes; those of the good calls' memory model where there is none."""
    if of in OWN:
        return OWN[of]
    model = arguments.get("model", good_calls.MEMORY)
    if isinstance(model, MemoryHMM):
        return {"H": model.n_states, "M": model.n_memory, "N": model.n_cells}
    assert isinstance(model, HMM)
    return {"S": model.n_states, "X": model.n_tokens}


def misfits(of, told: dict[str, str]) -> list[str]:
    """What in a good call has another shape than its annotation. Without a prompt, which makes sequences longer by one."""
    optional = {"prompt"} & {name for name, text in told.items() if str(text).endswith("| None")}
    arguments = GOOD[of] | dict.fromkeys(optional)
    values = arguments | {"returned": None if isinstance(of, type) else of(**arguments)}
    wrong = []
    with jaxtyping.jaxtyped("context"):
        for letter, size in sizes(of, arguments).items():
            assert fits(torch.zeros(size), "Float", letter)
        for name, text in told.items():
            match, value = SHAPE.search(str(text)), values.get(name)
            if match and value is not None and not isinstance(value, tuple | float):
                value = value if name == "returned" else as_given(value, match[1])
                wrong += [] if fits(value, *match.groups()) else [f"{name}: {tuple(value.shape)} is no {text}"]
    return wrong


@pytest.mark.parametrize("of", FUNCTIONS, ids=lambda of: of.__qualname__)
def test_annotations_say_shapes_and_the_call_has_them(of):
    told = annotations(of)
    assert without_shape(told) == []
    assert misfits(of, told) == []


def test_a_wrong_or_a_missing_shape_is_noticed():
    of = next(one for one in FUNCTIONS if one.__qualname__ == "posteriors")
    told = annotations(of)
    assert told["returned"] == "Float[Tensor, 'n T+1 S']"
    assert misfits(of, told | {"returned": "Float[Tensor, 'n T S']"})
    assert misfits(of, told | {"returned": "Int[Tensor, 'n T+1 S']"})
    assert without_shape(told | {"tokens": "Tensor"}) == ["tokens"]
    assert without_shape(told | {"tokens": inspect.Parameter.empty}) == ["tokens"]


@pytest.mark.outside
def test_shapes_cost_nothing_when_the_library_is_imported():
    code = "import sys, hmmlib; hmmlib.theorem_3_3; hmmlib.posterior; assert 'jaxtyping' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
