"""One vector that is added at the mask, the same for every text, in place of a prompt.

What a prompt adds at the mask can follow the text. Such a vector cannot. So it is the control that tells whether this
is needed. It is tuned together with a head, for as many passes as a prompt or for more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from hmmbook import Measurement, Task, TrialSpec
from hmmbook.experiments.fields import Amount, Share, as_type
from hmmbook.experiments.measurements import Seeds, over_tokens
from hmmbook.studies.least_loss import least_loss_head
from hmmbook.studies.mechanism.gate import BOTH, PENALTY, REFITTED, PromptedNetwork, predict, refitted
from hmmlib import HMM, Tuned, Tuning
from hmmlib.theory.heads import share_right
from hmmlib.training import bert, tuning
from hmmlib.training.readers import as_reader

EMBEDDING = "constant in the mask's embedding"
BEHIND = "constant behind the last attention"
BEHIND_FROZEN = "constant behind the frozen prompt"
CONSTANTS = (EMBEDDING, BEHIND)
"""Where a vector is added without any prompt: to the mask's word embedding, or to what the last attention gives."""
PASSES = 20
"""How many passes a vector is tuned that is tuned for longer."""
RATES = (0.1, 0.03)
"""The rates that are tried then. The one is taken whose head is right on more validation texts."""

Probs = Callable[[Tensor, Tensor], Tensor]
"""From indices of texts, (n,), and a vector, (width,), the distributions at the mask, (n, X)."""


@dataclass(frozen=True)
class Constant:
    """A place for a vector, and what tuning it needs."""

    probs: Probs
    """The predictions with a vector there."""
    width: int
    """The number of its entries."""
    n_tokens: int
    """The number of probabilities in a prediction."""
    device: torch.device
    """Where the network is."""


def in_embedding(alone: PromptedNetwork, texts: Tensor, vector: Tensor) -> Tensor:
    """The distributions with `vector` added to the mask's word embedding, without a prompt."""
    vectors = alone.embeddings[texts]
    first = vectors[:, :1] + vector
    places = torch.zeros(len(texts), 1, dtype=torch.int64, device=vectors.device)
    logits = bert.logits_at(alone.network, torch.cat([first, vectors[:, 1:]], 1), places)
    return logits.squeeze(1).softmax(-1)


def behind_attention(network: PromptedNetwork, change: str) -> Probs:
    """Distributions with a vector added to what the last layer's attention gives, after a change to the prompt."""
    weights, values = network.weights_and_values(change)

    def probs(texts: Tensor, vector: Tensor) -> Tensor:
        return predict(network.network, network.state.of(texts), weights[texts], values[texts], vector)

    return probs


def tune_vector(constant: Constant, task: Task, plan: Tuning, seed: int, before_step: Callable) -> Tensor:
    """The distributions of all texts of a task, (n, X), with a vector that is tuned on the training texts."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.rand(constant.width, generator=generator) - 0.5
    vector = nn.Parameter(start.to(constant.device))
    texts = torch.arange(task.sizes[0])
    zeros = torch.zeros(constant.n_tokens, device=constant.device)
    probs = partial(constant.probs, vector=vector)
    tuning.fit_head(probs, zeros, texts, task.train.labels, plan, seed, [vector], before_step)
    with torch.no_grad():
        blocks = torch.arange(len(task.tokens)).split(512)
        return torch.cat([constant.probs(block, vector) for block in blocks])


@torch.no_grad()
def without_prompt(network: nn.Module, task: Task) -> dict[str, Constant]:
    """CONSTANTS for a network on the texts of a task, without a prompt."""
    width = network.config.hidden_size
    alone = PromptedNetwork(network, task.tokens, torch.zeros(0, width))
    n_tokens = network.config.vocab_size - 1
    return {
        EMBEDDING: Constant(partial(in_embedding, alone), width, n_tokens, network.device),
        BEHIND: Constant(behind_attention(alone, "none"), width, n_tokens, network.device),
    }


@Measurement(
    on_request=True, phase="gate", vanilla=True, prompts=True, constant_vectors=dict.fromkeys(CONSTANTS, REFITTED)
)
def constant_vectors(
    spec: TrialSpec, model: HMM, task: Task, network: nn.Module, seeds: Seeds, before_step: Callable
) -> dict:
    """Measure test accuracies with a constant vector that is tuned like a prompt, without any prompt."""
    masked_model = bert.as_network(as_reader(network).module).eval()
    table = {}
    with tuning.frozen(masked_model):
        constants = without_prompt(masked_model, task)
        for name, constant in constants.items():
            probs = tune_vector(constant, task, spec.tuning(), seeds["tuning"], before_step)
            table[name] = refitted(task, probs, spec.tuning(), seeds["tuning"], model.n_tokens)
    return {"constant_vectors": table}


TUNED_LONGER = as_type({"accuracy": Share, "validation": Share, "rate": Amount})


@Measurement(
    on_request=True,
    phase="controls",
    vanilla=True,
    prompts=True,
    tuned_constants=dict.fromkeys((*CONSTANTS, BEHIND_FROZEN), TUNED_LONGER),
)
def tuned_constants(
    spec: TrialSpec, model: HMM, task: Task, network: nn.Module, tuned: Tuned, seeds: Seeds, before_step: Callable
) -> dict:
    """Measure test accuracies with constant vectors that are tuned for PASSES, and heads fitted with PENALTY.

    Behind the frozen prompt, its attention and values are the same for every text.
    """
    masked_model = bert.as_network(as_reader(network).module).eval()
    table = {}
    with tuning.frozen(masked_model):
        constants = without_prompt(masked_model, task)
        with torch.no_grad():
            prompted = PromptedNetwork(masked_model, task.tokens, tuned.prompt)
            frozen_prompt = behind_attention(prompted, BOTH)
        constants[BEHIND_FROZEN] = replace(constants[BEHIND], probs=frozen_prompt)
        for name, constant in constants.items():
            table[name] = {"validation": -1.0}
            for rate in RATES:
                plan = Tuning(PASSES, spec.tuning_batch, rate, rate)
                probs = tune_vector(constant, task, plan, seeds["tuning"], before_step)
                validation, accuracy = fitted_accuracies(task, probs, model.n_tokens)
                if validation > table[name]["validation"]:
                    table[name] = {"accuracy": accuracy, "validation": validation, "rate": rate}
    return {"tuned_constants": table}


def fitted_accuracies(task: Task, probs: Tensor, n_tokens: int) -> tuple[float, float]:
    """The validation and test accuracy of a head that is fitted with PENALTY."""
    train, validation, test = over_tokens(task, probs, n_tokens)
    head = least_loss_head(train, task.train.labels, PENALTY)
    return share_right(validation @ head >= 0, task.validation.labels), share_right(test @ head >= 0, task.test.labels)
