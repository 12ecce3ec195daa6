"""The entries of HYPOTHESES.md on how a tuned prompt helps, each with its question and what became of its predictions.

They are grouped by what they are about, as the page *tuned-prompts-in-detail* shows them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pandas import DataFrame

from hmmbook.studies.mechanism import outcomes, outcomes_of_fits, outcomes_on_look_alikes
from hmmbook.studies.mechanism.outcomes import Outcome

LATER = ("Added", "Against")
"""How outcomes begin that are no predictions: controls added later, and what would have spoken against an idea."""


@dataclass(frozen=True)
class Entry:
    """An entry of HYPOTHESES.md, or the part of one that is about some chains."""

    number: str
    """Its number there, and the chains if the entry has two parts."""
    question: str
    """What it asks, in a sentence."""
    outcomes: list[Outcome]
    """What became of its predictions."""

    def made_beforehand(self) -> list[Outcome]:
        """Return the outcomes of predictions that were made before the runs."""
        return [outcome for outcome in self.outcomes if not outcome.prediction.startswith(LATER)]


def on_the_gate() -> list[Entry]:
    """Return the entries on heads of every size, on the theorem's prompt, and on the gate."""
    return [
        Entry(
            "34, D",
            "Is a prompt ahead of a head alone that is fully fitted to the network's predictions, on task D?",
            outcomes.entry_34_on_task_d(),
        ),
        Entry(
            "34, paper",
            "Is it ahead of such a head on the paper's chains?",
            outcomes.entry_34_on_the_left_panel(),
        ),
        Entry(
            "35",
            "Does the prompt of Theorem 3.6 explain the lead, once rare steps are ignored?",
            outcomes.entry_35(),
        ),
        Entry("36", "Is a tuned prompt a gate that the text opens and shuts, on task D?", outcomes.entry_36()),
        Entry("37", "Is it the same gate on the paper's chains?", outcomes.entry_37()),
    ]


def on_look_alikes() -> list[Entry]:
    """Return the entries on fits to what a prompt changes, on chains of look-alikes."""
    return [
        Entry(
            "24",
            "Does a tuned prompt reweight states where a fake token solves the task (A), and only there (not on C)?",
            outcomes_on_look_alikes.entry_24(),
        ),
        Entry(
            "27",
            "What do the fits find behind a prompt that was tuned on shuffled labels?",
            outcomes_on_look_alikes.entry_27(),
        ),
        Entry(
            "30",
            "On how many texts of task C is a fake token right?",
            outcomes_on_look_alikes.entry_30(),
        ),
        Entry(
            "31",
            "Does a tuned prompt pass what any fake token can reach, on task D?",
            outcomes_on_look_alikes.entry_31(),
        ),
    ]


def on_fits(trials: DataFrame) -> list[Entry]:
    """Return the entries on fits to what a prompt changes, on the paper's chains.

    Args:
        trials: Trials of the paper's chains with the measurements that `outcomes_of_fits.entry_2` reads.
    """
    return [
        Entry("2", "What does a tuned prompt do to a network's predictions?", outcomes_of_fits.entry_2(trials)),
        Entry(
            "2 and 9",
            "Is it the same on warm chains, whose texts leave the hidden state open more often?",
            outcomes_of_fits.entries_2_and_9_on_warm_chains(),
        ),
        Entry("8", "How much would the fits explain without a prompt?", outcomes_of_fits.entry_8(trials)),
        Entry("25", "Do better fits of twenty trials say the same?", outcomes_of_fits.entry_25()),
        Entry("29", "Do they say the same on the other hundred trials?", outcomes_of_fits.entry_29()),
        Entry("32", "Do they say the same once reweightings are at a better optimum?", outcomes_of_fits.entry_32()),
    ]


def on_networks(trials: DataFrame) -> list[Entry]:
    """Return the entries on probes, near ties, the length of a prompt, layers, prefix tuning and LoRA.

    Args:
        trials: The same trials as for `on_fits`.
    """
    return [
        Entry("3", "How much of the belief can a linear probe read?", outcomes_of_fits.entry_3(trials)),
        Entry("4", "How much of the gain is on texts that are near ties?", outcomes_of_fits.entry_4(trials)),
        Entry("5", "How long must a prompt be?", outcomes.entry_5()),
        Entry("6", "Which layer does it, and when does it come?", outcomes.entry_6()),
        Entry("20", "Do prefix tuning and LoRA do the same as a prompt?", outcomes_of_fits.entry_20()),
    ]
