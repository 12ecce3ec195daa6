"""Statements about zeros, decided for all patterns of zeros of small models, in bit masks alone."""
