"""What the page on appendix D.3 says, from its models and from sums over all paths."""

import numpy as np
import pytest
import torch
from lessons import run

from hmmbook.evidence import ledger
from hmmbook.evidence.enumeration import conditional
from hmmbook.evidence.random_models.instances import all_inputs
from hmmbook.evidence.shifted_odds import task_between_odds
from hmmlib import (
    MemoryHMM,
    assumption_4_2,
    assumption_4_4,
    assumption_d_5,
    concentrated,
    farm,
    log_likelihood,
    memory_posterior,
    prompt_d_6,
    prompt_for_any_start,
    prompted,
    shrinking_support,
)
from hmmlib.inference import reference
from hmmlib.theory.assumptions import recoverable_columns

ROUNDING = 1e-12


@pytest.fixture(scope="module")
def page() -> dict:
    return run("appendix-d-3", instances=1)


@pytest.fixture(scope="module")
def predictions(page) -> np.ndarray:
    return page["predictions"].numpy()


def close(computed, exact, bound=ROUNDING):
    np.testing.assert_allclose(computed, exact, rtol=0, atol=bound)


# The picture and the example


def test_on_r_no_label_is_wrong(page):
    in_R = page["in_R"]

    assert ((page["score"] >= 0) == (page["target"] >= 0))[in_R].all()
    assert in_R.sum() > 40


def test_surely_a_cat_means_score_and_target_0(page):
    cats = page["surely_cats"]

    assert cats.any()
    assert abs(page["score"][cats]).max() == 0
    assert abs(page["target"][cats]).max() == 0


def test_only_texts_that_are_surely_about_a_cat_are_at_the_origin(page):
    at_origin = page["in_R"] & (abs(page["score"]) < 1e-9) & (abs(page["target"]) < 1e-9)

    assert (at_origin == page["surely_cats"]).all()


def test_score_divided_by_target_differs_from_text_to_text(page):
    clear = page["in_R"] & (abs(page["target"]) > 1e-9)
    ratios = page["score"][clear] / page["target"][clear]

    assert (ratios > 0).all()
    assert np.ptp(ratios) > 0.1


def test_assumption_4_2_fails_and_d_5_holds(page):
    model = page["model"]

    assert not assumption_4_2(model, page["cell"], page["syntax"])
    assert assumption_d_5(model, page["mu"], page["cell"], page["syntax"])
    assert assumption_4_4(model)


def test_the_noun_and_the_article_of_a_cat_are_each_cat_or_a_with_probability_one_half(page):
    noun, article = page["model"].emission[:, 2, :2].T
    by_word = dict(zip(page["example"].words, noun.tolist(), strict=True))

    assert torch.equal(noun, article)
    assert (by_word["cat"], by_word["a"]) == (0.5, 0.5)


def test_all_other_columns_are_those_of_appendix_d(page):
    here = page["model"].emission.clone()
    there = farm().model.emission.clone()
    here[:, 2, :2] = 0
    there[:, 2, :2] = 0

    assert torch.equal(here, there)


def test_the_columns_of_the_assumption_are_those_without_the_crossed_ones(page):
    recoverable, others = recoverable_columns(page["model"], page["cell"], page["syntax"], [0, 1])

    assert recoverable.shape == (7, 2)
    assert others.shape == (7, 2 + 3 + 3)


# The prompt


def test_the_prompt_is_1_on_the_values_that_are_weighed(page):
    assert torch.equal(page["u"], page["prompt"])
    assert torch.equal(page["u"], prompt_d_6(page["model"], page["mu"], page["cell"]))


def test_behind_the_prompt_no_cat_is_left_whatever_the_start(page):
    for model in (page["model"], page["moving"]):
        tau = reference.tau(model, prompted(model, page["u"], page["x"]))
        cats = tau.reshape(343, 4, 3, 12).sum(3)[:, :, 2]
        assert (cats[:, 1:] == 0).all()
        assert cats[:, 0].max() > 0  # At position 1 the output is not conditioned on the prompt.


def test_enumeration_leaves_no_cat_either(page):
    for i in (2, 3, 4):
        assert (page["by_paths"].hat.left_out(i, "m0")[:, 2] == 0).all()


def test_a_stationary_text_may_start_anywhere_and_another_may_not(page):
    assert page["moved_by_a_step"](page["model"]) < ROUNDING
    assert page["moved_by_a_step"](page["moving"]) > 0.001


# The key


