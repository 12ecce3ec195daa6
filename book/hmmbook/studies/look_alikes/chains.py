"""Random chains of six states and six tokens. States 0 and 1 have one emission distribution, 2 and 3 another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import count

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hmmbook.studies.fake_tokens import TOGETHER, fewest_errors, good_fake_token
from hmmbook.studies.readouts.families import FAMILIES, fit_readout
from hmmbook.studies.readouts.readout import Readout, total_variation
from hmmlib import HMM, MASK, lemma_c_2, posterior
from hmmlib.validation import as_generator

# How a chain is drawn
MIXTURE = (0.6, 0.25, 0.15)
"""The shares of three permutations of the states in the transition."""
JITTER = 0.2
"""The standard deviation of the logarithms of these shares from state to state."""
NOISE = 0.03
"""The share of a transition that is spread evenly."""
SHARP = 0.95
"""How much of an emission distribution is on one token."""
SOURCES = (4, 5)
"""The states that the fake token of Theorem 3.6 stands for."""
EXCLUDED = (1, 3)
"""States that never follow the sources."""
FOLLOWING = (0, 2)
"""States that do."""

# How chains are chosen
SCREENED = 1500
"""Texts on which a chain is screened."""
APART = 0.1
"""How far one kind of change must be from every change of the other kind, in total variation."""
RELABELLINGS = {"A": (0, 4, 2, 4, 4, 5), "C": (0, 2, 0, 2, 4, 5)}
"""For each task, the states whose emission distributions the states take, so that a head can solve it."""
LIMIT = 0.87
"""On task D no fake token may be right on a larger share of a hundred texts."""
NEAR_TIE = 0.05
"""A text of task D is a near tie where |μᵀp| is below this."""
FEW = 0.1
"""At most this share of its texts may be near ties."""
WEIGHTS_OF_D = (
    (1, -1, 1, -1, 1, -1),
    (1, -1, 1, -1, -1, 1),
    (1, -1, -1, 1, 1, -1),
    (1, -1, -1, 1, -1, 1),
)
"""The μ from which task D is chosen. They ask which of two look-alikes the state is."""


def look_alike_chain(seed: int, three: bool = False) -> HMM:
    """Draw a chain, started in its stationary distribution.

    Args:
        seed: The seed.
        three: Whether states 4 and 5 look alike, too, so that there are three pairs.
    """
    generator = as_generator(seed)
    permutations = draw_permutations(generator)
    transition = torch.zeros(6, 6, dtype=torch.float64)
    for state in range(6):
        jitter = JITTER * torch.randn(3, generator=generator)
        log_shares = torch.tensor(MIXTURE, dtype=torch.float64).log() + jitter
        for permutation, share in zip(permutations, log_shares.softmax(0), strict=True):
            transition[permutation[state], state] += (1 - NOISE) * share
        allowed = torch.ones(6, dtype=torch.float64)
        if state in SOURCES:
            allowed[list(EXCLUDED)] = 0
        transition[:, state] += NOISE * allowed / allowed.sum()

    tokens = torch.randperm(6, generator=generator)[:4]
    spread = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    columns = SHARP * one_hot(tokens, 6).T.double() + (1 - SHARP) * spread / spread.sum(0)
    emission = columns[:, [0, 0, 1, 1, 2, 2 if three else 3]]

    even = torch.full((6,), 1 / 6, dtype=torch.float64)
    stationary = HMM(transition, emission, even, columns=True).stationary()
    return HMM(transition, emission, stationary, columns=True)


def draw_permutations(generator: torch.Generator) -> list[Tensor]:
    """Draw permutations of the states until all of FOLLOWING and none of EXCLUDED come after the sources."""
    while True:
        permutations = [torch.randperm(6, generator=generator) for _ in MIXTURE]
        after_sources = set()
        for permutation in permutations:
            after_sources.update(permutation[list(SOURCES)].tolist())
        if after_sources.issuperset(FOLLOWING) and after_sources.isdisjoint(EXCLUDED):
            return permutations


def masked_texts(chain: HMM, n: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sample texts whose first token is masked.

    Returns:
        The texts, (n, length), and the exact beliefs about the state at the mask, (n, S).
    """
    tokens = chain.sample(n, length, seed).tokens
    tokens[:, 0] = MASK
    return tokens, posterior(chain, tokens, at=1)


def is_decidable(chain: HMM, seed: int) -> bool:
    """Tell whether reweighting and relabelling are far apart on the exact model, so that it shows which a prompt does.

    The theorem's fake token for task A must be APART from every relabelling, and both RELABELLINGS from every
    reweighting. No network is needed to say so.
    """
    _, beliefs = masked_texts(chain, SCREENED, 33, seed)
    emission = chain.emission
    sources = torch.zeros(6, dtype=torch.float64)
    sources[list(SOURCES)] = 1
    behind_theorem = Readout(emission, lemma_c_2(chain, sources))(beliefs)
    nearest = fit_readout(beliefs, behind_theorem, emission, FAMILIES["relabelled"], seed)
    if total_variation(nearest(beliefs), behind_theorem).mean() < APART:
        return False
    for states in RELABELLINGS.values():
        relabelled = beliefs @ emission[:, states].T
        nearest = fit_readout(beliefs, relabelled, emission, FAMILIES["reweighted"], seed)
        if total_variation(nearest(beliefs), relabelled).mean() < APART:
            return False
    return True


def decidable_seeds(first: int) -> Iterator[int]:
    """Yield the seeds from `first` up whose chains are decidable."""
    for seed in count(first):
        if is_decidable(look_alike_chain(seed), seed):
            yield seed


@lru_cache
def limited_mu(seed: int) -> tuple[int, ...] | None:
    """Return the first μ of task D for which no fake token is right on more than LIMIT of a hundred texts.

    Two hundreds of texts are tried. It is None if there is no such μ for the chain of this seed.
    """
    chain = look_alike_chain(seed, three=True)
    _, beliefs = masked_texts(chain, SCREENED, 33, seed)
    for mu in WEIGHTS_OF_D:
        scores = beliefs @ torch.tensor(mu, dtype=torch.float64)
        near_ties = (scores.abs() < NEAR_TIE).double().mean()
        if near_ties <= FEW and limits_fake_tokens(chain, beliefs, scores >= 0):
            return mu
    return None


def limits_fake_tokens(chain: HMM, beliefs: Tensor, labels: Tensor) -> bool:
    """Whether no fake token is right on more than LIMIT of the first and of the second hundred beliefs."""
    nu = good_fake_token(chain.emission, beliefs, labels)
    if ((beliefs @ nu >= 0) == labels).double().mean() > LIMIT:  # This is quicker than the bound.
        return False
    for hundred in (slice(0, TOGETHER), slice(TOGETHER, 2 * TOGETHER)):
        errors = fewest_errors(chain.emission, beliefs[hundred], labels[hundred])
        if errors < (1 - LIMIT) * TOGETHER:
            return False
    return True


def limited_seeds(first: int) -> Iterator[int]:
    """Yield the seeds from `first` up whose chains have such a task D."""
    for seed in count(first):
        if limited_mu(seed):
            yield seed
