"""The proofs as constructions: from a model and μ to the head, or prompt and head, whose existence a theorem states.

Where a proof takes a left inverse, that is the pseudoinverse here; the head carries its condition number, and a bound
on the error that its rounding makes. A construction raises AssumptionError where an assumption fails. Where
rounding leaves one open, it warns and builds: the bound then covers what is not known.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.inference.messages import memory_posterior, possible_given_others, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import assumptions
from hmmlib.theory.assumptions import as_cell, as_mu, recoverable_columns, recoverable_states, span_of, weighted_values
from hmmlib.theory.heads import AttentionHead, LinearHead, UnsureHead, unit, unless_within
from hmmlib.validation import as_indices, integer, of_shape, of_type

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from numpy.typing import ArrayLike


def ground_truth(
    model: HMM | MemoryHMM, mu: Float[ArrayLike, " S"], tokens: Int[ArrayLike, "n T"], cell: int = 0
) -> Float[Tensor, " n"]:
    """μᵀP[H_0 | X_{1:T} = x] of (3.1), (n,), or μᵀP[M_cell | X_{1:T} = x] for a memory model; 0 within rounding of it.

    F*(x) is 1 where it is ≥ 0. ValueError for a μ, tokens or a cell that do not fit the model.
    """
    mu, vanilla = as_mu(model, mu, HMM, MemoryHMM), isinstance(model, HMM)
    integer("cell", cell, 0, 0 if vanilla else model.n_cells - 1)
    belief = posterior(model, tokens) if vanilla else memory_posterior(model, tokens, cell)
    precision, length = torch.finfo(belief.dtype), torch.as_tensor(tokens).shape[-1]
    lost = 8 * precision.tiny * precision.eps * mu.abs().sum()  # what is below the smallest float
    return unless_within(belief @ mu, unit(belief.dtype, length) * (belief @ mu.abs()) + lost)  # (3.1)


# Section 3


def _full_start(model: HMM, statement: str) -> Tensor:
    """P[H_0], (S,), by which a statement divides. ValueError where it is zero in some state."""
    if not (of_type("model", model, HMM).initial > 0).all():
        raise ValueError(f"{statement} divides by P[H_0], which is zero in some state")
    return model.initial


def claim_b_1(model: HMM, i: int) -> Float[Tensor, " S"]:
    """The diagonal of D in Claim B.1, P[H_i] / P[H_0], (S,): P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x].

    ValueError where P[H_0] is zero in some state.
    """
    start = _full_start(model, "Claim B.1")
    return model.marginal(i) / start


def _undone(mu: Tensor, factor: Tensor) -> Tensor:
    """D⁻¹ μ, for a diagonal D. ValueError where a weight of the task is then zero or no number."""
    undone = mu / factor
    if not undone.isfinite().all() or undone.count_nonzero() < mu.count_nonzero():
        raise ValueError(f"model must have probabilities whose quotients {mu.dtype} can hold, next to mu")
    return undone


def theorem_3_3(model: HMM, mu: Float[ArrayLike, " S"]) -> LinearHead:
    """The head b = W†ᵀ D⁻¹ μ of Theorem 3.3 (proof in appendix B), to be applied to G_1 of (MASK, x).

    Its score is μᵀP[H_0 | X_{1:T} = x] times a positive r_x. `mu` has the task's weights on the hidden states, (S,),
    not all zero, or ValueError. AssumptionError where columns of W are dependent (3.1), or the chain is not regular
    (3.2).
    """
    mu = as_mu(model, mu, HMM)
    assumptions.assumption_3_2(model).require()
    condition = assumptions.assumption_3_1(model).require().condition
    return LinearHead.by_left_inverse(model.emission, _undone(mu, claim_b_1(model, 1)), condition)  # (B.1)


def lemma_c_2(model: HMM, prompt: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """D P[X̂_1 = z̃, H_2] of Lemma C.2, (S,), with D = diag(1 / P[H_0]): the weights that a prompt u gives the posterior.

    P[H_2 | X̂_1 = z̃, X̂_{3:T+2} = x] is this times P[H_0 | X_{1:T} = x], entry by entry, and a positive r_x (3.3).
    ValueError where P[H_0] is zero in some state, and for a prompt of another shape.
    """
    start = _full_start(model, "Lemma C.2")
    prompt = of_shape("prompt", prompt, (model.n_states,)).to(start)
    return model.transition @ (prompt * model.marginal(1)) / start  # Lemma C.2


def theorem_3_6(model: HMM, mu: Float[ArrayLike, " S"], essential: Sequence[int]) -> tuple[Tensor, LinearHead]:
    """Prompt u, (S,), and head b = W†ᵀ (μ / (D c)), W and μ at H*, of Theorem 3.6 (proof in appendix C.1), to be
    applied to Ḡ_2 of (u, a row of ones, e(x)).

    u is 1 at the `sources` of Assumption 3.5 (its largest 𝓑), else 0; D c is `lemma_c_2`, c = A(u ⊙ P[H_1]). The score
    is μᵀP[H_0 | X_{1:T} = x] times a positive r_x; it is 0, as it should be, where prompt and x exclude each other.

    `mu` has the task's weights on the hidden states, (S,), not all zero; `essential` is H*, indices of states.
    AssumptionError where the chain is not regular (3.2), or H* does not satisfy Assumption 3.5; ValueError where
    either does not fit the model.
    """
    mu, essential = as_mu(model, mu, HMM), as_indices("essential", essential, model.n_states)
    assumptions.assumption_3_2(model).require()
    report = assumptions.assumption_3_5(model, mu, essential).require()
    prompt = torch.zeros_like(model.initial)
    prompt[list(report.sources)] = 1
    undone = _undone(mu[essential], lemma_c_2(model, prompt)[essential])  # Bᵀμ of the proof
    return prompt, LinearHead.by_left_inverse(model.emission[:, essential], undone, report.columns.condition)


# Section 4: what both theorems share


@dataclass(frozen=True, eq=False)
class Recovery:
    """The matrices of Claims D.3 and D.10 for H* ⊆ {`cell`} × S, whose indices among the hidden states are `states`.

    `theta_1` is Θ^(1), (H, X): its row h ∈ H* maps the token distribution at position i to Pr(H_i = h | …), one
    more row (if there is a state outside H*) to the probability of all others. `theta_2` holds Θ^(2,s), (|S*|, M, X):
    it maps to P[M_{j*}, H_i = (j*, s) | …]. `key_error` and `value_error`, (|S*|, M), bound the errors of the results:
    of the probability of H*, and of each row of Θ^(2,s).
    """

    theta_1: Tensor
    theta_2: Tensor
    cell: int
    states: list[int]
    condition: float
    key_error: float
    value_error: Tensor


def _recover(model: MemoryHMM, condition: float, cell: int, syntax: Sequence[int], values: list[int]) -> Recovery:
    """Θ^(1) and Θ^(2,s) by a left inverse of the recoverable columns beside a basis of 𝒱̄."""
    states = recoverable_states(model, cell, syntax)
    columns, rest = recoverable_columns(model, cell, syntax, values)
    basis, size = span_of(rest).basis, (len(states), len(values))
    beside, every = torch.cat([columns, basis], 1), torch.cat([columns, rest], 1)
    left_inverse = torch.linalg.pinv(beside)
    left_inverse = 2 * left_inverse - (left_inverse @ beside) @ left_inverse  # a step of Newton's: rounding, once more
    readings, others = left_inverse.tensor_split([columns.shape[1]])
    theta_1 = every.new_zeros(model.n_states, model.n_tokens)
    theta_2 = every.new_zeros(len(states), model.n_memory, model.n_tokens)
    value_error = torch.zeros_like(theta_2[..., 0])
    theta_2[:, values] = readings.unflatten(0, size)
    # Columns of W sum to 1, so a ν^(h) sums to the probability of h.
    theta_1[states] = readings.unflatten(0, size).sum(1)
    outside = [h for h in range(model.n_states) if h not in states]
    if outside:
        theta_1[outside[0]] = (basis @ others).sum(0)
    wanted = torch.eye(*columns.shape[1:], every.shape[1]).to(every)
    key_error = (readings.sum(0) @ every - wanted.sum(0)).abs().max().item()
    missed = (readings @ every - wanted).abs().amax(1)
    value_error[:, values] = missed.unflatten(0, size)
    if (unit(columns.dtype) * (readings.abs() @ columns).diagonal() + missed >= 1).all():
        words = f"no reading of these columns exceeds its error: they have condition {condition:.2g}"
        warnings.warn(words, UnsureHead, stacklevel=4)
    return Recovery(theta_1, theta_2, cell, states, condition, key_error, value_error)


def claim_d_3(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> Recovery:
    """Θ^(1) and Θ^(2,s) of Claim D.3, to be applied to G_i(x). AssumptionError where Assumption 4.2 does not hold."""
    condition = assumptions.assumption_4_2(model, cell, syntax).require().condition
    return _recover(model, condition, cell, syntax, list(range(model.n_memory)))


def claim_d_10(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]) -> Recovery:
    """Θ^(1) and Θ^(2,s) of Claim D.10, for Ḡ_i(ê(x)) with the prompt (D.6).

    AssumptionError where Assumption D.5, for one cell 4.5, does not hold.
    """
    if of_type("model", model, MemoryHMM).n_cells == 1:
        report = assumptions.assumption_4_5(model, mu, syntax)
    else:
        report = assumptions.assumption_d_5(model, mu, cell, syntax)
    return _recover(model, report.require().condition, cell, syntax, weighted_values(model, mu))


def lemma_d_2(model: MemoryHMM, recovery: Recovery) -> tuple[Tensor, Tensor]:
    """Query q (H+1,) and key Θ^(K) (H+1, X) of Lemma D.2: the score is the probability that H_i is in H*."""
    states = of_type("recovery", recovery, Recovery).states
    query = recovery.theta_1.new_zeros(of_type("model", model, MemoryHMM).n_states + 1)
    query[states] = 1
    return query, torch.cat([recovery.theta_1, torch.zeros_like(recovery.theta_1[:1])])


def lemma_d_4(model: MemoryHMM, recovery: Recovery, mu: Float[ArrayLike, " M"]) -> tuple[Tensor, Tensor]:
    """Value parameters of Lemmas D.4 and D.13: Θ^(V) (M*H, X), and b = Bᵀμ (M*H,).

    Where H_i is surely in H*, Θ^(V) G_i(x) = P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}] (D.2).
    """
    mu, states = as_mu(model, mu, MemoryHMM), of_type("recovery", recovery, Recovery).states
    value = recovery.theta_2.new_zeros(model.n_memory, model.n_states, model.n_tokens)
    value[:, states] = recovery.theta_2.transpose(0, 1)  # (D.2)
    output = torch.zeros_like(value[..., 0])
    output.unflatten(1, (model.n_cells, -1))[:, recovery.cell] = mu[:, None]
    return value.flatten(0, 1), output.flatten()


def lemma_d_9(model: MemoryHMM, recovery: Recovery) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and position embeddings β_1 (1, H+1) of Lemma D.9.

    β_1 keeps the prompt's own position out. The proof takes -2, enough where no score exceeds 1; but the output at
    position 1 is not conditioned on the prompt. So -2 is lowered by as much as the largest score exceeds 1.
    """
    query, key = lemma_d_2(model, recovery)
    query[-1] = 1
    first = torch.zeros_like(query)
    first[-1] = -(1 + (query @ key).max().clamp(min=1))
    return query, key, first[None]


