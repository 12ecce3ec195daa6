"""A good call of every public function that takes a reader's data. Tests spoil one of its arguments."""

from collections.abc import Callable
from functools import cache
from inspect import signature

import numpy as np
import torch
from peer_models import categorical, parameters

import hmmbook
import hmmlib
from hmmbook import TrialSpec
from hmmlib import Pretraining, Shape, Tuning
from hmmlib.models.families import essential_hmm, non_degenerate_hmm, recoverable_memory_hmm
from hmmlib.training import bert

# An HMM.
PLAIN = non_degenerate_hmm(3, 4, 0, zeros=0.0)
TOKENS = [[0, 1, 2], [2, 1, 0]]
PROBS = hmmlib.masked_token_probs(PLAIN, TOKENS)
LINEAR = hmmlib.LinearHead([1.0, -1.0, 0.5, 0.0])

# An HMM with essential states, and a task on them.
ESSENTIAL, STATES = essential_hmm(4, 3, 2, 5)
MU_ESSENTIAL = np.zeros(4)
MU_ESSENTIAL[STATES] = [1.0, -1.0]

# A model with two memory cells.
MEMORY, CELL, SYNTAX, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
MEMORY_TOKENS = MEMORY.sample(2, 3, 0).tokens
MEMORY_PROBS = hmmlib.masked_token_probs(MEMORY, MEMORY_TOKENS)
RECOVERY = hmmlib.claim_d_3(MEMORY, CELL, SYNTAX)
ATTENTION = hmmlib.attention_head(MEMORY, [1.0, -1.0], RECOVERY)

# A model with one memory cell, and a task on its recoverable values.
ONE_CELL, _, ONE_SYNTAX, VALUES = recoverable_memory_hmm(1, 3, 3, 2, 2, 110, 0.8, stationary=True)
MU_ONE_CELL = np.zeros(3)
MU_ONE_CELL[VALUES] = [1.0, -1.0]

OBJECTS = {"PLAIN": PLAIN, "MEMORY": MEMORY, "LINEAR": LINEAR, "ATTENTION": ATTENTION}
"""What has methods that are called, as in "PLAIN.embed"."""


@cache
def network() -> torch.nn.Module:
    """A tiny network. It is built when first asked for, because its import takes seconds."""
    return bert.build(Shape(1, 8, 2, 8), 4, 0)


MADE_WHEN_CALLED = (network, categorical, parameters)
"""Functions that stand for their results in the calls below."""

COMMON = {
    # of families of models
    "n_states": 3,
    "n_tokens": 4,
    "n_memory": 2,
    "n_cells": 1,
    "n_essential": 2,
    "temperature": 0.01,
    "permutations": 2,
    "zeros": 0.4,
    "gap": 0.1,
    "seed": 0,
    # of inference and theory
    "model": PLAIN,
    "tokens": TOKENS,
    "prompt": torch.eye(3).double()[0],
    "mu": [1.0, -1.0, 0.5],
    "i": 1,
    "probs": PROBS[:, 0],
    # of tuning and trials
    "network": network,
    "labels": torch.tensor([True, False]),
    "plan": Tuning(1, 4, 0.1, 0.1),
    "head": LINEAR,
    "spec": TrialSpec("smoke"),
    "preset": "smoke",
}
"""Good arguments by their names, which most functions share."""
WITH_MEMORY = {
    "model": MEMORY,
    "tokens": MEMORY_TOKENS,
    "prompt": np.ones(8),
    "mu": [1.0, -1.0],
    "probs": MEMORY_PROBS,
    "embeddings": MEMORY.embed(MEMORY_TOKENS),
    "cell": CELL,
    "syntax": SYNTAX,
    "recovery": RECOVERY,
}
"""The same for functions that need a memory model."""

GOOD: dict[str, dict] = {}
"""For each function, the arguments of a good call."""


def function(name: str) -> Callable:
    """The function of that name at the root of hmmlib or hmmbook, or a method of something there or of OBJECTS."""
    owner, _, method = name.partition(".")
    if owner in OBJECTS:
        root = OBJECTS[owner]
    elif owner in hmmlib.__all__:
        root = getattr(hmmlib, owner)
    else:
        root = getattr(hmmbook, owner)
    return getattr(root, method) if method else root


def good(name: str, *more_names: str, **arguments) -> None:
    """Note good calls of functions. Arguments that are not given here are the common ones of the same name."""
    for function_name in (name, *more_names):
        available = {**COMMON, **arguments}
        accepted = signature(function(function_name)).parameters
        GOOD[function_name] = {key: available[key] for key in accepted if key in available}


