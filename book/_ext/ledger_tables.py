"""The ledger and the list of equations as tables, from what `make book` has just checked; and tables on a phone.

There each row of a table of the class `stacked` is a block, and each cell has its column's name: it is an attribute,
which companion.css shows where the page is narrow.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

from api_reference import function_of, link_to
from docutils import nodes
from reading import folded
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)

LEDGER = "build/ledger.json"
CONDITION = "condition"
"""The ruling of an assumption: it claims nothing, so it can only be met or not."""
RULINGS = ("holds", "slip", "gap in a proof", "false statement", CONDITION)
WITNESSES = {f"Assumption {number}": "ranks in rational numbers" for number in ("3.1", "3.5", "4.2", "4.5", "D.5")} | {
    "Assumption 3.2": "powers of the pattern of zeros of A, in integers",
    "Assumption 4.4": "the null space of A − 1",
}
"""What the library's test of each assumption is compared with."""
BOUND = 1e-10
"""Of residuals, unless a statement has its own; the page names it."""
HYPOTHESES = ("regularity", "ergodicity", "stationarity", "full support", "Assumption D.5")
"""By which words the ledger names hypotheses that are not needed."""


def assumed(entry: dict) -> bool:
    return entry["name"].startswith("Assumption")


def ruling(entry: dict) -> str:
    return CONDITION if assumed(entry) else entry["grade"]


def kind(entry: dict) -> str:
    """Theorem, lemma, and so on, or that a statement is ours."""
    return "ours" if entry["ours"] else entry["name"].split()[0].lower()


def in_brackets(unneeded: str) -> str:
    """Hypotheses as the ledger names them, what is enough in brackets: "regularity (it is enough that …)"."""
    clauses = (clause.strip().split(": ", 1) for clause in unneeded.split(";"))
    return ", ".join(f"{name} ({enough[0]})" if enough else name for name, *enough in clauses)


def without(hypothesis: str, entries: list[dict]) -> tuple[list[dict], list[dict]]:
    """The statements that do not need a hypothesis at all, and those that need a part of it, or another prompt."""
    found = [], []
    for entry in entries:
        for clause in entry["unneeded"].split(";"):
            if hypothesis in clause.split(": ")[0]:
                found[": " in clause or ", with " in clause].append(entry)
    return found


def ruled(entry: dict) -> list[list]:
    """The ruling, what it rests on where the printed form is off, and hypotheses that are not needed."""
    models = f"{entry['instances']:,} random models"
    if assumed(entry):
        found = "agrees" if entry["verdict"] == "holds" else "disagrees"
        checked = f"What was checked is the library's test: it {found} with {WITNESSES[entry['name']]}, on {models}."
        return [[nodes.strong("", CONDITION)], [checked]]
    paragraphs = [[nodes.strong("", entry["grade"]), " (a statement of ours)" * entry["ours"]]]
    if entry["printed"] != entry["verdict"]:
        paragraphs.append([f"As printed, it is off in {entry['printed_failures']:,} of {models}."])
    if entry["corrected"]:
        paragraphs.append([f"It {entry['verdict']} in this form: {entry['corrected']}."])
    if entry["unneeded"]:
        paragraphs.append([f"Not needed: {in_brackets(entry['unneeded'])}."])
    return paragraphs


def evidence(entry: dict, first: dict[str, str]) -> Iterator[str]:
    """Each kind of evidence in a sentence: floating point, exact, all patterns of zeros, negative control.

    `first` has the statement that names sizes of models in full, by the sizes; others refer to it.
    """
    trivial = entry["instances"] - entry["nontrivial"]
    drawn = f"{entry['instances']:,} random models" + (f", {trivial:,} of them trivial" if trivial else "")
    if assumed(entry):
        yield f"{drawn}."
    else:
        residual = "not a number" if entry["residual"] is None else f"{entry['residual']:.0e}".replace("0e+00", "0")
        bound = "" if entry["tolerance"] == BOUND else f", bound {entry['tolerance']:.0e}"
        yield f"Floating point: {drawn}; residual {residual}{bound}."
    if identity := entry["identity"]:
        points, largest = identity["points"] * len(identity["sizes"]), identity["sizes"][-1]
        what = "no difference" if not identity["failures"] else f"{identity['failures']} entries off"
        up_to = f"up to {largest[0]} states and length {largest[1]}"
        yield f"Exact arithmetic: {what} at {points} rational points, {up_to}."
    if patterns := entry["patterns"]:
        what = "all hold" if not patterns["failures"] else f"{patterns['failures']} fail"
        named = first.setdefault(patterns["size"], entry["name"])
        sizes = patterns["size"].split("; ") if named == entry["name"] else []
        of = "these sizes:" if sizes else f"the sizes of {named}."
        yield f"All patterns of zeros: {patterns['cases']:,} cases, {what}, of {of}"
        yield from (f"– {size}" for size in sizes)
    fails = "the model is refused" if assumed(entry) else "the conclusion fails"
    yield f"Control: without “{entry['broken']}” {fails} in {entry['control_fails']} of {entry['control_instances']}."


