"""How the ledger is made: what checking each of the paper's numbered statements gave.

Each statement has a check that could fail and a negative control that must fail. Some have a printed form that is
another. `run` repeats the check and the control of one statement and rules. `run_all` does so for all of them on
several processes.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import bdtr

from hmmbook.cores import usable_cores
from hmmbook.evidence.random_models.instances import Printed
from hmmbook.evidence.statement import FAILS, HOLDS, Statement
from hmmbook.evidence.statements import STATEMENTS, find

__all__ = ["FAILS", "HOLDS", "STATEMENTS", "Entry", "Statement", "draw_seeds", "find", "run", "run_all"]

DRAWS = 12
"""How often an instance is drawn, at most, until it is not trivial. The trivial ones are checked too."""
TOLERANCE = 1e-10
"""The largest residual that passes."""
CLEAR = 1e3 * TOLERANCE
"""A form fails clearly where its residual is larger."""
UNLIKELY = 1e-3
"""A share is too low where so few successes would come up with a lower probability than this."""


class Instance(NamedTuple):
    """What a check gave from one seed."""

    residual: float  # the largest of all draws
    nontrivial: bool  # whether the last draw is not trivial
    printed: Printed | None  # what comparing the printed form gave


def check_instance(statement: Statement, seed: int) -> Instance:
    """Check a statement on an instance, which is drawn anew while it is trivial, and compare the printed form."""
    residuals = []
    for draw in range(DRAWS):
        draw_seed = seed
        if draw > 0:
            draw_seed = int(np.random.SeedSequence([seed, draw]).generate_state(1)[0])
        checked = statement.check(draw_seed)
        residuals.append(checked.residual)
        if checked.nontrivial:
            break
    printed = None
    if statement.printed:
        printed = statement.printed(seed)
    largest = float(np.max(residuals))  # NaN wins, and fails
    return Instance(largest, checked.nontrivial, printed)


@dataclass(frozen=True)
class Entry:
    """A row of the ledger: the fields of a `Statement`, and what running it gave."""

    name: str
    claim: str
    page: str
    label: str
    source: dict  # path and line of the check
    instances: int  # how many random models were checked
    nontrivial: int  # on how many of them the check could have failed, for example because both labels occur
    residual: float  # the largest
    tolerance: float
    verdict: str  # on the form that the check measures
    printed: str  # the verdict on the form as printed, where the two can be compared in numbers
    grade: str
    on_record: str  # what `printed` should be
    corrected: str
    unneeded: str
    counterexample: float | None  # the residual of the printed form on a small instance
    printed_failures: int  # how many random models break the printed form
    broken: str
    control_instances: int
    control_fails: int  # how many of them broke the conclusion
    control_gap: float  # by how much at most
    least_share: float
    ours: bool

    @property
    def as_recorded(self) -> bool:
        """Whether the checked form holds, the printed one is as on record, and the control failed as it must.

        No fewer than half of the instances may be nontrivial. A share is judged as far as so many draws can tell.
        """
        if self.verdict != HOLDS or self.printed != self.on_record:
            return False
        enough_nontrivial = bdtr(self.nontrivial, self.instances, 0.5) > UNLIKELY
        control_failed = bdtr(self.control_fails, self.control_instances, self.least_share) > UNLIKELY
        return bool(enough_nontrivial and control_failed)


def rule(statement: Statement, instances: Sequence[Instance], gaps: Sequence[float]) -> Entry:
    """Make the entry of a statement from its instances, and from the gaps that its control opened."""
    residuals = []
    nontrivial = 0
    printed_failures = 0
    for instance in instances:
        residuals.append(instance.residual)
        nontrivial += instance.nontrivial
        if instance.printed and not instance.printed.residual <= CLEAR:
            printed_failures += 1
    residual = float(np.max(residuals))  # NaN wins, and fails
    verdict = HOLDS if residual <= TOLERANCE else FAILS
    printed = verdict
    counterexample = None
    if statement.counterexample:
        counterexample = statement.counterexample().residual
        printed = HOLDS if counterexample <= CLEAR and not printed_failures else FAILS
    return Entry(
        name=statement.name,
        claim=statement.claim,
        page=statement.page,
        label=statement.label,
        source=source_of(statement),
        instances=len(instances),
        nontrivial=nontrivial,
        residual=residual,
        tolerance=TOLERANCE,
        verdict=verdict,
        printed=printed,
        grade=statement.grade,
        on_record=FAILS if statement.counterexample else HOLDS,
        corrected=statement.corrected,
        unneeded=statement.unneeded,
        counterexample=counterexample,
        printed_failures=printed_failures,
        broken=statement.broken,
        control_instances=len(gaps),
        control_fails=int(np.sum(np.array(gaps) > CLEAR)),
        control_gap=float(np.max(gaps)),
        least_share=statement.least_share,
        ours=statement.ours,
    )


def source_of(statement: Statement) -> dict:
    """Return the file, from the project's root, and the line where a statement is checked."""
    book = Path(__file__).parents[2]
    file = Path(inspect.getsourcefile(statement.check))
    path = Path("book") / os.path.relpath(file, book)
    return {"path": path.as_posix(), "line": inspect.getsourcelines(statement.check)[1]}


