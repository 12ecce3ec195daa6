"""What the page on the setting says: its example by sums over all paths, and the checks at scale."""

import numpy as np
import pytest
import torch
from lessons import run

from hmmbook.evidence.enumeration import Enumeration, normalised
from hmmbook.evidence.random_models import two_passes as random_cases
from hmmlib import HMM, MASK, log_likelihood, masked_token_probs, masked_token_probs_from_embeddings, posterior
from hmmlib.inference import reference

CALM, STORMY = 0, 1
SUN, CLOUD, RAIN = 0, 1, 2
BEFORE_SUN = [MASK, SUN, SUN, SUN]
BEFORE_RAIN = [MASK, RAIN, RAIN, SUN]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("2-setting")


@pytest.fixture(scope="module")
def model(page) -> HMM:
    return page["calm_or_stormy"]


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


# The example


def test_given_sun_sun_sun_calm_has_probability_080_at_the_gap_and_given_rain_rain_sun_025(model):
    for text, probability in ((BEFORE_SUN, 0.80), (BEFORE_RAIN, 0.25)):
        belief = normalised(all_paths(model, text).state(1))

        assert belief[CALM].round(2) == probability


def test_sun_gets_058_and_025_and_is_the_likeliest_word_in_the_first_case_and_rain_in_the_second(model):
    first = predicted(model, BEFORE_SUN)
    second = predicted(model, BEFORE_RAIN)

    assert (first[SUN].round(2), second[SUN].round(2)) == (0.58, 0.25)
    assert round(0.80 * 0.7 + 0.20 * 0.1, 2) == 0.58
    assert round(0.25 * 0.7 + 0.75 * 0.1, 2) == 0.25
    assert (first.argmax(), second.argmax()) == (SUN, RAIN)


def test_a_prediction_is_a_mixture_of_the_columns_weighted_by_the_belief(page, model):
    for k, text in enumerate((BEFORE_SUN, BEFORE_RAIN)):
        belief = normalised(all_paths(model, text).state(1))

        close(belief @ model.emission.numpy().T, predicted(model, text))
        close(page["beliefs"][k], belief)
        close(page["predictions"][k], predicted(model, text))


def test_every_bar_ends_between_the_two_lines_and_cloud_has_02_everywhere(model):
    columns = model.emission.numpy()
    for text in (BEFORE_SUN, BEFORE_RAIN):
        prediction = predicted(model, text)

        for word in (SUN, RAIN):
            assert columns[word].min() < prediction[word] < columns[word].max()
        assert prediction[CLOUD] == pytest.approx(0.2)
    close(columns[CLOUD], [0.2, 0.2])


# Two passes along the text


def test_the_forward_message_of_sun_mask_rain_sun_is_as_printed(model):
    transition, emission = model.transition.numpy(), model.emission.numpy()
    at_h1 = transition @ [0.5, 0.5]

    close(at_h1, [0.6, 0.4])
    close(emission[SUN], [0.7, 0.1])
    close(transition @ (at_h1 * [0.7, 0.1]), [0.39, 0.07])
    close(normalised(np.array([0.39, 0.07])).round(2), [0.85, 0.15])  # As the bars are.
    close(all_paths(model, [SUN, MASK]).state(2), [0.39, 0.07])


def test_the_backward_messages_are_as_printed(model):
    transition, emission = model.transition.numpy(), model.emission.numpy()
    at_h3 = transition.T @ emission[SUN]

    close(emission[RAIN], [0.1, 0.7])
    close(at_h3, [0.64, 0.28])
    close(transition.T @ (at_h3 * emission[RAIN]), [0.0772, 0.1564])


def test_at_the_mask_the_messages_meet_and_sun_is_the_likeliest_word(model):
    paths = all_paths(model, [SUN, MASK, RAIN, SUN])
    tau = paths.state(2)
    prediction = normalised(paths.masked_token(2))

    close(tau, np.array([0.39, 0.07]) * [0.0772, 0.1564])
    close(tau.round(4), [0.0301, 0.0109])
    close(normalised(tau).round(2), [0.73, 0.27])
    close(prediction.round(2), [0.54, 0.20, 0.26])
    assert prediction.argmax() == SUN


def test_a_list_of_all_paths_has_as_many_entries_as_the_text_says(model):
    assert all_paths(model, [SUN, MASK, RAIN, SUN]).table.size == model.n_states ** (4 + 1)


def test_a_revealed_word_changes_the_predictions_at_all_other_positions_and_not_its_own(model):
    hidden = masked_token_probs(model, torch.tensor([[SUN, MASK, RAIN, SUN]]))[0]
    shown = masked_token_probs(model, torch.tensor([[SUN, RAIN, RAIN, SUN]]))[0]
    changed = (shown - hidden).abs().amax(1) > 0.01

    assert changed.tolist() == [True, False, True, True]


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


def test_the_label_is_1_where_the_chain_is_at_least_as_likely_to_have_started_calm(model):
    labels = []
    for text in ([SUN, SUN, SUN], [RAIN, RAIN, SUN]):
        start = normalised(all_paths(model, text).state(0))
        labels.append(int(start[CALM] >= start[STORMY]))

    assert labels == [1, 0]


# Vectors that are no token


def test_the_prompt_for_calm_predicts_as_if_the_chain_were_calm_just_before_the_gap(page, model):
    calm_first = HMM(model.transition, model.emission, [1.0, 0.0])

    close(page["answers"]["u = (1, 0): after calm"], predicted(calm_first, BEFORE_RAIN))


