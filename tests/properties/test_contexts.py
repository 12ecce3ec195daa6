"""What torch and NumPy have set around a call of models, inference or theory changes no number of it."""

import inspect
from dataclasses import is_dataclass, replace
from enum import Enum

import good_calls
import numpy as np
import pytest
import torch
from good_calls import ATTENTION, CELL, GOOD, LINEAR, MEMORY, MEMORY_PROBS, MEMORY_TOKENS, OBJECTS, PLAIN, PROBS, TOKENS

import hmmlib
from hmmlib.inference import reference

PACKAGES = ("hmmlib.models", "hmmlib.inference", "hmmlib.theory")
OWNERS = {**OBJECTS, "reference": reference, "FARM": hmmlib.farm()}
MEMORY_EMBEDDINGS = MEMORY.embed(MEMORY_TOKENS)
CALLS = {
    "HMM.from_rows": {"startprob": [0.5, 0.5], "transmat": [[0.9, 0.1], [0.3, 0.7]], "emissionprob": np.eye(2)},
    "PLAIN.stationary": {},
    "PLAIN.to_rows": {},
    "PLAIN.to_hmmlearn": {},
    "PLAIN.to_dynamax": {},
    "MEMORY.marginal": {"i": 3000},
    "MEMORY.stationary": {},
    "MEMORY.sample": {"n": 2, "length": 3, "seed": 0},
    "MEMORY.to": {"dtype": torch.float64},
    "MEMORY.joint_values": {},
    "MEMORY.lift": {"embeddings": MEMORY_EMBEDDINGS},
    "MEMORY.unlift": {"lifted": MEMORY.lift(MEMORY_EMBEDDINGS)},
    "MEMORY.flatten": {},
    "LINEAR.tolerance": {"probs": PROBS[:, 0]},
    "LINEAR.predict": {"probs": PROBS[:, 0]},
    "LINEAR.score": {"probs": PROBS[:, 0], "labels": [True, False]},
    "LinearHead.by_left_inverse": {"columns": PLAIN.emission, "target": PLAIN.initial, "condition": 9.0},
    "ATTENTION.scores": {"probs": MEMORY_PROBS},
    "ATTENTION.attended": {"probs": MEMORY_PROBS},
    "ATTENTION.values": {"probs": MEMORY_PROBS, "embeddings": MEMORY_EMBEDDINGS},
    "FARM.state": {"cell": "animal", "syntax": "noun"},
    "FARM.encode": {"text": "the dog"},
    "FARM.decode": {"tokens": [[0, 1]]},
    "FARM.sample": {"n": 2, "length": 3},
    "farm": {},
    "sentences": {},
    "hidden_twins": {},
    "reference.left_and_right": {"model": MEMORY, "embeddings": MEMORY_EMBEDDINGS},
    "reference.tau": {"model": PLAIN, "embeddings": PLAIN.embed(TOKENS)},
    "reference.masked_token_probs_from_embeddings": {"model": PLAIN, "embeddings": PLAIN.embed(TOKENS)},
    "reference.masked_token_probs": {"model": MEMORY, "tokens": MEMORY_TOKENS},
    "reference.latent_given_others": {"model": MEMORY, "tokens": MEMORY_TOKENS},
    "reference.posteriors": {"model": PLAIN, "tokens": TOKENS},
    "reference.memory_posterior": {"model": MEMORY, "tokens": MEMORY_TOKENS, "cell": CELL},
    "reference.log_likelihood": {"model": PLAIN, "tokens": TOKENS},
}
"""Good calls of functions and methods that have none in `good_calls`, or only on another model."""


def is_ours(name: str) -> bool:
    return good_calls.function(name).__module__.startswith(PACKAGES)


CALLS.update({name: GOOD[name] for name in GOOD if is_ours(name) and name not in CALLS})


def as_single(value):
    """The same argument in float32."""
    if isinstance(value, hmmlib.HMM | hmmlib.MemoryHMM):
        return value.to(dtype=torch.float32)
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, list | np.ndarray):
        array = np.array(value)
        return np.float32(array) if array.dtype.kind == "f" else value
    if is_dataclass(value) and not isinstance(value, type):
        tensors = {name: as_single(part) for name, part in vars(value).items() if isinstance(part, torch.Tensor)}
        return replace(value, **tensors)
    return value


def called(name: str, single: bool = False):
    """The result of a good call, with arguments in float32 if that is asked for."""
    owner, _, method = name.partition(".")
    target = OWNERS[owner] if owner in OWNERS else getattr(hmmlib, owner)
    arguments = dict(CALLS[name])
    for key, value in arguments.items():
        if any(value is make for make in good_calls.MADE_WHEN_CALLED):
            arguments[key] = value()
    if single:
        target = as_single(target)
        arguments = {key: as_single(value) for key, value in arguments.items()}
    return (getattr(target, method) if method else target)(**arguments)


