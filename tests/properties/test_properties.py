"""Properties of inference on models of every shape, zeros and near-zeros included, without memory and with it.

Each property has a damaged library that it notices (the table at the end): a comparison that nothing could fail says
nothing.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Joint, conditional
from damages import around, by, instead, turned
from hypothesis import assume
from hypothesis import strategies as st
from integers import UNIT, ratio, whole
from strategies import (
    HARD,
    LOST,
    MILD,
    agree,
    agree_in_size,
    answers,
    asked,
    for_all,
    hmms,
    models,
    must_fail,
    prompted,
    properties,
    rounding,
)
from witness import forward_backward

from hmmlib.inference import messages
from hmmlib.models.hmm import MemoryHMM
from hmmlib.validation import MASK

SINGLE = torch.float32


def one_way(number):
    """Which floats are positive, as ones and zeros: a pass over these counts the paths that are possible."""
    return (np.asarray(number) > 0).astype(np.int64)


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
            joint = np.moveaxis(found.memory.reshape(model.memory.shape), cell, 0).reshape(model.n_memory, -1)
            expected[f"memory {cell}"] = np.array(ratio(joint.sum(1), found.chance))
    size = math.log(found.chance) - (2 * len(found.left) + 2) * math.log(UNIT) if found.chance else -math.inf
    return expected, size


@for_all(case=prompted(longest=5, most=2))
def test_everything_is_what_integer_arithmetic_gives(case):
    model, tokens, prompt = case
    sizes, bound = messages.log_likelihood(model, tokens), rounding(model, tokens.shape[1] + 1)
    for given in (None, prompt):
        found = answers(model, tokens, given)
        for k, x in enumerate(tokens.tolist()):
            expected, size = in_integers(model, x, given)
            agree({name: one[k] for name, one in found.items()}, expected, bound)
            assert all((found[name][k].numpy()[zero == 0] == 0).all() for name, zero in expected.items())
            if given is None:
                # What is left of the two large terms of the witness is less exact than either.
                np.testing.assert_allclose(sizes[k], size, rtol=1e-15, atol=bound + 1e-11)


def sums_are_right(model, tokens, prompt, lossy):
    """Entries from 0 to 1; sums 1, or 0 exactly where what is conditioned on is impossible (if `lossy`, also
    elsewhere)."""
    slack = 2 * rounding(model, tokens.shape[1] + 1)
    for given in (None, prompt):
        found = answers(model, tokens, given)
        for k, x in enumerate(tokens.tolist()):
            ways = forward_backward(model, x, given, one_way)
            for name, one in found.items():
                can = ways.left > 0 if name in ("G", "latents") else np.broadcast_to(ways.chance > 0, one[k].shape[:-1])
                sums = one[k].sum(-1).numpy()
                assert (one[k] >= 0).all(), name
                assert (one[k] <= 1 + slack).all(), name
                assert (sums[~can] == 0).all(), name
                assert ((abs(sums[can] - 1) <= slack) | (lossy & (sums[can] == 0))).all(), (name, sums)


@for_all(case=prompted())
def test_distributions_sum_to_one_or_to_zero_where_the_evidence_is_impossible(case):
    sums_are_right(*case, lossy=False)


@for_all(case=prompted(MILD, dtype=SINGLE))
def test_in_float32_they_do_so_too(case):
    sums_are_right(*case, lossy=False)


@for_all(case=prompted(HARD, dtype=SINGLE))
def test_in_float32_near_zeros_may_be_lost_but_leave_no_other_sums(case):
    sums_are_right(*case, lossy=True)


@for_all(case=asked(most=6), data=st.data())
def test_a_batch_is_its_sequences_one_by_one_in_any_order(case, data):
    model, tokens = case
    order = data.draw(st.lists(st.integers(0, len(tokens) - 1), min_size=1, max_size=6))
    found, alone = answers(model, tokens[order]), [answers(model, row[None]) for row in tokens]
    expected = {name: torch.cat([alone[k][name] for k in order]) for name in found}
    agree(found, expected, rounding(model, tokens.shape[1]))
    sizes = torch.cat([messages.log_likelihood(model, row[None]) for row in tokens])
    found = messages.log_likelihood(model, tokens[order])
    agree_in_size(found, sizes[order], rounding(model, tokens.shape[1]))


@for_all(case=prompted())
def test_with_gradients_asked_for_the_results_are_the_same(case):
    model, tokens, prompt = case
    expected = [answers(model, tokens), answers(model, tokens, prompt)]
    size = messages.log_likelihood(model, tokens)
    model.emission.requires_grad_(True)
    bound = rounding(model, tokens.shape[1] + 1)
    for given, plain in zip((None, prompt), expected, strict=True):
        found = answers(model, tokens, given)
        assert found["G"].requires_grad
        agree({name: one.detach() for name, one in found.items()}, plain, bound)
    agree_in_size(messages.log_likelihood(model, tokens).detach(), size, bound)


def rounding_of_float32(model, length):
    """How far float32 may be from float64, relative to each probability, which must not be near the smallest float32.

    Beside the operations, each of the 2T + 3 parameters in a product is off by its own rounding, by the division that
    makes its column sum to one, and by that sum's; so is the sum of products that it is divided by.
    """
    longest = max(model.n_states, model.n_tokens, messages.lifted_size(model) // model.n_states)
    return rounding(model, length) + (2 * length + 3) * (longest + 2) * torch.finfo(SINGLE).eps


@for_all(case=asked(MILD))
def test_float32_is_within_its_rounding_of_float64(case):
    model, tokens = case
    rough = model.to(dtype=SINGLE)
    bound, found = rounding_of_float32(rough, tokens.shape[1]), answers(rough, tokens)
    assert all(one.dtype == SINGLE for one in found.values())
    agree(found, answers(model, tokens), bound, SINGLE)
    agree_in_size(messages.log_likelihood(rough, tokens), messages.log_likelihood(model, tokens), bound)


def same_on_cuda(case):
    model, tokens, prompt = case
    moved, bound = model.to("cuda"), rounding(model, tokens.shape[1] + 1)
    for here, there in ((None, None), (prompt, prompt.to("cuda"))):
        found = {name: one.cpu() for name, one in answers(moved, tokens.to("cuda"), there).items()}
        agree(found, answers(model, tokens, here), bound, model.dtype)
    size = messages.log_likelihood(moved, tokens.to("cuda")).cpu()
    agree_in_size(size, messages.log_likelihood(model, tokens), bound)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


@cuda
@for_all(case=prompted())
def test_cuda_gives_what_the_cpu_gives(case):
    same_on_cuda(case)


@cuda
@for_all(case=prompted(MILD, dtype=SINGLE))
def test_cuda_gives_what_the_cpu_gives_in_float32(case):
    same_on_cuda(case)


def with_each_token(model, tokens, at):
    """The tokens with each possible token at one position: (X, n, T)."""
    changed = tokens.repeat(model.n_tokens, 1, 1)
    changed[:, :, at] = torch.arange(model.n_tokens)[:, None]
    return changed


@for_all(case=asked(), data=st.data())
def test_likelihoods_with_each_token_at_a_gap_add_up_to_that_of_the_gap(case, data):
    model, tokens = case
    at = data.draw(st.integers(0, tokens.shape[1] - 1))
    tokens[:, at] = MASK
    whole_size, probs = messages.log_likelihood(model, tokens), messages.masked_token_probs(model, tokens)[:, at]
    each = torch.stack([messages.log_likelihood(model, x) for x in with_each_token(model, tokens, at)], 1)
    bound, can = 2 * rounding(model, tokens.shape[1]), whole_size > -math.inf
    agree_in_size(each.logsumexp(1), whole_size, bound)
    eps = 4 * torch.finfo(model.dtype).eps
    size = (each[can] - whole_size[can, None]).exp()
    slack = bound + eps * (1 + whole_size[can, None].abs() + each[can].abs())  # what is left of two large logarithms
    slack = torch.where(size > 0, slack * size, 0) + LOST[model.dtype]
    assert ((probs[can] - size).abs() <= slack).all()
    assert (probs[~can] == 0).all()


@for_all(case=asked(), data=st.data())
def test_what_is_known_without_a_token_is_the_mean_of_what_is_known_with_it(case, data):
    model, tokens = case
    at = data.draw(st.integers(0, tokens.shape[1] - 1))
    tokens[:, at] = MASK
    expected = answers(model, tokens)
    weights = expected["G"][:, at]
    given = [answers(model, x) for x in with_each_token(model, tokens, at)]
    bound = 2 * rounding(model, tokens.shape[1])
    for name in expected.keys() - {"G", "latents"}:
        mean = sum(
            w.reshape(-1, *(1,) * (one[name].ndim - 1)) * one[name] for w, one in zip(weights.T, given, strict=True)
        )
        np.testing.assert_allclose(mean, expected[name], bound, LOST[model.dtype], err_msg=name)


@for_all(case=asked(MILD, family=hmms))
def test_the_own_token_turns_what_others_say_into_the_posterior(case):
    model, tokens = case
    found, own = answers(model, tokens), model.embed(tokens)
    joint = found["latents"] * own
    total = joint.sum(-1, keepdim=True)
    bound = 2 * rounding(model, tokens.shape[1])
    expected = torch.where(total > 0, joint / total, 0)
    np.testing.assert_allclose(found["posteriors"][:, 1:], expected, bound, LOST[model.dtype])
    np.testing.assert_allclose(found["G"], found["latents"] @ model.emission.T, bound, LOST[model.dtype])


@for_all(model=models(), length=st.integers(1, 3))
def test_the_probabilities_of_all_sequences_add_up_to_one(model, length):
    every = torch.tensor(list(product(range(model.n_tokens), repeat=length)))
    total = messages.log_likelihood(model, every).exp().sum()
    assert abs(total - 1) <= 2 * rounding(model, length)


@for_all(model=models(MILD), length=st.integers(1, 3))
def test_the_table_of_all_that_can_happen_says_the_same(model, length):
    every, at = torch.tensor(list(product(range(model.n_tokens), repeat=length))), range(1, length + 1)
    parts, memory = (model.transition, model.emission, model.initial), getattr(model, "memory", None)
    joint = Joint(*parts, [None] * length, memory)
    latent = [joint.left_out(i, f"h{i}") if memory is None else joint.cell_and_state(i) for i in at]
    expected = {
        "G": np.stack([conditional(joint.token(i)) for i in at], 1),
        "latents": np.stack([conditional(one).reshape(len(every), -1) for one in latent], 1),
        "posteriors": np.stack([conditional(joint.given_input(f"h{i}")) for i in range(length + 1)], 1),
    }
    expected |= {f"memory {j}": conditional(joint.given_input(f"m{j}")) for j in range(joint.n_cells)}
    agree(answers(model, every), expected, 4 * rounding(model, length))  # the table adds up many more terms
    assert abs(joint.table.sum() - 1) <= 4 * rounding(model, length)


@for_all(case=asked())
def test_the_posterior_of_one_position_is_that_of_all_positions_there(case):
    model, tokens = case
    found = {str(at): messages.posterior(model, tokens, at) for at in range(tokens.shape[1] + 1)}
    every = messages.posteriors(model, tokens)
    agree(found, {name: every[:, int(name)] for name in found}, rounding(model, tokens.shape[1]))


@for_all(case=prompted(), data=st.data())
def test_embeddings_count_only_up_to_a_factor_at_each_position(case, data):
    model, tokens, prompt = case
    embeddings = messages.prompted(model, prompt, tokens)
    powers = st.integers(-200, 200)
    factors = torch.tensor(data.draw(st.lists(powers, min_size=embeddings.shape[1], max_size=embeddings.shape[1])))
    scaled = embeddings * torch.exp2(factors.double())[:, None]
    # What leaves the range of a float on the way is no longer the same evidence.
    assume(torch.equal(scaled * torch.exp2(-factors.double())[:, None], embeddings) and torch.isfinite(scaled).all())
    expected = messages.masked_token_probs(model, tokens, prompt)
    bound = rounding(model, tokens.shape[1] + 1)
    for given in (embeddings, scaled):
        found = messages.masked_token_probs_from_embeddings(model, given)
        np.testing.assert_allclose(found, expected, bound, LOST[model.dtype])


@for_all(case=prompted(MILD), data=st.data())
def test_gradients_say_so_too(case, data):
    """Of a function that does not change with a row's size, the slope along the row is zero (Euler)."""
    model, tokens, prompt = case
    embeddings = messages.prompted(model, prompt, tokens).requires_grad_()
    found = messages.masked_token_probs_from_embeddings(model, embeddings)
    direction = torch.tensor(data.draw(st.lists(st.floats(-1, 1), min_size=model.n_tokens, max_size=model.n_tokens)))
    (slopes,) = torch.autograd.grad((found * direction.double()).sum(), embeddings)
    terms = slopes * embeddings.detach()
    assert torch.isfinite(slopes).all()
    assert (terms.sum(-1).abs() <= 8 * found.shape[1] * rounding(model, found.shape[1])).all()


