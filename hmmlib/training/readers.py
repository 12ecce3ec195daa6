"""Networks behind one interface: tokens in, distributions over tokens and hidden states at a place out.

Tuning and measuring ask a network for nothing else. So whatever can be wrapped as a Reader can be tuned and measured:
what `bert.build` makes, any masked or causal language model of `transformers`, and these with what `peft` adds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert
from hmmlib.validation import MASK, as_generator, as_indices, as_tokens, integer, of_shape

if TYPE_CHECKING:
    from transformers import BertForMaskedLM, PreTrainedModel

PAD = -2
"""In tokens, the end of a text that is shorter than the others: nothing stands there, and nothing attends to it."""


class Embedded(NamedTuple):
    """Texts as word embeddings: `vectors` (n, L, width), what is `attended` to, (n, L), the place of each token, (T,),
    and the input `ids` (n, L) that the vectors belong to, if all of them have one."""

    vectors: Tensor
    attended: Tensor | None
    places: Tensor
    ids: Tensor | None = None

    @property
    def first(self) -> int:
        """The place of the first token."""
        return int(self.places[0])


class Reader:
    """A network that `bert.build` has made, with what tuning and measuring ask of it; subclasses read other networks.

    `module` is the network itself; `n_tokens` is X, and tokens are 0 … X - 1, MASK where one is hidden; `width` is that
    of word embeddings, and so of prompts; `longest` is how many positions there are; `causal` is whether the prediction
    at a place depends on what stands before it only; `mask_behind` is as in `FromTransformers`.
    """

    causal = mask_behind = False

    def __init__(self, module: nn.Module):
        self.module, config = bert.as_network(module), module.config
        self.n_tokens, self.width = config.vocab_size - 1, config.hidden_size
        self.longest = config.max_position_embeddings

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.module.parameters()).device

    @property
    def words(self) -> Tensor:
        """Word embeddings of its whole vocabulary, (V, width)."""
        return self.module.get_input_embeddings().weight.detach()

    def check(self, tokens) -> Tensor:
        """`tokens` (n, T) as int64, on their device; ValueError for tokens that the network does not have."""
        return as_tokens(tokens, self.n_tokens)

    def embed_text(self, tokens: Tensor) -> Embedded:
        """Tokens (n, T) as word embeddings, on the network's device."""
        vectors = self.module.get_input_embeddings()(bert.to_ids(self.module, tokens))
        return Embedded(vectors, None, torch.arange(vectors.shape[1], device=self.device))

    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        """Logits (n, k, X) over the tokens at places (n, k) of the L that are embedded; at all of them if None."""
        return bert.logits_at(self.module, embedded.vectors, places)

    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        """Hidden states at a place, before the first layer and after each: (layers + 1, n, width)."""
        return bert.hidden_at(self.module, embedded.vectors, place, cut)

    def embed(self, tokens: Tensor, prompt: Tensor | None = None) -> Embedded:
        """Tokens (n, T) as word embeddings, with `prompt` (P, width) before everything.

        ValueError for a prompt of another width, and where there are not enough positions.
        """
        embedded, within = self.embed_text(tokens), ""
        if prompt is not None and len(of_shape("prompt", prompt, (None, self.width))):
            vectors, attended, places, _ = embedded
            vectors = torch.cat([prompt.to(vectors).expand(len(vectors), -1, -1), vectors], 1)
            attended = None if attended is None else F.pad(attended, (len(prompt), 0), value=True)
            embedded = Embedded(vectors, attended, places + len(prompt))
            within = f", {len(prompt)} of them for a prompt"
        if (needed := embedded.vectors.shape[1]) > self.longest:
            raise ValueError(f"tokens need {needed} positions{within}, but the network has {self.longest}")
        return embedded

    def probs(self, tokens: Tensor, at: int = 0, prompt: Tensor | None = None) -> Tensor:
        """The distribution over the tokens at position `at` of each text, (n, X), behind `prompt` (P, width).

        ValueError for a position that the texts do not have.
        """
        embedded = self.embed(tokens, prompt)
        place = embedded.places[integer("at", at, 0, len(embedded.places) - 1)]
        return self.logits(embedded, place.expand(len(embedded.vectors), 1)).squeeze(1).softmax(-1)


