"""Conditional probabilities of a model: as the paper prints them, and fast."""
