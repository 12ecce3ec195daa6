"""A good call of every public function that takes a reader's data, by its name at the root: tests spoil an argument."""

from functools import cache, reduce

import numpy as np
import torch
from peer_models import categorical, parameters

import hmmlib
from hmmlib import Pretraining, Shape, TrialSpec, Tuning
from hmmlib.models.families import essential_hmm, non_degenerate_hmm, recoverable_memory_hmm
from hmmlib.training import bert

PLAIN = non_degenerate_hmm(3, 4, 0, zeros=0.0)
ESSENTIAL, STATES = essential_hmm(4, 3, 2, 5)
MEMORY, CELL, SYNTAX, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
ONE_CELL, _, ONE_SYNTAX, VALUES = recoverable_memory_hmm(1, 3, 3, 2, 2, 110, 0.8, stationary=True)
MU, MU_ESSENTIAL, MU_ONE = [1.0, -1.0, 0.5], np.zeros(4), np.zeros(3)
MU_ESSENTIAL[STATES] = 1.0, -1.0
MU_ONE[VALUES] = 1.0, -1.0
TOKENS, LABELS = [[0, 1, 2], [2, 1, 0]], torch.tensor([True, False])
PROBS = hmmlib.masked_token_probs(PLAIN, TOKENS)
MEMORY_TOKENS = MEMORY.sample(2, 3, 0).tokens
MEMORY_PROBS, MEMORY_EMBEDDINGS = hmmlib.masked_token_probs(MEMORY, MEMORY_TOKENS), MEMORY.embed(MEMORY_TOKENS)
RECOVERY = hmmlib.claim_d_3(MEMORY, CELL, SYNTAX)
LINEAR, ATTENTION = hmmlib.LinearHead([1.0, -1.0, 0.5, 0.0]), hmmlib.attention_head(MEMORY, [1.0, -1.0], RECOVERY)
PLAN, PRETRAINING = Tuning(1, 4, 0.1, 0.1), Pretraining(2, 2, 6, 0.2, 1e-3, 0.0, 1)
SPEC = TrialSpec("smoke")


@cache
def network() -> torch.nn.Module:
    """A tiny network, built when first asked for, as the import takes seconds."""
    return bert.build(Shape(1, 8, 2, 8), 4, 0)


MADE_WHEN_ASKED = (network, categorical, parameters)
"""Functions that stand for their results."""
_SIZES, _TUNING = dict(n_states=3, n_tokens=4, seed=0), dict(labels=LABELS, plan=PLAN, seed=0)
_PLACE, _TASK = dict(model=MEMORY, cell=CELL, syntax=SYNTAX), dict(model=MEMORY, mu=[1.0, -1.0], cell=CELL)
_PROMPTED, _RECOVERED = dict(model=PLAIN, tokens=TOKENS, prompt=[1.0, 0.5, 0.0]), dict(model=MEMORY, recovery=RECOVERY)
_HEAD_INPUTS = dict(probs=MEMORY_PROBS, embeddings=MEMORY_EMBEDDINGS)


def alike(names: str, **arguments) -> dict:
    return {name: arguments for name in names.split()}


