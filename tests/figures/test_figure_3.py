"""Intervals over trials, and that the figures draw what the results say."""

import dataclasses
import math
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from companion.figures import figure_3
from scipy import stats

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.summaries import (
    LEFT,
    RIGHT,
    Interval,
    along,
    apart,
    gain,
    interval,
    learned,
    means,
    reference,
    size,
)
from hmmlib.experiments.trials import TrialResult, draw_model


def made_up(n_states, seed, head, prompt, attention=0.5, n_memory=1, steps=60, excess=0.1):
    """A result with these numbers, and nothing behind them."""
    values = {
        field.name: 0.5 for field in dataclasses.fields(TrialResult) if field.type.startswith(("Share", "Amount"))
    }
    spec = TrialSpec("smoke", n_states, seed, n_memory, steps=steps)
    values |= dict(head_accuracy=head, prompt_accuracy=prompt, attention_accuracy=attention)
    values |= dict(best_loss=1.0, network_loss=1.0 + excess)
    return TrialResult(spec=spec, redraws=0, backbone="", seeds={}, seconds={}, environment={}, **values)


LEFT_RESULTS = [made_up(n, k, 0.5 + 0.01 * k + 0.001 * n, 0.9 - 0.02 * k) for n in (4, 8) for k in range(4)]
RIGHT_RESULTS = [made_up(4, k, 0.7, None, 0.95 + 0.01 * k, n_memory=m) for m in (2, 3) for k in range(3)] + [
    made_up(4 * m, k, 0.6 + 0.01 * k, 0.8, 0.99) for m in (2, 3) for k in range(3)
]


@pytest.mark.parametrize("values", [[0.3, 0.5], [1.0, 1.0, 1.0], list(np.random.default_rng(0).random(20))])
def test_the_interval_is_students(values):
    found = interval(values)
    n, mean, error = len(values), np.mean(values), stats.sem(values)
    low, high = stats.t.interval(0.95, n - 1, loc=mean, scale=error) if error else (mean, mean)
    np.testing.assert_allclose(found[:3], (mean, low, high), rtol=1e-12)
    assert found.n == n
    assert found.deviation == pytest.approx(np.std(values, ddof=1))


def test_two_samples_are_apart_by_welchs_interval():
    one, other = np.random.default_rng(2).normal([[0.5], [0.9]], [[0.1], [0.3]], (2, 9))
    found, welch = apart(interval(one), interval(other[:5])), stats.ttest_ind(one, other[:5], equal_var=False)
    np.testing.assert_allclose(found[1:3], welch.confidence_interval(), rtol=1e-9)
    assert found.mean == pytest.approx(np.mean(one) - np.mean(other[:5]))
    assert found.n == 14
    assert apart(interval([1.0, 1.0]), interval([0.5, 0.5]))[:3] == (0.5, 0.5, 0.5)
    assert apart(interval([1.0, 1.0]), interval(other)).low == pytest.approx(1 - interval(other).high)


