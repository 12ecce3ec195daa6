"""What the page on appendix D says, from its models and from sums over all paths."""

import numpy as np
import pytest
import torch
from lessons import run

from hmmbook.evidence.enumeration import conditional
from hmmlib import (
    HMM,
    MemoryHMM,
    assumption_3_2,
    assumption_4_2,
    assumption_4_4,
    claim_d_3,
    masked_token_probs,
    memory_posterior,
    prompted,
)
from hmmlib.inference import reference
from hmmlib.inference.messages import latent_given_others

ROUNDING = 1e-12


@pytest.fixture(scope="module")
def page() -> dict:
    return run("appendix-d", instances=1)


@pytest.fixture(scope="module")
def recovery(page):
    return claim_d_3(page["model"], page["cell"], page["syntax"])


def close(computed, exact, bound=ROUNDING):
    np.testing.assert_allclose(computed, exact, rtol=0, atol=bound)


# The example


def test_the_farm_has_two_cells_of_three_values_and_four_states(page):
    assert page["example"].cells == ("animal", "place")
    assert page["model"].memory.shape == (3, 3)
    assert page["model"].n_states == 4


def test_the_three_framed_columns_are_recoverable_and_the_nine_others_have_rank_4(page):
    report = assumption_4_2(page["model"], page["cell"], page["syntax"])

    assert report
    assert report.rest_rank == 4
    assert page["model"].emission.flatten(1).shape[1] == 3 + 9
    assert assumption_4_4(page["model"])


def test_barn_can_be_a_noun_of_both_cells(page):
    barn = page["model"].emission[page["example"].words.index("barn")]

    assert (barn[:, 0] > 0).all()
    assert (barn[:, 2] > 0).any()


def test_an_article_is_followed_by_the_noun_of_its_cell_and_a_place_is_never_followed_by_a_noun(page):
    animal_noun, animal_article, place_noun, place_article = (page["model"].transition.T > 0).tolist()

    assert animal_article == [True, False, False, False]
    assert place_article == [False, False, True, False]
    assert animal_noun == [True, True, False, True]
    assert place_noun == [False, True, False, True]


def states_at(model, tokens, at: int) -> np.ndarray:
    """P[H_i | x], the belief about the state at a position, (H,)."""
    rest = latent_given_others(model, tokens)[0, at - 1].reshape(model.n_memory, model.n_states)
    weights = (rest * model.emission[tokens[0, at - 1]]).sum(0)
    return (weights / weights.sum()).numpy()


def test_in_the_text_of_the_example_barn_is_surely_a_second_noun_of_the_animal(page):
    tokens = page["example"].encode("a dog barn the yard a")
    states = states_at(page["model"], tokens, 3)

    assert states[0] == pytest.approx(1)


# Proposition D.1


def test_the_prediction_is_the_mixture_of_columns(page):
    possible = page["possible"]
    for i in (1, 2, 3):
        close(page["G"][possible, i - 1], page["mixture"](i)[possible])


def test_the_printed_joint_is_too_small_by_the_probability_of_the_other_tokens(page):
    k = page["row_of"]("a dog the")
    printed = page["W"] @ page["paths"].cell_and_state(2)[k].ravel()

    assert printed.sum() == pytest.approx(page["paths"].left_out(2)[k])
    assert printed.sum() < 0.1


# Claim D.3


def test_the_read_outs_give_the_memory_with_the_state_and_all_other_states(page):
    theta_2, other_states = page["theta_2"].numpy(), page["other_states"].numpy()
    possible = page["possible"]
    for i in (1, 2, 3):
        exact = conditional(page["paths"].left_out(i, "m0", f"h{i}"))[possible]
        output = page["G"][possible, i - 1].numpy()
        close(output @ theta_2.T, exact[:, :, 0])
        close(output @ theta_2.sum(0), exact[:, :, 0].sum(1))
        close(output @ other_states, exact[:, :, 1:].sum((1, 2)))


def test_without_the_assumption_they_misread(page):
    assert not assumption_4_2(page["cats_alike"], page["cell"], page["syntax"])
    assert page["error_of_read_outs"](page["by_paths"]) < ROUNDING
    assert page["error_of_read_outs"](page["control"]) > 0.5


def test_the_read_outs_are_the_librarys(page, recovery):
    close(recovery.theta_2[0], page["theta_2"])


def test_barn_has_weight_0_and_an_animal_weight_1_over_07(page):
    weights = page["theta_2"].sum(0).numpy()
    by_word = dict(zip(page["example"].words, weights, strict=True))
    emission = page["model"].emission[page["example"].words.index("barn"), :, 0]

    close([by_word["dog"], by_word["hen"], by_word["cat"]], 1 / 0.7)
    close(weights[3:], 0)
    close(emission, 0.3)
    assert round(1 / 0.7, 2) == 1.43


