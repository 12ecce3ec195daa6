"""Tasks, and head and prompt tuning of a frozen network."""

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, normalised
from tiny_networks import inputs, lively

from hmmlib.experiments.labels import NONZERO, REDRAWS, draw_mu, draw_task
from hmmlib.inference.messages import memory_posterior, posterior
from hmmlib.models.appendix_e import mixed_permutations, random_hmm, random_memory_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead
from hmmlib.training.bert import fingerprint, to_ids
from hmmlib.training.tuning import (
    Tuning,
    accuracy,
    all_probs,
    all_probs_at_mask,
    initial_prompt,
    probs_at_mask,
    tune_head,
    tune_prompt,
)
from hmmlib.validation import MASK

PLAN = Tuning(epochs=3, batch=16, head_rate=0.1, prompt_rate=0.05)


@pytest.fixture
def network():
    return lively()


@pytest.mark.parametrize("n_states", [1, 2, 3, 4, 10, 30])
def test_task_weights(n_states, monkeypatch):
    values, randn = [], torch.randn
    monkeypatch.setattr(torch, "randn", lambda *a, **k: values.append(randn(*a, **k)) or values[-1])
    used, together = torch.zeros(n_states), []
    for seed in range(300):
        mu = draw_mu(n_states, torch.Generator().manual_seed(seed))
        assert mu.shape == (n_states,)
        assert len(values[-1]) == min(NONZERO, 2 * n_states)
        used += mu != 0
        if n_states == 1:
            assert mu.abs().item() == (values[-1][0] - values[-1][1]).abs().item()
        together.append(sorted(values[-1].abs().tolist()) == sorted(mu[mu != 0].abs().tolist()))
    assert NONZERO == 6
    assert (used > 0).all()
    # An entry of μ is zero where neither of its two entries in the 2 × S matrix was drawn.
    drawn, entries = min(6, 2 * n_states), 2 * n_states
    absent = (entries - drawn) * (entries - drawn - 1) / (entries * (entries - 1))
    np.testing.assert_allclose(used / 300, 1 - absent, atol=5 * np.sqrt(0.25 / 300))
    if n_states == 30:
        assert np.mean(together) > 0.6  # mostly in six different columns, unchanged but for the sign
    assert abs(torch.cat(values).mean()) < 0.1
    assert torch.cat(values).std() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_places_drawn_with_replacement(n, monkeypatch):
    values, randn = [], torch.randn
    monkeypatch.setattr(torch, "randn", lambda *a, **k: values.append(randn(*a, **k)) or values[-1])
    counts = []
    for seed in range(600):
        mu = draw_mu(n, torch.Generator().manual_seed(seed), "repeated")
        counts.append(len(values[-1]))
        assert (mu != 0).sum() <= counts[-1]
        assert (draw_mu(n, torch.Generator().manual_seed(seed)) != 0).sum() <= 6
        assert len(values[-1]) == min(6, 2 * n)
    assert set(counts) <= set(range(1, min(6, 2 * n) + 1))
    absent = (1 - 1 / (2 * n)) ** 6  # the chance that an entry is not drawn
    assert np.mean(counts) == pytest.approx(2 * n * (1 - absent), abs=0.2)
    assert min(counts) < 6


def by_enumeration(model, tokens, law):
    """The posterior that a law weighs, for one row of a task, by summing over all paths."""
    seen = tokens if law == "masked" else tokens[1:]
    parts = model.transition, model.emission, model.initial, model.embed(seen[None])[0]
    if hasattr(model, "memory"):
        return normalised(Enumeration(*parts, model.memory).memory(0))
    paths = Enumeration(*parts)
    if law == "stepped":
        return normalised(paths.state(1)) @ model.transition.numpy()
    return normalised(paths.state(1 if law == "masked" else 0))


@pytest.mark.parametrize("law", ["masked", "before", "stepped"])
@pytest.mark.parametrize(
    "make", [lambda seed: sparse_hmm(3, 4, seed, 0.3), lambda seed: sparse_memory_hmm(3, 2, 4, seed)]
)
def test_labels_are_those_of_the_posterior_by_enumeration(law, make):
    both = set()
    for seed in range(12):
        model = make(seed)
        task = draw_task(model, 5, (10, 4, 6), seed, law)
        assert task.tokens.shape == (20, 5)
        assert (task.tokens[:, 0] == MASK).all()
        assert (task.tokens[:, 1:] >= 0).all()
        expected = [by_enumeration(model, row, law) for row in task.tokens]
        np.testing.assert_allclose(task.posteriors, expected, atol=1e-12)
        for row, label in zip(expected, task.labels, strict=True):
            if abs(row @ task.mu.numpy()) > 1e-12:
                assert label.item() == (row @ task.mu.numpy() >= 0)
        training = task.labels[:10]
        assert task.redraws == REDRAWS or 0 < training.sum() < 10
        both.update(task.labels.tolist())
        assert [len(part) for part in task.split(task.labels)] == [10, 4, 6]
    assert both == {True, False}


