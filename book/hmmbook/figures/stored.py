"""The trials that a page shows: those that its parameters ask for, or the largest that are stored."""

from __future__ import annotations

from collections.abc import Sequence

from pandas import DataFrame

from hmmbook.experiments.presets import PRESETS
from hmmbook.experiments.results import as_table
from hmmbook.experiments.specs import panel_specs
from hmmbook.experiments.store import BEYOND, load_results
from hmmbook.experiments.trials import TrialResult
from hmmbook.figures.live import measured


def measured_or_stored(preset: str, trials: int, minutes: float, device: str, also: Sequence[str]) -> DataFrame:
    """Return trials of Figure 3's left panel that have further measurements, as a table.

    They are stored, or computed in time. Where there are none of the preset, they are the stored ones of the largest
    preset that has any, and a line says so. `measured` prints the command that makes the others.

    Args:
        preset: The preset.
        trials: The number of trials at each size.
        minutes: The minutes to compute in; 0 stands for the preset's own.
        device: Where networks are.
        also: The names of the measurements.

    Raises:
        LookupError: No preset has such trials.
    """
    complete = measured(preset, trials, minutes, device, also)
    if complete:
        return as_table(complete)
    for stored_preset in reversed(PRESETS):
        complete = stored_trials(stored_preset, trials, also)
        if complete:
            print(f"Until then this page shows the stored trials of {stored_preset}, the largest preset that has any.")
            return as_table(complete)
    raise LookupError("there are no such trials of any preset: run the command above, or give the page more minutes")


def stored_trials(preset: str, trials: int, also: Sequence[str]) -> list[TrialResult]:
    """Return the stored trials of the left panel that have all the measurements named."""
    specs = set(panel_specs(preset, "left", trials))
    complete = []
    for result in load_results(preset, BEYOND):
        if result.spec in specs and all(getattr(result, name, None) for name in also):
            complete.append(result)
    return complete
