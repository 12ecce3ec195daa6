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
from dataclasses import asdict, dataclass, fields, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from scipy.special import bdtr

from companion.evidence.exact.identities import IDENTITIES, confirm
from companion.evidence.random_models.instances import Printed
from companion.evidence.statements import FAILS, HOLDS, STATEMENTS, Statement, find
from companion.evidence.zero_patterns.patterns import PATTERNS, decide

__all__ = ["FAILS", "HOLDS", "STATEMENTS", "Entry", "Statement", "Tally", "draw_seeds", "find", "run", "run_all"]

POINTS = 2
"""Random rational points at each size."""

DRAWS = 12
"""How often an instance is drawn, at most, until it is not trivial: what is trivial is checked too."""

TOO_FEW = 1e-3
"""A share is below the recorded one where as few or fewer would come up with a lower probability than this."""


@dataclass(frozen=True)
class Tally:
    """What running a statement on some seeds gave; tallies of several sets of seeds add up to that of all.

    `nontrivial` of the instances are not trivial: both labels occur, a prompt conditions on something, and so on.
    `printed_failures` of them break the printed form, and `smallest` is the smallest of these. `control_fails` of
    `control_instances` broke the conclusion, by up to `control_gap`.
    """

    instances: int = 0
    nontrivial: int = 0
    residual: float = 0.0
    printed_failures: int = 0
    smallest: Printed | None = None
    control_instances: int = 0
    control_fails: int = 0
    control_gap: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        pairs = {one.name: (getattr(self, one.name), getattr(other, one.name)) for one in fields(self)}
        records = [record for record in pairs.pop("smallest") if record]
        largest = {name: float(np.max(pairs.pop(name))) for name in ("residual", "control_gap")}  # NaN wins, and fails
        smallest = min(records, key=lambda record: record.size, default=None)
        return Tally(**{name: sum(pair) for name, pair in pairs.items()}, **largest, smallest=smallest)


def _checked(statement: Statement, seed: int) -> Tally:
    """The check on an instance, drawn anew while it is trivial: the largest of all residuals. And the printed form."""
    residuals = []
    for k in range(DRAWS):
        found = statement.check(int(np.random.SeedSequence([seed, k]).generate_state(1)[0]) if k else seed)
        residuals.append(found.residual)
        if found.nontrivial:
            break
    tally = Tally(1, int(found.nontrivial), float(np.max(residuals)))
    record = statement.printed(seed) if statement.printed else None
    if record and not record.residual <= 1e3 * statement.tolerance:
        tally = replace(tally, printed_failures=1, smallest=record)
    return tally


def _controlled(statement: Statement, seed: int) -> Tally:
    gap = statement.control(seed)
    return Tally(control_instances=1, control_fails=int(gap > 1e3 * statement.tolerance), control_gap=gap)


@dataclass(frozen=True)
class Entry:
    """A row of the ledger: a statement and what running it gave, both by the names that `Statement` and `Tally` have.

    `verdict` rules on the form that `check` measures, `printed` on the form as printed where numbers can be compared,
    and `on_record` is what the latter should be. `counterexample` is the residual of the printed form on its smallest
    instance, None where there is none, and `searched` the smallest failing instance of the random search. `identity`
    and `patterns` hold the evidence without rounding, where there is some.
    """

    name: str
    claim: str
    page: str
    label: str
    source: dict
    instances: int
    nontrivial: int
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
    ours: bool
    identity: dict | None = None
    patterns: dict | None = None

    @property
    def as_recorded(self) -> bool:
        """Whether the form that should hold does, the printed one is as on record, and the control failed as it must.

        And no fewer than half of the instances are not trivial. A share is judged as far as so many draws can tell.
        """
        exact = [evidence["failures"] for evidence in (self.identity, self.patterns) if evidence]
        return (
            self.verdict == HOLDS
            and self.printed == self.on_record
            and bdtr(self.nontrivial, self.instances, 0.5) > TOO_FEW
            and bdtr(self.control_fails, self.control_instances, self.least_share) > TOO_FEW
            and not any(exact)
        )


def _rule(statement: Statement, tally: Tally) -> Entry:
    verdict = HOLDS if tally.residual <= statement.tolerance else FAILS
    printed, size = verdict, None
    if statement.counterexample:
        size = statement.counterexample().residual
        failing = not size <= 1e3 * statement.tolerance
        printed = FAILS if failing or tally.printed_failures else HOLDS
    path = os.path.relpath(inspect.getsourcefile(statement.check), Path(__file__).parents[2])
    ruled = dict(
        source={"path": f"book/{Path(path).as_posix()}", "line": inspect.getsourcelines(statement.check)[1]},
        verdict=verdict,
        printed=printed,
        on_record=FAILS if statement.counterexample else HOLDS,
        counterexample=size,
        searched=tally.smallest.instance if tally.smallest else "",
    )
    names = [one.name for one in fields(Entry)]
    taken = {name: getattr(part, name) for part in (statement, tally) for name in names if hasattr(part, name)}
    return Entry(**taken | ruled)


def draw_seeds(instances: int, seed: int) -> tuple[list[int], list[int]]:
    """Seeds of the instances, and of a tenth as many controls (at least 5)."""
    seeds = np.random.SeedSequence(seed).generate_state(instances + max(5, instances // 10))
    return seeds[:instances].tolist(), seeds[instances:].tolist()


def run(statement: Statement, instances: int, seed: int) -> Entry:
    """Check a statement on `instances` random models and its control on a tenth as many (at least 5), in this process."""
    seeds, control_seeds = draw_seeds(instances, seed)
    tallies = [*(_checked(statement, one) for one in seeds), *(_controlled(statement, one) for one in control_seeds)]
    return _rule(statement, sum(tallies, Tally()))


def _batch(seeds: list[int], control_seeds: list[int]) -> dict[str, Tally]:
    """All statements on some of the seeds: seed by seed, so that statements about one instance share it."""
    tallies = {statement.name: Tally() for statement in STATEMENTS}
    for tally, some in ((_checked, seeds), (_controlled, control_seeds)):
        for seed in some:
            for statement in STATEMENTS:
                tallies[statement.name] += tally(statement, seed)
    return tallies


def run_all(
    instances: int,
    seed: int,
    workers: int | None = None,
    exact: bool = True,
    done: Callable[[float], None] = lambda share: None,
) -> list[Entry]:
    """The whole ledger: every statement on `instances` random models, and the evidence without rounding unless not `exact`.

    `workers` processes (as many as there are cores, if left out) share the work; `done` is given the share that is
    done. The result does not depend on how many there are.
    """
    seeds, control_seeds = draw_seeds(instances, seed)
    workers = workers or os.cpu_count() or 1
    batches = max(1, min(4 * workers, instances // 10))
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        jobs = [pool.submit(_batch, seeds[k::batches], control_seeds[k::batches]) for k in range(batches)]
        identities = {name: pool.submit(confirm, name, POINTS, seed) for name in IDENTITIES if exact}
        patterns = {name: pool.submit(decide, name) for name in PATTERNS if exact}
        everything = [*jobs, *identities.values(), *patterns.values()]
        for k, job in enumerate(everything, 1):
            job.result()
            done(k / len(everything))
    entries = []
    for statement in STATEMENTS:
        entry = _rule(statement, sum((job.result()[statement.name] for job in jobs), Tally()))
        without_rounding = {"identity": identities.get(statement.name), "patterns": patterns.get(statement.name)}
        entries.append(replace(entry, **{key: asdict(job.result()) for key, job in without_rounding.items() if job}))
    return entries
