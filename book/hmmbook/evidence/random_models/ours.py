"""Beyond the paper: the certificate of a head, when prompt and head are exact, what a prompt may do to a network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.random_models import instances
from hmmbook.evidence.random_models.instances import Checked, both_signs, draw_prompt, largest, mislabelled
from hmmbook.evidence.statement import Statement
from hmmbook.studies import certificates
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import Impossible
from hmmlib.theory.theorems import lemma_c_2, theorem_3_3

# The certificate, and exactness


class Prompted(NamedTuple):
    """A regular chain behind a prompt, and all possible inputs of a length."""

    model: HMM
    diagonal: Tensor  # D of Lemma C.2 for the prompt, (S,)
    beliefs: Tensor  # P[H_0 | x], (n, S)
    probs: Tensor  # Ḡ_2, (n, X)


def _prompted(seed: int) -> Prompted:
    """Draw a chain and a prompt that lets some state through."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(2, 5))
    n_tokens = int(rng.integers(2, 4))
    model = families.regular_hmm(n_states, n_tokens, seed, float(rng.random()) * 0.5)
    prompt = draw_prompt(rng, n_states).clamp(min=0.05 * (rng.random() < 0.5))
    prompt[int(rng.integers(n_states))] = 1
    inputs, beliefs = instances.possible_inputs(model, instances.draw_length(rng, model, 3, extra=2))
    probs = masked_token_probs(model, instances.shifted(inputs, 1), prompt)[:, 1]
    return Prompted(model, lemma_c_2(model, prompt), beliefs, probs)


def _planted_head(case: Prompted, seed: int) -> tuple[LinearHead, Tensor]:
    """Draw a head of which nothing is assumed, and return the ν of its scores.

    The head scores some outputs below 0 and others above, unless all agree.
    """
    rng = np.random.default_rng([seed, 3])
    weights = torch.as_tensor(rng.normal(size=case.model.n_tokens))
    scores = case.probs[case.probs.any(1)] @ weights
    head = LinearHead(weights - (scores.min() + scores.max()) / 2)
    return head, case.diagonal * (head.weights @ case.model.emission)


def _signs(target: Tensor) -> Tensor:
    """1 where the label is 1, else -1."""
    return torch.where(target >= 0, 1, -1)


def check_certificate(seed: int) -> Checked:
    """An input that is certified at a distance ε keeps its label where half of ε moves from one token to another.

    That is the worst that a guess which sums to 1 can do.
    """
    rng = np.random.default_rng([seed, 1])
    case = _prompted(seed)
    weights = instances.draw_weights(rng, case.model.n_states)
    mu = instances.recentred(weights, case.beliefs.numpy())
    distance = float(rng.random()) * 0.3
    slack = float(rng.random()) * 0.2
    head, certificate = certificates.nearest_head(case.model, mu, case.diagonal, slack=slack)
    possible = case.probs.any(1)
    certified = certificate.holds(case.beliefs, distance)

    target = case.beliefs @ mu
    moved = torch.zeros_like(case.probs)
    moved[:, head.weights.argmax()] += distance / 2
    moved[:, head.weights.argmin()] -= distance / 2
    spoilt = case.probs - _signs(target).unsqueeze(1) * moved
    wrong = (spoilt @ head.weights >= 0) != (target >= 0)
    nontrivial = bool((certified & possible).any() and not certified.all())
    return Checked(float((wrong & certified & possible).any()), nontrivial)


def control_certificate(seed: int) -> float:
    """A guess that does not sum to 1: at the largest ε that certifies a text, all on one token turns its label."""
    case = _prompted(seed)
    head, mu = _planted_head(case, seed)
    if not mu.any():  # Only one distribution of tokens is possible, so there is no label to turn.
        return 0.0
    certificate = certificates.certificate(case.model, mu, head, case.diagonal)
    target = case.beliefs @ mu
    loss = certificate.spread * (case.beliefs @ case.diagonal)  # Of the target, for each unit of the distance.
    distance = 0.999 * target.abs() / loss.clamp(min=1e-300)
    possible = case.probs.any(1)
    certified = certificate.holds(case.beliefs, distance.clamp(max=2))
    certified &= possible & (distance < 2)
    largest_weight = head.weights.abs().max()
    spoilt = case.probs @ head.weights - _signs(target) * distance * largest_weight
    turned = (spoilt >= 0) != (target >= 0)
    return float(turned[certified].any())


