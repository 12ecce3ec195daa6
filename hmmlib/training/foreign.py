"""Find out how a language model of `transformers` reads, by letting it read short texts.

Names and configurations are no guide. `XLMWithLMHeadModel` is a masked model, for example, though it is not named so.

A place is a position in a text. It sees another place if the output at it depends on what stands there. We ask for this
in two ways, because each can miss something. The first is a gradient, which is exactly zero where a place is not seen.
In 16 bits it shows a dependence so small that rounding would hide the change of the output. But a model that makes a
hard choice has no gradient there, and neither has a quantized one. So the second way is to change ids, and to compare
the outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hmmlib.device import TURNS, own_settings
from hmmlib.training.readers import evaluating

LENGTH = 6
"""How many ids the text has that a model is asked with. There are fewer if the model has fewer positions."""
PADDED_LENGTH = 40
"""How many ids the text has with which padding is tried. There are fewer if the model has fewer positions."""
NAMES_OF_LONGEST = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "max_target_positions",
)
"""What configurations call the number of positions."""
UNLIMITED = 2**31
"""The number of positions that a model is taken to have if it does not name one."""


class Reading(NamedTuple):
    """How a model reads, as found by `ask`."""

    sees_before: bool
    """Whether the output at a place depends on what stands before it."""
    sees_after: bool
    """Whether it depends on what stands after it."""
    sees_padding: bool
    """Whether it depends on padding, which the attention mask excludes."""
    takes_vectors: bool
    """Whether the embeddings of ids, passed as vectors, are read exactly as these ids are."""
    passes_gradients: bool
    """Whether a gradient reaches other places. True as well if the output does not depend on them."""


class Questions(NamedTuple):
    """A model, and what it is asked with."""

    module: nn.Module
    tokens: Sequence[int]
    """Ids that it reads. Its output is compared for these alone, because nothing else of it is used."""
    pad: int
    """The id that stands at padding, where nothing attends."""


def ask(module: nn.Module, tokens: Sequence[int], pad: int) -> Reading:
    """Ask a model how it reads. Everything about it stays as it is, as does the state of random generators.

    The texts are short, so what a model does only in texts of more than PADDED_LENGTH ids is not noticed. For example,
    it may count its positions in another way if a text is long only because of its padding.

    Args:
        module: The model, with or without what peft adds.
        tokens: Ids that it reads.
        pad: The id that stands where nothing attends.

    Raises:
        TypeError: The model does not read ids, or has no head over its vocabulary.
    """
    try:
        with _as_it_was(module):
            return _reading(Questions(module, tokens, pad))
    except Exception as error:  # Models that take other inputs raise errors of any kind.
        raise TypeError(
            "module must be a masked or causal language model of transformers that reads input ids, "
            f"but {name_of(module)} cannot be read: {error}"
        ) from error


def _reading(questions: Questions) -> Reading:
    """Find out how a model reads short texts."""
    module = questions.module
    if getattr(module.config, "is_encoder_decoder", False):
        raise ValueError("it has an encoder and a decoder")
    positions = positions_for_text(module)
    ids = _text(questions, min(LENGTH, positions))
    _check_output(questions, ids)

    # The vectors of a prompt stand over ids that are not their own, so vectors are tried over other ids too.
    other_ids = ids.clone()
    other_ids[:, : ids.shape[1] // 2] = questions.tokens[0]
    gradient_before, gradient_after = _sides_with_gradient(questions, ids)
    change_before, change_after = _sides_that_change_output(questions, ids)
    sees_others = change_before or change_after

    # A model may choose among many places, or count them all, so both a short and a longer text are padded.
    to_be_padded = _text(questions, min(PADDED_LENGTH, positions))
    sees_padding = False
    for divisor in (10, 2):
        length = to_be_padded.shape[1] // divisor
        sees_padding |= length > 0 and _sees_padding(questions, to_be_padded, length)
    return Reading(
        sees_before=gradient_before or change_before,
        sees_after=gradient_after or change_after,
        sees_padding=sees_padding,
        takes_vectors=_reads_embeddings_at(questions, ids, other_ids),
        passes_gradients=gradient_before or gradient_after or not sees_others,
    )


def _text(questions: Questions, length: int) -> Tensor:
    """Return a text, (1, length), in which each id differs from the one before it."""
    device = questions.module.get_input_embeddings().weight.device
    cycle = list(questions.tokens[:length])
    if len(cycle) == 1:
        vocabulary = len(questions.module.get_input_embeddings().weight)
        cycle.append((cycle[0] + 1) % vocabulary)
    return torch.tensor(cycle * length, device=device)[None, :length]


@torch.no_grad()
def _check_output(questions: Questions, ids: Tensor) -> None:
    """Raise ValueError if the output is not over the vocabulary, or if embeddings do not enter as they are."""
    module = questions.module
    embeddings = embeddings_of(module, ids)
    width = module.get_input_embeddings().weight.shape[-1]
    if not isinstance(embeddings, Tensor) or embeddings.shape != (*ids.shape, width):
        raise ValueError("its embedding does not give a vector for each id")
    logits = getattr(output_for(module, ids, torch.ones_like(ids)), "logits", None)
    if (
        not isinstance(logits, Tensor)
        or logits.ndim != 3
        or logits.shape[1] < ids.shape[1]
        or logits.shape[2] <= max(questions.tokens)
    ):
        raise ValueError("it has no head over its vocabulary")
    if logits[..., questions.tokens].isnan().any():
        raise ValueError("its output is not a number")
    if not _reads_embeddings_at(questions, ids, ids):
        raise ValueError("the embeddings of input ids do not enter it as they are")


def _logits(questions: Questions, ids: Tensor, attended: Tensor | None = None, vectors: Tensor | None = None) -> Tensor:
    """Return the output for the tokens at each place, (n, L, X). By default all ids are attended to."""
    if attended is None:
        attended = torch.ones_like(ids, dtype=torch.bool)
    logits = output_for(questions.module, ids, attended, vectors).logits
    return logits[:, -ids.shape[1] :, questions.tokens]  # From the end, because peft may put a prompt before.


@torch.no_grad()
def _reads_embeddings_at(questions: Questions, ids: Tensor, other_ids: Tensor) -> bool:
    """Tell whether the embeddings of `ids`, put over `other_ids`, are read as `ids` are."""
    logits = _logits(questions, ids)
    logits_of_vectors = _logits(questions, other_ids, vectors=embeddings_of(questions.module, ids))
    rounding = 8 * torch.finfo(logits.dtype).eps
    return not _differ(logits, logits_of_vectors, rounding)


def _sees_padding(questions: Questions, ids: Tensor, length: int) -> bool:
    """Tell whether the output for the first `length` ids depends on the others although these are not attended to."""
    padded = ids.clone()
    padded[:, length:] = questions.pad
    attended = torch.ones_like(ids, dtype=torch.bool)
    attended[:, length:] = False
    (gradient,) = _gradients(questions, padded, attended, [slice(0, length)])
    if gradient[length:].any():
        return True
    with torch.no_grad():
        logits = _logits(questions, ids[:, :length])
        logits_if_padded = _logits(questions, padded, attended)[:, :length]
    return _differ(logits, logits_if_padded, _rounding_of_sums(logits))


def _sides_that_change_output(questions: Questions, ids: Tensor) -> tuple[bool, bool]:
    """Tell whether the output at some place changes when ids before it do, and when ids after it do."""
    length = ids.shape[1]
    others = _text(questions, length + 1)[:, 1:]
    rows = [ids]
    for start in range(1, length):
        rows.append(torch.cat([ids[:, :start], others[:, start:]], 1))
        rows.append(torch.cat([others[:, :start], ids[:, start:]], 1))
    with torch.no_grad():
        logits, *of_changed = _logits(questions, torch.cat(rows))
    rounding = _rounding_of_sums(logits)
    sees_before = False
    sees_after = False
    for start in range(1, length):
        changed_behind = of_changed[2 * start - 2]
        changed_before = of_changed[2 * start - 1]
        sees_after |= _differ(logits[:start], changed_behind[:start], rounding)
        sees_before |= _differ(logits[start:], changed_before[start:], rounding)
    return sees_before, sees_after


def _sides_with_gradient(questions: Questions, ids: Tensor) -> tuple[bool, bool]:
    """Tell whether a gradient from the output at some place reaches places before it, and places after it."""
    length = ids.shape[1]
    each_place = [slice(place, place + 1) for place in range(length)]
    reached = _gradients(questions, ids, torch.ones_like(ids, dtype=torch.bool), each_place)
    return bool(reached.tril(-1).any()), bool(reached.triu(1).any())


def _gradients(questions: Questions, ids: Tensor, attended: Tensor, outputs: Sequence[slice]) -> Tensor:
    """Tell which places a gradient from each output reaches, (len(outputs), L). All are False if none can be taken."""
    reached = torch.zeros(len(outputs), ids.shape[1], dtype=torch.bool)
    with torch.no_grad():
        embeddings = embeddings_of(questions.module, ids)
    # Where an embedding is zero, as that of a padding id may be, gradients need not be finite.
    vectors = (embeddings + embeddings.std() * torch.randn_like(embeddings)).requires_grad_()
    try:
        logits = _logits(questions, ids, attended, vectors)[0].float()
        # The weighted sum is of the size of one logit, so gradients stay finite in 16 bits.
        weights = torch.randn(logits.shape[1], device=logits.device) / logits.shape[1] ** 0.5
        scores = logits @ weights
        for row, places in enumerate(outputs):
            (gradient,) = torch.autograd.grad(
                scores[places].sum(), vectors, retain_graph=True, materialize_grads=True, allow_unused=True
            )
            reached[row] = (gradient[0].isfinite() & (gradient[0] != 0)).any(-1)
    except Exception:  # Of any kind, where no gradient can be taken. The output was read before.
        return torch.zeros_like(reached)
    return reached


def _rounding_of_sums(logits: Tensor) -> float:
    """Return by what share of their size two logits may differ that are the same sum in another order."""
    return max(1e-3, torch.finfo(logits.dtype).eps ** 0.5)


def _differ(logits: Tensor, other_logits: Tensor, tolerance: float) -> bool:
    """Tell whether entries differ by more than `tolerance`, a share of their size, or of the median size if larger.

    The median keeps one huge entry, such as that of an id that is never to be predicted, from hiding the others.
    """
    logits = logits.float()
    other_logits = other_logits.float()
    sizes = torch.maximum(logits.abs(), other_logits.abs())
    sizes = torch.maximum(sizes, sizes.median())
    differs = (logits - other_logits).abs() > tolerance * sizes
    differs |= logits.isfinite() != other_logits.isfinite()
    return bool(differs.any())


def embeddings_of(module: nn.Module, ids: Tensor) -> Tensor:
    """Return what a model's own embedding gives for ids (n, L), as (n, L, width)."""
    with TURNS:  # Meanwhile no other thread may replace its output.
        return module.get_input_embeddings()(ids)


