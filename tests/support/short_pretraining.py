"""Pretraining of a few steps, broken off or not, as tests of checkpoints and of faults have it."""

import math
from dataclasses import replace
from functools import cache

import pytest

from hmmlib.models.appendix_e import random_hmm
from hmmlib.training.bert import Shape, build, fingerprint
from hmmlib.training.pretraining import Pretraining, pretrain

STEPS = 9
PLAN = Pretraining(STEPS, batch=4, length=8, masked=0.25, learning_rate=1e-2, muon_rate=0.04, warmup=3)
TEXT = dict(documents=5, document_length=20)
PLANS = {
    "Muon": (PLAN, 0.0),
    "AdamW": (replace(PLAN, muon_rate=0.0, clip=0.1), 0.0),
    "Muon, dropout": (PLAN, 0.2),
    "AdamW, dropout, documents": (replace(PLAN, muon_rate=0.0, **TEXT), 0.2),
    "Muon, dropout, documents, masks as BERT's": (replace(PLAN, masking="bert", **TEXT), 0.2),
}
NAMES = list(PLANS)


class Stopped(Exception):
    """What a report raises to end the training."""


def stop_after(step):
    def report(now, loss):
        if now == step:
            raise Stopped

    return report


def train(name, path=None, report=None, every=math.inf, seed=1):
    """Pretrain a fresh network: the losses, and the fingerprint of its weights."""
    plan, dropout = PLANS[name]
    network = build(Shape(layers=1, width=8, heads=2, max_length=8, dropout=dropout), 4, 0)
    return pretrain(network, random_hmm(3, 4, 1), plan, seed, report, path, every), fingerprint(network)


undisturbed = cache(train)


def leave_two(path):
    """A checkpoint of 6 steps at `path`, and one of 3 as the one before it."""
    for step in (2, 5):
        with pytest.raises(Stopped):
            train("Muon", path, stop_after(step))
