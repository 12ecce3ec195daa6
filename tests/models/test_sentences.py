"""Example 4.1 and the farm: the chain is regular, what is recoverable is what should be, and texts go in and out."""

import pytest
import torch

from hmmlib.inference.messages import log_likelihood, memory_posterior
from hmmlib.models.sentences import CELLS, CONTENT_WORDS, SYNTAX, VALUES, farm, sentences
from hmmlib.theory.assumptions import assumption_3_2, assumption_4_2, assumption_4_4, assumption_d_5
from hmmlib.validation import MASK

TOY = sentences()
NOUN = SYNTAX.index("noun")
OBJECT = SYNTAX.index("object")
ARTICLE = SYNTAX.index("article")


def test_names_fit_the_model_and_its_chain_is_regular():
    model = TOY.model
    assert len(TOY.cells) == model.n_cells
    assert len(TOY.values[0]) == model.n_memory
    assert len(TOY.syntax) == model.n_syntax
    assert len(TOY.words) == len(set(TOY.words)) == model.n_tokens
    assert assumption_3_2(model)
    assert (model.memory > 0).all()


@pytest.mark.parametrize("cell", CELLS)
def test_recoverable_are_the_states_whose_words_depend_on_memory(cell):
    j = CELLS.index(cell)
    for s, syntax in enumerate(SYNTAX):
        columns = TOY.model.emission[:, :, TOY.state(cell, syntax)]
        depends_on_memory = (cell, syntax) in CONTENT_WORDS
        assert (columns != columns[:, :1]).any().item() == depends_on_memory
        assert bool(assumption_4_2(TOY.model, j, [s])) == depends_on_memory
    assert assumption_4_2(TOY.model, j, [NOUN, OBJECT])
    assert not assumption_4_2(TOY.model, j, [NOUN, OBJECT, ARTICLE])


def test_the_sentence_of_the_example_goes_in_and_out_and_says_its_memory():
    tokens = TOY.encode("The cow in the meadow chewed on the clover merrily.")
    assert tokens.shape == (1, 11)
    assert TOY.decode(tokens) == ["the cow in the meadow chewed on the clover merrily ."]
    assert log_likelihood(TOY.model, tokens) > -20
    assert log_likelihood(TOY.model, TOY.encode("cow the in pasture the rolled")) == -torch.inf
    for cell in range(3):
        assert memory_posterior(TOY.model, tokens, cell)[0, 0] > 0.75


def test_a_hidden_word_goes_in_and_out():
    tokens = TOY.encode("the [mask] rolled")
    assert tokens[0, 1] == MASK
    assert TOY.decode(tokens) == ["the [mask] rolled"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the cows rolled", "text must use the model's words, not 'cows'. They are ., a, angrily, ashore"),
        ("  ", "text must have at least one word"),
    ],
)
def test_texts_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        TOY.encode(text)


def test_samples_keep_to_the_grammar_and_say_their_memory():
    texts = TOY.sample(200, 60, 1)
    assert texts == TOY.sample(200, 60, 1)
    assert texts != TOY.sample(200, 60, 2)
    assert len(set(texts)) == 200
    for text, _ in texts:
        assert len(text.split()) == 60
        for sentence in text.split(" . ")[1:]:  # The first may begin in the middle.
            assert sentence.split()[0] in ("the", "a", ".")
    tokens = torch.cat([TOY.encode(text) for text, _ in texts])
    for cell, names in enumerate(VALUES):
        truth = torch.tensor([names.index(memory[cell]) for _, memory in texts])
        guesses = memory_posterior(TOY.model, tokens, cell).argmax(1)
        assert (guesses == truth).double().mean() > 0.95


def test_the_farm_is_stationary_and_only_the_nouns_of_its_animals_are_recoverable():
    easy = farm()
    assert repr(easy.model) == "MemoryHMM(n_cells=2, n_memory=3, n_states=4, n_tokens=7)"
    assert easy.state("place", "article") == 3
    assert assumption_4_4(easy.model)
    assert assumption_4_2(easy.model, 0, [0])
    assert not assumption_4_2(easy.model, 0, [1]), "articles do not depend on the animal"
    assert not assumption_4_2(easy.model, 1, [0]), "two nouns do not tell three places apart"
    after_the_article_comes_the_animal = easy.encode("a yard")
    assert log_likelihood(easy.model, after_the_article_comes_the_animal) == -torch.inf


def test_difficult_cats_matter_to_tasks_that_weigh_them():
    hard = farm(difficult_cats=True)
    assert assumption_4_4(hard.model)
    assert not assumption_4_2(hard.model, 0, [0])
    assert assumption_d_5(hard.model, [1.0, -1.0, 0.0], 0, [0])
    assert not assumption_d_5(hard.model, [1.0, -1.0, 0.5], 0, [0])
    assert memory_posterior(hard.model, hard.encode("cat a a")).tolist() == [[0, 0, 1]]
