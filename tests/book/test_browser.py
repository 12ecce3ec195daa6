"""The built book in a browser: what it loads and shows at two widths, in two themes, served, from a folder, on paper.

Needs `make book` and a Chromium; in CI neither may be missing. HMMLIB_SLOW=1 opens each page in all forms, looks for
barriers in each, and leaves pictures in build/screenshots.
"""

import re
from itertools import product
from pathlib import Path

import built_book
import pytest
from browser import barriers, faults, served
from built_book import ROOT, chapters
from playwright.sync_api import expect
from record import SLOW, slow

pytestmark = built_book.needed(chromium=True)

NAMES = [*chapters(), "search"]
DESKTOP, DARK_PHONE = (1280, "light", "served"), (390, "dark", "served")
FORMS = [DESKTOP, DARK_PHONE, (1280, "dark", "served"), (390, "light", "served"), (1280, "light", "from a folder")]
QUICK = [*product([DESKTOP], NAMES), (DARK_PHONE, "notebooks/4-memory-hmm")]
SCREENSHOTS = ROOT / "build" / "screenshots"
SCROLLS = """() => [...document.querySelectorAll('.bd-article *')].filter(e => !e.closest('details:not([open])')
  && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 2)
  .map(e => e.tagName + ': ' + e.innerText.slice(0, 80))"""
