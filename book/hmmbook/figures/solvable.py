"""Figures and tables of which tasks can be solved, and of which labels are certain."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure
from pandas import DataFrame

from hmmbook.evidence.ledger import Entry
from hmmbook.experiments.intervals import mean_ci
from hmmbook.figures.figure_3 import lines
from hmmbook.figures.tables import Table, one_digit
from hmmbook.studies.certificates import outcomes

STATES = "hidden states"
as_share = partial(mean_ci, share=True)


def least_errors(trials: DataFrame) -> Figure:
    """Draw the mean of the least δ against the number of states, of a head alone and of a prompt and a head."""
    series = {}
    for name, way in outcomes.WAYS.items():
        errors = outcomes.error_of(trials, way).clip(0, 1)
        series[name] = errors.groupby(trials.n_states).agg(as_share)
    return lines(series, STATES, "least distance δ from the task")


def certified_labels(trials: DataFrame) -> Figure:
    """Draw the mean share of labels that are certain on the network, for four ways, against the number of states."""
    shares = outcomes.shares_certified(trials)
    series = {}
    for way in shares:
        series[way] = shares[way].groupby(trials.n_states).agg(as_share)
    return lines(series, STATES, "share of certified labels")


def table_of_tasks(trials: DataFrame, name: str) -> Table:
    """A row for a theorem and for each limit of δ: how many tasks of each size are solved so nearly.

    `name` is one of `outcomes.WAYS`.
    """
    counts = outcomes.tasks_solved(trials, outcomes.WAYS[name])
    rows = [[title, *map(str, row)] for title, row in counts.iterrows()]
    tasks = trials.groupby("n_states").size().max()
    return Table([f"{name}: tasks of {tasks}, |H| =", *map(str, counts.columns)], rows)


def table_of_costs(trials: DataFrame) -> Table:
    """A row for each number of states: medians of δ and κ."""
    medians = outcomes.medians(trials)
    rows = [[str(n_states), *map(one_digit, row)] for n_states, row in medians.iterrows()]
    return Table(["|H|", *medians.columns], rows)


def table_of_checks(entries: dict[str, Entry]) -> Table:
    """A row for each statement that was tried on random models: the residual, and how often the control failed."""
    rows = []
    for name, entry in entries.items():
        residual = f"{entry.residual:.0e}" if entry.residual else "0"
        nontrivial = f"{entry.nontrivial} of {entry.instances}"
        failures = f"{entry.control_fails} of {entry.control_instances}"
        rows.append([name, residual, nontrivial, failures])
    return Table(["statement", "largest residual", "not trivial", "control fails"], rows)
