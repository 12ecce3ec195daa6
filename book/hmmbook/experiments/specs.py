"""Define `TrialSpec`, which fixes one trial.

`grid` and `panel_specs` list the specs of many trials.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field

from hmmbook.experiments.fields import Count, OwnName, Positive, PositiveOrZero, Share, Size, TwoOrMore, checked
from hmmbook.experiments.labels import LABEL_RULES, PLACES
from hmmbook.experiments.presets import FOR_GPUS, PANELS, PRESETS
from hmmlib.device import PRECISIONS
from hmmlib.training.adapters import TUNERS
from hmmlib.training.bert import Shape
from hmmlib.training.pretraining import MASKINGS, Pretraining
from hmmlib.training.tuning import PROMPT_STARTS, Tuning
from hmmlib.validation import integer, one_of

MOST_TRIALS = 10_000
"""The most trials that one point can have. To list more would take long."""
FROM_PRESET = None
"""The default of a field whose value comes from the preset."""
TASK_FIELDS = {
    "preset",
    "labels",
    "places",
    "task_length",
    "train",
    "validation",
    "test",
    "epochs",
    "tuning_batch",
    "tuning_warmup",
    "head_rate",
    "prompt_rate",
    "prompt_length",
    "prompt_start",
    "attention_heads",
    "attention_positions",
    "evaluation",
    "tuner",
    "rank",
}
"""Fields that do not change how the network is pretrained."""


def field_added_later(default: int | str) -> Any:
    """Return a field that `TrialSpec` did not have from the start.

    With its default value a trial runs as it did before there was the field. So the hash and the files leave the field
    out at this value, and stored results keep their names.

    Args:
        default: the default value.
    """
    return dataclasses.field(default=FROM_PRESET, metadata={"added later": default})


@dataclass(frozen=True)
class TrialSpec:
    """Everything that fixes a trial. A field that you leave out gets the preset's value.

    The model is that of appendix E with |H| = `n_states`. With `n_memory` = 1 it is a vanilla HMM, and with more it is
    a memory HMM of one cell with |M| = `n_memory` values. The page `protocol-and-code` says what each field means in
    the paper.

    Raises:
        ValueError: the preset is unknown or a value is impossible. The message names the field and what it takes.

    Example:
        >>> spec = TrialSpec("smoke", n_states=4, seed=1)
        >>> spec.steps, spec.hash
        (60, '5db36853dfad74e7')
    """

    preset: Literal[tuple(PRESETS)] = "quick"

    # The model
    n_states: Size = 10
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    n_memory: Size = 1
    n_tokens: TwoOrMore = 10
    temperature: Positive = 0.01
    permutations: Literal["states", "joint"] = FROM_PRESET

    # The network
    layers: Size = FROM_PRESET
    width: Size = FROM_PRESET
    heads: Size = FROM_PRESET
    dropout: Annotated[float, Field(ge=0, lt=1)] = FROM_PRESET
    specials: Size = FROM_PRESET
    weights: Literal["own", "shared"] = FROM_PRESET

    # Its pretraining
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
    precision: Literal[PRECISIONS] = FROM_PRESET

    # The task
    labels: Literal[tuple(LABEL_RULES)] = FROM_PRESET
    places: Literal[PLACES] = FROM_PRESET
    task_length: TwoOrMore = FROM_PRESET
    train: Size = FROM_PRESET
    validation: Size = FROM_PRESET
    test: Size = FROM_PRESET

    # Tuning, and measuring
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
    own: OwnName = field_added_later(default="")

    def __post_init__(self) -> None:
        preset = PRESETS[one_of("preset", self.preset, PRESETS)]
        all_given = FROM_PRESET not in vars(self).values()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is FROM_PRESET:
                default = field.metadata.get("added later", field.default)
                value = preset.get(field.name, default)
            value = checked(field.name, FIELD_TYPES[field.name], value)
            if value == 0.0:
                value = abs(value)  # because -0.0 would have another hash
            object.__setattr__(self, field.name, value)
        if all_given:
            self._refuse_numbers_of_another_preset()
        self._check_sizes()

    def _refuse_numbers_of_another_preset(self) -> None:
        """Refuse what `dataclasses.replace(spec, preset=…)` makes.

        It would have the numbers of the old preset under the name of the new one.
        """
        matching = [name for name, numbers in PRESETS.items() if numbers.items() <= vars(self).items()]
        if matching and self.preset not in matching:
            raise ValueError(
                f"preset is {self.preset!r}, but all numbers are those of {matching[0]!r}, because "
                f"dataclasses.replace keeps them. Use spec.replace(preset={self.preset!r})."
            )

    def _check_sizes(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, but {self.width} is no multiple of {self.heads}")
        needed = self.task_length + self.prompt_length
        if self.length < needed:
            raise ValueError(f"length must be at least task_length + prompt_length = {needed}, not {self.length}")
        if self.documents and self.document_length < self.length:
            raise ValueError(f"document_length must be at least length = {self.length}, not {self.document_length}")

    def content(self) -> dict[str, int | float | str]:
        """Return the fields from which the hash is made and which files contain.

        These are all fields except those that were added later and have their default value.
        """
        content = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.metadata.get("added later"):
                content[field.name] = value
        return content

    def changes(self) -> dict[str, int | float | str]:
        """Return the fields that differ from those of `TrialSpec(preset)`, with their values."""
        default = vars(_default_spec(self.preset))
        return {name: value for name, value in vars(self).items() if value != default[name]}

    def replace(self, **changes) -> TrialSpec:
        """Return a new spec in which some fields are changed.

        If you change the preset, fields that had the old preset's values get those of the new preset.

        Args:
            changes: the new values, by the names of their fields.

        Raises:
            ValueError: a value is impossible.
        """
        fields = {"preset": self.preset} | self.changes() | changes
        return TrialSpec(**fields)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that the fields determine. They name the trial and the file of its result."""
        return _digest(self.content())

    @property
    def network_hash(self) -> str:
        """16 hexadecimal digits that name the pretrained network. Trials that differ only in their task share it."""
        content = {name: value for name, value in self.content().items() if name not in TASK_FIELDS}
        return _digest(content)

    @property
    def size(self) -> int:
        """|M||H|, the axis of the right panel of Figure 3."""
        return self.n_memory * self.n_states

    def shape(self) -> Shape:
        """Return the sizes of the network."""
        return Shape(self.layers, self.width, self.heads, self.length, self.dropout, self.specials)

    def pretraining(self) -> Pretraining:
        """Return the plan by which the network is pretrained."""
        plan = {field.name: getattr(self, field.name) for field in dataclasses.fields(Pretraining)}
        return Pretraining(**plan)

    def tuning(self) -> Tuning:
        """Return the plan by which heads and prompt are tuned."""
        return Tuning(self.epochs, self.tuning_batch, self.head_rate, self.prompt_rate, self.tuning_warmup)


