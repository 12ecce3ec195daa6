"""A dry run: a new statement of the paper is an addition to two files, and the ledger rules on it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

COMPANION = Path(__file__).resolve().parents[2] / "book" / "companion"

CHECKS = '''

def check_claim_z_1(seed: int) -> Checked:
    """Each G_i sums to 1, for every possible x of two tokens."""
    model = non_degenerate(np.random.default_rng(seed), seed)
    inputs, _ = labelled_inputs(model, torch.ones(model.n_states, dtype=torch.float64), 2)
    return Checked(largest(masked_token_probs(model, inputs).sum(-1) - 1), len(inputs) > 1)


def control_claim_z_1(seed: int) -> float:
    """The same for a token that no state emits."""
    model = HMM([[1.0]], [[1.0], [0.0]], [1.0])
    return largest(masked_token_probs(model, [[1, 1]]).sum(-1) - 1)
'''
STATEMENT = """\
STATEMENTS = (
    Statement(
        name="Claim Z.1",
        page=SECTION_3,
        claim="G sums to 1 over tokens.",
        check=section_3.check_claim_z_1,
        control=section_3.control_claim_z_1,
        broken="x is possible",
    ),
"""
LEDGER = """
from pathlib import Path
from companion.evidence.ledger import run_all
from companion.pages import write_ledger
if __name__ == "__main__":
    write_ledger(Path("ledger.json"), run_all(3, 0, workers=1, exact=False), 3, 0)
"""


def test_a_statement_is_an_addition_to_two_files_that_the_ledger_finds(tmp_path):
    shutil.copytree(COMPANION, tmp_path / "book" / "companion")
    evidence = tmp_path / "book" / "companion" / "evidence"
    with (evidence / "random_models" / "section_3.py").open("a") as checks:
        checks.write(CHECKS)
    statements = (evidence / "statements.py").read_text()
    assert statements.count("STATEMENTS = (\n") == 1
    (evidence / "statements.py").write_text(statements.replace("STATEMENTS = (\n", STATEMENT))
    path = os.pathsep.join(map(str, (tmp_path / "book", COMPANION.parents[1])))
    environment = os.environ | {"PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", LEDGER], cwd=tmp_path, env=environment, check=True)
    entries = {entry["name"]: entry for entry in json.loads((tmp_path / "ledger.json").read_text())["entries"]}
    new = entries.pop("Claim Z.1")
    assert len(entries) == 34
    assert (new["verdict"], new["printed"], new["instances"]) == ("holds", "holds", 3)
    assert new["control_fails"] == new["control_instances"] == 5
    assert new["source"]["path"] == "book/companion/evidence/random_models/section_3.py"
    assert (new["page"], new["label"]) == ("notebooks/3-hmm", "paper-claim-Z-1")
