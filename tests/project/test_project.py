"""The project's files agree with each other: lock, conda, twins, one address in every file, threads that wait."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat  # noqa: F401, without it these tests are left out
import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement

import address
import notebooks as pipeline
from hmmbook.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
GITHUB = "https://github.com"
FORK = f"{GITHUB}/first-fork/a.b-c"
NO_ADDRESSES = [
    "",
    "me/it",
    f"{GITHUB}/me",
    f"{GITHUB}/me/it/tree/main",
    "https://gitlab.example/me/it",
    f"{GITHUB}/me/..",
    f"{GITHUB}/OWNER/it",
    f"{GITHUB}/me/it {GITHUB}/me/it",
    "git@github.com:me/it.git",
]


def requirements() -> set[str]:
    """The direct dependencies in pyproject.toml, those of extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = set(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        texts.update(extra)
    return texts


def test_the_lock_is_within_each_requirements_range():
    """Nothing here looks at its hashes, because pip asks for one for each file when it installs."""
    lock = (ROOT / "requirements.lock").read_text()
    versions = dict(re.findall(r"^([\w.-]+)==([^ ]+)", lock, re.MULTILINE))
    for text in requirements():
        requirement = Requirement(text)
        name = requirement.name.lower().replace("_", "-")
        assert requirement.specifier.contains(versions[name]), text


def test_the_environment_of_conda_has_the_direct_dependencies():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert set(environment["dependencies"][-1]["pip"]) == requirements()


def git(*arguments: str) -> list[str]:
    """What git says of this copy, line by line."""
    process = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.skip("git does not know this copy")
    return process.stdout.splitlines()


def test_what_a_user_makes_has_a_place_that_git_ignores():
    (out,) = re.findall(r"^papermill \S+ (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    folder = str(Path(out).parent)
    assert git("ls-files", folder) == ["mine/.gitignore"], "a clone has the folder, because papermill makes none"
    for path in (out, "mine/ledger.json", "mine/results/quick/x.json"):
        assert git("check-ignore", path) == [path]


def repositories(folder: Path) -> set[str]:
    """The repositories that a file names, in a link to one, to its pages, or to a notebook in a viewer."""
    text = "\n".join(path.read_text(errors="ignore") for path in folder.rglob("*") if path.is_file())
    name = r"[\w-]+(?:\.[\w-]+)*"
    names = re.findall(rf"(?:github\.com|/github)/({name}/{name})", text)
    for owner, repository in re.findall(rf"https://([\w-]+)\.github\.io/({name})", text):
        names.append(f"{owner}/{repository}")
    return {name.lower() for name in names} - {"you/name"}


def test_no_file_names_another_repository_and_a_fork_leaves_nothing_of_the_old_address(tmp_path, monkeypatch):
    for name in git("ls-files", "-co", "--exclude-standard", ":!results", ":!tests"):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    original = pipeline.address().removeprefix(f"{GITHUB}/").lower()
    address.main([])
    assert repositories(tmp_path) == {original}
    address.main([FORK])
    assert repositories(tmp_path) == {"first-fork/a.b-c"}
    assert pipeline.write_twins() == 0, "the twins had been written"


def test_every_link_moves_and_no_other_repositorys():
    links = f"see {GITHUB}/a/b. git+{GITHUB}/a/b@v1 https://viewer/github/a/b/blob/main https://a.github.io/b/x.html"
    others = f"{GITHUB}/a/b-c {GITHUB}/a/b.c {GITHUB}/aa/b {GITHUB}/x/a/b a/b"
    moved = links.replace("/a/b", "/c/d").replace("a.github.io/b", "c.github.io/d")
    assert address.moved(f"{links} {others}", f"{GITHUB}/a/b", f"{GITHUB}/c/d") == f"{moved} {others}"


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_is_no_address_is_refused_and_nothing_is_written(text, monkeypatch):
    monkeypatch.setattr(address, "write_whole", lambda *_: pytest.fail("it was written"))
    with pytest.raises(SystemExit, match=r"URL must (be https|have your own name)"):
        address.main([text])


@pytest.mark.parametrize(
    ("url", "repository", "message"),
    [
        ("OWNER/it", "", f".* still a placeholder, {GITHUB}/OWNER/it, and .*: make address URL={GITHUB}/YOU/NAME"),
        ("OWNER/it", "me/it", f"::warning::.* a placeholder, .*; set it with: make address URL={GITHUB}/me/it"),
        ("you/it", "me/it", f"::warning::.*its links lead to {GITHUB}/you/it; .*make address URL={GITHUB}/me/it"),
        ("Me/it", "me/it", f"the repository's address: {GITHUB}/Me/it"),
        ("me/it", "", f"the repository's address: {GITHUB}/me/it"),
    ],
)
def test_a_placeholder_or_anothers_address_is_told_in_one_line(url, repository, message, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    monkeypatch.setattr(pipeline, "address", lambda: f"{GITHUB}/{url}")
    address.main([])
    assert re.fullmatch(f"{message}\n", capsys.readouterr().out)


def test_threads_do_not_spin_in_a_notebook(monkeypatch):
    """Beside other work they must not. Torch reads a setting for that when it is imported."""
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    exec(TransformerManager().transform_cell(pipeline.bootstrap()), {})
    assert os.environ.pop("GOMP_SPINCOUNT") == "1000"


IMPORTS = """
import os

before = dict(os.environ)
{imports}
hmmlib.random_hmm(2, 2)
hmmbook.TrialSpec
assert dict(os.environ) == before
"""


@pytest.mark.parametrize("imports", ["import torch, hmmlib, hmmbook", "import hmmlib, hmmbook, torch"])
def test_an_import_neither_warns_nor_changes_the_environment_in_any_order(imports):
    environment = {name: value for name, value in os.environ.items() if "GOMP" not in name and "CUBLAS" not in name}
    command = [sys.executable, "-W", "error", "-c", IMPORTS.format(imports=imports)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_the_command_keeps_threads_from_spinning_before_torch_is_imported(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    seen = []

    def note() -> None:
        seen.append(os.environ["GOMP_SPINCOUNT"])

    monkeypatch.setattr("hmmbook.__main__.app", note)
    main()
    assert seen == ["1000"]