def draw_seeds(instances: int, seed: int) -> tuple[list[int], list[int]]:
    """Return seeds of the instances, and of a tenth as many controls, but of 5 at least.

    Args:
        instances: The number of instances.
        seed: Where their seeds are drawn from.
    """
    controls = max(5, instances // 10)
    seeds = np.random.SeedSequence(seed).generate_state(instances + controls)
    return seeds[:instances].tolist(), seeds[instances:].tolist()


def run(statement: Statement, instances: int, seed: int) -> Entry:
    """Check a statement on random models, and its control on a tenth as many, in this process.

    Args:
        statement: A statement, as `find` gives it.
        instances: The number of random models.
        seed: Where their seeds are drawn from.

    Returns:
        The row of the ledger.
    """
    seeds, control_seeds = draw_seeds(instances, seed)
    checked = [check_instance(statement, instance_seed) for instance_seed in seeds]
    gaps = [statement.control(control_seed) for control_seed in control_seeds]
    return rule(statement, checked, gaps)


def check_all(seed: int) -> list[Instance]:
    """Check all statements on one seed. Those about the same kind of instance share it."""
    return [check_instance(statement, seed) for statement in STATEMENTS]


def control_all(seed: int) -> list[float]:
    """Run all controls on one seed."""
    return [statement.control(seed) for statement in STATEMENTS]


def run_all(
    instances: int,
    seed: int,
    workers: int | None = None,
    done: Callable[[float], None] = lambda share: None,
) -> list[Entry]:
    """Make the whole ledger.

    Args:
        instances: The number of random models for each statement.
        seed: Where their seeds are drawn from.
        workers: How many processes share the work. If left out, there is one for each core that this process may use.
        done: Is called with the share of the work that is done.

    Returns:
        A row for each statement, in the order of STATEMENTS.
    """
    seeds, control_seeds = draw_seeds(instances, seed)
    with ProcessPoolExecutor(workers or usable_cores(), get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        checks = [pool.submit(check_all, instance_seed) for instance_seed in seeds]
        controls = [pool.submit(control_all, control_seed) for control_seed in control_seeds]
        jobs = [*checks, *controls]
        for finished, job in enumerate(jobs, 1):
            job.result()
            done(finished / len(jobs))

    instances_by_statement = zip(*[job.result() for job in checks], strict=True)
    gaps_by_statement = zip(*[job.result() for job in controls], strict=True)
    entries = []
    for statement, checked, gaps in zip(STATEMENTS, instances_by_statement, gaps_by_statement, strict=True):
        entries.append(rule(statement, checked, gaps))
    return entries
