"""Define the presets, each of which says at what size a trial runs.

A `TrialSpec` can override any of their values.
"""

from __future__ import annotations

PAPER = dict(
    # The network
    layers=6,
    width=768,
    heads=12,
    dropout=0.1,
    specials=1,
    weights="own",
    permutations="states",
    # Its pretraining
    documents=5000,
    document_length=10240,
    steps=37_500,
    batch=8,
    length=512,
    masked=0.05,
    masking="always",
    learning_rate=1e-5,
    muon_rate=0.0,
    clip=1.0,
    warmup=500,
    precision="half",
    # The task
    labels="masked",
    places="distinct",
    task_length=129,
    train=5000,
    validation=500,
    test=1000,
    # Tuning, and measuring
    epochs=5,
    tuning_batch=8,
    tuning_warmup=0.1,
    head_rate=0.01,
    prompt_rate=0.01,
    prompt_length=20,
    prompt_start="uniform",
    attention_heads=1,
    attention_positions="learned",
    evaluation=1000,
)
"""Appendix E to the letter."""

QUICK = PAPER | dict(
    layers=2,
    width=64,
    heads=2,
    dropout=0.0,
    documents=0,
    document_length=0,
    steps=400,
    batch=64,
    length=64,
    masked=0.15,
    learning_rate=5e-3,
    muon_rate=0.02,
    clip=0.0,
    warmup=50,
    precision="single",
    task_length=33,
    train=4000,
    validation=400,
    tuning_batch=128,
    head_rate=0.1,
    prompt_rate=0.1,
)
"""For two CPU cores. A trial takes half a minute."""

SMOKE = QUICK | dict(
    layers=1,
    width=32,
    steps=60,
    batch=32,
    length=25,
    learning_rate=1e-2,
    muon_rate=0.04,
    warmup=10,
    task_length=17,
    train=200,
    validation=50,
    test=100,
    epochs=3,
    tuning_batch=32,
    prompt_length=8,
    evaluation=100,
)
"""For tests. A trial takes a second, and its network learns next to nothing."""

LAPTOP = QUICK | dict(
    layers=4,
    width=128,
    heads=4,
    steps=600,
    batch=32,
    length=160,
    task_length=129,
    train=5000,
    validation=500,
    tuning_batch=8,
    head_rate=0.01,
    prompt_rate=0.01,
)
"""For a laptop. The network is smaller than the paper's, but the task has texts as long and as many."""

GPU = QUICK | dict(
    layers=4,
    width=256,
    heads=4,
    steps=3000,
    batch=64,
    length=160,
    learning_rate=3e-3,
    warmup=200,
    precision="half",
    task_length=129,
    train=5000,
    validation=500,
)
"""For one GPU. The network is wider than that of `LAPTOP` and pretrained in five times as many steps."""

RELEASED_CODE = PAPER | dict(
    specials=5,
    weights="shared",
    permutations="joint",
    masking="bert",
    warmup=1000,
    labels="stepped",
    places="repeated",
    task_length=80,
    epochs=100,
    tuning_batch=128,
    tuning_warmup=0.125,
    prompt_start="vocabulary",
    attention_heads=15,
    attention_positions="none",
)
"""What the released scripts do where they differ from appendix E."""

PRESETS: dict[str, dict] = {
    "smoke": SMOKE,
    "quick": QUICK,
    "laptop": LAPTOP,
    "gpu": GPU,
    "paper": PAPER,
    "released-code": RELEASED_CODE,
}
"""The values of each preset, by its name."""
FOR_GPUS = {"gpu", "paper", "released-code"}
"""Presets whose trials take hours or days on a CPU."""

PANELS: dict[str, list[dict[str, int]]] = {"left": [], "right": []}
"""The points of each panel of Figure 3. A vanilla model of the right panel is drawn like one of the left panel, so the
two panels share the stored results of such models."""
for _states in (4, 8, 10, 15, 25, 30):
    PANELS["left"].append(dict(n_states=_states, n_memory=1))
for _values in (2, 3, 5, 7):
    PANELS["right"].append(dict(n_states=4, n_memory=_values))
    PANELS["right"].append(dict(n_states=4 * _values, n_memory=1))

TRIALS = {"left": 20, "right": 5}
"""How many trials of each point the paper runs."""

LADDER_NUMBERS: dict[str, dict] = {}
"""The numbers of the exact ladder for each preset.

`length` counts the tokens of a text, the mask included, and `epochs` the passes over the training texts. The rates are
those of AdamW.
"""
for _preset in PRESETS:
    LADDER_NUMBERS[_preset] = dict(
        length=33, train=4000, test=1000, epochs=20, batch=128, head_rate=0.3, prompt_rate=0.1
    )
LADDER_NUMBERS["smoke"].update(length=17, train=400, test=200, epochs=5)
