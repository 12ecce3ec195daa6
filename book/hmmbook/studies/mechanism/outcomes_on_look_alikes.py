"""What became of the predictions in HYPOTHESES.md on chains of look-alikes, for entries 24, 27, 30 and 31."""

from __future__ import annotations

from pandas import DataFrame, Series

from hmmbook import mean_ci
from hmmbook.studies import look_alikes
from hmmbook.studies.fake_tokens import fake_token_accuracy
from hmmbook.studies.mechanism import tables
from hmmbook.studies.mechanism.fits import lead_of_relabelling, net_share
from hmmbook.studies.mechanism.outcomes import Outcome, points

EXCLUDED = [1, 3]
"""The states that the theorem's token for task A rules out."""
WEIGHED = [0, 2]
"""The states that task A weighs, which look like those."""


def task_a(vectors: int = 20) -> DataFrame:
    """The trials of task A, which a fake token solves."""
    return tables.look_alike_trials("look-alikes-a", vectors)


def task_c(vectors: int = 20) -> DataFrame:
    """The trials of task C, which no fake token solves for every belief."""
    return tables.look_alike_trials("look-alikes-c", vectors)


def entry_24() -> list[Outcome]:
    """Where one fake token can solve the task, and where none can."""
    return [*on_nearness(), *on_the_weights_of_states(), *on_labels_and_probes()]


def on_nearness() -> list[Outcome]:
    """Which of reweighting and relabelling is nearer, and by how much: entry 24's predictions on distances."""
    lead_on_a = lead_of_relabelling(task_a())
    lead_on_c = lead_of_relabelling(task_c())
    more = mean_ci(lead_on_c - lead_on_a)
    more_of_one = mean_ci(lead_of_relabelling(task_c(1)) - lead_of_relabelling(task_a(1)))
    on_a = {fit: net_share(task_a(), fit).mean() for fit in ("weights", "relabelled", "both")}
    weights_on_c = net_share(task_c(), "weights").mean()
    over = on_a["both"] - max(on_a["weights"], on_a["relabelled"])
    farther = (lead_on_c > 0).sum()
    return [
        Outcome(
            "On A reweighting is within 0.03 of relabelling.", f"{lead_on_a.mean():+.3f}", abs(lead_on_a.mean()) <= 0.03
        ),
        Outcome(
            "On C reweighting is farther than relabelling by 0.05, and in 16 of 20 chains.",
            f"{lead_on_c.mean():+.3f}, {farther} chains",
            lead_on_c.mean() >= 0.05 and farther >= 16,
        ),
        Outcome(
            "This lead of relabelling is larger on C than on A by 0.05 or more, with an interval above zero.",
            f"{more:.3f}",
            more.mean >= 0.05 and more.low > 0,
        ),
        Outcome(
            "With one vector it is larger on C than on A by 0.05 or more, too.",
            f"{more_of_one:.3f}",
            more_of_one.mean >= 0.05 and more_of_one.low > 0,
        ),
        Outcome(
            "The net share of reweighting is 0.3 on A, and less than half of that on C.",
            f"{on_a['weights']:.2f}, {weights_on_c:.2f}",
            on_a["weights"] >= 0.3 and weights_on_c < on_a["weights"] / 2,
        ),
        Outcome(
            "On A reweighting and relabelling together have a net share larger by 0.05 than either alone.",
            f"{over:.2f}",
            over >= 0.05,
        ),
    ]


def on_the_weights_of_states() -> list[Outcome]:
    """What weights the states have in the fit of both: entry 24's predictions on them."""
    columns = [f"fit_weights.both.state {state}" for state in range(4)]
    on_a = task_a()[columns].to_numpy()
    on_c = task_c()[columns].to_numpy()
    silenced = (on_a[:, EXCLUDED].mean(1) < on_a[:, WEIGHED].mean(1) / 2).sum()
    pairs = on_c.reshape(-1, 2)
    ratio = (pairs.min(1) / pairs.max(1)).mean()
    return [
        Outcome(
            "On A the states 1 and 3, fitted with both, have less than half of the weight of 0 and 2 in 15 chains.",
            f"{silenced} chains",
            silenced >= 15,
        ),
        Outcome(
            "On C the smaller weight of a pair is more than half of the larger one, in the mean.",
            f"{ratio:.2f}",
            ratio > 0.5,
        ),
    ]


