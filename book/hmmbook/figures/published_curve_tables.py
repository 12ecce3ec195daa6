"""Tables of the page on the published curve. Each is a function of stored trials, in groups with names."""

from __future__ import annotations

from dataclasses import replace

from pandas import DataFrame

from hmmbook.experiments.intervals import Interval, mean_ci
from hmmbook.experiments.results import published
from hmmbook.figures.figure_3 import LEFT
from hmmbook.figures.tables import Table
from hmmbook.studies.published_curve.comparisons import (
    HEAD,
    MANY_STATES,
    PROMPT,
    differences,
    gaps,
    points_above,
)
from hmmbook.studies.published_curve.groups import CHANGES, FRESH_PROBE, PROBE, SIZES, UNCHANGED, at

PROMPTS_FIRST = ("prompt tuning", "head tuning")
RANGES = ((-1.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1.01))
"""Ranges of the share learned. Sampling puts some networks a little below 0 and above 1."""
NOTHING = "–"


def _with_deviation(found: Interval) -> str:
    """A mean of shares, the standard deviation of single trials, and the interval of the mean."""
    low, high = replace(found, share=True).shown
    return f"{found.mean:.1%}\u00a0±\u00a0{found.deviation:.1%} [{low:.1%}, {high:.1%}]"


def _mean_of(group: DataFrame, column: str) -> str:
    """The same of a column, or a dash where there are fewer than two trials."""
    if len(group) < 2:
        return NOTHING
    return _with_deviation(mean_ci(group[column]))


def _kind(series: str) -> str:
    """What is tuned, in the plural."""
    return series.removesuffix(" tuning") + "s"


def single_trials(presets: dict[str, DataFrame]) -> Table:
    """Make a table with a row for each trial, those of one seed below each other.

    Args:
        presets: By the name of a preset, trials indexed by seed. The first preset says which seeds there are.
    """
    rows = []
    for seed in next(iter(presets.values())).index:
        for name, trials in presets.items():
            if seed in trials.index:
                trial = trials.loc[seed]
                shares = [trial[column] for column in (PROMPT, HEAD, "majority_rate")]
                rows.append([f"{seed}, {name}", f"{trial.learned:.2f}", *(f"{share:.1%}" for share in shares)])
    return Table(["seed, preset", "share learned", "prompt", "head", "more frequent label"], rows)


def changes(groups: dict[str, DataFrame]) -> Table:
    """Make a table of what each change does to prompts, heads and the share learned.

    Args:
        groups: Trials by name, as `groups.by_change` has them.
    """
    unchanged = groups[UNCHANGED]
    means = unchanged[[PROMPT, HEAD, "learned"]].mean()
    first = [f"none: {len(unchanged)} chains", f"{means[PROMPT]:.1%}", f"{means[HEAD]:.1%}", f"{means.learned:.2f}"]
    rows = [first]
    changed_by = differences(groups)
    for change in CHANGES:
        found = changed_by[change.name]
        rows.append([change.words, f"{found[PROMPT]:+.1%}", f"{found[HEAD]:+.1%}", f"{found['learned']:+.2f}"])
    return Table(["what differs", "prompts", "heads", "share learned"], rows)


def against_published(trials: DataFrame, name: str) -> Table:
    """Make a table of our means beside the published ones, with their differences.

    Args:
        trials: Trials of all sizes, on fresh chains.
        name: What they are called.
    """
    paper = published("left")
    rows = []
    for (n_states, series), gap in gaps(trials).items():
        ours = _mean_of(at(n_states, trials), LEFT[series])
        theirs = _with_deviation(paper[series][n_states])
        rows.append([f"{n_states}, {_kind(series)}", f"{gap:+.1%}", theirs, ours])
    return Table(["states", f"{name} minus published", "published", f"{name}, fresh chains"], rows)


def little_learned(groups: dict[str, DataFrame]) -> Table:
    """Make a table of how far prompts and heads are above the more frequent label, a row for each group."""
    rows = []
    for name, group in groups.items():
        above = [mean_ci(points_above(group, column)) for column in (PROMPT, HEAD)]
        learned = f"{group.learned.mean():.2f}"
        rows.append([f"{name} ({len(group)})", *(f"{mean:+z.0f}" for mean in above), learned])
    return Table(["networks", "prompts, points above the more frequent label", "heads", "share learned"], rows)


