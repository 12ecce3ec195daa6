"""What the page on texts with a memory says, from its own models and from sums over every path."""

import itertools

import pytest
import torch
from lessons import run

from hmmbook.evidence.random_models import memory_sums
from hmmlib import (
    MASK,
    assumption_3_1,
    assumption_3_2,
    assumption_4_2,
    ground_truth,
    latent_given_others,
    masked_token_probs,
    memory_posterior,
    posterior,
    sentences,
)

SENTENCE = "the cow in the meadow chewed on the clover merrily ."
ROUNDING = 1e-12
VARIED = ["noun", "verb", "object", "adverb"]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("4-memory-hmm", instances=5)


@pytest.fixture(scope="module")
def toy():
    return sentences()


@pytest.fixture(scope="module")
def beliefs(toy) -> list[torch.Tensor]:
    """For each cell, the belief at first and after each word of the sentence, (words + 1, 3)."""
    tokens = toy.encode(SENTENCE)
    rows = []
    for count in range(tokens.shape[1] + 1):
        read = torch.where(torch.arange(tokens.shape[1]) < count, tokens, MASK)
        rows.append([memory_posterior(toy.model, read, cell)[0] for cell in range(3)])
    return [torch.stack([row[cell] for row in rows]) for cell in range(3)]


@pytest.fixture(scope="module")
def columns_that_vary(toy) -> list[list[str]]:
    """For each cell, the syntax states whose columns of W are not the same for every memory value."""
    emission = toy.model.emission
    vary = (emission != emission[:, :1]).any(1).any(0).reshape(3, 9)
    return [[name for name, varies in zip(toy.syntax, row, strict=True) if varies] for row in vary.tolist()]


def words_that_move(belief: torch.Tensor) -> list[str]:
    """The words after which a belief, (words + 1, 3), is another one."""
    changes = belief.diff(dim=0).abs().amax(1)
    return [word for word, change in zip(SENTENCE.split(), changes, strict=True) if change > ROUNDING]


# The sentence


def test_a_text_is_about_a_cow_a_sailor_or_a_child(toy):
    assert toy.cells == ("subject", "location", "sentiment")
    assert toy.values[0] == ("cow", "sailor", "child")


def test_cow_meadow_chewed_and_clover_move_subject_and_location(beliefs):
    expected = ["cow", "meadow", "chewed", "clover"]

    assert words_that_move(beliefs[0]) == expected
    assert words_that_move(beliefs[1]) == expected


def test_merrily_alone_moves_the_sentiment(beliefs):
    assert words_that_move(beliefs[2]) == ["merrily"]


def test_cow_raises_the_belief_in_a_cow_and_in_a_pasture_by_the_printed_amounts(beliefs):
    cow = beliefs[0][:, 0]
    pasture = beliefs[1][:, 0]

    assert [f"{probability:.2f}" for probability in cow[1:3]] == ["0.33", "0.80"]
    assert [f"{probability:.2f}" for probability in pasture[1:3]] == ["0.33", "0.52"]


def test_cows_are_likelier_in_pastures(toy):
    subject_and_location = toy.model.memory.sum(2)
    given_a_cow = subject_and_location[0, 0] / subject_and_location[0].sum()
    prior = subject_and_location[:, 0].sum()

    assert given_a_cow > 1.5 * prior


def test_the_page_draws_these_beliefs(page, beliefs):
    for cell, expected in zip(page["beliefs"].values(), beliefs, strict=True):
        assert torch.allclose(cell[1], expected, atol=ROUNDING)


# The model


def test_a_text_without_evidence_about_the_sentiment_has_label_0_and_the_score_of_the_prior(toy):
    mu = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    tokens = toy.encode("the cow in the meadow chewed on the clover .")

    score = ground_truth(toy.model, mu, tokens, toy.cells.index("sentiment")).item()

    assert toy.model.memory.sum((0, 1)).tolist() == pytest.approx([1 / 3] * 3)
    assert score == pytest.approx(-1 / 3)


def test_the_chain_on_memory_and_state_has_copies_of_the_transition_matrix_along_its_diagonal(page):
    transition = page["tiny"].transition

    assert transition.shape == (3, 3)
    assert torch.equal(page["lifted"].transition, torch.block_diag(transition, transition, transition))


def test_memory_and_state_together_are_a_hidden_markov_model_with_the_same_predictions(toy):
    tokens = toy.encode(SENTENCE)
    flat = toy.model.flatten()

    assert flat.n_states == 3**3 * toy.model.n_states
    assert torch.allclose(masked_token_probs(flat, tokens), masked_token_probs(toy.model, tokens), atol=ROUNDING)


def test_that_model_breaks_assumptions_3_1_and_3_2_though_the_chain_alone_is_regular(toy):
    flat = toy.model.flatten()

    assert assumption_3_2(toy.model)
    assert not assumption_3_2(flat).irreducible
    assert not assumption_3_1(flat)


def test_the_columns_of_w_are_dependent_and_those_of_an_article_are_equal(toy, columns_that_vary):
    columns = toy.model.emission.flatten(1)

    assert torch.linalg.matrix_rank(columns) < columns.shape[1]
    assert columns_that_vary == [VARIED] * 3


def test_the_prediction_is_a_mixture_of_columns_of_w(toy):
    tokens = toy.encode(SENTENCE)
    belief = latent_given_others(toy.model, tokens)

    mixture = belief @ toy.model.emission.flatten(1).T

    assert torch.allclose(mixture, masked_token_probs(toy.model, tokens), atol=ROUNDING)


def test_each_cell_has_states_that_assumption_4_2_asks_for(toy):
    for cell in range(3):
        alone = [name for part, name in enumerate(toy.syntax) if assumption_4_2(toy.model, cell, [part])]
        together = [toy.syntax.index(name) for name in VARIED]

        assert alone == VARIED
        assert assumption_4_2(toy.model, cell, together)


