"""What a notebook computes while it runs: the trials that its parameters ask for and the store lacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from companion.parameters import MINUTES
from hmmlib.experiments import store as stores
from hmmlib.experiments.provenance import stored_by
from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.sweeps import deadline, run_missing, store_safely, what_is_kept
from hmmlib.experiments.trials import TrialResult, run_trial
from hmmlib.training import checkpoints


def changed(preset: str, prompt_length: int = -1, labelled: int = 0, steps: int = 0, **others: float) -> dict:
    """Fields of a TrialSpec from a notebook's parameters; -1 for `prompt_length`, 0 for the others is the preset's.

    For a long prompt the text to pretrain on is made as long as task and prompt together. ValueError for an unknown
    preset.
    """
    asked = {"prompt_length": (prompt_length, -1), "train": (labelled, 0), "steps": (steps, 0)}
    fields = others | {name: value for name, (value, from_preset) in asked.items() if value != from_preset}
    usual = TrialSpec(preset)
    needed = fields.get("task_length", usual.task_length) + fields.get("prompt_length", usual.prompt_length)
    return fields | {"length": max(fields.get("length", usual.length), needed)}


def _here(store: stores.Store) -> tuple[Path, ...]:
    """The store, or a folder `results` here where none of its folders is there, as in Colab."""
    folders = stores.as_store(store)
    return folders if any(folder.is_dir() for folder in folders) else stores.as_store("results")


@contextmanager
def _notes_to_the_terminal() -> Iterator[None]:
    """An interrupt's notes go to papermill's terminal: what the cells print is lost with an interrupted notebook."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", []):
            print(f"hmmlib: {note}", file=sys.__stderr__, flush=True)
        raise


@_notes_to_the_terminal()
def run_live(
    spec: TrialSpec, device: str = "auto", store: stores.Store = stores.PROJECT, also: Sequence[str] = ()
) -> TrialResult:
    """Run a trial now, be it stored or not, and keep it where the store lacks it; a run that was broken off goes on.

    ValueError for an unknown device or measurement, OSError where the result can be kept nowhere.
    """
    store = _here(store)
    checkpoint = stores.checkpoint_path(spec, store)
    try:
        result = run_trial(spec, device=device, checkpoint=checkpoint, also=also)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(what_is_kept(spec, store))
        raise
    if stores.is_stored(spec, store, also=also):
        checkpoints.remove(checkpoint)
    else:
        store_safely(result, store)
    return result


@_notes_to_the_terminal()
def gather(
    specs: Sequence[TrialSpec], until: float, device: str = "auto", store: stores.Store = stores.PROJECT,
    say: Callable[[str], None] = print, also: Sequence[str] = (),
) -> list[TrialResult]:  # fmt: skip
    """For a notebook: the stored results of the specs, each once, and what can be computed of the missing ones by then.

    Where there is no store, as in Colab, a folder `results` is begun here, with one trial of each point. Lines for
    `say` tell what is missing, and of what was stored before, by what code. A result that lacks what is `also` asked
    for, of the measurements on request, counts as missing.
    """
    asked, store, specs = stores.as_store(store), _here(store), list(dict.fromkeys(specs))
    if store != asked:
        say("There is no result store here: one trial of each point is computed now, and kept in ./results.")
        say("The project's own trials come with a clone of its repository: run the notebook from there.")
        first = min((spec.seed for spec in specs), default=0)
        specs = [spec for spec in specs if spec.seed == first]
    outcome = run_missing(specs, store, device, until, say, also=also)
    paths = (stores.result_path(spec, store) for spec in specs)
    results = [stores.load_result(path) for path in paths if path.exists()]
    if len(results) < len(specs):
        left = f"the time was over before {len(outcome.left)} of the others."
        say(f"{len(results)} of {len(specs)} trials are there; {left}")
    elif lacking := {*outcome.left, *outcome.taken} & {result.spec.hash for result in results}:
        why = "the time was over, or others are running them."
        say(f"{len(lacking)} of {len(specs)} trials lack what is asked for: {why}")
    for reason in outcome.failed.values():
        say(f"A trial failed: {reason}")
    if before := [result for result in results if result.spec.hash not in outcome.ran]:
        note = f"{len(before)} of {len(results)} trials were not run now, but {stored_by(*before)}."
        print(note, file=sys.stderr)  # for the log of a build, and for who runs the notebook
    return results


def measured(preset: str, trials: int, minutes: float, device: str, also: Sequence[str]) -> list[TrialResult]:
    """For a notebook of *Beyond the paper*: the trials of Figure 3's left panel that have all that `also` asks for.

    They are gathered from what is stored and what can be computed within so many minutes; 0 for the preset's own.
    """
    specs = panel_specs(preset, "left", trials)
    results = gather(specs, deadline(minutes or MINUTES[preset]), device, stores.BEYOND, also=also)
    found = [result for result in results if all(getattr(result, name) for name in also)]
    if not found:
        asked = "".join(f" --also {name}" for name in also)
        print("What this page shows of trials is missing: none was done in time. Give it more `minutes`, or run")
        print(f"python -m hmmlib trial --panel left --missing --preset {preset} --trials {trials}{asked}", end=" ")
        print(f"--store {_here(stores.BEYOND)[0]}")
    return found
