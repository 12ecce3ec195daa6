"""The moving figures without memory: their JavaScript, run under Node, against hmmlib."""

import shutil

import numpy as np
import pytest
import torch
from companion.figures import interactive
from moving_figures import MOVING, close, draws, figures, prompt_figure, three_states, weather

from hmmlib.inference import reference
from hmmlib.inference.messages import latent_given_others, log_likelihood, masked_token_probs, posterior
from hmmlib.models import families
from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import AssumptionError
from hmmlib.theory.theorems import ground_truth, theorem_3_3
from hmmlib.training.readouts import Readout
from hmmlib.validation import MASK


def lists(model) -> dict:
    return {name: getattr(model, name).tolist() for name in ("transition", "emission", "initial")}


def evidence(model, tokens) -> list[list[float]]:
    return model.embed([tokens])[0].tolist()


def test_messages_are_those_of_hmmlib(js):
    cases = []
    for seed in range(8):
        for length, zeros in ((1, 0.0), (6, 0.5), (40, 0.2)):
            tokens = torch.randint(3, (length,), generator=draws(seed)).tolist()  # many of these texts are impossible
            tokens[:: 3 + seed] = [MASK] * len(tokens[:: 3 + seed])
            cases.append((families.sparse_hmm(2 + seed % 4, 3, seed, zeros), tokens))
    found = js([["kit", "latents", [lists(model), evidence(model, tokens)]] for model, tokens in cases])
    for (model, tokens), result in zip(cases, found, strict=True):
        close(result[0], posterior(model, [tokens])[0])
        close(result[1:], latent_given_others(model, [tokens])[0])
    impossible = sum(log_likelihood(model, [tokens]).item() == -torch.inf for model, tokens in cases)
    assert 3 <= impossible <= len(cases) - 3


@pytest.mark.parametrize(
    ("script", "good", "bad", "call"),
    [
        (
            "kit.js",
            "step(transposed(transition), ",
            "step(transition, ",
            lambda: ["kit", "latents", [lists(m := families.sparse_hmm(3, 3, 1, 0.0)), evidence(m, [0, 1, 2, 0])]],
        ),
        (
            "messages.js",
            "back = transposed(transition)",
            "back = transition",
            lambda: ["messages", "compute", [figures()["messages"].data, [False] * 4, 8]],
        ),
        (
            "writing.js",
            "normalised(all.at(-1).map((m, k) => product(times(transition, m), row[k])))",
            "normalised(all.at(-1).map((m, k) => product(m, row[k])))",
            lambda: ["beliefs", "compute", [figures()["beliefs"].data, [0, 2, 1]]],
        ),
    ],
)
def test_a_damaged_script_gives_other_numbers(script, good, bad, call, js, tmp_path):
    folder = shutil.copytree(MOVING, tmp_path / "moving")
    text = (folder / script).read_text()
    assert text.count(good) == 1
    (folder / script).write_text(text.replace(good, bad))
    assert js([call()]) != js([call()], folder)


# Conditioning by a prompt


@pytest.mark.parametrize("seed", range(5))
def test_prompts_condition_as_in_hmmlib(seed, js):
    model, mu, prompt, head, x, figure = prompt_figure(seed)
    draw = torch.rand(3, 4, generator=draws(seed), dtype=torch.float64)
    draw[1, seed % 4] = 0
    prompts = [prompt, torch.ones(4, dtype=torch.float64), prompt.clamp(min=0.03), torch.zeros_like(prompt), *draw]
    found = js([["prompt", "compute", [figure.data, u.tolist()]] for u in prompts])
    left = js([["prompt", "carried", [lists(model), u.tolist()]] for u in prompts])
    close(left, torch.stack(prompts) * model.marginal(1) @ model.transition.T)
    behind = torch.cat([torch.full_like(x[:, :1], MASK), x], 1)
    labels = ground_truth(model, mu, x) >= 0
    assert figure.data["inputs"] == x.tolist()
    for u, result in zip(prompts, found, strict=True):
        points = result["points"]
        gap = masked_token_probs(model, behind, u)[:, 1]
        close([p["latent"] for p in points], latent_given_others(model, behind, u)[:, 1])
        close([p["gap"] for p in points], gap)
        assert [p["label"] for p in points] == labels.tolist()
        assert [p["right"] for p in points] == ((head(gap) >= 0) == labels).tolist()
        assert [p["occurs"] for p in points] == (gap.sum(1) > 0).tolist()
        assert result["possible"] == (model.transition @ (u * model.marginal(1)) > 0).tolist()
    assert all(p["right"] for p in found[0]["points"])
    assert not any(p["occurs"] for p in found[3]["points"])


