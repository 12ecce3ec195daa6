"""The theorems as constructions: scores beside those of a witness, lemmas and prompts by their entries, refusals."""

import numpy as np
import pytest
import torch
from constructions import behind_gap, check_3_6, check_4, mixed_inputs, telling_inputs, weights_on
from record import SLOW
from witness import forward_backward

import hmmlib
from hmmlib.inference.messages import masked_token_probs, prompted
from hmmlib.models.families import sparse_columns
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import assumptions
from hmmlib.theory.theorems import claim_b_1, ground_truth

FAMILIES = {
    "non-degenerate": lambda seed: hmmlib.non_degenerate_hmm(1 + seed % 6, 1 + seed % 6 + seed % 3, seed),
    "no zeros": lambda seed: hmmlib.non_degenerate_hmm(2 + seed % 7, 10, seed, zeros=0.0),
    "gap 1e-6": lambda seed: hmmlib.nearly_dependent_hmm(2 + seed % 4, 7, 1e-6, seed),
    "appendix E": lambda seed: hmmlib.random_hmm(1 + seed % 10, 10, seed),
}
BOTH = pytest.mark.parametrize("with_prompt", [False, True], ids=["4.3", "4.6"])
SHAPES = {  # cells, values, syntax states, recoverable ones
    "one cell": (1, 3, 3, 2),
    "one cell, all syntax states": (1, 3, 3, 3),
    "two cells": (2, 2, 2, 1),
    "two cells, all syntax states": (2, 3, 2, 2),
    "three cells": (3, 2, 2, 1),
    "one syntax state": (2, 2, 1, 1),
}
CHAIN, START = [[0.5, 0.2, 0.3], [0.5, 0.3, 0.3], [0.0, 0.5, 0.4]], [0.2, 0.3, 0.5]  # 0 leads to 0 and 1 only
ALIKE = HMM(CHAIN, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], START)
TURN = HMM([[0, 0, 1], [1, 0, 0], [0, 1, 0]], np.eye(3), START, columns=True)
TWO = hmmlib.recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_theorem_3_3(family):
    """The score is r_x μᵀP[H_0 | x], up to rounding that the condition of W magnifies."""
    found = 0
    for seed in range(170 if SLOW else 20):
        model, rng = FAMILIES[family](seed), np.random.default_rng(seed)
        if not (assumptions.assumption_3_1(model) and assumptions.assumption_3_2(model)):
            assert family == "appendix E", seed
            continue
        mu = torch.as_tensor(rng.standard_normal(model.n_states) * rng.choice([1e-3, 1.0, 1e3]))
        tokens, head = model.sample(6, int(rng.integers(1, 7)), seed).tokens, hmmlib.theorem_3_3(model, mu)
        bound = 1e-13 * head.condition * (mu / claim_b_1(model, 1)).abs().max()
        probs = masked_token_probs(model, behind_gap(tokens))[:, 0]
        for x, score, label in zip(tokens.tolist(), head(probs), head.label(probs), strict=True):
            alone, hat = forward_backward(model, x), forward_backward(model, [hmmlib.MASK, *x])
            want = alone.start @ mu.numpy() / hat.left[0]
            assert abs(score - want) <= bound, seed
            assert label.item() == (want >= 0) or abs(want) <= bound, seed
        assert head.condition == pytest.approx(np.linalg.cond(model.emission.numpy()), rel=1e-3)
        found += 1
    assert found > 5


@pytest.mark.parametrize("length", [1, 12])
def test_theorem_3_6_on_long_inputs_and_larger_models(length):
    seen, excluded = 0, 0
    for seed in range(16):
        n_states, n_tokens = 1 + seed % 6, 2 + seed % 4
        n_essential = 1 + seed % min(n_states, n_tokens)
        model, essential = hmmlib.essential_hmm(n_states, n_tokens, n_essential, seed, zeros=[0.3, 0.6, 0.85][seed % 3])
        mu = weights_on(essential, n_states, seed)
        possible, both = check_3_6(model, mu, essential, mixed_inputs(model, length, seed))
        seen, excluded = seen + both, excluded + possible - both
        prompt, head = hmmlib.theorem_3_6(model, mu, essential)
        assert head.condition == pytest.approx(np.linalg.cond(model.emission[:, essential].numpy()))
        outside = [h for h in range(n_states) if h not in essential]
        assert prompt.tolist() == [float(not model.transition[outside, h].any()) for h in range(n_states)]
    assert seen > 50
    assert excluded > 0 or length == 1


