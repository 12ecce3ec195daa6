"""Theorems 3.6, 4.3, 4.6 (D.6) as constructions: scores, factor included, on instances that the checks do not draw."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from hmmlib.assumptions import AssumptionError, assumption_4_2, assumption_d_5
from hmmlib.exact import Enumeration
from hmmlib.generate import (
    essential_hmm,
    essential_twins,
    parity_memory_hmm,
    random_memory_hmm,
    recoverable_memory_hmm,
    recoverable_twins,
    regular_hmm,
    sparse_columns,
)
from hmmlib.hmm import HMM, MASK, MemoryHMM
from hmmlib.messages import (
    latent_given_others,
    lifted_size,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    prompted,
)
from hmmlib.theorems import (
    claim_d_3,
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

# A witness of its own: one forward and one backward pass for each value of the memory, in NumPy, without scaling


class Pass(NamedTuple):
    """Pr(v); P[M, v], (K,); for each position i Pr(v_{-i}), (L,), and P[H_i, v_{-i}], (L, H); P[H_0, v], (H,)."""

    chance: float
    memory: np.ndarray
    left: np.ndarray
    states: np.ndarray
    start: np.ndarray


def row_of(model, token):
    """The evidence of one token for every value of the memory, (K, H)."""
    if token == MASK:
        return np.ones((lifted_size(model) // model.n_states, model.n_states))
    emission = model.emission.numpy()
    if isinstance(model, HMM):
        return emission[token][None]
    rows = np.empty((model.memory.numel(), model.n_states))
    for k, values in enumerate(np.ndindex(*model.memory.shape)):
        for h in range(model.n_states):
            rows[k, h] = emission[token, values[h // model.n_syntax], h]
    return rows


def forward_backward(model, tokens, prompt=None):
    """The pass over (prompt, tokens), or over the tokens alone; the prompt is (S,) or lifted."""
    rows = [] if prompt is None else [np.asarray(prompt, float).reshape(-1, model.n_states)]
    rows += [row_of(model, int(token)) for token in tokens]
    prior = np.ones(1) if isinstance(model, HMM) else model.memory.numpy().ravel()
    transition = model.transition.numpy()
    ahead, carried = [prior[:, None] * model.initial.numpy()], prior[:, None] * model.initial.numpy()
    for row in rows:
        ahead.append(carried @ transition.T)
        carried = ahead[-1] * row
    behind = [np.ones_like(ahead[0])]
    for row in reversed(rows):
        behind.insert(0, (behind[0] * row) @ transition)
    tau = np.stack([a * b for a, b in zip(ahead, behind, strict=True)])  # (L + 1, K, H)
    return Pass(tau[0].sum(), tau[0].sum(1), tau[1:].sum((1, 2)), tau[1:].sum(1), tau[0].sum(0))


def of_cell(model, memory, cell):
    """P[M_cell, v] from P[M, v]."""
    return np.moveaxis(memory.reshape(model.memory.shape), cell, 0).reshape(model.n_memory, -1).sum(1)


def share(part, whole):
    return part / whole if whole > 0 else 0 * part


def surely(found, states):
    """Which positions are surely in `states`, by exact zeros, (L,)."""
    outside = np.delete(found.states, states, axis=1).sum(1)
    return (found.left > 0) & (outside == 0)


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


def behind_gap(tokens):
    return torch.cat([torch.full_like(tokens[:, :1], MASK), tokens], 1)


def read_3_6(model, prompt, tokens):
    """Ḡ_2 of (u, ones, e(x)), (n, X)."""
    return masked_token_probs(model, behind_gap(tokens), prompt)[:, 1]


def mixed_inputs(model, length, seed, n=6):
    """Possible inputs, and some that are drawn token by token, whatever their probability."""
    free = torch.randint(model.n_tokens, (3, length), generator=torch.Generator().manual_seed(seed))
    same = torch.arange(min(model.n_tokens, 2))[:, None].expand(-1, length)
    return torch.cat([model.sample(n, length, seed).tokens, free, same])


def check_3_6(model, mu, essential, tokens):
    """How many inputs were possible, and how many of these behind the prompt: scores with their factor, one by one."""
    mu = torch.as_tensor(mu, dtype=torch.float64)
    prompt, head = theorem_3_6(model, mu, essential)
    scores, truth = head(read_3_6(model, prompt, tokens)), ground_truth(model, mu, tokens)
    labels = head.label(read_3_6(model, prompt, tokens))
    bound = 1e-13 * head.condition * max(1.0, float((head.weights).norm()))
    seen = [0, 0]
    for k, x in enumerate(tokens.tolist()):
        alone, hat = forward_backward(model, x), forward_backward(model, [MASK, *x], prompt)
        target = share(alone.start, alone.chance) @ mu.numpy()
        assert truth[k].item() == pytest.approx(target, abs=1e-12)
        if alone.chance == 0:
            assert scores[k] == 0 or hat.chance > 0
            continue
        seen[0] += 1
        if hat.chance == 0:
            assert scores[k].item() == 0
            assert labels[k]
            assert target == 0
            continue
        seen[1] += 1
        factor = alone.chance / hat.chance
        assert factor > 0
        assert abs(scores[k].item() - factor * target) <= bound * factor, (x, scores[k].item(), factor * target)
    return seen


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


def test_theorem_3_6_where_all_states_are_essential():
    """H* is everything: every state leads into H* only, so the prompt is 1 everywhere."""
    for seed in range(10):
        model = regular_hmm(4, 6, seed, zeros=0.2)
        if torch.linalg.matrix_rank(model.emission) < 4:
            continue
        mu = np.random.default_rng(seed).normal(size=4)
        prompt, _ = theorem_3_6(model, mu, range(4))
        assert prompt.tolist() == [1] * 4
        possible, both = check_3_6(model, mu, [0, 1, 2, 3], mixed_inputs(model, 6, seed))
        assert possible == both > 5


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
    """State 1 is left at once, and the prompt puts H_2 there: an input that begins with token 1 is excluded, label 1."""
    model = HMM([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], np.eye(3), [0.2, 0.3, 0.5])
    mu, tokens = [0.0, -1.0, 0.0], torch.tensor([[1, 0], [1, 2], [0, 1], [2, 2]])
    prompt, head = theorem_3_6(model, mu, [1])
    assert prompt.tolist() == [1, 0, 0]
    assert head(read_3_6(model, prompt, tokens))[:2].tolist() == [0, 0]
    assert head.label(read_3_6(model, prompt, tokens)).tolist() == [True, True, False, False]
    assert ground_truth(model, mu, tokens)[:2].tolist() == [0, 0]
    assert check_3_6(model, mu, [1], tokens) == [4, 2]


def nearly_dependent(emission, first, second, gap):
    """Column `second` of W, indices behind the token axis, within `gap` of column `first`."""
    emission = emission.clone()
    near, far = (slice(None), *first), (slice(None), *second)
    emission[far] = (1 - gap) * emission[near] + gap * emission[far]
    return emission


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


def check_4(model, mu, cell, syntax, tokens, prompt, head):
    """Scores of an attention head with their factors, one input at a time. Counts of what was met.

    With a prompt the factor is that of the prompt's process: its scale is left to the caller.
    """
    mu = torch.as_tensor(mu, dtype=torch.float64)
    if prompt is None:
        scores = head(masked_token_probs(model, tokens), model.embed(tokens))
        attended = head.attended(masked_token_probs(model, tokens))
    else:
        scores = head(masked_token_probs(model, tokens, prompt), prompted(model, prompt, tokens))
        attended = head.attended(masked_token_probs(model, tokens, prompt))
    truth, found = ground_truth(model, mu, tokens, cell), concentrated(model, tokens, cell, syntax)
    hat_found = None if prompt is None else concentrated(model, tokens, cell, syntax, prompt)
    states = [cell * model.n_syntax + s for s in syntax]
    bound = 1e-12 * head.condition * max(1.0, mu.abs().max().item())
    seen = {"within": 0, "many": 0, "outside": 0, "excluded": 0}
    assert torch.isfinite(scores).all()
    for k, x in enumerate(tokens.tolist()):
        alone = forward_backward(model, x)
        target = share(of_cell(model, alone.memory, cell), alone.chance) @ mu.numpy()
        assert truth[k].item() == pytest.approx(target, abs=1e-12 * max(1.0, mu.abs().max().item()))
        sure = surely(alone, states)
        if alone.chance > 0:
            assert found[k].tolist() == sure.tolist()
        if alone.chance == 0 or not sure.any():
            seen["outside"] += 1
            continue
        seen["within"] += 1
        hat = alone if prompt is None else forward_backward(model, x, prompt)
        if prompt is not None:
            hat_sure = surely(hat, states) & (np.arange(len(x) + 1) > 0)
            assert hat_found[k].tolist() == hat_sure.tolist()
            if hat.chance == 0:
                seen["excluded"] += 1
                assert target == 0
                assert abs(scores[k].item()) <= bound
                continue
            assert not (sure & ~hat_sure[1:]).any()
            sure = hat_sure
        assert attended[k].tolist() == sure.tolist()
        seen["many"] += sure.sum() > 1
        ratios = alone.chance / hat.left[sure]
        factor = ratios.mean()
        assert factor > 0
        assert abs(scores[k].item() - factor * target) <= bound * factor, (x, scores[k].item(), factor * target)
    return seen


def weights_on(kept, length, seed):
    mu = np.zeros(length)
    rng = np.random.default_rng(seed)
    mu[kept] = rng.normal(size=len(kept)) * [1, 1e-3, 1e3][seed % 3]
    return mu


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


def telling_inputs(model, length, seed, cell, syntax, prompt=None):
    """Sampled inputs of 𝓡, as far as they are found, up to four that the prompt excludes among them; and mixed ones."""
    tokens = model.sample(400, length, seed).tokens.unique(dim=0)
    tokens = tokens[torch.randperm(len(tokens), generator=torch.Generator().manual_seed(seed))]
    tokens = tokens[concentrated(model, tokens, cell, syntax).any(1)]
    chosen = tokens[:6]
    if prompt is not None and len(tokens):
        excluded = ~concentrated(model, tokens, cell, syntax, prompt).any(1)
        chosen = torch.cat([tokens[~excluded][:6], tokens[excluded][:4]])
    return torch.cat([chosen, mixed_inputs(model, length, seed, n=2)])


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
    for seed in range(14):
        for key, count in run_4(shape, seed, length, with_prompt, [0.6, 0.95][seed % 2]).items():
            seen[key] = seen.get(key, 0) + count
    if length == 12:
        assert seen["within"] > 5, seen
        assert seen["many"] > 3, seen
    assert seen["outside"] > 0
    if with_prompt and length == 12 and shape in ("one cell", "two cells, all syntax states"):
        assert seen["excluded"] > 0, seen


def test_an_input_that_the_prompt_excludes_gets_its_label():
    """FAILS NOW. μᵀP[M | x] is exactly 0 there, the label 1; the head's score is a rounding error, and may be negative."""
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
        assert recovery.states(model) == [0, 1, 2]
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


