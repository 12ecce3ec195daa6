"""The table of results: its columns, means with intervals, and what the paper drew."""

import dataclasses
import math
import os
import re

import numpy as np
import pandas as pd
import pytest
import torch
from commands import one_line
from faults import no_longer_than
from runs import TINY
from scipy import stats

import hmmbook.studies  # noqa: F401 (registers the measurements)
from hmmbook import Parts, TrialSpec, draw_model, load_results, mean_ci, results, run_trial, save_result
from hmmbook.experiments.intervals import difference_ci
from hmmbook.experiments.results import as_table, published, spec_of
from hmmbook.experiments.store import STORE
from hmmlib import HMM


@pytest.fixture(scope="module")
def quick():
    return results("quick", STORE)


@pytest.fixture(scope="module")
def beyond():
    stored = load_results("quick", STORE / "beyond")
    return stored, as_table(stored)


def test_there_is_a_row_for_each_trial_in_order(quick, beyond):
    stored, table = beyond
    assert len(table) == len(stored)
    assert quick.n_memory.is_monotonic_increasing
    assert [spec_of(row).hash for _, row in table[::37].iterrows()] == [result.spec.hash for result in stored[::37]]


def test_columns_are_the_fields_of_the_spec_and_what_was_measured(beyond):
    stored, table = beyond
    for index in range(0, len(stored), 37):
        row = table.iloc[index]
        result = stored[index]
        for name, value in vars(result.spec).items():
            assert row[name] == value, name
        assert row["size"] == result.spec.size
        assert row["excess_loss"] == result.excess_loss
        assert row["seconds.pretraining"] == result.seconds["pretraining"]
        assert row["environment.device"] == result.environment["device"]


def test_a_number_that_a_trial_lacks_is_nan(beyond):
    stored, table = beyond
    for index in range(0, len(stored), 37):
        result = stored[index]
        for name in ("prompt_accuracy", "untrained_prompt_accuracy"):
            value = getattr(result, name)
            assert table.iloc[index][name] == value or (value is None and math.isnan(table.iloc[index][name]))
    with_kinds = table["text_kinds.spread"].notna()
    assert list(with_kinds) == ["text_kinds" in result.added for result in stored]


def test_the_gain_is_prompt_minus_head_in_one_trial(quick):
    vanilla = quick[quick.n_memory == 1]
    assert (vanilla.gain == vanilla.prompt_accuracy - vanilla.head_accuracy).all()
    assert quick[quick.n_memory > 1].gain.isna().all()


def test_the_changes_are_the_fields_that_are_not_the_presets():
    specs = [TrialSpec("smoke", 4, seed=3), TrialSpec("smoke", 4, steps=7, own="mine")]
    stored = load_results("smoke", STORE)[0]
    table = as_table(dataclasses.replace(stored, spec=spec) for spec in specs)
    assert sorted(table.changes) == ["", "steps=7 own=mine"]


def test_a_measurement_of_the_readers_own_is_a_column(tmp_path):
    stored = load_results("smoke", STORE)[0]
    save_result(dataclasses.replace(stored, added=stored.added | {"rain": {"in May": 0.5}}), tmp_path)
    assert results("smoke", tmp_path)["rain.in May"].tolist() == [0.5]
    with pytest.warns(UserWarning, match="has no results of the preset gpu, but it has some of smoke"):
        assert len(results("gpu", tmp_path)) == 0
    with pytest.warns(UserWarning, match=r"has no results of the preset gpu|is the folder of a preset") as caught:
        results("gpu", (tmp_path, tmp_path / "smoke"))
    assert len(caught) == 2
    with pytest.warns(UserWarning, match="smoke is the folder of a preset. Its store is "):
        assert len(results("smoke", tmp_path / "smoke")) == 0


def test_without_a_preset_the_column_store_names_the_store():
    table = results()
    assert set(table.store) == {"main", "beyond", "choices", "refits"}
    assert (table.store == "main").sum() == sum(len(results(preset)) for preset in set(table.preset))


