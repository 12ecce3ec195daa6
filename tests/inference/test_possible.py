"""What is possible given all other tokens, from zeros alone: where the sum over all paths is positive."""

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Joint
from companion.evidence.random_models.instances import all_inputs

from hmmlib.inference.messages import possible_given_others
from hmmlib.models.families import sparse_columns
from hmmlib.models.hmm import HMM, MemoryHMM


def sparse(shape, draw):
    return sparse_columns(shape, 0.5, draw)


def jointly(table, model, cells, i):
    """Pr(x_{-i}, M_{J_i}, H_i), or Pr(x_{-i}, H_i) where there is no memory, for all inputs, (n, M * H) or (n, S)."""
    if not cells:
        return table.left_out(i, f"h{i}")
    size = model.n_syntax
    parts = [table.left_out(i, f"m{j}", f"h{i}")[:, :, j * size : (j + 1) * size] for j in range(cells)]
    return np.concatenate(parts, 2).reshape(len(parts[0]), -1)


@pytest.mark.parametrize("cells", [0, 1, 2])
@pytest.mark.parametrize("with_prompt", [False, True])
def test_it_is_where_the_sum_over_all_paths_is_positive(cells, with_prompt):
    seen = {True: 0, False: 0}
    for seed in range(30):
        draw, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
        n_states, n_memory = 2 if cells else 3, 2
        chain, start = sparse((n_states, n_states), draw), sparse((n_states,), draw)
        if cells:
            prior = sparse((n_memory**cells,), draw).reshape([n_memory] * cells)
            model = MemoryHMM(chain, sparse((3, n_memory, n_states), draw), start, prior)
        else:
            prior, model = None, HMM(chain, sparse((3, n_states), draw), start, columns=True)
        width = n_memory**cells * n_states if cells else n_states
        prompt = (rng.random(width) < 0.6).astype(float) if with_prompt else None
        texts = all_inputs(3, 2)
        found = possible_given_others(model, texts, prompt)
        rows = [None, None] if prompt is None else [prompt, None, None]
        table = Joint(model.transition, model.emission, model.initial, rows, prior)
        for i in range(1 + with_prompt, len(rows) + 1):  # what stands in the prompt's own place, the other form tells
            want = jointly(table, model, cells, i) > 0
            assert np.array_equal(found[:, i - 1].numpy(), want), (seed, i)
            for one in (True, False):
                seen[one] += int((want == one).sum())
    assert min(seen.values()) > 200
