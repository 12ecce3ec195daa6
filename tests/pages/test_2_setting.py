"""What the page on the setting says of its diary, by sums over all paths of hidden states."""

import itertools

import numpy as np
import pytest
import torch
from lessons import run

from hmmbook.evidence.enumeration import Enumeration, normalised
from hmmlib import HMM, MASK, masked_token_probs, masked_token_probs_from_embeddings
from hmmlib.inference import reference

CALM, STORMY = 0, 1
SUN, CLOUD, RAIN = 0, 1, 2
BEFORE_SUN = [MASK, SUN, SUN, SUN]
BEFORE_RAIN = [MASK, RAIN, RAIN, SUN]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("2-setting", texts=20_000)


@pytest.fixture(scope="module")
def model(page) -> HMM:
    return page["weather"]


def all_paths(model: HMM, text: list[int], prompt: list[float] | None = None) -> Enumeration:
    """Every path of hidden states behind a text, and a vector in front of it if there is one."""
    rows = model.embed(torch.tensor([text]))[0]
    if prompt is not None:
        rows = torch.cat([torch.tensor([prompt], dtype=torch.float64), rows])
    return Enumeration(model.transition, model.emission, model.initial, rows)


def predicted(model: HMM, text: list[int], at: int = 1, prompt: list[float] | None = None) -> np.ndarray:
    """The distribution of the token at a position, by a sum over all paths."""
    return normalised(all_paths(model, text, prompt).masked_token(at))


def close(computed, exact):
    np.testing.assert_allclose(computed, exact, rtol=0, atol=1e-14)


# A diary of the weather


def test_sun_on_seven_days_of_ten_when_calm_and_rain_as_often_when_stormy_and_cloud_equally_in_both(model):
    close(model.emission[SUN, CALM], 0.7)
    close(model.emission[RAIN, STORMY], 0.7)
    close(model.emission[CLOUD, CALM], model.emission[CLOUD, STORMY])


def test_a_spell_usually_lasts_for_some_days(model):
    days = 1 / (1 - model.transition.diagonal())

    assert (days > 3).all()


# The prediction follows the belief


def test_calm_has_probability_080_before_sun_sun_sun_and_025_before_rain_rain_sun(page, model):
    for k, (text, probability) in enumerate([(BEFORE_SUN, 0.80), (BEFORE_RAIN, 0.25)]):
        belief = normalised(all_paths(model, text).state(1))

        assert belief[CALM].round(2) == probability
        close(page["beliefs"][k], belief)


def test_sun_is_the_good_guess_before_sun_and_rain_the_better_one_before_rain(page, model):
    for k, (text, likeliest) in enumerate([(BEFORE_SUN, SUN), (BEFORE_RAIN, RAIN)]):
        prediction = predicted(model, text)

        assert prediction.argmax() == likeliest
        close(page["predictions"][k], prediction)


def test_the_bars_of_sun_and_rain_end_between_the_two_lines(model):
    columns = model.emission.numpy()
    for text in (BEFORE_SUN, BEFORE_RAIN):
        prediction = predicted(model, text)

        for token in (SUN, RAIN):
            assert columns[token].min() < prediction[token] < columns[token].max()


# Why the prediction is a mixture


def test_a_prediction_is_the_mixture_of_the_columns_weighted_by_the_belief(page, model):
    for k, text in enumerate((BEFORE_SUN, BEFORE_RAIN)):
        belief = normalised(all_paths(model, text).state(1))

        close(model.emission.numpy() @ belief, predicted(model, text))
        close(page["mixtures"][k], predicted(model, text))


def test_for_sun_in_the_first_text_this_gives_058(model):
    assert predicted(model, BEFORE_SUN)[SUN].round(2) == 0.58
    assert round(0.80 * 0.7 + 0.20 * 0.1, 2) == 0.58


def test_counting_comes_near_the_belief_and_the_prediction(page, model):
    n_counted = page["same_ending"].sum().item()
    of_calm = (page["first_state"] == CALM).double().mean().item()
    of_sun = (page["first_token"] == SUN).double().mean().item()

    assert n_counted > 500
    assert of_calm == pytest.approx(normalised(all_paths(model, BEFORE_RAIN).state(1))[CALM], abs=2 / n_counted**0.5)
    assert of_sun == pytest.approx(predicted(model, BEFORE_RAIN)[SUN], abs=2 / n_counted**0.5)


