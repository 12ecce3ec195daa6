"""Where the book shows each equation, the line that computes it, and the ledger with all statements and equations."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import companion
import hmmlib
from companion.evidence.ledger import Entry
from companion.evidence.statements import (
    APPENDIX_B,
    APPENDIX_C,
    APPENDIX_D_1,
    APPENDIX_D_2,
    APPENDIX_D_3,
    ATTENTION,
    MEMORY_PROMPT,
    PROMPT,
)
from hmmlib.files import write_whole

BOOK, LIBRARY = (Path(package.__file__).resolve().parents[1] for package in (companion, hmmlib))
"""The folders in which the two packages lie."""
SETTING = "notebooks/2-setting"


@dataclass(frozen=True)
class Equation:
    """An equation by its number: in words, the page that shows it, and the file that computes it, from the root.

    The line that does so ends in its mark, `# (D.9)`; a line may have the marks of two, `# (3.2), (4.4)`.
    """

    number: str
    words: str
    page: str
    file: str

    @property
    def label(self) -> str:
        return f"paper-eq-{self.number.replace('.', '-')}"

    def where(self) -> dict:
        """The file and the line. LookupError unless exactly one line has the mark."""
        path = BOOK / self.file.removeprefix("book/") if self.file.startswith("book/") else LIBRARY / self.file
        comments = [line.partition("  # ")[2] for line in path.read_text(encoding="utf8").splitlines()]
        marked = [k for k, comment in enumerate(comments, 1) if f"({self.number})" in comment.split(", ")]
        if len(marked) != 1:
            raise LookupError(f"equation ({self.number}): {len(marked)} lines of {self.file} end in # ({self.number})")
        return {"path": self.file, "line": marked[0]}


EQUATIONS = (
    Equation("3.1", "the label F*", SETTING, "hmmlib/theory/theorems.py"),
    Equation("3.2", "prompt, gap, text", PROMPT, "hmmlib/inference/messages.py"),
    Equation("3.3", "what a prompt does to Ḡ₂", PROMPT, "hmmlib/theory/theorems.py"),
    Equation("4.1", "attended positions", ATTENTION, "hmmlib/theory/heads.py"),
    Equation("4.2", "the attention head", ATTENTION, "hmmlib/theory/heads.py"),
    Equation("4.3", "the inputs R", ATTENTION, "hmmlib/theory/theorems.py"),
    Equation("4.4", "prompt, text", MEMORY_PROMPT, "hmmlib/inference/messages.py"),
    Equation("B.1", "H₀ from X₁, linearly", APPENDIX_B, "hmmlib/theory/theorems.py"),
    Equation("C.1", "τ from two messages", APPENDIX_C, "hmmlib/inference/forward_backward.py"),
    Equation("C.2", "τ behind a prompt", APPENDIX_C, "book/companion/evidence/random_models/section_3.py"),
    Equation("D.1", "Gᵢ as a mixture of columns", APPENDIX_D_1, "hmmlib/inference/messages.py"),
    Equation("D.2", "Θ⁽ⱽ⁾ reads memory and state", APPENDIX_D_1, "hmmlib/theory/theorems.py"),
    Equation("D.3", "τ of the lifted chain", APPENDIX_D_2, "hmmlib/inference/forward_backward.py"),
    Equation("D.4", "reverse lifting φ", APPENDIX_D_2, "hmmlib/models/hmm.py"),
    Equation("D.5", "τ behind a lifted prompt", APPENDIX_D_2, "book/companion/evidence/random_models/appendix_d3.py"),
    Equation("D.6", "the prompt", APPENDIX_D_3, "hmmlib/theory/theorems.py"),
    Equation("D.7", "the inputs Z", APPENDIX_D_3, "book/companion/evidence/random_models/memory_instances.py"),
    Equation("D.8", "the positions Î", APPENDIX_D_3, "book/companion/evidence/random_models/memory_instances.py"),
    Equation("D.9", "supports shrink", APPENDIX_D_3, "book/companion/evidence/random_models/appendix_d3.py"),
    Equation("D.10", "μᵀP[M | x̂], summed", APPENDIX_D_3, "book/companion/evidence/random_models/appendix_d3.py"),
)


def write_ledger(path: Path, entries: list[Entry], instances: int, seed: int) -> None:
    """The machine-readable ledger: one JSON file, with the book's pages, the equations and where they are computed.

    JSON knows neither NaN nor infinity: null stands for both. OSError where it cannot be written; what was there stays.
    """
    records = [asdict(entry) for entry in entries]
    for record in records:
        infinite = [key for key, value in record.items() if isinstance(value, float) and not math.isfinite(value)]
        record.update(dict.fromkeys(infinite))
    equations = [
        {"number": e.number, "words": e.words, "page": e.page, "label": e.label, "source": e.where()} for e in EQUATIONS
    ]
    content = {"instances": instances, "seed": seed, "entries": records, "equations": equations}
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
