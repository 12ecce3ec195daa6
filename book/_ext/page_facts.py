"""A line below each page's title: how long it takes to read and to run, and where to open and rerun it."""

from __future__ import annotations

import json
import re
from math import ceil
from pathlib import Path

from docutils import nodes
from reading import CLOSING

import notebooks as pipeline

WORDS_A_MINUTE = 180
SECONDS_A_DISPLAY = 8
"""How long a displayed formula or a picture is looked at, on average."""
PAPER = "https://arxiv.org/abs/2106.09226"
SECTION = re.compile(r"(?:appendix-(?P<letter>[a-e])|(?P<number>[2-5]))(?:-(?P<part>[1-9]))?(?=-|$)")
"""How the names of pages begin that derive a section of the paper, or an appendix; Section 5 has no parts."""
NOT_READ = (nodes.literal_block, nodes.math_block, nodes.raw, nodes.comment, nodes.citation, nodes.table)
"""Code, what is looked up (references, tables), and what is counted by the piece or not seen as text."""


def part_of_the_paper(name: str) -> str:
    """Say of which part of the paper a page speaks, given its name; "" stands for the whole paper."""
    if name == "protocol-and-code":
        return "Appendix E"
    match = SECTION.match(name)
    if not match:
        return ""
    part = ""
    if match["part"] and match["number"] != "5":
        part = f".{match['part']}"
    if match["letter"]:
        return f"Appendix {match['letter'].upper()}{part}"
    return f"Section {match['number']}{part}"


def example(srcdir: str, pagename: str) -> str:
    """Say what a reader may change first: the number of random instances, or else the seed."""
    text = Path(srcdir, f"{pagename}.md").read_text(encoding="utf8")
    if re.search("^instances: ", text, re.MULTILINE):
        return "-p instances 1000"
    return "-p seed 7"


def within(node: nodes.Node | None, kinds) -> bool:
    """Tell whether a node, or one that it stands in, is of these classes."""
    while node is not None:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


def reading_minutes(doctree: nodes.document) -> int:
    """Estimate the minutes to read the text and formulas of a page, without code, tables and the closing section."""
    doctree = doctree.deepcopy()
    for section in list(doctree.findall(nodes.section)):
        if section[0].astext() == CLOSING:
            section.parent.remove(section)
    word_count = 0
    for text in doctree.findall(nodes.Text):
        if not within(text, NOT_READ):
            word_count += len(text.split())
    displays = [*doctree.findall(nodes.math_block), *doctree.findall(nodes.image)]
    return max(1, ceil(word_count / WORDS_A_MINUTE + len(displays) * SECONDS_A_DISPLAY / 60))


def in_words(seconds: float) -> str:
    """Say a duration as a reader would: to the nearest 5 s, or from 90 s on to the minute."""
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5))} s"
    return f"{round(seconds / 60)} minutes"


def runtime(name: str) -> str:
    """Say how long a notebook ran. Where it was not executed, `book_setup` warns of it."""
    path = pipeline.executed_copy(name)
    if not path.is_file():
        return "unknown time"
    metadata = json.loads(path.read_text(encoding="utf8"))["metadata"]
    return in_words(metadata["papermill"]["duration"])


def facts(app, pagename: str, doctree: nodes.document) -> str:
    """Write the line as HTML, and for a notebook the command that reruns it."""
    name = pagename.split("/")[-1]
    options = app.config.html_theme_options
    branch = options["repository_branch"]
    is_notebook = pagename.startswith("notebooks/")
    items = []
    if not pagename.startswith("book/api"):  # Nobody reads the reference from its beginning to its end.
        items.append(f"{reading_minutes(doctree)} min to read")
    part = part_of_the_paper(name)
    paper = f"the paper, {part}" if part else "the paper"
    items.append(f'<a href="{PAPER}">{paper}</a>')
    if is_notebook:
        repository = "/".join(options["repository_url"].split("/")[-2:])
        colab = f"{options['launch_buttons']['colab_url']}/github/{repository}/blob/{branch}"
        items.append(f"{runtime(name)} to run, when this page was built")
        items.append(f'<a href="{colab}/{pagename}.ipynb">open in Colab</a>')
    items.append(f'<a href="{options["repository_url"]}/blob/{branch}/{pagename}.md">source</a>')
    line = " · ".join(items)
    if not is_notebook:
        return f'<p class="facts">{line}</p>'
    command = f"papermill {pagename}.ipynb mine/out.ipynb {example(app.srcdir, pagename)}"
    return (
        f'<div class="facts"><p>{line}</p><details><summary>Rerun it with other numbers</summary>'
        f"<p>In a shell, from the project's folder and in its environment, with any of the parameters below:</p>"
        f"<pre><code>{command}</code></pre></details></div>"
    )


def add_facts(app, pagename, templatename, context, doctree) -> None:
    """Put the line below the title of a page."""
    if doctree is not None and "</h1>" in context.get("body", ""):
        context["body"] = context["body"].replace("</h1>", f"</h1>\n{facts(app, pagename, doctree)}", 1)


def setup(app) -> None:
    app.connect("html-page-context", add_facts, priority=800)
