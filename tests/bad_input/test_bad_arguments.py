"""Bad arguments of public functions, one at a time in a good call: each error names the argument and what was found."""

import math
import re

import good_calls
import numpy as np
import pytest
import torch
from good_calls import GOOD, LINEAR, MEMORY, PLAIN, call
from record import tried

import hmmlib
from hmmlib.training.checkpoints import load

NAN, INF = math.nan, math.inf
INDICES = [[0, 9], [-1], [], [0, 0], [0.5], ["0"], 0, None]
COUNTS = [0, -1, 1.5, "3", NAN, True]
ARRAYS = ["words", None, [[1.0], [1.0, 2.0]], np.array([1j])]
PLANNED = [-1, NAN, "a"]
PROBABILITIES = [*ARRAYS, "like NaN", "like -1", "like infinity"]
BAD = {
    "tokens": [[[0, 99]], [[-2, 0]], [[0.5, 1.0]], [[True]], [0, 1], [[0, 1], [2]], [["a"]], None],
    "prompt": [[0.5], [[0.5] * 3], [NAN] * 3, [-0.5] * 3, "u", []],
    "mu": [[1.0] * 9, "mu", [[1.0], [1.0, 2.0]], "like NaN", "like infinity", "like 0"],
    "cell": [-1, 9, True, 0.5, None],
    **dict.fromkeys(("essential", "syntax"), INDICES),
    "recovery": [None, "theta"],
    **{key: [-0.1, 1.5, NAN, "0.4", True] for key in ("zeros", "noise", "gap")},
    **dict.fromkeys(("n_states", "n_tokens", "n_memory", "n_cells", "n_syntax", "n_recoverable"), COUNTS),
    **dict.fromkeys(("n_essential", "values", "permutations", "n", "length", "cells"), COUNTS),
    "at": [-1, 9, 0.5, None],
    "i": [-1, 0.5, None],
    **{key: [-1, 1.5, True, "0", 2**63] for key in ("seed", "generator")},
    "sizes": ["6, 2, 4", None, [6, 2], [6, 2, 4, 0], [0, 2, 4], [6, -1, 4], [6, 0.5, 4]],
    "places": ["anywhere", None],
    "plan": ["a plan", None],
    "model": ["a model", None, 3],
    "network": ["a network", torch.nn.Linear(2, 2)],
    "spec": ["smoke", None],
    "head": ["a head", None],
    "temperature": [0, -1, NAN, "cold"],
    **dict.fromkeys(("transition", "emission", "initial", "memory", "probs", "embeddings"), PROBABILITIES),
    **dict.fromkeys(("startprob", "transmat", "emissionprob"), PROBABILITIES),
    "posteriors": ["p", None],
    "evidence": ["p", None, torch.ones(2, 3)],
    **{key: ["words", "like NaN"] for key in ("weights", "query", "key", "value", "output", "positions")},
    "labels": [[0, 2], [True], ["a", "b"], [1.0, NAN], None],
    "device": ["quantum", "cuda:99", 0],
    "dtype": [torch.float16, torch.int64, "float32"],
    **{key: [None, "a model", PLAIN] for key in ("fitted", "params")},
    "rule": ["mine", None, 3],
    "preset": ["huge", None, ["smoke"]],
    "panel": ["middle", None],
    "trials": [0, -1, "many", True],
    "prompt_length": [-1, 1.5, "3"],
    **dict.fromkeys(("layers", "width", "heads", "max_length"), PLANNED),
    **dict.fromkeys(("epochs", "batch", "head_rate", "prompt_rate", "warmup"), PLANNED),
    **dict.fromkeys(("steps", "masked", "learning_rate", "muon_rate", "clip", "documents"), PLANNED),
}
OTHER_WORDS = {"mu": "labels|mu", "generator": "seed", "posteriors": "posteriors|belief", "device": "device|machine"}
"""Arguments that a message may call by another name, as patterns."""
EYE, HALF, SINGLE = np.eye(2), [0.5, 0.5], PLAIN.to(dtype=torch.float32)
ENTERED_NO_MORE = hmmlib.HMM([HALF, HALF], [[0.9, 0.2], [0.1, 0.8]], [1.0, 0.0])
UNFITTING = {
    "transition, its rows do, HMM.from_rows": lambda: hmmlib.HMM([[0.9, 0.1], HALF], EYE, HALF),
    "transition, sum to 1 within 1e-09, 2e-09": lambda: hmmlib.HMM([[0.9, 0.5], [0.1 + 2e-9, 0.5]], EYE, HALF),
    "one dtype and one device, float32": lambda: hmmlib.HMM(EYE, EYE, np.float32(HALF)),
    "transition, shape (3 3)": lambda: hmmlib.HMM(EYE, EYE, [0.5, 0.5, 0.0]),
    "memory, 2 values": lambda: hmmlib.MemoryHMM(EYE, np.full((2, 2, 2), 0.5), HALF, [0.5, 0.5, 0.0]),
    "n_tokens, 3 or more, 2": lambda: hmmlib.non_degenerate_hmm(3, 2, 0),
    "n_essential, 1 to 3, 4": lambda: hmmlib.essential_hmm(3, 4, 4, 0),
    "probs, 4, (2 5)": lambda: LINEAR(torch.ones(2, 5)),
    "model, HMM": lambda: hmmlib.theorem_3_3(MEMORY, [1.0, -1.0]),
    "prompt, finite, float32": lambda: hmmlib.masked_token_probs(SINGLE, [[0, 1]], [1e300, 0, 0]),
    "embeddings, so small, float32": lambda: hmmlib.masked_token_probs_from_embeddings(
        SINGLE, np.full((1, 2, 3), 1e-50)
    ),
    "store, must name a folder": lambda: hmmlib.load_results("smoke", ""),
    "Lemma C.2 divides by P[H_0], which is zero": lambda: hmmlib.lemma_c_2(ENTERED_NO_MORE, torch.ones(2)),
}
"""Arguments that do not fit each other, by the words of the refusal."""