def test_the_read_outs_give_the_memory_with_the_state(page, predictions):
    theta_2 = page["theta_2"].numpy()
    theta_1 = page["recovery"].theta_1.numpy()
    for i in (2, 3, 4):
        rows = page["by_paths"].hat_left[:, i - 1] > 0
        exact = conditional(page["by_paths"].hat.left_out(i, "m0", f"h{i}"))[rows]
        read = predictions[rows, i - 1]
        close(read @ theta_2.T, exact[:, :, 0])
        close((read @ theta_1.T)[:, 0], exact.sum(1)[:, 0])
        close(abs(read @ theta_1.T).sum(1), 1)


def test_the_read_outs_are_the_librarys(page):
    close(page["recovery"].theta_2[0], page["theta_2"])


def test_the_row_for_cats_is_zero_and_the_others_are_not(page):
    assert (page["theta_2"][2] == 0).all()
    assert (page["theta_2"][:2] != 0).any(1).all()


def test_the_prompt_only_takes_states_away(page):
    removed = 0
    for i in (2, 3, 4):
        rows = page["by_paths"].hat_left[:, i - 1] > 0
        right, without = page["states_behind"](i, rows)
        with_prompt = conditional(page["by_paths"].hat.left_out(i, f"h{i}"))[rows]
        close(with_prompt, right)  # (D.9)
        assert (without[with_prompt > 0] > 0).all()
        removed += ((with_prompt == 0) & (without > 0)).sum()

    assert removed > 0


def test_the_head_attends_exactly_to_the_positions_that_are_sure_with_the_prompt(page):
    rows = page["in_lemma"]

    assert rows.any()
    assert not page["attended"][rows, 0].any()
    assert (page["attended"] == page["sure_behind"])[rows].all()


def test_the_library_finds_the_same_positions(page):
    rows = page["in_lemma"]
    found = concentrated(page["model"], page["x"], page["cell"], page["syntax"], page["u"]).numpy()

    assert (found == page["sure_behind"])[rows].all()


def test_for_three_words_these_are_the_positions_that_are_sure_without_the_prompt(page):
    rows = page["in_lemma"]

    assert (page["sure_behind"] == page["by_paths"].moved)[rows].all()


@pytest.fixture(scope="module")
def within_the_lemma(page) -> np.ndarray:
    """The possible texts of four words for which Lemma D.9 speaks of an attended position."""
    possible = (log_likelihood(page["model"], page["longer"]) > -torch.inf).numpy()
    return possible & page["sure_alone"].any(1) & page["in_Z"]


def test_for_four_words_it_attends_to_more_on_some(page, within_the_lemma):
    attended = page["attended_behind"][:, 1:]

    assert (within_the_lemma & page["attends_to_more"]).any()
    assert (attended | ~page["sure_alone"])[within_the_lemma].all()


def test_the_texts_of_the_table_are_possible_and_more_is_attended_than_is_sure_alone(page, within_the_lemma):
    first_three = np.flatnonzero(page["attends_to_more"])[:3]

    assert within_the_lemma[first_three].all()
    assert page["example"].decode(page["longer"][first_three])[0] == "a dog barn a"
    for k in first_three:
        assert (np.flatnonzero(page["sure_alone"][k]) + 2).tolist() == [4]
        assert (np.flatnonzero(page["attended_behind"][k]) + 1).tolist() == [3, 4]


# The value


def test_the_prompt_rescales_the_target(page):
    allowed = page["allowed"]
    expected = page["target"][allowed] / page["fake_token"][allowed]

    close(page["left_side"][allowed], expected)
    close(page["target"], memory_posterior(page["model"], page["x"]) @ page["mu"])


def test_split_by_memory_and_state_the_left_side_is_the_same(page):
    split = conditional(page["by_paths"].hat.given_input("m0", "m1", "h1")).sum((2, 3))  # (D.10)

    close((split @ page["mu"].numpy())[page["allowed"]], page["left_side"][page["allowed"]])


def test_the_excluded_texts_have_target_0_and_are_surely_about_a_cat(page):
    cannot = page["excluded"]

    assert cannot.any()
    assert (page["target"][cannot] == 0).all()
    assert (page["by_paths"].beliefs[cannot, 2] > 1 - ROUNDING).all()


def test_where_the_other_tokens_are_impossible_the_prediction_is_zero(page, predictions):
    impossible = page["by_paths"].hat_left == 0

    assert impossible.any()
    assert (predictions[impossible] == 0).all()


def test_at_a_sure_position_the_value_is_the_weighted_memory_with_the_token(page):
    case = page["by_paths"]
    exact = case.hat_target  # μᵀP[M, x̂]
    for i in (3, 4):
        rows = page["in_R"] & page["sure_behind"][:, i - 1]
        assert rows.any()
        close(page["values"][rows, i - 1], exact[rows] / case.hat_left[rows, i - 1])
        close(page["values"][rows, i - 1], (page["r"][:, i - 1] * page["target"])[rows])


