"""The benchmarks' page: its tables, its pictures and the numbers in its sentences, all from the stored results."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from companion.figures import figures
from docutils import nodes
from docutils.parsers.rst import directives
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from pictures import in_a_box
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import learning
import tables
from records import Table, by_name, chosen
from waits import Wait, in_words, waits

log = logging.getLogger(__name__)

LINES = {
    "hmmlib": (figures.BLUE, "o", "-"),
    "dynamax": (figures.ORANGE, "s", "-"),
    "dynamax, two filters": (figures.ORANGE, "D", "-."),
    "hmmlearn, scaling": (figures.GREEN, "^", "-"),
    "bytes, fresh": (figures.SOFT, "", ":"),
    "operations": (figures.INK, "", ":"),
}
"""Colour, marker and line of each contestant in the picture, in the order of its legend."""
SIDES = {"hmmlib": (figures.BLUE, "o"), "Trainer": (figures.ORANGE, "s")}
"""Colour and marker of both sides of the learning curves."""

LEFT = 0.004
"""Seconds at the left edge of the picture of waits."""


def depend(env) -> None:
    """Write the page anew when a result changes, or what turns results into tables and sentences."""
    results = (tables.RESULTS / f"{name}.json" for name in tables.TABLES)
    for path in (*results, *Path(tables.__file__).parent.glob("*.py"), Path(__file__)):
        env.note_dependency(str(path))


class FromResults(SphinxDirective):
    """Something made of stored results; subclasses make it. Without results, a warning."""

    depend = staticmethod(depend)

    def run(self):
        self.depend(self.env)
        try:
            return self.made()
        except (KeyError, ValueError) as error:
            log.warning("%s %s: %s", self.name, " ".join(self.arguments), error, location=self.get_location())
            return []


class BenchmarkTable(FromResults):
    """One of a benchmark's tables: `{benchmark-table} BENCHMARK NAME`, below the directive's text if it has some.

    With the option `if-any`, a table without rows is left out, and the text with it.
    """

    required_arguments = 2
    has_content = True
    option_spec: ClassVar = {"if-any": directives.flag}

    def made(self):
        benchmark, name = self.arguments
        found = tables.TABLES[benchmark](tables.load(benchmark))[name]
        if "if-any" in self.options and not found.rows:
            return []
        return [*self.parse_content_to_nodes(), as_nodes(found)]


class SlowerTable(FromResults):
    """Every contest that a peer won."""

    def made(self):
        return [as_nodes(tables.slower(map(tables.load, tables.TABLES)))]


def as_nodes(table: Table, code: int | None = None) -> nodes.table:
    """The table for the page; the cells of column number `code` hold code."""

    def cell(column: int, text: str) -> nodes.entry:
        shown = nodes.literal(text=text) if column == code and text else nodes.Text(text)
        return nodes.entry("", nodes.paragraph("", "", shown))

    drawn = nodes.table(classes=["benchmark"])
    group = nodes.tgroup(cols=len(table.columns))
    group += [nodes.colspec(colwidth=1) for _ in table.columns]
    lines = table.rows or [("none", *[""] * (len(table.columns) - 1))]
    group += nodes.thead("", nodes.row("", *(nodes.entry("", nodes.paragraph(text=name)) for name in table.columns)))
    group += nodes.tbody("", *(nodes.row("", *(cell(*one) for one in enumerate(line))) for line in lines))
    drawn += group
    return drawn


def as_picture(draw: Callable[..., Figure], *given, words: str) -> list[nodes.Node]:
    """What `draw` makes of what it is given, in the book's style; `words` are for who cannot see it."""
    drawing = io.StringIO()
    with plt.rc_context():
        figures.use_style()
        draw(*given).savefig(drawing, format="svg", metadata={"Date": None})
    return [in_a_box(drawing.getvalue(), words)]


class BenchmarkFigure(FromResults):
    """Seconds against states, ours, the peers' and the bounds': `{benchmark-figure} DTYPE THREADS`."""

    required_arguments = 2

    def made(self):
        dtype, threads = self.arguments[0], int(self.arguments[1])
        rows = chosen(tables.load("posteriors")["rows"], what="posteriors", dtype=dtype, threads=threads)
        words = (
            f"Seconds for all posteriors of {rows[0]['n']} sequences of {rows[0]['length']} tokens against the number of "
            f"hidden states, in {dtype} on {threads} threads: {'; '.join(LINES)}."
        )
        return as_picture(against_states, rows, words=words)


class LearningFigure(FromResults):
    """Excess loss against seconds, ours and the Trainer's."""

    def made(self):
        rows = tables.load("learning-curves")["rows"]
        words = "Excess loss of pretrainings of several lengths against their seconds, hmmlib's and the Trainer's."
        return as_picture(against_time, rows, tables.step_seconds(), words=words)


