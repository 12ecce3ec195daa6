"""What builds the pages one looks things up in: the ledger's tables, the map of later works, cells that name their columns."""

import json
import re

import cell_labels
import ledger_tables as ledger
import pytest
import works_map
from built_book import ROOT
from companion.evidence.statements import GRADES, STATEMENTS
from docutils import nodes
from pybtex.database import parse_string


def entry(name: str = "Lemma D.2", **changes) -> dict:
    """An entry of the ledger that holds, with what is changed."""
    found = dict(name=name, claim="It is so.", instances=300, nontrivial=299, residual=4.4e-16, tolerance=1e-10)
    found |= dict(verdict="holds", printed="holds", grade="holds", corrected="", unneeded="", printed_failures=0)
    found |= dict(broken="Q", control_instances=30, control_fails=17, ours=False, identity=None, patterns=None)
    return found | changes


def ruled(one: dict) -> str:
    return " ".join("".join(part.astext() for part in line) for line in ledger.LedgerTable.ruled(one))


def test_an_assumption_is_no_claim_that_holds_or_not():
    one = entry("Assumption 3.1", residual=0.0)
    assert ledger.ruling(one) == ledger.CONDITION
    assert "holds" not in ruled(one)
    assert "never disagrees with ranks in rational numbers, on 300 random models" in ruled(one)
    assert "the model is refused in 17 of 30" in " ".join(ledger.evidence(one))
    assert "never" not in ruled(one | {"verdict": "fails"})
    assumptions = {statement.name for statement in STATEMENTS if statement.name.startswith("Assumption")}
    assert ledger.WITNESSES.keys() == assumptions


def test_a_ruling_is_told_in_sentences():
    assert ruled(entry()) == "holds"
    assert ruled(entry(ours=True)) == "holds (a statement of ours)"
    off = entry(grade="false statement", printed="fails", printed_failures=26, corrected="I is larger")
    assert (
        ruled(off)
        == "false statement As printed, it is off in 26 of 300 random models. It holds in this form: I is larger."
    )
    free = entry(unneeded="stationarity: equal supports are enough; Assumption D.5")
    assert ruled(free).endswith("Not needed: stationarity (equal supports are enough), Assumption D.5.")


def test_evidence_is_told_in_sentences():
    exact = entry(
        identity=dict(points=2, sizes=[[2, 3], [8, 50]], failures=0),
        patterns=dict(cases=12345, failures=0, size="2 states"),
    )
    assert list(ledger.evidence(exact)) == [
        "Floating point: 300 random models, 299 of them not trivial; residual 4e-16, bound 1e-10.",
        "Exact arithmetic: no difference at 4 rational points, up to 8 states and length 50.",
        "All patterns of zeros: 12,345 cases, all hold (2 states).",
        "Control: without “Q” the conclusion fails in 17 of 30.",
    ]
    assert "residual not a number" in next(ledger.evidence(entry(residual=None)))
    assert "residual 0," in next(ledger.evidence(entry(residual=0.0)))


def test_hypotheses_are_counted_by_what_is_not_needed_and_not_by_what_is_enough():
    free = [
        entry("Claim B.1", unneeded="ergodicity: full support of P[H₀] is enough"),
        entry("Theorem D.6", unneeded="stationarity and regularity, with another prompt"),
        entry("Claim D.12", unneeded="stationarity: equal supports are enough; Assumption D.5"),
        entry("Claim D.3"),
    ]
    found = {name: [one["name"] for one in entries] for name, entries in ledger.hypotheses(free).items()}
    assert found == {
        "regularity": ["Theorem D.6"],
        "ergodicity": ["Claim B.1"],
        "stationarity": ["Theorem D.6", "Claim D.12"],
        "Assumption D.5": ["Claim D.12"],
    }
    with pytest.raises(ValueError, match=r"Claim D\.3: no hypothesis is named in 'patience'"):
        ledger.hypotheses([entry("Claim D.3", unneeded="patience")])
    assert ledger.hypotheses([vars(statement) for statement in STATEMENTS])


