"""The registry of the paper's numbered statements: for each a check that could fail, and a negative control that must.

A check draws one random instance from its seed and returns a residual: how far the statement is from holding there,
against a witness that enumerates all latent paths. A control breaks one hypothesis and returns a gap: how far the
conclusion is from holding then. `run` repeats both and rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import torch

from hmmlib import generate
from hmmlib.assumptions import assumption_3_1, assumption_3_2
from hmmlib.exact import Enumeration, normalised, over_inputs
from hmmlib.heads import Impossible, fit_or_refute
from hmmlib.hmm import HMM, MASK, at_least
from hmmlib.messages import masked_token_probs
from hmmlib.theorems import claim_b_1, theorem_3_3

HOLDS, FAILS = "holds", "fails"


@dataclass(frozen=True)
class Statement:
    """One numbered statement of the paper.

    `claim` is it in our words; `page` and `label` say where the book derives it; residuals up to `tolerance` pass;
    `broken` names the hypothesis that the control drops; `verdict` is the ruling on record; the control must break the
    conclusion in at least a share `least_share` of its instances.
    """

    name: str
    claim: str
    page: str
    label: str
    check: Callable[[int], float]
    control: Callable[[int], float]
    broken: str
    tolerance: float = 1e-10
    verdict: str = HOLDS
    least_share: float = 1.0


@dataclass(frozen=True)
class Entry:
    """A row of the ledger: what running a statement gave. `control_fails` of `control_instances` broke the conclusion."""

    name: str
    claim: str
    page: str
    label: str
    instances: int
    residual: float
    tolerance: float
    broken: str
    control_instances: int
    control_fails: int
    control_gap: float
    verdict: str
    on_record: str
    least_share: float

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the one on record and the control failed as often as it must."""
        return self.verdict == self.on_record and self.control_fails >= self.least_share * self.control_instances


def enumerated(model: HMM, x: Iterable[int], shift: int = 0) -> Enumeration:
    """All latent paths for the tokens x, preceded by `shift` unobserved positions."""
    tokens = torch.tensor([[MASK] * shift + list(x)])
    return Enumeration(model.transition, model.emission, model.initial, model.embed(tokens)[0])


# Proposition 3.4


def _decomposition_residual(joint: np.ndarray) -> float:
    """How far P[U | V=v] is from P[U|Z] P[Z | V=v], and P[Z | V=v] from its recovery, in a joint table Pr(u, v, z)."""
    p_uz, p_z = joint.sum(1), joint.sum((0, 1))
    u_given_z = p_uz[:, p_z > 0] / p_z[p_z > 0]
    condition = np.linalg.cond(u_given_z) if np.linalg.matrix_rank(u_given_z) == u_given_z.shape[1] else np.inf
    residual = 0.0
    for table in joint.transpose(1, 0, 2):  # Pr(u, z) with V = v
        if table.sum() == 0:
            continue
        u_given_v, z_given_v = normalised(table.sum(1)), normalised(table.sum(0))[p_z > 0]
        residual = max(residual, abs(u_given_v - u_given_z @ z_given_v).max())
        if np.isfinite(condition):
            recovered = np.linalg.pinv(u_given_z) @ u_given_v
            residual = max(residual, abs(recovered - z_given_v).max() / condition)
    return residual


def proposition_3_4(seed: int) -> float:
    """P[U | V=v] = P[U|Z] P[Z | V=v] for a joint table with U ⊥ V | Z, and P[Z | V=v] back from it by a left inverse."""
    rng, draw = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    n_u, n_v, n_z = rng.integers(1, 6, 3).tolist()
    prior = generate.sparse_columns((n_z,), 0.3, draw)
    u_given_z, v_given_z = (generate.sparse_columns((n, n_z), 0.4, draw) for n in (n_u, n_v))
    return _decomposition_residual(torch.einsum("z,uz,vz->uvz", prior, u_given_z, v_given_z).numpy())


def proposition_3_4_control(seed: int) -> float:
    """The same on a table in which U depends on V beyond Z: all entries of Pr(u, v, z) are drawn freely."""
    draw = torch.Generator().manual_seed(seed)
    return _decomposition_residual(generate.softmax_of_uniform((18,), 0.5, draw).reshape(3, 3, 2).numpy())


