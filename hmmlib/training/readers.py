"""Networks behind one interface: tokens in, distributions over tokens and hidden states out.

Tuning and measuring ask a network for nothing else. So they work with whatever can be wrapped as a Reader: what
`bert.build` makes, any masked or causal language model of `transformers`, and these with what `peft` adds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib.device import own_settings
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert
from hmmlib.validation import as_array, as_generator, as_tokens, integer, of_shape

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

SEQUENCES_AT_ONCE = 128
"""How many sequences a network reads at once while its loss is measured."""


class Embedded(NamedTuple):
    """Texts as word embeddings, with a prompt before them if there is one."""

    vectors: Tensor
    """The embeddings, (n, L, width)."""
    attended: Tensor | None
    """Which of them are attended to, (n, L). None means all."""
    places: Tensor
    """Where each of the T tokens of each text stands among the L embeddings, (n, T)."""
    ids: Tensor | None = None
    """The input ids of the texts, (n, L - P) if a prompt has P vectors. None if the network is not called with ids."""

    @property
    def first(self) -> int:
        """The place of the first token.

        Raises:
            ValueError: It is not the same for all texts, because `mask_behind` moves it in some of them.
        """
        places = self.places[:, 0].unique().tolist()
        if len(places) > 1:
            raise ValueError("tokens must all begin with MASK, or none of them, because mask_behind moves it")
        return places[0] if places else 0


class Reader:
    """A network of `bert.build` with what tuning and measuring ask of it. Subclasses read other networks.

    Attributes:
        module: The network itself.
        n_tokens: The number X of tokens, which are 0 … X - 1. A hidden one is MASK.
        width: The length of a word embedding, and so of a vector of a prompt.
        longest: How many positions the network has.
        causal: Whether the prediction at a place depends only on what stands before it.
        mask_behind: As in `FromTransformers`.

    Raises:
        TypeError: The network is not one that `bert.build` has made.
    """

    causal = False
    mask_behind = False

    def __init__(self, module: nn.Module):
        self.module = bert.as_network(module)
        self.n_tokens = module.config.vocab_size - 1
        self.width = module.config.hidden_size
        self.longest = module.config.max_position_embeddings

    @property
    def device(self) -> torch.device:
        """The device that the network is on."""
        return next(self.module.parameters()).device

    @property
    def words(self) -> Tensor:
        """The word embeddings of its whole vocabulary, (V, width), as they enter the network."""
        embedding = self.module.get_input_embeddings()
        ids = torch.arange(len(embedding.weight), device=embedding.weight.device)
        return embedding(ids).detach()

    @property
    def dtype(self) -> torch.dtype:
        """The type of probabilities and of what is tuned, which is float32 or better."""
        return torch.promote_types(self.module.get_input_embeddings().weight.dtype, torch.float32)

    @property
    def is_half(self) -> bool:
        """Whether the network computes in float16, where small gradients vanish."""
        return self.module.get_input_embeddings().weight.dtype == torch.float16

    def check(self, tokens) -> Tensor:
        """Return tokens (n, T) as int64, on their own device.

        Raises:
            ValueError: The network does not have one of the tokens.
        """
        return as_tokens(tokens, self.n_tokens)

    def embed_text(self, tokens: Tensor) -> Embedded:
        """Return tokens (n, T) as word embeddings, on the network's device."""
        ids = bert.to_ids(self.module, tokens)
        vectors = self.module.get_input_embeddings()(ids)
        places = torch.arange(vectors.shape[1], device=self.device).expand_as(ids)
        return Embedded(vectors, None, places)

    def logits(self, embedded: Embedded, places: Tensor | None) -> Tensor:
        """Return logits over the tokens, (n, k, X), at places (n, k) of the L embeddings. None means all of them."""
        return bert.logits_at(self.module, embedded.vectors, places)

    def hidden(self, embedded: Embedded, place: int, cut: Collection[int] = ()) -> Tensor:
        """Return hidden states at a place, (layers + 1, n, width), before the first layer and after each.

        Args:
            embedded: The texts.
            place: A place among the L embeddings.
            cut: As in `hmmlib.training.bert.hidden_at`.
        """
        return bert.hidden_at(self.module, embedded.vectors, place, cut)

    def embed(self, tokens: Tensor, prompt: Tensor | None = None) -> Embedded:
        """Return texts as word embeddings, behind a prompt if one is given.

        Args:
            tokens: Texts, (n, T).
            prompt: Vectors that are put before everything, (P, width).

        Raises:
            ValueError: The prompt has another width or holds no real numbers, or there are not enough positions.
        """
        embedded = self.embed_text(tokens)
        for_prompt = ""
        if prompt is not None:
            prompt = of_shape("prompt", as_array("prompt", prompt), (None, self.width))
            if prompt.dtype == torch.bool or prompt.is_complex():
                raise ValueError(f"prompt must hold real numbers, not {prompt.dtype}")
            if len(prompt):
                embedded = _behind(prompt, embedded)
                for_prompt = f", {len(prompt)} of them for a prompt"
        needed = embedded.vectors.shape[1]
        if needed > self.longest:
            raise ValueError(f"tokens need {needed} positions{for_prompt}, but the network has {self.longest}")
        return embedded

    def probs(self, tokens: Tensor, at: int = 0, prompt: Tensor | None = None) -> Tensor:
        """Return the distribution over the tokens at one position of each text, (n, X).

        Args:
            tokens: Texts, (n, T).
            at: The position in the text, 0 for the first token.
            prompt: Vectors that are put before everything, (P, width).

        Raises:
            ValueError: The texts do not have that position.
        """
        embedded = self.embed(tokens, prompt)
        at = integer("at", at, 0, embedded.places.shape[1] - 1)
        logits = self.logits(embedded, embedded.places[:, at : at + 1])
        return logits.squeeze(1).softmax(-1, dtype=self.dtype)


