"""What the picture of appendix D and the sentences on it say, from the ledger and the figure."""

from hmmbook.evidence import ledger
from hmmbook.evidence.statement import FALSE, GAP, HOLDS, SLIP
from hmmbook.figures.appendices import ARROWS, PLACES, PROVED_FIRST

STATEMENTS = [statement for statement in ledger.STATEMENTS if " D." in statement.name]
RESULTS = [statement for statement in STATEMENTS if statement.name != "Assumption D.5"]


def used_by(name: str) -> set[str]:
    """The statements that the proof of another one uses, directly or through others."""
    direct = {used for used, user in ARROWS if user == name}
    return direct.union(*map(used_by, direct))


def numbers_graded(grade: str) -> set[str]:
    return {statement.name.split()[1] for statement in RESULTS if statement.grade == grade}


def test_fourteen_results_are_drawn_and_theorems_4_3_and_4_6():
    drawn = {name.removeprefix("Theorem ") for name in PLACES}

    assert len(RESULTS) == 14
    assert drawn - {"4.3", "4.6"} == {statement.name.split()[1] for statement in RESULTS}


def test_one_is_false_as_printed_four_have_a_slip_and_two_a_gap():
    assert numbers_graded(FALSE) == {"D.9"}
    assert numbers_graded(SLIP) == {"D.1", "D.2", "D.6", "D.7"}
    assert numbers_graded(GAP) == {"D.3", "D.10"}
    assert len(numbers_graded(HOLDS)) == 14 - 1 - 4 - 2


def test_d_1_d_3_and_d_4_serve_both_theorems():
    assert used_by("Theorem 4.3") & used_by("Theorem D.6") == {"D.1", "D.3", "D.4"}


def test_the_shaded_statements_are_those_that_this_page_proves():
    pages = {statement.name.split()[1]: statement.page for statement in STATEMENTS}
    proved = {number for number, page in pages.items() if page == "notebooks/appendix-d"}

    assert proved | {"Theorem 4.3"} == set(PROVED_FIRST)