BAD = Path(__file__).with_name("bad.html").read_text()
LANDED = """async id => {
  for (let still = 0, last = NaN; still < 12; still = scrollY === last ? still + 1 : 0, last = scrollY)
    await new Promise(requestAnimationFrame);
  const target = document.getElementById(id), box = target.getBoundingClientRect();
  if (!(box.top >= -1 && box.top < innerHeight - 4)) return `its top is at ${box.top} of ${innerHeight}`;
  const x = Math.min(Math.max(box.left + 6, 6), innerWidth - 6), y = Math.max(box.top, 0) + 3;
  const hit = document.elementFromPoint(x, y);
  return hit && (hit.contains(target) || target.contains(hit)) ? '' : `${hit?.outerHTML.slice(0, 80)} lies upon it`;
}"""
HERE = "all => all.filter(a => a.checkVisibility() && a.host === location.host).map(a => a.getAttribute('href'))"
CUT_ON_PAPER = """() => [...document.querySelectorAll('article, article *')].filter(e => e.checkVisibility()
  && !e.closest('mjx-container *, svg *') && /auto|scroll|hidden|clip/.test(getComputedStyle(e).overflowX)
  && e.clientWidth > 20 && e.scrollWidth > e.clientWidth + 2).map(e => e.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize(
    ("form", "name"),
    [case if case in QUICK else pytest.param(*case, marks=slow) for case in product(FORMS, NAMES)],
)
def test_a_page_has_no_fault_on_a_phone_no_barrier_and_on_a_desktop_nothing_to_scroll(view, form, name):
    """The quick ones: every page on a desktop, and one on a phone in the dark."""
    width, theme, home = form
    watched = view(*form)
    page = watched.open(f"{name}.html")
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.locator("div.moving:not([data-ready])").count() == 0
    if SLOW and home == "served":
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        clip = dict(x=0, y=0, width=width, height=min(page.evaluate("document.documentElement.scrollHeight"), 15_000))
        path = SCREENSHOTS / f"{name.rpartition('/')[2]}-{width}-{theme}.jpg"
        page.screenshot(path=path, type="jpeg", quality=60, full_page=True, clip=clip)
    wrong = faults(page) + (page.evaluate(SCROLLS) if width == 1280 else [])
    wrong += barriers(page) if SLOW or width == 390 else []
    assert not [*wrong, *watched.wrong]


def test_checks_find_faults(view, tmp_path):
    """A control: one page with every fault, of which each is named, and a sound one, of which nothing is said."""
    (tmp_path / "bad.html").write_text(BAD)
    sound = BAD[: BAD.index("<p ")] + "<p style='color:#eee'>Sound.</p></main></body></html>"
    (tmp_path / "sound.html").write_text(sound)
    with served(tmp_path) as home:
        watched = view(home=home)
        page = watched.open("bad.html")
        assert "scrolls" in "".join(page.evaluate(SCROLLS))
        all_faults = "\n".join([*faults(page), *barriers(page), *watched.wrong])
        for fault in [
            *('TeX left: main > p "left: \\\\(x', "$$y$$", "formula not typeset", "empty formula", "formula in error"),
            *("glyph not there", "page too wide: main > div#wide", "cut off: main > div > table by main > div"),
            *("no alternative text", "figure without a name", "faint: rgb(34, 34, 34)", "axe color-contrast"),
            *("axe link-name", "axe label", "status 404", "console warning: careful", "script error"),
            *("another host asked: http://127.0.0.2:9/", "failed: http://127.0.0.2:9/"),
        ]:
            assert fault in all_faults, f"{fault} is not in:\n{all_faults}"
        for fine in ("scrolls", "code"):
            assert fine not in all_faults
        page = watched.open("sound.html")
        assert not [*faults(page), *barriers(page), *watched.wrong, *page.evaluate(SCROLLS)]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_follows_the_systems_theme_and_can_be_read_without_scripts(view, theme):
    def colour(style: str) -> list[int]:
        return list(map(int, re.findall(r"\d+", style)[:3]))

    def ground(page) -> list[int]:
        return colour(page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor"))

    page = view(theme=theme).open("book/index.html")
    assert (max(ground(page)) < 60) if theme == "dark" else (min(ground(page)) > 240)
    watched = view(theme=theme, java_script_enabled=False)
    page = watched.page
    page.goto(watched.home + "notebooks/3-hmm.html")
    assert page.locator("mjx-container svg").count() > 50
    code = page.locator("article .cell_input")
    assert code.evaluate_all("all => all.every(e => e.closest('details') || e.checkVisibility())")
    for part, kind in (("svg.picture text", "fill"), ("article p", "color"), (".cell_input pre", "color")):
        shown = page.locator(part).locator("visible=true")
        inks = shown.evaluate_all(f"all => all.map(e => getComputedStyle(e).{kind})")
        assert inks
        assert ground(page) not in list(map(colour, inks))
    for problem in watched.wrong:
        assert problem.endswith(" csp"), "as asked: no script is loaded"
    page.goto(watched.home + "book/ledger.html")
    assert page.locator("button.sort, form.ledger-filter").count() == 0
    rows = page.locator("table.statements tbody tr")
    assert rows.evaluate_all("all => all.length && all.every(e => e.checkVisibility())")


def test_links_land_in_view(view):
    """The first and the last link of a page on a phone."""
    watched = view(390)
    name = "notebooks/3-hmm.html"
    links = watched.open(name).locator("article a:not(.headerlink)[href*='#']").evaluate_all(HERE)
    for link in (links[0], links[-1]):
        page = watched.open(name)
        _, _, anchor = link.partition("#")
        page.locator(f"article a[href='{link}']").locator("visible=true").first.click()
        page.wait_for_url(f"**#{anchor}")
        page.wait_for_load_state()
        assert page.evaluate(LANDED, anchor) == "", link


def test_search_finds_statements_equations_and_words_by_keyboard_too(view):
    """From a folder, where a browser allows a page less."""
    watched = view(home="from a folder")

    def first(words: str) -> str:
        page = watched.open("search.html")
        field = page.locator(".bd-search-container input[name=q]")
        field.fill(words)
        field.press("Enter")
        summary = page.locator("#search-results .search-summary")
        expect(summary).to_contain_text(re.compile("found|did not match"))
        assert not watched.wrong
        if "found" not in summary.text_content():
            return ""
        return page.locator("#search-results .search li > a").first.evaluate("a => a.href")

    assert "notebooks/3-hmm.html#paper-thm-3-3" in first("Theorem 3.3")
    assert "notebooks/appendix-d-3.html#paper-lem-D-9" in first("Lemma D.9")
    assert "notebooks/appendix-c.html#equation-paper-eq-c-1" in first("(C.1)")
    assert "4-1-attention-head.html" in first("attention head")
    assert first("nonsense-word-xyz") == ""
    page = watched.open("notebooks/3-hmm.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("hidden state")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=hidden+state*")
    page.locator("#search-results .search li").first.wait_for()
    page.wait_for_load_state("networkidle")  # the excerpts of the pages found


@pytest.mark.parametrize("name", ["notebooks/3-hmm", pytest.param("book/ledger", marks=slow)])
def test_a_page_fits_on_paper(view, name):
    """As wide as an A4 page between margins of 1 cm: what needs a screen is not there, and nothing has to scroll."""
    page = view(718).open(f"{name}.html")
    visible = "all => all.filter(e => e.checkVisibility()).length"
    screen = page.locator(
        ".bd-sidebar-primary, .bd-sidebar-secondary, .bd-header-article, .notation-button, .moving .controls, "
        ".moving .buttons, .moving .todo, .facts, .sd-summary-state-marker, form.ledger-filter"
    )
    solutions = page.locator("details.sd-dropdown .sd-summary-content")
    page.emulate_media(media="screen")
    assert screen.evaluate_all(visible) > 0 == solutions.evaluate_all(visible)
    page.emulate_media(media="print")
    assert screen.evaluate_all(visible) == 0
    assert solutions.evaluate_all(visible) == solutions.count()
    assert not page.evaluate(CUT_ON_PAPER)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.documentElement.dataset.theme = 'dark'; dispatchEvent(new Event('beforeprint'))")
    assert page.locator("article").evaluate("e => getComputedStyle(e).getPropertyValue('--ink').trim()") == "#22303c"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
