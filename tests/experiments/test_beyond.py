"""Measurements on request: what they give on a tiny trial, how they are asked for, and networks kept for them."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from runs import TINY, numbers

from hmmlib.experiments import trials
from hmmlib.experiments.beyond import FAMILIES, ON_REQUEST
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import is_stored, load_result, result_path, save_result
from hmmlib.experiments.sweeps import Outcome, run_missing
from hmmlib.experiments.trials import ORIGINAL, measure, run_trial

SPEC = TrialSpec("smoke", **TINY | dict(n_states=4, steps=30, train=200, epochs=2), temperature=0.2)
SHORTER = replace(SPEC, prompt_length=3)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


@pytest.fixture(scope="module")
def result(kept):
    torch.set_num_threads(1)
    return run_trial(SPEC, also=ON_REQUEST, networks=kept)


def test_all_of_it_is_there_and_is_stored_and_the_trial_is_as_without_it(result, tmp_path):
    assert set(result.added) == set(ON_REQUEST)
    assert not set(ON_REQUEST) & set(ORIGINAL)
    assert load_result(save_result(result, tmp_path)) == result
    assert result.probes["belief"].keys() == {"layer 0", "layer 1"}
    plain = run_trial(SPEC)
    assert (plain.added, numbers(plain)) == ({}, numbers(replace(result, added={})))
    for name in ("rain", "head_accuracy"):
        with pytest.raises(ValueError, match=rf"each of also must be one of .*text_kinds, .*, not '{name}'"):
            run_trial(SPEC, also=[name])


def test_the_exact_models_prompt_is_a_reweighting_and_larger_families_fit_no_worse_where_they_are_made(result):
    """On test texts by a little at most. Without a prompt, nothing changed is the floor."""
    exact = result.control_distances["exact model"]
    assert exact["reweighted"] < 1e-4
    assert exact["unchanged"] > 0.01
    assert exact["relabelled"] > exact["reweighted"]
    apart = {name: entry["all"] for name, entry in result.readout_distances.items()}
    assert set(apart) == {*FAMILIES, "free", "constant", "floor"}
    assert apart["reweighted"] <= apart["unchanged"] + 0.02
    assert apart["relabelled and reweighted"] <= min(apart["relabelled"], apart["reweighted"]) + 0.02
    assert apart["translated and reweighted"] <= min(apart["translated"], apart["reweighted"]) + 0.02
    plain = result.plain_distances
    assert plain["unchanged"] == pytest.approx(result.readout_distances["floor"])
    assert plain["relabelled"]["all"] < plain["unchanged"]["all"]
    assert plain["reweighted"]["all"] <= plain["unchanged"]["all"] + 0.02


def test_a_certified_label_is_right_and_what_is_counted_twice_is_the_same(result):
    for entry in result.certified.values():
        assert entry["certified but wrong"] == 0
        assert entry["certified"] <= entry["right"]
    assert result.accuracies_by_kind["head"]["all"] == pytest.approx(result.head_accuracy)
    assert result.accuracies_by_kind["prompt"]["all"] == pytest.approx(result.prompt_accuracy)
    assert result.prompt_cuts["none"]["accuracy"] == result.prompt_accuracy
    kinds = result.text_kinds
    assert kinds["near tie"] + kinds["clear"] == pytest.approx(1)
    assert kinds["weighed"] + kinds["not weighed"] == pytest.approx(1)
    assert result.readout_labels["relabelled"]["as behind the prompt"] <= 1


def test_a_kept_network_serves_other_tasks_and_no_other_network(result, kept, monkeypatch):
    def pretrained(*_):
        raise AssertionError("a network was pretrained that is kept")

    monkeypatch.setattr(trials, "pretrain", pretrained)
    assert run_trial(SHORTER, networks=kept).backbone == result.backbone
    assert SHORTER.network_hash == SPEC.network_hash != replace(SPEC, steps=31).network_hash
    for spec, networks in ((replace(SPEC, steps=31), kept), (SHORTER, None)):
        with pytest.raises(AssertionError, match="that is kept"):
            run_trial(spec, networks=networks)


@pytest.fixture
def asked_again(result, kept, tmp_path):
    """Store a result that has these measurements, from this or another library; ask for others; read it again."""

    def ask(added, also, rerun=False, **environment):
        save_result(replace(result, added=added, environment=result.environment | environment), tmp_path)
        assert is_stored(SPEC, tmp_path, also=list(added))
        assert not is_stored(SPEC, tmp_path, also=also, rerun=rerun)
        how = dict(also=also, rerun=rerun, networks=kept, log=str)
        assert run_missing([SPEC], tmp_path, **how) == Outcome(ran=[SPEC.hash])
        assert run_missing([SPEC], tmp_path, **how) == Outcome(stored=[SPEC.hash])
        return load_result(result_path(SPEC, tmp_path))

    return ask


def test_what_a_stored_result_lacks_is_measured_and_all_else_stays(result, asked_again, monkeypatch):
    monkeypatch.setattr(trials, "pretrain", None)
    monkeypatch.setattr("hmmlib.experiments.sweeps.run_trial", None)
    cuts = result.prompt_cuts | {"all": result.prompt_cuts["none"]}
    after = asked_again({"prompt_cuts": cuts}, ["prompt_cuts", "solvable"])
    assert after.added == {"prompt_cuts": cuts, "solvable": result.solvable}


def test_a_rerun_keeps_what_was_asked_for_before_and_measures_again_what_another_library_added(result, asked_again):
    another = "0123456789abcdef"
    after = asked_again({"prompt_cuts": result.prompt_cuts}, ["solvable"], True, library=another)
    assert after.added == {"prompt_cuts": result.prompt_cuts, "solvable": result.solvable}
    assert after.environment["library"] == result.environment["library"]
    source = f"2026-01-01, commit 0123456789ab, library {another}"
    noted = {"solvable measured": source, "prompt_cuts measured": source}
    solvable = result.solvable | {"votes apart": 0.0}
    cuts = result.prompt_cuts | {"all": result.prompt_cuts["none"]}
    assert solvable != result.solvable
    assert cuts != result.prompt_cuts
    after = asked_again({"solvable": solvable, "prompt_cuts": cuts}, ["prompt_cuts"], True, **noted)
    assert after.added == {"solvable": solvable, "prompt_cuts": result.prompt_cuts}


def test_it_is_measured_with_as_many_threads_as_the_result_was_made_with(result, monkeypatch):
    seen, threads = [], torch.get_num_threads()
    other = replace(result, added={}, environment=result.environment | {"threads": 2})
    build = trials.build_network
    monkeypatch.setattr(trials, "build_network", lambda spec: (seen.append(torch.get_num_threads()), build(spec))[1])
    with suppress(ValueError):  # two threads may or may not make another network of this size
        measure(other, ["prompt_cuts"])
    assert seen == [2]
    assert torch.get_num_threads() == threads


def test_where_another_network_comes_out_the_result_says_from_where_and_no_checkpoint_stays(result, tmp_path):
    foreign = replace(result, added={}, backbone="0" * 16, environment=result.environment | {"torch": "1.0"})
    with pytest.raises(ValueError, match=r"the result's is 0000000000000000, from device cpu, machine .*, torch 1.0"):
        measure(foreign, ["prompt_cuts"], checkpoint=tmp_path / "one.safetensors")
    assert not any(tmp_path.iterdir())


def test_a_folder_for_networks_that_is_none_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=r"networks must be a folder where files can be written, not .*file: "):
        run_missing([SPEC], store=tmp_path / "store", networks=tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_memory_models_and_other_labels_have_what_theory_gives_them(kept, monkeypatch):
    of_memory = run_trial(replace(SPEC, n_memory=2), also=["solvable"])
    assert of_memory.added == {"solvable": None}
    monkeypatch.setattr(trials, "pretrain", None)
    assert measure(of_memory, ["probes"]).probes is None, "no network is pretrained for it"
    for labels in ("before", "stepped"):
        asked = ["solvable", "certified", "readout_distances"]
        found = run_trial(replace(SPEC, labels=labels), also=asked, networks=kept)
        assert found.certified is None
        assert (found.solvable is None) == (labels == "stepped")
        assert found.readout_distances["free"]["all"] < 1
