"""Mutation testing by mutmut (`make mutants`): what chooses the tests of a mutant, and what stores the results.

As a plugin of pytest: of the tests that reach a mutated function, those that have noticed other changes of it run
first, then the fastest, and as many as fit in SECONDS. As a command, `begin` notes what the mutants are made of, and
`store` writes mutmut's results, module by module, to tests/results/mutants.json, with the change that each survivor
makes, if the same tests pass where nothing is changed. The reason why it may survive is written there by hand, and kept
while the change is the same.
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
from pathlib import Path

SECONDS = 20
"""What the tests of a mutant take together where nothing is mutated."""
PATIENCE = 5
"""How many times as long they may compute where something is; waiting, ten times that. Else the mutant does not end."""
ENDS = {None: "not checked", 0: "survived", 1: "killed", -signal.SIGXCPU: "timeout", -signal.SIGALRM: "timeout"}
"""What exit codes of a mutant's tests say. After any other, of pytest or of this file, nobody knows: it counts as
alive."""
NOTICED = Path("noticed")
"""A file for each function: the tests that failed for its mutants so far."""
STORED, UNCLEAR = Path("tests/results/mutants.json"), Path("build/mutants.json")
"""Where results go, and where those go that are of no commit."""
BEGUN = Path("mutants/begun")
MADE_OF = ["hmmlib", "tests", ":!tests/results", "results/smoke", "pyproject.toml"]


def pytest_configure():
    """Load before processes fork: the networks, and the compiled loops; those kept serve, if the file seems the
    same."""
    if mutated():
        return
    for file in ("models/compiled.py", "inference/compiled.py"):
        shutil.copystat(f"../hmmlib/{file}", f"hmmlib/{file}")
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
    signal.alarm(10 * PATIENCE * SECONDS)
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


def results(ended: dict[Path, dict[str, str]], reasons: dict[tuple[str, str], str]) -> dict:
    """By module: how many mutants there are, how they ended, and what each of those changes that were not killed."""
    found = {}
    for path, ends in ended.items():
        alive = []
        for name in (name for name, end in ends.items() if end not in ("killed", "timeout", "not checked")):
            function = name.rpartition("__mutmut_")[0].rpartition(".")[2][2:].replace("ǁ", ".")
            changed = change(name, path)
            alive.append({"function": function, "change": changed, "reason": reasons.get((function, changed), "")})
        found[path.stem] = {"mutants": len(ends), **Counter(ends.values()), "left out": left_out(path), "alive": alive}
    return found


def without_survivors(ended: dict[Path, dict[str, str]]) -> list[str]:
    """The functions for which nothing shows yet that their tests pass where they should."""
    found = {}
    for name, end in ((name, end) for ends in ended.values() for name, end in ends.items() if end != "not checked"):
        found.setdefault(name.rpartition("__mutmut_")[0], set()).add(end)
    return [function for function, ends in found.items() if "survived" not in ends]


def failing_unchanged(functions: list[str], jobs: int) -> list[str]:
    """Those functions whose tests fail also where nothing is changed: run as for a mutant, of a number that none
    has."""
    from mutmut.utils.file_utils import setup_source_paths
    from mutmut.workers.isolation import get_mutant_runner

    tests = json.loads(Path("mutants/mutmut-stats.json").read_text())["tests_by_mangled_function_name"]
    setup_source_paths()
    runner, codes = get_mutant_runner(jobs), {}
    runner.startup()

    def take() -> None:
        found = runner.wait_for_result()
        codes[found.mutant_name.rpartition("__mutmut_")[0]] = found.exit_code

    for function in functions:
        while not runner.has_capacity():
            take()
        runner.submit(f"{function}__mutmut_0", tests[function], 10**6, 0)
    runner.signal_work_complete()
    while runner.pending_count():
        take()
    runner.shutdown()
    return [function for function in functions if codes[function] != 0]


def of_that_commit(commit: str) -> bool:
    """Whether the files that mutants are made of are still those of this commit."""
    return subprocess.run(["git", "diff", "--quiet", commit, "--", *MADE_OF], check=False).returncode == 0


def begin() -> None:
    """Note the commit, unless there are mutants to go on with."""
    if not BEGUN.exists():
        if BEGUN.parent.exists():
            sys.exit(f"{BEGUN.parent} does not say of which commit it is: remove it")
        BEGUN.parent.mkdir()
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        BEGUN.write_text(head.stdout.strip())


def store(jobs: int) -> None:
    before = json.loads(STORED.read_text())["modules"] if STORED.exists() else {}
    reasons = {(m["function"], m["change"]): m["reason"] for part in before.values() for m in part["alive"]}
    commit, found = BEGUN.read_text(), ended()
    modules = results(found, reasons)
    for name, module in modules.items():
        tried = module["mutants"] - module.get("not checked", 0)
        dead = tried - len(module["alive"])
        without = sum(not mutant["reason"] for mutant in module["alive"])
        print(f"{name:12}{module['mutants']:5} mutants, {tried} tried, {dead} killed; {without} alive without a reason")
    if failing := failing_unchanged(without_survivors(found), jobs):
        sys.exit(f"not stored: the tests of these functions fail also where nothing is changed: {', '.join(failing)}")
    path = STORED if of_that_commit(commit) else UNCLEAR
    path.parent.mkdir(exist_ok=True)
    stored = {"mutmut": version("mutmut"), "commit": commit, "modules": modules}
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    print(f"stored in {path}")
    if path == UNCLEAR:
        print(
            f"The mutants were begun at {commit[:7]}, and files have changed since. Commit, remove mutants/, run again."
        )


if __name__ == "__main__":
    begin() if sys.argv[1] == "begin" else store(int(sys.argv[2]))
