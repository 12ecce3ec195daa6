"""Trials of Section 5: `specs` fixes one, `sweeps` gives it to `trials`, that to `measurements`; `store` keeps it."""