def read(env) -> dict | None:
    """The ledger, on which the page now depends; None where there is none."""
    path = Path(env.srcdir, LEDGER)
    env.note_dependency(str(path))
    return json.loads(path.read_text()) if path.is_file() else None


def row(*cells: str | list[list]) -> nodes.row:
    """A cell is one paragraph of text, or paragraphs, each a list of texts and nodes. In a text M_J has a subscript."""

    def lowered(part: str | nodes.Node) -> list[nodes.Node]:
        if not isinstance(part, str):
            return [part]
        pieces = enumerate(re.split(r"(?<=\b[A-Z])_([A-Z])\b", part))
        return [nodes.subscript("", piece) if k % 2 else nodes.Text(piece) for k, piece in pieces]

    def paragraph(parts: list) -> nodes.paragraph:
        return nodes.paragraph("", "", *(piece for part in parts for piece in lowered(part)))

    written = ([[cell]] if isinstance(cell, str) else cell for cell in cells)
    return nodes.row("", *(nodes.entry("", *map(paragraph, cell)) for cell in written))


class Counted(SphinxRole):
    """A number that the ledger gives, by its name."""

    def run(self):
        entries = (read(self.env) or {"entries": []})["entries"]
        numbers = {
            "results": sum(not entry["ours"] and not assumed(entry) for entry in entries),
            "assumptions": sum(map(assumed, entries)),
            "ours": sum(entry["ours"] for entry in entries),
            "freer": sum(bool(entry["unneeded"]) for entry in entries),
            "instances": max((entry["instances"] for entry in entries), default=0),
        }
        return [nodes.Text(f"{numbers[self.text]:,}")], []


class FromLedger(SphinxDirective):
    """A table made from the ledger; subclasses name its columns with their widths, and make its rows."""

    classes = ("plain",)

    def run(self):
        ledger = read(self.env)
        if ledger is None:
            log.warning("no ledger: %s is missing (run `make book`)", LEDGER, location=self.env.docname)
            return []
        group = nodes.tgroup(cols=len(self.columns))
        group += [nodes.colspec(colwidth=width) for _, width in self.columns]
        group += nodes.thead("", row(*(name for name, _ in self.columns)))
        group += nodes.tbody("", *self.rows(ledger))
        return [nodes.table("", group, classes=["ledger", "stacked", *self.classes])]

    def derived(self, text: str, record: dict) -> nodes.reference:
        """A link to the box or equation on the page that derives it."""
        label = record["label"]
        anchor = nodes.make_id(f"equation-{label}") if "-eq-" in label else label
        uri = self.env.app.builder.get_relative_uri(self.env.docname, record["page"]) + f"#{anchor}"
        return nodes.reference("", text, refuri=uri, internal=True)

    def statements(self, entries: list[dict]) -> list[nodes.Node | str]:
        """Links to where they are derived, with commas between them."""
        return [part for entry in entries for part in (", ", self.derived(entry["name"], entry))][1:]

    def code(self, record: dict) -> nodes.reference:
        """A link to the line of code, on the repository's main branch."""
        source, options = record["source"], self.env.app.config.html_theme_options
        uri = f"{options['repository_url']}/blob/{options['repository_branch']}/{source['path']}#L{source['line']}"
        return nodes.reference("", Path(source["path"]).name, refuri=uri, internal=False)


