"""Properties of inference on models of every shape, zeros and near-zeros included, and of heads that are fitted."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st
from strategies import HARD, LOST, MILD, agree, agree_in_size, answers, columns, for_all, prompted, rounding
from witness import UNIT, forward_backward, of_cell, ratio, whole

from hmmlib.inference.evidence import lifted_size
from hmmlib.inference.evidence import prompted as embeddings_behind
from hmmlib.inference.messages import log_likelihood, masked_token_probs, masked_token_probs_from_embeddings, posterior
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import separation
from hmmlib.theory.heads import LinearHead

SINGLE = torch.float32
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 5))
TABLES = SHAPES.flatmap(lambda shape: columns(shape, MILD))
LABELS = st.lists(st.booleans(), min_size=5, max_size=5)


# Without any rounding


def fractions(vectors, totals):
    """Each vector of integers divided by its total, as floats, rounded once."""
    quotients = []
    for vector, total in zip(vectors, totals, strict=True):
        quotients.append(ratio(vector, total))
    return np.array(quotients)


def in_integers(model, text, prompt=None):
    """The `answers` for one text."""
    exact = forward_backward(model, text, prompt, whole)
    looked_up = exact.looked_up.reshape(len(exact.left), -1)
    emission = whole(model.emission.numpy().reshape(model.n_tokens, -1))
    latents = looked_up if isinstance(model, MemoryHMM) else exact.states
    expected = {
        "G": fractions(looked_up @ emission.T, exact.left * UNIT),
        "latents": fractions(latents, exact.left),
    }
    if prompt is None:
        expected["posteriors"] = fractions(exact.joint, [exact.chance] * len(exact.joint))
        for cell in range(getattr(model, "n_cells", 0)):
            by_value = of_cell(model, exact.memory, cell)
            expected[f"memory {cell}"] = np.array(ratio(by_value, exact.chance))
    return expected


def log_likelihood_in_integers(model, text):
    exact = forward_backward(model, text, None, whole)
    if exact.chance == 0:
        return -math.inf
    factors = 2 * len(text) + 2  # Each is UNIT times too large.
    return math.log(exact.chance) - factors * math.log(UNIT)


@for_all(case=prompted(longest=5, most=3))
def test_everything_is_what_integer_arithmetic_gives(case):
    """Each text is compared by itself. So neither its place nor other texts of the batch count."""
    model, tokens, prompt = case
    bound = rounding(model, tokens.shape[1] + 1)
    for used_prompt in (None, prompt):
        result = answers(model, tokens, used_prompt)
        for k, text in enumerate(tokens.tolist()):
            expected = in_integers(model, text, used_prompt)
            of_text = {name: probabilities[k].numpy() for name, probabilities in result.items()}
            agree(of_text, expected, bound)
            for name, probabilities in expected.items():
                assert (of_text[name][probabilities == 0] == 0).all(), name


@for_all(case=prompted(longest=5, most=3))
def test_single_posteriors_and_likelihoods_are_what_integer_arithmetic_gives(case):
    model, tokens, _ = case
    length = tokens.shape[1]
    bound = rounding(model, length)
    by_position = torch.stack([posterior(model, tokens, at) for at in range(length + 1)], 1)
    likelihoods = log_likelihood(model, tokens)
    for k, text in enumerate(tokens.tolist()):
        agree({"": by_position[k]}, {"": in_integers(model, text)["posteriors"]}, bound)
        # What is left of the two large terms of the witness is less exact than either.
        expected = log_likelihood_in_integers(model, text)
        np.testing.assert_allclose(likelihoods[k], expected, rtol=1e-15, atol=bound + 1e-11)


@for_all(case=prompted(), data=st.data())
def test_embeddings_count_only_up_to_a_factor_at_each_position(case, data):
    model, tokens, prompt = case
    embeddings = embeddings_behind(model, prompt, tokens)
    length = embeddings.shape[1]
    powers = data.draw(st.lists(st.integers(-900, 900), min_size=length, max_size=length))
    exponents = torch.tensor(powers).double()[:, None]
    scaled = embeddings * torch.exp2(exponents)
    # What leaves the range of a float on the way is no longer the same evidence.
    assume(torch.isfinite(scaled).all())
    assume(torch.equal(scaled * torch.exp2(-exponents), embeddings))
    expected = masked_token_probs(model, tokens, prompt)
    bound = rounding(model, length)
    for values in (embeddings, scaled):
        probs = masked_token_probs_from_embeddings(model, values)
        np.testing.assert_allclose(probs, expected, bound, LOST[model.dtype])


# In float32, and on a GPU


@for_all(case=prompted(MILD))
def test_float32_is_within_its_rounding_of_float64(case):
    """Relative to each probability, which must not be near the smallest float32.

    Beside the operations, each of the 2T + 3 parameters in a product is off by its own rounding, by the division that
    makes its column sum to one, and by that sum's. So is the sum of products that it is divided by.
    """
    model, tokens, prompt = case
    rough = model.to(dtype=SINGLE)
    length = tokens.shape[1] + 1
    longest_sum = max(model.n_states, model.n_tokens, lifted_size(model) // model.n_states)
    of_parameters = (2 * length + 3) * (longest_sum + 2) * torch.finfo(SINGLE).eps
    bound = rounding(rough, length) + of_parameters
    agree(answers(rough, tokens), answers(model, tokens), bound, SINGLE)
    behind_prompt = answers(rough, tokens, prompt.to(SINGLE))
    assert {probabilities.dtype for probabilities in behind_prompt.values()} == {SINGLE}
    agree(behind_prompt, answers(model, tokens, prompt), bound, SINGLE)
    agree_in_size(log_likelihood(rough, tokens), log_likelihood(model, tokens), bound)


def is_positive(floats):
    return (np.asarray(floats) > 0).astype(np.int64)


@for_all(case=prompted(HARD, dtype=SINGLE))
def test_in_float32_near_zeros_may_be_lost_but_leave_no_other_sums(case):
    """Sums are 1, or 0 exactly: wherever what is conditioned on is impossible, and elsewhere only by that loss."""
    model, tokens, prompt = case
    slack = 2 * rounding(model, tokens.shape[1] + 1)
    for used_prompt in (None, prompt):
        result = answers(model, tokens, used_prompt)
        for k, text in enumerate(tokens.tolist()):
            paths = forward_backward(model, text, used_prompt, is_positive)  # It counts the paths that are possible.
            for name, probabilities in result.items():
                sums = probabilities[k].sum(-1).numpy()
                n_paths = paths.left if name in ("G", "latents") else np.broadcast_to(paths.chance, sums.shape)
                assert (probabilities[k] >= 0).all(), name
                assert (sums[n_paths == 0] == 0).all(), name
                assert (abs(sums[sums != 0] - 1) <= slack).all(), (name, sums)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@for_all(case=prompted() | prompted(MILD, dtype=SINGLE))
def test_cuda_gives_what_the_cpu_gives(case):
    model, tokens, prompt = case
    moved = model.to("cuda")
    moved_tokens = tokens.to("cuda")
    bound = rounding(model, tokens.shape[1] + 1)
    for used_prompt in (None, prompt):
        moved_prompt = None if used_prompt is None else used_prompt.to("cuda")
        on_gpu = answers(moved, moved_tokens, moved_prompt)
        result = {name: probabilities.cpu() for name, probabilities in on_gpu.items()}
        agree(result, answers(model, tokens, used_prompt), bound, model.dtype)
    agree_in_size(log_likelihood(moved, moved_tokens).cpu(), log_likelihood(model, tokens), bound)


# Heads


@for_all(table=TABLES, labels=LABELS)
def test_a_head_fits_or_a_certificate_says_that_none_does(table, labels):
    probs = torch.as_tensor(table.T.copy())
    labels = torch.tensor(labels)[: len(probs)]
    outcome = separation.fit_or_refute(probs, labels)
    if isinstance(outcome, LinearHead):
        assert torch.equal(outcome.label(probs), labels)
    elif isinstance(outcome, separation.Undecided):
        assert outcome.wrong > 0
        assert separation.ROUNDING < outcome.residual < 1e-6
    else:
        assert (outcome.positive >= -1e-12).all()
        assert (outcome.negative >= -1e-12).all()
        assert abs(outcome.negative.sum() - 1) <= 1e-9
        mixture = outcome.negative @ probs[~labels] - outcome.positive @ probs[labels]
        assert mixture.abs().max() <= outcome.residual + 1e-12
        assert outcome.residual <= separation.ROUNDING
