"""What the tests of a page share if they are in more than one file."""

from functools import lru_cache

import pandas as pd
import pytest
import torch
from lessons import run
from panels import right_panel
from section_4_2 import RAIN, SUN, THE

from hmmbook.experiments.store import BEYOND
from hmmbook.studies.mechanism import tables
from hmmlib import HMM, MemoryHMM

PARAMETERS = {
    "3-1-prompt": {"instances": 1},
    "4-2-memory-prompt": {"instances": 5},
    # With another seed, and at a preset of which no reruns are stored: so the page shows those of `quick`.
    "published-curve": {"preset": "gpu", "seed": 3},
}


@lru_cache(maxsize=1)  # the files of a page follow each other
def run_once(name: str) -> dict:
    return run(name, **PARAMETERS[name])


@pytest.fixture(scope="module")
def page(request) -> dict:
    """The names of the page that a file of tests has as its PAGE. No test may change them."""
    return run_once(request.module.PAGE)


@pytest.fixture(scope="module")
def model(page) -> HMM | MemoryHMM:
    return page["model"]


@pytest.fixture(scope="module")
def x(page) -> torch.Tensor:
    return page["x"]


@pytest.fixture(scope="module")
def the_rain_sun() -> torch.Tensor:
    """A text of the page on the prompt of Theorem 4.6."""
    return torch.tensor([[THE, RAIN, SUN]])


@pytest.fixture(scope="module")
def by_change(page) -> dict:
    """The trials of the page on the published curve at 30 states on the same ten chains, by what is changed."""
    return page["by_change"]


@pytest.fixture(scope="module")
def by_steps(page) -> dict:
    """The trials of the page on the published curve by the steps of pretraining."""
    return page["by_steps"]


@pytest.fixture(scope="module")
def stored() -> pd.DataFrame:
    return tables.stored(BEYOND)


@pytest.fixture(scope="module")
def of_task(stored):
    """The trials of a task on look-alikes with prompts of so many vectors, by the seed of the chain."""

    def trials(task, vectors=20):
        chosen = stored[(stored.own == f"look-alikes-{task}") & (stored.prompt_length == vectors)]
        assert len(chosen) == 20
        return chosen.set_index("seed")

    return trials


@pytest.fixture(scope="module")
def memory() -> pd.DataFrame:
    """The stored trials of memory models in the right panel of Figure 3."""
    return right_panel()[0]


@pytest.fixture(scope="module")
def vanilla() -> pd.DataFrame:
    """The stored trials of vanilla models in the same panel."""
    return right_panel()[1]
