"""Drawings of the models and of the setting, as SVG: the same arguments give the same bytes.

A round node is hidden, a tinted square observed, a dashed frame masked, a double frame trained for the task. Text and
nodes take the page's colour, for its dark mode; the other colours have a contrast of 3 : 1 or more on white and on
near black. No style element and no ids: drawings can share a page. All fit on a phone: a chain there has at most 5
time steps, and a token at most 6 letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import hypot

from companion.figures.figures import HEAD, MEMORY, SOFT, TRAINED

PAGE = "currentColor"


@dataclass(frozen=True)
class Drawing:
    """An SVG picture; a notebook shows it as the value of a cell."""

    svg: str = field(repr=False)
    alt: str

    def _repr_svg_(self) -> str:
        return self.svg


def drawing(elements: Sequence[str], height: float, alt: str, width: float = 350) -> Drawing:
    """The elements as one picture, a quarter larger than drawn, or as wide as the page where that is less."""
    style = "display: block; min-width: 0; max-width: 100%; height: auto"
    size = f'viewBox="0 0 {width:g} {height:g}" width="{1.25 * width:g}" style="{style}"'
    name = f'role="img" aria-label="{escape(alt)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {name} {size} font-family="sans-serif" fill="none">'
    return Drawing("\n".join([head, *elements, "</svg>"]), alt)


def label(x: float, y: float, text: str, size: float = 12, anchor: str = "middle", plain: bool = False) -> str:
    """Text with its middle line at y. Unless plain, `` `H`_0 `` is an italic H with a subscript of one character."""
    spans, shift = [], 0
    for piece in filter(None, [] if plain else re.split(r"(`[^`]+`|_\w)", text)):
        lowered = 4 if piece[0] == "_" else 0
        look = ' font-size="11"' if lowered else ' font-style="italic"' if piece[0] == "`" else ""
        move = f' dy="{lowered - shift}"' if lowered != shift else ""
        spans.append(f"<tspan{move}{look}>{escape(piece.strip('`_'))}</tspan>")
        shift = lowered
    place = f'x="{x:g}" y="{y + 0.35 * size:g}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor">{"".join(spans) or escape(text)}</text>'


def named(name: str, state: str, content: str) -> str:
    """A group that says which node it is and its state: "", "masked", "highlighted", "trained" or "frozen"."""
    return f'<g data-node="{escape(name)}" data-state="{state}">{content}</g>'


def ring(x: float, y: float, radius: float, highlighted: bool = False) -> str:
    width = max(radius / 5, 3) if highlighted else 1.8
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" stroke="{PAGE}" stroke-width="{width:g}"/>'


def dot(x: float, y: float, radius: float) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" fill="{MEMORY}"/>'


def circle(x: float, y: float, i: int, highlighted: bool = False) -> str:
    """The hidden variable H_i, thick if highlighted."""
    content = ring(x, y, 19, highlighted) + label(x, y, f"`H`_{i}", 14)
    return named(f"H_{i}", "highlighted" if highlighted else "", content)


def frame(x: float, y: float, wide: float, high: float, colour: str, state: str = "", corner: float = 3) -> str:
    """A rectangle around the middle (x, y): dashed if masked, double if trained, tinted if highlighted."""

    def rectangle(inset: float, more: str = "") -> str:
        place = f'x="{x - wide / 2 + inset:g}" y="{y - high / 2 + inset:g}"'
        size = f'width="{wide - 2 * inset:g}" height="{high - 2 * inset:g}" rx="{max(corner - inset, 1):g}"'
        return f'<rect {place} {size} stroke="{colour}" stroke-width="1.8"{more}/>'

    if state == "trained":
        return rectangle(0) + rectangle(4)
    more = {"masked": ' stroke-dasharray="4 3"', "highlighted": f' fill="{colour}" fill-opacity="0.15"'}
    return rectangle(0, more.get(state, ""))


def token(x: float, y: float, text: str, name: str, state: str = "", plain: bool = False, size: float = 14) -> str:
    """An observed square; trained, masked or neither."""
    square = frame(x, y, 40, 40, TRAINED if state == "trained" else PAGE, state or "highlighted")
    return named(name, state, square + label(x, y, text, size, plain=plain))


def box(x: float, y: float, wide: float, texts: Sequence[str], name: str, colour: str = SOFT, state: str = "") -> str:
    """A frame with lines of text."""
    high, first = 16 * len(texts) + (22 if state == "trained" else 16), y - 8 * (len(texts) - 1)
    text = "".join(label(x, first + 16 * k, line) for k, line in enumerate(texts))
    return named(name, state, frame(x, y, wide, high, colour, state, corner=6) + text)


def arrow(points: Sequence[tuple[float, float]], colour: str = SOFT, dashed: bool = False, head: bool = True) -> str:
    """A line through the points, with a head at the last."""
    *_, (x0, y0), (x1, y1) = points
    length = hypot(x1 - x0, y1 - y0)
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    points = [*points[:-1], (x1 - 6 * dx, y1 - 6 * dy)] if head else points
    path = "M" + " L".join(f"{x:.4g},{y:.4g}" for x, y in points)
    dashes = ' stroke-dasharray="2 3"' if dashed else ""
    line = f'<path d="{path}" stroke="{colour}" stroke-width="1.6"{dashes}/>'
    corners = [(x1, y1), *((x1 - 8 * dx + s * dy, y1 - 8 * dy - s * dx) for s in (4, -4))]
    tip = " ".join(f"{x:.4g},{y:.4g}" for x, y in corners)
    return line + (f'<polygon points="{tip}" fill="{colour}"/>' if head else "")


def strip(x: float, y: float, trained: bool = False) -> str:
    """An embedding: one entry for each state, as a row of cells; with a second frame if it is trained."""
    colour = TRAINED if trained else PAGE
    bars = "".join(f"M{x + step},{y - 6:g} L{x + step},{y + 6:g} " for step in (-11, 0, 11)).strip()
    inner = frame(x, y, 44, 12, colour, corner=1) + f'<path d="{bars}" stroke="{colour}" stroke-width="1"/>'
    return inner + (frame(x, y, 52, 20, colour) if trained else "")


KEYS: dict[str, tuple[str, Callable[[float, float], str]]] = {
    "hidden": ("hidden", lambda x, y: ring(x, y, 6)),
    "marked": ("in question", lambda x, y: ring(x, y, 6, highlighted=True)),
    "token": ("token", lambda x, y: frame(x, y, 12, 12, PAGE, "highlighted", corner=1)),
    "masked": ("masked token", lambda x, y: frame(x, y, 12, 12, PAGE, "masked", corner=1)),
    "trained": ("trained for the task", lambda x, y: frame(x, y, 14, 14, PAGE, "trained", corner=1)),
    "frozen": ("frozen", lambda x, y: frame(x, y, 12, 12, SOFT, corner=3)),
    "memory": ("memory, hidden too", lambda x, y: frame(x, y, 16, 10, MEMORY, "highlighted", corner=5)),
    "lookup": ("the cell that is looked up", lambda x, y: dot(x, y, 4)),
}


def key(y: float, *rows: Sequence[str]) -> str:
    """What the shapes mean, a row of names of `KEYS` at a time."""
    elements = []
    for k, row in enumerate(rows):
        x, middle = 12.0, y + 20 * k
        for text, glyph in (KEYS[name] for name in row):
            elements += [glyph(x, middle), label(x + 13, middle, text, anchor="start")]
            x += 13 + 7.2 * len(text) + 18
    return "".join(elements)


def hidden_chain(tokens: Sequence[str], masked: Sequence[int] = (), highlight: Sequence[int] = ()) -> Drawing:
    """The graphical model of an HMM: H_0 → H_1 → …, each H_i over its token; H_0 emits nothing.

    `tokens` are the words of X_1, X_2, …, at most 5, each of at most 6 characters. Those at the positions `masked`,
    from 1, read "mask"; the states at the positions `highlight`, from 0, are thick.
    """
    length = len(tokens)
    elements, words = [chain(30, 24, 58, length, highlight)], []
    for i, text in enumerate(tokens, 1):
        x, state = 30 + 58 * i, "masked" if i in masked else ""
        words.append("a masked token" if state else text)
        elements += [arrow([(x, 45), (x, 76)]), token(x, 98, "mask" if state else text, f"X_{i}", state, True, 12)]
    elements.append(key(142, ["hidden", "marked"][: 1 + bool(highlight)], ["token", "masked"][: 1 + bool(masked)]))
    marked = f" Marked: {', '.join(f'H{i}' for i in sorted(highlight))}." if highlight else ""
    alt = f"A chain of hidden states H0 to H{length}. From H1 on each emits a token: {', '.join(words)}.{marked}"
    return drawing(elements, 174, alt, max(60 + 58 * length, 230))


def chain(x: float, y: float, pitch: float, length: int, highlight: Sequence[int] = (), first: int = 0) -> str:
    """H_first → … → H_length in a row, the first at x."""
    elements = []
    for k, i in enumerate(range(first, length + 1)):
        elements.append(circle(x + pitch * k, y, i, i in highlight))
        if k:
            elements.append(arrow([(x + pitch * (k - 1) + 21, y), (x + pitch * k - 21, y)]))
    return "".join(elements)


def prompt_chain() -> Drawing:
    """A prompt as a fake token: z̃ in front of the gap and the text, its embedding u one row more of W."""
    columns = [39 + 68 * k for k in range(5)]
    read, middle, wide = columns[1], (columns[0] + columns[-1]) / 2, columns[-1] - columns[0] + 60
    elements = [label(read, 10, "the task's `H`_0"), chain(39, 44, 68, 5, [2], first=1)]
    emitted = [("`z̃`", "trained", "`u`"), ("∅", "masked", "`e`(∅)")]
    emitted += [(f"`x`_{k}", "", f"`e`(`x`_{k})") for k in (1, 2, 3)]
    for i, (x, (text, state, vector)) in enumerate(zip(columns, emitted, strict=True), 1):
        elements += [arrow([(x, 65), (x, 88)]), token(x, 110, text, f"X_{i}", state), arrow([(x, 132), (x, 152)])]
        elements += [strip(x, 164, state == "trained"), label(x, 184, vector), arrow([(x, 195), (x, 214)])]
    elements.append(box(middle, 233, wide, ["pretrained model `Ḡ`, frozen"], "G", state="frozen"))
    elements += [arrow([(read, 250), (read, 282)]), label(read - 8, 265, "position 2", anchor="end")]
    elements += [box(read, 302, 100, ["head `b`"], "b", HEAD, "trained"), arrow([(read, 322), (read, 344)])]
    elements.append(box(read, 362, 100, ["answer"], "F", PAGE))
    elements.append(label(258, 270, "`W`: a row for each token"))
    for k, (name, vector) in enumerate([("`a`", ""), ("`b`", ""), ("`c`", ""), ("`z̃`", "`u`, added")]):
        y = 292 + 18 * k + (6 if vector else 0)
        elements += [label(202, y, name), strip(244, y, bool(vector)), label(276, y, vector, anchor="start")]
    elements.append(key(398, ["hidden", "token", "masked"], ["trained", "frozen"]))
    alt = (
        "A chain of hidden states emits a fake token, a gap and the text. Below each stands its embedding: the "
        "trained u for the fake token, e for the others. All go into the frozen model; a trained head reads its "
        "position 2. Beside it the matrix W, with u added as one more row."
    )
    return drawing(elements, 430, alt)


def setting() -> Drawing:
    """The whole pipeline: a hidden chain writes a text; on one side its label, on the other model, head, answer."""
    task, model = 52, 252
    elements = [circle(36, 28, 0, highlighted=True), arrow([(58, 28), (175, 28)])]
    elements += [label(116, 16, "hidden chain"), chain(196, 28, 56, 3, first=1)]
    for i, x in enumerate((196, 252, 308), 1):
        elements += [arrow([(x, 49), (x, 74)]), token(x, 96, f"`X`_{i}", f"X_{i}"), arrow([(x, 118), (x, 158)])]
    elements += [label(130, 84, "the text `x`"), arrow([(172, 96), (88, 96), (88, 158)])]
    elements.append(arrow([(36, 50), (36, 158)], dashed=True, head=False))
    elements += [label(42, 114, "asked", anchor="start"), label(42, 130, "about", anchor="start")]
    elements.append(box(task, 184, 96, ["posterior", "P[`H`_0 | `x`]"], "posterior", PAGE))
    elements += [token(128, 184, "`u`", "u", "trained"), arrow([(150, 184), (166, 184)]), label(128, 214, "prompt")]
    elements.append(box(model, 184, 168, ["pretrained model `G`,", "frozen"], "G", state="frozen"))
    elements += [arrow([(model, 210), (model, 236)]), label(model + 8, 221, "`G`(`x`) at a mask", anchor="start")]
    elements += [box(model, 257, 168, ["linear head `b`"], "b", HEAD, "trained"), arrow([(model, 278), (model, 304)])]
    elements.append(box(model, 322, 120, ["answer `F`(`x`)"], "F", PAGE))
    elements += [arrow([(task, 210), (task, 304)]), box(task, 322, 96, ["label `F`*(`x`)"], "F*", PAGE)]
    elements += [label(62, 249, "weighed", anchor="start"), label(62, 265, "by `μ`", anchor="start")]
    elements += [arrow([(102, 322), (190, 322)], dashed=True, head=False), label(146, 310, "equal?")]
    elements.append(key(364, ["hidden", "marked", "token"], ["trained", "frozen"]))
    alt = (
        "A hidden chain H0 to H3 emits a text of three tokens. On one side the posterior of H0 given the text, "
        "weighed by mu, is the label. On the other side the text, with a trained prompt u before it, goes into the "
        "frozen pretrained model G; a trained linear head b reads its output and gives the answer, which should "
        "equal the label."
    )
    return drawing(elements, 398, alt)


def tuners() -> Drawing:
    """Where a prompt, a prefix and LoRA take hold of a frozen network of two layers, beside each other."""
    elements, tops = [], (76, 124)
    places = {"prompt": "before the\ntext", "prefix": "keys, values\nin each layer", "LoRA": "added to\nweights"}
    for left, (name, below) in zip((6, 122, 238), places.items(), strict=True):
        # A prompt goes through the layers, as the text does; a prefix and LoRA's matrices do not.
        start = left + (0 if name == "prompt" else 38)
        middle, tuned = (start + left + 106) / 2, left + 14
        elements.append(label(left + 53, 10, name, 14))
        for i, state in enumerate(("masked", "", "")):
            square = frame(left + 50 + 23 * i, 40, 18, 18, PAGE, state or "highlighted")
            elements.append(named(f"{name} X_{i}", state, square))
        for k, y in enumerate(tops, 1):
            layer = frame(middle, y, left + 106 - start, 26, SOFT, corner=6) + label(middle, y, f"layer {k}", 11)
            elements += [named(f"{name} layer {k}", "frozen", layer), arrow([(left + 73, y - 25), (left + 73, y - 14)])]
            if name != "prompt":
                elements.append(named(f"{name} {k}", "trained", frame(tuned, y, 24, 22, TRAINED, "trained")))
                join = arrow([(tuned + 13, y), (start - 1, y)], TRAINED) if name == "prefix" else ""
                elements.append(join or label(tuned + 18, y, "+", 12))
        if name == "prompt":
            elements.append(named("prompt 0", "trained", frame(tuned, 40, 24, 22, TRAINED, "trained")))
            elements.append(arrow([(tuned, 51), (tuned, 62)]))
        elements += [label(left + 53, 154 + 15 * k, text) for k, text in enumerate(below.split("\n"))]
    elements.append(key(200, ["token", "masked"], ["trained", "frozen"]))
    alt = (
        "Three networks of two layers under a gap and two tokens. A trained prompt stands beside the tokens and "
        "goes through both frozen layers; a trained prefix stands before the text in each layer; LoRA's trained "
        "matrices are added to the weights of each layer, and nothing stands before the text."
    )
    return drawing(elements, 232, alt)


def memory_cell() -> Drawing:
    """A memory HMM with one cell: M, drawn once, acts on every token beside the token's state."""
    elements = [label(12, 12, "syntax: moves on", anchor="start"), chain(31, 46, 72, 4)]
    for i, x in enumerate((103, 175, 247, 319), 1):
        elements += [arrow([(x, 67), (x, 92)]), token(x, 114, f"`X`_{i}", f"X_{i}")]
        elements.append(arrow([(x, 164), (x, 136)], MEMORY))
    bar = frame(211, 182, 270, 36, MEMORY, "highlighted", corner=18)
    elements.append(named("M", "", bar + label(211, 182, "`M`", 14)))
    elements.append(label(12, 216, "memory: drawn once, kept for the whole text", anchor="start"))
    elements.append(key(244, ["hidden", "token", "memory"]))
    alt = "A chain of hidden states H0 to H4. Each token has arrows from its state and from one memory M."
    return drawing(elements, 258, alt)


