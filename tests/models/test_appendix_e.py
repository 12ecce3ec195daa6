"""The models of appendix E are distributed as its words say; all that is drawn are distributions, by the seed."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from scipy.stats import ks_2samp

from hmmlib.models import families
from hmmlib.models.appendix_e import FLAT, SHARP, random_hmm, random_memory_hmm

pytestmark = pytest.mark.outside


@pytest.mark.parametrize("count", [None, 1, 12])
@pytest.mark.parametrize("n_states", [1, 2, 4, 30])
def test_transitions_mix_as_many_permutations_as_there_are_states_or_as_asked(n_states, count, monkeypatch):
    drawn, randperm = [], torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *a, **k: drawn.append(randperm(*a, **k)) or drawn[-1])
    for seed in range(10):
        drawn.clear()
        transition = random_memory_hmm(2, n_states, 10, seed, temperature=0.5, permutations=count).transition
        assert len(drawn) == (count or n_states)
        weights, residual = nnls(np.stack([np.eye(n_states)[p].ravel() for p in drawn], 1), transition.flatten())
        assert residual < 1e-12
        assert weights.sum() == pytest.approx(1)


def spread(columns):
    """Largest log ratio of two entries of one column: at most 1 / temperature, as logits are from 0 to 1."""
    logarithms = columns.log()
    return (logarithms.amax(0) - logarithms.amin(0)).max().item()


@pytest.mark.parametrize("temperature", [None, 0.5, 3])
@pytest.mark.parametrize("n_cells", [0, 1, 2])
def test_a_temperature_sharpens_or_flattens_all_but_the_starts(n_cells, temperature):
    assert (SHARP, FLAT) == (0.01, 10.0)
    chosen = {} if temperature is None else {"temperature": temperature}
    models = [
        random_memory_hmm(5, 10, 10, seed, n_cells, **chosen) if n_cells else random_hmm(10, seed=seed, **chosen)
        for seed in range(60)
    ]
    assert models[0].emission.shape == ((10, 5, 10) if n_cells else (10, 10))
    sharpness = 1 / (temperature or SHARP)
    assert 0.9 * sharpness < max(spread(m.emission) for m in models) <= sharpness
    for start in [[m.initial for m in models], [m.memory.flatten() for m in models if n_cells]]:
        assert not start or 0.08 < max(map(spread, start)) <= 0.1


# Appendix E once more, written with NumPy from its words


def softmax_numpy(draws, shape, temperature):
    weights = np.exp(draws.random(shape) / temperature)
    return weights / weights.sum(0)


def numpy_model(seed, sharp=0.01, flat=10.0, count=4):
    """A convex combination of random permutation matrices, emissions, a start and a prior."""
    draws, transition = np.random.default_rng(seed), np.zeros((4, 4))
    for weight in softmax_numpy(draws, count, sharp):
        transition[draws.permutation(4), np.arange(4)] += weight
    emission, initial = softmax_numpy(draws, (10, 3, 4), sharp), softmax_numpy(draws, 4, flat)
    return transition, emission, initial, softmax_numpy(draws, 3, flat)


def measures(transition, emission, initial, memory=None):
    """One number of a model for each of several marginals; a model's columns are not independent of each other."""
    from_state, emission = np.sort(transition[:, 0]), emission.reshape(len(emission), -1)
    column = np.sort(emission[:, 0])
    found = {
        "largest transition": from_state[-1],
        "second transition": from_state[-2],
        "a transition": transition[1, 0],
        "largest of all transitions": transition.max(),
        "largest emission": column[-1],
        "second emission": column[-2],
        "an emission": emission[3, 0],
        "largest start": initial.max(),
        "a start": initial[2],
    }
    if memory is not None:
        found |= {"emissions that agree": (emission.max(0) > 0.9).mean(), "largest prior": memory.max()}
    return found


def gathered(make, **changed):
    rows = [measures(*(np.asarray(part) for part in make(seed, **changed))) for seed in range(800)]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def distant(one, other):
    """The measures whose distribution differs, by the two-sample test of Kolmogorov and Smirnov."""
    return {name for name in one if ks_2samp(one[name], other[name]).pvalue < 1e-3}


def test_models_are_distributed_as_appendix_e_says():
    memory_model = lambda seed, count=None: parts(random_memory_hmm(3, 4, 10, seed, permutations=count))  # noqa: E731
    ours, theirs = gathered(memory_model), gathered(numpy_model)
    assert distant(ours, theirs) == set()
    assert distant(gathered(lambda seed: parts(random_hmm(4, 10, seed))), theirs) == set()
    transitions = {name for name in ours if "transition" in name}
    emissions = {name for name in ours if "emission" in name}
    warmer = distant(ours, gathered(numpy_model, sharp=0.02))
    assert {"second transition", "largest of all transitions", *emissions} - {"an emission"} <= warmer
    assert warmer <= transitions | emissions
    assert distant(ours, gathered(numpy_model, flat=5.0)) == {"largest start", "a start", "largest prior"}
    joint = gathered(numpy_model, count=12)
    assert {"largest of all transitions"} <= distant(ours, joint) <= transitions
    assert distant(gathered(memory_model, count=12), joint) == set()


# All families


def parts(model):
    """All parameters of a model, the memory's prior as one column."""
    memory = [model.memory.flatten()] if hasattr(model, "memory") else []
    return [model.transition, model.emission, model.initial, *memory]


MAKERS = {
    random_hmm: (6, 10),
    random_memory_hmm: (3, 4, 10),
    families.sparse_hmm: (5, 4),
    families.sparse_memory_hmm: (3, 4, 5),
    families.regular_hmm: (5, 4),
    families.non_degenerate_hmm: (4, 6),
    families.nearly_dependent_hmm: (4, 6, 1e-3),
    families.dependent_hmm: (4, 6),
    families.essential_hmm: (4, 3, 2),
    families.recoverable_memory_hmm: (2, 2, 2, 1, 1),
    families.essential_twins: (),
    families.recoverable_twins: (),
}


@pytest.mark.parametrize("family", MAKERS, ids=lambda family: family.__name__)
def test_columns_sum_to_one_and_the_seed_decides(family):
    def make(seed):
        made = family(*MAKERS[family], seed)
        return parts(made[0] if isinstance(made, tuple) else made)

    for seed in range(10):
        found = make(seed)
        for again in (make(seed), make(torch.Generator().manual_seed(seed))):
            assert all(map(torch.equal, found, again))
        for part in found:
            np.testing.assert_allclose(part.sum(0), 1, atol=1e-14)
        assert not all(map(torch.equal, found, make(seed + 100)))


@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.6, 1.0])
def test_sparse_columns_have_zeros_and_ties_and_never_vanish(zeros):
    columns = families.sparse_columns((8, 2000), zeros, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(columns.sum(0), 1, atol=1e-14)
    assert (columns == 0).double().mean().item() == pytest.approx(min(zeros, 7 / 8), abs=0.03)
    ratios = columns / torch.where(columns > 0, columns, 2).amin(0)
    allowed = torch.tensor([0, 1, 4 / 3, 1.5, 2, 3], dtype=torch.float64)
    assert ((ratios.unsqueeze(-1) - allowed).abs().amin(-1) < 1e-9).all()
