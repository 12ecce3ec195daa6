"""Which labels are certain although predictions are approximate, and which tasks can a prompt and a head solve?

The page *solvable* shows the answers. `certain_labels` says how far a prediction may be off, `nearest` finds the heads
and prompts that come nearest to a task, `exactness` decides whether some are right for every belief, and `gated` shows
what a network can do beyond that. `measured` measures it on trials.
"""

from hmmbook.studies.certificates.certain_labels import Certificate, certificate
from hmmbook.studies.certificates.exactness import prompt_for_separating_head, refuting_belief, separating_head
from hmmbook.studies.certificates.gated import gated_readout, signal_for
from hmmbook.studies.certificates.nearest import alternate, nearest_head, nearest_prompt

__all__ = [
    "Certificate",
    "alternate",
    "certificate",
    "gated_readout",
    "nearest_head",
    "nearest_prompt",
    "prompt_for_separating_head",
    "refuting_belief",
    "separating_head",
    "signal_for",
]
