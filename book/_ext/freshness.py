"""Which pages are read and written again: by what they are made of, not by files' times, and all where a build broke off.

Sphinx asks whether a file is newer than the page. After a clock was set back, or an older file was restored, it is not.
And it takes for written what it had only read when it was killed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def contents(env, docname: str) -> str:
    """One hash of a page's source and of all else that it is made of."""
    hashed = hashlib.sha256()
    for name in (env.doc2path(docname), *sorted(env.dependencies.get(docname, ()))):
        file = Path(env.srcdir, name)
        hashed.update(file.read_bytes() if file.is_file() else b"missing")
    return hashed.hexdigest()


def unfinished(app) -> Path:
    """What lies here while a build runs, and after one that did not end."""
    return Path(app.doctreedir, "unfinished")


def outdated(app, env, added, changed, removed) -> set[str]:
    """The pages whose contents have changed; all after a build that did not end."""
    mark, seen = unfinished(app), getattr(env, "companion_contents", {})
    broke_off = mark.exists()
    mark.touch()
    return {name for name in env.found_docs if broke_off or seen.get(name) != contents(env, name)}


def note_contents(app, env) -> None:
    env.companion_contents = {name: contents(env, name) for name in env.found_docs}


def finished(app, exception) -> None:
    if exception is None:
        unfinished(app).unlink(missing_ok=True)


def setup(app):
    app.connect("env-get-outdated", outdated)
    app.connect("env-updated", note_contents)
    app.connect("build-finished", finished, priority=999)  # when all else has been written
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