def output_for(module: nn.Module, ids: Tensor, attended: Tensor, vectors: Tensor | None = None, **options):
    """Return a model's own output for ids, or for vectors in the place of their embeddings.

    The model is called with ids even so, because some models count positions by ids, or read them in other ways. A hook
    replaces what its embedding gives for them, so that vectors enter exactly where embeddings do.

    Args:
        module: The model.
        ids: Input ids, (n, L).
        attended: Which of them are attended to, (n, L).
        vectors: Vectors in the place of the embeddings of the ids, (n, L, width).
        options: What else the model is called with.

    Raises:
        ValueError: Vectors are given, and the model does not read them.
    """
    if _takes(module, "attention_mask"):
        options["attention_mask"] = attended.long()
    if getattr(module.config, "return_dict", True) is False:
        options["return_dict"] = True
    have_entered = False

    def vectors_instead(embedding: nn.Module, inputs: tuple, embeddings: Tensor) -> Tensor:
        nonlocal have_entered
        if len(embeddings) != len(vectors) or embeddings.shape[1] < vectors.shape[1]:
            raise ValueError("its embeddings do not enter it in the order (n, L, width)")
        have_entered = True
        return torch.cat([vectors, embeddings[:, vectors.shape[1] :]], 1)  # Longformer adds padding of its own.

    with TURNS:  # A hook is seen by every thread that calls the model.
        if vectors is None:
            return module(input_ids=ids, **options)
        handle = module.get_input_embeddings().register_forward_hook(vectors_instead)
        try:
            with torch.compiler.set_stance("force_eager"):  # A compiled model does not notice the hook.
                output = module(input_ids=ids, **options)
        finally:
            handle.remove()
    if not have_entered:
        raise ValueError(f"vectors do not enter {name_of(module)}, because it does not call its own embedding")
    return output