# How evidence accumulates


@pytest.fixture(scope="module")
def shares(page) -> torch.Tensor:
    """The remaining entropy after 1, 2, 4, … words, as a share of the prior's: rows are the cells and H_0."""
    return torch.tensor([*page["of_cells"], page["of_first_state"]])


def test_the_page_measures_entropies_of_exact_posteriors(page, shares):
    model = page["stationary"]
    texts = page["texts"][:, :4]
    measured = [memory_posterior(model, texts, 1), posterior(model, texts)]
    nothing = torch.tensor([[MASK]])
    prior = [memory_posterior(model, nothing, 1), posterior(model, nothing)]

    for row, after, before in zip((1, 3), measured, prior, strict=True):
        share = -torch.xlogy(after, after).sum(1).mean() / -torch.xlogy(before, before).sum()
        assert shares[row, 2].item() == pytest.approx(share.item())
    assert (len(page["texts"]), page["lengths"][2]) == (200, 4)


def test_the_entropy_of_each_cell_falls_all_along_to_less_than_a_tenth(shares):
    for cell in shares[:3].tolist():
        assert all(later < earlier for earlier, later in itertools.pairwise([1.0, *cell]))
        assert cell[-1] < 0.1


def test_two_words_remove_three_quarters_of_the_entropy_of_the_first_state_and_later_words_little(shares):
    first_state = shares[3]

    assert 1 - first_state[1].item() == pytest.approx(0.75, abs=0.03)
    assert 0 < first_state[1] - first_state[-1] < 0.03
    assert first_state[-3:].tolist() == pytest.approx([first_state[-1].item()] * 3, abs=1e-3)


def test_location_and_sentiment_nearly_coincide(shares):
    assert (shares[1] - shares[2]).abs().max() < 0.04


def test_in_short_texts_more_of_the_first_states_entropy_is_gone_and_at_64_words_less(page, shares):
    short = [place for place, length in enumerate(page["lengths"]) if length <= 16]

    assert (shares[3] < shares[:3].amin(0))[short].all()
    assert page["lengths"][-1] == 64
    assert shares[3, -1] > shares[:3, -1].max()


# Random models


def test_the_random_models_have_one_to_three_cells_and_many_exact_zeros():
    drawn = [memory_sums.draw(seed).model for seed in range(60)]
    with_zeros = [model for model in drawn if (model.transition == 0).any() and (model.emission == 0).any()]

    assert {model.n_cells for model in drawn} == {1, 2, 3}
    assert len(with_zeros) > 20


def test_the_library_computes_what_sums_over_every_path_give():
    for seed in range(20):
        for name, (computed, exact) in memory_sums.compare(seed).pairs.items():
            assert computed == pytest.approx(exact, abs=ROUNDING), name


def test_no_assumption_is_imposed_and_many_models_break_assumption_4_2():
    broken = 0
    for seed in range(20):
        model = memory_sums.draw(seed).model
        broken += not assumption_4_2(model, 0, list(range(model.n_syntax)))

    assert broken > 5


def test_a_token_that_depends_on_two_cells_breaks_the_mixture(page):
    entry = page["entry"]

    assert entry.as_recorded
    assert entry.control_fails == entry.control_instances
    assert entry.control_gap > 0.01


def test_proposition_d_1_is_wrong_with_the_joint_probability_that_is_printed(page):
    assert page["entry"].grade == "slip"
    assert page["entry"].printed == "fails"
    assert page["entry"].printed_failures > 0


# The exercises


def test_under_a_product_prior_only_meadow_and_clover_move_the_location(page, beliefs):
    after_each_word = memory_posterior(page["independent"], page["prefixes"], 1)

    assert words_that_move(after_each_word) == ["meadow", "clover"]
    assert len(words_that_move(beliefs[1])) == 4


def test_the_product_prior_keeps_the_prior_of_each_cell(page):
    for others in ((1, 2), (0, 2), (0, 1)):
        assert torch.allclose(page["independent"].memory.sum(others), page["model"].memory.sum(others))


def test_those_are_the_words_whose_row_of_w_depends_on_the_locations_value(toy):
    columns = toy.model.emission[:, :, 9:18]  # of the states that look up the location
    depends = (columns != columns[:, :1]).any(2).any(1)
    words = [word for word, token in zip(SENTENCE.split(), toy.encode(SENTENCE)[0], strict=True) if depends[token]]

    assert words == ["meadow", "clover"]


def test_each_word_that_depends_on_the_memory_is_emitted_by_states_of_one_cell(toy):
    by_cell = toy.model.emission.reshape(len(toy.words), 3, 3, 9)  # word, value, cell, syntax
    depends = (by_cell != by_cell[:, :1]).any(3).any(2).any(1)
    n_cells = (by_cell > 0).any(3).any(1).sum(1)

    assert (n_cells[depends] == 1).all()


def test_two_vectors_with_the_same_reverse_lifting_give_opposite_certain_predictions(page):
    equal = page["agree_in_value"].flatten()
    text = torch.tensor([[0, MASK]])

    predictions = [masked_token_probs(page["turns"], text, w)[0, 2].tolist() for w in (equal, 1 - equal)]

    for w in (equal, 1 - equal):
        assert page["turns"].unlift(w).tolist() == [0.5] * 4
    assert predictions == [[0, 0, 1, 0], [0, 0, 0, 1]]


# A reader's parameters


def test_with_another_seed_and_one_random_model_the_page_runs_to_its_end():
    names = run("4-memory-hmm", seed=3, instances=1)

    assert names["entry"].instances == 1
