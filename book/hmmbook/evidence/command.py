"""The command `hmmbook ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmmbook.files import absolute, writable_folder
from hmmbook.terminal import errors, line, progress

# What takes torch is imported where it is needed, so that --help need not wait a second for it.
if TYPE_CHECKING:
    from hmmbook.evidence.ledger import Entry


def ledger(
    instances: Annotated[int, typer.Option(min=1, help="How many random models to draw for each statement.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The seed from which all models are drawn.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write. The default is ledger.json, in the folder mine if there is one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many processes to use. The default is one for each core.")
    ] = None,
) -> None:
    """Check every statement of the paper together with its control, and write the ledger.

    The exit code is 1 if a verdict differs from the recorded one.
    """
    from hmmbook.evidence.ledger import run_all
    from hmmbook.pages import write_ledger

    if out is None:
        out = Path("mine/ledger.json" if Path("mine").is_dir() else "ledger.json")
    out = absolute(out)
    if out.exists() and not out.is_file():
        raise typer.BadParameter(f"{out} is no regular file; name a file", param_hint="--out")
    writable_folder("the folder of --out", out.parent)

    with progress("ledger: 0%") as update:
        entries = run_all(instances, seed, workers, done=lambda share: update(f"ledger: {share:.0%}"))
    changed = [entry for entry in entries if not entry.as_recorded]
    if changed:
        out = out.with_suffix(".changed.json")
    write_ledger(out, entries, instances, seed)

    line(f"{instances} instances, seed {seed}")
    for row in in_columns(entries):
        line(row)
    for entry in entries:
        if entry.corrected:
            line(f"{entry.name}, {entry.grade}: {entry.corrected}")
    for entry in changed:
        line(
            f"{entry.name}: {entry.verdict}, as printed {entry.printed} (on record: {entry.on_record}), "
            f"{entry.nontrivial} of {entry.instances} instances are not trivial, "
            f"control failed {entry.control_fails} of {entry.control_instances} times",
            errors,
        )
    line(str(out))
    if changed:
        raise typer.Exit(1)


def in_columns(entries: list[Entry]) -> list[str]:
    """Write a heading, and a line for each statement. One that does not hold has its verdict in place of its grade."""
    rows = [["statement", "residual", "verdict", "nontrivial", "control"]]
    for entry in entries:
        row = [
            entry.name,
            f"{entry.residual:.1e}",
            entry.grade if entry.verdict == "holds" else entry.verdict,
            f"{entry.nontrivial}/{entry.instances}",
            f"{entry.control_fails}/{entry.control_instances}",
        ]
        rows.append(row)
    lines = [""] * len(rows)
    for column in zip(*rows, strict=True):
        width = max(map(len, column))
        for k, cell in enumerate(column):
            lines[k] += cell.ljust(width + 1)
    return [text.rstrip() for text in lines]
