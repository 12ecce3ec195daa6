"""Sixty damages to inference and theory, in the source, and what the ledger alone says to each: `make damages`.

Each is one small change of a kind that people make: an index, a transpose, a threshold, a dropped factor, a missing
requirement, two things swapped. A copy of the library gets it, and every statement's check and control is run there.
"""

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


TABLE = [
    ("inference/forward_backward.py", [
        ("the prior of the memory dropped (torch)", "prior = model.memory.reshape(-1, 1)",
         "prior = torch.ones_like(model.memory.reshape(-1, 1))"),
    ]),
    ("inference/messages.py", [
        ("a state looks up the cell from the end", "states // model.n_syntax * model.n_memory",
         "(model.n_cells - 1 - states // model.n_syntax) * model.n_memory"),
        ("always the first cell", "model.joint_values()[:, cell]", "model.joint_values()[:, 0]"),
        ("the prompt behind the text", "torch.cat([prompt.expand(len(embeddings), 1, -1), embeddings], 1)",
         "torch.cat([embeddings, prompt.expand(len(embeddings), 1, -1)], 1)"),
        ("behind a prompt, a masked position is a token", "torch.where(tokens == MASK, -1, tokens + 1)",
         "tokens.clamp(min=0) + 1"),
        ("G sees the token itself", "prompt), slice(1, None), False, _token", "prompt), slice(1, None), True, _token"),
        ("the latent sees its own token", "slice(1, None), False, _latent", "slice(1, None), True, _latent"),
        ("what is possible: rows one position early", "[torch.ones_like(rows[0]), *rows]",
         "[*rows, torch.ones_like(rows[0])]"),
        ("what is possible: from the left only", "variable.groups, forward * backward)", "variable.groups, forward)"),
    ]),
    ("inference/forward_backward.py", [
        ("predict before conditioning", "(mantissa * row) @ carry", "(mantissa @ carry) * row"),
        ("the own evidence counts twice", "f * b * row if own", "f * b * row * row if own"),
        ("the scale of the own evidence kept", "- (0 if own else scale[at])", "- 0"),
        ("A for its transpose on the way back", "[:0:-1], transition.contig", "[:0:-1], transition.T.contig"),
    ]),
    ("inference/compiled.py", [
        ("the past alone", "out[b, s] = forward[b, s] * backward[b, s]", "out[b, s] = forward[b, s]"),
        ("the prior of the memory dropped", "factor = prior[k] * powers", "factor = powers"),
        ("every sequence reads the first one's tokens", "rows[index[c]], after[c]", "rows[index[0]], after[c]"),
        ("forward, one token late", "index[:, i - 2], product", "index[:, max(i - 3, 0)], product"),
        ("backward, one token early", "index[:, i - 1], product", "index[:, max(i - 2, 0)], product"),
        ("laws that do not sum to 1", "inverse = 1 / mass if mass > 0", "inverse = 1 / (mass + mass) if mass > 0"),
        ("H_1 has the law of H_0", "np.dot(message, step, after)", "copy(message.reshape(-1), after.reshape(-1))"),
        ("the transposed chain on the way there", "np.dot(product, step, after)", "np.dot(product, chain.back, after)"),
    ]),
    ("theory/assumptions.py", [
        ("any period will do", "irreducible and period == 1 and", "irreducible and"),
        ("reducible chains pass", "irreducible and period == 1 and", "period < 2 and"),
        ("a start of one state will do", "support == n_states)", "support > 0)"),
        ("negative weights may lie outside H*", '"uncovered": (mu != 0) & ~inside', '"uncovered": (mu > 0) & ~inside'),
        ("sources lead out of H*", "~(follows & ~inside[:, None]).any(0)", "~(follows & inside[:, None]).any(0)"),
        ("the way in, transposed", "~(follows & into).any(1)", "~(follows & into).any(0)"),
        ("of other cells supp(μ) only", "h not in own for m in range(model.n_memory)", "h not in own for m in values"),
        ("other syntax states forgotten", "for h in own if h not in states", "for h in own[:0]"),
        ("drift in absolute terms", "after / start - 1)", "after - start)"),
        ("stationary for the transpose", "model.transition.detach() @ start", "model.transition.detach().T @ start"),
        ("the states that are wanted are the set", "return sorted(states)", "return sorted(wanted)"),
        ("Assumption 4.2 for one value", "model, cell, syntax, None)", "model, cell, syntax, [0])"),
        ("Assumption 4.5 for all values", "model, 0, syntax, weighted_values(model, mu))", "model, 0, syntax, None)"),
        ("Assumption D.5 for all values", ", cell, syntax, weighted_values(model, mu))", ", cell, syntax, None)"),
        ("a tolerance of a thousandth", "max(columns.shape) * torch.finfo(columns.dtype).eps", "1e-3"),
        ("a span of one dimension", "return Span(left[:, :rank], unit *", "return Span(left[:, :1], unit *"),
        ("too many columns are independent", "verdict = of_bool(few)", "verdict = of_bool(rank > 0)"),
        ("spans that meet are apart", "(None, n_columns) else Verdict.FAILS", "(None, n_columns) else Verdict.HOLDS"),
    ]),
    ("theory/heads.py", [
        ("a tie is label 0", "return self(probs, length) >= 0", "return self(probs, length) > 0"),
        ("a tie is label 0 (attention)", "return self(probs, embeddings) >= 0", "return self(probs, embeddings) > 0"),
        ("everything is attended", "(scores - bounds).amax(", "(scores - bounds).amin("),
        ("a sum for the mean", "* chosen).sum(1) / chosen.sum(1)", "* chosen).sum(1)"),
        ("values without embeddings", "((probs @ self.value.T) * embeddings) @ self", "(probs @ self.value.T) @ self"),
        ("position embeddings ignored", "scores[:, :placed] + positions[:placed]", "scores[:, :placed]"),
        ("what is below a thousandth is zero", "(ZERO + length) * torch.finfo(dtype).eps", "1e-3"),
    ]),
    ("theory/theorems.py", [
        ("D inverted", "return model.marginal(i) / start", "return start / model.marginal(i)"),
        ("D where its inverse should be", "undone = mu / factor", "undone = mu * factor"),
        ("D of the second step", "claim_b_1(model, 1)), condition)", "claim_b_1(model, 2)), condition)"),
        ("the law of H_1 dropped", "(prompt * model.marginal(1)) / start", "prompt / start"),
        ("a prompt that is H* itself", "prompt[list(report.sources)] = 1", "prompt[essential] = 1"),
        ("values of the memory in reverse", ".theta_2.transpose(0, 1)  # (D", ".theta_2.transpose(0, 1).flip(0)  # (D"),
        ("μ for the first cell", "(model.n_cells, -1))[:, recovery.cell]", "(model.n_cells, -1))[:, 0]"),
        ("the query asks for every state", "query[states] = 1", "query[:-1] = 1"),
        ("β_1 of the paper", "-(1 + (query @ key).max().clamp(min=1))", "-2"),
        ("the prompt speaks of the first cell", "table.movedim(cell, 0)", "table.movedim(0, 0)"),
        ("P[H_1] / P[H_0]", "model.initial / first, 0)", "first / model.initial.clamp(min=1e-9), 0)"),
        ("one value for the sum of all", "readings.unflatten(0, size).sum(1)", "readings.unflatten(0, size)[:, 0]"),
        ("Theorem 3.6 takes any H*", "(model, mu, essential).require()", "(model, mu, essential)"),
        ("Theorem 4.6 takes any start", "assumption_4_4(model).require().drift", "assumption_4_4(model).drift"),
    ]),
]  # fmt: skip
DAMAGES = [Damage(file, *row) for file, rows in TABLE for row in rows]
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
    """The statements whose verdict is another with this damage (noticed), or whose check ends with an error
    (stopped)."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "hmmlib")
        shutil.copytree(ROOT / "hmmlib", library)  # with what is compiled, and the times by which that is known
        if damage:
            (library / damage.file).write_text(applied(damage))
        environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'book'}", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", LEDGER], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
    found = {"": done.stderr.splitlines()[-1]} if done.returncode else json.loads(done.stdout)
    stopped = [name for name, as_recorded in found.items() if isinstance(as_recorded, str)]
    return {"noticed": [name for name, as_recorded in found.items() if as_recorded is False], "stopped": stopped}


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
