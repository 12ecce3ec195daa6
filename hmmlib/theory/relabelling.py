"""Beyond the paper: how a prompt can give the states other words, which no fake token can.

A network that holds the belief p, (S,), says W p. Let the prompt add a signal, (X, S), to what |X||H| gated units read, each
of which is max(0, p_h + signal_xh - 1): p_h where the signal is 1, and silent where it is 0. Unit (x, h) writes the token x
and takes back what state h said before, the column W_:h. So behind a prompt whose signal has one 1 for each state, the
network says R p, with R the signal; without a prompt, W p. No weight depends on R.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.validation import as_tensor, at_least, integers_between, of_shape, of_width

if TYPE_CHECKING:
    from jaxtyping import Float


def signal_for(words: Sequence[int], n_tokens: int) -> Float[Tensor, "X S"]:
    """The signal that tells state h as the token `words[h]`, (X, S) of zeros and ones, float64.

    ValueError for a word that is no token.
    """
    words = integers_between("words", words, 0, at_least("n_tokens", n_tokens, 1) - 1)
    return torch.nn.functional.one_hot(torch.tensor(words, dtype=torch.int64), n_tokens).T.double()


def gated_readout(
    emission: Float[Tensor, "X S"], beliefs: Float[Tensor, "n S"], signal: Float[Tensor, "X S"] = None
) -> Float[Tensor, "n X"]:
    """What such a network says of beliefs (n, S), with W the `emission`, (X, S): guesses (n, X).

    W p without a signal. A state whose column of the signal is 0 keeps the words of W.
    ValueError for shapes that do not fit together.
    """
    emission = as_tensor("emission", emission, 2)
    beliefs = of_width("beliefs", beliefs, emission.shape[1], 2).to(emission)
    if signal is None:
        return beliefs @ emission.T
    signal = of_shape(
        "signal", as_tensor("signal", signal, 2, like=emission), tuple(emission.shape), ", as emission has"
    )
    gates = (beliefs.unsqueeze(1) + signal - 1).relu()  # (n, X, S)
    return beliefs @ emission.T + gates.sum(2) - gates.sum(1) @ emission.T
