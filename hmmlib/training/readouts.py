"""What can be read off a network: its predictions as a function of the exact beliefs, and probes of its hidden states.

A fake token, whatever it is, only reweights the belief about the state (Lemma C.2), and the prediction stays W times a
belief. A network might also predict by other columns than those of W. Both are a `Readout`, and their best fits can be
compared. Readouts and probes are fitted on one set of texts and judged on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
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

POLISH = 300
"""The most steps of L-BFGS."""
STARTS, SCREENED, TEXTS, KEPT, APPROACH, RATE = 32, 100, 500, 8, 300, 0.1
"""The starts of a search, Adam's steps from each and on how many texts, how many of the nearest go on, their steps on
all texts, and Adam's rate."""
WIDE, LEAST = (3.0, 5.0, 8.0, 12.0), 1e-6
"""The standard deviations of the logarithms of weights, of every fourth start each: where beliefs are nearly certain
only weights that lie far apart change anything. And the least entry whose logarithm is taken."""
COARSE, FINE, LEVELS, ROUNDS, GAIN = 3.0, 0.3, 8, 12, 1e-4
"""A line search over the logarithm of one weight tries so many steps to either side, of one of these widths; rounds
over all weights end after so many, or when one gains less than this."""
PARENTS, REDRAWN, BEST, LIMIT = 16, 0.1, 3, 300.0
"""How many of the nearest are mixed in pairs, what share of weights is drawn anew there, how many of the best go on
with all texts, and how far apart the logarithms of weights may lie."""


class Readout(NamedTuple):
    """The prediction from a belief p: `columns` (c ⊙ p) / cᵀp, with c ≥ 0 the `weights`.

    `columns` is (X, S), each a distribution over tokens; `weights` (S,), the largest of them 1.
    """

    columns: Tensor
    weights: Tensor

    def __call__(self, beliefs: Tensor) -> Tensor:
        """Predictions (n, X) from beliefs (n, S); the zero vector where c ⊙ p = 0. Axes before these count readouts."""
        weighed = beliefs.to(self.columns) * self.weights.unsqueeze(-2)  # c ⊙ p
        total = weighed.sum(-1, keepdim=True)
        return weighed @ self.columns.mT / torch.where(total > 0, total, 1)


def weighing(columns: Tensor, logs: Tensor) -> Readout:
    """The readout with weights given by their logarithms, up to a factor; axes before the last count readouts."""
    return Readout(columns, (logs - logs.amax(-1, keepdim=True)).exp())


def total_variation(predictions: Tensor, others: Tensor) -> Tensor:
    """Half the L1 distance of two distributions over tokens, (n, X) each, for every text: (n,), from 0 to 1."""
    return (predictions - others.to(predictions)).abs().sum(1) / 2


def minimise(parameters: list[Tensor], loss: Callable[[], Tensor]) -> None:
    """L-BFGS on `loss()`, of at most POLISH steps."""
    optimiser = torch.optim.LBFGS(parameters, max_iter=POLISH, line_search_fn="strong_wolfe")

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


Parameters = list[Tensor]
"""What gradients move: tensors whose first axis counts the starts of a search."""


def nearest(predict: Callable[..., Tensor], starts: Parameters, inputs: Tensor, wanted: Tensor) -> Parameters:
    """Of all that a search passes, the parameters whose predictions are nearest to those wanted, (n, X).

    `predict(inputs, *parameters)` gives predictions (starts, n, X). The distance is the mean total variation. Adam goes
    down it from every start, on the first TEXTS; after SCREENED steps the nearest KEPT go on, and the first start.
    """
    parameters, distances = approach(predict, starts, inputs[:TEXTS], wanted[:TEXTS], SCREENED)
    kept = distances.argsort()[:KEPT]
    going_on = [torch.cat([start[:1], part[kept]]) for start, part in zip(starts, parameters, strict=True)]
    parameters, distances = approach(predict, going_on, inputs, wanted, APPROACH)
    return [part[distances.argmin()] for part in parameters]


def approach(
    predict: Callable[..., Tensor], starts: Parameters, inputs: Tensor, wanted: Tensor, steps: int
) -> tuple[Parameters, Tensor]:
    """For each start, the nearest that so many steps of Adam pass, and its distance."""
    parameters = [part.clone().requires_grad_() for part in starts]
    best, least = [part.clone() for part in starts], starts[0].new_full((len(starts[0]),), torch.inf)

    def distance(_: int) -> Tensor:
        found = (predict(inputs, *parameters) - wanted).abs().sum(2).mean(1) / 2
        nearer = found < least
        least[nearer] = found.detach()[nearer]
        for kept, part in zip(best, parameters, strict=True):
            kept[nearer] = part.detach()[nearer]
        return found.sum()

    descend(parameters, RATE, steps, distance)
    return best, least


