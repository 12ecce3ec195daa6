"""Belief word by word: its script against hmmlib, what is refused, and what a reader sees."""

import re

import numpy as np
import pytest
import torch
from browser import ADVICE, chromium, executable
from companion.figures.believing import HIDDEN, MOST_WORDS, belief_word_by_word
from moving_figures import CELLS, SYNTAX, VALUES, WORDS, believing_figure, close, draws, language

from hmmlib.inference.messages import log_likelihood, masked_token_probs, memory_posterior, posterior
from hmmlib.models import appendix_e, families
from hmmlib.models.sentences import sentences
from hmmlib.validation import MASK


def random_figure(seed):
    """A random model with up to three cells, many of whose texts are impossible, and its figure."""
    n_cells, n_memory = 1 + seed % 3, 2 + seed % 2
    model = families.sparse_memory_hmm(n_memory, 2 * n_cells, 4, seed, 0.5, n_cells)
    values = [[f"v{j}{m}" for m in range(n_memory)] for j in range(n_cells)]
    cells = [f"c{j}" for j in range(n_cells)]
    return model, belief_word_by_word(model, list("pqrs"), cells, values, "xy", "p")


def texts(seed, n_tokens=4):
    """Random texts of up to six words, in which some words are hidden."""
    tokens = torch.randint(MASK, n_tokens, (8, 6), generator=draws(seed))
    return [row[: 1 + k % 6].tolist() for k, row in enumerate(tokens)]


def test_beliefs_are_those_of_hmmlib(js):
    cases = [(*random_figure(seed), tokens) for seed in range(9) for tokens in texts(seed)]
    found = js([["believing", "look", [figure.data, tokens]] for _, figure, tokens in cases])
    possible, impossible = 0, 0
    for (model, _, tokens), result in zip(cases, found, strict=True):
        heads = [tokens[:k] for k in range(len(tokens) + 1)]
        occurs = [not head or log_likelihood(model, [head]).item() > -np.inf for head in heads]
        assert result["impossible"] == (0 if all(occurs) else occurs.index(False))
        assert len(result["beliefs"]) == len(result["next"]) == sum(occurs)
        impossible += not all(occurs)
        for head, belief, ahead in zip(heads, result["beliefs"], result["next"], strict=False):
            possible += 1
            behind = torch.tensor([[*head, MASK]])  # a hidden word says nothing
            for j, cell in enumerate(belief["cells"]):
                close(cell, memory_posterior(model, behind, j)[0])
            close(belief["state"], posterior(model, behind, at=len(head))[0])
            close(ahead, masked_token_probs(model, behind)[0, -1])
    assert possible >= 150
    assert impossible >= 10


def test_a_damaged_model_is_seen(js):
    model, figure = random_figure(1)
    tokens = next(t for k in range(99) for t in texts(k) if len(t) > 2 and log_likelihood(model, [t]) > -torch.inf)
    figure.data["model"]["emission"] = [row[::-1] for row in figure.data["model"]["emission"]]
    (found,) = js([["believing", "look", [figure.data, tokens]]])
    behind = torch.tensor([[*tokens, MASK]])
    assert len(found["beliefs"]) <= len(tokens) or any(
        (torch.tensor(found["beliefs"][-1]["cells"][j]) - memory_posterior(model, behind, j)[0]).abs().max() > 1e-3
        for j in range(model.n_cells)
    )


def test_what_moves_is_what_two_digits_show(js):
    cells = [{"name": "a"}, {"name": "b"}]
    one, other = {"cells": [[0.5, 0.5], [0.2, 0.8]]}, {"cells": [[0.503, 0.497], [0.21, 0.79]]}
    assert js([["believing", "moved", [cells, one, other]], ["believing", "moved", [cells, one, one]]]) == [["b"], []]


def test_the_likeliest_come_first_and_the_impossible_not_at_all(js):
    shares = [0.1, 0.0, 0.3, 0.3 + 1e-12, 0.2]
    assert js([["believing", "largest", [shares, most]] for most in (2, 9)]) == [[2, 3], [2, 3, 4, 0]]


@pytest.mark.parametrize(
    ("written", "tokens"),
    [("The cow.", [2, 3, 0]), ("the . COW,cow", [2, 0, 3, 3]), (f"a {HIDDEN} cow", [1, -1, 3]), ("a.", [1, 0])],
)
def test_a_full_stop_is_a_word_where_there_is_one(written, tokens, js):
    assert js([["writing", "parse", [[".", "a", "the", "cow"], written, 9, HIDDEN]]]) == [{"tokens": tokens}]
    (without,) = js([["writing", "parse", [["a", "the", "cow"], f"a {HIDDEN}", 9]]])
    assert HIDDEN in without["problem"]