def test_each_law_has_a_text_and_a_posterior_of_its_own():
    chain = random_hmm(4, 6, 2, temperature=0.3)
    model = HMM(chain.transition, chain.emission, [0.7, 0.1, 0.1, 0.1], columns=True)
    masked, before, stepped = (draw_task(model, 6, (40, 5, 5), 1, law) for law in ("masked", "before", "stepped"))
    tokens = model.sample(50, 6, 1).tokens
    assert torch.equal(masked.tokens[:, 1:], tokens[:, 1:])
    assert torch.equal(before.tokens[:, 1:], model.sample(50, 5, 1).tokens)
    assert torch.equal(before.tokens, stepped.tokens)
    assert torch.equal(masked.posteriors, posterior(model, masked.tokens, at=1))
    assert torch.equal(before.posteriors, posterior(model, before.tokens[:, 1:], at=0))
    assert (before.posteriors - stepped.posteriors).abs().max() > 0.1
    for task in (masked, before, stepped):
        assert torch.equal(task.labels, task.posteriors @ task.mu >= 0)


def test_labels_of_a_memory_model_weigh_its_memory():
    model = random_memory_hmm(3, 4, 6, 2)
    task = draw_task(model, 8, (40, 5, 5), 1)
    assert task.mu.shape == (3,)
    assert torch.equal(task.posteriors, memory_posterior(model, task.tokens))
    assert torch.equal(task.labels, memory_posterior(model, task.tokens) @ task.mu >= 0)
    before = draw_task(model, 8, (40, 5, 5), 1, "before")
    assert torch.equal(before.posteriors, memory_posterior(model, before.tokens[:, 1:]))
    unmasked = model.sample(50, 8, 1).tokens
    assert torch.equal(task.tokens[:, 1:], unmasked[:, 1:])
    assert (memory_posterior(model, unmasked) - task.posteriors).abs().max() > 0.01  # the hidden token would have told


def test_a_step_back_is_the_transition_only_from_a_uniform_start():
    draws = torch.Generator().manual_seed(3)
    transition, emission = mixed_permutations(4, draws, 0.3), random_hmm(4, 6, 2, 0.3).emission
    lopsided = transition * torch.tensor([4.0, 2.0, 1.0, 1.0], dtype=torch.float64)[:, None]
    uniform, skewed, columns_only = (
        HMM(transition, emission, [0.25] * 4, columns=True),
        HMM(transition, emission, [0.4, 0.3, 0.2, 0.1], columns=True),
        HMM(lopsided / lopsided.sum(0), emission, [0.25] * 4),
    )
    gaps = []
    for model in (uniform, skewed, columns_only):
        task = draw_task(model, 7, (60, 0, 0), 5, "stepped")
        gaps.append((task.posteriors - posterior(model, task.tokens[:, 1:], at=0)).abs().max().item())
    assert gaps[0] < 1e-14
    assert min(gaps[1:]) > 0.05


def test_tasks_follow_their_seed():
    model = random_hmm(5, 6, 0)
    task, again, other = (draw_task(model, 6, (20, 5, 5), seed) for seed in (1, 1, 2))
    assert torch.equal(task.tokens, again.tokens)
    assert torch.equal(task.mu, again.mu)
    assert not torch.equal(task.tokens, other.tokens)


def test_weights_are_drawn_again_while_all_labels_agree():
    one_state = HMM([[1.0]], [[0.5], [0.5]], [1.0])
    task = draw_task(one_state, 4, (10, 2, 2), 0)
    assert task.redraws == REDRAWS == 20
    assert task.labels.all() or not task.labels.any()
    redraws = []
    for seed in range(60):
        task = draw_task(random_hmm(2, 4, seed), 6, (30, 2, 2), seed)
        redraws.append(task.redraws)
        one_class = task.labels[:30].all() or not task.labels[:30].any()
        assert not one_class or task.redraws == REDRAWS
    assert {0, 1} < set(redraws)


def test_no_prompt_and_an_empty_prompt_are_the_same(network):
    tokens = inputs()
    with torch.no_grad():
        bare = probs_at_mask(network, tokens)
        empty = probs_at_mask(network, tokens, initial_prompt(network, 0, 0))
        whole = network(input_ids=torch.where(tokens == MASK, 4, tokens)).logits[:, 0, :4].softmax(-1)
    assert torch.equal(bare, empty)
    np.testing.assert_allclose(bare, whole, atol=1e-6)


