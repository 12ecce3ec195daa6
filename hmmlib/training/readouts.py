"""What can be read off a network: its predictions as a function of the exact beliefs, and probes of its hidden states.

A fake token, whatever it is, only reweights the belief about the state (Lemma C.2), and the prediction stays W times a
belief. A network might also predict by other columns than those of W. Both are a `Readout`, and their best fits can be
compared. Readouts and probes are fitted on one set of texts and judged on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib.validation import as_generator, as_seed, one_of

COLUMNS = ("emission", "mapped", "free")
"""The columns that a belief may weigh: W's; those of T W, where one map T takes tokens to tokens; or any, (X, S)."""

TINY = torch.finfo(torch.float64).tiny
DECAY = 1e-4
"""The weight of the squared norm of a probe's weights beside the mean loss. Without it logistic regression has no end
where labels can be separated, and least squares reads rounding where texts are few and alike."""

STEPS, POLISH, APPROACH = 300, 300, 200
"""The most steps of expectation and maximisation, of L-BFGS after them, and of Adam towards the least distance."""


class Readout(NamedTuple):
    """The prediction from a belief p: `columns` (c ⊙ p) / cᵀp, with c ≥ 0 the `weights`.

    `columns` is (X, S), each a distribution over tokens; `weights` (S,), the largest of them 1.
    """

    columns: Tensor
    weights: Tensor

    def __call__(self, beliefs: Tensor) -> Tensor:
        """Predictions (n, X) from beliefs (n, S); the zero vector where c ⊙ p = 0."""
        weighed = beliefs.to(self.columns) * self.weights  # c ⊙ p
        total = weighed.sum(1, keepdim=True)
        return weighed @ self.columns.T / torch.where(total > 0, total, 1)


def total_variation(predictions: Tensor, others: Tensor) -> Tensor:
    """Half the L1 distance of two distributions over tokens, (n, X) each, for every text: (n,), from 0 to 1."""
    return (predictions - others.to(predictions)).abs().sum(1) / 2


def cross_entropy(found: Tensor, wanted: Tensor) -> Tensor:
    """The mean cross-entropy of predictions (n, X), nats."""
    return -(wanted * found.clamp(min=TINY).log()).sum(1).mean()


def minimise(parameters: list[Tensor], loss: Callable[[], Tensor], **tolerances: float) -> None:
    """L-BFGS on `loss()`, of at most POLISH steps."""
    optimiser = torch.optim.LBFGS(parameters, max_iter=POLISH, line_search_fn="strong_wolfe", **tolerances)

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)


