"""What all figures share: inks that can be read, and legends that take no width."""

from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from colours import contrast
from companion.figures import figures, memory_figures
from matplotlib.colors import to_rgb

from hmmlib.theory.separation import Impossible, fit_or_refute

BLUES = matplotlib.colormaps["Blues"]


def hexed(colour) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in to_rgb(colour[:3]))


def test_numbers_on_shades_can_be_read():
    shades = np.linspace(0, 1, 201)
    assert min(contrast(hexed(BLUES(v)), figures.ink_on_shade(v)) for v in shades) >= 4.4
    assert min(contrast(hexed(BLUES(v)), figures.ink_on_shade(1 - v)) for v in shades) < 1.5
    inks = {figures.ink_on_shade(v) for v in shades}
    assert not inks & {figures.INK, "#ffffff", "#000000"}  # those turn with the page


@pytest.mark.parametrize("colour", [figures.BLUE, figures.ORANGE, figures.GREEN, figures.RED, figures.SOFT])
def test_colours_of_marks_are_seen_on_white(colour):
    assert contrast(colour, "#ffffff") >= 3


def test_legends_are_below_and_type_is_large_enough_for_a_phone():
    figures.use_style()
    drawn = [
        figures.distributions({"a": [0.2, 0.8], "b": [0.5, 0.5]}, ["x", "y"]),
        figures.attention(["a", "b"] * 5, [0.1, 1.0] * 5, [False, True] * 5),
        memory_figures.strips({"a": ([0.1], [True])}, "x", {}, {"a": 0.5}),
        figures.simplex(np.eye(3), [True, False, True], np.eye(3), np.array([1.0, -1.0, 0.5])),
    ]
    for figure in drawn:
        axes = figure.axes[-1]
        figure.canvas.draw()
        (legend,) = figure.legends
        texts = [
            *legend.get_texts(),
            *axes.get_xticklabels(),
            *axes.get_yticklabels(),
            axes.xaxis.label,
            axes.yaxis.label,
        ]
        pixels = 358 / (72 * figure.get_figwidth())  # of a point, where a phone is 390 wide
        assert min(text.get_fontsize() for text in texts) * pixels >= 10
        assert legend.get_window_extent().width <= figure.bbox.width
        assert legend.get_window_extent().y1 < axes.get_tightbbox().y0 + 1  # below its labels too
        assert figure.get_size_inches()[0] <= 5.5


def test_stacked_bars_stand_on_each_other():
    parts = {"a": [0.1, 0.2], "b": [0.3, 0.4]}
    (axes,) = figures.stacked({"all": parts}, ["x", "y"], "token").axes
    bars = [(bar.get_y(), bar.get_height()) for part in axes.containers for bar in part]
    np.testing.assert_allclose(bars, [(0, 0.1), (0, 0.2), (0.1, 0.3), (0.2, 0.4)])


def test_beliefs_show_every_word_in_type_that_a_phone_can_show():
    words, table = [f"word{k}" for k in range(11)], np.full((12, 3), 1 / 3)
    figure = figures.beliefs(words, {cell: (["x", "y", "z"], table) for cell in "abc"})
    figure.canvas.draw()
    rows = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in rows] == ["(prior)", *words]
    assert figure.get_size_inches()[0] <= 5.4
    assert [axes.get_xlabel() for axes in figure.axes] == ["a", "b", "c"]
    for axes in figure.axes:
        assert len(axes.texts) == 36
        assert min(text.get_fontsize() for text in axes.texts) >= 9.5
        boxes = [text.get_window_extent() for text in axes.texts[:3]]
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_strips_have_each_label_on_its_side_and_cut_where_they_are_told():
    rows = {"one": ([0.1, 0.2, 0.2, 0.9], [False, True, True, True]), "two": ([0.5], [False])}
    (axes,) = memory_figures.strips(rows, "share", {"two": [0.3, 0.8]}, {"one": 0.15}).axes
    (cut,) = [line for line in axes.lines if line.get_label() == "where the head cuts"]
    assert list(cut.get_xdata()) == [0.15, 0.15]
    points = {(k, p.get_label()): p.get_offsets() for k, p in enumerate(axes.collections) if len(p.get_offsets())}
    assert {name for _, name in points} == {"label 1", "label 0", "columns of W"}
    above, below, lowest, crosses = points.values()
    assert above[:, 0].tolist() == [0.2, 0.9]
    assert (above[:, 1] < 0).all()  # the axis of the rows points down
    assert (below[:, 1] > 0).all()
    assert (lowest[:, 1] > 1).all()
    assert crosses.tolist() == [[0.3, 1], [0.8, 1]]


