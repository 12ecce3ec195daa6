"""The built book in a browser: what it loads, shows and reaches at two widths, in two themes, served and from a folder.

Needs `make book` and a Chromium; in CI neither may be missing. Each page is opened once; HMMLIB_SLOW=1 opens each in
all four forms, looks for barriers too, and leaves pictures in build/screenshots.
"""

import re
from itertools import product

import built_book
import pytest
from browser import barriers, faults, served
from built_book import HTML, ROOT, chapters
from moving_figures import PAGES
from playwright.sync_api import expect
from record import SLOW, slow

pytestmark = built_book.needed(chromium=True)

NAMES = [*chapters(), "search"]
THEMES = ("light", "dark")
THEOREM = "article a[href$='3-hmm.html#paper-thm-3-3']"
"""Mentions of Theorem 3.3 on another page than its own."""
SCREENSHOTS = ROOT / "build" / "screenshots"
TALLEST = 15_000
G = 'article mjx-container [data-mml-node="mi"]:has(> use[href$="-1D43A"])'
"""The letter G in a formula."""
SCROLLS = """() => [...document.querySelectorAll('.bd-article *')].filter(e => !e.closest('details:not([open])')
  && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 2)
  .map(e => e.tagName + ': ' + e.innerText.slice(0, 80))"""


def photograph(page, name: str, width: int, theme: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)
    path = SCREENSHOTS / f"{name.rpartition('/')[2]}-{width}-{theme}.jpg"
    clip = dict(x=0, y=0, width=width, height=height)
    page.screenshot(path=path, type="jpeg", quality=60, full_page=True, clip=clip)


def quick(some, cases) -> list:
    """All cases of a table, of which only some are quick."""
    return [case if case in some else pytest.param(*case, marks=slow) for case in cases]


@pytest.mark.parametrize("name", NAMES)
def test_no_page_has_a_fault_or_scrolls_sideways_on_a_desktop(view, name):
    watched = view()
    page = watched.open(f"{name}.html")
    wrong = [*faults(page), *watched.wrong, *page.evaluate(SCROLLS)]
    assert not wrong, "\n".join(f"{name}: {what}" for what in wrong)


FORMS = [*product((1280, 390), THEMES, NAMES)]


@pytest.mark.parametrize(("width", "theme", "name"), quick([(390, "dark", "notebooks/4-memory-hmm")], FORMS))
def test_a_page_has_no_fault_and_no_barrier_in_any_of_its_forms(view, width, theme, name):
    """The quick one: a page on a phone in the dark."""
    watched = view(width, theme)
    page = watched.open(f"{name}.html")
    if SLOW:
        photograph(page, name, width, theme)
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    wrong = [*faults(page), *barriers(page), *watched.wrong]
    assert not wrong, "\n".join(f"{name}, {width} px wide, {theme}: {what}" for what in wrong)


@slow
@pytest.mark.parametrize("name", NAMES)
def test_a_page_from_a_folder_has_no_fault(view, name):
    """The quick one: `test_a_folder_may_have_any_name`."""
    watched = view(home="from a folder")
    wrong = [*faults(watched.open(f"{name}.html")), *watched.wrong]
    assert not wrong, "\n".join(f"{name}, from a folder: {what}" for what in wrong)


BAD = r"""<!doctype html><html lang="en" data-theme="dark"><title>bad</title>
<body class="bd-article" style="margin:0; background:#111"><main>
<h1 style="color:#eee">A page with all faults</h1><p style="color:#eee">left: \(x\) and <code>\frac</code></p>
<p style="color:#eee">and $$y$$ and \frac12</p><span class="math">z</span>
<mjx-container><svg width="0"></svg>w</mjx-container>
<mjx-container style="color:#222"><svg width="9" height="9"><use href="#none"></use></svg></mjx-container>
<mjx-container style="color:#eee"><svg width="9" height="9"><g data-mml-node="merror"></g></svg></mjx-container>
<div id="wide" style="width:3000px">wide</div><div style="overflow:hidden; width:99px"><table><tr><td>
<div style="width:400px">cut</div></table></div><div style="overflow-x:auto; width:99px" tabindex="0"><table><tr><td>
<div style="width:400px">scrolls</div></table></div><img src="missing.png"><svg width="20" height="20"></svg>
<p style="color:#333">hard to read</p><a href="#wide"></a><input type="range">
<script>console.warn("careful"); fetch("http://127.0.0.2:9/"); undefined.x</script></main></body></html>"""


