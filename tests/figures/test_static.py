"""The static figures show their numbers where they draw them, in type that a phone can show."""

import numpy as np
import pytest

from hmmbook.experiments.intervals import mean_ci
from hmmbook.experiments.results import published, results
from hmmbook.experiments.store import STORE
from hmmbook.figures import figure_3, figures, triangles
from hmmbook.figures.figure_3 import LEFT, RIGHT
from hmmbook.figures.triangles import TRIANGLE
from hmmlib.models.sentences import farm
from hmmlib.theory.separation import Impossible, fit_or_refute

RESULTS = results("quick", STORE).query("changes == ''")
VANILLA = RESULTS[RESULTS.n_memory == 1]
PHONE_WIDTH = 358  # pixels of a page of 390 that a figure has


def close(drawn, expected):
    np.testing.assert_allclose(drawn, expected, rtol=1e-7, atol=1e-12)


def points(axes) -> dict:
    """By label, the points of lines and of marks."""
    places = {line.get_label(): np.array(line.get_xydata(), float) for line in axes.lines}
    for marks in axes.collections:
        places[marks.get_label()] = np.array(marks.get_offsets())
    return places


def bars(axes) -> dict:
    """By label, the bottoms and heights of bars."""
    return {part.get_label(): [(bar.get_y(), bar.get_height()) for bar in part] for part in axes.containers}


def texts(artists) -> list[str]:
    every_text = [artist.get_text() for artist in artists]
    return [text for text in every_text if text]


def test_a_legend_is_below_and_type_is_large_enough_for_a_phone():
    figures.use_style()
    for figure in (
        figures.distributions({"a": [0.2, 0.8], "b": [0.5, 0.5]}, ["x", "y"]),
        figures.attention(["a", "b"] * 5, [0.1, 1.0] * 5, [False, True] * 5),
        figures.strips({"a": ([0.1], [True])}, "x", {"a": []}, {"a": 0.5}),
        triangles.simplex(np.eye(3), [True, False, True], np.eye(3), [1.0, -1.0, 0.5]),
    ):
        axes = figure.axes[-1]
        figure.canvas.draw()
        (legend,) = figure.legends
        words = [*legend.get_texts(), *axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label]
        pixels_of_a_point = PHONE_WIDTH / (72 * figure.get_figwidth())
        assert min(text.get_fontsize() for text in words) * pixels_of_a_point >= 10
        assert legend.get_window_extent().width <= figure.bbox.width
        assert legend.get_window_extent().y1 < axes.get_tightbbox().y0 + 1
        assert figure.get_figwidth() <= 5.5


# Bars, lines and tables


def test_bars_have_the_heights_of_their_numbers():
    (axes,) = figures.distributions({"a": [0.2, 0.8], "b": [0.5, 0.5]}, "xy").axes
    assert bars(axes) == {"a": [(0, 0.2), (0, 0.8)], "b": [(0, 0.5), (0, 0.5)]}
    (axes,) = figures.stacked({"all": {"a": [0.125, 0.25], "b": [0.25, 0.5]}}, "xy", "token").axes
    assert bars(axes) == {"a": [(0, 0.125), (0, 0.25)], "b": [(0.125, 0.25), (0.25, 0.5)]}
    (axes,) = figures.attention("ab", [0.3, 1.0], [False, True]).axes
    assert bars(axes) == {"attended": [(0, 1.0)], "not attended": [(0, 0.3)]}


def test_a_curve_has_its_points_and_its_logarithmic_axis():
    (axes,) = figures.curve([1, 2], {"a": [3, 4], "b": [5, 6]}, "x", "y", log="y").axes
    close(points(axes)["a"], [[1, 3], [2, 4]])
    close(points(axes)["b"], [[1, 5], [2, 6]])
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


def test_an_arrow_goes_from_what_is_used_to_where_it_is_used():
    (axes,) = figures.dependencies({"a": (0, 0), "b": (1, 2)}, [("a", "b")]).axes
    (arrow,) = [text for text in axes.texts if not text.get_text()]
    assert arrow.get_position() == (0, 0)
    assert arrow.xy == (1, 2)


