"""Figures and tables of *Beyond the paper*: what they show is what the results hold."""

import re
from dataclasses import replace

import numpy as np
import pytest

from hmmlib.experiments.store import load_results
from hmmlib.experiments.summaries import LEFT, gain, interval, reference, size
from hmmlib.notebook.beyond_figures import Table, lines, means, outcomes, plane, table_of, triangles, within

RESULTS = load_results("smoke")
MARKED = [replace(r, added={"votes": {"weighed": k, "right": None}, "certified": None}) for k, r in enumerate(RESULTS)]


def test_a_table_is_escaped_and_has_every_cell():
    shown = Table(["a", "<b>"], [["1", "2 & 3"], ["x", ""]])._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<th>&lt;b&gt;</th>" in shown
    assert "<td>2 &amp; 3</td>" in shown
    assert re.search(
        r"<td>0\.5<br><small [^>]*>\[0\.1, 0\.9\]</small></td>", Table([""], [["0.5 [0.1, 0.9]"]])._repr_html_()
    )


def test_outcomes_say_of_each_prediction_whether_it_came_true():
    table = outcomes([("It rains.", "90%", True), ("It snows.", "0%", False)])
    assert table.rows == [["It rains.", "90%", "came true"], ["It snows.", "0%", "did not"]]


def test_what_is_read_off_a_table_of_a_result():
    assert within("votes", "weighed")(MARKED[2]) == 2
    assert within("votes", "right")(MARKED[2]) is None
    assert within("certified", "tuned head", "right")(MARKED[2]) is None
    assert within("head_accuracy")(MARKED[2]) == MARKED[2].head_accuracy


def test_means_are_over_the_results_that_have_a_value():
    assert means(MARKED, within("votes", "weighed")) == interval(range(len(MARKED)))
    assert means(MARKED, within("votes", "right")) is None
    assert means(RESULTS, gain) == interval([g for r in RESULTS if (g := gain(r)) is not None])


def test_a_table_of_results_has_a_column_for_each_group():
    small = {n: (lambda r, n=n: size(r) == n) for n in {size(r) for r in RESULTS}}
    found = table_of(
        MARKED, {f"|H| = {n}": test for n, test in small.items()}, {"k": within("votes", "weighed")}, ".2f"
    )
    for (name, cell), (n, test) in zip(zip(found.head[1:], found.rows[0][1:], strict=True), small.items(), strict=True):
        group = [r for r in MARKED if test(r)]
        assert name == f"|H| = {n} ({len(group)})"
        assert cell == format(interval([r.votes["weighed"] for r in group]), ".2f")
    assert table_of(MARKED, {"none": lambda r: False}, {"k": gain}).rows == [["k", "–"]]


def test_lines_have_their_means():
    figure = lines(RESULTS, {"head": lambda r: r.head_accuracy}, size, "x", "y", log=True)
    drawn = figure.axes[0].lines[0].get_xydata()
    assert drawn[:, 0].tolist() == sorted({size(r) for r in RESULTS})
    first = [r.head_accuracy for r in RESULTS if size(r) == drawn[0, 0]]
    assert drawn[0, 1] == pytest.approx(np.mean(first))


def test_triangles_have_the_points_and_the_columns():
    points = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    figure = triangles(
        {"one": (points, "abc"), "two": (points[::-1], "abc"), "three": (points, "012")},
        [True, False, True],
        {"two": (np.eye(3)[:, :2], "pq")},
    )
    first, second, third, last = figure.axes
    assert first.collections[0].get_offsets().tolist() == [[0, 0], [0.5, 0.866]]
    assert first.collections[1].get_offsets().tolist() == [[1, 0]]
    assert [len(axis.collections) for axis in (first, second, third)] == [2, 3, 2]
    assert {text.get_text() for text in second.texts} == {"a", "b", "c", "p", "q"}
    assert not last.axison


def test_a_plane_has_a_point_for_each_group_of_a_size_and_the_published_pair():
    figure = plane({"all": {"first": RESULTS[:9], "rest": RESULTS[9:], "none": []}}, [4, 30])
    for axes, n_states in zip(figure.axes, (4, 30), strict=True):
        points = {line.get_label(): line.get_xydata() for line in axes.lines}
        groups = [
            [r for r in group if size(r) == n_states and gain(r) is not None] for group in (RESULTS[:9], RESULTS[9:])
        ]
        means = [[interval([read(r) for r in group]).mean for read in LEFT.values()] for group in groups if group]
        np.testing.assert_allclose(points["all"], means)
        published = [reference("left")[name][n_states] for name in LEFT]
        np.testing.assert_allclose(points["published means"], [[pair.mean for pair in published]])
        (box,) = axes.patches
        np.testing.assert_allclose(
            box.get_bbox().get_points(), [[p.low for p in published], [p.high for p in published]]
        )
