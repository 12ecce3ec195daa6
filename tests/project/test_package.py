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
from hmmbook import results

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def wheel_path(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(folder))
    return path


@pytest.fixture(scope="module")
def wheel(wheel_path) -> dict[str, bytes]:
    """The files of the package, by name. Those of its metadata are without their folder."""
    metadata_folder = f"hmmlib-{hmmlib.__version__}.dist-info/"
    with zipfile.ZipFile(wheel_path) as file:
        return {name.removeprefix(metadata_folder): file.read(name) for name in file.namelist()}


def test_the_package_has_both_libraries_and_the_stored_results(wheel):
    assert {"hmmlib/py.typed", "hmmlib/__init__.pyi", "hmmbook/__init__.pyi"} <= wheel.keys()
    results = [name for name in wheel if name.startswith("hmmbook/results/quick/")]
    assert len(results) > 100


def test_an_installed_package_finds_the_stored_results(wheel_path, tmp_path):
    with zipfile.ZipFile(wheel_path) as file:
        file.extractall(tmp_path)
    program = "import hmmbook; print(hmmbook.__file__, len(hmmbook.results('quick')))"

    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": str(tmp_path), "HMMBOOK_MINE": "mine"},
        capture_output=True,
        text=True,
        check=True,
    )

    place, count = process.stdout.split()
    assert place.startswith(str(tmp_path))
    assert int(count) == len(results("quick"))


def test_the_installed_command_and_the_module_fail_alike(wheel):
    (command,) = EntryPoints._from_text_for(wheel["entry_points.txt"].decode(), None)
    assert command.group == "console_scripts"
    assert command.name == "hmmbook"
    script = f"import sys; from {command.module} import {command.attr}; sys.exit({command.attr}())"
    for start in (["-c", script], ["-m", "hmmbook"]):
        process = subprocess.run(
            [sys.executable, *start, "trial", "--seed", "-1"],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        usage_error((process.returncode, process.stdout, process.stderr), "'--seed'")


def test_the_metadata_name_the_repository_and_the_versions_of_python(wheel):
    metadata = message_from_bytes(wheel["METADATA"])
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert urls.keys() == {"Repository", "Issues", "Changelog"}
    assert urls["Repository"] == pipeline.address()
    oldest = metadata["Requires-Python"].removeprefix(">=")
    assert {"Typing :: Typed", f"Programming Language :: Python :: {oldest}"} <= {*metadata.get_all("Classifier")}


def test_every_link_of_the_readme_leads_somewhere_also_from_an_index(wheel):
    metadata = message_from_bytes(wheel["METADATA"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload(decode=True).decode()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    for target in targets:
        assert target.startswith(("https://", "#"))
    files = re.findall(rf"{pipeline.address()}/(raw|blob)/main/([^#\s)]+)", text)
    assert {kind for kind, _ in files} == {"raw", "blob"}
    for kind, path in files:
        assert (ROOT / path).is_file()
        assert (kind == "raw") == path.endswith((".png", ".svg"))


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_of_the_readme_runs_and_imports_from_the_root(code, tmp_path, monkeypatch):
    packages = set(re.findall(r"^from (\S+) import", code, re.MULTILINE))
    assert packages <= {"hmmlib", "hmmbook"}
    (tmp_path / f"{tmp_path.name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    example = importlib.import_module(tmp_path.name)
    shapes = re.findall(r"^(\w+) = .*  # (\([\d, ]+\))", code, re.MULTILINE)
    assert shapes
    for name, shape in shapes:
        assert str(tuple(getattr(example, name).shape)) == shape
