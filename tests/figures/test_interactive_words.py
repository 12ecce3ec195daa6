"""The moving figures with a memory and a text that the reader writes: their JavaScript, run under Node, against
hmmlib."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from companion.figures import interactive
from moving_figures import ASK, WORDS, close, draws, language, random_attention, random_memory_hmm

from hmmlib.inference.messages import (
    latent_given_others,
    log_likelihood,
    masked_token_probs,
    memory_posterior,
    posterior,
)
from hmmlib.models.sentences import sentences
from hmmlib.theory.theorems import concentrated, ground_truth
from hmmlib.validation import MASK


def text(model, length: int, seed: int) -> list[int]:
    """Any tokens: in a sparse model many of these texts are impossible."""
    return torch.randint(model.n_tokens, (length,), generator=draws(seed)).tolist()


# Attention


def attention_cases():
    model, head = language()
    mu = torch.tensor([1.0, -1.0], dtype=torch.float64)
    texts = ["the horse a cow the field cow a horse", "field barn field the horse", "a a cow", "the the a", "cow"]
    yield model, head, mu, 0, [1], WORDS, [[WORDS.index(word) for word in text.split()] for text in texts]
    for seed in range(9):
        model, head = random_attention(seed)
        mu = torch.randn(model.n_memory, generator=draws(seed), dtype=torch.float64)
        texts = [text(model, 1 + k, 10 * seed + k) for k in range(8)]
        yield model, head, mu, seed % model.n_cells, [seed % 2], list("pqrs"), texts


def test_attention_is_that_of_hmmlib(js):
    impossible, possible, cases, calls = 0, 0, list(attention_cases()), []
    for model, head, mu, cell, syntax, words, texts in cases:
        values = [f"value {m}" for m in range(model.n_memory)]
        figure = interactive.attention_over_words(model, head, mu, words, words[0], values, syntax, ASK, cell)
        for tokens in texts:
            calls.append(["attention", "compute", [figure.data, tokens]])
            calls.append(["attention", "taus", [figure.data["model"], tokens]])
    results = iter(js(calls))
    for model, head, mu, cell, syntax, _, texts in cases:
        for tokens in texts:
            result, tau = next(results), next(results)
            latent = latent_given_others(model, [tokens])[0]
            close(np.asarray(tau[1:]).sum((1, 2)), latent.sum(1))
            prefixes = [log_likelihood(model, [tokens[:k]]).item() for k in range(1, len(tokens) + 1)]
            if prefixes[-1] == -np.inf:
                assert result == {"impossible": prefixes.index(-np.inf) + 1}
                impossible += 1
                continue
            possible += 1
            g, embedded = masked_token_probs(model, [tokens]), model.embed([tokens])
            scale = 1 + head.key.abs().max().item() + head.value.abs().max().item() ** 2
            close(result["posterior"], memory_posterior(model, [tokens], cell)[0])
            close(result["target"], ground_truth(model, mu, [tokens], cell)[0])
            close(result["scores"], head.scores(g)[0], 1e-12 * scale)
            close(result["values"], head.values(g, embedded)[0], 1e-12 * scale)
            close(result["output"], head(g, embedded)[0], 1e-12 * scale)
            assert result["attended"] == head.attended(g)[0].tolist()
            assert result["sure"] == concentrated(model, [tokens], cell, syntax)[0].tolist()
    assert impossible >= 8
    assert possible >= 20


@pytest.mark.parametrize(
    ("words", "written", "found"),
    [
        (WORDS, "zebra cow", "Not in this language: zebra. It has 6 words: a, the, cow, horse, barn and field."),
        (WORDS, "cow gnu, zebra", "gnu and zebra"),
        (WORDS, "the ho", "can become horse"),
        (WORDS, "the ho ", "Not in this language: ho"),
        (WORDS, "  ", "Write a text"),
        (WORDS, "cow " * 11, "At most 10 words fit here, and these are 11."),
        (sentences().words, "zebra", "It has 80 words, such as "),
        (WORDS, " The cow,  the BARN. ", [1, 2, 1, 4]),
        ([".", *WORDS], "The cow.", [2, 3, 0]),
        ([".", *WORDS], "the . COW,[mask]", [2, 0, 3, -1]),
    ],
)
def test_a_text_becomes_tokens_or_a_clear_message(words, written, found, js):
    (result,) = js([["writing", "parse", [words, written, 10, "[mask]"]]])
    if isinstance(found, list):
        assert result == {"tokens": found}
    else:
        assert found in result["problem"]
        assert len(result["problem"]) < 140
        assert "tokens" not in result


def test_words_can_be_hidden_only_where_there_is_a_word_for_it(js):
    (found,) = js([["writing", "parse", [WORDS, "a [mask]", 10]]])
    assert "[mask]" in found["problem"]


def test_ties_and_zeros_are_those_up_to_rounding(js):
    ties = js([["attention", "argmax", [[1, 1 - 1e-15, 0.5, 1 - 1e-9], condition]] for condition in (1, 1e5)])
    assert ties == [[True, True, False, False], [True, True, False, True]]
    one = [1.0, 1, 1]
    third = {"value": [[0.1, 0, 0], [0, 0.2, 0], [0, 0, -0.3]], "output": one, "condition": 1}
    calls = [["kit", "score", [[0.1, 0.2, -0.3], one]], ["attention", "valueOf", [third, one, one]]]
    assert 0.1 + 0.2 - 0.3 > 0
    assert js(calls) == [0, 0]
    assert js([["kit", "score", [[0.1, 0.2, -0.3 + 1e-14], one]]])[0] > 0


# Softmax


@pytest.mark.parametrize("size", [1.0, 3.0])
def test_softmax_goes_to_the_shared_maximum(size, js):
    model, head = language()
    head = replace(head, query=size * head.query)
    figure = interactive.softmax_and_its_limit(model, head, WORDS, "the horse a cow the field cow a horse")
    tokens = [[WORDS.index(word) for word in figure.data["words"]]]
    g, embedded, unit = masked_token_probs(model, tokens), model.embed(tokens), head.query.norm().item()
    norms = [0.1, 1.0, 7.0, 300.0, 1e4, 1e9]
    found = js([["softmax", "compute", [figure.data, norm]] for norm in norms])
    for norm, result in zip(norms[:-1], found, strict=False):
        close(result["weights"], (norm / unit * head.scores(g)).softmax(1)[0])
        close(result["output"], head.soft(g, embedded, norm / unit)[0])
        close(result["exact"], head(g, embedded)[0])
    assert sum(figure.data["attended"]) == 2
    close(found[4]["weights"], np.array(figure.data["attended"]) / 2)
    assert max(found[0]["weights"]) < 0.13
    close(js([["softmax", "softmax", [[1.0, 1.0, 0.5], 1e300]]])[0], [0.5, 0.5, 0])  # no overflow


# Belief word by word


def random_figure(seed):
    """A random model with up to three cells, many of whose texts are impossible, and its figure."""
    model = random_memory_hmm(seed)
    values = [[f"v{j}{m}" for m in range(model.n_memory)] for j in range(model.n_cells)]
    cells = [f"c{j}" for j in range(model.n_cells)]
    return model, interactive.belief_word_by_word(model, list("pqrs"), cells, values, "xy", "p")


def texts(seed, n_tokens=4):
    """Random texts of up to six words, in which some words are hidden."""
    tokens = torch.randint(MASK, n_tokens, (8, 6), generator=draws(seed))
    return [row[: 1 + k % 6].tolist() for k, row in enumerate(tokens)]


def test_beliefs_are_those_of_hmmlib(js):
    cases = [(*random_figure(seed), tokens) for seed in range(9) for tokens in texts(seed)]
    found = js([["beliefs", "compute", [figure.data, tokens]] for _, figure, tokens in cases])
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


def test_what_moves_is_what_two_digits_show(js):
    cells = [{"name": "a"}, {"name": "b"}]
    one, other = {"cells": [[0.5, 0.5], [0.2, 0.8]]}, {"cells": [[0.503, 0.497], [0.21, 0.79]]}
    assert js([["beliefs", "moved", [cells, one, other]], ["beliefs", "moved", [cells, one, one]]]) == [["b"], []]


def test_the_likeliest_come_first_and_the_impossible_not_at_all(js):
    shares = [0.1, 0.0, 0.3, 0.3 + 1e-12, 0.2]
    assert js([["beliefs", "largest", [shares, most]] for most in (2, 9)]) == [[2, 3], [2, 3, 4, 0]]


def test_what_the_page_says_of_its_sentence(js):
    """Articles and prepositions change nothing of the memory; nouns, verb, object and adverb do."""
    toy, text = sentences(), "the cow in the meadow chewed on the clover merrily ."
    figure = interactive.belief_word_by_word(toy.model, toy.words, toy.cells, toy.values, toy.syntax, text)
    (found,) = js([["beliefs", "compute", [figure.data, toy.encode(text)[0].tolist()]]])
    steps = zip(found["beliefs"][1:], found["beliefs"][:-1], strict=True)
    moved = js([["beliefs", "moved", [figure.data["cells"], *step]] for step in steps])
    changed = dict(zip(text.split(), moved, strict=True))  # the two “the” are alike
    both = ["subject", "location"]
    assert changed == {
        "cow": both, "meadow": both, "chewed": both, "clover": both, "merrily": ["sentiment"],
        "the": [], "in": [], "on": [], ".": [],
    }  # fmt: skip
    assert max(found["beliefs"][5]["state"]) == pytest.approx(1)
    assert figure.data["states"][np.argmax(found["beliefs"][5]["state"])] == "location, noun"
