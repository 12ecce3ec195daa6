"""Masked and causal language models of `transformers`, read at a place like the library's own networks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hmmlib.training import bert
from hmmlib.training.readers import Embedded, Reader
from hmmlib.validation import MASK, as_indices, as_tokens, integer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PAD = -2
"""In tokens, what follows the end of a text that is shorter than others. Nothing attends to it."""
UNLIMITED = 2**31
"""The number of positions of a model that does not name one."""


class FromTransformers(Reader):
    """A masked or causal language model of `transformers`, read through its own call.

    A causal model predicts the token at a place from what stands before it. At the very first place it predicts
    nothing, so the distribution there is uniform, and there is no hidden state. The texts of tasks begin with MASK, so
    a causal model needs `mask_behind` for them.

    Args:
        module: the model, with a head over its vocabulary.
        tokens: the ids of its vocabulary that tokens 0 … X - 1 stand for, all different. Distributions are over these.
        mask: the id that stands for MASK, none of `tokens`. A causal model needs none, because it does not see the
            place that it predicts. Then MASK elsewhere in a text is read as token 0.
        before: ids that are put before each text, such as that of [CLS].
        behind: ids that are put behind each text, such as that of [SEP].
        pad: the id that stands for PAD. Any will do, because nothing attends to it.
        causal: whether it is a causal model. None means that the name of its class decides.
        mask_behind: whether texts that all begin with MASK are read with MASK behind their last token. The prediction
            of a causal model for the first token is then what it predicts to follow the text.

    Raises:
        TypeError: the module is no such model, or has no head over its vocabulary.
        ValueError: an id is not in the vocabulary, or stands for two things.

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
        base = _language_model(module)
        vocabulary, self.width = module.get_input_embeddings().weight.shape
        self.module = module
        self.longest = positions_for_text(module)
        self.mask_behind = mask_behind
        self.causal = _is_causal(base) if causal is None else causal

        sorted_ids = as_indices("tokens", tokens, vocabulary)
        if mask is None and not self.causal:
            raise ValueError("mask must be the id that stands for MASK: a masked language model needs one")
        if mask is not None and integer("mask", mask, 0, vocabulary - 1) in sorted_ids:
            raise ValueError(f"mask must be an id that is none of tokens, not {mask}")
        for token in before:
            integer("each of before", token, 0, vocabulary - 1)
        for token in behind:
            integer("each of behind", token, 0, vocabulary - 1)
        if pad is not None:
            integer("pad", pad, 0, vocabulary - 1)

        if mask is None:
            mask = tokens[0]
        self.before = list(before)
        self.behind = list(behind)
        self.pad = mask if pad is None else pad
        self.n_tokens = len(tokens)
        self.ids = torch.tensor([*tokens, self.pad, mask])  # PAD and MASK are -2 and -1, so they index these.

    @classmethod
    def with_tokenizer(cls, module: PreTrainedModel, tokenizer, words: Sequence[str]) -> FromTransformers:
        """Read a model with words of its tokenizer's vocabulary as tokens.

        Args:
            module: the model.
            tokenizer: its tokenizer. The ids of mask and pad, and those around a text, are the tokenizer's own.
            words: the words that tokens 0 … X - 1 stand for.

        Raises:
            ValueError: a word is not in the vocabulary.
        """
        ids = tokenizer.convert_tokens_to_ids(list(words))
        for word, token in zip(words, ids, strict=True):
            if token in (None, tokenizer.unk_token_id):
                raise ValueError(f"words must be of the tokenizer's vocabulary, as {word!r} is not")
        text = tokenizer(words[0], add_special_tokens=True)["input_ids"]
        if text.count(ids[0]) != 1:
            raise ValueError(f"words must be single tokens as the tokenizer reads a text, and {words[0]!r} is not")
        place = text.index(ids[0])
        before = text[:place]
        behind = text[place + 1 :]
        return cls(module, ids, tokenizer.mask_token_id, before, behind, tokenizer.pad_token_id)

    def check(self, tokens) -> Tensor:
        tokens = torch.as_tensor(tokens)
        is_pad = tokens == PAD
        if not is_pad.any():
            return as_tokens(tokens, self.n_tokens)
        as_tokens(tokens.masked_fill(is_pad, MASK), self.n_tokens)
        goes_on_after_pad = is_pad[:, :-1] & ~is_pad[:, 1:]
        if goes_on_after_pad.any() or is_pad[:, 0].any():
            raise ValueError("tokens may have PAD at the end of a text only, and not in all of it")
        if self.moves_mask(tokens):
            raise ValueError("tokens may have no PAD where MASK is moved behind the text, as mask_behind says")
        return tokens.long()

    def moves_mask(self, tokens: Tensor) -> bool:
        """Return whether the first tokens of these texts are read behind the others."""
        return self.mask_behind and bool((tokens[:, 0] == MASK).all())

    def input_ids(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the model's own call takes: input ids and attention mask, both (n, L)."""
        tokens = self.check(tokens).to(self.device)
        if self.moves_mask(tokens):
            tokens = tokens.roll(-1, 1)
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
        ids, attended = self.input_ids(tokens)
        places = torch.arange(tokens.shape[1], device=self.device)
        if self.moves_mask(tokens):
            places = places.roll(1)
        vectors = self.module.get_input_embeddings()(ids)
        return Embedded(vectors, attended, places + len(self.before), ids)

    def _call(self, embedded: Embedded, **options):
        """The model's own output. It is called with ids where there are any, as some models count positions by them."""
        inputs = {"inputs_embeds": embedded.vectors} if embedded.ids is None else {"input_ids": embedded.ids}
        return self.module(**inputs, attention_mask=embedded.attended.long(), **options)

    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        logits = self._call(embedded).logits[..., self.ids[: self.n_tokens].to(self.device)]
        logits = logits[:, -embedded.vectors.shape[1] :]  # Without those at a prompt of peft's.
        if self.causal:  # The prediction for a place stands one before it.
            none_for_the_first = torch.zeros_like(logits[:, :1])
            logits = torch.cat([none_for_the_first, logits[:, :-1]], 1)
        return logits if places is None else bert.gathered(logits, places)

    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        if list(cut):
            raise ValueError("cut must be empty: attention can be cut in networks that bert.build makes only")
        if self.causal and place == 0:
            raise ValueError(
                "place must be 1 or more: a causal model has no hidden state for the first place; "
                "put ids `before` the texts, or a prompt"
            )
        states = self._call(embedded, output_hidden_states=True).hidden_states
        # The place is counted from the end, because peft may put a prompt before the text.
        from_end = place - embedded.vectors.shape[1]
        if self.causal:
            from_end -= 1
        return torch.stack([state[:, from_end] for state in states])


def _language_model(module) -> nn.Module:
    """A model of `transformers` without what peft adds. TypeError if it is none, or has no head over its vocabulary."""
    embeddings = module.get_input_embeddings() if hasattr(module, "get_input_embeddings") else None
    if not hasattr(module, "config") or not hasattr(embeddings, "weight"):
        raise TypeError(f"module must be a language model of transformers, not {type(module).__name__}")
    base = module.get_base_model() if hasattr(module, "get_base_model") else module
    if getattr(base, "get_output_embeddings", lambda: None)() is None:
        raise TypeError(f"module must have a head over its vocabulary, as {type(base).__name__} has not")
    return base


def _is_causal(base: nn.Module) -> bool:
    """Whether a language model is a causal one, by the name of its class."""
    return type(base).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def positions_for_text(module: nn.Module) -> int:
    """Return how many positions a model has for a text.

    RoBERTa never uses those up to its padding index, and a prefix of peft's takes some.
    """
    count = getattr(module.config, "max_position_embeddings", None) or getattr(module.config, "n_positions", UNLIMITED)
    never_used = 0
    for name, table in module.named_modules():
        padding_index = getattr(table, "padding_idx", None)
        if name.endswith("position_embeddings") and padding_index is not None:
            never_used = max(never_used, padding_index + 1)
    config_of_peft = getattr(module, "active_peft_config", None)
    return count - never_used - getattr(config_of_peft, "num_virtual_tokens", 0)
