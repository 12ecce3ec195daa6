"""The two models: what they refuse, their marginals, what they draw, and the lift of appendix D.2."""

import numpy as np
import pytest
import torch

from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import regular_hmm, sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_3_2
from hmmlib.validation import MASK

TRANSITION = [[0.9, 0.5], [0.1, 0.5]]
EMISSION = [[0.2, 0.3], [0.3, 0.7], [0.5, 0.0]]
INITIAL = [0.4, 0.6]
MEMORY_EMISSION = np.stack([EMISSION, EMISSION], 1)


@pytest.mark.parametrize(
    ("transition", "emission", "initial", "message"),
    [
        (
            np.transpose(TRANSITION),
            EMISSION,
            INITIAL,
            r"transition .* off by 0.4; its rows do\. .* initial is P\[H_0\], .* HMM\.from_rows\(",
        ),
        (TRANSITION, np.transpose(EMISSION), INITIAL, r"emission .*; its rows do\. .* HMM\.from_rows\("),
        ([[0.9, 0.5], [0.2, 0.5]], EMISSION, INITIAL, r"transition .* off by 0.1$"),
        (
            [[1.1, 0.5], [-0.1, 0.5]],
            EMISSION,
            INITIAL,
            "transition must be nonnegative, but its smallest entry is -0.1",
        ),
        ([[np.nan, 0.5], [0.1, 0.5]], EMISSION, INITIAL, "transition must be finite"),
        ([[np.inf, 0.5], [0.1, 0.5]], EMISSION, INITIAL, "transition must be finite"),
        (TRANSITION, np.zeros((0, 2)), INITIAL, "emission is empty"),
        (TRANSITION, EMISSION, [], "initial is empty"),
        (TRANSITION, EMISSION, [0.4, 0.5], "initial must sum to 1 within 1e-09, but is off by 0.1"),
        (TRANSITION, EMISSION, [INITIAL], r"initial must have 1 dimension, not shape \(1, 2\)"),
        (TRANSITION, EMISSION, [1.0], r"transition must have shape \(1, 1\) to match initial, not \(2, 2\)"),
        ([[0.9, 0.5, 1.0], [0.1, 0.5, 0.0]], EMISSION, INITIAL, r"transition must have shape \(2, 2\)"),
        (TRANSITION, np.ones((1, 3)), INITIAL, r"emission must have shape \(…, 2\) to match initial"),
        (TRANSITION, MEMORY_EMISSION, INITIAL, "emission must have 2 dimensions"),
        (TRANSITION, np.array(EMISSION, dtype=np.float32), INITIAL, "must share one dtype and one device"),
        (TRANSITION, [[1, 1j]], INITIAL, "emission must hold real numbers"),
        (TRANSITION, [["a", "b"]], INITIAL, "emission must be an array of numbers"),
    ],
)
def test_parameters_that_are_refused(transition, emission, initial, message):
    with pytest.raises(ValueError, match=message):
        HMM(transition, emission, initial)


@pytest.mark.parametrize(
    ("states", "emission", "memory", "message"),
    [
        (2, MEMORY_EMISSION, [0.5, 0.3, 0.2], r"memory must have one axis of 2 values .* not shape \(3,\)"),
        (2, MEMORY_EMISSION, np.full((2, 3), 1 / 6), r"memory must have one axis of 2 values .* not shape \(2, 3\)"),
        (2, MEMORY_EMISSION, 1.0, r"memory must have one axis of 2 values .* not shape \(\)"),
        (2, MEMORY_EMISSION, [0.5, 0.4], "memory must sum to 1"),
        (2, MEMORY_EMISSION, [1.5, -0.5], "memory must be nonnegative"),
        (2, EMISSION, [0.5, 0.5], "emission must have 3 dimensions"),
        (2, MEMORY_EMISSION, np.array([0.5, 0.5], dtype=np.float32), "must share one dtype"),
        (3, np.full((2, 2, 3), 0.5), np.full((2, 2), 0.25), "3 hidden states do not divide among 2 memory cells"),
    ],
)
def test_memory_parameters_that_are_refused(states, emission, memory, message):
    with pytest.raises(ValueError, match=message):
        MemoryHMM(np.eye(states), emission, np.full(states, 1 / states), memory)


def test_what_is_accepted():
    model = HMM(TRANSITION, np.array(EMISSION), torch.tensor(INITIAL, dtype=torch.float64))
    assert (model.n_states, model.n_tokens, model.dtype) == (2, 3, torch.float64)
    assert model.transition.tolist() == TRANSITION
    assert HMM([[1]], [[0], [1]], [1]).emission.dtype == torch.float64
    single = HMM(*(np.array(part, dtype=np.float32) for part in (TRANSITION, EMISSION, INITIAL)))
    assert single.dtype == torch.float32
    memory = MemoryHMM(TRANSITION, MEMORY_EMISSION, INITIAL, np.full((2, 2), 0.25))
    assert (memory.n_cells, memory.n_memory, memory.n_syntax, memory.n_states) == (2, 2, 1, 2)


