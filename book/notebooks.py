"""From text notebooks to committed twins, and from twins to executed copies.

python book/notebooks.py twins              write notebooks/NAME.ipynb from every notebooks/NAME.md
python book/notebooks.py twins --check      exit 1 where a twin has drifted from its source
python book/notebooks.py copies             write a copy of every twin to work in to mine/notebooks, where there is none
python book/notebooks.py execute [PRESET]   run what has changed, or what it depends on: twins, and the ledger's checks
python book/notebooks.py run NAME FILE      run one notebook with the parameters in a YAML file, into mine/NAME.ipynb
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path

import jupytext
import nbformat
import side_by_side
import yaml
from inputs import code_of, digest, module_file, reached, read_parameters
from portable import plain

import hmmlib
from hmmlib.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
EXECUTED = ROOT / "build" / "executed" / "notebooks"
INJECTED = "injected-parameters"
BOOTSTRAP = """\
# Where hmmlib is missing, as in Colab, install it. Threads of torch, imported later, shall not spin beside other work.
import importlib.util
import os

os.environ.setdefault("GOMP_SPINCOUNT", "1000")
if importlib.util.find_spec("hmmlib") is None:
    %pip install -q "hmmlib @ git+{address}@{tag}"
    importlib.invalidate_caches()
    if importlib.util.find_spec("hmmlib") is None:
        raise SystemExit("hmmlib was not installed: is there a repository {address} with the tag {tag}?")
"""


def sources() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*.md"))


def repository() -> dict[str, str]:
    """The repository's address and branch, from the one place where they stand."""
    return yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]


def address() -> str:
    return repository()["url"]


def tag() -> str:
    """The tag of the version at hand, which a notebook installs: a later one may have other names."""
    return f"v{hmmlib.__version__}"


# Twins


def bootstrap() -> str:
    """The first code cell of every twin."""
    return BOOTSTRAP.format(address=address(), tag=tag())


