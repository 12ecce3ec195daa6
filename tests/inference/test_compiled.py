"""The compiled loops give what torch gives, on any number of threads, and leave what is around them as it was."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from strategies import answers
from threadpoolctl import ThreadpoolController

from hmmlib import backend
from hmmlib.inference import messages
from hmmlib.models import sampling
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.theorems import concentrated
from hmmlib.validation import MASK

MODELS = {
    "vanilla": random_hmm(7, 5, 0),
    "one state": HMM([[1.0]], [[0.25], [0.75]], [1.0]),
    "zeros": sparse_hmm(6, 4, 1, 0.5),
    "two cells": sparse_memory_hmm(3, 4, 4, 2, 0.3, n_cells=2),
    "one value": sparse_memory_hmm(1, 5, 4, 3, 0.3),
    "appendix E": random_memory_hmm(5, 4, 6, 4),
}


def everything(model, tokens):
    generator = torch.Generator().manual_seed(5)
    width = messages.lifted_size(model)
    prompt = torch.rand(width, generator=generator, dtype=torch.float64, device="cpu").to(model.dtype)
    prompt[0] = 3.0
    found = {
        **answers(model, tokens),
        **{f"{name} behind a prompt": one for name, one in answers(model, tokens, prompt).items()},
        "G of embeddings": messages.masked_token_probs_from_embeddings(model, messages.prompted(model, prompt, tokens)),
        "possible": messages.possible_given_others(model, tokens).double(),
        "first": messages.posterior(model, tokens, 0),
        "last": messages.posterior(model, tokens, tokens.shape[1]),
        "likelihood": messages.log_likelihood(model, tokens).exp(),
    }
    if isinstance(model, MemoryHMM):
        found["concentrated"] = concentrated(model, tokens, model.n_cells - 1, [0]).double()
    return found


def draw_tokens(model, n, length):
    tokens = torch.randint(MASK, model.n_tokens, (n, length), generator=torch.Generator().manual_seed(n + length))
    tokens[: n // 2] = model.sample(max(1, n // 2), length, 0).tokens[: n // 2]
    return tokens


@pytest.fixture
def threads():
    """Sets how many there are, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(params=["loops", "torch"])
def way(request, monkeypatch):
    """Each of both ways; in torch as on a GPU, with gradients, or without numba."""
    if request.param == "torch":
        monkeypatch.setattr(messages, "compiled_loops", lambda: None)
    return request.param


@pytest.mark.parametrize("way", ["loops", "torch", "gradients"], indirect=True)
@pytest.mark.parametrize("name", ["zeros", "two cells"])
def test_with_another_default_device_all_answers_are_the_same_where_the_model_is(name, way):
    model, tokens = MODELS[name].to(), torch.tensor([[0, 1, 2, MASK], [2, 2, 0, 1]])
    expected = everything(model, tokens)
    model.initial.requires_grad_(way == "gradients")
    with torch.device("meta"):
        found = everything(model, tokens)
    for what, one in found.items():
        assert one.device.type == "cpu", what
        np.testing.assert_allclose(one.detach(), expected[what], rtol=0, atol=1e-14, err_msg=what)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_loops_on_any_number_of_threads_give_what_torch_gives(dtype, threads, monkeypatch):
    eps = torch.finfo(dtype).eps
    for model in (model.to(dtype=dtype) for model in MODELS.values()):
        tokens, found = draw_tokens(model, 90, 7), []
        with monkeypatch.context() as patch:
            patch.setattr(messages, "compiled_loops", lambda: None)
            expected = everything(model, tokens)
        monkeypatch.setattr(messages, "SMALL", 0)
        for count in (1, 2, 5, 100):
            threads(count)
            found.append(messages.masked_token_probs(model, tokens))
        assert all((each - found[0]).abs().max() <= 8 * eps for each in found)
        for what, one in everything(model, tokens).items():
            np.testing.assert_allclose(one, expected[what], 200 * eps, 200 * eps, err_msg=what)


def test_threads_and_blocks_do_not_change_what_is_drawn(threads, monkeypatch):
    model = MODELS["two cells"]
    whole = model.sample(40, 50, 1)
    monkeypatch.setattr(sampling, "BLOCK", 64)
    for count in (1, 3):
        threads(count)
        assert all(torch.equal(a, b) for a, b in zip(model.sample(40, 50, 1), whole, strict=True))


