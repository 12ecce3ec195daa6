"""What *Beyond the paper 2* says of its stored trials, as far as it is a claim about them all."""

import pytest
from beyond_trials import RESULTS, SIZES, after, apart, means, of

from hmmlib.experiments.summaries import learned, mean, size

pytestmark = pytest.mark.outside

STEPS = (100, 200, 400, 800, 1600)


def test_what_probes_read():
    for n_states in SIZES:
        probe = [r.probes["label"]["layer 2"] for r in of(n_states)]
        assert mean(probe) > mean(r.prompt_accuracy for r in of(n_states)) - 0.01
        assert mean(probe) > 0.93
        assert mean(r.probes["belief"]["layer 2"] for r in of(n_states)) > (0.9 if n_states <= 15 else 0.7)
        fresh = mean(r.probes["label, fresh weights"]["layer 2"] for r in of(n_states))
        assert fresh > mean(r.head_accuracy for r in of(n_states))
        assert abs(mean(probe) - mean(r.prompt_accuracy for r in of(n_states))) < 0.02
    for n_states in (25, 30):
        fresh = mean(r.probes["label, fresh weights"]["layer 2"] for r in of(n_states))
        assert 0.7 < fresh < 0.92
        by_belief = mean(r.probes["label by belief"]["layer 2"] for r in of(n_states))
        assert abs(by_belief - mean(r.majority_rate for r in of(n_states))) < 0.05
        assert mean(r.probes["guess"] for r in of(n_states)) > mean(r.head_accuracy for r in of(n_states))


def test_a_table_is_nearly_as_good_on_spread_texts():
    shares = {}
    for who in ("table", "prompt"):
        right = [r.text_kinds["spread"] * (r.accuracies_by_kind[who]["spread"] or 0) for r in RESULTS]
        shares[who] = sum(right) / sum(r.text_kinds["spread"] for r in RESULTS)
    assert shares == pytest.approx({"table": 0.95, "prompt": 0.94}, abs=0.005)


def test_a_table_of_the_likeliest_state_is_as_good_as_the_prompt():
    for n_states in SIZES:
        table = mean(r.accuracies_by_kind["table"]["all"] for r in of(n_states))
        assert table > mean(r.prompt_accuracy for r in of(n_states)) - 0.01
    for n_states in (25, 30):
        assert mean(r.text_kinds["not weighed"] for r in of(n_states)) == pytest.approx(0.8, abs=0.05)
        assert mean(r.text_kinds["near tie"] for r in of(n_states)) > 0.5


def lead(group):
    """Of the probe over the prompt."""
    return mean(r.probes["label"]["layer 2"] - r.prompt_accuracy for r in group)


def test_when_prompts_come():
    assert lead(after(100, 10)) == pytest.approx(0.17, abs=0.005)
    assert mean(r.probes["label, fresh weights"]["layer 2"] for r in after(100, 10)) == pytest.approx(0.97, abs=0.005)
    for n_states in (10, 30):
        early = after(100, n_states)
        assert abs(mean(r.prompt_accuracy - r.head_accuracy for r in early)) < 0.005
        for steps in STEPS[1:]:
            assert abs(lead(after(steps, n_states))) < 0.03
        for steps in STEPS[1:]:
            group = after(steps, n_states)
            assert mean(map(apart("relabelled"), group)) < 0.6 * mean(map(apart("reweighted"), group))
    constant = [mean(map(apart("constant"), after(100, n))) for n in (10, 30)]
    assert constant == pytest.approx([0.33, 0.12], abs=0.005)
    at_200 = after(200, 30)
    assert mean(r.network_loss - r.best_loss for r in at_200) == pytest.approx(1.4, abs=0.05)
    assert mean(map(apart("floor"), at_200)) > 0.85 * mean(map(apart("unchanged"), at_200))


def test_a_higher_rate_leaves_some_networks_unlearned_and_no_tuning_mends_them():
    small = {"head_rate": 0.01, "prompt_rate": 0.01, "tuning_batch": 8}
    usual, fast, tuned = after(800, 30), after(1100, 30, muon_rate=0.04), after(1100, 30, muon_rate=0.04, **small)
    stuck = [r.spec.seed for r in fast if r.network_loss - r.best_loss > 0.9]
    assert len(stuck) == 3
    for r in (*fast, *tuned):
        if r.spec.seed in stuck:
            assert 0.69 < r.prompt_accuracy < 0.76
            assert 0.705 < r.probes["label"]["layer 2"] < 0.795
    well = mean(r.prompt_accuracy for r in fast if r.spec.seed not in stuck)
    assert well == pytest.approx(0.944, abs=0.005)
    lost = mean(r.prompt_accuracy for r in usual if r.spec.seed not in stuck) - well
    assert lost == pytest.approx(0.02, abs=0.005)
    assert mean(r.prompt_accuracy for r in tuned) < mean(r.prompt_accuracy for r in fast) + 0.01
    assert mean(map(apart("unchanged"), fast)) > mean(map(apart("unchanged"), usual))


