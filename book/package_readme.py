"""The README as a package index, which has none of its files, shows it: pictures and links lead to the repository.

hatchling calls this when it builds the package; it knows the repository by [project.urls] in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK_INSIDE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\[\]]*)\]\((?!https?://|#)(?P<path>[^()\s]+)\)")
"""A picture or a link whose target has no host: a path from the repository's root."""


def absolute(text: str, address: str) -> str:
    """Turn every path from the repository's root into an address on its branch main."""

    def with_host(link: re.Match) -> str:
        view = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({address}/{view}/main/{link['path']})"

    return LINK_INSIDE.sub(with_host, text)


class PackageReadme(MetadataHookInterface):
    """Give the package its readme."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf8")
        address = metadata["urls"]["Repository"]
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, address)}
