"""Networks of `transformers` are asked how they read, so that none is read wrongly because of its name or its type."""

import peft
import pytest
import torch
import transformers
from tiny_networks import CLS, CONFIGURATION, MASK_ID, SEP, TOKENS, inputs, lively, model, spread
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from hmmlib import FromTransformers, Tuning, tune, tune_prompt
from hmmlib.training import bert
from hmmlib.training.adapters import tune_with_peft
from hmmlib.training.fitting import fit
from hmmlib.training.from_transformers import PAD
from hmmlib.training.tuning import all_hidden_at_mask, all_probs, all_probs_at_mask, initial_prompt

TEXTS = inputs(20)
LABELS = TEXTS[:, 1] >= 2
PLAN = Tuning(epochs=2, batch=10, head_rate=0.3, prompt_rate=0.05)
MASKED = ["BertForMaskedLM", "XLMWithLMHeadModel", "RobertaForMaskedLM", "RemBertForMaskedLM", "FNetForMaskedLM"]
CAUSAL = ["GPT2LMHeadModel", "GemmaForCausalLM", "OPTForCausalLM", "BartForCausalLM", "CTRLLMHeadModel"]
HALVES = [torch.bfloat16, torch.float16]


class ReadsIds(BertForMaskedLM):
    """A network whose output depends on ids, and not on their embeddings alone."""

    def forward(self, input_ids=None, **options):
        output = super().forward(input_ids, **options)
        output.logits = output.logits + input_ids.cumsum(1).sin().unsqueeze(-1)
        output.logits[..., 0] += input_ids.sum()
        return output


class WithUnusedPart(BertForMaskedLM):
    """A network with a matrix that its output does not depend on."""

    def __init__(self, config):
        super().__init__(config)
        self.unused = nn.Linear(2, 2)


class WithZeroGradient(WithUnusedPart):
    """A network with a matrix whose gradient is zero everywhere."""

    def forward(self, *inputs, **options):
        output = super().forward(*inputs, **options)
        output.logits = output.logits + 0 * self.unused(torch.ones(2)).sum()
        return output


def bert_of(kind):
    torch.manual_seed(0)
    return spread(kind(BertConfig(**CONFIGURATION)), 8)


def ids_of(texts):
    """The input ids of texts without padding, with CLS before and SEP behind."""
    ids = torch.tensor([*TOKENS, MASK_ID])[texts]
    before = torch.full((len(texts), 1), CLS)
    behind = torch.full((len(texts), 1), SEP)
    return torch.cat([before, ids, behind], 1)


def framed(network, **options):
    return FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP], **options)


# Causal or masked


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("name", MASKED + CAUSAL)
def test_a_network_is_causal_if_no_token_changes_what_stands_before_it(name, dtype):
    if name == "FNetForMaskedLM" and dtype != torch.float32:
        return  # Its Fourier transform has no 16 bits.
    network = model(name).to(dtype)
    reader = framed(network)
    ids = ids_of(TEXTS)
    changed = ids.clone()
    changed[:, -1] = CLS
    with torch.no_grad():
        logits = network(input_ids=ids).logits
        logits_of_changed = network(input_ids=changed).logits
    changes_what_was_before = not torch.equal(logits[:, :-1], logits_of_changed[:, :-1])
    assert reader.causal is (name in CAUSAL)
    assert changes_what_was_before is (name in MASKED)
    place = 3 if reader.causal else 4
    expected = logits[:, place, TOKENS].float().softmax(-1)
    torch.testing.assert_close(reader.probs(TEXTS, 3), expected, rtol=1e-4, atol=1e-5)


def test_a_network_made_causal_by_its_configuration_is_causal():
    for is_decoder in (False, True):
        config = BertConfig(**CONFIGURATION, is_decoder=is_decoder)
        reader = framed(transformers.BertLMHeadModel(config))
        assert reader.causal is is_decoder


def test_what_a_user_says_of_a_network_must_be_what_it_shows():
    assert FromTransformers(model("GPT2LMHeadModel"), TOKENS, causal=True).causal
    message = "causal must be True, not False, because GPT2LMHeadModel sees nothing behind a token"
    with pytest.raises(ValueError, match=message):
        FromTransformers(model("GPT2LMHeadModel"), TOKENS, MASK_ID, causal=False)
    message = "causal must be False, not True, because XLMWithLMHeadModel sees a place behind a token"
    with pytest.raises(ValueError, match=message):
        FromTransformers(model("XLMWithLMHeadModel"), TOKENS, MASK_ID, causal=True)


