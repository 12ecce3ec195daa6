"""Families of readouts: what a prompt may do to the belief, and to the columns that the belief weighs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from hmmbook.studies.readouts.readout import Readout, with_log_weights
from hmmbook.studies.readouts.search import Parameters, nearest
from hmmbook.studies.readouts.weights import WIDTHS, Target, nearest_weights
from hmmlib import HMM
from hmmlib.validation import as_generator, one_of

COLUMNS = ("emission", "mapped", "free")
"""The columns that a belief may weigh: those of W, those of T W where one map T takes tokens to tokens, or any R."""
STARTS = 32
"""The starts of a search."""
LEAST = 1e-6
"""The least entry of which a logarithm is taken."""
FITTED = 2000
"""The most training texts that a fit is made on."""


class Family(NamedTuple):
    """Readouts of one form."""

    columns: str
    """One of COLUMNS."""
    reweighted: bool
    """Whether the belief is weighed by some c ≥ 0. Otherwise c = 1."""


FAMILIES = {
    "unchanged": Family("emission", reweighted=False),
    "translated": Family("mapped", reweighted=False),
    "reweighted": Family("emission", reweighted=True),
    "translated and reweighted": Family("mapped", reweighted=True),
    "relabelled": Family("free", reweighted=False),
    "relabelled and reweighted": Family("free", reweighted=True),
}
"""Each family by what a prompt of this kind does."""


def fit_readout(
    beliefs: Tensor, predictions: Tensor, emission: Tensor, family: Family, seed: int = 0, starts: int = STARTS
) -> Readout:
    """Find the readout of a family that is nearest to a network's predictions, in mean total variation.

    Columns alone are a convex problem. With c it is not, so the nearest end of a search from many starts counts. That
    search also goes on from c = 1 and the columns that are nearest then, so no fit is worse than without c.

    Args:
        beliefs: The exact beliefs p, (n, S).
        predictions: The network's predictions, (n, X).
        emission: W, (X, S).
        family: What is fitted.
        seed: The seed of the starts.
        starts: How many there are.

    Raises:
        ValueError: There are no such columns.
    """
    columns, reweighted = family
    one_of("columns", columns, COLUMNS)
    target = Target(beliefs.double(), predictions.double(), emission.double())
    generator = as_generator(seed)
    if columns == "emission":
        if reweighted:
            return nearest_weights(target, starts, generator)
        return with_log_weights(target.emission, torch.zeros_like(target.emission[0]))
    return nearest_columns(target, columns == "mapped", reweighted, starts, generator)


def nearest_columns(target: Target, mapped: bool, reweighted: bool, starts: int, generator: torch.Generator) -> Readout:
    """Find the nearest readout with columns T W, if they are mapped, or else with any columns R."""
    emission = target.emission
    first_table = torch.eye(len(emission)).double() if mapped else emission
    first_table = first_table.clamp(min=LEAST).log()
    no_weights = torch.zeros_like(emission[0])

    def readout(table: Tensor, logs: Tensor) -> Readout:
        """The readout whose T or R has these logarithms, up to a factor for each column, and so have its weights."""
        columns = table.softmax(-2)
        if mapped:
            columns = columns @ emission
        return with_log_weights(columns, logs)

    def search(table: Tensor, starts: int, weighed: bool) -> Parameters:
        """The nearest logarithms of a search that begins at a table without weights, and at random."""
        tables = torch.randn(starts - 1, *table.shape, generator=generator, dtype=torch.float64)
        tables = torch.cat([table[None], tables])
        widths = torch.tensor(WIDTHS, dtype=torch.float64).repeat(starts)[: starts - 1, None]
        logs = widths * torch.randn(starts - 1, len(no_weights), generator=generator, dtype=torch.float64)
        logs = torch.cat([no_weights[None], logs])

        def predict(beliefs: Tensor, table: Tensor, logs: Tensor) -> Tensor:
            return readout(table, logs if weighed else no_weights)(beliefs)

        return nearest(predict, [tables, logs], target.beliefs, target.predictions)

    table, _ = search(first_table, 2, weighed=False)
    if not reweighted:
        return readout(table, no_weights)
    table, logs = search(table, starts, weighed=True)
    return readout(table, logs)


def fit_families(
    model: HMM, beliefs: Tensor, outputs: Tensor, families: Iterable[str], seed: int, before_step: Callable
) -> dict[str, Readout]:
    """Fit each of these families to outputs, (n, X), on the first training texts."""
    beliefs = beliefs[:FITTED]
    outputs = outputs[:FITTED]
    fits = {}
    for family in families:
        fits[family] = fit_readout(beliefs, outputs, model.emission, FAMILIES[family], seed)
        before_step()
    return fits