def test_the_page_counts_what_the_ledger_has():
    entries = [vars(statement) | {"instances": 7, "ours": statement.ours} for statement in STATEMENTS]
    counts = ledger.counts(entries)
    assert counts["results"] + counts["assumptions"] + counts["ours"] == len(STATEMENTS)
    assert counts == {"results": 22, "assumptions": 7, "ours": 5, "freer": 19, "instances": 7}
    assert {ledger.HOLDS, *ledger.GRADES} == set(GRADES)


def test_the_errata_count_as_the_ledger_does():
    text = (ROOT / "notebooks" / "errata.md").read_text()
    summary = text.split("## All rulings")[0]
    for grade in ledger.GRADES:
        paragraph = next(line for line in summary.splitlines() if grade in line.lower() and line.startswith("- "))
        for statement in STATEMENTS:
            if statement.grade == grade:
                kind, number = statement.name.split()
                label = {"Lemma": "lem", "Claim": "claim", "Proposition": "prop", "Theorem": "thm"}[kind]
                assert f"paper-{label}-{number.replace('.', '-')}`" in paragraph
    gaps = re.search(r"^## Gaps in proofs$(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    assert "There are three" in summary
    assert len(re.findall("^### ", gaps, re.MULTILINE)) == 3


# The map

BIB = """@misc{one2022a, author = {One, Ann}, year = {2022}} @misc{two2023b, author = {Two, A. and Three, B.}, year = {2023}}
@misc{many2024c, author = {Många, A. and Two, B. and Three, C.}, year = {2024}}"""
PAGE = """# T\n\nStart: {cite:t}`one2022a`.\n\n## What now?\n\n- {cite:t}`one2022a` and\n- {cite:t}`two2023b`\n
## And <then>?\n\n- {cite:t}`many2024c`\n"""


def test_the_map_has_each_question_and_its_works():
    found = works_map.questions(PAGE)
    assert found == [("What now?", ["one2022a", "two2023b"]), ("And <then>?", ["many2024c"])]
    drawn = works_map.drawn(found, parse_string(BIB, "bibtex"), ["one2022a"])
    assert '<a href="#what-now">What now?</a>' in drawn
    assert '<a href="#and-then">And &lt;then&gt;?</a>' in drawn
    assert '<li class="start">One 2022</li><li>Two and Three 2023</li>' in drawn
    assert "<li>Många et al. 2024</li>" in drawn
    assert [drawn.count(f"grid-area: {place}") for place in "abcm"] == [1, 1, 1, 1]


def test_the_map_of_the_book_starts_with_three_works_of_three_questions():
    text = (ROOT / "book" / "what-came-after.md").read_text()
    start = next(line for line in text.splitlines() if line.startswith("```{works-map}")).split()[1:]
    homes = [title for title, keys in works_map.questions(text) for key in start if key in keys]
    assert len(start) == len(set(homes)) == 3
    assert all(f"- {{cite:t}}`{key}`" in text.split("\n## ")[0] for key in start)
    assert len(works_map.questions(text)) == 7  # "seven questions"
    assert len(works_map.questions(text)) < len(works_map.PLACES)


# Cells that name their columns


def table(*classes: str) -> nodes.document:
    def line(*texts):
        return nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in texts))

    group = nodes.tgroup("", nodes.thead("", line("letter", "what it is")), nodes.tbody("", line("x", "input")), cols=2)
    document = nodes.document(None, None)
    document += nodes.table("", group, classes=list(classes))
    return document


def test_only_cells_of_stacked_tables_carry_their_columns_names():
    for classes, wanted in ((("stacked",), ["letter", "what it is"]), (("other",), [None, None])):
        document = table(*classes)
        cell_labels.label_cells(None, document)
        assert [one.get("label") for one in next(document.findall(nodes.tbody)).findall(nodes.entry)] == wanted
        assert not any(one.get("label") for one in next(document.findall(nodes.thead)).findall(nodes.entry))


@pytest.mark.skipif(not (ROOT / "build" / "ledger.json").is_file(), reason="no ledger here: run `make book`")
def test_every_row_of_the_ledger_has_a_ruling_and_a_kind():
    entries = json.loads((ROOT / "build" / "ledger.json").read_text())["entries"]
    assert {ledger.ruling(one) for one in entries} == {ledger.HOLDS, *ledger.GRADES, ledger.CONDITION}
    assert {ledger.kind(one) for one in entries} == {"assumption", "theorem", "proposition", "lemma", "claim", "ours"}