def test_beliefs_have_their_numbers_beside_each_other():
    words = [f"word{k}" for k in range(11)]
    table = np.full((12, 3), 1 / 3)
    figure = figures.beliefs(words, {cell: ("xyz", table) for cell in "abc"})
    figure.canvas.draw()
    assert texts(figure.axes[0].get_yticklabels()) == ["(prior)", *words]
    for axes, cell in zip(figure.axes, "abc", strict=True):
        assert axes.get_xlabel() == cell
        assert texts(axes.texts) == [".33"] * 36
        left, middle, right = (text.get_window_extent() for text in axes.texts[:3])
        assert left.x1 < middle.x0 < middle.x1 < right.x0


def test_a_grid_leaves_zeros_empty_and_begins_at_the_top():
    table = np.array([[0.25, 0.0], [1.0, 0.5]])
    first, second = figures.grids({"one": (table, "xy"), "two": (table.T, "xy")}, ["p", "q"]).axes
    assert texts(first.texts) == texts(second.texts) == [".25", "1.00", ".50"]
    assert first.yaxis_inverted()


def test_columns_of_w_are_by_state_and_value_with_frames_and_crosses():
    (axes,) = figures.columns_of_w(farm(), [(0, 0), (1, 0)], unseen=[(2, 0)]).axes
    close(axes.collections[0].get_array()[:, 4], farm().model.emission[:, 1, 1])
    assert texts(axes.get_xticklabels())[:4] == ["dog", "hen", "cat", "dog"]
    assert [patch.get_x() for patch in axes.patches] == [-0.5, 0.5]
    zeros = np.flatnonzero(farm().model.emission[:, 2, 0] == 0)
    assert axes.lines[-1].get_xydata().tolist() == [[2, row] for row in zeros]


def test_strips_have_each_label_on_its_side():
    rows = {"one": ([0.1, 0.2, 0.2, 0.9], [False, True, True, True]), "two": ([0.5], [False])}
    (axes,) = figures.strips(rows, "share", {"one": [], "two": [0.3, 0.8]}, {"one": 0.15}).axes
    above, below, *_, crosses = (marks.get_offsets() for marks in axes.collections)
    assert above[:, 0].tolist() == [0.2, 0.9]
    assert above[:, 1].max() < 0 < below[:, 1].min()  # The axis of the rows points down.
    assert crosses.tolist() == [[0.3, 1], [0.8, 1]]
    assert points(axes)["the head's threshold"][:, 0].tolist() == [0.15, 0.15]


# Triangles

SHARES = np.vstack([np.eye(3), [0.2, 0.3, 0.5]])
SHARES_LABELS = [True, False, True, False]


def test_a_simplex_has_points_of_both_labels_its_columns_and_the_line_of_the_head():
    (axes,) = triangles.simplex(SHARES, SHARES_LABELS, np.eye(3)[:, :2], [1.0, -0.5, -0.5], "pq").axes
    drawn = points(axes)
    close(drawn["label 1"], SHARES[[0, 2]] @ TRIANGLE)
    close(drawn["label 0"], SHARES[[1, 3]] @ TRIANGLE)
    close(drawn["one state alone"], SHARES[:2] @ TRIANGLE)
    assert texts(axes.texts)[-2:] == ["p", "q"]
    close(drawn["the head's line"], [[1 / 3, 2 / 3, 0], [1 / 3, 0, 2 / 3]] @ TRIANGLE)


def test_a_head_of_one_sign_has_no_line():
    (axes,) = triangles.simplex(SHARES, SHARES_LABELS, np.eye(3), [1.0, 1.0, 1.0]).axes
    assert "the head's line" not in points(axes)


def test_equal_crosses_in_a_triangle_have_one_name():
    table = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0]]).T
    panels = {"one": (np.eye(3), "abc"), "two": (np.eye(3)[::-1], "abc")}
    first, second = triangles.triangles(panels, SHARES_LABELS[:3], {"two": (table, "pqr")}).axes[:2]
    close(points(first)["label 0"], TRIANGLE[[1]])
    assert texts(first.texts) == ["a", "b", "c"]
    assert texts(second.texts) == ["a", "b", "c", "p, r", "q"]


def test_mixtures_lie_in_the_shade_of_their_columns():
    columns = {"one": [1, 0, 0], "two": [0, 1, 0], "three": [0.2, 0.2, 0.6], "within": [0.4, 0.4, 0.2]}
    every_column = np.array(list(columns.values()))
    shares = np.random.default_rng(0).dirichlet(np.ones(4), 20) @ every_column
    figure = triangles.mixtures({"all": (np.repeat(shares, 2, 0), columns), "one": (np.eye(3), columns)}, "xyz")
    (shade,) = figure.axes[0].patches
    close(np.unique(shade.get_xy(), axis=0), np.unique(every_column[:3] @ TRIANGLE, axis=0))
    close(points(figure.axes[0])["predictions"], np.unique(shares.round(3), axis=0) @ TRIANGLE)


