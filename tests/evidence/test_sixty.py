"""Sixty mistakes in the source: the ledger alone notices nearly all of them, as the stored run says."""

import ast

from sixty import RUN, applied


def test_each_mistake_still_meets_its_line_and_most_change_a_verdict():
    rows = RUN["damages"]
    for row in rows:
        ast.parse(applied(row))
    assert len({row["words"] for row in rows}) == len(rows) == 60
    assert sum(bool(row["noticed"]) for row in rows) >= 54
