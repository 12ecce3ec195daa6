"""Pages without a notebook: code and tables of settings are what runs; references, glossary, and an entry for each
public name."""

import dataclasses
import re
import subprocess
import sys

import api_reference as reference
import pytest
import yaml
from built_book import ROOT, chapters
from companion.evidence.statements import STATEMENTS
from pybtex.database import Entry, parse_file
from pybtex.plugin import find_plugin
from record import slow

import hmmlib
from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.specs import TrialSpec

pytestmark = pytest.mark.outside

BOOK = ROOT / "book"
PAGES = [path.read_text() for folder in ("book", "notebooks") for path in (ROOT / folder).glob("*.md")]

# The page "Your own model"

BLOCKS = re.findall(r"```python\n(.*?)```", (BOOK / "your-own-model.md").read_text(), re.DOTALL)


def expected(code: str) -> list[str]:
    return re.findall(r"^print\(.*?\)  # (.*)$", code, re.MULTILINE)


def printed(blocks: list[str]) -> list[list[str]]:
    """What each block prints, line by line, in one session, where a table that may be read either way is an error."""
    start = "import warnings, hmmlib\nwarnings.simplefilter('error', hmmlib.UnclearOrientation)\n"
    code = start + "print('end of block')\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [block.splitlines() for block in done.stdout.split("end of block\n")]


@slow
def test_the_code_runs_and_prints_what_it_says():
    """The quick one leaves out what needs another library."""
    for peer in ("hmmlearn", "dynamax"):
        pytest.importorskip(peer)
    assert len(BLOCKS) >= 10
    assert printed(BLOCKS) == [expected(code) for code in BLOCKS]


def test_the_code_on_hmmlib_alone_prints_what_it_says_and_wrong_code_does_not():
    own = [code for code in BLOCKS if not re.search("hmmlearn|dynamax", code)]
    assert len(own) >= 8
    by_rows = next(code for code in own if "HMM.from_rows(startprob" in code)
    rows, columns = "HMM.from_rows(startprob, transmat, emissionprob)", "HMM(transmat.T, emissionprob.T, startprob)"
    wrong = by_rows.replace(rows, columns)  # the control: the transposed arrays taken for the same model
    *found, other = printed([*own, wrong])
    assert found == [expected(code) for code in own]
    assert other != expected(wrong)


# The page on protocol and code

PROTOCOL = (BOOK / "protocol-and-code.md").read_text()
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
    named = [(name, preset) for name, preset, _ in values(PROTOCOL)]
    assert len(named) == len(set(named))
    assert {name for name, _ in named} == FIELDS
    assert wrong(PROTOCOL) == []
    old, new = "| 37500 | 37500 | 3000 |", "| 37500 | 37501 | 3000 |"
    assert PROTOCOL.count(old) == 1
    assert wrong(PROTOCOL.replace(old, new)) == [("steps", "released-code", 37501)], "a control"


def test_what_the_released_code_takes_over_is_what_differs_from_the_paper():
    sentence = re.search(r"`released-code` takes over (.+?)\. Not these", PROTOCOL)[1]
    differs = {name for name, value in PRESETS["released-code"].items() if value != PRESETS["paper"][name]}
    assert set(re.findall(r"`([a-z_]+)`", sentence)) == differs


# References

ENTRIES = dict(parse_file(BOOK / "references.bib", "bibtex").entries)


def number(entry: Entry) -> int | None:
    """The paper's number of an entry, None for one that the paper does not cite."""
    found = re.fullmatch(r"paper-(\d\d)", entry.fields.get("keywords", ""))
    return int(found[1]) if found else None


def cited(text: str) -> set[str]:
    """Keys of all citations in MyST text."""
    keys = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
    return {key.strip() for part in keys for key in part.split(",")}


def test_the_list_of_references_is_numbered_as_the_papers():
    """It is sorted by the style `plain`, and numbered in that order."""
    assert any(':filter: keywords % "paper-"\n:style: plain\n' in page for page in PAGES)
    style = find_plugin("pybtex.style.formatting", "plain")()
    listed = style.sort([entry for entry in ENTRIES.values() if number(entry)])
    assert [number(entry) for entry in listed] == list(range(1, 42))


def test_every_citation_has_an_entry_and_every_entry_a_citation_a_year_and_a_place():
    used = set().union(*map(cited, PAGES))
    assert used <= set(ENTRIES)
    assert {key for key, entry in ENTRIES.items() if not number(entry)} <= used
    for key, entry in ENTRIES.items():
        places = {"booktitle", "journal", "publisher", "howpublished", "eprint"} & set(entry.fields)
        assert places or key == "jordan2024muon", key
        assert re.fullmatch(r"\d{4}\.\d{4,5}", entry.fields.get("eprint", "0000.0000")), key
        assert entry.fields["year"] in key or number(entry), key


def test_the_glossary_has_each_term_once_and_names_where_it_comes_from():
    (body,) = re.findall(r"^```\{glossary\}\n:sorted:\n(.*?)^```$", "".join(PAGES), re.MULTILINE | re.DOTALL)
    terms = re.findall(r"^(\S.*)\n  (\S.*)$", body, re.MULTILINE)
    names = [name for name, _ in terms]
    assert names == sorted(set(names)) != []
    for name, meaning in terms:
        targets = re.findall(r"\]\(([^)]+)\)", meaning)
        assert targets, name
        assert all((BOOK / target).is_file() for target in targets), (name, targets)


def test_the_companion_is_cited_as_its_metadata_are():
    metadata = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    fields = dict(re.findall(r"^  (\w+) += \{(.+)\},?$", "".join(PAGES), re.MULTILINE))
    assert re.sub(r"[{}]", "", fields["title"]) == metadata["title"]
    assert fields["version"] == metadata["version"] == hmmlib.__version__
    assert fields["url"] == metadata["repository-code"]
    assert fields["year"] == str(metadata["date-released"])[:4]


# The reference of hmmlib

LISTED = re.compile(r"^\.\. (?:auto(?:function|class|exception|method)|py:data):: hmmlib\.(\S+)$", re.MULTILINE)


def test_every_name_at_the_root_has_one_entry_on_a_page_of_the_book():
    pages = sorted(BOOK.glob("api*.md"))
    names = [name for page in pages for name in LISTED.findall(page.read_text())]
    assert len(names) == len(set(names))
    assert set(hmmlib.__all__) <= set(names)
    assert {f"book/{page.stem}" for page in pages} <= set(chapters())


def test_a_statement_and_its_function_lead_to_each_other_and_plain_text_is_marked_up():
    for name in filter(reference.statement_of, hmmlib.__all__):
        statement = reference.statement_of(name)
        assert statement in {known.name for known in STATEMENTS}
        assert name in reference.CONSTRUCTS or reference.function_of(statement) == name
    assert any(map(reference.statement_of, hmmlib.__all__))
    assert reference.statement_of("theorem_9_9") is reference.statement_of("posterior") is None
    assert reference.function_of("Lemma D.13") is None
    assert reference.marked_up("P[X_i | X_-i], H* and `n_tokens`; `posterior`, (|S*|, M)") == (
        r"P[X_i \| X\_-i], H\* and ``n_tokens``; :py:obj:`~hmmlib.posterior`, (\|S\*\|, M)"
    )
