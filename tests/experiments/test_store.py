"""The result store: files that survive, files that are refused, and what is committed."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from record import tried
from runs import TINY

from hmmbook import TrialSpec, is_stored, load_result, load_results, panel_specs, result_path, run_trial, save_result
from hmmbook.experiments import store as store_module
from hmmbook.experiments.parts import trial_seeds
from hmmbook.experiments.store import STORE, checkpoint_path

SPEC = TrialSpec("smoke", **TINY)


def with_seed(result, seed):
    """The same numbers under the spec of another seed."""
    return replace(result, spec=result.spec.replace(seed=seed), seeds=trial_seeds(seed))


def test_a_result_survives_the_store(result, tmp_path):
    path = save_result(result, tmp_path)
    assert path == result_path(SPEC, tmp_path) == tmp_path / "smoke" / f"{SPEC.hash}.json"
    assert load_result(path) == result
    assert is_stored(SPEC, tmp_path)
    assert not is_stored(SPEC.replace(seed=1), tmp_path)
    assert os.listdir(path.parent) == [path.name], "no temporary file stays"


def test_a_result_replaces_an_older_one(result, tmp_path):
    save_result(result, tmp_path)
    path = save_result(replace(result, redraws=3), tmp_path)
    assert load_result(path).redraws == 3


def test_a_result_is_read_by_a_relative_path(result, tmp_path, monkeypatch):
    path = save_result(result, tmp_path)
    monkeypatch.chdir(path.parent)
    assert load_result(path.name) == result


def test_results_come_ordered_and_what_a_killed_writer_leaves_is_none(result, tmp_path):
    expected = []
    for n_states in (2, 3, 10):
        for seed in (0, 1, 12):
            spec = SPEC.replace(n_states=n_states, seed=seed)
            expected.append(replace(result, spec=spec, seeds=trial_seeds(seed)))
    for each in reversed(expected):
        save_result(each, tmp_path)
    (tmp_path / "smoke" / ".abc.123.tmp").write_text("{")
    assert load_results("smoke", tmp_path) == expected
    assert load_results("quick", tmp_path) == []


def test_a_store_is_written_to_in_its_first_folder_and_read_in_all(result, tmp_path):
    mine = tmp_path / "mine"
    shared = tmp_path / "shared"
    store = (mine, shared)
    shared_path = save_result(result, shared)
    assert result_path(SPEC, store) == shared_path
    assert is_stored(SPEC, store)

    other = with_seed(result, 1)
    assert save_result(other, store).is_relative_to(mine)
    assert load_results("smoke", store) == [result, other]
    assert checkpoint_path(SPEC, store).is_relative_to(mine)

    newer = replace(result, redraws=3)
    assert save_result(newer, store).is_relative_to(mine)
    assert load_result(shared_path) == result, "what is shared stays as it is"
    assert load_results("smoke", store) == [newer, other], "the first folder's file counts"


@pytest.mark.parametrize(
    ("beside", "named", "expected"),
    [
        ("pyproject.toml", "", ["mine/results", "results"]),
        ("pyproject.toml", "/somewhere", ["/somewhere", "results"]),
        ("hmmlib-9.9.dist-info", "", ["data/hmmlib/results", "hmmbook/results"]),
        ("hmmlib-9.9.dist-info", "/somewhere", ["/somewhere", "hmmbook/results"]),
    ],
)
def test_new_results_never_lie_among_installed_files(beside, named, expected, tmp_path, monkeypatch):
    (tmp_path / beside).touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HMMBOOK_MINE", named)
    monkeypatch.setattr(store_module, "PACKAGES", tmp_path)
    monkeypatch.setattr(store_module, "ROOT", tmp_path)
    monkeypatch.setattr(store_module, "STORE", tmp_path / "results")
    assert store_module._project_store() == tuple(tmp_path / folder for folder in expected)


def test_a_store_in_the_users_home_may_begin_with_a_tilde(result, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HMMBOOK_MINE", "~/of mine")
    assert store_module._project_store()[0] == tmp_path / "of mine"
    path = save_result(result, "~/of mine")
    assert path == tmp_path / "of mine" / "smoke" / f"{SPEC.hash}.json"
    assert load_result(f"~/of mine/smoke/{SPEC.hash}.json") == result
    assert load_results("smoke", "~/of mine") == [result]
    run_trial(SPEC, networks="~/networks", checkpoint="~/unfinished.pt")
    assert len(os.listdir(tmp_path / "networks")) == 1


def test_a_relative_store_stays_where_it_was_when_it_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMMBOOK_MINE", "mine")
    store = store_module._project_store()
    monkeypatch.chdir("/")
    assert result_path(SPEC, store).is_relative_to(tmp_path / "mine")


def test_a_store_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"store must be a folder .* there is no .*nothing yet"):
        load_results("smoke", tmp_path / "nothing yet")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match=r"or not yet there, but .*file is something else"):
        load_results("smoke", tmp_path / "file")
    with pytest.raises(ValueError, match="store must name a folder, not ''"):
        load_results("smoke", "")


# Files that are no results


def keep_half(path):
    text = path.read_text()
    path.write_text(text[: len(text) // 2])


def write_bytes(content):
    def write(path):
        path.write_bytes(content)

    return write


def edit(**changes):
    """Change entries of the file."""

    def write(path):
        content = json.loads(path.read_text()) | changes
        path.write_text(json.dumps(content))

    return write


def edit_spec(**changes):
    """Change fields of the file's spec."""

    def write(path):
        content = json.loads(path.read_text())
        content["spec"] |= changes
        path.write_text(json.dumps(content))

    return write


