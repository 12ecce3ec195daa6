"""The ledger and the list of equations as tables, from what `make book` has just checked."""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

log = logging.getLogger(__name__)

LEDGER = "build/ledger.json"


class FromLedger(SphinxDirective):
    """A table made from the ledger; subclasses name its columns and turn one record into cells, lists of paragraphs."""

    columns: tuple[str, ...]
    widths: tuple[int, ...]
    part: str

    def run(self):
        path = Path(self.env.app.srcdir, LEDGER)
        for source in (path, Path(__file__)):
            self.env.note_dependency(str(source))
        if not path.is_file():
            log.warning("no ledger: %s is missing (run `make book`)", path, location=self.env.docname)
            return []
        table = nodes.table(classes=["ledger"])
        group = nodes.tgroup(cols=len(self.columns))
        group += [nodes.colspec(colwidth=width) for width in self.widths]
        group += nodes.thead("", self.row([[[nodes.Text(name)]] for name in self.columns]))
        group += nodes.tbody("", *(self.row(self.cells(e)) for e in json.loads(path.read_text())[self.part]))
        table += group
        return [table]

    @staticmethod
    def row(cells):
        entries = ([nodes.paragraph("", "", *part) for part in cell] for cell in cells)
        return nodes.row("", *(nodes.entry("", *paragraphs) for paragraphs in entries))

    def derived(self, text, record):
        """A link to the box or equation on the page that derives it."""
        label = record["label"]
        anchor = nodes.make_id(f"equation-{label}") if "-eq-" in label else label
        uri = self.env.app.builder.get_relative_uri(self.env.docname, record["page"]) + f"#{anchor}"
        return nodes.reference("", text, refuri=uri, internal=True)

    def code(self, record):
        """A link to the line of code, on the repository's main branch."""
        source, options = record["source"], self.env.app.config.html_theme_options
        uri = f"{options['repository_url']}/blob/{options['repository_branch']}/{source['path']}#L{source['line']}"
        return nodes.reference("", Path(source["path"]).name, refuri=uri, internal=False)


class LedgerTable(FromLedger):
    """One row for each statement: verdicts, evidence, and links to derivation and code."""

    columns = ("statement", "verdict", "evidence")
    widths = (30, 30, 40)
    part = "entries"

    def cells(self, entry):
        name = [
            self.derived(entry["name"], entry),
            nodes.Text(f". {entry['claim']} ("),
            self.code(entry),
            nodes.Text(")"),
        ]
        subject = "predicate and witness agree: " if entry["name"].startswith("Assumption") else ""
        verdict = [
            [nodes.Text(subject), nodes.strong("", entry["grade"]), nodes.Text(" (ours)" if entry["ours"] else "")]
        ]
        if entry["printed"] != entry["verdict"]:
            share = f"{entry['printed_failures']:,} of {entry['instances']:,} random instances"
            verdict += [[nodes.Text(f"as printed it is off in {share}")]]
        if entry["corrected"]:
            verdict += [[nodes.Text(f"{entry['verdict']} in this form: {entry['corrected']}")]]
        if entry["unneeded"]:
            verdict += [[nodes.Text(f"not needed: {entry['unneeded']}")]]
        return [[name], verdict, [[nodes.Text(text)] for text in self.evidence(entry)]]

    @staticmethod
    def evidence(entry):
        """Each kind of evidence in words: floating point, finite field, all patterns of zeros, negative control."""
        residual = "not a number" if entry["residual"] is None else f"{entry['residual']:.1e}"
        telling = f"{entry['telling']:,} of them not trivial"
        yield f"{entry['instances']:,} random instances, {telling}: residual {residual}, bound {entry['tolerance']:.0e}"
        if identity := entry["identity"]:
            points, largest = identity["points"] * len(identity["sizes"]), identity["sizes"][-1]
            what = "exact" if not identity["failures"] else f"{identity['failures']} entries off"
            yield f"finite field: {what} at {points} points, up to {largest[0]} states and length {largest[1]}"
        if patterns := entry["patterns"]:
            what = "all hold" if not patterns["failures"] else f"{patterns['failures']} fail"
            yield f"all patterns of zeros: {patterns['cases']:,} cases, {what} ({patterns['size']})"
        fails = "the model is refused" if entry["name"].startswith("Assumption") else "the conclusion fails"
        of = f"{entry['control_fails']} of {entry['control_instances']}"
        yield f"control: without “{entry['broken']}” {fails} in {of}"


class EquationTable(FromLedger):
    """One row for each numbered equation: where it is shown, and the line that computes it."""

    columns = ("equation", "what it says", "computed in")
    widths = (20, 50, 30)
    part = "equations"

    def cells(self, equation):
        return [
            [[self.derived(f"({equation['number']})", equation)]],
            [[nodes.Text(equation["words"])]],
            [[self.code(equation)]],
        ]


def setup(app) -> None:
    app.add_directive("ledger-table", LedgerTable)
    app.add_directive("equation-table", EquationTable)
