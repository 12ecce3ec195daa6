"""What a reader does on a page, in a browser: definitions at hand, code shown, figures moved, tables sorted, the ledger
filtered. Needs `make book` and a Chromium; in CI neither may be missing."""

import json
import re

import built_book
from browser import barriers, faults
from built_book import ROOT
from playwright.sync_api import expect

pytestmark = built_book.needed(chromium=True)

PHONE = dict(width=390, has_touch=True, is_mobile=True)
THEOREM = "article a[href$='3-hmm.html#paper-thm-3-3']"  # its mentions on another page than its own
G = 'article mjx-container [data-mml-node="mi"]:has(> use[href$="-1D43A"])'  # the letter in a formula
SORTED = {
    "accuracy": ["9.5% ± 1%", "80% ± 30%", "94.1% ± 2.6%", "100.0% ± 0%", "–"],
    "time": ["3.00 µs", "10.2 ms", "451 ms", "1.07 s", "2.0 min"],
    "size": ["−2", "1e-09", "0.5", "51,200,000", "2.41·10¹⁰"],
    "name": ["10 more words", "Alpha", "alpha, two", "beta", "gamma"],
    "list": ["8 × 129", "500, 1", "not in 1100 steps", "4000, 400, 1000", ""],
}
ORDER = [2, 0, 3, 4, 1]


def test_notation_panel(view):
    watched = view(390)
    page = watched.open("notebooks/3-hmm.html")
    button = page.get_by_role("button", name="Notation", exact=True)
    panel = page.get_by_role("dialog", name="Notation")
    for press in (button.click, lambda: button.press("Enter")):
        press()
        expect(panel).to_be_visible()
        assert panel.locator("tbody tr:has(mjx-container)").count() >= 30
        assert not faults(page)
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(button).to_be_focused()
    assert not watched.wrong


def test_cards_on_hovering_and_on_focus_also_from_a_folder_of_any_name(view):
    watched = view(home="from a folder")
    page = watched.open("notebooks/3-1-prompt.html")
    card = page.get_by_role("tooltip")
    expect(card).to_have_count(0)
    page.locator(THEOREM).first.hover()
    expect(card).to_contain_text("Theorem 3.3")
    expect(card).to_contain_text("there is one vector")
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.locator(G).first.hover()
    expect(card).to_contain_text("masked language model")
    page.keyboard.press("Tab")
    page.locator(THEOREM).first.focus()
    expect(card).to_contain_text("Theorem 3.3")
    assert not [*faults(page), *watched.wrong]


def test_statements_and_equations_that_we_add_have_cards_too(view):
    watched = view()
    page = watched.open("book/notation.html")
    card = page.get_by_role("tooltip")
    page.locator("article a[href$='#equation-ours-eq-o-3']").hover()
    expect(card).to_contain_text("Equation (O.3)")
    page = watched.open("book/ledger.html")
    page.locator("article a[href$='#ours-thm-O-4']").first.hover()
    expect(card).to_contain_text("Theorem O.4")
    assert not [*faults(page), *watched.wrong]


def test_cards_on_tapping_and_a_link_whose_card_cannot_come_still_leads_there(view):
    watched = view(**PHONE)
    page = watched.open("notebooks/3-1-prompt.html")
    card = page.get_by_role("tooltip")
    page.locator(THEOREM).first.tap()
    expect(card).to_contain_text("Theorem 3.3")
    assert page.url.endswith("notebooks/3-1-prompt.html"), "a first tap shows the card and does not leave the page"
    page.locator("article h1").first.tap()
    expect(card).to_be_hidden()
    page.locator(THEOREM).first.tap()
    card.get_by_role("link", name="Go there").tap()
    page.wait_for_url("**/3-hmm.html#paper-thm-3-3")
    page.route(re.compile(r"/companion/(statements|notation)\.js"), lambda route: route.abort())
    watched.open("notebooks/3-1-prompt.html").locator(THEOREM).first.tap()
    page.wait_for_url("**/3-hmm.html#paper-thm-3-3")
    page.get_by_role("button", name="Notation", exact=True).tap()
    page.wait_for_url("**/book/notation.html")


def test_code_is_shown_at_a_click_and_stays_so_on_the_next_page_and_a_link_opens_what_is_folded(view):
    watched = view()
    page = watched.open("notebooks/3-hmm.html")

    def shown() -> tuple[bool, bool]:
        """Whether any code is hidden, and whether the lines that are a page's idea are there."""
        hidden = page.locator("article .cell:not(.tag_idea) .cell_input").evaluate_all(
            "all => all.filter(e => !e.closest('details') && !e.checkVisibility()).length"
        )
        return hidden > 0, page.locator("article .tag_idea .cell_input").first.is_visible()

    assert shown() == (True, True)
    page.get_by_role("button", name="Show all code of this page").click()
    assert shown() == (False, True)
    page = watched.open("notebooks/3-1-prompt.html")
    assert shown() == (False, True)
    page.get_by_role("button", name="Hide the code of this page").click()
    assert shown() == (True, True)
    closing = page.locator("details.closing")
    assert not closing.evaluate("e => e.open")
    inside = closing.locator("[id]").first.get_attribute("id")
    page.evaluate("id => { location.hash = id; }", inside)
    expect(closing).to_have_attribute("open", "")
    assert not watched.wrong