@pytest.mark.parametrize("model", [random_hmm(7, 5, 0), random_memory_hmm(3, 4, 5, 0)])
def test_another_dtype_and_back(model):
    rough = model.to(dtype=torch.float32)
    assert rough.dtype == torch.float32
    np.testing.assert_allclose(rough.to(dtype=torch.float64).emission, model.emission, atol=1e-7)


def test_embeddings_are_rows_of_the_emissions():
    model, memory = sparse_hmm(3, 4, 1), sparse_memory_hmm(2, 4, 3, 1, n_cells=2)
    tokens = [[2, MASK, 0]]
    assert model.embed(tokens).tolist() == [[model.emission[2].tolist(), [1.0] * 3, model.emission[0].tolist()]]
    embedded = memory.embed(tokens)
    assert embedded.shape == (1, 3, 8)
    assert all(embedded[0, 0, m * 4 + h] == memory.emission[2, m, h] for m in range(2) for h in range(4))
    assert (embedded[0, 1] == 1).all()


def test_marginals_by_steps():
    for seed in range(20):
        model = sparse_hmm(1 + seed % 6, 3, seed)
        expected = model.initial.numpy()
        for i in range(9):
            np.testing.assert_allclose(model.marginal(i), expected, atol=1e-14)
            expected = model.transition.numpy() @ expected
    for i in (-1, 1.0, True):
        with pytest.raises(ValueError, match="i must be an integer of 0 or more"):
            model.marginal(i)


def test_stationary_distribution():
    for seed in range(30):
        model = regular_hmm(1 + seed % 8, 3, seed)
        stationary = model.stationary()
        assert stationary.sum().item() == pytest.approx(1, abs=1e-12)
        assert (stationary > 0).all()
        np.testing.assert_allclose(model.transition @ stationary, stationary, atol=1e-12)
    periodic = HMM(np.eye(4)[[3, 0, 1, 2]], np.ones((1, 4)), [1, 0, 0, 0], columns=True)
    np.testing.assert_allclose(periodic.stationary(), [0.25] * 4, atol=1e-14)
    transient = HMM([[0.5, 0], [0.5, 1]], np.ones((1, 2)), [1, 0])  # reducible, but with one closed class
    np.testing.assert_allclose(transient.stationary(), [0, 1], atol=1e-14)
    for closed in (np.eye(3), [[0.5, 0, 0], [0.5, 1, 0], [0, 0, 1]]):
        with pytest.raises(ValueError, match="more than one stationary distribution"):
            HMM(closed, np.ones((1, 3)), [1, 0, 0]).stationary()


def test_stationary_distribution_of_slow_chains():
    # Appendix E's chains are doubly stochastic. Many hardly ever leave some class of states, but irreducible they are.
    models = [model for model in (random_hmm(4, 2, seed) for seed in range(40)) if assumption_3_2(model).irreducible]
    assert len(models) > 20
    for model in models:
        np.testing.assert_allclose(model.stationary(), [0.25] * 4, atol=1e-6)


@pytest.mark.parametrize("model", [random_hmm(4, 6, 0), sparse_memory_hmm(3, 4, 5, 0, n_cells=2)])
def test_samples_have_the_stated_shapes_and_follow_the_seed(model):
    drawn = model.sample(7, 5, seed=3)
    assert drawn.tokens.shape == (7, 5)
    assert drawn.states.shape == (7, 6)
    assert drawn.tokens.dtype == drawn.states.dtype == torch.int64
    assert 0 <= drawn.tokens.min() <= drawn.tokens.max() < model.n_tokens
    assert 0 <= drawn.states.min() <= drawn.states.max() < model.n_states
    same, by_generator = model.sample(7, 5, 3), model.sample(7, 5, torch.Generator().manual_seed(3))
    for again in (same, by_generator):
        assert torch.equal(drawn.tokens, again.tokens)
        assert torch.equal(drawn.states, again.states)
    if isinstance(model, MemoryHMM):
        assert drawn.memory.shape == (7, 2)
        assert drawn.memory.dtype == torch.int64
        assert torch.equal(drawn.memory, same.memory)
    else:
        assert drawn.memory is None
    assert not torch.equal(drawn.states, model.sample(7, 5, 4).states)


@pytest.mark.parametrize("arguments", [(0, 5), (5, 0), (1.0, 5), (5, True), (5, 5, -1), (5, 5, 0.5), (5, 5, True)])
def test_samples_that_are_refused(arguments):
    with pytest.raises(ValueError, match="must be a"):
        random_hmm(2, 2).sample(*arguments)


