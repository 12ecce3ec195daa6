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


class LedgerTable(SphinxDirective):
    """The ledger as a table: one row for each statement, linked to its derivation."""

    COLUMNS = ("statement", "claim", "instances", "largest residual", "negative control", "verdict")

    def run(self):
        path = Path(self.env.app.srcdir, LEDGER)
        self.env.note_dependency(str(path))
        if not path.is_file():
            log.warning("no ledger: %s is missing (run `make book`)", path, location=self.env.docname)
            return []
        table = nodes.table(classes=["ledger"])
        group = nodes.tgroup(cols=len(self.COLUMNS))
        group += [nodes.colspec(colwidth=1) for _ in self.COLUMNS]
        group += nodes.thead("", self.row([nodes.Text(name) for name in self.COLUMNS]))
        group += nodes.tbody("", *map(self.entry, json.loads(path.read_text())["entries"]))
        table += group
        return [table]

    @staticmethod
    def row(cells):
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

    def entry(self, entry):
        here, there = self.env.docname, entry["page"]
        uri = self.env.app.builder.get_relative_uri(here, there) + f"#{entry['label']}"
        control = (
            f"without “{entry['broken']}” the conclusion fails in {entry['control_fails']} of "
            f"{entry['control_instances']} instances (largest gap {entry['control_gap']:.2g})"
        )
        return self.row(
            [
                nodes.reference("", entry["name"], refuri=uri, internal=True),
                nodes.Text(entry["claim"]),
                nodes.Text(f"{entry['instances']:,}"),
                nodes.Text(f"{entry['residual']:.1e} (bound {entry['tolerance']:.0e})"),
                nodes.Text(control),
                nodes.strong("", entry["verdict"]),
            ]
        )


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
