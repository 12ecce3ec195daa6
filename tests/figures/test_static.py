"""The static figures show their numbers where they draw them, in type that a phone can show."""

from collections import defaultdict
from operator import methodcaller

import numpy as np
import pytest

from hmmbook.experiments.intervals import mean_ci
from hmmbook.experiments.results import published, results
from hmmbook.experiments.store import STORE
from hmmbook.figures import figure_3, figures, triangles
from hmmbook.figures.figure_3 import LEFT, RIGHT
from hmmbook.figures.triangles import TRIANGLE
from hmmlib.models.sentences import farm
from hmmlib.theory.separation import fit_or_refute

RESULTS = results("quick", STORE).query("changes == ''")
VANILLA = RESULTS[RESULTS.n_memory == 1]
PHONE_WIDTH = 358  # pixels of a page of 390 that a figure has

TWO_LAWS = {"a": [0.25, 0.75], "b": [0.5, 0.5]}
CORNERS = np.eye(3)
SHARES = np.vstack([CORNERS, [0.2, 0.3, 0.5]])
LABELS = [True, False, True, False]


def close(drawn, expected):
    np.testing.assert_allclose(drawn, expected, rtol=1e-7, atol=1e-12)


def points(axes) -> dict:
    """By label, the points of lines and of marks."""
    places = {}
    for line in axes.lines:
        places[line.get_label()] = np.array(line.get_xydata(), float)
    for marks in axes.collections:
        places[marks.get_label()] = np.array(marks.get_offsets())
    return places


def bars(axes) -> dict:
    """By label, the bottoms and heights of bars."""
    spans = defaultdict(list)
    for bars_of_label in axes.containers:
        for bar in bars_of_label:
            spans[bars_of_label.get_label()].append((bar.get_y(), bar.get_height()))
    return spans


def texts(artists) -> list[str]:
    every_text = map(methodcaller("get_text"), artists)
    return list(filter(None, every_text))


def test_a_legend_is_below_and_type_is_large_enough_for_a_phone():
    figures.use_style()
    for figure in (
        figures.distributions(TWO_LAWS, ["x", "y"]),
        figures.attention("ab" * 5, [0.1, 1.0] * 5, [False, True] * 5),
        figures.strips({"a": ([0.1], [True])}, "x", {"a": []}, {"a": 0.5}),
        triangles.simplex(CORNERS, LABELS[:3], CORNERS, [1.0, -1.0, 0.5]),
    ):
        axes = figure.axes[-1]
        figure.canvas.draw()
        (legend,) = figure.legends
        pixels_of_a_point = PHONE_WIDTH / (72 * figure.get_figwidth())
        for text in [axes.xaxis.label, *legend.get_texts(), *axes.get_xticklabels(), *axes.get_yticklabels()]:
            assert text.get_fontsize() * pixels_of_a_point >= 10
        assert legend.get_window_extent().width <= figure.bbox.width
        assert legend.get_window_extent().y1 < axes.get_tightbbox().y0 + 1
        assert figure.get_figwidth() <= 5.5


# Bars, lines and tables


def test_bars_have_the_heights_of_their_numbers():
    (beside,) = figures.distributions(TWO_LAWS, "xy").axes
    assert bars(beside)["a"] == [(0, 0.25), (0, 0.75)]
    assert bars(beside)["b"] == [(0, 0.5), (0, 0.5)]
    (upon,) = figures.stacked({"all": TWO_LAWS}, "xy", "token").axes
    assert bars(upon)["a"] == [(0, 0.25), (0, 0.75)]
    assert bars(upon)["b"] == [(0.25, 0.5), (0.75, 0.5)]
    (attended,) = figures.attention("ab", [0.3, 1.0], [False, True]).axes
    assert bars(attended) == {"attended": [(0, 1.0)], "not attended": [(0, 0.3)]}


def test_a_curve_has_its_points_and_its_logarithmic_axis():
    series = {"a": [3, 4], "b": [5, 6]}
    (axes,) = figures.curve([1, 2], series, "x", "y", log="y").axes
    close(points(axes)["a"], [[1, 3], [2, 4]])
    close(points(axes)["b"], [[1, 5], [2, 6]])
    assert axes.get_xscale() == "linear"
    assert axes.get_yscale() == "log"


