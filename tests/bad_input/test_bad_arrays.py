"""Arrays that are not what they seem: masked, without numbers, out of a type's range, shared, or part of a graph."""

import copy
import math

import numpy as np
import pytest
import torch
from good_calls import ATTENTION, LABELS, MEMORY, MEMORY_PROBS, MU, PLAIN, PLAN, PRETRAINING, TASK, TOKENS, network
from record import tried

from hmmlib.experiments.labels import draw_task
from hmmlib.experiments.ladder import rung
from hmmlib.inference.messages import (
    latent_given_others,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    memory_posterior,
    posterior,
    posteriors,
)
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.theory.theorems import lemma_c_2, theorem_3_3
from hmmlib.training.pretraining import pretrain
from hmmlib.training.tuning import (
    Tuning,
    probs_behind_prompt,
    tune_attention,
    tune_exact_prompt,
    tune_head,
    tune_prompt,
)

SINGLE = PLAIN.to(dtype=torch.float32)
DOUBLE = torch.float64
GROWING = torch.tensor(0.5, dtype=DOUBLE, requires_grad=True)
HEAD = LinearHead(torch.tensor([1.0, -1.0]))
REFUSED = {
    "masked tokens": (lambda: posteriors(PLAIN, np.ma.masked_equal(TOKENS, 2)), "tokens", "integers", "a masked array"),
    "masked model": (lambda: HMM(np.ma.masked_equal(np.eye(2), 0), np.eye(2), [1, 0]), "transition", "a masked array"),
    "masked head": (lambda: LinearHead(np.ma.masked_equal([1.0, 2.0], 1)), "weights", "numbers", "a masked array"),
    "masked labels": (lambda: tune_head(TASK.posteriors, np.ma.masked_equal([0, 1], 1), PLAN, 0), "labels", "be bool"),
    "masked weights": (lambda: theorem_3_3(PLAIN, np.ma.masked_equal(MU, 0.5)), "mu", "shape (3,)", "a masked array"),
    "tokens beyond int64": (lambda: posteriors(PLAIN, np.uint64([[2**64 - 1]])), "0 to 3", f"found {2**64 - 1}"),
    "tokens at int64's end": (lambda: posteriors(PLAIN, np.uint64([[2**63]])), "0 to 3", f"found {2**63}"),
    "meta tokens": (lambda: posteriors(PLAIN, torch.zeros(1, 2, dtype=int, device="meta")), "tokens", "meta"),
    "meta head": (lambda: LinearHead(torch.zeros(2, device="meta")), "weights", "meta"),
    "quantized probs": (
        lambda: HEAD(torch.quantize_per_tensor(torch.ones(1, 2), 0.1, 0, torch.quint8)),
        "probs",
        "plain numbers",
        "quantized",
    ),
    "nested embeddings": (
        lambda: masked_token_probs_from_embeddings(PLAIN, torch.nested.nested_tensor([torch.ones(1, 3)])),
        "embeddings",
        "dense",
        "nested",
    ),
    "a list of gradients": (lambda: HMM(np.eye(2), np.eye(2), [GROWING, 0.5]), "initial", "array of numbers", "list"),
    "weights too exact": (lambda: theorem_3_3(PLAIN, np.longdouble(MU)), "mu", "real numbers", "ndarray"),
    "weights of another machine": (lambda: theorem_3_3(PLAIN, np.array(MU, ">f8")), "mu", "real numbers", "ndarray"),
    "a prompt beyond float32": (
        lambda: masked_token_probs(SINGLE, [[0, 1]], [1e300, 0, 0]),
        "prompt must be finite",
        "infinity as torch.float32",
    ),
    "embeddings beyond float32": (
        lambda: masked_token_probs_from_embeddings(SINGLE, np.full((1, 2, 3), 1e39)),
        "embeddings must be finite",
        "infinity as torch.float32",
    ),
    "probs beyond float32": (lambda: HEAD([[1e300, 0.0]]), "probs must be finite", "infinity as torch.float32"),
    "a network of fewer words": (
        lambda: pretrain(network(), random_hmm(3, 10), PRETRAINING, 0),
        "model must have at most 4 tokens",
        "not 10",
    ),
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:The PyTorch API of nested tensors")
@tried("arguments of functions")
@pytest.mark.parametrize("what", REFUSED)
def test_what_only_looks_like_numbers_is_refused_by_name(what):
    call, *words = REFUSED[what]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the words are in the table)
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_refused_model_leaves_the_network_as_it_was():
    net = network().eval()
    with pytest.raises(ValueError, match="at most 4 tokens"):
        pretrain(net, random_hmm(3, 10), PRETRAINING, 0)
    assert not net.training


def test_unmasked_and_unsigned_arrays_are_as_good_as_others():
    expected = posteriors(PLAIN, TOKENS)
    for same in (np.ma.array(TOKENS), np.uint64(TOKENS), np.array(TOKENS)[::-1][::-1]):
        assert torch.equal(posteriors(PLAIN, same), expected)
    long = torch.zeros(1, 300, dtype=torch.int64)
    assert torch.equal(posterior(PLAIN, long, at=np.uint8(255)), posterior(PLAIN, long, at=255))


