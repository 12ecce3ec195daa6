"""A moving figure is HTML that holds all that it needs, and asks for nothing; in a browser it follows its reader."""

import json
import re

import pytest
from moving_figures import figures, prompt_figure


@pytest.mark.parametrize("figure", figures().values(), ids=lambda figure: figure.figure)
def test_html_holds_everything_asks_for_nothing_and_no_words_can_leave_its_script(figure):
    figure.data["names"] = ["</script><b>"]
    html = figure._repr_html_()
    for tag in ("<script>", "</script>", "<style>", "</style>"):
        assert html.count(tag) == 1
    assert not re.findall(r"http|src\s*=|import\(|fetch\(|XMLHttpRequest|@import|url\(|eval\(", html)
    assert re.findall(r'\bid="([^"]*)"', html.split("<script>")[0]) == [f"moving-{figure.figure}"]
    (written,) = re.findall(r"hmmMoving\.kit\.start\(.*?, .*?, (\{.*\})\);\n</script>", html)
    assert json.loads(written) == json.loads(json.dumps(figure.data)), "numbers travel unrounded"


@pytest.fixture(scope="module")
def page(phone):
    """Each figure, and one of them twice."""
    html = prompt_figure()[-1]._repr_html_()
    for figure in figures().values():
        html += figure._repr_html_()
    page, wrong = phone(html)
    yield page
    assert wrong() == []


def press(figure, *names):
    for name in names:
        figure.get_by_role("button", name=re.compile(f"^{name}")).click()


def state(figure) -> tuple[str, list[str]]:
    """What a reader sees of a figure."""
    return figure.inner_text(), figure.locator("svg").evaluate_all("all => all.map(e => e.outerHTML)")


def test_every_figure_starts_and_its_controls_can_be_touched(page):
    assert page.locator(".moving").count() == page.locator(".moving[data-ready]").count() == 9
    for control in page.locator(".moving input:visible, .moving button:visible").all():
        box = control.bounding_box()
        assert min(box["width"], box["height"]) >= 24


def test_every_slider_moves_its_figure_which_returns(page):
    for figure in page.locator(".moving:has(input[type=range])").all():
        slider = figure.locator("input[type=range]").first
        start = state(figure)
        slider.dispatch_event("pointerdown")
        slider.press("Home")
        at_home = state(figure)
        slider.press("End")
        at_end = state(figure)
        slider.dispatch_event("pointercancel")  # The finger scrolls the page.
        assert state(figure) == start
        assert at_home[0] != at_end[0]
        assert at_home[1] != at_end[1]
        slider.press("End" if at_home == start else "Home")
        press(figure, "Reset")
        assert state(figure) == start


def test_the_message_of_each_step_is_explained(page):
    figure = page.locator("#moving-messages")
    press(figure, "None", *["Next"] * 6)
    explanation = "H₃ to H₂: the message at H₃ times e(rain) = (0.1, 0.7), carried one step back by A"
    assert explanation in figure.locator(".says").inner_text()
    steps = [("Back", "5 of 8"), ("None", "0 of 8"), ("Back", "0 of 8"), ("Reset", "8 of 8"), ("Next", "8 of 8")]
    for button, step in steps:
        press(figure, button)
        assert figure.locator("output").inner_text() == step


def test_a_masked_word_changes_what_comes_from_it_alone(page):
    figure = page.locator("#moving-messages")
    press(figure, "Reset")
    press(figure, "None", *["Next"] * 6)
    numbers = figure.locator(".numbers")
    _, masked, shown, _ = figure.locator(".tokens button").all()
    assert masked.inner_text() == "mask"
    assert masked.get_attribute("aria-pressed") == "true"
    before = numbers.inner_text()
    assert "G₂: sun 0.54, cloud 0.20, rain 0.26" in before
    masked.click()
    assert masked.inner_text() == "cloud"
    assert masked.get_attribute("aria-pressed") == "false"
    assert numbers.inner_text() == before
    shown.press("Enter")
    assert shown.inner_text() == "mask"
    assert numbers.inner_text() != before


def test_a_reader_steps_through_a_text_goes_on_with_an_offered_word_and_writes_what_cannot_be(page):
    figure = page.locator("#moving-beliefs")
    says = figure.locator(".says")
    slider = figure.locator("input[type=range]")
    field = figure.locator("input[type=text]")
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
    assert slider.get_attribute("max") == "3"
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("a zebra")
    assert "Not in this language: zebra" in says.inner_text()
    assert offers.count() == 0
    assert figure.locator(".views.stale[aria-hidden=true]").count() == 1
    press(figure, "Reset")
    assert field.input_value() == "a cow the barn"
    assert slider.input_value() == "1"


def middle(element) -> float:
    box = element.bounding_box()
    return box["x"] + box["width"] / 2


def test_a_trial_is_chosen_by_either_of_its_marks(page):
    picture = page.locator("#moving-trials .views > div").first
    for mark in (picture.locator("g[opacity] .prompt").first, picture.locator("g[opacity] .alone").last):
        place = middle(mark)
        mark.click(force=True)
        rings = picture.locator(".ring").all()
        assert len(rings) == 2
        for ring in rings:
            assert middle(ring) == pytest.approx(place, abs=1)
