"""The figures of the appendices' pages show the numbers that they are given."""

import numpy as np
from matplotlib.colors import to_rgb

from hmmbook.evidence import ledger
from hmmbook.figures import appendices
from hmmbook.figures.appendices import PLACES, PROVED_FIRST, SUBJECTS


def close(drawn, expected):
    np.testing.assert_allclose(drawn, expected, rtol=1e-7, atol=1e-12)


def test_a_vector_is_in_brackets():
    assert appendices.vector([0.25, 0.75]) == "(0.250, 0.750)"
    assert appendices.vector([1.0, -0.0], ".0f") == "(1, 0)"


def test_the_odds_are_points_and_the_line_through_the_origin_has_the_slope():
    (axes,) = appendices.odds_of_two_starts([1.0, 2.0], [0.5, 1.0], 0.5).axes

    close(axes.collections[0].get_offsets(), [[1, 0.5], [2, 1]])
    (x, y) = axes.lines[0].get_data()
    close(y, 0.5 * np.asarray(x))
    assert axes.texts[0].get_text() == "slope 0.50"


def test_the_dashes_of_two_halves_are_as_wide_and_as_high_as_the_last_bars():
    both = [0.2, 0.3, 0.5]
    beliefs = {"prior": [1 / 3] * 3, "left": [0.1, 0.2, 0.7], "right": [0.5, 0.25, 0.25], "both": both}

    (axes,) = appendices.two_halves(beliefs, both).axes

    for dash, bar in zip(axes.collections[-1].get_segments(), axes.containers[-1], strict=True):
        close(dash[:, 1], bar.get_height())
        close(dash[:, 0], [bar.get_x(), bar.get_x() + bar.get_width()])


def test_a_box_has_its_statement_with_a_subject_and_is_shaded_if_the_first_page_proves_it():
    texts = appendices.proofs_of_appendix_d().axes[0].texts[: len(PLACES)]
    shaded = to_rgb("#dde3e8")

    for name, text in zip(PLACES, texts, strict=True):
        face = to_rgb(text.get_bbox_patch().get_facecolor())
        assert text.get_text() == f"{name}\n{SUBJECTS[name]}"
        assert (face == shaded) == (name in PROVED_FIRST)


def test_more_texts_are_a_larger_point_and_cats_have_a_ring():
    targets = [0.0, 0.0, 0.5, 0.5, 0.5, -0.25]
    scores = [0.0, 0.0, 0.1, 0.1, 0.1, -0.05]

    (axes,) = appendices.scores_and_targets(targets, scores, [True, True, False, False, False, False]).axes

    points, ring = axes.collections
    close(points.get_offsets(), [[-0.25, -0.05], [0, 0], [0.5, 0.1]])
    close(points.get_sizes(), [18, 24, 30])
    close(ring.get_offsets(), [[0, 0]])
    close(ring.get_sizes(), [84])
    assert [text.get_text() for text in axes.texts] == ["surely a cat"]


def test_without_cats_there_is_no_ring():
    (axes,) = appendices.scores_and_targets([0.5, -0.5], [0.1, -0.1], [False, False]).axes

    assert len(axes.collections) == 1
    assert not axes.texts


def test_a_condition_is_no_ruling_and_a_control_says_how_often_it_failed():
    entry = ledger.run(ledger.find("Assumption D.5"), 1, seed=0)

    (row,) = appendices.rulings_of_appendix_d([entry]).rows

    assert row[:2] == ["Assumption D.5", "condition"]
    assert row[2].startswith("5 of 5 without “")
