"""What fixes a trial: a TrialSpec, its hash, the specs that make up a panel of Figure 3, and the types of its fields.

Types of a result's fields are here too: pydantic checks both, in `checked`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import product
from typing import Annotated, Literal, get_type_hints

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # comes with pydantic, which asks for it before Python 3.12

from hmmlib import backend
from hmmlib.experiments.labels import LABEL_RULES, PLACES
from hmmlib.experiments.presets import PANELS, PRESETS
from hmmlib.training.adapters import TUNERS
from hmmlib.training.bert import Shape
from hmmlib.training.pretraining import MASKINGS, Pretraining
from hmmlib.training.tuning import PROMPT_STARTS, Tuning
from hmmlib.validation import integer, one_of

MOST = 2**31 - 1  # the largest size or count: what torch is sure to take
LARGEST = 1e30  # the largest rate or bound: far beyond any of use, and far from where float32 ends
ROUNDING = 1e-5  # how far below zero rounding may bring a divergence that is zero
MOST_TRIALS = 10_000  # of a point, as more would take long to list

Size = Annotated[int, Field(ge=1, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
TwoOrMore = Annotated[int, Field(ge=2, le=MOST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
PositiveOrZero = Annotated[float, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[Finite, Field(ge=-ROUNDING)]
Distance = Annotated[float, Field(ge=-ROUNDING, le=1 + ROUNDING)]
DistanceL1 = Annotated[float, Field(ge=-ROUNDING, le=2 + ROUNDING)]
Explained = Annotated[Finite, Field(le=1 + ROUNDING)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[Line, Field(min_length=1)]
Hexadecimal = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(date.fromisoformat)]
Row = dict[Text, Finite | None]
Anything = Finite | str | dict[Text, Finite | Row | dict[Text, Row] | None] | None
"""What a measurement may give that declares no more: a number, a text, or numbers by name, in up to three levels."""


def as_type(kind, extra: Literal["forbid", "allow"] = "forbid"):
    """The type that pydantic checks for a kind: a type, or a dict of kinds, which is a table with just these names.

    `extra` is for names that the table has besides.
    """
    if not isinstance(kind, dict):
        return kind
    table = TypedDict("Table", {name: as_type(of) for name, of in kind.items()})
    return with_config(ConfigDict(extra=extra))(table)


_adapter = cache(TypeAdapter)


def checked(name: str, field_type, value, strict: bool = True):
    """`value` as the type has it: a Python number for one of NumPy's, 1.0 for 1; if not `strict`, text is read as one.

    ValueError where it is none of the type: it names the field, and what was found.
    """
    value = value.item() if isinstance(value, np.generic) else value
    try:
        return _adapter(field_type).validate_python(value, strict=strict)
    except ValidationError as error:
        first = error.errors()[0]
        parts = [str(part) for part in first["loc"] if not re.match(r"dict\[|constrained-", str(part))]
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{'.'.join([name, *parts])}: {message}, not {reprlib.repr(first['input'])}") from None


OF_THE_TASK = (
    "preset", "labels", "places", "task_length", "train", "validation", "test", "epochs", "tuning_batch",
    "tuning_warmup", "head_rate", "prompt_rate", "prompt_length", "prompt_start", "attention_heads",
    "attention_positions", "evaluation", "tuner", "rank",
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
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    n_memory: Size = 1
    n_tokens: TwoOrMore = 10
    temperature: Positive = 0.01
    permutations: Literal["states", "joint"] = FROM_PRESET
    layers: Size = FROM_PRESET
    width: Size = FROM_PRESET
    heads: Size = FROM_PRESET
    dropout: Annotated[float, Field(ge=0, lt=1)] = FROM_PRESET
    specials: Size = FROM_PRESET
    weights: Literal["own", "shared"] = FROM_PRESET
    documents: Count = FROM_PRESET
    document_length: Count = FROM_PRESET
    steps: Size = FROM_PRESET
    batch: Size = FROM_PRESET
    length: Size = FROM_PRESET
    masked: Annotated[float, Field(gt=0, le=1)] = FROM_PRESET
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
    own: Annotated[str, Field(pattern=r"^[a-z0-9-]{0,40}$")] = field_added_later(default="")

    def __post_init__(self) -> None:
        preset, all_given = PRESETS[one_of("preset", self.preset, PRESETS)], FROM_PRESET not in vars(self).values()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is FROM_PRESET:
                value = preset.get(field.name, field.metadata.get(ADDED_LATER, field.default))
            object.__setattr__(self, field.name, checked(field.name, TYPES[field.name], value))
        others = [name for name, numbers in PRESETS.items() if numbers.items() <= vars(self).items()]
        if all_given and others and self.preset not in others:
            found = f"all numbers are those of {others[0]}, as dataclasses.replace hands them on"
            raise ValueError(f"preset is {self.preset!r}, but {found}: use spec.replace(preset={self.preset!r})")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, but {self.width} is none of {self.heads}")
        if self.length < (needed := self.task_length + self.prompt_length):
            raise ValueError(f"length must be at least task_length + prompt_length = {needed}, not {self.length}")
        if self.documents and self.document_length < self.length:
            raise ValueError(f"document_length must be at least length = {self.length}, not {self.document_length}")

    def content(self) -> dict[str, int | float | str]:
        """The fields that hash and files have: all but those that were added later and have their default."""
        later = {field.name: field.metadata.get(ADDED_LATER) for field in dataclasses.fields(self)}
        return {name: value for name, value in vars(self).items() if later[name] != value}

    def changes(self) -> dict[str, int | float | str]:
        """The fields that differ from those of TrialSpec(preset), with their values."""
        usual = vars(_usual(self.preset))
        return {name: value for name, value in vars(self).items() if value != usual[name]}

    def replace(self, **changes) -> TrialSpec:
        """The spec with other fields; of another preset, it has that one's numbers where it had its own preset's."""
        return TrialSpec(**{"preset": self.preset} | self.changes() | changes)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that the spec's content gives."""
        return _digest(self.content())

    @property
    def network_hash(self) -> str:
        """The same for the fields that the pretrained network hangs on, alike where only the task differs."""
        return _digest({name: value for name, value in self.content().items() if name not in OF_THE_TASK})

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


