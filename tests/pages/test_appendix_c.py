"""What the page on appendix C says, from its models and from sums over all paths."""

import numpy as np
import pytest
import torch
from lessons import run

from hmmbook.evidence import ledger
from hmmbook.evidence.enumeration import Joint
from hmmbook.evidence.random_models.instances import all_inputs, shifted, unscaled
from hmmlib import (
    HMM,
    MASK,
    Impossible,
    aggregated_messages,
    assumption_3_5,
    essential_twins,
    fit_or_refute,
    ground_truth,
    latent_given_others,
    lemma_c_2,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    posterior,
    prompted,
    theorem_3_6,
)
from hmmlib.inference import reference

ROUNDING = 1e-14
POSITIONS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def page() -> dict:
    return run("appendix-c", instances=5)


@pytest.fixture(scope="module")
def paths(page) -> Joint:
    """Pr(x_1, …, x_4, h_0, …, h_4) of the first model."""
    return Joint(page["A"], page["W"], page["p0"], [None] * 4)


@pytest.fixture(scope="module")
def by_hand(page) -> tuple[dict, dict]:
    """The page's messages along its text."""
    return page["messages"](page["model"], page["v"])


def probability(paths: Joint, tokens: dict[int, int], i: int) -> np.ndarray:
    """P[H_i, some tokens], where `tokens` gives the token at each of some positions."""
    table = paths.of(*(f"x{k}" for k in tokens), f"h{i}")
    return table[tuple(tokens.values())]


def tokens_at(page, positions) -> dict[int, int]:
    return {k: page["x"][k - 1].item() for k in positions}


def close(computed, exact, bound=ROUNDING):
    np.testing.assert_allclose(computed, exact, rtol=0, atol=bound)


# The picture, and the messages


def test_the_halves_multiplied_over_the_prior_are_the_belief_given_both(page):
    close(page["joined"], page["beliefs"]["both halves"], 1e-12)


def test_the_message_to_the_right_is_the_state_and_the_tokens_before(page, paths, by_hand):
    right, _ = by_hand
    for i in POSITIONS:
        close(right[i], probability(paths, tokens_at(page, range(1, i)), i))


def test_the_message_to_the_left_is_the_state_and_the_tokens_after(page, paths, by_hand):
    _, left = by_hand
    for i in POSITIONS:
        close(left[i], probability(paths, tokens_at(page, range(i + 1, 5)), i))


def test_the_reference_passes_the_same_messages(page, by_hand):
    right, left = by_hand
    _, to_left, to_right = reference.left_and_right(page["model"], page["v"][None])
    for i in POSITIONS:
        close(to_right[i, :, 0], right[i])
        close(to_left[i, :, 0], left[i])


def test_tau_is_the_state_and_all_other_tokens(page, paths):
    for i in POSITIONS:
        others = tokens_at(page, [k for k in POSITIONS if k != i])
        close(page["taus"][i - 1], probability(paths, others, i))


def test_tau_is_the_librarys(page):
    v = page["v"][None]

    close(torch.stack(page["taus"]), unscaled(*aggregated_messages(page["model"], v))[0])
    close(torch.stack(page["taus"]), reference.tau(page["model"], v)[0])


def test_the_first_and_the_last_case_agree_with_the_middle_one(page, by_hand):
    right, left = by_hand

    close(page["taus"][0], left[1], 1e-15)
    close(page["taus"][3], right[4], 1e-15)


def test_the_output_is_the_distribution_of_the_left_out_token(page, paths):
    tokens = paths.of("x1", "x2", "x3", "x4")
    for i in POSITIONS:
        others = [slice(None) if k == i else page["x"][k - 1].item() for k in POSITIONS]
        joint = tokens[tuple(others)]
        close(page["G"][i - 1], joint / joint.sum())


def test_the_output_by_hand_is_the_librarys(page):
    close(page["G"], page["by_library"], 1e-12)
    close(page["G"], masked_token_probs_from_embeddings(page["model"], page["v"][None])[0], 1e-12)


def test_a_small_number_in_front_changes_nothing_and_zero_makes_the_output_zero(page):
    for size in (1.0, 1e-6, 1e-300):
        evidence = torch.tensor([[[size, 0.0], [1.0, 1.0]]], dtype=torch.float64)
        close(masked_token_probs_from_embeddings(page["sticky"], evidence)[0, 1], [0.9, 0.1])
    nothing = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]], dtype=torch.float64)

    assert not masked_token_probs_from_embeddings(page["sticky"], nothing)[0, 1].any()


# Lemma C.1


def test_nothing_is_observed_at_a_gap(page):
    assert (page["hat_e"][0, 1] == 1).all()


def test_another_embedding_of_the_gap_changes_all_outputs_but_its_own(page):
    moved = page["hat_e"].clone()
    moved[0, 1] = torch.tensor([0.1, 0.9, 0.5])

    before = masked_token_probs_from_embeddings(page["model"], page["hat_e"])[0]
    after = masked_token_probs_from_embeddings(page["model"], moved)[0]

    change = (after - before).abs().amax(1)
    assert change[1] == 0
    assert (change[[0, 2, 3]] > 1e-3).all()


