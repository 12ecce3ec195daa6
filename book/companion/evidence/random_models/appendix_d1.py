"""Section 4.1 and appendix D.1: Proposition D.1, Claim D.3, Lemmas D.2 and D.4, Theorem 4.3; with what D.3 shares."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from companion.evidence.enumeration import conditional, over
from companion.evidence.random_models import instances
from companion.evidence.random_models import memory_instances as cases
from companion.evidence.random_models.instances import Checked, Printed, both_signs, largest, refused
from companion.evidence.random_models.memory_instances import MemoryInstance
from hmmlib.inference import messages
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import theorems
from hmmlib.theory.assumptions import assumption_3_2
from hmmlib.theory.heads import AttentionHead


def output_residual(case: MemoryInstance) -> float:
    """How far the output is from P[X̂_i | x̂_{-i}], this from the mixture of columns of W, its weights from ours."""
    flat = case.model.emission.flatten(1).T.numpy()
    latent = messages.latent_given_others(case.model, case.inputs, case.prompt).numpy()
    residuals = []
    for i in case.positions:
        token, output = conditional(case.hat.token(i)), case.probs[:, i - 1].numpy()
        weights = conditional(case.hat.cell_and_state(i)).reshape(len(latent), -1)
        residuals.append(largest(token - weights @ flat, output - token, latent[:, i - 1] - weights))
    return largest(*residuals)


def check_proposition_d_1(seed: int) -> Checked:
    """(D.1), with the conditional on its right; and P[H_i | X = x], where the token itself counts too."""
    case = cases.sparse_instance(seed)
    posteriors = [messages.posterior(case.model, case.inputs, i).numpy() for i in case.positions]
    exact = [conditional(case.table.given_input(f"h{i}")) for i in case.positions]
    several = (case.table.cell_and_state(case.length) > 0).sum((1, 2)).max() > 1
    return Checked(largest(output_residual(case), np.stack(posteriors) - np.stack(exact)), bool(several))


def printed_proposition_d_1(seed: int) -> Printed:
    """With the joint probability on the right, as printed: too small by the factor Pr(x_{-i})."""
    case = cases.sparse_instance(seed)
    flat = case.model.emission.flatten(1).T.numpy()
    weights = [case.table.cell_and_state(i).reshape(len(case.inputs), -1) for i in case.positions]
    tokens = [conditional(case.table.token(i)) for i in case.positions]
    return instances.in_words(case.model, case.length, seed, largest(np.stack(tokens) - np.stack(weights) @ flat))


def coin() -> MemoryHMM:
    """One state, one memory value, two tokens of probability 1/2."""
    return MemoryHMM([[1.0]], [[[0.5]], [[0.5]]], [1.0], [1.0])


def counterexample_proposition_d_1() -> Printed:
    """Two tosses of `coin`: P[X_1 | X_2 = 0] is (1/2, 1/2); W times the printed joint probability is (1/4, 1/4)."""
    model, x = coin(), torch.tensor([[0, 0]])
    weights = instances.unscaled(*messages.aggregated_messages(model, model.embed(x)))[:, 0]  # P[M, J, S, X_2 = 0]
    printed = weights @ model.emission.reshape(2, -1).T.numpy()
    gap = largest(messages.masked_token_probs(model, x)[:, 0].numpy() - printed)
    return Printed(gap, 4, "one state, two tokens, length 2")


def control_proposition_d_1(seed: int) -> float:
    """Tokens that depend on a second memory cell too: (D.1) with P[X_i | M_j, H_i] is then off."""
    draw = torch.Generator().manual_seed(seed)
    emission = appendix_e.softmax_of_uniform((3, 2, 2, 2), 0.3, draw)  # x, m_0, m_1, h: state h should read cell h only
    chain = families.regular_hmm(2, 1, draw, zeros=0.0)
    prior = appendix_e.softmax_of_uniform((4,), 1.0, draw).reshape(2, 2)
    # A vanilla HMM on (m_0, m_1, h), whose memory never changes.
    transition = torch.kron(torch.eye(4, dtype=torch.float64), chain.transition)
    model = HMM(transition, emission.reshape(3, 8), torch.kron(prior.reshape(-1), chain.initial), columns=True)
    table = instances.joint(model, [None] * 2)
    weights = conditional(table.left_out(1, "h1")).reshape(-1, 2, 2, 2)
    by_cell = (  # P[X_i | M_j, H_i = j] for j = 0, 1
        torch.einsum("xmk,mk->xm", emission[..., 0], prior / prior.sum(1, keepdim=True)),
        torch.einsum("xkm,km->xm", emission[..., 1], prior / prior.sum(0)),
    )
    both = np.stack([weights[..., 0].sum(2), weights[..., 1].sum(1)], -1)
    return largest(conditional(table.token(1)) - np.einsum("xmh,nmh->nx", torch.stack(by_cell, -1).numpy(), both))


def check_claim_d_3(seed: int) -> Checked:
    """Θ^(1) G_i = P[H_i = h | x_{-i}] on H*, ‖Θ^(1) G_i‖₁ = 1, and Θ^(2,s) G_i = P[M_{j*}, H_i = (j*, s) | x_{-i}]."""
    case = cases.memory_instance(seed)
    residual = recovery_residual(case, case.chance > 0)
    return Checked(residual, case.model.n_memory > 1 and len(case.states) < case.model.n_states)


def recovery_residual(case: MemoryInstance, among: np.ndarray) -> float:
    """How far Θ^(1) and Θ^(2,s) are from reading P[H_i | …] and P[M_{j*}, H_i | …] off the output, on some inputs."""
    theta_1, theta_2, residuals = case.recovery.theta_1.numpy(), case.recovery.theta_2.numpy(), [0.0]
    for i in case.positions:
        weights = case.hat.left_out(i, f"m{case.cell}", f"h{i}")
        rows = among & (weights.sum((1, 2)) > 0)
        exact, g = conditional(weights)[rows], case.probs.numpy()[rows, i - 1]
        read = g @ theta_1.T
        residuals.append(largest(read[:, case.states] - exact.sum(1)[:, case.states]))
        residuals.append(largest(abs(read).sum(1) - 1))
        residuals.append(largest(np.einsum("smx,nx->nms", theta_2, g) - exact[:, :, case.states]))
    return largest(*residuals) / case.condition


def control_claim_d_3(seed: int, behind_prompt: bool = False) -> float:
    """`recoverable_twins`, refused: one first output for two inputs, where Pr(H_1 ∈ H*) is 1 and 0; their gap."""
    case, at = cases.twins(seed, behind_prompt), int(behind_prompt)
    return refused(lambda: case.recovery) * instances.twin_gap(case.probs[:, at], case.state_probs[:, at, :1])


def check_lemma_d_2(seed: int) -> Checked:
    """𝓘 = Î wherever Î is not empty, and the score of a position is Pr(H_i ∈ H* | x_{-i}).

    Without the last entry of q and row of Θ^(K), which only β uses, as the lemma is printed; they are zero.
    """
    case = cases.memory_instance(seed)
    last = largest(case.head.query[-1], case.head.key[-1])
    return Checked(largest(attention_residual(case, case.in_r), last), case.selective)


def attention_residual(case: MemoryInstance, rows: np.ndarray) -> float:
    """1 where attended positions are not those of `hat_sure` on some rows; else how far scores are off Pr(H_i ∈ H*)."""
    head, possible = case.head, case.chance > 0
    sure = theorems.concentrated(case.model, case.inputs, case.cell, case.syntax, case.prompt).numpy()
    if (sure != case.hat_sure)[possible].any() or (head.attended(case.probs).numpy() != case.hat_sure)[rows].any():
        return 1.0
    weights = [conditional(case.hat.left_out(i, f"h{i}"))[:, case.states] for i in case.positions]
    scores = head.scores(case.probs).numpy()[:, -case.length :]
    return largest((scores - np.stack([w.sum(1) for w in weights], 1))[possible]) / case.condition


def control_lemma_d_2(seed: int, behind_prompt: bool = False) -> float:
    """`recoverable_twins`: no output differs between two inputs, so none attends to position 1 in one only; 1 if so."""
    case = cases.twins(seed, behind_prompt)
    sure = theorems.concentrated(case.model, case.inputs, 0, case.syntax, case.prompt).double()
    return instances.twin_gap(case.probs[:, int(behind_prompt) :], sure * sure.any(1).all())


def check_lemma_d_4(seed: int) -> Checked:
    """V = r μᵀP[M_{j*} | x], r = Pr(X_i = x_i | x_{-i}), on Î, and (D.2): Θ^(V) G_i = P[M_{J_i}, J_i, S_i | x_{-i}]."""
    case = cases.memory_instance(seed)
    values = case.head.values(case.probs, case.embeddings).numpy()
    read = case.probs.numpy() @ case.head.value.T.numpy()
    want = over(case.chance[:, None], case.hat_left) * case.target[:, None]
    exact = [conditional(case.table.cell_and_state(i)).reshape(len(want), -1) for i in case.positions]
    rows = case.in_r[:, None] & case.sure
    residual = largest((values - want)[rows], (read - np.stack(exact, 1))[rows]) / case.condition
    return Checked(residual, both_signs(case.target[case.in_r]))


def control_lemma_d_4(seed: int, behind_prompt: bool = False) -> float:
    """`parity_memory_hmm`: (0, 0) and (0, 1) begin with one token and output, and their posteriors differ in sign."""
    case, both = cases.parity(seed, behind_prompt=behind_prompt), slice(0, 2)
    target = messages.memory_posterior(case.model, case.inputs[both])[:, :1] - 0.5
    return instances.twin_gap(case.probs[both, int(behind_prompt)], target * (target[0] > 0 > target[1]))


def check_theorem_4_3(seed: int) -> Checked:
    """Attn = r_x μᵀP[M_{j*} | x] for every x of 𝓡, r_x the mean of Pr(X_i = x_i | x_{-i}) over Î; any chain will do.

    And each label is that of its target, which `ground_truth` gives; where that is rounding alone, no label is sure.
    """
    case = cases.memory_instance(seed)
    model, read, rows, head = case.model, (case.probs, case.embeddings), case.in_r, case.head
    if assumption_3_2(model):
        head = theorems.theorem_4_3(model, case.mu, case.cell, case.syntax)
    residual = head_residual(case, head, read, case.chance * case.target * case.mean_inverse, rows)
    truth = theorems.ground_truth(model, case.mu, case.inputs, case.cell).numpy() - case.target
    beliefs = conditional(case.table.given_input(f"m{case.cell}"))[rows]
    tied_head = partial(theorems.attention_head, model, recovery=case.recovery)
    unsure = instances.tie_is_sure(case.mu, beliefs, lambda tied, k: tied_head(mu=tied).sure(*read)[rows][k])
    return Checked(largest(residual, truth[case.chance > 0], unsure), both_signs(case.target[rows]))


def head_residual(case: MemoryInstance, head: AttentionHead, read: tuple, want: np.ndarray, rows: np.ndarray) -> float:
    """How far scores on some rows are from what is wanted; 1 where a label is not that of its target."""
    error = largest((head(*read).numpy() - want)[rows]) / case.condition
    wrong = instances.mislabelled(head.label(*read)[rows], case.target[rows], case.mu.abs().max().item())
    return max(error, wrong)


def control_theorem_4_3(seed: int) -> float:
    """`parity_memory_hmm`: 1 where no attention head fits the inputs of length 2, and the construction refuses it.

    G is the same vector everywhere. So which positions are attended does not depend on the input, and V is a function
    of the token alone; a linear program refutes every such function for each of the three sets of positions.
    """
    n = 2 + seed % 2
    case = cases.parity(seed, n)
    # μ is 1 - 1/n on the first value and -1/n on the others: posteriors sum to 1.
    labels = messages.memory_posterior(case.model, case.inputs)[:, 0] > 1 / n
    shown = torch.nn.functional.one_hot(case.inputs, n).double()
    blind = largest(case.probs - 1 / n) < 1e-12
    fits = not instances.no_head_fits([shown[:, 0], shown[:, 1], shown.mean(1)], labels)
    return float(blind and not fits and refused(theorems.theorem_4_3, case.model, case.mu, 0, case.syntax))
