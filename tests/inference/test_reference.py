"""The fast path, on both its ways, and the formulas as the paper prints them: each gives the sum over all paths."""

from collections import defaultdict
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from record import SLOW

from hmmbook.evidence.enumeration import Joint, normalised
from hmmlib import HMM, MASK, MemoryHMM, random_hmm, random_memory_hmm, sparse_hmm, sparse_memory_hmm
from hmmlib.inference import laws, messages, reference
from hmmlib.inference.evidence import lifted

N_MODELS = 40 if SLOW else 8
MOST_PATHS = 4500
"""How many paths enumeration can bear."""


def sparse(n_states, n_tokens, seed):
    return sparse_hmm(n_states, n_tokens, seed, zeros=0.1 * (seed % 6))


def sparse_one_cell(n_states, n_tokens, seed, n_cells=1):
    zeros = 0.1 * (seed % 6)
    return sparse_memory_hmm(1 + seed % 3, n_states, n_tokens, seed, zeros, n_cells)


def sparse_two_cells(n_states, n_tokens, seed):
    return sparse_one_cell(n_states, n_tokens, seed, n_cells=2)


def appendix_e_two_cells(n_states, n_tokens, seed):
    return random_memory_hmm(1 + seed % 3, n_states, n_tokens, seed, n_cells=2)


CELLS = {sparse: 0, random_hmm: 0, sparse_one_cell: 1, sparse_two_cells: 2, appendix_e_two_cells: 2}
"""Each family of models, and how many cells its memory has."""


