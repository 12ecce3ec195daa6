"""The exact ladder: what is trained on the exact model, and what the theorems build beside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hmmlib.experiments.labels import draw_task
from hmmlib.experiments.measurements import Built, exact_trial, ladder_plan, tune_on_exact_outputs
from hmmlib.experiments.presets import LADDER_NUMBERS, PRESETS
from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead
from hmmlib.training.tuning import Tuning, accuracy, probs_behind_prompt, tune_exact_prompt

PLAN = Tuning(epochs=5, batch=64, head_rate=0.3, prompt_rate=0.1)


def test_a_trained_prompt_separates_what_a_head_alone_cannot():
    gains = []
    for seed in range(3):
        model = random_hmm(20, seed=seed)
        task = draw_task(model, 17, (1500, 0, 500), seed, rule="before")
        bare = masked_token_probs(model, task.tokens)[:, 0]
        found = tune_on_exact_outputs(model, task, bare, Tuning(15, 128, 0.3, 0.1), seed)
        assert len(found.prompt) == 20
        assert 0 <= min(found.prompt) <= max(found.prompt) <= 1
        gains.append(found.prompt_and_head - found.head)
    assert np.mean(gains) > 0.03


def skewed(n_states, seed):
    """A model of appendix E but for its start and its temperature: the law of the labels then makes a difference."""
    chain = random_hmm(n_states, 10, seed, temperature=0.1)
    weights = torch.arange(1, n_states + 1, dtype=torch.float64) ** 2
    return HMM(chain.transition, chain.emission, weights / weights.sum(), columns=True)


def judged(model, law, assumed, seed):
    """An exact trial on a task drawn by one law, under the assumption that it was drawn by another."""
    task = draw_task(model, 9, (300, 0, 400), seed, law)
    return tune_on_exact_outputs(model, task, masked_token_probs(model, task.tokens)[:, 0], PLAN, seed, assumed)


@pytest.mark.parametrize("law", ["masked", "before"])
def test_what_the_theorems_build_is_right_for_the_law_of_the_labels_and_not_for_the_other(law):
    other, wrong = {"masked": "before", "before": "masked"}[law], []
    for seed in range(6):
        model = skewed(4, seed)
        right = judged(model, law, law, seed)
        assert right.refusal == ""
        for built in (right.theorem_3_3, right.theorem_3_6):
            assert built.accuracy_decided == 1
            assert built.decided > 0.9
        mistaken = judged(model, law, other, seed)
        wrong += [mistaken.theorem_3_3.accuracy_decided, mistaken.theorem_3_6.accuracy_decided]
    assert min(wrong) < 0.9


def test_a_rung_with_labels_at_the_mask_reads_its_prompt_one_state_later():
    model, gaps = skewed(5, 1), []
    origin = HMM(model.transition, model.emission, model.marginal(1), columns=True)
    found = judged(model, "masked", "masked", 1)
    task = draw_task(model, 9, (300, 0, 400), 1, "masked")
    np.testing.assert_allclose(task.posteriors, posterior(origin, task.tokens[:, 1:], at=0), atol=1e-12)
    assert (task.posteriors - posterior(model, task.tokens[:, 1:], at=0)).abs().max() > 1e-3
    (train, _, test), (labels, _, truth) = task.split(task.posteriors), task.split(task.labels)
    for start in (origin, HMM(model.transition, model.emission, [0.2] * 5, columns=True)):
        prompt, head = tune_exact_prompt(start, train, labels, PLAN, 1)
        gaps.append(abs(accuracy(head, probs_behind_prompt(start, test, prompt), truth) - found.prompt_and_head))
        gaps[-1] += (prompt - torch.tensor(found.prompt, dtype=torch.float64)).abs().max().item()
    assert gaps[0] == 0
    assert gaps[1] > 1e-6


def test_exact_trialing_is_a_rung_on_a_task_of_its_own():
    plan, numbers = ladder_plan("smoke"), LADDER_NUMBERS["smoke"]
    assert plan == Tuning(5, 128, 0.3, 0.1) == replace(ladder_plan("paper"), epochs=5)
    model, sizes = random_hmm(4, seed=3), (numbers["train"], 0, numbers["test"])
    tasks = [draw_task(model, numbers["length"], sizes, seed, "before") for seed in (3, 4)]
    probs = [masked_token_probs(model, task.tokens)[:, 0] for task in tasks]
    found, other = (tune_on_exact_outputs(model, task, p, plan, 3) for task, p in zip(tasks, probs, strict=True))
    assert exact_trial(4, 3, "smoke") == found != other
    labels = tasks[0].split(tasks[0].labels)[2].double().mean().item()
    assert (found.majority, found.n_states, found.seed) == (max(labels, 1 - labels), 4, 3)
    assert (found.theorem_3_3.accuracy_decided, found.refusal) == (1, "")
    refused = exact_trial(12, 0, "smoke")  # more states than tokens
    assert refused.theorem_3_3 is None
    assert "Assumption 3.1" in refused.refusal
    with pytest.raises(ValueError, match=f"preset must be one of {', '.join(PRESETS)}, not 'huge'"):
        exact_trial(4, 0, "huge")
    with pytest.raises(ValueError, match="n_states must be an integer of 1 or more"):
        exact_trial(0, 0, "smoke")


def test_scores_within_rounding_decide_nothing():
    probs = torch.tensor([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6]], dtype=torch.float64)
    head = LinearHead(torch.tensor([1.0, -1.0], dtype=torch.float64))
    built = Built.judge(head, probs, torch.tensor([False, True, True]))
    assert (built.accuracy, built.decided, built.accuracy_decided) == (1 / 3, 2 / 3, 0.5)
    eps, half = np.finfo(float).eps, torch.tensor([[0.5, 0.5]] * 3, dtype=torch.float64)
    scores = torch.tensor([64, 128, 129]) * eps  # 64 eps ‖b‖₁ is the second
    near = half + torch.stack([scores, -scores], 1) / 2
    head = LinearHead(torch.tensor([1.0, -1.0], dtype=torch.float64), condition=7.0)
    assert torch.equal(head(near), scores)
    assert Built.judge(head, near, torch.tensor([True] * 3)) == Built(1.0, 1 / 3, 1.0, 7.0)
    assert Built.judge(head, half, torch.tensor([False] * 3)) == Built(0.0, 0.0, 1.0, 7.0)
