"""The built book that tests look at: where it is, and its pages."""

import os
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"


def needed() -> None:
    """Leave a test file out where there is no book; in CI that is an error."""
    if not (HTML / "index.html").is_file():
        if os.environ.get("CI"):
            raise FileNotFoundError(f"{HTML}: run `make book` before the tests")
        pytest.skip("no book here: run `make book`", allow_module_level=True)


def chapters() -> list[str]:
    """The names of all pages in the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    found = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"], *(page["file"] for chapter in found for page in (chapter, *chapter.get("sections", ())))]
