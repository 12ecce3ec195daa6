"""Results as a table, a row for each trial; and means with their intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pandas as pd
from pandas import DataFrame

from hmmlib.experiments.presets import PANELS, PRESETS, TRIALS
from hmmlib.experiments.specs import MODEL_FIELDS, TrialSpec
from hmmlib.experiments.store import BEYOND, CHOICES, PROJECT, REFITS, Store, load_results
from hmmlib.experiments.trials import ORIGINAL, TrialResult
from hmmlib.validation import one_of

STORES = {"main": PROJECT, "beyond": BEYOND, "choices": CHOICES, "refits": REFITS}
"""The project's stores, as the column `store` names them."""
CLEAR = 5
"""Standard errors of a mean loss, at a deviation of one nat for each masked token."""


def results(preset: str | None = None, folder: Store | None = None) -> DataFrame:
    """Stored results, a row for each trial: of a preset those of mine/results and results/, or of another folder.

    Without a preset they are those of all presets; without a folder too, those of all stores of the project, which the
    column `store` names.

    Columns are the fields of `TrialSpec` and what was measured, by name; nested numbers have dotted names, such as
    `text_kinds.spread`, `seconds.pretraining` and `environment.device`. What a trial lacks is NaN. Derived columns:

    - `size`: |M||H|, the axis of Figure 3's panels.
    - `changes`: the fields, but for model and seed, that are not the preset's own, such as "steps=100"; or "".
    - `gain`: prompt minus head in one trial, which share model, network and task.
    - `excess_loss`: how far the network's masked-token loss lies above the least there is, nats.
    - `learned`: the share of what there was to learn that the network has learned. It is 0 where the loss is that of
      always guessing by the frequencies of the tokens, 1 where it is the exact G's, and below 0 where it is worse than
      those frequencies. It is NaN where those two differ by less than CLEAR standard errors of a loss, and
      for results of older versions without a `frequency_loss`, which `trials.measure` adds.

    A mean with its 95% interval for each number of states:

        shown = results("quick").query("changes == ''").groupby("n_states")
        shown[["head_accuracy", "prompt_accuracy"]].agg(mean_ci)

    Rows are ordered as `load_results` has them. ValueError for an unknown preset, or a file that is no result.
    """
    presets = PRESETS if preset is None else [preset]

    def table(store: Store) -> DataFrame:
        return as_table(one for name in presets for one in load_results(name, store))

    if preset is None and folder is None:
        return pd.concat([table(each).assign(store=name) for name, each in STORES.items()], ignore_index=True)
    return table(PROJECT if folder is None else folder)


def as_table(results: Iterable[TrialResult]) -> DataFrame:
    """The same table of results that are at hand."""
    rows = []
    for result in results:
        changes = result.spec.changes().items()
        words = " ".join(f"{name}={value}" for name, value in changes if name not in MODEL_FIELDS)
        row = vars(result.spec) | {"changes": words} | vars(result) | result.added
        rows.append({name: row[name] for name in row if name not in ("spec", "added")})
    first = [*(field.name for field in dataclasses.fields(TrialSpec)), "changes", *ORIGINAL]
    table = pd.json_normalize(rows).fillna(math.nan)
    table = DataFrame(table if rows else [], columns=list(dict.fromkeys([*first, *table])))
    table = table.sort_values(["n_memory", "n_states", "seed"], kind="stable", ignore_index=True)
    guess = table.get("frequency_loss", pd.Series(math.nan, table.index))
    gap, masked = guess - table.best_loss, (table.length * table.masked).round().clip(lower=1) * table.evaluation
    derived = {
        "size": table.n_memory * table.n_states,
        "gain": table.prompt_accuracy - table.head_accuracy,
        "excess_loss": table.network_loss - table.best_loss,
        "learned": ((guess - table.network_loss) / gap).where(gap > CLEAR / masked**0.5),
    }
    return pd.concat([table, DataFrame(derived)], axis=1)


@dataclass(frozen=True)
class Interval:
    """A mean over `n` values with its 95% interval (Student's t); it is infinite for a single value, NaN for none.

    The interval of a `share` is shown no wider than from 0 to 1, where every mean of shares lies.
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
        """Such as 93.1% [90.2%, 96.0%]; the mean alone where there is no interval, and – where there is no mean."""
        form = form or ".1%"
        if self.n < 2:
            return f"{self.mean:{form}} (one trial)" if self.n else "–"
        low, high = self.shown
        return f"{self.mean:{form}} [{low:{form}}, {high:{form}}]"

    def __str__(self) -> str:
        return format(self)

    __repr__ = __str__

    @property
    def deviation(self) -> float:
        """The standard deviation of the values, as the interval's width has it; NaN where there is no interval."""
        return (self.high - self.low) / 2 / _quantile(self.n - 1) * math.sqrt(self.n) if self.n > 1 else math.nan


def _quantile(freedom: float) -> float:
    """Half the width of a 95% interval, in standard errors."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def mean_ci(values: Sequence[float], share: bool | None = None) -> Interval:
    """Mean and 95% interval (Student's t) of the values; of shares, the interval is shown within 0 and 1.

    Missing values (NaN, None) are left out. For `DataFrame.agg` too: `results.groupby("size").gain.agg(mean_ci)`; a
    column of a name such as `head_accuracy` or `majority_rate` has shares, where nothing else is said.

    TypeError for what are no numbers, ValueError for infinite ones, and for a share that is not from 0 to 1.
    """
    if share is None:
        share = str(getattr(values, "name", "")).endswith(("_accuracy", "_rate"))
    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    if not np.isfinite(values).all():
        raise ValueError(f"values must be finite, not {values}")
    if share and not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"values must be shares, from 0 to 1, not {values}")
    if not (n := len(values)):
        return Interval(math.nan, math.nan, math.nan, 0, share)
    mean = math.fsum(values) / n
    half = _quantile(n - 1) / math.sqrt(n) * float(np.std(values, ddof=1)) if n > 1 else math.inf
    return Interval(mean, mean - half, mean + half, n, share)


def difference_ci(one: Interval, other: Interval) -> Interval:
    """The difference of the means of two independent samples, with Welch's 95% interval; `n` counts both."""
    squares = [(found.deviation**2 / found.n, found.n - 1) for found in (one, other)]
    error = sum(square for square, _ in squares)
    freedom = error**2 / sum(square**2 / free for square, free in squares) if error else 1.0
    mean, half = one.mean - other.mean, _quantile(freedom) * math.sqrt(error)
    return Interval(mean, mean - half, mean + half, one.n + other.n)


def spec_of(row: pd.Series) -> TrialSpec:
    """The spec of a row of the table."""
    return TrialSpec(**{field.name: row[field.name] for field in dataclasses.fields(TrialSpec)})


def published(panel: str) -> DataFrame:
    """The values drawn in the paper's Figure 3: a column for each series of a panel, intervals of shares by |M||H|.

    ValueError for an unknown panel.
    """
    rows = pd.read_csv(files("hmmlib.experiments") / "figure3-reference.csv", comment="#")
    rows = rows[rows.panel == one_of("panel", panel, PANELS)]
    shares = rows[["mean", "low", "high"]] / 100
    rows = rows.assign(interval=[Interval(*row, TRIALS[panel]) for row in shares.itertuples(index=False)])
    return rows.pivot(index="x", columns="series", values="interval")