def call(name: str, **changes):
    """Make the good call with some arguments changed."""
    arguments = {**GOOD[name], **changes}
    for key, value in arguments.items():
        if any(value is make for make in MADE_WHEN_CALLED):
            arguments[key] = value()
    return function(name)(**arguments)


# Models
_MATRIX = np.ones((2, 3))
good("HMM", transition=np.eye(2), emission=np.eye(3)[:, :2], initial=[0.5, 0.5])
good("HMM.from_rows", startprob=[0.5, 0.5], transmat=[[0.9, 0.1], [0.5, 0.5]], emissionprob=np.eye(3)[:2])
good("HMM.from_hmmlearn", fitted=categorical)
good("HMM.from_dynamax", params=parameters)
_HALF = [0.5, 0.5]
good("MemoryHMM", transition=np.eye(2), emission=np.full((2, 2, 2), 0.5), initial=_HALF, memory=_HALF)
good("PLAIN.embed", "PLAIN.marginal")
good("PLAIN.sample", n=2, length=3)
good("PLAIN.to", device="cpu", dtype=torch.float32)
good("MEMORY.embed", **WITH_MEMORY)
good("random_hmm", "random_memory_hmm", "regular_hmm", "sparse_hmm", "sparse_memory_hmm")
good("dependent_hmm", "nearly_dependent_hmm", "non_degenerate_hmm", "shrinking_support")
good("essential_hmm", "essential_twins", "recoverable_twins")
good("recoverable_memory_hmm", n_syntax=2, n_recoverable=1, values=1)
good("parity_memory_hmm", n=2, noise=0.1)

# Inference
good("masked_token_probs", "latent_given_others", "possible_given_others", "prompted", "posteriors", "log_likelihood")
good("masked_token_probs_from_embeddings", embeddings=np.ones((2, 3, 3)))
good("aggregated_messages", evidence=torch.ones(2, 3, 3).double())
good("posterior", at=1)
good("memory_posterior", **WITH_MEMORY)

# Theory
good("assumption_3_1", "assumption_3_2", "claim_b_1", "theorem_3_3", "lemma_c_2", "fit_or_refute")
good("assumption_3_5", "theorem_3_6", "essential_states", model=ESSENTIAL, mu=MU_ESSENTIAL, essential=STATES)
good("assumption_4_5", model=ONE_CELL, mu=MU_ONE_CELL, syntax=ONE_SYNTAX)
good("assumption_4_2", "assumption_4_4", "assumption_d_5", "concentrated", "ground_truth", **WITH_MEMORY)
good("claim_d_3", "claim_d_10", "lemma_d_2", "lemma_d_4", "lemma_d_9", **WITH_MEMORY)
good("theorem_4_3", "theorem_4_6", "attention_head", "prompted_head", **WITH_MEMORY)
good("prompt_d_6", "prompt_for_any_start", **WITH_MEMORY)
good("LinearHead", weights=[1.0, -1.0])
good("LINEAR.__call__", "LINEAR.label", "LINEAR.sure")
good("AttentionHead", query=[1.0, 0.0], key=_MATRIX, value=_MATRIX, output=[1.0, -1.0], positions=[[0.0, 1.0]])
good("ATTENTION.__call__", "ATTENTION.label", "ATTENTION.sure", **WITH_MEMORY)

# Training
good("Shape", layers=1, width=8, heads=2, max_length=8)
good("Tuning", epochs=1, batch=4, head_rate=0.1, prompt_rate=0.1, warmup=0.1)
PLAN = dict(steps=2, batch=2, length=6, masked=0.2, learning_rate=1e-3, muon_rate=0.0, warmup=1, clip=1.0, documents=0)
good("Pretraining", **PLAN)
good("pretrain", plan=Pretraining(**PLAN))
good("tune_head", "accuracy")
good("tune_attention", probs=PROBS, cells=1)
good("tune_prompt", tokens=torch.tensor(TOKENS), prompt_length=2)
good("tune_exact_prompt", posteriors=torch.eye(3).double()[:2])

# Experiments
GOOD["TrialSpec"] = {"preset": "smoke", "n_states": 4, "seed": 1}
good("panel_specs", "grid", panel="left", trials=1)
good("draw_model", "draw_trial_task", "load_results")
good("exact_trial", n_states=2)
good("draw_task", length=4, sizes=[6, 2, 4], rule="masked", places="distinct")
good("draw_mu", n=3, generator=0, places="repeated")
