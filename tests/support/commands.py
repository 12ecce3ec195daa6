"""The command line in the tests' own process, and how it is to end."""

import sys

import pytest
import torch

from hmmbook import __main__ as command_line
from hmmlib import masked_token_probs, random_hmm


@pytest.fixture(scope="session")
def compiled():
    """Compile the loops once, because a command that finds none compiled says so on stderr."""
    for dtype in (torch.float64, torch.float32):
        masked_token_probs(random_hmm(2, 2).to(dtype=dtype), [[0]])


@pytest.fixture
def call(compiled, monkeypatch, capsys):
    """Run the command line in this process. It returns the exit code and the text of both streams."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hmmbook", *map(str, words)])
        message = ""
        code = 0
        try:
            command_line.main()
        except SystemExit as end:
            code = end.code or 0
        if isinstance(code, str):  # the interpreter writes it to stderr and ends with 1
            message = code + "\n"
            code = 1
        out, err = capsys.readouterr()
        return code, out, err + message

    return run


def usage_error(result: tuple[int, str, str], *parts: str) -> None:
    """Check that a call was refused with exit code 2 and a message with these parts."""
    code, out, err = result
    message = " ".join(err.replace("│", " ").split())
    message = message.replace("x>=", "greater than or equal to ")  # as another version of typer writes it
    assert (code, out) == (2, ""), (out, err)
    assert "Traceback" not in err
    for part in parts:
        assert part in message, message


def one_line(result: tuple[int, str, str], *parts: str) -> None:
    """Check that a call failed with exit code 1 and one line with these parts."""
    code, out, err = result
    assert (code, out, err.count("\n")) == (1, "", 1), (out, err)
    assert err.startswith("hmmbook: ")
    for part in parts:
        assert part in err, err
