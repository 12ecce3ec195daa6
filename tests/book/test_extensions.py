"""The book's own Sphinx extensions: formulas, pictures, cards, times, tables of the ledger and of trust, the map."""

import json
import re
from itertools import count
from types import SimpleNamespace

import book_setup
import cards
import ledger_tables as ledger
import mathematics
import page_facts
import pictures
import pytest
import works_map
from bs4 import BeautifulSoup
from built_book import ROOT
from companion.evidence.statements import STATEMENTS
from companion.figures.interactive import Moving
from docutils import nodes

# Formulas


@pytest.fixture(scope="module")
def typesetter():
    made = mathematics.Typesetter({"P": r"\mathrm{P}"})
    yield made
    made.close()


def test_formulas_become_drawings_with_their_glyphs(typesetter):
    drawn = typesetter.typeset(r"\bar G_i(x) = \P[X_i]")
    soup = BeautifulSoup(drawn, "html.parser")
    assert soup.find("mjx-assistive-mml").get_text().startswith("G¯i(x)=P[Xi]")
    outlines = BeautifulSoup(typesetter.glyphs(drawn), "html.parser")
    assert {path["id"] for path in outlines.find_all("path")} == {use["href"][1:] for use in soup.find_all("use")}
    assert "http" not in drawn
    for wrong in (r"\frac{1}{", r"\suppp(x)"):
        assert "merror" in typesetter.typeset(wrong)
    assert "<text" not in typesetter.typeset(r"\mathbb 1(x)"), "the indicator does not depend on the reader's fonts"
    one = '<span class="math notranslate"><mjx-container><svg></svg></mjx-container></span>'
    kept = mathematics.BEFORE_PUNCTUATION.sub(r"<b>\1\2</b>", f"a {one}, b {one} c")
    assert kept == f"a <b>{one},</b> b {one} c", "punctuation stays with its formula"


def test_a_typesetter_that_dies_is_an_error():
    made = mathematics.Typesetter({})
    made.process.kill()
    made.process.wait()
    with pytest.raises(RuntimeError, match="the typesetter stopped with exit code"):
        made.typeset("x")
    made.close()


# Pictures


@pytest.fixture
def picture_from(tmp_path, monkeypatch):
    """What `picture-from` makes of a notebook's text, and what it warns of."""
    warned = []
    monkeypatch.setattr(pictures.log, "warning", lambda message, *facts, location: warned.append(message % facts))
    monkeypatch.setattr(pictures.PictureFrom, "get_location", lambda self: "here")

    def made(text, begins="Four", **options):
        (tmp_path / "one.ipynb").write_text(text)
        numbers = count()
        env = SimpleNamespace(
            srcdir=tmp_path, note_dependency=lambda path: None, new_serialno=lambda kind: next(numbers)
        )
        state = SimpleNamespace(document=SimpleNamespace(settings=SimpleNamespace(env=env)))
        given = ["picture-from", ["one.ipynb"], options, [begins], 1, 0, "", state, SimpleNamespace(reporter=None)]
        warned.clear()
        return pictures.PictureFrom(*given).run(), list(warned)

    return made


def test_a_picture_of_another_page_is_found_by_its_alternative_text(picture_from):
    def cell(alt, width):
        output = {"data": {"image/svg+xml": [f'<svg width="{width}pt">', "</svg>"]}}
        return {"metadata": {"mystnb": {"image": {"alt": alt}}}, "outputs": [output]}

    both = json.dumps({"cells": [{"metadata": {}}, cell("Five", 5), cell("Four of them", 4)]})
    (picture,), warned = picture_from(both)
    assert warned == []
    assert 'aria-label="Four of them"' in picture.astext()
    assert "5pt" not in picture.astext()
    assert "0 pictures that begin 'Six'" in picture_from(both, "Six")[1][0]
    assert "2 pictures that begin 'F'" in picture_from(both, "F")[1][0]
    for text in ('{"cells": [', "{}", '{"cells": [{}]}', '{"cells": 3}'):
        made, (warning,) = picture_from(text)
        assert made == []
        assert "one.ipynb is no executed notebook (run `make book`)" in warning


def test_a_figure_that_moves_is_shown_on_another_page_under_a_name_of_its_own(picture_from):
    figure = Moving("prompt", {"a": 1}, "Entries of a “prompt” & more.")._repr_html_()
    other = Moving("fake_token", {"a": 1}, "Words.")._repr_html_()
    outputs = [{"data": {"text/html": other}}, {"data": {"text/html": figure.splitlines(keepends=True)}}, {"text": "x"}]
    both = json.dumps({"cells": [{"metadata": {}, "outputs": outputs}]})
    for small in ({}, {"small": None}):
        (shown,), warned = picture_from(both, "Entries of a “prompt” &", **small)
        assert warned == []
        element = BeautifulSoup(shown.astext(), "html.parser").find("div", class_="moving")
        assert element["class"] == ["moving", *small]
        assert f'hmmMoving.kit.start("{element["id"]}", "prompt", {{"a": 1}});' in shown.astext()
        assert '"moving-prompt"' not in shown.astext(), "the notebook's own name is nowhere left"


