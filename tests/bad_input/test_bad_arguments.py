"""Bad arguments of public functions, one at a time in a good call: each error names the argument and what was found."""

import math
import re
from collections import UserList, deque

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse_tables
import torch
from good_calls import GOOD, LINEAR, MEMORY, PLAIN, call
from record import tried

import hmmbook
import hmmlib

NAN = math.nan
COUNTS = [0, -1, 1.5, "3", NAN, True]
SHARES = [-0.1, 1.5, NAN, "0.4", True]
RAGGED = [[1.0], [1.0, 2.0]]


def with_a_masked_entry(good) -> np.ma.MaskedArray:
    array = np.ma.masked_array(good)
    array[(0,) * array.ndim] = np.ma.masked
    return array


def with_a_masked_row(good) -> list:
    return [np.ma.masked_all_like(row) for row in np.atleast_1d(good)]


def in_a_series(good) -> pd.Series:
    return pd.Series(with_a_masked_row(good))


def as_an_object(good) -> np.ndarray:
    array = np.empty(len(good), dtype=object)
    array[:] = with_a_masked_row(good)
    return array


def in_a_deque(good) -> deque:
    return deque(with_a_masked_row(good))


def in_a_list_of_the_users_own(good) -> UserList:
    return UserList(with_a_masked_row(good))


def with_a_missing_entry(good) -> np.ndarray:
    array = torch.as_tensor(good).numpy().astype(object)
    array[(0,) * array.ndim] = None
    return array


def with_pandas_na(good) -> list:
    return [pd.NA, *np.ravel(good)[1:]]


def sparse(good) -> torch.Tensor:
    return torch.as_tensor(good).to_sparse()


def without_entries(good) -> torch.Tensor:
    return torch.as_tensor(good, device="meta")


def nested(good) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)


def quantised(good) -> torch.Tensor:
    return torch.quantize_per_tensor(torch.as_tensor(good).float(), 1.0, 0, torch.quint8)


def of_scipy(good) -> sparse_tables.csr_array:
    return sparse_tables.csr_array(np.atleast_2d(good).reshape(len(good), -1))


UNREADABLE = [
    with_a_masked_entry,
    with_a_masked_row,
    in_a_series,
    as_an_object,
    in_a_deque,
    in_a_list_of_the_users_own,
    with_a_missing_entry,
    with_pandas_na,
    sparse,
    without_entries,
    nested,
    quantised,
    of_scipy,
]
"""Functions of a good array that give what must not be read as an array."""
INDICES = [[0, 9], [-1], [], [0, 0], [0.5], ["0"], 0, None, with_a_masked_entry, with_pandas_na, sparse]
INDICES += [{0: 5}, pd.DataFrame({0: [1]}), torch.tensor(0), torch.tensor([[0]]), np.array(0), b"\x00"]
PROBABILITIES = ["words", None, RAGGED, np.array([1j]), "like NaN", "like -1", "like infinity", *UNREADABLE]
TOKENS = [
    *UNREADABLE,
    [[0, 99]],
    [[-2, 0]],
    [[0.5, 1.0]],
    [[True]],
    [0, 1],
    [[0, 1], [2]],
    [["a"]],
    None,
]
PROMPTS = [[0.5], [[0.5] * 3], [NAN] * 3, [-0.5] * 3, "u", [], *UNREADABLE]
SIZES = ["6, 2, 4", None, [6, 2], [6, 2, 4, 0], [0, 2, 4], [6, -1, 4], [6, 0.5, 4]]
BAD: dict[str, list] = {}
"""Bad values of each argument. "like NaN" is the good array with NaN as its first entry, "like 0" that with zeros."""


def bad(names: str, values: list) -> None:
    """Note bad values of some arguments."""
    for name in names.split():
        BAD[name] = values


