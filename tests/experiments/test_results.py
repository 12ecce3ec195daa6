"""What the pages say of the stored trials, as far as it is a claim about them all."""

from pathlib import Path

import pytest

from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.store import STORE, load_result, result_path
from hmmlib.experiments.summaries import LADDER, LEFT, RIGHT, along, gain, interval, reference, size

pytestmark = pytest.mark.outside

LEFT_RESULTS = [load_result(result_path(spec, STORE)) for spec in panel_specs("quick", "left", 20)]
HEAD = "head tuned on the network"
RIGHT_RESULTS = [load_result(result_path(spec, STORE)) for spec in panel_specs("quick", "right", 5)]


@pytest.mark.parametrize("n_states", [8, 10, 15, 25, 30])
def test_from_eight_states_on_the_prompt_is_above_the_head(n_states):
    found = along(LEFT_RESULTS, gain, size)[n_states]
    assert found.n == 20
    assert found.low > 0


def test_at_four_states_neither_is_above_the_other():
    found = along(LEFT_RESULTS, gain, size)[4]
    assert found.low < 0 < found.high


def test_memory_models_are_near_one_hundred_percent_and_vanilla_models_below():
    memory, vanilla = (along(RIGHT_RESULTS, read, size) for read in RIGHT.values())
    for x in (8, 12, 20, 28):
        assert memory[x].n == vanilla[x].n == 5
        assert memory[x].mean > 0.97
        assert vanilla[x].mean < memory[x].mean - 0.1


def test_what_the_memory_and_what_the_attention_head_bring():
    at = {
        (kind, n): [r for r in RIGHT_RESULTS if (r.spec.n_memory > 1) == (kind == "memory") and size(r) == n]
        for kind in ("memory", "vanilla")
        for n in (8, 12, 20, 28)
    }
    head, attention = (
        {key: interval([read(r) for r in group]).mean for key, group in at.items()}
        for read in (lambda r: r.head_accuracy, lambda r: r.attention_accuracy)
    )
    lower = [round(100 * (attention["memory", n] - head["vanilla", n])) for n in (8, 12, 20, 28)]
    left = [round(100 * (attention["memory", n] - attention["vanilla", n])) for n in (8, 12, 20, 28)]
    assert (min(lower), max(lower)) == (11, 22)
    assert (min(left), max(left)) == (2, 12)
    for kind, points in {"memory": 14, "vanilla": 8}.items():
        gained = [r.attention_accuracy - r.head_accuracy for n in (8, 12, 20, 28) for r in at[kind, n]]
        assert interval(gained).low > 0
        assert round(100 * interval(gained).mean) == points


def test_with_many_states_prompts_are_far_above_the_published_ones():
    ours, published = along(LEFT_RESULTS, LEFT["prompt tuning"], size), reference("left")["prompt tuning"]
    for n_states in (25, 30):
        assert ours[n_states].low > published[n_states].high


def test_in_two_trials_of_all_the_prompt_ends_below_the_head():
    assert len(LEFT_RESULTS) == 120
    assert sum(gain(r) < 0 for r in LEFT_RESULTS) == 2


def test_up_to_an_excess_of_three_tenths_prompts_are_as_good_as_on_the_exact_model():
    large = [r for r in LEFT_RESULTS if r.spec.n_states > r.spec.n_tokens]
    nearest, near, far = (
        interval([r.prompt_accuracy for r in large if low <= max(r.excess_loss, 0) < high])
        for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 3))
    )
    assert abs(nearest.mean - near.mean) < 0.01
    assert min(nearest.low, near.low) > far.high
    assert interval([r.prompt_accuracy - r.ladder_prompt_accuracy for r in large if r.excess_loss < 0.3]).low > 0


def at_thirty(**fields):
    specs = [TrialSpec("quick", 30, seed, **fields) for seed in range(5)]
    return [load_result(result_path(spec, STORE)) for spec in specs]


