"""G of a model with a memory: ours on its own structure, the peers on the flattened chain that is the same model."""

from __future__ import annotations

from contest import GIB, Contestant, contest
from growth import exponent
from posteriors import TOLERANCE, dynamax, save

from hmmlib.models.appendix_e import random_memory_hmm

TOKENS = 10
CELLS, VALUES, STATES = 3, 5, 12
FEW = {"dynamax": 20, "hmmlearn, scaling": 5}
"""Sequences that a peer is given where it cannot do all in a call: its cost for each token is what counts."""
SIZES = (
    *((cells, VALUES, STATES) for cells in (1, 2, 3, 4)),
    *((CELLS, values, STATES) for values in (2, 3, 8)),
    *((CELLS, VALUES, states) for states in (3, 6, 24, 48)),
)
"""Cells, values and states, one of them varied at a time, for our cost against |M|^N·|H|."""
QUICK_SIZES = ((1, VALUES, STATES), (CELLS, VALUES, STATES), (CELLS, VALUES, 3))


def measure(rows, quick: bool) -> None:
    n, length = (50, 17) if quick else (1000, 129)
    cells, values, states = (2, 3, 4) if quick else (CELLS, VALUES, STATES)
    settings = dict(rounds=3, budget=1.0) if quick else dict(rounds=3, budget=2.0, box=20.0, limit=10 * GIB)
    model = random_memory_hmm(values, states, TOKENS, seed=1, n_cells=cells)
    tokens = model.sample(n, length, seed=1).tokens
    size = dict(cells=cells, values=values, states=states, n=n, length=length, tokens=TOKENS)
    own = save(f"memory-{cells}-{values}-{states}", model, tokens)
    flat = save(f"flattened-{cells}-{values}-{states}", model.flatten(), tokens)
    for threads in (1,) if quick else (1, 2):
        for dtype in ("float64", "float32"):
            ours = Contestant("hmmlib", "ours:masked", dict(dtype=dtype), own, peer=False, work=n * length)
            few = min(n, FEW["dynamax"])
            every = [dynamax("dynamax", "masked", dtype, options=dict(n=few), inputs=flat, work=few * length)]
            if dtype == "float64" and threads == 2:  # one try is enough
                every.append(dynamax("dynamax, all", "masked", dtype, inputs=flat, work=n * length))
            if dtype == "float64":
                few = min(n, FEW["hmmlearn, scaling"])
                call = ("with_hmmlearn:masked", dict(n=few), flat)
                every.append(Contestant("hmmlearn, scaling", *call, work=few * length))
            rows(
                lambda: contest([ours, *every], threads, tolerance=TOLERANCE[dtype], **settings),
                what="against flattened", threads=threads, dtype=dtype, **size,
            )  # fmt: skip
    rows(lambda: by_size(n, length, QUICK_SIZES if quick else SIZES, settings), what="by size", n=n, length=length)


def by_size(n: int, length: int, sizes: tuple, settings: dict) -> dict:
    """Ours on one thread at models of other sizes, all in one contest; few sequences where a model is large.

    And the exponents of seconds a token in |M|^N and in |H|, the other being as in the contest with the peers.
    """
    contestants = []
    for cells, values, states in sizes:
        width = values**cells * states
        few = max(8, min(n, 150 * n // width))
        model = random_memory_hmm(values, states, TOKENS, seed=1, n_cells=cells)
        name = f"{cells}-{values}-{states}"
        inputs = save(f"size-{name}", model, model.sample(few, length, seed=1).tokens)
        contestants.append(
            Contestant(name, "ours:masked", dict(dtype="float64"), inputs, peer=False, work=few * length)
        )
    result = contest(contestants, 1, **settings)
    done = {one["name"]: one["median"] / one["work"] for one in result["contestants"] if "failed" not in one}
    sizes_done = [(*map(int, name.split("-")), cost) for name, cost in done.items()]
    at_states = [(values**cells, cost) for cells, values, states, cost in sizes_done if states == STATES]
    at_memory = [(states, cost) for cells, values, states, cost in sizes_done if (cells, values) == (CELLS, VALUES)]
    slopes = {"values": at_states, "states": at_memory}
    return result | {"exponents": {name: exponent(*zip(*points, strict=True)) for name, points in slopes.items()}}
