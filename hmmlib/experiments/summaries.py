"""What many trials say together: means with 95% intervals, paired differences, and the values that the paper drew."""

from __future__ import annotations

import csv
import math
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from numbers import Real
from typing import NamedTuple

import torch

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import TrialResult, draw_model
from hmmlib.validation import of_type


class Interval(NamedTuple):
    """A mean over `n` trials with its 95% interval (Student's t); the interval is infinite for a single trial.

    That of a `share` is shown no wider than from 0 to 1, where every mean of shares lies.
    """

    mean: float
    low: float
    high: float
    n: int
    share: bool = False

    @property
    def shown(self) -> tuple[float, float]:
        """The ends of the interval as they are shown."""
        return (max(self.low, 0.0), min(self.high, 1.0)) if self.share else (self.low, self.high)

    def __format__(self, form: str) -> str:
        """The mean alone, in the given form, where there is no interval."""
        form = form or ".1%"
        if self.n < 2:
            return f"{self.mean:{form}} (one trial)"
        low, high = self.shown
        return f"{self.mean:{form}} [{low:{form}}, {high:{form}}]"

    @property
    def deviation(self) -> float:
        """The standard deviation of the values, as the interval's width tells it; NaN for a single trial."""
        return (self.high - self.low) / 2 / _half_width(self.n) if self.n > 1 else math.nan


def _half_width(n: int) -> float:
    """Of the 95% interval of the mean of `n` values whose standard deviation is 1."""
    from scipy.stats import t

    return float(t.ppf(0.975, n - 1)) / math.sqrt(n)


def interval(values: Sequence[float], share: bool = False) -> Interval:
    """Mean and 95% interval of independent values, all of them shares or not.

    ValueError where there is none, one that is not finite, or a share that is not from 0 to 1.
    """
    try:
        values = list(values.tolist() if hasattr(values, "tolist") else values)
    except TypeError:
        raise TypeError(f"values must be a sequence of numbers, not {type(values).__name__}") from None
    n = len(values)
    if not n or not all(isinstance(value, Real) and math.isfinite(value) for value in values):
        raise ValueError(f"values: an interval needs at least one value, all of them finite numbers, not {values!r}")
    if share and not 0 <= min(values) <= max(values) <= 1:
        raise ValueError(f"values: shares must be from 0 to 1, not {values!r}")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, -math.inf, math.inf, 1, share)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = _half_width(n) * deviation
    return Interval(mean, mean - half, mean + half, n, share)


def mean(values: Iterable[float | None]) -> float:
    """The mean of the values that are there: None stands for one that is missing. NaN where all of them are missing.

    TypeError for what is no sequence of numbers; a truth value counts as 0 or 1, so that a mean of them is a share.
    """
    try:
        there = [value for value in values if value is not None]
        return math.fsum(there) / len(there) if there else math.nan
    except TypeError:
        raise TypeError(f"values must be a sequence of numbers, or None in their place, not {values!r}") from None


def apart(one: Interval, other: Interval) -> Interval:
    """The difference of the means of two independent samples, with Welch's 95% interval; `n` counts both.

    TypeError for what is no interval.
    """
    from scipy.stats import t

    errors = [
        (of_type("each interval", found, Interval).deviation ** 2 / found.n, found.n - 1) for found in (one, other)
    ]
    error = sum(square for square, _ in errors)
    freedom = error**2 / sum(square**2 / free for square, free in errors) if error else 1.0
    half = float(t.ppf(0.975, freedom)) * math.sqrt(error)
    mean = one.mean - other.mean
    return Interval(mean, mean - half, mean + half, one.n + other.n)


@dataclass(frozen=True)
class Share:
    """Reads a share of texts off a result, by its name: None where it is not there, or the model is not of that kind."""

    name: str
    memory: bool | None = None

    def __call__(self, result: TrialResult) -> float | None:
        other_kind = self.memory is not None and self.memory != (result.spec.n_memory > 1)
        return None if other_kind else getattr(result, self.name)


