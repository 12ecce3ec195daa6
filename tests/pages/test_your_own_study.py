"""What the page on a study of your own says. Its three trials of the preset quick take a minute."""

from importlib.util import find_spec

import jupytext
import numpy as np
import pytest
import torch
from lessons import NOTEBOOKS, run
from record import slow

from hmmbook import TrialSpec, mean_ci
from hmmlib import (
    HMM,
    AssumptionError,
    assumption_3_1,
    assumption_3_2,
    assumption_3_5,
    essential_states,
    log_likelihood,
    theorem_3_3,
)
from hmmlib.training.bert import fingerprint

LAST_SEED = 2**32 - 1
"""The largest seed of the page. Its second trial has one that torch does not take."""
NEEDS_HMMLEARN = pytest.mark.skipif(not find_spec("hmmlearn"), reason="hmmlearn is not installed")


@pytest.fixture(scope="module")
def page() -> dict:
    return run("your-own-study", seed=LAST_SEED, trials=2, steps=2)


@pytest.fixture(scope="module")
def usual_page() -> dict:
    return run("your-own-study", preset="quick")


# The chain and the network


def test_six_states_follow_each_other_and_two_emit_alike_so_3_1_fails(page):
    chain = page["cycle"](page["specs"][0])

    assert chain.n_states == 6
    assert torch.equal(chain.emission[:, 0], chain.emission[:, 1])
    assert not assumption_3_1(chain)
    for state in range(6):
        assert chain.transition[:, state].argmax() == (state + 1) % 6


def test_theorem_3_3_promises_no_head_for_this_chain(page):
    with pytest.raises(AssumptionError, match=r"3\.1"):
        theorem_3_3(page["cycle"](page["specs"][0]), [1.0, -1.0, 0, 0, 0, 0])


def weights_of(page, seed: int) -> str:
    """A fingerprint of the GPT-2 that a trial of this seed trains on one batch."""
    spec = TrialSpec("smoke", 6, seed, n_tokens=5, steps=1, batch=4, width=32, layers=2, heads=2, own="gpt2-cycle")
    return fingerprint(page["gpt2"](spec, page["cycle"](spec)).module)


def test_seeds_above_32_bits_are_trials_of_their_own(page):
    of_small_seed = weights_of(page, 5)

    assert of_small_seed == weights_of(page, 5)
    assert of_small_seed != weights_of(page, 2**32 + 5)


def test_from_the_chain_to_the_figure_there_are_sixty_lines_at_most():
    cells = [cell.source for cell in jupytext.read(NOTEBOOKS / "your-own-study.md").cells if cell.cell_type == "code"]
    up_to_the_figure = cells[2:6]  # after the parameters and the imports

    assert "figure_3.dots" in up_to_the_figure[-1]
    assert sum(bool(line.strip()) for cell in up_to_the_figure for line in cell.splitlines()) <= 60


# The trials


def test_there_is_a_row_for_each_trial_with_the_name_of_the_study_and_its_sizes(page):
    table = page["table"]

    assert page["outcome"].failed == {}
    assert table.seed.tolist() == [LAST_SEED, LAST_SEED + 1]
    assert set(table.own) == {"gpt2-cycle"}
    assert set(table.steps) == {2}
    assert set(table.learning_rate) == {3e-3}


def test_trials_of_two_studies_or_numbers_of_steps_are_grouped_in_one_line(page):
    grouped = page["table"].groupby(["own", "steps"]).gain.agg(mean_ci)

    assert grouped["gpt2-cycle", 2].n == 2


def test_a_stored_trial_is_not_run_again(page):
    again = page["run_missing"](page["specs"], page["store"], log=lambda line: None)

    assert not again.ran


@slow
def test_the_interval_of_the_difference_contains_zero(usual_page):
    gain = mean_ci(usual_page["table"].gain)

    assert gain.n == 3
    assert gain.low < 0 < gain.high


@slow
def test_heads_alone_come_near_heads_on_the_exact_predictions(usual_page):
    means = usual_page["means"]

    assert means["head on the exact G"].mean == pytest.approx(means["head tuning"].mean, abs=0.03)


@slow
def test_no_head_gives_all_texts_one_label_and_the_networks_are_near_the_exact_prediction(usual_page):
    table = usual_page["table"]

    assert (table.head_accuracy > table.majority_rate + 0.05).all()
    assert table.divergence.max() < 0.1


