"""What the commands can be given, and where they write: options as types, each with its help and its check."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console, errors = Console(), Console(stderr=True)
MINUTE = 60.0
"""Seconds between two lines that say where the work is."""


@dataclass
class OnceAMinute:
    """Says on stderr where the work is, once a minute: for the log of a job, and for processes that share a terminal.

    `said` is when it last did so, as time.monotonic() gives it. It can be sent to other processes.
    """

    said: float = field(default_factory=time.monotonic)

    def __call__(self, text: str) -> None:
        if time.monotonic() - self.said >= MINUTE:
            self.said = time.monotonic()
            errors.print(text, highlight=False, markup=False, soft_wrap=True)

    def of_trial(self, spec, phase: str, share: float) -> None:
        """The same for a trial in a phase of its work, of which this share, 0 to 1, is done."""
        from hmmlib.experiments.local import describe

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
def going_on_later() -> Iterator[None]:
    """Ctrl-C ends what is inside with exit code 130, and words on what to do then in place of a traceback.

    A warning of this library is one line.
    """
    # here, as torch takes a second, which --help need not wait for
    from hmmlib.backend import heed_one_interrupt, warnings_in_one_line

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background of a shell it is ignored
        heed_one_interrupt()
    try:
        with warnings_in_one_line():
            yield
    except KeyboardInterrupt as interrupt:
        told = [*getattr(interrupt, "__notes__", []), "interrupted; what is finished is kept: run it again to go on"]
        for line in told:
            errors.print(f"hmmlib: {line}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None


def number(name: str, of: type, least: float | None = None, help: str = ""):
    """An option that takes an integer, or a number; its usage error has the value found and what is accepted."""
    wanted = f"{'an integer' if of is int else 'a number'}{'' if least is None else f' of {least} or more'}"

    def parse(text: str):
        try:
            value = of(text)
            fits = least is None or value >= least
        except ValueError:
            fits = False
        if not fits:
            raise typer.BadParameter(f"{name} must be {wanted}, not {text!r}")
        return value

    return typer.Option(parser=parse, metavar="INTEGER" if of is int else "FLOAT", help=help)


def folder(text: str) -> Path:
    """The value of an option that names a folder; an unset variable of a shell leaves it empty."""
    if not text:
        raise typer.BadParameter("it must name a folder, not ''")
    return Path(text)


Preset = Annotated[str, typer.Option(help="size of everything: smoke, quick, laptop, gpu, paper or released-code")]
Panel = Annotated[str | None, typer.Option(help="left or right: the points of that panel of Figure 3")]
Trials = Annotated[
    int | None, number("trials", int, 1, help="trials of each point; as many as in the paper if left out")
]
Sizes = Annotated[
    list[int] | None,
    number("size", int, 1, help="with --panel: only its points of this |M||H|; may stand more than once"),
]
FirstSeed = Annotated[int | None, number("seed", int, 0, help="seed of the trial, of a panel its first; 0 if left out")]
Minutes = Annotated[
    float | None, number("max-minutes", float, help="stop after so many minutes; everything finished is kept")
]
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
