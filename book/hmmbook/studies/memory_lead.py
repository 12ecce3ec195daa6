"""How far are memory models ahead of vanilla ones: with the heads of the paper, and with equal heads on both?

The right panel of Figure 3 compares an attention head on memory models with a linear head on vanilla chains that have
as many states. Trials measure both heads on both kinds, and twenty chains of each point are stored beyond the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd
from pandas import DataFrame, Series

from hmmbook import TrialSpec, load_result, mean_ci, panel_specs, result_path
from hmmbook.experiments.intervals import Interval, difference_ci
from hmmbook.experiments.results import as_table
from hmmbook.experiments.store import BEYOND

CHAINS = 20
"""The most chains of a point that are read from the store."""
HEADS = {
    "as in the paper": ("attention_accuracy", "head_accuracy"),
    "attention on both": ("attention_accuracy", "attention_accuracy"),
    "linear on both": ("head_accuracy", "head_accuracy"),
}
"""The columns that are compared: of the head on memory models, and of that on vanilla ones."""


class Pair(NamedTuple):
    """Trials of memory models and of vanilla models with as many states."""

    memory: DataFrame
    vanilla: DataFrame


def pairs_of(trials: DataFrame) -> dict[int, Pair]:
    """Return the trials of each size |M||H| of which there are both kinds, with two seeds or more of each."""
    pairs = {}
    for size, rows in trials.groupby("size"):
        pair = Pair(rows[rows.n_memory > 1], rows[rows.n_memory == 1])
        if min(pair.memory.seed.nunique(), pair.vanilla.seed.nunique()) > 1:
            pairs[int(size)] = pair
    return pairs


def stored_chains(specs: Iterable[TrialSpec], **changes) -> DataFrame:
    """Return the stored trials of the points of some specs, up to CHAINS of each.

    Args:
        specs: Trials, whose seeds do not matter.
        changes: Fields of the specs that are other, such as steps=100.
    """
    points = dict.fromkeys(replace(spec, seed=0, **changes) for spec in specs)
    found = []
    for point in points:
        for seed in range(CHAINS):
            path = result_path(replace(point, seed=seed), BEYOND)
            if path.is_file():
                found.append(load_result(path))
    return as_table(found)


def chains_to_compare(specs: Sequence[TrialSpec], own: DataFrame | None = None, **changes) -> dict[int, Pair]:
    """Return the pairs of a page: those that are stored, or else the page's own, or else those of `quick`.

    A line says so if they are of `quick` without having been asked for.

    Args:
        specs: The trials of the page.
        own: Their results.
        changes: Fields of the specs that are other, such as steps=100.
    """
    pairs = pairs_of(stored_chains(specs, **changes))
    if not pairs and own is not None:
        pairs = pairs_of(own)
    if pairs:
        return pairs
    preset = specs[0].preset
    options = "".join(f" --set {name}={value}" for name, value in changes.items())
    print(
        f"Fewer than two chains of each kind are stored{options.replace(' --set', ' with')} at {preset}. What is shown"
    )
    print(f"is of `quick`. Others are made by python -m hmmbook trial --panel right --missing --preset {preset}")
    print(f"--trials 2{options} --store {BEYOND[0]}")
    return pairs_of(stored_chains(panel_specs("quick", "right", 1), **changes))


def all_sizes(pairs: dict[int, Pair]) -> Pair:
    """Put the trials of all sizes together."""
    memory = [pair.memory for pair in pairs.values()]
    vanilla = [pair.vanilla for pair in pairs.values()]
    return Pair(pd.concat(memory), pd.concat(vanilla))


def in_points(shares: Series, seeds: Series) -> Interval:
    """Return a mean in points with its interval. The chains of a seed share mixing weights, so they count as one."""
    return mean_ci(100 * shares.groupby(seeds).mean(), share=False)


def lead(pair: Pair, heads: str, exact: bool = False) -> Interval:
    """Return by how many points memory models are ahead of vanilla ones, with its interval.

    Args:
        pair: The trials.
        heads: The heads that are compared, a name in HEADS.
        exact: Whether heads are on the exact predictions, and not on those of networks.
    """
    sides = []
    for rows, column in zip(pair, HEADS[heads], strict=True):
        name = f"exact_{column}" if exact else column
        sides.append(in_points(rows[name], rows.seed))
    return difference_ci(*sides)


def gain_of_attention(rows: DataFrame) -> Interval:
    """Return how many points the attention head adds to the linear one in the same trial, with its interval."""
    return in_points(rows.attention_accuracy - rows.head_accuracy, rows.seed)


def predictions(pairs: dict[int, Pair], after_100_steps: dict[int, Pair]) -> list[tuple[str, str, bool | None]]:
    """Return what was predicted before the runs, what came out, and whether it came true; None where untested.

    Args:
        pairs: The trials by size.
        after_100_steps: The same after 100 steps of pretraining.
    """
    leads = {size: lead(pair, "attention on both") for size, pair in pairs.items()}
    clear = [size for size in (12, 20, 28) if size in leads and leads[size].low > 0]
    above = all(interval.mean > 0 for interval in leads.values())
    gain = gain_of_attention(all_sizes(pairs).vanilla)
    early = all_sizes(after_100_steps).memory[["attention_accuracy", "learned"]].mean()
    whole = set(leads) == {8, 12, 20, 28} and all(len(rows) == CHAINS for pair in pairs.values() for rows in pair)
    return [
        (
            "With an attention head on both, memory models are above vanilla models at all four sizes, and the "
            "interval leaves zero out at 12, 20 and 28 states.",
            ", ".join(f"{interval:+.1f}" for interval in leads.values()),
            above and len(clear) == 3 if whole else None,
        ),
        (
            "On vanilla models the attention head adds five points or more to the linear one, over all sizes, and the "
            "interval leaves zero out.",
            f"{gain:+.1f}",
            gain.mean >= 5 and gain.low > 0 if whole else None,
        ),
        (
            "After 100 steps memory models with an attention head are at 95% or more, on networks that have learned "
            "less than half.",
            f"{early.attention_accuracy:.1%}, {early.learned:.0%} learned",
            bool(early.attention_accuracy >= 0.95 and early.learned < 0.5),
        ),
    ]
