"""The list of statements: the paper's, in its order, and then ours."""

from __future__ import annotations

from hmmbook.evidence.random_models import appendix_d1, appendix_d3, assumptions, ours, section_3
from hmmbook.evidence.statement import FALSE, GAP, SLIP, Statement

SECTION_3 = "notebooks/3-hmm"
PROMPT = "notebooks/3-1-prompt"
ATTENTION = "notebooks/4-1-attention-head"
MEMORY_PROMPT = "notebooks/4-2-memory-prompt"
APPENDIX_B = "notebooks/appendix-b"
APPENDIX_C = "notebooks/appendix-c"
APPENDIX_D = "notebooks/appendix-d"
APPENDIX_D_3 = "notebooks/appendix-d-3"

KINDS = {"Assumption": "asm", "Theorem": "thm", "Proposition": "prop", "Claim": "claim", "Lemma": "lem"}
"""How a label on a page names each kind of statement."""
FUNCTIONS = vars(section_3) | vars(appendix_d1) | vars(appendix_d3) | vars(assumptions)
"""All checks of the paper's statements, by name."""


def of_the_paper(name: str, page: str, claim: str, broken: str, **fields) -> Statement:
    """Make the entry of a statement of the paper, whose number is in the names of its label and of its functions.

    Theorem 3.3 has the label `paper-thm-3-3` and the functions `check_theorem_3_3` and `control_theorem_3_3`. Where
    there is a `printed_…` or a `counterexample_…`, it measures the form as printed.

    Args:
        name: For example "Theorem 3.3".
        page: As in `Statement`, like all that follows.
        claim: What the statement claims.
        broken: The hypothesis that the control drops.
        **fields: Other fields of `Statement`.
    """
    kind, number = name.split()
    ending = f"{kind}_{number}".replace(".", "_").lower()
    return Statement(
        name=name,
        page=page,
        label=f"paper-{KINDS[kind]}-{number.replace('.', '-')}",
        claim=claim,
        check=FUNCTIONS[f"check_{ending}"],
        broken=broken,
        control=FUNCTIONS[f"control_{ending}"],
        printed=FUNCTIONS.get(f"printed_{ending}"),
        counterexample=FUNCTIONS.get(f"counterexample_{ending}"),
        **fields,
    )


