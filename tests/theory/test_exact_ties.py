"""Labels of constructed heads where the target is exactly zero, against integers without rounding: a tie is label 1."""

from collections import Counter
from fractions import Fraction

import dyadic
import numpy as np
import pytest
import torch
from constructions import behind_gap
from record import SLOW
from witness import forward_backward, surely, whole

from hmmlib.inference.messages import masked_token_probs, prompted
from hmmlib.models.appendix_e import random_memory_hmm
from hmmlib.models.families import nearly_dependent_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import heads, theorems
from hmmlib.theory.assumptions import AssumptionError, assumption_3_2, essential_states
from hmmlib.theory.theorems import claim_d_3, ground_truth, theorem_3_3, theorem_3_6, theorem_4_3, theorem_4_6

TIES = {"3.3": 2000, "3.6": 2000, "4.3": 2000, "4.6": 2000} if SLOW else {"3.3": 300, "3.6": 300, "4.3": 60, "4.6": 60}
fractions = np.vectorize(Fraction, otypes=[object])


def vanilla(rng, name):
    """A head of Theorem 3.3 or 3.6 for a task that balances exactly on one text; what it says of all texts."""
    n_states, units = int(rng.integers(2, 5)), 2 ** int(rng.integers(2, 6))
    n_tokens = n_states + int(rng.integers(0, 3))
    chain, table = dyadic.columns(rng, n_states, n_states, units), dyadic.columns(rng, n_tokens, n_states, units, 0.4)
    model = HMM(chain, table, dyadic.column(rng, n_states, 16, 0), columns=True)
    if not assumption_3_2(model):
        return None
    texts = torch.as_tensor(rng.integers(0, n_tokens, (8, int(rng.integers(1, 4)))))
    joint = [forward_backward(model, text, number=whole).start for text in texts]
    mu = dyadic.balancing(rng, list(map(int, joint[0]))) if any(joint[0]) else None
    essential = essential_states(model, mu) if mu and name == "3.6" else []
    if mu is None or essential is None:
        return None
    prompt, head = (None, theorem_3_3(model, mu)) if name == "3.3" else theorem_3_6(model, mu, essential)
    probs = masked_token_probs(model, behind_gap(texts), prompt)[:, 0 if prompt is None else 1]
    possible = [any(weights) and bool(row.any()) for weights, row in zip(joint, probs, strict=True)]
    targets = [sum(weight * int(part) for weight, part in zip(mu, weights, strict=True)) for weights in joint]
    return possible, targets, head.label(probs), head.sure(probs), ground_truth(model, mu, texts) >= 0


def with_memory(rng, name):
    """The same for Theorems 4.3 and 4.6: inputs in 𝓡 count, behind the prompt those that it does not exclude."""
    n_states, n_memory = int(rng.choice([2, 4])) if name == "4.6" else int(rng.integers(1, 4)), int(rng.integers(2, 4))
    syntax = sorted(rng.choice(n_states, rng.integers(1, n_states + 1), replace=False).tolist())
    values = list(range(n_memory)) if name == "4.3" else sorted(rng.choice(n_memory, 2, replace=False).tolist())
    rest = 0 if len(syntax) == n_states else int(rng.integers(1, 3))
    n_tokens = len(syntax) * len(values) + rest + int(rng.integers(0, 2))
    # Every state of the rest speaks one way, or another, or evenly both.
    ways = dyadic.columns(rng, n_tokens, 2, 8, 0.6)[:, rng.integers(2, size=(n_memory, n_states, 2))].mean(-1)
    table = dyadic.columns(rng, n_tokens, n_memory * n_states, 2 ** int(rng.integers(2, 5)), 0.5)
    table = table.reshape(n_tokens, n_memory, n_states)
    others = np.ix_(range(n_tokens), values, [h for h in range(n_states) if h not in syntax])
    table[others] = ways[others]
    start, chain = dyadic.column(rng, n_states, 16, 0), dyadic.columns(rng, n_states, n_states, 8)
    if name == "4.6":  # a mixture of permutations keeps the uniform start
        start = np.full(n_states, 1 / n_states)
        chain = np.mean([np.eye(n_states)[rng.permutation(n_states)] for _ in range(4)], 0)
    model = MemoryHMM(chain, table, start, dyadic.column(rng, n_memory, 8, 0))
    if not assumption_3_2(model):
        return None
    texts = rng.integers(0, n_tokens, (8, int(rng.integers(1, 4))))
    found = [forward_backward(model, text, number=whole) for text in texts]
    joint = [list(map(int, one.memory)) for one in found]
    weighed = [weight if m in values else 0 for m, weight in enumerate(joint[0])]
    mu = dyadic.balancing(rng, weighed) if any(weighed) else None
    if mu is None or (name == "4.6" and [m for m, w in enumerate(mu) if w] != values):
        return None
    if name == "4.3":
        head, read = theorem_4_3(model, mu, 0, syntax), (masked_token_probs(model, texts), model.embed(texts))
    else:
        prompt, head = theorem_4_6(model, mu, 0, syntax)
        read = masked_token_probs(model, texts, prompt), prompted(model, prompt, texts)
    possible = [
        surely(one, syntax).any() and any(weights[m] for m in values) for one, weights in zip(found, joint, strict=True)
    ]
    targets = [sum(weight * part for weight, part in zip(mu, weights, strict=True)) for weights in joint]
    return possible, targets, head.label(*read), head.sure(*read), ground_truth(model, mu, texts) >= 0


