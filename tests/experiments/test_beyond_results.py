"""What *Beyond the paper* says of its stored trials, as far as it is a claim about them all."""

import pytest

from hmmlib.experiments.specs import panel_specs, select
from hmmlib.experiments.store import STORE, load_result, load_results, result_path
from hmmlib.experiments.summaries import interval, size

pytestmark = pytest.mark.outside

RESULTS = [load_result(result_path(spec, STORE / "beyond")) for spec in panel_specs("quick", "left", 20)]
ALL = load_results("quick", STORE / "beyond")
STEPS = (100, 200, 400, 800, 1600)
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


def test_without_a_prompt_reweighting_does_little():
    def bare(family, n_states):
        return mean(r.plain_distances[family]["all"] for r in of(n_states))

    for n_states in (25, 30):
        assert 0.87 < bare("reweighted", n_states) / bare("unchanged", n_states) < 0.95
        assert bare("relabelled", n_states) < 0.67 * bare("unchanged", n_states)


def test_a_token_map_has_more_numbers_up_to_ten_states_and_fits_worse():
    for n_states in (4, 8, 10):
        assert 10 * n_states < 100 + n_states
        better = map(apart("relabelled"), of(n_states))
        assert mean(better) < mean(map(apart("translated and reweighted"), of(n_states)))


def test_on_spread_texts_both_are_nearer_than_relabelling():
    have = [r for r in RESULTS if r.text_kinds["spread"]]
    gained = [apart("relabelled", "spread")(r) - apart("relabelled and reweighted", "spread")(r) for r in have]
    assert interval(gained).low > 0


def test_what_would_have_spoken_against_it_came_in_three_trials():
    needs = [r for r in RESULTS if r.prompt_accuracy - r.head_accuracy >= 0.05]
    pairs = [(apart("reweighted")(r), apart("relabelled")(r)) for r in needs]
    assert (sum(weighed <= told for weighed, told in pairs), len(pairs)) == (3, 84)
    assert mean(float(weighed >= 3 * told) for weighed, told in pairs) == pytest.approx(0.6, abs=0.02)


def test_one_vector_on_the_exact_model_is_right_as_often():
    for n_states in SIZES:
        exact = mean(r.ladder_prompt_accuracy for r in of(n_states))
        assert abs(exact - mean(r.prompt_accuracy for r in of(n_states))) < 0.03


def test_controls():
    exact = [r.control_distances["exact model"] for r in RESULTS]
    assert max(control["reweighted"] for control in exact) < 1e-4
    shuffled = [r.control_distances["shuffled labels"] for r in RESULTS]
    assert mean(d["reweighted"] for d in shuffled) == pytest.approx(
        0.4 * mean(d["unchanged"] for d in shuffled), rel=0.1
    )
    untrained = mean(r.control_distances["untrained"]["unchanged"] for r in RESULTS)
    assert untrained == pytest.approx(0.16, abs=0.005)
    assert mean(map(apart("floor"), RESULTS)) == pytest.approx(0.10, abs=0.005)
    assert mean(map(apart("unchanged"), RESULTS)) == pytest.approx(0.42, abs=0.005)
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
    for n_states in SIZES:
        unheard = mean(r.prompt_cuts["every layer"]["accuracy"] for r in of(n_states))
        assert unheard < mean(r.head_accuracy for r in of(n_states))
    assert sum(r.votes["look-alikes, right"] for r in RESULTS) < 0.95 * sum(r.votes["look-alikes"] for r in RESULTS)


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


def test_which_tasks_can_be_solved():
    assert all(r.solvable["votes apart"] == 1 for r in RESULTS)
    up_to_ten = [r for r in RESULTS if size(r) <= 10]
    assert mean(float(r.solvable["prompt"]["error"] <= 1e-4) for r in up_to_ten) > 0.9
    assert [sum(r.built_prompt_accuracy is not None for r in of(n)) for n in SIZES] == [20, 20, 19, 12, 0, 0]
    for n_states in (25, 30):
        assert mean(float(r.solvable["prompt"]["error"] <= 0.01) for r in of(n_states)) == pytest.approx(0.25, abs=0.06)
    assert 0.2 < mean(float(r.solvable["prompt"]["error"] <= 0.01) for r in of(30)) < 0.5


def test_no_certified_label_is_wrong_and_few_are_certified():
    for r in RESULTS:
        for entry in r.certified.values():
            assert entry["certified but wrong"] == 0
            assert entry["certified"] <= entry["right"]
    best = [max(mean(r.certified[kind]["certified"] for r in of(n)) for kind in RESULTS[0].certified) for n in SIZES]
    assert best == pytest.approx([0.74, 0.24, 0.18, 0.099, 0.074, 0.037], abs=0.005)


