"""What the page on the prompt of Theorem 4.6 says of details, other models and exercises."""

import pytest
import torch
from section_4_2 import BRIGHT, NOUN, ROUNDING, STORM, in_r, labels, nonempty_sets, score

from hmmlib import (
    AttentionHead,
    MemoryHMM,
    assumption_4_4,
    assumption_4_5,
    claim_d_10,
    ground_truth,
    log_likelihood,
    masked_token_probs,
    memory_posterior,
    prompt_d_6,
    prompt_for_any_start,
    prompted,
    prompted_head,
    theorem_4_6,
)

PAGE = "4-2-memory-prompt"


# The details of the proof


def test_the_prediction_at_position_1_does_not_depend_on_the_prompt(page, model, the_rain_sun):
    no_prompt = torch.ones(8).double()

    behind = masked_token_probs(model, the_rain_sun, page["prompt"])[:, 0]

    assert torch.allclose(behind, masked_token_probs(model, the_rain_sun, no_prompt)[:, 0], atol=ROUNDING)


@pytest.fixture(scope="module")
def moving(model) -> MemoryHMM:
    """The same weather with a start that is not stationary."""
    return MemoryHMM(model.transition, model.emission, [0.9, 0.1], model.memory)


def wrong_labels(model: MemoryHMM, mu: torch.Tensor, prompt: torch.Tensor) -> int:
    """How many texts of two to six words a prompt and its head label wrongly."""
    head = prompted_head(model, mu, claim_d_10(model, mu, 0, [NOUN]))
    wrong = 0
    for length in range(2, 7):
        texts = in_r(model, length, [NOUN])
        wrong += ((score(model, prompt, head, texts) >= 0) != labels(model, mu, texts)).sum().item()
    return wrong


def test_without_a_stationary_start_the_proofs_prompt_can_give_wrong_labels(page, moving):
    assert not assumption_4_4(moving)
    assert wrong_labels(moving, page["mu"], prompt_d_6(moving, page["mu"], 0)) > 0


def test_a_prompt_that_weighs_states_by_the_start_is_right_for_that_start(page, moving):
    prompt = prompt_for_any_start(moving, page["mu"], 0)
    first_state = prompt.reshape(4, 2)[BRIGHT] * moving.marginal(1)  # P[H_1 | z̃], up to a factor

    assert wrong_labels(moving, page["mu"], prompt) == 0
    assert (prompt.min() >= 0, prompt.max() <= 1) == (True, True)
    assert torch.allclose(first_state / first_state.sum(), moving.initial)


# The parity language


@pytest.fixture(scope="module")
def parity(page) -> MemoryHMM:
    return page["parity"]


def test_in_the_parity_language_assumption_4_5_fails_for_all_states(parity):
    for syntax in nonempty_sets(parity.n_syntax):
        assert not assumption_4_5(parity, [1.0, -1.0], syntax)


def test_a_text_is_two_tokens_of_probability_one_half_mostly_equal_if_the_memory_is_0(page, parity):
    chances = log_likelihood(parity, page["pairs"]).exp()
    equal = page["pairs"][:, 0] == page["pairs"][:, 1]

    assert chances.tolist() == pytest.approx([0.25] * 4)
    assert torch.equal(page["mostly_equal"], equal)
    assert memory_posterior(parity, page["pairs"])[:, 0].tolist() == pytest.approx([0.95, 0.05, 0.05, 0.95])


def test_the_proofs_prompt_is_all_ones_and_both_predictions_are_one_half(page, parity):
    ones = prompt_d_6(parity, [1.0, -1.0], 0)
    predictions = masked_token_probs(parity, page["pairs"], ones)

    assert ones.tolist() == [1] * 8
    assert (predictions[:, 1:] - 0.5).abs().max() < ROUNDING


def test_the_prediction_at_that_prompt_depends_on_the_second_token_only(page, parity):
    at_prompt = masked_token_probs(parity, page["pairs"], torch.ones(8).double())[:, 0]

    for second in (0, 1):
        one, other = at_prompt[page["pairs"][:, 1] == second]
        assert torch.allclose(one, other, atol=ROUNDING)


def test_with_one_value_kept_each_prediction_is_of_the_token_at_the_other_position(page):
    for prediction, other_token in ((page["first"], page["pairs"][:, 1]), (page["second"], page["pairs"][:, 0])):
        assert torch.equal(prediction.argmax(1), other_token)