def test_prompts_need_a_network_that_has_learned_and_then_more_passes():
    by_length = {steps: at_thirty(steps=steps) for steps in (100, 200, 400, 800, 1600)}
    heads, prompts, excess = (
        {steps: interval([read(r) for r in group]) for steps, group in by_length.items()}
        for read in (LEFT["head tuning"], LEFT["prompt tuning"], lambda r: r.excess_loss)
    )
    assert abs(prompts[100].mean - heads[100].mean) < 0.01
    assert min(r.excess_loss for r in by_length[200]) > 1
    assert f"{prompts[200].mean:.0%}" == "86%"
    assert all(round(100 * prompts[steps].mean) in (97, 98) for steps in (400, 800, 1600))
    assert excess[400].mean > excess[800].mean > excess[1600].mean
    for name, ours in (("head tuning", heads), ("prompt tuning", prompts)):
        assert ours[100].mean < reference("left")[name][30].mean < ours[200].mean
    assert all(a.prompt_accuracy < b.prompt_accuracy for a, b in zip(by_length[100], by_length[400], strict=True))
    patient = at_thirty(steps=800, epochs=20)
    assert all(a.prompt_accuracy < b.prompt_accuracy for a, b in zip(by_length[800], patient, strict=True))
    assert all(a.backbone == b.backbone for a, b in zip(by_length[800], patient, strict=True)), "the same networks"


def test_no_result_is_better_than_the_least_loss_allows():
    for result in (*LEFT_RESULTS, *RIGHT_RESULTS):
        assert result.excess_loss > -0.02
        assert result.divergence >= 0
        assert 0.5 <= result.majority_rate <= 1


@pytest.mark.parametrize(
    ("panel", "series", "results"), [("left", LEFT, LEFT_RESULTS), ("right", RIGHT, RIGHT_RESULTS)]
)
def test_the_protocol_page_has_these_numbers(panel, series, results):
    page = (Path(__file__).resolve().parents[2] / "book" / "protocol-and-code.md").read_text()
    ours, published = {name: along(results, read, size) for name, read in series.items()}, reference(panel)
    for x in next(iter(published.values())):
        cells = [f"{table[name][x]}" for name in series for table in (published, ours)]
        assert f"| {x} | {' | '.join(cells)} |" in page


def test_against_the_published_means():
    prompts, heads = (along(LEFT_RESULTS, LEFT[name], size) for name in ("prompt tuning", "head tuning"))
    published = reference("left")
    above = {
        name: {n: 100 * (ours[n].mean - published[name][n].mean) for n in ours}
        for name, ours in (("prompt tuning", prompts), ("head tuning", heads))
    }
    for found in above.values():
        assert max(abs(found[n]) for n in (4, 8)) < 3
    at = {name: [round(found[n]) for n in (10, 15, 25, 30)] for name, found in above.items()}
    assert (min(at["head tuning"]), max(at["head tuning"])) == (8, 14)
    assert (min(at["prompt tuning"]), max(at["prompt tuning"])) == (5, 21)


def test_what_the_page_reads_off_the_ladder():
    means = {
        name: {n: 100 * p.mean for n, p in along(LEFT_RESULTS, read, size).items()} for name, read in LADDER.items()
    }
    built, exact, network = (means[name] for name in ("head of Theorem 3.3", "head tuned on the exact G", HEAD))
    assert built[4] == 100
    assert all(94 <= built[n] <= 95 for n in (8, 10))
    assert all(exact[n] < built.get(n, 94) for n in (8, 10, 15, 25, 30))
    assert all(2.5 < exact[n] - network[n] < 5.5 for n in (4, 8, 10, 15))
    assert exact[30] - network[30] < 1.5
    one, twenty = means["prompt tuned on the exact Ḡ"], means["prompt tuned on the network"]
    assert min(one.values()) > 90
    assert all(-0.5 < twenty[n] - one[n] < 3.5 for n in (4, 8, 10, 15, 25, 30))


def test_the_numbers_of_the_landing_page():
    text = (Path(__file__).resolve().parents[2] / "book" / "index.md").read_text()
    memory = [round(100 * p.mean) for p in along(RIGHT_RESULTS, RIGHT["memory HMM + attention head"], size).values()]
    assert f"score {min(memory)}% to {max(memory)}%" in text
    ours = along(LEFT_RESULTS, LEFT["prompt tuning"], size)[30].mean
    published = reference("left")["prompt tuning"][30].mean
    assert f"to {published:.0%} at 30 states (ours: {ours:.0%})" in text
