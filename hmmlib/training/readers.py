"""Networks that can be read: tokens in, distributions over tokens and hidden states at a place out.

Tuning and measuring ask a network for nothing else. So whatever can be wrapped as a Reader can be tuned and measured: the
networks that `bert.build` makes, any masked or causal language model of `transformers`, and these with what `peft` adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert
from hmmlib.validation import MASK, as_generator, as_tokens, integer_between, of_type

if TYPE_CHECKING:
    from transformers import BertForMaskedLM, PreTrainedModel

PAD = -2
"""In tokens, the end of a text that is shorter than the others: nothing stands there, and nothing attends to it."""


class Embedded(NamedTuple):
    """Texts as word embeddings: `vectors` (n, L, width), what is `attended` to, (n, L), and the place of the `first` token."""

    vectors: Tensor
    attended: Tensor | None
    first: int

    def behind(self, prompt: Tensor | None) -> Embedded:
        """The same with a prompt (P, width) put before everything."""
        if prompt is None or not len(prompt):
            return self
        n, length = len(self.vectors), len(prompt)
        vectors = torch.cat([prompt.to(self.vectors).expand(n, -1, -1), self.vectors], 1)
        attended = self.attended
        if attended is not None:
            attended = torch.cat([attended.new_ones(n, length), attended], 1)
        return Embedded(vectors, attended, self.first + length)


class Reader(ABC):
    """A network with what a study of prompts asks it for.

    `module` is the network itself, whose weights a fingerprint is made of; `n_tokens` is X, and tokens are 0 … X - 1, MASK
    where one is hidden; `width` is that of word embeddings, and so of prompts; `longest` is how many positions there are.
    """

    module: nn.Module
    n_tokens: int
    width: int
    longest: int

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.module.parameters()).device

    @property
    def words(self) -> Tensor:
        """Word embeddings of its whole vocabulary, (V, width)."""
        return self.module.get_input_embeddings().weight.detach()

    @abstractmethod
    def check(self, tokens) -> Tensor:
        """`tokens` (n, T) as int64, wherever they lie; ValueError where the network has no such."""

    @abstractmethod
    def embed(self, tokens: Tensor, before: int = 0) -> Embedded:
        """Tokens (n, T) as word embeddings, on the network's device. ValueError where they do not fit behind `before` more."""

    @abstractmethod
    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        """Logits (n, k, X) over the tokens at places (n, k), of all L that are embedded; at all of them where it is None."""

    @abstractmethod
    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        """Hidden states at a place, before the first layer and after each: (layers + 1, n, ·)."""

    def probs(self, tokens: Tensor, at: int = 0, prompt: Tensor | None = None) -> Tensor:
        """The distribution over the tokens at position `at` of each text, (n, X), with `prompt` (P, width) before it all."""
        embedded = self.embed(tokens, 0 if prompt is None else len(prompt)).behind(prompt)
        places = torch.full((len(tokens), 1), embedded.first + at, device=self.device)
        return self.logits(embedded, places).squeeze(1).softmax(-1)


class OwnBert(Reader):
    """A network that `bert.build` has made: what only other positions need is not computed."""

    def __init__(self, module: nn.Module):
        self.module, config = module, module.config
        self.n_tokens, self.width, self.longest = (
            config.vocab_size - 1,
            config.hidden_size,
            config.max_position_embeddings,
        )

    def check(self, tokens) -> Tensor:
        return as_tokens(tokens, self.n_tokens)

    def embed(self, tokens: Tensor, before: int = 0) -> Embedded:
        ids = bert.to_ids(self.module, tokens, before)
        return Embedded(self.module.get_input_embeddings()(ids), None, 0)

    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        return bert.logits_at(self.module, embedded.vectors, places)

    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        return bert.hidden_at(self.module, embedded.vectors, place, cut)


