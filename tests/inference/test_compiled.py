"""The compiled loops give what torch gives, on any number of threads, and leave what is around them as it was."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from strategies import answers
from threadpoolctl import ThreadpoolController

from hmmlib import (
    HMM,
    MASK,
    MemoryHMM,
    concentrated,
    device,
    latent_given_others,
    log_likelihood,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    memory_posterior,
    possible_given_others,
    posterior,
    prompted,
    random_hmm,
    random_memory_hmm,
    sparse_hmm,
    sparse_memory_hmm,
)
from hmmlib.inference import laws
from hmmlib.inference.evidence import lifted_size
from hmmlib.models import sampling

MODELS = {
    "vanilla": random_hmm(7, 5, 0),
    "one state": HMM([[1.0]], [[0.25], [0.75]], [1.0]),
    "zeros": sparse_hmm(6, 4, 1, 0.5),
    "two cells": sparse_memory_hmm(3, 4, 4, 2, 0.3, n_cells=2),
    "one value": sparse_memory_hmm(1, 5, 4, 3, 0.3),
    "appendix E": random_memory_hmm(5, 4, 6, 4),
}


@pytest.fixture(autouse=True)
def few_states_as_many(monkeypatch):
    """Let the loops compute in float32 for small models too, because those are what can be tested fast."""
    monkeypatch.setattr(laws, "FEW_STATES", 0)


def all_answers(model, tokens):
    """Everything that inference says of texts, also behind a prompt, by name."""
    prompt = torch.linspace(0.1, 1.0, lifted_size(model), dtype=model.dtype, device="cpu")
    prompt[0] = 3.0
    values = answers(model, tokens)
    for name, value in answers(model, tokens, prompt).items():
        values[f"{name} behind a prompt"] = value
    values["G of embeddings"] = masked_token_probs_from_embeddings(model, prompted(model, prompt, tokens))
    values["possible"] = possible_given_others(model, tokens).double()
    values["first"] = posterior(model, tokens, 0)
    values["last"] = posterior(model, tokens, tokens.shape[1])
    values["likelihood"] = log_likelihood(model, tokens).exp()
    if isinstance(model, MemoryHMM):
        values["concentrated"] = concentrated(model, tokens, model.n_cells - 1, [0]).double()
    return values


def draw_tokens(model, n, length):
    """Texts of which half are the model's, and half arbitrary."""
    generator = torch.Generator().manual_seed(n + length)
    tokens = torch.randint(MASK, model.n_tokens, (n, length), generator=generator)
    tokens[: n // 2] = model.sample(n // 2, length, 0).tokens
    return tokens


@pytest.fixture
def set_threads():
    """Set how many threads there are, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("way", ["loops", "torch", "gradients"])
@pytest.mark.parametrize("name", ["zeros", "two cells"])
def test_with_another_default_device_all_answers_are_the_same_where_the_model_is(name, way, without_loops):
    model = MODELS[name].to()
    tokens = draw_tokens(model, 2, 4)
    if way == "torch":
        without_loops()
    expected = all_answers(model, tokens)
    model.initial.requires_grad_(way == "gradients")
    with torch.device("meta"):
        values = all_answers(model, tokens)
    for answer, value in values.items():
        assert value.device.type == "cpu", answer
        torch.testing.assert_close(value.detach(), expected[answer], rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_loops_give_what_torch_gives(name, dtype, without_loops):
    model = MODELS[name].to(dtype=dtype)
    tokens = draw_tokens(model, 90, 7)
    values = all_answers(model, tokens)
    without_loops()
    expected = all_answers(model, tokens)
    tolerance = 200 * torch.finfo(dtype).eps
    for answer, value in values.items():
        np.testing.assert_allclose(value, expected[answer], tolerance, tolerance, err_msg=answer)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_threads_gives_the_same(name, dtype, set_threads, monkeypatch):
    model = MODELS[name].to(dtype=dtype)
    tokens = draw_tokens(model, 90, 7)
    monkeypatch.setattr(laws, "SMALL", 0)
    set_threads(1)
    expected = masked_token_probs(model, tokens)
    for count in (2, 5, 100):
        set_threads(count)
        difference = masked_token_probs(model, tokens) - expected
        assert difference.abs().max() <= 8 * torch.finfo(dtype).eps


def test_threads_and_blocks_do_not_change_what_is_drawn(set_threads, monkeypatch):
    model = MODELS["two cells"]
    expected = model.sample(40, 50, 1)
    monkeypatch.setattr(sampling, "BLOCK", 64)
    for count in (1, 3):
        set_threads(count)
        sample = model.sample(40, 50, 1)
        assert torch.equal(sample.tokens, expected.tokens)
        assert torch.equal(sample.states, expected.states)
        assert torch.equal(sample.memory, expected.memory)


def limits_of_libraries():
    return [pool["num_threads"] for pool in ThreadpoolController().info()]


def test_calls_from_several_threads_leave_the_limits_of_other_libraries_as_they_were():
    model = MODELS["vanilla"]
    tokens = draw_tokens(model, 90, 20)
    masked_token_probs(model, tokens)
    before = limits_of_libraries()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: masked_token_probs(model, tokens), range(40)))
    assert limits_of_libraries() == before


@pytest.mark.parametrize(
    ("dtype", "length", "tolerance"),
    [
        (torch.float64, 125, 1e-12),
        (torch.float64, 126, 1e-12),
        (torch.float32, 15, 5e-3),
    ],
    ids=str,
)
def test_values_of_the_memory_told_apart_only_in_the_end_are_weighed_as_they_are(dtype, length, tolerance):
    """Each token 0 says 2^-8 of state 0, whatever the memory, until the last token leaves only that state."""
    rare = 2.0**-8
    emission = np.zeros((2, 2, 2))
    emission[0, :, 0] = rare
    emission[1, :, 0] = 1 - rare
    emission[0, 0, 1] = 1
    emission[1, 1, 1] = 1
    even = [0.5, 0.5]
    model = MemoryHMM(np.eye(2), emission, even, even).to(dtype=dtype)
    law = latent_given_others(model, [[0] * length + [MASK, 1]])[0, length]
    np.testing.assert_allclose(law, [0.5, 0, 0.5, 0], atol=tolerance)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("rare", [1e-280, 1e-300])
def test_a_memory_far_from_likely_is_believed_where_nothing_else_explains_the_text(rare):
    emission = np.zeros((2, 2, 1))
    emission[:, 0, 0] = [1e-20, 1 - 1e-20]
    emission[:, 1, 0] = [1, 0]
    model = MemoryHMM([[1.0]], emission, [1.0], [rare, 1 - rare])
    expected = np.log(rare) + 4 * np.log(1e-20)
    for tokens in ([[0, 0, 0, 1, 0]], [[0, 0, 1, 0, 0]]):
        assert memory_posterior(model, tokens).tolist() == [[1, 0]]
        assert log_likelihood(model, tokens).item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.usefixtures("way")
def test_a_hardly_likely_memory_value_is_kept():
    each_state_shows_a_token = np.eye(2)[:, None]
    model = MemoryHMM(np.eye(2), each_state_shows_a_token, [1.0, 2.0**-1010], [1.0])
    expected = -1010 * np.log(2)
    assert log_likelihood(model, [[1, 1]]).item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.usefixtures("way")
def test_what_a_hardly_believed_state_says_is_kept():
    first_state = [1e-20, 1.0 - 1e-20, 1e-250]
    second_state = [1.0, 0.0, 0.0]
    emission = np.transpose([first_state, second_state])
    model = HMM(np.eye(2), emission, [0.5, 0.5])
    probs = masked_token_probs(model, [[0] * 4 + [MASK, 1]])[0, 4]
    np.testing.assert_allclose(probs, [1e-20, 1.0, 1e-250], rtol=1e-12)


def test_without_numba_everything_goes_through_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba.core", None)
    monkeypatch.setattr(device, "loops", device.loops.__wrapped__)  # which keeps no answer
    assert laws.compiled_loops() is None
    assert masked_token_probs(MODELS["vanilla"], [[0, 1]]).shape == (1, 2, 5)


def flushes():
    """Whether numbers below the smallest normal one count as zero in this thread."""
    return bool((np.float32(1e-45) * np.float32(1)) == 0)


@pytest.fixture(params=[False, True])
def chosen(request):
    """Whether the caller has chosen that such numbers count as zero."""
    if not torch.set_flush_denormal(request.param):
        pytest.skip("this processor cannot")
    yield request.param
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_float32_loops_take_the_least_numbers_as_zero_and_nothing_else_does(dtype, count, chosen, monkeypatch):
    """Products below 1e-38 take some processors twenty times as long, in every thread."""
    model = random_hmm(4, 3, 0).to(dtype=dtype)
    tokens = model.sample(10, 5, 0).tokens
    side_by_side = device.side_by_side
    flushed = []

    def spy(work, n, threads):
        def work_and_note(share):
            flushed.append(flushes())
            work(share)

        side_by_side(work_and_note, n, count)

    monkeypatch.setattr(device, "side_by_side", spy)
    masked_token_probs(model, tokens)
    assert flushed == [dtype == torch.float32 or chosen] * count
    assert flushes() is chosen


@pytest.mark.parametrize("name", ["vanilla", "two cells"])
def test_few_states_in_float32_have_the_answers_of_float64(name, monkeypatch):
    monkeypatch.setattr(laws, "FEW_STATES", 8)
    model = MODELS[name].to(dtype=torch.float32)
    tokens = draw_tokens(model, 90, 7)
    precise = all_answers(model.to(dtype=torch.float64), tokens)
    for answer, value in all_answers(model, tokens).items():
        assert value.dtype in (torch.float32, torch.float64), answer
        np.testing.assert_allclose(value, precise[answer], 2e-7, 2e-7, err_msg=answer)


def test_evidence_near_the_largest_float_is_scaled(chosen):
    model = random_hmm(4, 3, 0).to(dtype=torch.float32)
    huge = torch.full((1, 2, 4), torch.finfo(torch.float32).max)
    assert (masked_token_probs_from_embeddings(model, huge).sum(-1) > 0.99).all()
