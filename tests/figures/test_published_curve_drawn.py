"""The figures and tables of the page on the published curve show the trials that they are given."""

import pandas as pd
import pytest

from hmmbook.experiments.intervals import Interval
from hmmbook.experiments.results import published
from hmmbook.experiments.results import results as stored_results
from hmmbook.experiments.store import STORE
from hmmbook.figures import published_curve, published_curve_tables
from hmmbook.studies.published_curve import groups

TRIALS = pd.DataFrame(
    {
        "n_states": [30, 30, 30, 30],
        "head_accuracy": [0.6, 0.61, 0.7, 0.8],
        "prompt_accuracy": [0.6, 0.7, 0.9, 1.0],
        "majority_rate": [0.6, 0.6, 0.6, 0.6],
        "learned": [0.02, 0.05, 0.4, 0.9],
    }
)


def lines(figure) -> dict:
    return {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].lines}


def title(figure) -> str:
    """The title, wherever the style of figures puts it."""
    return figure.axes[0].get_title() or figure.axes[0].get_title("left")


def test_networks_on_the_plateau_are_rings_beside_the_curve():
    left = stored_results("quick", STORE).query("changes == '' and n_memory == 1 and n_states in [4, 30]")

    drawn = lines(published_curve.prompts_by_size(left, TRIALS, plateau=0.1))

    assert drawn["nine changes, learned below 0.1"] == [[31, 0.6], [31, 0.7]]
    assert drawn["nine changes, learned more"] == [[31, 0.9], [31, 1.0]]


def test_points_above_the_more_frequent_label_are_drawn_and_those_near_it_counted():
    figure = published_curve.above_more_frequent_label(TRIALS, plateau=0.1)
    axes = figure.axes[0]

    heads = next(marks for marks in axes.collections if marks.get_label() == "head tuning")
    assert heads.get_offsets()[:, 0].tolist() == [0.02, 0.05, 0.4, 0.9]
    assert heads.get_offsets()[:, 1].tolist() == pytest.approx([0, 1, 10, 20])
    assert "2 of 2 heads and 1 of 2 prompts\nare within 2 points" in title(figure)
    assert "2 of 3 heads and 1 of 3 prompts" in title(published_curve.above_more_frequent_label(TRIALS, 0.5))


def test_a_row_for_each_group_is_below_the_published():
    figure = published_curve.changes({"ours": TRIALS}, plateau=0.1)
    axes = figure.axes[0]

    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["published", "ours\n(learned: 0.34)"]
    heads = next(line for line in axes.lines if line.get_label() == "head tuning")
    assert heads.get_xdata().tolist() == pytest.approx([published("left")["head tuning"][30].mean, 0.6775])


def test_gaps_are_drawn_in_percentage_points():
    gap = {(4, "head tuning"): Interval(-0.1, -0.2, 0.0, 40), (4, "prompt tuning"): Interval(0.1, 0.0, 0.2, 40)}

    drawn = lines(published_curve.gaps(gap))

    assert drawn["head tuning"][0][0] == pytest.approx(-10)
    assert drawn["prompt tuning"][0][0] == pytest.approx(10)


# Tables


def test_means_in_ranges_of_the_share_learned_have_the_number_of_networks():
    table = published_curve_tables.prompts_by_learned({"ours": TRIALS})

    assert table.head[1:] == ["0 to 0.1", "0.1 to 0.3", "0.3 to 0.6", "0.6 to 0.9", "0.9 to 1"]
    assert table.rows == [["ours", "65.0% (2)", "–", "90.0% (1)", "–", "100.0% (1)"]]


def test_trials_of_one_seed_are_below_each_other():
    table = published_curve_tables.single_trials({"paper": TRIALS[:2], "quick": TRIALS[1:]})

    assert [row[0] for row in table.rows] == ["0, paper", "1, paper", "1, quick"]
    assert table.rows[0][1:] == ["0.02", "60.0%", "60.0%", "60.0%"]


def test_little_learned_is_in_points_above_the_more_frequent_label():
    (row,) = published_curve_tables.little_learned({"ours": TRIALS}).rows

    assert row[0] == "ours (4)"
    assert row[1].startswith("+20 [")
    assert row[2].startswith("+8 [")
    assert row[3] == "0.34"


def test_two_presets_are_beside_each_other_on_the_same_chains():
    both = pd.DataFrame({"preset": ["laptop", "quick"], "learned": [0.5, 0.7]})

    table = published_curve_tables.laptop_beside_quick({30: both}, {"share learned": "learned"})

    assert table.head == ["states (chains)", "share learned: laptop", "quick"]
    assert table.rows == [["30 (1)", "50%", "70%"]]


def test_tables_of_all_sizes_begin_with_the_published_and_dash_what_is_missing():
    table = published_curve_tables.all_sizes("head tuning", {"ours": TRIALS})

    assert [row[0] for row in table.rows] == [str(n_states) for n_states in groups.SIZES]
    assert table.rows[0][2] == "–"
    assert table.rows[-1][2].startswith("67.8%\u00a0±\u00a09.3% [")
    assert table.rows[-1][1].startswith("66.2%")
    assert published_curve_tables.tunings({"ours": TRIALS}).rows[1][3] == "–"
