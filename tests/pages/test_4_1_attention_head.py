"""What the page on the attention head of Theorem 4.3 says, from its language and from random models."""

import itertools

import pytest
import torch
from lessons import run
from torch.nn.functional import one_hot

from hmmbook.evidence.random_models.memory_instances import memory_instance
from hmmbook.studies.noisy_attention import add_noise
from hmmlib import (
    MASK,
    Impossible,
    assumption_3_2,
    assumption_4_2,
    concentrated,
    fit_or_refute,
    ground_truth,
    latent_given_others,
    masked_token_probs,
    memory_posterior,
    posterior,
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


def test_nouns_may_come_without_an_article_but_two_of_one_cell_never_side_by_side(model):
    assert model.transition[1, 1] == 0
    assert model.transition[3, 3] == 0
    assert model.transition[3, 1] > 0
    assert model.transition[1, 3] > 0


def test_a_cow_may_be_written_horse_or_barn_and_a_horse_cow_or_field(page, model):
    of_cow = model.emission[:, COW, NOUN]
    of_horse = model.emission[:, HORSE, NOUN]

    assert [page["WORDS"][word] for word in of_cow.nonzero()] == ["cow", "horse", "barn"]
    assert [page["WORDS"][word] for word in of_horse.nonzero()] == ["cow", "horse", "field"]


# The text in the figure


def test_the_two_nouns_after_a_are_attended(page, model):
    words = page["text"].split()
    attended = (page["attended"].nonzero().flatten() + 1).tolist()

    assert attended == [4, 9]
    assert [words[position - 2] for position in attended] == ["a", "a"]
    assert torch.equal(page["attended"], concentrated(model, page["x"], 0, [NOUN])[0])


def test_their_values_are_those_of_the_figure(page):
    assert [f"{value:.2f}" for value in page["values"][page["attended"]]] == ["0.17", "0.20"]


def test_the_noun_at_position_7_has_nearly_score_1_and_all_others_little(page):
    scores = page["head"].scores(page["G"])[0]

    assert f"{scores[6]:.2f}" == "0.94"
    assert scores[[3, 8]].tolist() == pytest.approx([1, 1])
    assert scores[[0, 1, 2, 4, 5, 7]].max() < 0.2


def test_the_score_is_the_probability_of_the_subjects_noun_given_all_other_words(page, latent):
    scores = page["head"].scores(page["G"])[0]

    assert torch.allclose(scores, latent.sum(1)[:, NOUN], atol=ROUNDING)


def test_after_a_the_score_is_1_whichever_noun_was_written(page, model):
    for place, noun in itertools.product((3, 8), page["WORDS"][2:]):
        words = page["text"].split()
        words[place] = noun
        probs = masked_token_probs(model, page["read"](" ".join(words)))

        assert page["head"].attended(probs)[0, place], words


def test_the_field_before_position_7_is_most_likely_a_noun_of_the_place(page, model):
    states = posterior(model, page["x"], at=6)[0]

    assert page["text"].split()[5:7] == ["field", "cow"]
    assert states[3] > 0.9


def test_the_label_is_1_and_right(page, model):
    score = page["head"](page["G"], model.embed(page["x"]))

    assert score > 0
    assert ground_truth(model, page["mu"], page["x"]) > 0


# The derivation


def test_the_prediction_is_a_mixture_of_columns(page, model, latent):
    assert torch.allclose(latent.flatten(1) @ model.emission.flatten(1).T, page["G"][0], atol=ROUNDING)


def test_theta_inverts_the_columns_of_the_subjects_noun_and_sends_all_others_to_zero(page, model):
    columns = model.emission.flatten(1)

    assert torch.allclose(page["theta"] @ columns[:, OWN], torch.eye(2).double(), atol=ROUNDING)
    assert (page["theta"] @ columns[:, OTHER]).abs().max() < ROUNDING
    assert torch.allclose(page["belief_at_noun"], latent_given_others(model, page["x"])[0][:, OWN], atol=ROUNDING)


def test_at_attended_positions_the_two_probabilities_sum_to_1(page):
    assert page["belief_at_noun"][page["attended"]].sum(1).tolist() == pytest.approx([1, 1])


def test_at_cow_the_other_words_favour_a_horse_and_at_horse_a_cow(page):
    words = page["text"].split()

    assert (words[3], f"{page['belief_at_noun'][3, HORSE]:.2f}") == ("cow", "0.61")
    assert (words[8], f"{page['belief_at_noun'][8, COW]:.2f}") == ("horse", "0.91")


def test_with_the_word_itself_both_positions_give_the_belief_of_the_whole_text(page, model):
    of_the_words = model.emission[:, :, NOUN][page["x"][0, [3, 8]]]
    beliefs = page["belief_at_noun"][[3, 8]] * of_the_words
    beliefs = beliefs / beliefs.sum(1, keepdim=True)

    assert torch.allclose(beliefs, memory_posterior(model, page["x"]).expand(2, 2), atol=ROUNDING)
    assert [f"{belief:.2f}" for belief in beliefs[:, COW]] == ["0.79", "0.79"]


def test_each_attended_value_is_the_target_times_a_positive_number(page):
    attended = page["attended"]

    assert (page["r"] > 0).all()
    assert torch.allclose(page["values"][attended], page["r"][attended] * page["target"], atol=ROUNDING)


def test_of_positions_not_attended_the_noun_at_7_keeps_softmax_weight_longest(page):
    scores = page["head"].scores(page["G"])[0]
    weights = torch.softmax(20 * scores, 0)

    assert weights[6] > 0.1
    assert weights[[0, 1, 2, 4, 5, 7]].max() < 1e-6


def test_the_softmax_weight_on_other_positions_falls_exponentially_in_one_minus_the_score(page):
    scores = page["head"].scores(page["G"])[0]
    weights = torch.softmax(40 * scores, 0)

    assert (weights[6] / weights[3]).item() == pytest.approx(torch.exp(-40 * (1 - scores[6])).item())


# Where the theorem stops


def test_of_the_texts_of_five_words_2002_are_in_r_and_2972_are_not(page):
    assert page["everything"].shape[1] == 5
    assert (page["in_r"].sum(), (~page["in_r"]).sum()) == (2002, 2972)


def test_the_head_is_right_on_all_texts_of_r(page):
    assert page["right"][page["in_r"]].all()


def test_outside_of_r_it_is_right_on_84_percent_where_the_more_frequent_label_is_on_54(page):
    outside = ~page["in_r"]
    ones = page["labels"][outside].double().mean().item()

    assert percent(page["right"][outside]) == "84%"
    assert f"{max(ones, 1 - ones):.0%}" == "54%"


def test_outside_of_r_the_label_is_computed_as_if_the_likeliest_position_were_surely_in_h(page, model):
    outside = ~page["in_r"]
    texts = page["everything"][outside]
    latent = latent_given_others(model, texts).unflatten(2, (2, 4))[..., NOUN]  # text, position, value
    words = model.emission[:, :, NOUN][texts]
    attended = page["head"].attended(page["probs"])[outside]
    at_position = ((latent * words) @ page["mu"]) * attended

    answers = page["head"](page["probs"], page["embeddings"])[outside]

    assert torch.equal(attended, latent.sum(2) >= latent.sum(2).amax(1, keepdim=True) - 1e-9)
    assert torch.allclose(answers, at_position.sum(1) / attended.sum(1), atol=ROUNDING)


def test_in_the_parity_language_every_prediction_is_one_half_and_label_1_is_two_equal_tokens(page):
    labels = page["mostly_equal"] > 0.5

    assert (page["guesses"] - 0.5).abs().max() < ROUNDING
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


# Spans that come near each other


def test_the_angles_go_from_a_thousandth_to_more_than_one(page):
    assert f"{page['angles'][0]:.1f}" == "1.2"
    assert f"{page['angles'][-1]:.1g}" == "0.0009"


def test_without_noise_the_head_is_right_at_every_angle(page):
    texts = page["texts_in_r"]
    for share in (0, 0.97, 0.999):
        near = page["towards"](share)
        head = theorem_4_3(near, page["mu"], 0, [NOUN])
        answers = head(masked_token_probs(near, texts), near.embed(texts)) >= 0

        assert concentrated(near, texts, 0, [NOUN]).any(1).all()
        assert torch.equal(answers, ground_truth(near, page["mu"], texts) >= 0)


def test_down_to_an_angle_of_003_the_head_is_right_on_over_99_percent_and_at_the_smallest_on_93(page):
    assert f"{page['angles'][3]:.2f}" == "0.03"
    assert min(page["accuracies"][:4]) > 0.99
    assert f"{page['accuracies'][-1]:.0%}" == "93%"


def test_the_head_amplifies_noise_in_inverse_proportion_to_the_angle(page):
    texts = page["texts_in_r"][:300]
    products = []
    for share, angle in ((0, page["angles"][0]), (0.9, page["angles"][2]), (0.999, page["angles"][-1])):
        near = page["towards"](share)
        head = theorem_4_3(near, page["mu"], 0, [NOUN])
        exact = masked_token_probs(near, texts)
        noisy = add_noise(exact, 1e-4, torch.Generator().manual_seed(0))
        movement = (head.scores(noisy) - head.scores(exact)).abs().mean().item()
        products.append(movement * angle)

    assert products[0] > 0
    assert products == pytest.approx([products[1]] * 3, rel=0.5)


# Random models


def test_most_random_models_have_periodic_or_reducible_chains_and_many_have_zeros():
    drawn = [memory_instance(seed).model for seed in range(20)]
    with_zeros = [model for model in drawn if (model.emission == 0).any() and (model.transition == 0).any()]
    chains = [assumption_3_2(model) for model in drawn]
    irregular = [chain for chain in chains if not chain.irreducible or chain.period > 1]

    assert max(model.n_cells for model in drawn) == 3
    assert len(with_zeros) > 15
    assert len(irregular) > 10


def test_two_inputs_have_one_prediction_though_one_state_is_inside_h_and_the_other_outside(page):
    assert torch.allclose(page["first"][0], page["first"][1], atol=ROUNDING)
    assert page["inside"].tolist() == pytest.approx([1, 0])


def test_that_prediction_has_tokens_0_and_1_only(page):
    assert page["first"][:, :2].sum(1).tolist() == pytest.approx([1, 1])


def test_a_state_inside_h_and_one_outside_have_the_same_column(page):
    twins = page["twins"]
    report = assumption_4_2(twins, 0, [0, 2, 3])

    assert torch.equal(twins.emission[:, :, 0], twins.emission[:, :, 1])
    assert page["states"][0, 0].item() == pytest.approx(1)
    assert page["states"][1, 1].item() == pytest.approx(1)
    assert report.columns.holds
    assert not report


# The exercises


def test_without_the_product_a_cow_and_a_horse_get_one_output_though_their_labels_differ(page, model):
    two = page["two"]
    probs = masked_token_probs(model, two)

    without = page["head"](probs, page["ones"])

    assert without[0].item() == pytest.approx(without[1].item())
    assert (ground_truth(model, page["mu"], two) >= 0).tolist() == [True, False]
    assert (page["head"](probs, model.embed(two)) >= 0).tolist() == [True, False]
    assert page["head"].attended(probs).tolist() == [[False, True], [False, True]]


def test_that_output_is_the_belief_without_the_word_itself(page, model):
    masked = page["two"].clone()
    masked[:, 1] = MASK
    belief = memory_posterior(model, masked) @ page["mu"]

    without = page["head"](masked_token_probs(model, page["two"]), page["ones"])

    assert torch.allclose(without, belief, atol=ROUNDING)


def test_the_average_the_largest_and_the_first_value_are_always_right(page):
    for name in ("average", "largest", "first"):
        answers = page["rules"][name] >= 0
        assert torch.equal(answers[page["in_r"]], page["labels"][page["in_r"]]), name


def test_the_product_fails_where_the_target_is_negative_and_the_number_of_positions_even(page, model):
    negative = ground_truth(model, page["mu"], page["everything"]) < 0
    expected = negative & (page["chosen"].sum(1) % 2 == 0) & page["in_r"]

    wrong = ((page["rules"]["product"] >= 0) != page["labels"]) & page["in_r"]

    assert torch.equal(wrong, expected)
    assert expected.any()
