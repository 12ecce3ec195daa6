"""The book's own Sphinx extension.

It shows executed notebooks at their own paths, numbers theorems and equations as the paper does, renders the ledger,
serves the mathematics without a CDN, and derives every link to the repository from one address.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_proof.directive import DEFAULT_REALTYP_TO_COUNTERTYP, ElementDirective
from sphinx_proof.nodes import NODE_TYPES, depart_enumerable_node, visit_enumerable_node

log = logging.getLogger(__name__)

PAPER_LABEL = re.compile(r"paper-[a-z]+-(?P<number>[0-9A-Za-z]+(?:-[0-9]+)*)$")  # paper-thm-3-3, paper-eq-B-1
EXECUTED = "build/executed"
LEDGER = "build/ledger.json"
MATHJAX = "tex-svg-full.js"


def repository_from_environment(app, config):
    """In a workflow of GitHub's, all links point at the repository that the workflow runs in."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        config.html_theme_options["repository_url"] = f"{server}/{name}"


def show_executed(app, docname, source):
    """Hand MyST-NB the executed copy of a notebook; the page keeps the committed notebook's path and links."""
    if docname.startswith("notebooks/"):
        path = Path(app.srcdir, EXECUTED, f"{docname}.ipynb")
        app.env.note_dependency(str(path))
        if path.is_file():
            source[0] = path.read_text(encoding="utf8")
        else:
            log.warning("not executed: %s is missing (run `make book`)", path, location=docname)


def number_as_the_paper(app, env):
    """Overwrite the running numbers of boxes and equations labelled `paper-…` with those in their labels."""
    changed = set()

    def put(docname, kind, key, label):
        if match := PAPER_LABEL.match(label):
            numbers = env.toc_fignumbers.setdefault(docname, {}).setdefault(kind, {})
            number = tuple(match["number"].upper().split("-"))
            if numbers.get(key) != number:
                numbers[key] = number
                changed.add(docname)

    for label, box in getattr(env, "proof_list", {}).items():
        if not box["nonumber"]:
            put(box["docname"], box["countertype"], label, label)
    for label, (docname, _) in env.domaindata["math"]["objects"].items():
        put(docname, "displaymath", nodes.make_id(f"equation-{label}"), label)
    return sorted(changed)


class claim_node(nodes.Admonition, nodes.Element):
    """A box of its own for the paper's claims, which sphinx-proof lacks."""


class ClaimDirective(ElementDirective):
    name = "claim"


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
        subject = "predicate and witness agree: " if entry["name"].startswith("Assumption") else "as printed: "
        printed = [nodes.Text(subject), nodes.strong("", entry["printed"])]
        if entry["corrected"]:
            printed += [nodes.Text(f", in {entry['printed_failures']:,} of {entry['instances']:,} random instances")]
        verdict = [printed]
        if entry["corrected"]:
            holds = [nodes.strong("", entry["verdict"]), nodes.Text(f" in this form: {entry['corrected']}")]
            verdict += [[nodes.Text("corrected: "), *holds]]
        if entry["unneeded"]:
            verdict += [[nodes.Text(f"not needed: {entry['unneeded']}")]]
        return [[name], verdict, [[nodes.Text(text)] for text in self.evidence(entry)]]

    @staticmethod
    def evidence(entry):
        """Each kind of evidence in words: floating point, finite field, all patterns of zeros, negative control."""
        residual = "not a number" if entry["residual"] is None else f"{entry['residual']:.1e}"
        yield f"{entry['instances']:,} random instances: residual {residual}, bound {entry['tolerance']:.0e}"
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


def tidy_page(app, pagename, templatename, context, doctree):
    """Drop Thebe, which is not used: a constant that it declares twice is a script error on every page."""
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{script} {getattr(script, 'attributes', {}).get('body', '')}".lower()
    ]


def copy_mathjax(app, exception):
    """Put the one MathJax file that the pages load among the book's own files."""
    if exception is None and app.builder.format == "html":
        package = Path(importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
        target = Path(app.outdir, "_static", "mathjax")
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(package / "static" / "mathjax" / MATHJAX, target)


def setup(app):
    app.config.mathjax_path = f"mathjax/{MATHJAX}"
    app.config.html_static_path.append("book/_static")
    app.add_css_file("companion.css")
    app.add_directive("ledger-table", LedgerTable)
    app.add_directive("equation-table", EquationTable)
    app.setup_extension("sphinx_proof")
    NODE_TYPES["claim"], DEFAULT_REALTYP_TO_COUNTERTYP["claim"] = claim_node, "claim"
    visitors = (visit_enumerable_node, depart_enumerable_node)
    app.add_enumerable_node(claim_node, "claim", None, html=visitors, singlehtml=visitors, latex=visitors)
    app.add_directive_to_domain("prf", "claim", ClaimDirective)
    app.connect("config-inited", repository_from_environment)
    app.connect("source-read", show_executed)
    app.connect("env-get-updated", number_as_the_paper, priority=900)
    app.connect("html-page-context", tidy_page, priority=900)
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
