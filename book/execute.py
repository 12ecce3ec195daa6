"""Execute the code of one page with the parameters of a preset; `make book` calls this for each page that has changed.

python book/execute.py build/code/NAME.ipynb build/executed/notebooks/NAME.ipynb parameters/PRESET.yaml

The executed copy is written when the last cell has passed. Where a cell fails, the script prints the notebook's name
with the traceback, writes nothing, and exits with code 1.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import yaml

from hmmbook.files import write_whole

# Without this, jsonschema would build parsers of web addresses, which takes a second for each notebook.
sys.modules["rfc3987_syntax"] = None
import nbformat  # noqa: E402
from papermill import PapermillExecutionError, execute_notebook  # noqa: E402

NO_START = ("Kernel died before replying", "Kernel didn't respond")
"""How the message begins where a kernel did not start. The port chosen for it may be another kernel's by now."""


def execute(code: Path, parameters: Path) -> nbformat.NotebookNode:
    """Run a notebook in the folder of the notebooks.

    Args:
        code: the notebook.
        parameters: a YAML file with a line `name: value` for each parameter to set.

    Returns:
        The executed notebook.

    Raises:
        PapermillExecutionError: a cell failed. The message has its traceback.
        RuntimeError: the kernel died.
    """
    values = yaml.safe_load(parameters.read_text(encoding="utf8"))
    settings = {
        "cwd": "notebooks",
        "progress_bar": False,
        "coalesce_streams": True,  # A line that a busy kernel sends in two parts stays one line.
        # The copy is complete, so nothing is lost. A kernel that closes by itself sometimes writes an error of ZeroMQ.
        "shutdown_kernel": "immediate",
    }
    try:
        return execute_notebook(code, None, values, **settings)
    except RuntimeError as error:
        if not str(error).startswith(NO_START):
            raise
    return execute_notebook(code, None, values, **settings)


def main() -> None:
    code, executed, parameters = map(Path, sys.argv[1:])
    start = time.perf_counter()
    try:
        run = execute(code, parameters)
    except (PapermillExecutionError, RuntimeError) as error:
        sys.exit(f"{code.name} stopped: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{code.name} was interrupted")
    write_whole(executed, nbformat.writes(run))
    print(f"  {code.stem}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
