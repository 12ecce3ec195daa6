"""Data stay data: nothing is unpickled, no text from a file or a parameter is run, and nobody else is let in."""

import ast
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
import yaml
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from safetensors.torch import save_file

import notebooks as pipeline
from hmmlib.experiments.store import load_result, load_results
from hmmlib.training import checkpoints

ROOT = Path(__file__).resolve().parents[2]

# What the code does not do

MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput", "runpy.run_path"),
    *("torch.load", "torch.save", "pandas.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
}
OPTIONS = {"allow_pickle", "shell"}
"""Keywords that may only be False."""
EXCEPTIONS = {"tests/project/test_safety.py": {"pickle", "pickle.dumps", "torch.save"}}
"""This file makes the files that must be refused."""


def dangers(source: str) -> set[str]:
    """What a program uses of the modules, calls and options above, whatever it calls them."""
    nodes, names, found = list(ast.walk(ast.parse(source))), {}, set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {node.module}
    used = {dotted(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute)}
    full = {".".join([names.get(first, first), *rest]) for first, *rest in used}
    options = {k.arg for node in nodes if isinstance(node, ast.Call) for k in node.keywords if on(k.value)}
    return {name for name in found | full if name.split(".")[0] in MODULES or name in CALLS} | (options & OPTIONS)


def dotted(node: ast.expr) -> tuple[str, ...]:
    """The names of `a.b.c`; what is not made of names counts as one without a name."""
    if isinstance(node, ast.Attribute):
        return *dotted(node.value), node.attr
    return (node.id if isinstance(node, ast.Name) else "",)


def on(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is False)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from dill import loads as f\nf(x)", {"dill", "dill.loads"}),
        ("import torch as t\nt.load('a')", {"torch.load"}),
        ("import numpy as np\nnp.load('a', allow_pickle=True)", {"allow_pickle"}),
        ("import subprocess\nsubprocess.run('a', shell=flag)", {"shell"}),
        ("import yaml, re\nyaml.safe_load(a); network.eval(); re.compile(b); np.load(c, allow_pickle=False)", set()),
    ],
)
def test_a_danger_is_seen_under_any_name(source, expected):
    assert dangers(source) == expected


def programs() -> dict[str, str]:
    """The source of every program of the project, notebooks among them, by its path."""
    folders = ("hmmlib", "book", "benchmarks", "tests")
    found = {path: path.read_text() for name in folders for path in (ROOT / name).rglob("*.py")}
    found |= {path: pipeline.code_of(nbformat.read(path, 4)) for path in (ROOT / "notebooks").glob("*.ipynb")}
    return {str(path.relative_to(ROOT)): text for path, text in found.items()}


def test_nothing_is_unpickled_and_no_text_is_run():
    sources = programs()
    assert len(sources) > 150
    assert {name: found for name, text in sources.items() if (found := dangers(text))} == EXCEPTIONS


# Files with a pickle inside


class Mark:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def as_pickle(path: Path, mark: Path) -> None:
    path.write_bytes(pickle.dumps(Mark(mark)))


def as_torch(path: Path, mark: Path) -> None:
    torch.save({"weights": Mark(mark)}, path)


KINDS = [as_pickle, as_torch]


@pytest.fixture
def mark(tmp_path):
    """Where a folder appears as soon as something is unpickled."""
    yield tmp_path / "mark"
    assert not (tmp_path / "mark").exists(), "it was unpickled"


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_with_a_pickle_inside_is_put_aside(kind, mark, tmp_path):
    path = tmp_path / "one.safetensors"
    kind(path, mark)
    with pytest.warns(UserWarning, match=r"one\.safetensors is no whole checkpoint and is passed over: ."):
        assert checkpoints.load(path, {}) is None
    assert checkpoints.broken(path).exists()


