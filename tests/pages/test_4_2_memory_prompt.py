"""What the page on the prompt of Theorem 4.6 says of the weather, from its model and from all texts of a length."""

import itertools

import pytest
import torch
from section_4_2 import BRIGHT, DULL, HEAT, NOUN, RAIN, ROUNDING, STORM, SUN, THE, in_r, labels, nonempty_sets, score
from torch.nn.functional import one_hot

from hmmlib import (
    Impossible,
    LinearHead,
    MemoryHMM,
    assumption_4_2,
    assumption_4_4,
    assumption_4_5,
    concentrated,
    fit_or_refute,
    ground_truth,
    latent_given_others,
    masked_token_probs,
    memory_posterior,
    prompted,
)

PAGE = "4-2-memory-prompt"


# The weather


def test_a_noun_follows_every_article_and_an_article_a_noun_with_probability_06(model):
    assert model.transition.tolist() == [[0, 0.6], [1, 0.4]]


def test_only_nouns_depend_on_the_weather_and_a_noun_is_never_the(model):
    assert (model.emission[:, :, 0] == model.emission[:, :1, 0]).all()
    assert not (model.emission[:, :, NOUN] == model.emission[:, :1, NOUN]).all()
    assert not model.emission[THE, :, NOUN].any()


def test_the_four_noun_columns_lie_on_one_line_and_no_three_are_independent(model):
    nouns = model.emission[:, :, NOUN]

    assert torch.linalg.matrix_rank(nouns) == 2
    for three in itertools.combinations(range(4), 3):
        assert torch.linalg.matrix_rank(nouns[:, three]) == 2


def test_assumption_4_2_fails_for_all_states_and_4_5_and_4_4_hold(page, model):
    for syntax in nonempty_sets(2):
        assert not assumption_4_2(model, 0, syntax)
    assert assumption_4_5(model, page["mu"], [NOUN])
    assert assumption_4_4(model)


def test_without_the_prompt_five_different_columns_are_mixed_and_bright_is_a_mixture_of_dull_and_heat(model):
    columns = model.emission.flatten(1).T
    nouns = model.emission[:, :, NOUN].T

    assert len(columns.unique(dim=0)) == 5
    assert torch.allclose(nouns[BRIGHT], 2 / 7 * nouns[DULL] + 5 / 7 * nouns[HEAT], atol=ROUNDING)


def test_with_the_prompt_the_three_columns_that_remain_determine_the_mixture(page, model):
    remaining = model.emission.flatten(1)[:, [0, 1, 3]]  # article, bright, dull

    shares = torch.linalg.solve(remaining, page["after"].reshape(-1, 3).T)

    assert torch.linalg.matrix_rank(remaining) == 3
    assert shares.min() > -ROUNDING


# The theorem, and why it is true


def test_a_position_after_the_is_sure_and_only_an_article_emits_the(page, model):
    after_the = page["texts"][:, :-1] == THE

    assert page["sure"][:, 1:][after_the].all()
    assert not model.emission[THE, :, NOUN].any()


def test_the_proofs_prompt_is_one_at_weighed_values_and_zero_elsewhere(page):
    assert page["prompt"].reshape(4, 2).tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]


def test_theta_reads_the_beliefs_at_the_noun_off_the_prediction_behind_the_prompt(page, model):
    latent = latent_given_others(model, page["texts"], page["prompt"])[:, 1:]
    at_the_noun = latent.unflatten(2, (4, 2))[..., NOUN]

    assert torch.allclose(page["after"] @ page["theta"].T, at_the_noun, atol=ROUNDING)


def test_at_rain_the_beliefs_with_and_without_the_prompt_are_those_of_the_text_in_the_same_ratio(
    page, model, the_rain_sun
):
    without = latent_given_others(model, the_rain_sun)[0, 1].unflatten(0, (4, 2)).sum(1)
    behind = page["theta"] @ masked_token_probs(model, the_rain_sun, page["prompt"])[0, 2]

    assert without[[STORM, HEAT]].sum() > 0.5
    assert [f"{belief:.2f}" for belief in behind[:2]] == ["0.79", "0.21"]
    assert behind[2:].tolist() == pytest.approx([0, 0])
    assert (behind[0] / behind[1]).item() == pytest.approx((without[0] / without[1]).item())


def test_at_an_attended_position_the_value_is_the_target_times_the_printed_factor(page, model):
    texts = page["texts"]
    values = page["head"].values(page["behind"], prompted(model, page["prompt"], texts))[:, 1:]
    target = ground_truth(model, page["mu"], texts)
    of_weighed_values = memory_posterior(model, texts)[:, [BRIGHT, DULL]].sum(1)
    own_word = page["after"].gather(2, texts[..., None])[..., 0]  # Pr(x_i | x̂_{-i})
    # Pr(X = x) / Pr(X̂ = x̂) is 1 / Pr(M is weighed | x), since the start is stationary.
    factor = own_word / of_weighed_values[:, None]

    assert (factor > 0).all()
    assert torch.allclose(values[page["sure"]], (factor * target[:, None])[page["sure"]], atol=ROUNDING)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
