"""What in the attention of the mask a tuned prompt works through: one thing is changed at a time.

The prediction is read at the mask. There the last layer attends to the prompt's vectors and to the text, and adds up
their values. So a prompt can act through what it does to the text's positions, through the values that it puts in, or
through how much the mask attends to it, which the text decides. Each change below takes one of these away. Then a head
is fitted anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from hmmbook import Measurement, Task, TrialSpec
from hmmbook.experiments.fields import Amount, Share, as_type
from hmmbook.experiments.measurements import Seeds, Split, over_tokens
from hmmbook.studies.least_loss import least_loss_head
from hmmlib import HMM, Tuned, Tuning, tune_head
from hmmlib.theory.heads import share_right
from hmmlib.training import bert
from hmmlib.training.readers import as_reader
from hmmlib.validation import as_generator

PENALTY = 1e-4
"""The λ of the heads that are fitted after each change, so that their weights are of ordinary size."""


@dataclass(frozen=True)
class AtTheMask:
    """What the last layer has at the mask, for n texts, P prompt vectors and L positions in all."""

    residual: Tensor
    """The mask's own hidden state before the layer, (n, width)."""
    keys: Tensor
    """Keys of all positions, (n, heads, L, d)."""
    values: Tensor
    """Their values, (n, heads, L, d)."""
    query: Tensor
    """The mask's query, (n, heads, d)."""
    length: int
    """P, the number of prompt vectors. They stand first."""

    def of(self, texts: Tensor) -> AtTheMask:
        """The same for some texts, by their indices, (k,)."""
        return replace(
            self,
            residual=self.residual[texts],
            keys=self.keys[texts],
            values=self.values[texts],
            query=self.query[texts],
        )

    @property
    def attention(self) -> Tensor:
        """The weights with which the mask attends to each position, (n, heads, L)."""
        scores = torch.einsum("nhd,nhld->nhl", self.query, self.keys)
        return (scores / self.query.shape[-1] ** 0.5).softmax(-1)


def layer_at(layer: nn.Module, hidden: Tensor, place: int) -> AtTheMask:
    """What a BERT layer has at a place, from its input `hidden`, (n, L, width).

    The prompt is all that stands before the place.
    """
    attention = layer.attention.self

    def by_head(projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (attention.num_attention_heads, -1))

    return AtTheMask(
        residual=hidden[:, place],
        keys=by_head(attention.key(hidden)).transpose(1, 2),
        values=by_head(attention.value(hidden)).transpose(1, 2),
        query=by_head(attention.query(hidden[:, place])),
        length=place,
    )


def predict(
    network: nn.Module, state: AtTheMask, weights: Tensor, values: Tensor, added: Tensor | float = 0.0
) -> Tensor:
    """The distribution at the mask, (n, X), where the last layer attends with `weights` to `values`.

    `added` is added to what the attention gives, before everything that follows it.
    """
    layer = network.bert.encoder.layer[-1]
    context = torch.einsum("nhl,nhld->nhd", weights, values).flatten(1)
    attended = layer.attention.output(context, state.residual + added)
    hidden = layer.output(layer.intermediate(attended), attended)
    return network.cls(hidden)[..., :-1].softmax(-1)


def before_the_last_layer(
    network: nn.Module,
    embeddings: Tensor,
    place: int,
    text_sees: bool = True,
    mask_sees: bool = True,
    prompt_sees: bool = True,
) -> Tensor:
    """The hidden states before the last layer, (n, L, width), from word embeddings, (n, L, width).

    Args:
        place: Where the mask stands; the prompt is before it, the text behind.
        text_sees: Whether the text's positions attend to the prompt in these layers.
        mask_sees: Whether the mask attends to the prompt.
        prompt_sees: Whether the prompt attends to mask and text.
    """
    length = embeddings.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool, device=embeddings.device)
    seen[place, :place] = mask_sees
    seen[place + 1 :, :place] = text_sees
    seen[:place, place:] = prompt_sees
    hidden = network.bert.embeddings(inputs_embeds=embeddings)
    for layer in network.bert.encoder.layer[:-1]:
        hidden = bert.run_layer(layer, hidden, seen=seen)
    return hidden


def with_prompt_weights(weights: Tensor, on_prompt: Tensor) -> Tensor:
    """Attention (n, heads, L) with other weights on the prompt, (n, heads, P).

    The weights on mask and text keep their ratios, and all together still sum to 1.
    """
    length = on_prompt.shape[-1]
    on_text = weights[..., length:]
    remaining = 1 - on_prompt.sum(-1, keepdim=True)
    on_text = on_text / on_text.sum(-1, keepdim=True) * remaining
    return torch.cat([on_prompt.expand(len(weights), -1, -1), on_text], -1)


def frozen(weights: Tensor, mean: Tensor) -> Tensor:
    """Attend to each prompt vector as much as is the mean over texts."""
    return with_prompt_weights(weights, mean)


