"""What the page on prompts says up to its proof, from its models."""

import pytest
import torch
from section_3_1 import ALPHA, BETA, DELTA, GAMMA, ONES, PATTERNS, at_gap, possible_inputs

from hmmbook.evidence.random_models.instances import shifted
from hmmlib import (
    Impossible,
    LinearHead,
    assumption_3_1,
    assumption_3_2,
    assumption_3_5,
    fit_or_refute,
    ground_truth,
    latent_given_others,
    lemma_c_2,
    masked_token_probs,
    posterior,
)

PAGE = "3-1-prompt"
STAR = [2, 2, 1]


@pytest.fixture(scope="module")
def texts(page) -> torch.Tensor:
    return page["texts"]


@pytest.fixture(scope="module")
def labels(page) -> torch.Tensor:
    return page["labels"]


def weights_of_columns(points: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The weights, (n, k), with which points mix columns, once it is checked that they do."""
    weights = points @ torch.linalg.pinv(columns).T
    assert torch.allclose(weights @ columns.T, points, atol=1e-12)
    return weights


# Two states look alike


def test_alpha_and_delta_mostly_emit_token_0_beta_token_1_and_gamma_token_2(model):
    assert model.emission.argmax(0).tolist() == [0, 1, 2, 0]
    assert model.emission.amax(0).min() > 0.5


def test_alpha_mostly_moves_to_gamma_beta_always_to_delta_gamma_to_alpha_or_beta_and_delta_mostly_to_beta(model):
    moves = model.transition  # [h', h]

    assert moves[GAMMA, ALPHA] > 0.5
    assert moves[DELTA, BETA] == 1
    assert (moves[:, GAMMA] > 0).tolist() == [True, True, False, False]
    assert moves[BETA, DELTA] > 0.5


def test_all_27_texts_of_three_tokens_can_occur_and_no_target_is_near_zero(page, model, texts, labels):
    targets = posterior(model, texts) @ page["mu"]

    assert len(texts) == 27
    assert torch.equal(texts, possible_inputs(model, 3))
    assert targets.abs().min() > 0.04
    assert torch.equal(labels, ground_truth(model, page["mu"], texts) >= 0)


def test_a_text_has_label_1_if_alpha_is_at_least_as_probable_as_beta(model, texts, labels):
    belief = posterior(model, texts)

    assert torch.equal(labels, belief[:, ALPHA] >= belief[:, BETA])


def test_beta_always_leads_to_delta_which_never_emits_token_1_so_no_text_with_1_first_comes_after_beta(model, texts):
    begins_with_1 = texts[:, 0] == 1

    assert model.transition[DELTA, BETA] == 1
    assert model.emission[1, DELTA] == 0
    assert not posterior(model, texts)[begins_with_1, BETA].any()


def test_two_texts_have_nearly_the_same_prediction_and_different_labels(page, model):
    first, second = at_gap(model, page["pair"], ONES)

    assert (first - second).abs().max() < 0.05
    assert first.argmax() == second.argmax() == 0
    assert page["labels_of_pair"] == [0, 1]


def test_token_0_comes_almost_only_from_delta_for_the_first_text_and_for_a_third_from_alpha_for_the_second(page, model):
    belief = latent_given_others(model, shifted(page["pair"], 1), ONES)[:, 1]
    parts = belief * model.emission[0]
    shares = parts / parts.sum(1, keepdim=True)

    assert shares[0, DELTA] > 0.9
    assert 0.3 < shares[1, ALPHA] < 0.37


# The prompt leaves only two states


def test_there_are_more_states_than_tokens_and_no_head_is_right_at_g_1_or_behind_a_prompt_that_says_nothing(
    model, texts, labels
):
    at_g_1 = masked_token_probs(model, shifted(texts, 1))[:, 0]

    assert not assumption_3_1(model)
    assert isinstance(fit_or_refute(at_g_1, labels), Impossible)
    assert isinstance(fit_or_refute(at_gap(model, texts, ONES), labels), Impossible)


def test_the_star_has_label_0_and_lies_inside_a_triangle_whose_corners_have_label_1(page, model, texts, labels):
    star = at_gap(model, torch.tensor([STAR]), ONES)[0]
    points = page["without_prompt"]
    triples = torch.combinations(labels.nonzero().flatten(), 3)
    corners = points[triples].mT  # Each column is a corner.
    corners = corners[torch.linalg.det(corners).abs() > 1e-6]
    places = torch.linalg.solve(corners, star.expand(len(corners), 3))

    assert not labels[texts.tolist().index(STAR)]
    assert places.amin(1).max() > 0.1  # In one triangle it is far from each side.


def test_this_one_text_is_enough(page, texts, labels):
    others = (texts != torch.tensor(STAR)).any(1)

    assert isinstance(fit_or_refute(page["without_prompt"][others], labels[others]), LinearHead)


def test_from_gamma_the_chain_moves_to_alpha_or_beta_only_so_gamma_and_delta_are_ruled_out(page, model, texts):
    belief = latent_given_others(model, shifted(texts, 1), page["prompt"])[:, 1]

    assert (model.transition[:, GAMMA] > 0).tolist() == [True, True, False, False]
    assert not belief[:, [GAMMA, DELTA]].any()


def test_with_the_prompt_all_points_lie_on_the_segment_and_one_line_separates_the_labels(page, model, texts, labels):
    columns = model.emission[:, :2]
    points = at_gap(model, texts, page["prompt"])

    assert torch.linalg.matrix_rank(columns) == 2
    assert weights_of_columns(points, columns).min() > -1e-12
    assert torch.equal(page["head"].label(points), labels)


def test_the_bars_of_gamma_and_delta_shrink_as_the_other_entries_of_the_prompt_do(page, model):
    outside = []
    for entry in (1.0, 0.5, 0.1, 0.01, 0.0):
        prompt = page["prompt"].clamp(min=entry)
        belief = latent_given_others(model, shifted(page["shown"], 1), prompt)[:, 1]
        outside.append(belief[:, [GAMMA, DELTA]].sum(1))
    outside = torch.stack(outside)

    assert (outside.diff(dim=0) < 0).all()
    assert not outside[-1].any()


# The theorem


def test_the_essential_states_are_alpha_and_beta_the_set_before_them_is_gamma_and_the_prompt_is_0_0_1_0(page, model):
    assert page["prompt"].tolist() == [0, 0, 1, 0]
    assert page["mu"].nonzero().flatten().tolist() == [ALPHA, BETA]
    assert assumption_3_2(model)
    assert assumption_3_5(model, page["mu"], [ALPHA, BETA])


# Why it is true


def test_counted_and_computed_shares_agree_as_far_as_so_many_draws_can_tell(page, model):
    n_kept = len(page["tokens_at_gap"])
    computed = at_gap(model, page["text"][None], torch.tensor([0.0, 0.0, 1.0, 0.0]))[0]

    assert n_kept > 10_000
    assert (page["counted"] - computed).abs().max() < 6 * (0.25 / n_kept) ** 0.5


def test_without_the_prompt_the_model_predicts_something_else(page, model):
    without = at_gap(model, page["text"][None], ONES)[0]

    assert (page["counted"] - without).abs().max() > 0.1


@pytest.mark.parametrize("prompt", [[0.0, 0.0, 1.0, 0.0], [0.9, 0.1, 0.5, 0.3], [1.0, 0.0, 0.2, 0.0]])
def test_a_prompt_multiplies_the_belief_in_each_state_by_a_factor_that_is_the_same_for_every_text(model, texts, prompt):
    prompt = torch.tensor(prompt, dtype=torch.float64)
    factors = model.transition @ (prompt * model.marginal(1)) / model.initial
    multiplied = factors * posterior(model, texts)
    expected = multiplied / multiplied.sum(1, keepdim=True)
    belief = latent_given_others(model, shifted(texts, 1), prompt)[:, 1]

    assert torch.allclose(belief, expected, atol=1e-13)
    assert torch.allclose(at_gap(model, texts, prompt), expected @ model.emission.T, atol=1e-13)


def test_w_times_the_multiplied_belief_is_the_prediction_for_the_star(page):
    assert page["star"].tolist() == [STAR]
    assert page["difference"].abs().max() < 1e-14


def test_the_factors_are_positive_for_the_essential_states_and_zero_for_all_others(page, model):
    factors = lemma_c_2(model, page["prompt"])

    assert (factors > 0).tolist() == [True, True, False, False]
    assert torch.allclose(page["factors"], factors[:2])  # The page's last ones are those of the essential states.


def test_the_score_is_the_weighted_sum_of_the_task_times_a_positive_factor(page, model, texts):
    targets = posterior(model, texts) @ page["mu"]
    belief = posterior(model, texts)
    ratio = page["head"](at_gap(model, texts, page["prompt"])) / targets

    assert (ratio > 0).all()
    assert torch.allclose(1 / ratio, belief @ lemma_c_2(model, page["prompt"]))


def test_this_factor_is_that_of_step_2_divided_by_the_probability_of_the_fake_token(page, model, texts):
    belief = posterior(model, texts)
    fake_token_and_state = page["prompt"] * model.marginal(1)
    probability = fake_token_and_state.sum()
    state_at_gap = model.transition @ fake_token_and_state / probability
    mixed = (state_at_gap * belief / model.initial) @ model.emission.T
    prediction = at_gap(model, texts, page["prompt"])
    of_step_2 = 1 / mixed.sum(1)

    assert torch.allclose(of_step_2[:, None] * mixed, prediction)
    assert torch.allclose(page["head"](prediction), of_step_2 / probability * (belief @ page["mu"]))


def test_every_text_can_follow_the_prompt(page, model):
    for length in range(1, 7):
        assert at_gap(model, possible_inputs(model, length), page["prompt"]).any(1).all()


# The proof in code


def test_the_head_in_code_is_that_of_the_theorem(page):
    assert torch.allclose(page["b"], page["head"].weights, atol=1e-12)


def test_with_the_prompt_the_head_is_right_on_every_text_and_without_it_it_fails_on_some(page, model, texts, labels):
    with_prompt = at_gap(model, texts, page["prompt"]) @ page["b"] >= 0
    without_prompt = at_gap(model, texts, ONES) @ page["b"] >= 0

    assert torch.equal(with_prompt, labels)
    assert not torch.equal(without_prompt, labels)


@pytest.mark.parametrize("length", range(1, 7))
def test_the_same_prompt_and_head_are_right_on_all_texts_of_other_lengths(page, model, length):
    inputs = possible_inputs(model, length)
    labels = ground_truth(model, page["mu"], inputs) >= 0

    assert torch.equal(page["head"](at_gap(model, inputs, page["prompt"])) >= 0, labels)


# What to try, and the exercises


HEAD_ALONE = [(3, -3.0, True), (2, -1.0, True), (4, -1.0, False)]


@pytest.mark.parametrize(("length", "of_beta", "enough"), HEAD_ALONE)
def test_whether_a_head_alone_is_enough_for_another_task_or_another_length(model, length, of_beta, enough):
    mu = torch.tensor([1.0, of_beta, 0.0, 0.0], dtype=torch.float64)
    inputs = possible_inputs(model, length)
    answer = fit_or_refute(at_gap(model, inputs, ONES), ground_truth(model, mu, inputs) >= 0)

    assert isinstance(answer, LinearHead if enough else Impossible)


def heads_behind_patterns(page, model, length) -> list[str]:
    """The states that each prompt of zeros and ones points to, for prompts behind which some head is right."""
    inputs = possible_inputs(model, length)
    labels = ground_truth(model, page["mu"], inputs) >= 0
    prompts = []
    for prompt in PATTERNS[1:]:
        if isinstance(fit_or_refute(at_gap(model, inputs, prompt), labels), LinearHead):
            prompts.append("".join("αβγδ"[h] for h in prompt.nonzero().flatten()))
    return prompts


def test_in_exercise_2_four_prompts_do_for_five_tokens_and_two_more_for_three(page, model):
    assert heads_behind_patterns(page, model, 5) == ["γ", "βγ", "α", "αγ"]

    further = set(heads_behind_patterns(page, model, 3)) - {"γ", "βγ", "α", "αγ"}
    assert further == {"γδ", "αγδ"}
    for prompt in further:
        sources = ["αβγδ".index(state) for state in prompt]
        assert (model.transition[:, sources] > 0).any(1).all()  # All four states are left.


@pytest.mark.parametrize("sources", [[GAMMA], [BETA, GAMMA], [ALPHA], [ALPHA, GAMMA]])
def test_in_exercise_2_the_theorem_covers_these_four_prompts(page, model, sources):
    remaining = (model.transition[:, sources] > 0).any(1).nonzero().flatten().tolist()

    assert assumption_3_5(model, page["mu"], remaining)
    assert 2 <= len(remaining) <= 3
