"""Figures of *Beyond the paper*: what they show is what the results hold."""

import numpy as np
import pytest

from hmmlib.experiments.store import STORE, load_results
from hmmlib.experiments.summaries import LEFT, gain, interval, reference, size
from hmmlib.notebook.beyond_figures import lines, plane, triangles

RESULTS = load_results("smoke", STORE)


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
