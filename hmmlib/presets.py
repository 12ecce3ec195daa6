"""The presets: at what size a trial runs. Each is a table of numbers, any of which a TrialSpec can override."""

from __future__ import annotations

PRESETS: dict[str, dict] = {
    "smoke": dict(
        layers=1, width=32, heads=2, steps=60, batch=32, length=25, masked=0.15, learning_rate=1e-2, muon_rate=0.04,
        warmup=10, task_length=17, train=200, validation=50, test=100, epochs=3, tuning_batch=32, head_rate=0.1,
        prompt_rate=0.1, prompt_length=8, evaluation=100,
    ),
    "quick": dict(
        layers=2, width=64, heads=2, steps=550, batch=64, length=64, masked=0.15, learning_rate=5e-3, muon_rate=0.04,
        warmup=50, task_length=33, train=4000, validation=400, test=1000, epochs=5, tuning_batch=128, head_rate=0.1,
        prompt_rate=0.1, prompt_length=20, evaluation=1000,
    ),
}  # fmt: skip
"""Each preset's numbers; any of them can be overridden in a TrialSpec."""

INSTANCES = {"smoke": 20, "quick": 300}
"""How many random models the notebooks on theory check at each preset."""

LADDER: dict[str, dict] = {
    "smoke": dict(length=17, train=400, test=200, epochs=5, batch=128, head_rate=0.3, prompt_rate=0.1),
    "quick": dict(length=33, train=4000, test=1000, epochs=20, batch=128, head_rate=0.3, prompt_rate=0.1),
}
"""Sizes and rates of the exact ladder: sequences (the mask included), examples, passes, AdamW's rates."""
