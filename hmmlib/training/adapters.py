"""What is tuned on a frozen network, by name: a soft prompt, or what `peft` adds to the network itself."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hmmlib.device import own_settings
from hmmlib.theory.heads import LinearHead
from hmmlib.training import foreign, tuning
from hmmlib.training.fitting import Tuning, fit_head
from hmmlib.training.from_transformers import FromTransformers
from hmmlib.training.readers import Reader, as_reader
from hmmlib.validation import as_seed, integer, of_type, one_of

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import BertForMaskedLM, PreTrainedModel

TUNERS = ("prompt", "prefix", "lora")
"""What can be tuned. "prompt" is a soft prompt before the text, "prefix" puts keys and values before it in each layer,
and "lora" adds low-rank matrices to those of attention."""

TASK_TYPE = "FEATURE_EXTRACTION"
"""With this task type `peft` leaves the output to the network's own head over its vocabulary."""

LORA_TARGETS = (
    ("query", "value"),
    ("q_proj", "v_proj"),
    ("q_lin", "v_lin"),
    ("query_proj", "value_proj"),
    ("q", "v"),
    ("c_attn",),
    ("query_key_value",),
    ("Wqkv",),
)
"""Names of the matrices of queries and values in models of `transformers`, or of one matrix that holds both."""


class Tuned(NamedTuple):
    """What was tuned, which is a head together with a prompt before the text or with the network itself.

    Example:
        >>> import torch
        >>> from hmmlib import MASK, Shape, Tuned, Tuning, tune
        >>> from hmmlib.training.bert import build
        >>> network = build(Shape(layers=1, width=8, heads=2, max_length=8), n_tokens=4, seed=0)
        >>> texts = torch.tensor([[MASK, 0, 1], [MASK, 3, 2]])
        >>> tuned = tune("prompt", network, texts, [True, False], Tuning(epochs=2), seed=0, length=5)
        >>> isinstance(tuned, Tuned), tuned.head.label(tuned.probs(texts)).shape
        (True, torch.Size([2]))
    """

    network: BertForMaskedLM | Reader
    """The network, with what was tuned inside it if there is no prompt."""
    prompt: Tensor | None
    """The vectors to be put before each text, (P, width), or None for a prefix or LoRA."""
    head: LinearHead
    """The head that was tuned together with them."""

    def probs(self, tokens: Tensor) -> Tensor:
        """Return the tuned network's distribution at the first token of each text (n, T), as (n, X)."""
        return tuning.all_probs_at_mask(self.network, tokens, self.prompt)


def peft_config(tuner: str, module: PreTrainedModel, length: int = 20, rank: int = 8) -> PeftConfig:
    """Return the configuration of a tuner of `peft`.

    Args:
        tuner: "prefix" or "lora".
        module: The model that the configuration is for.
        length: How many vectors a prefix has.
        rank: The rank of LoRA's matrices.

    Raises:
        ModuleNotFoundError: `peft` is not installed.
        ValueError: The model takes no prefix, or has no matrices that LORA_TARGETS names.
    """
    try:
        import peft
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"tuner {tuner} needs peft. Install it with pip install 'hmmlib[adapters]'") from None
    kind = type(module).__name__
    if tuner == "prefix":
        integer("length", length, 1)
        if "past_key_values" not in inspect.signature(module.base_model.forward).parameters:
            raise ValueError(f"tuner must be prompt or lora, not prefix, for {kind}, which takes no keys and values")
        return peft.PrefixTuningConfig(task_type=TASK_TYPE, num_virtual_tokens=length)
    rank = integer("rank", rank, 1)
    targets = _lora_targets(module)
    if targets is None:
        known = "; ".join(" and ".join(names) for names in LORA_TARGETS)
        raise ValueError(
            f"tuner must be prompt for {kind}, not lora, because it has no matrices of these names: {known}. "
            "To add LoRA to others, name them in a LoraConfig and pass it to tune_with_peft"
        )
    return peft.LoraConfig(
        task_type=TASK_TYPE,
        r=rank,
        lora_alpha=2 * rank,
        target_modules=list(targets),
        fan_in_fan_out=targets == ("c_attn",),  # GPT-2 stores its matrices transposed.
    )


def _lora_targets(module: PreTrainedModel) -> tuple[str, ...] | None:
    """Return the first entry of LORA_TARGETS whose matrices the model has, or None."""
    present = {name.rpartition(".")[2] for name, _ in module.named_modules()}
    for names in LORA_TARGETS:
        if present.issuperset(names):
            return names
    return None


