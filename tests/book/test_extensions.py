"""The book's own Sphinx extensions: formulas, and pictures of other pages."""

import json
import re
from types import SimpleNamespace

import mathematics
import pictures
import pytest
from bs4 import BeautifulSoup


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


def test_a_picture_of_another_page_that_is_missing_or_not_alone_is_a_warning(tmp_path, monkeypatch):
    """What is found stands on pages, in a browser too."""
    warned = []
    monkeypatch.setattr(pictures.log, "warning", lambda message, *facts, location: warned.append(message % facts))
    monkeypatch.setattr(pictures.PictureFrom, "get_location", lambda self: "here")
    env = SimpleNamespace(srcdir=tmp_path, note_dependency=lambda _: None)
    state = SimpleNamespace(document=SimpleNamespace(settings=SimpleNamespace(env=env)))

    def made(begins: str) -> list[str]:
        given = ["picture-from", ["one.ipynb"], {}, [begins], 1, 0, "", state, SimpleNamespace(reporter=None)]
        return [picture.astext() for picture in pictures.PictureFrom(*given).run()]

    drawn = [{"text": "x"}, {"data": {"image/svg+xml": ["<svg>", "</svg>"]}}]
    cells = [{"metadata": {"mystnb": {"image": {"alt": alt}}}, "outputs": drawn} for alt in ("Five", "Four")]
    (tmp_path / "one.ipynb").write_text(json.dumps({"cells": [{"metadata": {}}, *cells]}))
    assert ['aria-label="Four"' in picture for picture in made("Fo")] == [True]
    made("Six")
    made("F")
    (tmp_path / "one.ipynb").write_text('{"cells": [')
    made("F")
    assert re.fullmatch(".*0 pictures that begin 'Six'.*\n.*2 pictures that.*\n.*no executed.*", "\n".join(warned))
