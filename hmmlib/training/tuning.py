"""Downstream tasks, and what is tuned on a frozen network to solve them: a linear head, a prompt, an attention head."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib import backend
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead, share_right
from hmmlib.theory.theorems import lemma_c_2
from hmmlib.training.readers import Reader, as_reader
from hmmlib.validation import as_generator, as_labels, as_tensor, integer, number, of_shape, of_type, one_of

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

PROMPT_STARTS = ("uniform", "vocabulary")
"""Where a prompt begins: entries uniform on [-0.5, 0.5], or rows of the vocabulary's embedding."""


@dataclass(frozen=True)
class Tuning:
    """Passes over the training examples, batch size, and AdamW's rates; by default those of the preset `quick`.

    Rates rise linearly over a share of the steps, `warmup`, and then fall linearly to zero.
    """

    epochs: int = 5
    batch: int = 128
    head_rate: float = 0.1
    prompt_rate: float = 0.1
    warmup: float = 0.1

    def __post_init__(self) -> None:
        integer("epochs", self.epochs, 1)
        integer("batch", self.batch, 1)
        number("head_rate", self.head_rate, 0)
        number("prompt_rate", self.prompt_rate, 0)
        number("warmup", self.warmup, 0, 1)


def checked(network: BertForMaskedLM | Reader, tokens, at_mask: bool = False) -> tuple[Reader, Tensor]:
    """The network as a Reader, without dropout, and tokens that it takes.

    With `at_mask`, a warning where what the network predicts at the first token does not depend on the text.
    """
    reader = as_reader(network)
    tokens = reader.check(tokens)
    reader.module.eval()
    if at_mask and reader.causal and not reader.mask_behind:
        same = "a causal model does not see the text behind the first token, and predicts there the same for all texts"
        warnings.warn(f"{same}: read it with FromTransformers(…, mask_behind=True)", stacklevel=3)
    return reader, tokens


@torch.no_grad()
def all_probs_at_mask(network: BertForMaskedLM | Reader, tokens: Tensor, prompt: Tensor | None = None) -> Tensor:
    """The network's distribution at the first token of each sequence, (n, X), with `prompt` (P, width) put before it.

    In blocks, without gradients and without dropout, as the next two are.
    """
    reader, tokens = checked(network, tokens, at_mask=True)
    return torch.cat([reader.probs(block, prompt=prompt) for block in tokens.split(512)])


@torch.no_grad()
def all_hidden_at_mask(
    network: BertForMaskedLM | Reader, tokens: Tensor, prompt: Tensor | None = None, cut: Collection[int] = ()
) -> Tensor:
    """The hidden states at the first token of each sequence, (layers + 1, n, width), as `bert.hidden_at`.

    In the layers of `cut` neither that token nor any other attends to the prompt.
    """
    reader, tokens = checked(network, tokens, at_mask=True)
    blocks = (reader.embed(block, prompt) for block in tokens.split(512))
    return torch.cat([reader.hidden(block, block.first, cut) for block in blocks], 1)


@torch.no_grad()
def all_probs(network: BertForMaskedLM | Reader, tokens: Tensor) -> Tensor:
    """The network's distributions at all positions, (n, T, X)."""
    reader, tokens = checked(network, tokens)
    blocks = (reader.embed(block) for block in tokens.split(512))
    logits = (reader.logits(block, None)[:, block.places] for block in blocks)
    return torch.cat([each.softmax(-1) for each in logits])


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Within it no gradient is taken of the module's weights; afterwards of those of which it was taken before."""
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    module.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trained:
            weight.requires_grad_(True)


