"""A moving figure is HTML that holds all that it needs, and asks for nothing; in a browser it follows its reader."""

import json
import re

import pytest
from moving_figures import figures, prompt_figure


def test_html_holds_everything_asks_for_nothing_and_no_words_can_leave_its_script():
    for name, figure in figures().items():
        figure.data["names"] = ["</script><b>"]
        html = figure._repr_html_()
        assert [html.count(tag) for tag in ("<script>", "</script>", "<style>", "</style>")] == [1] * 4
        assert not re.findall(r"http|src\s*=|import\(|fetch\(|XMLHttpRequest|@import|url\(|eval\(", html)
        assert re.findall(r'\bid="([^"]*)"', html.split("<script>")[0]) == [f"moving-{name}"]
        (written,) = re.findall(r"hmmMoving\.kit\.start\(.*?, .*?, (\{.*\})\);\n</script>", html)
        assert json.loads(written) == json.loads(json.dumps(figure.data)), "numbers travel unrounded"


@pytest.fixture(scope="module")
def page(phone):
    """Each figure, and one of them twice."""
    page, wrong = phone("".join(f._repr_html_() for f in [*figures().values(), prompt_figure()[-1]]))
    yield page
    assert wrong() == []


def press(figure, *names):
    for name in names:
        figure.get_by_role("button", name=re.compile(f"^{name}")).click()


def test_every_figure_starts_can_be_touched_moves_and_returns(page):
    assert page.locator(".moving").count() == page.locator(".moving[data-ready]").count() == 9
    for control in page.locator(".moving input:visible, .moving button:visible").all():
        box = control.bounding_box()
        assert min(box["width"], box["height"]) >= 24
    for figure in page.locator(".moving:has(input[type=range])").all():

        def state() -> tuple[str, list[str]]:
            return figure.inner_text(), figure.locator("svg").evaluate_all("all => all.map(e => e.outerHTML)")

        slider, start, ends = figure.locator("input[type=range]").first, state(), []
        slider.dispatch_event("pointerdown")
        for key in ("Home", "End"):
            slider.press(key)
            ends.append(state())
        slider.dispatch_event("pointercancel")  # the finger scrolls the page
        assert state() == start
        slider.press("End" if ends[0] == start else "Home")
        press(figure, "Reset")
        assert state() == start
        assert all(one != other for one, other in zip(*ends, strict=True))


def test_the_message_of_each_step_is_explained_and_a_masked_word_changes_what_comes_from_it_alone(page):
    figure = page.locator("#moving-messages")
    numbers, says, step = (figure.locator(part) for part in (".numbers", ".says", "output"))
    _, masked, shown, _ = figure.locator(".tokens button").all()
    press(figure, "None", *["Next"] * 6)
    assert "H₃ to H₂: the message at H₃ times e(rain) = (0.1, 0.7), carried one step back by A" in says.inner_text()
    assert (masked.inner_text(), masked.get_attribute("aria-pressed")) == ("mask", "true")
    assert "G₂: sun 0.54, cloud 0.20, rain 0.26" in (before := numbers.inner_text())
    masked.click()
    assert masked.get_attribute("aria-pressed") == "false"
    assert (masked.inner_text(), numbers.inner_text()) == ("cloud", before)
    shown.press("Enter")
    assert (shown.inner_text(), numbers.inner_text() == before) == ("mask", False)
    for name, at in ("Back", "5 of 8"), ("None", "0 of 8"), ("Back", "0 of 8"), ("Reset", "8 of 8"), ("Next", "8 of 8"):
        press(figure, name)
        assert step.inner_text() == at


def test_a_reader_steps_through_a_text_goes_on_with_an_offered_word_and_writes_what_cannot_be(page):
    figure = page.locator("#moving-beliefs")
    says, slider, field = (figure.locator(part) for part in (".says", "input[type=range]", "input[type=text]"))
    offers = figure.locator(".ahead button:visible")
    assert "“a” does not change the belief" in says.inner_text()
    press(figure, "Next word")
    assert says.inner_text() == "“cow” changes the belief about the subject and place."
    press(figure, "Next word")
    assert sorted(offers.all_inner_texts()) == ["barn", "cow", "field", "horse"]
    press(figure, "Go on with field")
    assert field.input_value() == "a cow the field"
    field.fill("a cow a a")
    assert says.inner_text().startswith("This text has probability zero: “a” cannot follow “a cow a”.")
    assert (slider.get_attribute("max"), field.get_attribute("aria-invalid")) == ("3", "true")
    field.fill("a zebra")
    assert "Not in this language: zebra" in says.inner_text()
    assert (offers.count(), figure.locator(".views.stale[aria-hidden=true]").count()) == (0, 1)
    press(figure, "Reset")
    assert (field.input_value(), slider.input_value()) == ("a cow the barn", "1")


def test_a_trial_is_chosen_by_either_of_its_marks(page):
    picture = page.locator("#moving-trials .views > div").first
    for mark in (picture.locator("g[opacity] .prompt").first, picture.locator("g[opacity] .alone").last):
        place = mark.bounding_box()
        mark.click(force=True)
        rings = [ring.bounding_box() for ring in picture.locator(".ring").all()]
        middles = [ring["x"] + ring["width"] / 2 for ring in rings]
        assert middles == pytest.approx([place["x"] + place["width"] / 2] * 2, abs=1)
