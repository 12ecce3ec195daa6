"""How to damage the library: one sign, one index or one factor. Each takes a monkeypatch."""

from copy import copy
from dataclasses import replace

import torch

from hmmlib.inference import forward_backward, messages
from hmmlib.theory import assumptions as predicates
from hmmlib.theory.assumptions import of_bool


def instead(place, name, make):
    """Put `make(honest)` in the place of `place.name`."""
    return lambda patch: patch.setattr(place, name, make(getattr(place, name)))


def around(place, name, change):
    """Pass every result of `place.name` through `change`."""
    return instead(place, name, lambda honest: lambda *args, **kwargs: change(honest(*args, **kwargs)))


def both(*damages):
    return lambda patch: [damage(patch) for damage in damages]


def turned(dim):
    """The entries one place further on along an axis: an index off by one."""
    return lambda value: value.roll(1, dim)


def with_part(name, change):
    """A head or a recovery with one of its tensors changed."""
    return lambda whole: replace(whole, **{name: change(getattr(whole, name))})


def prompt_of(change):
    """Change the first of a pair, the prompt."""
    return lambda pair: (change(pair[0]), pair[1])


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


def own_token_too(honest):
    return lambda model, rows, at, own, *rest: honest(model, rows, at, True, *rest)


_PASSES = ((messages, "_in_loops"), (messages, "both_passes"), (forward_backward, "both_passes"))
_BOTH_WAYS = ((messages, "aggregated_messages"), (messages, "_in_loops"))
backwards = both(*(instead(*place, transposed) for place in _PASSES))
own_token_seen = both(*(instead(*place, own_token_too) for place in _BOTH_WAYS))


def everywhere(honest):
    """Attention to all positions alike."""
    return lambda head, probs: torch.ones_like(honest(head, probs))


def with_a_wide_tolerance(honest):
    """Independence of columns with singular values above a tenth of the largest alone."""

    def independence(name, columns, *exactly):
        report = honest(name, columns, *exactly)
        rank = int((torch.linalg.svdvals(columns) > 0.1 * report.largest_singular_value).sum())
        return replace(report, verdict=of_bool(rank == report.n_columns), rank=rank)

    return independence
