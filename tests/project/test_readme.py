"""What the README tells a reader to type works as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_example_runs_and_imports_from_the_library_itself(code):
    assert set(re.findall(r"^from (\S+) import", code, re.MULTILINE)) == {"hmmlib"}
    shapes = dict(re.findall(r"^(\w+) = .*  # (\([\d, ]+\))", code, re.MULTILINE))
    shown = "".join(f"\nprint(tuple({name}.shape))" for name in shapes)
    done = subprocess.run([sys.executable, "-c", code + shown], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(shapes.values())


def test_what_a_user_makes_has_a_place_that_git_ignores():
    """papermill makes no folder, so a fresh clone must have it."""
    (out,) = re.findall(r"^papermill \S+ (\S+)", README, re.MULTILINE)
    assert (ROOT / out).parent.is_dir()
    tracked = subprocess.run(["git", "ls-files", "mine"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("git does not know this copy")
    assert tracked.stdout.split() == ["mine/.gitignore"]
    for made in (out, "mine/ledger.json", "mine/results/quick/x.json"):
        assert subprocess.run(["git", "check-ignore", "--quiet", made], cwd=ROOT).returncode == 0, made


def test_every_notebook_is_in_the_list_that_opens_them_in_colab():
    page = (ROOT / "book" / "reproduce.md").read_text()
    assert "](book/reproduce.md#colab)" in README
    assert "\n## Colab\n" in page
    listed = re.findall(r"^- \[.+\]\(https://colab\.\S+/notebooks/(\S+)\.ipynb\)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
