"""What the page on the attention head of Theorem 4.3 says, from its language and from random models."""

import itertools

import pytest
import torch
from lessons import run
from torch.nn.functional import one_hot

from hmmlib import (
    MASK,
    AssumptionError,
    Impossible,
    assumption_4_2,
    concentrated,
    fit_or_refute,
    ground_truth,
    latent_given_others,
    masked_token_probs,
    memory_posterior,
    theorem_4_3,
)

ROUNDING = 1e-12
COW = 0
HORSE = 1
NOUN = 1  # the state of the subject's noun
OWN = [1, 5]  # the columns of the subject's noun, for cow and for horse
OTHER = [0, 2, 3, 4, 6, 7]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("4-1-attention-head", instances=5)


@pytest.fixture(scope="module")
def model(page):
    return page["model"]


@pytest.fixture(scope="module")
def latent(page, model) -> torch.Tensor:
    """P[M = m, H_i = h | all other words] at each position of the text, (T, value, state)."""
    return latent_given_others(model, page["x"])[0].unflatten(1, (2, 4))


def percent(right: torch.Tensor) -> str:
    return f"{right.double().mean():.0%}"


# The language


def test_the_page_says_what_the_model_is(page, model):
    assert page["STATES"] == [f"{cell}'s {part}" for cell in page["language"].cells for part in page["language"].syntax]
    assert model.transition.tolist() == page["TRANSITION"]
    assert model.memory.tolist() == page["MEMORY"]


def test_assumption_4_2_holds_for_the_subjects_noun_though_all_eight_columns_are_dependent(model):
    columns = model.emission.flatten(1)

    assert assumption_4_2(model, 0, [NOUN])
    assert columns.shape[1] == 8
    assert torch.linalg.matrix_rank(columns) < 8


def test_the_articles_do_not_depend_on_the_memory(model):
    articles = [0, 2]

    assert torch.equal(model.emission[:, 0, articles], model.emission[:, 1, articles])


def test_a_stands_only_before_a_subject_and_the_before_either_noun(page, model):
    can_emit = (model.emission > 0).any(1)  # word, state

    assert page["WORDS"][:2] == ["a", "the"]
    assert can_emit[0].tolist() == [True, False, False, False]
    assert can_emit[1].tolist() == [True, False, True, False]
    assert (model.transition[:, 0] > 0).tolist() == [False, True, False, False]
    assert (model.transition[:, 2] > 0).tolist() == [False, False, False, True]


def test_a_cow_may_be_written_horse_or_barn_and_no_noun_gives_its_meaning_away(page, model):
    of_cow = model.emission[:, COW, NOUN]
    nouns = model.emission[2:, :, [NOUN, 3]].flatten(1)  # word, and value and state of a noun

    assert [page["WORDS"][word] for word in of_cow.nonzero()] == ["cow", "horse", "barn"]
    assert ((nouns > 0).sum(1) > 1).all()


# One linear head is not enough


def test_no_linear_head_at_the_mask_is_right_on_all_texts_or_on_those_with_a_sure_position(page):
    in_r = page["in_r"]

    assert page["texts"].shape[1] == 5
    assert isinstance(fit_or_refute(page["at_gap"], page["labels"]), Impossible)
    assert isinstance(fit_or_refute(page["at_gap"][in_r], page["labels"][in_r]), Impossible)


# The text in the figure


def test_the_two_nouns_after_a_are_attended(page, model):
    words = page["text"].split()
    attended = (page["attended"].nonzero().flatten() + 1).tolist()

    assert attended == [4, 9]
    assert [words[position - 2] for position in attended] == ["a", "a"]
    assert torch.equal(page["attended"], concentrated(model, page["x"], 0, [NOUN])[0])


def test_their_values_are_those_of_the_figure(page):
    assert [f"{value:.2f}" for value in page["values_at"][page["attended"]]] == ["0.17", "0.20"]


def test_the_noun_at_position_7_has_nearly_score_1_and_all_others_little(page):
    scores = page["head"].scores(page["G"])[0]

    assert 0.9 < scores[6] < 0.99
    assert scores[[3, 8]].tolist() == pytest.approx([1, 1])
    assert scores[[0, 1, 2, 4, 5, 7]].max() < 0.2


