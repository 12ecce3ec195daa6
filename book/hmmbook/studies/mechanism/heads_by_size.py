"""How large a head must be to read the label off a prediction, and what other classifiers read off it.

A network's prediction differs a little from the exact one, and these small errors can carry the label. So it is not
enough to ask whether some linear head is right: one also has to ask how large its weights are. Heads of least logistic
loss are fitted with a penalty on their weights, from none to a strong one. They read the network's prediction without a
prompt, that with the tuned prompt, and the exact prediction.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmbook import Measurement, Task
from hmmbook.experiments.fields import Amount, Share, as_type
from hmmbook.experiments.measurements import Seeds, Split
from hmmbook.studies.least_loss import least_loss_head
from hmmlib import HMM, Tuning, tune_head
from hmmlib.theory.heads import share_right

PENALTIES = {"none": 0.0} | {f"1e-{exponent}": 10.0**-exponent for exponent in range(11, 0, -1)}
"""The penalty λ of each fit, by its name, from the largest weights to the smallest."""
TUNED_AS_APPENDIX_E = "tuned as in appendix E"
TUNED_AS_QUICK = "tuned as in quick"
PLANS = {
    TUNED_AS_QUICK: Tuning(epochs=5, batch=128, head_rate=0.1, prompt_rate=0.1),
    TUNED_AS_APPENDIX_E: Tuning(epochs=5, batch=8, head_rate=0.01, prompt_rate=0.01),
}
"""How heads are tuned that are not fitted."""
HEADS = (*PENALTIES, *PLANS)
ALONE = "without the prompt"
PROMPTED = "with the prompt"
INPUTS = (ALONE, PROMPTED, "exact")
"""What a head reads: the network's prediction at the mask without and with the tuned prompt, and the exact W p."""
NEIGHBOURS = 5
"""How many nearest training texts vote."""
CLASSIFIERS = ("nearest neighbours", "small network")


def nearest_neighbours(train: Tensor, labels: Tensor, test: Tensor) -> Tensor:
    """Label each test prediction, (n, X), as most of its NEIGHBOURS nearest training predictions are labelled, (n,)."""
    nearest = torch.cdist(test, train).topk(NEIGHBOURS, largest=False).indices
    return labels[nearest].double().mean(1) > 0.5


def small_network(train: Tensor, labels: Tensor, test: Tensor, seed: int) -> Tensor:
    """Label test predictions, (n, X), by a network of one hidden layer of 64 units on the training predictions.

    It reads logarithms of probabilities, shifted and scaled to mean 0 and variance 1.
    """
    train_logs = train.clamp(min=1e-12).log()
    test_logs = test.clamp(min=1e-12).log()
    mean = train_logs.mean(0)
    scale = train_logs.std(0).clamp(min=1e-12)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        classifier = nn.Sequential(nn.Linear(train.shape[1], 64), nn.Tanh(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(classifier.parameters(), lr=0.01)
    inputs = ((train_logs - mean) / scale).float()
    targets = labels.float()
    for _ in range(1000):
        loss = F.binary_cross_entropy_with_logits(classifier(inputs).squeeze(1), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return classifier(((test_logs - mean) / scale).float()).squeeze(1) >= 0


def heads_on(train: Tensor, labels: Tensor, seed: int) -> dict[str, Tensor]:
    """The weights, (X,), of each head of HEADS on training predictions, (n, X)."""
    heads = {}
    for name, penalty in PENALTIES.items():
        heads[name] = least_loss_head(train, labels, penalty)
    for name, plan in PLANS.items():
        heads[name] = tune_head(train, labels, plan, seed).weights
    return heads


READ = as_type(dict.fromkeys(HEADS, as_type({"accuracy": Share, "norm": Amount})))
JUDGED = as_type(dict.fromkeys(CLASSIFIERS, Share))


@Measurement(
    on_request=True,
    phase="heads by size",
    vanilla=True,
    prompts=True,
    heads_by_size=dict.fromkeys(INPUTS, READ),
    other_classifiers=dict.fromkeys(INPUTS, JUDGED),
)
def heads_by_size(
    model: HMM, task: Task, beliefs: Split, untuned: Split, prompted: Split, seeds: Seeds, before_step: Callable
) -> dict:
    """Measure test accuracy and norm ‖b‖ of each head on each input, and test accuracy of other classifiers."""
    labels = task.train.labels
    truth = task.test.labels
    exact = tuple(part @ model.emission.T for part in beliefs)
    heads_by_size = {}
    other_classifiers = {}
    for name, (train, _, test) in zip(INPUTS, (untuned, prompted, exact), strict=True):
        table = {}
        for head, weights in heads_on(train, labels, seeds["tuning"]).items():
            table[head] = {
                "accuracy": share_right(test @ weights >= 0, truth),
                "norm": weights.norm().item(),
            }
        heads_by_size[name] = table
        before_step()
        other_classifiers[name] = {
            "nearest neighbours": share_right(nearest_neighbours(train, labels, test), truth),
            "small network": share_right(small_network(train, labels, test, seeds["evaluation"]), truth),
        }
        before_step()
    return {"heads_by_size": heads_by_size, "other_classifiers": other_classifiers}
