"""Section 4.1 and appendix D.1: Proposition D.1, Claim D.3, Lemmas D.2 and D.4, Theorem 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from hmmlib.evidence.enumeration import Joint, conditional
from hmmlib.evidence.random_models.instances import (
    Printed,
    all_inputs,
    draw_length,
    draw_weights,
    in_words,
    joint,
    largest,
)
from hmmlib.inference.messages import latent_given_others, masked_token_probs, memory_posterior
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_3_2
from hmmlib.theory.heads import AttentionHead
from hmmlib.theory.separation import Impossible, fit_or_refute
from hmmlib.theory.theorems import Recovery, attention_head, claim_d_3, concentrated, lemma_d_2, lemma_d_4, theorem_4_3

TRIES = 24
"""Draws of a model, at most, until some input of its length is in 𝓡."""


@dataclass(frozen=True)
class Place:
    """A memory model, a task μ on cell j*, recoverable syntax states S*, and all inputs of a length."""

    model: MemoryHMM
    mu: Tensor
    cell: int
    syntax: list[int]
    inputs: Tensor

    @property
    def length(self) -> int:
        return self.inputs.shape[1]

    @property
    def states(self) -> list[int]:
        return [self.cell * self.model.n_syntax + s for s in self.syntax]

    @cached_property
    def table(self) -> Joint:
        return joint(self.model, [None] * self.length)

    @cached_property
    def chance(self) -> np.ndarray:
        """Pr(X = x), (n,)."""
        return self.table.given_input()

    @cached_property
    def target(self) -> np.ndarray:
        """μᵀP[M_{j*} | X = x], (n,), by enumeration."""
        return conditional(self.table.given_input(f"m{self.cell}")) @ self.mu.numpy()

    @cached_property
    def sure(self) -> np.ndarray:
        """Î for every input, (n, T): where all of P[H_i | X_{-i} = x_{-i}] is on H*, by enumeration."""
        outside = np.delete(np.arange(self.model.n_states), self.states)
        weights = [self.table.left_out(i, f"h{i}") for i in range(1, self.length + 1)]
        return np.stack([(w.sum(1) > 0) & (w[:, outside].sum(1) == 0) for w in weights], 1)

    @cached_property
    def within(self) -> np.ndarray:
        """Which inputs are in 𝓡 (4.3), (n,)."""
        return (self.chance > 0) & self.sure.any(1)

    @cached_property
    def probs(self) -> Tensor:
        return masked_token_probs(self.model, self.inputs)


def draw_place(seed: int, make, longest: int, extra: int) -> Place:
    """Draw models from `make(rng, shape, seed)` until some input is in 𝓡, or TRIES are over: half of them of one shape."""
    rng = np.random.default_rng(seed)
    sizes = shape(rng)
    for k in range(TRIES):
        sizes = sizes if k < TRIES // 2 else shape(rng)
        model, cell, syntax, values = make(rng, sizes, int(rng.integers(2**31)))
        length = draw_length(rng, model, longest, extra)
        mu = draw_weights(rng, model.n_memory, support=values)
        place = Place(model, mu, cell, syntax, all_inputs(model.n_tokens, length))
        if place.within.any():
            break
    return place


def shape(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Cells, memory values, syntax states and recoverable ones of a small model."""
    n_cells = int(rng.choice([1, 1, 2, 3]))
    n_memory = int(rng.integers(1, 4)) if n_cells == 1 else 2
    n_syntax = int(rng.integers(1, {1: 5, 2: 3, 3: 2}[n_cells]))
    return n_cells, n_memory, n_syntax, int(rng.integers(1, n_syntax + 1))


def _recoverable(rng: np.random.Generator, sizes: tuple, seed: int) -> tuple[MemoryHMM, int, list[int], None]:
    """Assumption 4.2 holds. Half of the chains are not regular: reducible or periodic, P[H_0] with zeros."""
    n_cells, n_memory, n_syntax, n_recoverable = sizes
    zeros = 0.5 + 0.45 * rng.random()
    model, cell, syntax, _ = families.recoverable_memory_hmm(
        n_cells, n_memory, n_syntax, n_recoverable, n_memory, seed, zeros
    )
    if rng.random() < 0.5:
        draw = torch.Generator().manual_seed(seed)
        transition = families.sparse_columns((model.n_states, model.n_states), 0.7, draw)
        initial = families.sparse_columns((model.n_states,), 0.4, draw)
        model = MemoryHMM(transition, model.emission, initial, model.memory)
    return model, cell, syntax, None


