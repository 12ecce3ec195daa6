"""Pages without a notebook: code and tables are what runs, references the paper's, each public name has an entry."""

import dataclasses
import re

import api_reference as reference
import pytest
import torch
import yaml
from built_book import ROOT
from companion.evidence.statements import STATEMENTS
from companion.figures.figure_3 import LEFT, RIGHT
from pybtex.database import parse_file
from pybtex.plugin import find_plugin
from record import SLOW

import hmmlib
from hmmlib.experiments.labels import LABEL_RULES, draw_mu, draw_task
from hmmlib.experiments.results import published
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import BEYOND

BOOK = ROOT / "book"
PAGES = "\n".join(path.read_text() for folder in ("book", "notebooks") for path in (ROOT / folder).glob("*.md"))
PROTOCOL = (BOOK / "protocol-and-code.md").read_text()
COLUMNS = ["paper", "released-code", "gpu", "laptop", "quick"]


def values(page: str) -> list[tuple[str, str, float | str]]:
    """Field, preset and value, as often as the tables of presets name them."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        header, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines())
        for row in rows if [name.strip("`") for name in header[3:]] == COLUMNS else ():
            fields = re.findall(r"`([a-z_]+)`", row[0])
            for preset, cell in zip(COLUMNS, row[3:], strict=True):
                parts = [part.strip("`") if part.startswith("`") else float(part) for part in cell.split(", ")]
                found += [(name, preset, value) for name, value in zip(fields, parts, strict=True)]
    return found


def test_the_protocol_has_every_field_in_one_row_with_the_values_of_the_presets():
    found = values(PROTOCOL)
    named = [(name, preset) for name, preset, _ in found]
    fields = {field.name for field in dataclasses.fields(TrialSpec)}
    assert len(named) == len(set(named))
    assert {name for name, _ in named} == fields - {"preset", "seed", "n_states", "n_memory", "own"}
    assert [value for *_, value in found] == [getattr(TrialSpec(preset), name) for name, preset in named]


def test_tables_of_results_and_of_presets_have_what_is_stored_and_what_runs():
    usual = hmmlib.results("quick").query("changes == ''")
    for panel, trials, columns, name in (("left", 20, LEFT, "{} states"), ("right", 5, RIGHT, "size {}")):
        theirs, drawn = published(panel).dropna(), usual[usual.seed < trials]
        for size in theirs.index:
            cells = []
            for series, column in columns.items():
                chosen = drawn[(drawn["size"] == size) & ((drawn.n_memory > 1) == series.startswith("memory"))]
                cells += [theirs[series][size], hmmlib.mean_ci(chosen[column])]
            assert re.sub(r"%(?=[],])", "", f"| {name.format(size)} | {' | '.join(map(str, cells))} |\n") in PROTOCOL
            gaps = [100 * (ours.mean - one.mean) for one, ours in zip(cells[::2], cells[1::2], strict=True)]
            assert panel == "left" or abs(gaps[0]) < 3 <= round(gaps[1]) <= 16
            assert panel == "right" or (max(map(abs, gaps)) < 3 if size < 10 else 5 < min(gaps) <= max(gaps) < 21.5)
    tuned = "tuning_batch=8 head_rate=0.01 prompt_rate=0.01"
    stored = hmmlib.results("quick", BEYOND).query("n_states == 30 and n_memory == 1").set_index("seed")
    base = stored[stored.changes == tuned].prompt_accuracy.loc[:9]
    alone = "masked=0.05", "length=192 task_length=129", "dropout=0.1", "labels=stepped"
    null = "documents=53 document_length=10240", "specials=5", "masking=bert", "places=repeated", "weights=shared"
    for change in (*alone, "steps=1600 learning_rate=0.001 muon_rate=0.0", *null):
        points = 100 * (stored[stored.changes == f"{change} {tuned}"].prompt_accuracy - base)
        assert abs(points.mean()) < 1 if change in null else f"| {hmmlib.mean_ci(points, share=False):+.1f}" in PROTOCOL
    for name in ("smoke", "quick", "laptop", "gpu"):
        one = TrialSpec(name)
        sizes = f"{one.layers} layer{'s' * (one.layers > 1)}, {one.width} wide | tasks of {one.task_length} tokens"
        texts = f"pretraining on {one.steps} batches of {one.batch} sequences of {one.length}"
        assert f"| `{name}` | {sizes}, {texts} |" in PAGES


@pytest.mark.parametrize(("letter", "n"), [("H", 4), ("H", 10), ("H", 30), ("M", 2), ("M", 7)][: 5 if SLOW else 1])
def test_as_many_draws_of_a_task_have_one_class_as_the_protocol_says(letter, n):
    cells = []
    for places in ("distinct", "repeated"):
        alike = 0
        for k in range(20):
            model = hmmlib.random_hmm(n, 10, k) if letter == "H" else hmmlib.random_memory_hmm(n, 4, 10, k)
            beliefs, draw = draw_task(model, 129, (1000, 0, 0), k).posteriors, torch.Generator().manual_seed(k)
            labels = beliefs @ torch.stack([draw_mu(n, draw, places) for _ in range(200)]).to(beliefs).T >= 0
            alike += (labels.all(0) | ~labels.any(0)).sum().item()
        cells.append(f"{alike / 4000:.0%}")
    assert f"| $\\lvert\\mathcal {letter}\\rvert = {n}$ | {' | '.join(cells)} |\n" in PROTOCOL


def test_labels_of_the_scripts_are_as_near_to_those_of_section_3_1_as_the_protocol_says():
    apart, other = [], 0
    for n, k in ((n, k) for n in ((4, 8, 10, 15, 25, 30) if SLOW else (4,)) for k in range(20)):
        model = hmmlib.random_hmm(n, 10, k)
        task = draw_task(model, 129, (1000, 0, 0), k, "before")
        stepped = LABEL_RULES["stepped"].posterior(model, task.tokens[:, 1:])
        apart.append((stepped - task.posteriors).abs().sum(1).max().item() / 2)
        other += ((stepped.to(task.mu) @ task.mu >= 0) != task.labels).sum().item()
    assert "at most 0.022 apart in total variation, in 120 random models with 1000 texts each" in PROTOCOL
    assert max(apart) < 0.0225
    assert other < len(apart)  # one label in 1000


def test_references_are_numbered_as_the_papers_and_the_companion_is_cited_as_its_metadata_are():
    entries = parse_file(BOOK / "references.bib", "bibtex").entries
    papers = [entry for entry in entries.values() if entry.fields.get("keywords", "").startswith("paper-")]
    assert ':filter: keywords % "paper-"\n:style: plain\n' in PAGES
    listed = find_plugin("pybtex.style.formatting", "plain")().sort(papers)
    assert [entry.fields["keywords"] for entry in listed] == [f"paper-{number:02}" for number in range(1, 42)]
    metadata = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    ours = dict(re.findall(r"^  (\w+) += \{(.+)\},?$", PAGES, re.MULTILINE))
    expected = hmmlib.__version__, metadata["version"], metadata["repository-code"]
    assert (ours["version"], ours["version"], ours["url"]) == expected


def test_every_name_at_the_root_has_one_entry_on_a_page_and_its_statement_leads_back_to_it():
    listed = r"^\.\. (?:auto(?:function|class|exception|method)|py:data):: hmmlib\.(\S+)$"
    names = [name for page in BOOK.glob("api*.md") for name in re.findall(listed, page.read_text(), re.MULTILINE)]
    assert len(names) == len(set(names))
    assert set(hmmlib.__all__) <= set(names)
    leading = {name: found for name in hmmlib.__all__ if (found := reference.statement_of(name))}
    assert set() < {*leading.values()} <= {known.name for known in STATEMENTS}
    for name, statement in leading.items():
        assert name in reference.CONSTRUCTS or reference.function_of(statement) == name
