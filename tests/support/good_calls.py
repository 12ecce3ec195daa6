"""A good call of every public function that takes a reader's data, by its name at hmmlib's root: tests spoil one
argument."""

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
    """A tiny network, built when first asked for, as the import takes seconds. In a good call it stands for its
    result."""
    return bert.build(Shape(1, 8, 2, 8), 4, 0)


MADE_WHEN_ASKED = (network, categorical, parameters)
_SIZES, _TUNING = dict(n_states=3, n_tokens=4, seed=0), dict(labels=LABELS, plan=PLAN, seed=0)
_PLACE, _TASK = dict(model=MEMORY, cell=CELL, syntax=SYNTAX), dict(model=MEMORY, mu=[1.0, -1.0], cell=CELL)
_PROMPT, _HEAD_INPUTS = [1.0, 0.5, 0.0], dict(probs=MEMORY_PROBS, embeddings=MEMORY_EMBEDDINGS)
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
    "sparse_hmm": dict(**_SIZES, zeros=0.4),
    "sparse_memory_hmm": dict(n_memory=2, **_SIZES, zeros=0.4, n_cells=1),
    "regular_hmm": dict(**_SIZES, zeros=0.4),
    "non_degenerate_hmm": dict(**_SIZES, zeros=0.4),
    "nearly_dependent_hmm": dict(**_SIZES, gap=0.1),
    "dependent_hmm": dict(**_SIZES),
    "essential_hmm": dict(**_SIZES, n_essential=2, zeros=0.4),
    "recoverable_memory_hmm": dict(n_cells=1, n_memory=2, n_syntax=2, n_recoverable=1, values=1, seed=0, zeros=0.5),
    "essential_twins": dict(seed=0),
    "recoverable_twins": dict(seed=0),
    "parity_memory_hmm": dict(n=2, noise=0.1),
    "shrinking_support": dict(seed=0),
    # Conditional probabilities
    "masked_token_probs": dict(model=PLAIN, tokens=TOKENS, prompt=_PROMPT),
    "masked_token_probs_from_embeddings": dict(model=PLAIN, embeddings=np.ones((2, 3, 3))),
    "latent_given_others": dict(model=PLAIN, tokens=TOKENS, prompt=_PROMPT),
    "possible_given_others": dict(model=PLAIN, tokens=TOKENS, prompt=_PROMPT),
    "prompted": dict(model=PLAIN, prompt=_PROMPT, tokens=TOKENS),
    "posteriors": dict(model=PLAIN, tokens=TOKENS),
    "posterior": dict(model=PLAIN, tokens=TOKENS, at=1),
    "memory_posterior": dict(model=MEMORY, tokens=MEMORY_TOKENS, cell=0),
    "log_likelihood": dict(model=PLAIN, tokens=TOKENS),
    "aggregated_messages": dict(model=PLAIN, evidence=torch.ones(2, 3, 3).double()),
    # Assumptions and theorems
    "assumption_3_1": dict(model=PLAIN),
    "assumption_3_2": dict(model=PLAIN),
    "assumption_3_5": dict(model=ESSENTIAL, mu=MU_ESSENTIAL, essential=STATES),
    "essential_states": dict(model=ESSENTIAL, mu=MU_ESSENTIAL),
    "assumption_4_2": _PLACE,
    "assumption_4_4": dict(model=MEMORY),
    "assumption_4_5": dict(model=ONE_CELL, mu=MU_ONE, syntax=ONE_SYNTAX),
    "assumption_d_5": dict(_TASK, syntax=SYNTAX),
    "ground_truth": dict(_TASK, tokens=MEMORY_TOKENS),
    "claim_b_1": dict(model=PLAIN, i=1),
    "theorem_3_3": dict(model=PLAIN, mu=MU),
    "lemma_c_2": dict(model=PLAIN, prompt=torch.ones(3, dtype=torch.float64)),
    "theorem_3_6": dict(model=ESSENTIAL, mu=MU_ESSENTIAL, essential=STATES),
    "claim_d_3": _PLACE,
    "claim_d_10": dict(_TASK, syntax=SYNTAX),
    "lemma_d_2": dict(model=MEMORY, recovery=RECOVERY),
    "lemma_d_4": dict(model=MEMORY, recovery=RECOVERY, mu=[1.0, -1.0]),
    "lemma_d_9": dict(model=MEMORY, recovery=RECOVERY),
    "attention_head": dict(model=MEMORY, mu=[1.0, -1.0], recovery=RECOVERY),
    "prompted_head": dict(model=MEMORY, mu=[1.0, -1.0], recovery=RECOVERY),
    "theorem_4_3": dict(_TASK, syntax=SYNTAX),
    "theorem_4_6": dict(_TASK, syntax=SYNTAX),
    "prompt_d_6": _TASK,
    "prompt_for_any_start": _TASK,
    "concentrated": dict(_PLACE, tokens=MEMORY_TOKENS, prompt=np.ones(8)),
    # Heads
    "LinearHead": dict(weights=[1.0, -1.0]),
    "LINEAR.__call__": dict(probs=PROBS[:, 0]),
    "LINEAR.label": dict(probs=PROBS[:, 0]),
    "LINEAR.sure": dict(probs=PROBS[:, 0]),
    "AttentionHead": dict(
        query=[1.0, 0.0], key=np.ones((2, 3)), value=np.ones((2, 3)), output=[1.0, -1.0], positions=[[0.0, 1.0]]
    ),
    "ATTENTION.__call__": _HEAD_INPUTS,
    "ATTENTION.label": _HEAD_INPUTS,
    "ATTENTION.sure": _HEAD_INPUTS,
    "fit_or_refute": dict(probs=PROBS[:, 0], labels=[True, False]),
    # Networks, tuning, trials
    "pretrain": dict(network=network, model=PLAIN, plan=PRETRAINING, seed=0),
    "draw_task": dict(model=PLAIN, length=4, sizes=(6, 2, 4), seed=0, rule="masked"),
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
}


def function(name: str):
    """The function of that name: at the root of hmmlib, a method of something there, or of a model or head above."""
    first, *rest = name.split(".")
    return reduce(getattr, rest, METHODS_OF[first] if first in METHODS_OF else getattr(hmmlib, first))


def call(name: str, **changed):
    """The good call, with some arguments changed."""
    arguments = {**GOOD[name], **changed}
    return function(name)(
        **{
            key: value() if any(value is made for made in MADE_WHEN_ASKED) else value
            for key, value in arguments.items()
        }
    )
