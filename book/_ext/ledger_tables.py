"""The ledger and the list of equations as tables, from what `make book` has just checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from api_reference import function_of, place
from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

log = logging.getLogger(__name__)

LEDGER = "build/ledger.json"
HOLDS, GRADES = "holds", ("slip of the pen", "gap in a proof", "false statement")
CONDITION = "condition"
"""The ruling of an assumption: it claims nothing, so it can only be met or not."""
R, K = "ruling", "kind"
RANKS = "ranks in rational numbers"
WITNESSES = dict.fromkeys(["3.1", "3.5", "4.2", "4.5", "D.5"], RANKS)
WITNESSES |= {"3.2": "powers of the pattern of zeros of A, in integers", "4.4": "the null space of A − 1"}
WITNESSES = {f"Assumption {number}": words for number, words in WITNESSES.items()}
"""What the library's test of each assumption is compared with."""
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


def hypotheses(entries: list[dict]) -> dict[str, list[dict]]:
    """The statements that do without a hypothesis, or without part of it. ValueError for one that no word names."""
    found = {name: [] for name in HYPOTHESES}
    for entry in entries:
        named = [clause.split(": ")[0] for clause in entry["unneeded"].split(";") if clause]
        for clause in named:
            if not (names := [name for name in HYPOTHESES if name in clause]):
                raise ValueError(f"{entry['name']}: no hypothesis is named in {clause!r}")
            for name in names:
                found[name].append(entry)
    return {name: statements for name, statements in found.items() if statements}


def joined(links: list[nodes.Node]) -> Iterator[nodes.Node]:
    for k, link in enumerate(links):
        yield from (nodes.Text(", "), link) if k else (link,)


def counts(entries: list[dict]) -> dict[str, int]:
    """What the page's sentences count, by name."""
    return {
        "results": sum(not entry["ours"] and not assumed(entry) for entry in entries),
        "assumptions": sum(map(assumed, entries)),
        "ours": sum(entry["ours"] for entry in entries),
        "freer": sum(bool(entry["unneeded"]) for entry in entries),
        "instances": entries[0]["instances"],
    }


class Counted(SphinxRole):
    """A number that the ledger gives, by its name in `counts`."""

    def run(self):
        path = Path(self.env.app.srcdir, LEDGER)
        for source in (path, Path(__file__)):
            self.env.note_dependency(str(source))
        if not path.is_file():  # of which the table warns
            return [], []
        return [nodes.Text(f"{counts(json.loads(path.read_text())['entries'])[self.text]:,}")], []


class FromLedger(SphinxDirective):
    """A table made from the ledger; subclasses name its columns and turn one record into cells, lists of paragraphs."""

    columns: tuple[str, ...]
    widths: tuple[int, ...]
    part: str
    classes: tuple[str, ...] = ("ledger", "stacked")

    def records(self, ledger: dict) -> Iterable:
        return ledger[self.part]

    def line(self, record) -> nodes.row:
        return self.row(self.cells(record))

    def run(self):
        path = Path(self.env.app.srcdir, LEDGER)
        for source in (path, Path(__file__)):
            self.env.note_dependency(str(source))
        if not path.is_file():
            log.warning("no ledger: %s is missing (run `make book`)", path, location=self.env.docname)
            return []
        table = nodes.table(classes=[*self.classes])
        group = nodes.tgroup(cols=len(self.columns))
        group += [nodes.colspec(colwidth=width) for width in self.widths]
        group += nodes.thead("", self.row([[[nodes.Text(name)]] for name in self.columns]))
        group += nodes.tbody("", *map(self.line, self.records(json.loads(path.read_text()))))
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
    """One row for each statement: ruling, evidence, and links to derivation and code. Its classes say ruling and kind."""

    columns = ("statement", "ruling", "evidence")
    widths = (34, 29, 37)
    part = "entries"
    classes = ("ledger", "statements", "stacked")

    def line(self, entry):
        row = super().line(entry)
        row["classes"] += [f"{what}-{name.replace(' ', '-')}" for what, name in ((R, ruling(entry)), (K, kind(entry)))]
        return row

    def cells(self, entry):
        name = [
            self.derived(entry["name"], entry),
            nodes.Text(f". {entry['claim']} ("),
            *self.called(entry["name"]),
            self.code(entry),
            nodes.Text(")"),
        ]
        return [[name], self.ruled(entry), [[nodes.Text(text)] for text in evidence(entry)]]

    def called(self, statement: str) -> list[nodes.Node]:
        """A link to the function that constructs a statement, or tests an assumption, if there is one."""
        if (name := function_of(statement)) is None:
            return []
        page, anchor = place(name)
        uri = self.env.app.builder.get_relative_uri(self.env.docname, page) + f"#{anchor}"
        return [nodes.reference("", "", nodes.literal(text=name), refuri=uri, internal=True), nodes.Text(", ")]

    @staticmethod
    def ruled(entry):
        """The ruling, what it rests on where the printed form is off, and hypotheses that are not needed."""
        if assumed(entry):
            told = "never disagrees" if entry["verdict"] == "holds" else "disagrees"
            witness, models = WITNESSES[entry["name"]], f"{entry['instances']:,} random models"
            words = f"Checked was the library's test of it: it {told} with {witness}, on {models}."
            return [[nodes.strong("", CONDITION), nodes.Text(", so there is nothing to prove.")], [nodes.Text(words)]]
        ours = " (a statement of ours)" if entry["ours"] else ""
        told = [[nodes.strong("", entry["grade"]), nodes.Text(ours)]]
        if entry["printed"] != entry["verdict"]:
            share = f"{entry['printed_failures']:,} of {entry['instances']:,} random models"
            told += [[nodes.Text(f"As printed, it is off in {share}.")]]
        if entry["corrected"]:
            told += [[nodes.Text(f"It {entry['verdict']} in this form: {entry['corrected']}.")]]
        if entry["unneeded"]:
            told += [[nodes.Text(f"Not needed: {in_brackets(entry['unneeded'])}.")]]
        return told


