"""Prompts before inputs of memory models, and what the constructions refuse."""

import numpy as np
import pytest
import torch
from constructions import behind_gap, check_4, mixed_inputs, telling_inputs, weights_on
from witness import forward_backward, of_cell, surely

from hmmlib.inference.messages import (
    latent_given_others,
    lifted_size,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    prompted,
)
from hmmlib.models.families import (
    essential_hmm,
    essential_twins,
    parity_memory_hmm,
    recoverable_memory_hmm,
    recoverable_twins,
)
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import AssumptionError
from hmmlib.theory.theorems import (
    claim_d_10,
    concentrated,
    ground_truth,
    prompt_d_6,
    prompt_for_any_start,
    prompted_head,
    theorem_3_6,
    theorem_4_3,
    theorem_4_6,
)

# Prompts


def test_a_prompt_for_any_start():
    """A start that is not stationary: the scores are those of the theorem over one constant, max P[H_0] / P[H_1]."""
    met, differs = 0, 0
    for seed in range(24):
        model, cell, syntax, kept = recoverable_memory_hmm(1 + seed % 2, 2, 2, 1, 1 + seed % 2, seed, 0.95)
        mu = weights_on(kept, 2, 3 * seed)
        with pytest.raises(AssumptionError, match=r"Assumption 4\.4"):
            theorem_4_6(model, mu, cell, syntax)
        prompt = prompt_for_any_start(model, mu, cell)
        assert prompt.shape == (lifted_size(model),)
        assert 0 <= prompt.min() <= prompt.max() == 1
        head = prompted_head(model, mu, claim_d_10(model, mu, cell, syntax))
        scale = (model.initial / model.marginal(1)).max().item()
        tokens = telling_inputs(model, 5, seed, cell, syntax, prompt)
        scores = head(masked_token_probs(model, tokens, prompt), prompted(model, prompt, tokens)) * scale
        plain = prompt_d_6(model, mu, cell)
        other = head(masked_token_probs(model, tokens, plain), prompted(model, plain, tokens))
        states = [cell * model.n_syntax + s for s in syntax]
        for k, x in enumerate(tokens.tolist()):
            alone, hat = forward_backward(model, x), forward_backward(model, x, prompt)
            if alone.chance == 0 or not surely(alone, states).any():
                continue
            met += 1
            target = of_cell(model, alone.memory, cell) @ mu
            where = surely(hat, states) & (np.arange(6) > 0)
            want = np.mean(target / hat.left[where]) if where.any() else 0.0
            assert abs(scores[k].item() - want) <= 1e-11 * head.condition * max(1, abs(want))
            differs += abs(other[k].item() / scale - scores[k].item() / scale) > 1e-3 * max(1, abs(want))
    assert met > 30
    assert differs > 0


def test_no_prompt_for_a_state_that_is_never_entered():
    never = MemoryHMM([[0.0, 0.0], [1.0, 1.0]], np.eye(2)[:, None], [0.5, 0.5], [1.0])
    with pytest.raises(ValueError, match="never entered"):
        prompt_for_any_start(never, [1.0], 0)
    back = MemoryHMM([[0.5, 0.5], [0.5, 0.5]], np.eye(2)[:, None], [0.0, 1.0], [1.0])  # P[H_1] has more than P[H_0]
    assert prompt_for_any_start(back, [1.0], 0).tolist() == [0, 1]


def test_the_prompt_d_6_by_its_entries():
    model, *_ = recoverable_memory_hmm(2, 3, 2, 1, 1, 0)
    for cell in (0, 1):
        prompt = prompt_d_6(model, [0.0, -1.0, 2.0], cell).reshape(3, 3, 4)
        for values in np.ndindex(3, 3):
            assert prompt[values].tolist() == [float(values[cell] != 0)] * 4


def test_prompts_of_both_widths():
    """(M*H,) is taken for its lift; for one cell both are the same."""
    rng = np.random.default_rng(0)
    for n_cells in (1, 2, 3):
        model, *_ = recoverable_memory_hmm(n_cells, 2, 2, 1, 1, 3)
        tokens = mixed_inputs(model, 4, 1)
        narrow = torch.as_tensor(rng.random(2 * model.n_states) * (rng.random(2 * model.n_states) < 0.7))
        wide = model.lift(narrow)
        assert len(wide) == lifted_size(model)
        assert prompted(model, narrow, tokens).shape == (len(tokens), 5, len(narrow))
        assert prompted(model, wide, tokens).shape == (len(tokens), 5, len(wide))
        for of in (masked_token_probs, latent_given_others):
            np.testing.assert_allclose(of(model, tokens, narrow), of(model, tokens, wide), atol=1e-14)
        assert torch.equal(concentrated(model, tokens, 0, [0], narrow), concentrated(model, tokens, 0, [0], wide))
        if n_cells == 1:
            assert torch.equal(narrow, wide)