Read = Callable[["TrialResult"], float | None]
LEFT: dict[str, Read] = {"head tuning": Share("head_accuracy"), "prompt tuning": Share("prompt_accuracy")}
RIGHT: dict[str, Read] = {
    "memory HMM + attention head": Share("attention_accuracy", memory=True),
    "vanilla HMM + linear head": Share("head_accuracy", memory=False),
}
LADDER: dict[str, Read] = {
    "head of Theorem 3.3": Share("built_head_accuracy"),
    "head tuned on the exact G": Share("exact_head_accuracy"),
    "prompt tuned on the exact Ḡ": Share("exact_prompt_accuracy"),
    "head tuned on the network": Share("head_accuracy"),
    "prompt tuned on the network": Share("prompt_accuracy"),
}
"""Series of Figure 3 as the paper names them, and of the ladder from theory to network: what to read off a result. What is
tuned on the exact model is tuned with the passes, batches and rates of what is tuned on the network."""


def as_results(results) -> list[TrialResult]:
    """`results` as a list; TypeError for what is no sequence of results."""
    try:
        listed = list(results)
    except TypeError:
        listed = [None]
    if not all(hasattr(result, "spec") for result in listed):
        raise TypeError(f"results must be a sequence of TrialResult, not {reprlib.repr(results)}")
    return listed


def means(results: Sequence[TrialResult], read: Read) -> Interval | None:
    """The interval of what is read off the results that have it; None where none has. TypeError for what is no result."""
    values = [value for value in map(read, as_results(results)) if value is not None]
    return interval(values, isinstance(read, Share)) if values else None


def along(results: Sequence[TrialResult], read: Read, at: Callable[[TrialResult], int]) -> dict[int, Interval]:
    """The interval of what `read` gives, at each value of `at` where it gives anything. TypeError for what is no result."""
    results = as_results(results)
    found = {x: means([r for r in results if at(r) == x], read) for x in sorted({at(r) for r in results})}
    return {x: one for x, one in found.items() if one is not None}


def size(result: TrialResult) -> int:
    """|M||H|, the axis of both panels."""
    return result.spec.size


def gain(result: TrialResult) -> float | None:
    """Prompt minus head in one trial: the pair shares model, network and task. None without a prompt."""
    return None if result.prompt_accuracy is None else result.prompt_accuracy - result.head_accuracy


def learned(result: TrialResult) -> float:
    """The share of what there was to learn that the network has learned: 0 where its loss is that of always guessing by the
    frequencies of the tokens, 1 where it is the least that there is, the exact G's. Below 0 where it is worse than those.
    """
    guess = _entropy_of_frequencies(of_type("result", result, TrialResult).spec)
    return (guess - result.network_loss) / (guess - result.best_loss)


@cache
def _entropy_of_frequencies(spec: TrialSpec) -> float:
    """Of the tokens of a trial's model, in nats, over the positions of its documents."""
    model = draw_model(spec)
    states = torch.stack([model.marginal(at) for at in range(1, (spec.document_length or spec.length) + 1)]).mean(0)
    memory = model.memory if spec.n_memory > 1 else torch.ones(1, dtype=states.dtype)
    emission = model.emission.reshape(spec.n_tokens, spec.n_memory, spec.n_states)
    return torch.special.entr(torch.einsum("xmh,m,h->x", emission, memory, states)).sum().item()


def reference(panel: str) -> dict[str, dict[int, Interval]]:
    """The values drawn in the paper's Figure 3: for each series of a panel, intervals by |M||H|, as shares.

    ValueError for an unknown panel.
    """
    if not isinstance(panel, str) or panel not in ("left", "right"):
        raise ValueError(f"panel must be left or right, not {panel!r}")
    lines = (files("hmmlib.experiments") / "figure3-reference.csv").read_text().splitlines()
    rows = [row for row in csv.DictReader(line for line in lines if not line.startswith("#")) if row["panel"] == panel]
    series: dict[str, dict[int, Interval]] = {}
    for row in rows:
        mean, low, high = (float(row[name]) / 100 for name in ("mean", "low", "high"))
        series.setdefault(row["series"], {})[int(row["x"])] = Interval(mean, low, high, 20 if panel == "left" else 5)
    return series
