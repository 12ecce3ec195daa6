"""The presets: at what size a trial runs. A TrialSpec can override any of their numbers and choices."""

from __future__ import annotations

_APPENDIX_E = dict(
    layers=6, width=768, heads=12, dropout=0.1, specials=1, weights="own", permutations="states",
    documents=5000, document_length=10240, steps=37_500, batch=8, length=512, masked=0.05, masking="always",
    learning_rate=1e-5, muon_rate=0.0, clip=1.0, warmup=500, precision="half",
    labels="masked", places="distinct", task_length=129, train=5000, validation=500, test=1000,
    epochs=5, tuning_batch=8, tuning_warmup=0.1, head_rate=0.01, prompt_rate=0.01,
    prompt_length=20, prompt_start="uniform", attention_heads=1, attention_positions="learned", evaluation=1000,
)  # fmt: skip

_QUICK = _APPENDIX_E | dict(
    layers=2, width=64, heads=2, dropout=0.0, documents=0, document_length=0, steps=400, batch=64, length=64,
    masked=0.15, learning_rate=5e-3, muon_rate=0.02, clip=0.0, warmup=50, precision="single", task_length=33,
    train=4000, validation=400, tuning_batch=128, head_rate=0.1, prompt_rate=0.1,
)  # fmt: skip

PRESETS: dict[str, dict] = {
    "smoke": _QUICK | dict(
        layers=1, width=32, steps=60, batch=32, length=25, learning_rate=1e-2, muon_rate=0.04, warmup=10,
        task_length=17, train=200, validation=50, test=100, epochs=3, tuning_batch=32, prompt_length=8, evaluation=100,
    ),
    "quick": _QUICK,
    "laptop": _QUICK | dict(
        layers=4, width=128, heads=4, steps=600, batch=32, length=160, task_length=129, train=5000, validation=500,
        tuning_batch=8, head_rate=0.01, prompt_rate=0.01,
    ),
    "gpu": _QUICK | dict(
        layers=4, width=256, heads=4, steps=3000, batch=64, length=160, learning_rate=3e-3, warmup=200,
        precision="half", task_length=129, train=5000, validation=500,
    ),
    "paper": _APPENDIX_E,
    "released-code": _APPENDIX_E | dict(
        specials=5, weights="shared", permutations="joint", masking="bert", warmup=1000, labels="stepped",
        places="repeated", task_length=80, epochs=100, tuning_batch=128, tuning_warmup=0.125,
        prompt_start="vocabulary", attention_heads=15, attention_positions="none",
    ),
}  # fmt: skip
"""Each preset's numbers; any of them can be overridden in a TrialSpec."""

PANELS: dict[str, list[dict[str, int]]] = {
    "left": [dict(n_states=n, n_memory=1) for n in (4, 8, 10, 15, 25, 30)],
    "right": [dict(n_states=n, n_memory=m) for k in (2, 3, 5, 7) for n, m in ((4, k), (4 * k, 1))],
}
"""The points of Figure 3. A vanilla model of the right panel is of the left panel's kind, and shares its results."""

TRIALS = {"left": 20, "right": 5}
"""Trials of each point in the paper."""

_LADDER = dict(length=33, train=4000, test=1000, epochs=20, batch=128, head_rate=0.3, prompt_rate=0.1)
LADDER_NUMBERS: dict[str, dict] = {name: _LADDER for name in PRESETS}
LADDER_NUMBERS["smoke"] = _LADDER | dict(length=17, train=400, test=200, epochs=5)
"""Sizes and rates of the exact ladder: sequences (the mask included), examples, passes, AdamW's rates."""
