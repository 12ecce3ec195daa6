"""What the commands can be given, and where they write: options as types, each with its help and its range."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from hmmlib.experiments.presets import PANELS, PRESETS

console, errors = Console(), Console(stderr=True)
MINUTE = 60.0
"""Seconds between two lines that say where the work is."""


def line(text: str, to: Console = console) -> None:
    """Write a line as it is, however long."""
    to.print(text, highlight=False, markup=False, soft_wrap=True)


@dataclass
class OnceAMinute:
    """Writes to stderr where the work is, once a minute: for the log of a job, and for processes that share a terminal.

    `last` is when it last did so, as time.monotonic() gives it. It can be sent to other processes.
    """

    last: float = field(default_factory=time.monotonic)

    def __call__(self, text: str) -> None:
        if time.monotonic() - self.last >= MINUTE:
            self.last = time.monotonic()
            line(text, errors)

    def of_trial(self, spec, phase: str, share: float) -> None:
        """The same for a trial in a phase of its work, of which this share, 0 to 1, is done."""
        from hmmlib.experiments.sweeps import describe

        self(f"{describe(spec)}: {phase} {share:.0%}")


@contextmanager
def progress(begin: str) -> Iterator[Callable[[str], None]]:
    """A function to be called with words on where the work is: on a terminal they take each other's place."""
    if not console.is_terminal:
        yield OnceAMinute()
        return
    with console.status(begin) as status:
        yield status.update


@contextmanager
def usage_errors() -> Iterator[None]:
    """What an option cannot be is an error of usage: exit code 2."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def exit_code_130_if_interrupted() -> Iterator[None]:
    """Ctrl-C ends what is inside after its step, with exit code 130 and words on what to do then in place of a traceback.

    A warning of this library is one line.
    """
    from hmmlib import backend  # here, as torch takes a second, which --help need not wait for

    try:
        with backend.interrupts_between_steps(), backend.warnings_in_one_line():
            yield
    except KeyboardInterrupt as interrupt:
        for note in (
            *getattr(interrupt, "__notes__", []),
            "interrupted; what is finished is kept: run it again to go on",
        ):
            line(f"hmmlib: {note}", errors)
        raise typer.Exit(130) from None


def folder(text: str) -> Path:
    """The value of an option that names a folder; an unset variable of a shell leaves it empty."""
    if not text:
        raise typer.BadParameter("it must name a folder, not ''")
    return Path(text)


Preset = Annotated[Literal[tuple(PRESETS)], typer.Option(help="size of everything")]
Panel = Annotated[Literal[tuple(PANELS)] | None, typer.Option(help="the points of that panel of Figure 3")]
Trials = Annotated[int | None, typer.Option(min=1, help="trials of each point; as many as in the paper if left out")]
Sizes = Annotated[
    list[int] | None,
    typer.Option("--size", min=1, help="with --panel: only its points of this |M||H|; may stand more than once"),
]
Seed = Annotated[int, typer.Option(min=0, help="seed of the trial, of a panel its first")]
Minutes = Annotated[float | None, typer.Option(min=0, help="stop after so many minutes; everything finished is kept")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps")]
Store = Annotated[
    Path | None,
    typer.Option(
        parser=folder,
        metavar="PATH",
        help="result store; if left out mine/results, and what it lacks is looked for in results",
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option(
        help="a measurement on request, such as probes; `all` for every one but on_the_way, which takes longest"
    ),
]
Networks = Annotated[
    Path | None,
    typer.Option(parser=folder, metavar="PATH", help="keep pretrained networks here, for other tasks on them"),
]
Rerun = Annotated[
    bool, typer.Option("--rerun", help="run again what is stored, where the library may have changed since")
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="another field of the spec, such as steps=1100")
]
