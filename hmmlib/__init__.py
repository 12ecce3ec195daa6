"""hmmlib: the library behind the executable companion to Wei, Xie and Ma (2021)."""

import importlib
import os

# Threads of torch that wait for each other spin. With another busy process beside them on few cores, a step then takes
# 20 to 40 times as long; with a short spin it takes its fair share. Read when torch is first imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# cuBLAS gives the same sums each time only with a workspace of a fixed size.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

_HOME = {
    "validation": ["MASK"],
    "models.hmm": ["HMM", "MemoryHMM", "Sample"],
    "models.appendix_e": ["random_hmm", "random_memory_hmm"],
    "models.families": ["recoverable_memory_hmm"],
    "models.sentences": ["sentences"],
    "inference.messages": [
        "latent_given_others",
        "log_likelihood",
        "masked_token_probs",
        "masked_token_probs_from_embeddings",
        "memory_posterior",
        "posterior",
        "posteriors",
        "prompted",
    ],
    "theory.assumptions": [
        "AssumptionError",
        "assumption_3_1",
        "assumption_3_2",
        "assumption_3_5",
        "assumption_4_2",
        "assumption_4_4",
        "assumption_4_5",
        "assumption_d_5",
        "essential_states",
    ],
    "theory.heads": ["AttentionHead", "LinearHead"],
    "theory.separation": ["fit_or_refute"],
    "theory.theorems": ["ground_truth", "theorem_3_3", "theorem_3_6", "theorem_4_3", "theorem_4_6"],
    "training.bert": ["Shape"],
    "training.pretraining": ["Pretraining", "pretrain"],
    "training.tuning": ["Tuning", "accuracy", "tune_attention", "tune_exact_prompt", "tune_head", "tune_prompt"],
    "experiments.labels": ["Task", "draw_task"],
    "experiments.specs": ["TrialSpec"],
    "experiments.store": ["load_result", "load_results", "save_result"],
    "experiments.trials": ["TrialResult", "run_trial"],
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_MODULE)


def __getattr__(name: str):
    """The names that others call, each loaded with its module when first asked for: torch and transformers are large."""
    if name not in _MODULE:
        raise AttributeError(f"module 'hmmlib' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hmmlib.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
