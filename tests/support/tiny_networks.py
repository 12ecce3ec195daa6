"""Networks of one or two layers whose outputs depend on their inputs, and inputs for them."""

import torch
import transformers

from hmmlib.training.bert import Shape, build
from hmmlib.validation import MASK

CONFIGURATION = {
    "vocab_size": 40,
    "hidden_size": 16,
    "embedding_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_dim": 32,
    "head_dim": 8,
    "num_key_value_heads": 2,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "attention_window": 4,
    "max_position_embeddings": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
"""A model that calls a size by another name knows these names too. It ignores what it does not have."""
CAUSAL = ["GPT2LMHeadModel", "LlamaForCausalLM"]
MODELS = [
    "BertForMaskedLM",
    "RobertaForMaskedLM",
    "MPNetForMaskedLM",
    "DistilBertForMaskedLM",
    "AlbertForMaskedLM",
    "ElectraForMaskedLM",
    "ModernBertForMaskedLM",
    *CAUSAL,
]
"""Models of `transformers`."""
TOKENS = [7, 31, 12, 9]
"""The ids of tokens 0 to 3 in them."""
MASK_ID = 4
CLS = 1
SEP = 2


def spread(network, factor):
    """The network with larger weights. With fresh ones, which are small, its output hardly depends on its input."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter *= factor
    return network.eval()


def model(name):
    """One of MODELS, with random weights."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    return spread(kind(kind.config_class(**CONFIGURATION)), 8)


def lively(dropout=0.0, n_tokens=4, layers=1, max_length=10, specials=1):
    """A small network of `build`."""
    shape = Shape(layers, width=16, heads=2, max_length=max_length, dropout=dropout, specials=specials)
    return spread(build(shape, n_tokens, 0), 20)


def inputs(n=40, length=6, seed=0):
    """Tokens 0 to 3, MASK first."""
    tokens = torch.randint(0, 4, (n, length), generator=torch.Generator().manual_seed(seed))
    tokens[:, 0] = MASK
    return tokens