def test_the_prompt_for_calm_changes_the_likeliest_word_from_rain_to_sun_and_the_others_do_not(model):
    likeliest = [predicted(model, BEFORE_RAIN, 2, u).argmax() for u in ([1, 1], [1, 0], [0, 1])]

    assert likeliest == [RAIN, SUN, RAIN]


def test_with_ones_the_bars_differ_a_little_from_those_of_the_first_figure(model):
    difference = predicted(model, BEFORE_RAIN, 2, [1, 1]) - predicted(model, BEFORE_RAIN)

    assert 0.01 < abs(difference).max() < 0.04


def test_zeros_exclude_every_state_and_give_the_zero_vector(model):
    rows = model.embed(torch.tensor([BEFORE_RAIN]))[0]
    rows = torch.cat([torch.zeros(1, 2, dtype=torch.float64), rows])
    answer = masked_token_probs_from_embeddings(model, rows[None])[0]

    assert not answer[1:].any()


def test_the_page_shows_these_answers(page, model):
    for name, u in page["prompts"].items():
        close(page["answers"][name], predicted(model, BEFORE_RAIN, 2, u))


# Checks


@pytest.fixture(scope="module")
def cases() -> list[random_cases.Case]:
    rng = np.random.default_rng(0)
    return [random_cases.draw_case(rng) for _ in range(300)]


def test_random_models_are_as_small_as_the_text_says_and_a_third_have_a_memory(cases):
    with_memory = [case for case in cases if case.has_memory]
    without_memory = [case for case in cases if not case.has_memory]

    assert 0.28 < len(with_memory) / 300 < 0.38
    assert {case.model.n_states for case in without_memory} == {1, 2, 3}
    assert {case.model.n_tokens for case in cases} == {1, 2, 3, 4}
    assert {case.embeddings.shape[1] for case in cases} == {1, 2, 3, 4, 5}
    assert sum((case.model.transition == 0).any().item() for case in cases) > 100


def test_two_passes_agree_with_all_paths_on_random_models(cases):
    for case in cases[:60]:
        close(masked_token_probs_from_embeddings(*case)[0], random_cases.from_all_paths(case))


def test_the_page_compares_these_models(page, cases):
    assert len(page["cases"]) == 20  # At smoke.
    close(page["cases"][7].embeddings, cases[7].embeddings)


def test_with_reversed_arrows_many_models_are_off(cases):
    off = []
    for case in cases[:60]:
        if case.depends_on_arrows:
            wrong_model = random_cases.with_reversed_arrows(case.model)
            wrong = masked_token_probs_from_embeddings(wrong_model, case.embeddings)[0]
            off.append(abs(wrong.numpy() - random_cases.from_all_paths(case)).max() > 0.01)

    assert len(off) > 20
    assert np.mean(off) > 0.5


def test_a_model_of_one_state_does_not_depend_on_the_arrows(cases):
    single = [case for case in cases if not case.depends_on_arrows][:20]

    for case in single:
        wrong_model = random_cases.with_reversed_arrows(case.model)
        close(
            masked_token_probs_from_embeddings(wrong_model, case.embeddings),
            masked_token_probs_from_embeddings(*case),
        )


# Exercises


def test_in_exercise_1_equal_columns_make_every_prediction_the_column_and_every_belief_the_prior(page):
    dull = page["dull"]

    assert torch.equal(dull.emission[:, 0], dull.emission[:, 1])
    for text in page["texts"].tolist():
        close(predicted(dull, [MASK, *text]), [0.5, 0.2, 0.3])
        close(normalised(all_paths(dull, text).state(0)), dull.initial)


def test_in_exercise_2_the_vector_is_the_sum_of_two_rows_and_all_three_add_up_to_the_mask(page, model):
    close(page["u"], [0.3, 0.9])
    close(model.emission.sum(0), [1.0, 1.0])
    close(model.emission[CLOUD], [0.2, 0.2])


def test_in_exercise_2_each_answer_counts_by_the_probability_of_its_text(page, model):
    after = {}
    likelihood = {}
    for token in (CLOUD, RAIN):
        paths = all_paths(model, [token, MASK, RAIN, RAIN, SUN])
        after[token] = normalised(paths.masked_token(2))
        likelihood[token] = paths.likelihood()
    weighted = likelihood[CLOUD] * after[CLOUD] + likelihood[RAIN] * after[RAIN]

    close(page["either"], weighted / (likelihood[CLOUD] + likelihood[RAIN]))


def test_in_exercise_2_the_answer_lies_between_the_two_and_not_in_the_middle(page, model):
    cloud = predicted(model, [CLOUD, MASK, RAIN, RAIN, SUN], 2)
    rain = predicted(model, [RAIN, MASK, RAIN, RAIN, SUN], 2)
    either = page["either"].numpy()
    likely = log_likelihood(model, torch.tensor([[CLOUD, MASK, RAIN, RAIN, SUN], [RAIN, MASK, RAIN, RAIN, SUN]]))

    assert rain[SUN] < either[SUN] < cloud[SUN]
    assert cloud[RAIN] < either[RAIN] < rain[RAIN]
    assert abs(either - (cloud + rain) / 2).max() > 0.001
    assert likely[1] > likely[0]


def test_cloud_alone_is_no_evidence(model):
    close(posterior(model, torch.tensor([[CLOUD]]), at=1)[0], posterior(model, torch.tensor([[MASK]]), at=1)[0])
