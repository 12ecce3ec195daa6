"""Chains of look-alikes, and what a fake token can do on them."""

import torch

from hmmbook.studies import fake_tokens, look_alikes
from hmmbook.studies.certificates import separating_head
from hmmbook.studies.look_alikes import chains
from hmmlib import Impossible, essential_states, theorem_3_6
from hmmlib.training.tuning import probs_behind_prompt

CHAIN = look_alikes.look_alike_chain(1002)
MU_A, MU_C = (torch.tensor(mu, dtype=torch.float64) for mu in look_alikes.TASKS.values())


def test_one_task_has_a_fake_token_and_the_other_has_none():
    assert torch.equal(CHAIN.emission[:, [0, 2]], CHAIN.emission[:, [1, 3]])
    states = essential_states(CHAIN, MU_A)
    assert set(states) == {0, 2, 4, 5}
    prompt, head = theorem_3_6(CHAIN, MU_A, states)
    _, beliefs = look_alikes.masked_texts(CHAIN, 800, 33, 0)
    predicted = probs_behind_prompt(CHAIN, beliefs, prompt)
    assert (head.label(predicted) == (beliefs @ MU_A >= 0)).all()
    assert isinstance(separating_head(CHAIN, MU_C), Impossible)


def test_chains_whose_texts_reveal_the_state_are_not_decidable(monkeypatch):
    """There a relabelling fits everything. The seeds that pass and fail are as they were when trials were stored."""
    assert look_alikes.is_decidable(CHAIN, 1002)
    assert not look_alikes.is_decidable(look_alikes.look_alike_chain(3000), 3000)
    monkeypatch.setattr(chains, "MIXTURE", (0.98, 0.01, 0.01))
    assert not look_alikes.is_decidable(look_alikes.look_alike_chain(1002), 1002)


def test_trials_of_one_chain_share_its_texts_but_not_their_labels():
    tasks = []
    for spec in look_alikes.specs_of(1002):
        small_spec = spec.replace(train=20, validation=1, test=20)
        tasks.append(look_alikes.draw_task(small_spec, look_alikes.chain_of(spec)))
    task_a, _, task_c, _, shuffled = tasks
    assert torch.equal(task_a.tokens, task_c.tokens)
    assert torch.equal(task_c.labels, task_c.posteriors @ MU_C >= 0)
    assert not torch.equal(shuffled.labels, task_a.labels)
    assert shuffled.labels.sum() == task_a.labels.sum()


# Of three states the first two look alike, or no two do.
ALIKE = torch.eye(3, dtype=torch.float64)[:, [0, 0, 2]]
APART = torch.eye(3, dtype=torch.float64)


def planted_beliefs():
    generator = torch.Generator().manual_seed(3)
    beliefs = torch.rand(30, 3, generator=generator).double() ** 2
    beliefs = beliefs / beliefs.sum(1, keepdim=True)
    labels = beliefs @ torch.tensor([1.0, -1.0, 0.1], dtype=torch.float64) >= 0
    return beliefs, labels


def directions():
    """A fine grid of directions ν, (n, 3)."""
    around = torch.linspace(0, 2 * torch.pi, 721)[:, None]
    up = torch.linspace(0, torch.pi, 361)
    first = up.sin() * around.cos()
    second = up.sin() * around.sin()
    third = up.cos().expand(721, -1)
    return torch.stack([first, second, third], -1).reshape(-1, 3).double()


def test_the_fewest_errors_are_those_of_the_best_direction_of_a_fine_grid():
    beliefs, labels = planted_beliefs()
    grid = directions()
    allowed = grid[grid[:, 0] * grid[:, 1] >= 0]
    said = beliefs @ allowed.T > fake_tokens.MARGIN
    errors = (said != labels[:, None]).sum(0).min()
    assert errors > 3
    assert fake_tokens.fewest_errors(ALIKE, beliefs, labels) == errors


def test_a_good_fake_token_has_no_opposite_signs_on_look_alikes():
    beliefs, labels = planted_beliefs()
    good = fake_tokens.good_fake_token(ALIKE, beliefs, labels)
    assert good[0] * good[1] >= 0
    errors = ((beliefs @ good >= 0) != labels).sum()
    assert errors >= fake_tokens.fewest_errors(ALIKE, beliefs, labels)


def test_where_no_states_look_alike_some_fake_token_is_right_everywhere():
    beliefs, labels = planted_beliefs()
    assert fake_tokens.fewest_errors(APART, beliefs, labels) == 0