# Claim B.1


def _regular(rng: np.random.Generator, seed: int) -> HMM:
    return generate.regular_hmm(int(rng.integers(1, 4)), int(rng.integers(1, 4)), seed, zeros=float(rng.random()) * 0.7)


def claim_b_1_check(seed: int) -> float:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x] with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x) > 0."""
    rng = np.random.default_rng(seed)
    model, i, length = _regular(rng, seed), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    diagonal = claim_b_1(model, i).numpy()

    def residual(x: tuple[int, ...]) -> float:
        here, shifted = enumerated(model, x), enumerated(model, x, shift=i)
        if here.likelihood() == 0:
            return 0.0
        if shifted.likelihood() == 0:
            return np.inf  # then r_x would not be positive and finite
        ratio = here.likelihood() / shifted.likelihood()
        return abs(normalised(shifted.state(i)) - ratio * diagonal * normalised(here.state(0))).max()

    return over_inputs(model.n_tokens, length, residual).max()


def claim_b_1_control(seed: int) -> float:
    """P[H_0] misses a state that H_1 can be in: P[H_0 | x] is zero there, D or no D, and P[H_1 | X_{2:T+1} = x] is not."""
    rng = np.random.default_rng(seed)
    model = generate.regular_hmm(3, int(rng.integers(1, 4)), seed)
    missing = int(rng.integers(3))
    start = model.initial.clone()
    start[missing] = 0
    model = HMM(model.transition, model.emission, start / start.sum())

    def gap(x: tuple[int, ...]) -> float:
        here, shifted = enumerated(model, x), enumerated(model, x, shift=1)
        return normalised(shifted.state(1))[missing] if here.likelihood() > 0 else 0.0

    return over_inputs(model.n_tokens, 2, gap).max()


# Theorem 3.3


def labelled_inputs(model: HMM, mu: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All inputs of a length in supp(P[X]), (n, T), and μᵀP[H_0 | X_{1:T} = x] for each, (n,), by enumeration."""
    inputs = torch.as_tensor(over_inputs(model.n_tokens, length, np.array))
    exact = [enumerated(model, x.tolist()) for x in inputs]
    possible = torch.tensor([witness.likelihood() > 0 for witness in exact])
    posteriors = np.stack([normalised(witness.state(0)) for witness in exact])
    return inputs[possible], torch.as_tensor(posteriors)[possible] @ mu


def shifted_g_1(model: HMM, inputs: torch.Tensor) -> torch.Tensor:
    """G_1 of x' = (MASK, x), (n, X): what Theorem 3.3's head reads."""
    return masked_token_probs(model, torch.cat([torch.full_like(inputs[:, :1], MASK), inputs], 1))[:, 0]


def theorem_3_3_check(seed: int) -> float:
    """bᵀG_1(x') = r_x μᵀP[H_0 | x] with r_x = Pr(X_{1:T} = x) / Pr(X_{2:T+1} = x) > 0, for every possible x of a length."""
    rng = np.random.default_rng(seed)
    model, length = _non_degenerate(rng, seed), int(rng.integers(1, 4))
    mu = torch.as_tensor(rng.normal(size=model.n_states) * (rng.random(model.n_states) < 0.7))
    mu[rng.integers(model.n_states)] = 1.0
    head = theorem_3_3(model, mu)
    inputs, target = labelled_inputs(model, mu, length)
    likelihoods = [[enumerated(model, x.tolist(), shift).likelihood() for shift in (0, 1)] for x in inputs]
    ratio = torch.tensor([here / shifted for here, shifted in likelihoods], dtype=torch.float64)
    if not ((ratio > 0) & torch.isfinite(ratio)).all():
        return np.inf
    error = (head(shifted_g_1(model, inputs)) - ratio * target).abs().max()
    return (error / head.weights.norm().clamp(min=1)).item()  # a head's scores are as exact as its weights are small


