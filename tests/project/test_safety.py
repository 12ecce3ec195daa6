"""Data stay data: nothing is unpickled, no text from a file or a parameter is run, and nobody else is let in."""

import ast
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from record import slow
from safetensors.torch import save_file

from hmmlib.experiments.store import load_result, load_results
from hmmlib.training import checkpoints

ROOT = Path(__file__).resolve().parents[2]

# What the code does not do

RULES = "S102,S301,S302,S307,S403,S506,S602,S604,S605"
"""ruff's, of pickles and their like, of text that is run as code or by a shell, and of YAML that makes objects."""
WORDS = re.compile(
    r"allow_pickle=(?!False)|\b(cloudpickle|joblib|run_path|getoutput|yaml\.(full|unsafe)_load|torch\.(load|save))\b"
)
"""What no rule of ruff is about."""
DANGERS = [
    *("from dill import loads as f", "import shelve", "import marshal as m\nm.loads(a)", "exec(a)", "print(eval(a))"),
    *("import pandas as pd\npd.read_pickle(a)", "import subprocess\nsubprocess.run(a, shell=True)"),
    *("from os import popen\npopen(a)", "import yaml\nyaml.load(a, yaml.Loader)", "np.load(a, allow_pickle=True)"),
    *("import joblib", "torch.load(a)"),
]


def dangerous(*paths: Path) -> set[Path]:
    """Which programs and notebooks, in folders too, have one of the dangers above."""
    ruff = [Path(sys.executable).parent / "ruff", "check", "--isolated", "--ignore-noqa", "--no-cache", "--exit-zero"]
    call = [*ruff, "--preview", "--select", RULES, "--output-format", "json", *paths]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    found = {Path(one["filename"]) for one in json.loads(done.stdout)}
    programs = [path for folder in paths for kind in ("*.py", "*.ipynb") for path in folder.rglob(kind)]
    assert programs
    return found | {path for path in programs if WORDS.search(path.read_text())}


def test_nothing_is_unpickled_and_no_text_is_run(tmp_path):
    """But for this file, which makes the files that must be refused."""
    folders = [ROOT / name for name in ("hmmlib", "book", "benchmarks", "tests", "notebooks")]
    assert dangerous(*folders) == {Path(__file__)}
    good = "import yaml, re\nyaml.safe_load(a); network.eval(); re.compile(b); np.load(c, allow_pickle=False)"
    folder = tmp_path / "programs"
    folder.mkdir()
    for number, text in enumerate([*DANGERS, good]):
        (folder / f"{number}.py").write_text(f"{text}\n")
    assert {path.stem for path in dangerous(folder)} == {str(number) for number in range(len(DANGERS))}


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


@pytest.fixture
def mark(tmp_path):
    """Where a folder appears as soon as something is unpickled."""
    yield tmp_path / "mark"
    assert not (tmp_path / "mark").exists(), "it was unpickled"


@pytest.mark.parametrize("kind", [as_pickle, as_torch])
def test_a_checkpoint_or_a_result_with_a_pickle_inside_is_refused_by_name(kind, mark, tmp_path):
    path = tmp_path / "one.safetensors"
    kind(path, mark)
    with pytest.warns(UserWarning, match=r"one\.safetensors is no whole checkpoint and is passed over: ."):
        assert checkpoints.load(path, {}) is None
    assert checkpoints.broken(path).exists()
    path = tmp_path / "smoke" / f"{'0' * 16}.json"
    path.parent.mkdir()
    kind(path, mark)
    for load in (lambda: load_result(path), lambda: load_results("smoke", tmp_path)):
        with pytest.raises(ValueError, match=f"{path.name} is no readable result: ."):
            load()


def test_a_pickle_in_a_tensor_or_a_fact_of_a_checkpoint_stays_bytes(mark, tmp_path):
    path, content = tmp_path / "one.safetensors", pickle.dumps(Mark(mark), protocol=0)
    tensors = {"weights": torch.frombuffer(bytearray(content), dtype=torch.uint8)}
    facts = {"seed": content.decode()}
    save_file(tensors, path, {**facts, checkpoints.SEAL: checkpoints.seal(tensors, facts)})
    found, facts = checkpoints.load(path, {})
    assert found["weights"].numpy().tobytes() == facts["seed"].encode() == content
    with pytest.raises(ValueError, match=r"one\.safetensors is the checkpoint of another run: its seed is "):
        checkpoints.load(path, {"seed": "1"})


# Text that is given as a parameter

NOTEBOOK = str(ROOT / "notebooks" / "5-2-head-vs-prompt.ipynb")
CODE = ["'); __import__('os').mkdir('mark'); ('", '0\r\u2028\nimport os\nos.mkdir("mark")', "trailing \\"]


@pytest.mark.parametrize("text", CODE)
def test_papermill_writes_a_value_as_a_literal(text):
    for value in (text, [1, text], {text: [text]}):
        cells = parameterize_notebook(load_notebook_node(NOTEBOOK), dict(seed=value)).cells
        (cell,) = (cell for cell in cells if "injected-parameters" in cell.metadata.tags)
        (statement,) = ast.parse(cell.source).body
        assert isinstance(statement, ast.Assign)
        assert ast.unparse(statement.targets) == "seed"
        assert ast.literal_eval(statement.value) == value


@slow
def test_code_given_for_a_parameter_is_not_run_and_the_parameter_is_named(mark, tmp_path):
    """In `make test`, test_papermill_writes_a_value_as_a_literal stands for it."""
    code = f"__import__('os').mkdir({str(mark)!r})"
    call = [sys.executable, "-m", "papermill", "--no-progress-bar", NOTEBOOK, str(tmp_path / "out.ipynb")]
    call += ["-p", "seed", code, "-p", "hidden_sizes", code]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for words in ("'seed': Input should be a valid integer", "'hidden_sizes': Input should be a", f"not {code!r}"):
        assert words in done.stderr


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