def test_a_prompt_comes_before_the_sequence(network):
    tokens = inputs()
    with torch.no_grad():
        words = network.get_input_embeddings().weight
        prompted = probs_at_mask(network, tokens, words[[2, 0]])
        longer = torch.cat([torch.tensor([[2, 0]]).expand(40, -1), torch.where(tokens == MASK, 4, tokens)], 1)
        expected = network(input_ids=longer).logits[:, 2, :4].softmax(-1)
        swapped = probs_at_mask(network, tokens, words[[0, 2]])
        assert torch.equal(
            probs_at_mask(network, tokens, words[[2, 0]].double()), prompted
        )  # in the network's precision
    np.testing.assert_allclose(prompted, expected, atol=1e-5)
    assert (swapped - prompted).abs().max() > 0.01


def test_probabilities_do_not_depend_on_the_batch(network):
    tokens, prompt = inputs(1100), initial_prompt(network, 3, 1)
    order = torch.randperm(1100, generator=torch.Generator().manual_seed(0))
    whole = all_probs_at_mask(network, tokens, prompt)
    assert whole.shape == (1100, 4)
    assert not whole.requires_grad
    np.testing.assert_allclose(all_probs_at_mask(network, tokens[order], prompt), whole[order], atol=1e-6)
    np.testing.assert_allclose(all_probs_at_mask(network, tokens[-1:], prompt), whole[-1:], atol=1e-6)
    np.testing.assert_allclose(whole.sum(1), 1, atol=1e-6)


def test_the_prompt_at_the_start(network):
    prompt = initial_prompt(network, 500, 3)
    assert prompt.shape == (500, 16)
    assert -0.5 <= prompt.min() < -0.49
    assert 0.49 < prompt.max() <= 0.5
    assert abs(prompt.mean()) < 0.02
    assert torch.equal(prompt, initial_prompt(network, 500, 3))
    assert not torch.equal(prompt, initial_prompt(network, 500, 4))


def test_a_prompt_of_words(network):
    words = network.get_input_embeddings().weight.detach()
    for length in (1, 3, 5, 7, 12):
        prompt = initial_prompt(network, length, 3, "vocabulary")
        which = [next(k for k, word in enumerate(words) if torch.equal(word, row)) for row in prompt]
        counts = np.bincount(which, minlength=5)  # 4 tokens and [MASK]
        assert counts.max() - counts.min() <= 1
        assert counts.sum() == length
        assert torch.equal(prompt, initial_prompt(network, length, 3, "vocabulary"))
    firsts = {tuple(initial_prompt(network, 1, seed, "vocabulary")[0].tolist()) for seed in range(60)}
    assert len(firsts) == 5
    before = fingerprint(network)
    prompt += 1  # a copy, not the network's own rows
    assert fingerprint(network) == before


@pytest.mark.parametrize("start", ["uniform", "vocabulary"])
def test_without_a_prompt_prompt_tuning_is_head_tuning(network, start):
    tokens = inputs()
    labels = tokens[:, 1] >= 2
    prompt, head = tune_prompt(network, tokens, labels, 0, PLAN, 5, start)
    alone = tune_head(all_probs_at_mask(network, tokens), labels, PLAN, 5)
    assert prompt.shape == (0, 16)
    assert torch.equal(head.weights, alone.weights)
    assert torch.equal(all_probs_at_mask(network, tokens, prompt), all_probs_at_mask(network, tokens))
    assert not torch.equal(head.weights, tune_prompt(network, tokens, labels, 1, PLAN, 5, start)[1].weights)


def test_prompt_tuning_begins_where_it_is_told(network):
    tokens, still = inputs(), Tuning(epochs=1, batch=40, head_rate=0.1, prompt_rate=1e-12)
    for start in ("uniform", "vocabulary"):
        prompt, _ = tune_prompt(network, tokens, tokens[:, 1] >= 2, 3, still, 5, start)
        np.testing.assert_allclose(prompt, initial_prompt(network, 3, 5, start), atol=1e-10)
    assert not torch.allclose(prompt, initial_prompt(network, 3, 5), atol=0.01)


@pytest.mark.outside
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_prompts_are_those_of_peft(network):
    """Its model for feature extraction, the one of its prompt tuning that returns what the network itself returns."""
    peft = pytest.importorskip("peft")
    tokens, prompt = inputs(), initial_prompt(network, 3, 1)
    ours = all_probs_at_mask(network, tokens, prompt).log()
    config = peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    theirs = peft.get_peft_model(network, config).eval()
    found = []
    with torch.no_grad():
        for vectors in (prompt, prompt.flip(0)):
            theirs.prompt_encoder["default"].embedding.weight.copy_(vectors)
            found.append(theirs(input_ids=to_ids(network, tokens)).logits[:, 3, :4].log_softmax(-1))
    np.testing.assert_allclose(ours, found[0], atol=1e-5)
    assert (ours - found[1]).abs().max() > 0.1