def test_the_emissions_at_position_1_have_one_row_more_and_columns_that_sum_to_1(page):
    assert page["first"].shape == (4, 3)
    close(page["first"].sum(0), 1)
    close(page["hat"].sum(), 1)


def test_tau_with_a_prompt_is_the_state_and_all_other_tokens_of_the_process(page):
    close(page["tau"], page["sums"])  # (C.2)
    close(unscaled(*aggregated_messages(page["model"], page["hat_e"]))[0], page["sums"])


def test_it_is_not_if_the_process_emits_alike_at_every_step(page):
    assert abs(page["tau"] - page["alike"]).max() > 0.04


def test_behind_the_prompt_the_output_is_the_distribution_of_the_token(page):
    hat = page["hat"].sum((4, 5, 6, 7))  # Pr(x̂_1, …, x̂_4)
    for i, joint in ((2, hat[3, :, 1, 2]), (3, hat[3, :, :, 2].sum(0)), (4, hat[3, :, 1, :].sum(0))):
        close(page["outputs"][i - 1], joint / joint.sum())


def test_at_the_prompt_the_output_is_what_h1_would_emit_by_w_and_no_distribution_of_the_token(page):
    tau = page["sums"][0]
    hat_token = page["at_1"] / page["at_1"].sum()

    close(page["outputs"][0], page["W"] @ tau / tau.sum())
    assert abs(page["outputs"][0].numpy() - hat_token[:3]).max() > 0.1
    assert hat_token[3] > 0


# Lemma C.2


def test_c_weighs_by_the_prompt_and_takes_one_step(page):
    c = page["hat"][3].sum((0, 1, 2, 3, 5, 6))  # Pr(z̃, h_2)
    u = page["u"]

    close(page["A"] @ (u * (page["A"] @ page["p0"])), c)
    close(lemma_c_2(page["model"], torch.as_tensor(u)), c / page["p0"])


def test_prompt_and_text_multiply(page):
    close(page["left_side"], page["right_side"])
    assert page["r"] > 0


def test_the_output_at_the_gap_is_w_times_their_product(page):
    close(page["outputs"][1], page["W"] @ page["right_side"])  # (3.3)


# Theorem 3.6


def test_the_prompt_can_be_followed_by_h_star_alone(page):
    assert page["c"].nonzero().flatten().tolist() == page["essential"] == [0, 1]
    assert page["prompt"].nonzero().flatten().tolist() == [2]
    assert (page["chain"].n_states, page["chain"].n_tokens) == (4, 3)


def test_the_latent_distribution_has_its_support_there(page):
    latent = latent_given_others(page["chain"], page["after_gap"], page["prompt"])[:, 1]
    possible = posterior(page["chain"], page["inputs"]).sum(1) > 0
    Dv = page["Dv"]

    assert (latent[:, 2:] == 0).all()
    assert (Dv[:, 2:] == 0).all()
    scaled = Dv / Dv.sum(1, keepdim=True).where(Dv.any(1, keepdim=True), 1)
    close(scaled[possible], latent[possible], 1e-12)


def test_the_left_inverse_undoes_w_on_that_support(page):
    close(page["undone"], page["Dv"])


def test_the_printed_display_has_as_many_entries_as_there_are_tokens(page):
    assert page["undone"][0].numel() == 4
    assert (page["chain"].emission @ page["Dv"][0]).numel() == 3


def test_the_prompt_and_the_head_are_those_of_theorem_3_6(page):
    prompt, head = theorem_3_6(page["chain"], page["mu"], page["essential"])

    assert torch.equal(prompt, page["prompt"])
    close(page["b"], head.weights, 1e-12)


def test_where_prompt_and_text_can_occur_together_the_score_is_a_positive_multiple_of_the_target(page):
    possible = posterior(page["chain"], page["inputs"]).sum(1) > 0

    assert (page["ratio"] > 0).all()
    assert possible[page["together"]].all()


def test_where_they_exclude_each_other_score_and_target_are_0(page):
    possible = posterior(page["chain"], page["inputs"]).sum(1) > 0
    apart = possible & ~page["together"]

    assert apart.any()
    assert (page["score"][apart] == 0).all()
    assert (page["target"][apart] == 0).all()


def test_of_the_texts_in_the_table_one_has_each_label_and_the_third_excludes_the_prompt(page):
    inputs = page["inputs"].tolist()
    positive, negative, excluded = (inputs.index(text) for text in ([1, 0, 0], [0, 0, 0], [2, 0, 0]))

    assert page["target"][positive] > 0
    assert page["target"][negative] < 0
    assert not page["together"][excluded]
    assert posterior(page["chain"], page["inputs"])[excluded].sum() > 0


