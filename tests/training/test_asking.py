"""How a network reads is asked by gradients and by outputs, in short and longer texts, and asking changes nothing."""

import copy

import pytest
import torch
import transformers
from tiny_networks import CLS, CONFIGURATION, MASK_ID, SEP, TOKENS, inputs, spread
from torch import nn
from torch.nn import functional as F
from transformers import BertForMaskedLM

from hmmlib import FromTransformers, Tuning, random_hmm, tune, tune_prompt
from hmmlib.training.from_transformers import PAD
from hmmlib.training.readers import masked_losses
from hmmlib.training.tuning import all_hidden_at_mask, all_probs, all_probs_at_mask

TEXTS = inputs(20)
LABELS = TEXTS[:, 1] >= 2
PLAN = Tuning(epochs=2, batch=10)
SMALL = CONFIGURATION | {"max_position_embeddings": 64}


class InBlocks(BertForMaskedLM):
    """Attention within blocks of four places."""

    def forward(self, input_ids=None, attention_mask=None, **options):
        block = torch.arange(input_ids.shape[1]) // 4
        seen = (block[:, None] == block)[None, None] & attention_mask.bool()[:, None, None]
        bias = torch.where(seen, 0.0, -1e9)
        return super().forward(input_ids, attention_mask=bias, **options)


class WithoutGradient(BertForMaskedLM):
    """Places that see others without a gradient."""

    def forward(self, input_ids=None, **options):
        output = super().forward(torch.zeros_like(input_ids), **options)
        embeddings = self.get_input_embeddings()(input_ids)
        output.logits = self.cls(embeddings + embeddings.detach().amax(1, keepdim=True))
        return output


class WithHugeLogit(BertForMaskedLM):
    """A network that reads ids besides their embeddings, and has one logit of any size."""

    def forward(self, input_ids=None, **options):
        output = super().forward(input_ids, **options)
        shift = input_ids.cumsum(1).sin().unsqueeze(-1)
        output.logits = output.logits + 5 * shift * torch.arange(40).cos()
        output.logits[..., TOKENS[0]] = self.config.huge
        return output


class OwnLookup(BertForMaskedLM):
    """A network that does not call its own embedding."""

    def forward(self, input_ids=None, **options):
        vectors = F.embedding(input_ids, self.get_input_embeddings().weight)
        return super().forward(inputs_embeds=vectors, **options)


class Merging(nn.Linear):
    """As in loralib, what was tuned is added to the weights where the mode is set to evaluation."""

    def train(self, mode=True):
        super().train(mode)
        self.weight.data += -0.5 if mode else 0.5
        return self


def made(kind, **changed):
    torch.manual_seed(0)
    config = kind.config_class(**SMALL | changed)
    return spread(kind(config), 8)


def read(network, **options):
    return FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP], **options)


# What is seen


@pytest.mark.parametrize("network", [made(BertForMaskedLM, max_position_embeddings=2), made(InBlocks)])
def test_a_network_is_masked_if_any_place_sees_a_later_one(network):
    assert FromTransformers(network, TOKENS, MASK_ID).causal is False


def test_what_has_no_gradient_is_seen_by_comparing_outputs():
    reader = read(made(WithoutGradient))
    assert reader.causal is False
    with pytest.raises(ValueError, match="prompt must not be trained, because no gradient passes between"):
        tune_prompt(reader, TEXTS, LABELS, 2, PLAN, 0)


def test_a_network_made_for_inference_is_read():
    with torch.inference_mode():
        network = made(BertForMaskedLM)
    expected = all_probs(read(made(BertForMaskedLM)), TEXTS)
    torch.testing.assert_close(all_probs(read(network), TEXTS), expected)


def test_a_recurrent_network_without_a_gradient_is_read():
    config = transformers.RwkvConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, context_length=32)
    reader = read(spread(transformers.RwkvForCausalLM(config), 4))
    assert reader.causal is True


def test_a_network_whose_configuration_asks_for_tuples_is_read():
    network = made(BertForMaskedLM)
    expected = all_probs(read(network), TEXTS)
    network.config.return_dict = False
    assert torch.equal(all_probs(read(network), TEXTS), expected)


@pytest.mark.parametrize("huge", [-1e9, float("-inf"), torch.finfo(torch.float32).min])
def test_one_huge_logit_does_not_hide_that_ids_are_read(huge):
    assert read(made(WithHugeLogit, huge=huge)).reading.takes_vectors is False


def test_large_logits_in_float16_can_be_asked():
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50257, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    network = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        network.transformer.wte.weight[:, 0] += 1
        network.transformer.ln_f.bias[0] = -150
    network = network.half()
    assert network(torch.tensor([[7, 9]])).logits.isfinite().all()
    assert read(network).causal is True


# Padding


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("EsmForMaskedLM", {"token_dropout": True, "mask_token_id": MASK_ID}),
        (
            "Phi3ForCausalLM",
            {
                "original_max_position_embeddings": 8,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 100.0,
                    "short_factor": [1.0] * 4,
                    "long_factor": [4.0, 6.0, 8.0, 10.0],
                },
            },
        ),
    ],
)
def test_padding_that_is_read_as_masks_or_in_longer_texts_is_refused(name, changed):
    padded = TEXTS.clone()
    padded[0, -1] = PAD
    reader = read(made(getattr(transformers, name), **changed))
    with pytest.raises(ValueError, match=f"tokens may have no PAD, because {name} reads it"):
        reader.probs(padded, 1)


