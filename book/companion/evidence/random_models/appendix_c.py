"""Section 3.1 and appendix C: Lemmas C.1, C.2 and Theorem 3.6."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from companion.evidence.enumeration import Joint, conditional
from companion.evidence.random_models.instances import (
    all_inputs,
    draw_prompt,
    draw_subset,
    draw_weights,
    essential_instance,
    joint,
    recentred,
    shifted,
    start_without_a_state,
)
from companion.evidence.random_models.residuals import (
    Checked,
    both_signs,
    largest,
    mislabelled,
    over,
    refused,
    unscaled,
)
from hmmlib.inference.messages import aggregated_messages, masked_token_probs, posterior, prompted
from hmmlib.models import families
from hmmlib.models.hmm import HMM
from hmmlib.theory.theorems import ground_truth, lemma_c_2, theorem_3_6


def _with_prompt(model: HMM, prompt: Tensor, length: int) -> Joint:
    """The joint table of (z̃, ∅, x) for every x of a length."""
    return joint(model, [prompt.numpy(), np.ones(model.n_states)] + [None] * length)


def _behind_gap(model: HMM, length: int) -> Tensor:
    """(∅, x) for every x: what stands behind the prompt."""
    return shifted(all_inputs(model.n_tokens, length), 1)


def _tau(model: HMM, prompt: Tensor, tokens: Tensor) -> np.ndarray:
    """τ_i(ê(x)) at every position, without any scaling, (n, T + 1, S)."""
    return unscaled(*aggregated_messages(model, prompted(model, prompt, tokens)))


# Lemma C.1


def check_lemma_c_1(seed: int) -> Checked:
    """τ_i(ê(x)) = P[H_i, X̂_{-i} = (z̃, ∅, x)_{-i}] at all i; Ḡ_i is P[X̂_i | X̂_{-i}] for i > 1, zero where impossible."""
    model, _, length = essential_instance(seed)
    prompt = draw_prompt(np.random.default_rng(seed), model.n_states)
    tokens = _behind_gap(model, length)
    tau, g = _tau(model, prompt, tokens), masked_token_probs(model, tokens, prompt).numpy()
    table, emission = _with_prompt(model, prompt, length), model.emission.numpy()
    residuals = []
    for i in range(1, length + 3):
        if i == 1:  # the prompt itself is left out: its row becomes ones
            witness = _with_prompt(model, torch.ones_like(prompt), length).given_input("h1")
        else:
            witness = table.given_input("h2") if i == 2 else table.left_out(i, f"h{i}")
        residuals.append(largest(tau[:, i - 1] - witness))  # (C.2)
        if i > 1:
            token = witness @ emission.T if i == 2 else table.token(i)
            residuals.append(largest(g[:, i - 1] - conditional(token)))
        residuals.append(largest(g[:, i - 1][witness.sum(1) == 0]))
    return Checked(largest(*residuals), _conditions(model, prompt))


def _conditions(model: HMM, prompt: Tensor) -> bool:
    """Whether a prompt is more than ones, which exclude nothing, and less than one that nothing can follow."""
    seen = prompt[(model.transition @ model.initial) > 0]
    return bool(seen.any()) and len(seen.unique()) > 1


def control_lemma_c_1(seed: int) -> float:
    """X̂ emits with (1 - u) ⊙ W at every step, not only at the first: Ḡ is no conditional probability of that process."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(3, 3, seed, zeros=0.2)
    prompt = torch.as_tensor(0.1 + 0.8 * rng.random(3))
    other = ((1 - prompt) * model.emission).numpy()
    table = joint(model, [prompt.numpy(), np.ones(3), None, None], emission=other)
    g = masked_token_probs(model, _behind_gap(model, 2), prompt).numpy()
    return largest(g[:, 1] - conditional(table.given_input("h2") @ model.emission.numpy().T))


# Lemma C.2


