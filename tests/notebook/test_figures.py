"""What all figures share: inks that can be read, and legends that take no width."""

import matplotlib
import numpy as np
import pytest
from colours import contrast
from matplotlib.colors import to_rgb

from hmmlib.notebook import figures
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


def test_legends_are_below():
    figures.use_style()
    drawn = [
        figures.distributions({"a": [0.2, 0.8], "b": [0.5, 0.5]}, ["x", "y"]),
        figures.attention(["a", "b"], [0.1, 1.0], [False, True]),
        figures.simplex(np.eye(3), [True, False, True], np.eye(3), np.array([1.0, -1.0, 0.5])),
    ]
    for figure in drawn:
        axes = figure.axes[-1]
        figure.canvas.draw()
        assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0 + 1
        assert figure.get_size_inches()[0] <= 5.5


def test_stacked_bars_stand_on_each_other():
    parts = {"a": [0.1, 0.2], "b": [0.3, 0.4]}
    (axes,) = figures.stacked({"all": parts}, ["x", "y"], "token").axes
    bars = [(bar.get_y(), bar.get_height()) for part in axes.containers for bar in part]
    np.testing.assert_allclose(bars, [(0, 0.1), (0, 0.2), (0.1, 0.3), (0.2, 0.4)])


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


def test_columns_of_beliefs_are_as_wide_as_asked():
    words, cells = list("abcdefg"), {"c": (["x", "y"], np.full((8, 2), 0.5))}
    wide, narrow = (figures.beliefs(words, cells, column).get_size_inches()[0] for column in (0.75, 0.47))
    assert np.isclose(wide - narrow, 7 * 0.28)
    assert narrow < 5.5