METHODS_OF = {"PLAIN": PLAIN, "MEMORY": MEMORY, "LINEAR": LINEAR, "ATTENTION": ATTENTION}
GOOD = {
    # Models
    "HMM": dict(transition=np.eye(2), emission=np.eye(3)[:, :2], initial=[0.5, 0.5]),
    "HMM.from_rows": dict(startprob=[0.5, 0.5], transmat=[[0.9, 0.1], [0.5, 0.5]], emissionprob=np.eye(3)[:2]),
    "HMM.from_hmmlearn": dict(fitted=categorical),
    "HMM.from_dynamax": dict(params=parameters),
    "MemoryHMM": dict(transition=np.eye(2), emission=np.full((2, 2, 2), 0.5), initial=[0.5, 0.5], memory=[0.5, 0.5]),
    "PLAIN.to": dict(device="cpu", dtype=torch.float32),
    "PLAIN.embed": dict(tokens=TOKENS),
    "MEMORY.embed": dict(tokens=MEMORY_TOKENS),
    "PLAIN.marginal": dict(i=1),
    "PLAIN.sample": dict(n=2, length=3, seed=0),
    "random_hmm": dict(**_SIZES, temperature=0.01),
    "random_memory_hmm": dict(n_memory=2, **_SIZES, n_cells=1, temperature=0.01, permutations=2),
    "sparse_memory_hmm": dict(n_memory=2, **_SIZES, zeros=0.4, n_cells=1),
    "nearly_dependent_hmm": dict(**_SIZES, gap=0.1),
    "dependent_hmm": _SIZES,
    **alike("sparse_hmm regular_hmm non_degenerate_hmm", **_SIZES, zeros=0.4),
    "essential_hmm": dict(**_SIZES, n_essential=2, zeros=0.4),
    "recoverable_memory_hmm": dict(n_cells=1, n_memory=2, n_syntax=2, n_recoverable=1, values=1, seed=0, zeros=0.5),
    **alike("essential_twins recoverable_twins shrinking_support", seed=0),
    "parity_memory_hmm": dict(n=2, noise=0.1),
    # Conditional probabilities
    **alike("masked_token_probs latent_given_others possible_given_others prompted", **_PROMPTED),
    "masked_token_probs_from_embeddings": dict(model=PLAIN, embeddings=np.ones((2, 3, 3))),
    **alike("posteriors log_likelihood", model=PLAIN, tokens=TOKENS),
    "posterior": dict(model=PLAIN, tokens=TOKENS, at=1),
    "memory_posterior": dict(model=MEMORY, tokens=MEMORY_TOKENS, cell=0),
    "aggregated_messages": dict(model=PLAIN, evidence=torch.ones(2, 3, 3).double()),
    # Assumptions and theorems
    **alike("assumption_3_1 assumption_3_2", model=PLAIN),
    **alike("assumption_3_5 theorem_3_6", model=ESSENTIAL, mu=MU_ESSENTIAL, essential=STATES),
    "essential_states": dict(model=ESSENTIAL, mu=MU_ESSENTIAL),
    **alike("assumption_4_2 claim_d_3", **_PLACE),
    "assumption_4_4": dict(model=MEMORY),
    "assumption_4_5": dict(model=ONE_CELL, mu=MU_ONE, syntax=ONE_SYNTAX),
    **alike("assumption_d_5 claim_d_10 theorem_4_3 theorem_4_6", **_TASK, syntax=SYNTAX),
    "ground_truth": dict(_TASK, tokens=MEMORY_TOKENS),
    "claim_b_1": dict(model=PLAIN, i=1),
    "theorem_3_3": dict(model=PLAIN, mu=MU),
    "lemma_c_2": dict(model=PLAIN, prompt=torch.ones(3, dtype=torch.float64)),
    **alike("lemma_d_2 lemma_d_9", **_RECOVERED),
    **alike("lemma_d_4 attention_head prompted_head", **_RECOVERED, mu=[1.0, -1.0]),
    **alike("prompt_d_6 prompt_for_any_start", **_TASK),
    "concentrated": dict(_PLACE, tokens=MEMORY_TOKENS, prompt=np.ones(8)),
    # Heads
    "LinearHead": dict(weights=[1.0, -1.0]),
    **alike("LINEAR.__call__ LINEAR.label LINEAR.sure", probs=PROBS[:, 0]),
    "AttentionHead": dict(
        query=[1.0, 0.0], key=np.ones((2, 3)), value=np.ones((2, 3)), output=[1.0, -1.0], positions=[[0.0, 1.0]]
    ),
    **alike("ATTENTION.__call__ ATTENTION.label ATTENTION.sure", **_HEAD_INPUTS),
    "fit_or_refute": dict(probs=PROBS[:, 0], labels=[True, False]),
    # Networks, tuning, trials
    "Shape": dict(layers=1, width=8, heads=2, max_length=8),
    "Tuning": dict(epochs=1, batch=4, head_rate=0.1, prompt_rate=0.1, warmup=0.1),
    "Pretraining": dict(
        steps=2, batch=2, length=4, masked=0.5, learning_rate=0.1, muon_rate=0.0, warmup=1, clip=1.0, documents=0
    ),
    "pretrain": dict(network=network, model=PLAIN, plan=PRETRAINING, seed=0),
    "draw_task": dict(model=PLAIN, length=4, sizes=[6, 2, 4], seed=0, rule="masked", places="distinct"),
    "draw_mu": dict(n=3, generator=0, places="repeated"),
    "tune_head": dict(probs=PROBS[:, 0], **_TUNING),
    "tune_attention": dict(probs=PROBS, **_TUNING, cells=1),
    "tune_prompt": dict(network=network, tokens=torch.tensor(TOKENS), **_TUNING, prompt_length=2),
    "tune_exact_prompt": dict(model=PLAIN, posteriors=torch.eye(3).double()[:2], **_TUNING),
    "accuracy": dict(head=LINEAR, probs=PROBS[:, 0], labels=LABELS),
    "exact_trial": dict(n_states=2, seed=0, preset="smoke"),
    "TrialSpec": dict(preset="smoke", n_states=4, seed=1),
    "panel_specs": dict(preset="smoke", panel="left", trials=1),
    "load_results": dict(preset="smoke"),
    "draw_model": dict(spec=SPEC),
    "draw_trial_task": dict(spec=SPEC, model=PLAIN),
}


def function(name: str):
    """The function of that name: at the root of hmmlib, a method of something there, or of a model or head above."""
    first, *rest = name.split(".")
    return reduce(getattr, rest, METHODS_OF[first] if first in METHODS_OF else getattr(hmmlib, first))


def call(name: str, **changed):
    """The good call, with some arguments changed."""
    arguments = {**GOOD[name], **changed}
    made = {key: value() for key, value in arguments.items() if any(value is one for one in MADE_WHEN_ASKED)}
    return function(name)(**{**arguments, **made})
