"""Running what a store lacks: what is run, the time box, failures, full disks, shards."""

import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from faults import fill
from runs import TINY, numbers, stored

from hmmbook import TrialSpec, load_result, result_path, run_missing, run_trial, save_result
from hmmbook.experiments import sweeps
from hmmbook.experiments.measurements import MEASUREMENTS, Measurement
from hmmbook.experiments.store import checkpoint_path
from hmmbook.experiments.sweeps import Outcome, Sweep, deadline, describe, shard_of, store_safely, summary

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(4)]
HASHES = [spec.hash for spec in SPECS]


def ignore(*values):
    """Take whatever is reported, and do nothing."""


@pytest.fixture(scope="module")
def results():
    return [run_trial(spec) for spec in SPECS]


def test_only_missing_trials_are_run_and_none_twice(results, tmp_path):
    path = save_result(results[1], tmp_path)
    before = path.stat().st_mtime_ns
    lines = []

    outcome = run_missing([*SPECS, *SPECS], tmp_path, log=lines.append)

    assert outcome == Outcome(stored=[HASHES[1]], ran=[HASHES[0], HASHES[2], HASHES[3]])
    assert stored(tmp_path) == {f"{result.spec.hash}.json": numbers(result) for result in results}
    assert path.stat().st_mtime_ns == before
    assert lines[0].startswith(f"{describe(SPECS[0])}: {summary(results[0]).partition(';')[0]}")
    assert lines[0].endswith("[2 of 4 stored, less than 1 min left]")
    assert lines[-1].endswith("[4 of 4 stored]")


def test_a_second_call_runs_nothing(results, tmp_path):
    for result in results:
        save_result(result, tmp_path)
    assert run_missing(SPECS, tmp_path, log=pytest.fail) == Outcome(stored=HASHES)


def test_rerun_runs_again_what_is_stored_and_keeps_what_was_measured_on_request(results, tmp_path):
    with_request = run_trial(SPECS[0], also=["exact_prompt_accuracy"])
    save_result(replace(with_request, redraws=19), tmp_path)
    outcome = run_missing(SPECS[:1], tmp_path, log=ignore, rerun=True)
    assert outcome == Outcome(ran=HASHES[:1])
    assert numbers(load_result(result_path(SPECS[0], tmp_path))) == numbers(with_request)


def test_a_result_that_lacks_a_measurement_is_measured_and_keeps_all_else(results, tmp_path):
    save_result(results[0], tmp_path)
    outcome = run_missing(SPECS[:1], tmp_path, log=ignore, also=["exact_prompt_accuracy"])
    assert outcome == Outcome(ran=HASHES[:1])
    after = load_result(result_path(SPECS[0], tmp_path))
    assert after.exact_prompt_accuracy > 0
    assert after.seconds.items() >= results[0].seconds.items()
    assert replace(after, added=results[0].added, seconds=results[0].seconds, environment={}) == replace(
        results[0], environment={}
    )


class Clock:
    """A clock by which the time is over once a report has come."""

    def __init__(self, spec, phase, share):
        self.last_report = (spec, phase, share)
        self.reports = []

    def report(self, spec, phase, share):
        self.reports.append((spec, phase, share))

    def monotonic(self):
        return 100.0 if self.last_report in self.reports else 0.0


def test_a_trial_cut_by_the_time_box_goes_on_where_it_was_and_ends_as_if_undisturbed(tmp_path, monkeypatch):
    fields = TINY | {"steps": 12, "dropout": 0.1, "documents": 3, "document_length": 60}
    spec = TrialSpec("smoke", **fields)
    clock = Clock(spec, "pretraining", 7 / 12)
    monkeypatch.setattr(sweeps, "time", clock)
    lines = []

    outcome = run_missing([spec, SPECS[0]], tmp_path, until=50.0, log=lines.append, on_progress=clock.report)

    assert outcome == Outcome(left=[spec.hash, HASHES[0]])
    kept = "was broken off, but its network after 7 of 12 steps is kept. Run it again to go on."
    assert lines == [f"{describe(spec)} {kept}"]
    assert stored(tmp_path) == {}

    clock = Clock(spec, "never", 0)
    monkeypatch.setattr(sweeps, "time", clock)
    outcome = run_missing([spec], tmp_path, log=ignore, on_progress=clock.report)

    assert outcome == Outcome(ran=[spec.hash])
    assert clock.reports[1] == (spec, "pretraining", 8 / 12), "nothing is pretrained twice"
    assert numbers(load_result(result_path(spec, tmp_path))) == numbers(run_trial(spec))
    assert not checkpoint_path(spec, tmp_path).exists()


