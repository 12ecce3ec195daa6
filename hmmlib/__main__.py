"""The command line: python -m hmmlib ledger | trial | sweep | info."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from hmmlib import __version__
from hmmlib.options import (
    Also,
    Changes,
    Device,
    FirstSeed,
    Minutes,
    Networks,
    OnceAMinute,
    Panel,
    Preset,
    Rerun,
    Sizes,
    Store,
    Trials,
    console,
    errors,
    going_on_later,
    number,
    progress,
)

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
debugging = False
"""Whether an error is to be shown with its traceback."""


def _version(asked: bool) -> None:
    if asked:
        console.print(f"hmmlib {__version__}", highlight=False)
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


if find_spec(
    "companion"
):  # what the book runs comes with the repository's package, and not with a copy of hmmlib alone
    app.command("ledger")(import_module("companion.__main__").ledger)


def _fields(changes: list[str] | None) -> dict:
    """`NAME=VALUE` pairs as fields of a TrialSpec; its own checks judge name and value."""
    from hmmlib.experiments.specs import as_field

    fields = {}
    for change in changes or []:
        name, equals, text = change.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes NAME=VALUE, not {change!r}")
        if name in {"preset", "seed", "n_states", "n_memory"}:
            raise typer.BadParameter(f"--set takes the other fields: {name} has its own option, or is the panel's")
        if name in fields:
            raise typer.BadParameter(f"--set takes each field once, but {name} is there twice")
        try:
            fields[name] = as_field(name, text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return fields


def _panel(
    preset: str, panel: str, trials: int | None, changes: list[str] | None, sizes: list[int] | None, seed: int | None
):
    """The specs of a panel, or a usage error."""
    from hmmlib.experiments.presets import TRIALS
    from hmmlib.experiments.specs import panel_specs

    try:
        count = trials or TRIALS.get(panel, 1)
        return panel_specs(preset, panel, count, sizes=sizes or None, first_seed=seed or 0, **_fields(changes))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _pick(device: str):
    """The device of that name, or a usage error."""
    from hmmlib.backend import pick

    try:
        return pick(device)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _until(minutes: float | None, device: str, here: bool = True) -> float:
    """The end of the time box; a usage error for a bad number, or a device that there is not (or, if `here`, not here)."""
    from hmmlib.backend import as_name
    from hmmlib.experiments.local import deadline

    if here:
        _pick(device)
    try:
        as_name(device)
        return deadline(minutes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _conclude(outcome, specs) -> None:
    """Say what became of everything, and why what failed did. Exit 1 where a trial failed."""
    from hmmlib.experiments.local import describe

    console.print(
        f"{len(outcome.ran)} run, {len(outcome.stored)} were stored, {len(outcome.taken)} are being run by another process, "
        f"{len(outcome.left)} are left, {len(outcome.failed)} failed"
    )
    names = {spec.hash: describe(spec) for spec in specs}
    for failed, reason in outcome.failed.items():
        errors.print(f"hmmlib: {names[failed]} failed: {reason}", highlight=False, markup=False, soft_wrap=True)
    if outcome.failed:
        raise typer.Exit(1)


def _line(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@app.command()
def trial(
    n_states: Annotated[int | None, number("n-states", int, 1, help="hidden states |H|; 10 if left out")] = None,
    n_memory: Annotated[
        int | None, number("n-memory", int, 1, help="memory values |M|; if left out 1, a vanilla HMM")
    ] = None,
    seed: FirstSeed = None,
    preset: Preset = "quick",
    panel: Panel = None,
    trials: Trials = None,
    size: Sizes = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="run what the store lacks of a panel, in this process")
    ] = False,
    workers: Annotated[int, number("workers", int, 1, help="with --missing: processes side by side")] = 1,
    max_minutes: Minutes = None,
    device: Device = "auto",
    store: Store = None,
    changes: Changes = None,
    also: Also = None,
    networks: Networks = None,
    rerun: Rerun = False,
) -> None:
    """Run one trial, or with --panel and --missing all that the store lacks. What is stored is not run again."""
    from hmmlib.experiments.specs import TrialSpec
    from hmmlib.experiments.store import PROJECT

    if missing != (panel is not None):
        raise typer.BadParameter("--missing and --panel left|right go together")
    if missing and any(value is not None for value in (n_states, n_memory)):
        raise typer.BadParameter("a panel has its own --n-states and --n-memory")
    if not missing and (trials or size or workers > 1):
        raise typer.BadParameter("--trials, --size and --workers are for --missing")
    how = dict(store=store or PROJECT, device=device, until=_until(max_minutes, device))
    how |= dict(rerun=rerun, also=_on_request(also), networks=networks)
    if missing:
        specs = _panel(preset, panel, trials, changes, size, seed)
        with going_on_later():
            _run_panel(specs, workers, how)
        return
    try:
        spec = TrialSpec(preset, n_states or 10, seed or 0, n_memory or 1, **_fields(changes))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with going_on_later():
        _run_one(spec, how)


def _on_request(names: list[str] | None) -> list[str]:
    """Names of measurements, or a usage error."""
    from hmmlib.experiments.beyond import ON_REQUEST

    for name in names or []:
        if name not in ("all", *ON_REQUEST):
            raise typer.BadParameter(f"--also must be all, or one of {', '.join(ON_REQUEST)}, not {name!r}")
    names = names or []
    every = [name for name in ON_REQUEST if name != "on_the_way"] if "all" in names else []
    return list(dict.fromkeys([*every, *(name for name in names if name != "all")]))


def _run_panel(specs, workers: int, how: dict) -> None:
    """What the store lacks, in this process or in several."""
    from hmmlib.experiments.local import describe, run_missing, run_side_by_side

    if workers > 1:
        _conclude(run_side_by_side(specs, workers, on_progress=OnceAMinute().of_trial, **how), specs)
        return
    with progress("starting") as update:

        def show(spec, phase, share):
            update(f"{describe(spec)}: {phase} {share:.0%}")

        _conclude(run_missing(specs, say=_line, on_progress=show, **how), specs)


def _run_one(spec, how: dict) -> None:
    """The result of a spec, run now or stored before: then also by what code."""
    from hmmlib.experiments.local import describe, run_missing, summary
    from hmmlib.experiments.provenance import has_changed, stored_by
    from hmmlib.experiments.store import is_stored, load_result, result_path

    with progress("starting") as update:

        def show(spec, phase, share):
            update(f"{describe(spec)}: {phase} {share:.0%}")

        outcome = run_missing([spec], say=_line, on_progress=show, **how)
    if not is_stored(spec, how["store"], how["rerun"], how["also"]):
        _conclude(outcome, [spec])
        raise typer.Exit(1)
    path = result_path(spec, how["store"])
    if not outcome.ran:
        result = load_result(path)
        again = "" if has_changed(result) is False else " (--rerun runs it again)"
        _line(f"{describe(spec)}: {summary(result)}")
        _line(f"not run now, but {stored_by(result)}{again}")
    console.print(str(path), style="dim", highlight=False, markup=False, soft_wrap=True)


@app.command()
def sweep(
    panel: Annotated[str, typer.Option(help="left or right: the points of that panel of Figure 3")],
    preset: Preset = "quick",
    trials: Trials = None,
    seed: FirstSeed = None,
    max_minutes: Minutes = None,
    address: Annotated[
        str | None, typer.Option(metavar="RAY", help="an existing Ray cluster; else one on this machine")
    ] = None,
    cpus: Annotated[float, number("cpus", float, 0.01, help="cores of a trial")] = 1.0,
    gpus: Annotated[
        float | None, number("gpus", float, 0, help="GPUs of a trial, such as 0.25; a whole one if there are any")
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
    from hmmlib.experiments.cluster import reachable
    from hmmlib.experiments.cluster import sweep as run
    from hmmlib.experiments.store import PROJECT

    specs = _panel(preset, panel, trials, changes, size, seed)
    how = dict(rerun=rerun, also=_on_request(also), networks=networks)
    until = _until(max_minutes, device, here=address is None)  # a cluster may have what this machine lacks
    try:
        if address is not None:
            reachable(address)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        with going_on_later(), progress("starting Ray") as update:
            outcome = run(specs, store or PROJECT, until, address, cpus, gpus, device, _line, update, **how)
            _conclude(outcome, specs)
    except ModuleNotFoundError as error:
        raise SystemExit(f"hmmlib: {error}; sweeps need the extra: pip install 'hmmlib[sweep]'") from None


@app.command()
def info(device: Device = "auto") -> None:
    """Versions, threads, device, commit: what a result depends on besides its spec."""
    from hmmlib.experiments.trials import environment

    for name, value in environment(_pick(device)).items():
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
