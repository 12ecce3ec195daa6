"""What builds the book: plain Markdown for notebooks, formulas and pictures for pages, links and cards."""

import json
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import cards
import mathematics
import nbformat
import page_facts
import pictures
import portable
import pytest
import yaml
from bs4 import BeautifulSoup
from companion.figures.interactive import Moving
from docutils import nodes

ROOT = Path(__file__).resolve().parents[2]

GITHUB, COLAB = "https://github.com", "https://colab.research.google.com/github"
ADDRESS, BRANCH = f"{GITHUB}/someone/something", "main"


def plain(text: str) -> str:
    return portable.plain(text, ADDRESS, BRANCH)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by {prf:ref}`paper-thm-3-3` and {eq}`paper-eq-B-1`", "by Theorem 3.3 and (B.1)"),
        ("{prf:ref}`paper-asm-d-5`", "Assumption D.5"),
        ("read {cite}`lester2021power`", "read (Lester et al., 2021)"),
        ("a {term}`left inverse`, {term}`heads <head>`", "a left inverse, heads"),
        (r"$\P[X] + \Pr(x)$, $\supp(\mu)$", r"$\mathrm{P}[X] + \Pr(x)$, $\operatorname{supp}(\mu)$"),
        ("$$\nx\n$$ (paper-eq-3-1)", "$$\nx\n\\tag{3.1}\n$$"),
        (":::{dropdown} Solution\n:open:\nYes.\n:::", "<details>\n<summary>Solution</summary>\n\nYes.\n\n</details>"),
        (
            ":::{prf:theorem} A name\n:label: paper-thm-3-3\n\nIt holds.\n:::",
            "> **Theorem 3.3** (A name).\n>\n> It holds.",
        ),
        (":::{prf:proof}\nTrivial.\n:::", "**Proof.** Trivial. ∎"),
        (
            "::::{dropdown} A\n:::{prf:proof}\nB\n:::\n::::",
            "<details>\n<summary>A</summary>\n\n**Proof.** B ∎\n\n</details>",
        ),
        ("[p](../book/notation.md)", f"[p]({ADDRESS}/blob/main/book/notation.md)"),
        (
            "[h](3-hmm.ipynb#x)",
            f"[h]({COLAB}/someone/something/blob/main/notebooks/3-hmm.ipynb#x)",
        ),
    ],
)
def test_markdown_that_any_viewer_shows(text, expected):
    assert plain(text) == expected


def test_what_a_viewer_cannot_show_is_refused():
    with pytest.raises(ValueError, match="not closed: dropdown More"):
        plain(":::{dropdown} More\ntext")
    for text in ("see {doc}`3-hmm`", "by {prf:ref}`the head <paper-thm-3-3>`"):
        with pytest.raises(ValueError, match="a notebook can use the roles prf:ref"):
            plain(text)
    for text in ("```{note}\nthis\n```", "(a-target)=\n## Heading"):
        with pytest.raises(ValueError, match="a notebook can use boxes with colons only"):
            plain(text)


