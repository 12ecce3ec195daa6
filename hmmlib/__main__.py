"""The command line: python -m hmmlib ledger | trial | info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
console = Console()


@app.command()
def ledger(
    instances: Annotated[int, typer.Option(min=1, help="random models for each statement")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="seed of all of them")] = 0,
    out: Annotated[Path, typer.Option(help="where to write the ledger")] = Path("build/ledger.json"),
    workers: Annotated[int | None, typer.Option(min=1, help="processes; as many as cores if left out")] = None,
) -> None:
    """Check every statement and its negative control, and write the ledger. Exit 1 if a verdict is not the recorded one."""
    from hmmlib.statements import run_all, write_ledger

    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder; name a file", param_hint="--out")
    with console.status("0%") as status:
        entries = run_all(instances, seed, workers, done=lambda share: status.update(f"{share:.0%}"))
    table = Table(title=f"{instances} instances, seed {seed}", box=None)
    for name in ("statement", "residual", "printed", "corrected", "control", "field", "patterns"):
        table.add_column(name, no_wrap=True)
    for entry in entries:
        identity, patterns = entry.identity, entry.patterns
        table.add_row(
            entry.name,
            f"{entry.residual:.1e}",
            entry.printed,
            entry.verdict,
            f"{entry.control_fails}/{entry.control_instances}",
            f"{identity['failures']}/{identity['points'] * len(identity['sizes'])}" if identity else "",
            f"{patterns['failures']}/{patterns['cases']:,}" if patterns else "",
        )
    console.print(table)
    console.print(
        "field, all patterns: failures among random points of a finite field, and among all supports of a size"
    )
    for entry in entries:
        if entry.corrected:
            console.print(f"{entry.name} holds in this form: {entry.corrected}")
    wrong = [entry for entry in entries if not entry.as_recorded]
    for entry in wrong:
        console.print(
            f"{entry.name}: {entry.verdict}, as printed {entry.printed} (on record: {entry.on_record}), control failed "
            f"{entry.control_fails} of {entry.control_instances} times",
            style="red",
        )
    write_ledger(out, entries, instances, seed)
    if wrong:
        out.rename(out.with_suffix(".changed.json"))
        raise typer.Exit(1)


@app.command()
def trial(
    n_states: Annotated[int, typer.Option(min=1, help="hidden states |H|")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="seed of the trial")] = 0,
    preset: Annotated[str, typer.Option(help="size of everything else")] = "quick",
    store: Annotated[Path | None, typer.Option(help="result store; the project's own if left out")] = None,
) -> None:
    """Run one head-versus-prompt trial and store its result; a stored result is shown, not run again."""
    from hmmlib.trials import STORE, TrialSpec, load_result, result_path, run_trial, save_result

    try:
        spec = TrialSpec(preset=preset, n_states=n_states, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    path = result_path(spec, store or STORE)
    if path.exists():
        result = load_result(path)
    else:
        with console.status(f"{spec.steps} pretraining steps") as status:
            result = run_trial(
                spec, lambda step, loss: status.update(f"step {step + 1} of {spec.steps}: loss {loss:.3f}")
            )
        save_result(result, store or STORE)
    console.print(
        f"|H| = {n_states}, seed {seed}: head {result.head_accuracy:.1%}, prompt {result.prompt_accuracy:.1%}, "
        f"head on exact G {result.exact_head_accuracy:.1%}; excess loss {result.excess_loss:.3f} nats; "
        f"{sum(result.seconds.values()):.0f} s"
    )
    console.print(str(path), style="dim")


@app.command()
def info() -> None:
    """Versions, threads, commit: what a result depends on besides its spec."""
    from hmmlib.trials import environment

    for name, value in environment().items():
        console.print(f"{name:14}{value}")


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and exit code 1."""
    try:
        app()
    except (ValueError, OSError, FloatingPointError) as error:
        raise SystemExit(f"hmmlib: {error}") from None


if __name__ == "__main__":
    main()
