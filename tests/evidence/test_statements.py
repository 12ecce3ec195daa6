"""The ledger: verdicts as recorded on both forms, and a change in any of them noticed."""

import json
import math
from dataclasses import replace

import pytest
from companion.evidence import ledger
from companion.evidence.exact.identities import IDENTITIES
from companion.evidence.ledger import FAILS, HOLDS, STATEMENTS, find, run, run_all
from companion.evidence.random_models import section_3
from companion.evidence.random_models.instances import Checked
from companion.evidence.statements import FALSE, GAP, GRADES, SLIP
from companion.evidence.zero_patterns import PATTERNS
from companion.pages import EQUATIONS
from record import ROOT, SLOW
from typer.testing import CliRunner

from hmmlib import __main__ as command_line

RESULTS = [f"Theorem {number}" for number in ("3.3", "3.6", "4.3", "4.6", "D.6")]
RESULTS += [f"Proposition {number}" for number in ("3.4", "D.1", "D.8", "D.11")]
RESULTS += [f"Claim {number}" for number in ("B.1", "D.3", "D.10", "D.12", "D.14", "D.15")]
RESULTS += [f"Lemma {number}" for number in ("C.1", "C.2", "D.2", "D.4", "D.7", "D.9", "D.13")]
ASSUMPTIONS = [f"Assumption {number}" for number in ("3.1", "3.2", "3.5", "4.2", "4.4", "4.5", "D.5")]
OURS = ["Certificate", "Exactness", "Separable signs", "Several classes", "Relabelling"]
NUMBERS = ["3.1", "3.2", "3.3", "4.1", "4.2", "4.3", "4.4", "B.1", "C.1", "C.2", *(f"D.{k}" for k in range(1, 11))]
EASY = find("Proposition 3.4")


def test_every_numbered_result_assumption_and_equation_is_there_once():
    assert sorted(s.name for s in STATEMENTS if not s.ours) == sorted(RESULTS + ASSUMPTIONS)
    assert [s.name for s in STATEMENTS if s.ours] == OURS
    assert [equation.number for equation in EQUATIONS] == NUMBERS
    assert set(IDENTITIES) <= set(RESULTS + OURS)
    assert len(IDENTITIES) >= 12
    assert set(PATTERNS) <= set(RESULTS)
    assert len(PATTERNS) >= 5
    counted = f"{len(RESULTS + ASSUMPTIONS)} statements of the paper and {len(OURS)} that we add"
    assert counted in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.name)
def test_a_statement_is_as_recorded_and_has_its_label_on_its_page(statement):
    entry = run(statement, 40 if SLOW else 12, seed=3)
    assert entry.as_recorded
    assert entry.verdict == HOLDS
    assert entry.residual <= 1e-12
    assert 0 < entry.control_fails <= entry.control_instances == 5
    assert (entry.printed == FAILS) == bool(statement.counterexample) == bool(statement.printed)
    assert bool(entry.corrected) == (entry.grade != HOLDS)
    assert (ROOT / entry.source["path"]).read_text().splitlines()[entry.source["line"] - 1].startswith("def ")
    assert statement.ours or statement.label.endswith("-" + statement.name.split()[1].replace(".", "-"))
    assert f":label: {statement.label}\n" in (ROOT / f"{statement.page}.md").read_text()


def test_printed_forms_that_fail_do_so_on_their_smallest_instance_and_each_grade_is_as_recorded():
    failing = {s.name: s.counterexample() for s in STATEMENTS if s.counterexample}
    assert set(failing) == {"Proposition D.1", "Lemma D.9"}
    assert all(record.residual >= 0.25 for record in failing.values())
    graded = {grade: {s.name for s in STATEMENTS if s.grade == grade} for grade in GRADES}
    assert graded[FALSE] == {"Lemma D.9"}
    assert graded[GAP] == {"Claim D.3", "Claim D.10"}
    assert graded[SLIP] == {"Proposition D.1", "Lemma D.2", "Lemma D.7", "Theorem D.6"}
    assert sum(map(len, graded.values())) == len(STATEMENTS)


def test_theorem_3_3_is_not_blamed_for_rounding():
    """W with a condition of 2e12 and of 1e15: the head's weights are as large, and a score is left with rounding."""
    assert all(section_3.check_theorem_3_3(seed).residual < 1e-10 for seed in (1833221068, 3303878359))