def probes(groups: dict[str, DataFrame]) -> Table:
    """Make a table of how far prompts, and linear probes for the label, are above the more frequent label."""
    columns = (PROMPT, PROBE, FRESH_PROBE)
    rows = []
    for name, group in groups.items():
        above = [mean_ci(points_above(group, column)) for column in columns]
        rows.append([f"{name} ({len(group)})", *(f"{mean:+z.0f}" for mean in above)])
    head = ["points above the more frequent label", "prompt", "probe: network", "probe: the same, fresh weights"]
    return Table(head, rows)


def all_sizes(series: str, groups: dict[str, DataFrame]) -> Table:
    """Make a table of a series with a row for each size: the published mean, and that of each group of trials.

    Args:
        series: "head tuning" or "prompt tuning".
        groups: Trials by name.
    """
    paper = published("left")[series]
    rows = []
    for n_states in SIZES:
        means = [_mean_of(at(n_states, group), LEFT[series]) for group in groups.values()]
        rows.append([str(n_states), _with_deviation(paper[n_states]), *means])
    return Table([f"{series}, |H|", "published", *groups], rows)


def explanations(mixed: DataFrame) -> Table:
    """Make a table of two explanations of the published means, beside the published numbers.

    Args:
        mixed: By the number of states, what the two predict, as `comparisons.explanations` gives it.
    """
    paper = published("left")
    rows = []
    for n_states, predicted in mixed.iterrows():
        prompts = paper["prompt tuning"][n_states]
        heads = paper["head tuning"][n_states]
        numbers = [
            *(predicted["spread if alike"], predicted.spread, prompts.deviation),
            *(predicted.heads, heads.mean),
            *(predicted["spread of heads"], heads.deviation),
        ]
        rows.append([str(n_states), *(f"{number:.1%}" for number in numbers), f"{predicted.share:.0%}"])
    head = ["states", "spread of prompts: alike", "mixed", "paper", "mean of heads: mixed", "paper"]
    return Table([*head, "spread of heads: mixed", "paper", "share s"], rows)


def tunings(groups: dict[str, DataFrame]) -> Table:
    """Make a table of prompts and heads at 25 and 30 states, a row for the published means and for each group."""
    paper = published("left")
    head = ["tuning"]
    first = ["published"]
    rows = [first]
    for series in PROMPTS_FIRST:
        for n_states in MANY_STATES:
            head.append(f"{_kind(series)}, {n_states} states")
            first.append(_with_deviation(paper[series][n_states]))
    for name, group in groups.items():
        row = [name]
        for series in PROMPTS_FIRST:
            row += [_mean_of(at(n_states, group), LEFT[series]) for n_states in MANY_STATES]
        rows.append(row)
    return Table(head, rows)


def prompts_by_learned(groups: dict[str, DataFrame]) -> Table:
    """Make a table of mean prompts in RANGES of the share learned, with the number of networks in brackets."""
    head = ["share learned"]
    for low, high in RANGES:
        head.append(f"{max(low, 0):g} to {min(high, 1):g}")
    rows = []
    for name, group in groups.items():
        row = [name]
        for low, high in RANGES:
            prompts = group[group.learned.between(low, high, inclusive="left")][PROMPT]
            row.append(f"{prompts.mean():.1%} ({len(prompts)})" if len(prompts) else NOTHING)
        rows.append(row)
    return Table(head, rows)


def laptop_beside_quick(groups: dict[str, DataFrame], columns: dict[str, str], first: str = "states") -> Table:
    """Make a table of means in `laptop` and, on the same chains, in `quick`.

    Args:
        groups: Trials of both presets by the name of a row.
        columns: By the name of a pair of columns, the number that it shows.
        first: What the names of rows are.
    """
    head = [f"{first} (chains)"]
    for name in columns:
        head += [f"{name}: laptop", "quick"]
    rows = []
    for name, group in groups.items():
        means = group.groupby("preset")[list(columns.values())].mean()
        row = [f"{name} ({len(group) // 2})"]
        for column in columns.values():
            row += [f"{means[column]['laptop']:.0%}", f"{means[column]['quick']:.0%}"]
        rows.append(row)
    return Table(head, rows)
