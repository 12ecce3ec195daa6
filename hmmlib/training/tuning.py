"""Tune a linear head, an attention head, or a prompt on a frozen network, to solve a downstream task."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from hmmlib.device import own_settings, without_autocast
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead, share_right
from hmmlib.theory.theorems import lemma_c_2
from hmmlib.training import bert
from hmmlib.training.fitting import Tuning, fit, fit_head
from hmmlib.training.readers import Reader, as_reader, evaluating
from hmmlib.validation import as_generator, as_tensor, integer, of_shape, of_type, one_of

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

PROMPT_STARTS = ("uniform", "vocabulary")
"""Where a prompt begins, with entries uniform on [-0.5, 0.5], or with rows of the vocabulary's embedding."""
TEXTS_AT_ONCE = 512
"""How many texts a network reads at once where no gradient is taken."""


# What a network predicts


def checked(network: BertForMaskedLM | Reader, tokens, at_mask: bool = False) -> tuple[Reader, Tensor]:
    """Return the network as a Reader, and tokens that it takes.

    Args:
        network: The network.
        tokens: Texts, (n, T).
        at_mask: Whether only the prediction for the first token is of use. There is a warning if this prediction does
            not depend on the text.
    """
    reader = as_reader(network)
    tokens = reader.check(tokens)
    if at_mask and reader.causal and not reader.mask_behind:
        warnings.warn(
            "a causal model does not see the text behind the first token, so it predicts the same there for all texts. "
            "Read it with FromTransformers(…, mask_behind=True)",
            stacklevel=3,
        )
    return reader, tokens


@own_settings()
@torch.no_grad()
def all_probs_at_mask(network: BertForMaskedLM | Reader, tokens: Tensor, prompt: Tensor | None = None) -> Tensor:
    """Return the network's distribution at the first token of each text, without gradients and dropout.

    Args:
        network: The network.
        tokens: Texts, (n, T).
        prompt: Vectors that are put before each text, (P, width).

    Returns:
        Distributions, (n, X).
    """
    reader, tokens = checked(network, tokens, at_mask=True)
    with evaluating(reader.module):
        return torch.cat([reader.probs(texts, prompt=prompt) for texts in tokens.split(TEXTS_AT_ONCE)])


@own_settings()
@torch.no_grad()
def all_hidden_at_mask(
    network: BertForMaskedLM | Reader, tokens: Tensor, prompt: Tensor | None = None, cut: Collection[int] = ()
) -> Tensor:
    """Return the hidden states at the first token of each text, without gradients and dropout.

    Args:
        network: The network.
        tokens: Texts, (n, T).
        prompt: Vectors that are put before each text, (P, width).
        cut: Numbers of layers, 1 for the first, in which no token attends to the prompt.

    Returns:
        Hidden states before the first layer and after each, (layers + 1, n, width).
    """
    reader, tokens = checked(network, tokens, at_mask=True)
    states = []
    with evaluating(reader.module):
        for texts in tokens.split(TEXTS_AT_ONCE):
            embedded = reader.embed(texts, prompt)
            states.append(reader.hidden(embedded, embedded.first, cut))
    return torch.cat(states, 1).to(reader.dtype)


@own_settings()
@torch.no_grad()
def all_probs(network: BertForMaskedLM | Reader, tokens: Tensor) -> Tensor:
    """Return the network's distributions at all positions of texts (n, T), as (n, T, X)."""
    reader, tokens = checked(network, tokens)
    probs = []
    with evaluating(reader.module):
        for texts in tokens.split(TEXTS_AT_ONCE):
            embedded = reader.embed(texts)
            logits = bert.gathered(reader.logits(embedded, None), embedded.places)
            probs.append(logits.softmax(-1, dtype=reader.dtype))
    return torch.cat(probs)


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Take no gradient of the module's weights within the block. Afterwards each weight is as it was before."""
    trainable = [weight for weight in module.parameters() if weight.requires_grad]
    module.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)


# Heads alone


@own_settings()
def tune_head(probs: Tensor, labels: Tensor, plan: Tuning, seed: int) -> LinearHead:
    """Tune a linear head on distributions that are computed once. Its weights begin with zeros.

    The head has no bias. A distribution sums to 1, so equal weights do what a bias would do.

    Args:
        probs: The distributions at the mask of the training texts, (n, X).
        labels: Their labels, (n,).
        plan: How to tune.
        seed: A seed for the order of the texts.

    Raises:
        FloatingPointError: The weights are no longer finite.
        ValueError: An argument has another shape, or values that are not accepted.

    Example:
        >>> import torch
        >>> from hmmlib import Tuning, tune_head
        >>> probs = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> head = tune_head(probs, [True, False], Tuning(epochs=20, batch=2), seed=0)
        >>> head.label(probs)
        tensor([ True, False])
    """
    probs = as_tensor("probs", probs, 2).detach()
    start = torch.zeros_like(probs[0])
    return fit_head(lambda batch: batch, start, probs, labels, plan, seed)


