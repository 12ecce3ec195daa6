"""Downstream tasks, and the two ways of solving them with a frozen network: head tuning and prompt tuning (Section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertForMaskedLM

from hmmlib.bert import logits_at, to_ids
from hmmlib.heads import LinearHead
from hmmlib.hmm import HMM, MASK, as_generator
from hmmlib.messages import posterior
from hmmlib.theorems import lemma_c_2

NONZERO = 6
"""Nonzero entries of μ (appendix E)."""
REDRAWS = 20
"""How often μ is drawn again, at most, while all training labels agree."""


class Task(NamedTuple):
    """A labelled data set. `tokens` (n, T) begin with MASK; `labels` (n,) bool; `mu` (S,); `redraws` of μ; `sizes` sum to n."""

    tokens: Tensor
    labels: Tensor
    mu: Tensor
    redraws: int
    sizes: tuple[int, int, int]

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Training, validation and test part of anything that has one entry for each sequence."""
        return values.split(self.sizes)


def draw_mu(n_states: int, generator: torch.Generator) -> Tensor:
    """Task weights μ, (S,): the difference of the two rows of a 2 × S matrix with six standard normal entries.

    Appendix E labels by the larger of two scores, which is the sign of their difference. The positions of the six are
    distinct and uniform over the 2S entries; with fewer entries than six, all are drawn.
    """
    rows = torch.zeros(2 * n_states, dtype=torch.float64)
    chosen = torch.randperm(2 * n_states, generator=generator)[:NONZERO]
    rows[chosen] = torch.randn(len(chosen), generator=generator, dtype=torch.float64)
    return rows[:n_states] - rows[n_states:]


def draw_task(model: HMM, length: int, sizes: tuple[int, int, int], seed: int, before: bool = False) -> Task:
    """Sequences of `length` whose first token is MASK, labelled by μᵀP[H_1 | X_{-1}] ≥ 0 (Section 5).

    With `before`, the text behind the mask is sampled from the start, and labelled by μᵀP[H_0 | X_{1:T} = x] as in
    (3.1); so tokens are (MASK, x), as the theorems of Section 3 have them. While all training labels agree, μ is drawn
    again, at most REDRAWS times; after that the one-class task stays.
    """
    generator = as_generator(seed)
    if before:
        text = model.sample(sum(sizes), length - 1, generator).tokens
        tokens, posteriors = F.pad(text, (1, 0), value=MASK), posterior(model, text, at=0)
    else:
        tokens = model.sample(sum(sizes), length, generator).tokens
        tokens[:, 0] = MASK
        posteriors = posterior(model, tokens, at=1)
    for redraws in range(REDRAWS + 1):
        mu = draw_mu(model.n_states, generator)
        labels = posteriors @ mu >= 0
        if 0 < labels[: sizes[0]].sum() < sizes[0]:
            break
    return Task(tokens, labels, mu, redraws, sizes)


@dataclass(frozen=True)
class Tuning:
    """How to tune: passes over the training examples, batch size, AdamW's rates; linear warm-up over a tenth, then decay."""

    epochs: int
    batch: int
    head_rate: float
    prompt_rate: float


def probs_at_mask(network: BertForMaskedLM, tokens: Tensor, prompt: Tensor | None = None) -> Tensor:
    """The network's distribution at the first token of each sequence, (n, X), with `prompt` (P, width) put before it."""
    embeddings = network.get_input_embeddings()(to_ids(network, tokens))
    length = 0 if prompt is None else len(prompt)
    if length:
        embeddings = torch.cat([prompt.expand(len(tokens), -1, -1), embeddings], dim=1)
    positions = torch.full((len(tokens), 1), length, device=embeddings.device)
    return logits_at(network, embeddings, positions).squeeze(1).softmax(-1)


@torch.no_grad()
def all_probs_at_mask(network: BertForMaskedLM, tokens: Tensor, prompt: Tensor | None = None) -> Tensor:
    """`probs_at_mask` in blocks, without gradients."""
    return torch.cat([probs_at_mask(network, part, prompt) for part in tokens.split(512)])


