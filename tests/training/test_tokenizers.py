"""Words of a tokenizer's vocabulary as tokens, whatever the tokenizer calls them."""

import pytest
import torch
from tiny_networks import model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from hmmlib import MASK, FromTransformers

CORPUS = ["cow field moos", "the cow moos in the field"] * 20
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


@pytest.fixture
def word_level():
    """A tokenizer as BERT's: words, and special ids around a text."""
    vocabulary = {name: place for place, name in enumerate([*SPECIAL, "cow", "field", "moos", "##s"])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", mask_token="[MASK]", pad_token="[PAD]", cls_token="[CLS]"
    )


@pytest.fixture
def byte_level():
    """A tokenizer as GPT-2's: pieces of bytes, a space as Ġ, and no special ids but the end."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=39, special_tokens=["<end>"], show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


@pytest.fixture
def sentence_pieces():
    """A tokenizer as Llama's: a word begins with ▁, and <s> stands before a text."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=39, special_tokens=["<s>", "<unk>"], show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", unk_token="<unk>")


@torch.no_grad()
def test_ids_are_those_of_a_tokenizer(word_level):
    network = model("BertForMaskedLM")
    reader = FromTransformers.with_tokenizer(network, word_level, ["cow", "moos", "field"])
    text = word_level("[MASK] moos field", return_tensors="pt")
    output = network(input_ids=text["input_ids"], attention_mask=text["attention_mask"])
    probs = reader.probs(torch.tensor([[MASK, 1, 2]]))
    torch.testing.assert_close(probs, output.logits[:, 1, [5, 7, 6]].softmax(-1))
    assert (reader.before, reader.behind, reader.pad) == ([1], [2], 0)


@torch.no_grad()
def test_a_causal_network_reads_with_a_tokenizer_that_has_no_mask(byte_level):
    network = model("GPT2LMHeadModel")
    end = byte_level.eos_token_id
    reader = FromTransformers.with_tokenizer(
        network, byte_level, [" cow", " field", " moos"], before=[end], mask_behind=True
    )
    text = byte_level("<end> field moos", return_tensors="pt")
    logits = network(input_ids=text["input_ids"]).logits
    ids = byte_level.convert_tokens_to_ids(["Ġcow", "Ġfield", "Ġmoos"])
    probs = reader.probs(torch.tensor([[MASK, 1, 2]]))
    torch.testing.assert_close(probs, logits[:, -1, ids].softmax(-1))


@pytest.mark.parametrize(
    ("tokenizer", "word", "entry"),
    [
        ("word_level", "cow", "cow"),
        ("word_level", "##s", "##s"),
        ("word_level", "[SEP]", "[SEP]"),
        ("byte_level", " cow", "Ġcow"),
        ("byte_level", "Ġcow", "Ġcow"),
        ("sentence_pieces", "cow", "▁cow"),
        ("sentence_pieces", "▁cow", "▁cow"),
    ],
)
def test_a_word_is_a_text_of_one_token_or_an_entry_of_the_vocabulary(tokenizer, word, entry, request):
    tokenizer = request.getfixturevalue(tokenizer)
    reader = FromTransformers.with_tokenizer(model("BertForMaskedLM"), tokenizer, [word], mask=38)
    assert reader.ids[0] == tokenizer.get_vocab()[entry]


@pytest.mark.parametrize(
    ("tokenizer", "word"),
    [("word_level", "horse"), ("byte_level", " horse"), ("byte_level", " cow€"), ("sentence_pieces", "cow moos")],
)
def test_a_word_of_several_tokens_is_refused_with_its_pieces(tokenizer, word, request):
    tokenizer = request.getfixturevalue(tokenizer)
    message = f"words must be single tokens of the tokenizer, which reads '{word}' as "
    with pytest.raises(ValueError, match=message):
        FromTransformers.with_tokenizer(model("BertForMaskedLM"), tokenizer, [word], mask=38)


def test_a_single_text_is_not_read_as_letters(word_level):
    with pytest.raises(TypeError, match=r"words must be a sequence of words, such as \['cow'\], not a single text"):
        FromTransformers.with_tokenizer(model("BertForMaskedLM"), word_level, "cow")


def test_at_least_one_word_is_needed(word_level):
    with pytest.raises(ValueError, match="words must name at least one word"):
        FromTransformers.with_tokenizer(model("BertForMaskedLM"), word_level, [])


def test_what_a_user_passes_goes_before_what_the_tokenizer_says(word_level):
    network = model("BertForMaskedLM")
    reader = FromTransformers.with_tokenizer(network, word_level, ["cow"], before=[], behind=[9], mask=8, pad=1)
    assert (reader.before, reader.behind, reader.pad, int(reader.ids[-1])) == ([], [9], 1, 8)
    with pytest.raises(ValueError, match="causal must be False, because BertForMaskedLM sees a place behind a token"):
        FromTransformers.with_tokenizer(network, word_level, ["cow"], causal=True)