def test_outputs_behind_a_prompt_are_those_of_the_embeddings():
    rng = np.random.default_rng(1)
    models = [recoverable_memory_hmm(n, 2, 2, 1, 1, n)[0] for n in (1, 2, 3)] + [essential_hmm(4, 3, 2, 5)[0]]
    for model in models:
        tokens = mixed_inputs(model, 4, 1)
        tokens = torch.cat([tokens, behind_gap(tokens[:, 1:])])
        for prompt in (
            rng.random(lifted_size(model)),
            np.zeros(lifted_size(model)),
            np.ones(lifted_size(model)).tolist(),
        ):
            found = masked_token_probs(model, tokens, prompt)
            assert found.shape == (len(tokens), 5, model.n_tokens)
            assert torch.equal(found, masked_token_probs_from_embeddings(model, prompted(model, prompt, tokens)))
        # Ones say nothing: but for the shift by one step, that is no prompt.
        free = masked_token_probs(model, tokens, np.ones(lifted_size(model)))
        np.testing.assert_allclose(free[:, 1:], masked_token_probs(model, behind_gap(tokens))[:, 1:], atol=1e-13)
        # A prompt of zeros is impossible: nothing can be said but at its own place.
        none = masked_token_probs(model, tokens, np.zeros(lifted_size(model)))
        assert (none[:, 1:] == 0).all()
        assert (
            not concentrated(model, tokens, 0, [0], np.zeros(lifted_size(model))).any() if model in models[:3] else True
        )


# Refusals


def essential():
    """State 0 leads to 0 and 1 only, state 2 everywhere; W tells the states apart."""
    return HMM([[0.5, 0.2, 0.3], [0.5, 0.3, 0.3], [0.0, 0.5, 0.4]], np.eye(3), [0.2, 0.3, 0.5])


def test_broken_assumptions_of_theorem_3_6_are_named():
    good = essential()
    assert theorem_3_6(good, [1.0, -1.0, 0.0], [0, 1])[0].tolist() == [1, 0, 0]
    turn = HMM([[0, 0, 1], [1, 0, 0], [0, 1, 0]], np.eye(3), [0.2, 0.3, 0.5], columns=True)
    missing = HMM(good.transition, good.emission, [0.5, 0.5, 0.0])
    for model in (turn, missing):
        with pytest.raises(AssumptionError, match=r"^Assumption 3\.2 .*does not hold"):
            theorem_3_6(model, [1.0, 0.0, 0.0], [0])
    alike = HMM(good.transition, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], good.initial)
    for model, mu, states, part in [
        (alike, [1.0, -1, 0], [0, 1], "2 columns of rank 1"),
        (good, [1.0, -1, 1], [0, 1], r"states of supp\(mu\) outside H\*: \[2\]"),
        (good, [1.0, 0, 0], [0], r"reaches: \[0\]"),
    ]:
        with pytest.raises(AssumptionError, match=rf"^Assumption 3\.5 .*does not hold.*{part}") as caught:
            theorem_3_6(model, mu, states)
        assert not caught.value.report
    with pytest.raises(AssumptionError, match=r"Assumption 3\.5"):
        theorem_3_6(essential_twins(), [1.0, -1, 0, 0], [0, 1])


def test_broken_assumptions_of_theorems_4_3_and_4_6_are_named():
    twins, parity = recoverable_twins(), parity_memory_hmm(2, 0.1)
    for model, syntax in [(twins, [0, 2, 3]), (parity, [0, 1, 2, 3])]:
        with pytest.raises(AssumptionError, match=r"^Assumption 4\.2 .*does not hold"):
            theorem_4_3(model, [1.0, -1.0], 0, syntax)
        with pytest.raises(AssumptionError, match=r"^Assumption 4\.5 .*does not hold"):
            theorem_4_6(model, [1.0, -1.0], 0, syntax)
    two, cell, _, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
    with pytest.raises(AssumptionError, match=r"^Assumption D\.5 .*does not hold"):
        theorem_4_6(two, [1.0, -1.0], cell, [0, 1])
    model, cell, syntax, _ = recoverable_memory_hmm(1, 2, 2, 1, 2, 0)
    with pytest.raises(AssumptionError, match=r"^Assumption 4\.4 .*does not hold.*differs from P"):
        theorem_4_6(model, [1.0, -1.0], cell, syntax)
    for transition, initial in [(np.eye(2), [0.5, 0.5]), ([[0, 1], [1, 0]], [0.5, 0.5]), (model.transition, [1.0, 0])]:
        broken = MemoryHMM(transition, model.emission, initial, model.memory)
        with pytest.raises(AssumptionError, match=r"^Assumption 3\.2 .*does not hold"):
            theorem_4_3(broken, [1.0, -1.0], cell, syntax)
        with pytest.raises(AssumptionError, match=r"^Assumption 4\.4 .*does not hold"):
            theorem_4_6(broken, [1.0, -1.0], cell, syntax)


