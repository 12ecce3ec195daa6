"""The reference: what can be called, by sphinx's autodoc, from docstrings that are written to be read as plain text.

A docstring has `code` in single backticks and formulas in letters, and neither is marked up for Sphinx. Here the first
becomes code, or a link where it is a public name, and the second is kept as it stands. What constructs a statement gets
a line that leads to the page that derives it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from enum import Enum
from functools import partial
from operator import attrgetter
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import hmmbook
import hmmlib
from hmmbook.evidence.statements import STATEMENTS

ROOT = Path(hmmlib.__file__).parents[1]
LABELS = {statement.name: statement.label for statement in STATEMENTS}
PACKAGES = (hmmlib, hmmbook)
"""The packages whose names at the root have an entry in the reference."""
KINDS = {"assumption", "claim", "lemma", "theorem"}
CONSTRUCTS = {
    "prompt_d_6": "Theorem D.6",
    "certificate": "Certificate",
    "nearest_head": "Exactness",
    "nearest_prompt": "Exactness",
    "separating_head": "Separable signs",
    "prompt_for_separating_head": "Separable signs",
    "signal_for": "Relabelling",
}
"""The statements that functions belong to whose names do not say so."""
SPECIAL = re.compile(r"[\\*|]|(?<=\w)_(?!\w)")
"""What reStructuredText would take for markup in plain text."""
ROW_OF_TASKS = re.compile(r"^ {4}([A-Z].+?) {2,}(\S.*)$", re.MULTILINE)
"""A row of the table of `help(hmmlib)`: a task, and the names to call."""
SETTINGS = {
    "autodoc_member_order": "bysource",
    "autodoc_preserve_defaults": True,
    "autodoc_typehints_format": "short",
    "python_maximum_signature_line_length": 110,
    "python_use_unqualified_type_names": True,
    "toc_object_entries_show_parents": "hide",
}


# Names and statements


def statement_of(name: str) -> str | None:
    """Name the statement that a function constructs or tests, as the ledger does: of theorem_3_3, "Theorem 3.3"."""
    statement = CONSTRUCTS.get(name)
    kind, _, number = name.partition("_")
    if kind in KINDS:
        statement = f"{kind.title()} {number.upper().replace('_', '.')}"
    return statement if statement in LABELS else None


def function_of(statement: str) -> str | None:
    """Name the function at the root of `hmmlib` that is called as a statement is: of "Theorem 3.3", theorem_3_3."""
    name = re.sub(r"[ .]", "_", statement).lower()
    return name if name in hmmlib.__all__ else None


def link_to(docname: str, name: str) -> addnodes.pending_xref:
    """Link from a page to a name at the root of `hmmlib`, or to one behind it and a dot, such as HMM.sample."""
    shown = nodes.literal(text=name)
    target = f"hmmlib.{name}"
    return addnodes.pending_xref("", shown, refdomain="py", reftype="obj", reftarget=target, refdoc=docname)


def to_the_root(app, env, node, shown):
    """Link a type of an annotation to its name at the root of a package, wherever it is defined."""
    name = node.get("reftarget", "").split(".")[-1]
    described = env.get_domain("py").objects
    for package in PACKAGES:
        full_name = f"{package.__name__}.{name}"
        if node.get("refdomain") == "py" and full_name in described:
            entry = described[full_name]
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, shown)
    return None


# Docstrings


def marked_up(line: str) -> str:
    """Write a line of plain text with `code` as reStructuredText."""
    markup = ""
    for k, piece in enumerate(line.split("`")):
        markup += link_or_code(piece) if k % 2 else SPECIAL.sub(r"\\\g<0>", piece)
    return markup


def link_or_code(code: str) -> str:
    """Write code in reStructuredText, as a link where it is a name at the root of a package."""
    for package in PACKAGES:
        if code in package.__all__:
            return f":py:obj:`~{package.__name__}.{code}`"
    return f"``{code}``"


def write_up(app, what, name, obj, options, lines) -> None:
    """Mark up a docstring, before napoleon reads its sections, and add the statement that it belongs to."""
    in_example = False
    for k, line in enumerate(lines):
        if line.lstrip().startswith(">>>"):
            in_example = True
        elif not line.strip():
            in_example = False
        if not in_example:
            lines[k] = marked_up(line)
    if what == "property":  # napoleon takes what stands before a colon in the first line for a type.
        lines.insert(0, "")
    statement = statement_of(name.split(".")[-1])
    if statement:
        lines.append("")
        lines.append(f"*Derived and checked:* :prf:ref:`{LABELS[statement]}`.")


def without_space_in_shapes(text: str | None) -> str | None:
    """Drop the space before the only letter of a shape. It is there for linters alone."""
    if not text:
        return text
    return re.sub(r"(['\"]) ([^'\", ]+['\"])", r"\1\2", text)


def short_signature(app, what, name, obj, options, signature, returned) -> tuple[str | None, str | None]:
    """Shorten a signature.

    A spec's fields stand with names and defaults alone, because what each accepts would take lines of pydantic's own
    code. An enumeration is not called, and has no signature.
    """
    if isinstance(obj, type) and issubclass(obj, Enum):
        return "", None
    if "Annotated[" not in (signature or ""):
        return without_space_in_shapes(signature), without_space_in_shapes(returned)
    parameters = []
    for parameter in inspect.signature(obj).parameters.values():
        parameters.append(parameter.replace(annotation=inspect.Parameter.empty))
    return str(inspect.Signature(parameters)), returned


def skip_fields_of_tuples(app, what, name, obj, skip, options) -> bool | None:
    """Leave out the fields of named tuples, because their class describes them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def source_of(config, domain: str, info: dict) -> str | None:
    """Tell linkcode where an object's code is, on the repository's main branch."""
    try:
        module = importlib.import_module(info["module"])
        obj = inspect.unwrap(attrgetter(info["fullname"])(module))
        path = Path(inspect.getsourcefile(obj)).relative_to(ROOT)
        line = inspect.getsourcelines(obj)[1]
    except (ValueError, AttributeError, TypeError):  # It is on a page alone, or of instances alone, or data.
        return None
    options = config.html_theme_options
    return f"{options['repository_url']}/blob/{options['repository_branch']}/{path.as_posix()}#L{line}"


