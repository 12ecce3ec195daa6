"""Columns, published points and differences of which the tests of the page on the published curve speak."""

import pandas as pd

from hmmbook.experiments.results import published

HEAD = "head_accuracy"
PROMPT = "prompt_accuracy"
PAPER = published("left")
PUBLISHED_HEADS = PAPER["head tuning"]
PUBLISHED_PROMPTS = PAPER["prompt tuning"]


def whole(share) -> str:
    return f"{share:.0%}"


def at(n_states: int, group: pd.DataFrame) -> pd.DataFrame:
    return group[group.n_states == n_states]


def above(group: pd.DataFrame, column: str = PROMPT) -> pd.Series:
    """Points above the more frequent label."""
    return 100 * (group[column] - group.majority_rate)
