"""Where the book shows each equation, the line that computes it, and the ledger with all statements and equations."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import companion
import hmmlib
from companion.evidence import statements as on
from companion.evidence.ledger import Entry
from hmmlib.files import write_whole

BOOK, LIBRARY = (Path(package.__file__).resolve().parents[1] for package in (companion, hmmlib))
"""The folders in which the two packages lie."""
THEOREMS, MODELS = "hmmlib/theory/theorems.py", "book/companion/evidence/random_models/"


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
        inside = self.file.removeprefix("book/")
        lines = ((LIBRARY if inside == self.file else BOOK) / inside).read_text(encoding="utf8").splitlines()
        comments = enumerate((line.partition("  # ")[2].split(", ") for line in lines), 1)
        marked = [number for number, comment in comments if f"({self.number})" in comment]
        if len(marked) != 1:
            raise LookupError(f"equation ({self.number}): {len(marked)} lines of {self.file} end in # ({self.number})")
        return {"path": self.file, "line": marked[0]}


EQUATIONS = (
    Equation("3.1", "the label F*", "notebooks/2-setting", THEOREMS),
    Equation("3.2", "prompt, gap, text", on.PROMPT, "hmmlib/inference/messages.py"),
    Equation("3.3", "what a prompt does to Ḡ₂", on.PROMPT, "hmmlib/training/tuning.py"),
    Equation("4.1", "attended positions", on.ATTENTION, "hmmlib/theory/heads.py"),
    Equation("4.2", "the attention head", on.ATTENTION, "hmmlib/theory/heads.py"),
    Equation("4.3", "the inputs R", on.ATTENTION, THEOREMS),
    Equation("4.4", "prompt, text", on.MEMORY_PROMPT, "hmmlib/inference/messages.py"),
    Equation("B.1", "H₀ from X₁, linearly", on.APPENDIX_B, THEOREMS),
    Equation("C.1", "τ from two messages", on.APPENDIX_C, "hmmlib/inference/forward_backward.py"),
    Equation("C.2", "τ with a prompt", on.APPENDIX_C, MODELS + "section_3.py"),
    Equation("D.1", "Gᵢ as a mixture of columns", on.APPENDIX_D, "hmmlib/inference/messages.py"),
    Equation("D.2", "Θ⁽ⱽ⁾ reads memory and state", on.APPENDIX_D, THEOREMS),
    Equation("D.3", "τ of the lifted chain", on.APPENDIX_D, "hmmlib/inference/forward_backward.py"),
    Equation("D.4", "reverse lifting φ", on.APPENDIX_D, "hmmlib/models/hmm.py"),
    Equation("D.5", "τ with a lifted prompt", on.APPENDIX_D, MODELS + "appendix_d3.py"),
    Equation("D.6", "the prompt", on.APPENDIX_D_3, THEOREMS),
    Equation("D.7", "the inputs Z", on.APPENDIX_D_3, MODELS + "memory_instances.py"),
    Equation("D.8", "the positions Î", on.APPENDIX_D_3, MODELS + "memory_instances.py"),
    Equation("D.9", "supports shrink", on.APPENDIX_D_3, MODELS + "appendix_d3.py"),
    Equation("D.10", "μᵀP[M | x̂], summed", on.APPENDIX_D_3, MODELS + "appendix_d3.py"),
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