def draw_model(family, seed):
    """A model of a family, a length from 1 to 6, and a generator."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 7))
    cells = CELLS[family]
    step = max(1, cells)  # the states are split among the cells
    memory_values = (1 + seed % 3) ** cells
    sizes = []
    for n_states in range(step, 6, step):
        if memory_values * n_states ** (length + 1) <= MOST_PATHS:
            sizes.append(n_states)
    n_states = int(rng.choice(sizes or [step]))
    return family(n_states, int(rng.integers(1, 5)), seed), length, rng


def draw_tokens(model, n, length, rng):
    """Half of the texts from the model, half arbitrary (some of probability zero), a fifth of all tokens hidden."""
    seed = int(rng.integers(2**31))
    likely = model.sample(n - n // 2, length, seed).tokens
    arbitrary = torch.as_tensor(rng.integers(0, model.n_tokens, (n // 2, length)))
    tokens = torch.cat([likely, arbitrary])
    hidden = torch.as_tensor(rng.random(tokens.shape) < 0.2)
    return torch.where(hidden, MASK, tokens)


def answers_of(module, case):
    """All that both modules say of a case, by name: of tokens, of tokens behind prompts, and of any embeddings."""
    model = case.model
    values = {
        "masked_token_probs": module.masked_token_probs(model, case.tokens),
        "latent_given_others": module.latent_given_others(model, case.tokens),
        "posteriors": module.posteriors(model, case.tokens),
        "likelihood": module.log_likelihood(model, case.tokens).exp(),
    }
    for cell in range(getattr(model, "n_cells", 0)):
        values[f"memory {cell}"] = module.memory_posterior(model, case.tokens, cell)
    for prompt in case.prompts:
        width = len(prompt)
        values[f"masked_token_probs behind {width}"] = module.masked_token_probs(model, case.tokens, prompt)
        values[f"latent_given_others behind {width}"] = module.latent_given_others(model, case.tokens, prompt)
    for embeddings in case.embeddings:
        width = embeddings.shape[2]
        values[f"Ḡ of {width}"] = module.masked_token_probs_from_embeddings(model, embeddings)
    return values


class SumOverPaths:
    """The same of one sequence of embeddings, by summing over all latent paths."""

    def __init__(self, model, vectors):
        memory_shape = () if isinstance(model, HMM) else model.memory.shape
        rows = lifted(model, vectors).numpy()
        self.model = model
        self.cells = ["m0", "m1"][: len(memory_shape)]
        self.rows = rows.reshape(len(rows), *memory_shape, model.n_states)

    def joint(self, rows):
        model = self.model
        return Joint(model.transition, model.emission, model.initial, rows, getattr(model, "memory", None))

    def joint_without(self, position):
        """The joint law without the evidence of a position, which counts from 1."""
        rows = self.rows.copy()
        rows[position - 1] = 1
        return self.joint(rows)

    def answers(self):
        joint = self.joint(self.rows)
        columns = self.model.emission.flatten(1).numpy()
        tau = []
        latents = []
        probs = []
        for position in range(1, len(self.rows) + 1):
            without = self.joint_without(position)
            latent = without.cell_and_state(position).ravel()
            tau.append(without.of(*self.cells, f"h{position}").ravel())
            latents.append(normalised(latent))
            probs.append(normalised(columns @ latent))
        states = []
        for position in range(len(self.rows) + 1):
            states.append(normalised(joint.of(f"h{position}")))
        values = {
            "tau": tau,
            "latent_given_others": latents,
            "masked_token_probs": probs,
            "posteriors": states,
            "likelihood": joint.table.sum(),
        }
        for cell, name in enumerate(self.cells):
            values[f"memory {cell}"] = normalised(joint.of(name))
        return values


def sums_over_paths(model, embeddings):
    """The answers of several sequences, by name."""
    answers = defaultdict(list)
    for vectors in embeddings:
        for name, value in SumOverPaths(model, vectors).answers().items():
            answers[name].append(value)
    return {name: np.array(values) for name, values in answers.items()}


@cache
def case(family, seed):
    """A model with texts, prompts and embeddings, proper ones and lifted ones, and what the sum over paths says."""
    model, length, rng = draw_model(family, seed)
    tokens = draw_tokens(model, 4, length, rng)
    proper = model.embed(tokens)
    widths = sorted({proper.shape[2], lifted(model, proper).shape[2]})
    embeddings = []
    for width in widths:
        shape = (4, length, width)
        positive = rng.random(shape) < 0.7
        embeddings.append(torch.as_tensor(positive * rng.exponential(size=shape)))
    prompts = [3 * values[0, 0] for values in embeddings]

    expected = sums_over_paths(model, proper)
    for prompt in prompts:
        first_position = lifted(model, prompt).expand(4, 1, -1)
        behind = torch.cat([first_position, lifted(model, proper)], 1)
        sums = sums_over_paths(model, behind)
        for name in ("masked_token_probs", "latent_given_others"):
            expected[f"{name} behind {len(prompt)}"] = sums[name]
    for width, values in zip(widths, embeddings, strict=True):
        sums = sums_over_paths(model, values)
        expected[f"Ḡ of {width}"] = sums["masked_token_probs"]
        if width == widths[0]:
            expected["tau"] = sums["tau"]
    return SimpleNamespace(model=model, tokens=tokens, prompts=prompts, embeddings=embeddings, expected=expected)


def error(values, expected):
    """The largest error; infinity where one of the two is exactly zero and the other is not."""
    values = np.asarray(values)
    if not np.array_equal(values == 0, expected == 0):
        return np.inf
    return abs(values - expected).max()


@pytest.mark.parametrize("way", ["loops", "torch", "as printed"])
@pytest.mark.parametrize("family", CELLS)
def test_each_way_gives_the_sum_over_all_paths(family, way, without_loops, monkeypatch):
    if way == "torch":
        without_loops()
        monkeypatch.setattr(laws, "BLOCK", 50)  # one to four sequences at a time
    module = reference if way == "as printed" else messages
    for seed in range(N_MODELS):
        example = case(family, seed)
        for name, values in answers_of(module, example).items():
            expected = example.expected[name]
            assert values.shape == expected.shape
            assert error(values, expected) <= 1e-12, (seed, name)


@pytest.mark.parametrize("family", CELLS)
def test_tau_is_the_joint_probability_of_state_and_evidence(family):
    for seed in range(N_MODELS):
        example = case(family, seed)
        expected = example.expected["tau"]
        tau = reference.tau(example.model, example.embeddings[0])
        assert error(tau, expected) <= 1e-12 * max(1, expected.max()), seed


@pytest.mark.parametrize("family", CELLS)
def test_among_the_texts_are_possible_and_impossible_ones(family):
    likelihoods = []
    for seed in range(N_MODELS):
        likelihoods.extend(case(family, seed).expected["likelihood"])
    likelihoods = np.array(likelihoods)
    assert (likelihoods > 0).sum() > N_MODELS
    if family in (sparse, sparse_one_cell, sparse_two_cells):
        assert (likelihoods == 0).any()


@pytest.mark.parametrize("family", [sparse, sparse_one_cell, sparse_two_cells])
def test_what_is_possible_given_others_is_where_the_sum_over_all_paths_is_positive(family):
    entries = []
    for seed in range(N_MODELS):
        example = case(family, seed)
        for prompt in (None, *example.prompts):
            name = "latent_given_others"
            if prompt is not None:
                name += f" behind {len(prompt)}"
            possible = messages.possible_given_others(example.model, example.tokens, prompt).numpy()
            assert np.array_equal(possible, example.expected[name] > 0), (seed, name)
            entries.append(possible.ravel())
    entries = np.concatenate(entries)
    assert 100 < entries.sum() < len(entries) - 100


@pytest.mark.parametrize("module", [reference, messages], ids=["as printed", "fast"])
def test_no_texts_have_no_answers_in_the_usual_shapes(module):
    model = MemoryHMM([[1.0]], np.eye(2)[..., None], [1.0], [0.25, 0.75])
    no_texts = torch.zeros(0, 2, dtype=torch.int64)
    assert module.masked_token_probs(model, no_texts).shape == (0, 2, 2)
    assert module.latent_given_others(model, no_texts).shape == (0, 2, 2)
    assert module.posteriors(model, no_texts).shape == (0, 3, 1)
    assert module.log_likelihood(model, no_texts).shape == (0,)
