"""Where the book shows each statement and each equation, the line that computes an equation, and the ledger with both."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import companion
import hmmlib
from companion.evidence.ledger import Entry
from hmmlib.files import write_whole

BOOK, LIBRARY = (Path(package.__file__).resolve().parents[1] for package in (companion, hmmlib))
"""The folders in which the two packages lie."""

SETTING, SECTION_3, PROMPT = "notebooks/2-setting", "notebooks/3-hmm", "notebooks/3-1-prompt"
ATTENTION, MEMORY_PROMPT = "notebooks/4-1-attention-head", "notebooks/4-2-memory-prompt"
APPENDIX_B, APPENDIX_C = "notebooks/appendix-b", "notebooks/appendix-c"
APPENDIX_D_1, APPENDIX_D_2, APPENDIX_D_3 = (f"notebooks/appendix-d-{k}" for k in (1, 2, 3))
TUNED_PROMPT, SOLVABLE = "notebooks/beyond-1-tuned-prompt", "notebooks/beyond-3-solvable"


@dataclass(frozen=True)
class Equation:
    """An equation by its number: in words, the page that shows it, and the file, from the repository's root, that computes it.

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
    Equation("C.2", "τ behind a prompt", APPENDIX_C, "book/companion/evidence/random_models/appendix_c.py"),
    Equation("D.1", "Gᵢ as a mixture of columns", APPENDIX_D_1, "hmmlib/inference/messages.py"),
    Equation("D.2", "Θ⁽ⱽ⁾ reads memory and state", APPENDIX_D_1, "hmmlib/theory/theorems.py"),
    Equation("D.3", "τ of the lifted chain", APPENDIX_D_2, "hmmlib/inference/messages.py"),
    Equation("D.4", "reverse lifting φ", APPENDIX_D_2, "hmmlib/models/hmm.py"),
    Equation("D.5", "τ behind a lifted prompt", APPENDIX_D_2, "book/companion/evidence/random_models/appendix_d3.py"),
    Equation("D.6", "the prompt", APPENDIX_D_3, "hmmlib/theory/theorems.py"),
    Equation("D.7", "the inputs Z", APPENDIX_D_3, "book/companion/evidence/random_models/memory_instances.py"),
    Equation("D.8", "the positions Î", APPENDIX_D_3, "book/companion/evidence/random_models/memory_instances.py"),
    Equation("D.9", "supports shrink", APPENDIX_D_3, "book/companion/evidence/random_models/appendix_d3.py"),
    Equation("D.10", "μᵀP[M | x̂], summed", APPENDIX_D_3, "book/companion/evidence/random_models/appendix_d6.py"),
)

STATEMENTS = {
    "Assumption 3.1": (SECTION_3, "paper-asm-3-1"),
    "Assumption 3.2": (SECTION_3, "paper-asm-3-2"),
    "Theorem 3.3": (SECTION_3, "paper-thm-3-3"),
    "Proposition 3.4": (SECTION_3, "paper-prop-3-4"),
    "Assumption 3.5": (PROMPT, "paper-asm-3-5"),
    "Theorem 3.6": (PROMPT, "paper-thm-3-6"),
    "Assumption 4.2": (ATTENTION, "paper-asm-4-2"),
    "Theorem 4.3": (ATTENTION, "paper-thm-4-3"),
    "Assumption 4.4": (MEMORY_PROMPT, "paper-asm-4-4"),
    "Assumption 4.5": (MEMORY_PROMPT, "paper-asm-4-5"),
    "Theorem 4.6": (MEMORY_PROMPT, "paper-thm-4-6"),
    "Claim B.1": (APPENDIX_B, "paper-claim-B-1"),
    "Lemma C.1": (APPENDIX_C, "paper-lem-C-1"),
    "Lemma C.2": (APPENDIX_C, "paper-lem-C-2"),
    "Proposition D.1": (APPENDIX_D_1, "paper-prop-D-1"),
    "Lemma D.2": (APPENDIX_D_1, "paper-lem-D-2"),
    "Claim D.3": (APPENDIX_D_1, "paper-claim-D-3"),
    "Lemma D.4": (APPENDIX_D_1, "paper-lem-D-4"),
    "Assumption D.5": (APPENDIX_D_3, "paper-asm-D-5"),
    "Theorem D.6": (APPENDIX_D_3, "paper-thm-D-6"),
    "Lemma D.7": (APPENDIX_D_2, "paper-lem-D-7"),
    "Proposition D.8": (APPENDIX_D_3, "paper-prop-D-8"),
    "Lemma D.9": (APPENDIX_D_3, "paper-lem-D-9"),
    "Claim D.10": (APPENDIX_D_3, "paper-claim-D-10"),
    "Proposition D.11": (APPENDIX_D_3, "paper-prop-D-11"),
    "Claim D.12": (APPENDIX_D_3, "paper-claim-D-12"),
    "Lemma D.13": (APPENDIX_D_3, "paper-lem-D-13"),
    "Claim D.14": (APPENDIX_D_3, "paper-claim-D-14"),
    "Claim D.15": (APPENDIX_D_3, "paper-claim-D-15"),
    "Certificate": (SOLVABLE, "ours-thm-O-3"),
    "Exactness": (SOLVABLE, "ours-thm-O-2"),
    "Separable votes": (SOLVABLE, "ours-thm-O-4"),
    "Several classes": (SOLVABLE, "ours-cor-O-5"),
    "Relabelling": (TUNED_PROMPT, "ours-prop-O-1"),
}
"""The page that derives each statement, and the label of its box there."""


def _finite(value):
    """JSON knows neither NaN nor infinity: null stands for both."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _record(entry: Entry) -> dict:
    page, label = STATEMENTS[entry.name]
    values = {key: _finite(value) for key, value in asdict(entry).items()}
    return {"name": values.pop("name"), "claim": values.pop("claim"), "page": page, "label": label, **values}


def write_ledger(path: Path, entries: list[Entry], instances: int, seed: int) -> None:
    """The machine-readable ledger: one JSON file, with the book's pages, the numbered equations and where they are computed.

    OSError where it cannot be written; what was there before then stays.
    """
    equations = [
        {"number": e.number, "words": e.words, "page": e.page, "label": e.label, "source": e.where()} for e in EQUATIONS
    ]
    content = {"instances": instances, "seed": seed, "entries": list(map(_record, entries)), "equations": equations}
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
