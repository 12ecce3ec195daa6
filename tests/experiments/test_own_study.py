"""What a study of one's own must not silently get wrong: its own model, labels and measurements in a trial."""

import math
import re
import warnings
from dataclasses import replace

import pandas as pd
import pytest
import torch
from commands import usage_error
from runs import TINY
from support import tiny_networks

import hmmlib
from hmmlib import HMM, FromTransformers, Parts, TrialSpec, draw_trial_task, grid, random_hmm, results, run_trial
from hmmlib.experiments.results import as_table
from hmmlib.experiments.store import STORE, load_results, save_result
from hmmlib.experiments.sweeps import run_missing
from hmmlib.experiments.trials import draw_model
from hmmlib.training import readers, tuning

SPEC = TrialSpec("smoke", own="mine", **TINY)
STEPS = torch.tensor([[0.9, 0.2, 0.1], [0.05, 0.7, 0.1], [0.05, 0.1, 0.8]], dtype=torch.float64)
TOKENS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 0.5], [0, 0, 0.5]], dtype=torch.float64)
START = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)


def own_model(spec=SPEC):
    return HMM(STEPS, TOKENS, START)


def test_the_share_learned_is_that_of_the_trial_s_own_model():
    result = run_trial(SPEC, parts=Parts(model=own_model))
    often = torch.stack([own_model().emission @ own_model().marginal(at) for at in range(1, SPEC.length + 1)]).mean(0)
    assert result.frequency_loss == pytest.approx(torch.special.entr(often).sum().item())
    gap = result.frequency_loss - result.best_loss
    specs = (SPEC.replace(evaluation=sequences) for sequences in (1, 10**6))
    few, many = as_table(replace(result, spec=spec) for spec in specs).learned
    assert math.isnan(few)
    assert many == pytest.approx(1 - result.excess_loss / gap)
    spec = TrialSpec("smoke", n_memory=2, temperature=0.2, **TINY)
    counts = draw_model(spec).sample(20_000, spec.length, 0).tokens.flatten().bincount().double()
    assert run_trial(spec).frequency_loss == pytest.approx(
        torch.special.entr(counts / counts.sum()).sum().item(), abs=5e-3
    )


