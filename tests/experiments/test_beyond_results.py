"""What *Beyond the paper 1* says of its stored trials, as far as it is a claim about them all."""

import pytest
from beyond_trials import ALL, RESULTS, SIZES, apart, means, needing, of

from hmmlib.experiments.specs import select
from hmmlib.experiments.summaries import interval, mean, size

pytestmark = pytest.mark.outside


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
    assert mean(map(apart("reweighted"), RESULTS)) == pytest.approx(0.24, abs=0.005)
    assert mean(map(apart("relabelled"), RESULTS)) == pytest.approx(0.07, abs=0.005)
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


def test_relabelling_is_about_as_near_as_the_networks_own_error():
    for n_states in SIZES:
        told, both, weighed, free, floor = (
            mean(map(apart(family), of(n_states)))
            for family in ("relabelled", "relabelled and reweighted", "reweighted", "free", "floor")
        )
        assert told - free < 0.055
        assert both < min(told, weighed)
        assert told < floor or n_states == 4
    for n_states in (25, 30):
        assert interval([apart("relabelled")(r) - apart("floor")(r) for r in of(n_states)]).high < 0


def test_what_each_fit_takes_off_behind_a_prompt_and_without():
    def off(family, distances):
        left = (means(lambda r, fit=fit: getattr(r, distances)[fit]["all"]) for fit in (family, "unchanged"))
        return [round(100 * (1 - one / all_of_it)) for one, all_of_it in zip(*left, strict=True)]

    assert off("reweighted", "readout_distances") == [58, 46, 46, 49, 38, 36]
    assert off("reweighted", "plain_distances") == [15, 27, 14, 14, 9, 12]
    assert off("relabelled", "plain_distances") == [33, 71, 36, 28, 34, 45]
    shuffled = [r.control_distances["shuffled labels"] for r in RESULTS]
    left = mean(d["reweighted"] for d in shuffled) / mean(d["unchanged"] for d in shuffled)
    assert left == pytest.approx(0.36, abs=0.005)
    assert mean(d["relabelled"] for d in shuffled) < 0.04


def test_how_many_texts_are_spread_and_where_nothing_is_learned():
    assert means(lambda r: r.text_kinds["spread"], (10, 30)) == pytest.approx([0.07, 0.45], abs=0.005)
    hot = select(ALL, temperature=0.3)
    assert max(r.prompt_accuracy - r.head_accuracy for r in hot) == 0
    assert max(map(apart("constant"), hot)) < 0.02
    for t in (0.1, 0.3):
        assert mean(r.text_kinds["spread"] for r in select(ALL, temperature=t)) > 0.5


def test_shares_of_votes_what_cuts_leave_and_what_the_likeliest_state_settles():
    for name, share in (("weighed", 0.976), ("look-alikes", 0.911)):
        right = sum(r.votes[f"{name}, right"] for r in RESULTS) / sum(r.votes[name] for r in RESULTS)
        assert right == pytest.approx(share, abs=0.0005)
    left = [
        mean(r.prompt_cuts[layer]["accuracy"] - r.head_accuracy for r in of(n_states))
        for n_states in SIZES
        for layer in ("layer 1", "layer 2")
    ]
    assert min(left) < 0 < 0.04 < max(left) < 0.05
    settled = means(lambda r: r.accuracies_by_kind["table"]["all"])
    assert (min(settled), max(settled)) == pytest.approx((0.96, 1.0), abs=0.005)


def test_from_ten_or_twenty_vectors_on_the_differences_may_be_chance():
    def gained(n_states, few, many):
        pairs = zip(*(sorted(prompts(k, n_states), key=lambda r: r.spec.seed) for k in (few, many)), strict=True)
        return interval([more.prompt_accuracy - less.prompt_accuracy for less, more in pairs])

    for n_states, few, many in ((10, 10, 20), (10, 20, 50), (10, 10, 50), (30, 20, 50)):
        found = gained(n_states, few, many)
        assert found.low < 0 < found.high
        assert abs(found.mean) < 0.02
    assert mean(r.prompt_accuracy - r.head_accuracy for r in prompts(1, 10)) == pytest.approx(0.03, abs=0.005)
