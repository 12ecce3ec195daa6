"""A line below each page's title: how long it takes to read and to run, and where to open and rerun it."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

from docutils import nodes

WORDS_A_MINUTE = 180
SECONDS_A_DISPLAY = 8  # a displayed formula or a picture is looked at for longer than it has words
EXAMPLES = {
    "2-setting": "-p instances 3000",
    "3-hmm": "-p seed 7",
    "in-pictures": "-p seed 7",
    "5-0-exact-ladder": "-p hidden_sizes '[4, 30]'",
    "5-1-pretraining": "-p hidden_size 30",
    "5-2-head-vs-prompt": "-p seed 100",
    "5-3-memory-vs-vanilla": "-p seed 100",
    "beyond-1-tuned-prompt": "-p seed 7",
    "beyond-2-probes": "-p trials 5",
    "beyond-4-published-curve": "-p seed 7",
    "beyond-5-prefix-lora": "-p seed 7",
    "gallery": "-p seed 7",
}
"""What to change first, for the notebooks where that is not `-p instances 1000`."""


PAPER = "https://arxiv.org/abs/2106.09226"
PARTS = {
    "2-setting": "Section 2",
    "3-hmm": "Section 3",
    "3-1-prompt": "Section 3.1",
    "4-memory-hmm": "Section 4",
    "4-1-attention-head": "Section 4.1",
    "4-2-memory-prompt": "Section 4.2",
    "5-0-exact-ladder": "Section 5",
    "5-1-pretraining": "Section 5",
    "5-2-head-vs-prompt": "Section 5",
    "5-3-memory-vs-vanilla": "Section 5",
    "appendix-b": "Appendix B",
    "appendix-c": "Appendix C",
    "appendix-d": "Appendix D",
    "appendix-d-1": "Appendix D.1",
    "appendix-d-2": "Appendix D.2",
    "appendix-d-3": "Appendix D.3",
    "protocol-and-code": "Appendix E",
}
"""Where in the paper that is of which a page speaks; of all others, the whole paper."""


NOT_READ = (nodes.literal_block, nodes.math_block, nodes.raw, nodes.comment)
"""Code, and what is counted by the piece or not seen as text."""


def reading_minutes(doctree: nodes.document) -> int:
    """Minutes to read a page's text and formulas, without its code; at least one."""
    seconds = 0.0
    for node in doctree.findall(lambda n: isinstance(n, nodes.Text | nodes.math_block | nodes.image)):
        if isinstance(node, nodes.Text):
            parent = node.parent
            while parent is not None and not isinstance(parent, NOT_READ):
                parent = parent.parent
            if parent is None:
                seconds += 60 * len(node.astext().split()) / WORDS_A_MINUTE
        else:
            seconds += SECONDS_A_DISPLAY
    return max(1, ceil(seconds / 60))


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
    source = f"{options['repository_url']}/blob/{options['repository_branch']}/{pagename}"
    name = pagename.split("/")[-1]
    paper = f'<a href="{PAPER}">the paper{", " * (name in PARTS)}{PARTS.get(name, "")}</a>'
    parts = [f"{reading_minutes(doctree)} min to read", paper]
    if pagename.startswith("book/api"):  # no page to be read through
        parts = parts[1:]
    if not pagename.startswith("notebooks/"):
        return f'<p class="facts">{" · ".join(parts)} · <a href="{source}.md">source</a></p>'
    where = "/".join(options["repository_url"].split("/")[-2:])
    colab = f"{app.config.html_theme_options['launch_buttons']['colab_url']}/github/{where}"
    notebook = f"{colab}/blob/{options['repository_branch']}/{pagename}.ipynb"
    command = f"papermill {pagename}.ipynb mine/out.ipynb {EXAMPLES.get(name, '-p instances 1000')}"
    parts += [
        f"{runtime(app.srcdir, pagename)} to run, when this page was built",
        f'<a href="{notebook}">open in Colab</a>',
        f'<a href="{source}.md">source</a>',
    ]
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