def test_an_arrow_goes_from_what_is_used_to_where_it_is_used():
    places = {"a": (0, 0), "b": (1, 2)}
    (axes,) = figures.dependencies(places, [("a", "b")]).axes
    *_, arrow = axes.texts
    assert arrow.get_text() == ""
    assert arrow.get_position() == (0, 0)
    assert arrow.xy == (1, 2)


def test_beliefs_have_their_numbers_beside_each_other():
    tokens = list("abcdefghijk")
    table = np.full((12, 3), 1 / 3)
    panels = dict.fromkeys("pqr", ("xyz", table))
    figure = figures.beliefs(tokens, panels)
    figure.canvas.draw()
    assert texts(figure.axes[0].get_yticklabels()) == ["(prior)", *tokens]
    for axes, cell in zip(figure.axes, "pqr", strict=True):
        assert axes.get_xlabel() == cell
        assert texts(axes.texts) == [".33"] * 36
        first, second, third = map(methodcaller("get_window_extent"), axes.texts[:3])
        assert first.x1 < second.x0
        assert second.x1 < third.x0


def test_a_grid_leaves_zeros_empty_and_begins_at_the_top():
    table = np.array([[0.25, 0.0], [1.0, 0.5]])
    panels = {"first": (table, "xy"), "second": (table.T, "xy")}
    first, second = figures.grids(panels, ["p", "q"]).axes
    assert texts(first.texts) == [".25", "1.00", ".50"]
    assert texts(second.texts) == [".25", "1.00", ".50"]
    assert first.yaxis_inverted()


def test_columns_of_w_are_by_state_and_value_with_frames_and_crosses():
    family = farm()
    emission = family.model.emission
    framed = [(0, 0), (1, 0)]
    (axes,) = figures.columns_of_w(family, framed, unseen=[(2, 0)]).axes
    drawn = axes.collections[0].get_array()
    close(drawn[:, 4], emission[:, 1, 1])
    assert texts(axes.get_xticklabels())[:4] == ["dog", "hen", "cat", "dog"]
    first, second = axes.patches
    assert first.get_x() == -0.5
    assert second.get_x() == 0.5
    columns, rows = axes.lines[-1].get_data()
    assert set(columns) == {2}
    close(rows, np.flatnonzero(emission[:, 2, 0] == 0))


def test_strips_have_each_label_on_its_side():
    shares = [0.1, 0.2, 0.2, 0.9]
    labels = [False, True, True, True]
    rows = {"first": (shares, labels), "second": ([0.5], [False])}
    crosses = {"first": [], "second": [0.3, 0.8]}
    (axes,) = figures.strips(rows, "share", crosses, {"first": 0.15}).axes
    above = axes.collections[0].get_offsets()
    below = axes.collections[1].get_offsets()
    assert above[:, 0].tolist() == [0.2, 0.9]
    assert above[:, 1].max() < 0 < below[:, 1].min()  # The axis of the rows points down.
    close(axes.collections[-1].get_offsets(), [[0.3, 1], [0.8, 1]])
    threshold = points(axes)["the head's threshold"]
    close(threshold[:, 0], [0.15, 0.15])


# Triangles


def test_a_simplex_has_points_of_both_labels_its_columns_and_the_line_of_the_head():
    columns = CORNERS[:, :2]
    weights = [1.0, -0.5, -0.5]
    (axes,) = triangles.simplex(SHARES, LABELS, columns, weights, "pq").axes
    drawn = points(axes)
    close(drawn["label 1"], SHARES[[0, 2]] @ TRIANGLE)
    close(drawn["label 0"], SHARES[[1, 3]] @ TRIANGLE)
    close(drawn["one state alone"], columns.T @ TRIANGLE)
    assert texts(axes.texts)[-2:] == ["p", "q"]
    ends = [[1 / 3, 2 / 3, 0], [1 / 3, 0, 2 / 3]]
    close(drawn["the head's line"], ends @ TRIANGLE)


def test_a_head_of_one_sign_has_no_line():
    (axes,) = triangles.simplex(SHARES, LABELS, CORNERS, np.ones(3)).axes
    assert "the head's line" not in points(axes)


