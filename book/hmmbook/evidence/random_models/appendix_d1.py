"""Section 4.1 and appendix D.1: Proposition D.1, Claim D.3, Lemmas D.2 and D.4, Theorem 4.3.

Appendix D.3 repeats these statements behind a prompt. So its checks use the residuals that are measured here.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.enumeration import conditional, over
from hmmbook.evidence.random_models import broken_assumptions, instances
from hmmbook.evidence.random_models import memory_instances as cases
from hmmbook.evidence.random_models.instances import Checked, Printed, both_signs, largest, refused
from hmmbook.evidence.random_models.memory_instances import MemoryInstance
from hmmlib.inference import messages
from hmmlib.inference.forward_backward import aggregated_messages
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import theorems
from hmmlib.theory.assumptions import assumption_3_2
from hmmlib.theory.heads import AttentionHead

# Proposition D.1


def output_residual(case: MemoryInstance) -> float:
    """Measure how far the output is from P[X̂_i | x̂_{-i}], and this from the mixture of columns of W.

    The weights of the mixture are enumerated, and compared with those of the library.
    """
    columns = case.model.emission.flatten(1).T.numpy()
    latent = messages.latent_given_others(case.model, case.inputs, case.prompt).numpy()
    residuals = []
    for i in case.positions:
        token = conditional(case.hat.token(i))
        weights = conditional(case.hat.cell_and_state(i)).reshape(len(latent), -1)
        residuals.append(largest(token - weights @ columns))
        residuals.append(largest(case.probs[:, i - 1].numpy() - token))
        residuals.append(largest(latent[:, i - 1] - weights))
    return largest(*residuals)


def check_proposition_d_1(seed: int) -> Checked:
    """(D.1), with the conditional on its right; and P[H_i | X = x], where the token itself counts too."""
    case = cases.sparse_instance(seed)
    residual = output_residual(case)
    for i in case.positions:
        posterior = messages.posterior(case.model, case.inputs, i).numpy()
        residual = largest(residual, posterior - conditional(case.table.given_input(f"h{i}")))
    possible_pairs = (case.table.cell_and_state(case.length) > 0).sum((1, 2))
    return Checked(residual, bool(possible_pairs.max() > 1))


def printed_proposition_d_1(seed: int) -> Printed:
    """With the joint probability on the right, as printed: too small by the factor Pr(x_{-i})."""
    case = cases.sparse_instance(seed)
    columns = case.model.emission.flatten(1).T.numpy()
    residual = 0.0
    for i in case.positions:
        weights = case.table.cell_and_state(i).reshape(len(case.inputs), -1)
        residual = largest(residual, conditional(case.table.token(i)) - weights @ columns)
    return instances.in_words(case.model, case.length, seed, residual)


def coin() -> MemoryHMM:
    """Return the model of one state, one memory value and two tokens of probability 1/2."""
    return MemoryHMM([[1.0]], [[[0.5]], [[0.5]]], [1.0], [1.0])


def counterexample_proposition_d_1() -> Printed:
    """Two tosses of `coin`: P[X_1 | X_2 = 0] is (1/2, 1/2); W times the printed joint probability is (1/4, 1/4)."""
    model = coin()
    tokens = torch.tensor([[0, 0]])
    tau = instances.unscaled(*aggregated_messages(model, model.embed(tokens)))
    printed = tau[:, 0] @ model.emission.reshape(2, -1).T.numpy()
    gap = largest(messages.masked_token_probs(model, tokens)[:, 0].numpy() - printed)
    return Printed(gap, 4, "one state, two tokens, length 2")


def control_proposition_d_1(seed: int) -> float:
    """Tokens that depend on a second memory cell too: (D.1) with P[X_i | M_j, H_i] is then off."""
    draw = torch.Generator().manual_seed(seed)
    emission = appendix_e.softmax_of_uniform((3, 2, 2, 2), 0.3, draw)  # x, m_0, m_1, h: state h should read cell h only
    chain = families.regular_hmm(2, 1, draw, zeros=0.0)
    prior = appendix_e.softmax_of_uniform((4,), 1.0, draw).reshape(2, 2)
    # This is a vanilla HMM on (m_0, m_1, h), whose memory never changes.
    transition = torch.kron(torch.eye(4, dtype=torch.float64), chain.transition)
    initial = torch.kron(prior.reshape(-1), chain.initial)
    model = HMM(transition, emission.reshape(3, 8), initial, columns=True)
    table = instances.joint(model, [None] * 2)
    weights = conditional(table.left_out(1, "h1")).reshape(-1, 2, 2, 2)

    # P[X_i | M_j, H_i = j] averages over the cell that should not count.
    second_given_first = prior / prior.sum(1, keepdim=True)
    first_given_second = prior / prior.sum(0)
    given_first = torch.einsum("xmk,mk->xm", emission[..., 0], second_given_first)
    given_second = torch.einsum("xkm,km->xm", emission[..., 1], first_given_second)
    columns = torch.stack([given_first, given_second], -1).numpy()
    first_cell = weights[..., 0].sum(2)
    second_cell = weights[..., 1].sum(1)
    mixture = np.einsum("xmh,nmh->nx", columns, np.stack([first_cell, second_cell], -1))
    return largest(conditional(table.token(1)) - mixture)


# Claim D.3


def recovery_residual(case: MemoryInstance, among: np.ndarray) -> float:
    """Measure how far Θ^(1) and Θ^(2,s) are from reading P[H_i | …] and P[M_{j*}, H_i | …] off the output.

    Args:
        case: The instance.
        among: The inputs that count, (n,) bool.
    """
    theta_1 = case.recovery.theta_1.numpy()
    theta_2 = case.recovery.theta_2.numpy()
    residuals = [0.0]
    for i in case.positions:
        weights = case.hat.left_out(i, f"m{case.cell}", f"h{i}")
        rows = among & (weights.sum((1, 2)) > 0)
        exact = conditional(weights)[rows]
        output = case.probs.numpy()[rows, i - 1]
        states_read = output @ theta_1.T
        memory_read = np.einsum("smx,nx->nms", theta_2, output)
        residuals.append(largest((states_read - exact.sum(1))[:, case.states]))
        residuals.append(largest(abs(states_read).sum(1) - 1))
        residuals.append(largest(memory_read - exact[:, :, case.states]))
    return largest(*residuals) / case.condition


def check_claim_d_3(seed: int) -> Checked:
    """Θ^(1) G_i = P[H_i = h | x_{-i}] on H*, ‖Θ^(1) G_i‖₁ = 1, and Θ^(2,s) G_i = P[M_{j*}, H_i = (j*, s) | x_{-i}]."""
    case = cases.memory_instance(seed)
    nontrivial = case.model.n_memory > 1 and len(case.states) < case.model.n_states
    return Checked(recovery_residual(case, case.chance > 0), nontrivial)


def control_claim_d_3(seed: int, behind_prompt: bool = False) -> float:
    """`recoverable_twins`, refused: one first output for two inputs, where Pr(H_1 ∈ H*) is 1 and 0; their gap."""
    case = broken_assumptions.twins(seed, behind_prompt)
    first = int(behind_prompt)
    in_states = case.state_probs[:, first, :1]
    gap = instances.twin_gap(case.probs[:, first], in_states)
    return refused(lambda: case.recovery) * gap


# Lemma D.2


def attention_residual(case: MemoryInstance, rows: np.ndarray) -> float:
    """Measure how far attention scores are from Pr(H_i ∈ H*).

    Args:
        case: The instance.
        rows: The inputs on which the attended positions have to be those of `hat_sure`, (n,) bool.

    Returns:
        The residual, or 1 where attended positions are others.
    """
    possible = case.chance > 0
    wrongly_sure = case.concentrated.numpy() != case.hat_sure
    wrongly_attended = case.head.attended(case.probs).numpy() != case.hat_sure
    if wrongly_sure[possible].any() or wrongly_attended[rows].any():
        return 1.0
    in_states = []
    for i in case.positions:
        states = conditional(case.hat.left_out(i, f"h{i}"))
        in_states.append(states[:, case.states].sum(1))
    scores = case.head.scores(case.probs).numpy()[:, -case.length :]
    return largest((scores - np.stack(in_states, 1))[possible]) / case.condition


def check_lemma_d_2(seed: int) -> Checked:
    """𝓘 = Î wherever Î is not empty, and the score of a position is Pr(H_i ∈ H* | x_{-i}).

    The lemma is printed without the last entry of q and row of Θ^(K), which only β uses. So they have to be zero.
    """
    case = cases.memory_instance(seed)
    last = largest(case.head.query[-1], case.head.key[-1])
    return Checked(largest(attention_residual(case, case.in_r), last), case.selective)


def control_lemma_d_2(seed: int, behind_prompt: bool = False) -> float:
    """`recoverable_twins`: no output differs between two inputs, so none attends to position 1 in one only; 1 if so."""
    case = broken_assumptions.twins(seed, behind_prompt)
    sure = case.concentrated.double()
    both_in_r = sure.any(1).all()
    return instances.twin_gap(case.probs[:, int(behind_prompt) :], sure * both_in_r)


# Lemma D.4


def check_lemma_d_4(seed: int) -> Checked:
    """V = r μᵀP[M_{j*} | x], r = Pr(X_i = x_i | x_{-i}), on Î, and (D.2): Θ^(V) G_i = P[M_{J_i}, J_i, S_i | x_{-i}]."""
    case = cases.memory_instance(seed)
    values = case.head.values(case.probs, case.embeddings).numpy()
    ratio = over(case.chance[:, None], case.hat_left)
    expected = ratio * case.target[:, None]
    cell_and_state = case.probs.numpy() @ case.head.value.T.numpy()
    exact = []
    for i in case.positions:
        weights = conditional(case.table.cell_and_state(i))
        exact.append(weights.reshape(len(expected), -1))
    rows = case.in_r[:, None] & case.sure
    mixture_error = cell_and_state - np.stack(exact, 1)
    residual = largest((values - expected)[rows], mixture_error[rows])
    return Checked(residual / case.condition, both_signs(case.target[case.in_r]))


def control_lemma_d_4(seed: int, behind_prompt: bool = False) -> float:
    """`parity_memory_hmm`: (0, 0) and (0, 1) begin with one token and output, and their posteriors differ in sign."""
    case = broken_assumptions.parity(seed, behind_prompt=behind_prompt)
    beliefs = messages.memory_posterior(case.model, case.inputs[:2])
    target = beliefs[:, :1] - 0.5
    signs_differ = target[0] > 0 > target[1]
    return instances.twin_gap(case.probs[:2, int(behind_prompt)], target * signs_differ)


# Theorem 4.3


def head_residual(
    case: MemoryInstance,
    head: AttentionHead,
    read: tuple[Tensor, Tensor],
    expected: np.ndarray,
    rows: np.ndarray,
) -> float:
    """Measure how far an attention head's scores are from what is expected of them.

    Args:
        case: The instance.
        head: The head.
        read: What the head reads, outputs and embeddings.
        expected: The expected scores, (n,).
        rows: The inputs that count, (n,) bool.

    Returns:
        The residual, or 1 where a label is not that of its target.
    """
    error = largest((head(*read).numpy() - expected)[rows]) / case.condition
    labels = head.label(*read)[rows]
    wrong = instances.mislabelled(labels, case.target[rows], largest(case.mu))
    return max(error, wrong)


def check_theorem_4_3(seed: int) -> Checked:
    """Attn = r_x μᵀP[M_{j*} | x] for every x of 𝓡, r_x the mean of Pr(X_i = x_i | x_{-i}) over Î; any chain will do.

    Each label is that of its target, which `ground_truth` gives. Where that is rounding alone, no label is sure.
    """
    case = cases.memory_instance(seed)
    model = case.model
    read = (case.probs, case.embeddings)
    head = case.head
    if assumption_3_2(model):
        head = theorems.theorem_4_3(model, case.mu, case.cell, case.syntax)
    expected = case.chance * case.target * case.mean_inverse
    residual = head_residual(case, head, read, expected, case.in_r)

    truth = theorems.ground_truth(model, case.mu, case.inputs, case.cell).numpy()
    truth_error = (truth - case.target)[case.chance > 0]

    def sure_of(tied: Tensor, k: int) -> Tensor:
        tied_head = theorems.attention_head(model, tied, case.recovery)
        return tied_head.sure(*read)[case.in_r][k]

    unsure = instances.tie_is_sure(case.mu, case.beliefs[case.in_r], sure_of)
    return Checked(largest(residual, truth_error, unsure), both_signs(case.target[case.in_r]))


def control_theorem_4_3(seed: int) -> float:
    """`parity_memory_hmm`: 1 where no attention head fits the inputs of length 2, and the construction refuses it.

    G is the same vector everywhere. So which positions are attended does not depend on the input, and V is a function
    of the token alone. A linear program refutes every such function for each of the three sets of positions.
    """
    n = 2 + seed % 2
    case = broken_assumptions.parity(seed, n)
    # The task weighs the first value by 1 - 1/n and the others by -1/n, because posteriors sum to 1.
    labels = messages.memory_posterior(case.model, case.inputs)[:, 0] > 1 / n
    shown = torch.nn.functional.one_hot(case.inputs, n).double()
    blind = largest(case.probs - 1 / n) < 1e-12
    functions = [shown[:, 0], shown[:, 1], shown.mean(1)]
    refuted = instances.no_head_fits(functions, labels)
    refuses = refused(theorems.theorem_4_3, case.model, case.mu, 0, case.syntax)
    return float(blind and refuted and refuses)
