"""A network's predictions as a function of the exact beliefs: fits of distributions over tokens to beliefs about the state.

A fake token, whatever it is, only reweights the belief about the state (Lemma C.2), and the prediction stays W times a
belief. A network might also predict by other columns than those of W. Both are a `Readout`; how near the best fit of each
comes tells them apart.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hmmlib.validation import as_generator, as_seed, one_of

WORDS = ("emission", "translated", "own")
"""The columns that a belief may weigh: those of W; those of T W, where one map T takes tokens to tokens; or any R, (X, S)."""

TINY = torch.finfo(torch.float64).tiny

STEPS, POLISH, APPROACH = 300, 300, 200
"""The most steps of expectation and maximisation, then those of L-BFGS, and those of Adam towards the least distance."""


class Readout(NamedTuple):
    """The prediction from a belief p: `columns` (c ⊙ p) / cᵀp, with c ≥ 0 the `weights`.

    `columns` is (X, S), each a distribution over tokens; `weights` (S,), the largest of them 1.
    """

    columns: Tensor
    weights: Tensor

    def __call__(self, beliefs: Tensor) -> Tensor:
        """Predictions (n, X) from beliefs (n, S); the zero vector where c excludes all states that are believed."""
        weighed = beliefs.to(self.columns) * self.weights  # c ⊙ p
        total = weighed.sum(1, keepdim=True)
        return weighed @ self.columns.T / torch.where(total > 0, total, 1)


def total_variation(guesses: Tensor, others: Tensor) -> Tensor:
    """Half the L1 distance of two distributions over tokens, (n, X) each, for every text: (n,), from 0 to 1."""
    return (guesses - others.to(guesses)).abs().sum(1) / 2


class _Fit(NamedTuple):
    """What a fit is made of: beliefs p (n, S), predictions g (n, X), W (X, S), and one of WORDS."""

    beliefs: Tensor
    guesses: Tensor
    emission: Tensor
    words: str

    def readout(self, table: Tensor, weights: Tensor) -> Readout:
        """The readout with T, or the columns themselves, as `table`."""
        if self.words == "emission":
            return Readout(self.emission, weights / weights.max())
        columns = table @ self.emission if self.words == "translated" else table
        return Readout(columns, weights / weights.max())

    def loss(self, found: Readout) -> Tensor:
        """The mean cross-entropy of the predictions, nats."""
        return -(self.guesses * found(self.beliefs).clamp(min=TINY).log()).sum(1).mean()

    def step(self, table: Tensor, weights: Tensor, reweighted: bool) -> tuple[Tensor, Tensor]:
        """One step of expectation and maximisation, after which the fit is never worse. The latent variables are the state and
        the token before T that each prediction comes from."""
        total = (self.beliefs * weights).sum(1, keepdim=True)
        weighed, found = self.beliefs * weights / total, self.readout(table, weights)
        ratio = self.guesses / (weighed @ found.columns.T).clamp(min=TINY)
        if reweighted:
            expected = (weighed * (ratio @ found.columns)).sum(0)
            weights = expected / (self.beliefs / total).sum(0).clamp(min=TINY)
        if self.words != "emission":
            before = weighed @ self.emission.T if self.words == "translated" else weighed
            shares = table * (ratio.T @ before)
            total = shares.sum(0)  # 0 for a state that is never believed: its column stays
            table = torch.where(total > 0, shares / total, table)
        return table, weights / weights.max()

    def climb(self, table: Tensor, weights: Tensor, reweighted: bool) -> tuple[Tensor, Tensor]:
        """STEPS such steps, and then L-BFGS on logarithms; the better of the two ends."""
        for _ in range(STEPS):
            table, weights = self.step(table, weights, reweighted)
        raw = [part.clamp(min=TINY).log().requires_grad_() for part in (table, weights)]
        optimiser = torch.optim.LBFGS(
            raw, max_iter=POLISH, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
        )

        def values() -> tuple[Tensor, Tensor]:
            return raw[0].softmax(0), raw[1].exp() if reweighted else weights

        def closure() -> Tensor:
            optimiser.zero_grad()
            value = self.loss(self.readout(*values()))
            if value.requires_grad:
                value.backward()
            return value

        optimiser.step(closure)
        ends = (table, weights), tuple(part.detach() for part in values())
        return min(ends, key=lambda end: self.loss(self.readout(*end)).nan_to_num(nan=torch.inf).item())

    def approach(self, table: Tensor, weights: Tensor, reweighted: bool) -> tuple[Tensor, Tensor]:
        """The nearest of all that Adam passes, on logarithms, on its way down the mean total variation."""
        raw = [part.clamp(min=1e-12).log().requires_grad_() for part in (table, weights)]
        optimiser = torch.optim.Adam(raw, lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, APPROACH)
        best, least = (table, weights), self.distance(table, weights).item()
        for _ in range(APPROACH if self.words != "emission" or reweighted else 0):
            with torch.enable_grad():
                now = raw[0].softmax(0), raw[1].exp() if reweighted else weights
                distance = self.distance(*now)
            if distance < least:
                best, least = tuple(part.detach() for part in now), distance.item()
            optimiser.zero_grad()
            distance.backward()
            optimiser.step()
            scheduler.step()
        return best

    def distance(self, table: Tensor, weights: Tensor) -> Tensor:
        """The mean total variation."""
        return total_variation(self.readout(table, weights)(self.beliefs), self.guesses).mean()


def fit_readout(
    beliefs: Tensor,
    guesses: Tensor,
    emission: Tensor,
    words: str = "emission",
    reweighted: bool = False,
    seed: int = 0,
    starts: int = 3,
    nearest: bool = False,
) -> Readout:
    """The `Readout` of one family of the least mean cross-entropy to the network's predictions.

    With `nearest`, the search then goes down the mean total variation, because the fit of the least cross-entropy need not
    be near where W has entries of nearly zero.

    Args:
        beliefs: the exact p for each text, (n, S).
        guesses: the network's predictions, (n, X).
        emission: W, (X, S).
        words: one of WORDS.
        reweighted: whether c is fitted too; otherwise c = 1, and with `words` "emission" nothing is left to fit.
        seed: of the starting points.
        starts: how many, of which the best end counts. With c the problem is not convex; the first start is c = 1 with the
            columns that fit best then, so that no fit is worse than without c.

    ValueError for words that are none of WORDS.
    """
    beliefs, guesses, emission = beliefs.double(), guesses.double(), emission.double()
    generator, fit = as_generator(seed), _Fit(beliefs, guesses, emission, one_of("words", words, WORDS))
    n_tokens, n_states = emission.shape
    width = n_tokens if words == "translated" else n_states
    even, ones = emission.new_full((n_tokens, width), 1 / n_tokens), emission.new_ones(n_states)
    table = even if words == "emission" else fit.climb(even, ones, False)[0]
    if not reweighted:
        return fit.readout(*(fit.approach(table, ones, False) if nearest else (table, ones)))
    ends = [fit.climb(table, ones, True)]
    for _ in range(starts - 1):
        table, weights = (torch.rand(part.shape, generator=generator, dtype=torch.float64) for part in (even, ones))
        ends.append(fit.climb(table / table.sum(0), weights, True))
    best = min(ends, key=lambda end: fit.loss(fit.readout(*end)).item())
    return fit.readout(*(fit.approach(*best, True) if nearest else best))


def free_readout(beliefs: Tensor, guesses: Tensor, seed: int = 0, width: int = 64, steps: int = 1000) -> nn.Module:
    """A network of p with two hidden layers, fitted by Adam. It shows how much beliefs can explain at all.

    It is fitted to the least cross-entropy first, and in the second half of the steps to the least mean total variation.

    Called with beliefs (n, S) in float64, the network gives predictions (n, X). Arguments are as in `fit_readout`.
    """
    beliefs, guesses = beliefs.double(), guesses.double()
    sizes = (beliefs.shape[1], width, width, guesses.shape[1])
    with torch.random.fork_rng():
        torch.manual_seed(as_seed(seed))
        layers = [nn.Linear(*pair, dtype=torch.float64) for pair in pairwise(sizes)]
    free = nn.Sequential(layers[0], nn.GELU(), layers[1], nn.GELU(), layers[2], nn.Softmax(1))
    optimiser = torch.optim.Adam(free.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    generator = as_generator(seed)
    for step in range(steps):
        batch = torch.randint(len(beliefs), (256,), generator=generator)
        with torch.enable_grad():
            found, wanted = free(beliefs[batch]), guesses[batch]
            if step < steps / 2:
                loss = -(wanted * found.clamp(min=TINY).log()).sum(1).mean()
            else:
                loss = total_variation(found, wanted).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        scheduler.step()
    return free.requires_grad_(False)
