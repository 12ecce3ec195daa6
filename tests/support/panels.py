"""The stored trials of Figure 3, as tests of several pages read them."""

from functools import lru_cache

from pandas import DataFrame, Series

from hmmbook import draw_model, draw_trial_task, mean_ci, results
from hmmbook.experiments.intervals import Interval, difference_ci
from hmmbook.experiments.results import spec_of
from hmmbook.experiments.store import BEYOND, STORE
from hmmbook.studies.least_loss import least_loss_accuracy
from hmmbook.studies.likeliest import opposite_weights_share_a_token, table_accuracy

LEFT_SIZES = [4, 8, 10, 15, 25, 30]
RIGHT_SIZES = [8, 12, 20, 28]
ATTENTION = "attention_accuracy"
LINEAR = "head_accuracy"


@lru_cache
def left_panel() -> DataFrame:
    """The left panel's 120 trials, with what simple rules reach on their exact models."""
    table = results("quick", STORE).query("changes == '' and n_memory == 1 and seed < 20 and n_states in @LEFT_SIZES")
    rules = []
    for index, row in table.iterrows():
        spec = spec_of(row)
        chain = draw_model(spec)
        task = draw_trial_task(spec, chain)
        exact = task.posteriors @ chain.emission.T
        rules.append(
            {
                "index": index,
                "states": table_accuracy(task, task.posteriors),
                "tokens": table_accuracy(task, exact),
                "fitted": least_loss_accuracy(task, exact),
                "opposed": opposite_weights_share_a_token(chain, task.mu),
                "belief in the likeliest": task.posteriors.amax(1).mean().item(),
                "fewest successors": (chain.transition > 0).sum(0).min().item(),
                "nonzero weights": (task.mu != 0).sum().item(),
            }
        )
    return table.join(DataFrame(rules).set_index("index"))


@lru_cache
def right_panel(steps: int = 0) -> tuple[DataFrame, DataFrame]:
    """The trials of memory models and of vanilla ones, up to 20 of a point; after so many steps, unless steps is 0."""
    table = results("quick", BEYOND).query("own == '' and size in @RIGHT_SIZES and seed < 20")
    table = table[table.changes == (f"steps={steps}" if steps else "")]
    memory = table[(table.n_memory > 1) & (table.n_states == 4)]
    return memory, table[table.n_memory == 1]


def lead(trials: DataFrame, first: str, second: str) -> Series:
    """The mean of one column minus another, in points, with its interval, by the number of states."""
    points = 100 * (trials[first] - trials[second])
    return points.groupby(trials.n_states).agg(mean_ci, share=False)


def over_all_sizes(trials: DataFrame, first: str, second: str) -> str:
    """The same over all sizes. The chains of one seed share their mixing weights, so they count as one."""
    points = 100 * (trials[first] - trials[second])
    return f"{mean_ci(points.groupby(trials.seed).mean(), share=False):.1f}"


def in_points(rows: DataFrame, column: str) -> Interval:
    """A mean in points. The chains of one seed share their mixing weights, so they count as one."""
    return mean_ci(100 * rows[column].groupby(rows.seed).mean(), share=False)


def memory_lead(column: str, other_column: str) -> Interval:
    """How far memory models, by a column, are ahead of vanilla models, by another one, over all sizes."""
    memory, vanilla = right_panel()
    return difference_ci(in_points(memory, column), in_points(vanilla, other_column))


def memory_lead_at(size: int, column: str) -> Interval:
    """How far memory models are ahead at one size, with the same head on both."""
    memory, vanilla = right_panel()
    of_memory = memory[memory["size"] == size]
    of_vanilla = vanilla[vanilla["size"] == size]
    return difference_ci(in_points(of_memory, column), in_points(of_vanilla, column))


def percent(shares: Series) -> str:
    return f"{shares.mean():.0%}"


def ends(shares: Series) -> list[str]:
    """The smallest and the largest share, in percent."""
    return [f"{share:.0%}" for share in (shares.min(), shares.max())]
