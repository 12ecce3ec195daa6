"""What the page on prompts says of where its theorem stops, and its exercises, from its models."""

import numpy as np
import pytest
import torch
from section_3_1 import ALPHA, BETA, DELTA, GAMMA, ONES, at_gap, possible_inputs

from hmmbook.evidence import ledger
from hmmbook.evidence.enumeration import Joint
from hmmbook.evidence.random_models.instances import essential_instance
from hmmlib import (
    HMM,
    AssumptionError,
    Impossible,
    assumption_3_5,
    essential_twins,
    fit_or_refute,
    ground_truth,
    lemma_c_2,
    posterior,
    theorem_3_6,
)

PAGE = "3-1-prompt"
PATTERNS = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 4).double()
"""Each set of four states, as a prompt that is one there and zero elsewhere, (16, 4)."""


@pytest.fixture(scope="module")
def twins() -> HMM:
    return essential_twins(0)


# Where the theorem stops


def test_the_second_model_is_as_the_text_says(twins):
    can_follow = twins.transition > 0  # [h', h]

    assert twins.emission.argmax(0).tolist() == [0, 0, 1, 2]
    assert (twins.emission.amax(0) == 1).all()
    assert can_follow[GAMMA].tolist() == [True, False, False, False]
    assert can_follow[DELTA].tolist() == [False, True, False, False]
    assert can_follow[[ALPHA, BETA]].all()


def test_every_prompt_but_zero_leaves_alpha_and_beta_possible(twins):
    for prompt in PATTERNS:
        possible = twins.transition @ (prompt * twins.marginal(1)) > 0

        assert possible[:2].all() == prompt.any()


def test_before_1_the_state_was_alpha_and_before_2_beta_and_every_prompt_gives_both_one_prediction(twins):
    pair = torch.tensor([[1], [2]])
    sizes = 0.1 + 0.9 * torch.rand(16, 4, generator=torch.Generator().manual_seed(0))

    assert torch.allclose(posterior(twins, pair), torch.eye(4, dtype=torch.float64)[:2])
    for prompt in PATTERNS * sizes:
        first, second = at_gap(twins, pair, prompt)
        assert torch.allclose(first, second, atol=1e-14)


def test_the_theorem_refuses_dependent_columns(twins):
    with pytest.raises(AssumptionError) as refusal:
        theorem_3_6(twins, [1.0, -1.0, 0.0, 0.0], [ALPHA, BETA])

    assert not refusal.value.report.columns


