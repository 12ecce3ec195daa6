"""Notebook parameters: a wrong name, type or value stops the run and names itself."""

import subprocess
import sys
from pathlib import Path

import pytest
from companion.parameters import Count, ParameterError, Preset, Seed, Sizes, check
from record import SLOW, slow

ROOT = Path(__file__).resolve().parents[2]
DECLARED = {"preset": Preset, "seed": Seed, "sizes": Sizes, "instances": Count}


def namespace(injected: str = "", **changed) -> dict:
    """A notebook's globals after its parameter cell, and a cell that papermill has injected."""
    values = {"preset": "quick", "seed": 0, "sizes": [4, 10], "instances": 0}
    cells = ["", "# Parameters: change them here\npreset = 'quick'\nseed = 0\nsizes = [4, 10]\ninstances = 0"]
    return {"In": cells + ([f"# Parameters\n{injected}"] if injected else []), **values, **changed}


def test_good_values_pass_and_are_converted():
    names = namespace(seed="7", sizes="[30]", instances=5e3)
    check(names, **DECLARED)
    assert (names["seed"], names["sizes"], names["instances"]) == (7, [30], 5000)
    assert type(names["seed"]) is type(names["instances"]) is int


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": -1}, ["seed", "greater than or equal to 0", "-1"]),
        ({"seed": "abc"}, ["seed", "valid integer", "abc"]),
        ({"seed": 1.5}, ["seed", "1.5"]),
        ({"sizes": "abc"}, ["sizes", "valid list", "abc"]),
        ({"sizes": [4, 0]}, ["sizes[1]", "greater than or equal to 1"]),
        ({"sizes": []}, ["sizes", "at least 1 item"]),
        ({"preset": "qiuck"}, ["preset", "'smoke', 'quick', 'laptop'", "qiuck"]),
        ({"instances": None}, ["instances", "None"]),
    ],
)
def test_bad_value_is_named_with_what_is_accepted(changed, words):
    with pytest.raises(ParameterError) as error:
        check(namespace(**changed), **DECLARED)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_unknown_name_is_named_with_the_nearest():
    with pytest.raises(ParameterError, match="unknown parameter 'seeed': did you mean 'seed'") as error:
        check(namespace("seeed = 7", seeed=7), **DECLARED)
    assert "preset, seed, sizes, instances" in str(error.value)


def test_all_problems_are_told_at_once():
    with pytest.raises(ParameterError, match=r"'seeed'.*'preset'"):
        check(namespace("seeed = 7", preset=3), **DECLARED)


def test_names_of_other_cells_are_no_parameters():
    names = namespace(result=3)
    names["In"].append("result = 3")
    check(names, **DECLARED)


@pytest.mark.parametrize(
    ("changed", "told"),
    [({}, ""), ({"seed": 7}, "`seed` is 7 instead of 0"), ({"sizes": "[30]"}, "`sizes` is [30] instead of [4, 10]")],
)
def test_a_run_with_other_parameters_than_those_of_the_text_says_so(changed, told, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda note: shown.append(note.data))
    injected = "".join(f"{name} = {value!r}" for name, value in changed.items())
    check(namespace(injected, **changed), **DECLARED)
    assert [told in note for note in shown] == [True] * bool(told)


def test_a_type_beside_a_parameter_changes_nothing(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda note: shown.append(note.data))
    typed = "# Parameters: here\npreset: str = 'quick'\nseed: int = 0\nsizes: list[int] = [4, 10]\ninstances: int"
    for seed in (0, 7):
        names = namespace(seed=seed)
        names["In"][1] = typed
        check(names, **DECLARED)
    assert [("`seed` is 7 instead of 0" in note, "sizes" in note) for note in shown] == [(True, False)]
    names["In"][1] = typed.replace("seed:", "seeed:")
    with pytest.raises(ParameterError, match="unknown parameter 'seeed': did you mean 'seed'"):
        check(names, **DECLARED)


def test_a_mended_parameter_cell_is_forgiven():
    names = namespace("sed = 1")
    names["In"].append(names["In"][1])
    check(names, **DECLARED)


def papermill(tmp_path, *arguments):
    call = [
        sys.executable,
        "-m",
        "papermill",
        "--no-progress-bar",
        str(ROOT / "notebooks" / "5-2-head-vs-prompt.ipynb"),
    ]
    return subprocess.run(
        [*call, str(tmp_path / "out.ipynb"), *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "seeed", "7"], ["'seeed'", "did you mean 'seed'"]),
        pytest.param(["-p", "hidden_sizes", "[4, -3]"], ["hidden_sizes[1]", "-3"], marks=slow),
        pytest.param(["-p", "hidden_sizes", "abc"], ["hidden_sizes", "valid list"], marks=slow),
    ],
)
def test_papermill_stops_at_a_wrong_parameter(tmp_path, arguments, words):
    done = papermill(tmp_path, *arguments)
    assert done.returncode == 1
    assert all(word in done.stderr for word in ["ParameterError", *words])


def test_papermill_runs_the_experiment_and_the_seed_matters(tmp_path):
    import nbformat

    told = []
    for seed in ("7", "8") if SLOW else ("7",):  # tests/experiments/test_trials.py has it that a trial's seed matters
        done = papermill(
            tmp_path,
            "-f",
            "parameters/smoke.yaml",
            "-p",
            "seed",
            seed,
            "-p",
            "hidden_sizes",
            "[4]",
            "-p",
            "trials",
            "1",
        )
        assert done.returncode == 0, done.stderr
        cells = nbformat.read(tmp_path / "out.ipynb", 4).cells
        tables = [
            o.data["text/html"] for cell in cells for o in cell.get("outputs", []) if "text/html" in o.get("data", {})
        ]
        told.append(next(table for table in tables if "live</th>" in table))
        assert f"|H| = 4, seed {seed}, live" in told[-1]
    assert len(set(told)) == len(told)
