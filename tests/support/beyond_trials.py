"""The stored trials of *Beyond the paper*, and what several files of tests read off them."""

from hmmlib.experiments.specs import panel_specs, select
from hmmlib.experiments.store import STORE, load_result, load_results, result_path
from hmmlib.experiments.summaries import mean, size

RESULTS = [load_result(result_path(spec, STORE / "beyond")) for spec in panel_specs("quick", "left", 20)]
ALL = load_results("quick", STORE / "beyond")
SIZES = (4, 8, 10, 15, 25, 30)


def of(n_states):
    """The twenty trials with so many states."""
    return [r for r in RESULTS if size(r) == n_states]


def means(read, sizes=SIZES):
    """The mean at each of the sizes."""
    return [mean(map(read, of(n_states))) for n_states in sizes]


def apart(family, kind="all"):
    """What reads how far a family is from what is said behind the prompt."""
    return lambda r: r.readout_distances[family][kind]


def needing(group):
    """The trials that need their prompt: it is better than the head by five points."""
    return [r for r in group if r.prompt_accuracy - r.head_accuracy >= 0.05]


def after(steps, n_states, **fields):
    """The ten trials of a size after so many steps."""
    fields |= {} if steps == 400 else {"steps": steps}
    found = [r for r in select(ALL, **fields) if size(r) == n_states and r.spec.seed < 10]
    assert len(found) == 10
    return found