def test_the_task_on_alpha_alone_breaks_only_part_3_and_no_prompt_and_head_are_right(twins):
    mu = torch.tensor([-1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    pair = torch.tensor([[1], [2]])
    report = assumption_3_5(twins, mu, [ALPHA])

    assert report.columns
    assert not report.uncovered
    assert report.unreached == (ALPHA,)
    assert (ground_truth(twins, mu, pair) >= 0).tolist() == [False, True]
    for prompt in PATTERNS:
        assert isinstance(fit_or_refute(at_gap(twins, pair, prompt), [False, True]), Impossible)


@pytest.mark.parametrize("name", ["model", "twins"])
def test_the_sets_of_part_3_are_exactly_those_to_which_a_prompt_can_confine_the_state(name, request):
    chain = request.getfixturevalue(name)
    reached = set()
    for prompt in PATTERNS:
        possible = chain.transition @ (prompt * chain.marginal(1)) > 0
        reached.add(tuple(possible.tolist()))

    assert (chain.marginal(1) > 0).all()
    assert 2 < len(reached) < 16
    for states in PATTERNS[1:]:
        members = states.nonzero().flatten().tolist()
        satisfies_part_3 = not assumption_3_5(chain, states, members).unreached
        assert satisfies_part_3 == (tuple(states.bool().tolist()) in reached)


def test_a_prompt_that_is_only_nearly_zero_is_right_on_all_44_texts_from_003_down(page):
    accuracies = dict(zip(page["slack"], page["accuracies"], strict=True))

    assert accuracies[1.0] < accuracies[0.3] < accuracies[0.1] < 1
    for slack in (0.03, 0.01, 0.003, 0.001):
        assert accuracies[slack] == 1


def test_the_belief_left_on_gamma_and_delta_shrinks_with_the_entry(page):
    assert page["outside"] == sorted(page["outside"], reverse=True)
    assert page["outside"][-1] < 0.01


# Checks and exercises


def test_random_models_have_up_to_four_states_and_three_tokens():
    shapes = [essential_instance(seed)[0].emission.shape for seed in range(100)]

    assert max(n_tokens for n_tokens, _ in shapes) == 3
    assert max(n_states for _, n_states in shapes) == 4


@pytest.mark.parametrize("name", ["Assumption 3.5", "Theorem 3.6"])
def test_the_statements_hold_on_random_models_and_their_controls_fail(name):
    entry = ledger.run(ledger.find(name), instances=8, seed=0)

    assert entry.as_recorded
    assert entry.residual <= entry.tolerance
    assert entry.control_fails > 0


@pytest.fixture(scope="module")
def times_as_likely(page, model, x) -> torch.Tensor:
    """r_x: how many times as likely a text is alone as beside the prompt, by a sum over all paths."""
    parts = (model.transition, model.emission, model.initial)
    alone = Joint(*parts, [None] * 4).of("x1", "x2", "x3", "x4")
    beside = Joint(*parts, [page["prompt"], ONES, *[None] * 4]).of("x3", "x4", "x5", "x6")
    places = tuple(x[page["occurs"]].numpy().T)
    return torch.as_tensor(alone[places] / beside[places])


def test_in_exercise_1_the_factor_is_how_much_more_likely_the_text_is_alone(page, times_as_likely):
    occurs = page["occurs"]

    assert torch.allclose(page["r_x"], times_as_likely)
    assert torch.allclose(page["head"](page["left"][occurs]) / page["target"][occurs], times_as_likely)


def test_in_exercise_1_the_factor_is_large_where_the_text_leaves_little_on_the_set_and_bounded_below(
    page, model, times_as_likely
):
    on_the_set = page["h0"][page["occurs"]][:, :2].sum(1)
    scale = lemma_c_2(model, page["prompt"])

    assert times_as_likely.argmax() == on_the_set.argmin()
    assert times_as_likely.min() > 1 / scale.max()
    assert torch.allclose(1 / times_as_likely, page["h0"][page["occurs"]] @ scale)
    assert np.corrcoef(times_as_likely, on_the_set)[0, 1] < -0.5


def test_in_exercise_2_the_set_of_alpha_and_beta_is_lost_and_the_same_prompt_gives_three_states(page):
    leaky = page["leaky"]
    behind = leaky.transition @ (page["prompt"] * leaky.marginal(1)) > 0

    assert assumption_3_5(leaky, page["mu"], [ALPHA, BETA]).unreached
    assert behind.tolist() == [True, True, True, False]
    assert torch.equal(page["new_prompt"], page["prompt"])
    assert torch.linalg.matrix_rank(leaky.emission[:, :3]) == 3


def test_in_exercise_2_the_new_head_gives_gamma_the_score_0_and_the_old_one_does_not(page):
    column = page["leaky"].emission[:, GAMMA]

    assert abs(page["new_head"].weights @ column) < 1e-12
    assert abs(page["head"].weights @ column) > 1


def test_in_exercise_2_the_new_head_is_right_on_all_texts_the_old_one_is_not_and_without_a_prompt_none_is(page):
    leaky = page["leaky"]
    texts = possible_inputs(leaky, 4)
    labels = ground_truth(leaky, page["mu"], texts) >= 0
    probs = at_gap(leaky, texts, page["new_prompt"])

    assert torch.equal(page["new_head"].label(probs), labels)
    assert not torch.equal(page["head"].label(probs), labels)
    assert isinstance(fit_or_refute(at_gap(leaky, texts, ONES), labels), Impossible)