def test_checks_find_faults(own_view, tmp_path):
    """A control: one page with every fault, of which each is named, and a sound one, of which nothing is said."""
    (tmp_path / "bad.html").write_text(BAD)
    sound = BAD[: BAD.index("<p ")] + "<p style='color:#eee'>Sound.</p></main></body></html>"
    (tmp_path / "sound.html").write_text(sound)
    with served(tmp_path) as home:
        watched = own_view(home=home)
        page = watched.open("bad.html")
        found = "\n".join([*faults(page), *barriers(page), *watched.wrong])
        for fault in [
            *('TeX left: main > p "left: \\\\(x', "$$y$$", "formula not typeset", "empty formula", "formula in error"),
            *("glyph not there", "page too wide: main > div#wide", "cut off: main > div > table by main > div"),
            *("no alternative text", "figure without a name", "faint: rgb(34, 34, 34)", "axe color-contrast"),
            *("axe link-name", "axe label", "status 404", "console warning: careful", "script error"),
            *("another host asked: http://127.0.0.2:9/", "failed: http://127.0.0.2:9/"),
        ]:
            assert fault in found, f"{fault} is not in:\n{found}"
        for fine in ("scrolls", "code"):
            assert fine not in found
        assert "scrolls" in "".join(page.evaluate(SCROLLS))
        page = watched.open("sound.html")
        assert not [*faults(page), *barriers(page), *watched.wrong, *page.evaluate(SCROLLS)]


# Links and search

LANDED = """async id => {
  for (let still = 0, last = NaN; still < 12; still = scrollY === last ? still + 1 : 0, last = scrollY)
    await new Promise(requestAnimationFrame);
  const target = document.getElementById(id), box = target.getBoundingClientRect();
  if (!(box.top >= -1 && box.top < innerHeight - 4)) return `its top is at ${box.top} of ${innerHeight}`;
  const x = Math.min(Math.max(box.left + 6, 6), innerWidth - 6), y = Math.max(box.top, 0) + 3;
  const hit = document.elementFromPoint(x, y);
  return hit && (hit.contains(target) || target.contains(hit)) ? '' : `${hit?.outerHTML.slice(0, 80)} lies upon it`;
}"""


PLACES = ["notebooks/3-hmm", "notebooks/appendix-d-3", "book/ledger"]


@pytest.mark.parametrize(("width", "name"), quick([(390, "notebooks/3-hmm")], product((1280, 390), PLACES)))
def test_links_land_in_view(view, width, name):
    """The quick one: the first and the last link of a page on a phone."""
    page = view(width).open(f"{name}.html")
    links = page.locator("article a:not(.headerlink)[href*='#']").evaluate_all(
        "all => all.filter(a => a.checkVisibility() && a.host === location.host).map(a => a.getAttribute('href'))"
    )
    for turn, link in enumerate(dict.fromkeys([links[0], links[-1], *(links[1::9] if SLOW else [])])):
        if turn:
            page = view(width).open(f"{name}.html")
        page.locator(f"article a[href='{link}']").locator("visible=true").first.click()
        anchor = link.partition("#")[2]
        page.wait_for_url(f"**#{anchor}")
        page.wait_for_load_state()
        assert not (wrong := page.evaluate(LANDED, anchor)), f"{name}, {width} px wide, {link}: {wrong}"


@pytest.mark.parametrize("home", [pytest.param("served", marks=slow), "from a folder"])
def test_search_finds_statements_equations_and_words_by_keyboard_too(view, home):
    """The quick one: from a folder, where a browser allows a page less."""
    watched = view(home=home) if home == "from a folder" else view()

    def first(words: str) -> str:
        page = watched.open("search.html")
        field = page.locator(".bd-search-container input[name=q]")
        field.fill(words)
        field.press("Enter")
        summary = page.locator("#search-results .search-summary")
        expect(summary).to_contain_text(re.compile("found|did not match"))
        if (count := re.search(r"found (\d+|one) page", summary.text_content())) is None:
            return ""
        page.locator("#search-results .search li").nth(int(count[1]) - 1 if count[1] != "one" else 0).wait_for()
        assert not watched.wrong
        return page.locator("#search-results .search li > a").first.evaluate("a => a.href")

    assert "notebooks/3-hmm.html#paper-thm-3-3" in first("Theorem 3.3")
    assert "notebooks/appendix-d-3.html#paper-lem-D-9" in first("Lemma D.9")
    assert "notebooks/appendix-c.html#equation-paper-eq-c-1" in first("(C.1)")
    assert "4-1-attention-head.html" in first("attention head")
    assert first("nonsense-word-xyz") == ""
    page = watched.page
    glass = page.locator(".bd-search-container form.bd-search i").bounding_box()
    field = page.locator(".bd-search-container input[name=q]")
    left = field.bounding_box()["x"] + float(field.evaluate("e => parseFloat(getComputedStyle(e).paddingLeft)"))
    assert glass["x"] + glass["width"] <= left, "the magnifying glass stands before the query"
    page = watched.open("notebooks/3-hmm.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("hidden state")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=hidden+state*")
    page.locator("#search-results .search li").first.wait_for()
    page.wait_for_load_state("networkidle")  # the excerpts of the pages found


