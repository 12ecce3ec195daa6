"""What *Beyond the paper 3* says of its stored trials, as far as it is a claim about them all."""

import math

import pytest
from beyond_trials import RESULTS, SIZES, means, of

from hmmlib.experiments.summaries import mean, size

pytestmark = pytest.mark.outside


def test_which_tasks_can_be_solved():
    assert all(r.solvable["votes apart"] == 1 for r in RESULTS)
    up_to_ten = [r for r in RESULTS if size(r) <= 10]
    assert mean(float(r.solvable["prompt"]["error"] <= 1e-4) for r in up_to_ten) > 0.9
    assert [sum(r.built_prompt_accuracy is not None for r in of(n)) for n in SIZES] == [20, 20, 19, 12, 0, 0]
    for n_states in (25, 30):
        assert mean(float(r.solvable["prompt"]["error"] <= 0.01) for r in of(n_states)) == pytest.approx(0.25, abs=0.06)
    assert 0.2 < mean(float(r.solvable["prompt"]["error"] <= 0.01) for r in of(30)) < 0.5
    assert [sum(r.solvable["head"]["error"] <= 1e-6 for r in of(n)) for n in SIZES] == [20, 16, 10, 0, 0, 0]


def test_no_certified_label_is_wrong_and_few_are_certified():
    for r in RESULTS:
        for entry in r.certified.values():
            assert entry["certified but wrong"] == 0
            assert entry["certified"] <= entry["right"]
    best = [max(mean(r.certified[kind]["certified"] for r in of(n)) for kind in RESULTS[0].certified) for n in SIZES]
    assert best == pytest.approx([0.74, 0.24, 0.18, 0.099, 0.074, 0.037], abs=0.005)


def test_what_weights_solutions_need():
    def middle(who, what, n_states):
        values = sorted(r.solvable[who][what] for r in of(n_states))
        return values[10]

    assert [round(math.log10(middle("head", "spread", n))) for n in (8, 10)] == [4, 7]
    assert 1e6 < middle("prompt", "spread", 15) < 1e7
    errors = [[r.solvable["prompt"]["error"] for r in of(n)] for n in (25, 30)]
    assert [sum(error <= 0.01 for error in group) for group in errors] == [6, 5]


def test_how_many_labels_are_certain_and_right():
    right = means(lambda r: r.certified["nearest head"]["right"])[1:]
    assert (min(right), max(right)) == pytest.approx((0.52, 0.65), abs=0.005)
    assert mean(r.certified["tuned head"]["distance"] for r in of(30)) == pytest.approx(0.46, abs=0.005)
    told, weighed = (
        means(lambda r, way=way: r.certified[f"tuned prompt, {way}"]["certified"])
        for way in ("relabelling", "reweighting")
    )
    assert all(one > other for one, other in zip(told, weighed, strict=True))
    assert told[3] == pytest.approx(0.099, abs=0.0005)