# Nearly dependent columns


def test_singular_values_and_inverses_are_those_of_lapack(js):
    matrices = [torch.rand(rows, 3, generator=draws(rows), dtype=torch.float64) for rows in range(3, 9)]
    matrices += [families.nearly_dependent_hmm(3, 3, 10.0**-k, k).emission for k in range(6)]
    matrices += [torch.diag(torch.tensor([1.0, 1e-9, 3.0], dtype=torch.float64)), torch.eye(3).double()]
    equal = torch.rand(3, 3, generator=draws(0), dtype=torch.float64)
    equal[:, 2] = equal[:, 0]
    matrices += [equal, torch.zeros(3, 3).double(), torch.ones(4, 3).double()]
    found = js([["columns", "singularValues", [m.tolist()]] for m in matrices])
    for matrix, values in zip(matrices, found, strict=True):
        close(values, torch.linalg.svdvals(matrix), 1e-10)
    square = [m for m in matrices if m.shape == (3, 3) and torch.linalg.cond(m) < 1e7]
    assert len(square) >= 7
    for matrix, inverse in zip(square, js([["columns", "inverse", [m.tolist()]] for m in square]), strict=True):
        close(inverse @ matrix.numpy(), np.eye(3), 1e-14 * torch.linalg.cond(matrix).item())