def test_equal_crosses_in_a_triangle_have_one_name():
    crosses = CORNERS[:, [0, 1, 0]]
    panels = {"first": (CORNERS, "abc"), "second": (CORNERS[::-1], "abc")}
    figure = triangles.triangles(panels, LABELS[:3], {"second": (crosses, "pqr")})
    first, second, *_ = figure.axes
    close(points(first)["label 0"], TRIANGLE[[1]])
    assert texts(first.texts) == ["a", "b", "c"]
    assert texts(second.texts) == ["a", "b", "c", "p, r", "q"]


def drawn_once(points_of_plane):
    """The different points, whatever their order."""
    return np.unique(np.round(points_of_plane, 9), axis=0)


def test_mixtures_lie_in_the_shade_of_their_columns():
    hull = np.array([[1, 0, 0], [0, 1, 0], [0.2, 0.2, 0.6]])
    columns = dict(zip("abc", hull, strict=True)) | {"within": hull.mean(0)}
    shares = np.random.default_rng(0).dirichlet(np.ones(3), 20) @ hull
    twice = np.repeat(shares, 2, 0)
    panels = {"twice": (twice, columns), "once": (shares, columns)}
    axes = triangles.mixtures(panels, "xyz").axes[0]
    (shade,) = axes.patches
    close(drawn_once(shade.get_xy()), drawn_once(hull @ TRIANGLE))
    rounded = np.unique(shares.round(3), axis=0)
    close(points(axes)["predictions"], rounded @ TRIANGLE)


def with_prompt_drawn(shares, labels):
    """The two triangles of points without a prompt, of which the first four are those with it."""
    labels = np.array(labels)
    panels = {"without": shares, "with": np.where(np.arange(len(shares))[:, None] < 4, shares, 0)}
    figure = triangles.simplex_with_prompt(
        panels, labels, CORNERS, "abc", [0, 1], [1.0, -1.0, 0.0], fit_or_refute(shares, labels)
    )
    return figure.axes


def words_below(axes) -> str:
    return axes.texts[-1].get_text()


def test_without_the_prompt_a_star_lies_in_a_triangle_of_the_other_label():
    inside = [0.4, 0.3, 0.3]
    corners = 0.2 + 0.4 * CORNERS
    shares = np.vstack([corners, inside, [0.1, 0.1, 0.8]])
    before, behind = with_prompt_drawn(shares, [True, True, True, False, False])
    (triangle,) = before.patches
    close(drawn_once(triangle.get_xy()), drawn_once(corners @ TRIANGLE))
    star = before.lines[-1]
    assert star.get_marker() == "*"
    close(star.get_xydata(), [inside @ TRIANGLE])
    assert words_below(before) == "The star has label 0, the\ncorners have label 1."
    assert all(line.get_marker() != "*" for line in behind.lines)
    assert len(points(before)["label 0"]) == 2
    assert len(points(behind)["label 0"]) == 1, "an impossible input has no point"


def test_the_deepest_of_several_stars_is_drawn():
    corners = 0.1 + 0.7 * CORNERS
    shares = np.vstack([corners, [0.7, 0.15, 0.15], [0.34, 0.33, 0.33]])
    before, _ = with_prompt_drawn(shares, [False, False, False, True, True])
    close(before.lines[-1].get_xydata(), [shares[-1] @ TRIANGLE])


def test_where_a_line_does_without_a_prompt_it_is_drawn_and_there_is_no_star():
    shares = np.vstack([CORNERS, [0.4, 0.3, 0.3], [0.2, 0.4, 0.4]])
    before, behind = with_prompt_drawn(shares, [True, False, False, True, False])
    assert words_below(before) == "A line separates\nthe labels."
    assert before.lines[-1].get_label() == "a head's line"
    assert words_below(behind) == "Only a and b are left.\nThe line is right on 3 of 5."


def test_where_no_text_lies_in_a_triangle_the_figure_only_says_that_no_line_does():
    crossing = np.array([[0.5, 0.5, 0.0], [0.1, 0.1, 0.8], [0.6, 0.1, 0.3], [0.1, 0.6, 0.3]])
    before, _ = with_prompt_drawn(crossing, [True, True, False, False])
    assert not before.patches
    assert words_below(before) == "No line separates\nthe labels."


def test_a_triangle_is_for_three_tokens():
    shares = np.full((2, 4), 0.25)
    panels = {"without": shares, "with": shares}
    with pytest.raises(ValueError, match="A triangle shows distributions over three tokens, but these have 4 entries"):
        triangles.simplex_with_prompt(panels, [True, True], np.eye(4), "abcd", [0, 1], np.ones(4), None)


