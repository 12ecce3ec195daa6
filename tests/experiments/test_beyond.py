"""Measurements on request: what they give on a tiny trial, how they are asked for, and networks kept for them."""

import re
from dataclasses import replace

import pytest
import torch
from runs import TINY, numbers

from hmmlib import TrialSpec, draw_model, load_result, run_trial, save_result
from hmmlib.experiments import trials
from hmmlib.experiments.beyond import FAMILIES
from hmmlib.experiments.movement import ON_REQUEST
from hmmlib.experiments.store import is_stored, result_path
from hmmlib.experiments.sweeps import Outcome, run_missing
from hmmlib.experiments.trials import ORIGINAL, measure
from hmmlib.training import checkpoints, readers

SPEC = TrialSpec("smoke", **TINY | dict(n_states=4, steps=30, train=200, epochs=2), temperature=0.2)


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


@pytest.fixture(scope="session")
def full(kept):
    """A trial of which all is measured, and whose network is kept."""
    return run_trial(SPEC, also=ON_REQUEST, networks=kept)


def test_all_of_it_is_there_and_is_stored_and_the_trial_is_as_without_it(full, tmp_path):
    """Storing checks that what is counted twice is the same."""
    assert set(full.added) == {"frequency_loss", *ON_REQUEST}
    assert not set(ON_REQUEST) & set(ORIGINAL)
    assert load_result(save_result(full, tmp_path)) == full
    assert full.probes["belief"].keys() == {"layer 0", "layer 1"}
    assert full.prompt_cuts["none"]["accuracy"] == full.prompt_accuracy
    assert {entry["certified but wrong"] for entry in full.certified.values()} == {0}
    plain = run_trial(SPEC)
    assert numbers(plain) == numbers(replace(full, added={"frequency_loss": full.frequency_loss}))
    for name in ("rain", "head_accuracy"):
        with pytest.raises(ValueError, match=rf"each of also must be one of .*text_kinds, .*, not '{name}'"):
            run_trial(SPEC, also=[name])


def test_the_exact_models_prompt_is_a_reweighting_and_larger_families_fit_no_worse_where_they_are_made(full):
    """On test texts by a little at most. Without a prompt, nothing changed is the floor."""
    exact, plain = full.control_distances["exact model"], full.plain_distances
    assert exact["reweighted"] < 1e-4 < 0.01 < exact["unchanged"]
    assert exact["relabelled"] > exact["reweighted"]
    apart = {name: entry["all"] for name, entry in full.readout_distances.items()}
    assert set(apart) == {*FAMILIES, "free", "constant", "floor"}
    assert apart["reweighted"] <= apart["unchanged"] + 0.02
    for both in ("relabelled and reweighted", "translated and reweighted"):
        assert apart[both] <= min(apart[one] for one in both.split(" and ")) + 0.02
    assert plain["unchanged"] == pytest.approx(full.readout_distances["floor"])
    assert plain["relabelled"]["all"] < plain["unchanged"]["all"]
    assert plain["reweighted"]["all"] <= plain["unchanged"]["all"] + 0.02


def test_a_milestone_is_the_network_that_was_there_and_the_last_one_is_the_result(full, kept, tmp_path):
    """Against one whose pretraining was broken off there, as its checkpoint has it; then only later ones are."""
    path = tmp_path / "trial.safetensors"
    assert list(full.on_the_way) == [str(3 * k) for k in range(1, 11)]
    last = dict(loss=full.network_loss, head=full.head_accuracy, prompt=full.prompt_accuracy)
    assert full.on_the_way["30"] == last
    with pytest.raises(ZeroDivisionError):
        run_trial(SPEC, lambda phase, share: 1 / (share < 0.5), checkpoint=path)
    network, (tensors, facts) = trials.build_network(SPEC), checkpoints.load(path, {})
    assert facts["done"] == "15"
    network.load_state_dict({k.removeprefix("network."): t for k, t in tensors.items() if k.startswith("network.")})
    how = SPEC.evaluation, SPEC.length, SPEC.masked, full.seeds["evaluation"]
    assert readers.masked_losses(network, draw_model(SPEC), *how)[0] == full.on_the_way["15"]["loss"]
    resumed = run_trial(SPEC, checkpoint=path, also=["on_the_way"])
    assert resumed.on_the_way == {k: found for k, found in full.on_the_way.items() if int(k) > 15}
    again = measure(replace(full, added={}), ["on_the_way"], networks=kept)
    assert again.on_the_way == full.on_the_way, "it is pretrained again, although it is kept"


