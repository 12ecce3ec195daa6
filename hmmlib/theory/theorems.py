"""The proofs as constructions. A model and μ become the head, or prompt and head, whose existence a theorem states.

Where a proof takes a left inverse, the pseudoinverse is taken here. The head carries its condition number, and by how
much rounding may have put the head wrong. A construction raises AssumptionError where an assumption fails. Where
rounding leaves an assumption open, it warns and builds, and the head's `sure` says which labels can be relied on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.inference.messages import memory_posterior, possible_given_others, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import assumptions
from hmmlib.theory.assumptions import as_cell, as_mu, recoverable_states, weighted_values
from hmmlib.theory.heads import AttentionHead, LinearHead, unit, zero_within
from hmmlib.theory.recovery import Recovery, claim_d_3, claim_d_10, lemma_d_2, lemma_d_4, lemma_d_9
from hmmlib.validation import as_array, as_indices, as_tensor, integer, of_shape, of_type

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from numpy.typing import ArrayLike


@without_autocast()
def ground_truth(
    model: HMM | MemoryHMM, mu: Float[ArrayLike, " S"], tokens: Int[ArrayLike, "n T"], cell: int = 0
) -> Float[Tensor, " n"]:
    """Compute the target μᵀP[H_0 | X_{1:T} = x] of (3.1), or μᵀP[M_cell | X_{1:T} = x] for a memory model.

    The label F*(x) is 1 where the target is ≥ 0. A target that is zero within rounding is exactly 0.

    Args:
        model: The model.
        mu: μ, the task's weights on the hidden states, (S,), or on the memory values, (M,).
        tokens: The texts, (n, T).
        cell: The memory cell that the task asks about.

    Returns:
        The targets, (n,).

    Raises:
        ValueError: The weights, the texts or the cell do not fit the model.

    Example:
        >>> from hmmlib import HMM, ground_truth
        >>> model = HMM([[0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5])
        >>> ground_truth(model, [1.0, -1.0], [[0], [1]]).tolist()
        [0.0, 0.0]
    """
    mu = as_mu(model, mu, HMM, MemoryHMM)
    if isinstance(model, HMM):
        integer("cell", cell, 0, 0)
        belief = posterior(model, tokens)
    else:
        belief = memory_posterior(model, tokens, cell)
    precision = torch.finfo(belief.dtype)
    # Each probability may also be off by a few times the smallest positive float, tiny * eps. Eight times is allowed.
    underflow = 8 * precision.tiny * precision.eps * mu.abs().sum()
    _, length = as_array("tokens", tokens).shape
    tolerance = unit(belief.dtype, length) * (belief @ mu.abs()) + underflow
    return zero_within(belief @ mu, tolerance)  # (3.1)


def _full_start(model: HMM, statement: str) -> Tensor:
    """Return P[H_0], by which a statement divides. It must therefore be positive in every state."""
    if not (of_type("model", model, HMM).initial > 0).all():
        raise ValueError(f"model must have no state in which P[H_0] is zero, because {statement} divides by it")
    return model.initial


def claim_b_1(model: HMM, i: int) -> Float[Tensor, " S"]:
    """Compute the diagonal of D in Claim B.1, which says P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x].

    Args:
        model: The model.
        i: The position.

    Returns:
        P[H_i] / P[H_0], (S,).

    Raises:
        ValueError: P[H_0] is zero in some state.

    Example:
        >>> from hmmlib import HMM, claim_b_1
        >>> claim_b_1(HMM([[1.0, 0.5], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]), 1).tolist()
        [1.5, 0.5]
    """
    start = _full_start(model, "Claim B.1")
    return model.marginal(i) / start


def _divided(mu: Tensor, diagonal: Tensor) -> Tensor:
    """Return D⁻¹ μ, in which no weight of the task may become zero or infinite by rounding."""
    divided = mu / diagonal
    if not divided.isfinite().all() or divided.count_nonzero() < mu.count_nonzero():
        raise ValueError(f"model must have probabilities by whose quotients {mu.dtype} can divide mu")
    return divided


def theorem_3_3(model: HMM, mu: Float[ArrayLike, " S"]) -> LinearHead:
    """Construct the head b = W†ᵀ D⁻¹ μ of Theorem 3.3 (proof in appendix B), to be applied to G_1 of (MASK, x).

    The score is μᵀP[H_0 | X_{1:T} = x] times a positive r_x. The page notebooks/3-hmm derives it, and
    `hmmbook.evidence.random_models.section_3.check_theorem_3_3` checks it.

    Args:
        model: A model that satisfies Assumptions 3.1 and 3.2.
        mu: μ, the task's weights on the hidden states, (S,), not all zero.

    Raises:
        AssumptionError: Columns of W are dependent (3.1), or the chain is not regular (3.2).
        ValueError: The weights do not fit the model.

    Example:
        >>> from hmmlib import HMM, masked_token_probs, theorem_3_3
        >>> model = HMM([[0.75, 0.25], [0.25, 0.75]], [[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5])
        >>> head = theorem_3_3(model, [1.0, -1.0])
        >>> head.label(masked_token_probs(model, [[-1, 0], [-1, 1]])[:, 0])
        tensor([ True, False])
    """
    mu = as_mu(model, mu, HMM)
    assumptions.assumption_3_2(model).require()
    condition = assumptions.assumption_3_1(model).require().condition
    scores_of_states = _divided(mu, claim_b_1(model, 1))
    return LinearHead.by_left_inverse(model.emission, scores_of_states, condition)  # (B.1)


@without_autocast()
def lemma_c_2(model: HMM, prompt: Float[ArrayLike, " S"]) -> Float[Tensor, " S"]:
    """Compute D P[X̂_1 = z̃, H_2] of Lemma C.2, by which a prompt multiplies the posterior, with D = diag(1 / P[H_0]).

    P[H_2 | X̂_1 = z̃, X̂_{3:T+2} = x] is this vector times P[H_0 | X_{1:T} = x], entry by entry, and a positive r_x (3.3).

    Args:
        model: The model.
        prompt: u, (S,).

    Returns:
        A (u ⊙ P[H_1]) / P[H_0], (S,).

    Raises:
        ValueError: P[H_0] is zero in some state, or the prompt has a bad entry or another shape.

    Example:
        >>> from hmmlib import HMM, lemma_c_2
        >>> model = HMM([[1.0, 0.5], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
        >>> lemma_c_2(model, [1.0, 0.0]).tolist()  # after state 0 comes state 0
        [1.5, 0.0]
    """
    start = _full_start(model, "Lemma C.2")
    prompt = as_tensor("prompt", prompt, like=start)
    of_shape("prompt", prompt, (model.n_states,))
    return model.transition @ (prompt * model.marginal(1)) / start  # Lemma C.2


def theorem_3_6(model: HMM, mu: Float[ArrayLike, " S"], essential: Sequence[int]) -> tuple[Tensor, LinearHead]:
    """Construct the prompt and head of Theorem 3.6 (appendix C.1), to be applied to Ḡ_2 of (u, a row of ones, e(x)).

    The prompt u is 1 on 𝓑 and 0 elsewhere, where 𝓑 is as large as possible, namely the `sources` of Assumption 3.5.
    Behind it, P[H_0 | x] is multiplied state by state by d = `lemma_c_2(model, u)`, which is positive exactly on H*.
    The head b = W†ᵀ(μ / d), with W, μ and d restricted to H*, divides by d again. It reads Ḡ at the mask. Its score is
    μᵀP[H_0 | x] times a positive r_x. It is 0, as it should be, where prompt and text exclude each other. The page
    notebooks/3-1-prompt derives it, and `hmmbook.evidence.random_models.section_3.check_theorem_3_6` checks it.

    Args:
        model: A model that satisfies Assumptions 3.2 and 3.5.
        mu: μ, the task's weights on the hidden states, (S,), not all zero.
        essential: H*, indices of states.

    Returns:
        The prompt u, (S,), and the head.

    Raises:
        AssumptionError: The chain is not regular (3.2), or H* does not satisfy Assumption 3.5.
        ValueError: The weights or the states do not fit the model.

    Example:
        >>> from hmmlib import MASK, hidden_twins, masked_token_probs, theorem_3_6
        >>> model = hidden_twins()
        >>> prompt, head = theorem_3_6(model, [1.0, 0.0, -1.0, 0.0], essential=[0, 2])
        >>> head.label(masked_token_probs(model, [[MASK, 1], [MASK, 0]], prompt)[:, 1])
        tensor([ True, False])
    """
    mu = as_mu(model, mu, HMM)
    essential = as_indices("essential", essential, model.n_states)
    assumptions.assumption_3_2(model).require()
    report = assumptions.assumption_3_5(model, mu, essential).require()
    prompt = torch.zeros_like(model.initial)
    prompt[list(report.sources)] = 1
    scores_of_states = _divided(mu[essential], lemma_c_2(model, prompt)[essential])  # Bᵀμ of the proof
    return prompt, LinearHead.by_left_inverse(model.emission[:, essential], scores_of_states, report.columns.condition)


def concentrated(
    model: MemoryHMM,
    tokens: Int[ArrayLike, "n T"],
    cell: int,
    syntax: Sequence[int],
    prompt: Float[ArrayLike, " S"] | None = None,
) -> Bool[Tensor, "n T"]:
    """Find the positions Î of Lemma D.2, at which H_i is certainly in H* given all other tokens.

    𝓡 of (4.3) is the set of possible texts with at least one such position. A probability counts as zero only where the
    model's zeros make it so, not where it is too small for a float.

    Args:
        model: The model.
        tokens: The texts, (n, T).
        cell: j* of H* = {j*} × S*.
        syntax: S*, indices of syntax states.
        prompt: A prompt in front of the texts. Its own position, the first, never counts.

    Returns:
        Whether each position is in Î, (n, T), or (n, T + 1) with a prompt. False where the other tokens are impossible.

    Example:
        >>> from hmmlib import MemoryHMM, concentrated
        >>> emission = [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]  # token h shows state h
        >>> model = MemoryHMM([[0.0, 1.0], [1.0, 0.0]], emission, [0.5, 0.5], [0.5, 0.5])
        >>> concentrated(model, [[0, 1, 0]], cell=0, syntax=[0])
        tensor([[ True, False,  True]])
    """
    states = recoverable_states(model, cell, syntax)
    outside = [h for h in range(model.n_states) if h not in states]
    possible = possible_given_others(model, tokens, prompt)
    possible_states = possible.unflatten(2, (model.n_memory, model.n_states)).any(2)
    sure = possible_states.any(-1) & ~possible_states[..., outside].any(-1)  # (4.3)
    if prompt is not None:
        sure[:, 0] = False
    return sure


def attention_head(model: MemoryHMM, mu: Float[ArrayLike, " M"], recovery: Recovery) -> AttentionHead:
    """Construct the attention head of Theorem 4.3's proof. The chain need not be regular.

    Args:
        model: The model.
        mu: μ, the task's weights on the memory values, (M,).
        recovery: What `claim_d_3` recovers in the model.

    Example:
        >>> from hmmlib import attention_head, claim_d_3, recoverable_memory_hmm
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2)
        >>> attention_head(model, [1.0, -1.0], claim_d_3(model, cell, syntax)).query.tolist()
        [1.0, 0.0, 1.0, 0.0]
    """
    query, key = lemma_d_2(model, recovery)
    value, output = lemma_d_4(model, recovery, mu)
    return AttentionHead(query, key, value, output, None, recovery.condition, model.n_cells, recovery.error)


def theorem_4_3(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]) -> AttentionHead:
    """Construct the attention head of Theorem 4.3 (appendix D.1) for H* = {j*} × S*, to be applied to G(x) and e(x).

    For x in 𝓡 (4.3), its score is μᵀP[M_{j*} | X_{1:T} = x] times a positive r_x. Page notebooks/4-1-attention-head
    derives it, and `hmmbook.evidence.random_models.appendix_d1.check_theorem_4_3` checks it.

    Args:
        model: A model that satisfies Assumptions 3.2 and 4.2.
        mu: μ, the task's weights on the memory values, (M,), not all zero.
        cell: j*.
        syntax: S*, indices of syntax states.

    Raises:
        AssumptionError: H* does not satisfy Assumption 4.2, or the chain is not regular (3.2).
        ValueError: The weights, the cell or a syntax state do not fit the model.

    Example:
        >>> from hmmlib import masked_token_probs, recoverable_memory_hmm, theorem_4_3
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2)
        >>> head = theorem_4_3(model, [1.0, -1.0], cell, syntax)
        >>> tokens = model.sample(3, 6, seed=0).tokens
        >>> head.label(masked_token_probs(model, tokens), model.embed(tokens))
        tensor([False, False,  True])
    """
    recovery = claim_d_3(model, cell, syntax)
    assumptions.assumption_3_2(model).require()
    return attention_head(model, mu, recovery)


def prompt_d_6(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int) -> Float[Tensor, " M**N*H"]:
    """Construct the prompt (D.6), which is 1 where memory cell j* holds a value in supp(μ), and 0 elsewhere.

    Args:
        model: The model.
        mu: μ, the task's weights on the memory values, (M,).
        cell: j*.

    Returns:
        The prompt, lifted, (M^N * H,).

    Example:
        >>> from hmmlib import prompt_d_6, random_memory_hmm
        >>> model = random_memory_hmm(n_memory=2, n_states=3, n_tokens=8, seed=0)
        >>> prompt_d_6(model, [1.0, 0.0], cell=0).tolist()
        [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    cell = as_cell(model, cell)
    table = model.emission.new_zeros(*model.memory.shape, model.n_states)
    table.movedim(cell, 0)[weighted_values(model, mu)] = 1  # (D.6)
    return table.flatten()


def prompt_for_any_start(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int) -> Float[Tensor, " M**N*H"]:
    """Construct the prompt (D.6) times P[H_0] / P[H_1], with which Theorem D.6 needs no stationarity.

    Given the fake token, H_1 then has the distribution of H_0, so the text after H_1 is distributed as one after H_0.

    Args:
        model: The model.
        mu: μ, the task's weights on the memory values, (M,).
        cell: j*.

    Returns:
        The prompt, lifted, (M^N * H,), scaled into [0, 1].

    Raises:
        ValueError: P[H_1] is 0 in a state in which P[H_0] is positive.

    Example:
        >>> from hmmlib import MemoryHMM, prompt_for_any_start
        >>> emission = [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]
        >>> model = MemoryHMM([[0.5, 0.5], [0.5, 0.5]], emission, [0.25, 0.75], [0.5, 0.5])
        >>> prompt_for_any_start(model, [1.0, 0.0], cell=0)  # H_1 is uniform, and H_0 is not
        tensor([0.3333, 1.0000, 0.0000, 0.0000], dtype=torch.float64)
    """
    prompt = prompt_d_6(model, mu, cell)
    first = model.marginal(1)
    if ((model.initial > 0) & (first == 0)).any():
        raise ValueError("model must enter each state that H_0 can be in, but P[H_1] is 0 in some of them")
    ratio = torch.where(first > 0, model.initial / first, 0)
    ratio = ratio / ratio.max()
    return (prompt.unflatten(0, (-1, model.n_states)) * ratio).flatten()


def prompted_head(
    model: MemoryHMM, mu: Float[ArrayLike, " M"], recovery: Recovery, drift: float = 0.0
) -> AttentionHead:
    """Construct the attention head of Theorem D.6's proof, for Ḡ and embeddings of (prompt, x).

    Args:
        model: The model.
        mu: μ, the task's weights on the memory values, (M,).
        recovery: What `claim_d_10` recovers in the model.
        drift: The share by which A P[H_0] may differ from P[H_0] in any state, the `drift` of Assumption 4.4.

    Example:
        >>> from hmmlib import claim_d_10, prompted_head, recoverable_memory_hmm
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2)
        >>> prompted_head(model, [1.0, -1.0], claim_d_10(model, [1.0, -1.0], cell, syntax)).positions.shape
        torch.Size([1, 4])
    """
    query, key, positions = lemma_d_9(model, recovery)
    value, output = lemma_d_4(model, recovery, mu)
    # A probability behind the prompt may be off by the share `drift`, and so may the sum by which it is divided.
    error = recovery.error + 2 * drift
    return AttentionHead(query, key, value, output, positions, recovery.condition, model.n_cells, error)


def theorem_4_6(
    model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]
) -> tuple[Tensor, AttentionHead]:
    """Construct the prompt and attention head of Theorem 4.6, or of Theorem D.6 for several cells, with H* = {j*} × S*.

    The head is applied to Ḡ and the embeddings of `prompted(model, u, x)`. It also accepts the embeddings of
    `prompted(model, model.unlift(u), x)`, which are shorter. For x in 𝓡 (4.3), its score is μᵀP[M_{j*} | X_{1:T} = x]
    times a positive r_x. It is 0, as it should be, where prompt and text exclude each other. Page
    notebooks/4-2-memory-prompt derives it, and `hmmbook.evidence.random_models.appendix_d3.check_theorem_4_6` checks
    it.

    Args:
        model: A model that satisfies Assumptions 4.4 and 4.5, or D.5 if it has several cells.
        mu: μ, the task's weights on the memory values, (M,), not all zero. Its support is M*.
        cell: j*.
        syntax: S*, indices of syntax states.

    Returns:
        The prompt u, lifted, (M^N * H,), and the head.

    Raises:
        AssumptionError: H* does not satisfy Assumption 4.5 or D.5, or P[H_0] is not stationary (4.4).
        ValueError: The weights, the cell or a syntax state do not fit the model.

    Example:
        >>> from hmmlib import recoverable_memory_hmm, theorem_4_6
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, 2, 2, n_recoverable=1, values=2, stationary=True)
        >>> prompt, head = theorem_4_6(model, [1.0, -1.0], cell, syntax)
        >>> prompt.shape, head.value.shape
        (torch.Size([4]), torch.Size([4, 3]))
    """
    recovery = claim_d_10(model, mu, cell, syntax)
    drift = assumptions.assumption_4_4(model).require().drift
    return prompt_d_6(model, mu, cell), prompted_head(model, mu, recovery, drift)
