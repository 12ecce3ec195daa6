"""Checkpoints: tensors and facts in one safetensors file, written whole or not at all; the one before is kept too."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

SEAL = "seal"
"""The name of the fact that is a digest of all the others and of the tensors."""


class CheckpointError(OSError):
    """A checkpoint could not be written; the message names the file and says why."""


def as_path(path: str | Path) -> Path:
    """A place for a checkpoint. ValueError for another kind of file, so that what lies there stays as it is."""
    path = Path(path)
    if path.suffix != ".safetensors" or path.is_dir() or path.parent.is_file():
        raise ValueError(f"checkpoint must be a file *.safetensors in a folder, not {path}")
    return path


def digest(tensors: Mapping[str, Tensor]) -> str:
    """16 hexadecimal digits of the names and contents of tensors."""
    content = hashlib.sha256()
    for name, value in tensors.items():
        content.update(name.encode())
        content.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()[:16]


def seal(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """16 hexadecimal digits of all that is in a checkpoint: facts, types, shapes and contents."""
    layouts = {name: f"{value.dtype} {tuple(value.shape)}" for name, value in tensors.items()}
    words = repr((sorted(facts.items()), sorted(layouts.items()), digest(tensors)))
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def previous(path: Path) -> Path:
    """Where the checkpoint before the one at `path` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def broken(path: Path) -> Path:
    """Where a checkpoint is put that is not whole."""
    return path.with_name(f"{path.name}.broken")


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, str]) -> None:
    """Write a checkpoint under a temporary name and rename it. CheckpointError where that fails; the old one stays."""
    path = as_path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    copies = {name: tensors[name].detach().cpu().clone().contiguous() for name in sorted(tensors)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(copies, temporary, {**facts, SEAL: seal(copies, facts)})
        if path.exists():
            os.replace(path, previous(path))
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(f"no checkpoint could be written to {path}: {error}") from error


def load(path: Path, identity: dict[str, str]) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """Tensors and facts of the newest whole checkpoint at `path`; None if there is none.

    One that is not whole is put aside with a warning, so that it never takes the place of a good one. ValueError for
    the checkpoint of another run, whose facts are not those of `identity`, and for a whole file that is none of this
    library's, such as the weights of another network: both are left as they are.
    """
    path = as_path(path)
    for candidate in filter(Path.exists, (path, previous(path))):
        try:
            with safe_open(candidate, framework="pt") as file:
                facts = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
            sealed = facts.pop(SEAL, None)
            if sealed and sealed != seal(tensors, facts):
                raise ValueError("its contents are not those that were written")
        except (SafetensorError, OSError, ValueError) as error:
            why = f"{error}; until the run is over it is kept as {broken(candidate).name}"
            warnings.warn(f"{candidate} is no whole checkpoint and is passed over: {why}", stacklevel=2)
            os.replace(candidate, broken(candidate))
            continue
        if not sealed:
            raise ValueError(f"{candidate} is no checkpoint that hmmlib has written: name another, or move it away")
        for name, value in identity.items():
            if (found := facts.get(name)) != value:
                raise ValueError(f"{candidate} is the checkpoint of another run: its {name} is {found}, not {value}")
        return tensors, facts
    return None


def facts_at(path: Path) -> dict[str, str]:
    """The facts of the checkpoint at `path`, unchecked; none where there is no readable one. For messages alone."""
    try:
        with safe_open(as_path(path), framework="pt") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError):
        return {}


def remove(path: Path) -> None:
    """Delete the checkpoints at `path`, if any."""
    path = as_path(path)
    for candidate in (path, previous(path), broken(path), broken(previous(path))):
        candidate.unlink(missing_ok=True)
