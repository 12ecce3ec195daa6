"""The page "Your own model": its code runs from top to bottom, and prints what it says that it prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "your-own-model.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def said(code):
    """What its calls of print say, by the comments behind them."""
    return re.findall(r"^print\(.*?\)  # (.*)$", code, re.MULTILINE)


def printed(blocks):
    """What each block of code prints, line by line, in one session, where a table that may be read either way is an error."""
    start = "import warnings, hmmlib\nwarnings.simplefilter('error', hmmlib.UnclearOrientation)\n"
    code = start + "print('end of block')\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [block.splitlines() for block in done.stdout.split("end of block\n")]


def test_the_code_runs_and_prints_what_it_says():
    pytest.importorskip("hmmlearn")
    pytest.importorskip("dynamax")
    assert len(BLOCKS) >= 10
    assert sum(len(said(code)) for code in BLOCKS) >= 10
    assert printed(BLOCKS) == [said(code) for code in BLOCKS]


def test_a_page_that_is_wrong_fails():
    """The control: the transposed arrays taken for the same model, and another number of states."""
    by_rows = next(k for k, code in enumerate(BLOCKS) if "HMM.from_rows(startprob" in code)
    wrong = BLOCKS[by_rows].replace(
        "HMM.from_rows(startprob, transmat, emissionprob)", "HMM(transmat.T, emissionprob.T, startprob)"
    )
    assert printed([BLOCKS[0], wrong])[1] != said(wrong)
    with pytest.raises(subprocess.CalledProcessError):
        printed([BLOCKS[0], wrong, BLOCKS[by_rows + 1]])


def test_it_is_in_the_table_of_contents_and_linked_from_the_readme():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    assert {"file": "book/your-own-model"} in [one for part in toc["parts"] for one in part["chapters"]]
    assert "](book/your-own-model.md)" in (ROOT / "README.md").read_text()
