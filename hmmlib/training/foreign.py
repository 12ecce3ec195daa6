"""How a language model of `transformers` reads. It is asked by reading a short text, and its name decides nothing.

Whether one place sees another is decided by a gradient. It is exactly zero where a place is not seen, and in 16 bits it
is not lost by rounding, as a small change of the output would be.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hmmlib.device import TURNS, own_settings

LENGTH = 6
"""How many ids the text has that a model is asked with, or fewer if the model has fewer positions."""
NAMES_OF_LONGEST = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "max_target_positions",
)
"""What configurations call the number of positions."""
UNLIMITED = 2**31
"""The number of positions of a model that does not name one."""


class Reading(NamedTuple):
    """How a model reads."""

    sees_before: bool
    """Whether the output at a place depends on what stands before it."""
    sees_after: bool
    """Whether it depends on what stands after it."""
    sees_padding: bool
    """Whether it depends on what is not attended to."""
    takes_vectors: bool
    """Whether vectors in the place of the embeddings of ids are read as these ids are."""


def ask(module: nn.Module, tokens: Sequence[int]) -> Reading:
    """Ask a model how it reads. Its weights, its mode and the state of random generators stay as they are.

    Args:
        module: the model, with or without what peft adds.
        tokens: ids that it reads.

    Raises:
        TypeError: the model does not read ids, or has no head over its vocabulary.
    """
    try:
        with _as_it_was(module):
            return _reading(module, tokens)
    except Exception as error:  # Whatever a model raises that takes other inputs.
        raise TypeError(
            "module must be a masked or causal language model of transformers that reads input ids, "
            f"but {name_of(module)} cannot be read: {error}"
        ) from error


def _reading(module: nn.Module, tokens: Sequence[int]) -> Reading:
    """How a model reads a text of these tokens."""
    if getattr(module.config, "is_encoder_decoder", False):
        raise ValueError("it has an encoder and a decoder")
    table = module.get_input_embeddings().weight
    another = (tokens[0] + 1) % len(table)
    length = min(LENGTH, positions_for_text(module))
    ids = torch.tensor([*tokens, another] * length, device=table.device)[None, :length]
    attended = torch.ones_like(ids, dtype=torch.bool)

    logits = getattr(output_for(module, ids, attended), "logits", None)
    if logits is None or logits.ndim != 3 or logits.shape[1] < length or logits.shape[2] <= max(tokens):
        raise ValueError("it has no head over its vocabulary")
    if not _reads_embeddings_at(module, ids, ids):
        raise ValueError("the embeddings of input ids do not enter it as they are")
    middle = length // 2
    seen = _seen_from(module, ids, attended, middle)
    if not seen.isfinite().all():
        raise ValueError("its gradients are not finite")

    # Where a prompt stands before a text, the ids are others.
    other_ids = ids.clone()
    other_ids[:, :middle] = tokens[0]
    return Reading(
        sees_before=bool(seen[:middle].any()),
        sees_after=bool(seen[middle + 1 :].any()),
        sees_padding=_sees_padding(module, ids, middle + 1),
        takes_vectors=_reads_embeddings_at(module, ids, other_ids),
    )


def _reads_embeddings_at(module: nn.Module, ids: Tensor, other_ids: Tensor) -> bool:
    """Whether the embeddings of ids are read as these ids are, at places that have other ids."""
    attended = torch.ones_like(ids, dtype=torch.bool)
    vectors = embeddings_of(module, ids)
    logits = output_for(module, ids, attended).logits
    logits_of_vectors = output_for(module, other_ids, attended, vectors).logits
    rounding = 8 * torch.finfo(logits.dtype).eps
    return not _differ(logits, logits_of_vectors, rounding)


def _sees_padding(module: nn.Module, ids: Tensor, length: int) -> bool:
    """Whether the output for the first ids depends on the others if these are not attended to."""
    attended = torch.ones_like(ids, dtype=torch.bool)
    attended[:, length:] = False
    seen = _seen_from(module, ids, attended, length - 1)
    if seen[length:].any():
        return True
    # A choice of keys by their scores has no gradient, so the outputs are compared too.
    logits = output_for(module, ids[:, :length], attended[:, :length]).logits
    logits_if_padded = output_for(module, ids, attended).logits[:, : logits.shape[1]]
    rounding = max(1e-3, torch.finfo(logits.dtype).eps ** 0.5)  # A longer text is summed in another order.
    return _differ(logits, logits_if_padded, rounding)


def _seen_from(module: nn.Module, ids: Tensor, attended: Tensor, place: int) -> Tensor:
    """How much the output at one place depends on each place, (L,)."""
    embeddings = embeddings_of(module, ids).detach()
    # Where an embedding is zero, as that of a padding id may be, gradients need not be finite.
    vectors = (embeddings + embeddings.std() * torch.randn_like(embeddings)).requires_grad_()
    logits = output_for(module, ids, attended, vectors).logits
    at_place = logits[0, place - ids.shape[1]].float()  # From the end, because peft may put a prompt before.
    (gradient,) = torch.autograd.grad(at_place.square().sum(), vectors, materialize_grads=True)
    return gradient[0].abs().amax(-1)


def _differ(logits: Tensor, other_logits: Tensor, tolerance: float) -> bool:
    """Whether two outputs differ by more than a share of the largest entry."""
    return bool((logits - other_logits).abs().max() > tolerance * logits.abs().max())


def embeddings_of(module: nn.Module, ids: Tensor) -> Tensor:
    """Return what a model's own embedding gives for ids (n, L), which is (n, L, width)."""
    with TURNS:  # Another thread's vectors may stand in for it.
        return module.get_input_embeddings()(ids)