class WaitsFigure(FromResults):
    """How long whole pieces of work take, ours and with the fastest other library: `{waits-figure}`."""

    def made(self):
        found = waits({name: tables.load(name) for name in tables.TABLES})
        words = f"How long one waits, on a logarithmic scale of seconds. {'; '.join(map(str, found))}."
        return as_picture(as_waits, found, words=words)


def as_waits(found: list[Wait]) -> Figure:
    """A line for each piece of work: a dot for ours and, farther along, a square for the fastest other library."""
    figure, axes = plt.subplots(figsize=(4.5, 0.62 * len(found) + 0.9))
    for k, wait in enumerate(found):
        height = len(found) - k
        axes.text(LEFT, height + 0.2, wait.what, fontsize=11, va="bottom")
        axes.plot([wait.ours, wait.theirs or wait.ours], [height] * 2, color=figures.SOFT, linewidth=1, zorder=1)
        label = "hmmlib" if k == 0 else None
        axes.plot(wait.ours, height, color=figures.BLUE, marker="o", linestyle="", markersize=7, label=label)
        shown = dict(va="center", fontsize=10, textcoords="offset points")
        axes.annotate(in_words(wait.ours), (wait.ours, height), xytext=(-8, 0), ha="right", **shown)
        if wait.other:
            label = "fastest other library" if k == 0 else None
            axes.plot(wait.theirs, height, color=figures.ORANGE, marker="s", linestyle="", markersize=6, label=label)
            axes.annotate(f"{in_words(wait.theirs)}, {wait.other}", (wait.theirs, height), xytext=(8, 0), **shown)
    axes.set(xscale="log", xlim=(LEFT, 2000), ylim=(0.5, len(found) + 0.8), yticks=[])
    axes.set_xticks([0.01, 0.1, 1, 10, 60, 600], ["10 ms", "0.1 s", "1 s", "10 s", "1 min", "10 min"], minor=False)
    axes.minorticks_off()
    axes.grid(axis="x", color=figures.SOFT, alpha=0.35, linewidth=0.7)
    axes.spines["left"].set_visible(False)
    figures.legend_below(figure)
    return figures.finish(figure)


def against_time(rows: list[dict], step: dict[str, float]) -> Figure:
    """A panel for each number of states, a line for each side and seed; `step`: seconds of a step of both sides."""
    sizes = sorted({row["states"] for row in rows})
    figure, panels = plt.subplots(1, len(sizes), figsize=(5.4, 3), sharey=True, squeeze=False)
    for states, axes in zip(sizes, panels[0], strict=True):
        labelled = set()
        for name, _, seconds, excess in learning.points(rows, step, states):
            colour, marker = SIDES[name]
            label = None if name in labelled else name
            axes.plot(seconds, excess, color=colour, marker=marker, markersize=5, label=label)
            labelled.add(name)
        axes.set(yscale="log", xlabel="seconds", title=f"{states} states")
    panels[0][0].set_ylabel("excess loss, nats")
    figures.legend_below(figure)
    return figures.finish(figure)


def against_states(rows: list[dict]) -> Figure:
    """Each contestant's median seconds for all tokens, on logarithmic axes."""
    figure, axes = plt.subplots(figsize=(5.4, 3.6))
    for name, (colour, marker, line) in LINES.items():
        points = [(row["states"], by_name(row).get(name, {}), tables.own(row)["work"]) for row in rows]
        seconds = [(states, one["median"] * work / one["work"]) for states, one, work in points if "median" in one]
        axes.plot(*zip(*seconds, strict=True), color=colour, marker=marker, linestyle=line, markersize=5, label=name)
    sizes = [row["states"] for row in rows]
    axes.set(xscale="log", yscale="log", xlabel="hidden states", ylabel="seconds")
    axes.set_xticks(sizes, [f"{size}" for size in sizes], minor=False)
    axes.minorticks_off()
    figures.legend_below(figure)
    return figures.finish(figure)


class Measured(SphinxRole):
    """A phrase from the stored results, by its name in what `phrases` returns."""

    def __init__(self, phrases: Callable[[], dict[str, str]], depend: Callable):
        super().__init__()
        self.phrases, self.depend = phrases, depend

    def run(self):
        self.depend(self.env)
        try:
            return [nodes.Text(self.phrases()[self.text])], []
        except (KeyError, ValueError) as error:
            log.warning("nothing measured as %s: %s", self.text, error, location=self.get_location())
            return [], []


def setup(app) -> dict[str, bool]:
    app.add_directive("benchmark-table", BenchmarkTable)
    app.add_directive("benchmark-figure", BenchmarkFigure)
    app.add_directive("learning-figure", LearningFigure)
    app.add_directive("waits-figure", WaitsFigure)
    app.add_directive("slower-table", SlowerTable)
    app.add_role("measured", Measured(tables.phrases, depend))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
