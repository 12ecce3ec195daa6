"""The command line: python -m hmmlib ledger | trial | sweep | info."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Literal

import typer

from hmmlib import __version__
from hmmlib.experiments.presets import PANELS, TRIALS
from hmmlib.options import (
    Also,
    Changes,
    Device,
    Minutes,
    Networks,
    OnceAMinute,
    Panel,
    Preset,
    Rerun,
    Seed,
    Sizes,
    Store,
    Trials,
    console,
    errors,
    exit_code_130_if_interrupted,
    line,
    progress,
    usage_errors,
)

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


def _fields(changes: list[str] | None) -> dict:
    """`NAME=VALUE` pairs as fields of a TrialSpec; its own checks judge name and value."""
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
        fields[name] = as_field(name, text)
    return fields


def _panel(preset: str, panel: str, trials: int | None, changes: list[str] | None, sizes: list[int] | None, seed: int):
    """The specs of a panel."""
    from hmmlib.experiments.specs import panel_specs

    fields = _fields(changes)
    return panel_specs(preset, panel, trials or TRIALS[panel], sizes=sizes or None, first_seed=seed, **fields)


def _on_request(names: list[str] | None) -> list[str]:
    """Names of measurements on request; `all` stands for every one but on_the_way."""
    from hmmlib.experiments.beyond import ON_REQUEST

    for name in names or []:
        if name not in ("all", *ON_REQUEST):
            raise ValueError(f"--also must be all, or one of {', '.join(ON_REQUEST)}, not {name!r}")
    every = [name for name in ON_REQUEST if name != "on_the_way"] if "all" in (names or []) else []
    return list(dict.fromkeys([*every, *(name for name in names or [] if name != "all")]))


def _conclude(outcome, specs) -> None:
    """Say what became of everything, and why what failed did. Exit 1 where a trial failed."""
    from hmmlib.experiments.sweeps import describe

    line(
        f"{len(outcome.ran)} run, {len(outcome.stored)} were stored, {len(outcome.taken)} are being run by another process, "
        f"{len(outcome.left)} are left, {len(outcome.failed)} failed"
    )
    names = {spec.hash: describe(spec) for spec in specs}
    for failed, reason in outcome.failed.items():
        line(f"hmmlib: {names[failed]} failed: {reason}", errors)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
@exit_code_130_if_interrupted()
def trial(
    n_states: Annotated[int | None, typer.Option(min=1, help="hidden states |H|; 10 if left out")] = None,
    n_memory: Annotated[int | None, typer.Option(min=1, help="memory values |M|; if left out 1, a vanilla HMM")] = None,
    seed: Seed = 0,
    preset: Preset = "quick",
    panel: Panel = None,
    trials: Trials = None,
    size: Sizes = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="run what the store lacks of a panel, on this machine")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="with --missing: processes side by side")] = 1,
    max_minutes: Minutes = None,
    device: Device = "auto",
    store: Store = None,
    changes: Changes = None,
    also: Also = None,
    networks: Networks = None,
    rerun: Rerun = False,
) -> None:
    """Run one trial, or with --panel and --missing all that the store lacks. What is stored is not run again."""
    from hmmlib.backend import pick
    from hmmlib.experiments.specs import TrialSpec
    from hmmlib.experiments.store import PROJECT
    from hmmlib.experiments.sweeps import deadline, describe, run_missing

    with usage_errors():
        if missing != (panel is not None):
            raise ValueError("--missing and --panel left|right go together")
        if missing and (n_states or n_memory):
            raise ValueError("a panel has its own --n-states and --n-memory")
        if not missing and (trials or size or workers > 1):
            raise ValueError("--trials, --size and --workers are for --missing")
        pick(device)
        how = dict(store=store or PROJECT, device=device, until=deadline(max_minutes), workers=workers)
        how |= dict(rerun=rerun, also=_on_request(also), networks=networks)
        if missing:
            specs = _panel(preset, panel, trials, changes, size, seed)
        else:
            specs = [TrialSpec(preset, n_states or 10, seed, n_memory or 1, **_fields(changes))]
    if workers > 1:  # each process writes for itself
        outcome = run_missing(specs, say=line, on_progress=OnceAMinute().of_trial, **how)
    else:
        with progress("starting") as update:

            def show(spec, phase, share):
                update(f"{describe(spec)}: {phase} {share:.0%}")

            outcome = run_missing(specs, say=line, on_progress=show, **how)
    if missing:
        _conclude(outcome, specs)
    else:
        _conclude_one(outcome, specs[0], how["store"])


def _conclude_one(outcome, spec, store) -> None:
    """Say where the result of a spec lies, and whether it was run now or stored before, by what code. Exit 1 without one."""
    from hmmlib.experiments.provenance import has_changed, stored_by
    from hmmlib.experiments.store import load_result, result_path
    from hmmlib.experiments.sweeps import describe, summary

    if outcome.left:
        line("the time is over; run the same command again to go on")
        return
    if outcome.failed:
        _conclude(outcome, [spec])
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
    console.print(str(path), style="dim", highlight=False, markup=False, soft_wrap=True)


@app.command()
@exit_code_130_if_interrupted()
def sweep(
    panel: Annotated[Literal[tuple(PANELS)], typer.Option(help="the points of that panel of Figure 3")],
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
    from hmmlib.experiments.executors import reachable
    from hmmlib.experiments.store import PROJECT
    from hmmlib.experiments.sweeps import deadline
    from hmmlib.experiments.sweeps import sweep as run

    with usage_errors():
        specs = _panel(preset, panel, trials, changes, size, seed)
        how = dict(rerun=rerun, also=_on_request(also), networks=networks)
        (as_name if address else pick)(device)  # a cluster may have what this machine lacks
        until = deadline(max_minutes)
        if address is not None:
            reachable(address)
    try:
        with progress("starting Ray") as update:
            outcome = run(specs, store or PROJECT, until, address, cpus, gpus, device, line, update, **how)
            _conclude(outcome, specs)
    except ModuleNotFoundError as error:
        raise SystemExit(f"hmmlib: {error}; sweeps need the extra: pip install 'hmmlib[sweep]'") from None


@app.command()
def info(device: Device = "auto") -> None:
    """Versions, threads, device, commit: what a result depends on besides its spec."""
    from hmmlib.backend import pick
    from hmmlib.experiments.trials import environment

    with usage_errors():
        picked = pick(device)
    for name, value in environment(picked).items():
        console.print(f"{name:14}{value}")


def main() -> None:
    """Run the command line; an error is one line on stderr and exit code 1, with `--debug` a traceback."""
    if sys.stdout:  # there is none where it was closed
        sys.stdout.reconfigure(errors="backslashreplace")  # what a terminal cannot show must not end what was asked for
    try:
        app()
    except Exception as error:
        if debugging:
            raise
        expected = isinstance(error, ValueError | OSError | FloatingPointError | RuntimeError)
        name = "" if expected else f"{type(error).__name__}: "
        hint = "" if expected else " (python -m hmmlib --debug … shows where)"
        raise SystemExit(f"hmmlib: {name}{' '.join(str(error).splitlines())}{hint}") from None


if __name__ == "__main__":
    main()
