"""What became of the predictions in HYPOTHESES.md on how a tuned prompt helps, for entries 5, 6 and 34 to 37."""

from __future__ import annotations

from typing import NamedTuple

from pandas import DataFrame, Series

from hmmbook import mean_ci
from hmmbook.experiments.intervals import Interval
from hmmbook.studies.mechanism import tables
from hmmbook.studies.mechanism.constants import BEHIND, EMBEDDING
from hmmbook.studies.mechanism.gate import BOTH, FIXED, FROZEN, UNSEEN
from hmmbook.studies.mechanism.heads_by_size import ALONE, PROMPTED

RELABELLED = "readout_distances.relabelled.all"
REWEIGHTED = "readout_distances.reweighted.all"


class Outcome(NamedTuple):
    """What became of one prediction."""

    prediction: str
    """The prediction in words."""
    result: str
    """What the stored results say."""
    came_true: bool | None


def points(differences: Series) -> Interval:
    """The mean of differences of accuracies with its interval, in points."""
    return mean_ci(100 * differences, share=False)


def per_cent(values: Series) -> str:
    """The mean of shares, in whole percent."""
    return f"{values.mean():.0%}"


def of_chains(holds: Series) -> str:
    """On how many chains something holds."""
    return f"{holds.sum()} of {len(holds)} chains"


def listed(values: Series) -> str:
    """Values with the place in front of each."""
    return ", ".join(f"{place}: {value:.1f}" for place, value in values.items())


def entry_5() -> list[Outcome]:
    """How long must a prompt be?"""
    stored = tables.stored()
    trials = stored[stored.changes.str.startswith("length=83") & (stored.n_memory == 1)]
    by_length = trials.groupby(["n_states", "prompt_length"])
    accuracy = by_length.prompt_accuracy.mean().unstack()
    head = trials.groupby("n_states").head_accuracy.mean()
    nearer = by_length[RELABELLED].mean() < by_length[REWEIGHTED].mean()
    lead_of_one = 100 * (accuracy.loc[30, 1] - head[30])
    behind_twenty = 100 * (accuracy[20] - accuracy[5])
    over_twenty = 100 * (accuracy[50] - accuracy[20])
    return [
        Outcome("One vector adds five points to the head at 30 states.", f"{lead_of_one:.1f} points", lead_of_one >= 5),
        Outcome(
            "Five vectors come within two points of twenty at both sizes.",
            listed(behind_twenty),
            behind_twenty.abs().max() <= 2,
        ),
        Outcome("Fifty add less than one point to twenty.", listed(over_twenty), over_twenty.max() < 1),
        Outcome(
            "Relabelling is nearer than reweighting at every length and both sizes.",
            f"at {nearer.sum()} of {len(nearer)}",
            nearer.all(),
        ),
    ]


def entry_6() -> list[Outcome]:
    """Which layer does it, and when does it come?"""
    stored = tables.stored()
    vanilla = stored[(stored.n_memory == 1) & (stored.seed < 20)]
    first = least_loss_by_cut(vanilla, 1)
    second = least_loss_by_cut(vanilla, 2)

    trials = vanilla[vanilla.steps.isin([100, 200, 400, 800, 1600]) & vanilla.n_states.isin([10, 30])]
    trials = trials[trials.changes.str.fullmatch(r"(steps=\d+)?") & (trials.seed < 10)]
    trials = trials[trials[RELABELLED].notna()]
    means = trials.groupby(["n_states", "steps"]).mean(numeric_only=True)
    with_lead = means[means.gain >= 0.05]
    nearer = with_lead[RELABELLED] < with_lead[REWEIGHTED]
    probe = 100 * (means["probes.label.layer 2"] - means.prompt_accuracy)
    at_100 = probe[probe.index.get_level_values("steps") == 100]
    return [
        Outcome(
            "Cutting either layer takes ten points from the prompt at 15 states and more.",
            f"least: {first:.0f} points in the first layer, {second:.0f} in the second",
            min(first, second) >= 10,
        ),
        Outcome(
            "Wherever prompts are better by five points, relabelling is nearer, at each number of steps and size.",
            f"at {nearer.sum()} of {len(nearer)}",
            nearer.all(),
        ),
        Outcome(
            "The probe of the label is at most a point below the prompt, and five points above it at 100 steps.",
            f"least: {probe.min():.1f} points; at 100 steps {at_100.min():.1f} or more",
            probe.min() >= -1 and at_100.min() >= 5,
        ),
    ]


def least_loss_by_cut(vanilla: DataFrame, layer: int) -> float:
    """The points that a prompt loses by a cut of a layer, at the size of 15 states or more where it loses least."""
    trials = vanilla[(vanilla.changes == "") & vanilla["prompt_cuts.none.accuracy"].notna()]
    trials = trials[trials.n_states >= 15]
    lost = 100 * (trials["prompt_cuts.none.accuracy"] - trials[f"prompt_cuts.layer {layer}.accuracy"])
    return lost.groupby(trials.n_states).mean().min()