def test_failing_trials_are_reported_and_the_others_go_on(tmp_path):
    diverging = SPECS[1].replace(learning_rate=1e30)
    lines = []
    outcome = run_missing([diverging, SPECS[1]], tmp_path, log=lines.append)
    reason = "pretraining diverged: the loss at step 1 is nan"
    assert outcome == Outcome(ran=[HASHES[1]], failed={diverging.hash: reason})
    assert lines[0].startswith(f"{describe(diverging, ['learning_rate'])}: failed: {reason}")
    assert set(stored(tmp_path)) == {f"{HASHES[1]}.json"}


def test_an_interrupt_keeps_a_checkpoint_and_says_so(tmp_path, capfd):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(spec, phase, share):
        if share == 0.5:
            os.kill(os.getpid(), signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            run_missing(SPECS, tmp_path, log=ignore, on_progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    kept = f"{describe(SPECS[0])} was broken off, but its network after 3 of 4 steps is kept. Run it again to go on."
    assert caught.value.__notes__ == [kept]
    assert capfd.readouterr().err == "stopping after this step\n"
    assert checkpoint_path(SPECS[0], tmp_path).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "quantum"}, "device must be one of"),
        ({"networks": __file__}, f"networks must be a folder where files can be written, not {__file__}: "),
        ({"also": ["rain"]}, "each of also must be one of .*, not 'rain'"),
        ({"also": ["head_accuracy"]}, "each of also must be one of .*, not 'head_accuracy'"),
        ({"until": float("nan")}, "until must be a time as time.monotonic.. counts, or math.inf for no limit, not nan"),
        ({"until": "5"}, "until must be a time as .*, not '5'"),
        ({"until": None}, "until must be a time as .*, not None"),
        ({"parts": 3}, "parts must be of type Parts, not int"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_before_any_work(arguments, message, tmp_path):
    with pytest.raises((ValueError, OSError, TypeError), match=message):
        run_missing(SPECS, tmp_path, **arguments)
    assert not any(tmp_path.iterdir())


def test_large_presets_on_a_cpu_are_warned_of(tmp_path):
    lines = []
    run_missing([TrialSpec("paper")], tmp_path, "cpu", until=0.0, log=lines.append)
    assert lines == ["paper is for a GPU, but this runs on a CPU, where a trial takes hours or days"]


def test_a_trial_and_its_result_in_words(results):
    result = results[0]
    accuracies = f"head {result.head_accuracy:.1%}, prompt {result.prompt_accuracy:.1%}, attention"
    assert summary(result).startswith(accuracies)
    assert "prompt" not in summary(replace(result, prompt_accuracy=None))
    clever = replace(result, majority_rate=0.5, head_accuracy=0.5, prompt_accuracy=0.75)
    assert "; majority 50.0%, excess" in summary(clever)
    assert "; majority 50.0%, which nothing exceeds, excess" in summary(
        replace(clever, prompt_accuracy=0.5, attention_accuracy=0.4)
    )
    assert describe(SPECS[0].replace(n_memory=2), ["steps"]) == "smoke |M| = 2, |H| = 3, seed 0, steps 4"


def test_the_pace_is_that_of_the_trials_so_far(monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(sweeps, "time", clock)
    sweep = Sweep(SPECS)
    assert sweep.pace() == "[0 of 4 stored]", "there is no pace before a trial has ended"
    sweep.outcome.ran.append(HASHES[0])
    clock.monotonic = lambda: 80.0
    assert sweep.pace() == "[1 of 4 stored, about 4 min left]", "three trials of 80 seconds"


def test_a_deadline_counts_in_minutes(monkeypatch):
    monkeypatch.setattr(sweeps, "time", SimpleNamespace(monotonic=lambda: 10.0))
    assert (deadline(None), deadline(2), deadline(0)) == (float("inf"), 130, 10)
    with pytest.raises(ValueError, match="max-minutes must be a number of 0 or more, not -1"):
        deadline(-1)


def test_shards_part_a_sweep():
    shards = [shard_of(SPECS, f"{index}/3") for index in (1, 2, 3)]
    assert shards == [[SPECS[0], SPECS[3]], [SPECS[1]], [SPECS[2]]]
    for text in ("0/3", "4/3", "1", "a/b", "1/", "-1/3", "", "1/3/3", "1/" + 5000 * "9", "1/3\n"):
        with pytest.raises(ValueError, match="shard must be I/N with I from 1 to N"):
            shard_of(SPECS, text)


# Disks that are full or cannot be written


@pytest.fixture
def rescued(tmp_path, monkeypatch):
    """Where in the system's temporary folder a result is kept that the store cannot take."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(["new"]))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary" / "hmmbook-rescued-new"


def test_a_result_that_cannot_be_stored_is_kept_elsewhere_and_the_error_says_where(results, tmp_path, rescued):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "smoke").write_text("a file in place of a folder")
    with pytest.raises(OSError, match=rf"could not be written: .*\. The finished result is kept in {rescued}"):
        store_safely(results[0], tmp_path / "store")
    assert load_result(result_path(SPECS[0], rescued)) == results[0]


@pytest.mark.parametrize("taken", ["file", "missing"])
def test_the_first_error_is_never_hidden_by_a_temporary_folder_that_cannot_be_written(
    taken, results, tmp_path, monkeypatch
):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "smoke").write_text("a file in place of a folder")
    if taken == "file":
        (tmp_path / "temporary").write_text("mine")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    path = result_path(SPECS[0], tmp_path / "store")
    message = rf"{path} could not be written: .*\. The finished result could not be kept elsewhere either: "
    with pytest.raises(OSError, match=message):
        store_safely(results[0], tmp_path / "store")


def test_a_file_that_is_damaged_while_the_trial_runs_does_not_cost_its_result(results, tmp_path, rescued):
    path = result_path(SPECS[0], tmp_path)
    path.parent.mkdir()

    def damage(spec, phase, share):
        if (phase, share) == ("prompt tuning", 1.0):
            path.write_text("mine", encoding="utf8")

    with pytest.raises(OSError, match=f"{path.name} is no readable result: .* is kept in {rescued}"):
        run_missing(SPECS[:1], tmp_path, log=ignore, on_progress=damage)
    assert numbers(load_result(result_path(SPECS[0], rescued))) == numbers(results[0])
    assert path.read_text(encoding="utf8") == "mine"


def test_a_damaged_file_is_named_before_any_work_also_where_it_is_to_be_run_again(tmp_path, monkeypatch):
    path = result_path(SPECS[0], tmp_path)
    path.parent.mkdir()
    path.write_text("mine", encoding="utf8")
    monkeypatch.setattr(sweeps, "run_trial", lambda *arguments, **options: pytest.fail("a trial was begun"))
    with pytest.raises(ValueError, match=f"{path.name} is no readable result"):
        run_missing(SPECS[:1], tmp_path, log=ignore, rerun=True)


def test_a_result_that_cannot_be_stored_fails_alone(results, tmp_path, monkeypatch):
    impossible = replace(results[0], head_accuracy=1.5)
    made = iter([impossible, results[1]])
    monkeypatch.setattr(sweeps, "run_trial", lambda *arguments, **options: next(made))
    outcome = run_missing(SPECS[:2], tmp_path, log=ignore)
    assert outcome.ran == [HASHES[1]]
    assert "head_accuracy: Input should be less than or equal to 1" in outcome.failed[HASHES[0]]


def test_a_disk_that_becomes_full_loses_no_finished_trial(results, disk, rescued, survived):
    store = disk(kib=8000)

    def fill_at_the_end(spec, phase, share):
        if (phase, share) == ("prompt tuning", 1.0):
            fill(store)

    with pytest.raises(OSError, match=f"No space left on device.* is kept in {rescued}"):
        run_missing(SPECS[:1], store, log=ignore, on_progress=fill_at_the_end)
    assert numbers(load_result(result_path(SPECS[0], rescued))) == numbers(results[0])
    survived("disk full")


def test_a_disk_that_is_full_for_a_checkpoint_is_named_and_the_trial_runs_when_there_is_room(
    results, disk, rescued, survived
):
    store = disk(kib=4000)
    filler = fill(store)
    told = pytest.warns(UserWarning, match=r"No space left on device\. The network is pretrained, so the trial goes on")
    with told, pytest.raises(OSError, match=f"No space left on device.* is kept in {rescued}"):
        run_missing(SPECS[:1], store, log=ignore)
    filler.unlink()
    assert numbers(load_result(result_path(SPECS[0], rescued))) == numbers(results[0]), "a checkpoint is not needed"
    assert run_missing(SPECS[:1], store, log=ignore) == Outcome(ran=HASHES[:1])
    assert stored(store) == {f"{HASHES[0]}.json": numbers(results[0])}
    survived("disk full")


def test_what_is_stored_on_a_read_only_disk_can_be_read(results, disk, survived):
    store = disk()
    save_result(results[0], store)
    disk.read_only()
    assert run_missing(SPECS[:1], store, log=ignore) == Outcome(stored=HASHES[:1])
    survived("store read-only")


# Two processes on one store


def test_a_trial_that_another_process_finishes_meanwhile_is_only_run_twice(results, tmp_path):
    def store_the_same(spec, phase, share):
        if (phase, share) == ("pretraining", 1.0):
            save_result(results[0], tmp_path)

    outcome = run_missing(SPECS[:1], tmp_path, log=ignore, on_progress=store_the_same)
    assert outcome == Outcome(ran=HASHES[:1])
    assert stored(tmp_path) == {f"{HASHES[0]}.json": numbers(results[0])}


def test_a_measurement_of_ones_own_is_added_to_stored_results(results, tmp_path, monkeypatch):
    monkeypatch.setattr("hmmbook.experiments.measurements.MEASUREMENTS", list(MEASUREMENTS))

    @Measurement("states", on_request=True)
    def states(model):
        return {"states": float(model.n_states)}

    path = Path(save_result(results[0], tmp_path))
    run_missing(SPECS[:1], tmp_path, log=ignore, also=["states"])
    assert load_result(path).states == 3


def test_a_measurement_that_stored_results_lack_is_told(results, tmp_path, monkeypatch):
    save_result(results[0], tmp_path)
    monkeypatch.setattr("hmmbook.experiments.measurements.MEASUREMENTS", list(MEASUREMENTS))
    Measurement("states")(lambda model: {"states": float(model.n_states)})
    lines = []
    run_missing(SPECS[:1], tmp_path, log=lines.append)
    assert lines == ["1 of 1 results were stored without states. Use also=['states'] to add it."]

    lines.clear()
    run_missing(SPECS[:1], tmp_path, log=lines.append, also=["states"])
    assert len(lines) == 1, "the trial's own line"
    assert load_result(result_path(SPECS[0], tmp_path)).states == 3


def test_a_new_store_keeps_a_checkpoint_too(tmp_path, monkeypatch):
    store = tmp_path / "new"
    clock = Clock(SPECS[0], "pretraining", 0.5)
    monkeypatch.setattr(sweeps, "time", clock)
    run_missing(SPECS[:1], store, until=50.0, log=ignore, on_progress=clock.report)
    assert checkpoint_path(SPECS[0], store).exists()


def test_a_store_that_cannot_be_written_is_named_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(sweeps, "run_trial", lambda *arguments, **options: pytest.fail("a trial was begun"))
    with pytest.raises(OSError, match=r"store must be a folder where files can be written, not .*file/store"):
        run_missing(SPECS, tmp_path / "file" / "store", log=ignore)


def test_what_another_process_has_measured_meanwhile_stays(results, tmp_path):
    more = replace(results[0], added=results[0].added | {"rain": 1.0})

    def store_more(spec, phase, share):
        if (phase, share) == ("pretraining", 1.0):
            save_result(more, tmp_path)

    run_missing(SPECS[:1], tmp_path, log=ignore, on_progress=store_more, also=["exact_prompt_accuracy"])
    stored_result = load_result(result_path(SPECS[0], tmp_path))
    assert stored_result.added["rain"] == 1.0
    assert stored_result.exact_prompt_accuracy > 0