def test_no_theorem_is_built_for_labels_that_are_not_those_of_mu():
    def by_first_token(spec, model):
        task = draw_trial_task(spec, model)
        return task._replace(labels=task.tokens[:, 1] > 0)

    for task, there in ((by_first_token, False), (draw_trial_task, True)):
        result = run_trial(SPEC, parts=Parts(task=task))
        assert (result.built_head_accuracy is not None, result.built_prompt_accuracy is not None) == (there, there)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_model_whose_start_never_comes_again_runs_a_trial(dtype, tmp_path):
    def fitted(spec):
        rows = [1.0, 0.0, 0.0], [[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [[0.25] * 4] * 3
        return HMM.from_rows(*rows).to(dtype=dtype)

    assert fitted(SPEC).n_states == 4, "a state is added, which is H_0 alone"
    result = run_trial(SPEC, also=["exact_prompt_accuracy"], parts=Parts(model=fitted))
    assert result.ladder_prompt_accuracy is result.built_prompt_accuracy is result.exact_prompt_accuracy is None
    assert result.ladder_head_accuracy > 0
    assert result.prompt_accuracy > 0
    save_result(result, tmp_path)


def test_what_own_parts_give_is_checked_before_the_network_is_pretrained():
    def no_network(spec, model):
        raise AssertionError("it was asked for")

    for name, wanted in (("model", "HMM or MemoryHMM"), ("task", "Task")):
        with pytest.raises(TypeError, match=f"what Parts.{name} gives must be of type {wanted}, not int"):
            run_trial(SPEC, parts=Parts(**{"network": no_network, name: lambda *given: 3}))
    with pytest.raises(TypeError, match=r"what Parts.tuner gives must be of type Tuned, not int"):
        run_trial(SPEC, parts=Parts(tuner=lambda *given: 3))


def test_a_causal_model_with_the_mask_behind_the_text_reads_what_follows_it():
    network, tokens = tiny_networks.model("GPT2LMHeadModel"), tiny_networks.inputs(30, 7)
    reader = FromTransformers(network, tiny_networks.TOKENS, before=[tiny_networks.CLS], mask_behind=True)
    with warnings.catch_warnings(action="error"):
        found, everywhere = tuning.all_probs_at_mask(reader, tokens), tuning.all_probs(reader, tokens)
    ids = torch.tensor(tiny_networks.TOKENS)
    text = torch.cat([torch.full((30, 1), tiny_networks.CLS), ids[tokens[:, 1:]]], 1)
    predicted = network(text).logits[..., ids].softmax(-1)
    torch.testing.assert_close(found, predicted[:, -1])
    torch.testing.assert_close(everywhere, predicted.roll(1, 1))
    states = network(text, output_hidden_states=True).hidden_states
    hidden = tuning.all_hidden_at_mask(reader, tokens)
    torch.testing.assert_close(hidden, torch.stack([state[:, -1] for state in states]))
    prompt, _ = tuning.tune_prompt(reader, tokens, tokens[:, -1] > 1, 2, tuning.Tuning(1, 10, 0.1, 0.1), 0)
    assert (reader.probs(tokens, prompt=prompt) - found).abs().max() > 1e-3
    plain = FromTransformers(network, tiny_networks.TOKENS, before=[tiny_networks.CLS])
    how = random_hmm(3, 4, 0), 9, 7, 0.3, 0
    assert readers.masked_losses(reader, *how) == readers.masked_losses(plain, *how)
    with pytest.warns(UserWarning, match=r"read it with FromTransformers\(…, mask_behind=True\)"):
        tuning.all_probs_at_mask(plain, tokens)
    tokens[0, -1] = readers.PAD
    with pytest.raises(ValueError, match="tokens may have no PAD where MASK is moved"):
        reader.probs(tokens)


def test_what_a_reader_cannot_read_or_train_is_refused_in_its_own_words():
    for at in (-1, 6):
        with pytest.raises(ValueError, match=f"at must be an integer from 0 to 5, not {at}"):
            readers.Reader(tiny_networks.lively()).probs(tiny_networks.inputs(), at)
    headless = tiny_networks.model("BertForMaskedLM").bert
    with pytest.raises(TypeError, match="module must have a head over its vocabulary, as BertModel has not"):
        FromTransformers(headless, tiny_networks.TOKENS, tiny_networks.MASK_ID)
    other = FromTransformers(tiny_networks.model("GPT2LMHeadModel"), tiny_networks.TOKENS)
    with pytest.raises(TypeError, match="reads others, which are trained with tools of their own"):
        hmmlib.pretrain(other, random_hmm(3, 4, 0), hmmlib.Pretraining(), 0)


def test_a_head_predicts_and_scores_and_a_result_prints_in_a_line():
    probs, labels = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), [True, False, False]
    head = hmmlib.LinearHead([1.0, -1.0])
    assert head.predict(probs).tolist() == [True, False, True]
    assert head.score(probs, labels) == tuning.accuracy(head, probs, torch.tensor(labels)) == pytest.approx(2 / 3)
    printed = repr(load_results("smoke", STORE)[0])
    assert re.fullmatch(r"TrialResult\(smoke, n_states=\d+, seed=\d+: head_accuracy=0\.\d+, prompt_.*\)", printed)
    assert len(printed) < 160


def test_large_presets_without_a_gpu_say_so(tmp_path):
    told, how = [], dict(store=tmp_path, device="cpu", until=0.0)
    run_missing([TrialSpec("paper")], log=told.append, **how)
    assert told == ["paper is for a GPU, and this runs on a CPU: a trial takes hours or days there"]
    run_missing([SPEC.replace(own="")], log=pytest.fail, **how)


def test_stored_results_are_exported_as_a_table(call, tmp_path):
    save_result(load_results("smoke", STORE)[0], tmp_path)
    for preset in ("gpu", "smoke"):
        file, words = tmp_path / f"{preset}.csv", ["--preset", preset, "--store", tmp_path]
        assert call("export", file, *words)[0] == 0
        written, read = pd.read_csv(file), results(preset, tmp_path)
        assert list(written) == list(read)
        assert written.head_accuracy.tolist() == read.head_accuracy.tolist()
    usage_error(call("export", tmp_path / "all.txt"), "FILE must end in .csv or .parquet, not 'all.txt'")


def test_parts_that_do_not_fit_the_spec_or_other_processes_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"what Parts.model gives has 4 tokens, n_tokens is 5"):
        run_trial(SPEC.replace(n_tokens=5), parts=Parts(model=own_model))
    specs = grid("smoke", n_states=(2, 3), own="mine")
    with pytest.raises(ValueError, match=r"with several workers, parts.model must stand in a module"):
        run_missing(specs, tmp_path, workers=2, parts=Parts(model=lambda spec: None))
    wrong = (dict(n_state=2), "field must be one of"), (dict(steps=[]), "steps must have at least one value")
    for fields, words in (*wrong, (dict(seed=[1, 2]), "seed counts up from first_seed")):
        with pytest.raises(ValueError, match=words):
            grid("smoke", **fields)
