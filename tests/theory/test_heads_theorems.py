"""Linear heads: the construction of Theorem 3.3 on many models, its refusals, and heads found or refuted."""

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, normalised, over_inputs
from companion.evidence.random_models.section_3 import balanced
from record import SLOW
from test_separation import check_refutation

from hmmlib.inference.messages import log_likelihood, masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import dependent_hmm, hidden_twins, nearly_dependent_hmm, non_degenerate_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import AssumptionError, assumption_3_1, assumption_3_2
from hmmlib.theory.heads import LinearHead, unless_within
from hmmlib.theory.separation import Impossible, fit_or_refute
from hmmlib.theory.theorems import claim_b_1, theorem_3_3
from hmmlib.validation import MASK

FAMILIES = {
    "non-degenerate": lambda seed: non_degenerate_hmm(1 + seed % 6, 1 + seed % 6 + seed % 3, seed),
    "no zeros": lambda seed: non_degenerate_hmm(2 + seed % 7, 10, seed, zeros=0.0),
    "gap 1e-2": lambda seed: nearly_dependent_hmm(2 + seed % 4, 7, 1e-2, seed),
    "gap 1e-4": lambda seed: nearly_dependent_hmm(2 + seed % 4, 7, 1e-4, seed),
    "gap 1e-6": lambda seed: nearly_dependent_hmm(2 + seed % 4, 7, 1e-6, seed),
    "appendix E": lambda seed: random_hmm(1 + seed % 10, 10, seed),
}
INSTANCES = 170 if SLOW else 40
"""Of each family: 1,020 in all, or 240."""


def instances(family):
    """Models of a family that satisfy the theorem's assumptions, with a random μ and inputs of positive probability."""
    found, seed = 0, 0
    while found < INSTANCES:
        model, seed = FAMILIES[family](seed), seed + 1
        if not (assumption_3_1(model) and assumption_3_2(model)):
            assert family == "appendix E", seed
            continue
        found += 1
        rng = np.random.default_rng(seed)
        mu = rng.standard_normal(model.n_states) * rng.choice([1e-3, 1.0, 1e3])
        yield seed, model, torch.as_tensor(mu), model.sample(6, int(rng.integers(1, 7)), seed).tokens


def shifted(tokens):
    """(MASK, x) for every x."""
    return torch.cat([torch.full_like(tokens[:, :1], MASK), tokens], 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_theorem_3_3(family):
    for seed, model, mu, tokens in instances(family):
        before, head = posterior(model, tokens), theorem_3_3(model, mu)
        probs = masked_token_probs(model, shifted(tokens))[:, 0]
        r = (log_likelihood(model, tokens) - log_likelihood(model, shifted(tokens))).exp()
        # The score is r_x μᵀP[H_0 | x], up to rounding that the condition of W magnifies.
        diagonal = model.marginal(1) / model.initial
        unit = 1e-13 * head.condition * (mu / diagonal).abs().max()
        error = (head(probs) - r * (before @ mu)).abs()
        assert (r > 0).all()
        assert (error <= unit).all(), (seed, (error / unit).max())
        sure = r * (before @ mu).abs() > unit
        assert torch.equal(head.label(probs)[sure], (before @ mu >= 0)[sure]), seed

        recovered = (probs @ torch.linalg.pinv(model.emission).T) / claim_b_1(model, 1)
        recovered = recovered / recovered.sum(1, keepdim=True)
        assert ((recovered - before).abs() <= 1e-12 * head.condition * diagonal.max() / diagonal.min()).all(), seed
        assert head.condition == pytest.approx(np.linalg.cond(model.emission.numpy()), rel=1e-3)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("gap 1e-6", "appendix E")])
def test_theorem_3_3_against_the_sum_over_all_paths(family):
    checked = 0
    for seed, model, mu, tokens in instances(family):
        if model.n_states ** (tokens.shape[1] + 2) > 5_000 or checked == (40 if SLOW else 20):
            continue
        checked += 1
        head, parts = theorem_3_3(model, mu), (model.transition, model.emission, model.initial)
        for x in tokens[:2]:
            here = Enumeration(*parts, model.emission[x])
            later = Enumeration(*parts, torch.cat([torch.ones(1, model.n_states), model.emission[x]]))
            probs = torch.as_tensor(normalised(later.masked_token(1)))
            score = here.likelihood() / later.likelihood() * (normalised(here.state(0)) @ mu.numpy())
            bound = 1e-13 * head.condition * (mu * model.initial / model.marginal(1)).abs().max().item()
            assert abs(head(probs[None]).item() - score) <= bound, seed
    assert checked >= 20


