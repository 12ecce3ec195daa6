"""The project's files agree with each other: lock, twins, notebooks, layers, and one address in every file."""

import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import address
import importlinter  # noqa: F401, without it these tests are left out
import pytest
import yaml
from packaging.requirements import Requirement
from record import slow

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]
GITHUB = "https://github.com"
FIRST, SECOND = f"{GITHUB}/first-fork/a.b-c", f"{GITHUB}/2nd/it"


def test_the_lock_is_within_each_requirements_range_and_the_environment_of_conda_is_the_same():
    """That it has a hash for each file is what pip asks for when it installs."""
    locked = re.findall(r"^(\w[^\\]*) \\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][-1]["pip"] == locked
    versions = dict(line.split(" ")[0].split("==") for line in locked)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in chain(project["dependencies"], *project["optional-dependencies"].values()):
        requirement = Requirement(text)
        assert requirement.specifier.contains(versions[requirement.name.lower().replace("_", "-")]), text


def git(*words: str) -> list[str]:
    """What git says of this copy, line by line."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("git does not know this copy")
    return done.stdout.splitlines()


def test_what_a_user_makes_has_a_place_that_git_ignores():
    (out,) = re.findall(r"^papermill \S+ (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert git("ls-files", str(Path(out).parent)) == ["mine/.gitignore"], "a clone has the folder: papermill makes none"
    made = [out, "mine/ledger.json", "mine/results/quick/x.json"]
    assert git("check-ignore", *made) == made


PLANTED = {
    "No import upwards": ("hmmlib/theory/heads.py", "hmmlib.training.bert"),
    "The library never imports the companion": ("hmmlib/experiments/labels.py", "companion.pages"),
    "Witnesses import nothing that they are to check": ("companion/evidence/enumeration.py", "hmmlib.models.hmm"),
}
"""For each contract of import-linter, a file and what it may not import."""


def test_each_room_imports_only_what_it_may_and_each_breach_is_caught(tmp_path):
    for package in (ROOT / "hmmlib", ROOT / "book" / "companion"):
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def lint_imports() -> str:
        call, own = [Path(sys.executable).parent / "lint-imports", "--no-cache"], {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(call, cwd=tmp_path, env=own, capture_output=True, text=True).stdout

    assert f"Contracts: {len(PLANTED)} kept, 0 broken." in lint_imports()
    for file, name in PLANTED.values():
        with (tmp_path / file).open("a") as module:
            module.write(f"\n\ndef planted():\n    import {name}\n")
    found = lint_imports()
    assert all(f"{contract} BROKEN" in found for contract in PLANTED)


# The repository's address: a fork puts its own into every file, by one command


def tracked() -> list[str]:
    return [name for name in git("ls-files", "-co", "--exclude-standard") if (ROOT / name).is_file()]


@slow
def test_a_fork_of_a_fork_leaves_nothing_of_either_address(tmp_path, monkeypatch):
    """In `make test`, test_every_link_moves_and_no_other_repositorys stands for it."""
    old = pipeline.address()
    names = [name for name in tracked() if not name.startswith(("results/", "tests/project/test_project"))]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)

    def naming(url: str) -> set[str]:
        """The files in which the owner and the name of an address stand together, or its pages."""
        owner, name = url.split("/")[-2:]
        words = f"{owner}/{name}".encode(), f"{owner.lower()}.github.io/{name}".encode()
        return {path for path in names if any(word in (tmp_path / path).read_bytes() for word in words)}

    everywhere = naming(old)
    assert {"_config.yml", "CITATION.cff", "README.md", "pyproject.toml", "book/reproduce.md"} <= everywhere
    for url, before in ((FIRST, old), (SECOND, FIRST), (FIRST, SECOND)):
        address.main([url])
        assert (naming(old), naming(before), naming(url)) == (set(), set(), everywhere)
    assert pipeline.write_twins(check=True) == 0


def test_no_file_names_another_repository():
    here = pipeline.address()
    assert here in (ROOT / "CITATION.cff").read_text()
    for path in map(ROOT.joinpath, tracked()):
        if path.suffix in {".md", ".py", ".toml", ".cff", ".ipynb", ".yml"}:
            text = path.read_text()
            found = re.findall(rf"{GITHUB}/[A-Za-z0-9_./-]+", text)
            viewed = re.findall(r"(?:google\.com|nbviewer\.org)/github/([\w./-]+)", text)
            found += [f"{GITHUB}/{other}" for other in viewed]
            assert all(other.startswith(here) for other in found), (path, found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"see {GITHUB}/a/b. And git+{GITHUB}/a/b@v1", f"see {GITHUB}/c/d. And git+{GITHUB}/c/d@v1"),
        ("https://viewer/github/a/b/blob/main", "https://viewer/github/c/d/blob/main"),
        ("https://a.github.io/b/x.html", "https://c.github.io/d/x.html"),
        (f"{GITHUB}/a/b-c {GITHUB}/a/b.c {GITHUB}/aa/b {GITHUB}/x/a/b a/b", None),
    ],
)
def test_every_link_moves_and_no_other_repositorys(text, expected):
    assert address.moved(text, f"{GITHUB}/a/b", f"{GITHUB}/c/d") == (expected or text)


NONE = ["", "me/it", f"{GITHUB}/me", f"{GITHUB}/me/it/tree/main", "https://gitlab.example/me/it", f"{GITHUB}/me/.."]
NONE += [f"{GITHUB}/OWNER/it", f"{GITHUB}/me/it {GITHUB}/me/it", "git@github.com:me/it.git"]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_address_is_refused_and_nothing_is_written(text, monkeypatch):
    monkeypatch.setattr(address, "write_whole", lambda *_: pytest.fail("it was written"))
    with pytest.raises(SystemExit, match=r"URL must (be https|have your own name)"):
        address.main([text])


@pytest.mark.parametrize(
    ("url", "repository", "said"),
    [
        ("OWNER/it", "", f".* still a placeholder, {GITHUB}/OWNER/it, and .*: make address URL={GITHUB}/YOU/NAME"),
        ("OWNER/it", "me/it", f"::warning::.* a placeholder, .*; set it with: make address URL={GITHUB}/me/it"),
        ("you/it", "me/it", f"::warning::.*its links lead to {GITHUB}/you/it; .*make address URL={GITHUB}/me/it"),
        ("Me/it", "me/it", f"the repository's address: {GITHUB}/Me/it"),
        ("me/it", "", f"the repository's address: {GITHUB}/me/it"),
    ],
)
def test_a_placeholder_or_anothers_address_is_told_in_one_line(url, repository, said, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    monkeypatch.setattr(pipeline, "address", lambda: f"{GITHUB}/{url}")
    address.main([])
    assert re.fullmatch(f"{said}\n", capsys.readouterr().out)