# Pages

PARAMETER_LIST = re.compile(r"<dl>\s*((?:<dd>.*?</dd>\s*)+)</dl>", re.DOTALL)
"""Parameters that stand one to a line. Sphinx makes them a list of definitions without a term, which is none."""


def as_spans(parameters: re.Match) -> str:
    return f'<span class="parameters">{parameters[1].replace("dd>", "span>")}</span>'


def parameters_in_lines(app, pagename, templatename, context, doctree) -> None:
    if "body" in context:
        context["body"] = PARAMETER_LIST.sub(as_spans, context["body"])


class WhatToCall(SphinxDirective):
    """The table of `help(hmmlib)`: tasks, and the names to call, each with a link to its place."""

    def run(self):
        self.env.note_dependency(hmmlib.__file__)
        table = nodes.definition_list()
        for task, names in ROW_OF_TASKS.findall(hmmlib.__doc__):
            links = nodes.paragraph()
            for name in names.split(", "):
                if links.children:
                    links += nodes.Text(", ")
                links += link_to(self.env.docname, name)
            table += nodes.definition_list_item("", nodes.term("", task), nodes.definition("", links))
        return [table]


def setup(app) -> None:
    for name, value in SETTINGS.items():
        app.config[name] = value
    app.config["linkcode_resolve"] = partial(source_of, app.config)
    for extension in ("autodoc", "autosummary", "napoleon", "linkcode"):
        app.setup_extension(f"sphinx.ext.{extension}")
    app.connect("autodoc-process-docstring", write_up, priority=400)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-skip-member", skip_fields_of_tuples)
    app.connect("html-page-context", parameters_in_lines)
    app.connect("missing-reference", to_the_root)
    app.add_directive("what-to-call", WhatToCall)
