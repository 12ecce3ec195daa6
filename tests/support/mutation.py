"""Mutation testing by mutmut (`make mutants`): what chooses the tests of a mutant, and what stores the results.

As a plugin of pytest: of the tests that reach a mutated function, those that have noticed other changes of it run
first, then the fastest, and as many as fit in SECONDS. As a command, `begin` notes what the mutants are made of, and
`store` writes mutmut's results, module by module and each with its commit, to tests/results/mutants.json, with the
change that each survivor makes, if the same tests pass where nothing is changed. The reason why it may survive is
written there by hand, and kept while the change is the same.
"""

import ast
import gc
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path

SECONDS = 10
"""What the tests of a mutant take together where nothing is mutated."""
PATIENCE = 5
"""How many times as long they may compute where something is; waiting, ten times that. Else the mutant does not end."""
ENDS = {None: "not checked", 0: "survived", 1: "killed", -signal.SIGXCPU: "timeout", -signal.SIGALRM: "timeout"}
"""What exit codes of a mutant's tests say. After any other, of pytest or of this file, nobody knows: it is alive."""
NOTICED = Path("noticed")
"""A file for each function: the tests that failed for its mutants so far."""
STORED, BEGUN = Path("tests/results/mutants.json"), Path("mutants/begun")
MADE_OF = ["hmmlib", "tests", ":!tests/results", "results/smoke", "pyproject.toml"]


def of(mutant: str) -> str:
    """The function that a mutant changes; empty where none is changed."""
    return mutant.rpartition("__mutmut_")[0]


def mutated() -> str:
    return of(os.environ.get("MUTANT_UNDER_TEST", ""))


# The plugin


def pytest_configure():
    """Load before processes fork: networks, and compiled loops, which serve as kept if their file seems the same."""
    if mutated():
        return
    for file in ("models/compiled.py", "inference/compiled.py"):
        shutil.copystat(f"../hmmlib/{file}", f"hmmlib/{file}")
    from transformers.models.bert import modeling_bert  # noqa: F401

    from hmmlib import masked_token_probs, random_hmm

    masked_token_probs(random_hmm(2, 2), [[0]])
    gc.freeze()  # nothing of this is garbage


def pytest_collection_modifyitems(config, items):
    if not mutated():
        return
    if "experiments" not in mutated():  # one test alone was charged for the whole trial that several share
        items[:] = [item for item in items if not item.nodeid.startswith("tests/experiments")] or items
    seconds = json.loads(Path("mutmut-stats.json").read_text())["duration_by_test"]
    noticed = Counter((NOTICED / mutated()).read_text().splitlines() if (NOTICED / mutated()).exists() else [])
    items.sort(key=lambda item: (-noticed[item.nodeid], seconds[item.nodeid]))
    kept = sum(spent <= SECONDS for spent in accumulate(seconds[item.nodeid] for item in items))
    config.hook.pytest_deselected(items=items[kept:])
    items[:] = items[:kept]
    signal.alarm(10 * PATIENCE * SECONDS)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + PATIENCE * SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def pytest_runtest_logreport(report):
    if report.failed and mutated():
        NOTICED.mkdir(exist_ok=True)
        with open(NOTICED / mutated(), "a") as file:
            print(report.nodeid, file=file)


# The command


def ended() -> dict[Path, dict[str, str]]:
    """By module: how each mutant's tests ended."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.utils.file_utils import walk_mutatable_files

    found = {}
    for path in sorted(walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        if data.exit_code_by_key:  # an __init__ has none
            found[path] = {name: ENDS.get(code, f"exit code {code}") for name, code in data.exit_code_by_key.items()}
    return found


def alive(path: Path, ends: dict[str, str], reasons: dict) -> list[dict]:
    """Of each mutant that was not killed: the lines that it removes and adds, and why it may live."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    found = []
    for name in (name for name, end in ends.items() if end not in ("killed", "timeout", "not checked")):
        lines = [line for line in get_diff_for_mutant(name, path=path).splitlines() if line[:3] not in ("---", "+++")]
        change = "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[:1] in "+-")
        function = of(name).rpartition(".")[2][2:].replace("ǁ", ".")
        found.append({"function": function, "change": change, "reason": reasons.get((function, change), "")})
    return found


def left_out(path: Path) -> list[str]:
    """Functions that mutmut does not mutate: those with a decorator."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return sorted(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.decorator_list)


def failing_unchanged(found: dict[Path, dict[str, str]]) -> list[str]:
    """Functions whose tests fail also where nothing is changed: run as for a mutant, of a number that none has.

    Where a mutant survived, they have passed.
    """
    from mutmut.utils.file_utils import setup_source_paths
    from mutmut.workers.isolation import get_mutant_runner

    tried = {name: end for ends in found.values() for name, end in ends.items() if end != "not checked"}
    functions = sorted({of(name) for name in tried} - {of(name) for name, end in tried.items() if end == "survived"})
    tests = json.loads(Path("mutants/mutmut-stats.json").read_text())["tests_by_mangled_function_name"]
    setup_source_paths()
    runner, failing = get_mutant_runner(1), []
    runner.startup()
    for function in functions:
        runner.submit(f"{function}__mutmut_0", tests[function], 10**6, 0)
        if runner.wait_for_result().exit_code != 0:
            failing.append(function)
    runner.shutdown()
    return failing


def begin() -> None:
    """Note the commit, unless there are mutants to go on with."""
    if not BEGUN.exists():
        if BEGUN.parent.exists():
            sys.exit(f"{BEGUN.parent} does not say of which commit it is: remove it")
        BEGUN.parent.mkdir()
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        BEGUN.write_text(head.stdout.strip())


def store() -> None:
    """The results of each module of which some mutant was tried; the others keep what is stored, with its commit."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {"modules": {}}
    modules = stored["modules"]
    reasons = {(m["function"], m["change"]): m["reason"] for part in modules.values() for m in part["alive"]}
    commit, found = BEGUN.read_text(), ended()
    for path, ends in found.items():
        counts = Counter(ends.values())
        if tried := len(ends) - counts["not checked"]:
            living = alive(path, ends, reasons)
            part = {"commit": commit, "mutants": len(ends), **counts, "left out": left_out(path), "alive": living}
            modules[path.stem] = part
            without = sum(not mutant["reason"] for mutant in living)
            print(f"{path.stem:12}{tried:5} of {len(ends)} tried; {len(living)} alive, {without} without a reason")
    if failing := failing_unchanged(found):
        sys.exit(f"not stored: the tests of these functions fail also where nothing is changed: {', '.join(failing)}")
    if subprocess.run(["git", "diff", "--quiet", commit, "--", *MADE_OF], check=False).returncode != 0:
        sys.exit(f"not stored: files are no longer those of {commit[:7]}. Commit, remove mutants/, run again")
    there = [path.stem for path in found if path.stem in modules]
    content = {"mutmut": version("mutmut"), "commit": commit, "modules": {name: modules[name] for name in there}}
    STORED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(f"stored in {STORED}")


if __name__ == "__main__":
    begin() if sys.argv[1] == "begin" else store()
