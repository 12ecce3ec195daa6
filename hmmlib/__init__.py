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

In the shapes of arrays, n is a number of texts, and T that of the tokens of a text. X is the number of tokens of the
vocabulary, `n_tokens`. S is that of the hidden states, `n_states`, which the paper calls |H|. A memory model has N
cells, each with M values, and H hidden states. A prompt has P vectors.

The code is in packages, each of which uses only those above it:

    package      what is in it
    models       HMMs, memory HMMs, families with a property, sentences
    inference    posteriors and masked-token probabilities, exact, zeros included
    theory       assumptions, heads, the paper's constructions
    training     a BERT-like network, and others' networks; heads and prompts tuned on them

The modules `validation` and `device` serve all of them. The trials of Section 5 and everything else that the book runs
are in the package `hmmbook` beside it.
"""

import lazy_loader

__version__ = "0.6.2"

MOVED_TO_HMMBOOK = {
    "Measurement",
    "Parts",
    "Task",
    "TrialResult",
    "TrialSpec",
    "draw_model",
    "draw_mu",
    "draw_task",
    "draw_trial_task",
    "exact_trial",
    "grid",
    "is_stored",
    "load_result",
    "load_results",
    "mean_ci",
    "panel_specs",
    "result_path",
    "results",
    "run_missing",
    "run_trial",
    "save_result",
}
"""Names that version 0.4 had here. They are the study of Section 5, so they are in the package `hmmbook` now."""

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Load a name with its module when it is first asked for, because torch takes a second to import."""
    if name in MOVED_TO_HMMBOOK:
        raise ImportError(f"{name} has moved: write `from hmmbook import {name}`.")
    return _load(name)