class FromTransformers(Reader):
    """A masked or causal language model of `transformers`, read through its own call.

    A causal model says what it does of a place from what stands before it, and does not see what stands there or behind.

    Args:
        module: the model, with a head over its vocabulary.
        tokens: the ids of its vocabulary that tokens 0 … X - 1 stand for, all different. Distributions are over these.
        mask: the id that stands for MASK. A causal model needs none, since it does not see the place that it is asked about.
        before, behind: ids that are put around each text, such as those of [CLS] and [SEP].
        pad: the id that stands for PAD; any will do, as nothing attends to it.
        causal: whether it is a causal model; None: if its class says so.

    TypeError for what is no such model, ValueError for ids that its vocabulary has not.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        tokens: Sequence[int],
        mask: int | None = None,
        before: Sequence[int] = (),
        behind: Sequence[int] = (),
        pad: int = 0,
        causal: bool | None = None,
    ):
        config, embeddings = _of_transformers(module)
        size = len(embeddings.weight)
        ids = [integer_between("each of tokens", token, 0, size - 1) for token in of_type("tokens", list(tokens), list)]
        if len(set(ids)) < len(ids) or not ids:
            raise ValueError(f"tokens must be one id or more, all different, not {ids}")
        self.causal = (
            module.__class__.__name__.endswith("ForCausalLM") if causal is None else of_type("causal", causal, bool)
        )
        self.causal |= module.__class__.__name__.endswith("LMHeadModel") and causal is None
        if mask is None and not self.causal:
            raise ValueError("mask must be the id that stands for MASK: a masked language model needs one")
        self.module, self.n_tokens, self.width = module, len(ids), embeddings.weight.shape[1]
        self.longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", 2**31)
        self.before, self.behind = (
            [integer_between(f"each of {name}", token, 0, size - 1) for token in part]
            for name, part in (("before", before), ("behind", behind))
        )
        self.mask = integer_between("mask", ids[0] if mask is None else mask, 0, size - 1)
        self.pad = integer_between("pad", pad, 0, size - 1)
        self.ids = torch.tensor([*ids, self.pad, self.mask])  # tokens, then PAD and MASK, which are -2 and -1

    @classmethod
    def with_tokenizer(cls, module: PreTrainedModel, tokenizer, words: Sequence[str]) -> FromTransformers:
        """With words of a tokenizer's vocabulary for the tokens, and its mask, pad and what it puts around a text.

        ValueError for a word that is none of its vocabulary.
        """
        ids = tokenizer.convert_tokens_to_ids(list(words))
        unknown = [
            word for word, token in zip(words, ids, strict=True) if token is None or token == tokenizer.unk_token_id
        ]
        if unknown:
            raise ValueError(f"words must be of the tokenizer's vocabulary, as {', '.join(map(repr, unknown))} is not")
        whole = tokenizer(words[0], add_special_tokens=True)["input_ids"]
        if whole.count(ids[0]) != 1:
            raise ValueError(f"words must be single tokens as the tokenizer reads a text, and {words[0]!r} is not")
        place = whole.index(ids[0])
        return cls(module, ids, tokenizer.mask_token_id, whole[:place], whole[place + 1 :], tokenizer.pad_token_id or 0)

    def check(self, tokens) -> Tensor:
        tokens = torch.as_tensor(tokens)
        if tokens.ndim == 2 and (tokens == PAD).any():
            ends = tokens == PAD
            if (ends[:, :-1] & ~ends[:, 1:]).any() or ends[:, 0].any():
                raise ValueError("tokens may have PAD at the end of a text only, and not in all of it")
            as_tokens(tokens.masked_fill(ends, MASK), self.n_tokens)
            return tokens.long()
        return as_tokens(tokens, self.n_tokens)

    def input_ids(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What the model's own call takes: input ids and attention mask, (n, L)."""
        tokens = self.check(tokens).to(self.device)
        ids = self.ids.to(self.device)[tokens]
        n, lengths = len(tokens), (tokens != PAD).sum(1)
        around = [
            torch.tensor(part, dtype=torch.long, device=self.device).expand(n, -1)
            for part in (self.before, self.behind)
        ]
        whole = torch.cat([around[0], ids, torch.full_like(around[1], self.pad)], 1)
        if self.behind:
            places = len(self.before) + lengths[:, None] + torch.arange(len(self.behind), device=self.device)
            whole = whole.scatter(1, places, around[1])
        ends = len(self.before) + lengths + len(self.behind)
        return whole, torch.arange(whole.shape[1], device=self.device) < ends[:, None]

    def embed(self, tokens: Tensor, before: int = 0) -> Embedded:
        ids, attended = self.input_ids(tokens)
        if (needed := ids.shape[1] + before) > self.longest:
            raise ValueError(f"tokens need {needed} positions, with what stands around them, of {self.longest}")
        return Embedded(self.module.get_input_embeddings()(ids), attended, len(self.before))

    def _call(self, embedded: Embedded, **how):
        return self.module(inputs_embeds=embedded.vectors, attention_mask=embedded.attended.long(), **how)

    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        said = self._call(embedded).logits[..., self.ids[: self.n_tokens].to(self.device)]
        said = said[
            :, said.shape[1] - embedded.vectors.shape[1] :
        ]  # what a prompt of peft's says of itself is left out
        if self.causal:  # what is said of a place stands one before it; of the first place nothing is known
            said = torch.cat([torch.zeros_like(said[:, :1]), said[:, :-1]], 1)
        return said if places is None else bert.gathered(said, places)

    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        if list(cut):
            raise ValueError("cut must be empty: attention can be cut in networks that bert.build makes only")
        states = self._call(embedded, output_hidden_states=True).hidden_states
        place -= self.causal
        return torch.stack([state[:, state.shape[1] - embedded.vectors.shape[1] + place] for state in states])


