"""Views of the built book, which lies in _build/html, in a browser; and a project of one notebook."""

from functools import cache
from types import SimpleNamespace

import pytest
from browser import Watched, chromium, served
from built_book import HTML, ROOT
from small_project import write_files

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
    """A function of width, theme, one of `homes` or another address, and what else a context takes: the one view of a
    file's tests with these, until the browser is closed. A new one for each test takes three times as long."""

    @cache
    def get(width: int = 1280, theme: str = "light", home: str = "served", **more) -> Watched:
        return Watched(browser, homes.get(home, home), width, theme, **more)

    return get


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one notebook, with its twin, that prints its seed, or fails where it is too large."""
    files = dict.fromkeys(("__init__", "folder/__init__", "y", "unread", "experiments/store"), "x = 1\n")
    files["folder/x"] = "def f():\n    import hmmlib.y\nx = 1\n"
    files = {f"hmmlib/{name}.py": text for name, text in files.items()} | {"hmmlib/moving/x.js": "1"}
    files |= {"requirements.lock": "a==1\n", "seed.yaml": "seed: 3\n", "results/r.json": "{}", "build/empty": ""}
    write_files(tmp_path, "a", files | {"_config.yml": (ROOT / "_config.yml").read_text()})
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(pipeline, "EXECUTED", tmp_path / "build" / "executed" / "notebooks")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "build" / "ipython"))
    assert pipeline.write_twins(check=False) == 1
    path = tmp_path / "notebooks" / "a.ipynb"
    return SimpleNamespace(root=tmp_path, path=path, copy=pipeline.EXECUTED / "a.ipynb", values=tmp_path / "seed.yaml")