def drop(name):
    def write(path):
        content = json.loads(path.read_text())
        del content[name]
        path.write_text(json.dumps(content))

    return write


def become_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def become_a_link_to_nothing(path):
    path.unlink()
    path.symlink_to(path.parent / "elsewhere")


UNREADABLE = [
    (become_a_pipe, "it is no regular file"),
    (become_a_link_to_nothing, "it is no regular file"),
    (write_bytes(b"\x80\x02}q\x00."), ""),
    (write_bytes(b"[" * 100_000), "recursion"),
    (write_bytes(b"null"), "Input should be a valid dictionary, not None"),
    (keep_half, ""),
    (drop("head_accuracy"), "file.head_accuracy: Field required"),
    (edit(format=3), "file.format: Input should be 2, not 3"),
    (edit(spec=["quick"]), "file.spec: Input should be a valid dictionary, not ['quick']"),
    (edit(divergence=float("nan")), ""),
    (edit(head_accuracy="0.9"), "file.head_accuracy: Input should be a valid number, not '0.9'"),
    (edit(head_accuracy=61.7), "file.head_accuracy: Input should be less than or equal to 1, not 61.7"),
    (edit_spec(heads=3), "width must be a multiple of heads"),
    (edit_spec(n_states=5), "so it was edited or renamed"),
    (edit_spec(preset="quick"), "preset is quick"),
]


@tried("stored results")
@pytest.mark.parametrize(("damage", "message"), UNREADABLE)
def test_a_file_that_is_no_result_is_refused_by_name_and_left_as_it_is(damage, message, result, tmp_path):
    path = save_result(result, tmp_path)
    damage(path)
    before = path.read_bytes() if path.is_file() else None
    for read in (load_result_of_spec, load_all, is_result_stored):
        with pytest.raises(ValueError, match=rf"{path.name} is no readable result: .*{re.escape(message)}"):
            read(tmp_path)
    assert (path.read_bytes() if path.is_file() else None) == before


def load_result_of_spec(store):
    return load_result(result_path(SPEC, store))


def load_all(store):
    return load_results("smoke", store)


def is_result_stored(store):
    return is_stored(SPEC, store)


def test_a_result_in_the_folder_of_another_preset_is_refused(result, tmp_path):
    save_result(result, tmp_path).parent.rename(tmp_path / "quick")
    with pytest.raises(ValueError, match="its preset is smoke, not that of its folder, quick"):
        load_results("quick", tmp_path)


# Numbers that no trial gives

IMPOSSIBLE = [
    {"head_accuracy": 61.7},
    {"head_accuracy": "0.9"},
    {"head_accuracy": True},
    {"head_accuracy": None},
    {"redraws": -1},
    {"redraws": 0.5},
    {"best_loss": None},
    {"network_loss": -1.0},
    {"network_loss": float("inf")},
    {"divergence": float("nan")},
    {"backbone": "unknown"},
    {"seconds": {"pretraining": -1.0}},
    {"seconds": None},
    {"seeds": {"model": "one"}},
    {"environment": {}},
    {"added": {"exact_prompt_accuracy": 1.5}},
    {"added": {"frequency_loss": -1.0}},
    {"added": {"rain": {1, 2}}},
    {"added": {"seconds": 1.0}},
    {"added": {"head.accuracy": 1.0}},
]


