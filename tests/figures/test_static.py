"""The static figures show their numbers where they draw them, in type that a phone can show."""

from functools import partial

import numpy as np
import pytest
from companion.figures import figure_3, figures, triangles
from companion.figures.figure_3 import LADDER, LEFT, RIGHT
from companion.figures.triangles import TRIANGLE

from hmmlib.experiments.results import mean_ci, published, results
from hmmlib.experiments.store import STORE
from hmmlib.models.sentences import farm
from hmmlib.theory.separation import Impossible, fit_or_refute

RESULTS = results("quick", STORE).query("changes == ''")
VANILLA = RESULTS[RESULTS.n_memory == 1]
close = partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-12)


def points(axes) -> dict:
    """By label, the points of lines and of marks, and the bottoms and heights of bars."""
    found = {line.get_label(): np.array(line.get_xydata(), float) for line in axes.lines}
    found |= {marks.get_label(): np.array(marks.get_offsets()) for marks in axes.collections}
    return found | {bars.get_label(): [(bar.get_y(), bar.get_height()) for bar in bars] for bars in axes.containers}


def texts(found) -> list[str]:
    return [text.get_text() for text in found if text.get_text()]


def test_legends_are_below_and_type_is_large_enough_for_a_phone():
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
        ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        pixels = 358 / (72 * figure.get_figwidth())  # of a point, where a phone is 390 wide
        assert min(text.get_fontsize() for text in [*legend.get_texts(), *ticks, axes.xaxis.label]) * pixels >= 10
        assert legend.get_window_extent().width <= figure.bbox.width
        assert legend.get_window_extent().y1 < axes.get_tightbbox().y0 + 1  # below its labels too
        assert figure.get_size_inches()[0] <= 5.5


def test_bars_lines_and_points_are_those_of_their_numbers():
    (axes,) = figures.distributions({"a": [0.2, 0.8], "b": [0.5, 0.5]}, "xy").axes
    assert points(axes) == {"a": [(0, 0.2), (0, 0.8)], "b": [(0, 0.5), (0, 0.5)]}
    (axes,) = figures.stacked({"all": {"a": [0.125, 0.25], "b": [0.25, 0.5]}}, "xy", "token").axes
    assert points(axes) == {"a": [(0, 0.125), (0, 0.25)], "b": [(0.125, 0.25), (0.25, 0.5)]}
    found = points(figures.attention("ab", [0.3, 1.0], [False, True]).axes[0])
    assert (found["attended"], found["not attended"]) == ([(0, 1.0)], [(0, 0.3)])
    (axes,) = figures.curve([1, 2], {"a": [3, 4], "b": [5, 6]}, "x", "y", log="y").axes
    close([*points(axes).values()], [[[1, 3], [2, 4]], [[1, 5], [2, 6]]])
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    (axes,) = figures.dependencies({"a": (0, 0), "b": (1, 2)}, [("a", "b")]).axes
    (arrow,) = [text for text in axes.texts if not text.get_text()]
    assert (arrow.get_position(), arrow.xy, texts(axes.texts)) == ((0, 0), (1, 2), ["a", "b"])


def test_tables_have_their_numbers_beside_each_other():
    words, table = [f"word{k}" for k in range(11)], np.full((12, 3), 1 / 3)
    figure = figures.beliefs(words, {cell: ("xyz", table) for cell in "abc"})
    figure.canvas.draw()
    assert texts(figure.axes[0].get_yticklabels()) == ["(prior)", *words]
    for axes, cell in zip(figure.axes, "abc", strict=True):
        assert (axes.get_xlabel(), texts(axes.texts)) == (cell, [".33"] * 36)
        left, middle, right = (text.get_window_extent() for text in axes.texts[:3])
        assert left.x1 < middle.x0 < middle.x1 < right.x0
    table = np.array([[0.25, 0.0], [1.0, 0.5]])
    one, two = figures.grids({"one": (table, "xy"), "two": (table.T, "xy")}, ["p", "q"]).axes
    assert texts(one.texts) == texts(two.texts) == [".25", "1.00", ".50"]
    assert one.yaxis_inverted()
    (axes,) = figures.columns_of_w(farm(), [(0, 0), (1, 0)], unseen=[(2, 0)]).axes
    close(axes.collections[0].get_array()[:, 4], farm().model.emission[:, 1, 1])
    assert texts(axes.get_xticklabels())[:4] == ["dog", "hen", "cat", "dog"]
    assert [patch.get_x() for patch in axes.patches] == [-0.5, 0.5]
    crosses = axes.lines[-1].get_xydata()
    assert crosses.tolist() == [[2, row] for row in np.flatnonzero(farm().model.emission[:, 2, 0] == 0)]