def test_a_pickle_in_a_tensor_or_a_fact_of_a_checkpoint_stays_bytes(mark, tmp_path):
    path, content = tmp_path / "one.safetensors", pickle.dumps(Mark(mark), protocol=0)
    tensors = {"weights": torch.frombuffer(bytearray(content), dtype=torch.uint8)}
    facts = {"seed": content.decode()}
    save_file(tensors, path, {**facts, checkpoints.SEAL: checkpoints.seal(tensors, facts)})
    found, facts = checkpoints.load(path, {})
    assert found["weights"].numpy().tobytes() == facts["seed"].encode() == content
    with pytest.raises(ValueError, match=r"one\.safetensors is the checkpoint of another run: its seed is "):
        checkpoints.load(path, {"seed": "1"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_with_a_pickle_inside_is_refused_by_name(kind, mark, tmp_path):
    path = tmp_path / "smoke" / f"{'0' * 16}.json"
    path.parent.mkdir()
    kind(path, mark)
    with pytest.raises(ValueError, match=f"{path.name} is no readable result: ."):
        load_result(path)
    with pytest.raises(ValueError, match=f"{path.name} is no readable result: ."):
        load_results("smoke", tmp_path)


# Text that is given as a parameter

CODE = ["'); __import__('os').mkdir('mark'); ('", '0\r\u2028\nimport os\nos.mkdir("mark")', "trailing \\"]


def injected(**values) -> list[ast.stmt]:
    """The statements of the cell that papermill adds to a notebook for these parameters."""
    notebook = load_notebook_node(str(ROOT / "notebooks" / "5-2-head-vs-prompt.ipynb"))
    (cell,) = (c for c in parameterize_notebook(notebook, values).cells if "injected-parameters" in c.metadata.tags)
    return ast.parse(cell.source).body


@pytest.mark.parametrize("text", CODE)
@pytest.mark.parametrize("around", [lambda text: text, lambda text: [1, text], lambda text: {text: [text]}])
def test_papermill_writes_a_value_as_a_literal(text, around):
    (statement,) = injected(seed=around(text))
    assert isinstance(statement, ast.Assign)
    assert ast.unparse(statement.targets) == "seed"
    assert ast.literal_eval(statement.value) == around(text)


def papermill(*arguments: str) -> subprocess.CompletedProcess:
    call = [sys.executable, "-m", "papermill", "--no-progress-bar", "notebooks/5-2-head-vs-prompt.ipynb"]
    return subprocess.run([*call, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_code_given_for_a_parameter_is_not_run_and_the_parameter_is_named(mark, tmp_path):
    code = f"__import__('os').mkdir({str(mark)!r})"
    done = papermill(str(tmp_path / "out.ipynb"), "-p", "seed", code, "-p", "hidden_sizes", code)
    assert done.returncode == 1
    for words in ("parameter 'seed': Input should be a valid integer", "parameter 'hidden_sizes': Input should be a"):
        assert f"{words}" in done.stderr
    assert f"not {code!r}" in done.stderr


# Who is let in


def test_only_two_jobs_that_run_nobody_elses_code_may_publish_and_no_other_keeps_a_token():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    permissions = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
    assert permissions == {"publish": {"pages": "write", "id-token": "write"}, "executed": {"contents": "write"}}
    for name in permissions:
        assert jobs[name]["if"] == "github.ref == 'refs/heads/main' && github.event_name != 'pull_request'"
        assert {step["run"] for step in jobs[name]["steps"] if "run" in step} <= {".ci/publish-executed build/viewers"}
    steps = [step for name, job in jobs.items() if name not in permissions for step in job["steps"]]
    checkouts = [step.get("with") for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts == [{"persist-credentials": False}] * 3
    for step in (step for job in jobs.values() for step in job["steps"]):
        assert re.fullmatch(r"actions/[a-z-]+@v\d+(\.\d+)*", step.get("uses", "actions/none@v1")), step
        assert "${{" not in step.get("run", "")


def test_the_book_is_served_on_loopback_alone():
    assert "-m http.server 8000 --bind 127.0.0.1 " in (ROOT / "Makefile").read_text()
