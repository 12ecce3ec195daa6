"""The book's own Sphinx extensions: formulas, and pictures of other pages."""

import json
import re
from itertools import count
from types import SimpleNamespace

import mathematics
import pictures
import pytest
from bs4 import BeautifulSoup
from companion.figures.interactive import Moving


def test_formulas_become_drawings_and_a_typesetter_that_dies_is_an_error():
    typesetter = mathematics.Typesetter({"P": r"\mathrm{P}"})
    drawn = BeautifulSoup(typesetter.typeset(r"\bar G_i(x) = \P[X_i]"), "html.parser")
    assert drawn.find("mjx-assistive-mml").get_text().startswith("G¯i(x)=P[Xi]")
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

    def made(begins: str, **options) -> list[str]:
        given = ["picture-from", ["one.ipynb"], options, [begins], 1, 0, "", state, SimpleNamespace(reporter=None)]
        return [picture.astext() for picture in pictures.PictureFrom(*given).run()]

    def cell(alt: str, **data) -> dict:
        return {"metadata": {"mystnb": {"image": {"alt": alt}}}, "outputs": [{"text": "x"}, {"data": data}]}

    still, moving = {"image/svg+xml": ["<svg>", "</svg>"]}, Moving("prompt", 1, "A “prompt” & more.")._repr_html_()
    cells = [{"metadata": {}}, cell("Five", **still), cell("Four", **still), cell("", **{"text/html": moving})]
    (tmp_path / "one.ipynb").write_text(json.dumps({"cells": cells}))
    assert ['aria-label="Four"' in picture for picture in made("Fo")] == [True]
    (shown,) = made("A “prompt” &", small=None)
    element = BeautifulSoup(shown, "html.parser").find("div", class_="moving")
    assert element["class"] == ["moving", "small"]
    assert f'hmmMoving.kit.start("{element["id"]}", "prompt", 1);' in shown
    assert '"moving-prompt"' not in shown, "the notebook's own name is nowhere left"
    made("Six")
    made("F")
    (tmp_path / "one.ipynb").write_text('{"cells": [')
    made("F")
    assert re.fullmatch(".*0 pictures that begin 'Six'.*\n.*2 pictures that.*\n.*no executed.*", "\n".join(warned))
