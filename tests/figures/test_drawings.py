"""The drawings as data: what stands where, in colours that can be seen, and that nothing sticks out."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from hmmbook.figures import drawings, figures

PICTURES = [
    drawings.setting(),
    drawings.memory_cell(),
    drawings.memory_cells(),
    drawings.memory_cells([4], 4),
]
# Names what leaves a drawing, is too small on a phone, or lies upon another text.
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


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    parts = np.array(to_rgb(colour))
    bright = ((parts + 0.055) / 1.055) ** 2.4
    linear = np.where(parts <= 0.04045, parts / 12.92, bright)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(first: str, second: str) -> float:
    """How well a colour can be seen on another, as WCAG 2 defines it."""
    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


def test_nothing_sticks_out_and_texts_are_apart_and_large_enough_on_a_phone(phone):
    page, wrong = phone("".join(picture._repr_svg_() for picture in PICTURES))
    assert page.evaluate(GEOMETRY) == []
    assert wrong() == []
    bad = [
        drawings.label(340, 10, "sticking out"),
        drawings.label(50, 30, "one", 9),
        drawings.label(55, 35, "other"),
    ]
    page, _ = phone(drawings.drawing(bad, 60, "All that can be wrong.").svg)
    assert page.evaluate(GEOMETRY) == ["outside", "small", "one upon other"]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.alt[:30])
def test_marks_can_be_seen_on_white_and_on_dark_and_words_have_the_colour_of_the_page(picture):
    colours = set()
    for element in ElementTree.fromstring(picture._repr_svg_()).iter():
        if element.tag.endswith("}text"):
            assert element.get("fill") == "currentColor"
        colours |= {element.get("fill"), element.get("stroke")}
    for colour in colours - {None, "none", "currentColor"}:
        for ground in ("#ffffff", "#14181e", "#121212"):
            assert contrast(colour, ground) >= 3, colour


def test_the_colours_of_static_figures_are_those_of_the_style_sheet_and_can_be_seen():
    css = (Path(figures.__file__).parents[2] / "_static" / "companion.css").read_text()
    rules = re.findall("html.*--label-1.*", css)
    light, dark, printed = (dict(re.findall(r"--([\w-]+): (#\w+)", rule)) for rule in rules)
    for role, colour in figures.ROLES.items():
        assert light[role] == printed[role] == colour
        assert contrast(colour, "#ffffff") >= 3, role
        assert contrast(dark[role], "#121212") >= 3, role


@pytest.mark.parametrize(("lookups", "n_cells"), [([1, 3, 1, 2], 3), ([2], 2)])
def test_each_token_sees_the_cell_that_its_state_names(lookups, n_cells):
    picture = drawings.memory_cells(lookups, n_cells)
    groups = nodes(picture)
    cells = re.findall('data-node="(M_.*?)"', picture.svg)
    assert cells == ["M_1", "M_2", "M_3"][:n_cells]
    heights = re.findall(r'data-lookup="\d".*?cx="[\d.]+" cy="([\d.]+)"', picture.svg)
    assert len(heights) == len(lookups)
    for i, (cell, height) in enumerate(zip(lookups, heights, strict=True), 1):
        assert "".join(groups[f"H_{i}"].itertext()) == f"J{i} = {cell}S{i}"
        bar = groups[f"M_{cell}"].find("rect")
        top = float(bar.get("y"))
        assert top < float(height) < top + float(bar.get("height"))
