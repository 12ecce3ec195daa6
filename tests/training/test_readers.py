"""Networks read at a place, whoever made them: the same numbers as the library's own call gives, and clear refusals."""

import pytest
import torch
import transformers
from tiny_networks import inputs, lively

from hmmlib.training import bert
from hmmlib.training.readers import PAD, Embedded, FromTransformers, OwnBert, as_reader
from hmmlib.training.tuning import Tuning, all_hidden_at_mask, all_probs, all_probs_at_mask, probs_at_mask, tune_prompt
from hmmlib.validation import MASK

SIZES = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
LONG = dict(max_position_embeddings=24)
MASKED = {
    "BertForMaskedLM": lambda: transformers.BertConfig(**SIZES, **LONG),
    "RobertaForMaskedLM": lambda: transformers.RobertaConfig(**SIZES, **LONG, pad_token_id=0),
    "DistilBertForMaskedLM": lambda: transformers.DistilBertConfig(
        vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=32, **LONG
    ),
    "AlbertForMaskedLM": lambda: transformers.AlbertConfig(**SIZES, **LONG, embedding_size=8),
    "ElectraForMaskedLM": lambda: transformers.ElectraConfig(**SIZES, **LONG, embedding_size=16),
    "ModernBertForMaskedLM": lambda: transformers.ModernBertConfig(
        **SIZES, **LONG, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
}
CAUSAL = {
    "GPT2LMHeadModel": lambda: transformers.GPT2Config(
        vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=24, bos_token_id=1, eos_token_id=2
    ),
    "LlamaForCausalLM": lambda: transformers.LlamaConfig(**SIZES, **LONG),
}
TOKENS, MASK_ID, PAD_ID, CLS, SEP = [7, 31, 12, 9], 4, 0, 1, 2
TEXTS = torch.tensor([[MASK, 0, 1, 2, 3, 0], [2, MASK, 1, 1, PAD, PAD], [3, 2, MASK, PAD, PAD, PAD]])


def model(name):
    """A small network with random weights, large enough that what it says hangs on what it reads."""
    torch.manual_seed(0)
    network = getattr(transformers, name)({**MASKED, **CAUSAL}[name]())
    with torch.no_grad():
        for matrix in (p for p in network.parameters() if p.ndim == 2):
            matrix *= 8
    return network.eval()


def by_hand(tokens, length):
    """Input ids and attention mask of the texts, written out with [CLS] and [SEP]."""
    ids, attended = [], []
    for text in tokens.tolist():
        said = [MASK_ID if token == MASK else TOKENS[token] for token in text if token != PAD]
        whole = [CLS, *said, SEP]
        ids.append(whole + [PAD_ID] * (length - len(whole)))
        attended.append([1] * len(whole) + [0] * (length - len(whole)))
    return torch.tensor(ids), torch.tensor(attended)


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL])
@torch.no_grad()
def test_what_is_read_is_what_the_models_own_call_says(name):
    network = model(name)
    reader = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP], pad=PAD_ID)
    assert reader.causal is (name in CAUSAL)
    ids, attended = by_hand(TEXTS, 8)
    logits = network(input_ids=ids, attention_mask=attended).logits[..., TOKENS]
    expected = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], 1) if reader.causal else logits
    for at in range(6):
        rows = [k for k, text in enumerate(TEXTS) if text[at] != PAD]
        found = reader.probs(TEXTS, at)[rows]
        torch.testing.assert_close(found, expected[rows, 1 + at].softmax(-1), rtol=1e-4, atol=1e-6)
    said = all_probs(reader, TEXTS)
    assert said.shape == (3, 6, 4)
    torch.testing.assert_close(said[:, 2], expected[:, 3].softmax(-1), rtol=1e-4, atol=1e-6)
    if reader.causal:  # it sees what stands before, and nothing else
        other = TEXTS.clone()
        other[0, 3:] = 0
        torch.testing.assert_close(reader.probs(other, 3)[0], reader.probs(TEXTS, 3)[0])
        assert not torch.allclose(reader.probs(other, 4)[0], reader.probs(TEXTS, 4)[0], atol=1e-3)


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL])
@torch.no_grad()
def test_padding_changes_nothing_and_the_mask_counts(name):
    reader = FromTransformers(model(name), TOKENS, MASK_ID, before=[CLS], behind=[SEP])
    alone = reader.probs(TEXTS[1:2, :4], 3)
    torch.testing.assert_close(reader.probs(TEXTS, 3)[1:2], alone, rtol=1e-4, atol=1e-6)
    longer = torch.nn.functional.pad(TEXTS, (0, 5), value=PAD)
    torch.testing.assert_close(reader.probs(longer, 3)[1:2], alone, rtol=1e-4, atol=1e-6)
    shown = TEXTS[1:2, :4].clone()
    shown[0, 1] = 0
    assert not torch.allclose(reader.probs(shown, 3), alone, atol=1e-5)


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL])
@torch.no_grad()
def test_hidden_states_are_the_models_own(name):
    network = model(name)
    reader = FromTransformers(network, TOKENS, MASK_ID, before=[CLS])
    ids, _ = by_hand(TEXTS[:1], 8)
    states = network(input_ids=ids[:, :7], output_hidden_states=True).hidden_states
    found = reader.hidden(reader.embed(TEXTS[:1]), 3)
    for one, whole in zip(found, states, strict=True):
        torch.testing.assert_close(one, whole[:, 2 if reader.causal else 3], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="cut must be empty"):
        reader.hidden(reader.embed(TEXTS[:1]), 3, [1])