# Theorems 4.3, 4.6 and D.6


def _head(model: MemoryHMM, mu, recovery: Recovery, query, key, positions=None, drift: float = 0.0) -> AttentionHead:
    """A head of these scores, with the values of Lemma D.4 and the errors of the recovery."""
    value, output = lemma_d_4(model, recovery, mu)
    error = recovery.value_error.new_zeros(model.n_memory, model.n_states)
    error[:, recovery.states] = recovery.value_error.T
    errors = recovery.key_error, error.flatten(), drift
    return AttentionHead(query, key, value, output, positions, recovery.condition, model.n_cells, *errors)


def attention_head(model: MemoryHMM, mu: Float[ArrayLike, " M"], recovery: Recovery) -> AttentionHead:
    """The attention head of Theorem 4.3's proof, for G(x) and e(x). Regularity is not needed."""
    return _head(model, mu, recovery, *lemma_d_2(model, recovery))


def theorem_4_3(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]) -> AttentionHead:
    """The attention head of Theorem 4.3 (proof in appendix D.1) for H* = {`cell`} × `syntax`.

    Applied to G(x) and e(x), its score is μᵀP[M_cell | X_{1:T} = x] times a positive r_x for every x in 𝓡 (4.3). `mu`
    has the task's weights on the memory values, (M,), not all zero. AssumptionError where H* does not satisfy
    Assumption 4.2, or the chain is not regular (3.2); ValueError where one of them does not fit the model.
    """
    recovery = claim_d_3(model, cell, syntax)
    assumptions.assumption_3_2(model).require()
    return attention_head(model, mu, recovery)


