"""A good call of every public function that takes a reader's data: tests of bad input spoil one argument at a time."""

import math
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from companion.evidence import ledger, statements
from companion.evidence.exact import identities
from companion.evidence.zero_patterns import patterns
from companion.figures import (
    appendices,
    believing,
    beyond_figures,
    drawings,
    figure_3,
    figures,
    interactive,
    live,
    memory_figures,
    tables,
    trial_by_trial,
)
from peer_models import NEEDS, categorical, parameters

from hmmlib import backend
from hmmlib.experiments import cluster, labels, ladder, local, specs, store, summaries, trials
from hmmlib.experiments.specs import TrialSpec
from hmmlib.inference import messages, reference
from hmmlib.models import appendix_e, families, hmm, sentences
from hmmlib.theory import assumptions, certificates, heads, relabelling, separation, theorems
from hmmlib.training import bert, pretraining, probes, readers, readouts, tuning

PLAIN = families.non_degenerate_hmm(3, 4, 0, zeros=0.0)
ESSENTIAL, STATES = families.essential_hmm(4, 3, 2, 5)
MEMORY, CELL, SYNTAX, _ = families.recoverable_memory_hmm(2, 2, 2, 1, 2, 0, stationary=True)
ONE_CELL, _, ONE_SYNTAX, VALUES = families.recoverable_memory_hmm(1, 3, 3, 2, 2, 110, 0.8, stationary=True)
MU, MU_ESSENTIAL, MU_ONE = [1.0, -1.0, 0.5], np.zeros(4), np.zeros(3)
MU_ESSENTIAL[STATES] = 1.0, -1.0
MU_ONE[VALUES] = 1.0, -1.0
TOKENS = [[0, 1, 2], [2, 1, 0]]
RECOVERY = theorems.claim_d_3(MEMORY, CELL, SYNTAX)
PROBS = messages.masked_token_probs(PLAIN, TOKENS)
MEMORY_TOKENS = MEMORY.sample(2, 3, 0).tokens
MEMORY_PROBS = messages.masked_token_probs(MEMORY, MEMORY_TOKENS)
LINEAR = heads.LinearHead([1.0, -1.0, 0.5, 0.0])
ATTENTION = theorems.attention_head(MEMORY, [1.0, -1.0], RECOVERY)
TASK = labels.draw_task(PLAIN, 4, (6, 2, 4), 0, "before")
SHIFT = hmm.HMM(np.eye(3)[[1, 2, 0]], PLAIN.emission, [0.2, 0.3, 0.5], columns=True)
VOTES = certificates.votes_apart(SHIFT, MU)
CERTIFICATE = certificates.certificate(PLAIN, MU, VOTES)
TUNED = tuning.TunedAttention(torch.ones(4, 1), torch.ones(4, 1), torch.zeros(3, 1))
SPOKEN = readouts.Readout(PLAIN.emission, torch.ones(3).double())
TRIANGLE = families.non_degenerate_hmm(3, 3, 1, zeros=0.0)
TWO_STATES = families.non_degenerate_hmm(2, 3, 0, zeros=0.0)
PROBE = probes.linear_probe(torch.eye(3), torch.eye(3))
SAID = sentences.sentences()
PLAN = tuning.Tuning(1, 4, 0.1, 0.1)
PRETRAINING = pretraining.Pretraining(2, 2, 6, 0.2, 1e-3, 0.0, 1)
SPEC = TrialSpec("smoke")
LABELS = torch.tensor([True, False])
GENERATOR = torch.Generator().manual_seed(0)
NOWHERE = Path("/nonexistent")


@cache
def network() -> torch.nn.Module:
    """A tiny network; built when first asked for, as the import takes seconds. In a good call it stands for its result."""
    return bert.build(bert.Shape(1, 8, 2, 8), 4, 0)


@cache
def result() -> trials.TrialResult:
    """A stored result."""
    return store.load_results("smoke", store.STORE)[0]


@cache
def results() -> list[trials.TrialResult]:
    return store.load_results("smoke", store.STORE)


