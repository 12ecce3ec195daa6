"""The lemmas behind the constructions one by one: the entries of what each builds, and what they carry along."""

import numpy as np
import pytest
import torch

from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import essential_hmm, recoverable_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_3_5, assumption_4_2, assumption_d_5, essential_states, weighted_values
from hmmlib.theory.theorems import (
    claim_b_1,
    claim_d_3,
    claim_d_10,
    ground_truth,
    lemma_c_2,
    lemma_d_2,
    lemma_d_4,
    lemma_d_9,
    prompt_d_6,
    prompt_for_any_start,
    prompted_head,
    theorem_3_3,
    theorem_3_6,
    theorem_4_3,
    theorem_4_6,
)


def test_the_ratios_of_claim_b_1_step_by_step():
    model = random_hmm(4, 6, 1)
    after = model.initial
    for i in range(4):
        np.testing.assert_allclose(claim_b_1(model, i), after / model.initial, rtol=1e-12)
        after = model.transition @ after
    missing = HMM([[0.5, 0.5], [0.5, 0.5]], np.eye(2), [1.0, 0.0], columns=True)
    with pytest.raises(ValueError, match=r"^Claim B\.1 divides by P\[H_0\], which is zero in some state$"):
        claim_b_1(missing, 1)


def test_the_weights_of_lemma_c_2_path_by_path():
    model, prompt = random_hmm(3, 5, 2), torch.tensor([1.0, 0.0, 0.25], dtype=torch.float64)
    step, start = model.transition.numpy(), model.initial.numpy()
    want = [
        sum(start[a] * step[b, a] * prompt[b].item() * step[c, b] for a in range(3) for b in range(3)) / start[c]
        for c in range(3)
    ]
    np.testing.assert_allclose(lemma_c_2(model, prompt), want, rtol=1e-12)


def test_the_head_of_theorem_3_6_carries_the_condition_of_its_columns():
    for seed in range(5):
        model, essential = essential_hmm(4, 5, 2, seed)
        mu = np.zeros(4)
        mu[essential] = [1.0, -2.0]
        prompt, head = theorem_3_6(model, mu, essential)
        assert head.condition == pytest.approx(np.linalg.cond(model.emission[:, essential].numpy()))
        outside = [h for h in range(4) if h not in essential]
        assert prompt.tolist() == [float(not model.transition[outside, h].any()) for h in range(4)]


