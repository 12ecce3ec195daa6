"""What is stored of the trials on how a tuned prompt helps, as tables with a row for each chain.

Pages and tests read these tables. Nothing here trains.
"""

from __future__ import annotations

from functools import cache

from pandas import DataFrame, Series

from hmmbook import results
from hmmbook.experiments.store import BEYOND, REFITS, Store
from hmmbook.studies.look_alikes import TASK_D
from hmmbook.studies.mechanism import controls
from hmmbook.studies.mechanism.constants import BEHIND, BEHIND_FROZEN, CONSTANTS, EMBEDDING
from hmmbook.studies.mechanism.gate import CHANGES
from hmmbook.studies.mechanism.heads_by_size import ALONE, HEADS, PENALTIES
from hmmbook.studies.mechanism.rare_steps import ALWAYS, WITH_A_SET

MODERATE = 100
"""A small head has a norm ‖b‖ of at most this."""
STEPS = 400
"""The pretraining steps of the preset `quick`, which the trials of the left panel have."""


@cache
def stored(store: Store = BEYOND) -> DataFrame:
    """Return the results of the preset `quick` in a store.

    They are read once in a process, because many tables begin with them. Nobody may change the table.
    """
    return results("quick", store)


def look_alike_trials(task: str, vectors: int = 20) -> DataFrame:
    """Return the stored trials on chains of look-alikes, by the seed of the chain.

    Args:
        task: What the trials have in their field `own`, such as "look-alikes-a".
        vectors: The length of the prompt.
    """
    everything = stored()
    trials = everything[(everything.own == task) & (everything.prompt_length == vectors)]
    return trials.set_index("seed").sort_index()


def task_d(vectors: int = 20) -> DataFrame:
    """Return the stored trials of task D with prompts of so many vectors, by the seed of the chain."""
    return look_alike_trials(TASK_D, vectors)


def left_panel(n_states: int, vectors: int = 20) -> DataFrame:
    """Return the stored trials of one size of the left panel of Figure 3, by seed."""
    store = BEYOND
    changes = f"prompt_length={vectors}"
    if vectors == 20:
        store = REFITS
        changes = ""
    everything = stored(store)
    of_size = (everything.n_states == n_states) & (everything.n_memory == 1)
    trials = everything[of_size & (everything.steps == STEPS)]
    trials = trials[(trials.changes == changes) & (trials.seed < 20)]
    return trials.set_index("seed").sort_index()


def columns_below(trials: DataFrame, path: str, names: tuple[str, ...], what: str = "") -> DataFrame:
    """The columns PATH.NAME, or PATH.NAME.WHAT, of a table of results, each called by its name."""
    table = {}
    for name in names:
        column = f"{path}.{name}.{what}" if what else f"{path}.{name}"
        table[name] = trials[column]
    return DataFrame(table)


def theorem(n_states: int, threshold: str = "0.001") -> DataFrame:
    """Return accuracies on the exact model, for chains on which the theorem has a prompt once rare steps are ignored.

    Args:
        n_states: The size of the chains.
        threshold: Below which probability a step is rare, as one of `rare_steps.THRESHOLDS`.
    """
    trials = left_panel(n_states)
    table = columns_below(trials, f"rare_steps.{threshold}", WITH_A_SET)
    table = table.join(columns_below(trials, "rare_steps", ALWAYS))
    table["best random prompt, fitted head"] = trials[f"chosen_prompts.{threshold}"]
    table["more frequent label"] = trials.majority_rate
    return table[table["theorem's prompt, fitted head"].notna()]


def of_heads(trials: DataFrame, reading: str, what: str) -> DataFrame:
    """Return a number of each head, for each trial.

    Args:
        trials: Stored trials.
        reading: What the heads read, one of `heads_by_size.INPUTS`.
        what: The number, "accuracy" or "norm".
    """
    return columns_below(trials, f"heads_by_size.{reading}", HEADS, what)


def best_of_size(trials: DataFrame, reading: str, most: float = MODERATE) -> Series:
    """Return the accuracy of the best penalised head of a norm of at most `most`, for each trial.

    The best is chosen by the test texts themselves, so this is more than such a head can be expected to reach.
    """
    accuracies = of_heads(trials, reading, "accuracy")[[*PENALTIES]]
    norms = of_heads(trials, reading, "norm")[[*PENALTIES]]
    return accuracies[norms <= most].max(axis=1)


def of_changes(trials: DataFrame, head: str = "fitted") -> DataFrame:
    """Return the accuracy of heads fitted anew after each of CHANGES, and with each of CONSTANTS, for each trial."""
    changes = columns_below(trials, "prompt_changes", CHANGES, head)
    return changes.join(columns_below(trials, "constant_vectors", CONSTANTS, head))


def with_noise(trials: DataFrame, reading: str, noise: str) -> DataFrame:
    """Return the accuracy of each of three heads on predictions to which noise is added, for each trial."""
    return columns_below(trials, f"readable_with_noise.{reading}", controls.HEADS, noise)


def longer_constants(trials: DataFrame) -> DataFrame:
    """Return accuracies with vectors tuned for longer: the better one without a prompt, and behind the frozen one."""
    places = (*CONSTANTS, BEHIND_FROZEN)
    accuracies = columns_below(trials, "tuned_constants", places, "accuracy")
    validation = columns_below(trials, "tuned_constants", places, "validation")
    better = validation[EMBEDDING] >= validation[BEHIND]
    return DataFrame(
        {
            "without a prompt": accuracies[EMBEDDING].where(better, accuracies[BEHIND]),
            "behind the frozen prompt": accuracies[BEHIND_FROZEN],
        }
    )


def chains_of_task_d() -> DataFrame:
    """Return a row for each chain of task D: the bound, and what heads, prompts and other classifiers reach."""
    trials = task_d()
    return DataFrame(
        {
            "bound": trials.fake_token_bound,
            "tuned head": trials.head_accuracy,
            "best head, exact": trials.best_head_accuracy,
            "small head": best_of_size(trials, ALONE),
            "fully fitted head": of_heads(trials, ALONE, "accuracy")["none"],
            "its norm": of_heads(trials, ALONE, "norm")["none"],
            "1 vector": task_d(1).prompt_accuracy,
            "20 vectors": trials.prompt_accuracy,
            "nearest neighbours": trials[f"other_classifiers.{ALONE}.nearest neighbours"],
            "nearest neighbours, exact": trials["other_classifiers.exact.nearest neighbours"],
            "small network": trials[f"other_classifiers.{ALONE}.small network"],
        }
    )
