"""What the page on the prompt of Theorem 4.6 says of details, other models and exercises."""

from dataclasses import replace

import pytest
import torch
from section_4_2 import BRIGHT, DULL, HEAT, NOUN, ROUNDING, STORM, in_r, labels, nonempty_sets, score

from hmmlib import (
    AttentionHead,
    MemoryHMM,
    assumption_4_4,
    assumption_4_5,
    claim_d_10,
    concentrated,
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


def test_without_a_position_embedding_the_prompt_is_attended_and_the_label_wrong(page, model, the_rain_sun):
    naked = replace(page["head"], positions=None)
    probs = masked_token_probs(model, the_rain_sun, page["prompt"])

    assert page["head"].attended(probs)[0].tolist() == [False, False, True, False]
    assert naked.attended(probs)[0].tolist() == [True, False, True, False]
    assert ground_truth(model, page["mu"], the_rain_sun) > 0
    assert score(model, page["prompt"], page["head"], the_rain_sun) > 0
    assert score(model, page["prompt"], naked, the_rain_sun) < 0


@pytest.fixture(scope="module")
def parallel() -> MemoryHMM:
    """A model with states noun and article, whose key has the entry 6 where the prompt's position is read."""
    article = [0.45, 0.55, 0]
    columns = [
        [[0.5, 0.5, 0], article],
        [[0, 0, 1], article],
        [[0.5, 0, 0.5], [0, 1, 0]],
    ]
    return MemoryHMM(
        transition=[[0.5, 1], [0.5, 0]],
        emission=torch.tensor(columns, dtype=torch.float64).permute(2, 0, 1),
        initial=[2 / 3, 1 / 3],
        memory=[0.2, 0.2, 0.6],
    )


FIRST_OR_SECOND = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)


def test_lowering_the_score_at_position_1_by_2_is_not_always_enough(parallel):
    prompt, head = theorem_4_6(parallel, FIRST_OR_SECOND, 0, [0])
    texts = in_r(parallel, 4, [0])
    expected = labels(parallel, FIRST_OR_SECOND, texts)
    by_two = replace(head, positions=torch.tensor([[0, 0, -2.0]]).double())

    assert assumption_4_4(parallel)
    assert assumption_4_5(parallel, FIRST_OR_SECOND, [0])
    assert ((score(parallel, prompt, by_two, texts) >= 0) != expected).any()
    assert torch.equal(score(parallel, prompt, head, texts) >= 0, expected)


def test_the_code_lowers_it_by_more_than_the_largest_entry_of_the_key(parallel):
    _, head = theorem_4_6(parallel, FIRST_OR_SECOND, 0, [0])

    assert -head.positions[0, -1] > (head.query @ head.key).max()


def test_where_prompt_and_text_exclude_each_other_the_output_is_0_and_label_1_is_right(parallel):
    prompt, head = theorem_4_6(parallel, FIRST_OR_SECOND, 0, [0])
    text = torch.tensor([[1, 0, 2]])

    assert concentrated(parallel, text, 0, [0]).any()
    assert memory_posterior(parallel, text)[0, :2].tolist() == [0, 0]
    assert score(parallel, prompt, head, text).item() == 0
    assert labels(parallel, FIRST_OR_SECOND, text).item()


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


# Checks


def test_without_the_prompt_the_head_counts_heat_as_14_bright_minus_04_dull(page, model):
    nouns = model.emission[:, :, NOUN]

    read_as = page["theta"] @ nouns  # a column for each weather

    assert read_as[:2, HEAT].tolist() == pytest.approx([1.4, -0.4])
    assert read_as[:2, [BRIGHT, DULL]].tolist() == [pytest.approx([1, 0]), pytest.approx([0, 1])]
    assert torch.allclose(nouns[:, HEAT], 1.4 * nouns[:, BRIGHT] - 0.4 * nouns[:, DULL], atol=ROUNDING)


def test_with_the_prompt_the_share_is_1_at_every_length_and_without_it_always_below(page):
    assert list(page["lengths"]) == [2, 3, 4, 5, 6, 7]
    assert page["shares"]["prompt and head"] == [1] * 6
    assert max(page["shares"]["the same head, no prompt"]) < 1


def test_without_the_prompt_it_rises_from_05_at_two_words_to_096_at_six(page):
    shares = page["shares"]["the same head, no prompt"][:5]

    assert shares == sorted(shares)
    assert [f"{share:.2f}" for share in (shares[0], shares[-1])] == ["0.50", "0.96"]


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


# The exercises


def test_a_fifth_weather_changes_neither_key_nor_scores_and_shrinks_the_targets(page):
    scores = page["scores"]

    assert torch.allclose(page["head"].key, page["five_head"].key)
    assert torch.allclose(scores["score"], scores["with five"], atol=ROUNDING)
    assert torch.equal(scores["target"] >= 0, scores["target with five"] >= 0)
    assert (scores["target with five"].abs() < scores["target"].abs()).all()


def storm_weighed(weight: float) -> torch.Tensor:
    """The task that also weighs storm."""
    return torch.tensor([1.0, -1.0, weight, 0.0], dtype=torch.float64)


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 0), (0.001, 0), (0.1, 14)])
def test_of_1674_labels_none_is_wrong_at_a_weight_of_0001_and_14_are_at_01(page, model, weight, expected):
    texts_by_length = page["every_text"]

    wrong = 0
    for texts in texts_by_length:
        wrong += (page["with_prompt"](texts) != labels(model, storm_weighed(weight), texts)).sum().item()

    assert sum(map(len, texts_by_length)) == 1674
    assert wrong == expected


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
