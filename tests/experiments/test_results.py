"""The table of results: what its columns are, means with intervals, and what the paper drew."""

import dataclasses
import math
import re
from functools import partial

import numpy as np
import pytest
from scipy import stats

from hmmlib import mean_ci, results
from hmmlib.experiments.results import as_table, difference_ci, published
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import STORE, load_results, save_result


@pytest.fixture(scope="module")
def quick():
    return results("quick", STORE)


def test_a_row_for_each_trial_and_a_column_for_each_number(quick, tmp_path):
    stored = load_results("quick", STORE / "beyond")
    table = as_table(stored)
    assert len(table) == len(stored)
    for k in range(0, len(stored), 37):
        row, result = table.iloc[k].fillna(math.nan), stored[k]
        gain = None if result.prompt_accuracy is None else result.prompt_accuracy - result.head_accuracy
        wanted = {**vars(result.spec), "size": result.spec.size, "gain": gain, "excess_loss": result.excess_loss}
        for name in ("prompt_accuracy", "seconds.pretraining", "environment.device", "text_kinds.spread"):
            table_of, *part = name.split(".")
            found = getattr(result, table_of)
            wanted[name] = found[part[0]] if part and found else found
        for name, value in wanted.items():
            np.testing.assert_equal(row[name], math.nan if value is None else value, err_msg=name)
        usual = vars(TrialSpec("quick", result.spec.n_states, result.spec.seed, result.spec.n_memory))
        changes = {name: str(value) for name, value in vars(result.spec).items() if value != usual[name]}
        assert dict(word.split("=") for word in row.changes.split()) == changes
    assert quick.n_memory.is_monotonic_increasing
    one = load_results("smoke", STORE)[0]
    save_result(dataclasses.replace(one, added=one.added | {"rain": {"in May": 0.5}}), tmp_path)
    assert results("smoke", tmp_path)["rain.in May"].tolist() == [0.5], "a measurement of the reader's own"
    assert len(results("gpu", tmp_path)) == 0


def test_what_is_refused():
    for call, given, message in (
        (results, "huge", "preset must be one of"),
        (mean_ci, [1, -math.inf], "values must be finite"),
        (partial(mean_ci, share=True), [0.5, 1.1], "values must be shares"),
        (published, "middle", "panel must be one of left, right"),
    ):
        with pytest.raises(ValueError, match=message):
            call(given)


@pytest.mark.parametrize("values", [[0.5, 0.75, 1.0], [3.0] * 4, [0.1, np.nan, 0.3, None]])
def test_a_mean_has_students_interval(values):
    there = [value for value in values if value is not None and not np.isnan(value)]
    found, error = mean_ci(values), stats.sem(there)
    ends = stats.t.interval(0.95, len(there) - 1, loc=np.mean(there), scale=error) if error else (found.mean,) * 2
    assert (found.mean, found.n, found.low, found.high) == pytest.approx((np.mean(there), len(there), *ends))
    assert found.deviation == pytest.approx(np.std(there, ddof=1))


def test_the_difference_of_two_samples_has_welchs_interval():
    one, other = [1.0, 2.0, 4.0], [0.0, 0.5, 0.25, 1.0, 3.0]
    found = difference_ci(mean_ci(one), mean_ci(other))
    wanted = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high, found.n) == pytest.approx((wanted.low, wanted.high, 8))


def test_how_a_mean_is_shown_alone_and_of_groups(quick):
    assert f"{mean_ci([0.9, 0.95, 1.0], share=True)}" == "95.0% [82.6%, 100.0%]"
    assert str(mean_ci([0.9, 0.95, 1.0])) == "95.0% [82.6%, 107.4%]"
    assert f"{mean_ci([1.0, 2.0]):.1f}" == "1.5 [-4.9, 7.9]"
    assert f"{mean_ci([0.5])}" == "50.0% (one trial)"
    assert mean_ci([0.5]).low == -math.inf
    assert f"{mean_ci([])}" == "–"
    shown = quick.query("changes == ''").groupby("n_states")[["head_accuracy", "prompt_accuracy"]].agg(mean_ci)
    heads = quick[(quick.changes == "") & (quick.n_states == 30)].head_accuracy
    assert shown.loc[30, "head_accuracy"] == mean_ci(heads)
    assert re.search(r"30 .*\d\d\.\d% \[\d\d\.\d%, \d\d\.\d%\]", repr(shown))


def test_what_the_paper_drew():
    left, right = published("left"), published("right")
    assert ([*left.index], [*left.columns]) == ([4, 8, 10, 15, 25, 30], ["head tuning", "prompt tuning"])
    assert [*right.columns] == ["memory HMM + attention head", "vanilla HMM + linear head"]
    assert all(found.n == 20 and found.low < found.mean < found.high for found in left.to_numpy().ravel())
    assert f"{left['head tuning'][30].mean:.1%}" == "66.2%"
