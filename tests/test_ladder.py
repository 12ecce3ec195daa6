"""The exact ladder: what is trained on the exact model, and what the theorems build beside it."""

import numpy as np
import pytest
import torch

from hmmlib.generate import random_hmm, regular_hmm
from hmmlib.heads import LinearHead
from hmmlib.hmm import MASK
from hmmlib.ladder import Built, climb
from hmmlib.messages import masked_token_probs, posterior
from hmmlib.theorems import ground_truth
from hmmlib.tuning import Tuning, accuracy, draw_task, probs_behind_prompt, tune_exact_prompt, tune_head


def test_the_shortcut_is_the_model_behind_the_prompt():
    for seed in range(20):
        model = regular_hmm(1 + seed % 5, 3, seed, zeros=0.4)
        task = draw_task(model, 6, (30, 0, 0), seed, before=True)
        draw = np.random.default_rng(seed)
        prompt = torch.as_tensor(draw.random(model.n_states) * (draw.random(model.n_states) < 0.7))
        shortcut = probs_behind_prompt(model, posterior(model, task.tokens[:, 1:]), prompt)
        np.testing.assert_allclose(shortcut, masked_token_probs(model, task.tokens, prompt)[:, 1], atol=1e-12)


def test_labels_before_the_text_are_the_ground_truth():
    model = random_hmm(6, seed=1)
    task = draw_task(model, 9, (50, 5, 5), 1, before=True)
    assert task.tokens.shape == (60, 9)
    assert (task.tokens[:, 0] == MASK).all()
    assert (task.tokens[:, 1:] >= 0).all()
    assert torch.equal(task.labels, ground_truth(model, task.mu, task.tokens[:, 1:]) >= 0)


def test_a_trained_prompt_separates_what_a_head_alone_cannot():
    gains = []
    for seed in range(3):
        model = random_hmm(20, seed=seed)
        task = draw_task(model, 17, (1500, 0, 500), seed, before=True)
        belief = posterior(model, task.tokens[:, 1:])
        plan = Tuning(15, 128, 0.3, 0.1)
        (train, _, test), (labels, _, truth) = task.split(belief), task.split(task.labels)
        prompt, behind = tune_exact_prompt(model, train, labels, plan, seed)
        assert prompt.shape == (20,)
        assert ((prompt >= 0) & (prompt <= 1)).all()
        bare = masked_token_probs(model, task.tokens)[:, 0]
        head = tune_head(task.split(bare)[0], labels, plan, seed)
        alone = accuracy(head, task.split(bare)[2], truth)
        gains.append(accuracy(behind, probs_behind_prompt(model, test, prompt), truth) - alone)
    assert np.mean(gains) > 0.03


def test_a_rung_with_the_assumption_and_one_without():
    low, high = climb(4, 0, "smoke"), climb(12, 0, "smoke")
    for rung in (low, high):
        for share in (rung.majority, rung.head, rung.prompt_and_head):
            assert 0 <= share <= 1
        assert len(rung.prompt) == rung.n_states
    assert low.theorem_3_3.accuracy_decided == 1
    assert low.theorem_3_3.decided > 0
    assert low.refusal == ""
    assert high.theorem_3_3 is None
    assert "Assumption 3.1" in high.refusal


def test_scores_within_rounding_decide_nothing():
    probs = torch.tensor([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6]], dtype=torch.float64)
    head = LinearHead(torch.tensor([1.0, -1.0], dtype=torch.float64))
    built = Built.judge(head, probs, torch.tensor([False, True, True]))
    assert (built.accuracy, built.decided, built.accuracy_decided) == (1 / 3, 2 / 3, 0.5)


def test_rungs_follow_their_seed():
    assert climb(5, 3, "smoke") == climb(5, 3, "smoke")
    assert climb(5, 3, "smoke").prompt != climb(5, 4, "smoke").prompt


def test_bad_arguments():
    with pytest.raises(ValueError, match="preset must be one of smoke, quick, not 'huge'"):
        climb(4, 0, "huge")
    with pytest.raises(ValueError, match="n_states must be an integer of 1 or more"):
        climb(0, 0, "smoke")
