"""Models with words for tokens and parts of speech for syntax states: Example 4.1, and a farm that can be enumerated.

In Example 4.1 a text has one memory, a subject, a location and a sentiment, and sentence after sentence is made from
it. A sentence opens with the subject, may add phrases, has one verb, may add phrases again, and ends in a full stop:

    article noun (preposition article noun)* verb (preposition article object)* [adverb] stop

A Markov chain must know which side of the verb it is on, so prepositions and articles come twice, as early and late.
A phrase keeps its cell, and so does the full stop. Assumption 3.2 asks that every pair of a cell and a part of speech
is in use, so each pair has words of its own. A text rarely begins in the middle of a sentence, so that P[H_0] has full
support.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.models.hmm import MemoryHMM
from hmmlib.validation import MASK, as_tokens, of_type, one_of

if TYPE_CHECKING:
    from jaxtyping import Int
    from numpy.typing import ArrayLike

CELLS = ("subject", "location", "sentiment")
VALUES = (("cow", "sailor", "child"), ("pasture", "harbour", "kitchen"), ("happy", "sad", "angry"))
CONTENT_WORDS = {
    ("subject", "noun"): ("cow calf", "sailor captain", "child girl"),
    ("subject", "verb"): ("rolled chewed", "whistled rowed", "played skipped"),
    ("subject", "object"): ("bell herd", "parrot crew", "doll kite"),
    ("subject", "adverb"): ("heavily lazily", "boldly hoarsely", "clumsily eagerly"),
    ("location", "noun"): ("pasture meadow", "harbour port", "kitchen pantry"),
    ("location", "verb"): ("strolled rested", "swam fished", "cooked sat"),
    ("location", "object"): ("grass clover", "pier boat", "stove table"),
    ("location", "adverb"): ("outdoors uphill", "ashore seawards", "indoors downstairs"),
    ("sentiment", "noun"): ("smile grin", "tear sigh", "frown scowl"),
    ("sentiment", "verb"): ("danced sang", "wept moped", "stamped raged"),
    ("sentiment", "object"): ("laugh cheer", "sob wail", "snarl curse"),
    ("sentiment", "adverb"): ("happily merrily", "sadly gloomily", "angrily crossly"),
}
"""Two words for each memory value of the cell, in the order of VALUES."""

RELIABILITY = {"noun": 0.8, "verb": 0.6, "object": 0.75, "adverb": 0.8}
"""How likely a word is one of those of the cell's value; otherwise it is any of those of the other values."""

ARTICLES = "the a"
EARLY = {"subject": "beside near", "location": "in near", "sentiment": "with"}
LATE = EARLY | {"location": "on near"}

PHRASE = {"subject": 0.1, "location": 0.6, "sentiment": 0.3}  # which cell an added phrase is about
VERB = {"subject": 0.7, "location": 0.15, "sentiment": 0.15}
ADVERB = {"subject": 0.15, "location": 0.1, "sentiment": 0.75}
STEPS = {
    "article": [("noun", None, 1.0)],
    "noun": [("preposition", PHRASE, 0.4), ("verb", VERB, 0.6)],
    "preposition": [("article", None, 1.0)],
    "verb": [("late preposition", PHRASE, 0.65), ("adverb", ADVERB, 0.25), ("stop", None, 0.1)],
    "late preposition": [("late article", None, 1.0)],
    "late article": [("object", None, 1.0)],
    "object": [("late preposition", PHRASE, 0.15), ("adverb", ADVERB, 0.5), ("stop", None, 0.35)],
    "adverb": [("stop", None, 1.0)],
    "stop": [("article", {"subject": 1.0}, 1.0)],
}
"""What can follow each syntax state, with which cell (None is the same one), and how likely."""
SYNTAX = tuple(STEPS)
HOME = 3.0  # how much likelier a subject is at the location of its own index than at another
ASTRAY = 0.01  # the part of P[H_0] that is spread over all states; the rest is on full stops


@dataclass(frozen=True, eq=False)
class Sentences:
    """A memory model whose tokens have `words`, and whose `cells`, their `values` and `syntax` states have names."""

    model: MemoryHMM
    words: list[str]
    cells: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    syntax: tuple[str, ...]

    def state(self, cell: str, syntax: str) -> int:
        """The index of the hidden state (cell, syntax state). ValueError for a name that does not exist."""
        cell, syntax = one_of("cell", cell, self.cells), one_of("syntax", syntax, self.syntax)
        return self.cells.index(cell) * len(self.syntax) + self.syntax.index(syntax)

    def encode(self, text: str) -> Tensor:
        """A text as tokens (1, T); "[mask]" stands for MASK. ValueError for a word that the model does not have."""
        found = of_type("text", text, str).lower().replace(".", " . ").split()
        if not found:
            raise ValueError("the text has no words")
        for word in found:
            if word not in self.words and word != "[mask]":
                near = ", ".join(difflib.get_close_matches(word, self.words, cutoff=0.5)) or "none"
                raise ValueError(f"{word!r} is not one of the model's {len(self.words)} words; near matches: {near}")
        return torch.tensor([[MASK if word == "[mask]" else self.words.index(word) for word in found]])

    def decode(self, tokens: Int[ArrayLike, "n T"]) -> list[str]:
        """The text of each row of tokens (n, T)."""
        rows = as_tokens(tokens, len(self.words)).tolist()
        return [" ".join("[mask]" if x == MASK else self.words[x] for x in row) for row in rows]

    def sample(self, n: int, length: int, seed: int | torch.Generator = 0) -> list[tuple[str, tuple[str, ...]]]:
        """`n` texts of `length` words, each with the memory it was made from, in words."""
        tokens, _, memory = self.model.sample(n, length, seed)
        named = [tuple(names[m] for names, m in zip(self.values, row, strict=True)) for row in memory.tolist()]
        return list(zip(self.decode(tokens), named, strict=True))


