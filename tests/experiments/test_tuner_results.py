"""What *Beyond the paper 5* says of prefixes and LoRA: they relabel, as prompts do."""

import pytest

from hmmlib.experiments.specs import select
from hmmlib.experiments.store import STORE, load_results
from hmmlib.experiments.summaries import LEFT, interval, size

pytestmark = pytest.mark.outside

HEAD, TUNED = LEFT.values()
STORED = load_results("quick", STORE / "beyond")
RATES = {"prompt": {}, "prefix": dict(tuner="prefix", prompt_rate=0.3), "LoRA": dict(tuner="lora", prompt_rate=0.01)}


def trials(name, n_states):
    found = [r for r in select(STORED, **RATES[name]) if size(r) == n_states and r.spec.n_memory == 1]
    found = [r for r in found if r.spec.seed < 10 and r.readout_distances]
    assert sorted(r.spec.seed for r in found) == list(range(10))
    return found


def of(read, group):
    return interval([read(r) for r in group]).mean


def far(family):
    return lambda r: r.readout_distances[family]["all"]


def test_each_rate_is_the_best_on_validation_examples_of_other_chains():
    for tuner, best in (("prefix", 0.3), ("lora", 0.01)):
        tried = {}
        for r in load_results("quick", STORE / "choices"):
            if r.spec.tuner == tuner:
                assert r.spec.seed >= 1000
                tried.setdefault(r.spec.prompt_rate, []).append(r.validation_prompt_accuracy)
        assert {len(each) for each in tried.values()} == {3}
        assert len(tried) == 4
        assert max(tried, key=lambda rate: sum(tried[rate])) == best


@pytest.mark.parametrize("n_states", [10, 30])
def test_nearly_all_labels_are_right_with_each(n_states):
    tuned = {name: of(TUNED, trials(name, n_states)) for name in RATES}
    assert tuned["prompt"] < min(tuned["prefix"], tuned["LoRA"]) < tuned["prompt"] + 0.03
    heads = [of(HEAD, trials(name, n_states)) for name in RATES]
    assert max(heads) - min(heads) < 0.01


@pytest.mark.parametrize("n_states", [10, 30])
def test_relabelling_takes_off_what_no_reweighting_does(n_states):
    moved = {}
    for name in RATES:
        group = trials(name, n_states)
        moved[name], weighed, told = (of(far(one), group) for one in ("unchanged", "reweighted", "relabelled"))
        assert 0.28 < 1 - weighed / moved[name] < 0.43
        assert 1 - told / moved[name] > (0.9 if n_states == 10 else 0.7)
        assert told < of(far("floor"), group) + 0.01
        assert sum(far("relabelled")(r) < far("reweighted")(r) for r in group) >= 9
    assert moved["prefix"] > moved["LoRA"] > moved["prompt"]


def test_the_page_in_short():
    found = {
        family: [f"{of(far(family), trials(name, 30)):.2f}" for name in RATES]
        for family in ("unchanged", "reweighted", "relabelled")
    }
    assert [(min(each), max(each)) for each in found.values()] == [("0.56", "0.64"), ("0.35", "0.40"), ("0.15", "0.17")]
    assert [f"{of(TUNED, trials(name, 30)):.0%}" for name in RATES] == ["95%", "96%", "97%"]
    assert {f"{of(HEAD, trials(name, 30)):.0%}" for name in RATES} == {"75%"}
