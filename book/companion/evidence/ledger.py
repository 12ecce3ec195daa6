"""How the ledger is made: what checking each of the paper's numbered statements gave.

Each has a check that could fail, a negative control that must, the printed form where that is another, and for many
there is evidence without rounding. `run` repeats check and control of one statement and rules; `run_all` does so for
all of them on several processes.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from companion.evidence.finite_field.identities import IDENTITIES, confirm
from companion.evidence.random_models.residuals import Checked, Printed
from companion.evidence.statements import FAILS, HOLDS, STATEMENTS, Statement, find
from companion.evidence.zero_patterns.patterns import PATTERNS, decide
from hmmlib.validation import at_least, of_type

POINTS = 2
"""Random points of the finite field at each size."""

DRAWS = 12
"""How often an instance is drawn, at most, until it tells something: what is trivial is checked too."""


@dataclass(frozen=True)
class Tally:
    """What running a statement on some seeds gave; tallies of several sets of seeds add up to that of all.

    `telling` of the instances are not trivial: both labels occur, a prompt conditions on something, and so on.
    """

    instances: int = 0
    telling: int = 0
    residual: float = 0.0
    printed_failures: int = 0
    printed_smallest: Printed | None = None
    controls: int = 0
    control_fails: int = 0
    control_gap: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        smallest = [tally.printed_smallest for tally in (self, other) if tally.printed_smallest]
        return Tally(
            self.instances + other.instances,
            self.telling + other.telling,
            float(np.max([self.residual, other.residual])),  # NaN wins, and fails
            self.printed_failures + other.printed_failures,
            min(smallest, key=lambda record: record.size, default=None),
            self.controls + other.controls,
            self.control_fails + other.control_fails,
            float(np.max([self.control_gap, other.control_gap])),
        )


def _drawn(statement: Statement, seed: int) -> Checked:
    """The check on an instance, drawn anew while it is trivial: the largest of all residuals."""
    residuals = []
    for k in range(DRAWS):
        found = statement.check(int(np.random.SeedSequence([seed, k]).generate_state(1)[0]) if k else seed)
        residuals.append(found.residual)
        if found.telling:
            break
    return Checked(float(np.max(residuals)), found.telling)


def _tally(statement: Statement, seeds: list[int], control_seeds: list[int]) -> Tally:
    found = [_drawn(statement, seed) for seed in seeds]
    residual = np.max([one.residual for one in found], initial=0.0)
    records = [statement.printed(seed) for seed in seeds] if statement.printed else []
    failing = [record for record in records if not record.residual <= 1e3 * statement.tolerance]
    gaps = [statement.control(seed) for seed in control_seeds]
    return Tally(
        len(seeds),
        sum(bool(one.telling) for one in found),
        float(residual),
        len(failing),
        min(failing, key=lambda record: record.size, default=None),
        len(gaps),
        sum(bool(gap > 1e3 * statement.tolerance) for gap in gaps),
        float(np.max(gaps, initial=0.0)),
    )


@dataclass(frozen=True)
class Entry:
    """A row of the ledger: what running a statement gave.

    `verdict` rules on the form that `check` measures, `printed` on the form as printed where numbers can be compared, and
    `grade` is the ruling on record, of form and proof; `counterexample` is the residual of the printed form on its smallest
    instance, None where there is none, and `searched` the smallest failing instance of the random search. `telling` of the
    instances are not trivial. `control_fails` of `control_instances` broke the conclusion. `identity` and `patterns` hold
    the evidence without rounding, where there is some.
    """

    name: str
    claim: str
    source: dict
    instances: int
    telling: int
    residual: float
    tolerance: float
    verdict: str
    printed: str
    grade: str
    on_record: str
    corrected: str
    unneeded: str
    counterexample: float | None
    printed_failures: int
    searched: str
    broken: str
    control_instances: int
    control_fails: int
    control_gap: float
    least_share: float
    ours: bool = False
    identity: dict | None = field(default=None)
    patterns: dict | None = field(default=None)

    @property
    def as_recorded(self) -> bool:
        """Whether the form that should hold does, the printed one is as on record, and the control failed as it must.

        And at least half of the instances could tell.
        """
        exact = (self.identity or {"failures": 0}, self.patterns or {"failures": 0})
        return (
            self.verdict == HOLDS
            and 2 * self.telling >= self.instances
            and self.printed == self.on_record
            and self.control_fails >= self.least_share * self.control_instances
            and not any(evidence["failures"] for evidence in exact)
        )


def where(function: Callable) -> dict:
    """The file, from the repository's root, and the line at which a function begins."""
    path = Path(inspect.getsourcefile(function))
    packages = Path(__file__).resolve().parents[2]
    return {
        "path": f"book/{path.resolve().relative_to(packages).as_posix()}",
        "line": inspect.getsourcelines(function)[1],
    }