def tensors_in(value) -> list[torch.Tensor]:
    """All tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = []
    if isinstance(value, list | tuple):
        parts = value
    elif hasattr(value, "__dict__") and not isinstance(value, Enum):
        parts = vars(value).values()
    return [tensor for part in parts for tensor in tensors_in(part)]


def in_bits(value):
    """A result as something that is equal only if every bit is."""
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return str(array.dtype), array.shape, array.tobytes()
    if isinstance(value, list | tuple):
        return [in_bits(part) for part in value]
    if hasattr(value, "__dict__") and type(value).__module__.startswith(("hmmlib", "hmmlearn")):
        return {name: in_bits(part) for name, part in vars(value).items()}
    return type(value).__name__ if hasattr(value, "__dict__") else repr(value)


def test_everything_public_is_called():
    public = [name for name in hmmlib.__all__ if inspect.isfunction(getattr(hmmlib, name)) and is_ours(name)]
    for owner in ("PLAIN", "MEMORY", "LINEAR", "ATTENTION", "FARM"):
        for name, _ in inspect.getmembers(type(OWNERS[owner]), inspect.isfunction):
            public.append(f"{owner}.{name}")
    for name, function in inspect.getmembers(reference, inspect.isfunction):
        if function.__module__ == reference.__name__:
            public.append(f"reference.{name}")
    missing = [name for name in public if "._" not in name and name not in CALLS]
    assert missing == []


CONTEXTS = [
    lambda: torch.autocast("cpu", torch.bfloat16),
    lambda: torch.autocast("cpu", torch.float16),
    lambda: np.errstate(all="raise"),
    lambda: torch.device("meta"),
    torch.inference_mode,
    torch.no_grad,
]


@pytest.mark.filterwarnings("ignore:.* is too close to tell")
@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("name", CALLS)
def test_no_context_changes_a_bit(name, single):
    try:
        expected = in_bits(called(name, single))
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    for context in CONTEXTS:
        with context():
            result = in_bits(called(name, single))
        assert result == expected


def test_autocast_would_change_a_product():
    weights = PLAIN.to(dtype=torch.float32).emission
    with torch.autocast("cpu", torch.bfloat16):
        assert (weights @ weights.T).dtype == torch.bfloat16


@pytest.mark.parametrize("name", CALLS)
def test_no_result_is_a_view_of_a_model_or_of_a_head(name):
    try:
        result = called(name)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    owned = set()
    for owner in (PLAIN, MEMORY, LINEAR, ATTENTION, *CALLS[name].values()):
        if not isinstance(owner, type):
            owned |= {tensor.untyped_storage().data_ptr() for tensor in tensors_in(owner)}
    for tensor in tensors_in(result):
        assert not tensor.numel() or tensor.untyped_storage().data_ptr() not in owned


def test_a_models_own_numbers_stay_when_its_rows_are_changed():
    model = hmmlib.HMM.from_rows([0.5, 0.5], [[0.75, 0.25], [0.25, 0.75]], [[1.0, 0.0], [0.5, 0.5]])
    rows = model.to_rows()
    for table in rows:
        table.zero_()
    assert model.transition.tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert model.emission.tolist() == [[1.0, 0.5], [0.0, 0.5]]
    assert model.initial.tolist() == [0.5, 0.5]


def test_the_words_of_the_farm_stay_when_those_of_one_farm_are_changed():
    hmmlib.farm().words.append("wolf")
    assert "wolf" not in hmmlib.farm().words


# Models and heads that are made in inference mode


def made_in_inference_mode() -> tuple:
    """A model, the same in float32, a memory model, and a head of a theorem, all made in inference mode."""
    with torch.inference_mode():
        model = hmmlib.HMM([[0.75, 0.25], [0.25, 0.75]], [[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5], columns=True)
        memory = hmmlib.MemoryHMM(np.eye(2), np.full((2, 2, 2), 0.5), [0.5, 0.5], [0.5, 0.5])
        return model, model.to(dtype=torch.float32), memory, hmmlib.theorem_3_3(model, [1.0, -1.0])


def test_what_is_made_in_inference_mode_takes_part_in_gradients():
    model, single, memory, head = made_in_inference_mode()
    for part in (model, single, memory):
        prompt = torch.ones(part.emission[0].numel(), dtype=part.dtype, requires_grad=True)
        hmmlib.masked_token_probs(part, [[0, 1]], prompt)[0, 0, 0].backward()
        assert prompt.grad.isfinite().all()
    probs = torch.tensor([[0.75, 0.25]], dtype=torch.float64, requires_grad=True)
    head(probs).sum().backward()
    assert torch.equal(probs.grad[0], head.weights)


def test_a_model_that_is_made_in_inference_mode_requires_no_gradient_of_what_it_was_made_from():
    initial = torch.tensor([0.5, 0.5], dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        model = hmmlib.HMM(np.eye(2), np.eye(2), initial, columns=True)
    assert not model.initial.requires_grad
    assert not model.initial.is_inference()
