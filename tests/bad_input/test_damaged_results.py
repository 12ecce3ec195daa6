"""Stored results, each damaged in one way: what cannot be read is refused, and what no trial gives is not stored."""

import json
import math
import os
import re
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
from record import tried

from hmmlib.experiments.measurements import MEASUREMENTS
from hmmlib.experiments.specs import Anything, TrialSpec
from hmmlib.experiments.store import STORE, load_result, load_results, save_result
from hmmlib.experiments.trials import ORIGINAL

pytestmark = pytest.mark.outside
OF_PARTS = ["environment", "fit_distances", "fit_distances_without_prompt", "fit_labels", "fit_weights", "openness"]
VANILLA = {
    **{key: [{}] for key in OF_PARTS},
    **{key: [{"layer 1": {}}] for key in ("label_follows", "label_follows_encoding", "probe_reads")},
    **{key: [-1.0] for key in ("frequency_loss", "solvable.head.error", "readout_distances.free.all")},
    **{key: [None] for key in ("untrained_prompt_accuracy", "ladder_head_accuracy")},
    "head_accuracy": [61.7, "0.9", True, 0.9005, None],
    "exact_attention_accuracy": [1 / 3],
    "built_head_accuracy": [-0.1, 0.1234],
    "validation_head_accuracy": [0.751, None],
    "prompt_accuracy": [None, 0.12345],
    "majority_rate": [0.49, 0.6005],
    "redraws": [21, -1, 0.5, 10**400],
    "best_loss": [3.0, None],
    "network_loss": [-1.0, 0.0],
    "divergence": [-0.1, "small"],
    "backbone": ["unknown", "45454a3a7edc5eb1\n", "45454a3a7edc5eb1" * 2],
    "seeds": [{}, {"model": 1}],
    "seconds": [{}, {"pretraining": 1.0}],
    "seconds.pretraining": [-1.0, 1e300, None],
    "seconds.cuts": [...],
    "environment.threads": [0],
    "environment.precision": ["float64"],
    "environment.device": ["", "cpu\n", ...],
    "environment.machine": ["\ud800"],
    "environment.date": ["2026-02-30", "２０２６-01-01"],
    "environment.library": ["0.2"],
    "environment.commit": ["", ...],
    "environment.two\nlines": [1],
    "environment.rain measured": ["2026-01-31, commit None, library 0123456789abcdef"],
    "environment.probes measured": ["yesterday", "2026-01-31, commit 0123456789ab, library 0123456789ABCDEF"],
    "exact_prompt_accuracy": [1.5],
    "text_kinds.clear": [1.5, 0.0, ...],
    "text_kinds.weighed": [0.0],
    "text_kinds.spread": [1.0],
    "accuracies_by_kind.head.all": [0.001, None],
    "accuracies_by_kind.prompt.all": [0.001],
    "readout_labels.wild": [{}],
    "plain_distances.unchanged.all": [1.1],
    "control_distances.untrained.unchanged": [None],
    "votes.weighed": [2.5, 0],
    "votes.weighed, right": [-1, 10**6],
    "prompt_cuts.none.distance": ["0"],
    "probes.belief.layer 1": [1.1],
    "certified.tuned head.certified but wrong": [0.0005, 1.0],
    "on_the_way": [{"401": {}}, {"400": {"head": 0.5, "prompt": 0.5}}],
}
"""What no trial of a vanilla model gives: values of each number by its path; `...` stands for none."""
NONE_OF_MEMORY = ("prompt_accuracy", "ladder_head_accuracy", "built_prompt_accuracy", "exact_prompt_accuracy")


def first(folder: str, *tables: str, n_memory: int = 1) -> Path:
    """The first result with these tables whose spec is its preset's own but for model and seed."""
    for path in sorted((STORE / folder).glob("*.json")):
        content = json.loads(path.read_text())
        spec = TrialSpec(**content["spec"])
        own = spec == TrialSpec(spec.preset, spec.n_states, spec.seed, spec.n_memory)
        if own and (spec.n_memory > 1) == (n_memory > 1) and {*tables} <= content.keys():
            return path
    raise LookupError(folder)


FULL = first("beyond/quick", "certified", "prompt_cuts")
MEMORY = first("quick", n_memory=2)


def put(*path_and_value):
    """Set what stands at a path, such as put("seconds", "pretraining", -1.0)."""
    *path, last, value = path_and_value
    return lambda content: reduce(getitem, path, content).update({last: value})


def lose(*path):
    *path, last = path
    return lambda content: reduce(getitem, path, content).pop(last)


def text(change):
    """A change of what stands in a file, or other bytes in its place."""
    old = FULL.read_text()
    new = change(old) if callable(change) else change
    return lambda path: path.write_bytes(new if isinstance(new, bytes) else new.encode())


def edited(change):
    """A change of the object that a file holds."""
    change(content := json.loads(FULL.read_text()))
    return text(json.dumps(content))


