"""Beyond the paper: the certificate of a head, when prompt and head are exact, what a prompt may do to a network."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from companion.evidence.random_models import instances
from companion.evidence.random_models.instances import Checked, both_signs, draw_prompt, largest, mislabelled
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM
from hmmlib.theory import certificates
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import Impossible
from hmmlib.theory.theorems import lemma_c_2, theorem_3_3


def _prompted_model(seed: int) -> tuple[HMM, Tensor, Tensor, Tensor]:
    """A regular chain, D of Lemma C.2 for a prompt that lets some state through, P[H_0 | x] and Ḡ_2 of all inputs."""
    rng = np.random.default_rng(seed)
    sizes, zeros = (int(rng.integers(2, 5)), int(rng.integers(2, 4))), float(rng.random()) * 0.5
    model = families.regular_hmm(*sizes, seed, zeros)
    prompt = draw_prompt(rng, model.n_states).clamp(min=0.05 * (rng.random() < 0.5))
    prompt[int(rng.integers(model.n_states))] = 1
    inputs, beliefs = instances.possible_inputs(model, instances.draw_length(rng, model, 3, extra=2))
    probs = masked_token_probs(model, instances.shifted(inputs, 1), prompt)[:, 1]
    return model, lemma_c_2(model, prompt), beliefs, probs


def _planted(seed: int) -> tuple[HMM, Tensor, LinearHead, Tensor, Tensor, Tensor]:
    """The same with a head of which nothing is assumed, and the ν of the scores.

    The head scores some of these outputs below 0 and others above, unless all agree.
    """
    model, diagonal, beliefs, probs = _prompted_model(seed)
    weights = torch.as_tensor(np.random.default_rng([seed, 3]).normal(size=model.n_tokens))
    scores = probs[probs.any(1)] @ weights
    head = LinearHead(weights - (scores.min() + scores.max()) / 2)
    return model, diagonal, head, diagonal * (head.weights @ model.emission), beliefs, probs


def check_certificate(seed: int) -> Checked:
    """An input that is certified at a distance ε keeps its label where half of ε moves from one token to another.

    That is the worst that a guess which sums to 1 can do.
    """
    rng = np.random.default_rng([seed, 1])
    model, diagonal, beliefs, probs = _prompted_model(seed)
    mu = instances.recentred(instances.draw_weights(rng, model.n_states), beliefs.numpy())
    distance = float(rng.random()) * 0.3
    head, made = certificates.nearest_head(model, mu, diagonal, slack=float(rng.random()) * 0.2)
    possible, holds = probs.any(1), made.holds(beliefs, distance)
    target = beliefs @ mu
    moved = torch.zeros_like(probs)
    moved[:, head.weights.argmax()] += distance / 2
    moved[:, head.weights.argmin()] -= distance / 2
    spoilt = probs - torch.where(target >= 0, 1, -1).unsqueeze(1) * moved
    wrong = (spoilt @ head.weights >= 0) != (target >= 0)
    return Checked(float((wrong & holds & possible).any()), bool((holds & possible).any() and not holds.all()))


def control_certificate(seed: int) -> float:
    """A guess that does not sum to 1: at the largest ε that certifies a text, all on one token turns its label."""
    model, diagonal, head, mu, beliefs, probs = _planted(seed)
    if not mu.any():  # only one distribution of tokens is possible: there is no label to turn
        return 0.0
    made = certificates.certificate(model, mu, head, diagonal)
    target, possible = beliefs @ mu, probs.any(1)
    distance = 0.999 * target.abs() / (made.spread * (beliefs @ diagonal)).clamp(min=1e-300)
    within = possible & (distance < 2) & made.holds(beliefs, distance.clamp(max=2))
    most = int(head.weights.abs().argmax())
    spoilt = probs @ head.weights - torch.where(target >= 0, 1, -1) * distance * head.weights[most].abs()
    return float(((spoilt >= 0) != (target >= 0))[within].any())


def check_exactness(seed: int) -> Checked:
    """b·Ḡ_2 dᵀp = νᵀp; and the task μ = ν / λ, for a λ > 0, gets every label right, whatever W and A are."""
    _, diagonal, head, score, beliefs, probs = _planted(seed)
    mu = score * float(np.random.default_rng([seed, 4]).uniform(0.1, 10))
    scale = max(1.0, head.weights.abs().max().item() * (beliefs @ diagonal).max().item())
    apart = largest(head(probs) * (beliefs @ diagonal) - beliefs @ score) / scale
    wrong = mislabelled(head.label(probs), (beliefs @ mu).numpy(), 10 * scale)
    return Checked(max(apart, wrong), both_signs((beliefs @ score).numpy()))


def control_exactness(seed: int) -> float:
    """One entry of μ differs by a half: a belief on a state or an edge, found as in the proof, gets the wrong label."""
    _, _, _, score, _, _ = _planted(seed)
    if not score.min() < 0 < score.max():
        return 0.0
    mu = score.clone()
    mu[int(mu.abs().argmax())] *= 1.5
    belief = certificates.refuting_belief(mu, score)
    if belief is None:
        return 0.0
    return float(abs(belief.sum() - 1) < 1e-12 and (belief @ mu >= 0) != (belief @ score >= 0))


def _permuted(seed: int) -> tuple[HMM, Tensor]:
    """A chain that permutes its states, with more of them than tokens, and the random scores of a head."""
    rng, n_tokens = np.random.default_rng(seed), 3
    n_states = n_tokens + int(rng.integers(1, 3))
    chain = torch.eye(n_states, dtype=torch.float64)[rng.permutation(n_states)]
    emission = appendix_e.random_hmm(n_states, n_tokens, seed, temperature=1.0).emission
    model = HMM(chain, emission, rng.dirichlet(np.full(n_states, 2.0)), columns=True)
    scores = torch.as_tensor(rng.normal(size=n_tokens)) @ emission
    return model, scores - (scores.min() + scores.max()) / 2


def check_separable_signs(seed: int) -> Checked:
    """Weights of any size with the signs that a head can give the states: every possible input gets the right label."""
    rng = np.random.default_rng([seed, 5])
    model, votes = _permuted(seed)
    size = torch.as_tensor(rng.uniform(0.1, 3, model.n_states) * (rng.random(model.n_states) < 0.8))
    mu = torch.where(votes.abs() > 0.02 * votes.abs().max(), votes.sign(), 0) * size
    if not mu.any():
        return Checked(0.0, False)
    found = certificates.separating_head(model, mu)
    if not isinstance(found, LinearHead):
        return Checked(np.inf, True)
    prompt, head = certificates.prompt_for_separating_head(model, mu, found)
    inputs, beliefs = instances.possible_inputs(model, 3)
    probs = masked_token_probs(model, instances.shifted(inputs, 1), prompt)[:, 1]
    target, scale = (beliefs @ mu).numpy(), mu.abs().max().item()
    error = certificates.certificate(model, mu, head, lemma_c_2(model, prompt)).error / scale
    return Checked(max(error, mislabelled(head.label(probs), target, scale)), both_signs(target))


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
    prompt, head, _ = certificates.alternate(model, mu, torch.full_like(mu, 0.5), rounds=3)
    score = lemma_c_2(model, prompt) * (head.weights @ emission)
    belief = certificates.refuting_belief(mu, score) if score.any() else torch.eye(model.n_states)[0]
    return float(isinstance(verdict, Impossible) and verdict.residual < 1e-9 and belief is not None)


def _classes(seed: int) -> tuple[Tensor, Tensor]:
    """Three classes' scores by Theorem 3.3 of every possible input, and what they should rank, both (n, 3)."""
    rng = np.random.default_rng(seed)
    model = instances.non_degenerate(rng, seed)
    while model.n_states == 1:
        model = instances.non_degenerate(rng, int(rng.integers(2**31)))
    weights = torch.as_tensor(rng.normal(size=(3, model.n_states)))
    inputs, beliefs = instances.possible_inputs(model, 2)
    heads = torch.stack([theorem_3_3(model, mu).weights for mu in weights], 1)
    return masked_token_probs(model, instances.shifted(inputs, 1))[:, 0] @ heads, beliefs @ weights.T


