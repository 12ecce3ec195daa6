"""What the pages say of the stored trials, as far as it is a claim about them all."""

import math
import re
from pathlib import Path

import pytest

from hmmlib.experiments.specs import panel_specs
from hmmlib.experiments.store import STORE, load_result, result_path
from hmmlib.experiments.summaries import (
    LADDER,
    LEFT,
    RIGHT,
    along,
    apart,
    gain,
    interval,
    learned,
    mean,
    reference,
    size,
)
from hmmlib.inference.messages import memory_posterior, posterior
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
LEFT_RESULTS = [load_result(result_path(spec, STORE)) for spec in panel_specs("quick", "left", 20)]
SIZES = (4, 8, 10, 15, 25, 30)
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
        {key: interval([read(r) for r in group]) for key, group in at.items()}
        for read in (lambda r: r.head_accuracy, lambda r: r.attention_accuracy)
    )
    lower = [round(100 * (attention["memory", n].mean - head["vanilla", n].mean)) for n in (8, 12, 20, 28)]
    assert (min(lower), max(lower)) == (11, 22)
    left = [apart(attention["memory", n], attention["vanilla", n]) for n in (8, 12, 20, 28)]
    assert [found.low > 0 for found in left] == [False, True, False, True]
    pooled = {kind: [r for n in (8, 12, 20, 28) for r in at[kind, n]] for kind in ("memory", "vanilla")}
    rest = apart(*(interval([r.attention_accuracy for r in group]) for group in pooled.values()))
    assert rest.low > 0
    assert round(100 * rest.mean) == 8
    for kind, points in {"memory": 14, "vanilla": 8}.items():
        gained = interval([r.attention_accuracy - r.head_accuracy for r in pooled[kind]])
        assert gained.low > 0
        assert round(100 * gained.mean) == points
    exact = {key: interval([r.exact_attention_accuracy for r in group]).mean for key, group in at.items()}
    shares = [[round(100 * exact[kind, n]) for n in (8, 12, 20, 28)] for kind in ("memory", "vanilla")]
    assert [(min(found), max(found)) for found in shares] == [(98, 100), (88, 99)]


def test_a_state_is_better_known_than_a_memory():
    """After 24 tokens, as the page's figure has it, and after four already."""
    sure = {
        "memory": [(memory_posterior, random_memory_hmm(7, 4, 10, k)) for k in range(5)],
        "state": [(lambda model, tokens: posterior(model, tokens, at=1), random_hmm(28, 10, k)) for k in range(5)],
    }
    found = {
        (name, seen): interval(
            [find(m, m.sample(500, 24, 1).tokens[:, :seen]).amax(1).mean().item() for find, m in own]
        ).mean
        for name, own in sure.items()
        for seen in (4, 24)
    }
    shown = {key: f"{value:.2f}" for key, value in found.items()}
    assert shown == {("memory", 4): "0.81", ("memory", 24): "0.89", ("state", 4): "0.97", ("state", 24): "0.97"}


def test_with_many_states_prompts_are_far_above_the_published_ones():
    ours, published = along(LEFT_RESULTS, LEFT["prompt tuning"], size), reference("left")["prompt tuning"]
    for n_states in (25, 30):
        assert ours[n_states].low > published[n_states].high


def test_in_two_trials_of_all_the_prompt_ends_below_the_head():
    assert len(LEFT_RESULTS) == 120
    assert sum(gain(r) < 0 for r in LEFT_RESULTS) == 2


def test_prompts_follow_what_the_network_has_learned():
    large = [r for r in LEFT_RESULTS if r.spec.n_states > r.spec.n_tokens]
    most, least = ([r for r in large if (learned(r) > 0.7) is above] for above in (True, False))
    assert (len(most), len(least)) == (54, 6)
    assert f"{interval([r.prompt_accuracy for r in most]).mean:.0%}" == "97%"
    found = sorted(least, key=learned)
    assert [f"{r.prompt_accuracy:.0%}" for r in (found[0], max(least, key=lambda r: r.prompt_accuracy))] == [
        "77%",
        "94%",
    ]
    assert found[0].prompt_accuracy == min(r.prompt_accuracy for r in large)
    assert 0.19 < learned(found[0]) < 0.23 < learned(found[1])


def in_short(page: str) -> str:
    """The paragraph that opens a page with its results."""
    return re.search(r"^\*In short:\* (.+)$", (ROOT / "notebooks" / f"{page}.md").read_text(), re.MULTILINE)[1]