class FromTransformers(Reader):
    """A masked or causal language model of `transformers`, read through its own call.

    A causal model predicts the token at a place from what stands before it. At the first place of all it predicts
    nothing: the distribution there is uniform, and there is no hidden state. So it needs `mask_behind` for texts that
    begin with MASK, as those of tasks do.

    Args:
        module: the model, with a head over its vocabulary.
        tokens: the ids of its vocabulary that tokens 0 … X - 1 stand for, all different. Distributions are over these.
        mask: the id that stands for MASK, none of `tokens`. A causal model needs none, as it does not see the place it
            is asked about; MASK elsewhere in a text is then read as token 0.
        before, behind: ids that are put around each text, such as those of [CLS] and [SEP].
        pad: the id that stands for PAD; any will do, as nothing attends to it.
        causal: whether it is a causal model; if None, that is read off the name of its class.
        mask_behind: whether texts that all begin with MASK are read with it behind their last token. The prediction of
            a causal model for the first token is then what it predicts to follow the text.

    TypeError for what is no such model, or has no head over its vocabulary; ValueError for ids that its vocabulary
    has not, or that stand for two things.
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
        embeddings = getattr(module, "get_input_embeddings", lambda: None)()
        if not hasattr(module, "config") or not hasattr(embeddings, "weight"):
            raise TypeError(f"module must be a language model of transformers, not {type(module).__name__}")
        size, self.width = embeddings.weight.shape
        whole = module.get_base_model() if hasattr(module, "get_base_model") else module  # without what peft adds
        if getattr(whole, "get_output_embeddings", lambda: None)() is None:
            raise TypeError(f"module must have a head over its vocabulary, as {type(whole).__name__} has not")
        self.module, self.longest, self.mask_behind = module, positions_for_text(module), mask_behind
        self.causal = type(whole).__name__.endswith(("ForCausalLM", "LMHeadModel")) if causal is None else causal
        as_indices("tokens", tokens, size)
        if mask is None and not self.causal:
            raise ValueError("mask must be the id that stands for MASK: a masked language model needs one")
        if mask is not None and integer("mask", mask, 0, size - 1) in tokens:
            raise ValueError(f"mask must be an id that is none of tokens, not {mask}")
        for name, given in (("before", before), ("behind", behind), ("pad", [] if pad is None else [pad])):
            for token in given:
                integer(f"each of {name}", token, 0, size - 1)
        mask = tokens[0] if mask is None else mask
        self.before, self.behind, self.pad = list(before), list(behind), mask if pad is None else pad
        self.n_tokens, self.ids = len(tokens), torch.tensor([*tokens, self.pad, mask])  # as PAD and MASK are -2 and -1

    @classmethod
    def with_tokenizer(cls, module: PreTrainedModel, tokenizer, words: Sequence[str]) -> FromTransformers:
        """With words of a tokenizer's vocabulary for the tokens, and its mask, pad and what it puts around a text.

        ValueError for a word that is none of its vocabulary.
        """
        ids = tokenizer.convert_tokens_to_ids(list(words))
        for word, token in zip(words, ids, strict=True):
            if token in (None, tokenizer.unk_token_id):
                raise ValueError(f"words must be of the tokenizer's vocabulary, as {word!r} is not")
        whole = tokenizer(words[0], add_special_tokens=True)["input_ids"]
        if whole.count(ids[0]) != 1:
            raise ValueError(f"words must be single tokens as the tokenizer reads a text, and {words[0]!r} is not")
        place = whole.index(ids[0])
        return cls(module, ids, tokenizer.mask_token_id, whole[:place], whole[place + 1 :], tokenizer.pad_token_id)

    def check(self, tokens) -> Tensor:
        tokens = torch.as_tensor(tokens)
        ends = tokens == PAD
        as_tokens(tokens.masked_fill(ends, MASK) if ends.any() else tokens, self.n_tokens)
        if (ends[:, :-1] & ~ends[:, 1:]).any() or ends[:, 0].any():
            raise ValueError("tokens may have PAD at the end of a text only, and not in all of it")
        if ends.any() and self.moves_mask(tokens):
            raise ValueError("tokens may have no PAD where MASK is moved behind the text, as mask_behind says")
        return tokens.long()

    def moves_mask(self, tokens: Tensor) -> bool:
        """Whether the first tokens of these texts are read behind the others."""
        return self.mask_behind and bool((tokens[:, 0] == MASK).all())

    def input_ids(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What the model's own call takes: input ids and attention mask, (n, L)."""
        tokens = self.check(tokens).to(self.device)
        tokens = tokens.roll(-1, 1) if self.moves_mask(tokens) else tokens
        n, lengths, first = len(tokens), (tokens != PAD).sum(1), len(self.before)
        before, behind = (tokens.new_tensor(part).expand(n, -1) for part in (self.before, self.behind))
        ids = torch.cat([before, self.ids.to(self.device)[tokens], torch.full_like(behind, self.pad)], 1)
        places, ends = torch.arange(ids.shape[1], device=self.device), first + lengths[:, None]
        ids = ids.scatter(1, ends + places[: len(self.behind)], behind)
        return ids, places < ends + len(self.behind)

    def embed_text(self, tokens: Tensor) -> Embedded:
        ids, attended = self.input_ids(tokens)
        places = torch.arange(tokens.shape[1], device=self.device).roll(int(self.moves_mask(tokens)))
        return Embedded(self.module.get_input_embeddings()(ids), attended, places + len(self.before), ids)

    def _call(self, embedded: Embedded, **options):
        """The model's own call: on ids where there are, as some models count positions by them."""
        inputs = {"inputs_embeds": embedded.vectors} if embedded.ids is None else {"input_ids": embedded.ids}
        return self.module(**inputs, attention_mask=embedded.attended.long(), **options)

    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        logits = self._call(embedded).logits[..., self.ids[: self.n_tokens].to(self.device)]
        logits = logits[:, -embedded.vectors.shape[1] :]  # without those at a prompt of peft's
        if self.causal:  # the prediction for a place stands one before it
            logits = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], 1)
        return logits if places is None else bert.gathered(logits, places)

    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        if list(cut):
            raise ValueError("cut must be empty: attention can be cut in networks that bert.build makes only")
        if self.causal and not place:
            first = "place must be 1 or more: a causal model has no hidden state for the first place"
            raise ValueError(f"{first}; put ids `before` the texts, or a prompt")
        states = self._call(embedded, output_hidden_states=True).hidden_states
        at = place - self.causal - embedded.vectors.shape[1]  # from the end, as peft may put a prompt before the text
        return torch.stack([state[:, at] for state in states])