def test_pictures_have_their_own_ids_and_the_pages_inks():
    svg = (
        '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="3"><metadata>m</metadata><defs>'
        '<style>*{a: b}</style><path id="used"/><path id="unused"/></defs><use xlink:href="#used"/>'
        '<path style="fill: #0072B2; stroke: #22303c" clip-path="url(#used)"/></svg>'
    )
    one, other = pictures.inlined(svg, 'a "b"'), pictures.inlined(svg.replace('"3"', '"4"'), "c")
    for text in (one, other):
        assert not re.search("metadata|style>|unused|xmlns|#0072B2|#22303c", text)
        assert "fill: var(--blue); stroke: var(--ink)" in text
    assert 'role="img" aria-label="a &quot;b&quot;"' in one
    ids = [re.search(r' id="([^"]*)"', text)[1] for text in (one, other)]
    assert ids[0] != ids[1]
    assert one.count(ids[0]) == 3


# Statements: their numbers, and links to them

KNOWN = {"Theorem 3.3": ("notebooks/3-hmm", "a"), "Theorem 4.6": ("p", "b"), "Assumption D.5": ("p", "c")}


def test_mentions_of_statements_become_links():
    for text, links in {
        "by Theorem 3.3, so": ["Theorem 3.3"],
        "Theorems 3.3, 4.5 and 4.6": ["Theorems 3.3", "4.6"],
        "Assumption\u00a0D.5; Theorem 3.33": ["Assumption\u00a0D.5"],
        "Theorem 9.9 is not there, nor Section 3.3": [],
    }.items():
        made = cards.linked(text, KNOWN, lambda words, page, anchor: nodes.reference("", words, refuri=page + anchor))
        assert [part.astext() for part in made if isinstance(part, nodes.reference)] == links
        assert not made or "".join(part.astext() for part in made) == text


def test_labels_carry_the_papers_numbers_and_a_card_stands_on_any_page():
    labels = {"paper-thm-3-3": "3.3", "paper-claim-B-1": "B.1", "paper-eq-b-1": "B.1", "own-remark": None}
    for label, number in labels.items():
        found = book_setup.PAPER_LABEL.match(label)
        assert (found and found["number"].upper().replace("-", ".")) == number
    card = '<div id="a"><p id="b"><a href="x.html">link</a><a class="headerlink" href="#a">#</a></p></div>'
    assert cards.fragment(BeautifulSoup(card, "html.parser").find("div")) == "<div><p>link</p></div>"


# Times


def test_reading_time_counts_text_and_formulas_but_no_code():
    def minutes(*parts):
        document = nodes.document(None, None)
        document += parts
        return page_facts.reading_minutes(document)

    words, formula = nodes.paragraph("", "", nodes.Text("word " * 900)), nodes.math_block("", "x")
    assert minutes(words, nodes.literal_block("", "word " * 9000), nodes.raw("", "word " * 9000)) == 5
    assert minutes(words.deepcopy(), *(formula.deepcopy() for _ in range(15))) == 7
    assert minutes() == 1
    closing = nodes.section("", nodes.title("", "", nodes.Text("Checks and exercises")), words.deepcopy())
    assert minutes(words.deepcopy(), closing) == 5, "what is folded is not counted"
    assert [page_facts.in_words(x) for x in (0.4, 11, 63, 119)] == ["5 s", "10 s", "65 s", "2 minutes"]


def test_a_page_names_its_part_of_the_paper_and_suggests_to_change_a_parameter_of_its_notebook():
    parts = {"3-hmm": "Section 3", "4-1-attention-head": "Section 4.1", "5-1-pretraining": "Section 5", "errata": ""}
    parts |= {"appendix-d-3": "Appendix D.3", "protocol-and-code": "Appendix E"}
    assert {name: page_facts.part_of_the_paper(name) for name in parts} == parts
    for source in (ROOT / "notebooks").glob("*.md"):
        parameter = page_facts.example(ROOT, f"notebooks/{source.stem}").split()[1]
        cell = re.search(r"# Parameters:.*?```", source.read_text(), re.DOTALL)[0]
        assert re.search(rf"^{parameter}: ", cell, re.MULTILINE), source.stem


# The ledger's tables


