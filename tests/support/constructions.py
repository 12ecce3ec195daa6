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
    return torch.cat([torch.full_like(tokens[:, :1], MASK), tokens], 1)


def mixed_inputs(model, length, seed, n=6):
    """Possible inputs, and some that are drawn token by token, whatever their probability."""
    free = torch.randint(model.n_tokens, (3, length), generator=torch.Generator().manual_seed(seed))
    same = torch.arange(min(model.n_tokens, 2))[:, None].expand(-1, length)
    return torch.cat([model.sample(n, length, seed).tokens, free, same])


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


def weights_on(kept, length, seed):
    mu = np.zeros(length)
    mu[kept] = np.random.default_rng(seed).normal(size=len(kept)) * [1, 1e-3, 1e3][seed % 3]
    return mu


def scaled(target, factor, bound):
    """The target times a factor, within a bound that grows with it."""
    return pytest.approx(factor * target, rel=0, abs=bound * factor)


def check_3_6(model, mu, essential, tokens):
    """How many inputs were possible, and how many of these behind the prompt: scores with their factor, one by one."""
    mu = torch.as_tensor(mu, dtype=torch.float64)
    prompt, head = theorem_3_6(model, mu, essential)
    probs, truth = masked_token_probs(model, behind_gap(tokens), prompt)[:, 1], ground_truth(model, mu, tokens)
    bound, seen = 1e-13 * head.condition * max(1.0, head.weights.norm().item()), [0, 0]
    of_each = (part.tolist() for part in (tokens, truth, head(probs), head.label(probs)))
    for x, said, score, label in zip(*of_each, strict=True):
        alone, hat = forward_backward(model, x), forward_backward(model, [MASK, *x], prompt)
        target = share(alone.start, alone.chance) @ mu.numpy()
        assert said == pytest.approx(target, abs=1e-12)
        seen[0] += alone.chance > 0
        seen[1] += alone.chance > 0 and hat.chance > 0
        if alone.chance == 0:
            assert score == 0 or hat.chance > 0
        elif hat.chance == 0:
            assert (score, label, target) == (0, True, 0)
        else:
            assert score == scaled(target, alone.chance / hat.chance, bound)
    return seen


def check_4(model, mu, cell, syntax, tokens, prompt, head):
    """Scores of an attention head with their factors, one input at a time. Counts of what was met. With a prompt the
    factor is that of the prompt's process: its scale is left to the caller."""
    mu, given = torch.as_tensor(mu, dtype=torch.float64), () if prompt is None else (prompt,)
    probs = masked_token_probs(model, tokens, *given)
    scores = head(probs, prompted(model, prompt, tokens) if given else model.embed(tokens)).tolist()
    truth, found = ground_truth(model, mu, tokens, cell).tolist(), concentrated(model, tokens, cell, syntax).tolist()
    hat_found, attended = concentrated(model, tokens, cell, syntax, *given).tolist(), head.attended(probs).tolist()
    states, size = [cell * model.n_syntax + s for s in syntax], max(1.0, mu.abs().max().item())
    bound, seen = 1e-12 * head.condition * size, Counter()
    assert np.isfinite(scores).all()
    for k, x in enumerate(tokens.tolist()):
        alone, hat = forward_backward(model, x), forward_backward(model, x, *given)
        target = share(of_cell(model, alone.memory, cell), alone.chance) @ mu.numpy()
        assert truth[k] == pytest.approx(target, abs=1e-12 * size)
        sure, hat_sure = surely(alone, states), surely(hat, states)
        assert alone.chance == 0 or found[k] == sure.tolist()
        seen["within" if (within := alone.chance > 0 and sure.any()) else "outside"] += 1
        if not within:
            continue
        if given:
            hat_sure[0] = False
            assert hat_found[k] == hat_sure.tolist()
            if hat.chance == 0:
                seen["excluded"] += 1
                assert target == 0
                assert scores[k] == 0, "whose label is 1"
                continue
            assert not (sure & ~hat_sure[1:]).any()
        assert attended[k] == hat_sure.tolist()
        seen["many"] += hat_sure.sum() > 1
        assert scores[k] == scaled(target, (alone.chance / hat.left[hat_sure]).mean(), bound)
    return seen