def test_a_batch_is_a_loop_and_blocks_do_not_show():
    for seed in range(4):
        model, cell, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, seed, 0.7, True)
        prompt, head = theorem_4_6(model, [1.0, -2.0], cell, syntax)
        tokens = mixed_inputs(model, 5, seed)
        together = head(masked_token_probs(model, tokens, prompt), prompted(model, prompt, tokens))
        alone = [head(masked_token_probs(model, x[None], prompt), prompted(model, prompt, x[None])) for x in tokens]
        np.testing.assert_allclose(together, torch.cat(alone), rtol=1e-12, atol=1e-14)
        head = theorem_4_3(model, [1.0, -2.0], cell, syntax)
        together = head(masked_token_probs(model, tokens), model.embed(tokens))
        alone = [head(masked_token_probs(model, x[None]), model.embed(x[None])) for x in tokens]
        np.testing.assert_allclose(together, torch.cat(alone), rtol=1e-12, atol=1e-14)


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


# Prompts


def test_a_prompt_for_any_start():
    """A start that is not stationary: the scores are those of the theorem times one constant, 1 / max P[H_0] / P[H_1]."""
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


def test_a_prompt_for_any_start_is_d_6_where_the_start_is_stationary():
    for seed in range(6):
        model, cell, _, kept = recoverable_memory_hmm(2, 2, 2, 1, 1, seed, stationary=True)
        mu = weights_on(kept, 2, seed)
        np.testing.assert_allclose(prompt_for_any_start(model, mu, cell), prompt_d_6(model, mu, cell), atol=1e-12)


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


