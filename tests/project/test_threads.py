"""Beside other work the threads of torch must not spin: a setting that torch reads when it is imported sees to it."""

import os
import runpy

import pytest
import torch
from IPython.core.inputtransformer2 import TransformerManager

import hmmlib
import notebooks as pipeline


def test_the_first_cell_of_a_notebook_sees_to_it_before_any_other_imports_torch(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT")
    exec(TransformerManager().transform_cell(pipeline.bootstrap()), {})
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


def test_whoever_imports_torch_before_the_library_is_told_what_to_do(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.warns(UserWarning, match="import hmmlib before torch, or set GOMP_SPINCOUNT=1000"):
        runpy.run_path(hmmlib.__file__)