UNREADABLE = [
    (Path.mkdir, "it is no regular file"),
    (lambda path: path.symlink_to(path.parent / "elsewhere"), "it is no regular file"),
    (lambda path: path.symlink_to(path), "it is no regular file"),
    (os.mkfifo, "it is no regular file"),
    (text(b"\x80\x02}q\x00."), "utf-8"),
    (text(b"\xef\xbb\xbf{}"), "BOM"),
    (text("[" * 100_000), "nested"),
    (text('{"format": 2, "format": 2}'), "twice"),
    (text("null"), "file: Input should be a valid dictionary, not None"),
    (text(lambda old: old[: old.index('"seeds"')]), "Expecting"),
    (edited(lose("head_accuracy")), "file.head_accuracy: Field required"),
    (edited(put("format", 3)), "file.format: Input should be 2, not 3"),
    (edited(put("spec", ["quick"])), "file.spec: Input should be a valid dictionary, not ['quick']"),
    (edited(lose("spec", "steps")), "its spec lacks {'steps': 400}"),
    (edited(put("spec", "heads", 3)), "width must be a multiple of heads"),
    (edited(put("spec", "n_states", 5)), "so it was edited or renamed"),
    (edited(put("divergence", math.nan)), "NaN is no number of JSON"),
]
"""What is done at a result's path, and words of the refusal."""


def contents(folder: Path) -> dict:
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*") if not path.is_fifo()}


@tried("stored results")
@pytest.mark.parametrize(("how", "words"), UNREADABLE, ids=[f"{k}: {words}" for k, (_, words) in enumerate(UNREADABLE)])
def test_what_cannot_be_read_is_refused_with_what_is_wrong_and_left_as_it_is(how, words, tmp_path):
    path = tmp_path / "quick" / FULL.name
    path.parent.mkdir()
    how(path)
    before = contents(tmp_path)
    for read in (lambda: load_result(path), lambda: load_results("quick", tmp_path)):
        with pytest.raises(ValueError, match=rf"{path.name} is no readable result: [^\n]*{re.escape(words)}"):
            read()
    assert contents(tmp_path) == before


def stored(content: dict, folder: Path) -> Path:
    """Where the content is stored, under the name that its spec gives."""
    spec = TrialSpec(**content["spec"])
    path = folder / spec.preset / f"{spec.hash}.json"
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    return path


IMPOSSIBLE = [(FULL, path, value) for path, values in VANILLA.items() for value in values]
IMPOSSIBLE += [(MEMORY, path, 0.9) for path in NONE_OF_MEMORY]
IDS = [f"{path!r}: {str(value)[:60]!r}" for _, path, value in IMPOSSIBLE]


@tried("stored results")
@pytest.mark.parametrize(("source", "path", "value"), IMPOSSIBLE, ids=IDS)
def test_what_no_trial_gives_is_not_stored(source, path, value, tmp_path):
    content = json.loads(source.read_text())
    (lose(*path.split(".")) if value is ... else put(*path.split("."), value))(content)
    with pytest.raises(ValueError, match=r"a result that cannot be stored: .") as caught:
        save_result(load_result(stored(content, tmp_path)), tmp_path / "other")
    assert path.split(".")[0].split("\n")[0] in str(caught.value) or path in ("best_loss", "network_loss")
    assert len(str(caught.value)) < 1000
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "how",
    [
        lambda content: None,
        put("redraws", 20),
        put("head_accuracy", 1),
        put("built_head_accuracy", None),
        put("environment", "cores", 4),
        put("environment", "machine", ""),
        put("environment", "commit", "v0.2.0-5-g0123456789ab+"),
        put("environment", "probes measured", "2026-01-31, commit 0123456789ab, library 0123456789abcdef"),
        lose("probes"),
        put("accuracies_by_kind", "head", "spread", None),
        put("rain", {"in April": 0.5, "in May": {"all": 0.25}}),
    ],
)
def test_what_a_trial_could_have_given_is_read_and_stored(how, tmp_path):
    """A measurement of the reader's own, or of another version, as well: by name, without an error."""
    content = json.loads(FULL.read_text())
    how(content)
    if content["head_accuracy"] == 1:
        content["accuracies_by_kind"]["head"]["all"] = 1.0
    result = load_result(stored(content, tmp_path))
    assert result.added.get("rain") == content.get("rain")
    assert load_result(save_result(result, tmp_path / "other")) == result


def test_parts_of_ones_own_may_be_of_other_sizes_but_not_beat_the_best(tmp_path):
    content = json.loads(FULL.read_text())
    put("redraws", 25)(content)
    put("exact_attention_accuracy", 1 / 3)(content)  # of a task of another size
    content["spec"]["own"] = "mine"
    result = load_result(stored(content, tmp_path))
    assert load_result(save_result(result, tmp_path / "other")) == result
    with pytest.raises(ValueError, match="best_loss must be at most network_loss"):
        save_result(replace(result, best_loss=result.network_loss + 1), tmp_path / "other")


def test_every_measurement_says_what_it_gives_and_each_is_damaged():
    ours = [one for one in MEASUREMENTS if one.function.__module__.startswith("hmmlib.")]
    later = {name: one.kinds[name] for one in ours for name in one.names if name not in ORIGINAL}
    assert [name for name, kind in later.items() if kind is Anything] == []
    assert later.keys() <= {path.split(".")[0] for path in VANILLA}
