"""Each numbered equation of the paper, and the line of this library that computes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Equation:
    """An equation by its number: in words, the page that shows it, and a piece of the line (of `file`) that computes it."""

    number: str
    words: str
    page: str
    file: str
    line_with: str

    @property
    def label(self) -> str:
        return f"paper-eq-{self.number.replace('.', '-')}"

    def where(self) -> dict:
        """The file, from the repository's root, and the line. LookupError unless exactly one line has the piece."""
        lines = (ROOT / self.file).read_text(encoding="utf8").splitlines()
        found = [k for k, line in enumerate(lines, 1) if self.line_with in line]
        if len(found) != 1:
            raise LookupError(f"equation ({self.number}): {len(found)} lines of {self.file} have {self.line_with!r}")
        return {"path": f"hmmlib/{self.file}", "line": found[0]}


EQUATIONS = (
    Equation("3.1", "the label F*", "notebooks/2-setting", "theory/theorems.py", "unless_rounding(found @ mu"),
    Equation("3.2", "prompt, gap, text", "notebooks/3-1-prompt", "inference/messages.py", "torch.cat([prompt.expand"),
    Equation(
        "3.3",
        "what a prompt does to Ḡ₂",
        "notebooks/3-1-prompt",
        "theory/theorems.py",
        "(prompt * model.marginal(1)) /",
    ),
    Equation(
        "4.1", "attended positions", "notebooks/4-1-attention-head", "theory/heads.py", "scores >= largest - slack"
    ),
    Equation(
        "4.2",
        "the attention head",
        "notebooks/4-1-attention-head",
        "theory/heads.py",
        "* chosen).sum(1) / chosen.sum(1)",
    ),
    Equation(
        "4.3", "the inputs R", "notebooks/4-1-attention-head", "theory/theorems.py", "sure = (latent.sum(-1) > 0)"
    ),
    Equation("4.4", "prompt, text", "notebooks/4-2-memory-prompt", "inference/messages.py", "torch.cat([prompt.expand"),
    Equation(
        "B.1", "H₀ from X₁, linearly", "notebooks/appendix-b", "theory/theorems.py", "_undone(mu, claim_b_1(model, 1))"
    ),
    Equation(
        "C.1",
        "τ from two messages",
        "notebooks/appendix-c",
        "inference/forward_backward.py",
        "f * b * row if own else f * b",
    ),
    Equation(
        "C.2",
        "τ behind a prompt",
        "notebooks/appendix-c",
        "evidence/random_models/appendix_c.py",
        "largest(tau[:, i - 1] - witness)",
    ),
    Equation(
        "D.1",
        "Gᵢ as a mixture of columns",
        "notebooks/appendix-d",
        "inference/messages.py",
        "probs @ variable.columns.T",
    ),
    Equation(
        "D.2",
        "Θ⁽ⱽ⁾ reads memory and state",
        "notebooks/appendix-d",
        "theory/theorems.py",
        "value[:, recovery.states(model)]",
    ),
    Equation(
        "D.3", "τ of the lifted chain", "notebooks/appendix-d", "inference/messages.py", "(tau * share).flatten(2)"
    ),
    Equation("D.4", "reverse lifting φ", "notebooks/appendix-d", "models/hmm.py", "part.mean(others)"),
    Equation(
        "D.5",
        "τ behind a lifted prompt",
        "notebooks/appendix-d",
        "evidence/random_models/appendix_d3.py",
        "largest(messages[:, i - 1] -",
    ),
    Equation("D.6", "the prompt", "notebooks/appendix-d", "theory/theorems.py", "[support(model, mu)] = 1"),
    Equation(
        "D.7",
        "the inputs Z",
        "notebooks/appendix-d",
        "evidence/random_models/appendix_d3.py",
        "(self.hat_left[:, 1:] > 0).all(1)",
    ),
    Equation(
        "D.8",
        "the positions Î",
        "notebooks/appendix-d",
        "evidence/random_models/appendix_d3.py",
        "np.zeros((len(self.sure), 1), bool)",
    ),
    Equation(
        "D.9", "supports shrink", "notebooks/appendix-d", "evidence/random_models/appendix_d3.py", "[without == 0] > 0"
    ),
    Equation(
        "D.10",
        "μᵀP[M | x̂], summed",
        "notebooks/appendix-d",
        "evidence/random_models/appendix_d6.py",
        "found = conditional(weights",
    ),
)
