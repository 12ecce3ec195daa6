"""A table of likeliest states or tokens is right where its labels, counted by hand, are."""

import torch

from hmmbook import Task
from hmmbook.studies.likeliest import opposite_weights_share_a_token, table_accuracy
from hmmlib import HMM


def task_of(labels: list[bool], n_train: int) -> Task:
    n = len(labels)
    tokens = torch.zeros(n, 2, dtype=torch.int64)
    posteriors = torch.zeros(n, 3).double()
    return Task(tokens, torch.tensor(labels), torch.zeros(3).double(), 0, (n_train, 0, n - n_train), posteriors)


def beliefs_in(*likeliest: int) -> torch.Tensor:
    """Beliefs in three states, one for each text, of which these are the likeliest states."""
    return torch.full((len(likeliest), 3), 0.1).double().scatter(1, torch.tensor(likeliest)[:, None], 0.8)


def test_each_state_has_the_more_frequent_label_of_its_training_texts():
    # In the four training texts state 0 has the labels 1, 1, 0, and state 1 has 0. Then come four test texts.
    labels = [True, True, False, False, True, False, True, False]
    beliefs = beliefs_in(0, 0, 0, 1, 0, 0, 1, 1)

    assert table_accuracy(task_of(labels, n_train=4), beliefs) == 0.5


def test_a_tie_and_a_state_without_training_texts_have_label_1():
    labels = [True, False, True, False, True]
    beliefs = beliefs_in(0, 0, 0, 0, 2)

    assert table_accuracy(task_of(labels, n_train=2), beliefs) == 2 / 3


def test_opposite_weights_share_a_token_only_where_both_signs_are_on_one():
    # The likeliest tokens of the states are 0, 0 and 1.
    emission = torch.tensor([[0.9, 0.8, 0.1], [0.1, 0.2, 0.9]], dtype=torch.float64)
    stays = torch.eye(3).double()
    chain = HMM(stays, emission / emission.sum(0), torch.tensor([0.5, 0.25, 0.25]).double())

    assert opposite_weights_share_a_token(chain, torch.tensor([1.0, -1.0, 0.0]))
    assert not opposite_weights_share_a_token(chain, torch.tensor([1.0, 0.0, -1.0]))
    assert not opposite_weights_share_a_token(chain, torch.tensor([1.0, 1.0, -1.0]))
