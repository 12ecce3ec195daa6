"""Properties of inference: what other names, masks, and tokens that do not matter leave as it was.

Each property has a damaged library that it notices (the table at the end): a comparison that nothing could fail says
nothing.
"""

import math

import numpy as np
import pytest
import torch
from damages import around, instead, turned
from hypothesis import assume
from hypothesis import strategies as st
from strategies import (
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
    properties,
    rounding,
)

from hmmlib.inference import messages
from hmmlib.models.hmm import HMM, MemoryHMM, _Chain
from hmmlib.validation import MASK


def masks(tokens, count):
    return torch.full((len(tokens), count), MASK)


def possible(model, tokens):
    return messages.log_likelihood(model, tokens) > -math.inf


def permuted(model, states, tokens):
    """The model with states and tokens in another order."""
    parts = model.transition[states][:, states], model.emission[tokens][..., states], model.initial[states]
    return HMM(*parts)


@for_all(case=asked(family=hmms), data=st.data())
def test_other_names_for_states_and_tokens_permute_the_results(case, data):
    model, tokens = case
    states, words = (data.draw(st.permutations(range(n))) for n in (model.n_states, model.n_tokens))
    other = permuted(model, states, words)
    names = torch.tensor([*np.argsort(words), MASK])  # the last answers MASK
    found, expected = answers(other, names[tokens]), answers(model, tokens)
    order = {"G": words, "latents": states, "posteriors": states}
    bound = rounding(model, tokens.shape[1])
    agree(found, {name: one[..., order[name]] for name, one in expected.items()}, bound)
    agree_in_size(messages.log_likelihood(other, names[tokens]), messages.log_likelihood(model, tokens), bound)


@for_all(model=models(), length=st.integers(1, 6))
def test_masking_everything_gives_the_prior(model, length):
    hidden, bound = torch.full((2, length), MASK), rounding(model, length)
    found, priors = answers(model, hidden), torch.stack([model.marginal(i) for i in range(length + 1)])
    expected = {"posteriors": priors, "latents": priors[1:]}
    if isinstance(model, MemoryHMM):
        axes = range(model.n_cells)
        cells = [model.memory.sum([a for a in axes if a != j]) if model.n_cells > 1 else model.memory for j in axes]
        looked_up = torch.stack(cells, 1).repeat_interleave(model.n_syntax, 1)  # (M, S): the prior of the cell of h
        expected["latents"] = (looked_up * priors[1:, None]).flatten(1)
        expected |= {f"memory {j}": cell for j, cell in enumerate(cells)}
    expected["G"] = expected["latents"] @ model.emission.flatten(1).T
    expected = {name: one.expand(2, *one.shape) for name, one in expected.items()}
    agree(found, expected, 2 * bound)  # the marginals come by squaring A, which takes about as many products again
    agree_in_size(messages.log_likelihood(model, hidden), torch.zeros(2), bound)


@for_all(case=asked(), count=st.integers(1, 3))
def test_masks_at_the_end_change_nothing_before_them(case, count):
    model, tokens = case
    length, longer = tokens.shape[1], torch.cat([tokens, masks(tokens, count)], 1)
    bound, found, expected = rounding(model, length + count), answers(model, longer), answers(model, tokens)
    for name, places in {"G": length, "latents": length, "posteriors": length + 1}.items():
        found[name] = found[name][:, :places]
    agree(found, expected, bound)
    agree_in_size(messages.log_likelihood(model, longer), messages.log_likelihood(model, tokens), bound)


@for_all(case=asked(family=hmms), count=st.integers(1, 3))
def test_masks_at_the_end_are_predicted_by_the_chain(case, count):
    model, tokens = case
    found = answers(model, torch.cat([tokens, masks(tokens, count)], 1))
    ahead = messages.posteriors(model, tokens)[:, -1:] @ torch.linalg.matrix_power(model.transition, count).T
    expected = {"posteriors": ahead, "latents": ahead, "G": ahead @ model.emission.T}
    agree({name: one[:, -1:] for name, one in found.items()}, expected, 2 * rounding(model, tokens.shape[1] + count))


@for_all(case=asked(MILD), count=st.integers(1, 3))
def test_masks_at_the_start_move_it_along_the_chain(case, count):
    model, tokens = case
    parts = [model.transition, model.emission, model.marginal(count)]
    later = HMM(*parts) if isinstance(model, HMM) else MemoryHMM(*parts, model.memory)
    longer = torch.cat([masks(tokens, count), tokens], 1)
    bound, found = 2 * rounding(model, longer.shape[1]), answers(model, longer)
    for name in ("G", "latents", "posteriors"):
        found[name] = found[name][:, count:]
    agree(found, answers(later, tokens), bound)
    agree_in_size(messages.log_likelihood(model, longer), messages.log_likelihood(later, tokens), bound)


