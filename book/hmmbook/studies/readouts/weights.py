"""The nearest reweighting W (c ⊙ p) / cᵀp.

It has very many local minima, so line searches come first, and derivatives serve only at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hmmbook.studies.readouts.readout import Readout, with_log_weights
from hmmbook.studies.readouts.search import PLAN, approach

WIDTHS = (3.0, 5.0, 8.0, 12.0)
"""The standard deviations of log c that starts are drawn with, by turns. They are wide because where beliefs are nearly
certain only weights that lie far apart change anything."""


@dataclass(frozen=True)
class LineSearchPlan:
    """How log c_h is searched for one state after the other, and how the best ends are mixed."""

    coarse: float = 3.0
    """The width of a step in log c_h."""
    fine: float = 0.3
    """The width at the end."""
    levels: int = 8
    """How many steps are tried to either side."""
    rounds: int = 12
    """The most rounds over all states."""
    gain: float = 1e-4
    """Rounds end where one gains less than this."""
    limit: float = 300.0
    """How far apart the entries of log c may lie."""
    parents: int = 16
    """How many of the nearest ends are mixed in pairs."""
    redrawn: float = 0.1
    """The share of entries that are drawn anew in a mixture."""
    finalists: int = 3
    """How many of the nearest go on with all texts."""


PLAN_OF_LINES = LineSearchPlan()


class Target(NamedTuple):
    """The predictions that a reweighting is to come near."""

    beliefs: Tensor
    """p, (n, S)."""
    predictions: Tensor
    """g, (n, X)."""
    emission: Tensor
    """W, (X, S)."""

    def first(self, n: int) -> Target:
        """The target on the first n texts."""
        return Target(self.beliefs[:n], self.predictions[:n], self.emission)


class End(NamedTuple):
    """Where a line search ends."""

    distance: float
    """The mean total variation."""
    logs: Tensor
    """log c, (S,), whose largest entry is 0."""


def search_lines(target: Target, logs: Tensor, widths: Iterable[float], generator: torch.Generator) -> End:
    """Search over each log c_h in turn, from `logs`, with steps of these widths.

    What is missing at a text, Σ_h c_h p_h (W_h - g), is linear in each c_h. Its distance is half its norm over cᵀp.
    """
    plan = PLAN_OF_LINES
    beliefs, predictions, emission = target
    parts = beliefs.T.unsqueeze(2) * (emission.T.unsqueeze(1) - predictions)  # p_h (W_h - g), (S, n, X)

    def distances(others: Tensor, state: int, levels: Tensor) -> Tensor:
        """The mean distance for each level of c_state. The weights of the other states are `others`."""
        missing = torch.tensordot(others, parts, 1) + levels[:, None, None] * parts[state]
        total = beliefs @ others + levels[:, None] * beliefs[:, state]
        return (missing.abs().sum(2) / total).mean(1) / 2

    steps = torch.arange(-plan.levels, plan.levels + 1).double()
    least = torch.inf
    logs = logs.clone()
    for width in widths:
        for _ in range(plan.rounds):
            before = least
            for state in torch.randperm(len(logs), generator=generator).tolist():
                highest = logs.max()
                others = (logs - highest).exp()
                others[state] = 0
                candidates = (logs[state] + width * steps).clamp(min=highest - plan.limit)
                distance, index = distances(others, state, (candidates - highest).exp()).min(0)
                logs[state] = candidates[index]
                least = distance.item()
            if before - least < plan.gain:
                break
    return End(least, logs - logs.max())


def nearest_weights(target: Target, starts: int, generator: torch.Generator) -> Readout:
    """Find the nearest reweighting.

    On the first texts, line searches go on from `starts` draws. Three times as many go on from mixtures of two of the
    nearest ends so far, of which each log c_h is taken from one or the other. The best of all, and c = 1, go on with
    all texts, and last by Adam.
    """
    plan = PLAN_OF_LINES
    few = target.first(PLAN.texts)
    n_states = target.emission.shape[1]

    def draw(width: float) -> Tensor:
        return width * torch.randn(n_states, generator=generator, dtype=target.emission.dtype)

    def chance(share: float) -> Tensor:
        return torch.rand(n_states, generator=generator) < share

    ends = []
    for start in range(starts):
        logs = draw(WIDTHS[start % len(WIDTHS)])
        ends.append(search_lines(few, logs, [plan.coarse], generator))
    for _ in range(3 * starts):
        ends.sort(key=lambda end: end.distance)
        order = torch.randperm(min(plan.parents, starts), generator=generator)
        mother = ends[order[0]].logs
        father = ends[order[-1]].logs
        redrawn = chance(plan.redrawn)
        fresh = draw(WIDTHS[-1])
        mixture = torch.where(redrawn, fresh, torch.where(chance(0.5), mother, father))
        ends.append(search_lines(few, mixture, [plan.coarse], generator))
    ends.sort(key=lambda end: end.distance)

    unweighed = torch.zeros_like(target.emission[0])
    finalists = [unweighed]
    for logs in [unweighed] + [end.logs for end in ends[: plan.finalists]]:
        finalists.append(search_lines(target, logs, [plan.coarse, plan.fine], generator).logs)

    def predict(beliefs: Tensor, logs: Tensor) -> Tensor:
        return with_log_weights(target.emission, logs)(beliefs)

    starting = [torch.stack(finalists)]
    (logs,), distances = approach(predict, starting, target.beliefs, target.predictions, PLAN.last_steps)
    return with_log_weights(target.emission, logs[distances.argmin()])
