"""Theorems 3.3, 3.6, 4.3, 4.6 (D.6) as constructions: scores, with their factor, beside those of a witness."""

import numpy as np
import pytest
import torch
from constructions import (
    behind_gap,
    check_3_6,
    check_4,
    mixed_inputs,
    telling_inputs,
    weights_on,
)
from record import SLOW
from witness import forward_backward

from hmmlib.inference.messages import masked_token_probs, prompted
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import (
    essential_hmm,
    nearly_dependent_hmm,
    non_degenerate_hmm,
    recoverable_memory_hmm,
    sparse_columns,
)
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory.assumptions import assumption_3_1, assumption_3_2
from hmmlib.theory.theorems import (
    claim_b_1,
    concentrated,
    ground_truth,
    prompt_for_any_start,
    theorem_3_3,
    theorem_3_6,
    theorem_4_3,
    theorem_4_6,
)
from hmmlib.validation import MASK

# Theorem 3.3

FAMILIES = {
    "non-degenerate": lambda seed: non_degenerate_hmm(1 + seed % 6, 1 + seed % 6 + seed % 3, seed),
    "no zeros": lambda seed: non_degenerate_hmm(2 + seed % 7, 10, seed, zeros=0.0),
    "gap 1e-2": lambda seed: nearly_dependent_hmm(2 + seed % 4, 7, 1e-2, seed),
    "gap 1e-6": lambda seed: nearly_dependent_hmm(2 + seed % 4, 7, 1e-6, seed),
    "appendix E": lambda seed: random_hmm(1 + seed % 10, 10, seed),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_theorem_3_3(family):
    """The score is r_x μᵀP[H_0 | x], up to rounding that the condition of W magnifies."""
    found = 0
    for seed in range(170 if SLOW else 20):
        model, rng = FAMILIES[family](seed), np.random.default_rng(seed)
        if not (assumption_3_1(model) and assumption_3_2(model)):
            assert family == "appendix E", seed
            continue
        mu = torch.as_tensor(rng.standard_normal(model.n_states) * rng.choice([1e-3, 1.0, 1e3]))
        tokens, head = model.sample(6, int(rng.integers(1, 7)), seed).tokens, theorem_3_3(model, mu)
        bound = 1e-13 * head.condition * (mu / claim_b_1(model, 1)).abs().max()
        probs = masked_token_probs(model, behind_gap(tokens))[:, 0]
        for x, score, label in zip(tokens.tolist(), head(probs), head.label(probs), strict=True):
            alone, hat = forward_backward(model, x), forward_backward(model, [MASK, *x])
            want = alone.start @ mu.numpy() / hat.left[0]
            assert abs(score - want) <= bound, seed
            assert label.item() == (want >= 0) or abs(want) <= bound, seed
        assert head.condition == pytest.approx(np.linalg.cond(model.emission.numpy()), rel=1e-3)
        found += 1
    assert found > 5


# Theorem 3.6


@pytest.mark.parametrize("length", [1, 12])
def test_theorem_3_6_on_long_inputs_and_larger_models(length):
    seen, excluded = 0, 0
    for seed in range(16):
        n_states, n_tokens = 1 + seed % 6, 2 + seed % 4
        n_essential = 1 + seed % min(n_states, n_tokens)
        model, essential = essential_hmm(n_states, n_tokens, n_essential, seed, zeros=[0.3, 0.6, 0.85][seed % 3])
        mu = weights_on(essential, n_states, seed)
        possible, both = check_3_6(model, mu, essential, mixed_inputs(model, length, seed))
        seen, excluded = seen + both, excluded + possible - both
        prompt, head = theorem_3_6(model, mu, essential)
        assert head.condition == pytest.approx(np.linalg.cond(model.emission[:, essential].numpy()))
        outside = [h for h in range(n_states) if h not in essential]
        assert prompt.tolist() == [float(not model.transition[outside, h].any()) for h in range(n_states)]
    assert seen > 50
    assert excluded > 0 or length == 1


# Theorems 4.3 and 4.6

BOTH = pytest.mark.parametrize("with_prompt", [False, True], ids=["4.3", "4.6"])
SHAPES = {  # cells, values, syntax states, recoverable ones
    "one cell": (1, 3, 3, 2),
    "one cell, all syntax states": (1, 3, 3, 3),
    "two cells": (2, 2, 2, 1),
    "two cells, all syntax states": (2, 3, 2, 2),
    "three cells": (3, 2, 2, 1),
    "one syntax state": (2, 2, 1, 1),
}


def checked(model, mu, cell, syntax, with_prompt, tokens=None, length=1, seed=0):
    """What `check_4` meets with the head of Theorem 4.3 or 4.6, on inputs of 𝓡 and others unless they are given."""
    construct = theorem_4_6 if with_prompt else lambda *given: (None, theorem_4_3(*given))
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
        model, cell, syntax, kept = recoverable_memory_hmm(
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


def test_an_input_that_the_prompt_excludes_gets_its_label():
    """μᵀP[M | x] is exactly 0 there, the label 1; a score that is a rounding error, here -4e-18, may be negative."""
    model, cell, syntax, kept = recoverable_memory_hmm(2, 3, 2, 2, 2, 169, 0.7, True)
    mu = -abs(weights_on(kept, 3, 0))
    prompt, head = theorem_4_6(model, mu, cell, syntax)
    tokens = model.sample(20, 3, 169).tokens
    tokens = tokens[concentrated(model, tokens, cell, syntax).any(1)]
    tokens = tokens[[forward_backward(model, x, prompt).chance == 0 for x in tokens.tolist()]]
    assert len(tokens) > 0
    assert (ground_truth(model, mu, tokens, cell) == 0).all()
    assert head.label(masked_token_probs(model, tokens, prompt), prompted(model, prompt, tokens)).all()


@BOTH
def test_the_smallest_models(with_prompt):
    """|M| = 1, |H| = 1, |M*| = 1 and T = 1, alone and together."""
    one = MemoryHMM([[1.0]], [[[0.25]], [[0.75]]], [1.0], [1.0])  # |M| = |H| = 1
    told = MemoryHMM([[1.0]], [[[0.75], [0.25]], [[0.25], [0.75]]], [1.0], [0.5, 0.5])  # |H| = 1, |M| = 2
    chain, start = [[0.0, 0.5], [1.0, 0.5]], [1 / 3, 2 / 3]  # state 1 follows surely after state 0
    free = MemoryHMM(chain, np.eye(2)[:, None], start, [1.0])  # |M| = 1, |H| = 2
    twice = MemoryHMM(chain, np.eye(2)[:, None], start, [[1.0]])  # two cells of one value
    for model, mu, syntax in ((one, [-2.0], [0]), (told, [1, -2.0], [0]), (told, [0, -1.0], [0]), (free, [-1.0], [1])):
        for length in (1, 2, 7):
            seen = checked(model, mu, 0, syntax, with_prompt, mixed_inputs(model, length, length))
            assert seen["within"] > 0 or (model is free and length == 1)
    assert checked(twice, [3.0], 1, [0], with_prompt, mixed_inputs(twice, 3, 0))["within"] > 0


def test_models_of_float32():
    for seed in range(4):
        model, cell, syntax, kept = recoverable_memory_hmm(1 + seed % 2, 2, 2, 1, 1 + seed % 2, seed, 0.7, True)
        mu, tokens, scores = weights_on(kept, 2, 0), model.sample(8, 5, seed).tokens, []
        for part in (model, model.to(dtype=torch.float32)):
            prompt, head = theorem_4_6(part, mu, cell, syntax)
            assert prompt.dtype == part.dtype == head.query.dtype == head.positions.dtype
            assert prompt_for_any_start(part, mu, cell).dtype == part.dtype
            scores.append(head(masked_token_probs(part, tokens, prompt), prompted(part, prompt, tokens)))
            assert scores[-1].dtype == part.dtype
        inside = concentrated(model, tokens, cell, syntax).any(1)
        np.testing.assert_allclose(scores[0][inside], scores[1][inside], atol=2e-5 * head.condition)