def test_a_kept_network_serves_other_tasks_and_no_other_network(full, kept, monkeypatch):
    shorter, longer = replace(SPEC, prompt_length=3), replace(SPEC, steps=31)
    monkeypatch.setattr(trials, "pretrain", lambda *_: pytest.fail("a network was pretrained"))
    assert run_trial(shorter, networks=kept).backbone == full.backbone
    assert shorter.network_hash == SPEC.network_hash != longer.network_hash
    assert all(re.fullmatch(r"[0-9a-f]{16}\.safetensors", path.name) for path in kept.iterdir())
    for spec, networks in ((longer, kept), (shorter, None)):
        with pytest.raises(pytest.fail.Exception, match="a network was pretrained"):
            run_trial(spec, networks=networks)


@pytest.fixture
def asked_again(full, kept, tmp_path):
    """Store a result that has these measurements, from this or another library; ask for others; read it again."""

    def ask(added, also, rerun=False, **environment):
        save_result(replace(full, added=added, environment=full.environment | environment), tmp_path)
        assert is_stored(SPEC, tmp_path, also=list(added))
        assert not is_stored(SPEC, tmp_path, also=also, rerun=rerun)
        how = dict(also=also, rerun=rerun, networks=kept, log=str)
        assert run_missing([SPEC], tmp_path, **how) == Outcome(ran=[SPEC.hash])
        assert run_missing([SPEC], tmp_path, **how) == Outcome(stored=[SPEC.hash])
        return load_result(result_path(SPEC, tmp_path))

    return ask


def test_what_a_stored_result_lacks_is_measured_and_all_else_stays(full, asked_again, monkeypatch):
    monkeypatch.setattr(trials, "pretrain", None)
    monkeypatch.setattr("hmmlib.experiments.sweeps.run_trial", None)
    cuts = full.prompt_cuts | {"all": full.prompt_cuts["none"]}
    after = asked_again({"prompt_cuts": cuts}, ["prompt_cuts", "solvable"])
    assert after.added == {"prompt_cuts": cuts, "solvable": full.solvable}


def test_a_rerun_keeps_what_was_asked_for_before_and_measures_again_what_another_library_added(full, asked_again):
    another = "0123456789abcdef"
    both = {"prompt_cuts": full.prompt_cuts, "solvable": full.solvable}
    after = asked_again({"prompt_cuts": full.prompt_cuts}, ["solvable"], True, library=another)
    assert after.added == {"frequency_loss": full.frequency_loss} | both
    assert after.environment["library"] == full.environment["library"]
    source = f"2026-01-01, commit 0123456789ab, library {another}"
    noted = {"solvable measured": source, "prompt_cuts measured": source}
    solvable = full.solvable | {"votes apart": 1.0 - full.solvable["votes apart"]}
    cuts = full.prompt_cuts | {"all": full.prompt_cuts["none"]}
    after = asked_again({"solvable": solvable, "prompt_cuts": cuts}, ["prompt_cuts"], True, **noted)
    assert after.added == both | {"solvable": solvable}


def test_it_is_measured_with_as_many_threads_as_the_result_was_made_with(full, monkeypatch):
    seen, threads = [], torch.get_num_threads()
    other = replace(full, added={}, environment=full.environment | {"threads": 2})
    monkeypatch.setattr(trials, "build_network", lambda spec: seen.append(torch.get_num_threads()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measure(other, ["prompt_cuts"])
    assert (seen, torch.get_num_threads()) == ([2], threads)


def test_where_another_network_comes_out_the_result_says_from_where_and_no_checkpoint_stays(full, tmp_path):
    foreign = replace(full, added={}, backbone="0" * 16, environment=full.environment | {"torch": "1.0"})
    said = f"is {full.backbone}, the result's is {'0' * 16}, from device cpu, machine .*, torch 1.0"
    with pytest.raises(ValueError, match=f"the network that is pretrained here {said}"):
        measure(foreign, ["prompt_cuts"], checkpoint=tmp_path / "one.safetensors")
    assert not any(tmp_path.iterdir())


def test_memory_models_and_other_labels_have_what_theory_gives_them(full, kept, monkeypatch):
    of_memory = run_trial(replace(SPEC, n_memory=2), also=["solvable"])
    assert of_memory.added == {"frequency_loss": of_memory.frequency_loss, "solvable": None}
    monkeypatch.setattr(trials, "pretrain", None)
    assert measure(of_memory, ["probes"]).probes is None, "no network is pretrained for it"
    for labels in ("before", "stepped"):
        found = run_trial(replace(SPEC, labels=labels), also=["solvable", "certified"], networks=kept)
        assert found.certified is None
        assert (found.solvable is None) == (labels == "stepped")
