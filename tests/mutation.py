"""Mutation testing by mutmut (`make mutants`): what chooses the tests of a mutant, and what stores the results.

As a plugin of pytest: of the tests that reach a mutated function, those that have noticed other changes of it run
first, then the fastest, and as many as fit in SECONDS. As a command: mutmut's results, module by module, go to
tests/results/mutants.json, with the change that each survivor makes. The reason why it may survive is written there by hand,
and kept while the change is the same.
"""

import ast
import gc
import json
import math
import os
import resource
import shutil
import subprocess
from collections import Counter
from importlib.metadata import version
from pathlib import Path

SECONDS = 20
"""What the tests of a mutant take together where nothing is mutated."""
PATIENCE = 5
"""How many times as long they may take where something is: then the mutant counts as one that does not end."""
NOTICED = Path("noticed")
"""A file for each function: the tests that failed for its mutants so far."""
STORED = Path("tests/results/mutants.json")


def pytest_configure():
    """Load before processes fork: the networks, and the compiled loops; those kept serve, if the file seems the same."""
    shutil.copystat("../hmmlib/kernels.py", "hmmlib/kernels.py")
    from transformers.models.bert import modeling_bert  # noqa: F401

    from hmmlib import masked_token_probs, random_hmm

    masked_token_probs(random_hmm(2, 2), [[0]])
    gc.freeze()  # nothing of this is garbage


def mutated() -> str:
    """The function that is mutated in this process; empty where none is."""
    return os.environ.get("MUTANT_UNDER_TEST", "").rpartition("__mutmut_")[0]


def pytest_collection_modifyitems(config, items):
    """For a mutant: the tests that have noticed others of its function, the fastest tests, and none beyond SECONDS."""
    if not mutated():
        return
    seconds = json.loads(Path("mutmut-stats.json").read_text())["duration_by_test"]
    noticed = Counter((NOTICED / mutated()).read_text().splitlines() if (NOTICED / mutated()).exists() else [])
    items.sort(key=lambda item: (-noticed[item.nodeid], seconds[item.nodeid]))
    spent, kept = 0.0, 0
    while kept < len(items) and spent + seconds[items[kept].nodeid] <= SECONDS:
        spent, kept = spent + seconds[items[kept].nodeid], kept + 1
    config.hook.pytest_deselected(items=items[kept:])
    items[:] = items[:kept]
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + PATIENCE * SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def pytest_runtest_logreport(report):
    if report.failed and mutated():
        NOTICED.mkdir(exist_ok=True)
        with open(NOTICED / mutated(), "a") as file:
            file.write(f"{report.nodeid}\n")


def change(mutant: str, path: Path) -> str:
    """The lines that a mutant removes and adds, with - and + before them."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    lines = [line for line in get_diff_for_mutant(mutant, path=path).splitlines() if line[:3] not in ("---", "+++")]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[:1] in "+-")


def left_out(path: Path) -> list[str]:
    """Functions that mutmut does not mutate: those with a decorator."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return sorted(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.decorator_list)


def results(reasons: dict[tuple[str, str], str]) -> dict:
    """By module: how many mutants there are, how they ended, and what each of those changes that were not killed."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    found = {}
    for path in sorted(walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        ends = {name: status_by_exit_code[code] for name, code in data.exit_code_by_key.items()}
        alive = []
        for name in (name for name, end in ends.items() if end not in ("killed", "timeout", "not checked")):
            function = name.rpartition("__mutmut_")[0].rpartition(".")[2][2:].replace("ǁ", ".")
            changed = change(name, path)
            alive.append({"function": function, "change": changed, "reason": reasons.get((function, changed), "")})
        found[path.stem] = {"mutants": len(ends), **Counter(ends.values()), "left out": left_out(path), "alive": alive}
    return found


def main() -> None:
    before = json.loads(STORED.read_text())["modules"] if STORED.exists() else {}
    reasons = {(m["function"], m["change"]): m["reason"] for part in before.values() for m in part["alive"]}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    modules = results(reasons)
    stored = {"mutmut": version("mutmut"), "commit": commit, "modules": modules}
    STORED.parent.mkdir(exist_ok=True)
    STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    for name, module in modules.items():
        tried = module["mutants"] - module.get("not checked", 0)
        dead = tried - len(module["alive"])
        without = sum(not mutant["reason"] for mutant in module["alive"])
        print(f"{name:12}{module['mutants']:5} mutants, {tried} tried, {dead} killed; {without} alive without a reason")


if __name__ == "__main__":
    main()
