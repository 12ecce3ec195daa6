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

import notebooks as pipeline

log = logging.getLogger(__name__)

PARTS = (
    "mathematics",
    "pictures",
    "ledger_tables",
    "stacked_tables",
    "works_map",
    "page_facts",
    "cards",
    "api_reference",
    "machine_proofs",
    "reading",
)
"""The modules beside this one."""
PAPER_LABEL = re.compile(r"(?:paper|ours)-[a-z]+-(?P<number>[0-9A-Za-z]+(?:-[0-9]+)*)$")
"""The label of a statement or an equation with a number of its own, such as paper-thm-3-3 and paper-eq-B-1."""
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
    "notebooks/5-0-exact-ladder": "notebooks/exact-model",
    "notebooks/appendix-d-1": "notebooks/appendix-d",
    "notebooks/appendix-d-2": "notebooks/appendix-d",
    "notebooks/beyond-1-tuned-prompt": "notebooks/tuned-prompts",
    "notebooks/beyond-2-probes": "notebooks/tuned-prompts-in-detail",
    "notebooks/beyond-3-solvable": "notebooks/solvable",
    "notebooks/beyond-4-published-curve": "notebooks/published-curve",
    "notebooks/beyond-5-prefix-lora": "notebooks/tuned-prompts-in-detail",
}
"""Pages that the book once had, and the page, or the file of the repository, that has their content now."""


def repository_from_environment(app, config):
    """Point all links, in a workflow of GitHub's, at the repository that the workflow runs in."""
    name = os.environ.get("GITHUB_REPOSITORY")
    if name:
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        config.html_theme_options["repository_url"] = f"{server}/{name}"


def show_executed(app, docname, source):
    """Hand MyST-NB the text notebook with the outputs of its run. The page keeps the twin's path and links."""
    if not docname.startswith("notebooks/"):
        return
    name = Path(docname).name
    text = pipeline.ROOT / f"{docname}.md"
    app.env.note_dependency(str(text))
    app.env.note_dependency(str(pipeline.executed_copy(name)))
    try:
        source[0] = pipeline.as_text(pipeline.page(text))
    except (OSError, ValueError) as error:
        log.warning("%s is not executed: %s (run `make book`)", docname, error, location=docname)


# Numbers and boxes of the paper


def own_number(label: str) -> tuple[str, ...] | None:
    """Read a number in a label: of paper-thm-3-3, ("3", "3"). Other labels have none."""
    match = PAPER_LABEL.match(label)
    return tuple(match["number"].upper().split("-")) if match else None


def numbered_things(env) -> list[tuple[str, str, str, str]]:
    """List the numbered boxes and equations: page, kind, Sphinx's key for the number, and label."""
    things = []
    for label, box in env.proof_list.items():
        if not box["nonumber"]:
            things.append((box["docname"], box["countertype"], label, label))
    for label, (docname, _) in env.domaindata["math"]["objects"].items():
        things.append((docname, "displaymath", nodes.make_id(f"equation-{label}"), label))
    return things


def number_as_the_paper(app, env):
    """Overwrite the running numbers of boxes and equations labelled `paper-…` or `ours-…` by those in the labels."""
    changed_pages = set()
    for docname, kind, key, label in numbered_things(env):
        number = own_number(label)
        if number is None:
            continue
        numbers = env.toc_fignumbers.setdefault(docname, {}).setdefault(kind, {})
        if numbers.get(key) != number:
            numbers[key] = number
            changed_pages.add(docname)
    return sorted(changed_pages)


class claim_node(nodes.Admonition, nodes.Element):
    """A box of its own for the paper's claims, which sphinx-proof lacks."""


class ClaimDirective(ElementDirective):
    name = "claim"


def add_claims(app) -> None:
    """Teach sphinx-proof the directive `{prf:claim}`."""
    app.setup_extension("sphinx_proof")
    NODE_TYPES["claim"] = claim_node
    DEFAULT_REALTYP_TO_COUNTERTYP["claim"] = "claim"
    visitors = (visit_enumerable_node, depart_enumerable_node)
    app.add_enumerable_node(claim_node, "claim", None, html=visitors, singlehtml=visitors, latex=visitors)
    app.add_directive_to_domain("prf", "claim", ClaimDirective)


# Finished pages


def tidy_page(app, pagename, templatename, context, doctree):
    """Drop Thebe, and docutils' role of a list for references.

    Thebe is not used, and a constant that it declares twice is a script error on every page. The entries of the
    references are not marked as items of a list.
    """
    if "body" in context:
        context["body"] = context["body"].replace(' role="list" class="citation-list"', ' class="citation-list"')
    scripts = []
    for script in context["script_files"]:
        if "thebe" not in str(script).lower():
            scripts.append(script)
    context["script_files"] = scripts


def finished(page: str) -> str:
    """Make the HTML of a page lighter, and name what the theme leaves without a name."""
    # The theme's icons come as a font, and once more as 1.5 MB of script before a page can show. The font is enough.
    page = re.sub(r'<script src="[^"]*/fontawesome\.js[^"]*"></script>', "", page)
    # A second font would be loaded for GitHub's mark alone.
    page = page.replace("fab fa-github", "fas fa-code-branch")
    # Readers of the screen need a name for what opens the pages below one in the sidebar.
    toggle = '<span class="toctree-toggle"'
    page = page.replace(f"<summary>{toggle}", f'<summary aria-label="pages below">{toggle}')
    # The page is light until the theme's script decides.
    return page.replace('data-theme="auto"', 'data-theme="light"', 1)


def finish_pages(app, exception):
    """Finish every page that was written."""
    if exception is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf8")
        new_text = finished(text)
        if new_text != text:
            path.write_text(new_text, encoding="utf8")
    for path in Path(app.outdir, "_static", "scripts").glob("fontawesome.js*"):
        path.unlink()


def write_moved_pages(app, exception):
    """Lead from the address of each page that the book once had to where its content is now."""
    if exception is not None or app.builder.format != "html":
        return
    for name, place in MOVED.items():
        if "." in place:
            target = f"{app.config.html_theme_options['repository_url']}/blob/main/{place}"
        else:
            target = f"../{place}.html"
        page = f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">This page has moved.</a>\n'
        Path(app.outdir, f"{name}.html").write_text(f"<!doctype html>{page}", encoding="utf8")


def own_code() -> str:
    """Hash the code of this extension. When it changes, Sphinx writes all pages anew."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.[pj][ys]")):
        code.update(path.read_bytes())
    return code.hexdigest()


def setup(app):
    app.config.html_static_path.append("book/_static")
    app.add_css_file("companion.css")
    for part in PARTS:
        app.setup_extension(part)
    add_claims(app)
    app.connect("config-inited", repository_from_environment)
    app.connect("source-read", show_executed)
    app.connect("env-get-updated", number_as_the_paper, priority=900)
    app.connect("html-page-context", tidy_page, priority=900)
    app.connect("build-finished", finish_pages)
    app.connect("build-finished", write_moved_pages)
    app.add_config_value("companion_code", own_code(), "env")
    # Pages are written in one process, because all share one typesetter.
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
