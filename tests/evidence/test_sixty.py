"""Sixty damages in the source, and that the ledger alone notices nearly all: the stored run is of these, and repeats."""

import ast
import json

import pytest
import sixty
from companion.evidence.statements import STATEMENTS
from record import SLOW, slow
from sixty import DAMAGES, ROOT, STORED, Damage, applied, noticed, stopped, verdicts

RUN = json.loads(STORED.read_text())
NAMES = {statement.name for statement in STATEMENTS}


def test_the_stored_run_is_of_these_damages_and_most_change_a_verdict():
    assert [(row["file"], row["words"]) for row in RUN["damages"]] == [(d.file, d.words) for d in DAMAGES]
    assert (RUN["instances"], RUN["seed"]) == (sixty.INSTANCES, sixty.SEED)
    assert len(DAMAGES) == len({d.words for d in DAMAGES}) == 60
    assert sum(bool(row["noticed"]) for row in RUN["damages"]) >= 54
    assert {name for row in RUN["damages"] for name in row["noticed"]} <= NAMES


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.words for damage in DAMAGES])
def test_each_damage_still_meets_its_line(damage):
    source = (ROOT / "hmmlib" / damage.file).read_text()
    changed = applied(damage, source)
    ast.parse(changed)
    assert changed != source


def test_a_line_that_is_gone_is_named():
    with pytest.raises(LookupError, match=r"^theory/heads\.py has 0 times 'nothing', not once$"):
        applied(Damage("theory/heads.py", "", "nothing", ""), "everything")


@slow  # tests/evidence/test_statements.py has the same of other instances
def test_without_a_damage_the_ledger_is_as_recorded():
    whole = verdicts(None)
    assert whole.keys() == NAMES
    assert not noticed(whole)
    assert not stopped(whole)


TRIED = [row for row in RUN["damages"] if SLOW or row["words"] == "D inverted"]


@pytest.mark.parametrize("row", TRIED, ids=[row["words"] for row in TRIED])
def test_a_damage_changes_the_verdicts_that_it_changed(row):
    damage = next(damage for damage in DAMAGES if damage.words == row["words"])
    assert noticed(verdicts(damage)) == row["noticed"]