@pytest.mark.parametrize(
    "wrong", [[0.5], [[0.5] * 8], [0.5] * 9, [np.nan] * 8, [-0.5] * 8, [np.inf] * 8, "u", [], None]
)
def test_prompts_that_are_refused(wrong):
    model, *_ = recoverable_memory_hmm(2, 2, 2, 1, 1, 0)  # 8 = 2 * 4, or 16 lifted
    with pytest.raises(ValueError, match="prompt"):
        prompted(model, wrong, torch.tensor([[0]]))
    if wrong is not None:
        for of in (masked_token_probs, latent_given_others):
            with pytest.raises(ValueError, match="prompt"):
                of(model, torch.tensor([[0]]), wrong)


# Refusals


def essential():
    """State 0 leads to 0 and 1 only, state 2 everywhere; W tells the states apart."""
    return HMM([[0.5, 0.2, 0.3], [0.5, 0.3, 0.3], [0.0, 0.5, 0.4]], np.eye(3), [0.2, 0.3, 0.5])


def test_broken_assumptions_of_theorem_3_6_are_named():
    good = essential()
    assert theorem_3_6(good, [1.0, -1.0, 0.0], [0, 1])[0].tolist() == [1, 0, 0]
    turn = HMM([[0, 0, 1], [1, 0, 0], [0, 1, 0]], np.eye(3), [0.2, 0.3, 0.5])
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
        with pytest.raises(AssumptionError, match=r"^Assumption D\.5 .*does not hold"):
            theorem_4_6(model, [1.0, -1.0], 0, syntax)
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


