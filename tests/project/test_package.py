"""What is installed works: a command, typed code, words for an index, and the examples of the README."""

import importlib
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import EntryPoints

import pytest
from commands import usage_error
from hatchling.builders.wheel import WheelBuilder
from record import ROOT
from runs import ENVIRONMENT

import hmmlib
import notebooks as pipeline

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> dict[str, bytes]:
    """The files of the package, by name; those about it by their name alone."""
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    with zipfile.ZipFile(path) as file:
        about = f"hmmlib-{hmmlib.__version__}.dist-info/"
        return {name.removeprefix(about): file.read(name) for name in file.namelist()}


def test_the_installed_command_and_the_module_fail_alike(wheel):
    (command,) = EntryPoints._from_text_for(wheel["entry_points.txt"].decode(), None)
    assert (command.group, command.name) == ("console_scripts", "hmmlib")
    script = f"import sys; from {command.module} import {command.attr}; sys.exit({command.attr}())"
    for way in (["-c", script], ["-m", "hmmlib"]):
        call = [sys.executable, *way, "trial", "--seed", "-1"]
        done = subprocess.run(call, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        usage_error((done.returncode, done.stdout, done.stderr), "'--seed'")


def test_an_index_has_the_packages_origin_and_python_and_can_follow_every_link_and_type_checkers_trust_it(wheel):
    assert {"hmmlib/py.typed", "hmmlib/__init__.pyi"} <= wheel.keys()
    metadata, address = message_from_bytes(wheel["METADATA"]), pipeline.address()
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert (set(urls), urls["Repository"]) == ({"Repository", "Issues", "Changelog"}, address)
    oldest = metadata["Requires-Python"].removeprefix(">=")
    assert {"Typing :: Typed", f"Programming Language :: Python :: {oldest}"} <= {*metadata.get_all("Classifier")}
    assert metadata["Description-Content-Type"] == "text/markdown"
    targets = [*urls.values(), *re.findall(r"\]\(([^)]+)\)", metadata.get_payload(decode=True).decode())]
    assert all(target.startswith(("https://", "#")) for target in targets)
    own = re.findall(rf"{address}/(raw|blob)/main/([^#\s]+)", "\n".join(targets))
    assert {kind for kind, _ in own} == {"raw", "blob"}
    assert all((ROOT / path).is_file() and (kind == "raw") == path.endswith((".png", ".svg")) for kind, path in own)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_an_example_of_the_readme_runs_and_imports_from_the_root(code, tmp_path, monkeypatch):
    assert set(re.findall(r"^from (\S+) import", code, re.MULTILINE)) == {"hmmlib"}
    (tmp_path / f"{tmp_path.name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    example = importlib.import_module(tmp_path.name)
    shapes = dict(re.findall(r"^(\w+) = .*  # (\([\d, ]+\))", code, re.MULTILINE))
    assert shapes
    assert {name: str(tuple(getattr(example, name).shape)) for name in shapes} == shapes
