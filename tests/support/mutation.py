"""Mutation testing by mutmut (`make mutants`): which tests a mutant is given, and how the results are stored.

As a plugin of pytest, this file chooses among the tests that reach a mutated function. Those that have noticed other
changes of the function run first, then the fastest, and as many as fit in SECONDS.

As a command, `begin` lays out the folder in which mutmut works, and notes the commit. `store` writes mutmut's results
to tests/results/mutants.json, module by module. It has the change that each survivor makes. The reason why a change may
survive is written there by hand, and it is kept while the change is the same.
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

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutation"
"""Where mutmut works. It has links to the project's files, as mutmut wants packages to lie here or in `src`."""
LAYOUT = {
    "hmmlib": "hmmlib",
    "src/hmmbook": "book/hmmbook",
    "tests": "tests",
    "results": "results",
    "pyproject.toml": "pyproject.toml",
}
"""The links, and where in the project they lead."""
BEGUN = FOLDER / "begun"
"""A file with the commit of which the mutants are made."""
STORED = ROOT / "tests" / "results" / "mutants.json"
MADE_OF = ["hmmlib", "book/hmmbook", "tests", ":!tests/results", "results/smoke", "pyproject.toml"]
"""What must not change while mutants are tried."""
SECONDS = 10
"""How long the tests of a mutant take together where nothing is mutated."""
PATIENCE = 5
"""A mutant's tests may compute so many times as long, and wait ten times that. Else the mutant counts as endless."""
NOTICED = Path("noticed")
"""A file for each function: the tests that failed for its mutants so far."""
ENDS = {None: "not checked", 0: "survived", 1: "killed", -signal.SIGXCPU: "timeout", -signal.SIGALRM: "timeout"}
"""What exit codes of a mutant's tests mean. With any other code, nobody knows, so the mutant counts as alive."""
NOT_ALIVE = ("killed", "timeout", "not checked")


def function_of(mutant: str) -> str:
    """The function that a mutant changes. It is empty where none is changed."""
    return mutant.rpartition("__mutmut_")[0]


def mutated_function() -> str:
    """The function that is mutated in this process."""
    return function_of(os.environ.get("MUTANT_UNDER_TEST", ""))


# The plugin


def pytest_configure():
    """Load what takes long before processes fork: networks and compiled loops."""
    if mutated_function():
        return
    # Compiled loops that were kept are used again if their source seems to be the same file.
    for file in ("models/compiled.py", "inference/compiled.py"):
        shutil.copystat(f"../hmmlib/{file}", f"hmmlib/{file}")
    from transformers.models.bert import modeling_bert  # noqa: F401

    from hmmlib import masked_token_probs, random_hmm

    masked_token_probs(random_hmm(2, 2), [[0]])
    gc.freeze()  # nothing of this is garbage


def pytest_collection_modifyitems(config, items):
    """Choose the tests of a mutant, and limit their time."""
    function = mutated_function()
    if not function:
        return
    if "experiments" not in function:
        # Several tests share a trial, but only one of them was charged for it, so their times say too little.
        quick_items = [item for item in items if not item.nodeid.startswith("tests/experiments")]
        items[:] = quick_items or items
    seconds = json.loads(Path("mutmut-stats.json").read_text(encoding="utf8"))["duration_by_test"]
    failures = Counter()
    if (NOTICED / function).exists():
        failures.update((NOTICED / function).read_text(encoding="utf8").splitlines())
    items.sort(key=lambda item: (-failures[item.nodeid], seconds[item.nodeid]))
    count = 0
    total = 0.0
    for item in items:
        total += seconds[item.nodeid]
        if total <= SECONDS:
            count += 1
    config.hook.pytest_deselected(items=items[count:])
    items[:] = items[:count]
    limit_time()


def limit_time() -> None:
    """End this process when it has computed or waited for too long."""
    signal.alarm(10 * PATIENCE * SECONDS)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(usage.ru_utime + usage.ru_stime + PATIENCE * SECONDS)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard_limit))


def pytest_runtest_logreport(report):
    """Note which test has noticed a change of the function."""
    if report.failed and mutated_function():
        NOTICED.mkdir(exist_ok=True)
        with open(NOTICED / mutated_function(), "a", encoding="utf8") as file:
            print(report.nodeid, file=file)


# The commands