def test_the_score_is_the_probability_of_the_subjects_noun_given_all_other_words(page, latent):
    scores = page["head"].scores(page["G"])[0]

    assert torch.allclose(scores, latent.sum(1)[:, NOUN], atol=ROUNDING)


def test_after_a_the_score_is_1_whichever_noun_was_written(page, model):
    for place, noun in itertools.product((3, 8), page["WORDS"][2:]):
        words = page["text"].split()
        words[place] = noun
        probs = masked_token_probs(model, page["language"].encode(" ".join(words)))

        assert page["head"].attended(probs)[0, place], words


def test_the_label_is_1_and_right(page, model):
    score = page["head"](page["G"], model.embed(page["x"]))

    assert score > 0
    assert ground_truth(model, page["mu"], page["x"]) > 0


# Why it is true


def test_the_prediction_is_a_mixture_of_columns(page, model, latent):
    assert torch.allclose(latent.flatten(1) @ model.emission.flatten(1).T, page["G"][0], atol=ROUNDING)


def test_theta_inverts_the_columns_of_the_subjects_noun_and_sends_all_others_to_zero(page, model):
    columns = model.emission.flatten(1)

    assert page["of_noun"] == OWN
    assert torch.allclose(page["theta"] @ columns[:, OWN], torch.eye(2).double(), atol=ROUNDING)
    assert (page["theta"] @ columns[:, OTHER]).abs().max() < ROUNDING


def test_the_weights_are_the_probabilities_of_the_subjects_noun_and_their_sum_is_the_score(page, latent):
    weights = page["G"][0] @ page["theta"].T

    assert torch.allclose(weights, latent[:, :, NOUN], atol=ROUNDING)
    assert torch.allclose(page["scores"][0], latent.sum(1)[:, NOUN], atol=ROUNDING)


def test_at_horse_in_position_9_the_other_words_speak_for_a_cow(page):
    weights = page["G"][0, 8] @ page["theta"].T

    assert page["text"].split()[8] == "horse"
    assert weights[COW] > 0.9


def test_each_value_at_a_sure_position_is_the_target_times_a_positive_number(page):
    attended = page["attended"]
    target = page["r"][attended] * page["target"]

    assert (page["r"] > 0).all()
    assert torch.allclose(page["values_at"][attended], target, atol=ROUNDING)
    assert torch.allclose(page["values_by_hand"][0, attended], target, atol=ROUNDING)


def test_the_head_that_is_built_on_the_page_is_that_of_the_library(page, model):
    texts = page["texts"]

    by_library = page["head"](masked_token_probs(model, texts), model.embed(texts))

    assert torch.allclose(page["attention"](texts), by_library, atol=ROUNDING)


def test_the_head_is_right_on_all_texts_with_a_sure_position(page):
    assert page["in_r"].sum() > 1000
    assert page["right"][page["in_r"]].all()


def test_the_theorem_holds_in_random_models_and_in_the_control_no_head_is_right(page):
    entry = page["ledger"].run(page["ledger"].find("Theorem 4.3"), 5, 0)

    assert entry.as_recorded
    assert entry.grade == "holds"
    assert entry.broken == "independent columns of W at M × H* (4.2)"
    assert entry.control_fails == entry.control_instances


# Where it stops


def test_without_a_sure_position_it_is_right_on_84_percent_where_the_more_frequent_label_is_on_54(page):
    outside = ~page["in_r"]
    ones = page["labels"][outside].double().mean().item()

    assert percent(page["right"][outside]) == "84%"
    assert f"{max(ones, 1 - ones):.0%}" == "54%"


def test_without_a_sure_position_the_likeliest_one_is_read_as_if_it_were_sure(page, model):
    texts = page["texts"][~page["in_r"]]
    latent = latent_given_others(model, texts).unflatten(2, (2, 4))[..., NOUN]  # text, position, value
    words = model.emission[:, :, NOUN][texts]
    likeliest = latent.sum(2) >= latent.sum(2).amax(1, keepdim=True) - 1e-9
    at_position = ((latent * words) @ page["mu"]) * likeliest

    answers = page["attention"](texts)

    assert torch.allclose(answers, at_position.sum(1) / likeliest.sum(1), atol=ROUNDING)


