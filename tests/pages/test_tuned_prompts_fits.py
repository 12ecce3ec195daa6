"""What the page with details on tuned prompts says of fits, probes and predictions, from the stored trials."""

import pytest
import torch
from record import slow
from shares import percent

from hmmbook import mean_ci, results
from hmmbook.experiments.store import REFITS
from hmmbook.studies import kinds_of_text, look_alikes
from hmmbook.studies.mechanism import fits, outcomes_of_fits, outcomes_on_look_alikes, tables
from hmmbook.studies.readouts import Readout, fit_readout, total_variation
from hmmbook.studies.readouts.families import FAMILIES


@pytest.fixture(scope="module")
def papers(stored):
    """The 120 trials of the left panel with the measurements of the page."""
    trials = stored[(stored.changes == "") & (stored.n_memory == 1) & (stored.seed < 20)]
    trials = trials[trials["control_distances.untrained.unchanged"].notna()]
    assert trials.groupby("n_states").size().to_dict() == dict.fromkeys([4, 8, 10, 15, 25, 30], 20)
    return trials


@pytest.fixture(scope="module")
def refits():
    """The trials of the left panel with later fits whose prompt is five points better than the head."""
    trials = tables.stored(REFITS).query("steps == 400")
    return trials[trials.gain >= 0.05]


def net(trials, fit):
    """What a fit takes off the distance from W p with the prompt, less what it takes off without one."""
    behind = trials["fit_distances.unchanged.all"] - trials[f"fit_distances.{fit}.all"]
    place = "fit_distances_without_prompt"
    return behind - (trials[f"{place}.unchanged.all"] - trials[f"{place}.{fit}.all"])


def net_share(trials, fit):
    return net(trials, fit) / trials["fit_distances.unchanged.all"]


def share_by_seed(trials, fit):
    distance = trials["fit_distances.unchanged.all"].groupby(trials.seed).sum()
    return mean_ci(net(trials, fit).groupby(trials.seed).sum() / distance)


# Functions of the belief


def test_on_task_d_neither_fit_accounts_for_half_of_the_change(of_task):
    trials = of_task("d")
    assert f"{mean_ci(net_share(trials, 'weights')):.2f}" == "0.36 [0.30, 0.42]"
    assert f"{net_share(trials, 'relabelled').mean():.2f}" == "0.40"
    difference = net_share(trials, "relabelled") - net_share(trials, "weights")
    assert f"{mean_ci(difference):.2f}" == "0.04 [-0.02, 0.10]"


def test_on_tasks_a_and_c_reweighting_accounts_for_half(of_task):
    assert f"{mean_ci(net_share(of_task('a'), 'weights')):.2f}" == "0.52 [0.42, 0.62]"
    assert f"{mean_ci(net_share(of_task('c'), 'weights')):.2f}" == "0.53 [0.45, 0.62]"
    assert f"{net_share(of_task('a'), 'relabelled').mean():.2f}" == "0.42"


def test_prompts_for_shuffled_labels_are_relabellings_as_well(of_task):
    trials = of_task("shuffled")
    assert f"{net_share(trials, 'relabelled').mean():.2f}" == "0.63"
    assert f"{mean_ci(net_share(trials, 'weights')):.2f}" == "0.51 [0.40, 0.61]"


def test_on_the_papers_chains_relabelling_accounts_for_more_than_reweighting(refits):
    assert f"{share_by_seed(refits, 'relabelled'):.2f}" == "0.71 [0.63, 0.78]"
    assert f"{share_by_seed(refits, 'weights'):.2f}" == "0.44 [0.40, 0.48]"
    assert f"{share_by_seed(refits, 'softmax of log g0'):.2f}" == "0.58 [0.51, 0.66]"


def test_on_the_papers_chains_a_function_of_the_networks_own_prediction_is_as_near_as_a_relabelling(refits):
    farther = refits["fit_distances.relabelled.all"] - refits["fit_distances.softmax of log g0.all"]
    assert f"{mean_ci(farther.groupby(refits.seed).mean()):.3f}" == "0.011 [-0.010, 0.031]"


@pytest.mark.parametrize("task", ["a", "c", "d", "shuffled"])
def test_linear_logits_account_for_more_than_both_and_little_less_than_any_function(of_task, task):
    families = ("weights", "relabelled", "softmax of p", "any function")
    weights, relabelled, linear, most = (net_share(of_task(task), family).mean() for family in families)
    assert max(weights, relabelled) < linear < most < linear + 0.1


