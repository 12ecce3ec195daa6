"""The theorems as constructions: scores beside those of a witness, lemmas and prompts by their entries, refusals."""

from collections import Counter

import numpy as np
import pytest
import torch
from constructions import behind_gap, check_3_6, check_4, mixed_inputs, telling_inputs, weights_on
from record import SLOW
from witness import forward_backward

import hmmlib
from hmmlib.inference.evidence import prompted
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.families import sparse_columns
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import assumptions
from hmmlib.theory.theorems import claim_b_1, ground_truth

# Section 3


def non_degenerate(seed):
    return hmmlib.non_degenerate_hmm(1 + seed % 6, 1 + seed % 6 + seed % 3, seed)


def without_zeros(seed):
    return hmmlib.non_degenerate_hmm(2 + seed % 7, 10, seed, zeros=0.0)


def nearly_dependent(seed):
    return hmmlib.nearly_dependent_hmm(2 + seed % 4, 7, 1e-6, seed)


def appendix_e(seed):
    return hmmlib.random_hmm(1 + seed % 10, 10, seed)


@pytest.mark.parametrize("family", [non_degenerate, without_zeros, nearly_dependent, appendix_e])
def test_theorem_3_3(family):
    """The score is r_x μᵀP[H_0 | x], up to rounding that the condition of W magnifies."""
    n_models = 0
    for seed in range(170 if SLOW else 20):
        model = family(seed)
        rng = np.random.default_rng(seed)
        if not (assumptions.assumption_3_1(model) and assumptions.assumption_3_2(model)):
            assert family is appendix_e, seed
            continue
        mu = rng.standard_normal(model.n_states) * rng.choice([1e-3, 1.0, 1e3])
        tokens = model.sample(6, int(rng.integers(1, 7)), seed).tokens
        head = hmmlib.theorem_3_3(model, mu)
        probs = masked_token_probs(model, behind_gap(tokens))[:, 0]
        targets = mu / claim_b_1(model, 1).numpy()
        bound = 1e-13 * head.condition * abs(targets).max()
        scores = head(probs)
        labels = head.label(probs)
        for k, text in enumerate(tokens.tolist()):
            joint = forward_backward(model, text).start
            chance_after_gap = forward_backward(model, [hmmlib.MASK, *text]).left[0]
            expected = joint @ mu / chance_after_gap
            assert abs(scores[k] - expected) <= bound, seed
            assert labels[k].item() == (expected >= 0) or abs(expected) <= bound, seed
        condition = np.linalg.cond(model.emission.numpy())
        assert head.condition == pytest.approx(condition, rel=1e-3)
        n_models += 1
    assert n_models > 5


@pytest.mark.parametrize("length", [1, 12])
def test_theorem_3_6_on_long_inputs_and_larger_models(length):
    n_seen = 0
    n_excluded = 0
    for seed in range(16):
        n_states = 1 + seed % 6
        n_tokens = 2 + seed % 4
        n_essential = 1 + seed % min(n_states, n_tokens)
        zeros = [0.3, 0.6, 0.85][seed % 3]
        model, essential = hmmlib.essential_hmm(n_states, n_tokens, n_essential, seed, zeros)
        mu = weights_on(essential, n_states, seed)
        possible, behind_prompt = check_3_6(model, mu, essential, mixed_inputs(model, length, seed))
        n_seen += behind_prompt
        n_excluded += possible - behind_prompt
        prompt, head = hmmlib.theorem_3_6(model, mu, essential)
        columns = model.emission[:, essential].numpy()
        assert head.condition == pytest.approx(np.linalg.cond(columns))
        outside = [h for h in range(n_states) if h not in essential]
        leads_outside = model.transition[outside].any(0)
        assert torch.equal(prompt, (~leads_outside).double())
    assert n_seen > 50
    assert n_excluded > 0 or length == 1


# Section 4

BOTH = pytest.mark.parametrize("with_prompt", [False, True], ids=["4.3", "4.6"])


