"""Masked and causal language models of `transformers`, read at a place like the library's own networks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from hmmlib.training import bert, foreign
from hmmlib.training.readers import Embedded, Reader
from hmmlib.validation import MASK, as_array, as_indices, as_tokens, integer, of_type

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PAD = -2
"""The token that fills up a text shorter than the others. It is refused where the output of a model depends on it."""


class FromTransformers(Reader):
    """A masked or causal language model of `transformers`, read through its own call.

    A few short texts show how the model reads, and it stays as it was. What it does only in longer ones is not noticed.

    A causal model predicts the token at a place from what stands before it. At the very first place it predicts
    nothing, so the distribution there is uniform, and there is no hidden state. The texts of tasks begin with MASK, so
    a causal model needs `mask_behind` for them.

    Args:
        module: The model, with a head over its vocabulary.
        tokens: The ids of its vocabulary that tokens 0 … X - 1 stand for, all different. Distributions are over these.
        mask: The id that stands for MASK, which must not be one of `tokens`. A causal model needs none, because it does
            not see the place that it predicts. Without it, MASK elsewhere in a text is read as token 0.
        before: Ids that are put before each text, such as that of [CLS].
        behind: Ids that are put behind each text, such as that of [SEP].
        pad: The id that stands for PAD. Any will do for most models, because nothing attends to it. By default it is
            `mask`, or the first of `tokens` if there is no mask.
        causal: Whether it is a causal model. With None, the short texts decide.
        mask_behind: Whether a text that begins with MASK is read with MASK behind its last token. The prediction of a
            causal model for the first token is then what it predicts to follow the text.

    Attributes:
        reading: How the model reads.

    Raises:
        TypeError: The module is not such a model, or has no head over its vocabulary.
        ValueError: An id is not in the vocabulary, or stands for two things, or `causal` is not what the model shows.

    Example:
        >>> import torch
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> from hmmlib import MASK, FromTransformers
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
        >>> network = BertForMaskedLM(BertConfig(vocab_size=20, **sizes)).eval()
        >>> reader = FromTransformers(network, tokens=[7, 8, 9], mask=4, before=[1], behind=[2])
        >>> reader.probs(torch.tensor([[MASK, 0, 2], [MASK, 1, 1]])).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        module: PreTrainedModel,
        tokens: Sequence[int],
        mask: int | None = None,
        before: Sequence[int] = (),
        behind: Sequence[int] = (),
        pad: int | None = None,
        causal: bool | None = None,
        mask_behind: bool = False,
    ):
        vocabulary, self.width = _embedding_table(module).shape
        tokens = _as_ids("tokens", tokens, vocabulary)
        as_indices("tokens", tokens, vocabulary)
        self.before = _as_ids("before", before, vocabulary)
        self.behind = _as_ids("behind", behind, vocabulary)
        self.mask_behind = of_type("mask_behind", mask_behind, bool)
        if mask is not None and integer("mask", mask, 0, vocabulary - 1) in tokens:
            raise ValueError(f"mask must be an id that is none of tokens, not {mask}")
        if pad is not None:
            integer("pad", pad, 0, vocabulary - 1)
        mask_id = tokens[0] if mask is None else mask
        self.pad = mask_id if pad is None else pad

        self.module = module
        self.reading = foreign.ask(module, tokens, self.pad)
        self.longest = foreign.positions_for_text(module)
        self.causal = self._is_causal(causal)
        if mask is None and not self.causal:
            raise ValueError("mask must be the id that stands for MASK, not None, because a masked model needs one")
        self.n_tokens = len(tokens)
        self.ids = torch.tensor([*tokens, self.pad, mask_id])  # PAD and MASK are -2 and -1, so they index these.

    def _is_causal(self, said: bool | None) -> bool:
        """Tell whether the model is causal. Raise ValueError if the user says otherwise, or if nothing shows it."""
        name = foreign.name_of(self.module)
        if not self.reading.sees_before and not self.reading.sees_after:
            if said is None:
                raise ValueError(f"causal must be True or False, because no token of {name} depends on another one")
            return said
        causal = not self.reading.sees_after
        if said not in (None, causal):
            sees = "nothing" if causal else "a place"
            raise ValueError(f"causal must be {causal}, not {said}, because {name} sees {sees} behind a token")
        return causal

    @classmethod
    def with_tokenizer(cls, module: PreTrainedModel, tokenizer, words: Sequence[str], **options) -> FromTransformers:
        """Read a model with words of its tokenizer's vocabulary as tokens.

        Args:
            module: The model.
            tokenizer: Its tokenizer. The ids of mask and pad, and those around a text, are the tokenizer's own.
            words: What tokens 0 … X - 1 stand for. Each is a text that the tokenizer reads as one token, such as
                " cow", or else an entry of its vocabulary, such as "Ġcow".
            options: Other arguments of `FromTransformers`, which replace what the tokenizer says.

        Raises:
            TypeError: The words are a single text.
            ValueError: There is no word, or one is not a single token, or two are the same token.
        """
        if isinstance(words, str):
            raise TypeError(f"words must be a sequence of words, such as [{words!r}], not a single text")
        ids = [_id_of_word(tokenizer, word) for word in words]
        if not ids:
            raise ValueError("words must name at least one word")
        if len(set(ids)) < len(ids):
            pieces = tokenizer.convert_ids_to_tokens(ids)
            raise ValueError(f"words must be read as different tokens, but the tokenizer reads them as {pieces}")
        before, behind = _ids_around(tokenizer, ids)
        of_tokenizer = {
            "mask": tokenizer.mask_token_id,
            "before": before,
            "behind": behind,
            "pad": tokenizer.pad_token_id,
        }
        return cls(module, ids, **of_tokenizer | options)

    def check(self, tokens) -> Tensor:
        tokens = as_array("tokens", tokens)
        # Torch takes 254 for -2 where a type has no sign.
        if not tokens.dtype.is_signed or not (tokens == PAD).any():
            return as_tokens(tokens, self.n_tokens)
        is_pad = tokens == PAD
        as_tokens(tokens.masked_fill(is_pad, MASK), self.n_tokens)
        if self.reading.sees_padding:
            name = foreign.name_of(self.module)
            raise ValueError(
                f"tokens may have no PAD, because {name} reads it. Pass texts of one length, or try another pad"
            )
        goes_on_after_pad = is_pad[:, :-1] & ~is_pad[:, 1:]
        if goes_on_after_pad.any() or is_pad[:, 0].any():
            raise ValueError("tokens may have PAD at the end of a text only, and not in all of it")
        if (self.moves_mask(tokens) & is_pad).any():
            raise ValueError("tokens may have no PAD where MASK is moved behind the text, as mask_behind=True does")
        return tokens.long()

    def moves_mask(self, tokens: Tensor) -> Tensor:
        """Return whether the first token of each text is read behind the others, (n, 1)."""
        return (tokens[:, :1] == MASK) & self.mask_behind

    def input_ids(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the model's own call takes: input ids and attention mask, both (n, L)."""
        tokens = self.check(tokens).to(self.device)
        tokens = torch.where(self.moves_mask(tokens), tokens.roll(-1, 1), tokens)
        n = len(tokens)
        before = tokens.new_tensor(self.before).expand(n, -1)
        behind = tokens.new_tensor(self.behind).expand(n, -1)
        padding = torch.full_like(behind, self.pad)
        ids = torch.cat([before, self.ids.to(self.device)[tokens], padding], 1)

        # What comes behind a text stands directly after its last token, before any padding.
        places = torch.arange(ids.shape[1], device=self.device)
        ends = len(self.before) + (tokens != PAD).sum(1, keepdim=True)
        ids = ids.scatter(1, ends + places[: len(self.behind)], behind)
        return ids, places < ends + len(self.behind)

    def embed_text(self, tokens: Tensor) -> Embedded:
        tokens = self.check(tokens).to(self.device)
        ids, attended = self.input_ids(tokens)
        in_order = torch.arange(tokens.shape[1], device=self.device).expand_as(tokens)
        places = torch.where(self.moves_mask(tokens), in_order.roll(1, 1), in_order)
        vectors = foreign.embeddings_of(self.module, ids)
        return Embedded(vectors, attended, places + len(self.before), ids)

    def embed(self, tokens: Tensor, prompt: Tensor | None = None) -> Embedded:
        is_trained = isinstance(prompt, Tensor) and prompt.requires_grad and torch.is_grad_enabled()
        if is_trained and not self.reading.passes_gradients:
            name = foreign.name_of(self.module)
            raise ValueError(f"prompt must not be trained, because no gradient passes between the tokens of {name}")
        return super().embed(tokens, prompt)

    def _call(self, embedded: Embedded, **options):
        """Return the model's own output."""
        ids = embedded.ids
        prompt_length = embedded.vectors.shape[1] - ids.shape[1]
        if prompt_length == 0:
            return foreign.output_for(self.module, ids, embedded.attended, **options)
        if not self.reading.takes_vectors:
            name = foreign.name_of(self.module)
            raise ValueError(f"prompt must be None, because {name} reads more of an id than its embedding")
        ids = F.pad(ids, (prompt_length, 0), value=int(self.ids[0]))
        return foreign.output_for(self.module, ids, embedded.attended, embedded.vectors, **options)

    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        logits = self._call(embedded).logits[..., self.ids[: self.n_tokens].to(self.device)]
        logits = logits[:, -embedded.vectors.shape[1] :]  # Those at a prompt that peft adds are left out.
        if self.causal:  # The prediction for a place stands one before it.
            none_for_the_first = torch.zeros_like(logits[:, :1])
            logits = torch.cat([none_for_the_first, logits[:, :-1]], 1)
        return logits if places is None else bert.gathered(logits, places)

    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        if list(cut):
            raise ValueError("cut must be empty, because attention can be cut only in networks that bert.build makes")
        if self.causal and place == 0:
            raise ValueError(
                "place must be 1 or more, because a causal model has no hidden state for the first place. "
                "Put ids `before` the texts, or a prompt"
            )
        states = self._call(embedded, output_hidden_states=True).hidden_states or ()
        shapes = {state.shape for state in states}
        n, length = embedded.vectors.shape[:2]
        shape = next(iter(shapes), ())
        if len(shapes) != 1 or len(shape) != 3 or shape[0] != n or shape[1] < length:
            name = foreign.name_of(self.module)
            raise ValueError(
                f"network must give hidden states of shape (n, L, width) in all layers, but {name} does not"
            )
        # The place is counted from the end, because peft may put a prompt before the text.
        from_end = place - embedded.vectors.shape[1]
        if self.causal:
            from_end -= 1
        return torch.stack([state[:, from_end] for state in states])


def _embedding_table(module) -> Tensor:
    """Return the embeddings of a model's vocabulary. Raise TypeError if it has none."""
    try:
        return module.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):
        name = type(module).__name__
        raise TypeError(f"module must be a language model of transformers, not {name}") from None


