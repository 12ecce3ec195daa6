"""What fixes a trial: a TrialSpec, its hash, and the specs that make up a panel of Figure 3."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

from pydantic import Field

from hmmlib import backend
from hmmlib.experiments.fields import (
    Count,
    Positive,
    PositiveOrZero,
    PositiveShare,
    Seed,
    Share,
    ShareBelowOne,
    Size,
    TwoOrMore,
    Word,
    checked,
)
from hmmlib.experiments.labels import LABEL_RULES, PLACES
from hmmlib.experiments.presets import PANELS, PRESETS
from hmmlib.training.adapters import TUNERS
from hmmlib.training.bert import Shape
from hmmlib.training.pretraining import MASKINGS, Pretraining
from hmmlib.training.tuning import PROMPT_STARTS, Tuning
from hmmlib.validation import integer, one_of

MOST_TRIALS = 10_000
"""The most trials of a point, as more would take long to list."""
OF_THE_TASK = (
    "preset", "labels", "places", "task_length", "train", "validation", "test", "epochs", "tuning_batch", "tuning_warmup",
    "head_rate", "prompt_rate", "prompt_length", "prompt_start", "attention_heads", "attention_positions", "evaluation",
    "tuner", "rank",
)  # fmt: skip
"""Fields that matter only once the network is pretrained."""
FROM_PRESET = None
"""Stands for the preset's own value."""
ADDED_LATER = "added later"


def field_added_later(default):
    """A field that TrialSpec did not have from the start; its default means that a trial is run as before.

    Presets need not name it; at this value hash and files leave it out, so that what is stored keeps its name.
    """
    return dataclasses.field(default=FROM_PRESET, metadata={ADDED_LATER: default})


@dataclass(frozen=True)
class TrialSpec:
    """Everything that fixes a trial. What is left None is taken from the preset.

    The model is that of appendix E with |H| = `n_states`: a vanilla HMM, or, with `n_memory` > 1, a memory model of one
    cell with |M| = `n_memory` values. `book/protocol-and-code` says what each field means in the paper.

    ValueError for an unknown preset or an impossible value; the message names the field and what it takes.
    """

    preset: Literal[tuple(PRESETS)] = "quick"
    n_states: Size = 10
    seed: Seed = 0
    n_memory: Size = 1
    n_tokens: TwoOrMore = 10
    temperature: Positive = 0.01
    permutations: Literal["states", "joint"] = FROM_PRESET
    layers: Size = FROM_PRESET
    width: Size = FROM_PRESET
    heads: Size = FROM_PRESET
    dropout: ShareBelowOne = FROM_PRESET
    specials: Size = FROM_PRESET
    weights: Literal["own", "shared"] = FROM_PRESET
    documents: Count = FROM_PRESET
    document_length: Count = FROM_PRESET
    steps: Size = FROM_PRESET
    batch: Size = FROM_PRESET
    length: Size = FROM_PRESET
    masked: PositiveShare = FROM_PRESET
    masking: Literal[MASKINGS] = FROM_PRESET
    learning_rate: Positive = FROM_PRESET
    muon_rate: PositiveOrZero = FROM_PRESET
    clip: PositiveOrZero = FROM_PRESET
    warmup: Count = FROM_PRESET
    precision: Literal[backend.PRECISIONS] = FROM_PRESET
    labels: Literal[tuple(LABEL_RULES)] = FROM_PRESET
    places: Literal[PLACES] = FROM_PRESET
    task_length: TwoOrMore = FROM_PRESET
    train: Size = FROM_PRESET
    validation: Size = FROM_PRESET
    test: Size = FROM_PRESET
    epochs: Size = FROM_PRESET
    tuning_batch: Size = FROM_PRESET
    tuning_warmup: Share = FROM_PRESET
    head_rate: Positive = FROM_PRESET
    prompt_rate: Positive = FROM_PRESET
    prompt_length: Annotated[int, Field(ge=0, le=50)] = FROM_PRESET
    prompt_start: Literal[PROMPT_STARTS] = FROM_PRESET
    attention_heads: Size = FROM_PRESET
    attention_positions: Literal["learned", "none"] = FROM_PRESET
    evaluation: Size = FROM_PRESET
    tuner: Literal[TUNERS] = field_added_later(default="prompt")
    rank: Size = field_added_later(default=8)
    own: Word = field_added_later(default="")

    def __post_init__(self) -> None:
        preset = PRESETS[one_of("preset", self.preset, PRESETS)]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is FROM_PRESET:
                value = preset.get(field.name, field.metadata.get(ADDED_LATER, field.default))
            object.__setattr__(self, field.name, checked(field.name, TYPES[field.name], value))
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, but {self.width} is none of {self.heads}")
        if self.length < (needed := self.task_length + self.prompt_length):
            raise ValueError(
                f"length must be at least task_length + prompt_length = {needed}, so that every position has been trained; "
                f"it is {self.length}"
            )
        if self.documents and self.document_length < self.length:
            raise ValueError(f"document_length must be at least length = {self.length}, not {self.document_length}")

    def content(self) -> dict[str, int | float | str]:
        """The fields that hash and files have: all but those that were added later and have their default."""
        values = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {field.name: value for field, value in values if field.metadata.get(ADDED_LATER) != value}

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that the spec's content gives."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def network_hash(self) -> str:
        """16 hexadecimal digits of the fields that the pretrained network hangs on, alike where only the task differs."""
        fields = {name: value for name, value in self.content().items() if name not in OF_THE_TASK}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def size(self) -> int:
        """|M||H|, what the right panel of Figure 3 has on its axis."""
        return self.n_memory * self.n_states

    def shape(self) -> Shape:
        """Sizes of the network."""
        return Shape(self.layers, self.width, self.heads, self.length, self.dropout, self.specials)

    def pretraining(self) -> Pretraining:
        """How the network is pretrained."""
        return Pretraining(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Pretraining)})

    def tuning(self) -> Tuning:
        """How heads and prompt are tuned."""
        return Tuning(self.epochs, self.tuning_batch, self.head_rate, self.prompt_rate, self.tuning_warmup)