def check_lemma_c_2(seed: int) -> Checked:
    """P[H_2 | z̃, X̂_{3:T+2} = x] = r_x D (P[z̃, H_2] ⊙ P[H_0 | x]), r_x = Pr(x) / Pr(z̃, x); and (3.3), W times both."""
    model, _, length = essential_instance(seed)
    prompt = draw_prompt(np.random.default_rng(seed), model.n_states)
    witness = _with_prompt(model, prompt, length).given_input("h2")
    chance = witness.sum(1)
    possible = chance > 0
    start = joint(model, [None] * length).given_input("h0")
    if (start.sum(1)[possible] == 0).any():
        return Checked(np.inf, True)  # then r_x would not be positive
    right = over(start.sum(1), chance)[:, None] * lemma_c_2(model, prompt).numpy() * conditional(start)
    tokens = _behind_gap(model, length)
    # The gap is position 2 of (u, ∅, x): a state's posterior there, given all.
    mantissa, _ = aggregated_messages(model, prompted(model, prompt, tokens), slice(2, 3), own=True)
    library = conditional(mantissa[:, 0].numpy())
    g = masked_token_probs(model, tokens, prompt)[:, 1].numpy()
    equation_3_3 = largest(g[possible] - (right @ model.emission.numpy().T)[possible])
    impossible = largest(lemma_c_2(model, prompt).numpy() * conditional(start)[~possible])
    return Checked(largest(library[possible] - right[possible], equation_3_3, impossible), _conditions(model, prompt))


def control_lemma_c_2(seed: int) -> float:
    """P[H_0] misses a state that H_2 can be in: P[H_0 | x] is zero there, whatever D, and the left side is not."""
    model, missing = start_without_a_state(seed)
    left = conditional(_with_prompt(model, torch.ones(3, dtype=torch.float64), 2).given_input("h2"))
    possible = joint(model, [None] * 2).given_input() > 0
    return float((left[:, missing] * possible).max())


# Theorem 3.6


def check_theorem_3_6(seed: int) -> Checked:
    """bᵀḠ_2(ê(x)) = r_x μᵀP[H_0 | x], r_x = Pr(x) / Pr(z̃, x) > 0; both are 0 where prompt and x exclude each other.

    And each label is that of its target. Not trivial if both occur, |H*| > 1, and the prompt leaves a state out.
    """
    model, essential, length = essential_instance(seed)
    start = joint(model, [None] * length).given_input("h0")
    occurs = start.sum(1) > 0
    start, beliefs = start[occurs], conditional(start[occurs])
    weights = draw_weights(np.random.default_rng(seed), model.n_states, support=draw_subset(essential, seed))
    mu = recentred(weights, beliefs)
    prompt, head = theorem_3_6(model, mu, essential)
    chance = _with_prompt(model, prompt, length).given_input()[occurs]
    probs = masked_token_probs(model, _behind_gap(model, length), prompt)[:, 1][occurs]
    target = start @ mu.numpy()
    diagonal = (model.transition @ (prompt * (model.transition @ model.initial)) / model.initial)[essential].numpy()
    if not (diagonal > 0).all():
        return Checked(np.inf, True)  # the prompt lets H_2 miss a state of H*
    left_inverse = np.linalg.pinv(model.emission[:, essential].numpy())
    scale = max(1.0, np.linalg.norm(left_inverse.T @ (mu[essential].numpy() / diagonal)))
    error = largest(head(probs).numpy() - over(target, chance)) / scale
    wrong = mislabelled(head.label(probs), beliefs @ mu.numpy(), mu.abs().max().item())
    nontrivial = both_signs(target) and len(essential) > 1 and bool((prompt == 0).any())
    return Checked(largest(error, target[chance == 0], wrong), nontrivial)


def control_theorem_3_6(seed: int) -> float:
    """`essential_twins`: two inputs of different labels between which Ḡ_2 does not differ, whatever the prompt; 1 if so,
    and the construction refuses the model.

    What a prompt does depends on its entries only through A(u ⊙ P[H_1]); all 16 supports of u are tried.
    """
    rng = np.random.default_rng(seed)
    model = families.essential_twins(seed)
    x = torch.tensor([[1], [2]])
    target = ground_truth(model, [1.0, -1.0, 0.0, 0.0], x)
    tokens = shifted(x, 1)
    apart = 0.0
    for pattern in itertools.product((0.0, 1.0), repeat=4):
        prompt = torch.tensor(pattern, dtype=torch.float64) * torch.as_tensor(0.1 + 0.9 * rng.random(4))
        g = masked_token_probs(model, tokens, prompt)[:, 1]
        apart = largest(apart, g[0] - g[1])
    same = largest(posterior(model, x)[:, :2] - torch.eye(2, dtype=torch.float64)) < 1e-12
    refuses = refused(theorem_3_6, model, [1.0, -1.0, 0.0, 0.0], [0, 1])
    return float(refuses and same and apart < 1e-12 and target[0] > 0.5 and target[1] < -0.5)