# A task that the prediction solves


def test_sun_is_more_probable_than_rain_by_06_when_calm_and_less_by_06_when_stormy(model):
    close(model.emission[SUN] - model.emission[RAIN], [0.6, -0.6])


def test_the_head_of_sun_less_rain_has_the_right_sign_on_every_text(page, model):
    for days in itertools.product([SUN, CLOUD, RAIN], repeat=3):
        text = [MASK, *days]
        belief = normalised(all_paths(model, text).state(1))
        prediction = predicted(model, text)

        close(prediction[SUN] - prediction[RAIN], 0.6 * (belief[CALM] - belief[STORMY]))
    assert torch.equal(page["answers"], page["labels"])
    assert len(page["labels"]) == 27
    assert 0 < page["labels"].sum() < 27


# How the belief is computed


def test_the_number_of_paths_doubles_with_every_further_day(model):
    lengths = [all_paths(model, [SUN] * n_days).table.size for n_days in (1, 2, 3)]

    assert lengths[1] == 2 * lengths[0]
    assert lengths[2] == 2 * lengths[1]


@pytest.mark.parametrize("text", [BEFORE_SUN, BEFORE_RAIN, [SUN, MASK, RAIN, SUN]])
def test_the_four_formulas_the_library_and_the_papers_messages_give_the_sum_over_all_paths(page, model, text):
    tokens = torch.tensor([text])
    by_formulas = page["two_passes"](model, model.embed(tokens)[0])
    by_library = masked_token_probs(model, tokens)[0]
    as_printed = reference.masked_token_probs(model, tokens)[0]

    for i in range(1, 5):
        exact = predicted(model, text, at=i)
        close(by_formulas[i - 1], exact)
        close(by_library[i - 1], exact)
        close(as_printed[i - 1], exact)


def test_a_revealed_token_changes_the_predictions_at_all_other_positions_and_not_its_own(model):
    hidden = masked_token_probs(model, torch.tensor([[SUN, MASK, RAIN, SUN]]))[0]
    shown = masked_token_probs(model, torch.tensor([[SUN, RAIN, RAIN, SUN]]))[0]
    changed = (shown - hidden).abs().amax(1) > 0.01

    assert changed.tolist() == [True, False, True, True]


# A prompt is one more vector


def test_the_prompt_for_calm_tells_the_model_that_the_day_before_the_mask_was_calm(page, model):
    calm_first = HMM(model.transition, model.emission, [1.0, 0.0])

    close(page["predicted"]["u = (1, 0): after calm"], predicted(calm_first, BEFORE_RAIN))


def test_the_prompt_for_calm_makes_sun_the_likeliest_token_and_the_other_two_leave_rain_in_front(page, model):
    likeliest = []
    for name, u in page["prompts"].items():
        exact = predicted(model, BEFORE_RAIN, 2, u)
        likeliest.append(exact.argmax())
        close(page["predicted"][name], exact)

    assert page["prompts"]["u = (1, 0): after calm"] == [1.0, 0.0]
    assert likeliest == [RAIN, SUN, RAIN]


# Exercises


def test_in_exercise_1_equal_columns_make_every_prediction_the_column_and_every_belief_the_prior(page):
    dull = page["dull"]

    assert torch.equal(dull.emission[:, CALM], dull.emission[:, STORMY])
    for text in page["all_texts"].tolist():
        close(predicted(dull, text), [0.5, 0.2, 0.3])
        close(normalised(all_paths(dull, text).state(0)), dull.initial)


def test_in_exercise_2_the_vector_is_the_sum_of_two_rows_and_all_three_add_up_to_the_mask(page, model):
    close(page["u"], model.emission[CLOUD] + model.emission[RAIN])
    close(model.emission.sum(0), model.embed(torch.tensor([[MASK]]))[0, 0])


def test_in_exercise_2_the_vector_stands_for_either_token(page, model):
    likelihoods = []
    for token in (CLOUD, RAIN):
        paths = all_paths(model, [token, *BEFORE_RAIN])
        likelihoods.append(paths.likelihood() * normalised(paths.masked_token(2)))

    close(page["either"], normalised(likelihoods[0] + likelihoods[1]))
    rows = torch.cat([page["u"][None], model.embed(torch.tensor([BEFORE_RAIN]))[0]])
    close(masked_token_probs_from_embeddings(model, rows[None])[0, 1], page["either"])
