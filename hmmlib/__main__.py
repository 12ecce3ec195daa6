"""The command line: python -m hmmlib ledger | trial | sweep | export | info."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from hmmlib import __version__
from hmmlib.experiments.presets import PANELS, PRESETS, TRIALS
from hmmlib.terminal import console, errors, line, progress, trial_once_a_minute

# What takes torch is imported where a command needs it: --help need not wait a second for it.

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
debugging = False
"""Whether an error is to be shown with its traceback."""


def _version(asked: bool) -> None:
    if asked:
        line(f"hmmlib {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="show where an error comes from: its whole traceback")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="say which version this is, and end")
    ] = False,
) -> None:
    """What stands before a command."""
    global debugging
    debugging = debug


if find_spec("companion"):  # the book's part of the package is missing where a copy of hmmlib stands alone
    app.command("ledger")(import_module("companion.__main__").ledger)


@contextmanager
def usage_errors() -> Iterator[None]:
    """What an option cannot be is an error of usage: exit code 2."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def exit_code_130_if_interrupted() -> Iterator[None]:
    """Ctrl-C ends what is inside after its step, with exit code 130 and a line on what to do. A warning is a line."""
    from hmmlib import backend

    try:
        with backend.interrupts_between_steps(), backend.warnings_in_one_line():
            yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note("interrupted; what is finished is kept: run it again to go on")
        for note in interrupt.__notes__:
            line(f"hmmlib: {note}", errors)
        raise typer.Exit(130) from None


def folder(text: str) -> Path:
    """The value of an option that names a folder; an unset variable of a shell leaves it empty."""
    if not text:
        raise typer.BadParameter("it must name a folder, not ''")
    return Path(text)


Preset = Annotated[Literal[tuple(PRESETS)], typer.Option(help="size of everything")]
Panel = Annotated[Literal[tuple(PANELS)] | None, typer.Option(help="the points of that panel of Figure 3")]
TRIALS_OF_POINT = "trials of each point; if left out 1, of a panel as many as in the paper"
Trials = Annotated[int | None, typer.Option(min=1, help=TRIALS_OF_POINT)]
SIZE = "with --panel: only its points of this |M||H|; may stand more than once"
Sizes = Annotated[list[int] | None, typer.Option("--size", min=1, help=SIZE)]
Seed = Annotated[int, typer.Option(min=0, help="seed of the trial, of a panel its first")]
Minutes = Annotated[float | None, typer.Option(min=0, help="stop after so many minutes; everything finished is kept")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps")]
STORE = "result store; if left out mine/results, and what it lacks is looked for in results"
Store = Annotated[Path | None, typer.Option(parser=folder, metavar="PATH", help=STORE)]
ALSO = "a measurement on request, such as probes; `all` for every one but on_the_way, which takes longest"
Also = Annotated[list[str] | None, typer.Option(help=ALSO)]
Networks = Annotated[Path | None, typer.Option(parser=folder, metavar="PATH", help="keep pretrained networks here")]
Rerun = Annotated[bool, typer.Option("--rerun", help="run again what another state of the library has stored")]
CHANGE = "another field of the spec, such as steps=1100, or several values: steps=400,1100"
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=CHANGE)]


def _fields(changes: list[str] | None) -> dict:
    """`NAME=VALUE,…` pairs as fields for `grid`; the spec's own checks judge name and values."""
    from hmmlib.experiments.specs import as_field

    fields = {}
    for change in changes or []:
        name, equals, text = change.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, not {change!r}")
        if name in {"preset", "seed", "n_states", "n_memory"}:
            raise ValueError(f"--set takes the other fields: {name} has its own option, or is the panel's")
        if name in fields:
            raise ValueError(f"--set takes each field once, but {name} is there twice")
        fields[name] = [as_field(name, value) for value in text.split(",")]
    return fields


