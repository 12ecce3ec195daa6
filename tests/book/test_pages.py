"""Pages without a notebook: code and tables are what runs, references the paper's, each public name has an entry."""

import dataclasses
import re

import api_reference as reference
import pandas
import pytest
import torch
import yaml
from built_book import ROOT
from pybtex.database import parse_file
from pybtex.plugin import find_plugin
from record import SLOW

import hmmbook
import hmmlib
from hmmbook.evidence.statements import STATEMENTS
from hmmbook.experiments.labels import LABEL_RULES, draw_mu, draw_task
from hmmbook.experiments.results import published
from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.store import BEYOND
from hmmbook.figures.figure_3 import LEFT, RIGHT
from hmmbook.studies.published_curve import groups

BOOK = ROOT / "book"
FILES = [*BOOK.glob("*.md"), *ROOT.glob("notebooks/*.md")]
PAGES = "\n".join(path.read_text() for path in FILES)
PROTOCOL = (BOOK / "protocol-and-code.md").read_text()
PRESETS = ["paper", "released-code", "gpu", "laptop", "quick"]
"""The columns of the protocol's tables of presets, behind three others."""


# Presets


def as_value(text: str) -> float | str:
    """Read a value in a table: a number, or a word in backticks."""
    return text.strip("`") if text.startswith("`") else float(text)


def fields_of_presets() -> list[tuple[str, str, float | str]]:
    """Read field, preset and value, as often as the protocol's tables of presets name them."""
    entries = []
    for table in re.findall(r"(?:^\|.*\n)+", PROTOCOL, re.MULTILINE):
        head, _, *lines = table.splitlines()
        if not head.endswith("| `paper` | `released-code` | `gpu` | `laptop` | `quick` |"):
            continue
        for line in lines:
            row = line.strip("|").split(" | ")
            fields = re.findall(r"`([a-z_]+)`", row[0])
            for preset, cell in zip(PRESETS, row[3:], strict=True):
                for field, text in zip(fields, cell.strip().split(", "), strict=True):
                    entries.append((field, preset, as_value(text)))
    return entries


def test_the_protocol_has_every_field_in_one_row_with_the_values_of_the_presets():
    entries = fields_of_presets()
    assert entries
    places = set()
    for field, preset, value in entries:
        assert value == getattr(TrialSpec(preset), field), (field, preset)
        places.add((field, preset))
    assert len(places) == len(entries), "no field stands in two rows"
    fields = {field.name for field in dataclasses.fields(TrialSpec)}
    assert {field for field, _ in places} == fields - {"preset", "seed", "n_states", "n_memory", "own"}


@pytest.mark.parametrize("preset", ["smoke", "quick", "laptop", "gpu"])
def test_the_table_of_presets_has_their_sizes(preset):
    spec = TrialSpec(preset)
    layers = "1 layer" if spec.layers == 1 else f"{spec.layers} layers"
    network = f"{layers}, {spec.width} wide"
    texts = f"pretraining on {spec.steps} batches of {spec.batch} sequences of {spec.length}"
    assert f"| `{preset}` | {network} | tasks of {spec.task_length} tokens, {texts} |" in PAGES


# Results

TUNED = "tuning_batch=8 head_rate=0.01 prompt_rate=0.01"
WITH_EFFECT = [
    "masked=0.05",
    "length=192 task_length=129",
    "dropout=0.1",
    "labels=stepped",
    "steps=1600 learning_rate=0.001 muon_rate=0.0",
]
WITHOUT_EFFECT = [
    "documents=53 document_length=10240",
    "specials=5",
    "masking=bert",
    "places=repeated",
    "weights=shared",
]


def pairs_of_means(panel: str, size: int) -> list[tuple]:
    """Give the published and our mean, with their intervals, of each series of a panel at one size."""
    series_columns, seeds = {"left": (LEFT, 20), "right": (RIGHT, 5)}[panel]
    trials = hmmbook.results("quick").query("changes == ''")
    trials = trials[(trials["size"] == size) & (trials.seed < seeds)]
    pairs = []
    for series, column in series_columns.items():
        theirs = published(panel)[series][size]
        has_memory = series.startswith("memory")
        ours = hmmbook.mean_ci(trials[(trials.n_memory > 1) == has_memory][column])
        pairs.append((theirs, ours))
    return pairs


