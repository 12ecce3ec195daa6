"""The library behind the executable companion to Wei, Xie and Ma (2021).

    from hmmlib import masked_token_probs, posterior, random_hmm, theorem_3_3

    model = random_hmm(n_states=6, n_tokens=10, seed=1)     # a model, drawn as in appendix E
    tokens = model.sample(n=100, length=20, seed=2).tokens  # (100, 20)
    masked_token_probs(model, tokens)                       # the paper's G: (100, 20, 10)
    posterior(model, tokens, at=0)                          # P[H_0 | tokens]: (100, 6)
    theorem_3_3(model, mu=[1, -1, 0, 0, 0, 0])              # the linear head that Theorem 3.3 constructs

Everything that you call can be imported from here, the root; `help(hmmlib.theorem_3_3)` prints what it takes and
returns, as does the book's page *Reference*. What to call, by task:

    Draw a model                             random_hmm, random_memory_hmm, essential_hmm
    Make a model of your own                 HMM, MemoryHMM, HMM.from_rows
    Draw text from a model                   HMM.sample, MemoryHMM.sample
    Draw a task: texts with exact labels     draw_task
    Exact target of a task, for each text    ground_truth
    Hidden states, given a text              posterior, posteriors
    Value of a memory cell, given a text     memory_posterior
    Log-probability of a text                log_likelihood
    A masked token, given all others         masked_token_probs, masked_token_probs_from_embeddings
    Embeddings of a text after a prompt      prompted
    Is an assumption satisfied?              assumption_3_1, assumption_3_2, assumption_3_5, assumption_4_2
    The same, for prompts with a memory      assumption_4_4, assumption_4_5, assumption_d_5
    Find a set H* for Assumption 3.5         essential_states
    A linear head                            theorem_3_3
    A prompt with a linear head              theorem_3_6
    An attention head                        theorem_4_3
    A prompt with an attention head          theorem_4_6
    A linear head, or a proof of none        fit_or_refute
    Pretrain a small network                 Shape, Pretraining, pretrain
    Use a network of your own                FromTransformers
    Tune a head on a frozen network          Tuning, tune_head, tune_attention
    Tune a prompt together with a head       tune_prompt
    Choose among prompt, prefix and LoRA     tune
    Share of labels that a head gets right   accuracy
    Run a trial, with parts of your own      TrialSpec, run_trial, Parts
    Run many, with measures of your own      grid, run_missing, Measurement
    Read stored results, and average them    results, load_result, mean_ci

The code is in packages, each of which uses only those above it:

    package      what is in it
    models       HMMs, memory HMMs, families with a property, sentences
    inference    posteriors and masked-token probabilities, exact, zeros included
    theory       assumptions, heads, the paper's constructions
    training     a BERT-like network, and others' networks; heads and prompts tuned on them
    experiments  specs, trials, their store, sweeps, the table of results

The modules `validation`, `backend` and `files` serve all of them. `python -m hmmlib --help` shows the command line.
What checks the paper's statements, and the figures of the book, are in the package `companion` beside it.
"""

import importlib
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

__version__ = "0.4.0"

# Threads of torch that wait for each other spin. With another busy process beside them on few cores, a step then takes
# 20 to 40 times as long; with a short spin it takes its fair share. Read when torch is first imported.
if sys.platform == "linux" and "torch" in sys.modules and "GOMP_SPINCOUNT" not in os.environ:
    if sys.modules["torch"].get_num_threads() > 1:
        slow = "Beside other work a step of training may take 20 times as long, as the threads of torch spin"
        warnings.warn(f"{slow}: import hmmlib before torch, or set GOMP_SPINCOUNT=1000.", stacklevel=2)
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# cuBLAS gives the same sums each time only with a workspace of a fixed size.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

# The module of each name: type checkers and editors read the same lines.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf8")
_MODULE = {name: module for module, name in re.findall(r"^from hmmlib\.(\S+) import (\w+) as \2$", _STUB, re.MULTILINE)}
__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    """The names that others call, each loaded with its module when first asked for: torch is large."""
    if name not in _MODULE:
        raise AttributeError(f"module 'hmmlib' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hmmlib.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
