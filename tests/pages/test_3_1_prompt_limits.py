"""What the page on prompts says of where its theorem stops, and its first exercise, from its models."""

import pytest
import torch
from section_3_1 import ALPHA, BETA, DELTA, GAMMA, ONES, PATTERNS, at_gap

from hmmbook.evidence import ledger
from hmmbook.evidence.enumeration import Joint
from hmmbook.evidence.random_models.instances import essential_instance
from hmmlib import (
    HMM,
    AssumptionError,
    assumption_3_1,
    assumption_3_5,
    essential_twins,
    lemma_c_2,
    non_degenerate_hmm,
    posterior,
    theorem_3_6,
)

PAGE = "3-1-prompt"


@pytest.fixture(scope="module")
def twins() -> HMM:
    return essential_twins(0)


# What it buys, and where it stops


def test_alpha_and_beta_emit_the_same_token_and_1_comes_only_after_alpha_and_2_only_after_beta(twins):
    can_follow = twins.transition > 0  # [h', h]

    assert twins.emission.argmax(0).tolist() == [0, 0, 1, 2]
    assert (twins.emission.amax(0) == 1).all()
    assert can_follow[GAMMA].tolist() == [True, False, False, False]
    assert can_follow[DELTA].tolist() == [False, True, False, False]
    assert torch.allclose(posterior(twins, torch.tensor([[1], [2]])), torch.eye(4, dtype=torch.float64)[:2])


def test_every_prompt_gives_both_texts_the_same_prediction(twins):
    pair = torch.tensor([[1], [2]])
    sizes = 0.1 + 0.9 * torch.rand(16, 4, generator=torch.Generator().manual_seed(0))

    for prompt in PATTERNS * sizes:
        first, second = at_gap(twins, pair, prompt)
        assert torch.allclose(first, second, atol=1e-14)


def test_the_theorem_refuses_dependent_columns(twins):
    with pytest.raises(AssumptionError) as refusal:
        theorem_3_6(twins, [1.0, -1.0, 0.0, 0.0], [ALPHA, BETA])

    assert not refusal.value.report.columns


def test_a_task_that_weighs_delta_too_is_refused_because_alpha_and_beta_do_not_cover_it(model):
    with pytest.raises(AssumptionError, match="outside H") as refusal:
        theorem_3_6(model, [1.0, -1.0, 0.0, 0.5], [ALPHA, BETA])

    assert refusal.value.report.uncovered == (DELTA,)


def test_theorem_3_3_needs_independent_columns_for_all_states_so_no_more_states_than_tokens():
    with_enough_tokens = non_degenerate_hmm(3, 3, seed=0)
    emission = torch.rand(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    quarter = torch.full((4, 4), 0.25, dtype=torch.float64)

    assert assumption_3_1(with_enough_tokens)
    assert not assumption_3_1(HMM(quarter, emission / emission.sum(0), quarter[0], columns=True))


def test_where_every_state_can_lead_to_every_state_a_prompt_can_rule_out_nothing(model):
    everywhere = model.transition + 0.01
    chain = HMM(everywhere / everywhere.sum(0), model.emission, model.initial)

    for prompt in PATTERNS[1:]:
        assert (chain.transition @ (prompt * chain.marginal(1)) > 0).all()
        members = prompt.nonzero().flatten().tolist()
        assert bool(assumption_3_5(chain, prompt, members).unreached) == (len(members) < 4)


# Checks and exercises


def test_random_models_have_up_to_four_states_and_three_tokens():
    shapes = [essential_instance(seed)[0].emission.shape for seed in range(100)]

    assert max(n_tokens for n_tokens, _ in shapes) == 3
    assert max(n_states for _, n_states in shapes) == 4


def test_the_theorem_holds_on_random_models_and_its_control_fails():
    entry = ledger.run(ledger.find("Theorem 3.6"), instances=8, seed=0)

    assert entry.as_recorded
    assert entry.residual <= entry.tolerance
    assert entry.control_fails > 0


@pytest.fixture(scope="module")
def times_as_likely(page, model) -> torch.Tensor:
    """r_x: how many times as likely a text is alone as beside the prompt, by a sum over all paths."""
    parts = (model.transition, model.emission, model.initial)
    alone = Joint(*parts, [None] * 3).of("x1", "x2", "x3")
    beside = Joint(*parts, [page["prompt"], ONES, *[None] * 3]).of("x3", "x4", "x5")
    places = tuple(page["texts"].numpy().T)
    return torch.as_tensor(alone[places] / beside[places])


def test_in_exercise_1_the_factor_is_how_much_more_probable_the_text_is_alone(page, model, times_as_likely):
    targets = posterior(model, page["texts"]) @ page["mu"]
    scores = page["head"](at_gap(model, page["texts"], page["prompt"]))

    assert torch.allclose(page["r"], times_as_likely)
    assert torch.allclose(scores / targets, times_as_likely)


def test_in_exercise_1_the_factor_is_bounded_below_and_grows_as_the_text_leaves_less_on_the_essential_states(
    page, model, times_as_likely
):
    on_the_set = page["beliefs"][:, :2].sum(1)
    factors = lemma_c_2(model, page["prompt"])

    assert torch.allclose(1 / times_as_likely, page["beliefs"] @ factors)
    assert times_as_likely.min() >= 1 / factors.max()
    assert times_as_likely.argmax() == on_the_set.argmin()
