"""Predictions and beliefs of small memory models are sums over every memory, state and token, without messages."""

import numpy as np
import pytest

from hmmbook.evidence.enumeration import Joint, conditional
from hmmbook.evidence.random_models.instances import all_inputs
from hmmlib import (
    MemoryHMM,
    assumption_4_2,
    latent_given_others,
    masked_token_probs,
    memory_posterior,
    sparse_memory_hmm,
)

N_TOKENS = 3
SEEDS = range(20)


def draw(seed: int) -> tuple[MemoryHMM, int]:
    """A model with one to three cells and exact zeros, on which no assumption is imposed, and a length of inputs."""
    rng = np.random.default_rng(seed)
    n_cells = int(rng.integers(1, 4))
    n_memory = int(rng.integers(1, 4)) if n_cells == 1 else 2
    n_states = n_cells * int(rng.integers(1, 4 if n_cells == 1 else 3))
    length = int(rng.integers(1, 4 if n_cells < 3 else 3))
    zeros = 0.6 * rng.random()
    return sparse_memory_hmm(n_memory, n_states, N_TOKENS, seed, zeros, n_cells), length


@pytest.mark.parametrize("seed", SEEDS)
def test_the_library_computes_what_sums_over_every_path_give(seed):
    model, length = draw(seed)
    inputs = all_inputs(N_TOKENS, length)
    table = Joint(model.transition, model.emission, model.initial, [None] * length, model.memory)
    tokens = np.stack([conditional(table.token(i)) for i in range(1, length + 1)], 1)
    latent = np.stack([conditional(table.cell_and_state(i)) for i in range(1, length + 1)], 1)

    probs = masked_token_probs(model, inputs)

    np.testing.assert_allclose(probs, tokens, atol=1e-12)
    np.testing.assert_allclose(masked_token_probs(model.flatten(), inputs), tokens, atol=1e-12)
    np.testing.assert_allclose(latent_given_others(model, inputs).reshape(latent.shape), latent, atol=1e-12)
    for cell in range(model.n_cells):
        belief = conditional(table.given_input(f"m{cell}"))
        np.testing.assert_allclose(memory_posterior(model, inputs, cell), belief, atol=1e-12)


def test_the_models_have_one_to_three_cells_and_exact_zeros_and_many_break_assumption_4_2():
    models = [draw(seed)[0] for seed in range(60)]
    with_zeros = [model for model in models if (model.transition == 0).any() and (model.emission == 0).any()]
    broken = [model for model in models if not assumption_4_2(model, 0, list(range(model.n_syntax)))]

    assert {model.n_cells for model in models} == {1, 2, 3}
    assert len(with_zeros) > 20
    assert len(broken) > 15
