"""Figure 3 trial by trial: what it holds is what the results and their chains are, and its script finds what it
should."""

import numpy as np
from companion.figures.interactive import trial_by_trial

from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE, load_results
from hmmlib.experiments.trials import draw_model, draw_trial_task

TRIALS = [r for r in load_results("smoke", STORE) if r.prompt_accuracy is not None]


def test_trials_are_told_with_their_chains_and_tasks():
    data = trial_by_trial(results("smoke", STORE)).data
    assert [(t["size"], t["head"], t["prompt"]) for t in data["trials"]] == sorted(
        (r.spec.n_states, r.head_accuracy, r.prompt_accuracy) for r in TRIALS
    )
    for trial, result in zip(data["trials"], sorted(TRIALS, key=lambda r: r.spec.n_states), strict=True):
        model = draw_model(result.spec)
        favourites, weights = zip(*trial["states"], strict=True)
        assert list(favourites) == [column.argmax().item() for column in model.emission.T]
        assert list(weights) == draw_trial_task(result.spec, model).mu.tolist()
        assert trial["majority"] == result.majority_rate


def test_contested_tokens_are_those_of_states_of_both_signs(js):
    cases = [[[0, 1.0], [0, -0.5], [1, 2.0], [1, 0.0], [2, -1.0], [3, -1], [3, 1]], [[0, 1.0], [1, -1.0]], []]
    assert js([["trials", "contested", [case]] for case in cases]) == [[0, 3], [], []]


def test_the_nearest_trial_to_each_mark_is_its_own(js):
    trials = trial_by_trial(results("smoke", STORE)).data["trials"] * 2  # two of each size, at different places
    (place,) = js([["trials", "layout", [trials]]])
    high = 8 + 248 * (1 - np.array([[t["head"], t["prompt"]] for t in trials])) / (1 - place["floor"])
    marks = [(k, [x, y]) for k, x in enumerate(place["x"]) for y in high[k]]
    found = js([["trials", "nearest", [trials, [x + 1, y]]] for _, (x, y) in marks])
    assert found == [k for k, _ in marks]
    assert place["sizes"] == sorted({t["size"] for t in trials})
    assert len(set(place["x"])) == len(trials)
    lowest = min(min(t["head"], t["prompt"]) for t in trials)
    assert place["floor"] <= lowest < place["floor"] + 0.1
