"""What the page on a study of your own says. Its three trials of the preset quick take half a minute."""

import inspect
import math
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from lessons import run
from record import slow

from hmmbook import TrialSpec, load_result, mean_ci, results
from hmmbook.experiments.trials import measure
from hmmlib import (
    HMM,
    AssumptionError,
    FromTransformers,
    UnclearOrientation,
    assumption_3_1,
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


# Steps 1 and 2: the chain and the network


def test_the_chain_goes_round_six_states_and_two_emit_alike_so_3_1_fails(page):
    chain = page["chain"]

    assert chain.n_states == 6
    assert torch.equal(chain.emission[:, 0], chain.emission[:, 1])
    assert not assumption_3_1(chain)
    for state in range(6):
        assert chain.transition[:, state].argmax() == (state + 1) % 6


def test_theorem_3_3_promises_no_head_for_this_chain(page):
    with pytest.raises(AssumptionError, match=r"3\.1"):
        theorem_3_3(page["chain"], [1.0, -1.0, 0, 0, 0, 0])


@NEEDS_HMMLEARN
def test_a_text_has_the_same_likelihood_in_hmmlearn_and_the_model_goes_back_unchanged(page):
    text = page["texts"][:1]
    in_hmmlearn = page["fitted"].score(text.reshape(-1, 1).numpy())
    back = page["fitted_chain"].to_hmmlearn()

    assert in_hmmlearn == pytest.approx(log_likelihood(page["fitted_chain"], text).item(), abs=1e-9)
    assert np.array_equal(back.transmat_, page["fitted"].transmat_)


def test_gpt2_is_read_with_the_mask_behind_the_text(page):
    spec = page["specs"][0]
    reader = page["gpt2"](spec, page["chain"])

    assert isinstance(reader, FromTransformers)
    assert reader.causal
    assert reader.mask_behind


def weights_of(page, seed: int) -> str:
    """A fingerprint of the GPT-2 that a trial of this seed trains on one batch."""
    spec = TrialSpec("smoke", 6, seed, n_tokens=5, steps=1, batch=4, width=32, layers=2, heads=2, own="gpt2-cycle")
    return fingerprint(page["gpt2"](spec, page["chain"]).module)


def test_the_seed_changes_the_network_also_above_32_bits(page):
    of_small_seed = weights_of(page, 5)

    assert of_small_seed == weights_of(page, 5)
    assert of_small_seed != weights_of(page, 2**32 + 5)


# Steps 3 and 4: the trials and their rows


def test_there_is_a_row_for_each_trial_with_the_name_of_the_study_and_its_sizes(page):
    table = page["table"]

    assert page["outcome"].failed == {}
    assert table.seed.tolist() == [LAST_SEED, LAST_SEED + 1]
    assert set(table.own) == {"gpt2-cycle"}
    assert set(table.steps) == {2}
    assert set(table.learning_rate) == {3e-3}


def test_each_result_is_a_file_in_the_folder_of_its_preset_named_by_the_hash_of_its_spec(page):
    names = {path.relative_to(page["store"]).as_posix() for path in Path(page["store"]).rglob("*.json")}

    assert names == {f"smoke/{spec.hash}.json" for spec in page["specs"]}


def test_what_is_stored_is_not_run_again(page):
    again = page["run_missing"](page["specs"], page["store"], log=lambda line: None)

    assert not again.ran
    assert len(again.stored) == 2


def test_a_list_of_values_gives_all_combinations(page):
    specs = page["grid"]("smoke", 2, n_states=[4, 6], prompt_length=[0, 5])

    assert len({(spec.n_states, spec.prompt_length, spec.seed) for spec in specs}) == 8


def test_trials_of_two_studies_or_numbers_of_steps_are_grouped_in_one_line(page):
    grouped = page["table"].groupby(["own", "steps"]).gain.agg(mean_ci)

    assert grouped["gpt2-cycle", 2].n == 2


@slow
def test_the_interval_of_the_difference_contains_zero(usual_page):
    gain = mean_ci(usual_page["table"].gain)

    assert gain.n == 3
    assert gain.low < 0 < gain.high


@slow
def test_no_accuracy_equals_the_majority_rate_and_the_networks_are_near_the_exact_prediction(usual_page):
    table = usual_page["table"]

    assert (table.head_accuracy > table.majority_rate + 0.05).all()
    assert (table.prompt_accuracy > table.majority_rate + 0.05).all()
    assert table.divergence.max() < 0.1


# Step 5: a measurement


def test_a_measurement_defined_after_the_trials_is_added_by_also_and_all_else_stays(page):
    stored = results("smoke", page["store"])

    assert (stored.posterior_entropy > 0).all()
    assert (stored.posterior_entropy <= math.log(6)).all()
    for column in ("head_accuracy", "prompt_accuracy", "network_loss"):
        assert stored[column].equals(page["table"][column])


def test_the_entropy_needs_the_task_alone_so_no_network_is_trained_again(page):
    assert list(inspect.signature(page["openness"]).parameters) == ["task"]
    trained = []

    def counted(spec, model):
        trained.append(spec)
        return page["gpt2"](spec, model)

    parts = page["Parts"](model=page["our_chain"], network=counted)
    path = Path(page["store"]) / "smoke" / f"{page['specs'][0].hash}.json"
    result = load_result(path)

    assert "posterior_entropy" in result.added
    measure(result, ["posterior_entropy"], parts=parts)
    assert not trained


def test_it_would_be_log_6_about_1_8_if_the_text_said_nothing():
    assert round(math.log(6), 1) == 1.8


# Where a text begins


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A start distribution, transitions and emissions, by rows. No distribution leads to this start in one step."""
    startprob = np.array([0.4, 0.2, 0.3, 0.1])
    transmat = np.array([[0, 0, 0.7, 0.3], [0, 0, 0.2, 0.8], [0.6, 0.4, 0, 0], [0.6, 0.2, 0, 0.2]])
    emissionprob = np.array([[0.5, 0.1, 0.4], [0.3, 0.6, 0.1], [0.3, 0.7, 0], [0.7, 0.3, 0]])
    return startprob, transmat, emissionprob


def test_from_rows_gives_every_text_the_probability_it_had(rows):
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


def test_transposed_tables_alone_give_the_texts_without_their_first_token(rows):
    start, transmat, emissionprob = rows
    model = HMM(transmat.T, emissionprob.T, start, columns=True)
    first_token = model.emission @ model.marginal(1)

    np.testing.assert_allclose(first_token, start @ transmat @ emissionprob, atol=1e-12)
    assert abs(first_token.numpy() - start @ emissionprob).max() > 0.05


def test_where_no_start_leads_to_it_a_state_is_added_in_which_every_text_begins(rows):
    start, transmat, _ = rows
    model = HMM.from_rows(*rows)

    assert model.n_states == 5
    assert model.initial.tolist() == [0, 0, 0, 0, 1]
    np.testing.assert_allclose(model.transition[:4, 4], start)
    assert np.linalg.solve(transmat.T, start).min() < 0  # The only solution of A q = p is no distribution.


def test_a_stationary_start_is_taken_as_it_is(page):
    np.testing.assert_allclose(page["chain"].initial, page["startprob"], atol=1e-12)
    np.testing.assert_allclose(page["startprob"] @ page["transmat"], page["startprob"], atol=1e-12)


def test_to_rows_leaves_the_added_state_out_again(rows):
    start, transmat, emissionprob = rows
    back = HMM.from_rows(*rows).to_rows()

    assert np.array_equal(back.startprob, start)
    assert np.array_equal(back.transmat, transmat)
    assert np.array_equal(back.emissionprob, emissionprob)


def test_a_table_whose_columns_do_not_sum_to_1_is_refused(rows):
    start, transmat, emissionprob = rows
    with pytest.raises(ValueError, match="column"):
        HMM(transmat, emissionprob.T, start)


def test_if_rows_sum_to_1_too_there_is_a_warning_unless_columns_are_meant(page):
    tables = (page["transmat"].T, page["emissionprob"].T, page["startprob"])
    with pytest.warns(UnclearOrientation):
        HMM(*tables)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HMM(*tables, columns=True)
