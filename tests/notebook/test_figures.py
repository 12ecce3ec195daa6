"""What all figures share: inks that can be read, and legends that take no width."""

import matplotlib
import numpy as np
import pytest
from colours import contrast
from matplotlib.colors import to_rgb

from hmmlib.notebook import figures

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
