"""Sixty mistakes in the source: the ledger alone notices nearly all of them, as the stored run says."""

import ast

import pytest
from record import slow
from sixty import RUN, applied, verdicts

ROWS = RUN["damages"]


def test_each_mistake_still_meets_its_line_and_most_change_a_verdict():
    for row in ROWS:
        ast.parse(applied(row))
    assert len({row["words"] for row in ROWS}) == len(ROWS) == 60
    assert sum(bool(row["noticed"]) for row in ROWS) >= 54


@slow
@pytest.mark.parametrize("row", ROWS, ids=[row["words"] for row in ROWS])
def test_a_mistake_changes_the_verdicts_that_it_changed(row):
    """In `make test`, test_the_check_notices in test_damage.py stands for it."""
    assert verdicts(row)["noticed"] == row["noticed"]
