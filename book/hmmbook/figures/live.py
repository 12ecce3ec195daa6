"""Run the trials that a notebook's parameters ask for and that the store lacks, while the notebook runs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from pandas import DataFrame

from hmmbook.experiments import store as stores
from hmmbook.experiments.presets import FOR_GPUS
from hmmbook.experiments.results import as_table
from hmmbook.experiments.specs import TrialSpec, panel_specs, warn_of_large_presets
from hmmbook.experiments.sweeps import (
    TimeUp,
    deadline,
    describe,
    run_missing,
    store_safely,
    stored_by,
    what_is_kept,
)
from hmmbook.experiments.trials import TrialResult, run_trial
from hmmbook.figures.stored_panels import panel_results
from hmmbook.figures.tables import Table
from hmmbook.parameters import MINUTES
from hmmlib.device import pick
from hmmlib.training import checkpoints

RAN_LIVE: set[str] = set()
"""The hashes of the trials that `run_live` has run in this process."""


def changed(preset: str, prompt_length: int = -1, labelled: int = 0, steps: int = 0, **fields: float) -> dict:
    """Return the fields of a TrialSpec that a notebook's parameters ask for.

    The texts of pretraining are made long enough for a task's text and a prompt together.

    Args:
        preset: The name of the preset.
        prompt_length: The number of prompt vectors. -1 stands for the preset's number.
        labelled: The number of labelled texts to tune on. 0 stands for the preset's number.
        steps: The number of steps of pretraining. 0 stands for the preset's number.
        fields: Further fields by their names.

    Raises:
        ValueError: There is no such preset.
    """
    fields = dict(fields)
    if prompt_length != -1:
        fields["prompt_length"] = prompt_length
    if labelled != 0:
        fields["train"] = labelled
    if steps != 0:
        fields["steps"] = steps
    usual = TrialSpec(preset)
    task_length = fields.get("task_length", usual.task_length)
    needed = task_length + fields.get("prompt_length", usual.prompt_length)
    fields["length"] = max(fields.get("length", usual.length), needed)
    return fields


def preset_for(device: torch.device, preset: str) -> str:
    """Return the preset that a page trains live.

    This is the preset that was asked for. But if that is for a GPU and the device is a CPU, it is `quick`, and a line
    says so.
    """
    if device.type == "cpu" and preset in FOR_GPUS:
        print(f"The preset {preset} is for a GPU, but this runs on a CPU. So `quick` is trained here instead.")
        return "quick"
    return preset


def _existing_store(store: stores.Store) -> tuple[Path, ...]:
    """Return the folders of the store. If none exists, as in Colab, return `results` in the working directory."""
    folders = stores.as_store(store)
    if any(folder.is_dir() for folder in folders):
        return folders
    return stores.as_store("results")


@contextmanager
def _notes_to_the_terminal() -> Iterator[None]:
    """Print an interrupt's notes to papermill's terminal, because what an interrupted notebook prints is lost."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", []):
            print(f"hmmbook: {note}", file=sys.__stderr__, flush=True)
        raise


@_notes_to_the_terminal()
def run_live(
    spec: TrialSpec,
    device: str = "auto",
    store: stores.Store = stores.PROJECT,
    also: Sequence[str] = (),
    until: float = math.inf,
) -> TrialResult:
    """Run a trial now, even if its result is stored.

    The result is kept if the store lacks it. A run that was broken off before goes on from its checkpoint.

    Args:
        spec: What fixes the trial.
        device: Where the network is.
        store: Where the result is kept.
        also: The names of further measurements.
        until: When to stop, as time.monotonic() counts.

    Returns:
        The result. If the time is over before the trial is finished, it is the stored result, and a line says so.

    Raises:
        ValueError: There is no such device or measurement.
        TimeoutError: The time is over before the trial is finished, and no result is stored.
        OSError: The result cannot be written.
    """
    store = _existing_store(store)
    checkpoint = stores.checkpoint_path(spec, store)
    if pick(device).type == "cpu":
        warn_of_large_presets([spec], print)

    def end_in_time(phase: str, share: float) -> None:
        if time.monotonic() >= until:
            raise TimeUp

    try:
        result = run_trial(spec, end_in_time, device, checkpoint, also)
    except TimeUp:
        if not stores.is_stored(spec, store, also=also):
            raise TimeoutError(
                f"there was no time for the live trial. Give it more minutes. {what_is_kept(spec, store)}"
            ) from None
        print(f"There was no time for the live trial, so the stored one is shown. {what_is_kept(spec, store)}")
        return stores.load_result(stores.result_path(spec, store))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(what_is_kept(spec, store))
        raise
    if stores.is_stored(spec, store, also=also):
        checkpoints.remove(checkpoint)
    else:
        store_safely(result, store)
    RAN_LIVE.add(spec.hash)
    return result


