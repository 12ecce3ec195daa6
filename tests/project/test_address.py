"""A fork: one command puts its address into every file that names it, and leaves nothing of the old one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import address
import nbformat
import pytest
from record import slow

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]
GITHUB = "https://github.com"
FIRST, SECOND = f"{GITHUB}/first-fork/a.b-c", f"{GITHUB}/2nd/it"


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Two copies of the project, without the stored results and this file, which has addresses of its own."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("git does not know this copy, and its files cannot be listed")
    folders = [tmp_path_factory.mktemp("fork") for _ in range(2)]
    for name in listed.stdout.splitlines():
        for folder in (
            folders
            if (ROOT / name).is_file() and not name.startswith(("results/", "tests/project/test_address"))
            else []
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folders


def python(folder: Path, *words: str) -> subprocess.CompletedProcess:
    own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=own, capture_output=True, text=True, check=False)


def texts(folder: Path) -> dict[str, bytes]:
    names = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def naming(folder: Path, url: str) -> set[str]:
    """The files in which the owner and the name of an address stand together, or its pages."""
    owner, name = url.split("/")[-2:]
    pages = f"{owner.lower()}.github.io/{name}"
    return {
        path for path, text in texts(folder).items() if f"{owner}/{name}".encode() in text or pages.encode() in text
    }


@slow
@pytest.mark.outside
def test_a_fork_and_a_fork_of_it_leave_nothing_of_the_old_address(copies):
    """In `make test`, test_every_link_moves_and_no_other_repositorys stands for it."""
    once, twice = copies
    old = pipeline.address()
    everywhere = naming(once, old)
    assert {"_config.yml", "CITATION.cff", "README.md", "pyproject.toml", "book/reproduce.md"} <= everywhere
    assert len(everywhere) > 25, "else there is nothing to notice"
    for folder, urls in ((once, [SECOND]), (twice, [FIRST, SECOND])):
        for url in urls:
            done = python(folder, "book/address.py", url)
            assert done.returncode == 0, done.stderr
            assert f"{url} now stands in\n" in done.stdout
            assert naming(folder, old) == set()
            assert naming(folder, url) == everywhere
            assert python(folder, "book/notebooks.py", "twins", "--check").returncode == 0
    assert naming(twice, FIRST) == set()
    assert texts(once) == texts(twice), "by whatever way"
    first_code = next(c for c in nbformat.read(twice / "notebooks" / "3-hmm.ipynb", 4).cells if c.cell_type == "code")
    assert f"git+{SECOND}@v" in first_code.source
    before = texts(twice)
    again = python(twice, "book/address.py", f"{SECOND}.git")
    assert f"{SECOND} stood in every file already" in again.stdout
    assert texts(twice) == before
    for path, text in before.items():
        if path.endswith((".md", ".toml", ".cff", ".ipynb", ".yml")):
            for link in re.findall(rf"{GITHUB}/[\w./-]+", text.decode()):
                assert link.startswith(SECOND), (path, link)


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
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    if repository:
        monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    monkeypatch.setattr(pipeline, "address", lambda: url)
    address.main([])
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert all(word in said for word in words)
    assert ("set it with" in said) == (len(words) > 1)
