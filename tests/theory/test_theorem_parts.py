"""The lemmas behind the constructions one by one, prompts entry by entry, and what the constructions refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from constructions import check_4, mixed_inputs, telling_inputs, weights_on

from hmmlib.inference.messages import latent_given_others, masked_token_probs, prompted
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import (
    dependent_hmm,
    essential_twins,
    hidden_twins,
    parity_memory_hmm,
    recoverable_memory_hmm,
    recoverable_twins,
)
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import (
    AssumptionError,
    assumption_3_5,
    assumption_4_2,
    assumption_d_5,
    essential_states,
    weighted_values,
)
from hmmlib.theory.theorems import (
    claim_b_1,
    claim_d_3,
    claim_d_10,
    concentrated,
    ground_truth,
    lemma_c_2,
    lemma_d_2,
    lemma_d_4,
    lemma_d_9,
    prompt_d_6,
    prompt_for_any_start,
    prompted_head,
    theorem_3_3,
    theorem_3_6,
    theorem_4_3,
    theorem_4_6,
)

# Lemmas and claims


def test_the_ratios_of_claim_b_1_and_the_weights_of_lemma_c_2_path_by_path():
    model, prompt = random_hmm(3, 5, 2), torch.tensor([1.0, 0.0, 0.25], dtype=torch.float64)
    step, start = model.transition.numpy(), model.initial.numpy()
    after = start
    for i in range(4):
        np.testing.assert_allclose(claim_b_1(model, i), after / start, rtol=1e-12)
        after = step @ after
    want = [
        sum(start[a] * step[b, a] * prompt[b].item() * step[c, b] for a in range(3) for b in range(3)) / start[c]
        for c in range(3)
    ]
    np.testing.assert_allclose(lemma_c_2(model, prompt), want, rtol=1e-12)
    missing = HMM([[0.5, 0.5], [0.5, 0.5]], np.eye(2), [1.0, 0.0], columns=True)
    for name, call in (("Claim B.1", lambda: claim_b_1(missing, 1)), ("Lemma C.2", lambda: lemma_c_2(missing, [1, 1]))):
        with pytest.raises(ValueError, match=rf"^{name} divides by P\[H_0\], which is zero in some state$"):
            call()


def recovered(n_cells, seed):
    model, cell, syntax, _ = recoverable_memory_hmm(n_cells, 2, 3, 2, 2, seed, 0.3, True)
    return model, cell, syntax, claim_d_3(model, cell, syntax)


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_queries_keys_and_value_parameters_by_their_entries(n_cells):
    model, cell, syntax, recovery = recovered(n_cells, n_cells)
    states = [3 * cell + s for s in syntax]
    query, key = lemma_d_2(model, recovery)
    assert query.tolist() == [float(h in states) for h in range(3 * n_cells)] + [0.0]
    assert torch.equal(key[:-1], recovery.theta_1)
    assert key[-1].tolist() == [0.0] * model.n_tokens
    value, output = lemma_d_4(model, recovery, [3.0, -1.0])
    assert value.shape == (6 * n_cells, model.n_tokens)
    for m, weight in enumerate([3.0, -1.0]):
        for h in range(3 * n_cells):
            row = 3 * n_cells * m + h
            assert output[row] == (weight if h // 3 == cell else 0)
            want = recovery.theta_2[states.index(h), m] if h in states else torch.zeros(model.n_tokens)
            assert value[row].tolist() == want.tolist()
    # What is not recoverable is counted in one state: like probabilities, the rows of Θ^(1) sum to 1.
    outside, columns = [h for h in range(3 * n_cells) if h not in states], model.emission.flatten(1)
    found, of_rest = recovery.theta_1 @ columns, model.emission[:, :, outside].flatten(1)
    assert (found[outside[1:]] == 0).all()
    np.testing.assert_allclose(found.sum(0), 1, atol=1e-9 * recovery.condition)
    np.testing.assert_allclose((recovery.theta_1 @ of_rest)[outside[0]], 1, atol=1e-9 * recovery.condition)


def one_cell(transition, initial):
    """Tokens show the state, whatever the memory's two values."""
    n = len(initial)
    return MemoryHMM(transition, np.eye(n)[:, None].repeat(2, 1), initial, [0.5, 0.5])


