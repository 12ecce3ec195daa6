"""How all static figures look: what colours and markers stand for, and how a figure gets its legend."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from hmmbook.figures.tables import subscripts

Names = Sequence[str]
Numbers = Sequence[float]
Labels = Sequence[bool]

# Colours. A colour has one meaning on all pages, and is never the only sign of it.

LABEL_1 = "#0072b2"
LABEL_0 = "#b97f00"
MEMORY = "#009e73"
"""Memory cells, and models with memory."""
TRAINED = "#d55e00"
"""Prompts, which are trained."""
HEAD = "#b0479c"
FIRST = "#7d7a1c"
"""With SECOND, two things that have no colour of their own, such as two states or two fits."""
SECOND = "#6c62c4"
SOFT = "#748491"
"""Texts, tokens, hidden states, and models without memory."""
INK = "#22303c"
"""Words; and, dashed, whatever is exact."""
ROLES = {
    "label-1": LABEL_1,
    "label-0": LABEL_0,
    "memory": MEMORY,
    "trained": TRAINED,
    "head": HEAD,
    "first": FIRST,
    "second": SECOND,
    "soft": SOFT,
    "ink": INK,
}
"""The colours by their names in companion.css."""
LABELS = ((True, LABEL_1, "o"), (False, LABEL_0, "s"))
"""Each label with its colour and marker."""


# Series


class Style(NamedTuple):
    """How a series is drawn."""

    colour: str
    marker: str
    dashes: str


TUNED_HEAD = Style(HEAD, "s", "-")
TUNED_PROMPT = Style(TRAINED, "o", "-")
CONSTRUCTED_HEAD = Style(INK, "x", "--")
MEMORY_MODEL = Style(MEMORY, "o", "-")
VANILLA_MODEL = Style(SOFT, "s", "--")
TRIVIAL_LOSS = Style(INK, "", ":")
LEAST_LOSS = Style(INK, "", "--")
STYLES = {
    "texts of label 1": Style(LABEL_1, "o", "-"),
    "texts of label 0": Style(LABEL_0, "s", "-"),
    "head tuning": TUNED_HEAD,
    "head tuned on the network": TUNED_HEAD,
    "head": TUNED_HEAD,
    "tuned head": TUNED_HEAD,
    "prompt tuning": TUNED_PROMPT,
    "prompt tuned on the network": TUNED_PROMPT,
    "prompt and head": TUNED_PROMPT,
    "tuned prompt and head": TUNED_PROMPT,
    "prompt of 20 vectors": TUNED_PROMPT,
    "prompt of one vector": Style(TRAINED, "^", ":"),
    "head tuned on the exact G": Style(HEAD, "^", "--"),
    "prompt tuned on the exact Ḡ": Style(TRAINED, "D", "--"),
    "head of Theorem 3.3": CONSTRUCTED_HEAD,
    "linear programs' head": CONSTRUCTED_HEAD,
    "memory HMM + attention head": MEMORY_MODEL,
    "memory, attention head": MEMORY_MODEL,
    "memory, 7 values": MEMORY_MODEL,
    "value that was drawn": MEMORY_MODEL,
    "memory, linear head": Style(MEMORY, "s", "--"),
    "vanilla, attention head": Style(SOFT, "o", "-"),
    "vanilla HMM + linear head": VANILLA_MODEL,
    "vanilla, linear head": VANILLA_MODEL,
    "first state, 28 states": Style(SOFT, "s", "-"),
    "probe on the hidden state": Style(INK, "x", "-"),
    "probe, fresh weights": Style(SOFT, "v", ":"),
    "nearest reweighting": Style(SECOND, "^", "-"),
    "nearest relabelling": Style(FIRST, "D", "-"),
    "no change (W p)": Style(INK, "v", ":"),
    "network's error without a prompt": Style(SOFT, "x", ":"),
    "frequencies only": TRIVIAL_LOSS,
    "token frequencies": TRIVIAL_LOSS,
    "exact conditionals": LEAST_LOSS,
    "least possible": LEAST_LOSS,
}
"""The style of each series that has a meaning of its own, the same on all pages."""
COLOURS = (SOFT, FIRST, SECOND, INK, SOFT, INK)
"""The colours of series that have no such meaning, by their number in the figure."""
MARKERS = "os^Dxv"
HATCHES = ("", "///", "...", "xxx")
DASHES = ("-", "--", ":", "-.")


def style(name: str, k: int = 0) -> Style:
    """Return the style of a series, by its name, or else by its number in the figure.

    Args:
        name: The name of the series.
        k: Its number in the figure, counted from 0.
    """
    return STYLES.get(name, Style(COLOURS[k], MARKERS[k], "-"))


# Type, and a figure's last touches

TYPE = 12
"""The size of words in points. In a figure of 5.4 inches that is about 11 pixels on a phone."""
SMALL = 12
"""The size of the words beside marks."""


def use_style() -> None:
    """Give all figures one look: vectors, no box, labels in ink. A notebook calls it once."""
    plt.rc("figure", dpi=110)
    plt.rc("font", size=TYPE)
    plt.rc("axes", edgecolor=SOFT, labelcolor=INK, titlelocation="left", titlesize=12)
    plt.rc("axes.spines", right=False, top=False)
    plt.rc("legend", fontsize=SMALL, frameon=False)
    plt.rc("hatch", color="white")
    plt.rc("lines", linewidth=1.8)
    # Text stays text, which is light and searchable, and takes the page's own font.
    plt.rc("svg", fonttype="none", hashsalt="hmmlib")
    plt.rc("text", color=INK)
    plt.rc(("xtick", "ytick"), color=INK, labelsize=11)
    with suppress(ImportError):
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})


def marks_of(*every: Axes) -> dict[str, Artist]:
    """Return what a legend of some axes shows, each name once."""
    marks = {}
    for axes in every:
        for mark, name in zip(*axes.get_legend_handles_labels(), strict=True):
            marks[name] = mark
    return marks


def finish(figure: Figure, legend: int = 0) -> Figure:
    """Put a legend below a figure, make the figure longer by it, and close the figure.

    After further marks are drawn, it is called again, and the new legend takes the place of the old one. A notebook
    shows a closed figure once, as the value of a cell.

    Args:
        figure: The figure.
        legend: The most columns that the legend may have, or 0 for no legend.

    Returns:
        The figure.
    """
    marks = marks_of(*figure.axes)
    names = list(map(subscripts, marks))
    for old in list(figure.legends):
        figure.set_figheight(figure.get_figheight() - old.get_window_extent().height / figure.dpi)
        old.remove()
    for columns in range(legend, 0, -1):
        new = figure.legend(marks.values(), names, loc="lower center", ncol=columns, fontsize=SMALL)
        if columns == 1 or new.get_window_extent().width <= 0.95 * figure.bbox.width:
            break
        new.remove()
    height = sum(new.get_window_extent().height for new in figure.legends) / figure.dpi
    figure.set_figheight(figure.get_figheight() + height)
    for _ in range(2):  # What stands outside axes of equal scales is found the second time.
        figure.tight_layout(rect=(0, height / figure.get_figheight(), 1, 1))
    plt.close(figure)
    return figure


def name_ends(figure: Figure) -> Figure:
    """Finish a figure of one pair of axes with the name of each line beside its right end, in place of a legend."""
    (axes,) = figure.axes

    def end_of(item: tuple[str, Artist]) -> float:
        return item[1].get_ydata()[-1]

    lines = sorted(marks_of(axes).items(), key=end_of)
    ends = np.array(list(map(end_of, lines)))
    # Names are at least so far apart, and as near to the ends of their lines as that allows.
    offsets = np.arange(len(lines)) * 0.085 * np.ptp(axes.get_ylim())
    heights = isotonic_regression(ends - offsets).x + offsets
    right = axes.get_xlim()[1] + 0.03 * np.ptp(axes.get_xlim())
    for (name, line), end, height in zip(lines, ends, heights, strict=True):
        short_name = subscripts(name.replace(" tuning", ""))  # It has to fit on a phone.
        leader = dict(arrowstyle="-", color=line.get_color(), linewidth=1.2)
        leader |= dict(shrinkA=0, shrinkB=3)
        tip = (line.get_xdata()[-1], end)
        axes.annotate(short_name, tip, (right, height), va="center", fontsize=SMALL, arrowprops=leader)
    figure.set_figwidth(5.5)
    return finish(figure)