@lru_cache(maxsize=2)
def _place(seed: int) -> Place:
    return draw_place(seed, _recoverable, 4, 0)


@lru_cache(maxsize=2)
def _recovery(seed: int) -> Recovery:
    place = _place(seed)
    return claim_d_3(place.model, place.cell, place.syntax)


# Proposition D.1


def check_proposition_d_1(seed: int) -> float:
    """(D.1): P[X_i | X_{-i} = x_{-i}] = Σ W_{:,(m,j,s)} Pr(M_j = m, H_i = (j, s) | X_{-i} = x_{-i}), with the conditional."""
    model, inputs, table = _sparse(seed)
    probs, latent = masked_token_probs(model, inputs).numpy(), latent_given_others(model, inputs).numpy()
    flat = model.emission.reshape(model.n_tokens, -1).T.numpy()
    residuals = []
    for i in range(1, inputs.shape[1] + 1):
        token, weights = conditional(table.token(i)), conditional(table.cell_and_state(i)).reshape(len(inputs), -1)
        residuals.append(largest(token - weights @ flat, probs[:, i - 1] - token, latent[:, i - 1] - weights))
    return largest(*residuals)


def printed_proposition_d_1(seed: int) -> Printed:
    """With the joint probability on the right, as printed: too small by the factor Pr(x_{-i})."""
    model, inputs, table = _sparse(seed)
    flat = model.emission.reshape(model.n_tokens, -1).T.numpy()
    parts = [
        conditional(table.token(i)) - table.cell_and_state(i).reshape(len(inputs), -1) @ flat
        for i in range(1, inputs.shape[1] + 1)
    ]
    return in_words(model, inputs.shape[1], seed)._replace(residual=largest(*parts))


def _sparse(seed: int) -> tuple[MemoryHMM, Tensor, Joint]:
    rng = np.random.default_rng(seed)
    n_cells, n_memory, n_syntax, _ = shape(rng)
    n_tokens = int(rng.integers(1, 4))
    zeros = float(rng.random()) * 0.7
    model = families.sparse_memory_hmm(n_memory, n_cells * n_syntax, n_tokens, seed, zeros, n_cells)
    length = draw_length(rng, model, 3)
    return model, all_inputs(n_tokens, length), joint(model, [None] * length)


def control_proposition_d_1(seed: int) -> float:
    """Tokens that depend on a second memory cell too: (D.1) with P[X_i | M_j, H_i] is then off."""
    draw = torch.Generator().manual_seed(seed)
    emission = appendix_e.softmax_of_uniform((3, 2, 2, 2), 0.3, draw)  # x, m_0, m_1, h: state h should read cell h only
    chain = families.regular_hmm(2, 1, draw, zeros=0.0)
    prior = appendix_e.softmax_of_uniform((4,), 1.0, draw).reshape(2, 2)
    # A vanilla HMM on (m_0, m_1, h), whose memory never changes.
    whole = HMM(
        torch.kron(torch.eye(4, dtype=torch.float64), chain.transition),
        emission.reshape(3, 8),
        torch.kron(prior.reshape(-1), chain.initial),
    )
    table = joint(whole, [None] * 2)
    weights = conditional(table.left_out(1, "h1")).reshape(-1, 2, 2, 2)
    own = torch.stack(
        [
            torch.einsum("xmk,mk->xm", emission[..., 0], prior / prior.sum(1, keepdim=True)),
            torch.einsum("xkm,km->xm", emission[..., 1], prior / prior.sum(0)),
        ],
        -1,
    ).numpy()  # P[X_i | M_j, H_i = j] for j = 0, 1
    both = np.stack([weights[..., 0].sum(2), weights[..., 1].sum(1)], -1)
    return largest(conditional(table.token(1)) - np.einsum("xmh,nmh->nx", own, both))