def test_the_position_of_the_prompt_scores_below_all_that_a_key_can_reach():
    """-2 as printed where no key exceeds 1, else lower by as much."""
    apart = one_cell([[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5])
    np.testing.assert_allclose(lemma_d_9(apart, claim_d_10(apart, [1, 0], 0, [0]))[2], [[0, 0, -2]], rtol=1e-12)
    for seed in range(4):
        model, _, _, recovery = recovered(1 + seed % 2, seed)
        query, key, positions = lemma_d_9(model, recovery)
        plain, same = lemma_d_2(model, recovery)
        assert torch.equal(key, same)
        assert query.tolist() == [*plain[:-1].tolist(), 1.0]
        largest = (plain @ same).max().item()
        assert positions.shape == (1, model.n_states + 1)
        assert positions[0, :-1].tolist() == [0.0] * model.n_states
        assert positions[0, -1].item() == pytest.approx(-1 - max(largest, 1.0), rel=1e-12)
        assert largest > 1 + 1e-9
        assert (query @ (key + positions.T) < 0).all(), "the scores of a position that shows one token for sure"


@pytest.mark.parametrize("n_cells", [1, 2])
def test_attention_heads_carry_condition_and_cells(n_cells):
    model, cell, syntax, recovery = recovered(n_cells, 3)
    mu = [1.0, -1.0]
    head = theorem_4_3(model, mu, cell, syntax)
    assert (head.condition, head.n_cells) == (assumption_4_2(model, cell, syntax).condition, n_cells)
    assert (head.positions.shape, recovery.condition) == ((0, model.n_states + 1), head.condition)
    prompt, behind = theorem_4_6(model, mu, cell, syntax)
    assert (behind.condition, behind.n_cells) == (assumption_d_5(model, mu, cell, syntax).condition, n_cells)
    assert torch.equal(prompt, prompt_d_6(model, mu, cell))
    again = prompted_head(model, mu, claim_d_10(model, mu, cell, syntax))
    for part in ("query", "key", "value", "output", "positions"):
        assert torch.equal(getattr(behind, part), getattr(again, part))
    whole = set(syntax), torch.tensor(syntax), [np.int64(s) for s in syntax[::-1]]  # integers of any kind
    assert all(torch.equal(theorem_4_3(model, [1, -1], np.int64(cell), same).value, head.value) for same in whole)


def test_the_target_of_a_memory_model_is_that_of_its_first_cell_unless_another_is_named():
    model = recoverable_memory_hmm(2, 2, 2, 1, 2, 4, 0.3)[0]
    tokens = model.sample(5, 3, 0).tokens
    first, second = (ground_truth(model, [1.0, -1.0], tokens, cell) for cell in (0, 1))
    assert torch.equal(ground_truth(model, [1.0, -1.0], tokens), first)
    assert not torch.allclose(first, second)


def test_weights_follow_the_precision_of_the_model():
    chain, model = random_hmm(3, 4, 1).to(dtype=torch.float32), recovered(2, 0)[0].to(dtype=torch.float32)
    recovery = claim_d_3(model, 0, [0])
    assert ground_truth(chain, [1.0, 0.0, -1.0], [[0, 1]]).dtype == torch.float32
    assert ground_truth(model, [1.0, -1.0], [[0, 1]]).dtype == torch.float32
    assert lemma_d_4(model, recovery, [1.0, -1.0])[1].dtype == torch.float32
    assert theorem_3_3(chain, [1.0, 0.0, -1.0]).weights.dtype == torch.float32
    least = 1e-60  # zero in float32
    for call in (
        lambda: lemma_d_4(model, recovery, [least, 0.0]),
        lambda: weighted_values(model, [least, 1.0]),
        lambda: assumption_3_5(chain, [least, 1.0, 1.0], [1, 2]),
        lambda: essential_states(chain, [least, 0.0, 1.0]),
    ):
        with pytest.raises(ValueError, match=r"^mu must .* so small that .* zero as torch\.float32"):
            call()


# Prompts


def test_prompts_by_their_entries():
    """(D.6); for any start times P[H_0] / P[H_1] over its largest: 0 where P[H_0] is, in a state never entered too."""
    model, *_ = recoverable_memory_hmm(2, 3, 2, 1, 1, 0)
    for cell in (0, 1):
        prompt = prompt_d_6(model, [0.0, -1.0, 2.0], cell).reshape(3, 3, 4)
        for values in np.ndindex(3, 3):
            assert prompt[values].tolist() == [float(values[cell] != 0)] * 4
    for make in (prompt_d_6, prompt_for_any_start):
        assert make(one_cell([[1.0]], [1.0]), [0.0, 2.0], 0).tolist() == [0, 1]
    model = one_cell([[0.5, 0.5, 0], [0.5, 0.25, 1], [0, 0.25, 0]], [0.5, 0.5, 0.0])  # P[H_1] = (1/2, 3/8, 1/8)
    assert prompt_for_any_start(model, [1.0, 0.0], 0).tolist() == pytest.approx([0.75, 1, 0, 0, 0, 0])
    absent = one_cell([[0, 0], [1.0, 1.0]], [0.0, 1.0])
    assert prompt_for_any_start(absent, [1.0, 1.0], 0).tolist() == [0, 1, 0, 1]
    never = one_cell([[0, 0, 0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]], [0.5, 0.5, 0.0])
    message = "^no prompt lets H_1 have the law of H_0: a state that H_0 can be in is never entered$"
    with pytest.raises(ValueError, match=message):
        prompt_for_any_start(never, [1.0, 0.0], 0)


def test_behind_a_prompt_for_any_start_scores_are_those_of_the_theorem_over_one_constant():
    """It is max P[H_0] / P[H_1], for a start that is not stationary; the prompt (D.6) would give others."""
    met, others = 0, 0
    for seed in range(12):
        model, cell, syntax, kept = recoverable_memory_hmm(1 + seed % 2, 2, 2, 1, 1 + seed % 2, seed, 0.95)
        mu = weights_on(kept, 2, 3 * seed)
        with pytest.raises(AssumptionError, match=r"Assumption 4\.4"):
            theorem_4_6(model, mu, cell, syntax)
        head = prompted_head(model, mu, claim_d_10(model, mu, cell, syntax))
        head = replace(head, output=head.output * (model.initial / model.marginal(1)).max())
        prompt, plain = prompt_for_any_start(model, mu, cell), prompt_d_6(model, mu, cell)
        tokens = telling_inputs(model, 5, seed, cell, syntax, prompt)
        met += check_4(model, mu, cell, syntax, tokens, prompt, head)["within"]
        try:
            check_4(model, mu, cell, syntax, tokens, plain, head)
        except AssertionError:
            others += 1
    assert met > 15
    assert others > 1


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_prompts_of_both_widths(n_cells):
    """(M*H,) is taken for its lift; for one cell both are the same. Behind a prompt of zeros nothing is sure."""
    model, *_ = recoverable_memory_hmm(n_cells, 2, 2, 1, 1, 3)
    tokens, generator = mixed_inputs(model, 4, 1), torch.Generator().manual_seed(n_cells)
    narrow = torch.rand(2 * model.n_states, generator=generator, dtype=torch.float64).sub(0.3).clamp(min=0)
    wide = model.lift(narrow)
    assert torch.equal(narrow, wide) or n_cells > 1
    for prompt in (narrow, wide):
        assert prompted(model, prompt, tokens).shape == (len(tokens), 5, len(prompt))
    for of in (masked_token_probs, latent_given_others, lambda *given: concentrated(*given[:2], 0, [0], given[2])):
        np.testing.assert_allclose(of(model, tokens, narrow), of(model, tokens, wide), atol=1e-14)
        assert not of(model, tokens, 0 * wide)[:, 1:].any()


# Refusals

SWAP, UNIFORM = [[0, 1], [1, 0]], [0.5, 0.5]
GOOD = HMM([[0.5, 0.2, 0.3], [0.5, 0.3, 0.3], [0.0, 0.5, 0.4]], np.eye(3), [0.2, 0.3, 0.5])  # 0 leads to 0 and 1 only
TURN = HMM([[0, 0, 1], [1, 0, 0], [0, 1, 0]], np.eye(3), [0.2, 0.3, 0.5], columns=True)
ALIKE = HMM(GOOD.transition, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], GOOD.initial)


