"""Networks of one or two layers whose outputs depend on their inputs, and inputs for them."""

import torch
import transformers

from hmmlib.training.bert import Shape, build
from hmmlib.validation import MASK

_LAYERS = dict(num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, hidden_dim=32)
_SIZES = dict(vocab_size=40, hidden_size=16, embedding_size=8, max_position_embeddings=24)
CONFIGURATION = dict(
    **_LAYERS, **_SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
)
"""With 24 positions. Who calls a size by another name knows these names too; what a model does not have, it ignores."""
MODELS = [
    f"{name}ForMaskedLM" for name in ("Bert", "Roberta", "MPNet", "DistilBert", "Albert", "Electra", "ModernBert")
]
MODELS += ["GPT2LMHeadModel", "LlamaForCausalLM"]
"""Models of `transformers`."""
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
    return spread(kind(kind.config_class(**CONFIGURATION)), 8)


def lively(dropout=0.0, n_tokens=4, **sizes):
    """A small network of `build`."""
    shape = Shape(**{**dict(layers=1, width=16, heads=2, max_length=10, dropout=dropout), **sizes})
    return spread(build(shape, n_tokens, 0), 20)


def inputs(n=40, length=6, seed=0):
    """Tokens 0 to 3, MASK first."""
    tokens = torch.randint(0, 4, (n, length), generator=torch.Generator().manual_seed(seed))
    tokens[:, 0] = MASK
    return tokens
