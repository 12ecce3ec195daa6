"""Networks read at a place, whoever made them: the same numbers as the library's own call gives, and clear refusals."""

import warnings

import peft
import pytest
import torch
import transformers
from tiny_networks import CLS, MASK_ID, MODELS, SEP, TOKENS, inputs, lively, model

from hmmlib.training import bert
from hmmlib.training.readers import PAD, FromTransformers, Reader, as_reader
from hmmlib.training.tuning import Tuning, all_hidden_at_mask, all_probs, all_probs_at_mask, tune_prompt
from hmmlib.validation import MASK

TEXTS = torch.tensor([[MASK, 0, 1, 2, 3, 0], [2, MASK, 1, 1, PAD, PAD], [3, 2, MASK, PAD, PAD, PAD]])
CAUSAL = ["GPT2LMHeadModel", "LlamaForCausalLM"]
CLOSE = dict(rtol=1e-4, atol=1e-5)


def by_hand(tokens, length):
    """Input ids and attention mask of the texts, written out with [CLS] and [SEP]."""
    ids, attended = [], []
    for text in tokens.tolist():
        whole = [CLS, *(MASK_ID if token == MASK else TOKENS[token] for token in text if token != PAD), SEP]
        ids.append(whole + [0] * (length - len(whole)))
        attended.append([1] * len(whole) + [0] * (length - len(whole)))
    return torch.tensor(ids), torch.tensor(attended)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_predictions_and_hidden_states_are_those_of_the_models_own_call(name):
    network = model(name)
    reader = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP], pad=0)
    assert reader.causal is (name in CAUSAL)
    ids, attended = by_hand(TEXTS, 8)
    whole = network(input_ids=ids, attention_mask=attended, output_hidden_states=True)
    logits = whole.logits[..., TOKENS]
    expected = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], 1) if reader.causal else logits
    for at in range(6):
        rows = [k for k, text in enumerate(TEXTS) if text[at] != PAD]
        torch.testing.assert_close(reader.probs(TEXTS, at)[rows], expected[rows, 1 + at].softmax(-1), **CLOSE)
    probs = all_probs(reader, TEXTS)
    assert probs.shape == (3, 6, 4)
    torch.testing.assert_close(probs[:, 2], expected[:, 3].softmax(-1), **CLOSE)
    found = reader.hidden(reader.embed(TEXTS), 3)
    torch.testing.assert_close(found, torch.stack(whole.hidden_states)[:, :, 2 if reader.causal else 3], **CLOSE)
    if reader.causal:  # it sees what stands before, and nothing else
        other = TEXTS.clone()
        other[0, 3:] = 0
        torch.testing.assert_close(reader.probs(other, 3)[0], reader.probs(TEXTS, 3)[0])
        assert not torch.allclose(reader.probs(other, 4)[0], reader.probs(TEXTS, 4)[0], atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_padding_changes_nothing_and_the_mask_counts(name):
    reader = FromTransformers(model(name), TOKENS, MASK_ID, before=[CLS], behind=[SEP])
    alone = reader.probs(TEXTS[1:2, :4], 3)
    for padded in (TEXTS, torch.nn.functional.pad(TEXTS, (0, 5), value=PAD)):
        torch.testing.assert_close(reader.probs(padded, 3)[1:2], alone, **CLOSE)
    shown = TEXTS[1:2, :4].clone()
    shown[0, 1] = 0
    assert not torch.allclose(reader.probs(shown, 3), alone, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_text_may_be_as_long_as_the_positions_that_the_network_uses(name):
    """RoBERTa's begin at pad_token_id + 1: with more an index would be out of range, and no error of ours."""
    reader = FromTransformers(model(name), TOKENS, MASK_ID, before=[CLS])
    longest = 24 - {"RobertaForMaskedLM": 1, "MPNetForMaskedLM": 2}.get(name, 0)
    for tokens, prompt in ((longest - 1, 0), (longest - 5, 4)):
        prompt = torch.zeros(prompt, reader.width)
        assert reader.probs(torch.zeros(1, tokens, dtype=torch.long), 1, prompt).isfinite().all()
        with pytest.raises(ValueError, match=rf"tokens need {longest + 1} positions.*, but the network has {longest}"):
            reader.probs(torch.zeros(1, tokens + 1, dtype=torch.long), 1, prompt)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_at_the_first_place_sees_no_text_and_that_is_said(name):
    """Where nothing stands before the mask there is no hidden state: not that of the last token, which has seen all."""
    one = torch.tensor([[MASK, 0, 1, 2]])
    bare = FromTransformers(model(name), TOKENS, MASK_ID)
    with pytest.raises(ValueError, match="a causal model has no hidden state for the first place"):
        all_hidden_at_mask(bare, one)
    begun = FromTransformers(model(name), TOKENS, MASK_ID, before=[CLS])
    with pytest.warns(UserWarning, match="a causal model does not see the text behind the first token"):
        found = [all_hidden_at_mask(begun, text) for text in (one, torch.tensor([[MASK, 3, 3, 3]]))]
    assert torch.equal(*found)
    with pytest.warns(UserWarning, match="a causal model does not see"):
        all_probs_at_mask(begun, one)
    with pytest.warns(UserWarning, match="a causal model does not see"):
        tune_prompt(begun, one, torch.tensor([True]), 1, Tuning(1, 1, 0.1, 0.1), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        all_probs(begun, one)


def test_a_causal_model_is_known_by_its_name_with_what_peft_adds_too():
    adapted = peft.get_peft_model(
        model("GPT2LMHeadModel"),
        peft.LoraConfig(task_type="FEATURE_EXTRACTION", target_modules=["c_attn"], fan_in_fan_out=True),
    )
    assert FromTransformers(adapted, TOKENS).causal
    assert not FromTransformers(adapted, TOKENS, MASK_ID, causal=False).causal


def test_a_prompt_is_tuned_on_other_networks():
    network = model("RobertaForMaskedLM")
    reader, before = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP]), bert.fingerprint(network)
    tokens = torch.randint(0, 4, (60, 5), generator=torch.Generator().manual_seed(0))
    labels, losses = tokens[:, 3] >= 2, []
    for epochs in (1, 40):
        prompt, head = tune_prompt(reader, tokens, labels, 3, Tuning(epochs, 10, 0.3, 0.1), 0)
        score = head(reader.probs(tokens, 0, prompt))
        losses.append(torch.nn.functional.binary_cross_entropy_with_logits(score, labels.to(score)).item())
    assert losses[1] < losses[0]
    assert bert.fingerprint(reader) == before


def test_a_network_of_build_gives_the_same_through_either_reader():
    network, tokens = lively(), inputs()
    own, through = as_reader(network), FromTransformers(network, range(4), mask=4)
    assert isinstance(own, Reader)
    assert as_reader(through) is through
    prompt = torch.randn(2, own.width, generator=torch.Generator().manual_seed(0))
    for read in (all_probs_at_mask, all_hidden_at_mask):
        for more in ((), (prompt,)):
            torch.testing.assert_close(read(own, tokens, *more), read(through, tokens, *more), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(all_probs(own, tokens), all_probs(through, tokens), **CLOSE)


def test_a_prompt_stands_before_everything_and_is_attended_to():
    reader = FromTransformers(model("BertForMaskedLM"), TOKENS, MASK_ID, before=[CLS])
    found = reader.embed(TEXTS[1:2], torch.ones(2, 16))
    assert found.first == 3
    assert found.attended.tolist() == [[True] * 7 + [False] * 2]
    assert (found.vectors[:, :2] == 1).all()
    assert torch.equal(found.vectors[:, 2:], reader.embed(TEXTS[1:2]).vectors)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "cow", "field", "moos"]
    made = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", mask_token="[MASK]", pad_token="[PAD]"
    )


