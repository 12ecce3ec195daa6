"""Two additions to experiments, tried on a copy of the library: a field of a spec and a label rule, a few lines each.

Stored results are then read under the same names, with the same numbers, and saved again to the same bytes. What a new
measurement adds is tried in test_measurements.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from record import slow
from runs import TINY, numbers

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import STORE
from hmmlib.experiments.trials import run_trial

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]

START = """
import json, sys
from pathlib import Path
import torch
from hmmlib.experiments import trials
from hmmlib.experiments.specs import TrialSpec, as_field
from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE, load_result, save_result
from hmmlib.experiments.trials import draw_model, draw_trial_task, run_trial
from hmmlib.inference.messages import posterior
from runs import TINY, numbers

torch.set_num_threads(1)
HASH, NUMBERS, mine = json.loads(sys.argv[1])
mine = Path(mine)
assert Path(trials.__file__).is_relative_to(mine.parent), "the copy is what runs"
for path in sorted(STORE.glob("*/*.json")):
    copy = save_result(load_result(path), mine)
    assert (copy.name, copy.read_bytes()) == (path.name, path.read_bytes()), path
plain = TrialSpec("smoke", **TINY)
assert plain.hash == HASH
as_before = run_trial(plain)
assert numbers(as_before) == NUMBERS, "all means as before"
"""

FIELD = [
    (
        "experiments/specs.py",
        "    evaluation: Size = FROM_PRESET\n",
        "    evaluation: Size = FROM_PRESET\n    weight_decay: PositiveOrZero = field_added_later(default=0.0)\n",
    ),
    (
        "training/pretraining.py",
        '    precision: str = "single"\n\n',
        '    precision: str = "single"\n    weight_decay: float = 0.0\n\n',
    ),
    (
        "training/pretraining.py",
        "lr=plan.learning_rate, weight_decay=0.0",
        "lr=plan.learning_rate, weight_decay=plan.weight_decay",
    ),
]
FIELD_SHOWN = """
changed = TrialSpec("smoke", **TINY, weight_decay=0.5)
assert plain.weight_decay == 0.0 and plain == TrialSpec("smoke", **TINY, weight_decay=0)
assert "weight_decay" not in plain.content() and changed.content()["weight_decay"] == 0.5
other = run_trial(changed)
assert changed.hash != HASH and other.backbone != as_before.backbone
path = save_result(other, mine)
assert path.name == f"{changed.hash}.json" and load_result(path) == other
assert (results("smoke").weight_decay == 0).all() and as_field("weight_decay", "0.5") == 0.5
"""

LABEL_RULE = [
    (
        "experiments/labels.py",
        '    "stepped": LabelRule(\n',
        """    "ahead": LabelRule(
        hidden=False,
        posterior=lambda model, observed: posterior(model, observed, at=1),  # P[H_1 | X_{1:T} = x]
        head=theorem_3_3,
        origin=lambda model: HMM(model.transition, model.emission, model.marginal(1), columns=True),
    ),
    "stepped": LabelRule(
""",
    )
]
LABEL_RULE_SHOWN = """
spec = TrialSpec("smoke", **TINY, labels="ahead")
model = draw_model(spec)
task, before = (draw_trial_task(TrialSpec("smoke", **TINY, labels=word), model) for word in ("ahead", "before"))
assert torch.equal(task.tokens, before.tokens) and not torch.equal(task.posteriors, before.posteriors)
assert torch.equal(task.posteriors, posterior(model, task.tokens[:, 1:], at=1))
result = run_trial(spec)
assert spec.hash != HASH and load_result(save_result(result, mine)) == result
assert result.ladder_prompt_accuracy is not None and result.built_head_accuracy is not None
assert run_trial(TrialSpec("smoke", **TINY, labels="ahead", n_memory=2)).attention_accuracy is not None
"""

ADDITIONS = {
    "a field of a spec": (FIELD, FIELD_SHOWN),
    "a label rule": (LABEL_RULE, LABEL_RULE_SHOWN),
}


@pytest.mark.parametrize(
    "names", [[*ADDITIONS], *(pytest.param([name], marks=slow) for name in ADDITIONS)], ids=" and ".join
)
def test_after_additions_all_results_stay_as_they_are(names, tmp_path):
    """One at a time in long; in short both, on a copy of the library in a folder of its own."""
    torch.set_num_threads(1)
    result = run_trial(TrialSpec("smoke", **TINY))
    shutil.copytree(ROOT / "hmmlib", tmp_path / "hmmlib")  # compiled loops with it, which are not compiled again
    shutil.copytree(STORE, tmp_path / "results", ignore=shutil.ignore_patterns(".*", "beyond", "choices"))
    for file, old, new in (edit for name in names for edit in ADDITIONS[name][0]):
        path = tmp_path / "hmmlib" / file
        assert path.read_text().count(old) == 1, old
        path.write_text(path.read_text().replace(old, new))
    given = json.dumps([result.spec.hash, numbers(result), str(tmp_path / "mine")])
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "tests" / "support")])
    environment = {**os.environ, "PYTHONPATH": paths, "HMMLIB_MINE": str(tmp_path / "home")}
    call = [sys.executable, "-c", START + "".join(ADDITIONS[name][1] for name in names), given]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
