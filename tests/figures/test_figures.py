"""What the static figures show, at the places where they draw it; and inks, legends and type that can be read."""

from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from colours import contrast
from companion.evidence import ledger
from companion.figures import figures, triangles
from companion.figures.tables import rulings
from matplotlib.colors import to_hex

from hmmlib.models.sentences import farm
from hmmlib.theory.separation import Impossible, fit_or_refute

BLUES = matplotlib.colormaps["Blues"]


def points(axes) -> dict[str, np.ndarray]:
    """Where the marks of each label stand."""
    return {marks.get_label(): np.asarray(marks.get_offsets()) for marks in axes.collections}


def test_inks_can_be_read():
    shades = np.linspace(0, 1, 201)
    assert min(contrast(to_hex(BLUES(v)), figures.ink_on_shade(v)) for v in shades) >= 4.4
    assert min(contrast(to_hex(BLUES(v)), figures.ink_on_shade(1 - v)) for v in shades) < 1.5
    assert not {figures.ink_on_shade(v) for v in shades} & {
        figures.INK,
        "#ffffff",
        "#000000",
    }  # those turn with the page
    assert min(contrast(colour, "#ffffff") for colour in figures.COLOURS) >= 3


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


def test_bars_have_their_heights_and_stacked_ones_stand_on_each_other():
    (axes,) = figures.distributions({"a": [0.2, 0.8], "b": [0.5, 0.5]}, ["x", "y"]).axes
    assert [bar.get_height() for bar in axes.patches] == [0.2, 0.8, 0.5, 0.5]
    (axes,) = figures.stacked({"all": {"a": [0.1, 0.2], "b": [0.3, 0.4]}}, ["x", "y"], "token").axes
    bars = [(bar.get_y(), bar.get_height()) for bar in axes.patches]
    np.testing.assert_allclose(bars, [(0, 0.1), (0, 0.2), (0.1, 0.3), (0.2, 0.4)])


def test_lines_and_points_are_those_of_their_numbers():
    (axes,) = figures.curve([1, 2], {"a": [3, 4], "b": [5, 6]}, "x", "y", log="y").axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[1, 3], [2, 4]], [[1, 5], [2, 6]]]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    (axes,) = figures.losses([1, 2], [0.9, 0.5], {"least": 0.3}).axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.9, 0.5], [0.3, 0.3]]
    (axes,) = figures.scatter([1, 2], [4, 3], "x", "y", diagonal=True).axes
    assert axes.collections[0].get_offsets().tolist() == [[1, 4], [2, 3]]
    assert axes.lines[0].get_xydata().tolist() == [[1, 1], [4, 4]]
    (axes,) = figures.attention("ab", [0.3, 1.0], [False, True]).axes
    assert {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers} == {
        "attended": [1.0],
        "not attended": [0.3],
    }


def test_an_arrow_leads_from_what_is_used():
    (axes,) = figures.dependencies({"a": (0, 0), "b": (1, 2)}, [("a", "b")], ["b"]).axes
    (arrow,) = [text for text in axes.texts if not text.get_text()]
    assert (arrow.get_position(), arrow.xy) == ((0, 0), (1, 2))
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["a", "b*"]


def test_tables_have_their_numbers_in_type_that_a_phone_can_show():
    words, table = [f"word{k}" for k in range(11)], np.full((12, 3), 1 / 3)
    figure = figures.beliefs(words, {cell: (["x", "y", "z"], table) for cell in "abc"})
    figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["(prior)", *words]
    assert [axes.get_xlabel() for axes in figure.axes] == ["a", "b", "c"]
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == [".33"] * 36
        assert min(text.get_fontsize() for text in axes.texts) >= 9.5
        left, middle, right = (text.get_window_extent() for text in axes.texts[:3])
        assert left.x1 < middle.x0 < middle.x1 < right.x0

    table = np.array([[0.25, 0.0], [1.0, 0.5]])
    figure = figures.grids({"one": (table, "xy"), "two": (table.T, "xy")}, ["p", "q"])
    assert [text.get_text() for text in figure.axes[0].texts] == [".25", "1.00", ".50"]
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]

    (axes,) = figures.columns_of_w(farm(), [(0, 0), (1, 0)], unseen=[(2, 0)]).axes
    shown = axes.images[0].get_array()
    assert shown.shape == (7, 12)
    assert shown[:, 4].tolist() == farm().model.emission[:, 1, 1].tolist()
    assert [label.get_text() for label in axes.get_yticklabels()] == farm().words
    assert [label.get_text() for label in axes.get_xticklabels()][:4] == ["dog", "hen", "cat", "dog"]
    assert [patch.get_x() for patch in axes.patches] == [-0.5, 0.5]
    assert [list(line.get_xdata()) for line in axes.lines][-2:] == [[1.5, 2.5]] * 2


