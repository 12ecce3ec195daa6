"""A page runs to its end with a reader's parameters: what it asserts of data it asserts at its defaults only, and where
there is no time for trials it says what is missing."""

import jupytext
import pytest
from built_book import ROOT


def run(name: str, **parameters) -> None:
    """Run the code of a page in this process, at smoke."""
    namespace = {}
    for cell in jupytext.read(ROOT / "notebooks" / f"{name}.md").cells:
        if cell.cell_type == "code":
            exec(cell.source, namespace)
        if "parameters" in cell.metadata.get("tags", []):
            namespace |= {"preset": "smoke"} | parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gallery", {"seed": 5}),
        ("2-setting", {"seed": 3, "instances": 1}),
        ("5-2-head-vs-prompt", {"seed": 7, "hidden_sizes": [4], "trials": 1}),
        ("5-3-memory-vs-vanilla", {"trials": 1, "memory_sizes": [2, 3]}),
    ],
)
def test_what_holds_of_data_at_the_defaults_is_asserted_only_there(name, parameters):
    run(name, **parameters)


def test_without_time_for_a_trial_the_page_says_what_is_missing_and_the_command_that_makes_it(capsys, call):
    run("solvable", minutes=1e-9, instances=5)
    printed = capsys.readouterr().out
    assert "What this page shows of trials is missing: none was done in time." in printed
    _, command = printed.split("\npython -m hmmlib ")
    code, out, _ = call(*command.split("\n")[0].split(), "--max-minutes", "0")
    assert (code, "0 run" in out) == (0, True)
