"""Models of hmmlearn and dynamax, there and back: both libraries find the same, and their own training goes on."""

import logging

import numpy as np
import pytest
import torch
from peer_models import drawn_model, parameters, texts_for

from hmmlib import log_likelihood, posteriors
from hmmlib.models.hmm import HMM

pytestmark = pytest.mark.outside
CLOSE = dict(rtol=0, atol=1e-10)


def fitted(seed):
    """A model that hmmlearn has fitted to six texts, and these with two arbitrary ones, which may be impossible."""
    module = pytest.importorskip("hmmlearn.hmm")
    model = drawn_model(seed)
    n_tokens = model[2].shape[1]
    texts = HMM.from_rows(*model).sample(6, 10, seed).tokens.numpy()
    peer = module.CategoricalHMM(1 + seed % 5, n_features=n_tokens, n_iter=5, random_state=seed)
    peer.fit(texts.reshape(-1, 1), [10] * 6)
    arbitrary = np.random.default_rng(seed).integers(0, n_tokens, (2, 10))
    return peer, np.concatenate([texts, arbitrary])


def scores(peer, texts):
    return np.array([peer.score(text[:, None]) for text in texts])


def assert_arrays_came_back(back, peer):
    np.testing.assert_array_equal(back.transmat_, peer.transmat_)
    np.testing.assert_array_equal(back.emissionprob_, peer.emissionprob_)
    np.testing.assert_allclose(back.startprob_, peer.startprob_, rtol=1e-12)


def test_fitted_models_of_hmmlearn_keep_their_likelihoods_there_and_back():
    """Impossible texts stay so. The control is that the transposes alone nearly always change the likelihoods."""
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)  # Five steps are not meant to converge.
    impossible = 0
    transposes_agree = 0
    added_states = []
    with np.errstate(divide="ignore"):
        for seed in range(60):
            peer, texts = fitted(seed)
            n_states = peer.n_components
            expected = scores(peer, texts)
            model = HMM.from_hmmlearn(peer)
            np.testing.assert_allclose(log_likelihood(model, texts), expected, **CLOSE)
            for text in texts[:6]:  # hmmlearn's first state is our H_1.
                beliefs = posteriors(model, text[None])[0, 1:, :n_states]
                np.testing.assert_allclose(beliefs, peer.predict_proba(text[:, None]), atol=1e-11)
            back = model.to_hmmlearn()
            np.testing.assert_allclose(scores(back, texts), expected, **CLOSE)
            assert_arrays_came_back(back, peer)
            added_states.append(model.n_states - n_states)
            impossible += np.isinf(expected).sum()
            transposed = HMM(peer.transmat_.T, peer.emissionprob_.T, peer.startprob_, columns=True)
            agrees = np.allclose(log_likelihood(transposed, texts[:6]), expected[:6], **CLOSE)
            transposes_agree += n_states > 1 and agrees
    assert impossible >= 3
    assert transposes_agree <= 3
    assert set(added_states) == {0, 1}
    assert min(added_states.count(0), added_states.count(1)) >= 3


def test_the_training_of_hmmlearn_goes_on():
    peer, texts = fitted(3)
    data = texts[:6].reshape(-1, 1)
    lengths = [10] * 6
    back = HMM.from_hmmlearn(peer).to_hmmlearn()
    score_before = back.score(data, lengths)
    back.n_iter = 1
    back.fit(data, lengths)
    assert back.monitor_.history[0] == pytest.approx(score_before, rel=1e-12), "it began somewhere else"
    assert back.score(data, lengths) > score_before


def test_a_model_that_is_not_fitted_is_refused():
    with pytest.raises(ValueError, match="CategoricalHMM instance is not fitted"):
        HMM.from_hmmlearn(pytest.importorskip("hmmlearn.hmm").CategoricalHMM(2))


def test_models_of_dynamax_keep_their_likelihoods_there_and_back():
    """They have one shape, for which JAX compiles once, and no zeros, because dynamax takes 1e-15 for them."""
    jax = pytest.importorskip("jax")
    sizes = set()
    with jax.enable_x64(True):
        for seed in range(6):
            rows = drawn_model(seed, zeros=0.0, shape=(3, 4))
            params = parameters(rows)
            model = HMM.from_dynamax(params)
            assert model.dtype == torch.float64
            sizes.add(model.n_states)
            text = texts_for(rows, seed)[2]
            expected = pytest.approx(log_likelihood(model, text[None]).item(), abs=1e-10)
            peer, back = model.to_dynamax()
            assert float(peer.marginal_log_prob(params, text[:, None])) == expected
            assert float(peer.marginal_log_prob(back, text[:, None])) == expected
            np.testing.assert_array_equal(back.transitions.transition_matrix, params.transitions.transition_matrix)
            np.testing.assert_array_equal(back.emissions.probs, params.emissions.probs)
            np.testing.assert_allclose(back.initial.probs, params.initial.probs, rtol=1e-12)
    assert sizes == {3, 4}


def test_parameters_of_dynamax_are_float32_unless_jax_is_set_to_64_bits():
    assert HMM.from_dynamax(parameters()).dtype == torch.float32
    _, params = HMM.from_rows(*drawn_model(0)).to_dynamax()
    assert params.transitions.transition_matrix.dtype == np.float32


def test_emissions_of_several_dimensions_are_refused():
    params = parameters()
    several = params._replace(emissions=params.emissions._replace(probs=np.full((2, 3, 4), 0.25)))
    with pytest.raises(ValueError, match=r"^params\.emissions\.probs must have .* one dimension, not \(2, 3, 4\)$"):
        HMM.from_dynamax(several)
