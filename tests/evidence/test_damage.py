"""Checks that could fail: one sign, one index or one factor wrong in what a check relies on turns its verdict."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from companion.evidence.ledger import FAILS, STATEMENTS, run
from companion.evidence.random_models import appendix_d3, instances, memory_instances, ours, section_3
from companion.evidence.random_models import assumptions as predicate_checks
from companion.evidence.random_models.instances import Printed
from companion.evidence.statements import find
from damages import (
    around,
    backwards,
    both,
    everywhere,
    instead,
    judged,
    own_token_seen,
    own_token_too,
    prior_dropped,
    prompt_of,
    ranked,
    turned,
    with_part,
    without_prior,
)

from hmmlib.inference import messages
from hmmlib.theory import assumptions as predicates
from hmmlib.theory import certificates, heads, theorems
from hmmlib.theory.heads import AttentionHead, LinearHead

KEPT = [memory_instances.memory_instance, memory_instances.prompted_instance, memory_instances.one_cell_instance]
KEPT += [instances.essential_instance]


@pytest.fixture(autouse=True)
def forgotten():
    """Models and matrices that the checks keep would hide a damage, or carry it into the next test."""
    for cached in KEPT:
        cached.cache_clear()
    yield
    for cached in KEPT:
        cached.cache_clear()


# How to damage: each takes a monkeypatch


def without_the_rest(found):
    """The row of all states outside H* left out: the one that makes probabilities sum to 1."""
    inside = torch.zeros(len(found.theta_1), 1, dtype=torch.bool).index_fill(0, torch.tensor(found.states), True)
    return replace(found, theta_1=found.theta_1 * inside)


def squared(honest):
    return lambda model, prompt, tokens: honest(model, torch.as_tensor(prompt) ** 2, tokens)


def recovered(change):
    return both(*(around(theorems, name, change) for name in ("claim_d_3", "claim_d_10")))


prompted = partial(around, theorems, "prompted_head")
shifted = both(*(around(place, "masked_token_probs", turned(1)) for place in (section_3, messages)))
u_squared = both(*(instead(place, "prompted", squared) for place in (section_3, messages)))
no_prompt = instead(messages, "masked_token_probs", lambda f: lambda model, x, u: f(model, x, torch.ones_like(u)))
loose = ranked(lambda columns, report: (torch.linalg.svdvals(columns) > 0.1 * report.largest_singular_value).sum())
strict = ranked(lambda columns, report: min(columns.shape) if report.smallest_singular_value > 0 else report.rank)
every_value = instead(predicates, "weighted_values", lambda f: lambda model, mu: range(model.n_memory))
no_basis = around(theorems, "span_of", lambda span: span._replace(basis=span.basis[:, :0]))
a_sum = instead(AttentionHead, "__call__", lambda f: lambda h, p, e: f(h, p, e) * h.attended(p).sum(1))
DAMAGES = [
    # Section 3, appendices B and C
    ("Proposition 3.4", "U depends on V beyond Z",
        around(torch, "einsum", lambda t: torch.cat([t[:1].roll(1, 1), t[1:]]))),
    ("Claim B.1", "D of the next step", instead(section_3, "claim_b_1", lambda f: lambda model, i: f(model, i + 1))),
    ("Claim B.1, Lemma C.1, Proposition D.8", "messages along the transposed chain", backwards),
    ("Theorem 3.3", "no rounding", instead(heads, "unit", lambda f: lambda dtype, length=1: 0.0)),
    ("Theorem 3.3", "D dropped", around(theorems, "claim_b_1", torch.ones_like)),
    ("Lemma C.1, Proposition D.1, Lemma D.7", "τ with the token itself", own_token_seen),
    ("Lemma C.1, Lemma D.7", "u squared", u_squared),
    ("Lemma C.1, Theorem 3.6, Proposition D.1, Theorem 4.3", "positions one further on", shifted),
    ("Lemma C.2", "H_1 in the place of H_2",
        instead(section_3, "lemma_c_2", lambda f: lambda model, u: u * model.marginal(1) / model.initial)),
    ("Theorem 3.6", "what the prompt does, dropped", around(theorems, "lemma_c_2", torch.ones_like)),
    # Appendix D.1
    ("Proposition D.1, Lemma D.7", "P[M] dropped", prior_dropped),
    ("Lemma D.2", "key one row further on",
        instead(theorems, "lemma_d_2", lambda f: lambda *a: (f(*a)[0], f(*a)[1].roll(1, 0)))),
    ("Lemma D.2", "Î one position further on", around(theorems, "concentrated", turned(1))),
    ("Claim D.3, Claim D.10", "rows of Θ⁽¹⁾ one further on", recovered(with_part("theta_1", turned(0)))),
    ("Claim D.3, Claim D.10", "row of the others dropped", recovered(without_the_rest)),
    ("Claim D.3, Claim D.10", "basis of the others dropped", no_basis),
    ("Claim D.3, Theorem 4.3", "values of the memory one further on", recovered(with_part("theta_2", turned(1)))),
    ("Lemma D.4, Lemma D.13", "rows of Θ⁽ⱽ⁾ one further on", around(theorems, "lemma_d_4", prompt_of(turned(0)))),
    ("Theorem 4.3", "the truth of the first cell",
        instead(theorems, "ground_truth", lambda f: lambda model, mu, x, cell: f(model, mu, x, 0))),
    ("Lemma D.2, Theorem 4.3, Theorem 4.6, Theorem D.6", "attends to all",
        instead(AttentionHead, "attended", everywhere)),
    ("Theorem 4.3, Theorem 4.6, Theorem D.6", "a sum in the place of the mean", a_sum),
    # Appendix D.3
    ("Proposition D.8", "P[M] dropped", instead(messages, "aggregated_messages", without_prior)),
    ("Lemma D.9, Theorem 4.6, Theorem D.6", "β₁ dropped", prompted(with_part("positions", torch.zeros_like))),
    ("Lemma D.9, Theorem 4.6, Theorem D.6", "key one row further on", prompted(with_part("key", turned(0)))),
    ("Theorem 4.6, Theorem D.6", "prompt of the other values",
        around(theorems, "theorem_4_6", prompt_of(lambda u: 1 - u))),
    ("Lemma D.9", "𝓘 without the prompt",
        instead(theorems, "concentrated",
        lambda f: lambda m, x, c, s, u: torch.cat([torch.zeros(len(x), 1) > 0, f(m, x, c, s)], 1))),
    ("Claim D.10, Lemma D.13", "the prompt dropped", no_prompt),
    ("Proposition D.11, Claim D.14, Claim D.15", "prompt of the other values",
        around(theorems, "prompt_d_6", lambda u: 1 - u)),
    ("Proposition D.11", "the token itself seen", instead(messages, "aggregated_messages", own_token_too)),
    ("Claim D.12", "the prompt dropped",
        instead(messages, "latent_given_others",
        lambda f: lambda m, x, u: f(m, x, u if u is None else torch.ones_like(u)))),
    ("Claim D.14", "the prompt left out of τ",
        instead(appendix_d3, "memory_given", lambda f: lambda case, own: f(case, False))),
    ("Claim D.15", "uniform where x̂₋ᵢ is impossible",
        around(messages, "masked_token_probs", lambda p: torch.where(p.sum(-1, keepdim=True) > 0, p, 1 / p.shape[-1]))),
    ("Theorem D.6", "φ a sum in the place of the mean", instead(
        heads, "unlift", lambda f: lambda lifted, cells, values: f(lifted, cells, values) * values ** (cells - 1))),
    # The assumptions
    ("Assumption 3.1, Assumption 4.5", "a wide tolerance", loose),
    ("Assumption 3.2", "support dropped", judged("assumption_3_2", lambda r: r.irreducible and r.period == 1)),
    ("Assumption 3.2", "irreducibility dropped",
        judged("assumption_3_2", lambda r: r.period < 2 and r.start_support == r.n_states)),
    ("Assumption 3.5", "supp(μ) dropped", judged("assumption_3_5", lambda r: r.columns and not r.unreached)),
    ("Assumption 3.5", "the way in dropped", judged("assumption_3_5", lambda r: r.columns and not r.uncovered)),
    ("Assumption 3.5", "independence dropped", judged("assumption_3_5", lambda r: not (r.uncovered or r.unreached))),
    ("Assumption 3.5", "any set is found", instead(predicates, "essential_states", lambda f: lambda *a: [0])),
    *((f"Assumption {number}", "the others dropped", judged(f"assumption_{name}", lambda r: r.columns))
        for number, name in (("4.2", "4_2"), ("4.5", "4_5"), ("D.5", "d_5"))),
    ("Assumption 4.4", "stationarity dropped", judged("assumption_4_4", lambda r: r.regularity)),
    ("Assumption 4.5, Assumption D.5", "all values count", every_value),
    # What is not in the paper
    ("Certificate", "κ dropped", around(certificates, "certificate", lambda found: replace(found, spread=0.0))),
    ("Certificate", "δ dropped", around(certificates, "certificate", lambda found: replace(found, error=0.0))),
    ("Exactness", "P[H_0] in the place of 1 / P[H_0]", instead(
        ours, "lemma_c_2", lambda f: lambda model, prompt: f(model, prompt) * model.initial**2)),
    ("Separable signs", "no prompt", around(certificates, "prompt_for_separating_head", prompt_of(torch.ones_like))),
    ("Several classes", "heads of norm 1", around(
        ours, "theorem_3_3", lambda head: LinearHead(torch.nn.functional.normalize(head.weights, dim=0)))),
    ("Relabelling", "half the signal", instead(
        certificates, "gated_readout",
        lambda f: lambda table, p, signal=None: f(table, p, None if signal is None else signal / 2))),
]  # fmt: skip
DAMAGES = [(name, what, damage) for names, what, damage in DAMAGES for name in names.split(", ")]
ATTEMPTS = ((6, 1), (16, 2), (40, 1))
"""Instances and seed: most damages show at once, some only in a model with several cells."""


def test_every_statement_is_damaged_and_every_theorem_at_least_twice():
    damaged = [name for name, _, _ in DAMAGES]
    assert set(damaged) == {statement.name for statement in STATEMENTS}
    assert all(damaged.count(name) >= 2 for name in damaged if name.startswith("Theorem"))


def checks_only(statement):
    """The statement with nothing but its check: the rest of the ledger says nothing about a damage to it."""
    nothing = Printed(0.0, 0, "")
    return replace(statement, control=lambda seed: 1.0, printed=lambda seed: nothing, counterexample=lambda: nothing)


@pytest.mark.parametrize(("name", "what", "damage"), DAMAGES, ids=[f"{name}: {what}" for name, what, _ in DAMAGES])
def test_the_check_notices(name, what, damage, monkeypatch):
    damage(monkeypatch)
    assert any(run(checks_only(find(name)), *attempt).verdict == FAILS for attempt in ATTEMPTS)


CONTROLS = [
    ("Assumption 3.1", "no tolerance", strict),
    ("Assumption 3.2", "period dropped", judged(
        "assumption_3_2", lambda r: r.irreducible and r.start_support == r.n_states)),
    ("Assumption 3.2", "Theorem 4.3 takes any chain", instead(
        predicate_checks, "theorem_4_3",
        lambda f: lambda model, mu, *place: theorems.attention_head(model, mu, theorems.claim_d_3(model, *place)))),
    ("Assumption 4.4", "regularity dropped", judged("assumption_4_4", lambda r: r.drift < 1e-9)),
]  # fmt: skip
"""Damages that random models of a check seldom or never show, and a model that was made for them does."""


@pytest.mark.parametrize(("name", "what", "damage"), CONTROLS, ids=[f"{name}: {what}" for name, what, _ in CONTROLS])
def test_the_control_notices(name, what, damage, monkeypatch):
    assert run(find(name), 6, seed=1).as_recorded
    damage(monkeypatch)
    assert not run(find(name), 6, seed=1).as_recorded
