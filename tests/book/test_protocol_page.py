"""The page on protocol and code: its tables are the presets, and what it says was computed comes out again."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

from hmmlib.experiments.labels import draw_mu
from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.results import mean_ci, results
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import STORE
from hmmlib.inference.messages import memory_posterior, posterior
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "protocol-and-code.md").read_text()
MODEL = {"preset", "seed", "n_states", "n_memory", "own"}
FIELDS = {field.name for field in dataclasses.fields(TrialSpec)} - MODEL
COLUMNS = ["paper", "released-code", "gpu", "laptop", "quick"]


def tables(page: str) -> list[list[list[str]]]:
    """All tables of a page, as rows of cells; the row of dashes is left out."""
    found, rows = [], []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not all(re.fullmatch(r"[-: ]+", cell) for cell in cells):
                rows.append(cells)
        elif rows:
            found.append(rows)
            rows = []
    return found


def read(cell: str) -> list[float | str]:
    """The values of a cell: numbers, or words in code font."""
    return [part.strip("`") if part.startswith("`") else float(part) for part in cell.split(", ")]


def values(page: str) -> list[tuple[str, str, float | str]]:
    """Field, preset and value, as often as the tables of presets name them."""
    found = []
    for header, *rows in tables(page):
        presets = [name.strip("`") for name in header[3:]]
        if presets != COLUMNS:
            continue
        for row in rows:
            fields = re.findall(r"`([a-z_]+)`", row[0])
            assert fields, row[0]
            for preset, cell in zip(presets, row[3:], strict=True):
                found += [(name, preset, value) for name, value in zip(fields, read(cell), strict=True)]
    return found


def wrong(page: str) -> list[tuple[str, str, float | str]]:
    """What the page says of a preset and is not so."""
    return [(name, preset, value) for name, preset, value in values(page) if value != getattr(TrialSpec(preset), name)]


def test_every_field_stands_in_one_row():
    named = [(name, preset) for name, preset, _ in values(PAGE)]
    assert len(named) == len(set(named))
    assert {name for name, _ in named} == FIELDS


def test_every_value_is_that_of_the_preset():
    assert wrong(PAGE) == []
    told = {(name, preset): value for name, preset, value in values(PAGE)}
    for preset in COLUMNS:
        assert all(told[name, preset] == value for name, value in PRESETS[preset].items())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("| 37500 | 37500 | 3000 |", "| 37500 | 37501 | 3000 |", ("steps", "released-code", 37501)),
        ("| `own` | `shared` | `own` |", "| `shared` | `shared` | `own` |", ("weights", "paper", "shared")),
        ("| 4000, 400, 1000 |", "| 4000, 500, 1000 |", ("validation", "quick", 500)),
    ],
)
def test_a_wrong_value_is_found(old, new, expected):
    assert PAGE.count(old) == 1
    assert wrong(PAGE.replace(old, new)) == [expected]


def test_rows_on_which_the_presets_differ_come_first():
    for header, *rows in tables(PAGE):
        if [name.strip("`") for name in header[3:]] != COLUMNS:
            continue
        presets = [dict(zip(COLUMNS, row[3:], strict=True)) for row in rows]
        ranks = [
            0 if row["quick"] != row["paper"] else 1 if row["released-code"] != row["paper"] else 2 for row in presets
        ]
        assert ranks == sorted(ranks)


def differing() -> list[list[str]]:
    """The rows of the table of what differs most."""
    return next(rows for header, *rows in tables(PAGE) if header[0] == "what differs")


def test_the_table_of_what_differs_most_has_the_values_of_the_presets():
    told = {row[0]: row[1:4] for row in differing()}
    for name, form in {
        "network: `layers` of `width`": "{0.layers} of {0.width}",
        "`steps` of pretraining, and their `batch`": "{0.steps:,} of {0.batch} chunks",
        "tuning: `epochs`, `head_rate` and `prompt_rate`": "{0.epochs} passes at {0.head_rate:g}",
        "share of tokens that is hidden, `masked`": "{0.masked:.0%}",
        "`dropout`": "{0.dropout:g}",
        "ids beside the tokens, `specials`": "{0.specials}",
    }.items():
        for preset, cell in zip(("paper", "released-code", "quick"), told[name], strict=True):
            assert cell == "–" or cell.replace("asked for, ", "") == form.format(TrialSpec(preset))
    quick = TrialSpec("quick")
    assert quick.head_rate == quick.prompt_rate
    row = told["tokens of a task and of a chunk, `task_length` and `length`"]
    assert row[2] == f"{quick.task_length} and {quick.length}"
    assert f"Muon at {quick.muon_rate}" in told["optimiser of pretraining: `learning_rate`, `muon_rate`"]


@pytest.mark.outside
def test_what_a_difference_does_alone():
    stored = results("quick", STORE / "beyond").query("n_states == 30 and n_memory == 1 and seed < 10")

    def accuracies(**fields):
        changes = [
            *(f"{name}={value}" for name, value in fields.items()),
            "tuning_batch=8 head_rate=0.01 prompt_rate=0.01",
        ]
        return stored[stored.changes == " ".join(changes)].set_index("seed").prompt_accuracy

    base = accuracies()
    assert len(base) == 10
    tried = {
        "`masked`": dict(masked=0.05),
        "`length`": dict(length=192, task_length=129),
        "`dropout`": dict(dropout=0.1),
        "`labels`": dict(labels="stepped"),
        "`weights`": dict(weights="shared"),
        "`documents`": dict(documents=53, document_length=10240),
        "`masking`": dict(masking="bert"),
        "`places`": dict(places="repeated"),
        "`specials`": dict(specials=5),
    }
    told = [row for row in differing() if re.match(r"[+-]", row[4])]
    assert len(told) == len(tried)
    for row, (name, fields) in zip(told, tried.items(), strict=True):
        assert name in row[0]
        changed = accuracies(**fields)
        assert len(changed) == 10
        found = mean_ci(100 * (changed - base), share=False)
        assert row[4].split(" for ")[0] == f"{found:+.1f}"


def test_what_released_code_takes_over_is_what_differs_from_paper():
    sentence = re.search(r"`released-code` takes over (.+?)\. Not these", PAGE)[1]
    differs = {name for name, value in PRESETS["released-code"].items() if value != PRESETS["paper"][name]}
    assert set(re.findall(r"`([a-z_]+)`", sentence)) == differs


def test_the_page_says_which_presets_have_no_results():
    without = {p for p in ("laptop", "gpu", "paper", "released-code") if not any((ROOT / "results" / p).glob("*.json"))}
    sentence = re.search(r"The store has no result of ([^:.]+)", PAGE)
    assert (set(re.findall(r"`([a-z-]+)`", sentence[1])) if sentence else set()) == without


def posteriors(size: int, memory: bool):
    """For 20 random models: sequences' posteriors that labels weigh, and a generator."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        model = random_memory_hmm(size, 4, 10, seed) if memory else random_hmm(size, 10, seed)
        tokens = model.sample(1000, 128, generator).tokens
        yield memory_posterior(model, tokens) if memory else posterior(model, tokens, at=0), generator