def twin(source: Path) -> str:
    """The notebook that a text notebook stands for, as JSON: the same text for the same source, always.

    Its text is plain Markdown, for Colab and Jupyter; the book's pages have the source's own.
    """
    notebook, home = jupytext.read(source), repository()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, home["url"], home["branch"])
    first_code = next(k for k, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    notebook.cells.insert(first_code, nbformat.v4.new_code_cell(bootstrap(), metadata={"tags": ["remove-cell"]}))
    for k, cell in enumerate(notebook.cells):
        cell.id = cell_id(notebook.cells, k)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def cell_id(cells: list[dict], k: int) -> str:
    """The id of a twin's k-th cell: a hash of its place, kind and text, and of there being none after it."""
    text = "".join(cells[k]["source"])  # which a file has in lines
    words = f"{k} {cells[k]['cell_type']} {text}{' the last' if k == len(cells) - 1 else ''}"
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def is_edited(twin: Path) -> bool:
    """Whether a twin's cells have another text, order or outputs than it was written with, whatever its source is now.

    Its cells' ids show it, which no editor changes. To open and save it is no edit; to run it is one, for its outputs.
    What is no whole notebook counts as edited.
    """
    try:
        cells = json.loads(twin.read_text(encoding="utf8"))["cells"]
        as_written = [cell["id"] == cell_id(cells, k) and not cell.get("outputs") for k, cell in enumerate(cells)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return True
    return not as_written or not all(as_written)


def save_edits(path: Path) -> Path:
    """Copy a file into mine/edited under a name with the time in it. OSError where that fails, without half a copy."""
    copy = ROOT / "mine" / "edited" / f"{path.stem}-{datetime.now():%Y-%m-%d-%H%M%S-%f}{path.suffix}"
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        return Path(shutil.copy2(path, copy))
    except OSError:
        copy.unlink(missing_ok=True)
        raise


def write_twins(check: bool) -> int:
    """Write every twin, or with `check` only name those that have drifted. Returns the number that have.

    Where a reader has edited one, what there was is copied to mine/edited.
    """
    drifted = 0
    for source in sources():
        path, text = source.with_suffix(".ipynb"), twin(source)
        if path.is_file() and path.read_bytes() == text.encode():
            continue
        drifted += 1
        name, edited = path.relative_to(ROOT), path.is_file() and is_edited(path)
        if check:
            kept = ", which keeps its edits in mine/edited" * edited
            print(f"{name} is not what {source.name} gives: run `make notebooks`{kept}", file=sys.stderr)
            continue
        kept = f" anew; as you had edited it, it is kept in {save_edits(path).relative_to(ROOT)}" if edited else ""
        write_whole(path, text)
        print(f"wrote {name}{kept}")
    return drifted


def write_copies() -> None:
    """Write a copy of every twin to work in, with a text notebook that Jupytext keeps like it.

    Where there is one of the two, nothing is written: that is the reader's.
    """
    folder, made = ROOT / "mine" / "notebooks", 0
    for source in sources():
        path = folder / f"{source.stem}.ipynb"
        if path.exists() or path.with_suffix(".md").exists():
            continue
        notebook, made = nbformat.reads(twin(source), 4), made + 1
        notebook.metadata["jupytext"] = {"formats": "ipynb,md:myst"}
        for cell in notebook.cells:
            cell.source = cell.source.strip("\n")  # as the text has it, so that the two are alike from the beginning
        write_whole(path, nbformat.writes(notebook) + "\n")
        # last: to Jupytext, what is newer is what counts
        write_whole(path.with_suffix(".md"), jupytext.writes(notebook, fmt="md:myst"))
    rest = len(sources()) - made
    stay = f"; those that were there stay as they are: {rest}" * (rest > 0)
    print(f"notebooks copied to mine/notebooks: {made}{stay}")


# Runs


def key(path: Path, parameters: Path) -> str:
    """What the outputs of a notebook depend on, as one hash. Its text is not among it.

    Its code cells, parameters, the library as far as it imports it, the lock, and stored results if it can read them.
    """
    notebook = nbformat.read(path, 4)
    cells = [[c.source, c.metadata.get("tags", [])] for c in notebook.cells if c.cell_type == "code"]
    files = [parameters, ROOT / "requirements.lock", *reached(ROOT, code_of(notebook))]
    if module_file(ROOT, "hmmlib.experiments.store") in files:
        files += sorted((ROOT / "results").rglob("*.json"))
    return digest(ROOT, json.dumps(cells), files)


def quiet_kernels() -> None:
    """Give the kernels an IPython folder of their own: no reader's settings, and no warnings about local sockets."""
    profile = ROOT / "build" / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("ipython_kernel_config.json"), profile)
    os.environ["IPYTHONDIR"] = str(profile.parent)


def page(path: Path, run: nbformat.NotebookNode, made_of: str) -> nbformat.NotebookNode:
    """The notebook that a page shows: text and tags as the sources have them now, the outputs of a run.

    Its text is in MyST, boxes and references included. `made_of` is the key of the run.
    """
    texts = [cell.source for cell in jupytext.read(path.with_suffix(".md")).cells if cell.cell_type == "markdown"]
    ran = [cell for cell in run.cells if cell.cell_type == "code"]
    cells = []
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "markdown":
            cell.source = texts.pop(0)
        else:
            done = ran.pop(0)
            cell.outputs, cell.execution_count = done.outputs, done.execution_count
        cells.append(cell)
        if ran and INJECTED in ran[0].metadata.get("tags", []):
            cells.append(ran.pop(0))
            cells[-1].metadata.tags = [INJECTED, "remove-cell"]  # the page shows the notebook's own parameters
    shown = nbformat.v4.new_notebook(cells=cells, metadata=run.metadata)
    shown.metadata["companion_key"] = made_of
    return shown


def write(notebook: nbformat.NotebookNode, copy: Path) -> None:
    """Write an executed copy, whole or not at all; it is left as it is where nothing has changed."""
    text = nbformat.writes(notebook)
    if not copy.is_file() or copy.read_text(encoding="utf8") != text:
        write_whole(copy, text)


def up_to_date(path: Path, parameters: Path) -> bool:
    """Whether there is a run of just this code, whatever its page says: then it gets the text that stands there now."""
    copy, wanted = EXECUTED / path.name, key(path, parameters)
    try:
        run = nbformat.read(copy, 4)
    except (FileNotFoundError, ValueError):  # a copy that a machine's crash or a full disk has cut short is none
        return False
    if run.metadata.get("companion_key") != wanted:
        return False
    write(page(path, run, wanted), copy)
    return True


def through_papermill(path: Path, values: dict, out: Path, progress: bool = False) -> nbformat.NotebookNode:
    """Run a notebook; the run, which lands in a file as far as it comes.

    SystemExit, which names the notebook and the reason, where a cell fails or the kernel dies.
    """
    import papermill

    how = dict(kernel_name="python3", progress_bar=progress, cwd=ROOT / "notebooks")
    how["coalesce_streams"] = True  # where a busy kernel sends a line in two parts, pages would show two lines
    call = partial(papermill.execute_notebook, path, out, values, **how)
    try:
        try:
            return call()
        except RuntimeError as error:
            if not any(words in str(error) for words in ("before replying", "didn't respond")):
                raise
            return call()  # a port that was chosen for the kernel may be another's by now
    except (papermill.PapermillExecutionError, RuntimeError) as error:  # the second where the kernel dies
        sys.exit(f"{path.name}: {error}\nhow far it came is in {out}")


def execute(path: Path, parameters: Path) -> None:
    """Run one twin. Its copy lands in EXECUTED only when every cell has passed.

    SystemExit, which names the notebook and the reason, where one has not, or a disk is full.
    """
    wanted, copy = key(path, parameters), EXECUTED / path.name
    failed = copy.with_suffix(".failed.ipynb")
    EXECUTED.mkdir(parents=True, exist_ok=True)
    copy.unlink(missing_ok=True)
    try:
        run = through_papermill(path, read_parameters(parameters), failed)
        write(page(path, run, wanted), copy)
    except OSError as error:
        failed.unlink(missing_ok=True)
        sys.exit(f"{path.name} could not be executed into {EXECUTED}: {error}")
    failed.unlink()


def ledger_key() -> str:
    """What the ledger depends on, as one hash: what checks the statements, and what writes them down."""
    files = {*reached(ROOT, "import companion.__main__, companion.pages"), ROOT / "requirements.lock"}
    return digest(ROOT, "ledger", sorted(files))


def check_ledger(workers: int) -> None:
    """Check all statements and write the ledger; what it was made of is noted only if every verdict is as recorded."""
    ledger, done_for, wanted = ROOT / "build" / "ledger.json", ROOT / "build" / "ledger.key", ledger_key()
    done_for.unlink(missing_ok=True)
    command = [sys.executable, "-m", "companion", "ledger", "--out", str(ledger), "--workers", str(workers)]
    if code := subprocess.run(command, cwd=ROOT).returncode:
        sys.exit(code)
    write_whole(done_for, digest(ROOT, wanted, [ledger]))


def ledger_up_to_date() -> bool:
    """Whether it is the book's own, whole and untouched: `hmmlib ledger` may have written another in its place."""
    ledger, done_for = ROOT / "build" / "ledger.json", ROOT / "build" / "ledger.key"
    return ledger.is_file() and done_for.is_file() and done_for.read_text() == digest(ROOT, ledger_key(), [ledger])


def jobs_to_do(parameters: Path, slots: int) -> list[side_by_side.Job]:
    """The ledger and the notebooks that are not up to date, the longest first: those that can train a network."""
    jobs, half = [], max(1, slots // 2)
    if ledger_up_to_date():
        print("  ledger: unchanged")
    else:
        workers = max(half, side_by_side.cores() // slots)
        jobs.append(side_by_side.Job("ledger", partial(check_ledger, workers), half))
    trains, others = [], []
    for path in (source.with_suffix(".ipynb") for source in sources()):
        if up_to_date(path, parameters):
            print(f"  {path.stem}: unchanged")
        else:
            files = reached(ROOT, code_of(nbformat.read(path, 4)))
            kind = trains if module_file(ROOT, "hmmlib.training.pretraining") in files else others
            kind.append(side_by_side.Job(path.stem, partial(execute, path, parameters)))
    return jobs + trains + others


def build(preset: str, slots: int) -> None:
    """Execute what is not up to date. SystemExit with the names of what failed, ValueError for wrong arguments."""
    parameters = ROOT / "parameters" / f"{preset}.yaml"
    read_parameters(parameters, [source.with_suffix(".ipynb") for source in sources()])
    if slots < 1:
        raise ValueError(f"--jobs must be at least 1, not {slots}")
    print(f"executing notebooks ({preset}), {slots} at a time", flush=True)
    quiet_kernels()
    os.environ.setdefault("HMMLIB_MINE", str(ROOT / "build" / "results"))  # the book has no results of its user
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, side_by_side.cores() // slots)))
    if failed := side_by_side.run(jobs_to_do(parameters, slots), slots):
        sys.exit(f"failed: {', '.join(failed)}")


def run(name: str, parameters: Path, out: Path) -> None:
    """Run one notebook. Its run lands in `out` only when every cell has passed; SystemExit where one has not."""
    if out.suffix != ".ipynb" or out.is_dir():
        raise ValueError(f"--out must be a file *.ipynb, not {out}")
    notebook, failed = ROOT / "notebooks" / f"{name}.ipynb", out.with_suffix(".failed.ipynb")
    values = read_parameters(parameters, [notebook])
    out.parent.mkdir(parents=True, exist_ok=True)
    quiet_kernels()
    through_papermill(notebook, values, failed, progress=True)
    failed.replace(out)
    print(f"wrote {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("twins").add_argument("--check", action="store_true")
    commands.add_parser("copies")
    execution = commands.add_parser("execute")
    presets = sorted(path.stem for path in (ROOT / "parameters").glob("*.yaml"))
    execution.add_argument("preset", nargs="?", default="quick", metavar="PRESET", choices=presets)
    execution.add_argument("--jobs", type=int, default=side_by_side.cores(), help="at a time; else one for each core")
    running = commands.add_parser("run")
    names = [source.stem for source in sources()]
    running.add_argument("name", metavar="NAME", choices=names, help="such as 2-setting")
    running.add_argument("parameters", metavar="FILE", type=Path, help="such as parameters/smoke.yaml")
    running.add_argument("--out", type=Path, help="where to write the run, whole or not at all; else mine/NAME.ipynb")
    given = parser.parse_args()
    try:
        if given.command == "twins":
            sys.exit(write_twins(given.check) * given.check)
        elif given.command == "copies":
            write_copies()
        elif given.command == "execute":
            build(given.preset, given.jobs)
        else:
            run(given.name, given.parameters, given.out or ROOT / "mine" / f"{given.name}.ipynb")
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; what has been executed is kept")
    except OSError as error:
        sys.exit(f"notebooks.py: {error}")


if __name__ == "__main__":
    main()
