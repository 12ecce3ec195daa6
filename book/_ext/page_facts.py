"""A line below each page's title: how long it takes to read and to run, and where to open and rerun it."""

from __future__ import annotations

import json
import re
from math import ceil
from pathlib import Path

from docutils import nodes
from reading import CLOSING

WORDS_A_MINUTE = 180
SECONDS_A_DISPLAY = 8  # a displayed formula or a picture is looked at for longer than it has words
PAPER = "https://arxiv.org/abs/2106.09226"
SECTION = re.compile(r"(?:appendix-(?P<letter>[a-e])|(?P<number>[2-5]))(?:-(?P<part>[1-9]))?(?=-|$)")
"""How the names of pages begin that derive a section of the paper, or an appendix; Section 5 has no parts."""


def part_of_the_paper(name: str) -> str:
    """Where in the paper that is of which a page speaks; "" for the whole paper."""
    if name == "protocol-and-code":
        return "Appendix E"
    if not (found := SECTION.match(name)):
        return ""
    part = f".{found['part']}" if found["part"] and found["number"] != "5" else ""
    return f"Appendix {found['letter'].upper()}{part}" if found["letter"] else f"Section {found['number']}{part}"


def example(srcdir: str, pagename: str) -> str:
    """What to change first: the number of random instances, or else the seed."""
    text = Path(srcdir, f"{pagename}.md").read_text(encoding="utf8")
    return "-p instances 1000" if re.search("^instances: ", text, re.MULTILINE) else "-p seed 7"


NOT_READ = (nodes.literal_block, nodes.math_block, nodes.raw, nodes.comment, nodes.citation, nodes.table)
"""Code, what is looked up (references, tables), and what is counted by the piece or not seen as text."""


def within(node: nodes.Node | None, kinds) -> bool:
    """Whether a node, or one that it stands in, is of these classes."""
    return node is not None and (isinstance(node, kinds) or within(node.parent, kinds))


def reading_minutes(doctree: nodes.document) -> int:
    """Minutes to read the text and formulas of a page, without code, tables and the closing block; at least one."""
    shown = doctree.deepcopy()
    for section in [one for one in shown.findall(nodes.section) if one[0].astext() == CLOSING]:
        section.parent.remove(section)
    words = sum(len(text.split()) for text in shown.findall(nodes.Text) if not within(text, NOT_READ))
    displays = sum(isinstance(node, nodes.math_block | nodes.image) for node in shown.findall())
    return max(1, ceil(words / WORDS_A_MINUTE + displays * SECONDS_A_DISPLAY / 60))


def in_words(seconds: float) -> str:
    """A duration as a reader would say it: to the nearest 5 s, or from 90 s on to the minute."""
    return f"{max(5, 5 * round(seconds / 5))} s" if seconds < 90 else f"{round(seconds / 60)} minutes"


def runtime(srcdir: str, pagename: str) -> str:
    """How long the notebook of a page ran; not known where it was not executed, of which `book_setup` has warned."""
    path = Path(srcdir, "build", "executed", f"{pagename}.ipynb")
    if not path.is_file():
        return "unknown time"
    return in_words(json.loads(path.read_text(encoding="utf8"))["metadata"]["papermill"]["duration"])


def facts(app, pagename: str, doctree: nodes.document) -> str:
    """The line as HTML. Times of running are of the run that is shown on the page."""
    options = app.config.html_theme_options
    source = f"{options['repository_url']}/blob/{options['repository_branch']}/{pagename}.md"
    part = part_of_the_paper(pagename.split("/")[-1])
    parts = [f'<a href="{PAPER}">{", ".join(filter(None, ["the paper", part]))}</a>', f'<a href="{source}">source</a>']
    if not pagename.startswith("book/api"):  # no page to be read through
        parts.insert(0, f"{reading_minutes(doctree)} min to read")
    if not pagename.startswith("notebooks/"):
        return f'<p class="facts">{" · ".join(parts)}</p>'
    where = "/".join(options["repository_url"].split("/")[-2:])
    colab = f"{options['launch_buttons']['colab_url']}/github/{where}/blob/{options['repository_branch']}"
    parts[2:2] = [
        f"{runtime(app.srcdir, pagename)} to run, when this page was built",
        f'<a href="{colab}/{pagename}.ipynb">open in Colab</a>',
    ]
    command = f"papermill {pagename}.ipynb mine/out.ipynb {example(app.srcdir, pagename)}"
    return (
        f'<div class="facts"><p>{" · ".join(parts)}</p><details><summary>Rerun it with other numbers</summary>'
        f"<p>In a shell, from the project's folder and in its environment, with any of the parameters below:</p>"
        f"<pre><code>{command}</code></pre></details></div>"
    )


def add_facts(app, pagename, templatename, context, doctree) -> None:
    if doctree is not None and "</h1>" in context.get("body", ""):
        context["body"] = context["body"].replace("</h1>", f"</h1>\n{facts(app, pagename, doctree)}", 1)


def setup(app) -> None:
    app.connect("html-page-context", add_facts, priority=800)