def prompt_d_6(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int) -> Float[Tensor, " M**N*H"]:
    """The prompt (D.6), lifted, (M^N * H,): 1 where memory cell `cell` holds a value in supp(μ), else 0."""
    cell = as_cell(model, cell)
    table = model.emission.new_zeros(*model.memory.shape, model.n_states)
    table.movedim(cell, 0)[weighted_values(model, mu)] = 1  # (D.6)
    return table.flatten()


def prompt_for_any_start(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int) -> Float[Tensor, " M**N*H"]:
    """The prompt (D.6) times P[H_0] / P[H_1], scaled into [0, 1]: with it Theorem D.6 needs no stationarity.

    Given the fake token, H_1 then has the distribution of H_0, so that the text after H_1 is distributed as one after
    H_0. It equals (D.6) where P[H_0] is stationary. ValueError where P[H_1] is 0 in a state in which P[H_0] is not.
    """
    prompt, first = prompt_d_6(model, mu, cell), model.marginal(1)
    if ((model.initial > 0) & (first == 0)).any():
        raise ValueError("no prompt lets H_1 have the law of H_0: a state that H_0 can be in is never entered")
    ratio = torch.where(first > 0, model.initial / first, 0)
    return (prompt.unflatten(0, (-1, model.n_states)) * (ratio / ratio.max())).flatten()


