"""Bad arguments of models, probabilities, theorems and heads, one at a time in a good call: a clear error each time.

A message must have the argument's name, what was found, and what is accepted; the tables say all three.
"""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import torch
from companion.evidence import ledger, statements
from companion.evidence.exact import identities
from companion.evidence.zero_patterns import patterns
from exempt import AT_ROOT, INNER, INNER_MODULES, RESULTS
from good_calls import ATTENTION, CERTIFICATE, GOOD, INF, LINEAR, MEMORY, NAN, PLAIN, RECOVERY, SAID, Case, call, home
from record import tried
from test_bad_files import FILE_CASES, PARAMETER_CASES
from test_bad_tuning import TUNING_CASES

import hmmlib
from hmmlib.experiments import local
from hmmlib.inference import messages
from hmmlib.models import appendix_e, families, hmm, sentences
from hmmlib.theory import assumptions, certificates, heads, relabelling, separation, theorems

HERE = ("models.", "inference.", "theory.", "evidence.")
ONE_CELL = families.recoverable_memory_hmm(1, 2, 2, 1, 1)[0]


def taking(argument: str, *but) -> list:
    """The functions that take an argument of this name, but for some."""
    return [of for of, good in GOOD.items() if home(of).startswith(HERE) and argument in good and of not in but]


INDICES = [
    ([0, 9], "integers from 0 to", "[0, 9]"),
    ([-1], "integers from 0 to", "[-1]"),
    ([], "at least one index", "[]"),
    ([0, 0], "none twice", "[0, 0]"),
    ([0.0], "integers from 0 to", "[0.0]"),
    (["0"], "integers from 0 to", "['0']"),
    (0, "a sequence of integers", "0"),
    (None, "a sequence of integers", "None"),
]
SHARES = [(-0.1, "0", "-0.1"), (1.5, "1", "1.5"), (NAN, "1", "nan"), ("0.4", "a number", "'0.4'"), (True, "1", "True")]
EVERYWHERE = {
    "tokens": [
        ([[0, 99]], "or MASK = -1", "99"),
        ([[-2, 0]], "or MASK = -1", "-2"),
        ([[0.0, 1.0]], "integers", "float64"),
        ([[True]], "integers", "bool"),
        ([[1j]], "integers", "complex"),
        ([0, 1], "shape (n, T)", "(2,)"),
        ([[]], "integers", "float64"),
        (torch.zeros(2, 0, dtype=torch.int64), "T at least 1", "(2, 0)"),
        ([[0, 1], [2]], "rectangular array of integers", "inhomogeneous"),
        ([["a"]], "rectangular array of integers", "str"),
        (None, "rectangular array of integers", "object"),
    ],
    "prompt": [
        ([0.5], "entries", "1"),
        ([[0.5] * 3], "1 dimension", "(1, 3)"),
        ([NAN] * 3, "finite", "NaN or infinity"),
        ([-0.5] * 3, "nonnegative", "-0.5"),
        ("u", "array of numbers", "str"),
        ([], "empty", "(0,)"),
    ],
    "cell": [(-1, "", "-1"), (9, "0 to", "9"), (True, "integer", "True"), (0.0, "integer", "0.0"), (None, "", "None")],
    "essential": INDICES,
    "syntax": INDICES,
    "zeros": SHARES,
    "noise": SHARES,
    "gap": SHARES,
    "recovery": [(None, "type Recovery", "NoneType", TypeError), ("theta", "type Recovery", "str", TypeError)],
}
"""By the argument's name, whatever the function: value, what is accepted, what was found, and the error if no ValueError."""

SIZES = (
    "n_states n_tokens n_memory n_cells n_syntax n_recoverable n_essential values permutations n length block points"
)
SEEDS = [(-1, "-1"), (1.5, "1.5"), (True, "True"), ("0", "'0'"), (2**63, str(2**63)), (NAN, "nan")]
PROBS = [(NAN, "finite", "NaN"), (-1.0, "nonnegative", "-1"), (INF, "finite", "infinity")]


