"""What the page *How a tuned prompt helps* says, from the stored files themselves.

Each test is a claim of the page. It reads the JSON files and computes with NumPy, without the tables of the book.
"""

import json
from functools import cache

import numpy as np
import pytest
from companion.mechanism import outcomes

from hmmlib.experiments.store import STORE

FROZEN, FIXED = "attention to the prompt frozen", "values at their mean"
BOTH = "attention frozen, values at their mean"
ALONE, PROMPTED = "without the prompt", "with the prompt"


@cache
def files(folder):
    """The results in a folder of the store."""
    return [json.loads(path.read_text(encoding="utf8")) for path in (STORE / folder / "quick").glob("*.json")]


def task_d(vectors=20):
    """The results of task D's chains with prompts of so many vectors, by seed."""
    chosen = []
    for result in files("beyond"):
        spec = result["spec"]
        if spec.get("own") == "look-alikes-d" and spec["prompt_length"] == vectors:
            chosen.append(result)
    return sorted(chosen, key=lambda result: result["spec"]["seed"])


def left_panel(n_states):
    """The results of one size of the left panel, by seed."""
    chosen = []
    for result in files("refits"):
        spec = result["spec"]
        if spec["n_states"] == n_states and spec["steps"] == 400 and spec["seed"] < 20:
            chosen.append(result)
    return sorted(chosen, key=lambda result: result["spec"]["seed"])


def one_vector():
    """The results at 30 states with prompts of one vector."""
    chosen = []
    for result in files("beyond"):
        spec = result["spec"]
        if (
            spec["n_states"] == 30
            and spec["prompt_length"] == 1
            and spec["length"] == 64
            and "prompt_changes" in result
        ):
            chosen.append(result)
    return chosen


def values(results, *names):
    """A number of each result, found by the names on the way to it."""
    found = []
    for result in results:
        value = result
        for name in names:
            value = value[name]
        found.append(value)
    return np.array(found, dtype=float)


def percent(shares):
    return round(100 * float(np.mean(shares)))


def of_size(results, reading, most=100):
    """The accuracy of the best penalised head of a norm of at most `most`, for each result."""
    best = []
    for result in results:
        heads = result["heads_by_size"][reading]
        fits = [head["accuracy"] for name, head in heads.items() if "tuned" not in name and head["norm"] <= most]
        best.append(max(fits))
    return np.array(best)


def after(results, change):
    return values(results, "prompt_changes", change, "fitted")


BOUND = values(task_d(), "fake_token_bound")


def test_the_theorems_prompt_accounts_for_the_lead_at_30_states_and_for_a_part_at_most_at_25():
    means = {}
    for n_states in (25, 30):
        results = [r for r in left_panel(n_states) if r["rare_steps"]["0.001"]["states in the set"]]
        theorem = values(results, "rare_steps", "0.001", "theorem's prompt, fitted head")
        random = values(results, "rare_steps", "0.001", "random prompts, fitted heads")
        alone = values(results, "rare_steps", "fitted head alone")
        tuned = values(results, "rare_steps", "tuned prompt, tuned head")
        means[n_states] = [len(results), *map(percent, (alone, random, theorem, tuned))]
    assert means == {25: [16, 90, 87, 92, 97], 30: [10, 77, 80, 91, 91]}


def test_without_a_prompt_a_head_of_ordinary_size_reads_next_to_nothing():
    alone = of_size(task_d(), ALONE)
    assert percent(alone) == 58
    assert (alone < BOUND).all()


def test_a_head_with_huge_weights_reads_a_part_of_the_labels():
    full = values(task_d(), "heads_by_size", ALONE, "none", "accuracy")
    norms = values(task_d(), "heads_by_size", ALONE, "none", "norm")
    assert (percent(full), (full > BOUND).sum()) == (85, 9)
    assert np.median(norms) > 1000


def test_with_the_prompt_a_small_head_is_enough_and_ahead_of_the_huge_one():
    results = task_d()
    accuracies = values(results, "prompt_accuracy")
    norms = values(results, "heads_by_size", PROMPTED, "tuned as in quick", "norm")
    full = values(results, "heads_by_size", ALONE, "none", "accuracy")
    assert percent(accuracies) == 94
    assert norms.max() < 20
    assert 100 * (accuracies - full).mean() == pytest.approx(8, abs=0.5)


def test_nearest_neighbours_read_the_label_without_a_prompt():
    assert percent(values(task_d(), "other_classifiers", ALONE, "nearest neighbours")) == 96
    assert values(task_d(), "other_classifiers", "exact", "nearest neighbours").min() > 0.97


def test_with_the_same_attention_for_every_text_most_chains_fall_below_their_bound_and_with_the_same_values_few():
    frozen, fixed = after(task_d(), FROZEN), after(task_d(), FIXED)
    assert (percent(frozen), percent(fixed)) == (79, 88)
    assert ((frozen < BOUND).sum(), (fixed < BOUND).sum()) == (10, 3)


def test_with_both_the_same_every_chain_falls_below_its_bound():
    both = after(task_d(), BOTH)
    assert (both < BOUND).all()
    assert percent(both) == 69


def test_a_constant_vector_passes_the_bound_on_some_chains():
    in_embedding = values(task_d(), "constant_vectors", "constant in the mask's embedding", "fitted")
    behind = values(task_d(), "constant_vectors", "constant behind the last attention", "fitted")
    assert (percent(in_embedding), (in_embedding > BOUND).sum()) == (89, 11)
    assert (percent(behind), (behind > BOUND).sum()) == (82, 4)


def test_on_the_papers_chains_the_attention_matters_and_the_values_hardly():
    results = left_panel(30)
    tuned = after(results, "none")
    assert len(results) == 20
    costs = {change: 100 * (tuned - after(results, change)).mean() for change in (FROZEN, FIXED, BOTH)}
    assert [round(cost) for cost in costs.values()] == [7, 2, 9]
    full = values(results, "heads_by_size", ALONE, "none", "accuracy")
    assert 100 * (values(results, "prompt_accuracy") - full).mean() == pytest.approx(18, abs=0.5)


def test_a_single_vector_on_the_papers_chains_works_much_like_a_constant():
    results = one_vector()
    assert len(results) == 20
    tuned = after(results, "none")
    constant = values(results, "constant_vectors", "constant in the mask's embedding", "fitted")
    assert percent(values(results, "prompt_accuracy")) == 85
    assert round(100 * (tuned - after(results, FROZEN)).mean()) == 3
    assert abs(100 * (tuned - constant).mean()) < 1


CAME_TRUE = {
    outcomes.entry_5: [True, False, False, True],
    outcomes.entry_6: [True, True, True],
    outcomes.entry_35: [True, False, True, True, True],
    outcomes.entry_37: [True, False, False, False, False],
}


@pytest.mark.parametrize("entry", CAME_TRUE, ids=lambda entry: entry.__name__)
def test_what_came_true_of_each_entry(entry):
    assert [bool(so) for _, _, so in entry()] == CAME_TRUE[entry]
