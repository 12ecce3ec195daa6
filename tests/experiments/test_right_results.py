"""What *Experiment 4* says of the right panel of Figure 3: twenty chains a point, and networks that stopped early."""

from itertools import chain
from pathlib import Path

import pytest

from hmmlib.experiments.specs import select
from hmmlib.experiments.store import STORE, load_results
from hmmlib.experiments.summaries import apart, interval, learned, mean, reference

pytestmark = pytest.mark.outside

STORED = load_results("quick", STORE / "beyond")
VALUES = (2, 3, 5, 7)


def trials(n_memory, n_states, count, **fields):
    found = [r for r in select(STORED, **fields) if (r.spec.n_memory, r.spec.n_states) == (n_memory, n_states)]
    found = [r for r in found if r.spec.seed < count]
    assert sorted(r.spec.seed for r in found) == list(range(count))
    return found


def pairs(count, **fields):
    return {m: (trials(m, 4, count, **fields), trials(1, 4 * m, count, **fields)) for m in VALUES}


def attention(group):
    return interval([100 * r.attention_accuracy for r in group])


def added(group):
    return interval([100 * (r.attention_accuracy - r.head_accuracy) for r in group])


def test_what_the_memory_adds_and_what_the_head():
    many = pairs(20)
    memory, vanilla = (list(chain.from_iterable(side)) for side in zip(*many.values(), strict=True))
    assert [round(added(group).mean) for group in (memory, vanilla)] == [12, 9]
    assert round(apart(attention(memory), attention(vanilla)).mean) == 7
    page = (Path(__file__).resolve().parents[2] / "notebooks" / "5-3-memory-vs-vanilla.md").read_text()
    assert "The attention head alone adds 12 points on memory models and 9 on vanilla ones" in page
    assert "memory models are still 7 points above vanilla ones" in page
    gaps = [apart(attention(one), attention(other)) for one, other in many.values()]
    assert [round(gap.mean) for gap in gaps] == [4, 4, 10, 11]
    assert min(gap.low for gap in gaps) > 0
    exact = [[round(100 * mean(r.exact_attention_accuracy for r in group)) for group in pair] for pair in many.values()]
    assert [(min(side), max(side)) for side in zip(*exact, strict=True)] == [(97, 100), (89, 98)]


def test_after_100_steps_memory_models_are_right_and_vanilla_models_near_the_majority_class():
    early = pairs(5, steps=100)
    memory, vanilla = (list(chain.from_iterable(side)) for side in zip(*early.values(), strict=True))
    assert [round(attention(one).mean) for one, _ in early.values()] == [100, 100, 98, 98]
    assert 0.55 < mean(map(learned, memory)) < 0.65
    assert 1 / 7 < mean(map(learned, vanilla)) < 1 / 5
    assert max(mean(map(learned, early[m][1])) for m in (5, 7)) < 0.12
    above = [mean(r.attention_accuracy - r.majority_rate for r in other) for _, other in early.values()]
    linear = [mean(r.head_accuracy for r in other) for _, other in early.values()]
    heads = [mean(r.head_accuracy - r.majority_rate for r in other) for _, other in early.values()]
    assert max(above + heads) < 0.08
    assert {round(100 * share) for share in heads} == {3, 4}
    assert [f"{share:.0%}" for share in linear[2:]] == ["65%", "69%"]
    published = reference("right")["vanilla HMM + linear head"]
    assert all(ours < published[4 * m].mean for ours, m in zip(linear[:2], VALUES, strict=False))
    late = [mean(r.head_accuracy for r in other) for _, other in pairs(20).values()]
    assert [f"{share:.0%}" for share in late[2:]] == ["77%", "77%"]
