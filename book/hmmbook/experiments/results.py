"""Make a table of stored results, with a row for each trial."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable
from importlib.resources import files

import pandas as pd
from pandas import DataFrame

from hmmbook.experiments.intervals import Interval
from hmmbook.experiments.presets import PANELS, PRESETS, TRIALS
from hmmbook.experiments.specs import MODEL_FIELDS, TrialSpec
from hmmbook.experiments.store import BEYOND, CHOICES, PROJECT, REFITS, Store, as_store, load_results
from hmmbook.experiments.trials import ORIGINAL, TrialResult
from hmmlib.validation import one_of

STORES = {"main": PROJECT, "beyond": BEYOND, "choices": CHOICES, "refits": REFITS}
"""The project's stores, as the column `store` names them."""
CLEAR = 5
"""How many standard errors two mean losses must differ by, so that their difference is clear.

The standard error is that of a mean over the masked tokens, if the loss of each token has a deviation of one nat.
"""


def results(preset: str | None = None, folder: Store | None = None) -> DataFrame:
    """Return stored results as a table, with a row for each trial.

    The columns are the fields of `TrialSpec` and everything that was measured, by name. Nested numbers have names with
    dots, such as `seconds.pretraining` and `environment.device`. A number that a trial lacks is NaN. Networks of the
    preset `smoke` learn next to nothing, so their accuracies are often the `majority_rate`. Some columns are computed
    from others:

    - `size` is |M||H|, the axis of Figure 3's panels.
    - `changes` lists the fields that differ from the preset, such as "steps=100". Fields of the model are left out.
    - `gain` is the accuracy of the prompt minus that of the head. Both have the same model, network and task.
    - `excess_loss` is how far the network's masked-token loss lies above the least possible one, in nats.
    - `learned` is the share of what there was to learn that the network has learned. It is 0 if the loss is that of
      always guessing by the frequencies of the tokens. It is 1 if the loss is that of the exact G, and negative if the
      loss is worse than that of the frequencies. It is NaN if the losses of the frequencies and of the exact G differ
      by less than CLEAR standard errors, and for older results, which have no `frequency_loss`.

    Args:
        preset: the name of the preset whose results you want. If you leave it out, you get those of all presets.
        folder: a folder of results. If you leave it out, you get the user's and the project's results of the preset. If
            you leave out both, you get those of all stores of the project, and the column `store` names the store.

    Returns:
        The table, sorted by memory values, hidden states and seed within each store.

    Raises:
        ValueError: the preset is unknown, or a file is no result.
        FileNotFoundError: the folder is not there.

    Warns:
        UserWarning: the folder has results, but none of this preset.

    Example:
        A mean with its 95% interval for each number of states:

        >>> from hmmbook import mean_ci
        >>> table = results("quick").query("changes == '' and n_memory == 1")
        >>> means = table.groupby("n_states").head_accuracy.agg(mean_ci)
    """
    presets = list(PRESETS) if preset is None else [preset]
    if preset is not None or folder is not None:
        table = _table_of_store(presets, PROJECT if folder is None else folder)
        if table.empty and preset is not None and folder is not None:
            _warn_of_other_results(preset, folder)
        return table
    tables = []
    for name, store in STORES.items():
        tables.append(_table_of_store(presets, store).assign(store=name))
    return pd.concat(tables, ignore_index=True)


def _warn_of_other_results(preset: str, store: Store) -> None:
    """Warn if a store without results of this preset has results of others, or is the folder of a preset itself."""
    for folder in as_store(store):
        others = sorted({path.parent.name for path in folder.glob("*/*.json")} & set(PRESETS))
        if others:
            warnings.warn(
                f"{folder} has no results of the preset {preset}, but it has some of {', '.join(others)}", stacklevel=3
            )
        elif folder.name in PRESETS and any(folder.glob("*.json")):
            warnings.warn(f"{folder} is the folder of a preset. Its store is {folder.parent}", stacklevel=3)


def _table_of_store(presets: Iterable[str], store: Store) -> DataFrame:
    stored = []
    for preset in presets:
        stored.extend(load_results(preset, store))
    return as_table(stored)


def as_table(stored: Iterable[TrialResult]) -> DataFrame:
    """Return the table that `results` describes, of results that are loaded already."""
    rows = [_row(result) for result in stored]
    spec_fields = [field.name for field in dataclasses.fields(TrialSpec)]
    first_columns = [*spec_fields, "changes", *ORIGINAL]
    if rows:
        table = pd.json_normalize(rows).fillna(math.nan)
        columns = dict.fromkeys([*first_columns, *table.columns])
        table = DataFrame(table, columns=list(columns))
    else:
        table = DataFrame([], columns=first_columns)
    table = table.sort_values(["n_memory", "n_states", "seed"], kind="stable", ignore_index=True)
    derived = {
        "size": table.n_memory * table.n_states,
        "gain": table.prompt_accuracy - table.head_accuracy,
        "excess_loss": table.network_loss - table.best_loss,
        "learned": _learned(table),
    }
    return pd.concat([table, DataFrame(derived)], axis=1)


def _row(result: TrialResult) -> dict:
    changes = []
    for name, value in result.spec.changes().items():
        if name not in MODEL_FIELDS:
            changes.append(f"{name}={value}")
    row = vars(result.spec) | {"changes": " ".join(changes)} | vars(result) | result.added
    del row["spec"]
    del row["added"]
    return row


def _learned(table: DataFrame) -> pd.Series:
    """Return the share of what there was to learn that each network has learned."""
    guess = table.get("frequency_loss", pd.Series(math.nan, table.index))
    gap = guess - table.best_loss
    masked_tokens = (table.length * table.masked).round().clip(lower=1) * table.evaluation
    is_clear = gap > CLEAR / masked_tokens**0.5
    return ((guess - table.network_loss) / gap).where(is_clear)


def spec_of(row: pd.Series) -> TrialSpec:
    """Return the spec of the trial in a row of the table."""
    fields = {field.name: row[field.name] for field in dataclasses.fields(TrialSpec)}
    return TrialSpec(**fields)


def published(panel: str) -> DataFrame:
    """Return the values drawn in the paper's Figure 3.

    Args:
        panel: "left" or "right".

    Returns:
        A table with a column for each series and a row for each |M||H|. Each entry is an `Interval` of a share.

    Raises:
        ValueError: the panel is unknown.
    """
    one_of("panel", panel, PANELS)
    rows = pd.read_csv(files("hmmbook.experiments") / "figure3-reference.csv", comment="#")
    rows = rows[rows.panel == panel]
    intervals = []
    for row in rows.itertuples():
        intervals.append(Interval(row.mean / 100, row.low / 100, row.high / 100, TRIALS[panel]))
    return rows.assign(interval=intervals).pivot(index="x", columns="series", values="interval")
