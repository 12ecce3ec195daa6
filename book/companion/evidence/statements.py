"""The paper's numbered statements and assumptions, and some of ours: what is claimed, what checks it, the ruling."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from companion.evidence.random_models import appendix_d1, appendix_d3, assumptions, ours, section_3
from companion.evidence.random_models.instances import Checked, Printed

HOLDS, FAILS = "holds", "fails"
SLIP, GAP, FALSE = "slip", "gap in a proof", "false statement"
GRADES = HOLDS, SLIP, GAP, FALSE
"""The least grave first: every reader mends a slip, a gap needs another argument, what is false has to change."""

SECTION_3, PROMPT = "notebooks/3-hmm", "notebooks/3-1-prompt"
ATTENTION, MEMORY_PROMPT = "notebooks/4-1-attention-head", "notebooks/4-2-memory-prompt"
APPENDIX_B, APPENDIX_C = "notebooks/appendix-b", "notebooks/appendix-c"
APPENDIX_D, APPENDIX_D_3 = "notebooks/appendix-d", "notebooks/appendix-d-3"
SOLVABLE = "notebooks/solvable"

CHECKS = vars(section_3) | vars(appendix_d1) | vars(appendix_d3) | vars(assumptions) | vars(ours)
KINDS = {"Assumption": "asm", "Theorem": "thm", "Proposition": "prop", "Claim": "claim", "Lemma": "lem"}


@dataclass(frozen=True)
class Statement:
    """One numbered statement of the paper, or one assumption; or a statement of ours that goes beyond it.

    `page` of the book derives it, in a box with a `label` (if left out, by the paper's number); `claim` is it in our
    words. Residuals up to `tolerance` pass; `broken` names the hypothesis that the control drops; the control breaks
    the conclusion in a share of its instances of at least `least_share`. `grade` is the ruling on the form as printed
    and its proof, one of GRADES, and `corrected` states what holds where that is not all. `unneeded` names hypotheses
    that were found not to be needed.

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
            object.__setattr__(self, part, getattr(self, part) or CHECKS.get(named))

    @property
    def ours(self) -> bool:
        """Whether it is not the paper's."""
        return self.label.startswith("ours")


STATEMENTS = (
    Statement("Assumption 3.1", SECTION_3, "The columns of W are linearly independent.", "independent columns of W"),
    Statement("Assumption 3.2", SECTION_3, "The chain is ergodic and P[H₀] has full support.",
        "ergodic, or full support"),
    Statement("Theorem 3.3", SECTION_3,
        "With independent columns of W, one linear head on G₁ of (∅, x) gives every possible x its label.",
        "independent columns of W (3.1)", least_share=0.3,  # with dependent columns some tasks still have a head
        unneeded="regularity: it is enough that H₁ can be wherever H₀ can"),
    Statement("Proposition 3.4", SECTION_3,
        "If U ⊥ V | Z, then P[U | V = v] = P[U | Z] P[Z | V = v], and a left inverse of P[U | Z] undoes it.",
        "U ⊥ V | Z"),
    Statement("Assumption 3.5", PROMPT,
        "The columns of W at H* ⊇ supp(μ) are independent, and H* is all that some states reach in one step.",
        "independent columns at H*, or the way into H*"),
    Statement("Theorem 3.6", PROMPT,
        "One prompt and one linear head on Ḡ₂ give every possible x its label, if W is independent on H*.",
        "independent columns of W at H* (3.5)", unneeded="regularity: it is enough that H₁ can be in all of B"),
    Statement("Assumption 4.2", ATTENTION,
        "The columns of W at M × H* are independent, and their span meets that of all others in 0 only.",
        "disjoint spans, or independent columns"),
    Statement("Theorem 4.3", ATTENTION,
        "One attention head on G(x) and e(x) gives every x of 𝓡 its label, a sign of a memory posterior.",
        "independent columns of W at M × H* (4.2)", unneeded="regularity (3.2), all of it"),
    Statement("Assumption 4.4", MEMORY_PROMPT, "Assumption 3.2 holds, and P[H₀] is stationary.",
        "P[H₀] = A P[H₀], or ergodic"),
    Statement("Assumption 4.5", MEMORY_PROMPT, "Assumption 4.2 with the memory values in supp(μ) only; one cell.",
        "disjoint spans"),
    Statement("Theorem 4.6", MEMORY_PROMPT,
        "One prompt and one attention head on Ḡ give every x of 𝓡 its label, under Assumption 4.5.",
        "independent columns (4.5), for the prompt (D.6)",
        unneeded="stationarity and regularity, with another prompt, where H₁ can be wherever H₀ can"),
    Statement("Claim B.1", APPENDIX_B,
        "The posterior of Hᵢ given the text after it is that of H₀ given the same text, rescaled by one diagonal D.",
        "P[H₀] has full support (3.2)", unneeded="ergodicity: full support of P[H₀] and P[Hᵢ] is enough"),
    Statement("Lemma C.1", APPENDIX_C,
        "Ḡ with a prompt is the conditional distribution of a process with one more token, emitted with u.",
        "X̂ emits like X after the first step"),
    Statement("Lemma C.2", APPENDIX_C,
        "Given prompt and text, H₂ has the distribution P[z̃, H₂] ⊙ P[H₀ | x], rescaled by one diagonal D.",
        "P[H₀] has full support (3.2)", unneeded="ergodicity"),
    Statement("Proposition D.1", APPENDIX_D,
        "Gᵢ(x) is the mixture of columns of W with the weights P[M_J, J, S | x₋ᵢ].",
        "a token depends on one memory cell only", grade=SLIP,
        corrected="with the conditional P[M_J, J, S | X₋ᵢ = x₋ᵢ] on the right, as in (D.1), not the joint"),
    Statement("Lemma D.2", APPENDIX_D,
        "A query and a key attend exactly to the positions whose state is surely in H*.",
        "disjoint spans (4.2)", grade=SLIP, unneeded="regularity (3.2)",
        corrected="q has |H| + 1 entries, as in (4.1), the last of them 0; as printed it is true of a head without β"),
    Statement("Claim D.3", APPENDIX_D, "Matrices Θ⁽¹⁾ and Θ⁽²⁾ read P[Hᵢ | x₋ᵢ] on H* and P[M, Hᵢ | x₋ᵢ] off Gᵢ(x).",
        "disjoint spans (4.2)", grade=GAP, unneeded="regularity (3.2)",
        corrected="as printed; the proof needs linear independence, as assumed, in place of pairwise disjoint spans"),
    Statement("Lemma D.4", APPENDIX_D,
        "At a position whose state is surely in H*, the value function is a positive multiple of μᵀP[M | x].",
        "independent columns of W at M × H* (4.2)", unneeded="regularity (3.2)"),
    Statement("Assumption D.5", APPENDIX_D_3,
        "Assumption 4.5 for several cells: of the other cells, all memory values count.",
        "disjoint from the values of other cells"),
    Statement("Theorem D.6", APPENDIX_D_3,
        "Theorem 4.6 for several memory cells, with embeddings and head as appendix D.3 defines them.",
        "independent columns (D.5), for the prompt (D.6)", grade=SLIP,
        corrected="u has |M|ᴺ|H| entries; embedding and head are those of appendix D.3",
        unneeded="stationarity and regularity, with another prompt, where H₁ can be wherever H₀ can"),
    Statement("Lemma D.7", APPENDIX_D, "Lemma C.1 for memory models, with a lifted prompt.",
        "X̂ emits like X after the first step", grade=SLIP,
        corrected="with u of |M|ᴺ|H| entries, one for each lifted state, not |H|",
        unneeded="stationarity (4.4) and Assumption D.5"),
    Statement("Proposition D.8", APPENDIX_D_3,
        "From any step on, memory, state and the text after it have one and the same distribution.",
        "P[H₀] is stationary (4.4)", unneeded="ergodicity, full support, Assumption D.5"),
    Statement("Lemma D.9", APPENDIX_D_3,
        "With the prompt, the head attends to all positions whose state is surely in H* given prompt and text.",
        "disjoint spans (D.5)", grade=FALSE, unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough",
        corrected="Î ⊆ 𝓘, the positions that are sure given the prompt and the other tokens; "
        "𝓩 over i = 2, …, t + 1; β₁ low enough"),
    Statement("Claim D.10", APPENDIX_D_3,
        "Claim D.3 on Ḡᵢ with the prompt (D.6), with memory values in supp(μ) only.",
        "disjoint spans (D.5)", grade=GAP, unneeded="stationarity (4.4)",
        corrected="as printed; the proof needs linear independence, as assumed, in place of pairwise disjoint spans"),
    Statement("Proposition D.11", APPENDIX_D_3, "With the prompt (D.6) the memory cell is surely in supp(μ).",
        "the prompt is (D.6)", unneeded="stationarity (4.4) and Assumption D.5"),
    Statement("Claim D.12", APPENDIX_D_3, "A prompt can only take states away from what the text allows.",
        "P[H₀] has full support (4.4)",
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough; Assumption D.5"),
    Statement("Lemma D.13", APPENDIX_D_3,
        "Lemma D.4 with the prompt; where prompt and text exclude each other, the value is 0.",
        "independent columns of W (D.5)", unneeded="ergodicity"),
    Statement("Claim D.14", APPENDIX_D_3,
        "The prompt (D.6) divides μᵀP[M | x] by the probability of the fake token given x.",
        "P[H₀] is stationary (4.4)", unneeded="ergodicity, Assumption D.5"),
    Statement("Claim D.15", APPENDIX_D_3,
        "Where prompt and text exclude each other, μᵀP[M | x] = 0; where x̂₋ᵢ is impossible, Ḡᵢ = 0.",
        "the prompt is 1 on all of supp(μ)",
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough; Assumption D.5"),
    Statement("Certificate", SOLVABLE,
        "Any guess within ε of Ḡ that sums to 1 gets the right label where |μᵀp| > δ + ε κ dᵀp.",
        "the guess sums to 1", "ours-thm-O-3",
        least_share=0.8),  # some models have no text that can be certified
    Statement("Exactness", SOLVABLE,
        "If μ takes both signs, prompt and head are right for every belief if and only if ν is a positive multiple of "
        "μ.",
        "ν is a multiple of μ", "ours-thm-O-2", least_share=0.8),  # some ν have one sign only
    Statement("Separable signs", SOLVABLE,
        "If A is a permutation, prompt and head exist for a task if and only if some head gives the columns of W "
        "scores with the signs of μ.",
        "a head gives the columns of W the signs of μ", "ours-thm-O-4"),
    Statement("Several classes", SOLVABLE,
        "With independent columns of W, one head for each class ranks the classes of every possible x as μₖᵀp does.",
        "one rₓ for all classes", "ours-cor-O-5", least_share=0.4),  # one class may win on all short inputs
    Statement("Relabelling", SOLVABLE,
        "|H||X| gated units output W p without a prompt, and R p with one, for any R that gives each state one "
        "token.",
        "the gates", "ours-prop-O-1"),
)  # fmt: skip


def find(name: str) -> Statement:
    """The statement of that name. ValueError where there is none."""
    for statement in STATEMENTS:
        if statement.name == name:
            return statement
    raise ValueError(f"no statement {name!r}; there are {', '.join(s.name for s in STATEMENTS)}")
