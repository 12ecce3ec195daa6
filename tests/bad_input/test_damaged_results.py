"""Stored results, each damaged in one way: `load_result` refuses every one, says what is wrong, and leaves the file alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from damaged_results import DAMAGES, FULL, SOURCES, TABLES, add, damaged, lose, put
from record import tried

from hmmlib.experiments.fields import Anything
from hmmlib.experiments.measurements import MEASUREMENTS
from hmmlib.experiments.results import NOTED, NOTED_LATER
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import load_result, save_result
from hmmlib.experiments.trials import ORIGINAL, environment

pytestmark = pytest.mark.outside


@tried("stored results")
@pytest.mark.parametrize("damage", DAMAGES, ids=map(str, DAMAGES))
def test_a_damaged_result_is_refused_with_what_is_wrong_and_left_as_it_is(damage, tmp_path):
    path = damaged(damage, tmp_path)
    before = path.read_bytes()
    assert before != SOURCES[damage.of].read_bytes()
    with pytest.raises(ValueError, match=r"\.json is no readable result: ") as caught:
        load_result(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is no readable result: ")
    assert damage.words in message
    assert "\n" not in message.removeprefix(str(path))
    assert len(message) < 1000
    assert path.read_bytes() == before


def content_of(source: str) -> dict:
    return json.loads(SOURCES[source].read_text())


def stored(content: dict, folder: Path) -> Path:
    """Where the content is stored now, under the name that its spec gives."""
    spec = TrialSpec(**content["spec"])
    path = folder / spec.preset / f"{spec.hash}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1))
    return path


FINE_TOO = {
    "as it is": lambda content: None,
    "as many redraws as there are": put("redraws", 20),
    "a majority of half": put("majority_rate", 0.5),
    "a network that is lucky": add("network_loss", -0.0199, "best_loss"),
    "integers": put("head_accuracy", 1),
    "no head that is built": put("built_head_accuracy", None),
    "what a later version notes": put("environment", "cores", 4),
    "a machine without a name": put("environment", "machine", ""),
    "no commit": put("environment", "commit", None),
    "a commit with a tag": put("environment", "commit", "v0.2.0-5-g0123456789ab+"),
    "no table": lose("probes"),
    "no texts of a kind": put("accuracies_by_kind", "head", "spread", None),
    "no step": put("seconds", "on the way", 1.0),
}


@pytest.mark.parametrize("how", FINE_TOO)
def test_what_a_trial_could_have_written_is_read(how, tmp_path):
    content = content_of(FULL)
    FINE_TOO[how](content)
    result = load_result(stored(content, tmp_path))
    assert result.spec.hash == SOURCES[FULL].stem
    assert result.backbone == content["backbone"]


OF_OTHER_SIZES = {
    "an accuracy on other examples": put("head_accuracy", 1 / 3),
    "another accuracy in a table": put("accuracies_by_kind", "prompt", "all", 1 / 3),
    "more redraws": put("redraws", 25),
    "more tokens": lambda content: content.update(best_loss=3.0, network_loss=3.5),
    "more states": put("votes", "weighed", 1000),
    "more layers": put("prompt_cuts", "layer 3", {"accuracy": 0.5, "distance": 0.1}),
    "fewer layers": lose("probes", "belief", "layer 2"),
}
WRONG_FOR_ALL = {
    "an accuracy above all": (put("head_accuracy", 1.5), "head_accuracy must be a share"),
    "a network that is better than the best": (add("best_loss", 1.0, "network_loss"), "best_loss must be at most"),
    "a word in a table": (put("votes", "weighed", "many"), "votes: weighed must be a number, not 'many'"),
    "a table in a table in a table": (put("votes", "weighed", {"all": {}}), "votes: weighed: all must be a number"),
    "an empty environment": (put("environment", {}), "environment lacks device"),
    "no family": (lose("readout_distances", "free"), "readout_distances lacks free"),
}


@pytest.mark.parametrize("how", OF_OTHER_SIZES)
def test_parts_of_ones_own_may_be_of_other_sizes_than_the_specs(how, tmp_path):
    content = content_of(FULL)
    OF_OTHER_SIZES[how](content)
    with pytest.raises(ValueError, match="is no readable result"):
        load_result(stored(content, tmp_path))
    content["spec"]["own"] = "mine"
    assert load_result(stored(content, tmp_path)).spec.own == "mine"


@pytest.mark.parametrize("how", WRONG_FOR_ALL)
def test_what_hangs_on_no_size_is_asked_of_parts_of_ones_own_too(how, tmp_path):
    damage, words = WRONG_FOR_ALL[how]
    content = content_of(FULL)
    content["spec"]["own"] = "mine"
    damage(content)
    with pytest.raises(ValueError, match=f"is no readable result: {words}"):
        load_result(stored(content, tmp_path))


def test_what_can_be_read_can_be_stored_and_what_cannot_is_not(tmp_path):
    result = load_result(SOURCES[FULL])
    assert load_result(save_result(result, tmp_path / "store")) == result
    with pytest.raises(ValueError, match="a result that cannot be stored: head_accuracy must be a multiple of 1/1000"):
        save_result(replace(result, head_accuracy=0.12345), tmp_path / "other")
    with pytest.raises(ValueError, match="a result that cannot be stored: rain is no field of a result, and no measur"):
        save_result(replace(result, added=result.added | {"rain": 0.5}), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_every_measurement_says_what_it_gives_and_each_is_damaged():
    """Each that a result need not have; the others are fields of a result, whose types stand there."""
    later = {name: one.kinds[name] for one in MEASUREMENTS for name in one.names if name not in ORIGINAL}
    assert [name for name, kind in later.items() if kind is Anything] == []
    touched = set()
    for damage in TABLES:
        content = content_of(damage.of)
        damage.how(content)
        touched |= {name for name in later if content.get(name) != content_of(damage.of).get(name)}
    assert touched == later.keys()


def test_what_results_must_note_of_their_environment_is_what_trials_note():
    assert {*environment(), "date"} == {*NOTED, *NOTED_LATER}
    for path in SOURCES.values():
        assert {*load_result(path).environment} >= {*NOTED}
