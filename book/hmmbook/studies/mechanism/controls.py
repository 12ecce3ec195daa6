"""Controls that could overturn what the other modules of this folder suggest.

- Is a prompt good because it is the theorem's, or would any fake token do that suits the labels? `chosen_prompts`.
- Does only a head with huge weights read a label off an unprompted prediction? A head can be scaled without changing
  its labels, so `readable_with_noise` asks instead how much noise the reading stands.

The third control, whether a constant could do what a prompt does, is in `constants`.
"""

from __future__ import annotations

import torch

from hmmbook import Measurement, Task, TrialSpec
from hmmbook.experiments.fields import Amount, Share
from hmmbook.experiments.labels import LABEL_RULES
from hmmbook.experiments.measurements import Seeds, Split
from hmmbook.studies.fake_tokens import good_fake_token
from hmmbook.studies.least_loss import least_loss_head
from hmmbook.studies.mechanism.gate import PENALTY
from hmmbook.studies.mechanism.heads_by_size import INPUTS
from hmmbook.studies.mechanism.rare_steps import THRESHOLDS, random_prompt, theorem_prompt
from hmmlib import HMM, LinearHead
from hmmlib.theory.heads import share_right
from hmmlib.training.tuning import probs_behind_prompt
from hmmlib.validation import as_generator

CANDIDATES = 30
"""How many random prompts the best is chosen from."""
NOISES = {"0": 0.0, "0.001": 0.001, "0.01": 0.01, "0.03": 0.03}
"""Standard deviations of the noise that is added to each probability."""
HEADS = ("fitted", "fully fitted", "fewest errors")
"""Heads of least logistic loss, with a penalty of 0.0001 or none, and one that is wrong on few training texts."""


@Measurement(on_request=True, phase="rare steps", vanilla=True, chosen_prompts=dict.fromkeys(THRESHOLDS, Share | None))
def chosen_prompts(spec: TrialSpec, model: HMM, task: Task, beliefs: Split, seeds: Seeds) -> dict:
    """Measure, on the exact model, the random prompt with a fitted head that is best on the training texts.

    All have as many ones as the theorem's prompt for each threshold. It is None where there is no such prompt.
    """
    origin = LABEL_RULES[spec.labels].origin(model)
    labels = task.train.labels
    generator = as_generator(seeds["evaluation"])
    table = {}
    for name, threshold in THRESHOLDS.items():
        table[name] = None
        built = theorem_prompt(origin, task.mu, threshold)
        if built is None:
            continue
        most = -1.0
        for _ in range(CANDIDATES):
            prompt = random_prompt(built.prompt, generator)
            train = probs_behind_prompt(origin, beliefs[0], prompt)
            test = probs_behind_prompt(origin, beliefs[2], prompt)
            head = least_loss_head(train, labels)
            on_training = share_right(train @ head >= 0, labels)
            if on_training > most:
                most = on_training
                table[name] = share_right(test @ head >= 0, task.test.labels)
    return {"chosen_prompts": table}


@Measurement(
    on_request=True,
    phase="controls",
    vanilla=True,
    prompts=True,
    readable_with_noise=dict.fromkeys(INPUTS, dict.fromkeys(HEADS, dict.fromkeys(NOISES, Share))),
    tuned_head_norm=Amount,
)
def readable_with_noise(
    model: HMM, task: Task, beliefs: Split, untuned: Split, prompted: Split, tuned_head: LinearHead, seeds: Seeds
) -> dict:
    """Measure test accuracies of heads on predictions to which noise is added, and the norm of the tuned head."""
    labels = task.train.labels
    exact = tuple(part @ model.emission.T for part in beliefs)
    generator = as_generator(seeds["evaluation"])
    noise = torch.randn(exact[2].shape, generator=generator, dtype=torch.float64)
    table = {}
    for name, (train, _, test) in zip(INPUTS, (untuned, prompted, exact), strict=True):
        # With the identity for W, a fake token and a head are a head alone.
        identity = torch.eye(train.shape[1], dtype=torch.float64)
        heads = {
            "fitted": least_loss_head(train, labels, PENALTY),
            "fully fitted": least_loss_head(train, labels),
            "fewest errors": good_fake_token(identity, train, labels),
        }
        table[name] = {}
        for head, weights in heads.items():
            accuracies = {}
            for size, deviation in NOISES.items():
                scores = (test + deviation * noise) @ weights
                accuracies[size] = share_right(scores >= 0, task.test.labels)
            table[name][head] = accuracies
    return {"readable_with_noise": table, "tuned_head_norm": tuned_head.weights.norm().item()}
