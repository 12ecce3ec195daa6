"""The notebooks' tables and lines say what was computed, and a check that fails is an AssertionError."""

import math
from dataclasses import replace

import numpy as np
import pytest
from companion.evidence import ledger
from companion.figures import tables
from companion.figures.tables import Table, difference, one_digit, table_of

from hmmlib.experiments.results import mean_ci, results
from hmmlib.experiments.store import STORE
from hmmlib.models.families import recoverable_memory_hmm
from hmmlib.theory.assumptions import assumption_4_2


def test_a_difference_is_the_largest_of_any_entry_and_is_bounded():
    ones = np.ones((2, 3))
    assert difference((ones, ones), (ones, ones + 4e-16)) == "4e-16"
    assert difference((ones, ones + 1e-11), bound=1e-10) == "1e-11"
    for pairs, message in (
        ([(ones, ones), (ones, ones + 1e-11)], "differ by 1e-11, which is above 1e-12"),
        ([(ones, ones * np.nan)], "differ by nan"),
        ([([], [])], "nothing is compared"),
    ):
        with pytest.raises(AssertionError, match=message):
            difference(*pairs)


def test_what_was_checked_is_one_line(capsys):
    model, cell, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0)
    tables.agree("one and two", ([1.0, 2.0], [1.0, 2.0 + 5e-16]))
    tables.recovered(good := assumption_4_2(model, cell, syntax))
    tables.recovered(assumption_4_2(model, cell, [0, 1]))
    said, holds, fails = capsys.readouterr().out.splitlines()
    assert said == "one and two: largest difference 4e-16"
    assert holds == f"Assumption 4.2 holds: 2 columns of rank 2, at an angle of {good.angle:.2f} to the others"
    assert fails.startswith("Assumption 4.2 does not hold: 4 columns of rank ")


def test_numbers_and_sets_are_short():
    assert tables.digits([[0.25, -1e-15]]) == ["0.250", "0.000"]
    assert [tables.as_set([0, 1, 1]), tables.as_set([0])] == ["{2, 3}", "{}"]
    numbers = {0: "0", 89.0: "90", 0.00138: "0.001", -0.55: "-0.6", 9999: "1·10⁴", 3.6e-5: "4·10⁻⁵"}
    assert {value: one_digit(value) for value in numbers} == numbers
    assert tables.subscripts("P[H_0 = a], β_1, Ḡ_2(x), H_10") == "P[H₀ = a], β₁, Ḡ₂(x), H_10"


def test_a_table_is_escaped_and_has_every_cell_and_intervals_stand_small_below():
    shown = Table(["a", "<b>"], [["1", "2 & 3"], ["0.5 [0.1, 0.9]", ""]])._repr_html_()
    assert shown.count("<tr>") == 3
    for cell in ("<th>&lt;b&gt;</th>", "<td>2 &amp; 3</td>", "<td></td>", "<td>0.5<br><small ", ">[0.1, 0.9]</small>"):
        assert cell in shown


def test_a_table_of_results_has_a_column_for_each_group():
    groups, rows = results("smoke", STORE).groupby("size"), {"head": "head_accuracy", "prompt": "prompt_accuracy"}
    found, narrow = table_of(groups, rows, ".1%", "|H| ="), table_of(groups, rows, ".1%", "% right", alone=True)
    assert found.head == ["|H| =", *(f"{n} ({len(group)})" for n, group in groups)]
    assert narrow.head == ["% right", *(str(n) for n, _ in groups)]
    for (name, *cells), (_, *alone) in zip(found.rows, narrow.rows, strict=True):
        assert cells == [str(mean_ci(group[rows[name]])) for _, group in groups]
        assert alone == ["–" if np.isnan(mean) else f"{100 * mean:.1f}" for mean in groups[rows[name]].mean()]


def test_predictions_stand_with_their_outcomes_and_rulings_are_those_on_record_or_an_error():
    table = tables.outcomes([("Rain.", "90%", True), ("Snow.", "0%", False), ("Hail.", f"{math.nan:.0%}", False)])
    assert [row[-1] for row in table.rows] == ["came true", "did not", "–"]
    entry = ledger.run(ledger.find("Lemma D.9"), 10, 0)
    ((name, _, grade, control),) = tables.rulings([entry]).rows
    assert (name, grade, control) == ("Lemma D.9", "false statement", "5 of 5 without “disjoint spans (D.5)”")
    with pytest.raises(AssertionError, match=r"Lemma D\.9 is not as recorded"):
        tables.rulings([replace(entry, verdict="fails")])
