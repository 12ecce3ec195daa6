"""A BERT-shaped masked language model: its construction, and its logits and hidden states at chosen positions.

The architecture is that of BertForMaskedLM in `transformers`. Here a layer can also run at chosen positions only,
because the last layer and the vocabulary head are needed nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib.device import own_settings
from hmmlib.validation import MASK, as_seed, as_tokens, integer, number, of_type

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

# Construction


@dataclass(frozen=True)
class Shape:
    """Sizes of the network, by default those of the preset `quick`.

    Raises:
        ValueError: A size is not an integer of 1 or more, or dropout is not a share from 0 to 1.

    Example:
        >>> from hmmlib import Shape
        >>> from hmmlib.training.bert import build
        >>> network = build(Shape(layers=1, width=8, heads=2, max_length=16), n_tokens=5, seed=0)
        >>> network.config.vocab_size
        6
    """

    layers: int = 2
    """How many layers the encoder has."""
    width: int = 64
    """The length of an embedding, a multiple of `heads`."""
    heads: int = 2
    """How many attention heads a layer has."""
    max_length: int = 64
    """How many positions there are. A prompt takes some of them."""
    dropout: float = 0.0
    """The share of entries that are dropped in pretraining."""
    specials: int = 1
    """How many ids there are besides the tokens. The last one is [MASK], and the others never occur in texts."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "max_length", "specials"):
            integer(name, getattr(self, name), 1)
        number("dropout", self.dropout, 0, 1)


@own_settings()
def build(shape: Shape, n_tokens: int, seed: int) -> BertForMaskedLM:
    """Build a network with fresh weights, which is like BERT-base except for its sizes and its vocabulary.

    Args:
        shape: The sizes.
        n_tokens: The number X of tokens. Their ids are 0 … X - 1, and [MASK] is the last id of all.
        seed: A seed for the weights, which are the same on every device.

    Raises:
        TypeError: `shape` is not a Shape.
        ValueError: `n_tokens` is less than 1, or `seed` is not a seed.
    """
    from transformers import BertConfig, BertForMaskedLM  # This import takes seconds, and is not always needed.

    of_type("shape", shape, Shape)
    vocabulary = integer("n_tokens", n_tokens, 1) + shape.specials
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.max_length,
        type_vocab_size=1,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
        pad_token_id=None,
        mask_token_id=vocabulary - 1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(as_seed(seed))
        return BertForMaskedLM(config)


def as_network(network) -> BertForMaskedLM:
    """Return the network itself, if `build` has made it.

    Raises:
        TypeError: It is another model, in which [MASK] may be any id, or `peft` has changed it.
    """
    name = type(network).__name__
    if _is_changed_by_peft(network):
        name += " with what peft adds"
    elif name == "BertForMaskedLM":
        if getattr(network.config, "mask_token_id", None) == network.config.vocab_size - 1:
            return network
        name += " with another vocabulary"
    raise TypeError(
        f"network must be of type BertForMaskedLM, as build makes it, not {name}. "
        "hmmlib.FromTransformers reads other models, but hmmlib cannot pretrain them"
    )


def _is_changed_by_peft(network) -> bool:
    if not isinstance(network, nn.Module):
        return False
    return any(type(module).__module__.startswith("peft.") for module in network.modules())


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return 16 hexadecimal digits that stand for the names and contents of tensors."""
    content = hashlib.sha256()
    for name, value in tensors.items():
        flat = value.detach().cpu().contiguous().reshape(-1)
        content.update(name.encode())
        content.update(flat.view(torch.uint8).numpy().tobytes())
    return content.hexdigest()[:16]


def fingerprint(network) -> str:
    """Return 16 hexadecimal digits that stand for the weights of a network, which tuning must not change.

    Args:
        network: A network, or a reader with a network in it.
    """
    module = getattr(network, "module", network)
    return digest(module.state_dict())


# Tokens


def to_ids(network: BertForMaskedLM, tokens: Tensor) -> Tensor:
    """Return the input ids of tokens, on the network's device. A token is its own id, and MASK has the last id.

    Raises:
        ValueError: The network does not have one of the tokens.
    """
    mask_id = network.config.vocab_size - 1
    tokens = as_tokens(tokens, mask_id, network.device)
    return torch.where(tokens == MASK, mask_id, tokens)


def mask_some(tokens: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hide positions of each sequence at random.

    Args:
        tokens: Sequences, (n, T).
        share: The share of positions to hide. It is rounded to k of T, and k is at least 1.
        generator: A generator on the tokens' device.

    Returns:
        The tokens with MASK at the hidden positions, (n, T), and these positions, (n, k).
    """
    n, length = tokens.shape
    count = max(1, round(share * length))
    draws = torch.rand(n, length, generator=generator, device=tokens.device)
    positions = draws.argsort(1)[:, :count]
    return tokens.scatter(1, positions, MASK), positions