@own_settings()
def tune_with_peft(
    network: BertForMaskedLM | Reader,
    tokens: Tensor,
    labels: Tensor,
    config: PeftConfig,
    plan: Tuning,
    seed: int,
    before_step: Callable[[], None] | None = None,
) -> Tuned:
    """Tune what `peft` adds to a copy of the network, at `plan.prompt_rate`, together with a linear head.

    Args:
        network: The network, which stays as it is.
        tokens: The training texts, (n, T), which begin with MASK.
        labels: Their labels, (n,).
        config: What to add. Its task type must be "FEATURE_EXTRACTION".
        plan: How to tune.
        seed: A seed for what is added, and for the order of the texts.
        before_step: Called before each step. What it raises ends the tuning.

    Returns:
        The head, with a reader of the changed copy.

    Raises:
        TypeError: The config is not of `peft`, or the network is not one of `bert.build` or a FromTransformers.
        ValueError: The network ignores what is added, or no longer reads texts as before.
    """
    from peft import PeftConfig, get_peft_model

    of_type("config", config, PeftConfig)
    reader, tokens = tuning.checked(network, tokens, at_mask=True)
    if type(reader) is Reader:
        reader = FromTransformers(reader.module, range(reader.n_tokens), mask=reader.n_tokens)
    reader = copy.copy(of_type("network", reader, FromTransformers))
    frozen_copy = copy.deepcopy(reader.module).requires_grad_(False)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for a deprecated name.
        torch.manual_seed(as_seed(seed))
        reader.module = get_peft_model(frozen_copy, config).eval()
    reader.longest = foreign.positions_for_text(reader.module)

    added = [parameter for parameter in reader.module.parameters() if parameter.requires_grad]
    _check_that_it_is_read(reader, added, tokens[:1], config)
    inputs = tokens.to(reader.device)
    zeros = torch.zeros(reader.n_tokens, device=reader.device, dtype=reader.dtype)
    head = fit_head(reader.probs, zeros, inputs, labels, plan, seed, added, before_step, reader.is_half)
    reader.module.requires_grad_(False)
    return Tuned(reader, None, head)


def _check_that_it_is_read(reader: FromTransformers, added: list[Tensor], text: Tensor, config: PeftConfig) -> None:
    """Raise ValueError if the output for a text (1, T) does not depend on what peft adds, or on the text as before."""
    kind = type(config).__name__
    name = foreign.name_of(reader.module)
    embedded = reader.embed(text)
    try:
        reading = foreign.ask(reader.module, reader.ids[: reader.n_tokens].tolist(), reader.pad)
        with torch.enable_grad():
            logits = reader.logits(embedded, embedded.places[:, :1])
    except Exception as error:  # Models that do not take what was added raise errors of any kind.
        raise ValueError(f"config must be one that {name} takes, not {kind}: {error.__cause__ or error}") from error
    if reading != reader.reading:
        raise ValueError(f"config must be one with which {name} reads texts as before, not {kind}")
    gradients = []
    if logits.requires_grad:
        gradients = torch.autograd.grad(logits.square().sum(), added, materialize_grads=True)
    if not any(gradient.any() for gradient in gradients):
        raise ValueError(f"config must be one that {name} reads, but its output does not depend on what {kind} adds")


def tune(
    tuner: str,
    network: BertForMaskedLM | Reader,
    tokens: Tensor,
    labels: Tensor,
    plan: Tuning,
    seed: int,
    length: int = 20,
    start: str = "uniform",
    rank: int = 8,
    before_step: Callable[[], None] | None = None,
) -> Tuned:
    """Tune one of TUNERS on a frozen network, together with a linear head.

    Of these, the paper tunes only the prompt.

    Args:
        tuner: "prompt", "prefix" or "lora".
        network: The network, which stays as it is.
        tokens: The training texts, (n, T), which begin with MASK.
        labels: Their labels, (n,).
        plan: How to tune.
        seed: A seed for all random draws.
        length: How many vectors a prompt or a prefix has.
        start: Where a prompt begins, "uniform" or "vocabulary".
        rank: The rank of LoRA's matrices.
        before_step: Called before each step. What it raises ends the tuning.

    Raises:
        ModuleNotFoundError: The tuner needs `peft`, which is not installed.
        ValueError: There is no such tuner, or `peft` cannot add it to the network.

    Example:
        >>> import torch
        >>> from hmmlib import MASK, Shape, Tuning, accuracy, tune
        >>> from hmmlib.training.bert import build
        >>> network = build(Shape(layers=1, width=8, heads=2, max_length=8), n_tokens=4, seed=0)
        >>> texts = torch.tensor([[MASK, 0, 1], [MASK, 3, 2]])
        >>> labels = torch.tensor([True, False])
        >>> tuned = tune("prompt", network, texts, labels, Tuning(epochs=2), seed=0, length=5)
        >>> accuracy(tuned.head, tuned.probs(texts), labels) in (0.0, 0.5, 1.0)
        True
    """
    if one_of("tuner", tuner, TUNERS) == "prompt":
        prompt, head = tuning.tune_prompt(network, tokens, labels, length, plan, seed, start, before_step)
        return Tuned(network, prompt, head)
    config = peft_config(tuner, as_reader(network).module, length, rank)
    return tune_with_peft(network, tokens, labels, config, plan, seed, before_step)
