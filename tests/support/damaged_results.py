"""Stored results, each damaged in one way, and words of what `load_result` says of it."""

import json
import math
import re
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import NamedTuple

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import STORE

FULL = "beyond/quick"
"""A trial of a vanilla model with every table that is measured on request, but the one of what is on the way."""
PLAIN, MEMORY, SMOKE = "quick, a vanilla model", "quick, a memory model", "smoke"


def _file(folder: str, *tables: str, n_memory: int = 1) -> Path:
    """The first result that is its preset's own but for model and seed, has these tables, and no steps on the way."""
    for path in sorted((STORE / folder).glob("*.json")):
        content = json.loads(path.read_text())
        spec = TrialSpec(**content["spec"])
        own = spec == TrialSpec(spec.preset, spec.n_states, spec.seed, spec.n_memory)
        if own and (spec.n_memory > 1) == (n_memory > 1) and {*tables} <= content.keys() - {"on_the_way"}:
            return path
    raise LookupError(folder)


SOURCES = {
    FULL: _file("beyond/quick", "certified", "prompt_cuts"),
    PLAIN: _file("quick", "exact_prompt_accuracy"),
    MEMORY: _file("quick", n_memory=2),
    SMOKE: _file("smoke"),
}


class Damage(NamedTuple):
    """What is done to a stored result, as its JSON, and words that the refusal has.

    `how` changes the object, or makes another text or other bytes of the file's text.
    """

    what: str
    how: Callable
    words: str
    of: str = FULL

    def __str__(self) -> str:
        return f"{self.of}: {self.what}"


def put(*path_and_value) -> Callable[[dict], None]:
    """Set what stands at a path, such as put("seconds", "pretraining", -1.0)."""
    *path, last, value = path_and_value

    def change(content: dict) -> None:
        reduce(getitem, path, content)[last] = value

    return change


def lose(*path) -> Callable[[dict], None]:
    *path, last = path

    def change(content: dict) -> None:
        del reduce(getitem, path, content)[last]

    return change


def add(name: str, more: float, to: str | None = None) -> Callable[[dict], None]:
    """Set a number to so much more than another, or than itself."""

    def change(content: dict) -> None:
        content[name] = content[to or name] + more

    return change


class Text(NamedTuple):
    """A change of the file's text."""

    change: Callable[[str], str | bytes]


def twice(line: str) -> Text:
    """A name that stands twice: what begins so is written once more before it."""
    return Text(lambda text: text.replace(f'"{line}":', f'"{line}": 0, "{line}":', 1))


def instead(old: str, new: str) -> Text:
    return Text(lambda text: text.replace(old, new, 1))


