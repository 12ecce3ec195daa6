"""Does every notebook run where Colab would open it: alone, in an empty folder, with only Colab's own packages?

python book/colab.py [NAME ...] [--preset smoke|quick]

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
import yaml

import notebooks as pipeline

COLAB = ("ipykernel", "torch", "numpy", "matplotlib", "pandas")
"""What the notebooks may take for granted, in the lock's versions where it has one."""
LIMIT = 1800
"""The most seconds that one cell may take."""
FOREIGN = re.compile("PYTHON|GIT_|CONDA_|VIRTUAL_ENV$|JPY_|MPLBACKEND$|PIP_(TARGET|PREFIX|USER|NO_DEPS)$")
"""Variables that a reader in Colab does not have, and that would change what Python, git or pip do."""


def call(*command: str | Path, **options) -> None:
    """Run a command; RuntimeError with the last lines of its output where it fails."""
    done = subprocess.run(command, encoding="utf8", capture_output=True, check=False, env=colab_variables(), **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{last_lines(done.stdout + done.stderr)}")


def last_lines(text: str) -> str:
    """Take the last twelve lines that are not empty, without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = list(filter(str.strip, text.splitlines()))
    return "\n".join(lines[-12:])


def colab_variables() -> dict[str, str]:
    """Copy this process's environment variables, without those that a reader in Colab does not have."""
    variables = {}
    for name, value in os.environ.items():
        if not FOREIGN.match(name):
            variables[name] = value
    return variables


# Environments


def site_packages(environment: Path) -> Path:
    """Give the folder where an environment of this Python keeps its packages."""
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def make_base(base: Path) -> None:
    """Make an environment with what Colab has, and nothing else. One that was made from the same list is kept."""
    pinned = {}
    for word in (pipeline.ROOT / "requirements.lock").read_text(encoding="utf8").split():
        package, equals, _ = word.partition("==")
        if equals:
            pinned[package] = word
    requirements = [pinned.get(package, package) for package in COLAB]
    record = base / "made-from.txt"
    text = "\n".join([sys.version, *requirements])
    if not record.is_file() or record.read_text(encoding="utf8") != text:
        venv.create(base, clear=True, with_pip=True)
        call(base / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements)
        record.write_text(text, encoding="utf8")


def make_layer(layer: Path, base: Path) -> Path:
    """Make an empty environment that sees the base's packages, pip among them, and give its Python."""
    venv.create(layer, clear=True, symlinks=True)
    (site_packages(layer) / "base.pth").write_text(f"{site_packages(base)}\n", encoding="utf8")
    return layer / "bin" / "python"


def installed(environment: Path) -> dict[str, str]:
    """List the packages in an environment's own folder: their versions by their names."""
    versions = {}
    for distribution in distributions(path=[str(site_packages(environment))]):
        name = distribution.name.lower().replace("_", "-")
        versions[name] = distribution.version
    return dict(sorted(versions.items()))


def copy_tree(repository: Path) -> None:
    """Make a repository whose one commit is the tree at hand: every file that git does not ignore, as it is on disk.

    It is a git directory alone, without the files; the project's own repository is not touched.
    """
    shutil.rmtree(repository, ignore_errors=True)
    git = ("git", "--git-dir", repository, "--work-tree", pipeline.ROOT)
    author = ("-c", "user.name=colab", "-c", "user.email=colab@localhost", "-c", "commit.gpgSign=false")
    call(*git, "init", "--quiet", "--template=", cwd=pipeline.ROOT)
    call(*git, "add", "--all", cwd=pipeline.ROOT)
    call(*git, *author, "commit", "--quiet", "--message", "the tree at hand", cwd=pipeline.ROOT)
    call(*git, "tag", pipeline.tag(), cwd=pipeline.ROOT)


# Runs


def run(notebook: nbformat.NotebookNode, python: Path, folder: Path, variables: dict[str, str]) -> str:
    """Run all cells in place, in a folder and in a kernel of that Python. Says why they stopped, or ""."""
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpecManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    spec = python.parent.parent / "kernels" / "colab"
    spec.mkdir(parents=True)
    # Without the last word a kernel begins with a warning of local sockets.
    start = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=CRITICAL"]
    kernel = {"argv": start, "display_name": "colab", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(kernel), encoding="utf8")
    specs = KernelSpecManager(kernel_dirs=[str(spec.parent)])
    manager = AsyncKernelManager(kernel_name="colab", kernel_spec_manager=specs)
    client = NotebookClient(notebook, manager, timeout=LIMIT, resources={"metadata": {"path": str(folder)}})
    try:
        client.execute(cleanup_kc=True, env=variables)
    except CellExecutionError as error:
        return last_lines(str(error))
    except (CellTimeoutError, RuntimeError) as error:
        # A cell took longer than the limit, or the kernel died or did not start.
        return last_lines("".join(format_exception_only(error)))
    return ""


def check(path: Path, folder: Path, values: dict | None = None) -> tuple[dict[str, str], str]:
    """Run one notebook as Colab would, with these values of parameters, in a new layer over `folder / "base"`.

    Git takes `folder / "repository.git"` for the project's address. The layer is kept only where something is wrong.
    Gives the versions of the packages that the notebook has installed, and what is wrong, or "".
    """
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    results = folder / "notebooks" / path.stem
    shutil.rmtree(results, ignore_errors=True)
    layer = results / "layer"
    empty = results / "empty"
    empty.mkdir(parents=True)
    python = make_layer(layer, folder / "base")
    variables = colab_variables() | {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(layer),
        "IPYTHONDIR": str(folder / "ipython"),  # The reader's own settings are not Colab's.
        "PYTHONNOUSERSITE": "1",
        "PIP_COMPILE": "0",  # It halves the time, because only what is imported is compiled then.
        "GIT_CEILING_DIRECTORIES": str(folder),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{folder / 'repository.git'}.insteadOf",
        "GIT_CONFIG_VALUE_0": pipeline.address(),
    }
    notebook = load_notebook_node(str(shutil.copy(path, empty)))
    if values:
        notebook = parameterize_notebook(notebook, values)
    reason = run(notebook, python, empty, variables)
    nbformat.write(notebook, results / path.name)
    packages = installed(layer)
    problem = judge(notebook, reason, layer, packages)
    if not problem:
        shutil.rmtree(layer)
    return packages, problem


def printed(cell: nbformat.NotebookNode) -> str:
    """Join what a cell has printed."""
    text = ""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            text += output.text
    return text


def comes_by_git(layer: Path) -> bool:
    """Tell whether git fetched the hmmlib that is installed in a layer."""
    for record in site_packages(layer).glob("hmmlib-*.dist-info/direct_url.json"):
        if "vcs_info" in record.read_text(encoding="utf8"):
            return True
    return False


def judge(notebook: nbformat.NotebookNode, reason: str, layer: Path, packages: dict[str, str]) -> str:
    """Say what is wrong with a notebook's run, and with the packages that it has installed in its layer; else ""."""
    code = list(filter(pipeline.is_code, notebook.cells))
    problems = []
    if reason:
        last = code[0]
        for cell in code:
            if cell.execution_count:
                last = cell
        problems.append(f"stopped in this cell:\n{last.source}\n{reason}")
    if "hmmlib" not in packages:
        problems.append(f"no hmmlib was installed; its first code cell printed:\n{last_lines(printed(code[0]))}")
    elif not comes_by_git(layer):
        problems.append("hmmlib was not installed by git")
    repeated = sorted(packages.keys() & set(COLAB))
    if repeated:
        problems.append(f"installed although Colab has it: {', '.join(repeated)}")
    return "\n".join(problems)


def arguments() -> tuple[list[str], dict | None]:
    """Read the command line: the notebooks' names, and the values of parameters to set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as 2-setting; all notebooks by default")
    parser.add_argument("--preset", choices=["smoke", "quick"], help="by default each notebook's own parameters")
    options = parser.parse_args()
    twins = sorted((pipeline.ROOT / "notebooks").glob("*.ipynb"))
    names = [path.stem for path in twins]
    for name in options.names:
        if name not in names:
            parser.error(f"no such notebook: {name}; choose from {', '.join(names)}")
    values = None
    if options.preset:
        preset = pipeline.ROOT / "parameters" / f"{options.preset}.yaml"
        values = yaml.safe_load(preset.read_text(encoding="utf8"))
    return options.names or names, values


def main() -> None:
    names, values = arguments()
    folder = pipeline.ROOT / "build" / "colab"
    print(f"making an environment with {', '.join(COLAB)} alone", flush=True)
    make_base(folder / "base")
    copy_tree(folder / "repository.git")
    failures = 0
    for name in names:
        start = time.perf_counter()
        packages, problem = check(pipeline.ROOT / "notebooks" / f"{name}.ipynb", folder, values)
        seconds = time.perf_counter() - start
        versions = [f"{package} {version}" for package, version in packages.items()]
        print(f"{name}: {'FAILED' if problem else 'ran'} in {seconds:.1f} s")
        print(f"  installed: {', '.join(versions) or 'nothing'}", flush=True)
        if problem:
            failures += 1
            print(problem, flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
