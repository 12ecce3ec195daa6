"""The benchmarks' page: its tables, its picture and the numbers in its sentences, all from the stored results."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from docutils import nodes
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from pictures import inlined
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from hmmlib import figures

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
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


def depend(env, name: str) -> None:
    """Write the page anew when a result changes, or what turns it into tables and sentences."""
    for path in (tables.RESULTS / f"{name}.json", Path(tables.__file__), Path(__file__)):
        env.note_dependency(str(path))


class FromResults(SphinxDirective):
    """Something made of stored results; subclasses name the benchmarks and make it. Without results, a warning."""

    def run(self):
        for name in self.benchmarks():
            depend(self.env, name)
        try:
            return [self.made()]
        except (KeyError, ValueError) as error:
            log.warning("%s %s: %s", self.name, " ".join(self.arguments), error, location=self.get_location())
            return []

    def benchmarks(self):
        return [*tables.TABLES]


class BenchmarkTable(FromResults):
    """One of a benchmark's tables: `{benchmark-table} BENCHMARK NAME`."""

    required_arguments = 2

    def benchmarks(self):
        return self.arguments[:1]

    def made(self):
        benchmark, name = self.arguments
        return as_nodes(tables.TABLES[benchmark](tables.load(benchmark))[name])


class SlowerTable(FromResults):
    """Every contest that a peer won."""

    def made(self):
        return as_nodes(tables.slower(map(tables.load, tables.TABLES)))


def as_nodes(found: tables.Table) -> nodes.table:
    table = nodes.table(classes=["benchmark"])
    group = nodes.tgroup(cols=len(found.columns))
    group += [nodes.colspec(colwidth=1) for _ in found.columns]
    lines = found.rows or [("none", *[""] * (len(found.columns) - 1))]
    head, *body = ([nodes.entry("", nodes.paragraph(text=cell)) for cell in line] for line in (found.columns, *lines))
    group += nodes.thead("", nodes.row("", *head))
    group += nodes.tbody("", *(nodes.row("", *entries) for entries in body))
    table += group
    return table


class BenchmarkFigure(FromResults):
    """Seconds against states, ours, the peers' and the bounds': `{benchmark-figure} DTYPE THREADS`."""

    required_arguments = 2

    def benchmarks(self):
        return ["posteriors"]

    def made(self):
        dtype, threads = self.arguments[0], int(self.arguments[1])
        rows = tables.chosen(tables.load("posteriors")["rows"], what="posteriors", dtype=dtype, threads=threads)
        drawing = io.StringIO()
        with plt.rc_context():
            figures.use_style()
            against_states(rows).savefig(drawing, format="svg", metadata={"Date": None})
        words = (
            f"Seconds for all posteriors of {rows[0]['n']} sequences of {rows[0]['length']} tokens against the number of "
            f"hidden states, in {dtype} on {threads} threads: {'; '.join(LINES)}."
        )
        # In a box like that of a notebook's output, which scrolls where the page is narrow.
        return nodes.raw("", f'<div class="cell_output">{inlined(drawing.getvalue(), words)}</div>', format="html")


def against_states(rows: list[dict]) -> Figure:
    """Each contestant's median seconds for all tokens, on logarithmic axes."""
    figure, axes = plt.subplots(figsize=(6.2, 4.2))
    for name, (colour, marker, line) in LINES.items():
        points = [(row["states"], tables.by_name(row).get(name, {}), tables.own(row)["work"]) for row in rows]
        seconds = [(states, one["median"] * work / one["work"]) for states, one, work in points if "median" in one]
        axes.plot(*zip(*seconds, strict=True), color=colour, marker=marker, linestyle=line, markersize=5, label=name)
    sizes = [row["states"] for row in rows]
    axes.set(xscale="log", yscale="log", xlabel="hidden states", ylabel="seconds")
    axes.set_xticks(sizes, [f"{size}" for size in sizes], minor=False)
    axes.minorticks_off()
    figures.legend_below(axes, columns=2, offset=0.16)
    return figures.done(figure)


class Measured(SphinxRole):
    """A phrase from the stored results, by its name in `tables.phrases`."""

    def run(self):
        for name in tables.TABLES:
            depend(self.env, name)
        try:
            return [nodes.Text(tables.phrases()[self.text])], []
        except (KeyError, ValueError) as error:
            log.warning("nothing measured as %s: %s", self.text, error, location=self.get_location())
            return [], []


def setup(app) -> dict[str, bool]:
    app.add_directive("benchmark-table", BenchmarkTable)
    app.add_directive("benchmark-figure", BenchmarkFigure)
    app.add_directive("slower-table", SlowerTable)
    app.add_role("measured", Measured())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