def test_a_network_in_which_no_token_depends_on_another_is_causal_if_a_user_says_so():
    network = model("GPT2LMHeadModel")
    for block in network.transformer.h:
        nn.init.zeros_(block.attn.c_proj.weight)
    with pytest.raises(ValueError, match="causal must be True or False, because no token of GPT2LMHeadModel depends"):
        FromTransformers(network, TOKENS)
    assert FromTransformers(network, TOKENS, causal=True).causal


def test_asking_leaves_a_network_as_it_was():
    network = bert_of(BertForMaskedLM).train()
    network.cls.eval()
    network.bert.embeddings.word_embeddings.weight.requires_grad_(False)
    weights = bert.fingerprint(network)
    modes = [part.training for part in network.modules()]
    state = torch.get_rng_state()
    with torch.inference_mode():
        framed(network)
    assert bert.fingerprint(network) == weights
    assert [part.training for part in network.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for parameter in network.parameters():
        assert parameter.grad is None
    frozen = [parameter for parameter in network.parameters() if not parameter.requires_grad]
    assert len(frozen) == 1


# What cannot be read


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("T5ForConditionalGeneration", "it has an encoder and a decoder"),
        ("BartForConditionalGeneration", "it has an encoder and a decoder"),
        ("BertModel", "it has no head over its vocabulary"),
        ("BertForPreTraining", "it has no head over its vocabulary"),
        ("ElectraForPreTraining", "it has no head over its vocabulary"),
        ("BertForSequenceClassification", "it has no head over its vocabulary"),
        ("LxmertForPreTraining", "`visual_feats` cannot be `None`"),
    ],
)
def test_a_network_that_cannot_be_read_is_refused_by_name_at_once(name, reason):
    message = f"^module must be a masked or causal language model .* but {name} cannot be read: {reason}"
    with pytest.raises(TypeError, match=message):
        FromTransformers(model(name), TOKENS, MASK_ID)


def test_what_is_no_language_model_is_refused():
    for name, network in [("Linear", nn.Linear(2, 2)), ("CanineModel", model("CanineModel"))]:
        with pytest.raises(TypeError, match=f"module must be a language model of transformers, not {name}"):
            FromTransformers(network, TOKENS, MASK_ID)


def test_hidden_states_of_several_shapes_are_refused_by_name():
    config = transformers.FunnelConfig(
        vocab_size=40, block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=16, num_decoder_layers=1
    )
    reader = framed(transformers.FunnelForMaskedLM(config))
    all_probs(reader, TEXTS)
    with pytest.raises(ValueError, match=r"network must give hidden states .* but FunnelForMaskedLM does not"):
        all_hidden_at_mask(reader, TEXTS)


@pytest.mark.parametrize("name", ["FNetForMaskedLM", "ConvBertForMaskedLM"])
def test_padding_is_refused_where_a_network_reads_it(name):
    reader = framed(model(name))
    reader.probs(TEXTS)
    padded = TEXTS.clone()
    padded[0, -1] = PAD
    with pytest.raises(ValueError, match=f"tokens may have no PAD, because {name} reads it"):
        reader.probs(padded)


@pytest.mark.parametrize(
    ("name", "positions"), [("XLMWithLMHeadModel", 24), ("OPTForCausalLM", 24), ("CTRLLMHeadModel", 24)]
)
def test_the_longest_text_fills_a_networks_positions(name, positions):
    reader = framed(model(name))
    assert reader.longest == positions
    longest = torch.zeros(1, positions - 2, dtype=torch.long)
    assert reader.probs(longest, 1).isfinite().all()


def test_the_longest_text_of_mpt_is_that_of_its_configuration():
    config = transformers.MptConfig(d_model=16, n_heads=2, n_layers=1, vocab_size=40, max_seq_len=9)
    reader = framed(transformers.MptForCausalLM(config))
    reader.probs(TEXTS, 1)
    with pytest.raises(ValueError, match="tokens need 10 positions, but the network has 9"):
        reader.probs(inputs(2, 8))