def checked(model, mu, cell, syntax, with_prompt, tokens=None, length=1, seed=0):
    """What `check_4` meets with the head of Theorem 4.3 or 4.6, on inputs of 𝓡 and others unless they are given."""
    construct = hmmlib.theorem_4_6 if with_prompt else lambda *given: (None, hmmlib.theorem_4_3(*given))
    prompt, head = construct(model, mu, cell, syntax)
    tokens = telling_inputs(model, length, seed, cell, syntax, prompt) if tokens is None else tokens
    return check_4(model, mu, cell, syntax, tokens, prompt, head)


@BOTH
@pytest.mark.parametrize("length", [1, 12])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_heads_on_long_inputs_and_several_cells(shape, length, with_prompt):
    seen, (n_cells, n_memory, n_syntax, n_recoverable) = {}, SHAPES[shape]
    for seed in range(14 if SLOW or length == 12 else 4):
        values, zeros = 1 + seed % n_memory if with_prompt else n_memory, [0.6, 0.95][seed % 2]
        model, cell, syntax, kept = hmmlib.recoverable_memory_hmm(
            n_cells, n_memory, n_syntax, n_recoverable, values, seed, zeros, stationary=with_prompt
        )
        if seed % 2:  # many joint values of the memory are impossible
            generator = torch.Generator().manual_seed(seed)
            memory = sparse_columns((model.memory.numel(),), 0.6, generator).reshape(model.memory.shape)
            model = MemoryHMM(model.transition, model.emission, model.initial, memory)
        mu = weights_on(kept, n_memory, seed)
        for key, count in checked(model, mu, cell, syntax, with_prompt, None, length, seed).items():
            seen[key] = seen.get(key, 0) + count
    assert seen["outside"] > 0
    if length == 12:
        assert seen["within"] > 5, seen
        assert seen["many"] > 3, seen
        if with_prompt and shape in ("one cell", "two cells, all syntax states"):
            assert seen["excluded"] > 0, seen


@BOTH
def test_the_smallest_models(with_prompt):
    """|M| = 1, |H| = 1, |M*| = 1 and T = 1, alone and together."""
    one = MemoryHMM([[1.0]], [[[0.25]], [[0.75]]], [1.0], [1.0])  # |M| = |H| = 1
    told = MemoryHMM([[1.0]], [[[0.75], [0.25]], [[0.25], [0.75]]], [1.0], [0.5, 0.5])  # |H| = 1, |M| = 2
    parts = [[0.0, 0.5], [1.0, 0.5]], np.eye(2)[:, None], [1 / 3, 2 / 3]  # state 1 follows surely after state 0
    free, twice = MemoryHMM(*parts, [1.0]), MemoryHMM(*parts, [[1.0]])  # |M| = 1, |H| = 2; two cells of one value
    tasks = (one, [-2.0], 0, [0]), (told, [0, -1.0], 0, [0]), (free, [-1.0], 0, [1]), (twice, [3.0], 1, [0])
    for model, *task in tasks:
        for length in (1, 2, 7):
            seen = checked(model, *task, with_prompt, mixed_inputs(model, length, length))
            assert seen["within"] > 0 or (length, model.n_states) == (1, 2)


def test_weights_follow_the_precision_of_the_model():
    for seed in range(4):
        model, cell, syntax, kept = hmmlib.recoverable_memory_hmm(1 + seed % 2, 2, 2, 1, 1 + seed % 2, seed, 0.7, True)
        mu, tokens, scores = weights_on(kept, 2, 0), model.sample(8, 5, seed).tokens, []
        for part in (model, model.to(dtype=torch.float32)):
            prompt, head = hmmlib.theorem_4_6(part, mu, cell, syntax)
            scores.append(head(masked_token_probs(part, tokens, prompt), prompted(part, prompt, tokens)))
            made = prompt, head.query, head.positions, scores[-1], hmmlib.prompt_for_any_start(part, mu, cell)
            assert {each.dtype for each in (*made, ground_truth(part, mu, tokens, cell))} == {part.dtype}
        inside = hmmlib.concentrated(model, tokens, cell, syntax).any(1)
        np.testing.assert_allclose(scores[0][inside], scores[1][inside], atol=2e-5 * head.condition)
    chain, mu = hmmlib.random_hmm(3, 4, 1).to(dtype=torch.float32), [1.0, 0.0, -1.0]
    made = hmmlib.theorem_3_3(chain, mu).weights, hmmlib.theorem_3_6(chain, mu, [0, 1, 2])[0]
    assert {each.dtype for each in made} == {torch.float32}
    with pytest.raises(ValueError, match=r"^mu must .* so small that .* zero as torch\.float32"):
        assumptions.weighted_values(part, [1e-60, 1.0])


