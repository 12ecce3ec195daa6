"""What is installed beside the modules: a command, the mark of typed code, and words for a package index."""

import importlib
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import EntryPoints
from pathlib import Path

import package_readme
import pytest
from hatchling.builders.wheel import WheelBuilder

import hmmlib
import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    with zipfile.ZipFile(path) as file:
        yield file


def about(wheel: zipfile.ZipFile, name: str) -> bytes:
    return wheel.read(f"hmmlib-{hmmlib.__version__}.dist-info/{name}")


def test_the_command_is_the_module(wheel):
    (command,) = EntryPoints._from_text_for(about(wheel, "entry_points.txt").decode(), None)
    assert (command.group, command.name) == ("console_scripts", "hmmlib")
    assert command.load() is importlib.import_module("hmmlib.__main__").main
    script = (
        f"import sys; from {command.module} import {command.attr}; sys.argv[0] = 'hmmlib'; sys.exit({command.attr}())"
    )
    for words in (["--version"], ["trial", "--seed", "-1"], ["info", "--device", "cpu"]):
        ways = ([sys.executable, "-c", script], [sys.executable, "-m", "hmmlib"])
        ends = [subprocess.run([*way, *words], cwd=ROOT, capture_output=True, text=True) for way in ways]
        assert ends[0].returncode == ends[1].returncode == (2 if "-1" in words else 0)
        assert ends[0].stdout == ends[1].stdout
        assert ends[0].stderr == ends[1].stderr.replace("python -m hmmlib", "hmmlib")


def test_type_checkers_may_trust_the_package(wheel):
    assert {"hmmlib/py.typed", "hmmlib/__init__.pyi"} <= {*wheel.namelist()}


def test_an_index_can_show_every_picture_and_follow_every_link(wheel):
    metadata = message_from_bytes(about(wheel, "METADATA"))
    text, address = metadata.get_payload(decode=True).decode(), pipeline.address()
    assert metadata["Description-Content-Type"] == "text/markdown"
    pictures = IMAGE.findall(text)
    own = [picture.removeprefix(f"{address}/raw/main/") for picture in pictures if picture.startswith(address)]
    assert len(own) >= 3
    assert all((ROOT / path).is_file() for path in own)
    assert all(target.startswith(("https://", "#")) for target in re.findall(r"\]\(([^)]+)\)", text))
    assert any(not target.startswith("https://") for target in IMAGE.findall(README)), "else this shows nothing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("![a](book/a.png)", "![a](https://host/me/it/raw/main/book/a.png)"),
        ("[a](book/a.md#b)", "[a](https://host/me/it/blob/main/book/a.md#b)"),
        ("[![a](b.svg)](https://host/c)", "[![a](https://host/me/it/raw/main/b.svg)](https://host/c)"),
        ("[a](#b), [c](https://host/d), `x[1](2)`s", None),
    ],
)
def test_paths_become_addresses_and_addresses_stay(text, expected):
    made = package_readme.absolute(text, "https://host/me/it")
    assert made == (expected or text.replace("](2)", "](https://host/me/it/blob/main/2)"))


def test_the_package_says_where_it_comes_from_and_what_it_is_for(wheel):
    metadata = message_from_bytes(about(wheel, "METADATA"))
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert set(urls) == {"Repository", "Issues", "Changelog"}
    assert urls["Repository"] == pipeline.address()
    assert all(url.startswith(pipeline.address()) for url in urls.values())
    assert (ROOT / urls["Changelog"].split("/blob/main/")[1]).is_file()
    classifiers = metadata.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    oldest = metadata["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in classifiers
