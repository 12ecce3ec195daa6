"""The figure and the tables of the page of errata show what they are given."""

import torch

from hmmbook.figures import errata
from hmmlib import masked_token_probs, recoverable_memory_hmm, shrinking_support, theorem_4_3


def test_a_vector_is_written_with_fractions_and_other_numbers_with_two_digits():
    assert errata.fractions([0.5, 0.25, 0, 1 / 3]).split("\N{NO-BREAK SPACE}") == ["(½,", "¼,", "0,", "0.33)"]


def test_each_row_is_a_column_of_w():
    model, _ = shrinking_support()

    table = errata.columns_of_w(model, ["p", "q", "r"])

    assert list(table.head) == ["column of W", "token 0", "token 1", "token 2", "token 3"]
    assert table.rows[0] == ["p, M = 0", "0.5", "0.5", "0", "0"]
    assert table.rows[5] == ["r, M = 1", "0", "1", "0", "0"]


def test_words_stand_beside_the_rows_of_both_grids():
    figure = errata.second_states(torch.eye(3)[:2], torch.eye(3)[1:], ["in", "not in"], ["attended", "also attended"])

    for axis, words in zip(figure.axes, (["in", "not in"], ["attended", "also attended"]), strict=True):
        shown = [text.get_text() for text in axis.texts]
        assert shown[-2:] == words
        assert axis.texts[-1].get_weight() == "bold"


def test_scores_output_and_label_stand_in_the_column_of_each_head():
    model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2, seed=0)
    head = theorem_4_3(model, [1.0, -1.0], cell, syntax)
    text = model.sample(1, 2, seed=0).tokens
    probs = masked_token_probs(model, text)
    embeddings = model.embed(text)

    table = errata.scores_and_labels({"-1": head}, probs, embeddings, -0.25)

    output = head(probs, embeddings).item()
    assert table.head == ["β₁ ends in", "−1", "target"]
    assert [row[0] for row in table.rows] == ["score of position 1", "score of position 2", "output", "label"]
    assert float(table.rows[2][1].replace("−", "-")) == round(output, 2)
    assert table.rows[3][1:] == [str(int(output >= 0)), "0"]
    assert table.rows[2][2] == "−0.25"
