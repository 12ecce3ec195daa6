"""The book's own Sphinx extensions: formulas, pictures of other pages, links, times, the ledger's sentences."""

import json
from itertools import count
from types import SimpleNamespace

import cards
import ledger_tables as ledger
import mathematics
import page_facts
import pictures
import pytest
from bs4 import BeautifulSoup
from companion.evidence.statements import STATEMENTS
from companion.figures.interactive import Moving
from docutils import nodes


def test_formulas_become_drawings_with_their_glyphs_and_a_typesetter_that_dies_is_an_error():
    typesetter = mathematics.Typesetter({"P": r"\mathrm{P}"})
    drawn = typesetter.typeset(r"\bar G_i(x) = \P[X_i]")
    assert "http" not in drawn
    soup = BeautifulSoup(drawn, "html.parser")
    assert soup.find("mjx-assistive-mml").get_text().startswith("G¯i(x)=P[Xi]")
    outlines = BeautifulSoup(typesetter.glyphs(drawn), "html.parser")
    assert {path["id"] for path in outlines.find_all("path")} == {use["href"][1:] for use in soup.find_all("use")}
    assert all("merror" in typesetter.typeset(wrong) for wrong in (r"\frac{1}{", r"\suppp(x)"))
    assert "<text" not in typesetter.typeset(r"\mathbb 1(x)"), "the indicator does not depend on the reader's fonts"
    typesetter.process.kill()
    typesetter.process.wait()
    with pytest.raises(RuntimeError, match="the typesetter stopped with exit code"):
        typesetter.typeset("x")
    typesetter.close()


def test_a_picture_of_another_page_is_found_by_what_it_shows_or_else_there_is_a_warning(tmp_path, monkeypatch):
    warned, numbers = [], count()
    monkeypatch.setattr(pictures.log, "warning", lambda message, *facts, location: warned.append(message % facts))
    monkeypatch.setattr(pictures.PictureFrom, "get_location", lambda self: "here")
    env = SimpleNamespace(srcdir=tmp_path, note_dependency=lambda _: None, new_serialno=lambda _: next(numbers))
    state = SimpleNamespace(document=SimpleNamespace(settings=SimpleNamespace(env=env)))

    def made(begins: str, text: str, options: dict) -> list[str]:
        (tmp_path / "one.ipynb").write_text(text)
        given = ["picture-from", ["one.ipynb"], options, [begins], 1, 0, "", state, SimpleNamespace(reporter=None)]
        return [picture.astext() for picture in pictures.PictureFrom(*given).run()]

    def cell(alt: str, **data) -> dict:
        return {"metadata": {"mystnb": {"image": {"alt": alt}}}, "outputs": [{"text": "x"}, {"data": data}]}

    still, moving = {"image/svg+xml": ["<svg>", "</svg>"]}, Moving("prompt", 1, "A “prompt” & more.")._repr_html_()
    cells = [{"metadata": {}}, cell("Five", **still), cell("Four", **still), cell("", **{"text/html": moving})]
    every = json.dumps({"cells": cells})
    assert ['aria-label="Four"' in picture for picture in made("Fo", every, {})] == [True]
    (shown,) = made("A “prompt” &", every, {"small": None})
    element = BeautifulSoup(shown, "html.parser").find("div", class_="moving")
    assert element["class"] == ["moving", "small"]
    assert f'hmmMoving.kit.start("{element["id"]}", "prompt", 1);' in shown
    assert '"moving-prompt"' not in shown, "the notebook's own name is nowhere left"
    assert warned == []
    none = "no executed notebook (run `make book`)"
    for begins, text, words in (
        ("Six", every, "0 pictures that begin 'Six'"),
        ("F", every, "2 pictures that begin 'F'"),
        ("F", '{"cells": [', none),
        ("F", '{"cells": [{}]}', none),
    ):
        made(begins, text, {})
        assert words in warned.pop()


def test_mentions_of_statements_become_links():
    known = {"Theorem 3.3": ("notebooks/3-hmm", "a"), "Theorem 4.6": ("p", "b"), "Assumption D.5": ("p", "c")}
    for text, links in {
        "by Theorem 3.3, so": ["Theorem 3.3"],
        "Theorems 3.3, 4.5 and 4.6": ["Theorems 3.3", "4.6"],
        "Assumption\u00a0D.5; Theorem 3.33": ["Assumption\u00a0D.5"],
        "Theorem 9.9 is not there, nor Section 3.3": [],
    }.items():
        made = cards.linked(text, known, lambda words, page, anchor: nodes.reference("", words, refuri=page + anchor))
        assert [part.astext() for part in made if isinstance(part, nodes.reference)] == links
        assert not made or "".join(part.astext() for part in made) == text


def test_reading_time_counts_text_and_formulas_but_neither_code_nor_what_is_folded():
    def minutes(*parts):
        document = nodes.document(None, None)
        document += [part.deepcopy() for part in parts]
        return page_facts.reading_minutes(document)

    words, formula = nodes.paragraph("", "", nodes.Text("word " * 900)), nodes.math_block("", "x")
    assert minutes(words, nodes.literal_block("", "word " * 9000), nodes.raw("", "word " * 9000)) == 5
    assert minutes(words, *[formula] * 15) == 7
    assert minutes(words, nodes.section("", nodes.title("", "", nodes.Text("Checks and exercises")), words)) == 5


def entry(name: str = "Lemma D.2", **changes) -> dict:
    """An entry of the ledger that holds, with what is changed."""
    found = dict(name=name, claim="It is so.", instances=300, nontrivial=299, residual=4.4e-16, tolerance=1e-10)
    found |= dict(verdict="holds", printed="holds", grade="holds", corrected="", unneeded="", printed_failures=0)
    found |= dict(broken="Q", control_instances=30, control_fails=17, ours=False, identity=None, patterns=None)
    return found | changes


def ruled(one: dict) -> str:
    return " ".join("".join(getattr(part, "astext", part.__str__)() for part in line) for line in ledger.ruled(one))


def test_rulings_and_evidence_are_whole_sentences():
    one = entry("Assumption 3.1", residual=0.0)  # is no claim that holds or not
    assert ruled(entry(ours=True)) == "holds (a statement of ours)"
    off = entry(grade="false statement", printed="fails", printed_failures=26, corrected="I is larger")
    words = "false statement As printed, it is off in 26 of 300 random models. It holds in this form: I is larger."
    assert ruled(off) == words
    free = entry(unneeded="stationarity: equal supports are enough; Assumption D.5")
    assert ruled(free).endswith("Not needed: stationarity (equal supports are enough), Assumption D.5.")
    assert "never disagrees with ranks in rational numbers, on 300 random models" in ruled(one)
    assert "never" not in ruled(one | {"verdict": "fails"})
    assert ledger.WITNESSES.keys() == {one.name for one in STATEMENTS if one.name.startswith("Assumption")}
    identity = dict(points=2, sizes=[[2, 3], [8, 50]], failures=0)
    assert list(ledger.evidence(entry(identity=identity, patterns=dict(cases=12345, failures=0, size="2 states")))) == [
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
