"""Drawings of the models and of the setting, as SVG: the same arguments give the same bytes.

A round node is hidden, a tinted square is observed, a dashed frame is masked, and a double frame is trained for the
task. Text and nodes take the page's colour, for its dark mode. The other colours have a contrast of 3 : 1 or more on
white and on near black. There is no style element and no id, so that drawings can share a page. All fit on a phone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import hypot

from hmmbook.figures.look import HEAD, MEMORY, SOFT, TRAINED, Names

Point = tuple[float, float]

PAGE = "currentColor"
"""The colour of the page's text."""


@dataclass(frozen=True)
class Drawing:
    """An SVG picture; a notebook shows it as the value of a cell."""

    svg: str = field(repr=False)
    alt: str

    def _repr_svg_(self) -> str:
        return self.svg


def drawing(elements: Names, height: float, alt: str, width: float = 350) -> Drawing:
    """Make one picture of the elements, a quarter larger than drawn, or as wide as the page where that is less."""
    style = "display: block; min-width: 0; max-width: 100%; height: auto"
    size = f'viewBox="0 0 {width:g} {height:g}" width="{1.25 * width:g}" style="{style}"'
    name = f'role="img" aria-label="{escape(alt)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {name} {size} font-family="sans-serif" fill="none">'
    return Drawing("\n".join([head, *elements, "</svg>"]), alt)


# Parts of a drawing


def label(x: float, y: float, text: str, size: float = 12, anchor: str = "middle") -> str:
    """Write text with its middle line at y; `` `H`_0 `` is an italic H with a subscript of one character."""
    spans = []
    height = 0
    for piece in re.split(r"(`[^`]+`|_\w)", text):
        if not piece:
            continue
        new_height = 4 if piece[0] == "_" else 0
        attributes = f' dy="{new_height - height}"' if new_height != height else ""
        if piece[0] == "_":
            attributes += ' font-size="11"'
        elif piece[0] == "`":
            attributes += ' font-style="italic"'
        spans.append(f"<tspan{attributes}>{escape(piece.strip('`_'))}</tspan>")
        height = new_height
    place = f'x="{x:g}" y="{y + 0.35 * size:g}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text {place} fill="{PAGE}">{"".join(spans)}</text>'


def group(name: str, state: str, content: str) -> str:
    """Say which node the content is, and its state: "", "masked", "highlighted", "trained" or "frozen"."""
    return f'<g data-node="{escape(name)}" data-state="{state}">{content}</g>'


def ring(x: float, y: float, radius: float, highlighted: bool = False) -> str:
    width = max(radius / 5, 3) if highlighted else 1.8
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" stroke="{PAGE}" stroke-width="{width:g}"/>'


def dot(x: float, y: float, radius: float) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" fill="{MEMORY}"/>'


def hidden_state(x: float, y: float, i: int, highlighted: bool = False) -> str:
    """Draw the hidden variable H_i, thick if highlighted."""
    content = ring(x, y, 19, highlighted) + label(x, y, f"`H`_{i}", 14)
    return group(f"H_{i}", "highlighted" if highlighted else "", content)


def _rectangle(middle: Point, size: Point, corner: float, colour: str, more: str = "") -> str:
    x, y = middle
    width, height = size
    place = f'x="{x - width / 2:g}" y="{y - height / 2:g}"'
    extent = f'width="{width:g}" height="{height:g}" rx="{max(corner, 1):g}"'
    return f'<rect {place} {extent} stroke="{colour}" stroke-width="1.8"{more}/>'


def frame(x: float, y: float, width: float, height: float, colour: str, state: str = "", corner: float = 3) -> str:
    """Draw a rectangle around the middle (x, y): dashed if masked, double if trained, tinted if highlighted."""
    more = ""
    if state == "masked":
        more = ' stroke-dasharray="4 3"'
    if state == "highlighted":
        more = f' fill="{colour}" fill-opacity="0.15"'
    outer = _rectangle((x, y), (width, height), corner, colour, more)
    if state != "trained":
        return outer
    return outer + _rectangle((x, y), (width - 8, height - 8), corner - 4, colour)


def token(x: float, y: float, text: str, name: str, state: str = "") -> str:
    """Draw an observed square; trained, masked or neither."""
    colour = TRAINED if state == "trained" else PAGE
    square = frame(x, y, 40, 40, colour, state or "highlighted")
    return group(name, state, square + label(x, y, text, 14))