# Models and families of models
bad("transition emission initial memory startprob transmat emissionprob", PROBABILITIES)
bad("fitted params", [None, "a model", PLAIN])
bad("device", ["quantum", "cuda:99", 0])
bad("dtype", [torch.float16, torch.int64, "float32"])
bad("n_states n_tokens n_memory n_cells n_syntax n_recoverable n_essential values permutations n length", COUNTS)
bad("zeros noise gap", SHARES)
bad("temperature", [0, -1, NAN, "cold"])
bad("seed generator", [-1, 1.5, True, "0", 2**63])
# Inference and theory
bad("model", ["a model", None, 3])
bad("tokens", TOKENS)
bad("prompt", PROMPTS)
bad("mu", [[1.0] * 9, "mu", RAGGED, "like NaN", "like infinity", "like 0", *UNREADABLE])
bad("cell at", [-1, 9, 0.5, None])
bad("i", [-1, 0.5, None])
bad("essential syntax", INDICES)
bad("recovery", [None, "theta"])
bad("probs embeddings", PROBABILITIES)
bad("posteriors", ["p", None, *UNREADABLE])
bad("evidence", ["p", None, torch.ones(2, 3), *UNREADABLE])
bad("weights query key value output positions", ["words", "like NaN", *UNREADABLE])
# Training
bad("network", ["a network", torch.nn.Linear(2, 2)])
bad("head", ["a head", None])
bad("labels", [[0, 2], [True], ["a", "b"], [1.0, NAN], None, *UNREADABLE])
bad("plan", ["a plan", None])
bad("cells", COUNTS)
bad("prompt_length", [-1, 1.5, "3"])
bad("layers width heads max_length", [-1, NAN, "a"])
bad("epochs batch head_rate prompt_rate warmup", [-1, NAN, "a"])
bad("steps masked learning_rate muon_rate clip documents", [-1, NAN, "a"])
# Experiments
bad("spec", ["smoke", None])
bad("preset", ["huge", None, ["smoke"]])
bad("panel", ["middle", None])
bad("trials", [0, -1, "many", True])
bad("sizes", SIZES)
bad("rule", ["mine", None, 3])
bad("places", ["anywhere", None])

PATTERNS = {"mu": "labels|mu", "generator": "seed", "posteriors": "posteriors|belief", "device": "device|machine"}
"""Arguments that a message may call by another name."""

EYE = np.eye(2)
HALF = [0.5, 0.5]
SINGLE = PLAIN.to(dtype=torch.float32)
THREE_SHARES = [0.5, 0.5, 0.0]
ROWS_SUM_TO_1 = [[0.9, 0.1], HALF]
OFF_BY_2E_9 = [[0.9, 0.5], [0.1 + 2e-9, 0.5]]
EVEN_TABLE = np.full((2, 2, 2), 0.5)
TABLE_OFF_AT_0_1 = EVEN_TABLE + 0.25 * (np.arange(8) == 1).reshape(2, 2, 2)
TOO_LARGE = [1e300, 0, 0]
UNEVEN = [[0.9, 0.2], [0.1, 0.8]]
NEVER_IN_STATE_1 = hmmlib.HMM([HALF, HALF], UNEVEN, [1.0, 0.0])
MISFITS = [
    (hmmlib.HMM, (ROWS_SUM_TO_1, EYE, HALF), ["transition", "Its rows do", "HMM.from_rows"]),
    (hmmlib.HMM, (OFF_BY_2E_9, EYE, HALF), ["transition", "column 0 is off by 2e-09", "divide each column by its sum"]),
    (hmmlib.HMM.from_rows, (HALF, np.transpose(OFF_BY_2E_9), EYE), ["transmat", "row 0 is off by 2e-09"]),
    (hmmlib.HMM, (EYE, EYE, [0.5, 0.500001]), ["initial", "is off by 1e-06", "divide it by its sum"]),
    (hmmlib.MemoryHMM, (EYE, TABLE_OFF_AT_0_1, HALF, HALF), ["emission", "column 0, 1 is off by 0.25"]),
    (hmmlib.HMM, (EYE, EYE, np.float32(HALF)), ["one dtype and one device", "float32"]),
    (hmmlib.HMM, (EYE, EYE, THREE_SHARES), ["transition", "shape (3, 3)"]),
    (hmmlib.MemoryHMM, (EYE, EVEN_TABLE, HALF, THREE_SHARES), ["memory", "2 values"]),
    (hmmlib.non_degenerate_hmm, (3, 2, 0), ["n_tokens", "3 or more", "2"]),
    (hmmlib.essential_hmm, (3, 4, 4, 0), ["n_essential", "1 to 3", "4"]),
    (LINEAR, (torch.ones(2, 5),), ["probs", "4", "(2, 5)"]),
    (hmmlib.theorem_3_3, (MEMORY, [1.0, -1.0]), ["model", "HMM"]),
    (hmmlib.masked_token_probs, (SINGLE, [[0, 1]], TOO_LARGE), ["prompt", "finite", "float32"]),
    (
        hmmlib.masked_token_probs_from_embeddings,
        (SINGLE, np.full((1, 2, 3), 1e-50)),
        ["embeddings", "so small", "float32"],
    ),
    (hmmbook.load_results, ("smoke", ""), ["store", "must name a folder"]),
    (hmmlib.lemma_c_2, (NEVER_IN_STATE_1, torch.ones(2)), ["model", "P[H_0] is zero", "Lemma C.2 divides by it"]),
]
"""Functions, arguments that do not fit each other, and phrases of the refusal."""