@_notes_to_the_terminal()
def gather(
    specs: Sequence[TrialSpec],
    until: float,
    device: str = "auto",
    store: stores.Store = stores.PROJECT,
    say: Callable[[str], None] = print,
    also: Sequence[str] = (),
) -> list[TrialResult]:
    """Return the results of trials that are stored or can be computed in time.

    If there is no store, as in Colab, one trial of each point is computed and kept in a new folder `results`.

    Args:
        specs: What fixes the trials. Repetitions count once.
        until: When to stop, as time.monotonic() counts.
        device: Where networks are.
        store: Where results are looked for and kept.
        say: Called with lines that say what was computed and what is missing.
        also: The names of further measurements. A result that lacks one is measured, if there is time.

    Returns:
        The results in the order of the specs.
    """
    specs = list(dict.fromkeys(specs))
    existing_store = _existing_store(store)
    if existing_store != stores.as_store(store):
        say("There are no stored results here. So one trial of each point is computed now and kept in ./results.")
        say("A clone of the project's repository has all of its trials. To see them, run the notebook there.")
        first_seed = min((spec.seed for spec in specs), default=0)
        specs = [spec for spec in specs if spec.seed == first_seed]
    outcome = run_missing(specs, existing_store, device, until, say, also=also)

    results = []
    for spec in specs:
        path = stores.result_path(spec, existing_store)
        if path.exists():
            results.append(stores.load_result(path))
    lacking = {result.spec.hash for result in results} & set(outcome.left)
    if len(results) < len(specs):
        say(
            f"There are results of {len(results)} of {len(specs)} trials. "
            f"There was no time for {len(outcome.left)} of the others."
        )
    elif lacking:
        say(f"There was no time to measure what {len(lacking)} of {len(specs)} trials lack.")
    for reason in outcome.failed.values():
        say(f"A trial failed: {reason}")
    ran_now = RAN_LIVE.union(outcome.ran)
    stored_before = [result for result in results if result.spec.hash not in ran_now]
    if stored_before:
        # This line is for the log of a build, and for whoever runs the notebook.
        origin = stored_by(*stored_before)
        print(f"{len(stored_before)} of {len(results)} trials were not run now, but {origin}.", file=sys.stderr)
    return results


def measured(preset: str, trials: int, minutes: float, device: str, also: Sequence[str]) -> list[TrialResult]:
    """Return the trials of Figure 3's left panel that have further measurements, stored or computed in time.

    If there are none, lines say so and show the command that computes them.

    Args:
        preset: The name of the preset.
        trials: The number of trials at each size.
        minutes: How many minutes to compute at most. 0 stands for the preset's own limit.
        device: Where networks are.
        also: The names of the measurements.
    """
    specs = panel_specs(preset, "left", trials)
    until = deadline(minutes or MINUTES[preset])
    results = gather(specs, until, device, stores.BEYOND, also=also)
    complete = [result for result in results if all(getattr(result, name) for name in also)]
    if not complete:
        options = "".join(f" --also {name}" for name in also)
        print("None of the trials that this page shows was done in time. Give it more `minutes`, or run this command:")
        print(
            f"python -m hmmbook trial --panel left --missing --preset {preset} --trials {trials}{options}"
            f" --store {_existing_store(stores.BEYOND)[0]}"
        )
    return complete