# Computation


def gathered(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the vectors at chosen positions (n, k) of `hidden`, (n, L, width), as (n, k, width)."""
    index = positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    return hidden.gather(1, index)


def run_layer(layer: nn.Module, hidden: Tensor, positions: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
    """Run a layer of BERT. Keys and values are computed at all positions, everything else at the chosen ones only.

    Args:
        layer: The layer.
        hidden: Its input, (n, L, width).
        positions: The chosen positions, (n, k). None means all.
        seen: Where entry (i, j) is true, position i attends to position j, (L, L) bool. It is taken only if all
            positions are computed. None means that every position attends to all of them.

    Returns:
        The output at the chosen positions, (n, k, width).
    """
    attention = layer.attention.self
    heads = attention.num_attention_heads
    chosen = hidden if positions is None else gathered(hidden, positions)
    query = _by_head(attention.query(chosen), heads)
    key = _by_head(attention.key(hidden), heads)
    value = _by_head(attention.value(hidden), heads)
    dropout = attention.dropout.p if layer.training else 0.0
    context = F.scaled_dot_product_attention(query, key, value, seen, dropout)
    attended = layer.attention.output(context.transpose(1, 2).flatten(2), chosen)
    return layer.output(layer.intermediate(attended), attended)


def _by_head(vectors: Tensor, heads: int) -> Tensor:
    """Split vectors (n, L, width) among the attention heads, (n, heads, L, width / heads)."""
    return vectors.unflatten(-1, (heads, -1)).transpose(1, 2)


def logits_at(network: BertForMaskedLM, embeddings: Tensor, positions: Tensor | None) -> Tensor:
    """Return logits over the tokens, where the last layer is computed at chosen positions only.

    Args:
        network: A network of `build`.
        embeddings: Word embeddings, (n, L, width).
        positions: The chosen positions, (n, k). None means all L.

    Returns:
        Logits, (n, k, X). The id of [MASK] is left out, so a softmax is over the tokens, and over the other special ids
        if there are any.
    """
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    *first_layers, last_layer = network.bert.encoder.layer
    for layer in first_layers:
        hidden = run_layer(layer, hidden)
    hidden = run_layer(last_layer, hidden, positions)
    return network.cls(hidden)[..., :-1]


def hidden_at(network: BertForMaskedLM, embeddings: Tensor, position: int, cut: Collection[int] = ()) -> Tensor:
    """Return the hidden states at one position, before the first layer and after each.

    Args:
        network: A network of `build`.
        embeddings: Word embeddings, (n, L, width).
        position: The position.
        cut: Numbers of layers, 1 for the first. In these layers, neither the position nor any after it attends to what
            stands before the position.

    Returns:
        Hidden states, (layers + 1, n, width).
    """
    length = embeddings.shape[1]
    seen_if_cut = torch.ones(length, length, dtype=torch.bool, device=embeddings.device)
    seen_if_cut[position:, :position] = False
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    states = [hidden[:, position]]
    for number_of_layer, layer in enumerate(network.bert.encoder.layer, 1):
        hidden = run_layer(layer, hidden, seen=seen_if_cut if number_of_layer in cut else None)
        states.append(hidden[:, position])
    return torch.stack(states)


def logits_with(network: BertForMaskedLM, embeddings: Tensor, position: int, depth: int, states: Tensor) -> Tensor:
    """Return logits at one position when its hidden states after one layer are replaced.

    Args:
        network: A network of `build`.
        embeddings: Word embeddings, (n, L, width).
        position: The position.
        depth: The number of the layer, 1 for the first.
        states: The hidden states to put there, (n, width).

    Returns:
        Logits, (n, X).
    """
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    for number_of_layer, layer in enumerate(network.bert.encoder.layer, 1):
        hidden = run_layer(layer, hidden)
        if number_of_layer == depth:
            before = hidden[:, :position]
            behind = hidden[:, position + 1 :]
            hidden = torch.cat([before, states[:, None], behind], 1)
    return network.cls(hidden[:, position])[..., :-1]
