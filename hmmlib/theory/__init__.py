"""Assumptions as predicates, heads, and the theorems as constructions."""