def test_score_and_target_differ_by_a_positive_factor(page, model, length):
    texts = in_r(model, length, [NOUN])

    factor = score(model, page["prompt"], page["head"], texts) / ground_truth(model, page["mu"], texts)

    assert (factor > 0).all()


# The head at work


def at_sure_positions_of(page: dict, probs: torch.Tensor, token: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The probabilities of “sun” at the sure positions where a word stands, and the labels of their texts."""
    at_word = page["sure"] & (page["texts"] == token)
    return probs[at_word][:, SUN], page["labels"][:, None].expand_as(at_word)[at_word]


def test_with_the_prompt_the_head_is_right_on_all_384_texts_and_without_it_wrong_on_16(page):
    assert page["texts"].shape == (384, 6)
    assert torch.equal(page["with_prompt"](page["texts"]), page["labels"])
    assert (page["without_prompt"](page["texts"]) != page["labels"]).sum() == 16


def test_the_head_attends_to_sure_positions_and_never_to_the_prompt(page, model):
    assert torch.equal(page["sure"], concentrated(model, page["texts"], 0, [NOUN]))
    assert not page["head"].attended(page["behind"])[:, 0].any()


def test_at_sure_positions_predictions_lie_on_the_line_of_the_nouns(page):
    assert page["after"][page["sure"]][:, THE].abs().max() < ROUNDING
    assert page["before"][page["sure"]][:, THE].abs().max() < ROUNDING


def test_with_the_prompt_the_threshold_separates_the_labels(page):
    sun, label = at_sure_positions_of(page, page["after"], SUN)

    assert label.any()
    assert not label.all()
    assert torch.equal(sun >= page["threshold"], label)


@pytest.mark.parametrize("token", [SUN, RAIN])
def test_without_the_prompt_no_threshold_separates_them_in_either_direction(page, token):
    sun, label = at_sure_positions_of(page, page["before"], token)

    assert sun[label].min() < sun[~label].max()
    assert sun[~label].min() < sun[label].max()


@pytest.mark.parametrize(("token", "weather", "label_of_the_wrong"), [(SUN, STORM, True), (RAIN, HEAT, False)])
def test_a_storm_gives_texts_of_label_1_the_wrong_sign_at_sun_and_heat_those_of_label_0_at_rain(
    page, model, token, weather, label_of_the_wrong
):
    at_word = page["sure"] & (page["texts"] == token)
    values = page["same_head"].values(page["before"], model.embed(page["texts"]))[at_word]
    _, label = at_sure_positions_of(page, page["before"], token)
    beliefs = latent_given_others(model, page["texts"]).unflatten(2, (4, 2)).sum(3)[at_word]

    wrong = (values >= 0) != label

    assert wrong.any()
    assert (label[wrong] == label_of_the_wrong).all()
    assert (beliefs[wrong][:, [STORM, HEAT]].argmax(1) + STORM == weather).all()


def averaged(model: MemoryHMM, texts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The mean prediction for each word over weighed positions: every head is a linear function of it, (n, 9)."""
    words = one_hot(texts, 3).double()
    return torch.einsum("nt,ntw,ntk->nwk", weights, words, masked_token_probs(model, texts)).flatten(1)


@pytest.mark.parametrize(("length", "verdict"), [(5, LinearHead), (6, Impossible)])
def test_no_head_that_attends_to_the_sure_positions_is_right_on_all_texts_of_six_words(page, model, length, verdict):
    texts = in_r(model, length, [NOUN])
    sure = concentrated(model, texts, 0, [NOUN]).double()
    means = averaged(model, texts, sure / sure.sum(1, keepdim=True))

    assert isinstance(fit_or_refute(means, labels(model, page["mu"], texts)), verdict)


@pytest.mark.parametrize(("length", "verdict"), [(6, LinearHead), (8, Impossible)])
def test_a_head_that_averages_over_all_positions_can_be_right_on_texts_of_six_words_and_not_on_longer_ones(
    page, model, length, verdict
):
    texts = in_r(model, length, [NOUN])
    means = averaged(model, texts, torch.full(texts.shape, 1 / length).double())

    assert isinstance(fit_or_refute(means, labels(model, page["mu"], texts)), verdict)


def test_a_head_may_have_any_value_that_is_linear_in_the_prediction_for_each_word(model):
    assert torch.linalg.matrix_rank(model.emission.flatten(1)) == model.n_tokens
