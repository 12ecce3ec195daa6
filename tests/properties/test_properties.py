"""Properties of inference on models of every shape, zeros and near-zeros included, without memory and with it; and of
heads that are fitted."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st
from strategies import HARD, LOST, MILD, agree, agree_in_size, answers, columns, for_all, prompted, rounding
from witness import UNIT, forward_backward, of_cell, ratio, whole

from hmmlib.inference import messages
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import separation
from hmmlib.theory.heads import LinearHead

SINGLE = torch.float32
SIZES = st.tuples(st.integers(1, 5), st.integers(1, 5))


def fractions(vectors, totals):
    """Each vector of integers divided by its total, as floats, rounded once."""
    return np.array([ratio(v, t) for v, t in zip(vectors, totals, strict=True)])


def in_integers(model, tokens, prompt=None):
    """The `answers` and the log-likelihood of one sequence, without any rounding."""
    found = forward_backward(model, tokens, prompt, whole)
    flat = found.looked_up.reshape(len(found.left), -1)
    emission = whole(model.emission.numpy().reshape(model.n_tokens, -1))
    expected = {"G": fractions(flat @ emission.T, found.left * UNIT)}
    expected["latents"] = fractions(flat if isinstance(model, MemoryHMM) else found.states, found.left)
    if prompt is None:
        expected["posteriors"] = fractions(found.joint, [found.chance] * len(found.joint))
        for cell in range(getattr(model, "n_cells", 0)):
            expected[f"memory {cell}"] = np.array(ratio(of_cell(model, found.memory, cell), found.chance))
    size = math.log(found.chance) - (2 * len(found.left) + 2) * math.log(UNIT) if found.chance else -math.inf
    return expected, size


@for_all(case=prompted(longest=5, most=3))
def test_everything_is_what_integer_arithmetic_gives(case):
    """Each text of a batch by itself: so neither its place nor other texts count, nor what stands at its own place."""
    model, tokens, prompt = case
    sizes, bound = messages.log_likelihood(model, tokens), rounding(model, tokens.shape[1] + 1)
    one_by_one = torch.stack([messages.posterior(model, tokens, at) for at in range(tokens.shape[1] + 1)], 1)
    for given in (None, prompt):
        found = answers(model, tokens, given)
        for k, x in enumerate(tokens.tolist()):
            expected, size = in_integers(model, x, given)
            agree({name: one[k] for name, one in found.items()}, expected, bound)
            assert all((found[name][k].numpy()[zero == 0] == 0).all() for name, zero in expected.items())
            if given is None:
                agree({"": one_by_one[k]}, {"": expected["posteriors"]}, bound)
                # What is left of the two large terms of the witness is less exact than either.
                np.testing.assert_allclose(sizes[k], size, rtol=1e-15, atol=bound + 1e-11)


@for_all(case=prompted(MILD))
def test_float32_is_within_its_rounding_of_float64(case):
    """Relative to each probability, which must not be near the smallest float32.

    Beside the operations, each of the 2T + 3 parameters in a product is off by its own rounding, by the division that
    makes its column sum to one, and by that sum's; so is the sum of products that it is divided by.
    """
    model, tokens, prompt = case
    rough, length = model.to(dtype=SINGLE), tokens.shape[1] + 1
    longest = max(model.n_states, model.n_tokens, messages.lifted_size(model) // model.n_states)
    bound = rounding(rough, length) + (2 * length + 3) * (longest + 2) * torch.finfo(SINGLE).eps
    for given, rounded in ((None, None), (prompt, prompt.to(SINGLE))):
        found = answers(rough, tokens, rounded)
        assert all(one.dtype == SINGLE for one in found.values())
        agree(found, answers(model, tokens, given), bound, SINGLE)
    agree_in_size(messages.log_likelihood(rough, tokens), messages.log_likelihood(model, tokens), bound)


@for_all(case=prompted(HARD, dtype=SINGLE))
def test_in_float32_near_zeros_may_be_lost_but_leave_no_other_sums(case):
    """Sums are 1, or 0 exactly: wherever what is conditioned on is impossible, and elsewhere only by that loss.

    A pass over ones and zeros, for which floats are positive, counts the paths that are possible.
    """
    model, tokens, prompt = case
    slack = 2 * rounding(model, tokens.shape[1] + 1)
    for given in (None, prompt):
        found = answers(model, tokens, given)
        for k, x in enumerate(tokens.tolist()):
            ways = forward_backward(model, x, given, lambda floats: (np.asarray(floats) > 0).astype(np.int64))
            for name, one in found.items():
                can = ways.left > 0 if name in ("G", "latents") else np.broadcast_to(ways.chance > 0, one[k].shape[:-1])
                sums = one[k].sum(-1).numpy()
                assert (one[k] >= 0).all(), name
                assert (sums[~can] == 0).all(), name
                assert ((abs(sums - 1) <= slack) | (sums == 0)).all(), (name, sums)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@for_all(case=prompted() | prompted(MILD, dtype=SINGLE))
def test_cuda_gives_what_the_cpu_gives(case):
    model, tokens, prompt = case
    moved, bound = model.to("cuda"), rounding(model, tokens.shape[1] + 1)
    for here, there in ((None, None), (prompt, prompt.to("cuda"))):
        found = {name: one.cpu() for name, one in answers(moved, tokens.to("cuda"), there).items()}
        agree(found, answers(model, tokens, here), bound, model.dtype)
    size = messages.log_likelihood(moved, tokens.to("cuda")).cpu()
    agree_in_size(size, messages.log_likelihood(model, tokens), bound)


@for_all(case=prompted(), data=st.data())
def test_embeddings_count_only_up_to_a_factor_at_each_position(case, data):
    model, tokens, prompt = case
    embeddings = messages.prompted(model, prompt, tokens)
    powers = st.integers(-900, 900)
    factors = torch.tensor(data.draw(st.lists(powers, min_size=embeddings.shape[1], max_size=embeddings.shape[1])))
    scaled = embeddings * torch.exp2(factors.double())[:, None]
    # What leaves the range of a float on the way is no longer the same evidence.
    assume(torch.equal(scaled * torch.exp2(-factors.double())[:, None], embeddings) and torch.isfinite(scaled).all())
    expected = messages.masked_token_probs(model, tokens, prompt)
    bound = rounding(model, tokens.shape[1] + 1)
    for given in (embeddings, scaled):
        found = messages.masked_token_probs_from_embeddings(model, given)
        np.testing.assert_allclose(found, expected, bound, LOST[model.dtype])


@for_all(
    table=SIZES.flatmap(lambda sizes: columns(sizes, MILD)), labels=st.lists(st.booleans(), min_size=5, max_size=5)
)
def test_a_head_fits_or_a_certificate_says_that_none_does(table, labels):
    probs = torch.as_tensor(table.T.copy())
    labels = torch.tensor(labels)[: len(probs)]
    found = separation.fit_or_refute(probs, labels)
    if isinstance(found, LinearHead):
        assert torch.equal(found.label(probs), labels)
    elif isinstance(found, separation.Undecided):
        assert found.wrong > 0
        assert separation.ROUNDING < found.residual < 1e-6
    else:
        assert all((part >= -1e-12).all() for part in (found.positive, found.negative))
        assert abs(found.negative.sum() - 1) <= 1e-9
        mixture = found.negative @ probs[~labels] - found.positive @ probs[labels]
        assert mixture.abs().max() <= found.residual + 1e-12
        assert found.residual <= separation.ROUNDING
