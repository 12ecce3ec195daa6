"""What the pages say of the stored trials, as far as it is a claim about them all."""

from pathlib import Path

import pytest

from hmmlib.specs import TrialSpec, panel_specs
from hmmlib.store import load_result, result_path
from hmmlib.summaries import LADDER, LEFT, RIGHT, along, gain, interval, reference, size

LEFT_RESULTS = [load_result(result_path(spec)) for spec in panel_specs("quick", "left", 20)]
HEAD = "head tuned on the network"
RIGHT_RESULTS = [load_result(result_path(spec)) for spec in panel_specs("quick", "right", 5)]


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


def test_an_attention_head_does_better_than_a_linear_one_on_vanilla_models_too():
    vanilla = [r for r in RIGHT_RESULTS if r.spec.n_memory == 1]
    assert interval([r.attention_accuracy - r.head_accuracy for r in vanilla]).low > 0


def test_with_many_states_prompts_are_far_above_the_published_ones():
    ours, published = along(LEFT_RESULTS, LEFT["prompt tuning"], size), reference("left")["prompt tuning"]
    for n_states in (25, 30):
        assert ours[n_states].low > published[n_states].high


def test_near_the_exact_conditionals_prompts_are_as_good_as_on_them():
    large = [r for r in LEFT_RESULTS if r.spec.n_states > r.spec.n_tokens]
    near = [r for r in large if r.excess_loss < 0.1]
    far = [r for r in large if r.excess_loss >= 0.3]
    assert interval([r.prompt_accuracy - r.ladder_prompt_accuracy for r in near]).high > 0
    assert interval([r.prompt_accuracy for r in near]).low > interval([r.prompt_accuracy for r in far]).high


def at_thirty(**fields):
    specs = [TrialSpec("quick", 30, seed, **fields) for seed in range(5)]
    return [load_result(result_path(spec)) for spec in specs]


def test_more_pretraining_lowers_what_five_passes_find_and_more_passes_bring_it_back():
    short, long = at_thirty(steps=275), at_thirty(steps=2200)
    assert all(a.prompt_accuracy > b.prompt_accuracy for a, b in zip(short, long, strict=True))
    pairs = list(zip(at_thirty(steps=1100, epochs=20), at_thirty(steps=1100), strict=True))
    gains = {k: a.prompt_accuracy - b.prompt_accuracy for k, (a, b) in enumerate(pairs) if b.excess_loss < 0.3}
    assert sorted(gains) == [0, 1, 4]
    assert min(gains.values()) > 0.03
    assert all(a.backbone == b.backbone for a, b in pairs), "the same networks, tuned for longer"


def test_no_result_is_better_than_the_least_loss_allows():
    for result in (*LEFT_RESULTS, *RIGHT_RESULTS):
        assert result.excess_loss > -0.02
        assert result.divergence >= 0
        assert 0.5 <= result.majority_rate <= 1


@pytest.mark.parametrize(
    ("panel", "series", "results"), [("left", LEFT, LEFT_RESULTS), ("right", RIGHT, RIGHT_RESULTS)]
)
def test_the_protocol_page_has_these_numbers(panel, series, results):
    page = (Path(__file__).resolve().parent.parent / "book" / "protocol-and-code.md").read_text()
    ours, published = {name: along(results, read, size) for name, read in series.items()}, reference(panel)
    for x in next(iter(published.values())):
        cells = [f"{table[name][x]}" for name in series for table in (published, ours)]
        assert f"| {x} | {' | '.join(cells)} |" in page


def test_against_the_published_means_on_either_side():
    prompts, heads = (along(LEFT_RESULTS, LEFT[name], size) for name in ("prompt tuning", "head tuning"))
    published = reference("left")
    assert all(prompts[n].mean < published["prompt tuning"][n].mean for n in (4, 8))
    assert all(prompts[n].mean > published["prompt tuning"][n].mean + 0.05 for n in (15, 25, 30))
    assert all(heads[n].mean > published["head tuning"][n].mean for n in (4, 8, 10, 15, 25, 30))
    assert published["prompt tuning"][4].mean > published["head tuning"][4].mean


def test_what_the_page_reads_off_the_ladder():
    means = {
        name: {n: 100 * p.mean for n, p in along(LEFT_RESULTS, read, size).items()} for name, read in LADDER.items()
    }
    built, exact, network = (means[name] for name in ("head of Theorem 3.3", "head tuned on the exact G", HEAD))
    assert built[4] == 100
    assert all(94 <= round(built[n]) <= 95 for n in (8, 10))
    assert all(exact[n] < built.get(n, 98) for n in (8, 10, 15, 25, 30))
    assert all(5 < exact[n] - network[n] < 7 for n in (8, 10, 15))
    assert exact[30] - network[30] < 1
    one, twenty = means["prompt tuned on the exact Ḡ"], means["prompt tuned on the network"]
    assert all(abs(one[n] - twenty[n]) < 2.5 for n in (8, 10, 15))
    assert 4 < one[4] - twenty[4] < 5
    assert all(2 < one[n] - twenty[n] < 3.5 for n in (25, 30))


def test_the_numbers_of_the_landing_page():
    text = (Path(__file__).resolve().parent.parent / "book" / "index.md").read_text()
    memory = [round(100 * p.mean) for p in along(RIGHT_RESULTS, RIGHT["memory HMM + attention head"], size).values()]
    assert f"score {min(memory)}% to {max(memory)}%" in text
    ours = along(LEFT_RESULTS, LEFT["prompt tuning"], size)[30].mean
    published = reference("left")["prompt tuning"][30].mean
    assert f"to {published:.0%} at 30 states (ours: {ours:.0%})" in text