@slow
def test_with_the_default_rate_and_passes_the_first_trials_prompt_is_worse_and_worse_than_the_head(usual_page):
    again = usual_page["again"]
    first = usual_page["table"].iloc[0]

    assert again.prompt_accuracy < first.prompt_accuracy - 0.05
    assert again.prompt_accuracy < again.head_accuracy


def test_the_defaults_of_rate_and_passes_are_others_than_those_of_the_study(page):
    assert page["hasty"].prompt_rate != page["specs"][0].prompt_rate
    assert page["hasty"].epochs < page["specs"][0].epochs


def test_the_measurement_is_a_column_and_at_most_log_6_nats(page):
    assert 0 < page["result"].posterior_entropy < np.log(6)
    assert round(np.log(6), 2) == 1.79


# Where a text begins


@pytest.fixture(scope="module")
def rows(page) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The start distribution of the page's tables, its transitions and its emissions, by rows."""
    return page["startprob"], page["transmat"], page["emissionprob"]


def test_from_rows_gives_every_text_the_probability_it_had(page, rows):
    start, transmat, emissionprob = rows
    model = HMM.from_rows(start, transmat, emissionprob)
    texts = np.array([[a, b, c] for a in range(3) for b in range(3) for c in range(3)])

    expected = []
    for text in texts:
        forward = start * emissionprob[:, text[0]]
        for token in text[1:]:
            forward = (forward @ transmat) * emissionprob[:, token]
        expected.append(forward.sum())

    np.testing.assert_allclose(log_likelihood(model, texts).exp(), expected, atol=1e-12)


def test_transposed_tables_alone_give_the_texts_without_their_first_token(page, rows):
    start, transmat, emissionprob = rows
    first_token = page["after"].emission @ page["after"].marginal(1)

    np.testing.assert_allclose(first_token, start @ transmat @ emissionprob, atol=1e-12)
    assert abs(first_token.numpy() - start @ emissionprob).max() > 0.05


def test_there_are_five_states_and_the_text_begins_in_the_last_whose_column_is_p(page, rows):
    start, transmat, _ = rows
    model = HMM.from_rows(*rows)

    assert model.n_states == 5
    assert model.initial.tolist() == [0, 0, 0, 0, 1]
    np.testing.assert_allclose(model.transition[:4, 4], start)
    assert np.linalg.solve(transmat.T, start).min() < 0  # The only solution of A q = p is no distribution.


def test_a_stationary_start_is_taken_as_it_is(rows):
    _, transmat, emissionprob = rows
    values, vectors = np.linalg.eig(transmat.T)
    stationary = np.real(vectors[:, np.argmax(values.real)])
    stationary /= stationary.sum()

    model = HMM.from_rows(stationary, transmat, emissionprob)

    assert model.n_states == 4
    np.testing.assert_allclose(model.initial, stationary, atol=1e-12)


def test_to_rows_leaves_the_added_state_out_again(rows):
    start, transmat, emissionprob = rows
    back = HMM.from_rows(*rows).to_rows()

    assert np.array_equal(back.startprob, start)
    assert np.array_equal(back.transmat, transmat)
    assert np.array_equal(back.emissionprob, emissionprob)


@NEEDS_HMMLEARN
def test_a_text_has_the_same_likelihood_in_hmmlearn_and_the_model_goes_back_unchanged(page):
    assert page["there"] == pytest.approx(page["here"].item(), abs=1e-9)
    assert np.array_equal(page["back"].transmat_, page["fitted"].transmat_)


# What the theorems ask


def test_3_2_fails_with_the_added_state_and_holds_without_it(page):
    assert not assumption_3_2(page["model"])
    assert assumption_3_2(page["after"])


def test_3_1_fails_as_four_columns_have_three_entries_and_3_5_holds(page):
    after, mu = page["after"], page["mu"]

    assert after.emission.shape == (3, 4)
    assert not assumption_3_1(after)
    assert essential_states(after, mu) == [0, 1, 3]
    assert assumption_3_5(after, mu, [0, 1])
    assert assumption_3_5(after, mu, [0, 1, 3])


def test_the_prompt_and_the_head_are_right_on_all_243_texts(page):
    assert len(page["x"]) == 3**5
    assert page["right"] == 1
