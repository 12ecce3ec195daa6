"""Small random memory models whose probabilities are summed over every memory, state and token, without messages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hmmbook.evidence.enumeration import Joint, conditional
from hmmbook.evidence.random_models.instances import all_inputs
from hmmlib import MemoryHMM, latent_given_others, masked_token_probs, memory_posterior, sparse_memory_hmm

N_TOKENS = 3


class Drawn(NamedTuple):
    """A model, and how long the inputs are on which it is checked."""

    model: MemoryHMM
    length: int


class Comparison(NamedTuple):
    """What the library computes of one model, and the same as sums."""

    n_cells: int
    pairs: dict[str, tuple[np.ndarray, np.ndarray]]
    """By the name of a quantity, what the library computes for all inputs, and the sum of every path."""


def draw(seed: int) -> Drawn:
    """Draw a model with one to three cells and exact zeros, and of sizes that can be enumerated.

    Args:
        seed: The seed. No assumption is imposed on the model.
    """
    rng = np.random.default_rng(seed)
    n_cells = int(rng.integers(1, 4))
    n_memory = int(rng.integers(1, 4)) if n_cells == 1 else 2
    n_states = n_cells * int(rng.integers(1, 4 if n_cells == 1 else 3))
    length = int(rng.integers(1, 4 if n_cells < 3 else 3))
    zeros = 0.6 * rng.random()
    return Drawn(sparse_memory_hmm(n_memory, n_states, N_TOKENS, seed, zeros, n_cells), length)


def compare(seed: int) -> Comparison:
    """Compute G and two posteriors of a drawn model for all inputs of its length, by the library and as sums.

    Args:
        seed: The seed of the model.
    """
    model, length = draw(seed)
    inputs = all_inputs(N_TOKENS, length)
    table = Joint(model.transition, model.emission, model.initial, [None] * length, model.memory)
    positions = range(1, length + 1)
    tokens = np.stack([conditional(table.token(i)) for i in positions], 1)
    latent = np.stack([conditional(table.cell_and_state(i)) for i in positions], 1)
    cells = range(model.n_cells)
    beliefs = np.stack([conditional(table.given_input(f"m{j}")) for j in cells])
    beliefs_of_library = np.stack([memory_posterior(model, inputs, j).numpy() for j in cells])
    latent_of_library = latent_given_others(model, inputs).numpy().reshape(latent.shape)
    pairs = {
        "G": (masked_token_probs(model, inputs).numpy(), tokens),
        "P[M_J, J, S | x_-i], (D.1)": (latent_of_library, latent),
        "P[M_j | x]": (beliefs_of_library, beliefs),
        "G, flattened": (masked_token_probs(model.flatten(), inputs).numpy(), tokens),
    }
    return Comparison(model.n_cells, pairs)


def compare_many(instances: int, seed: int) -> list[Comparison]:
    """Compare what the library computes with sums over every path on random models.

    Args:
        instances: The number of models.
        seed: Where their seeds are drawn from.
    """
    seeds = np.random.SeedSequence(seed).generate_state(instances).tolist()
    return [compare(model_seed) for model_seed in seeds]