@pytest.mark.parametrize("seed", range(8))
def test_wrong_beliefs_are_those_whose_signs_differ(seed):
    rng = np.random.default_rng(seed)
    mu, score = rng.normal(size=(2, 3))
    beliefs = rng.dirichlet(np.ones(3), 2000)
    (axes,) = triangles.wrong_beliefs(mu, {"a": score}, "xyz").axes
    shaded = np.zeros(2000, dtype=bool)
    for patch in axes.patches:
        shaded |= patch.get_path().contains_points(beliefs @ TRIANGLE)
    target = beliefs @ mu
    answer = beliefs @ score
    clear = np.minimum(abs(target), abs(answer)) > 1e-6
    wrong = (target > 0) != (answer > 0)
    np.testing.assert_array_equal(shaded[clear], wrong[clear])


def test_a_score_that_is_a_multiple_of_the_task_has_no_wrong_beliefs():
    mu = np.array([1, -1, 0.5])
    (axes,) = triangles.wrong_beliefs(mu, {"twice": 2 * mu}, "xyz").axes
    assert not axes.patches


# Stored results


@pytest.mark.parametrize(("name", "series"), [("left", LEFT), ("right", RIGHT)])
def test_a_panel_draws_the_means_of_the_results_and_the_published_ones(name, series):
    table = VANILLA if name == "left" else RESULTS
    drawn = points(figure_3.panel(table, name).axes[0])
    for label, shift in zip(series, (-0.15, 0.15), strict=True):
        rows = RESULTS[RESULTS.n_memory > 1] if label.startswith("memory") else VANILLA
        means = rows.groupby("size")[series[label]].mean()
        close(drawn[label], np.transpose([means.index + shift, means]))
        paper = published(name)[label].dropna()
        published_points = [(size, interval.mean) for size, interval in paper.items()]
        close(drawn[f"{label}, published"], published_points)


def test_what_explains_figure_3_draws_the_means_and_the_trials():
    gains = points(figure_3.gains(VANILLA).axes[0])
    means = VANILLA.groupby("size").gain.mean()
    close(gains["mean with its 95% interval"], means.reset_index())
    dots = points(figure_3.against_learned(VANILLA).axes[0])
    for label, column in LEFT.items():
        close(dots[label], VANILLA[["learned", column]])


def test_a_plane_has_a_point_for_each_group_and_the_published_pair_and_no_name_on_another():
    first = VANILLA[::2]
    second = VANILLA[1::2]
    groups = {"first": first, "second": second, "equal": second, "none": VANILLA[:0]}
    (axes,) = figure_3.plane(groups, [30], "all").axes
    means = []
    for group in (first, second, second):
        means.append(group.query("size == 30")[list(LEFT.values())].mean())
    close(points(axes)["all"], means)
    head = published("left")["head tuning"][30]
    prompt = published("left")["prompt tuning"][30]
    close(points(axes)["published means"], [[head.mean, prompt.mean]])
    box = axes.patches[0].get_bbox()
    close([box.x0, box.x1], [head.low, head.high])
    close([box.y0, box.y1], [prompt.low, prompt.high])
    names = texts(axes.texts)
    assert "first" in names
    assert "equal" not in names
    assert "none" not in names


def test_dots_have_a_line_for_each_row_and_a_mark_for_each_series():
    low = mean_ci([0.1, 0.3])
    high = mean_ci([0.4, 0.6])
    first = {"a": low, "b": high}
    second = {"a": mean_ci([]), "b": mean_ci([0.7])}
    (axes,) = figure_3.dots({"first": first, "second": second}, "x").axes
    drawn = points(axes)
    close(drawn["a"], [[0.2, -1 / 6]])
    close(drawn["b"], [[0.5, 1 / 6], [0.7, 7 / 6]])
    intervals = map(methodcaller("get_xdata"), axes.lines)
    assert [low.low, low.high] in map(list, intervals)
    assert texts(axes.get_yticklabels()) == ["first", "second"]
    assert axes.yaxis_inverted()


def test_a_triangle_of_other_than_three_tokens_is_refused():
    four = np.full((4, 2), 0.25)
    with pytest.raises(ValueError, match="A triangle shows distributions over three tokens, but these have 4 entries"):
        triangles.simplex(four.T, [0, 1], four, np.ones(4))