def box(x: float, y: float, width: float, texts: Names, name: str, colour: str = SOFT, state: str = "") -> str:
    """Draw a frame with lines of text."""
    height = 16 * len(texts) + (22 if state == "trained" else 16)
    first = y - 8 * (len(texts) - 1)
    content = frame(x, y, width, height, colour, state, corner=6)
    for k, text in enumerate(texts):
        content += label(x, first + 16 * k, text)
    return group(name, state, content)


def line(points: Sequence[Point], colour: str = SOFT, dashed: bool = False) -> str:
    """Draw a line through points."""
    path = "M" + " L".join(f"{x:.4g},{y:.4g}" for x, y in points)
    dashes = ' stroke-dasharray="2 3"' if dashed else ""
    return f'<path d="{path}" stroke="{colour}" stroke-width="1.6"{dashes}/>'


def arrow(points: Sequence[Point], colour: str = SOFT) -> str:
    """Draw a line through points, with a head at the last."""
    x0, y0 = points[-2]
    x1, y1 = points[-1]
    length = hypot(x1 - x0, y1 - y0)
    dx = (x1 - x0) / length
    dy = (y1 - y0) / length
    end_of_shaft = (x1 - 6 * dx, y1 - 6 * dy)
    shaft = line([*points[:-1], end_of_shaft], colour)
    left = (x1 - 8 * dx + 4 * dy, y1 - 8 * dy - 4 * dx)
    right = (x1 - 8 * dx - 4 * dy, y1 - 8 * dy + 4 * dx)
    tip = " ".join(f"{x:.4g},{y:.4g}" for x, y in [(x1, y1), left, right])
    return shaft + f'<polygon points="{tip}" fill="{colour}"/>'


def chain(x: float, y: float, pitch: float, first: int, last: int) -> str:
    """Draw H_first → … → H_last in a row, the first at x."""
    elements = []
    for i in range(first, last + 1):
        place = x + pitch * (i - first)
        elements.append(hidden_state(place, y, i))
        if i > first:
            start = place - pitch + 21
            elements.append(arrow([(start, y), (place - 21, y)]))
    return "".join(elements)


def _key_glyph(name: str, x: float, y: float) -> tuple[str, str]:
    """A shape of the key, and what it means."""
    if name == "hidden":
        return ring(x, y, 6), "hidden"
    if name == "marked":
        return ring(x, y, 6, highlighted=True), "in question"
    if name == "token":
        return frame(x, y, 12, 12, PAGE, "highlighted", corner=1), "token"
    if name == "trained":
        return frame(x, y, 14, 14, PAGE, "trained", corner=1), "trained for the task"
    if name == "frozen":
        return frame(x, y, 12, 12, SOFT, corner=3), "frozen"
    if name == "memory":
        return frame(x, y, 16, 10, MEMORY, "highlighted", corner=5), "memory, hidden too"
    return dot(x, y, 4), "the cell that is looked up"


def key(y: float, *rows: Names) -> str:
    """Explain the shapes, a row of names at a time, as `_key_glyph` takes them."""
    elements = []
    for k, row in enumerate(rows):
        x = 12.0
        for name in row:
            glyph, text = _key_glyph(name, x, y + 20 * k)
            elements += [glyph, label(x + 13, y + 20 * k, text, anchor="start")]
            x += 13 + 7.2 * len(text) + 18
    return "".join(elements)


# The drawings


def setting() -> Drawing:
    """Draw the whole pipeline: a hidden chain writes a text, which has a label, and which model and head answer."""
    task = 52
    model = 252
    elements = [
        hidden_state(36, 28, 0, highlighted=True),
        arrow([(58, 28), (175, 28)]),
        label(116, 16, "hidden chain"),
        chain(196, 28, 56, 1, 3),
    ]
    for i, x in enumerate((196, 252, 308), 1):
        elements.append(arrow([(x, 49), (x, 74)]))
        elements.append(token(x, 96, f"`X`_{i}", f"X_{i}"))
        elements.append(arrow([(x, 118), (x, 158)]))
    elements += [
        label(130, 84, "the text `x`"),
        arrow([(172, 96), (88, 96), (88, 158)]),
        line([(36, 50), (36, 158)], dashed=True),
        label(42, 114, "asked", anchor="start"),
        label(42, 130, "about", anchor="start"),
        box(task, 184, 96, ["belief", "P[`H`_0 | `x`]"], "belief", PAGE),
        token(128, 184, "`u`", "u", "trained"),
        arrow([(150, 184), (166, 184)]),
        label(128, 214, "prompt"),
        box(model, 184, 168, ["pretrained model `G`,", "frozen"], "G", state="frozen"),
        arrow([(model, 210), (model, 236)]),
        label(model + 8, 223, "its prediction", anchor="start"),
        box(model, 257, 168, ["linear head `b`"], "b", HEAD, "trained"),
        arrow([(model, 278), (model, 304)]),
        box(model, 322, 120, ["answer `F`(`x`)"], "F", PAGE),
        arrow([(task, 210), (task, 304)]),
        box(task, 322, 96, ["label `F`*(`x`)"], "F*", PAGE),
        label(62, 249, "weighed", anchor="start"),
        label(62, 265, "by `μ`", anchor="start"),
        line([(102, 322), (190, 322)], dashed=True),
        label(146, 310, "equal?"),
        key(364, ["hidden", "marked", "token"], ["trained", "frozen"]),
    ]
    alt = (
        "A hidden chain H0 to H3 emits a text of three tokens. On one side the belief about H0 given the text, "
        "weighed by mu, is the label. On the other side the text, with a trained prompt u before it, goes into the "
        "frozen pretrained model G. A trained linear head b reads its prediction and gives the answer, which should "
        "equal the label."
    )
    return drawing(elements, 398, alt)


