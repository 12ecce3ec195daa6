"""A BERT-shaped masked language model, and its pretraining on sequences of a model of `hmm`.

The architecture is `transformers`' BertForMaskedLM. What is ours is the loop: a fixed number of masked positions in
each sequence, only those through the last layer and the vocabulary head, and Muon for the encoder's matrices beside AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM

from hmmlib.hmm import HMM, MASK, MemoryHMM, as_generator, as_tokens
from hmmlib.messages import masked_token_probs


@dataclass(frozen=True)
class Shape:
    """Sizes of the network; `max_length` counts positions, a prompt's included."""

    layers: int
    width: int
    heads: int
    max_length: int


@dataclass(frozen=True)
class Pretraining:
    """How to pretrain: `steps` batches of `batch` sequences of `length` tokens, a share `masked` of each hidden.

    `learning_rate` is AdamW's, for embeddings, biases, norms and the output layer; `muon_rate` is Muon's, for the
    encoder's matrices. The rate rises over `warmup` steps and falls linearly to zero.
    """

    steps: int
    batch: int
    length: int
    masked: float
    learning_rate: float
    muon_rate: float
    warmup: int


def build(shape: Shape, n_tokens: int, seed: int) -> BertForMaskedLM:
    """A network with fresh weights for tokens 0 … n_tokens - 1; [MASK] is input id n_tokens and never predicted.

    As BERT-base but for `shape`, the vocabulary, and no dropout: the data are fresh in every batch.
    """
    config = BertConfig(
        vocab_size=n_tokens + 1,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.max_length,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BertForMaskedLM(config)


def to_ids(network: BertForMaskedLM, tokens: Tensor) -> Tensor:
    """Input ids: tokens as they are, MASK as the last id."""
    tokens = as_tokens(tokens, network.config.vocab_size - 1, network.device)
    return torch.where(tokens == MASK, network.config.vocab_size - 1, tokens)


def run_layer(layer: nn.Module, hidden: Tensor, positions: Tensor | None = None) -> Tensor:
    """The output of a BERT layer without dropout, at chosen positions only: keys and values everywhere, all else there.

    Args:
        hidden: the layer's input, (n, L, width).
        positions: (n, k), position indices in each sequence; all of them if None.

    Returns:
        (n, k, width), what the whole layer gives there.
    """
    attention, chosen = layer.attention.self, hidden
    if positions is not None:
        chosen = hidden.gather(1, positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))

    def split(values: Tensor) -> Tensor:
        return values.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)

    query, key, value = split(attention.query(chosen)), split(attention.key(hidden)), split(attention.value(hidden))
    context = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    attended = layer.attention.output(context, chosen)
    return layer.output(layer.intermediate(attended), attended)


def logits_at(network: BertForMaskedLM, embeddings: Tensor, positions: Tensor) -> Tensor:
    """Logits over the tokens at chosen positions; nothing that only other positions need is computed.

    Args:
        embeddings: word embeddings, (n, L, width).
        positions: (n, k), position indices in each sequence.

    Returns:
        (n, k, X); the id of [MASK] is left out, so that a softmax is over tokens.
    """
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    *first, last = network.bert.encoder.layer
    for layer in first:
        hidden = run_layer(layer, hidden)
    return network.cls(run_layer(last, hidden, positions))[..., :-1]


def mask_some(tokens: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hide the same number of positions, round(share * T) and at least 1, in each sequence: (masked tokens, positions)."""
    n, length = tokens.shape
    count = max(1, round(share * length))
    positions = torch.rand(n, length, generator=generator, device=tokens.device).argsort(1)[:, :count]
    return tokens.scatter(1, positions, MASK), positions


def masked_logits(network: BertForMaskedLM, masked: Tensor, positions: Tensor) -> Tensor:
    """Logits (n, k, X) at `positions` (n, k) of the sequences `masked` (n, T)."""
    return logits_at(network, network.get_input_embeddings()(to_ids(network, masked)), positions)


def optimisers(network: nn.Module, plan: Pretraining) -> list[torch.optim.Optimizer]:
    """Muon for the encoder's matrices, AdamW for every other parameter."""
    encoder = {id(p): p for p in network.bert.encoder.parameters() if p.ndim == 2}
    rest = [p for p in network.parameters() if id(p) not in encoder]
    muon = torch.optim.Muon(list(encoder.values()), lr=plan.muon_rate, weight_decay=0.0)
    return [muon, torch.optim.AdamW(rest, lr=plan.learning_rate, weight_decay=0.0)]


def rate_at(step: int, plan: Pretraining) -> float:
    """The share of the full learning rate at a step: linear warm-up, then linear decay to zero."""
    return min((step + 1) / max(1, plan.warmup), (plan.steps - step) / max(1, plan.steps - plan.warmup))


def pretrain(
    network: BertForMaskedLM,
    model: HMM | MemoryHMM,
    plan: Pretraining,
    seed: int,
    report: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train `network` in place on fresh sequences of `model`; the masked-token loss (nats) of every step.

    Calls `report(step, loss)` after each step, if given. FloatingPointError where the loss is no number.
    """
    generator = as_generator(seed)
    schedule = [
        torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_at(step, plan))
        for optimiser in optimisers(network, plan)
    ]
    corpus = model.sample(plan.steps * plan.batch, plan.length, generator).tokens
    network.train()
    losses = []
    for step, tokens in enumerate(corpus.split(plan.batch)):
        masked, positions = mask_some(tokens, plan.masked, generator)
        logits = masked_logits(network, masked, positions)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.gather(1, positions).flatten())
        network.zero_grad(set_to_none=True)
        loss.backward()
        for scheduler in schedule:
            scheduler.optimizer.step()
            scheduler.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"pretraining diverged: the loss at step {step} is {losses[-1]}")
        if report:
            report(step, losses[-1])
    return losses


@torch.no_grad()
def masked_losses(
    network: BertForMaskedLM, model: HMM | MemoryHMM, n: int, length: int, share: float, seed: int
) -> tuple[float, float]:
    """Mean masked-token loss, nats, on `n` fresh sequences: (the network's, the exact conditional's, the least there is)."""
    generator = as_generator(seed)
    tokens = model.sample(n, length, generator).tokens
    masked, positions = mask_some(tokens, share, generator)
    target = tokens.gather(1, positions)
    network.eval()
    logits = torch.cat([masked_logits(network, *p) for p in zip(masked.split(512), positions.split(512), strict=True)])
    exact = masked_token_probs(model, masked).gather(1, positions.unsqueeze(-1).expand(-1, -1, model.n_tokens))
    best = -exact.gather(-1, target.unsqueeze(-1)).log().mean()
    return F.cross_entropy(logits.flatten(0, 1).double(), target.flatten()).item(), best.item()