def everywhere() -> list[Case]:
    """Each of these arguments, spoiled in each way, in every function that takes it."""
    cases = []
    for argument, ways in EVERYWHERE.items():
        for of in taking(argument, SAID.state, theorems.lemma_c_2):
            cases += [Case(of, argument, *way) for way in ways]
    for argument, least in [*((name, 1) for name in SIZES.split()), ("instances", 1), ("at", 0), ("i", 0)]:
        for of in taking(argument, assumptions.recoverable_columns):
            low = 2 if (of, argument) == (families.dependent_hmm, "n_states") else least
            wrong = [low - 1, 1.5, "3", NAN, True] if argument in ("n_states", "n", "at") else [low - 1, "3"]
            cases += [Case(of, argument, value, f"an integer of {low} or more", repr(value)) for value in wrong]
    for of in taking("seed", ledger.run, ledger.draw_seeds, identities.confirm):
        cases += [Case(of, "seed", value, "an integer from 0 to 2**63 - 1", found) for value, found in SEEDS]
    for of in taking("model"):
        accepted = inspect.signature(of).parameters["model"].annotation.split(" | ")
        other = [model for model in (PLAIN, MEMORY) if type(model).__name__ not in accepted]
        for value in ["a model", None, *other]:
            cases.append(Case(of, "model", value, " or ".join(accepted), type(value).__name__, TypeError))
    for of in taking("mu"):
        good = np.asarray(GOOD[of]["mu"])
        shape = f"shape ({len(good)},)"
        cases += [
            Case(of, "mu", [1.0] * 9, shape, "(9,)"),
            Case(of, "mu", good[:, None], shape, f"({len(good)}, 1)"),
            Case(of, "mu", [NAN] * len(good), "finite", "NaN"),
            Case(of, "mu", [-INF] * len(good), "finite", "infinity"),
            Case(of, "mu", 0 * good, "not be all zero", "all zero"),
            Case(of, "mu", good * 1j, "real numbers", "complex"),
            Case(of, "mu", [[1.0], [1.0, 2.0]], "real numbers", "inhomogeneous"),
            Case(of, "mu", "mu", shape, "str"),
        ]
    for of in taking("probs"):
        good = GOOD[of]["probs"]
        cases += [Case(of, "probs", torch.full_like(good, bad), accepted, found) for bad, accepted, found in PROBS]
        cases += [
            Case(of, "probs", good[0], f"{good.ndim} dimensions", str(tuple(good.shape[1:]))),
            Case(of, "probs", good * 1j, "real numbers", "complex"),
            Case(of, "probs", good > 0, "real numbers", "bool"),
            Case(of, "probs", "p", "array of numbers", "str"),
            Case(of, "probs", good[:0], "empty", "(0, "),
        ]
    for of in taking("embeddings", MEMORY.lift):
        good = GOOD[of]["embeddings"]
        cases += [Case(of, "embeddings", good * bad, accepted, found) for bad, accepted, found in PROBS]
        cases.append(Case(of, "embeddings", good[..., :1], "", "1"))
        cases.append(Case(of, "embeddings", [[[1.0], [1.0, 2.0]]], "array of numbers", "inhomogeneous"))
    return cases