WRONG_WEIGHTS = {
    "too short": ([1.0], "mu must have shape"),
    "too long": ([1.0] * 4, "mu must have shape"),
    "a matrix": ([[1.0, 1.0, 1.0]], "mu must have shape"),
    "a number": (1.0, "mu must have shape"),
    "none": (None, "mu must have shape"),
    "empty": ([], "mu must have shape"),
    "NaN": ([1.0, np.nan, 0.0], "mu must be finite"),
    "infinite": ([1.0, np.inf, 0.0], "mu must be finite"),
    "all zero": ([0.0, 0.0, 0.0], "mu must not be all zero"),
}
WRONG_INDICES = {
    "out of range": [0, 3],
    "negative": [-1],
    "twice": [0, 0],
    "empty": [],
    "bool": [True, False],
    "floats": [0.0, 1.0],
    "a number": 1,
    "none": None,
    "words": ["0"],
    "mixed": [0, "1"],
    "nested": [[0, 1]],
    "float array": np.array([0.0, 1.0]),
    "bool tensor": torch.tensor([True, False, False]),
    "no axis": torch.tensor(1),
}


@pytest.mark.parametrize("wrong", WRONG_WEIGHTS)
def test_weights_that_are_refused(wrong):
    mu, message = WRONG_WEIGHTS[wrong]
    place = recoverable_memory_hmm(1, 3, 2, 1, 3, 0, stationary=True)
    model, cell, syntax, _ = place
    for call in (
        lambda: theorem_3_6(essential(), mu, [0, 1]),
        lambda: theorem_4_3(model, mu, cell, syntax),
        lambda: theorem_4_6(model, mu, cell, syntax),
        lambda: prompt_d_6(model, mu, cell),
        lambda: prompt_for_any_start(model, mu, cell),
        lambda: ground_truth(model, mu, [[0]], cell),
        lambda: ground_truth(essential(), mu, [[0]]),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("wrong", WRONG_INDICES)
def test_indices_that_are_refused(wrong):
    bad, mu = WRONG_INDICES[wrong], [1.0, -1.0, 0.5]
    model, cell, _, _ = recoverable_memory_hmm(1, 3, 3, 2, 3, 0, stationary=True)
    with pytest.raises(ValueError, match="essential must"):
        theorem_3_6(essential(), [1.0, 0.0, 0.0], bad)
    for call in (
        lambda: theorem_4_3(model, mu, cell, bad),
        lambda: theorem_4_6(model, mu, cell, bad),
        lambda: concentrated(model, [[0]], cell, bad),
    ):
        with pytest.raises(ValueError, match="syntax must"):
            call()


@pytest.mark.parametrize("cell", [-1, 2, True, 0.0, None, "0", [0], np.nan, torch.tensor(0.0)])
def test_cells_that_are_refused(cell):
    model, _, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
    for call in (
        lambda: theorem_4_3(model, [1.0, -1.0], cell, syntax),
        lambda: theorem_4_6(model, [1.0, -1.0], cell, syntax),
        lambda: prompt_d_6(model, [1.0, -1.0], cell),
        lambda: prompt_for_any_start(model, [1.0, -1.0], cell),
        lambda: concentrated(model, [[0]], cell, syntax),
        lambda: ground_truth(model, [1.0, -1.0], [[0]], cell),
    ):
        with pytest.raises(ValueError, match="cell must"):
            call()


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
    with pytest.raises(TypeError, match="theorem_3_6 is about an HMM, not MemoryHMM"):
        theorem_3_6(memory, [1.0] * 4, [0])
    for theorem in (theorem_4_3, theorem_4_6):
        with pytest.raises(TypeError, match="a MemoryHMM is needed, not HMM"):
            theorem(plain, [1.0] * 3, 0, [0])
    with pytest.raises(TypeError, match="a MemoryHMM is needed, not HMM"):
        concentrated(plain, [[0]], 0, [0])


def test_no_inputs_at_all():
    model, cell, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
    none = torch.zeros(0, 3, dtype=torch.int64)
    prompt, _ = theorem_4_6(model, [1.0, -1.0], cell, syntax)
    assert masked_token_probs(model, none, prompt).shape == (0, 4, model.n_tokens)
    assert prompted(model, prompt, none).shape == (0, 4, lifted_size(model))
    assert concentrated(model, none, cell, syntax, prompt).shape == (0, 4)
    assert ground_truth(model, [1.0, -1.0], none, cell).shape == (0,)
