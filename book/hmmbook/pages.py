"""Write the ledger for the book, with its statements, and with the page and the line of code of each equation."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import hmmbook
import hmmlib
from hmmbook.evidence.ledger import Entry
from hmmbook.evidence.statements import (
    APPENDIX_B,
    APPENDIX_C,
    APPENDIX_D,
    APPENDIX_D_3,
    ATTENTION,
    MEMORY_PROMPT,
    PROMPT,
)
from hmmbook.files import write_whole

BOOK = Path(hmmbook.__file__).resolve().parents[1]
"""The folder in which the package of the book lies."""
LIBRARY = Path(hmmlib.__file__).resolve().parents[1]
"""The folder in which the library lies, which is the project's root in a checkout."""

EVIDENCE = "hmmlib/inference/evidence.py"
FORWARD_BACKWARD = "hmmlib/inference/forward_backward.py"
HEADS = "hmmlib/theory/heads.py"
MODELS = "book/hmmbook/evidence/random_models/"
THEOREMS = "hmmlib/theory/theorems.py"


@dataclass(frozen=True)
class Equation:
    """An equation of the paper, and the one line of code that computes it.

    This line ends in the equation's mark, for example `# (D.9)`. If a line computes two equations, it ends in the marks
    of both, as in `# (3.2), (4.4)`.
    """

    number: str
    words: str
    page: str  # the page that shows it
    file: str  # the file that computes it, as a path from the project's root

    @property
    def label(self) -> str:
        """The label of the equation on its page."""
        return f"paper-eq-{self.number.replace('.', '-')}"

    def where(self) -> dict:
        """Return the path of the file, and the number of the line that computes the equation.

        Raises:
            LookupError: no line of the file has the mark, or several lines have it.
        """
        path = LIBRARY / self.file
        if self.file.startswith("book/"):
            path = BOOK / self.file.removeprefix("book/")
        marked = []
        for number, code in enumerate(path.read_text(encoding="utf8").splitlines(), 1):
            marks = code.partition("  # ")[2].split(", ")
            if f"({self.number})" in marks:
                marked.append(number)
        if len(marked) != 1:
            raise LookupError(
                f"Exactly one line of {self.file} must end in the mark of equation ({self.number}), but "
                f"{len(marked)} lines do."
            )
        return {"path": self.file, "line": marked[0]}


EQUATIONS = (
    Equation("3.1", "the label F*", "notebooks/2-setting", THEOREMS),
    Equation("3.2", "prompt, gap, text", PROMPT, EVIDENCE),
    Equation("3.3", "what a prompt does to Ḡ₂", PROMPT, "hmmlib/training/tuning.py"),
    Equation("4.1", "attended positions", ATTENTION, HEADS),
    Equation("4.2", "the attention head", ATTENTION, HEADS),
    Equation("4.3", "the inputs R", ATTENTION, THEOREMS),
    Equation("4.4", "prompt, text", MEMORY_PROMPT, EVIDENCE),
    Equation("B.1", "H₀ from X₁, linearly", APPENDIX_B, THEOREMS),
    Equation("C.1", "τ from two messages", APPENDIX_C, FORWARD_BACKWARD),
    Equation("C.2", "τ with a prompt", APPENDIX_C, MODELS + "section_3.py"),
    Equation("D.1", "Gᵢ as a mixture of columns", APPENDIX_D, "hmmlib/inference/laws.py"),
    Equation("D.2", "Θ⁽ⱽ⁾ reads memory and state", APPENDIX_D, "hmmlib/theory/recovery.py"),
    Equation("D.3", "τ of the lifted chain", APPENDIX_D, FORWARD_BACKWARD),
    Equation("D.4", "reverse lifting φ", APPENDIX_D, "hmmlib/models/hmm.py"),
    Equation("D.5", "τ with a lifted prompt", APPENDIX_D, MODELS + "appendix_d3.py"),
    Equation("D.6", "the prompt", APPENDIX_D_3, THEOREMS),
    Equation("D.7", "the inputs Z", APPENDIX_D_3, MODELS + "memory_instances.py"),
    Equation("D.8", "the positions Î", APPENDIX_D_3, MODELS + "memory_instances.py"),
    Equation("D.9", "supports shrink", APPENDIX_D_3, MODELS + "appendix_d3.py"),
    Equation("D.10", "μᵀP[M | x̂], summed", APPENDIX_D_3, MODELS + "appendix_d3.py"),
)


def write_ledger(path: Path, entries: list[Entry], instances: int, seed: int) -> None:
    """Write the ledger as JSON, with the equations, the pages that show them and the lines that compute them.

    JSON has neither NaN nor infinity, so null stands for both.

    Args:
        path: The file. If the new one cannot be written, a file that is already there stays.
        entries: The rows of the ledger, one for each statement.
        instances: The number of random models on which each statement was checked.
        seed: The seed with which the models were drawn.

    Raises:
        OSError: The file cannot be written.
    """
    records = []
    for entry in entries:
        record = asdict(entry)
        for field, value in record.items():
            if isinstance(value, float) and not math.isfinite(value):
                record[field] = None
        records.append(record)
    equations = []
    for equation in EQUATIONS:
        equations.append(
            {
                "number": equation.number,
                "words": equation.words,
                "page": equation.page,
                "label": equation.label,
                "source": equation.where(),
            }
        )
    content = {"instances": instances, "seed": seed, "entries": records, "equations": equations}
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
