"""What peft adds to a network, tuned beside our prompt: as its own call says, on a copy, and it learns."""

import sys

import peft
import pytest
import torch
from tiny_networks import inputs, lively

from hmmlib.training import bert
from hmmlib.training.adapters import TUNERS, peft_config, tune, tune_with_peft
from hmmlib.training.tuning import Tuning, accuracy, all_probs_at_mask, initial_prompt, tune_head

PLAN = Tuning(60, 20, 0.3, 0.05)
TOKENS = inputs(120)
LABELS = (TOKENS[:, 1] + TOKENS[:, 2]) % 2 == 0  # no head on the guesses of a network with fresh weights sees that
CONFIGS = {
    "prompt": peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3),
    "prefix": peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3),
    "lora": peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=4, target_modules=["query", "value"]),
}


def loss(tuned):
    score = tuned.head(tuned.probs(TOKENS))
    return torch.nn.functional.binary_cross_entropy_with_logits(score, LABELS.to(score)).item()


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_tuned_is_what_pefts_own_call_says_and_the_network_stays(name):
    network = lively()
    before = bert.fingerprint(network)
    tuned = tune_with_peft(network, TOKENS, LABELS, CONFIGS[name], Tuning(2, 20, 0.3, 0.05), 0)
    assert bert.fingerprint(network) == before
    assert not any("lora" in key for key in network.state_dict())
    ids = torch.where(TOKENS < 0, 4, TOKENS)
    with torch.no_grad():
        logits = tuned.network.module(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    place = logits.shape[1] - ids.shape[1]
    assert place == (3 if name == "prompt" else 0)
    torch.testing.assert_close(tuned.probs(TOKENS), logits[:, place, :4].softmax(-1), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(tuned.probs(TOKENS), all_probs_at_mask(network, TOKENS), atol=1e-3)


@pytest.mark.parametrize("name", CONFIGS)
def test_it_learns_what_a_head_alone_does_not(name):
    network = lively()
    alone = tune_head(all_probs_at_mask(network, TOKENS), LABELS, PLAN, 0)
    tuned = tune_with_peft(network, TOKENS, LABELS, CONFIGS[name], PLAN, 0)
    score = alone(all_probs_at_mask(network, TOKENS))
    head_alone = torch.nn.functional.binary_cross_entropy_with_logits(score, LABELS.to(score)).item()
    assert loss(tuned) < head_alone - 0.01


@pytest.mark.parametrize("tuner", TUNERS)
def test_a_tuner_by_name_is_repeatable_and_its_seed_matters(tuner):
    network, plan = lively(), Tuning(2, 20, 0.3, 0.05)
    one, again, other = (tune(tuner, network, TOKENS, LABELS, plan, seed, length=3, rank=2) for seed in (1, 1, 2))
    assert torch.equal(one.probs(TOKENS), again.probs(TOKENS))
    assert torch.equal(one.head.weights, again.head.weights)
    assert not torch.equal(one.probs(TOKENS), other.probs(TOKENS))
    assert (one.prompt is not None) is (tuner == "prompt")
    assert 0 <= accuracy(one.head, one.probs(TOKENS), LABELS) <= 1


def test_our_prompt_by_name_is_our_prompt():
    network, plan = lively(), Tuning(1, 20, 1e-12, 1e-12)
    tuned = tune("prompt", network, TOKENS, LABELS, plan, 3, length=2)
    assert tuned.network is network
    torch.testing.assert_close(tuned.prompt, initial_prompt(network, 2, 3), atol=1e-9, rtol=0)


def test_names_and_what_is_missing(monkeypatch):
    with pytest.raises(ValueError, match=r"^tuner must be one of prompt, prefix, lora, not 'adapter'$"):
        tune("adapter", lively(), TOKENS, LABELS, PLAN, 0)
    with pytest.raises(ValueError, match=r"^rank must be"):
        peft_config("lora", 3, 0)
    with pytest.raises(TypeError, match=r"^config must be of type PeftConfig, not str$"):
        tune_with_peft(lively(), TOKENS, LABELS, "lora", PLAN, 0)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hmmlib\[adapters\]'"):
        peft_config("lora", 3, 2)
