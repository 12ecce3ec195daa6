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
    long = tables.of_contests(record, "states")
    assert long.to_numpy().tolist() == [
        [4, "hmmlib", "2.00 ms", "1.00", "2.00 MB"],
        [4, "fast", "1.00 ms", "0.500", "2.00 MB"],
        [30, "hmmlib", "20.0 ms", "1.00", "2.00 MB"],
        [30, "fast", "no room", "–", "–"],
        [30, "slow", "500 ms", "25.0", "2.00 MB"],
    ]


def test_numbers_and_seconds_have_three_digits():
    numbers = [tables.number(x) for x in (0.04211, 4.712, 9.999, 321.4, 51_234_567, 0)]
    assert numbers == ["0.0421", "4.71", "10.0", "321", "51,200,000", "0.00"]
    assert [tables.seconds(x) for x in (2.5, 0.0123, 4.2e-6, 3e-9)] == ["2.50 s", "12.3 ms", "4.20 µs", "3.00 ns"]


@pytest.mark.parametrize("name", ["posteriors", "memory", "sampling", "pretraining", "tuning"])
def test_in_the_stored_contests_all_results_agree(name):
    assert {row["agree"] for row in tables.load(name)["rows"] if "agree" in row} <= {True, None}
