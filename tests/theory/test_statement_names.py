"""A statement's number without a prefix is its construction: such functions are in the theory only."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "hmmlib"
NUMBERED = re.compile(r"(theorem|lemma|claim|proposition|assumption)_([0-9]|[a-d])_[0-9]+")


def numbered(folder):
    """Functions of a folder, by file, whose name is a statement's number and nothing else."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.FunctionDef) and NUMBERED.fullmatch(node.name):
                yield path.relative_to(folder).as_posix(), node.name


def test_a_number_without_a_prefix_is_a_construction():
    found = list(numbered(ROOT))
    assert {name for _, name in found} >= {"theorem_3_3", "theorem_3_6", "theorem_4_3", "theorem_4_6", "assumption_3_1"}
    assert {path for path, name in found if name.startswith("assumption")} == {"theory/assumptions.py"}
    assert {path for path, name in found if not name.startswith("assumption")} == {"theory/theorems.py"}
    assert len(found) == len({name for _, name in found})


def test_a_number_without_a_prefix_is_noticed_elsewhere(tmp_path):
    (tmp_path / "checks.py").write_text(
        "def lemma_d_13(seed):\n    def claim_b_1():\n        pass\n\n\ndef check_lemma_d_2():\n    pass\n"
    )
    assert list(numbered(tmp_path)) == [("checks.py", "lemma_d_13"), ("checks.py", "claim_b_1")]
