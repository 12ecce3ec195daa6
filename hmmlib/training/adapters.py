"""What is tuned on a frozen network, by name: a soft prompt of ours, or what `peft` adds to the network itself."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from hmmlib.theory.heads import LinearHead
from hmmlib.training import tuning
from hmmlib.training.readers import FromTransformers, OwnBert, Reader, as_reader
from hmmlib.training.tuning import Tuning, fit, tune_prompt
from hmmlib.validation import as_seed, at_least, of_type, one_of

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import BertForMaskedLM

TUNERS = ("prompt", "prefix", "lora")
"""A soft prompt before the text; keys and values before it in each layer; matrices of low rank added to those of attention."""


class Tuned(NamedTuple):
    """What came of tuning: a network, with what was tuned inside it or as a `prompt` (P, width) to be put before it; a head."""

    network: BertForMaskedLM | Reader
    prompt: Tensor | None
    head: LinearHead

    def probs(self, tokens: Tensor) -> Tensor:
        """What the tuned network says at the first token of each sequence, (n, X)."""
        return tuning.all_probs_at_mask(self.network, tokens, self.prompt)


def peft_config(tuner: str, length: int, rank: int) -> PeftConfig:
    """The configuration of `peft` that a name stands for: a prefix of so many vectors, or LoRA of a rank on queries and values.

    ModuleNotFoundError, which says what to install, where `peft` is missing.
    """
    try:
        import peft
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"tuner {tuner} needs the extra: pip install 'hmmlib[adapters]'") from None
    if one_of("tuner", tuner, ("prefix", "lora")) == "prefix":
        return peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=at_least("length", length, 1))
    rank = at_least("rank", rank, 1)
    return peft.LoraConfig(
        task_type="FEATURE_EXTRACTION", r=rank, lora_alpha=2 * rank, target_modules=["query", "value"]
    )


def tune_with_peft(
    network: BertForMaskedLM | Reader,
    tokens: Tensor,
    labels: Tensor,
    config: PeftConfig,
    plan: Tuning,
    seed: int,
    tick: Callable[[], None] | None = None,
) -> Tuned:
    """What a configuration of `peft` adds to a network, and a linear head, trained together, at `plan.prompt_rate` and
    `plan.head_rate`. The network that is given stays as it is: a copy of it is tuned.

    With a task type of "FEATURE_EXTRACTION" `peft` leaves the output to the network's own head over its vocabulary.
    """
    reader = as_reader(network)
    tokens = reader.check(tokens)
    if isinstance(reader, OwnBert):
        reader = FromTransformers(reader.module, range(reader.n_tokens), mask=reader.n_tokens)
    from peft import PeftConfig, get_peft_model

    of_type("config", config, PeftConfig)
    reader = copy.copy(of_type("network", reader, FromTransformers))
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for a name that will be another one
        torch.manual_seed(as_seed(seed))
        reader.module = get_peft_model(copy.deepcopy(reader.module).requires_grad_(False), config).eval()
    weights = nn.Parameter(torch.zeros(reader.n_tokens, device=reader.device))
    added = [parameter for parameter in reader.module.parameters() if parameter.requires_grad]
    groups = [{"params": [weights], "lr": plan.head_rate}, {"params": added, "lr": plan.prompt_rate}]
    fit(lambda batch: reader.probs(batch) @ weights, groups, tokens.to(reader.device), labels, plan, seed, tick)
    reader.module.requires_grad_(False)
    return Tuned(reader, None, LinearHead(weights.detach()))


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
    tick: Callable[[], None] | None = None,
) -> Tuned:
    """Tune by one of TUNERS, together with a linear head: a prompt or a prefix of `length` vectors, or LoRA of a `rank`.

    ValueError for another tuner, ModuleNotFoundError where `peft` is needed and missing.
    """
    if one_of("tuner", tuner, TUNERS) == "prompt":
        prompt, head = tune_prompt(network, tokens, labels, length, plan, seed, start, tick)
        return Tuned(network, prompt, head)
    return tune_with_peft(network, tokens, labels, peft_config(tuner, length, rank), plan, seed, tick)