def prompted_head(
    model: MemoryHMM, mu: Float[ArrayLike, " M"], recovery: Recovery, drift: float = 0.0
) -> AttentionHead:
    """The attention head of Theorem D.6's proof, for Ḡ and embeddings of (prompt, x); position 1 is never attended.

    `drift` is that of P[H_0] in Assumption 4.4, where the theorem rests on it.
    """
    return _head(model, mu, recovery, *lemma_d_9(model, recovery), drift)


def theorem_4_6(
    model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]
) -> tuple[Tensor, AttentionHead]:
    """Prompt u, lifted (M^N * H,), and attention head of Theorem 4.6, and of Theorem D.6 for several cells.

    Applied to Ḡ and the embeddings of `prompted(model, u, x)`, the score is μᵀP[M_cell | X_{1:T} = x] times a
    positive r_x for every x in 𝓡 (4.3); it is 0, as it should be, where prompt and x exclude each other. Ḡ
    takes the lifted u. For the embeddings the head also accepts those of `prompted(model, model.unlift(u), x)`, which
    have |M|^(N-1) times fewer entries.

    `mu` has the task's weights on the memory values, (M,), not all zero; its support is M*. AssumptionError where
    H* = {`cell`} × `syntax` does not satisfy Assumption D.5 (4.5), or P[H_0] is not stationary (4.4); ValueError
    where one of them does not fit the model.
    """
    recovery = claim_d_10(model, mu, cell, syntax)
    drift = assumptions.assumption_4_4(model).require().drift
    return prompt_d_6(model, mu, cell), prompted_head(model, mu, recovery, drift)


def concentrated(
    model: MemoryHMM,
    tokens: Int[ArrayLike, "n T"],
    cell: int,
    syntax: Sequence[int],
    prompt: Float[ArrayLike, " S"] | None = None,
) -> Bool[Tensor, "n T"]:
    """Where the state is surely in H* = {`cell`} × `syntax` given all other tokens, bool (n, T): Î of Lemma D.2.

    𝓡 of (4.3) is the set of possible inputs with at least one such position. With a `prompt`, (n, T + 1): the
    positions after it where H_i is in H* given prompt and tokens; they contain Î of (D.8), which is the one without
    prompt, moved by one. Position 1 never counts, nor one whose other tokens are impossible. It follows from the
    zeros of the model, not from probabilities as floats, which may be too small for any.
    """
    states = recoverable_states(model, cell, syntax)
    possible = possible_given_others(model, tokens, prompt).unflatten(2, (model.n_memory, model.n_states)).any(2)
    outside = [h for h in range(model.n_states) if h not in states]
    sure = possible.any(-1) & ~possible[..., outside].any(-1)  # (4.3)
    if prompt is not None:
        sure[:, 0] = False
    return sure
