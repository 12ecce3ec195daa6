"""A contestant of two lines of Python, for tests of the contest itself."""

import os
import sys
import time
from itertools import count

import numpy as np

WORDS = {"np": np, "os": os, "sys": sys, "time": time}


def python(code: str = "None", answer: str = "[0.0]"):
    """What a call does, where `n` counts the calls and the first, number 0, is outside the clock; and the answer, where
    `it` is what the call gave."""
    calls = count()
    return lambda: eval(code, {**WORDS, "n": next(calls)}), lambda it: eval(answer, {**WORDS, "it": it})
