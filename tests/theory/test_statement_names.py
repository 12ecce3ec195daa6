"""A statement's number without a prefix is its construction: such functions are in the theory only."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "hmmlib"
NUMBERED = re.compile(r"(theorem|lemma|claim|proposition|assumption)_([0-9]|[a-d])_[0-9]+")


def test_a_number_without_a_prefix_is_a_construction():
    files = {
        path.relative_to(ROOT).as_posix(): ast.walk(ast.parse(path.read_text("utf8"))) for path in ROOT.rglob("*.py")
    }
    names = {path: {node.name for node in nodes if isinstance(node, ast.FunctionDef)} for path, nodes in files.items()}
    found = {path: set(filter(NUMBERED.fullmatch, of_file)) for path, of_file in names.items()}
    assert {path for path, of_file in found.items() if of_file} == {"theory/assumptions.py", "theory/theorems.py"}
    assert {name.partition("_")[0] for name in found["theory/assumptions.py"]} == {"assumption"}
    assert found["theory/theorems.py"] >= {"theorem_3_3", "theorem_3_6", "theorem_4_3", "theorem_4_6", "lemma_c_2"}