def entry_34_on_task_d() -> list[Outcome]:
    """Is a prompt ahead of a head alone that is fully fitted? Task D."""
    chains = tables.chains_of_task_d()
    trials = tables.task_d()
    bound = chains.bound
    full = chains["fully fitted head"]
    ahead = points(chains["20 vectors"] - full)
    huge = chains["its norm"] > 700
    largest_norm = trials.tuned_head_norm.max()
    alone = chains["small head"]
    prompted = tables.best_of_size(trials, PROMPTED)
    neighbours = chains["nearest neighbours"]
    exact = chains["nearest neighbours, exact"]
    noisy_alone = tables.with_noise(trials, ALONE, "0.01").mean().max()
    noisy_prompted = tables.with_noise(trials, PROMPTED, "0.01").mean().max()
    slightly = tables.with_noise(trials, ALONE, "0.001")["fully fitted"].mean()
    return [
        Outcome(
            "The fully fitted head is right on 82 to 94%, and above the bound on 8 to 16 chains.",
            f"{per_cent(full)}; {of_chains(full > bound)}",
            0.82 <= full.mean() <= 0.94 and 8 <= (full > bound).sum() <= 16,
        ),
        Outcome(
            "The prompt is 0 to 12 points ahead of the fully fitted head, and the interval includes less than two.",
            format(ahead, ".1f"),
            0 <= ahead.mean <= 12 and ahead.low < 2,
        ),
        Outcome(
            "The fully fitted head has a norm above 700 on 17 chains, the head tuned with the prompt below 20 on all.",
            f"{of_chains(huge)}; largest {largest_norm:.0f}",
            huge.sum() >= 17 and largest_norm < 20,
        ),
        Outcome(
            "Heads of a norm of at most 100 stay below the bound on 17 chains without the prompt, "
            "are above it on 16 with it, and differ by 15 points.",
            f"{of_chains(alone < bound)}; {of_chains(prompted > bound)}; {points(prompted - alone):.1f} points",
            (alone < bound).sum() >= 17 and (prompted > bound).sum() >= 16 and (prompted - alone).mean() >= 0.15,
        ),
        Outcome(
            "Nearest neighbours are right on 97% on each chain's exact predictions, and on 92% on the network's.",
            f"least: {exact.min():.1%}; {per_cent(neighbours)}",
            exact.min() >= 0.97 and neighbours.mean() >= 0.92,
        ),
        Outcome(
            "A small classifier with a hidden layer is right on 92% on the network's predictions.",
            per_cent(chains["small network"]),
            chains["small network"].mean() >= 0.92,
        ),
        Outcome(
            "Against the idea: without the prompt, heads of a norm up to 100 above the bound on more than 6 chains.",
            of_chains(alone > bound),
            (alone > bound).sum() > 6,
        ),
        Outcome(
            "Added: with noise of 0.01 the best head is right on less than 80% without the prompt, on 90% with it.",
            f"{noisy_alone:.0%}; {noisy_prompted:.0%}",
            noisy_alone < 0.8 and noisy_prompted >= 0.9,
        ),
        Outcome(
            "Added: with noise of 0.001 the fully fitted head without the prompt is right on less than 75%.",
            f"{slightly:.0%}",
            slightly < 0.75,
        ),
    ]


def entry_34_on_the_left_panel() -> list[Outcome]:
    """The same on the left panel of Figure 3."""
    ahead = {}
    neighbours = {}
    counts = {}
    for n_states in (4, 8, 10, 25, 30):
        trials = tables.left_panel(n_states)
        trials = trials[trials["heads_by_size.exact.none.norm"].notna()]
        counts[n_states] = len(trials)
        full = tables.of_heads(trials, ALONE, "accuracy")["none"]
        ahead[n_states] = points(trials.prompt_accuracy - full)
        by_neighbours = trials[f"other_classifiers.{ALONE}.nearest neighbours"]
        neighbours[n_states] = points(by_neighbours - trials.prompt_accuracy).mean
    small = Series([ahead[4].mean, ahead[8].mean, ahead[10].mean])
    return [
        Outcome(
            "At 25 and 30 states the prompt is five points ahead of the fully fitted head, and zero is excluded.",
            f"{ahead[25]:.1f}, {ahead[30]:.1f}; {counts[25]} and {counts[30]} chains",
            min(ahead[25].mean, ahead[30].mean) >= 5 and min(ahead[25].low, ahead[30].low) > 0,
        ),
        Outcome(
            "Up to 10 states prompt and fully fitted head are within three points.",
            f"{', '.join(small.map('{:.1f}'.format))}; {counts[4]} chains each",
            small.abs().max() <= 3,
        ),
        Outcome(
            "At 25 and 30 states nearest neighbours are at most three points below the prompt.",
            f"{neighbours[25]:.1f}, {neighbours[30]:.1f}",
            min(neighbours[25], neighbours[30]) >= -3,
        ),
    ]


