"""What is stored is what the two READMEs show: that of the benchmarks, and that of the tests."""

import pytest
import tables
import tried


@pytest.mark.parametrize("module", [tables, tried], ids=["benchmarks", "tests"])
def test_the_readme_has_the_tables_of_what_is_stored(module):
    assert module.README.read_text(encoding="utf8") == module.readme()


def contest(states: int, **seconds) -> dict:
    """A contest as it is stored; a text in place of seconds is the reason of a failure."""
    lines = []
    for name, value in seconds.items():
        part = {"failed": value} if isinstance(value, str) else {"seconds": [value] * 3, "peak": 3e6, "settled": 1e6}
        lines.append(dict(name=name, work=10.0, **part))
    return dict(what="posteriors", dtype="float64", threads=1, states=states, contestants=lines)


def test_tables_have_our_seconds_the_ratios_of_the_others_and_why_one_is_missing():
    record = {"rows": [contest(4, hmmlib=0.002, fast=0.001), contest(30, hmmlib=0.02, fast="no room", slow=0.5)]}
    wide = tables.by_states(record, "posteriors", "float64")
    assert wide.to_numpy().tolist() == [[4, 1, "2.00 ms", "0.500", "–"], [30, 1, "20.0 ms", "–", "25.0"]]
    assert tables.of_contests(record, "states").to_numpy().tolist() == [
        [4, "hmmlib", "2.00 ms", "1.00", "2.00 MB"],
        [4, "fast", "1.00 ms", "0.500", "2.00 MB"],
        [30, "hmmlib", "20.0 ms", "1.00", "2.00 MB"],
        [30, "fast", "no room", "–", "–"],
        [30, "slow", "500 ms", "25.0", "2.00 MB"],
    ]


def test_in_the_stored_contests_all_results_agree():
    """Also in tests/inference/test_messages.py, where the same peers are laid beside the library."""
    for name in ("posteriors", "memory", "sampling", "pretraining", "tuning"):
        assert {row["agree"] for row in tables.load(name)["rows"] if "agree" in row} <= {True, None}, name
