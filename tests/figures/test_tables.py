"""The notebooks' tables and lines say what was computed, and a check that fails is an AssertionError."""

from dataclasses import replace

import numpy as np
import pytest

from hmmbook.evidence import ledger
from hmmbook.figures import tables
from hmmbook.figures.tables import Table, difference, one_digit

ONES = np.ones((2, 3))


def test_a_difference_is_the_largest_of_any_entry():
    assert difference((ONES, ONES), (ONES, ONES + 4e-16)) == "4e-16"
    assert difference((ONES, ONES + 1e-11), bound=1e-10) == "1e-11"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(ONES, ONES), (ONES, ONES + 1e-11)], "differ by 1e-11, which is above 1e-12"),
        ([(ONES, ONES * np.nan)], "differ by nan"),
        ([([], [])], "nothing is compared"),
        ([], "nothing is compared"),
    ],
)
def test_a_difference_is_bounded(pairs, message):
    with pytest.raises(AssertionError, match=message):
        difference(*pairs)


def test_what_was_compared_is_one_line(capsys):
    tables.agree("one and two", ([1.0, 2.0], [1.0, 2.0 + 5e-16]))
    assert capsys.readouterr().out == "one and two: largest difference 4e-16\n"


def test_numbers_and_sets_are_short():
    assert tables.digits([[0.25, -1e-15]]) == ["0.250", "0.000"]
    assert tables.as_set([0, 1, 1]) == "{2, 3}"
    assert tables.as_set([0]) == "{}"
    assert tables.subscripts("P[H_0 = a], β_1, Ḡ_2(x), H_10") == "P[H₀ = a], β₁, Ḡ₂(x), H_10"
    numbers = {0: "0", 89.0: "90", 0.00138: "0.001", -0.55: "-0.6", 9999: "1·10⁴", 3.6e-5: "4·10⁻⁵"}
    for value, text in numbers.items():
        assert one_digit(value) == text


def test_a_table_is_escaped_and_has_every_cell_and_intervals_stand_small_below():
    shown = Table(["a", "<b>"], [["1", "2 & 3"], ["0.5 [0.1, 0.9]", ""]])._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<th>&lt;b&gt;</th>" in shown
    assert "<td>2 &amp; 3</td>" in shown
    assert "<td></td>" in shown
    assert "<td>0.5<br><small " in shown
    assert ">[0.1, 0.9]</small>" in shown


OUTCOMES = [("90%", True, "came true"), ("0%", False, "did not"), ("nan%", False, "–"), ("1%", None, "not tested")]


@pytest.mark.parametrize(("share", "holds", "outcome"), OUTCOMES)
def test_a_prediction_stands_with_its_outcome(share, holds, outcome):
    table = tables.outcomes([("It rains.", share, holds)])
    assert table.rows[0][-1] == outcome


def test_rulings_are_those_on_record_or_an_error():
    entry = ledger.run(ledger.find("Lemma D.9"), 10, 0)
    ((name, _, grade, control),) = tables.rulings([entry]).rows
    assert name == "Lemma D.9"
    assert grade == "false statement"
    assert control == "5 of 5 without “disjoint spans (D.5)”"
    with pytest.raises(AssertionError, match=r"Lemma D\.9 is not as recorded"):
        tables.rulings([replace(entry, verdict="fails")])
