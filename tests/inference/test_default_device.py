"""A default device of torch's is no business of the library's: a model is where it is."""

import pytest
import torch

from hmmlib.inference import messages
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.theory.theorems import concentrated

MODELS = {"vanilla": sparse_hmm(3, 3, 1, 0.2), "two cells": sparse_memory_hmm(2, 4, 3, 1, 0.2, n_cells=2)}
TOKENS = torch.tensor([[0, 1, 2, -1], [2, 2, 0, 1]])
QUESTIONS = {
    "masked_token_probs": messages.masked_token_probs,
    "behind a prompt": lambda model, x: messages.masked_token_probs(
        model, x, torch.ones(messages.lifted_size(model), dtype=torch.float64, device="cpu")
    ),
    "from embeddings": lambda model, x: messages.masked_token_probs_from_embeddings(model, model.embed(x)),
    "latent_given_others": messages.latent_given_others,
    "possible_given_others": messages.possible_given_others,
    "posteriors": messages.posteriors,
    "posterior": messages.posterior,
    "log_likelihood": messages.log_likelihood,
    "memory_posterior": lambda model, x: messages.memory_posterior(model, x, 1),
    "concentrated": lambda model, x: concentrated(model, x, 1, [0]),
}


@pytest.mark.parametrize("way", ["loops", "torch", "gradients"])
@pytest.mark.parametrize("name", MODELS)
def test_with_another_default_device_all_answers_are_the_same(name, way, monkeypatch):
    model, same = MODELS[name], torch.equal
    if way == "torch":
        monkeypatch.setattr(messages, "compiled_loops", lambda: None)
    for question, ask in QUESTIONS.items():
        if name == "vanilla" and question in ("memory_posterior", "concentrated"):
            continue
        expected = ask(model, TOKENS)
        with torch.device("meta"):
            if way == "gradients":
                model.initial.requires_grad_()
            found = ask(model, TOKENS)
        model.initial.requires_grad_(False)
        assert found.device.type == "cpu", question
        assert same(found, expected) or torch.allclose(found.detach(), expected, atol=1e-14), question
