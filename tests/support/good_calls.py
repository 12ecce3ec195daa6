"""A good call of every public function that takes a reader's data, by its name at the root: tests spoil an argument."""

from functools import cache, reduce
from inspect import signature

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
MU_ESSENTIAL, MU_ONE = np.zeros(4), np.zeros(3)
MU_ESSENTIAL[STATES] = 1.0, -1.0
MU_ONE[VALUES] = 1.0, -1.0
TOKENS = [[0, 1, 2], [2, 1, 0]]
MEMORY_TOKENS = MEMORY.sample(2, 3, 0).tokens
PROBS, MEMORY_PROBS = hmmlib.masked_token_probs(PLAIN, TOKENS), hmmlib.masked_token_probs(MEMORY, MEMORY_TOKENS)
RECOVERY = hmmlib.claim_d_3(MEMORY, CELL, SYNTAX)
LINEAR, ATTENTION = hmmlib.LinearHead([1.0, -1.0, 0.5, 0.0]), hmmlib.attention_head(MEMORY, [1.0, -1.0], RECOVERY)
METHODS_OF = {"PLAIN": PLAIN, "MEMORY": MEMORY, "LINEAR": LINEAR, "ATTENTION": ATTENTION}
SIZES = dict(n_states=3, n_tokens=4, n_memory=2, n_cells=1, n_essential=2, temperature=0.01, permutations=2)
OF_PLAIN = dict(
    model=PLAIN, tokens=TOKENS, prompt=torch.eye(3).double()[0], mu=[1.0, -1.0, 0.5], i=1, probs=PROBS[:, 0]
)
GOOD = {
    "HMM": dict(transition=np.eye(2), emission=np.eye(3)[:, :2], initial=[0.5, 0.5]),
    "MemoryHMM": dict(transition=np.eye(2), emission=np.full((2, 2, 2), 0.5), initial=[0.5, 0.5], memory=[0.5, 0.5]),
    "Shape": dict(layers=1, width=8, heads=2, max_length=8),
    "Tuning": dict(epochs=1, batch=4, head_rate=0.1, prompt_rate=0.1, warmup=0.1),
    "Pretraining": dict(
        steps=2, batch=2, length=4, masked=0.5, learning_rate=0.1, muon_rate=0.0, warmup=1, clip=1.0, documents=0
    ),
    "TrialSpec": dict(preset="smoke", n_states=4, seed=1),
}
_MATRIX = np.ones((2, 3))


@cache
def network() -> torch.nn.Module:
    """A tiny network, built when first asked for, as the import takes seconds."""
    return bert.build(Shape(1, 8, 2, 8), 4, 0)


MADE_WHEN_ASKED = (network, categorical, parameters)
"""Functions that stand for their results."""
OF_TUNING = dict(network=network, labels=torch.tensor([True, False]), plan=Tuning(1, 4, 0.1, 0.1), head=LINEAR)
COMMON = SIZES | OF_PLAIN | OF_TUNING | dict(zeros=0.4, gap=0.1, seed=0, spec=TrialSpec("smoke"), preset="smoke")


def function(name: str):
    """The function of that name: at the root of hmmlib, a method of something there, or of a model or head above."""
    first, *rest = name.split(".")
    return reduce(getattr, rest, METHODS_OF[first] if first in METHODS_OF else getattr(hmmlib, first))


def good(names: str, **own) -> None:
    """Functions whose arguments are, by name, those of their own or the common ones."""
    known = COMMON | own
    for name in names.split():
        GOOD[name] = {key: known[key] for key in signature(function(name)).parameters if key in known}


good("random_hmm random_memory_hmm sparse_memory_hmm nearly_dependent_hmm dependent_hmm sparse_hmm regular_hmm")
good("non_degenerate_hmm essential_hmm essential_twins recoverable_twins shrinking_support PLAIN.embed PLAIN.marginal")
good("masked_token_probs latent_given_others possible_given_others prompted posteriors log_likelihood lemma_c_2")
good("assumption_3_1 assumption_3_2 claim_b_1 theorem_3_3 LINEAR.__call__ LINEAR.label LINEAR.sure fit_or_refute")
good("tune_head accuracy load_results draw_model draw_trial_task")
good(
    "MEMORY.embed memory_posterior assumption_4_2 assumption_4_4 assumption_d_5 claim_d_3 claim_d_10 lemma_d_2 "
    "lemma_d_4 lemma_d_9 theorem_4_3 theorem_4_6 attention_head prompted_head prompt_d_6 prompt_for_any_start "
    "ground_truth concentrated ATTENTION.__call__ ATTENTION.label ATTENTION.sure",
    **dict(model=MEMORY, tokens=MEMORY_TOKENS, cell=CELL, syntax=SYNTAX, mu=[1.0, -1.0], recovery=RECOVERY),
    **dict(prompt=np.ones(8), probs=MEMORY_PROBS, embeddings=MEMORY.embed(MEMORY_TOKENS)),
)
good("assumption_3_5 theorem_3_6 essential_states", model=ESSENTIAL, mu=MU_ESSENTIAL, essential=STATES)
good("assumption_4_5", model=ONE_CELL, mu=MU_ONE, syntax=ONE_SYNTAX)
good("HMM.from_rows", startprob=[0.5, 0.5], transmat=[[0.9, 0.1], [0.5, 0.5]], emissionprob=np.eye(3)[:2])
good("HMM.from_hmmlearn HMM.from_dynamax", fitted=categorical, params=parameters)
good("PLAIN.to", device="cpu", dtype=torch.float32)
good("PLAIN.sample", n=2, length=3)
good("recoverable_memory_hmm", n_syntax=2, n_recoverable=1, values=1)
good("parity_memory_hmm", n=2, noise=0.1)
good("posterior", at=1)
good("masked_token_probs_from_embeddings", embeddings=np.ones((2, 3, 3)))
good("aggregated_messages", evidence=torch.ones(2, 3, 3).double())
good("LinearHead", weights=[1.0, -1.0])
good("AttentionHead", query=[1.0, 0.0], key=_MATRIX, value=_MATRIX, output=[1.0, -1.0], positions=[[0.0, 1.0]])
good("pretrain", plan=Pretraining(2, 2, 6, 0.2, 1e-3, 0.0, 1))
good("draw_task", length=4, sizes=[6, 2, 4], rule="masked", places="distinct")
good("draw_mu", n=3, generator=0, places="repeated")
good("tune_attention", probs=PROBS, cells=1)
good("tune_prompt", tokens=torch.tensor(TOKENS), prompt_length=2)
good("tune_exact_prompt", posteriors=torch.eye(3).double()[:2])
good("exact_trial", n_states=2)
good("panel_specs grid", panel="left", trials=1)


def call(name: str, **changed):
    """The good call, with some arguments changed."""
    arguments = {**GOOD[name], **changed}
    made = {key: value() for key, value in arguments.items() if any(value is one for one in MADE_WHEN_ASKED)}
    return function(name)(**{**arguments, **made})
