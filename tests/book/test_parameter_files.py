"""Parameter files: read as they look, for notebooks that have such parameters; anything else is named, and runs nothing."""

import sys
from pathlib import Path

import nbformat
import parameter_files
import pytest
import yaml
from record import tried

import notebooks as pipeline

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
SETTING = ROOT / "notebooks" / "2-setting.ipynb"
TAKES = "2-setting takes preset, seed, instances"
WRITE = "write a number as 10 or 0.5, a truth value as true or false, and a word in quotes"

REFUSED = {
    "an octal number": ("preset: smoke\nseed: 010\n", f"010 in line 2 would be read as 8; {WRITE}"),
    "another": ("seed: -07\n", "-07 in line 1 would be read as -7"),
    "one in a list": ("instances: [4,\n  010]\n", "010 in line 2 would be read as 8"),
    "minutes and seconds": ("seed: 1:30\n", f"1:30 in line 1 would be read as 90; {WRITE}"),
    "degrees": ("seed: 1:30.5\n", "1:30.5 in line 1 would be read as 90.5"),
    "a country": ("preset: no\n", "no in line 1 would be read as False"),
    "a name that is a truth value": ("on: 3\n", "on in line 1 would be read as True"),
    "a day": ("seed: 2026-01-31\n", "2026-01-31 in line 1 would be read as datetime.date(2026, 1, 31)"),
    "no number": ("seed: .nan\n", ".nan in line 1 would be read as nan"),
    "a name of Python": ("globals: 3\n", f"'globals' is no parameter: {TAKES}"),
    "a name of IPython": ("In: 3\n", f"'In' is no parameter: {TAKES}"),
    "a name of another notebook": ("hidden_size: 3\n", f"'hidden_size' is no parameter: {TAKES}"),
    "a slip": ("instancse: 3\n", f"'instancse' is no parameter: did you mean 'instances'? {TAKES}"),
    "a word of Python": ("lambda: 3\n", "no parameter can be named 'lambda'"),
    "Latin 1": (b"preset: sm\xf6ke\n", "can't decode byte 0xf6"),
    "a list": ("- preset\n", "it must have lines `name: value`, not ['preset']"),
    "no file": (None, "No such file or directory"),
}
READ = {
    "numbers": ("seed: 10\ninstances: 0\n", {"seed": 10, "instances": 0}),
    "one with a sign": ("seed: +5\ninstances: -1\n", {"seed": 5, "instances": -1}),
    "as Python has them": ("seed: 1_000\ninstances: 0x10\n", {"seed": 1000, "instances": 16}),
    "fractions": ("seed: .5\ninstances: 1.5e+3\n", {"seed": 0.5, "instances": 1500.0}),
    "truth values": ("seed: true\ninstances: False\n", {"seed": True, "instances": False}),
    "nothing": ("seed: null\ninstances:\n", {"seed": None, "instances": None}),
    "words in quotes": ("preset: 'no'\nseed: \"010\"\n", {"preset": "no", "seed": "010"}),
    "a comment": ("# 010, 1:30\npreset: smoke  # globals\n", {"preset": "smoke"}),
}


def file(content: str | bytes | None, folder: Path) -> Path:
    path = folder / "mine.yaml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def command(monkeypatch, *words) -> None:
    monkeypatch.setattr(sys, "argv", ["notebooks.py", *map(str, words)])
    pipeline.main()


@tried("files and folders")
@pytest.mark.parametrize("how", REFUSED)
def test_a_parameter_file_that_is_none_is_named_with_what_is_wrong_and_runs_nothing(how, tmp_path, monkeypatch, capsys):
    content, words = REFUSED[how]
    path, out = file(content, tmp_path), tmp_path / "out.ipynb"
    out.write_text("mine")
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, "run", "2-setting", path, "--out", out)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"{path} is no parameter file: " in said
    assert words in said
    assert out.read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} <= {"out.ipynb", "mine.yaml"}


@pytest.mark.parametrize("how", READ)
def test_what_can_only_be_read_one_way_is_read(how, tmp_path):
    content, values = READ[how]
    found = parameter_files.read_parameters(file(content, tmp_path), [SETTING])
    assert {name: (type(value), value) for name, value in found.items()} == {
        name: (type(value), value) for name, value in values.items()
    }


def test_without_the_check_a_number_is_another_than_it_looks(tmp_path, monkeypatch):
    path = file("seed: 010\ninstances: 1:30\n", tmp_path)
    monkeypatch.setattr(parameter_files, "_check_plain", lambda text: None)
    assert parameter_files.read_parameters(path) == yaml.safe_load(path.read_text()) == {"seed": 8, "instances": 90}


def test_a_file_for_the_book_has_names_that_every_notebook_has(tmp_path, monkeypatch, capsys):
    every = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in (ROOT / "parameters").glob("*.yaml"):
        assert parameter_files.read_parameters(path, every)["preset"] == path.stem
    (tmp_path / "parameters").mkdir()
    (tmp_path / "parameters" / "mine.yaml").write_text("preset: smoke\ninstances: 3\n")
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    with pytest.raises(SystemExit):
        command(monkeypatch, "execute", "mine")
    assert (
        "mine.yaml is no parameter file: 'instances' is no parameter: 5-0-exact-ladder takes" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["2-sett", "mine.yaml"], "no such notebook: 2-sett; choose from 2-setting, 3-1-prompt"),
        (["2-setting", "mine.yaml", "--out", "run.html"], "--out must be a file *.ipynb, not run.html"),
    ],
)
def test_a_run_names_a_notebook_and_a_place(words, said, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        command(monkeypatch, "run", *words)
    assert said in capsys.readouterr().err


def test_a_run_lands_whole_or_not_at_all(tmp_path, monkeypatch):
    path, out = file("preset: smoke\nseed: -1\n", tmp_path), tmp_path / "runs" / "out.ipynb"
    failed = out.with_name("out.failed.ipynb")
    with pytest.raises(SystemExit, match=rf"(?s)2-setting: .*parameter 'seed'.*not -1.*how far it came is in {failed}"):
        command(monkeypatch, "run", "2-setting", path, "--out", out)
    assert [one.name for one in out.parent.iterdir()] == [failed.name]
    command(monkeypatch, "run", "2-setting", file("preset: smoke\nseed: 1\n", tmp_path), "--out", out)
    assert [one.name for one in out.parent.iterdir()] == [out.name]
    assert "seed = 1" in [line for cell in nbformat.read(out, 4).cells for line in cell.source.splitlines()]
