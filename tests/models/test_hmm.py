"""The two models: what they refuse, what they draw, and the lift of appendix D.2."""

import math

import numpy as np
import pytest
import torch
from witness import values_of

from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.chains import stationary_law
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK, SUM_TOLERANCE

TRANSITION = [[0.9, 0.5], [0.1, 0.5]]
EMISSION = [[0.2, 0.3], [0.3, 0.7], [0.5, 0.0]]
INITIAL = [0.4, 0.6]
PLAIN = {"transition": TRANSITION, "emission": EMISSION, "initial": INITIAL}
OF_TWO_VALUES = np.stack([EMISSION, EMISSION], axis=1)
REMEMBERING = {**PLAIN, "emission": OF_TWO_VALUES, "memory": [0.5, 0.5]}
FROM_ROWS = r".*Pass the rows to HMM\.from_rows\(startprob, transmat, emissionprob\)\.$"
ROWS = r"must have columns \(first axis\) that sum to 1 within 1e-09, but column 1 is off by 0.4\. Its rows do\."


# What is accepted


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"transition": [[0.9, 0.1], [0.5, 0.5]]}, rf"transition {ROWS}.* initial is P\[H_0\], {FROM_ROWS}"),
        ({"emission": np.transpose(EMISSION)}, rf"emission .*\. Its rows do\. {FROM_ROWS}"),
        ({"transition": [[1.1, 0.5], [-0.1, 0.5]]}, "transition must be nonnegative, but its smallest entry is -0.1"),
        ({"emission": np.ones((1, 3))}, r"emission must have shape \(…, 2\) to match initial"),
        ({"emission": OF_TWO_VALUES}, "emission must have 2 dimensions"),
    ],
)
def test_parameters_that_an_hmm_refuses(changed, message):
    with pytest.raises(ValueError, match=message):
        HMM(**{**PLAIN, **changed})


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (1.0, r"memory must have one axis of 2 values .* not shape \(\)"),
        (np.float32([0.5, 0.5]), "must share one dtype"),
        (np.full((2, 2, 2), 1 / 8), "initial must have a multiple of n_cells = 3 entries, not 2"),
    ],
)
def test_memories_that_a_memory_model_refuses(memory, message):
    with pytest.raises(ValueError, match=message):
        MemoryHMM(**{**REMEMBERING, "memory": memory})


def test_lists_arrays_and_tensors_are_accepted():
    model = HMM(TRANSITION, np.array(EMISSION), torch.tensor(INITIAL, dtype=torch.float64))
    assert (model.n_states, model.n_tokens, model.dtype) == (2, 3, torch.float64)
    assert model.transition.tolist() == TRANSITION
    assert HMM([[1]], [[0], [1]], [1]).emission.dtype == torch.float64
    assert HMM(np.float32(TRANSITION), np.float32(EMISSION), np.float32(INITIAL)).dtype == torch.float32
    two_cells = MemoryHMM(TRANSITION, OF_TWO_VALUES, INITIAL, np.full((2, 2), 0.25))
    assert (two_cells.n_cells, two_cells.n_memory, two_cells.n_syntax, two_cells.n_states) == (2, 2, 1, 2)


# Embeddings


def test_embeddings_are_rows_of_the_emissions():
    model = sparse_hmm(3, 4, 1)
    embeddings = model.embed([[2, MASK, 0]])
    expected = torch.stack([model.emission[2], torch.ones(3), model.emission[0]])
    assert torch.equal(embeddings, expected[None])


def test_embeddings_of_a_memory_model_run_over_its_values_and_states():
    model = sparse_memory_hmm(2, 4, 3, 1, n_cells=2)
    embeddings = model.embed([[2, MASK]])
    assert embeddings.shape == (1, 2, 8)
    for m in range(2):
        for h in range(4):
            assert embeddings[0, 0, m * 4 + h] == model.emission[2, m, h]
    assert (embeddings[0, 1] == 1).all()


