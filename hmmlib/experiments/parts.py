"""What of a trial may be one's own: the model that writes the text, the network, the task, and what is tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from hmmlib.experiments.labels import Task
    from hmmlib.experiments.specs import TrialSpec
    from hmmlib.models.hmm import HMM, MemoryHMM
    from hmmlib.training.adapters import Tuned
    from hmmlib.training.readers import Reader
    from hmmlib.training.tuning import Tuning


@dataclass(frozen=True)
class Parts:
    """Functions that make parts of a trial in the place of the library's own; what is None is the library's.

    - `model(spec)`: the model that writes the text.
    - `network(spec, model)`: a network that has learned from its text, as `readers.as_reader` takes it. None is pretrained.
    - `task(spec, model)`: inputs, labels and posteriors.
    - `tuner(network, tokens, labels, plan, seed, tick)`: what is tuned on the training examples, as `adapters.tune` gives it.

    The spec says in its field `own` by what name such a trial is stored. TypeError for a part that is no function.
    """

    model: Callable[[TrialSpec], HMM | MemoryHMM] | None = None
    network: Callable[[TrialSpec, HMM | MemoryHMM], nn.Module | Reader] | None = None
    task: Callable[[TrialSpec, HMM | MemoryHMM], Task] | None = None
    tuner: Callable[[Reader, Tensor, Tensor, Tuning, int, Callable[[], None]], Tuned] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            part = getattr(self, field.name)
            if part is not None and (not callable(part) or isinstance(part, nn.Module)):
                raise TypeError(f"{field.name} must be a function, not {type(part).__name__}")

    def belong_to(self, spec: TrialSpec) -> Parts:
        """These parts, where the spec has a name for them; ValueError where one is there without the other."""
        if (self != Parts()) != bool(spec.own):
            told = "there are none" if spec.own else "it names none"
            raise ValueError(f"parts and the spec's own must go together: own is {spec.own!r}, and {told}")
        return self