def prompts(count, n_states):
    found = [r for r in select(ALL, length=83, prompt_length=count) if size(r) == n_states]
    assert sorted(r.spec.seed for r in found) == list(range(10))
    return found


def test_one_vector_helps_and_every_length_relabels():
    gained = [r.prompt_accuracy - r.head_accuracy for r in prompts(1, 30)]
    assert interval(gained).low > 0
    assert mean(gained) == pytest.approx(0.11, abs=0.005)
    assert mean(r.prompt_accuracy - r.head_accuracy for r in prompts(20, 30)) == pytest.approx(0.20, abs=0.005)
    for n_states in (10, 30):
        accuracies = [mean(r.prompt_accuracy for r in prompts(k, n_states)) for k in (1, 2, 5, 10, 50)]
        assert accuracies == sorted(accuracies)
        moved = [mean(map(apart("unchanged"), prompts(k, n_states))) for k in (1, 2, 5, 10, 50)]
        assert moved == sorted(moved)
        for k in (1, 2, 5, 10, 20, 50):
            assert mean(map(apart("relabelled"), prompts(k, n_states))) < 0.6 * mean(
                map(apart("reweighted"), prompts(k, n_states))
            )
    assert mean(r.prompt_accuracy for r in prompts(50, 10)) > mean(r.prompt_accuracy for r in prompts(20, 10)) + 0.01


def after(steps, n_states, **fields):
    fields |= {} if steps == 400 else {"steps": steps}
    found = [r for r in select(ALL, **fields) if size(r) == n_states and r.spec.seed < 10]
    assert len(found) == 10
    return found


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


def needing(group):
    return [r for r in group if r.prompt_accuracy - r.head_accuracy >= 0.05]


def test_warm_chains_are_not_learned_and_where_they_are_prompts_relabel():
    warm = {t: select(ALL, temperature=t) for t in (0.03, 0.1, 0.3)}
    assert all(len(group) == 30 for group in warm.values())
    assert [len(needing(group)) for group in warm.values()] == [17, 7, 0]
    assert all(size(r) < 25 for r in needing(warm[0.1]))
    assert max(abs(r.prompt_accuracy - r.head_accuracy) for r in warm[0.3]) < 0.05
    for t in (0.03, 0.1):
        assert all(apart("relabelled")(r) < apart("reweighted")(r) for r in needing(warm[t]))
    longer = select(ALL, temperature=0.1, steps=1600)
    assert len(longer) == 15
    for n_states in (4, 8, 10):
        before, after = (
            mean(r.network_loss - r.best_loss for r in g if size(r) == n_states) for g in (warm[0.1], longer)
        )
        assert 0.5 < after / before < 0.8
    four = needing(longer)
    assert len(four) == 4
    told, weighed, both = (
        mean(apart(family, "spread")(r) for r in four)
        for family in ("relabelled", "reweighted", "relabelled and reweighted")
    )
    assert weighed == pytest.approx(told, rel=0.1)
    assert both == pytest.approx(0.8 * told, rel=0.05)


def test_on_spread_texts_weights_and_words_together_are_the_nearest():
    needs = [r for r in needing(RESULTS) if apart("reweighted", "spread")(r) is not None]
    closer = [apart("reweighted", "spread")(r) < apart("relabelled", "spread")(r) for r in needs]
    assert (sum(closer), len(closer)) == (10, 46)
    behind = [apart("relabelled", "spread")(r) - apart("relabelled and reweighted", "spread")(r) for r in needs]
    without = [
        r.plain_distances["relabelled"]["spread"] - r.plain_distances["relabelled and reweighted"]["spread"]
        for r in needs
    ]
    assert (mean(behind), mean(without)) == pytest.approx((0.05, 0.05), abs=0.005)
    paired = interval([b - w for b, w in zip(behind, without, strict=True)])
    assert paired.low < 0 < paired.high
    warm = [r for t in (0.03, 0.1) for r in needing(select(ALL, temperature=t))]
    warm = [r for r in warm if apart("reweighted", "spread")(r) is not None]
    nearer = [apart("relabelled", "spread")(r) < apart("reweighted", "spread")(r) for r in warm]
    assert (sum(nearer), len(nearer)) == (20, 22)
    for group in (RESULTS, *(select(ALL, temperature=t) for t in (0.03, 0.1))):
        found = {
            family: mean(apart(family, "spread")(r) for r in needing(group))
            for family in (
                "unchanged",
                "reweighted",
                "translated and reweighted",
                "relabelled",
                "relabelled and reweighted",
            )
        }
        assert min(found, key=found.get) == "relabelled and reweighted"
