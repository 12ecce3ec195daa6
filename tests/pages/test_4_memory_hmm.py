"""What the page on texts with a memory says, from its own models."""

import itertools

import pytest
import torch
from lessons import run

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

TEXT = "a sailor in the pasture wept sadly ."
SUBJECT, LOCATION, SENTIMENT = range(3)
SAILOR = 1
PASTURE, HARBOUR = 0, 1
SAD = 1
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
    """For each cell, the belief at first and after each word of the text, (words + 1, 3)."""
    tokens = toy.encode(TEXT)
    rows = []
    for count in range(tokens.shape[1] + 1):
        read = torch.where(torch.arange(tokens.shape[1]) < count, tokens, MASK)
        rows.append([memory_posterior(toy.model, read, cell)[0] for cell in range(3)])
    return [torch.stack([row[cell] for row in rows]) for cell in range(3)]


def after(beliefs: list[torch.Tensor], cell: int, word: str) -> torch.Tensor:
    """The belief about a cell after a word of the text."""
    return beliefs[cell][TEXT.split().index(word) + 1]


def words_that_move(belief: torch.Tensor) -> list[str]:
    """The words after which a belief, (words + 1, 3), is another one."""
    changes = belief.diff(dim=0).abs().amax(1)
    return [word for word, change in zip(TEXT.split(), changes, strict=True) if change > ROUNDING]


# A sailor, a pasture and a sad text


def test_the_facts_have_the_values_that_the_page_names(toy):
    assert toy.cells == ("subject", "location", "sentiment")
    assert toy.values == (("cow", "sailor", "child"), ("pasture", "harbour", "kitchen"), ("happy", "sad", "angry"))


def test_the_model_can_write_this_text_about_a_sailor_a_pasture_and_sad(toy):
    texts = toy.sample(40, 8, 0)

    assert (TEXT, ("sailor", "pasture", "sad")) in texts


def test_two_words_tell_of_the_subject_and_two_others_of_the_sentiment(beliefs):
    assert words_that_move(beliefs[SUBJECT]) == ["sailor", "pasture"]
    assert words_that_move(beliefs[LOCATION]) == ["sailor", "pasture"]
    assert words_that_move(beliefs[SENTIMENT]) == ["wept", "sadly"]


def test_sailor_raises_the_belief_in_a_sailor_from_033_to_080(beliefs):
    assert f"{after(beliefs, SUBJECT, 'a')[SAILOR]:.2f}" == "0.33"
    assert f"{after(beliefs, SUBJECT, 'sailor')[SAILOR]:.2f}" == "0.80"


def test_sailor_makes_the_harbour_likeliest_as_sailors_are_mostly_there(toy, beliefs):
    subject_and_location = toy.model.memory.sum(SENTIMENT)

    assert subject_and_location[SAILOR, HARBOUR] > 0.5 * subject_and_location[SAILOR].sum()
    assert after(beliefs, LOCATION, "sailor").argmax() == HARBOUR


def test_pasture_corrects_the_location_and_makes_the_sailor_less_likely(toy, beliefs):
    subject_and_location = toy.model.memory.sum(SENTIMENT)

    assert subject_and_location[0, PASTURE] > 0.5 * subject_and_location[:, PASTURE].sum()
    assert after(beliefs, LOCATION, "pasture").argmax() == PASTURE
    assert 0.7 < after(beliefs, SUBJECT, "pasture")[SAILOR] < after(beliefs, SUBJECT, "the")[SAILOR]


def test_wept_makes_sad_likeliest_and_sadly_raises_the_belief_in_it_to_092(beliefs):
    assert after(beliefs, SENTIMENT, "wept").argmax() == SAD
    assert f"{after(beliefs, SENTIMENT, 'sadly')[SAD]:.2f}" == "0.92"


def test_the_page_draws_these_beliefs(page, beliefs):
    for cell, expected in zip(page["beliefs"].values(), beliefs, strict=True):
        assert torch.allclose(cell[1], expected, atol=ROUNDING)


