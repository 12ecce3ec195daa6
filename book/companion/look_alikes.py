"""Chains on which it can be decided what a tuned prompt does, and the trials on them.

Six states emit six tokens; states 0 and 1 have one emission distribution, 2 and 3 another. Most texts leave the state
open. Task A, μ = e₀ - e₂, is solved for every belief by one fake token, which excludes states 1 and 3 (Theorem 3.6).
Task C weighs the look-alikes with opposite signs, which no fake token and head can solve.

With shuffled labels a prompt has nothing to learn: the control. C turned out to be solvable on most of the texts that
occur (`companion.fake_tokens`). Task D asks which of two look-alikes the state was, on chains with three pairs of them
for which a fake token is proven to be wrong on many texts.

    python -m companion.look_alikes --seed 3000 --chains 20
    python -m companion.look_alikes --seed 5000 --chains 20 --task-d
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from pandas import DataFrame, Series
from torch import Tensor

from companion.fake_tokens import TOGETHER, fewest_errors, good_fake_token
from hmmlib.experiments.labels import Task
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import BEYOND
from hmmlib.experiments.sweeps import run_missing
from hmmlib.experiments.trials import Parts, build_network, trial_seeds
from hmmlib.inference.messages import posterior
from hmmlib.models.hmm import HMM
from hmmlib.theory.theorems import lemma_c_2
from hmmlib.training.pretraining import pretrain
from hmmlib.training.readouts import Readout, fit_readout, total_variation
from hmmlib.validation import MASK, as_generator

TASKS = {"look-alikes-a": (1.0, 0.0, -1.0, 0.0, 0.0, 0.0), "look-alikes-c": (1.0, -1.0, 0.5, -0.5, 0.0, 0.0)}
"""μ of each task, by the name that its trials have in their field `own`."""
SHUFFLED = "look-alikes-shuffled"
"""The name of trials whose labels are those of A, shuffled over all texts."""
TASK_D, ASKED = "look-alikes-d", [(1, -1, a, -a, b, -b) for a in (1.0, -1.0) for b in (1.0, -1.0)]
"""The name of trials of task D, and the μ from which it is chosen: which of two look-alikes the state is."""
LIMITED, NEAR_TIE, FEW = 0.87, 0.05, 0.1
"""On D no fake token may be right on a larger share of a hundred texts; |μᵀp| is below NEAR_TIE on FEW at most."""
LENGTHS = (1, 20)
"""Lengths of prompts."""
MIXTURE, JITTER, NOISE, SHARP = (0.6, 0.25, 0.15), 0.2, 0.03, 0.95
"""Shares of three permutations in the transition, the deviation of their logarithms from state to state, the share of
noise, and how much of an emission distribution is on one token."""
SOURCES, EXCLUDED, WANTED = (4, 5), (1, 3), (0, 2)
"""The states that Theorem 3.6's fake token stands for, those that never follow them, and those that do."""
PRETRAINING = dict(steps=2000, muon_rate=0.01, learning_rate=0.001)
"""In place of the preset's."""
SCREENED, APART = 1500, 0.1
"""Texts on which a chain is screened, and how far one kind of change must be from all of the other kind."""
RELABELLINGS = {"A": (0, 4, 2, 4, 4, 5), "C": (0, 2, 0, 2, 4, 5)}
"""For each task, the states whose emission distributions the states take, so that a head can solve it."""
ALSO = ["fit_distances", "label_follows", "label_follows_encoding", "text_kinds", "solvable", "probes"]
FAKE_TOKENS = ["fake_token_accuracy", "fake_token_bound", "best_head_accuracy"]
"""What a fake token can do for task D, measured with prompts of 20 vectors."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def look_alike_chain(seed: int, three: bool = False) -> HMM:
    """A chain of this kind, started in its stationary distribution; `three`: states 4 and 5 look alike, too."""
    generator = as_generator(seed)

    def follow(permutations: list[Tensor]) -> set[int]:
        return {permutation[state].item() for permutation in permutations for state in SOURCES}

    while True:
        permutations = [torch.randperm(6, generator=generator) for _ in MIXTURE]
        if set(WANTED) <= (after := follow(permutations)) and not after & set(EXCLUDED):
            break
    transition = torch.zeros(6, 6, dtype=torch.float64)
    for state in range(6):
        shares = torch.tensor(MIXTURE, dtype=torch.float64).log() + JITTER * torch.randn(3, generator=generator)
        for permutation, share in zip(permutations, shares.softmax(0), strict=True):
            transition[permutation[state], state] += (1 - NOISE) * share
        allowed = torch.ones(6, dtype=torch.float64)
        if state in SOURCES:
            allowed[list(EXCLUDED)] = 0
        transition[:, state] += NOISE * allowed / allowed.sum()
    tokens = torch.randperm(6, generator=generator)[:4]
    rest = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    columns = SHARP * torch.nn.functional.one_hot(tokens, 6).T.double() + (1 - SHARP) * rest / rest.sum(0)
    emission, even = columns[:, [0, 0, 1, 1, 2, 2 if three else 3]], torch.full((6,), 1 / 6, dtype=torch.float64)
    return HMM(transition, emission, HMM(transition, emission, even, columns=True).stationary(), columns=True)


def masked_texts(chain: HMM, n: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Texts whose first token is masked, (n, length), and the beliefs about the state there, (n, 6)."""
    tokens = chain.sample(n, length, seed).tokens
    tokens[:, 0] = MASK
    return tokens, posterior(chain, tokens, at=1)