def chi_square(index, probabilities):
    """(X² - degrees of freedom) / its standard deviation; infinity where something impossible was drawn."""
    probabilities = np.asarray(probabilities, dtype=float).ravel()
    counts = np.bincount(np.asarray(index).ravel(), minlength=len(probabilities))
    expected = probabilities * counts.sum()
    if counts[expected == 0].any():
        return np.inf
    some = expected > 0
    freedom = max(1, some.sum() - 1)
    return (((counts - expected)[some] ** 2 / expected[some]).sum() - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("seed", range(6))
def test_frequencies_of_states_tokens_and_pairs(seed):
    model = sparse_hmm(4, 5, seed, zeros=0.3)
    tokens, states, _ = model.sample(20_000, 4, seed)
    for i in range(5):
        assert chi_square(states[:, i], model.marginal(i)) < 5
    for i in range(4):
        step = model.transition * model.marginal(i)  # P[H_{i+1}, H_i]
        assert chi_square(states[:, i + 1] * 4 + states[:, i], step) < 5
        emitted = model.emission * model.marginal(i + 1)
        assert chi_square(tokens[:, i] * 4 + states[:, i + 1], emitted) < 5
        assert chi_square(states[:, i] * 4 + states[:, i + 1], step) > 50  # the bound would notice a transposed matrix


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_what_has_probability_zero_is_not_drawn_even_by_the_extremes_of_uniform_numbers(uniform, monkeypatch):
    column = [[0.0], [0.7], [0.2], [0.1], [0.0]]
    model = HMM(np.repeat(column, 5, 1), np.repeat(column, 5, 1), np.ravel(column))
    monkeypatch.setattr(torch, "rand", lambda *shape, out, **options: out.fill_(uniform))
    tokens, states, _ = model.sample(2, 3, 0)
    assert {*tokens.flatten().tolist(), *states.flatten().tolist()} == {1 if uniform == 0 else 3}


@pytest.mark.parametrize("seed", range(6))
def test_frequencies_of_memory_and_of_tokens_given_it(seed):
    model = sparse_memory_hmm(2, 4, 3, seed, zeros=0.3, n_cells=2)
    tokens, states, memory = model.sample(20_000, 3, seed)
    joint = memory[:, 0] * 2 + memory[:, 1]
    assert chi_square(joint, model.memory) < 5
    prior = model.memory.flatten()
    assert chi_square(joint * 4 + states[:, 0], torch.outer(prior, model.initial)) < 5
    for i in (1, 3):
        index = tokens[:, i - 1] * 16 + joint * 4 + states[:, i]
        expected = torch.zeros(3, 4, 4, dtype=torch.float64)
        for k in range(4):
            for h in range(4):
                looked_up = (k // 2, k % 2)[h // 2]
                expected[:, k, h] = prior[k] * model.marginal(i)[h] * model.emission[:, looked_up, h]
        assert chi_square(index, expected) < 5


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_lift_and_unlift_entry_by_entry(cells):
    values, syntax = 3, 2
    states = cells * syntax
    model = sparse_memory_hmm(values, states, 4, cells, n_cells=cells)
    vector = torch.rand(values * states, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lifted = model.lift(vector)
    table = lifted.reshape(*(values,) * cells, cells, syntax)
    for index in np.ndindex(*table.shape):
        *memory, cell, s = index
        assert table[index] == vector[memory[cell] * states + cell * syntax + s]
    free = torch.rand(values**cells * states, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sums, counts = np.zeros(values * states), np.zeros(values * states)
    for index in np.ndindex(*table.shape):
        *memory, cell, s = index
        at = memory[cell] * states + cell * syntax + s
        sums[at] += free.reshape(table.shape)[index].item()
        counts[at] += 1
    np.testing.assert_allclose(model.unlift(free), sums / counts, atol=1e-14)
    np.testing.assert_allclose(model.unlift(lifted), vector, atol=1e-15)
    batch = torch.stack([torch.stack([vector, 2 * vector])] * 3)
    assert torch.equal(model.lift(batch)[2, 1], model.lift(2 * vector))
    np.testing.assert_allclose(model.unlift(model.lift(batch)), batch, atol=1e-15)


def test_flattened_parameters_entry_by_entry():
    model = sparse_memory_hmm(2, 4, 3, 5, n_cells=2)
    flat = model.flatten()
    for k in range(4):
        for h in range(4):
            assert flat.initial[k * 4 + h] == model.memory[k // 2, k % 2] * model.initial[h]
            assert torch.equal(flat.emission[:, k * 4 + h], model.emission[:, (k // 2, k % 2)[h // 2], h])
            column = torch.zeros(4, 4, dtype=torch.float64)
            column[k] = model.transition[:, h]
            assert torch.equal(flat.transition[:, k * 4 + h], column.flatten())