def entry_35() -> list[Outcome]:
    """Does the prompt of Theorem 3.6 explain the lead, once rare steps are ignored?"""
    fitted = "theorem's prompt, fitted head"
    at_15 = tables.theorem(15)
    at_25 = tables.theorem(25)
    at_30 = tables.theorem(30)
    random_25 = points(at_25[fitted] - at_25["random prompts, fitted heads"])
    random_30 = points(at_30[fitted] - at_30["random prompts, fitted heads"])
    tuned_25 = points(at_25["tuned prompt, tuned head"] - at_25[fitted])
    tuned_30 = points(at_30["tuned prompt, tuned head"] - at_30[fitted])
    # Differences are of the chains that have a prompt at both thresholds.
    moved_25 = 100 * (tables.theorem(25, "0.01")[fitted] - at_25[fitted]).mean()
    moved_30 = 100 * (tables.theorem(30, "0.01")[fitted] - at_30[fitted]).mean()
    lead_at_15 = points(at_15[fitted] - at_15["fitted head alone"])
    best_25 = points(at_25["best random prompt, fitted head"] - at_25[fitted])
    best_30 = points(at_30["best random prompt, fitted head"] - at_30[fitted])
    return [
        Outcome(
            "With a fitted head the theorem's prompt is right on 88% at 25 and at 30 states.",
            f"{per_cent(at_25[fitted])}, {per_cent(at_30[fitted])}",
            min(at_25[fitted].mean(), at_30[fitted].mean()) >= 0.88,
        ),
        Outcome(
            "Random prompts are five points below the theorem's at both sizes, and zero is excluded.",
            f"{random_25:.1f}, {random_30:.1f}",
            min(random_25.mean, random_30.mean) >= 5 and min(random_25.low, random_30.low) > 0,
        ),
        Outcome(
            "The tuned vector is within three points of the theorem's at 30 states, and 0 to 6 points ahead at 25.",
            f"{tuned_30:.1f}, {tuned_25:.1f}",
            abs(tuned_30.mean) <= 3 and 0 <= tuned_25.mean <= 6,
        ),
        Outcome(
            "If steps below 0.01 count as rare, the mean changes by less than three points at both sizes.",
            f"{moved_25:+.1f}, {moved_30:+.1f}",
            max(abs(moved_25), abs(moved_30)) < 3,
        ),
        Outcome(
            "At 15 states the theorem's prompt is less than three points ahead of the head alone.",
            format(lead_at_15, ".1f"),
            lead_at_15.mean < 3,
        ),
        Outcome(
            "Against the idea: random prompts within three points of the theorem's.",
            f"{random_25:.1f}, {random_30:.1f}",
            min(random_25.mean, random_30.mean) <= 3,
        ),
        Outcome(
            "Added with the result known: the best of 30 random prompts, by training texts, is as good at 30 states "
            "and better at 25.",
            f"{best_30:.1f} at 30, {best_25:.1f} at 25",
            best_30.low < 0 < best_30.high and best_25.low > 0,
        ),
    ]


