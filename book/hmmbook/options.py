"""The options that several commands of `hmmbook` share, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hmmbook.experiments.presets import PANELS, PRESETS


def folder(text: str) -> Path:
    """Read an option that names a folder, and refuse an empty one, which a shell's unset variable leaves."""
    if not text:
        raise typer.BadParameter("it must name a folder, not ''")
    return Path(text)


Preset = Annotated[Literal[tuple(PRESETS)], typer.Option(help="The sizes of network, texts and task.")]
Panel = Annotated[Literal[tuple(PANELS)] | None, typer.Option(help="The panel of Figure 3 whose points are run.")]
Trials = Annotated[
    int | None,
    typer.Option(
        min=1, help="How many trials each point gets. The default is 1, and for a panel as many as in the paper."
    ),
]
Sizes = Annotated[
    list[int] | None,
    typer.Option(
        "--size", min=1, help="Run only the points of a panel with this size |M||H|. You can give it more than once."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The seed. Several trials of one point count up from it.")]
Minutes = Annotated[
    float | None, typer.Option(min=0, help="Stop after this many minutes. Everything that is finished is kept.")
]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, cuda:N or mps.")]
Store = Annotated[
    Path | None,
    typer.Option(
        parser=folder,
        metavar="PATH",
        help="The folder of results. The default writes to mine/results and also reads from results.",
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option(help="Make a further measurement, such as probes. `all` makes each that suits every chain."),
]
Networks = Annotated[
    Path | None, typer.Option(parser=folder, metavar="PATH", help="A folder in which pretrained networks are kept.")
]
Rerun = Annotated[bool, typer.Option("--rerun", help="Run stored trials again.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set another field of the spec, for example steps=1100, or try several values, as in steps=400,1100.",
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Run only the I-th of N parts of the work, for example in the I-th job of a job array."
    ),
]
