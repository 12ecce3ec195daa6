"""The stepper of messages: its JavaScript, run under Node, against hmmlib."""

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from companion.figures import interactive
from moving_figures import MOVING, draws, weather

from hmmlib.inference import reference
from hmmlib.inference.messages import log_likelihood, masked_token_probs, posterior
from hmmlib.models import families
from hmmlib.validation import MASK

close = partial(np.testing.assert_allclose, rtol=0, atol=1e-12)


def two_state_case(seed):
    """A model of two states, a text that can occur, and which of its words are masked."""
    model = families.sparse_hmm(2, 2 + seed % 3, seed, 0.3 * (seed % 2)) if seed else weather()[0]
    tokens = model.sample(1, 1 + seed % 5, seed).tokens[0].tolist()
    masked = [bool(flag) for flag in torch.rand(len(tokens), generator=draws(seed)) < 0.4]
    words = [*"abcd"[: model.n_tokens]]
    at = [i + 1 for i, flag in enumerate(masked) if flag]
    figure = interactive.passing_messages(model, words, "xy", " ".join(words[token] for token in tokens), at)
    assert figure.data["text"] == tokens
    return model, [MASK if flag else token for token, flag in zip(tokens, masked, strict=True)], masked, figure


@pytest.mark.parametrize("seed", range(10))
def test_both_passes_are_those_of_hmmlib(seed, js):
    model, tokens, masked, figure = two_state_case(seed)
    last = len(tokens)
    (found,) = js([["passes", "look", [figure.data, masked, 2 * last]]])
    marginals, left, right = (m[..., 0] for m in reference.left_and_right(model, model.embed([tokens])))
    taus = reference.tau(model, model.embed([tokens]))[0]
    places = found["places"]
    close([place["left"] for place in places], right)
    close([np.array(place["right"]) for place in places] * marginals.numpy(), left)
    close([place["tau"] for place in places[1:]], taus)
    start = np.array(places[0]["tau"])
    close(start.sum(), log_likelihood(model, [tokens]).exp().item())
    close(start / start.sum(), posterior(model, [tokens])[0])
    close([place["guess"] for place in places[1:]], masked_token_probs(model, [tokens])[0])
    assert places[0]["guess"] is None


def test_messages_come_one_after_the_other(js):
    _, tokens, masked, figure = two_state_case(9)
    last = len(tokens)
    assert last == 5
    seen = js([["passes", "look", [figure.data, masked, step]] for step in range(2 * last + 1)])
    there = [
        {name: [bool(place[name]) for place in look["places"]] for name in ("left", "right", "tau", "guess")}
        for look in seen
    ]
    assert there[0] == {
        "left": [True] + [False] * 5,
        "right": [False] * 5 + [True],
        "tau": [False] * 6,
        "guess": [False] * 6,
    }
    for before, after, look in zip(there, there[1:], seen[1:], strict=False):
        side = "left" if look["rightwards"] else "right"
        gained = [i for i in range(last + 1) if after[side][i] and not before[side][i]]
        assert gained == [look["at"]]
        assert look["from"] == look["at"] - (1 if side == "left" else -1)
        other = "right" if side == "left" else "left"
        assert after[other] == before[other]
        assert after["tau"] == [a and b for a, b in zip(after["left"], after["right"], strict=True)]
        assert after["guess"] == [False, *after["tau"][1:]]
    assert all(there[-1]["tau"])


def test_the_sums_that_are_written_out_are_the_messages(js):
    for seed in range(6):
        _, tokens, masked, figure = two_state_case(seed)
        steps = range(1, 2 * len(tokens) + 1)
        seen = js([["passes", "look", [figure.data, masked, step]] for step in steps])
        written = js([["passes", "sums", [figure.data, look]] for look in seen])
        for look, lines in zip(seen, written, strict=True):
            message = look["places"][look["at"]]["left" if look["rightwards"] else "right"]
            for entry, (terms, total) in zip(message, lines, strict=True):
                assert float(total) == pytest.approx(entry, rel=1e-3)
                assert eval_sum(terms) == pytest.approx(entry, rel=1e-3, abs=1e-12)


def eval_sum(terms: str) -> float:
    """The value of a·b·c + d·e·f."""
    return sum(float(np.prod([float(factor) for factor in term.split("·")])) for term in terms.split(" + "))


def test_what_is_told_of_a_message_names_its_word(js):
    model, words = weather()
    figure = interactive.passing_messages(model, words, ["calm", "stormy"], "sun cloud rain sun", [2])
    masked = [False, True, False, False]
    seen = js([["passes", "look", [figure.data, masked, step]] for step in range(9)])
    said = js([["passes", "told", [figure.data, look, masked]] for look in seen])
    assert "from the start" in said[0]
    assert "H₁ to H₂: the message at H₁ times e(sun) = (0.7, 0.1), carried one step by A." in said[2]
    assert "word 2 is masked" in said[3]
    assert "word 2 is masked" in said[7]
    assert "H₃ to H₂: the message at H₃ times e(rain) = (0.1, 0.7), carried one step back by Aᵀ" in said[6]
    assert "they give τ₂ and G₂" in said[6]
    assert "posterior" in said[8]


def test_a_damaged_pass_is_seen(js, tmp_path):
    folder = shutil.copytree(MOVING, tmp_path / "moving")
    script = (folder / "passes.js").read_text()
    assert script.count("back = transposed(transition)") == 1
    (folder / "passes.js").write_text(script.replace("back = transposed(transition)", "back = transition"))
    model, _ = weather()
    figure = interactive.passing_messages(model, "abc", "xy", "a c c")
    (found,) = js([["passes", "look", [figure.data, [False] * 3, 6]]], folder)
    guesses = np.array([place["guess"] for place in found["places"][1:]])
    assert np.abs(guesses - masked_token_probs(model, [[0, 2, 2]])[0].numpy()).max() > 1e-3