def test_experiment_3_in_short():
    """What it says of networks is in `test_prompts_follow_what_the_network_has_learned`."""
    text, published = in_short("5-2-head-vs-prompt"), reference("left")
    ours = [round(100 * found.mean) for n, found in along(LEFT_RESULTS, gain, size).items() if n >= 8]
    theirs = [
        round(100 * (published["prompt tuning"][n].mean - published["head tuning"][n].mean)) for n in SIZES if n >= 8
    ]
    assert f"tuned prompts are {min(ours)} to {max(ours)} points above" in text
    assert f"in the paper they are {min(theirs)} to {max(theirs)} points above" in text
    assert [f"{published['prompt tuning'][n].mean:.0%}" for n in (25, 30)] == ["75%", "75%"]
    assert "fall to 75% at 25 and 30 states" in text
    assert min(found.mean for found in along(LEFT_RESULTS, LEFT["prompt tuning"], size).values()) > 0.9
    assert "ours stay above 90% at every size" in text
    assert "60 networks" in text
    assert "the six that have learned least have prompts at 77% to 94%, and the others at 97%" in text


def test_experiment_4_in_short():
    """What the head adds, and what the memory, is in `test_right_results`."""
    text = in_short("5-3-memory-vs-vanilla")
    memory, vanilla = (along(RIGHT_RESULTS, read, size) for read in RIGHT.values())
    shares = [100 * found.mean for found in memory.values()]
    assert 97 < min(shares) <= max(shares) == 100
    assert "right on 97% to 100% of the texts" in text
    lower = [round(100 * (memory[n].mean - vanilla[n].mean)) for n in (8, 12, 20, 28)]
    assert f"{min(lower)} to {max(lower)} points lower" in text


def test_no_result_is_better_than_the_least_loss_allows():
    for result in (*LEFT_RESULTS, *RIGHT_RESULTS):
        assert result.excess_loss > -0.02
        assert result.divergence >= 0
        assert 0.5 <= result.majority_rate <= 1


@pytest.mark.parametrize(
    ("panel", "series", "results"), [("left", LEFT, LEFT_RESULTS), ("right", RIGHT, RIGHT_RESULTS)]
)
def test_the_protocol_page_has_these_numbers(panel, series, results):
    page = (ROOT / "book" / "protocol-and-code.md").read_text()
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


def paired(one, other, n_states):
    pairs = [(one(r), other(r)) for r in LEFT_RESULTS if size(r) == n_states]
    return interval([100 * (a - b) for a, b in pairs if a is not None and b is not None])


def test_what_the_page_reads_off_the_ladder():
    """All that is tuned has the network's budget; what is built is compared on the chains that have it."""
    built, head_exact, prompt_exact, head, prompt = LADDER.values()
    have = [sum(built(r) is not None for r in LEFT_RESULTS if size(r) == n) for n in SIZES]
    assert have == [20, 19, 12, 0, 0, 0]
    for n in (4, 8, 10):
        found = paired(built, head_exact, n)
        assert 2 <= found.mean < 7
        assert found.low < 0 < found.high
    heads = {n: paired(head, head_exact, n) for n in SIZES}
    assert all(-2.2 < found.mean < -0.8 for found in heads.values())
    assert [n for n, found in heads.items() if found.high < 0] == [25]
    prompts = {n: paired(prompt, prompt_exact, n) for n in SIZES}
    assert [n for n, found in prompts.items() if found.low > 0] == [10, 15, 25, 30]
    assert {round(prompts[n].mean) for n in (10, 15, 25, 30)} == {3, 4, 8}
    for n in SIZES:
        longer = paired(prompt, lambda r: r.ladder_prompt_accuracy, n)
        assert longer.low < 0 < longer.high
        assert interval([r.ladder_prompt_accuracy for r in LEFT_RESULTS if size(r) == n]).mean > 0.9


def test_the_numbers_of_the_landing_page():
    text = (ROOT / "book" / "index.md").read_text()
    memory = [round(100 * p.mean) for p in along(RIGHT_RESULTS, RIGHT["memory HMM + attention head"], size).values()]
    assert f"score {min(memory)}% to {max(memory)}%" in text
    ours = along(LEFT_RESULTS, LEFT["prompt tuning"], size)[30].mean
    published = reference("left")["prompt tuning"][30].mean
    assert f"to {published:.0%} at 30 states (ours: {ours:.0%})" in text


def test_a_mean_leaves_out_what_is_missing_and_there_is_none_of_nothing():
    assert mean([0.5, None, 1.0]) == 0.75
    assert mean(x > 1 for x in (1, 2, 3, 4)) == 0.75
    assert math.isnan(mean([None]))
    assert math.isnan(mean([]))
