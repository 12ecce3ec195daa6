"""A dry run: a new statement of the paper is an addition to three files, and the ledger rules on it."""

import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[2] / "hmmlib"

ADDED = {
    "evidence/random_models/section_3.py": (
        "",  # at the end
        '''

def check_claim_z_1(seed: int) -> Checked:
    """Each G_i sums to 1, for every possible x of two tokens."""
    model = non_degenerate(np.random.default_rng(seed), seed)
    inputs, _ = labelled_inputs(model, torch.ones(model.n_states, dtype=torch.float64), 2)
    return Checked(largest(masked_token_probs(model, inputs).sum(-1) - 1), len(inputs) > 1)


def control_claim_z_1(seed: int) -> float:
    """The same for a token that no state emits."""
    model = HMM([[1.0]], [[1.0], [0.0]], [1.0])
    return largest(masked_token_probs(model, [[1, 1]]).sum(-1) - 1)
''',
    ),
    "evidence/statements.py": (
        "STATEMENTS = (\n",
        """\
    Statement(
        name="Claim Z.1",
        claim="G sums to 1 over tokens.",
        check=section_3.check_claim_z_1,
        control=section_3.control_claim_z_1,
        broken="x is possible",
    ),
""",
    ),
    "notebook/pages.py": (
        "\nSTATEMENTS = {\n",
        """\
    "Claim Z.1": (SECTION_3, "paper-claim-Z-1"),
""",
    ),
}
"""By file: behind which text, and what is added."""

LEDGER = """
from pathlib import Path
from companion.evidence.ledger import run_all
from companion.pages import write_ledger
write_ledger(Path("ledger.json"), run_all(3, 0, workers=1, exact=False), 3, 0)
"""


def test_a_statement_is_an_addition_to_three_files_that_the_ledger_finds(tmp_path):
    shutil.copytree(LIBRARY, tmp_path / "hmmlib")  # with what numba has compiled
    lines = 0
    for name, (behind, added) in ADDED.items():
        path = tmp_path / "hmmlib" / name
        before = path.read_text()
        assert behind == "" or before.count(behind) == 1, name
        after = before.replace(behind, behind + added) if behind else before + added
        path.write_text(after)
        changes = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
        assert all(line[0] == "+" for line in changes)
        lines += len(changes)
    assert len(ADDED) <= 3
    assert lines <= 25
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", LEDGER], cwd=tmp_path, env=environment, check=True)
    entries = {entry["name"]: entry for entry in json.loads((tmp_path / "ledger.json").read_text())["entries"]}
    new = entries.pop("Claim Z.1")
    assert len(entries) == 34
    assert (new["verdict"], new["printed"], new["instances"]) == ("holds", "holds", 3)
    assert new["control_fails"] == new["control_instances"] == 5
    assert new["source"]["path"] == "book/companion/evidence/random_models/section_3.py"
    assert new["page"] == "notebooks/3-hmm"