def entry_36() -> list[Outcome]:
    """Is a tuned prompt on task D a gate that the text opens and shuts?"""
    trials = tables.task_d()
    bound = trials.fake_token_bound
    changes = tables.of_changes(trials)
    costs = changes.rsub(changes["none"], axis=0)
    sums = costs["its whole frozen"]
    splits = costs["its split frozen"]
    more = sums.combine(splits, max) >= 0.06
    sum_counts = (more & (sums > splits)).sum()
    split_counts = (more & (splits > sums)).sum()
    reads = trials[["gate_reads.whole", "gate_reads.each vector"]].mean()
    turned = trials["gate_swaps.other label"].mean()
    longer = tables.longer_constants(trials)
    in_embedding = changes[EMBEDDING] > bound
    behind = changes[BEHIND] > bound
    return [
        Outcome(
            "Freezing the attention puts the accuracy below the bound on 15 chains, and costs 6 points.",
            f"{of_chains(changes[FROZEN] < bound)}; {points(costs[FROZEN]):.1f}",
            (changes[FROZEN] < bound).sum() >= 15 and costs[FROZEN].mean() >= 0.06,
        ),
        Outcome(
            "Fixing the values costs less than two points, and so does hiding the prompt from the text.",
            f"{points(costs[FIXED]):.1f}; {points(costs['prompt hidden from the text']):.1f}",
            costs[FIXED].mean() < 0.02 and costs["prompt hidden from the text"].mean() < 0.02,
        ),
        Outcome(
            "Hiding the prompt from the mask in the last layer puts the accuracy below the bound on 17 chains.",
            of_chains(changes[UNSEEN] < bound),
            (changes[UNSEEN] < bound).sum() >= 17,
        ),
        Outcome(
            "Freezing the whole or the split costs 6 points on 10 chains, each the more costly on 4 of these.",
            f"{of_chains(more)}; the whole on {sum_counts}, the split on {split_counts}",
            more.sum() >= 10 and min(sum_counts, split_counts) >= 4,
        ),
        Outcome(
            "A linear classifier reads the label off the attention to 20 vectors on 88%, off its sums on fewer.",
            f"{reads.iloc[1]:.0%}; {reads.iloc[0]:.0%}",
            reads.iloc[1] >= 0.88 and reads.iloc[0] < reads.iloc[1],
        ),
        Outcome(
            "The attention of a text with the other label turns the label of fewer than 60%.",
            f"{turned:.0%}",
            turned < 0.6,
        ),
        Outcome(
            "A constant vector is above the bound behind the last attention on 5 chains, in the embedding on 8.",
            f"{of_chains(behind)}; {of_chains(in_embedding)}",
            behind.sum() >= 5 and in_embedding.sum() >= 8,
        ),
        Outcome(
            "Frozen attention with fixed values puts the accuracy below the bound on 17 chains.",
            of_chains(changes[BOTH] < bound),
            (changes[BOTH] < bound).sum() >= 17,
        ),
        Outcome(
            "Freezing the attention costs more than fixing the values on 14 chains.",
            of_chains(costs[FROZEN] > costs[FIXED]),
            (costs[FROZEN] > costs[FIXED]).sum() >= 14,
        ),
        Outcome(
            "Against the gate: fixed values that cost more than five points, or more than frozen attention.",
            f"{points(costs[FIXED]):.1f}; {points(costs[FROZEN]):.1f}",
            costs[FIXED].mean() > 0.05 or costs[FIXED].mean() > costs[FROZEN].mean(),
        ),
        Outcome(
            "Added: a constant that is tuned for longer, without a prompt, is above the bound on 15 chains.",
            of_chains(longer["without a prompt"] > bound),
            (longer["without a prompt"] > bound).sum() >= 15,
        ),
        Outcome(
            "Added: a vector behind the frozen prompt is above the bound on 8 chains.",
            of_chains(longer["behind the frozen prompt"] > bound),
            (longer["behind the frozen prompt"] > bound).sum() >= 8,
        ),
    ]


def costs_on_the_paper_chains(vectors: int) -> DataFrame:
    """What each change costs at 30 states, for prompts of so many vectors."""
    trials = tables.left_panel(30, vectors)
    changes = tables.of_changes(trials[trials["prompt_changes.none.fitted"].notna()])
    return changes.rsub(changes["none"], axis=0)


def entry_37() -> list[Outcome]:
    """Is it the same gate on the paper's chains?"""
    twenty = 100 * costs_on_the_paper_chains(20).mean()
    one_vector = 100 * costs_on_the_paper_chains(1).mean()
    hidden = "prompt hidden from the text"
    return [
        Outcome(
            "With 20 vectors freezing the attention costs 2 to 8 points, and fixing the values 2 to 12.",
            f"{twenty[FROZEN]:.1f}; {twenty[FIXED]:.1f}",
            2 <= twenty[FROZEN] <= 8 and 2 <= twenty[FIXED] <= 12,
        ),
        Outcome(
            "With 20 vectors doing both costs two points more than either.",
            f"{twenty[BOTH]:.1f}",
            twenty[BOTH] >= max(twenty[FROZEN], twenty[FIXED]) + 2,
        ),
        Outcome(
            "With one vector freezing the attention costs less than four points, and fixing the values five or more.",
            f"{one_vector[FROZEN]:.1f}; {one_vector[FIXED]:.1f}",
            one_vector[FROZEN] < 4 and one_vector[FIXED] >= 5,
        ),
        Outcome(
            "Hiding the prompt from the mask in the last layer costs 12 points with either length.",
            f"{twenty[UNSEEN]:.1f}, {one_vector[UNSEEN]:.1f}",
            min(twenty[UNSEEN], one_vector[UNSEEN]) >= 12,
        ),
        Outcome(
            "Hiding the prompt from the text costs less than four points with either length.",
            f"{twenty[hidden]:.1f}, {one_vector[hidden]:.1f}",
            max(twenty[hidden], one_vector[hidden]) < 4,
        ),
        Outcome(
            "Against the same gate, and expected: fixing the values costs five points or more, with 20 vectors.",
            f"{twenty[FIXED]:.1f}",
            twenty[FIXED] >= 5,
        ),
    ]
