"""The exact ladder: tuning on the exact Ḡ, and what the theorems build, for the law of the labels."""

from dataclasses import replace

import pytest
import torch

from hmmbook import draw_task, exact_trial
from hmmbook.experiments.exact_ladder import Built, ladder_plan, tune_on_exact_outputs
from hmmbook.experiments.presets import LADDER_NUMBERS
from hmmlib import HMM, LinearHead, Tuning, masked_token_probs, random_hmm
from hmmlib.training import tuning


def skewed_chain(n_states, seed):
    """A model of appendix E but for its start and temperature, so that the law of the labels makes a difference."""
    chain = random_hmm(n_states, 10, seed, temperature=0.1)
    weights = torch.arange(1, n_states + 1, dtype=torch.float64) ** 2
    return HMM(chain.transition, chain.emission, weights / weights.sum(), columns=True)


def probs_at_mask(model, task):
    return masked_token_probs(model, task.tokens)[:, 0]


@pytest.mark.parametrize(("rule", "other_rule"), [("masked", "before"), ("before", "masked")])
def test_what_the_theorems_build_is_right_for_the_law_of_the_labels_and_not_for_the_other(rule, other_rule):
    plan = Tuning(epochs=5, batch=64, head_rate=0.3, prompt_rate=0.1)
    mistaken_accuracies = []
    for seed in range(6):
        model = skewed_chain(4, seed)
        task = draw_task(model, 9, (300, 0, 400), seed, rule)
        probs = probs_at_mask(model, task)
        right = tune_on_exact_outputs(model, task, probs, plan, seed, rule)
        mistaken = tune_on_exact_outputs(model, task, probs, plan, seed, other_rule)
        assert right.refusal == ""
        for built in (right.theorem_3_3, right.theorem_3_6):
            assert built.accuracy_decided == 1
            assert built.decided > 0.9
        mistaken_accuracies.append(mistaken.theorem_3_3.accuracy_decided)
        mistaken_accuracies.append(mistaken.theorem_3_6.accuracy_decided)
    assert min(mistaken_accuracies) < 0.9


@pytest.fixture(scope="module")
def large():
    """Twenty states, whose labels a head alone cannot read."""
    model = skewed_chain(20, 5)
    task = draw_task(model, 17, (1500, 0, 500), 5, "masked")
    plan = Tuning(15, 128, 0.3, 0.1)
    return model, task, plan, tune_on_exact_outputs(model, task, probs_at_mask(model, task), plan, 1, "masked")


def prompt_read_from(start, large):
    """A prompt tuned on the chain with this start, and its accuracy."""
    model, task, plan, _ = large
    origin = HMM(model.transition, model.emission, start, columns=True)
    prompt, head = tuning.tune_exact_prompt(origin, task.train.posteriors, task.train.labels, plan, 1)
    behind = tuning.probs_behind_prompt(origin, task.test.posteriors, prompt)
    return tuning.accuracy(head, behind, task.test.labels), prompt.tolist()


def test_with_labels_at_the_mask_the_prompt_is_read_one_state_later(large):
    model, _, _, trial = large
    assert (trial.prompt_and_head, trial.prompt) == prompt_read_from(model.marginal(1), large)
    assert (trial.prompt_and_head, trial.prompt) != prompt_read_from([1 / 20] * 20, large)


def test_a_prompt_separates_what_a_head_alone_cannot(large):
    model, task, plan, trial = large
    train, _, test = task.split(probs_at_mask(model, task))
    head = tuning.tune_head(train, task.train.labels, plan, 1)
    assert trial.head == tuning.accuracy(head, test, task.test.labels)
    assert trial.majority + 0.03 < trial.head < trial.prompt_and_head - 0.1


def test_an_exact_trial_draws_a_model_and_a_task_as_in_3_1():
    plan = ladder_plan("smoke")
    sizes = LADDER_NUMBERS["smoke"]
    model = random_hmm(4, seed=3)
    task = draw_task(model, sizes["length"], (sizes["train"], 0, sizes["test"]), 3, "before")
    trial = exact_trial(4, 3, "smoke")
    assert trial == tune_on_exact_outputs(model, task, probs_at_mask(model, task), plan, 3)
    share = task.test.labels.double().mean().item()
    assert trial.majority == max(share, 1 - share)
    assert trial.theorem_3_3.accuracy_decided == 1
    assert trial.n_essential == 4


def test_smoke_takes_fewer_passes():
    assert ladder_plan("smoke") == Tuning(5, 128, 0.3, 0.1) == replace(ladder_plan("paper"), epochs=5)


def test_no_theorem_is_built_for_labels_that_are_not_those_of_mu():
    model = random_hmm(4, seed=3)
    task = draw_task(model, 9, (40, 0, 20), 3, "before")
    inverted = task._replace(labels=~task.labels)
    trial = tune_on_exact_outputs(model, inverted, probs_at_mask(model, task), ladder_plan("smoke"), 3)
    assert trial.theorem_3_3 is None
    assert trial.refusal == "the labels are not those of the task's μ"


def test_no_theorem_is_built_where_its_assumption_fails():
    trial = exact_trial(12, 0, "smoke")  # more states than tokens
    assert trial.theorem_3_3 is None
    assert "Assumption 3.1" in trial.refusal


def test_unknown_words_are_refused():
    model = random_hmm(4, seed=3)
    task = draw_task(model, 9, (40, 0, 20), 3, "before")
    with pytest.raises(ValueError, match="rule must be one of"):
        tune_on_exact_outputs(model, task, probs_at_mask(model, task), ladder_plan("smoke"), 3, "warm")
    with pytest.raises(ValueError, match="preset must be one of"):
        exact_trial(4, 0, "huge")


HALVES = torch.tensor([[0.5, 0.5]] * 3, dtype=torch.float64)
DIFFERENCE = LinearHead(torch.tensor([1.0, -1.0], dtype=torch.float64), condition=7.0)


def test_a_score_of_zero_decides_nothing():
    probs = torch.tensor([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6]], dtype=torch.float64)
    built = Built.judge(DIFFERENCE, probs, torch.tensor([False, True, True]))
    assert built == Built(accuracy=1 / 3, decided=2 / 3, accuracy_decided=0.5, condition=7.0)


def test_scores_within_64_rounding_units_decide_nothing():
    rounding = torch.finfo(torch.float64).eps
    scores = torch.tensor([64, 128, 129]) * rounding  # ‖b‖₁ = 2, so the second is just within
    probs = HALVES + torch.stack([scores, -scores], 1) / 2
    assert torch.equal(DIFFERENCE(probs), scores)
    built = Built.judge(DIFFERENCE, probs, torch.tensor([True, True, True]))
    assert built == Built(accuracy=1.0, decided=1 / 3, accuracy_decided=1.0, condition=7.0)


def test_if_nothing_is_decided_nothing_decided_is_wrong():
    built = Built.judge(DIFFERENCE, HALVES, torch.tensor([False, False, False]))
    assert built == Built(accuracy=0.0, decided=0.0, accuracy_decided=1.0, condition=7.0)