@pytest.mark.parametrize("twin", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_twins_are_plain(twin):
    macros = "|".join(
        yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    )
    for cell in nbformat.read(twin, 4).cells:
        if cell.cell_type == "markdown":
            assert not re.search(
                rf"\{{[a-z:]+\}}`|^:::|\\({macros})(?![A-Za-z])|\(paper-|\]\(\.\.", cell.source, re.MULTILINE
            )


@pytest.fixture(scope="module")
def typesetter():
    made = mathematics.Typesetter({"P": r"\mathrm{P}"})
    yield made
    made.close()


def test_formulas_become_drawings_with_their_glyphs(typesetter):
    drawn = typesetter.typeset(r"\bar G_i(x) = \P[X_i]")
    soup = BeautifulSoup(drawn, "html.parser")
    assert soup.find("mjx-assistive-mml").get_text().startswith("G¯i(x)=P[Xi]")
    used = {use["href"][1:] for use in soup.find_all("use")}
    outlines = BeautifulSoup(typesetter.glyphs(drawn), "html.parser")
    assert {path["id"] for path in outlines.find_all("path")} == used
    assert "http" not in drawn
    assert typesetter.glyphs("<p>no formula</p>") == ""


def test_a_formula_that_is_no_formula_is_marked(typesetter):
    assert "merror" in typesetter.typeset(r"\frac{1}{")
    assert "merror" in typesetter.typeset(r"\suppp(x)")
    assert "merror" not in typesetter.typeset(r"\frac{1}{2}", display=True)


def test_a_typesetter_that_dies_says_so():
    made = mathematics.Typesetter({})
    made.process.kill()
    made.process.wait()
    with pytest.raises(RuntimeError, match="the typesetter stopped with exit code"):
        made.typeset("x")
    made.close()


def test_the_indicator_does_not_depend_on_the_readers_fonts(typesetter):
    assert "<text" not in typesetter.typeset(r"\mathbb 1(x)")
    assert "<text" in typesetter.typeset(r"\mathbb{2}")  # what would happen to a digit that MathJax has no glyph for


def test_punctuation_stays_with_its_formula():
    one = '<span class="math notranslate"><mjx-container><svg></svg></mjx-container></span>'
    assert mathematics.BEFORE_PUNCTUATION.sub(r"<b>\1\2</b>", f"a {one}, b {one} c") == f"a <b>{one},</b> b {one} c"


@pytest.fixture
def of_notebook(tmp_path, monkeypatch):
    """What `picture-from` makes of a notebook's text, and what it warns of."""
    said = []
    monkeypatch.setattr(pictures.log, "warning", lambda message, *facts, location: said.append(message % facts))
    monkeypatch.setattr(pictures.PictureFrom, "get_location", lambda self: "here")

    def made(text, begins="Four", **options):
        (tmp_path / "one.ipynb").write_text(text)
        numbers = count()
        env = SimpleNamespace(
            srcdir=tmp_path, note_dependency=lambda path: None, new_serialno=lambda kind: next(numbers)
        )
        state = SimpleNamespace(document=SimpleNamespace(settings=SimpleNamespace(env=env)))
        machine = SimpleNamespace(reporter=None)
        given = ["picture-from", ["one.ipynb"], options, [begins], 1, 0, "", state, machine]
        said.clear()
        return pictures.PictureFrom(*given).run(), list(said)

    return made


def test_a_picture_of_another_page_is_found_by_its_alternative_text(of_notebook):
    def cell(alt, width):
        output = {"data": {"image/svg+xml": [f'<svg width="{width}pt">', "</svg>"]}}
        return {"metadata": {"mystnb": {"image": {"alt": alt}}}, "outputs": [output]}

    both = json.dumps({"cells": [{"metadata": {}}, cell("Five", 5), cell("Four of them", 4)]})
    (picture,), said = of_notebook(both)
    assert said == []
    assert 'aria-label="Four of them"' in picture.astext()
    assert "5pt" not in picture.astext()
    assert of_notebook(both, "Six")[0] == []
    assert "0 pictures that begin 'Six'" in of_notebook(both, "Six")[1][0]
    assert "2 pictures that begin 'F'" in of_notebook(both, "F")[1][0]


def test_a_figure_that_moves_is_shown_on_another_page_under_a_name_of_its_own(of_notebook):
    figure = Moving("prompt", "prompt", {"a": 1}, "Entries of a “prompt” & more.")._repr_html_()
    other = Moving("fake_token", "words", {"a": 1}, "Words.")._repr_html_()
    outputs = [{"data": {"text/html": other}}, {"data": {"text/html": figure.splitlines(keepends=True)}}, {"text": "x"}]
    both = json.dumps({"cells": [{"metadata": {}, "outputs": outputs}]})
    (shown,), said = of_notebook(both, "Entries of a “prompt” &")
    assert said == []
    text = shown.astext()
    element = BeautifulSoup(text, "html.parser").find("div", class_="moving")
    assert element["class"] == ["moving"]
    assert f'hmmMoving.kit.start("{element["id"]}", "prompt", {{"a": 1}});' in text
    assert element["id"].startswith("moving-prompt-")
    assert '"moving-prompt"' not in text, "the notebook's own name is nowhere left"
    assert text.replace(element["id"], "moving-prompt").count(figure) == 1, "nothing else has changed"
    (small,), said = of_notebook(both, "Entries", small=None)
    assert said == []
    assert BeautifulSoup(small.astext(), "html.parser").find("div", class_="moving")["class"] == ["moving", "small"]
    assert "0 pictures that begin 'Nothing'" in of_notebook(both, "Nothing")[1][0]


@pytest.mark.parametrize("text", ['{"cells": [', "{}", '{"cells": [{}]}', '{"cells": 3}'])
def test_what_is_no_notebook_is_a_warning_that_names_it(text, of_notebook):
    made, (said,) = of_notebook(text)
    assert made == []
    assert "one.ipynb is no executed notebook (run `make book`)" in said


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


KNOWN = {"Theorem 3.3": ("notebooks/3-hmm", "a"), "Theorem 4.6": ("p", "b"), "Assumption D.5": ("p", "c")}


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("by Theorem 3.3, so", ["Theorem 3.3"]),
        ("Theorems 3.3 and 4.6 hold", ["Theorems 3.3", "4.6"]),
        ("Theorems 3.3, 4.5 and 4.6", ["Theorems 3.3", "4.6"]),
        ("Assumption\u00a0D.5; Theorem 3.33", ["Assumption\u00a0D.5"]),
        ("Theorem 9.9 is not there, nor Section 3.3", []),
    ],
)
def test_mentions_of_statements_become_links(text, links):
    made = cards.linked(text, KNOWN, lambda words, page, anchor: nodes.reference("", words, refuri=f"{page}#{anchor}"))
    assert [part.astext() for part in made if isinstance(part, nodes.reference)] == links
    assert not made or "".join(part.astext() for part in made) == text


def test_a_fragment_stands_on_any_page():
    element = BeautifulSoup(
        '<div id="a"><p id="b"><a href="x.html">link</a><a class="headerlink" href="#a">#</a></p></div>', "html.parser"
    ).find("div")
    assert cards.fragment(element) == "<div><p>link</p></div>"


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "5 s"), (11, "10 s"), (63, "65 s"), (119, "2 minutes")])
def test_times_in_words(seconds, words):
    assert page_facts.in_words(seconds) == words


def test_reading_time_counts_text_and_formulas_but_no_code():
    def page(*parts):
        document = nodes.document(None, None)
        document += parts
        return document

    words = nodes.paragraph("", "", nodes.Text("word " * 900))
    code = nodes.literal_block("", "word " * 9000)
    script = nodes.raw("", "word " * 9000)
    assert page_facts.reading_minutes(page(words, code, script)) == 5
    assert page_facts.reading_minutes(page(words.deepcopy(), *(nodes.math_block("", "x") for _ in range(15)))) == 7
    assert page_facts.reading_minutes(page()) == 1


@pytest.mark.parametrize("source", sorted((ROOT / "notebooks").glob("*.md")), ids=lambda path: path.stem)
def test_what_a_page_tells_to_change_is_a_parameter_of_its_notebook(source):
    parameter = page_facts.EXAMPLES.get(source.stem, "-p instances 1000").split()[1]
    cell = re.search(r"# Parameters:.*?```", source.read_text(), re.DOTALL)[0]
    assert re.search(rf"^{parameter}: ", cell, re.MULTILINE)
