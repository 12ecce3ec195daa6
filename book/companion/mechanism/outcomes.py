"""What became of the predictions in HYPOTHESES.md on how a tuned prompt helps: entries 5, 6 and 34 to 37.

Each function gives, for one entry, each prediction in words, what was found, and whether it came true.
"""

from __future__ import annotations

from pandas import DataFrame, Series

from companion.mechanism import tables
from companion.mechanism.constants import CONSTANTS
from companion.mechanism.gate import BOTH, FIXED, FROZEN, UNSEEN
from hmmlib import results
from hmmlib.experiments.results import Interval, mean_ci
from hmmlib.experiments.store import BEYOND

Outcome = tuple[str, str, bool]
ALONE, PROMPTED = "without the prompt", "with the prompt"


def points(differences: Series) -> Interval:
    """The mean of differences of accuracies with its interval, in points."""
    return mean_ci(100 * differences, share=False)


def per_cent(values: Series) -> str:
    """The mean of shares, in whole percent."""
    return f"{values.mean():.0%}"


def of_chains(so: Series) -> str:
    """On how many chains something holds."""
    return f"{so.sum()} of {len(so)} chains"


def entry_5() -> list[Outcome]:
    """How long must a prompt be?"""
    stored = results("quick", BEYOND)
    trials = stored[stored.changes.str.startswith("length=83") & (stored.n_memory == 1)]
    accuracy = trials.groupby(["n_states", "prompt_length"]).prompt_accuracy.mean().unstack()
    head = trials.groupby("n_states").head_accuracy.mean()
    fits = trials.groupby(["n_states", "prompt_length"])[
        ["readout_distances.relabelled.all", "readout_distances.reweighted.all"]
    ].mean()
    nearer = fits["readout_distances.relabelled.all"] < fits["readout_distances.reweighted.all"]
    one = 100 * (accuracy.loc[30, 1] - head[30])
    five = 100 * (accuracy[20] - accuracy[5])
    fifty = 100 * (accuracy[50] - accuracy[20])
    return [
        ("One vector adds five points to the head at 30 states.", f"{one:.1f} points", one >= 5),
        ("Five vectors come within two points of twenty at both sizes.", listed(five), five.abs().max() <= 2),
        ("Fifty add less than one point to twenty.", listed(fifty), fifty.max() < 1),
        (
            "Relabelling is nearer than reweighting at every length and both sizes.",
            f"at {nearer.sum()} of {len(nearer)}",
            bool(nearer.all()),
        ),
    ]


def entry_6() -> list[Outcome]:
    """Which layer does it, and when does it come?"""
    stored = results("quick", BEYOND)
    vanilla = stored[(stored.n_memory == 1) & (stored.seed < 20)]
    cut = vanilla[(vanilla.changes == "") & vanilla["prompt_cuts.none.accuracy"].notna()]
    many = cut[cut.n_states >= 15]
    lost = {}
    for layer in (1, 2):
        lost[layer] = 100 * (many["prompt_cuts.none.accuracy"] - many[f"prompt_cuts.layer {layer}.accuracy"])
    least = [lost[layer].groupby(many.n_states).mean().min() for layer in (1, 2)]
    steps = vanilla[vanilla.steps.isin([100, 200, 400, 800, 1600]) & vanilla.n_states.isin([10, 30])]
    steps = steps[steps.changes.str.fullmatch(r"(steps=\d+)?") & (steps.seed < 10)]
    steps = steps[steps["readout_distances.relabelled.all"].notna()]
    means = steps.groupby(["n_states", "steps"]).mean(numeric_only=True)
    needed = means[means.gain >= 0.05]
    nearer = needed["readout_distances.relabelled.all"] < needed["readout_distances.reweighted.all"]
    probe = 100 * (means["probes.label.layer 2"] - means.prompt_accuracy)
    least_probe = probe.min()
    at_100 = probe[probe.index.get_level_values("steps") == 100]
    return [
        (
            "Cutting either layer takes ten points from the prompt at 15 states and more.",
            f"least: {least[0]:.0f} points in the first layer, {least[1]:.0f} in the second",
            min(least) >= 10,
        ),
        (
            "Wherever prompts are better by five points, relabelling is nearer, at each number of steps and size.",
            f"at {nearer.sum()} of {len(nearer)}",
            bool(nearer.all()),
        ),
        (
            "The probe of the label is at most a point below the prompt, and five points above it at 100 steps.",
            f"least: {least_probe:.1f} points; at 100 steps {at_100.min():.1f} or more",
            least_probe >= -1 and at_100.min() >= 5,
        ),
    ]


