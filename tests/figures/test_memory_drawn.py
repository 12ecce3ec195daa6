"""The figures and tables of Section 4 show the numbers that they are given."""

import matplotlib
import numpy as np
import pytest

from hmmbook.evidence import ledger
from hmmbook.evidence.random_models.memory_sums import Comparison, compare_many
from hmmbook.figures import figures, memory


def texts(figure: matplotlib.figure.Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def line(figure: matplotlib.figure.Figure, label: str) -> list[float]:
    lines = {drawn.get_label(): drawn for drawn in figure.axes[0].lines}
    return list(lines[label].get_ydata())


def test_values_stand_above_the_attended_words_only():
    figure = memory.attention_with_values(["a", "cow", "the"], [0.1, 1.0, 0.2], [False, True, False], [0.3, 0.25, 0.4])

    assert texts(figure) == ["value 0.25"]
    assert figure.axes[0].texts[0].get_position()[0] == 2


def test_the_entropy_of_each_cell_and_of_the_first_state_is_drawn_at_each_length():
    figure = memory.remaining_entropy([1, 2], {"subject": [0.9, 0.5]}, [0.4, 0.2])

    assert line(figure, "subject") == [0.9, 0.5]
    assert line(figure, "H_0") == [0.4, 0.2]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["1", "2"]


def test_the_axis_of_accuracies_goes_down_to_the_lowest():
    assert memory.accuracy_by_angle([0.1, 1], [0.3, 0.9]).axes[0].get_ylim()[0] == 0.3
    assert memory.accuracy_by_angle([0.1, 1], [0.8, 0.9]).axes[0].get_ylim()[0] == 0.48


def test_a_matrix_and_its_copies_are_drawn_without_ticks():
    figures.use_style()

    figure = memory.blocks(np.eye(2), np.eye(4))

    assert [axes.get_title("left") for axes in figure.axes] == ["A", "chain on (M, H)"]
    assert all(not len(axes.get_xticks()) for axes in figure.axes)


def test_each_strip_has_the_columns_that_its_prediction_mixes_and_the_threshold_of_its_word():
    points = {("without", "sun"): ([0.1, 0.9], [False, True]), ("with", "sun"): ([0.4, 0.6], [False, True])}
    columns = {"without": {"dull": [0, 0.3, 0.7], "heat": [0, 1, 0]}, "with": {"dull": [0, 0.3, 0.7]}}

    figure = memory.thresholds(points, columns, {"sun": 0.5})

    axes = figure.axes[0]
    crosses = [marks.get_offsets()[:, 0].tolist() for marks in axes.collections if "column" in marks.get_label()]
    cuts = [drawn.get_xdata()[0] for drawn in axes.lines if "threshold" in drawn.get_label()]
    assert crosses == [[0.3, 1], [0.3]]
    assert cuts == [0.5, 0.5]
    assert texts(figure) == ["dull", "heat"]


def test_a_row_has_an_input_and_numbers_labels_or_distributions():
    columns = {"p": [0.25, 1.0], "label": [True, False], "G": [[0.5, 0.5], [0, 1]]}

    table = memory.by_input([[0, 1], [1, 1]], columns)

    assert table.head == ["input", "p", "label", "G"]
    assert table.rows == [["(0, 1)", "0.25", "1", "0.50, 0.50"], ["(1, 1)", "1.00", "0", "0.00, 1.00"]]


def test_inputs_are_shown_in_words_if_there_are_names():
    assert memory.by_input([[0, 1]], {"p": [0.5]}, ["the", "cow"]).rows == [["the cow", "0.50"]]


def test_models_are_counted_by_their_cells():
    table = memory.sums_by_cells(compare_many(12, seed=0))

    assert table.head == ["", "1 cell", "2 cells", "3 cells"]
    assert sum(map(int, table.rows[0][1:])) == 12
    assert [row[0] for row in table.rows[1:]] == ["G", "P[M_J, J, S | x_-i], (D.1)", "P[M_j | x]", "G, flattened"]


def test_a_library_that_is_wrong_is_no_row_of_the_table():
    wrong = Comparison(1, {"G": (np.array([0.5]), np.array([0.6]))})

    with pytest.raises(AssertionError, match="they differ by 1e-01"):
        memory.sums_by_cells([wrong])


def test_a_statement_is_shown_as_corrected_as_printed_and_without_its_assumption():
    entry = ledger.run(ledger.find("Proposition D.1"), 5, 0)

    rows = dict(memory.printed_and_corrected(entry).rows)

    assert rows["with the conditional, as here"].startswith("holds in 5, up to ")
    assert rows["with the joint, as printed"] == f"off in {entry.printed_failures} of 5"
    assert rows["without “a token depends on one memory cell only”"].startswith("fails in 5 of 5")
