"""The repository's address: where it stands, and another in its place.

python book/address.py          say which it is, and what is missing where it is still a placeholder, or another's
python book/address.py URL      put it into every file that names it, and write the notebooks' twins anew

It stands in _config.yml. The citation, the package, the README, pages and notebooks follow.
"""

from __future__ import annotations

import os
import re
import sys
from functools import reduce
from pathlib import Path

import yaml

import notebooks as pipeline
from hmmlib.files import write_whole

GITHUB = "https://github.com"
PLACEHOLDER = "OWNER"
"""The owner in an address that nobody has set yet."""
WANTED = re.compile(rf"{re.escape(GITHUB)}/[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.\.?$)[A-Za-z0-9_.-]+")
KINDS = ("*.md", "*.cff", "*.toml", "book/*.md", "notebooks/*.md", "_config.yml")
"""What may name the address, the place where it stands last: what is broken off before that can be done again."""


def checked(text: str) -> str:
    """An address as it is to stand everywhere. ValueError where it is none."""
    address = text.strip().removesuffix("/").removesuffix(".git")
    if not WANTED.fullmatch(address):
        raise ValueError(f"URL must be {GITHUB}/OWNER/NAME, where Colab finds the notebooks, not {text!r}")
    if address.startswith(f"{GITHUB}/{PLACEHOLDER}/"):
        raise ValueError(f"URL must have your own name in place of {PLACEHOLDER}: {text!r}")
    return address


def named(root: Path) -> set[str]:
    """The addresses to be replaced: in _config.yml, and where it was changed there by hand, in the citation."""
    config = yaml.safe_load((root / "_config.yml").read_text())["repository"]["url"]
    return {config, yaml.safe_load((root / "CITATION.cff").read_text())["repository-code"]}


def moved(text: str, old: str, new: str) -> str:
    """The text with each link to the old repository, its pages and its notebooks in viewers leading to the new one."""
    (_, owner, name), (_, new_owner, new_name) = (address.rsplit("/", 2) for address in (old, new))
    end = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9_])"
    text = re.sub(rf"(github\.com/|/github/){owner}/{re.escape(name)}{end}", rf"\g<1>{new_owner}/{new_name}", text)
    pages, new_pages = (f"{who.lower()}.github.io/{what}" for who, what in ((owner, name), (new_owner, new_name)))
    return re.sub(re.escape(pages) + end, new_pages, text)


def put(root: Path, new: str) -> list[str]:
    """Replace the address in every file below `root` that names it but the twins; the files that changed."""
    olds, changed = named(root) - {new}, []
    for path in (path for kind in KINDS for path in sorted(root.glob(kind))):
        text = path.read_text(encoding="utf8")
        new_text = reduce(lambda text, old: moved(text, old, new), olds, text)
        if new_text != text:
            write_whole(path, new_text)
            changed.append(str(path.relative_to(root)))
    return changed


def remind() -> None:
    """Print the address, or in one line what is wrong with it, which a workflow of GitHub's shows on top of the run."""
    server, name = os.environ.get("GITHUB_SERVER_URL", GITHUB), os.environ.get("GITHUB_REPOSITORY")
    address, here = pipeline.address(), f"{server}/{name}" if name else ""
    if address.split("/")[-2] == PLACEHOLDER:
        wrong = f"the repository's address is still a placeholder, {address}, and links to it lead nowhere"
    elif name and here.lower() != address.lower():
        wrong = f"this repository is {here}, but its links lead to {address}"
    else:
        print(f"the repository's address: {address}")
        return
    print(f"{'::warning::' if name else ''}{wrong}; set it with: make address URL={here or f'{GITHUB}/YOU/NAME'}")


def main(words: list[str]) -> None:
    if not words:
        remind()
        return
    try:
        new = checked(" ".join(words))
    except ValueError as error:
        sys.exit(f"address.py: {error}")
    changed = put(pipeline.ROOT, new)
    print("\n".join([f"{new} now stands in", *changed]) if changed else f"{new} stood in every file already")
    pipeline.write_twins(check=False)
    tag = pipeline.tag()
    print(f"commit this. In Colab the notebooks install the tag {tag}: git push origin {tag}", end="")
    print(f" (git tag {tag} makes it, where it is not in this repository yet)")


if __name__ == "__main__":
    main(sys.argv[1:])
