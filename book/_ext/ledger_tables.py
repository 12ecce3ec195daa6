"""The ledger and the list of equations as tables, from what `make book` has just checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from api_reference import function_of, link_to
from docutils import nodes
from ledger_words import HYPOTHESES, RULINGS, evidence, is_assumption, kind, reasons, ruling, without
from machine_proofs import link_to_line, proofs_of_book
from reading import folded
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

import portable

log = logging.getLogger(__name__)

LEDGER = "build/ledger.json"
SUBSCRIPT = re.compile(r"(?<=\b[A-Z])_([A-Z])\b")
"""A letter as a subscript, such as the J of M_J."""

Part = str | nodes.Node
Paragraph = list[Part]
Cell = str | list[Paragraph]
"""What stands in a cell of a table: one paragraph of text, or paragraphs of texts and nodes."""


def read(env) -> dict | None:
    """Read the ledger, on which the page then depends; None where there is none."""
    path = Path(env.srcdir, LEDGER)
    env.note_dependency(str(path))
    return json.loads(path.read_text(encoding="utf8")) if path.is_file() else None


# Rows


def with_subscripts(part: Part) -> list[nodes.Node]:
    """Turn a text into nodes. A node is left as it is."""
    if isinstance(part, nodes.Node):
        return [part]
    pieces = []
    for k, piece in enumerate(SUBSCRIPT.split(part)):
        pieces.append(nodes.subscript("", piece) if k % 2 else nodes.Text(piece))
    return pieces


def table_cell(cell: Cell) -> nodes.entry:
    """Make a cell of a table."""
    paragraphs = [[cell]] if isinstance(cell, str) else cell
    entry = nodes.entry()
    for parts in paragraphs:
        paragraph = nodes.paragraph()
        for part in parts:
            paragraph += with_subscripts(part)
        entry += paragraph
    return entry


def table_row(*cells: Cell) -> nodes.row:
    """Make a row of a table."""
    return nodes.row("", *map(table_cell, cells))


# Directives


class Counted(SphinxRole):
    """The role `{counted}`: a number that the ledger gives, by its name."""

    def run(self):
        ledger = read(self.env) or {"entries": []}
        counts = dict.fromkeys(("results", "assumptions", "ours", "freer", "instances"), 0)
        for entry in ledger["entries"]:
            if is_assumption(entry):
                counts["assumptions"] += 1
            elif not entry["ours"]:
                counts["results"] += 1
            if entry["ours"]:
                counts["ours"] += 1
            if entry["unneeded"]:
                counts["freer"] += 1
            counts["instances"] = max(counts["instances"], entry["instances"])
        return [nodes.Text(f"{counts[self.text]:,}")], []


class FromLedger(SphinxDirective):
    """A table made from the ledger. Subclasses name its columns with their widths, and make its rows."""

    columns: tuple[tuple[str, int], ...]
    classes = ("plain",)

    def rows(self, ledger: dict) -> Iterator[nodes.row]:
        raise NotImplementedError

    def run(self):
        ledger = read(self.env)
        if ledger is None:
            log.warning("no ledger: %s is missing (run `make book`)", LEDGER, location=self.env.docname)
            return []
        names = []
        group = nodes.tgroup(cols=len(self.columns))
        for name, width in self.columns:
            names.append(name)
            group += nodes.colspec(colwidth=width)
        group += nodes.thead("", table_row(*names))
        group += nodes.tbody("", *self.rows(ledger))
        return [nodes.table("", group, classes=["ledger", "stacked", *self.classes])]

    def derived(self, text: str, record: dict) -> nodes.reference:
        """Link to the box or the equation on the page that derives it."""
        anchor = record["label"]
        if "-eq-" in anchor:
            anchor = nodes.make_id(f"equation-{anchor}")
        uri = self.env.app.builder.get_relative_uri(self.env.docname, record["page"]) + f"#{anchor}"
        return nodes.reference("", text, refuri=uri, internal=True)

    def statements(self, entries: list[dict]) -> Paragraph:
        """Link to where statements are derived, with commas between the links; a dash where there are none."""
        parts = []
        for entry in entries:
            if parts:
                parts.append(", ")
            parts.append(self.derived(entry["name"], entry))
        return parts or ["–"]

    def code(self, record: dict) -> nodes.reference:
        """Link to the line of code, on the repository's main branch."""
        return link_to_line(self.config, record["source"], Path(record["source"]["path"]).name)