def test_the_head_is_right_from_a_start_that_misses_states_if_h1_is_positive_on_the_sources(page):
    chain = HMM(page["chain"].transition, page["chain"].emission, [0.5, 0.5, 0.0, 0.0])
    texts = page["inputs"][posterior(chain, page["inputs"]).sum(1) > 0]
    c = chain.transition @ (page["prompt"] * chain.marginal(1))
    b = (page["mu"] * torch.where(c > 0, chain.initial / c, 0)) @ page["inverse"]

    scores = masked_token_probs(chain, shifted(texts, 1), page["prompt"])[:, 1] @ b
    targets = ground_truth(chain, page["mu"], texts)

    assert chain.marginal(1).nonzero().flatten().tolist() == [2, 3]
    close(scores.sign(), targets.sign())
    assert {-1, 1} <= set(targets.sign().tolist())


def test_a_positive_multiple_of_a_prompt_gives_the_same_outputs_behind_it(page):
    text = torch.tensor([[MASK, 1, 2]])
    once = prompted(page["model"], page["u"], text)
    tripled = once.clone()
    tripled[:, 0] *= 3

    outputs = [masked_token_probs_from_embeddings(page["model"], e)[0, 1:] for e in (once, tripled)]

    close(*outputs)


# More on Theorem 3.6


@pytest.mark.parametrize("name", ["chain", "twins"])
def test_the_sets_of_part_3_are_exactly_those_to_which_a_prompt_can_confine_the_state(page, name):
    chain = {"chain": page["chain"], "twins": essential_twins(0)}[name]
    patterns = all_inputs(2, 4).double()
    reached = set()
    for prompt in patterns:
        possible = chain.transition @ (prompt * chain.marginal(1)) > 0
        reached.add(tuple(possible.tolist()))

    assert (chain.marginal(1) > 0).all()
    assert 2 < len(reached) < 16
    for states in patterns[1:]:
        members = states.nonzero().flatten().tolist()
        satisfies_part_3 = not assumption_3_5(chain, states, members).unreached
        assert satisfies_part_3 == (tuple(states.bool().tolist()) in reached)


def test_the_task_on_alpha_alone_breaks_only_part_3_and_no_prompt_and_head_are_right():
    twins = essential_twins(0)
    mu = torch.tensor([-1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    pair = torch.tensor([[1], [2]])
    report = assumption_3_5(twins, mu, [0])

    assert report.columns
    assert not report.uncovered
    assert report.unreached == (0,)
    assert (ground_truth(twins, mu, pair) >= 0).tolist() == [False, True]
    for prompt in all_inputs(2, 4).double():
        probs = masked_token_probs(twins, shifted(pair, 1), prompt)[:, 1]
        assert isinstance(fit_or_refute(probs, [False, True]), Impossible)


def test_the_factor_is_one_over_a_mean_of_the_entries_of_Dc_so_it_is_bounded_below_and_grows_as_little_is_left(page):
    together = page["together"]
    belief = posterior(page["chain"], page["inputs"])[together]
    factors = lemma_c_2(page["chain"], page["prompt"])
    left_on_the_set = belief[:, page["essential"]].sum(1)

    close(1 / page["ratio"], belief @ factors)
    assert page["ratio"].min() >= 1 / factors.max()
    assert page["ratio"].argmax() == left_on_the_set.argmin()
    assert not posterior(page["chain"], page["inputs"])[~together][:, page["essential"]].any()


# Checks and exercises


@pytest.mark.parametrize("name", ["Lemma C.1", "Lemma C.2", "Assumption 3.5"])
def test_the_ledger_finds_the_statement_as_recorded(name):
    entry = ledger.run(ledger.find(name), 20, seed=0)

    assert entry.as_recorded
    assert entry.control_fails == entry.control_instances


def test_a_single_token_has_its_prior_for_output(page):
    model = page["model"]
    one_token = model.embed(torch.tensor([[2]]))[0]
    right, left = page["messages"](model, one_token)
    marginal = page["A"] @ page["p0"]

    for case in (right[1], left[1], page["aggregate"](model, right, left, 1)):
        close(case, marginal)
    close(masked_token_probs_from_embeddings(model, one_token[None])[0, 0], page["W"] @ marginal)


def test_one_prompt_does_what_two_do(page):
    close(page["twice"], page["once"], 1e-12)


def test_two_prompts_confine_the_state_to_no_other_sets_than_one(page):
    chain = page["chain"]
    supports = all_inputs(2, 4).double()
    single = [chain.transition @ (u * chain.marginal(1)) for u in supports]
    double = [chain.transition @ (u * c) for u in supports for c in single]

    sets_of_one = {tuple((c > 0).tolist()) for c in single}
    sets_of_two = {tuple((c > 0).tolist()) for c in double}

    assert sets_of_one == sets_of_two
    assert len(sets_of_one) == 5


def test_the_target_is_the_weighted_posterior_before_the_text(page):
    expected = posterior(page["chain"], page["inputs"]) @ page["mu"]

    close(ground_truth(page["chain"], page["mu"], page["inputs"]), expected)
    close(masked_token_probs(page["chain"], page["after_gap"], page["prompt"])[:, 1] @ page["b"], page["score"])
