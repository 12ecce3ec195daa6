"""A wrong name, type or value of a notebook's parameter stops its run and is named, with what is accepted. With a
reader's good ones a page runs to its end: what it asserts of data it asserts at its defaults only, and where there is
no time for trials it says what is missing."""

import papermill
import pytest
from built_book import ROOT
from lessons import run

from hmmbook.parameters import Count, Device, ParameterError, Preset, Seed, Sizes, check

DECLARED = {"preset": Preset, "seed": Seed, "sizes": Sizes, "instances": Count, "device": Device}
CELL = """# Parameters: change them here
preset: str = 'quick'
seed: int = 0
sizes = [4, 10]
instances: int
device = 'cpu'"""


def namespace(changes: dict, *cells: str) -> dict:
    """A notebook's globals after its own cell of parameters, papermill's where values are changed, and other cells."""
    ran = ["", CELL]
    if changes:
        lines = [f"{name} = {value!r}" for name, value in changes.items()]
        ran.append("\n".join(["# Parameters", *lines]))
    ran += cells
    return {"In": ran, "preset": "quick", "seed": 0, "sizes": [4, 10], "instances": 0, "device": "cpu", **changes}


def test_good_values_are_converted_and_a_run_with_others_than_those_of_the_text_says_so(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda markdown: shown.append(markdown.data))
    check(namespace({}), **DECLARED)
    assert not shown
    names = namespace(dict(seed="7", sizes="[30]", instances=5e3), "result = 3")  # which is no parameter
    check(names, **DECLARED)
    assert (names["seed"], names["sizes"]) == (7, [30])
    assert repr(names["instances"]) == "5000"
    assert ":** `seed` is 7 instead of 0, `sizes` is [30] instead of [4, 10]. So " in shown[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "Parameter 'seed': Input should be greater than or equal to 0, not -1"),
        ({"seed": True}, "Parameter 'seed': must be a number, not True"),
        ({"sizes": "4,30"}, r"""'sizes': Input should be a valid list, not '4,30'\. Write a list as "\[4, 8\]"\.$"""),
        ({"sizes": [4, 0]}, r"Parameter 'sizes\[1\]': Input should be greater than or equal to 1, not 0"),
        ({"sizes": []}, r"Parameter 'sizes': List should have at least 1 item .*, not \[\]"),
        ({"preset": "qiuck"}, r"'preset': Input should be 'smoke', 'quick'.*, not 'qiuck'\. Did you mean 'quick'\?"),
        ({"device": "gpu"}, "^Parameter 'device': must be one of auto, cpu, cuda, mps, or cuda:N, not 'gpu'"),
        ({"instances": None}, "Parameter 'instances': Input should be a valid integer, not None"),
        (
            {"preset": 3, "seeed": 7},
            r"^Unknown parameter 'seeed'\. Did you mean 'seed'.* seed.*\. Parameter 'preset'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_is_accepted_and_nothing_is_changed(changes, message):
    names = namespace(changes)
    before = dict(names)
    with pytest.raises(ParameterError, match=message):
        check(names, **DECLARED)
    assert names == before


def test_a_name_that_is_wrong_in_the_notebooks_own_cell_is_found_and_a_mended_cell_forgiven():
    names = namespace({"sed": 1}, CELL)
    check(names, **DECLARED)
    names["In"].append(CELL.replace("seed:", "seeed:"))
    with pytest.raises(ParameterError, match=r"Unknown parameter 'seeed'\. Did you mean 'seed'"):
        check(names, **DECLARED)


def test_papermill_stops_at_a_parameter_that_the_notebook_does_not_have(tmp_path):
    """It costs 3 seconds: only a run shows that papermill, which merely warns, is stopped."""
    notebook = ROOT / "notebooks" / "5-2-head-vs-prompt.ipynb"
    with pytest.raises(papermill.PapermillExecutionError, match=r"Unknown parameter 'seeed'\. Did you mean 'seed'"):
        papermill.execute_notebook(notebook, tmp_path / "out.ipynb", {"seeed": 7}, progress_bar=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gallery", {"seed": 5}),
        ("2-setting", {"seed": 3, "texts": 1000}),
        ("5-2-head-vs-prompt", {"seed": 7, "hidden_sizes": [4], "trials": 1}),
        ("5-3-memory-vs-vanilla", {"trials": 1, "memory_sizes": [2, 3]}),
        ("figure-3-in-detail", {"trials": 1, "hidden_sizes": [4]}),
    ],
)
def test_what_holds_of_data_at_the_defaults_is_asserted_only_there(name, parameters):
    run(name, **parameters)


def test_without_time_for_a_trial_the_page_says_what_is_missing_and_the_command_that_makes_it(capsys, call):
    run("solvable", minutes=1e-9, instances=5)
    printed = capsys.readouterr().out
    assert "None of the trials that this page shows was done in time." in printed
    _, command = printed.split("\npython -m hmmbook ")
    code, out, _ = call(*command.split("\n")[0].split(), "--max-minutes", "0")
    assert (code, "0 were run now" in out) == (0, True)
