"""The committed results: readable, complete where the book says so, and what a rerun gives."""

import importlib

import pytest

import hmmlib
from hmmlib.trials import STORE, load_results, run_trial


@pytest.mark.parametrize("result", list(load_results("smoke")), ids=lambda r: f"{r.spec.n_states}-{r.spec.seed}")
def test_a_stored_trial_is_what_its_spec_gives(result):
    """Exact quantities to rounding; what a trained network gives, to what another machine's rounding may change."""
    again = run_trial(result.spec)
    assert (again.redraws, again.majority_rate, again.seeds) == (result.redraws, result.majority_rate, result.seeds)
    assert again.best_loss == pytest.approx(result.best_loss, rel=1e-9)
    assert again.exact_head_accuracy == pytest.approx(result.exact_head_accuracy, abs=0.02)
    assert again.network_loss == pytest.approx(result.network_loss, abs=0.1)


def test_quick_has_three_trials_of_each_size():
    results = list(load_results("quick"))
    assert {(r.spec.n_states, r.spec.seed) for r in results} >= {
        (n, s) for n in (4, 8, 10, 15, 25, 30) for s in range(3)
    }
    for result in results:
        assert result.excess_loss > -0.02
        assert result.divergence >= 0
        assert result.environment["commit"]
        assert not result.environment["commit"].endswith("+"), "run from a tree with uncommitted changes"


def test_at_thirty_states_the_prompt_wins_on_average():
    large = [r for r in load_results("quick") if r.spec.n_states == 30]
    assert len(large) >= 3
    gain = sum(r.prompt_accuracy - r.head_accuracy for r in large) / len(large)
    assert gain > 0.05


def test_no_stray_files_in_the_store():
    assert all(path.suffix == ".json" for path in STORE.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", hmmlib.__all__)
def test_the_names_that_others_call_are_at_the_top(name):
    assert getattr(hmmlib, name) is getattr(importlib.import_module(f"hmmlib.{hmmlib._MODULE[name]}"), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="theorem_9_9"):
        _ = hmmlib.theorem_9_9
