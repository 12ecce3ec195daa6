"""The fast path against the formulas as the paper prints them, and these against the sum over all latent paths."""

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, normalised
from record import SLOW
from test_messages import draw, draw_tokens, error, lifted_masked_token, paths

from hmmlib.inference import messages, reference
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

MODELS = 40 if SLOW else 12
FAMILIES = ("sparse", "appendix E", "sparse, one cell", "sparse, two cells", "appendix E, two cells")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
NAMES = ("masked_token_probs", "latent_given_others", "posteriors", "log_likelihood")


def answers(module, model, tokens, prompts):
    """All that both modules have, by name."""
    found = {name: getattr(module, name)(model, tokens) for name in NAMES}
    found["log_likelihood"] = found["log_likelihood"].exp()
    for prompt in prompts:
        width = len(prompt)
        found[f"G behind {width}"] = module.masked_token_probs(model, tokens, prompt)
        found[f"latents behind {width}"] = module.latent_given_others(model, tokens, prompt)
        embeddings = messages.prompted(model, prompt, tokens)
        found[f"Ḡ of {width}"] = module.masked_token_probs_from_embeddings(model, embeddings)
    for cell in range(getattr(model, "n_cells", 0)):
        found[f"memory {cell}"] = module.memory_posterior(model, tokens, cell)
    return found


def random_prompts(model, rng):
    """A sparse prompt as wide as an embedding, and a lifted one."""
    widths = {model.emission[0].numel(), messages.lifted_size(model)}
    return [torch.as_tensor(rng.random(width) * (rng.random(width) < 0.7) * 3) for width in sorted(widths)]