def check_exactness(seed: int) -> Checked:
    """b·Ḡ_2 dᵀp = νᵀp; and the task μ = ν / λ, for a λ > 0, gets every label right, whatever W and A are."""
    case = _prompted(seed)
    head, score = _planted_head(case, seed)
    rng = np.random.default_rng([seed, 4])
    mu = score * float(rng.uniform(0.1, 10))
    ratio = case.beliefs @ case.diagonal
    scale = max(1.0, largest(head.weights) * largest(ratio))
    apart = largest(head(case.probs) * ratio - case.beliefs @ score) / scale
    target = (case.beliefs @ mu).numpy()
    wrong = mislabelled(head.label(case.probs), target, 10 * scale)
    return Checked(max(apart, wrong), both_signs((case.beliefs @ score).numpy()))


def control_exactness(seed: int) -> float:
    """One entry of μ differs by a half: a belief on a state or an edge, found as in the proof, gets the wrong label."""
    _, score = _planted_head(_prompted(seed), seed)
    if not score.min() < 0 < score.max():
        return 0.0
    mu = score.clone()
    mu[int(mu.abs().argmax())] *= 1.5
    belief = certificates.refuting_belief(mu, score)
    if belief is None:
        return 0.0
    labels_differ = (belief @ mu >= 0) != (belief @ score >= 0)
    return float(abs(belief.sum() - 1) < 1e-12 and labels_differ)


# Separable signs


def _permuted(seed: int) -> tuple[HMM, Tensor]:
    """A chain that permutes its states, of which it has more than tokens, and the scores of a random head, (S,)."""
    rng = np.random.default_rng(seed)
    n_tokens = 3
    n_states = n_tokens + int(rng.integers(1, 3))
    chain = torch.eye(n_states, dtype=torch.float64)[rng.permutation(n_states)]
    emission = appendix_e.random_hmm(n_states, n_tokens, seed, temperature=1.0).emission
    start = rng.dirichlet(np.full(n_states, 2.0))
    model = HMM(chain, emission, start, columns=True)
    scores = torch.as_tensor(rng.normal(size=n_tokens)) @ emission
    return model, scores - (scores.min() + scores.max()) / 2


def check_separable_signs(seed: int) -> Checked:
    """Weights of any size with the signs that a head can give the states: every possible input gets the right label."""
    rng = np.random.default_rng([seed, 5])
    model, scores = _permuted(seed)
    sizes = rng.uniform(0.1, 3, model.n_states)
    sizes *= rng.random(model.n_states) < 0.8
    clear = scores.abs() > 0.02 * scores.abs().max()
    mu = torch.where(clear, scores.sign(), 0) * torch.as_tensor(sizes)
    if not mu.any():
        return Checked(0.0, False)
    separating = certificates.separating_head(model, mu)
    if not isinstance(separating, LinearHead):
        return Checked(np.inf, True)
    prompt, head = certificates.prompt_for_separating_head(model, mu, separating)
    inputs, beliefs = instances.possible_inputs(model, 3)
    probs = masked_token_probs(model, instances.shifted(inputs, 1), prompt)[:, 1]
    target = (beliefs @ mu).numpy()
    scale = largest(mu)
    certificate = certificates.certificate(model, mu, head, lemma_c_2(model, prompt))
    wrong = mislabelled(head.label(probs), target, scale)
    return Checked(max(certificate.error / scale, wrong), both_signs(target))


def control_separable_signs(seed: int) -> float:
    """A state of negative weight emits like a mixture of two of positive weight.

    A linear program refutes every head, and behind the best prompt that is found some belief gets the wrong label.
    """
    model, _ = _permuted(seed)
    emission = model.emission.clone()
    emission[:, 0] = 0.3 * emission[:, 1] + 0.7 * emission[:, 2]
    model = HMM(model.transition, emission, model.initial, columns=True)
    mu = torch.zeros(model.n_states, dtype=torch.float64)
    mu[:3] = torch.tensor([-1.0, 0.5, 2.0])
    verdict = certificates.separating_head(model, mu)
    refuted = isinstance(verdict, Impossible) and verdict.residual < 1e-9

    start = torch.full_like(mu, 0.5)
    prompt, head, _ = certificates.alternate(model, mu, start, rounds=3)
    score = lemma_c_2(model, prompt) * (head.weights @ emission)
    some_belief_wrong = not score.any() or certificates.refuting_belief(mu, score) is not None
    return float(refuted and some_belief_wrong)


# Several classes


def _classes(seed: int) -> tuple[Tensor, Tensor]:
    """Three classes' scores by Theorem 3.3 of every possible input, and what they should rank, both (n, 3)."""
    rng = np.random.default_rng(seed)
    model = instances.non_degenerate(rng, seed)
    while model.n_states == 1:
        model = instances.non_degenerate(rng, int(rng.integers(2**31)))
    tasks = torch.as_tensor(rng.normal(size=(3, model.n_states)))
    inputs, beliefs = instances.possible_inputs(model, 2)
    heads = torch.stack([theorem_3_3(model, mu).weights for mu in tasks], 1)
    probs = masked_token_probs(model, instances.shifted(inputs, 1))[:, 0]
    return probs @ heads, beliefs @ tasks.T


