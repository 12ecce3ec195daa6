"""The paper's numbered statements and assumptions, and some of ours: what is claimed, what checks it, and the ruling."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from companion.evidence.random_models import (
    appendix_c,
    appendix_d1,
    appendix_d3,
    appendix_d6,
    assumptions,
    counterexamples,
    ours,
    section_3,
)
from companion.evidence.random_models.residuals import Checked, Printed

HOLDS, FAILS = "holds", "fails"
SLIP, GAP, FALSE = "slip of the pen", "gap in a proof", "false statement"
GRADES = HOLDS, SLIP, GAP, FALSE
"""Of rulings, the least grave first: every reader mends a slip, a gap needs another argument, what is false has to change."""


SECTION_3, PROMPT = "notebooks/3-hmm", "notebooks/3-1-prompt"
ATTENTION, MEMORY_PROMPT = "notebooks/4-1-attention-head", "notebooks/4-2-memory-prompt"
APPENDIX_B, APPENDIX_C = "notebooks/appendix-b", "notebooks/appendix-c"
APPENDIX_D_1, APPENDIX_D_2, APPENDIX_D_3 = (f"notebooks/appendix-d-{k}" for k in (1, 2, 3))
TUNED_PROMPT, SOLVABLE = "notebooks/beyond-1-tuned-prompt", "notebooks/beyond-3-solvable"

MODULES = appendix_c, appendix_d1, appendix_d3, appendix_d6, assumptions, counterexamples, ours, section_3
KINDS = {"Assumption": "asm", "Theorem": "thm", "Proposition": "prop", "Claim": "claim", "Lemma": "lem"}


@dataclass(frozen=True)
class Statement:
    """One numbered statement of the paper, or one assumption; or a statement of ours that goes beyond it.

    `claim` is it in our words; `page` of the book derives it, in a box with a `label` (if left out, by the paper's number).
    Residuals up to `tolerance` pass; `broken` names the hypothesis that the control drops; the control breaks the
    conclusion in a share of its instances of at least `least_share`. `grade` is the ruling on the form as printed and its
    proof, one of GRADES, and `corrected` says what holds where that is not all. `unneeded` names hypotheses that were found
    not to be needed.

    What is left out of the functions is found by the name: those of Theorem 3.3 are `check_theorem_3_3` and
    `control_theorem_3_3`. Where the printed form can be compared in numbers with the one that `check` measures, and
    differs, `printed` does so on random instances, `counterexample` on a small one that a reader can follow.
    """

    name: str
    page: str
    claim: str
    broken: str
    label: str = ""
    tolerance: float = 1e-10
    grade: str = HOLDS
    least_share: float = 1.0
    corrected: str = ""
    unneeded: str = ""
    check: Callable[[int], Checked] | None = None
    control: Callable[[int], float] | None = None
    printed: Callable[[int], Printed] | None = None
    counterexample: Callable[[], Printed] | None = None

    def __post_init__(self) -> None:
        words = re.split("[ .]", self.name)
        if not self.label:
            object.__setattr__(self, "label", "-".join(["paper", KINDS[words[0]], *words[1:]]))
        for part in ("check", "control", "printed", "counterexample"):
            named = "_".join([part, *words]).lower()
            found = next((getattr(module, named) for module in MODULES if hasattr(module, named)), None)
            object.__setattr__(self, part, getattr(self, part) or found)

    @property
    def ours(self) -> bool:
        """Whether it is not the paper's."""
        return self.label.startswith("ours")


STATEMENTS = (
    Statement(
        name="Assumption 3.1",
        page=SECTION_3,
        claim="The columns of W are linearly independent.",
        broken="independent columns of W",
    ),
    Statement(
        name="Assumption 3.2",
        page=SECTION_3,
        claim="The chain is ergodic and P[H₀] has full support.",
        broken="ergodic, or full support",
    ),
    Statement(
        name="Theorem 3.3",
        page=SECTION_3,
        claim="With independent columns of W, one linear head on G₁ of (∅, x) gives every possible x its label.",
        broken="independent columns of W (3.1)",
        least_share=0.3,  # with dependent columns some tasks still have a head
        unneeded="regularity: it is enough that H₁ can be wherever H₀ can",
    ),
    Statement(
        name="Proposition 3.4",
        page=SECTION_3,
        claim="If U ⊥ V | Z, then P[U | V = v] = P[U | Z] P[Z | V = v], and a left inverse of P[U | Z] undoes it.",
        broken="U ⊥ V | Z",
    ),
    Statement(
        name="Assumption 3.5",
        page=PROMPT,
        claim="The columns of W at H* ⊇ supp(μ) are independent, and H* is all that some states reach in one step.",
        broken="independent columns at H*, or the way into H*",
    ),
    Statement(
        name="Theorem 3.6",
        page=PROMPT,
        claim="One prompt and one linear head on Ḡ₂ give every possible x its label, if W is independent on H*.",
        broken="independent columns of W at H* (3.5)",
        unneeded="regularity: it is enough that H₁ can be in all of B",
    ),
    Statement(
        name="Assumption 4.2",
        page=ATTENTION,
        claim="The columns of W at M × H* are independent, and their span meets that of all others in 0 only.",
        broken="disjoint spans, or independent columns",
    ),
    Statement(
        name="Theorem 4.3",
        page=ATTENTION,
        claim="One attention head on G(x) and e(x) gives every x of R its label, a sign of a memory posterior.",
        broken="independent columns of W at M × H* (4.2)",
        unneeded="regularity (3.2), all of it",
    ),
    Statement(
        name="Assumption 4.4",
        page=MEMORY_PROMPT,
        claim="Assumption 3.2 holds, and P[H₀] is stationary.",
        broken="P[H₀] = A P[H₀], or ergodic",
    ),
    Statement(
        name="Assumption 4.5",
        page=MEMORY_PROMPT,
        claim="Assumption 4.2 with the memory values in supp(μ) only; one cell.",
        broken="disjoint spans",
    ),
    Statement(
        name="Theorem 4.6",
        page=MEMORY_PROMPT,
        claim="One prompt and one attention head on Ḡ give every x of R its label, if W is independent at supp(μ) × H*.",
        control=appendix_d6.control_theorem_d_6,
        broken="independent columns (4.5), for the prompt (D.6)",
        unneeded="stationarity and regularity, with another prompt, where H₁ can be wherever H₀ can",
    ),
    Statement(
        name="Claim B.1",
        page=APPENDIX_B,
        claim="The posterior of Hᵢ given the text after it is that of H₀ given the same text, rescaled by one diagonal D.",
        broken="P[H₀] has full support (3.2)",
        unneeded="ergodicity: full support of P[H₀] and P[Hᵢ] is enough",
    ),
    Statement(
        name="Lemma C.1",
        page=APPENDIX_C,
        claim="Ḡ behind a prompt is the conditional distribution of a process with one more token, emitted with u.",
        broken="X̂ emits like X after the first step",
    ),
    Statement(
        name="Lemma C.2",
        page=APPENDIX_C,
        claim="Given prompt and text, H₂ has the law P[z̃, H₂] ⊙ P[H₀ | x], rescaled by one diagonal D.",
        broken="P[H₀] has full support (3.2)",
        unneeded="ergodicity",
    ),
    Statement(
        name="Proposition D.1",
        page=APPENDIX_D_1,
        claim="Gᵢ(x) is the mixture of columns of W with the weights P[M_J, J, S | x₋ᵢ].",
        broken="a token depends on one memory cell only",
        grade=SLIP,
        corrected="with the conditional P[M_J, J, S | X₋ᵢ = x₋ᵢ] on the right, as in (D.1), not the joint",
    ),
    Statement(
        name="Lemma D.2",
        page=APPENDIX_D_1,
        claim="A query and a key attend exactly to the positions whose state is surely in H*.",
        broken="disjoint spans (4.2)",
        grade=SLIP,
        corrected="q has |H| + 1 entries, as in (4.1), the last of them 0; with |H| entries it is meant without β",
        unneeded="regularity (3.2)",
    ),
    Statement(
        name="Claim D.3",
        page=APPENDIX_D_1,
        claim="Matrices Θ⁽¹⁾ and Θ⁽²⁾ read P[Hᵢ | x₋ᵢ] on H* and P[M, Hᵢ | x₋ᵢ] off Gᵢ(x).",
        broken="disjoint spans (4.2)",
        grade=GAP,
        corrected="in the proof, linearly independent for pairwise disjoint: the assumption gives it",
        unneeded="regularity (3.2)",
    ),
    Statement(
        name="Lemma D.4",
        page=APPENDIX_D_1,
        claim="At a position whose state is surely in H*, the value function is a positive multiple of μᵀP[M | x].",
        broken="independent columns of W at M × H* (4.2)",
        unneeded="regularity (3.2)",
    ),
    Statement(
        name="Assumption D.5",
        page=APPENDIX_D_3,
        claim="Assumption 4.5 for several cells: of the other cells, all memory values count.",
        broken="disjoint from the values of other cells",
    ),
    Statement(
        name="Theorem D.6",
        page=APPENDIX_D_3,
        claim="Theorem 4.6 for several memory cells, with embeddings and head as appendix D.3 defines them.",
        broken="independent columns (D.5), for the prompt (D.6)",
        grade=SLIP,
        corrected="u has |M|ᴺ|H| entries; embedding and head are those of appendix D.3",
        unneeded="stationarity and regularity, with another prompt, where H₁ can be wherever H₀ can",
    ),
    Statement(
        name="Lemma D.7",
        page=APPENDIX_D_2,
        claim="Lemma C.1 for memory models, with a lifted prompt.",
        broken="X̂ emits like X after the first step",
        grade=SLIP,
        corrected="with u of |M|ᴺ|H| entries, one for each lifted state, not |H|",
        unneeded="stationarity (4.4) and Assumption D.5",
    ),
    Statement(
        name="Proposition D.8",
        page=APPENDIX_D_3,
        claim="From any step on, memory, state and the text after it have one and the same law.",
        broken="P[H₀] is stationary (4.4)",
        unneeded="ergodicity, full support, Assumption D.5",
    ),
    Statement(
        name="Lemma D.9",
        page=APPENDIX_D_3,
        claim="Behind the prompt, the head attends to all positions whose state is surely in H* given prompt and text.",
        broken="disjoint spans (D.5)",
        grade=FALSE,
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough",
        corrected="Î ⊆ I, where I counts supports given the prompt too; Z over i = 2 … t + 1; β₁ low enough",
    ),
    Statement(
        name="Claim D.10",
        page=APPENDIX_D_3,
        claim="Claim D.3 on Ḡᵢ behind the prompt (D.6), with memory values in supp(μ) only.",
        broken="disjoint spans (D.5)",
        grade=GAP,
        corrected="in the proof, linearly independent for pairwise disjoint: the assumption gives it",
        unneeded="stationarity (4.4)",
    ),
    Statement(
        name="Proposition D.11",
        page=APPENDIX_D_3,
        claim="Behind the prompt (D.6) the memory cell is surely in supp(μ).",
        broken="the prompt is (D.6)",
        unneeded="stationarity (4.4) and Assumption D.5",
    ),
    Statement(
        name="Claim D.12",
        page=APPENDIX_D_3,
        claim="A prompt can only take states away from what the text allows.",
        broken="P[H₀] has full support (4.4)",
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough; Assumption D.5",
    ),
    Statement(
        name="Lemma D.13",
        page=APPENDIX_D_3,
        claim="Lemma D.4 behind the prompt; where prompt and text exclude each other, the value is 0.",
        broken="independent columns of W (D.5)",
        unneeded="ergodicity",
    ),
    Statement(
        name="Claim D.14",
        page=APPENDIX_D_3,
        claim="The prompt (D.6) multiplies μᵀP[M | x] by one over its own probability, and does nothing else to it.",
        broken="P[H₀] is stationary (4.4)",
        unneeded="ergodicity, Assumption D.5",
    ),
    Statement(
        name="Claim D.15",
        page=APPENDIX_D_3,
        claim="Where prompt and text exclude each other, μᵀP[M | x] = 0; where x̂₋ᵢ is impossible, Ḡᵢ = 0.",
        broken="the prompt is 1 on all of supp(μ)",
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough; Assumption D.5",
    ),
    Statement(
        name="Certificate",
        page=SOLVABLE,
        label="ours-thm-O-3",
        claim="Any guess within ε of Ḡ that sums to 1 gets the right label where |μᵀp| > δ + ε κ dᵀp.",
        broken="the guess sums to 1",
        least_share=0.8,  # some models have no text that can be certified
    ),
    Statement(
        name="Exactness",
        page=SOLVABLE,
        label="ours-thm-O-2",
        claim="If μ takes both signs, prompt and head are right for every belief if and only if ν is a positive multiple of μ.",
        broken="ν is a multiple of μ",
        least_share=0.8,  # some ν have one sign only
    ),
    Statement(
        name="Separable votes",
        page=SOLVABLE,
        label="ours-thm-O-4",
        claim="If A is a permutation, prompt and head exist for every task whose votes a head can tell apart, and no other.",
        broken="a head can tell the votes apart",
    ),
    Statement(
        name="Several classes",
        page=SOLVABLE,
        label="ours-cor-O-5",
        claim="With independent columns of W, one head for each class ranks the classes of every possible x as μₖᵀp does.",
        broken="one rₓ for all classes",
        least_share=0.4,  # one class may win on all short inputs
    ),
    Statement(
        name="Relabelling",
        page=TUNED_PROMPT,
        label="ours-prop-O-1",
        claim="|H||X| gated units say W p without a prompt, and R p behind one, for any R that gives each state one token.",
        broken="the gates",
    ),
)


def find(name: str) -> Statement:
    """The statement of that name. ValueError where there is none."""
    found = [statement for statement in STATEMENTS if statement.name == name]
    if not found:
        raise ValueError(f"no statement {name!r}; there are {', '.join(s.name for s in STATEMENTS)}")
    return found[0]