@torch.no_grad()
def test_ids_are_those_of_a_tokenizer():
    network, words = model("BertForMaskedLM"), ["cow", "moos", "field"]
    reader = FromTransformers.with_tokenizer(network, tokenizer(), words)
    asked = tokenizer()("[MASK] moos field", return_tensors="pt")
    logits = network(**{k: asked[k] for k in ("input_ids", "attention_mask")}).logits[:, 1, [5, 7, 6]]
    torch.testing.assert_close(reader.probs(torch.tensor([[MASK, 1, 2]])), logits.softmax(-1), **CLOSE)
    with pytest.raises(ValueError, match="words must be of the tokenizer's vocabulary, as 'horse' is not"):
        FromTransformers.with_tokenizer(network, tokenizer(), ["cow", "horse"])


def test_other_networks_are_refused_with_what_to_do():
    with pytest.raises(TypeError, match=r"not BertForMaskedLM with another vocabulary: hmmlib\.FromTransformers"):
        all_probs_at_mask(model("BertForMaskedLM"), inputs())
    for config in (
        peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=2),
        peft.LoraConfig(task_type="FEATURE_EXTRACTION", target_modules=["query"]),
    ):
        own = lively()
        adapted = peft.get_peft_model(own, config)
        for network in (adapted, own) if config.peft_type == "LORA" else (adapted,):
            with pytest.raises(TypeError, match=r"with what peft adds"):
                all_probs_at_mask(network, inputs())
    with pytest.raises(TypeError, match="not Linear"):
        as_reader(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="module must be a language model of transformers, not Linear"):
        FromTransformers(torch.nn.Linear(2, 2), TOKENS, MASK_ID)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(tokens=[]), "tokens must name at least one index, and none twice"),
        (dict(tokens=[1, 1]), "tokens must name at least one index, and none twice"),
        (dict(tokens=[40]), "each of tokens must be an integer from 0 to 39"),
        (dict(mask=None), "mask must be the id that stands for MASK"),
        (dict(mask=40), "mask must be an integer from 0 to 39"),
        (dict(mask=12), "mask must be an id that is none of tokens, not 12"),
        (dict(before=[99]), "each of before must be an integer from 0 to 39"),
        (dict(pad=-1), "pad must be an integer from 0 to 39"),
    ],
)
def test_ids_that_cannot_be_are_named(given, words):
    with pytest.raises(ValueError, match=words):
        FromTransformers(**{"module": model("BertForMaskedLM"), "tokens": TOKENS, "mask": MASK_ID, **given})


def test_tokens_and_prompts_that_the_network_cannot_take_are_named():
    reader = FromTransformers(model("BertForMaskedLM"), TOKENS, MASK_ID)
    for tokens, words in (
        ([[0, PAD, 1]], "PAD at the end of a text only"),
        ([[PAD, PAD]], "not in all of it"),
        ([[0, 4]], "tokens must be 0 to 3"),
    ):
        with pytest.raises(ValueError, match=words):
            reader.probs(torch.tensor(tokens))
    with pytest.raises(ValueError, match=r"prompt must have shape \(any, 16\), not \(2, 7\)"):
        reader.probs(torch.tensor([[0]]), 0, torch.zeros(2, 7))
    with pytest.raises(ValueError, match="cut must be empty"):
        reader.hidden(reader.embed(TEXTS), 0, [1])
    with pytest.raises(ValueError, match="MASK = -1; found -2"):
        all_probs_at_mask(lively(), torch.tensor([[0, PAD]]))
