"""Sixty damages in the source, and that the ledger alone notices nearly all: the stored run is of these, and
repeats."""

import ast
import json

import pytest
import sixty
from record import SLOW
from sixty import DAMAGES, STORED, applied, verdicts

RUN = json.loads(STORED.read_text())
TRIED = [row for row in RUN["damages"] if SLOW or row["words"] == "D inverted"]


def test_the_stored_run_is_of_these_damages_and_most_change_a_verdict():
    assert [(row["file"], row["words"]) for row in RUN["damages"]] == [(d.file, d.words) for d in DAMAGES]
    assert (RUN["instances"], RUN["seed"]) == (sixty.INSTANCES, sixty.SEED)
    assert len(DAMAGES) == len({d.words for d in DAMAGES}) == 60
    assert sum(bool(row["noticed"]) for row in RUN["damages"]) >= 54


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.words for damage in DAMAGES])
def test_each_damage_still_meets_its_line(damage):
    ast.parse(applied(damage))


@pytest.mark.parametrize("row", TRIED, ids=[row["words"] for row in TRIED])
def test_a_damage_changes_the_verdicts_that_it_changed(row):
    damage = next(damage for damage in DAMAGES if damage.words == row["words"])
    assert verdicts(damage)["noticed"] == row["noticed"]
