"""How far does the likeliest state take one, or the likeliest token? A table that gives each of them one label tells.

On its training texts such a table has the more frequent label of each state or token. It needs the exact belief, or the
exact prediction. What it reaches shows how much of an accuracy could come from the likeliest state alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hmmbook import Task
from hmmlib import HMM
from hmmlib.theory.heads import share_right


def table_accuracy(task: Task, probs: Tensor) -> float:
    """Return the test accuracy of a table with one label for each likeliest state, or token.

    The label is the more frequent one of the training texts that have this likeliest state, and 1 for a tie or where
    there is no such text.

    Args:
        task: The task.
        probs: Beliefs in states, or predictions of tokens, for all texts of the task, (n, k).
    """
    train, _, test = task.split(probs)
    signs = 2.0 * task.train.labels.double() - 1
    balance = torch.zeros(probs.shape[1]).double().index_add_(0, train.argmax(1), signs)
    return share_right(balance[test.argmax(1)] >= 0, task.test.labels)


def opposite_weights_share_a_token(model: HMM, mu: Tensor) -> bool:
    """Whether two states have weights μ of opposite sign and one likeliest token.

    Args:
        model: The chain.
        mu: The weights, (S,).
    """
    likeliest_tokens = model.emission.argmax(0)
    above = set(likeliest_tokens[mu > 0].tolist())
    below = set(likeliest_tokens[mu < 0].tolist())
    return bool(above & below)