def recovered(n_cells, seed):
    model, cell, syntax, _ = hmmlib.recoverable_memory_hmm(n_cells, 2, 3, 2, 2, seed, 0.3, True)
    return model, cell, syntax, hmmlib.claim_d_3(model, cell, syntax)


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_queries_keys_and_value_parameters_by_their_entries(n_cells):
    model, cell, syntax, recovery = recovered(n_cells, n_cells)
    states = [3 * cell + s for s in syntax]
    query, key = hmmlib.lemma_d_2(model, recovery)
    assert query.tolist() == [float(h in states) for h in range(3 * n_cells)] + [0.0]
    assert torch.equal(key[:-1], recovery.theta_1)
    assert key[-1].tolist() == [0.0] * model.n_tokens
    value, output = hmmlib.lemma_d_4(model, recovery, [3.0, -1.0])
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
    recovery = hmmlib.claim_d_10(apart, [1, 0], 0, [0])
    np.testing.assert_allclose(hmmlib.lemma_d_9(apart, recovery)[2], [[0, 0, -2]], rtol=1e-12)
    for seed in range(4):
        model, _, _, recovery = recovered(1 + seed % 2, seed)
        query, key, positions = hmmlib.lemma_d_9(model, recovery)
        plain, same = hmmlib.lemma_d_2(model, recovery)
        assert torch.equal(key, same)
        assert query.tolist() == [*plain[:-1].tolist(), 1.0]
        largest = (plain @ same).max().item()
        assert positions.shape == (1, model.n_states + 1)
        assert positions[0, :-1].tolist() == [0.0] * model.n_states
        assert positions[0, -1].item() == pytest.approx(-1 - max(largest, 1.0), rel=1e-12)
        assert largest > 1 + 1e-9
        assert (query @ (key + positions.T) < 0).all(), "the scores of a position that shows one token for sure"


@pytest.mark.parametrize("n_cells", [1, 2])
def test_attention_heads_carry_condition_cells_and_errors(n_cells):
    model, cell, syntax, recovery = recovered(n_cells, 3)
    mu = [1.0, -1.0]
    head, (_, behind) = hmmlib.theorem_4_3(model, mu, cell, syntax), hmmlib.theorem_4_6(model, mu, cell, syntax)
    reports = assumptions.assumption_4_2(model, cell, syntax), assumptions.assumption_d_5(model, mu, cell, syntax)
    assert recovery.condition == reports[0].condition
    for one, report in zip((head, behind), reports, strict=True):
        assert (one.condition, one.n_cells) == (report.condition, n_cells)
        assert one.key_error == recovery.key_error > 0
        errors = one.value_error.reshape(model.n_memory, model.n_states)
        assert torch.equal(errors[:, recovery.states], recovery.value_error.T)
        assert errors.count_nonzero() == recovery.value_error.count_nonzero() > 0
    whole = set(syntax), torch.tensor(syntax), [np.int64(s) for s in syntax[::-1]]  # integers of any kind
    assert all(torch.equal(hmmlib.theorem_4_3(model, [1, -1], np.int64(cell), s).value, head.value) for s in whole)


