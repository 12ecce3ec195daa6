"""The book's own Sphinx extensions: formulas, and pictures of other pages."""

import json
from types import SimpleNamespace

import mathematics
import pytest
from bs4 import BeautifulSoup

import pictures


@pytest.fixture
def typesetter():
    typesetter = mathematics.Typesetter({"P": r"\mathrm{P}"})
    yield typesetter
    typesetter.close()


def test_formulas_become_drawings_and_a_formula_in_error_is_told(typesetter):
    drawing = BeautifulSoup(typesetter.typeset(r"\bar G_i(x) = \P[X_i]"), "html.parser")
    assert drawing.find("mjx-assistive-mml").get_text().startswith("G¯i(x)=P[Xi]")
    assert "merror" in typesetter.typeset(r"\frac{1}{")
    assert "merror" in typesetter.typeset(r"\suppp(x)")
    assert "<text" not in typesetter.typeset(r"\mathbb 1(x)"), "the indicator does not depend on the reader's fonts"


def test_a_typesetter_that_dies_is_an_error(typesetter):
    typesetter.process.kill()
    typesetter.process.wait()
    with pytest.raises(RuntimeError, match="the typesetter stopped with exit code"):
        typesetter.typeset("x")


def cell_with_picture(alternative: str) -> dict:
    outputs = [{"text": "x"}, {"data": {"image/svg+xml": ["<svg>", "</svg>"]}}]
    return {"metadata": {"mystnb": {"image": {"alt": alternative}}}, "outputs": outputs}


def test_a_picture_of_another_page_that_is_missing_or_not_alone_is_a_warning(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(pictures.log, "warning", lambda message, *values, location: warnings.append(message % values))
    monkeypatch.setattr(pictures.PictureFrom, "get_location", lambda self: "here")
    env = SimpleNamespace(srcdir=tmp_path, note_dependency=lambda path: None)
    state = SimpleNamespace(document=SimpleNamespace(settings=SimpleNamespace(env=env)))
    machine = SimpleNamespace(reporter=None)

    def picture_from(begins: str) -> str:
        directive = pictures.PictureFrom("picture-from", ["a.ipynb"], {}, [begins], 1, 0, "", state, machine)
        return "".join(picture.astext() for picture in directive.run())

    cells = [{"metadata": {}}, cell_with_picture("Five"), cell_with_picture("Four")]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert 'aria-label="Four"' in picture_from("Fo")
    assert warnings == []
    picture_from("Six")
    assert "0 pictures that begin 'Six'" in warnings.pop()
    picture_from("F")
    assert "2 pictures that begin 'F'" in warnings.pop()
    (tmp_path / "a.ipynb").write_text('{"cells": [')
    picture_from("F")
    assert "is no executed notebook" in warnings.pop()