OTHERS = [
    # Models; test_hmm.py has more.
    Case(hmm.HMM, "transition", np.eye(2, dtype=bool), "real numbers", "torch.bool"),
    Case(hmm.HMM, "transition", np.array([["1", "0"], ["0", "1"]]), "array of numbers", "ndarray"),
    Case(hmm.HMM, "transition", [[1.0, 0.0], [1.0]], "array of numbers", "inhomogeneous"),
    Case(hmm.HMM, "transition", [[0.9, 0.5], [0.1 + 2e-9, 0.5]], "sum to 1 within 1e-09", "off by 2e-09"),
    Case(hmm.HMM, "transition", np.float32([[0.9, 0.5], [0.1002, 0.5]]), "within 1e-05", "off by 0.0002"),
    Case(hmm.HMM, "transition", [[0.9, 0.8], [0.1, 0.3]], "columns (first axis) that sum to 1", "off by 0.1"),
    Case(hmm.HMM, "transition", [[0.9, 0.1], [0.5, 0.5]], "HMM.from_rows(startprob, transmat", "its rows do"),
    Case(hmm.MemoryHMM, "transition", [[0.9, 0.1], [0.5, 0.5]], "pass the transpose", "its rows do"),
    Case(hmm.HMM, "columns", False, "True or left out (for rows, HMM.from_rows", "False"),
    Case(hmm.HMM, "columns", 1, "True or left out", "1"),
    Case(hmm.HMM, "transition", None, "array of numbers", "NoneType"),
    Case(hmm.HMM.from_rows, "startprob", [0.5, 0.6], "startprob must sum to 1", "off by 0.1"),
    Case(hmm.HMM.from_rows, "startprob", [[1.0]], "1 dimension", "(1, 1)"),
    Case(hmm.HMM.from_rows, "startprob", [1.0], "shape (1, 1) to match startprob", "(2, 2)", said="transmat"),
    Case(hmm.HMM.from_rows, "startprob", np.float32([1, 0]), "one dtype and one device", "float32"),
    Case(hmm.HMM.from_rows, "transmat", [[0.9, 0.5], [0.1, 0.5]], "rows (last axis)", "its columns do, as HMM("),
    Case(hmm.HMM.from_rows, "transmat", [[1.5, -0.5], [0.0, 1.0]], "nonnegative", "-0.5"),
    Case(hmm.HMM.from_rows, "transmat", "T", "array of numbers", "str"),
    Case(hmm.HMM.from_rows, "emissionprob", [[NAN, 1.0], [0.0, 0.0]], "finite", "NaN"),
    Case(hmm.HMM.from_rows, "emissionprob", np.eye(3), "shape (2, 3) to match startprob", "(3, 3)"),
    *(
        Case(of, argument, value, name, type(value).__name__, TypeError)
        for of, argument, name in (
            (hmm.HMM.from_hmmlearn, "fitted", "type CategoricalHMM"),
            (hmm.HMM.from_dynamax, "params", "type ParamsCategoricalHMM"),
        )
        for value in (None, "a model", PLAIN, (PLAIN, PLAIN))
    ),
    Case(hmm.HMM, "emission", np.eye(3, dtype=object), "array of numbers", "ndarray"),
    Case(hmm.HMM, "emission", [[1.5, 1.0], [-0.5, 0.0]], "nonnegative", "-0.5"),
    Case(hmm.HMM, "emission", [[NAN, 1.0], [0.0, 0.0]], "finite", "NaN"),
    Case(hmm.HMM, "initial", [INF, 0.0], "finite", "infinity"),
    Case(hmm.HMM, "initial", [0.5, 0.5, 0.0], "transition must have shape (3, 3) to match", "(2, 2)"),
    Case(hmm.HMM, "initial", np.float32([0.5, 0.5]), "share one dtype and one device", "float32", said="arrays"),
    Case(hmm.MemoryHMM, "memory", [[0.5, 0.5], [0.0]], "array of numbers", "inhomogeneous"),
    Case(hmm.MemoryHMM, "memory", [0.5, 0.5, 0.0], "2 values (as emission has)", "(3,)"),
    Case(hmm.MemoryHMM, "memory", [0.5, 0.6], "sum to 1", "off by 0.1"),
    Case(hmm.MemoryHMM, "emission", np.eye(2), "3 dimensions", "(2, 2)"),
    Case(PLAIN.to, "dtype", torch.float16, "torch.float64 or torch.float32", "torch.float16"),
    Case(PLAIN.to, "dtype", torch.int64, "torch.float64 or torch.float32", "torch.int64"),
    Case(MEMORY.to, "dtype", "float32", "torch.float64 or torch.float32", "'float32'"),
    Case(PLAIN.to, "device", "cuda:99", "this machine, which has cpu", "'cuda:99'"),
    Case(PLAIN.to, "device", "quantum", "auto, cpu, cuda, mps, or cuda:N", "'quantum'"),
    Case(PLAIN.to, "device", "cuda:x", "auto, cpu, cuda, mps, or cuda:N", "'cuda:x'"),
    Case(PLAIN.to, "device", 0, "auto, cpu, cuda, mps, or cuda:N", "0"),
    Case(MEMORY.to, "device", torch.device("cuda:99"), "this machine, which has cpu", "'cuda:99'"),
    Case(PLAIN.sample, "dtype", torch.float32, "an integer type of torch", "torch.float32"),
    Case(PLAIN.sample, "dtype", "int64", "an integer type of torch", "int64"),
    Case(PLAIN.stream, "dtype", torch.bool, "an integer type of torch", "torch.bool"),
    Case(MEMORY.lift, "embeddings", torch.ones(3), "length 8", "(3,)"),
    Case(MEMORY.lift, "embeddings", np.ones(8), "type Tensor", "ndarray", TypeError),
    Case(MEMORY.unlift, "lifted", torch.ones(8), "length 16", "(8,)"),
    Case(MEMORY.unlift, "lifted", torch.tensor(1.0), "length 16", "()"),
    # Random models
    Case(appendix_e.random_hmm, "temperature", 0, "a number from 1e-300 to 1e+300", "0"),
    Case(appendix_e.random_memory_hmm, "temperature", NAN, "a number from 1e-300 to 1e+300", "nan"),
    Case(appendix_e.random_memory_hmm, "n_cells", 200, "at most 16777216", "2 ** 200"),
    Case(families.sparse_memory_hmm, "n_cells", 10**9, "at most 16777216", "2 ** 1000000000"),
    Case(families.recoverable_memory_hmm, "n_memory", 2**25, "at most 16777216", "33554432 ** 1"),
    Case(families.non_degenerate_hmm, "n_tokens", 2, "at least 3 tokens", "2"),
    Case(families.non_degenerate_hmm, "zeros", 1, "at least 0 and below 1", "1"),
    Case(families.essential_hmm, "n_essential", 4, "1 to 3", "4"),
    Case(families.essential_hmm, "zeros", 1, "at least 0 and below 1", "1"),
    Case(families.recoverable_memory_hmm, "n_recoverable", 3, "1 to 2", "3"),
    Case(families.recoverable_memory_hmm, "values", 3, "1 to 2", "3"),
    # Conditional probabilities and theorems
    *(
        Case(of, argument, torch.eye(3).to_sparse(), "dense", "torch.sparse_coo")
        for of, argument in (
            (hmm.HMM, "transition"),
            (messages.posteriors, "tokens"),
            (messages.prompted, "prompt"),
            (theorems.theorem_3_3, "mu"),
            (theorems.lemma_c_2, "prompt"),
            (heads.LinearHead, "weights"),
            (separation.fit_or_refute, "labels"),
        )
    ),
    Case(certificates.certificate, "head", [1.0], "type LinearHead", "list", TypeError),
    Case(certificates.certificate, "head", heads.LinearHead([1.0, 2.0]), "4 entries", "2"),
    Case(CERTIFICATE.holds, "posteriors", torch.ones(2, 4), "length 3", "(2, 4)"),
    Case(CERTIFICATE.holds, "distance", 2.5, "from 0 to 2", "2.5"),
    Case(CERTIFICATE.holds, "distance", torch.ones(4), "3 entries", "4"),
    Case(CERTIFICATE.holds, "distance", torch.full((3,), 3.0), "from 0 to 2", "3.0"),
    Case(certificates.nearest_head, "slack", -0.1, "0 or more", "-0.1"),
    Case(certificates.refuting_belief, "mu", [1.0, 0.0], "both signs", "[1.0, 0.0]"),
    Case(certificates.refuting_belief, "score", torch.ones(3), "shape (3,)", "(2,)", said="mu"),
    Case(relabelling.signal_for, "words", [0, 4], "from 0 to 3", "4"),
    Case(relabelling.signal_for, "n_tokens", 0, "1 or more", "0"),
    Case(relabelling.gated_readout, "beliefs", torch.eye(4), "length 3", "(4, 4)"),
    Case(relabelling.gated_readout, "signal", torch.ones(3, 3), "shape (4, 3), as emission has", "(3, 3)"),
    Case(certificates.nearest_prompt, "head", None, "type LinearHead", "NoneType", TypeError),
    Case(certificates.alternate, "rounds", 0, "1 or more", "0"),
    Case(certificates.prompt_for_votes, "head", heads.LinearHead([1.0] * 4), "vote as mu does", "[1]"),
    Case(certificates.prompt_for_votes, "model", PLAIN, "a permutation as transition", "another"),
    Case(messages.posterior, "at", 4, "0 to 3 for sequences of length 3", "4"),
    Case(messages.masked_token_probs_from_embeddings, "embeddings", np.ones((2, 0, 3)), "one position", "(2, 0, 3)"),
    Case(messages.aggregated_messages, "evidence", torch.ones(2, 3), "3 axes", "(2, 3)"),
    Case(messages.aggregated_messages, "evidence", torch.ones(2, 3, 4), "length 3", "(2, 3, 4)"),
    Case(messages.aggregated_messages, "evidence", torch.ones(2, 3, 3) > 0, "real numbers", "torch.bool"),
    Case(messages.aggregated_messages, "evidence", [[[1.0]]], "type Tensor", "list", TypeError),
    *(Case(assumptions.recoverable_columns, "values", *way) for way in INDICES[:-1]),
    Case(theorems.ground_truth, "model", PLAIN, "shape (3,)", "(2,)", said="mu"),
    Case(theorems.lemma_c_2, "prompt", torch.ones(2), "length 3", "(2,)"),
    Case(theorems.lemma_c_2, "prompt", torch.ones(1, 3), "1 axis", "(1, 3)"),
    Case(theorems.lemma_c_2, "prompt", [1, 1, 1], "type Tensor", "list", TypeError),
    *(
        Case(of, "model", ONE_CELL, "2 states, ", "of 4, ", said="recovery")
        for of in (RECOVERY.states, theorems.lemma_d_2, theorems.lemma_d_4, theorems.lemma_d_9, theorems.attention_head)
    ),
    # Heads
    Case(heads.LinearHead, "weights", [[1.0]], "shape (k,)", "(1, 1)"),
    Case(heads.LinearHead, "weights", [NAN], "finite", "NaN"),
    Case(heads.LinearHead, "weights", "b", "array of numbers", "str"),
    Case(heads.LinearHead, "weights", [[1.0], [1.0, 2.0]], "array of numbers", "inhomogeneous"),
    Case(heads.LinearHead, "weights", torch.tensor([1, 2]), "floating-point", "torch.int64"),
    Case(heads.LinearHead, "weights", [], "one entry for each token", "empty"),
    Case(heads.LinearHead, "weights", [1j], "floating-point numbers", "complex"),
    Case(heads.LinearHead, "condition", -1.0, "0 or more", "-1.0"),
    Case(heads.LinearHead, "error", [1.0], "shape (2,) to match weights", "(1,)"),
    Case(heads.LinearHead, "error", [NAN, 1.0], "finite", "NaN"),
    Case(heads.LinearHead, "error", np.float32([0.0, 1.0]), "one dtype and one device", "float32", said="parts"),
    *(
        Case(heads.AttentionHead, argument, value, accepted, found)
        for argument in ("query", "key", "value", "output", "positions")
        for value, accepted, found in (
            ("q", "array of numbers", "str"),
            (1.0, "shape", "()"),
            ([[1.0], [1.0, 2.0]], "array of numbers", "inhomogeneous"),
            (1j, "floating-point numbers", "complex"),
        )
    ),
    Case(heads.AttentionHead, "key", np.ones((3, 3)), "shape (2, 3)", "(3, 3)"),
    Case(heads.AttentionHead, "value", np.full((2, 3), INF), "finite", "infinity"),
    Case(heads.AttentionHead, "output", [1.0], "value must have shape (1, 3)", "(2, 3)", said="match the others"),
    Case(heads.AttentionHead, "positions", torch.ones(1, 2), "one dtype and one device", "float32", said="parts"),
    Case(heads.AttentionHead, "key_error", -1.0, "finite", "-1.0"),
    Case(heads.AttentionHead, "key_error", INF, "finite", "inf"),
    Case(heads.AttentionHead, "drift", "none", "finite", "'none'"),
    Case(heads.AttentionHead, "drift", 10**400, "finite", "10"),
    Case(heads.AttentionHead, "value_error", [1.0] * 5, "match the others", "(5,)"),
    Case(heads.AttentionHead, "value_error", [-1.0], "nonnegative", "-1"),
    Case(theorems.prompted_head, "drift", NAN, "finite", "nan"),
    Case(ATTENTION.soft, "sharpness", INF, "finite", "inf"),
    Case(ATTENTION.soft, "sharpness", "high", "0 or more", "'high'"),
    Case(LINEAR.__call__, "probs", torch.ones(2, 5), "shape (n, 4)", "(2, 5)"),
    Case(separation.fit_or_refute, "probs", torch.full((2, 4), 0.3), "sum to 1", "1.2"),
    Case(separation.fit_or_refute, "labels", [0, 2], "0 and 1", "not 2"),
    Case(separation.fit_or_refute, "labels", [True], "shape (2,)", "(1,)"),
    Case(separation.fit_or_refute, "labels", ["a", "b"], "0 and 1", "['a', 'b']"),
    Case(separation.fit_or_refute, "labels", [1.0, NAN], "0 and 1", "not nan"),
    # Example 4.1, and the ledger
    Case(sentences.farm, "difficult_cats", 1, "type bool", "int", TypeError),
    Case(SAID.encode, "text", 3, "type str", "int", TypeError),
    Case(SAID.encode, "text", "  ", "no words", "no words"),
    Case(SAID.encode, "text", "the cov sang", "near matches: cow", "'cov'", said="words"),
    Case(SAID.state, "cell", "verb", "subject, location, sentiment", "'verb'"),
    Case(SAID.state, "syntax", 3, "article, noun", "3"),
    Case(identities.confirm, "name", "Lemma 9", "Lemma C.1", "'Lemma 9'"),
    Case(patterns.decide, "name", ["Lemma D.9"], "Lemma D.9", "['Lemma D.9']"),
    Case(statements.find, "name", "Theorem 9", "Theorem 3.3", "'Theorem 9'", said="statement"),
    Case(ledger.run, "statement", "Theorem 3.3", "type Statement", "str", TypeError),
    Case(ledger.run, "seed", -1, "0 or more", "-1"),
    Case(ledger.draw_seeds, "seed", "0", "0 or more", "'0'"),
]