def positions_for_text(module: nn.Module) -> int:
    """How many positions there are for a text: without those that RoBERTa never uses, or a prefix of peft's takes."""
    count = getattr(module.config, "max_position_embeddings", None) or getattr(module.config, "n_positions", 2**31)
    tables = [part for name, part in module.named_modules() if name.endswith("position_embeddings")]
    padded = [table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None]
    added = getattr(module, "active_peft_config", None)
    return count - max(padded, default=0) - getattr(added, "num_virtual_tokens", 0)


def as_reader(network) -> Reader:
    """`network` as a Reader: itself, or around what `bert.build` has made. TypeError for any other model."""
    return network if isinstance(network, Reader) else Reader(network)


@torch.no_grad()
def masked_losses(
    network: BertForMaskedLM | Reader, model: HMM | MemoryHMM, n: int, length: int, share: float, seed: int
) -> tuple[float, float]:
    """Mean masked-token losses (nats) on `n` fresh sequences: the network's, and the exact conditional's, the least.

    The network computes on its device, and the model on its own.
    """
    reader, generator = as_reader(network), as_generator(seed)
    tokens = model.sample(n, length, generator).tokens
    masked, positions = bert.mask_some(tokens, share, generator)
    target = tokens.gather(1, positions)
    reader.module.eval()
    logits = []
    for block, at in zip(masked.split(128), positions.split(128), strict=True):
        embedded = reader.embed(block)
        logits.append(reader.logits(embedded, embedded.places[at.to(reader.device)]).cpu())
    exact = bert.gathered(masked_token_probs(model, masked), positions)
    best = -exact.gather(-1, target.unsqueeze(-1)).log().mean()
    return F.cross_entropy(torch.cat(logits).flatten(0, 1).double(), target.flatten()).item(), best.item()
