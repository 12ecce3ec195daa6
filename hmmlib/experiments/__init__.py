"""Trials of Section 5: what fixes one, what it measures, where results lie, and how many are run."""