def _as_ids(name: str, ids, vocabulary: int) -> list[int]:
    """Return ids of a vocabulary in the order in which they are given. Raise TypeError if they have no order."""
    if isinstance(ids, Set | str) or not isinstance(ids, Iterable):
        raise TypeError(f"{name} must be a sequence of ids, not {type(ids).__name__}")
    if isinstance(ids, Tensor):
        ids = ids.tolist()
    return [integer(f"each of {name}", token, 0, vocabulary - 1) for token in ids]


def _id_of_word(tokenizer, word: str) -> int:
    """Return the id of a word, which is a text of one token, or else an entry of the vocabulary.

    Raises:
        ValueError: The word is neither.
    """
    ids = _ids_of(tokenizer, word)
    if len(ids) == 1 and tokenizer.decode(ids).strip() == word.strip():
        return ids[0]
    entry = tokenizer.get_vocab().get(word)
    if entry is not None:
        text = tokenizer.decode([entry])
        # "##s" is written as it is, and "Ġcow" as " cow". But in a vocabulary of bytes "é" is only part of a letter.
        if text == word or _ids_of(tokenizer, text) == [entry]:
            return entry
        raise ValueError(f"words must be entries of the vocabulary that are texts, but {word!r} is written as {text!r}")
    pieces = tokenizer.convert_ids_to_tokens(ids)
    advice = ""
    if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
        advice = f". Write {tokenizer.decode(ids)!r} if you mean that"
    raise ValueError(f"words must be single tokens of the tokenizer, which reads {word!r} as {pieces}{advice}")


def _ids_of(tokenizer, text: str) -> list[int]:
    """Return the ids of a text, without any special ids around it."""
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _ids_around(tokenizer, words: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer puts before and behind a text. The first word that is a text shows them."""
    for word in words:
        encoding = tokenizer(tokenizer.decode([word]), return_special_tokens_mask=True)
        ids = encoding["input_ids"]
        is_special = encoding["special_tokens_mask"]
        if 0 in is_special:
            start = is_special.index(0)
            end = len(ids) - is_special[::-1].index(0)
            return ids[:start], ids[end:]
    pieces = tokenizer.convert_ids_to_tokens(words)
    raise ValueError(f"words must include one that the tokenizer reads as a text, not only {pieces}")
