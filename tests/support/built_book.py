"""The built book that tests look at: where it is, and its pages."""

import os
import re

import browser
import pytest
from record import ROOT

HTML = ROOT / "_build" / "html"


def needed(chromium: bool = False) -> pytest.MarkDecorator:
    """Skip each test of a file where there is no book, or no browser where one is needed; in CI that is an error."""
    lacking = ""
    if chromium and browser.executable() is None:
        lacking = browser.ADVICE
    if not (HTML / "index.html").is_file():
        lacking = "no book here: run `make book`"
    if lacking and os.environ.get("CI"):
        raise FileNotFoundError(lacking)
    return pytest.mark.skipif(bool(lacking), reason=lacking)


def chapters() -> list[str]:
    """List the names of all pages in the table of contents."""
    return re.findall(r"(?:root|file): (\S+)", (ROOT / "_toc.yml").read_text(encoding="utf8"))