def search_lines(
    beliefs: Tensor, wanted: Tensor, emission: Tensor, logs: Tensor, steps: Iterable[float], generator: torch.Generator
) -> tuple[float, Tensor]:
    """The distance of W (c ⊙ p) / cᵀp from what is wanted after line searches over each log c_h in turn, and log c.

    What is left at a text, Σ_h c_h p_h (W_h - g), is linear in each c_h, and its distance is half its norm over cᵀp.
    """
    parts = beliefs.T.unsqueeze(2) * (emission.T.unsqueeze(1) - wanted)  # p_h (W_h - g), (S, n, X)

    def distances(others: Tensor, chosen: int, levels: Tensor) -> Tensor:
        """The mean distance for each level of the chosen weight, where its entry among the others is 0."""
        left = torch.tensordot(others, parts, 1) + levels[:, None, None] * parts[chosen]
        return (left.abs().sum(2) / (beliefs @ others + levels[:, None] * beliefs[:, chosen])).mean(1) / 2

    levels, least, logs = torch.arange(-LEVELS, LEVELS + 1).double(), torch.inf, logs.clone()
    for step in steps:
        for _ in range(ROUNDS):
            before = least
            for chosen in torch.randperm(len(logs), generator=generator).tolist():
                others = (logs - logs.max()).exp()
                tried = (logs[chosen] + step * levels).clamp(min=logs.max() - LIMIT)
                others[chosen] = 0
                found, at = distances(others, chosen, (tried - logs.max()).exp()).min(0)
                logs[chosen], least = tried[at], found.item()
            if before - least < GAIN:
                break
    return least, logs - logs.max()


def nearest_weights(
    beliefs: Tensor, wanted: Tensor, emission: Tensor, starts: int, generator: torch.Generator
) -> Readout:
    """The nearest W (c ⊙ p) / cᵀp. There are very many local minima, so that derivatives serve only at the end.

    On the first TEXTS, line searches go on from `starts` draws, and three times as often from two of the nearest, of
    which each log c_h is taken from one or the other. The best, and c = 1, go on with all texts, and last by Adam.
    """
    few, n_states = (beliefs[:TEXTS], wanted[:TEXTS], emission), emission.shape[1]

    def draw(wide: float) -> Tensor:
        return wide * torch.randn(n_states, generator=generator, dtype=emission.dtype)

    def chance(share: float) -> Tensor:
        return torch.rand(n_states, generator=generator) < share

    ends = [search_lines(*few, draw(WIDE[start % len(WIDE)]), [COARSE], generator) for start in range(starts)]
    for _ in range(3 * starts):
        ends.sort(key=lambda end: end[0])
        one, other = (ends[which][1] for which in torch.randperm(min(PARENTS, starts), generator=generator)[[0, -1]])
        mixed = torch.where(chance(REDRAWN), draw(WIDE[-1]), torch.where(chance(0.5), one, other))
        ends.append(search_lines(*few, mixed, [COARSE], generator))
    ends.sort(key=lambda end: end[0])
    going_on = [torch.zeros_like(emission[0]), *(logs for _, logs in ends[:BEST])]
    ends = [search_lines(beliefs, wanted, emission, logs, [COARSE, FINE], generator)[1] for logs in going_on]
    starting = [torch.stack([going_on[0], *ends])]
    (logs,), distances = approach(lambda p, logs: weighing(emission, logs)(p), starting, beliefs, wanted, APPROACH)
    return weighing(emission, logs[distances.argmin()])