def seen_in_check(model, mu, cell, syntax, with_prompt, tokens):
    """What `check_4` meets with the head of Theorem 4.3 or 4.6. `tokens` takes the prompt and gives the texts."""
    if with_prompt:
        prompt, head = hmmlib.theorem_4_6(model, mu, cell, syntax)
    else:
        prompt = None
        head = hmmlib.theorem_4_3(model, mu, cell, syntax)
    return check_4(model, mu, cell, syntax, tokens(prompt), prompt, head)


@BOTH
@pytest.mark.parametrize("length", [1, 12])
@pytest.mark.parametrize(
    ("n_cells", "n_memory", "n_syntax", "n_recoverable"),
    [
        (1, 3, 3, 2),
        (1, 3, 3, 3),
        (2, 2, 2, 1),
        (2, 3, 2, 2),
        (3, 2, 2, 1),
        (2, 2, 1, 1),
        (1, 1, 1, 1),
        (1, 2, 1, 1),
        (1, 1, 2, 1),
        (2, 1, 1, 1),
    ],
)
def test_attention_heads_on_long_inputs(n_cells, n_memory, n_syntax, n_recoverable, length, with_prompt):
    seen = Counter()
    for seed in range(14 if SLOW or length == 12 else 4):
        n_values = 1 + seed % n_memory if with_prompt else n_memory
        zeros = [0.6, 0.95][seed % 2]
        model, cell, syntax, values = hmmlib.recoverable_memory_hmm(
            n_cells, n_memory, n_syntax, n_recoverable, n_values, seed, zeros, stationary=with_prompt
        )
        if seed % 2:  # Many joint values of the memory are impossible.
            generator = torch.Generator().manual_seed(seed)
            memory = sparse_columns((model.memory.numel(),), 0.6, generator)
            memory = memory.reshape(model.memory.shape)
            model = MemoryHMM(model.transition, model.emission, model.initial, memory)

        def tokens(prompt, model=model, cell=cell, syntax=syntax, seed=seed):
            return telling_inputs(model, length, seed, cell, syntax, prompt)

        seen += seen_in_check(model, weights_on(values, n_memory, seed), cell, syntax, with_prompt, tokens)
    smallest = n_cells == n_memory == n_syntax == 1
    assert seen["outside"] > 0 or smallest
    if length == 12:
        assert seen["within"] > 5, seen
        assert seen["many"] > 3, seen
        if with_prompt and (n_cells, n_recoverable) in ((1, 2), (2, 2)):
            assert seen["excluded"] > 0, seen


def each_state_shows_a_token(transition, initial, memory):
    n = len(initial)
    emission = np.eye(n)[:, None].repeat(len(memory), 1)
    return MemoryHMM(transition, emission, initial, memory)


EVEN = [0.5, 0.5]


def test_weights_follow_the_precision_of_the_model():
    for seed in range(4):
        model, cell, syntax, values = hmmlib.recoverable_memory_hmm(
            1 + seed % 2, 2, 2, 1, 1 + seed % 2, seed, 0.7, True
        )
        mu = weights_on(values, 2, 0)
        tokens = model.sample(8, 5, seed).tokens
        scores = []
        for precise in (model, model.to(dtype=torch.float32)):
            prompt, head = hmmlib.theorem_4_6(precise, mu, cell, syntax)
            probs = masked_token_probs(precise, tokens, prompt)
            scores.append(head(probs, prompted(precise, prompt, tokens)))
            truth = ground_truth(precise, mu, tokens, cell)
            other_prompt = hmmlib.prompt_for_any_start(precise, mu, cell)
            for tensor in (prompt, head.query, head.positions, scores[-1], truth, other_prompt):
                assert tensor.dtype == precise.dtype
        inside = hmmlib.concentrated(model, tokens, cell, syntax).any(1)
        in_double, in_single = scores
        np.testing.assert_allclose(in_double[inside], in_single[inside], atol=2e-5 * head.condition)
    with pytest.raises(ValueError, match=r"^mu must .* so small that .* zero as torch\.float32"):
        assumptions.weighted_values(precise, [1e-60, 1.0])
    chain = hmmlib.random_hmm(3, 4, 1).to(dtype=torch.float32)
    mu = [1.0, 0.0, -1.0]
    prompt, _ = hmmlib.theorem_3_6(chain, mu, [0, 1, 2])
    assert hmmlib.theorem_3_3(chain, mu).weights.dtype == torch.float32
    assert prompt.dtype == torch.float32


