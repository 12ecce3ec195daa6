"""Does every notebook run where Colab would open it: alone, in an empty folder, with only Colab's own packages?

python book/colab.py [NAME ...] [--preset smoke|quick] [--folder build/colab]

Each notebook gets an empty layer over an environment like Colab's. Its first cell must install hmmlib there; git takes
the repository's address for a copy of the tree at hand, whatever is committed or not. Exit code 1 where a notebook
fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from importlib.metadata import distributions
from pathlib import Path
from traceback import format_exception_only

import nbformat

import notebooks as pipeline

COLAB = ("ipykernel", "torch", "numpy", "matplotlib", "pandas")
"""What the notebooks may take for granted, in the lock's versions where it has one."""
LIMIT = 1800
"""The most seconds that one cell may take."""
FOREIGN = re.compile("PYTHON|GIT_|CONDA_|VIRTUAL_ENV$|JPY_|MPLBACKEND$|PIP_(TARGET|PREFIX|USER|NO_DEPS)$")
"""Variables that a reader in Colab does not have, and that would change what Python, git or pip do."""


def call(*command: str | Path, **options) -> None:
    """Run a command; RuntimeError with the last of its output where it fails."""
    done = subprocess.run(command, text=True, capture_output=True, check=False, env=surroundings(), **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{last_lines(done.stdout + done.stderr)}")


def last_lines(text: str, n: int = 12) -> str:
    """The last n lines that are not empty, without colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    return "\n".join([line for line in lines if line.strip()][-n:])


def surroundings(**more: str) -> dict[str, str]:
    """Environment variables for what runs in a layer: this process's own, without those that are foreign to Colab."""
    return {name: value for name, value in os.environ.items() if not FOREIGN.match(name)} | more


def site_packages(environment: Path) -> Path:
    """Where an environment of this Python keeps its packages."""
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def make_base(base: Path) -> None:
    """An environment with what Colab has, alone. One that is there is kept if it was made from the same list."""
    lock = (pipeline.ROOT / "requirements.lock").read_text().split()
    wanted = [next((line for line in lock if line.startswith(f"{name}==")), name) for name in COLAB]
    made, text = base / "made-from.txt", "\n".join([sys.version, *wanted])
    if not made.is_file() or made.read_text() != text:
        venv.create(base, clear=True, with_pip=True)
        call(base / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted)
        made.write_text(text)


def make_layer(layer: Path, base: Path) -> Path:
    """An empty environment that sees the base's packages, pip among them, and keeps what it installs; its Python."""
    venv.create(layer, clear=True, symlinks=True)
    (site_packages(layer) / "base.pth").write_text(f"{site_packages(base)}\n")
    return layer / "bin" / "python"


def installed(environment: Path) -> dict[str, str]:
    """Name and version of every distribution in an environment's own folder."""
    found = distributions(path=[str(site_packages(environment))])
    return dict(sorted((d.name.lower().replace("_", "-"), d.version) for d in found))


def copy_tree(repository: Path) -> None:
    """Make a repository whose one commit is the tree at hand: every file that git does not ignore, as it is on disk.

    It is a git directory alone, without the files; the project's own repository is not touched.
    """
    shutil.rmtree(repository, ignore_errors=True)
    own = ("-c", "user.name=colab", "-c", "user.email=colab@localhost", "-c", "commit.gpgSign=false")
    for words in (
        ("init", "--quiet", "--template="),
        ("add", "--all"),
        (*own, "commit", "--quiet", "--message", "the tree at hand"),
        ("tag", pipeline.tag()),
    ):
        call("git", "--git-dir", repository, "--work-tree", pipeline.ROOT, *words, cwd=pipeline.ROOT)


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream")


def run(notebook: nbformat.NotebookNode, python: Path, empty: Path, variables: dict[str, str]) -> str:
    """Run all cells in place, in that folder, in a kernel of that Python. Returns why it stopped, or ""."""
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpecManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    spec = python.parent.parent / "kernels" / "colab"
    spec.mkdir(parents=True)
    start = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": start, "display_name": "colab", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(spec.parent)])
    manager = AsyncKernelManager(kernel_name="colab", kernel_spec_manager=specs)
    client = NotebookClient(notebook, manager, timeout=LIMIT, resources={"metadata": {"path": str(empty)}})
    try:
        client.execute(cleanup_kc=True, env=variables)
    except CellExecutionError as error:
        return last_lines(str(error))
    except (CellTimeoutError, RuntimeError) as error:  # a cell over the limit; no kernel, or a dead one
        return last_lines("".join(format_exception_only(error)))
    return ""


def check(path: Path, folder: Path, values: dict | None = None) -> tuple[dict[str, str], str]:
    """Run one notebook as Colab would, with these values injected, in a new layer over `folder / "base"`.

    Git takes `folder / "repository.git"` for the project's address. The layer is kept only where something is wrong.
    Returns the versions of the packages that the notebook has installed, and what is wrong, or "".
    """
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    own = folder / "notebooks" / path.stem
    shutil.rmtree(own, ignore_errors=True)
    layer, empty = own / "layer", own / "empty"
    empty.mkdir(parents=True)
    python = make_layer(layer, folder / "base")
    variables = surroundings(
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        VIRTUAL_ENV=str(layer),
        PYTHONNOUSERSITE="1",
        PIP_COMPILE="0",  # half the time; what is imported is compiled then
        GIT_CEILING_DIRECTORIES=str(folder),
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0=f"url.file://{folder / 'repository.git'}.insteadOf",
        GIT_CONFIG_VALUE_0=pipeline.address(),
    )
    notebook = load_notebook_node(str(shutil.copy(path, empty)))
    notebook = parameterize_notebook(notebook, values) if values else notebook
    stopped = run(notebook, python, empty, variables)
    nbformat.write(notebook, own / path.name)
    packages = installed(layer)
    problem = judge(notebook, stopped, layer, packages)
    if not problem:
        shutil.rmtree(layer)
    return packages, problem


def judge(notebook: nbformat.NotebookNode, stopped: str, layer: Path, packages: dict[str, str]) -> str:
    """What is wrong with a notebook's run, and with what it has installed; "" where nothing is."""
    code, problems = [cell for cell in notebook.cells if cell.cell_type == "code"], []
    if stopped:
        begun = [cell for cell in code if cell.execution_count] or code[:1]
        problems.append(f"stopped in this cell:\n{begun[-1].source}\n{stopped}")
    if "hmmlib" not in packages:
        problems.append(f"no hmmlib was installed; its first code cell printed:\n{last_lines(printed(code[0]))}")
    elif not any("vcs_info" in p.read_text() for p in site_packages(layer).glob("hmmlib-*.dist-info/direct_url.json")):
        problems.append("hmmlib was not installed by git")
    if again := [name for name in COLAB if name in packages]:
        problems.append(f"installed although Colab has it: {', '.join(again)}")
    return "\n".join(problems)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = sorted(path.stem for path in (pipeline.ROOT / "notebooks").glob("*.ipynb"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as 2-setting; all notebooks by default")
    parser.add_argument("--preset", choices=["smoke", "quick"], help="by default each notebook's own parameters")
    parser.add_argument("--folder", type=Path, default=pipeline.ROOT / "build" / "colab")
    given = parser.parse_args()
    if unknown := sorted({*given.names} - {*every}):
        parser.error(f"no such notebook: {', '.join(unknown)}; choose from {', '.join(every)}")
    preset = pipeline.ROOT / "parameters" / f"{given.preset}.yaml"
    values = pipeline.read_parameters(preset) if given.preset else None
    folder = given.folder.resolve()
    mine = folder / "made-by-colab.py.txt"
    if folder.is_dir() and any(folder.iterdir()) and not mine.is_file():
        parser.error(f"{folder} holds other things, and this script deletes what it finds: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    mine.write_text("Everything in this folder is made by book/colab.py, which deletes and makes it anew.\n")
    print(f"making an environment with {', '.join(COLAB)} alone", flush=True)
    make_base(folder / "base")
    copy_tree(folder / "repository.git")
    pipeline.quiet_kernels()
    failed = False
    for name in given.names or every:
        start = time.perf_counter()
        packages, problem = check(pipeline.ROOT / "notebooks" / f"{name}.ipynb", folder, values)
        failed |= bool(problem)
        versions = ", ".join(f"{package} {version}" for package, version in packages.items())
        print(f"{name}: {'FAILED' if problem else 'ran'} in {time.perf_counter() - start:.1f} s", flush=True)
        print(f"  installed: {versions or 'nothing'}" + f"\n{problem}" * bool(problem), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
