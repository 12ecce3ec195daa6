"""The ledger: verdicts as recorded, and checks that notice a damaged construction."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from hmmlib import statements
from hmmlib.__main__ import app
from hmmlib.statements import FAILS, STATEMENTS, run, write_ledger


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.name)
def test_statement_holds_and_its_control_fails(statement):
    entry = run(statement, 60, seed=3)
    assert entry.as_recorded
    assert entry.residual <= 1e-12
    assert 0 < entry.control_fails <= entry.control_instances == 6


def test_claim_b_1_check_notices_a_wrong_diagonal(monkeypatch):
    honest = statements.claim_b_1
    monkeypatch.setattr(statements, "claim_b_1", lambda model, i: honest(model, i + 1))
    assert run(STATEMENTS[1], 60, 0).verdict == FAILS


def test_proposition_3_4_check_notices_dependence(monkeypatch):
    honest = torch.einsum

    def dependent(spec, p_z, u, v):
        joint = honest(spec, p_z, u, v)
        return joint + 0.1 * torch.eye(*joint.shape[:2], dtype=joint.dtype)[:, :, None] * p_z

    monkeypatch.setattr(torch, "einsum", dependent)
    assert run(STATEMENTS[0], 60, 0).verdict == FAILS


def test_proposition_3_4_check_notices_a_wrong_left_inverse(monkeypatch):
    honest = np.linalg.pinv
    monkeypatch.setattr(np.linalg, "pinv", lambda matrix: honest(matrix) + 1e-3)
    assert run(STATEMENTS[0], 60, 0).verdict == FAILS


@pytest.mark.parametrize("damage", ["sign", "no_diagonal", "transposed_diagonal"])
def test_theorem_3_3_check_notices_a_damaged_head(monkeypatch, damage):
    honest = statements.theorem_3_3

    def damaged(model, mu):
        head = honest(model, mu)
        scale = statements.claim_b_1(model, 1)
        weights = {
            "sign": -head.weights,
            "no_diagonal": torch.linalg.pinv(model.emission).T @ mu,
            "transposed_diagonal": torch.linalg.pinv(model.emission).T @ (mu * scale),
        }[damage]
        return replace(head, weights=weights)

    monkeypatch.setattr(statements, "theorem_3_3", damaged)
    assert run(STATEMENTS[2], 30, 0).verdict == FAILS


def test_nan_is_no_pass():
    residuals = iter([0.0, math.nan, 0.0, 0.0, 0.0])
    entry = run(replace(STATEMENTS[0], check=lambda seed: next(residuals)), 5, 0)
    assert entry.verdict == FAILS


def test_a_control_that_never_fails_is_not_as_recorded():
    entry = run(replace(STATEMENTS[0], control=lambda seed: 0.0), 5, 0)
    assert entry.verdict == entry.on_record
    assert not entry.as_recorded


def test_a_changed_verdict_ends_the_command_with_exit_code_1(tmp_path, monkeypatch):
    changed = (replace(STATEMENTS[0], verdict=FAILS),)
    monkeypatch.setattr(statements, "STATEMENTS", changed)
    out = tmp_path / "ledger.json"
    done = CliRunner().invoke(app, ["ledger", "--instances", "5", "--out", str(out)])
    assert done.exit_code == 1
    assert not out.exists()
    assert "Proposition 3.4" in done.output


def test_ledger_file(tmp_path):
    entries = [run(STATEMENTS[0], 5, 0)]
    write_ledger(tmp_path / "deep" / "ledger.json", entries, 5, 0)
    content = json.loads((tmp_path / "deep" / "ledger.json").read_text())
    assert content["entries"][0]["name"] == "Proposition 3.4"
    assert content["entries"][0]["residual"] == entries[0].residual
