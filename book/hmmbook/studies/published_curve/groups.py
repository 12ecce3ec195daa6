"""The stored trials that the page on the published curve compares, in groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd
from pandas import DataFrame

from hmmbook import results
from hmmbook.experiments.store import BEYOND, CHOICES

SIZES = (4, 8, 10, 15, 25, 30)
"""The numbers of hidden states in the left panel of Figure 3."""
MEMORY_SIZES = (2, 3, 5, 7)
"""The numbers of memory values in the right panel."""
STEPS = (100, 150, 200, 300)
"""Steps of pretraining, where the preset `quick` has 400."""
APPENDIX_E = "tuning_batch=8 head_rate=0.01 prompt_rate=0.01"
"""Tuning as in appendix E, which names no size of batches."""
FIRST_FRESH_SEED = 20
"""Chains from this seed on had not been seen when their trials were planned."""
ADAMW = "learning_rate={} muon_rate=0.0"


class Change(NamedTuple):
    """A change of our protocol towards the paper or its scripts."""

    name: str
    fields: str
    """What differs from the preset besides the tuning, as the column `changes` has it."""
    words: str


CHANGES = (
    Change("5% masked", "masked=0.05", "5% masked, in place of 15%"),
    Change("AdamW, 1,600 steps", f"steps=1600 {ADAMW.format(0.001)}", "AdamW alone, 1,600 steps"),
    Change("129 tokens", "length=192 task_length=129", "tasks of 129 tokens, chunks of 192"),
    Change("5% masked, AdamW", f"steps=1600 masked=0.05 {ADAMW.format(0.001)}", "5% masked and AdamW"),
    Change(
        "nine changes",
        "dropout=0.1 specials=5 weights=shared documents=53 document_length=10240 length=192 masked=0.05 masking=bert "
        "labels=stepped places=repeated task_length=129",
        "nine changes at once, without AdamW",
    ),
    Change("dropout", "dropout=0.1", "dropout of 0.1"),
    Change("labels", "labels=stepped", "labels of the scripts"),
    Change("documents", "documents=53 document_length=10240", "53 documents, each seen three times"),
    Change("BERT's masking", "masking=bert", "masking as BERT's"),
    Change("places of μ", "places=repeated", "places of μ as in the scripts"),
    Change("special ids", "specials=5", "five special ids"),
    Change("shared weights", "weights=shared", "the same initial weights in each trial"),
)
"""The changes in the order of the page. Two of them make several changes at once."""
SEVERAL_AT_ONCE = ("5% masked, AdamW", "nine changes")
UNCHANGED = "ours"
"""The name of the trials without any of the changes."""

TUNINGS = {
    "as quick: 0.1, batches of 128, 5 passes": "steps=800",
    "0.01, batches of 8, 5 passes": f"steps=800 {APPENDIX_E}",
    "the same, from word embeddings": f"steps=800 {APPENDIX_E} prompt_start=vocabulary",
    "0.01, batches of 128, 5 passes": "steps=800 head_rate=0.01 prompt_rate=0.01",
    "0.01, batches of 128, 100 passes": "steps=800 epochs=100 head_rate=0.01 prompt_rate=0.01",
}
"""Ways of tuning, on networks of 800 steps: their names, and the fields that differ from the preset.

The last was predicted and never run.
"""
PROBE = "probes.label.layer 2"
"""The accuracy of a linear probe of the network's hidden state for the label."""
FRESH_PROBE = "probes.label, fresh weights.layer 2"
"""The same on a network with fresh weights."""
CHAIN = ["n_memory", "n_states", "seed"]
"""The columns that say which chain a trial has."""


def with_changes(stored: DataFrame, fields: str, tuning: str = APPENDIX_E) -> DataFrame:
    """Return the trials that differ from the preset in these fields alone.

    Args:
        stored: A table of results.
        fields: The fields with their values, as the column `changes` has them, such as "steps=100".
        tuning: More such fields, which follow.
    """
    changes = f"{fields} {tuning}".strip()
    return stored[stored.changes == changes]


def at(n_states: int, group: DataFrame) -> DataFrame:
    """Return the trials of a group with so many hidden states."""
    return group[group.n_states == n_states]


def left_panel(preset: str) -> DataFrame:
    """Return the trials of the left panel of Figure 3, twenty of each size."""
    trials = results(preset)
    trials = trials[(trials.changes == "") & (trials.n_memory == 1)]
    return trials[(trials.seed < FIRST_FRESH_SEED) & trials.n_states.isin(SIZES)]


def preset_with_left_panel(preset: str) -> str:
    """Return a preset if two trials or more of each size of the left panel are stored for it, and `quick` otherwise.

    Lines say so where it is `quick` instead, with the command that makes the missing trials.
    """
    counts = left_panel(preset).groupby("n_states").size()
    if counts.reindex(SIZES, fill_value=0).min() > 1:
        return preset
    print(
        f"Too few trials of the left panel are stored for `{preset}`, so those of `quick` are shown. What is missing:"
    )
    print(f"python -m hmmbook trial --panel left --missing --trials 20 --preset {preset}")
    return "quick"


# Groups of the reruns


