"""Sixty damages to inference and theory, in the source, and what the ledger alone says to each: `make damages`.

Each is one small change of a kind that people make: an index, a transpose, a threshold, a dropped factor, a missing
requirement, two things swapped. A copy of the library gets it, and every statement's check and control is run there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests/results/damages.json"
INSTANCES, SEED = 20, 5


class Damage(NamedTuple):
    """In `file` of the library, `old` becomes `new`; `words` say what that is."""

    file: str
    words: str
    old: str
    new: str


MESSAGES, PASSES, LOOPS = (f"inference/{name}.py" for name in ("messages", "forward_backward", "compiled"))
PREDICATES, HEADS, THEOREMS = (f"theory/{name}.py" for name in ("assumptions", "heads", "theorems"))
DAMAGES = [
    Damage(PASSES, "the prior of the memory dropped (torch)",
           "prior = model.memory.reshape(-1, 1)", "prior = torch.ones_like(model.memory.reshape(-1, 1))"),
    Damage(MESSAGES, "a state looks up the cell from the end", "states // model.n_syntax * model.n_memory",
           "(model.n_cells - 1 - states // model.n_syntax) * model.n_memory"),
    Damage(MESSAGES, "always the first cell", "model.joint_values()[:, cell]", "model.joint_values()[:, 0]"),
    Damage(MESSAGES, "the prompt behind the text", "torch.cat([prompt.expand(len(embeddings), 1, -1), embeddings], 1)",
           "torch.cat([embeddings, prompt.expand(len(embeddings), 1, -1)], 1)"),
    Damage(MESSAGES, "behind a prompt, a masked position is a token",
           "torch.where(tokens == MASK, -1, tokens + 1)", "tokens.clamp(min=0) + 1"),
    Damage(MESSAGES, "G sees the token itself",
           "_read(model, _evidence(model, tokens, prompt), slice(1, None), False, _token(model))[0]",
           "_read(model, _evidence(model, tokens, prompt), slice(1, None), True, _token(model))[0]"),
    Damage(MESSAGES, "the latent sees its own token",
           "_read(model, _evidence(model, tokens, prompt), slice(1, None), False, _latent(model))[0]",
           "_read(model, _evidence(model, tokens, prompt), slice(1, None), True, _latent(model))[0]"),
    Damage(MESSAGES, "what is possible: rows one position early", "[torch.ones_like(rows[0]), *rows]",
           "[*rows, torch.ones_like(rows[0])]"),
    Damage(MESSAGES, "what is possible: from the left only",
           "variable.groups, forward * backward)", "variable.groups, forward)"),
    Damage(PASSES, "predict before conditioning", "(mantissa * row) @ carry", "(mantissa @ carry) * row"),
    Damage(PASSES, "the own evidence counts twice", "f * b * row if own", "f * b * row * row if own"),
    Damage(PASSES, "the scale of the own evidence kept", "- (0 if own else scale[at])", "- 0"),
    Damage(PASSES, "A for its transpose on the way back", "rows[:0:-1], transition.contiguous()",
           "rows[:0:-1], transition.T.contiguous()"),
    Damage(LOOPS, "the past alone", "out[b, s] = forward[b, s] * backward[b, s]", "out[b, s] = forward[b, s]"),
    Damage(LOOPS, "the prior of the memory dropped", "factor = prior[k] * powers", "factor = powers"),
    Damage(LOOPS, "every sequence reads the first one's tokens", "rows[index[c]], after[c]",
           "rows[index[0]], after[c]"),
    Damage(LOOPS, "forward, one token late", "index[:, i - 2], product", "index[:, max(i - 3, 0)], product"),
    Damage(LOOPS, "backward, one token early", "index[:, i - 1], product", "index[:, max(i - 2, 0)], product"),
    Damage(LOOPS, "laws that do not sum to 1", "inverse = 1 / mass if mass > 0",
           "inverse = 1 / (mass + mass) if mass > 0"),
    Damage(LOOPS, "H_1 has the law of H_0", "np.dot(message, step, after)",
           "copy(message.reshape(-1), after.reshape(-1))"),
    Damage(LOOPS, "the transposed chain on the way there", "np.dot(product, step, after)",
           "np.dot(product, chain.back, after)"),
    Damage(PREDICATES, "any period will do", "irreducible and period == 1 and", "irreducible and"),
    Damage(PREDICATES, "reducible chains pass", "irreducible and period == 1 and", "period < 2 and"),
    Damage(PREDICATES, "a start of one state will do", "support == n_states)", "support > 0)"),
    Damage(PREDICATES, "negative weights may lie outside H*", '"uncovered": (mu != 0) & ~inside',
           '"uncovered": (mu > 0) & ~inside'),
    Damage(PREDICATES, "sources lead out of H*", "~(follows & ~inside[:, None]).any(0)",
           "~(follows & inside[:, None]).any(0)"),
    Damage(PREDICATES, "the way in, transposed", "~(follows & into).any(1)", "~(follows & into).any(0)"),
    Damage(PREDICATES, "of other cells supp(μ) only", "if h not in own for m in range(model.n_memory)",
           "if h not in own for m in values"),
    Damage(PREDICATES, "other syntax states forgotten", "for h in own if h not in states", "for h in own[:0]"),
    Damage(PREDICATES, "drift in absolute terms", "after / start - 1)", "after - start)"),
    Damage(PREDICATES, "stationary for the transpose", "model.transition.detach() @ start",
           "model.transition.detach().T @ start"),
    Damage(PREDICATES, "the states that are wanted are the set", "return sorted(states)", "return sorted(wanted)"),
    Damage(PREDICATES, "Assumption 4.2 for one value", "model, cell, syntax, None)", "model, cell, syntax, [0])"),
    Damage(PREDICATES, "Assumption 4.5 for all values", "model, 0, syntax, weighted_values(model, mu))",
           "model, 0, syntax, None)"),
    Damage(PREDICATES, "Assumption D.5 for all values", "model, cell, syntax, weighted_values(model, mu))",
           "model, cell, syntax, None)"),
    Damage(PREDICATES, "a tolerance of a thousandth", "max(columns.shape) * torch.finfo(columns.dtype).eps", "1e-3"),
    Damage(PREDICATES, "a span of one dimension", "return Span(left[:, :rank], unit *",
           "return Span(left[:, :1], unit *"),
    Damage(PREDICATES, "too many columns are independent", "verdict = of_bool(few)",
           "verdict = of_bool(rank > 0)"),
    Damage(PREDICATES, "spans that meet are apart", "exact in (None, n_columns) else Verdict.FAILS",
           "exact in (None, n_columns) else Verdict.HOLDS"),
    Damage(HEADS, "a tie is label 0", "return self(probs, length) >= 0", "return self(probs, length) > 0"),
    Damage(HEADS, "a tie is label 0 (attention)", "return self(probs, embeddings) >= 0",
           "return self(probs, embeddings) > 0"),
    Damage(HEADS, "everything is attended", "(scores - bounds).amax(1, keepdim=True)",
           "(scores - bounds).amin(1, keepdim=True)"),
    Damage(HEADS, "a sum for the mean", "* chosen).sum(1) / chosen.sum(1)", "* chosen).sum(1)"),
    Damage(HEADS, "values without embeddings", "((probs @ self.value.T) * embeddings) @ self.output",
           "(probs @ self.value.T) @ self.output"),
    Damage(HEADS, "position embeddings ignored", "scores[:, :placed] + positions[:placed]", "scores[:, :placed]"),
    Damage(HEADS, "what is below a thousandth is zero", "(ZERO + length) * torch.finfo(dtype).eps", "1e-3"),
    Damage(THEOREMS, "D inverted", "return model.marginal(i) / start", "return start / model.marginal(i)"),
    Damage(THEOREMS, "D where its inverse should be", "undone = mu / factor", "undone = mu * factor"),
    Damage(THEOREMS, "D of the second step", "claim_b_1(model, 1)), condition)", "claim_b_1(model, 2)), condition)"),
    Damage(THEOREMS, "the law of H_1 dropped", "(prompt * model.marginal(1)) / start", "prompt / start"),
    Damage(THEOREMS, "a prompt that is H* itself", "prompt[list(report.sources)] = 1", "prompt[essential] = 1"),
    Damage(THEOREMS, "values of the memory in reverse", "recovery.theta_2.transpose(0, 1)  # (D.2)",
           "recovery.theta_2.transpose(0, 1).flip(0)  # (D.2)"),
    Damage(THEOREMS, "μ for the first cell",
           "(model.n_cells, -1))[:, recovery.cell]",
           "(model.n_cells, -1))[:, 0]"),
    Damage(THEOREMS, "the query asks for every state", "query[states] = 1", "query[:-1] = 1"),
    Damage(THEOREMS, "β_1 of the paper", "-(1 + (query @ key).max().clamp(min=1))", "-2"),
    Damage(THEOREMS, "the prompt speaks of the first cell", "table.movedim(cell, 0)", "table.movedim(0, 0)"),
    Damage(THEOREMS, "P[H_1] / P[H_0]", "model.initial / first, 0)", "first / model.initial.clamp(min=1e-9), 0)"),
    Damage(THEOREMS, "one value for the sum of all", "readings.unflatten(0, size).sum(1)",
           "readings.unflatten(0, size)[:, 0]"),
    Damage(THEOREMS, "Theorem 3.6 takes any H*", "assumption_3_5(model, mu, essential).require()",
           "assumption_3_5(model, mu, essential)"),
    Damage(THEOREMS, "Theorem 4.6 takes any start", "assumption_4_4(model).require().drift",
           "assumption_4_4(model).drift"),
]  # fmt: skip
LEDGER = f"""
import json
from companion.evidence import ledger
import torch
torch.set_num_threads(1)
found = {{}}
for statement in ledger.STATEMENTS:
    try:
        found[statement.name] = ledger.run(statement, {INSTANCES}, {SEED}).as_recorded
    except Exception as error:
        found[statement.name] = type(error).__name__
