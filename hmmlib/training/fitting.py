"""The loop in which heads and prompts are tuned: AdamW on the logistic loss of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib import device as backend
from hmmlib.theory.heads import LinearHead
from hmmlib.validation import as_generator, as_labels, integer, number, of_type

INITIAL_SCALE = 2.0**12
"""The factor by which the loss of a float16 network is multiplied at first. Infinite gradients halve the factor."""


@dataclass(frozen=True)
class Tuning:
    """How to tune, by default as the preset `quick` does. The optimiser is AdamW without weight decay.

    Raises:
        ValueError: A field has another type, or is out of its range.

    Example:
        >>> from hmmlib import Tuning
        >>> Tuning(epochs=10, batch=32)
        Tuning(epochs=10, batch=32, head_rate=0.1, prompt_rate=0.1, warmup=0.1)
    """

    epochs: int = 5
    """How many passes are made over the training examples."""
    batch: int = 128
    """How many examples a step has."""
    head_rate: float = 0.1
    """The learning rate of a head."""
    prompt_rate: float = 0.1
    """The learning rate of a prompt, and of whatever else is trained together with a head."""
    warmup: float = 0.1
    """The share of the steps in which the rates rise linearly. In the other steps they fall linearly to zero."""

    def __post_init__(self) -> None:
        integer("epochs", self.epochs, 1)
        integer("batch", self.batch, 1)
        number("head_rate", self.head_rate, 0)
        number("prompt_rate", self.prompt_rate, 0)
        number("warmup", self.warmup, 0, 1)


def fit(
    score: Callable[[Tensor], Tensor],
    head: Sequence[Tensor],
    inputs: Tensor,
    labels: Tensor,
    plan: Tuning,
    seed: int,
    also_trained: Sequence[Tensor] = (),
    before_step: Callable[[], None] | None = None,
    half: bool = False,
) -> None:
    """Minimise the logistic loss of labels, by changing the parameters of a head in place.

    Args:
        score: A function from a batch of n inputs to scores, (n,).
        head: The parameters of a head, which are trained at `plan.head_rate`.
        inputs: The training examples, (N, …).
        labels: Their labels, (N,).
        plan: How to tune.
        seed: A seed for the order of the examples.
        also_trained: Parameters that are trained at `plan.prompt_rate`.
        before_step: Called before each step. What it raises ends the tuning.
        half: Whether gradients pass through float16, where small ones vanish. The loss is then scaled up for them.

    Raises:
        FloatingPointError: What was trained is no longer finite.
        ValueError: There are not N labels, or the scores do not depend on `also_trained`.
    """
    generator = as_generator(seed)
    labels = as_labels(labels, len(inputs))
    of_type("plan", plan, Tuning)
    groups = [{"params": list(head), "lr": plan.head_rate}]
    if also_trained:
        groups.append({"params": list(also_trained), "lr": plan.prompt_rate})
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)

    steps = plan.epochs * math.ceil(len(inputs) / plan.batch)
    warmup = max(1, round(plan.warmup * steps))

    def share_of_rate(step: int) -> float:
        rising = (step + 1) / warmup
        falling = (steps - step) / max(1, steps - warmup)
        return min(rising, falling)

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, share_of_rate)
    scaler = torch.amp.GradScaler(head[0].device.type, INITIAL_SCALE, enabled=half)
    target = labels.to(head[0])
    for _ in range(plan.epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for examples in order.split(plan.batch):
            backend.stop_if_interrupted()
            if before_step:
                before_step()
            examples = examples.to(inputs.device)
            with torch.enable_grad():
                loss = F.binary_cross_entropy_with_logits(score(inputs[examples]), target[examples])
            optimiser.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            if also_trained and all(parameter.grad is None for parameter in also_trained):
                raise ValueError("also_trained must change the scores, but no gradient reaches it")
            scaler.step(optimiser)
            scaler.update()
            scheduler.step()

    if not all(parameter.isfinite().all() for parameter in (*head, *also_trained)):
        rates = ", ".join(f"{group['initial_lr']:g}" for group in optimiser.param_groups)
        raise FloatingPointError(f"tuning diverged to numbers that are not finite. Lower its rates, which were {rates}")


def fit_head(
    probs: Callable[[Tensor], Tensor],
    start: Tensor,
    inputs: Tensor,
    labels: Tensor,
    plan: Tuning,
    seed: int,
    also_trained: Sequence[Tensor] = (),
    before_step: Callable[[], None] | None = None,
    half: bool = False,
) -> LinearHead:
    """Tune a linear head on distributions that may themselves be trained.

    Args:
        probs: A function from a batch of n inputs to distributions, (n, X).
        start: The weights with which the head begins, (X,).
        inputs: The training examples, (N, …). This and all later arguments are those of `fit`.

    Returns:
        The head, which no gradient reaches any more.
    """
    weights = nn.Parameter(start)

    def score(batch: Tensor) -> Tensor:
        return probs(batch) @ weights

    fit(score, [weights], inputs, labels, plan, seed, also_trained, before_step, half)
    return LinearHead(weights.detach())
