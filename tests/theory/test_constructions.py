"""Theorems 3.6, 4.3, 4.6 (D.6) as constructions: scores, factor included, on instances that the checks do not draw."""

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration
from constructions import (
    check_3_6,
    check_4,
    mixed_inputs,
    nearly_dependent,
    read_3_6,
    telling_inputs,
    weights_on,
)
from record import SLOW
from witness import forward_backward, share

from hmmlib.inference.messages import lifted_size, masked_token_probs, prompted
from hmmlib.models.appendix_e import random_memory_hmm
from hmmlib.models.families import essential_hmm, recoverable_memory_hmm, sparse_columns
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_4_2, assumption_d_5
from hmmlib.theory.theorems import (
    claim_d_3,
    concentrated,
    ground_truth,
    prompt_for_any_start,
    theorem_3_6,
    theorem_4_3,
    theorem_4_6,
)
from hmmlib.validation import MASK


def test_the_witness_agrees_with_the_sum_over_all_paths():
    rng = np.random.default_rng(0)
    for seed in range(12):
        n_cells = 1 + seed % 3
        model, *_ = recoverable_memory_hmm(n_cells, 2, 3 - n_cells // 2, 1, 1, seed)
        x, prompt = rng.integers(model.n_tokens, size=3), rng.random(lifted_size(model))
        flat = model.flatten()
        rows = np.concatenate([prompt[None], flat.embed([x.tolist()])[0].numpy()])
        parts = (flat.transition, flat.emission, flat.initial)
        if flat.n_states**5 > 100_000:
            continue
        paths, found = Enumeration(*parts, rows), forward_backward(model, x, prompt)
        assert found.chance == pytest.approx(paths.likelihood(), rel=1e-12)
        for i in range(1, 5):
            states = paths.state(i, leave_out=i).reshape(-1, model.n_states).sum(0)
            np.testing.assert_allclose(found.states[i - 1], states, rtol=1e-12)
        np.testing.assert_allclose(found.memory, paths.state(0).reshape(-1, model.n_states).sum(1), rtol=1e-12)


# Theorem 3.6


@pytest.mark.parametrize("length", [1, 2, 5, 12])
def test_theorem_3_6_on_long_inputs_and_larger_models(length):
    seen, excluded = 0, 0
    for seed in range(16):
        n_states, n_tokens = 2 + seed % 5, 2 + seed % 4
        n_essential = 1 + seed % min(n_states, n_tokens)
        model, essential = essential_hmm(n_states, n_tokens, n_essential, seed, zeros=[0.3, 0.6, 0.85][seed % 3])
        mu = np.zeros(n_states)
        mu[essential] = np.random.default_rng(seed).normal(size=n_essential) * [1, 1e-3, 1e3][seed % 3]
        possible, both = check_3_6(model, mu, essential, mixed_inputs(model, length, seed))
        seen, excluded = seen + both, excluded + possible - both
    assert seen > 50
    assert excluded > 0 or length == 1


def test_theorem_3_6_with_one_state_and_with_one_essential_state():
    one = HMM([[1.0]], [[0.25], [0.75]], [1.0])
    assert check_3_6(one, [-2.0], [0], torch.tensor([[0], [1]])) == [2, 2]
    # Only state 2 leads surely to state 0; the others lead anywhere, and all emit alike but in their share of token 0.
    model = HMM(
        [[0.2, 0.5, 1.0], [0.4, 0.1, 0.0], [0.4, 0.4, 0.0]], [[0.5, 0.5, 0.9], [0.5, 0.5, 0.1]], [0.2, 0.3, 0.5]
    )
    prompt, head = theorem_3_6(model, [-1.0, 0.0, 0.0], {0})
    assert prompt.tolist() == [0, 0, 1]
    assert check_3_6(model, [-1.0, 0.0, 0.0], [0], mixed_inputs(model, 12, 0))[1] > 5
    assert head.condition == 1.0


def test_theorem_3_6_excluded_inputs_score_zero_exactly():
    """State 1 is left at once, and the prompt puts H_2 there: an input that begins with token 1 is excluded."""
    model = HMM([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], np.eye(3), [0.2, 0.3, 0.5], columns=True)
    mu, tokens = [0.0, -1.0, 0.0], torch.tensor([[1, 0], [1, 2], [0, 1], [2, 2]])
    prompt, head = theorem_3_6(model, mu, [1])
    assert prompt.tolist() == [1, 0, 0]
    assert head(read_3_6(model, prompt, tokens))[:2].tolist() == [0, 0]
    assert head.label(read_3_6(model, prompt, tokens)).tolist() == [True, True, False, False]
    assert ground_truth(model, mu, tokens)[:2].tolist() == [0, 0]
    assert check_3_6(model, mu, [1], tokens) == [4, 2]


@pytest.mark.parametrize("gap", [1e-3, 1e-6])
def test_theorem_3_6_with_nearly_dependent_columns(gap):
    for seed in range(8):
        model, essential = essential_hmm(4, 4, 2 + seed % 2, seed, zeros=0.3)
        emission = nearly_dependent(model.emission, essential[:1], essential[1:2], gap)
        model, mu = HMM(model.transition, emission, model.initial), np.zeros(4)
        mu[essential] = np.random.default_rng(seed).normal(size=len(essential))
        prompt, head = theorem_3_6(model, mu, essential)
        assert head.condition == pytest.approx(np.linalg.cond(emission[:, essential].numpy()), rel=1e-3)
        assert head.condition > 0.1 / gap
        tokens = model.sample(8, 6, seed).tokens
        scores = head(read_3_6(model, prompt, tokens))
        for x, score in zip(tokens.tolist(), scores.tolist(), strict=True):
            alone, hat = forward_backward(model, x), forward_backward(model, [MASK, *x], prompt)
            parts = share(alone.start * mu, hat.chance)
            assert abs(score - parts.sum()) <= 1e-12 * head.condition * max(abs(parts).max(), abs(parts.sum()))


# Theorems 4.3 and 4.6


def sparse_memory(model, seed):
    """The same model with a prior in which many joint values are impossible."""
    generator = torch.Generator().manual_seed(seed)
    memory = sparse_columns((model.memory.numel(),), 0.6, generator).reshape(model.memory.shape)
    return MemoryHMM(model.transition, model.emission, model.initial, memory)


SHAPES = {  # cells, values, syntax states, recoverable ones
    "one cell": (1, 3, 3, 2),
    "two cells": (2, 2, 2, 1),
    "two cells, all syntax states": (2, 3, 2, 2),
    "three cells": (3, 2, 2, 1),
    "one syntax state": (2, 2, 1, 1),
}


def run_4(shape, seed, length, with_prompt, zeros):
    n_cells, n_memory, n_syntax, n_recoverable = SHAPES[shape]
    values = 1 + seed % n_memory if with_prompt else n_memory
    model, cell, syntax, kept = recoverable_memory_hmm(
        n_cells, n_memory, n_syntax, n_recoverable, values, seed, zeros, stationary=with_prompt
    )
    model = sparse_memory(model, seed) if seed % 2 else model
    mu = weights_on(kept, n_memory, seed)
    if with_prompt:
        prompt, head = theorem_4_6(model, mu, cell, syntax)
        tokens = telling_inputs(model, length, seed, cell, syntax, prompt)
        return check_4(model, mu, cell, syntax, tokens, prompt, head)
    tokens = telling_inputs(model, length, seed, cell, syntax)
    return check_4(model, mu, cell, syntax, tokens, None, theorem_4_3(model, mu, cell, syntax))


@pytest.mark.parametrize("with_prompt", [False, True], ids=["4.3", "4.6"])
@pytest.mark.parametrize("length", [1, 3, 12])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_heads_on_long_inputs_and_several_cells(shape, length, with_prompt):
    seen = {}
    for seed in range(14 if SLOW or length == 12 else 6):
        for key, count in run_4(shape, seed, length, with_prompt, [0.6, 0.95][seed % 2]).items():
            seen[key] = seen.get(key, 0) + count
    if length == 12:
        assert seen["within"] > 5, seen
        assert seen["many"] > 3, seen
    assert seen["outside"] > 0
    if with_prompt and length == 12 and shape in ("one cell", "two cells, all syntax states"):
        assert seen["excluded"] > 0, seen


def test_an_input_that_the_prompt_excludes_gets_its_label():
    """μᵀP[M | x] is exactly 0 there, the label 1; a score that is a rounding error may be negative."""
    wrong, met = [], 0
    for seed in (0, 1, 24, 120, 169):
        n_cells, n_memory = 1 + seed % 2, 2 + seed % 2
        n_syntax = 2 + seed % 3 - (n_cells > 1)
        values = 1 + seed % n_memory
        model, cell, syntax, kept = recoverable_memory_hmm(
            n_cells, n_memory, n_syntax, 1 + seed % n_syntax, values, seed, 0.7, True
        )
        mu = np.zeros(n_memory)
        mu[kept] = -np.abs(np.random.default_rng(seed).normal(size=values))
        prompt, head = theorem_4_6(model, mu, cell, syntax)
        tokens = model.sample(20, 3, seed).tokens
        scores = head(masked_token_probs(model, tokens, prompt), prompted(model, prompt, tokens))
        inside = concentrated(model, tokens, cell, syntax).any(1)
        truth = ground_truth(model, mu, tokens, cell)
        for k in inside.nonzero().squeeze(-1).tolist():
            if forward_backward(model, tokens[k].tolist(), prompt).chance == 0:
                met += 1
                assert truth[k] == 0
                if scores[k] < 0:
                    wrong.append((seed, tokens[k].tolist(), scores[k].item()))
    assert met > 0
    assert not wrong, wrong


def test_no_position_is_surely_recoverable():
    """All of A, W and P[M] is positive: 𝓡 is empty, and the heads still give finite numbers."""
    for seed in range(5):
        model = random_memory_hmm(2, 3, 12, seed)
        model = MemoryHMM(np.full((3, 3), 1 / 3), model.emission, np.full(3, 1 / 3), model.memory)
        assert (model.emission > 0).all()
        tokens = mixed_inputs(model, 4, seed)
        head = theorem_4_3(model, [1.0, -1.0], 0, [0])
        assert check_4(model, [1.0, -1.0], 0, [0], tokens, None, head)["within"] == 0
        assert check_4(model, [1.0, 0.0], 0, [0], tokens, *theorem_4_6(model, [1.0, 0], 0, [0]))["within"] == 0
        assert not concentrated(model, tokens, 0, [0]).any()
        assert concentrated(model, tokens, 0, [0, 1, 2]).all()


def test_every_state_is_recoverable():
    """S* = S with one cell: H* is everything, all positions are attended, and there is no row for the rest."""
    met = 0
    for seed in range(12):
        model, cell, syntax, _ = recoverable_memory_hmm(1, 1 + seed % 3, 3, 3, 1 + seed % 3, seed, 0.6, True)
        mu = weights_on(range(1 + seed % 3), 1 + seed % 3, seed)
        tokens = model.sample(6, 5, seed).tokens
        recovery = claim_d_3(model, cell, syntax)
        assert recovery.states == [0, 1, 2]
        assert check_4(model, mu, 0, syntax, tokens, None, theorem_4_3(model, mu, 0, syntax))["many"] == 6
        met += check_4(model, mu, 0, syntax, tokens, *theorem_4_6(model, mu, 0, syntax))["many"]
    assert met > 12


def test_the_smallest_models():
    """|M| = 1, |H| = 1, |M*| = 1 and T = 1, alone and together."""
    one = MemoryHMM([[1.0]], [[[0.25]], [[0.75]]], [1.0], [1.0])  # |M| = |H| = 1
    told = MemoryHMM([[1.0]], [[[0.75], [0.25]], [[0.25], [0.75]]], [1.0], [0.5, 0.5])  # |H| = 1, |M| = 2
    chain, start = [[0.0, 0.5], [1.0, 0.5]], [1 / 3, 2 / 3]  # state 1 follows surely after state 0
    free = MemoryHMM(chain, np.eye(2)[:, None], start, [1.0])  # |M| = 1, |H| = 2
    twice = MemoryHMM(chain, np.eye(2)[:, None], start, [[1.0]])  # two cells of one value
    cases = [
        (one, [-2.0], [0]),
        (told, [1.0, -2.0], [0]),
        (told, [0.0, -1.0], [0]),
        (free, [-1.0], [1]),
    ]
    for model, mu, syntax in cases:
        for length in (1, 2, 7):
            tokens = mixed_inputs(model, length, length)
            seen = check_4(model, mu, 0, syntax, tokens, None, theorem_4_3(model, mu, 0, syntax))
            assert seen["within"] > 0 or (model is free and length == 1)
            seen = check_4(model, mu, 0, syntax, tokens, *theorem_4_6(model, mu, 0, syntax))
            assert seen["within"] > 0 or (model is free and length == 1)
    tokens = mixed_inputs(twice, 3, 0)
    assert check_4(twice, [3.0], 1, [0], tokens, *theorem_4_6(twice, [3.0], 1, [0]))["within"] > 0
    assert check_4(twice, [3.0], 1, [0], tokens, None, theorem_4_3(twice, [3.0], 1, [0]))["within"] > 0


@pytest.mark.parametrize("with_prompt", [False, True], ids=["4.3", "4.6"])
@pytest.mark.parametrize("gap", [1e-3, 1e-6])
def test_attention_heads_with_nearly_dependent_columns(gap, with_prompt):
    met = 0
    for seed in range(10):
        values = 3 - (seed % 2 if with_prompt else 0)
        model, cell, syntax, kept = recoverable_memory_hmm(1 + seed % 2, 3, 2, 1, values, seed, 0.95, True)
        state = cell * model.n_syntax + syntax[0]
        emission = nearly_dependent(model.emission, (kept[0], state), (kept[1], state), gap)
        model = MemoryHMM(model.transition, emission, model.initial, model.memory)
        mu = weights_on(kept, 3, 3 * seed)
        if with_prompt:
            prompt, head = theorem_4_6(model, mu, cell, syntax)
            report = assumption_d_5(model, mu, cell, syntax)
        else:
            prompt, head = None, theorem_4_3(model, mu, cell, syntax)
            report = assumption_4_2(model, cell, syntax)
        assert head.condition == report.condition
        assert head.condition > 0.1 / gap
        tokens = telling_inputs(model, 6, seed, cell, syntax, prompt)
        met += check_4(model, mu, cell, syntax, tokens, prompt, head)["within"]
    assert met > 20


def test_models_of_float32():
    for seed in range(6):
        model, cell, syntax, kept = recoverable_memory_hmm(1 + seed % 2, 2, 2, 1, 1 + seed % 2, seed, 0.7, True)
        small, mu = model.to(dtype=torch.float32), np.zeros(2)
        mu[kept] = [1.0, -2.0][: len(kept)]
        tokens = model.sample(8, 5, seed).tokens
        for precise, single in [(theorem_4_6(model, mu, cell, syntax), theorem_4_6(small, mu, cell, syntax))]:
            scores = []
            for part, (prompt, head) in ((model, precise), (small, single)):
                assert prompt.dtype == part.dtype == head.query.dtype == head.positions.dtype
                score = head(masked_token_probs(part, tokens, prompt), prompted(part, prompt, tokens))
                assert score.dtype == part.dtype
                scores.append(score.double())
            inside = concentrated(model, tokens, cell, syntax).any(1)
            np.testing.assert_allclose(scores[0][inside], scores[1][inside], atol=2e-5 * precise[1].condition)
        assert prompt_for_any_start(small, mu, cell).dtype == torch.float32
        chain, essential = essential_hmm(4, 4, 2, seed)
        weight = np.zeros(4)
        weight[essential] = [1.0, -2.0]
        tokens = chain.sample(8, 5, seed).tokens
        prompt, head = theorem_3_6(chain, weight, essential)
        single = chain.to(dtype=torch.float32)
        prompt_32, head_32 = theorem_3_6(single, weight, essential)
        assert prompt_32.dtype == head_32.weights.dtype == torch.float32
        np.testing.assert_allclose(
            head(read_3_6(chain, prompt, tokens)), head_32(read_3_6(single, prompt_32, tokens)),
            atol=1e-5 * head.condition * max(1, head.weights.norm().item()),
        )  # fmt: skip