def _of_transformers(module) -> tuple[object, nn.Module]:
    """The configuration and the word embeddings of a model of `transformers`, or of one with what `peft` adds."""
    embeddings = getattr(module, "get_input_embeddings", lambda: None)()
    if not isinstance(module, nn.Module) or not hasattr(module, "config") or not hasattr(embeddings, "weight"):
        raise TypeError(f"module must be a language model of transformers, not {type(module).__name__}")
    return module.config, embeddings


def as_reader(network) -> Reader:
    """`network` as a Reader: itself, or what `bert.build` has made. TypeError for any other model, with what to do with it."""
    return network if isinstance(network, Reader) else OwnBert(bert.as_network(network))


def fingerprint(network: BertForMaskedLM | Reader) -> str:
    """16 hexadecimal digits that the weights of a network give, whoever made it: as `bert.fingerprint` does."""
    return bert.fingerprint(as_reader(network).module)


@torch.no_grad()
def masked_losses(
    network: BertForMaskedLM | Reader, model: HMM | MemoryHMM, n: int, length: int, share: float, seed: int
) -> tuple[float, float]:
    """Two mean masked-token losses, in nats, on `n` fresh sequences: the network's, and that of the exact conditional, which is
    the least that there is.

    The network computes on its device, and the model on its own.
    """
    reader, generator = as_reader(network), as_generator(seed)
    tokens = of_type("model", model, HMM, MemoryHMM).sample(n, length, generator).tokens
    masked, positions = bert.mask_some(tokens, share, generator)
    target = tokens.gather(1, positions)
    reader.module.eval()
    logits = []
    for block, at in zip(masked.split(128), positions.split(128), strict=True):
        embedded = reader.embed(block)
        logits.append(reader.logits(embedded, at.to(reader.device) + embedded.first).cpu())
    exact = masked_token_probs(model, masked).gather(1, positions.unsqueeze(-1).expand(-1, -1, model.n_tokens))
    best = -exact.gather(-1, target.unsqueeze(-1)).log().mean()
    return F.cross_entropy(torch.cat(logits).flatten(0, 1).double(), target.flatten()).item(), best.item()