def recovered(n_cells, seed):
    model, cell, syntax, _ = recoverable_memory_hmm(n_cells, 2, 3, 2, 2, seed, 0.3, True)
    return model, cell, syntax, claim_d_3(model, cell, syntax)


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_queries_keys_and_value_parameters_by_their_entries(n_cells):
    for seed in range(4):
        model, cell, syntax, recovery = recovered(n_cells, seed)
        states = [3 * cell + s for s in syntax]
        query, key = lemma_d_2(model, recovery)
        assert query.tolist() == [float(h in states) for h in range(3 * n_cells)] + [0.0]
        assert torch.equal(key[:-1], recovery.theta_1)
        assert key[-1].tolist() == [0.0] * model.n_tokens
        value, output = lemma_d_4(model, recovery, [3.0, -1.0])
        assert value.shape == (6 * n_cells, model.n_tokens)
        for m, weight in enumerate([3.0, -1.0]):
            for h in range(3 * n_cells):
                row = 3 * n_cells * m + h
                assert output[row] == (weight if h // 3 == cell else 0)
                want = recovery.theta_2[states.index(h), m] if h in states else torch.zeros(model.n_tokens)
                assert value[row].tolist() == want.tolist()


def test_the_position_of_the_prompt_scores_below_all_that_a_key_can_reach():
    """-2 as printed where no key exceeds 1, else lower by as much."""
    apart = MemoryHMM([[0.5, 0.5], [0.5, 0.5]], np.eye(2)[:, None], [0.5, 0.5], [1.0])
    np.testing.assert_allclose(lemma_d_9(apart, claim_d_3(apart, 0, [0]))[2], [[0, 0, -2]], rtol=1e-12)
    for seed in range(8):
        model, _, _, recovery = recovered(1 + seed % 2, seed)
        query, key, positions = lemma_d_9(model, recovery)
        plain, same = lemma_d_2(model, recovery)
        assert torch.equal(key, same)
        assert query.tolist() == [*plain[:-1].tolist(), 1.0]
        largest = (plain @ same).max().item()
        assert positions.shape == (1, model.n_states + 1)
        assert positions[0, :-1].tolist() == [0.0] * model.n_states
        assert positions[0, -1].item() == pytest.approx(-1 - max(largest, 1.0), rel=1e-12)
        assert largest > 1 + 1e-9
        scores = query @ (key + positions.T)  # of a position that shows one token for sure
        assert (scores < 0).all()


def test_attention_heads_carry_condition_and_cells():
    for n_cells in (1, 2):
        model, cell, syntax, recovery = recovered(n_cells, 3)
        mu = [1.0, -1.0]
        head = theorem_4_3(model, mu, cell, syntax)
        assert (head.condition, head.n_cells) == (assumption_4_2(model, cell, syntax).condition, n_cells)
        assert head.positions.shape == (0, model.n_states + 1)
        prompt, prompted = theorem_4_6(model, mu, cell, syntax)
        assert (prompted.condition, prompted.n_cells) == (assumption_d_5(model, mu, cell, syntax).condition, n_cells)
        assert torch.equal(prompt, prompt_d_6(model, mu, cell))
        again = prompted_head(model, mu, claim_d_10(model, mu, cell, syntax))
        for part in ("query", "key", "value", "output", "positions"):
            assert torch.equal(getattr(prompted, part), getattr(again, part))
        assert recovery.condition == head.condition


def one_cell(transition, initial):
    """Tokens show the state, whatever the memory's two values."""
    n = len(initial)
    return MemoryHMM(transition, np.eye(n)[:, None].repeat(2, 1), initial, [0.5, 0.5])


def test_prompts_of_models_with_one_syntax_state():
    for make in (prompt_d_6, prompt_for_any_start):
        assert make(one_cell([[1.0]], [1.0]), [0.0, 2.0], 0).tolist() == [0, 1]


def test_a_prompt_for_any_start_by_its_entries():
    """P[H_0] / P[H_1] over its largest: 0 where P[H_0] is, in a state that is never entered too."""
    model = one_cell([[0.5, 0.5, 0], [0.5, 0.25, 1], [0, 0.25, 0]], [0.5, 0.5, 0.0])  # P[H_1] = (1/2, 3/8, 1/8)
    assert prompt_for_any_start(model, [1.0, 0.0], 0).tolist() == pytest.approx([0.75, 1, 0, 0, 0, 0])
    absent = one_cell([[0, 0], [1.0, 1.0]], [0.0, 1.0])
    assert prompt_for_any_start(absent, [1.0, 1.0], 0).tolist() == [0, 1, 0, 1]
    never = one_cell([[0, 0, 0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]], [0.5, 0.5, 0.0])
    message = "^no prompt lets H_1 have the law of H_0: a state that H_0 can be in is never entered$"
    with pytest.raises(ValueError, match=message):
        prompt_for_any_start(never, [1.0, 0.0], 0)


def test_the_target_of_a_memory_model_is_that_of_its_first_cell_unless_another_is_named():
    model = recoverable_memory_hmm(2, 2, 2, 1, 2, 4, 0.3)[0]
    tokens = model.sample(5, 3, 0).tokens
    first, second = (ground_truth(model, [1.0, -1.0], tokens, cell) for cell in (0, 1))
    assert torch.equal(ground_truth(model, [1.0, -1.0], tokens), first)
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("n_cells", [1, 2])
def test_what_is_not_recoverable_is_counted_in_one_state(n_cells):
    """So that the rows of Θ^(1), like probabilities of states, sum to 1 on what the model can emit."""
    for seed in range(4):
        model, cell, syntax, recovery = recovered(n_cells, seed)
        outside = [h for h in range(3 * n_cells) if h not in {3 * cell + s for s in syntax}]
        columns = model.emission.flatten(1)
        found = recovery.theta_1 @ columns
        assert (found[outside[1:]] == 0).all()
        np.testing.assert_allclose(found.sum(0), 1, atol=1e-9 * recovery.condition)
        of_rest = columns.unflatten(1, (2, -1))[:, :, outside].flatten(1)
        np.testing.assert_allclose((recovery.theta_1 @ of_rest)[outside[0]], 1, atol=1e-9 * recovery.condition)


def test_weights_follow_the_precision_of_the_model():
    chain, model = random_hmm(3, 4, 1).to(dtype=torch.float32), recovered(2, 0)[0].to(dtype=torch.float32)
    recovery = claim_d_3(model, 0, [0])
    assert ground_truth(chain, [1.0, 0.0, -1.0], [[0, 1]]).dtype == torch.float32
    assert ground_truth(model, [1.0, -1.0], [[0, 1]]).dtype == torch.float32
    assert lemma_d_4(model, recovery, [1.0, -1.0])[1].dtype == torch.float32
    assert theorem_3_3(chain, [1.0, 0.0, -1.0]).weights.dtype == torch.float32
    least = 1e-60  # zero in float32
    for call in (
        lambda: lemma_d_4(model, recovery, [least, 0.0]),
        lambda: weighted_values(model, [least, 1.0]),
        lambda: assumption_3_5(chain, [least, 1.0, 1.0], [1, 2]),
        lambda: essential_states(chain, [least, 0.0, 1.0]),
    ):
        with pytest.raises(ValueError, match=r"^mu must .* so small that .* zero as torch\.float32"):
            call()