def waves(*shape):
    """Numbers of which no two are the same."""
    return torch.arange(math.prod(shape)).double().sin().reshape(shape)


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_lift_repeats_the_entries_that_states_look_up_and_unlift_takes_means_of_these(n_cells):
    model = sparse_memory_hmm(3, 2 * n_cells, 4, n_cells, n_cells=n_cells)
    looked_up = (values_of(model) * model.n_states + np.arange(model.n_states)).ravel()
    width = 3 * model.n_states
    plain = waves(3, 2, width)
    assert torch.equal(model.lift(plain), plain[..., looked_up])
    lifted = waves(3, 2, len(looked_up))
    means = [lifted[..., looked_up == entry].mean(-1) for entry in range(width)]
    np.testing.assert_allclose(model.unlift(lifted), torch.stack(means, -1), atol=1e-14)


# Draws


PLAIN_MODEL = random_hmm(4, 6, 0)
TWO_CELLS = sparse_memory_hmm(3, 4, 5, 0, n_cells=2)


@pytest.mark.parametrize("model", [PLAIN_MODEL, TWO_CELLS])
def test_samples_have_the_stated_shapes_and_types(model):
    tokens, states, memory = model.sample(7, 5, seed=3)
    assert tokens.shape == (7, 5)
    assert states.shape == (7, 6)
    assert tokens.dtype == states.dtype == torch.int64
    if isinstance(model, HMM):
        assert memory is None
    else:
        assert memory.shape == (7, 2)
    assert not torch.equal(states, model.sample(7, 5, 4).states)
    assert model.sample(7, 5, 3, dtype=torch.int16).tokens.dtype == torch.int16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, "uint8", None])
def test_tokens_are_drawn_in_integers_only(dtype):
    with pytest.raises(ValueError, match=r"dtype must be an integer type .* holds 0 to 5, not"):
        PLAIN_MODEL.sample(2, 2, 0, dtype=dtype)


def test_a_type_too_small_for_the_tokens_is_refused():
    with pytest.raises(ValueError, match=r"holds 0 to 299, not torch\.uint8"):
        random_hmm(2, 300, 0).sample(2, 2, 0, dtype=torch.uint8)