def _how(store, device: str, minutes: float | None, rerun: bool, also: list[str] | None, networks: Path | None) -> dict:
    """What `run_missing` takes, from options that two commands have."""
    from hmmlib.experiments.movement import ON_REQUEST
    from hmmlib.experiments.store import PROJECT
    from hmmlib.experiments.sweeps import deadline
    from hmmlib.validation import one_of

    also = [one_of("--also", name, ("all", *ON_REQUEST)) for name in also or []]
    every = [name for name in ON_REQUEST if name != "on_the_way"] if "all" in also else []
    also = list(dict.fromkeys(name for name in (*every, *also) if name != "all"))
    how = dict(store=store or PROJECT, device=device, until=deadline(minutes), log=line)
    return how | dict(rerun=rerun, also=also, networks=networks)


def _conclude(outcome, specs) -> None:
    """Say what became of everything, and why what failed did. Exit 1 where a trial failed."""
    from hmmlib.experiments.sweeps import describe

    words = ["run", "were stored", "are being run by another process", "are left", "failed"]
    groups = outcome.ran, outcome.stored, outcome.taken, outcome.left, outcome.failed
    line(", ".join(f"{len(group)} {word}" for group, word in zip(groups, words, strict=True)))
    for spec in specs:
        if spec.hash in outcome.failed:
            line(f"hmmlib: {describe(spec)} failed: {outcome.failed[spec.hash]}", errors)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
@exit_code_130_if_interrupted()
def trial(
    n_states: Annotated[list[int] | None, typer.Option(min=1, help="hidden states |H|; 10 if left out")] = None,
    n_memory: Annotated[int | None, typer.Option(min=1, help="memory values |M|; if left out 1, a vanilla HMM")] = None,
    seed: Seed = 0,
    preset: Preset = "quick",
    panel: Panel = None,
    trials: Trials = None,
    size: Sizes = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="run what the store lacks of a panel, on this machine")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="processes side by side")] = 1,
    max_minutes: Minutes = None,
    device: Device = "auto",
    store: Store = None,
    changes: Changes = None,
    also: Also = None,
    networks: Networks = None,
    rerun: Rerun = False,
) -> None:
    """Run one trial, or several: all that the store lacks of a panel (--panel, --missing), or of all combinations of
    values (--n-states 6 --n-states 12 --set steps=400,1100). What is stored is not run again.
    """
    from hmmlib.backend import pick
    from hmmlib.experiments.specs import grid, panel_specs
    from hmmlib.experiments.sweeps import describe, run_missing

    with usage_errors():
        if missing != (panel is not None):
            raise ValueError("--missing and --panel left|right go together")
        if missing and (n_states or n_memory):
            raise ValueError("a panel has its own --n-states and --n-memory")
        if size and not missing:
            raise ValueError("--size is for --missing")
        pick(device)
        how = _how(store, device, max_minutes, rerun, also, networks)
        fields = _fields(changes)
        if missing:
            specs = panel_specs(preset, panel, trials or TRIALS[panel], sizes=size or None, first_seed=seed, **fields)
        else:
            sizes = dict(n_states=n_states or 10, n_memory=n_memory or 1)
            specs = grid(preset, trials or 1, first_seed=seed, **sizes, **fields)
    if workers > 1:  # each process writes for itself
        outcome = run_missing(specs, workers=workers, on_progress=trial_once_a_minute, **how)
    else:
        with progress("starting") as update:

            def show(spec, phase, share):
                update(f"{describe(spec)}: {phase} {share:.0%}")

            outcome = run_missing(specs, on_progress=show, **how)
    if len(specs) > 1 or outcome.failed:
        _conclude(outcome, specs)
    else:
        _conclude_one(outcome, specs[0], how["store"])


def _conclude_one(outcome, spec, store) -> None:
    """Say where the result lies, and whether it was run now or stored before, by what code. Exit 1 without one."""
    from hmmlib.experiments.provenance import has_changed, stored_by
    from hmmlib.experiments.store import load_result, result_path
    from hmmlib.experiments.sweeps import describe, summary

    if outcome.left:
        line("the time is over; run the same command again to go on")
        return
    if outcome.taken:
        line(f"hmmlib: {describe(spec)} is being run by another process", errors)
        raise typer.Exit(1)
    path = result_path(spec, store)
    if outcome.ran:
        line("run now, and stored:")
    else:
        result = load_result(path)
        again = "" if has_changed(result) is False else " (--rerun runs it again)"
        line(f"{describe(spec)}: {summary(result)}")
        line(f"not run now, but {stored_by(result)}{again}:")
    line(str(path))


