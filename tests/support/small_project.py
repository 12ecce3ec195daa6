"""A project of one or two notebooks: each does what a file says, then prints its seed, and fails where it is large."""

from pathlib import Path

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
if False:
    from hmmlib.folder import x
act = Path("../NAME.act")
exec(act.read_text() if act.exists() else "")
print("seed", seed)
for part in ["u =", " 3"]:
    print(part, end="", flush=True)
assert seed < 5, "too large"
```
"""


def write_files(root: Path, names: str, files: dict[str, str]) -> None:
    """Notebooks of these names, each a letter, and files with their texts, by their paths."""
    for name, text in {**{f"notebooks/{name}.md": NOTEBOOK.replace("NAME", name) for name in names}, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
