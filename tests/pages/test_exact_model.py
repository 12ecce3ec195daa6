"""What the page on the exact model says, from the stored trials, the models, and the page's own chain."""

import numpy as np
import pytest
import torch
from lessons import run
from pandas import DataFrame
from record import slow
from scipy.optimize import minimize

from hmmbook import TrialSpec, draw_model, load_result, mean_ci, result_path
from hmmbook.experiments.intervals import Interval
from hmmbook.experiments.parts import trial_seeds
from hmmbook.experiments.presets import LADDER_NUMBERS, PRESETS
from hmmbook.experiments.store import STORE
from hmmbook.studies.kept_states import KEPT, belief_by_label, factors_of, fitting_share, shares_by_token
from hmmbook.studies.least_loss import least_loss_head
from hmmbook.studies.mechanism import tables
from hmmlib import MASK, essential_states, masked_token_probs
from hmmlib.training import bert

SIZES = [4, 8, 10, 15, 25, 30]


@pytest.fixture(scope="module")
def page() -> dict:
    """The page as it is read, but for its network, which is hardly trained here."""
    return run("exact-model", preset="quick", steps=2)


@pytest.fixture(scope="module")
def trials(page) -> DataFrame:
    return page["trials"]


@pytest.fixture(scope="module")
def means(trials) -> DataFrame:
    return trials.groupby("n_states").mean(numeric_only=True)


@pytest.fixture(scope="module")
def theorem() -> dict[int, DataFrame]:
    """Accuracies on the chains on which Theorem 3.6 has a prompt once rare steps are ignored, by their size."""
    return {n_states: tables.theorem(n_states) for n_states in (15, 25, 30)}


def lead_in_points(trials: DataFrame, n_states: int, first: str, second: str) -> Interval:
    rows = trials[trials.n_states == n_states]
    return mean_ci(100 * (rows[first] - rows[second]), share=False)


def percent(share: float) -> str:
    return f"{share:.0%}"


# Prompts and heads on exact predictions


def test_there_are_twenty_chains_of_each_size(trials):
    assert trials.groupby("n_states").size().to_dict() == dict.fromkeys(SIZES, 20)


def test_one_prompt_vector_is_right_on_96_and_91_percent_and_above_90_at_every_size(means):
    assert percent(means.ladder_prompt_accuracy[25]) == "96%"
    assert percent(means.ladder_prompt_accuracy[30]) == "91%"
    assert means.ladder_prompt_accuracy.min() > 0.9


def test_a_fully_fitted_head_is_at_96_percent_or_more_up_to_15_states_then_at_89_and_76(means):
    fitted = means["fully fitted head"]

    assert fitted[[4, 8, 10, 15]].min() > 0.955
    assert [percent(fitted[n]) for n in (15, 25, 30)] == ["96%", "89%", "76%"]


def test_a_tuned_head_falls_from_99_percent_at_4_states_to_75_at_30(means):
    tuned = means.ladder_head_accuracy

    assert (percent(tuned[4]), percent(tuned[30])) == ("99%", "75%")
    assert tuned.idxmin() == 30


def test_the_more_frequent_label_is_on_62_to_71_percent(means):
    assert (percent(means.majority_rate.min()), percent(means.majority_rate.max())) == ("62%", "71%")


def test_up_to_15_states_the_fully_fitted_head_is_ahead_in_the_mean_and_then_the_prompt(trials):
    leads = {}
    for n_states in SIZES:
        leads[n_states] = lead_in_points(trials, n_states, "ladder_prompt_accuracy", "fully fitted head")

    assert all(leads[n_states].mean < 0 for n_states in (4, 8, 10, 15))
    assert f"{leads[25]:.1f}" == "7.5 [4.4, 10.6]"
    assert f"{leads[30]:.1f}" == "15.2 [12.1, 18.3]"


