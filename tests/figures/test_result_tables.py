"""Tables of the notebooks: what they show is what the results hold."""

import math
import re

import numpy as np
import pytest
from companion.figures.tables import (
    Table,
    agree,
    as_set,
    difference,
    digits,
    one_digit,
    outcomes,
    recovered,
    table_of,
)

from hmmlib.experiments.results import mean_ci, results
from hmmlib.experiments.store import STORE
from hmmlib.models.families import recoverable_memory_hmm
from hmmlib.theory.assumptions import assumption_4_2


def test_a_difference_is_the_largest_of_any_entry_and_is_bounded():
    ones = np.ones((2, 3))
    assert difference((ones, ones), (ones, ones + 4e-16)) == "4e-16"
    assert difference((ones, ones)) == "0"
    with pytest.raises(AssertionError, match="differ by 1e-11, which is above 1e-12"):
        difference((ones, ones), (ones, ones + 1e-11))
    assert difference((ones, ones + 1e-11), bound=1e-10) == "1e-11"
    with pytest.raises(AssertionError, match="differ by nan"):
        difference((ones, ones * np.nan))
    for nothing in ([], [([], [])]):
        with pytest.raises(AssertionError, match="nothing is compared"):
            difference(*nothing)


def test_an_agreement_is_one_line(capsys):
    agree("one and two", ([1.0, 2.0], [1.0, 2.0 + 5e-16]))
    assert capsys.readouterr().out == "one and two: largest difference 4e-16\n"


def test_what_was_found_of_recoverable_columns_is_one_line(capsys):
    model, cell, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0)
    report = assumption_4_2(model, cell, syntax)
    recovered(report)
    recovered(assumption_4_2(model, cell, [0, 1]))
    good, bad = capsys.readouterr().out.splitlines()
    assert good == f"Assumption 4.2 holds: 2 columns of rank 2, at an angle of {report.angle:.2f} to the others"
    assert bad.startswith("Assumption 4.2 does not hold: 4 columns of rank ")


def test_digits_are_without_a_minus_that_says_nothing():
    assert digits([[0.25, -0.0], [-1e-15, -2.0]]) == ["0.250", "0.000", "0.000", "-2.000"]
    assert digits([1.0], ".0f") == ["1"]


def test_marked_positions_are_a_set():
    assert as_set([False, True, True]) == "{2, 3}"
    assert as_set([True, False], 0) == "{0}"
    assert as_set([False]) == "{}"


def test_a_table_is_escaped_and_has_every_cell():
    shown = Table(["a", "<b>"], [["1", "2 & 3"], ["x", ""]])._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<th>&lt;b&gt;</th>" in shown
    assert "<td>2 &amp; 3</td>" in shown
    assert re.search(
        r"<td>0\.5<br><small [^>]*>\[0\.1, 0\.9\]</small></td>", Table([""], [["0.5 [0.1, 0.9]"]])._repr_html_()
    )


def test_outcomes_say_of_each_prediction_whether_it_came_true():
    table = outcomes([("It rains.", "90%", True), ("It snows.", "0%", False), ("It hails.", f"{math.nan:.0%}", False)])
    assert table.rows == [
        ["It rains.", "90%", "came true"],
        ["It snows.", "0%", "did not"],
        ["It hails.", "no such trials", "–"],
    ]


def test_a_table_of_results_has_a_column_for_each_group():
    table = results("smoke", STORE)
    groups = table.groupby("size")
    rows = {"head": "head_accuracy", "prompt": "prompt_accuracy"}
    found, narrow = table_of(groups, rows, ".1%", "|H| ="), table_of(groups, rows, ".1%", "% right", alone=True)
    assert found.head == ["|H| =", *(f"{n} ({len(group)})" for n, group in groups)]
    assert narrow.head == ["% right", *(str(n) for n, _ in groups)]
    for name, *cells in found.rows:
        assert cells == [str(mean_ci(group[rows[name]])) for _, group in groups]
    for name, *cells in narrow.rows:
        means = groups[rows[name]].mean()
        assert cells == ["–" if np.isnan(mean) else f"{100 * mean:.1f}" for mean in means]


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (89.0, "90"), (499, "500"), (0.00138, "0.001"), (0.55, "0.6"), (1.1e7, "1·10⁷"), (3.6e-5, "4·10⁻⁵"),
     (9999, "1·10⁴"), (-0.5, "-0.5")],
)  # fmt: skip
def test_a_number_of_one_digit(value, said):
    assert one_digit(value) == said