def _takes(module: nn.Module, name: str) -> bool:
    """Tell whether a model takes an argument of this name."""
    parameters = inspect.signature(module.forward).parameters
    takes_any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any_name or name in parameters


@contextmanager
def _as_it_was(module: nn.Module) -> Iterator[None]:
    """Turn dropout off and gradients on within the block. Afterwards the model and random generators are as before.

    Some models keep what they computed last, or change for good when they read a short text.
    """
    contents = []
    for part in module.modules():
        for attributes in (vars(part), *vars(part).values()):
            if isinstance(attributes, dict):
                contents.append((attributes, dict(attributes)))
    try:
        with ExitStack() as stack:
            stack.enter_context(own_settings())
            stack.enter_context(torch.random.fork_rng())
            stack.enter_context(evaluating(module))
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            torch.manual_seed(0)
            yield
    finally:
        for attributes, before in contents:
            for name in attributes.keys() - before.keys():
                del attributes[name]
            attributes.update(before)


def name_of(module: nn.Module) -> str:
    """Return the name of a model's class, without what peft or a compiler adds."""
    module = getattr(module, "_orig_mod", module)
    base = module.get_base_model() if hasattr(module, "get_base_model") else module
    return type(base).__name__


def positions_for_text(module: nn.Module) -> int:
    """Return how many positions a model has for a text.

    Some positions do not count. RoBERTa never uses those up to its padding index, ProphetNet cannot use the last one,
    and a prefix that peft adds takes some.
    """
    config = module.config.get_text_config()
    count = UNLIMITED
    for name in NAMES_OF_LONGEST:
        positions = getattr(config, name, None) or UNLIMITED
        if positions > 0:  # XLNet has -1, which means that it has no limit.
            count = min(count, positions)
    never_used = 0
    for name, table in module.named_modules():
        padding_index = getattr(table, "padding_idx", None)
        if name.endswith("position_embeddings") and padding_index is not None:
            never_used = max(never_used, padding_index + 1)
    if hasattr(config, "ngram"):
        never_used += 1
    config_of_peft = getattr(module, "active_peft_config", None)
    return count - never_used - getattr(config_of_peft, "num_virtual_tokens", 0)