def test_strips_have_each_label_on_its_side():
    rows = {"one": ([0.1, 0.2, 0.2, 0.9], [False, True, True, True]), "two": ([0.5], [False])}
    (axes,) = figures.strips(rows, "share", {"one": [], "two": [0.3, 0.8]}, {"one": 0.15}).axes
    (cut,) = [line for line in axes.lines if line.get_label() == "where the head cuts"]
    assert list(cut.get_xdata()) == [0.15, 0.15]
    above, below, _, _, lowest, crosses = (marks.get_offsets() for marks in axes.collections)
    assert above[:, 0].tolist() == [0.2, 0.9]
    assert (above[:, 1] < 0).all()  # the axis of the rows points down
    assert (below[:, 1] > 0).all()
    assert (lowest[:, 1] > 1).all()
    assert crosses.tolist() == [[0.3, 1], [0.8, 1]]


def test_a_triangle_has_points_of_both_labels_and_the_line_of_the_head():
    shares, labels = np.vstack([np.eye(3), [0.2, 0.3, 0.5]]), [True, False, True, False]
    (axes,) = triangles.simplex(shares, labels, np.eye(3)[:, :2], [1.0, -0.5, -0.5]).axes
    drawn, spots = points(axes), shares @ triangles.TRIANGLE
    np.testing.assert_allclose(drawn["label 1"], spots[[0, 2]])
    np.testing.assert_allclose(drawn["label 0"], spots[[1, 3]])
    np.testing.assert_allclose(drawn["columns of W"], spots[:2])
    (line,) = [line.get_xydata() for line in axes.lines if "head" in line.get_label()]
    np.testing.assert_allclose(line, [[1 / 3, 2 / 3, 0], [1 / 3, 0, 2 / 3]] @ triangles.TRIANGLE)
    (axes,) = triangles.simplex(shares, labels, np.eye(3), [1.0, 1.0, 1.0]).axes
    assert not [line for line in axes.lines if "head" in line.get_label()], "a head of one sign has no line there"


def test_mixtures_lie_in_the_shade_of_their_columns():
    columns = {"one": [1, 0, 0], "two": [0, 1, 0], "three": [0.2, 0.2, 0.6], "within": [0.4, 0.4, 0.2]}
    shares = np.random.default_rng(0).dirichlet(np.ones(4), 20) @ np.array(list(columns.values()))
    one, two = triangles.mixtures({"all": (np.repeat(shares, 2, 0), columns), "one": (np.eye(3), columns)}, "xyz").axes
    (shade,) = one.patches
    assert len(shade.get_xy()) == 4  # three corners, and back: what is within is none
    np.testing.assert_allclose(points(one)["predictions"], np.unique(shares.round(3), axis=0) @ triangles.TRIANGLE)
    inside = [shade.get_path().contains_points(points(one)["predictions"], radius=radius) for radius in (2e-3, -2e-3)]
    assert np.any([side.all() for side in inside])
    assert {text.get_text() for text in one.texts} == {*columns, *"xyz"}
    assert two.get_title(loc="center") == "one"


def test_a_proof_that_no_line_works_is_drawn_in_a_panel_of_its_own():
    inside, corners = [0.4, 0.3, 0.3], np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    shares, labels = np.vstack([corners, [inside, [0.1, 0.1, 0.8]]]), [True, True, True, False, False]
    refuted = fit_or_refute(shares, labels)
    assert isinstance(refuted, Impossible)
    panels = {"without": shares, "with": np.vstack([shares[:4], np.zeros(3)])}
    figure = triangles.simplex_with_prompt(panels, labels, np.eye(3), "abc", [0, 1], [1.0, -1.0, 0.0], refuted)
    before, detail, behind, legend = figure.axes
    for axes, stars in ((before, 1), (detail, 1), (behind, 0)):
        marks = [line.get_xydata().ravel() for line in axes.lines if line.get_marker() == "*"]
        np.testing.assert_allclose(
            np.reshape(marks, (-1, 2)), np.reshape([inside @ triangles.TRIANGLE] * stars, (-1, 2))
        )
    drawn = corners @ triangles.TRIANGLE
    outline = max((line.get_xydata() for line in detail.lines), key=len)
    assert {tuple(corner.round(9)) for corner in outline} == {tuple(corner.round(9)) for corner in drawn}
    (frame,) = before.patches
    (low_x, high_x), (low_y, high_y) = detail.get_xlim(), detail.get_ylim()
    assert [low_x, low_y] < drawn.min(0).tolist()
    assert [high_x, high_y] > drawn.max(0).tolist()
    np.testing.assert_allclose(frame.get_bbox().extents, [low_x, low_y, high_x, high_y])
    assert "label 0 inside label 1" in [text.get_text() for text in legend.get_legend().get_texts()]
    assert [len(points(axes)["label 0"]) for axes in (before, behind)] == [2, 1], "an impossible input has no point"
    shaded = behind.patches[-1].get_xy()
    np.testing.assert_allclose(np.unique(shaded, axis=0), np.unique(triangles.TRIANGLE[:2], axis=0))


def test_rulings_are_those_on_record_or_an_error():
    entry = ledger.run(ledger.find("Lemma D.9"), 10, 0)
    ((name, _, grade, control),) = rulings([entry]).rows
    assert (name, grade, control) == ("Lemma D.9", "false statement", "5 of 5 without “disjoint spans (D.5)”")
    assert rulings([replace(entry, residual=0.0)]).rows[0][1] == "0"
    with pytest.raises(AssertionError, match=r"Lemma D\.9 is not as recorded"):
        rulings([replace(entry, verdict="fails")])
