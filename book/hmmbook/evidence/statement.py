"""What the ledger knows of a statement: what it claims, what checks it, and how its printed form is ruled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hmmbook.evidence.random_models.instances import Checked, Printed

HOLDS = "holds"
FAILS = "fails"
SLIP = "slip"
"""Every reader mends it."""
GAP = "gap in a proof"
"""The statement holds, but needs another argument."""
FALSE = "false statement"
"""What is printed has to change."""
GRADES = (HOLDS, SLIP, GAP, FALSE)
"""The rulings on a printed form, with the least grave first."""


@dataclass(frozen=True)
class Statement:
    """A numbered statement or assumption of the paper, or a statement of ours that goes beyond it."""

    name: str
    page: str
    """The page of the book that derives it, without the file's ending."""
    label: str
    """The label of its box on that page. Ours begin with `ours-`."""
    claim: str
    """What it claims, in our words."""
    check: Callable[[int], Checked]
    """Draws a random instance from a seed, and measures how far the claim is from holding."""
    broken: str
    """The hypothesis that the control drops."""
    control: Callable[[int], float]
    """Draws an instance without that hypothesis, and measures by how much the conclusion fails."""
    least_share: float = 1.0
    """In what share of its instances, at least, the control breaks the conclusion."""
    grade: str = HOLDS
    """The ruling on the form as printed and its proof, one of GRADES."""
    corrected: str = ""
    """What holds, where that is not what is printed."""
    unneeded: str = ""
    """The hypotheses that were found not to be needed."""
    printed: Callable[[int], Printed] | None = None
    """Measures the form as printed on a random instance, where it differs from the checked form in numbers."""
    counterexample: Callable[[], Printed] | None = None
    """Measures it on a small instance that a reader can follow."""

    @property
    def ours(self) -> bool:
        """Whether the statement is not the paper's."""
        return self.label.startswith("ours-")
