"""What the ledger says of a statement, in words. An entry is a dictionary with the fields of `hmmbook.evidence`."""

from __future__ import annotations

CONDITION = "condition"
"""The ruling of an assumption: it claims nothing, so it can only be met or not."""
RULINGS = ("holds", "slip", "gap in a proof", "false statement", CONDITION)
RANKS = "ranks in rational numbers"
WITNESSES = {
    "Assumption 3.1": RANKS,
    "Assumption 3.2": "powers of the pattern of zeros of A, in integers",
    "Assumption 3.5": RANKS,
    "Assumption 4.2": RANKS,
    "Assumption 4.4": "the null space of A − 1",
    "Assumption 4.5": RANKS,
    "Assumption D.5": RANKS,
}
"""What the library's test of each assumption is compared with."""
BOUND = 1e-10
"""Of residuals, unless a statement has its own; the page names it."""
HYPOTHESES = ("regularity", "ergodicity", "stationarity", "full support", "Assumption D.5")
"""By which words the ledger names hypotheses that are not needed."""


def is_assumption(entry: dict) -> bool:
    """Tell whether a statement is an assumption of the paper."""
    return entry["name"].startswith("Assumption")


def ruling(entry: dict) -> str:
    """Give the ruling of a statement, one of RULINGS."""
    return CONDITION if is_assumption(entry) else entry["grade"]


def kind(entry: dict) -> str:
    """Say that a statement is a theorem, a lemma, and so on, or that it is ours."""
    return "ours" if entry["ours"] else entry["name"].split()[0].lower()


# Hypotheses that are not needed


def clauses(entry: dict) -> list[tuple[str, str]]:
    """Split what a statement does not need: each hypothesis, and what is enough in its place, or ""."""
    pairs = []
    for clause in entry["unneeded"].split(";"):
        hypothesis, _, enough = clause.strip().partition(": ")
        pairs.append((hypothesis, enough))
    return pairs


def not_needed(entry: dict) -> str:
    """List the hypotheses, with what is enough in brackets: "regularity (it is enough that …)"."""
    items = []
    for hypothesis, enough in clauses(entry):
        items.append(f"{hypothesis} ({enough})" if enough else hypothesis)
    return ", ".join(items)


def without(hypothesis: str, entries: list[dict]) -> tuple[list[dict], list[dict]]:
    """Find the statements that do not need a hypothesis at all, and those that need a part of it, or another prompt."""
    not_at_all = []
    not_in_full = []
    for entry in entries:
        for clause, enough in clauses(entry):
            if hypothesis not in clause:
                continue
            if enough or ", with " in clause:
                not_in_full.append(entry)
            else:
                not_at_all.append(entry)
    return not_at_all, not_in_full


# The ruling and the evidence


def reasons(entry: dict) -> list[str]:
    """Say in a sentence each what a ruling rests on, and which hypotheses are not needed."""
    models = f"{entry['instances']:,} random models"
    if is_assumption(entry):
        verb = "agrees" if entry["verdict"] == "holds" else "disagrees"
        witness = WITNESSES[entry["name"]]
        return [f"What was checked is the library's test: it {verb} with {witness}, on {models}."]
    sentences = []
    if entry["printed"] != entry["verdict"]:
        sentences.append(f"As printed, it is off in {entry['printed_failures']:,} of {models}.")
    if entry["corrected"]:
        sentences.append(f"It {entry['verdict']} in this form: {entry['corrected']}.")
    if entry["unneeded"]:
        sentences.append(f"Not needed: {not_needed(entry)}.")
    return sentences


def evidence(entry: dict) -> list[str]:
    """Say in a line each what speaks for a statement."""
    return [floating_point(entry), negative_control(entry)]


def floating_point(entry: dict) -> str:
    models = f"{entry['instances']:,} random models"
    trivial = entry["instances"] - entry["nontrivial"]
    if trivial:
        models += f", {trivial:,} of them trivial"
    if is_assumption(entry):
        return f"{models}."
    residual = "not a number"
    if entry["residual"] is not None:
        residual = f"{entry['residual']:.0e}".replace("0e+00", "0")
    if entry["tolerance"] != BOUND:
        residual += f", bound {entry['tolerance']:.0e}"
    return f"Floating point: {models}; residual {residual}."


def negative_control(entry: dict) -> str:
    failure = "the model is refused" if is_assumption(entry) else "the conclusion fails"
    counts = f"{entry['control_fails']} of {entry['control_instances']}"
    return f"Control: without “{entry['broken']}” {failure} in {counts}."