def test_nobody_can_change_a_model_or_a_head_from_outside():
    memory = torch.tensor([0.5, 0.5], dtype=DOUBLE)
    model = MemoryHMM(np.eye(2), [[[0.5, 0.5], [0.2, 0.5]], [[0.5, 0.5], [0.8, 0.5]]], [0.5, 0.5], memory)
    other = model.to("cpu")
    expected = memory_posterior(model, [[0]])
    memory[:] = torch.tensor([0.9, 0.1])
    other.memory[0] = other.transition[0, 0] = -7
    assert torch.equal(memory_posterior(model, [[0]]), expected)
    weights = torch.tensor([1.0, -1.0])
    head = LinearHead(weights)
    weights[:] = float("nan")
    assert head.label([[0.6, 0.4]]).item()


@pytest.mark.parametrize("law", ["masked", "before", "stepped"])
@pytest.mark.parametrize("model", [random_hmm(4, 6), random_memory_hmm(2, 2, 6)], ids=["plain", "memory"])
def test_tasks_of_a_float32_model_are_labelled_as_its_posteriors_say(law, model):
    task = draw_task(model.to(dtype=torch.float32), 5, (20, 2, 4), 0, law)
    assert task.posteriors.dtype == torch.float32
    assert torch.equal(task.labels, task.posteriors.double() @ task.mu >= 0)


def test_a_float32_model_takes_prompts_of_any_type():
    prompt = torch.tensor([0.2, 1.0, 0.5], dtype=DOUBLE)
    exact, found = lemma_c_2(PLAIN, prompt), lemma_c_2(SINGLE, prompt)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)
    beliefs = posterior(PLAIN, TOKENS)
    found = probs_behind_prompt(SINGLE, beliefs, prompt)
    torch.testing.assert_close(found.double(), probs_behind_prompt(PLAIN, beliefs, prompt), rtol=1e-5, atol=1e-7)
    assert rung(SINGLE, TASK, masked_token_probs(SINGLE, TASK.tokens)[:, 0], Tuning(1, 4, 0.1, 0.1), 0).head <= 1


def test_words_are_no_weights():
    with pytest.raises(ValueError, match=r"^weights must be an array of numbers, not list \['a', 'b'\]"):
        LinearHead(["a", "b"])


def test_what_is_nan_in_a_prompt_is_nan_in_its_result():
    assert lemma_c_2(PLAIN, torch.tensor([torch.nan, 1, 1])).isnan().all()


def test_heads_of_half_precision_score_in_float64():
    near = torch.tensor([[0.45, 0.55], [0.55, 0.45]])
    for kind in (torch.float16, torch.bfloat16):
        head = LinearHead(torch.tensor([1.0, -1.0], dtype=kind))
        assert head.weights.dtype == DOUBLE
        assert head.label(near).tolist() == [False, True]
    parts = {name: getattr(ATTENTION, name).bfloat16() for name in ("query", "key", "value", "output", "positions")}
    wide = {name: part.double() for name, part in parts.items()}
    embeddings = MEMORY.embed(MEMORY.sample(2, 3, 0).tokens)
    assert torch.equal(
        AttentionHead(**parts)(MEMORY_PROBS, embeddings), AttentionHead(**wide)(MEMORY_PROBS, embeddings)
    )


def test_what_is_tuned_on_may_be_part_of_a_graph_and_gets_no_gradient():
    plan, emission = Tuning(2, 1, 0.1, 0.1), PLAIN.emission.clone().requires_grad_()
    grown = HMM(PLAIN.transition, emission, PLAIN.initial)
    beliefs = latent_given_others(grown, TOKENS)[:, 0]
    given = MEMORY_PROBS.clone().requires_grad_()
    assert beliefs.requires_grad
    for tune, data in ((tune_head, beliefs), (tune_head, given[:, 0]), (tune_attention, given)):
        found = tune(data, LABELS, plan, 0)
        with torch.no_grad():
            again = tune(data.detach(), LABELS, plan, 0)
        assert torch.equal(found(data.detach()), again(data.detach()))
    prompt, _ = tune_exact_prompt(PLAIN, beliefs, LABELS, plan, 0)
    assert torch.equal(prompt, tune_exact_prompt(PLAIN, beliefs.detach(), LABELS, plan, 0)[0])
    assert given.grad is None
    assert emission.grad is None


def test_tuning_that_diverges_is_no_result():
    net = copy.deepcopy(network())
    with torch.no_grad():
        net.get_input_embeddings().weight[0] = math.nan
    with pytest.raises(FloatingPointError, match=r"^tuning diverged, at rates of 0\.1, 0\.1: what was trained is no"):
        tune_prompt(net, torch.tensor([[0, 1], [1, 0]]), LABELS, 2, PLAN, 0)