def test_pairwise_disjoint_spans_are_not_enough():
    columns = np.array([[1, 0, 0.5], [0, 1, 0.5]])  # of W, two tokens
    third = np.full(3, 1 / 3)
    model = MemoryHMM(np.full((3, 3), 1 / 3), columns[:, None], third, [1.0])

    for pair in ([0, 1], [0, 2], [1, 2]):
        assert np.linalg.matrix_rank(columns[:, pair]) == 2
    assert (columns @ [0.5, 0.5, 0] == columns @ [0, 0, 1]).all()
    for syntax in ([0], [0, 1], [0, 1, 2]):
        assert not assumption_4_2(model, 0, syntax)


# Lemma D.2


def test_the_score_is_the_probability_of_the_recoverable_states(page):
    possible = page["possible"]
    for i in (1, 2, 3):
        states = conditional(page["paths"].left_out(i, f"h{i}"))
        close(page["scores"][possible, i - 1], states[possible, 0])
    close(page["head"].scores(page["G"]), page["scores"])


def test_on_r_the_head_attends_exactly_to_the_sure_positions(page):
    in_R = page["possible"] & page["sure"].any(1)

    assert (in_R == page["by_paths"].in_r).all()
    assert (page["attended"] == page["sure"])[in_R].all()


def test_the_score_of_a_position_that_is_not_sure_is_below_1(page):
    possible = page["possible"]
    others = page["scores"].numpy()[possible][~page["sure"][possible]]

    assert others.max() < 1 - 1e-6


def test_in_a_dog_the_position_2_alone_is_sure_and_the_others_reach_one_half(page):
    k = page["row_of"]("a dog the")

    assert page["sure"][k].tolist() == [False, True, False]
    close(page["scores"][k], [0.5, 1, 0.5])


# Lemma D.4 and Theorem 4.3


@pytest.mark.parametrize("text", ["a barn the", "a dog the", "a hen the"])
def test_in_the_table_the_value_is_r_times_the_target_at_a_sure_position(page, text):
    k = page["row_of"](text)

    assert page["sure"][k, 1]
    close(page["values"][k, 1], page["r_i"][k, 1] * page["target"][k])
    assert page["rows"]


def test_the_values_are_those_of_the_librarys_head(page):
    close(page["head"].values(page["G"], page["model"].embed(page["x"])), page["values"])


def test_the_first_word_is_never_sure(page):
    assert not page["sure"][page["by_paths"].in_r, 0].any()


def test_at_a_sure_position_memory_and_state_are_read_together(page):
    for i in (2, 3):
        rows = page["by_paths"].in_r & page["sure"][:, i - 1]
        exact = conditional(page["paths"].cell_and_state(i)).reshape(len(page["x"]), -1)
        assert rows.any()
        close(page["readings"][rows, i - 1], exact[rows])  # (D.2)
        close(page["values"][rows, i - 1], (page["r_i"][:, i - 1] * page["target"])[rows])


def test_away_from_the_sure_positions_the_value_can_be_0_though_the_target_is_not(page):
    not_sure = page["missed"] & ~page["sure"][:, 2]

    assert not_sure.any()
    assert (not_sure == page["missed"]).all()


def test_on_r_the_score_is_a_positive_multiple_of_the_target(page):
    in_R = page["by_paths"].in_r

    close(page["score"][in_R], (page["r"] * page["target"])[in_R])
    assert (page["r"][in_R] > 0).all()


def test_the_same_head_is_right_for_a_periodic_chain_that_starts_in_one_state(page):
    seen = page["on_cycle"]
    goal = (memory_posterior(page["periodic"], page["x"]) @ page["mu"]).numpy()
    clear = seen.in_r & (abs(goal) > 1e-9)

    assert not assumption_3_2(page["periodic"])
    assert (page["periodic"].initial > 0).sum() == 1
    assert clear.any()
    assert (page["periodic_score"][clear] / goal[clear] > 0).all()
    assert not page["opposed"].any()


# Messages and prompts


@pytest.fixture(scope="module")
def of_memory(page) -> dict[str, np.ndarray]:
    """The three tables of the picture, animal by place."""
    return {title: table.numpy() for title, (table, _) in page["panels"].items()}


def test_the_belief_from_both_sides_is_what_enumeration_gives(page, of_memory):
    exact = conditional(page["paths"].left_out(2, "m0", "m1"))[page["row_of"]("barn a dog")]

    close(of_memory["from both sides"], exact)


def test_from_barn_outside_is_the_least_likely_place(of_memory):
    places = of_memory["from the left: barn"].sum(0)

    assert places.argmin() == 2
    assert places[:2].sum() > 0.7


def test_from_dog_the_dog_is_the_likeliest_animal(of_memory):
    from_dog = of_memory["from the right: dog"].sum(1)

    assert from_dog.argmax() == 0
    assert from_dog[0] > 0.7
    assert from_dog[2] == 0


def test_from_both_it_is_a_dog_inside_or_between(of_memory):
    both = of_memory["from both sides"]

    assert both.sum(1).argmax() == 0
    assert both[0, :2].sum() > 0.7
    assert (both[2] == 0).all()


def test_the_prior_excludes_a_cat_inside(page, of_memory):
    assert page["model"].memory[2, 0] == 0
    assert of_memory["from the left: barn"][2, 0] == 0


