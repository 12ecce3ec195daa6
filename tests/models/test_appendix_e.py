"""The random models: appendix E's, and the families that satisfy or break what their docstrings say."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from scipy.stats import ks_2samp

from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import FLAT, SHARP, mixed_permutations, random_hmm, random_memory_hmm
from hmmlib.models.families import (
    dependent_hmm,
    essential_hmm,
    essential_twins,
    hidden_twins,
    nearly_dependent_hmm,
    non_degenerate_hmm,
    recoverable_memory_hmm,
    recoverable_twins,
    regular_hmm,
    sparse_columns,
    sparse_hmm,
    sparse_memory_hmm,
)
from hmmlib.theory.assumptions import assumption_3_1, assumption_3_2
from hmmlib.validation import MASK

pytestmark = pytest.mark.outside

SEEDS = range(60)


def parts(model):
    """All parameters of a model, the memory's prior as one column."""
    memory = [model.memory.flatten()] if hasattr(model, "memory") else []
    return [model.transition, model.emission, model.initial, *memory]


@pytest.mark.parametrize("n_states", [1, 2, 4, 7, 30])
@pytest.mark.parametrize("count", [None, 1, 12])
def test_transitions_mix_exactly_as_many_permutations_as_there_are_states(n_states, count, monkeypatch):
    drawn, randperm = [], torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *a, **k: drawn.append(randperm(*a, **k)) or drawn[-1])
    for seed in range(10):
        drawn.clear()
        transition = mixed_permutations(n_states, torch.Generator().manual_seed(seed), 0.5, count).numpy()
        assert len(drawn) == (count or n_states)
        np.testing.assert_allclose(transition.sum(0), 1, atol=1e-14)
        np.testing.assert_allclose(transition.sum(1), 1, atol=1e-14)
        matrices = np.stack([np.eye(n_states)[p].ravel() for p in drawn], 1)
        weights, residual = nnls(matrices, transition.ravel())
        assert residual < 1e-12
        assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("count", [None, 1, 8])
def test_a_memory_model_mixes_as_many_permutations_as_asked(count, monkeypatch):
    drawn, randperm = [], torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *a, **k: drawn.append(randperm(*a, **k)) or drawn[-1])
    for seed in range(10):
        drawn.clear()
        model = random_memory_hmm(2, 4, 10, seed, temperature=0.5, permutations=count)
        assert len(drawn) == (count or 4)
        np.testing.assert_allclose(model.transition.sum(0), 1, atol=1e-14)
        np.testing.assert_allclose(model.transition.sum(1), 1, atol=1e-14)
        assert ((model.transition - model.transition.round()).abs().max() < 1e-14) == (count == 1)


def test_permutations_are_uniform():
    found = np.zeros((3, 3))
    for seed in range(400):
        found += mixed_permutations(3, torch.Generator().manual_seed(seed)).numpy() / 400
    np.testing.assert_allclose(found, 1 / 3, atol=0.1)


def spread(columns):
    """Largest log ratio of two entries of one column: at most 1 / temperature, as logits are from 0 to 1."""
    logarithms = columns.log()
    return (logarithms.amax(0) - logarithms.amin(0)).max().item()


@pytest.mark.parametrize("n_cells", [0, 1, 2])
def test_temperatures_of_appendix_e(n_cells):
    assert (SHARP, FLAT) == (0.01, 10.0)
    models = [random_memory_hmm(5, 10, 10, seed, n_cells) if n_cells else random_hmm(10, seed=seed) for seed in SEEDS]
    sharp, flat = [spread(m.emission) for m in models], [spread(m.initial) for m in models]
    assert 90 < max(sharp) <= 100  # near one-hot
    assert 0.08 < max(flat) <= 0.1  # near uniform
    largest = torch.stack([m.emission.amax(0).mean() for m in models]).mean()
    assert 0.85 < largest < 0.99
    if n_cells:
        assert 0.08 < max(spread(m.memory.flatten()) for m in models) <= 0.1


@pytest.mark.parametrize("temperature", [0.02, 0.5, 3])
def test_another_temperature_sharpens_or_flattens_all_but_the_starts(temperature):
    models = [random_hmm(10, seed=seed, temperature=temperature) for seed in SEEDS]
    memories = [random_memory_hmm(3, 10, seed=seed, temperature=temperature) for seed in SEEDS]
    for family in (models, memories):
        assert 0.9 / temperature < max(spread(m.emission) for m in family) <= 1 / temperature
        assert 0.08 < max(spread(m.initial) for m in family) <= 0.1
    assert 0.08 < max(spread(m.memory) for m in memories) <= 0.1


@pytest.mark.parametrize("temperature", [0, -1.0, float("inf"), float("nan"), "0.1", True, None])
def test_temperatures_that_are_refused(temperature):
    for make in (random_hmm, random_memory_hmm):
        with pytest.raises(ValueError, match=r"temperature must be a number from 1e-300 to 1e\+300, not"):
            make(3, temperature=temperature)