def test_a_proof_that_no_line_works_is_drawn_in_a_panel_of_its_own():
    inside = [0.4, 0.3, 0.3]
    corners = np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    shares = np.vstack([corners, inside, [0.1, 0.1, 0.8]])
    labels = [True, True, True, False, False]
    refuted = fit_or_refute(shares, labels)
    assert isinstance(refuted, Impossible)
    with_prompt = np.vstack([shares[:4], np.zeros(3)])
    panels = {"without": shares, "with": with_prompt}
    figure = triangles.simplex_with_prompt(panels, labels, np.eye(3), "abc", [0, 1], [1.0, -1.0, 0.0], refuted)
    before, behind, proof, _ = map(points, figure.axes)
    star = "a text of label 0"
    close(before[star], [inside @ TRIANGLE])
    close(proof[star], [inside @ TRIANGLE])
    assert star not in behind
    outline = max((line.get_xydata() for line in figure.axes[2].lines), key=len)
    close(np.unique(outline.round(9), axis=0), np.unique((corners @ TRIANGLE).round(9), axis=0))
    assert len(before["label 0"]) == 2
    assert len(behind["label 0"]) == 1, "an impossible input has no point"


@pytest.mark.parametrize("seed", range(8))
def test_wrong_beliefs_are_those_whose_signs_differ(seed):
    rng = np.random.default_rng(seed)
    mu, score = rng.normal(size=(2, 3))
    beliefs = rng.dirichlet(np.ones(3), 2000)
    (axes,) = triangles.wrong_beliefs(mu, {"a": score}, "xyz").axes
    shaded = np.zeros(2000, dtype=bool)
    for patch in axes.patches:
        shaded |= patch.get_path().contains_points(beliefs @ TRIANGLE)
    wrong = (beliefs @ mu > 0) != (beliefs @ score > 0)
    clear = np.minimum(abs(beliefs @ mu), abs(beliefs @ score)) > 1e-6
    np.testing.assert_array_equal(shaded[clear], wrong[clear])


def test_a_score_that_is_a_multiple_of_the_task_has_no_wrong_beliefs():
    (axes,) = triangles.wrong_beliefs([1, -1, 0.5], {"twice": [2, -2, 1]}, "xyz").axes
    assert not axes.patches


# Stored results


@pytest.mark.parametrize(("name", "series", "table"), [("left", LEFT, VANILLA), ("right", RIGHT, RESULTS)])
def test_a_panel_draws_the_means_of_the_results_and_the_published_ones(name, series, table):
    drawn = points(figure_3.panel(table, name).axes[0])
    for label, shift in zip(series, (-0.15, 0.15), strict=True):
        rows = RESULTS[RESULTS.n_memory > 1] if label.startswith("memory") else VANILLA
        means = rows.groupby("size")[series[label]].mean()
        close(drawn[label], np.transpose([means.index + shift, means]))
        paper = published(name)[label].dropna()
        close(drawn[f"{label}, published"], [(size, point.mean) for size, point in paper.items()])


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
    means = [group[group["size"] == 30][list(LEFT.values())].mean() for group in (first, second, second)]
    close(points(axes)["all"], means)
    head = published("left")["head tuning"][30]
    prompt = published("left")["prompt tuning"][30]
    close(points(axes)["published means"], [[head.mean, prompt.mean]])
    close(axes.patches[0].get_bbox().get_points(), [[head.low, prompt.low], [head.high, prompt.high]])
    names = texts(axes.texts)
    assert "first" in names
    assert "equal" not in names
    assert "none" not in names


def test_dots_have_a_line_for_each_row_and_a_mark_for_each_series():
    low = mean_ci([0.1, 0.3])
    high = mean_ci([0.4, 0.6])
    rows = {"first": {"a": low, "b": high}, "second": {"a": mean_ci([]), "b": mean_ci([0.7])}}
    (axes,) = figure_3.dots(rows, "x").axes
    close(points(axes)["a"], [[0.2, -1 / 6]])
    close(points(axes)["b"], [[0.5, 1 / 6], [0.7, 7 / 6]])
    assert [low.low, low.high] in [list(line.get_xdata()) for line in axes.lines]
    assert texts(axes.get_yticklabels()) == ["first", "second"]
    assert axes.yaxis_inverted()
