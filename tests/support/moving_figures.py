"""What the moving figures are drawn of in tests: models, heads and texts."""

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from companion.figures import interactive

from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE
from hmmlib.inference.messages import log_likelihood
from hmmlib.models import families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import AttentionHead
from hmmlib.theory.theorems import theorem_3_6, theorem_4_3

MOVING = Path(interactive.__file__).parent / "moving"
PAGES = dict.fromkeys(["2-setting", "3-hmm", "3-1-prompt", "4-memory-hmm", "5-2-head-vs-prompt", "tuned-prompts"], 1)
PAGES = {f"notebooks/{page}": count for page, count in PAGES.items()}
PAGES["notebooks/4-1-attention-head"] = 2
"""Interactive figures of each page."""
WORDS = ["a", "the", "cow", "horse", "barn", "field"]
ASK = "is it a cow?"


def close(found, expected, tolerance=1e-12):
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= tolerance, np.abs(found - expected).max()


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def prompt_figure(seed=0):
    """A model of four states, its task, prompt, head and inputs, and their figure; for seed 0 as on the page of Section
    3.1."""
    if seed == 0:
        model = HMM(
            [[0, 0, 0.6, 0.6], [0, 0, 0.4, 0.2], [0.7, 0.2, 0, 0], [0.3, 0.8, 0, 0.2]],
            [[0.5, 0.3, 0.3, 0.7], [0.1, 0.6, 0.7, 0.3], [0.4, 0.1, 0, 0]],
            [0.25] * 4,
        )
        mu, essential = torch.tensor([1.0, -1, 0, 0], dtype=torch.float64), [0, 1]
    else:
        model, essential = families.essential_hmm(4, 3, 2 + seed % 2, seed)
        mu = torch.zeros(4, dtype=torch.float64)
        mu[essential] = torch.randn(len(essential), generator=draws(seed), dtype=torch.float64)
    prompt, head = theorem_3_6(model, mu, essential)
    x = torch.tensor(list(product(range(3), repeat=4)))
    x = x[log_likelihood(model, x) > -torch.inf].tolist()
    figure = interactive.conditioning_by_a_prompt(model, mu, prompt, head, "abcd", [x[0], x[-1]])
    return model, mu, prompt, head, torch.tensor(x), figure


def three_states():
    model = HMM(
        [[0.9, 0.05, 0.1], [0.05, 0.85, 0.05], [0.05, 0.1, 0.85]],
        [[0.8, 0.1, 0.1], [0.1, 0.8, 0.2], [0.1, 0.1, 0.7]],
        [0.3, 0.3, 0.4],
    )
    return model, torch.tensor([1.0, -0.7, -0.2], dtype=torch.float64)


def weather():
    """The two states of the page on Section 2, and the names of its tokens."""
    model = HMM([[0.9, 0.3], [0.1, 0.7]], [[0.7, 0.1], [0.2, 0.2], [0.1, 0.7]], [0.5, 0.5])
    return model, ["sun", "cloud", "rain"]


def language():
    """The little language of the page on Section 4.1."""
    noun = [[0, 0, 0.6, 0.3, 0.1, 0], [0, 0, 0.1, 0.8, 0, 0.1]]
    place = [[0, 0, 0.1, 0, 0.7, 0.2], [0, 0, 0, 0.1, 0.2, 0.7]]
    articles = [[0.7, 0.3, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    columns = torch.tensor([[articles[0], noun[m], articles[1], place[m]] for m in (0, 1)], dtype=torch.float64)
    model = MemoryHMM(
        [[0, 0.2, 0, 0.6], [1, 0, 0, 0.1], [0, 0.6, 0, 0.3], [0, 0.2, 1, 0]],
        columns.permute(2, 0, 1),
        [0.4, 0.1, 0.3, 0.2],
        [[0.3, 0.15], [0.15, 0.4]],
    )
    return model, theorem_4_3(model, [1.0, -1.0], 0, [1])


def random_memory_hmm(seed):
    """A model with up to three cells, many of whose texts are impossible."""
    n_cells = 1 + seed % 3
    return families.sparse_memory_hmm(2 + seed % 2, 2 * n_cells, 4, seed, 0.5, n_cells)


def random_attention(seed):
    """A model with up to three cells and any head, sometimes one whose scores all tie."""
    model = random_memory_hmm(seed)
    draw = partial(torch.randn, generator=draws(seed), dtype=torch.float64)
    width = model.n_memory * model.n_states
    query = draw(model.n_states + 1) * (seed % 4 > 0)
    return model, AttentionHead(
        query, draw(model.n_states + 1, 4), draw(width, 4), draw(width), None, 3.0, model.n_cells
    )


def figures():
    """Each figure once, by the name of its script."""
    (model, mu), (memory, head) = three_states(), language()
    cells, values, syntax = ["subject", "place"], [["cow", "horse"], ["barn", "field"]], ["article", "noun"]
    every = [
        prompt_figure()[-1],
        interactive.nearly_dependent_columns(model, mu, "abc"),
        interactive.attention_over_words(
            memory, head, [1.0, -1], WORDS, "a cow", ["cow", "horse"], [1], ASK, examples=["a a"]
        ),
        interactive.softmax_and_its_limit(memory, head, WORDS, "a cow a horse"),
        interactive.fake_token_or_other_words(
            model.emission, [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], [True, False], torch.eye(3).double(), [1, 0.5, 0], "abc"
        ),
        interactive.belief_word_by_word(
            memory, WORDS, cells, values, syntax, "a cow the barn", 1, ("a a", "the [mask]")
        ),
        interactive.passing_messages(*weather(), ["calm", "stormy"], "sun cloud rain sun", [2]),
        interactive.trial_by_trial(results("smoke", STORE)),
    ]
    return {figure.figure: figure for figure in every}
