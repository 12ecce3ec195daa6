"""Networks of one or two layers whose outputs depend on their inputs, and inputs for them."""

import torch
import transformers

from hmmlib.training.bert import Shape, build
from hmmlib.validation import MASK

_LAYERS = dict(vocab_size=40, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
_SIZES = dict(**_LAYERS, hidden_size=16, max_position_embeddings=24)
_SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
MODELS = {
    "BertForMaskedLM": _SIZES,
    "RobertaForMaskedLM": _SIZES | _SPECIAL,
    "MPNetForMaskedLM": _SIZES,
    "DistilBertForMaskedLM": dict(
        vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=24
    ),
    "AlbertForMaskedLM": dict(**_SIZES, embedding_size=8),
    "ElectraForMaskedLM": dict(**_SIZES, embedding_size=16),
    "ModernBertForMaskedLM": dict(**_SIZES, **_SPECIAL, cls_token_id=1, sep_token_id=2),
    "GPT2LMHeadModel": dict(
        vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=24, bos_token_id=1, eos_token_id=2
    ),
    "LlamaForCausalLM": _SIZES,
}
"""Models of `transformers` with 24 positions, and what their configuration is made of."""
TOKENS, MASK_ID, CLS, SEP = [7, 31, 12, 9], 4, 1, 2
"""Ids that they are read with."""


def spread(network, factor):
    """The network with larger weights: with fresh ones, which are small, its output hardly depends on its input."""
    with torch.no_grad():
        for matrix in (p for p in network.parameters() if p.ndim == 2):
            matrix *= factor
    return network.eval()


def model(name):
    """One of MODELS, with random weights."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    return spread(kind(kind.config_class(**MODELS[name])), 8)


def lively(dropout=0.0, n_tokens=4, **sizes):
    """A small network of `build`."""
    shape = Shape(**{**dict(layers=1, width=16, heads=2, max_length=10, dropout=dropout), **sizes})
    return spread(build(shape, n_tokens, 0), 20)


def inputs(n=40, length=6, seed=0):
    """Tokens 0 to 3, MASK first."""
    tokens = torch.randint(0, 4, (n, length), generator=torch.Generator().manual_seed(seed))
    tokens[:, 0] = MASK
    return tokens
