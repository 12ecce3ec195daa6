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

from companion.evidence.statements import STATEMENTS
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import hmmlib

ROOT = Path(hmmlib.__file__).parents[1]
LABELS = {statement.name: statement.label for statement in STATEMENTS}
PAGES = {room: f"book/api-{room}" for room in ("models", "inference", "theory", "training", "experiments")}
"""Where the names at the root of `hmmlib` are described, by the room of their module."""
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
SPECIAL = re.compile(r"[\\*|]|(?<=\w)_(?!\w)")  # of reStructuredText, in what is plain text


def statement_of(name: str) -> str | None:
    """The statement that a function constructs or tests, as the ledger names it: of theorem_3_3, "Theorem 3.3"."""
    kind, _, number = name.partition("_")
    told = f"{kind.title()} {number.upper().replace('_', '.')}" if kind in KINDS else CONSTRUCTS.get(name)
    return told if told in LABELS else None


def function_of(statement: str) -> str | None:
    """The name at the root of `hmmlib` that is called as a statement is, if any: of "Theorem 3.3", theorem_3_3."""
    name = re.sub(r"[ .]", "_", statement).lower()
    return name if name in hmmlib.__all__ else None


def link_to(builder, docname: str, name: str, shown: nodes.Node) -> nodes.reference:
    """From a page to a name at the root, or to one that stands behind it and a dot."""
    page = PAGES.get(hmmlib._MODULE[name.split(".")[0]].split(".")[0], PAGES["models"])
    uri = f"{builder.get_relative_uri(docname, page)}#hmmlib.{name}"
    return nodes.reference("", "", shown, refuri=uri, internal=True)


def marked_up(line: str) -> str:
    """A line of plain text with `code`, as reStructuredText."""
    pieces = line.split("`")
    pieces[::2] = [SPECIAL.sub(r"\\\g<0>", piece) for piece in pieces[::2]]
    pieces[1::2] = [f":py:obj:`~hmmlib.{code}`" if code in hmmlib.__all__ else f"``{code}``" for code in pieces[1::2]]
    return "".join(pieces)


def write_up(app, what, name, obj, options, lines) -> None:
    """Before napoleon reads the sections of a docstring: its text, and which statement it belongs to."""
    lines[:] = list(map(marked_up, lines))
    if what == "property":  # napoleon takes what stands before a colon in the first line for a type
        lines.insert(0, "")
    if statement := statement_of(name.split(".")[-1]):
        label = LABELS[statement]
        lines += ["", f"*Derived and checked:* :prf:ref:`{label}`."]


def short_signature(app, what, name, obj, options, signature, returned) -> tuple[str, str | None] | None:
    """A spec's fields by name and default alone, where what each accepts would take lines of pydantic's own code.

    An enumeration is not called, and has none. The space before a shape's only letter is there for linters alone.
    """
    if isinstance(obj, type) and issubclass(obj, Enum):
        return "", None
    if "Annotated[" not in (signature or ""):
        return tuple(text and re.sub(r"(['\"]) ([^'\", ]+['\"])", r"\1\2", text) for text in (signature, returned))
    named = [p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(obj).parameters.values()]
    return str(inspect.Signature(named)), returned


def to_the_root(app, env, node, shown):
    """A type of an annotation is described under its name at the root of `hmmlib`, wherever it is defined."""
    name = node.get("reftarget", "").split(".")[-1]
    known = node.get("refdomain") == "py" and name in hmmlib.__all__
    return link_to(app.builder, node["refdoc"], name, shown) if known else None


def source_of(config, domain: str, info: dict) -> str | None:
    """What linkcode asks: where an object's code is, on the repository's main branch."""
    try:
        found = inspect.unwrap(attrgetter(info["fullname"])(importlib.import_module(info["module"])))
        where, line = Path(inspect.getsourcefile(found)).relative_to(ROOT), inspect.getsourcelines(found)[1]
    except (ValueError, AttributeError, TypeError):  # on a page alone, of instances alone, or data
        return None
    options = config.html_theme_options
    return f"{options['repository_url']}/blob/{options['repository_branch']}/{where.as_posix()}#L{line}"


LINES = re.compile(r"<dl>\s*((?:<dd>.*?</dd>\s*)+)</dl>", re.DOTALL)
"""Parameters that stand one to a line: Sphinx makes them a list of definitions without a term, which is none."""


def parameters_in_lines(app, pagename, templatename, context, doctree) -> None:
    def spans(found: re.Match) -> str:
        return f'<span class="parameters">{found[1].replace("dd>", "span>")}</span>'

    if "body" in context:
        context["body"] = LINES.sub(spans, context["body"])


class WhatToCall(SphinxDirective):
    """The table of `help(hmmlib)`: tasks, and the names to call, each with a link to its place."""

    def run(self):
        self.env.note_dependency(hmmlib.__file__)
        found = nodes.definition_list()
        for task, names in re.findall(r"^ {4}([A-Z].+?) {2,}(\S.*)$", hmmlib.__doc__, re.MULTILINE):
            meaning = nodes.paragraph()
            for name in names.split(", "):
                meaning += nodes.Text(", ") if meaning.children else []
                meaning += link_to(self.env.app.builder, self.env.docname, name, nodes.literal(text=name))
            found += nodes.definition_list_item("", nodes.term("", task), nodes.definition("", meaning))
        return [found]


def setup(app) -> None:
    for name, value in {
        "autodoc_member_order": "bysource",
        "autodoc_preserve_defaults": True,
        "autodoc_typehints_format": "short",
        "linkcode_resolve": partial(source_of, app.config),
        "python_maximum_signature_line_length": 110,
        "python_use_unqualified_type_names": True,
        "toc_object_entries_show_parents": "hide",
    }.items():
        app.config[name] = value
    for extension in ("autodoc", "autosummary", "napoleon", "linkcode"):
        app.setup_extension(f"sphinx.ext.{extension}")
    app.connect("autodoc-process-docstring", write_up, priority=400)
    app.connect("autodoc-process-signature", short_signature)
    # fields of named tuples are left out: their class describes them
    app.connect("autodoc-skip-member", lambda app, what, name, obj, *_: type(obj).__name__ == "_tuplegetter" or None)
    app.connect("html-page-context", parameters_in_lines)
    app.connect("missing-reference", to_the_root)
    app.add_directive("what-to-call", WhatToCall)