LOOP, UNIFORM = [[0.0, 0.5], [1.0, 0.5]], [0.5, 0.5]
BROKEN = {
    "dependent columns": (dependent_hmm(4, 6), "3.1"),
    "fewer tokens than states": (hidden_twins(), "3.1"),
    "reducible": (HMM(np.eye(2), np.eye(2), UNIFORM), "3.2"),
    "periodic": (HMM([[0, 1], [1, 0]], np.eye(2), UNIFORM), "3.2"),
    "start without full support": (HMM(LOOP, np.eye(2), [1, 0]), "3.2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_assumption_is_named_and_reported(name):
    model, assumption = BROKEN[name]
    with pytest.raises(AssumptionError, match=f"Assumption {assumption}.*does not hold") as caught:
        theorem_3_3(model, np.ones(model.n_states))
    report = caught.value.report
    assert not report
    assert report == {"3.1": assumption_3_1, "3.2": assumption_3_2}[assumption](model)
    assert isinstance(caught.value, ValueError)


def test_linear_head():
    head = LinearHead(torch.tensor([1.0, -1.0, 0.0]))
    probs = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.75, 0.25, 0.0]]
    np.testing.assert_allclose(head(probs), [0, -0.1, 0.5], atol=1e-7)
    assert head.label(probs).tolist() == [True, False, True]
    for wrong in ([[0.5, 0.5]], [0.5, 0.5, 0.0]):
        with pytest.raises(ValueError, match="probs must have"):
            head(wrong)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23)])
def test_scores_within_their_bound_are_zero_and_keep_their_gradient(dtype, unit):
    score = torch.tensor([16, -16, 17, -17, 64, 65, 0], dtype=dtype) * unit
    size = torch.tensor([1, 1, 1, 1, 4, 4, 0], dtype=dtype)
    score.requires_grad_()
    found = unless_within(score, 16 * unit * size)
    assert found.tolist() == [0, 0, 17 * unit, -17 * unit, 0, 65 * unit, 0]
    assert found.dtype == dtype
    found.sum().backward()
    assert score.grad.tolist() == [1] * 7


def test_the_weights_of_a_linear_head():
    assert LinearHead([1, -1, 0]).weights.dtype == torch.float64
    assert LinearHead([1, -1, 0]).condition == 1.0
    given = torch.tensor([1.0, -1.0], requires_grad=True)
    assert LinearHead(given).weights is given
    for wrong, message in [
        (dict(weights=[[1.0, 2.0]]), "weights must have 1 dimension, not shape"),
        (dict(weights=[]), "weights is empty"),
        (dict(weights=[np.inf]), "weights must be finite"),
        (dict(weights=[1.0, 2.0], error=[0.0]), r"error must have shape \(2,\), not \(1,\)$"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            LinearHead(**wrong)


def inputs(model, mu, length=3):
    """G_1 of (MASK, x) and the labels, for all x of positive probability that no rounding can relabel."""
    tokens = torch.as_tensor(over_inputs(model.n_tokens, length, np.array))
    tokens = tokens[log_likelihood(model, tokens) > -torch.inf]
    scores = posterior(model, tokens) @ mu
    tokens, labels = tokens[scores.abs() > 1e-9], scores[scores.abs() > 1e-9] >= 0
    return masked_token_probs(model, shifted(tokens))[:, 0], labels


def test_the_theorems_head_fits_all_inputs_and_so_one_can_be_found():
    for seed in range(30):
        model = non_degenerate_hmm(3, 4, seed)
        mu = torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        probs, labels = inputs(model, mu)
        assert torch.equal(theorem_3_3(model, mu).label(probs), labels), seed
        assert isinstance(fit_or_refute(probs, labels), LinearHead), seed


def test_without_independent_columns_some_tasks_have_no_head():
    refuted = 0
    for seed in range(30):
        model = dependent_hmm(4, 4, seed)
        mu = torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        every = posterior(model, over_inputs(4, 3, np.array))
        probs, labels = inputs(model, mu - (every @ mu).median())  # posteriors sum to 1: half of the labels are 1
        found = fit_or_refute(probs, labels)
        if isinstance(found, Impossible):
            check_refutation(found, probs, labels)
            refuted += 1
        else:
            scores = found(probs)
            assert (scores[labels] >= -1e-7).all()
            assert (scores[~labels] < 0).all()
    assert refuted >= 10
    probs, labels = inputs(hidden_twins(), torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64), 1)
    check_refutation(fit_or_refute(probs, labels), probs, labels)


def test_balanced_labels_are_never_decided_by_rounding():
    flat = torch.tensor([0.1, 0.1 + 2e-17, 0.1, 0.1 - 2e-17], dtype=torch.float64)
    assert balanced(flat).all()
    assert balanced(torch.zeros(5, dtype=torch.float64)).all()
    assert balanced(torch.tensor([0.0, 3.0, 1.0, 2.0], dtype=torch.float64)).tolist() == [False, True, False, True]