# Notation panel and cards


@pytest.mark.parametrize("width", [pytest.param(1280, marks=slow), 390])
def test_notation_panel(view, width):
    watched = view(width)
    page = watched.open("notebooks/3-hmm.html")
    button, panel = page.get_by_role("button", name="Notation", exact=True), page.get_by_role("dialog", name="Notation")
    for press in (button.click, lambda: button.press("Enter")):
        press()
        expect(panel).to_be_visible()
        assert panel.locator("tbody tr:has(mjx-container)").count() >= 30
        assert not faults(page)
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(button).to_be_focused()
    assert not watched.wrong


def test_cards_on_hovering_and_on_focus(view):
    watched = view()
    box = watched.open("notebooks/3-hmm.html").locator("[id='paper-thm-3-3']")
    words = max(re.split(r"\n|\s{2,}", box.locator("p").nth(1).inner_text()), key=len).strip()[:40]
    assert len(words) > 15
    page = watched.open("notebooks/3-1-prompt.html")
    card = page.get_by_role("tooltip")
    expect(card).to_have_count(0)
    page.locator(THEOREM).first.hover()
    expect(card).to_contain_text("Theorem 3.3")
    expect(card).to_contain_text(words)
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.locator(G).first.hover()
    expect(card).to_contain_text("masked language model")
    page.keyboard.press("Tab")
    page.locator(THEOREM).first.focus()
    expect(card).to_contain_text("Theorem 3.3")
    assert not [*faults(page), *watched.wrong]


def test_cards_on_tapping(view):
    page = view(390, has_touch=True, is_mobile=True).open("notebooks/3-1-prompt.html")
    card = page.get_by_role("tooltip")
    page.locator(THEOREM).first.tap()
    expect(card).to_contain_text("Theorem 3.3")
    assert page.url.endswith("notebooks/3-1-prompt.html"), "a first tap shows the card and does not leave the page"
    page.locator("article h1").first.tap()
    expect(card).to_be_hidden()
    page.locator(G).first.tap()
    expect(card).to_contain_text("masked language model")
    page.locator("article h1").first.tap()
    page.locator(THEOREM).first.tap()
    card.get_by_role("link", name="Go there").tap()
    page.wait_for_url("**/3-hmm.html#paper-thm-3-3")


def test_a_link_whose_card_cannot_come_still_leads_there(own_view):
    watched = own_view(390, 844, has_touch=True, is_mobile=True)
    watched.page.route(
        "**/companion/*.js", lambda route: route.abort() if "cards" not in route.request.url else route.continue_()
    )
    page = watched.open("notebooks/3-1-prompt.html")
    page.locator(THEOREM).first.tap()
    page.wait_for_url("**/3-hmm.html#paper-thm-3-3")
    page.get_by_role("button", name="Notation", exact=True).tap()
    page.wait_for_url("**/book/notation.html")


@pytest.mark.parametrize("theme", THEMES)
def test_a_page_follows_the_systems_theme_and_can_be_read_without_scripts(own_view, theme):
    page = own_view(theme=theme, choose=False).open("book/index.html")
    expect(page.locator("html")).to_have_attribute("data-theme", theme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)")
    assert (max(ground) < 60) if theme == "dark" else (min(ground) > 240)
    watched = own_view(theme=theme, choose=False, java_script_enabled=False)
    page = watched.page
    page.goto(watched.home + "notebooks/3-hmm.html")
    assert page.locator("mjx-container svg").count() > 50
    ground = page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    for part in ("svg.picture text", "article p"):
        inks = page.locator(part).evaluate_all(
            "all => all.map(e => getComputedStyle(e)[e.matches('text') ? 'fill' : 'color'])"
        )
        assert inks
        assert ground not in inks
    assert not [what for what in watched.wrong if not what.endswith(" csp")]  # as asked: no script is loaded
    page.goto(watched.home + "book/ledger.html")
    assert page.locator("button.sort, form.ledger-filter").count() == 0
    assert page.locator("table.statements tbody tr").evaluate_all(
        "all => all.length && all.every(e => e.checkVisibility())"
    )


