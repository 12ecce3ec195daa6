"""Measurements on request on a tiny trial: what is counted twice agrees, and what has no answer is None."""

from dataclasses import replace

import pytest
import torch
from runs import TINY, numbers

from hmmbook import Task, TrialSpec, load_result, run_trial, save_result
from hmmbook.studies.kinds_of_text import kinds_of, label_of_each_state, means
from hmmbook.studies.readouts.families import FAMILIES
from hmmbook.studies.readouts.measured import states_right
from hmmlib import HMM, LinearHead

SMALLER = {"n_states": 4, "steps": 30, "train": 100, "epochs": 2}
SPEC = TrialSpec("smoke", **TINY | SMALLER, temperature=0.2)
MEASURED = [
    "readout_distances",
    "plain_distances",
    "control_distances",
    "prompt_cuts",
    "probes",
    "solvable",
    "certified",
]


@pytest.fixture(scope="module")
def result():
    return run_trial(SPEC, also=MEASURED)


def test_the_trial_is_the_same_as_without_measurements_on_request_and_can_be_stored(result, tmp_path):
    plain = run_trial(SPEC)
    assert numbers(replace(result, added=plain.added)) == numbers(plain)
    assert load_result(save_result(result, tmp_path)) == result


def test_where_no_layer_is_cut_the_prompt_is_as_accurate_as_in_the_trial(result):
    assert result.prompt_cuts["none"] == {"accuracy": result.prompt_accuracy, "distance": 0.0}
    assert result.prompt_cuts.keys() == {"none", "layer 1", "every layer"}
    assert result.probes["belief"].keys() == {"layer 0", "layer 1"}


def test_no_certified_label_is_wrong(result):
    wrong = [row["certified but wrong"] for row in result.certified.values()]
    assert wrong == [0, 0, 0, 0]


def test_the_exact_models_prompt_is_a_reweighting(result):
    exact = result.control_distances["exact model"]
    assert exact["reweighted"] < 1e-4
    assert exact["unchanged"] > 0.01
    assert exact["relabelled"] > exact["reweighted"]


def test_without_a_prompt_nothing_changed_is_the_floor(result):
    assert result.readout_distances.keys() == {*FAMILIES, "free", "constant", "floor"}
    plain = result.plain_distances
    assert plain["unchanged"] == pytest.approx(result.readout_distances["floor"])
    assert plain["relabelled"]["all"] < plain["unchanged"]["all"]
    assert plain["reweighted"]["all"] <= plain["unchanged"]["all"] + 0.02


def test_a_memory_model_has_none_of_it():
    assert run_trial(SPEC.replace(n_memory=2), also=["solvable", "probes"]).added["solvable"] is None


@pytest.mark.parametrize(("labels", "is_solvable"), [("before", True), ("stepped", False)])
def test_labels_of_another_state_have_what_the_theory_gives(labels, is_solvable):
    result = run_trial(SPEC.replace(labels=labels), also=["solvable", "certified"])
    assert result.certified is None
    assert (result.solvable is not None) == is_solvable


# On planted beliefs about three states

BELIEFS = [
    [0.99, 0.01, 0.0],
    [0.4, 0.3, 0.3],
    [0.1, 0.9, 0.0],
    [0.0, 0.1, 0.9],
]
BELIEFS = torch.tensor(BELIEFS, dtype=torch.float64)
MU = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
LABELS = BELIEFS @ MU >= 0
TOKENS = torch.zeros(4, 2, dtype=torch.int64)
TEXTS = Task(TOKENS, LABELS, MU, 0, (4, 0, 0), BELIEFS)


def test_the_kinds_of_texts():
    kinds = kinds_of(TEXTS, BELIEFS)
    assert kinds["certain"].tolist() == [True, False, False, False]
    assert kinds["spread"].tolist() == [False, True, False, False]
    assert kinds["near tie"].tolist() == [False, False, False, False]
    assert kinds["clear"].tolist() == [True, True, True, True]
    assert kinds["weighed"].tolist() == [True, True, True, False]
    near_tie = torch.tensor([0.5, 0.495, 0.005], dtype=torch.float64)
    ties = TEXTS._replace(posteriors=near_tie.repeat(4, 1))
    assert kinds_of(ties, BELIEFS)["near tie"].all()


def test_means_of_kinds_are_none_where_there_are_no_such_texts():
    values = torch.tensor([1.0, 0.0])
    kinds = {"first": torch.tensor([True, False]), "none": torch.tensor([False, False])}
    assert means(values, kinds) == {"all": 0.5, "first": 1.0, "none": None}


def test_the_label_of_each_state_is_that_of_most_texts_on_which_it_is_the_likeliest():
    assert label_of_each_state(TEXTS, BELIEFS).tolist() == [True, False, False]


def test_votes_are_right_where_the_head_scores_the_columns_with_the_signs_of_the_task():
    transition = [[0.4] * 3, [0.3] * 3, [0.3] * 3]
    emission = [[1.0, 0.95, 0.0], [0.0, 0.05, 1.0]]
    columns = [[1.0, 0.2, 0.3], [0.0, 0.8, 0.7]]
    model = HMM(transition, emission, [0.4, 0.3, 0.3])
    columns = torch.tensor(columns, dtype=torch.float64)
    votes = states_right(model, TEXTS, BELIEFS, columns, LinearHead([1.0, -1.0]))
    for kind, n in [("weighed", 2), ("look-alikes", 2), ("not weighed but likely", 1)]:
        assert votes[kind] == n
        assert votes[f"{kind}, right"] == n
    assert votes["distance of look-alikes in R"] == pytest.approx(0.8)
    other = states_right(model, TEXTS, BELIEFS, columns, LinearHead([-1.0, 1.0]))
    assert other["weighed, right"] == 0
    assert other["not weighed but likely, right"] == 0