def _behind(prompt: Tensor, embedded: Embedded) -> Embedded:
    """Put a prompt (P, width) before texts."""
    n = len(embedded.vectors)
    repeated = prompt.to(embedded.vectors).expand(n, -1, -1)
    vectors = torch.cat([repeated, embedded.vectors], 1)
    attended = embedded.attended
    if attended is not None:
        attended = F.pad(attended, (len(prompt), 0), value=True)
    return Embedded(vectors, attended, embedded.places + len(prompt), embedded.ids)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Turn dropout off within the block. Afterwards each part is in the mode in which it was before.

    Modes are set directly, because some parts also change their weights in their own `train`.
    """
    modes = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, in_training in modes:
            part.training = in_training


def as_reader(network) -> Reader:
    """Return a network as a Reader. A Reader stays itself, and one is made for a network of `bert.build`.

    Raises:
        TypeError: It is any other model.
    """
    return network if isinstance(network, Reader) else Reader(network)


@own_settings()
@torch.no_grad()
def masked_losses(
    network: BertForMaskedLM | Reader, model: HMM | MemoryHMM, n: int, length: int, share: float, seed: int
) -> tuple[float, float]:
    """Measure the masked-token loss of a network on fresh text, and the least that is possible.

    Args:
        network: The network. It computes on its device, and the model on its own.
        model: The model that writes the text.
        n: How many sequences are drawn.
        length: How many tokens each has.
        share: The share of the tokens that is hidden.
        seed: A seed for the text and the masks.

    Returns:
        The network's mean loss, and that of the exact conditional distribution, both in nats for each hidden token.
    """
    reader = as_reader(network)
    generator = as_generator(seed, model.device)
    tokens = model.sample(n, length, generator).tokens
    masked, positions = bert.mask_some(tokens, share, generator)
    target = tokens.gather(1, positions)

    logits = []
    with evaluating(reader.module):
        for texts, hidden in zip(masked.split(SEQUENCES_AT_ONCE), positions.split(SEQUENCES_AT_ONCE), strict=True):
            embedded = reader.embed(texts)
            places = embedded.places.gather(1, hidden.to(reader.device))
            logits.append(reader.logits(embedded, places).cpu())
    all_logits = torch.cat(logits).double()
    loss = F.cross_entropy(all_logits.flatten(0, 1), target.cpu().flatten())

    exact = bert.gathered(masked_token_probs(model, masked), positions)
    of_target = exact.gather(-1, target.unsqueeze(-1))
    return loss.item(), -of_target.log().mean().item()