# Claim D.3


def check_claim_d_3(seed: int) -> float:
    """Θ^(1) G_i = P[H_i = h | x_{-i}] on H*, ‖Θ^(1) G_i‖₁ = 1, and Θ^(2,s) G_i = P[M_{j*}, H_i = (j*, s) | x_{-i}]."""
    place, recovery = _place(seed), _recovery(seed)
    return recovery_residual(recovery, place, place.table, place.probs.numpy(), 0, place.chance > 0)


def recovery_residual(
    recovery: Recovery, place: Place, table: Joint, probs: np.ndarray, first: int, among: np.ndarray
) -> float:
    """How far Θ^(1) and Θ^(2,s) are from reading P[H_i | …] and P[M_{j*}, H_i | …] off `probs`, behind position `first`."""
    theta_1, theta_2 = recovery.theta_1.numpy(), recovery.theta_2.numpy()
    residuals = [0.0]
    for i in range(first + 1, table.length + 1):
        weights = table.left_out(i, f"m{place.cell}", f"h{i}")
        rows = among & (weights.sum((1, 2)) > 0)
        exact, g = conditional(weights)[rows], probs[rows, i - 1]
        read = g @ theta_1.T
        residuals.append(largest(read[:, place.states] - exact.sum(1)[:, place.states]))
        residuals.append(largest(abs(read).sum(1) - 1))
        residuals.append(largest(np.einsum("smx,nx->nms", theta_2, g) - exact[:, :, place.states]))
    return largest(*residuals) / recovery.condition


def twin_gap(probs: Tensor, truth: Tensor) -> float:
    """How much two inputs differ in what a head should read there, if their outputs do not differ at all; else 0."""
    return float((truth[0] - truth[1]).abs().max()) if largest(probs[0] - probs[1]) < 1e-12 else 0.0


def control_claim_d_3(seed: int) -> float:
    """`recoverable_twins`: G_1 is the same for two inputs, and Pr(H_1 ∈ H*) is 1 for one and 0 for the other."""
    model, x = families.recoverable_twins(seed), torch.tensor([[0, 2], [0, 4]])
    latent = latent_given_others(model, x)[:, 0].unflatten(1, (2, 4)).sum(1)
    return twin_gap(masked_token_probs(model, x)[:, 0], latent[:, :1])


# Lemma D.2


def check_lemma_d_2(seed: int) -> float:
    """𝓘 = Î wherever Î is not empty, and the score of a position is Pr(H_i ∈ H* | x_{-i})."""
    place, recovery = _place(seed), _recovery(seed)
    return attention_residual(attention_head(place.model, place.mu, recovery), place, recovery)


def attention_residual(head: AttentionHead, place: Place, recovery: Recovery) -> float:
    """1 where the attended set is not Î on an input of 𝓡; else how far scores are from Pr(H_i ∈ H* | x_{-i})."""
    sure = concentrated(place.model, place.inputs, place.cell, place.syntax).numpy()
    same = (sure == place.sure)[place.chance > 0].all()
    if not same or (head.attended(place.probs).numpy() != place.sure)[place.within].any():
        return 1.0
    weights = [conditional(place.table.left_out(i, f"h{i}"))[:, place.states] for i in range(1, place.length + 1)]
    error = head.scores(place.probs).numpy() - np.stack([w.sum(1) for w in weights], 1)
    return largest(error[place.chance > 0]) / recovery.condition


def printed_lemma_d_2(seed: int) -> Printed:
    """With q of |H| entries and a key of |H| rows, as printed, beside the |H| + 1 entries of β in (4.1)."""
    place, recovery = _place(seed), _recovery(seed)
    query, key = lemma_d_2(place.model, recovery)
    beta = query.new_zeros(place.length, len(query))
    record = in_words(place.model, place.length, seed)
    try:
        head = AttentionHead(query[:-1], key[:-1], *lemma_d_4(place.model, recovery, place.mu), beta)
    except ValueError:
        return record._replace(residual=np.inf)
    return record._replace(residual=attention_residual(head, place, recovery))


