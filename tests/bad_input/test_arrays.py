"""Arrays and numbers of all kinds: which are as good as others, and what a refusal says is wrong with one."""

from decimal import Decimal
from fractions import Fraction

import good_calls
import numpy as np
import pandas as pd
import pytest
import torch
from good_calls import LINEAR, PLAIN

import hmmlib

EYE = np.eye(2)
HALF = [0.5, 0.5]
UNEVEN = [[0.9, 0.2], [0.1, 0.8]]


def as_table_that_may_lack_entries(array) -> pd.DataFrame:
    return pd.DataFrame(array).convert_dtypes()


def with_swapped_bytes(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder())


def reversed_twice(array: np.ndarray) -> np.ndarray:
    return array[::-1].copy()[::-1]


def read_only(array: np.ndarray) -> np.ndarray:
    return np.broadcast_to(array, array.shape)


def as_objects(array: np.ndarray) -> np.ndarray:
    return array.astype(object)


def as_lists_of_tensors(array: np.ndarray) -> list:
    return list(torch.as_tensor(array))


KINDS = [
    pd.DataFrame,
    as_table_that_may_lack_entries,
    np.ma.masked_array,  # without a masked entry
    with_swapped_bytes,
    reversed_twice,
    read_only,
    as_objects,
    as_lists_of_tensors,
]


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_all_kinds_are_as_good_as_others(kind):
    tokens = np.array(good_calls.TOKENS)
    probs = good_calls.PROBS[:, 0].numpy()
    labels = pd.Series([True, False], dtype="boolean")
    model = hmmlib.HMM(kind(np.array(UNEVEN)), kind(EYE), HALF)
    assert model.transition.tolist() == UNEVEN
    assert torch.equal(hmmlib.posteriors(PLAIN, kind(tokens)), hmmlib.posteriors(PLAIN, tokens))
    assert torch.equal(LINEAR(kind(probs)), LINEAR(probs))
    assert hmmlib.accuracy(LINEAR, kind(probs), labels) == hmmlib.accuracy(LINEAR, probs, [True, False])


@pytest.mark.parametrize("dtype", [np.uint64, np.uint8, np.int16])
def test_integers_of_all_sizes_are_tokens(dtype):
    tokens = good_calls.TOKENS
    assert torch.equal(hmmlib.posteriors(PLAIN, dtype(tokens)), hmmlib.posteriors(PLAIN, tokens))


def test_a_large_unsigned_integer_is_no_mask():
    mask_as_int64 = np.array([[2**64 - 1]], dtype=np.uint64)
    with pytest.raises(ValueError, match=r"tokens must be 0 to .* one is 18446744073709551615$"):
        hmmlib.posteriors(PLAIN, mask_as_int64)


def test_long_doubles_are_probabilities():
    transition = np.longdouble(UNEVEN)
    assert hmmlib.HMM(transition, EYE, HALF).transition.tolist() == UNEVEN


def test_a_long_double_that_is_too_small_for_a_float_is_zero_whatever_numpy_is_set_to():
    transition = np.longdouble([["1", "1e-4000"], ["0", "1"]])
    with np.errstate(all="raise"):
        model = hmmlib.HMM(transition, EYE, HALF, columns=True)
    assert torch.equal(model.transition, torch.eye(2).double())


def test_a_model_in_rows_is_the_same_whatever_numpy_is_set_to():
    start = [1 - 1e-300, 1e-300]
    transmat = [[0.9, 0.1], [0.3, 0.7]]
    model = hmmlib.HMM.from_rows(start, transmat, EYE)
    with np.errstate(all="raise"):
        same = hmmlib.HMM.from_rows(start, transmat, EYE)
    assert torch.equal(same.transition, model.transition)
    assert torch.equal(same.initial, model.initial)


@pytest.mark.parametrize("weight", [2**70, Fraction(2**70), Decimal(2**70)])
def test_weights_of_a_task_may_be_numbers_of_any_type(weight):
    targets = hmmlib.ground_truth(PLAIN, [weight, 0, -1], good_calls.TOKENS)
    assert torch.equal(targets, hmmlib.ground_truth(PLAIN, [2.0**70, 0.0, -1.0], good_calls.TOKENS))


@pytest.mark.parametrize("weight", [10**400, Fraction(10**400)])
def test_a_weight_that_no_float_holds_is_refused(weight):
    with pytest.raises(ValueError, match=r"^mu must be an array of numbers, .* too large"):
        hmmlib.ground_truth(PLAIN, [weight, 0, -1], good_calls.TOKENS)


@pytest.mark.parametrize("at", [slice(9, 12), slice(0, 0), slice(None, None, -1), slice(None, None, 0), slice("a")])
def test_positions_that_are_none_or_descend_are_refused(at):
    evidence = PLAIN.embed([[0, 1]])
    with pytest.raises(ValueError, match=r"^at must be a slice of one or more of the positions 0 to 2, ascending"):
        hmmlib.aggregated_messages(PLAIN, evidence, at)


def test_one_position_is_no_slice():
    with pytest.raises(TypeError, match=r"^at must be of type slice, not int$"):
        hmmlib.aggregated_messages(PLAIN, PLAIN.embed([[0, 1]]), 3)


def test_a_seed_of_which_a_cpu_would_read_only_a_part_is_refused():
    small = torch.Generator().manual_seed(5)
    large = torch.Generator().manual_seed(2**32 + 5)
    assert torch.equal(torch.rand(3, generator=small), torch.rand(3, generator=large))
    with pytest.raises(ValueError, match=r"^seed must be an integer from 0 to 2\*\*32 - 1 or a torch\.Generator, not"):
        hmmlib.random_hmm(3, seed=2**32 + 5)
    assert hmmlib.random_hmm(3, seed=2**32 - 1).n_states == 3


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (np.ma.masked_array([[0, 1]], [[0, 1]]), "have no masked entries"),
        ([[0, None]], "because None is not a number"),
        (pd.DataFrame({"first": [0, None]}, dtype="Int64"), "be integers, but an entry is missing. Write MASK = -1"),
        ([[0, pd.NA]], "because <NA> is not a number"),
        ([[2**70]], "because its numbers are too large"),
        ([[Fraction(1, 2)]], "because its numbers are too large, or fractions"),
        (torch.tensor([[0, 1]]).to_sparse(), r"is sparse\. Pass value\.to_dense\(\)"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_an_array(tokens, reason):
    with pytest.raises(ValueError, match=rf"^tokens must .*{reason}"):
        hmmlib.posteriors(PLAIN, tokens)