def memory_cell() -> Drawing:
    """Draw a memory HMM with one cell: M, drawn once, acts on every token beside the token's state."""
    elements = [label(12, 12, "the hidden state moves on with each token", anchor="start"), chain(31, 46, 72, 0, 4)]
    for i, x in enumerate((103, 175, 247, 319), 1):
        elements.append(arrow([(x, 67), (x, 92)]))
        elements.append(token(x, 114, f"`X`_{i}", f"X_{i}"))
        elements.append(arrow([(x, 164), (x, 136)], MEMORY))
    bar = frame(211, 182, 270, 36, MEMORY, "highlighted", corner=18)
    elements.append(group("M", "", bar + label(211, 182, "`M`", 14)))
    elements.append(label(12, 216, "the memory is drawn once and kept for the whole text", anchor="start"))
    elements.append(key(244, ["hidden", "token", "memory"]))
    alt = "A chain of hidden states H0 to H4. Each token has arrows from its state and from one memory M."
    return drawing(elements, 258, alt)


def memory_cells(lookups: Sequence[int] = (1, 3, 1, 2), n_cells: int = 3) -> Drawing:
    """Draw a memory HMM with two to four cells: the state H_i = (J_i, S_i) chooses the cell that its token sees.

    Args:
        lookups: J_1, J_2, …, at most 4, each from 1 to `n_cells`.
        n_cells: N.
    """
    elements = []
    last = 27 + 74 * len(lookups)
    bars = {j: 162 + 32 * j for j in range(1, n_cells + 1)}
    for j, y in bars.items():
        middle = (last + 27) / 2
        bar = frame(middle, y, last + 21, 22, MEMORY, "highlighted", corner=11)
        elements.append(group(f"M_{j}", "", bar + label(30, y, f"`M`_{j}", 14)))
    elements += _pair_state(27, 0, "`J`_0")
    for i, j in enumerate(lookups, 1):
        x = 27 + 74 * i
        elements += _pair_state(x, i, f"`J`_{i} = {j}")
        elements.append(arrow([(x - 47, 52), (x - 27, 52)]))
        elements.append(arrow([(x, 78), (x, 102)]))
        elements.append(token(x, 124, f"`X`_{i}", f"X_{i}"))
        elements.append(arrow([(x, bars[j]), (x, 147)], MEMORY))
        elements.append(f'<g data-lookup="{i}" data-cell="{j}">{dot(x, bars[j], 5)}</g>')
    elements.append(key(bars[n_cells] + 34, ["hidden", "token", "memory"], ["lookup"]))
    seen = ", ".join(f"token {i} sees cell {j}" for i, j in enumerate(lookups, 1))
    alt = (
        f"A chain of hidden states H0 to H{len(lookups)}, each a pair of a cell index J and a syntax state S. "
        f"Below the tokens the memory cells M1 to M{n_cells} as bars through the whole text; {seen}."
    )
    return drawing(elements, bars[n_cells] + 68, alt)


def _pair_state(x: float, i: int, index: str) -> list[str]:
    """The state H_i as a pair of a cell index and a syntax state."""
    content = frame(x, 52, 50, 50, PAGE, corner=22)
    content += label(x, 42, index)
    content += label(x, 60, f"`S`_{i}")
    return [label(x, 14, f"`H`_{i}"), group(f"H_{i}", "", content)]
