"""How much of what a tuned prompt changes is a function of the belief: distances of fits, and their net shares.

A fit approximates the predictions behind the prompt. A reweighting is W (c ⊙ p) / cᵀp, as a fake token gives it. A
relabelling is R p. Here are the stored distances of such fits as tables, and means of them. Nothing here trains.
"""

from __future__ import annotations

from pandas import DataFrame, Series

from hmmbook import mean_ci
from hmmbook.experiments.intervals import Interval
from hmmbook.experiments.store import REFITS
from hmmbook.studies.mechanism import tables

FITS = {
    "nearest reweighting": "weights",
    "nearest relabelling": "relabelled",
    "linear logits": "softmax of p",
    "function of the network's prediction": "softmax of log g0",
    "any function of the belief": "any function",
}
"""The families of functions that are fitted to the predictions behind a prompt, by what the page calls them."""
LOOK_ALIKES = {
    "not solvable by\na fake token (D)": "look-alikes-d",
    "solvable by\na fake token (A)": "look-alikes-a",
    "the same (A),\nlabels shuffled": "look-alikes-shuffled",
}
"""The tasks on chains of look-alikes whose net shares are shown."""
PAPERS = "the paper's\nchains"
NEEDED = 0.05
"""A prompt is needed where it is right on so many more texts than the head alone."""
FOLLOWED = {
    "directions along which it varies with the belief": ("label_follows_encoding", "belief of another text"),
    "all other directions": ("label_follows_encoding", "rest of another text"),
    "five random directions": ("label_follows_encoding", "random part of another text"),
    "directions that a linear probe uses": ("label_follows", "belief of another text"),
    "all directions but those": ("label_follows", "rest of another text"),
}
"""What is taken from another text, and where it is stored how often the label goes with it."""


# Trials of the paper's chains


def refits(steps: int = tables.STEPS) -> DataFrame:
    """Return the stored trials of the left panel of Figure 3 with fits, after so many steps of pretraining."""
    stored = tables.stored(REFITS)
    return stored[stored.steps == steps]


def needing(trials: DataFrame) -> DataFrame:
    """Return the trials whose prompt is five points better than the head alone."""
    return trials[trials.gain >= NEEDED]


# Distances and shares


def distance_of(trials: DataFrame, fit: str, kind: str = "all", prompt: bool = True) -> Series:
    """Return how far a fit is from the predictions behind the prompt, in mean total variation.

    Args:
        trials: Stored trials.
        fit: The family, a value of FITS, "unchanged" for W p or "both" for a reweighting with a relabelling.
        kind: The texts: "all", or those of an entropy, such as "0.5 to 1".
        prompt: Whether the predictions are those behind the prompt. If not, they are those without one.
    """
    place = "fit_distances" if prompt else "fit_distances_without_prompt"
    return trials[f"{place}.{fit}.{kind}"]


def taken_off(trials: DataFrame, fit: str, kind: str = "all", prompt: bool = True) -> Series:
    """Return what a fit takes off the distance from W p, behind the prompt or without one."""
    return distance_of(trials, "unchanged", kind, prompt) - distance_of(trials, fit, kind, prompt)


def net_taken_off(trials: DataFrame, fit: str) -> Series:
    """Return what a fit takes off behind the prompt, less what it takes off without one."""
    return taken_off(trials, fit) - taken_off(trials, fit, prompt=False)


def net_share(trials: DataFrame, fit: str) -> Series:
    """Return what a fit takes off net, as a share of the distance of W p from the predictions behind the prompt."""
    return net_taken_off(trials, fit) / distance_of(trials, "unchanged")


def share_by_seed(trials: DataFrame, fit: str) -> Interval:
    """Return the mean net share over seeds.

    The chains of one seed are alike at different sizes. So their trials are taken together, as a ratio of sums.
    """
    net = net_taken_off(trials, fit).groupby(trials.seed).sum()
    distance = distance_of(trials, "unchanged").groupby(trials.seed).sum()
    return mean_ci(net / distance)


def lead_of_relabelling(trials: DataFrame, kind: str = "all") -> Series:
    """Return how much nearer the nearest relabelling is than the nearest reweighting."""
    return distance_of(trials, "weights", kind) - distance_of(trials, "relabelled", kind)


def net_shares() -> dict[str, dict[str, Interval]]:
    """Return mean net shares for each task on look-alikes and for the paper's chains that need their prompt.

    Returns:
        By the task, by the names of FITS.
    """
    shares = {}
    for name, task in LOOK_ALIKES.items():
        trials = tables.look_alike_trials(task)
        shares[name] = {fit: mean_ci(net_share(trials, family)) for fit, family in FITS.items()}
    papers = needing(refits())
    shares[PAPERS] = {fit: share_by_seed(papers, family) for fit, family in FITS.items()}
    return shares


# Which part of the hidden state the label follows


def labels_followed(task: str) -> DataFrame:
    """Return how often the label becomes another text's together with a part of its hidden state.

    Args:
        task: "look-alikes-a" or "look-alikes-c".

    Returns:
        Mean shares of pairs of texts, with a row for each of FOLLOWED and a column for each layer.
    """
    trials = tables.look_alike_trials(task)
    shares = {}
    for layer in (1, 2):
        column = {}
        for part, (measurement, source) in FOLLOWED.items():
            column[part] = trials[f"{measurement}.layer {layer}.{source}"].mean()
        shares[f"layer {layer}"] = column
    return DataFrame(shares)


# Distances of the earlier fits


def apart(family: str, kind: str = "all") -> str:
    """Name the column of how far an earlier fit is from the predictions behind the prompt."""
    return f"readout_distances.{family}.{kind}"


def without_prompt(family: str) -> str:
    """Name the same column for the predictions without a prompt."""
    return f"plain_distances.{family}.all"


def behind_control(control: str, family: str) -> str:
    """Name the same column for the predictions behind a prompt that was tuned otherwise."""
    return f"control_distances.{control}.{family}"


def distances_of_controls(trials: DataFrame) -> DataFrame:
    """Return mean distances of the predictions behind several prompts from W p and from two earlier fits.

    Args:
        trials: Trials of the paper's chains with the measurements `readout_distances`, `plain_distances` and
            `control_distances`.
    """
    columns_of = {
        "no prompt": without_prompt,
        "prompt never tuned": lambda family: behind_control("untrained", family),
        "tuned prompt": apart,
        "tuned on shuffled labels": lambda family: behind_control("shuffled labels", family),
        "tuned for another task": lambda family: behind_control("another task", family),
        "exact model, one vector": lambda family: behind_control("exact model", family),
    }
    families = {"from W p": "unchanged", "reweighted": "reweighted", "relabelled": "relabelled"}
    rows = {}
    for name, column_of in columns_of.items():
        rows[name] = {title: trials[column_of(family)].mean() for title, family in families.items()}
    return DataFrame.from_dict(rows, orient="index")


def tuners() -> dict[str, DataFrame]:
    """Return the stored trials with a prompt, a prefix and LoRA, on the same chains with 10 and with 30 states."""
    stored = tables.stored()
    trials = stored[stored.n_states.isin([10, 30]) & (stored.seed < 10) & (stored.n_memory == 1)]
    trials = trials[trials[apart("free")].notna()]
    changes = {"prompt": "", "prefix": "prompt_rate=0.3 tuner=prefix", "LoRA": "prompt_rate=0.01 tuner=lora"}
    return {name: trials[trials.changes == change] for name, change in changes.items()}