def check_several_classes(seed: int) -> Checked:
    """The heads' scores are the classes' μ_kᵀp times one r_x for all, so that the largest is the right class's."""
    scores, targets = _classes(seed)
    first, second = targets.topk(2).values.T
    clear = first - second > 1e-6
    classes = targets.argmax(1)
    wrong = (scores.argmax(1) != classes)[clear].any()
    return Checked(float(wrong), len(classes[clear].unique()) > 1)


def control_several_classes(seed: int) -> float:
    """Each head with a scale of its own, ten and a tenth: then some input that can occur gets the wrong class."""
    scores, targets = _classes(seed)
    scaled = scores * torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)
    return float((scaled.argmax(1) != targets.argmax(1)).any())


# Relabelling


def check_relabelling(seed: int) -> Checked:
    """One layer of |H||X| gated units gives W p without a prompt's signal, and R p with that of any R of 0 and 1."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(1, 6))
    n_tokens = int(rng.integers(1, 5))
    model = families.sparse_hmm(n_states, n_tokens, seed)
    beliefs = torch.as_tensor(rng.dirichlet(np.full(n_states, 0.5), 20))
    tokens = rng.integers(0, n_tokens, n_states).tolist()
    relabelled = torch.zeros(n_tokens, n_states, dtype=torch.float64)
    relabelled[tokens, range(n_states)] = 1

    signal = certificates.signal_for(tokens, n_tokens)
    plain = certificates.gated_readout(model.emission, beliefs, None)
    behind_prompt = certificates.gated_readout(model.emission, beliefs, signal)
    residual = largest(plain - beliefs @ model.emission.T, behind_prompt - beliefs @ relabelled.T)
    return Checked(residual, largest(behind_prompt - plain) > 1e-3)


def control_relabelling(seed: int) -> float:
    """Without gates a signal adds the same to every guess: for two beliefs, R p and W p do not differ by the same."""
    rng = np.random.default_rng(seed)
    model = appendix_e.random_hmm(3, 3, seed, temperature=0.5)
    relabelled = torch.eye(3, dtype=torch.float64)[rng.permutation(3)]
    beliefs = torch.as_tensor(rng.dirichlet(np.ones(3), 2))
    added = beliefs @ relabelled.T - beliefs @ model.emission.T
    return largest(added[0] - added[1])


# The entries of the ledger

SOLVABLE = "notebooks/solvable"

STATEMENTS = (
    Statement(
        name="Certificate",
        page=SOLVABLE,
        label="ours-thm-O-3",
        claim="Any guess within ε of Ḡ that sums to 1 gets the right label where |μᵀp| > δ + ε κ dᵀp.",
        check=check_certificate,
        broken="the guess sums to 1",
        control=control_certificate,
        # Some models have no text that can be certified.
        least_share=0.8,
    ),
    Statement(
        name="Exactness",
        page=SOLVABLE,
        label="ours-thm-O-2",
        claim=(
            "If μ takes both signs, prompt and head are right for every belief if and only if ν is a positive "
            "multiple of μ."
        ),
        check=check_exactness,
        broken="ν is a multiple of μ",
        control=control_exactness,
        # Some ν have one sign only.
        least_share=0.8,
    ),
    Statement(
        name="Separable signs",
        page=SOLVABLE,
        label="ours-thm-O-4",
        claim=(
            "If A is a permutation, prompt and head exist for a task if and only if some head gives the columns of W "
            "scores with the signs of μ."
        ),
        check=check_separable_signs,
        broken="a head gives the columns of W the signs of μ",
        control=control_separable_signs,
    ),
    Statement(
        name="Several classes",
        page=SOLVABLE,
        label="ours-cor-O-5",
        claim=(
            "With independent columns of W, one head for each class ranks the classes of every possible x as μₖᵀp does."
        ),
        check=check_several_classes,
        broken="one rₓ for all classes",
        control=control_several_classes,
        # One class may win on all short inputs.
        least_share=0.4,
    ),
    Statement(
        name="Relabelling",
        page=SOLVABLE,
        label="ours-prop-O-1",
        claim=(
            "|H||X| gated units output W p without a prompt, and R p with one, for any R that gives each state one "
            "token."
        ),
        check=check_relabelling,
        broken="the gates",
        control=control_relabelling,
    ),
)