def test_broken_assumptions_are_named():
    mu, two = [1.0, -1.0], recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)[0]
    model, cell, syntax, _ = recoverable_memory_hmm(1, 2, 2, 1, 2, 0)
    absent, parity = HMM(GOOD.transition, GOOD.emission, [0.5, 0.5, 0.0]), parity_memory_hmm(2, 0.1)
    cases = [
        *((theorem_3_3, (alike, [1.0, -1, 1, -1]), "3.1") for alike in (dependent_hmm(4, 6), hidden_twins())),
        *((theorem_3_3, (HMM(chain, np.eye(2), UNIFORM), [1.0, -1]), "3.2") for chain in (np.eye(2), SWAP)),
        (theorem_3_3, (HMM([[0.0, 0.5], [1.0, 0.5]], np.eye(2), [1, 0]), [1.0, -1]), "3.2"),
        (theorem_3_6, (TURN, [1.0, 0, 0], [0]), "3.2"),
        (theorem_3_6, (absent, [1.0, 0, 0], [0]), "3.2"),
        (theorem_3_6, (ALIKE, [1.0, -1, 0], [0, 1]), "3.5", "2 columns of rank 1"),
        (theorem_3_6, (GOOD, [1.0, -1, 1], [0, 1]), "3.5", r"states of supp\(mu\) outside H\*: \[2\]"),
        (theorem_3_6, (GOOD, [1.0, 0, 0], [0]), "3.5", r"reaches: \[0\]"),
        (theorem_3_6, (essential_twins(), [1.0, -1, 0, 0], [0, 1]), "3.5"),
        (theorem_4_3, (two, mu, 0, [0, 1]), "4.2"),
        (theorem_4_6, (two, mu, 0, [0, 1]), "D.5"),
        (theorem_4_6, (model, mu, cell, syntax), "4.4", "differs from P"),
    ]
    for broken, at in ((recoverable_twins(), [0, 2, 3]), (parity, [0, 1, 2, 3])):
        cases += [
            (theorem, (broken, mu, 0, at), number) for theorem, number in ((theorem_4_3, "4.2"), (theorem_4_6, "4.5"))
        ]
    for chain, start in ((np.eye(2), UNIFORM), (SWAP, UNIFORM), (model.transition, [1.0, 0])):
        broken = MemoryHMM(chain, model.emission, start, model.memory)
        cases += [(theorem_4_3, (broken, mu, cell, syntax), "3.2"), (theorem_4_6, (broken, mu, cell, syntax), "4.4")]
    for theorem, given, number, *words in cases:
        with pytest.raises(AssumptionError, match=rf"^Assumption {number} .*does not hold.*{''.join(words)}") as caught:
            theorem(*given)
        assert not caught.value.report
        assert isinstance(caught.value, ValueError)
    assert theorem_3_6(GOOD, [1.0, -1.0, 0.0], [0, 1])[0].tolist() == [1, 0, 0]