def descend(parameters: Iterable[Tensor], rate: float, steps: int, loss: Callable[[int], Tensor]) -> None:
    """Adam on `loss(step)`, at a rate that falls to zero like a cosine."""
    optimiser = torch.optim.Adam(parameters, lr=rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        with torch.enable_grad():
            value = loss(step)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        scheduler.step()


class _Fit(NamedTuple):
    """What is fitted: beliefs p (n, S), predictions g (n, X), W (X, S), one of COLUMNS, and whether c is fitted too.

    A `table` is T, or the columns themselves.
    """

    beliefs: Tensor
    predictions: Tensor
    emission: Tensor
    family: str
    reweighted: bool

    def readout(self, table: Tensor, weights: Tensor) -> Readout:
        columns = self.emission if self.family == "emission" else table
        return Readout(table @ self.emission if self.family == "mapped" else columns, weights / weights.max())

    def loss(self, table: Tensor, weights: Tensor) -> Tensor:
        return cross_entropy(self.readout(table, weights)(self.beliefs), self.predictions)

    def distance(self, table: Tensor, weights: Tensor) -> Tensor:
        return total_variation(self.readout(table, weights)(self.beliefs), self.predictions).mean()

    def step(self, table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """One step of expectation and maximisation, after which the fit is never worse.

        The latent variables are the state and the token before T that each prediction comes from.
        """
        total = (self.beliefs * weights).sum(1, keepdim=True)
        weighed, found = self.beliefs * weights / total, self.readout(table, weights)
        ratio = self.predictions / (weighed @ found.columns.T).clamp(min=TINY)
        if self.reweighted:
            expected = (weighed * (ratio @ found.columns)).sum(0)
            weights = expected / (self.beliefs / total).sum(0).clamp(min=TINY)
        if self.family != "emission":
            before = weighed @ self.emission.T if self.family == "mapped" else weighed
            shares = table * (ratio.T @ before)
            total = shares.sum(0)  # 0 for a state without probability: its column stays
            table = torch.where(total > 0, shares / total, table)
        return table, weights / weights.max()

    def logarithms(self, table: Tensor, weights: Tensor, least: float) -> tuple[list[Tensor], Callable]:
        """What gradients move, and a function that gives the table and the weights that it stands for."""
        raw = [part.clamp(min=least).log().requires_grad_() for part in (table, weights)]
        return raw, lambda: (raw[0].softmax(0), raw[1].exp() if self.reweighted else weights)

    def optimum(self, table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """STEPS such steps, and then L-BFGS on logarithms; the better of the two ends."""
        for _ in range(STEPS):
            table, weights = self.step(table, weights)
        raw, values = self.logarithms(table, weights, TINY)
        minimise(raw, lambda: self.loss(*values()), tolerance_grad=1e-12, tolerance_change=1e-14)
        ends = (table, weights), tuple(part.detach() for part in values())
        return min(ends, key=lambda end: self.loss(*end).nan_to_num(nan=torch.inf).item())

    def approach(self, table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest of all that Adam passes, on logarithms, on its way down the mean total variation."""
        raw, values = self.logarithms(table, weights, 1e-12)
        best, least = (table, weights), self.distance(table, weights).item()

        def distance(_: int) -> Tensor:
            nonlocal best, least
            now = values()
            distance = self.distance(*now)
            if distance < least:
                best, least = tuple(part.detach() for part in now), distance.item()
            return distance

        descend(raw, 0.1, APPROACH, distance)
        return best


def fit_readout(
    beliefs: Tensor,
    predictions: Tensor,
    emission: Tensor,
    columns: str = "emission",
    reweighted: bool = False,
    seed: int = 0,
    starts: int = 3,
    nearest: bool = False,
) -> Readout:
    """The `Readout` of one family of the least mean cross-entropy to the network's predictions.

    `beliefs` are the exact p for each text, (n, S), `predictions` the network's predictions, (n, X), and `emission` is
    W, (X, S). `columns` is one of COLUMNS; ValueError for another. With `reweighted` c is fitted too, otherwise c = 1.
    With c the problem is not convex, and the best end of `starts` counts, which `seed` draws; the first is c = 1 with
    the columns that fit best then, so that no fit is worse than without c.

    With `nearest`, the search then goes down the mean total variation, because the fit of the least cross-entropy need
    not be near where W has entries of nearly zero.
    """
    beliefs, predictions, emission = beliefs.double(), predictions.double(), emission.double()
    generator = as_generator(seed)
    fit = _Fit(beliefs, predictions, emission, one_of("columns", columns, COLUMNS), reweighted)
    n_tokens, n_states = emission.shape
    width = n_tokens if columns == "mapped" else n_states
    even, ones = emission.new_full((n_tokens, width), 1 / n_tokens), emission.new_ones(n_states)
    if columns == "emission" and not reweighted:
        return fit.readout(even, ones)
    best = (even, ones) if columns == "emission" else fit._replace(reweighted=False).optimum(even, ones)
    if reweighted:
        ends = [fit.optimum(best[0], ones)]
        for _ in range(starts - 1):
            table, weights = (torch.rand(part.shape, generator=generator, dtype=torch.float64) for part in (even, ones))
            ends.append(fit.optimum(table / table.sum(0), weights))
        best = min(ends, key=lambda end: fit.loss(*end).item())
    return fit.readout(*(fit.approach(*best) if nearest else best))


def free_readout(beliefs: Tensor, predictions: Tensor, seed: int = 0, width: int = 64, steps: int = 1000) -> nn.Module:
    """A network of p with two hidden layers, fitted by Adam. It shows how much beliefs can explain at all.

    It is fitted to the least cross-entropy, and in the second half of the steps to the least mean total variation.
    Called with beliefs (n, S) in float64, it gives predictions (n, X). Arguments are as in `fit_readout`.
    """
    beliefs, predictions, generator = beliefs.double(), predictions.double(), as_generator(seed)
    sizes = (beliefs.shape[1], width, width, predictions.shape[1])
    with torch.random.fork_rng():
        torch.manual_seed(as_seed(seed))
        layers = [nn.Linear(*pair, dtype=torch.float64) for pair in pairwise(sizes)]
    free = nn.Sequential(layers[0], nn.GELU(), layers[1], nn.GELU(), layers[2], nn.Softmax(1))

    def loss(step: int) -> Tensor:
        batch = torch.randint(len(beliefs), (256,), generator=generator)
        found, wanted = free(beliefs[batch]), predictions[batch]
        if step < steps / 2:
            return cross_entropy(found, wanted)
        return total_variation(found, wanted).mean()

    descend(free.parameters(), 1e-2, steps, loss)
    return free.requires_grad_(False)


class Probe(NamedTuple):
    """(hidden - `centre`) / `scale` times `weights` (d, k), plus `bias` (k,)."""

    centre: Tensor
    scale: Tensor
    weights: Tensor
    bias: Tensor

    def __call__(self, hidden: Tensor) -> Tensor:
        """What is read off hidden states (n, d): (n, k)."""
        return (hidden.to(self.centre) - self.centre) / self.scale @ self.weights + self.bias


def _scaled(hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centre, scale, and the hidden states with them; what does not vary keeps the scale 1."""
    hidden = hidden.detach().double().cpu()
    centre, spread = hidden.mean(0), hidden.std(0, correction=0)
    scale = torch.where(spread > 0, spread, 1)
    return centre, scale, (hidden - centre) / scale


def linear_probe(hidden: Tensor, values: Tensor) -> Probe:
    """The probe of values (n, k) from hidden states (n, d), by least squares with DECAY."""
    centre, scale, inputs = _scaled(hidden)
    values = values.to(inputs)
    bias, n = values.mean(0), len(inputs)
    gram = inputs.T @ inputs / n + DECAY * torch.eye(inputs.shape[1], dtype=inputs.dtype)
    return Probe(centre, scale, torch.linalg.solve(gram, inputs.T @ (values - bias) / n), bias)


def logistic_probe(hidden: Tensor, labels: Tensor) -> Probe:
    """The probe (n, 1) from hidden states (n, d) whose sign is the label, (n,) bool: logistic regression with DECAY."""
    centre, scale, inputs = _scaled(hidden)
    target = labels.to(inputs)
    weights, bias = inputs.new_zeros(inputs.shape[1], 1).requires_grad_(), inputs.new_zeros(1).requires_grad_()

    def loss() -> Tensor:
        scores = (inputs @ weights + bias).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, target) + DECAY * weights.square().sum()

    minimise([weights, bias], loss)
    return Probe(centre, scale, weights.detach(), bias.detach())


def explained(found: Tensor, values: Tensor) -> float:
    """The share of the variance of values (n, k), that `found` (n, k) explains; below 0 if the mean is nearer.

    ValueError where the values do not vary.
    """
    total = (values - values.mean(0)).square().sum()
    if not total > 0:
        raise ValueError("values must vary: there is nothing to explain")
    return 1 - ((found.to(values) - values).square().sum() / total).item()
