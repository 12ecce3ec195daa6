"""What the page on prompts says up to its derivation, from its models."""

import itertools

import pytest
import torch
from section_3_1 import ALPHA, BETA, DELTA, GAMMA, ONES, at_gap, possible_inputs

from hmmbook.evidence.random_models.instances import shifted
from hmmlib import (
    Impossible,
    assumption_3_1,
    assumption_3_5,
    fit_or_refute,
    ground_truth,
    latent_given_others,
    lemma_c_2,
    masked_token_probs,
    non_degenerate_hmm,
    posterior,
    theorem_3_6,
)

PAGE = "3-1-prompt"


def weights_of_columns(points: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The weights, (n, k), with which points mix columns, once it is checked that they do."""
    weights = points @ torch.linalg.pinv(columns).T
    assert torch.allclose(weights @ columns.T, points, atol=1e-12)
    return weights


# Without the prompt, and with it


def test_from_gamma_one_step_leads_to_alpha_or_beta_only(model):
    assert (model.transition[:, GAMMA] > 0).tolist() == [True, True, False, False]


def test_60_texts_can_occur_and_16_of_them_exclude_both_alpha_and_beta(model, x):
    of_pair = posterior(model, x)[:, :2].sum(1)

    assert torch.equal(x, possible_inputs(model, 4))
    assert len(x) == 60
    assert (of_pair == 0).sum() == 16
    assert (of_pair > 0).sum() == 44


def test_the_columns_are_dependent_and_no_head_is_right_at_g_1_or_behind_a_prompt_that_is_no_evidence(page, model, x):
    at_g_1 = masked_token_probs(model, shifted(x, 1))[:, 0]

    assert not assumption_3_1(model)
    assert isinstance(fit_or_refute(at_g_1, page["labels"]), Impossible)
    assert isinstance(fit_or_refute(at_gap(model, x, ONES), page["labels"]), Impossible)


def test_one_text_of_label_1_lies_inside_a_triangle_of_label_0(page):
    points = page["without_prompt"]
    labels = page["labels"][page["either"]]
    proof = fit_or_refute(points, labels)
    star = proof.positive @ points[labels]
    corners = points[~labels][proof.negative > 0]

    assert (proof.positive > 0).sum() == 1
    assert len(corners) == 3
    assert torch.linalg.solve(corners.T, star).min() > 0  # Its place between the corners.
    assert page["target"][page["either"]].abs().min() > 0.03


def test_without_the_prompt_the_points_lie_in_a_narrow_strip(model, x):
    points = at_gap(model, x, ONES)
    length, width, _ = torch.linalg.svdvals(points - points.mean(0))

    assert width < length / 10


def test_with_the_prompt_gamma_and_delta_are_ruled_out_whatever_the_text(page, model, x):
    belief = latent_given_others(model, shifted(x, 1), page["prompt"])[:, 1]

    assert not belief[:, [GAMMA, DELTA]].any()


def test_with_the_prompt_every_prediction_lies_on_the_segment_and_one_line_separates_the_labels(page, model):
    columns = model.emission[:, :2]
    points = page["with_prompt"]

    assert torch.linalg.matrix_rank(columns) == 2
    assert weights_of_columns(points, columns).min() > -1e-12
    assert torch.equal(page["head"].label(points), page["labels"][page["either"]])


# The moving figure


def test_16_texts_keep_a_wrong_label_until_all_three_entries_are_exactly_0(page, model, x):
    begin_with_2 = x[:, 0] == 2
    for alpha, beta, delta in itertools.product((0.0, 0.001, 1.0), repeat=3):
        prompt = torch.tensor([alpha, beta, 1.0, delta], dtype=torch.float64)
        probs = at_gap(model, x[begin_with_2], prompt)
        right = page["head"].label(probs) == page["labels"][begin_with_2]

        if alpha == beta == delta == 0:
            assert right.all()
        else:
            assert not right.any()
            assert (page["head"](probs) < 0).all()
    assert begin_with_2.sum() == 16


def test_with_all_three_at_0_the_bars_are_the_belief_before_the_text_times_06_and_04(page, model, x):
    belief = posterior(model, x[page["either"]])[:, :2] * torch.tensor([0.6, 0.4])
    bars = latent_given_others(model, shifted(x[page["either"]], 1), page["prompt"])[:, 1, :2]

    assert torch.allclose(bars, belief / belief.sum(1, keepdim=True), atol=1e-12)
    longer_alpha = bars[:, ALPHA] > bars[:, BETA]
    assert (longer_alpha & ~page["labels"][page["either"]]).any()  # The head undoes the factors.


# The statement


def test_the_essential_states_are_alpha_and_beta_the_set_before_them_is_gamma_and_the_prompt_is_0_0_1_0(page, model):
    assert page["prompt"].tolist() == [0, 0, 1, 0]
    assert page["mu"].nonzero().flatten().tolist() == [ALPHA, BETA]
    assert assumption_3_5(model, page["mu"], [ALPHA, BETA])


def test_with_independent_columns_the_prompt_is_all_ones_and_this_is_theorem_3_3_with_one_more_mask():
    full = non_degenerate_hmm(3, 3, seed=0, zeros=0.0)
    mu = torch.tensor([1.0, -0.7, -0.2], dtype=torch.float64)
    prompt, head = theorem_3_6(full, mu, [0, 1, 2])
    x = possible_inputs(full, 3)
    with_two_masks = masked_token_probs(full, shifted(x, 2))[:, 1]

    assert prompt.tolist() == [1, 1, 1]
    assert torch.allclose(at_gap(full, x, prompt), with_two_masks, atol=1e-14)
    assert torch.equal(head(with_two_masks) >= 0, ground_truth(full, mu, x) >= 0)


# The derivation


def test_counted_and_computed_shares_agree_as_far_as_so_many_draws_can_tell(page):
    standard_error = (0.25 / page["kept"].sum()) ** 0.5

    assert (page["counted"] - page["computed"]).abs().max() < 6 * standard_error
    assert page["kept"].sum() > 10_000


def test_without_the_prompt_the_shares_would_be_others(page, model):
    without = at_gap(model, page["text"][None], ONES)[0]

    assert (page["counted"] - without).abs().max() > 0.02


@pytest.mark.parametrize("prompt", [[0.0, 0.0, 1.0, 0.0], [0.9, 0.1, 0.5, 0.3], [1.0, 0.0, 0.2, 0.0]])
def test_a_prompt_multiplies_the_belief_in_each_state_by_a_factor_that_is_the_same_for_every_text(model, x, prompt):
    prompt = torch.tensor(prompt, dtype=torch.float64)
    factors = model.transition @ (prompt * model.marginal(1)) / model.initial
    multiplied = factors * posterior(model, x)
    occurs = multiplied.sum(1) > 0
    belief = latent_given_others(model, shifted(x, 1), prompt)[:, 1]
    expected = multiplied[occurs] / multiplied[occurs].sum(1, keepdim=True)

    assert torch.allclose(belief[occurs], expected, atol=1e-13)
    assert torch.allclose(at_gap(model, x, prompt)[occurs], expected @ model.emission.T, atol=1e-13)


def test_both_sides_of_equation_3_3_agree_on_the_page(page):
    occurs = page["occurs"]

    assert page["off"] < 1e-14
    assert occurs.sum() == 44


def test_the_factors_are_proportional_to_c_zero_at_gamma_and_delta_and_alpha_and_beta_grow(page, model):
    c = page["c"]
    before = page["h0"][page["chosen"]]

    assert (model.initial == 0.25).all()
    assert not c[[GAMMA, DELTA]].any()
    assert (c[[ALPHA, BETA]] > 0).all()
    assert (page["multiplied"][:2] > before[:2]).all()
    assert (before[2:] > 0).all()


def test_the_head_of_step_3_is_that_of_the_theorem(page, model):
    left_inverse = torch.linalg.pinv(model.emission[:, :2])
    b = left_inverse.T @ (page["mu"] / lemma_c_2(model, page["prompt"]))[:2]

    assert torch.allclose(b, page["head"].weights, atol=1e-12)


def test_the_score_is_the_target_times_the_factor_of_step_2_up_to_a_constant(page, model, x):
    occurs = page["occurs"]
    ratio = page["head"](page["left"][occurs]) / page["target"][occurs]

    assert (ratio > 0).all()
    assert torch.allclose(ratio, page["r"] / page["c"].sum())


@pytest.mark.parametrize("length", range(1, 7))
def test_one_prompt_and_one_head_are_right_for_texts_of_any_length(page, model, length):
    texts = possible_inputs(model, length)
    labels = ground_truth(model, page["mu"], texts) >= 0

    assert torch.equal(page["head"](at_gap(model, texts, page["prompt"])) >= 0, labels)


def test_prompt_and_text_exclude_each_other_exactly_where_a_text_begins_with_token_2(page, model, x):
    begins_with_2 = x[:, 0] == 2
    probs = at_gap(model, x, page["prompt"])

    assert (model.emission[2] > 0).tolist() == [True, True, False, False]
    assert (model.transition[:2] > 0).any(0).tolist() == [False, False, True, True]
    assert torch.equal(begins_with_2, ~probs.any(1))
    assert not posterior(model, x)[begins_with_2, :2].any()


def test_these_16_texts_have_score_and_target_0_and_so_label_1(page, model, x):
    begins_with_2 = x[:, 0] == 2

    assert begins_with_2.sum() == 16
    assert not ground_truth(model, page["mu"], x)[begins_with_2].any()
    assert not page["head"](at_gap(model, x, page["prompt"]))[begins_with_2].any()
    assert page["labels"][begins_with_2].all()
