"""The law of a variable, that is, its distribution, given the evidence.

It is computed by operations of torch, which give gradients and run on any device. On a CPU, if no gradient is asked
for, compiled loops do the same without storing intermediate results.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from hmmlib import device
from hmmlib.inference.evidence import Evidence
from hmmlib.inference.forward_backward import MAX_EXPONENT, aggregated_messages, rescaled
from hmmlib.inference.variables import Variable
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.tensors import carries_tangent

BLOCK = 2**22
"""How many entries of evidence torch works on at a time. This bounds the memory in use."""
SMALL = 2**16
"""The number of entries of evidence below which a second thread costs more than it saves."""
FEW_STATES = 8
"""With so few states the loops compute in float64 also for float32, because float32 would need more scaling."""
LOW = {torch.float64: 2.0**-50, torch.float32: 1.0}
"""The loops scale a message whose sum is not above this. In float32 that is nearly every message.

In float64 the product of two messages is then smaller by 2^-100 at most, so numbers of 1e-100 stay far from underflow.
"""


def compiled_loops() -> ModuleType | None:
    """Return the module of compiled loops, or None if there is no numba."""
    return device.loops("hmmlib.inference.compiled")


@device.without_autocast()
def law_given_evidence(
    model: HMM | MemoryHMM,
    evidence: Evidence,
    variable: Variable,
    *,
    at: slice,
    with_own_evidence: bool,
    with_likelihood: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the law of a variable at positions of the chain H_0, …, H_T, given the evidence v.

    Args:
        model: the model.
        evidence: what is known of each position.
        variable: whose law it is.
        at: the positions, as a slice of 0, …, T.
        with_own_evidence: whether the evidence of a position itself counts for its law.
        with_likelihood: whether P[v] is asked for too. Then `with_own_evidence` must be true.

    Returns:
        The law, (n, positions, D) or (n, positions, X), which is zero where v has probability zero. Then P[v] as a
        mantissa and an exponent of two, (n, positions, 2), which has no meaning unless it was asked for.
    """
    if needs_torch(model, evidence):
        return _law_in_torch(model, evidence, variable, at, with_own_evidence)
    return _law_in_loops(model, evidence, variable, at, with_own_evidence, with_likelihood)


def needs_torch(model: HMM | MemoryHMM, evidence: Evidence) -> bool:
    """Tell whether a derivative, a GPU, the lack of numba, or the lack of any text rules out the compiled loops."""
    for part in (evidence.rows, *vars(model).values()):
        if not isinstance(part, Tensor):
            continue
        if carries_tangent(part) or (torch.is_grad_enabled() and part.requires_grad):
            return True
    return model.device.type != "cpu" or compiled_loops() is None or not evidence.index.numel()


def _law_in_torch(
    model: HMM | MemoryHMM, evidence: Evidence, variable: Variable, at: slice, with_own_evidence: bool
) -> tuple[Tensor, Tensor]:
    laws = []
    likelihoods = []
    entries_of_a_text = evidence.index.shape[1] * evidence.rows.shape[1]
    for index in evidence.index.split(max(1, BLOCK // entries_of_a_text)):
        tau, exponent = aggregated_messages(model, evidence.rows[index], at, with_own_evidence)
        by_memory = tau.unflatten(-1, (-1, model.n_states))
        sums = torch.einsum("gk,npks->npgs", variable.groups, by_memory).flatten(2)
        weights = sums[..., variable.entries]
        total = weights.sum(-1, keepdim=True)
        possible = total > 0
        # Where nothing is possible, 0 is divided by 1, because 0 / 0 would make the gradient of all else NaN.
        law = torch.where(possible, weights, 0) / torch.where(possible, total, 1)
        if variable.columns is not None:
            law = law @ variable.columns.T  # (D.1)
        laws.append(law)
        likelihoods.append(torch.cat([total, exponent.to(total.dtype)], -1))
    # At T = 1 the law of a token depends on no evidence. This sum gives it a gradient all the same, of zeros.
    return torch.cat(laws) + 0 * evidence.rows[:1, :1].sum(), torch.cat(likelihoods)


def _law_in_loops(
    model: HMM | MemoryHMM,
    evidence: Evidence,
    variable: Variable,
    at: slice,
    with_own_evidence: bool,
    with_likelihood: bool,
) -> tuple[Tensor, Tensor]:
    loops = compiled_loops()
    dtype = torch.float64 if model.n_states <= FEW_STATES else model.dtype
    n, length = evidence.index.shape
    first, stop, _ = at.indices(length + 1)

    rows, scale = rescaled(evidence.rows.unsqueeze(1), torch.zeros((), dtype=torch.int64, device="cpu"))
    if isinstance(model, MemoryHMM):
        prior = model.memory.flatten()
        entries = variable.entries
    else:
        prior = torch.ones(1, dtype=model.dtype, device="cpu")
        entries = variable.entries[:0]  # The loops read an empty list of entries as all states.
    columns = variable.columns
    if columns is None:
        columns = device.uninitialized(0, 0, dtype=model.dtype)
    size_of_law = len(columns) or len(variable.entries)
    laws = device.uninitialized(n, stop - first, size_of_law, dtype=model.dtype)
    likelihoods = device.uninitialized(n, stop - first, 2 if with_likelihood else 0, dtype=model.dtype)

    prior_mantissa, prior_exponent = torch.frexp(prior)
    chain = loops.Chain(
        as_array(model.transition.T, dtype),
        as_array(model.transition, dtype),
        as_array(model.initial, dtype),
        as_array(prior_mantissa, dtype),
        as_array(prior_exponent, prior_exponent.dtype),
    )
    query = loops.Query(
        as_array(variable.groups, dtype),
        as_array(entries, entries.dtype),
        as_array(columns.T, dtype),
        first,
        with_own_evidence,
    )
    scaling = loops.Scaling(_powers(dtype), MAX_EXPONENT[dtype], LOW[dtype])
    row_array = as_array(rows.squeeze(1), dtype)
    index_array = as_array(evidence.index, torch.int64)
    law_array = laws.numpy()
    likelihood_array = likelihoods.numpy()

    def work(share: slice) -> None:
        loops.run_chain(chain, row_array, index_array[share], query, scaling, law_array[share], likelihood_array[share])

    threads = torch.get_num_threads() if n * length * rows.shape[-1] > SMALL else 1
    with device.flushing(dtype):
        device.side_by_side(work, n, threads)
    if with_likelihood:
        likelihoods[..., 1] += scale.flatten()[evidence.index].sum(1, keepdim=True)
    return laws, likelihoods


@cache
def _powers(dtype: torch.dtype) -> np.ndarray:
    """Return the powers 2^-2b, …, 2^b, where b is MAX_EXPONENT. The loops look powers up in this table."""
    bound = MAX_EXPONENT[dtype]
    exponents = torch.arange(-2 * bound, bound + 1, dtype=dtype, device="cpu")
    return torch.exp2(exponents).numpy()


def as_array(tensor: Tensor, dtype: torch.dtype) -> np.ndarray:
    """Return a tensor as an array that is stored row by row, so that the loops are compiled once for each dtype."""
    return tensor.detach().to(dtype).contiguous().numpy()