# Prompts


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, "EsmForMaskedLM", "LongformerForMaskedLM"])
@torch.no_grad()
def test_a_prompt_of_embeddings_is_read_as_the_ids_before_the_text(name):
    network = model(name)
    reader = framed(network)
    prompt_ids = torch.tensor([13, 22, 31])
    prompt = network.get_input_embeddings()(prompt_ids)
    ids = torch.cat([prompt_ids.expand(len(TEXTS), -1), ids_of(TEXTS)], 1)
    place = 3 + 1 + 2 - (1 if reader.causal else 0)
    expected = network(input_ids=ids).logits[:, place, TOKENS].softmax(-1)
    torch.testing.assert_close(reader.probs(TEXTS, 2, prompt), expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(reader.words[prompt_ids], prompt)


def test_a_prompt_of_words_has_the_units_of_the_text():
    network = model("GemmaForCausalLM")
    prompt = initial_prompt(framed(network), 40, 0, "vocabulary")
    embeddings = network.get_input_embeddings()(torch.arange(40))
    torch.testing.assert_close(prompt.norm(), embeddings.norm())


def test_a_network_that_reads_ids_otherwise_takes_no_prompt():
    reader = framed(bert_of(ReadsIds))
    reader.probs(TEXTS)
    with pytest.raises(ValueError, match="prompt must be None, because ReadsIds reads more of an id than"):
        tune_prompt(reader, TEXTS, LABELS, 2, PLAN, 0)


# What is tuned must change the output


def test_a_prefix_that_a_network_does_not_read_is_refused():
    with pytest.raises(ValueError, match=r"^config must be one .* RemBertForMaskedLM .*PrefixTuningConfig"):
        tune("prefix", framed(model("RemBertForMaskedLM")), TEXTS, LABELS, PLAN, 0, 3)


@pytest.mark.parametrize("kind", [WithUnusedPart, WithZeroGradient])
def test_what_is_added_to_an_unread_part_is_refused(kind):
    config = peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2, target_modules=["unused"])
    with pytest.raises(ValueError, match=f"config must be one that {kind.__name__} reads, but its output"):
        tune_with_peft(framed(bert_of(kind)), TEXTS, LABELS, config, PLAN, 0)


def test_what_is_trained_besides_a_head_must_change_the_scores():
    weights = nn.Parameter(torch.zeros(4))
    unread = nn.Parameter(torch.zeros(3))
    probs = torch.full((20, 4), 0.25)
    with pytest.raises(ValueError, match="also_trained must change the scores, but no gradient reaches it"):
        fit(lambda batch: batch @ weights, [weights], probs, LABELS, PLAN, 0, also_trained=[unread])


# Types of numbers


@pytest.mark.parametrize("tuner", ["prompt", "prefix", "lora"])
@pytest.mark.parametrize("dtype", [*HALVES, torch.float64])
@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel"])
def test_what_is_tuned_in_a_network_of_any_type_has_float32_or_better(name, dtype, tuner):
    network = model(name).to(dtype)
    reader = framed(network, mask_behind=name == "GPT2LMHeadModel")
    better = torch.float64 if dtype == torch.float64 else torch.float32
    tuned = tune(tuner, reader, TEXTS, LABELS, PLAN, 0, length=3, rank=2)
    probs = tuned.probs(TEXTS)
    assert tuned.head.weights.dtype == probs.dtype == better
    assert tuned.prompt is None or tuned.prompt.dtype == better
    assert (probs - all_probs_at_mask(reader, TEXTS)).abs().max() > 1e-3
    assert network.get_input_embeddings().weight.dtype == dtype


@pytest.mark.parametrize("dtype", [*HALVES, torch.float64])
def test_a_network_of_the_library_in_another_type_is_read_and_tuned(dtype):
    network = lively().to(dtype)
    better = torch.float64 if dtype == torch.float64 else torch.float32
    prompt, head = tune_prompt(network, TEXTS, LABELS, 3, PLAN, 0, "vocabulary")
    assert prompt.dtype == head.weights.dtype == better
    assert all_probs(network, TEXTS).dtype == better
    assert all_probs_at_mask(network, TEXTS, prompt).dtype == better
    assert all_hidden_at_mask(network, TEXTS, prompt).dtype == better