# Appendix E once more, written with NumPy from its words


def softmax_numpy(draws, shape, temperature):
    weights = np.exp(draws.random(shape) / temperature)
    return weights / weights.sum(0)


def transition_numpy(draws, n_states, count, temperature):
    """A convex combination of random permutation matrices."""
    weights = softmax_numpy(draws, count, temperature)
    transition = np.zeros((n_states, n_states))
    for weight in weights:
        transition[draws.permutation(n_states), np.arange(n_states)] += weight
    return transition


def measures(transition, emission, initial, memory):
    """One number of a model for each of several marginals; a model's columns are not independent of each other."""
    from_state = np.sort(transition[:, 0])
    column = np.sort(emission.reshape(len(emission), -1)[:, 0])
    return {
        "largest transition": from_state[-1],
        "second transition": from_state[-2],
        "a transition": transition[1, 0],
        "largest of all transitions": transition.max(),
        "largest emission": column[-1],
        "second emission": column[-2],
        "an emission": emission.reshape(len(emission), -1)[3, 0],
        "emissions that agree": (emission.reshape(len(emission), -1).max(0) > 0.9).mean(),
        "largest start": initial.max(),
        "a start": initial[2],
        "largest prior": memory.max(),
    }


def numpy_model(seed, sharp=0.01, flat=10.0, count=4):
    draws = np.random.default_rng(seed)
    transition = transition_numpy(draws, 4, count, sharp)
    emission, initial = softmax_numpy(draws, (10, 3, 4), sharp), softmax_numpy(draws, 4, flat)
    return measures(transition, emission, initial, softmax_numpy(draws, 3, flat))


def gathered(make, n=800):
    rows = [make(seed) for seed in range(n)]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def our_measures(count):
    def make(seed):
        model = random_memory_hmm(3, 4, 10, seed, permutations=count)
        return measures(*(part.numpy() for part in (model.transition, model.emission, model.initial, model.memory)))

    return gathered(make)


def vanilla_measures(seed):
    model = random_hmm(4, 10, seed)
    return measures(*(part.numpy() for part in (model.transition, model.emission, model.initial, torch.ones(1))))


def distant(one, other):
    """The measures whose distribution differs, by the two-sample test of Kolmogorov and Smirnov."""
    return {name for name in one if name in other and ks_2samp(one[name], other[name]).pvalue < 1e-3}


def test_models_are_distributed_as_appendix_e_says():
    ours, vanilla, theirs = our_measures(None), gathered(vanilla_measures), gathered(numpy_model)
    assert distant(ours, theirs) == set()
    del vanilla["largest prior"], vanilla["emissions that agree"]  # there is no memory, and a third of the columns
    assert distant(vanilla, theirs) == set()
    transitions = {name for name in ours if "transition" in name}
    emissions = {name for name in ours if "emission" in name}
    warmer = distant(ours, gathered(lambda seed: numpy_model(seed, sharp=0.02)))
    assert {"second transition", "largest of all transitions", *emissions} - {"an emission"} <= warmer
    assert warmer <= transitions | emissions
    assert distant(ours, gathered(lambda seed: numpy_model(seed, flat=5.0))) == {
        "largest start", "a start", "largest prior",
    }  # fmt: skip
    joint = gathered(lambda seed: numpy_model(seed, count=12))
    assert {"largest of all transitions"} <= distant(ours, joint) <= transitions
    assert distant(our_measures(12), joint) == set()


@pytest.mark.parametrize(("temperature", "agree"), [(0.01, True), (0.02, False)])
def test_mixing_weights_are_distributed_as_appendix_e_says(temperature, agree, monkeypatch):
    drawn, randperm, ours = [], torch.randperm, []
    monkeypatch.setattr(torch, "randperm", lambda *a, **k: drawn.append(randperm(*a, **k)) or drawn[-1])
    for seed in range(600):
        drawn.clear()
        transition = random_hmm(7, 2, seed).transition
        matrices = np.stack([np.eye(7)[p].ravel() for p in drawn], 1)
        ours.append(np.sort(nnls(matrices, transition.numpy().ravel())[0])[::-1])
    theirs = [np.sort(softmax_numpy(np.random.default_rng(seed), 7, temperature))[::-1] for seed in range(600)]
    ours, theirs = np.maximum(ours, 1e-9), np.maximum(theirs, 1e-9)  # what least squares can tell from zero
    for rank in range(3):
        found = ks_2samp(ours[:, rank], theirs[:, rank]).pvalue
        assert (found > 1e-3) == agree