def _fit(score, groups: list[dict], inputs: Tensor, labels: Tensor, plan: Tuning, seed: int) -> None:
    """Minimise the logistic loss of `score(batch of inputs)` over the parameter groups."""
    generator = as_generator(seed)
    batches = -(-len(inputs) // plan.batch)
    total = plan.epochs * batches
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    warmup = max(1, total // 10)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmup, (total - step) / max(1, total - warmup))
    )
    target = labels.to(next(iter(groups[0]["params"])).dtype)
    for _ in range(plan.epochs):
        for index in torch.randperm(len(inputs), generator=generator).split(plan.batch):
            loss = F.binary_cross_entropy_with_logits(score(inputs[index]), target[index])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            scheduler.step()


def tune_head(probs: Tensor, labels: Tensor, plan: Tuning, seed: int) -> LinearHead:
    """Head tuning: a linear head on distributions (n, X), computed once. Starts at zero.

    A distribution sums to 1, so a bias would only repeat what equal weights do.
    """
    weights = nn.Parameter(torch.zeros_like(probs[0]))
    _fit(lambda batch: batch @ weights, [{"params": [weights], "lr": plan.head_rate}], probs, labels, plan, seed)
    return LinearHead(weights.detach())


def initial_prompt(network: BertForMaskedLM, length: int, seed: int) -> Tensor:
    """A prompt before any training, (length, width): uniform on [-0.5, 0.5] (appendix E)."""
    return (torch.rand(length, network.config.hidden_size, generator=as_generator(seed)) - 0.5).to(network.device)


def tune_prompt(
    network: BertForMaskedLM, tokens: Tensor, labels: Tensor, prompt_length: int, plan: Tuning, seed: int
) -> tuple[Tensor, LinearHead]:
    """Prompt tuning: a soft prompt (prompt_length, width) before each sequence and a linear head, trained together.

    The network is frozen, and in float32. The prompt starts as `initial_prompt` gives it, the head at zero.
    ValueError where prompt and sequence are longer than the network's positions.
    """
    longest = network.config.max_position_embeddings
    if prompt_length + tokens.shape[1] > longest:
        raise ValueError(
            f"a prompt of {prompt_length} and sequences of {tokens.shape[1]} need {prompt_length + tokens.shape[1]} "
            f"positions, but the network has {longest}"
        )
    network.eval().requires_grad_(False)
    prompt = nn.Parameter(initial_prompt(network, prompt_length, seed))
    weights = nn.Parameter(torch.zeros(network.config.vocab_size - 1, device=network.device))
    groups = [{"params": [weights], "lr": plan.head_rate}, {"params": [prompt], "lr": plan.prompt_rate}]
    _fit(lambda batch: probs_at_mask(network, batch, prompt) @ weights, groups, tokens, labels, plan, seed)
    return prompt.detach(), LinearHead(weights.detach())


def probs_behind_prompt(model: HMM, posteriors: Tensor, prompt: Tensor) -> Tensor:
    """Ḡ_2 of (u, ∅, x) by (3.3), (n, X), from P[H_0 | X_{1:T} = x], (n, S): no messages are passed again.

    Differentiable in the prompt u, (S,). The zero vector where prompt and text exclude each other.
    """
    weights = posteriors * lemma_c_2(model, prompt)
    total = weights.sum(1, keepdim=True)
    return weights / torch.where(total > 0, total, 1) @ model.emission.T


def tune_exact_prompt(
    model: HMM, posteriors: Tensor, labels: Tensor, plan: Tuning, seed: int
) -> tuple[Tensor, LinearHead]:
    """One prompt vector u in [0, 1]^S and a linear head on the exact Ḡ_2, trained together by gradients through Ḡ.

    `posteriors` are P[H_0 | X_{1:T} = x], (n, S). u is the sigmoid of what is trained, which starts standard normal.
    """
    start = torch.randn(model.n_states, generator=as_generator(seed), dtype=model.dtype)
    raw, weights = nn.Parameter(start), nn.Parameter(posteriors.new_zeros(model.n_tokens))
    groups = [{"params": [weights], "lr": plan.head_rate}, {"params": [raw], "lr": plan.prompt_rate}]

    def score(batch: Tensor) -> Tensor:
        return probs_behind_prompt(model, batch, raw.sigmoid()) @ weights

    _fit(score, groups, posteriors, labels, plan, seed)
    return raw.detach().sigmoid(), LinearHead(weights.detach())


def accuracy(head: LinearHead, probs: Tensor, labels: Tensor) -> float:
    """The share of examples whose label the head gets right."""
    return (head.label(probs) == labels.to(probs.device)).double().mean().item()