def mass_frozen(weights: Tensor, mean: Tensor) -> Tensor:
    """Attend to the prompt as a whole as much as is the mean over texts; its vectors share that as the text decides."""
    on_prompt = weights[..., : mean.shape[-1]]
    mass = on_prompt.sum(-1, keepdim=True)
    return with_prompt_weights(weights, on_prompt / mass * mean.sum(-1, keepdim=True))


def split_frozen(weights: Tensor, mean: Tensor) -> Tensor:
    """Attend to the prompt as a whole as the text decides; its vectors share that as in the mean over texts."""
    mass = weights[..., : mean.shape[-1]].sum(-1, keepdim=True)
    return with_prompt_weights(weights, mean / mean.sum(-1, keepdim=True) * mass)


def unseen(weights: Tensor, mean: Tensor) -> Tensor:
    """Attend to the text alone."""
    return with_prompt_weights(weights, torch.zeros_like(mean))


FROZEN = "attention to the prompt frozen"
FIXED = "values at their mean"
KEYS = "keys at their mean"
BOTH = "attention frozen, values at their mean"
UNSEEN = "prompt hidden from the mask, last layer"
FREEZES = {
    FROZEN: frozen,
    "its whole frozen": mass_frozen,
    "its split frozen": split_frozen,
    UNSEEN: unseen,
}
HIDDEN = {
    "prompt hidden from the text": dict(text_sees=False),
    "prompt hidden from the mask, first layer": dict(mask_sees=False),
    "text hidden from the prompt": dict(prompt_sees=False),
}
"""Who does not see whom in the layers before the last."""
CHANGES = ("none", *HIDDEN, *FREEZES, FIXED, KEYS, BOTH)


def at_their_mean(vectors: Tensor, length: int) -> Tensor:
    """Keys or values, (n, heads, L, d), with those of the prompt replaced by their mean over texts."""
    of_prompt = vectors[:, :, :length]
    return torch.cat([of_prompt.mean(0, keepdim=True).expand_as(of_prompt), vectors[:, :, length:]], 2)


class PromptedNetwork:
    """A network of `bert.build` behind a tuned prompt, on some texts that begin with the mask.

    Args:
        network: The network.
        tokens: Texts, (n, T).
        prompt: The prompt, (P, width).
    """

    def __init__(self, network: nn.Module, tokens: Tensor, prompt: Tensor):
        reader = as_reader(network)
        self.network = bert.as_network(reader.module).eval()
        self.last = self.network.bert.encoder.layer[-1]
        embedded = reader.embed(tokens, prompt)
        self.embeddings = embedded.vectors
        self.place = embedded.first
        self.state = self.at_the_mask()

    def at_the_mask(self, **sees: bool) -> AtTheMask:
        """What the last layer has at the mask, where text or mask may not see the prompt before."""
        hidden = before_the_last_layer(self.network, self.embeddings, self.place, **sees)
        return layer_at(self.last, hidden, self.place)

    def changed(self, change: str) -> Tensor:
        """The distribution at the mask, (n, X), with one of CHANGES."""
        if change in HIDDEN:
            state = self.at_the_mask(**HIDDEN[change])
            return predict(self.network, state, state.attention, state.values)
        weights, values = self.weights_and_values(change)
        return predict(self.network, self.state, weights, values)

    def weights_and_values(self, change: str) -> tuple[Tensor, Tensor]:
        """The attention weights, (n, heads, L), and the values, (n, heads, L, d), of the last layer after a change."""
        state = self.state
        weights = state.attention
        mean = weights[..., : state.length].mean(0, keepdim=True)
        fixed = at_their_mean(state.values, state.length)
        if change in FREEZES:
            return FREEZES[change](weights, mean), state.values
        if change == FIXED:
            return weights, fixed
        if change == BOTH:
            return frozen(weights, mean), fixed
        if change == KEYS:
            keys = at_their_mean(state.keys, state.length)
            return replace(state, keys=keys).attention, state.values
        return weights, state.values

    def between(self, attention: float, values: float) -> Tensor:
        """The distribution at the mask, (n, X), where attention and values are between their mean and as tuned.

        With 1 they are as tuned, with 0 the same for every text.
        """
        state = self.state
        weights = state.attention
        mean = weights[..., : state.length].mean(0, keepdim=True)
        on_prompt = mean + attention * (weights[..., : state.length] - mean)
        fixed = at_their_mean(state.values, state.length)
        mixed = fixed + values * (state.values - fixed)
        return predict(self.network, state, with_prompt_weights(weights, on_prompt), mixed)

    def with_attention_of(self, donors: Tensor) -> Tensor:
        """The distribution at the mask, (n, X), with the attention to the prompt of other texts, of index `donors`."""
        state = self.state
        weights = state.attention
        on_prompt = weights[donors, :, : state.length]
        return predict(self.network, state, with_prompt_weights(weights, on_prompt), state.values)


