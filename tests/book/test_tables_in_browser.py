"""Tables in a browser: sorted by a click or a key, the ledger filtered, no sideways scrolling."""

import json
import re

import built_book
import pytest
from browser import barriers, faults
from built_book import ROOT
from playwright.sync_api import expect
from record import slow

pytestmark = built_book.needed(chromium=True)

SCRIPT = ROOT / "book" / "_static" / "companion" / "tables.js"
COLUMNS = {
    "accuracy": ["94.1% ± 2.6%", "9.5% ± 1%", "100.0% ± 0%", "–", "80% ± 30%"],
    "time": ["10.2 ms", "1.07 s", "3.00 µs", "2.0 min", "451 ms"],
    "size": ["1e-09", "2.41·10¹⁰", "51,200,000", "−2", "0.5"],
    "name": ["beta", "Alpha", "10 more words", "gamma", "alpha, two"],
    "list": ["4000, 400, 1000", "not in 1100 steps", "500, 1", "", "8 × 129"],
}
ASCENDING = {
    "accuracy": ["9.5% ± 1%", "80% ± 30%", "94.1% ± 2.6%", "100.0% ± 0%", "–"],
    "time": ["3.00 µs", "10.2 ms", "451 ms", "1.07 s", "2.0 min"],
    "size": ["−2", "1e-09", "0.5", "51,200,000", "2.41·10¹⁰"],
    "name": ["10 more words", "Alpha", "alpha, two", "beta", "gamma"],
    "list": ["8 × 129", "500, 1", "not in 1100 steps", "4000, 400, 1000", ""],
}


@pytest.fixture
def page(tmp_path, own_view):
    """A page with a table of each number of rows, and the book's script."""

    def table(rows: int) -> str:
        cells = {name: (texts * rows)[:rows] for name, texts in COLUMNS.items()}
        lines = ["".join(f"<td>{cells[name][k]}</td>" for name in cells) for k in range(rows)]
        head = "".join(f"<th><p>{name}</p></th>" for name in cells)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f'<table class="dataframe" id="r{rows}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    tables = "".join(map(table, (8, 10)))
    script = f'<meta charset="utf8"><script src="{SCRIPT.as_uri()}" defer></script>'
    (tmp_path / "page.html").write_text(f"<!doctype html>{script}<article>{tables}</article>", encoding="utf8")
    return own_view(home=f"{tmp_path.as_uri()}/").open("page.html")


def column(table, k: int) -> list[str]:
    return table.locator(f"tbody tr:not([hidden]) td:nth-child({k + 1})").all_inner_texts()


def test_a_click_sorts_numbers_as_numbers_and_words_as_words(page):
    table = page.locator("#r10")
    rows = table.locator("tbody tr").all_inner_texts()
    for k, (name, ascending) in enumerate(ASCENDING.items()):
        head = table.locator("th").nth(k)
        button, before = head.get_by_role("button", name=name), column(table, k)
        button.click()
        assert table.locator("th[aria-sort=ascending]").all_inner_texts() == [name], "by one column"
        assert column(table, k) == [text for text in ascending for _ in range(2)]
        assert sorted(table.locator("tbody tr").all_inner_texts()) == sorted(rows), "rows stay whole"
        button.press("Enter")
        expect(head).to_have_attribute("aria-sort", "descending")
        told = [text for text in reversed(ascending) if text not in ("–", "")]
        nothing = [text for text in ascending if text in ("–", "")]
        assert column(table, k) == [text for text in told + nothing for _ in range(2)]
        button.press("Space")
        assert head.get_attribute("aria-sort") is None
        assert column(table, k) == before
    for k in (1, 2):
        table.locator("th").nth(k).get_by_role("button").click()
    assert table.locator("th[aria-sort]").all_inner_texts() == ["size"]
    assert page.locator("#r8 button").count() == 0, "a short table is left alone"


# Wider than a phone

