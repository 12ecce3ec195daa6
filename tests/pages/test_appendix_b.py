"""What the page on appendix B says, from its models."""

import pytest
import torch
from lessons import run

from hmmbook.evidence import ledger
from hmmbook.evidence.random_models.instances import all_inputs, shifted
from hmmlib import (
    HMM,
    Impossible,
    assumption_3_1,
    assumption_3_2,
    claim_b_1,
    fit_or_refute,
    hidden_twins,
    log_likelihood,
    masked_token_probs,
    posterior,
    theorem_3_3,
)

ROUNDING = 1e-12


@pytest.fixture(scope="module")
def page() -> dict:
    return run("appendix-b", instances=5)


def odds(posteriors: torch.Tensor) -> torch.Tensor:
    return posteriors[:, 1] / posteriors[:, 0]


def odds_of_late_start(model: HMM, inputs: torch.Tensor, steps: int) -> torch.Tensor:
    return odds(posterior(model, shifted(inputs, steps), at=steps))


# The picture and the claim


def test_there_are_32_texts_of_five_tokens_and_two_states(page):
    assert page["texts"].shape == (32, 5)
    assert page["model"].n_states == 2


def test_all_points_lie_on_one_line_through_the_origin_of_slope_035(page):
    slopes = page["later_odds"] / page["odds"]

    assert torch.allclose(slopes, slopes[0].expand(32), rtol=ROUNDING)
    assert round(slopes[0].item(), 2) == 0.35


def test_the_slope_is_the_quotient_of_the_second_and_first_entry_of_d(page):
    D = claim_b_1(page["model"], 1)

    assert (D[1] / D[0]).item() == pytest.approx((page["later_odds"] / page["odds"])[0].item(), abs=ROUNDING)


def test_another_start_gives_another_slope_and_still_one_line(page):
    model = page["model"]
    even = HMM(model.transition, model.emission, [0.5, 0.5])

    slopes = odds_of_late_start(even, page["texts"], 1) / odds(posterior(even, page["texts"]))

    assert torch.allclose(slopes, slopes[0].expand(32), rtol=ROUNDING)
    assert abs(slopes[0].item() - 0.35) > 0.1


def test_both_sides_of_claim_b_1_agree(page):
    assert torch.allclose(page["left_side"], page["right_side"], atol=ROUNDING, rtol=0)
    assert torch.equal(page["left_side"], page["later_belief"])


def test_from_one_state_only_the_sides_differ(page):
    assert assumption_3_2(page["from_one_state"]).start_support == 1
    assert (page["control_left"] - page["control_right"]).abs().max() > 0.5


def test_the_rows_of_the_table_are_of_the_texts_beside_them(page):
    for text in ("00000", "01010", "11111"):
        assert page["texts"][int(text, 2)].tolist() == list(map(int, text))


def test_b_takes_the_output_at_the_gap_to_the_posterior_before_the_text(page):
    model = page["model"]
    output = masked_token_probs(model, page["later_texts"])[:, 0]
    r = (log_likelihood(model, page["texts"]) - log_likelihood(model, page["later_texts"])).exp()

    assert torch.allclose(output @ page["B"].T, r[:, None] * page["belief"], atol=ROUNDING)  # (B.1)
    assert (r > 0).all()


def test_the_head_of_the_page_is_that_of_theorem_3_3(page):
    expected = theorem_3_3(page["model"], page["mu"]).weights

    assert torch.allclose(page["b"], expected, atol=ROUNDING)


def test_it_is_right_on_every_text_and_both_labels_occur(page):
    assert torch.equal(page["answers"], page["labels"])
    assert page["labels"].any()
    assert not page["labels"].all()


# What the proof needs


@pytest.mark.parametrize(
    ("name", "task", "length"),
    [("periodic", [1.0, -0.5], 5), ("reducible", [1.0, -0.5], 5), ("misses", [1.0, -0.8, 3.0], 4)],
)
def test_the_head_is_right_for_a_chain_without_the_assumption(page, name, task, length):
    chain = page[name]
    inputs = all_inputs(chain.n_tokens, length)

    ratios = page["ratios"](chain, torch.tensor(task, dtype=torch.float64), inputs)

    assert not assumption_3_2(chain)
    assert (ratios > 0).all()