def test_from_8_states_on_the_prompt_is_ahead_of_the_tuned_head(trials):
    for n_states in SIZES:
        lead = lead_in_points(trials, n_states, "ladder_prompt_accuracy", "ladder_head_accuracy")
        assert (lead.low > 0) == (n_states >= 8)


def test_heads_and_prompts_are_tuned_in_twenty_passes_on_4000_texts_and_tried_on_1000(trials):
    numbers = LADDER_NUMBERS["quick"]

    assert (numbers["epochs"], numbers["train"], numbers["test"]) == (20, 4000, 1000)
    assert set(trials.n_tokens) == {10}
    assert (set(trials.train), set(trials.test)) == ({4000}, {1000})


# The theorem's prompt


def test_every_state_has_11_successors_or_more_with_25_and_30_states_and_most_steps_are_rare():
    for n_states in (25, 30):
        for seed in range(20):
            steps = draw_model(TrialSpec("quick", n_states, seed)).transition
            assert (steps > 0).sum(0).min() >= 11
            assert (steps[steps > 0] < 1e-3).double().mean() > 0.7


def test_as_stated_the_theorem_has_no_prompt_for_any_chain_with_25_or_30_states(trials):
    n_prompts = trials.groupby("n_states").built_prompt_accuracy.count()

    assert n_prompts.to_dict() == {4: 20, 8: 20, 10: 19, 15: 12, 25: 0, 30: 0}


def test_without_rare_steps_the_theorem_has_a_prompt_on_14_16_and_10_of_20_chains(theorem):
    assert {n_states: len(table) for n_states, table in theorem.items()} == {15: 14, 25: 16, 30: 10}


def test_at_30_states_the_theorems_prompt_accounts_for_the_lead(theorem):
    shares = theorem[30]
    lead = mean_ci(shares["theorem's prompt, fitted head"] - shares["fitted head alone"], share=False)

    assert percent(shares["theorem's prompt, fitted head"].mean()) == "91%"
    assert percent(shares["tuned prompt, tuned head"].mean()) == "91%"
    assert percent(shares["fitted head alone"].mean()) == "77%"
    assert percent(shares["random prompts, fitted heads"].mean()) == "80%"
    assert percent(shares["best random prompt, fitted head"].mean()) == "93%"
    assert lead.low > 0


def test_at_25_states_it_does_not_and_its_lead_may_be_chance(theorem):
    shares = theorem[25]
    lead = mean_ci(shares["theorem's prompt, fitted head"] - shares["fitted head alone"], share=False)

    assert percent(shares["theorem's prompt, fitted head"].mean()) == "92%"
    assert percent(shares["tuned prompt, tuned head"].mean()) == "97%"
    assert percent(shares["fitted head alone"].mean()) == "90%"
    assert percent(shares["random prompts, fitted heads"].mean()) == "87%"
    assert percent(shares["best random prompt, fitted head"].mean()) == "97%"
    assert lead.low < 0 < lead.high


def test_at_15_states_all_five_are_above_95_percent(theorem):
    drawn = [
        "fitted head alone",
        "random prompts, fitted heads",
        "best random prompt, fitted head",
        "theorem's prompt, fitted head",
        "tuned prompt, tuned head",
    ]
    assert theorem[15][drawn].mean().min() > 0.95


def test_the_head_of_the_proof_is_right_on_72_and_61_percent_and_a_head_alone_on_more(theorem):
    expected = {25: "72%", 30: "61%"}
    for n_states, share in expected.items():
        means = theorem[n_states].mean()
        assert percent(means["theorem's prompt and head"]) == share
        assert means["theorem's prompt and head"] < means["fitted head alone"]


# One chain


def test_the_chain_is_none_of_the_twenty_and_the_theorem_has_no_prompt_for_its_task(page):
    assert 0 not in [trial_seeds(seed)["model"] for seed in range(20)]
    assert essential_states(page["chain"], page["task"].mu) is None