SIDEWAYS = """async left => {
  const settled = () => new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next))), found = [];
  for (const table of document.querySelectorAll('article .cell_output table.dataframe')) {
    if (!table.checkVisibility()) continue;
    const box = table.parentElement;
    const [first, last] = [':first-child', ':last-child'].map(k => table.querySelector(`th${k}`));
    box.scrollIntoView({block: 'center', behavior: 'instant'});
    box.scrollLeft = left;
    await settled();
    const within = box.getBoundingClientRect(), corner = first.getBoundingClientRect();
    let fades = 0;
    for (let e = table; e; e = e.parentElement) fades += parseFloat(getComputedStyle(e).getPropertyValue('--more')) > 0;
    found.push({
      wide: box.scrollWidth > box.clientWidth + 1, fades,
      reached: last.getBoundingClientRect().right <= within.right + 2,
      kept: Math.abs(corner.left - within.left) <= 2
        && first.contains(document.elementFromPoint(within.left + 3, corner.top + corner.height / 2)),
      opaque: [...table.querySelectorAll('tr > :first-child')].every(
        e => /^rgb\\(/.test(getComputedStyle(e).backgroundColor)),
    });
  }
  return found;
}"""
"""Of each table, scrolled so far: what fades, whether its last column is in view, and its first one where it was."""


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=slow)])
def test_on_a_phone_a_wide_table_fades_where_there_is_more_and_its_last_column_can_be_reached(view, theme):
    page = view(width=390, theme=theme).open("notebooks/published-curve.html")
    start, end = (page.evaluate(SIDEWAYS, left) for left in (0, 9999))
    assert {table["wide"] for table in start} == {True, False}
    for before, after in zip(start, end, strict=True):
        assert before["fades"] == before["wide"], "one fade where there is more, and none within another"
        assert before["reached"] != before["wide"]
        assert after["fades"] == 0
        assert after["reached"]
        for table in (before, after):
            assert table["kept"] or not table["wide"], "what fits may stand in the middle"
            assert table["opaque"]


# The ledger's filter


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=slow)])
def test_the_ledger_is_filtered_by_ruling_kind_and_words(view, width):
    entries = json.loads((ROOT / "build" / "ledger.json").read_text())["entries"]
    page = view(width=width).open("book/ledger.html")
    form = page.get_by_role("form", name="Filter the ledger")

    def shown() -> list[str]:
        links = page.locator("table.statements tbody td:first-child a:first-child")
        names = links.evaluate_all("all => all.filter(e => e.checkVisibility()).map(e => e.textContent)")
        expect(form.get_by_role("status")).to_have_text(f"{len(names)} of {len(entries)} statements")
        return names

    everything = [entry["name"] for entry in entries]
    assert shown() == everything
    for grade in ("slip", "gap in a proof", "false statement"):
        names = [entry["name"] for entry in entries if entry["grade"] == grade]
        form.get_by_label("Ruling").select_option(f"{grade} ({len(names)})")
        assert shown() == names
    form.get_by_label("Ruling").select_option(label="all")
    form.get_by_label("Kind").select_option(f"theorem ({sum('Theorem' in name for name in everything)})")
    assert shown() == [name for name in everything if name.startswith("Theorem")]
    form.get_by_label("Word").fill("prompt ATTENTION")
    assert shown() == ["Theorem 4.6"]
    form.get_by_label("Word").fill("h0")  # as H₀
    assert "Theorem 3.3" in shown()
    form.get_by_label("Word").fill("nonsense-word-xyz")
    assert shown() == []
    form.get_by_role("button", name="Show all").press("Enter")
    expect(form.get_by_role("status")).to_have_text(re.compile(f"^{len(entries)} of"))
    assert shown() == everything
    assert not [*faults(page), *barriers(page)]


# What fits


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["book/notation", "book/ledger", pytest.param("book/protocol-and-code", marks=slow)])
def test_no_table_scrolls_sideways(view, name, width):
    """The quick ones: a page whose tables are not stacked, and one whose are."""
    page = view(width=width).open(f"{name}.html")
    wide = page.locator("article .pst-scrollable-table-container, article table.stacked").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => [e.className, e.scrollWidth])"
    )
    assert not [found for found in wide if width == 1280 or "stacked" in found[0]]
    second = page.locator("article table.stacked:not(.plain) td[data-label]:nth-child(2)")
    labels = set(second.evaluate_all("all => all.map(e => getComputedStyle(e, '::before').content)"))
    if name == "book/notation":  # letters, meanings and code can be told apart
        assert not labels
    else:
        assert labels == {"none"} if width == 1280 else labels and "none" not in labels