TYPES = get_type_hints(TrialSpec, include_extras=True)
"""The type of each field, in the order of the fields."""


def field_type(name: str):
    """The type of a field of a TrialSpec. ValueError for an unknown name."""
    if name not in TYPES:
        near = difflib.get_close_matches(name, TYPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(TYPES)}"
        raise ValueError(f"unknown field {name!r}: {hint}")
    return TYPES[name]


def panel_points(panel: str) -> list[dict[str, int]]:
    """The models of a panel of Figure 3, as fields of a TrialSpec. ValueError for an unknown panel."""
    return PANELS[one_of("panel", panel, PANELS)]


def panel_specs(
    preset: str, panel: str, trials: int, *, sizes: Sequence[int] | None = None, first_seed: int = 0, **changes
) -> list[TrialSpec]:
    """The specs of a panel, or of its points with these |M||H|: one trial of each point first, then the second of each.

    Seeds count up from `first_seed`. ValueError where TrialSpec raises it, and for a size that no point has.
    """
    points = panel_points(panel)
    if sizes is not None:
        size_of = [point["n_states"] * point.get("n_memory", 1) for point in points]
        if other := sorted(set(sizes) - set(size_of)):
            raise ValueError(f"sizes of panel {panel} are {', '.join(map(str, sorted(set(size_of))))}, not {other[0]}")
        points = [point for point, size in zip(points, size_of, strict=True) if size in sizes]
    fixed = sorted({"preset", "seed", "n_states", "n_memory"} & changes.keys())
    if fixed:
        raise ValueError(f"a panel has its own {', '.join(fixed)}; the other fields can be changed")
    first = integer("first_seed", first_seed, 0)
    seeds = range(first, first + integer("trials", trials, 1, MOST_TRIALS))
    return [TrialSpec(preset, seed=seed, **{**point, **changes}) for seed in seeds for point in points]


def as_field(name: str, text: str) -> int | float | str:
    """A field's value from text, as a command line has it. ValueError for an unknown name, or text that is no such value."""
    return checked(name, field_type(name), text, strict=False)