def spoiled(good, value):
    """The value to be given: "like NaN" is the good array with NaN as its first entry, "like 0" that with zeros."""
    if not (isinstance(value, str) and value.startswith("like ")):
        return value
    array = np.array(good.tolist() if isinstance(good, torch.Tensor) else good, dtype=float)
    array.reshape(-1)[: None if value == "like 0" else 1] = float(value.removeprefix("like "))
    return array


@tried("arguments of functions")
@pytest.mark.parametrize("name", GOOD)
def test_a_bad_argument_is_refused_by_name(name):
    try:
        call(name)  # the good call is good
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    cases = [(argument, value) for argument in GOOD[name] for value in BAD[argument]]
    problems = []
    for argument, value in cases:
        try:
            call(name, **{argument: spoiled(GOOD[name][argument], value)})
            problems.append(f"{argument}={value!r} is taken")
        except (ValueError, TypeError, OSError) as error:
            if not re.search(rf"(?<!\w)({OTHER_WORDS.get(argument, argument)})(?!\w)", str(error)):
                problems.append(f"{argument}={value!r}: {error}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("words", UNFITTING)
def test_arguments_that_do_not_fit_each_other_are_refused_in_words(words):
    with pytest.raises((ValueError, TypeError)) as caught:
        UNFITTING[words]()
    assert all(word in str(caught.value).replace(", ", " ") for word in words.split(", ")), caught.value


@pytest.mark.parametrize(("kind", "off"), [(np.float64, 5e-10), (np.float32, -5e-6)])
def test_columns_off_by_less_than_the_tolerance_pass(kind, off):
    model = hmmlib.HMM(kind([[0.75 + off, 0.5], [0.25, 0.5]]), kind(np.eye(2)), kind([0.5, 0.5]))
    assert model.transition.sum(0)[0] == pytest.approx(1 + off, abs=abs(off) / 10)


def test_unsigned_and_strided_arrays_are_as_good_as_others():
    tokens, expected = good_calls.TOKENS, hmmlib.posteriors(PLAIN, good_calls.TOKENS)
    for same in (np.uint64(tokens), np.array(tokens)[::-1][::-1], torch.tensor(tokens, dtype=torch.uint8)):
        assert torch.equal(hmmlib.posteriors(PLAIN, same), expected)
    with pytest.raises(ValueError, match="tokens must be 0 to"):  # as int64 this would be MASK
        hmmlib.posteriors(PLAIN, np.array([[2**64 - 1]], dtype=np.uint64))


def test_nobody_can_change_a_model_or_a_head_from_outside():
    memory = torch.tensor([0.5, 0.5], dtype=torch.float64)
    model = hmmlib.MemoryHMM(np.eye(2), [[[0.5, 0.5], [0.2, 0.5]], [[0.5, 0.5], [0.8, 0.5]]], [0.5, 0.5], memory)
    expected = hmmlib.memory_posterior(model, [[0]])
    memory[:] = torch.tensor([0.9, 0.1])
    assert torch.equal(hmmlib.memory_posterior(model, [[0]]), expected)
    weights = torch.tensor([1.0, -1.0])
    head = hmmlib.LinearHead(weights)
    weights[:] = NAN
    assert head.label([[0.6, 0.4]]).item()


@tried("files and folders")
@pytest.mark.parametrize("name", ["folder.safetensors", "notes.txt", "notes.txt/run.safetensors"])
def test_a_checkpoint_in_the_place_of_something_else_is_refused_before_the_work_and_leaves_it(name, tmp_path):
    path = tmp_path / name
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    for use in (lambda: hmmlib.run_trial(hmmlib.TrialSpec("smoke"), None, "cpu", path), lambda: load(path, {})):
        with pytest.raises((ValueError, OSError), match=f"{path}|notes.txt"):
            use()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert len([*tmp_path.rglob("*")]) == 2
