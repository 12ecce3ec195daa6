"""What is stored of the trials on how a tuned prompt helps, as tables with a row for each chain.

Pages and tests read these tables. Nothing here trains.
"""

from __future__ import annotations

from pandas import DataFrame, Series

from companion.look_alikes import TASK_D
from companion.mechanism import controls
from companion.mechanism.constants import BEHIND_FROZEN, CONSTANTS
from companion.mechanism.gate import CHANGES
from companion.mechanism.heads_by_size import HEADS, PENALTIES
from companion.mechanism.rare_steps import ALWAYS, WITH_A_SET
from hmmlib import results
from hmmlib.experiments.store import BEYOND, REFITS

MODERATE = 100
"""A head of ordinary size has a norm ‖b‖ of at most this."""
STEPS = 400
"""The pretraining steps of the preset `quick`, which the trials of the left panel have."""


def task_d(vectors: int = 20) -> DataFrame:
    """The stored trials of task D with prompts of so many vectors, by the seed of the chain."""
    stored = results("quick", BEYOND)
    trials = stored[(stored.own == TASK_D) & (stored.prompt_length == vectors)]
    return trials.set_index("seed").sort_index()


def left_panel(n_states: int, vectors: int = 20) -> DataFrame:
    """The stored trials of one size of the left panel of Figure 3, by seed."""
    stored = results("quick", REFITS if vectors == 20 else BEYOND)
    trials = stored[(stored.n_states == n_states) & (stored.steps == STEPS) & (stored.n_memory == 1)]
    changes = "" if vectors == 20 else f"prompt_length={vectors}"
    trials = trials[(trials.changes == changes) & (trials.seed < 20)]
    return trials.set_index("seed").sort_index()


def theorem(n_states: int, threshold: str = "0.001") -> DataFrame:
    """Accuracies on the exact model, for the chains on which the theorem has a prompt once rare steps are ignored."""
    trials = left_panel(n_states)
    names = {f"rare_steps.{threshold}.{name}": name for name in WITH_A_SET}
    names |= {f"rare_steps.{name}": name for name in ALWAYS}
    names[f"chosen_prompts.{threshold}"] = "best random prompt, fitted head"
    table = trials[[*names]].rename(columns=names)
    table["more frequent label"] = trials.majority_rate
    return table[table["theorem's prompt, fitted head"].notna()]


def of_heads(trials: DataFrame, reading: str, what: str) -> DataFrame:
    """Accuracy or norm, as `what` says, of each head on one of `heads_by_size.INPUTS`."""
    names = {f"heads_by_size.{reading}.{head}.{what}": head for head in HEADS}
    return trials[[*names]].rename(columns=names)


def best_of_size(trials: DataFrame, reading: str, most: float = MODERATE) -> Series:
    """The accuracy of the best penalised head of a norm of at most `most`, for each trial.

    The best is chosen by the test texts themselves, so this is more than such a head can be expected to reach.
    """
    accuracies = of_heads(trials, reading, "accuracy")[[*PENALTIES]]
    norms = of_heads(trials, reading, "norm")[[*PENALTIES]]
    return accuracies[norms <= most].max(axis=1)


def of_changes(trials: DataFrame, head: str = "fitted") -> DataFrame:
    """The accuracy of heads fitted anew after each of CHANGES, and with each of CONSTANTS, for each trial."""
    names = {f"prompt_changes.{change}.{head}": change for change in CHANGES}
    names |= {f"constant_vectors.{name}.{head}": name for name in CONSTANTS}
    return trials[[*names]].rename(columns=names)


def with_noise(trials: DataFrame, reading: str, noise: str) -> DataFrame:
    """The accuracy of each of three heads on predictions to which noise is added, for each trial."""
    names = {f"readable_with_noise.{reading}.{head}.{noise}": head for head in controls.HEADS}
    return trials[[*names]].rename(columns=names)


def longer_constants(trials: DataFrame) -> DataFrame:
    """Accuracies with vectors that are tuned for longer: the better one without a prompt, and behind the frozen one."""
    accuracies = {}
    validation = {}
    for place in (*CONSTANTS, BEHIND_FROZEN):
        accuracies[place] = trials[f"tuned_constants.{place}.accuracy"]
        validation[place] = trials[f"tuned_constants.{place}.validation"]
    in_embedding, behind = CONSTANTS
    better = validation[in_embedding] >= validation[behind]
    return DataFrame(
        {
            "without a prompt": accuracies[in_embedding].where(better, accuracies[behind]),
            "behind the frozen prompt": accuracies[BEHIND_FROZEN],
        }
    )


def chains_of_task_d() -> DataFrame:
    """A row for each chain of task D: the bound, and what heads, prompts and other classifiers reach."""
    trials = task_d()
    one = task_d(1)
    alone = "without the prompt"
    return DataFrame(
        {
            "bound": trials.fake_token_bound,
            "tuned head": trials.head_accuracy,
            "best head, exact": trials.best_head_accuracy,
            "head of ordinary size": best_of_size(trials, alone),
            "fully fitted head": of_heads(trials, alone, "accuracy")["none"],
            "its norm": of_heads(trials, alone, "norm")["none"],
            "1 vector": one.prompt_accuracy,
            "20 vectors": trials.prompt_accuracy,
            "nearest neighbours": trials[f"other_classifiers.{alone}.nearest neighbours"],
            "nearest neighbours, exact": trials["other_classifiers.exact.nearest neighbours"],
            "small network": trials[f"other_classifiers.{alone}.small network"],
        }
    )