def as_row(title: str, pairs: list[tuple]) -> str:
    """Write a row of the protocol's tables of results, where intervals have no signs of percent."""
    cells = [title]
    for pair in pairs:
        cells += map(str, pair)
    return re.sub(r"%(?=[],])", "", f"| {' | '.join(cells)} |\n")


def gaps(pairs: list[tuple]) -> list[float]:
    """Give how many points our mean of each series is above the published one."""
    differences = []
    for theirs, ours in pairs:
        differences.append(100 * (ours.mean - theirs.mean))
    return differences


@pytest.mark.parametrize("size", published("left").dropna().index)
def test_the_left_panels_means_are_as_stored_and_beyond_8_states_above_the_published_ones(size):
    pairs = pairs_of_means("left", size)
    assert as_row(f"{size} states", pairs) in PROTOCOL
    head_gap, prompt_gap = gaps(pairs)
    if size < 10:
        assert abs(head_gap) < 3
        assert abs(prompt_gap) < 3
    else:
        assert 5 < head_gap < 21.5
        assert 5 < prompt_gap < 21.5


@pytest.mark.parametrize("size", published("right").dropna().index)
def test_the_right_panels_means_are_as_stored_and_without_a_memory_above_the_published_ones(size):
    pairs = pairs_of_means("right", size)
    assert as_row(f"size {size}", pairs) in PROTOCOL
    memory_gap, vanilla_gap = gaps(pairs)
    assert abs(memory_gap) < 3
    assert 3 <= round(vanilla_gap) <= 16
    _, (vanilla_published, vanilla_ours) = pairs
    assert max(vanilla_published.low, vanilla_ours.low) < min(vanilla_published.high, vanilla_ours.high)


@pytest.mark.parametrize("change", WITH_EFFECT + WITHOUT_EFFECT)
def test_what_a_change_does_to_prompts_at_30_states_is_as_the_protocol_says(change):
    trials = hmmbook.results("quick", BEYOND).query("n_states == 30 and n_memory == 1").set_index("seed")
    usual = trials[trials.changes == TUNED].prompt_accuracy.loc[:9]
    changed = trials[trials.changes == f"{change} {TUNED}"].prompt_accuracy
    points = 100 * (changed - usual)
    if change in WITH_EFFECT:
        assert f"| {hmmbook.mean_ci(points, share=False):+.1f}" in PROTOCOL
    else:
        assert abs(points.mean()) < 1


def mean_cost(by_change: dict[str, pandas.DataFrame], name: str) -> float:
    """Give how many points a change costs prompts on the ten chains, in the mean."""
    changed = by_change[name].prompt_accuracy
    unchanged = by_change["ours"].prompt_accuracy.loc[changed.index]
    return 100 * (unchanged - changed).mean()


def test_several_changes_cost_15_and_22_points_and_their_single_costs_add_up_to_12_and_13():
    by_change = groups.by_change(hmmbook.results("quick", BEYOND))
    costs = {change.name: mean_cost(by_change, change.name) for change in groups.CHANGES}
    together = {name: costs.pop(name) for name in groups.SEVERAL_AT_ONCE}
    adamw = costs.pop("AdamW, 1,600 steps")

    assert round(costs["5% masked"] + adamw) == 12
    assert round(together["5% masked, AdamW"]) == 15
    assert len(costs) == 9
    assert round(sum(costs.values())) == 13
    assert round(together["nine changes"]) == 22


def test_after_800_steps_prompts_tuned_as_in_quick_are_half_a_point_below_the_baseline():
    by_tuning = groups.by_tuning(hmmbook.results("quick", BEYOND))
    as_in_quick = groups.at(30, by_tuning["as quick: 0.1, batches of 128, 5 passes"]).prompt_accuracy
    baseline = groups.at(30, by_tuning["0.01, batches of 8, 5 passes"]).prompt_accuracy

    assert len(as_in_quick) == len(baseline) == 20
    assert round(100 * (as_in_quick.mean() - baseline.mean()), 1) == -0.5