def _rule(statement: Statement, tally: Tally) -> Entry:
    verdict = HOLDS if tally.residual <= statement.tolerance else FAILS
    printed, size = verdict, None
    if statement.counterexample:
        size = statement.counterexample().residual
        failing = not size <= 1e3 * statement.tolerance
        printed = FAILS if failing or tally.printed_failures else HOLDS
    searched = tally.printed_smallest.instance if tally.printed_smallest else ""
    return Entry(
        name=statement.name,
        claim=statement.claim,
        source=where(statement.check),
        instances=tally.instances,
        telling=tally.telling,
        residual=tally.residual,
        tolerance=statement.tolerance,
        verdict=verdict,
        printed=printed,
        grade=statement.grade,
        on_record=FAILS if statement.counterexample else HOLDS,
        corrected=statement.corrected,
        unneeded=statement.unneeded,
        counterexample=size,
        printed_failures=tally.printed_failures,
        searched=searched,
        broken=statement.broken,
        control_instances=tally.controls,
        control_fails=tally.control_fails,
        control_gap=tally.control_gap,
        least_share=statement.least_share,
        ours=statement.ours,
    )


def draw_seeds(instances: int, seed: int) -> tuple[list[int], list[int]]:
    """Seeds of the instances, and of a tenth as many controls (at least 5)."""
    instances = at_least("instances", instances, 1)
    seeds = np.random.SeedSequence(at_least("seed", seed, 0)).generate_state(instances + max(5, instances // 10))
    return seeds[:instances].tolist(), seeds[instances:].tolist()


def run(statement: Statement, instances: int, seed: int) -> Entry:
    """Check a statement on `instances` random models and its control on a tenth as many (at least 5), in this process."""
    return _rule(of_type("statement", statement, Statement), _tally(statement, *draw_seeds(instances, seed)))


def _batch(names: list[str], seeds: list[int], control_seeds: list[int]) -> dict[str, Tally]:
    """All statements on some of the seeds: seed by seed, so that statements about one instance share it."""
    tallies = dict.fromkeys(names, Tally())
    for seed in seeds:
        for name in names:
            tallies[name] += _tally(find(name), [seed], [])
    for seed in control_seeds:
        for name in names:
            tallies[name] += _tally(find(name), [], [seed])
    return tallies


def _identity(name: str, seed: int) -> dict:
    return asdict(confirm(name, POINTS, seed))


def _pattern(name: str) -> dict:
    return asdict(decide(name))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def run_all(
    instances: int,
    seed: int,
    workers: int | None = None,
    exact: bool = True,
    done: Callable[[float], None] | None = None,
) -> list[Entry]:
    """The whole ledger: every statement on `instances` random models, and the evidence without rounding unless not `exact`.

    `workers` processes (as many as there are cores, if left out) share the work; `done` is told the share that is done.
    The result does not depend on how many there are.
    """
    seeds, control_seeds = draw_seeds(instances, seed)
    names = [statement.name for statement in STATEMENTS]
    workers = (os.cpu_count() or 1) if workers is None else at_least("workers", workers, 1)
    batches = max(1, min(4 * workers, instances // 10))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        jobs = [pool.submit(_batch, names, seeds[k::batches], control_seeds[k::batches]) for k in range(batches)]
        identities = {name: pool.submit(_identity, name, seed) for name in IDENTITIES} if exact else {}
        patterns = {name: pool.submit(_pattern, name) for name in PATTERNS} if exact else {}
        everything = [*jobs, *identities.values(), *patterns.values()]
        for k, job in enumerate(everything, 1):
            job.result()
            if done:
                done(k / len(everything))
    tallies = {name: sum((job.result()[name] for job in jobs), Tally()) for name in names}
    entries = []
    for statement in STATEMENTS:
        entry = _rule(statement, tallies[statement.name])
        without_rounding = {"identity": identities.get(statement.name), "patterns": patterns.get(statement.name)}
        results = {key: job.result() for key, job in without_rounding.items() if job}
        entries.append(replace(entry, **results))
    return entries


__all__ = [
    "FAILS", "HOLDS", "STATEMENTS", "Entry", "Statement", "Tally", "draw_seeds", "find", "run", "run_all", "where",
]  # fmt: skip
