"""Models of hmmlearn and dynamax, read as rows and made of rows. Neither package is needed for anything else here."""

from __future__ import annotations

import importlib

import numpy as np

from hmmlib.models.rows import Rows, read_rows
from hmmlib.validation import of_type

ATTRIBUTES = "startprob_", "transmat_", "emissionprob_"
"""What hmmlearn calls the arrays of `Rows`."""
PARAMETERS = "initial.probs", "transitions.transition_matrix", "emissions.probs"
"""What dynamax calls them."""


def _module(name: str):
    """A module of another package; ModuleNotFoundError, which says what to install, where it is not there."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        advice = f"{package} is needed here, and cannot be imported ({error}): pip install {package}"
        raise ModuleNotFoundError(advice, name=error.name) from None


def from_hmmlearn(fitted) -> Rows:
    """The arrays of a `CategoricalHMM`, checked."""
    of_type("fitted", fitted, _module("hmmlearn.hmm").CategoricalHMM)
    if missing := [name for name in ATTRIBUTES if not hasattr(fitted, name)]:
        raise ValueError(f"fitted must be fitted, or have its arrays set, but this CategoricalHMM has no {missing[0]}")
    return read_rows(*(getattr(fitted, name) for name in ATTRIBUTES), [f"fitted.{name}" for name in ATTRIBUTES])


def to_hmmlearn(rows: Rows):
    """A `CategoricalHMM` with these arrays, whose `fit` begins with them."""
    states, tokens = rows.emissionprob.shape
    made = _module("hmmlearn.hmm").CategoricalHMM(states, n_features=tokens, init_params="")
    for name, array in zip(ATTRIBUTES, _arrays(rows), strict=True):
        setattr(made, name, array)
    return made


def from_dynamax(params) -> Rows:
    """The arrays of a `ParamsCategoricalHMM` with emissions of one dimension, checked."""
    of_type("params", params, _module("dynamax.hidden_markov_model.models.categorical_hmm").ParamsCategoricalHMM)
    words = np.asarray(params.emissions.probs)
    if words.ndim != 3 or words.shape[1] != 1:
        wanted = "(n_states, 1, n_tokens), emissions of one dimension"
        raise ValueError(f"params.emissions.probs must have shape {wanted}, not {words.shape}")
    arrays = params.initial.probs, params.transitions.transition_matrix, words[:, 0]
    return read_rows(*arrays, [f"params.{name}" for name in PARAMETERS])


def to_dynamax(rows: Rows) -> tuple:
    """A `CategoricalHMM`, and a `ParamsCategoricalHMM` with these arrays."""
    states, tokens = rows.emissionprob.shape
    hmm = _module("dynamax.hidden_markov_model").CategoricalHMM(states, 1, tokens)
    start, table, words = map(_module("jax.numpy").asarray, _arrays(rows))
    params, _ = hmm.initialize(initial_probs=start, transition_matrix=table, emission_probs=words[:, None])
    return hmm, params


def _arrays(rows: Rows) -> list[np.ndarray]:
    """What others take: arrays of NumPy, of their own."""
    return [array.detach().cpu().numpy().copy() for array in rows]