def test_a_prompt_can_do_what_a_head_alone_cannot():
    """Columns that depend on each other at a value outside supp(μ): 4.2 is broken, D.5 is not."""
    model, cell, syntax, kept = recoverable_memory_hmm(1, 3, 2, 1, 2, 1, stationary=True)
    state, other = syntax[0], next(m for m in range(3) if m not in kept)
    emission = model.emission.clone()
    emission[:, other, state] = emission[:, kept, state].mean(1)
    model = MemoryHMM(model.transition, emission, model.initial, model.memory)
    mu = weights_on(kept, 3, 1)
    with pytest.raises(AssumptionError, match=r"Assumption 4\.2"):
        theorem_4_3(model, mu, cell, syntax)
    check_4(model, mu, cell, syntax, mixed_inputs(model, 6, 0), *theorem_4_6(model, mu, cell, syntax))


def test_tasks_cells_and_states_that_do_not_fit_are_refused():
    model, _, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
    mu, text = [1.0, -1.0], [[0]]
    of_tasks = [
        lambda mu: theorem_4_3(model, mu, 0, syntax), lambda mu: theorem_4_6(model, mu, 0, syntax),
        lambda mu: prompt_d_6(model, mu, 0), lambda mu: prompt_for_any_start(model, mu, 0),
        lambda mu: ground_truth(model, mu, text),
    ]  # fmt: skip
    of_cells = [
        lambda cell: theorem_4_3(model, mu, cell, syntax), lambda cell: theorem_4_6(model, mu, cell, syntax),
        lambda cell: prompt_d_6(model, mu, cell), lambda cell: prompt_for_any_start(model, mu, cell),
        lambda cell: concentrated(model, text, cell, syntax), lambda cell: ground_truth(model, mu, text, cell),
    ]  # fmt: skip
    of_syntax = [
        lambda syntax: theorem_4_3(model, mu, 0, syntax), lambda syntax: theorem_4_6(model, mu, 0, syntax),
        lambda syntax: concentrated(model, text, 0, syntax),
    ]  # fmt: skip
    for calls, wrong, message in [
        (of_tasks, [1.0], r"mu must have shape \(2,\)"),
        (of_tasks, [0.0, 0.0], "mu must not be all zero"),
        (of_cells, 2, "cell must be an integer from 0 to 1, not 2$"),
        (of_cells, True, "cell must be an integer from 0 to 1, not True$"),
        (of_syntax, [2], "each of syntax must be an integer from 0 to 1, not 2"),
        (
            [lambda states: theorem_3_6(essential(), [1.0, 0, 0], states)],
            [3],
            "each of essential must be an integer from 0 to 2",
        ),
        ([lambda cell: ground_truth(essential(), [1.0, 0, 0], text, cell)], 1, "cell must be an integer from 0 to 0"),
    ]:
        for call in calls:
            with pytest.raises(ValueError, match=f"^{message}"):
                call(wrong)


def test_integers_of_any_kind_are_taken():
    model, cell, syntax, _ = recoverable_memory_hmm(2, 2, 3, 2, 2, 0, stationary=True)
    want = theorem_4_3(model, [1.0, -1.0], cell, syntax)
    for same in (
        np.array(syntax),
        torch.tensor(syntax),
        tuple(syntax[::-1]),
        set(syntax),
        [np.int64(s) for s in syntax],
    ):
        found = theorem_4_3(model, torch.tensor([1, -1]), np.int64(cell), same)
        assert torch.equal(found.value, want.value)
        assert torch.equal(found.key, want.key)


def test_each_theorem_takes_its_kind_of_model():
    memory, plain = recoverable_twins(), essential()
    with pytest.raises(TypeError, match="model must be of type HMM, not MemoryHMM"):
        theorem_3_6(memory, [1.0] * 4, [0])
    for theorem in (theorem_4_3, theorem_4_6):
        with pytest.raises(TypeError, match="model must be of type MemoryHMM, not HMM"):
            theorem(plain, [1.0] * 3, 0, [0])
    with pytest.raises(TypeError, match="model must be of type MemoryHMM, not HMM"):
        concentrated(plain, [[0]], 0, [0])