def output_for(module: nn.Module, ids: Tensor, attended: Tensor, vectors: Tensor | None = None, **options):
    """Return a model's own output for ids, which vectors may stand in for.

    The model is called with ids, because some models count positions by ids, or read them in other ways. What its
    embedding gives for them is then replaced, so that vectors enter exactly where embeddings do.

    Args:
        module: the model.
        ids: input ids, (n, L).
        attended: which of them are attended to, (n, L).
        vectors: vectors in the place of the embeddings of the ids, (n, L, width).
        options: what else the model is called with.
    """
    if _takes_attention_mask(module):
        options["attention_mask"] = attended.long()

    def vectors_instead(embedding: nn.Module, inputs: tuple, embeddings: Tensor) -> Tensor:
        return torch.cat([vectors, embeddings[:, vectors.shape[1] :]], 1)  # Longformer adds padding of its own.

    with TURNS:  # A hook is seen by every thread that calls the model.
        if vectors is None:
            return module(input_ids=ids, **options)
        handle = module.get_input_embeddings().register_forward_hook(vectors_instead)
        try:
            return module(input_ids=ids, **options)
        finally:
            handle.remove()


def _takes_attention_mask(module: nn.Module) -> bool:
    parameters = inspect.signature(module.forward).parameters
    takes_any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any_name or "attention_mask" in parameters


@contextmanager
def _as_it_was(module: nn.Module) -> Iterator[None]:
    """Meanwhile dropout is off and gradients are taken. Afterwards modes and random generators are as before."""
    in_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with own_settings(), torch.random.fork_rng():
            torch.manual_seed(0)
            yield
    finally:
        for part in in_training:
            part.training = True


def name_of(module: nn.Module) -> str:
    """Return the name of a model's class, without what peft adds."""
    base = module.get_base_model() if hasattr(module, "get_base_model") else module
    return type(base).__name__


def positions_for_text(module: nn.Module) -> int:
    """Return how many positions a model has for a text.

    RoBERTa never uses those up to its padding index, and a prefix of peft's takes some.
    """
    config = module.config.get_text_config()
    count = UNLIMITED
    for name in NAMES_OF_LONGEST:
        count = min(count, getattr(config, name, None) or UNLIMITED)
    never_used = 0
    for name, table in module.named_modules():
        padding_index = getattr(table, "padding_idx", None)
        if name.endswith("position_embeddings") and padding_index is not None:
            never_used = max(never_used, padding_index + 1)
    config_of_peft = getattr(module, "active_peft_config", None)
    return count - never_used - getattr(config_of_peft, "num_virtual_tokens", 0)