def test_a_sad_text_has_label_1_in_the_task_that_the_page_names(toy):
    mu = torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64)
    texts = [TEXT, TEXT.replace("wept sadly", "sang merrily")]

    labels = [(ground_truth(toy.model, mu, toy.encode(text), SENTIMENT) >= 0).item() for text in texts]

    assert labels == [True, False]


def test_the_toy_has_nine_syntax_states_for_each_of_three_cells_so_27_hidden_states(toy):
    assert (len(toy.syntax), len(toy.cells), toy.model.n_states) == (9, 3, 27)


# Evidence about a memory adds up


def test_the_page_measures_the_mean_belief_in_the_truth(page):
    model = page["anywhere"]
    tokens = page["sample"].tokens[:, :4]
    texts = torch.arange(len(tokens))

    of_sentiment = memory_posterior(model, tokens, SENTIMENT)[texts, page["sample"].memory[:, SENTIMENT]]
    of_state = posterior(model, tokens)[texts, page["sample"].states[:, 0]]

    assert page["lengths"][2] == 4
    assert page["belief_in_sentiment"][2] == pytest.approx(of_sentiment.mean().item())
    assert page["belief_in_state"][2] == pytest.approx(of_state.mean().item())


def test_the_belief_in_the_true_sentiment_keeps_rising_and_is_096_after_64_words(page):
    rising = page["belief_in_sentiment"]

    assert all(later > earlier for earlier, later in itertools.pairwise([1 / 3, *rising]))
    assert page["lengths"][-1] == 64
    assert f"{rising[-1]:.2f}" == "0.96"


def test_the_belief_in_the_true_first_state_is_higher_at_first_and_stays_at_063_from_the_fourth_word_on(page):
    of_state = page["belief_in_state"]

    assert all(state > memory for state, memory in zip(of_state[:3], page["belief_in_sentiment"][:3], strict=True))
    assert page["lengths"][2] == 4
    assert [f"{belief:.2f}" for belief in of_state[2:]] == ["0.63"] * 5


# The memory shows in many predictions


def test_the_prediction_is_a_mixture_of_columns_of_w(toy):
    tokens = toy.encode(TEXT)
    belief = latent_given_others(toy.model, tokens)

    mixture = belief @ toy.model.emission.flatten(1).T

    assert torch.allclose(mixture, masked_token_probs(toy.model, tokens), atol=ROUNDING)


def test_in_place_of_wept_sob_and_sadly_sad_words_are_likelier_than_happy_or_angry_ones(page):
    bars = {name: dict(zip(page["shown"], bar.tolist(), strict=True)) for name, bar in page["bars"].items()}

    for word in ("wept", "sob", "sadly"):
        assert bars["sad words"][word] > 2 * bars["happy words"][word]
        assert bars["sad words"][word] > 2 * bars["angry words"][word]
    for bar in bars.values():
        assert bar["sailor"] < 0.01
        assert bar["pasture"] < 0.01


def test_the_words_of_a_sentiment_are_those_that_are_likeliest_with_it(page, toy):
    by_value = toy.model.emission.unflatten(2, (3, 9))[:, :, SENTIMENT].sum(2)  # word, value
    angry = toy.values[SENTIMENT].index("angry")
    likeliest = (by_value[:, angry] > by_value[:, :angry].amax(1)).nonzero().flatten()

    assert sorted(page["columns"]) == likeliest.tolist()


def test_a_verb_more_often_tells_of_the_subject(toy):
    tokens = toy.encode(TEXT)
    position = TEXT.split().index("wept")
    by_state = latent_given_others(toy.model, tokens)[0, position].unflatten(0, (3, 27)).sum(0)

    assert by_state[toy.state("subject", "verb")] > 2 * by_state[toy.state("sentiment", "verb")]


def test_the_prediction_in_place_of_wept_follows_a_later_merrily(toy):
    position = TEXT.split().index("wept")
    wept = toy.words.index("wept")

    sad, happy = [
        masked_token_probs(toy.model, toy.encode(text))[0, position, wept]
        for text in (TEXT, TEXT.replace("sadly", "merrily"))
    ]

    assert sad > 2 * happy


