"""A tiny trial, run once for all tests of experiments that need a result."""

import pytest
from runs import TINY

from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.trials import TrialResult, run_trial


@pytest.fixture(scope="session")
def result() -> TrialResult:
    return run_trial(TrialSpec("smoke", **TINY), device="cpu")
