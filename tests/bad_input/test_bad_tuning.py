"""Bad arguments of networks, tuning, trials, specs, results and figures, one at a time in a good call."""

import inspect

import numpy as np
import pytest
import torch
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
from good_calls import GOOD, INF, MEMORY, NAN, NOWHERE, PLAIN, PROBE, SPOKEN, TASK, TUNED, Case, home
from record import tried

from hmmlib import backend
from hmmlib.experiments import cluster, labels, ladder, local, specs, summaries, trials
from hmmlib.experiments.presets import PRESETS
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import Impossible
from hmmlib.training import bert, pretraining, probes, readers, readouts, tuning

HERE = ("training.", "experiments.", "backend", "notebook.live")


def taking(argument: str, *but) -> list:
    """The functions that take an argument of this name, but for some."""
    return [of for of, good in GOOD.items() if home(of).startswith(HERE) and argument in good and of not in but]


def wrong_type(of, argument: str, accepted: str) -> list[Case]:
    return [Case(of, argument, bad, accepted, type(bad).__name__, TypeError) for bad in (None, "x", [1])]


SEEDS = [(-1, "-1"), (1.5, "1.5"), (True, "True"), ("0", "'0'")]
SIZES = [
    "layers",
    "width",
    "heads",
    "max_length",
    "specials",
    "n_tokens",
    "steps",
    "batch",
    "epochs",
    "cells",
    "n_states",
    "n",
    "workers",
]
SHARES = {"dropout": "1", "masked": "1", "share": "1", "warmup": "1"}
RATES = ["learning_rate", "muon_rate", "clip", "head_rate", "prompt_rate"]
LABELS = [
    (torch.tensor([True]), "shape (2,)", "(1,)"),
    (torch.ones(2, 2), "shape (2,)", "(2, 2)"),
    (torch.tensor([0, 2]), "0 and 1", "not 2"),
    ("ab", "0 and 1", "'ab'"),
]
TOKENS = [
    ([[0, 4]], "0 to 3, or MASK = -1", "4"),
    ([[0.5]], "integers", "float64"),
    ([0, 1], "shape (n, T)", "(2,)"),
    ([[0], [0, 1]], "rectangular array of integers", "inhomogeneous"),
]
WORDS = {"law": "masked, before, stepped", "places": "distinct, repeated", "start": "uniform, vocabulary"}


