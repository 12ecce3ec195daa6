"""The book's own Sphinx extension: this module, and one beside it for each larger part."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx_proof.directive import DEFAULT_REALTYP_TO_COUNTERTYP, ElementDirective
from sphinx_proof.nodes import NODE_TYPES, depart_enumerable_node, visit_enumerable_node

log = logging.getLogger(__name__)

PARTS = ("mathematics", "pictures", "ledger_tables", "works_map", "page_facts", "cards", "api_reference", "reading")
PAPER_LABEL = re.compile(r"(?:paper|ours)-[a-z]+-(?P<number>[0-9A-Za-z]+(?:-[0-9]+)*)$")  # paper-thm-3-3, paper-eq-B-1
MOVED = {
    "book/benchmarks": "benchmarks/README.md",
    "book/changes": "CHANGELOG.md",
    "book/trust": "tests/README.md",
    "book/cite": "book/later-work",
    "book/clusters": "book/reproduce",
    "book/evidence": "book/ledger",
    "book/glossary": "book/notation",
    "book/references": "book/later-work",
    "book/what-came-after": "book/later-work",
    "book/work-in-notebooks": "book/reproduce",
    "book/your-own-model": "notebooks/your-own-study",
    "notebooks/5-0-exact-ladder": "notebooks/5-1-pretraining",
    "notebooks/appendix-d-1": "notebooks/appendix-d",
    "notebooks/appendix-d-2": "notebooks/appendix-d",
    "notebooks/beyond-1-tuned-prompt": "notebooks/tuned-prompts",
    "notebooks/beyond-2-probes": "notebooks/tuned-prompts",
    "notebooks/beyond-3-solvable": "notebooks/solvable",
    "notebooks/beyond-4-published-curve": "notebooks/published-curve",
    "notebooks/beyond-5-prefix-lora": "notebooks/tuned-prompts",
}
"""Pages that the book once had, and the page, or the file of the repository, that has their content now."""
UNNAMED = '<summary><span class="toctree-toggle"'
"""What opens the pages below one in the sidebar: the theme gives it no name, and readers of the screen need one."""


def repository_from_environment(app, config):
    """In a workflow of GitHub's, all links point at the repository that the workflow runs in."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        config.html_theme_options["repository_url"] = f"{server}/{name}"


def show_executed(app, docname, source):
    """Hand MyST-NB the executed copy of a notebook; the page keeps the committed notebook's path and links."""
    if docname.startswith("notebooks/"):
        path = Path(app.srcdir, "build", "executed", f"{docname}.ipynb")
        app.env.note_dependency(str(path))
        if path.is_file():
            source[0] = path.read_text(encoding="utf8")
        else:
            log.warning("not executed: %s is missing (run `make book`)", path, location=docname)


def number_as_the_paper(app, env):
    """Overwrite the running numbers of boxes and equations labelled `paper-…` or `ours-…` by those in the labels."""
    shown = [(b["docname"], b["countertype"], label, label) for label, b in env.proof_list.items() if not b["nonumber"]]
    for label, (docname, _) in env.domaindata["math"]["objects"].items():
        shown.append((docname, "displaymath", nodes.make_id(f"equation-{label}"), label))
    changed = set()
    for docname, kind, key, label in shown:
        if match := PAPER_LABEL.match(label):
            numbers = env.toc_fignumbers.setdefault(docname, {}).setdefault(kind, {})
            number = tuple(match["number"].upper().split("-"))
            if numbers.get(key) != number:
                numbers[key] = number
                changed.add(docname)
    return sorted(changed)


class claim_node(nodes.Admonition, nodes.Element):
    """A box of its own for the paper's claims, which sphinx-proof lacks."""


class ClaimDirective(ElementDirective):
    name = "claim"


def tidy_page(app, pagename, templatename, context, doctree):
    """Drop Thebe, which is not used: a constant that it declares twice is a script error on every page.

    And docutils' role of a list for references, whose entries are not marked as its items.
    """
    if "body" in context:
        context["body"] = context["body"].replace(' role="list" class="citation-list"', ' class="citation-list"')
    context["script_files"] = [script for script in context["script_files"] if "thebe" not in str(script).lower()]


def finish_pages(app, exception):
    """Make the finished pages lighter; and lead from the address of a page that the book had to its content.

    The theme's icons come as a font and once more as 1.5 MB of script before a page can show: keep the font. A second
    font would be loaded for GitHub's mark alone: another icon stands there.
    """
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf8")
        lighter = re.sub(r'<script src="[^"]*/fontawesome\.js[^"]*"></script>', "", text)
        lighter = lighter.replace("fab fa-github", "fas fa-code-branch")
        lighter = lighter.replace(UNNAMED, UNNAMED.replace("<summary>", '<summary aria-label="pages below">'))
        lighter = lighter.replace('data-theme="auto"', 'data-theme="light"', 1)  # until the theme's script decides
        if lighter != text:
            page.write_text(lighter, encoding="utf8")
    for file in Path(app.outdir, "_static", "scripts").glob("fontawesome.js*"):
        file.unlink()
    for name, now in MOVED.items():
        files = f"{app.config.html_theme_options['repository_url']}/blob/main/"
        target = files + now if "." in now else f"../{now}.html"
        page = f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">This page has moved.</a>\n'
        Path(app.outdir, f"{name}.html").write_text(f"<!doctype html>{page}", encoding="utf8")


def setup(app):
    app.config.html_static_path.append("book/_static")
    app.add_css_file("companion.css")
    for part in PARTS:
        app.setup_extension(part)
    app.setup_extension("sphinx_proof")
    NODE_TYPES["claim"], DEFAULT_REALTYP_TO_COUNTERTYP["claim"] = claim_node, "claim"
    visitors = (visit_enumerable_node, depart_enumerable_node)
    app.add_enumerable_node(claim_node, "claim", None, html=visitors, singlehtml=visitors, latex=visitors)
    app.add_directive_to_domain("prf", "claim", ClaimDirective)
    app.connect("config-inited", repository_from_environment)
    app.connect("source-read", show_executed)
    app.connect("env-get-updated", number_as_the_paper, priority=900)
    app.connect("html-page-context", tidy_page, priority=900)
    app.connect("build-finished", finish_pages)
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.[pj][ys]")))
    # changed code writes all pages anew
    app.add_config_value("companion_code", hashlib.sha256(code).hexdigest(), "env")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}  # one typesetter for all pages
