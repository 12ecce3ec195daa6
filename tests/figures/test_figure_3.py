"""Figure 3 and what explains it draw what the results have."""

import numpy as np
import pytest
from companion.figures import figure_3
from companion.figures.figure_3 import LADDER, LEFT, RIGHT

from hmmlib.experiments.results import published, results, share_learned
from hmmlib.experiments.store import STORE

RESULTS = results("quick", STORE).query("changes == ''")
VANILLA = RESULTS[RESULTS.n_memory == 1]


def drawn(figure, label):
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == label]
    return np.asarray(line.get_xydata(), dtype=float)


@pytest.mark.parametrize(("name", "series", "shifts"), [("left", LEFT, (-0.15, 0.15)), ("right", RIGHT, (-0.15, 0.15))])
def test_a_panel_draws_the_means_of_the_results_and_the_published_ones(name, series, shifts):
    table = VANILLA if name == "left" else RESULTS
    figure = figure_3.panel(table, name)
    for (label, column), shift in zip(series.items(), shifts, strict=True):
        rows = {"memory HMM + attention head": RESULTS[RESULTS.n_memory > 1]}.get(label, VANILLA)
        means = rows.groupby("size")[column].mean()
        np.testing.assert_allclose(drawn(figure, label), np.transpose([means.index + shift, means]))
        paper = published(name)[label].dropna().map(lambda found: found.mean).reset_index().to_numpy()
        np.testing.assert_allclose(drawn(figure, f"{label}, published"), paper)


def test_the_other_figures_draw_their_numbers():
    gains = drawn(figure_3.gains(VANILLA), "mean with its 95% interval")
    np.testing.assert_allclose(gains, VANILLA.groupby("size").gain.mean().reset_index())
    dots = figure_3.against_learned(VANILLA).axes[0].collections
    for part, column in zip(dots, LEFT.values(), strict=True):
        np.testing.assert_allclose(part.get_offsets(), np.transpose([share_learned(VANILLA), VANILLA[column]]))
    figure = figure_3.ladder(VANILLA)
    for label, column in LADDER.items():
        means = VANILLA.groupby("size")[column].mean().dropna()
        np.testing.assert_allclose(drawn(figure, label)[:, 1], means)
