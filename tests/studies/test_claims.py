"""What the pages on how a tuned prompt helps say, from the stored files themselves.

Each test is a claim of one of them. It reads the JSON files and computes with NumPy, without the tables of the book.
"""

import json
from functools import cache

import numpy as np
import pytest

from hmmbook.experiments.store import STORE
from hmmbook.studies.mechanism import outcomes
from hmmbook.studies.mechanism.constants import CONSTANTS
from hmmbook.studies.mechanism.controls import HEADS
from hmmbook.studies.mechanism.gate import BOTH, FIXED, FROZEN
from hmmbook.studies.mechanism.heads_by_size import ALONE, PROMPTED


@cache
def files(folder):
    """The results in a folder of the store."""
    paths = (STORE / folder / "quick").glob("*.json")
    return [json.loads(path.read_text(encoding="utf8")) for path in paths]


def task_d(vectors=20):
    """The results of task D's chains with prompts of so many vectors, by seed."""
    chosen = []
    for result in files("beyond"):
        spec = result["spec"]
        if spec.get("own") == "look-alikes-d" and spec["prompt_length"] == vectors:
            chosen.append(result)
    return in_order(chosen)


def left_panel(n_states):
    """The results of one size of the left panel, by seed."""
    chosen = []
    for result in files("refits"):
        spec = result["spec"]
        if spec["n_states"] == n_states and spec["steps"] == 400 and spec["seed"] < 20:
            chosen.append(result)
    return in_order(chosen)


def in_order(results):
    return sorted(results, key=lambda result: result["spec"]["seed"])


def values(results, *names):
    """A number of each result, found by the names on the way to it."""
    numbers = []
    for result in results:
        value = result
        for name in names:
            value = value[name]
        numbers.append(value)
    return np.array(numbers, dtype=float)


def percent(shares):
    return round(100 * float(np.mean(shares)))


def of_size(results, reading, most=100):
    """The accuracy of the best penalised head of a norm of at most `most`, for each result."""
    best = np.zeros(len(results))
    for index, result in enumerate(results):
        for name, head in result["heads_by_size"][reading].items():
            if "tuned" not in name and head["norm"] <= most:
                best[index] = max(best[index], head["accuracy"])
    return best


def after(results, change):
    return values(results, "prompt_changes", change, "fitted")


@pytest.fixture(scope="module")
def chains():
    """The results of task D's twenty chains, and the bound of each."""
    results = task_d()
    assert len(results) == 20
    return results, values(results, "fake_token_bound")


def test_the_theorems_prompt_is_as_good_as_a_tuned_one_at_30_states_and_the_best_random_one_at_both_sizes():
    means = {}
    for n_states in (25, 30):
        results = [trial for trial in left_panel(n_states) if trial["chosen_prompts"]["0.001"]]
        theorem = values(results, "rare_steps", "0.001", "theorem's prompt, fitted head")
        random = values(results, "rare_steps", "0.001", "random prompts, fitted heads")
        chosen = values(results, "chosen_prompts", "0.001")
        alone = values(results, "rare_steps", "fitted head alone")
        tuned = values(results, "rare_steps", "tuned prompt, tuned head")
        shares = map(percent, (alone, random, chosen, theorem, tuned))
        means[n_states] = [len(results), *shares]
    assert means[25] == [16, 90, 87, 97, 92, 97]
    assert means[30] == [10, 77, 80, 93, 91, 91]


def test_without_a_prompt_a_small_head_reads_next_to_nothing(chains):
    results, bound = chains
    alone = of_size(results, ALONE)
    assert percent(alone) == 60
    assert (alone < bound).all()


def test_a_head_with_huge_weights_reads_a_part_of_the_labels(chains):
    results, bound = chains
    full = values(results, "heads_by_size", ALONE, "none", "accuracy")
    norms = values(results, "heads_by_size", ALONE, "none", "norm")
    assert (percent(full), (full > bound).sum()) == (87, 12)
    assert np.median(norms) > 1000


