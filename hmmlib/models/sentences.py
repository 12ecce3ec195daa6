"""Models whose tokens are words and whose syntax states are parts of speech.

There are two: a generator for Example 4.1, and a farm that is small enough to enumerate all its texts. In Example 4.1 a
text has one memory, which is a subject, a location and a sentiment. All its sentences are made from this memory. A
sentence opens with the subject, may add phrases, has one verb, may add phrases again, and ends in a full stop:

    article noun (preposition article noun)* verb (preposition article object)* [adverb] stop

The state of the chain has to tell whether the verb has come. So there are two syntax states for prepositions, an early
one before the verb and a late one after it. The same holds for articles. All words of a phrase look up the same cell,
and a full stop looks up that of the word before it. Assumption 3.2 asks that every pair of a cell and a part of speech
can occur, so each pair has words of its own. It also asks that P[H_0] has full support. Therefore a text may begin in
the middle of a sentence, but rarely does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.device import own_settings
from hmmlib.models.hmm import MemoryHMM
from hmmlib.validation import MASK, as_tokens, of_type, one_of

if TYPE_CHECKING:
    from jaxtyping import Int
    from numpy.typing import ArrayLike

CELLS = ("subject", "location", "sentiment")
VALUES = (("cow", "sailor", "child"), ("pasture", "harbour", "kitchen"), ("happy", "sad", "angry"))
"""The values of each cell."""
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
"""Two words for each value of the cell, in the order of VALUES."""
RELIABILITY = {"noun": 0.8, "verb": 0.6, "object": 0.75, "adverb": 0.8}
"""The probability that a word is one of those of the cell's value. Otherwise it is a word of another value."""

ARTICLES = "the a"
EARLY_PREPOSITIONS = {"subject": "beside near", "location": "in near", "sentiment": "with"}
LATE_PREPOSITIONS = {"subject": "beside near", "location": "on near", "sentiment": "with"}

PHRASE = {"subject": 0.1, "location": 0.6, "sentiment": 0.3}
"""The probability that an added phrase is about each cell. VERB and ADVERB say the same of verbs and adverbs."""
VERB = {"subject": 0.7, "location": 0.15, "sentiment": 0.15}
ADVERB = {"subject": 0.15, "location": 0.1, "sentiment": 0.75}
STAY = None
"""The next state looks up the same cell."""
STEPS = {
    "article": [("noun", STAY, 1.0)],
    "noun": [("preposition", PHRASE, 0.4), ("verb", VERB, 0.6)],
    "preposition": [("article", STAY, 1.0)],
    "verb": [("late preposition", PHRASE, 0.65), ("adverb", ADVERB, 0.25), ("stop", STAY, 0.1)],
    "late preposition": [("late article", STAY, 1.0)],
    "late article": [("object", STAY, 1.0)],
    "object": [("late preposition", PHRASE, 0.15), ("adverb", ADVERB, 0.5), ("stop", STAY, 0.35)],
    "adverb": [("stop", STAY, 1.0)],
    "stop": [("article", {"subject": 1.0}, 1.0)],
}
"""What can follow each syntax state, about which cell, and with which probability."""
SYNTAX = tuple(STEPS)
HOME = 3.0
"""How many times as likely a subject is with the location of the same index in VALUES as with any other location."""
ASTRAY = 0.01
"""The share of P[H_0] that is spread evenly over all states. The rest is on full stops."""


@dataclass(frozen=True, eq=False)
class Sentences:
    """A memory model whose tokens, cells, memory values and syntax states have names."""

    model: MemoryHMM
    words: list[str]
    """The word of each token."""
    cells: tuple[str, ...]
    """The names of the memory cells."""
    values: tuple[tuple[str, ...], ...]
    """The names of the values of each cell."""
    syntax: tuple[str, ...]
    """The names of the syntax states."""

    def state(self, cell: str, syntax: str) -> int:
        """Return the index of the hidden state that looks up a cell in a syntax state.

        Raises:
            ValueError: there is no cell or syntax state of that name.
        """
        j = self.cells.index(one_of("cell", cell, self.cells))
        s = self.syntax.index(one_of("syntax", syntax, self.syntax))
        return j * len(self.syntax) + s

    def encode(self, text: str) -> Tensor:
        """Return a text as tokens, (1, T). The word "[mask]" becomes MASK.

        Raises:
            ValueError: the text is empty, or has a word that the model does not have.
        """
        spoken = of_type("text", text, str).lower().replace(".", " . ").split()
        if not spoken:
            raise ValueError("text must have at least one word")
        tokens = []
        for word in spoken:
            if word == "[mask]":
                tokens.append(MASK)
            elif word in self.words:
                tokens.append(self.words.index(word))
            else:
                raise ValueError(f"text must use the model's words, not {word!r}. They are {', '.join(self.words)}")
        return torch.tensor([tokens], device="cpu")

    def decode(self, tokens: Int[ArrayLike, "n T"]) -> list[str]:
        """Return each row of tokens (n, T) as a text."""
        names = [*self.words, "[mask]"]  # MASK is -1, so it stands for the last name.
        texts = []
        for row in as_tokens(tokens, len(self.words)).tolist():
            texts.append(" ".join(names[token] for token in row))
        return texts

    def sample(self, n: int, length: int, seed: int | torch.Generator = 0) -> list[tuple[str, tuple[str, ...]]]:
        """Draw `n` texts of `length` words. Each comes with the names of the memory values that it was made from."""
        tokens, _, memory = self.model.sample(n, length, seed)
        texts = []
        for text, row in zip(self.decode(tokens), memory.tolist(), strict=True):
            remembered = [names[m] for names, m in zip(self.values, row, strict=True)]
            texts.append((text, tuple(remembered)))
        return texts


# Example 4.1