def label(name=""):
    return lambda r: r.probes[f"label{name}"]["layer 2"]


def belief(name=""):
    return lambda r: r.probes[f"belief{name}"]["layer 2"]


def test_how_much_of_the_belief_probes_explain():
    assert min(means(belief())[:4]) > 0.945
    assert means(belief(), (25, 30)) == pytest.approx([0.8, 0.75], abs=0.03)
    gaps = [known - fresh for known, fresh in zip(means(belief()), means(belief(", fresh weights")), strict=True)]
    assert gaps == sorted(gaps)
    assert gaps[0] > 0
    assert mean(map(belief(", fresh weights"), of(30))) == pytest.approx(0.5 * mean(map(belief(), of(30))), abs=0.01)
    behind = zip(means(belief()), means(belief(", behind the prompt")), strict=True)
    assert all(abs(one - other) < 0.015 for one, other in behind)


def test_how_often_probes_are_right():
    assert means(label(), (4, 30)) == pytest.approx([0.996, 0.938], abs=0.0005)
    gains = [mean(r.probes["guess"] - r.head_accuracy for r in of(n_states)) for n_states in SIZES]
    assert 0.01 < min(gains) < max(gains) < 0.08
    for n_states in (15, 25, 30):
        assert mean(label()(r) - r.probes["guess"] for r in of(n_states)) > 0.1
    assert means(label(", fresh weights"), (8, 10, 30)) == pytest.approx([0.95, 0.95, 0.78], abs=0.005)
    assert means(lambda r: r.probes["label by belief"]["layer 2"], (25, 30)) == pytest.approx([2 / 3, 2 / 3], abs=0.01)


def test_what_the_texts_are_like():
    certain = means(lambda r: r.text_kinds["certain"])
    assert min(certain[:4]) > 0.5
    assert certain[4:] == pytest.approx([0.49, 0.34], abs=0.005)
    assert max(r.votes["weighed"] for r in RESULTS) == 6
    assert means(lambda r: r.text_kinds["near tie"], (30,)) == pytest.approx([0.64], abs=0.005)
    assert means(lambda r: r.accuracies_by_kind["table"]["near tie"], (30,)) == pytest.approx([0.93], abs=0.005)
    sure = [(1 - r.text_kinds["spread"], r.accuracies_by_kind["table"], r.text_kinds["spread"]) for r in RESULTS]
    right = sum(right["all"] - share * (right["spread"] or 0) for _, right, share in sure)
    assert right / sum(share for share, *_ in sure) == pytest.approx(0.99, abs=0.005)


def test_how_much_of_what_prompts_gain_is_on_near_ties():
    many = [r for r in RESULTS if size(r) >= 15]
    gains, shares = {}, {}
    for kind in ("near tie", "clear"):
        shares[kind] = mean(r.text_kinds[kind] for r in many)
        gains[kind] = mean(
            r.text_kinds[kind] * (r.accuracies_by_kind["prompt"][kind] - r.accuracies_by_kind["head"][kind])
            for r in many
            if r.text_kinds[kind]
        )
    assert shares["near tie"] == pytest.approx(0.60, abs=0.005)
    assert gains["near tie"] / sum(gains.values()) == pytest.approx(0.63, abs=0.005)
    a_text = {kind: gains[kind] / shares[kind] for kind in gains}
    assert a_text["near tie"] == pytest.approx(a_text["clear"], abs=0.02)


def test_what_is_read_after_100_steps_and_how_far_prompts_move_at_the_higher_rate():
    assert mean(map(label(), after(100, 10))) == pytest.approx(0.90, abs=0.005)
    assert lead(after(100, 30)) == pytest.approx(0.06, abs=0.005)
    for n_states in (10, 30):
        early = after(100, n_states)
        assert mean(map(apart("relabelled"), early)) < mean(map(apart("reweighted"), early))
        assert mean(map(apart("constant"), early)) < mean(map(apart("reweighted"), early))
    assert mean(map(apart("floor"), after(100, 10))) > 0.9 * mean(map(apart("unchanged"), after(100, 10)))
    fast = after(1100, 30, muon_rate=0.04)
    stuck = [r for r in fast if r.network_loss - r.best_loss > 0.9]
    excess = [r.network_loss - r.best_loss for r in stuck]
    assert (min(excess), max(excess)) == pytest.approx((0.9, 1.7), abs=0.05)
    nearly_nothing, little, half = sorted(map(learned, stuck))
    assert nearly_nothing < little < 1 / 8
    assert half == pytest.approx(0.5, abs=0.05)
    assert mean(map(apart("floor"), stuck)) > 0.85 * mean(map(apart("unchanged"), stuck))
    seeds = {r.spec.seed for r in fast} - {r.spec.seed for r in stuck}
    reach = [mean(apart("unchanged")(r) for r in group if r.spec.seed in seeds) for group in (fast, after(800, 30))]
    assert reach == pytest.approx([0.59, 0.53], abs=0.005)
