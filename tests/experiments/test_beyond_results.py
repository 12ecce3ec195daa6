"""What *Beyond the paper* says of its stored trials, as far as it is a claim about them all."""

import pytest

from hmmlib.experiments.specs import panel_specs
from hmmlib.experiments.store import STORE, load_result, result_path
from hmmlib.experiments.summaries import interval, size

pytestmark = pytest.mark.outside

RESULTS = [load_result(result_path(spec, STORE / "beyond")) for spec in panel_specs("quick", "left", 20)]
SIZES = (4, 8, 10, 15, 25, 30)


def of(n_states):
    return [r for r in RESULTS if size(r) == n_states]


def mean(values):
    return interval([v for v in values if v is not None]).mean


def apart(family, kind="all"):
    return lambda r: r.readout_distances[family][kind]


@pytest.mark.parametrize("n_states", SIZES)
def test_relabelling_is_nearer_than_reweighting_at_every_size(n_states):
    gap = interval([apart("reweighted")(r) - apart("relabelled")(r) for r in of(n_states)])
    assert gap.n == 20
    assert gap.mean > 0
    if n_states >= 8:
        assert gap.low > 0.05


def test_what_reweighting_takes_off_and_relabelling_leaves():
    needs = [r for r in RESULTS if r.prompt_accuracy - r.head_accuracy >= 0.05]
    assert 0.3 < mean(1 - apart("reweighted")(r) / apart("unchanged")(r) for r in needs) < 0.5
    for n_states in SIZES:
        assert mean(map(apart("relabelled"), of(n_states))) < mean(map(apart("free"), of(n_states))) + 0.06
    assert mean(map(apart("relabelled and reweighted"), of(30))) < mean(map(apart("relabelled"), of(30)))


def test_a_token_map_has_more_numbers_up_to_ten_states_and_fits_worse():
    for n_states in (4, 8, 10):
        assert 10 * n_states < 100 + n_states
        better = map(apart("relabelled"), of(n_states))
        assert mean(better) < mean(map(apart("translated and reweighted"), of(n_states)))


def test_on_spread_texts_both_are_nearer_than_relabelling():
    have = [r for r in RESULTS if r.text_kinds["spread"]]
    gained = [apart("relabelled", "spread")(r) - apart("relabelled and reweighted", "spread")(r) for r in have]
    assert interval(gained).low > 0


def test_controls():
    exact = [r.control_distances["exact model"] for r in RESULTS]
    assert max(control["reweighted"] for control in exact) < 1e-4
    for name in ("shuffled labels", "another task"):
        nearer = [r.control_distances[name]["relabelled"] < r.control_distances[name]["reweighted"] for r in RESULTS]
        assert mean(map(float, nearer)) > 0.9


def test_votes_and_cuts():
    assert sum(r.votes["weighed, right"] for r in RESULTS) > 0.95 * sum(r.votes["weighed"] for r in RESULTS)
    assert sum(r.votes["look-alikes, right"] for r in RESULTS) > 0.85 * sum(r.votes["look-alikes"] for r in RESULTS)
    for n_states in (15, 25, 30):
        for layer in ("layer 1", "layer 2"):
            lost = [r.prompt_cuts["none"]["accuracy"] - r.prompt_cuts[layer]["accuracy"] for r in of(n_states)]
            assert interval(lost).low > 0


def test_what_probes_read():
    for n_states in SIZES:
        probe = [r.probes["label"]["layer 2"] for r in of(n_states)]
        assert mean(probe) > mean(r.prompt_accuracy for r in of(n_states)) - 0.01
        assert mean(probe) > 0.93
        assert mean(r.probes["belief"]["layer 2"] for r in of(n_states)) > (0.9 if n_states <= 15 else 0.7)
    for n_states in (25, 30):
        fresh = mean(r.probes["label, fresh weights"]["layer 2"] for r in of(n_states))
        assert 0.7 < fresh < 0.92
        by_belief = mean(r.probes["label by belief"]["layer 2"] for r in of(n_states))
        assert abs(by_belief - mean(r.majority_rate for r in of(n_states))) < 0.05
        assert mean(r.probes["guess"] for r in of(n_states)) > mean(r.head_accuracy for r in of(n_states))


def test_a_table_of_the_likeliest_state_is_as_good_as_the_prompt():
    for n_states in SIZES:
        table = mean(r.accuracies_by_kind["table"]["all"] for r in of(n_states))
        assert table > mean(r.prompt_accuracy for r in of(n_states)) - 0.01
    for n_states in (25, 30):
        assert mean(r.text_kinds["not weighed"] for r in of(n_states)) == pytest.approx(0.8, abs=0.05)
        assert mean(r.text_kinds["near tie"] for r in of(n_states)) > 0.5


def test_which_tasks_can_be_solved():
    assert all(r.solvable["votes apart"] == 1 for r in RESULTS)
    up_to_ten = [r for r in RESULTS if size(r) <= 10]
    assert mean(float(r.solvable["prompt"]["error"] <= 1e-4) for r in up_to_ten) > 0.9
    assert all(r.built_prompt_accuracy is None for n in (25, 30) for r in of(n))
    assert 0.2 < mean(float(r.solvable["prompt"]["error"] <= 0.01) for r in of(30)) < 0.5


def test_no_certified_label_is_wrong_and_few_are_certified():
    for r in RESULTS:
        for entry in r.certified.values():
            assert entry["certified but wrong"] == 0
            assert entry["certified"] <= entry["right"]
    for n_states in (15, 25, 30):
        assert max(mean(r.certified[kind]["certified"] for r in of(n_states)) for kind in RESULTS[0].certified) < 0.15