def check_several_classes(seed: int) -> Checked:
    """The heads' scores are the classes' μ_kᵀp times one r_x for all, so that the largest is the right class's."""
    scores, targets = _classes(seed)
    top = targets.topk(2).values
    clear = top[:, 0] - top[:, 1] > 1e-6
    wrong = (scores.argmax(1) != targets.argmax(1))[clear].any()
    return Checked(float(wrong), len(targets[clear].argmax(1).unique()) > 1)


def control_several_classes(seed: int) -> float:
    """Each head with a scale of its own, ten and a tenth: then some input that can occur gets the wrong class."""
    scores, targets = _classes(seed)
    scaled = scores * torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)
    return float((scaled.argmax(1) != targets.argmax(1)).any())


def check_relabelling(seed: int) -> Checked:
    """One layer of |H||X| gated units gives W p without a prompt's signal, and R p with that of any R of 0 and 1."""
    rng = np.random.default_rng(seed)
    model = families.sparse_hmm(int(rng.integers(1, 6)), int(rng.integers(1, 5)), seed)
    beliefs = torch.as_tensor(rng.dirichlet(np.full(model.n_states, 0.5), 20))
    words = rng.integers(0, model.n_tokens, model.n_states).tolist()
    relabelled = torch.zeros(model.n_tokens, model.n_states, dtype=torch.float64)
    relabelled[words, range(model.n_states)] = 1
    signals = None, certificates.signal_for(words, model.n_tokens)
    plain, behind = (certificates.gated_readout(model.emission, beliefs, signal) for signal in signals)
    residual = largest((plain - beliefs @ model.emission.T).numpy(), (behind - beliefs @ relabelled.T).numpy())
    return Checked(residual, largest((behind - plain).numpy()) > 1e-3)


def control_relabelling(seed: int) -> float:
    """Without gates a signal adds the same to every guess: for two beliefs, R p and W p do not differ by the same."""
    rng = np.random.default_rng(seed)
    model = appendix_e.random_hmm(3, 3, seed, temperature=0.5)
    relabelled = torch.eye(3, dtype=torch.float64)[rng.permutation(3)]
    beliefs = torch.as_tensor(rng.dirichlet(np.ones(3), 2))
    added = beliefs @ relabelled.T - beliefs @ model.emission.T
    return largest((added[0] - added[1]).numpy())