def read(change):
    """Pass what is read off the messages through `change`."""
    return around(messages, "_read", lambda found: (change(found[0]), found[1]))


def coarse(value):
    """A thousandth too much, in float32 only."""
    return value * (1 + 1e-3 * (value.dtype == SINGLE))


def on_one_device(value):
    return value.roll(1, -1) if value.is_cuda else value


def sharpened(value):
    return value**2 / (value**2).sum(-1, keepdim=True).clamp(min=1e-300)


def raised(amount):
    """Embeddings kept above zero."""
    return lambda honest: lambda model, embeddings: honest(model, embeddings + amount)


NOTICED = {
    test_everything_is_what_integer_arithmetic_gives: read(lambda value: value * (1 + 1e-13)),
    test_distributions_sum_to_one_or_to_zero_where_the_evidence_is_impossible: read(lambda value: value + 1e-13),
    test_in_float32_they_do_so_too: read(lambda value: value.bfloat16().float()),
    test_in_float32_near_zeros_may_be_lost_but_leave_no_other_sums: read(lambda value: value + 1e-9),
    test_a_batch_is_its_sequences_one_by_one_in_any_order: read(turned(0)),
    test_with_gradients_asked_for_the_results_are_the_same: around(
        messages, "_in_torch", lambda found: (found[0].roll(1, -1), found[1])
    ),
    test_float32_is_within_its_rounding_of_float64: read(coarse),
    test_cuda_gives_what_the_cpu_gives: read(on_one_device),
    test_cuda_gives_what_the_cpu_gives_in_float32: read(on_one_device),
    test_likelihoods_with_each_token_at_a_gap_add_up_to_that_of_the_gap: around(messages, "log_likelihood", by(0.5)),
    test_what_is_known_without_a_token_is_the_mean_of_what_is_known_with_it: around(messages, "posteriors", sharpened),
    test_the_own_token_turns_what_others_say_into_the_posterior: around(messages, "posteriors", turned(1)),
    test_the_probabilities_of_all_sequences_add_up_to_one: around(messages, "log_likelihood", lambda size: size + 1e-9),
    test_the_table_of_all_that_can_happen_says_the_same: read(turned(-1)),
    test_the_posterior_of_one_position_is_that_of_all_positions_there: around(messages, "posteriors", turned(1)),
    test_embeddings_count_only_up_to_a_factor_at_each_position: instead(
        messages, "masked_token_probs_from_embeddings", raised(1e-9)
    ),
    test_gradients_say_so_too: instead(messages, "masked_token_probs_from_embeddings", raised(1e-2)),
}


def test_each_property_has_a_damage_that_it_must_notice():
    assert NOTICED.keys() == properties(globals())


@pytest.mark.parametrize("wanted", [pytest.param(one, marks=getattr(one, "pytestmark", [])) for one in NOTICED])
def test_a_damaged_library_breaks_the_property(wanted):
    must_fail(wanted, NOTICED[wanted])
