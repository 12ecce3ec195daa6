"""A fork: one command puts its address into every file that names it, and leaves nothing of the old one."""

import re
import shutil
import subprocess
from pathlib import Path

import address
import pytest
from record import slow

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]
GITHUB = "https://github.com"
FIRST, SECOND = f"{GITHUB}/first-fork/a.b-c", f"{GITHUB}/2nd/it"
TEXTS = {".md", ".py", ".toml", ".cff", ".ipynb", ".yml"}


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("git does not know this copy, and its files cannot be listed")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def naming(files: dict[str, bytes], url: str) -> set[str]:
    """The files in which the owner and the name of an address stand together, or its pages."""
    owner, name = url.split("/")[-2:]
    words = f"{owner}/{name}".encode(), f"{owner.lower()}.github.io/{name}".encode()
    return {path for path, text in files.items() if any(word in text for word in words)}


@slow
def test_a_fork_of_a_fork_leaves_nothing_of_either_address(tracked, tmp_path, monkeypatch, capsys):
    """In `make test`, test_every_link_moves_and_no_other_repositorys stands for it."""
    old = pipeline.address()
    names = [name for name in tracked if not name.startswith(("results/", "tests/project/test_address"))]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)

    def texts() -> dict[str, bytes]:
        return {name: (tmp_path / name).read_bytes() for name in names}

    made = [texts()]
    everywhere = naming(made[0], old)
    assert {"_config.yml", "CITATION.cff", "README.md", "pyproject.toml", "book/reproduce.md"} <= everywhere
    assert len(everywhere) > 25, "else there is nothing to notice"
    for url, before in ((FIRST, old), (SECOND, FIRST), (FIRST, SECOND)):
        address.main([url])
        assert f"{url} now stands in\n" in capsys.readouterr().out
        made.append(texts())
        assert (naming(made[-1], old), naming(made[-1], before), naming(made[-1], url)) == (set(), set(), everywhere)
    assert made[1] == made[3], "by whatever way"
    assert pipeline.write_twins(check=True) == 0
    address.main([f"{FIRST}.git"])
    assert f"{FIRST} stood in every file already" in capsys.readouterr().out
    assert texts() == made[3]
    assert f"git+{FIRST}@v".encode() in made[3]["notebooks/3-hmm.ipynb"]


def test_no_file_names_another_repository(tracked):
    address = pipeline.address()
    assert address in (ROOT / "CITATION.cff").read_text()
    for path in map(ROOT.joinpath, tracked):
        if path.suffix in TEXTS:
            for other in re.findall(rf"{GITHUB}/[A-Za-z0-9_./-]+", path.read_text()):
                assert other.startswith(address), (path, other)
            for other in re.findall(r"(?:google\.com|nbviewer\.org)/github/([\w.-]+/[\w.-]+)", path.read_text()):
                assert address.endswith(f"/{other}"), (path, other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{GITHUB}/a/b", f"{GITHUB}/c/d"),
        (f"see {GITHUB}/a/b. And", f"see {GITHUB}/c/d. And"),
        (f"git+{GITHUB}/a/b@v1", f"git+{GITHUB}/c/d@v1"),
        ("https://viewer/github/a/b/blob/main", "https://viewer/github/c/d/blob/main"),
        ("https://a.github.io/b/x.html", "https://c.github.io/d/x.html"),
        (f"{GITHUB}/a/b-c {GITHUB}/a/b.c {GITHUB}/aa/b {GITHUB}/x/a/b a/b", None),
    ],
)
def test_every_link_moves_and_no_other_repositorys(text, expected):
    assert address.moved(text, f"{GITHUB}/a/b", f"{GITHUB}/c/d") == (expected or text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "me/it", f"{GITHUB}/me", f"{GITHUB}/me/it/tree/main", "https://gitlab.example/me/it", f"{GITHUB}/me/.."),
        *(f"{GITHUB}/OWNER/it", f"{GITHUB}/me/it {GITHUB}/me/it", "git@github.com:me/it.git"),
    ],
)
def test_what_is_no_address_is_refused_and_nothing_is_written(text, monkeypatch):
    monkeypatch.setattr(address, "write_whole", lambda *_: pytest.fail("it was written"))
    with pytest.raises(SystemExit, match=r"URL must (be https|have your own name)"):
        address.main([text])


@pytest.mark.parametrize(
    ("url", "repository", "words"),
    [
        (f"{GITHUB}/OWNER/it", None, [f"still a placeholder, {GITHUB}/OWNER/it", f"URL={GITHUB}/YOU/NAME"]),
        (f"{GITHUB}/OWNER/it", "me/it", ["::warning::", "still a placeholder", f"make address URL={GITHUB}/me/it"]),
        (f"{GITHUB}/you/it", "me/it", ["::warning::", f"links lead to {GITHUB}/you/it", f"URL={GITHUB}/me/it"]),
        (f"{GITHUB}/Me/it", "me/it", [f"the repository's address: {GITHUB}/Me/it"]),
        (f"{GITHUB}/me/it", None, [f"the repository's address: {GITHUB}/me/it"]),
    ],
)
def test_a_placeholder_or_anothers_address_is_told_in_one_line(url, repository, words, monkeypatch, capsys):
    for name in ("GITHUB_REPOSITORY", "GITHUB_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    if repository:
        monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    monkeypatch.setattr(pipeline, "address", lambda: url)
    address.main([])
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert all(word in said for word in words)
    assert ("set it with" in said) == (len(words) > 1)
