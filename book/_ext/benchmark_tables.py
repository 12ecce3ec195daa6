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
from pandas import DataFrame
from pictures import in_a_box
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import phrases
import tables

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


def sources() -> list[Path]:
    """The page is written anew when a result changes, or what turns results into tables and sentences."""
    results = [tables.RESULTS / f"{name}.json" for name in tables.TABLES]
    return [*results, *Path(tables.__file__).parent.glob("*.py"), Path(__file__)]


class FromResults(SphinxDirective):
    """Something made of stored results; subclasses make it. Without results, a warning."""

    sources = staticmethod(sources)

    def run(self):
        for path in self.sources():
            self.env.note_dependency(str(path))
        try:
            return self.made()
        except (KeyError, ValueError) as error:
            log.warning("%s %s: %s", self.name, " ".join(self.arguments), error, location=self.get_location())
            return []


class Measured(SphinxRole):
    """A phrase from stored results, by its name in what `phrases` returns."""

    def __init__(self, phrases: Callable[[], dict[str, str]], sources: Callable[[], list[Path]]):
        super().__init__()
        self.phrases, self.sources = phrases, sources

    def run(self):
        for path in self.sources():
            self.env.note_dependency(str(path))
        found = self.env.temp_data  # of this page
        try:
            found[self.name] = found.get(self.name) or self.phrases()
            return [nodes.Text(found[self.name][self.text])], []
        except (KeyError, ValueError) as error:
            log.warning("nothing measured as %s: %s", self.text, error, location=self.get_location())
            return [], []


def as_nodes(table: DataFrame, code: str = "") -> nodes.table:
    """The table for the page; the cells of the column `code` hold code."""

    def line(texts) -> nodes.row:
        cells = [
            nodes.literal(text=text) if name == code and text not in ("", name) else nodes.Text(text)
            for name, text in zip(table.columns, texts, strict=True)
        ]
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

    width = len(table.columns)
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in range(width)), cols=width)
    lines = table.to_numpy().tolist() or [["none", *[""] * (width - 1)]]
    group += [nodes.thead("", line(table.columns)), nodes.tbody("", *map(line, lines))]
    return nodes.table("", group, classes=["benchmark"])


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
        if "if-any" in self.options and found.empty:
            return []
        return [*self.parse_content_to_nodes(), as_nodes(found)]


class SlowerTable(FromResults):
    """Every contest that a peer won."""

    def made(self):
        return [as_nodes(phrases.slower())]


class ResultsFigure(FromResults):
    """`{benchmark-figure} NAME`: seconds against states, excess loss against time, or how long one waits."""

    required_arguments = 1

    def made(self):
        drawing = io.StringIO()
        with plt.rc_context():
            figures.use_style()
            figure, words = {"states": against_states, "learning": against_time, "waits": as_waits}[self.arguments[0]]()
            figure.savefig(drawing, format="svg", metadata={"Date": None})
        return [in_a_box(drawing.getvalue(), words)]


def as_waits() -> tuple[Figure, str]:
    """A line for each piece of work: a dot for ours and, farther along, a square for the fastest other library."""
    found = phrases.waits()
    figure, axes = plt.subplots(figsize=(4.5, 0.62 * len(found) + 0.9))
    for k, wait in enumerate(found.itertuples()):
        height, first = len(found) - k, k == 0
        far = wait.theirs if wait.other else wait.ours
        axes.text(LEFT, height + 0.2, wait.what, fontsize=11, va="bottom")
        axes.plot([wait.ours, far], [height] * 2, color=figures.SOFT, linewidth=1, zorder=1)
        dot = dict(marker="o", linestyle="", markersize=7, label="hmmlib" if first else None)
        axes.plot(wait.ours, height, color=figures.BLUE, **dot)
        near = dict(va="center", fontsize=10, textcoords="offset points")
        axes.annotate(phrases.in_words(wait.ours), (wait.ours, height), xytext=(-8, 0), ha="right", **near)
        if wait.other:
            square = dict(marker="s", linestyle="", markersize=6, label="fastest other library" if first else None)
            axes.plot(far, height, color=figures.ORANGE, **square)
            axes.annotate(f"{phrases.in_words(far)}, {wait.other}", (far, height), xytext=(8, 0), **near)
    axes.set(xscale="log", xlim=(LEFT, 2000), ylim=(0.5, len(found) + 0.8), yticks=[])
    axes.set_xticks([0.01, 0.1, 1, 10, 60, 600], ["10 ms", "0.1 s", "1 s", "10 s", "1 min", "10 min"], minor=False)
    axes.minorticks_off()
    axes.grid(axis="x", color=figures.SOFT, alpha=0.35, linewidth=0.7)
    axes.spines["left"].set_visible(False)
    figures.legend_below(figure)
    return figures.finish(
        figure
    ), f"How long one waits, on a logarithmic scale of seconds. {'; '.join(found['words'])}."


def against_time() -> tuple[Figure, str]:
    """A panel for each number of states, a line for each side and seed."""
    rows, step = tables.load("learning-curves")["rows"], tables.step_seconds()
    sizes = sorted({row["states"] for row in rows})
    figure, panels = plt.subplots(1, len(sizes), figsize=(5.4, 3), sharey=True, squeeze=False)
    for states, axes in zip(sizes, panels[0], strict=True):
        for k, (name, seconds, excess) in enumerate(tables.points(rows, step, states)):
            colour, marker = SIDES[name]
            label = name if k < len(SIDES) else None
            axes.plot(seconds, excess, color=colour, marker=marker, markersize=5, label=label)
        axes.set(yscale="log", xlabel="seconds", title=f"{states} states")
    panels[0][0].set_ylabel("excess loss, nats")
    figures.legend_below(figure)
    words = "Excess loss of pretrainings of several lengths against their seconds, hmmlib's and the Trainer's."
    return figures.finish(figure), words


def against_states() -> tuple[Figure, str]:
    """Each contestant's median seconds for all posteriors, in float64 on two threads, on logarithmic axes."""
    found = tables.contestants(tables.load("posteriors"), what="posteriors", dtype="float64", threads=2)
    n, length = found.iloc[0][["n", "length"]]
    figure, axes = plt.subplots(figsize=(5.4, 3.6))
    for name, (colour, marker, line) in LINES.items():
        one = found[found["name"] == name].dropna(subset="each")
        style = dict(color=colour, marker=marker, linestyle=line, markersize=5, label=name)
        axes.plot(one["states"], one["each"] * n * length, **style)
    sizes = found["states"].unique()
    axes.set(xscale="log", yscale="log", xlabel="hidden states", ylabel="seconds")
    axes.set_xticks(sizes, [f"{size}" for size in sizes], minor=False)
    axes.minorticks_off()
    figures.legend_below(figure)
    words = (
        f"Seconds for all posteriors of {n} sequences of {length} tokens against the number of "
        f"hidden states, in float64 on 2 threads: {'; '.join(LINES)}."
    )
    return figures.finish(figure), words


def setup(app) -> dict[str, bool]:
    app.add_directive("benchmark-table", BenchmarkTable)
    app.add_directive("benchmark-figure", ResultsFigure)
    app.add_directive("slower-table", SlowerTable)
    app.add_role("measured", Measured(phrases.phrases, sources))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