def memory_cells(lookups: Sequence[int] = (1, 3, 1, 2), n_cells: int = 3) -> Drawing:
    """A memory HMM with two to four cells: the state H_i = (J_i, S_i) chooses the cell that its token sees.

    `lookups` are J_1, J_2, …, at most 4, each from 1 to `n_cells`.
    """
    elements, seen, last = [], [], 27 + 74 * len(lookups)
    bars = [194 + 32 * j for j in range(n_cells)]
    for j, y in enumerate(bars, 1):
        bar = frame((last + 27) / 2, y, last + 21, 22, MEMORY, "highlighted", corner=11)
        elements.append(named(f"M_{j}", "", bar + label(30, y, f"`M`_{j}", 14)))
    for i, j in enumerate([0, *lookups]):
        x, index = 27 + 74 * i, f"`J`_{i} = {j}" if i else "`J`_0"
        state = frame(x, 52, 50, 50, PAGE, corner=22) + label(x, 42, index) + label(x, 60, f"`S`_{i}")
        elements += [label(x, 14, f"`H`_{i}"), named(f"H_{i}", "", state)]
        if i:
            elements += [arrow([(x - 47, 52), (x - 27, 52)]), arrow([(x, 78), (x, 102)])]
            elements += [token(x, 124, f"`X`_{i}", f"X_{i}"), arrow([(x, bars[j - 1]), (x, 147)], MEMORY)]
            elements.append(f'<g data-lookup="{i}" data-cell="{j}">{dot(x, bars[j - 1], 5)}</g>')
            seen.append(f"token {i} sees cell {j}")
    elements.append(key(bars[-1] + 34, ["hidden", "token", "memory"], ["lookup"]))
    alt = (
        f"A chain of hidden states H0 to H{len(lookups)}, each a pair of a cell index J and a syntax state S. "
        f"Below the tokens the memory cells M1 to M{n_cells} as bars through the whole text; {', '.join(seen)}."
    )
    return drawing(elements, bars[-1] + 68, alt)