def test_of_positions_not_attended_the_noun_at_7_keeps_softmax_weight_longest(page):
    weights = torch.softmax(20 * page["scores"][0], 0)

    assert weights[6] > 0.1
    assert weights[[0, 1, 2, 4, 5, 7]].max() < 1e-6


# What to try, and the exercises


def test_with_the_articles_the_theorem_refuses(page, model):
    with pytest.raises(AssumptionError, match=r"Assumption 4\.2"):
        theorem_4_3(model, page["mu"], cell=0, syntax=[0, 1])


def test_the_largest_value_is_right_where_there_is_a_sure_position_and_the_product_is_not(page, model):
    texts = page["texts"][page["in_r"]]
    target = ground_truth(model, page["mu"], texts)
    scores, values = page["read"](texts)
    highest = scores > scores.amax(1, keepdim=True) - 1e-9

    largest = values.masked_fill(~highest, -torch.inf).amax(1)
    product = values.masked_fill(~highest, 1).prod(1)

    assert torch.equal(largest >= -ROUNDING, target >= 0)
    wrong = ((product >= 0) != (target >= 0)) & (target != 0)
    assert wrong.any()
    assert torch.equal(wrong, (target < 0) & (highest.sum(1) % 2 == 0))


def test_without_the_word_a_cow_and_a_horse_get_one_output_though_their_labels_differ(page, model):
    pair = page["pair"]
    target, with_word, without_word = page["outputs_of_pair"].values()

    assert concentrated(model, pair, 0, [NOUN]).tolist() == [[False, True], [False, True]]
    assert (target >= 0).tolist() == [True, False]
    assert (with_word >= 0).tolist() == [True, False]
    assert without_word[0].item() == pytest.approx(without_word[1].item())


def test_that_output_is_the_belief_without_the_word_itself(page, model):
    masked = page["pair"].clone()
    masked[:, 1] = MASK
    belief = memory_posterior(model, masked) @ page["mu"]

    assert torch.allclose(page["outputs_of_pair"]["without the word"], belief, atol=ROUNDING)


def test_in_the_parity_language_every_prediction_is_one_half_and_label_1_is_two_equal_tokens(page):
    labels = page["mostly_equal"] > 0.5

    for guess in (page["first"], page["second"]):
        assert (guess - 0.5).abs().max() < ROUNDING
    assert labels.tolist() == [first == second for first, second in page["pairs"].tolist()]


def test_no_function_of_one_token_and_no_average_over_both_has_these_labels(page):
    tokens = one_hot(page["pairs"], 2).double()
    labels = page["mostly_equal"] > 0.5

    for inputs in (tokens[:, 0], tokens[:, 1], tokens.mean(1)):
        assert isinstance(fit_or_refute(inputs, labels), Impossible)


def test_in_the_parity_language_assumption_4_2_fails_for_every_set_of_states(page):
    parity = page["parity"]

    for count in range(1, parity.n_syntax + 1):
        for syntax in itertools.combinations(range(parity.n_syntax), count):
            assert not assumption_4_2(parity, 0, syntax)


def test_few_texts_are_wrong_where_the_words_are_nearly_the_same_and_more_where_hardly_any_difference_is_left(page):
    shares = [share for share, _ in page["rows"]]
    wrong = [100 - float(accuracy.rstrip("%")) for _, accuracy in page["rows"]]

    assert shares == ["0.0%", "90.0%", "99.0%", "99.9%"]
    assert max(wrong[:3]) < 2
    assert wrong[3] > 5


def test_without_noise_the_head_is_right_at_the_smallest_angle(page):
    near = page["near"]
    texts = page["texts"][page["in_r"]]

    answers = page["near_head"](masked_token_probs(near, texts), near.embed(texts)) >= 0

    assert assumption_4_2(near, 0, [NOUN]).angle < 0.001
    assert torch.equal(answers, ground_truth(near, page["mu"], texts) >= 0)


def test_the_head_amplifies_noise_in_inverse_proportion_to_the_angle(page, model):
    products = []
    for moved in (model, page["near"]):
        key = theorem_4_3(moved, page["mu"], 0, [NOUN]).key
        products.append(key.abs().max().item() * assumption_4_2(moved, 0, [NOUN]).angle)

    assert products[1] == pytest.approx(products[0], rel=0.7)