def html_table(order: list[int]) -> str:
    """Write a table of results whose rows have the texts of SORTED, in this order."""
    head = "".join(f"<th><p>{name}</p></th>" for name in SORTED)
    rows = ""
    for k in order:
        cells = "".join(f"<td>{texts[k]}</td>" for texts in SORTED.values())
        rows += f"<tr>{cells}</tr>"
    return f"<table class=dataframe><thead><tr>{head}</tr></thead><tbody>{rows}</table>"


def test_a_click_sorts_numbers_as_numbers_and_words_as_words(view, tmp_path):
    """On a page with the book's script, a table of ten rows, which can be sorted, and one of eight, which cannot."""
    tables = html_table(ORDER * 2) + html_table(ORDER + ORDER[:3])
    script = f'<script src="{(ROOT / "book" / "_static" / "companion" / "tables.js").as_uri()}" defer></script>'
    (tmp_path / "page.html").write_text(
        f"<!doctype html><meta charset=utf8>{script}<article>{tables}</article>", "utf8"
    )
    page = view(home=f"{tmp_path.as_uri()}/").open("page.html")
    table, short = page.locator("table").all()
    assert short.locator("button").count() == 0
    rows = table.locator("tbody tr").all_inner_texts()
    for k, (name, ascending) in enumerate(SORTED.items()):
        cells = table.locator(f"tbody td:nth-child({k + 1})")
        button = table.get_by_role("button", name=name)
        descending = sorted(ascending[::-1], key=lambda text: text in ("–", ""))  # nothing comes last
        before = cells.all_inner_texts()
        for key, order, texts in (("Enter", "ascending", ascending), ("Space", "descending", descending)):
            button.press(key)
            assert table.locator(f"th[aria-sort={order}]").all_inner_texts() == [name], "by one column"
            assert cells.all_inner_texts() == [text for text in texts for _ in range(2)]
            assert sorted(table.locator("tbody tr").all_inner_texts()) == sorted(rows), "rows stay whole"
        button.click()
        assert (table.locator("th[aria-sort]").count(), cells.all_inner_texts()) == (0, before)


def test_on_a_phone_each_cell_of_a_stacked_table_has_its_columns_name(view):
    second = view(390).open("book/ledger.html").locator("table.stacked:not(.plain) td[data-label]:nth-child(2)")
    labels = set(second.evaluate_all("all => all.map(e => getComputedStyle(e, '::before').content)"))
    assert "none" not in labels != set()


def test_on_a_phone_the_last_column_of_a_wide_table_can_be_reached_and_its_first_one_stays(view):
    page = view(390).open("notebooks/published-curve.html")
    goes_beyond = []
    page.locator("details.closing").evaluate("e => { e.open = true; }")
    for table in page.locator("article .cell_output table.dataframe:visible").all():
        first = table.locator("th:first-child").first
        last = table.locator("th:last-child").first
        start = first.bounding_box()["x"]
        goes_beyond.append(last.bounding_box()["x"] > 390)
        table.evaluate("e => { e.parentElement.scrollLeft = 9999; }")
        assert last.bounding_box()["x"] + last.bounding_box()["width"] <= 390
        assert abs(first.bounding_box()["x"] - start) <= 2
    assert any(goes_beyond)


def test_the_ledger_is_filtered_by_ruling_kind_and_words(view):
    entries = json.loads((ROOT / "build" / "ledger.json").read_text())["entries"]
    grades = {entry["name"]: entry["grade"] for entry in entries}
    everything = list(grades)
    page = view().open("book/ledger.html")
    form = page.get_by_role("form", name="Filter the ledger")

    def shown() -> list[str]:
        links = page.locator("table.statements tbody td:first-child a:first-child")
        names = links.evaluate_all("all => all.filter(e => e.checkVisibility()).map(e => e.textContent)")
        expect(form.get_by_role("status")).to_have_text(f"{len(names)} of {len(entries)} statements")
        return names

    assert shown() == everything
    slips = [name for name in everything if grades[name] == "slip"]
    form.get_by_label("Verdict").select_option(f"slip ({len(slips)})")
    assert shown() == slips
    form.get_by_label("Verdict").select_option(label="all")
    form.get_by_label("Kind").select_option(f"theorem ({sum('Theorem' in name for name in everything)})")
    assert shown() == [name for name in everything if name.startswith("Theorem")]
    for word, name in (("h0", "Theorem 3.3"), ("prompt ATTENTION", "Theorem 4.6")):  # the first stands there as H₀
        form.get_by_label("Word").fill(word)
        assert name in shown() != everything
    form.get_by_label("Word").fill("nonsense-word-xyz")
    assert shown() == []
    form.get_by_role("button", name="Show all").press("Enter")
    expect(form.get_by_role("status")).to_contain_text(f"{len(entries)} of")
    assert shown() == everything
    assert not [*faults(page), *barriers(page)]
