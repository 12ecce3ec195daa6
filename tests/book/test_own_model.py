"""The page "Your own model": its code runs from top to bottom, and prints what the comments beside it say."""

import re
import subprocess
import sys

import pytest
from built_book import ROOT

pytestmark = pytest.mark.outside

PAGE = (ROOT / "book" / "your-own-model.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def expected(code: str) -> list[str]:
    return re.findall(r"^print\(.*?\)  # (.*)$", code, re.MULTILINE)


def printed(blocks: list[str]) -> list[list[str]]:
    """What each block prints, line by line, in one session, where a table that may be read either way is an error."""
    start = "import warnings, hmmlib\nwarnings.simplefilter('error', hmmlib.UnclearOrientation)\n"
    code = start + "print('end of block')\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [block.splitlines() for block in done.stdout.split("end of block\n")]


def test_the_code_runs_and_prints_what_it_says():
    for peer in ("hmmlearn", "dynamax"):
        pytest.importorskip(peer)
    assert len(BLOCKS) >= 10
    assert printed(BLOCKS) == [expected(code) for code in BLOCKS]


def test_a_page_that_is_wrong_fails():
    """The control: the transposed arrays taken for the same model."""
    by_rows = next(code for code in BLOCKS if "HMM.from_rows(startprob" in code)
    rows, columns = "HMM.from_rows(startprob, transmat, emissionprob)", "HMM(transmat.T, emissionprob.T, startprob)"
    wrong = by_rows.replace(rows, columns)
    assert printed([BLOCKS[0], wrong])[1] != expected(wrong)
