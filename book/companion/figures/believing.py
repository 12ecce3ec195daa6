"""A figure that a reader can move: what is believed of a memory model's cells and state after each word of a text."""

from __future__ import annotations

from collections.abc import Sequence

from companion.figures.interactive import Moving, _memories, _memory_chain, _tokens
from hmmlib.models.hmm import MemoryHMM
from hmmlib.validation import different_words, integer_between, length_of

MOST_WORDS = 24
"""Words of a text: with more of them the reader's own are out of sight on a phone."""

HIDDEN = "[mask]"
"""The word for MASK."""


def belief_word_by_word(
    model: MemoryHMM,
    words: Sequence[str],
    cells: Sequence[str],
    values: Sequence[Sequence[str]],
    syntax: Sequence[str],
    text: str,
    read: int = 0,
    examples: Sequence[str] = (),
    name: str = "believing",
) -> Moving:
    """A text that the reader writes or steps through: posteriors of the memory cells, and of the state, after each word.

    Args:
        words: the tokens' names, in lower case; a full stop may be one. cells, values, syntax: names of the cells, of each
            cell's values, and of the syntax states.
        text: the first text, of which `read` words have been read. examples: further texts, impossible ones too.

    ValueError for arguments that do not fit the model, or an unknown word.
    """
    if not isinstance(model, MemoryHMM):
        raise ValueError(f"model must be a MemoryHMM, not {type(model).__name__}")
    words = different_words("words", words, model.n_tokens)
    plain = [word for word in words if word != "."]
    if any(word != word.lower() or word.split() != [word] or set(word) & set(",.;[]") for word in plain):
        raise ValueError(f"words must be in lower case, without spaces and punctuation, or a full stop, not {words}")
    cells = different_words("cells", cells, model.n_cells)
    syntax = different_words("syntax", syntax, model.n_syntax)
    if length_of("values", values) != model.n_cells:
        raise ValueError(f"values must be names for each of {model.n_cells} cells, not {values!r}")
    for example in (text, *examples):
        _tokens(example, [*words, HIDDEN], MOST_WORDS)
    data = {
        "model": _memory_chain(model),
        "held": _memories(model),
        "cells": [
            {"name": cell, "values": different_words("each of values", own, model.n_memory)}
            for cell, own in zip(cells, values, strict=True)
        ],
        "states": [f"{cell}, {part}" for cell in cells for part in syntax],
        "words": words,
        "first": " ".join(text.split()),
        "read": integer_between("read", read, 0, len(text.split())),
        "examples": [" ".join(example.split()) for example in examples],
        "most": MOST_WORDS,
    }
    still = "What is believed of each memory cell and of the state after each word of a text."
    return Moving("believing", name, data, still, ("writing",))
