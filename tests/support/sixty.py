"""Sixty mistakes in inference and theory, and what the ledger alone says to each: `make damages`.

They are of the kind that people make: an index, a transpose, a threshold, a dropped factor, two things swapped. They
stand in tests/results/damages.json: in a `file` of the library, `old` becomes `new`, `words` say what that is. A copy
of the library gets it, every statement's check and control is run there, and the verdicts are written beside it.
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
STORED = ROOT / "tests/results/damages.json"
RUN = json.loads(STORED.read_text(encoding="utf8"))
LEDGER = f"""
import json, torch
from companion.evidence import ledger
torch.set_num_threads(1)
found = {{"noticed": [], "stopped": []}}
for statement in ledger.STATEMENTS:
    try:
        if not ledger.run(statement, {RUN["instances"]}, {RUN["seed"]}).as_recorded:
            found["noticed"].append(statement.name)
    except Exception:
        found["stopped"].append(statement.name)
print(json.dumps(found))
"""


def applied(damage: dict) -> str:
    """The damaged source; LookupError where its line is not there once."""
    source = (ROOT / "hmmlib" / damage["file"]).read_text()
    if source.count(damage["old"]) != 1:
        raise LookupError(f"{damage['file']} has {source.count(damage['old'])} times {damage['old']!r}, not once")
    return source.replace(damage["old"], damage["new"])


def verdicts(damage: dict | None) -> dict[str, list[str]]:
    """The statements whose verdict is another with this damage (noticed), or whose check ends in an error (stopped)."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "hmmlib")
        shutil.copytree(ROOT / "hmmlib", library)  # with what is compiled, and the times by which that is known
        if damage:
            (library / damage["file"]).write_text(applied(damage))
        own = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'book'}", "OMP_NUM_THREADS": "1"}
        call = [sys.executable, "-c", LEDGER]
        done = subprocess.run(call, env=own, cwd=folder, capture_output=True, text=True, check=False)
    return {"noticed": [], "stopped": [""]} if done.returncode else json.loads(done.stdout)


def main() -> None:
    if any(missed := verdicts(None).values()):
        sys.exit(f"the ledger is not as recorded without a damage: {list(missed)}")
    with ThreadPoolExecutor(2) as pool:
        rows = [one | found for one, found in zip(RUN["damages"], pool.map(verdicts, RUN["damages"]), strict=True)]
    for row in rows:
        print(f"{row['file']:32}{row['words']:50}{len(row['noticed']):3} verdicts, {len(row['stopped'])} errors")
    print(f"{sum(bool(row['noticed']) for row in rows)} of {len(rows)} change a verdict")
    STORED.write_text(json.dumps(RUN | {"damages": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
