"""What `hmmlib` itself offers: each name from its home, each loaded when first asked for."""

import importlib
import re
from operator import attrgetter

import pytest

import hmmlib


@pytest.mark.parametrize("name", hmmlib.__all__)
def test_the_names_that_others_call_are_at_the_top(name):
    assert getattr(hmmlib, name) is getattr(importlib.import_module(f"hmmlib.{hmmlib._MODULE[name]}"), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="theorem_9_9"):
        _ = hmmlib.theorem_9_9


def test_what_help_says_to_call_is_there():
    """By task: the lines of the docstring that begin with a capital, and end in names."""
    lines = re.findall(r"^ {4}([A-Z].+?) {2,}(\S.*)$", hmmlib.__doc__, re.MULTILINE)
    assert len(lines) >= 12
    for task, names in lines:
        for name in names.split(", "):
            assert name.split(".")[0] in hmmlib.__all__, task
            assert callable(attrgetter(name)(hmmlib)), task


def test_a_network_of_ones_own_needs_nothing_below_the_root():
    assert {"FromTransformers", "tune", "Tuned", "Parts"} <= set(hmmlib.__all__)
