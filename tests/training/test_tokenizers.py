"""Words of a tokenizer's vocabulary as tokens, whatever the tokenizer calls them."""

import pytest
import torch
from tiny_networks import CONFIGURATION, model
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

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
    with pytest.raises(ValueError, match="causal must be False, not True, because BertForMaskedLM sees a place"):
        FromTransformers.with_tokenizer(network, word_level, ["cow"], causal=True)


# A word is what the tokenizer reads


@pytest.fixture
def pieces_of_both_kinds():
    """A tokenizer with "cow" as a word, and as the end of another one."""
    pieces = [("<unk>", 0.0), ("▁cow", -1.0), ("cow", -3.0), ("▁", -4.0), ("s", -3.0)]
    made = Tokenizer(models.Unigram(pieces, unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


@pytest.fixture
def letters_of_bytes():
    """A tokenizer of bytes, in whose vocabulary "é" is the name of a byte."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=257, show_progress=False, initial_alphabet=alphabet)
    made.train_from_iterator(["é"] * 30, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made)


@pytest.mark.parametrize(
    ("tokenizer", "word", "entry"), [("pieces_of_both_kinds", "cow", "▁cow"), ("letters_of_bytes", "é", "Ã©")]
)
def test_a_word_is_what_the_tokenizer_reads_and_not_an_entry_of_its_name(tokenizer, word, entry, request):
    tokenizer = request.getfixturevalue(tokenizer)
    reader = FromTransformers.with_tokenizer(large_network(), tokenizer, [word], mask=299)
    assert reader.ids[0] == tokenizer.get_vocab()[entry]


def test_an_entry_that_is_not_a_text_is_refused(letters_of_bytes, pieces_of_both_kinds):
    with pytest.raises(ValueError, match="words must be entries of the vocabulary that are texts, but 'ß' is written"):
        FromTransformers.with_tokenizer(large_network(), letters_of_bytes, ["ß"], mask=299)
    with pytest.raises(ValueError, match="words must be entries of the vocabulary that are texts, but '▁' is written"):
        FromTransformers.with_tokenizer(large_network(), pieces_of_both_kinds, ["▁", "cow"], mask=299)


def test_two_words_that_are_read_alike_are_refused(pieces_of_both_kinds):
    with pytest.raises(ValueError, match="words must be read as different tokens, but the tokenizer reads them as"):
        FromTransformers.with_tokenizer(large_network(), pieces_of_both_kinds, ["cow", "▁cow"], mask=299)


def test_a_word_that_is_read_in_small_letters_is_refused_with_what_to_write(word_level):
    word_level.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(ValueError, match=r"which reads 'Cow' as .*\. Write 'cow' if you mean that"):
        FromTransformers.with_tokenizer(model("BertForMaskedLM"), word_level, ["Cow"])


def large_network():
    config = BertConfig(**CONFIGURATION | {"vocab_size": 300})
    return BertForMaskedLM(config).eval()