def worst(family, dtype=torch.float64, fast=messages):
    """Largest error of the fast path in some random models; infinity where one is zero and the other not (float64)."""
    largest = 0.0
    for seed in range(MODELS if SLOW else 6):
        model, length, rng = draw(family, seed)
        model, tokens = model.to(dtype=dtype), draw_tokens(model, 4, length, rng)
        prompts = random_prompts(model, rng)
        expected = answers(reference, model, tokens, prompts)
        for name, found in answers(fast, model, tokens, prompts).items():
            assert found.dtype == dtype
            one = (
                error(found, expected[name]) if dtype == torch.float64 else (found - expected[name]).abs().max().item()
            )
            largest = max(largest, one)
    return largest


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("loops", [True, False], ids=["loops", "torch"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_fast_path_gives_what_the_paper_prints(family, loops, dtype, monkeypatch):
    if not loops:
        monkeypatch.setattr(messages, "compiled_loops", lambda: None)
    assert worst(family, dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize("module", [reference, messages], ids=["as printed", "fast"])
@pytest.mark.parametrize("family", FAMILIES)
def test_everything_is_the_sum_over_all_paths(family, module):
    impossible = possible = 0
    for seed in range(MODELS):
        model, length, rng = draw(family, seed)
        tokens = draw_tokens(model, 4, length, rng)
        every, at = [paths(model, rows) for rows in model.embed(tokens)], range(1, length + 1)
        token = [[normalised(one.masked_token(i)) for i in at] for one in every]
        state = [[normalised(one.state(i)) for i in range(length + 1)] for one in every]
        likelihood = np.array([one.likelihood() for one in every])
        assert error(module.masked_token_probs(model, tokens), token) <= 1e-12, seed
        assert error(module.posteriors(model, tokens), state) <= 1e-12, seed
        assert error(module.log_likelihood(model, tokens).exp(), likelihood) <= 1e-12, seed
        for cell in range(getattr(model, "n_cells", 0)):
            value = [normalised(one.of(f"m{cell}")) for one in every]
            assert error(module.memory_posterior(model, tokens, cell), value) <= 1e-12, (seed, cell)
        impossible, possible = impossible + (likelihood == 0).sum(), possible + (likelihood > 0).sum()
    assert possible > MODELS
    assert impossible > 0 or "sparse" not in family


@pytest.mark.parametrize("family", FAMILIES)
def test_tau_is_the_joint_probability_of_state_and_evidence(family):
    """(C.1) and (D.3), for embeddings of no token too; of the lifted chain, one vanilla model for each memory."""
    for seed in range(MODELS):
        model, length, rng = draw(family, seed)
        embeddings = model.embed(draw_tokens(model, 1, length, rng))
        embeddings[:, 0] = torch.as_tensor(rng.exponential(size=embeddings.shape[-1]))
        found = reference.tau(model, embeddings)[0].reshape(length, -1, model.n_states)
        lifted = messages.as_evidence(model, embeddings)[0].reshape(length, -1, model.n_states)
        priors = [1.0] if isinstance(model, HMM) else model.memory.flatten().tolist()
        for k, prior in enumerate(priors):
            given = Enumeration(model.transition, np.ones((1, model.n_states)), model.initial, lifted[:, k])
            expected = np.stack([prior * given.state(i, leave_out=i) for i in range(1, length + 1)])
            assert error(found[:, k], expected) <= 1e-12 * max(1, expected.max()), seed


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_lifted_prompts_that_no_cell_alone_could_say(n_cells):
    model, rng = sparse_memory_hmm(2, 6, 4, 3, 0.3, n_cells=n_cells), np.random.default_rng(n_cells)
    prompt = torch.as_tensor(rng.random(messages.lifted_size(model)) * (rng.random(messages.lifted_size(model)) < 0.6))
    embeddings = messages.prompted(model, prompt, [[MASK, 1]])
    expected = lifted_masked_token(model, embeddings[0])
    for module in (messages, reference):
        assert error(module.masked_token_probs_from_embeddings(model, embeddings)[0], expected) <= 1e-12


@pytest.mark.parametrize("module", [reference, messages], ids=["as printed", "fast"])
def test_an_input_that_cannot_be_has_zero_vectors_and_a_state_never_reached_spoils_nothing(module):
    model = HMM([[0.8, 0.1, 0.3], [0.2, 0.9, 0.7], [0, 0, 0]], [[1.0, 0.5, 0.5], [0.0, 0.5, 0.5]], [0.4, 0.6, 0])
    expected = [normalised(paths(model, model.embed([[0, 1, 1]])[0]).masked_token(i)) for i in (1, 2, 3)]
    assert error(module.masked_token_probs(model, [[0, 1, 1]])[0], expected) < 1e-14
    # Emits 1, 0, 1, 0, … for sure.
    flip = HMM([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [1.0, 0.0], columns=True)
    none, tokens = [0.0, 0.0], [[0, 0, 1], [1, 1, 1], [1, 0, 1]]
    expected = [[[0.0, 1.0], none, none], [none, [1.0, 0.0], none], [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]]
    assert module.masked_token_probs(flip, tokens).tolist() == expected
    assert module.posteriors(flip, tokens)[:2].tolist() == [[none] * 4] * 2
    assert module.log_likelihood(flip, tokens).tolist() == [-np.inf, -np.inf, 0]
    known = MemoryHMM([[1.0]], [[[1.0], [0.0]], [[0.0], [1.0]]], [1.0], [0.25, 0.75])  # the token is the memory
    assert module.memory_posterior(known, [[0, 1], [1, 1]]).tolist() == [none, [0.0, 1.0]]
    assert module.masked_token_probs(known, torch.zeros(0, 2, dtype=torch.int64)).shape == (0, 2, 2)


def test_a_long_text_is_beyond_the_reference_and_not_beyond_the_fast_path():
    model = sparse_hmm(3, 40, 0, 0.0)
    tokens = model.sample(1, 600, 0).tokens
    assert not reference.masked_token_probs(model, tokens).any()
    assert torch.allclose(messages.masked_token_probs(model, tokens).sum(-1), torch.ones(1, 600, dtype=torch.float64))


# The control: what is damaged is noticed.

DAMAGE = {
    "messages along the transposed chain": ("_chain", lambda f: lambda m: (f(m)[0].T.contiguous(), f(m)[1])),
    "a start that is uniform": ("_chain", lambda f: lambda m: (f(m)[0], torch.full_like(f(m)[1], 1 / len(f(m)[1])))),
    "the token itself seen": ("_tau_from_start", lambda f: lambda m, v: f(m, v) * reference._from_start(m, v)),
    "positions one further on": ("_tau_from_start", lambda f: lambda m, v: f(m, v).roll(1, 0)),
    "not divided by P[H_i]": ("_quotient", lambda f: lambda part, total: part),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_formula_is_noticed(what, monkeypatch):
    name, damage = DAMAGE[what]
    monkeypatch.setattr(reference, name, damage(getattr(reference, name)))
    for family in ("appendix E", "sparse, two cells"):
        assert worst(family) > 1e-3


@pytest.mark.parametrize("name", ["_in_loops", "_in_torch"])
def test_a_damaged_fast_path_is_noticed(name, monkeypatch):
    honest = getattr(messages, name)
    monkeypatch.setattr(
        messages, name, lambda m, evidence, at, own, *rest, **more: honest(m, evidence, at, True, *rest)
    )
    if name == "_in_torch":
        monkeypatch.setattr(messages, "compiled_loops", lambda: None)
    assert worst("appendix E") > 1e-3
