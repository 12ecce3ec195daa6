"""What peft adds to a network, tuned beside a soft prompt: as its own call has it, on a copy, and it learns."""

import sys

import peft
import pytest
import torch
from tiny_networks import CLS, MASK_ID, MODELS, SEP, inputs, lively, model
from tiny_networks import TOKENS as IDS

from hmmlib.training import bert
from hmmlib.training.adapters import TUNERS, peft_config, tune, tune_with_peft
from hmmlib.training.readers import FromTransformers
from hmmlib.training.tuning import Tuning, all_probs_at_mask, initial_prompt, tune_head

PLAN, SHORT = Tuning(60, 20, 0.3, 0.05), Tuning(2, 20, 0.3, 0.05)
TOKENS = inputs(120)
LABELS = (TOKENS[:, 1] + TOKENS[:, 2]) % 2 == 0  # no head on the outputs of a network with fresh weights sees that
CONFIGS = {
    "prompt": peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3),
    "prefix": peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3),
    "lora": peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=4, target_modules=["query", "value"]),
}
NO_PREFIX = ["MPNetForMaskedLM", "DistilBertForMaskedLM", "AlbertForMaskedLM", "ModernBertForMaskedLM"]


def loss(head, probs):
    score = head(probs)
    return torch.nn.functional.binary_cross_entropy_with_logits(score, LABELS.to(score)).item()


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_tuned_is_what_pefts_own_call_gives_and_the_network_stays(name):
    network = lively()
    before = bert.fingerprint(network)
    tuned = tune_with_peft(network, TOKENS, LABELS, CONFIGS[name], SHORT, 0)
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
    probs = all_probs_at_mask(lively(), TOKENS)
    tuned = tune_with_peft(lively(), TOKENS, LABELS, CONFIGS[name], PLAN, 0)
    assert loss(tuned.head, tuned.probs(TOKENS)) < loss(tune_head(probs, LABELS, PLAN, 0), probs) - 0.01


@pytest.mark.parametrize("tuner", TUNERS)
def test_a_tuner_by_name_is_repeatable_and_its_seed_matters(tuner):
    network = lively()
    one, again, other = (tune(tuner, network, TOKENS, LABELS, SHORT, seed, length=3, rank=2) for seed in (1, 1, 2))
    assert torch.equal(one.probs(TOKENS), again.probs(TOKENS))
    assert torch.equal(one.head.weights, again.head.weights)
    assert not torch.equal(one.probs(TOKENS), other.probs(TOKENS))
    assert (one.prompt is not None) is (tuner == "prompt")


def test_a_prompt_by_name_is_the_soft_prompt():
    network = lively()
    tuned = tune("prompt", network, TOKENS, LABELS, Tuning(1, 20, 1e-12, 1e-12), 3, length=2)
    assert tuned.network is network
    torch.testing.assert_close(tuned.prompt, initial_prompt(network, 2, 3), atol=1e-9, rtol=0)


@pytest.mark.filterwarnings("ignore:a causal model:UserWarning")
@pytest.mark.parametrize("tuner", TUNERS)
@pytest.mark.parametrize("name", MODELS)
def test_every_tuner_works_on_other_networks_or_says_which_do(name, tuner):
    """What is read is what the module's own call on ids gives, with what was added, RoBERTa's positions too."""
    network = model(name)
    next(network.parameters()).requires_grad_(False)
    trained = [weight.requires_grad for weight in network.parameters()]
    reader = FromTransformers(network, IDS, MASK_ID, before=[CLS], behind=[SEP])
    arguments = tuner, reader, TOKENS, LABELS, SHORT, 0, 3
    if tuner == "prefix" and name in NO_PREFIX:
        with pytest.raises(
            ValueError, match=f"tuner must be prompt or lora for {name}, which takes no keys and values"
        ):
            tune(*arguments)
        return
    tuned, before = tune(*arguments), all_probs_at_mask(reader, TOKENS)
    assert [weight.requires_grad for weight in network.parameters()] == trained
    assert reader.causal or not torch.allclose(tuned.probs(TOKENS), before, atol=1e-3)
    if tuner != "prompt":
        ids, attended = reader.input_ids(TOKENS)
        with torch.no_grad():
            logits = tuned.network.module(input_ids=ids, attention_mask=attended.long()).logits[:, 1 - reader.causal]
        torch.testing.assert_close(tuned.probs(TOKENS), logits[:, IDS].softmax(-1), rtol=1e-4, atol=1e-6)
    longest = reader.longest - 3 * (tuner == "prefix")
    assert tuned.network.longest == longest if tuner != "prompt" else tuned.network is reader


def test_errors_name_what_is_accepted(monkeypatch):
    with pytest.raises(ValueError, match=r"^tuner must be one of prompt, prefix, lora, not 'adapter'$"):
        tune("adapter", lively(), TOKENS, LABELS, PLAN, 0)
    with pytest.raises(ValueError, match=r"^rank must be an integer of 1 or more, not 0$"):
        peft_config("lora", lively(), 3, 0)
    with pytest.raises(
        ValueError, match=r"^tuner must be prompt for Linear, not lora: it has none of query and value; q_p"
    ):
        peft_config("lora", torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"^config must be of type PeftConfig, not str$"):
        tune_with_peft(lively(), TOKENS, LABELS, "lora", PLAN, 0)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hmmlib\[adapters\]'"):
        peft_config("lora", lively(), 3, 2)