def fit(
    score: Callable[[Tensor], Tensor],
    head: Sequence[Tensor],
    inputs: Tensor,
    labels: Tensor,
    plan: Tuning,
    seed: int,
    others: Sequence[Tensor] = (),
    before_step: Callable[[], None] | None = None,
) -> None:
    """Minimise the logistic loss of `score(batch of inputs)` over the parameters of a head, and what else is trained.

    `before_step` is called before each batch. FloatingPointError where what is trained ends as no numbers.
    """
    generator, labels = as_generator(seed), as_labels(labels, len(inputs))
    groups = [{"params": list(head), "lr": of_type("plan", plan, Tuning).head_rate}]
    if others:
        groups.append({"params": list(others), "lr": plan.prompt_rate})
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    total = plan.epochs * -(-len(inputs) // plan.batch)
    warmup = max(1, round(plan.warmup * total))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmup, (total - step) / max(1, total - warmup))
    )
    target = labels.to(head[0])
    for _ in range(plan.epochs):
        for index in torch.randperm(len(inputs), generator=generator).split(plan.batch):
            backend.stop_if_interrupted()
            if before_step:
                before_step()
            index = index.to(inputs.device)
            with torch.enable_grad():
                loss = F.binary_cross_entropy_with_logits(score(inputs[index]), target[index])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            scheduler.step()
    if not all(trained.isfinite().all() for trained in (*head, *others)):
        rates = ", ".join(f"{group['initial_lr']:g}" for group in optimiser.param_groups)
        raise FloatingPointError(f"tuning diverged, at rates of {rates}: what was trained is no longer finite")


def fit_head(probs: Callable[[Tensor], Tensor], zeros: Tensor, *how) -> LinearHead:
    """A linear head on `probs(batch of inputs)`, (n, X), from `zeros` (X,); `how` is what `fit` takes after a head."""
    weights = nn.Parameter(zeros)
    fit(lambda batch: probs(batch) @ weights, [weights], *how)
    return LinearHead(weights.detach())


def tune_head(probs: Tensor, labels: Tensor, plan: Tuning, seed: int) -> LinearHead:
    """Head tuning: a linear head on distributions (n, X), which are computed once. The head starts at zero.

    A distribution sums to 1, so that a bias would only repeat what equal weights do.
    """
    probs = as_tensor("probs", probs, 2).detach()
    return fit_head(lambda batch: batch, torch.zeros_like(probs[0]), probs, labels, plan, seed)


class TunedAttention(NamedTuple):
    """An attention head that can be trained: softmax instead of the arg-max of (4.1), and values without embeddings.

    Position i has the score k·p_i + β_i and the value v·p_i, where p_i is a token distribution; the head is the mean of
    the values, weighted by the softmax of the scores, summed over cells. `key` k and `value` v are (X, cells),
    `positions` β (T, cells).
    """

    key: Tensor
    value: Tensor
    positions: Tensor

    def __call__(self, probs: Tensor) -> Tensor:
        """Scores (n,) of distributions (n, T, X). ValueError for another shape."""
        probs = of_shape("probs", probs, (None, len(self.positions), len(self.key))).to(self.key)
        weights = (probs @ self.key + self.positions).softmax(1)
        return (weights * (probs @ self.value)).sum((1, 2))

    def label(self, probs: Tensor) -> Tensor:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs) >= 0

    predict = label


def tune_attention(
    probs: Tensor, labels: Tensor, plan: Tuning, seed: int, cells: int = 1, positions: bool = True
) -> TunedAttention:
    """Head tuning with an attention head on the distributions at all positions, (n, T, X), computed once.

    Scores start at zero, so that all positions count alike; values start small and random. Without `positions` β is 0.
    """
    draws, probs = as_generator(seed), as_tensor("probs", probs, 3).detach()
    start = torch.randn(probs.shape[2], integer("cells", cells, 1), generator=draws) / probs.shape[2]
    head = TunedAttention(
        nn.Parameter(torch.zeros_like(start).to(probs)),
        nn.Parameter(start.to(probs)),
        nn.Parameter(torch.zeros(probs.shape[1], cells).to(probs), requires_grad=positions),
    )
    fit(head, [tensor for tensor in head if tensor.requires_grad], probs, labels, plan, seed)
    return TunedAttention(*(tensor.detach() for tensor in head))


