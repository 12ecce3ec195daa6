"""Models at the ends of what a float holds, integers that are small, and arguments that only later calls would stumble on."""

import math
import os
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, Joint
from companion.figures import figures
from companion.figures.interactive import nearly_dependent_columns
from companion.figures.live import changed
from good_calls import CELL, MEMORY, MU, PLAIN, PLAN, PRETRAINING, RECOVERY, SYNTAX, TRIANGLE, network
from record import tried
from transformers import BertConfig, BertModel

from hmmlib.experiments.cluster import reachable
from hmmlib.experiments.specs import TrialSpec, select
from hmmlib.experiments.store import load_results
from hmmlib.inference.messages import log_likelihood, masked_token_probs, masked_token_probs_from_embeddings, posterior
from hmmlib.models import chains
from hmmlib.models.appendix_e import random_memory_hmm
from hmmlib.models.families import recoverable_memory_hmm, regular_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_4_2, essential_states, recoverable_columns, weighted_values
from hmmlib.theory.heads import AttentionHead
from hmmlib.theory.theorems import lemma_c_2, lemma_d_2, prompt_for_any_start, theorem_3_3, theorem_3_6, theorem_4_3
from hmmlib.training.pretraining import Pretraining, pretrain
from hmmlib.training.tuning import all_probs, probs_behind_prompt, tune_exact_prompt

SINGLE = PLAIN.to(dtype=torch.float32)
NEVER_IN_1 = HMM([[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.2], [0.1, 0.8]], [1.0, 0.0])
HARDLY_IN_1 = HMM([[0.5, 0.5], [0.5, 0.5]], [[0.6, 0.3], [0.4, 0.7]], [1 - 1e-310, 1e-310])
FAR_APART = HMM([[1.0, 1, 1], [1e-200, 1e-200, 0], [0, 1e-200, 0]], np.eye(3), [1 / 3] * 3)
HARDLY_LEFT = MemoryHMM([[1.0, 1], [1e-310, 0]], np.full((2, 2, 2), 0.5), [0.5, 0.5], [0.5, 0.5])
PARTS = np.eye(2), np.eye(2), np.array([0.5, 0.5])