def test_a_prompt_can_do_what_a_head_alone_cannot():
    """Columns that depend on each other at a value outside supp(μ): 4.2 is broken, D.5 is not."""
    model, cell, syntax, kept = recoverable_memory_hmm(1, 3, 2, 1, 2, 1, stationary=True)
    state, other = syntax[0], next(m for m in range(3) if m not in kept)
    emission = model.emission.clone()
    emission[:, other, state] = emission[:, kept, state].mean(1)
    model, mu = MemoryHMM(model.transition, emission, model.initial, model.memory), weights_on(kept, 3, 1)
    with pytest.raises(AssumptionError, match=r"Assumption 4\.2"):
        theorem_4_3(model, mu, cell, syntax)
    check_4(model, mu, cell, syntax, mixed_inputs(model, 6, 0), *theorem_4_6(model, mu, cell, syntax))


def test_models_cells_and_states_that_do_not_fit_are_refused():
    model, _, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
    mu, text = [1.0, -1.0], [[0]]
    of_cells = [lambda cell: prompt_d_6(model, mu, cell), lambda cell: ground_truth(model, mu, text, cell),
                *(lambda cell, by=by: by(model, mu, cell, syntax) for by in (theorem_4_3, theorem_4_6))]  # fmt: skip
    of_plain = [lambda plain: concentrated(plain, text, 0, [0]),
                *(lambda plain, by=by: by(plain, [1.0] * 3, 0, [0]) for by in (theorem_4_3, theorem_4_6))]  # fmt: skip
    for calls, wrong, message in [
        (of_cells, 2, "cell must be an integer from 0 to 1, not 2$"),
        ([lambda cell: ground_truth(GOOD, [1.0, 0, 0], text, cell)], 1, "cell must be an integer from 0 to 0, not 1$"),
        ([lambda states: concentrated(model, text, 0, states)], [2], "each of syntax must be an integer from 0 to 1"),
        ([lambda states: theorem_3_6(GOOD, [1.0, 0, 0], states)], [3], "each of essential must be .* from 0 to 2"),
        ([lambda mu: ground_truth(model, mu, text)], [1.0], r"mu must have shape \(2,\)"),
        (of_plain, GOOD, "model must be of type MemoryHMM, not HMM"),
        ([lambda memory: theorem_3_6(memory, [1.0] * 4, [0])], model, "model must be of type HMM, not MemoryHMM"),
    ]:
        for call in calls:
            with pytest.raises((ValueError, TypeError), match=f"^{message}"):
                call(wrong)
