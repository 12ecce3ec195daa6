"""Models, heads and texts of which the moving figures are made in tests."""

from itertools import product

import torch
from companion.figures import interactive

import hmmlib
from hmmlib.experiments.store import STORE

WORDS = ["a", "the", "cow", "horse", "barn", "field"]
_STEPS = [[0.9, 0.05, 0.1], [0.05, 0.85, 0.05], [0.05, 0.1, 0.85]]
THREE_STATES = hmmlib.HMM(_STEPS, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.2], [0.1, 0.1, 0.7]], [0.3, 0.3, 0.4])
MU = torch.tensor([1.0, -0.7, -0.2], dtype=torch.float64)
WEATHER = hmmlib.HMM([[0.9, 0.3], [0.1, 0.7]], [[0.7, 0.1], [0.2, 0.2], [0.1, 0.7]], [0.5, 0.5])
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
    """The little language of the page on Section 4.1."""
    noun = [[0, 0, 0.6, 0.3, 0.1, 0], [0, 0, 0.1, 0.8, 0, 0.1]]
    place = [[0, 0, 0.1, 0, 0.7, 0.2], [0, 0, 0, 0.1, 0.2, 0.7]]
    articles = [[0.7, 0.3, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    columns = torch.tensor([[articles[0], noun[m], articles[1], place[m]] for m in (0, 1)], dtype=torch.float64)
    transition = [[0, 0.2, 0, 0.6], [1, 0, 0, 0.1], [0, 0.6, 0, 0.3], [0, 0.2, 1, 0]]
    memory = [[0.3, 0.15], [0.15, 0.4]]
    model = hmmlib.MemoryHMM(transition, columns.permute(2, 0, 1), [0.4, 0.1, 0.3, 0.2], memory)
    return model, hmmlib.theorem_4_3(model, [1.0, -1.0], 0, [1])


def figures():
    """Each figure once, by the name of its script."""
    memory, head = language()
    nouns, places, syntax = ["cow", "horse"], ["barn", "field"], ["article", "noun"]
    beliefs = [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]
    reading = [["subject", "place"], [nouns, places], syntax, "a cow the barn", 1, ("a a", "the [mask]")]
    every = [
        prompt_figure()[-1],
        interactive.nearly_dependent_columns(THREE_STATES, MU, "abc"),
        interactive.attention_over_words(memory, head, [1.0, -1], WORDS, "a cow", nouns, [1], "is it a cow?"),
        interactive.softmax_and_its_limit(memory, head, WORDS, "a cow a horse"),
        interactive.open_and_shut([[beliefs, beliefs[::-1]], [beliefs, beliefs]], [True, False], [0, 1], "abc", "xyz"),
        interactive.belief_word_by_word(memory, WORDS, *reading),
        interactive.passing_messages(WEATHER, ["sun", "cloud", "rain"], ["calm", "stormy"], "sun cloud rain sun", [2]),
        interactive.trial_by_trial(hmmlib.results("smoke", STORE)),
    ]
    return {figure.figure: figure for figure in every}
