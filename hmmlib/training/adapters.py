"""What is tuned on a frozen network, by name: a soft prompt, or what `peft` adds to the network itself."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hmmlib.theory.heads import LinearHead
from hmmlib.training import tuning
from hmmlib.training.readers import FromTransformers, Reader, as_reader, positions_for_text
from hmmlib.training.tuning import Tuning, checked, fit_head, tune_prompt
from hmmlib.validation import as_seed, integer, of_type, one_of

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import BertForMaskedLM, PreTrainedModel

TUNERS = ("prompt", "prefix", "lora")
"""A soft prompt before the text; keys and values before it in each layer; low-rank matrices added to attention's."""

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
"""Names of the matrices of queries and values, or of one for keys too, in models of `transformers`."""


class Tuned(NamedTuple):
    """A network, with what was tuned inside it or as a `prompt` (P, width) to be put before the text; and a head."""

    network: BertForMaskedLM | Reader
    prompt: Tensor | None
    head: LinearHead

    def probs(self, tokens: Tensor) -> Tensor:
        """The tuned network's distribution at the first token of each sequence, (n, X)."""
        return tuning.all_probs_at_mask(self.network, tokens, self.prompt)


def peft_config(tuner: str, module: PreTrainedModel, length: int = 20, rank: int = 8) -> PeftConfig:
    """`peft`'s configuration for "prefix", of `length` vectors, or "lora", of a `rank` on queries and values.

    ModuleNotFoundError, with what to install, where `peft` is missing; ValueError where the module takes no prefix, or
    has no matrices that LORA_TARGETS names.
    """
    try:
        import peft
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"tuner {tuner} needs the extra: pip install 'hmmlib[adapters]'") from None
    kind, task = type(module).__name__, "FEATURE_EXTRACTION"
    if tuner == "prefix":
        if "past_key_values" not in inspect.signature(module.base_model.forward).parameters:
            raise ValueError(f"tuner must be prompt or lora for {kind}, which takes no keys and values, not prefix")
        return peft.PrefixTuningConfig(task_type=task, num_virtual_tokens=integer("length", length, 1))
    rank, parts = integer("rank", rank, 1), {name.rpartition(".")[2] for name, _ in module.named_modules()}
    target = next((names for names in LORA_TARGETS if parts.issuperset(names)), None)
    if target is None:
        known = "; ".join(map(" and ".join, LORA_TARGETS))
        raise ValueError(
            f"tuner must be prompt for {kind}, not lora: it has none of {known}; tune_with_peft takes a config"
        )
    transposed = target == ("c_attn",)  # as GPT-2 stores its matrices
    return peft.LoraConfig(
        task_type=task, r=rank, lora_alpha=2 * rank, target_modules=list(target), fan_in_fan_out=transposed
    )


def tune_with_peft(
    network: BertForMaskedLM | Reader,
    tokens: Tensor,
    labels: Tensor,
    config: PeftConfig,
    plan: Tuning,
    seed: int,
    before_step: Callable[[], None] | None = None,
) -> Tuned:
    """Train what `peft` adds to a copy of the network, at `plan.prompt_rate`, together with a linear head.

    With a task type of "FEATURE_EXTRACTION" `peft` leaves the output to the network's own head over its vocabulary.
    """
    from peft import PeftConfig, get_peft_model

    of_type("config", config, PeftConfig)
    reader, tokens = checked(network, tokens, at_mask=True)
    if type(reader) is Reader:
        reader = FromTransformers(reader.module, range(reader.n_tokens), mask=reader.n_tokens)
    reader = copy.copy(of_type("network", reader, FromTransformers))
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for a deprecated name
        torch.manual_seed(as_seed(seed))
        reader.module = get_peft_model(copy.deepcopy(reader.module).requires_grad_(False), config).eval()
    reader.longest = positions_for_text(reader.module)
    added = [parameter for parameter in reader.module.parameters() if parameter.requires_grad]
    inputs, zeros = tokens.to(reader.device), torch.zeros(reader.n_tokens, device=reader.device)
    head = fit_head(reader.probs, zeros, inputs, labels, plan, seed, added, before_step)
    reader.module.requires_grad_(False)
    return Tuned(reader, None, head)


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
    """Tune by one of TUNERS, with a linear head: a prompt or a prefix of `length` vectors, or LoRA of a `rank`.

    ValueError for another tuner, and where `peft` cannot add a prefix or LoRA to the network; ModuleNotFoundError where
    it is needed and missing. `start` and `before_step` are as in `tune_prompt`.
    """
    if one_of("tuner", tuner, TUNERS) == "prompt":
        return Tuned(network, *tune_prompt(network, tokens, labels, length, plan, seed, start, before_step))
    config = peft_config(tuner, as_reader(network).module, length, rank)
    return tune_with_peft(network, tokens, labels, config, plan, seed, before_step)