def test_with_the_prompt_a_small_head_is_enough(chains):
    results, bound = chains
    assert percent(values(results, "prompt_accuracy")) == 94
    norms = values(results, "tuned_head_norm")
    assert round(np.median(norms)) == 9
    assert norms.max() < 20
    assert percent(bound) == 87


def test_a_little_noise_destroys_what_the_huge_head_reads_and_not_what_the_prompt_makes_readable(chains):
    results, _ = chains
    assert percent(values(results, "readable_with_noise", ALONE, "fully fitted", "0.01")) == 52
    assert percent(values(results, "readable_with_noise", "exact", "fewest errors", "0.01")) == 77
    with_prompt = [percent(values(results, "readable_with_noise", PROMPTED, head, "0.01")) for head in HEADS]
    assert max(with_prompt) == 95


def test_nearest_neighbours_read_the_label_without_a_prompt(chains):
    results, _ = chains
    assert percent(values(results, "other_classifiers", ALONE, "nearest neighbours")) == 96
    assert values(results, "other_classifiers", "exact", "nearest neighbours").min() > 0.97


def test_with_the_same_attention_for_every_text_most_chains_fall_below_their_bound_and_with_the_same_values_few(chains):
    results, bound = chains
    expected = [("none", 95, 17), (FROZEN, 78, 5), (FIXED, 91, 16), (BOTH, 71, 1)]
    for change, mean, above in expected:
        accuracies = after(results, change)
        assert percent(accuracies) == mean
        assert (accuracies >= bound).sum() == above


def test_the_first_layer_matters_too(chains):
    results, _ = chains
    tuned = after(results, "none")
    assert percent(tuned - after(results, "text hidden from the prompt")) == 12
    assert percent(tuned - after(results, "prompt hidden from the mask, first layer")) == 11


def test_a_fully_fitted_head_loses_less_when_the_attention_is_the_same(chains):
    results, _ = chains
    tuned = values(results, "prompt_changes", "none", "fully fitted")
    frozen = values(results, "prompt_changes", FROZEN, "fully fitted")
    assert round(100 * (tuned - frozen).mean()) == 5


def test_a_constant_vector_that_is_tuned_for_longer_passes_the_bound_on_most_chains(chains):
    results, bound = chains
    accuracies = []
    for result in results:
        places = [result["tuned_constants"][place] for place in CONSTANTS]
        accuracies.append(max(places, key=lambda place: place["validation"])["accuracy"])
    assert percent(accuracies) == 94
    assert (np.array(accuracies) > bound).sum() == 17


def test_on_the_papers_chains_the_attention_matters_and_the_values_hardly():
    results = left_panel(30)
    tuned = after(results, "none")
    assert len(results) == 20

    def cost(change):
        return 100 * (tuned - after(results, change)).mean()

    assert round(cost(FROZEN)) == 7
    assert round(cost(FIXED)) == 2
    assert round(cost(BOTH)) == 9
    assert cost("prompt hidden from the text") > 5
    assert round(cost("text hidden from the prompt")) == 7


@pytest.mark.parametrize(("n_states", "lead"), [(15, 6), (30, 18)])
def test_prompts_lead_heads_that_are_fully_fitted_to_the_networks_own_predictions(n_states, lead):
    results = left_panel(n_states)
    assert len(results) == 20
    full = values(results, "heads_by_size", ALONE, "none", "accuracy")
    assert round(100 * (values(results, "prompt_accuracy") - full).mean()) == lead


CAME_TRUE = {
    outcomes.entry_5: [True, False, False, True],
    outcomes.entry_6: [True, True, True],
    outcomes.entry_34_on_task_d: [True, False, True, True, True, True, False, True, True],
    outcomes.entry_34_on_the_left_panel: [True, True, True],
    outcomes.entry_35: [True, False, True, True, True, False, True],
    outcomes.entry_36: [True, False, True, True, True, True, True, True, True, False, True, True],
    outcomes.entry_37: [True, False, False, False, False, False],
}


@pytest.mark.parametrize("entry", CAME_TRUE, ids=lambda entry: entry.__name__)
def test_what_came_true_of_each_entry(entry):
    assert [bool(outcome.came_true) for outcome in entry()] == CAME_TRUE[entry]