CASES = [*everywhere(), *OTHERS]


@tried("arguments of functions")
@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_a_bad_argument_is_named_with_what_was_found_and_what_is_accepted(case):
    case.check()


LONG = {patterns.decide, identities.confirm, local.run_side_by_side}
"""Minutes or seconds, and run by other tests."""


@pytest.mark.parametrize("of", [of for of in GOOD if of not in LONG], ids=lambda of: of.__qualname__)
def test_the_good_calls_are_good(of):
    call(of)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("share", [0.5, -0.5])
def test_columns_off_by_less_than_the_tolerance_pass(kind, share):
    off = share * {np.float64: 1e-9, np.float32: 1e-5}[kind]
    model = hmm.HMM(kind([[0.75 + off, 0.5], [0.25, 0.5]]), kind(np.eye(2)), kind([0.5, 0.5]))
    assert model.transition.sum(0)[0] == pytest.approx(1 + off, abs=abs(off) / 10)


# Every public function has a case.


def takes_data(function) -> bool:
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:  # an exception of Python's own
        return False
    return names not in ([], ["self"])


def modules() -> list[str]:
    """The library's modules, dotted, below `hmmlib`."""
    found = pkgutil.walk_packages(hmmlib.__path__, "hmmlib.")
    return [part.name.removeprefix("hmmlib.") for part in found if not part.ispkg]


