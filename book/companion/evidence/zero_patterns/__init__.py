"""Statements about zeros, decided for all patterns of zeros of small models, by models of ones and zeros."""