# The share that a network has learned


def chain_of_three_states(spec):
    transition = [[0.9, 0.2, 0.1], [0.05, 0.7, 0.1], [0.05, 0.1, 0.8]]
    emission = [[1.0, 0, 0], [0, 1, 0], [0, 0, 0.5], [0, 0, 0.5]]
    return HMM(np.array(transition), np.array(emission), np.array([0.3, 0.3, 0.4]))


def test_the_share_learned_counts_from_the_frequencies_of_the_tokens():
    spec = TrialSpec("smoke", own="mine", **TINY)
    result = run_trial(spec, parts=Parts(model=chain_of_three_states))
    model = chain_of_three_states(spec)
    frequencies = sum((model.emission @ model.marginal(at)).numpy() for at in range(1, spec.length + 1)) / spec.length
    assert result.frequency_loss == pytest.approx(stats.entropy(frequencies))
    many_texts = dataclasses.replace(result, spec=spec.replace(evaluation=10**6))
    share = as_table([many_texts]).learned[0]
    assert share == pytest.approx(1 - result.excess_loss / (result.frequency_loss - result.best_loss))


def test_the_share_learned_is_unknown_where_too_few_texts_tell(result):
    few_texts = dataclasses.replace(result, spec=result.spec.replace(evaluation=1))
    assert math.isnan(as_table([few_texts]).learned[0])


def test_the_frequencies_of_a_memory_model_are_those_of_its_text():
    spec = TrialSpec("smoke", n_memory=2, temperature=0.2, **TINY)
    counts = draw_model(spec).sample(20_000, spec.length, 0).tokens.flatten().bincount()
    assert run_trial(spec).frequency_loss == pytest.approx(stats.entropy(counts.numpy()), abs=5e-3)


# Means


@pytest.mark.parametrize("values", [[0.5, 0.75, 1.0], [3.0] * 4, [0.1, np.nan, 0.3, None]])
def test_a_mean_has_students_interval(values):
    present = [value for value in values if value is not None and not np.isnan(value)]
    interval = mean_ci(values)
    assert interval.mean == pytest.approx(np.mean(present))
    assert interval.n == len(present)
    assert interval.deviation == pytest.approx(np.std(present, ddof=1))
    error = stats.sem(present)
    low = high = interval.mean
    if error:
        low, high = stats.t.interval(0.95, len(present) - 1, loc=np.mean(present), scale=error)
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_the_difference_of_two_samples_has_welchs_interval():
    first = [1.0, 2.0, 4.0]
    second = [0.0, 0.5, 0.25, 1.0, 3.0]
    interval = difference_ci(mean_ci(first), mean_ci(second))
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (interval.low, interval.high, interval.n) == pytest.approx((expected.low, expected.high, 8))


def test_the_difference_of_a_single_trial_has_no_interval():
    several = mean_ci([1.0, 2.0, 4.0])
    for first, second in ((mean_ci([3.0]), several), (several, mean_ci([3.0])), (mean_ci([3.0]), mean_ci([1.0]))):
        interval = difference_ci(first, second)
        assert (interval.low, interval.high) == (-math.inf, math.inf)
        assert interval.mean == first.mean - second.mean
        assert f"{interval:.1f}" == f"{interval.mean:.1f} (no interval)"
    assert f"{difference_ci(mean_ci([]), several)}" == "–"


def test_a_mean_of_tiny_or_huge_numbers_is_as_that_of_others():
    plain = mean_ci([1.0, 2.0, 4.0])
    for exponent in (-1000, -600, 600, 1000):
        scale = 2.0**exponent
        scaled = mean_ci([scale, 2 * scale, 4 * scale])
        assert scaled.mean == plain.mean * scale
        assert (scaled.low, scaled.high) == (plain.low * scale, plain.high * scale)
        assert scaled.deviation == pytest.approx(plain.deviation * scale)