print(json.dumps(found))
"""


def applied(damage: Damage) -> str:
    """The damaged source; LookupError where its line is not there once."""
    source = (ROOT / "hmmlib" / damage.file).read_text()
    if source.count(damage.old) != 1:
        raise LookupError(f"{damage.file} has {source.count(damage.old)} times {damage.old!r}, not once")
    return source.replace(damage.old, damage.new)


def verdicts(damage: Damage | None) -> dict[str, list[str]]:
    """The statements of which the verdict is another with this damage (noticed), or the check ends with an error
    (stopped)."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "hmmlib")
        shutil.copytree(ROOT / "hmmlib", library)  # with what is compiled, and the times by which that is known
        if damage:
            (library / damage.file).write_text(applied(damage))
        path = os.pathsep.join([folder, str(ROOT / "book")])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", LEDGER], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
    found = {"": done.stderr.splitlines()[-1]} if done.returncode else json.loads(done.stdout)
    noticed = [name for name, as_recorded in found.items() if as_recorded is False]
    return {
        "noticed": noticed,
        "stopped": [name for name, as_recorded in found.items() if isinstance(as_recorded, str)],
    }


def main() -> None:
    if any(missed := verdicts(None).values()):
        sys.exit(f"the ledger is not as recorded without a damage: {list(missed)}")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(verdicts, DAMAGES))
    rows = [{"file": one.file, "words": one.words, **changed} for one, changed in zip(DAMAGES, found, strict=True)]
    for row in rows:
        print(f"{row['file']:32}{row['words']:50}{len(row['noticed']):3} verdicts, {len(row['stopped'])} errors")
    print(f"{sum(bool(row['noticed']) for row in rows)} of {len(rows)} change a verdict")
    content = {"instances": INSTANCES, "seed": SEED, "damages": rows}
    STORED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