def _words(cell: str, syntax: str, value: int) -> dict[str, float]:
    """The words of a state when its cell holds a value, with their probabilities."""
    if (cell, syntax) in CONTENT_WORDS:
        groups, likely = [group.split() for group in CONTENT_WORDS[cell, syntax]], RELIABILITY[syntax]
        shares = [likely if k == value else (1 - likely) / (len(groups) - 1) for k in range(len(groups))]
        return {word: share / len(group) for group, share in zip(groups, shares, strict=True) for word in group}
    words = {"stop": ".", "preposition": EARLY[cell], "late preposition": LATE[cell]}.get(syntax, ARTICLES).split()
    return dict.fromkeys(words, 1 / len(words))


def sentences() -> Sentences:
    """The generator of Example 4.1: 3 cells of 3 values, 9 syntax states, so 27 hidden states; 80 words."""
    states = [(cell, syntax) for cell in CELLS for syntax in SYNTAX]
    n_values = len(VALUES[0])
    columns = {(m, h): _words(*state, m) for m in range(n_values) for h, state in enumerate(states)}
    words = sorted({word for column in columns.values() for word in column})
    emission = torch.zeros(len(words), n_values, len(states), dtype=torch.float64)
    for (m, h), column in columns.items():
        for word, share in column.items():
            emission[words.index(word), m, h] = share
    transition = torch.zeros(len(states), len(states), dtype=torch.float64)
    for h, (cell, syntax) in enumerate(states):
        for following, cells, share in STEPS[syntax]:
            for other, part in (cells or {cell: 1.0}).items():
                transition[states.index((other, following)), h] = share * part
    stops = torch.tensor([syntax == "stop" for _, syntax in states], dtype=torch.float64)
    initial = (1 - ASTRAY) * stops / stops.sum() + ASTRAY / len(states)
    home = 1 + (HOME - 1) * torch.eye(n_values, dtype=torch.float64)
    memory = home[:, :, None].expand(-1, -1, n_values)
    return Sentences(MemoryHMM(transition, emission, initial, memory / memory.sum()), words, CELLS, VALUES, SYNTAX)


FARM = (
    ((0.6, 0.1, 0, 0.3, 0, 0, 0), (0.1, 0.6, 0, 0.3, 0, 0, 0), (0, 0.1, 0.6, 0.3, 0, 0, 0)),  # animal, noun
    ((0, 0, 0, 0, 0, 0.5, 0.5),) * 3,  # animal, article
    ((0, 0, 0, 0.9, 0.1, 0, 0), (0, 0, 0, 0.5, 0.5, 0, 0), (0, 0, 0, 0.1, 0.9, 0, 0)),  # place, noun
    ((0, 0, 0, 0, 0, 0, 1),) * 3,  # place, article
)
"""The emission distributions of the farm's states, for each value of the cell."""


def farm(difficult_cats: bool = False) -> Sentences:
    """Seven words about an animal and a place: 2 cells of 3 values, 2 syntax states each, a stationary start.

    The animal's nouns are recoverable (Assumption 4.2), though animals emit "barn" too. With `difficult_cats` the noun
    and the article of a cat are "cat" or "a", alike: then they are so only by Assumption D.5, for a μ without cats.
    """
    cells, values = ("animal", "place"), (("dog", "hen", "cat"), ("inside", "between", "outside"))
    emission = torch.tensor(FARM, dtype=torch.float64).permute(2, 1, 0).contiguous()
    if of_type("difficult_cats", difficult_cats, bool):
        emission[:, 2, :2] = torch.tensor([0, 0, 0.5, 0, 0, 0.5, 0], dtype=torch.float64)[:, None]
    steps = [[0.5, 1, 0, 0], [0.25, 0, 0.5, 0], [0, 0, 0, 1], [0.25, 0, 0.5, 0]]
    memory = [[0.2, 0.1, 0.1], [0.1, 0.1, 0.1], [0, 0.1, 0.2]]
    model = MemoryHMM(steps, emission, [0.4, 0.2, 0.2, 0.2], memory)
    return Sentences(model, ["dog", "hen", "cat", "barn", "yard", "a", "the"], cells, values, ("noun", "article"))
