"""Section 5 of the paper: one trial, what is measured of it, the store of results, and many trials.

Read the modules in this order:

    presets, specs       what fixes a trial; fields has the types of its fields
    labels               downstream tasks and their labels
    parts, trials        how a trial is run
    measurements         how a measurement is added; those of Section 5 are in section_5 and exact_ladder
    unchanged            the check that a function of a user's changes nothing that it is given
    store, results       where results are kept, and their table; intervals has means with intervals
    sweeps, ray_sweep    many trials, one after another or on a cluster
"""
