"""Example 4.1 and the farm: the chain is regular, what is recoverable is what should be, and texts go in and out."""

import pytest
import torch

from hmmlib.inference.messages import log_likelihood, memory_posterior
from hmmlib.models.sentences import CELLS, CONTENT_WORDS, SYNTAX, VALUES, farm, sentences
from hmmlib.theory.assumptions import assumption_3_2, assumption_4_2, assumption_4_4, assumption_d_5
from hmmlib.validation import MASK

TOY, PARTS = sentences(), {name: h for h, name in enumerate(SYNTAX)}


def test_names_fit_the_model_whose_chain_is_regular_and_recoverable_are_the_words_that_depend_on_memory():
    model = TOY.model
    assert (len(TOY.cells), len(TOY.values[0]), len(TOY.syntax)) == (model.n_cells, model.n_memory, model.n_syntax)
    assert len(TOY.words) == len(set(TOY.words)) == model.n_tokens
    assert assumption_3_2(model)
    assert (model.memory > 0).all()
    both = [PARTS["noun"], PARTS["object"]]
    for cell, name in enumerate(CELLS):
        for part, state in PARTS.items():
            columns, depends = model.emission[:, :, TOY.state(name, part)], (name, part) in CONTENT_WORDS
            assert (columns == columns[:, :1]).all().item() != depends
            assert bool(assumption_4_2(model, cell, [state])) == depends
        assert assumption_4_2(model, cell, both)
    assert not assumption_4_2(model, 0, [*both, PARTS["article"]])


def test_the_sentence_of_the_example_goes_in_and_out_and_says_its_memory():
    tokens = TOY.encode("The cow in the meadow chewed on the clover merrily.")
    assert tokens.shape == (1, 11)
    assert TOY.decode(tokens) == ["the cow in the meadow chewed on the clover merrily ."]
    assert log_likelihood(TOY.model, tokens) > -20
    assert log_likelihood(TOY.model, TOY.encode("cow the in pasture the rolled")) == -torch.inf
    assert all(memory_posterior(TOY.model, tokens, cell)[0, 0] > 0.75 for cell in range(3))
    hidden = TOY.encode("the [mask] rolled")
    assert hidden[0, 1] == MASK
    assert TOY.decode(hidden) == ["the [mask] rolled"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the cows rolled", "'cows' is not one of the model's 80 words; near matches: cow"),
        ("the xyzzy", "'xyzzy' is not one of the model's 80 words; near matches: none"),
        ("  ", "the text has no words"),
    ],
)
def test_texts_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        TOY.encode(text)


def test_samples_keep_to_the_grammar_and_say_their_memory():
    texts = TOY.sample(200, 60, 1)
    assert texts == TOY.sample(200, 60, 1) != TOY.sample(200, 60, 2)
    assert len(set(texts)) == 200
    for text, _ in texts:
        assert len(text.split()) == 60
        begins = {sentence.split()[0] for sentence in text.split(" . ")[1:]}  # the first may begin in the middle
        assert begins <= {"the", "a", "."}
    tokens = torch.cat([TOY.encode(text) for text, _ in texts])
    for cell, names in enumerate(VALUES):
        truth = torch.tensor([names.index(memory[cell]) for _, memory in texts])
        assert (memory_posterior(TOY.model, tokens, cell).argmax(1) == truth).double().mean() > 0.95


def test_the_farm_is_stationary_and_its_nouns_are_recoverable_and_difficult_cats_matter_to_those_who_weigh_them():
    easy, hard = farm(), farm(difficult_cats=True)
    assert (easy.model.n_cells, easy.model.n_memory, easy.model.n_syntax, len(easy.words)) == (2, 3, 2, 7)
    assert easy.state("place", "article") == 3
    assert log_likelihood(easy.model, easy.encode("a yard")) == -torch.inf  # after it comes the animal's noun
    assert assumption_4_4(easy.model)
    assert assumption_4_4(hard.model)
    assert assumption_4_2(easy.model, 0, [0])
    for model, cell, part in ((easy.model, 0, 1), (easy.model, 1, 0), (hard.model, 0, 0)):
        # nor do articles depend on the animal, or two nouns distinguish three places
        assert not assumption_4_2(model, cell, [part])
    assert assumption_d_5(hard.model, [1.0, -1.0, 0.0], 0, [0])
    assert not assumption_d_5(hard.model, [1.0, -1.0, 0.5], 0, [0])
    assert memory_posterior(hard.model, hard.encode("cat a a")).tolist() == [[0, 0, 1]]