def test_mixtures_lie_in_the_shade_of_their_columns():
    columns = {"one": [1, 0, 0], "two": [0, 1, 0], "three": [0.2, 0.2, 0.6], "within": [0.4, 0.4, 0.2]}
    points = np.repeat(np.random.default_rng(0).dirichlet(np.ones(4), 20), 2, 0) @ np.array(list(columns.values()))
    figure = memory_figures.mixtures({"all": (points, columns), "two": (np.eye(3), {"x": [1, 0, 0]})}, "abc")
    assert figure.get_size_inches()[0] <= 5.5
    assert [axes.get_title() for axes in figure.axes] == ["all", "two"]
    shade, *others = figure.axes[0].patches
    assert not others
    assert len(shade.get_xy()) == 4  # three corners, and back: what is within is none
    grown = shade.get_path()
    drawn = figure.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(drawn, np.unique(points.round(3), axis=0) @ figures.TRIANGLE)
    assert grown.contains_points(drawn, radius=2e-3).all() or grown.contains_points(drawn, radius=-2e-3).all()
    assert not figure.axes[1].patches
    assert {text.get_text() for text in figure.axes[0].texts} == {*columns, *"abc"}


def test_a_proof_that_no_line_works_is_drawn_in_a_panel_of_its_own():
    inside, corners = [0.4, 0.3, 0.3], np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    points, labels = np.vstack([corners, [inside, [0.1, 0.1, 0.8]]]), [True, True, True, False, False]
    refuted = fit_or_refute(points, labels)
    assert isinstance(refuted, Impossible)
    panels = {"without": points, "with": points}
    arguments = (labels, np.eye(3), "abc", [0, 1], [1.0, -1.0, 0.0])
    without, detail, behind, legend = figures.simplex_with_prompt(panels, *arguments, refuted).axes
    spot, drawn = inside @ figures.TRIANGLE, corners @ figures.TRIANGLE
    for axes, marked in ((without, True), (detail, True), (behind, False)):
        stars = [np.ravel(line.get_xydata()) for line in axes.lines if line.get_marker() == "*"]
        np.testing.assert_allclose(stars, [spot] if marked else np.empty((0,)))
    (low_x, high_x), (low_y, high_y) = detail.get_xlim(), detail.get_ylim()
    assert low_x < drawn[:, 0].min() < drawn[:, 0].max() < high_x
    assert low_y < drawn[:, 1].min() < drawn[:, 1].max() < high_y
    outline = max((line.get_xydata() for line in detail.lines), key=len)
    assert {tuple(corner.round(9)) for corner in outline} == {tuple(corner.round(9)) for corner in drawn}
    assert "mixture of both labels" in [text.get_text() for text in legend.get_legend().get_texts()]
    (frame,) = without.patches
    np.testing.assert_allclose(frame.get_bbox().extents, [low_x, low_y, high_x, high_y])
    for count in (1, 3):  # with a panel to spare or without, each is drawn
        some = {str(k): points for k in range(count)}
        assert len(figures.simplex_with_prompt(some, *arguments, refuted).axes) == count + 1
    assert len(figures.simplex_with_prompt(panels, *arguments).axes) == 2
