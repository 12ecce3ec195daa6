"""Figures of *Beyond the paper*: what they show is what the results hold."""

import numpy as np
import pytest
from companion.figures.figure_3 import LEFT, dots, lines, plane
from companion.figures.triangles import TRIANGLE, triangles, wrong_beliefs

from hmmlib.experiments.results import mean_ci, published, results
from hmmlib.experiments.store import STORE

RESULTS = results("smoke", STORE)


def test_lines_have_their_means():
    heads = RESULTS.groupby("size").head_accuracy
    figure = lines({"head": heads.agg(mean_ci)}, "x", "y", log=True)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_xydata(), heads.mean().reset_index().to_numpy())


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
    halves = RESULTS[:9], RESULTS[9:]
    figure = plane({"first": halves[0], "rest": halves[1], "none": RESULTS[:0]}, [4, 30], "all")
    for axes, n_states in zip(figure.axes, (4, 30), strict=True):
        points = {line.get_label(): line.get_xydata() for line in axes.lines}
        groups = [half[(half["size"] == n_states) & half.gain.notna()] for half in halves]
        means = [group[[*LEFT.values()]].mean() for group in groups if len(group)]
        np.testing.assert_allclose(points["all"], means)
        pair = [published("left")[name][n_states] for name in LEFT]
        np.testing.assert_allclose(points["published means"], [[one.mean for one in pair]])
        (box,) = axes.patches
        np.testing.assert_allclose(box.get_bbox().get_points(), [[p.low for p in pair], [p.high for p in pair]])


def test_names_in_a_plane_do_not_lie_on_one_another():
    figure = plane({"first": RESULTS, "the same": RESULTS}, [4], "all")
    assert "first" in {text.get_text() for text in figure.axes[0].texts}
    assert "the same" not in {text.get_text() for text in figure.axes[0].texts}


def test_dots_have_a_line_for_each_row_and_a_mark_for_each_series():
    one, other, alone = mean_ci([0.1, 0.3]), mean_ci([0.4, 0.6]), mean_ci([0.7])
    figure = dots({"first": {"a": one, "b": other}, "second": {"a": mean_ci([]), "b": alone}}, "x")
    (axes,) = figure.axes
    marks = {line.get_label(): line.get_xydata() for line in axes.lines if line.get_label() in "ab"}
    np.testing.assert_allclose(marks["a"], [[0.2, -1 / 6]])
    np.testing.assert_allclose(marks["b"], [[0.5, 1 / 6], [0.7, 7 / 6]])
    spans = [line.get_xdata() for line in axes.lines if line.get_label() not in "ab" and len(line.get_xdata()) == 2]
    assert [one.low, one.high] in [list(span) for span in spans]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["first", "second"]
    assert axes.yaxis_inverted()


@pytest.mark.parametrize("seed", range(8))
def test_wrong_beliefs_are_those_whose_signs_differ(seed):
    draw = np.random.default_rng(seed)
    mu, score = draw.normal(size=(2, 3))
    figure = wrong_beliefs(mu, {"a": score}, "xyz")
    beliefs = draw.dirichlet(np.ones(3), 2000)
    sure = np.minimum(abs(beliefs @ mu), abs(beliefs @ score)) > 1e-6
    wrong = (beliefs @ mu > 0) != (beliefs @ score > 0)
    shaded = np.zeros(len(beliefs), dtype=bool)
    for patch in figure.axes[0].patches:
        shaded |= patch.get_path().contains_points(beliefs @ TRIANGLE)
    np.testing.assert_array_equal(shaded[sure], wrong[sure])


def test_a_multiple_of_the_task_is_nowhere_wrong_and_a_turned_vote_is():
    figure = wrong_beliefs([1, -1, 0.5], {"twice": [2, -2, 1], "turned": [1, -1, -0.5]}, "xyz")
    twice, turned = figure.axes
    assert not twice.patches
    assert len(turned.patches) == 1
    ends = [line.get_xydata() for line in twice.lines[1:]]
    np.testing.assert_allclose(ends[0], ends[1])
    halves = {tuple(np.round(point, 3)) for point in ends[0]}
    assert halves == {(0.5, 0.0), (0.667, 0.577)}, "the share of the second state is 1/2 on one edge, 1/3 on the other"