def test_on_this_chain_the_prompt_leads_the_fully_fitted_head_by_18_points(page):
    shares = page["shares"]

    assert [percent(share) for share in list(shares.values())[:3]] == ["94%", "69%", "75%"]
    assert round(100 * (shares["tuned prompt and head"] - shares["fully fitted head"])) == 18


def test_without_the_penalty_no_lower_loss_is_found_and_the_tuned_heads_loss_is_higher(page):
    probs = page["train"].numpy()
    labels = page["task"].train.labels
    signs = np.where(labels, 1, -1)

    def loss(weights) -> float:
        return np.logaddexp(0, -signs * (probs @ weights)).mean()

    least = loss(least_loss_head(page["train"], labels).numpy())
    assert least < minimize(loss, np.zeros(10), method="BFGS").fun + 1e-5
    assert loss(page["tuned_head"].weights.detach().numpy()) > least + 0.05


def test_in_the_chain_each_state_emits_mostly_one_token_and_several_share_it(page):
    emission = page["chain"].emission

    assert emission.amax(0).mean() > 0.9
    assert emission.argmax(0).bincount().max() >= 3


def test_the_prompt_keeps_12_of_30_states_and_three_of_the_six_that_have_a_weight(page):
    kept = factors_of(page["chain"], page["prompt"]) > KEPT
    weighed = page["task"].mu != 0

    assert len(kept) == 30
    assert kept.sum() == 12
    assert weighed.sum() == 6
    assert (kept & weighed).sum() == 3


def test_at_most_two_states_of_a_token_are_kept_and_their_colours_agree(page):
    kept = factors_of(page["chain"], page["prompt"]) > KEPT
    of_label_1, of_label_0 = belief_by_label(page["task"])
    tokens = page["chain"].emission.argmax(0)

    for token in range(10):
        blue = (of_label_1 > of_label_0)[kept & (tokens == token)]
        assert len(blue) <= 2
        assert len(blue.unique()) <= 1


def test_of_the_three_states_of_the_shaded_token_6_only_a_blue_one_is_kept(page):
    assert page["watched_token"] == 6
    kept = factors_of(page["chain"], page["prompt"]) > KEPT
    of_label_1, of_label_0 = belief_by_label(page["task"])
    of_token_6 = page["chain"].emission.argmax(0) == 6

    assert of_token_6.sum() == 3
    assert (kept & of_token_6).sum() == 1
    assert (of_label_1 > of_label_0)[kept & of_token_6].all()


def test_before_the_prompt_98_percent_of_the_belief_in_each_kept_state_is_in_texts_of_one_label(page):
    kept = factors_of(page["chain"], page["prompt"]) > KEPT
    beliefs = torch.stack(belief_by_label(page["task"]))

    assert (beliefs.amax(0) / beliefs.sum(0))[kept].min() > 0.98


def test_one_label_for_each_token_fits_71_percent_of_the_belief_and_90_behind_the_prompt(page):
    chain, task, prompt = page["chain"], page["task"], page["prompt"]
    before = shares_by_token(chain, task, torch.ones_like(prompt))
    after = shares_by_token(chain, task, prompt)

    assert percent(fitting_share(before)) == "71%"
    assert percent(fitting_share(after)) == "90%"
    assert f"{before[0][6] / (before[0][6] + before[1][6]):.1f}" == "0.7"
    assert f"{after[0][6] / (after[0][6] + after[1][6]):.1f}" == "1.0"


def test_the_prediction_by_3_3_is_that_of_messages(page):
    texts = page["task"].tokens[:50]
    by_messages = masked_token_probs(page["chain"], texts, page["prompt"])[:, 1]
    by_3_3 = page["G_2"](page["task"].posteriors[:50]).detach()

    assert torch.allclose(by_3_3, by_messages, atol=1e-9)


# The network


