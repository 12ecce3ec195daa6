"""Measure what Section 5 reports of a trial: losses, and accuracies of heads and of a tuned prompt."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F

from hmmbook.experiments.fields import Amount
from hmmbook.experiments.labels import Task
from hmmbook.experiments.measurements import Measurement, Seeds
from hmmbook.experiments.specs import TrialSpec
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert, readers, tuning
from hmmlib.training.adapters import Tuned


@Measurement("backbone", phase="exact model")
def fingerprint(network: Module) -> dict:
    """Measure the network's fingerprint, 16 hexadecimal digits that its weights determine."""
    return {"backbone": bert.fingerprint(network)}


@Measurement("network_loss", "best_loss", phase="exact model")
def masked_losses(spec: TrialSpec, model: HMM | MemoryHMM, network: Module, seeds: Seeds) -> dict:
    """Measure the network's masked-token loss on fresh text, and the least possible loss on it, in nats."""
    network_loss, best_loss = readers.masked_losses(
        network, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"]
    )
    return {"network_loss": network_loss, "best_loss": best_loss}


@Measurement(phase="exact model", frequency_loss=Amount)
def frequency_loss(spec: TrialSpec, model: HMM | MemoryHMM) -> dict:
    """Measure the loss of always predicting a token by its frequency, in nats.

    A network with this loss has learned the frequencies of the tokens and no more.
    """
    return {"frequency_loss": entropy_of_frequencies(model, spec.document_length or spec.length)}


