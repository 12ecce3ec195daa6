"""The drawings as data: what stands where, in which state, in which colours, and that nothing sticks out."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from colours import contrast
from companion.figures import drawings

GROUNDS = ("#ffffff", "#14181e", "#121212")  # white, and the dark theme's grounds
ALL = {
    "two states": drawings.hidden_chain(["", "rain", "rain", "sun"], masked=[1], highlight=[0]),
    "five steps": drawings.hidden_chain(["0", "1", "?", "2", "1"], masked=[3], highlight=[3]),
    "one step": drawings.hidden_chain(["sailor"]),
    "prompt": drawings.prompt_chain(),
    "setting": drawings.setting(),
    "tuners": drawings.tuners(),
    "one cell": drawings.memory_cell(),
    "cells": drawings.memory_cells(),
    "four cells, one token": drawings.memory_cells([4], 4),
}
EACH = pytest.mark.parametrize("picture", ALL.values(), ids=ALL)


def tree(picture):
    """The parsed drawing, its tags without the namespace."""
    root = ElementTree.fromstring(picture._repr_svg_())
    for element in root.iter():
        element.tag = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
    return root


def states(picture):
    """State of each named node."""
    return {g.get("data-node"): g.get("data-state") for g in tree(picture).iter("g") if g.get("data-node")}


def words(picture, node):
    """What a node reads."""
    (group,) = (g for g in tree(picture).iter("g") if g.get("data-node") == node)
    return "".join(group.itertext())


def extent(element):
    """(left, top, right, bottom) of one shape or text, letters taken as 0.62 of the font size wide; None for a
    group."""

    def at(*names):
        return [float(element.get(name)) for name in names]

    if element.tag == "text":
        (x, y, size), pieces = at("x", "y", "font-size"), list(element.itertext())
        wide = 0.62 * size * sum(len(piece.replace("\u0303", "")) for piece in pieces)
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")]
        return left, y - 0.8 * size, left + wide, y + (4 if len(element) else 0.2 * size)
    half = float(element.get("stroke-width", 0)) / 2
    if element.tag == "circle":
        x, y, r = at("cx", "cy", "r")
        xs, ys = (x - r, x + r), (y - r, y + r)
    elif element.tag == "rect":
        x, y, wide, high = at("x", "y", "width", "height")
        assert wide > 0
        assert high > 0
        xs, ys = (x, x + wide), (y, y + high)
    elif element.tag in ("path", "polygon"):
        text = element.get("d") or element.get("points")
        assert not re.search(r"[^ML\d., -]", text)  # absolute lines only, whose corners are all there is
        numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", text)]
        xs, ys = numbers[::2], numbers[1::2]
    else:
        assert element.tag in ("svg", "g", "tspan")
        return None
    return min(xs) - half, min(ys) - half, max(xs) + half, max(ys) + half


@EACH
def test_well_formed_named_and_nothing_sticks_out(picture):
    svg = tree(picture)
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == picture.alt
    assert len(picture.alt) > 40
    left, top, wide, high = map(float, svg.get("viewBox").split())
    assert float(svg.get("width")) == 1.25 * wide
    assert {"min-width: 0", "max-width: 100%", "height: auto"} <= set(svg.get("style").split("; "))
    assert not [e for e in svg.iter() if e.tag == "style" or e.get("id")]  # drawings can share a page
    for box in filter(None, map(extent, svg.iter())):
        assert left <= box[0]
        assert top <= box[1]
        assert box[2] <= left + wide
        assert box[3] <= top + high


@EACH
def test_texts_do_not_overlap_and_are_large_enough_on_a_phone(picture):
    svg = tree(picture)
    scale = min(1, 358 / float(svg.get("viewBox").split()[2]))
    assert min(float(e.get("font-size")) for e in svg.iter() if e.get("font-size")) * scale >= 11
    for a, b in combinations(map(extent, svg.iter("text")), 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


@EACH
def test_colours_are_seen_on_both_grounds(picture):
    used = {(e.tag, e.get(name)) for e in tree(picture).iter() for name in ("fill", "stroke") if e.get(name)}
    assert {colour for tag, colour in used if tag == "text"} == {"currentColor"}  # the page's own: 4.5 : 1 and more
    marks = {colour for _, colour in used} - {"currentColor", "none"}
    assert marks
    for colour in marks:
        assert min(contrast(colour, ground) for ground in GROUNDS) >= 3, colour


@pytest.mark.parametrize(("masked", "highlight"), [([], []), ([1], [0]), ([2, 4], [4]), ([1, 2, 3, 4], [0, 3])])
def test_the_chain_has_its_states_and_tokens(masked, highlight):
    tokens = ["<a>", "x_1", "`b`", "sun"]
    picture = drawings.hidden_chain(tokens, masked, highlight)
    found = states(picture)
    assert set(found) == {"H_0", *(f"{kind}_{i}" for i in range(1, 5) for kind in "HX")}
    assert [i for i in range(1, 5) if found[f"X_{i}"] == "masked"] == masked
    assert [i for i in range(5) if found[f"H_{i}"] == "highlighted"] == highlight
    assert [words(picture, f"X_{i}") for i in range(1, 5)] == [
        "mask" if i in masked else token for i, token in enumerate(tokens, 1)
    ]
    assert [words(picture, f"H_{i}") for i in range(5)] == [f"H{i}" for i in range(5)]
    assert picture.svg.count("<polygon") == 8  # an arrow into each state but the first, and into each token
    key = "".join(tree(picture).itertext())
    assert ("masked token" in key) == bool(masked)
    assert ("in question" in key) == bool(highlight)


def test_what_is_trained_and_what_is_frozen():
    for name, trained, frozen, highlighted in (
        ("prompt", ["X_1", "b"], ["G"], ["H_2"]),
        ("setting", ["u", "b"], ["G"], ["H_0"]),
        (
            "tuners",
            ["prompt 0", "prefix 1", "prefix 2", "LoRA 1", "LoRA 2"],
            [f"{name} layer {k}" for name in ("prompt", "prefix", "LoRA") for k in (1, 2)],
            [],
        ),
    ):
        found = states(ALL[name])
        for state, nodes in (("trained", trained), ("frozen", frozen), ("highlighted", highlighted)):
            assert {node for node, other in found.items() if other == state} == set(nodes), (name, state)


def test_what_is_tuned_stands_before_the_text_or_in_each_layer_or_beside_its_weights():
    boxes = {g.get("data-node"): extent(g.find("rect")) for g in tree(ALL["tuners"]).iter("g") if g.get("data-node")}
    assert boxes["prompt layer 1"][0] < boxes["prompt 0"][2] < boxes["prompt X_0"][0]
    assert boxes["prefix 1"][2] < boxes["prefix layer 1"][0] < boxes["prefix X_0"][0]
    tips = [e for e in tree(ALL["tuners"]).iter("polygon") if e.get("fill") == drawings.RED]
    assert len(tips) == 2  # into the layers of the prefix; LoRA is added with a plus


def test_one_cell_acts_on_every_token():
    picture = ALL["one cell"]
    found, green = states(picture), drawings.GREEN
    assert {name for name in found if name[0] == "X"} == {f"X_{i}" for i in range(1, 5)}
    assert "M" in found
    tips = [e.get("points").split()[0] for e in tree(picture).iter("polygon") if e.get("fill") == green]
    assert [float(tip.split(",")[0]) for tip in tips] == [103 + 72 * i for i in range(4)]


@pytest.mark.parametrize(("lookups", "n_cells"), [([1, 3, 1, 2], 3), ([2], 2), ([4, 4, 1], 4)])
def test_each_token_sees_the_cell_that_its_state_names(lookups, n_cells):
    picture = drawings.memory_cells(lookups, n_cells)
    svg, found = tree(picture), states(picture)
    assert [name for name in found if name[0] == "M"] == [f"M_{j}" for j in range(1, n_cells + 1)]
    bars = {g.get("data-node"): extent(g.find("rect")) for g in svg.iter("g") if g.get("data-node", "").startswith("M")}
    for i, j in enumerate(lookups, 1):
        assert words(picture, f"H_{i}") == f"J{i} = {j}S{i}"
        (dot,) = (g.find("circle") for g in svg.iter("g") if g.get("data-lookup") == str(i))
        left, top, right, bottom = extent(dot)
        inside = {name: b[0] < left and b[1] < top and right < b[2] and bottom < b[3] for name, b in bars.items()}
        assert [name for name, so in inside.items() if so] == [f"M_{j}"]
