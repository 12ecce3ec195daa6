"""What a network says as a function of what is to be believed: fits of its guesses to the exact beliefs.

A fake token, whatever it is, only reweights the belief about the state (Lemma C.2), and what is said stays W times a belief.
A network might also say the same belief in other words. Both are a `Readout`; how near each can come tells them apart.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hmmlib.validation import as_generator, as_seed, as_tensor, at_least, of_type, of_width, one_of

WORDS = ("emission", "translated", "own")
"""The columns in which a belief may be told: those of W; those of T W, where one map T takes tokens to tokens; or any R,
(X, S)."""

TINY = torch.finfo(torch.float64).tiny

STEPS, POLISH, APPROACH = 300, 300, 200
"""The most steps of expectation and maximisation, then those of L-BFGS, and those of Adam towards the least distance."""


class Readout(NamedTuple):
    """What is said of a belief p: `columns` (c ⊙ p) / cᵀp, with c ≥ 0 the `weights`.

    `columns` is (X, S), each a distribution over tokens; `weights` (S,), the largest of them 1.
    """

    columns: Tensor
    weights: Tensor

    def __call__(self, beliefs: Tensor) -> Tensor:
        """Guesses (n, X) of beliefs (n, S); the zero vector where c excludes all that is believed.

        ValueError for another shape.
        """
        beliefs = of_width("beliefs", beliefs, len(self.weights), 2).to(self.columns)
        weighed = beliefs * self.weights  # c ⊙ p
        total = weighed.sum(1, keepdim=True)
        return weighed @ self.columns.T / torch.where(total > 0, total, 1)


def total_variation(guesses: Tensor, others: Tensor) -> Tensor:
    """Half the L1 distance of two distributions over tokens, (n, X) each, for every text: (n,), from 0 to 1.

    ValueError where the shapes differ.
    """
    guesses = as_tensor("guesses", guesses, 2)
    others = as_tensor("others", others, 2)
    if others.shape != guesses.shape:
        raise ValueError(f"others must have the shape of guesses, {tuple(guesses.shape)}, not {tuple(others.shape)}")
    return (guesses - others.to(guesses)).abs().sum(1) / 2


class _Fit(NamedTuple):
    """What is fitted to what: beliefs p (n, S), guesses g (n, X), W (X, S), and one of WORDS."""

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
        """The mean cross-entropy of the guesses, nats."""
        return -(self.guesses * found(self.beliefs).clamp(min=TINY).log()).sum(1).mean()

    def step(self, table: Tensor, weights: Tensor, reweighted: bool) -> tuple[Tensor, Tensor]:
        """One step of expectation and maximisation, after which the fit is never worse. What is inferred is which state, and
        which token before T, each guess comes from."""
        total = (self.beliefs * weights).sum(1, keepdim=True)
        weighed, found = self.beliefs * weights / total, self.readout(table, weights)
        ratio = self.guesses / (weighed @ found.columns.T).clamp(min=TINY)
        if reweighted:
            blame = (weighed * (ratio @ found.columns)).sum(0)
            weights = blame / (self.beliefs / total).sum(0).clamp(min=TINY)
        if self.words != "emission":
            before = weighed @ self.emission.T if self.words == "translated" else weighed
            shares = table * (ratio.T @ before)
            total = shares.sum(0)  # 0 for a state that is never believed: its column stays
            table = torch.where(total > 0, shares / total, table)
        return table, weights / weights.max()

    def climb(self, table: Tensor, weights: Tensor, reweighted: bool) -> tuple[Tensor, Tensor]:
        """STEPS such steps, and then L-BFGS on logarithms; its end counts where it is better."""
        for _ in range(STEPS):
            table, weights = self.step(table, weights, reweighted)
        ends = [(table, weights)]
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
        ends.append(tuple(part.detach() for part in values()))
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
    """The `Readout` of one family under which the guesses are likeliest, which is to say of the least mean cross-entropy.

    With `nearest`, the search then goes down the mean total variation, because what is likeliest need not be near where W
    has entries of nearly zero.

    Args:
        beliefs: the exact p for each text, (n, S).
        guesses: what is said, (n, X).
        emission: W, (X, S).
        words: one of WORDS.
        reweighted: whether c is fitted too; otherwise c = 1, and nothing is left to fit with the words of the model.
        seed: of the starting points.
        starts: how many, of which the best end counts. With c the problem is not convex; the first start is c = 1 with the
            columns that fit best then, so that no fit is worse than without c.

    ValueError for shapes that do not fit together, words that are none of WORDS, or less than one start.
    """
    emission = as_tensor("emission", emission, 2).double()
    beliefs = of_width("beliefs", beliefs, emission.shape[1], 2).double()
    guesses = of_width("guesses", guesses, len(emission), 2).double()
    if len(guesses) != len(beliefs):
        raise ValueError(f"guesses must be {len(beliefs)}, one for each of beliefs, not {len(guesses)}")
    one_of("words", words, WORDS)
    of_type("reweighted", reweighted, bool)
    of_type("nearest", nearest, bool)
    starts = at_least("starts", starts, 1)
    generator, fit = as_generator(seed), _Fit(beliefs, guesses, emission, words)
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

    It is fitted to the guesses' likelihood first, and in the second half of the steps to the least mean total variation.

    Called with beliefs (n, S) in float64, the network gives guesses (n, X). Arguments are as in `fit_readout`; ValueError as
    there, and for a width or a number of steps below 1.
    """
    beliefs, guesses = as_tensor("beliefs", beliefs, 2).double(), as_tensor("guesses", guesses, 2).double()
    if len(guesses) != len(beliefs):
        raise ValueError(f"guesses must be {len(beliefs)}, one for each of beliefs, not {len(guesses)}")
    at_least("width", width, 1)
    at_least("steps", steps, 1)
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
            said, wanted = free(beliefs[batch]), guesses[batch]
            likely = -(wanted * said.clamp(min=TINY).log()).sum(1).mean()
            loss = likely if step < steps / 2 else total_variation(said, wanted).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        scheduler.step()
    return free.requires_grad_(False)