def test_the_network_of_the_page_has_learned_nine_tenths_and_is_about_02_nats_from_the_exact_distribution():
    stored = load_result(result_path(TrialSpec("quick", 30, seed=0), STORE))
    learned = (stored.frequency_loss - stored.network_loss) / (stored.frequency_loss - stored.best_loss)

    assert 0.85 < learned < 0.95
    assert 0.1 < stored.divergence < 0.3
    assert (PRESETS["quick"]["layers"], PRESETS["quick"]["width"], PRESETS["quick"]["steps"]) == (2, 64, 400)
    assert (PRESETS["paper"]["layers"], PRESETS["paper"]["width"]) == (6, 768)


def test_pretraining_takes_half_a_minute(trials):
    assert 20 < trials["seconds.pretraining"].median() < 40


@slow
def test_the_loss_reaches_the_frequencies_in_a_dozen_steps_rests_until_140_and_falls_from_150_to_260():
    whole = run("exact-model", preset="quick")
    losses = np.array(whole["losses"])
    worst = whole["frequencies"]
    means_of_ten = losses.reshape(-1, 10).mean(1)
    way = worst - whole["least"]
    own, of_another = whole["divergences"]

    assert abs(losses[12:15].mean() - worst) < 0.1 < losses[0] - worst
    assert abs(losses[15:60].mean() - worst) < 0.02
    assert 0.08 < worst - losses[70:150].mean() < 0.2
    assert abs(means_of_ten[2:14] - worst).max() < 0.2 < worst - means_of_ten[15]
    assert (means_of_ten[15] - means_of_ten[26]) / way > 0.5
    assert losses[260:280].mean() < 0.6
    assert 0.85 < (worst - whole["loss"]) / way < 0.96
    assert 0.1 < own < 0.3
    assert of_another > 10 * own


# Checks and exercises


def test_a_random_prompt_is_not_shown_to_be_better_than_none_and_by_less_than_one_point(trials):
    gains = mean_ci(trials.untrained_prompt_accuracy - trials.head_accuracy, share=False)

    assert len(trials) == 120
    assert gains.low < 0 < gains.high < 0.01


def test_from_the_belief_in_h_0_the_prediction_is_that_of_messages_and_from_that_in_h_1_it_is_not(page):
    by_messages = page["by_messages"]
    of_belief_in_h_0 = page["probs_behind_prompt"](page["tiny"], page["belief"], page["u"])
    of_belief_in_h_1 = page["probs_behind_prompt"](page["tiny"], page["belief_in_h_1"], page["u"])

    assert torch.allclose(of_belief_in_h_0, by_messages, atol=1e-12)
    assert (of_belief_in_h_1 - by_messages).abs().max() > 0.1


def test_in_exercise_1_the_mean_column_of_w_gives_the_height_of_the_line(page):
    model = page["model"]

    assert torch.allclose(model.transition.sum(1), torch.ones(30).double())
    assert page["predicted"] == pytest.approx(page["frequencies"], abs=0.05)
    assert page["predicted"] < np.log(10)


def test_in_exercise_2_one_vector_does_what_twenty_do(page):
    assert torch.allclose(page["behind_twenty"], page["behind_one"], atol=1e-9)


def test_the_protocols_numbers_of_chunks_steps_and_masks_follow_from_the_presets():
    paper = TrialSpec("paper")
    scripts = TrialSpec("released-code")
    n_chunks = paper.documents * paper.document_length // paper.length

    assert n_chunks == 100_000
    assert 3 * n_chunks / paper.batch == paper.steps == 37_500
    for share, length, expected in ((paper.masked, 512, 26), (PRESETS["quick"]["masked"], 64, 10)):
        texts = torch.zeros(9, length, dtype=torch.int64)
        masked, _ = bert.mask_some(texts, share, torch.Generator())
        assert set((masked == MASK).sum(1).tolist()) == {expected}
    assert -(-paper.train // paper.tuning_batch) * paper.epochs == 3125
    assert -(-scripts.train // scripts.tuning_batch) * scripts.epochs == 4000
    assert (paper.tuning_batch, scripts.tuning_batch) == (8, 128)
    assert scripts.task_length - 1 == 79
    assert scripts.task_length - 1 - scripts.prompt_length == 59