def _emitted(cell: str, syntax: str, value: int) -> dict[str, float]:
    """Return the words that a state emits if its cell holds a value, with their probabilities."""
    if (cell, syntax) not in CONTENT_WORDS:
        by_syntax = {"stop": ".", "preposition": EARLY_PREPOSITIONS[cell], "late preposition": LATE_PREPOSITIONS[cell]}
        choices = by_syntax.get(syntax, ARTICLES).split()  # All other syntax states are articles.
        return dict.fromkeys(choices, 1 / len(choices))
    probabilities = {}
    groups = CONTENT_WORDS[cell, syntax]
    for k, group in enumerate(groups):
        likely = RELIABILITY[syntax]
        share = likely if k == value else (1 - likely) / (len(groups) - 1)
        synonyms = group.split()
        for word in synonyms:
            probabilities[word] = share / len(synonyms)
    return probabilities


@own_settings()
def sentences() -> Sentences:
    """Return the generator of Example 4.1.

    It has 80 words and 3 memory cells of 3 values. With 9 syntax states for each cell there are 27 hidden states.

    Example:
        >>> from hmmlib import memory_posterior, sentences
        >>> toy = sentences()
        >>> text = toy.encode("the cow in the meadow chewed on the clover")
        >>> toy.values[0][memory_posterior(toy.model, text, cell=0)[0].argmax()]
        'cow'
    """
    states = [(cell, syntax) for cell in CELLS for syntax in SYNTAX]
    n_states = len(states)
    n_values = len(VALUES[0])
    columns = {}
    vocabulary = set()
    for m in range(n_values):
        for h, (cell, syntax) in enumerate(states):
            columns[m, h] = _emitted(cell, syntax, m)
            vocabulary.update(columns[m, h])
    words = sorted(vocabulary)
    emission = torch.zeros(len(words), n_values, n_states, dtype=torch.float64)
    for (m, h), probabilities in columns.items():
        for word, probability in probabilities.items():
            emission[words.index(word), m, h] = probability
    transition = torch.zeros(n_states, n_states, dtype=torch.float64)
    for h, (cell, syntax) in enumerate(states):
        for next_syntax, next_cells, share in STEPS[syntax]:
            cell_shares = {cell: 1.0} if next_cells is STAY else next_cells
            for next_cell, part in cell_shares.items():
                transition[states.index((next_cell, next_syntax)), h] = share * part
    stops = torch.tensor([syntax == "stop" for _, syntax in states], dtype=torch.float64)
    initial = (1 - ASTRAY) * stops / stops.sum() + ASTRAY / n_states
    home = 1 + (HOME - 1) * torch.eye(n_values, dtype=torch.float64)
    memory = home[:, :, None].expand(-1, -1, n_values)  # The sentiment depends on neither subject nor location.
    model = MemoryHMM(transition, emission, initial, memory / memory.sum())
    return Sentences(model, words, CELLS, VALUES, SYNTAX)


# The farm

FARM_WORDS = ["dog", "hen", "cat", "barn", "yard", "a", "the"]
ANIMAL_NOUNS = [
    [0.6, 0.1, 0.0, 0.3, 0.0, 0.0, 0.0],  # of a dog
    [0.1, 0.6, 0.0, 0.3, 0.0, 0.0, 0.0],  # of a hen
    [0.0, 0.1, 0.6, 0.3, 0.0, 0.0, 0.0],  # of a cat
]
"""The distribution of FARM_WORDS for each value of the cell."""
ANIMAL_ARTICLES = [[0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5]] * 3
PLACE_NOUNS = [
    [0.0, 0.0, 0.0, 0.9, 0.1, 0.0, 0.0],  # inside
    [0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0],  # between
    [0.0, 0.0, 0.0, 0.1, 0.9, 0.0, 0.0],  # outside
]
PLACE_ARTICLES = [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]] * 3
DIFFICULT_CAT = [0.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.0]


@own_settings()
def farm(difficult_cats: bool = False) -> Sentences:
    """Return a model of seven words about an animal and a place.

    It has 2 memory cells of 3 values, and 2 syntax states for each cell. The chain is stationary. The animal's nouns
    are recoverable as Assumption 4.2 asks, although an animal's noun can be "barn" too.

    Args:
        difficult_cats: whether the noun and the article of a cat have the same distribution, on "cat" and "a". Then the
            nouns are recoverable only as Assumption D.5 asks, for a μ that gives cats no weight.

    Example:
        >>> from hmmlib import farm, memory_posterior
        >>> easy = farm()
        >>> memory_posterior(easy.model, easy.encode("the dog a dog"), cell=0).argmax().item()
        0
    """
    by_state = [ANIMAL_NOUNS, ANIMAL_ARTICLES, PLACE_NOUNS, PLACE_ARTICLES]
    emission = torch.tensor(by_state, dtype=torch.float64).permute(2, 1, 0).contiguous()
    if of_type("difficult_cats", difficult_cats, bool):
        difficult = torch.tensor(DIFFICULT_CAT, dtype=torch.float64)
        emission[:, 2, :2] = difficult[:, None]
    transition = [
        [0.5, 1.0, 0.0, 0.0],
        [0.25, 0.0, 0.5, 0.0],
        [0.0, 0.0, 0.0, 1.0],
        [0.25, 0.0, 0.5, 0.0],
    ]
    memory = [
        [0.2, 0.1, 0.1],
        [0.1, 0.1, 0.1],
        [0.0, 0.1, 0.2],
    ]
    model = MemoryHMM(transition, emission, [0.4, 0.2, 0.2, 0.2], memory)
    values = (("dog", "hen", "cat"), ("inside", "between", "outside"))
    return Sentences(model, list(FARM_WORDS), ("animal", "place"), values, ("noun", "article"))
