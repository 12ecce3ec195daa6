"""How to damage the library: one sign, one index or one factor. Each takes a monkeypatch."""

import operator
from copy import copy
from dataclasses import replace

import torch

from hmmlib.inference import forward_backward, messages
from hmmlib.models.hmm import HMM
from hmmlib.theory import assumptions as predicates
from hmmlib.theory.assumptions import Verdict, of_bool
from hmmlib.validation import MASK


def instead(place, name, make):
    """Put `make(honest)` in the place of `place.name`."""
    return lambda patch: patch.setattr(place, name, make(getattr(place, name)))


def around(place, name, change):
    """Pass every result of `place.name` through `change`."""
    return instead(place, name, lambda honest: lambda *args, **kwargs: change(honest(*args, **kwargs)))


def both(*damages):
    return lambda patch: [damage(patch) for damage in damages]


minus = operator.neg


def by(factor):
    return lambda value: value * factor


def turned(dim):
    """The entries one place further on along an axis: an index off by one."""
    return lambda value: value.roll(1, dim)


def with_part(name, change):
    """A head or a recovery with one of its tensors changed."""
    return lambda whole: replace(whole, **{name: change(getattr(whole, name))})


def on_recovery(place, name, part, change):
    return around(place, name, with_part(part, change))


def prompt_of(change):
    """Change the first of a pair, the prompt."""
    return lambda pair: (change(pair[0]), pair[1])


def second(change):
    return lambda pair: (pair[0], change(pair[1]))


def everything(report):
    return replace(report, verdict=Verdict.HOLDS)


def judged(name, verdict):
    """A predicate whose verdict is `verdict(report)`."""
    return around(predicates, name, lambda report: replace(report, verdict=of_bool(bool(verdict(report)))))


def chain_of(transition, model):
    """The model with another matrix, whether that is one of transitions or not."""
    made = copy(model)
    object.__setattr__(made, "transition", transition)
    return made


def transposed(honest):
    """The chain's matrix is all that counts of a model here."""

    def backwards(place, *rest, **named):
        tensor = isinstance(place, torch.Tensor)
        place = place.T.contiguous() if tensor else chain_of(place.transition.T.contiguous(), place)
        return honest(place, *rest, **named)

    return backwards


def flat_prior(model):
    """The model with all values of the memory equally likely."""
    model = copy(model)
    if not isinstance(model, HMM):
        model.memory = torch.full_like(model.memory, 1 / model.memory.numel())
    return model


def own_token_too(honest):
    return lambda model, rows, at, own, *rest: honest(model, rows, at, True, *rest)


def without_prior(honest):
    return lambda model, *rest, **named: honest(flat_prior(model), *rest, **named)


_TORCH, _LOOPS = (messages, "aggregated_messages"), (messages, "_in_loops")
_PASSES = (_LOOPS, (messages, "both_passes"), (forward_backward, "both_passes"))
backwards = both(*(instead(*place, transposed) for place in _PASSES))
own_token_seen = both(*(instead(*place, own_token_too) for place in (_TORCH, _LOOPS)))
prior_dropped = both(*(instead(*place, without_prior) for place in (_TORCH, _LOOPS)))


def hidden(tokens, at):
    """The tokens with that of a position, counted from 1, masked."""
    return tokens.index_fill(1, torch.tensor([at - 1]), MASK)


def squared(honest):
    """A prompt that counts twice."""
    return lambda model, prompt, tokens: honest(model, torch.as_tensor(prompt) ** 2, tokens)


def no_prompt(honest):
    """The prompt u replaced by ones, which exclude nothing."""
    return lambda model, tokens, prompt: honest(model, tokens, torch.ones_like(torch.as_tensor(prompt)))


def everywhere(honest):
    """Attention to all positions alike."""
    return lambda head, probs: torch.ones_like(honest(head, probs))


def sure_of_any(honest):
    """Sure as soon as any attended value is."""

    def sure(head, probs, embeddings):
        chosen, values = head.attended(probs), head.values(probs, embeddings)
        return ((values > 0) | ~chosen).any(1) | ((values < 0) | ~chosen).any(1)

    return sure


def without_the_rest(honest):
    """The row of all states outside H* left out: the one that makes probabilities sum to 1."""

    def recovery(model, *place):
        found = honest(model, *place)
        inside = torch.zeros(len(found.theta_1), 1, dtype=torch.bool).index_fill(0, torch.tensor(found.states), True)
        return replace(found, theta_1=found.theta_1 * inside)

    return recovery


def next_state(honest):
    """μ weighs the memory in the states one further on, in the cell that is looked up one further on."""
    return lambda *given: prompt_of(turned(0))(honest(*given))


def ranked(rank_of):
    """Independence by another rank of the columns."""

    def make(honest):
        def independence(name, columns, *exactly):
            report = honest(name, columns, *exactly)
            rank = int(rank_of(columns, report))
            return replace(report, verdict=of_bool(rank == report.n_columns), rank=rank)

        return independence

    return make


loose = ranked(lambda columns, report: (torch.linalg.svdvals(columns) > 0.1 * report.largest_singular_value).sum())
"""Singular values up to a tenth of the largest count as zero."""
strict = ranked(lambda columns, report: min(columns.shape) if report.smallest_singular_value > 0 else report.rank)
"""No tolerance: rounding makes dependent columns independent."""
