"""The pictures of the README: Figure 3 from the stored trials, and the built book as a browser shows it.

python book/readme_pictures.py    writes book/pictures/*.png; needs the built book and Chromium
"""

from __future__ import annotations

import sys
from pathlib import Path

from companion.figures import figure_3, figures
from playwright.sync_api import Page

from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from browser import chromium  # noqa: E402

HTML = ROOT / "_build" / "html"
FOLDER = ROOT / "book" / "pictures"


def left_panel() -> None:
    figures.use_style()
    trials = results("quick", STORE).query("changes == '' and n_memory == 1")
    figure_3.panel(trials[trials.n_states.isin([4, 8, 10, 15, 25, 30])], "left").savefig(
        FOLDER / "head-against-prompt.png", dpi=150
    )


def theorem(page: Page) -> None:
    """A theorem in the text, and the card of another under the pointer."""
    page.goto((HTML / "notebooks" / "3-1-prompt.html").as_uri())
    link = page.locator("article a[href*='paper-thm-3-3']").first
    link.scroll_into_view_if_needed()
    link.hover()
    page.locator("#companion-card").wait_for(state="visible")
    page.screenshot(path=FOLDER / "page-with-card.png")


def moving(page: Page) -> None:
    """An interactive figure with its slider moved."""
    page.goto((HTML / "notebooks" / "3-hmm.html").as_uri())
    figure = page.locator(".moving").first
    figure.get_by_role("button", name="Nearly equal").click()
    figure.screenshot(path=FOLDER / "interactive-figure.png")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    left_panel()
    with chromium() as browser:
        light = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
        theorem(light)
        dark = browser.new_page(viewport={"width": 900, "height": 800}, color_scheme="dark")
        moving(dark)


if __name__ == "__main__":
    main()
