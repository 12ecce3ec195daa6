"""What fixes a trial: a TrialSpec, its hash, and the specs that make up a panel of Figure 3."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_type_hints

from hmmlib import backend
from hmmlib.experiments.fields import Count, CountOrZero, Positive, PositiveOrZero, Seed, TwoOrMore, Word, base, checked
from hmmlib.experiments.labels import LABEL_RULES, PLACES
from hmmlib.experiments.presets import PANELS, PRESETS
from hmmlib.training.adapters import TUNERS
from hmmlib.training.bert import Shape
from hmmlib.training.pretraining import MASKINGS, Pretraining
from hmmlib.training.tuning import PROMPT_STARTS, Tuning
from hmmlib.validation import all_of_type, at_least, of_type, one_of

LONGEST_PROMPT = 50
MOST_TRIALS = 10_000
"""The most trials of a point, as more would take long to list."""
OF_THE_TASK = (
    "preset", "labels", "places", "task_length", "train", "validation", "test", "epochs", "tuning_batch", "tuning_warmup",
    "head_rate", "prompt_rate", "prompt_length", "prompt_start", "attention_heads", "attention_positions", "evaluation",
    "tuner", "rank",
)  # fmt: skip
"""Fields that matter only once the network is pretrained."""
OWN = None
"""Stands for the preset's own value."""
AS_BEFORE = "as before"


def added(before):
    """A field that TrialSpec did not have from the start, and its value that means "as before".

    Presets need not name it; at this value hash and files leave it out, so that what is stored keeps its name.
    """
    return dataclasses.field(default=OWN, metadata={AS_BEFORE: before})


@dataclass(frozen=True)
class TrialSpec:
    """Everything that fixes a trial. What is left None is taken from the preset.

    The model is that of appendix E with |H| = `n_states`: a vanilla HMM, or, with `n_memory` > 1, a memory model of one
    cell with |M| = `n_memory` values. `book/protocol-and-code` says what each field means in the paper.

    ValueError for an unknown preset or an impossible value; the message names the field and what it takes.
    """

    preset: Literal[tuple(PRESETS)] = "quick"
    n_states: Count = 10
    seed: Seed = 0
    n_memory: Count = 1
    n_tokens: TwoOrMore = 10
    temperature: Positive = 0.01
    permutations: Literal["states", "joint"] = OWN
    layers: Count = OWN
    width: Count = OWN
    heads: Count = OWN
    dropout: PositiveOrZero = OWN
    specials: Count = OWN
    weights: Literal["own", "shared"] = OWN
    documents: CountOrZero = OWN
    document_length: CountOrZero = OWN
    steps: Count = OWN
    batch: Count = OWN
    length: Count = OWN
    masked: Positive = OWN
    masking: Literal[MASKINGS] = OWN
    learning_rate: Positive = OWN
    muon_rate: PositiveOrZero = OWN
    clip: PositiveOrZero = OWN
    warmup: CountOrZero = OWN
    precision: Literal[backend.PRECISIONS] = OWN
    labels: Literal[tuple(LABEL_RULES)] = OWN
    places: Literal[PLACES] = OWN
    task_length: Count = OWN
    train: Count = OWN
    validation: Count = OWN
    test: Count = OWN
    epochs: Count = OWN
    tuning_batch: Count = OWN
    tuning_warmup: PositiveOrZero = OWN
    head_rate: Positive = OWN
    prompt_rate: Positive = OWN
    prompt_length: CountOrZero = OWN
    prompt_start: Literal[PROMPT_STARTS] = OWN
    attention_heads: Count = OWN
    attention_positions: Literal["learned", "none"] = OWN
    evaluation: Count = OWN
    tuner: Literal[TUNERS] = added(before="prompt")
    rank: Count = added(before=8)
    own: Word = added(before="")

    def __post_init__(self) -> None:
        preset = PRESETS[one_of("preset", self.preset, PRESETS)]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is OWN:
                value = preset.get(field.name, field.metadata.get(AS_BEFORE, field.default))
            object.__setattr__(self, field.name, checked(field.name, TYPES[field.name], value))
        self._check_together()

    def _check_together(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, but {self.width} is none of {self.heads}")
        for name in ("masked", "tuning_warmup"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} must be at most 1, not {getattr(self, name)}")
        if self.dropout >= 1:
            raise ValueError(f"dropout must be below 1, not {self.dropout}")
        if self.task_length < 2:
            raise ValueError("task_length must be 2 or more: the first token is [MASK], and something must follow it")
        if self.prompt_length > LONGEST_PROMPT:
            raise ValueError(f"prompt_length must be 0 to {LONGEST_PROMPT}, not {self.prompt_length}")
        if self.length < self.task_length + self.prompt_length:
            raise ValueError(
                f"length must be at least task_length + prompt_length = {self.task_length + self.prompt_length}, "
                f"so that every position has been trained; it is {self.length}"
            )
        if self.documents and self.document_length < self.length:
            raise ValueError(f"document_length must be at least length = {self.length}, not {self.document_length}")

    def content(self) -> dict[str, int | float | str]:
        """The fields that hash and files have: all but those that were added and have the value that means "as before"."""
        values = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {field.name: value for field, value in values if field.metadata.get(AS_BEFORE) != value}

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
        if other := sorted(set(all_of_type("sizes", sizes, int)) - set(size_of)):
            raise ValueError(f"sizes of panel {panel} are {', '.join(map(str, sorted(set(size_of))))}, not {other[0]}")
        points = [point for point, size in zip(points, size_of, strict=True) if size in sizes]
    fixed = sorted({"preset", "seed", "n_states", "n_memory"} & changes.keys())
    if fixed:
        raise ValueError(f"a panel has its own {', '.join(fixed)}; the other fields can be changed")
    if isinstance(trials, bool) or not isinstance(trials, int) or not 1 <= trials <= MOST_TRIALS:
        raise ValueError(f"trials must be 1 or more, and at most {MOST_TRIALS}, not {trials!r}")
    seeds = range(first_seed, at_least("first_seed", first_seed, 0) + trials)
    return [TrialSpec(preset, seed=seed, **{**point, **changes}) for seed in seeds for point in points]


def select(results: Sequence, **fields) -> list:
    """Those of the results whose spec is their preset's own but for the model, the seed, and the given fields."""
    results = all_of_type("results", results, object)
    for result in results:
        of_type("the spec of each of results", getattr(result, "spec", None), TrialSpec)
    for name, value in fields.items():
        checked(name, field_type(name), value)

    def fits(spec: TrialSpec) -> bool:
        own = TrialSpec(spec.preset, spec.n_states, spec.seed, spec.n_memory)
        changed = {name: value for name, value in asdict(spec).items() if value != getattr(own, name)}
        return all(getattr(spec, name) == value for name, value in fields.items()) and changed.keys() <= fields.keys()

    return [result for result in results if fits(result.spec)]


def as_field(name: str, text: str) -> int | float | str:
    """A field's value from text, as a command line has it. ValueError for an unknown name, or text that is no such value."""
    number, text = base(field_type(of_type("name", name, str))), of_type("text", text, str)
    try:
        return number(text)
    except ValueError:
        raise ValueError(f"{name} must be {'an integer' if number is int else 'a number'}, not {text!r}") from None