def test_intervals_hold_the_mean_as_often_as_they_say():
    draws = np.random.default_rng(1).normal(0.4, 1.0, (2000, 6))
    inside = np.mean([(found := interval(row)).low <= 0.4 <= found.high for row in draws.tolist()])
    assert abs(inside - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_one_trial_has_no_interval():
    assert interval([0.5]) == Interval(0.5, -math.inf, math.inf, 1)
    assert f"{interval([0.5])}" == "50.0% (one trial)"
    assert math.isnan(interval([0.5]).deviation)
    assert f"{interval([0.25, 0.25]):.2f}" == "0.25 [0.25, 0.25]"


def test_an_interval_of_shares_is_shown_within_0_and_1_and_kept_as_it_is():
    high, low = [0.99, 0.97, 0.71], [0.0, 0.3, 0.02]
    for values in (high, low):
        plain, share = interval(values), interval(values, share=True)
        assert share[:4] == plain[:4]
        assert share.deviation == plain.deviation
        assert plain.shown == (plain.low, plain.high) != share.shown
        assert 0 <= share.shown[0] < share.mean < share.shown[1] <= 1
    assert f"{interval(high, share=True)}" == "89.0% [50.2%, 100.0%]"
    assert f"{interval(low, share=True)}" == "10.7% [0.0%, 52.3%]"
    assert f"{interval([0.5], share=True)}" == "50.0% (one trial)"
    for wrong in ([0.5, 1.01], [-0.01, 0.5]):
        with pytest.raises(ValueError, match=r"^values: shares must be from 0 to 1"):
            interval(wrong, share=True)


def test_what_is_read_by_its_name_is_a_share_and_a_difference_is_none():
    assert all(means(LEFT_RESULTS + RIGHT_RESULTS, read).share for read in (*LEFT.values(), *RIGHT.values()))
    assert not means(LEFT_RESULTS, gain).share
    assert {RIGHT["vanilla HMM + linear head"](r) is None for r in RIGHT_RESULTS if r.spec.n_memory > 1} == {True}
    assert LEFT["head tuning"](LEFT_RESULTS[0]) == LEFT_RESULTS[0].head_accuracy


@pytest.mark.parametrize("values", [[], [0.5, math.nan], [math.inf]])
def test_what_has_no_interval_is_refused(values):
    with pytest.raises(ValueError, match="an interval needs at least one value, all of them finite"):
        interval(values)


def test_results_are_grouped_by_point_and_pairs_stay_pairs():
    found = along(LEFT_RESULTS, gain, size)
    assert list(found) == [4, 8]
    for n, point in found.items():
        expected = [0.9 - 0.02 * k - (0.5 + 0.01 * k + 0.001 * n) for k in range(4)]
        assert point == interval(expected)
    assert along(RIGHT_RESULTS, gain, size).keys() == {8, 12}, "memory models have no prompt, so no pair"


def test_the_paired_interval_is_not_that_of_two_samples():
    paired = along(LEFT_RESULTS, gain, size)[4]
    anti = [replace(r, prompt_accuracy=0.9 + 0.02 * (r.spec.seed - 3)) for r in LEFT_RESULTS]
    other = along(anti, gain, size)[4]
    assert other.mean == pytest.approx(paired.mean)
    assert other.high - other.low < 0.5 * (paired.high - paired.low)


def test_the_published_values_are_the_file_in_the_package():
    left, right = reference("left"), reference("right")
    assert set(left) == set(LEFT)
    assert set(right) == set(RIGHT)
    assert list(left["head tuning"]) == list(left["prompt tuning"]) == [4, 8, 10, 15, 25, 30]
    assert left["prompt tuning"][30] == Interval(0.7514, 0.6835, 0.8194, 20)
    lines = (files("hmmlib.experiments") / "figure3-reference.csv").read_text().splitlines()
    assert sum(map(len, (*left.values(), *right.values()))) == sum("," in ln for ln in lines if ln[0] != "#") - 1
    with pytest.raises(ValueError, match="panel must be left or right, not 'middle'"):
        reference("middle")


@pytest.mark.parametrize(
    "fields", [dict(n_states=4), dict(n_states=3, n_memory=2), dict(documents=4, document_length=60)]
)
def test_what_was_learned_is_told_from_the_frequencies_of_tokens(fields):
    spec = TrialSpec("smoke", **fields)
    text = draw_model(spec).sample(20_000, spec.document_length or spec.length, 0).tokens
    shares = text.flatten().bincount(minlength=spec.n_tokens).double() / text.numel()
    guess = -(shares * shares.log().clamp_min(-99)).sum().item()

    def after(loss):
        return learned(replace(made_up(4, 0, 0.5, 0.5), spec=spec, best_loss=0.0, network_loss=loss))

    assert after(0.0) == 1
    assert after(guess) == pytest.approx(0, abs=0.01)
    assert after(guess / 2) == pytest.approx(0.5, abs=0.01)
    assert after(guess + 0.1) < -0.05


def drawn(figure, label):
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == label]
    return np.asarray(line.get_ydata(), dtype=float)


@pytest.mark.parametrize(("name", "series", "results"), [("left", LEFT, LEFT_RESULTS), ("right", RIGHT, RIGHT_RESULTS)])
def test_a_panel_draws_the_means_of_the_results_and_the_published_ones(name, series, results):
    figure = figure_3.panel(results, name)
    for label, read in series.items():
        means = [point.mean for point in along(results, read, size).values()]
        np.testing.assert_allclose(drawn(figure, label), means)
        published = [point.mean for point in reference(name)[label].values()]
        np.testing.assert_allclose(drawn(figure, f"{label}, published"), published)


def test_the_other_figures_draw_their_numbers():
    np.testing.assert_allclose(
        drawn(figure_3.gains(LEFT_RESULTS), "mean with its 95% interval"),
        [point.mean for point in along(LEFT_RESULTS, gain, size).values()],
    )
    dots = figure_3.against_learned(LEFT_RESULTS, LEFT).axes[0].collections
    assert [len(part.get_offsets()) for part in dots] == [8, 8]
    with pytest.raises(ValueError, match="results must have a value for 'head of Theorem 3"):
        figure_3.against_learned(
            [replace(r, built_head_accuracy=None) for r in LEFT_RESULTS],
            {"head of Theorem 3.3": lambda r: r.built_head_accuracy},
        )
    assert {
        line.get_linestyle() for line in figure_3.ladder(LEFT_RESULTS).axes[0].lines if len(line.get_xdata()) == 2
    } >= {
        "--",
        "-",
    }