class LedgerTable(FromLedger):
    """One row for each statement: ruling, evidence, of which all but the first is folded, links to derivation and code.

    The classes of a row are ruling and kind.
    """

    columns = (("statement", 32), ("verdict", 28), ("evidence", 40))
    classes = ("statements",)

    def rows(self, ledger):
        proofs = proofs_of_book(self.env)
        for entry in ledger["entries"]:
            verdict = [[nodes.strong("", ruling(entry))]]
            if entry["ours"] and not is_assumption(entry):
                verdict[0].append(" (a statement of ours)")
            verdict += [[sentence] for sentence in reasons(entry)]
            lines = [[line] for line in evidence(entry)]
            numbered = portable.name(entry["label"])
            if numbered in proofs:
                proof = link_to_line(self.config, proofs[numbered], "these lines")
                lines.insert(1, ["Proved by machine in ", proof, "."])
            row = table_row([self.claim(entry)], verdict, lines)
            evidence_cell = row[-1]
            evidence_cell[1:] = folded("More evidence", "evidence", evidence_cell[1:])
            ruling_class = f"ruling-{ruling(entry)}".replace(" ", "-")
            row["classes"] += [ruling_class, f"kind-{kind(entry)}"]
            yield row

    def claim(self, entry: dict) -> Paragraph:
        """Say what a statement claims, with links to its derivation, its construction and its code."""
        parts = [self.derived(entry["name"], entry), f". {entry['claim']} ("]
        function = function_of(entry["name"])
        if function:
            parts += [link_to(self.env.docname, function), ", "]
        return [*parts, self.code(entry), ")"]


class LedgerSummary(FromLedger):
    """How many of the paper's statements have which ruling, and which these are."""

    columns = (("verdict", 24), ("how many", 14), ("which", 62))

    def rows(self, ledger):
        for name in RULINGS:
            entries = [entry for entry in ledger["entries"] if ruling(entry) == name]
            ours = [entry for entry in entries if entry["ours"]]
            count = str(len(entries) - len(ours))
            if ours:
                count += f", and {len(ours)} of ours"
            linked = self.statements(entries) if entries else []
            yield table_row([[nodes.strong("", name)]], count, [linked])


class EvidenceTable(FromLedger):
    """How many of the paper's results have each kind of evidence, and which have not."""

    columns = (("evidence", 24), ("results", 14), ("which have none", 62))
    kinds = (
        ("floating point", "instances"),
        ("negative control", "control_instances"),
    )

    def rows(self, ledger):
        results = [entry for entry in ledger["entries"] if not entry["ours"] and not is_assumption(entry)]
        for title, field in self.kinds:
            lacking = [entry for entry in results if not entry[field]]
            count = f"{len(results) - len(lacking)} of {len(results)}"
            yield table_row(title, count, [self.statements(lacking)])
        proofs = proofs_of_book(self.env)
        unproved = [entry for entry in results if entry["name"] not in proofs]
        count = f"{len(results) - len(unproved)} of {len(results)}"
        yield table_row("proof by machine", count, [self.statements(unproved)])


class UnneededTable(FromLedger):
    """Each hypothesis of the paper that a statement turned out not to need, or not in full, and which statements."""

    columns = (("hypothesis", 20), ("not needed at all by", 40), ("not needed in full by", 40))
    classes = ()

    def rows(self, ledger):
        for hypothesis in HYPOTHESES:
            not_at_all, not_in_full = without(hypothesis, ledger["entries"])
            if not_at_all or not_in_full:
                yield table_row(hypothesis, [self.statements(not_at_all)], [self.statements(not_in_full)])


class EquationTable(FromLedger):
    """One row for each numbered equation: where it is shown, and the line that computes it."""

    columns = (("equation", 20), ("what it says", 50), ("computed in", 30))
    classes = ("plain", "equations")

    def rows(self, ledger):
        for equation in ledger["equations"]:
            shown = self.derived(f"({equation['number']})", equation)
            yield table_row([[shown]], equation["words"], [[self.code(equation)]])


def setup(app) -> None:
    app.add_directive("ledger-table", LedgerTable)
    app.add_directive("ledger-summary", LedgerSummary)
    app.add_directive("evidence-table", EvidenceTable)
    app.add_directive("unneeded-table", UnneededTable)
    app.add_directive("equation-table", EquationTable)
    app.add_role("counted", Counted())
