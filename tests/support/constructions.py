"""What tests of the constructions of Theorems 3.6, 4.3 and 4.6 share: inputs, and scores beside the witness's."""

from collections import Counter

import numpy as np
import pytest
import torch
from witness import forward_backward, of_cell, share, surely

from hmmlib.inference.evidence import prompted
from hmmlib.inference.messages import masked_token_probs
from hmmlib.theory.theorems import concentrated, ground_truth, theorem_3_6
from hmmlib.validation import MASK


def behind_gap(tokens):
    gap = torch.full_like(tokens[:, :1], MASK)
    return torch.cat([gap, tokens], 1)


def mixed_inputs(model, length, seed, n=6):
    """Possible inputs, and some that are drawn token by token, whatever their probability."""
    generator = torch.Generator().manual_seed(seed)
    likely = model.sample(n, length, seed).tokens
    arbitrary = torch.randint(model.n_tokens, (3, length), generator=generator)
    repeated_token = torch.arange(min(model.n_tokens, 2))[:, None]
    return torch.cat([likely, arbitrary, repeated_token.expand(-1, length)])


def telling_inputs(model, length, seed, cell, syntax, prompt=None):
    """Sampled inputs of 𝓡, as far as there are any, up to four that the prompt excludes among them; and mixed ones."""
    generator = torch.Generator().manual_seed(seed)
    tokens = model.sample(400, length, seed).tokens.unique(dim=0)
    tokens = tokens[torch.randperm(len(tokens), generator=generator)]
    tokens = tokens[concentrated(model, tokens, cell, syntax).any(1)]
    chosen = tokens[:6]
    if prompt is not None and len(tokens):
        remain = concentrated(model, tokens, cell, syntax, prompt).any(1)
        chosen = torch.cat([tokens[remain][:6], tokens[~remain][:4]])
    return torch.cat([chosen, mixed_inputs(model, length, seed, n=2)])


def weights_on(places, length, seed):
    """Normal weights at some places, of another size for each seed, and zero elsewhere."""
    size = [1, 1e-3, 1e3][seed % 3]
    mu = np.zeros(length)
    mu[places] = np.random.default_rng(seed).normal(size=len(places)) * size
    return mu


def scaled(target, factor, bound):
    """The target times a factor, within a bound that grows with it."""
    return pytest.approx(factor * target, rel=0, abs=bound * factor)


def check_3_6(model, mu, essential, tokens):
    """Hold scores of Theorem 3.6 beside the witness, one input at a time, each with its factor.

    Returns how many inputs were possible, and how many of these behind the prompt.
    """
    mu = torch.as_tensor(mu, dtype=torch.float64)
    prompt, head = theorem_3_6(model, mu, essential)
    probs = masked_token_probs(model, behind_gap(tokens), prompt)[:, 1]
    truth = ground_truth(model, mu, tokens)
    scores = head(probs)
    labels = head.label(probs)
    bound = 1e-13 * head.condition * max(1.0, head.weights.norm().item())
    n_possible = 0
    n_behind = 0
    for k, text in enumerate(tokens.tolist()):
        alone = forward_backward(model, text)
        behind = forward_backward(model, [MASK, *text], prompt)
        target = share(alone.start, alone.chance) @ mu.numpy()
        assert truth[k].item() == pytest.approx(target, abs=1e-12)
        if alone.chance == 0:
            assert scores[k] == 0 or behind.chance > 0
            continue
        n_possible += 1
        if behind.chance == 0:
            assert target == 0
            assert scores[k] == 0
            assert labels[k]
            continue
        n_behind += 1
        assert scores[k].item() == scaled(target, alone.chance / behind.chance, bound)
    return n_possible, n_behind


def check_4(model, mu, cell, syntax, tokens, prompt, head):
    """Hold scores of an attention head beside the witness, one input at a time, and count which inputs were met.

    With a prompt the factor of a score is that of the prompt's process: its scale is left to the caller.
    """
    mu = torch.as_tensor(mu, dtype=torch.float64)
    probs = masked_token_probs(model, tokens, prompt)
    embeddings = model.embed(tokens) if prompt is None else prompted(model, prompt, tokens)
    scores = head(probs, embeddings)
    attended = head.attended(probs).tolist()
    truth = ground_truth(model, mu, tokens, cell)
    sure_in_hmmlib = concentrated(model, tokens, cell, syntax).tolist()
    sure_behind_in_hmmlib = concentrated(model, tokens, cell, syntax, prompt).tolist()
    states = cell * model.n_syntax + np.array(syntax)
    size = max(1.0, mu.abs().max().item())
    bound = 1e-12 * head.condition * size
    seen = Counter()
    assert scores.isfinite().all()
    for k, text in enumerate(tokens.tolist()):
        alone = forward_backward(model, text)
        sure = surely(alone, states)
        target = share(of_cell(model, alone.memory, cell), alone.chance) @ mu.numpy()
        assert truth[k].item() == pytest.approx(target, abs=1e-12 * size)
        assert alone.chance == 0 or sure_in_hmmlib[k] == sure.tolist()
        if alone.chance == 0 or not sure.any():
            seen["outside"] += 1
            continue
        seen["within"] += 1
        behind = forward_backward(model, text, prompt)
        sure_behind = surely(behind, states)
        if prompt is not None:
            sure_behind[0] = False  # The prompt itself is not attended to.
            assert sure_behind_in_hmmlib[k] == sure_behind.tolist()
            if behind.chance == 0:
                seen["excluded"] += 1
                assert target == 0
                assert scores[k] == 0, "whose label is 1"
                continue
            assert sure_behind[1:][sure].all()
        assert attended[k] == sure_behind.tolist()
        seen["many"] += sure_behind.sum() > 1
        factors = alone.chance / behind.left[sure_behind]
        assert scores[k].item() == scaled(target, factors.mean(), bound)
    return seen