@pytest.mark.parametrize(("size", "memory", "row"), [(4, False, "mathcal H"), (2, True, "mathcal M")])
def test_shares_of_one_class_tasks(size, memory, row):
    header, *rows = next(table for table in tables(PAGE) if table[0][0] == "model")
    told = next(cells for cells in rows if row in cells[0] and cells[0].endswith(f"= {size}$"))
    counts = dict.fromkeys(("distinct", "repeated"), 0)
    for weighed, generator in posteriors(size, memory):
        for places in counts:
            draws = torch.stack([draw_mu(size, generator, places) for _ in range(200)])
            labels = weighed @ draws.T >= 0
            counts[places] += int((labels.all(0) | ~labels.any(0)).sum())
    assert [name.strip("`") for name in header[1:]] == list(counts)
    for cell, count in zip(told[1:], counts.values(), strict=True):
        assert abs(float(cell.strip("%")) / 100 - count / 4000) < 0.02


def test_distance_of_the_scripts_posterior_from_the_exact_one():
    told = float(re.search(r"at most ([0-9.]+) apart in total variation", PAGE)[1])
    largest, flips = 0.0, 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        model = random_hmm(15, 10, seed)
        tokens = model.sample(1000, 128, generator).tokens
        exact, stepped = posterior(model, tokens, at=0), posterior(model, tokens, at=1) @ model.transition
        largest = max(largest, (exact - stepped).abs().sum(1).max().item() / 2)
        draws = torch.stack([draw_mu(15, generator, "repeated") for _ in range(50)])
        flips += int(((exact @ draws.T >= 0) != (stepped @ draws.T >= 0)).sum())
    assert told - 0.001 < largest <= told
    assert 0 < flips / (20 * 1000 * 50) < 1e-3
