"""The page on protocol and code: its tables of settings are the presets."""

import dataclasses
import re

from built_book import ROOT

from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.specs import TrialSpec

PAGE = (ROOT / "book" / "protocol-and-code.md").read_text()
MODEL = {"preset", "seed", "n_states", "n_memory", "own"}
FIELDS = {field.name for field in dataclasses.fields(TrialSpec)} - MODEL
COLUMNS = ["paper", "released-code", "gpu", "laptop", "quick"]


def values(page: str) -> list[tuple[str, str, float | str]]:
    """Field, preset and value, as often as the tables of presets name them."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        header, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines())
        if [name.strip("`") for name in header[3:]] == COLUMNS:
            for row in rows:
                fields = re.findall(r"`([a-z_]+)`", row[0])
                for preset, cell in zip(COLUMNS, row[3:], strict=True):
                    parts = [part.strip("`") if part.startswith("`") else float(part) for part in cell.split(", ")]
                    found += [(name, preset, value) for name, value in zip(fields, parts, strict=True)]
    return found


def wrong(page: str) -> list[tuple[str, str, float | str]]:
    return [(name, preset, value) for name, preset, value in values(page) if value != getattr(TrialSpec(preset), name)]


def test_every_field_stands_in_one_row_with_the_values_of_the_presets():
    named = [(name, preset) for name, preset, _ in values(PAGE)]
    assert len(named) == len(set(named))
    assert {name for name, _ in named} == FIELDS
    assert wrong(PAGE) == []
    old, new = "| 37500 | 37500 | 3000 |", "| 37500 | 37501 | 3000 |"
    assert PAGE.count(old) == 1
    assert wrong(PAGE.replace(old, new)) == [("steps", "released-code", 37501)], "a control"


def test_what_the_released_code_takes_over_is_what_differs_from_the_paper():
    sentence = re.search(r"`released-code` takes over (.+?)\. Not these", PAGE)[1]
    differs = {name for name, value in PRESETS["released-code"].items() if value != PRESETS["paper"][name]}
    assert set(re.findall(r"`([a-z_]+)`", sentence)) == differs