MODEL_FIELDS = ("preset", "n_states", "seed", "n_memory")
"""Fields that every table shows. The others are shown where they differ from the preset."""
FIELD_TYPES = get_type_hints(TrialSpec, include_extras=True)
"""The type of each field, in the order of the fields."""
_default_spec = cache(TrialSpec)


def _digest(fields: dict) -> str:
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def panel_specs(
    preset: str, panel: str, trials: int, *, sizes: int | Iterable[int] | None = None, first_seed: int = 0, **changes
) -> list[TrialSpec]:
    """List the specs of a panel of Figure 3.

    The first trials of all points come first, then the second trials, and so on.

    Args:
        preset: the name of a preset.
        panel: "left" or "right".
        trials: how many trials each point gets. Their seeds count up from `first_seed`.
        sizes: a size |M||H|, or several. Only points of these sizes are listed. If you leave it out, all are.
        first_seed: the seed of the first trial of each point.
        changes: other fields of the spec, each a value or a list of values, as `grid` takes them.

    Raises:
        ValueError: the panel is unknown, no point has such a size, no size is given, or `TrialSpec` refuses a value.
        TypeError: a change names a field that the panel fixes.

    Example:
        >>> [spec.n_states for spec in panel_specs("smoke", "left", trials=1)]
        [4, 8, 10, 15, 25, 30]
    """
    points = PANELS[one_of("panel", panel, PANELS)]
    for name in changes:
        if name in MODEL_FIELDS:
            raise TypeError(f"{name} is fixed by the panel and by first_seed. Use grid for other trials.")
    if sizes is not None:
        points = _points_of_sizes(panel, points, _values("sizes", sizes))
    specs = []
    for seed in _seeds(first_seed, trials):
        for fields in _combinations(changes):
            for point in points:
                specs.append(TrialSpec(preset, seed=seed, **point, **fields))
    return specs


