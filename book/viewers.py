"""The executed notebooks for readers who build nothing: as GitHub and nbviewer show them, with figures as pictures.

python book/viewers.py    writes build/viewers; needs the executed notebooks (make book) and Chromium

A viewer runs no scripts and may strip an SVG of its styles, so every figure becomes a PNG, also one that moves.
"""

from __future__ import annotations

import base64
import re
import shutil
import sys

import nbformat
from playwright.sync_api import Page

import notebooks as pipeline

sys.path.insert(0, str(pipeline.ROOT / "tests" / "support"))
from browser import chromium

FOLDER = pipeline.ROOT / "build" / "viewers"
MOVING = '<div class="moving"'
"""What the HTML of a figure that moves begins with."""
COLAB = re.compile(r"https://colab\.research\.google\.com/github/[^)\s]+/notebooks/([\w.-]+\.ipynb)")
TOP = """\
# The notebooks, executed

Each with its figures and the numbers of the run that the book shows. GitHub renders them here; so does \
[nbviewer]({viewer}), faster for long ones. Figures that move in the book stand still. This branch is written by the \
workflow and has no history; [the project]({address}) is on `{branch}`.

"""


def shown(page: Page, output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """An output as any viewer shows it: a figure as a browser draws it, on white, as a PNG of its size on the page."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        markup, selector = re.sub(r"^.*?(?=<svg)", "", data["image/svg+xml"], flags=re.DOTALL), "svg"
    elif data.get("text/html", "").startswith(MOVING):
        markup, selector = data["text/html"], ".moving"
    else:
        return output
    page.set_content(f'<body style="margin: 0; background: white">{markup}</body>')
    element = page.locator(selector).first
    size = {side: round(element.bounding_box()[side]) for side in ("width", "height")}
    drawing = base64.b64encode(element.screenshot()).decode()
    made = {"image/png": drawing, "text/plain": data.get("text/plain", "a figure")}
    return nbformat.v4.new_output("display_data", made, metadata={"image/png": size})


def merged(twin: nbformat.NotebookNode, run: nbformat.NotebookNode, page: Page) -> nbformat.NotebookNode:
    """The twin's text and code with the outputs of a run. ValueError where the run is of other code."""
    code, ran = ([cell for cell in one.cells if cell.cell_type == "code"] for one in (twin, run))
    ran = [cell for cell in ran if pipeline.INJECTED not in cell.metadata.get("tags", [])]
    if [cell.source for cell in ran] != [cell.source for cell in code]:
        raise ValueError("it was executed with other code")
    for cell, done in zip(code, ran, strict=True):
        cell.execution_count = done.execution_count
        cell.outputs = [shown(page, output) for output in done.outputs]
    return twin


def collect(page: Page) -> dict[str, str]:
    """The files to write, by their names. SystemExit with its name where a notebook is not executed as it stands."""
    home, files = pipeline.repository(), {}
    viewer = home["url"].replace("https://github.com", "https://nbviewer.org/github") + "/tree/executed"
    top = TOP.format(viewer=viewer, address=home["url"], branch=home["branch"])
    for name in re.findall(r"file: notebooks/(\S+)", (pipeline.ROOT / "_toc.yml").read_text()):
        twin = nbformat.read(pipeline.ROOT / "notebooks" / f"{name}.ipynb", 4)
        top += f"- [{re.search(r'^# (.+)$', twin.cells[0].source, re.MULTILINE)[1]}]({name}.ipynb)\n"
        try:
            notebook = merged(twin, nbformat.read(pipeline.EXECUTED / f"{name}.ipynb", 4), page)
        except (OSError, ValueError) as error:
            sys.exit(f"{name}: {error}; run `make book`")
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = COLAB.sub(r"\1", cell.source)  # the notebooks beside it
        files[f"{name}.ipynb"] = nbformat.writes(notebook) + "\n"
    return files | {"README.md": top}


def main() -> None:
    with chromium() as browser:
        files = collect(browser.new_page(viewport={"width": 760, "height": 900}, device_scale_factor=1.5))
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf8")
    print(f"{len(files) - 1} notebooks, {sum(map(len, files.values())) / 1e6:.0f} MB: {FOLDER}")


if __name__ == "__main__":
    main()
