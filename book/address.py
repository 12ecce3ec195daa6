"""The repository's address: where it stands, and another in its place.

python book/address.py          say which it is, and what is missing where it is still a placeholder, or another's
python book/address.py URL      put it into every file that names it, and write the notebooks' twins anew

It stands in _config.yml. The citation, the package, the README, pages and notebooks follow.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import yaml

import notebooks as pipeline
from hmmbook.files import write_whole

GITHUB = "https://github.com"
PLACEHOLDER = "OWNER"
"""The owner in an address that nobody has set yet."""
ADDRESS = re.compile(rf"{re.escape(GITHUB)}/[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.\.?$)[A-Za-z0-9_.-]+")
NAME_ENDS = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9_])"
"""What may not follow a repository's name: a letter, for example, would make it another name."""
FILES = ("*.md", "*.cff", "*.toml", "book/*.md", "notebooks/*.md", "_config.yml")
"""Which files may name the address. _config.yml comes last, so that a run that was broken off can be done again."""


def checked(text: str) -> str:
    """Bring an address into its usual form.

    Raises:
        ValueError: the text is no address of a repository, or has the placeholder for its owner.
    """
    address = text.strip().removesuffix("/").removesuffix(".git")
    if not ADDRESS.fullmatch(address):
        raise ValueError(f"URL must be {GITHUB}/OWNER/NAME, where Colab finds the notebooks, not {text!r}")
    if address.startswith(f"{GITHUB}/{PLACEHOLDER}/"):
        raise ValueError(f"URL must have your own name in place of {PLACEHOLDER}: {text!r}")
    return address


def present_addresses(root: Path) -> set[str]:
    """Read the addresses to be replaced: that of _config.yml, and the citation's, which may be another."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf8"))
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf8"))
    return {config["repository"]["url"], citation["repository-code"]}


def moved(text: str, old: str, new: str) -> str:
    """Lead each link to the old repository, its pages and its notebooks in viewers to the new repository."""
    _, old_owner, old_name = old.rsplit("/", 2)
    _, new_owner, new_name = new.rsplit("/", 2)
    repository = rf"(github\.com/|/github/){old_owner}/{re.escape(old_name)}{NAME_ENDS}"
    text = re.sub(repository, rf"\g<1>{new_owner}/{new_name}", text)
    pages = re.escape(f"{old_owner.lower()}.github.io/{old_name}") + NAME_ENDS
    return re.sub(pages, f"{new_owner.lower()}.github.io/{new_name}", text)


def replace_address(root: Path, new: str) -> list[str]:
    """Replace the address in every file below `root` that names it, except the twins.

    Returns:
        The files that changed.
    """
    old_addresses = present_addresses(root) - {new}
    changed = []
    for pattern in FILES:
        for path in sorted(root.glob(pattern)):
            text = path.read_text(encoding="utf8")
            new_text = text
            for old in old_addresses:
                new_text = moved(new_text, old, new)
            if new_text != text:
                write_whole(path, new_text)
                changed.append(str(path.relative_to(root)))
    return changed


def report() -> None:
    """Print the address, or in one line what is wrong with it.

    GitHub shows the line on top of a workflow's run when it begins with "::warning::".
    """
    address = pipeline.address()
    name = os.environ.get("GITHUB_REPOSITORY")
    server = os.environ.get("GITHUB_SERVER_URL", GITHUB)
    present = f"{server}/{name}"
    if address.split("/")[-2] == PLACEHOLDER:
        problem = f"the repository's address is still a placeholder, {address}, and links to it lead nowhere"
    elif name and present.lower() != address.lower():
        problem = f"this repository is {present}, but its links lead to {address}"
    else:
        print(f"the repository's address: {address}")
        return
    if name:
        print(f"::warning::{problem}; set it with: make address URL={present}")
    else:
        print(f"{problem}; set it with: make address URL={GITHUB}/YOU/NAME")


def main(arguments: list[str]) -> None:
    if not arguments:
        report()
        return
    try:
        new = checked(" ".join(arguments))
    except ValueError as error:
        sys.exit(f"address.py: {error}")
    changed = replace_address(pipeline.ROOT, new)
    if changed:
        print(f"{new} now stands in")
        print("\n".join(changed))
    else:
        print(f"{new} stood in every file already")
    pipeline.write_twins()
    tag = pipeline.tag()
    print(f"Commit this. In Colab the notebooks install the tag {tag}: git push origin {tag}")
    print(f"Where this repository does not have the tag yet, git tag {tag} makes it.")


if __name__ == "__main__":
    main(sys.argv[1:])