_COLUMNS = np.eye(2), np.eye(3)[:, :2], [0.5, 0.5]
_HEAD = dict(query=[1.0, 0.0], key=np.ones((2, 3)), value=np.ones((2, 3)), output=[1.0, -1.0])
_PANELS = dict(labels=[True, False, True], corners=np.eye(3), head=[1.0, -1.0, 0.0])
_SIZES = dict(n_states=3, n_tokens=4, seed=0)
_TUNING = dict(labels=LABELS, plan=PLAN, seed=0)
_PLACE = dict(model=MEMORY, cell=CELL, syntax=SYNTAX)
_TASK = dict(model=MEMORY, mu=[1.0, -1.0], cell=CELL)
_HEADS = dict(model=MEMORY, head=ATTENTION, words=[f"w{k}" for k in range(MEMORY.n_tokens)])
_TEXT = " ".join(f"w{k}" for k in MEMORY_TOKENS[0].tolist())

GOOD = {
    # The models
    hmm.HMM: dict(transition=_COLUMNS[0], emission=_COLUMNS[1], initial=_COLUMNS[2]),
    hmm.HMM.from_rows: dict(startprob=[0.5, 0.5], transmat=[[0.9, 0.1], [0.5, 0.5]], emissionprob=np.eye(3)[:2]),
    hmm.HMM.from_hmmlearn: dict(fitted=categorical),
    hmm.HMM.from_dynamax: dict(params=parameters),
    hmm.MemoryHMM: dict(
        transition=_COLUMNS[0], emission=np.full((2, 2, 2), 0.5), initial=[0.5, 0.5], memory=[0.5, 0.5]
    ),
    PLAIN.to: dict(device="cpu", dtype=torch.float32),
    MEMORY.to: dict(device="cpu", dtype=torch.float32),
    PLAIN.embed: dict(tokens=TOKENS),
    MEMORY.embed: dict(tokens=MEMORY_TOKENS),
    PLAIN.marginal: dict(i=1),
    PLAIN.sample: dict(n=2, length=3, seed=0, dtype=torch.int64),
    PLAIN.stream: dict(n=2, length=3, seed=0, block=2, dtype=torch.int64),
    MEMORY.lift: dict(embeddings=torch.ones(8, dtype=torch.float64)),
    MEMORY.unlift: dict(lifted=torch.ones(16, dtype=torch.float64)),
    # Random models
    appendix_e.random_hmm: dict(**_SIZES, temperature=0.01),
    appendix_e.random_memory_hmm: dict(n_memory=2, **_SIZES, n_cells=1, temperature=0.01, permutations=2),
    families.sparse_hmm: dict(**_SIZES, zeros=0.4),
    families.sparse_memory_hmm: dict(n_memory=2, **_SIZES, zeros=0.4, n_cells=1),
    families.regular_hmm: dict(**_SIZES, zeros=0.4),
    families.non_degenerate_hmm: dict(**_SIZES, zeros=0.4),
    families.nearly_dependent_hmm: dict(**_SIZES, gap=0.1),
    families.dependent_hmm: dict(**_SIZES),
    families.essential_hmm: dict(**_SIZES, n_essential=2, zeros=0.4),
    families.recoverable_memory_hmm: dict(n_cells=1, n_memory=2, n_syntax=2, n_recoverable=1, values=1, seed=0, zeros=0.5),
    families.essential_twins: dict(seed=0),
    families.recoverable_twins: dict(seed=0),
    families.parity_memory_hmm: dict(n=2, noise=0.1),
    families.shrinking_support: dict(seed=0),
    # Conditional probabilities
    messages.masked_token_probs: dict(model=PLAIN, tokens=TOKENS, prompt=[1.0, 0.5, 0.0]),
    messages.masked_token_probs_from_embeddings: dict(model=PLAIN, embeddings=np.ones((2, 3, 3))),
    messages.latent_given_others: dict(model=PLAIN, tokens=TOKENS, prompt=[1.0, 0.5, 0.0]),
    messages.possible_given_others: dict(model=PLAIN, tokens=TOKENS, prompt=[1.0, 0.5, 0.0]),
    messages.prompted: dict(model=PLAIN, prompt=[1.0, 0.5, 0.0], tokens=TOKENS),
    messages.posteriors: dict(model=PLAIN, tokens=TOKENS),
    messages.posterior: dict(model=PLAIN, tokens=TOKENS, at=1),
    messages.memory_posterior: dict(model=MEMORY, tokens=MEMORY_TOKENS, cell=0),
    messages.log_likelihood: dict(model=PLAIN, tokens=TOKENS),
    messages.lifted_size: dict(model=PLAIN),
    messages.as_evidence: dict(model=PLAIN, embeddings=np.ones((2, 3, 3))),
    reference.masked_token_probs: dict(model=PLAIN, tokens=TOKENS, prompt=[1.0, 0.5, 0.0]),
    reference.masked_token_probs_from_embeddings: dict(model=PLAIN, embeddings=np.ones((2, 3, 3))),
    reference.latent_given_others: dict(model=PLAIN, tokens=TOKENS, prompt=[1.0, 0.5, 0.0]),
    reference.left_and_right: dict(model=PLAIN, embeddings=np.ones((2, 3, 3))),
    reference.tau: dict(model=PLAIN, embeddings=np.ones((2, 3, 3))),
    reference.posteriors: dict(model=PLAIN, tokens=TOKENS),
    reference.memory_posterior: dict(model=MEMORY, tokens=MEMORY_TOKENS, cell=0),
    reference.log_likelihood: dict(model=PLAIN, tokens=TOKENS),
    messages.aggregated_messages: dict(model=PLAIN, evidence=torch.ones(2, 3, 3).double()),
    # Assumptions and theorems
    assumptions.assumption_3_1: dict(model=PLAIN),
    assumptions.assumption_3_2: dict(model=PLAIN),
    assumptions.assumption_3_5: dict(model=ESSENTIAL, mu=MU_ESSENTIAL, essential=STATES),
    assumptions.essential_states: dict(model=ESSENTIAL, mu=MU_ESSENTIAL),
    assumptions.assumption_4_2: _PLACE,
    assumptions.assumption_4_4: dict(model=MEMORY),
    assumptions.assumption_4_5: dict(model=ONE_CELL, mu=MU_ONE, syntax=ONE_SYNTAX),
    assumptions.assumption_d_5: dict(_TASK, syntax=SYNTAX),
    assumptions.recoverable_columns: dict(_PLACE, values=[0]),
    assumptions.weighted_values: dict(model=MEMORY, mu=[1.0, -1.0]),
    theorems.ground_truth: dict(_TASK, tokens=MEMORY_TOKENS),
    theorems.claim_b_1: dict(model=PLAIN, i=1),
    certificates.certificate: dict(model=PLAIN, mu=MU, head=VOTES, reach=torch.ones(3)),
    CERTIFICATE.holds: dict(posteriors=torch.eye(3), distance=0.1),
    certificates.nearest_head: dict(model=PLAIN, mu=MU, reach=torch.ones(3), slack=0.1),
    certificates.refuting_belief: dict(mu=torch.tensor([1.0, -1.0]), score=torch.tensor([1.0, -2.0])),
    relabelling.signal_for: dict(words=[0, 1, 1], n_tokens=4),
    relabelling.gated_readout: dict(emission=PLAIN.emission, beliefs=torch.eye(3), signal=torch.ones(4, 3)),
    certificates.nearest_prompt: dict(model=PLAIN, mu=MU, head=VOTES),
    certificates.alternate: dict(model=PLAIN, mu=MU, prompt=torch.ones(3), rounds=1),
    certificates.votes_apart: dict(model=PLAIN, mu=MU),
    certificates.prompt_for_votes: dict(model=SHIFT, mu=MU, head=VOTES),
    theorems.theorem_3_3: dict(model=PLAIN, mu=MU),
    theorems.lemma_c_2: dict(model=PLAIN, prompt=torch.ones(3, dtype=torch.float64)),
    theorems.theorem_3_6: dict(model=ESSENTIAL, mu=MU_ESSENTIAL, essential=STATES),
    theorems.claim_d_3: _PLACE,
    theorems.claim_d_10: dict(_TASK, syntax=SYNTAX),
    theorems.lemma_d_2: dict(model=MEMORY, recovery=RECOVERY),
    theorems.lemma_d_4: dict(model=MEMORY, recovery=RECOVERY, mu=[1.0, -1.0]),
    theorems.lemma_d_9: dict(model=MEMORY, recovery=RECOVERY),
    theorems.attention_head: dict(model=MEMORY, mu=[1.0, -1.0], recovery=RECOVERY),
    theorems.prompted_head: dict(model=MEMORY, mu=[1.0, -1.0], recovery=RECOVERY),
    theorems.theorem_4_3: dict(_TASK, syntax=SYNTAX),
    theorems.theorem_4_6: dict(_TASK, syntax=SYNTAX),
    theorems.prompt_d_6: _TASK,
    theorems.prompt_for_any_start: _TASK,
    theorems.concentrated: dict(_PLACE, tokens=MEMORY_TOKENS, prompt=np.ones(8)),
    RECOVERY.states: dict(model=MEMORY),
    # Heads
    heads.LinearHead: dict(weights=[1.0, -1.0]),
    LINEAR.__call__: dict(probs=PROBS[:, 0]),
    LINEAR.label: dict(probs=PROBS[:, 0]),
    LINEAR.bound: dict(probs=PROBS[:, 0]),
    LINEAR.sure: dict(probs=PROBS[:, 0]),
    heads.AttentionHead: dict(_HEAD, positions=[[0.0, 1.0]], n_cells=1),
    ATTENTION.__call__: dict(probs=MEMORY_PROBS, embeddings=MEMORY.embed(MEMORY_TOKENS)),
    ATTENTION.label: dict(probs=MEMORY_PROBS, embeddings=MEMORY.embed(MEMORY_TOKENS)),
    ATTENTION.sure: dict(probs=MEMORY_PROBS, embeddings=MEMORY.embed(MEMORY_TOKENS)),
    ATTENTION.values: dict(probs=MEMORY_PROBS, embeddings=MEMORY.embed(MEMORY_TOKENS)),
    ATTENTION.soft: dict(probs=MEMORY_PROBS, embeddings=MEMORY.embed(MEMORY_TOKENS), sharpness=1.0),
    ATTENTION.scores: dict(probs=MEMORY_PROBS),
    ATTENTION.attended: dict(probs=MEMORY_PROBS),
    separation.fit_or_refute: dict(probs=PROBS[:, 0], labels=[True, False]),
    # Example 4.1, and the ledger
    sentences.farm: dict(difficult_cats=True),
    SAID.encode: dict(text="the cow sang ."),
    SAID.decode: dict(tokens=[[0, 1]]),
    SAID.sample: dict(n=1, length=5, seed=0),
    SAID.state: dict(cell="subject", syntax="noun"),
    identities.confirm: dict(name="Lemma C.1", points=1, seed=0),
    patterns.decide: dict(name="Theorem 4.3", until_failure=True),
    statements.find: dict(name="Theorem 3.3"),
    ledger.run: dict(statement=statements.find("Theorem 3.3"), instances=1, seed=0),
    ledger.draw_seeds: dict(instances=3, seed=0),
    # Networks and tuning
    bert.Shape: dict(layers=1, width=8, heads=2, max_length=8, dropout=0.1, specials=1),
    bert.build: dict(shape=bert.Shape(1, 8, 2, 8), n_tokens=4, seed=0),
    bert.fingerprint: dict(network=network),
    bert.to_ids: dict(network=network, tokens=TOKENS),
    readers.masked_losses: dict(network=network, model=PLAIN, n=2, length=4, share=0.3, seed=0),
    pretraining.Pretraining: dict(
        steps=2, batch=2, length=6, masked=0.2, learning_rate=1e-3, muon_rate=0.0, warmup=1, clip=0.0, documents=2,
        document_length=6, masking="bert", precision="single",
    ),
    pretraining.pretrain: dict(network=network, model=PLAIN, plan=PRETRAINING, seed=0, every=1.0),
    tuning.Tuning: dict(epochs=1, batch=4, head_rate=0.1, prompt_rate=0.1, warmup=0.1),
    labels.draw_mu: dict(n=3, generator=GENERATOR, places="distinct"),
    labels.draw_task: dict(model=PLAIN, length=4, sizes=(6, 2, 4), seed=0, law="masked", places="distinct"),
    tuning.probs_at_mask: dict(network=network, tokens=TOKENS, prompt=torch.ones(2, 8)),
    tuning.all_probs_at_mask: dict(network=network, tokens=TOKENS, prompt=torch.ones(2, 8)),
    tuning.all_probs: dict(network=network, tokens=TOKENS),
    tuning.tune_head: dict(probs=PROBS[:, 0], **_TUNING),
    tuning.tune_attention: dict(probs=PROBS, **_TUNING, cells=1),
    tuning.initial_prompt: dict(network=network, length=2, seed=0, start="uniform"),
    tuning.tune_prompt: dict(network=network, tokens=torch.tensor(TOKENS), **_TUNING, prompt_length=2, start="uniform"),
    tuning.probs_behind_prompt: dict(model=PLAIN, posteriors=torch.eye(3).double(), prompt=torch.ones(3).double()),
    tuning.tune_exact_prompt: dict(model=PLAIN, posteriors=torch.eye(3).double()[:2], **_TUNING),
    tuning.accuracy: dict(head=LINEAR, probs=PROBS[:, 0], labels=LABELS),
    tuning.all_hidden_at_mask: dict(network=network, tokens=TOKENS, prompt=torch.ones(2, 8), cut=[1]),
    bert.hidden_at: dict(network=network, embeddings=torch.ones(2, 3, 8), position=1, cut=[1]),
    probes.linear_probe: dict(hidden=torch.eye(3), values=torch.eye(3)),
    probes.logistic_probe: dict(hidden=torch.eye(2), labels=LABELS),
    PROBE.__call__: dict(hidden=torch.eye(3)),
    probes.explained: dict(found=torch.eye(3), values=torch.eye(3)),
    readouts.free_readout: dict(beliefs=torch.eye(3), guesses=torch.eye(4)[:3], seed=0, width=4, steps=2),
    readouts.fit_readout: dict(beliefs=torch.eye(3), guesses=torch.eye(4)[:3], emission=PLAIN.emission, seed=0, starts=1),
    readouts.total_variation: dict(guesses=torch.eye(3), others=torch.eye(3)),
    SPOKEN.__call__: dict(beliefs=torch.eye(3)),
    TUNED.__call__: dict(probs=PROBS.float()),
    TUNED.label: dict(probs=PROBS.float()),
    TASK.split: dict(values=TASK.labels),
    ladder.ladder_plan: dict(preset="smoke"),
    ladder.climb: dict(n_states=2, seed=0, preset="smoke"),
    ladder.rung: dict(model=PLAIN, task=TASK, probs=torch.full((12, 4), 0.25).double(), plan=PLAN, seed=0, law="before"),
    # Trials, results and sweeps
    specs.TrialSpec: dict(preset="smoke", n_states=4, seed=1),
    specs.panel_points: dict(panel="left"),
    specs.panel_specs: dict(preset="smoke", panel="left", trials=1),
    specs.select: dict(results=[], n_states=4),
    specs.as_field: dict(name="steps", text="3"),
    live.changed: dict(preset="smoke", prompt_length=3, labelled=5, steps=7),
    trials.trial_seeds: dict(seed=0),
    trials.draw_model: dict(spec=SPEC),
    trials.build_network: dict(spec=SPEC),
    trials.draw_trial_task: dict(spec=SPEC, model=appendix_e.random_hmm(10, 10)),
    trials.measure: dict(result=result, names=[], device="cpu"),
    trials.environment: dict(device=torch.device("cpu"), precision="half"),
    backend.pick: dict(name="cpu"),
    store.result_path: dict(spec=SPEC, store=NOWHERE),
    store.is_stored: dict(spec=SPEC, store=NOWHERE),
    store.checkpoint_path: dict(spec=SPEC, store=NOWHERE),
    store.load_results: dict(preset="smoke"),
    local.deadline: dict(minutes=1.0),
    local.describe: dict(spec=SPEC),
    local.summary: dict(result=result),
    local.run_missing: dict(specs=[], store=NOWHERE, device="cpu", until=0.0),
    local.run_side_by_side: dict(specs=[], workers=1, store=NOWHERE, device="cpu", until=0.0),
    live.gather: dict(specs=[], until=0.0, device="cpu", store=Path(__file__).parent, say=str),
    cluster.reachable: dict(address="auto"),
    cluster.sweep: dict(specs=[], store=NOWHERE, until=0.0, cpus=1.0, gpus=0.0, device="cpu"),
    summaries.interval: dict(values=[0.5, 0.6]),
    summaries.mean: dict(values=[0.5, None]),
    summaries.apart: dict(one=summaries.interval([0.5, 0.6]), other=summaries.interval([0.1, 0.2])),
    summaries.along: dict(results=results, read=summaries.gain, at=summaries.size),
    summaries.learned: dict(result=result),
    summaries.reference: dict(panel="left"),
    # Figures
    figures.distributions: dict(rows={"a": [0.5, 0.5]}, outcomes=["x", "y"]),
    figures.stacked: dict(panels={"a": {"b": [0.5, 0.5]}}, outcomes=["x", "y"], x_label="x"),
    figures.matrices: dict(named={"A": np.eye(2)}, x_label="x", y_labels=["y"]),
    figures.losses: dict(steps=[1, 2], values=[0.5, 0.4], levels={"least": 0.3}),
    figures.scatter: dict(x=[1, 2], y=[1, 2], x_label="x", y_label="y"),
    figures.curve: dict(x=[1, 2], series={"a": [1, 2]}, x_label="x", y_label="y", log="x"),
    figures.simplex: dict(points=np.eye(3), **_PANELS),
    figures.simplex_with_prompt: dict(panels={"a": np.eye(3)}, **_PANELS, names=["a", "b", "c"], essential=[0, 1]),
    tables.table_of: dict(results=results, groups={"all": bool}, rows={"head": summaries.LEFT["head tuning"]}),
    beyond_figures.lines: dict(results=results, series=summaries.LEFT, at=summaries.size, x_label="x", y_label="y"),
    beyond_figures.dots: dict(rows={"a": {"b": summaries.interval([0.5, 0.6]), "c": None}}, x_label="x"),
    beyond_figures.wrong_beliefs: dict(mu=MU, scores={"a": [1.0, -0.5, -0.5]}, names="xyz"),
    beyond_figures.plane: dict(series={"all": {}}, sizes=[4, 8]),
    trial_by_trial.trial_by_trial: dict(results=results),
    tables.Table: dict(head=["a"], rows=[["b"]]),
    tables.outcomes: dict(predictions=[("It is so.", "90%", True)]),
    beyond_figures.triangles: dict(
        panels={"a": (np.eye(3), "xyz")}, labels=[True, False, True], columns={"a": (np.eye(3), "xyz")}
    ),
    appendices.columns_of_w: dict(example=SAID, recoverable=[(0, 1)], unseen=[(1, 1)]),
    appendices.grids: dict(panels={"a": (np.eye(2), "xy")}, rows=["p", "q"], per_row=2),
    appendices.rulings: dict(entries=[ledger.run(statements.find("Claim B.1"), 1, 0)]),
    figures.attention: dict(words=["a", "b"], scores=[0.1, 1.0], attended=[False, True]),
    figures.beliefs: dict(words=["a"], cells={"c": (["x", "y"], np.full((2, 2), 0.5))}),
    memory_figures.mixtures: dict(panels={"a": (np.eye(3), dict(zip("xyz", np.eye(3), strict=True)))}, corners="xyz"),
    memory_figures.strips: dict(
        rows={"a": ([0.1, 0.9], [False, True])}, x_label="x", crosses={"a": [0.2]}, cuts={"a": 0.5}
    ),
    figures.dependencies: dict(places={"a": (0, 0), "b": (1, 0)}, arrows=[("a", "b")], marked=["a"]),
    figure_3.panel: dict(results=results, name="left"),
    figure_3.gains: dict(results=results),
    figure_3.ladder: dict(results=results),
    figure_3.against_learned: dict(results=results, series=summaries.LEFT),
    drawings.hidden_chain: dict(tokens=["a", "b"], masked=[1], highlight=[0]),
    drawings.prompt_chain: dict(n_inputs=2),
    drawings.memory_cell: dict(n_tokens=2),
    drawings.memory_cells: dict(lookups=[1, 2], n_cells=2),
    interactive.conditioning_by_a_prompt: dict(
        model=TRIANGLE, mu=MU, prompt=[1, 1, 0.5], head=heads.LinearHead([1.0, 0, 0]), names="abc",
        shown=[[0, 1], [1, 0]], length=2, name="prompt",
    ),
    interactive.nearly_dependent_columns: dict(
        model=TRIANGLE, mu=MU, names="abc", merge=(0, 1), noise=1e-3, length=2, seed=0, name="columns"
    ),
    interactive.attention_over_words: dict(
        **_HEADS, mu=[1.0, -1.0], text=_TEXT, values=["yes", "no"], syntax=SYNTAX, question="Which?", cell=CELL
    ),
    interactive.fake_token_or_other_words: dict(
        emission=TRIANGLE.emission, beliefs=np.eye(3), labels=[True, False, True], readout=TRIANGLE.emission,
        weights=[1.0, 0.5, 0.0], names=["a", "b", "c"], name="words",
    ),
    interactive.passing_messages: dict(
        model=TWO_STATES, words=["a", "b", "c"], states=["x", "y"], text="a b c", masked=[2], name="passes"
    ),
    interactive.softmax_and_its_limit: dict(**_HEADS, text=_TEXT, name="softmax"),
    believing.belief_word_by_word: dict(
        model=MEMORY, words=_HEADS["words"], cells=[f"c{j}" for j in range(MEMORY.n_cells)],
        values=[["yes", "no"]] * MEMORY.n_cells, syntax=[f"s{s}" for s in range(MEMORY.n_syntax)], text=_TEXT, read=1,
        examples=[_TEXT], name="believing",
    ),
}  # fmt: skip


