"""Conversions from models of hmmlearn and dynamax to `Rows` and back. Both libraries are installed separately."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from hmmlib.models.rows import Rows
from hmmlib.validation import as_tensor, of_shape, of_type

HMMLEARN_NAMES = ("startprob_", "transmat_", "emissionprob_")
"""What hmmlearn calls the arrays of `Rows`."""


def _as_numpy(array: Tensor):
    return array.detach().cpu().numpy().copy()


def of_hmmlearn(fitted) -> list:
    """Return the three arrays of hmmlearn's `CategoricalHMM`, in the order of `Rows`.

    Raises:
        TypeError: the model is of another class.
        ValueError: the model has not been fitted, so it has no arrays yet.
    """
    from hmmlearn.hmm import CategoricalHMM
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(of_type("fitted", fitted, CategoricalHMM), HMMLEARN_NAMES)
    return [getattr(fitted, name) for name in HMMLEARN_NAMES]


def to_hmmlearn(model: Rows):
    """Return a `CategoricalHMM` of hmmlearn with the arrays of a model in rows."""
    from hmmlearn.hmm import CategoricalHMM

    n_states, n_tokens = model.emissionprob.shape
    categorical = CategoricalHMM(n_states, n_features=n_tokens, init_params="")
    for name, array in zip(HMMLEARN_NAMES, model, strict=True):
        setattr(categorical, name, _as_numpy(array))
    return categorical


def of_dynamax(params) -> tuple:
    """Return the three arrays among the parameters of dynamax's `CategoricalHMM`, in the order of `Rows`.

    Raises:
        TypeError: the parameters are of another class.
        ValueError: an emission has several dimensions.
    """
    from dynamax.hidden_markov_model.models.categorical_hmm import ParamsCategoricalHMM

    of_type("params", params, ParamsCategoricalHMM)
    emissions = as_tensor("params.emissions.probs", params.emissions.probs)
    of_shape("params.emissions.probs", emissions, (None, 1, None), ", emissions of one dimension")
    return params.initial.probs, params.transitions.transition_matrix, emissions[:, 0]


@np.errstate(all="ignore")  # JAX may round to float32.
def to_dynamax(model: Rows) -> tuple:
    """Return a `CategoricalHMM` of dynamax and the parameters that hold the arrays of a model in rows."""
    from dynamax.hidden_markov_model import CategoricalHMM
    from jax.numpy import asarray

    n_states, n_tokens = model.emissionprob.shape
    categorical = CategoricalHMM(n_states, 1, n_tokens)
    params, _ = categorical.initialize(
        initial_probs=asarray(_as_numpy(model.startprob)),
        transition_matrix=asarray(_as_numpy(model.transmat)),
        emission_probs=asarray(_as_numpy(model.emissionprob))[:, None],
    )
    return categorical, params
