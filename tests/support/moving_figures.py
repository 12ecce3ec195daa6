"""Models, heads and texts of which the moving figures are made in tests."""

from itertools import product

import torch

import hmmbook
import hmmlib
from hmmbook.experiments.store import STORE
from hmmbook.figures import interactive

WORDS = ["a", "the", "cow", "horse", "barn", "field"]
THREE_STATES = hmmlib.HMM(
    [[0.9, 0.05, 0.1], [0.05, 0.85, 0.05], [0.05, 0.1, 0.85]],
    [[0.8, 0.1, 0.1], [0.1, 0.8, 0.2], [0.1, 0.1, 0.7]],
    [0.3, 0.3, 0.4],
)
MU = torch.tensor([1.0, -0.7, -0.2], dtype=torch.float64)
WEATHER = hmmlib.HMM(
    [[0.9, 0.3], [0.1, 0.7]],
    [[0.7, 0.1], [0.2, 0.2], [0.1, 0.7]],
    [0.5, 0.5],
)
"""The two states of the page on Section 2, with tokens for sun, cloud and rain."""


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def prompt_figure(seed=0):
    """A model of four states, its task, prompt, head and inputs, and their figure."""
    model, essential = hmmlib.essential_hmm(4, 3, 2 + seed % 2, seed)
    mu = torch.zeros(4, dtype=torch.float64)
    mu[essential] = torch.randn(len(essential), generator=draws(seed), dtype=torch.float64)
    prompt, head = hmmlib.theorem_3_6(model, mu, essential)
    x = torch.tensor(list(product(range(3), repeat=4)))
    x = x[hmmlib.log_likelihood(model, x) > -torch.inf]
    figure = interactive.conditioning_by_a_prompt(model, mu, prompt, head, "abcd", x[[0, -1]])
    return model, mu, prompt, head, x, figure


def language():
    """The little language of the page on Section 4.1, and the head of Theorem 4.3."""
    article_at_first = [0.7, 0.3, 0, 0, 0, 0]
    article_later = [0, 1, 0, 0, 0, 0]
    cow = [0, 0, 0.6, 0.3, 0.1, 0]
    horse = [0, 0, 0.1, 0.8, 0, 0.1]
    barn = [0, 0, 0.1, 0, 0.7, 0.2]
    field = [0, 0, 0, 0.1, 0.2, 0.7]
    columns = [[article_at_first, cow, article_later, barn], [article_at_first, horse, article_later, field]]
    emission = torch.tensor(columns, dtype=torch.float64).permute(2, 0, 1)
    transition = [[0, 0.2, 0, 0.6], [1, 0, 0, 0.1], [0, 0.6, 0, 0.3], [0, 0.2, 1, 0]]
    memory = [[0.3, 0.15], [0.15, 0.4]]
    model = hmmlib.MemoryHMM(transition, emission, [0.4, 0.1, 0.3, 0.2], memory)
    return model, hmmlib.theorem_4_3(model, [1.0, -1.0], 0, [1])


def figures():
    """Each figure once, by the name of its script."""
    memory, head = language()
    predictions = [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]
    frames = [[predictions, predictions[::-1]], [predictions, predictions]]
    weather = ["sun", "cloud", "rain"]
    all_figures = [
        prompt_figure()[-1],
        interactive.nearly_dependent_columns(THREE_STATES, MU, "abc"),
        interactive.attention_over_words(
            memory, head, [1.0, -1.0], WORDS, "a cow", ["cow", "horse"], [1], "is it a cow?"
        ),
        interactive.softmax_and_its_limit(memory, head, WORDS, "a cow a horse"),
        interactive.open_and_shut(frames, [True, False], [0, 1], "abc", "xyz"),
        interactive.belief_word_by_word(
            memory,
            WORDS,
            cells=["subject", "place"],
            values=[["cow", "horse"], ["barn", "field"]],
            syntax=["article", "noun"],
            text="a cow the barn",
            read=1,
            examples=("a a", "the [mask]"),
        ),
        interactive.passing_messages(WEATHER, weather, ["calm", "stormy"], "sun cloud rain sun", [2]),
        interactive.trial_by_trial(hmmbook.results("smoke", STORE)),
    ]
    return {figure.figure: figure for figure in all_figures}