def call(of, **changed):
    """The good call, with some arguments changed."""
    made = (network, result, results, categorical, parameters)
    _ = pytest.importorskip(NEEDS[of]) if of in NEEDS else None
    arguments = {
        name: value() if any(value is one for one in made) else value for name, value in {**GOOD[of], **changed}.items()
    }
    answer = of(**arguments)
    return list(answer) if of == PLAIN.stream else answer


class Case(NamedTuple):
    """A good call with one argument spoiled; what is accepted and what was found, as the message says it."""

    of: object
    argument: str
    value: object
    accepted: str
    found: str
    error: type[Exception] = ValueError
    said: str = ""  # where the message calls the argument by another name

    def __str__(self) -> str:
        return f"{self.of.__qualname__}({self.argument}={' '.join(repr(self.value).split())[:24]})"

    def check(self) -> None:
        """The call ends in the error, of that very type, and its message says all that it must."""
        with pytest.raises(self.error) as caught:
            call(self.of, **{self.argument: self.value})
        assert type(caught.value) is self.error
        name, *wanted = (self.said or self.argument, self.accepted, self.found)
        assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(caught.value)), f"{name}: {caught.value}"
        assert all(word in str(caught.value) for word in wanted), f"{wanted}: {caught.value}"


def home(of) -> str:
    """The module that a function is in."""
    return of.__module__.removeprefix("hmmlib.")


NAN, INF = math.nan, math.inf
