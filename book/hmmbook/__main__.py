"""Run the experiments of the book, export their results, and check the statements of the paper."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hmmbook.evidence.command import ledger
from hmmbook.experiments.presets import PRESETS, TRIALS
from hmmbook.files import write_whole
from hmmbook.options import (
    Also,
    Changes,
    Device,
    Minutes,
    Networks,
    Panel,
    Preset,
    Rerun,
    Seed,
    Shard,
    Sizes,
    Store,
    Trials,
)
from hmmbook.terminal import console, errors, line, progress
from hmmlib import __version__

# What takes torch is imported where a command needs it, so that --help need not wait a second for it.
if TYPE_CHECKING:
    from hmmbook.experiments.specs import TrialSpec
    from hmmbook.experiments.sweeps import Outcome

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
app.command("ledger")(ledger)


class Options:
    """The options that stand before a command."""

    debug = False
    """Whether an error is shown with its traceback."""


def show_version(requested: bool) -> None:
    """Show the version and end."""
    if requested:
        line(f"hmmbook {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show an error with its whole traceback.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""
    Options.debug = debug


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError into an error of usage, with exit code 2."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def exit_code_130_if_interrupted() -> Iterator[None]:
    """Let Ctrl-C end the work after its step, with exit code 130 and a line on what to do."""
    from hmmlib.device import interrupts_between_steps, warnings_in_one_line

    try:
        with interrupts_between_steps(), warnings_in_one_line():
            yield
    except KeyboardInterrupt as interrupt:
        notes = getattr(interrupt, "__notes__", [])
        for note in [*notes, "interrupted. What is finished is kept. Run the same command again to go on."]:
            line(f"hmmbook: {note}", errors)
        raise typer.Exit(130) from None


@app.command()
def trial(
    n_states: Annotated[
        list[int] | None, typer.Option(min=1, help="How many hidden states |H| the chain has. The default is 10.")
    ] = None,
    n_memory: Annotated[
        int | None,
        typer.Option(min=1, help="How many memory values |M| it has. The default is 1, which is a vanilla HMM."),
    ] = None,
    seed: Seed = 0,
    preset: Preset = "quick",
    panel: Panel = None,
    trials: Trials = None,
    size: Sizes = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Run the trials of a panel that are not stored yet.")
    ] = False,
    shard: Shard = None,
    max_minutes: Minutes = None,
    device: Device = "auto",
    store: Store = None,
    changes: Changes = None,
    also: Also = None,
    networks: Networks = None,
    rerun: Rerun = False,
) -> None:
    """Run one trial, or several trials one after another.

    With --panel and --missing it runs every trial of a panel that is not stored yet. If an option is given several
    values, as in --n-states 6 --n-states 12 --set steps=400,1100, it runs every combination of them. A stored trial is
    not run again.
    """
    from hmmbook.experiments.specs import grid, panel_specs
    from hmmbook.experiments.sweeps import deadline, describe, run_missing, shard_of
    from hmmlib.device import pick

    with usage_errors():
        if missing != (panel is not None):
            raise ValueError("--missing needs --panel left or --panel right, and --panel needs --missing")
        if missing and (n_states or n_memory):
            raise ValueError("a panel sets --n-states and --n-memory itself, so leave them out")
        if size and not missing:
            raise ValueError("--size chooses points of a panel, so it needs --missing")
        pick(device)
        requested = requested_measurements(also)
        fields = fields_of(changes)
        if missing:
            specs = panel_specs(preset, panel, trials or TRIALS[panel], sizes=size or None, first_seed=seed, **fields)
        else:
            fields |= {"n_states": n_states or 10, "n_memory": n_memory or 1}
            specs = grid(preset, trials or 1, first_seed=seed, **fields)
        specs = list(dict.fromkeys(specs))  # A value may be given twice.
        if shard is not None:
            specs = shard_of(specs, shard)

    with exit_code_130_if_interrupted(), progress("starting") as update:

        def show(spec: TrialSpec, phase: str, share: float) -> None:
            update(f"{describe(spec)}: {phase} {share:.0%}")

        outcome = run_missing(
            specs,
            store or project_store(),
            device,
            deadline(max_minutes),
            line,
            show,
            rerun=rerun,
            also=requested,
            networks=networks,
        )
    if len(specs) == 1 and not outcome.failed:
        conclude_one(outcome, specs[0], store or project_store())
        return
    if not missing:
        show_stored(outcome, specs, store or project_store())
    conclude(outcome, specs, store or project_store())


@app.command()
def sweep(
    panel: Panel,
    preset: Preset = "quick",
    trials: Trials = None,
    seed: Seed = 0,
    max_minutes: Minutes = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="RAY", help="The address of a Ray cluster. By default one is started on this machine."),
    ] = None,
    cpus: Annotated[float, typer.Option(min=0.01, help="How many cores a trial gets.")] = 1.0,
    gpus: Annotated[
        float | None,
        typer.Option(
            min=0, help="How many GPUs a trial gets, for example 0.25. The default is a whole one, if there is any."
        ),
    ] = None,
    device: Device = "auto",
    store: Store = None,
    changes: Changes = None,
    size: Sizes = None,
    also: Also = None,
    networks: Networks = None,
    rerun: Rerun = False,
) -> None:
    """Run the trials of a panel that are not stored yet, many at a time with Ray.

    Every point gets its first trial before any point gets its second.
    """
    from hmmbook.experiments.ray_sweep import RayCluster, run_with_ray
    from hmmbook.experiments.specs import panel_specs
    from hmmbook.experiments.sweeps import Sweep, deadline
    from hmmlib.device import pick

    with usage_errors():
        specs = panel_specs(
            preset, panel, trials or TRIALS[panel], sizes=size or None, first_seed=seed, **fields_of(changes)
        )
        if address is None:
            pick(device)  # a cluster elsewhere may have what this machine lacks
        requested = requested_measurements(also)
        cluster = RayCluster(address, cpus, gpus)
        until = deadline(max_minutes)
    work = Sweep(specs, store or project_store(), device, rerun, requested, networks, log=line)
    try:
        with exit_code_130_if_interrupted(), progress("starting Ray") as update:
            outcome = run_with_ray(work, cluster, until, update)
    except ModuleNotFoundError as error:
        raise SystemExit(f"hmmbook: {error}. Sweeps need Ray. Run pip install 'hmmlib[sweep]'.") from None
    conclude(outcome, specs, store or project_store())


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, which ends in .csv or .parquet.")],
    preset: Annotated[
        Literal[tuple(PRESETS)] | None,
        typer.Option(help="Export only the results of this preset that are stored in the main folder."),
    ] = None,
    store: Store = None,
) -> None:
    """Write all stored results into one table, which has a row for each trial."""
    from hmmbook.experiments.results import results

    with usage_errors():
        if file.suffix not in (".csv", ".parquet"):
            raise ValueError(f"FILE must end in .csv or .parquet, not {file.name!r}")
    table = results(preset, store)
    if table.empty:
        raise ValueError(f"there are no stored results to export, so {file} is left as it is")
    if file.suffix == ".csv":
        content = table.to_csv(index=False)
    else:
        try:
            content = table.to_parquet(index=False)
        except ImportError:
            raise SystemExit("hmmbook: parquet needs pyarrow. Run pip install pyarrow, or name a .csv file.") from None
    path = write_whole(file, content)
    line(f"{len(table)} trials, {len(table.columns)} columns: {path}")


@app.command()
def info(device: Device = "auto") -> None:
    """Show what a result depends on besides its spec: versions, threads, device and commit."""
    from hmmbook.experiments.environment import environment
    from hmmlib.device import pick

    with usage_errors():
        picked = pick(device)
    for name, value in environment(picked, "single").items():
        console.print(f"{name:14}{value}")


def project_store() -> tuple[Path, ...]:
    """Return where results are when no store is named."""
    from hmmbook.experiments.store import PROJECT

    return PROJECT


def fields_of(changes: list[str] | None) -> dict[str, list]:
    """Read texts like `NAME=VALUE,VALUE` as fields for `grid`, which checks names and values."""
    from hmmbook.experiments.specs import MODEL_FIELDS, as_field

    fields: dict[str, list] = {}
    for change in changes or []:
        name, equals, text = change.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, not {change!r}")
        if name == "own":
            raise ValueError("--set does not take own, because it names functions that only Python can pass")
        if name in MODEL_FIELDS:
            option = name.replace("_", "-")
            raise ValueError(f"--set does not take {name}. It has the option --{option}, unless a panel sets it.")
        if name in fields:
            raise ValueError(f"--set takes each field once, but {name} is there twice. Join its values by commas.")
        fields[name] = [as_field(name, value) for value in text.split(",")]
    return fields


def requested_measurements(also: list[str] | None) -> list[str]:
    """Check the names of further measurements. `all` stands for those that suit a trial of any chain."""
    from hmmbook.experiments.measurements import names_on_request
    from hmmbook.studies import names_for_every_trial
    from hmmlib.validation import one_of

    available = names_on_request()
    names: dict[str, None] = {}  # in their order, each once
    for name in also or []:
        one_of("--also", name, ("all", *available))
        if name == "all":
            names |= dict.fromkeys(names_for_every_trial())
        else:
            names[name] = None
    return list(names)


def show_stored(outcome: Outcome, specs: list[TrialSpec], store: Path | tuple[Path, ...]) -> None:
    """Show the results that were stored before, a line for each."""
    from hmmbook.experiments.store import load_result, result_path
    from hmmbook.experiments.sweeps import describe, differing_fields, stored_by, summary

    for spec in specs:
        if spec.hash in outcome.stored:
            result = load_result(result_path(spec, store))
            line(f"{describe(spec, differing_fields(specs))}: {summary(result)}; {stored_by(result)}")


def conclude(outcome: Outcome, specs: list[TrialSpec], store: Path | tuple[Path, ...]) -> None:
    """Say how many trials were run, where their results are, and why trials failed. Exit with 1 if any failed."""
    from hmmbook.experiments.store import as_store
    from hmmbook.experiments.sweeps import describe

    folders = " and ".join(map(str, as_store(store)))
    line(
        f"{len(outcome.ran)} were run now, {len(outcome.stored)} were stored before, "
        f"{len(outcome.left)} are left, {len(outcome.failed)} failed. Results are in {folders}"
    )
    for spec in specs:
        if spec.hash in outcome.failed:
            line(f"hmmbook: {describe(spec)} failed: {outcome.failed[spec.hash]}", errors)
    if outcome.failed:
        raise typer.Exit(1)


def conclude_one(outcome: Outcome, spec: TrialSpec, store: Path | tuple[Path, ...]) -> None:
    """Say where a result lies, and whether it was run now or stored before."""
    from hmmbook.experiments.store import load_result, result_path
    from hmmbook.experiments.sweeps import describe, stored_by, summary

    if outcome.left:
        line("The time is over. Run the same command again to go on.")
        return
    path = result_path(spec, store)
    if outcome.ran:
        line("This trial was run now. Its result is in")
    else:
        result = load_result(path)
        line(f"{describe(spec)}: {summary(result)}")
        line(f"This trial was not run now, but {stored_by(result)}. Use --rerun to run it again. Its result is in")
    line(str(path))


def main() -> None:
    """Run the command line. An error is one line on stderr, with exit code 1. With --debug it is a traceback."""
    # Torch reads this when it is first imported. Its threads spin while they wait for each other, and with another busy
    # process beside them on few cores, a step then takes 4 to 20 times as long as with a short spin.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if sys.stdout:  # It is None if it was closed.
        sys.stdout.reconfigure(errors="backslashreplace")  # A text that a terminal cannot show must not end the work.
    try:
        app()
    except KeyboardInterrupt:  # It came before there was work that could end after a step.
        raise SystemExit(130) from None
    except Exception as error:
        if Options.debug:
            raise
        message = " ".join(str(error).split())
        if not isinstance(error, ValueError | OSError | FloatingPointError | RuntimeError):
            message = f"{type(error).__name__}: {message} (hmmbook --debug … shows where)"
        raise SystemExit(f"hmmbook: {message}") from None


if __name__ == "__main__":
    main()
