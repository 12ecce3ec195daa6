"""How nearly the paper's tasks can be solved, from stored trials, and what became of the predictions about it.

The trials are those of the left panel of Figure 3 with the measurements `solvable` and `certified`, as a table.
"""

from __future__ import annotations

from pandas import DataFrame, Series

WAYS = {"head alone": "head", "prompt and head": "prompt"}
"""What is optimised, by what it is called in the columns of the table."""
THEOREMS = {"head": "Theorem 3.3", "prompt": "Theorem 3.6"}
"""The theorem that constructs an exact head, or an exact prompt and head."""
CERTIFIED = {
    "linear programs' head": "nearest head",
    "tuned head": "tuned head",
    "nearest reweighting": "tuned prompt, reweighting",
    "nearest relabelling": "tuned prompt, relabelling",
}
"""The heads whose labels may be certain on a network, by what they are called in the columns."""
EXACT = 1e-6
"""Up to this δ a task counts as solved."""


def error_of(trials: DataFrame, way: str) -> Series:
    """Return the least δ that was found for each task, as a share of its largest weight. `way` is a value of WAYS."""
    return trials[f"solvable.{way}.error"]


def is_built(trials: DataFrame, way: str) -> Series:
    """Tell for which tasks the exact head, or prompt and head, of the theorem could be computed."""
    return trials[f"built_{way}_accuracy"].notna()


def tasks_solved(trials: DataFrame, way: str) -> DataFrame:
    """Count tasks by the number of states: those that the theorem covers, and those with a small δ.

    A task that the theorem covers counts as exact, even where rounding leaves the programs a larger δ.

    Returns:
        A row for the theorem and for each limit of δ, a column for each number of states.
    """
    built = is_built(trials, way)
    error = error_of(trials, way)
    rows = {f"{THEOREMS[way]}, computed": built}
    for name, limit in {"10⁻⁶": EXACT, "0.01": 0.01, "0.1": 0.1}.items():
        rows[f"δ ≤ {name}"] = (error <= limit) | built
    counts = {name: tasks.groupby(trials.n_states).sum() for name, tasks in rows.items()}
    return DataFrame(counts).T


def medians(trials: DataFrame) -> DataFrame:
    """Return the medians of the least δ and of the κ that it takes, at each number of states."""
    columns = {}
    for name, measured in {"δ": "error", "κ": "spread"}.items():
        for title, way in {"head": "head", "both": "prompt"}.items():
            values = trials[f"solvable.{way}.{measured}"].groupby(trials.n_states)
            columns[f"{name}, {title}"] = values.quantile(0.5, interpolation="higher")
    return DataFrame(columns)


def shares_certified(trials: DataFrame) -> DataFrame:
    """Return the share of certain labels in each trial, with a column for each of CERTIFIED."""
    return DataFrame({name: trials[f"certified.{key}.certified"] for name, key in CERTIFIED.items()})


def certified_but_wrong(trials: DataFrame) -> float:
    """Return the largest share of labels that are certified and wrong, over all trials and ways."""
    return trials[[f"certified.{key}.certified but wrong" for key in CERTIFIED.values()]].max(axis=None)


def entry_4(trials: DataFrame) -> list[tuple[str, str, bool]]:
    """Which tasks can be solved, and what can be certified?

    Returns:
        Each prediction, what came out, both in words, and whether it came true.
    """
    most_states = trials.n_states.max()
    small = trials[trials.n_states <= 8]
    large = trials[trials.n_states >= 15]
    last = trials[trials.n_states == most_states]
    solved = (error_of(small, "head") <= EXACT).mean()
    solved_at_large = (error_of(large, "head") <= EXACT).mean()
    ratio = error_of(large, "prompt").mean() / error_of(large, "head").mean()
    reached = (error_of(last, "prompt") <= 0.01).mean()
    apart = trials["solvable.votes apart"].fillna(0).groupby(trials.n_states).mean().min()
    certain = shares_certified(large).groupby(large.n_states).mean().max(axis=None)
    wrong = trials[[f"certified.{key}.certified but wrong" for key in CERTIFIED.values()]] > 0
    return [
        (
            "With 4 and 8 states a head solves eight of ten tasks (δ up to 10⁻⁶).",
            f"{solved:.0%} of the tasks",
            solved >= 0.8,
        ),
        ("With 15 states and more it solves none.", f"{solved_at_large:.0%} of the tasks", solved_at_large == 0),
        (
            "There, prompt and head reach less than half of the δ of a head.",
            f"{ratio:.0%} of the mean δ of a head",
            ratio < 0.5,
        ),
        (
            f"With {most_states} states they reach 0.01 in fewer than half of the tasks.",
            f"{reached:.0%} of the tasks",
            reached < 0.5,
        ),
        (
            "A head with the right signs exists in nine of ten tasks at every size.",
            f"fewest: {apart:.0%} of the tasks",
            apart >= 0.9,
        ),
        (
            "At 15 states and more fewer than one text in ten is certified, by any head or prompt.",
            f"at most {certain:.1%} of the texts",
            certain < 0.1,
        ),
        (
            "At no size is a certified label wrong.",
            f"in {wrong.sum(axis=None)} of {len(trials)} trials",
            not wrong.any(axis=None),
        ),
    ]