def test_strips_have_each_label_on_its_side():
    rows = {"one": ([0.1, 0.2, 0.2, 0.9], [False, True, True, True]), "two": ([0.5], [False])}
    (axes,) = figures.strips(rows, "share", {"one": [], "two": [0.3, 0.8]}, {"one": 0.15}).axes
    assert points(axes)["the head's threshold"][:, 0].tolist() == [0.15, 0.15]
    above, below, *_, crosses = (marks.get_offsets() for marks in axes.collections)
    assert (above[:, 0].tolist(), crosses.tolist()) == ([0.2, 0.9], [[0.3, 1], [0.8, 1]])
    assert above[:, 1].max() < 0 < below[:, 1].min()  # the axis of the rows points down


def test_triangles_have_points_of_both_labels_their_columns_and_the_line_of_the_head():
    shares, labels = np.vstack([np.eye(3), [0.2, 0.3, 0.5]]), [True, False, True, False]
    (axes,) = triangles.simplex(shares, labels, np.eye(3)[:, :2], [1.0, -0.5, -0.5], "pq", "xyz", "states").axes
    drawn, spots = points(axes), shares @ TRIANGLE
    close(drawn["label 1"], spots[[0, 2]])
    close(drawn["label 0"], spots[[1, 3]])
    close(drawn["states"], spots[:2])
    assert texts(axes.texts) == [*"xyzpq"]
    close(drawn["the head's line"], [[1 / 3, 2 / 3, 0], [1 / 3, 0, 2 / 3]] @ TRIANGLE)
    (axes,) = triangles.simplex(shares, labels, np.eye(3), [1.0, 1.0, 1.0]).axes
    assert "the head's line" not in points(axes), "a head of one sign has no line there"
    panels = {"one": (np.eye(3), "abc"), "two": (np.eye(3)[::-1], "abc")}
    one, two = triangles.triangles(panels, labels[:3], {"two": (np.eye(3)[:, :2], "pq")}).axes[:2]
    close(points(one)["label 0"], TRIANGLE[[1]])
    assert (len(one.collections), set(texts(two.texts))) == (2, set("abcpq"))


def test_mixtures_lie_in_the_shade_of_their_columns():
    columns = {"one": [1, 0, 0], "two": [0, 1, 0], "three": [0.2, 0.2, 0.6], "within": [0.4, 0.4, 0.2]}
    shares = np.random.default_rng(0).dirichlet(np.ones(4), 20) @ np.array(list(columns.values()))
    one, _ = triangles.mixtures({"all": (np.repeat(shares, 2, 0), columns), "one": (np.eye(3), columns)}, "xyz").axes
    (shade,) = one.patches
    close(np.unique(shade.get_xy(), axis=0), np.unique(np.array(list(columns.values())[:3]) @ TRIANGLE, axis=0))
    close(points(one)["predictions"], np.unique(shares.round(3), axis=0) @ TRIANGLE)
    assert set(texts(one.texts)) == {*columns, *"xyz"}


def test_a_proof_that_no_line_works_is_drawn_in_a_panel_of_its_own():
    inside, corners = [0.4, 0.3, 0.3], np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    shares, labels = np.vstack([corners, [inside, [0.1, 0.1, 0.8]]]), [True, True, True, False, False]
    refuted = fit_or_refute(shares, labels)
    assert isinstance(refuted, Impossible)
    panels = {"without": shares, "with": np.vstack([shares[:4], np.zeros(3)])}
    figure = triangles.simplex_with_prompt(panels, labels, np.eye(3), "abc", [0, 1], [1.0, -1.0, 0.0], refuted)
    before, behind, detail, _ = map(points, figure.axes)
    star, outline = "a text of label 0", max((line.get_xydata() for line in figure.axes[2].lines), key=len)
    close([before[star][0], detail[star][0]], [inside @ TRIANGLE] * 2)
    close(np.unique(outline.round(9), axis=0), np.unique((corners @ TRIANGLE).round(9), axis=0))
    assert star not in behind
    assert (len(before["label 0"]), len(behind["label 0"])) == (2, 1), "an impossible input has no point"