def donors_of(labels: Tensor, alike: bool, seed: int) -> Tensor | None:
    """For each text the index of a random one with the same label or the other one, (n,); None where there is none."""
    generator = as_generator(seed)
    donors = torch.empty(len(labels), dtype=torch.int64)
    for label in (False, True):
        receiving = (labels == label).nonzero().flatten()
        giving = (labels == (label == alike)).nonzero().flatten()
        if len(receiving) and not len(giving):
            return None
        if len(receiving):
            donors[receiving] = giving[torch.randint(len(giving), (len(receiving),), generator=generator)]
    return donors


def refitted(task: Task, probs: Tensor, plan: Tuning, seed: int, n_tokens: int) -> dict[str, float]:
    """Test accuracies of heads on predictions at the mask, (n, X) of all texts of the task.

    One is tuned like the other heads, one is fitted with PENALTY, one fully.
    """
    train, _, test = over_tokens(task, probs, n_tokens)
    labels = task.train.labels
    heads = {
        "tuned": tune_head(train, labels, plan, seed).weights,
        "fitted": least_loss_head(train, labels, PENALTY),
        "fully fitted": least_loss_head(train, labels),
    }
    accuracies = {}
    for name, weights in heads.items():
        accuracies[name] = share_right(test @ weights >= 0, task.test.labels)
    return accuracies


REFITTED = as_type(dict.fromkeys(("tuned", "fitted", "fully fitted"), Share))


@Measurement(
    on_request=True,
    phase="gate",
    vanilla=True,
    prompts=True,
    prompt_changes=dict.fromkeys(CHANGES, REFITTED),
    gate_swaps={"same label": Share | None, "other label": Share | None},
    gate_reads={"whole": Share, "each vector": Share},
    gate_by_state=dict[str, dict[str, Amount | None]],
)
@torch.no_grad()
def prompt_changes(
    spec: TrialSpec,
    model: HMM,
    task: Task,
    network: nn.Module,
    tuned: Tuned,
    beliefs: Split,
    seeds: Seeds,
    before_step: Callable,
) -> dict:
    """Measure what remains of the tuned prompt after each change, and what the mask's attention says about the label.

    `prompt_changes` has test accuracies of heads fitted anew. `gate_swaps` has how often the tuned head's label becomes
    that of another text from which the attention to the prompt is taken, in the last layer. `gate_reads` has what a
    linear classifier reads off this attention, summed over vectors or not. `gate_by_state` has, for each head of the
    layer, the mean attention to the prompt over the test texts of which a state is the likeliest.
    """
    prompted = PromptedNetwork(network, task.tokens, tuned.prompt)
    changes = {}
    for change in CHANGES:
        probs = prompted.changed(change)
        changes[change] = refitted(task, probs, spec.tuning(), seeds["tuning"], model.n_tokens)
        before_step()
    on_prompt = prompted.state.attention[..., : prompted.state.length].cpu().double()
    sums = on_prompt.sum(-1)
    return {
        "prompt_changes": changes,
        "gate_swaps": swapped_labels(PromptedNetwork(network, task.test.tokens, tuned.prompt), tuned, seeds),
        "gate_reads": {
            "whole": read_off(task, sums.clamp(min=1e-30).log()),
            "each vector": read_off(task, on_prompt.clamp(min=1e-30).log().flatten(1)),
        },
        "gate_by_state": mean_by_state(task.split(sums)[2], beliefs[2].argmax(1), model.n_states),
    }


def swapped_labels(prompted: PromptedNetwork, tuned: Tuned, seeds: Seeds) -> dict[str, float | None]:
    """How often a text takes the label of another one together with its attention."""
    labels = tuned.head.label(prompted.changed("none")).cpu()
    swaps = {}
    for name, alike in (("same label", True), ("other label", False)):
        swaps[name] = None
        donors = donors_of(labels, alike, seeds["evaluation"])
        if donors is not None:
            swapped = tuned.head.label(prompted.with_attention_of(donors))
            swaps[name] = share_right(swapped, labels[donors])
    return swaps


def read_off(task: Task, features: Tensor) -> float:
    """The test accuracy of a linear classifier, with a constant, on features (n, k) of all texts of a task."""
    constant = torch.ones(len(features), 1, dtype=features.dtype)
    train, _, test = task.split(torch.cat([features - features.mean(0), constant], 1))
    weights = least_loss_head(train, task.train.labels, 1e-6)
    return share_right(test @ weights >= 0, task.test.labels)


def mean_by_state(mass: Tensor, likeliest: Tensor, n_states: int) -> dict[str, dict[str, float | None]]:
    """The mean of `mass`, (n, heads), over the texts of each likeliest state, by head and state."""
    table = {}
    for head in range(mass.shape[1]):
        means = {}
        for state in range(n_states):
            of_state = mass[likeliest == state, head]
            means[f"state {state}"] = of_state.mean().item() if len(of_state) else None
        table[f"head {head + 1}"] = means
    return table
