"""Notebook parameters: a wrong name, type or value stops the run and names itself."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from companion.parameters import Count, ParameterError, Preset, Seed, Sizes, check
from record import SLOW, slow

ROOT = Path(__file__).resolve().parents[2]
DECLARED = {"preset": Preset, "seed": Seed, "sizes": Sizes, "instances": Count}
CELL = "# Parameters: change them here\npreset: str = 'quick'\nseed: int = 0\nsizes = [4, 10]\ninstances: int"


def namespace(injected: str = "", **changed) -> dict:
    """A notebook's globals after its parameter cell, and a cell that papermill has injected."""
    values = {"preset": "quick", "seed": 0, "sizes": [4, 10], "instances": 0}
    return {"In": ["", CELL] + ([f"# Parameters\n{injected}"] if injected else []), **values, **changed}


def test_good_values_pass_and_are_converted():
    names = namespace(seed="7", sizes="[30]", instances=5e3, result=3)
    names["In"].append("result = 3")  # a name of another cell is no parameter
    check(names, **DECLARED)
    assert (names["seed"], names["sizes"], names["instances"]) == (7, [30], 5000)
    assert type(names["seed"]) is type(names["instances"]) is int


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": -1}, "parameter 'seed': Input should be greater than or equal to 0, not -1"),
        ({"seed": "abc"}, "parameter 'seed': Input should be a valid integer, .*, not 'abc'"),
        ({"seed": 1.5}, "parameter 'seed': .*integer.*, not 1.5"),
        ({"seed": True}, "parameter 'seed': .*must be a number, not True"),
        ({"sizes": "abc"}, r"""parameter 'sizes': Input should be a valid list, not 'abc'$"""),
        ({"sizes": "4,30"}, r"""parameter 'sizes': Input should be a valid list, not '4,30'$"""),
        ({"sizes": [4, 0]}, r"parameter 'sizes\[1\]': Input should be greater than or equal to 1, not 0"),
        ({"sizes": []}, r"parameter 'sizes': List should have at least 1 item .*, not \[\]"),
        ({"preset": "qiuck"}, "parameter 'preset': Input should be 'smoke', 'quick', 'laptop'.*, not 'qiuck'"),
        ({"instances": None}, "parameter 'instances': Input should be a valid integer, not None"),
        (
            {"preset": 3, "seeed": 7},
            "^unknown parameter 'seeed': did you mean 'seed'.* preset, seed.*; parameter 'preset'",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_what_is_accepted(changed, message):
    names = namespace("\n".join(f"{name} = {value!r}" for name, value in changed.items()), **changed)
    before = dict(names)
    with pytest.raises(ParameterError, match=message):
        check(names, **DECLARED)
    assert names == before


def test_a_name_that_is_wrong_in_the_notebooks_own_cell_is_found_and_a_mended_cell_forgiven():
    names = namespace("sed = 1")
    names["In"].append(CELL)
    check(names, **DECLARED)
    names["In"].append(CELL.replace("seed:", "seeed:"))
    with pytest.raises(ParameterError, match="unknown parameter 'seeed': did you mean 'seed'"):
        check(names, **DECLARED)


@pytest.mark.parametrize(
    ("changed", "note"),
    [({}, ""), ({"seed": 7}, "`seed` is 7 instead of 0"), ({"sizes": "[30]"}, "`sizes` is [30] instead of [4, 10]")],
)
def test_a_run_with_other_parameters_than_those_of_the_text_says_so(changed, note, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda markdown: shown.append(markdown.data))
    check(namespace("".join(f"{name} = {value!r}" for name, value in changed.items()), **changed), **DECLARED)
    assert [re.findall(r":\*\* (.*)\. So ", text) for text in shown] == [[note]] * bool(note)


def papermill(tmp_path, *arguments):
    notebook = str(ROOT / "notebooks" / "5-2-head-vs-prompt.ipynb")
    call = [sys.executable, "-m", "papermill", "--no-progress-bar", notebook, str(tmp_path / "out.ipynb"), *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "seeed", "7"], ["'seeed'", "did you mean 'seed'"]),
        pytest.param(["-p", "hidden_sizes", "[4, -3]"], ["hidden_sizes[1]", "-3"], marks=slow),
        pytest.param(["-p", "hidden_sizes", "abc"], ["hidden_sizes", "valid list"], marks=slow),
    ],
)
def test_papermill_stops_at_a_wrong_parameter(tmp_path, arguments, words):
    finished = papermill(tmp_path, *arguments)
    assert finished.returncode == 1
    assert all(word in finished.stderr for word in ["ParameterError", *words])


def test_papermill_runs_the_experiment_and_the_seed_matters(tmp_path):
    live = []
    for seed in ("7", "8") if SLOW else ("7",):  # tests/experiments has it that a trial's seed matters
        given = ["-p", "seed", seed, "-p", "hidden_sizes", "[4]", "-p", "trials", "1"]
        finished = papermill(tmp_path, "-f", "parameters/smoke.yaml", *given)
        assert finished.returncode == 0, finished.stderr
        outputs = [o for c in nbformat.read(tmp_path / "out.ipynb", 4).cells for o in c.get("outputs", [])]
        tables = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
        live.append(next(table for table in tables if "live</th>" in table))
        assert f"4 states, seed {seed}, live" in live[-1]
    assert len(set(live)) == len(live)