class LedgerTable(FromLedger):
    """One row for each statement: ruling, evidence, of which all but the first is folded, links to derivation and code.

    Its classes are ruling and kind.
    """

    columns = (("statement", 32), ("verdict", 28), ("evidence", 40))
    classes = ("statements",)

    def rows(self, ledger):
        first = {}
        for entry in ledger["entries"]:
            name, called = [self.derived(entry["name"], entry), f". {entry['claim']} ("], function_of(entry["name"])
            if called:
                shown = nodes.literal(text=called)
                name += [link_to(self.env.app.builder, self.env.docname, called, shown), ", "]
            made = row([[*name, self.code(entry), ")"]], ruled(entry), [[text] for text in evidence(entry, first)])
            made[-1][1:] = folded("More evidence", "evidence", made[-1][1:])
            made["classes"] += [f"ruling-{ruling(entry)}".replace(" ", "-"), f"kind-{kind(entry)}"]
            yield made


class LedgerSummary(FromLedger):
    """How many of the paper's statements have which ruling, and which these are."""

    columns = (("verdict", 24), ("how many", 14), ("which", 62))

    def rows(self, ledger):
        for name in RULINGS:
            alike = [entry for entry in ledger["entries"] if ruling(entry) == name]
            chosen = [entry for entry in alike if not entry["ours"]]
            more = f", and {len(alike) - len(chosen)} of ours" if len(chosen) < len(alike) else ""
            yield row([[nodes.strong("", name)]], f"{len(chosen)}{more}", [self.statements(alike)])


class EvidenceTable(FromLedger):
    """How many of the paper's results have each kind of evidence, and which have not."""

    columns = (("evidence", 24), ("results", 14), ("which have none", 62))
    kinds = (("floating point", "instances"), ("exact identities", "identity"), ("all patterns of zeros", "patterns"))
    kinds += (("negative control", "control_instances"),)

    def rows(self, ledger):
        results = [entry for entry in ledger["entries"] if not entry["ours"] and not assumed(entry)]
        for words, key in self.kinds:
            none = [entry for entry in results if not entry[key]]
            yield row(words, f"{len(results) - len(none)} of {len(results)}", [self.statements(none) or ["–"]])


class UnneededTable(FromLedger):
    """Each hypothesis of the paper that a statement turned out not to need, or not in full, and which statements."""

    columns = (("hypothesis", 20), ("not needed at all by", 40), ("not needed in full by", 40))
    classes = ()

    def rows(self, ledger):
        for name in HYPOTHESES:
            found = without(name, ledger["entries"])
            if any(found):
                yield row(name, *([self.statements(entries) or ["–"]] for entries in found))


class EquationTable(FromLedger):
    """One row for each numbered equation: where it is shown, and the line that computes it."""

    columns = (("equation", 20), ("what it says", 50), ("computed in", 30))
    classes = ("plain", "equations")

    def rows(self, ledger):
        for equation in ledger["equations"]:
            shown = self.derived(f"({equation['number']})", equation)
            yield row([[shown]], equation["words"], [[self.code(equation)]])


INTERVAL = re.compile(r"([-+]?[\d.]+%? \[[-+]?[\d.]+%?, [-+]?[\d.]+%?\])")


def keep_intervals(table: nodes.table) -> None:
    """A mean with its interval, as in "94.0% [88.4, 99.6]", stands on one line."""
    for text in list(table.findall(nodes.Text)):
        parts = INTERVAL.split(text)
        if len(parts) > 1:
            made = (
                nodes.inline("", part, classes=["unbroken"]) if k % 2 else nodes.Text(part)
                for k, part in enumerate(parts)
            )
            text.parent.replace(text, list(made))


def label_cells(app, doctree) -> None:
    for table in doctree.findall(nodes.table):
        head = next(table.findall(nodes.thead), None)
        if "stacked" in table["classes"] and head is not None:
            names = [entry.astext() for entry in head[0]]
            keep_intervals(table)
            for line in next(table.findall(nodes.tbody)):
                for name, entry in zip(names, line, strict=True):
                    entry["label"] = name


def visit_entry(self, node) -> None:
    HTML5Translator.visit_entry(self, node)
    if node.get("label"):
        self.body[-1] = self.body[-1].replace("<td", f'<td data-label="{html.escape(node["label"])}"', 1)


def setup(app) -> None:
    app.add_directive("ledger-table", LedgerTable)
    app.add_directive("ledger-summary", LedgerSummary)
    app.add_directive("evidence-table", EvidenceTable)
    app.add_directive("unneeded-table", UnneededTable)
    app.add_directive("equation-table", EquationTable)
    app.add_role("counted", Counted())
    app.connect("doctree-read", label_cells)
    app.add_node(nodes.entry, override=True, html=(visit_entry, HTML5Translator.depart_entry))