def test_the_tables_of_the_page_have_these_shares(of_task, refits):
    shares = fits.net_shares()
    assert len(shares) == 4
    on_d = shares["not solvable by\na fake token (D)"]["nearest reweighting"]
    assert on_d.mean == pytest.approx(net_share(of_task("d"), "weights").mean())
    assert shares[fits.PAPERS]["nearest relabelling"].mean == pytest.approx(share_by_seed(refits, "relabelled").mean)


def test_the_tuned_head_is_right_more_often_on_the_fit_of_linear_logits_than_behind_the_prompt(of_task):
    trials = of_task("d")
    on_fit = trials["fit_labels.softmax of p.right"]
    assert f"{mean_ci(on_fit):.0%}" == "97% [94%, 99%]"
    assert f"{mean_ci(100 * (on_fit - trials.prompt_accuracy), share=False):.1f}" == "2.2 [0.2, 4.3]"
    assert percent(trials["fit_labels.softmax of log g0.right"]) == "89%"


SINGLE = [pytest.param(family, marks=slow) for family in ("relabelled", "reweighted")]


@pytest.mark.parametrize("family", ["relabelled and reweighted", *SINGLE])
def test_planted_changes_are_found_again(family):
    """On one chain of the 50, and with few starts."""
    chain = look_alikes.look_alike_chain(1002)
    _, beliefs = look_alikes.masked_texts(chain, 180, 12, 0)
    generator = torch.Generator().manual_seed(1)
    columns = chain.emission
    if "relabelled" in family:
        columns = torch.rand(6, 6, generator=generator, dtype=torch.float64)
        columns = columns / columns.sum(0)
    weights = torch.ones(6, dtype=torch.float64)
    if "reweighted" in family:
        weights = torch.rand(6, generator=generator, dtype=torch.float64)
    truth = Readout(columns, weights)
    fit = fit_readout(beliefs[:100], truth(beliefs[:100]), chain.emission, FAMILIES[family], 0, starts=2)
    fresh = beliefs[100:]
    assert total_variation(fit(fresh), truth(fresh)).mean() < 0.005
    assert total_variation(fresh @ chain.emission.T, truth(fresh)).mean() > 0.02


# What the label follows


def test_most_labels_change_with_five_directions_in_the_last_layer():
    followed = {task: fits.labels_followed(f"look-alikes-{task}") for task in "ac"}
    shares = {}
    for part in list(fits.FOLLOWED)[:3]:
        shares[part] = [f"{followed[task].loc[part, 'layer 2']:.0%}" for task in "ac"]
    assert list(shares.values()) == [["88%", "79%"], ["12%", "22%"], ["2%", "1%"]]
    belief = next(iter(fits.FOLLOWED))
    first = [f"{followed[task].loc[belief, 'layer 1']:.0%}" for task in "ac"]
    assert first == ["25%", "35%"]


def test_the_directions_of_a_linear_probe_can_be_exchanged_almost_without_effect(of_task):
    for task in "ac":
        assert of_task(task)["label_follows.layer 2.belief of another text"].mean() < 0.01


# The paper's chains


def test_the_trials_of_the_papers_chains_are_of_the_size_that_is_named(papers):
    assert kinds_of_text.CERTAIN == 0.98
    assert {*papers.layers, *papers.width, *papers.prompt_length, *papers.test} == {2, 64, 20, 1000}


def test_for_a_vector_tuned_on_the_exact_model_the_fit_finds_its_reweighting(papers):
    distances = fits.distances_of_controls(papers)
    assert distances.loc["exact model, one vector", "reweighted"] < 0.005
    assert f"{distances.loc['exact model, one vector', 'relabelled']:.2f}" == "0.04"
    for prompt in ("tuned prompt", "tuned on shuffled labels", "tuned for another task"):
        assert distances.loc[prompt, "reweighted"] > 0.2
        assert distances.loc[prompt, "relabelled"] < 0.08


def test_probes_of_the_last_hidden_state_are_right_as_often_as_the_tuned_prompt(papers):
    at_30 = papers[papers.n_states == 30]
    assert [percent(at_30[name]) for name in ("probes.label.layer 2", "prompt_accuracy")] == ["94%", "94%"]
    means = papers.groupby("n_states")[["probes.label.layer 2", "prompt_accuracy"]].mean()
    assert means.min(axis=None) > 0.93