def test_a_folder_may_have_any_name(own_view, tmp_path):
    folder = tmp_path / "Meine Bücher #1 100%"
    folder.symlink_to(HTML, target_is_directory=True)
    watched = own_view(home=f"{folder.as_uri()}/")
    page = watched.open("notebooks/3-1-prompt.html")
    page.locator(THEOREM).first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("Theorem 3.3")
    assert not [*faults(page), *watched.wrong]


# Interactive figures


def state(figure) -> tuple[str, list[str]]:
    """Text and drawings of an interactive figure."""
    return figure.inner_text(), figure.locator("svg").evaluate_all("all => all.map(e => e.outerHTML)")


WAYS = [(1280, "served"), (390, "served"), (1280, "from a folder")]


@pytest.mark.parametrize(("way", "name"), quick([(WAYS[1], "notebooks/4-1-attention-head")], product(WAYS, PAGES)))
def test_interactive_figures_move_and_return(view, way, name):
    """The quick one: the page with two figures, on a phone."""
    (width, home), sliders = way, 0
    watched = view(width) if home == "served" else view(home=home)
    page = watched.open(f"{name}.html")
    figures = page.locator("div.moving")
    assert figures.count() == PAGES[name]
    for figure in figures.all():
        reset = figure.get_by_role("button", name=re.compile("^reset", re.IGNORECASE)).first
        reset.click()
        start = state(figure)
        assert start[1], "it draws something"
        for slider in figure.locator("input[type=range]").all():
            sliders += 1
            slider.focus()
            room = slider.input_value() != slider.get_attribute("max")
            for key in ("ArrowRight", "ArrowLeft") if room else ("ArrowLeft",):
                before = state(figure)
                for _ in range(3):
                    page.keyboard.press(key)
                after = state(figure)
                assert after[0] != before[0], f"{name}: no text changes with the key {key}"
                assert after[1] != before[1], f"{name}: no drawing changes with the key {key}"
            reset.click()
            assert state(figure) == start
            box = slider.bounding_box()
            middle = dict(x=0.45 * box["width"], y=box["height"] / 2)
            slider.click(position=middle)
            assert state(figure)[0] != start[0]
            reset.click()
            assert state(figure) == start
        for field in figure.locator("input[type=text]").all():
            field.fill(field.input_value().rpartition(" ")[0])
            assert state(figure) != start
            reset.click()
            assert state(figure) == start
    assert sliders
    assert not [*faults(page), *watched.wrong]


# Paper

CUT_ON_PAPER = """() => [...document.querySelectorAll('article, article *')].filter(e => e.checkVisibility()
  && !e.closest('mjx-container *, svg *') && /auto|scroll|hidden|clip/.test(getComputedStyle(e).overflowX)
  && e.clientWidth > 20 && e.scrollWidth > e.clientWidth + 2).map(e => e.outerHTML.slice(0, 120))"""


PRINTED = ["notebooks/3-hmm", "book/index", "book/ledger", "notebooks/appendix-d-3"]


@pytest.mark.parametrize("name", [PRINTED[0], *(pytest.param(name, marks=slow) for name in PRINTED[1:])])
def test_a_page_fits_on_paper(own_view, name):
    """As wide as an A4 page between margins of 1 cm: what needs a screen is not there, and nothing has to scroll."""
    page, visible = own_view(718, 1000).open(f"{name}.html"), "all => all.filter(e => e.checkVisibility()).length"
    screen = page.locator(
        ".bd-sidebar-primary, .bd-sidebar-secondary, .bd-header-article, .notation-button, .moving .controls, "
        ".moving .buttons, .moving .todo, .facts, .sd-summary-state-marker, form.ledger-filter"
    )
    solutions = page.locator("details.sd-dropdown .sd-summary-content")
    assert screen.evaluate_all(visible)
    assert not solutions.evaluate_all(visible)
    assert name != "notebooks/3-hmm" or solutions.count() >= 2
    page.emulate_media(media="print")
    assert solutions.evaluate_all(visible) == solutions.count()
    assert not screen.evaluate_all(visible) + page.locator("details.hide").evaluate_all(visible)
    assert not page.evaluate(CUT_ON_PAPER)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.documentElement.dataset.theme = 'dark'; dispatchEvent(new Event('beforeprint'))")
    assert page.locator("article").evaluate("e => getComputedStyle(e).getPropertyValue('--ink').trim()") == "#22303c"
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    leaves = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert leaves >= (1 if name == "book/index" else 2)
