"""What fixes a trial: a TrialSpec, its hash, and the specs that make up a panel of Figure 3."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import reprlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hmmlib.experiments.labels import LABELS, PLACES
from hmmlib.experiments.presets import PANELS, PRESETS
from hmmlib.training.bert import Shape
from hmmlib.training.pretraining import MASKINGS, Pretraining
from hmmlib.training.tuning import PROMPT_STARTS, Tuning
from hmmlib.validation import LARGEST, MOST, all_of_type, of_type, one_of

CHOICES: dict[str, tuple[str, ...]] = {
    "weights": ("own", "shared"),
    "permutations": ("states", "joint"),
    "masking": MASKINGS,
    "precision": ("single", "half"),
    "labels": LABELS,
    "places": PLACES,
    "prompt_start": PROMPT_STARTS,
    "attention_positions": ("learned", "none"),
}
"""What the fields that are words can be."""

LEAST = dict(n_tokens=2, seed=0, prompt_length=0, warmup=0, documents=0, document_length=0)
"""Smallest value an integer field takes, where that is not 1."""

MAY_BE_ZERO = {"dropout", "muon_rate", "clip", "tuning_warmup"}
"""Numbers that switch something off when they are 0; all others must be positive."""

LONGEST_PROMPT = 50
MOST_TRIALS = 10_000
"""Of a point: more would take long to list."""


@dataclass(frozen=True)
class TrialSpec:
    """Everything that fixes a trial. What is left None is taken from the preset.

    The model is that of appendix E with |H| = `n_states`: a vanilla HMM, or, with `n_memory` > 1, a memory model of one
    cell with |M| = `n_memory` values. `book/protocol-and-code` says what each field means in the paper.

    ValueError for an unknown preset or an impossible value; the message names the field and what it takes.
    """

    preset: str = "quick"
    n_states: int = 10
    seed: int = 0
    n_memory: int = 1
    n_tokens: int = 10
    temperature: float = 0.01
    permutations: str | None = None
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    dropout: float | None = None
    specials: int | None = None
    weights: str | None = None
    documents: int | None = None
    document_length: int | None = None
    steps: int | None = None
    batch: int | None = None
    length: int | None = None
    masked: float | None = None
    masking: str | None = None
    learning_rate: float | None = None
    muon_rate: float | None = None
    clip: float | None = None
    warmup: int | None = None
    precision: str | None = None
    labels: str | None = None
    places: str | None = None
    task_length: int | None = None
    train: int | None = None
    validation: int | None = None
    test: int | None = None
    epochs: int | None = None
    tuning_batch: int | None = None
    tuning_warmup: float | None = None
    head_rate: float | None = None
    prompt_rate: float | None = None
    prompt_length: int | None = None
    prompt_start: str | None = None
    attention_heads: int | None = None
    attention_positions: str | None = None
    evaluation: int | None = None

    def __post_init__(self) -> None:
        one_of("preset", self.preset, PRESETS)
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if value is None:
                value = PRESETS[self.preset].get(field.name, field.default)
            if isinstance(value, np.integer | np.floating):
                value = value.item()
            _check_field(field.name, field.type.split(" ")[0], value)
            object.__setattr__(self, field.name, float(value) if "float" in field.type else value)  # 1 and 1.0 are one
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

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that the spec's content gives."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def size(self) -> int:
        """|M||H|, what the right panel of Figure 3 has on its axis."""
        return self.n_memory * self.n_states

    def shape(self) -> Shape:
        """Sizes of the network."""
        return Shape(self.layers, self.width, self.heads, self.length, self.dropout, self.specials)

    def pretraining(self) -> Pretraining:
        """How the network is pretrained."""
        names = [field.name for field in dataclasses.fields(Pretraining) if field.name != "half"]
        return Pretraining(**{name: getattr(self, name) for name in names}, half=self.precision == "half")

    def tuning(self) -> Tuning:
        """How heads and prompt are tuned."""
        return Tuning(self.epochs, self.tuning_batch, self.head_rate, self.prompt_rate, self.tuning_warmup)


def _check_field(name: str, kind: str, value) -> None:
    if name == "preset":
        one_of(name, value, PRESETS)
    elif name in CHOICES:
        one_of(name, value, CHOICES[name])
    elif isinstance(value, bool) or not isinstance(value, int | float if kind == "float" else int):
        raise ValueError(f"{name} must be {'a number' if kind == 'float' else 'an integer'}, not {value!r}")
    elif kind == "float" and not (0 < value <= LARGEST or (value == 0 and name in MAY_BE_ZERO)):
        least = "0 or more" if name in MAY_BE_ZERO else "positive"
        raise ValueError(f"{name} must be {least} and at most {LARGEST:g}, not {value}")
    elif kind == "int" and value < LEAST.get(name, 1):
        raise ValueError(f"{name} must be {LEAST.get(name, 1)} or more, not {value}")
    elif kind == "int" and value > (2**63 - 1 if name == "seed" else MOST):
        raise ValueError(f"{name} must be at most {'2**63 - 1' if name == 'seed' else MOST}, not {reprlib.repr(value)}")


def panel_points(panel: str) -> list[dict[str, int]]:
    """The models of a panel of Figure 3, as fields of a TrialSpec. ValueError for an unknown panel."""
    return PANELS[one_of("panel", panel, PANELS)]


def panel_specs(preset: str, panel: str, trials: int, **changes) -> list[TrialSpec]:
    """The specs of a panel: one trial of each point first, then the second of each. ValueError where TrialSpec raises it."""
    points = panel_points(panel)
    fixed = sorted({"preset", "seed", "n_states", "n_memory"} & changes.keys())
    if fixed:
        raise ValueError(f"a panel has its own {', '.join(fixed)}; the other fields can be changed")
    if isinstance(trials, bool) or not isinstance(trials, int) or not 1 <= trials <= MOST_TRIALS:
        raise ValueError(f"trials must be 1 or more, and at most {MOST_TRIALS}, not {trials!r}")
    return [TrialSpec(preset, seed=seed, **{**point, **changes}) for seed in range(trials) for point in points]


def select(results: Sequence, **fields) -> list:
    """Those of the results whose spec is their preset's own but for the model, the seed, and the given fields."""
    results = all_of_type("results", results, object)
    for result in results:
        of_type("the spec of each of results", getattr(result, "spec", None), TrialSpec)
    for name, value in fields.items():
        _check_field(name, _kind(name), value)

    def fits(spec: TrialSpec) -> bool:
        own = TrialSpec(spec.preset, spec.n_states, spec.seed, spec.n_memory)
        changed = {name: value for name, value in asdict(spec).items() if value != getattr(own, name)}
        return all(getattr(spec, name) == value for name, value in fields.items()) and changed.keys() <= fields.keys()

    return [result for result in results if fits(result.spec)]


def as_field(name: str, text: str) -> int | float | str:
    """A field's value from text, as a command line has it. ValueError for an unknown name, or text that is no such value."""
    kind = _kind(of_type("name", name, str))
    try:
        return {"int": int, "float": float, "str": str}[kind](of_type("text", text, str))
    except ValueError:
        raise ValueError(f"{name} must be {'an integer' if kind == 'int' else 'a number'}, not {text!r}") from None


def _kind(name: str) -> str:
    """The type of a field of a TrialSpec, as a word. ValueError for an unknown name."""
    kinds = {field.name: field.type.split(" ")[0] for field in dataclasses.fields(TrialSpec)}
    if name not in kinds:
        near = difflib.get_close_matches(name, kinds, n=1)
        raise ValueError(
            f"unknown field {name!r}: " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(kinds)}")
        )
    return kinds[name]