def recovered(n_cells, seed):
    drawn = hmmlib.recoverable_memory_hmm(n_cells, 2, 3, 2, 2, seed, 0.3, stationary=True)
    model, cell, syntax, _ = drawn
    return model, cell, syntax, hmmlib.claim_d_3(model, cell, syntax)


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_queries_keys_and_value_parameters_by_their_entries(n_cells):
    model, cell, syntax, recovery = recovered(n_cells, n_cells)
    states = [3 * cell + s for s in syntax]
    query, key = hmmlib.lemma_d_2(model, recovery)
    marked = [float(h in states) for h in range(3 * n_cells)]
    assert query.tolist() == [*marked, 0.0]
    assert torch.equal(key[:-1], recovery.theta_1)
    assert key[-1].tolist() == [0.0] * model.n_tokens
    value, output = hmmlib.lemma_d_4(model, recovery, [3.0, -1.0])
    assert value.shape == (6 * n_cells, model.n_tokens)
    for m, weight in enumerate([3.0, -1.0]):
        for h in range(3 * n_cells):
            row = 3 * n_cells * m + h
            assert output[row] == (weight if h // 3 == cell else 0)
            expected = torch.zeros(model.n_tokens)
            if h in states:
                expected = recovery.theta_2[states.index(h), m]
            assert value[row].tolist() == expected.tolist()


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_what_is_recovered_and_its_error(n_cells):
    """Columns at H* are read exactly. All other states are counted in one, so the rows of Θ^(1) sum to 1."""
    model, _, _, recovery = recovered(n_cells, n_cells)
    outside = [h for h in range(3 * n_cells) if h not in recovery.states]
    columns = model.emission.flatten(1)
    tolerance = 1e-9 * recovery.condition
    assert (recovery.theta_1[outside[1:]] == 0).all()
    np.testing.assert_allclose((recovery.theta_1 @ columns).sum(0), 1, atol=tolerance)
    columns_outside = model.emission[:, :, outside].flatten(1)
    np.testing.assert_allclose(recovery.theta_1[outside[0]] @ columns_outside, 1, atol=tolerance)

    readings = recovery.theta_2.flatten(0, 1)
    ideal = torch.zeros(len(recovery.states), 2, 2, 3 * n_cells).double()
    for s, h in enumerate(recovery.states):
        for m in range(2):
            ideal[s, m, m, h] = 1
    ideal = ideal.reshape(-1, columns.shape[1])
    missing = (readings @ columns - ideal).abs()
    key = recovery.theta_1[recovery.states]
    missing_in_key = (readings.sum(0) @ columns - ideal.sum(0)).abs()
    error_of_values = (missing.amax(1) / readings.abs().amax(1)).max()
    error_of_key = missing_in_key.max() / key.abs().sum(0).max()
    assert recovery.error == pytest.approx(max(error_of_values, error_of_key).item(), rel=0.5)
    assert 0 < recovery.error < 1e-12


def test_the_position_of_the_prompt_scores_below_all_that_a_key_can_reach():
    """It scores -2 as printed where no key exceeds 1, and lower by as much where one does."""
    model = each_state_shows_a_token([EVEN, EVEN], EVEN, EVEN)
    recovery = hmmlib.claim_d_10(model, [1, 0], 0, [0])
    _, _, positions = hmmlib.lemma_d_9(model, recovery)
    np.testing.assert_allclose(positions, [[0, 0, -2]], rtol=1e-12)
    for seed in range(4):
        model, _, _, recovery = recovered(1 + seed % 2, seed)
        query, key, positions = hmmlib.lemma_d_9(model, recovery)
        plain_query, plain_key = hmmlib.lemma_d_2(model, recovery)
        assert torch.equal(key, plain_key)
        assert query.tolist() == [*plain_query[:-1].tolist(), 1.0]
        largest = (plain_query @ plain_key).max().item()
        assert largest > 1 + 1e-9
        assert positions.shape == (1, model.n_states + 1)
        *entries_of_states, last = positions[0].tolist()
        assert entries_of_states == [0.0] * model.n_states
        assert last == pytest.approx(-1 - largest, rel=1e-12)
        assert (query @ (key + positions.T) < 0).all(), "the scores of a position that shows one token for sure"


@pytest.mark.parametrize("n_cells", [1, 2])
def test_attention_heads_carry_condition_cells_and_error(n_cells):
    model, cell, syntax, recovery = recovered(n_cells, 3)
    mu = [1.0, -1.0]
    head = hmmlib.theorem_4_3(model, mu, cell, syntax)
    _, head_with_prompt = hmmlib.theorem_4_6(model, mu, cell, syntax)
    report = assumptions.assumption_4_2(model, cell, syntax)
    assert head.condition == report.condition
    assert head.n_cells == n_cells
    assert head.error == recovery.error
    report = assumptions.assumption_d_5(model, mu, cell, syntax)
    drift = assumptions.assumption_4_4(model).drift
    assert head_with_prompt.condition == report.condition
    assert head_with_prompt.n_cells == n_cells
    assert head_with_prompt.error == recovery.error + 2 * drift
    assert hmmlib.prompted_head(model, mu, recovery).error == recovery.error


def test_cells_and_states_may_be_of_any_type_of_integers_and_in_any_order():
    model, cell, syntax, _ = recovered(2, 3)
    expected = hmmlib.theorem_4_3(model, [1.0, -1.0], cell, syntax).value
    for other_syntax in (set(syntax), torch.tensor(syntax), np.array(syntax[::-1])):
        head = hmmlib.theorem_4_3(model, [1, -1], np.int64(cell), other_syntax)
        assert torch.equal(head.value, expected)


def test_prompts_by_their_entries():
    model, *_ = hmmlib.recoverable_memory_hmm(2, 3, 2, 1, 1, 0)
    for cell in (0, 1):
        prompt = hmmlib.prompt_d_6(model, [0.0, -1.0, 2.0], cell)
        prompt = prompt.reshape(3, 3, 4)
        for values in np.ndindex(3, 3):
            assert prompt[values].tolist() == [float(values[cell] != 0)] * 4


def test_the_prompt_for_any_start_is_p_h_0_over_p_h_1():
    chain = [
        [0.5, 0.5, 0],
        [0.5, 0.25, 1],
        [0, 0.25, 0],
    ]
    model = each_state_shows_a_token(chain, [0.5, 0.5, 0.0], EVEN)  # P[H_1] is (1/2, 3/8, 1/8).
    prompt = hmmlib.prompt_for_any_start(model, [1.0, 0.0], 0)
    assert prompt.tolist() == pytest.approx([0.75, 1, 0, 0, 0, 0])


def test_the_prompt_for_any_start_where_a_state_is_never_entered():
    to_state_1 = [[0, 0], [1.0, 1.0]]
    absent = each_state_shows_a_token(to_state_1, [0.0, 1.0], EVEN)
    prompt = hmmlib.prompt_for_any_start(absent, [1.0, 1.0], 0)
    assert prompt.tolist() == [0, 1, 0, 1]
    never_entered = each_state_shows_a_token(to_state_1, EVEN, EVEN)
    message = r"^model must enter each state that H_0 can be in, but P\[H_1\] is 0 in some of them$"
    with pytest.raises(ValueError, match=message):
        hmmlib.prompt_for_any_start(never_entered, [1.0, 0.0], 0)


# What is refused

CHAIN = [  # State 0 leads to 0 and 1 only.
    [0.5, 0.2, 0.3],
    [0.5, 0.3, 0.3],
    [0.0, 0.5, 0.4],
]
START = [0.2, 0.3, 0.5]
FIRST_TWO_ALIKE = [
    [0.5, 0.5, 0],
    [0.5, 0.5, 0],
    [0, 0, 1],
]
ALIKE = HMM(CHAIN, FIRST_TWO_ALIKE, START)
TURN = HMM(np.eye(3)[[2, 0, 1]], np.eye(3), START, columns=True)
TWINS = hmmlib.recoverable_twins()
PARITY = hmmlib.parity_memory_hmm(2, 0.1)
NEVER_IN_STATE_2 = HMM(CHAIN, np.eye(3), [0.5, 0.5, 0.0])
TWO_CELLS, *_ = hmmlib.recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
ONE_CELL, CELL, SYNTAX, _ = hmmlib.recoverable_memory_hmm(1, 2, 2, 1, 2, 0)
STILL = MemoryHMM(np.eye(2), ONE_CELL.emission, [0.5, 0.5], ONE_CELL.memory)
MU = [1.0, -1.0]
MU_OF_3 = [1.0, -1.0, 0.0]
ONLY_STATE_0 = [1.0, 0.0, 0.0]
TEXT = [[0, 1]]


@pytest.mark.parametrize(
    ("theorem", "arguments", "assumption", "words"),
    [
        (hmmlib.theorem_3_3, (ALIKE, MU_OF_3), "3.1", "3 columns of rank 2"),
        (hmmlib.theorem_3_3, (TURN, MU_OF_3), "3.2", "irreducible of period 3"),
        (hmmlib.theorem_3_6, (TURN, ONLY_STATE_0, [0]), "3.2", "irreducible of period 3"),
        (hmmlib.theorem_3_6, (ALIKE, MU_OF_3, [0, 1]), "3.5", "2 columns of rank 1"),
        (hmmlib.theorem_4_3, (TWINS, MU, 0, [0, 2, 3]), "4.2", "smallest angle"),
        (hmmlib.theorem_4_3, (STILL, MU, CELL, SYNTAX), "3.2", "reducible"),
        (hmmlib.theorem_4_6, (PARITY, MU, 0, range(4)), "4.5", "8 columns"),
        (hmmlib.theorem_4_6, (TWO_CELLS, MU, 0, [0, 1]), "D.5", "4 columns"),
        (hmmlib.theorem_4_6, (ONE_CELL, MU, CELL, SYNTAX), "4.4", "differs from P"),
    ],
)
def test_broken_assumptions_are_named(theorem, arguments, assumption, words):
    message = rf"^Assumption {assumption} \(.*\) does not hold: .*{words}"
    with pytest.raises(assumptions.AssumptionError, match=message) as caught:
        theorem(*arguments)
    assert not caught.value.report
    assert isinstance(caught.value, ValueError)


def test_the_cell_is_the_first_unless_another_is_named():
    unnamed = ground_truth(TWO_CELLS, MU, TEXT)
    assert torch.equal(unnamed, ground_truth(TWO_CELLS, MU, TEXT, 0))
    assert not torch.equal(unnamed, ground_truth(TWO_CELLS, MU, TEXT, 1))


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (claim_b_1, (NEVER_IN_STATE_2, 1), r"model must .* P\[H_0\] is zero, because Claim B\.1 divides by it$"),
        (hmmlib.prompt_d_6, (TWO_CELLS, MU, 2), "cell must be an integer from 0 to 1, not 2$"),
        (ground_truth, (TWO_CELLS, MU, TEXT, 2), "cell must be an integer from 0 to 1, not 2$"),
        (ground_truth, (TURN, ONLY_STATE_0, TEXT, 1), "cell must be an integer from 0 to 0, not 1$"),
        (hmmlib.concentrated, (TWO_CELLS, TEXT, 0, [2]), "each of syntax must be an integer from 0 to 1, not 2$"),
        (hmmlib.theorem_3_6, (TURN, ONLY_STATE_0, [3]), "each of essential must be an integer from 0 to 2"),
        (hmmlib.theorem_3_6, (TWO_CELLS, [1.0] * 4, [0]), "model must be of type HMM, not MemoryHMM"),
        (hmmlib.theorem_4_3, (TURN, [1.0] * 3, 0, [0]), "model must be of type MemoryHMM, not HMM"),
    ],
)
def test_what_does_not_fit_is_refused(function, arguments, message):
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        function(*arguments)
