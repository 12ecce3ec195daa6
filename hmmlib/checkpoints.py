"""Checkpoints: tensors and a few words, in one safetensors file, written whole or not at all; the last but one is kept."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


def previous(path: Path) -> Path:
    """Where the checkpoint before the one at `path` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, str]) -> None:
    """Write a checkpoint under a temporary name and rename it. OSError, naming the file, where that fails; the old stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        save_file(
            {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}, temporary, facts
        )
        if path.exists():
            os.replace(path, previous(path))
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise OSError(f"no checkpoint could be written to {path}: {error}") from error


def load(path: Path, identity: dict[str, str]) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """Tensors and facts of the newest whole checkpoint at `path`; None if there is none. A broken one gives a warning.

    ValueError where the facts do not begin as `identity` says: it is the checkpoint of another run.
    """
    for candidate in (path, previous(path)):
        if not candidate.exists():
            continue
        try:
            with safe_open(candidate, framework="pt") as file:
                facts = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            warnings.warn(f"{candidate} is no whole checkpoint and is passed over: {error}", stacklevel=2)
            continue
        for name, value in identity.items():
            if facts.get(name) != value:
                raise ValueError(
                    f"{candidate} is the checkpoint of another run: its {name} is {facts.get(name)}, not {value}"
                )
        return tensors, facts
    return None


def remove(path: Path) -> None:
    """Delete the checkpoints at `path`, if any."""
    for candidate in (path, previous(path)):
        candidate.unlink(missing_ok=True)