def test_a_difference_of_tiny_or_huge_spreads_is_as_that_of_others():
    plain = difference_ci(mean_ci([1.0, 2.0, 4.0]), mean_ci([0.0, 0.5, 0.25]))
    for exponent in (-600, -300, 300, 600):
        scale = 2.0**exponent
        first = mean_ci([scale, 2 * scale, 4 * scale])
        second = mean_ci([0.0, scale / 2, scale / 4])
        scaled = difference_ci(first, second)
        assert (scaled.low / scale, scaled.high / scale) == pytest.approx((plain.low, plain.high))


def test_a_difference_is_that_of_two_means_and_has_no_deviation():
    sample = mean_ci([1.0, 2.0, 4.0])
    difference = difference_ci(sample, sample)
    assert math.isnan(difference.deviation)
    with pytest.raises(ValueError, match=r"^second must be the mean of one sample, .* not a difference of two$"):
        difference_ci(sample, difference)
    with pytest.raises(TypeError, match=r"^first must be of type Interval, not list$"):
        difference_ci([1.0, 2.0], sample)


def test_the_difference_of_two_columns_of_shares_is_shown_as_it_is():
    table = pd.DataFrame({"head_accuracy": [0.5, 0.75, 0.75], "other": [0.5, 0.5, 0.75]})
    difference = table.head_accuracy - table.other.rename("head_accuracy")
    assert difference.name == "head_accuracy"
    assert mean_ci(difference).low < 0
    assert mean_ci(difference).shown == (mean_ci(difference).low, mean_ci(difference).high)
    assert mean_ci(difference, share=True).shown[0] == 0
    negative = mean_ci(-difference)
    assert negative.shown == (negative.low, negative.high)
    assert mean_ci(table.head_accuracy).shown[1] == 1, "a mean of shares, and a difference, is at most 1"


def test_no_column_of_shares_that_is_stored_has_an_interval_that_reaches_below_0(quick, beyond):
    for table in (quick, beyond[1]):
        own = table[table.changes == ""]
        for column in ("head_accuracy", "prompt_accuracy", "attention_accuracy", "majority_rate"):
            assert all(interval.share for interval in own.groupby("size")[column].agg(mean_ci))
    assert mean_ci(pd.Series([0.25, 1.0], name="head_accuracy")).shown == (0, 1), "of two trials"


def test_how_a_mean_is_shown():
    assert f"{mean_ci([0.9, 0.95, 1.0], share=True)}" == "95.0% [82.6%, 100.0%]"
    assert str(mean_ci([0.9, 0.95, 1.0])) == "95.0% [82.6%, 107.4%]"
    assert f"{mean_ci([1.0, 2.0]):.1f}" == "1.5 [-4.9, 7.9]"
    assert f"{mean_ci([0.5])}" == "50.0% (one trial)"
    assert mean_ci([0.5]).low == -math.inf
    assert f"{mean_ci([])}" == "–"


def test_means_of_groups_of_a_table(quick):
    own = quick.query("changes == ''")
    means = own.groupby("n_states")[["head_accuracy", "prompt_accuracy"]].agg(mean_ci)
    assert means.loc[30, "head_accuracy"] == mean_ci(own[own.n_states == 30].head_accuracy)
    assert re.search(r"30 .*\d\d\.\d% \[\d\d\.\d%, \d\d\.\d%\]", repr(means))
    assert own[["head_accuracy", "gain"]].agg(mean_ci)["gain"] == mean_ci(own.gain)


