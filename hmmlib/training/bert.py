"""A BERT-shaped masked language model: its construction, and its logits and hidden states at chosen positions.

The architecture is `transformers`' BertForMaskedLM. What is added is that a layer can run at chosen positions only: no
more is needed of the last layer and the vocabulary head.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib.training.checkpoints import digest
from hmmlib.validation import MASK, as_seed, as_tokens, integer, number

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

    from hmmlib.training.readers import Reader


@dataclass(frozen=True)
class Shape:
    """Sizes of the network, by default those of the preset `quick`; `max_length` counts positions, a prompt's included.

    `width` must be a multiple of `heads`. `specials` is how many ids there are beside the tokens: the last of them is
    [MASK], and the others, if any, never occur.
    """

    layers: int = 2
    width: int = 64
    heads: int = 2
    max_length: int = 64
    dropout: float = 0.0
    specials: int = 1

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "max_length", "specials"):
            integer(name, getattr(self, name), 1)
        number("dropout", self.dropout, 0, 1)


def build(shape: Shape, n_tokens: int, seed: int) -> BertForMaskedLM:
    """A network with fresh weights for tokens 0 … n_tokens - 1; [MASK] is the last input id and never predicted.

    It is BERT-base but for `shape` and the vocabulary. The seed gives the same weights on every device.
    """
    from transformers import BertConfig, BertForMaskedLM  # takes seconds, and is not always needed

    config = BertConfig(
        vocab_size=n_tokens + shape.specials,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.max_length,
        type_vocab_size=1,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
        pad_token_id=None,
        mask_token_id=n_tokens + shape.specials - 1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(as_seed(seed))
        return BertForMaskedLM(config)


def fingerprint(network: nn.Module | Reader) -> str:
    """16 hexadecimal digits of the weights of a network or reader, which tuning must not change."""
    return digest(getattr(network, "module", network).state_dict())


def as_network(network) -> BertForMaskedLM:
    """`network` where it is one that `build` makes; TypeError otherwise: another's [MASK] may be any of its ids."""
    found, config = type(network).__name__, getattr(network, "config", None)
    parts = network.modules() if isinstance(network, nn.Module) else ()
    if any(type(part).__module__.startswith("peft.") for part in parts):
        found += " with what peft adds"
    elif found == "BertForMaskedLM":
        if getattr(config, "mask_token_id", None) == config.vocab_size - 1:
            return network
        found += " with another vocabulary"
    wanted = "of type BertForMaskedLM, as build makes it"
    others = "hmmlib.FromTransformers reads others, which are trained with tools of their own"
    raise TypeError(f"network must be {wanted}, not {found}: {others}")


def to_ids(network: BertForMaskedLM, tokens: Tensor) -> Tensor:
    """Input ids: tokens as they are, MASK as the last id. ValueError for tokens that the network does not have."""
    tokens = as_tokens(tokens, network.config.vocab_size - 1, network.device)
    return torch.where(tokens == MASK, network.config.vocab_size - 1, tokens)


def gathered(hidden: Tensor, positions: Tensor) -> Tensor:
    """The vectors (n, k, width) that stand at chosen positions (n, k) of `hidden`, (n, L, width)."""
    return hidden.gather(1, positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))


def run_layer(layer: nn.Module, hidden: Tensor, positions: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
    """A BERT layer's output (n, k, width) at `positions` (n, k), all if None, from its input `hidden` (n, L, width).

    Keys and values are computed everywhere, all else only there. `seen` (L, L) is which positions (columns) each
    position (row) attends to, all of them if None. It cannot be given together with chosen positions.
    """
    attention = layer.attention.self
    chosen = hidden if positions is None else gathered(hidden, positions)

    def split(values: Tensor) -> Tensor:
        return values.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)

    query, key, value = split(attention.query(chosen)), split(attention.key(hidden)), split(attention.value(hidden))
    dropout = attention.dropout.p if layer.training else 0.0
    context = F.scaled_dot_product_attention(query, key, value, seen, dropout).transpose(1, 2).flatten(2)
    attended = layer.attention.output(context, chosen)
    return layer.output(layer.intermediate(attended), attended)


def logits_at(network: BertForMaskedLM, embeddings: Tensor, positions: Tensor | None) -> Tensor:
    """Logits (n, k, X) at `positions` (n, k), all L if None, from word embeddings (n, L, width).

    The last layer is evaluated at `positions` only. The id of [MASK] is left out: a softmax is over tokens (and
    special ids before it, if any).
    """
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    *first, last = network.bert.encoder.layer
    for layer in first:
        hidden = run_layer(layer, hidden)
    return network.cls(run_layer(last, hidden, positions))[..., :-1]


def hidden_at(network: BertForMaskedLM, embeddings: Tensor, position: int, cut: Collection[int] = ()) -> Tensor:
    """The hidden states at one position: before the first layer and after each, (layers + 1, n, width).

    In the layers of `cut` (1 for the first) that position and those behind it do not attend to what stands before it.
    """
    length = embeddings.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool, device=embeddings.device)
    seen[position:, :position] = False
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    states = [hidden[:, position]]
    for depth, layer in enumerate(network.bert.encoder.layer, 1):
        hidden = run_layer(layer, hidden, seen=seen if depth in cut else None)
        states.append(hidden[:, position])
    return torch.stack(states)


def logits_with(network: BertForMaskedLM, embeddings: Tensor, position: int, depth: int, states: Tensor) -> Tensor:
    """Logits at one position, (n, X), with `states` (n, width) in place of its hidden states after layer `depth`."""
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    for after, layer in enumerate(network.bert.encoder.layer, 1):
        hidden = run_layer(layer, hidden)
        if after == depth:
            hidden = torch.cat([hidden[:, :position], states[:, None], hidden[:, position + 1 :]], 1)
    return network.cls(hidden[:, position])[..., :-1]


def mask_some(tokens: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hide round(share * T) positions, at least 1, in each sequence: (masked tokens (n, T), positions (n, k))."""
    n, length = tokens.shape
    count = max(1, round(share * length))
    positions = torch.rand(n, length, generator=generator, device=tokens.device).argsort(1)[:, :count]
    return tokens.scatter(1, positions, MASK), positions