def by_steps(stored: DataFrame) -> dict[int, DataFrame]:
    """Return the trials on the left panel's chains, tuned as in appendix E, by their steps of pretraining."""
    groups = {}
    for steps in STEPS:
        trials = with_changes(stored, f"steps={steps}")
        groups[steps] = trials[trials.seed < FIRST_FRESH_SEED]
    return groups


def on_fresh_chains(stored: DataFrame, steps: int) -> DataFrame:
    """Return the trials with so many steps on chains that had not been seen before."""
    trials = with_changes(stored, f"steps={steps}")
    return trials[trials.seed >= FIRST_FRESH_SEED]


def by_change(stored: DataFrame) -> dict[str, DataFrame]:
    """Return the trials with each of CHANGES on the same ten chains of 30 states, by seed; first those without any."""
    unchanged = at(30, with_changes(stored, "")).set_index("seed")
    unchanged = unchanged[unchanged.index < 10]
    groups = {UNCHANGED: unchanged}
    for change in CHANGES:
        changed = at(30, with_changes(stored, change.fields)).set_index("seed")
        groups[change.name] = changed[changed.index.isin(unchanged.index)]
    return groups


def that_learned_little(stored: DataFrame, fresh: bool) -> dict[str, DataFrame]:
    """Return trials of 30 states whose networks have learned 0.05 to 0.25 of what there is, by their pretraining.

    Args:
        stored: A table of results.
        fresh: Whether they are on fresh chains, or else on those of the left panel.
    """
    rare = with_changes(stored, "masked=0.05")
    if fresh:
        groups = {
            "100 steps": on_fresh_chains(stored, 100),
            "175 steps": on_fresh_chains(stored, 175),
            "400 steps, 5% masked": rare[rare.seed >= FIRST_FRESH_SEED],
        }
    else:
        groups = {f"{steps} steps": by_steps(stored)[steps] for steps in (100, 150, 200)}
        groups["400 steps, 5% masked"] = rare[rare.seed < 10]
    for name, group in groups.items():
        groups[name] = at(30, group[group.learned.between(0.05, 0.25)])
    return groups


def by_tuning(stored: DataFrame) -> dict[str, DataFrame]:
    """Return the trials of 25 and 30 states with each of TUNINGS that there are."""
    groups = {}
    for name, fields in TUNINGS.items():
        trials = with_changes(stored, fields, tuning="")
        trials = trials[trials.n_states >= 25]
        if len(trials):
            groups[name] = trials
    return groups


def by_optimiser(stored: DataFrame) -> dict[str, DataFrame]:
    """Return the trials of 30 states, tuned as in appendix E, by the optimiser of pretraining."""
    with_adamw = [with_changes(stored, f"steps=1600 {ADAMW.format(rate)}") for rate in (0.001, 0.003, 0.01)]
    groups = {
        "Muon at 0.02, 100 to 300 steps": pd.concat(by_steps(stored).values()),
        "Muon at 0.04, 1,100 steps": with_changes(stored, "steps=1100 muon_rate=0.04"),
        "AdamW alone, 1,600 steps": pd.concat(with_adamw),
    }
    for name, group in groups.items():
        groups[name] = at(30, group)
    return groups


def by_rate(rates: Iterable[float], own_rate: float, fields: str) -> dict[float, DataFrame]:
    """Return the trials by which a rate of `quick` was chosen, on chains of their own.

    Args:
        rates: The rates.
        own_rate: The rate that the preset has.
        fields: The fields that have another rate, with {rate} in its place.
    """
    chosen = results("quick", CHOICES)
    trials = {}
    for rate in rates:
        changes = "" if rate == own_rate else fields.format(rate=rate)
        trials[rate] = chosen[chosen.changes == changes]
    return trials


# Other presets


def with_all_of_appendix_e() -> DataFrame:
    """Return the trials of the preset `paper` at 30 states, by seed."""
    trials = results("paper")
    trials = trials[(trials.changes == "") & (trials.n_memory == 1)]
    return at(30, trials).set_index("seed")


def in_laptop_and_quick() -> DataFrame:
    """Return the trials of `laptop`, and those of `quick` on the same chains."""
    both = pd.concat([results("laptop"), results("quick")])
    both = both[both.changes == ""]
    chains = both.loc[both.preset == "laptop", CHAIN]
    return both.merge(chains, on=CHAIN)


def stored_preset(preset: str) -> str:
    """Return a preset if the reruns that the page needs are stored for it, and `quick` otherwise.

    Lines say so where it is `quick` instead, with the command that makes the first of those reruns.
    """
    if preset == "quick":
        return preset
    stored = results(preset, BEYOND)
    fields = [f"steps={steps} {APPENDIX_E}" for steps in (*STEPS, 175)]
    fields += [f"{change.fields} {APPENDIX_E}" for change in CHANGES]
    fields += list(TUNINGS.values())[:-1]
    if PROBE in stored and set(fields) <= set(stored.changes):
        return preset
    steps = ",".join(map(str, STEPS))
    tuning = " ".join(f"--set {field}" for field in APPENDIX_E.split())
    print(f"Not all reruns of this page are stored for `{preset}`, so those of `quick` are shown. The first of them:")
    print(
        f"python -m hmmbook trial --panel left --missing --trials 20 --preset {preset} --set steps={steps} {tuning}"
        f" --store {BEYOND[0]}"
    )
    print("The commands for the others are on the page Reproduce.")
    return "quick"