def test_h1_can_be_wherever_h0_can_in_these_chains(page):
    for name in ("periodic", "reducible", "misses"):
        chain = page[name]
        assert (chain.marginal(1)[chain.initial > 0] > 0).all()


def test_one_start_misses_a_state_and_the_two_others_do_not(page):
    started = {name: int((page[name].initial > 0).sum()) for name in ("periodic", "reducible", "misses")}

    assert started == {"periodic": 2, "reducible": 2, "misses": 2}
    assert page["misses"].n_states == 3


def test_one_chain_is_periodic_and_one_reducible(page):
    assert assumption_3_2(page["periodic"]).period == 2
    assert not assumption_3_2(page["reducible"]).irreducible


def test_the_chain_that_leaves_its_start_is_ergodic(page):
    verdict = assumption_3_2(page["leaves"])

    assert verdict.irreducible
    assert verdict.period == 1
    assert not verdict


def test_it_leaves_0_and_1_for_2_and_3_and_3_follows_only_1(page):
    leaves = page["leaves"]

    assert leaves.initial.nonzero().flatten().tolist() == [0, 1]
    assert leaves.marginal(1).nonzero().flatten().tolist() == [2, 3]
    assert leaves.transition[3].nonzero().flatten().tolist() == [1]
    assert torch.equal(leaves.emission, torch.eye(4, dtype=torch.float64))


def test_a_text_that_begins_with_token_3_can_follow_h0_but_never_h1(page):
    leaves = page["leaves"]
    begins = page["x"][page["x"][:, 0] == 3]

    assert len(begins) == 4
    assert (log_likelihood(leaves, begins) > -torch.inf).all()
    assert (log_likelihood(leaves, shifted(begins, 1)) == -torch.inf).all()


def test_there_its_output_is_zero_and_its_label_0_so_that_no_head_is_right(page):
    begins = page["x"][:, 0] == 3

    assert (page["g"][begins] == 0).all()
    assert not page["labels_of_x"][begins].any()
    assert isinstance(fit_or_refute(page["g"], page["labels_of_x"]), Impossible)


def test_full_row_rank_is_not_enough():
    twins = hidden_twins()
    texts = torch.tensor([[1], [2]])
    outputs = masked_token_probs(twins, shifted(texts, 1))[:, 0]
    labels = posterior(twins, texts) @ torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64) >= 0

    proof = fit_or_refute(outputs, labels)

    assert twins.n_states == 4
    assert torch.linalg.matrix_rank(twins.emission).item() == len(twins.emission) == 3
    assert not assumption_3_1(twins)
    assert labels.tolist() == [True, False]
    assert torch.allclose(outputs[0], outputs[1], atol=ROUNDING)
    assert isinstance(proof, Impossible)
    assert proof.positive.tolist() == pytest.approx([1])
    assert proof.negative.tolist() == pytest.approx([1])


# Checks and exercises


def test_the_ledger_finds_the_claim_as_recorded():
    entry = ledger.run(ledger.find("Claim B.1"), 20, seed=0)

    assert entry.as_recorded
    assert entry.grade == "holds"
    assert entry.control_fails == entry.control_instances


def test_for_i_0_d_is_the_identity_and_the_slope_is_1(page):
    assert claim_b_1(page["model"], 0).tolist() == [1, 1]
    assert page["rows"][0][2] == "1.0000"


def test_as_i_grows_the_slope_falls_to_a_twelfth(page):
    model = page["model"]
    limit = model.stationary() / model.initial

    slopes = [float(row[2]) for row in page["rows"]]

    assert slopes == sorted(slopes, reverse=True)
    assert (limit[1] / limit[0]).item() == pytest.approx(1 / 12)
    assert slopes[-1] == pytest.approx(1 / 12, abs=1e-4)
    assert model.stationary().tolist() == pytest.approx([0.75, 0.25])


def test_the_points_stay_on_the_line_however_late_the_text_starts(page):
    model = page["model"]
    for steps in (2, 5, 60):
        slopes = odds_of_late_start(model, page["texts"], steps) / page["odds"]
        D = claim_b_1(model, steps)
        assert torch.allclose(slopes, (D[1] / D[0]).expand(32), rtol=1e-10)
