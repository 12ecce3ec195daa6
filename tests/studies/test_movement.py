"""What moves predictions and labels behind a tuned prompt: fits of planted predictions, and parts of hidden states."""

from functools import partial

import pytest
import torch
from record import SLOW
from tiny_networks import inputs, lively

from hmmbook import TrialSpec
from hmmbook.experiments.measurements import measurements_of
from hmmbook.experiments.parts import Trial
from hmmbook.experiments.trials import make_measurements
from hmmbook.studies.hidden_states.swaps import projector, shared_variance
from hmmbook.studies.look_alikes import look_alike_chain, masked_texts
from hmmbook.studies.readouts import Readout, total_variation
from hmmbook.studies.readouts.movement import by_openness, fit_predictions
from hmmlib import LinearHead, Tuned
from hmmlib.training import bert


@pytest.mark.parametrize("seed", range(1002, 1052 if SLOW else 1003))
@pytest.mark.parametrize("kind", ["weights", "relabelled", "both"])
def test_a_planted_change_of_weights_or_columns_is_found_again(kind, seed):
    chain = look_alike_chain(seed)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.ones(6, dtype=torch.float64)
    columns = chain.emission
    if kind != "relabelled":
        weights = 10 ** -(3 * torch.rand(6, generator=generator).double())
    if kind != "weights":
        logits = 3 * torch.randn(6, 6, generator=generator).double()
        columns = torch.softmax(logits, 0)
    _, beliefs = masked_texts(chain, 600, 33, seed)
    target = Readout(columns, weights)(beliefs)
    sizes = (400, 0, 200)
    plain = (beliefs @ chain.emission.T).split(sizes)
    train, test = target[:400], target[400:]

    predicted, _ = fit_predictions(chain, beliefs.split(sizes), plain, train, seed, lambda: None)

    distances = {}
    for name, probs in predicted.items():
        distances[name] = total_variation(probs, test).mean()
    assert distances[kind] < 0.005
    assert distances["both"] < 0.005
    for other in {"weights", "relabelled"} - {kind}:
        assert distances[other] > distances[kind] + 0.005
    assert distances["unchanged"] > distances[kind] + 0.03


def test_texts_by_how_open_they_leave_the_state():
    beliefs = [[1.0, 0.0], [0.97, 0.03], [0.5, 0.5]]
    kinds = by_openness(torch.tensor(beliefs).double())
    assert kinds["below 0.1"].tolist() == [True, False, False]
    assert kinds["0.1 to 0.5"].tolist() == [False, True, False]
    assert kinds["0.5 to 1"].tolist() == [False, False, True]
    assert not kinds["above 1"].any()


def draws():
    generator = torch.Generator().manual_seed(0)
    return partial(torch.randn, generator=generator, dtype=torch.float64)


def test_a_projector_keeps_the_span_of_its_directions_and_is_symmetric():
    directions = draws()(8, 3)
    dependent = torch.cat([directions, directions.sum(1, keepdim=True)], 1)
    onto = projector(dependent)
    torch.testing.assert_close(onto @ directions, directions)
    torch.testing.assert_close(onto, onto.T @ onto)
    assert onto.trace().item() == pytest.approx(3)


def test_the_shared_variance_is_a_squared_correlation():
    draw = draws()
    values = draw(50, 2)
    other = draw(50, 2)
    assert shared_variance(3 * values + 1, values) == pytest.approx(1)
    centred_other = other - other.mean(0)
    centred_values = values - values.mean(0)
    pairs = torch.stack([centred_other.flatten(), centred_values.flatten()])
    correlation = torch.corrcoef(pairs)[0, 1].item()
    assert shared_variance(other, values) == pytest.approx(correlation**2)


@pytest.mark.parametrize("depth", [1, 2])
def test_with_another_texts_hidden_state_logits_are_that_texts_after_the_last_layer_only(depth):
    network = lively(layers=2)
    embed = network.get_input_embeddings()
    with torch.no_grad():
        embedded = embed(inputs(n=5, seed=1).clamp(min=0))
        other = embed(inputs(n=5, seed=2).clamp(min=0))
        own_states = bert.hidden_at(network, embedded, 3)[depth]
        other_states = bert.hidden_at(network, other, 3)[depth]
        places = torch.full((5, 1), 3)
        logits = bert.logits_at(network, embedded, places).squeeze(1)
        other_logits = bert.logits_at(network, other, places).squeeze(1)
        with_own = bert.logits_with(network, embedded, 3, depth, own_states)
        with_other = bert.logits_with(network, embedded, 3, depth, other_states)
    torch.testing.assert_close(with_own, logits, rtol=0, atol=1e-4)
    assert torch.allclose(with_other, other_logits, atol=1e-4) == (depth == 2)


@pytest.fixture(scope="module")
def trial():
    """A trial whose head gives half of the texts each label behind its random prompt."""
    spec = TrialSpec("smoke", n_states=8, seed=2, steps=1, prompt_length=5, train=400)
    trial = Trial(spec)

    def probs_behind(prompt):
        return Tuned(trial.network, prompt, None).probs(trial.task.tokens).cpu().double()

    generator = torch.Generator().manual_seed(0)
    prompt = torch.randn(5, trial.network.config.hidden_size, generator=generator)
    behind = probs_behind(prompt)
    moved = (behind - probs_behind(None)).mean(0)
    head = LinearHead(moved - (behind @ moved).median())
    trial.tuned = Tuned(trial.network, prompt, head)
    return trial


@pytest.fixture(scope="module")
def measured(trial):
    return make_measurements(trial, measurements_of(["fit_distances", "label_follows"]))


def test_a_trial_has_the_fits(trial, measured):
    exact = trial.beliefs[2] @ trial.model.emission.T
    floor = total_variation(trial.untuned[2], exact).mean().item()
    assert measured["fit_distances_without_prompt"]["unchanged"]["all"] == pytest.approx(floor)
    assert measured["fit_distances"]["both"]["all"] <= measured["fit_distances"]["unchanged"]["all"]
    assert list(measured["fit_weights"]["weights"]) == [f"state {state}" for state in range(8)]
    assert sum(measured["openness"].values()) == pytest.approx(1)


def test_with_all_of_the_last_hidden_state_the_label_is_that_without_the_prompt(trial, measured):
    plain = trial.tuned_head.label(trial.untuned[2])
    behind = trial.tuned_head.label(trial.prompted[2])
    agreement = (plain == behind).double().mean().item()
    assert 0.1 < agreement < 0.9
    for name in ("label_follows", "label_follows_encoding"):
        follows = measured[name]["layer 1"]
        assert follows["all without the prompt"] == pytest.approx(agreement, abs=0.011)
        assert follows["belief of another text"] + follows["rest of another text"] > 0
    assert measured["probe_reads"]["layer 1"]["posterior, without the prompt"] > 0.5
