"""The theorem's prompt on a chain without rare steps, put before the texts of the true chain."""

import torch

import hmmlib
from hmmbook.experiments.labels import draw_task
from hmmbook.experiments.parts import trial_seeds
from hmmbook.experiments.specs import TrialSpec
from hmmbook.studies.look_alikes import TASKS, look_alike_chain
from hmmbook.studies.mechanism import rare_steps


def chain_with_a_prompt(rare):
    """A chain for which Theorem 3.6 has a prompt if steps of a probability `rare` are ignored, and the weights μ.

    States 0 and 1 look alike, and so do 2 and 3, so that a head alone cannot tell them apart.
    """
    model = look_alike_chain(3000)
    even = torch.full_like(model.transition, 1 / 6)
    transition = (1 - 6 * rare) * model.transition + 6 * rare * even
    mu = torch.tensor(TASKS["look-alikes-a"], dtype=torch.float64)
    return hmmlib.HMM(transition, model.emission, model.initial, columns=True), mu


def test_rare_steps_become_zero_and_the_others_keep_their_ratios():
    model, _ = chain_with_a_prompt(rare=1e-4)
    sparse = rare_steps.without_rare_steps(model, 1e-3)
    torch.testing.assert_close(sparse.transition.sum(0), torch.ones(6, dtype=torch.float64))
    assert ((sparse.transition == 0) == (model.transition < 1e-3)).all()
    assert (sparse.transition == 0).sum() > 0
    often = sparse.transition > 0
    ratios = torch.where(often, sparse.transition / model.transition, torch.nan)
    for column in ratios.T:
        known = column[~column.isnan()]
        torch.testing.assert_close(known, known[:1].expand_as(known))


def test_the_theorems_prompt_is_right_on_the_true_chain_where_steps_are_rare_indeed():
    model, mu = chain_with_a_prompt(rare=1e-6)
    assert hmmlib.essential_states(model, mu) is None, "the true chain has a set, so nothing would be tested"
    spec = TrialSpec("quick", 6, 0, n_tokens=6, labels="before", train=600, validation=10, test=400)
    task = draw_task(model, 12, (600, 10, 400), 0, "before")
    task = task._replace(mu=mu, labels=task.posteriors @ mu >= 0)
    beliefs = task.split(task.posteriors)
    measured = rare_steps.rare_steps(spec, model, task, beliefs, trial_seeds(0), lambda: None)["rare_steps"]
    at_threshold = measured["0.001"]
    assert at_threshold["states in the set"] == 4
    assert at_threshold["theorem's prompt and head"] > 0.97
    assert at_threshold["theorem's prompt, fitted head"] > 0.97
    assert at_threshold["random prompts, fitted heads"] < at_threshold["theorem's prompt, fitted head"]
    assert measured["fitted head alone"] < 0.95


def test_without_a_set_there_is_no_prompt_and_that_is_said():
    model = hmmlib.random_hmm(9, 4, seed=0, temperature=1.0)
    spec = TrialSpec("quick", 9, 0, n_tokens=4, labels="before", train=60, validation=10, test=40)
    task = draw_task(model, 12, (60, 10, 40), 0, "before")
    beliefs = task.split(task.posteriors)
    measured = rare_steps.rare_steps(spec, model, task, beliefs, trial_seeds(0), lambda: None)["rare_steps"]
    assert set(measured["0.001"].values()) == {None}
