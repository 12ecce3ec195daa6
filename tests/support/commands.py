"""The command line in the tests' own process, and how it is to end."""

import sys

import pytest
import torch

from hmmlib import __main__ as command_line
from hmmlib import masked_token_probs, random_hmm


@pytest.fixture(scope="session")
def compiled():
    """The compiled loops: a command that finds none says so, once on each machine, and tests hear only what is new."""
    for dtype in (torch.float64, torch.float32):
        masked_token_probs(random_hmm(2, 2).to(dtype=dtype), [[0]])


@pytest.fixture
def call(compiled, monkeypatch, capsys):
    """Run the command line in this process: its exit code, and what it wrote to both streams."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hmmlib", *map(str, words)])
        message, code = "", 0
        try:
            command_line.main()
        except SystemExit as end:
            code = end.code or 0
        if isinstance(code, str):  # as the interpreter does
            message, code = code + "\n", 1
        out, err = capsys.readouterr()
        return code, out, err + message

    return run


def usage_error(result: tuple[int, str, str], *said: str) -> None:
    code, out, err = result
    flat = " ".join(err.replace("│", " ").split()).replace("x>=", "greater than or equal to ")  # of any typer
    assert (code, out, "Traceback" in err) == (2, "", False), (out, err)
    assert all(part in flat for part in said), flat


def one_line(result: tuple[int, str, str], *said: str) -> None:
    code, out, err = result
    assert (code, out, err.count("\n")) == (1, "", 1), (out, err)
    assert err.startswith("hmmlib: ")
    assert all(part in err for part in said), err