def on_labels_and_probes() -> list[Outcome]:
    """What labels the fits and swapped parts give, and what a probe reads: the other predictions of entry 24."""
    on_a = task_a()
    on_c = task_c()
    same_on_a = on_a["fit_labels.weights.as behind the prompt"].mean()
    same_on_c = on_c["fit_labels.weights.as behind the prompt"].mean()
    fewer = 100 * (on_c.prompt_accuracy - task_c(1).prompt_accuracy).mean()
    turned = on_a["label_follows.layer 2.belief of another text"].mean()
    read_on_a = better_read(on_a)
    read_on_c = better_read(on_c)
    return [
        Outcome(
            "The reweighting gives the prompt's label on 85% of the texts on A, and on less than 75% on C.",
            f"{same_on_a:.0%}, {same_on_c:.0%}",
            same_on_a >= 0.85 and same_on_c < 0.75,
        ),
        Outcome("On C one vector is right on five points fewer texts than 20.", f"{fewer:.1f} points", fewer >= 5),
        Outcome(
            "The part that a probe reads turns the label in half of the pairs on A.", f"{turned:.0%}", turned >= 0.5
        ),
        Outcome(
            "The probe reads the reweighted posterior better in 15 chains on A, in at most 10 on C.",
            f"{read_on_a}, {read_on_c}",
            read_on_a >= 15 and read_on_c <= 10,
        ),
        Outcome(
            "Prompts gain five points on A and on C.",
            f"{on_a.gain.mean():.1%}, {on_c.gain.mean():.1%}",
            min(on_a.gain.mean(), on_c.gain.mean()) >= 0.05,
        ),
    ]


def better_read(trials: DataFrame) -> int:
    """On how many chains a probe reads the reweighted posterior better than the posterior."""
    reweighted = trials["probe_reads.layer 2.reweighted posterior"]
    return int((reweighted > trials["probe_reads.layer 2.posterior"]).sum())


def entry_27() -> list[Outcome]:
    """A prompt that has nothing to learn, because its labels are shuffled."""
    shuffled = tables.look_alike_trials("look-alikes-shuffled")
    of_shuffled = net_share(shuffled, "weights")
    weights = mean_ci(of_shuffled)
    relabelled = mean_ci(net_share(shuffled, "relabelled"))
    more_on_a = mean_ci(net_share(task_a(), "weights") - of_shuffled)
    more_on_c = mean_ci(net_share(task_c(), "weights") - of_shuffled)
    return [
        Outcome("The net share of reweighting is between 0.35 and 0.7.", f"{weights:.2f}", 0.35 <= weights.mean <= 0.7),
        Outcome(
            "On A and on C it is larger or smaller than that by what may be zero.",
            f"{more_on_a:.2f}, {more_on_c:.2f}",
            more_on_a.low < 0 < more_on_a.high and more_on_c.low < 0 < more_on_c.high,
        ),
        Outcome("Relabelling takes a net share of 0.6 or more.", f"{relabelled:.2f}", relabelled.mean >= 0.6),
    ]


def fake_tokens_on_task_c() -> Series:
    """Search a good fake token and head for task C on each chain. Return the shares of texts that are right."""
    accuracies = {}
    for seed in task_c().index:
        for spec in look_alikes.specs_of(int(seed)):
            if spec.own == "look-alikes-c":
                chain = look_alikes.chain_of(spec)
                accuracies[seed] = fake_token_accuracy(chain, look_alikes.draw_task(spec, chain))
                break
    return Series(accuracies)


def entry_30() -> list[Outcome]:
    """The most that any fake token can do for task C. The search finds good ones, perhaps not the best."""
    fake = fake_tokens_on_task_c()
    ahead = task_c().prompt_accuracy - fake
    of_one = 100 * (task_c(1).prompt_accuracy - fake).mean()
    return [
        Outcome(
            "A fake token and head are right on 80 to 92% of the texts of C.",
            str(mean_ci(fake)),
            0.8 <= fake.mean() <= 0.92,
        ),
        Outcome(
            "Prompts of 20 vectors are ahead of it in 16 chains, and in the mean.",
            f"{(ahead > 0).sum()} chains",
            (ahead > 0).sum() >= 16 and mean_ci(ahead).low > 0,
        ),
        Outcome(
            "Prompts of one vector are within three points of it in the mean.", f"{of_one:.1f} points", abs(of_one) <= 3
        ),
    ]


def entry_31() -> list[Outcome]:
    """A task that no fake token solves on the texts that occur: task D."""
    trials = tables.task_d()
    above = trials.prompt_accuracy - trials.fake_token_bound
    ahead = points(above)
    alone = trials.head_accuracy.mean()
    fewer = 100 * (trials.prompt_accuracy - tables.task_d(1).prompt_accuracy).mean()
    weights = mean_ci(net_share(trials, "weights"))
    from_relabelling = mean_ci(net_share(trials, "weights") - net_share(trials, "relabelled"))
    return [
        Outcome(
            "Prompts of 20 vectors are above the bound in 16 of 20 chains, and by two points in the mean.",
            f"{(above > 0).sum()} chains; {ahead:.1f} points",
            (above > 0).sum() >= 16 and ahead.mean >= 2 and ahead.low > 0,
        ),
        Outcome(
            "They are right on 90% or more, and heads alone on less than 70%.",
            f"{trials.prompt_accuracy.mean():.1%}; {alone:.1%}",
            trials.prompt_accuracy.mean() >= 0.9 and alone < 0.7,
        ),
        Outcome(
            "Prompts of one vector are right on five points fewer texts than prompts of 20.",
            f"{fewer:.1f} points",
            fewer >= 5,
        ),
        Outcome(
            "The net share of reweighting is below 0.45, and below that of relabelling.",
            f"{weights:.2f}; {from_relabelling:.2f} from relabelling",
            weights.mean < 0.45 and from_relabelling.high < 0,
        ),
    ]