def test_a_head_that_compares_that_prediction_with_the_token_there_is_right(page, parity):
    value = torch.zeros(8, 2).double()
    value[0] = torch.tensor([0.5, -0.5])
    value[1] = torch.tensor([-0.5, 0.5])
    head = AttentionHead(
        query=torch.tensor([0.0, 0, 0, 0, 1]).double(),  # It lowers the prompt's position and nothing else.
        key=torch.zeros(5, 2).double(),
        value=value,
        output=torch.ones(8).double(),
        positions=torch.tensor([[0.0, 0, 0, 0, -1]]).double(),
    )
    behind = masked_token_probs(parity, page["pairs"], page["one_value"])
    embeddings = prompted(parity, page["one_value"], page["pairs"])
    own = behind[:, 1:].gather(2, page["pairs"][..., None])[..., 0]

    assert torch.allclose(head.values(behind, embeddings)[:, 1:], own - 0.5, atol=ROUNDING)
    assert torch.equal(head(behind, embeddings) >= 0, page["mostly_equal"])


# A fifth weather


def with_fifth_weather(model: MemoryHMM, noun: list[float]) -> MemoryHMM:
    """The language with a fifth kind of weather, which has this noun and takes half of the prior."""
    article = model.emission[:, 0, 0]
    fifth = torch.stack([article, torch.tensor(noun, dtype=torch.float64)], 1)
    emission = torch.cat([model.emission, fifth[:, None]], 1)
    return MemoryHMM(model.transition, emission, model.initial, [0.1, 0.05, 0.1, 0.25, 0.5])


@pytest.mark.parametrize("noun", [[0, 0.5, 0.5], [0, 0.9, 0.1], [0.4, 0.3, 0.3]])
def test_with_a_fifth_weather_the_theorems_head_stays_the_same_whatever_its_noun(page, model, noun):
    mu = torch.cat([page["mu"], torch.zeros(1)])
    _, head = theorem_4_6(with_fifth_weather(model, noun), mu, 0, [NOUN])
    predictions = torch.eye(3, dtype=torch.float64)[None]
    for word in range(3):
        here = model.embed([[word] * 3])
        there = with_fifth_weather(model, noun).embed([[word] * 3])
        assert torch.allclose(head.values(predictions, there), page["head"].values(predictions, here))

    assert torch.allclose(head.key, page["head"].key)


def test_if_a_new_noun_can_be_the_fewer_texts_have_a_sure_position(model):
    never_the = with_fifth_weather(model, [0, 0.5, 0.5])
    can_be_the = with_fifth_weather(model, [0.4, 0.3, 0.3])

    for length in (2, 4, 6):
        n_before = len(in_r(model, length, [NOUN]))
        assert len(in_r(never_the, length, [NOUN])) == n_before
        assert len(in_r(can_be_the, length, [NOUN])) < n_before


@pytest.mark.parametrize("share_of_sun", [0.1, 0.5, 0.9])
def test_a_fifth_weather_changes_no_score_and_shrinks_the_targets(page, model, share_of_sun):
    five = with_fifth_weather(model, [0, share_of_sun, 1 - share_of_sun])
    mu = torch.cat([page["mu"], torch.zeros(1)])
    prompt, head = theorem_4_6(five, mu, 0, [NOUN])
    texts = page["texts"]
    old_target = ground_truth(model, page["mu"], texts)
    target = ground_truth(five, mu, texts)

    old_score = score(model, page["prompt"], page["head"], texts)
    assert torch.allclose(score(five, prompt, head, texts), old_score, atol=ROUNDING)
    assert torch.equal(old_target >= 0, target >= 0)
    assert (target.abs() < old_target.abs()).all()


# A small weight on storm


def storm_weighed(weight: float) -> torch.Tensor:
    """The task that also weighs storm."""
    return torch.tensor([1.0, -1.0, weight, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("weight", [0.0, 0.001])
def test_no_label_of_the_table_is_wrong_at_a_weight_of_0001(page, model, weight):
    for texts in page["every_text"]:
        assert torch.equal(page["with_prompt"](texts), labels(model, storm_weighed(weight), texts))


def test_labels_are_wrong_at_larger_weights(page):
    n_wrong = [int(row[2].split(" of ")[0]) for row in page["rows"]]

    assert n_wrong[2] > 0
    assert n_wrong[3] > n_wrong[2]


def test_assumption_4_5_breaks_at_once(model):
    assert assumption_4_5(model, storm_weighed(0.0), [NOUN])
    assert not assumption_4_5(model, storm_weighed(0.001), [NOUN])


def test_the_head_errs_at_most_where_the_old_target_is_no_larger_than_the_weighed_belief_in_storm(page, model):
    texts = page["texts"]
    wrong = page["with_prompt"](texts) != labels(model, storm_weighed(1.0), texts)
    old_target = ground_truth(model, page["mu"], texts)
    storm = memory_posterior(model, texts)[:, STORM]

    assert wrong.any()
    assert (old_target.abs() <= 1.0 * storm)[wrong].all()
