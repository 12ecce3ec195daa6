"""The factors of a prompt, and how much of the belief one label for each token fits."""

import pytest
import torch

from hmmbook import draw_task
from hmmbook.studies.kept_states import factors_of, fitting_share, shares_by_token
from hmmlib import lemma_c_2, random_hmm
from hmmlib.training.tuning import probs_behind_prompt


@pytest.fixture(scope="module")
def small() -> tuple:
    """A chain of four states, a task of (3.1) on it, and a prompt."""
    chain = random_hmm(4, 6, seed=1)
    task = draw_task(chain, 7, (50, 0, 0), 2, "before")
    return chain, task, torch.tensor([1.0, 0.5, 0.1, 0.8]).double()


def test_factors_are_the_ratio_of_the_predictions_behind_the_prompt_and_behind_ones(small):
    chain, _, prompt = small
    factors = factors_of(chain, prompt)

    for state in range(4):
        mixed = torch.full((1, 4), 0.1).double()
        mixed[0, state] = 0.7
        reweighted = mixed * factors
        behind = probs_behind_prompt(chain, mixed, prompt)
        behind_ones = probs_behind_prompt(chain, reweighted / reweighted.sum(), torch.ones(4).double())
        assert torch.allclose(behind, behind_ones)
    assert factors.max() == 1


def test_shares_by_token_are_sums_over_texts_and_states(small):
    chain, task, prompt = small
    factors = lemma_c_2(chain, prompt)
    expected = torch.zeros(2, 6).double()
    for belief, label in zip(task.posteriors, task.labels, strict=True):
        reweighted = belief * factors / (belief * factors).sum()
        for state in range(4):
            token = chain.emission[:, state].argmax()
            expected[0 if label else 1, token] += reweighted[state] / 50

    assert torch.allclose(torch.stack(shares_by_token(chain, task, prompt)), expected)
    assert fitting_share(tuple(expected)) == pytest.approx(expected.amax(0).sum().item())
