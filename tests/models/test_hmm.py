"""The two models: what they refuse, what they draw, their stationary laws, and the lift of appendix D.2."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from witness import values_of

from hmmlib.models import hmm
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

GOOD = {"transition": [[0.9, 0.5], [0.1, 0.5]], "emission": [[0.2, 0.3], [0.3, 0.7], [0.5, 0.0]], "initial": [0.4, 0.6]}
TABLE = np.stack([GOOD["emission"], GOOD["emission"]], 1)
ROWS, FROM_ROWS = r"off by 0.4; its rows do\. ", r".* HMM\.from_rows\("


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"transition": [[0.9, 0.1], [0.5, 0.5]]}, rf"transition .* {ROWS}.* initial is P\[H_0\], {FROM_ROWS}"),
        ({"emission": np.transpose(GOOD["emission"])}, rf"emission .*; its rows do\. {FROM_ROWS}"),
        ({"transition": [[1.1, 0.5], [-0.1, 0.5]]}, "transition must be nonnegative, but its smallest entry is -0.1"),
        ({"emission": np.ones((1, 3))}, r"emission must have shape \(…, 2\) to match initial"),
        ({"emission": TABLE}, "emission must have 2 dimensions"),
        ({"memory": 1.0}, r"memory must have one axis of 2 values .* not shape \(\)"),
        ({"memory": np.float32([0.5, 0.5])}, "must share one dtype"),
        ({"memory": np.full((2, 2, 2), 1 / 8)}, "2 hidden states do not divide among 3 memory cells"),
    ],
)
def test_parameters_that_are_refused(changed, message):
    kind, table = (MemoryHMM, {"emission": TABLE}) if "memory" in changed else (HMM, {})
    with pytest.raises(ValueError, match=message):
        kind(**{**GOOD, **table, **changed})


def test_lists_arrays_and_tensors_are_accepted():
    model = HMM(GOOD["transition"], np.array(GOOD["emission"]), torch.tensor(GOOD["initial"], dtype=torch.float64))
    assert (model.n_states, model.n_tokens, model.dtype) == (2, 3, torch.float64)
    assert model.transition.tolist() == GOOD["transition"]
    assert HMM([[1]], [[0], [1]], [1]).emission.dtype == torch.float64
    assert HMM(*map(np.float32, GOOD.values())).dtype == torch.float32
    memory = MemoryHMM(GOOD["transition"], TABLE, GOOD["initial"], np.full((2, 2), 0.25))
    assert (memory.n_cells, memory.n_memory, memory.n_syntax, memory.n_states) == (2, 2, 1, 2)


def test_embeddings_are_rows_of_the_emissions():
    model, memory = sparse_hmm(3, 4, 1), sparse_memory_hmm(2, 4, 3, 1, n_cells=2)
    tokens = [[2, MASK, 0]]
    assert model.embed(tokens).tolist() == [[model.emission[2].tolist(), [1.0] * 3, model.emission[0].tolist()]]
    embedded = memory.embed(tokens)
    assert embedded.shape == (1, 3, 8)
    assert all(embedded[0, 0, m * 4 + h] == memory.emission[2, m, h] for m in range(2) for h in range(4))
    assert (embedded[0, 1] == 1).all()


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_lift_repeats_the_entries_that_states_look_up_and_unlift_takes_means_of_these(cells):
    model = sparse_memory_hmm(3, 2 * cells, 4, cells, n_cells=cells)
    at = (values_of(model) * model.n_states + np.arange(model.n_states)).ravel()
    vectors, lifted = (torch.arange(6.0 * n).double().sin().reshape(3, 2, n) for n in (3 * model.n_states, len(at)))
    assert torch.equal(model.lift(vectors), vectors[..., at])
    means = [lifted[..., at == k].mean(-1) for k in range(vectors.shape[-1])]
    np.testing.assert_allclose(model.unlift(lifted), torch.stack(means, -1), atol=1e-14)


@pytest.mark.parametrize("model", [random_hmm(4, 6, 0), sparse_memory_hmm(3, 4, 5, 0, n_cells=2)])
def test_samples_have_the_stated_shapes_and_types(model):
    drawn = model.sample(7, 5, seed=3)
    assert (drawn.tokens.shape, drawn.states.shape) == ((7, 5), (7, 6))
    assert drawn.tokens.dtype == drawn.states.dtype == torch.int64
    assert drawn.memory is None if isinstance(model, HMM) else drawn.memory.shape == (7, 2)
    assert not torch.equal(drawn.states, model.sample(7, 5, 4).states)
    assert model.sample(7, 5, 3, dtype=torch.int16).tokens.dtype == torch.int16
    for kind in (torch.float32, torch.bool, "uint8", None):
        with pytest.raises(ValueError, match=f"dtype must be an integer type .* holds 0 to {model.n_tokens - 1}, not"):
            model.sample(2, 2, 0, dtype=kind)
    with pytest.raises(ValueError, match=r"holds 0 to 299, not torch\.uint8"):
        random_hmm(2, 300, 0).sample(2, 2, 0, dtype=torch.uint8)


def chi_square(index, probabilities):
    """(X² - degrees of freedom) / its standard deviation; infinity where something impossible was drawn."""
    counts = np.bincount(np.asarray(index).ravel(), minlength=probabilities.numel())
    expected = probabilities.numpy().ravel() * counts.sum()
    if counts[expected == 0].any():
        return np.inf
    squares = (counts - expected)[expected > 0] ** 2 / expected[expected > 0]
    freedom = max(1, len(squares) - 1)
    return (squares.sum() - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cells", [0, 2])
def test_frequencies_of_memory_states_and_tokens(cells, seed):
    model = sparse_memory_hmm(2, 4, 3, seed, 0.3, n_cells=2) if cells else sparse_hmm(4, 5, seed, 0.3)
    tokens, states, memory = model.sample(20_000, 4, seed)
    prior = model.memory.flatten() if cells else torch.ones(1).double()
    emission = (model.lift(model.emission.flatten(1)) if cells else model.emission).unflatten(1, (-1, 4))
    joint = memory[:, 0] * 2 + memory[:, 1] if cells else 0 * states[:, 0]
    law = model.initial
    assert chi_square(joint * 4 + states[:, 0], torch.outer(prior, law)) < 5
    for i in range(4):
        step = model.transition * law  # P[H_{i+1}, H_i]
        assert chi_square(states[:, i + 1] * 4 + states[:, i], step) < 5
        assert chi_square(states[:, i] * 4 + states[:, i + 1], step) > 50  # the bound would notice a transposed matrix
        law = model.transition @ law
        np.testing.assert_allclose(model.marginal(i + 1), law, atol=1e-14)
        expected = emission * torch.outer(prior, law)
        assert chi_square(tokens[:, i] * 4 * len(prior) + joint * 4 + states[:, i + 1], expected) < 5


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_what_has_probability_zero_is_not_drawn_even_by_the_extremes_of_uniform_numbers(uniform, monkeypatch):
    column = [[0.0], [0.7], [0.2], [0.1], [0.0]]
    model = HMM(np.repeat(column, 5, 1), np.repeat(column, 5, 1), np.ravel(column))
    monkeypatch.setattr(torch, "rand", lambda *shape, out, **options: out.fill_(uniform))
    tokens, states, _ = model.sample(2, 3, 0)
    assert {*tokens.flatten().tolist(), *states.flatten().tolist()} == {1 if uniform == 0 else 3}


def exactly_stationary(transition: torch.Tensor) -> list[Fraction]:
    """By the same elimination, in fractions: nothing is rounded."""
    rest = [[Fraction(entry) for entry in row] for row in transition.double().tolist()]
    for k in range(len(rest) - 1, 0, -1):
        leaving = sum(rest[h][k] for h in range(k))
        rest[k][:k] = [entry / leaving for entry in rest[k][:k]]
        for h in range(k):
            rest[h][:k] = [a + rest[h][k] * b for a, b in zip(rest[h][:k], rest[k][:k], strict=True)]
    weights = [Fraction(1)]
    for k in range(1, len(rest)):
        weights.append(sum(a * b for a, b in zip(rest[k][:k], weights, strict=True)))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize(("kind", "accurate"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_chains_whose_rates_lie_far_apart_have_their_stationary_law(kind, accurate, monkeypatch):
    again = []
    in_logarithms = hmm._stationary_in_logarithms
    monkeypatch.setattr(hmm, "_stationary_in_logarithms", lambda rates: (again.append(rates), in_logarithms(rates))[1])
    generator, tiny = torch.Generator().manual_seed(0), torch.finfo(kind).tiny
    for _ in range(200):
        n = int(torch.randint(2, 7, (1,), generator=generator))
        powers = torch.rand(n, n, generator=generator, dtype=torch.float64) * math.log(tiny) * 0.9
        there = torch.rand(n, n, generator=generator) < 0.5
        there[torch.arange(1, n), torch.arange(n - 1)] = there[0, n - 1] = True  # a cycle, so no state is ever lost
        rates = torch.where(there, powers.exp(), 0).to(kind)
        found, exact = hmm.stationary_by_elimination(rates), exactly_stationary(rates)
        assert all(abs(found[k].item() / float(exact[k]) - 1) < accurate for k in range(n) if exact[k] > tiny), rates
    assert 20 < len(again) < 180
