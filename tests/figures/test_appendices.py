"""What the appendices show: the numbers of the model, and the rulings that are on record."""

from dataclasses import replace

import numpy as np
import pytest
from companion.evidence import ledger
from companion.figures.appendices import columns_of_w, grids, rulings

from hmmlib.models.sentences import farm

FARM = farm()


def numbers(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_columns_of_w_are_those_of_the_model():
    figure = columns_of_w(FARM, [(0, 0), (1, 0)], unseen=[(2, 0)])
    (axes,) = figure.axes
    shown = axes.images[0].get_array()
    assert shown.shape == (7, 12)
    assert shown[:, 4].tolist() == FARM.model.emission[:, 1, 1].tolist()
    assert [label.get_text() for label in axes.get_yticklabels()] == FARM.words
    assert [label.get_text() for label in axes.get_xticklabels()][:4] == ["dog", "hen", "cat", "dog"]
    assert [patch.get_x() for patch in axes.patches] == [-0.5, 0.5]
    assert sum(len(line.get_xdata()) == 2 and line.get_xdata()[0] != line.get_xdata()[1] for line in axes.lines) == 2
    assert ".6" in numbers(axes)
    assert "0" not in numbers(axes)
    assert figure.get_size_inches()[0] <= 5  # for phones


def test_grids_have_their_numbers_and_as_many_in_a_row_as_asked():
    table = np.array([[0.25, 0.0], [1.0, 0.5]])
    figure = grids({"one": (table, "xy"), "two": (table.T, "xy"), "three": (table, "xy")}, ["p", "q"], 2)
    assert len(figure.axes) == 4
    assert numbers(figure.axes[0]) == [".25", "1.00", ".50"]
    assert [axis.get_title() for axis in figure.axes] == ["one", "two", "three", ""]
    assert not figure.axes[3].axison
    assert figure.get_size_inches()[0] <= 5


def test_rulings_are_those_on_record_or_an_error():
    entry = ledger.run(ledger.find("Lemma D.9"), 10, 0)
    (row,) = rulings([entry]).rows
    assert row[0] == "Lemma D.9"
    assert row[2] == "false statement"
    assert row[3] == "5 of 5 without “disjoint spans (D.5)”"
    with pytest.raises(AssertionError, match=r"Lemma D\.9 is not as recorded"):
        rulings([replace(entry, verdict="fails")])
    assert rulings([replace(entry, residual=0.0)]).rows[0][1] == "0"
