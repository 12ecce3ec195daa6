"""The two ways in which inference computes: compiled loops, and torch where there is no numba."""

import pytest

from hmmlib.inference import laws


@pytest.fixture
def without_loops(monkeypatch):
    """Call it to compute by torch from there on."""
    return lambda: monkeypatch.setattr(laws, "compiled_loops", lambda: None)


@pytest.fixture(params=["loops", "torch"])
def way(request, without_loops):
    """Compute in one way, then in the other."""
    if request.param == "torch":
        without_loops()