MODEL_FIELDS = ("preset", "n_states", "seed", "n_memory")
"""Fields that every line and table has; others are named where they differ."""
_usual = cache(TrialSpec)
TYPES = get_type_hints(TrialSpec, include_extras=True)
"""The type of each field, in the order of the fields."""


def _digest(fields: dict) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def panel_specs(
    preset: str, panel: str, trials: int, *, sizes: Sequence[int] | None = None, first_seed: int = 0, **changes
) -> list[TrialSpec]:
    """The specs of a panel, or of its points with these |M||H|: one trial of each point, then the second of each.

    Seeds count up from `first_seed`; `changes` are other fields, as `grid` takes them. ValueError for an unknown panel,
    a size that no point has, and where TrialSpec raises it; TypeError for what the panel itself fixes.
    """
    points = PANELS[one_of("panel", panel, PANELS)]
    there = {point["n_memory"] * point["n_states"] for point in points}
    if other := set(sizes or ()) - there:
        raise ValueError(f"sizes of panel {panel} are {', '.join(map(str, sorted(there)))}, not {min(other)}")
    points = [point for point in points if sizes is None or point["n_memory"] * point["n_states"] in sizes]
    chosen = _combinations(changes)
    return [
        TrialSpec(preset, seed=seed, **point, **change)
        for seed in _seeds(first_seed, trials)
        for change in chosen
        for point in points
    ]


def grid(preset: str = "quick", trials: int = 1, *, first_seed: int = 0, **fields) -> list[TrialSpec]:
    """The specs of all combinations of fields, each a value or a list of values: one trial of each, then the second.

    `grid(n_states=[6, 12], prompt_length=[0, 5])` has four. Seeds count up from `first_seed`. ValueError where
    TrialSpec raises it, for what is no field of a spec, and for a field without a value.
    """
    if "seed" in fields:
        raise ValueError("seed counts up from first_seed, for so many trials: give these two")
    chosen = _combinations(fields)
    return [TrialSpec(preset, seed=seed, **one) for seed in _seeds(first_seed, trials) for one in chosen]


def _combinations(fields: dict) -> list[dict]:
    values = [[value] if np.ndim(value) == 0 else list(value) for value in fields.values()]
    for name, found in zip(fields, values, strict=True):
        one_of("field", name, TYPES)
        if not found:
            raise ValueError(f"{name} must have at least one value")
    return [dict(zip(fields, one, strict=True)) for one in product(*values)]


def _seeds(first_seed: int, trials: int) -> range:
    first = integer("first_seed", first_seed, 0)
    return range(first, first + integer("trials", trials, 1, MOST_TRIALS))


def as_field(name: str, text: str) -> int | float | str:
    """A field's value from text, as a command line has it. ValueError for an unknown name, or text that is none."""
    return checked(name, TYPES[one_of("field", name, TYPES)], text, strict=False)
