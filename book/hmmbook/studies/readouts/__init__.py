"""How does a prompt change what a network predicts from the belief about the state?

The page *tuned-prompts-in-detail* shows the answers. Let p be the exact belief. A fake token, whatever it is, only
reweights p (Lemma C.2), and the prediction stays W times a belief. A network might also predict by other columns than
those of W.

`readout` has both as one form. `families` fits readouts of several kinds to a network's predictions, by the methods of
`search` and `weights`, and `other_functions` fits functions that no readout is. Fits are made on training texts and
judged on test texts. `measured` and `movement` measure it on trials.
"""

from hmmbook.studies.readouts.families import COLUMNS, Family, fit_readout
from hmmbook.studies.readouts.other_functions import SoftmaxReadout, free_readout, softmax_readout
from hmmbook.studies.readouts.readout import Readout, total_variation

__all__ = [
    "COLUMNS",
    "Family",
    "Readout",
    "SoftmaxReadout",
    "fit_readout",
    "free_readout",
    "softmax_readout",
    "total_variation",
]
