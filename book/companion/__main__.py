"""What the book runs, from the command line: python -m companion ledger."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from hmmlib.terminal import errors, line, progress

OUT = "the file to write; if left out ledger.json, in the folder mine where there is one"
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


def as_lines(entries: list) -> list[str]:
    """A heading and a line for each statement, in columns; what does not hold fails, whatever its ruling."""
    rows = [("statement", "residual", "verdict", "nontrivial", "control", "exact", "patterns")]
    for entry in entries:
        verdict = entry.grade if entry.verdict == "holds" else entry.verdict
        counts = f"{entry.nontrivial}/{entry.instances}", f"{entry.control_fails}/{entry.control_instances}"
        found, patterns = entry.identity, entry.patterns
        exact = f"{found['failures']}/{found['points'] * len(found['sizes'])}" if found else ""
        supports = f"{patterns['failures']}/{patterns['cases']:,}" if patterns else ""
        rows.append((entry.name, f"{entry.residual:.1e}", verdict, *counts, exact, supports))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


@app.callback()
def commands() -> None:
    """Commands have names, also where there is only one."""


@app.command()
def ledger(
    instances: Annotated[int, typer.Option(min=1, help="random models for each statement")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="seed of all of them")] = 0,
    out: Annotated[Path | None, typer.Option(help=OUT)] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; as many as cores if left out")] = None,
) -> None:
    """Check every statement and its control, and write the ledger. Exit 1 if a verdict is not the recorded one."""
    from companion.evidence.ledger import run_all
    from companion.pages import write_ledger

    out = out or Path("mine" if Path("mine").is_dir() else "", "ledger.json")
    if out.exists() and not out.is_file():
        raise typer.BadParameter(f"{out} is no regular file; name a file", param_hint="--out")
    out.parent.mkdir(parents=True, exist_ok=True)
    TemporaryFile(dir=out.parent).close()  # what cannot be written is known before the work, not after it
    with progress("ledger: 0%") as update:
        entries = run_all(instances, seed, workers, done=lambda share: update(f"ledger: {share:.0%}"))
    wrong = [entry for entry in entries if not entry.as_recorded]
    written = out.with_suffix(".changed.json") if wrong else out
    write_ledger(written, entries, instances, seed)
    corrected = [f"{entry.name}, {entry.grade}: {entry.corrected}" for entry in entries if entry.corrected]
    legend = "exact, patterns: failures among random rational points, and among all supports of a size"
    for text in (f"{instances} instances, seed {seed}", *as_lines(entries), legend, *corrected):
        line(text)
    for entry in wrong:
        found = f"{entry.name}: {entry.verdict}, as printed {entry.printed} (on record: {entry.on_record})"
        counts = f"{entry.nontrivial} of {entry.instances} instances are not trivial"
        failed = f"control failed {entry.control_fails} of {entry.control_instances} times"
        line(f"{found}, {counts}, {failed}", errors)
    line(str(written))
    if wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