def exactly_stationary(transition: torch.Tensor) -> list[Fraction]:
    """By the same elimination, in fractions: nothing is rounded."""
    rest = [[Fraction(entry) for entry in row] for row in transition.double().tolist()]
    for k in range(len(rest) - 1, 0, -1):
        leaving = sum(rest[h][k] for h in range(k))
        rest[k][:k] = [entry / leaving for entry in rest[k][:k]]
        for h in range(k):
            rest[h][:k] = [a + rest[h][k] * b for a, b in zip(rest[h][:k], rest[k][:k], strict=True)]
    weights = [Fraction(1)]
    for k in range(1, len(rest)):
        weights.append(sum(a * b for a, b in zip(rest[k][:k], weights, strict=True)))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize(("kind", "accurate"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_chains_whose_rates_lie_far_apart_have_their_stationary_law(kind, accurate, monkeypatch):
    again = []
    in_logarithms = chains._eliminated_in_logarithms
    monkeypatch.setattr(
        chains, "_eliminated_in_logarithms", lambda rates: (again.append(rates), in_logarithms(rates))[1]
    )
    generator, tiny = torch.Generator().manual_seed(0), torch.finfo(kind).tiny
    for _ in range(200):
        n = int(torch.randint(2, 7, (1,), generator=generator))
        powers = torch.rand(n, n, generator=generator, dtype=torch.float64) * math.log(tiny) * 0.9
        there = torch.rand(n, n, generator=generator) < 0.5
        there[torch.arange(1, n), torch.arange(n - 1)] = there[0, n - 1] = True  # a cycle, so no state is ever lost
        rates = torch.where(there, powers.exp(), 0).to(kind)
        found, exact = chains.eliminated(rates), exactly_stationary(rates)
        assert all(abs(found[k].item() / float(exact[k]) - 1) < accurate for k in range(n) if exact[k] > tiny), rates
    assert 20 < len(again) < 180


def test_a_product_that_is_lost_beside_a_larger_term_is_noticed():
    chain = [
        [0.9, 1e-280, 1e-280, 0, 0, 0],
        [0, 1, 0, 1e-200, 0, 0],
        [0, 0, 1, 1e-280, 0, 1e-100],
        [1e-300, 0, 0, 1, 1e-300, 1e-200],
        [0, 1e-100, 0, 0, 1, 0],
        [0.1, 0, 1e-280, 0, 0, 1],
    ]
    found = HMM(chain, np.ones((1, 6)), np.full(6, 1 / 6)).stationary().numpy()
    assert np.allclose(found, [10 / 3 * 1e-280, 2e-200 / 3, 1 / 3, 2e-100 / 3, 2 / 3, 2e-180 / 3], rtol=1e-12, atol=0)


POSTERIORS = posterior(NEVER_IN_1, [[0, 1], [1, 1]])
HEAD_OF_FOUR = dict(query=[1.0] * 4, key=np.ones((4, 3)), value=np.ones((6, 3)), output=np.ones(6))
NO_D, BEYOND = (
    "Lemma C.2 divides by P[H_0], which is zero",
    "model must have probabilities whose quotients torch.float64",
)
UNFIT = "transition, initial, emission and memory do not fit each other"
REFUSED = {
    "D of Lemma C.2": (lambda: lemma_c_2(NEVER_IN_1, torch.ones(2)), NO_D, "in some state"),
    "a prompt read without D": (
        lambda: probs_behind_prompt(NEVER_IN_1, POSTERIORS, torch.ones(2)),
        NO_D,
    ),
    "a prompt tuned without D": (lambda: tune_exact_prompt(NEVER_IN_1, POSTERIORS, [1, 0], PLAN, 0), NO_D),
    "D that is infinite": (lambda: theorem_3_3(HARDLY_IN_1, [0, -1.0]), BEYOND, "mu"),
    "D that is zero": (lambda: theorem_3_6(FAR_APART, [1.0, -1.0, 0.0], [0, 1, 2]), BEYOND),
    "an infinite prompt": (
        lambda: prompt_for_any_start(HARDLY_LEFT, [1.0, -1.0], 0),
        "model must have probabilities P[H_0] / P[H_1] that",
    ),
    "a prompt below float32": (
        lambda: masked_token_probs(SINGLE, [[0, 1]], [1e-50, 2e-50, 0]),
        "prompt must not be so small",
        "zero as torch.float32",
    ),
    "embeddings below float32": (
        lambda: masked_token_probs_from_embeddings(SINGLE, np.full((1, 2, 3), 1e-50)),
        "embeddings must not be so small",
    ),
    "weights below float32": (lambda: theorem_3_3(SINGLE, [1, 1e-50, 0]), "mu must have no weight so small"),
    "cells of no whole number of states": (
        lambda: AttentionHead(**HEAD_OF_FOUR, n_cells=2),
        "n_cells must divide |H| = 3",
        "2",
    ),
    "a result of no preset": (
        lambda: select(load_results("smoke"), preset="quikc"),
        "preset must be one of",
        "'quikc'",
    ),
    "a result of no labels": (lambda: select(load_results("smoke"), labels="mine"), "labels must be one of", "'mine'"),
    "a result of steps in words": (lambda: select([], steps="60"), "steps must be an integer", "'60'"),
    "words for numbers": (
        lambda: figures.scatter(["1", "2"], ["1", "3"], [0, 1], "x", "y"),
        "x must be",
        "real numbers",
    ),
    "complex numbers": (lambda: figures.distributions({"a": [1j, 0]}, ["x", "y"]), "rows['a']", "real", "complex"),
    "more inputs than digits": (
        lambda: nearly_dependent_columns(TRIANGLE, MU, "abc", length=10_000),
        "length must give",
        "not be 10000",
    ),
    "a column in part": (lambda: nearly_dependent_columns(TRIANGLE, MU, "abc", merge=(0.0, 1.0)), "merge", "0.0"),
    "a port that is none": (lambda: reachable("localhost:²"), "address must be HOST:PORT or auto", "'localhost:²'"),
    "a witness of another shape": (lambda: Enumeration(np.ones((3, 3)), *PARTS[1:], np.ones((2, 2))), UNFIT),
    "a table of another shape": (lambda: Joint(*PARTS[:2], [1.0], [None]), UNFIT),
    "a table of half a state": (
        lambda: Joint(np.eye(3), np.ones((2, 2, 3)), [1.0, 0, 0], [None], np.eye(2)),
        "memory must have",
    ),
    "a witness before the first token": (
        lambda: Enumeration(*PARTS, np.ones((2, 2))).masked_token(0),
        "leave_out must be 1 to 2, not 0",
    ),
    "a witness behind the last": (lambda: Enumeration(*PARTS, np.ones((2, 2))).state(3), "at must be 0 to 2, not 3"),
}


@tried("arguments of functions")
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_had_is_refused_in_words(what):
    call, *said = REFUSED[what]
    with pytest.raises(ValueError, match=r"^[a-zA-Z]") as error:
        call()
    assert str(error.value).startswith(said[0])
    assert all(part in str(error.value) for part in said[1:]), error.value


@tried("arguments of functions")
def test_a_network_without_the_head_of_a_masked_language_model_is_named():
    config = BertConfig(vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    for call in (
        lambda bare: all_probs(bare, torch.tensor([[0, 1]])),
        lambda bare: pretrain(bare, PLAIN, Pretraining(1, 4, 2, 0.5, 0.1, 0.1, 1), 0),
    ):
        with pytest.raises(TypeError, match=r"network must be of type BertForMaskedLM, .* not BertModel"):
            call(BertModel(config))


@tried("arguments of functions")
@pytest.mark.parametrize("seed", [torch.Generator(), 1.0])
def test_pretraining_takes_a_seed_that_a_checkpoint_can_name(seed):
    with pytest.raises(ValueError, match=r"seed must be an integer from 0 to 2\*\*63 - 1, not"):
        pretrain(network(), PLAIN, PRETRAINING, seed)


@tried("arguments of functions")
def test_a_recovery_of_another_cell_is_refused():
    other = random_memory_hmm(MEMORY.n_memory, MEMORY.n_states, MEMORY.n_tokens)  # as many states, but one cell
    moved = type(RECOVERY)(RECOVERY.theta_1, RECOVERY.theta_2, 1, RECOVERY.syntax, RECOVERY.condition)
    with pytest.raises(ValueError, match="cell must hold integers from 0 to 0, not"):
        lemma_d_2(other, moved)


def test_small_integers_of_numpy_do_not_wrap_round():
    model = random_memory_hmm(2, 3 * 128, 5, n_cells=3)
    for cell in range(3):
        for found, wanted in zip(
            recoverable_columns(model, np.uint8(cell), [0]), recoverable_columns(model, cell, [0]), strict=True
        ):
            assert torch.equal(found, wanted)
        assert str(assumption_4_2(model, np.uint8(cell), [0])) == str(assumption_4_2(model, cell, [0]))
    head, same = (
        theorem_4_3(MEMORY, [1.0, -1.0], np.uint8(CELL), SYNTAX),
        theorem_4_3(MEMORY, [1.0, -1.0], CELL, SYNTAX),
    )
    assert torch.equal(head.key, same.key)
    large = random_memory_hmm(np.uint8(16), 4, 5, n_cells=np.uint8(2))
    assert torch.equal(large.memory, random_memory_hmm(16, 4, 5, n_cells=2).memory)
    one = recoverable_memory_hmm(*map(np.uint8, (1, 20, 20, 1, 20)), 0)[0]
    assert torch.equal(one.emission, recoverable_memory_hmm(1, 20, 20, 1, 20, 0)[0].emission)


def test_what_float32_can_hold_is_not_refused():
    assert masked_token_probs(SINGLE, [[0, 1]], [1e-50, 0.5, 0]).isfinite().all()
    assert weighted_values(MEMORY.to(dtype=torch.float32), [1e-30, 0]) == [0]


def test_an_impossible_text_leaves_the_gradient_of_the_others():
    emission = torch.tensor([[1.0, 0], [0, 1], [0, 0]], dtype=torch.float64, requires_grad=True)
    found = log_likelihood(HMM([[0.5, 0.5], [0.5, 0.5]], emission, [0.5, 0.5]), [[0, 1], [2, 0]])
    found[0].backward()
    assert found[1] == -torch.inf
    assert torch.equal(emission.grad, torch.tensor([[1.0, 1], [1, 1], [0, 0]], dtype=torch.float64))


def test_a_prompt_is_tuned_without_a_gradient_for_the_model():
    emission = PLAIN.emission.clone().requires_grad_()
    model = HMM(PLAIN.transition, emission, PLAIN.initial)
    prompt, _ = tune_exact_prompt(model, torch.eye(3)[:2], [1, 0], PLAN, 0)
    assert emission.grad is None
    assert torch.equal(prompt, tune_exact_prompt(PLAIN, torch.eye(3)[:2], [1, 0], PLAN, 0)[0])


def test_lengths_that_are_given_are_kept():
    assert changed("smoke", length=100) == {"length": 100}
    assert TrialSpec("smoke", **changed("smoke", task_length=100)).task_length == 100


@pytest.mark.outside
def test_that_no_set_of_states_is_essential_is_said_at_once():
    begun = time.monotonic()
    assert essential_states(regular_hmm(40, 39, 0, 0.85), torch.ones(40)) is None
    assert time.monotonic() - begun < 5


def test_arrows_may_come_one_by_one():
    places = {"a": (0, 0), "b": (1, 0)}
    drawn = figures.dependencies(places, (pair for pair in [("a", "b")]), (name for name in ["b"]))
    same = figures.dependencies(places, [("a", "b")], ["b"])
    assert len(drawn.axes[0].texts) == len(same.axes[0].texts) == 3
    assert [text.get_text() for text in drawn.axes[0].texts] == [text.get_text() for text in same.axes[0].texts]


def test_a_closed_stdout_is_no_traceback():
    command = [sys.executable, "-m", "hmmlib", "info", "--device", "quantum"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1))
    assert ended.returncode == 2
    assert "'quantum'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_ledger_that_cannot_be_written_is_refused_before_the_work(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from hmmlib import __main__ as command_line

    monkeypatch.setattr("companion.evidence.ledger.run_all", lambda *_, **__: pytest.fail("the work was begun"))

    def full(dir):
        raise OSError(f"No space left on device: {dir}")

    monkeypatch.setattr(command_line, "TemporaryFile", full)
    ended = CliRunner().invoke(command_line.app, ["ledger", "--out", str(tmp_path / "ledger.json")])
    assert isinstance(ended.exception, OSError)
    assert not any(tmp_path.iterdir())


def test_a_host_that_is_no_name_is_refused_with_its_address():
    address = f"{'a' * 100}.{'b' * 100}:9"
    with pytest.raises(OSError, match=f"no Ray cluster answers at {address}"):
        reachable(address)