@tried("stored results")
@pytest.mark.parametrize("changes", IMPOSSIBLE, ids=str)
def test_a_number_of_the_wrong_type_or_range_is_not_stored(changes, result, tmp_path):
    (name,) = changes
    with pytest.raises(ValueError, match=r"^this result cannot be stored: ") as caught:
        save_result(replace(result, **changes), tmp_path)
    named = next(iter(changes["added"])) if name == "added" else name
    assert named in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_measurement_that_such_trials_do_not_have_is_not_stored(result, tmp_path):
    memory = replace(result, spec=SPEC.replace(n_memory=2), added={"exact_prompt_accuracy": 0.9})
    with pytest.raises(ValueError, match="exact_prompt_accuracy: Input should be None"):
        save_result(memory, tmp_path)


def test_a_measurement_of_the_readers_own_is_stored(result, tmp_path):
    rain = {"in April": 0.5, "in May": {"all": 0.25}}
    path = save_result(replace(result, added=result.added | {"rain": rain}), tmp_path)
    assert load_result(path).added["rain"] == rain


FOREIGN = [
    ('"rain": 1e999', "rain"),
    ('"rain": {"a": [1e999]}', "rain.a"),
    ('"head.accuracy": 0.5', "head.accuracy"),
    ('"added": {}', "added"),
    ('"__class__": 1', "__class__"),
    ('"exact_prompt_accuracy": 1.5', "exact_prompt_accuracy"),
    ('"frequency_loss": "much"', "frequency_loss"),
]


@tried("stored results")
@pytest.mark.parametrize(("entry", "name"), FOREIGN)
def test_an_entry_that_no_result_has_is_an_error_that_names_file_and_entry(entry, name, result, tmp_path):
    result = replace(result, added={})
    path = save_result(result, tmp_path)
    path.write_text(path.read_text(encoding="utf8").replace('"format"', f'{entry}, "format"', 1), encoding="utf8")
    with pytest.raises(ValueError, match=re.escape(f"{path} is no readable result: ") + ".*" + re.escape(name)):
        load_result(path)


def test_what_a_measurement_gave_that_is_not_known_here_is_read_and_written_again(result, tmp_path):
    own = {"rain": [0.5, 1], "snow": {"in May": {"a": {"b": {"c": None}}}}}
    path = save_result(replace(result, added=result.added | own), tmp_path)
    loaded = load_result(path)
    assert (loaded.added["rain"], loaded.added["snow"]) == (own["rain"], own["snow"])
    before = path.read_bytes()
    assert save_result(loaded, tmp_path).read_bytes() == before


def test_a_store_of_no_folder_is_refused(result):
    with pytest.raises(ValueError, match=r"^store must name at least one folder, not \(\)$"):
        save_result(result, ())


# What is committed


def committed_files():
    return [path for path in STORE.rglob("*") if path.is_file() and not path.parent.name.startswith(".")]


def test_every_committed_result_is_saved_to_the_same_bytes(tmp_path):
    paths = committed_files()
    assert len(paths) > 2000
    for path in paths:
        again = save_result(load_result(path), tmp_path)
        assert (again.name, again.read_bytes()) == (path.name, path.read_bytes())


def test_every_committed_result_is_in_its_place_and_made_by_a_commit():
    for path in committed_files():
        result = load_result(path)
        name = path.relative_to(STORE).as_posix()
        assert re.fullmatch(r"((beyond|choices|refits)/)?[a-z-]+/[0-9a-f]{16}\.json", name)
        assert re.fullmatch(r"[0-9a-f]{12}", result.environment["commit"] or ""), "the tree had uncommitted changes"
        assert result.excess_loss > -0.02, "better than the best only by chance"


def test_settings_were_chosen_on_other_seeds_than_those_that_are_shown():
    for path in committed_files():
        seed = load_result(path).spec.seed
        assert ("choices" in path.parts) == (1000 <= seed < 3000)


def test_no_trial_of_figure_3_is_missing():
    stored = {result.spec for result in load_results("quick", STORE)}
    for panel, trials in (("left", 20), ("right", 5)):
        missing = set(panel_specs("quick", panel, trials)) - stored
        assert not missing, f"run: hmmbook trial --panel {panel} --missing"


def test_a_checkpoint_lies_beside_the_results_of_its_preset():
    assert checkpoint_path(SPEC, Path("/store")) == Path(f"/store/smoke/.unfinished/{SPEC.hash}.pt")
