"""Three additions to experiments, tried on a copy of the library: a field, a measurement, a label rule.

Each is a few lines in at most three files; after it, and after all three, all stored results are read under the same
names, with the same numbers, and saved again to the same bytes.
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
plain, changed = TrialSpec("smoke", **TINY), TrialSpec("smoke", **TINY, weight_decay=0.5)
assert plain.weight_decay == 0.0 and plain == TrialSpec("smoke", **TINY, weight_decay=0)
assert plain.hash == HASH != changed.hash
assert "weight_decay" not in plain.content() and changed.content()["weight_decay"] == 0.5
as_before, other = run_trial(plain), run_trial(changed)
assert numbers(as_before) | {"added": {}} == NUMBERS | {"added": {}}, "this value means as before"
assert other.backbone != as_before.backbone
path = save_result(other, mine)
assert path.name == f"{changed.hash}.json" and load_result(path) == other
assert (results("smoke").weight_decay == 0).all()
assert as_field("weight_decay", "0.5") == 0.5
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
new = run_trial(TrialSpec("smoke", **TINY))
assert numbers(new) | {"added": {}} == NUMBERS | {"added": {}}
assert set(new.added) == {"posterior_entropy", "confidence"}
assert 0 < new.posterior_entropy < 1.1 and 0.25 < new.confidence < 1
assert {"posterior entropy", "confidence"} <= set(new.seconds)
assert load_result(save_result(new, mine)) == new

bare, pretrain = load_result(OLD), trials.pretrain  # a trial of the unchanged library, run on this machine
assert bare.posterior_entropy is None and bare.confidence is None
with_network = measure(bare, ["confidence"])
assert with_network.confidence == new.confidence and with_network.posterior_entropy is None

def pretrained(*_):
    raise AssertionError("a network was pretrained that the measurement does not need")

trials.pretrain = pretrained
stored = next(result for result in load_results("smoke") if result.spec.n_memory > 1)
before = json.loads(result_path(stored.spec).read_text())
more = measure(stored, ["posterior_entropy"])
assert more.posterior_entropy > 0 and more.confidence is None
after = json.loads(save_result(more).read_text())
assert after.pop("posterior_entropy") == more.posterior_entropy
assert after["seconds"].pop("posterior entropy") >= 0 and after["environment"].pop("posterior_entropy measured")
assert after == before, "all else is kept"
assert load_result(result_path(stored.spec)) == more
assert measure(bare, ["posterior_entropy"]).posterior_entropy == new.posterior_entropy
try:
    measure(replace(bare, backbone="another"), ["confidence"])
except AssertionError:
    pass
else:
    raise RuntimeError("no network was pretrained for what needs one")
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
for wrong in (
    lambda: TrialSpec("smoke", labels="ahed"),
    lambda: draw_task(model, 5, (4, 0, 0), 0, "ahed"),
    lambda: tune_on_exact_outputs(model, task, torch.ones(120, 4), spec.tuning(), 0, "ahed"),
):
    try:
        wrong()
    except ValueError as error:
        assert "ahead" in str(error) and "not 'ahed'" in str(error), error
    else:
        raise AssertionError("a word without a row was taken for another")
"""

START = """
import json, sys
from dataclasses import replace
from pathlib import Path
import torch
from hmmlib.experiments import trials
from hmmlib.experiments.labels import draw_task
from hmmlib.experiments.measurements import tune_on_exact_outputs
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
paths = sorted(STORE.glob("*/*.json"))
for path in paths:
    copy = save_result(load_result(path), mine)
    assert (copy.name, copy.read_bytes()) == (path.name, path.read_bytes()), path
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A tiny trial of the library as it is: hash, numbers and file."""
    torch.set_num_threads(1)
    result = run_trial(TrialSpec("smoke", **TINY))
    return result.spec.hash, numbers(result), str(save_result(result, tmp_path_factory.mktemp("before")))


ADDITIONS = {
    "a field of a spec": (FIELD, FIELD_SHOWN),
    "a measurement": (MEASUREMENT, MEASUREMENT_SHOWN),
    "a label rule": (LABEL_RULE, LABEL_RULE_SHOWN),
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_is_a_few_lines_in_at_most_three_files(name):
    edits, _ = ADDITIONS[name]
    assert len({file for file, _, _ in edits}) <= 3
    assert sum(len(set(new.splitlines()) - set(old.splitlines())) for _, old, new in edits) <= 25


def grown(names, before, folder):
    """Make these additions to a copy of the library in that folder, and run there what shows them."""
    shutil.copytree(ROOT / "hmmlib", folder / "hmmlib")  # compiled loops with it, which are not compiled again
    shutil.copytree(STORE, folder / "results", ignore=shutil.ignore_patterns(".*"))
    for file, old, new in (edit for name in names for edit in ADDITIONS[name][0]):
        path = folder / "hmmlib" / file
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))
    given = json.dumps([*before, str(folder / "mine")])
    paths = os.pathsep.join([str(folder), str(ROOT / "tests" / "support")])
    environment = {**os.environ, "PYTHONPATH": paths, "HMMLIB_MINE": str(folder / "home")}
    call = [sys.executable, "-c", START + "".join(ADDITIONS[name][1] for name in names), given]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(STORE.glob("*/*.json"))) == len(list((folder / "results").glob("*/*.json")))


@pytest.mark.parametrize(
    "names", [[*ADDITIONS], *(pytest.param([name], marks=slow) for name in ADDITIONS)], ids=" and ".join
)
def test_after_additions_all_results_stay_as_they_are(names, before, tmp_path):
    grown(names, before, tmp_path)


def test_the_library_as_it_is_has_none_of_them():
    for fields in (dict(labels="ahead"), dict(weight_decay=0.1)):
        with pytest.raises((ValueError, TypeError), match=r"labels: Input should be 'masked', 'before'|weight_decay"):
            TrialSpec("smoke", **fields)