def product_apart(page, text: str) -> float:
    """How far the belief about the memory at position 2 is from the product of both sides over the prior, scaled."""
    v = page["model"].lift(page["model"].embed(page["example"].encode(text)))
    _, left, right = reference.left_and_right(page["model"], v)
    prior = page["model"].memory.numpy()
    sides = [message[2, :, 0].reshape(3, 3, 4).sum(2).numpy() for message in (left, right)]
    product = np.divide(sides[0] * sides[1], prior, out=np.zeros((3, 3)), where=prior > 0)
    both = reference.tau(page["model"], v)[0, 1].reshape(3, 3, 4).sum(2).numpy()
    return abs(product / product.sum() - both / both.sum()).max()


def test_the_third_table_is_the_product_of_the_first_two_over_the_prior_for_this_text_but_not_in_general(page):
    assert product_apart(page, "barn a dog") < ROUNDING
    assert product_apart(page, "a the barn") > 0.05


def test_there_are_36_lifted_states_and_343_texts(page):
    assert page["tau"].shape == (343, 3, 36)


def test_tau_is_memory_state_and_all_other_tokens(page):
    for i in (1, 2, 3):
        exact = page["paths"].left_out(i, "m0", "m1", f"h{i}").reshape(343, -1)
        close(page["tau"][:, i - 1], exact)


def test_phi_averages_over_the_cells_that_a_state_does_not_depend_on(page):
    for i in (1, 2, 3):
        close(page["back"][:, i - 1], page["paths"].cell_and_state(i).reshape(343, -1) / 3)
    close(page["model"].unlift(page["lifted"]), page["model"].embed(page["x"]))


def test_w_times_phi_scaled_is_the_output(page):
    possible = page["possible"]
    back = conditional(page["back"].numpy().reshape(-1, 12)).reshape(343, 3, 12)

    close((back @ page["W"].T)[possible], page["G"][possible])


def test_tau_with_a_prompt_is_memory_state_and_all_other_tokens_of_the_process(page):
    behind = page["behind"]
    tau = reference.tau(page["model"], prompted(page["model"], page["u"], page["x"])).numpy()

    close(tau[:, 0], behind.hat_free.given_input("m0", "m1", "h1").reshape(343, -1))
    for i in (2, 3, 4):
        close(tau[:, i - 1], behind.hat.left_out(i, "m0", "m1", f"h{i}").reshape(343, -1))  # (D.5)


def test_behind_a_prompt_the_prediction_is_the_distribution_of_the_token_and_a_mixture_of_columns(page):
    hat = page["behind"].hat
    for i in (2, 3, 4):
        weights = conditional(hat.cell_and_state(i)).reshape(343, -1)
        close(page["predictions"][:, i - 1], conditional(hat.token(i)))
        close(page["predictions"][:, i - 1], weights @ page["W"].T)


def test_where_the_other_tokens_are_impossible_all_predictions_are_zero(page):
    impossible = page["behind"].hat_left == 0

    assert impossible.any()
    assert (page["predictions"][impossible] == 0).all()


def test_a_prompt_of_as_many_entries_as_there_are_states_does_not_fit(page):
    with pytest.raises(ValueError, match="prompt"):
        masked_token_probs(page["model"], page["x"], page["u"][:4])


# Checks and exercises


def test_the_ledger_finds_the_fourteen_results_and_the_condition_as_recorded(page):
    assert len(page["entries"]) == 15
    assert all(entry.as_recorded for entry in page["entries"])


def test_with_a_leak_the_score_is_off_by_no_more_than_the_largest_weight_times_what_is_missing(page):
    near, score, scaled_target = page["columns"][:3]

    assert ((score - scaled_target).abs() <= 2 * (1 - near)).all()


def test_however_rare_the_leak_a_yard_has_value_0_and_so_label_1_though_its_target_is_negative(page):
    rows = [row for row in page["rows"] if row[1] == "a yard the"]

    assert [row[0] for row in rows] == ["0.1", "0.01", "0.0001"]
    assert [float(row[3]) for row in rows] == [0, 0, 0]
    assert all(float(row[5]) < -0.15 for row in rows)


def test_a_barn_has_a_negative_score_and_a_negative_target(page):
    rows = [row for row in page["rows"] if row[1] == "a barn the"]

    assert all(float(row[3]) < 0 and float(row[5]) < -0.15 for row in rows)


def test_the_lifted_transition_has_a_block_for_each_memory_and_zeros_elsewhere(page):
    blocks = page["blocks"]
    for k in range(9):
        assert torch.equal(blocks[k, k], page["model"].transition)

    assert (blocks[~torch.eye(9, dtype=torch.bool)] == 0).all()


def test_the_prediction_is_a_mixture_of_the_predictions_of_hmms(page):
    model, texts = page["model"], page["x"]
    weights = conditional(page["paths"].left_out(2, "m0", "m1"))
    mixture = np.zeros((343, 7))
    for m in range(3):
        for n in range(3):
            emission = torch.cat([model.emission[:, m, :2], model.emission[:, n, 2:]], 1)
            plain = HMM(model.transition, emission, model.initial)
            mixture += weights[:, m, n, None] * masked_token_probs(plain, texts)[:, 1].numpy()

    close(page["G"][:, 1], mixture)
