"""Certificates, linear programs and gates: against exact fractions, against duals, and where they must fail."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from types import SimpleNamespace

import dyadic
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from witness import forward_backward, whole

from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import essential_hmm, nearly_dependent_hmm, non_degenerate_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.certificates import (
    Certificate,
    alternate,
    certificate,
    gated_readout,
    nearest_head,
    nearest_prompt,
    prompt_for_separating_head,
    refuting_belief,
    separating_head,
    signal_for,
)
from hmmlib.theory.heads import LinearHead, unit
from hmmlib.theory.separation import Impossible
from hmmlib.theory.theorems import lemma_c_2, theorem_3_3, theorem_3_6

fractions = np.vectorize(Fraction, otypes=[object])


def a_dyadic_model(rng):
    chain, table = dyadic.columns(rng, 3, 3, 16), dyadic.columns(rng, 3, 3, 16, 0.2)
    return HMM(chain, table, dyadic.column(rng, 3, 16, 0))


def beliefs(model, longest):
    """P[H_0 | x] in fractions, of all possible texts of at most a length."""
    for length in range(1, longest + 1):
        for text in product(range(model.n_tokens), repeat=length):
            weights = forward_backward(model, np.array(text), number=whole).start
            if weights.sum():
                yield fractions(weights) / int(weights.sum())


def tried(scale, distance=Fraction(1, 8)):
    """How many texts are certified, and how many a guess within the distance mislabels, with κ and δ times `scale`."""
    certified = wrong = 0
    turns = [
        np.eye(3, dtype=int)[[one, other]] for one, other in permutations(range(3), 2)
    ]  # from one token to another
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = a_dyadic_model(rng)
        mu, prompt = rng.integers(-4, 5, 3) / 4, torch.as_tensor(rng.integers(1, 9, 3) / 8)
        if not mu.any():
            continue
        head, found = nearest_head(model, mu, lemma_c_2(model, prompt), slack=0.05)
        parts = model.transition, model.emission, model.initial, prompt, head.weights, mu
        chain, table, start, u, b, task = map(fractions, parts)
        diagonal = chain @ (u * (chain @ start)) / start
        for belief in beliefs(model, 3):
            target, weights = task @ belief, diagonal * belief
            bound = Fraction(found.error) + distance * Fraction(found.spread) * weights.sum()
            if abs(target) > scale * bound:
                certified += 1
                guess = table @ weights / weights.sum()
                spoilt = [guess + min(distance / 2, guess @ one) * (other - one) for one, other in turns]
                wrong += any((b @ one >= 0) != (target >= 0) for one in spoilt)
    return certified, wrong


def test_no_guess_within_the_distance_mislabels_a_certified_text_and_half_the_certificate_is_not_enough():
    certified, wrong = tried(1)
    assert certified > 30
    assert not wrong
    assert tried(Fraction(1, 2))[1]


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-6, 1e-9])
def test_rounding_certifies_no_belief_whose_label_differs_without_it(gap):
    """Nearly dependent columns: δ is what rounding has left, and νᵀp in fractions has another sign than μᵀp."""
    certified = right = 0
    offsets = torch.tensor([k * 2.0**power for k in range(-60, 61) for power in (-52, -47, -40, -33)]).double()
    for seed in range(6):
        model, mu = nearly_dependent_hmm(3, 4, gap, seed), np.random.default_rng(seed).standard_normal(3)
        mu[:2] = abs(mu[0]), -abs(mu[1])
        head = theorem_3_3(model, mu)
        parts = model.transition, model.emission, model.initial, head.weights, mu
        chain, table, start, b, task = map(fractions, parts)
        diagonal = chain @ start / start
        first = mu[1] / (mu[1] - mu[0]) + offsets  # beside the point between two states where μᵀp changes its sign
        near = torch.stack([first, 1 - first, 0 * first], 1)
        for belief in map(fractions, near[certificate(model, mu, head).holds(near, 0.0)]):
            weights = diagonal * belief
            probs = (table @ weights / weights.sum()).astype(float)
            certified += 1
            right += (b @ table @ weights >= 0) == (task @ belief >= 0) == head.label([probs]).item()
    assert right == certified > 250


def test_what_holds_is_the_inequality():
    rng = np.random.default_rng(3)
    model, mu = a_dyadic_model(rng), [1.0, -0.5, 0.25]
    head, found = nearest_head(model, mu)
    for error in ([0.0, 0.0, 0.0], [0.5, 0.0, -0.25]):
        known = LinearHead(head.weights, error=error)
        lost = known.error.abs() + 2 * unit(torch.float64, 6) * (head.weights.abs() + known.error.abs())
        made = certificate(model, mu, known, found.diagonal)
        assert torch.equal(made.rounding, found.diagonal * (lost @ model.emission))
        assert made.largest_rounding == lost.max().item()
    edge = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)  # μᵀp = -1/2, whatever rounds
    for part in ("error", "rounding", "largest_rounding"):
        large = replace(found, **{part: getattr(found, part) * 0 + 1e6})
        assert (found.holds(edge, 0.1).item(), large.holds(edge, 0.1).item()) == (True, False)
    near = torch.tensor([[1 / 3 + 2.0**-50, 2 / 3, 0]], dtype=torch.float64)  # within the rounding of μᵀp itself
    assert near @ found.mu > 0
    assert not replace(found, error=0.0, rounding=0 * found.rounding).holds(near, 0.0).item()
    points = torch.as_tensor(rng.dirichlet(np.ones(3), 500))[:, :2]
    mu, diagonal, rounding = torch.tensor([[3, -2], [2, 1], [0.2, 0.3]], dtype=torch.float64)
    gap = (points @ mu).abs() - 0.1 - 0.4 * (0.5 + 0.05) * (points @ diagonal) - points @ rounding
    assert 0 < (gap > 0).sum() < 500
    for scale, distance in ((1.0, 0.4), (1e-9, torch.full((500,), 0.4))):  # all of it in other units
        made = Certificate(mu * scale, diagonal, 0.1 * scale, 0.5 * scale, rounding * scale, 0.05 * scale)
        assert torch.equal(made.holds(points.float(), distance), gap > 0)
    mu, none = torch.tensor([1.0, -1.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    tie = Certificate(mu, none, 1.0 - unit(torch.float64, 2), 0.0, none, 0.0)
    assert not tie.holds(torch.eye(2), 0.0).any(), "what is equal does not hold"
    for arguments, name in (((torch.eye(3), 0.1), "posteriors"), ((torch.eye(2), "far"), "distance")):
        with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
            tie.holds(*arguments)


@pytest.mark.parametrize("seed", [0, 1, 7, 11, 16, 19])
def test_the_least_error_is_that_of_the_dual_program(seed):
    """min ‖M b - μ‖∞ = max μᵀy over Mᵀy = 0, ‖y‖₁ ≤ 1; and no other head that is tried has a smaller spread."""
    model, rng = random_hmm(6, 4, seed, temperature=0.5), np.random.default_rng(seed)
    mu, reach = rng.standard_normal(6), torch.as_tensor(rng.random(6))
    _, found = nearest_head(model, mu, reach)
    matrix = (found.diagonal.unsqueeze(1) * model.emission.T).numpy()
    equal, cost = np.hstack([matrix.T, -matrix.T]), np.concatenate([-mu, mu])
    dual = linprog(cost, A_eq=equal, b_eq=np.zeros(4), A_ub=np.ones((1, 12)), b_ub=[1], bounds=(0, None))
    assert found.error == pytest.approx(-dual.fun, abs=1e-7)
    assert found.error > 1e-3
    _, loose = nearest_head(model, mu, reach, slack=0.02)
    assert loose.error <= found.error + 0.02 + 1e-8
    assert loose.spread < found.spread
    # The least spread, over heads and half their largest difference.
    pairs = np.array([np.eye(4)[one] - np.eye(4)[other] for one, other in permutations(range(4), 2)])
    upper = np.block([[pairs, -2 * np.ones((12, 1))], [matrix, np.zeros((6, 1))], [-matrix, np.zeros((6, 1))]])
    most = np.concatenate([np.zeros(12), loose.error + mu, loose.error - mu])
    least = linprog([0, 0, 0, 0, 1], A_ub=upper, b_ub=most, bounds=(None, None))
    assert loose.spread == pytest.approx(least.fun, abs=1e-6)


def test_the_theorems_heads_have_no_error_and_a_prompt_does_what_a_head_alone_cannot():
    model, mu = non_degenerate_hmm(3, 4, 0, zeros=0.0), [1.0, -0.5, 0.25]
    assert certificate(model, mu, theorem_3_3(model, mu)).error < 1e-12
    assert nearest_head(model, mu)[1].error < 1e-9
    model, states = essential_hmm(4, 3, 2, 5)
    mu = np.zeros(4)
    mu[states] = 1.0, -1.0
    prompt, head = theorem_3_6(model, mu, states)
    assert certificate(model, mu, head, lemma_c_2(model, prompt)).error < 1e-12
    assert nearest_prompt(model, mu, nearest_head(model, mu, lemma_c_2(model, prompt))[0])[1].error < 1e-8
    assert nearest_head(model, mu)[1].error > 1e-3


def test_a_permutation_needs_separable_signs_and_a_head_that_has_them():
    turn = HMM(torch.eye(3).double()[[1, 2, 0]], torch.eye(3).double(), [0.25, 0.25, 0.5], columns=True)
    task = [1.0, -1.0, 0.0]
    for score in (0.0, 5.0):  # of a state that the task does not weigh
        prompt, head = prompt_for_separating_head(turn, task, LinearHead([2.0, -3.0, score]))
        assert 0 <= prompt.min() <= prompt.max() == 1
        assert certificate(turn, task, head, lemma_c_2(turn, prompt)).error < 1e-15
    between = HMM(np.full((3, 3), 1 / 3), [[1, 0, 0.5], [0, 1, 0.5]], [0.25, 0.25, 0.5], columns=True)
    assert isinstance(separating_head(between, [1.0, 1.0, 0.0]), LinearHead), "wherever that state lies"
    assert isinstance(separating_head(between, [1.0, 1.0, -1.0]), Impossible)
    merge = HMM([[1.0, 1.0], [0.0, 0.0]], np.eye(2), [0.5, 0.5], columns=True)
    with pytest.raises(ValueError, match=r"^model must have a permutation as transition: with another, not every"):
        prompt_for_separating_head(merge, [1.0, -1.0], LinearHead([2.0, -1.0]))
    with pytest.raises(ValueError, match=r"^head must score each state .* it does not: \[0, 1\]$"):
        prompt_for_separating_head(turn, [-1.0, 1.0, 0.0], LinearHead([2.0, -1.0, 0.0]))


def test_a_diagonal_is_any_vector_of_numbers_one_for_each_state():
    model, mu, head = non_degenerate_hmm(3, 4, 0), [1.0, -0.5, 0.25], LinearHead(torch.ones(4).double())
    for diagonal, message in (([1.0, 2.0], r"shape \(3,\)"), ([[1.0] * 3], "1 dimension"), ("abc", "an array of num")):
        with pytest.raises(ValueError, match=f"^diagonal must (be|have) {message}"):
            certificate(model, mu, head, diagonal)
    assert certificate(model, mu, head, np.ones(3, dtype=np.float32)).diagonal.dtype == torch.float64


def test_turns_end_nearer_than_they_begin_and_where_the_solver_ends(monkeypatch):
    rng, model = np.random.default_rng(5), random_hmm(6, 5, 5, temperature=0.5)
    mu, start = rng.standard_normal(6), torch.as_tensor(rng.random(6))
    prompt, head, found = alternate(model, mu, start)
    assert (prompt.min() >= 0, prompt.max().item()) == (True, 1.0)
    assert found.error == certificate(model, mu, head, lemma_c_2(model, prompt)).error
    single = model.to(dtype=torch.float32)
    made = nearest_head(single, mu)[0].weights, nearest_prompt(single, mu, head)[0], alternate(single, mu, start, 1)[0]
    assert {part.dtype for part in made} == {torch.float32}
    reach = torch.stack([lemma_c_2(model, one) for one in torch.eye(6).double()], 1)  # u to d
    matrix, edge = ((head.weights @ model.emission).unsqueeze(1) * reach).numpy(), np.ones((6, 1))
    upper = np.block([[matrix, -edge], [-matrix, -edge]])
    program = dict(c=[0] * 6 + [1], A_ub=upper, b_ub=np.concatenate([mu, -mu]))
    least = linprog(**program).fun  # over u ≥ 0
    assert nearest_prompt(model, mu, head)[1].error == pytest.approx(least, abs=1e-8)
    assert least > linprog(**program, bounds=(None, None)).fun + 1e-3
    once = alternate(model, mu, start, rounds=1)
    assert torch.equal(once[0], start)
    assert once[2].error == nearest_head(model, mu, lemma_c_2(model, start))[1].error
    assert found.error < alternate(model, mu, start, rounds=2)[2].error < once[2].error
    nothing = torch.zeros(6).double()
    assert torch.equal(alternate(model, mu, nothing)[0], nothing), "behind it no head has a score"
    with pytest.raises(ValueError, match=r"^rounds must"):
        alternate(model, mu, start, rounds=0)
    with pytest.raises(ValueError, match=r"^slack must"):
        nearest_head(model, mu, slack=-1)
    unsolved = SimpleNamespace(x=None, message="too hard")
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: unsolved)
    with pytest.raises(RuntimeError, match=r"^a linear program was not solved: too hard$"):
        nearest_prompt(model, mu, head)
    assert torch.equal(alternate(model, mu, start)[0], start)


@pytest.mark.parametrize("seed", range(40))
def test_a_refuting_belief_refutes_and_there_is_none_for_a_multiple(seed):
    """Exactness: scores that are no multiple of μ mislabel a belief on a state or on an edge between two."""
    rng = np.random.default_rng(seed)
    mu = torch.as_tensor(rng.integers(-3, 4, 4).astype(float))
    if not mu.min() < 0 < mu.max():
        mu[0], mu[1] = 1, -1
    for scale in (0.25, 1, 8):
        assert refuting_belief(mu, scale * mu) is None
    model = random_hmm(4, 3, seed, temperature=1.0)
    head, found = nearest_head(model, mu)
    assert found.error > 1e-6
    nearest, near = found.diagonal * (head.weights @ model.emission), mu + torch.as_tensor(rng.integers(-1, 2, 4))
    for score in (nearest, near, -mu, torch.as_tensor(rng.standard_normal(4))):
        belief = refuting_belief(mu, score)
        if belief is None:
            assert np.linalg.matrix_rank(torch.stack([mu, score])) == 1
            continue
        again = refuting_belief(mu.float(), score)
        assert torch.equal(again, belief), "in float64, also of a task in float32"
        assert again.dtype == torch.float64
        exact = fractions(belief)
        assert min(exact) >= 0
        assert (fractions(mu) @ exact >= 0) != (fractions(score) @ exact >= 0)


@pytest.mark.parametrize("seed", range(12))
def test_where_columns_nearly_agree_no_head_that_is_at_hand_is_better(seed):
    """Chains of appendix E: the weights that are needed go up to 1e15, and one linear program alone ends far off."""
    model, mu = random_hmm(10, 10, seed), np.random.default_rng(seed).standard_normal(10)
    ones = torch.ones(10, dtype=torch.float64)
    found = nearest_head(model, mu, ones)[1]
    squares = np.linalg.lstsq(model.emission.T.numpy(), mu, rcond=None)[0]
    other = certificate(model, mu, LinearHead(squares), ones)
    assert found.error <= min(abs(mu).max(), other.error + 1e-15 * other.spread) + 1e-8
    assert seed != 7 or found.error < 1e-9, "one linear program leaves 5e-7"


def test_every_relabelling_of_single_tokens_is_said_exactly():
    """Eighths are exact in floating point, so that nothing is left to rounding. States 0 and 1 look alike."""
    emission = torch.tensor([[4, 4, 1], [4, 4, 7]], dtype=torch.float64) / 8
    known = torch.tensor([[a, b, 8 - a - b] for a in range(9) for b in range(9 - a)], dtype=torch.float64) / 8
    for signal in (None, torch.zeros(2, 3)):
        assert torch.equal(gated_readout(emission, known, signal), known @ emission.T)
    for words in product(range(2), repeat=3):
        signal, relabelled = signal_for(words, 2), torch.eye(2).double()[list(words)]
        assert signal.dtype == torch.float64
        assert torch.equal(gated_readout(emission, known, signal), known @ relabelled)
        assert gated_readout(emission.float(), known, signal).dtype == torch.float32
        signal[:, 2] = 0  # a state without a signal keeps its words
        kept = torch.cat([relabelled[:2], emission.T[2:]])
        assert torch.equal(gated_readout(emission, torch.eye(3), signal), kept)
    half = gated_readout(emission, torch.full((1, 3), 1 / 3), signal_for([0, 1, 1], 2) / 2)
    assert torch.allclose(half, gated_readout(emission, torch.full((1, 3), 1 / 3))), "opens no gate to an open mind"