def fit_readout(
    beliefs: Tensor,
    predictions: Tensor,
    emission: Tensor,
    columns: str = "emission",
    reweighted: bool = False,
    seed: int = 0,
    starts: int = STARTS,
) -> Readout:
    """The `Readout` of one family that is nearest to the network's predictions, in mean total variation.

    `beliefs` are the exact p for each text, (n, S), `predictions` the network's predictions, (n, X), and `emission` is
    W, (X, S). `columns` is one of COLUMNS; ValueError for another. With `reweighted` c is fitted too, otherwise c = 1.
    Columns alone are a convex problem. With c the nearest end of a search from `starts` draws counts, which
    `seed` makes. It goes on from c = 1 and the columns that are nearest then, too: no fit is worse than without c.
    """
    beliefs, predictions, emission = beliefs.double(), predictions.double(), emission.double()
    one_of("columns", columns, COLUMNS)
    if columns == "emission" and reweighted:
        return nearest_weights(beliefs, predictions, emission, starts, as_generator(seed))
    draw = partial(torch.randn, generator=as_generator(seed), dtype=torch.float64)
    table = (torch.eye(len(emission)).double() if columns == "mapped" else emission).clamp(min=LEAST).log()
    even = torch.zeros_like(emission[0])

    def readout(table: Tensor, weights: Tensor) -> Readout:
        """The readout of each start, from logarithms: of T or of the columns themselves, and of c."""
        return weighing(table.softmax(-2) @ emission if columns == "mapped" else table.softmax(-2), weights)

    def search(table: Tensor, starts: int, weighed: bool) -> Parameters:
        tables = torch.cat([table[None], draw(starts - 1, *table.shape)])
        wide = torch.tensor(WIDE, dtype=torch.float64).repeat(starts)[: starts - 1, None]
        weights = torch.cat([even[None], wide * draw(starts - 1, len(even))])

        def predict(beliefs: Tensor, table: Tensor, weights: Tensor) -> Tensor:
            return readout(table, weights if weighed else even)(beliefs)

        return nearest(predict, [tables, weights], beliefs, predictions)

    if columns == "emission":
        return weighing(emission, even)
    table, _ = search(table, 2, weighed=False)
    return readout(*search(table, starts, weighed=True) if reweighted else (table, even))


class SoftmaxReadout(NamedTuple):
    """The prediction softmax(L f + b) from features f: `weights` L (X, d), and `bias` b (X,)."""

    weights: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Predictions (n, X) from features (n, d)."""
        return (features.to(self.weights) @ self.weights.mT + self.bias.unsqueeze(-2)).softmax(-1)


def softmax_readout(features: Tensor, predictions: Tensor) -> SoftmaxReadout:
    """The `SoftmaxReadout` of features (n, d) that is nearest to predictions (n, X), in mean total variation.

    The search begins at zero, at what changes nothing where features are the logarithms of predictions, and at the
    least cross-entropy, which is convex.
    """
    (centre, scale, inputs), predictions = _scaled(features), predictions.double()
    same = torch.eye(predictions.shape[1], len(centre), dtype=torch.float64)
    weights, bias = torch.zeros_like(same).requires_grad_(), torch.zeros_like(same[:, 0]).requires_grad_()
    minimise([weights, bias], lambda: F.cross_entropy(inputs @ weights.mT + bias, predictions))
    weights, bias = weights.detach(), bias.detach()
    starts = torch.stack([0 * weights, same * scale, weights]), torch.stack([0 * bias, same @ centre, bias])
    weights, bias = nearest(lambda inputs, *raw: SoftmaxReadout(*raw)(inputs), starts, inputs, predictions)
    return SoftmaxReadout(weights / scale, bias - weights / scale @ centre)


def free_readout(inputs: Tensor, predictions: Tensor, seed: int = 0, width: int = 64, steps: int = 1000) -> nn.Module:
    """A network with two hidden layers, fitted by Adam. It shows how much its inputs can explain at all.

    It is fitted to the least cross-entropy, and in the second half of the steps to the least mean total variation.
    Called with inputs (n, d) in float64, such as beliefs or their logarithms, it gives predictions (n, X).
    """
    inputs, predictions, generator = inputs.double(), predictions.double(), as_generator(seed)
    sizes = (inputs.shape[1], width, width, predictions.shape[1])
    with torch.random.fork_rng():
        torch.manual_seed(as_seed(seed))
        layers = [nn.Linear(*pair, dtype=torch.float64) for pair in pairwise(sizes)]
    free = nn.Sequential(layers[0], nn.GELU(), layers[1], nn.GELU(), layers[2], nn.Softmax(1))

    def loss(step: int) -> Tensor:
        batch = torch.randint(len(inputs), (256,), generator=generator)
        found, wanted = free(inputs[batch]), predictions[batch]
        if step < steps / 2:
            return -(wanted * found.clamp(min=TINY).log()).sum(1).mean()
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
