"""The machine proofs leave no gap, rest on no axiom, and fail where a statement is damaged."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from record import ROOT

PROOFS = ROOT / "proofs"
BUILT = ROOT / "build" / "proofs"
FILES = sorted(PROOFS.glob("*.v"))
IN_ORDER = re.search(r"^PROOFS = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
RESULT = re.compile(
    r"^(?:Theorem|Corollary|Proposition|Lemma) ((?:theorem|corollary|proposition|lemma|claim)_\w+)", re.MULTILINE
)
RESULTS = [name for path in FILES for name in RESULT.findall(path.read_text())]
FINAL = {"theorem_3_3", "theorem_3_6", "theorem_4_3", "theorem_4_6", "theorem_D_6"}

DAMAGED = [
    # Without independent columns Theorem 3.3 is false.
    (
        "section_3",
        "Theorem theorem_3_3 : assumption_3_1 M -> assumption_3_2 M ->",
        "Theorem theorem_3_3 : assumption_3_2 M ->",
    ),
    # A label is 1 where the score is 0. With > in place of >= the head misses these texts.
    (
        "appendix_c",
        "label M mu x = (0 <= \\sum_w b w * Gbar M (prompted M u x) (gap n) w).",
        "label M mu x = (0 < \\sum_w b w * Gbar M (prompted M u x) (gap n) w).",
    ),
    # Theorem D.6 speaks of texts with a sure position only.
    (
        "appendix_d",
        "forall n (x : text X n), 0 < mPr M (prior M) x -> (exists i, sure M (prior M) j D x i) ->\n",
        "forall n (x : text X n), 0 < mPr M (prior M) x ->\n",
    ),
]


def coqc(folder: Path, name: str) -> subprocess.CompletedProcess:
    command = ["coqc", "-q", "-w", "none", "-Q", ".", "hmm", f"{name}.v"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A folder with all proofs, as `make proofs` has compiled them."""
    if not shutil.which("coqc"):
        pytest.skip("no Rocq here")
    process = subprocess.run(["make", "proofs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return shutil.copytree(BUILT, tmp_path_factory.mktemp("proofs"), dirs_exist_ok=True)


def test_make_compiles_every_file():
    assert sorted(IN_ORDER) == [path.stem for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_proof_has_a_gap_or_an_axiom(path):
    words = re.sub(r"\(\*.*?\*\)", "", path.read_text(), flags=re.DOTALL)

    assert not re.findall(r"\b(?:Admitted|admit|Abort|Axiom|Parameter|Conjecture)\b", words)


def test_the_main_theorems_are_among_the_results():
    assert set(RESULTS) >= FINAL
    assert len(RESULTS) == len(set(RESULTS))


def test_no_result_rests_on_an_axiom(compiled):
    # Rocq walks through the library once for each question, so one term holds all results.
    all_results = ", ".join(f"@{name}" for name in RESULTS)
    lines = [
        f"From hmm Require Import {' '.join(IN_ORDER)}.",
        f"Definition all_results := ({all_results}).",
        "Print Assumptions all_results.",
    ]
    (compiled / "assumptions.v").write_text("\n".join(lines))

    process = coqc(compiled, "assumptions")

    assert process.returncode == 0, process.stderr
    assert process.stdout == "Closed under the global context\n"


def test_an_axiom_behind_a_result_would_be_named(compiled):
    lines = ["Axiom assumed : False.", "Definition result := (I, assumed).", "Print Assumptions result."]
    (compiled / "assumed.v").write_text("\n".join(lines))

    process = coqc(compiled, "assumed")

    assert "assumed : False" in process.stdout


@pytest.mark.parametrize(("name", "statement", "damaged"), DAMAGED)
def test_a_damaged_statement_has_no_such_proof(compiled, name, statement, damaged):
    text = (PROOFS / f"{name}.v").read_text()
    assert text.count(statement) == 1
    (compiled / f"damaged_{name}.v").write_text(text.replace(statement, damaged))

    process = coqc(compiled, f"damaged_{name}")

    assert process.returncode == 1
    assert "Error" in process.stderr