@dataclass(frozen=True)
class PageTrials:
    """The trials that a page on a panel of Figure 3 shows."""

    results: DataFrame
    """All of them, in the table that `hmmbook.results` describes. There is at least one."""
    live_spec: TrialSpec
    """What fixes the trial that was to run live."""
    live: TrialResult | None
    """The result of this trial now, or None if there was no time for it."""
    stored: TrialResult | None
    """The result of this trial that was stored before, if there was one."""

    def comparison(self, columns: dict[str, str]) -> Table:
        """Return a table that compares the stored accuracies of the live trial with those of now.

        Args:
            columns: The names of accuracies, each by the name of its row. An accuracy that the trial lacks is left out.
        """
        rows = []
        for name, column in columns.items():
            before = getattr(self.stored, column, None)
            now = getattr(self.live, column, None)
            if before is not None or now is not None:
                rows.append([name, _percent(before), _percent(now)])
        return Table([describe(self.live_spec), "stored", "live"], rows)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def page_trials(
    panel: str,
    specs: Sequence[TrialSpec],
    live_spec: TrialSpec,
    device: str = "auto",
    minutes: float = 0.0,
    also: Sequence[str] = (),
) -> PageTrials:
    """Run one trial live, and return it together with the trials that a page shows.

    The trials of the page are stored or computed in time. If there is none, the page gets the panel's own trials from
    `panel_results`, and a line says so.

    Args:
        panel: The panel of Figure 3 that the page is about, "left" or "right".
        specs: The trials of the page, all of one preset.
        live_spec: The trial that runs live.
        device: Where networks are.
        minutes: How many minutes all of this may take. 0 stands for the preset's own limit.
        also: The names of further measurements.
    """
    preset = specs[0].preset
    until = deadline(minutes or MINUTES[preset])
    path = stores.result_path(live_spec, _existing_store(stores.PROJECT))
    stored = stores.load_result(path) if path.is_file() else None
    live = None
    try:
        result = run_live(live_spec, device, also=also, until=until)
        if live_spec.hash in RAN_LIVE:
            live = result
    except TimeoutError as error:
        print(f"The live trial is missing: {error}")
    own = [live] if live is not None and live_spec in specs else []
    table = _stored_or_computed(panel, specs, device, until, also, own)
    return PageTrials(table, live_spec, live, stored)


def panel_trials(
    panel: str, specs: Sequence[TrialSpec], device: str = "auto", minutes: float = 0.0, also: Sequence[str] = ()
) -> DataFrame:
    """Return the trials of a page as `page_trials` does, but without one that runs live.

    Args:
        panel: The panel of Figure 3 that the page is about, "left" or "right".
        specs: The trials of the page, all of one preset.
        device: Where networks are.
        minutes: How many minutes to compute what is not stored. 0 stands for the preset's own limit.
        also: The names of further measurements.
    """
    until = deadline(minutes or MINUTES[specs[0].preset])
    return _stored_or_computed(panel, specs, device, until, also)


def _stored_or_computed(
    panel: str,
    specs: Sequence[TrialSpec],
    device: str,
    until: float,
    also: Sequence[str],
    own: Sequence[TrialResult] = (),
) -> DataFrame:
    """Return the trials of a page that are stored or done in time.

    If there are none, return those in `own`. If that is empty too, return the panel's own trials.
    """
    preset = specs[0].preset
    if preset in FOR_GPUS and pick(device).type == "cpu":
        until = 0.0  # Only what is stored is shown, because a trial would take hours.
    results = gather(specs, until, device, also=also) or own
    return as_table(results) if results else _of_the_panel(panel, preset)


def _of_the_panel(panel: str, preset: str) -> DataFrame:
    """Return the panel's own stored trials. If there are none, return one trial of each point at `smoke`."""
    print("None of these trials is stored, and none was done in time. So this page shows the panel's own trials.")
    results = panel_results(panel, preset)
    if results.empty:
        print("None of those is stored. So it shows one trial of each point at `smoke`, whose networks hardly learn.")
        results = as_table(gather(panel_specs("smoke", panel, 1), math.inf))
    return results
