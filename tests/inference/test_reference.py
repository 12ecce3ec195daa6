"""The fast path, on both its ways, and the formulas as the paper prints them: each gives the sum over all paths."""

from functools import cache

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Joint, normalised
from record import SLOW

from hmmlib.inference import messages, reference
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

MODELS = 40 if SLOW else 8
FAMILIES = {
    "sparse": lambda s, x, seed: sparse_hmm(s, x, seed, zeros=0.1 * (seed % 6)),
    "appendix E": random_hmm,
    "sparse, one cell": lambda s, x, seed: sparse_memory_hmm(1 + seed % 3, s, x, seed, zeros=0.1 * (seed % 6)),
    "sparse, two cells": lambda s, x, seed: sparse_memory_hmm(1 + seed % 3, s, x, seed, 0.1 * (seed % 6), n_cells=2),
    "appendix E, two cells": lambda s, x, seed: random_memory_hmm(1 + seed % 3, s, x, seed, n_cells=2),
}
NAMES = ("masked_token_probs", "latent_given_others", "posteriors", "log_likelihood")


def draw(family, seed, most_paths=4500):
    """A model of a family, a length from 1 to 6, and a generator: as many states as enumeration can bear."""
    rng = np.random.default_rng(seed)
    length, step = int(rng.integers(1, 7)), 2 if "two" in family else 1
    cells = (1 + seed % 3) ** (0 if "cell" not in family else step)
    sizes = [s for s in range(step, 6, step) if cells * s ** (length + 1) <= most_paths] or [step]
    return FAMILIES[family](int(rng.choice(sizes)), int(rng.integers(1, 5)), seed), length, rng


