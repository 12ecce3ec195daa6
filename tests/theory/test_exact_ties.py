"""Labels of constructed heads where the target is exactly zero, against integers without rounding: a tie is label 1."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import dyadic
import numpy as np
import pytest
import torch
from constructions import behind_gap
from record import SLOW
from torch import Tensor
from witness import forward_backward, surely, whole

from hmmlib.inference.evidence import prompted
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.families import nearly_dependent_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import heads, theorems
from hmmlib.theory.assumptions import AssumptionError, assumption_3_2, essential_states
from hmmlib.theory.theorems import claim_d_3, ground_truth, theorem_3_3, theorem_3_6, theorem_4_3, theorem_4_6

THEOREMS = ["3.3", "3.6", "4.3", "4.6"]
fractions = np.vectorize(Fraction, otypes=[object])


@dataclass
class Answers:
    """What a head and `ground_truth` say of some texts, for a task that balances exactly on the first of them."""

    counts: list[bool]
    """Whether the theorem is about the text."""
    targets: list[int]
    """The target times a positive integer, without rounding."""
    labels: Tensor
    sure: Tensor
    truth: Tensor


def weighed(mu, joint):
    """Σ μ P for each text, in integers."""
    targets = np.array(joint, dtype=object) @ np.array(mu, dtype=object)
    return list(map(int, targets))


def vanilla_answers(rng, theorem):
    """Draw a model, texts and a task for Theorem 3.3 or 3.6. None if it is not one for the theorem."""
    n_states = int(rng.integers(2, 5))
    units = 2 ** int(rng.integers(2, 6))
    n_tokens = n_states + int(rng.integers(0, 3))
    chain = dyadic.columns(rng, n_states, n_states, units)
    table = dyadic.columns(rng, n_tokens, n_states, units, 0.4)
    model = HMM(chain, table, dyadic.column(rng, n_states, 16, 0), columns=True)
    if not assumption_3_2(model):
        return None
    length = int(rng.integers(1, 4))
    texts = torch.as_tensor(rng.integers(0, n_tokens, (8, length)))
    joint = [forward_backward(model, text, number=whole).start for text in texts]
    if not any(joint[0]):
        return None
    mu = dyadic.balancing(rng, list(map(int, joint[0])))
    if mu is None:
        return None
    if theorem == "3.3":
        head = theorem_3_3(model, mu)
        probs = masked_token_probs(model, behind_gap(texts))[:, 0]
    else:
        essential = essential_states(model, mu)
        if essential is None:
            return None
        prompt, head = theorem_3_6(model, mu, essential)
        probs = masked_token_probs(model, behind_gap(texts), prompt)[:, 1]
    possible = np.any(joint, axis=1) & probs.any(1).numpy()
    return Answers(
        counts=possible.tolist(),
        targets=weighed(mu, joint),
        labels=head.label(probs),
        sure=head.sure(probs),
        truth=ground_truth(model, mu, texts) >= 0,
    )


def memory_model(rng, theorem, syntax, values, n_states, n_memory):
    """A model whose columns at `values` x `syntax` are free. Other states speak one way, or another, or evenly both.

    For Theorem 4.6 the chain is a mixture of permutations, which keeps the uniform start.
    """
    n_rest = 0 if len(syntax) == n_states else int(rng.integers(1, 3))
    n_tokens = len(syntax) * len(values) + n_rest + int(rng.integers(0, 2))
    two_ways = dyadic.columns(rng, n_tokens, 2, 8, 0.6)
    ways = rng.integers(2, size=(n_memory, n_states, 2))
    mixed_ways = two_ways[:, ways].mean(-1)
    units = 2 ** int(rng.integers(2, 5))
    table = dyadic.columns(rng, n_tokens, n_memory * n_states, units, 0.5)
    table = table.reshape(n_tokens, n_memory, n_states)
    for h in set(range(n_states)) - set(syntax):
        table[:, values, h] = mixed_ways[:, values, h]
    start = dyadic.column(rng, n_states, 16, 0)
    chain = dyadic.columns(rng, n_states, n_states, 8)
    if theorem == "4.6":
        start = np.full(n_states, 1 / n_states)
        permutations = [rng.permutation(n_states) for _ in range(4)]
        chain = np.eye(n_states)[permutations].mean(0)
    return MemoryHMM(chain, table, start, dyadic.column(rng, n_memory, 8, 0))


def memory_answers(rng, theorem):
    """Draw a model, texts and a task for Theorem 4.3 or 4.6. Texts in 𝓡 count that a prompt does not exclude."""
    n_memory = int(rng.integers(2, 4))
    if theorem == "4.3":
        n_states = int(rng.integers(1, 4))
        values = list(range(n_memory))
    else:
        n_states = int(rng.choice([2, 4]))
        values = sorted(rng.choice(n_memory, 2, replace=False).tolist())
    syntax = dyadic.subset(rng, n_states)
    model = memory_model(rng, theorem, syntax, values, n_states, n_memory)
    if not assumption_3_2(model):
        return None
    length = int(rng.integers(1, 4))
    texts = rng.integers(0, model.n_tokens, (8, length))
    witnesses = [forward_backward(model, text, number=whole) for text in texts]
    joint = [list(map(int, witness.memory)) for witness in witnesses]
    on_first_text = [weight if m in values else 0 for m, weight in enumerate(joint[0])]
    mu = dyadic.balancing(rng, on_first_text) if any(on_first_text) else None
    if mu is None:
        return None
    if theorem == "4.3":
        head = theorem_4_3(model, mu, 0, syntax)
        outputs = masked_token_probs(model, texts), model.embed(texts)
    else:
        if [m for m, weight in enumerate(mu) if weight] != values:
            return None
        prompt, head = theorem_4_6(model, mu, 0, syntax)
        outputs = masked_token_probs(model, texts, prompt), prompted(model, prompt, texts)
    counts = []
    for witness, weights in zip(witnesses, joint, strict=True):
        is_possible = any(weights[m] for m in values)
        counts.append(is_possible and surely(witness, syntax).any())
    return Answers(
        counts=counts,
        targets=weighed(mu, joint),
        labels=head.label(*outputs),
        sure=head.sure(*outputs),
        truth=ground_truth(model, mu, texts) >= 0,
    )


def count(theorem, ties, until_wrong=False):
    """Count what heads say at so many exact ties and on the texts beside them, or until something is wrong."""
    draw = vanilla_answers if theorem < "4" else memory_answers
    seed = 0
    seen = Counter()
    while seen["ties"] < ties and not (until_wrong and seen["wrong"] + seen["sure ties"]):
        seed += 1
        try:
            answers = draw(np.random.default_rng(seed), theorem)
        except AssumptionError:
            continue
        for k, target in enumerate(answers.targets if answers else ()):
            if not answers.counts[k]:
                continue
            is_tie = target == 0
            sure = bool(answers.sure[k])
            said = {bool(answers.labels[k]), bool(answers.truth[k])}
            seen["ties" if is_tie else "others"] += 1
            seen["wrong"] += said != {target >= 0}
            seen["sure ties"] += sure and is_tie
            seen["guessed"] += not sure and not is_tie
    return seen


@pytest.mark.parametrize("theorem", THEOREMS)
def test_no_label_is_wrong_at_a_tie_or_beside_one(theorem):
    n_ties = 300 if theorem < "4" else 60
    seen = count(theorem, 2000 if SLOW else n_ties)
    assert seen["wrong"] == 0, seen
    assert seen["sure ties"] == 0, seen
    assert seen["guessed"] == 0, seen
    assert seen["others"] > seen["ties"] / 2


@pytest.mark.parametrize("theorem", THEOREMS)
def test_without_rounding_in_the_tolerance_ties_are_mislabelled(theorem, monkeypatch):
    def no_rounding(dtype, length=1):
        return 0.0

    monkeypatch.setattr(heads, "unit", no_rounding)
    monkeypatch.setattr(theorems, "unit", no_rounding)
    seen = count(theorem, 100, until_wrong=True)
    assert seen["wrong"] + seen["sure ties"]


@pytest.mark.parametrize("theorem", ["3.3", "3.6"])
def test_without_the_error_of_the_weights_ties_are_mislabelled(theorem, monkeypatch):
    honest = heads.LinearHead.by_left_inverse

    def without_error(columns, target, condition):
        return heads.LinearHead(honest(columns, target, condition).weights, condition)

    monkeypatch.setattr(heads.LinearHead, "by_left_inverse", without_error)
    monkeypatch.setattr(heads, "STEPS", 1)  # Otherwise the errors are rarely large enough to be seen.
    seen = count(theorem, 300, until_wrong=True)
    assert seen["wrong"] + seen["sure ties"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gap", [1e-3, 1e-8, 1e-13, 1e-15, 2e-16])  # the last two are too close to tell
def test_the_tolerances_bound_the_errors_of_constructions(gap):
    """Wᵀb - D⁻¹μ and Θ⁽²⁾W - I in rational numbers, for columns that are nearly dependent."""
    unit = heads.unit(torch.float64)
    needed = 0
    for seed in range(20):
        model = nearly_dependent_hmm(3, 4, gap, seed)
        mu = np.random.default_rng(seed).standard_normal(3)
        head = theorem_3_3(model, mu)
        table = fractions(model.emission)
        target = fractions(torch.as_tensor(mu) / (model.marginal(1) / model.initial))
        missing = abs(fractions(head.weights) @ table - target)
        assert (missing <= head.tolerance(model.emission.T).tolist()).all(), seed

        one_value = MemoryHMM(model.transition, model.emission[:, None], model.initial, [1.0])
        recovery = claim_d_3(one_value, 0, [0, 2])
        readings = recovery.theta_2[:, 0]
        read = fractions(readings) @ table[:, [0, 2, 1]]
        ideal = np.eye(2, 3, dtype=int)
        share = unit + recovery.error
        largest = readings.abs().amax(1, keepdim=True).numpy()
        missing = abs(read - ideal)
        assert (missing <= share * largest).all(), seed
        needed += (missing > unit * largest / 100).sum()
        key = recovery.theta_1[recovery.states]
        largest_key = key.abs().sum(0).max().item()
        missing_in_key = abs(read.sum(0) - ideal.sum(0))
        assert missing_in_key.max() <= share * largest_key, seed
    assert needed


LEAKING_CHAIN = [
    [1, 0, 2.0**-52],
    [2.0**-53, 1, 0],
    [2.0**-53, 2.0**-52, 1],
]
FIRST_TOKEN_TELLS_NOTHING = [
    [0.25, 0.25, 0.25],
    [0.75, 0, 0],
    [0, 0.75, 0],
    [0, 0, 0.75],
]


@pytest.mark.parametrize("length", [1, 20, 200, 1000])
def test_a_tie_behind_a_long_text_that_loses_half_a_unit_at_each_token(length):
    """A chain that leaks what rounding drops: all states have one and the same chance, and floats say otherwise."""
    model = HMM(LEAKING_CHAIN, FIRST_TOKEN_TELLS_NOTHING, [0.25, 0.25, 0.5])
    mu = [-1.0, 1.0, 0.0]
    text = torch.zeros(1, length, dtype=int)
    if length < 100:
        start = forward_backward(model, text[0], number=whole).start
        assert start[0] == start[1]
    assert ground_truth(model, mu, text).item() == 0
    head = theorem_3_3(model, mu)
    probs = masked_token_probs(model, behind_gap(text))[:, 0]
    assert head.label(probs).item()
    assert not head.sure(probs).item()


def test_what_is_smaller_than_any_float_makes_no_truth():
    chain = [[1, 1e-300], [1e-300, 1]]
    emission = [[1e-30, 0.5], [1 - 1e-30, 0.5]]
    model = HMM(chain, emission, [1e-300, 1])
    assert ground_truth(model, [-1e300, 1e-40], [[0]]).item() == 0