def entropy_of_frequencies(model: HMM | MemoryHMM, length: int) -> float:
    """Return the entropy of the frequencies with which a model emits its tokens, in nats.

    Args:
        model: the model.
        length: the length of its texts. The frequencies are means over all positions.
    """
    marginals = [model.marginal(position) for position in range(1, length + 1)]
    states = torch.stack(marginals).mean(0)
    if isinstance(model, MemoryHMM):
        values = torch.stack([marginal_of_cell(model, cell) for cell in range(model.n_cells)])
    else:
        values = torch.ones(1, 1, dtype=model.dtype)
    # A state h = (cell, syntax) emits by the value in its cell: weights[m, h] = P[M_cell = m] P[H = h].
    weights = values.repeat_interleave(model.n_states // len(values), 0).T * states
    frequencies = model.emission.flatten(1) @ weights.flatten()
    return torch.special.entr(frequencies).sum().item()


def marginal_of_cell(model: MemoryHMM, cell: int) -> Tensor:
    """Return P[M_cell = m] for each memory value m, (|M|,)."""
    joint = model.memory.movedim(cell, 0)
    return joint.reshape(len(joint), -1).sum(1)


@Measurement("majority_rate", "redraws", phase="exact model")
def balance(task: Task) -> dict:
    """Measure the share of the more frequent test label, and how often μ was drawn again."""
    share = task.test.labels.double().mean().item()
    return {"majority_rate": max(share, 1 - share), "redraws": task.redraws}


@Measurement("divergence", phase="head tuning")
def divergence(spec: TrialSpec, task: Task, exact: Tensor, outputs: Tensor) -> dict:
    """Measure the KL divergence from the exact distribution at the mask to the network's, in nats.

    It is a mean over the test texts.
    """
    *_, network_probs = task.split(outputs[:, 0].cpu())
    *_, exact_probs = task.split(exact[:, 0].cpu())
    log_probs = network_probs[:, : spec.n_tokens].double().log()
    return {"divergence": F.kl_div(log_probs, exact_probs, reduction="batchmean").item()}


def tuned_heads(spec: TrialSpec, task: Task, probs: Tensor, seed: int) -> dict[str, float]:
    """Tune a linear head at the mask and an attention head, and return their accuracies.

    Args:
        spec: the spec of the trial, which says how heads are tuned.
        task: the texts and their labels.
        probs: a distribution at each position of each text, (n, T, X).
        seed: the seed of both heads.

    Returns:
        The accuracies of both heads on the validation and on the test texts, by name.
    """
    plan = spec.tuning()
    train, validation, test = task.split(probs)
    train_labels, validation_labels, test_labels = task.split(task.labels)
    learned_positions = spec.attention_positions == "learned"
    head = tuning.tune_head(train[:, 0], train_labels, plan, seed)
    attention = tuning.tune_attention(train, train_labels, plan, seed, spec.attention_heads, learned_positions)
    return {
        "validation_head_accuracy": tuning.accuracy(head, validation[:, 0], validation_labels),
        "validation_attention_accuracy": tuning.accuracy(attention, validation, validation_labels),
        "head_accuracy": tuning.accuracy(head, test[:, 0], test_labels),
        "attention_accuracy": tuning.accuracy(attention, test, test_labels),
    }


@Measurement(
    "head_accuracy",
    "attention_accuracy",
    "validation_head_accuracy",
    "validation_attention_accuracy",
    phase="head tuning",
)
def heads(spec: TrialSpec, task: Task, outputs: Tensor, seeds: Seeds) -> dict:
    """Measure the accuracies of a linear head and an attention head, tuned on the network's distributions."""
    return tuned_heads(spec, task, outputs, seeds["tuning"])


@Measurement("exact_head_accuracy", "exact_attention_accuracy", phase="head tuning")
def exact_heads(spec: TrialSpec, task: Task, exact: Tensor, seeds: Seeds) -> dict:
    """Measure the test accuracies of the same two heads if they are tuned on the exact G."""
    accuracies = tuned_heads(spec, task, exact.float(), seeds["tuning"])
    return {
        "exact_head_accuracy": accuracies["head_accuracy"],
        "exact_attention_accuracy": accuracies["attention_accuracy"],
    }


@Measurement("prompt_accuracy", "validation_prompt_accuracy", phase="prompt tuning", vanilla=True)
def tuned_prompt(task: Task, tuned: Tuned) -> dict:
    """Measure the accuracies of a head behind a tuned prompt, or with whatever else the spec's tuner tunes."""
    return {
        "validation_prompt_accuracy": accuracy_of_tuned(task.validation, tuned),
        "prompt_accuracy": accuracy_of_tuned(task.test, tuned),
    }


def accuracy_of_tuned(texts: Task, tuned: Tuned) -> float:
    """Return the accuracy, on texts of a task, of what was tuned."""
    return tuning.accuracy(tuned.head, tuned.probs(texts.tokens), texts.labels)


def accuracy_behind(network: Module, task: Task, spec: TrialSpec, seed: int, prompt: Tensor | None = None) -> float:
    """Tune a linear head at the mask behind a fixed prompt, and return its test accuracy.

    Args:
        network: the pretrained network.
        task: the texts and their labels.
        spec: the spec of the trial, which says how heads are tuned.
        seed: the seed of the head.
        prompt: the prompt, which is not tuned. If you leave it out, there is none.
    """
    train_probs = tuning.all_probs_at_mask(network, task.train.tokens, prompt)
    test_probs = tuning.all_probs_at_mask(network, task.test.tokens, prompt)
    head = tuning.tune_head(train_probs, task.train.labels, spec.tuning(), seed)
    return tuning.accuracy(head, test_probs, task.test.labels)


@Measurement("untrained_prompt_accuracy", phase="prompt tuning", vanilla=True, prompts=True)
def untrained_prompt(spec: TrialSpec, network: Module, task: Task, seeds: Seeds) -> dict:
    """Measure the accuracy of a head that is tuned behind a prompt which stays as it was drawn."""
    seed = seeds["tuning"]
    prompt = tuning.initial_prompt(network, spec.prompt_length, seed, spec.prompt_start)
    return {"untrained_prompt_accuracy": accuracy_behind(network, task, spec, seed, prompt)}