def listed(values: Series) -> str:
    """Values with the place in front of each."""
    return ", ".join(f"{place}: {value:.1f}" for place, value in values.items())


def entry_34_on_task_d() -> list[Outcome]:
    """Is a prompt ahead of a head alone that is fully fitted? Task D."""
    chains = tables.chains_of_task_d()
    trials = tables.task_d()
    bound = chains.bound
    full = chains["fully fitted head"]
    above = full > bound
    ahead = points(chains["20 vectors"] - full)
    huge = chains["its norm"] > 700
    tuned_norm = trials.tuned_head_norm
    alone = chains["head of ordinary size"]
    prompted = tables.best_of_size(trials, PROMPTED)
    neighbours = chains["nearest neighbours"]
    exact = chains["nearest neighbours, exact"]
    noisy = {reading: tables.with_noise(trials, reading, "0.01").mean().max() for reading in (ALONE, PROMPTED)}
    slightly = tables.with_noise(trials, ALONE, "0.001")["fully fitted"].mean()
    return [
        (
            "The fully fitted head is right on 82 to 94%, and above the bound on 8 to 16 chains.",
            f"{per_cent(full)}; {of_chains(above)}",
            0.82 <= full.mean() <= 0.94 and 8 <= above.sum() <= 16,
        ),
        (
            "The prompt is 0 to 12 points ahead of it, and the interval includes less than two.",
            format(ahead, ".1f"),
            0 <= ahead.mean <= 12 and ahead.low < 2,
        ),
        (
            "Its norm is above 700 on 17 chains, that of the head tuned with the prompt below 20 on all.",
            f"{of_chains(huge)}; largest {tuned_norm.max():.0f}",
            huge.sum() >= 17 and tuned_norm.max() < 20,
        ),
        (
            "Heads of a norm of at most 100 stay below the bound on 17 chains without the prompt, "
            "are above it on 16 with it, and differ by 15 points.",
            f"{of_chains(alone < bound)}; {of_chains(prompted > bound)}; {points(prompted - alone):.1f} points",
            (alone < bound).sum() >= 17 and (prompted > bound).sum() >= 16 and (prompted - alone).mean() >= 0.15,
        ),
        (
            "Nearest neighbours are right on 97% of each chain's exact predictions, and on 92% of the network's.",
            f"least: {exact.min():.1%}; {per_cent(neighbours)}",
            exact.min() >= 0.97 and neighbours.mean() >= 0.92,
        ),
        (
            "The small network is right on 92% of the network's.",
            per_cent(chains["small network"]),
            chains["small network"].mean() >= 0.92,
        ),
        (
            "Against it: heads of a norm of at most 100, without the prompt, above the bound on more than 6 chains.",
            of_chains(alone > bound),
            (alone > bound).sum() > 6,
        ),
        (
            "Added: with noise of 0.01 the best head is right on less than 80% without the prompt, on 90% with it.",
            f"{noisy[ALONE]:.0%}; {noisy[PROMPTED]:.0%}",
            noisy[ALONE] < 0.8 and noisy[PROMPTED] >= 0.9,
        ),
        (
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
        neighbours[n_states] = points(by_neighbours - trials.prompt_accuracy)
    small = [ahead[n] for n in (4, 8, 10)]
    large = [ahead[n] for n in (25, 30)]
    near = [neighbours[n] for n in (25, 30)]
    return [
        (
            "At 25 and 30 states the prompt is five points ahead of the fully fitted head, and zero is excluded.",
            f"{', '.join(format(lead, '.1f') for lead in large)}; {counts[25]} and {counts[30]} chains",
            all(lead.mean >= 5 and lead.low > 0 for lead in large),
        ),
        (
            "Up to 10 states they are within three points.",
            f"{', '.join(f'{lead.mean:.1f}' for lead in small)}; {counts[4]} chains each",
            all(abs(lead.mean) <= 3 for lead in small),
        ),
        (
            "At 25 and 30 states nearest neighbours are at most three points below the prompt.",
            ", ".join(f"{lead.mean:.1f}" for lead in near),
            all(lead.mean >= -3 for lead in near),
        ),
    ]


def entry_35() -> list[Outcome]:
    """Does the prompt of Theorem 3.6 explain the lead, once rare steps are ignored?"""
    by_size = {n: tables.theorem(n) for n in (15, 25, 30)}
    theorem = {n: table["theorem's prompt, fitted head"] for n, table in by_size.items()}
    over_random = {n: points(theorem[n] - by_size[n]["random prompts, fitted heads"]) for n in (25, 30)}
    tuned = {n: points(by_size[n]["tuned prompt, tuned head"] - theorem[n]) for n in (25, 30)}
    other = {n: tables.theorem(n, "0.01")["theorem's prompt, fitted head"] for n in (25, 30)}
    moved = {n: 100 * (other[n] - theorem[n]).mean() for n in (25, 30)}  # of the chains that have both
    at_15 = points(theorem[15] - by_size[15]["fitted head alone"])
    best = {n: points(by_size[n]["best random prompt, fitted head"] - theorem[n]) for n in (25, 30)}
    return [
        (
            "With a fitted head the theorem's prompt is right on 88% at 25 and at 30 states.",
            ", ".join(per_cent(theorem[n]) for n in (25, 30)),
            min(theorem[n].mean() for n in (25, 30)) >= 0.88,
        ),
        (
            "Random prompts are five points lower at both sizes, and zero is excluded.",
            ", ".join(format(lead, ".1f") for lead in over_random.values()),
            all(lead.mean >= 5 and lead.low > 0 for lead in over_random.values()),
        ),
        (
            "The tuned vector is within three points of it at 30 states, and 0 to 6 points ahead at 25.",
            ", ".join(format(tuned[n], ".1f") for n in (30, 25)),
            abs(tuned[30].mean) <= 3 and 0 <= tuned[25].mean <= 6,
        ),
        (
            "The threshold 0.01 changes the mean by less than three points at both sizes.",
            ", ".join(f"{change:+.1f}" for change in moved.values()),
            max(abs(change) for change in moved.values()) < 3,
        ),
        (
            "At 15 states it is less than three points ahead of the head alone.",
            format(at_15, ".1f"),
            at_15.mean < 3,
        ),
        (
            "Against it: random prompts within three points of it.",
            ", ".join(format(lead, ".1f") for lead in over_random.values()),
            any(lead.mean <= 3 for lead in over_random.values()),
        ),
        (
            "Added with the result known: the best of 30 random prompts, by training texts, is as good at 30 states "
            "and better at 25.",
            ", ".join(f"{format(best[n], '.1f')} at {n}" for n in (30, 25)),
            best[30].low < 0 < best[30].high and best[25].low > 0,
        ),
    ]


def entry_36() -> list[Outcome]:
    """Is a tuned prompt on task D a gate that the text opens and shuts?"""
    trials = tables.task_d()
    bound = trials.fake_token_bound
    changes = tables.of_changes(trials)
    costs = changes.rsub(changes["none"], axis=0)
    whole = costs["its whole frozen"]
    split = costs["its split frozen"]
    more = costs[["its whole frozen", "its split frozen"]].max(axis=1) >= 0.06
    sum_counts = (more & (whole > split)).sum()
    split_counts = (more & (split > whole)).sum()
    reads = trials[["gate_reads.whole", "gate_reads.each vector"]].mean()
    turned = trials["gate_swaps.other label"].mean()
    longer = tables.longer_constants(trials)
    constants = {name: changes[name] > bound for name in CONSTANTS}
    in_embedding, behind = constants.values()
    return [
        (
            "Freezing puts the accuracy below the bound on 15 chains, and costs 6 points.",
            f"{of_chains(changes[FROZEN] < bound)}; {points(costs[FROZEN]):.1f}",
            (changes[FROZEN] < bound).sum() >= 15 and costs[FROZEN].mean() >= 0.06,
        ),
        (
            "Fixing the values costs less than two points, and so does hiding the prompt from the text.",
            f"{points(costs[FIXED]):.1f}; {points(costs['prompt hidden from the text']):.1f}",
            costs[FIXED].mean() < 0.02 and costs["prompt hidden from the text"].mean() < 0.02,
        ),
        (
            "Hiding it from the mask in the last layer puts the accuracy below the bound on 17 chains.",
            of_chains(changes[UNSEEN] < bound),
            (changes[UNSEEN] < bound).sum() >= 17,
        ),
        (
            "Freezing the sum or the split costs 6 points on 10 chains, each the more costly on 4 of these.",
            f"{of_chains(more)}; the sum on {sum_counts}, the split on {split_counts}",
            more.sum() >= 10 and min(sum_counts, split_counts) >= 4,
        ),
        (
            "A linear classifier reads the label off the attention to 20 vectors on 88%, off the sums on fewer.",
            f"{reads.iloc[1]:.0%}; {reads.iloc[0]:.0%}",
            reads.iloc[1] >= 0.88 and reads.iloc[0] < reads.iloc[1],
        ),
        (
            "The attention of a text with the other label turns the label in fewer than 60%.",
            f"{turned:.0%}",
            turned < 0.6,
        ),
        (
            "A constant vector is above the bound behind the last attention on 5 chains, in the embedding on 8.",
            f"{of_chains(behind)}; {of_chains(in_embedding)}",
            behind.sum() >= 5 and in_embedding.sum() >= 8,
        ),
        (
            "Frozen attention with fixed values puts the accuracy below the bound on 17 chains.",
            of_chains(changes[BOTH] < bound),
            (changes[BOTH] < bound).sum() >= 17,
        ),
        (
            "Freezing costs more than fixing the values on 14 chains.",
            of_chains(costs[FROZEN] > costs[FIXED]),
            (costs[FROZEN] > costs[FIXED]).sum() >= 14,
        ),
        (
            "Against the gate: fixed values that cost more than five points, or more than freezing.",
            f"{points(costs[FIXED]):.1f}; {points(costs[FROZEN]):.1f}",
            costs[FIXED].mean() > 0.05 or costs[FIXED].mean() > costs[FROZEN].mean(),
        ),
        (
            "Added: a constant that is tuned for longer, without a prompt, is above the bound on 15 chains.",
            of_chains(longer["without a prompt"] > bound),
            (longer["without a prompt"] > bound).sum() >= 15,
        ),
        (
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
    costs = {vectors: 100 * costs_on_the_paper_chains(vectors) for vectors in (20, 1)}
    means = {vectors: table.mean() for vectors, table in costs.items()}
    twenty, one = means[20], means[1]
    unseen = [means[vectors][UNSEEN] for vectors in (20, 1)]
    hidden = [means[vectors]["prompt hidden from the text"] for vectors in (20, 1)]
    return [
        (
            "With 20 vectors freezing costs 2 to 8 points, and fixing the values 2 to 12.",
            f"{twenty[FROZEN]:.1f}; {twenty[FIXED]:.1f}",
            2 <= twenty[FROZEN] <= 8 and 2 <= twenty[FIXED] <= 12,
        ),
        (
            "Doing both costs two points more than either.",
            f"{twenty[BOTH]:.1f}",
            twenty[BOTH] >= max(twenty[FROZEN], twenty[FIXED]) + 2,
        ),
        (
            "With one vector freezing costs less than four points, and fixing the values five or more.",
            f"{one[FROZEN]:.1f}; {one[FIXED]:.1f}",
            one[FROZEN] < 4 and one[FIXED] >= 5,
        ),
        (
            "Hiding the prompt from the mask in the last layer costs 12 points with either length.",
            ", ".join(f"{cost:.1f}" for cost in unseen),
            min(unseen) >= 12,
        ),
        (
            "Hiding the prompt from the text costs less than four points with either length.",
            ", ".join(f"{cost:.1f}" for cost in hidden),
            max(hidden) < 4,
        ),
        (
            "Against the same gate, and expected: fixing the values costs five points or more, with 20 vectors.",
            f"{twenty[FIXED]:.1f}",
            twenty[FIXED] >= 5,
        ),
    ]
