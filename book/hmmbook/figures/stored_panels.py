"""The stored trials of a panel of Figure 3, for a page that draws it and trains nothing."""

from __future__ import annotations

from pandas import DataFrame

from hmmbook.experiments.presets import PRESETS, TRIALS
from hmmbook.experiments.results import as_table
from hmmbook.experiments.specs import panel_specs
from hmmbook.experiments.store import BEYOND, PROJECT, load_result, result_path
from hmmbook.experiments.trials import TrialResult

STORES = {"left": PROJECT, "right": (*BEYOND, *PROJECT)}
"""Where the trials of each panel are. The right panel has more trials than the paper's, so most of them lie beyond."""
MOST_TRIALS = 20
"""Trials of each point that are shown, at most."""


def panel_results(panel: str, preset: str) -> DataFrame:
    """Return the stored trials of a panel of Figure 3, up to MOST_TRIALS of each point, as a table.

    Where there are none of the preset, they are those of the largest preset of which as many are stored as the paper
    has. Lines say so. Without any stored trials, as where the project is not at hand, the table is empty.

    Args:
        panel: "left" or "right".
        preset: The preset.
    """
    trials = _stored(panel, preset)
    if trials:
        return as_table(trials)
    print(f"No trial of the {panel} panel is stored at the preset {preset}. This command makes them:")
    print(f"python -m hmmbook trial --panel {panel} --missing --preset {preset} --trials {TRIALS[panel]}")
    for name in reversed(PRESETS):
        trials = _stored(panel, name)
        if len(trials) >= len(panel_specs(name, panel, TRIALS[panel])):
            print(f"Until then this page shows trials of `{name}`, the largest preset of which enough are stored.")
            return as_table(trials)
    return as_table([])


def _stored(panel: str, preset: str) -> list[TrialResult]:
    """The stored trials of a panel at one preset."""
    trials = []
    for spec in panel_specs(preset, panel, MOST_TRIALS):
        path = result_path(spec, STORES[panel])
        if path.exists():
            trials.append(load_result(path))
    return trials