def test_dropout_is_off_in_tuning(network):
    tokens = inputs()
    labels, drops = tokens[:, 1] >= 2, lively(dropout=0.5)
    assert fingerprint(drops) == fingerprint(network)
    calls = {
        "mask": lambda net: all_probs_at_mask(net, tokens),
        "all": lambda net: all_probs(net, tokens),
        "prompt": lambda net: tune_prompt(net, tokens, labels, 2, PLAN, 5)[0],
    }
    for call in calls.values():
        assert torch.equal(call(drops.train()), call(network))
    drops.train()
    with torch.no_grad():
        assert not torch.equal(probs_at_mask(drops, tokens), probs_at_mask(drops, tokens))


def test_a_tick_comes_before_each_batch_and_may_end_the_tuning(network):
    tokens, ticks = inputs(), []
    labels = tokens[:, 1] >= 2

    def tick():
        ticks.append(0)
        if len(ticks) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_prompt(network, tokens, labels, 3, PLAN, 5, tick=tick)
    ticked = tune_prompt(network, tokens, labels, 3, PLAN, 5, tick=lambda: ticks.append(0))
    assert len(ticks) == 5 + 3 * 3  # 3 passes over 40 examples, 16 a batch
    assert torch.equal(ticked[0], tune_prompt(network, tokens, labels, 3, PLAN, 5)[0])


def test_prompt_tuning_trains_the_prompt_and_the_head_and_nothing_else(network):
    tokens = inputs()
    labels, before = tokens[:, 1] >= 2, {name: value.clone() for name, value in network.state_dict().items()}
    prompt, head = tune_prompt(network, tokens, labels, 3, PLAN, 5)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not prompt.requires_grad
    assert not head.weights.requires_grad
    moved = (prompt - initial_prompt(network, 3, 5)).abs()
    assert (moved.amax(1) > 1e-3).all()
    assert head.weights.any()
    again = tune_prompt(network, tokens, labels, 3, PLAN, 5)
    assert torch.equal(prompt, again[0])
    assert torch.equal(head.weights, again[1].weights)
    assert not torch.equal(prompt, tune_prompt(network, tokens, labels, 3, PLAN, 6)[0])


def test_prompt_tuning_lowers_the_loss(network):
    tokens, losses = inputs(200), []
    labels = tokens[:, 1] >= 2
    for rate in (1e-9, 0.05):
        plan = Tuning(epochs=20, batch=20, head_rate=0.5, prompt_rate=rate)
        prompt, head = tune_prompt(network, tokens, labels, 3, plan, 0)
        scores = head(all_probs_at_mask(network, tokens, prompt))
        losses.append(torch.nn.functional.binary_cross_entropy_with_logits(scores, labels.float()).item())
    assert losses[1] < 0.7 * losses[0]


@pytest.mark.parametrize(("prompt_length", "fits"), [(4, True), (5, False)])
def test_prompts_must_leave_room_for_the_sequence(network, prompt_length, fits):
    tokens, plan = inputs(8), Tuning(epochs=1, batch=8, head_rate=0.1, prompt_rate=0.1)
    if fits:
        assert len(tune_prompt(network, tokens, tokens[:, 1] >= 2, prompt_length, plan, 0)[0]) == 4
        return
    with pytest.raises(ValueError, match="a prompt of 5 and sequences of 6 need 11 positions, but the network has 10"):
        tune_prompt(network, tokens, tokens[:, 1] >= 2, prompt_length, plan, 0)


def test_head_tuning_learns_what_is_separable():
    draw = torch.Generator().manual_seed(0)
    probs = torch.softmax(2 * torch.randn(600, 5, generator=draw), 1)
    scores = probs @ torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0])
    probs, labels = probs[scores.abs() > 0.05], (scores >= 0)[scores.abs() > 0.05]
    plan = Tuning(epochs=30, batch=16, head_rate=0.5, prompt_rate=1.0)
    head = tune_head(probs, labels, plan, 0)
    assert accuracy(head, probs, labels) > 0.98
    assert torch.equal(head.weights, tune_head(probs, labels, plan, 0).weights)
    assert not torch.equal(head.weights, tune_head(probs, labels, plan, 1).weights)


def test_accuracy():
    head = LinearHead(torch.tensor([1.0, -1.0]))
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5], [0.6, 0.4]])
    assert accuracy(head, probs, torch.tensor([True, False, True, False])) == 0.75
    assert accuracy(head, probs, torch.tensor([False, True, False, False])) == 0.0
