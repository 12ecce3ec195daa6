"""What a notebook computes while it runs: the trials that its parameters ask for and the store lacks."""

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

    The text to pretrain on is made long enough for task and prompt together.

    Args:
        preset: The preset.
        prompt_length: The number of prompt vectors; -1 stands for the preset's.
        labelled: The number of labelled texts to tune on; 0 stands for the preset's.
        steps: The steps of pretraining; 0 stands for the preset's.
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
    """Return the preset that a page trains live: the one asked for, but on a CPU `quick` instead of one for a GPU.

    A line says so where it is another one.
    """
    if device.type == "cpu" and preset in FOR_GPUS:
        print(f"The preset {preset} is for a GPU, and this runs on a CPU. So what is trained here is of `quick`.")
        return "quick"
    return preset


def _existing_store(store: stores.Store) -> tuple[Path, ...]:
    """The store, or a folder `results` of the working directory where none of its folders exists, as in Colab."""
    folders = stores.as_store(store)
    if any(folder.is_dir() for folder in folders):
        return folders
    return stores.as_store("results")


@contextmanager
def _notes_to_the_terminal() -> Iterator[None]:
    """Print an interrupt's notes to papermill's terminal, because an interrupted notebook loses what it prints."""
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
    """Run a trial now, be it stored or not, and keep it where the store lacks it. A run that was broken off goes on.

    Args:
        spec: The trial.
        device: Where the network is.
        store: Where the result is kept.
        also: The names of further measurements.
        until: When to stop, as time.monotonic() counts.

    Returns:
        The result. It is the stored one, and a line says so, if the time is over before the trial is finished.

    Raises:
        ValueError: There is no such device or measurement.
        TimeoutError: The time is over before the trial is finished, and it is not stored either.
        OSError: The result can be kept nowhere.
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
                f"there was no time for the live trial: give it more minutes. {what_is_kept(spec, store)}"
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
    """Return the stored results of the specs, each once, and those that can be computed in time.

    Where there is no store, as in Colab, a folder `results` is begun, with one trial of each point.

    Args:
        specs: The trials.
        until: When to stop, as time.monotonic() counts.
        device: Where networks are.
        store: Where results are looked for and kept.
        say: Called with lines that tell what is missing.
        also: The names of further measurements. A result that lacks one counts as missing.
    """
    specs = list(dict.fromkeys(specs))
    existing_store = _existing_store(store)
    if existing_store != stores.as_store(store):
        say("There is no result store here: one trial of each point is computed now, and kept in ./results.")
        say("The project's own trials come with a clone of its repository: run the notebook from there.")
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
            f"{len(results)} of {len(specs)} trials are there; "
            f"the time was over before {len(outcome.left)} of the others."
        )
    elif lacking:
        say(f"{len(lacking)} of {len(specs)} trials lack what is asked for: the time was over.")
    for reason in outcome.failed.values():
        say(f"A trial failed: {reason}")
    ran_now = RAN_LIVE.union(outcome.ran)
    stored_before = [result for result in results if result.spec.hash not in ran_now]
    if stored_before:
        # For the log of a build, and for whoever runs the notebook.
        origin = stored_by(*stored_before)
        print(f"{len(stored_before)} of {len(results)} trials were not run now, but {origin}.", file=sys.stderr)
    return results


def measured(preset: str, trials: int, minutes: float, device: str, also: Sequence[str]) -> list[TrialResult]:
    """Return the trials of Figure 3's left panel that have further measurements, stored or computed in time.

    Args:
        preset: The preset.
        trials: The number of trials at each size.
        minutes: The minutes to compute in; 0 stands for the preset's own.
        device: Where networks are.
        also: The names of the measurements.
    """
    specs = panel_specs(preset, "left", trials)
    until = deadline(minutes or MINUTES[preset])
    results = gather(specs, until, device, stores.BEYOND, also=also)
    complete = [result for result in results if all(getattr(result, name) for name in also)]
    if not complete:
        options = "".join(f" --also {name}" for name in also)
        print("What this page shows of trials is missing: none was done in time. Give it more `minutes`, or run")
        print(
            f"python -m hmmbook trial --panel left --missing --preset {preset} --trials {trials}{options}"
            f" --store {_existing_store(stores.BEYOND)[0]}"
        )
    return complete


@dataclass(frozen=True)
class PageTrials:
    """The trials that a page on a panel of Figure 3 shows."""

    results: DataFrame
    """All of them, as `results` gives them. There is at least one."""
    live_spec: TrialSpec
    """The trial that was to run live."""
    live: TrialResult | None
    """What it gave now, or None where the time was over."""
    stored: TrialResult | None
    """What was stored of it before, if anything."""

    def comparison(self, columns: dict[str, str]) -> Table:
        """Compare the stored accuracies of the live trial with those of now.

        Args:
            columns: By the name of a row, the name of an accuracy. Accuracies that the trial lacks are left out.
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
    """Run one trial live, and return it with the trials of a page, which are stored or computed in time.

    Where none of these is there in time, the page gets the panel's own trials, as `panel_results` gives them, and lines
    say so.

    Args:
        panel: The panel of Figure 3 that the page is about, "left" or "right".
        specs: The trials of the page, all of one preset.
        live_spec: The trial that runs live.
        device: Where networks are.
        minutes: The minutes for all of this; 0 stands for the preset's own.
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
        print(f"The live trial is missing: {error}.")
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
        minutes: The minutes for those that are not stored; 0 stands for the preset's own.
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
    """Return the trials of a page: those that are stored or done in time, or else its own, or else the panel's."""
    preset = specs[0].preset
    if preset in FOR_GPUS and pick(device).type == "cpu":
        until = 0.0  # What is stored is shown. Nothing else can be done in time.
    results = gather(specs, until, device, also=also) or own
    return as_table(results) if results else _of_the_panel(panel, preset)


def _of_the_panel(panel: str, preset: str) -> DataFrame:
    """Return the panel's own stored trials, or one of each point at `smoke` where nothing is stored."""
    print("None of these trials is stored, and none was done in time. This page shows the panel's own trials.")
    results = panel_results(panel, preset)
    if results.empty:
        print("There are none either, so it shows one of each point at `smoke`, whose networks learn next to nothing.")
        results = as_table(gather(panel_specs("smoke", panel, 1), math.inf))
    return results
