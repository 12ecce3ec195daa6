"""A project of one or two notebooks: each does what a file says, then prints its seed, and fails where it is large."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = """\
---
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# A claim

By {prf:ref}`paper-thm-3-3`.

```{code-cell} ipython3
:tags: [parameters]

# Parameters: here
seed: int = 0  # of the draw
```

```{code-cell} ipython3
from pathlib import Path
act = Path("NAME.act")
exec(act.read_text(encoding="utf8") if act.exists() else "")
print("seed", seed)
for part in ["u =", " 3"]:
    print(part, end="", flush=True)
assert seed < 5, "too large"
```
"""


def write_files(root: Path, files: dict[str, str]) -> None:
    """Write files with their texts, by their paths."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")


def write_notebooks(root: Path, names: str) -> None:
    """Write text notebooks, each named by a letter."""
    for name in names:
        write_files(root, {f"notebooks/{name}.md": NOTEBOOK.replace("NAME", name)})


def replace_in(path: Path, old: str, new: str) -> None:
    """Edit a file. What is replaced must be there."""
    text = path.read_text(encoding="utf8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf8")


# A project with a Makefile

LIKE_PYTHON = """\
#!/bin/sh
# Stands for the Python of the environment. The ledger is quickly made, and each call is noted.
case "$1 $2" in
"-m hmmbook")
  echo ledger >> calls
  test ! -e ledger-fails || exit 3
  echo '{{}}' > "$5" ;;
"book/execute.py "*)
  basename "$2" .ipynb >> calls
  echo "$HMMBOOK_MINE" > users-results
  {execute} ;;
esac
"""
LIKE_JUPYTER_BOOK = "#!/bin/sh\necho book >> calls\ntest ! -e book-fails\n"
COPY = 'mkdir -p build/executed/notebooks && cp "$2" "$3"'
REALLY = f'exec "{sys.executable}" "$@"'
"""What stands for executing a notebook: its copy, or the real thing."""


class Project:
    """A project of two notebooks, a and b, with the Makefile of this one. Only its environment is a stand-in."""

    def __init__(self, root: Path, execute: str = COPY):
        self.root = root
        self.executed = root / "build" / "executed" / "notebooks"
        files = {
            "parameters/quick.yaml": "seed: 3\n",
            "parameters/large.yaml": "seed: 7\n",
            "requirements.lock": "a==1\n",
            "pyproject.toml": "",
            "hmmlib/x.py": "x = 1\n",
            "book/hmmbook/__init__.py": "",
            "results/quick/r.json": "{}",
            "venv/bin/python": LIKE_PYTHON.format(execute=execute),
            "venv/bin/jupyter-book": LIKE_JUPYTER_BOOK,
            "venv/.installed": "",
        }
        write_files(root, files)
        write_notebooks(root, "ab")
        for path in (root / "venv" / "bin").iterdir():
            path.chmod(0o755)
        for name in ("Makefile", "_config.yml", "book/execute.py", "book/hmmbook/files.py"):
            shutil.copy(ROOT / name, root / name)
        self.environment = dict(os.environ, HMMLIB_FAULT=str(root), HMMBOOK_MINE="the user's")
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            self.environment.pop(name, None)  # A make that runs these tests has set them.

    def command(self, *arguments: str) -> list[str]:
        """Give the words of a call of make."""
        return ["make", "--directory", str(self.root), "VENV=venv", "JOBS=2", *arguments]

    def make(self, *arguments: str) -> subprocess.CompletedProcess:
        """Call make. The environment always counts as installed, and the twins are left as they are."""
        (self.root / "venv" / ".installed").touch()
        return subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, encoding="utf8", timeout=300
        )

    def new_calls(self) -> list[str]:
        """List what the stand-ins were called for since this was last asked, in alphabetical order."""
        path = self.root / "calls"
        calls = sorted(path.read_text(encoding="utf8").split()) if path.exists() else []
        path.unlink(missing_ok=True)
        return calls
