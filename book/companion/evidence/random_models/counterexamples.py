"""Small instances on which a printed form fails: few enough states to follow by hand."""

from __future__ import annotations

import torch

from companion.evidence.random_models.residuals import Printed, largest, unscaled
from hmmlib.inference.messages import aggregated_messages, masked_token_probs
from hmmlib.models.families import shrinking_support
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import theorems
from hmmlib.theory.assumptions import assumption_4_4, assumption_4_5


def coin() -> MemoryHMM:
    """One state, one memory value, two tokens of probability 1/2."""
    return MemoryHMM([[1.0]], [[[0.5]], [[0.5]]], [1.0], [1.0])


def visible_memory() -> MemoryHMM:
    """One state, two memory values, each with its own token."""
    return MemoryHMM([[1.0]], [[[1.0], [0.0]], [[0.0], [1.0]]], [1.0], [0.5, 0.5])


def counterexample_proposition_d_1() -> Printed:
    """Two tosses of `coin`: P[X_1 | X_2 = 0] is (1/2, 1/2); W times the printed joint probability is (1/4, 1/4)."""
    model, x = coin(), torch.tensor([[0, 0]])
    joint = unscaled(*aggregated_messages(model, model.embed(x)))[:, 0]  # P[M, J, S, X_2 = 0]
    printed = joint @ model.emission.reshape(2, -1).T.numpy()
    return Printed(largest(masked_token_probs(model, x)[:, 0].numpy() - printed), 4, "one state, two tokens, length 2")


def counterexample_lemma_d_9() -> Printed:
    """`shrinking_support`, inputs (0, 2) and (1, 2): all Ḡ_i with i > 1 agree, and Î is {2, 3} for one, {2} for the other.

    The residual is 1 where that is so: then no query, key or position embeddings whatever give 𝓘 = Î for both.
    """
    model, syntax = shrinking_support()
    x, prompt = torch.tensor([[0, 2], [1, 2]]), theorems.prompt_d_6(model, [1.0, 0.0], 0)
    g = masked_token_probs(model, x, prompt)[:, 1:]
    sure = theorems.concentrated(model, x, 0, syntax)
    fair = assumption_4_4(model).holds and assumption_4_5(model, [1.0, 0.0], syntax).holds and bool(g.any(-1).all())
    differs = largest(g[0] - g[1]) < 1e-12 and bool(sure.any(1).all()) and not torch.equal(sure[0], sure[1])
    return Printed(float(fair and differs), 24, "three states, two memory values, four tokens, length 2")
