"""Controls that could overturn what the other modules of this folder suggest.

- Is a prompt good because it is the theorem's, or would any fake token do that suits the labels? `chosen_prompts`.
- Does only a head with huge weights read a label off an unprompted prediction? A head can be scaled without changing
  its labels, so `readable_with_noise` asks instead how much noise the reading stands.

The third control, whether a constant could do what a prompt does, is in `constants`.
"""

from __future__ import annotations

import torch

from companion.fake_tokens import good_fake_token
from companion.least_loss import least_loss_head
from companion.mechanism import gate
from companion.mechanism.heads_by_size import INPUTS
from companion.mechanism.rare_steps import THRESHOLDS, random_prompt, theorem_prompt
from hmmlib.experiments.labels import LABEL_RULES, Task
from hmmlib.experiments.measurements import Measurement, Seeds, Split
from hmmlib.experiments.specs import Amount, Share, TrialSpec
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead, share_right
from hmmlib.training import tuning
from hmmlib.validation import as_generator

CANDIDATES = 30
"""How many random prompts one is chosen from."""
NOISES = {"0": 0.0, "0.001": 0.001, "0.01": 0.01, "0.03": 0.03}
"""Standard deviations of the noise that is added to each probability."""
HEADS = ("fitted", "fully fitted", "fewest errors")
"""Heads of least logistic loss, with a penalty of 0.0001 or none, and one that is wrong on few training texts."""


@Measurement(on_request=True, phase="rare steps", vanilla=True, chosen_prompts=dict.fromkeys(THRESHOLDS, Share | None))
def chosen_prompts(spec: TrialSpec, model: HMM, task: Task, beliefs: Split, seeds: Seeds) -> dict:
    """Test accuracy on the exact model of the random prompt with a fitted head that is best on the training texts.

    All have as many ones as the theorem's prompt for each threshold; None where there is no such prompt.
    """
    origin = LABEL_RULES[spec.labels].origin(model)
    labels, _, truth = task.split(task.labels)
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
            train, _, test = (tuning.probs_behind_prompt(origin, part, prompt) for part in beliefs)
            head = least_loss_head(train, labels)
            on_training = share_right(train @ head >= 0, labels)
            if on_training > most:
                most = on_training
                table[name] = share_right(test @ head >= 0, truth)
    return dict(chosen_prompts=table)


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
    """Test accuracies of heads on predictions to which noise is added, and the norm of the head that was tuned."""
    labels, _, truth = task.split(task.labels)
    exact = tuple(part @ model.emission.T for part in beliefs)
    generator = as_generator(seeds["evaluation"])
    noise = torch.randn(exact[2].shape, generator=generator, dtype=torch.float64)
    table = {}
    for name, (train, _, test) in zip(INPUTS, (untuned, prompted, exact), strict=True):
        same = torch.eye(train.shape[1], dtype=torch.float64)  # with it a fake token and a head are a head alone
        heads = (
            least_loss_head(train, labels, gate.PENALTY),
            least_loss_head(train, labels),
            good_fake_token(same, train, labels),
        )
        table[name] = {}
        for head, weights in zip(HEADS, heads, strict=True):
            accuracies = {}
            for size, deviation in NOISES.items():
                scores = (test + deviation * noise) @ weights
                accuracies[size] = share_right(scores >= 0, truth)
            table[name][head] = accuracies
    return dict(readable_with_noise=table, tuned_head_norm=tuned_head.weights.norm().item())
