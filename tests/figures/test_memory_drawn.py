"""The figures and tables of Section 4 show the numbers that they are given."""

import matplotlib

from hmmbook.figures import memory


def texts(figure: matplotlib.figure.Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def line(figure: matplotlib.figure.Figure, label: str) -> list[float]:
    lines = {drawn.get_label(): drawn for drawn in figure.axes[0].lines}
    return list(lines[label].get_ydata())


def test_values_stand_above_the_attended_words_only():
    figure = memory.attention_with_values(["a", "cow", "the"], [0.1, 1.0, 0.2], [False, True, False], [0.3, 0.25, 0.4])

    assert texts(figure) == ["value 0.25"]
    assert figure.axes[0].texts[0].get_position()[0] == 2


def test_the_belief_in_the_truth_is_drawn_at_each_length_with_a_name_on_each_line():
    figure = memory.belief_in_the_truth([1, 2, 4], [0.3, 0.5, 0.9], [0.4, 0.6, 0.6])

    assert line(figure, "the sentiment") == [0.3, 0.5, 0.9]
    assert line(figure, "first state") == [0.4, 0.6, 0.6]
    assert [name.strip() for name in texts(figure)] == ["the sentiment", "the first hidden state"]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["1", "2", "4"]
    assert not figure.legends


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
