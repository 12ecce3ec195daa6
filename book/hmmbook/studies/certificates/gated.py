"""How a prompt can change which tokens stand for a state, which no fake token can: by opening gates in a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from hmmlib.validation import as_array, as_tensor

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike


def signal_for(words: Sequence[int], n_tokens: int) -> Float[torch.Tensor, "X S"]:
    """Make the signal with which one token stands for each state.

    Args:
        words: The token for each state.
        n_tokens: X.

    Returns:
        Zeros and ones, (X, S), float64, with a one at (words[h], h).
    """
    return F.one_hot(as_array("words", words).long(), n_tokens).T.double()


def gated_readout(
    emission: Float[ArrayLike, "X S"],
    beliefs: Float[ArrayLike, "n S"],
    signal: Float[ArrayLike, "X S"] | None = None,
) -> Float[torch.Tensor, "n X"]:
    """Predict tokens as a network of |X||H| gated units does. No weight of it depends on the signal.

    Unit (x, h) is max(0, p_h + signal_xh - 1). It is p_h where the signal is 1, and 0 where it is 0. It adds to the
    prediction of token x, and takes back what state h contributed before, the column W_:h. So with a prompt whose
    signal R has one 1 for each state, the network predicts R p. A state without a signal keeps its column of W.

    Args:
        emission: W, (X, S).
        beliefs: p, (n, S).
        signal: The signal that the prompt brings, (X, S). If left out, the network predicts W p.

    Returns:
        Predictions, (n, X).
    """
    emission = as_tensor("emission", emission, 2)
    beliefs = as_tensor("beliefs", beliefs, 2, like=emission)
    plain = beliefs @ emission.T
    if signal is None:
        return plain
    signal = as_tensor("signal", signal, 2, like=emission)
    gates = (beliefs.unsqueeze(1) + signal - 1).relu()  # (n, X, S)
    return plain + gates.sum(2) - gates.sum(1) @ emission.T