@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "GPT2LMHeadModel"])
def test_a_prompt_of_ours_is_tuned_on_any_of_them(name):
    network = model(name)
    reader, before = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP]), bert.fingerprint(network)
    tokens = torch.randint(0, 4, (60, 5), generator=torch.Generator().manual_seed(0))
    tokens[:, 4] = MASK
    labels = tokens[:, 3] >= 2
    losses = []
    for epochs in (1, 40):
        prompt, head = tune_prompt(reader, tokens, labels, 3, Tuning(epochs, 10, 0.3, 0.1), 0)
        assert prompt.shape == (3, reader.width)
        score = head(reader.probs(tokens, 0, prompt))
        losses.append(torch.nn.functional.binary_cross_entropy_with_logits(score, labels.to(score)).item())
    assert losses[1] < losses[0] or name == "GPT2LMHeadModel"  # which at its first place sees the prompt alone
    assert bert.fingerprint(network) == before
    assert torch.equal(probs_at_mask(reader, tokens, prompt), reader.probs(tokens, 0, prompt))


def test_our_own_network_gives_the_same_through_either_door():
    network, tokens = lively(), inputs()
    own, through = as_reader(network), FromTransformers(network, range(4), mask=4)
    assert isinstance(own, OwnBert)
    assert as_reader(through) is through
    for at in (0, 3):
        torch.testing.assert_close(own.probs(tokens, at), through.probs(tokens, at), rtol=1e-4, atol=1e-6)
    prompt = torch.randn(2, own.width, generator=torch.Generator().manual_seed(0))
    for read in (all_probs_at_mask, all_hidden_at_mask):
        torch.testing.assert_close(read(own, tokens, prompt), read(through, tokens, prompt), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(all_probs(own, tokens), all_probs(through, tokens), rtol=1e-4, atol=1e-6)


def test_a_prompt_stands_before_everything_and_is_attended_to():
    vectors, attended = torch.zeros(2, 3, 4), torch.tensor([[True, True, False]] * 2)
    found = Embedded(vectors, attended, 1).behind(torch.ones(2, 4))
    assert found.first == 3
    assert found.attended.tolist() == [[True, True, True, True, False]] * 2
    assert (found.vectors[:, :2] == 1).all()
    assert Embedded(vectors, None, 1).behind(None).first == 1


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
def test_a_tokenizer_says_which_ids_they_are():
    network, words = model("BertForMaskedLM"), ["cow", "moos", "field"]
    reader = FromTransformers.with_tokenizer(network, tokenizer(), words)
    asked = tokenizer()("[MASK] moos field", return_tensors="pt")
    logits = network(**{k: asked[k] for k in ("input_ids", "attention_mask")}).logits[:, 1, [5, 7, 6]]
    torch.testing.assert_close(reader.probs(torch.tensor([[MASK, 1, 2]])), logits.softmax(-1), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="words must be of the tokenizer's vocabulary, as 'horse' is not"):
        FromTransformers.with_tokenizer(network, tokenizer(), ["cow", "horse"])


def test_what_is_not_understood_is_refused_with_what_to_do():
    import peft

    real = model("BertForMaskedLM")
    with pytest.raises(TypeError, match=r"not BertForMaskedLM with a vocabulary of its own: readers\.FromTransformers"):
        all_probs_at_mask(real, inputs())
    own = lively()
    prompted = peft.get_peft_model(own, peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=2))
    with pytest.raises(TypeError, match=r"without what peft adds"):
        all_probs_at_mask(prompted, inputs())
    peft.get_peft_model(own, peft.LoraConfig(task_type="FEATURE_EXTRACTION", target_modules=["query"]))
    with pytest.raises(TypeError, match=r"without what peft adds"):
        tune_prompt(own, inputs(), inputs()[:, 1] > 1, 2, Tuning(1, 10, 0.1, 0.1), 0)
    with pytest.raises(TypeError, match="not Linear"):
        as_reader(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(tokens=[]), "tokens must be one id or more, all different"),
        (dict(tokens=[1, 1]), "tokens must be one id or more, all different"),
        (dict(tokens=[40]), "each of tokens must be an integer from 0 to 39"),
        (dict(mask=None), "mask must be the id that stands for MASK"),
        (dict(mask=40), "mask must be an integer from 0 to 39"),
        (dict(before=[99]), "each of before must be an integer from 0 to 39"),
        (dict(pad=-1), "pad must be"),
    ],
)
def test_ids_that_the_vocabulary_has_not_are_named(given, words):
    with pytest.raises(ValueError, match=words):
        FromTransformers(**{"module": model("BertForMaskedLM"), "tokens": TOKENS, "mask": MASK_ID, **given})


def test_texts_that_the_network_cannot_take_are_named():
    reader = FromTransformers(model("BertForMaskedLM"), TOKENS, MASK_ID, before=[CLS], behind=[SEP])
    for tokens, words in (
        ([[0, PAD, 1]], "PAD at the end of a text only"),
        ([[PAD, PAD]], "not in all of it"),
        ([[0, 4]], "tokens must be 0 to 3"),
        ([[0] * 23], "tokens need 25 positions, with what stands around them, of 24"),
    ):
        with pytest.raises(ValueError, match=words):
            reader.probs(torch.tensor(tokens))
    with pytest.raises(ValueError, match="tokens need 26 positions"):
        reader.probs(torch.tensor([[0] * 20]), 0, torch.zeros(4, 16))
    with pytest.raises(ValueError, match="MASK = -1; found -2"):
        all_probs_at_mask(lively(), torch.tensor([[0, PAD]]))
    with pytest.raises(TypeError, match="module must be a language model of transformers, not Linear"):
        FromTransformers(torch.nn.Linear(2, 2), TOKENS, MASK_ID)
