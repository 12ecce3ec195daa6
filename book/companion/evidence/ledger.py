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
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import bdtr

from companion.evidence.exact.identities import IDENTITIES, confirm
from companion.evidence.random_models.instances import Printed
from companion.evidence.statements import FAILS, HOLDS, STATEMENTS, Statement, find
from companion.evidence.zero_patterns import PATTERNS, decide

__all__ = ["FAILS", "HOLDS", "STATEMENTS", "Entry", "Statement", "draw_seeds", "find", "run", "run_all"]

POINTS = 2
"""Random rational points at each size."""

DRAWS = 12
"""How often an instance is drawn, at most, until it is not trivial: what is trivial is checked too."""

TOO_FEW = 1e-3
"""A share is below the recorded one where as few or fewer would come up with a lower probability than this."""


class Found(NamedTuple):
    """The largest residual of all draws from a seed, whether the last is not trivial, and the printed form's record."""

    residual: float
    nontrivial: bool
    printed: Printed | None


def _check(statement: Statement, seed: int) -> Found:
    """The check on an instance, drawn anew while it is trivial: the largest of all residuals. And the printed form."""
    residuals = []
    for k in range(DRAWS):
        found = statement.check(int(np.random.SeedSequence([seed, k]).generate_state(1)[0]) if k else seed)
        residuals.append(found.residual)
        if found.nontrivial:
            break
    printed = statement.printed(seed) if statement.printed else None
    return Found(float(np.max(residuals)), found.nontrivial, printed)  # NaN wins, and fails


@dataclass(frozen=True)
class Entry:
    """A row of the ledger: a statement, with the names of `Statement`, and what running it gave.

    `nontrivial` of the `instances` are not trivial: both labels occur, a prompt conditions on something, and so on.
    `verdict` rules on the form that `check` measures, `printed` on the form as printed where numbers can be compared,
    and `on_record` is what the latter should be. `counterexample` is the residual of the printed form on its smallest
    instance, None where there is none; `printed_failures` random instances break it, of which `searched` is the
    smallest. `control_fails` of `control_instances` broke the conclusion, by up to `control_gap`. `identity` and
    `patterns` hold the evidence without rounding, where there is some.
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
        likely = min(
            bdtr(self.nontrivial, self.instances, 0.5),
            bdtr(self.control_fails, self.control_instances, self.least_share),
        )
        return self.verdict == HOLDS and self.printed == self.on_record and not any(exact) and bool(likely > TOO_FEW)


def _rule(statement: Statement, found: list[Found], gaps: list[float]) -> Entry:
    residual, breaks = float(np.max([one.residual for one in found])), 1e3 * statement.tolerance
    verdict = HOLDS if residual <= statement.tolerance else FAILS
    failures = [one.printed for one in found if one.printed and not one.printed.residual <= breaks]
    printed, size = verdict, None
    if statement.counterexample:
        size = statement.counterexample().residual
        printed = FAILS if failures or not size <= breaks else HOLDS
    path = os.path.relpath(inspect.getsourcefile(statement.check), Path(__file__).parents[2])
    ruled = dict(
        source={"path": f"book/{Path(path).as_posix()}", "line": inspect.getsourcelines(statement.check)[1]},
        instances=len(found),
        nontrivial=sum(one.nontrivial for one in found),
        residual=residual,
        verdict=verdict,
        printed=printed,
        on_record=FAILS if statement.counterexample else HOLDS,
        counterexample=size,
        printed_failures=len(failures),
        searched=min(failures, key=lambda record: record.size).instance if failures else "",
        control_instances=len(gaps),
        control_fails=sum(gap > breaks for gap in gaps),
        control_gap=float(np.max(gaps)),
    )
    names = [one.name for one in fields(Entry) if hasattr(statement, one.name)]
    return Entry(**{name: getattr(statement, name) for name in names} | ruled)


def draw_seeds(instances: int, seed: int) -> tuple[list[int], list[int]]:
    """Seeds of the instances, and of a tenth as many controls (at least 5)."""
    seeds = np.random.SeedSequence(seed).generate_state(instances + max(5, instances // 10))
    return seeds[:instances].tolist(), seeds[instances:].tolist()


def run(statement: Statement, instances: int, seed: int) -> Entry:
    """Check a statement on `instances` random models and its control on a tenth as many, in this process."""
    seeds, control_seeds = draw_seeds(instances, seed)
    return _rule(statement, [_check(statement, one) for one in seeds], list(map(statement.control, control_seeds)))


def _checks(seed: int) -> list[Found]:
    """All checks on one seed: statements about one instance share it."""
    return [_check(statement, seed) for statement in STATEMENTS]


def _controls(seed: int) -> list[float]:
    return [statement.control(seed) for statement in STATEMENTS]


def run_all(
    instances: int,
    seed: int,
    workers: int | None = None,
    exact: bool = True,
    done: Callable[[float], None] = lambda share: None,
) -> list[Entry]:
    """The whole ledger: every statement on `instances` random models, and with `exact` the evidence without rounding.

    `workers` processes (if left out, one for each core) share the work; `done` is given the share that is done.
    """
    seeds, control_seeds = draw_seeds(instances, seed)
    with ProcessPoolExecutor(workers or os.cpu_count(), get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        checks = [pool.submit(_checks, one) for one in seeds]
        controls = [pool.submit(_controls, one) for one in control_seeds]
        identities = {name: pool.submit(confirm, name, POINTS, seed) for name in IDENTITIES if exact}
        patterns = {name: pool.submit(decide, name) for name in PATTERNS if exact}
        everything = [*checks, *controls, *identities.values(), *patterns.values()]
        for k, job in enumerate(everything, 1):
            job.result()
            done(k / len(everything))
    entries = []
    for k, statement in enumerate(STATEMENTS):
        entry = _rule(statement, *([job.result()[k] for job in jobs] for jobs in (checks, controls)))
        without_rounding = {"identity": identities.get(statement.name), "patterns": patterns.get(statement.name)}
        entries.append(replace(entry, **{key: asdict(job.result()) for key, job in without_rounding.items() if job}))
    return entries
