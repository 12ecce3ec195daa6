"""What became of the predictions in HYPOTHESES.md on the published curve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd
from pandas import DataFrame

from hmmbook import mean_ci, results
from hmmbook.experiments.results import published
from hmmbook.studies.published_curve import groups
from hmmbook.studies.published_curve.comparisons import (
    COLUMNS,
    FEW_STATES,
    HEAD,
    MANY_STATES,
    PROMPT,
    differences,
    explanations,
    gaps,
    n_outside,
    points_above,
)
from hmmbook.studies.published_curve.groups import PROBE, SIZES, at

MUON_RATES = (0.005, 0.01, 0.02, 0.04)
TUNING_RATES = (0.01, 0.03, 0.1, 0.3)
ON_THE_PLATEAU = 0.9
"""An excess loss, in nats, above which the predictions counted a network as one that has learned next to nothing."""


class Prediction(NamedTuple):
    """What became of one prediction."""

    predicted: str
    """The prediction in words."""
    found: str
    """What the stored results say."""
    came_true: bool | None
    """None stands for a prediction that was not tested."""


def all_predictions(stored: DataFrame) -> list[Prediction]:
    """Return what became of every prediction, in the order of the page.

    Args:
        stored: The reruns, as `results(preset, BEYOND)` gives them.
    """
    return [
        *_on_steps(stored),
        *_on_175_steps(stored),
        *_on_the_mixture(stored),
        *_on_tuning(stored),
        *_on_changes(stored),
        *_on_our_rates(),
        *_on_adamw(stored),
        *_on_little_learned(stored),
        *_on_laptop(),
    ]


def _listed(numbers: dict | pd.Series, form: str) -> str:
    """Numbers with the name in front of each."""
    return ", ".join(f"{name}: {number:{form}}" for name, number in numbers.items())


def _both(numbers: Iterable[float], form: str) -> str:
    return " and ".join(format(number, form) for number in numbers)


def _on_steps(stored: DataFrame) -> list[Prediction]:
    by_steps = groups.by_steps(stored)
    outside = {steps: n_outside(group) for steps, group in by_steps.items()}
    heads = {steps: at(30, group)[HEAD].mean() for steps, group in by_steps.items()}
    prompts = {steps: mean_ci(at(30, group)[PROMPT]) for steps, group in by_steps.items()}
    last = prompts[300]
    spreads = [found.deviation for found in prompts.values() if abs(found.mean - 0.75) <= 0.05]
    heads_of_good_prompts = {steps: heads[steps] for steps, found in prompts.items() if found.mean > 0.8}
    return [
        Prediction(
            "Where prompts at 30 states are within five points of 75% on average, their standard deviation is 12 "
            "points or more.",
            ", ".join(f"{spread:.1%}" for spread in spreads) or "no such prompts",
            min(spreads) >= 0.12 if spreads else None,
        ),
        Prediction(
            "At each of the four numbers of steps three published means or more lie outside our interval.",
            _listed(outside, "d"),
            min(outside.values()) >= 3,
        ),
        Prediction(
            "After 300 steps prompts at 30 states are above 85%, with a standard deviation below 10 points.",
            f"{last.mean:.1%} ± {last.deviation:.1%}",
            last.mean > 0.85 and last.deviation < 0.1,
        ),
        Prediction(
            "Heads at 30 states are above the published 66% wherever prompts are above 80%.",
            _listed(heads_of_good_prompts, ".1%"),
            min(heads_of_good_prompts.values()) > published("left")["head tuning"][30].mean,
        ),
    ]


def _on_175_steps(stored: DataFrame) -> list[Prediction]:
    fresh = groups.on_fresh_chains(stored, 175)
    gap_of = gaps(fresh)
    n_within = sum(gap.low <= 0 <= gap.high for gap in gap_of.values())
    heads_at_25 = gap_of[25, "head tuning"]
    spreads = [at(n_states, fresh)[PROMPT].std() for n_states in MANY_STATES]
    at_few_states = [gap_of[n_states, "prompt tuning"].mean for n_states in FEW_STATES]
    return [
        Prediction(
            "At 175 steps, on fresh chains, nine of the twelve differences or more are within their intervals.",
            f"{n_within} of {len(gap_of)}",
            n_within >= 9,
        ),
        Prediction(
            "Heads at 25 states are not: they are above the published ones.",
            f"{heads_at_25:+.1%}",
            heads_at_25.low > 0,
        ),
        Prediction(
            "The standard deviation of prompts at 25 and 30 states is between 10 and 18 points.",
            _both(spreads, ".1%"),
            min(spreads) >= 0.1 and max(spreads) <= 0.18,
        ),
        Prediction(
            "At 4 and 8 states prompts are below the published means.",
            " and ".join(f"{100 * gap:+.1f} points" for gap in at_few_states),
            max(at_few_states) < 0,
        ),
    ]


def _on_the_mixture(stored: DataFrame) -> list[Prediction]:
    by_steps = groups.by_steps(stored)
    mixed = explanations(by_steps[100], by_steps[300])
    paper = published("left")
    published_spreads = paper["prompt tuning"].map(lambda point: point.deviation)
    ratios = (mixed.spread / published_spreads).loc[8:]
    bands = paper["head tuning"]
    n_inside = sum(bands[n_states].low <= mixed.heads[n_states] <= bands[n_states].high for n_states in SIZES)
    last_shares = mixed.share.loc[list(MANY_STATES)]
    return [
        Prediction(
            "The mixture's spread of prompts is within a factor of 1.5 of the published one, from 8 states on.",
            ", ".join(f"{ratio:.2f}" for ratio in ratios),
            ratios.between(1 / 1.5, 1.5).all(),
        ),
        Prediction(
            "Its heads lie in the published bands at five of the six sizes or more.",
            f"{n_inside} of {len(SIZES)}",
            n_inside >= 5,
        ),
        Prediction(
            "Its share falls as states grow more, and is between 0.2 and 0.5 at 25 and 30.",
            ", ".join(f"{share:.2f}" for share in mixed.share),
            mixed.share.is_monotonic_decreasing and last_shares.between(0.2, 0.5).all(),
        ),
    ]


def _on_tuning(stored: DataFrame) -> list[Prediction]:
    by_tuning = groups.by_tuning(stored)
    as_quick, careful, embedded, short, long = groups.TUNINGS
    prompts = {name: group.groupby("n_states")[PROMPT].mean() for name, group in by_tuning.items()}
    heads_at_30 = {name: at(30, group)[HEAD].mean() for name, group in by_tuning.items() if name != short}
    lost = 100 * (prompts[as_quick] - prompts[short])
    gained = 100 * (prompts[embedded] - prompts[careful])
    predictions = []
    if long in by_tuning:
        alike = DataFrame([prompts[as_quick], prompts[careful], prompts[long]])
        largest = 100 * (alike.max() - alike.min()).max()
        predictions.append(
            Prediction(
                "quick, appendix E and 100 passes: prompts differ by less than three points at both sizes.",
                f"largest difference: {largest:.1f} points",
                largest < 3,
            )
        )
    return [
        *predictions,
        Prediction(
            "160 small steps: prompts are five points lower or more, and above 82% at 30 states.",
            f"{_both(lost, '.1f')} points lower; {prompts[short][30]:.1%}",
            lost.min() >= 5 and prompts[short][30] > 0.82,
        ),
        Prediction(
            "From word embeddings: less than two points, at both sizes.",
            " and ".join(f"{points:+.1f} points" for points in gained),
            gained.abs().max() < 2,
        ),
        Prediction(
            "Heads at 30 states are at 71% or more under every tuning but the 160 small steps.",
            f"least: {min(heads_at_30.values()):.1%}",
            min(heads_at_30.values()) >= 0.71,
        ),
    ]


def _on_changes(stored: DataFrame) -> list[Prediction]:
    by_change = groups.by_change(stored)
    change = differences(by_change)
    excess = {name: group.excess_loss for name, group in by_change.items()}
    more_excess = {name: (values - excess[groups.UNCHANGED]).mean() for name, values in excess.items()}
    rare = (excess["5% masked"] > ON_THE_PLATEAU).sum()
    with_adamw = (excess["5% masked, AdamW"] > ON_THE_PLATEAU).sum()
    prompts_with_adamw = by_change["5% masked, AdamW"][PROMPT].mean()
    of_the_nine = set(change) - {*groups.SEVERAL_AT_ONCE, "AdamW, 1,600 steps"}
    nine = change["nine changes"]
    sums = {column: sum(change[name][column].mean for name in of_the_nine) for column in COLUMNS.values()}
    small = of_the_nine - {"5% masked", "129 tokens", "dropout"}
    largest = max(abs(change[name][PROMPT].mean) for name in small)
    predictions = [
        Prediction(
            "5% masked leaves at least three of ten networks 0.9 nats above the least loss, and costs prompts five "
            "points.",
            f"{rare} of 10; {change['5% masked'][PROMPT]:+.1%}",
            rare >= 3 and change["5% masked"][PROMPT].mean <= -0.05,
        ),
        Prediction(
            "5% masked and AdamW together leave at least six of ten networks 0.9 nats above the least loss, and "
            "prompts below 82%.",
            f"{with_adamw} of 10; {prompts_with_adamw:.1%}",
            with_adamw >= 6 and prompts_with_adamw < 0.82,
        ),
    ]
    for what, column in (("prompts", PROMPT), ("heads", HEAD)):
        predictions.append(
            Prediction(
                f"Nine settings at once, all but AdamW, change {what} by as much as the sum of the single changes, "
                "within five points.",
                f"{nine[column].mean:+.1%}; the sum is {sums[column]:+.1%}",
                abs(nine[column].mean - sums[column]) <= 0.05,
            )
        )
    return [
        *predictions,
        Prediction(
            "Tasks of 129 tokens leave the excess as it is within 0.2 nats, and prompts within five points.",
            f"{more_excess['129 tokens']:+.2f} nats; {change['129 tokens'][PROMPT]:+.1%}",
            abs(more_excess["129 tokens"]) < 0.2 and abs(change["129 tokens"][PROMPT].mean) < 0.05,
        ),
        Prediction(
            "Documents, masking, labels, places, ids and weights move prompts by less than five points each.",
            f"largest: {100 * largest:.1f} points",
            largest < 0.05,
        ),
        Prediction(
            "Dropout raises the excess by 0.1 nats or more, and costs prompts less than five points.",
            f"{more_excess['dropout']:+.2f} nats; {change['dropout'][PROMPT]:+.1%}",
            more_excess["dropout"] >= 0.1 and change["dropout"][PROMPT].mean > -0.05,
        ),
    ]


def _on_our_rates() -> list[Prediction]:
    by_muon_rate = groups.by_rate(MUON_RATES, 0.02, "muon_rate={rate}")
    excess = {rate: group.excess_loss.mean() for rate, group in by_muon_rate.items()}
    by_tuning_rate = groups.by_rate(TUNING_RATES, 0.1, "head_rate={rate} prompt_rate={rate}")
    columns = ["validation_head_accuracy", "validation_prompt_accuracy"]
    reached = DataFrame({rate: group[columns].mean() for rate, group in by_tuning_rate.items()})
    behind = reached.max(axis=1) - reached[0.1]
    means = []
    for rate, (heads, prompts) in reached.items():
        means.append(f"{rate:g}: {heads:.1%}, {prompts:.1%}")
    return [
        Prediction(
            "Muon's rate of 0.02 is the best of four by the loss, on chains of its own, or within 0.05 nats of it.",
            ", ".join(f"{rate:g}: {mean:.2f}" for rate, mean in excess.items()),
            excess[0.02] - min(excess.values()) < 0.05,
        ),
        Prediction(
            "A rate of 0.1 is the best of four for tuning, on validation examples, or within two points of it.",
            f"heads and prompts: {'; '.join(means)}",
            behind.max() <= 0.02,
        ),
    ]


def _on_adamw(stored: DataFrame) -> list[Prediction]:
    trials = groups.with_changes(stored, f"steps=1600 {groups.ADAMW.format(0.001)}")
    behind = trials[trials.excess_loss > ON_THE_PLATEAU].groupby("n_states").size()
    n_behind = {n_states: behind.get(n_states, 0) for n_states in (30, 10)}
    far_behind = at(30, trials[trials.excess_loss > 1.6])
    ahead = at(30, trials[trials.excess_loss < ON_THE_PLATEAU])
    at_label = abs(points_above(far_behind).mean()) < 3
    by_optimiser = groups.by_optimiser(stored)
    lead = []
    for low, high in ((0.3, 0.6), (0.6, 0.9)):
        prompts = {}
        for name, group in by_optimiser.items():
            prompts[name] = group[group.learned.between(low, high, inclusive="left")][PROMPT].mean()
        lead.append(100 * (prompts["AdamW alone, 1,600 steps"] - prompts["Muon at 0.02, 100 to 300 steps"]))
    return [
        Prediction(
            "AdamW alone, 1,600 steps: more than half of the networks of 30 states keep an excess above 0.9 nats; "
            "fewer do at 10.",
            f"{n_behind[30]} and {n_behind[10]} of 10",
            n_behind[30] > 5 and n_behind[10] < n_behind[30],
        ),
        Prediction(
            "Its prompts are at the more frequent label where the excess is above 1.6 nats, and above 88% where it is "
            "below 0.9.",
            f"{len(far_behind)} are above; below: {ahead[PROMPT].mean():.1%} ({len(ahead)})",
            at_label and ahead[PROMPT].mean() > 0.88 if len(far_behind) else None,
        ),
        Prediction(
            "At equal shares its prompts are within five points of those of Muon's networks.",
            _both(lead, "+.1f"),
            max(map(abs, lead)) < 5,
        ),
    ]


def _on_little_learned(stored: DataFrame) -> list[Prediction]:
    three = groups.that_learned_little(stored, fresh=True)
    prompts = {name: points_above(group).mean() for name, group in three.items()}
    heads = {name: points_above(group, HEAD).mean() for name, group in three.items()}
    probes = {name: points_above(group, PROBE).mean() for name, group in three.items()}
    early = "100 steps"
    rare = "400 steps, 5% masked"
    return [
        Prediction(
            "Networks that have learned little, fresh chains: after 100 steps prompts are less than five points above "
            "the more frequent label.",
            f"{prompts[early]:+.1f} points",
            prompts[early] < 5,
        ),
        Prediction(
            "With 5% masked, after 400 steps, twelve points or more.",
            f"{prompts[rare]:+.1f} points",
            prompts[rare] >= 12,
        ),
        Prediction(
            "Heads less than six points, in each of the three groups.",
            ", ".join(f"{points:+.1f}" for points in heads.values()),
            max(heads.values()) < 6,
        ),
        Prediction(
            "A probe of the label on these networks: with 5% masked it is 25 points or more above the more frequent "
            "label.",
            f"{probes[rare]:+.1f} points",
            probes[rare] >= 25,
        ),
        Prediction("After 100 steps it is less than 15.", f"{probes[early]:+.1f} points", probes[early] < 15),
    ]


def _on_laptop() -> list[Prediction]:
    laptop = results("laptop")
    laptop = laptop[laptop.changes == ""]
    vanilla = laptop[laptop.n_memory == 1]
    gain = 100 * vanilla.groupby("n_states").gain.mean().loc[[10, 15, 25, 30]]
    many_states = vanilla[vanilla.n_states.isin([15, 25, 30])]
    knowing = many_states[many_states.learned >= 0.6]
    n_ignorant = (many_states.learned < 0.1).sum()
    n_good = (knowing[PROMPT] >= 0.85).sum()
    heads = at(30, knowing)[HEAD].mean()
    reached = laptop[laptop.n_memory > 1].groupby("size").attention_accuracy.mean()
    return [
        Prediction(
            "laptop: prompts are above heads by five points or more at each size from 10 states on.",
            _listed(gain, "+.1f"),
            gain.min() >= 5,
        ),
        Prediction(
            "Of its networks with 15 states and more, those that have learned 0.6 or more have prompts of 85% or more "
            "in nine of ten trials.",
            f"{n_good} of {len(knowing)}; {n_ignorant} have learned less than 0.1",
            n_good >= 0.9 * len(knowing) > 0,
        ),
        Prediction(
            "Heads at 30 states on its networks that have learned 0.6 or more are above 70%.",
            f"{heads:.1%}",
            heads > 0.7,
        ),
        Prediction(
            "laptop: memory models with an attention head are at 95% or more at all four points.",
            _listed(reached, ".1%"),
            reached.min() >= 0.95,
        ),
    ]