def public() -> set[str]:
    """module:name of each function, class and method that takes something."""
    found = set()
    for name in modules():
        if any(name == inner or name.startswith(f"{inner}.") for inner in INNER_MODULES):
            continue
        module = importlib.import_module(f"hmmlib.{name}")
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        for value in own:
            methods = [getattr(value, name) for name in vars(value) if not name.startswith("_") or name == "__call__"]
            calls = [value, *methods] if inspect.isclass(value) else [value] if inspect.isfunction(value) else []
            found |= {f"{name}:{c.__qualname__}" for c in calls if callable(c) and takes_data(c)}
    return {name for name in found if ":_" not in name or ":_Chain." in name}


@pytest.mark.outside
def test_every_public_function_that_takes_data_has_a_case():
    cases = [*CASES, *TUNING_CASES, *FILE_CASES, *PARAMETER_CASES]
    covered = {f"{home(case.of)}:{case.of.__qualname__}" for case in cases}
    inner = {f"{module}:{name}" for module, names in INNER.items() for name in names.split()}
    expected = {name for name in public() - inner if name.split(":")[1] not in RESULTS}
    decide = "evidence.zero_patterns.patterns:decide"
    expected = {name for name in expected if not name.startswith("evidence.zero_patterns.") or name == decide}
    assert expected - covered == set()
    assert inner - public() == set(), "exempt, but not there"
    assert set(INNER_MODULES) <= {*modules(), "evidence.random_models"}
    at_root = [value for value in (getattr(hmmlib, name) for name in hmmlib.__all__) if callable(value)]
    names = {value.__qualname__ for value in at_root if takes_data(value)}
    assert names - {*RESULTS, *AT_ROOT} <= {name.split(":")[1] for name in covered}
    assert set(AT_ROOT) <= names, "exempt, but not there"
