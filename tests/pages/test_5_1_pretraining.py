"""What the page on pretraining says, and that its loop is the library's."""

import time

import pytest
import torch
from lessons import run

from hmmbook import TrialSpec, draw_model, results
from hmmbook.experiments.parts import build_network, trial_seeds
from hmmbook.experiments.presets import PRESETS
from hmmlib import pretrain
from hmmlib.training.bert import fingerprint
from hmmlib.training.readers import masked_losses
from hmmlib.training.tuning import all_probs_at_mask


@pytest.fixture(scope="module")
def page() -> dict:
    return run("5-1-pretraining", hidden_size=4)


def library_losses(spec: TrialSpec) -> tuple[list[float], torch.nn.Module]:
    network = build_network(spec)
    seeds = trial_seeds(spec.seed)
    losses = pretrain(network, draw_model(spec), spec.pretraining(), seeds["pretraining"])
    return losses, network


def test_the_plain_loop_gives_the_librarys_losses(page):
    losses, _ = library_losses(page["spec"])

    assert len(page["losses"]) == len(losses) == PRESETS["smoke"]["steps"]
    assert page["losses"] == pytest.approx(losses, abs=1e-3)  # Rounding differs.


def test_other_masks_give_other_losses(page):
    other_spec = TrialSpec("smoke", 4, seed=1)
    losses, _ = library_losses(other_spec)

    assert max(abs(a - b) for a, b in zip(page["losses"][:20], losses[:20], strict=True)) > 0.05


def test_the_network_begins_with_the_librarys_weights():
    untrained = run("5-1-pretraining", hidden_size=4, steps=1)

    assert untrained["network"].config.vocab_size == 11
    assert untrained["losses"] == pytest.approx(library_losses(untrained["spec"])[0], abs=1e-5)


def test_the_levels_are_those_that_the_library_measures(page):
    spec = page["spec"]
    _, least = masked_losses(page["network"], page["chain"], 1000, spec.length, spec.masked, seed=5)

    assert page["levels"]["least possible"] == pytest.approx(least, abs=0.05)
    assert page["levels"]["frequencies only"] > page["levels"]["least possible"]


def test_tuning_leaves_the_network_as_it_is_and_lowers_the_loss(page):
    before = fingerprint(page["network"])
    prompt = page["prompt"].detach().clone()
    head = page["head"].detach().clone()

    page["tune"](page["prompt"], page["head"])

    assert fingerprint(page["network"]) == before
    assert not torch.equal(page["prompt"], prompt)
    assert not torch.equal(page["head"], head)


def test_the_page_predicts_what_the_library_predicts(page):
    with torch.no_grad():
        probs = page["predict"](page["tests"].tokens, page["prompt"])

    expected = all_probs_at_mask(page["network"], page["tests"].tokens, page["prompt"].detach())
    # The library leaves the id of [MASK] out of its softmax.
    assert torch.allclose(probs / probs.sum(1, keepdim=True), expected, atol=1e-5)


def test_the_minutes_bound_pretraining_and_tuning(capsys):
    began = time.monotonic()
    run("5-1-pretraining", preset="quick", minutes=0.02)

    assert time.monotonic() - began < 30
    printed = capsys.readouterr().out
    assert "The time for pretraining is over after" in printed
    assert "The time is over after" in printed


def test_a_preset_for_a_gpu_is_quick_on_a_cpu_and_that_is_said(capsys):
    page = run("5-1-pretraining", preset="paper", minutes=0.02, device="cpu")

    assert page["spec"].preset == "quick"
    assert "The preset paper is for a GPU, but this runs on a CPU." in capsys.readouterr().out


# What the text says


def test_the_sizes_are_those_of_the_presets():
    assert (PRESETS["quick"]["layers"], PRESETS["quick"]["width"]) == (2, 64)
    assert (PRESETS["paper"]["layers"], PRESETS["paper"]["width"], PRESETS["paper"]["masked"]) == (6, 768, 0.05)
    assert (PRESETS["gpu"]["layers"], PRESETS["gpu"]["width"]) == (4, 256)


def test_at_quick_a_prompt_is_tuned_on_4000_labelled_texts_and_tested_on_1000_others():
    spec = TrialSpec("quick", 30, seed=0)

    assert (spec.train, spec.test) == (4000, 1000)


def test_with_thirty_states_the_prompt_closes_most_of_the_gap_that_the_head_leaves():
    trials = results("quick").query("changes == '' and n_memory == 1 and n_states == 30 and seed < 20")
    of_the_page = trials.query("seed == 0").iloc[0]

    assert len(trials) == 20
    for row in (trials.mean(numeric_only=True), of_the_page):
        assert (row.prompt_accuracy - row.head_accuracy) / (1 - row.head_accuracy) > 0.5


def test_with_four_states_no_two_share_a_token_and_a_head_alone_is_nearly_always_right():
    likeliest_tokens = draw_model(TrialSpec("quick", 4, seed=0)).emission.argmax(0)
    trials = results("quick").query("changes == '' and n_memory == 1 and n_states == 4 and seed < 20")

    assert len(likeliest_tokens.unique()) == 4
    assert trials.head_accuracy.mean() > 0.94


def test_with_thirty_states_several_share_a_token():
    likeliest_tokens = draw_model(TrialSpec("quick", 30, seed=0)).emission.argmax(0)

    assert len(likeliest_tokens.unique()) <= 10