def begin() -> None:
    """Lay out the folder and note the commit, unless there are mutants to go on with."""
    if BEGUN.exists():
        return
    for name, target in LAYOUT.items():
        link = FOLDER / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(ROOT / target)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    BEGUN.write_text(head.stdout.strip(), encoding="utf8")


def read_ends() -> dict[Path, dict[str, str]]:
    """How the tests of each mutant ended, by module."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.utils.file_utils import walk_mutatable_files

    ends = {}
    for path in sorted(walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        if data.exit_code_by_key:  # an __init__ has none
            ends[path] = {name: ENDS.get(code, f"exit code {code}") for name, code in data.exit_code_by_key.items()}
    return ends


def describe_survivors(path: Path, ends: dict[str, str], reasons: dict) -> list[dict]:
    """Each mutant that was not killed: its function, the lines that it removes and adds, and why it may live."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    survivors = []
    for name, end in ends.items():
        if end in NOT_ALIVE:
            continue
        lines = []
        for line in get_diff_for_mutant(name, path=path).splitlines():
            if line.startswith(("+", "-")) and not line.startswith(("+++", "---")):
                lines.append(f"{line[0]} {line[1:].strip()}")
        change = "\n".join(lines)
        # mutmut writes x_name for a function, and xǁClassǁmethod for a method.
        function = function_of(name).rpartition(".")[2][2:].replace("ǁ", ".")
        survivors.append({"function": function, "change": change, "reason": reasons.get((function, change), "")})
    return survivors


def decorated_functions(path: Path) -> list[str]:
    """Functions that mutmut does not mutate, because they have a decorator."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            names.append(node.name)
    return sorted(names)


def failing_unchanged(ends: dict[Path, dict[str, str]]) -> list[str]:
    """The functions whose tests fail also where nothing is changed, so that their failing says nothing.

    The tests run as for a mutant, but of a number that none has.
    """
    from mutmut.utils.file_utils import setup_source_paths
    from mutmut.workers.isolation import get_mutant_runner

    tests = json.loads(Path("mutants/mutmut-stats.json").read_text(encoding="utf8"))["tests_by_mangled_function_name"]
    setup_source_paths()
    tried = set()
    for module in ends.values():
        tried.update(function_of(name) for name, end in module.items() if end != "not checked")
    runner = get_mutant_runner(1)
    runner.startup()
    failing = []
    for function in sorted(tried):
        runner.submit(f"{function}__mutmut_0", tests[function], 10**6, 0)
        if runner.wait_for_result().exit_code != 0:
            failing.append(function)
    runner.shutdown()
    return failing


def store() -> None:
    """Store the results of each module of which some mutant was tried. Others keep what is stored, with its commit."""
    os.chdir(FOLDER)
    modules = json.loads(STORED.read_text(encoding="utf8"))["modules"] if STORED.exists() else {}
    reasons = {}
    for module in modules.values():
        for mutant in module["alive"]:
            reasons[mutant["function"], mutant["change"]] = mutant["reason"]
    commit = BEGUN.read_text(encoding="utf8")
    ends = read_ends()
    for path, ends_of_module in ends.items():
        counts = Counter(ends_of_module.values())
        tried = len(ends_of_module) - counts["not checked"]
        if tried == 0:
            continue
        survivors = describe_survivors(path, ends_of_module, reasons)
        modules[path.stem] = {
            "commit": commit,
            "mutants": len(ends_of_module),
            **counts,
            "left out": decorated_functions(path),
            "alive": survivors,
        }
        unexplained = sum(not mutant["reason"] for mutant in survivors)
        print(f"{path.stem:12}{tried:5} of {len(ends_of_module)} tried; ", end="")
        print(f"{len(survivors)} alive, {unexplained} without a reason")
    failing = failing_unchanged(ends)
    if failing:
        sys.exit(f"not stored: the tests of these functions fail also where nothing is changed: {', '.join(failing)}")
    comparison = subprocess.run(["git", "-C", ROOT, "diff", "--quiet", commit, "--", *MADE_OF], check=False)
    if comparison.returncode != 0:
        sys.exit(f"not stored: files are no longer those of {commit[:7]}. Commit, remove {FOLDER}, run again")
    present = {path.stem: modules[path.stem] for path in ends if path.stem in modules}
    content = {"mutmut": version("mutmut"), "commit": commit, "modules": present}
    STORED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
    print(f"stored in {STORED}")


if __name__ == "__main__":
    if sys.argv[1] == "begin":
        begin()
    else:
        store()