class TunedAttention(NamedTuple):
    """An attention head that can be trained: a softmax instead of the arg-max of (4.1), and values without embeddings.

    The head's score is the sum over its cells, each a small attention head. A cell gives position i, with distribution
    p_i, the score k·p_i + β_i and the value v·p_i. It returns the mean value, weighted by the softmax of the scores.
    """

    key: Tensor
    """k, (X, cells)."""
    value: Tensor
    """v, (X, cells)."""
    positions: Tensor
    """β, (T, cells)."""

    @without_autocast()
    def __call__(self, probs: Tensor) -> Tensor:
        """Return the scores, (n,), of token distributions (n, T, X).

        Raises:
            ValueError: The distributions have another shape.
        """
        probs = as_tensor("probs", probs, like=self.key)
        of_shape("probs", probs, (None, len(self.positions), len(self.key)))
        weights = (probs @ self.key + self.positions).softmax(1)
        values = probs @ self.value
        return (weights * values).sum((1, 2))

    def label(self, probs: Tensor) -> Tensor:
        """Return labels, (n,) bool: whether the score is ≥ 0."""
        return self(probs) >= 0


@own_settings()
def tune_attention(
    probs: Tensor, labels: Tensor, plan: Tuning, seed: int, cells: int = 1, positions: bool = True
) -> TunedAttention:
    """Tune an attention head on distributions that are computed once.

    Scores of positions begin with zero, so that all positions count alike. Values begin small and random.

    Args:
        probs: The distributions at all positions of the training texts, (n, T, X).
        labels: Their labels, (n,).
        plan: How to tune.
        seed: A seed for the first values, and for the order of the texts.
        cells: How many cells the head has.
        positions: Whether β is trained. If not, it stays zero.

    Raises:
        FloatingPointError: The head's parameters are no longer finite.
        ValueError: An argument has another shape, or values that are not accepted.

    Example:
        >>> import torch
        >>> from hmmlib import Tuning, tune_attention
        >>> probs = torch.tensor([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.5, 0.5]]])
        >>> head = tune_attention(probs, [True, False], Tuning(epochs=50, batch=2), seed=0)
        >>> head.label(probs)
        tensor([ True, False])
    """
    generator = as_generator(seed)
    probs = as_tensor("probs", probs, 3).detach()
    _, length, n_tokens = probs.shape
    integer("cells", cells, 1)
    values = torch.randn(n_tokens, cells, generator=generator) / n_tokens
    head = TunedAttention(
        key=nn.Parameter(probs.new_zeros(n_tokens, cells)),
        value=nn.Parameter(values.to(probs)),
        positions=nn.Parameter(probs.new_zeros(length, cells), requires_grad=positions),
    )
    trained = [parameter for parameter in head if parameter.requires_grad]
    fit(head, trained, probs, labels, plan, seed)
    return TunedAttention(head.key.detach(), head.value.detach(), head.positions.detach())


# A prompt with a head


@own_settings()
def initial_prompt(network: BertForMaskedLM | Reader, length: int, seed: int, start: str = "uniform") -> Tensor:
    """Draw a prompt before any training, on the network's device.

    Args:
        network: The network that will read it.
        length: How many vectors it has.
        seed: A seed for the draw.
        start: "uniform" for entries uniform on [-0.5, 0.5], as in appendix E, or "vocabulary" for word embeddings of
            random ids. These are all different as long as the vocabulary is large enough.

    Returns:
        The prompt, (length, width).
    """
    generator = as_generator(seed)
    reader = as_reader(network)
    if one_of("start", start, PROMPT_STARTS) == "uniform":
        draws = torch.rand(length, reader.width, generator=generator)
        return (draws - 0.5).to(reader.device, reader.dtype)
    vocabulary = reader.words
    orders = []
    for _ in range(max(1, math.ceil(length / len(vocabulary)))):
        orders.append(torch.randperm(len(vocabulary), generator=generator))
    rows = torch.cat(orders)[:length]
    return vocabulary[rows.to(vocabulary.device)].to(reader.dtype)


