"""Example 4.1 and the farm: the chain is regular, what is recoverable is what should be, and texts go in and out."""

import dataclasses
from itertools import product

import pytest
import torch
from record import slow

from hmmlib.inference.messages import log_likelihood, memory_posterior
from hmmlib.models.sentences import CELLS, CONTENT_WORDS, SYNTAX, VALUES, farm, sentences
from hmmlib.theory.assumptions import assumption_3_2, assumption_4_2, assumption_4_4, assumption_d_5
from hmmlib.validation import MASK

SENTENCE = "the cow in the meadow chewed on the clover merrily ."
TOY = sentences()


def test_names_fit_the_model():
    model = TOY.model
    assert (len(TOY.cells), len(TOY.values[0]), len(TOY.syntax)) == (model.n_cells, model.n_memory, model.n_syntax)
    assert len(TOY.words) == len(set(TOY.words)) == model.n_tokens
    assert TOY.state("location", "noun") == len(SYNTAX) + 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        TOY.model = None


def test_the_chain_is_regular():
    assert assumption_3_2(TOY.model)
    assert (TOY.model.memory > 0).all()


@pytest.mark.parametrize(
    ("cell", "part"),
    [
        pytest.param(cell, part, marks=slow if (cell + part) % len(CELLS) else ())
        for cell, part in product(range(len(CELLS)), range(len(SYNTAX)))
    ],
)
def test_recoverable_are_the_words_that_depend_on_memory(cell, part):
    telling = (CELLS[cell], SYNTAX[part]) in CONTENT_WORDS
    assert bool(assumption_4_2(TOY.model, cell, [part])) == telling
    columns = TOY.model.emission[:, :, TOY.state(CELLS[cell], SYNTAX[part])]
    assert (columns == columns[:, :1]).all().item() != telling


def test_nouns_and_objects_are_recoverable_together():
    both = [SYNTAX.index("noun"), SYNTAX.index("object")]
    assert all(assumption_4_2(TOY.model, cell, both) for cell in range(len(CELLS)))
    assert not assumption_4_2(TOY.model, 0, [*both, SYNTAX.index("article")])


def test_the_sentence_of_the_example():
    tokens = TOY.encode("The cow in the meadow chewed on the clover merrily.")
    assert tokens.shape == (1, 11)
    assert TOY.decode(tokens) == [SENTENCE]
    assert log_likelihood(TOY.model, tokens) > -20
    for cell in range(3):
        belief = memory_posterior(TOY.model, tokens, cell)[0]
        assert belief.argmax() == 0
        assert belief[0] > 0.75
    scrambled = TOY.encode("cow the in pasture the rolled")
    assert log_likelihood(TOY.model, scrambled) == -torch.inf


def test_a_mask_goes_in_and_comes_out():
    tokens = TOY.encode("the [mask] rolled")
    assert tokens[0, 1] == MASK
    assert TOY.decode(tokens) == ["the [mask] rolled"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the cows rolled", "'cows' is not one of the model's 80 words; near matches: cow"),
        ("the pastur", "'pastur' .* near matches: pasture"),
        ("the cow, happily", "'cow,'"),
        ("the xyzzy", "'xyzzy' is not one of the model's 80 words; near matches: none"),
        ("  ", "the text has no words"),
    ],
)
def test_texts_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        TOY.encode(text)


def test_samples_have_a_memory_and_the_grammar():
    texts = TOY.sample(200, 40, 1)
    assert texts == TOY.sample(200, 40, 1) != TOY.sample(200, 40, 2)
    assert len(set(texts)) == 200
    opened = 0
    for text, memory in texts:
        assert len(text.split()) == 40
        assert all(name in names for name, names in zip(memory, VALUES, strict=True))
        opened += text.startswith(("the ", "a "))
        for sentence in text.split(" . ")[1:]:  # the first may begin in the middle
            assert sentence.split()[0] in {"the", "a", "."}
    assert opened > 190


def test_samples_say_their_memory():
    texts = TOY.sample(300, 60, 3)
    tokens = torch.cat([TOY.encode(text) for text, _ in texts])
    for cell, names in enumerate(VALUES):
        truth = torch.tensor([names.index(memory[cell]) for _, memory in texts])
        assert (memory_posterior(TOY.model, tokens, cell).argmax(1) == truth).double().mean() > 0.95


# The farm of appendix D


def test_the_farm_is_stationary_and_its_nouns_are_recoverable():
    easy = farm()
    assert (easy.model.n_cells, easy.model.n_memory, easy.model.n_syntax) == (2, 3, 2)
    assert len(easy.words) == easy.model.n_tokens == 7
    assert assumption_4_4(easy.model)
    assert assumption_4_2(easy.model, 0, [0])
    assert not assumption_4_2(easy.model, 0, [1])  # small words do not tell the animal
    assert not assumption_4_2(easy.model, 1, [0])  # two nouns for three places
    assert easy.state("place", "small word") == 3


def test_difficult_cats_matter_to_those_who_weigh_them():
    hard = farm(difficult_cats=True)
    assert assumption_4_4(hard.model)
    assert not assumption_4_2(hard.model, 0, [0])
    assert assumption_d_5(hard.model, [1.0, -1.0, 0.0], 0, [0])
    assert not assumption_d_5(hard.model, [1.0, -1.0, 0.5], 0, [0])
    changed = (hard.model.emission != farm().model.emission).any(0).nonzero().tolist()
    assert changed == [[2, 0], [2, 1]]
    belief = memory_posterior(hard.model, hard.encode("cat a a"))[0]
    assert belief.tolist() == [0, 0, 1]


def test_only_an_animals_small_word_is_a():
    tokens = farm().encode("the a [mask]")
    assert memory_posterior(farm().model, tokens, 1).shape == (1, 3)
    assert log_likelihood(farm().model, farm().encode("a yard")) == -torch.inf  # after it comes the animal's noun
