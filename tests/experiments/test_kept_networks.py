"""Networks and checkpoints that are kept between trials, and foreign files in their place."""

import pytest
import torch
from runs import TINY

from hmmbook import TrialSpec, is_stored, run_missing
from hmmbook.experiments import sweeps
from hmmbook.experiments.store import checkpoint_path
from hmmbook.experiments.sweeps import describe
from hmmlib.training import checkpoints

SPECS = [TrialSpec("smoke", **TINY)]


def ignore(*values):
    """Take whatever is reported, and do nothing."""


def test_networks_are_kept_for_trials_that_differ_in_their_task_alone(tmp_path, monkeypatch):
    networks = tmp_path / "networks"
    specs = [SPECS[0], SPECS[0].replace(prompt_length=2)]
    outcome = run_missing(specs, tmp_path, log=ignore, networks=networks)
    assert len(outcome.ran) == 2
    assert len(list(networks.iterdir())) == 1
    monkeypatch.setattr("hmmbook.experiments.parts.pretrain", lambda *arguments: pytest.fail("it was pretrained again"))
    run_missing([SPECS[0].replace(prompt_length=3)], tmp_path, log=ignore, networks=networks)
    assert is_stored(SPECS[0].replace(prompt_length=3), tmp_path)


def test_a_foreign_file_in_the_place_of_a_network_is_named(tmp_path):
    networks = tmp_path / "networks"
    run_missing(SPECS[:1], tmp_path, log=ignore, networks=networks)
    (path,) = networks.iterdir()
    other = SPECS[0].replace(prompt_length=2)
    for content in ({"weights": torch.zeros(2)}, {}, {3: "mine"}):
        checkpoints.save(path, content)
        outcome = run_missing([other], tmp_path, log=ignore, networks=networks)
        assert outcome.failed[other.hash].startswith(f"{path} is no checkpoint that can be used, so move it away: ")


def test_a_checkpoint_that_says_nothing_of_its_steps_is_no_error(tmp_path):
    checkpoints.save(checkpoint_path(SPECS[0], tmp_path), {"weights": torch.zeros(2)})
    assert sweeps.what_is_kept(SPECS[0], tmp_path) == f"{describe(SPECS[0])} was broken off, and nothing of it is kept."