@pytest.mark.parametrize(("merge", "size"), [((0, 1), 0.001), ((2, 0), 0.2)])
def test_a_closing_gap_does_what_hmmlib_computes(merge, size, js):
    model, mu = three_states()
    figure = interactive.nearly_dependent_columns(model, mu, "abc", merge, size)
    gaps = [1.0, 0.2, 0.01, 1e-4, 0.0]
    x, noise = torch.tensor(figure.data["inputs"]), torch.tensor(figure.data["noise"], dtype=torch.float64)
    behind = torch.cat([torch.full_like(x[:, :1], MASK), x], 1)
    assert 0.9 < noise.std() / size < 1.1
    for gap, result in zip(gaps, js([["columns", "compute", [figure.data, gap]] for gap in gaps]), strict=True):
        emission = model.emission.clone()
        emission[:, merge[1]] = (1 - gap) * emission[:, merge[0]] + gap * emission[:, merge[1]]
        moved = HMM(model.transition, emission, model.initial)
        p, g = posterior(moved, x), masked_token_probs(moved, behind)[:, 0]
        middle = (p @ mu).sort().values[len(x) // 2 - 1 : len(x) // 2 + 1].mean()
        close(result["task"], mu - middle)
        close([point["guess"] for point in result["points"]], g)
        labels = p @ (mu - middle) >= 0
        assert [point["label"] for point in result["points"]] == labels.tolist()
        close(result["values"], torch.linalg.svdvals(emission), 1e-10)
        if gap == 0:
            assert result["dependent"]
            assert result["head"] is None
            with pytest.raises(AssumptionError):
                theorem_3_3(moved, mu)
            continue
        head = theorem_3_3(moved, mu - middle)
        assert not result["dependent"]
        close(np.array(result["head"]) / head.weights.numpy(), np.ones(3), 1e-12 * head.condition)
        close([point["noisy"] for point in result["points"]], (g + noise).clamp(min=0))
        assert all(point["right"] for point in result["points"])
        right = (head((g + noise).clamp(min=0)) >= 0) == labels
        assert [point["rightNoisy"] for point in result["points"]] == right.tolist()
    assert right.sum() < 60  # at the smallest gap noise has its way


def test_whether_a_head_is_left_is_decided_by_a_linear_program():
    model, mu = three_states()
    assert interactive.nearly_dependent_columns(model, mu, "abc", (0, 1)).data["refuted"]
    assert not interactive.nearly_dependent_columns(model, mu, "abc", (0, 2)).data["refuted"]


# A fake token, or other words


@pytest.mark.parametrize("seed", range(4))
def test_points_behind_weights_and_other_emissions_are_the_readout_of_hmmlib(js, seed):
    model, rng = families.regular_hmm(4, 3, seed, zeros=0.2), np.random.default_rng(seed)
    beliefs, other = rng.dirichlet(np.ones(4), 30), rng.dirichlet(np.ones(3), 4).T
    weights, shares = rng.random(4) * (rng.random(4) < 0.7), rng.random(4)
    figure = interactive.fake_token_or_other_words(model.emission, beliefs, beliefs[:, 0] > 0.3, other, weights, "abcd")
    assert figure.data["beliefs"] == beliefs.tolist()
    (found,) = js([["fake_token", "compute", [figure.data, weights.tolist(), shares.tolist()]]])
    table = (1 - shares) * model.emission.numpy() + shares * other
    want = Readout(torch.as_tensor(table), torch.as_tensor(weights))(torch.as_tensor(beliefs))
    close(found["table"], table)
    close(found["points"], want)
    right = (np.array(found["points"]) @ found["head"] >= 0) == (beliefs[:, 0] > 0.3)
    assert right.sum() == found["right"]


def test_the_best_head_parts_what_can_be_parted_and_no_more(js):
    rng = np.random.default_rng(0)
    points = rng.dirichlet(np.ones(3), 80)
    apart = (points @ [1.0, -0.4, -0.1] > 0.1).tolist()
    mixed = (rng.random(80) < 0.5).tolist()
    same = [[0.2, 0.3, 0.5]] * 10
    calls = [(points.tolist(), apart), (points.tolist(), mixed), (same, [True] * 7 + [False] * 3), (same, [False] * 10)]
    found = js([["fake_token", "best", list(call)] for call in calls])
    assert found[0]["right"] >= 79
    assert 40 <= found[1]["right"] < 70
    assert [one["right"] for one in found[2:]] == [7, 10]


# Messages, one after the other


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
    (found,) = js([["messages", "compute", [figure.data, masked, 2 * last]]])
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
    seen = js([["messages", "compute", [figure.data, masked, step]] for step in range(2 * last + 1)])
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
        seen = js([["messages", "compute", [figure.data, masked, step]] for step in steps])
        written = js([["messages", "sums", [figure.data, look]] for look in seen])
        for look, lines in zip(seen, written, strict=True):
            message = look["places"][look["at"]]["left" if look["rightwards"] else "right"]
            for entry, (terms, total) in zip(message, lines, strict=True):
                assert float(total) == pytest.approx(entry, rel=1e-3)
                assert eval_sum(terms) == pytest.approx(entry, rel=1e-3, abs=1e-12)


def eval_sum(terms: str) -> float:
    """The value of a·b·c + d·e·f."""
    return sum(float(np.prod([float(factor) for factor in term.split("·")])) for term in terms.split(" + "))


def test_the_explanation_of_a_message_names_its_word(js):
    figure = figures()["messages"]
    masked = [False, True, False, False]
    seen = js([["messages", "compute", [figure.data, masked, step]] for step in range(9)])
    said = js([["messages", "explanation", [figure.data, look, masked]] for look in seen])
    assert "from the start" in said[0]
    assert "H₁ to H₂: the message at H₁ times e(sun) = (0.7, 0.1), carried one step by A." in said[2]
    assert "word 2 is masked" in said[3]
    assert "word 2 is masked" in said[7]
    assert "H₃ to H₂: the message at H₃ times e(rain) = (0.1, 0.7), carried one step back by Aᵀ" in said[6]
    assert "they give τ₂ and G₂" in said[6]
    assert "posterior" in said[8]