def test_a_probe_of_fresh_weights_is_ahead_of_tuned_heads_and_falls_like_them(papers):
    fresh = papers["probes.label, fresh weights.layer 2"]
    ahead = (fresh - papers.head_accuracy).groupby(papers.n_states).agg(mean_ci)
    assert min(interval.mean for interval in ahead) > 0
    assert [n_states for n_states, interval in ahead.items() if interval.low > 0] == [8, 10]
    for shares in (fresh, papers.head_accuracy):
        means = shares.groupby(papers.n_states).mean()
        assert means[4] - means[30] > 0.1


def test_these_trials_are_of_the_same_chains_as_figure_3_and_their_means_nearly_the_same(papers):
    first = results("quick").query("changes == '' and n_memory == 1")
    both = papers.merge(first, on=["n_states", "seed"], suffixes=("", " there"))
    assert len(both) == 120
    assert (both.majority_rate == both["majority_rate there"]).all()
    for way in ("head_accuracy", "prompt_accuracy"):
        both[way] = 100 * (both[way] - both[f"{way} there"])
    moved = both[["head_accuracy", "prompt_accuracy"]]
    assert f"{moved.groupby(both.n_states).mean().abs().max(axis=None):.1f}" == "1.3"
    assert f"{moved.abs().max(axis=None):.0f}" == "25"


def test_prefix_and_lora_are_nearer_to_a_relabelling_too():
    at_30 = {}
    for name, trials in fits.tuners().items():
        assert trials.groupby("n_states").size().to_dict() == {10: 10, 30: 10}
        at_30[name] = trials[trials.n_states == 30]
        assert 0.945 < at_30[name].prompt_accuracy.mean() < 0.975
    ranges = {}
    for fit in ("unchanged", "reweighted", "relabelled"):
        means = [trials[fits.apart(fit)].mean() for trials in at_30.values()]
        ranges[fit] = (f"{min(means):.2f}", f"{max(means):.2f}")
    assert ranges == {"unchanged": ("0.56", "0.64"), "reweighted": ("0.35", "0.40"), "relabelled": ("0.15", "0.17")}


def test_in_each_row_of_that_figure_the_relabelling_is_as_near_as_the_networks_own_error():
    columns = [fits.apart(fit) for fit in ("unchanged", "reweighted", "relabelled", "floor")]
    for trials in fits.tuners().values():
        means = trials.groupby("n_states")[columns].mean()
        for _, (unchanged, reweighted, relabelled, floor) in means.iterrows():
            assert unchanged > reweighted + 0.1 > relabelled + 0.25
            assert relabelled < floor + 0.01


# What was predicted, and what came


CAME_TRUE_OF_TRIALS = {
    outcomes_of_fits.entry_2: [False, False, False, False, True, False, True, True],
    outcomes_of_fits.entry_8: [True, True],
    outcomes_of_fits.entry_3: [False, False, True, True, True],
    outcomes_of_fits.entry_4: [True, True, True, False, True],
}
CAME_TRUE = {
    outcomes_of_fits.entries_2_and_9_on_warm_chains: [True, True, True, True, False],
    outcomes_of_fits.entry_20: [True, True, False, True],
    outcomes_of_fits.entry_25: [True, False, True, True, True, True],
    outcomes_of_fits.entry_29: [False, True, True, True, False],
    outcomes_of_fits.entry_32: [False, True, True, True],
    outcomes_on_look_alikes.entry_24: [True, *[False] * 4, True, False, False, False, True, False, False, True],
    outcomes_on_look_alikes.entry_27: [True, True, True],
    outcomes_on_look_alikes.entry_30: [False, False, False],
    outcomes_on_look_alikes.entry_31: [True, True, True, False],
}


@pytest.mark.parametrize("entry", CAME_TRUE_OF_TRIALS, ids=lambda entry: entry.__name__)
def test_what_came_true_of_each_entry_on_the_papers_chains(papers, entry):
    assert [bool(outcome.came_true) for outcome in entry(papers)] == CAME_TRUE_OF_TRIALS[entry]


@pytest.mark.parametrize("entry", CAME_TRUE, ids=lambda entry: entry.__name__)
def test_what_came_true_of_each_entry(entry):
    outcomes = entry()
    assert [bool(outcome.came_true) for outcome in outcomes] == CAME_TRUE[entry]
    if entry is outcomes_on_look_alikes.entry_30:
        assert outcomes[0].result.startswith("98.6%")  # as the page says of task C
