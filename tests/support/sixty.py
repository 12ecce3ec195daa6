"""Sixty mistakes in inference and theory, and what the ledger alone says to each: `make damages`.

They are of the kind that people make: an index, a transpose, a threshold, a dropped factor, two things swapped. They
stand in tests/results/damages.json. In a `file` of the library the line `old` becomes `new`, and `words` say what that
is. Each mistake is put into a copy of the library. Every statement's check and control is run there, and the verdicts
are written beside the mistake.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests" / "results" / "damages.json"
RUN = json.loads(STORED.read_text(encoding="utf8"))
CHECK_LEDGER = f"""
import json, torch
from hmmbook.evidence import ledger

torch.set_num_threads(1)
noticed = []
stopped = []
for statement in ledger.STATEMENTS:
    try:
        entry = ledger.run(statement, {RUN["instances"]}, {RUN["seed"]})
    except Exception:
        stopped.append(statement.name)
    else:
        if not entry.as_recorded:
            noticed.append(statement.name)
print(json.dumps({{"noticed": noticed, "stopped": stopped}}))
"""


def applied(mistake: dict) -> str:
    """The source of the library with a mistake in it.

    Raises:
        LookupError: its line is not there once.
    """
    source = (ROOT / "hmmlib" / mistake["file"]).read_text(encoding="utf8")
    count = source.count(mistake["old"])
    if count != 1:
        raise LookupError(f"{mistake['file']} has {count} times {mistake['old']!r}, not once")
    return source.replace(mistake["old"], mistake["new"])


def verdicts(mistake: dict | None) -> dict[str, list[str]]:
    """The statements whose verdict changes with a mistake (noticed), or whose check ends in an error (stopped)."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "hmmlib")
        # The compiled loops are copied too, with the times by which they are known to be up to date.
        shutil.copytree(ROOT / "hmmlib", library)
        if mistake:
            (library / mistake["file"]).write_text(applied(mistake), encoding="utf8")
        environment = {
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'book'}",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", CHECK_LEDGER]
        process = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, encoding="utf8", check=False
        )
    if process.returncode:
        return {"noticed": [], "stopped": [""]}
    return json.loads(process.stdout)


def main() -> None:
    unchanged = verdicts(None)
    if unchanged["noticed"] or unchanged["stopped"]:
        sys.exit(f"the ledger is not as recorded without a mistake: {unchanged}")
    with ThreadPoolExecutor(2) as pool:
        verdicts_of_mistakes = list(pool.map(verdicts, RUN["damages"]))
    rows = []
    changing = 0
    for mistake, result in zip(RUN["damages"], verdicts_of_mistakes, strict=True):
        row = {**mistake, **result}
        rows.append(row)
        changing += bool(row["noticed"])
        print(f"{row['file']:32}{row['words']:50}{len(row['noticed']):3} verdicts, {len(row['stopped'])} errors")
    print(f"{changing} of {len(rows)} change a verdict")
    content = {**RUN, "damages": rows}
    STORED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