def test_prompts_by_their_entries():
    """(D.6); for any start times P[H_0] / P[H_1] over its largest: 0 where P[H_0] is, in a state never entered too."""
    model, *_ = hmmlib.recoverable_memory_hmm(2, 3, 2, 1, 1, 0)
    for cell in (0, 1):
        prompt = hmmlib.prompt_d_6(model, [0.0, -1.0, 2.0], cell).reshape(3, 3, 4)
        for values in np.ndindex(3, 3):
            assert prompt[values].tolist() == [float(values[cell] != 0)] * 4
    model = one_cell([[0.5, 0.5, 0], [0.5, 0.25, 1], [0, 0.25, 0]], [0.5, 0.5, 0.0])  # P[H_1] = (1/2, 3/8, 1/8)
    assert hmmlib.prompt_for_any_start(model, [1.0, 0.0], 0).tolist() == pytest.approx([0.75, 1, 0, 0, 0, 0])
    absent = one_cell([[0, 0], [1.0, 1.0]], [0.0, 1.0])
    assert hmmlib.prompt_for_any_start(absent, [1.0, 1.0], 0).tolist() == [0, 1, 0, 1]
    never = one_cell([[0, 0, 0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]], [0.5, 0.5, 0.0])
    message = "^no prompt lets H_1 have the law of H_0: a state that H_0 can be in is never entered$"
    with pytest.raises(ValueError, match=message):
        hmmlib.prompt_for_any_start(never, [1.0, 0.0], 0)


def test_broken_assumptions_are_named():
    mu, (model, cell, syntax, _) = [1.0, -1.0], hmmlib.recoverable_memory_hmm(1, 2, 2, 1, 2, 0)
    still = MemoryHMM(np.eye(2), model.emission, [0.5, 0.5], model.memory)
    for theorem, given, number, words in [
        (hmmlib.theorem_3_3, (ALIKE, [1.0, -1, 0]), "3.1", "3 columns of rank 2"),
        (hmmlib.theorem_3_3, (TURN, [1.0, -1, 0]), "3.2", "irreducible of period 3"),
        (hmmlib.theorem_3_6, (TURN, [1.0, 0, 0], [0]), "3.2", "irreducible of period 3"),
        (hmmlib.theorem_3_6, (ALIKE, [1.0, -1, 0], [0, 1]), "3.5", "2 columns of rank 1"),
        (hmmlib.theorem_4_3, (hmmlib.recoverable_twins(), mu, 0, [0, 2, 3]), "4.2", "smallest angle"),
        (hmmlib.theorem_4_3, (still, mu, cell, syntax), "3.2", "reducible"),
        (hmmlib.theorem_4_6, (hmmlib.parity_memory_hmm(2, 0.1), mu, 0, [0, 1, 2, 3]), "4.5", "8 columns"),
        (hmmlib.theorem_4_6, (TWO, mu, 0, [0, 1]), "D.5", "4 columns"),
        (hmmlib.theorem_4_6, (model, mu, cell, syntax), "4.4", "differs from P"),
    ]:
        message = rf"^Assumption {number} \(.*\) does not hold: .*{words}"
        with pytest.raises(assumptions.AssumptionError, match=message) as caught:
            theorem(*given)
        assert not caught.value.report
        assert isinstance(caught.value, ValueError)


def test_the_cell_is_the_first_unless_another_is_named_and_what_does_not_fit_is_refused():
    mu, text = [1.0, -1.0], [[0, 1]]
    unnamed, first, second = (ground_truth(TWO, mu, text, *cell).item() for cell in ((), (0,), (1,)))
    assert unnamed == first != second
    absent = HMM(CHAIN, np.eye(3), [0.5, 0.5, 0.0])
    for call, message in [
        (lambda: claim_b_1(absent, 1), r"Claim B\.1 divides by P\[H_0\], which is zero in some state$"),
        (lambda: hmmlib.prompt_d_6(TWO, mu, 2), "cell must be an integer from 0 to 1, not 2$"),
        (lambda: ground_truth(TWO, mu, text, 2), "cell must be an integer from 0 to 1, not 2$"),
        (lambda: ground_truth(TURN, [1.0, 0, 0], text, 1), "cell must be an integer from 0 to 0, not 1$"),
        (lambda: hmmlib.concentrated(TWO, text, 0, [2]), "each of syntax must be an integer from 0 to 1, not 2$"),
        (lambda: hmmlib.theorem_3_6(TURN, [1.0, 0, 0], [3]), "each of essential must be an integer from 0 to 2"),
        (lambda: hmmlib.theorem_3_6(TWO, [1.0] * 4, [0]), "model must be of type HMM, not MemoryHMM"),
        (lambda: hmmlib.theorem_4_3(TURN, [1.0] * 3, 0, [0]), "model must be of type MemoryHMM, not HMM"),
    ]:
        with pytest.raises((ValueError, TypeError), match=f"^{message}"):
            call()