def count(name, ties, to_the_end=True):
    """Of at least so many exact ties, and texts beside them: how many labels are wrong, and how the head knew.

    Or else until the first is wrong.
    """
    seed, seen = 0, Counter()
    while seen["ties"] < ties and (to_the_end or not seen["wrong"] + seen["sure ties"]):
        seed += 1
        try:
            found = (vanilla if name < "4" else with_memory)(np.random.default_rng(seed), name)
        except AssumptionError:
            continue
        for possible, target, label, sure, truth in zip(*found, strict=True) if found else ():
            if possible:
                seen["ties" if target == 0 else "others"] += 1
                seen["wrong"] += (bool(label) != (target >= 0)) + (bool(truth) != (target >= 0))
                seen["sure ties"] += bool(sure) and target == 0
                seen["guessed"] += not sure and target != 0
    return seen


@pytest.mark.parametrize("name", TIES)
def test_no_label_is_wrong_at_a_tie_or_beside_one(name):
    seen = count(name, TIES[name])
    assert (seen["wrong"], seen["sure ties"], seen["guessed"]) == (0, 0, 0), seen
    assert seen["others"] > seen["ties"] / 2


@pytest.mark.parametrize("name", TIES)
def test_without_rounding_in_its_bound_ties_are_mislabelled(name, monkeypatch):
    for place in (heads, theorems):
        monkeypatch.setattr(place, "unit", lambda dtype, length=1: 0.0)
    seen = count(name, 100, to_the_end=False)
    assert seen["wrong"] + seen["sure ties"]