def test_the_id_that_stands_for_padding_is_the_one_that_is_asked_with():
    network = made(transformers.EsmForMaskedLM, token_dropout=True, mask_token_id=MASK_ID)
    assert read(network).reading.sees_padding is True
    assert read(network, pad=0).reading.sees_padding is False


def test_254_without_a_sign_is_a_token():
    reader = FromTransformers(made(BertForMaskedLM, vocab_size=300), range(256), mask=299)
    tokens = torch.tensor([[0, 254, 255]])
    assert torch.equal(reader.probs(tokens.to(torch.uint8), 1), reader.probs(tokens, 1))


# A network stays as it was


def test_bigbird_keeps_its_attention():
    network = made(transformers.BigBirdForMaskedLM, attention_type="block_sparse", block_size=2, num_random_blocks=1)
    ids = torch.tensor([TOKENS * 10])
    expected = network(ids).logits
    read(network)
    assert network.bert.attention_type == "block_sparse"
    assert torch.equal(network(ids).logits, expected)


def test_a_recurrent_network_can_be_copied_after_it_was_asked():
    network = made(
        transformers.RecurrentGemmaForCausalLM,
        num_key_value_heads=2,
        lru_width=16,
        block_types=["recurrent", "attention"],
    )
    read(network)
    copy.deepcopy(network)


def test_weights_that_change_with_the_mode_are_as_before():
    network = made(BertForMaskedLM)
    network.cls.predictions.transform.dense = Merging(16, 16)
    network.train()
    before = network.cls.predictions.transform.dense.weight.clone()
    all_probs(read(network), TEXTS)
    assert torch.equal(network.cls.predictions.transform.dense.weight, before)


def test_what_reads_or_tunes_a_network_leaves_its_modes():
    network = made(BertForMaskedLM).train()
    network.cls.eval()
    modes = [part.training for part in network.modules()]
    reader = read(network)

    def fail():
        raise KeyError

    def tuning_that_fails():
        with pytest.raises(KeyError):
            tune_prompt(reader, TEXTS, LABELS, 2, PLAN, 0, before_step=fail)

    for work in [
        lambda: tune_prompt(reader, TEXTS, LABELS, 2, PLAN, 0),
        tuning_that_fails,
        lambda: tune("lora", reader, TEXTS, LABELS, PLAN, 0),
        lambda: all_probs(reader, TEXTS),
        lambda: all_probs_at_mask(reader, TEXTS),
        lambda: all_hidden_at_mask(reader, TEXTS),
        lambda: masked_losses(reader, random_hmm(3, 4, 0), 4, 8, 0.3, 0),
    ]:
        work()
        assert [part.training for part in network.modules()] == modes


def test_a_network_that_is_compiled_later_reads_each_prompt():
    network = made(BertForMaskedLM)
    reader = read(network)
    prompts = [torch.zeros(2, 16), torch.ones(2, 16)]
    expected = [reader.probs(TEXTS, prompt=prompt) for prompt in prompts]
    network.compile(backend="eager")
    for length in (3, 4, 6):  # From the second length on, a compiled network takes any length.
        reader.probs(TEXTS[:, :length])
    for prompt, probs in zip(prompts, expected, strict=True):
        torch.testing.assert_close(reader.probs(TEXTS, prompt=prompt), probs)


# What cannot be read


def test_a_network_that_does_not_call_its_embedding_is_refused():
    with pytest.raises(TypeError, match="vectors do not enter OwnLookup, because it does not call its own embedding"):
        read(made(OwnLookup))


def test_xlnet_whose_embeddings_have_another_order_is_refused():
    config = transformers.XLNetConfig(vocab_size=40, d_model=16, n_layer=1, n_head=2, d_inner=32)
    message = r"XLNetLMHeadModel cannot be read: its embeddings do not enter it in the order \(n, L, width\)"
    with pytest.raises(TypeError, match=message):
        read(transformers.XLNetLMHeadModel(config))


def test_a_network_that_gives_no_number_is_refused():
    network = made(BertForMaskedLM)
    network.cls.predictions.bias.data.fill_(torch.nan)
    with pytest.raises(TypeError, match="BertForMaskedLM cannot be read: its output is not a number"):
        read(network)


def test_hidden_states_with_another_dimension_are_refused_by_name():
    config = transformers.Gemma3nTextConfig(
        **SMALL
        | {
            "vocab_size_per_layer_input": 40,
            "hidden_size_per_layer_input": 4,
            "num_kv_shared_layers": 0,
            "layer_types": ["full_attention"] * 2,
            "activation_sparsity_pattern": None,
            "laurel_rank": 4,
        }
    )
    reader = read(transformers.Gemma3nForCausalLM(config).eval())
    with pytest.raises(ValueError, match=r"hidden states of shape \(n, L, width\) .* but Gemma3nForCausalLM does not"):
        reader.hidden(reader.embed(TEXTS), 3)


def test_prophetnets_longest_text_is_read():
    config = transformers.ProphetNetConfig(
        vocab_size=40,
        hidden_size=16,
        num_decoder_layers=1,
        num_decoder_attention_heads=2,
        decoder_ffn_dim=32,
        max_position_embeddings=32,
        pad_token_id=0,
    )
    reader = FromTransformers(transformers.ProphetNetForCausalLM(config).eval(), TOKENS)
    assert reader.longest == 30
    longest = torch.zeros(1, reader.longest, dtype=torch.long)
    assert reader.probs(longest, 1).isfinite().all()