STATEMENTS = (
    of_the_paper(
        "Assumption 3.1",
        SECTION_3,
        claim="The columns of W are linearly independent.",
        broken="independent columns of W",
    ),
    of_the_paper(
        "Assumption 3.2",
        SECTION_3,
        claim="The chain is ergodic and P[H₀] has full support.",
        broken="ergodic, or full support",
    ),
    of_the_paper(
        "Theorem 3.3",
        SECTION_3,
        claim="With independent columns of W, one linear head on G₁ of (∅, x) gives every possible x its label.",
        broken="independent columns of W (3.1)",
        # With dependent columns some tasks still have a head.
        least_share=0.3,
        unneeded="regularity: it is enough that H₁ can be wherever H₀ can",
    ),
    of_the_paper(
        "Proposition 3.4",
        SECTION_3,
        claim="If U ⊥ V | Z, then P[U | V = v] = P[U | Z] P[Z | V = v], and a left inverse of P[U | Z] undoes it.",
        broken="U ⊥ V | Z",
    ),
    of_the_paper(
        "Assumption 3.5",
        PROMPT,
        claim="The columns of W at H* ⊇ supp(μ) are independent, and H* is all that some states reach in one step.",
        broken="independent columns at H*, or the way into H*",
    ),
    of_the_paper(
        "Theorem 3.6",
        PROMPT,
        claim="One prompt and one linear head on Ḡ₂ give every possible x its label, if W is independent on H*.",
        broken="independent columns of W at H* (3.5)",
        unneeded="regularity: it is enough that H₁ can be in all of B",
    ),
    of_the_paper(
        "Assumption 4.2",
        ATTENTION,
        claim="The columns of W at M × H* are independent, and their span meets that of all others in 0 only.",
        broken="disjoint spans, or independent columns",
    ),
    of_the_paper(
        "Theorem 4.3",
        ATTENTION,
        claim="One attention head on G(x) and e(x) gives every x of 𝓡 its label, a sign of a memory posterior.",
        broken="independent columns of W at M × H* (4.2)",
        unneeded="regularity (3.2), all of it",
    ),
    of_the_paper(
        "Assumption 4.4",
        MEMORY_PROMPT,
        claim="Assumption 3.2 holds, and P[H₀] is stationary.",
        broken="P[H₀] = A P[H₀], or ergodic",
    ),
    of_the_paper(
        "Assumption 4.5",
        MEMORY_PROMPT,
        claim="Assumption 4.2 with the memory values in supp(μ) only; one cell.",
        broken="disjoint spans",
    ),
    of_the_paper(
        "Theorem 4.6",
        MEMORY_PROMPT,
        claim="One prompt and one attention head on Ḡ give every x of 𝓡 its label, under Assumption 4.5.",
        broken="independent columns (4.5), for the prompt (D.6)",
        unneeded="stationarity and regularity, with another prompt, where H₁ can be wherever H₀ can",
    ),
    of_the_paper(
        "Claim B.1",
        APPENDIX_B,
        claim=(
            "The posterior of Hᵢ given the text after it is that of H₀ given the same text, rescaled by one diagonal D."
        ),
        broken="P[H₀] has full support (3.2)",
        unneeded="ergodicity: full support of P[H₀] and P[Hᵢ] is enough",
    ),
    of_the_paper(
        "Lemma C.1",
        APPENDIX_C,
        claim="Ḡ with a prompt is the conditional distribution of a process with one more token, emitted with u.",
        broken="X̂ emits like X after the first step",
    ),
    of_the_paper(
        "Lemma C.2",
        APPENDIX_C,
        claim="Given prompt and text, H₂ has the distribution P[z̃, H₂] ⊙ P[H₀ | x], rescaled by one diagonal D.",
        broken="P[H₀] has full support (3.2)",
        unneeded="ergodicity",
    ),
    of_the_paper(
        "Proposition D.1",
        APPENDIX_D,
        claim="Gᵢ(x) is the mixture of columns of W with the weights P[M_J, J, S | x₋ᵢ].",
        broken="a token depends on one memory cell only",
        grade=SLIP,
        corrected="with the conditional P[M_J, J, S | X₋ᵢ = x₋ᵢ] on the right, as in (D.1), not the joint",
    ),
    of_the_paper(
        "Lemma D.2",
        APPENDIX_D,
        claim="A query and a key attend exactly to the positions whose state is surely in H*.",
        broken="disjoint spans (4.2)",
        grade=SLIP,
        corrected="q has |H| + 1 entries, as in (4.1), the last of them 0; as printed it is true of a head without β",
        unneeded="regularity (3.2)",
    ),
    of_the_paper(
        "Claim D.3",
        APPENDIX_D,
        claim="Matrices Θ⁽¹⁾ and Θ⁽²⁾ read P[Hᵢ | x₋ᵢ] on H* and P[M, Hᵢ | x₋ᵢ] off Gᵢ(x).",
        broken="disjoint spans (4.2)",
        grade=GAP,
        corrected="as printed; the proof needs linear independence, as assumed, in place of pairwise disjoint spans",
        unneeded="regularity (3.2)",
    ),
    of_the_paper(
        "Lemma D.4",
        APPENDIX_D,
        claim="At a position whose state is surely in H*, the value function is a positive multiple of μᵀP[M | x].",
        broken="independent columns of W at M × H* (4.2)",
        unneeded="regularity (3.2)",
    ),
    of_the_paper(
        "Assumption D.5",
        APPENDIX_D_3,
        claim="Assumption 4.5 for several cells: of the other cells, all memory values count.",
        broken="disjoint from the values of other cells",
    ),
    of_the_paper(
        "Theorem D.6",
        APPENDIX_D_3,
        claim="Theorem 4.6 for several memory cells, with embeddings and head as appendix D.3 defines them.",
        broken="independent columns (D.5), for the prompt (D.6)",
        grade=SLIP,
        corrected="u has |M|ᴺ|H| entries; embedding and head are those of appendix D.3",
        unneeded="stationarity and regularity, with another prompt, where H₁ can be wherever H₀ can",
    ),
    of_the_paper(
        "Lemma D.7",
        APPENDIX_D,
        claim="Lemma C.1 for memory models, with a lifted prompt.",
        broken="X̂ emits like X after the first step",
        grade=SLIP,
        corrected="with u of |M|ᴺ|H| entries, one for each lifted state, not |H|",
        unneeded="stationarity (4.4) and Assumption D.5",
    ),
    of_the_paper(
        "Proposition D.8",
        APPENDIX_D_3,
        claim="From any step on, memory, state and the text after it have one and the same distribution.",
        broken="P[H₀] is stationary (4.4)",
        unneeded="ergodicity, full support, Assumption D.5",
    ),
    of_the_paper(
        "Lemma D.9",
        APPENDIX_D_3,
        claim="With the prompt, the head attends to all positions whose state is surely in H* given prompt and text.",
        broken="disjoint spans (D.5)",
        grade=FALSE,
        corrected=(
            "Î ⊆ 𝓘, the positions that are sure given the prompt and the other tokens; 𝓩 over i = 2, …, t + 1; β₁ "
            "low enough"
        ),
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough",
    ),
    of_the_paper(
        "Claim D.10",
        APPENDIX_D_3,
        claim="Claim D.3 on Ḡᵢ with the prompt (D.6), with memory values in supp(μ) only.",
        broken="disjoint spans (D.5)",
        grade=GAP,
        corrected="as printed; the proof needs linear independence, as assumed, in place of pairwise disjoint spans",
        unneeded="stationarity (4.4)",
    ),
    of_the_paper(
        "Proposition D.11",
        APPENDIX_D_3,
        claim="With the prompt (D.6) the memory cell is surely in supp(μ).",
        broken="the prompt is (D.6)",
        unneeded="stationarity (4.4) and Assumption D.5",
    ),
    of_the_paper(
        "Claim D.12",
        APPENDIX_D_3,
        claim="A prompt can only take states away from what the text allows.",
        broken="P[H₀] has full support (4.4)",
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough; Assumption D.5",
    ),
    of_the_paper(
        "Lemma D.13",
        APPENDIX_D_3,
        claim="Lemma D.4 with the prompt; where prompt and text exclude each other, the value is 0.",
        broken="independent columns of W (D.5)",
        unneeded="ergodicity",
    ),
    of_the_paper(
        "Claim D.14",
        APPENDIX_D_3,
        claim="The prompt (D.6) divides μᵀP[M | x] by the probability of the fake token given x.",
        broken="P[H₀] is stationary (4.4)",
        unneeded="ergodicity, Assumption D.5",
    ),
    of_the_paper(
        "Claim D.15",
        APPENDIX_D_3,
        claim="Where prompt and text exclude each other, μᵀP[M | x] = 0; where x̂₋ᵢ is impossible, Ḡᵢ = 0.",
        broken="the prompt is 1 on all of supp(μ)",
        unneeded="stationarity: equal supports of P[H₀] and P[H₁] are enough; Assumption D.5",
    ),
    *ours.STATEMENTS,
)


def find(name: str) -> Statement:
    """Return a statement.

    Args:
        name: For example "Theorem 3.3".

    Raises:
        ValueError: no statement has that name.
    """
    for statement in STATEMENTS:
        if statement.name == name:
            return statement
    names = ", ".join(statement.name for statement in STATEMENTS)
    raise ValueError(f"The ledger has no statement {name!r}. Its statements are {names}.")