def test_a_printed_form_that_came_to_hold_is_no_longer_as_recorded():
    printed = find("Proposition D.1")
    nothing = printed.counterexample()._replace(residual=0.0)
    entry = run(replace(printed, printed=lambda seed: nothing, counterexample=lambda: nothing), 5, 0)
    assert (entry.printed, entry.as_recorded) == (HOLDS, False)


def test_nan_is_no_pass(monkeypatch):
    residuals, honest = iter([0.0, math.nan, 0.0, 0.0, 0.0]), section_3.lemma_c_2
    entry = run(replace(EASY, check=lambda seed: Checked(next(residuals), True)), 5, 0)
    assert entry.verdict == FAILS
    monkeypatch.setattr(section_3, "lemma_c_2", lambda *args: honest(*args) * math.nan)
    assert run(find("Lemma C.2"), 12, 4).verdict == FAILS


def test_what_is_trivial_is_drawn_again_and_what_stays_so_is_not_as_recorded():
    drawn = []
    run(replace(EASY, check=lambda seed: drawn.append(seed) or Checked(0.0, len(drawn) > 3)), 1, 0)
    assert len(drawn) == len(set(drawn)) == 4
    trivial = run(replace(EASY, check=lambda seed: Checked(0.0, False)), 20, 0)
    assert (trivial.verdict, trivial.nontrivial, trivial.as_recorded) == (HOLDS, 0, False)
    never = run(replace(EASY, control=lambda seed: 0.0), 5, 0)
    assert (never.verdict, never.as_recorded) == (HOLDS, False), "its control never fails"


def test_shares_are_judged_as_far_as_so_many_draws_can_tell():
    """Where a control breaks the conclusion in a share of 0.3, one of five is no surprise; one of thirty is."""
    entry, easy = run(find("Theorem 3.3"), 3, 0), run(EASY, 30, 0)
    for changed, as_recorded in [
        (replace(entry, control_fails=1), True),
        (replace(entry, control_fails=0), True),
        (replace(entry, control_instances=30, control_fails=1), False),
        (replace(easy, control_fails=4), False),  # of five, where all have to
        (replace(run(find("Certificate"), 3, 0), nontrivial=1), True),
        (replace(easy, nontrivial=12), True),
        (replace(easy, nontrivial=5), False),
        (replace(easy, identity={"failures": 1}), False),
        (replace(easy, patterns={"failures": 1}), False),
    ]:
        assert changed.as_recorded == as_recorded, changed


def test_several_processes_give_what_one_gives():
    together = run_all(2, 5, workers=2, exact=False)
    assert [entry.name for entry in together] == [s.name for s in STATEMENTS]
    for name in ("Theorem 4.3", "Lemma D.9", "Claim B.1"):
        assert run(find(name), 2, 5) in together


@pytest.mark.parametrize(
    ("made", "words", "expected"),
    [
        ("mine", "", "mine/ledger.json"),
        ("../mine", "", "ledger.json"),  # further up: it is not used
        ("", "--out deep/ledger.json", "deep/ledger.json"),
    ],
)
def test_the_command_writes_the_ledger_and_where_a_verdict_has_changed_another(
    made, words, expected, tmp_path, monkeypatch
):
    """A residual that is no number is null there, as JSON has none."""
    entries = [run(statement, 5, 0) for statement in (EASY, find("Proposition D.1"))]
    entries[1] = replace(entries[1], residual=math.nan)
    monkeypatch.setattr(ledger, "run_all", lambda *args, **kwargs: entries)
    (here := tmp_path / "here").mkdir()
    (here / made).mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    for name, code, printed in (
        (expected, 0, "Proposition D.1, slip: with"),
        (expected.replace(".json", ".changed.json"), 1, "Proposition 3.4: holds, as printed fails (on record: holds)"),
    ):
        done = CliRunner().invoke(command_line.app, ["ledger", "--instances", "5", *words.split()])
        assert (done.exit_code, printed in done.output.replace("\n", " ")) == (code, True), done.output
        content = json.loads((here / name).read_text())
        assert [entry["printed"] for entry in content["entries"]] == [FAILS if code else HOLDS, FAILS]
        assert content["entries"][1]["residual"] is None
        assert len(content["equations"]) == 20
        assert [*tmp_path.rglob("*.json")] == [here / name]
        (here / name).unlink()
        entries[0] = replace(entries[0], printed=FAILS)
