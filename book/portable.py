"""The book's Markdown in the form that any notebook viewer shows, because Colab and Jupyter know no MyST."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
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
"""What the second part of a statement's label, such as paper-thm-3-3, stands for."""
FENCE = re.compile(r"^(?P<colons>:{3,})(?:\{(?P<name>[\w:-]+)\} ?(?P<title>.*))?$")
"""The line that opens or closes a box."""
NOT_PORTABLE = re.compile(r"^ *(?:```+|~~~+)\{[^}]*\}|^\([\w-]+\)=$", re.MULTILINE)
"""A box with backticks, or a target."""
ROLE = re.compile(r"\{(?P<name>[a-z:]+)\}`(?P<content>[^`]+)`")
EQUATION_LABEL = re.compile(r"\n?\$\$ \(((?:paper|ours)-eq-[\w-]+)\)")


def number(label: str) -> str:
    """Read the number in a label: of paper-thm-3-3, "3.3"."""
    return ".".join(label.split("-")[2:]).upper()


def name(label: str) -> str:
    """Read a statement's name in its label: of paper-thm-3-3, "Theorem 3.3"."""
    kind = label.split("-")[1]
    return f"{KINDS[kind]} {number(label)}"


@cache
def citations() -> dict[str, tuple[str, str]]:
    """Give the authors and the year of each work by its key, written as on the book's pages."""
    works = {}
    for key, entry in parse_file(str(BIBLIOGRAPHY)).entries.items():
        last_names = []
        for person in entry.persons["author"]:
            last_names.append(str(person.last_names[-1]).strip("{}"))
        authors = " and ".join(last_names)
        if len(last_names) > 2:
            authors = f"{last_names[0]} et al."
        works[key] = (authors, entry.fields["year"])
    return works


@cache
def macros() -> dict[str, str]:
    """Give the meaning of each TeX macro of the book's own."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))
    return config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]


# Boxes


@dataclass
class Box:
    """A box that is open while the lines of a cell are read."""

    colons: str
    """The colons that open it. The same colons close it."""
    directive: str
    """Its kind, such as dropdown or prf:theorem."""
    title: str
    outer_lines: list[str]
    """The finished lines in front of it."""


def plain_box(directive: str, title: str, lines: list[str]) -> list[str]:
    """Write a box in plain Markdown: a statement as a quotation, a proof as a paragraph, a dropdown as details."""
    labels = []
    content = []
    for line in lines:
        if line.startswith(":label:"):
            labels.append(line.split()[1])
        if not line.startswith(":"):
            content.append(line)
    body = "\n".join(content).strip()
    if directive == "dropdown":
        return ["<details>", f"<summary>{title}</summary>", "", body, "", "</details>"]
    if directive == "prf:proof":
        return [f"**Proof.** {body} ∎"]
    heading = name(labels[0]) if labels else directive.split(":")[-1].title()
    heading = f"**{heading}** ({title})." if title else f"**{heading}**."
    quotation = []
    for line in f"{heading}\n\n{body}".split("\n"):
        quotation.append(f"> {line}".rstrip())
    return quotation


def without_boxes(text: str) -> str:
    """Write every box of a cell in plain Markdown, those inside of others too.

    Raises:
        ValueError: a box is not closed.
    """
    open_boxes: list[Box] = []
    lines: list[str] = []
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if fence and fence["name"]:
            open_boxes.append(Box(fence["colons"], fence["name"], fence["title"], lines))
            lines = []
        elif fence and open_boxes and fence["colons"] == open_boxes[-1].colons:
            box = open_boxes.pop()
            lines = box.outer_lines + plain_box(box.directive, box.title, lines)
        else:
            lines.append(line)
    if open_boxes:
        raise ValueError(f"a box is not closed: {open_boxes[-1].directive} {open_boxes[-1].title}")
    return "\n".join(lines)


# Roles


def in_brackets(keys: str) -> str:
    """Cite works as "(Wei et al., 2021; Saunshi et al., 2021)"."""
    works = []
    for key in keys.split(","):
        works.append(", ".join(citations()[key.strip()]))
    return f"({'; '.join(works)})"


def in_text(key: str) -> str:
    """Cite a work as "Wei et al. (2021)"."""
    authors, year = citations()[key]
    return f"{authors} ({year})"


def equation(label: str) -> str:
    """Refer to an equation by its number."""
    return f"({number(label)})"


def term(text: str) -> str:
    """Write a term of the glossary, without the entry that it leads to."""
    return re.sub(r" *<[^>]*>$", "", text)


ROLES: dict[str, Callable[[str], str]] = {
    "prf:ref": name,
    "eq": equation,
    "cite": in_brackets,
    "cite:t": in_text,
    "term": term,
}


def plain_role(role: re.Match) -> str:
    """Write a role in plain Markdown. ValueError for a role that a notebook cannot use."""
    known = role["name"] in ROLES
    has_own_text = role["name"] != "term" and "<" in role["content"]
    if not known or has_own_text:
        raise ValueError(f"{role[0]}: a notebook can use the roles {', '.join(ROLES)}; else a Markdown link")
    return ROLES[role["name"]](role["content"])


# Cells


def with_tag(equation_end: re.Match) -> str:
    """End a displayed equation with the number in its label."""
    return f"\n\\tag{{{number(equation_end[1])}}}\n$$"


def plain(text: str, address: str, branch: str) -> str:
    """Write one Markdown cell without boxes, roles, labels, the book's TeX macros, and links that need the book.

    Args:
        text: the cell in MyST.
        address: the repository's address, to which links lead.
        branch: its branch.

    Returns:
        The cell in plain Markdown.

    Raises:
        ValueError: the cell has something that a notebook cannot show. The message has it, and what can be used.
    """
    obstacle = NOT_PORTABLE.search(text)
    if obstacle:
        raise ValueError(f"{obstacle[0]}: a notebook can use boxes with colons only, and no targets")
    text = ROLE.sub(plain_role, without_boxes(text))
    text = EQUATION_LABEL.sub(with_tag, text)
    for macro, meaning in macros().items():
        # In what takes the place of a match, a backslash has to be doubled.
        text = re.sub(rf"\\{macro}(?![A-Za-z])", meaning.replace("\\", r"\\"), text)
    colab = address.replace("https://github.com", "https://colab.research.google.com/github")
    text = re.sub(r"\]\(([\w.-]+\.ipynb)", rf"]({colab}/blob/{branch}/notebooks/\1", text)
    return re.sub(r"\]\(\.\./book/", f"]({address}/blob/{branch}/book/", text)