@own_settings()
def tune_prompt(
    network: BertForMaskedLM | Reader,
    tokens: Tensor,
    labels: Tensor,
    prompt_length: int,
    plan: Tuning,
    seed: int,
    start: str = "uniform",
    before_step: Callable[[], None] | None = None,
) -> tuple[Tensor, LinearHead]:
    """Tune a soft prompt before each text together with a linear head. The network stays as it is.

    Args:
        network: The network.
        tokens: The training texts, (n, T), which begin with MASK.
        labels: Their labels, (n,).
        prompt_length: How many vectors the prompt has. With 0 only the head is tuned.
        plan: How to tune.
        seed: A seed for the prompt's start, and for the order of the texts.
        start: Where the prompt begins, as in `initial_prompt`. The head begins with zeros.
        before_step: Called before each step. What it raises ends the tuning.

    Returns:
        The prompt, (prompt_length, width), and the head.

    Raises:
        FloatingPointError: What was trained is no longer finite.
        ValueError: Prompt and text need more positions than the network has, or an argument has a bad value.

    Example:
        >>> import torch
        >>> from hmmlib import MASK, Shape, Tuning, tune_prompt
        >>> from hmmlib.training.bert import build
        >>> network = build(Shape(layers=1, width=8, heads=2, max_length=8), n_tokens=4, seed=0)
        >>> texts = torch.tensor([[MASK, 0, 1], [MASK, 3, 2]])
        >>> prompt, head = tune_prompt(network, texts, [True, False], 5, Tuning(epochs=2), seed=0)
        >>> prompt.shape, head.weights.shape
        (torch.Size([5, 8]), torch.Size([4]))
    """
    reader, tokens = checked(network, tokens, at_mask=True)
    prompt_length = integer("prompt_length", prompt_length, 0)
    prompt = nn.Parameter(initial_prompt(reader, prompt_length, seed, start))
    if prompt_length == 0:  # The distributions never change, so they are computed once.
        probs = all_probs_at_mask(reader, tokens)
        return prompt.detach(), tune_head(probs, labels, plan, seed)
    inputs = tokens.to(reader.device)
    zeros = torch.zeros(reader.n_tokens, device=reader.device, dtype=reader.dtype)
    probs_behind = partial(reader.probs, prompt=prompt)
    with frozen(reader.module), evaluating(reader.module):
        head = fit_head(probs_behind, zeros, inputs, labels, plan, seed, [prompt], before_step, reader.is_half)
    return prompt.detach(), head


# A prompt on the exact model


def probs_behind_prompt(model: HMM, posteriors: Tensor, prompt: Tensor) -> Tensor:
    """Compute Ḡ_2 of (u, ∅, x) by (3.3) from posteriors, without passing messages again.

    Args:
        model: The model.
        posteriors: P[H_0 | X_{1:T} = x], (n, S).
        prompt: The prompt u, (S,). The result is differentiable in it.

    Returns:
        Distributions, (n, X). They are zero where prompt and text exclude each other.
    """
    after_prompt = lemma_c_2(model, prompt)
    weights = posteriors.to(after_prompt) * after_prompt
    total = weights.sum(1, keepdim=True)
    return weights / torch.where(total > 0, total, 1) @ model.emission.T  # (3.3)


@own_settings()
def tune_exact_prompt(
    model: HMM, posteriors: Tensor, labels: Tensor, plan: Tuning, seed: int
) -> tuple[Tensor, LinearHead]:
    """Tune one prompt vector together with a linear head on the exact Ḡ_2, by gradients that pass through Ḡ.

    Args:
        model: The model.
        posteriors: P[H_0 | X_{1:T} = x] of the training texts, (n, S).
        labels: Their labels, (n,).
        plan: How to tune.
        seed: A seed for the prompt's start, and for the order of the texts.

    Returns:
        The prompt u in [0, 1]^S, (S,), and the head. The prompt is the sigmoid of numbers that start standard normal.

    Raises:
        FloatingPointError: What was trained is no longer finite.
        ValueError: An argument has another shape, or values that are not accepted.

    Example:
        >>> import torch
        >>> from hmmlib import Tuning, posterior, random_hmm, tune_exact_prompt
        >>> model = random_hmm(n_states=3, n_tokens=5, seed=1)
        >>> posteriors = posterior(model, model.sample(n=20, length=6, seed=2).tokens)
        >>> labels = posteriors[:, 0] > 0.5
        >>> prompt, head = tune_exact_prompt(model, posteriors, labels, Tuning(epochs=3), seed=0)
        >>> prompt.shape
        torch.Size([3])
    """
    of_type("model", model, HMM)
    model = HMM(model.transition.detach(), model.emission.detach(), model.initial.detach(), columns=True)
    posteriors = as_tensor("posteriors", posteriors, like=model.initial).detach()
    of_shape("posteriors", posteriors, (None, model.n_states))
    raw_start = torch.randn(model.n_states, generator=as_generator(seed), dtype=model.dtype)
    raw = nn.Parameter(raw_start.to(model.device))
    zeros = posteriors.new_zeros(model.n_tokens)

    def probs(batch: Tensor) -> Tensor:
        return probs_behind_prompt(model, batch, raw.sigmoid())

    head = fit_head(probs, zeros, posteriors, labels, plan, seed, [raw])
    return raw.detach().sigmoid(), head


def accuracy(head: LinearHead | TunedAttention, probs: Tensor, labels: Tensor) -> float:
    """Return the share of texts whose label a head gets right.

    Args:
        head: The head.
        probs: The distributions it reads, (n, X) for a linear head and (n, T, X) for an attention head.
        labels: The labels, (n,).

    Raises:
        TypeError: The head is neither a LinearHead nor a TunedAttention.
        ValueError: An argument has another shape, or values that are not accepted.

    Example:
        >>> from hmmlib import LinearHead, accuracy
        >>> head = LinearHead([1.0, -1.0])
        >>> accuracy(head, [[0.9, 0.1], [0.2, 0.8]], [True, True])
        0.5
    """
    of_type("head", head, LinearHead, TunedAttention)
    return share_right(head.label(probs), labels)
