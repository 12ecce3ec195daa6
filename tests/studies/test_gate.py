"""Changes to what a tuned prompt does at the mask: each does what it says, and what it leaves alone stays."""

import pytest
import torch
from tiny_networks import inputs, lively

from hmmbook.experiments.labels import Task
from hmmbook.studies.mechanism import gate
from hmmlib.training import tuning
from hmmlib.validation import MASK

N_PROMPT = 3
MASK_AT = N_PROMPT
TEXT_FROM = N_PROMPT + 1
TOKENS = inputs(length=8)
PROMPT = torch.randn(N_PROMPT, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def prompted():
    """A lively network behind a random prompt, on 40 random texts that begin with the mask."""
    with torch.no_grad():
        yield gate.PromptedNetwork(lively(layers=2, max_length=12), TOKENS, PROMPT)


def close(first, second, tolerance=1e-5):
    torch.testing.assert_close(first, second, rtol=0, atol=tolerance)


def added_by_the_prompt(weights, values):
    """What the prompt contributes to the attention's sum at the mask, (n, heads, d)."""
    return torch.einsum("nhp,nhpd->nhd", weights[..., :N_PROMPT], values[:, :, :N_PROMPT])


def spread(values):
    """The largest distance of any text's values from the first text's."""
    return (values - values[:1]).abs().max().item()


def test_without_a_change_the_prediction_is_the_networks_own(prompted):
    probs = tuning.all_probs_at_mask(prompted.network, TOKENS, PROMPT)
    close(prompted.changed("none"), probs)
    without = tuning.all_probs_at_mask(prompted.network, TOKENS)
    assert (probs - without).abs().max() > 0.01, "the prompt does nothing, so the test would show nothing"


def test_the_attention_is_what_transformers_gives(prompted):
    prompted.network.set_attn_implementation("eager")
    output = prompted.network(inputs_embeds=prompted.embeddings, output_attentions=True)
    prompted.network.set_attn_implementation("sdpa")
    close(prompted.state.attention, output.attentions[-1][:, :, prompted.place])


def test_hiding_the_prompt_from_text_and_mask_in_the_first_layer_is_a_cut_of_that_layer(prompted):
    states = tuning.all_hidden_at_mask(prompted.network, TOKENS, PROMPT, [1])[1]
    close(prompted.at_the_mask(text_sees=False, mask_sees=False).residual, states)


@pytest.mark.parametrize(
    ("change", "positions"),
    [
        ("prompt hidden from the text", slice(TEXT_FROM, None)),
        ("prompt hidden from the mask, first layer", slice(MASK_AT, TEXT_FROM)),
        ("text hidden from the prompt", slice(0, N_PROMPT)),
    ],
)
def test_hiding_changes_the_values_of_those_from_whom_something_is_hidden_and_of_nobody_else(
    prompted, change, positions
):
    hidden = prompted.at_the_mask(**gate.HIDDEN[change])
    differences = (hidden.values - prompted.state.values).abs()
    moved = differences.amax((0, 1, 3)) > 1e-4
    expected = torch.zeros_like(moved)
    expected[positions] = True
    assert moved.tolist() == expected.tolist()
    predicted = gate.predict(prompted.network, hidden, hidden.attention, hidden.values)
    close(prompted.changed(change), predicted)


def test_with_keys_at_their_mean_the_scores_of_the_prompt_are_the_mean_keys_times_the_query(prompted):
    state = prompted.state
    weights, values = prompted.weights_and_values("keys at their mean")
    root = state.query.shape[-1] ** 0.5
    mean_keys = state.keys[:, :, :N_PROMPT].mean(0)
    scores_of_prompt = torch.einsum("nhd,hpd->nhp", state.query, mean_keys)
    scores_of_mask = (state.query * state.keys[:, :, MASK_AT]).sum(-1, keepdim=True)
    ratios = weights[..., :N_PROMPT] / weights[..., MASK_AT : MASK_AT + 1]
    close(ratios.log(), (scores_of_prompt - scores_of_mask) / root, 1e-3)
    assert (weights - state.attention).abs().max() > 1e-3
    close(values, state.values)


def test_hiding_the_prompt_from_the_mask_in_the_last_layer_is_a_cut_there(prompted):
    last = tuning.all_hidden_at_mask(prompted.network, TOKENS, PROMPT, [2])[-1]
    probs = prompted.network.cls(last)[:, :-1].softmax(-1)
    close(prompted.changed("prompt hidden from the mask, last layer"), probs)


def test_a_prompt_from_which_the_text_is_hidden_has_the_same_keys_and_values_for_every_text(prompted):
    hidden = prompted.at_the_mask(prompt_sees=False)
    assert spread(hidden.values[:, :, :N_PROMPT]) < 1e-5
    assert spread(hidden.keys[:, :, :N_PROMPT]) < 1e-5
    assert spread(prompted.state.values[:, :, :N_PROMPT]) > 0.01


@pytest.mark.parametrize("change", gate.FREEZES)
def test_after_each_freeze_weights_sum_to_one_and_those_on_the_text_keep_their_ratios(prompted, change):
    weights = prompted.state.attention
    mean = weights[..., :N_PROMPT].mean(0, keepdim=True)
    changed = gate.FREEZES[change](weights, mean)
    close(changed.sum(-1), torch.ones_like(changed.sum(-1)))
    ratios = changed[..., N_PROMPT:] / weights[..., N_PROMPT:]
    close(ratios, ratios[..., :1].expand_as(ratios), 1e-4)


def test_each_freeze_fixes_what_it_names_and_nothing_else(prompted):
    weights = prompted.state.attention
    on_prompt = weights[..., :N_PROMPT]
    mean = on_prompt.mean(0, keepdim=True)
    mass = on_prompt.sum(-1)
    split = on_prompt / mass[..., None]

    whole_frozen = gate.mass_frozen(weights, mean)[..., :N_PROMPT]
    assert spread(whole_frozen.sum(-1)) < 1e-5
    close(whole_frozen / whole_frozen.sum(-1, keepdim=True), split)

    split_frozen = gate.split_frozen(weights, mean)[..., :N_PROMPT]
    assert spread(split_frozen / split_frozen.sum(-1, keepdim=True)) < 1e-5
    close(split_frozen.sum(-1), mass)

    assert spread(gate.frozen(weights, mean)[..., :N_PROMPT]) < 1e-5
    assert spread(on_prompt) > 0.01, "the attention does not follow the text, so freezing would change nothing"


def test_only_both_changes_together_make_the_prompts_part_the_same_for_every_text(prompted):
    weights = prompted.state.attention
    values = prompted.state.values
    mean = weights[..., :N_PROMPT].mean(0, keepdim=True)
    frozen = gate.frozen(weights, mean)
    fixed = gate.at_their_mean(values, N_PROMPT)
    assert spread(added_by_the_prompt(frozen, fixed)) < 1e-5
    assert spread(added_by_the_prompt(frozen, values)) > 1e-3
    assert spread(added_by_the_prompt(weights, fixed)) > 1e-3


def test_between_has_the_changes_at_its_ends(prompted):
    close(prompted.between(1, 1), prompted.changed("none"))
    close(prompted.between(0, 1), prompted.changed("attention to the prompt frozen"))
    close(prompted.between(1, 0), prompted.changed("values at their mean"))
    close(prompted.between(0, 0), prompted.changed("attention frozen, values at their mean"))


def test_a_text_with_its_own_attention_is_unchanged_and_with_anothers_it_is_not(prompted):
    texts = torch.arange(len(TOKENS))
    unchanged = prompted.changed("none")
    close(prompted.with_attention_of(texts), unchanged)
    with_anothers = prompted.with_attention_of(texts.roll(1))
    assert (with_anothers - unchanged).abs().max() > 1e-4


@pytest.mark.parametrize("alike", [True, False])
def test_donors_have_the_same_label_or_the_other(alike):
    labels = torch.tensor([True, False, False, True, True])
    donors = gate.donors_of(labels, alike, 0)
    assert ((labels[donors] == labels) == alike).all()


def test_there_is_no_donor_with_another_label_where_all_labels_agree():
    assert gate.donors_of(torch.tensor([True, True]), alike=False, seed=0) is None


def small_task(labels):
    """A task of these labels, half of them for training, whose texts do not matter."""
    n = len(labels)
    tokens = torch.zeros(n, 2, dtype=torch.int64)
    mu = torch.zeros(2).double()
    sizes = (n // 2, n // 4, n // 4)
    posteriors = torch.zeros(n, 2).double()
    return Task(tokens, labels, mu, 0, sizes, posteriors)


def test_a_label_is_read_off_the_attention_that_carries_it_and_not_off_any_other():
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(800, generator=generator) < 0.5
    noise = torch.randn(800, 2, generator=generator, dtype=torch.float64)
    carrying = noise + 3 * torch.stack([labels, torch.zeros(800)], 1)
    assert gate.read_off(small_task(labels), carrying) > 0.85
    assert gate.read_off(small_task(labels), noise) < 0.6


def test_refitted_heads_read_a_planted_label_by_the_size_that_it_needs():
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(800, generator=generator) < 0.5
    sign = torch.where(labels, 1.0, -1.0)[:, None]
    noise = 0.01 * torch.randn(800, 1, generator=generator)
    even = 1 / 3 + noise * torch.tensor([1.0, 0, -1])
    direction = torch.tensor([1.0, -2, 1])
    plan = tuning.Tuning()
    clear = gate.refitted(small_task(labels), even + 0.05 * sign * direction, plan, 0, 3)
    faint = gate.refitted(small_task(labels), even + 0.0005 * sign * direction, plan, 0, 3)
    assert clear["fitted"] == clear["fully fitted"] == 1
    assert faint["fully fitted"] == 1
    assert faint["fitted"] < 0.7


def test_the_mean_attention_of_each_state_is_over_its_own_texts():
    mass = torch.tensor([[0.1, 0.5], [0.3, 0.7], [0.9, 0.2]])
    states = torch.tensor([0, 0, 2])
    means = gate.mean_by_state(mass, states, 3)
    assert means["head 1"] == pytest.approx({"state 0": 0.2, "state 1": None, "state 2": 0.9})
    assert means["head 2"] == pytest.approx({"state 0": 0.6, "state 1": None, "state 2": 0.2})


def test_predictions_of_a_network_of_one_layer_can_be_changed_too():
    network = lively()
    tokens = torch.tensor([[MASK, 1, 2], [MASK, 3, 0]])
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randn(2, network.config.hidden_size, generator=generator)
    with torch.no_grad():
        behind = gate.PromptedNetwork(network, tokens, prompt)
        close(behind.changed("none"), tuning.all_probs_at_mask(network, tokens, prompt))
