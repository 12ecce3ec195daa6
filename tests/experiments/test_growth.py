"""Three additions to experiments, tried on a copy of the library: a field, a measurement, a label rule.

Each is a few lines in at most three files; after it, and after all three, stored results are read under the same names,
with the same numbers, and saved again to the same bytes.
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
from hmmlib.experiments.store import STORE, save_result
from hmmlib.experiments.trials import run_trial

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]

START = """
import json, sys
from dataclasses import replace
from pathlib import Path
import torch
from hmmlib.experiments import trials
from hmmlib.experiments.specs import TrialSpec, as_field
from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE, load_result, load_results, result_path, save_result
from hmmlib.experiments.trials import draw_model, draw_trial_task, measure, run_trial
from hmmlib.inference.messages import posterior
from runs import TINY, numbers

torch.set_num_threads(1)
HASH, NUMBERS, OLD, mine = json.loads(sys.argv[1])
mine = Path(mine)
assert Path(trials.__file__).is_relative_to(mine.parent), "the copy is what runs"
for path in sorted(STORE.glob("*/*.json")):
    copy = save_result(load_result(path), mine)
    assert (copy.name, copy.read_bytes()) == (path.name, path.read_bytes()), path
plain = TrialSpec("smoke", **TINY)
assert plain.hash == HASH
as_before = run_trial(plain)
assert numbers(as_before) | {"added": {}} == NUMBERS | {"added": {}}, "all means as before"
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

MEASUREMENT = [
    (
        "experiments/measurements.py",
        '@Measurement("divergence"',
        '''@Measurement("posterior_entropy")
def posterior_entropy(task: Task) -> dict:
    """Entropy of what the labels weigh, nats, mean over test inputs."""
    return dict(posterior_entropy=torch.special.entr(task.split(task.posteriors)[2]).sum(1).mean().item())


@Measurement("confidence")
def confidence(task: Task, outputs: Tensor) -> dict:
    """The network's largest probability at the mask, mean over test inputs."""
    return dict(confidence=task.split(outputs[:, 0])[2].amax(1).double().mean().item())


@Measurement("divergence"''',
    )
]
MEASUREMENT_SHOWN = """
assert set(as_before.added) == {"posterior_entropy", "confidence"}
assert 0 < as_before.posterior_entropy < 1.1 and 0.25 < as_before.confidence < 1
assert {"posterior entropy", "confidence"} <= set(as_before.seconds)
assert load_result(save_result(as_before, mine)) == as_before
bare = load_result(OLD)  # a trial of the unchanged library, run on this machine
assert bare.posterior_entropy is None and bare.confidence is None
with_network = measure(bare, ["confidence"])
assert with_network.confidence == as_before.confidence and with_network.posterior_entropy is None

pretrain, trials.pretrain = trials.pretrain, None  # it is not needed
assert measure(bare, ["posterior_entropy"]).posterior_entropy == as_before.posterior_entropy
stored = next(result for result in load_results("smoke") if result.spec.n_memory > 1)
before = json.loads(result_path(stored.spec).read_text())
more = measure(stored, ["posterior_entropy"])
after = json.loads(save_result(more).read_text())
assert after.pop("posterior_entropy") == more.posterior_entropy > 0
assert after["seconds"].pop("posterior entropy") >= 0 and after["environment"].pop("posterior_entropy measured")
assert after == before, "all else is kept"
assert load_result(result_path(stored.spec)) == more
trials.pretrain = pretrain
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
    "a measurement": (MEASUREMENT, MEASUREMENT_SHOWN),
    "a label rule": (LABEL_RULE, LABEL_RULE_SHOWN),
}


@pytest.mark.parametrize(
    "names", [[*ADDITIONS], *(pytest.param([name], marks=slow) for name in ADDITIONS)], ids=" and ".join
)
def test_after_additions_all_results_stay_as_they_are(names, tmp_path):
    """One at a time in long; in short all three, on a copy of the library in a folder of its own."""
    torch.set_num_threads(1)
    result = run_trial(TrialSpec("smoke", **TINY))
    shutil.copytree(ROOT / "hmmlib", tmp_path / "hmmlib")  # compiled loops with it, which are not compiled again
    shutil.copytree(STORE, tmp_path / "results", ignore=shutil.ignore_patterns(".*", "beyond", "choices"))
    for file, old, new in (edit for name in names for edit in ADDITIONS[name][0]):
        path = tmp_path / "hmmlib" / file
        assert path.read_text().count(old) == 1, old
        path.write_text(path.read_text().replace(old, new))
    old = save_result(result, tmp_path / "before")
    given = json.dumps([result.spec.hash, numbers(result), str(old), str(tmp_path / "mine")])
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "tests" / "support")])
    environment = {**os.environ, "PYTHONPATH": paths, "HMMLIB_MINE": str(tmp_path / "home")}
    call = [sys.executable, "-c", START + "".join(ADDITIONS[name][1] for name in names), given]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