@for_all(case=asked(family=hmms), data=st.data())
def test_without_a_memory_in_the_chain_a_mask_is_felt_at_its_own_position_only(case, data):
    model, tokens = case
    law = model.transition[:, :1]
    free = HMM(law.expand(-1, model.n_states), model.emission, model.initial)
    tokens = tokens[possible(free, tokens)]
    assume(len(tokens))
    kept = torch.tensor(data.draw(st.lists(st.booleans(), min_size=tokens.shape[1], max_size=tokens.shape[1])))
    found, expected = (answers(free, x) for x in (torch.where(kept, tokens, MASK), tokens))
    own = {"G": slice(None), "latents": slice(None), "posteriors": torch.cat([torch.tensor([True]), kept])}
    bound = rounding(model, tokens.shape[1])
    agree(*({name: one[:, own[name]] for name, one in each.items()} for each in (found, expected)), bound)
    np.testing.assert_allclose(found["G"], (model.emission @ law).T.expand(found["G"].shape), bound, LOST[model.dtype])


@for_all(case=asked(family=hmms), data=st.data())
def test_a_token_that_gives_its_state_away_parts_what_is_before_from_what_is_after(case, data):
    model, tokens = case
    assume(model.n_tokens > 1)
    emission = model.emission.clone()
    emission[1, 1:] += emission[0, 1:]
    emission[0, 1:] = 0  # token 0 comes from state 0 only
    model = HMM(model.transition, emission, model.initial)
    at = data.draw(st.integers(0, tokens.shape[1] - 1))
    tokens[:, at] = 0
    tokens = tokens[possible(model, tokens)]
    assume(len(tokens))
    cut = tokens.clone()
    cut[:, at + 1 :] = MASK
    before = {"G": slice(at), "latents": slice(at), "posteriors": slice(at + 2)}
    found, expected = ({name: one[:, before[name]] for name, one in answers(model, x).items()} for x in (cut, tokens))
    agree(found, expected, rounding(model, tokens.shape[1]))


@for_all(case=asked(), data=st.data())
def test_a_position_is_not_conditioned_on_its_own_token(case, data):
    model, tokens = case
    at, other = (
        data.draw(st.integers(low, high)) for low, high in ((0, tokens.shape[1] - 1), (MASK, model.n_tokens - 1))
    )
    changed = tokens.clone()
    changed[:, at] = other
    found, expected = ({n: answers(model, x)[n][:, at] for n in ("G", "latents")} for x in (changed, tokens))
    agree(found, expected, rounding(model, tokens.shape[1]))


@for_all(case=asked(MILD, family=hmms), data=st.data())
def test_a_state_counted_as_two_changes_nothing_else(case, data):
    model, tokens = case
    twin = data.draw(st.integers(0, model.n_states - 1))
    origin = torch.tensor([*range(model.n_states), twin])
    share = torch.where(origin == twin, 0.5, 1.0).double()
    parts = (
        share[:, None] * model.transition[origin][:, origin],
        model.emission[:, origin],
        share * model.initial[origin],
    )
    found, expected = answers(HMM(*parts), tokens), answers(model, tokens)
    expected = {name: one if name == "G" else share * one[..., origin] for name, one in expected.items()}
    agree(found, expected, rounding(HMM(*parts), tokens.shape[1]))


def masks_as_tokens(honest):
    """MASK taken for token 0."""
    return lambda model, tokens, prompt=None: honest(model, torch.as_tensor(tokens).clamp(min=0), prompt)


def own_token_too(honest):
    return lambda model, rows, at, own, *rest, **options: honest(model, rows, at, True, *rest, **options)


def read(dim):
    """An index off by one in what is read off the messages."""
    return around(messages, "_read", lambda found: (found[0].roll(1, dim), found[1]))


NOTICED = {
    test_other_names_for_states_and_tokens_permute_the_results: read(-1),
    test_masking_everything_gives_the_prior: around(_Chain, "marginal", turned(0)),
    test_masks_at_the_end_change_nothing_before_them: instead(messages, "_evidence", masks_as_tokens),
    test_masks_at_the_end_are_predicted_by_the_chain: instead(messages, "_evidence", masks_as_tokens),
    test_masks_at_the_start_move_it_along_the_chain: instead(messages, "_evidence", masks_as_tokens),
    test_without_a_memory_in_the_chain_a_mask_is_felt_at_its_own_position_only: instead(
        messages, "_evidence", masks_as_tokens
    ),
    test_a_token_that_gives_its_state_away_parts_what_is_before_from_what_is_after: read(1),
    test_a_position_is_not_conditioned_on_its_own_token: instead(messages, "_read", own_token_too),
    test_a_state_counted_as_two_changes_nothing_else: read(-1),
}


def test_each_property_has_a_damage_that_it_must_notice():
    assert NOTICED.keys() == properties(globals())


@pytest.mark.parametrize("wanted", NOTICED)
def test_a_damaged_library_breaks_the_property(wanted):
    must_fail(wanted, NOTICED[wanted])