# Tasks


def share_with_one_class(model, n_states: int, places: str, seed: int) -> float:
    """Draw 200 tasks on 1000 texts, and give the share of tasks for which all texts have one label."""
    beliefs = draw_task(model, 129, (1000, 0, 0), seed).posteriors
    generator = torch.Generator().manual_seed(seed)
    tasks = torch.stack([draw_mu(n_states, generator, places) for _ in range(200)])
    labels = beliefs @ tasks.to(beliefs).T >= 0
    has_one_class = labels.all(0) | ~labels.any(0)
    return has_one_class.double().mean().item()


CELLS = [("H", 4), ("H", 10), ("H", 30), ("M", 2), ("M", 7)]


@pytest.mark.parametrize(("letter", "n"), CELLS if SLOW else CELLS[:1])
def test_as_many_draws_of_a_task_have_one_class_as_the_protocol_says(letter, n):
    shares = []
    for places in ("distinct", "repeated"):
        total = 0.0
        for seed in range(20):
            model = hmmlib.random_hmm(n, 10, seed) if letter == "H" else hmmlib.random_memory_hmm(n, 4, 10, seed)
            total += share_with_one_class(model, n, places, seed)
        shares.append(f"{total / 20:.0%}")
    assert f"| $\\lvert\\mathcal {letter}\\rvert = {n}$ | {' | '.join(shares)} |\n" in PROTOCOL


@pytest.mark.parametrize("n", (4, 8, 10, 15, 25, 30) if SLOW else (4,))
def test_labels_of_the_scripts_are_as_near_to_those_of_section_3_1_as_the_protocol_says(n):
    assert "In 120 random models with 1000 texts each, the two beliefs are at most 0.022 apart" in PROTOCOL
    other_labels = 0
    for seed in range(20):
        model = hmmlib.random_hmm(n, 10, seed)
        task = draw_task(model, 129, (1000, 0, 0), seed, "before")
        stepped = LABEL_RULES["stepped"].posterior(model, task.tokens[:, 1:])
        distances = (stepped - task.posteriors).abs().sum(1) / 2
        assert distances.max() < 0.0225
        labels = stepped.to(task.mu) @ task.mu >= 0
        other_labels += (labels != task.labels).sum().item()
    assert other_labels < 20, "one label in 1000"


# References


def test_references_are_numbered_as_the_papers():
    assert ':filter: keywords % "paper-"\n:style: plain\n' in PAGES
    papers = []
    for entry in parse_file(BOOK / "references.bib", "bibtex").entries.values():
        if entry.fields.get("keywords", "").startswith("paper-"):
            papers.append(entry)
    listed = find_plugin("pybtex.style.formatting", "plain")().sort(papers)
    assert [entry.fields["keywords"] for entry in listed] == [f"paper-{number:02}" for number in range(1, 42)]


def test_the_companion_is_cited_as_its_metadata_are():
    metadata = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    citation = dict(re.findall(r"^  (\w+) += \{(.+)\},?$", PAGES, re.MULTILINE))
    assert citation["version"] == hmmlib.__version__
    assert citation["version"] == metadata["version"]
    assert citation["url"] == metadata["repository-code"]


def test_every_name_at_a_root_has_one_entry_on_a_page():
    names = []
    for page in BOOK.glob("api*.md"):
        entry = r"^\.\. (?:auto(?:function|class|exception|method)|py:data):: (\S+)$"
        names += re.findall(entry, page.read_text(), re.MULTILINE)
    assert len(names) == len(set(names))
    for package in (hmmlib, hmmbook):
        assert {f"{package.__name__}.{name}" for name in package.__all__} <= set(names)


def test_a_name_that_constructs_a_statement_and_the_statement_lead_to_each_other():
    known = {statement.name for statement in STATEMENTS}
    statements = set()
    for name in hmmlib.__all__:
        statement = reference.statement_of(name)
        if statement:
            statements.add(statement)
            assert name in reference.CONSTRUCTS or reference.function_of(statement) == name
    assert statements
    assert statements <= known
