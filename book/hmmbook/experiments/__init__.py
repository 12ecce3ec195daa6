"""Section 5 of the paper: one trial, what is measured of it, the store of results, and many trials.

Read the modules in this order:

    presets, specs            what fixes a trial
    fields                    the types of the fields of specs and results
    labels                    downstream tasks and their labels
    parts, trials             how a trial is run
    measurements              how you add a measurement
    section_5, exact_ladder   the measurements of Section 5
    unchanged                 the check that a function which you pass changes none of its arguments
    store, results            where results are kept, and their table
    intervals                 means with 95% intervals
    sweeps, ray_sweep         many trials, one after another or on a cluster
"""