@lru_cache
def limited_mu(seed: int) -> tuple[float, ...] | None:
    """The first μ of ASKED for which no fake token is right on more than LIMITED of a hundred texts, for two such."""
    chain = look_alike_chain(seed, three=True)
    _, beliefs = masked_texts(chain, SCREENED, 33, seed)
    for mu in ASKED:
        scores = beliefs @ torch.tensor(mu, dtype=torch.float64)
        labels = scores >= 0
        if (scores.abs() < NEAR_TIE).double().mean() > FEW:
            continue
        nu = good_fake_token(chain.emission, beliefs, labels)
        if ((beliefs @ nu >= 0) == labels).double().mean() > LIMITED:  # quicker than the bound
            continue
        hundreds = zip(beliefs[:200].split(TOGETHER), labels[:200].split(TOGETHER), strict=True)
        if all(fewest_errors(chain.emission, *part) >= (1 - LIMITED) * TOGETHER for part in hundreds):
            return mu
    return None


def is_decidable(chain: HMM, seed: int) -> bool:
    """Whether reweighting and relabelling are far apart on the exact model: no network is needed to say so.

    The theorem's fake token for task A must be APART from every relabelling, and both RELABELLINGS from every
    reweighting.
    """
    (_, beliefs), emission = masked_texts(chain, SCREENED, 33, seed), chain.emission
    sources = torch.zeros(6, dtype=torch.float64)
    sources[list(SOURCES)] = 1
    theorem = Readout(emission, lemma_c_2(chain, sources))(beliefs)
    near = fit_readout(beliefs, theorem, emission, "free", seed=seed)
    if total_variation(near(beliefs), theorem).mean() < APART:
        return False
    for columns in RELABELLINGS.values():
        changed = beliefs @ emission[:, columns].T
        near = fit_readout(beliefs, changed, emission, "emission", True, seed)
        if total_variation(near(beliefs), changed).mean() < APART:
            return False
    return True


def decidable_seeds(first: int) -> Iterator[int]:
    """Seeds from `first` up whose chains are decidable."""
    return (seed for seed in count(first) if is_decidable(look_alike_chain(seed), seed))


