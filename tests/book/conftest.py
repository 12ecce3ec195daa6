"""Views of the built book, which lies in _build/html, in a browser; and a project of two notebooks."""

from functools import cache

import pytest
from browser import Watched, chromium, served
from built_book import HTML
from small_project import Project

import notebooks as pipeline


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Addresses of the book: served, and in a folder, which may have any name."""
    folder = tmp_path_factory.mktemp("book") / "Meine Bücher #1 100%"
    folder.symlink_to(HTML, target_is_directory=True)
    with served(HTML) as home:
        yield {"served": home, "from a folder": f"{folder.as_uri()}/"}


@pytest.fixture(scope="module")
def view(browser, homes):
    """Open views of the book, which tests of a file share: a new one for each test takes three times as long.

    Args of the function: width, theme, one of `homes` or another address, and what else a context takes.
    """

    @cache
    def get(width: int = 1280, theme: str = "light", home: str = "served", **options) -> Watched:
        return Watched(browser, homes.get(home, home), width, theme, **options)

    return get


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two notebooks, with their twins. Each prints its seed, and fails where the seed is large."""
    project = Project(tmp_path)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    assert pipeline.write_twins() == 2
    return project
