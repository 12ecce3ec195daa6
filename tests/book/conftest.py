"""The browser, and views of the built book, for the tests that open its pages."""

import pytest
from browser import Watched, chromium, served
from built_book import HTML


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def served_book():
    with served(HTML) as home:
        yield home


@pytest.fixture
def own_view(browser, served_book):
    """A function of width, height, theme, home and what else a context takes: a view that no other test has seen."""
    views = []

    def get(width: int = 1280, height: int = 900, theme: str = "light", home: str = served_book, **more) -> Watched:
        views.append(Watched(browser, home, width, height, theme, **more))
        return views[-1]

    yield get
    for each in views:
        each.context.close()


@pytest.fixture(scope="module")
def view(browser, served_book):
    """A function of width, theme, home and what else a context takes: the one view of a file's tests with these."""
    views = {}

    def get(width: int = 1280, theme: str = "light", home: str = served_book, **more) -> Watched:
        home = f"{HTML.as_uri()}/" if home == "from a folder" else home
        key = (width, theme, home, *more.items())
        if key not in views:
            views[key] = Watched(browser, home, width, 900 if width > 500 else 844, theme, **more)
        return views[key]

    yield get
    for each in views.values():
        each.context.close()