FIELDS = [
    Damage("no accuracy of the head", lose("head_accuracy"), "it lacks head_accuracy"),
    Damage("no backbone", lose("backbone"), "it lacks backbone"),
    Damage("neither seconds nor seeds", lambda c: [c.pop("seconds"), c.pop("seeds")], "it lacks seeds, seconds"),
    Damage("no environment", lose("environment"), "it lacks environment", MEMORY),
    Damage("a field that there is not", put("bonus", 1), "bonus is no field of a result, and no measurement"),
    Damage("a table in a table of its own", put("added", {"probes": {}}), "added is no field of a result"),
    Damage("a measurement under an older name", lambda c: c.update(text_sorts=c.pop("text_kinds")), "text_sorts is no"),
    Damage("a format in words", put("format", "2"), "its format is '2', and this version of hmmlib reads 2"),
    Damage("a format with a point", put("format", 2.0), "its format is 2.0, and"),
    Damage("a later format", put("format", 3), "its format is 3, and"),
    Damage("no format", lose("format"), "its format is None"),
    Damage("no spec", lose("spec"), "its spec must be an object with the fields of a TrialSpec, not None"),
    Damage("a spec without steps", lose("spec", "steps"), "its spec lacks steps"),
    Damage("a spec with a field of its own", put("spec", "rounds", 3), "its spec has rounds, which is no field"),
    Damage("steps in words", put("spec", "steps", "400"), "steps must be an integer, not '400'"),
    Damage("steps with a point", put("spec", "steps", 400.0), "steps must be an integer, not 400.0"),
    Damage("another number of states", put("spec", "n_states", 5), "so it was edited or renamed"),
    Damage("a preset that there is not", put("spec", "preset", "huge"), "preset must be one of smoke, quick"),
    Damage("a rate that is none", put("spec", "head_rate", math.nan), "NaN is no number of JSON"),
]
SHARE, FINE = "must be a share, 0 to 1", "must be a multiple of 1/1000, as of the 1000 test examples"
NUMBERS = [
    Damage("a percentage", put("head_accuracy", 61.7), f"head_accuracy {SHARE}, not 61.7"),
    Damage("an accuracy below 0", put("prompt_accuracy", -0.1), f"prompt_accuracy {SHARE}, not -0.1"),
    Damage("an accuracy in words", put("attention_accuracy", "0.9"), "attention_accuracy must be a number, not '0.9'"),
    Damage("an accuracy that is true", put("head_accuracy", True), "head_accuracy must be a number, not True"),
    Damage("an accuracy in a list", put("head_accuracy", [0.9]), "head_accuracy must be a number, not [0.9]"),
    Damage("NaN", put("head_accuracy", math.nan), "NaN is no number of JSON"),
    Damage("Infinity", put("network_loss", math.inf), "Infinity is no number of JSON"),
    Damage("less than any number", put("divergence", -math.inf), "-Infinity is no number of JSON"),
    Damage("1e999", Text(lambda text: re.sub('"divergence": [0-9.]+', '"divergence": 1e999', text)), "not inf"),
    Damage("a half of an example", put("head_accuracy", 0.9005), f"head_accuracy {FINE}, not 0.9005"),
    Damage("a third", put("exact_attention_accuracy", 1 / 3), f"exact_attention_accuracy {FINE}"),
    Damage("a bit more than an example", add("ladder_head_accuracy", -1e-9), f"ladder_head_accuracy {FINE}"),
    Damage("a fourth digit of what is built", put("built_head_accuracy", 0.1234), f"built_head_accuracy {FINE}", PLAIN),
    Damage(
        "a share of test examples where those of validation count",
        put("validation_head_accuracy", 0.751),
        "validation_head_accuracy must be a multiple of 1/400, as of the 400 validation examples, not 0.751",
    ),
    Damage("a third at 50 examples", put("validation_prompt_accuracy", 1 / 3), "1/50, as of the 50 validation", SMOKE),
    Damage("no accuracy", put("head_accuracy", None), "head_accuracy must be a number, not None"),
    *(
        Damage(f"a vanilla model without {name}", put(name, None), f"{name} must be there for such a trial", PLAIN)
        for name in ("prompt_accuracy", "validation_prompt_accuracy", "untrained_prompt_accuracy")
    ),
    Damage("no ladder", put("ladder_head_accuracy", None), "ladder_head_accuracy must be there for such a trial"),
    Damage("half a ladder", put("ladder_prompt_accuracy", None), "ladder_prompt_accuracy must be there for such"),
    *(
        Damage(f"a memory model with {name}", put(name, 0.9), f"{name} must be null for such a trial, not 0.9", MEMORY)
        for name in ("prompt_accuracy", "ladder_head_accuracy", "built_prompt_accuracy", "exact_prompt_accuracy")
    ),
    Damage("a majority that is none", put("majority_rate", 0.49), "majority_rate must be 0.5 to 1, not 0.49"),
    Damage("a majority of half an example", put("majority_rate", 0.6005), f"majority_rate {FINE}"),
    Damage("a majority above all", put("majority_rate", 1.2), f"majority_rate {SHARE}, not 1.2"),
    Damage("more redraws than there are", put("redraws", 21), "redraws must be at most 20, not 21"),
    Damage("redraws below 0", put("redraws", -1), "redraws must be 0 or more, not -1"),
    Damage("half a redraw", put("redraws", 0.5), "redraws must be an integer, not 0.5"),
    Damage("redraws that are true", put("redraws", True), "redraws must be an integer, not True"),
    Damage("a number of 400 digits", put("redraws", 10**400), "redraws must be at most 2147483647, not 1000"),
    Damage(
        "a number of 5000 digits",
        instead('"redraws": ', f'"redraws": {"9" * 5000}'),
        "has 5001 digits, and no number",
    ),
    Damage(
        "a network that is better than the best",
        add("best_loss", 0.03, "network_loss"),
        "best_loss must be at most network_loss and 20/1000 more, for luck on 1000 sequences; but it is",
    ),
    Damage("better by less on fewer sequences", add("best_loss", 0.21, "network_loss"), "and 20/100 more", SMOKE),
    Damage("a best guess that is worse than none", lambda c: c.update(best_loss=3.0, network_loss=3.5), "log 10 and"),
    Damage("a loss below 0", put("network_loss", -1.0), "network_loss must be a number of 0 or more, finite, not -1"),
    Damage("no loss", put("best_loss", None), "best_loss must be a number, not None"),
    Damage("a divergence below 0", put("divergence", -0.1), "divergence must be a number of 0 or more, finite"),
    Damage("a divergence in words", put("divergence", "small"), "divergence must be a number, not 'small'"),
]
DIGITS = "backbone must be 16 hexadecimal digits"
WORDS = [
    Damage("a backbone that is a number", put("backbone", 7), "backbone must be a word, not 7"),
    *(
        Damage(f"the backbone {bad[:17]!r}", put("backbone", bad), f"{DIGITS}, not {bad!r}")
        for bad in ("", "unknown", "45454a3a7edc5eb", "45454A3A7EDC5EB1", "45454a3a7edc5eb1\n", "45454a3a7edc5eb1" * 2)
    ),
    Damage("a seed too few", lose("seeds", "tuning"), "seeds must be those that seed"),
    Damage("a seed too many", put("seeds", "weather", 3), "seeds must be those that seed"),
    Damage("seeds of another trial", put("seeds", "model", 1), "seeds must be those that seed"),
    Damage("a seed with a point", put("seeds", "model", 1.5), "seeds: model must be an integer, not 1.5"),
    Damage("seeds in a list", put("seeds", [1, 2]), "seeds must be an object, not [1, 2]"),
    Damage("no seeds", put("seeds", {}), "seeds must be those that seed"),
    Damage("seconds below 0", put("seconds", "pretraining", -1.0), "seconds: pretraining must be 0 or more"),
    Damage("a hair below 0", put("seconds", "head tuning", -1e-6), "seconds: head tuning must be 0 or more"),
    Damage(
        "a phase that there is not",
        put("seconds", "lunch", 1.0),
        "seconds: lunch is no phase of such a trial; there are",
    ),
    Damage("no pretraining", lose("seconds", "pretraining"), "seconds lacks pretraining"),
    Damage("no seconds of the heads", lose("seconds", "head tuning"), "seconds lacks head tuning", MEMORY),
    Damage("no seconds at all", put("seconds", {}), "seconds lacks pretraining, exact model, head tuning"),
    Damage("tables without their seconds", lose("seconds", "cuts"), "seconds lacks cuts"),
    Damage("seconds in words", put("seconds", "pretraining", "1 s"), "seconds: pretraining must be a number"),
    Damage("seconds in a list", put("seconds", [1.0]), "seconds must be an object, not [1.0]"),
    *(
        Damage(f"an environment without {name}", lose("environment", name), f"environment lacks {name}", source)
        for name, source in {
            "device": FULL,
            "precision": PLAIN,
            "machine": MEMORY,
            "threads": SMOKE,
            "python": FULL,
            "torch": PLAIN,
            "transformers": MEMORY,
            "commit": SMOKE,
        }.items()
    ),
    Damage("an empty environment", put("environment", {}), "environment lacks device, precision, machine, threads"),
    Damage("no threads", put("environment", "threads", 0), "environment: threads must be 1 or more, not 0"),
    Damage("threads in words", put("environment", "threads", "2"), "environment: threads must be an integer, not '2'"),
    Damage("a precision that there is not", put("environment", "precision", "float64"), "must be one of float32"),
    Damage("no device", put("environment", "device", ""), "environment: device must be a word, not ''"),
    Damage("no torch", put("environment", "torch", None), "environment: torch must be a word, not None"),
    Damage("torch in a list", put("environment", "torch", [2, 13]), "environment: torch must be a word, not [2, 13]"),
    Damage("a day that is none", put("environment", "date", "2026-02-30"), "date must be a day, such as 2026-01-31"),
    Damage(
        "a day in words", put("environment", "date", "today"), "date must be a day, such as 2026-01-31, not 'today'"
    ),
    Damage("a library that is none", put("environment", "library", "0.2"), "library must be 16 hexadecimal digits"),
    Damage("an empty commit", put("environment", "commit", ""), "environment: commit must be a word, not ''"),
    Damage("a list of what is noted there", put("environment", "notes", ["a"]), "environment: notes must be a word"),
    Damage(
        "the origin of what is not there",
        put("environment", "on_the_way measured", "2026-01-31, commit None, library 0123456789abcdef"),
        "environment: on_the_way measured is there, but on_the_way is not",
    ),
    Damage(
        "an origin in other words",
        put("environment", "exact_prompt_accuracy measured", "yesterday"),
        "exact_prompt_accuracy measured must be a day, a commit and a library, such as 2026-01-31, commit",
        PLAIN,
    ),
    Damage("half a character", put("environment", "machine", "\ud800"), "environment: machine must be a word"),
]
TABLES = [
    Damage("exact prompts above all", put("exact_prompt_accuracy", 1.5), f"exact_prompt_accuracy {SHARE}", PLAIN),
    Damage("exact prompts of a third", put("exact_prompt_accuracy", 1 / 3), f"exact_prompt_accuracy {FINE}", PLAIN),
    Damage("no exact prompt", put("exact_prompt_accuracy", None), "exact_prompt_accuracy must be", PLAIN),
    Damage("a table for a number", put("exact_prompt_accuracy", {}), "exact_prompt_accuracy must be a number", PLAIN),
    Damage("a kind above all", put("text_kinds", "clear", 1.5), f"text_kinds: clear {SHARE}, not 1.5"),
    Damage("a kind of half a text", put("text_kinds", "clear", 0.5005), f"text_kinds: clear {FINE}"),
    Damage("a kind too few", lose("text_kinds", "clear"), "text_kinds lacks clear"),
    Damage("a kind too many", put("text_kinds", "murky", 0.5), "text_kinds: murky is no name of it; there are certain"),
    Damage("kinds in a list", put("text_kinds", [0.5, 0.5]), "text_kinds must be an object, not [0.5, 0.5]"),
    Damage("a number for kinds", put("text_kinds", 0.5), "text_kinds must be an object, not 0.5"),
    Damage("no kinds", put("text_kinds", None), "text_kinds must be an object, not None"),
    Damage("a number for a row", put("accuracies_by_kind", "head", 0.5), "accuracies_by_kind: head must be an object"),
    Damage("a row too few", lose("accuracies_by_kind", "prompt"), "accuracies_by_kind lacks prompt"),
    Damage("a kind of a row too few", lose("accuracies_by_kind", "head", "all"), "accuracies_by_kind: head lacks all"),
    Damage("nothing over all", put("accuracies_by_kind", "table", "all", None), "accuracies_by_kind: table: all must"),
    Damage(
        "a row within a row", put("readout_labels", "free", "right", {}), "readout_labels: free: right must be a num"
    ),
    Damage("a family that there is not", put("readout_labels", "wild", {}), "readout_labels: wild is no name of it"),
    Damage("a distance below 0", put("readout_distances", "free", "all", -0.1), "free: all must be a distance, 0 to 1"),
    Damage("a distance above 1", put("plain_distances", "unchanged", "all", 1.1), "all must be a distance, 0 to 1"),
    Damage("no distance", put("control_distances", "untrained", "unchanged", None), "unchanged must be a number"),
    Damage("half a state", put("votes", "weighed", 2.5), "votes: weighed must be an integer, not 2.5"),
    Damage("more states than there are", put("votes", "weighed", 10**6), "votes: weighed must be 0 to"),
    Damage("no vote", lose("votes", "look-alikes"), "votes lacks look-alikes"),
    Damage("a layer too few", lose("prompt_cuts", "layer 2"), "prompt_cuts lacks layer 2"),
    Damage("a layer too many", put("prompt_cuts", "layer 3", {}), "prompt_cuts: layer 3 is no name of it"),
    Damage(
        "a word in a table", put("prompt_cuts", "none", "distance", "0"), "none: distance must be a number, not '0'"
    ),
    Damage("more than all is explained", put("probes", "belief", "layer 1", 1.1), "layer 1 must be at most 1, not 1.1"),
    Damage("labels of a third", put("probes", "label", "layer 1", 1 / 3), f"probes: label: layer 1 {FINE}"),
    Damage("a guess without layers", put("probes", "guess", {"layer 1": 0.5}), "probes: guess must be a number"),
    Damage("perhaps", put("solvable", "votes apart", 0.5), "solvable: votes apart must be 0 or 1, not 0.5"),
    Damage("an error below 0", put("solvable", "head", "error", -1.0), "solvable: head: error must be a number of 0"),
    Damage("nothing where there is something", put("solvable", None), "solvable must be an object, not None"),
    Damage("twice as far", put("certified", "tuned head", "distance", 2.1), "distance must be a distance, 0 to 2"),
    Damage("certain and wrong", put("certified", "tuned head", "certified but wrong", 0.0005), f"but wrong {FINE}"),
    Damage("NaN in a table", put("votes", "distance of look-alikes in R", math.nan), "NaN is no number of JSON"),
    Damage("steps in words", put("on_the_way", {"last": {}}), "on_the_way: last must be a number of steps, 1 to 400"),
    Damage("more steps than there are", put("on_the_way", {"401": {}}), "on_the_way: 401 must be a number of steps"),
    Damage("a step without its loss", put("on_the_way", {"400": {"head": 0.5, "prompt": 0.5}}), "400 lacks loss"),
]
TEXTS = [
    Damage("an accuracy twice", twice("head_accuracy"), "head_accuracy stands in it twice"),
    Damage("steps twice", twice("steps"), "steps stands in it twice"),
    Damage("a thread twice", twice("threads"), "threads stands in it twice", SMOKE),
    Damage("a row twice", twice("layer 1"), "layer 1 stands in it twice"),
    Damage("nothing", Text(lambda text: ""), "it is empty"),
    Damage("blanks", Text(lambda text: " \n"), "it is empty"),
    Damage("a half", Text(lambda text: text[: len(text) // 2]), "it is no JSON, or cut short"),
    Damage("all but the last brace", Text(lambda text: text.rstrip()[:-1]), "it is no JSON, or cut short"),
    Damage("two results", Text(lambda text: text + text), "it is no JSON, or cut short: Extra data"),
    Damage("a comment", Text(lambda text: "// mine\n" + text), "it is no JSON, or cut short: Expecting value"),
    Damage("quotes of Python", Text(lambda text: text.replace('"', "'")), "it is no JSON, or cut short: Expecting"),
    Damage("True", instead("null", "None"), "it is no JSON, or cut short: Expecting value", MEMORY),
    Damage(
        "a mark of byte order", Text(lambda text: b"\xef\xbb\xbf" + text.encode()), "it begins with a byte order mark"
    ),
    Damage("UTF-16", Text(lambda text: text.encode("utf-16")), "it is no UTF-8: byte 0xff at 0"),
    Damage("Latin 1", Text(lambda text: text.replace("cpu", "pü").encode("latin-1")), "it is no UTF-8: byte 0xfc at"),
    Damage("a pickle", Text(lambda text: b"\x80\x04\x95"), "it is no UTF-8: byte 0x80 at 0"),
    Damage("a list of results", Text(lambda text: f"[{text}]"), "it must be an object with a format, a spec"),
    Damage("a word", Text(lambda text: '"format"'), "it must be an object with a format, a spec"),
    Damage("brackets", Text(lambda text: "[" * 100_000), "it is nested too deeply"),
]
DAMAGES = [*FIELDS, *NUMBERS, *WORDS, *TABLES, *TEXTS]


def damaged(damage: Damage, folder: Path) -> Path:
    """The stored result of a damage, damaged, in a folder of its preset's name."""
    source = SOURCES[damage.of]
    path = folder / source.parent.name / source.name
    path.parent.mkdir(parents=True)
    text = source.read_text()
    if isinstance(damage.how, Text):
        spoiled = damage.how.change(text)
    else:
        content = json.loads(text)
        damage.how(content)
        spoiled = json.dumps(content, indent=1)
    path.write_bytes(spoiled if isinstance(spoiled, bytes) else spoiled.encode())
    return path
