"""Models of hmmlearn and dynamax, there and back: both libraries find the same, and their own training goes on."""

import logging

import numpy as np
import pytest
import torch
from peer_models import drawn_model, parameters, texts_for

from hmmlib import log_likelihood, posteriors
from hmmlib.models.hmm import HMM

pytestmark = pytest.mark.outside
FITTED = 60


def fitted(seed):
    """A model that hmmlearn has fitted to six texts, and these with two of any tokens, which it may find impossible."""
    rows = drawn_model(seed)
    texts = HMM.from_rows(*rows).sample(6, 10, seed).tokens.numpy()
    kind, given = pytest.importorskip("hmmlearn.hmm").CategoricalHMM, dict(n_iter=5, random_state=seed)
    made = kind(1 + seed % 5, n_features=rows[2].shape[1], **given)
    others = np.random.default_rng(seed).integers(0, rows[2].shape[1], (2, 10))
    return made.fit(texts.reshape(-1, 1), [10] * 6), np.concatenate([texts, others])


def scores(model, texts):
    return np.array([model.score(text[:, None]) for text in texts])


def test_fitted_models_of_hmmlearn_keep_their_likelihoods_there_and_back():
    """Log-likelihoods to 1e-10, absolutely; texts that cannot be stay so. The control: the transposes alone do not."""
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)  # five steps are not to converge
    impossible, sizes, kept, close = 0, {0: 0, 1: 0}, 0, dict(rtol=0, atol=1e-10)
    with np.errstate(divide="ignore"):
        for seed in range(FITTED):
            model, texts = fitted(seed)
            expected, ours = scores(model, texts), HMM.from_hmmlearn(model)
            back, own = ours.to_hmmlearn(), model.n_components
            sizes[ours.n_states - own] += 1
            np.testing.assert_allclose(log_likelihood(ours, texts), expected, **close)
            np.testing.assert_allclose(scores(back, texts), expected, **close)
            np.testing.assert_array_equal(back.transmat_, model.transmat_)
            np.testing.assert_array_equal(back.emissionprob_, model.emissionprob_)
            np.testing.assert_allclose(back.startprob_, model.startprob_, rtol=1e-12)
            for text in texts[:6]:  # their first state is our H_1, and a state that is added is our H_0 alone
                states = model.predict_proba(text[:, None])
                np.testing.assert_allclose(posteriors(ours, text[None])[0, 1:, :own], states, atol=1e-11)
            impossible += np.isinf(expected).sum()
            transposed = HMM(model.transmat_.T, model.emissionprob_.T, model.startprob_, columns=True)
            kept += own > 1 and np.allclose(log_likelihood(transposed, texts[:6]), expected[:6], **close)
    assert impossible >= 3
    assert min(sizes.values()) >= 3
    assert kept <= FITTED / 20


def test_the_training_of_hmmlearn_goes_on():
    model, texts = fitted(3)
    back, data, lengths = HMM.from_hmmlearn(model).to_hmmlearn(), texts[:6].reshape(-1, 1), [10] * 6
    before = back.score(data, lengths)
    back.n_iter = 1
    after = back.fit(data, lengths)
    assert after.monitor_.history[0] == pytest.approx(before, rel=1e-12)  # and not from a start of its own
    assert after.score(data, lengths) > before


def test_a_model_that_is_not_fitted_is_refused():
    with pytest.raises(ValueError, match="CategoricalHMM instance is not fitted"):
        HMM.from_hmmlearn(pytest.importorskip("hmmlearn.hmm").CategoricalHMM(2))


def test_models_of_dynamax_keep_their_likelihoods_there_and_back():
    """All of one shape, for which JAX compiles once, and without zeros: dynamax takes 1e-15 for them."""
    sizes, jax = set(), pytest.importorskip("jax")
    with jax.enable_x64(True):
        for seed in range(6):
            rows = drawn_model(seed, zeros=0.0, shape=(3, 4))
            params = parameters(rows)
            ours = HMM.from_dynamax(params)
            assert ours.dtype == torch.float64
            sizes.add(ours.n_states)
            text = texts_for(rows, seed)[2]
            made, back = ours.to_dynamax()
            for one in (params, back):
                found = float(made.marginal_log_prob(one, text[:, None]))
                assert found == pytest.approx(log_likelihood(ours, text[None]).item(), abs=1e-10)
            np.testing.assert_array_equal(back.transitions.transition_matrix, params.transitions.transition_matrix)
            np.testing.assert_array_equal(back.emissions.probs, params.emissions.probs)
            np.testing.assert_allclose(back.initial.probs, params.initial.probs, rtol=1e-12)
    assert sizes == {3, 4}


def test_parameters_of_dynamax_are_float32_unless_jax_is_set_to_64_bits_and_of_one_dimension():
    params = parameters()
    assert HMM.from_dynamax(params).dtype == torch.float32
    assert HMM.from_rows(*drawn_model(0)).to_dynamax()[1].transitions.transition_matrix.dtype == np.float32
    several = params._replace(emissions=params.emissions._replace(probs=np.full((2, 3, 4), 0.25)))
    with pytest.raises(ValueError, match=r"^params\.emissions\.probs must have .* one dimension, not \(2, 3, 4\)$"):
        HMM.from_dynamax(several)