def test_wrong_beliefs_are_those_whose_signs_differ():
    for seed in range(8):
        draw = np.random.default_rng(seed)
        mu, score = draw.normal(size=(2, 3))
        beliefs, (axes,) = draw.dirichlet(np.ones(3), 2000), triangles.wrong_beliefs(mu, {"a": score}, "xyz").axes
        sure = np.minimum(abs(beliefs @ mu), abs(beliefs @ score)) > 1e-6
        wrong = (beliefs @ mu > 0) != (beliefs @ score > 0)
        shaded = [patch.get_path().contains_points(beliefs @ TRIANGLE) for patch in axes.patches]
        np.testing.assert_array_equal(np.any(shaded, axis=0)[sure], wrong[sure])
    (axes,) = triangles.wrong_beliefs([1, -1, 0.5], {"twice": [2, -2, 1]}, "xyz").axes
    assert not axes.patches


@pytest.mark.parametrize(("name", "series", "table"), [("left", LEFT, VANILLA), ("right", RIGHT, RESULTS)])
def test_a_panel_draws_the_means_of_the_results_and_the_published_ones(name, series, table):
    drawn = points(figure_3.panel(table, name).axes[0])
    for (label, column), shift in zip(series.items(), (-0.15, 0.15), strict=True):
        rows = RESULTS[RESULTS.n_memory > 1] if label.startswith("memory") else VANILLA
        means = rows.groupby("size")[column].mean()
        close(drawn[label], np.transpose([means.index + shift, means]))
        paper = published(name)[label].dropna().map(lambda found: found.mean).reset_index()
        close(drawn[f"{label}, published"], paper.to_numpy(float))


def test_what_explains_figure_3_draws_the_means_and_the_trials():
    sizes = VANILLA.groupby("size")
    close(points(figure_3.gains(VANILLA).axes[0])["mean with its 95% interval"], sizes.gain.mean().reset_index())
    dots = points(figure_3.against_learned(VANILLA).axes[0])
    for label, column in LEFT.items():
        close(dots[label], VANILLA[["learned", column]])
    ladder = points(figure_3.ladder(VANILLA).axes[0])
    for label, column in LADDER.items():
        close(ladder[label][:, 1], sizes[column].mean().dropna())


def test_a_plane_has_a_point_for_each_group_of_a_size_and_the_published_pair_and_no_name_on_another():
    halves = {"first": VANILLA[::2], "rest": VANILLA[1::2]}
    (axes,) = figure_3.plane({**halves, "the same": halves["rest"], "none": VANILLA[:0]}, [30], "all").axes
    groups = [half[(half["size"] == 30) & half.gain.notna()] for half in halves.values()]
    means = [group[[*LEFT.values()]].mean() for group in groups]
    close(points(axes)["all"], [*means, means[-1]])
    pair = [published("left")[name][30] for name in LEFT]
    close(points(axes)["published means"], [[one.mean for one in pair]])
    close(axes.patches[0].get_bbox().get_points(), [[p.low for p in pair], [p.high for p in pair]])
    assert {"first", "the same", "none"} & {*texts(axes.texts)} == {"first"}


def test_dots_have_a_line_for_each_row_and_a_mark_for_each_series():
    one, other, alone = mean_ci([0.1, 0.3]), mean_ci([0.4, 0.6]), mean_ci([0.7])
    (axes,) = figure_3.dots({"first": {"a": one, "b": other}, "second": {"a": mean_ci([]), "b": alone}}, "x").axes
    close(points(axes)["a"], [[0.2, -1 / 6]])
    close(points(axes)["b"], [[0.5, 1 / 6], [0.7, 7 / 6]])
    assert [one.low, one.high] in [list(line.get_xdata()) for line in axes.lines]
    assert (texts(axes.get_yticklabels()), axes.yaxis_inverted()) == (["first", "second"], True)