@pytest.mark.parametrize("name", ["3.3", "3.6"])
def test_zero_by_the_size_of_the_weights_alone_mislabels_ties(name, monkeypatch):
    monkeypatch.setattr(
        heads.LinearHead, "_scored", lambda self, p, length: (p @ self.weights, 2.0**-48 * (p @ self.weights.abs()))
    )
    monkeypatch.setattr(heads, "STEPS", 1)  # then weights that should be zero are not
    seen = count(name, 300, to_the_end=False)
    assert seen["wrong"] + seen["sure ties"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gap", [1e-3, 1e-8, 1e-13, 1e-15, 2e-16])  # the last two are too close to tell
def test_the_errors_of_weights_and_readings_are_bounds(gap):
    """Wᵀb - D⁻¹μ and Θ⁽²⁾W - I in rational numbers, for columns that are nearly dependent."""
    needed, unit = 0, heads.unit(torch.float64)
    for seed in range(20):
        model = nearly_dependent_hmm(3, 4, gap, seed)
        mu = np.random.default_rng(seed).standard_normal(3)
        head, table = theorem_3_3(model, mu), fractions(model.emission)
        goal = fractions(torch.as_tensor(mu) / (model.marginal(1) / model.initial))
        assert (abs(fractions(head.weights) @ table - goal) <= head.bound(model.emission.T).tolist()).all(), seed
        recovery = claim_d_3(MemoryHMM(model.transition, model.emission[:, None], model.initial, [1.0]), 0, [0, 2])
        rows, every = recovery.theta_2[:, 0], model.emission[:, [0, 2, 1]]
        found, wanted = fractions(rows) @ table[:, [0, 2, 1]], np.eye(2, 3, dtype=int)
        missed, allowed = abs(found - wanted), recovery.value_error.numpy()
        assert (missed <= allowed + unit * (rows.abs() @ every).numpy()).all(), seed
        needed += ((missed > allowed / 100) & (allowed > 0)).sum()
        size = unit * (rows.abs().sum(0) @ every).max().item()
        assert abs(found.sum(0) - wanted.sum(0)).max() <= recovery.key_error + size, seed
    assert needed


def test_a_head_whose_error_exceeds_every_score_warns():
    """Appendix E at |M| = 4, 2 states, 10 tokens, seed 58: Assumption 4.2 holds, at a condition of 3e14."""
    model, mu = random_memory_hmm(2, 4, 10, 58), [1.0, -1.0]
    head, texts = theorem_4_3(model, mu, 0, range(4)), model.sample(300, 6, 0).tokens
    assert head.condition > 1e14
    read = masked_token_probs(model, texts), model.embed(texts)
    right = head.label(*read) == (ground_truth(model, mu, texts) >= 0)
    assert right[head.sure(*read)].all()
    near = HMM(np.full((2, 2), 0.5), np.array([[0.5, 0.5 - 2.0**-49], [0.5, 0.5 + 2.0**-49]]), [0.5, 0.5])
    with pytest.warns(heads.UnsureHead, match="no score of this head exceeds its error: .* condition"):
        found = theorem_3_3(near, mu)
    assert not found.sure(near.emission.T).any()
    with pytest.warns(heads.UnsureHead, match="no reading of these columns exceeds its error: .* condition"):
        found = theorem_4_3(MemoryHMM([[1.0]], near.emission[:, :, None], [1.0], [0.5, 0.5]), mu, 0, [0])
    assert not found.sure(near.emission.T[:, None], near.emission.T[:, None]).any()
    # A rare token may tell two states apart without any error to speak of, at a condition of 5e14.
    rare = nearly_dependent_hmm(3, 3, 4e-15, 1)
    head = theorem_3_3(rare, [1.0, 0.0, -1.0])
    assert head.condition > 4e14
    assert head.sure(rare.emission.T[[0, 2]]).all()


@pytest.mark.parametrize("length", [1, 20, 200, 1000])
def test_a_tie_behind_a_long_text_that_loses_half_a_unit_at_each_token(length):
    """A chain that leaks what rounding drops: all states have one and the same chance, and floats say otherwise."""
    table = [[0.25] * 3, [0.75, 0, 0], [0, 0.75, 0], [0, 0, 0.75]]
    chain = [[1, 0, 2.0**-52], [2.0**-53, 1, 0], [2.0**-53, 2.0**-52, 1]]
    model, mu, text = HMM(chain, table, [0.25, 0.25, 0.5]), [-1.0, 1.0, 0.0], torch.zeros(1, length, dtype=int)
    if length < 100:
        start = forward_backward(model, text[0], number=whole).start
        assert start[0] == start[1]
    assert ground_truth(model, mu, text).item() == 0
    head, probs = theorem_3_3(model, mu), masked_token_probs(model, behind_gap(text))[:, 0]
    assert (head.label(probs, length).item(), head.sure(probs, length).item()) == (True, False)


def test_what_is_smaller_than_any_float_makes_no_truth():
    model = HMM([[1, 1e-300], [1e-300, 1]], [[1e-30, 0.5], [1 - 1e-30, 0.5]], [1e-300, 1])
    assert ground_truth(model, [-1e300, 1e-40], [[0]]).item() == 0