def entry(name: str = "Lemma D.2", **changes) -> dict:
    """An entry of the ledger that holds, with what is changed."""
    found = dict(name=name, claim="It is so.", instances=300, nontrivial=299, residual=4.4e-16, tolerance=1e-10)
    found |= dict(verdict="holds", printed="holds", grade="holds", corrected="", unneeded="", printed_failures=0)
    found |= dict(broken="Q", control_instances=30, control_fails=17, ours=False, identity=None, patterns=None)
    return found | changes


def ruled(one: dict) -> str:
    return " ".join("".join(getattr(part, "astext", part.__str__)() for part in line) for line in ledger.ruled(one))


def test_rulings_and_evidence_are_whole_sentences():
    assert ruled(entry()) == "holds"
    assert ruled(entry(ours=True)) == "holds (a statement of ours)"
    off = entry(grade="false statement", printed="fails", printed_failures=26, corrected="I is larger")
    words = "false statement As printed, it is off in 26 of 300 random models. It holds in this form: I is larger."
    assert ruled(off) == words
    free = entry(unneeded="stationarity: equal supports are enough; Assumption D.5")
    assert ruled(free).endswith("Not needed: stationarity (equal supports are enough), Assumption D.5.")
    one = entry("Assumption 3.1", residual=0.0)  # is no claim that holds or not
    assert ledger.ruling(one) == ledger.CONDITION
    assert "never disagrees with ranks in rational numbers, on 300 random models" in ruled(one)
    assert "never" not in ruled(one | {"verdict": "fails"})
    assumptions = {statement.name for statement in STATEMENTS if statement.name.startswith("Assumption")}
    assert ledger.WITNESSES.keys() == assumptions
    identity = dict(points=2, sizes=[[2, 3], [8, 50]], failures=0)
    exact = entry(identity=identity, patterns=dict(cases=12345, failures=0, size="2 states"))
    assert list(ledger.evidence(exact)) == [
        "Floating point: 300 random models, 299 of them not trivial; residual 4e-16, bound 1e-10.",
        "Exact arithmetic: no difference at 4 rational points, up to 8 states and length 50.",
        "All patterns of zeros: 12,345 cases, all hold (2 states).",
        "Control: without “Q” the conclusion fails in 17 of 30.",
    ]
    assert "residual not a number" in next(ledger.evidence(entry(residual=None)))


def test_hypotheses_are_counted_by_what_is_not_needed_and_not_by_what_is_enough():
    free = [
        entry("Claim B.1", unneeded="ergodicity: full support of P[H₀] is enough"),
        entry("Claim D.12", unneeded="stationarity: equal supports are enough; Assumption D.5"),
    ]
    found = {name: [one["name"] for one in ledger.without(name, free)] for name in ledger.HYPOTHESES}
    wanted = {"ergodicity": ["Claim B.1"], "stationarity": ["Claim D.12"], "Assumption D.5": ["Claim D.12"]}
    assert {name: statements for name, statements in found.items() if statements} == wanted
    clauses = [clause for statement in STATEMENTS for clause in statement.unneeded.split(";") if clause]
    assert all(any(name in clause.split(": ")[0] for name in ledger.HYPOTHESES) for clause in clauses)


def test_only_cells_of_stacked_tables_carry_their_columns_names():
    def line(*texts):
        return nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in texts))

    for classes, wanted in ((["stacked"], ["letter", "what it is"]), (["other"], [None, None])):
        head, body = nodes.thead("", line("letter", "what it is")), nodes.tbody("", line("x", "input"))
        document = nodes.document(None, None)
        document += nodes.table("", nodes.tgroup("", head, body, cols=2), classes=classes)
        ledger.label_cells(None, document)
        assert [one.get("label") for one in body.findall(nodes.entry)] == wanted
        assert not any(one.get("label") for one in head.findall(nodes.entry))


# The map of later works

WORKS = {"one2022a": ("One", "2022"), "two2023b": ("Two and Three", "2023"), "many2024c": ("Många et al.", "2024")}
PAGE = """# T\n\nStart: {cite:t}`one2022a`.\n\n## What now?\n\n- {cite:t}`one2022a` and\n- {cite:t}`two2023b`\n
## And <then>?\n\n- {cite:t}`many2024c`\n"""


def test_the_map_has_each_question_and_its_works():
    found = works_map.questions(PAGE)
    drawn = works_map.drawn(found, WORKS, ["one2022a"])
    assert '<a href="#what-now">What now?</a>' in drawn
    assert '<a href="#and-then">And &lt;then&gt;?</a>' in drawn
    assert '<li class="start">One 2022</li><li>Two and Three 2023</li>' in drawn
    assert "<li>Många et al. 2024</li>" in drawn
    assert [drawn.count(f"grid-area: {place}") for place in "abcm"] == [1, 1, 1, 1]
