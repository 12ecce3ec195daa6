"""A network of gated units that relabels behind a prompt's signal: in fractions, and where gates are missing."""

from fractions import Fraction
from itertools import product

import pytest
import torch

from hmmlib.models.appendix_e import random_hmm
from hmmlib.theory.certificates import gated_readout, signal_for

EMISSION = [[Fraction(1, 2), Fraction(1, 2), Fraction(1, 8)], [Fraction(1, 2), Fraction(1, 2), Fraction(7, 8)]]
BELIEFS = [[Fraction(a, 8), Fraction(b, 8), Fraction(8 - a - b, 8)] for a in range(9) for b in range(9 - a)]


def floats(table):
    return torch.tensor([[float(entry) for entry in row] for row in table], dtype=torch.float64)


@pytest.mark.parametrize("words", list(product(range(2), repeat=3)))
def test_every_relabelling_of_single_tokens_is_said_exactly(words):
    """Eighths are exact in floating point, so that nothing is left to rounding."""
    found = gated_readout(floats(EMISSION), floats(BELIEFS), signal_for(words, 2))
    want = [[sum(p[h] for h in range(3) if words[h] == x) for x in range(2)] for p in BELIEFS]
    assert torch.equal(found, floats(want))
    plain = [[sum(w * q for w, q in zip(row, p, strict=True)) for row in EMISSION] for p in BELIEFS]
    assert torch.equal(gated_readout(floats(EMISSION), floats(BELIEFS)), floats(plain))
    assert gated_readout(floats(EMISSION).float(), floats(BELIEFS), signal_for(words, 2)).dtype == torch.float32
    assert torch.equal(gated_readout(floats(EMISSION), floats(BELIEFS), torch.zeros(2, 3)), floats(plain))


def test_a_state_without_a_signal_keeps_its_words():
    signal = signal_for([1, 0, 0], 2)
    signal[:, 2] = 0
    found = gated_readout(floats(EMISSION), torch.eye(3), signal)
    assert torch.equal(found[2], floats(EMISSION)[:, 2])
    assert torch.equal(found[0], torch.tensor([0.0, 1.0], dtype=torch.float64))


def test_states_that_look_alike_are_told_apart_which_no_reweighting_can():
    plain, behind = (gated_readout(floats(EMISSION), torch.eye(3), s) for s in (None, signal_for([0, 1, 1], 2)))
    assert torch.equal(plain[0], plain[1])
    assert not torch.equal(behind[0], behind[1])


def test_half_a_signal_opens_no_gate_to_an_open_mind():
    """The construction is for zeros and ones: with a half only what is believed above a half comes through."""
    model = random_hmm(3, 3, 0, temperature=1.0)
    even = torch.full((1, 3), 1 / 3)
    half = gated_readout(model.emission, even, signal_for([0, 1, 2], 3) / 2)
    assert torch.allclose(half, gated_readout(model.emission, even))