def initial_prompt(network: BertForMaskedLM | Reader, length: int, seed: int, start: str = "uniform") -> Tensor:
    """A prompt before any training, (length, width), with entries uniform on [-0.5, 0.5], as in appendix E.

    With `start` "vocabulary" it is made of word embeddings of random ids, each once as far as there are enough.
    """
    generator, reader = as_generator(seed), as_reader(network)
    if one_of("start", start, PROMPT_STARTS) == "vocabulary":
        words = reader.words
        rounds = range(max(1, -(-length // len(words))))
        order = torch.cat([torch.randperm(len(words), generator=generator) for _ in rounds])
        return words[order[:length].to(words.device)]
    return (torch.rand(length, reader.width, generator=generator) - 0.5).to(reader.device)


def tune_prompt(
    network: BertForMaskedLM | Reader,
    tokens: Tensor,
    labels: Tensor,
    prompt_length: int,
    plan: Tuning,
    seed: int,
    start: str = "uniform",
    before_step: Callable[[], None] | None = None,
) -> tuple[Tensor, LinearHead]:
    """Prompt tuning: a soft prompt (prompt_length, width) before each sequence and a linear head, trained together.

    The network's weights are frozen, and dropout is off. The prompt starts as `initial_prompt` gives it, the head at
    zero. `before_step` is called before each batch; what it raises ends the tuning. ValueError where prompt and
    sequence are longer than the network's positions.
    """
    reader, tokens = checked(network, tokens, at_mask=True)
    prompt = nn.Parameter(initial_prompt(reader, integer("prompt_length", prompt_length, 0), seed, start))
    if not prompt_length:  # only the head is left to train, on what never changes
        return prompt.detach(), tune_head(all_probs_at_mask(reader, tokens), labels, plan, seed)
    inputs, zeros = tokens.to(reader.device), torch.zeros(reader.n_tokens, device=reader.device)
    with frozen(reader.module):
        head = fit_head(partial(reader.probs, prompt=prompt), zeros, inputs, labels, plan, seed, [prompt], before_step)
    return prompt.detach(), head


def probs_behind_prompt(model: HMM, posteriors: Tensor, prompt: Tensor) -> Tensor:
    """Ḡ_2 of (u, ∅, x) by (3.3), (n, X), from P[H_0 | X_{1:T} = x], (n, S), without passing messages again.

    Differentiable in the prompt u, (S,). The zero vector where prompt and text exclude each other.
    """
    after = lemma_c_2(model, prompt)
    weights = posteriors.to(after) * after
    total = weights.sum(1, keepdim=True)
    return weights / torch.where(total > 0, total, 1) @ model.emission.T  # (3.3)


def tune_exact_prompt(
    model: HMM, posteriors: Tensor, labels: Tensor, plan: Tuning, seed: int
) -> tuple[Tensor, LinearHead]:
    """One prompt vector u in [0, 1]^S and a linear head on the exact Ḡ_2, trained together by gradients through Ḡ.

    `posteriors` are P[H_0 | X_{1:T} = x], (n, S). What is trained starts standard normal, and u is its sigmoid.
    """
    of_type("model", model, HMM)
    model = HMM(model.transition.detach(), model.emission.detach(), model.initial.detach(), columns=True)
    posteriors = as_tensor("posteriors", posteriors, like=model.initial).detach()
    of_shape("posteriors", posteriors, (None, model.n_states))
    raw = nn.Parameter(torch.randn(model.n_states, generator=as_generator(seed), dtype=model.dtype))
    zeros = posteriors.new_zeros(model.n_tokens)
    head = fit_head(
        lambda batch: probs_behind_prompt(model, batch, raw.sigmoid()), zeros, posteriors, labels, plan, seed, [raw]
    )
    return raw.detach().sigmoid(), head


def accuracy(head: LinearHead | TunedAttention, probs: Tensor, labels: Tensor) -> float:
    """The share of examples whose label the head gets right: `head.score`, also of an attention head."""
    return share_right(of_type("head", head, LinearHead, TunedAttention).label(probs), labels)
