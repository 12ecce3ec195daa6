"""The pictures of the README: Figure 3 from the stored trials, and the built book as a browser shows it.

python book/readme_pictures.py    writes book/pictures/*.png; needs the built book and Chromium
"""

from __future__ import annotations

import sys
from pathlib import Path

from companion.figures import figure_3, figures

from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from browser import chromium  # noqa: E402

HTML = ROOT / "_build" / "html" / "notebooks"
FOLDER = ROOT / "book" / "pictures"

FOLDER.mkdir(exist_ok=True)
figures.use_style()
trials = results("quick", STORE).query("changes == '' and n_memory == 1 and n_states in [4, 8, 10, 15, 25, 30]")
figure_3.panel(trials, "left").savefig(FOLDER / "head-against-prompt.png", dpi=150)
with chromium() as browser:
    page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
    page.goto((HTML / "3-1-prompt.html").as_uri())
    link = page.locator("article a[href*='paper-thm-3-3']").first
    link.scroll_into_view_if_needed()
    link.hover()  # the card of another theorem appears
    page.locator("#companion-card").wait_for(state="visible")
    page.screenshot(path=FOLDER / "page-with-card.png")
    page = browser.new_page(viewport={"width": 900, "height": 800}, color_scheme="dark")
    page.goto((HTML / "3-hmm.html").as_uri())
    figure = page.locator(".moving").first
    figure.get_by_role("button", name="Nearly equal").click()
    figure.screenshot(path=FOLDER / "interactive-figure.png")
