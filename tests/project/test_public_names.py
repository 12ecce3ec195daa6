"""What `hmmlib` itself offers: each name from its home, each loaded when first asked for."""

import importlib

import pytest

import hmmlib


@pytest.mark.parametrize("name", hmmlib.__all__)
def test_the_names_that_others_call_are_at_the_top(name):
    assert getattr(hmmlib, name) is getattr(importlib.import_module(f"hmmlib.{hmmlib._MODULE[name]}"), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="theorem_9_9"):
        _ = hmmlib.theorem_9_9
