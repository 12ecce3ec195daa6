"""What the book runs, from the command line: python -m companion ledger."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from hmmlib.terminal import console, errors, progress

if TYPE_CHECKING:
    from companion.evidence.ledger import Entry

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


def as_lines(entries: list[Entry]) -> list[str]:
    """A heading and a line for each statement, in columns; one that does not hold fails, whatever its ruling."""
    rows = [("statement", "residual", "verdict", "nontrivial", "control", "exact", "patterns")]
    for entry in entries:
        identity, patterns = entry.identity, entry.patterns
        rows.append(
            (
                entry.name,
                f"{entry.residual:.1e}",
                entry.grade if entry.verdict == "holds" else entry.verdict,
                f"{entry.nontrivial}/{entry.instances}",
                f"{entry.control_fails}/{entry.control_instances}",
                f"{identity['failures']}/{identity['points'] * len(identity['sizes'])}" if identity else "",
                f"{patterns['failures']}/{patterns['cases']:,}" if patterns else "",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


@app.callback()
def commands() -> None:
    """Commands have names, also where there is only one."""


@app.command()
def ledger(
    instances: Annotated[int, typer.Option(min=1, help="random models for each statement")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="seed of all of them")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="the file to write; if left out ledger.json, in the folder mine where there is one"),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; as many as cores if left out")] = None,
) -> None:
    """Check every statement and its negative control, and write the ledger. Exit 1 if a verdict is not as recorded."""
    from companion.evidence.ledger import run_all
    from companion.pages import write_ledger

    out = out or Path("mine" if Path("mine").is_dir() else "", "ledger.json")
    if out.exists() and not out.is_file():
        what = "a folder" if out.is_dir() else "no regular file"
        raise typer.BadParameter(f"{out} is {what}; name a file", param_hint="--out")
    out.parent.mkdir(parents=True, exist_ok=True)
    TemporaryFile(dir=out.parent).close()  # what cannot be written is known before the work, not after it
    with progress("ledger: 0%") as update:
        entries = run_all(instances, seed, workers, done=lambda share: update(f"ledger: {share:.0%}"))
    wrong = [entry for entry in entries if not entry.as_recorded]
    written = out.with_suffix(".changed.json") if wrong else out
    write_ledger(written, entries, instances, seed)
    console.print(f"{instances} instances, seed {seed}")
    for line in as_lines(entries):
        console.print(line, highlight=False, markup=False, soft_wrap=True)  # whole, however narrow the terminal is
    console.print("exact, patterns: failures among random rational points, and among all supports of a size")
    for entry in entries:
        if entry.corrected:
            console.print(f"{entry.name}, {entry.grade}: {entry.corrected}")
    for entry in wrong:
        errors.print(
            f"{entry.name}: {entry.verdict}, as printed {entry.printed} (on record: {entry.on_record}), "
            f"{entry.nontrivial} of {entry.instances} instances are not trivial, control failed "
            f"{entry.control_fails} of {entry.control_instances} times",
            style="red",
            markup=False,
        )
    console.print(str(written), style="dim", highlight=False, markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