def everywhere() -> list[Case]:
    """Each of these arguments, spoiled in each way, in every function that takes it."""
    cases = []
    for of in taking("network"):
        kind = "Module" if of is bert.fingerprint else "BertForMaskedLM"
        cases += wrong_type(of, "network", kind)
    for of in taking("model"):
        accepted = inspect.signature(of).parameters["model"].annotation.split(" | ")
        for value in ["a model", None, *([] if "MemoryHMM" in accepted else [MEMORY])]:
            cases.append(Case(of, "model", value, " or ".join(accepted), type(value).__name__, TypeError))
    for of in taking("seed", specs.TrialSpec):
        limits = "0 or more" if of is trials.trial_seeds else "from 0 to 2**63 - 1"
        cases += [
            Case(of, "seed", value, f"an integer {'of ' * (limits[0] == '0')}{limits}", found) for value, found in SEEDS
        ]
    for argument in SIZES:
        for of in taking(argument, specs.TrialSpec, specs.select, live.changed):
            if not (argument == "warmup" and of is tuning.Tuning):
                wrong = [(0, "0"), (2.0, "2.0"), ("2", "'2'")]
                cases += [Case(of, argument, value, "an integer of 1 or more", found) for value, found in wrong]
    for argument in ("documents", "document_length", "prompt_length"):
        for of in taking(argument, live.changed):
            cases += [Case(of, argument, bad, "an integer of 0 or more", repr(bad)) for bad in (-1, 1.0)]
    for argument, most in SHARES.items():
        for of in taking(argument, pretraining.Pretraining) if argument == "warmup" else taking(argument):
            cases += [Case(of, argument, bad, f"from 0 to {most}", repr(bad)) for bad in (-0.1, 1.1, NAN, "0.5")]
    for argument in RATES:
        for of in taking(argument):
            cases += [Case(of, argument, bad, "from 0 to 1e+30", repr(bad)) for bad in (-1, NAN, INF, "high")]
    for of in taking("labels"):
        cases += [Case(of, "labels", *way) for way in LABELS]
    for of in taking("tokens"):
        cases += [Case(of, "tokens", *way) for way in TOKENS]
    for of in taking("plan"):
        kind = "Pretraining" if of is pretraining.pretrain else "Tuning"
        cases += wrong_type(of, "plan", f"type {kind}")
    for of in taking("spec"):
        cases += wrong_type(of, "spec", "type TrialSpec")
    for argument, accepted in WORDS.items():
        for of in taking(argument):
            cases += [Case(of, argument, bad, accepted, repr(bad)) for bad in ("other", None, ["uniform"])]
    for of in taking("preset"):
        cases += [Case(of, "preset", bad, ", ".join(PRESETS), repr(bad)) for bad in ("huge", None, ["smoke"])]
    for of in taking("store"):
        cases += [Case(of, "store", bad, "str or PathLike", type(bad).__name__, TypeError) for bad in (None, 3)]
    for of in taking("specs"):
        cases += [
            Case(of, "specs", bad, "TrialSpec", found, TypeError) for bad, found in ((None, "None"), ("ab", "str"))
        ]
    for of in taking("until", local.run_side_by_side, live.gather):
        cases += [Case(of, "until", bad, "a number of 0 or more", repr(bad)) for bad in ("noon", NAN, None)]
    for of in taking("device", trials.environment):
        cases += [Case(of, "device", bad, "auto, cpu, cuda, mps, or cuda:N", repr(bad)) for bad in ("quantum", 0, None)]
    return cases