@app.command()
@exit_code_130_if_interrupted()
def sweep(
    panel: Panel,
    preset: Preset = "quick",
    trials: Trials = None,
    seed: Seed = 0,
    max_minutes: Minutes = None,
    address: Annotated[
        str | None, typer.Option(metavar="RAY", help="an existing Ray cluster; else one on this machine")
    ] = None,
    cpus: Annotated[float, typer.Option(min=0.01, help="cores of a trial")] = 1.0,
    gpus: Annotated[
        float | None, typer.Option(min=0, help="GPUs of a trial, such as 0.25; a whole one if there are any")
    ] = None,
    device: Device = "auto",
    store: Store = None,
    changes: Changes = None,
    size: Sizes = None,
    also: Also = None,
    networks: Networks = None,
    rerun: Rerun = False,
) -> None:
    """Run with Ray what the store lacks of a panel: one trial of every point before the second of any."""
    from hmmlib.backend import as_name, pick
    from hmmlib.experiments.executors import RayCluster
    from hmmlib.experiments.specs import panel_specs
    from hmmlib.experiments.sweeps import run_missing

    with usage_errors():
        more = dict(sizes=size or None, first_seed=seed) | _fields(changes)
        specs = panel_specs(preset, panel, trials or TRIALS[panel], **more)
        how = _how(store, device, max_minutes, rerun, also, networks)
        (as_name if address else pick)(device)  # a cluster may have what this machine lacks
        cluster = RayCluster(address, cpus, gpus)
    try:
        with progress("starting Ray") as update:
            outcome = run_missing(specs, cluster=cluster, on_status=update, **how)
    except ModuleNotFoundError as error:
        raise SystemExit(f"hmmlib: {error}; sweeps need the extra: pip install 'hmmlib[sweep]'") from None
    _conclude(outcome, specs)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="FILE.csv or FILE.parquet, which is written")],
    preset: Annotated[Literal[tuple(PRESETS)] | None, typer.Option(help="its results in the main store only")] = None,
    store: Store = None,
) -> None:
    """Write the table of stored results, a row for each trial, as `hmmlib.results` gives it."""
    from hmmlib.experiments.results import results

    with usage_errors():
        if file.suffix not in (".csv", ".parquet"):
            raise ValueError(f"FILE must end in .csv or .parquet, not {file.name!r}")
    table = results(preset, store)
    try:
        table.to_csv(file, index=False) if file.suffix == ".csv" else table.to_parquet(file, index=False)
    except ImportError:
        raise SystemExit("hmmlib: parquet needs pyarrow: pip install pyarrow, or name a FILE.csv") from None
    line(f"{len(table)} trials, {len(table.columns)} columns: {file}")


@app.command()
def info(device: Device = "auto") -> None:
    """Versions, threads, device, commit: what a result depends on besides its spec."""
    from hmmlib.backend import pick
    from hmmlib.experiments.provenance import environment

    with usage_errors():
        picked = pick(device)
    for name, value in environment(picked, "single").items():
        console.print(f"{name:14}{value}")


def main() -> None:
    """Run the command line; an error is one line on stderr and exit code 1, with `--debug` a traceback."""
    if sys.stdout:  # there is none where it was closed
        sys.stdout.reconfigure(errors="backslashreplace")  # what a terminal cannot show must not end the work
    try:
        app()
    except Exception as error:
        if debugging:
            raise
        words = " ".join(str(error).splitlines())
        if not isinstance(error, ValueError | OSError | FloatingPointError | RuntimeError):
            words = f"{type(error).__name__}: {words} (python -m hmmlib --debug … shows where)"
        raise SystemExit(f"hmmlib: {words}") from None


if __name__ == "__main__":
    main()
