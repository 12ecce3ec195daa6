"""Parameters of a run: read as they look, known to the notebook, described by papermill; else nothing is run."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import inputs
import nbformat
import papermill
import pytest
from record import tried

import notebooks as pipeline

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
SETTING = ROOT / "notebooks" / "2-setting.ipynb"
TAKES = "2-setting takes preset, seed, instances"

REFUSED = {
    "a name of Python": ("globals: 3\n", f"'globals' is no parameter: {TAKES}"),
    "a name of IPython": ("In: 3\n", f"'In' is no parameter: {TAKES}"),
    "a name of another notebook": ("hidden_size: 3\n", f"'hidden_size' is no parameter: {TAKES}"),
    "a slip": ("instancse: 3\n", f"'instancse' is no parameter: {TAKES}"),
    "a number for a name": ("3: 3\n", "no parameter can be named 3"),
    "code for a name": ("import os; seed: 3\n", "no parameter can be named 'import os; seed'"),
    "a name twice": ("seed: 3\nseed: 4\n", "a parameter stands in it twice"),
    "Latin 1": (b"preset: sm\xf6ke\n", "can't decode byte 0xf6"),
    "no YAML": ("seed: [3\n", "expected ',' or ']'"),
    "an object": ("seed: !!python/object:os.system {}\n", "could not determine a constructor"),
    "a list": ("- preset\n", "it must have lines `name: value`, not ['preset']"),
    "nothing": ("", "it must have lines `name: value`, not None"),
    "a line break in a name": ('"seed\\nimport os\\nx": 1\n', r"no parameter can be named 'seed\nimport"),
    "no truth value": ("seed: !!bool maybe\n", "maybe"),
    "too many digits": (f"seed: {'9' * 5000}\n", "4300 digits"),
    "too deep": (f"seed: {'[' * 5000}\n", "recursion"),
    "no file": (None, "No such file or directory"),
}


def command(monkeypatch, *words) -> None:
    monkeypatch.setattr(sys, "argv", ["notebooks.py", *map(str, words)])
    pipeline.main()


@tried("files and folders")
@pytest.mark.parametrize("how", REFUSED)
def test_a_parameter_file_that_is_none_is_named_with_what_is_wrong_and_runs_nothing(how, tmp_path, monkeypatch, capsys):
    content, words = REFUSED[how]
    path, out = tmp_path / "mine.yaml", tmp_path / "out.ipynb"
    out.write_text("mine")
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, "run", "2-setting", path, "--out", out)
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert f"{path} is no parameter file: " in message
    assert words in message
    assert out.read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} <= {"out.ipynb", "mine.yaml"}


def test_every_value_is_read_as_it_looks(tmp_path):
    lines = {
        "10": 10, "0": 0, "+5": 5, "-1": -1, ".5": 0.5, "1.5e+3": 1500.0, "1e3": 1000.0, "true": True, "False": False,
        "null": None, "": None, "'10'": "10", "smoke": "smoke", "[1, 2.5]": [1, 2.5],
        "010": "010", "1:30": "1:30", "no": "no", "on": "on", "2026-01-31": "2026-01-31", ".nan": ".nan",
    }  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text("".join(f"name_{k}: {text}\n" for k, text in enumerate(lines)))
    found = inputs.read_parameters(path).values()
    assert [(type(value), value) for value in found] == [(type(value), value) for value in lines.values()]


def test_a_file_for_the_book_has_names_that_every_notebook_has(tmp_path, monkeypatch, capsys):
    every = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in (ROOT / "parameters").glob("*.yaml"):
        assert inputs.read_parameters(path, every)["preset"] == path.stem
    (tmp_path / "parameters").mkdir()
    (tmp_path / "parameters" / "mine.yaml").write_text("preset: smoke\ninstances: 3\n")
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    with pytest.raises(SystemExit):
        command(monkeypatch, "execute", "mine")
    assert "'instances' is no parameter: 5-1-pretraining takes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", "2-sett", "mine.yaml"],
            "argument NAME: invalid choice: '2-sett' (choose from",
        ),
        (["run", "2-setting", "mine.yaml", "--out", "run.html"], "--out must be a file *.ipynb, not run.html"),
        (["execute", "quik"], "argument PRESET: invalid choice: 'quik' (choose from"),
        (["execute", "quick", "--jobs", "0"], "--jobs must be at least 1, not 0"),
    ],
)
def test_the_command_line_names_what_is_wrong(words, message, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        command(monkeypatch, *words)
    assert message in capsys.readouterr().err


def test_a_run_lands_whole_or_not_at_all(tmp_path, monkeypatch):
    path, out = tmp_path / "mine.yaml", tmp_path / "runs" / "out.ipynb"
    failed = out.with_name("out.failed.ipynb")
    path.write_text("preset: smoke\nseed: -1\n")
    with pytest.raises(SystemExit, match=rf"(?s)2-setting.*parameter 'seed'.*not -1.*how far it came is in {failed}"):
        command(monkeypatch, "run", "2-setting", path, "--out", out)
    assert [one.name for one in out.parent.iterdir()] == [failed.name]
    path.write_text("preset: smoke\nseed: 1\n")
    command(monkeypatch, "run", "2-setting", path, "--out", out)
    assert [one.name for one in out.parent.iterdir()] == [out.name]
    assert "seed = 1" in [line for cell in nbformat.read(out, 4).cells for line in cell.source.splitlines()]


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_papermill_shows_each_parameters_type_and_meaning(source):
    shown = papermill.inspect_notebook(str(source.with_suffix(".ipynb")))
    cells = nbformat.read(source.with_suffix(".ipynb"), 4).cells
    _, cell, code = [one.source for one in cells if one.cell_type == "code"][:3]
    calls = [node for node in ast.walk(ast.parse(code)) if getattr(getattr(node, "func", None), "id", "") == "check"]
    assert {word.arg for word in calls[0].keywords} <= shown.keys()
    assert all(one["inferred_type_name"] not in (None, "None") and one["help"] for one in shown.values()), shown
    assert all(len(line) <= 78 for line in cell.splitlines())


KERNEL = """
import os, sys
sys.prefix = sys.argv[1]  # as if this were the environment
from ipykernel.kernelapp import IPKernelApp
IPKernelApp().initialize(["-f", sys.argv[2]])
sys.stderr.flush()
os._exit(0)
"""
"""Starts a kernel, up to where it would wait for its first cell."""


@pytest.mark.parametrize("settings", ["of make install", "of make book", "none"])
def test_a_kernel_starts_without_a_warning(settings, tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    environment = tmp_path / "environment"
    if settings == "of make install":
        (recipe,) = re.findall(r"^\t@?(mkdir .*etc/ipython.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        subprocess.run(["sh", "-c", recipe.replace("$(VENV)", str(environment))], cwd=ROOT, check=True)
    if settings == "of make book":
        monkeypatch.setattr(pipeline, "ROOT", tmp_path)
        pipeline.quiet_kernels()
    call = [sys.executable, "-c", KERNEL, environment, tmp_path / "connection.json"]
    warned = subprocess.run(call, capture_output=True, text=True, check=True).stderr
    assert ("WARNING" in warned) == (settings == "none"), warned