def test_the_first_word_is_never_sure(page):
    assert not (page["in_R"] & page["sure_behind"][:, 1]).any()


def test_where_the_text_is_excluded_all_values_behind_the_prompt_are_0(page):
    assert abs(page["values"][page["excluded"], 1:]).max() < ROUNDING


# The theorem


def test_the_score_is_a_positive_multiple_of_the_target_where_the_prompt_allows_the_text(page):
    allowed = page["in_R"] & page["allowed"]

    assert (page["r_x"][allowed] > 0).all()
    close(page["score"][allowed], (page["r_x"] * page["target"])[allowed])


def test_the_texts_of_r_that_it_excludes_are_those_surely_about_a_cat(page):
    excluded = page["in_R"] & ~page["allowed"]

    assert (excluded == page["surely_cats"]).all()
    assert abs(page["score"][excluded]).max() == abs(page["target"][excluded]).max() == 0


def test_the_head_of_the_proof_is_that_of_theorem_4_6(page):
    found = page["head"](page["predictions"], page["by_paths"].embeddings).numpy()

    assert np.array_equal(found, page["score"])


def test_the_other_prompt_is_the_librarys_and_with_a_stationary_start_it_is_d_6(page):
    close(page["undoing"], prompt_for_any_start(page["moving"], page["mu"], page["cell"]), 1e-15)

    assert torch.equal(prompt_for_any_start(page["model"], page["mu"], page["cell"]), page["u"])
    assert not assumption_4_4(page["moving"])


@pytest.mark.parametrize(("prompt", "errs"), [("u", True), ("undoing", False)])
def test_for_a_start_that_is_not_stationary_the_prompt_d_6_errs_and_the_other_does_not(page, prompt, errs):
    scores = page["scores_behind"](page[prompt], page["task"]).numpy()
    truth = memory_posterior(page["moving"], page["x"]) @ page["task"]
    clear = page["clear"]

    close(page["goal"], truth)
    assert bool((scores[clear] / page["goal"][clear] < 0).any()) == errs
    assert abs(scores[page["moved"].in_r & ~clear]).max() < ROUNDING


def test_the_task_lies_between_the_odds_without_and_with_the_prompt(page):
    moved = page["moved"]
    task = task_between_odds(moved)
    hat_beliefs = conditional(moved.hat.given_input("m0"))
    signs = np.sign(moved.beliefs @ task.numpy()) * np.sign(hat_beliefs @ task.numpy())

    assert task[0] == 1
    assert task[1] < 0
    assert task[2] == 0
    assert (signs[moved.in_r & page["clear"]] < 0).any()


# Checks and exercises


def test_the_ledger_finds_the_ten_statements_as_recorded(page):
    assert len(page["statements"]) == 10
    for statement in page["statements"]:
        assert ledger.run(statement, 1, seed=1).as_recorded


def test_three_of_them_do_not_hold_as_printed_without_a_remark(page):
    differ = [statement.name for statement in page["statements"] if statement.grade != "holds"]

    assert differ == ["Theorem D.6", "Lemma D.9", "Claim D.10"]


def possible_texts(model) -> torch.Tensor:
    texts = all_inputs(model.n_tokens, 3)
    return texts[log_likelihood(model, texts) > -torch.inf]


@pytest.fixture(scope="module")
def without_cats(page) -> MemoryHMM:
    model = page["model"]
    memory = model.memory.clone()
    memory[2] = 0
    return MemoryHMM(model.transition, model.emission, model.initial, memory / memory.sum())


def test_both_sets_are_equal_on_every_text_if_the_task_weighs_every_value_that_occurs(page, without_cats):
    small, states = shrinking_support()
    cases = [
        (small, [1.0, 0.0], states, False),
        (small, [1.0, -0.001], states, True),
        (page["model"], page["mu"], page["syntax"], False),
        (without_cats, page["mu"], page["syntax"], True),
    ]
    for model, task, syntax, weighs_all in cases:
        occurs = model.memory.reshape(model.n_memory, -1).sum(1) > 0
        texts = possible_texts(model)
        prompt = prompt_d_6(model, task, 0)

        alone = concentrated(model, texts, 0, syntax)
        behind = concentrated(model, texts, 0, syntax, prompt)[:, 1:]

        assert bool((torch.as_tensor(task) != 0)[occurs].all()) == weighs_all
        assert torch.equal(alone, behind) == weighs_all


def test_for_a_task_without_zeros_assumption_d_5_is_4_2(page):
    every_value = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)

    assert assumption_d_5(farm().model, every_value, 0, [0])
    assert assumption_4_2(farm().model, 0, [0])
    assert not assumption_d_5(page["model"], every_value, 0, [0])
    assert not assumption_4_2(page["model"], 0, [0])
