"""Equations of the paper at random points modulo a prime, in Python's integers alone."""