def test_calls_from_several_threads_leave_the_limits_of_other_libraries_as_they_were():
    def limits():
        return [pool["num_threads"] for pool in ThreadpoolController().info()]

    messages.masked_token_probs(MODELS["vanilla"], [[0]])
    before, tokens = limits(), draw_tokens(MODELS["vanilla"], 90, 20)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: messages.masked_token_probs(MODELS["vanilla"], tokens), range(40)))
    assert limits() == before


@pytest.mark.parametrize(
    ("dtype", "length"), [(torch.float64, 125), (torch.float64, 126), (torch.float32, 15)], ids=str
)
def test_values_of_the_memory_told_apart_only_in_the_end_are_weighed_as_they_are(dtype, length):
    """Each token 0 says 2^-8 of state 0, whatever the memory, until the last token leaves only that state."""
    rare = 2.0**-8
    emission = np.zeros((2, 2, 2))
    emission[:, 0, 0] = emission[:, 1, 0] = rare, 1 - rare
    emission[0, 0, 1] = emission[1, 1, 1] = 1
    model = MemoryHMM(np.eye(2), emission, [0.5, 0.5], [0.5, 0.5]).to(dtype=dtype)
    found = messages.latent_given_others(model, [[0] * length + [MASK, 1]])[0, length]
    np.testing.assert_allclose(found, [0.5, 0, 0.5, 0], atol=5e-3 if dtype == torch.float32 else 1e-12)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("rare", [1e-280, 1e-300])
def test_a_memory_far_from_likely_is_believed_where_nothing_else_explains_the_text(rare):
    emission = np.zeros((2, 2, 1))
    emission[:, 0, 0], emission[:, 1, 0] = [1e-20, 1 - 1e-20], [1, 0]
    model, tokens = MemoryHMM([[1.0]], emission, [1.0], [rare, 1 - rare]), [[0, 0, 0, 1, 0], [0, 0, 1, 0, 0]]
    assert messages.memory_posterior(model, tokens).tolist() == [[1, 0], [1, 0]]
    np.testing.assert_allclose(messages.log_likelihood(model, tokens), np.log(rare) + 4 * np.log(1e-20), rtol=1e-13)


@pytest.mark.usefixtures("way")
def test_what_is_hardly_likely_is_kept_and_what_hardly_believed_state_says_too():
    model = MemoryHMM(np.eye(2), [[[1.0, 0.0]], [[0.0, 1.0]]], [1.0, 2.0**-1010], [1.0])
    np.testing.assert_allclose(messages.log_likelihood(model, [[1, 1]]), -1010 * np.log(2), rtol=1e-13)
    model = HMM(np.eye(2), [[1e-20, 1.0], [1.0 - 1e-20, 0.0], [1e-250, 0.0]], [0.5, 0.5])
    probs = messages.masked_token_probs(model, [[0, 0, 0, 0, MASK, 1]])[0, 4]
    np.testing.assert_allclose(probs, [1e-20, 1.0, 1e-250], rtol=1e-12)


def test_without_numba_everything_goes_through_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba.core", None)
    monkeypatch.setattr(backend, "loops", backend.loops.__wrapped__)  # which keeps no answer
    assert messages.compiled_loops() is None
    assert messages.masked_token_probs(MODELS["vanilla"], [[0, 1]]).shape == (1, 2, 5)


def flushes():
    return (np.float32(1e-45) * np.float32(1)) == 0


@pytest.mark.parametrize(("dtype", "count"), [(torch.float32, 1), (torch.float32, 2), (torch.float64, 2)])
def test_float32_loops_take_the_least_numbers_as_zero_and_nothing_else_does(dtype, count, monkeypatch):
    """Products below 1e-38 take some processors twenty times as long, in every thread; only meanwhile.

    Where the caller has chosen it too, evidence near the largest float is scaled all the same.
    """
    seen, run = [], backend.side_by_side

    def spied(work, n, _):
        return run(lambda share: (seen.append(flushes()), work(share)), n, count)

    monkeypatch.setattr(backend, "side_by_side", spied)
    model, huge = random_hmm(4, 3, 0).to(dtype=dtype), torch.full((1, 2, 4), torch.finfo(dtype).max, dtype=dtype)
    for chosen in (False, True):
        if not torch.set_flush_denormal(chosen):
            pytest.skip("this processor cannot")
        try:
            messages.masked_token_probs(model, model.sample(10, 5, 0).tokens)
            assert flushes() is np.bool_(chosen)
            assert seen == [dtype == torch.float32 or chosen] * count
            assert (messages.masked_token_probs_from_embeddings(model, huge).sum(-1) > 0.99).all()
        finally:
            torch.set_flush_denormal(False)
        seen.clear()