def draw_task(spec: TrialSpec, chain: HMM) -> Task:
    """The task that the spec's `own` names, on texts whose first token is masked."""
    sizes = (spec.train, spec.validation, spec.test)
    tokens, beliefs = masked_texts(chain, sum(sizes), spec.task_length, trial_seeds(spec.seed)["task"])
    own = "look-alikes-a" if spec.own == SHUFFLED else spec.own
    mu = torch.tensor(limited_mu(spec.seed) if own == TASK_D else TASKS[own], dtype=torch.float64)
    labels = beliefs @ mu >= 0
    if spec.own == SHUFFLED:
        labels = labels[torch.randperm(len(labels), generator=as_generator(spec.seed))]
    return Task(tokens, labels, mu, 0, sizes, beliefs)


def chain_of(spec: TrialSpec) -> HMM:
    """The chain of a trial."""
    return look_alike_chain(spec.seed, three=spec.own == TASK_D)


@lru_cache(maxsize=1)
def _pretrained(spec: TrialSpec) -> torch.nn.Module:
    network = build_network(spec)
    pretrain(network, chain_of(spec), spec.pretraining(), trial_seeds(spec.seed)["pretraining"])
    return network


def network(spec: TrialSpec, chain: HMM) -> torch.nn.Module:
    """The network of a chain, pretrained once for all its tasks and prompts."""
    own = TASK_D if spec.own == TASK_D else "look-alikes"
    return _pretrained(dataclasses.replace(spec, own=own, prompt_length=1))


PARTS = Parts(model=chain_of, network=network, task=draw_task)


def accuracies(results: DataFrame) -> dict[str, dict[str, Series]]:
    """Of stored results, for A and D, the test accuracies of heads and prompts, and the most that a fake token can do.

    Each is a column by chain. A task without results is left out.
    """

    def column(task: str, length: int, name: str) -> Series:
        return results[(results.own == f"look-alikes-{task}") & (results.prompt_length == length)][name]

    most, found = {"a": "built_prompt_accuracy", "d": "fake_token_bound"}, {}
    for task, name in {"a": "solvable by\na fake token", "d": "not solvable by\na fake token"}.items():
        if (results.own == f"look-alikes-{task}").any():
            found[name] = {
                "tuned head": column(task, 20, "head_accuracy"),
                "prompt of one vector": column(task, 1, "prompt_accuracy"),
                "prompt of 20 vectors": column(task, 20, "prompt_accuracy"),
                "a fake token and linear head, at most": column(task, 20, most[task]),
            }
    return found


def specs_of(seed: int) -> list[TrialSpec]:
    """The four trials of a chain, and the control."""
    how = dict(n_states=6, n_tokens=6, seed=seed, **PRETRAINING)
    pairs = [(own, length) for own in TASKS for length in LENGTHS]
    return [TrialSpec("quick", **how, own=own, prompt_length=length) for own, length in (*pairs, (SHUFFLED, 20))]


def specs_of_d(seed: int) -> list[TrialSpec]:
    """The two trials of a chain with task D."""
    how = dict(n_states=6, n_tokens=6, seed=seed, own=TASK_D, **PRETRAINING)
    return [TrialSpec("quick", **how, prompt_length=length) for length in LENGTHS]


@app.command()
def main(
    seed: Annotated[int, typer.Option(min=0, help="the first seed that is tried")] = 3000,
    chains: Annotated[int, typer.Option(min=1, help="how many chains that can be decided")] = 20,
    task_d: Annotated[bool, typer.Option("--task-d", help="task D, on chains of its own")] = False,
    store: Annotated[Path | None, typer.Option(help="result store; if left out that of mine/results/beyond")] = None,
) -> None:
    """Run the trials that are missing, chain by chain."""
    if task_d:
        for one in islice((one for one in count(seed) if limited_mu(one)), chains):
            for spec in specs_of_d(one):
                also = [] if spec.prompt_length == 1 else [*ALSO[:1], *FAKE_TOKENS]
                run_missing([spec], store or BEYOND, also=also, parts=PARTS)
        return
    for one in islice(decidable_seeds(seed), chains):
        *tasks, control = specs_of(one)
        run_missing(tasks, store or BEYOND, also=ALSO, parts=PARTS)
        run_missing([control], store or BEYOND, also=ALSO[:1], parts=PARTS)


if __name__ == "__main__":
    app()
