"""What a first visit to each page of the built book costs: bytes, requests, seconds, and how far things jump.

python benchmarks/page_loads.py [--html _build/html] [--times 3]

Needs `make book` and a Chromium. Every visit is in a context of its own, so nothing is cached; the book is served by
this process, uncompressed. Seconds are medians, and on one's own machine: good for comparing builds, not for a network.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import chromium, served  # noqa: E402

KINDS = {"document": "HTML", "script": "code", "stylesheet": "code", "font": "fonts", "image": "images"}
PARTS = ("HTML", "code", "fonts", "images", "other")
WATCH = """window.jumps = 0;
new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.jumps += e.value; })
  .observe({type: 'layout-shift', buffered: true});"""
TYPESET = """async () => {
  if (window.MathJax) await MathJax.startup.promise;
  const ready = () => [...document.querySelectorAll('span.math, div.math')].every(e => e.querySelector('mjx-container svg'));
  while (!ready()) await new Promise(requestAnimationFrame);
  await document.fonts.ready;
  return performance.now() / 1000;
}"""
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"


def visit(browser: Browser, address: str) -> dict[str, float]:
    """One first visit: bytes by kind, requests, seconds to the load event and to the last formula, sum of jumps."""
    context = browser.new_context(viewport=dict(width=1280, height=900))
    context.add_init_script(WATCH)
    page = context.new_page()
    finished = []
    page.on("requestfinished", lambda request: finished.append(request))
    page.goto(address, wait_until="load")
    measured = {"typeset": page.evaluate(TYPESET), "load": page.evaluate(LOADED)}
    page.wait_for_timeout(500)
    measured |= {"jumps": page.evaluate("jumps"), "requests": len(finished), **dict.fromkeys(PARTS, 0)}
    for request in finished:
        measured[KINDS.get(request.resource_type, "other")] += request.sizes()["responseBodySize"]
    context.close()
    return measured


def pages(html: Path) -> list[str]:
    """All pages of the book, but not the one at its root that only leads to the first."""
    found = [path.relative_to(html) for path in html.rglob("*.html") if "_static" not in path.parts]
    return sorted(str(path) for path in found if len(path.parts) > 1 or path.name == "search.html")


def main(html: Path = ROOT / "_build" / "html", times: Annotated[int, typer.Option(min=1)] = 3) -> None:
    print("| page | kB | HTML | scripts, styles | fonts | images, other | requests | load, s | typeset, s | shift |")
    print("| --- " + "| ---: " * 9 + "|")
    with served(html) as home, chromium() as browser:
        visit(browser, home + "search.html")
        for path in pages(html):
            runs = [visit(browser, home + path) for _ in range(times)]
            one = {key: median(run[key] for run in runs) for key in runs[0]}
            parts = [one["HTML"], one["code"], one["fonts"], one["images"] + one["other"]]
            print(
                f"| {path.removesuffix('.html')} | {' | '.join(f'{size / 1e3:.0f}' for size in [sum(parts), *parts])} "
                f"| {one['requests']:.0f} | {one['load']:.2f} | {one['typeset']:.2f} "
                f"| {max(run['jumps'] for run in runs):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    typer.run(main)
