"""What the book runs: the experiments of Section 5, the studies beyond it, the evidence, and the figures.

`hmmbook` is a user of `hmmlib`, as your own code would be. You can use it in the same way:

    from hmmbook import TrialSpec, results, run_trial

    result = run_trial(TrialSpec("smoke", n_states=4, seed=1))
    table = results("quick")

The code is in four packages.

    package      what is in it
    experiments  one trial of Section 5, its measurements, the store of results, the table of results, sweeps
    studies      what we asked beyond the paper
    evidence     the paper's statements, each with a check and a control, and the ledger of verdicts
    figures      what the notebooks draw

`python -m hmmbook --help` shows the command line.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