def _points_of_sizes(panel: str, points: list[dict[str, int]], sizes: list[int]) -> list[dict[str, int]]:
    by_size: dict[int, list[dict[str, int]]] = {}
    for point in points:
        by_size.setdefault(point["n_memory"] * point["n_states"], []).append(point)
    for size in sizes:
        if size not in by_size:
            raise ValueError(f"sizes of panel {panel} are {', '.join(map(str, sorted(by_size)))}, not {size}")
    return [point for point in points if point["n_memory"] * point["n_states"] in sizes]


def grid(preset: str = "quick", trials: int = 1, *, first_seed: int = 0, **fields) -> list[TrialSpec]:
    """List the specs of all combinations of fields.

    The first trials of all combinations come first, then the second trials, and so on.

    Args:
        preset: the name of a preset.
        trials: how many trials each combination gets. Their seeds count up from `first_seed`.
        first_seed: the seed of the first trial of each combination.
        fields: fields of `TrialSpec`, each a value or a list of values.

    Raises:
        ValueError: a name is no field of a spec, a field has no value, or `TrialSpec` refuses a value.

    Example:
        >>> len(grid("smoke", n_states=[6, 12], prompt_length=[0, 5]))
        4
    """
    if "seed" in fields:
        raise ValueError("seed is counted up from first_seed. Pass first_seed and trials instead.")
    specs = []
    for seed in _seeds(first_seed, trials):
        for combination in _combinations(fields):
            specs.append(TrialSpec(preset, seed=seed, **combination))
    return specs


def _combinations(fields: dict) -> list[dict]:
    """Return all combinations of fields that may have several values."""
    lists = []
    for name, value in fields.items():
        one_of("field", name, FIELD_TYPES)
        lists.append(_values(name, value))
    return [dict(zip(fields, values, strict=True)) for values in product(*lists)]


def _values(name: str, value: Any) -> list:
    """Return the values of a field as a list, be it one value or several in any iterable or array."""
    if hasattr(value, "tolist"):  # an array of NumPy, torch or pandas
        value = value.tolist()
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return [value]
    values = list(value)
    if not values:
        raise ValueError(f"{name} must have at least one value")
    return values


def _seeds(first_seed: int, trials: int) -> range:
    first = integer("first_seed", first_seed, 0)
    return range(first, first + integer("trials", trials, 1, MOST_TRIALS))


def warn_of_large_presets(specs: Sequence[TrialSpec], log: Callable[[str], None]) -> None:
    """Log a warning if trials on a CPU would take hours or days."""
    large = sorted({spec.preset for spec in specs} & FOR_GPUS)
    if large:
        log(f"{', '.join(large)} is for a GPU, but this runs on a CPU, where a trial takes hours or days")


def as_field(name: str, text: str) -> int | float | str:
    """Read the value of a field from a text on the command line.

    Args:
        name: the name of a field.
        text: the text.

    Raises:
        ValueError: the name is no field of a spec, or the text is no value of it.
    """
    one_of("field", name, FIELD_TYPES)
    return checked(name, FIELD_TYPES[name], text, strict=False)
