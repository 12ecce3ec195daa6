"""The figures of one chain on the exact model can be drawn for chains of any size."""

from io import BytesIO

import pytest
import torch

from hmmbook import draw_task
from hmmbook.figures import exact_model
from hmmlib import random_hmm


@pytest.mark.parametrize("n_states", [1, 2, 3, 4, 12])
def test_a_chain_is_drawn_though_no_state_has_the_shaded_token_or_a_weight_of_some_sign(n_states):
    chain = random_hmm(n_states, seed=0)
    task = draw_task(chain, 9, (40, 0, 0), 0, "before")
    prompt = torch.linspace(0.2, 1, n_states, dtype=torch.float64)
    shaded = int(chain.emission.sum(1).argmin())

    states = exact_model.states_by_token(chain, task, prompt, shaded)
    shares = exact_model.belief_by_token(chain, task, {"prompt": prompt}, shaded)

    for figure in (states, shares):
        figure.savefig(BytesIO(), bbox_inches="tight")
    drawn = [marks.get_offsets() for marks in states.axes[0].collections if marks.get_label().startswith("_")]
    assert sum(map(len, drawn)) == n_states