def draw_tokens(model, n, length, rng):
    """Half of the sequences from the model, half arbitrary (so of probability zero, some), a fifth of it all hidden."""
    likely = model.sample(n - n // 2, length, int(rng.integers(2**31))).tokens
    tokens = torch.cat([likely, torch.as_tensor(rng.integers(0, model.n_tokens, (n // 2, length)))])
    return torch.where(torch.as_tensor(rng.random(tokens.shape) < 0.2), MASK, tokens)


def answers(module, model, tokens, prompts, free):
    """All that both modules have, by name: of tokens, of these behind prompts, and of any embeddings."""
    found = {name: getattr(module, name)(model, tokens) for name in NAMES}
    found["log_likelihood"] = found["log_likelihood"].exp()
    for cell in range(getattr(model, "n_cells", 0)):
        found[f"memory {cell}"] = module.memory_posterior(model, tokens, cell)
    for prompt in prompts:
        found |= {f"{name} behind {len(prompt)}": getattr(module, name)(model, tokens, prompt) for name in NAMES[:2]}
    for values in free:
        found[f"Ḡ of {values.shape[2]}"] = module.masked_token_probs_from_embeddings(model, values)
    return found


def lifted(model, values):
    """Embeddings as wide as what the memory's cells together and the state may be."""
    there = isinstance(model, HMM) or values.shape[-1] == model.memory.numel() * model.n_states
    return values if there else model.lift(values)


def summed(model, embeddings):
    """The same of embeddings, and τ, by summing over all latent paths."""
    shape = () if isinstance(model, HMM) else model.memory.shape
    columns = model.emission.flatten(1).numpy()

    def table(rows):
        return Joint(model.transition, model.emission, model.initial, rows, getattr(model, "memory", None))

    found = []
    for rows in lifted(model, embeddings).numpy():
        rows = list(rows.reshape(-1, *shape, model.n_states))
        whole, length = table(rows), len(rows)
        others = [table([*rows[:i], np.ones_like(rows[i]), *rows[i + 1 :]]) for i in range(length)]
        latents = [one.cell_and_state(i).ravel() for i, one in enumerate(others, 1)]
        cells = [f"m{j}" for j in range(len(shape))]
        one = {
            "tau": [one.of(*cells, f"h{i}").ravel() for i, one in enumerate(others, 1)],
            "latent_given_others": [normalised(latent) for latent in latents],
            "masked_token_probs": [normalised(columns @ latent) for latent in latents],
            "posteriors": [normalised(whole.of(f"h{i}")) for i in range(length + 1)],
            "log_likelihood": whole.table.sum(),
        }
        found.append(one | {f"memory {cell}": normalised(whole.of(f"m{cell}")) for cell in range(len(shape))})
    return {name: np.array([one[name] for one in found]) for name in found[0]}


@cache
def case(family, seed):
    """What is asked, a sparse prompt as wide as an embedding and a lifted one among it; what the sum over paths is."""
    model, length, rng = draw(family, seed)
    tokens = draw_tokens(model, 4, length, rng)
    proper = model.embed(tokens)
    widths = sorted({proper.shape[2], lifted(model, proper).shape[2]})
    rows = [(rng.random((4, length, width)) < 0.7) * rng.exponential(size=(4, length, width)) for width in widths]
    free = [torch.as_tensor(values) for values in rows]
    prompts = [3 * values[0, 0] for values in free]
    expected = summed(model, proper)
    for prompt in prompts:
        behind = summed(model, torch.cat([lifted(model, prompt).expand(4, 1, -1), lifted(model, proper)], 1))
        expected |= {f"{name} behind {len(prompt)}": behind[name] for name in NAMES[:2]}
    of_free = [summed(model, values) for values in free]
    expected |= {f"Ḡ of {width}": one["masked_token_probs"] for width, one in zip(widths, of_free, strict=True)}
    return (model, tokens, prompts, free), expected | {"tau": of_free[0]["tau"]}


def error(found, expected):
    """Largest error; infinity where one of the two is exactly zero and the other is not."""
    found = np.asarray(found)
    return abs(found - expected).max() if ((found == 0) == (expected == 0)).all() else np.inf


@pytest.mark.parametrize("way", ["loops", "torch", "as printed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_way_gives_the_sum_over_all_paths(family, way, monkeypatch):
    if way == "torch":
        monkeypatch.setattr(messages, "compiled_loops", lambda: None)
        monkeypatch.setattr(messages, "BLOCK", 50)  # one to four sequences at a time
    for seed in range(MODELS):
        asked, expected = case(family, seed)
        for name, found in answers(reference if way == "as printed" else messages, *asked).items():
            assert found.shape == expected[name].shape
            assert error(found, expected[name]) <= 1e-12, (seed, name)


@pytest.mark.parametrize("family", FAMILIES)
def test_tau_is_the_joint_probability_of_state_and_evidence(family):
    possible = []
    for seed in range(MODELS):
        (model, _, _, free), expected = case(family, seed)
        assert error(reference.tau(model, free[0]), expected["tau"]) <= 1e-12 * max(1, expected["tau"].max()), seed
        possible += (expected["log_likelihood"] > 0).tolist()
    assert sum(possible) > MODELS
    assert not all(possible) or "sparse" not in family


@pytest.mark.parametrize("family", [family for family in FAMILIES if "sparse" in family])
def test_what_is_possible_given_others_is_where_the_sum_over_all_paths_is_positive(family):
    seen = []
    for seed in range(MODELS):
        (model, tokens, prompts, _), expected = case(family, seed)
        for prompt in (None, *prompts):
            found = messages.possible_given_others(model, tokens, prompt).numpy()
            name = "latent_given_others" if prompt is None else f"latent_given_others behind {len(prompt)}"
            assert np.array_equal(found, expected[name] > 0), (seed, name)
            seen += found.ravel().tolist()
    assert 100 < sum(seen) < len(seen) - 100


@pytest.mark.parametrize("module", [reference, messages], ids=["as printed", "fast"])
def test_no_texts_have_no_answers_in_the_usual_shapes(module):
    known = MemoryHMM([[1.0]], [[[1.0], [0.0]], [[0.0], [1.0]]], [1.0], [0.25, 0.75])
    shapes = [getattr(module, name)(known, torch.zeros(0, 2, dtype=torch.int64)).shape for name in NAMES]
    assert shapes == [(0, 2, 2), (0, 2, 2), (0, 3, 1), (0,)]