def control_lemma_d_2(seed: int) -> float:
    """`recoverable_twins`: no output differs between two inputs, so no key can attend to position 1 in one only; 1 if so."""
    model, x = families.recoverable_twins(seed), torch.tensor([[0, 2], [0, 4]])
    sure = concentrated(model, x, 0, [0, 2, 3])
    return twin_gap(masked_token_probs(model, x), sure.double()) if sure.any(1).all() else 0.0


# Lemma D.4


def check_lemma_d_4(seed: int) -> float:
    """V = r μᵀP[M_{j*} | x] with r = Pr(X_i = x_i | x_{-i}) on Î, and (D.2): Θ^(V) G_i = P[M_{J_i}, J_i, S_i | x_{-i}]."""
    place, recovery = _place(seed), _recovery(seed)
    head = attention_head(place.model, place.mu, recovery)
    found = head.values(place.probs, place.model.embed(place.inputs)).numpy()
    residuals = [0.0]
    for i in range(1, place.length + 1):
        rows = place.within & place.sure[:, i - 1]
        ratio = place.chance / np.where(rows, place.table.left_out(i), 1)
        residuals.append(largest((found[:, i - 1] - ratio * place.target)[rows]))
        exact = conditional(place.table.cell_and_state(i)).reshape(len(rows), -1)
        read = place.probs[:, i - 1].numpy() @ head.value.T.numpy()
        residuals.append(largest((read - exact)[rows]))
    return largest(*residuals) / recovery.condition


def control_lemma_d_4(seed: int) -> float:
    """`parity_memory_hmm`: same token and same G_1 for (0, 0) and (0, 1), and posteriors that differ in sign: their gap."""
    model, x = _parity(seed), torch.tensor([[0, 0], [0, 1]])
    target = memory_posterior(model, x)[:, :1] - 0.5
    return twin_gap(masked_token_probs(model, x)[:, 0], target) if target[0] > 0 > target[1] else 0.0


def _parity(seed: int, n: int = 2) -> MemoryHMM:
    return families.parity_memory_hmm(n, float(np.random.default_rng(seed).uniform(0.02, 0.4)))


# Theorem 4.3


def check_theorem_4_3(seed: int) -> float:
    """Attn = r_x μᵀP[M_{j*} | x] for every x of 𝓡, r_x the mean of Pr(X_i = x_i | x_{-i}) over Î; any chain will do."""
    place = _place(seed)
    model, recovery = place.model, _recovery(seed)
    head = attention_head(model, place.mu, recovery)
    if assumption_3_2(model):
        head = theorem_4_3(model, place.mu, place.cell, place.syntax)
    score = head(place.probs, model.embed(place.inputs)).numpy()
    left = np.stack([place.table.left_out(i) for i in range(1, place.length + 1)], 1)
    ratios = np.where(place.sure, place.chance[:, None] / np.where(left > 0, left, 1), 0)
    want = ratios.sum(1) / np.maximum(place.sure.sum(1), 1) * place.target
    return largest((score - want)[place.within]) / recovery.condition


def control_theorem_4_3(seed: int) -> float:
    """`parity_memory_hmm`: 1 where no attention head fits the inputs of length 2.

    G is the same vector everywhere. So which positions are attended does not depend on the input, and V is a function
    of the token alone; a linear program refutes every such function for each of the three sets of positions.
    """
    n = 2 + seed % 2
    model, x = _parity(seed, n), all_inputs(n, 2)
    # μ is 1 - 1/n on the first value and -1/n on the others: posteriors sum to 1.
    labels = memory_posterior(model, x)[:, 0] > 1 / n
    shown = torch.nn.functional.one_hot(x, n).double()
    refuted = [fit_or_refute(part, labels) for part in (shown[:, 0], shown[:, 1], shown.mean(1))]
    blind = largest(masked_token_probs(model, x) - 1 / n) < 1e-12
    return float(blind and all(isinstance(r, Impossible) and r.residual < 1e-9 for r in refuted))