def spoiled(good, value):
    """The bad value to be given. "like …" stands for the good array with that number in it."""
    if callable(value) and value in UNREADABLE:
        return value(good)
    if not (isinstance(value, str) and value.startswith("like ")):
        return value
    number = float(value.removeprefix("like "))
    if isinstance(good, torch.Tensor):
        good = good.tolist()
    array = np.array(good, dtype=float)
    if number == 0:
        array[...] = 0
    else:
        array.reshape(-1)[0] = number
    return array


def complaint(name: str, argument: str, value) -> str | None:
    """What is wrong with how a function takes a bad argument. None if it refuses it by its name."""
    try:
        call(name, **{argument: spoiled(GOOD[name][argument], value)})
    except (ValueError, TypeError, OSError) as error:
        pattern = PATTERNS.get(argument, argument)
        if re.search(rf"(?<!\w)({pattern})(?!\w)", str(error)):
            return None
        return f"{argument}={value!r}: {error}"
    return f"{argument}={value!r} is taken"


@tried("arguments of functions")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("name", GOOD)
def test_a_bad_argument_is_refused_by_name(name):
    try:
        call(name)  # the good call is good
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    complaints = []
    for argument in GOOD[name]:
        for value in BAD[argument]:
            complaints.append(complaint(name, argument, value))
    assert not any(complaints), "\n".join(filter(None, complaints))


@pytest.mark.parametrize(("function", "arguments", "phrases"), MISFITS)
def test_arguments_that_do_not_fit_each_other_are_refused_in_words(function, arguments, phrases):
    with pytest.raises((ValueError, TypeError)) as refusal:
        function(*arguments)
    for phrase in phrases:
        assert phrase in str(refusal.value)


@pytest.mark.parametrize(("kind", "off"), [(np.float64, 5e-10), (np.float32, -5e-6)])
def test_columns_off_by_less_than_the_tolerance_pass(kind, off):
    transition = kind([[0.75 + off, 0.5], [0.25, 0.5]])
    model = hmmlib.HMM(transition, kind(EYE), kind(HALF))
    sum_of_column = model.transition.sum(0)[0]
    assert sum_of_column == pytest.approx(1 + off, abs=abs(off) / 10)


def test_nobody_can_change_a_model_from_outside():
    memory = torch.tensor([0.5, 0.5], dtype=torch.float64)
    emission = np.reshape([0.5, 0.5, 0.2, 0.5, 0.5, 0.5, 0.8, 0.5], (2, 2, 2))
    model = hmmlib.MemoryHMM(EYE, emission, HALF, memory)
    before = hmmlib.memory_posterior(model, [[0]])
    memory[:] = torch.tensor([0.9, 0.1])
    assert torch.equal(hmmlib.memory_posterior(model, [[0]]), before)


@tried("files and folders")
@pytest.mark.parametrize("name", ["folder.pt", "notes.txt", "notes.txt/run.pt"])
def test_a_checkpoint_in_the_place_of_something_else_is_refused_before_the_work_and_leaves_it(name, tmp_path):
    folder = tmp_path / "folder.pt"
    folder.mkdir()
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises((ValueError, OSError), match=r"folder\.pt|notes\.txt"):
        hmmbook.run_trial(hmmbook.TrialSpec("smoke"), device="cpu", checkpoint=tmp_path / name)
    assert notes.read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == [folder, notes]
