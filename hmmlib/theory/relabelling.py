"""Beyond the paper: how a prompt can change which tokens stand for a state, which no fake token can.

A network that holds the belief p, (S,), predicts W p. Let the prompt add a signal, (X, S), to what |X||H| gated units
read, each of which is max(0, p_h + signal_xh - 1): p_h where the signal is 1, and 0 where it is 0. Unit (x, h) adds
to the prediction of token x, and takes back what state h contributed before, the column W_:h. So behind a prompt
whose signal has one 1 for each state, the network predicts R p, with R the signal; without a prompt, W p. No weight
depends on R.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def signal_for(words: Sequence[int], n_tokens: int) -> Float[Tensor, "X S"]:
    """The signal with which the token `words[h]` stands for state h, (X, S) of zeros and ones, float64."""
    return torch.nn.functional.one_hot(torch.as_tensor(words), n_tokens).T.double()


def gated_readout(
    emission: Float[Tensor, "X S"], beliefs: Float[Tensor, "n S"], signal: Float[Tensor, "X S"] | None = None
) -> Float[Tensor, "n X"]:
    """What such a network predicts from beliefs (n, S), with W the `emission`, (X, S): guesses (n, X).

    W p without a signal. A state whose column of the signal is 0 keeps its column of W.
    """
    beliefs = beliefs.to(emission)
    if signal is None:
        return beliefs @ emission.T
    gates = (beliefs.unsqueeze(1) + signal.to(emission) - 1).relu()  # (n, X, S)
    return beliefs @ emission.T + gates.sum(2) - gates.sum(1) @ emission.T