# Why it needs a theorem of its own


def test_memory_and_state_together_are_a_hidden_markov_model_with_the_same_predictions(toy):
    tokens = toy.encode(TEXT)
    flat = toy.model.flatten()

    assert flat.n_states == 3**3 * toy.model.n_states
    assert torch.allclose(masked_token_probs(flat, tokens), masked_token_probs(toy.model, tokens), atol=ROUNDING)


def test_that_model_breaks_assumptions_3_1_and_3_2_though_the_chain_alone_is_regular(toy):
    flat = toy.model.flatten()

    assert assumption_3_2(toy.model)
    assert not assumption_3_2(flat).irreducible
    assert not assumption_3_1(flat)


def test_nouns_verbs_objects_and_adverbs_are_recoverable_and_the_columns_of_all_other_states_are_equal(toy):
    emission = toy.model.emission
    vary = (emission != emission[:, :1]).any(1).any(0).reshape(3, 9)
    for cell, row in enumerate(vary.tolist()):
        alone = [name for part, name in enumerate(toy.syntax) if assumption_4_2(toy.model, cell, [part])]
        together = [toy.syntax.index(name) for name in VARIED]

        assert [name for name, varies in zip(toy.syntax, row, strict=True) if varies] == VARIED
        assert alone == VARIED
        assert assumption_4_2(toy.model, cell, together)


# Where the model stops


@pytest.fixture(scope="module")
def entry(page):
    return page["ledger"].run(page["ledger"].find("Proposition D.1"), 5, 0)


def test_a_token_that_depends_on_two_cells_breaks_the_mixture(entry):
    assert entry.as_recorded
    assert entry.broken == "a token depends on one memory cell only"
    assert entry.control_fails == entry.control_instances
    assert entry.control_gap > 0.01


def test_proposition_d_1_is_wrong_with_the_joint_probability_that_is_printed(entry):
    assert entry.grade == "slip"
    assert entry.printed == "fails"
    assert entry.printed_failures > 0


# What to try, and the exercises


def test_without_pasture_the_location_is_less_certain_and_the_subject_more(toy, beliefs):
    masked = toy.encode(TEXT.replace("pasture", "[mask]"))

    assert memory_posterior(toy.model, masked, LOCATION).max() < beliefs[LOCATION][-1].max()
    assert memory_posterior(toy.model, masked, SUBJECT).max() > beliefs[SUBJECT][-1].max()


def test_if_the_facts_are_independent_only_pasture_moves_the_location(page):
    after_each_word = memory_posterior(page["independent"], page["prefixes"], LOCATION)

    assert words_that_move(after_each_word) == ["pasture"]


def test_the_product_prior_keeps_the_prior_of_each_cell(page):
    for others in ((1, 2), (0, 2), (0, 1)):
        assert torch.allclose(page["independent"].memory.sum(others), page["model"].memory.sum(others))


def test_each_word_that_depends_on_the_memory_is_emitted_by_states_of_one_cell(toy):
    by_cell = toy.model.emission.reshape(len(toy.words), 3, 3, 9)  # word, value, cell, syntax
    depends = (by_cell != by_cell[:, :1]).any(3).any(2).any(1)
    n_cells = (by_cell > 0).any(3).any(1).sum(1)

    assert (n_cells[depends] == 1).all()


def test_a_chain_that_never_leaves_its_state_is_known_in_the_end_and_one_that_leaves_is_not(page):
    leaves_often, leaves_rarely, never = [list(map(float, row[1:])) for row in page["rows"]]

    assert never[-1] == 1
    assert leaves_often[0] <= leaves_often[-1] < leaves_rarely[-1] < 0.7
    assert not assumption_3_2(page["chain"]).irreducible


# A reader's parameters


def test_with_another_seed_and_one_random_model_the_page_runs_to_its_end():
    assert run("4-memory-hmm", seed=3, instances=1)["instances"] == 1