OTHERS = [
    # Networks and their training
    Case(bert.Shape, "width", 9, "a multiple of heads = 2", "9"),
    Case(bert.build, "shape", (1, 8, 2, 8), "type Shape", "tuple", TypeError),
    Case(pretraining.Pretraining, "length", 0, "1 or more", "0"),
    Case(pretraining.Pretraining, "warmup", -1, "0 or more", "-1"),
    Case(pretraining.Pretraining, "precision", "double", "single, half, float16", "'double'"),
    Case(pretraining.Pretraining, "masking", "never", "always, bert", "'never'"),
    Case(pretraining.pretrain, "every", "often", "0 or more", "'often'"),
    Case(pretraining.pretrain, "plan", pretraining.Pretraining(2, 2, 9, 0.2, 1e-3, 0.0, 1), "at most 8", "9"),
    Case(readers.masked_losses, "length", 0, "1 or more", "0"),
    Case(bert.to_ids, "tokens", [[0] * 9], "at most 8", "9"),
    Case(tuning.all_probs, "tokens", [[0] * 9], "at most 8", "9"),
    Case(tuning.probs_at_mask, "tokens", [[0] * 7], "at most 6 long behind a prompt of 2", "7"),
    Case(tuning.probs_at_mask, "prompt", torch.ones(2, 7), "length 8", "(2, 7)"),
    Case(tuning.all_probs_at_mask, "prompt", torch.ones(8), "2 axes", "(8,)"),
    Case(tuning.all_probs_at_mask, "prompt", [[1.0] * 8], "type Tensor", "list", TypeError),
    Case(tuning.all_probs_at_mask, "prompt", torch.ones(2, 8) * 1j, "real numbers", "complex"),
    Case(tuning.initial_prompt, "length", -1, "0 or more", "-1"),
    Case(tuning.tune_prompt, "prompt_length", 6, "the network has 8", "6"),
    # Tasks and heads
    Case(labels.draw_mu, "generator", 0, "type Generator", "int", TypeError),
    Case(labels.draw_task, "length", 1, "2 or more", "1"),
    Case(labels.draw_task, "sizes", (6, 2), "training, validation and test", "(6, 2)"),
    Case(labels.draw_task, "sizes", (0, 2, 4), "1 or more", "(0, 2, 4)"),
    Case(labels.draw_task, "sizes", (6, 2, -4), "0 or more", "-4"),
    Case(labels.draw_task, "sizes", 6, "tuple or list", "int", TypeError),
    Case(TASK.split, "values", torch.ones(5), "12 entries", "(5,)"),
    Case(TASK.split, "values", [1, 2], "type Tensor", "list", TypeError),
    Case(tuning.tune_head, "probs", torch.ones(2, 2, 4), "2 dimensions", "(2, 2, 4)"),
    Case(tuning.tune_head, "probs", "p", "array of numbers", "str"),
    Case(tuning.tune_head, "probs", torch.full((2, 4), NAN), "finite", "NaN"),
    Case(tuning.tune_head, "probs", -torch.ones(2, 4), "nonnegative", "-1"),
    Case(tuning.tune_attention, "probs", torch.ones(2, 4), "3 dimensions", "(2, 4)"),
    Case(tuning.tune_attention, "probs", [], "3 dimensions", "(0,)"),
    Case(tuning.probs_behind_prompt, "posteriors", torch.ones(2, 4), "length 3", "(2, 4)"),
    Case(tuning.probs_behind_prompt, "posteriors", torch.ones(3), "2 axes", "(3,)"),
    Case(tuning.probs_behind_prompt, "prompt", torch.ones(4), "length 3", "(4,)"),
    Case(tuning.probs_behind_prompt, "prompt", torch.ones(1, 3), "1 axis", "(1, 3)"),
    Case(tuning.tune_exact_prompt, "posteriors", torch.ones(3), "2 dimensions", "(3,)"),
    Case(tuning.tune_exact_prompt, "posteriors", [[NAN] * 3] * 2, "finite", "NaN"),
    Case(TUNED.__call__, "probs", torch.ones(2, 3, 5), "length 4", "(2, 3, 5)"),
    Case(TUNED.__call__, "probs", torch.ones(2, 2, 4), "3 positions", "(2, 2, 4)"),
    Case(TUNED.__call__, "probs", torch.ones(2, 3, 4) * 1j, "real numbers", "complex"),
    Case(TUNED.label, "probs", torch.ones(3, 4), "3 axes", "(3, 4)"),
    Case(tuning.accuracy, "head", max, "LinearHead or TunedAttention", "builtin_function", TypeError),
    Case(tuning.accuracy, "probs", torch.ones(2, 3), "shape (n, 4)", "(2, 3)"),
    Case(readouts.fit_readout, "beliefs", torch.ones(3, 4), "length 3", "(3, 4)"),
    Case(readouts.fit_readout, "guesses", torch.ones(3, 3), "length 4", "(3, 3)"),
    Case(readouts.fit_readout, "guesses", torch.ones(2, 4), "3, one for each of beliefs", "2"),
    Case(readouts.fit_readout, "emission", torch.ones(4), "2 dimensions", "(4,)"),
    Case(readouts.fit_readout, "words", "other", "emission, translated, own", "'other'"),
    Case(readouts.fit_readout, "reweighted", 1, "type bool", "int", TypeError),
    Case(readouts.fit_readout, "starts", 0, "1 or more", "0"),
    Case(readouts.fit_readout, "nearest", 1, "type bool", "int", TypeError),
    Case(readouts.free_readout, "guesses", torch.ones(2, 4), "3, one for each of beliefs", "2"),
    Case(readouts.free_readout, "width", 0, "1 or more", "0"),
    Case(tuning.all_hidden_at_mask, "cut", [2], "each of cut must be an integer from 1 to 1", "2"),
    Case(tuning.all_hidden_at_mask, "prompt", torch.ones(2, 7), "length 8", "(2, 7)"),
    Case(bert.hidden_at, "position", 3, "an integer from 0 to 2", "3"),
    Case(bert.hidden_at, "cut", 1, "a sequence of integers from 1 to 1", "1", TypeError),
    Case(probes.linear_probe, "hidden", torch.full((3, 3), NAN), "finite", "NaN"),
    Case(probes.linear_probe, "values", torch.ones(2, 3), "3, one for each of hidden", "2"),
    Case(probes.logistic_probe, "labels", [True], "shape (2,)", "(1,)"),
    Case(PROBE.__call__, "hidden", torch.ones(2, 4), "length 3", "(2, 4)"),
    Case(probes.explained, "found", torch.ones(2, 3), "shape of values, (3, 3)", "(2, 3)"),
    Case(probes.explained, "values", torch.ones(3, 3), "must vary", "nothing to explain"),
    Case(readouts.total_variation, "guesses", [1.0], "2 dimensions", "(1,)"),
    Case(readouts.total_variation, "others", torch.ones(2, 3), "shape of guesses, (3, 3)", "(2, 3)"),
    Case(SPOKEN.__call__, "beliefs", torch.ones(2, 4), "length 3", "(2, 4)"),
    Case(ladder.rung, "task", (1, 2), "type Task", "tuple", TypeError),
    Case(ladder.rung, "probs", torch.ones(12), "2 dimensions", "(12,)"),
    Case(ladder.rung, "probs", torch.ones(5, 4), "12 entries", "(5, 4)", said="values"),
    # Specs, trials and results; test_specs.py goes through all fields of a spec.
    Case(specs.TrialSpec, "n_states", 0, "1 or more", "0"),
    Case(specs.TrialSpec, "preset", np.array(["smoke"]), "smoke, quick", "array(["),
    Case(specs.panel_points, "panel", "middle", "left, right", "'middle'"),
    Case(specs.panel_points, "panel", ["left"], "left, right", "['left']"),
    Case(specs.panel_specs, "trials", 0, "1 or more", "0"),
    Case(specs.panel_specs, "first_seed", -1, "0 or more", "-1"),
    Case(specs.select, "results", None, "sequence", "NoneType", TypeError),
    Case(specs.select, "results", ["x"], "type TrialSpec", "NoneType", TypeError),
    Case(specs.as_field, "name", "zz", "steps, batch", "'zz'", said="field"),
    Case(specs.as_field, "name", None, "type str", "NoneType", TypeError),
    Case(specs.as_field, "text", 3, "type str", "int", TypeError),
    Case(live.changed, "prompt_length", -2, "-1 or more", "-2"),
    Case(live.changed, "steps", "7", "0 or more", "'7'"),
    Case(live.changed, "labelled", 1.5, "0 or more", "1.5"),
    Case(trials.environment, "device", "cpu", "type device", "str", TypeError),
    Case(trials.environment, "precision", "double", "single, half, float16", "'double'"),
    Case(backend.pick, "name", "cuda:99", "this machine, which has cpu", "'cuda:99'", said="device"),
    Case(backend.pick, "name", "", "auto, cpu, cuda, mps, or cuda:N", "''", said="device"),
    Case(local.deadline, "minutes", "soon", "positive", "'soon'"),
    Case(local.deadline, "minutes", NAN, "positive", "nan"),
    Case(trials.measure, "names", ["head"], "head_accuracy", "'head'"),
    Case(trials.measure, "names", ["head_accuracy"], "later measurements", "head_accuracy"),
    Case(trials.measure, "names", 3, "sequence of str", "int", TypeError),
    Case(local.summary, "result", {}, "type TrialResult", "dict", TypeError),
    Case(local.run_missing, "device", "cuda:99", "this machine, which has cpu", "'cuda:99'"),
    Case(live.gather, "specs", [1], "type TrialSpec", "int", TypeError),
    Case(cluster.sweep, "cpus", "many", "positive", "'many'"),
    Case(cluster.sweep, "gpus", NAN, "not negative", "nan"),
    Case(cluster.reachable, "address", None, "type str", "NoneType", TypeError),
    Case(cluster.reachable, "address", "host:port", "HOST:PORT or auto", "'host:port'"),
    Case(summaries.interval, "values", [], "at least one value", "[]"),
    Case(summaries.interval, "values", [0.5, NAN], "finite", "nan"),
    Case(summaries.interval, "values", ["a"], "finite numbers", "['a']"),
    Case(summaries.interval, "values", 3, "sequence of numbers", "int", TypeError),
    Case(summaries.mean, "values", ["a"], "a sequence of numbers", "['a']", TypeError),
    Case(summaries.mean, "values", 3, "a sequence of numbers", "3", TypeError),
    Case(summaries.along, "results", [1], "sequence of TrialResult", "[1]", TypeError),
    Case(summaries.apart, "one", 0.5, "type Interval", "float", TypeError, said="each interval"),
    Case(summaries.learned, "result", 3, "TrialResult", "int", TypeError),
    Case(summaries.reference, "panel", "middle", "left or right", "'middle'"),
    # Figures
    Case(trial_by_trial.trial_by_trial, "results", [], "trials with a prompt, of one number of tokens", "[]"),
    Case(tables.Table, "rows", [["a", "b"]], "1 cells, as the head has", "2", said="each of rows"),
    Case(tables.outcomes, "predictions", [("so", "1")], "whether it is so", "('so', '1')", said="each of predictions"),
    Case(tables.outcomes, "predictions", [("so", "1", "no")], "whether it is so", "'no'", said="each of predictions"),
    Case(tables.table_of, "groups", [], "a dict", "list", TypeError),
    Case(tables.table_of, "rows", {}, "one entry or more", "none"),
    Case(beyond_figures.lines, "series", dict.fromkeys("abcdefg"), "1 to 6 lines", "7"),
    Case(beyond_figures.lines, "results", 3, "a sequence of TrialResult", "3", TypeError),
    Case(beyond_figures.dots, "rows", {}, "one entry or more", "none"),
    Case(beyond_figures.dots, "rows", {"a": dict.fromkeys("abcdefg")}, "1 to 6 series", "7"),
    Case(beyond_figures.wrong_beliefs, "scores", {"a": [1.0]}, "shape (3,)", "(1,)"),
    Case(beyond_figures.wrong_beliefs, "mu", [1.0, -1.0], "shape (3,)", "(2,)"),
    Case(beyond_figures.wrong_beliefs, "names", "xy", "three", "['x', 'y']"),
    Case(beyond_figures.plane, "sizes", [7], "among 4, 8, 10, 15, 25, 30", "7"),
    Case(beyond_figures.plane, "series", [], "a dict", "list", TypeError),
    Case(beyond_figures.triangles, "panels", {"a": (np.eye(2), "xyz")}, "shape (3, 3)", "(2, 2)"),
    Case(beyond_figures.triangles, "panels", {"a": (np.eye(3), "xy")}, "three names", "['x', 'y']", said="corners"),
    Case(beyond_figures.triangles, "columns", {"a": (np.eye(2), "xy")}, "shape (3, 2)", "(2, 2)"),
    Case(interactive.fake_token_or_other_words, "emission", PLAIN.emission, "three tokens", "4", said="triangle"),
    Case(interactive.fake_token_or_other_words, "readout", np.eye(3)[:, :2], "shape (3, 3), as emission has", "(3, 2)"),
    Case(interactive.fake_token_or_other_words, "beliefs", np.ones((500, 3)) / 3, "at most 400 texts", "500"),
    Case(interactive.fake_token_or_other_words, "weights", [1.0, 2.0, 0.0], "from 0 to 1", "2.0"),
    Case(figures.distributions, "rows", {"a": [1.0]}, "shape (2,)", "(1,)"),
    Case(figures.distributions, "rows", {}, "one entry or more", "none"),
    Case(figures.distributions, "rows", [[0.5, 0.5]], "dict", "list", TypeError),
    Case(figures.distributions, "outcomes", 2, "sequence", "int", TypeError),
    Case(figures.matrices, "named", {"A": [1.0]}, "shape (any, any)", "(1,)"),
    Case(figures.matrices, "y_labels", [], "as many as the matrices, 1", "0"),
    Case(figures.losses, "values", [0.5], "shape (2,)", "(1,)"),
    Case(figures.losses, "levels", [0.3], "dict", "list", TypeError),
    Case(figures.losses, "levels", dict.fromkeys("abcd", 0.3), "1 to 3 lines", "4"),
    Case(figures.losses, "steps", [], "one number or more", "none"),
    Case(figures.scatter, "x", [], "one number or more", "none"),
    Case(figures.scatter, "y", [1, 2, 3], "shape (2,)", "(3,)"),
    Case(figures.scatter, "x", [[1], [1, 2]], "shape (any,)", "inhomogeneous"),
    Case(figures.curve, "series", {"a": [1]}, "shape (2,)", "(1,)"),
    Case(figures.curve, "series", {name: [1, 2] for name in "abcde"}, "1 to 4 lines", "5"),
    Case(figures.curve, "log", "z", "'x', 'y' or 'xy'", "'z'"),
    Case(figures.simplex, "points", np.eye(4), "shape (any, 3)", "(4, 4)"),
    Case(figures.simplex, "labels", [True], "shape (3,)", "(1,)"),
    Case(figures.stacked, "panels", {"a": {"b": [1.0]}}, "shape (2,)", "(1,)"),
    Case(figures.stacked, "panels", {"a": {}}, "one entry or more", "none"),
    Case(figures.simplex, "corners", np.eye(2), "shape (3, any)", "(2, 2)"),
    Case(figures.simplex, "head", [1.0], "shape (3,)", "(1,)"),
    Case(figures.simplex_with_prompt, "panels", {"a": np.eye(4)}, "shape (3, 3)", "(4, 4)"),
    Case(figures.simplex_with_prompt, "essential", [3], "columns from 0 to 2", "[3]"),
    Case(figures.simplex_with_prompt, "refuted", LinearHead([1.0, 0, 0]), "type Impossible", "LinearHead", TypeError),
    Case(figures.simplex_with_prompt, "refuted", Impossible([1.0], [1.0], 0.0), "shape (2,)", "(1,)"),
    Case(figures.attention, "scores", [1.0], "shape (2,)", "(1,)"),
    Case(appendices.columns_of_w, "example", MEMORY, "type Sentences", "MemoryHMM", TypeError),
    Case(appendices.columns_of_w, "recoverable", [(3, 0)], "from 0 to 2", "3"),
    Case(appendices.columns_of_w, "unseen", [(0, 27)], "from 0 to 26", "27"),
    Case(appendices.columns_of_w, "unseen", [(0, 1, 2)], "a memory value and a state", "(0, 1, 2)"),
    Case(appendices.grids, "panels", {"a": (np.eye(3), "xyz")}, "shape (2, 3)", "(3, 3)"),
    Case(appendices.grids, "panels", {}, "one entry or more", "none"),
    Case(appendices.grids, "per_row", 4, "from 1 to 3", "4"),
    Case(appendices.rulings, "entries", ["Claim B.1"], "type Entry", "str", TypeError),
    Case(figures.beliefs, "cells", {"c": (["x"], np.ones((2, 2)))}, "shape (2, 1)", "(2, 2)"),
    Case(memory_figures.strips, "rows", {"a": ([0.1], [True, False])}, "shape (1,)", "(2,)", said="labels of rows['a']"),
    Case(memory_figures.mixtures, "panels", {}, "one entry or more", "none"),
    Case(memory_figures.mixtures, "panels", {"a": (np.eye(2), {"x": [1, 0, 0]})}, "shape (any, 3)", "(2, 2)"),
    Case(memory_figures.mixtures, "panels", {"a": (np.eye(3), {"x": [1, 0]})}, "shape (3,)", "(2,)", said="column 'x'"),
    Case(memory_figures.mixtures, "panels", {"a": (np.eye(3), [[1, 0, 0]])}, "a dict", "list", TypeError, said="columns"),
    Case(memory_figures.mixtures, "corners", "xx", "3 different words", "['x', 'x']"),
    Case(memory_figures.strips, "rows", {}, "one entry or more", "none"),
    Case(memory_figures.strips, "cuts", {"b": 0.1}, "of the rows a", "b"),
    Case(memory_figures.strips, "crosses", {"a": [[0.1]]}, "shape (any,)", "(1, 1)"),
    Case(figures.dependencies, "arrows", [("a", "z")], "among the places a, b", "z"),
    Case(figures.dependencies, "marked", ["z"], "among the places a, b", "z"),
    Case(figure_3.panel, "name", "middle", "left or right", "'middle'"),
    Case(figure_3.panel, "results", [3], "sequence of TrialResult", "[3]", TypeError),
    Case(figure_3.gains, "results", "ab", "sequence of TrialResult", "'ab'", TypeError),
    Case(figure_3.gains, "results", [], "one trial or more", "none"),
    Case(figure_3.ladder, "results", 3, "sequence of TrialResult", "3", TypeError),
    Case(figure_3.against_learned, "results", [], "one trial or more", "none"),
    Case(figure_3.against_learned, "series", {"mine": len}, "head tuning, prompt tuning", "mine"),
    Case(drawings.hidden_chain, "masked", 1, "integers from 1 to 2", "1", TypeError),
    Case(drawings.hidden_chain, "tokens", 2, "1 to 5 words", "2", TypeError),
    Case(drawings.prompt_chain, "n_inputs", "2", "from 1 to 3", "'2'"),
    Case(drawings.memory_cell, "n_tokens", 5, "from 1 to 4", "5"),
    Case(drawings.memory_cells, "lookups", [3], "from 1 to 2", "3"),
    Case(TASK.split, "values", torch.eye(12).to_sparse(), "dense", "torch.sparse_coo"),
    # test_interactive_html.py has more.
    Case(interactive.conditioning_by_a_prompt, "head", [1.0, 0, 0], "type LinearHead", "list", TypeError),
    Case(interactive.conditioning_by_a_prompt, "head", LinearHead([1.0]), "3 finite numbers", "[1.0]"),
    Case(interactive.conditioning_by_a_prompt, "shown", ["ab", "cd"], "two or three inputs", "['ab', 'cd']"),
    Case(interactive.conditioning_by_a_prompt, "name", 3, "letters, digits and underscores", "3"),
    Case(interactive.nearly_dependent_columns, "seed", None, "from 0 to 2**63 - 1", "None"),
    Case(interactive.nearly_dependent_columns, "merge", [[0], [1]], "from 0 to 2", "[[0], [1]]"),
    Case(interactive.attention_over_words, "syntax", [[0]], "integers from 0 to 1", "[[0]]"),
    Case(interactive.attention_over_words, "question", 3, "type str", "int", TypeError),
    Case(interactive.attention_over_words, "cell", "0", "integer of 0 or more", "'0'"),
    Case(interactive.nearly_dependent_columns, "merge", 2, "tuple or list", "int", TypeError),
    Case(believing.belief_word_by_word, "values", 3, "sequence", "int", TypeError),
    Case(believing.belief_word_by_word, "read", "1", "from 0 to 3", "'1'"),
    Case(interactive.softmax_and_its_limit, "words", 3, "3 different words", "3"),
    Case(interactive.passing_messages, "model", MEMORY, "must be an HMM", "MemoryHMM"),
    Case(interactive.passing_messages, "masked", 2, "sequence of integers from 1 to 3", "2", TypeError),
    Case(interactive.passing_messages, "words", ["aa", "ab", "c"], "different letters", "['aa', 'ab', 'c']"),
    Case(interactive.passing_messages, "text", 3, "words in one string", "3"),
    Case(interactive.softmax_and_its_limit, "words", ["w0"], "3 different words", "['w0']"),
]  # fmt: skip

TUNING_CASES = [*everywhere(), *OTHERS]


@tried("arguments of functions")
@pytest.mark.parametrize("case", TUNING_CASES, ids=map(str, TUNING_CASES))
def test_a_bad_argument_is_named_with_what_was_found_and_what_is_accepted(case):
    case.check()


def test_nothing_is_written_by_a_refused_call():
    assert not NOWHERE.exists()