def evidence(entry: dict) -> Iterator[str]:
    """Each kind of evidence in a sentence: floating point, exact, all patterns of zeros, negative control."""
    drawn = f"{entry['instances']:,} random models, {entry['nontrivial']:,} of them not trivial"
    if assumed(entry):
        yield f"{drawn}."
    else:
        residual = "not a number" if entry["residual"] is None else f"{entry['residual']:.0e}"
        yield f"Floating point: {drawn}; residual {residual if entry['residual'] != 0 else 0}, bound {entry['tolerance']:.0e}."
    if identity := entry["identity"]:
        points, largest = identity["points"] * len(identity["sizes"]), identity["sizes"][-1]
        what = "no difference" if not identity["failures"] else f"{identity['failures']} entries off"
        yield f"Exact arithmetic: {what} at {points} rational points, up to {largest[0]} states and length {largest[1]}."
    if patterns := entry["patterns"]:
        what = "all hold" if not patterns["failures"] else f"{patterns['failures']} fail"
        yield f"All patterns of zeros: {patterns['cases']:,} cases, {what} ({patterns['size']})."
    fails = "the model is refused" if assumed(entry) else "the conclusion fails"
    yield f"Control: without “{entry['broken']}” {fails} in {entry['control_fails']} of {entry['control_instances']}."


class LedgerSummary(FromLedger):
    """What the ledger says of the paper's statements together: how many have which ruling, and which these are."""

    columns = ("ruling", "how many", "which")
    widths = (24, 14, 62)
    classes = ("ledger", "stacked", "plain")

    def records(self, ledger):
        entries = [entry for entry in ledger["entries"] if not entry["ours"]]
        for name in dict.fromkeys([HOLDS, *GRADES, CONDITION]):
            chosen = [entry for entry in entries if ruling(entry) == name]
            yield name, chosen, [entry for entry in ledger["entries"] if entry["ours"] and ruling(entry) == name]

    def cells(self, record):
        name, chosen, ours = record
        more = f", and {len(ours)} of ours" if ours else ""
        few = chosen if len(chosen) < 10 else [entry for entry in chosen if kind(entry) == "theorem"]
        which = list(joined([self.derived(entry["name"], entry) for entry in few]))
        if len(few) < len(chosen):
            which = [nodes.Text("among them "), *which]
        return [[[nodes.strong("", name)]], [[nodes.Text(f"{len(chosen)}{more}")]], [which]]


class UnneededTable(FromLedger):
    """Each hypothesis of the paper that a statement turned out not to need, or not in full, and which statements."""

    columns = ("hypothesis", "not needed in full by")
    widths = (24, 76)
    classes = ("ledger", "stacked", "plain")

    def records(self, ledger):
        return hypotheses(ledger["entries"]).items()

    def cells(self, record):
        name, entries = record
        return [[[nodes.Text(name)]], [list(joined([self.derived(entry["name"], entry) for entry in entries]))]]


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
    app.add_directive("ledger-summary", LedgerSummary)
    app.add_directive("unneeded-table", UnneededTable)
    app.add_directive("equation-table", EquationTable)
    app.add_role("counted", Counted())
