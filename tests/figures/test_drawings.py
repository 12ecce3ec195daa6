"""The drawings as data: what stands where, in which state, in colours that can be seen, and that nothing sticks out."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from companion.figures import drawings, figures
from matplotlib.colors import to_rgb

ALL = {
    "five steps": drawings.hidden_chain(["0", "1", "?", "2", "1"], masked=[3], highlight=[3]),
    "one step": drawings.hidden_chain(["sailor"]),
    "prompt": drawings.prompt_chain(),
    "setting": drawings.setting(),
    "tuners": drawings.tuners(),
    "one cell": drawings.memory_cell(),
    "cells": drawings.memory_cells(),
    "four cells, one token": drawings.memory_cells([4], 4),
}
# What leaves a drawing, is too small on a phone, or lies upon another text.
GEOMETRY = """() => [...document.querySelectorAll('main > svg')].flatMap(svg => {
  const box = e => e.getBoundingClientRect(), whole = box(svg), scale = whole.width / svg.viewBox.baseVal.width;
  const wrong = [], texts = [...svg.querySelectorAll('text')];
  for (const e of svg.querySelectorAll('*')) {
    const {left, right, top, bottom} = box(e);
    const aside = left < whole.left || right > Math.min(whole.right, innerWidth);
    if (aside || top < whole.top || bottom > whole.bottom) wrong.push('outside');
    if (scale * parseFloat(getComputedStyle(e).fontSize) < 10.99) wrong.push('small');
  }
  texts.forEach((one, k) => texts.slice(k + 1).forEach(other => {
    const [a, b] = [box(one), box(other)], line = 0.25 * Math.min(a.height, b.height);
    const aside = a.right <= b.left || b.right <= a.left, apart = a.bottom <= b.top + line || b.bottom <= a.top + line;
    if (!aside && !apart) wrong.push(`${one.textContent} upon ${other.textContent}`);
  }));
  return [...new Set(wrong)];
})"""


def nodes(picture) -> dict[str, ElementTree.Element]:
    """The named groups of a drawing."""
    svg = ElementTree.fromstring(picture.svg.replace(" xmlns=", " was=", 1))
    return {group.get("data-node"): group for group in svg.iterfind(".//g[@data-node]")}


def contrast(one: str, other: str) -> float:
    """How well a colour can be seen on another, as WCAG 2 defines it."""
    parts = np.array([to_rgb(one), to_rgb(other)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    dark, light = sorted(linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    return light / dark


def test_nothing_sticks_out_and_texts_are_apart_and_large_enough_on_a_phone(phone):
    page, wrong = phone("".join(picture._repr_svg_() for picture in ALL.values()))
    assert [*page.evaluate(GEOMETRY), *wrong()] == []
    bad = [drawings.label(340, 10, "sticking out"), drawings.label(50, 30, "one", 9), drawings.label(55, 35, "other")]
    page, _ = phone(drawings.drawing(bad, 60, "All that can be wrong.").svg)
    assert page.evaluate(GEOMETRY) == ["outside", "small", "one upon other"]


def test_the_marks_of_drawings_and_of_static_figures_can_be_seen_on_white_and_on_dark():
    for picture in ALL.values():
        svg = ElementTree.fromstring(picture._repr_svg_())
        assert {e.get("fill") for e in svg.iter() if e.tag.endswith("}text")} == {"currentColor"}  # the page's own
        marks = {e.get(name) for e in svg.iter() for name in ("fill", "stroke")} - {None, "none", "currentColor"}
        assert min(contrast(mark, ground) for mark in marks for ground in ("#ffffff", "#14181e", "#121212")) >= 3
    css = (Path(figures.__file__).parents[2] / "_static" / "companion.css").read_text()
    rules = re.findall("html.*--label-1.*", css)
    light, dark, printed = (dict(re.findall(r"--([\w-]+): (#\w+)", rule)) for rule in rules)
    for role, colour in figures.ROLES.items():
        assert light[role] == printed[role] == colour
        assert min(contrast(colour, "#ffffff"), contrast(dark[role], "#121212")) >= 3, role


@pytest.mark.parametrize(("masked", "highlight"), [([], []), ([2, 4], [4])])
def test_the_chain_has_its_states_and_tokens(masked, highlight):
    tokens = ["<a>", "x_1", "`b`", "sun"]
    picture = drawings.hidden_chain(tokens, masked, highlight)
    expected = {f"H_{i}": (f"H{i}", "highlighted" if i in highlight else "") for i in range(5)}
    expected |= {f"X_{i}": ("mask", "masked") if i in masked else (text, "") for i, text in enumerate(tokens, 1)}
    assert {name: ("".join(g.itertext()), g.get("data-state")) for name, g in nodes(picture).items()} == expected
    assert picture.svg.count("<polygon") == 8  # an arrow into each state but the first, and into each token
    assert [f">{key}<" in picture.svg for key in ("masked token", "in question")] == [bool(masked), bool(highlight)]


@pytest.mark.parametrize(("lookups", "n_cells"), [([1, 3, 1, 2], 3), ([2], 2)])
def test_each_token_sees_the_cell_that_its_state_names(lookups, n_cells):
    picture = drawings.memory_cells(lookups, n_cells)
    found, dots = nodes(picture), re.findall(r'data-lookup="(\d)".*?cx="[\d.]+" cy="([\d.]+)"', picture.svg)
    bars = {name: group.find("rect") for name, group in found.items() if name.startswith("M")}
    assert list(bars) == [f"M_{j}" for j in range(1, n_cells + 1)]
    for i, (j, (number, y)) in enumerate(zip(lookups, dots, strict=True), 1):
        assert (number, "".join(found[f"H_{i}"].itertext())) == (f"{i}", f"J{i} = {j}S{i}")
        assert 0 < float(y) - float(bars[f"M_{j}"].get("y")) < float(bars[f"M_{j}"].get("height"))