MAKERS = {
    "random_hmm": lambda seed: random_hmm(6, 10, seed),
    "random_memory_hmm": lambda seed: random_memory_hmm(3, 4, 10, seed, n_cells=2),
    "sparse_hmm": lambda seed: sparse_hmm(5, 4, seed),
    "sparse_memory_hmm": lambda seed: sparse_memory_hmm(3, 4, 5, seed, n_cells=2),
    "regular_hmm": lambda seed: regular_hmm(5, 4, seed),
    "non_degenerate_hmm": lambda seed: non_degenerate_hmm(4, 6, seed),
    "nearly_dependent_hmm": lambda seed: nearly_dependent_hmm(4, 6, 1e-3, seed),
    "dependent_hmm": lambda seed: dependent_hmm(4, 6, seed),
    "essential_hmm": lambda seed: essential_hmm(4, 3, 2, seed)[0],
    "recoverable_memory_hmm": lambda seed: recoverable_memory_hmm(2, 2, 2, 1, 1, seed)[0],
    "essential_twins": essential_twins,
    "recoverable_twins": recoverable_twins,
}


@pytest.mark.parametrize("name", MAKERS)
def test_columns_sum_to_one_and_the_seed_decides(name):
    make = MAKERS[name]
    for seed in range(10):
        model, again, generator = make(seed), make(seed), make(torch.Generator().manual_seed(seed))
        for part, same, by_generator in zip(*map(parts, (model, again, generator)), strict=True):
            np.testing.assert_allclose(part.sum(0), 1, atol=1e-14)
            assert torch.equal(part, same)
            assert torch.equal(part, by_generator)
        assert not all(map(torch.equal, parts(model), parts(make(seed + 100))))
    with pytest.raises(ValueError, match="seed must be"):
        make(-1)


def test_shapes():
    model = random_memory_hmm(3, 4, 7, n_cells=2)
    assert (model.emission.shape, model.memory.shape, model.transition.shape) == ((7, 3, 4), (3, 3), (4, 4))
    assert random_hmm(4).emission.shape == (10, 4)
    for make in (random_hmm, random_memory_hmm):
        with pytest.raises(ValueError, match="must be an integer of 1 or more"):
            make(0)


@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.6, 1.0])
def test_sparse_columns_have_zeros_and_ties_and_never_vanish(zeros):
    columns = sparse_columns((8, 2000), zeros, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(columns.sum(0), 1, atol=1e-14)
    share = (columns == 0).double().mean().item()
    assert share == pytest.approx(min(zeros, 7 / 8), abs=0.03)
    ratios = columns / torch.where(columns > 0, columns, 2).amin(0)
    allowed = torch.tensor([0, 1, 4 / 3, 1.5, 2, 3, 1 / 2 * 3], dtype=torch.float64)
    assert ((ratios.unsqueeze(-1) - allowed).abs().amin(-1) < 1e-9).all()


def rank(model):
    return np.linalg.matrix_rank(model.emission.numpy())


@pytest.mark.parametrize("n_states", [1, 2, 3, 6])
def test_families_keep_and_break_what_they_say(n_states):
    zeros = 0
    for seed in SEEDS:
        regular = regular_hmm(n_states, 3, seed)
        assert assumption_3_2(regular)
        assert (regular.initial > 0).all()
        zeros += int((regular.transition == 0).sum() + (regular.emission == 0).sum())

        free = non_degenerate_hmm(n_states, n_states + seed % 3, seed)
        assert assumption_3_2(free)
        assert rank(free) == n_states

        if n_states > 1:
            dependent = dependent_hmm(n_states, n_states + 2, seed)
            assert assumption_3_2(dependent)
            assert rank(dependent) < n_states
            columns = dependent.emission
            assert torch.equal(columns[:, -1], (columns[:, 0] + columns[:, (n_states - 1) // 2]) / 2)
    assert zeros > len(SEEDS)


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_nearly_dependent_columns(gap):
    for seed in SEEDS:
        model = nearly_dependent_hmm(4, 5, gap, seed)
        distance = (model.emission[:, -1] - model.emission[:, 0]).abs().max().item()
        assert 0 < distance < gap * 1.000001
        report = assumption_3_1(model)
        assert report
        assert report.condition > 0.3 / gap
        assert report.condition == pytest.approx(np.linalg.cond(model.emission.numpy()), rel=1e-6)
        assert assumption_3_2(model)


def test_families_that_cannot_be():
    with pytest.raises(ValueError, match="n_tokens must be an integer of 4 or more, not 3"):
        non_degenerate_hmm(4, 3)
    with pytest.raises(ValueError, match="n_states must be an integer of 2 or more, not 1"):
        dependent_hmm(1, 3)


def test_hidden_twins_differ_in_what_follows_only():
    model = hidden_twins()
    assert assumption_3_2(model)
    assert not assumption_3_1(model)
    tokens = [[MASK, 1], [MASK, 2]]
    assert posterior(model, tokens, at=1).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    probs = masked_token_probs(model, tokens)[:, 0]
    assert probs.tolist() == [[1, 0, 0]] * 2