def test_which_columns_are_shares_is_what_their_measurements_declare(quick):
    for name in ("head_accuracy", "built_prompt_accuracy", "majority_rate"):
        assert mean_ci(quick[name]).share, name
    for name in ("gain", "learning_rate", "prompt_rate", "best_loss", "seed"):
        assert not mean_ci(quick[name]).share, name
    assert mean_ci(pd.Series([0.0, 1.0], name="fake_token_bound")).share
    assert mean_ci(pd.Series([1.0, 1.5], name="prompt_rate")).mean == 1.25


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([0.25, None, pd.NA, 0.75], dtype=object),
        pd.Series([0.25, None, 0.75], dtype="Float64"),
        torch.tensor([0.25, 0.75]),
        (0.25, np.float32(0.75)),
        [False, np.True_],
    ],
)
def test_numbers_come_in_many_types_and_some_are_missing(values):
    assert (mean_ci(values).mean, mean_ci(values).n) == (0.5, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.DataFrame({"a": [0.5], "b": [0.25]}), r"one column of numbers, not DataFrame of shape \(1, 2\)"),
        ([[0.5, 0.25]], "one column of numbers, not list"),
        (0.5, "one column of numbers, not float"),
        ({0.5, 0.25}, "one column of numbers, not set"),
        (np.ma.masked_invalid([0.5, np.nan]), "values must have no masked entries"),
        ([0.5, np.ma.masked], "values must"),
        (["0.5"], "values must be numbers, not '0.5'"),
    ],
)
def test_what_is_no_column_of_numbers_is_refused(values, message):
    with pytest.raises((TypeError, ValueError), match=message):
        mean_ci(values)


def test_what_is_refused():
    with pytest.raises(ValueError, match="preset must be one of"):
        results("huge")
    with pytest.raises(ValueError, match="values must be finite"):
        mean_ci([1, -math.inf])
    with pytest.raises(ValueError, match="values must be shares"):
        mean_ci([0.5, 1.1], share=True)
    with pytest.raises(ValueError, match="panel must be one of left, right"):
        published("middle")


def test_what_the_paper_drew():
    left = published("left")
    assert list(left.index) == [4, 8, 10, 15, 25, 30]
    assert list(left.columns) == ["head tuning", "prompt tuning"]
    assert list(published("right").columns) == ["memory HMM + attention head", "vanilla HMM + linear head"]
    for interval in left.to_numpy().ravel():
        assert interval.n == 20
        assert interval.low < interval.mean < interval.high
    assert f"{left['head tuning'][30].mean:.1%}" == "66.2%"


def test_a_result_prints_in_a_line():
    printed = repr(load_results("smoke", STORE)[0])
    assert re.fullmatch(r"TrialResult\(smoke, n_states=\d+, seed=\d+: head_accuracy=0\.\d+, prompt_.*\)", printed)
    assert len(printed) < 160


def test_stored_results_are_exported_as_a_table(call, tmp_path):
    save_result(load_results("smoke", STORE)[0], tmp_path)
    file = tmp_path / "smoke.csv"
    code, out, _ = call("export", file, "--preset", "smoke", "--store", tmp_path)
    assert code == 0
    assert out.startswith("1 trials, ")
    written = pd.read_csv(file)
    table = results("smoke", tmp_path)
    assert list(written) == list(table)
    assert written.head_accuracy.tolist() == table.head_accuracy.tolist()


def test_an_export_that_fails_leaves_the_older_table_and_names_the_file(call, tmp_path, survived):
    file = tmp_path / "smoke.csv"
    file.write_text("older", encoding="utf8")
    with no_longer_than(1000):
        one_line(call("export", file, "--preset", "smoke", "--store", STORE), f"{file} could not be written: ")
    assert file.read_text(encoding="utf8") == "older"
    assert os.listdir(tmp_path) == [file.name], "no temporary file stays"
    survived("disk full")


def test_an_export_of_nothing_leaves_the_older_table(call, tmp_path):
    file = tmp_path / "gpu.csv"
    file.write_text("older", encoding="utf8")
    one_line(call("export", file, "--preset", "smoke", "--store", tmp_path), "there are no stored results to export")
    assert file.read_text(encoding="utf8") == "older"


def test_a_folder_in_the_place_of_a_table_is_named(call, tmp_path):
    folder = tmp_path / "smoke.csv"
    folder.mkdir()
    words = ["export", folder, "--preset", "smoke", "--store", STORE]
    one_line(call(*words), f"{folder} could not be written: it is no regular file")