def _non_degenerate(rng: np.random.Generator, seed: int) -> HMM:
    """A model that satisfies Assumptions 3.1 and 3.2: sparse, near degenerate, or of appendix E."""
    n_states = int(rng.integers(1, 5))
    n_tokens = int(rng.integers(max(2, n_states), 5))
    kind = rng.integers(3)
    if kind == 0 and n_states > 1:
        return generate.nearly_dependent_hmm(n_states, n_tokens, 10.0 ** -rng.integers(1, 6), seed)
    if kind == 1:
        draw = torch.Generator().manual_seed(seed)
        while True:
            model = generate.random_hmm(n_states, n_tokens, draw)
            if assumption_3_1(model) and assumption_3_2(model):
                return model
    return generate.non_degenerate_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.6)


def balanced(target: torch.Tensor) -> torch.Tensor:
    """Labels that split the inputs near the middle, in the widest gap there, so that rounding decides no label."""
    ordered = target.sort().values
    low, high = len(ordered) // 4, max(len(ordered) // 4 + 2, 3 * len(ordered) // 4)
    gaps = ordered[low:high].diff()
    place = low + int(gaps.argmax())
    return target > (ordered[place] + ordered[place + 1]) / 2


def theorem_3_3_control(seed: int) -> float:
    """Dependent columns, and a task that splits the inputs near the middle: 1 where a linear program refutes every head.

    Half of the models have as many tokens as states, half fewer.
    """
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(3, 5))
    model = generate.dependent_hmm(n_states, n_states - seed % 2, seed)
    inputs, target = labelled_inputs(model, torch.as_tensor(rng.normal(size=model.n_states)), 3)
    # Posteriors sum to 1, so that a label by a threshold is a task of the form (3.1) too.
    found = fit_or_refute(shifted_g_1(model, inputs), balanced(target))
    return float(isinstance(found, Impossible) and found.residual < 1e-9)


STATEMENTS = (
    Statement(
        name="Proposition 3.4",
        claim="If U ⊥ V | Z, then P[U | V = v] = P[U | Z] P[Z | V = v], and a left inverse of P[U | Z] undoes it.",
        page="notebooks/3-hmm",
        label="paper-prop-3-4",
        check=proposition_3_4,
        control=proposition_3_4_control,
        broken="U ⊥ V | Z",
    ),
    Statement(
        name="Claim B.1",
        claim="The posterior of Hᵢ given the text after it is that of H₀ given the same text, rescaled by one diagonal D.",
        page="notebooks/appendix-b",
        label="paper-claim-B-1",
        check=claim_b_1_check,
        control=claim_b_1_control,
        broken="P[H₀] has full support (3.2)",
    ),
    Statement(
        name="Theorem 3.3",
        claim="With independent columns of W, one linear head on G₁ of (∅, x) gives every possible x its label.",
        page="notebooks/3-hmm",
        label="paper-thm-3-3",
        check=theorem_3_3_check,
        control=theorem_3_3_control,
        broken="independent columns of W (3.1)",
        least_share=0.3,  # with dependent columns some tasks still have a head
    ),
)


def run(statement: Statement, instances: int, seed: int) -> Entry:
    """Check a statement on `instances` random models and its control on a tenth as many (at least 5)."""
    instances = at_least("instances", instances, 1)
    controls = max(5, instances // 10)
    seeds = np.random.SeedSequence([seed, crc32(statement.name.encode())]).generate_state(instances + controls)
    residual = np.max([statement.check(int(s)) for s in seeds[:instances]])  # NaN wins, and fails
    gaps = [statement.control(int(s)) for s in seeds[instances:]]
    return Entry(
        name=statement.name,
        claim=statement.claim,
        page=statement.page,
        label=statement.label,
        instances=instances,
        residual=float(residual),
        tolerance=statement.tolerance,
        broken=statement.broken,
        control_instances=controls,
        control_fails=int(sum(gap > 1e3 * statement.tolerance for gap in gaps)),
        control_gap=float(np.max(gaps)),
        verdict=HOLDS if residual <= statement.tolerance else FAILS,
        on_record=statement.verdict,
        least_share=statement.least_share,
    )


def write_ledger(path: Path, entries: list[Entry], instances: int, seed: int) -> None:
    """The machine-readable ledger: one JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"instances": instances, "seed": seed, "entries": [asdict(entry) for entry in entries]}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