def chi_square(index, probabilities):
    """(X² - degrees of freedom) / its standard deviation; infinity where something impossible was drawn."""
    counts = np.bincount(np.asarray(index).ravel(), minlength=probabilities.numel())
    expected = probabilities.numpy().ravel() * counts.sum()
    possible = expected > 0
    if counts[~possible].any():
        return np.inf
    squares = (counts - expected)[possible] ** 2 / expected[possible]
    freedom = max(1, len(squares) - 1)
    return (squares.sum() - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_memory", [False, True])
def test_frequencies_of_memory_states_and_tokens(has_memory, seed):
    if has_memory:
        model = sparse_memory_hmm(2, 4, 3, seed, 0.3, n_cells=2)
        emission = model.lift(model.emission.flatten(1))
        prior = model.memory.flatten()
    else:
        model = sparse_hmm(4, 5, seed, 0.3)
        emission = model.emission
        prior = torch.ones(1).double()
    tokens, states, memory = model.sample(20_000, 4, seed)
    remembered = memory[:, 0] * 2 + memory[:, 1] if has_memory else 0 * states[:, 0]
    law = model.initial
    assert chi_square(remembered * 4 + states[:, 0], torch.outer(prior, law)) < 5
    for i in range(4):
        pairs = model.transition * law  # P[H_{i+1}, H_i]
        before, after = states[:, i], states[:, i + 1]
        assert chi_square(after * 4 + before, pairs) < 5
        assert chi_square(before * 4 + after, pairs) > 50, "the bound would not notice a transposed matrix"
        law = model.transition @ law
        np.testing.assert_allclose(model.marginal(i + 1), law, atol=1e-14)
        expected = emission.unflatten(1, (-1, 4)) * torch.outer(prior, law)
        drawn = tokens[:, i] * 4 * len(prior) + remembered * 4 + after
        assert chi_square(drawn, expected) < 5


@pytest.mark.parametrize(("uniform", "chosen"), [(0.0, 1), (1 - 2**-53, 3)])
def test_what_has_probability_zero_is_not_drawn_even_by_the_extremes_of_uniform_numbers(uniform, chosen, monkeypatch):
    def always_the_same(*size, **options):
        shape = size[0] if isinstance(size[0], tuple) else size
        return torch.full(shape, uniform, dtype=torch.float64)

    column = np.array([0.0, 0.7, 0.2, 0.1, 0.0])
    table = np.stack([column] * 5, axis=1)
    model = HMM(table, table, column)
    monkeypatch.setattr(torch, "rand", always_the_same)
    tokens, states, _ = model.sample(2, 3, 0)
    assert (tokens == chosen).all()
    assert (states == chosen).all()


def apart(first: HMM, second: HMM) -> HMM:
    """The chain that runs either of two, and never goes from one to the other."""
    return HMM(
        torch.block_diag(first.transition, second.transition),
        torch.block_diag(first.emission, second.emission),
        torch.cat([0.25 * first.initial, 0.75 * second.initial]),
        columns=True,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("i", [1500, 10**6, 10**9, 10**18])
def test_after_any_number_of_steps_there_is_a_distribution_and_no_class_has_gained(i, dtype):
    model = apart(random_hmm(10, 3, 0), random_hmm(7, 3, 1)).to(dtype=dtype)
    law = model.marginal(i)
    tolerance = SUM_TOLERANCE[dtype]
    assert law.sum().item() == pytest.approx(1, abs=tolerance)
    assert law[:10].sum().item() == pytest.approx(0.25, abs=1000 * tolerance)


def test_far_ahead_the_law_is_the_stationary_one():
    model = random_hmm(10, 3, 0)
    np.testing.assert_allclose(model.marginal(10**9), model.stationary(), rtol=1e-12)
    unscaled_power = torch.linalg.matrix_power(model.transition, 10**9)
    assert abs((unscaled_power @ model.initial).sum().item() - 1) > 1e-9, "a power alone would do"


@pytest.mark.parametrize("i", [2, 100, 5000])
def test_columns_that_are_off_by_their_tolerance_give_distributions_of_which_a_model_can_be_made(i):
    columns_off = [[0.9 + 9e-10, 0.5], [0.1, 0.5 + 9e-10]]
    model = HMM(columns_off, np.eye(2), [0.5, 0.5])
    assert HMM(columns_off, np.eye(2), model.marginal(i)).n_states == 2


# Stationary laws


def test_rates_that_lie_far_apart_have_their_stationary_law():
    """State 0 is left at rate 1e-200 and state 1 at once, so their odds are 1e200 to 1."""
    transition = torch.tensor([[1.0, 1.0], [1e-200, 0.0]], dtype=torch.float64)
    law = stationary_law(transition)
    np.testing.assert_allclose(law, [1.0, 1e-200], rtol=1e-14)


ODDS_OF_1E600 = [
    [0.0, 1e-300, 0.0],
    [1.0, 0.0, 1e-300],
    [0.0, 1.0, 1.0],
]
RATE_OF_1E_400 = [  # from state 1 by state 2 to state 0
    [1.0, 0.0, 1e-200],
    [1e-300, 1.0, 1.0],
    [0.0, 1e-200, 0.0],
]


@pytest.mark.parametrize("transition", [ODDS_OF_1E600, RATE_OF_1E_400])
def test_a_stationary_law_that_floats_cannot_hold_is_refused(transition):
    with pytest.raises(ValueError, match="too small for its stationary distribution"):
        stationary_law(torch.tensor(transition, dtype=torch.float64))
