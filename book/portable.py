"""The book's Markdown in words that any notebook viewer shows: what Colab and Jupyter open has no MyST in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parent.parent
BIBLIOGRAPHY = ROOT / "book" / "references.bib"
KINDS = {
    "thm": "Theorem",
    "lem": "Lemma",
    "prop": "Proposition",
    "asm": "Assumption",
    "claim": "Claim",
    "cor": "Corollary",
    "ex": "Example",
}
FENCE = re.compile(r"^(?P<colons>:{3,})(?:\{(?P<name>[\w:-]+)\} ?(?P<title>.*))?$")


def number(label: str) -> str:
    """Of paper-thm-3-3: 3.3."""
    return ".".join(label.split("-")[2:]).upper()


def name(label: str) -> str:
    """Of paper-thm-3-3: Theorem 3.3."""
    return f"{KINDS[label.split('-')[1]]} {number(label)}"


@cache
def citations() -> dict[str, tuple[str, str]]:
    """Authors and year of each work, as the book's pages have them."""
    found = {}
    for key, entry in parse_file(str(BIBLIOGRAPHY)).entries.items():
        people = [str(person.last_names[-1]).strip("{}") for person in entry.persons["author"]]
        who = " and ".join(people) if len(people) < 3 else f"{people[0]} et al."
        found[key] = who, entry.fields["year"]
    return found


@cache
def macros() -> dict[str, str]:
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    return config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]


def box(directive: str, title: str, lines: list[str]) -> list[str]:
    """A directive's body without it: statements become quotations, proofs paragraphs, dropdowns details."""
    labels = [line.split()[1] for line in lines if line.startswith(":label:")]
    body = "\n".join(line for line in lines if not line.startswith(":")).strip()
    if directive == "dropdown":
        return ["<details>", f"<summary>{title}</summary>", "", body, "", "</details>"]
    if directive == "prf:proof":
        return [f"**Proof.** {body} ∎"]
    heading = f"**{name(labels[0]) if labels else directive.split(':')[-1].title()}**"
    heading += f" ({title})." if title else "."
    return [f"> {line}".rstrip() for line in f"{heading}\n\n{body}".split("\n")]


def without_boxes(text: str) -> str:
    open_boxes: list[tuple[str, str, str, list[str]]] = []
    lines: list[str] = []
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if fence and fence["name"]:
            open_boxes.append((fence["colons"], fence["name"], fence["title"], lines))
            lines = []
        elif fence and open_boxes and fence["colons"] == open_boxes[-1][0]:
            _, directive, title, outer = open_boxes.pop()
            lines = [*outer, *box(directive, title, lines)]
        else:
            lines.append(line)
    if open_boxes:
        raise ValueError(f"a box is not closed: {open_boxes[-1][1]} {open_boxes[-1][2]}")
    return "\n".join(lines)


ROLES = {
    "prf:ref": name,
    "eq": lambda label: f"({number(label)})",
    "cite": lambda keys: f"({'; '.join(', '.join(citations()[key.strip()]) for key in keys.split(','))})",
    "cite:t": lambda key: "{} ({})".format(*citations()[key]),
    "term": lambda term: re.sub(r" *<[^>]*>$", "", term),
}


def role(found: re.Match) -> str:
    if found[1] not in ROLES or (found[1] != "term" and "<" in found[2]):
        raise ValueError(f"{found[0]}: a notebook can use the roles {', '.join(ROLES)}; else a Markdown link")
    return ROLES[found[1]](found[2])


def plain(text: str, address: str, branch: str) -> str:
    """One Markdown cell without boxes, roles, labels, macros of the book's own, and links that need the book."""
    if found := re.search(r"^ *(?:```+|~~~+)\{[^}]*\}|^\([\w-]+\)=$", text, re.MULTILINE):
        raise ValueError(f"{found[0]}: a notebook can use boxes with colons only, and no targets")
    text = re.sub(r"\{([a-z:]+)\}`([^`]+)`", role, without_boxes(text))
    text = re.sub(r"\n?\$\$ \(((?:paper|ours)-eq-[\w-]+)\)", lambda label: f"\n\\tag{{{number(label[1])}}}\n$$", text)
    for macro, meaning in macros().items():
        text = re.sub(rf"\\{macro}(?![A-Za-z])", lambda _, meaning=meaning: meaning, text)
    colab = address.replace("https://github.com", "https://colab.research.google.com/github")
    text = re.sub(r"\]\(([\w.-]+\.ipynb)", rf"]({colab}/blob/{branch}/notebooks/\1", text)
    return re.sub(r"\]\(\.\./book/", f"]({address}/blob/{branch}/book/", text)