def test_many_words_are_not_all_listed(js):
    words = sentences().words
    (found,) = js([["writing", "parse", [words, "zebra", 9, HIDDEN]]])
    assert "It has 80 words, such as " in found["problem"]
    assert len(found["problem"]) < 140


def test_what_the_page_says_of_its_sentence(js):
    """Articles and prepositions change nothing of the memory; nouns, verb, object and adverb do."""
    toy, text = sentences(), "the cow in the meadow chewed on the clover merrily ."
    figure = belief_word_by_word(toy.model, toy.words, toy.cells, toy.values, toy.syntax, text)
    (found,) = js([["believing", "look", [figure.data, toy.encode(text)[0].tolist()]]])
    steps = zip(found["beliefs"][1:], found["beliefs"][:-1], strict=True)
    moved = js([["believing", "moved", [figure.data["cells"], *step]] for step in steps])
    telling = dict(zip(text.split(), moved, strict=True))  # the two “the” are alike
    both = ["subject", "location"]
    assert telling == {
        "cow": both, "meadow": both, "chewed": both, "clover": both, "merrily": ["sentiment"],
        "the": [], "in": [], "on": [], ".": [],
    }  # fmt: skip
    assert max(found["beliefs"][5]["state"]) == pytest.approx(1)
    assert figure.data["states"][np.argmax(found["beliefs"][5]["state"])] == "location, noun"


# What is refused

MODEL = language()[0]
REFUSED = {
    "must be a MemoryHMM, not HMM": dict(model=appendix_e.random_hmm(3, 4)),
    "6 different words": dict(words=WORDS[:5]),
    "lower case": dict(words=["A", *WORDS[1:]]),
    "without spaces and punctuation": dict(words=["[mask]", *WORDS[1:]]),
    "cells must be 2 different words": dict(cells=["subject"]),
    "syntax must be 2 different words": dict(syntax=["noun", "noun"]),
    "names for each of 2 cells": dict(values=VALUES[:1]),
    "each of values must be 2 different words": dict(values=[["cow"], ["barn", "field"]]),
    "['zebra'] are not among": dict(text="zebra"),
    "['gnu']": dict(examples=["a gnu"]),
    f"1 to {MOST_WORDS} words, not {MOST_WORDS + 1}": dict(text="a " * (MOST_WORDS + 1)),
    "from 0 to 2, not 3": dict(read=3),
    "name must be letters": dict(name="a b"),
}


@pytest.mark.parametrize("says", REFUSED)
def test_bad_arguments_are_named(says):
    good = dict(model=MODEL, words=WORDS, cells=CELLS, values=VALUES, syntax=SYNTAX, text="a cow")
    with pytest.raises(ValueError, match=re.escape(says)):
        belief_word_by_word(**{**good, **REFUSED[says]})
    belief_word_by_word(**{**good, "words": [".", *WORDS[1:]], "text": f". {HIDDEN}"})


# In a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if executable() is None:
        pytest.skip(ADVICE)
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(f'<!doctype html><meta charset="utf8"><title>Belief</title>{believing_figure()._repr_html_()}')
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.goto(file.as_uri())
        yield page


def test_a_reader_steps_and_writes(page):
    figure = page.locator(".moving")
    says, slider, field = (figure.locator(part) for part in (".says", "input[type=range]", "input[type=text]"))
    assert figure.locator("b").first.inner_text() == "a"
    assert "“a” changes nothing" in says.inner_text()
    figure.get_by_role("button", name="Next word").click()
    assert says.inner_text() == "“cow” changes what is believed of the subject and place."
    slider.focus()
    page.keyboard.press("Home")
    assert "No word has been read yet" in says.inner_text()
    page.keyboard.press("End")
    assert slider.input_value() == slider.get_attribute("max") == "4"
    figure.get_by_role("button", name="Back").click()
    offers = figure.locator(".ahead button:visible")
    assert sorted(offers.all_inner_texts()) == ["barn", "cow", "field", "horse"]
    figure.get_by_role("button", name="Go on with field").click()
    assert field.input_value() == "a cow the field"
    assert "Belief about each memory cell" in figure.locator("svg[role=img]").first.get_attribute("aria-label")
    field.fill("a cow a a")
    assert says.inner_text().startswith("This text has probability zero: “a” cannot follow “a cow a”.")
    assert slider.get_attribute("max") == "3"
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("a zebra")
    assert "Not in this language: zebra" in says.inner_text()
    assert offers.count() == 0
    assert figure.locator(".views.stale[aria-hidden=true]").count() == 1
    field.fill("")
    assert offers.count() > 0
    figure.get_by_role("button", name=re.compile("^Try: the")).click()
    assert "“the” changes" in says.inner_text()
    figure.get_by_role("button", name="Reset").click()
    assert field.input_value() == "a cow the barn"
    assert slider.input_value() == "1"
