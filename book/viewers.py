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
"""A link to another notebook. Here it leads to the one beside it instead."""
TOP = """\
# The notebooks, executed

Each with its figures and the numbers of the run that the book shows. GitHub renders them here; so does \
[nbviewer]({viewer}), faster for long ones. Figures that move in the book stand still. This branch is written by the \
workflow and has no history; [the project]({address}) is on `{branch}`.

"""


def shown(page: Page, output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Turn an output that is a figure into a PNG of its size on the page, drawn by a browser on white.

    What is no figure is left as it is.
    """
    data = output.get("data", {})
    if "image/svg+xml" in data:
        svg = data["image/svg+xml"]
        markup = svg[svg.index("<svg") :]
        selector = "svg"
    elif data.get("text/html", "").startswith(MOVING):
        markup = data["text/html"]
        selector = ".moving"
    else:
        return output
    page.set_content(f'<body style="margin: 0; background: white">{markup}</body>')
    element = page.locator(selector).first
    box = element.bounding_box()
    size = {"width": round(box["width"]), "height": round(box["height"])}
    drawing = base64.b64encode(element.screenshot()).decode()
    alternatives = {"image/png": drawing, "text/plain": data.get("text/plain", "a figure")}
    return nbformat.v4.new_output("display_data", alternatives, metadata={"image/png": size})


def executed_twin(name: str, page: Page) -> nbformat.NotebookNode:
    """Give a twin the outputs of its run, with links to the notebooks beside it. ValueError for a run of other code."""
    twin = nbformat.read(pipeline.ROOT / "notebooks" / f"{name}.ipynb", 4)
    run = nbformat.read(pipeline.executed_copy(name), 4)
    notebook = pipeline.with_outputs(twin, run)
    for cell in notebook.cells:
        if pipeline.is_code(cell):
            cell.outputs = [shown(page, output) for output in cell.outputs]
        else:
            cell.source = COLAB.sub(r"\1", cell.source)
    return notebook


def collect(page: Page) -> dict[str, str]:
    """Make the files to write: their texts by their names.

    SystemExit, with its name, where a notebook is not executed as it stands.
    """
    home = pipeline.repository()
    viewer = home["url"].replace("https://github.com", "https://nbviewer.org/github") + "/tree/executed"
    top = TOP.format(viewer=viewer, address=home["url"], branch=home["branch"])
    files = {}
    contents = (pipeline.ROOT / "_toc.yml").read_text(encoding="utf8")
    for name in re.findall(r"file: notebooks/(\S+)", contents):
        try:
            notebook = executed_twin(name, page)
        except (OSError, ValueError) as error:
            sys.exit(f"{name}: {error}; run `make book`")
        title = re.search(r"^# (.+)$", notebook.cells[0].source, re.MULTILINE)[1]
        top += f"- [{title}]({name}.ipynb)\n"
        files[f"{name}.ipynb"] = pipeline.as_text(notebook)
    files["README.md"] = top
    return files


def main() -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 760, "height": 900}, device_scale_factor=1.5)
        files = collect(page)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf8")
    megabytes = sum(map(len, files.values())) / 1e6
    print(f"{len(files) - 1} notebooks, {megabytes:.0f} MB: {FOLDER}")


if __name__ == "__main__":
    main()
