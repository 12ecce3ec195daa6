"""What we asked beyond the paper: a module or folder for each question.

Each study is written as a reader's own would be, with `Measurement`, `Parts`, `run_missing` and `results`. In the order
in which they build on each other:

    least_loss      What does a linear head reach that is fitted fully?
    kinds_of_text   On which texts does a prompt help?
    readouts        How does a prompt change what a network predicts from the belief about the state?
    certificates    Which labels are certain, and which tasks can a prompt and a head solve?
    hidden_states   Where in the network is the belief, and which part of it does the label follow?
    fake_tokens     What can a fake token do at most on the texts that occur?
    look_alikes     Does a tuned prompt do what a fake token does? Chains on which this can be decided.
    mechanism       How does a tuned prompt help?

Importing this package imports its modules, which registers their measurements. A new module needs no entry here.
"""

import pkgutil
from importlib import import_module

from hmmbook.experiments.measurements import MEASUREMENTS

OF_THEIR_OWN_CHAINS = ("hmmbook.studies.fake_tokens", "hmmbook.studies.mechanism")
"""Studies of chains that were made for them. `--also all` leaves out their measurements."""

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    if not _module.name.endswith("__main__"):
        import_module(_module.name)


def names_for_every_trial() -> list[str]:
    """Return the names of the measurements on request that suit the trial of any chain."""
    names = []
    for measurement in MEASUREMENTS:
        if measurement.on_request and not measurement.function.__module__.startswith(OF_THEIR_OWN_CHAINS):
            names.extend(measurement.names)
    return names
